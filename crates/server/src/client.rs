//! What the server knows of a client, readable from every thread: CLIENT LIST and KILL.
//!
//! The connection's own thread writes it, with plain stores; names are behind a lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// One client's record. Times in milliseconds since 1970.
#[derive(Debug, Default)]
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
    pub watched: AtomicU32,
    pub input_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    pub total_in: AtomicU64,
    pub total_out: AtomicU64,
    pub commands: AtomicU64,
    /// The last command's number in the registry, `u32::MAX` before the first.
    pub last_command: AtomicU32,
    pub resp3: AtomicBool,
    pub blocked: AtomicBool,
    pub no_evict: AtomicBool,
    pub no_touch: AtomicBool,
    pub monitor: AtomicBool,
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

    /// A copy of its names.
    pub fn names(&self) -> Names {
        self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Changes its names.
    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}
