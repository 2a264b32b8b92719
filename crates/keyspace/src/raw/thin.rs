//! Strings behind one thin pointer, for the large forms: [`Member`] of a set, [`Field`] of a hash
//! with its value.
//!
//! ```text
//!  Member:  | length | bytes |
//!  Field:   | length of the name | length of the value | name | value |
//!           | 254 | time | and the same                  one that expires
//!
//!  a length: one byte below 254, else 255 and four bytes, little-endian
//!  a time:   milliseconds since 1970 in eight bytes, little-endian
//! ```
//!
//! A member of 16 bytes takes 17, which jemalloc gives as 24; a `Box<[u8]>` would add 8 in the
//! table.
//!
//! **Invariant:** the block's size follows from its lengths; its name never changes, so neither
//! does its hash.

use std::fmt;
use std::ptr::{self, NonNull};

use super::packed::{allocate, layout, resize, size_class};
use super::table::{Item, Ref};
use std::alloc::dealloc;

/// The first byte of a [`Field`] that expires: no length begins with it.
const TIMED: u8 = 254;
/// Bytes of that mark and the time.
const TIME_BYTES: usize = 9;

/// Longest string a [`Member`] or one side of a [`Field`] can hold.
pub const THIN_BYTES_MAX: usize = u32::MAX as usize - 1024;

/// A byte string behind a thin pointer.
#[repr(transparent)]
pub struct Member(NonNull<u8>);

// SAFETY: it owns its bytes and has no interior mutability.
unsafe impl Send for Member {}
// SAFETY: shared access only reads.
unsafe impl Sync for Member {}

impl Member {
    /// A copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Member {
        let head = length_size(bytes.len());
        let raw = allocate(size_class(head + bytes.len()));
        // SAFETY: the allocation has room for the length and the bytes.
        unsafe {
            write_length(raw.as_ptr(), bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), raw.as_ptr().add(head), bytes.len());
        }
        Member(raw)
    }

    /// The string.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block is live and holds what its length says.
        unsafe {
            let (head, len) = read_length(self.0.as_ptr());
            std::slice::from_raw_parts(self.0.as_ptr().add(head), len)
        }
    }

    /// Whether this is the member at that address.
    pub fn is_at(&self, address: NonNull<u8>) -> bool {
        self.0 == address
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let len = self.bytes().len();
        size_class(length_size(len) + len)
    }
}

impl Clone for Member {
    fn clone(&self) -> Self {
        Member::new(self.bytes())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: allocated with this size; nobody uses it afterwards.
        unsafe { dealloc(self.0.as_ptr(), layout(self.memory())) }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())
    }
}

impl Item for Member {
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Member(raw)
    }

    #[inline]
    fn hash(&self) -> u64 {
        crate::hasher::hash(self.bytes())
    }
}

impl<'a> Ref<'a, Member> {
    /// The string, for as long as the table is borrowed.
    #[inline]
    pub fn into_bytes(self) -> &'a [u8] {
        // SAFETY: the member lives in the table, which stays borrowed for 'a.
        unsafe {
            let (head, len) = read_length(self.as_raw().as_ptr());
            std::slice::from_raw_parts(self.as_raw().as_ptr().add(head), len)
        }
    }
}

/// A name and its value behind a thin pointer.
#[repr(transparent)]
pub struct Field(NonNull<u8>);

// SAFETY: it owns its bytes and has no interior mutability.
unsafe impl Send for Field {}
// SAFETY: shared access only reads.
unsafe impl Sync for Field {}

impl Field {
    /// A copy of both, which does not expire.
    pub fn new(name: &[u8], value: &[u8]) -> Field {
        Field::with_time(name, value, None)
    }

