//! Blocks of listpack elements: what every small collection is, and what long lists are cut into.
//!
//! ```text
//!  Packed:  word -> | used u8 | count u8 |  elements  | slack |               up to 254 bytes used
//!           word -> | 255 u8 | 0 u8 | count u16 | used u32 |  elements  | slack |          beyond
//!  Node:    start, used, capacity, count and word -> | gap |  elements  | slack |
//! ```
//!
//! The elements are Redis's ([`listpack`]); the headers are ours. A [`Packed`] is as tight as can
//! be: eight bytes to hold, a header of two, no end mark, and no capacity, because the block
//! always has exactly the size that jemalloc would give anyway ([`size_class`]), so that most
//! insertions need no call to the allocator. A `Node` (`node.rs`) is a part of a long list: it has
//! room at both ends, so that a push at either end moves nothing.
//!
//! Places in a block are byte offsets into [`Block::bytes`]. A wrong offset gives nonsense or a
//! panic; it never reads or writes outside of the block.
//!
//! **Invariant:** the elements are canonical, and `used` bytes hold exactly `count` of them; the
//! highest count that a `Packed` can write down means "walk".

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};

use super::listpack::{self, Encoded};
pub use super::listpack::{ELEMENT_BYTES_MAX, Element, canonical_int, decimal_len};

/// The smallest class of jemalloc (quantum 8) that holds `bytes`.
#[inline]
pub fn size_class(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.max(1).next_multiple_of(8);
    }
    bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2))
}

/// Where a block's elements are kept, and how it makes room. Only this crate has storages.
pub trait Storage: Default + private::Sealed {
    /// The elements as they are encoded.
    fn bytes(&self) -> &[u8];
    /// The elements' number, where it is known.
    fn count(&self) -> Option<usize>;
    /// Bytes on the heap.
    fn memory(&self) -> usize;
    /// Takes `remove` bytes out at offset `at` of the elements and opens a hole of `insert`
    /// bytes there; `count` is by how many elements that makes them more.
    ///
    /// # Safety
    /// `at + remove` is at most the elements' bytes, which stay below 4 GiB, and the caller fills
    /// the hole.
    unsafe fn splice(
        &mut self,
        at: usize,
        remove: usize,
        insert: usize,
        count: isize,
    ) -> &mut [MaybeUninit<u8>];
}

pub(super) mod private {
    pub trait Sealed {}
}

/// An owned block of elements; see the module's own text.
#[repr(transparent)]
#[derive(Default)]
pub struct Block<S: Storage>(pub(super) S);

/// The tight block: small hashes, sets, sorted sets and lists.
pub type Packed = Block<Tight>;

/// Bytes that are not a listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Header of the standard listpack: total bytes and count.
const LISTPACK_HEADER: usize = 6;
const LISTPACK_END: u8 = 0xff;

impl<S: Storage> Block<S> {
    /// A block without elements.
    pub fn new() -> Self {
        Block(S::default())
    }

