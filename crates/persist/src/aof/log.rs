//! The log: takes what commands change, in commit order, and brings it to the file.
//!
//! ```text
//! append (under shard locks) --> pending bytes --> write --> fdatasync --> listeners
//!                                     |               |           |
//!                                 `appended`      `written`   `durable`     positions, in bytes
//! ```
//!
//! With `always` the log's own thread writes and syncs, and whatever gathers during one sync goes
//! into the next. Otherwise the event loops write at the end of their turns, and the thread syncs
//! once a second (`everysec`) or never (`no`); what comes while a sync is under way waits for it.
//! Turns that follow each other closely share a write: a little waits until there is more, for
//! `GATHER_US`, or `GATHER_MAX` if no turn ends then and the thread has to see to it.
//!
//! **Invariant:** `durable <= written <= appended`; a position counts as durable when a crash of
//! the machine leaves everything before it.
//! **Invariant:** bytes that could not be written or, with `always`, synced stay in hand and are
//! written again at the same place: the kernel may have dropped the pages of a failed sync. With
//! the other policies a failed sync makes the file suspect: nothing counts as durable until a
//! rewrite has replaced it ([`Log::replaced`]).
//! **Bound:** `pending_bytes_max`: event loops wait before they take more commands
//! ([`Log::wait_for_room`]), never under a lock.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use keyspace::commit::{CommitLog, LogBatch};

use crate::disk::DataFile;

/// When the file is made safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Once a second.
    EverySecond,
    /// Before the replies go out.
    Always,
    /// When the system likes.
    No,
}

impl Policy {
    /// By its place among the words of `appendfsync`: everysec, always, no.
    pub fn by_index(index: usize) -> Policy {
        [Policy::EverySecond, Policy::Always, Policy::No][index]
    }
}

/// A file to go on with.
pub struct Target {
    /// The file.
    pub file: Box<dyn DataFile>,
    /// Its length in bytes: what follows is written from here on.
    pub len: u64,
}

/// What the log tells the server.
pub trait Listener: Send + Sync {
    /// More has become durable.
    fn durable(&self);
    /// Something took so long.
    fn took(&self, event: &'static str, nanoseconds: u64);
    /// A sync failed with a policy that does not keep the bytes: the file must be rewritten.
    fn must_rewrite(&self);
}

/// How often a write is tried again once the server is to end, before what is left is given up.
const LAST_TRIES: u32 = 20;
/// After a failure the next try comes this much later, then twice as much, up to `RETRY_MAX`.
const RETRY: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(1000);
const SECOND: Duration = Duration::from_secs(1);
/// Less than this waits for more after a write, for so many microseconds.
const GATHER_BYTES: usize = 64 << 10;
const GATHER_US: i64 = 2_000;
/// The longest that anything waits to be written while the disk keeps up.
const GATHER_MAX: Duration = Duration::from_millis(10);
/// Buffers that are kept for reuse, in bytes at most.
const SPARE_MAX: usize = 8 << 20;

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// The position after `bytes`.
    position: u64,
    /// The database that the file's reader is in.
    db: Option<usize>,
    /// The time of the last note, in seconds since 1970.
    noted_s: i64,
    cuts: VecDeque<Cut>,
}

/// Where another file begins.
struct Cut {
    at: usize,
    position: u64,
    next: Target,
}

/// Bytes on their way to the file.
struct Group {
    bytes: Vec<u8>,
    end: u64,
    next: Option<Target>,
}

#[derive(Default)]
struct Writer {
    file: Option<Box<dyn DataFile>>,
    /// What the file has that is good.
    len: u64,
    /// Some of it has not been synced.
    is_unsynced: bool,
    in_hand: Option<Group>,
    spare: Vec<u8>,
    /// Syncs tell nothing before a rewrite has gone past this position.
    suspect_to: Option<u64>,
    /// The last sync failed.
    fails_sync: bool,
    last_sync: Option<Instant>,
}

