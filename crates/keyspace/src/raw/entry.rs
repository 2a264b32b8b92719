//! An entry of the keyspace: header, time to live, value and key in one allocation.
//!
//! ```text
//!  8 bytes                                  8, if expires   8                 key bytes
//! +------------------------------------+ - - - - - - - -+-----------------+------------+
//! | access:24 kind:4 flags:4 length:32 |  expire at, ms  | number/pointer | key        |
//! +------------------------------------+ - - - - - - - -+-----------------+------------+
//!                         kind EMBEDDED:  expire at, ms  | length:32 | key | value bytes |
//! ```
//!
//! A string of up to [`EMBEDDED_MAX`] bytes lies in the entry itself (16-byte key and 32-byte
//! value: 60 bytes), a longer one in a shared block that replies can point into, any other type is
//! one thin word. `access` is the 24-bit clock or counter of the eviction policy.
//!
//! **Invariant:** the allocation's size follows from the header and the two lengths, so that it is
//! freed with the layout it was made with.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::mem::transmute;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::table::{Item, Ref, RefMut};
use crate::types::foreign::Foreign;
use crate::types::hash::Hash;
use crate::types::list::List;
use crate::types::set::Set;
use crate::types::stream::Stream;
use crate::types::zset::Zset;
use crate::value::{Kind, Value, ValueMut, ValueRef};

/// The longest string that lies in the entry, in bytes.
pub const EMBEDDED_MAX: usize = 4096;

const EXPIRES: u64 = 1 << 28;
/// Set on strings that were changed in place: Redis calls their encoding `raw`.
const CHANGED: u64 = 1 << 29;
/// Set while an image is taken on what it needs no more, though its walker has yet to come by.
const SETTLED: u64 = 1 << 30;

// What the value word is.
const NUMBER: u64 = 0;
const EMBEDDED: u64 = 1;
const SHARED: u64 = 2;
const LIST: u64 = 3;
const SET: u64 = 4;
const HASH: u64 = 5;
const ZSET: u64 = 6;
const STREAM: u64 = 7;
const FOREIGN: u64 = 8;

/// One key with its value and time to live.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry owns what it points to; all of it is Send.
unsafe impl Send for Entry {}

impl Item for Entry {
    fn into_raw(self) -> NonNull<u8> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Entry(raw)
    }

    fn hash(&self) -> u64 {
        crate::keyspace::table_hash(crate::hasher::hash(self.key()))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.drop_value();
        // SAFETY: allocated with the layout its header tells.
        unsafe { dealloc(self.0.as_ptr(), layout(self.size())) }
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("an entry's size fits isize")
}

