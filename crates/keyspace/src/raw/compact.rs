//! One word for a collection: a [`Packed`] block while it is small, a box of something larger
//! after.
//!
//! ```text
//!   ...............................000   address of a packed block
//!   ...............................001   address of a box, plus one
//! ```
//!
//! **Invariant:** both kinds of address are 8-aligned, so that the lowest bit is free to tell them
//! apart; checked at compile time for the box.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::packed::Packed;

const BOXED: usize = 1;

/// A packed block or a `Box<T>` in eight bytes.
#[repr(transparent)]
pub struct Compact<T> {
    word: NonNull<u8>,
    large: PhantomData<Box<T>>,
}

/// What a [`Compact`] holds.
pub enum View<'a, T> {
    /// The packed block.
    Small(&'a Packed),
    /// The boxed structure.
    Large(&'a T),
}

/// What a [`Compact`] holds, to be changed.
pub enum ViewMut<'a, T> {
    /// The packed block; it may move to another address meanwhile.
    Small(&'a mut Packed),
    /// The boxed structure.
    Large(&'a mut T),
}

// SAFETY: a Compact owns either a Packed, which is Send, or a Box<T>.
unsafe impl<T: Send> Send for Compact<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Sync> Sync for Compact<T> {}

impl<T> Compact<T> {
    const ALIGNED: () = assert!(align_of::<T>() >= 8);

    /// An empty packed block.
    pub fn new() -> Self {
        Self::small(Packed::new())
    }

    /// A packed block.
    pub fn small(packed: Packed) -> Self {
        Compact { word: packed.into_raw(), large: PhantomData }
    }

    /// A boxed structure.
    pub fn large(value: Box<T>) -> Self {
        const { Self::ALIGNED };
        let raw = NonNull::from(Box::leak(value)).cast::<u8>();
        Compact { word: raw.map_addr(|address| address | BOXED), large: PhantomData }
    }

    /// Whether this is a packed block.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.word.addr().get() & BOXED == 0
    }

    #[inline]
    fn boxed(&self) -> NonNull<T> {
        // SAFETY: the word is an address plus one: taking that off does not give null.
        unsafe { self.word.byte_sub(BOXED).cast() }
    }

    /// What is held.
    #[inline]
    pub fn view(&self) -> View<'_, T> {
        if self.is_small() {
            // SAFETY: a Packed is exactly the word, by its `repr(transparent)`.
            View::Small(unsafe { &*std::ptr::from_ref(&self.word).cast::<Packed>() })
        } else {
            // SAFETY: the box is live as long as self.
            View::Large(unsafe { self.boxed().as_ref() })
        }
    }

    /// What is held, to be changed.
    #[inline]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        if self.is_small() {
            // SAFETY: as in `view`; a block's address is 8-aligned whatever happens to it.
            let packed = unsafe { &mut *std::ptr::from_mut(&mut self.word).cast::<Packed>() };
            ViewMut::Small(packed)
        } else {
            // SAFETY: the box is live and borrowed as self is.
            ViewMut::Large(unsafe { self.boxed().as_mut() })
        }
    }

    /// Replaces what is held by a box of `value`.
    pub fn set_large(&mut self, value: T) {
        *self = Self::large(Box::new(value));
    }

    /// Replaces what is held by `packed`.
    pub fn set_small(&mut self, packed: Packed) {
        *self = Self::small(packed);
    }
}

impl<T> Default for Compact<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Clone for Compact<T> {
    fn clone(&self) -> Self {
        match self.view() {
            View::Small(packed) => Self::small(packed.clone()),
            View::Large(value) => Self::large(Box::new(value.clone())),
        }
    }
}

impl<T> Drop for Compact<T> {
    fn drop(&mut self) {
        if self.is_small() {
            // SAFETY: the word came from a Packed and is not used again.
            drop(unsafe { Packed::from_raw(self.word) });
        } else {
            // SAFETY: the word came from this box and is not used again.
            drop(unsafe { Box::from_raw(self.boxed().as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Compact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.view() {
            View::Small(packed) => packed.fmt(f),
            View::Large(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_either_and_drops_it() {
        let mut compact = Compact::<Vec<String>>::new();
        assert_eq!(size_of_val(&compact), 8);
        assert!(compact.is_small());
        if let ViewMut::Small(packed) = compact.view_mut() {
            (0..100).for_each(|_| packed.push_back(b"element"));
        }
        let copy = compact.clone();
        assert!(matches!(copy.view(), View::Small(packed) if packed.len() == 100));
        compact.set_large(vec!["one".to_owned()]);
        if let ViewMut::Large(words) = compact.view_mut() {
            words.push("two".to_owned());
        }
        let copy = compact.clone();
        assert!(matches!(copy.view(), View::Large(words) if words.len() == 2));
        compact.set_small(Packed::new());
        assert!(matches!(compact.view(), View::Small(packed) if packed.is_empty()));
    }
}
