//! Loads a whole file into a keyspace, on as many threads as are given.
//!
//! ```text
//!  every thread:  take the file -> cut off a batch of entries -> give the file back
//!                 -> decode and insert the batch -> again
//! ```
//!
//! Cutting is a small part of the work, so all threads decode and insert nearly all the time. A
//! batch is inserted in groups: the places of a whole group of keys are asked for from memory
//! before the first of them is used.

use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keyspace::access;
use keyspace::hasher::hash;
use keyspace::keyspace::{Keyspace, Tally};
use keyspace::load::{Loaded, OnDuplicate};
use keyspace::raw::entry::NewValue;
use keyspace::value::Value;

use super::Libraries;
use super::cursor::{Scratch, Text};
use super::decode::{Decoder, Limits, number_of};
use super::error::{Error, Why};
use super::format;
use super::reader::{Batch, Checksum, Frame, Framer, Note, Use};

/// Keys whose places are asked for together.
const GROUP: usize = 16;
/// Keys of empty collections that are told by name.
const EMPTY_KEYS_MAX: usize = 9;

/// How far a load has come, for those who watch it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file that were taken.
    pub bytes: AtomicU64,
    /// Keys that were inserted.
    pub keys: AtomicU64,
    /// Set by those who want it to stop.
    pub stop: AtomicBool,
}

/// How a file is loaded.
pub struct Loading<'a> {
    /// Into what.
    pub space: &'a Keyspace,
    /// One for each thread, which nobody else writes meanwhile.
    pub tallies: &'a [&'a Tally],
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether keys past their time are left out (not in the base of an append-only file, whose
    /// later commands may count on them).
    pub skips_expired: bool,
    /// What becomes of keys that are there already.
    pub duplicate: OnDuplicate,
    /// Whether the checksum must be right.
    pub checksum: Checksum,
    /// Who takes the libraries of functions.
    pub libraries: &'a dyn Libraries,
    /// Where to tell how far it has come.
    pub progress: &'a Progress,
    /// A delay for each key, for tests, in microseconds; below 0: of one in so many keys.
    pub key_delay: &'a (dyn Fn() -> i64 + Sync),
}

impl Loading<'_> {
    /// Waits as tests ask for.
    fn delay(&self, keys: usize) {
        let delay = (self.key_delay)();
        if delay != 0 {
            let keys = keys as u64;
            let us = if delay > 0 { delay as u64 * keys } else { keys / delay.unsigned_abs() };
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}

/// What a file held.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Keys that were inserted.
    pub keys: u64,
    /// Keys that were left out, past their time.
    pub expired: u64,
    /// Collections without elements, left out.
    pub empty: u64,
    /// The keys of the first of those.
    pub empty_keys: Vec<Vec<u8>>,
    /// The header's fields.
    pub aux: Vec<(Vec<u8>, Vec<u8>)>,
    /// Libraries of functions.
    pub functions: u64,
}

impl Summary {
    /// The header's field of this name.
    pub fn aux(&self, name: &str) -> Option<&[u8]> {
        self.aux.iter().find(|(other, _)| other == name.as_bytes()).map(|(_, value)| &value[..])
    }

    fn add(&mut self, other: &Summary) {
        self.keys += other.keys;
        self.expired += other.expired;
        self.empty += other.empty;
        self.functions += other.functions;
        self.aux.extend_from_slice(&other.aux);
        self.empty_keys.extend_from_slice(&other.empty_keys);
    }
}

/// Loads a file from `source`, of which `total` bytes are there if that is known. On an error, what
/// came before it may have been inserted. Gives back what follows the file, see
/// [`Framer::into_rest`].
pub fn load<R: Read + Send>(
    source: R,
    total: Option<u64>,
    loading: &Loading<'_>,
) -> Result<(Summary, Vec<u8>, R), Error> {
    let framer = Mutex::new(Framer::new(source, total, loading.checksum)?);
    let failed = AtomicBool::new(false);
    let outcomes: Vec<Result<Summary, Error>> =
        std::thread::scope(|scope| {
            let (framer, failed) = (&framer, &failed);
            let work = move |tally| {
                let result = Worker::new(loading, tally).run(framer, failed);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            };
            let others: Vec<_> =
                loading.tallies[1..].iter().map(|tally| scope.spawn(move || work(tally))).collect();
            let mut outcomes = vec![work(loading.tallies[0])];
            outcomes.extend(others.into_iter().map(|other| {
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }));
            outcomes
        });
    let mut summary = Summary::default();
    // Of several errors the one that comes first in the file is told.
    let mut first: Option<Error> = None;
    for outcome in outcomes {
        match outcome {
            Ok(part) => summary.add(&part),
            Err(error) if first.as_ref().is_none_or(|first| error.offset < first.offset) => {
                first = Some(error);
            }
            Err(_) => {}
        }
    }
    if let Some(error) = first {
        return Err(error);
    }
    let framer = framer.into_inner().expect("no thread panicked");
    let (rest, source) = framer.into_rest();
    Ok((summary, rest, source))
}

/// One thread's part.
struct Worker<'a> {
    loading: &'a Loading<'a>,
    tally: &'a Tally,
    summary: Summary,
    keys: [(Scratch, u64); GROUP],
    access: u32,
}

