//! What the server writes down about itself: the slow log, error counts, latency events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One entry of the slow log.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Slow {
    pub id: u64,
    pub unix_seconds: i64,
    pub microseconds: u64,
    pub words: Vec<Vec<u8>>,
    pub addr: String,
    pub name: String,
}

/// See the module.
#[derive(Default)]
pub struct Records {
    slow: Mutex<VecDeque<Slow>>,
    slow_next: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Records {
    /// Adds a slow command; the oldest go when there are more than `max`.
    pub fn add_slow(&self, mut slow: Slow, max: usize) {
        slow.id = self.slow_next.fetch_add(1, Ordering::Relaxed);
        let mut log = self.slow.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        log.push_front(slow);
        log.truncate(max);
    }

    /// The newest `count` slow commands, newest first.
    pub fn slow(&self, count: usize) -> Vec<Slow> {
        let log = self.slow.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        log.iter().take(count).cloned().collect()
    }

    /// Number of slow commands kept.
    pub fn slow_len(&self) -> usize {
        self.slow.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
    }

    /// Forgets the slow commands.
    pub fn slow_reset(&self) {
        self.slow.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    /// Counts an error reply by its code (its first word).
    pub fn add_error(&self, message: &str) {
        let code = message.split(' ').next().unwrap_or("ERR").to_string();
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Codes come from our own texts, but scripts may make some up: keep a bound.
        if errors.len() < 128 || errors.contains_key(&code) {
            *errors.entry(code).or_default() += 1;
        }
    }

    /// Error counts by code.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Forgets the error counts.
    pub fn errors_reset(&self) {
        self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }
}
