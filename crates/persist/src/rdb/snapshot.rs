//! Writes the keyspace as it is at one instant while it goes on changing: SAVE, BGSAVE, the base of
//! an append-only file.
//!
//! ```text
//!  walker:   shard after shard, a few keys under the lock -> encoded -> pending -> file
//!  others:   a key that is about to change ---------------> encoded -> pending
//! ```
//!
//! **Bound:** `pending` holds what `pending_bytes_max` says; a thread that would add to more than
//! that waits until the walker has written some of it. The walker never waits for a lock.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use keyspace::access;
use keyspace::image::{Busy, ImageSink};
use keyspace::keyspace::Keyspace;
use keyspace::raw::entry::Entry;
use keyspace::raw::shards::SHARDS;

use super::Libraries;
use super::encode::{Compression, Encoder};
use super::reader::Use;
use super::writer::{Header, Options, Writer, encode_entry};
use crate::disk::{DataFile, Disk, Open};

/// Bytes that may wait to be written before a thread that adds to them waits, unless an option says
/// how many: a share of the memory in use, so that a save never takes much beside it.
pub fn pending_bytes_max(used_memory: u64) -> usize {
    (used_memory / 64).clamp(1 << 20, 32 << 20) as usize
}

/// What is handed over while one lock is held, at most, but for one large value.
const STEP_ENTRIES: usize = 64;
const STEP_BYTES: usize = 64 << 10;
/// Bytes after which a file is made safe while it is written: `rdb-save-incremental-fsync`.
const SYNC_BYTES: u64 = 4 << 20;

/// What a snapshot tells of the eviction policy's knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// Nothing: the policy is neither.
    Untold,
    /// How long each key was idle.
    Idle,
    /// How often each key was used.
    Frequency,
}

/// How a snapshot is taken.
pub struct Snapshot<'a> {
    /// Of what.
    pub space: &'a Keyspace,
    /// Compression and checksum.
    pub options: Options,
    /// What the header tells.
    pub header: Header<'a>,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Which of the eviction policy's bits are written.
    pub uses: Uses,
    /// Whose libraries are written.
    pub libraries: &'a dyn Libraries,
    /// `rdb-key-save-delay`, for tests: microseconds a key; asked again while it lasts.
    pub key_delay: &'a dyn Fn() -> i64,
    /// Bytes handed over early that may wait to be written: see [`pending_bytes_max`].
    pub pending_bytes_max: usize,
    /// Keys written so far, for those who watch.
    pub keys_done: &'a AtomicU64,
    /// Set by those who want it to stop.
    pub stop: &'a AtomicBool,
}

/// Why there is no snapshot.
#[derive(Debug)]
pub enum Failed {
    /// Another one is being taken.
    Busy,
    /// It could not be written.
    Write(io::Error),
    /// It was told to stop.
    Stopped,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Write(error)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Busy => f.write_str("another snapshot is being taken"),
            Failed::Write(error) => write!(f, "{error}"),
            Failed::Stopped => f.write_str("it was told to stop"),
        }
    }
}

/// What waits to be written: entries of one database after the other, as they came.
#[derive(Default)]
struct Pending {
    runs: Vec<(usize, Vec<u8>)>,
    bytes: usize,
    /// Nothing is taken any more.
    is_closed: bool,
}

struct Sink {
    pending: Mutex<Pending>,
    room: Condvar,
    walker: ThreadId,
    compression: Compression,
    uses: Uses,
    now_ms: i64,
    bytes_max: usize,
    keys: AtomicU64,
}

