//! Who waits for a key (blocked clients) and who watches one (WATCH), kept in the key's own shard,
//! so that a write finds them under the lock it holds anyway.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Name = (usize, Vec<u8>);

/// A client blocked on one or more keys. Whoever ends the wait claims it first: a writer that
/// serves it, its own thread at the timeout, CLIENT UNBLOCK.
pub struct Waiter {
    /// The client's id.
    pub client: u64,
    claimed: AtomicBool,
    /// What it waits to do; belongs to the layer that made it.
    pub task: Box<dyn Any + Send + Sync>,
}

impl Waiter {
    /// A new waiter that nobody has claimed.
    pub fn new(client: u64, task: Box<dyn Any + Send + Sync>) -> Arc<Waiter> {
        Arc::new(Waiter { client, claimed: AtomicBool::new(false), task })
    }

    /// Ends the wait; true for the one caller that did.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// Whether the wait has ended.
    pub fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
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
        line.retain(|waiter| !waiter.is_claimed());
        if line.is_empty() {
            self.0.remove(&name);
            return Vec::new();
        }
        line.iter().cloned().collect()
    }

    /// Whether anybody may be waiting for the key.
    pub fn has(&self, db: usize, key: &[u8]) -> bool {
        let line = self.0.get(&(db, key.to_vec()));
        line.is_some_and(|line| line.iter().any(|waiter| !waiter.is_claimed()))
    }

    /// The keys somebody waits for in a database.
    pub fn keys(&self, db: usize) -> impl Iterator<Item = &Vec<u8>> {
        self.0.keys().filter(move |name| name.0 == db).map(|name| &name.1)
    }

    /// Takes the claimed waiters of a key out of its line.
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

    /// Takes one watcher's flag back.
    pub fn remove(&mut self, db: usize, key: &[u8], flag: &Arc<AtomicBool>) {
        let name = (db, key.to_vec());
        if let Some(flags) = self.0.get_mut(&name) {
            flags.retain(|other| !Arc::ptr_eq(other, flag));
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
