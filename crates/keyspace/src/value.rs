//! A key's value: owned, borrowed to read, borrowed to change.

use std::sync::Arc;

use crate::types::foreign::Foreign;
use crate::types::hash::Hash;
use crate::types::list::List;
use crate::types::set::Set;
use crate::types::stream::Stream;
use crate::types::zset::Zset;

/// The type of a value as TYPE and SCAN name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes or a number.
    String,
    /// A list of byte strings.
    List,
    /// A set of byte strings.
    Set,
    /// A sorted set.
    Zset,
    /// A map from field to byte string.
    Hash,
    /// A log of entries with consumer groups.
    Stream,
    /// A value of a type that another crate brings, with its name.
    Foreign(&'static str),
}

impl Kind {
    /// The name that TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Zset => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
            Kind::Foreign(name) => name,
        }
    }
}

/// A value by itself, outside any key.
#[derive(Clone)]
pub enum Value {
    /// A string that is a canonical 64-bit integer.
    Number(i64),
    /// Any other string.
    Bytes(Arc<Vec<u8>>),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A hash.
    Hash(Hash),
    /// A sorted set.
    Zset(Zset),
    /// A stream.
    Stream(Stream),
    /// A value of a type that another crate brings.
    Foreign(Foreign),
}

impl Value {
    /// The value, to be read.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Number(number) => ValueRef::Number(*number),
            Value::Bytes(bytes) => ValueRef::Shared(bytes),
            Value::List(list) => ValueRef::List(list),
            Value::Set(set) => ValueRef::Set(set),
            Value::Hash(hash) => ValueRef::Hash(hash),
            Value::Zset(zset) => ValueRef::Zset(zset),
            Value::Stream(stream) => ValueRef::Stream(stream),
            Value::Foreign(value) => ValueRef::Foreign(value),
        }
    }
}

/// A key's value, to be read.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    /// A string that is a canonical 64-bit integer.
    Number(i64),
    /// A string that lies in its entry.
    Bytes(&'a [u8]),
    /// A long string, which a reply may share instead of copying it.
    Shared(&'a Arc<Vec<u8>>),
    /// A list.
    List(&'a List),
    /// A set.
    Set(&'a Set),
    /// A hash.
    Hash(&'a Hash),
    /// A sorted set.
    Zset(&'a Zset),
    /// A stream.
    Stream(&'a Stream),
    /// A value of a type that another crate brings.
    Foreign(&'a Foreign),
}

impl ValueRef<'_> {
    /// Elements of a collection; 1 for a string.
    pub fn len(&self) -> usize {
        match self {
            ValueRef::Number(_) | ValueRef::Bytes(_) | ValueRef::Shared(_) => 1,
            ValueRef::List(list) => list.len(),
            ValueRef::Set(set) => set.len(),
            ValueRef::Hash(hash) => hash.len(),
            ValueRef::Zset(zset) => zset.len(),
            ValueRef::Stream(stream) => stream.len(),
            ValueRef::Foreign(_) => 1,
        }
    }

    /// Whether a collection has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks the processor for the place where the search for an element with this hash starts.
    pub fn prefetch(&self, hash: u64) {
        match self {
            ValueRef::Set(set) => set.prefetch(hash),
            ValueRef::Hash(fields) => fields.prefetch(hash),
            ValueRef::Zset(zset) => zset.prefetch(hash),
            _ => {}
        }
    }

    /// Asks the processor for the element that this hash most likely means.
    pub fn prefetch_element(&self, hash: u64) {
        match self {
            ValueRef::Set(set) => set.prefetch_member(hash),
            ValueRef::Hash(fields) => fields.prefetch_field(hash),
            ValueRef::Zset(zset) => zset.prefetch_member(hash),
            _ => {}
        }
    }
}

/// A key's value, to be changed.
pub enum ValueMut<'a> {
    /// A string: changed through its entry.
    String,
    /// A list.
    List(&'a mut List),
    /// A set.
    Set(&'a mut Set),
    /// A hash.
    Hash(&'a mut Hash),
    /// A sorted set.
    Zset(&'a mut Zset),
    /// A stream.
    Stream(&'a mut Stream),
    /// A value of a type that another crate brings.
    Foreign(&'a mut Foreign),
}
