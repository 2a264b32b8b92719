//! Reads by Zipf's law with writes among them, and expiries.
//!
//! A write raises the `stamp` of a row that the answers hold; before each read is noted which
//! stamps had been acknowledged. An answer with a smaller one is an old one.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::stock::{self, Question, TABLE};
use super::{Arm, Cache, midtier, note, scene};
use crate::client::{Client, Protocol};
use crate::harness::Sample;
use crate::load::new_histogram;
use crate::measured::PREPARE_TIMEOUT;
use crate::quota::http::Connection;
use crate::random::Random;

/// Clients of the mixed load.
const CLIENTS: usize = 20;
/// Clients that wait for an expiry.
pub const STORM_CLIENTS: usize = 100;
/// How long answers are fresh where expiries are measured.
pub const STORM_TTL_MS: u64 = 1000;
/// An answer has expired after this.
const EXPIRED: Duration = Duration::from_millis(STORM_TTL_MS + 100);
/// Wrong answers that are kept with their text.
const EXAMPLES_MAX: usize = 3;

/// Rows that are written, and their newest acknowledged stamps.
pub struct Writes {
    /// By place.
    rows: Vec<u64>,
    places: HashMap<u64, usize>,
    acknowledged: Vec<AtomicU64>,
    next: AtomicU64,
}

impl Writes {
    /// All rows that are in answers.
    pub fn of(questions: &[Question]) -> Writes {
        let stamps = |question: &Question| stock::stamps(&question.body, &question.body);
        let rows: BTreeSet<u64> =
            questions.iter().filter_map(stamps).flatten().map(|(row, _)| row).collect();
        let rows: Vec<u64> = rows.into_iter().collect();
        Writes {
            places: rows.iter().enumerate().map(|(place, row)| (*row, place)).collect(),
            acknowledged: rows.iter().map(|_| AtomicU64::new(0)).collect(),
            rows,
            next: AtomicU64::new(1),
        }
    }

    fn now(&self, into: &mut Vec<u64>) {
        into.clear();
        into.extend(self.acknowledged.iter().map(|stamp| stamp.load(Ordering::Acquire)));
    }

    /// Raises the stamp of one of this client's own rows.
    fn write(&self, client: usize, at: usize, to: &mut Connection) -> Result<(), String> {
        // A row has one writer, so that its stamps rise.
        let own = (self.rows.len() - client).div_ceil(CLIENTS);
        let place = client + at % own * CLIENTS;
        let stamp = self.next.fetch_add(1, Ordering::Relaxed);
        let (row, body) = (self.rows[place], format!("{{\"stamp\":{stamp}}}"));
        let request = format!(
            "PATCH /tables/{TABLE}/{row} HTTP/1.1\r\nhost: bench\r\nzumo-api-version: 2.0.0\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, _, answer) = to.send(&request)?;
        if status != 200 {
            return Err(format!("a write: {status} {}", String::from_utf8_lossy(answer)));
        }
        self.acknowledged[place].store(stamp, Ordering::Release);
        Ok(())
    }
}

/// What a client came to.
struct Tally {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    stale: u64,
    wrong: Vec<String>,
}

impl Tally {
    fn new() -> Tally {
        Tally { reads: new_histogram(), writes: new_histogram(), stale: 0, wrong: Vec::new() }
    }

    fn add(&mut self, other: Tally) {
        self.reads += &other.reads;
        self.writes += &other.writes;
        self.stale += other.stale;
        self.wrong.extend(other.wrong);
    }
}

/// One client of the mixed load.
struct Reader<'a> {
    questions: &'a [Question],
    requests: &'a [String],
    weights: &'a [f64],
    writes: &'a Writes,
    random: Random,
    known: Vec<u64>,
    tally: Tally,
}

