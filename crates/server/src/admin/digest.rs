//! DEBUG DIGEST and DEBUG DIGEST-VALUE: a number of 40 hexadecimal digits that is the same for the
//! same contents, however they came there and whatever they are encoded as.
//!
//! As in Redis (debug.c), sets and hashes count without an order and lists and sorted sets with
//! theirs, and an empty data set is all zeros. The digits are not Redis's: its are SHA-1.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use keyspace::raw::listpack::Element;
use keyspace::types::stream::StreamId;
use keyspace::value::ValueRef;

/// See the module.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u64; 3]);

impl Digest {
    /// Of some parts in their order.
    fn of(parts: &[&[u8]]) -> Digest {
        Digest([1u64, 2, 3].map(|salt| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            parts.hash(&mut hasher);
            hasher.finish()
        }))
    }

    /// Adds another one, the order of such additions not counting.
    pub fn add(&mut self, other: Digest) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own = own.wrapping_add(more);
        }
    }

    /// Adds another one in order.
    fn chain(&mut self, other: Digest) {
        let bytes = |digest: &Digest| digest.0.map(u64::to_le_bytes).concat();
        *self = Digest::of(&[&bytes(self), &bytes(&other)]);
    }

    /// Forty digits.
    pub fn text(&self) -> String {
        let [a, b, c] = self.0;
        format!("{a:016x}{b:016x}{:08x}", c as u32)
    }

    /// Of a key with its value in a database.
    pub fn of_key(db: usize, key: &[u8], value: ValueRef<'_>, expires: Option<i64>) -> Digest {
        let contents = Digest::of_value(value).text();
        let expires = if expires.is_some() { "!!expire!!" } else { "" };
        Digest::of(&[db.to_string().as_bytes(), key, contents.as_bytes(), expires.as_bytes()])
    }

    /// Of a value.
    pub fn of_value(value: ValueRef<'_>) -> Digest {
        let mut digest = Digest::default();
        let one = |element: Element<'_>| Digest::of(&[&element.to_vec()]);
        match value {
            ValueRef::Number(number) => digest = Digest::of(&[number.to_string().as_bytes()]),
            ValueRef::Bytes(bytes) => digest = Digest::of(&[bytes]),
            ValueRef::Shared(bytes) => digest = Digest::of(&[bytes]),
            ValueRef::List(list) => list.iter().for_each(|element| digest.chain(one(element))),
            ValueRef::Set(set) => set.iter().for_each(|element| digest.add(one(element))),
            ValueRef::Hash(hash) => hash.iter().for_each(|(field, value)| {
                digest.add(Digest::of(&[&field.to_vec(), &value.to_vec()]));
            }),
            ValueRef::Zset(zset) => zset.iter().for_each(|(member, score)| {
                digest.add(Digest::of(&[&member.to_vec(), &score.to_bits().to_le_bytes()]));
            }),
            ValueRef::Stream(stream) => {
                stream.range(StreamId::MIN, StreamId::MAX).for_each(|entry| {
                    digest.chain(Digest::of(&[entry.id.to_string().as_bytes()]));
                    entry.fields().for_each(|(name, value)| {
                        digest.chain(Digest::of(&[&name.to_vec(), &value.to_vec()]));
                    });
                });
            }
        }
        digest
    }
}
