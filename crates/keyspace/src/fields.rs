//! Fields of hashes that expire: which hashes of a shard have some due, and taking them out.
//!
//! Reading a hash does not look at its fields' times. Instead, fields that are due are taken out
//! of a shard when its lock is taken, before a command looks at anything in it, so a field past its
//! time is never seen, as a key past its time is not. Without any such field in the keyspace that
//! costs one load, of a flag.
//!
//! **Invariant:** each hash with a field that expires has an item in its shard's `fields_due` that
//! is not later than the first of them.

use std::sync::atomic::Ordering;

use crate::due::DueKey;
use crate::effects::class;
use crate::hasher::hash;
use crate::keys::Keys;
use crate::keyspace::{Keyspace, ShardData, add, shard_of, table_hash};
use crate::raw::entry::{Entry, NewValue};
use crate::raw::table::Table;
use crate::value::{Value, ValueMut, ValueRef};

impl NewValue<'_> {
    /// A time before which no field of the value expires; `None` if none ever does.
    pub(crate) fn fields_expire_at(&self) -> Option<i64> {
        match self {
            NewValue::Value(Value::Hash(hash)) => hash.next_expire_at(),
            _ => None,
        }
    }
}

fn fields_expire_at(entry: &Entry) -> Option<i64> {
    match entry.value() {
        ValueRef::Hash(hash) => hash.next_expire_at(),
        _ => None,
    }
}

impl Keyspace {
    /// Notes that a field of a hash in a held shard expires at `at_ms`.
    pub(crate) fn note_fields_due(&self, data: &mut ShardData, hash: u64, db: usize, at_ms: i64) {
        self.has_field_times.store(true, Ordering::Relaxed);
        let due = &mut data.fields_due;
        due.push(DueKey::new(at_ms, table_hash(hash), db));
        due.live = due.live.max(1);
        if due.wants_rebuild() {
            rebuild_fields_due(data);
        }
        self.set_next_fields_due_ms(shard_of(hash), data.fields_due.next_ms());
    }
}

impl Keys<'_> {
    /// Notes that a field of the hash at `key` was given a time, in milliseconds since 1970.
    pub fn field_expires(&mut self, key: &[u8], at_ms: i64) {
        self.note_fields_due(hash(key), at_ms);
    }

    pub(crate) fn note_fields_due(&mut self, hash: u64, at_ms: i64) {
        let (space, db) = (self.space, self.db);
        space.note_fields_due(self.held.shard_mut(shard_of(hash)), hash, db, at_ms);
    }

    /// To be called whenever locks have been taken: what is due in those shards goes.
    #[inline]
    pub fn after_locking(&mut self) {
        if self.space.has_field_times() {
            self.expire_fields_due();
        }
    }

    #[cold]
    fn expire_fields_due(&mut self) {
        let held = self.held.set();
        for shard in held.iter() {
            if self.held.shard(shard).fields_due.next_ms() <= self.due_ms {
                self.expire_fields(shard);
            }
        }
    }

    /// Takes the fields that are due out of all hashes in a held shard.
    pub(crate) fn expire_fields(&mut self, shard: usize) {
        let db = self.db;
        loop {
            let data = self.held.shard_mut(shard);
            let Some(item) = data.fields_due.pop_due(self.due_ms) else { break };
            let found = data.table(item.db()).and_then(|table| {
                let due =
                    |entry: &Entry| fields_expire_at(entry).is_some_and(|at| at <= item.at_ms);
                table.find(item.table_hash(), due).map(|entry| entry.key().to_vec())
            });
            if let Some(key) = found {
                self.db = item.db();
                self.expire_fields_of(&key);
            }
        }
        self.db = db;
        self.space.set_next_fields_due_ms(shard, self.held.shard(shard).fields_due.next_ms());
    }

    /// Takes the fields that are due out of one hash, and the hash where none is left.
    fn expire_fields_of(&mut self, key: &[u8]) {
        let hash = hash(key);
        let Some(place) = self.locate(key, hash) else { return };
        self.before_change(hash, place);
        let table = self.held.shard_mut(shard_of(hash)).table_mut(self.db);
        let ValueMut::Hash(fields) = table.at_mut(place).into_value_mut() else { return };
        let gone = fields.take_due(self.due_ms);
        let (next, is_empty) = (fields.next_expire_at(), fields.is_empty());
        if let Some(at) = next {
            self.note_fields_due(hash, at);
        }
        if gone.is_empty() {
            return;
        }
        add(&self.tally.expired_fields, gone.len() as u64);
        self.notify(class::HASH, "hexpired", key);
        if is_empty {
            self.remove_at(hash, place);
            self.notify(class::GENERIC, "del", key);
        }
        self.log_gone(key, if is_empty { Vec::new() } else { gone });
        self.signal(key);
    }
}