impl Reader<'_> {
    fn read(&mut self, from: &mut Connection) -> Result<(), String> {
        let all = self.weights.last().copied().unwrap_or(1.0);
        let at = self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        let number = self.weights.partition_point(|weight| *weight <= at);
        let number = number.min(self.questions.len() - 1);
        self.writes.now(&mut self.known);
        let began = Instant::now();
        let (status, _, body) = from.send(&self.requests[number])?;
        self.tally.reads.saturating_record(began.elapsed().as_nanos() as u64);
        match stock::stamps(&self.questions[number].body, body) {
            Some(rows) if status == 200 => {
                let (places, known) = (&self.writes.places, &self.known);
                let is_old = |(row, stamp): &(u64, u64)| {
                    places.get(row).is_some_and(|place| *stamp < known[*place])
                };
                self.tally.stale += u64::from(rows.iter().any(is_old));
            }
            _ if self.tally.wrong.len() < EXAMPLES_MAX => {
                let body = String::from_utf8_lossy(&body[..body.len().min(160)]);
                let wrong = format!("{}: {status} {body}", self.questions[number].path);
                self.tally.wrong.push(wrong);
            }
            _ => {}
        }
        Ok(())
    }
}

/// How often each address comes, added up: the n-th as often as 1 / n.
fn weights(count: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut weigh = |rank: usize| {
        sum += 1.0 / rank as f64;
        sum
    };
    (1..=count).map(&mut weigh).collect()
}

impl Cache {
    /// Reads and writes for a while.
    pub(super) fn mixed(
        &mut self,
        arm: Arm,
        percent: u32,
        seed: u64,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let time = Duration::from_secs(if self.args.common.quick { 2 } else { 10 });
        self.forget_recipe()?;
        self.warm(arm)?;
        let before = self.queries(arm)?;
        let (reads_at, writes_at) = (self.port(arm)?, self.ours.port);
        let requests: Vec<String> =
            self.questions.iter().map(|question| stock::request(&question.path, "")).collect();
        let weights = weights(requests.len());
        let (questions, writes) = (&self.questions[..], &self.writes);
        let began = Instant::now();
        let client = |client: usize| -> Result<Tally, String> {
            let mut from = scene::wait_for(reads_at)?;
            let mut to = scene::wait_for(writes_at)?;
            let random = Random::new(seed ^ (client as u64) << 40);
            let (known, tally) = (Vec::new(), Tally::new());
            let (requests, weights) = (&requests[..], &weights[..]);
            let mut reader = Reader { questions, requests, weights, writes, random, known, tally };
            while began.elapsed() < time {
                if reader.random.below(100) < u64::from(percent) {
                    let at = reader.random.below(1 << 32) as usize;
                    let sent = Instant::now();
                    writes.write(client, at, &mut to)?;
                    let spent = sent.elapsed().as_nanos() as u64;
                    reader.tally.writes.saturating_record(spent);
                } else {
                    reader.read(&mut from)?;
                }
            }
            Ok(reader.tally)
        };
        let tally = all_clients(CLIENTS, client)?;
        let elapsed = began.elapsed();
        live(tally.reads.len());
        let queries = self.queries(arm)? - before;
        let mut sample = Sample::default();
        note(&mut sample, &tally.reads, elapsed, queries);
        let reads = tally.reads.len().max(1) as f64;
        sample.values.insert("stale", tally.stale as f64 * 1000.0 / reads);
        sample.values.insert("writes_per_s", tally.writes.len() as f64 / elapsed.as_secs_f64());
        sample.values.insert("write_mean_us", tally.writes.mean() / 1e3);
        sample.checked = tally.reads.len() + tally.writes.len();
        sample.failures = tally.wrong.len() as u64;
        sample.failure_examples = tally.wrong;
        if tally.stale > 0 && arm != Arm::Recipe {
            sample.failures += tally.stale;
            let old = format!("{} answers older than an acknowledged write", tally.stale);
            sample.failure_examples.push(old);
        }
        Ok(sample)
    }