    /// The elements as they are encoded.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Number of elements; beyond 65534 in a [`Packed`] they are counted one by one.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.count().unwrap_or_else(|| listpack::count(self.bytes()))
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }

    /// The element at `offset`.
    #[inline]
    pub fn element(&self, offset: usize) -> Element<'_> {
        listpack::read(self.bytes(), offset)
    }

    /// Where the element after the one at `offset` starts: the end of the bytes after the last.
    #[inline]
    pub fn after(&self, offset: usize) -> usize {
        listpack::after(self.bytes(), offset)
    }

    /// Where the element before `offset` starts; nothing before the first.
    #[inline]
    pub fn before(&self, offset: usize) -> Option<usize> {
        (offset > 0).then(|| listpack::before(self.bytes(), offset))
    }

    /// Where the element with this index starts, walking from the nearer end. The index one past
    /// the last means the end of the bytes.
    pub fn offset(&self, index: usize) -> Option<usize> {
        let bytes = self.bytes();
        let len = self.len();
        if index > len {
            return None;
        }
        let mut offset = 0;
        if index <= len / 2 {
            for _ in 0..index {
                offset = listpack::after(bytes, offset);
            }
        } else {
            offset = bytes.len();
            for _ in index..len {
                offset = listpack::before(bytes, offset);
            }
        }
        Some(offset)
    }

    /// The element with this index.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        self.offset(index).filter(|offset| *offset < self.bytes().len()).map(|at| self.element(at))
    }

    /// Every element, from either end.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: self.bytes(), front: 0, back: self.bytes().len() }
    }

    /// The elements from `offset` on.
    #[inline]
    pub fn iter_from(&self, offset: usize) -> Iter<'_> {
        Iter { bytes: self.bytes(), front: offset, back: self.bytes().len() }
    }

    /// The elements before `offset`.
    #[inline]
    pub fn iter_to(&self, offset: usize) -> Iter<'_> {
        Iter { bytes: self.bytes(), front: 0, back: offset }
    }

    /// Where the first element equal to `needle` starts, looking at the one at offset `from` and
    /// then at every `step`-th.
    #[inline]
    pub fn find(&self, needle: &[u8], from: usize, step: usize) -> Option<usize> {
        listpack::find(self.bytes(), needle, from, step)
    }

    /// Whether every `step`-th element, from the first on, is there once only.
    pub fn is_distinct(&self, step: usize) -> bool {
        listpack::is_distinct(self.bytes(), step)
    }

    /// Puts `value` after the last element.
    #[inline]
    pub fn push_back(&mut self, value: &[u8]) {
        self.insert(self.bytes().len(), value);
    }

    /// Puts `value` before the first element.
    #[inline]
    pub fn push_front(&mut self, value: &[u8]) {
        self.insert(0, value);
    }

    /// Puts `value` before the element at `offset`.
    #[inline]
    pub fn insert(&mut self, offset: usize, value: &[u8]) {
        self.insert_encoded(offset, &[Encoded::new(value)]);
    }

    /// Puts an element as it is before the one at `offset`.
    pub fn insert_element(&mut self, offset: usize, value: Element) {
        self.insert_encoded(offset, &[Encoded::element(value)]);
    }

    /// Puts two elements before the one at `offset`, moving what follows once.
    #[inline]
    pub fn insert_pair(&mut self, offset: usize, first: Element, second: Element) {
        self.insert_encoded(offset, &[Encoded::element(first), Encoded::element(second)]);
    }

    #[inline]
    fn insert_encoded(&mut self, offset: usize, values: &[Encoded]) {
        let size = values.iter().map(Encoded::size).sum();
        let mut hole = self.splice(offset, 0, size, values.len() as isize);
        for value in values {
            let (out, rest) = hole.split_at_mut(value.size());
            value.write(out);
            hole = rest;
        }
    }

    /// Puts `value` in the place of the element at `offset`.
    #[inline]
    pub fn replace(&mut self, offset: usize, value: &[u8]) {
        self.replace_element(offset, Element::new(value));
    }

    /// Puts an element as it is in the place of the one at `offset`.
    #[inline]
    pub fn replace_element(&mut self, offset: usize, value: Element) {
        let value = Encoded::element(value);
        let old = self.after(offset) - offset;
        value.write(self.splice(offset, old, value.size(), 0));
    }

    /// Takes out up to `count` elements, the first of them at `offset`; returns how many.
    pub fn remove(&mut self, offset: usize, count: usize) -> usize {
        let bytes = self.bytes();
        let mut end = offset;
        let mut removed = 0;
        while removed < count && end < bytes.len() {
            end = listpack::after(bytes, end);
            removed += 1;
        }
        self.splice(offset, end - offset, 0, -(removed as isize));
        removed
    }

    /// Takes out the elements between two offsets, of which there are `count`.
    pub fn remove_span(&mut self, start: usize, end: usize, count: usize) {
        self.splice(start, end - start, 0, -(count as isize));
    }

    /// Replaces `remove` bytes at `at` by `insert`, in a block that holds something other than
    /// listpack elements; it has a length of 0.
    pub fn splice_bytes(&mut self, at: usize, remove: usize, insert: &[u8]) {
        self.splice(at, remove, insert.len(), 0).write_copy_of_slice(insert);
    }

    /// Takes out everything from `offset` on and returns it.
    pub fn split_off(&mut self, offset: usize) -> Self {
        let tail = &self.bytes()[offset..];
        let count = listpack::count(tail);
        let mut other = Self::new();
        other.splice(0, 0, tail.len(), count as isize).write_copy_of_slice(tail);
        self.splice(offset, self.bytes().len() - offset, 0, -(count as isize));
        other
    }

    /// Adds the elements of `other` after the last.
    pub fn append<T: Storage>(&mut self, other: &Block<T>) {
        let bytes = other.bytes();
        self.splice(self.bytes().len(), 0, bytes.len(), other.len() as isize)
            .write_copy_of_slice(bytes);
    }

    /// The standard listpack: header with total bytes and count, elements, end mark.
    pub fn to_listpack(&self) -> Vec<u8> {
        let bytes = self.bytes();
        let total = bytes.len() + LISTPACK_HEADER + 1;
        let mut out = Vec::with_capacity(total);
        out.extend_from_slice(&u32::try_from(total).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&u16::try_from(self.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(bytes);
        out.push(LISTPACK_END);
        out
    }

    /// The block of a standard listpack from anywhere: every byte is checked, and elements that
    /// are not canonical are written anew.
    pub fn from_listpack(listpack: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = listpack.split_first_chunk::<LISTPACK_HEADER>().ok_or(Malformed)?;
        let [a, b, c, d, low, high] = *header;
        let (end, bytes) = rest.split_last().ok_or(Malformed)?;
        let total = u32::from_le_bytes([a, b, c, d]) as usize;
        if total != listpack.len() || *end != LISTPACK_END {
            return Err(Malformed);
        }
        let sound = listpack::validate(bytes).ok_or(Malformed)?;
        let stated = u16::from_le_bytes([low, high]);
        if stated != u16::MAX && usize::from(stated) != sound.count {
            return Err(Malformed);
        }
        let mut block = Self::new();
        if sound.canonical {
            block.splice(0, 0, bytes.len(), sound.count as isize).write_copy_of_slice(bytes);
        } else {
            let mut buffer = itoa::Buffer::new();
            for element in (Iter { bytes, front: 0, back: bytes.len() }) {
                block.push_back(element.text(&mut buffer));
            }
        }
        Ok(block)
    }

    /// Replaces `remove` bytes at `at` by a hole of `insert` bytes, which the caller fills.
    #[inline]
    fn splice(
        &mut self,
        at: usize,
        remove: usize,
        insert: usize,
        count: isize,
    ) -> &mut [MaybeUninit<u8>] {
        let used = self.bytes().len();
        assert!(at <= used && remove <= used - at, "a place in the block");
        assert!(used - remove + insert <= u32::MAX as usize - 64, "a block below 4 GiB");
        // SAFETY: the range was just checked; every caller in this file fills the hole.
        unsafe { self.0.splice(at, remove, insert, count) }
    }
}

impl Packed {
    /// Gives up ownership for the raw pointer, which is 8-aligned.
    pub(super) fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0.0
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`Packed::into_raw`] and is owned by nobody else.
    pub(super) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Block(Tight(raw))
    }
}

