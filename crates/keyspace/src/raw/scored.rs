//! A member of a large sorted set: its score and its bytes in one allocation behind a thin pointer.
//!
//! ```text
//!  member shorter than 255 bytes       longer
//!  +----------+-----+--------+         +----------+-----+-------------+--------+
//!  | score: 8 | len | member |         | score: 8 | 255 | len: 8 (LE) | member |
//!  +----------+-----+--------+         +----------+-----+-------------+--------+
//! ```
//!
//! The hash table of the set owns it ([`Scored`]); the tree that keeps the order only points to it
//! ([`Handle`]). A member of 16 bytes takes 25 bytes, 32 with the allocator's rounding.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;

use super::table::{self, Item};
use crate::hasher;

/// Where the length byte stands.
const LENGTH: usize = 8;
/// The length byte that says: eight bytes of length follow.
const LONG: u8 = 255;

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
        let layout = Self::layout(member.len());
        // SAFETY: the layout is never empty.
        let raw = unsafe { alloc(layout) };
        let Some(raw) = NonNull::new(raw) else { handle_alloc_error(layout) };
        let start = layout.size() - member.len();
        // SAFETY: the layout has room for the score, the length and the member from `start` on.
        unsafe {
            raw.cast::<f64>().write(score);
            if member.len() < usize::from(LONG) {
                raw.add(LENGTH).write(member.len() as u8);
            } else {
                raw.add(LENGTH).write(LONG);
                let length = (member.len() as u64).to_le_bytes();
                ptr::copy_nonoverlapping(length.as_ptr(), raw.add(LENGTH + 1).as_ptr(), 8);
            }
            ptr::copy_nonoverlapping(member.as_ptr(), raw.add(start).as_ptr(), member.len());
        }
        Scored(raw)
    }

    fn layout(len: usize) -> Layout {
        let header = LENGTH + if len < usize::from(LONG) { 1 } else { 9 };
        Layout::from_size_align(header + len, 8).expect("a member is far below 2^63 bytes")
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

    /// The bytes of its allocation, rounded as the allocator rounds.
    pub fn memory(&self) -> usize {
        Self::layout(self.member().len()).size().next_multiple_of(8)
    }

    #[inline]
    fn handle(&self) -> Handle {
        Handle(self.0)
    }
}

impl Drop for Scored {
    fn drop(&mut self) {
        let layout = Self::layout(self.member().len());
        // SAFETY: allocated in `new` with the layout of this length, which never changes.
        unsafe { dealloc(self.0.as_ptr(), layout) }
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
        // SAFETY: the item is alive by the invariant; the layout is that of `Scored::new`.
        unsafe {
            let short = self.0.add(LENGTH).read();
            if short != LONG {
                return slice::from_raw_parts(self.0.add(LENGTH + 1).as_ptr(), usize::from(short));
            }
            let mut length = [0; 8];
            ptr::copy_nonoverlapping(self.0.add(LENGTH + 1).as_ptr(), length.as_mut_ptr(), 8);
            let length = u64::from_le_bytes(length) as usize;
            slice::from_raw_parts(self.0.add(LENGTH + 9).as_ptr(), length)
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