    /// Lets all clients ask for a hot answer at the moment when it has expired.
    pub(super) fn storm(&mut self, arm: Arm, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let waves = if self.args.common.quick { 2 } else { 5 };
        let is_ours = arm == Arm::Warm;
        let port = if is_ours { self.storm.port } else { self.port(arm)? };
        let question = self.questions[0].clone();
        let mut sample = Sample::default();
        let mut queries = 0;
        let mut all = new_histogram();
        let mut elapsed = Duration::ZERO;
        for _ in 0..waves {
            let mut first = scene::wait_for(port)?;
            first.send(&stock::request(&question.path, ""))?;
            self.expire(arm, &question)?;
            let before = self.storm_queries(arm)?;
            let (tally, took) = wave(port, &question)?;
            queries += self.storm_queries(arm)? - before;
            elapsed += took;
            all += &tally.reads;
            sample.checked += tally.reads.len();
            sample.failures += tally.wrong.len() as u64;
            sample.failure_examples.extend(tally.wrong);
            live(sample.checked);
        }
        note(&mut sample, &all, elapsed, queries);
        sample.values.insert("expiry_queries", queries as f64 / f64::from(waves));
        if is_ours && queries != u64::from(waves as u32) {
            sample.failures += 1;
            sample.failure_examples.push(format!("{queries} SQL queries for {waves} expiries"));
        }
        Ok(sample)
    }

    fn storm_queries(&mut self, arm: Arm) -> Result<u64, String> {
        if arm == Arm::Warm { self.storm.count("fills") } else { self.queries(arm) }
    }

    /// Waits until the answer to a question has expired.
    fn expire(&self, arm: Arm, question: &Question) -> Result<(), String> {
        if let (Arm::Recipe, Some(redis)) = (arm, &self.redis) {
            let client = Client::connect(&redis.target, Protocol::Resp2, PREPARE_TIMEOUT);
            let mut client = client.map_err(|error| error.to_string())?;
            let milliseconds = STORM_TTL_MS.to_string();
            let words = ["PEXPIRE", &midtier::key(&question.path), &milliseconds];
            client.command(&words).map_err(|error| error.to_string())?;
        }
        if arm != Arm::NoCache {
            std::thread::sleep(EXPIRED);
        }
        Ok(())
    }
}

/// One request of each client, all at once; how long the last took.
fn wave(port: u16, question: &Question) -> Result<(Tally, Duration), String> {
    let request = stock::request(&question.path, "");
    let gate = Barrier::new(STORM_CLIENTS);
    let has_failed = AtomicBool::new(false);
    let longest = Mutex::new(Duration::ZERO);
    let client = |_| -> Result<Tally, String> {
        let connection = scene::wait_for(port);
        has_failed.fetch_or(connection.is_err(), Ordering::AcqRel);
        // Whoever has failed comes here, too: the others wait for all.
        gate.wait();
        let mut connection = connection?;
        let mut tally = Tally::new();
        if has_failed.load(Ordering::Acquire) {
            return Ok(tally);
        }
        let sent = Instant::now();
        let (status, _, body) = connection.send(&request)?;
        let spent = sent.elapsed();
        tally.reads.saturating_record(spent.as_nanos() as u64);
        if status != 200 || stock::stamps(&question.body, body).is_none() {
            tally.wrong.push(format!("{}: {status}", question.path));
        }
        let mut longest = longest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *longest = spent.max(*longest);
        Ok(tally)
    };
    let tally = all_clients(STORM_CLIENTS, client)?;
    let longest = *longest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok((tally, longest))
}

/// Runs each client in a thread; what all came to.
fn all_clients(
    count: usize,
    client: impl Fn(usize) -> Result<Tally, String> + Sync,
) -> Result<Tally, String> {
    std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> =
            (0..count).map(|number| scope.spawn(move || client(number))).collect();
        let mut all = Tally::new();
        for thread in threads {
            let tally = thread.join().map_err(|_| "a client's thread failed".to_string())?;
            all.add(tally?);
        }
        Ok(all)
    })
}
