//! A value to bytes, in the encoding that the lowest version of the format knows for it.
//!
//! | value | written as |
//! |---|---|
//! | number | an integer of 1, 2 or 4 bytes, else its text |
//! | list | a quicklist of packed nodes (RDB 10) |
//! | set | an intset, else member by member (a set's listpack would need RDB 11) |
//! | stream | its blocks, groups and what is pending (RDB 10) |
//! | hash, sorted set | their listpack (RDB 10), else element by element |
//! | hash with fields that expire | its fields, with their times (RDB 12) |
//!
//! Strings longer than 20 bytes are compressed where that is wished and helps.

use keyspace::raw::packed::{Element, canonical_int};
use keyspace::types::foreign::Foreign;
use keyspace::types::hash::{Hash, HashView};
use keyspace::types::list::{List, ListView};
use keyspace::types::set::{Set, SetView};
use keyspace::types::zset::{Zset, ZsetView};
use keyspace::value::ValueRef;

use super::lzf::Compressor;
use super::stream_form;
use super::{format, hash_times};

/// Whether strings are compressed: the option `rdbcompression`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Long strings are, where it helps.
    Lzf,
    /// None is.
    Off,
}

/// Shorter strings are not compressed, in bytes.
const COMPRESSED_BYTES_MIN: usize = 21;
/// Longest printed integer of 32 bits.
const INTEGER_CHARS_MAX: usize = 11;

/// Writes values into a buffer; one per thread, kept for all.
pub struct Encoder {
    compressor: Option<Compressor>,
    packed: Vec<u8>,
}

impl Encoder {
    /// An encoder that compresses or does not.
    pub fn new(compression: Compression) -> Encoder {
        let compressor = (compression == Compression::Lzf).then(Compressor::default);
        Encoder { compressor, packed: Vec::new() }
    }

    /// The type byte that a value's bytes go under.
    pub fn kind(value: ValueRef<'_>) -> u8 {
        match value {
            ValueRef::Number(_) | ValueRef::Bytes(_) | ValueRef::Shared(_) => format::STRING,
            ValueRef::List(_) => format::LIST_QUICKLIST_2,
            ValueRef::Set(set) => match set.view() {
                SetView::Ints(_) => format::SET_INTSET,
                SetView::Packed(_) | SetView::Members(_) => format::SET,
            },
            ValueRef::Hash(hash) => match hash.view() {
                HashView::Packed(_) => format::HASH_LISTPACK,
                HashView::Fields(_) if hash.next_expire_at().is_some() => format::HASH_METADATA,
                HashView::Fields(_) => format::HASH,
            },
            ValueRef::Zset(zset) => match zset.view() {
                ZsetView::Packed(_) => format::ZSET_LISTPACK,
                ZsetView::Ranked(_) => format::ZSET_2,
            },
            ValueRef::Stream(_) => format::STREAM_LISTPACKS_2,
            ValueRef::Foreign(_) => format::MODULE_2,
        }
    }

    /// Appends a value's bytes, without its type.
    pub fn value(&mut self, value: ValueRef<'_>, out: &mut Vec<u8>) {
        match value {
            ValueRef::Number(number) => self.number(number, out),
            ValueRef::Bytes(bytes) => self.string(bytes, out),
            ValueRef::Shared(bytes) => self.string(bytes, out),
            ValueRef::List(list) => self.list(list, out),
            ValueRef::Set(set) => self.set(set, out),
            ValueRef::Hash(hash) => self.hash(hash, out),
            ValueRef::Zset(zset) => self.zset(zset, out),
            ValueRef::Stream(stream) => stream_form::encode(stream, self, out),
            ValueRef::Foreign(value) => self.foreign(value, out),
        }
    }

    /// Appends a value of another crate's type as a module's: its number, one string, the end. One
    /// that cannot be read becomes an empty string, which no reader takes for a value.
    fn foreign(&mut self, value: &Foreign, out: &mut Vec<u8>) {
        length(super::skip::module_number(value.type_name(), 1), out);
        length(5, out);
        self.string(&value.image().unwrap_or_default(), out);
        length(0, out);
    }

    /// Appends a string.
    #[inline]
    pub fn string(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.len() <= INTEGER_CHARS_MAX
            && let Some(number) = canonical_int(bytes)
            && integer(number, out)
        {
            return;
        }
        if bytes.len() >= COMPRESSED_BYTES_MIN && self.compressed(bytes, out) {
            return;
        }
        length(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    }

    fn compressed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(compressor) = &mut self.compressor else { return false };
        self.packed.clear();
        if !compressor.compress(bytes, &mut self.packed) {
            return false;
        }
        out.push(0xc3);
        length(self.packed.len() as u64, out);
        length(bytes.len() as u64, out);
        out.extend_from_slice(&self.packed);
        true
    }

    fn number(&mut self, number: i64, out: &mut Vec<u8>) {
        if !integer(number, out) {
            let mut buffer = itoa::Buffer::new();
            self.string(buffer.format(number).as_bytes(), out);
        }
    }

    fn element(&mut self, element: Element<'_>, out: &mut Vec<u8>) {
        match element {
            Element::Int(number) => self.number(number, out),
            Element::Str(bytes) => self.string(bytes, out),
        }
    }

    fn list(&mut self, list: &List, out: &mut Vec<u8>) {
        let mut node = |listpack: Vec<u8>, out: &mut Vec<u8>| {
            length(format::NODE_PACKED, out);
            self.string(&listpack, out);
        };
        match list.view() {
            ListView::Packed(packed) => {
                length(1, out);
                node(packed.to_listpack(), out);
            }
            ListView::Nodes(nodes) => {
                length(nodes.len() as u64, out);
                nodes.for_each(|block| node(block.to_listpack(), out));
            }
        }
    }

    fn set(&mut self, set: &Set, out: &mut Vec<u8>) {
        if let SetView::Ints(ints) = set.view() {
            return self.string(&ints.to_redis(), out);
        }
        length(set.len() as u64, out);
        set.iter().for_each(|member| self.element(member, out));
    }

    fn hash(&mut self, hash: &Hash, out: &mut Vec<u8>) {
        match hash.view() {
            HashView::Packed(packed) => return self.string(&packed.to_listpack(), out),
            HashView::Fields(fields) if hash.next_expire_at().is_some() => {
                return hash_times::encode(fields, self, out);
            }
            HashView::Fields(_) => {}
        }
        length(hash.len() as u64, out);
        for (field, value) in hash.iter() {
            self.element(field, out);
            self.element(value, out);
        }
    }

    fn zset(&mut self, zset: &Zset, out: &mut Vec<u8>) {
        if let ZsetView::Packed(packed) = zset.view() {
            return self.string(&packed.to_listpack(), out);
        }
        length(zset.len() as u64, out);
        // From the last to the first: that is the order in which Redis inserts fastest.
        for (member, score) in zset.iter().rev() {
            self.element(member, out);
            out.extend_from_slice(&score.to_le_bytes());
        }
    }
}

/// Appends a length.
#[inline]
pub fn length(length: u64, out: &mut Vec<u8>) {
    match length {
        0..=0x3f => out.push(length as u8),
        0x40..=0x3fff => out.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends the short form of an integer of up to 32 bits; false, and nothing, for a larger one.
#[inline]
fn integer(number: i64, out: &mut Vec<u8>) -> bool {
    if let Ok(number) = i8::try_from(number) {
        out.extend_from_slice(&[0xc0, number as u8]);
    } else if let Ok(number) = i16::try_from(number) {
        out.push(0xc1);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i32::try_from(number) {
        out.push(0xc2);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        return false;
    }
    true
}
