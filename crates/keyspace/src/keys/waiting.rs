//! Who waits for keys and who watches them, as far as commands reach it through [`Keys`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Keys;
use crate::hasher::hash;
use crate::keyspace::shard_of;
use crate::waiting::{Waiter, Waiting};

impl Keys<'_> {
    /// Puts a waiter in a key's line.
    pub fn wait_for(&mut self, key: &[u8], waiter: Arc<Waiter>) {
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.waiting.get_or_insert_default().add(db, key, waiter);
    }

    /// The key's line of waiters, first come first.
    pub fn waiters(&mut self, key: &[u8]) -> Vec<Arc<Waiter>> {
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.waiting.as_mut().map_or_else(Vec::new, |waiting| waiting.line(db, key))
    }

    /// Whether anybody waits for the key.
    pub fn has_waiters(&self, key: &[u8]) -> bool {
        let waiting: &Option<Box<Waiting>> = &self.held.shard(shard_of(hash(key))).waiting;
        waiting.as_ref().is_some_and(|waiting| waiting.has(self.db, key))
    }

    /// Takes waiters that have ended out of a key's line.
    pub fn tidy_waiters(&mut self, key: &[u8]) {
        let db = self.db;
        let waiting = &mut self.held.shard_mut(shard_of(hash(key))).waiting;
        if let Some(line) = waiting {
            line.tidy(db, key);
            if line.is_empty() {
                *waiting = None;
            }
        }
    }

    /// Watches a key: `flag` is raised at its next change. A key past its time is removed first,
    /// so that its removal later does not count as a change.
    pub fn watch(&mut self, key: &[u8], flag: &Arc<AtomicBool>) {
        self.drop_if_expired(key, hash(key));
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.watched.get_or_insert_default().add(db, key, flag);
    }

    /// Removes the key if it is past its time, which raises its watchers' flags.
    pub fn expire_if_due(&mut self, key: &[u8]) {
        self.drop_if_expired(key, hash(key));
    }

    /// Forgets the watches on a key whose flags nobody holds any more.
    pub fn tidy_watches(&mut self, key: &[u8]) {
        let db = self.db;
        let watched = &mut self.held.shard_mut(shard_of(hash(key))).watched;
        if let Some(all) = watched {
            all.tidy(db, key);
            if all.is_empty() {
                *watched = None;
            }
        }
    }
}
