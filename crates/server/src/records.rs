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
    latencies: Mutex<BTreeMap<&'static str, Spikes>>,
}

/// Codes of errors that are counted one by one, at most.
const CODES: usize = 128;

/// Samples that an event's history keeps, at most.
const SPIKES: usize = 160;

/// One event's latencies above the threshold.
#[derive(Debug, Clone, Default)]
pub struct Spikes {
    /// The longest since it was last reset, in milliseconds.
    pub max_ms: u64,
    /// When (seconds since 1970) and how long (milliseconds), oldest first; one a second.
    pub samples: VecDeque<(i64, u64)>,
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

    /// Adds a latency to an event's history.
    pub fn add_latency(&self, event: &'static str, unix_seconds: i64, ms: u64) {
        let mut all = self.latencies.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let spikes = all.entry(event).or_default();
        spikes.max_ms = spikes.max_ms.max(ms);
        if let Some((then, longest)) = spikes.samples.back_mut()
            && *then == unix_seconds
        {
            *longest = ms.max(*longest);
            return;
        }
        spikes.samples.push_back((unix_seconds, ms));
        if spikes.samples.len() > SPIKES {
            spikes.samples.pop_front();
        }
    }

    /// Every event's history.
    pub fn latencies(&self) -> BTreeMap<&'static str, Spikes> {
        self.latencies.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Forgets the histories of the events that `forget` says; how many.
    pub fn latency_reset(&self, forget: impl Fn(&str) -> bool) -> usize {
        let mut all = self.latencies.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = all.len();
        all.retain(|event, _| !forget(event));
        before - all.len()
    }

    /// Counts an error reply by its code (its first word).
    pub fn add_error(&self, message: &str) {
        let code = message.split(' ').next().unwrap_or("ERR").to_string();
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Codes come from our own texts, but scripts may make some up: keep a bound.
        if errors.len() < CODES || errors.contains_key(&code) {
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