thread_local! {
    /// Each thread's own encoder: entries are encoded before the lock on what is pending is taken.
    static ENCODER: RefCell<Option<(Compression, Encoder, Vec<u8>)>> = const { RefCell::new(None) };
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_use(&self, entry: &Entry) -> Use {
        match self.uses {
            Uses::Untold => Use::Unknown,
            Uses::Idle => {
                let seconds = access::idle_seconds(entry.access(), self.now_ms);
                Use::IdleSeconds(u64::from(seconds))
            }
            Uses::Frequency => Use::Frequency(entry.access() as u8),
        }
    }

    fn add(&self, db: usize, bytes: &[u8]) {
        let mut pending = self.lock();
        while pending.bytes > self.bytes_max
            && !pending.is_closed
            && thread::current().id() != self.walker
        {
            let wait = Duration::from_millis(50);
            let woken = self.room.wait_timeout(pending, wait);
            pending = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if pending.is_closed {
            return;
        }
        pending.bytes += bytes.len();
        match pending.runs.last_mut() {
            Some((last, run)) if *last == db => run.extend_from_slice(bytes),
            _ => pending.runs.push((db, bytes.to_vec())),
        }
    }

    fn take(&self) -> Vec<(usize, Vec<u8>)> {
        let mut pending = self.lock();
        pending.bytes = 0;
        self.room.notify_all();
        std::mem::take(&mut pending.runs)
    }

    fn close(&self) {
        let mut pending = self.lock();
        *pending = Pending { is_closed: true, ..Pending::default() };
        self.room.notify_all();
    }
}

impl ImageSink for Sink {
    fn entry(&self, db: usize, entry: &Entry) -> usize {
        self.keys.fetch_add(1, Ordering::Relaxed);
        ENCODER.with_borrow_mut(|slot| {
            let is_other = slot.as_ref().is_some_and(|(kind, ..)| *kind != self.compression);
            if is_other {
                *slot = None;
            }
            let (_, encoder, buffer) = slot.get_or_insert_with(|| {
                (self.compression, Encoder::new(self.compression), Vec::new())
            });
            buffer.clear();
            let last_use = self.last_use(entry);
            let (key, value, at) = (entry.key(), entry.value(), entry.expire_at());
            encode_entry(encoder, buffer, key, value, at, last_use);
            self.add(db, buffer);
            let len = buffer.len();
            if len > STEP_BYTES {
                // A buffer that one large value has blown up is given back.
                *buffer = Vec::new();
            }
            len
        })
    }
}

/// Ends an image however its taking ends.
struct Image<'a>(&'a Keyspace, &'a Sink);

impl Drop for Image<'_> {
    fn drop(&mut self) {
        self.1.close();
        self.0.end_image();
    }
}

