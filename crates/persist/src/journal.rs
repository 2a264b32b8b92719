//! A log of records in segments, for services that keep their state by replaying it.
//!
//! ```text
//!   folder/00000000000000000000.log    named by the position of its first byte in the whole log
//!   folder/00000000000067109120.log
//!   folder/lock                        held by the one process that may write
//!
//!   record: | length u32 | crc32 u32 | bytes ... |     little-endian; the crc is of the bytes
//!
//!   append --> pending (memory) --write--> operating system --sync--> disk
//!             any thread          any thread, in order    log thread, for all who wait at once
//! ```
//!
//! What was written outlives the process, what was synced outlives the machine. A torn tail of
//! the last segment is cut off at opening; damage anywhere else is an error, never passed over.
//!
//! **Invariant:** the bytes on disk are always a prefix of what was appended.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::disk::{DataFile, Disk, Open};

/// A place in the log: bytes since its beginning, those of removed segments included.
pub type Position = u64;

/// Called once it is known whether a record is safe.
pub type WhenSafe = Box<dyn FnOnce(bool) + Send>;

/// A record is not longer, in bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes that may wait for the disk before the log says that it is not healthy.
const PENDING_BYTES_MAX: usize = 256 << 20;
/// What nobody waits for is written this often.
const TICK: Duration = Duration::from_millis(10);
/// What nobody waits for is synced this often.
const SYNC_EVERY: Duration = Duration::from_secs(1);
const HEAD_BYTES: usize = 8;

/// A log as its users see it.
pub trait Journal: Send + Sync {
    /// Adds a record; gives the position after it. It is taken even while the disk fails: who
    /// can refuse new work asks [`Journal::is_healthy`] before.
    fn append(&self, record: &[u8]) -> Position;
    /// Hands everything appended to the operating system.
    fn write(&self) -> io::Result<()>;
    /// Calls `done` when everything before `position` is on the disk, from another thread or this.
    fn when_safe(&self, position: Position, done: WhenSafe);
    /// Whether the disk takes what it is given, and not too much waits for it.
    fn is_healthy(&self) -> bool;
    /// First positions of the segments there are, ascending; the last is being written.
    fn segments(&self) -> Vec<Position>;
    /// The position after the last record.
    fn end(&self) -> Position;
    /// Removes the segments that lie wholly before a position.
    fn remove_before(&self, position: Position);
}

/// How a [`Log`] works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// A segment is closed when it is longer, in bytes.
    pub segment_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { segment_bytes: 64 << 20 }
    }
}

/// The log on a disk.
pub struct Log {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Holds the folder until the log is dropped.
    _lock: fs::File,
}

struct Inner {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    settings: Settings,
    pending: Mutex<Pending>,
    wake: Condvar,
    file: Mutex<Tail>,
    written: AtomicU64,
    is_failed: AtomicBool,
    /// A sync failed: what was written before may be lost though later syncs succeed, so nothing
    /// is called safe any more.
    is_broken: AtomicBool,
    segments: Mutex<VecDeque<Position>>,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// The position after `bytes`.
    end: Position,
    waiters: Vec<(Position, WhenSafe)>,
    is_closing: bool,
}

/// The segment that is being written.
struct Tail {
    file: Box<dyn DataFile>,
    first: Position,
    /// Taken from pending and not written yet: a write failed.
    stuck: Vec<u8>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn segment_path(folder: &Path, first: Position) -> PathBuf {
    folder.join(format!("{first:020}.log"))
}

impl Log {
    /// Opens the log in a folder, which is made if it is not there, and gives every record in it
    /// to `replay`, with the position before it.
    ///
    /// # Errors
    /// Another process has it; damage before the tail; the disk's own.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        settings: Settings,
        replay: &mut dyn FnMut(Position, &[u8]),
    ) -> io::Result<Log> {
        disk.make_folder(folder)?;
        let lock = fs::File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            let folder = folder.display();
            return Err(invalid(format!("another process uses the log in {folder}")));
        }
        let mut segments = segments_in(&*disk, folder)?;
        let mut end = segments.front().copied().unwrap_or(0);
        for (index, &first) in segments.iter().enumerate() {
            if first != end {
                return Err(invalid(format!("the log's segment at {end} is missing")));
            }
            let is_last = index + 1 == segments.len();
            end = replay_segment(&*disk, folder, first, is_last, replay)?;
        }
        let file = match segments.back() {
            Some(&first) => disk.open(&segment_path(folder, first), Open::Update)?,
            None => {
                segments.push_back(0);
                let file = disk.open(&segment_path(folder, 0), Open::Create)?;
                disk.sync_folder(folder)?;
                file
            }
        };
        let first = *segments.back().expect("one was made above");
        let inner = Arc::new(Inner {
            disk,
            folder: folder.to_path_buf(),
            settings,
            pending: Mutex::new(Pending { end, ..Pending::default() }),
            wake: Condvar::new(),
            file: Mutex::new(Tail { file, first, stuck: Vec::new() }),
            written: AtomicU64::new(end),
            is_failed: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            segments: Mutex::new(segments),
        });
        let shared = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("journal".into());
        let thread = Some(thread.spawn(move || shared.run())?);
        Ok(Log { inner, thread, _lock: lock })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        held(&self.inner.pending).is_closing = true;
        self.inner.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}