    /// A copy of both, and when it expires, in milliseconds since 1970.
    pub fn with_time(name: &[u8], value: &[u8], expire_at: Option<i64>) -> Field {
        let head = if expire_at.is_some() { TIME_BYTES } else { 0 };
        let raw = allocate(Self::size(head, name.len(), value.len()));
        // SAFETY: the allocation has room for the time, both lengths and both strings.
        unsafe {
            let mut at = raw.as_ptr();
            if let Some(time) = expire_at {
                *at = TIMED;
                at.add(1).cast::<[u8; 8]>().write(time.to_le_bytes());
                at = at.add(TIME_BYTES);
            }
            at = at.add(write_length(at, name.len()));
            at = at.add(write_length(at, value.len()));
            ptr::copy_nonoverlapping(name.as_ptr(), at, name.len());
            ptr::copy_nonoverlapping(value.as_ptr(), at.add(name.len()), value.len());
        }
        Field(raw)
    }

    fn size(head: usize, name_bytes: usize, value_bytes: usize) -> usize {
        let lengths = length_size(name_bytes) + length_size(value_bytes);
        size_class(head + lengths + name_bytes + value_bytes)
    }

    /// Bytes before the lengths.
    #[inline]
    fn head(&self) -> usize {
        // SAFETY: the block is live, and has two lengths at least.
        if unsafe { *self.0.as_ptr() } == TIMED { TIME_BYTES } else { 0 }
    }

    /// When it expires, in milliseconds since 1970.
    #[inline]
    pub fn expire_at(&self) -> Option<i64> {
        // SAFETY: the block is live, and a time follows its mark.
        let time = || unsafe { self.0.as_ptr().add(1).cast::<[u8; 8]>().read() };
        (self.head() != 0).then(|| i64::from_le_bytes(time()))
    }

    /// Sets when it expires, or that it does not.
    pub fn set_expire_at(&mut self, expire_at: Option<i64>) {
        if self.expire_at() != expire_at {
            let (name, value) = self.parts();
            *self = Field::with_time(name, value, expire_at);
        }
    }

    /// The name.
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.parts().0
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.parts().1
    }

    /// Name and value.
    #[inline]
    pub fn parts(&self) -> (&[u8], &[u8]) {
        // SAFETY: the block is live as long as self.
        unsafe { Self::parts_at(self.0) }
    }

    /// # Safety
    /// `raw` is a field's block that lives and does not change during 'a.
    #[inline]
    unsafe fn parts_at<'a>(raw: NonNull<u8>) -> (&'a [u8], &'a [u8]) {
        // SAFETY: the block holds what its lengths say.
        unsafe {
            let mut raw = raw.as_ptr();
            if *raw == TIMED {
                raw = raw.add(TIME_BYTES);
            }
            let (first, name) = read_length(raw);
            let (second, value) = read_length(raw.add(first));
            let at = raw.add(first + second);
            (std::slice::from_raw_parts(at, name), std::slice::from_raw_parts(at.add(name), value))
        }
    }

    /// Puts another value in the place of the old one; the time stays.
    pub fn set_value(&mut self, value: &[u8]) {
        let (name, old) = self.parts();
        let (name_bytes, old_bytes) = (name.len(), old.len());
        if length_size(old_bytes) != length_size(value.len()) {
            *self = Field::with_time(name, value, self.expire_at());
            return;
        }
        let head = self.head();
        let old_size = Self::size(head, name_bytes, old_bytes);
        let new_size = Self::size(head, name_bytes, value.len());
        let start = head + length_size(name_bytes);
        let at = start + length_size(value.len()) + name_bytes;
        // SAFETY: the block is live; after `resize` it has room for the new value, whose length
        // takes as many bytes as the old one's, so that the name stays where it is.
        unsafe {
            if old_size != new_size {
                self.0 = resize(self.0, old_size, new_size);
            }
            write_length(self.0.as_ptr().add(start), value.len());
            ptr::copy_nonoverlapping(value.as_ptr(), self.0.as_ptr().add(at), value.len());
        }
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let (name, value) = self.parts();
        Self::size(self.head(), name.len(), value.len())
    }
}

impl Clone for Field {
    fn clone(&self) -> Self {
        let (name, value) = self.parts();
        Field::with_time(name, value, self.expire_at())
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: allocated with this size; nobody uses it afterwards.
        unsafe { dealloc(self.0.as_ptr(), layout(self.memory())) }
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = self.parts();
        write!(f, "\"{}\": \"{}\"", name.escape_ascii(), value.escape_ascii())
    }
}