fn raw_alloc(size: usize) -> NonNull<u8> {
    let layout = layout(size);
    // SAFETY: never empty: there is always a header.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// What is written into the value's place.
enum Word<'a> {
    Embedded(&'a [u8]),
    Word(*mut u8),
}

/// What a value's kind is, and its word: a number as it is, else the pointer that the value is.
/// Kept as a pointer, so that it stays one for the compiler as well.
fn word_of(value: Value) -> (u64, *mut u8) {
    match value {
        Value::Number(number) => (NUMBER, ptr::without_provenance_mut(number as usize)),
        // SAFETY: an Arc of a sized type is one non-null pointer.
        Value::Bytes(bytes) => (SHARED, unsafe { transmute::<Arc<Vec<u8>>, *mut u8>(bytes) }),
        // SAFETY: the five types are transparent over one non-null pointer.
        Value::List(list) => (LIST, unsafe { transmute::<List, *mut u8>(list) }),
        // SAFETY: as above.
        Value::Set(set) => (SET, unsafe { transmute::<Set, *mut u8>(set) }),
        // SAFETY: as above.
        Value::Hash(hash) => (HASH, unsafe { transmute::<Hash, *mut u8>(hash) }),
        // SAFETY: as above.
        Value::Zset(zset) => (ZSET, unsafe { transmute::<Zset, *mut u8>(zset) }),
        // SAFETY: as above.
        Value::Stream(stream) => (STREAM, unsafe { transmute::<Stream, *mut u8>(stream) }),
        // SAFETY: transparent over an Arc of a sized type.
        Value::Foreign(value) => (FOREIGN, unsafe { transmute::<Foreign, *mut u8>(value) }),
    }
}

/// A value as the writer takes it: bytes that will be embedded, or a whole value.
pub enum NewValue<'a> {
    /// A string's bytes, copied.
    Bytes(&'a [u8]),
    /// Any value, moved.
    Value(Value),
}

impl NewValue<'_> {
    fn place(self) -> (u64, Option<Vec<u8>>, *mut u8) {
        match self {
            NewValue::Bytes(bytes) if bytes.len() > EMBEDDED_MAX => {
                let (kind, word) = word_of(Value::Bytes(Arc::new(bytes.to_vec())));
                (kind, None, word)
            }
            NewValue::Bytes(_) => (EMBEDDED, None, ptr::null_mut()),
            NewValue::Value(Value::Bytes(bytes)) if bytes.len() <= EMBEDDED_MAX => {
                let bytes = Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec());
                (EMBEDDED, Some(bytes), ptr::null_mut())
            }
            NewValue::Value(value) => {
                let (kind, word) = word_of(value);
                (kind, None, word)
            }
        }
    }
}

impl Entry {
    /// A new entry; `expire_at` in milliseconds since 1970, `access` as the eviction policy has it.
    pub fn new(key: &[u8], value: NewValue<'_>, expire_at: Option<i64>, access: u32) -> Entry {
        let given = if let NewValue::Bytes(bytes) = value { bytes } else { &[] };
        let (kind, owned, word) = value.place();
        let bytes = owned.as_deref().unwrap_or(given);
        let word = if kind == EMBEDDED { Word::Embedded(bytes) } else { Word::Word(word) };
        let flags = if expire_at.is_some() { EXPIRES } else { 0 };
        let header = (key.len() as u64) << 32 | u64::from(access & 0xff_ffff) | kind << 24 | flags;
        let mut entry = Entry(raw_alloc(size_of(header, bytes.len())));
        entry.set_header(header);
        if let Some(at) = expire_at {
            entry.write_u64(8, at as u64);
        }
        let at = entry.value_at();
        let key_at = match word {
            Word::Embedded(bytes) => {
                entry.write_u32(at, bytes.len() as u32);
                entry.write_bytes(at + 4 + key.len(), bytes);
                at + 4
            }
            Word::Word(word) => {
                entry.write_pointer(at, word);
                at + 8
            }
        };
        entry.write_bytes(key_at, key);
        entry
    }

    #[inline]
    fn header(&self) -> u64 {
        // SAFETY: every entry has at least 8 bytes, 8-aligned.
        unsafe { *self.0.as_ptr().cast() }
    }

    fn set_header(&mut self, header: u64) {
        self.write_u64(0, header);
    }

    fn write_u64(&mut self, at: usize, word: u64) {
        // SAFETY: callers write inside `size()`, at multiples of 8.
        unsafe { *self.0.as_ptr().add(at).cast() = word }
    }

    fn write_pointer(&mut self, at: usize, word: *mut u8) {
        // SAFETY: callers write inside `size()`, at multiples of 8.
        unsafe { *self.0.as_ptr().add(at).cast() = word }
    }

    fn write_u32(&mut self, at: usize, word: u32) {
        // SAFETY: callers write inside `size()`, at multiples of 8.
        unsafe { *self.0.as_ptr().add(at).cast() = word }
    }