fn segments_in(disk: &dyn Disk, folder: &Path) -> io::Result<VecDeque<Position>> {
    let names = disk.list(folder)?;
    let first = |name: &String| name.strip_suffix(".log")?.parse().ok();
    let mut segments: Vec<Position> = names.iter().filter_map(first).collect();
    segments.sort_unstable();
    Ok(segments.into())
}

/// Replays one segment; gives the position after its last whole record. The torn tail of the last
/// one is cut off.
fn replay_segment(
    disk: &dyn Disk,
    folder: &Path,
    first: Position,
    is_last: bool,
    replay: &mut dyn FnMut(Position, &[u8]),
) -> io::Result<Position> {
    let path = segment_path(folder, first);
    let bytes = disk.read(&path)?;
    let mut at = 0;
    while let Some(record) = record_at(&bytes, at) {
        replay(first + at as u64, record);
        at += HEAD_BYTES + record.len();
    }
    if at < bytes.len() {
        if !is_last {
            return Err(invalid(format!("{} is damaged at byte {at}", path.display())));
        }
        tracing::warn!("{}: cut {} bytes of a torn tail", path.display(), bytes.len() - at);
        let file = disk.open(&path, Open::Update)?;
        file.truncate(at as u64)?;
        file.sync()?;
    }
    Ok(first + at as u64)
}

fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let head: &[u8; HEAD_BYTES] = bytes.get(at..at + HEAD_BYTES)?.try_into().ok()?;
    let [a, b, c, d, checksum @ ..] = *head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length == 0 || length > RECORD_BYTES_MAX {
        return None;
    }
    let record = bytes.get(at + HEAD_BYTES..at + HEAD_BYTES + length)?;
    (crc(record) == u32::from_le_bytes(checksum)).then_some(record)
}

impl Inner {
    /// The log thread: writes and syncs until the log is closed.
    fn run(&self) {
        let mut synced = Instant::now();
        let mut synced_to = self.written.load(Ordering::Acquire);
        loop {
            let (waiters, is_closing) = self.await_work();
            let is_written = self.write().is_ok();
            let is_due = is_closing || !waiters.is_empty() || synced.elapsed() >= SYNC_EVERY;
            let mut safe_to = synced_to;
            if is_written && is_due && !self.is_broken.load(Ordering::Acquire) {
                match self.sync() {
                    Ok(to) => safe_to = to,
                    Err(error) => {
                        self.is_broken.store(true, Ordering::Release);
                        self.fail("sync", &error);
                    }
                }
                synced = Instant::now();
                synced_to = safe_to;
            }
            for (position, done) in waiters {
                done(position <= safe_to);
            }
            if is_closing {
                return;
            }
            if let Err(error) = self.roll() {
                self.fail("new segment", &error);
            }
        }
    }

