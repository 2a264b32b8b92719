//! Filling the keyspace from a file: no client sees it yet, so nothing is woken, logged or told.
//!
//! Any number of threads may load at once; each brings a tally that no other thread writes.

use crate::due::DueKey;
use crate::keyspace::{Keyspace, Tally, shard_of, table_hash};
use crate::raw::entry::{Entry, NewValue};
use crate::raw::table::Ref;

/// What becomes of a key that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicate {
    /// The new one is not taken.
    Refuse,
    /// The old one goes.
    Replace,
}

/// A key from a file.
pub struct Loaded<'a> {
    /// Its database, which is below [`Keyspace::databases`].
    pub db: usize,
    /// The key.
    pub key: &'a [u8],
    /// [`crate::hasher::hash`] of the key.
    pub hash: u64,
    /// Its value.
    pub value: NewValue<'a>,
    /// When it expires, in milliseconds since 1970.
    pub expire_at: Option<i64>,
    /// The eviction policy's 24 bits.
    pub access: u32,
}

impl Keyspace {
    /// Asks the processor for the place of a key that is about to be loaded.
    #[inline]
    pub fn prefetch_load(&self, hash: u64, db: usize) {
        Keyspace::prefetch(&self.lock_one(shard_of(hash)), hash, db);
    }

    /// Adds a key; false if it was there and stays as it was.
    pub fn load(&self, tally: &Tally, loaded: Loaded<'_>, duplicate: OnDuplicate) -> bool {
        let Loaded { db, key, hash, value, expire_at, access } = loaded;
        let shard = shard_of(hash);
        let mut held = self.lock_one(shard);
        let data = held.shard_mut(shard);
        let table = data.table_mut(db);
        let same = |entry: &Entry| entry.key() == key;
        let had = table.find(table_hash(hash), same).map(|entry: Ref<'_, Entry>| entry.expire_at());
        if let Some(expired_at) = had {
            if duplicate == OnDuplicate::Refuse {
                return false;
            }
            table.remove(table_hash(hash), same);
            tally.keys(db, -1);
            if let Some(at) = expired_at {
                tally.volatile(db, -1, -(at / 1000));
                data.due.live -= 1;
            }
        }
        let fields_expire_at = value.fields_expire_at();
        let entry = Entry::new(key, value, expire_at, access);
        data.table_mut(db).insert(table_hash(hash), entry);
        tally.keys(db, 1);
        if let Some(at) = expire_at {
            tally.volatile(db, 1, at / 1000);
            data.due.live += 1;
            data.due.push(DueKey::new(at, table_hash(hash), db));
            self.set_next_due_ms(shard, data.due.next_ms());
        }
        if let Some(at) = fields_expire_at {
            self.note_fields_due(data, hash, db, at);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hasher::hash;

    fn load(space: &Keyspace, value: &[u8], at: Option<i64>, duplicate: OnDuplicate) -> bool {
        let value = NewValue::Bytes(value);
        let loaded =
            Loaded { db: 1, key: b"key", hash: hash(b"key"), value, expire_at: at, access: 0 };
        space.load(space.tally(0), loaded, duplicate)
    }

    #[test]
    fn a_key_is_loaded_once_or_replaced() {
        let space = Keyspace::new(2, 1);
        assert!(load(&space, b"one", Some(5000), OnDuplicate::Refuse));
        assert_eq!((space.key_count(1), space.volatile_count(1)), (1, 1));
        assert_eq!(space.next_due_ms(), 5000);
        assert!(!load(&space, b"two", None, OnDuplicate::Refuse));
        assert_eq!((space.key_count(1), space.volatile_count(1)), (1, 1));
        assert!(load(&space, b"two", None, OnDuplicate::Replace));
        assert_eq!((space.key_count(1), space.volatile_count(1)), (1, 0));
        assert!(load(&space, b"three", Some(7000), OnDuplicate::Replace));
        assert_eq!((space.key_count(1), space.volatile_count(1)), (1, 1));
    }
}
