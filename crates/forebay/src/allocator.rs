//! The allocator: jemalloc with size classes 8 bytes apart, and its settings.
//!
//! Invariant: every block is aligned as its layout asks. jemalloc is built here with
//! `LG_QUANTUM=3` (`.cargo/config.toml`), which makes classes of 24, 40 and 56 bytes that are
//! aligned to 8 only, while its Rust binding takes every class to be aligned to 16. So a layout
//! aligned to more than 8 is rounded up to a whole number of its alignments, whose classes are
//! aligned (jemalloc's `sz.h`: a class is as aligned as its size divides).
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_char;

use tikv_jemallocator::Jemalloc;

/// Freed pages go back to the system within a second, by a background thread, so that the
/// resident set follows the data; few arenas, since there are few threads.
const TEXT: &std::ffi::CStr =
    c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,metadata_thp:disabled";

/// The name that jemalloc looks for; it is read before `main`.
// SAFETY: a pointer to a constant C string is what `malloc_conf` must be; nothing writes it.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: Option<&'static c_char> = Some(first(TEXT));

const fn first(text: &'static std::ffi::CStr) -> &'static c_char {
    // SAFETY: a C string has at least its final zero.
    unsafe { &*text.as_ptr() }
}

/// jemalloc, with every layout rounded so that it comes out aligned.
pub struct Allocator;

/// The alignment that every class of jemalloc has, as it is built here.
const QUANTUM: usize = 8;

#[inline]
fn rounded(layout: Layout) -> Layout {
    if layout.align() > QUANTUM { layout.pad_to_align() } else { layout }
}

// SAFETY: jemalloc's own, called with layouts at least as large as asked for; the same layout
// rounds to the same layout, so a block is given back with the size that it was taken with.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise of a size above zero holds for the rounded one.
        unsafe { Jemalloc.alloc(rounded(layout)) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { Jemalloc.alloc_zeroed(rounded(layout)) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` was taken with the rounded layout.
        unsafe { Jemalloc.dealloc(block, rounded(layout)) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` rounded up to the alignment is no more than
        // `isize::MAX`, which is what a layout asks.
        let wanted = rounded(unsafe { Layout::from_size_align_unchecked(size, layout.align()) });
        // SAFETY: `block` was taken with the rounded layout; the new size is above zero.
        unsafe { Jemalloc.realloc(block, rounded(layout), wanted.size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of every small size at every alignment lie as asked, also after they have grown.
    #[test]
    fn blocks_are_aligned_as_asked() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in 1..=300 {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                let mut blocks = Vec::new();
                for _ in 0..8 {
                    // SAFETY: the size is above zero.
                    let block = unsafe { Allocator.alloc(layout) };
                    assert_eq!(block as usize % align, 0, "{size} bytes aligned to {align}");
                    blocks.push(block);
                }
                let larger = Layout::from_size_align(size + 24, align).expect("a layout");
                for block in blocks {
                    // SAFETY: taken above with `layout`; given back with what it became.
                    unsafe {
                        let moved = Allocator.realloc(block, layout, larger.size());
                        assert_eq!(moved as usize % align, 0, "grown from {size} to {align}");
                        Allocator.dealloc(moved, larger);
                    }
                }
            }
        }
    }
}