    fn write_bytes(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: callers write inside `size()`; `bytes` lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr().add(at), bytes.len()) }
    }

    #[inline]
    fn kind_bits(&self) -> u64 {
        self.header() >> 24 & 15
    }

    #[inline]
    fn value_at(&self) -> usize {
        if self.header() & EXPIRES != 0 { 16 } else { 8 }
    }

    fn word(&self) -> u64 {
        // SAFETY: eight bytes at the value's place, aligned, for every kind but EMBEDDED.
        unsafe { *self.0.as_ptr().add(self.value_at()).cast() }
    }

    fn word_ptr<T>(&self) -> *mut T {
        // SAFETY: inside the allocation.
        unsafe { self.0.as_ptr().add(self.value_at()).cast() }
    }

    #[inline]
    fn embedded_len(&self) -> usize {
        // SAFETY: called for EMBEDDED entries only: four bytes of length lie there, aligned.
        unsafe { *self.0.as_ptr().add(self.value_at()).cast::<u32>() as usize }
    }

    /// Bytes of the allocation, without what the value's word points to.
    pub fn size(&self) -> usize {
        let embedded = if self.kind_bits() == EMBEDDED { self.embedded_len() } else { 0 };
        size_of(self.header(), embedded)
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let header = self.header();
        let after_value = if header >> 24 & 15 == EMBEDDED { 4 } else { 8 };
        let at = if header & EXPIRES != 0 { 16 } else { 8 } + after_value;
        // SAFETY: the key's bytes lie there.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at), (header >> 32) as usize) }
    }

    /// When it expires, in milliseconds since 1970.
    #[inline]
    pub fn expire_at(&self) -> Option<i64> {
        if self.header() & EXPIRES == 0 {
            return None;
        }
        // SAFETY: an entry that expires has eight bytes for it after the header.
        Some(unsafe { *self.0.as_ptr().add(8).cast() })
    }

    /// The eviction policy's 24 bits.
    pub fn access(&self) -> u32 {
        self.header() as u32 & 0xff_ffff
    }

    /// Sets the eviction policy's 24 bits. Takes `&self`: the caller holds the shard's lock, and
    /// no reference into the header is ever handed out.
    #[inline]
    pub fn set_access(&self, access: u32) {
        let header = self.header();
        if header as u32 & 0xff_ffff != access {
            // SAFETY: the header's 8 bytes are ours under the shard's lock.
            unsafe {
                *self.0.as_ptr().cast::<u64>() = header & !0xff_ffff | u64::from(access & 0xff_ffff)
            }
        }
    }

    /// Whether the image being taken needs nothing of the entry any more.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.header() & SETTLED != 0
    }

    /// Says so, or takes it back. Takes `&self` as [`Entry::set_access`] does.
    pub fn set_settled(&self, is_settled: bool) {
        let rest = self.header() & !SETTLED;
        let header = if is_settled { rest | SETTLED } else { rest };
        // SAFETY: the header's 8 bytes are ours under the shard's lock.
        unsafe { *self.0.as_ptr().cast::<u64>() = header }
    }

    /// Makes the entry anew with another value; returns the old one.
    pub fn remake(&mut self, value: NewValue<'_>, expire_at: Option<i64>, access: u32) -> Entry {
        let new = Entry::new(self.key(), value, expire_at, access);
        new.set_settled(self.is_settled());
        std::mem::replace(self, new)
    }

    /// The type as TYPE tells it.
    pub fn kind(&self) -> Kind {
        match self.kind_bits() {
            LIST => Kind::List,
            SET => Kind::Set,
            HASH => Kind::Hash,
            ZSET => Kind::Zset,
            STREAM => Kind::Stream,
            // SAFETY: a foreign value's word is one.
            FOREIGN => Kind::Foreign(unsafe { (*self.word_ptr::<Foreign>()).type_name() }),
            _ => Kind::String,
        }
    }

    /// Whether the string was changed in place since it was set.
    pub fn is_changed_string(&self) -> bool {
        self.header() & CHANGED != 0
    }

    /// The value, to be read.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        // SAFETY: each kind reads what `new` and `replace` wrote for that kind.
        unsafe {
            match self.kind_bits() {
                NUMBER => ValueRef::Number(self.word() as i64),
                EMBEDDED => ValueRef::Bytes(self.embedded()),
                SHARED => ValueRef::Shared(&*self.word_ptr()),
                LIST => ValueRef::List(&*self.word_ptr()),
                SET => ValueRef::Set(&*self.word_ptr()),
                HASH => ValueRef::Hash(&*self.word_ptr()),
                ZSET => ValueRef::Zset(&*self.word_ptr()),
                STREAM => ValueRef::Stream(&*self.word_ptr()),
                _ => ValueRef::Foreign(&*self.word_ptr()),
            }
        }
    }

    #[inline]
    fn embedded(&self) -> &[u8] {
        let at = self.value_at() + 4 + (self.header() >> 32) as usize;
        // SAFETY: the embedded bytes follow the key.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at), self.embedded_len()) }
    }

    /// The value, to be changed; a string is changed through the entry itself.
    pub fn value_mut(&mut self) -> ValueMut<'_> {
        // SAFETY: as in `value`, borrowed mutably.
        unsafe {
            match self.kind_bits() {
                LIST => ValueMut::List(&mut *self.word_ptr()),
                SET => ValueMut::Set(&mut *self.word_ptr()),
                HASH => ValueMut::Hash(&mut *self.word_ptr()),
                ZSET => ValueMut::Zset(&mut *self.word_ptr()),
                STREAM => ValueMut::Stream(&mut *self.word_ptr()),
                FOREIGN => ValueMut::Foreign(&mut *self.word_ptr()),
                _ => ValueMut::String,
            }
        }
    }

    fn drop_value(&mut self) {
        if matches!(self.kind_bits(), SHARED | LIST | SET | HASH | ZSET | STREAM | FOREIGN) {
            drop(self.read_value());
        }
    }

    /// Moves the value out; the entry must then be rewritten or freed without dropping it again.
    fn read_value(&mut self) -> Value {
        // SAFETY: each kind reads what was written for it; the caller forgets the old word.
        unsafe {
            match self.kind_bits() {
                NUMBER => Value::Number(self.word() as i64),
                EMBEDDED => Value::Bytes(Arc::new(self.embedded().to_vec())),
                SHARED => Value::Bytes(ptr::read(self.word_ptr())),
                LIST => Value::List(ptr::read(self.word_ptr())),
                SET => Value::Set(ptr::read(self.word_ptr())),
                HASH => Value::Hash(ptr::read(self.word_ptr())),
                ZSET => Value::Zset(ptr::read(self.word_ptr())),
                STREAM => Value::Stream(ptr::read(self.word_ptr())),
                _ => Value::Foreign(ptr::read(self.word_ptr())),
            }
        }
    }

    /// Ends the entry and returns its value and time to live.
    pub fn into_value(mut self) -> (Value, Option<i64>) {
        let value = self.read_value();
        let expire_at = self.expire_at();
        // SAFETY: allocated with this layout; the value was moved out, so no drop of it.
        unsafe { dealloc(self.0.as_ptr(), layout(self.size())) }
        std::mem::forget(self);
        (value, expire_at)
    }

    /// Sets value and time to live anew. In place where the size stays the same.
    pub fn replace(&mut self, value: NewValue<'_>, expire_at: Option<i64>) {
        let same_shape = (self.header() & EXPIRES != 0) == expire_at.is_some();
        match value {
            NewValue::Bytes(bytes)
                if same_shape
                    && self.kind_bits() == EMBEDDED
                    && bytes.len() == self.embedded_len() =>
            {
                let at = self.value_at() + 4 + (self.header() >> 32) as usize;
                self.write_bytes(at, bytes);
            }
            NewValue::Value(Value::Number(number)) if same_shape && self.kind_bits() == NUMBER => {
                let at = self.value_at();
                self.write_u64(at, number as u64);
            }
            value => {
                self.remake(value, expire_at, self.access());
                return;
            }
        }
        self.set_header(self.header() & !CHANGED);
        if let Some(at) = expire_at {
            self.write_u64(8, at as u64);
        }
    }

    /// Sets or clears the time to live.
    pub fn set_expire_at(&mut self, expire_at: Option<i64>) {
        let had = self.header() & EXPIRES != 0;
        let size = self.size();
        match (had, expire_at) {
            (false, None) => {}
            (true, Some(at)) => self.write_u64(8, at as u64),
            (false, Some(at)) => {
                self.resize(size, size + 8);
                // SAFETY: the allocation has now size + 8 bytes.
                unsafe {
                    let base = self.0.as_ptr();
                    ptr::copy(base.add(8), base.add(16), size - 8);
                }
                self.set_header(self.header() | EXPIRES);
                self.write_u64(8, at as u64);
            }
            (true, None) => {
                // SAFETY: inside the allocation of `size` bytes.
                unsafe {
                    let base = self.0.as_ptr();
                    ptr::copy(base.add(16), base.add(8), size - 16);
                }
                self.set_header(self.header() & !EXPIRES);
                self.resize(size, size - 8);
            }
        }
    }

    fn resize(&mut self, old: usize, new: usize) {
        // SAFETY: allocated with `old` bytes.
        let raw = unsafe { realloc(self.0.as_ptr(), layout(old), new) };
        self.0 = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout(new)));
    }

    /// Gives the string's bytes to be changed, at exactly `len` of them: cut, or filled up with
    /// zeros. The entry must hold a string.
    pub fn string_bytes(&mut self, len: usize) -> &mut [u8] {
        if self.kind_bits() == NUMBER {
            let text = (self.word() as i64).to_string();
            self.remake(NewValue::Bytes(text.as_bytes()), self.expire_at(), self.access());
        }
        if self.kind_bits() == EMBEDDED && len > EMBEDDED_MAX {
            let mut bytes = Vec::with_capacity(len + len / 4);
            bytes.extend_from_slice(self.embedded());
            bytes.resize(len, 0);
            let value = NewValue::Value(Value::Bytes(Arc::new(bytes)));
            self.remake(value, self.expire_at(), self.access());
        }
        self.set_header(self.header() | CHANGED);
        if self.kind_bits() == EMBEDDED {
            return self.embedded_resized(len);
        }
        debug_assert_eq!(self.kind_bits(), SHARED);
        // SAFETY: a SHARED word is an Arc, borrowed mutably with the entry.
        let bytes = Arc::make_mut(unsafe { &mut *self.word_ptr::<Arc<Vec<u8>>>() });
        bytes.resize(len, 0);
        bytes
    }

    fn embedded_resized(&mut self, len: usize) -> &mut [u8] {
        let old = self.embedded_len();
        let key_len = (self.header() >> 32) as usize;
        let bytes_at = self.value_at() + 4 + key_len;
        if old != len {
            self.resize(bytes_at + old, bytes_at + len);
            let at = self.value_at();
            self.write_u32(at, len as u32);
        }
        // SAFETY: the allocation has `bytes_at + len` bytes; what is new is zeroed first.
        unsafe {
            let bytes = self.0.as_ptr().add(bytes_at);
            if len > old {
                ptr::write_bytes(bytes.add(old), 0, len - old);
            }
            std::slice::from_raw_parts_mut(bytes, len)
        }
    }
}

