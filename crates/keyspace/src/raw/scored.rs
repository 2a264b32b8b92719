//! A member of a large sorted set: its score and its bytes in one allocation behind a thin pointer.
//!
//! ```text
//!  | score: 8 | length | member |       the length as in `thin.rs`: one byte below 255, else five
//! ```
//!
//! The hash table of the set owns it ([`Scored`]); the tree that keeps the order only points to it
//! (`Handle`). A member of 16 bytes takes 25 bytes, which jemalloc gives as 32.

use std::alloc::dealloc;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;

use super::packed::{allocate, layout, size_class};
use super::table::{self, Item};
use super::thin::{length_size, read_length, write_length};
use crate::hasher;

/// Where the length stands.
const LENGTH: usize = 8;

/// What the handles of unused places point to: score 0, no bytes.
static NOTHING: [u64; 2] = [0; 2];

/// An owned member with its score.
pub struct Scored(NonNull<u8>);

// SAFETY: a Scored owns its bytes as a Box<[u8]> would.
unsafe impl Send for Scored {}
// SAFETY: shared access only reads.
unsafe impl Sync for Scored {}

impl Scored {
    /// A new member with its score.
    pub fn new(score: f64, member: &[u8]) -> Scored {
        let raw = allocate(Self::size(member.len()));
        // SAFETY: the allocation is 8-aligned and has room for score, length and member.
        unsafe {
            raw.cast::<f64>().write(score);
            let head = write_length(raw.as_ptr().add(LENGTH), member.len());
            let start = raw.as_ptr().add(LENGTH + head);
            ptr::copy_nonoverlapping(member.as_ptr(), start, member.len());
        }
        Scored(raw)
    }

    fn size(len: usize) -> usize {
        size_class(LENGTH + length_size(len) + len)
    }

    /// The score.
    #[inline]
    pub fn score(&self) -> f64 {
        self.handle().score()
    }

    /// The member's bytes.
    #[inline]
    pub fn member(&self) -> &[u8] {
        self.handle().member()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        Self::size(self.member().len())
    }

    #[inline]
    fn handle(&self) -> Handle {
        Handle(self.0)
    }
}

impl Drop for Scored {
    fn drop(&mut self) {
        let size = self.memory();
        // SAFETY: allocated in `new` with this size: the length never changes.
        unsafe { dealloc(self.0.as_ptr(), layout(size)) }
    }
}

impl Item for Scored {
    fn into_raw(self) -> NonNull<u8> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Scored(raw)
    }

    fn hash(&self) -> u64 {
        hasher::hash(self.member())
    }
}

/// A pointer to a [`Scored`] that somebody else owns.
///
/// **Invariant:** whoever makes one ([`Handle::new`], unsafe) answers for the item outliving the
/// last use of the handle and its copies; with that, reading through it is safe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(NonNull<u8>);

// SAFETY: see the invariant: whoever moves the handles moves the owner with them.
unsafe impl Send for Handle {}
// SAFETY: shared access only reads.
unsafe impl Sync for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.score(), self.member().escape_ascii())
    }
}

impl Handle {
    /// A handle to the item at `raw`.
    ///
    /// # Safety
    /// `raw` came from [`Item::into_raw`] of a [`Scored`] (or from a table of them), and that item
    /// stays alive and in its place as long as the handle or a copy of it is used.
    #[inline]
    pub(super) unsafe fn new(raw: NonNull<u8>) -> Handle {
        Handle(raw)
    }

    /// A handle to nothing: score 0 and no bytes. Fills unused places.
    pub const fn nothing() -> Handle {
        Handle(NonNull::from_ref(&NOTHING).cast())
    }

    /// The item's score.
    #[inline]
    pub fn score(self) -> f64 {
        // SAFETY: the item is alive by the invariant and starts with its score, 8-aligned.
        unsafe { self.0.cast::<f64>().read() }
    }

    /// The member's bytes. The lifetime is the caller's to bound: it ends with the owner's borrow.
    #[inline]
    pub fn member<'a>(self) -> &'a [u8] {
        // SAFETY: the item is alive by the invariant; its parts lie as `Scored::new` put them.
        unsafe {
            let (head, len) = read_length(self.0.as_ptr().add(LENGTH));
            slice::from_raw_parts(self.0.as_ptr().add(LENGTH + head), len)
        }
    }

    /// Changes the item's score.
    ///
    /// # Safety
    /// Nobody else reads or writes the item meanwhile, and it is not [`Handle::nothing`].
    #[inline]
    pub unsafe fn set_score(self, score: f64) {
        // SAFETY: the item is alive by the invariant, and the caller has it alone.
        unsafe { self.0.cast::<f64>().write(score) }
    }

    /// Asks the processor for the item's first cache line.
    #[inline]
    pub fn prefetch(self) {
        table::prefetch(self.0.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_score_and_bytes_of_any_length() {
        for len in [0, 1, 16, 254, 255, 256, 70_000] {
            let member: Vec<u8> = (0..len).map(|index| (index * 7) as u8).collect();
            let item = Scored::new(-2.5, &member);
            assert_eq!(item.score(), -2.5);
            assert_eq!(item.member(), member);
            // SAFETY: the item outlives the handle.
            let handle = unsafe { Handle::new(item.0) };
            // SAFETY: nobody else has the item.
            unsafe { handle.set_score(7.0) };
            assert_eq!(item.score(), 7.0);
            assert_eq!(handle.member(), member);
        }
        assert_eq!(Scored::new(0.0, &[0; 16]).memory(), 32);
        assert_eq!(Handle::nothing().member(), b"");
        assert_eq!(Handle::nothing().score(), 0.0);
    }
}
