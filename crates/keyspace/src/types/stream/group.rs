//! A consumer group: what was delivered last, to whom, and what of it is not acknowledged yet.
//!
//! **Invariant:** every pending entry belongs to one consumer of the group, in whose own set its
//! id is, and no set has another id.

use std::collections::BTreeMap;

use super::id::StreamId;
use super::sorted::Sorted;
use crate::raw::packed::Malformed;

/// Which consumer of a group: stays the same as long as the consumer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerNumber(u32);

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// When it was delivered last, in milliseconds since 1970.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub count: u64,
    /// To whom.
    pub consumer: ConsumerNumber,
}

/// A consumer of a group.
#[derive(Debug, Clone)]
pub struct Consumer {
    /// Its name.
    pub name: Box<[u8]>,
    /// When it last tried to read or claim, in milliseconds since 1970.
    pub seen_ms: i64,
    /// When it last got an entry; `None` = never.
    pub active_ms: Option<i64>,
    pending: Sorted<()>,
}

impl Consumer {
    /// Number of its pending entries.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Group {
    /// The last entry delivered.
    pub last_id: StreamId,
    /// How many entries of all ever added lie up to that one, if that is known.
    pub entries_read: Option<u64>,
    pending: Sorted<Pending>,
    numbers: BTreeMap<Box<[u8]>, ConsumerNumber>,
    consumers: Vec<Option<Consumer>>,
}

impl Group {
    /// A group that has read up to `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    // Consumers.

    /// The consumers in the order of their names.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (ConsumerNumber, &Consumer)> {
        self.numbers.values().map(|number| (*number, self.consumer(*number)))
    }

    /// A consumer by its number.
    ///
    /// # Panics
    /// If it has been deleted.
    pub fn consumer(&self, number: ConsumerNumber) -> &Consumer {
        self.consumers[number.0 as usize].as_ref().expect("a consumer that is there")
    }

    /// The same, to be changed.
    ///
    /// # Panics
    /// If it has been deleted.
    pub fn consumer_mut(&mut self, number: ConsumerNumber) -> &mut Consumer {
        self.consumers[number.0 as usize].as_mut().expect("a consumer that is there")
    }

    /// The number of the consumer with this name.
    pub fn find(&self, name: &[u8]) -> Option<ConsumerNumber> {
        self.numbers.get(name).copied()
    }

    /// Adds a consumer, seen now; `None` if there is one of this name.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: i64) -> Option<ConsumerNumber> {
        if self.numbers.contains_key(name) {
            return None;
        }
        let consumer = Consumer {
            name: name.into(),
            seen_ms: now_ms,
            active_ms: None,
            pending: Sorted::default(),
        };
        let free = self.consumers.iter().position(Option::is_none);
        let index = free.unwrap_or(self.consumers.len());
        if free.is_none() {
            self.consumers.push(None);
        }
        self.consumers[index] = Some(consumer);
        let number = ConsumerNumber(u32::try_from(index).expect("fewer consumers than 2^32"));
        self.numbers.insert(name.into(), number);
        Some(number)
    }

    /// Takes a consumer out, with its pending entries; returns how many those were.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.numbers.remove(name)?;
        let consumer = self.consumers[number.0 as usize].take()?;
        for (id, ()) in consumer.pending.range(StreamId::MIN, StreamId::MAX) {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    // Pending entries.

    /// Number of pending entries.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The pending entry with this id.
    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(id)
    }

    /// The same, to change its time and count; `consumer` must stay: see [`Group::give`].
    pub fn pending_mut(&mut self, id: StreamId) -> Option<&mut Pending> {
        self.pending.get_mut(id)
    }

    /// The pending entries from `low` to `high`, both included, in order.
    pub fn pending_range(
        &self,
        low: StreamId,
        high: StreamId,
    ) -> impl Iterator<Item = (StreamId, &Pending)> {
        self.pending.range(low, high)
    }

    /// The last pending entry.
    pub fn pending_last(&self) -> Option<(StreamId, &Pending)> {
        self.pending.last()
    }

    /// The ids of one consumer's pending entries from `low` to `high`, both included, in order.
    pub fn consumer_pending(
        &self,
        number: ConsumerNumber,
        low: StreamId,
        high: StreamId,
    ) -> impl Iterator<Item = StreamId> {
        self.consumer(number).pending.range(low, high).map(|(id, ())| id)
    }

    /// Makes an entry pending, or sets anew what it is if it already was.
    pub fn give(&mut self, id: StreamId, pending: Pending) {
        let before = self.pending.insert(id, pending);
        match before {
            Some(old) if old.consumer == pending.consumer => {}
            Some(old) => {
                self.consumer_mut(old.consumer).pending.remove(id);
                self.consumer_mut(pending.consumer).pending.insert(id, ());
            }
            None => {
                self.consumer_mut(pending.consumer).pending.insert(id, ());
            }
        }
    }

    /// Takes an entry out of those pending; false if it is not one.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(id) else { return false };
        self.consumer_mut(pending.consumer).pending.remove(id);
        true
    }

    /// Adds what a file says is pending, which must not be pending yet and have a consumer here.
    pub fn restore_pending(&mut self, id: StreamId, pending: Pending) -> Result<(), Malformed> {
        let known = self.consumers.get(pending.consumer.0 as usize).is_some_and(Option::is_some);
        if !known || self.pending.get(id).is_some() {
            return Err(Malformed);
        }
        self.give(id, pending);
        Ok(())
    }

    // As a whole.

    /// Bytes on the heap; the tree of names is reckoned by its items.
    pub fn memory(&self) -> usize {
        let own = |consumer: &Consumer| 2 * consumer.name.len() + 48 + consumer.pending.memory();
        let owners: usize = self.consumers().map(|(_, consumer)| own(consumer)).sum();
        let row = self.consumers.capacity() * size_of::<Option<Consumer>>();
        owners + row + self.pending.memory()
    }

    /// About how many allocations it takes to free it.
    pub fn free_effort(&self) -> usize {
        1 + self.numbers.len() * 2 + self.pending.chunk_count() * 2
    }

    /// Panics where the invariant does not hold.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let owned: usize = self.consumers().map(|(_, consumer)| consumer.pending.len()).sum();
        assert_eq!(owned, self.pending.len());
        for (id, pending) in self.pending.range(StreamId::MIN, StreamId::MAX) {
            assert!(self.consumer(pending.consumer).pending.get(id).is_some());
        }
    }
}
