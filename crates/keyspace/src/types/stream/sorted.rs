//! A map from ids to small values, for what mostly grows at its end and shrinks at its start.
//!
//! ```text
//!   | id v | id v | ... 64 | -> | id v | ... 64 | -> | id v | id v |
//! ```
//!
//! Chunks of up to [`CHUNK_MAX`] items in a ring buffer. What comes in order fills every chunk to
//! the end, where a B-tree's nodes would stay little more than half full; an item in between splits
//! a full chunk.
//!
//! **Invariant:** no chunk is empty, ids ascend, `len` is the sum of the chunks' lengths.

use std::collections::VecDeque;

use super::id::StreamId;
use crate::raw::packed::size_class;

/// Items of a chunk, at most.
const CHUNK_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone)]
pub struct Sorted<T> {
    chunks: VecDeque<Vec<(StreamId, T)>>,
    len: usize,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted { chunks: VecDeque::new(), len: 0 }
    }
}

impl<T: Copy> Sorted<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where an id is (`Ok`), or where it would be put: chunk, and place in it.
    #[inline]
    fn find(&self, id: StreamId) -> Result<(usize, usize), (usize, usize)> {
        let last = self.chunks.len().saturating_sub(1);
        let chunk = match self.chunks.back() {
            Some(chunk) if chunk[0].0 <= id => last,
            _ => self.chunks.partition_point(|chunk| chunk[0].0 <= id).saturating_sub(1),
        };
        let Some(items) = self.chunks.get(chunk) else { return Err((0, 0)) };
        if items[items.len() - 1].0 < id {
            return Err((chunk, items.len()));
        }
        let place = items.binary_search_by_key(&id, |item| item.0);
        place.map(|at| (chunk, at)).map_err(|at| (chunk, at))
    }

    /// The value of an id.
    pub fn get(&self, id: StreamId) -> Option<&T> {
        let (chunk, at) = self.find(id).ok()?;
        Some(&self.chunks[chunk][at].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut T> {
        let (chunk, at) = self.find(id).ok()?;
        Some(&mut self.chunks[chunk][at].1)
    }

    /// Sets the value of an id; returns the one it had.
    pub fn insert(&mut self, id: StreamId, value: T) -> Option<T> {
        let (chunk, at) = match self.find(id) {
            Ok((chunk, at)) => {
                return Some(std::mem::replace(&mut self.chunks[chunk][at].1, value));
            }
            Err(place) => place,
        };
        self.len += 1;
        let last = self.chunks.len().saturating_sub(1);
        match self.chunks.get_mut(chunk) {
            Some(items) if items.len() < CHUNK_MAX => items.insert(at, (id, value)),
            Some(items) if chunk < last || at < CHUNK_MAX => {
                let mut tail = items.split_off(CHUNK_MAX / 2);
                if at <= CHUNK_MAX / 2 {
                    items.insert(at, (id, value));
                } else {
                    tail.insert(at - CHUNK_MAX / 2, (id, value));
                }
                self.chunks.insert(chunk + 1, tail);
            }
            _ => self.chunks.push_back(vec![(id, value)]),
        }
        None
    }

    /// Takes an id out; returns its value.
    pub fn remove(&mut self, id: StreamId) -> Option<T> {
        let (chunk, at) = self.find(id).ok()?;
        let items = &mut self.chunks[chunk];
        let (_, value) = items.remove(at);
        self.len -= 1;
        if items.is_empty() {
            self.chunks.remove(chunk);
        } else if items.len() * 4 <= items.capacity() {
            items.shrink_to(items.len() * 2);
        }
        Some(value)
    }

    /// The items from `low` to `high`, both included, in order.
    pub fn range(
        &self,
        low: StreamId,
        high: StreamId,
    ) -> impl Iterator<Item = (StreamId, &T)> + use<'_, T> {
        let (Ok((chunk, at)) | Err((chunk, at))) = self.find(low);
        let items = self.chunks.range(chunk.min(self.chunks.len())..).flatten().skip(at);
        items.take_while(move |item| item.0 <= high).map(|(id, value)| (*id, value))
    }

    /// The last item.
    pub fn last(&self) -> Option<(StreamId, &T)> {
        let (id, value) = self.chunks.back()?.last()?;
        Some((*id, value))
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let item = size_of::<(StreamId, T)>();
        let chunk = |items: &Vec<(StreamId, T)>| size_class(items.capacity() * item);
        let row = self.chunks.capacity() * size_of::<Vec<(StreamId, T)>>();
        row + self.chunks.iter().map(chunk).sum::<usize>()
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_comes_in_order_fills_its_chunks() {
        let mut sorted = Sorted::default();
        for ms in 0..640 {
            assert_eq!(sorted.insert(StreamId::new(ms, 0), ms), None);
        }
        assert_eq!((sorted.len(), sorted.chunk_count()), (640, 10));
        for ms in 0..600 {
            assert_eq!(sorted.remove(StreamId::new(ms, 0)), Some(ms));
        }
        assert_eq!((sorted.len(), sorted.chunk_count()), (40, 1));
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            steps in proptest::collection::vec((0u64..400, 0u8..5, any::<u16>()), 0..1500)
        ) {
            let (mut sorted, mut model) = (Sorted::default(), BTreeMap::new());
            let mut top = 400;
            for (ms, what, value) in steps {
                let id = StreamId::new(ms, 0);
                match what {
                    0 => assert_eq!(sorted.insert(id, value), model.insert(id, value)),
                    1 | 2 => {
                        top += 1;
                        let id = StreamId::new(top, 0);
                        assert_eq!(sorted.insert(id, value), model.insert(id, value));
                    }
                    3 => assert_eq!(sorted.remove(id), model.remove(&id)),
                    _ => assert_eq!(sorted.get_mut(id), model.get_mut(&id)),
                }
                assert_eq!(sorted.len(), model.len());
            }
            assert!(sorted.chunks.iter().all(|chunk| !chunk.is_empty()));
            for ms in (0..top + 2).step_by(7) {
                let (low, high) = (StreamId::new(ms, 0), StreamId::new(ms + 70, 0));
                let want: Vec<_> = model.range(low..=high).map(|(id, v)| (*id, *v)).collect();
                let got: Vec<_> = sorted.range(low, high).map(|(id, v)| (id, *v)).collect();
                assert_eq!(got, want);
                assert_eq!(sorted.get(low), model.get(&low));
            }
            assert_eq!(sorted.last(), model.last_key_value().map(|(id, v)| (*id, v)));
        }
    }
}
