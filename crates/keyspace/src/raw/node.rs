//! The block that long lists are cut into: room at both ends, sizes kept outside of the heap.
//!
//! ```text
//!   | gap |  elements  | slack |      capacity = all three
//!   0     start        start + used
//! ```
//!
//! A push at either end moves nothing while there is room on that side. When there is none, the
//! elements slide so that all room is there, or move into a larger allocation; both are paid for
//! by the many pushes that follow. In the middle, the shorter side moves.
//!
//! The sizes live in the node itself, that is in the list's array of nodes: a walk over a long list
//! by index touches no element, and a full node of 8192 bytes holds 8192 bytes of elements.
//!
//! **Invariant:** `start + used <= capacity`. A block above `SIZE_MIN` is at most twice as large
//! as its elements when it is allocated, and no larger than `PAGE` as long as they fit in that.

use std::alloc::dealloc;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::packed::{Block, Storage, allocate, layout, private, resize, size_class};

/// A block with room at both ends.
pub type Node = Block<Roomy>;

/// The size that most nodes have in the end: `list-max-listpack-size -2`.
const PAGE: usize = 8192;
/// No node is smaller.
const SIZE_MIN: usize = 256;

/// The storage of [`Node`].
pub struct Roomy {
    raw: NonNull<u8>,
    start: u32,
    used: u32,
    capacity: u32,
    count: u32,
}

// SAFETY: it owns its memory and has no interior mutability.
unsafe impl Send for Roomy {}
// SAFETY: shared access only reads.
unsafe impl Sync for Roomy {}

impl Node {
    /// Gives back what the node will not need if nothing is added to it any more.
    pub fn seal(&mut self) {
        let Roomy { start, used, capacity, .. } = self.0;
        let size = size_class(used as usize);
        if size < capacity as usize && used > 0 {
            // SAFETY: the elements move inside the block, then fit in the new size.
            unsafe {
                let raw = self.0.raw.as_ptr();
                ptr::copy(raw.add(start as usize), raw, used as usize);
                self.0.raw = resize(self.0.raw, capacity as usize, size);
            }
            self.0.start = 0;
            self.0.capacity = size as u32;
        }
    }
}

/// The capacity for `used` bytes that are likely to grow.
fn roomy(used: usize) -> usize {
    if used > PAGE {
        return size_class(used + used / 8).min(u32::MAX as usize & !7);
    }
    size_class(used + used / 2).clamp(SIZE_MIN, PAGE)
}

impl Roomy {
    /// Moves everything into an allocation of `capacity` bytes with a hole of `insert` in the
    /// place of `remove` bytes at `at`; all room comes before the elements if `at` is their start.
    ///
    /// # Safety
    /// As for [`Storage::splice`], and `capacity` is enough.
    unsafe fn rebuild(&mut self, at: usize, remove: usize, insert: usize, capacity: usize) {
        let used = self.used as usize;
        let new_used = used - remove + insert;
        let start = if at == 0 { capacity - new_used } else { 0 };
        let raw = allocate(capacity);
        // SAFETY: both sides of the hole lie in the old elements and in the new capacity.
        unsafe {
            let source = self.raw.as_ptr().add(self.start as usize);
            let target = raw.as_ptr().add(start);
            ptr::copy_nonoverlapping(source, target, at);
            let tail = used - at - remove;
            ptr::copy_nonoverlapping(source.add(at + remove), target.add(at + insert), tail);
            self.free();
        }
        self.raw = raw;
        self.start = start as u32;
        self.capacity = capacity as u32;
    }

    /// # Safety
    /// The block is not used again.
    unsafe fn free(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated with this size.
            unsafe { dealloc(self.raw.as_ptr(), layout(self.capacity as usize)) };
        }
    }

    /// Takes `shrink` bytes out of the place before `at + remove`, moving the shorter side.
    ///
    /// # Safety
    /// As for [`Storage::splice`], with `shrink` at most `remove`.
    unsafe fn close(&mut self, at: usize, remove: usize, shrink: usize) {
        let tail = self.used as usize - at - remove;
        // SAFETY: everything moves inside the elements.
        unsafe {
            let bytes = self.raw.as_ptr().add(self.start as usize);
            if at < tail {
                ptr::copy(bytes, bytes.add(shrink), at);
                self.start += shrink as u32;
            } else {
                let place = bytes.add(at + remove);
                ptr::copy(place, place.sub(shrink), tail);
            }
        }
    }

    /// Makes room for `grow` more bytes after `at + remove`, moving the shorter side if it can.
    ///
    /// # Safety
    /// As for [`Storage::splice`].
    unsafe fn open(&mut self, at: usize, remove: usize, grow: usize) {
        let (start, used) = (self.start as usize, self.used as usize);
        let tail = used - at - remove;
        let front = start;
        let back = self.capacity as usize - start - used;
        // SAFETY: what moves stays inside the capacity, as the conditions say.
        unsafe {
            let bytes = self.raw.as_ptr().wrapping_add(start);
            if back >= grow && (tail <= at || front < grow && at > 0) {
                let place = bytes.add(at + remove);
                ptr::copy(place, place.add(grow), tail);
                return;
            }
            if front >= grow && (at <= tail || back < grow && tail > 0) {
                ptr::copy(bytes, bytes.sub(grow), at);
                self.start -= grow as u32;
                return;
            }
            let needed = used + grow;
            let capacity = self.capacity as usize;
            let room = front + back;
            let enough = room >= grow && (room >= capacity / 8 || capacity >= PAGE);
            let capacity = if enough { capacity } else { roomy(needed) };
            self.rebuild(at, remove, remove + grow, capacity);
        }
    }
}

