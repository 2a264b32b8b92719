//! Money moved between accounts: whoever looks, whenever, sees the same total.

use crate::cases::{Conduct, Run, transaction, words};
use crate::client::{Client, Outcome, Reply};
use crate::linear::{Action, Operation, is_linearizable};
use crate::random::Random;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

const ACCOUNTS: usize = 12;
const OPENING_BALANCE: i64 = 1000;
const READERS: usize = 3;
/// Keys written together in the snapshot case: enough to lie in many lock shards.
const SNAPSHOT_KEYS: usize = 16;
/// So long that a history spans many switches between clients, and its check stays quick.
const SNAPSHOT_OPERATIONS_MAX: usize = 400;

fn account(index: usize) -> String {
    format!("account:{index}")
}

/// Transfers that read both balances under WATCH and write what they computed from them.
pub fn watched(run: &Run) -> Outcome<String> {
    transfers(run, |run, client, random| {
        let (from, to) = random.two_below(ACCOUNTS);
        let (from, to) = (account(from), account(to));
        client.call(&["WATCH", &from, &to])?;
        let balances = integers(client.call(&["MGET", &from, &to])?)?;
        let amount = random.below(50) as i64;
        let writes = [
            words(&format!("SET {from} {}", balances[0] - amount)),
            words(&format!("SET {to} {}", balances[1] + amount)),
        ];
        Ok(run.transaction(client, &writes)?.is_some())
    })
}

/// Transfers that move an amount without looking.
pub fn blind(run: &Run) -> Outcome<String> {
    transfers(run, |run, client, random| {
        let (from, to) = random.two_below(ACCOUNTS);
        let amount = random.below(50);
        let writes = [
            words(&format!("DECRBY {} {amount}", account(from))),
            words(&format!("INCRBY {} {amount}", account(to))),
        ];
        run.transaction(client, &writes)?.ok_or("EXEC gave nil without a WATCH")?;
        Ok(true)
    })
}

/// Opens the accounts, lets writers transfer and readers add up, and adds up at the end.
fn transfers(
    run: &Run,
    transfer: impl Fn(&Run, &mut Client, &mut Random) -> Outcome<bool> + Sync,
) -> Outcome<String> {
    let mut opening = words("MSET");
    for index in 0..ACCOUNTS {
        opening.extend([account(index), OPENING_BALANCE.to_string()]);
    }
    run.connect()?.call(&opening)?;
    let writers = run.options.clients_count;
    let counts = run.on_threads(writers + READERS, |index, client, random| {
        let mut done = 0;
        while run.goes_on() {
            if index < writers {
                done += i64::from(transfer(run, client, random)?);
            } else {
                check_total(&read_balances(client, random)?)?;
                done += 1;
            }
        }
        Ok(done)
    })?;
    check_total(&read_balances(&mut run.connect()?, &mut Random::new(0, 0))?)?;
    let (written, read) = counts.split_at(writers);
    let (written, read): (i64, i64) = (written.iter().sum(), read.iter().sum());
    if written == 0 {
        return Err("no transfer went through".to_owned());
    }
    Ok(format!("{written} transfers, {read} sums"))
}

/// All balances at one moment, by MGET or by GETs inside MULTI.
fn read_balances(client: &mut Client, random: &mut Random) -> Outcome<Vec<i64>> {
    if random.below(2) == 0 {
        let mut read = words("MGET");
        read.extend((0..ACCOUNTS).map(account));
        return integers(client.call(&read)?);
    }
    let reads: Vec<_> = (0..ACCOUNTS).map(|i| words(&format!("GET {}", account(i)))).collect();
    integers(Reply::Array(transaction(client, &reads)?.ok_or("EXEC gave nil")?))
}

fn integers(reply: Reply) -> Outcome<Vec<i64>> {
    reply.array()?.iter().map(Reply::integer).collect()
}

/// What must hold of any look at all accounts.
fn check_total(balances: &[i64]) -> Outcome<()> {
    let total: i64 = balances.iter().sum();
    let expected = OPENING_BALANCE * ACCOUNTS as i64;
    if balances.len() == ACCOUNTS && total == expected {
        return Ok(());
    }
    Err(format!("a torn read: {balances:?} adds up to {total}, not {expected}"))
}