    /// Waits for somebody who waits, for the tick, or for the end.
    fn await_work(&self) -> (Vec<(Position, WhenSafe)>, bool) {
        let mut pending = held(&self.pending);
        if pending.waiters.is_empty() && !pending.is_closing {
            let woken = self.wake.wait_timeout(pending, TICK);
            pending = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        (std::mem::take(&mut pending.waiters), pending.is_closing)
    }

    /// Hands what is pending to the operating system.
    fn write(&self) -> io::Result<()> {
        let mut tail = held(&self.file);
        let end = {
            let mut pending = held(&self.pending);
            if tail.stuck.is_empty() {
                std::mem::swap(&mut pending.bytes, &mut tail.stuck);
            } else {
                let bytes = std::mem::take(&mut pending.bytes);
                tail.stuck.extend_from_slice(&bytes);
            }
            pending.end
        };
        if tail.stuck.is_empty() {
            return Ok(());
        }
        let at = self.written.load(Ordering::Acquire) - tail.first;
        if let Err(error) = tail.file.write_all_at(&tail.stuck, at) {
            self.fail("write", &error);
            // What was written of it is written again in its place.
            return Err(error);
        }
        self.written.store(end, Ordering::Release);
        self.is_failed.store(false, Ordering::Release);
        tail.stuck.clear();
        Ok(())
    }

    /// Makes what was written safe; gives the position up to which it is.
    fn sync(&self) -> io::Result<Position> {
        let (file, to) = {
            let tail = held(&self.file);
            let path = segment_path(&self.folder, tail.first);
            // A handle of its own, so that others can write meanwhile.
            (self.disk.open(&path, Open::Update)?, self.written.load(Ordering::Acquire))
        };
        file.sync()?;
        Ok(to)
    }

    /// Begins a new segment where the present one is long enough.
    fn roll(&self) -> io::Result<()> {
        let mut tail = held(&self.file);
        let end = self.written.load(Ordering::Acquire);
        if end - tail.first < self.settings.segment_bytes || !tail.stuck.is_empty() {
            return Ok(());
        }
        tail.file.sync()?;
        tail.file = self.disk.open(&segment_path(&self.folder, end), Open::Create)?;
        tail.first = end;
        held(&self.segments).push_back(end);
        self.disk.sync_folder(&self.folder)
    }

    fn fail(&self, what: &str, error: &io::Error) {
        if !self.is_failed.swap(true, Ordering::AcqRel) {
            tracing::error!("the log in {}: {what}: {error}", self.folder.display());
        }
    }
}

impl Journal for Log {
    fn append(&self, record: &[u8]) -> Position {
        assert!(!record.is_empty() && record.len() <= RECORD_BYTES_MAX, "a record's length");
        let mut pending = held(&self.inner.pending);
        pending.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        pending.bytes.extend_from_slice(&crc(record).to_le_bytes());
        pending.bytes.extend_from_slice(record);
        pending.end += (HEAD_BYTES + record.len()) as u64;
        pending.end
    }

    fn write(&self) -> io::Result<()> {
        self.inner.write()
    }

    fn when_safe(&self, position: Position, done: WhenSafe) {
        let mut pending = held(&self.inner.pending);
        let is_first = pending.waiters.is_empty();
        pending.waiters.push((position, done));
        drop(pending);
        if is_first {
            self.inner.wake.notify_one();
        }
    }

    fn is_healthy(&self) -> bool {
        !self.inner.is_failed.load(Ordering::Acquire)
            && !self.inner.is_broken.load(Ordering::Acquire)
            && held(&self.inner.pending).bytes.len() < PENDING_BYTES_MAX
    }

    fn segments(&self) -> Vec<Position> {
        held(&self.inner.segments).iter().copied().collect()
    }

    fn end(&self) -> Position {
        held(&self.inner.pending).end
    }

    fn remove_before(&self, position: Position) {
        let mut segments = held(&self.inner.segments);
        while segments.len() > 1 && segments[1] <= position {
            let path = segment_path(&self.inner.folder, segments[0]);
            if let Err(error) = self.inner.disk.remove(&path) {
                tracing::warn!("{}: {error}", path.display());
                return;
            }
            segments.pop_front();
        }
    }
}

/// A log in memory, for tests: what was written can be looked at, and lost.
#[derive(Default)]
pub struct MemoryLog {
    records: Mutex<Vec<Vec<u8>>>,
}

impl MemoryLog {
    /// All records.
    pub fn records(&self) -> Vec<Vec<u8>> {
        held(&self.records).clone()
    }
}

impl Journal for MemoryLog {
    fn append(&self, record: &[u8]) -> Position {
        let mut records = held(&self.records);
        records.push(record.to_vec());
        records.len() as Position
    }

    fn write(&self) -> io::Result<()> {
        Ok(())
    }

    fn when_safe(&self, _: Position, done: WhenSafe) {
        done(true);
    }

    fn is_healthy(&self) -> bool {
        true
    }

    fn segments(&self) -> Vec<Position> {
        vec![0]
    }

    fn end(&self) -> Position {
        held(&self.records).len() as Position
    }