impl Item for Field {
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Field(raw)
    }

    #[inline]
    fn hash(&self) -> u64 {
        crate::hasher::hash(self.name())
    }
}

impl<'a> Ref<'a, Field> {
    /// Name and value, for as long as the table is borrowed.
    #[inline]
    pub fn into_parts(self) -> (&'a [u8], &'a [u8]) {
        // SAFETY: the field lives in the table, which stays borrowed for 'a.
        unsafe { Field::parts_at(self.as_raw()) }
    }
}

/// Bytes that a length takes.
#[inline]
pub(super) fn length_size(len: usize) -> usize {
    if len < usize::from(TIMED) { 1 } else { 5 }
}

/// Writes a length and returns the bytes it took.
///
/// # Safety
/// [`length_size`] bytes at `at` are writable.
#[inline]
pub(super) unsafe fn write_length(at: *mut u8, len: usize) -> usize {
    assert!(len <= THIN_BYTES_MAX, "a string of {len} bytes");
    // SAFETY: as promised by the caller.
    unsafe {
        if len < usize::from(TIMED) {
            *at = len as u8;
            return 1;
        }
        *at = 255;
        at.add(1).cast::<[u8; 4]>().write((len as u32).to_le_bytes());
    }
    5
}

/// The bytes a length takes, and the length.
///
/// # Safety
/// A length was written at `at`.
#[inline]
pub(super) unsafe fn read_length(at: *const u8) -> (usize, usize) {
    // SAFETY: as promised by the caller.
    unsafe {
        match *at {
            255 => (5, u32::from_le_bytes(at.add(1).cast::<[u8; 4]>().read()) as usize),
            len => (1, usize::from(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::table::Table;

    #[test]
    fn members_of_every_length_read_back() {
        for len in [0, 1, 16, 23, 253, 254, 255, 256, 70_000] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let member = Member::new(&bytes);
            assert_eq!(member.bytes(), bytes);
            assert_eq!(member.clone().bytes(), bytes);
        }
        assert_eq!(Member::new(&[7; 16]).memory(), 24);
    }

    #[test]
    fn values_change_and_names_stay() {
        let lens = [0, 3, 40, 253, 254, 255, 300, 70_000];
        for name_bytes in [0, 5, 253, 254, 255, 400] {
            let name = vec![b'n'; name_bytes];
            for first in lens {
                for second in lens {
                    let mut field = Field::new(&name, &vec![b'1'; first]);
                    let plain = field.memory();
                    for time in [None, Some(-7), Some(i64::MAX), None] {
                        field.set_expire_at(time);
                        field.set_value(&vec![b'2'; second]);
                        assert_eq!(field.parts(), (&name[..], &vec![b'2'; second][..]));
                        assert_eq!(field.expire_at(), time);
                        assert_eq!(field.clone().parts(), field.parts());
                        assert_eq!(field.clone().expire_at(), time);
                        field.set_value(&vec![b'1'; first]);
                    }
                    assert_eq!(field.memory(), plain);
                }
            }
        }
    }

    #[test]
    fn live_in_a_table() {
        let mut table = Table::new();
        let count = if cfg!(miri) { 100 } else { 5000 };
        for number in 0..count {
            let field = Field::new(format!("field {number}").as_bytes(), b"");
            table.insert(field.hash(), field);
        }
        for number in 0..count {
            let name = format!("field {number}").into_bytes();
            let hash = crate::hasher::hash(&name);
            let mut field = table.find_mut(hash, |field| field.name() == name).expect("inserted");
            field.set_value(&vec![b'v'; number % 300]);
        }
        assert_eq!(table.len(), count);
        for field in table.iter() {
            let number = std::str::from_utf8(&field.name()[6..]).expect("digits");
            let number: usize = number.parse().expect("a number");
            assert_eq!(field.value().len(), number % 300);
        }
    }
}