/// See the module.
pub struct Log {
    pending: Mutex<Pending>,
    room: Condvar,
    writer: Mutex<Writer>,
    appended: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    pending_bytes: AtomicUsize,
    /// When the last write ended, in microseconds since `born`.
    written_us: AtomicI64,
    born: Instant,
    /// Something waits for more to be written with it.
    gathers: AtomicBool,
    policy: AtomicU8,
    /// The system's number of the error that the log waits to see cleared; 0 = none.
    failing: AtomicI32,
    file_bytes: AtomicU64,
    /// No syncs while a rewrite runs (`no-appendfsync-on-rewrite`).
    pub holds_syncs: AtomicBool,
    /// Notes of the time are wanted (`aof-timestamp-enabled`).
    pub notes_time: AtomicBool,
    /// Now, in seconds since 1970, as the event loops tell it.
    pub now_s: AtomicI64,
    /// `aof-pending-limit`, in bytes.
    pub pending_bytes_max: AtomicUsize,
    /// Sleep before each write, in microseconds (DEBUG AOF-FLUSH-SLEEP).
    pub sleep_us: AtomicU64,
    /// Syncs that were put off or waited for, as INFO counts them.
    pub delayed_syncs: AtomicU64,
    /// Another file begins in what is pending: that is the thread's to do, it syncs the old one.
    has_cut: AtomicBool,
    sync_asked: AtomicBool,
    is_asleep: AtomicBool,
    is_stopping: AtomicBool,
    thread: OnceLock<Thread>,
    listener: OnceLock<Box<dyn Listener>>,
}

/// The log as the keyspace has it.
pub struct Attached(pub Arc<Log>);

impl CommitLog for Attached {
    fn append(&self, batch: LogBatch<'_>) -> u64 {
        self.0.append(batch)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Default for Log {
    fn default() -> Self {
        Log {
            pending: Mutex::default(),
            room: Condvar::new(),
            writer: Mutex::default(),
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            pending_bytes: AtomicUsize::new(0),
            written_us: AtomicI64::new(-GATHER_US),
            born: Instant::now(),
            gathers: AtomicBool::new(false),
            policy: AtomicU8::new(0),
            failing: AtomicI32::new(0),
            file_bytes: AtomicU64::new(0),
            holds_syncs: AtomicBool::new(false),
            notes_time: AtomicBool::new(false),
            now_s: AtomicI64::new(0),
            pending_bytes_max: AtomicUsize::new(64 << 20),
            sleep_us: AtomicU64::new(0),
            delayed_syncs: AtomicU64::new(0),
            has_cut: AtomicBool::new(false),
            sync_asked: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            thread: OnceLock::new(),
            listener: OnceLock::new(),
        }
    }
}

// What commands and event loops do.
impl Log {
    /// Takes a batch; see [`CommitLog::append`].
    pub fn append(&self, batch: LogBatch<'_>) -> u64 {
        let mut pending = lock(&self.pending);
        let pending = &mut *pending;
        if self.notes_time.load(Relaxed) {
            let now_s = self.now_s.load(Relaxed);
            if now_s > pending.noted_s {
                pending.noted_s = now_s;
                pending.bytes.extend_from_slice(format!("#TS:{now_s}\r\n").as_bytes());
            }
        }
        if pending.db != Some(batch.first_db) {
            let before = pending.bytes.len();
            let db = batch.first_db.to_string();
            let words = [&b"SELECT"[..], db.as_bytes()];
            resp::write_request(&mut pending.bytes, words.into_iter());
            pending.position += (pending.bytes.len() - before) as u64;
        }
        pending.db = Some(batch.last_db);
        pending.bytes.extend_from_slice(batch.bytes);
        pending.position += batch.bytes.len() as u64;
        self.pending_bytes.store(pending.bytes.len(), Relaxed);
        self.appended.store(pending.position, SeqCst);
        pending.position
    }

    /// The position after everything that has been appended.
    #[inline]
    pub fn appended(&self) -> u64 {
        self.appended.load(SeqCst)
    }

    /// Everything before this position is safe.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(SeqCst)
    }

    /// Bytes in the present file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    /// Bytes that have not been written yet.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Relaxed)
    }

    /// When the file is made safe.
    pub fn policy(&self) -> Policy {
        Policy::by_index(self.policy.load(Relaxed).into())
    }

    /// Sets when the file is made safe.
    pub fn set_policy(&self, policy: Policy) {
        let policies = [Policy::EverySecond, Policy::Always, Policy::No];
        let index = policies.iter().position(|other| *other == policy).unwrap_or(0);
        self.policy.store(index as u8, Relaxed);
        self.wake();
    }

    /// The error that writes are refused for, if there is one.
    pub fn error(&self) -> Option<io::Error> {
        let code = self.failing.load(Relaxed);
        (code != 0).then(|| io::Error::from_raw_os_error(code))
    }

