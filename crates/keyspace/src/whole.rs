//! Whole databases: visiting all keys, drawing one, emptying and exchanging databases.
//!
//! Visiting takes one shard's lock at a time, unless the command holds them all; emptying and
//! exchanging need all of them.

use crate::effects::{Freeing, Garbage};
use crate::fields::rebuild_fields_due;
use crate::hasher::hash;
use crate::keys::{Keys, raise, rebuild_due};
use crate::keyspace::{Keyspace, table_hash};
use crate::raw::entry::Entry;
use crate::raw::shards::SHARDS;
use crate::raw::table::{Ref, Table};

impl Keys<'_> {
    /// Looks at one shard's part of the current database. In a transaction that holds all shards
    /// it is simply there; else its lock is taken for the moment, and no other may be held.
    pub fn with_table<T>(&self, shard: usize, look: impl FnOnce(Option<&Table<Entry>>) -> T) -> T {
        if self.held.has(shard) {
            return look(self.held.shard(shard).table(self.db));
        }
        let held = self.space.lock_one(shard);
        look(held.shard(shard).table(self.db))
    }

    /// Visits keys of the current database from `cursor` on until about `count` were visited;
    /// returns the cursor to go on from, 0 at the end. Keys past their time are left out.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&Entry)) -> u64 {
        let (mut shard, mut place) = Keyspace::place(cursor);
        let mut seen = 0;
        while shard < SHARDS {
            let next = self.with_table(shard, |table| {
                table?.scan(place, count - seen, |entry| {
                    seen += 1;
                    if entry.expire_at().is_none_or(|at| at > self.due_ms) {
                        visit(entry);
                    }
                })
            });
            (shard, place) = next.map_or((shard + 1, 0), |next| (shard, next));
            if seen >= count {
                break;
            }
        }
        if shard < SHARDS { Keyspace::cursor(shard, place) } else { 0 }
    }

    /// Visits every key of the current database.
    pub fn for_each(&self, mut visit: impl FnMut(&Entry)) {
        for shard in 0..SHARDS {
            self.with_table(shard, |table| {
                let entries = table.into_iter().flat_map(Table::iter);
                let live = |e: &Ref<'_, Entry>| e.expire_at().is_none_or(|at| at > self.due_ms);
                entries.filter(live).for_each(|entry| visit(&entry));
            });
        }
    }

    /// A random key of the current database.
    pub fn random_key(&self) -> Option<Vec<u8>> {
        const DRAWS_MAX: usize = 200;
        if self.key_count() == 0 {
            return None;
        }
        let live = |entry: &Ref<'_, Entry>| entry.expire_at().is_none_or(|at| at > self.due_ms);
        let random = &mut self.random.borrow_mut();
        for _ in 0..DRAWS_MAX {
            let key = self.with_table(random.below(SHARDS), |table| {
                let entry = table?.random(|| random.bits())?;
                live(&entry).then(|| entry.key().to_vec())
            });
            if key.is_some() {
                return key;
            }
        }
        // Few keys in many shards, or many past their time: the first one from somewhere on.
        let start = random.below(SHARDS);
        let mut shards = (start..SHARDS).chain(0..start);
        shards.find_map(|shard| {
            self.with_table(shard, |table| {
                let found = table?.iter().find(|entry| live(entry));
                found.map(|entry| entry.key().to_vec())
            })
        })
    }

    /// Removes every key of a database; all shards must be held.
    pub fn flush(&mut self, db: usize, freeing: Freeing) -> usize {
        let was = self.db;
        self.db = db;
        let mut removed = 0;
        for shard in 0..SHARDS {
            self.signal_all(shard, [db, db]);
            let data = self.held.shard_mut(shard);
            if data.table(db).is_none_or(Table::is_empty) {
                continue;
            }
            let table = std::mem::take(data.table_mut(db));
            removed += table.len();
            let table = match &mut data.image {
                Some(image) => image.before_flush(db, table),
                None => Some(table),
            };
            if let Some(table) = table {
                self.effects.free(Garbage::Table(table), freeing);
            }
            self.find_due_anew(shard);
        }
        self.tally.keys(db, -(self.space.key_count(db) as i64));
        let (volatile, seconds) = (self.space.volatile_count(db), self.space.expire_seconds(db));
        self.tally.volatile(db, -(volatile as i64), -seconds);
        self.db = was;
        self.note_all_touched(db);
        removed
    }

    /// Exchanges two databases; all shards must be held.
    pub fn swap(&mut self, one: usize, other: usize) {
        let was = self.db;
        for shard in 0..SHARDS {
            let data = self.held.shard_mut(shard);
            let table = std::mem::take(data.table_mut(one));
            let table = std::mem::replace(data.table_mut(other), table);
            *data.table_mut(one) = table;
            if let Some(image) = &mut data.image {
                image.swap(one, other);
            }
            self.find_due_anew(shard);
            for db in [one, other] {
                self.db = db;
                self.signal_all(shard, [one, other]);
            }
        }
        [one, other].into_iter().for_each(|db| self.note_all_touched(db));
        let space = self.space;
        let keys = space.key_count(other) as i64 - space.key_count(one) as i64;
        let volatile = space.volatile_count(other) as i64 - space.volatile_count(one) as i64;
        self.tally.keys(one, keys);
        self.tally.keys(other, -keys);
        let seconds = space.expire_seconds(other).wrapping_sub(space.expire_seconds(one));
        self.tally.volatile(one, volatile, seconds);
        self.tally.volatile(other, -volatile, -seconds);
        self.db = was;
    }

    /// Makes a shard's heaps anew from what it holds.
    fn find_due_anew(&mut self, shard: usize) {
        let data = self.held.shard_mut(shard);
        rebuild_due(data);
        rebuild_fields_due(data);
        self.space.set_next_due_ms(shard, data.due.next_ms());
        self.space.set_next_fields_due_ms(shard, data.fields_due.next_ms());
    }

    /// Breaks every WATCH on keys of the current database in a shard that are in one of
    /// `databases`, and wakes the waiters of all keys.
    fn signal_all(&mut self, shard: usize, databases: [usize; 2]) {
        let db = self.db;
        let data = self.held.shard_mut(shard);
        let mut keys = data.watched.as_ref().map_or_else(Vec::new, |watched| watched.keys(db));
        keys.retain(|key| {
            let is_in = |db: &usize| {
                let table = data.table(*db);
                let same = |entry: &Entry| entry.key() == key;
                table.is_some_and(|table| table.find(table_hash(hash(key)), same).is_some())
            };
            databases.iter().any(is_in)
        });
        keys.iter().for_each(|key| raise(&mut data.watched, db, key));
        let Some(waiting) = &data.waiting else { return };
        let keys: Vec<Vec<u8>> = waiting.keys(db).cloned().collect();
        self.effects.ready.extend(keys.into_iter().map(|key| (db, key)));
    }
}
