//! Blocking pops: each job goes to one worker, in the order it came; workers that wait are served
//! in the order they came; and a worker wakes only to what a whole transaction left behind.

use crate::cases::{Run, transaction, words};
use crate::client::{Client, Outcome, Reply};
use crate::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const QUEUES: usize = 3;
const BLOCKED_WAIT: Duration = Duration::from_secs(10);
/// Told to workers when all jobs are out; no job has this name.
const HOME_TIME: &str = "go home";

fn queue(index: usize) -> String {
    format!("queue:{index}")
}

/// Producers push numbered jobs to several queues, workers take them by BLPOP and BLMOVE. Every job
/// arrives once, and one worker sees the jobs of one producer in one queue in their order.
pub fn jobs(run: &Run) -> Outcome<String> {
    let half = (run.options.clients_count / 2).max(2);
    let producing = AtomicUsize::new(half);
    let taken = run.on_threads(half * 2, |index, client, random| {
        if index >= half {
            return work(client, index);
        }
        let pushed = produce(run, client, random, index);
        if producing.fetch_sub(1, Ordering::AcqRel) == 1 {
            for _ in 0..half {
                client.call(&["RPUSH", &queue(0), HOME_TIME])?;
            }
        }
        pushed
    })?;
    let (pushed, taken) = taken.split_at(half);
    check_delivery(pushed, taken)?;
    Ok(format!("{} jobs", pushed.iter().map(Vec::len).sum::<usize>()))
}

/// Pushes jobs named producer:queue:number until the time is up, some several at once.
fn produce(run: &Run, client: &mut Client, random: &mut Random, id: usize) -> Outcome<Vec<String>> {
    let mut pushed = Vec::new();
    while run.goes_on() {
        let queue_index = random.below(QUEUES);
        let mut push = words(&format!("RPUSH {}", queue(queue_index)));
        for _ in 0..=random.below(3) {
            // Of one width, so that the order of the text is the order of pushing.
            let job = format!("{id}:{queue_index}:{:09}", pushed.len());
            push.push(job.clone());
            pushed.push(job);
        }
        match random.below(3) {
            0 => drop(transaction(client, &[push, words("INCR pushes")])?),
            _ => drop(client.call(&push)?),
        }
        // So that workers do wait, half the time.
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(500) as u64));
        }
    }
    Ok(pushed)
}

/// Takes jobs until sent home, by turns with BLPOP from all queues and BLMOVE from the first.
fn work(client: &mut Client, id: usize) -> Outcome<Vec<String>> {
    let done = format!("done:{id}");
    let mut pop_any = words("BLPOP");
    pop_any.extend((0..QUEUES).map(queue));
    pop_any.push("30".to_owned());
    let move_one = words(&format!("BLMOVE {} {done} LEFT RIGHT 0.01", queue(0)));
    let mut taken = Vec::new();
    let mut moved = 0;
    for turn in 0.. {
        let job = if turn % 4 == 0 {
            match client.call(&move_one)? {
                Reply::Nil => continue,
                reply => {
                    moved += 1;
                    reply.text()?
                }
            }
        } else {
            let popped = client.call(&pop_any)?.array()?;
            popped.into_iter().nth(1).ok_or("BLPOP gave no element")?.text()?
        };
        if job == HOME_TIME {
            break;
        }
        taken.push(job);
    }
    // What is left stands in the other queues: this one was the first to be looked at.
    for index in 1..QUEUES {
        while let Reply::Bulk(job) = client.call(&["LPOP", &queue(index)])? {
            taken.push(job);
        }
    }
    let arrived = client.call(&["LLEN", &done])?.integer()?;
    if arrived != moved {
        return Err(format!("BLMOVE moved {moved} jobs, but {arrived} arrived"));
    }
    Ok(taken)
}

fn check_delivery(pushed: &[Vec<String>], taken: &[Vec<String>]) -> Outcome<()> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for job in pushed.iter().flatten() {
        left.insert(job, 0);
    }
    for (worker, jobs) in taken.iter().enumerate() {
        let mut last: BTreeMap<&str, &str> = BTreeMap::new();
        for job in jobs {
            let times = left.get_mut(job.as_str()).ok_or(format!("{job} was never pushed"))?;
            *times += 1;
            let source = job.rsplit_once(':').ok_or("a job without a number")?.0;
            if let Some(before) = last.insert(source, job)
                && before > job.as_str()
            {
                return Err(format!("worker {worker} got {job} after {before}"));
            }
        }
    }
    match left.iter().find(|(_, times)| **times != 1) {
        Some((job, times)) => Err(format!("{job} was delivered {times} times")),
        None => Ok(()),
    }
}