    /// Whether writing fails just now.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.failing.load(Relaxed) != 0
    }

    /// Called by an event loop at the end of its turn: writes what is pending, or has it written.
    #[inline]
    pub fn end_turn(&self) {
        if self.appended.load(SeqCst) != self.written.load(SeqCst) {
            self.bring_out();
        }
    }

    #[cold]
    fn bring_out(&self) {
        let is_threads = self.policy() == Policy::Always || self.has_cut.load(SeqCst);
        if is_threads || self.is_failing() {
            return self.wake();
        }
        if self.waits_for_more() {
            if !self.gathers.load(SeqCst) {
                self.gathers.store(true, SeqCst);
                self.wake();
            }
            return;
        }
        let mut is_first = false;
        while self.appended.load(SeqCst) != self.written.load(SeqCst) {
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever holds it looks again before it goes.
                Err(TryLockError::WouldBlock) => return,
            };
            is_first |= !writer.is_unsynced;
            if self.drain(&mut writer, Policy::No).is_err() {
                drop(writer);
                return self.wake();
            }
        }
        if is_first {
            // The second begins.
            self.wake();
        }
    }

    /// Whether what is pending is little and the last write was just now.
    fn waits_for_more(&self) -> bool {
        self.pending_bytes() < GATHER_BYTES
            && self.now_us() - self.written_us.load(Relaxed) < GATHER_US
    }

    fn now_us(&self) -> i64 {
        self.born.elapsed().as_micros() as i64
    }

    /// Waits while too much is pending, unless writing fails: writes are refused then.
    pub fn wait_for_room(&self) {
        let max = self.pending_bytes_max.load(Relaxed);
        if self.pending_bytes.load(Relaxed) <= max {
            return;
        }
        self.wake();
        let mut pending = lock(&self.pending);
        while pending.bytes.len() > max && !self.is_failing() && !self.is_stopping.load(SeqCst) {
            let waited = self.room.wait_timeout(pending, Duration::from_millis(100));
            pending = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Whether more is pending than shall be.
    pub fn is_over_limit(&self) -> bool {
        self.pending_bytes.load(Relaxed) > self.pending_bytes_max.load(Relaxed)
    }

    /// Has the file synced soon, whatever the policy.
    pub fn ask_sync(&self) {
        self.sync_asked.store(true, SeqCst);
        self.wake();
    }

    /// Wakes the log's thread if it sleeps.
    pub fn wake(&self) {
        if self.is_asleep.swap(false, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

// Files.
impl Log {
    /// Goes on with another file from here on: what has been appended before goes to the old one.
    /// Called with all shards locked where the place matters. Returns the position.
    pub fn switch(&self, next: Target) -> u64 {
        let mut pending = lock(&self.pending);
        pending.db = None;
        pending.noted_s = 0;
        let (at, position) = (pending.bytes.len(), pending.position);
        pending.cuts.push_back(Cut { at, position, next });
        self.has_cut.store(true, SeqCst);
        self.wake();
        position
    }

    /// Writes and syncs all that has been appended, and closes the file. Bytes that cannot be
    /// written are dropped; the error says so.
    pub fn close(&self) -> io::Result<()> {
        let mut writer = lock(&self.writer);
        let mut result = self.drain(&mut writer, Policy::Always);
        if result.is_ok() && writer.is_unsynced {
            result = self.sync(&mut writer);
        }
        let mut pending = lock(&self.pending);
        pending.bytes.clear();
        pending.cuts.clear();
        self.has_cut.store(false, SeqCst);
        pending.db = None;
        self.pending_bytes.store(0, Relaxed);
        *writer = Writer::default();
        self.written.store(pending.position, SeqCst);
        self.durable.store(pending.position, SeqCst);
        self.failing.store(0, Relaxed);
        drop(pending);
        drop(writer);
        self.told_durable();
        result
    }

    /// Writes all that has been appended to the files, and waits for it.
    pub fn flush(&self) -> io::Result<()> {
        let mut writer = lock(&self.writer);
        self.drain(&mut writer, Policy::No)
    }

    /// A rewrite has put everything before this position into a base that is safe.
    pub fn replaced(&self, position: u64) {
        let mut writer = lock(&self.writer);
        if writer.suspect_to.is_some_and(|to| to <= position) {
            writer.suspect_to = None;
            self.advance_durable(position);
        }
        drop(writer);
        self.told_durable();
    }

    /// Sets who is told.
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        let _ = self.listener.set(listener);
    }

    fn told_durable(&self) {
        if let Some(listener) = self.listener.get() {
            listener.durable();
        }
    }

    fn advance_durable(&self, to: u64) {
        self.durable.fetch_max(to, SeqCst);
    }

    fn take(&self, spare: Vec<u8>) -> Option<Group> {
        let mut pending = lock(&self.pending);
        let group = if let Some(Cut { at, position, next }) = pending.cuts.pop_front() {
            let rest = pending.bytes.split_off(at);
            let bytes = std::mem::replace(&mut pending.bytes, rest);
            pending.cuts.iter_mut().for_each(|cut| cut.at -= at);
            self.has_cut.store(!pending.cuts.is_empty(), SeqCst);
            Group { bytes, end: position, next: Some(next) }
        } else if pending.bytes.is_empty() {
            return None;
        } else {
            let bytes = std::mem::replace(&mut pending.bytes, spare);
            Group { bytes, end: pending.position, next: None }
        };
        self.pending_bytes.store(pending.bytes.len(), Relaxed);
        drop(pending);
        self.room.notify_all();
        Some(group)
    }

    /// Writes what is in hand and what is pending, with `always` syncing each group.
    fn drain(&self, writer: &mut Writer, policy: Policy) -> io::Result<()> {
        loop {
            let spare = std::mem::take(&mut writer.spare);
            let Some(group) = writer.in_hand.take().or_else(|| self.take(spare)) else {
                return Ok(());
            };
            let is_done = self.put(writer, &group, policy);
            if let Err(error) = is_done {
                // What was written and not synced is written again: see the module.
                writer.in_hand = Some(group);
                return Err(self.failed(error));
            }
            let Group { mut bytes, end, next } = group;
            self.written.store(end, SeqCst);
            bytes.clear();
            if bytes.capacity() <= SPARE_MAX {
                writer.spare = bytes;
            }
            if let Some(Target { file, len }) = next {
                writer.file = Some(file);
                writer.len = len;
                writer.is_unsynced = false;
                self.file_bytes.store(len, Relaxed);
            }
            if policy == Policy::Always {
                writer.fails_sync = false;
                if writer.suspect_to.is_none() {
                    self.advance_durable(end);
                }
                self.told_durable();
            }
            if !writer.fails_sync {
                self.recovered();
            }
        }
    }

    /// Brings one group to the file.
    fn put(&self, writer: &mut Writer, group: &Group, policy: Policy) -> io::Result<()> {
        let Some(file) = &writer.file else { return Ok(()) };
        let sleep_us = self.sleep_us.load(Relaxed);
        if sleep_us > 0 {
            thread::sleep(Duration::from_micros(sleep_us));
        }
        let end = writer.len + group.bytes.len() as u64;
        if !group.bytes.is_empty() {
            let started = Instant::now();
            if let Err(error) = file.write_all_at(&group.bytes, writer.len) {
                tracing::warn!("Error writing to the AOF file: {}", error_text(&error));
                if let Err(error) = file.truncate(writer.len) {
                    let text = error_text(&error);
                    tracing::warn!(
                        "could not cut the half-written end off the append-only file: {text}; it \
                         is overwritten at the next try"
                    );
                }
                return Err(error);
            }
            self.took("aof-write", started);
            self.written_us.store(self.now_us(), Relaxed);
        }
        let is_last_of_file = group.next.is_some() && (writer.is_unsynced || writer.len != end);
        if policy == Policy::Always && writer.len != end || is_last_of_file {
            let started = Instant::now();
            if let Err(error) = file.sync() {
                tracing::warn!("Fail to fsync the AOF file: {}", error_text(&error));
                if writer.is_unsynced {
                    self.suspect(writer);
                }
                return Err(error);
            }
            writer.is_unsynced = false;
            writer.last_sync = Some(Instant::now());
            self.took("aof-fsync-always", started);
        } else {
            writer.is_unsynced |= writer.len != end;
        }
        writer.len = end;
        self.file_bytes.store(end, Relaxed);
        Ok(())
    }

    /// Bytes that are no longer in hand may have been lost by a failed sync.
    fn suspect(&self, writer: &mut Writer) {
        let was = writer.suspect_to.replace(self.written.load(SeqCst));
        if was.is_none()
            && let Some(listener) = self.listener.get()
        {
            listener.must_rewrite();
        }
    }

    /// Syncs what has been written.
    fn sync(&self, writer: &mut Writer) -> io::Result<()> {
        let Some(file) = &writer.file else { return Ok(()) };
        let started = Instant::now();
        let result = file.sync();
        writer.last_sync = Some(Instant::now());
        if let Err(error) = result {
            tracing::warn!("Fail to fsync the AOF file: {}", error_text(&error));
            writer.fails_sync = true;
            self.suspect(writer);
            return Err(self.failed(error));
        }
        self.took("aof-fsync-everysec", started);
        (writer.is_unsynced, writer.fails_sync) = (false, false);
        if writer.suspect_to.is_none() {
            self.advance_durable(self.written.load(SeqCst));
        }
        self.told_durable();
        self.recovered();
        Ok(())
    }

    fn took(&self, event: &'static str, started: Instant) {
        if let Some(listener) = self.listener.get() {
            listener.took(event, started.elapsed().as_nanos() as u64);
        }
    }

    fn failed(&self, error: io::Error) -> io::Error {
        // A write that takes nothing is a full disk in all but name.
        let code = error.raw_os_error().unwrap_or(libc::ENOSPC);
        if self.failing.swap(code, Relaxed) == 0 {
            tracing::error!(
                "the append-only file cannot be written: writes are refused until it can ({})",
                error_text(&error)
            );
        }
        self.room.notify_all();
        error
    }

    fn recovered(&self) {
        if self.failing.load(Relaxed) != 0 {
            self.failing.store(0, Relaxed);
            tracing::warn!("AOF write error looks solved, writes are taken again.");
        }
    }
}

// The thread.
impl Log {
    /// Starts the log's thread.
    pub fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let log = Arc::clone(self);
        let handle = thread::Builder::new().name("log".into()).spawn(move || log.run())?;
        let _ = self.thread.set(handle.thread().clone());
        Ok(handle)
    }

    /// Makes the thread write and sync what there is, and end.
    pub fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn run(&self) {
        let (mut retry, mut last_tries) = (RETRY, LAST_TRIES);
        loop {
            self.gather();
            let is_stopping = self.is_stopping.load(SeqCst);
            let (result, due) = self.work(is_stopping);
            if is_stopping {
                let Err(error) = result else { return };
                if last_tries == 0 {
                    tracing::error!("the end of the log is lost: {}", error_text(&error));
                    return;
                }
                last_tries -= 1;
                thread::sleep(RETRY);
                continue;
            }
            let timeout = match result {
                Ok(()) => {
                    retry = RETRY;
                    due
                }
                Err(_) => {
                    thread::park_timeout(retry);
                    retry = (retry * 2).min(RETRY_MAX);
                    continue;
                }
            };
            self.is_asleep.store(true, SeqCst);
            let is_idle = self.appended.load(SeqCst) == self.written.load(SeqCst)
                && !self.has_cut.load(SeqCst)
                && !self.is_stopping.load(SeqCst)
                && !self.sync_asked.load(SeqCst)
                && !self.gathers.load(SeqCst);
            if is_idle {
                match timeout {
                    Some(timeout) => thread::park_timeout(timeout),
                    None => thread::park(),
                }
            }
            self.is_asleep.store(false, SeqCst);
        }
    }

    /// Lets the event loops gather what they have asked to have written soon.
    fn gather(&self) {
        if !self.gathers.load(SeqCst) {
            return;
        }
        self.is_asleep.store(true, SeqCst);
        let is_urgent = self.policy() == Policy::Always
            || self.sync_asked.load(SeqCst)
            || self.has_cut.load(SeqCst)
            || self.is_stopping.load(SeqCst);
        if !is_urgent {
            thread::park_timeout(GATHER_MAX);
        }
        self.is_asleep.store(false, SeqCst);
        self.gathers.store(false, SeqCst);
    }

    /// Does what is due; when something will be due next.
    fn work(&self, is_stopping: bool) -> (io::Result<()>, Option<Duration>) {
        let policy = self.policy();
        let mut writer = lock(&self.writer);
        let policy = if is_stopping { Policy::Always } else { policy };
        if let Err(error) = self.drain(&mut writer, policy) {
            return (Err(error), None);
        }
        let asked = self.sync_asked.swap(false, SeqCst);
        let since = writer.last_sync.map_or(SECOND, |at| at.elapsed());
        let holds = self.holds_syncs.load(Relaxed) && !is_stopping && !asked;
        let is_due = match policy {
            Policy::EverySecond => asked || since >= SECOND && !holds,
            Policy::Always => true,
            Policy::No => asked,
        };
        let is_needed = writer.is_unsynced || self.is_failing();
        if is_needed && is_due {
            let result = self.sync(&mut writer);
            return (result, None);
        }
        let left = SECOND.saturating_sub(since).max(Duration::from_millis(1));
        let waits = writer.is_unsynced && policy == Policy::EverySecond;
        (Ok(()), waits.then_some(if holds { SECOND } else { left }))
    }
}

/// The system's words for an error, without its number.
fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}
