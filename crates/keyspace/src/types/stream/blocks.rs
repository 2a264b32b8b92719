//! The blocks of a stream in order: the last one, which grows, apart from those that are full.
//!
//! A stream with one block needs no tree, and an entry is added without a search.
//!
//! **Invariant:** each block has a live entry and begins after the last id of the one before; the
//! tree is empty if there is no last block.

use std::collections::BTreeMap;

use super::block::{Block, Entry};
use super::id::StreamId;

/// See the module.
#[derive(Default, Clone)]
pub struct Blocks {
    full: BTreeMap<StreamId, Block>,
    last: Option<(StreamId, Block)>,
}

impl Blocks {
    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.full.len() + usize::from(self.last.is_some())
    }

    /// The last block with its first id.
    #[inline]
    pub fn last_mut(&mut self) -> Option<(StreamId, &mut Block)> {
        self.last.as_mut().map(|(first, block)| (*first, block))
    }

    /// Adds a block behind all others.
    pub fn push(&mut self, first: StreamId, block: Block) {
        if let Some((id, mut full)) = self.last.replace((first, block)) {
            full.seal();
            self.full.insert(id, full);
        }
    }

    /// The first block.
    pub fn first_mut(&mut self) -> Option<(StreamId, &mut Block)> {
        match self.full.iter_mut().next() {
            Some((first, block)) => Some((*first, block)),
            None => self.last.as_mut().map(|(first, block)| (*first, block)),
        }
    }

    /// The first id of the block in which `id` lies if it is anywhere.
    fn place(&self, id: StreamId) -> Option<StreamId> {
        match &self.last {
            Some((first, _)) if *first <= id => Some(*first),
            _ => self.full.range(..=id).next_back().map(|(first, _)| *first),
        }
    }

    /// The block in which `id` lies if it is anywhere, with its first id.
    pub fn holding_mut(&mut self, id: StreamId) -> Option<(StreamId, &mut Block)> {
        match &mut self.last {
            Some((first, block)) if *first <= id => Some((*first, block)),
            _ => self.full.range_mut(..=id).next_back().map(|(first, block)| (*first, block)),
        }
    }

    /// Takes the block with this first id out.
    pub fn remove(&mut self, first: StreamId) {
        if self.last.as_ref().is_some_and(|(id, _)| *id == first) {
            self.last = self.full.pop_last();
        } else {
            self.full.remove(&first);
        }
    }

    /// Every block with its first id, from either end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (StreamId, &Block)> + Clone {
        let last = self.last.iter().map(|(first, block)| (*first, block));
        self.full.iter().map(|(first, block)| (*first, block)).chain(last)
    }

    /// The blocks from the one in which `low` may lie to the one in which `high` may.
    fn range(
        &self,
        low: StreamId,
        high: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Block)> + Clone + use<'_> {
        let start = self.place(low).unwrap_or(StreamId::MIN);
        let last = self.last.as_ref().filter(|(first, _)| *first <= high);
        let full = if start <= high { start..=high } else { high..=high };
        let full = self.full.range(full).filter(move |_| start <= high);
        let last = last.into_iter().map(|(first, block)| (*first, block));
        full.map(|(first, block)| (*first, block)).chain(last)
    }

    /// The live entries from `low` to `high`, both included.
    #[inline]
    pub fn forward(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let blocks = self.range(low, high);
        let entries = blocks.flat_map(|(first, block)| block.entries(first));
        entries.skip_while(move |entry| entry.id < low).take_while(move |entry| entry.id <= high)
    }

    /// The same from the last to the first.
    pub fn backward(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let blocks = self.range(low, high).rev();
        let entries = blocks.flat_map(|(first, block)| block.entries(first).rev());
        entries.skip_while(move |entry| entry.id > high).take_while(move |entry| entry.id >= low)
    }

    /// Bytes on the heap; what the tree's nodes take is reckoned by its items.
    pub fn memory(&self) -> usize {
        let blocks: usize = self.iter().map(|(_, block)| block.memory()).sum();
        blocks + self.full.len() * TREE_ITEM_BYTES
    }
}

/// A block's part of the tree's nodes, which are a little more than half full when filled in order.
const TREE_ITEM_BYTES: usize = (size_of::<StreamId>() + size_of::<Block>()) * 2;
