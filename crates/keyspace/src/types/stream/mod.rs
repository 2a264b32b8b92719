//! A stream: entries in the order of their ids, in packed blocks, and the groups that read them.
//!
//! ```text
//!   Stream -> | last id | first id | max deleted id | added | length | blocks | groups |
//!                                                                        |        |
//!                  id of block -> listpack of up to 100 entries  <-------'        |
//!                  name -> group: last id, pending entries, consumers   <---------'
//! ```
//!
//! A stream may be empty and goes only with its key: what was added and delivered counts on.
//!
//! **Invariant:** ids ascend and are at most `last_id`; `first_id` is that of the first live
//! entry, 0-0 if there is none; `len` is the sum of the blocks' live entries.

use std::collections::BTreeMap;
use std::fmt;

pub mod block;
mod blocks;
pub mod group;
pub mod id;
mod marks;
mod sorted;
#[cfg(test)]
mod tests;

use crate::raw::packed::Malformed;
use block::Block;
pub use block::{Entry, Fields};
use blocks::Blocks;
pub use group::{Consumer, ConsumerNumber, Group, Pending};
pub use id::StreamId;
use marks::Marks;

/// How large one block of a stream becomes; 0 = no limit of this kind.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// `stream-node-max-bytes`.
    pub node_bytes: usize,
    /// `stream-node-max-entries`.
    pub node_entries: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        StreamLimits { node_bytes: 4096, node_entries: 100 }
    }
}

/// No block, and so no entry, is larger than this, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Why an entry was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its id is not above the last one.
    IdTooSmall,
    /// It is larger than a block may be.
    TooLarge,
}

/// What a stream is cut to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// So many entries, the last ones.
    Last(usize),
    /// The entries from this id on.
    From(StreamId),
}

/// How exactly a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// To the entry.
    Exact,
    /// By whole blocks, as far as at most so many entries go (0 = any number).
    Blocks(usize),
}

/// Whether what is delivered is pending until it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// It is.
    UntilAcknowledged,
    /// It counts as acknowledged at once (NOACK).
    Nothing,
}

/// To whom entries are delivered, and how.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    /// The consumer.
    pub consumer: ConsumerNumber,
    /// So many entries at most.
    pub count: usize,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// See [`Keeping`].
    pub keeping: Keeping,
}

/// A stream; see the module.
#[repr(transparent)]
#[derive(Default, Clone)]
pub struct Stream(Box<Inner>);

#[derive(Default, Clone)]
struct Inner {
    last_id: StreamId,
    first_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    len: usize,
    blocks: Blocks,
    groups: BTreeMap<Box<[u8]>, Group>,
}

impl Inner {
    #[inline]
    fn marks(&self) -> Marks {
        let Inner { last_id, first_id, max_deleted_id, entries_added, len, .. } = *self;
        Marks { last_id, first_id, max_deleted_id, entries_added, len }
    }
}

impl Stream {
    // Counts and ids.

    /// Number of live entries.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there is no live entry.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The largest id that was ever added or set.
    pub fn last_id(&self) -> StreamId {
        self.0.last_id
    }