/// Clients block one after another on the same list, from as many threads of the server as it has;
/// pushed elements must reach them in that order.
pub fn fairness(run: &Run) -> Outcome<String> {
    let mut rounds = 0;
    let mut pusher = run.connect()?;
    let mut waiting: Vec<Client> =
        (0..run.options.clients_count).map(|_| run.connect()).collect::<Outcome<_>>()?;
    while run.goes_on() {
        for (already, client) in waiting.iter_mut().enumerate() {
            let key = if already % 2 == 0 { "line other" } else { "other line" };
            client.queue(&words(&format!("BLPOP {key} 30")));
            client.flush()?;
            wait_until_blocked(&mut pusher, already + 1)?;
        }
        push_numbers(&mut pusher, waiting.len(), rounds)?;
        for (expected, client) in waiting.iter_mut().enumerate() {
            let popped = client.receive()?.array()?;
            let number = popped.get(1).ok_or("BLPOP gave no element")?.integer()?;
            if number != expected as i64 {
                return Err(format!("client {expected} was served element {number}"));
            }
        }
        rounds += 1;
        // The next round begins in another order of connections.
        waiting.rotate_left(1);
    }
    Ok(format!("{rounds} rounds of {} clients", waiting.len()))
}

/// One push of all, a push of each, or all in a transaction.
fn push_numbers(pusher: &mut Client, count: usize, round: usize) -> Outcome<()> {
    let pushes: Vec<_> = (0..count).map(|number| words(&format!("RPUSH line {number}"))).collect();
    match round % 3 {
        0 => {
            let mut all = words("RPUSH line");
            all.extend((0..count).map(|number| number.to_string()));
            pusher.call(&all)?;
        }
        1 => drop(transaction(pusher, &pushes)?),
        _ => {
            for push in &pushes {
                pusher.call(push)?;
            }
        }
    }
    Ok(())
}

fn wait_until_blocked(client: &mut Client, count: usize) -> Outcome<()> {
    let line = format!("blocked_clients:{count}\r\n");
    let deadline = Instant::now() + BLOCKED_WAIT;
    while !client.call(&["INFO", "clients"])?.text()?.contains(&line) {
        if Instant::now() > deadline {
            return Err(format!("INFO does not come to say {}", line.trim()));
        }
    }
    Ok(())
}

/// A transaction that pushes one element, takes it back and pushes another: whoever waits sees
/// only the second.
pub fn hidden(run: &Run) -> Outcome<String> {
    let mut rounds = 0;
    let mut pusher = run.connect()?;
    let mut waiter = run.connect()?;
    while run.goes_on() {
        waiter.queue(&words("BLPOP hidden 30"));
        waiter.flush()?;
        wait_until_blocked(&mut pusher, 1)?;
        let mut push = vec![words("RPUSH hidden inner"), words("DEL hidden")];
        push.push(words("RPUSH hidden outer"));
        run.transaction(&mut pusher, &push)?;
        let popped = waiter.receive()?.array()?;
        let element = popped.into_iter().nth(1).ok_or("BLPOP gave no element")?.text()?;
        if element != "outer" {
            return Err(format!("a waiting client saw '{element}', from inside a transaction"));
        }
        rounds += 1;
    }
    Ok(format!("{rounds} transactions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs_of(names: &[&[&str]]) -> Vec<Vec<String>> {
        names.iter().map(|jobs| jobs.iter().map(|job| (*job).to_owned()).collect()).collect()
    }

    #[test]
    fn lost_doubled_reordered_and_invented_jobs_are_found() {
        let pushed = jobs_of(&[&["0:0:1", "0:0:2"], &["1:0:1"]]);
        let taken = |names: &[&[&str]]| check_delivery(&pushed, &jobs_of(names));
        assert_eq!(taken(&[&["0:0:1", "1:0:1"], &["0:0:2"]]), Ok(()));
        assert!(taken(&[&["0:0:1"], &["0:0:2"]]).is_err());
        assert!(taken(&[&["0:0:1", "1:0:1", "1:0:1"], &["0:0:2"]]).is_err());
        assert!(taken(&[&["0:0:2", "0:0:1", "1:0:1"]]).is_err());
        assert!(taken(&[&["0:0:1", "1:0:1", "0:0:2", "9:9:9"]]).is_err());
    }
}
