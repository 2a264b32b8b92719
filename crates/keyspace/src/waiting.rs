//! Who waits for a key (blocked clients) and who watches one (WATCH), kept in the key's own shard,
//! so that a write finds them under the lock it holds anyway.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

type Name = (usize, Vec<u8>);

/// A client blocked on one or more keys. Whoever ends the wait begins it first: a writer that
/// serves it, its own thread at the timeout, CLIENT UNBLOCK.
///
/// ```text
/// WAITING --try_begin--> BUSY --end--> ENDED
///    ^---------give_up----'
/// ```
pub struct Waiter {
    /// The client's id.
    pub client: u64,
    state: AtomicU8,
    /// What it waits to do; belongs to the layer that made it.
    pub task: Box<dyn Any + Send + Sync>,
}

const WAITING: u8 = 0;
const BUSY: u8 = 1;
const ENDED: u8 = 2;

impl Waiter {
    /// A new waiter.
    pub fn new(client: u64, task: Box<dyn Any + Send + Sync>) -> Arc<Waiter> {
        Arc::new(Waiter { client, state: AtomicU8::new(WAITING), task })
    }

    /// Tries to be the one that ends the wait.
    pub fn try_begin(&self) -> bool {
        let ordering = (Ordering::AcqRel, Ordering::Relaxed);
        self.state.compare_exchange(WAITING, BUSY, ordering.0, ordering.1).is_ok()
    }

    /// Ends the wait, after `try_begin`.
    pub fn end(&self) {
        self.state.store(ENDED, Ordering::Release);
    }

    /// Lets it wait on, after `try_begin`.
    pub fn give_up(&self) {
        self.state.store(WAITING, Ordering::Release);
    }

    /// Whether the wait has ended.
    pub fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }
}

/// The waiters of a shard's keys, first come first served.
#[derive(Default)]
pub struct Waiting(HashMap<Name, VecDeque<Arc<Waiter>>>);

impl Waiting {
    /// Adds a waiter at the end of a key's line.
    pub fn add(&mut self, db: usize, key: &[u8], waiter: Arc<Waiter>) {
        self.0.entry((db, key.to_vec())).or_default().push_back(waiter);
    }

    /// The key's waiters that still wait, in order.
    pub fn line(&mut self, db: usize, key: &[u8]) -> Vec<Arc<Waiter>> {
        let name = (db, key.to_vec());
        let Some(line) = self.0.get_mut(&name) else { return Vec::new() };
        line.retain(|waiter| !waiter.has_ended());
        if line.is_empty() {
            self.0.remove(&name);
            return Vec::new();
        }
        line.iter().cloned().collect()
    }

    /// Whether anybody may be waiting for the key.
    pub fn has(&self, db: usize, key: &[u8]) -> bool {
        let line = self.0.get(&(db, key.to_vec()));
        line.is_some_and(|line| line.iter().any(|waiter| !waiter.has_ended()))
    }

    /// The keys somebody waits for in a database.
    pub fn keys(&self, db: usize) -> impl Iterator<Item = &Vec<u8>> {
        self.0.keys().filter(move |name| name.0 == db).map(|name| &name.1)
    }

    /// Takes the waiters of a key that have ended out of its line.
    pub fn tidy(&mut self, db: usize, key: &[u8]) {
        self.line(db, key);
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of keys somebody waits for.
    pub fn key_count(&self) -> usize {
        self.0.len()
    }
}

/// The watchers of a shard's keys: flags that a write raises.
#[derive(Default)]
pub struct Watched(HashMap<Name, Vec<Arc<AtomicBool>>>);

impl Watched {
    /// Watches a key with a flag.
    pub fn add(&mut self, db: usize, key: &[u8], flag: &Arc<AtomicBool>) {
        self.0.entry((db, key.to_vec())).or_default().push(Arc::clone(flag));
    }

    /// Raises the flags of a key's watchers; they need no second raise, so they are forgotten.
    pub fn raise(&mut self, db: usize, key: &[u8]) {
        if let Some(flags) = self.0.remove(&(db, key.to_vec())) {
            flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
        }
    }

    /// Forgets the flags of a key that nobody else holds any more: their watchers have gone.
    pub fn tidy(&mut self, db: usize, key: &[u8]) {
        let name = (db, key.to_vec());
        if let Some(flags) = self.0.get_mut(&name) {
            flags.retain(|flag| Arc::strong_count(flag) > 1);
            if flags.is_empty() {
                self.0.remove(&name);
            }
        }
    }

    /// The keys somebody watches in a database.
    pub fn keys(&self, db: usize) -> Vec<Vec<u8>> {
        self.0.keys().filter(|name| name.0 == db).map(|name| name.1.clone()).collect()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of watched keys.
    pub fn key_count(&self) -> usize {
        self.0.len()
    }
}