impl Default for Roomy {
    fn default() -> Self {
        Roomy { raw: NonNull::dangling(), start: 0, used: 0, capacity: 0, count: 0 }
    }
}

impl Drop for Roomy {
    fn drop(&mut self) {
        // SAFETY: nobody uses the block afterwards.
        unsafe { self.free() };
    }
}

impl private::Sealed for Roomy {}

impl Storage for Roomy {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block is live and holds `used` bytes from `start` on; both are 0 without one.
        unsafe {
            std::slice::from_raw_parts(
                self.raw.as_ptr().add(self.start as usize),
                self.used as usize,
            )
        }
    }

    #[inline]
    fn count(&self) -> Option<usize> {
        Some(self.count as usize)
    }

    fn memory(&self) -> usize {
        self.capacity as usize
    }

    #[inline]
    unsafe fn splice(
        &mut self,
        at: usize,
        remove: usize,
        insert: usize,
        count: isize,
    ) -> &mut [MaybeUninit<u8>] {
        self.count = self.count.wrapping_add_signed(count as i32);
        let new_used = self.used as usize - remove + insert;
        let capacity = self.capacity as usize;
        // SAFETY: as promised by the caller; the hole lies in the new elements.
        unsafe {
            if insert > remove {
                self.open(at, remove, insert - remove);
            } else if capacity > 2 * SIZE_MIN && new_used < capacity / 4 {
                self.rebuild(at, remove, insert, roomy(new_used));
            } else {
                self.close(at, remove, remove - insert);
            }
            self.used = new_used as u32;
            let hole = self.raw.as_ptr().add(self.start as usize + at);
            std::slice::from_raw_parts_mut(hole.cast(), insert)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::packed::tests::{run, steps};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn pushes_and_pops_at_both_ends() {
        for (front, back) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut node = Node::new();
            let mut model = VecDeque::new();
            for number in 0..if cfg!(miri) { 60u32 } else { 600 } {
                let value = format!("value {number}").into_bytes();
                if front {
                    node.push_front(&value);
                    model.push_front(value);
                } else {
                    node.push_back(&value);
                    model.push_back(value);
                }
                if number % 4 == 3 {
                    let last = if back { node.len() - 1 } else { 0 };
                    node.remove(node.offset(last).expect("inside"), 1);
                    if back {
                        model.pop_back()
                    } else {
                        model.pop_front()
                    };
                }
                assert!(node.iter().map(|element| element.to_vec()).eq(model.iter().cloned()));
            }
            node.seal();
            assert!(node.iter().map(|element| element.to_vec()).eq(model.iter().cloned()));
            assert_eq!(node.memory(), size_class(node.bytes().len()));
            while !model.is_empty() {
                node.remove(0, 1);
                model.pop_front();
                assert_eq!(node.len(), model.len());
            }
            assert!(node.memory() <= 2 * SIZE_MIN);
        }
    }

    #[test]
    fn a_full_page_is_a_page() {
        let mut node = Node::new();
        for _ in 0..240 {
            node.push_front(&[b'x'; 32]);
        }
        assert_eq!((node.bytes().len(), node.memory()), (8160, 8192));
        // A steady queue in a full page neither grows it nor moves it to another size.
        for _ in 0..1000 {
            node.remove(node.offset(239).expect("inside"), 1);
            node.push_front(&[b'x'; 32]);
        }
        assert_eq!((node.len(), node.memory()), (240, 8192));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn node_holds_what_a_vec_holds(steps in steps()) {
            run::<Roomy>(steps);
        }
    }
}
