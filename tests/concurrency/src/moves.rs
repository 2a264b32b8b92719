//! Things moved from key to key: at every moment each is in exactly one place.

use crate::cases::{Conduct, Run, transaction, words};
use crate::client::{Client, Outcome, Reply};
use crate::random::Random;
use std::collections::BTreeSet;

const PLACES: usize = 8;
const THINGS: usize = 60;
const READERS: usize = 2;

fn place(index: usize) -> String {
    format!("place:{index}")
}

pub fn set_members(run: &Run) -> Outcome<String> {
    moved(run, "SADD", "SCARD", "SMEMBERS", |run, client, random| {
        let (from, to) = random.two_below(PLACES);
        let (from, to) = (place(from), place(to));
        let Reply::Bulk(member) = client.call(&["SRANDMEMBER", &from])? else { return Ok(false) };
        if run.options.conduct == Conduct::Cheating {
            let was_there = client.call(&["SREM", &from, &member])?.integer()? == 1;
            if was_there {
                client.call(&["SADD", &to, &member])?;
            }
            return Ok(was_there);
        }
        Ok(client.call(&["SMOVE", &from, &to, &member])?.integer()? == 1)
    })
}

pub fn list_elements(run: &Run) -> Outcome<String> {
    moved(run, "RPUSH", "LLEN", "LRANGE", |run, client, random| {
        let (from, to) = random.two_below(PLACES);
        let (from, to) = (place(from), place(to));
        if run.options.conduct == Conduct::Cheating {
            let Reply::Bulk(element) = client.call(&["RPOP", &from])? else { return Ok(false) };
            client.call(&["LPUSH", &to, &element])?;
            return Ok(true);
        }
        let reply = match random.below(3) {
            0 => client.call(&["RPOPLPUSH", &from, &to])?,
            1 => client.call(&["LMOVE", &from, &to, "LEFT", "RIGHT"])?,
            _ => client.call(&["LMOVE", &from, &to, "RIGHT", "RIGHT"])?,
        };
        Ok(reply != Reply::Nil)
    })
}

/// Puts things in the first place, lets writers move them and readers count them, and looks at
/// every thing at the end.
fn moved(
    run: &Run,
    put: &str,
    count: &str,
    list: &str,
    step: impl Fn(&Run, &mut Client, &mut Random) -> Outcome<bool> + Sync,
) -> Outcome<String> {
    let mut fill = vec![put.to_owned(), place(0)];
    fill.extend((0..THINGS).map(|thing| thing.to_string()));
    run.connect()?.call(&fill)?;
    let writers = run.options.clients_count;
    let counts = run.on_threads(writers + READERS, |index, client, random| {
        let mut done = 0_u64;
        while run.goes_on() {
            if index < writers {
                done += u64::from(step(run, client, random)?);
            } else {
                check_count(client, count)?;
                done += 1;
            }
        }
        Ok(done)
    })?;
    check_things(&mut run.connect()?, list)?;
    let (moves, looks) = counts.split_at(writers);
    Ok(format!("{} moves, {} counts", moves.iter().sum::<u64>(), looks.iter().sum::<u64>()))
}

fn check_count(client: &mut Client, count: &str) -> Outcome<()> {
    let counts: Vec<_> = (0..PLACES).map(|i| words(&format!("{count} {}", place(i)))).collect();
    let counts = transaction(client, &counts)?.ok_or("EXEC gave nil")?;
    let counts: Vec<i64> = counts.iter().map(Reply::integer).collect::<Outcome<_>>()?;
    if counts.iter().sum::<i64>() == THINGS as i64 {
        return Ok(());
    }
    Err(format!("{THINGS} things, but the places hold {counts:?}"))
}

fn check_things(client: &mut Client, list: &str) -> Outcome<()> {
    let mut found = Vec::new();
    for index in 0..PLACES {
        let range = if list == "LRANGE" { " 0 -1" } else { "" };
        let command = words(&format!("{list} {}{range}", place(index)));
        for thing in client.call(&command)?.array()? {
            found.push(thing.text()?);
        }
    }
    let different: BTreeSet<&String> = found.iter().collect();
    if found.len() == THINGS && different.len() == THINGS {
        return Ok(());
    }
    Err(format!("{THINGS} things became {} ({} different)", found.len(), different.len()))
}

/// One key renamed round a ring: EXISTS of all names, one command, finds it exactly once.
pub fn renamed_key(run: &Run) -> Outcome<String> {
    run.connect()?.call(&["SET", &place(0), "the value"])?;
    let writers = run.options.clients_count;
    let counts = run.on_threads(writers + READERS, |index, client, random| {
        let mut done = 0_u64;
        while run.goes_on() {
            if index < writers {
                let (from, to) = random.two_below(PLACES);
                client.queue(&["RENAME", &place(from), &place(to)]);
                client.flush()?;
                // Most names are free: "no such key" is the usual answer, and right.
                done += u64::from(!matches!(client.receive()?, Reply::Error(_)));
            } else {
                let mut look = words("EXISTS");
                look.extend((0..PLACES).map(place));
                let found = client.call(&look)?.integer()?;
                if found != 1 {
                    return Err(format!("the key is in {found} places at once"));
                }
                done += 1;
            }
        }
        Ok(done)
    })?;
    let (moves, looks) = counts.split_at(writers);
    Ok(format!("{} moves, {} looks", moves.iter().sum::<u64>(), looks.iter().sum::<u64>()))
}