/// Writers set many keys to one number by MSET, readers read them by MGET or MULTI: all equal.
/// Beyond that, the keys together are one register, and its history must be linearizable.
pub fn snapshots(run: &Run) -> Outcome<String> {
    let stamps = AtomicI64::new(1);
    let mut rounds = 0;
    let mut operations = 0;
    while run.goes_on() {
        run.connect()?.call(&["FLUSHALL"])?;
        let epoch = Instant::now();
        let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let clients = run.options.clients_count;
        let histories = run.on_threads(clients, |index, client, random| {
            let mut history = Vec::new();
            for _ in 0..SNAPSHOT_OPERATIONS_MAX / clients {
                let called_ns = now();
                let action = if index % 2 == 0 {
                    let value = stamps.fetch_add(1, Ordering::Relaxed);
                    write_stamp(run, client, value)?;
                    Action::Set { value }
                } else {
                    Action::Get { found: read_stamp(client, random)? }
                };
                history.push(Operation { action, called_ns, returned_ns: now() });
            }
            Ok(history)
        })?;
        let history = histories.concat();
        if !is_linearizable(None, &history) {
            return Err(format!("MSET and MGET are out of order in round {rounds}"));
        }
        operations += history.len();
        rounds += 1;
    }
    Ok(format!("{operations} snapshots in {rounds} histories"))
}

fn snapshot_key(index: usize) -> String {
    format!("snapshot:{index}")
}

fn write_stamp(run: &Run, client: &mut Client, stamp: i64) -> Outcome<()> {
    let stamp = stamp.to_string();
    if run.options.conduct == Conduct::Cheating {
        for index in 0..SNAPSHOT_KEYS {
            client.call(&["SET", &snapshot_key(index), &stamp])?;
        }
        return Ok(());
    }
    let mut write = words("MSET");
    for index in 0..SNAPSHOT_KEYS {
        write.extend([snapshot_key(index), stamp.clone()]);
    }
    client.call(&write).map(|_| ())
}

/// The one number that all keys hold; `None` before the first write.
fn read_stamp(client: &mut Client, random: &mut Random) -> Outcome<Option<i64>> {
    let keys = (0..SNAPSHOT_KEYS).map(snapshot_key);
    let replies = if random.below(2) == 0 {
        client.call(&words("MGET").into_iter().chain(keys).collect::<Vec<_>>())?.array()?
    } else {
        let reads: Vec<_> = keys.map(|key| words(&format!("GET {key}"))).collect();
        transaction(client, &reads)?.ok_or("EXEC gave nil")?
    };
    same_everywhere(&replies)
}

fn same_everywhere(replies: &[Reply]) -> Outcome<Option<i64>> {
    if replies.len() != SNAPSHOT_KEYS || replies.iter().any(|reply| *reply != replies[0]) {
        return Err(format!("a torn read: {replies:?}"));
    }
    match &replies[0] {
        Reply::Nil => Ok(None),
        reply => reply.integer().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_total_is_found() {
        let mut balances = vec![OPENING_BALANCE; ACCOUNTS];
        assert!(check_total(&balances).is_ok());
        balances[3] -= 5;
        assert!(check_total(&balances).is_err());
        balances[4] += 5;
        assert!(check_total(&balances).is_ok());
        assert!(check_total(&balances[1..]).is_err());
    }

    #[test]
    fn a_torn_snapshot_is_found() {
        let mut replies = vec![Reply::Bulk("7".to_owned()); SNAPSHOT_KEYS];
        assert_eq!(same_everywhere(&replies), Ok(Some(7)));
        replies[SNAPSHOT_KEYS - 1] = Reply::Bulk("8".to_owned());
        assert!(same_everywhere(&replies).is_err());
        replies[SNAPSHOT_KEYS - 1] = Reply::Nil;
        assert!(same_everywhere(&replies).is_err());
        assert_eq!(same_everywhere(&vec![Reply::Nil; SNAPSHOT_KEYS]), Ok(None));
    }
}