impl Snapshot<'_> {
    /// Writes the snapshot into `out`, which is flushed but not synced. `at_instant` runs at its
    /// instant, with every shard locked.
    pub fn write<W: Write>(&self, out: W, at_instant: impl FnOnce()) -> Result<W, Failed> {
        let has_field_times = self.space.has_field_times();
        let header = Header { has_field_times, ..self.header.clone() };
        let mut writer = Writer::new(out, self.options, &header)?;
        for source in self.libraries.sources() {
            writer.function(&source)?;
        }
        let sink = Arc::new(Sink {
            pending: Mutex::default(),
            room: Condvar::new(),
            walker: thread::current().id(),
            compression: self.options.compression,
            uses: self.uses,
            now_ms: self.now_ms,
            bytes_max: self.pending_bytes_max,
            keys: AtomicU64::new(0),
        });
        let image = Arc::clone(&sink) as Arc<dyn ImageSink>;
        self.space.begin_image(image, at_instant).map_err(|Busy| Failed::Busy)?;
        let guard = Image(self.space, &sink);
        for db in 0..self.space.databases() {
            let (keys, volatile) = (self.space.key_count(db), self.space.volatile_count(db));
            if keys > 0 {
                writer.sizes(db, keys as u64, volatile as u64)?;
            }
        }
        for shard in 0..SHARDS {
            self.walk(shard, &sink, &mut writer)?;
        }
        for (db, run) in sink.take() {
            writer.encoded(db, &run)?;
        }
        drop(guard);
        Ok(writer.finish()?)
    }

    fn walk<W: Write>(
        &self,
        shard: usize,
        sink: &Sink,
        writer: &mut Writer<W>,
    ) -> Result<(), Failed> {
        loop {
            let entries = if (self.key_delay)() > 0 { 1 } else { STEP_ENTRIES };
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failed::Stopped);
            }
            let before = sink.keys.load(Ordering::Relaxed);
            let step = self.space.walk_image(shard, entries, STEP_BYTES);
            for (db, run) in sink.take() {
                writer.encoded(db, &run)?;
            }
            let keys = sink.keys.load(Ordering::Relaxed);
            self.keys_done.store(keys, Ordering::Relaxed);
            if keys > before {
                self.delay();
            }
            match step {
                Some(true) => return Ok(()),
                // On a busy core whoever answers clients goes first: after a step, not after the
                // milliseconds that the system would give this thread.
                Some(false) | None => thread::yield_now(),
            }
        }
    }

    /// Waits as long as the delay says, which may change meanwhile.
    fn delay(&self) {
        let started = std::time::Instant::now();
        let left = || {
            let delay = Duration::from_micros((self.key_delay)().max(0) as u64);
            delay.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
        };
        while let Some(left) = left().filter(|_| !self.stop.load(Ordering::Relaxed)) {
            thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    /// Writes the snapshot to the file at `path`, by way of a temporary one beside it: at any
    /// moment there is a whole file under that name, the old or the new.
    pub fn save(
        &self,
        disk: &dyn Disk,
        path: &Path,
        sync: Sync,
        at_instant: impl FnOnce(),
    ) -> Result<(), Failed> {
        let temporary = temporary_beside(path);
        let result = self.save_to(disk, &temporary, sync, at_instant);
        let result = result.and_then(|()| {
            disk.rename(&temporary, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(disk.sync_folder(folder.unwrap_or(Path::new(".")))?)
        });
        if result.is_err() {
            let _ = disk.remove(&temporary);
        }
        result
    }

    fn save_to(
        &self,
        disk: &dyn Disk,
        path: &Path,
        sync: Sync,
        at_instant: impl FnOnce(),
    ) -> Result<(), Failed> {
        let file = disk.open(path, Open::Create)?;
        let file = SyncingFile { file, sync, written: 0, synced: 0 };
        Ok(self.write(file, at_instant)?.file.sync()?)
    }
}

/// The name of the file that is written before it takes its place.
pub fn temporary_beside(path: &Path) -> PathBuf {
    path.with_file_name(format!("temp-{}.rdb", std::process::id()))
}

/// When a file is made safe: `rdb-save-incremental-fsync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Bit by bit, and at the end.
    Often,
    /// At the end.
    Once,
}

struct SyncingFile {
    file: Box<dyn DataFile>,
    sync: Sync,
    written: u64,
    synced: u64,
}

impl Write for SyncingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.written)?;
        self.written += count as u64;
        if self.sync == Sync::Often && self.written - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.written;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::NoLibraries;
    use crate::rdb::decode::Limits;
    use crate::rdb::reader::{Checksum, Item, Reader};
    use keyspace::keys::{Expire, Keys};
    use keyspace::random::Random;
    use keyspace::raw::entry::NewValue;
    use keyspace::raw::shards::ShardSet;
    use keyspace::value::Value;

    fn snapshot<'a>(
        space: &'a Keyspace,
        keys: &'a AtomicU64,
        stop: &'a AtomicBool,
    ) -> Snapshot<'a> {
        Snapshot {
            space,
            options: Options::default(),
            header: Header { redis_version: "7.0.15", ..Header::default() },
            now_ms: 1000,
            uses: Uses::Untold,
            libraries: &NoLibraries,
            key_delay: &|| 0,
            pending_bytes_max: 1 << 20,
            keys_done: keys,
            stop,
        }
    }

    fn filled() -> Keyspace {
        let space = Keyspace::new(3, 1);
        let held = space.lock(&ShardSet::ALL);
        let mut keys = Keys::new(&space, held, space.tally(0), 1000, Random::new(5));
        for number in 0..500 {
            keys.select(number % 3);
            let value = NewValue::Value(Value::Number(number as i64));
            keys.set(format!("key {number}").as_bytes(), value, Expire::Never);
        }
        drop(keys);
        space
    }

    #[test]
    fn every_key_is_in_the_file_once() {
        let (space, done, stop) = (filled(), AtomicU64::new(0), AtomicBool::new(false));
        let file = snapshot(&space, &done, &stop).write(Vec::new(), || {}).expect("a Vec");
        assert!(!space.has_image());
        let mut reader = Reader::new(&file[..], None, Checksum::Verify, Limits::default())
            .expect("a sound header");
        let mut count = 0;
        while let Some(item) = reader.next().expect("sound") {
            let Item::Entry(entry) = item else { continue };
            let number: usize = String::from_utf8_lossy(&entry.key[4..]).parse().expect("a number");
            assert_eq!(entry.db, number % 3);
            assert!(matches!(entry.value, Some(Value::Number(value)) if value == number as i64));
            count += 1;
        }
        assert_eq!((count, done.load(Ordering::Relaxed)), (500, 500));
    }

    /// Fails after so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let Some(left) = self.0.checked_sub(bytes.len()) else {
                return Err(io::ErrorKind::StorageFull.into());
            };
            self.0 = left;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_snapshot_that_fails_leaves_nothing_behind() {
        let (space, done, stop) = (filled(), AtomicU64::new(0), AtomicBool::new(false));
        let whole = snapshot(&space, &done, &stop).write(Vec::new(), || {}).expect("a Vec");
        for room in (0..whole.len()).step_by(97) {
            let failed = snapshot(&space, &done, &stop).write(Full(room), || {});
            assert!(matches!(failed, Err(Failed::Write(_))));
            assert!(!space.has_image());
        }
        stop.store(true, Ordering::Relaxed);
        let failed = snapshot(&space, &done, &stop).write(Vec::new(), || {});
        assert!(matches!(failed, Err(Failed::Stopped)));
        assert!(!space.has_image());
    }
}