    fn remove_before(&self, _: Position) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Call, FailingDisk, Fault, Plan, RealDisk};
    use std::sync::mpsc;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn open(disk: impl Disk + 'static, folder: &Folder, segment_bytes: u64) -> (Log, Vec<Vec<u8>>) {
        let mut records = Vec::new();
        let settings = Settings { segment_bytes };
        let log = Log::open(Arc::new(disk), &folder.0, settings, &mut |_, record| {
            records.push(record.to_vec());
        });
        (log.unwrap(), records)
    }

    fn sync(log: &Log) -> bool {
        let (sender, receiver) = mpsc::channel();
        log.when_safe(log.end(), Box::new(move |is_safe| sender.send(is_safe).unwrap()));
        receiver.recv().unwrap()
    }

    #[test]
    fn records_come_back_from_all_segments() {
        let folder = Folder::new("segments");
        let records: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n) + 1]).collect();
        {
            let (log, found) = open(RealDisk, &folder, 500);
            assert!(found.is_empty());
            for record in &records {
                log.append(record);
                assert!(sync(&log));
            }
            assert!(log.segments().len() > 3, "{:?}", log.segments());
        }
        let (log, found) = open(RealDisk, &folder, 500);
        assert_eq!(found, records);
        let third = log.segments()[2];
        log.remove_before(third);
        assert_eq!(log.segments()[0], third);
        drop(log);
        let (_, found) = open(RealDisk, &folder, 500);
        assert!(records.ends_with(&found) && !found.is_empty());
    }

    #[test]
    fn every_prefix_of_the_last_segment_loads_as_a_prefix_of_the_records() {
        let folder = Folder::new("prefix");
        let records: Vec<Vec<u8>> = (1..8u8).map(|n| vec![n; 10]).collect();
        {
            let (log, _) = open(RealDisk, &folder, 1 << 20);
            for record in &records {
                log.append(record);
            }
            assert!(sync(&log));
        }
        let path = segment_path(&folder.0, 0);
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).rev() {
            fs::write(&path, &whole[..length]).unwrap();
            let (_, found) = open(RealDisk, &folder, 1 << 20);
            assert_eq!(found, records[..length / 18], "{length} bytes");
        }
    }

    #[test]
    fn damage_before_the_tail_is_an_error() {
        let folder = Folder::new("damage");
        {
            let (log, _) = open(RealDisk, &folder, 100);
            for n in 0..20u8 {
                log.append(&[n; 40]);
                assert!(sync(&log));
            }
        }
        let path = segment_path(&folder.0, 0);
        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, bytes).unwrap();
        let settings = Settings { segment_bytes: 100 };
        let error = Log::open(Arc::new(RealDisk), &folder.0, settings, &mut |_, _| ()).err();
        assert!(error.unwrap().to_string().contains("is damaged at byte 0"));
    }

    #[test]
    fn a_second_process_is_refused() {
        let folder = Folder::new("lock");
        let (_log, _) = open(RealDisk, &folder, 100);
        let settings = Settings::default();
        let error = Log::open(Arc::new(RealDisk), &folder.0, settings, &mut |_, _| ()).err();
        assert!(error.unwrap().to_string().contains("another process"));
    }

    #[test]
    fn what_a_full_disk_refused_is_written_when_there_is_room() {
        let folder = Folder::new("full");
        let disk = FailingDisk::default();
        {
            let (log, _) = open(disk.clone(), &folder, 1 << 20);
            log.append(b"first");
            assert!(sync(&log));
            let (call, fault) = (Some(Call::Write), Fault::Torn(28));
            disk.set(Some(Plan { call, first: 0, count: u64::MAX, fault }));
            log.append(b"second");
            assert!(log.write().is_err());
            assert!(!sync(&log));
            assert!(!log.is_healthy());
            disk.set(None);
            log.append(b"third");
            assert!(sync(&log));
            assert!(log.is_healthy());
        }
        let (_, found) = open(RealDisk, &folder, 1 << 20);
        assert_eq!(found, [&b"first"[..], b"second", b"third"]);
    }

    #[test]
    fn a_sync_that_fails_is_not_called_safe() {
        let folder = Folder::new("sync");
        let disk = FailingDisk::default();
        let (log, _) = open(disk.clone(), &folder, 1 << 20);
        let (call, fault) = (Some(Call::Sync), Fault::Error(5));
        disk.set(Some(Plan { call, first: 0, count: 1, fault }));
        log.append(b"record");
        assert!(!sync(&log));
        log.append(b"another");
        assert!(!sync(&log), "what the failed sync lost is before it");
        assert!(!log.is_healthy());
    }
}
