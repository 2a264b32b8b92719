//! One segment of a [`super::table::Table`]: an allocation with a header and slots, in order. A
//! plain copyable pointer, owned by the table, which frees it.
//!
//! ```text
//!   count: u32 | depth: u32 | slot: u64 | slot | ... `capacity` of them
//!   slot = hash16 << 48 | pointer, 0 = empty
//! ```
//!
//! **Invariant:** the non-empty slots are ascending by `hash16`; no empty slot lies between an
//! item's home and its place.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;

/// The bits of a slot that are the pointer.
pub(super) const POINTER_MASK: u64 = (1 << 48) - 1;
/// Bytes of a segment's header: item count and depth.
pub(super) const HEADER: usize = 8;
/// Segment sizes in bytes: the allocator's own classes, so that nothing is lost to rounding.
pub(super) const SIZES: [usize; 24] = [
    64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096,
    5120, 6144, 8192, 10240, 12288, 16384,
];

/// One allocation: `HEADER` bytes, then `capacity` slots. The capacity lives in the top 16 bits of
/// the directory's entry, so that finding a home needs no look at the header.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Segment(pub(super) u64);

impl Segment {
    pub(super) fn alloc(capacity: usize, depth: u32) -> Segment {
        let layout = Self::layout(capacity);
        // SAFETY: the layout is never empty.
        let raw = unsafe { alloc(layout) };
        if raw.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: `raw` points to `layout.size()` writable bytes, 8-aligned.
        unsafe {
            ptr::write_bytes(raw, 0, layout.size());
            *raw.cast::<u32>().add(1) = depth;
        }
        debug_assert_eq!(raw as u64 & !POINTER_MASK, 0);
        Segment((capacity as u64) << 48 | raw as u64)
    }

    pub(super) fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(HEADER + capacity * 8, 8).expect("at most half a mebibyte")
    }

    pub(super) fn free(self) {
        // SAFETY: allocated in `alloc` with this layout.
        unsafe { dealloc(self.raw(), Self::layout(self.capacity())) }
    }

    #[inline]
    pub(super) fn raw(self) -> *mut u8 {
        (self.0 & POINTER_MASK) as *mut u8
    }

    #[inline]
    pub(super) fn capacity(self) -> usize {
        (self.0 >> 48) as usize
    }

    /// How many of the slots are homes: the rest takes what the last homes push out.
    #[inline]
    pub(super) fn homes(self) -> usize {
        let capacity = self.capacity();
        capacity - if capacity >= 255 { 16 } else { capacity / 16 + 1 }
    }

    #[inline]
    pub(super) fn home(self, hash16: u64) -> usize {
        (hash16 as usize * self.homes()) >> 16
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        // SAFETY: the header is 8 readable bytes.
        unsafe { *self.raw().cast::<u32>() as usize }
    }

    pub(super) fn set_len(self, len: usize) {
        // SAFETY: the header is 8 writable bytes; the table is borrowed mutably.
        unsafe { *self.raw().cast::<u32>() = len as u32 }
    }

    #[inline]
    pub(super) fn depth(self) -> u32 {
        // SAFETY: the header is 8 readable bytes.
        unsafe { *self.raw().cast::<u32>().add(1) }
    }

    #[inline]
    pub(super) fn slots(self) -> *mut u64 {
        // SAFETY: the slots follow the header in the same allocation.
        unsafe { self.raw().add(HEADER).cast() }
    }

    #[inline]
    pub(super) fn slot(self, index: usize) -> u64 {
        debug_assert!(index < self.capacity());
        // SAFETY: `index` is below the capacity.
        unsafe { *self.slots().add(index) }
    }

    pub(super) fn set_slot(self, index: usize, slot: u64) {
        debug_assert!(index < self.capacity());
        // SAFETY: `index` is below the capacity; the table is borrowed mutably.
        unsafe { *self.slots().add(index) = slot }
    }

    /// The 16 bits of `hash` that order items here.
    #[inline]
    pub(super) fn hash16(self, hash: u64) -> u64 {
        (hash << self.depth()) >> 48
    }

    /// The first place at or after `hash16`'s home that is empty or holds a larger hash.
    pub(super) fn place(self, hash16: u64) -> usize {
        let capacity = self.capacity();
        let mut index = self.home(hash16);
        while index < capacity {
            let slot = self.slot(index);
            if slot == 0 || slot >> 48 > hash16 {
                break;
            }
            index += 1;
        }
        index
    }

    /// Puts `slot` in order and returns its index: none when everything to the right is full.
    pub(super) fn insert(self, slot: u64) -> Option<usize> {
        let capacity = self.capacity();
        let index = self.place(slot >> 48);
        let mut hole = index;
        while hole < capacity && self.slot(hole) != 0 {
            hole += 1;
        }
        if hole >= capacity {
            return None;
        }
        // SAFETY: index <= hole < capacity, both ranges lie in the slots.
        unsafe {
            let at = self.slots().add(index);
            ptr::copy(at, at.add(1), hole - index);
            *at = slot;
        }
        self.set_len(self.len() + 1);
        Some(index)
    }

    /// Takes the slot at `index` out and moves what it had pushed right one place back.
    pub(super) fn remove(self, index: usize) {
        let capacity = self.capacity();
        let mut end = index + 1;
        while end < capacity {
            let slot = self.slot(end);
            if slot == 0 || self.home(slot >> 48) == end {
                break;
            }
            end += 1;
        }
        // SAFETY: index < end <= capacity.
        unsafe {
            let at = self.slots().add(index);
            ptr::copy(at.add(1), at, end - index - 1);
            *self.slots().add(end - 1) = 0;
        }
        self.set_len(self.len() - 1);
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.capacity()).map(move |index| self.slot(index)).filter(|slot| *slot != 0)
    }

    /// A new segment of at least `capacity` slots with `slots`, which are in order; larger still
    /// where they bunch up at the end. `self` is left to be freed by the caller.
    pub(super) fn build(capacity: usize, depth: u32, slots: &[u64]) -> Segment {
        let mut capacity = capacity;
        loop {
            let segment = Segment::alloc(capacity, depth);
            let mut next = 0;
            for (done, slot) in slots.iter().enumerate() {
                let index = next.max(segment.home(slot >> 48));
                if index >= capacity {
                    break;
                }
                segment.set_slot(index, *slot);
                segment.set_len(done + 1);
                next = index + 1;
            }
            if segment.len() == slots.len() {
                return segment;
            }
            segment.free();
            capacity = larger(capacity);
        }
    }
}

/// The capacity of the smallest size that leaves `len` items a load of at most 3/4.
pub(super) fn roomy(len: usize) -> usize {
    let wanted = len * 4 / 3 + 2;
    SIZES
        .iter()
        .map(|size| (size - HEADER) / 8)
        .find(|capacity| *capacity >= wanted)
        .unwrap_or(wanted.max(SIZES[SIZES.len() - 1] / 8))
}

/// The next larger capacity: the next size, or a quarter more past the last one.
pub(super) fn larger(capacity: usize) -> usize {
    SIZES
        .iter()
        .map(|size| (size - HEADER) / 8)
        .find(|other| *other > capacity)
        .unwrap_or((capacity + capacity / 4).min(0xffff))
}
