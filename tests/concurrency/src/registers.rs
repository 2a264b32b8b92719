//! Single keys under many clients: what each was asked and answered, and when, is written down and
//! given to the linearizability checker; and counters hand out each number once.

use crate::cases::Run;
use crate::client::{Client, Outcome, Reply};
use crate::linear::{Action, Operation, is_linearizable};
use crate::random::Random;
use std::time::Instant;

/// Few keys, so that clients collide on each.
const KEYS: usize = 4;
const OPERATIONS_PER_CLIENT: usize = 200;
/// Sets draw from here, so that a register's number tells who wrote it.
const VALUES: usize = 1 << 40;

fn key(index: usize) -> String {
    format!("register:{index}")
}

/// Rounds of random SET, GET, INCR, GETSET and DEL on a few keys, each round a history per key.
pub fn histories(run: &Run) -> Outcome<String> {
    let mut rounds = 0;
    let mut operations = 0;
    while run.goes_on() {
        run.connect()?.call(&["FLUSHALL"])?;
        let epoch = Instant::now();
        let logs = run.on_threads(run.options.clients_count, |index, client, random| {
            // Each round draws other choices than the last.
            let mut random = Random::new(random.draw() ^ rounds, index);
            record(client, &mut random, epoch)
        })?;
        for index in 0..KEYS {
            let of_key = logs.iter().flatten().filter(|(key, _)| *key == index);
            let history: Vec<Operation> = of_key.map(|(_, operation)| *operation).collect();
            operations += history.len();
            if !is_linearizable(None, &history) {
                return Err(explain(index, rounds, &history));
            }
        }
        rounds += 1;
    }
    Ok(format!("{operations} operations in {} histories", rounds as usize * KEYS))
}

fn record(
    client: &mut Client,
    random: &mut Random,
    epoch: Instant,
) -> Outcome<Vec<(usize, Operation)>> {
    let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut log = Vec::with_capacity(OPERATIONS_PER_CLIENT);
    for _ in 0..OPERATIONS_PER_CLIENT {
        let index = random.below(KEYS);
        let called_ns = now();
        let action = act(client, random, &key(index))?;
        log.push((index, Operation { action, called_ns, returned_ns: now() }));
    }
    Ok(log)
}

fn act(client: &mut Client, random: &mut Random, key: &str) -> Outcome<Action> {
    let value = random.below(VALUES) as i64;
    let text = value.to_string();
    Ok(match random.below(10) {
        0..=3 => Action::Get { found: register(client.call(&["GET", key])?)? },
        4..=5 => {
            client.call(&["SET", key, &text])?;
            Action::Set { value }
        }
        6 => Action::GetSet { value, found: register(client.call(&["GETSET", key, &text])?)? },
        7..=8 => Action::Incr { result: client.call(&["INCR", key])?.integer()? },
        _ => Action::Delete { existed: client.call(&["DEL", key])?.integer()? == 1 },
    })
}

fn register(reply: Reply) -> Outcome<Option<i64>> {
    match reply {
        Reply::Nil => Ok(None),
        reply => reply.integer().map(Some),
    }
}

/// The beginning of the history that no order explains, by its last operations. Operations under
/// way at its end belong to it, for they may have taken effect.
fn explain(key_index: usize, round: u64, history: &[Operation]) -> String {
    let mut sorted = history.to_vec();
    sorted.sort_unstable_by_key(|operation| operation.called_ns);
    let beginning = |end: usize| {
        let until_ns = sorted[end - 1].returned_ns;
        let length = sorted.partition_point(|operation| operation.called_ns <= until_ns);
        &sorted[..length]
    };
    let bad = (1..=sorted.len()).find(|&end| !is_linearizable(None, beginning(end)));
    let shown = beginning(bad.unwrap_or(sorted.len()));
    let shown = &shown[shown.len().saturating_sub(12)..];
    let lines: Vec<String> = shown.iter().map(|operation| format!("  {operation:?}")).collect();
    format!(
        "{} in round {round}: no order explains these replies, up to the last:\n{}",
        key(key_index),
        lines.join("\n")
    )
}

/// All clients draw numbers from one counter: no number is given twice, none is left out, and
/// each client sees them rise.
pub fn tickets(run: &Run) -> Outcome<String> {
    let drawn = run.on_threads(run.options.clients_count, |_, client, _| {
        let mut mine = Vec::new();
        while run.goes_on() {
            mine.push(client.call(&["INCR", "tickets"])?.integer()?);
        }
        Ok(mine)
    })?;
    check_tickets(&drawn)?;
    Ok(format!("{} numbers", drawn.iter().map(Vec::len).sum::<usize>()))
}

fn check_tickets(drawn: &[Vec<i64>]) -> Outcome<()> {
    if let Some(client) = drawn.iter().position(|mine| !mine.is_sorted()) {
        return Err(format!("client {client} saw the counter go back"));
    }
    let mut all = drawn.concat();
    all.sort_unstable();
    match (1..).zip(&all).find(|(expected, found)| expected != *found) {
        Some((expected, found)) => Err(format!("{found} was given where {expected} was next")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_missing_and_falling_numbers_are_found() {
        assert!(check_tickets(&[vec![1, 3], vec![2, 4]]).is_ok());
        assert!(check_tickets(&[vec![1, 2], vec![2, 3]]).is_err());
        assert!(check_tickets(&[vec![1, 2], vec![4]]).is_err());
        assert!(check_tickets(&[vec![2, 1], vec![3]]).is_err());
    }
}