    /// The id of the first live entry, 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.0.first_id
    }

    /// The largest id that was deleted, 0-0 if none was.
    pub fn max_deleted_id(&self) -> StreamId {
        self.0.max_deleted_id
    }

    /// How many entries were ever added.
    pub fn entries_added(&self) -> u64 {
        self.0.entries_added
    }

    /// Sets the last id (XSETID, RDB). Below the last entry's id it breaks the order: look first.
    pub fn set_last_id(&mut self, id: StreamId) {
        self.0.last_id = id;
    }

    /// Sets the largest deleted id (XSETID, RDB).
    pub fn set_max_deleted_id(&mut self, id: StreamId) {
        self.0.max_deleted_id = id;
    }

    /// Sets how many entries were ever added (XSETID, RDB).
    pub fn set_entries_added(&mut self, count: u64) {
        self.0.entries_added = count;
    }

    // Entries.

    /// Adds an entry of these names and values behind all others.
    #[inline]
    pub fn add<'f, I>(
        &mut self,
        id: StreamId,
        fields: I,
        limits: StreamLimits,
    ) -> Result<(), Refused>
    where
        I: ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let inner = &mut *self.0;
        if id <= inner.last_id {
            return Err(Refused::IdTooSmall);
        }
        let bytes: usize = fields.clone().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > BLOCK_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        match inner.blocks.last_mut() {
            Some((first, block)) if has_room(block, bytes, limits) => block.push(first, id, fields),
            _ => {
                let mut block = Block::new(fields.clone());
                block.push(id, id, fields);
                inner.blocks.push(id, block);
            }
        }
        inner.len += 1;
        inner.entries_added += 1;
        inner.last_id = id;
        if inner.len == 1 {
            inner.first_id = id;
        }
        Ok(())
    }

    /// The entries from `low` to `high`, both included, in order.
    #[inline]
    pub fn range(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.0.blocks.forward(low, high)
    }

    /// The same from the last to the first.
    pub fn range_back(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.0.blocks.backward(low, high)
    }

    /// The entry with this id.
    pub fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The last entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.range_back(StreamId::MIN, StreamId::MAX).next()
    }

    /// Deletes the entry with this id; false if there is none.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let inner = &mut *self.0;
        let Some((first, block)) = inner.blocks.holding_mut(id) else { return false };
        if !block.delete(first, id) {
            return false;
        }
        if block.counts().0 == 0 {
            inner.blocks.remove(first);
        }
        inner.len -= 1;
        inner.max_deleted_id = inner.max_deleted_id.max(id);
        if id == inner.first_id {
            self.find_first();
        }
        true
    }

    /// Cuts the stream from its start; returns how many entries went.
    pub fn trim(&mut self, keep: Keep, cut: Cut) -> usize {
        let inner = &mut *self.0;
        let mut gone = 0;
        while let Some((first, block)) = inner.blocks.first_mut() {
            let live = block.counts().0;
            let (done, whole) = match keep {
                Keep::Last(count) => (inner.len <= count, inner.len - live >= count),
                Keep::From(id) => (first >= id, block.last_id(first).is_none_or(|last| last < id)),
            };
            let too_many = matches!(cut, Cut::Blocks(limit) if limit > 0 && gone + live > limit);
            if done || too_many {
                break;
            }
            if whole {
                inner.blocks.remove(first);
                inner.len -= live;
                gone += live;
                continue;
            }
            if cut == Cut::Exact {
                let excess = match keep {
                    Keep::Last(count) => inner.len - count,
                    Keep::From(_) => usize::MAX,
                };
                let mut left = excess;
                let marked = block.delete_front(first, |entry| {
                    let stop = left == 0 || matches!(keep, Keep::From(id) if entry >= id);
                    left -= usize::from(!stop);
                    stop
                });
                inner.len -= marked;
                gone += marked;
            }
            break;
        }
        if gone > 0 {
            self.find_first();
        }
        gone
    }

    fn find_first(&mut self) {
        let first = self.range(StreamId::MIN, StreamId::MAX).next().map(|entry| entry.id);
        self.0.first_id = first.unwrap_or(StreamId::MIN);
    }

    // How far a reader is.

    fn marks(&self) -> Marks {
        self.0.marks()
    }

    /// How many of all entries ever added lie up to `id`, where that can be told: at the ends,
    /// and before the first entry if no deletion left a gap behind it.
    pub fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        self.marks().entries_up_to(id)
    }

    /// How many entries a group has still to read, if that can be told. Negative where its count
    /// was set to more than there are.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let marks = self.marks();
        if marks.entries_added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !marks.has_gap_from(group.last_id));
        let read = read.or_else(|| marks.entries_up_to(group.last_id))?;
        Some(marks.entries_added.wrapping_sub(read) as i64)
    }

    /// Gives a consumer the entries that its group has not had yet, the first `count` of them, and
    /// shows each to `visit`; returns how many those were.
    #[inline]
    pub fn read_new(
        &mut self,
        name: &[u8],
        delivery: Delivery,
        mut visit: impl FnMut(Entry<'_>),
    ) -> usize {
        let inner = &mut *self.0;
        let marks = inner.marks();
        let Some(group) = inner.groups.get_mut(name) else { return 0 };
        let Some(from) = group.last_id.next().filter(|from| *from <= marks.last_id) else {
            return 0;
        };
        let mut read = 0;
        for entry in inner.blocks.forward(from, StreamId::MAX).take(delivery.count) {
            marks.advance(group, entry.id);
            visit(entry);
            read += 1;
            if delivery.keeping == Keeping::UntilAcknowledged {
                let Delivery { now_ms, consumer, .. } = delivery;
                group.give(entry.id, Pending { delivered_ms: now_ms, count: 1, consumer });
                group.consumer_mut(consumer).active_ms = Some(now_ms);
            }
        }
        read
    }

    /// Gives a consumer again what is pending for it from `from` on, the first `count` entries;
    /// an entry that has been deleted is shown by its id only.
    pub fn read_again(
        &mut self,
        name: &[u8],
        from: StreamId,
        delivery: Delivery,
        mut visit: impl FnMut(StreamId, Option<Entry<'_>>),
    ) -> usize {
        let inner = &mut *self.0;
        let Some(group) = inner.groups.get_mut(name) else { return 0 };
        let ids = group.consumer_pending(delivery.consumer, from, StreamId::MAX);
        let ids: Vec<StreamId> = ids.take(delivery.count).collect();
        for id in &ids {
            let entry = inner.blocks.forward(*id, *id).next();
            let is_there = entry.is_some();
            visit(*id, entry);
            if let Some(pending) = group.pending_mut(*id).filter(|_| is_there) {
                pending.delivered_ms = delivery.now_ms;
                pending.count += 1;
            }
        }
        ids.len()
    }

    // Groups.

    /// The groups in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.0.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The group with this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.0.groups.get(name)
    }

    /// The same, to be changed.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.0.groups.get_mut(name)
    }

    /// Adds a group; false if there is one of this name.
    pub fn add_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.0.groups.contains_key(name) {
            return false;
        }
        self.0.groups.insert(name.into(), group);
        true
    }

    /// Takes a group out.
    pub fn remove_group(&mut self, name: &[u8]) -> Option<Group> {
        self.0.groups.remove(name)
    }

    // As files hold it.

    /// The blocks, each with its first id, as the listpack that RDB files hold.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (StreamId, &[u8])> {
        let count = self.0.blocks.len();
        Counted(self.0.blocks.iter().map(|(first, block)| (first, block.listpack())), count)
    }

    /// Adds a block from anywhere behind all others: every byte is checked, and that it begins
    /// after the last id so far. A block without a live entry is left out. Sets `last_id`,
    /// `first_id` and `len`; the other numbers are the caller's to set.
    pub fn push_block(&mut self, first: StreamId, listpack: &[u8]) -> Result<(), Malformed> {
        let block = Block::from_listpack(first, listpack)?;
        let last = block.last_id(first);
        let inner = &mut *self.0;
        if last.is_some() && first <= inner.last_id {
            return Err(Malformed);
        }
        let live = block.counts().0;
        if let (Some(last), 1..) = (last, live) {
            let was_empty = inner.len == 0;
            inner.blocks.push(first, block);
            inner.len += live;
            inner.last_id = last;
            if was_empty {
                self.find_first();
            }
        }
        Ok(())
    }

    // As a whole.

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.0.blocks.len()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let group = |(name, group): (&[u8], &Group)| {
            2 * (size_of::<Group>() + size_of::<Box<[u8]>>()) + name.len() + group.memory()
        };
        size_of::<Inner>() + self.0.blocks.memory() + self.groups().map(group).sum::<usize>()
    }

    /// About how many allocations it takes to free it.
    pub fn free_effort(&self) -> usize {
        let groups: usize = self.groups().map(|(_, group)| group.free_effort()).sum();
        1 + self.0.blocks.len() + groups
    }
}

#[inline]
fn has_room(block: &Block, bytes: usize, limits: StreamLimits) -> bool {
    let most = match limits.node_bytes {
        0 => BLOCK_BYTES_MAX,
        bytes => bytes.min(BLOCK_BYTES_MAX),
    };
    let (live, deleted) = block.counts();
    block.listpack().len() + bytes < most
        && (limits.node_entries == 0 || live + deleted < limits.node_entries)
}

/// An iterator whose length is known besides.
struct Counted<I>(I, usize);

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let item = self.0.next()?;
        self.1 -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id.to_string());
        f.debug_list().entries(ids).finish()
    }
}
