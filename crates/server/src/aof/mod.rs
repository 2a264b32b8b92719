//! The append-only file as the server has it: the log, its files, what is to be done with them.
//!
//! ```text
//! commands --> log (persist) --> file          BGREWRITEAOF, CONFIG SET appendonly
//!    |            |                                      |
//!    |            v                                      v
//!    |         `durable` wakes event loops        thread "rewrite": turns on and off, rewrites,
//!    v                                            removes what is no longer needed
//! replies are held until then (`always`)
//! ```
//!
//! **Invariant:** the state's lock is never held while a shard's is waited for: commands look at
//! the state with shards locked.

pub mod commands;
pub mod recovery;
mod rewriting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use persist::aof::files::Files;
use persist::aof::log::{Listener, Log, Policy};
use persist::disk::Disk;

use crate::options::{Options, index_of};
use crate::shared::Shared;

/// Where turning the file on and off has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nothing is logged.
    #[default]
    Off,
    /// Turned on at run time: what is written goes to a file that counts once the first rewrite is
    /// done.
    Waiting,
    /// All that is written is logged.
    On,
}

/// What INFO tells of rewriting.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Rewrites {
    pub done: u64,
    pub failures_in_a_row: u32,
    pub last_ok: bool,
    pub last_seconds: i64,
}

struct State {
    phase: Phase,
    files: Option<Files>,
    /// Bytes of all files but the one that is written to.
    other_bytes: u64,
    /// Bytes of all files at the start or after the last rewrite.
    base_bytes: u64,
    started: Option<Instant>,
    wants_rewrite: bool,
    is_scheduled: bool,
    wants_collection: bool,
    rewrites: Rewrites,
    /// No rewrite by itself before then, after several failures.
    next_try: Option<Instant>,
}

/// See the module.
pub struct Aof {
    /// What the keyspace writes to.
    pub log: Arc<Log>,
    /// Where all data files are, snapshots among them.
    pub disk: Arc<dyn Disk>,
    state: Mutex<State>,
    changed: Condvar,
    wants_on: AtomicBool,
    is_stopping: AtomicBool,
    /// The rewrite that runs shall end.
    cancel: AtomicBool,
    /// Event loops that wait for more to become durable.
    waiting: Box<[AtomicBool]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Writes that were refused because the file could not be written.
    pub refused: AtomicU64,
}

