//! Small blocks of a Lua state that wait to be used again.
//!
//! **Invariant:** a block in a list was taken with [`layout`] of a length of that list's class, and
//! nobody else knows of it.

use std::alloc::{Layout, dealloc};
use std::ptr;

/// Small blocks that a state has given back and will soon want again: a collection frees thousands
/// of them at once, each of which costs the allocator more than a push and a pop. Blocks of one
/// class are a list, each begins with the address of the next.
#[derive(Debug)]
pub struct Spare {
    lists: [*mut u8; SPARE_CLASSES],
    bytes: usize,
}

/// Blocks are rounded up to whole multiples of this.
const SPARE_STEP: usize = 16;
/// The lists hold blocks of up to this many steps.
const SPARE_CLASSES: usize = 8;
/// So many bytes are kept of a state, at most.
pub const SPARE_BYTES_MAX: usize = 1 << 20;

impl Spare {
    /// Nothing is kept.
    pub const NONE: Spare = Spare { lists: [ptr::null_mut(); SPARE_CLASSES], bytes: 0 };

    /// Bytes that are kept.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The list of blocks of `len` bytes, if there is one, and how long its blocks are.
    #[inline]
    fn class(len: usize) -> Option<(usize, usize)> {
        let class = len.wrapping_sub(1) / SPARE_STEP;
        (class < SPARE_CLASSES).then(|| (class, (class + 1) * SPARE_STEP))
    }

    /// A block for `len` bytes, if one is kept.
    #[inline]
    pub unsafe fn take(&mut self, len: usize) -> *mut u8 {
        let Some((class, bytes)) = Spare::class(len) else { return ptr::null_mut() };
        let block = self.lists[class];
        if !block.is_null() {
            self.lists[class] = block.cast::<*mut u8>().read();
            self.bytes -= bytes;
        }
        block
    }

    /// Keeps a block of `len` bytes; false if it is not to be kept.
    #[inline]
    pub unsafe fn keep(&mut self, block: *mut u8, len: usize) -> bool {
        let Some((class, bytes)) = Spare::class(len) else { return false };
        if self.bytes + bytes > SPARE_BYTES_MAX {
            return false;
        }
        block.cast::<*mut u8>().write(self.lists[class]);
        self.lists[class] = block;
        self.bytes += bytes;
        true
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (class, list) in self.lists.iter().enumerate() {
            let mut block = *list;
            while !block.is_null() {
                // SAFETY: a block in the list of this class was taken with its layout, and begins
                // with the address of the next.
                unsafe {
                    let next = block.cast::<*mut u8>().read();
                    dealloc(block, layout((class + 1) * SPARE_STEP));
                    block = next;
                }
            }
        }
    }
}

/// The layout that a block of `len` bytes is taken with.
#[inline]
pub fn layout(len: usize) -> Layout {
    let len = Spare::class(len).map_or(len, |(_, bytes)| bytes);
    // SAFETY: the alignment is a power of two, and Lua's blocks are far smaller than `isize::MAX`.
    unsafe { Layout::from_size_align_unchecked(len, SPARE_STEP) }
}
