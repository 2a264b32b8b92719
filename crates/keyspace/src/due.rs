//! When which keys of a shard expire: a heap by time, so that due keys are found, not sampled.
//!
//! An item is (when, hash and database). Items are never taken out of the middle: one whose key
//! was deleted or got another time is skipped when it comes up. The heap is made anew from the
//! table when more than half of it may be such leftovers, so it costs 16 to 32 bytes a key that
//! expires, however often its time is set.
//!
//! A hash whose fields expire has a heap of the same kind for them, and an item in its shard's.
//!
//! **Invariant:** every key with a time to live has an item with exactly that time; every hash with
//! fields that expire has one that is not later than the first of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Databases at most: an item keeps the number in its lowest 16 bits.
pub const DATABASES_MAX: usize = 1 << 16;
const DATABASE_MASK: u64 = DATABASES_MAX as u64 - 1;

/// One item: a time and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueKey {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    word: u64,
}

impl DueKey {
    /// An item for the key with this table hash in this database.
    pub fn new(at_ms: i64, table_hash: u64, db: usize) -> DueKey {
        DueKey { at_ms, word: table_hash & !DATABASE_MASK | db as u64 }
    }

    /// The key's table hash, its lowest 16 bits lost: a search does not look at them.
    pub fn table_hash(self) -> u64 {
        self.word & !DATABASE_MASK
    }

    /// The key's database.
    pub fn db(self) -> usize {
        (self.word & DATABASE_MASK) as usize
    }
}

/// The heap of one shard.
#[derive(Default, Clone)]
pub struct Due {
    heap: BinaryHeap<Reverse<DueKey>>,
    /// Keys with a time to live in this shard.
    pub live: usize,
}

impl Due {
    /// Adds an item.
    pub fn push(&mut self, item: DueKey) {
        self.heap.push(Reverse(item));
    }

    /// The earliest time, `i64::MAX` for none.
    pub fn next_ms(&self) -> i64 {
        self.heap.peek().map_or(i64::MAX, |item| item.0.at_ms)
    }

    /// Takes the earliest item out if it is due.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<DueKey> {
        if self.next_ms() > now_ms {
            return None;
        }
        self.heap.pop().map(|item| item.0)
    }

    /// The earliest item.
    pub fn peek(&self) -> Option<DueKey> {
        self.heap.peek().map(|item| item.0)
    }

    /// Some item, by a number that the caller draws.
    pub fn any(&self, index: usize) -> Option<DueKey> {
        self.heap.as_slice().get(index).map(|item| item.0)
    }

    /// Items, leftovers included.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Whether leftovers may be the larger part.
    pub fn wants_rebuild(&self) -> bool {
        self.heap.len() > 2 * self.live + 64
    }

    /// Sets the items anew.
    pub fn rebuild(&mut self, items: Vec<DueKey>) {
        self.live = items.len();
        self.heap = items.into_iter().map(Reverse).collect();
    }

    /// Bytes of the heap.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<DueKey>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_up_in_order() {
        let mut due = Due::default();
        for at in [5, 1, 9, 3] {
            due.push(DueKey::new(at, 0xabcd_0000_0000_0000, 7));
        }
        assert_eq!(due.next_ms(), 1);
        let times: Vec<i64> =
            std::iter::from_fn(|| due.pop_due(5)).map(|item| item.at_ms).collect();
        assert_eq!(times, [1, 3, 5]);
        let last = due.pop_due(100).expect("one is left");
        assert_eq!((last.table_hash(), last.db()), (0xabcd_0000_0000_0000, 7));
        assert_eq!(due.next_ms(), i64::MAX);
    }
}