pub(crate) fn rebuild_fields_due(data: &mut ShardData) {
    if data.fields_due.is_empty() {
        return;
    }
    let mut items = Vec::new();
    for db in 0..data.databases() {
        for entry in data.table(db).into_iter().flat_map(Table::iter) {
            if let Some(at) = fields_expire_at(&entry) {
                items.push(DueKey::new(at, table_hash(hash(entry.key())), db));
            }
        }
    }
    data.fields_due.rebuild(items);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Gone;
    use crate::random::Random;
    use crate::raw::shards::ShardSet;
    use crate::types::hash::HashLimits;

    fn keys(space: &Keyspace, now_ms: i64) -> Keys<'_> {
        Keys::new(space, space.lock(&ShardSet::ALL), space.tally(0), now_ms, Random::new(1))
    }

    fn set(keys: &mut Keys<'_>, key: &[u8], field: &[u8], at_ms: i64) {
        let hash = keys.hash_or_new(key).expect("a hash or nothing");
        hash.set(field, b"v", HashLimits::default());
        assert!(hash.set_expire_at(field, Some(at_ms)));
        keys.field_expires(key, at_ms);
        keys.changed(key);
    }

    fn fields(keys: &Keys<'_>, key: &[u8]) -> Option<usize> {
        keys.hash(key).expect("a hash or nothing").map(|hash| hash.len())
    }

    #[test]
    fn fields_past_their_time_are_not_seen() {
        let space = Keyspace::new(2, 1);
        assert!(!space.has_field_times());
        let mut first = keys(&space, 0);
        set(&mut first, b"h", b"one", 10);
        set(&mut first, b"h", b"two", 20);
        first.select(1);
        set(&mut first, b"other", b"one", 30);
        drop(first);
        assert_eq!(space.next_due_ms(), 10);
        assert_eq!(fields(&keys(&space, 9), b"h"), Some(2));
        assert_eq!(fields(&keys(&space, 10), b"h"), Some(1));
        assert_eq!(space.next_due_ms(), 20);
        let mut later = keys(&space, 30);
        assert_eq!(fields(&later, b"h"), None, "an empty hash is gone");
        later.select(1);
        assert_eq!(fields(&later, b"other"), None);
        drop(later);
        assert_eq!((space.key_count(0), space.key_count(1)), (0, 0));
        assert_eq!(space.total(|tally| &tally.expired_fields), 3);
        assert_eq!(space.next_due_ms(), i64::MAX);
    }

    #[test]
    fn times_go_where_the_hash_goes() {
        let space = Keyspace::new(2, 1);
        let mut first = keys(&space, 0);
        set(&mut first, b"h", b"one", 10);
        let (value, at) = first.take(b"h").expect("it is there");
        first.put(b"new name", value, at);
        first.swap(0, 1);
        drop(first);
        let mut later = keys(&space, 10);
        later.select(1);
        assert_eq!(fields(&later, b"new name"), None);
    }

    #[test]
    fn nothing_expires_while_a_log_is_replayed() {
        let space = Keyspace::new(1, 1);
        set(&mut keys(&space, 0), b"h", b"one", 10);
        space.keeps_expired.store(true, Ordering::Relaxed);
        assert_eq!(fields(&keys(&space, 50), b"h"), Some(1));
        space.keeps_expired.store(false, Ordering::Relaxed);
        assert_eq!(fields(&keys(&space, 50), b"h"), None);
    }

    #[test]
    fn what_goes_is_told_to_the_log() {
        struct Nowhere;
        impl crate::commit::CommitLog for Nowhere {
            fn append(&self, _: crate::commit::LogBatch<'_>) -> u64 {
                0
            }
        }
        let space = Keyspace::new(1, 1);
        assert!(space.attach_log(Box::new(Nowhere)).is_ok());
        let mut first = keys(&space, 0);
        set(&mut first, b"h", b"one", 10);
        set(&mut first, b"h", b"two", 20);
        drop(first);
        let gone = |fields: &[&[u8]]| {
            let fields = fields.iter().map(|field| field.to_vec()).collect();
            vec![Gone { db: 0, key: b"h".to_vec(), fields }]
        };
        assert_eq!(keys(&space, 10).effects.expired, gone(&[b"one"]));
        assert_eq!(keys(&space, 20).effects.expired, gone(&[]));
    }

    #[test]
    fn setting_times_again_and_again_takes_bounded_room() {
        let space = Keyspace::new(1, 1);
        let mut all = keys(&space, 0);
        (0..10_000).for_each(|at| set(&mut all, b"h", b"one", 1_000 + at));
        let data = all.held().shard(shard_of(hash(b"h")));
        assert!(data.fields_due.len() < 200, "{}", data.fields_due.len());
    }
}
