//! What the server knows of a client, readable from every thread: CLIENT LIST and KILL.
//!
//! The connection's own thread writes it, with plain stores; names are behind a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use commands::context::Session;
use keyspace::waiting::Waiter;

/// One client's record. Times in milliseconds since 1970.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Client {
    pub id: u64,
    pub thread: usize,
    pub fd: i64,
    pub addr: String,
    pub laddr: String,
    pub is_unix: bool,
    pub is_tls: bool,
    pub created_ms: i64,
    pub last_ms: AtomicI64,
    pub db: AtomicU32,
    pub channels: AtomicU32,
    pub patterns: AtomicU32,
    pub shard_channels: AtomicU32,
    /// Commands queued by MULTI, -1 outside of it.
    pub multi: AtomicI64,
    /// Bytes of those commands.
    pub multi_bytes: AtomicU64,
    pub watched: AtomicU32,
    /// The flag that a change of a watched key raises.
    pub watch_flag: Mutex<Weak<AtomicBool>>,
    pub input_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    /// Bytes that it takes in all: see [`crate::client_memory`].
    pub memory: AtomicU64,
    pub total_in: AtomicU64,
    pub total_out: AtomicU64,
    pub commands: AtomicU64,
    /// The last command's number in the registry, `u32::MAX` before the first.
    pub last_command: AtomicU32,
    pub resp3: AtomicBool,
    pub blocked: AtomicBool,
    /// Its wait, if it is blocked: whoever begins it may end it.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
    pub no_evict: AtomicBool,
    pub no_touch: AtomicBool,
    pub monitor: AtomicBool,
    /// To be closed when its replies have been sent.
    pub closes: AtomicBool,
    /// Asked to be closed by CLIENT KILL; its thread does it.
    pub killed: AtomicBool,
    pub names: Mutex<Names>,
}

/// The parts of a record that are text.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs)]
pub struct Names {
    pub name: String,
    pub lib_name: String,
    pub lib_ver: String,
    pub user: String,
}

impl Client {
    /// The client's kind, as CLIENT LIST TYPE has it.
    pub fn kind(&self) -> &'static str {
        let subscriptions = self.channels.load(Ordering::Relaxed)
            + self.patterns.load(Ordering::Relaxed)
            + self.shard_channels.load(Ordering::Relaxed);
        if subscriptions > 0 { "pubsub" } else { "normal" }
    }

    /// Writes down the state that its commands may have changed.
    pub fn note(&self, session: &Session) {
        self.db.store(session.db as u32, Ordering::Relaxed);
        self.resp3.store(session.resp3, Ordering::Relaxed);
        let multi = session.multi.as_ref();
        let queued = multi.map_or(-1, |multi| multi.queue.len() as i64);
        self.multi.store(queued, Ordering::Relaxed);
        let bytes = multi.map_or(0, |multi| multi.bytes as u64);
        self.multi_bytes.store(bytes, Ordering::Relaxed);
        let watched = session.watched.len() as u32;
        if self.watched.load(Ordering::Relaxed) != watched {
            self.watched.store(watched, Ordering::Relaxed);
            let mut flag = self.watch_flag.lock().unwrap_or_else(|p| p.into_inner());
            *flag = Arc::downgrade(&session.watch_flag);
        }
    }

    /// Whether a key that it watches has changed.
    pub fn is_dirty(&self) -> bool {
        let flag = self.watch_flag.lock().unwrap_or_else(|p| p.into_inner()).upgrade();
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
            && self.watched.load(Ordering::Relaxed) > 0
    }

    /// Sets or clears what it waits for.
    pub fn wait(&self, waiter: Option<Arc<Waiter>>) {
        self.blocked.store(waiter.is_some(), Ordering::Relaxed);
        *self.waiter.lock().unwrap_or_else(|p| p.into_inner()) = waiter;
    }

    /// A copy of its names.
    pub fn names(&self) -> Names {
        self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Changes its names.
    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}