impl<'a> Ref<'a, Entry> {
    /// The value, for as long as the table is borrowed.
    #[inline]
    pub fn into_value(self) -> ValueRef<'a> {
        // SAFETY: what the value borrows lies in the entry's heap, which the table owns for 'a.
        unsafe { transmute::<ValueRef<'_>, ValueRef<'a>>(self.value()) }
    }
}

impl<'a> RefMut<'a, Entry> {
    /// The value, for as long as the table is borrowed.
    pub fn into_value_mut(mut self) -> ValueMut<'a> {
        // SAFETY: as in `into_value`; what a ValueMut changes never moves the entry.
        unsafe { transmute::<ValueMut<'_>, ValueMut<'a>>(self.value_mut()) }
    }

    /// A string's bytes, see [`Entry::string_bytes`], for as long as the table is borrowed.
    pub fn into_string_bytes(mut self, len: usize) -> &'a mut [u8] {
        // SAFETY: the bytes lie where the entry is after the resize; the slot is set on drop.
        unsafe { transmute::<&mut [u8], &'a mut [u8]>(self.string_bytes(len)) }
    }
}

/// The size that a header with an embedded string of `embedded` bytes asks for.
fn size_of(header: u64, embedded: usize) -> usize {
    let value = if header >> 24 & 15 == EMBEDDED { 4 + embedded } else { 8 };
    8 + if header & EXPIRES != 0 { 8 } else { 0 } + (header >> 32) as usize + value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(entry: &Entry) -> Vec<u8> {
        match entry.value() {
            ValueRef::Number(number) => number.to_string().into_bytes(),
            ValueRef::Bytes(bytes) => bytes.to_vec(),
            ValueRef::Shared(bytes) => bytes.to_vec(),
            _ => panic!("not a string"),
        }
    }

    #[test]
    fn a_string_goes_through_all_its_forms() {
        let mut entry = Entry::new(b"key", NewValue::Bytes(b"value"), None, 7);
        assert_eq!(
            (entry.key(), bytes(&entry).as_slice(), entry.access()),
            (&b"key"[..], &b"value"[..], 7)
        );
        entry.set_expire_at(Some(99));
        assert_eq!((entry.expire_at(), bytes(&entry).as_slice()), (Some(99), &b"value"[..]));
        entry.string_bytes(8)[5..].copy_from_slice(b"abc");
        assert_eq!(bytes(&entry), b"valueabc");
        assert!(entry.is_changed_string());
        entry.string_bytes(EMBEDDED_MAX + 1)[EMBEDDED_MAX] = b'z';
        assert_eq!(bytes(&entry).len(), EMBEDDED_MAX + 1);
        assert_eq!(&bytes(&entry)[..9], b"valueabc\0");
        entry.string_bytes(3);
        assert_eq!((bytes(&entry).as_slice(), entry.expire_at()), (&b"val"[..], Some(99)));
        entry.set_expire_at(None);
        entry.replace(NewValue::Value(Value::Number(-5)), Some(3));
        assert_eq!((bytes(&entry).as_slice(), entry.expire_at()), (&b"-5"[..], Some(3)));
        entry.replace(NewValue::Value(Value::Number(12)), None);
        assert_eq!(entry.string_bytes(2), b"12");
        assert_eq!(entry.key(), b"key");
        entry.set_access(0x123456);
        assert_eq!(entry.access(), 0x123456);
        entry.set_settled(true);
        entry.replace(NewValue::Bytes(b"12"), None);
        assert!(entry.is_settled(), "kept, whatever becomes of the entry");
        entry.set_settled(false);
        assert_eq!((entry.is_settled(), entry.access()), (false, 0x123456));
        let (value, expire_at) = entry.into_value();
        assert!(matches!(value, Value::Bytes(bytes) if *bytes == b"12"));
        assert_eq!(expire_at, None);
    }

    #[test]
    fn sizes_are_as_drawn() {
        let entry = Entry::new(&[b'k'; 16], NewValue::Bytes(&[b'v'; 32]), None, 0);
        assert_eq!(entry.size(), 60);
        let entry = Entry::new(&[b'k'; 16], NewValue::Value(Value::Number(1)), None, 0);
        assert_eq!(entry.size(), 32);
    }
}