impl Aof {
    /// With nothing logged yet, for so many event loops.
    pub fn new(disk: Arc<dyn Disk>, threads: usize) -> Aof {
        let state = State {
            phase: Phase::Off,
            files: None,
            other_bytes: 0,
            base_bytes: 0,
            started: None,
            wants_rewrite: false,
            is_scheduled: false,
            wants_collection: false,
            rewrites: Rewrites { done: 0, failures_in_a_row: 0, last_ok: true, last_seconds: -1 },
            next_try: None,
        };
        Aof {
            log: Arc::default(),
            disk,
            state: Mutex::new(state),
            changed: Condvar::new(),
            wants_on: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            waiting: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            threads: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether writes are logged, or are about to be.
    pub fn is_on(&self) -> bool {
        self.wants_on.load(Ordering::Relaxed)
    }

    /// Where turning it on has come to.
    pub fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Whether a rewrite runs or is about to, since when, and whether one waits for something else.
    pub fn rewriting(&self) -> (bool, Option<Instant>, bool) {
        let state = self.state();
        // One that is to end counts no more: to clients it is gone.
        let runs = state.started.is_some() && !self.cancel.load(Ordering::SeqCst);
        (runs || state.wants_rewrite && !state.is_scheduled, state.started, state.is_scheduled)
    }

    /// Whether a rewrite is about to end that was told to.
    pub fn is_ending(&self) -> bool {
        self.state().started.is_some() && self.cancel.load(Ordering::SeqCst)
    }

    /// What has come of rewriting.
    pub fn rewrites(&self) -> Rewrites {
        self.state().rewrites
    }

    /// Bytes of all files now, and at the start or after the last rewrite.
    pub fn sizes(&self) -> (u64, u64) {
        let state = self.state();
        (state.other_bytes + self.log.file_bytes(), state.base_bytes)
    }

    /// Has the file rewritten; `waits`: for what else takes an image just now.
    pub fn ask_rewrite(&self, waits: bool) {
        let mut state = self.state();
        state.wants_rewrite = true;
        state.is_scheduled = waits;
        drop(state);
        self.changed.notify_all();
    }

    /// Carries the options over.
    pub fn apply(&self, options: &Options) {
        let log = &self.log;
        let policy = options.number(const { index_of("appendfsync") }) as usize;
        if log.policy() != Policy::by_index(policy) {
            log.set_policy(Policy::by_index(policy));
        }
        let notes = options.is_on(const { index_of("aof-timestamp-enabled") });
        log.notes_time.store(notes, Ordering::Relaxed);
        let limit = options.number(const { index_of("aof-pending-limit") });
        log.pending_bytes_max.store(limit as usize, Ordering::Relaxed);
        let holds = options.is_on(const { index_of("no-appendfsync-on-rewrite") });
        if !holds {
            log.holds_syncs.store(false, Ordering::Relaxed);
        }
        let is_on = options.is_on(const { index_of("appendonly") });
        let mut state = self.state();
        let was_on = self.wants_on.swap(is_on, Ordering::SeqCst);
        if was_on && !is_on {
            self.cancel.store(true, Ordering::SeqCst);
            if state.wants_rewrite && !state.is_scheduled {
                tracing::info!("Killing AOF child: a rewrite that was about to start");
            }
            (state.wants_rewrite, state.is_scheduled) = (false, false);
        }
        if is_on && !was_on {
            // Also where the log has not been closed yet since it was turned off: whoever turns it
            // on gets a base of now, as in Redis.
            state.wants_rewrite = true;
            state.is_scheduled = false;
        }
        let keeps = options.is_on(const { index_of("aof-disable-auto-gc") });
        let history = state.files.as_ref().map_or(0, |files| files.manifest().history.len());
        state.wants_collection |= !keeps && history > 0;
        drop(state);
        self.changed.notify_all();
    }

    /// The event loop `thread` is about to sleep and wants to know when more is durable.
    pub fn wait_for_durable(&self, thread: usize) {
        self.waiting[thread].store(true, Ordering::SeqCst);
    }

    /// Up to where a reply that has been written just now must wait: `None` if it may go.
    #[inline]
    pub fn hold_position(&self) -> Option<u64> {
        if self.log.policy() != Policy::Always || !self.is_on() {
            return None;
        }
        let position = self.log.appended();
        (position > self.log.durable()).then_some(position)
    }

    /// Starts the threads.
    pub fn start(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        self.log.set_listener(Box::new(Bell(Arc::downgrade(shared))));
        let mut threads = self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        threads.push(self.log.start()?);
        let shared = Arc::clone(shared);
        let rewriter = std::thread::Builder::new().name("rewrite".into());
        threads.push(rewriter.spawn(move || rewriting::run(&shared))?);
        Ok(())
    }

    /// Ends the threads: all that was logged is written and safe then.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.cancel.store(true, Ordering::SeqCst);
        self.changed.notify_all();
        self.log.stop();
        let mut threads = self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Tells the event loops.
struct Bell(Weak<Shared>);

impl Listener for Bell {
    fn durable(&self) {
        let Some(shared) = self.0.upgrade() else { return };
        for (thread, waits) in shared.aof.waiting.iter().enumerate() {
            if waits.load(Ordering::SeqCst) && waits.swap(false, Ordering::SeqCst) {
                shared.nudge(thread);
            }
        }
    }

    fn took(&self, event: &'static str, nanoseconds: u64) {
        let Some(shared) = self.0.upgrade() else { return };
        let threshold = shared.options.number(const { index_of("latency-monitor-threshold") });
        let ms = nanoseconds / 1_000_000;
        if threshold > 0 && ms >= threshold as u64 {
            shared.records.add_latency(event, crate::worker::now_ms() / 1000, ms);
        }
    }

    fn must_rewrite(&self) {
        let Some(shared) = self.0.upgrade() else { return };
        tracing::warn!("a failed fsync may have lost data of the append-only file: rewriting it");
        shared.aof.state().wants_rewrite = true;
        shared.aof.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use persist::disk::RealDisk;

    #[test]
    fn turned_on_again_before_it_was_closed_it_gets_a_new_base() {
        let aof = Aof::new(Arc::new(RealDisk), 1);
        let options = Options::default();
        let turn = |word| {
            options.set("appendonly", &[word]).expect("a word it knows");
            aof.apply(&options);
        };
        turn("yes");
        // A rewrite runs, and the thread has no time to close the log between the two.
        aof.state().phase = Phase::On;
        aof.state().wants_rewrite = false;
        aof.state().started = Some(Instant::now());
        turn("no");
        assert!(aof.is_ending() && !aof.rewriting().0);
        turn("yes");
        assert!(aof.rewriting().0, "nothing would be rewritten, and the last status stay an error");
    }
}
