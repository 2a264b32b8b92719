//! Writes a new base from an image of the keyspace, while everything goes on.
//!
//! **Bound:** what threads hand over early, because they are about to change it, waits in memory up
//! to a limit; at the limit they wait for the file.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use keyspace::image::ImageSink;
use keyspace::keyspace::Keyspace;
use keyspace::raw::entry::Entry;
use keyspace::raw::shards::SHARDS;

use super::base::write_commands;
use crate::disk::{DataFile, Disk, Open};

/// Entries and bytes taken under one taking of a shard's lock.
const STEP_ENTRIES: usize = 64;
const STEP_BYTES: usize = 64 << 10;
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes written before they are made safe, so that the end is not one long wait.
const SYNC_BYTES: u64 = 32 << 20;

/// Encoded entries of one database after the other.
#[derive(Default)]
struct Gathered {
    parts: Vec<(usize, Vec<u8>)>,
    bytes: usize,
}

/// Takes an image's entries and keeps them until the walker writes them.
pub struct Gatherer {
    gathered: Mutex<Gathered>,
    room: Condvar,
    walker: ThreadId,
    bytes_max: usize,
    /// Nobody waits any more: the rewrite has ended.
    is_over: AtomicBool,
    /// Entries taken.
    pub entries: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Gatherer {
    /// For the thread that calls this and will walk the image.
    pub fn new(bytes_max: usize) -> Gatherer {
        Gatherer {
            gathered: Mutex::default(),
            room: Condvar::new(),
            walker: thread::current().id(),
            bytes_max,
            is_over: AtomicBool::new(false),
            entries: AtomicU64::new(0),
        }
    }

    fn take(&self) -> Vec<(usize, Vec<u8>)> {
        let mut gathered = lock(&self.gathered);
        gathered.bytes = 0;
        let parts = std::mem::take(&mut gathered.parts);
        drop(gathered);
        self.room.notify_all();
        parts
    }

    fn bytes(&self) -> usize {
        lock(&self.gathered).bytes
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.room.notify_all();
    }
}

impl ImageSink for Gatherer {
    fn entry(&self, db: usize, entry: &Entry) -> usize {
        let mut gathered = lock(&self.gathered);
        if thread::current().id() != self.walker {
            while gathered.bytes > self.bytes_max && !self.is_over.load(Ordering::SeqCst) {
                let waited = self.room.wait_timeout(gathered, Duration::from_millis(50));
                gathered = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
        }
        if self.is_over.load(Ordering::SeqCst) {
            return 0;
        }
        let gathered = &mut *gathered;
        if gathered.parts.last().is_none_or(|(last, _)| *last != db) {
            gathered.parts.push((db, Vec::new()));
        }
        let (_, part) = gathered.parts.last_mut().expect("one is there");
        let before = part.len();
        write_commands(part, entry.key(), entry.value(), entry.expire_at());
        let taken = part.len() - before;
        gathered.bytes += taken;
        self.entries.fetch_add(1, Ordering::Relaxed);
        taken
    }
}

/// A file that is written from its beginning to its end.
pub struct OneWay {
    file: Box<dyn DataFile>,
    buffer: Vec<u8>,
    at: u64,
    synced: u64,
}

impl OneWay {
    /// Makes the file.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path) -> io::Result<OneWay> {
        let file = disk.open(path, Open::Create)?;
        Ok(OneWay { file, buffer: Vec::new(), at: 0, synced: 0 })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        if self.at - self.synced >= SYNC_BYTES {
            self.synced = self.at;
            self.file.sync()?;
        }
        Ok(())
    }

    /// Writes the rest and makes all of it safe; its length in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write_out()?;
        self.file.sync()?;
        Ok(self.at)
    }
}

impl io::Write for OneWay {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the base is written as.
pub struct Base {
    out: OneWay,
    db: Option<usize>,
}

impl Base {
    /// As commands; `head` stands before them (a note of the time).
    pub fn commands(mut out: OneWay, head: &[u8]) -> io::Result<Base> {
        out.put(head)?;
        Ok(Base { out, db: None })
    }

    fn part(&mut self, db: usize, bytes: &[u8]) -> io::Result<()> {
        if self.db != Some(db) {
            self.db = Some(db);
            let mut select = Vec::new();
            let text = db.to_string();
            resp::write_request(&mut select, [&b"SELECT"[..], text.as_bytes()].into_iter());
            self.out.put(&select)?;
        }
        self.out.put(bytes)
    }

    /// Writes the rest and makes the file safe; its length in bytes.
    pub fn finish(self) -> io::Result<u64> {
        self.out.finish()
    }
}

/// What the walk is told meanwhile.
pub trait Pace {
    /// Microseconds to wait after each entry (`rdb-key-save-delay`).
    fn delay_us(&self) -> u64;
    /// Whether it shall end now.
    fn is_cancelled(&self) -> bool;
}

/// Walks the image that `gatherer` takes, and writes it; the image has been begun. It is ended
/// here, also on errors.
pub fn write_image(
    space: &Keyspace,
    gatherer: &Gatherer,
    base: &mut Base,
    pace: &dyn Pace,
) -> io::Result<()> {
    let result = walk(space, gatherer, base, pace);
    gatherer.end();
    space.end_image();
    result
}

fn walk(space: &Keyspace, gatherer: &Gatherer, base: &mut Base, pace: &dyn Pace) -> io::Result<()> {
    let drain = |base: &mut Base| {
        gatherer.take().into_iter().try_for_each(|(db, bytes)| base.part(db, &bytes))
    };
    for shard in 0..SHARDS {
        loop {
            if pace.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let is_slow = pace.delay_us() > 0;
            let before = gatherer.entries.load(Ordering::Relaxed);
            let entries = if is_slow { 1 } else { STEP_ENTRIES };
            let finished = space.walk_image(shard, entries, STEP_BYTES);
            if gatherer.bytes() >= WRITE_BYTES || finished.is_none() {
                drain(base)?;
            }
            if is_slow && gatherer.entries.load(Ordering::Relaxed) != before {
                wait(pace);
            }
            match finished {
                Some(true) => break,
                Some(false) => {}
                None => thread::yield_now(),
            }
        }
    }
    drain(base)
}

/// Waits as long as `delay_us` says, which may change meanwhile.
fn wait(pace: &dyn Pace) {
    let started = std::time::Instant::now();
    while !pace.is_cancelled() && started.elapsed() < Duration::from_micros(pace.delay_us()) {
        let left = Duration::from_micros(pace.delay_us()).saturating_sub(started.elapsed());
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}