impl<'a> Worker<'a> {
    fn new(loading: &'a Loading<'a>, tally: &'a Tally) -> Worker<'a> {
        let access = access::fresh(&loading.space.settings, loading.now_ms);
        Worker { loading, tally, summary: Summary::default(), keys: Default::default(), access }
    }

    fn run<R: Read>(
        mut self,
        framer: &Mutex<Framer<R>>,
        failed: &AtomicBool,
    ) -> Result<Summary, Error> {
        let limits = Limits::of(&self.loading.space.settings);
        let mut batch = Batch::default();
        let mut decoder: Option<Decoder> = None;
        let progress = self.loading.progress;
        while !failed.load(Ordering::Relaxed) && !progress.stop.load(Ordering::Relaxed) {
            let result = {
                let mut framer = framer.lock().expect("no thread panicked");
                let result = framer.batch(&mut batch);
                for (offset, note) in std::mem::take(&mut framer.notes) {
                    self.note(note, offset)?;
                }
                progress.bytes.store(framer.offset(), Ordering::Relaxed);
                result
            };
            let decoder = decoder.get_or_insert_with(|| Decoder::new(limits, batch.version));
            for group in batch.frames.chunks(GROUP) {
                self.group(group, &batch, decoder)?;
            }
            if !result? {
                break;
            }
        }
        Ok(self.summary)
    }

    fn note(&mut self, note: Note, offset: u64) -> Result<(), Error> {
        let refuse = |reading, text| Error { offset, reading, why: Why::Refused(text) };
        match note {
            Note::Aux(name, value) => self.summary.aux.push((name, value)),
            Note::Sizes { .. } => {}
            Note::Function(source) => {
                self.summary.functions += 1;
                let loaded = self.loading.libraries.load(&source);
                loaded.map_err(|text| refuse("a library of functions", text))?;
            }
            Note::ModuleAux(name) => {
                let text = format!(
                    "The RDB file contains AUX module data I can't load: no matching module \
                     '{name}'"
                );
                return Err(refuse("a module's data", text));
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        group: &[Frame],
        batch: &Batch,
        decoder: &mut Decoder,
    ) -> Result<(), Error> {
        let space = self.loading.space;
        for (frame, (scratch, key_hash)) in group.iter().zip(&mut self.keys) {
            if frame.db >= space.databases() {
                return Err(batch.cursor(frame).error(Why::Refused(format!(
                    "FATAL: Data file was created with a Redis server configured to handle more \
                     than {} databases. Exiting",
                    space.databases()
                ))));
            }
            *key_hash = hash(batch.cursor(frame).reading("a key").string(scratch)?);
            space.prefetch_load(*key_hash, frame.db);
        }
        for (index, frame) in group.iter().enumerate() {
            let expired = frame.expire_at.is_some_and(|at| at <= self.loading.now_ms);
            if expired && self.loading.skips_expired {
                self.summary.expired += 1;
                continue;
            }
            self.insert(frame, index, batch, decoder)?;
        }
        self.loading.delay(group.len());
        self.loading.progress.keys.fetch_add(group.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn insert(
        &mut self,
        frame: &Frame,
        index: usize,
        batch: &Batch,
        decoder: &mut Decoder,
    ) -> Result<(), Error> {
        let mut cursor = batch.cursor(frame);
        let (scratch, key_hash) = &mut self.keys[index];
        let key = cursor.reading("a key").string(scratch)?;
        let value = if frame.kind == format::STRING {
            // The common case: the bytes go straight into the entry.
            let text = cursor.reading("a string").text()?;
            match text {
                Text::Int(number) => NewValue::Value(Value::Number(number)),
                text => {
                    let bytes = cursor.unpack(text, &mut decoder.scratch)?;
                    match number_of(bytes) {
                        Some(number) => NewValue::Value(Value::Number(number)),
                        None => NewValue::Bytes(bytes),
                    }
                }
            }
        } else if let Some(value) = decoder.value(frame.kind, &mut cursor)? {
            NewValue::Value(value)
        } else {
            self.summary.empty += 1;
            if self.summary.empty_keys.len() < EMPTY_KEYS_MAX {
                self.summary.empty_keys.push(key.to_vec());
            }
            return Ok(());
        };
        let access = access_of(self.loading, frame.last_use, self.access);
        let (db, expire_at) = (frame.db, frame.expire_at);
        let loaded = Loaded { db, key, hash: *key_hash, value, expire_at, access };
        if !self.loading.space.load(self.tally, loaded, self.loading.duplicate) {
            let key = key.escape_ascii();
            let text = format!("RDB has duplicated key '{key}' in DB {db}");
            return Err(batch.cursor(frame).error(Why::Refused(text)));
        }
        self.summary.keys += 1;
        Ok(())
    }
}

/// The eviction policy's bits: what the file tells, where the policy is of that kind.
fn access_of(loading: &Loading<'_>, last_use: Use, fresh: u32) -> u32 {
    let is_lfu = loading.space.settings.policy().is_lfu();
    match last_use {
        Use::IdleSeconds(seconds) if !is_lfu => {
            access::from_idle(u32::try_from(seconds).unwrap_or(u32::MAX), loading.now_ms)
        }
        Use::Frequency(counter) if is_lfu => fresh & !0xff | u32::from(counter),
        _ => fresh,
    }
}