impl<S: Storage> Clone for Block<S> {
    fn clone(&self) -> Self {
        let mut other = Self::new();
        other.append(self);
        other
    }
}

impl<S: Storage> fmt::Debug for Block<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, S: Storage> FromIterator<&'a [u8]> for Block<S> {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(values: I) -> Self {
        let mut block = Self::new();
        values.into_iter().for_each(|value| block.push_back(value));
        block
    }
}

/// The elements of a block, from either end.
#[derive(Clone, Default)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

impl Iter<'_> {
    /// Where the next element from the front starts.
    pub fn offset(&self) -> usize {
        self.front
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.front >= self.back {
            return None;
        }
        let element = listpack::read(self.bytes, self.front);
        self.front = listpack::after(self.bytes, self.front);
        Some(element)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back = listpack::before(self.bytes, self.back);
        Some(listpack::read(self.bytes, self.back))
    }
}

/// The layout of every block: sizes are multiples of 8, so that pointers leave three bits free.
pub(super) fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a block is below 4 GiB")
}

/// A fresh allocation of `size` bytes.
pub(super) fn allocate(size: usize) -> NonNull<u8> {
    let layout = layout(size);
    // SAFETY: the layout is never empty.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// The block moved into an allocation of another size, with as many of its bytes as fit.
///
/// # Safety
/// `raw` was allocated with `old` bytes.
pub(super) unsafe fn resize(raw: NonNull<u8>, old: usize, new: usize) -> NonNull<u8> {
    // SAFETY: as promised by the caller; the new size is never zero.
    NonNull::new(unsafe { realloc(raw.as_ptr(), layout(old), new) })
        .unwrap_or_else(|| handle_alloc_error(layout(new)))
}

/// The storage of [`Packed`]: no room but what the size class leaves.
#[repr(transparent)]
pub struct Tight(NonNull<u8>);

/// The header of a short block, and the longest one.
const SHORT: usize = 2;
const SHORT_USED_MAX: usize = 254;
/// The first byte of a long block, and the size of its header.
const LONG_MARK: u8 = 255;
const LONG: usize = 8;

/// Bytes of the header of a block with `used` bytes of elements.
#[inline]
fn header_of(used: usize) -> usize {
    if used <= SHORT_USED_MAX { SHORT } else { LONG }
}

// SAFETY: it owns its memory and has no interior mutability.
unsafe impl Send for Tight {}
// SAFETY: shared access only reads.
unsafe impl Sync for Tight {}

impl Tight {
    #[inline]
    fn used(&self) -> usize {
        // SAFETY: the block is live and 8-aligned, and starts with one of the two headers.
        unsafe {
            match *self.0.as_ptr() {
                LONG_MARK => *self.0.cast::<u32>().as_ptr().add(1) as usize,
                used => usize::from(used),
            }
        }
    }

    /// # Safety
    /// The block has room for the header of that many bytes.
    #[inline]
    unsafe fn write_header(&mut self, used: usize, count: Option<usize>) {
        let raw = self.0.as_ptr();
        // SAFETY: as promised by the caller; the block is 8-aligned.
        unsafe {
            if used <= SHORT_USED_MAX {
                *raw = used as u8;
                *raw.add(1) = count.and_then(|count| u8::try_from(count).ok()).unwrap_or(u8::MAX);
            } else {
                let count = count.and_then(|count| u16::try_from(count).ok()).unwrap_or(u16::MAX);
                *raw = LONG_MARK;
                *raw.cast::<u16>().add(1) = count;
                *raw.cast::<u32>().add(1) = used as u32;
            }
        }
    }
}

impl Default for Tight {
    fn default() -> Self {
        let mut tight = Tight(allocate(size_class(SHORT)));
        // SAFETY: the header lies inside the fresh allocation.
        unsafe { tight.write_header(0, Some(0)) };
        tight
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        // SAFETY: the block is live and of this size; nobody uses it afterwards.
        unsafe { dealloc(self.0.as_ptr(), layout(self.memory())) }
    }
}

impl private::Sealed for Tight {}

impl Storage for Tight {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let used = self.used();
        // SAFETY: the block is live and holds `used` bytes after its header.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(header_of(used)), used) }
    }

    #[inline]
    fn count(&self) -> Option<usize> {
        // SAFETY: the block is live and starts with one of the two headers; offset 2 is 2-aligned.
        unsafe {
            if *self.0.as_ptr() == LONG_MARK {
                let count = *self.0.cast::<u16>().as_ptr().add(1);
                (count != u16::MAX).then_some(usize::from(count))
            } else {
                let count = *self.0.as_ptr().add(1);
                (count != u8::MAX).then_some(usize::from(count))
            }
        }
    }

    #[inline]
    fn memory(&self) -> usize {
        let used = self.used();
        size_class(header_of(used) + used)
    }

    #[inline]
    unsafe fn splice(
        &mut self,
        at: usize,
        remove: usize,
        insert: usize,
        count: isize,
    ) -> &mut [MaybeUninit<u8>] {
        let count = self.count().map(|len| len.wrapping_add_signed(count));
        let used = self.used();
        let new_used = used - remove + insert;
        let (head, new_head) = (header_of(used), header_of(new_used));
        let (old, new) = (size_class(head + used), size_class(new_head + new_used));
        // SAFETY: the moved bytes lie inside the larger of the two sizes, which the block has
        // while they move; the hole lies inside the new size. What stands before the hole moves
        // only with a header that changes: first if to the left, last if to the right, so that
        // neither part is written over before it has moved.
        unsafe {
            if new > old {
                self.0 = resize(self.0, old, new);
            }
            let raw = self.0.as_ptr();
            if new_head < head {
                ptr::copy(raw.add(head), raw.add(new_head), at);
            }
            let (from, to) = (head + at + remove, new_head + at + insert);
            ptr::copy(raw.add(from), raw.add(to), used - at - remove);
            if new_head > head {
                ptr::copy(raw.add(head), raw.add(new_head), at);
            }
            if new < old {
                self.0 = resize(self.0, old, new);
            }
            self.write_header(new_used, count);
            let hole = self.0.as_ptr().add(new_head + at);
            std::slice::from_raw_parts_mut(hole.cast(), insert)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        let classes = [
            8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448,
            512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144,
            7168, 8192, 10240,
        ];
        let mut last = 0;
        for class in classes {
            assert!((last + 1..=class).all(|bytes| size_class(bytes) == class), "{class}");
            last = class;
        }
    }

    #[test]
    fn small_blocks_have_a_header_of_two_bytes() {
        let words: [&[u8]; 6] = [b"name", b"anna", b"city", b"rome", b"age", b"41"];
        let packed: Packed = words.into_iter().collect();
        let elements: usize = packed.bytes().len();
        assert_eq!(elements, 4 * 6 + 5 + 2);
        assert_eq!(packed.memory(), size_class(elements + 2));
    }

    #[test]
    fn headers_change_where_they_must() {
        // 'x' takes three bytes, so that 84 of them and a "1" fill a short block.
        let mut model = vec![b"x".to_vec(); 84];
        let mut packed: Packed = model.iter().map(Vec::as_slice).collect();
        for round in 0..3 {
            for at in [0, 40, model.len()] {
                packed.insert(packed.offset(at).expect("inside"), b"1");
                model.insert(at, b"1".to_vec());
                check(&packed, &model);
                let head = if packed.bytes().len() <= 254 { 2 } else { 8 };
                assert_eq!(packed.memory(), size_class(packed.bytes().len() + head));
            }
            for at in [model.len() - 1, 40, 0] {
                packed.remove(packed.offset(at).expect("inside"), 1);
                model.remove(at);
                check(&packed, &model);
            }
            packed.replace(
                packed.offset(50).expect("inside"),
                if round == 0 { b"yyy" } else { b"x" },
            );
            model[50] = if round == 0 { b"yyy".to_vec() } else { b"x".to_vec() };
        }
    }

    #[test]
    fn more_than_65534_elements_are_walked() {
        let count = if cfg!(miri) { return } else { 70_000 };
        let mut packed: Packed = (0..count).map(|_| b"x".as_slice()).collect();
        assert_eq!(packed.len(), count);
        let other = Packed::from_listpack(&packed.to_listpack());
        assert_eq!(other.map(|other| other.len()), Ok(count));
        assert_eq!(packed.remove(0, 60_000), 60_000);
        assert_eq!(packed.len(), count - 60_000);
        assert_eq!(packed.remove(0, count), count - 60_000);
        packed.push_back(b"1");
        assert_eq!((packed.len(), packed.bytes()), (1, &[1, 1][..]));
    }

    #[test]
    fn listpacks_are_those_of_redis() {
        let packed: Packed = [b"a".as_slice(), b"1"].into_iter().collect();
        let listpack = packed.to_listpack();
        assert_eq!(listpack, [12, 0, 0, 0, 2, 0, 0x81, b'a', 2, 1, 1, 0xff]);
        let again = Packed::from_listpack(&listpack).expect("sound");
        assert_eq!(again.bytes(), packed.bytes());
        for cut in 0..listpack.len() {
            assert!(Packed::from_listpack(&listpack[..cut]).is_err());
        }
    }

    #[test]
    fn foreign_encodings_are_made_canonical() {
        // The string "12", and 5 in sixteen bits.
        let listpack = [16, 0, 0, 0, 2, 0, 0x82, b'1', b'2', 3, 0xf1, 5, 0, 3, 0, 0xff];
        assert!(Packed::from_listpack(&listpack).is_err(), "a stray element");
        let listpack = [15, 0, 0, 0, 2, 0, 0x82, b'1', b'2', 3, 0xf1, 5, 0, 3, 0xff];
        let packed = Packed::from_listpack(&listpack).expect("sound");
        assert_eq!(packed.bytes(), [12, 1, 5, 1]);
    }

    #[derive(Debug, Clone)]
    pub(crate) enum Step {
        Insert(usize, Vec<u8>),
        Pair(usize, Vec<u8>, Vec<u8>),
        Replace(usize, Vec<u8>),
        Remove(usize, usize),
        Split(usize),
    }

    pub(crate) fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            (-5000i64..5000).prop_map(|number| number.to_string().into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..80),
            (0usize..5000).prop_map(|len| vec![b'v'; len]),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = 0usize..30;
        prop_oneof![
            4 => (place.clone(), value()).prop_map(|(at, v)| Step::Insert(at, v)),
            2 => (place.clone(), value(), value()).prop_map(|(at, a, b)| Step::Pair(at, a, b)),
            2 => (place.clone(), value()).prop_map(|(at, v)| Step::Replace(at, v)),
            2 => (place.clone(), 0usize..4).prop_map(|(at, count)| Step::Remove(at, count)),
            1 => place.prop_map(Step::Split),
        ]
    }

    pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
        proptest::collection::vec(step(), 0..60)
    }

    fn apply<S: Storage>(block: &mut Block<S>, model: &mut Vec<Vec<u8>>, step: Step) {
        let place = |at: usize| at % (model.len() + 1);
        match step {
            Step::Insert(at, value) => {
                let at = place(at);
                block.insert(block.offset(at).expect("inside"), &value);
                model.insert(at, value);
            }
            Step::Pair(at, first, second) => {
                let at = place(at);
                let offset = block.offset(at).expect("inside");
                block.insert_pair(offset, Element::new(&first), Element::new(&second));
                model.insert(at, second);
                model.insert(at, first);
            }
            Step::Replace(at, value) if !model.is_empty() => {
                let at = at % model.len();
                block.replace(block.offset(at).expect("inside"), &value);
                model[at] = value;
            }
            Step::Replace(..) => (),
            Step::Remove(at, count) => {
                let at = place(at);
                let removed = block.remove(block.offset(at).expect("inside"), count);
                assert_eq!(model.drain(at..model.len().min(at + count)).count(), removed);
            }
            Step::Split(at) => {
                let at = place(at);
                let tail = block.split_off(block.offset(at).expect("inside"));
                let rest = model.split_off(at);
                assert_eq!(tail.iter().map(Element::to_vec).collect::<Vec<_>>(), rest);
                let mut whole = tail.clone();
                whole.append(block);
                *block = whole;
                model.splice(0..0, rest);
            }
        }
    }

    pub(crate) fn check<S: Storage>(block: &Block<S>, model: &[Vec<u8>]) {
        assert_eq!(block.len(), model.len());
        assert_eq!(block.iter().map(Element::to_vec).collect::<Vec<_>>(), model);
        let back: Vec<_> = block.iter().rev().map(Element::to_vec).collect();
        assert!(back.iter().rev().eq(model));
        for (index, value) in model.iter().enumerate() {
            assert!(block.get(index).is_some_and(|element| element.is(value)));
            let first = model.iter().position(|other| other == value).expect("itself");
            assert_eq!(block.find(value, 0, 1), block.offset(first));
        }
        assert_eq!(block.get(model.len()), None);
        let other = Block::<S>::from_listpack(&block.to_listpack()).expect("our own");
        assert_eq!(other.bytes(), block.bytes());
    }

    pub(crate) fn run<S: Storage>(steps: Vec<Step>) {
        let mut block = Block::<S>::new();
        let mut model = Vec::new();
        for step in steps {
            apply(&mut block, &mut model, step);
        }
        check(&block, &model);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn packed_holds_what_a_vec_holds(steps in steps()) {
            run::<Tight>(steps);
        }

        #[test]
        fn damaged_listpacks_never_panic(
            values in proptest::collection::vec(value(), 0..6),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
        ) {
            let packed: Packed = values.iter().map(Vec::as_slice).collect();
            let mut listpack = packed.to_listpack();
            for (at, byte) in damage {
                let at = at.index(listpack.len());
                listpack[at] = byte;
            }
            if let Ok(block) = Packed::from_listpack(&listpack) {
                let model: Vec<Vec<u8>> = block.iter().map(Element::to_vec).collect();
                check(&block, &model);
            }
        }
    }
}
