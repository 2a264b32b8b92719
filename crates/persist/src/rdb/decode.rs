//! Bytes to a value: every type and encoding that a Redis or Valkey ever wrote, each byte checked.
//!
//! Our small forms are the files' own (listpack, intset), so those are checked and taken as they
//! are; everything else is added element by element.
//!
//! **Invariant:** what comes out satisfies the invariants of its type, whatever went in: no member
//! comes twice, no score is NaN, no collection is empty.

use std::borrow::Cow;

use keyspace::raw::packed::{ELEMENT_BYTES_MAX, Malformed, Packed, canonical_int};
use keyspace::settings::Settings;
use keyspace::types::hash::{Hash, HashLimits};
use keyspace::types::intset;
use keyspace::types::list::{End, List, ListLimits};
use keyspace::types::set::{Set, SetLimits};
use keyspace::types::zset::{Zset, ZsetLimits};
use keyspace::value::Value;

use super::cursor::{Cursor, Scratch, Text};
use super::error::{Error, Why};
use super::format::{self, Version};
use super::{hash_times, stream_form, ziplist};

/// When the collections that are read change their form.
#[derive(Debug, Default, Clone, Copy)]
#[allow(missing_docs)]
pub struct Limits {
    pub hash: HashLimits,
    pub set: SetLimits,
    pub zset: ZsetLimits,
    pub list: ListLimits,
}

impl Limits {
    /// The limits as they are set now.
    pub fn of(settings: &Settings) -> Limits {
        Limits {
            hash: settings.hash_limits(),
            set: settings.set_limits(),
            zset: settings.zset_limits(),
            list: settings.list_limits(),
        }
    }
}

/// Builds values; one per thread, kept for all.
pub struct Decoder {
    limits: Limits,
    version: Version,
    /// Where compressed strings are unpacked.
    pub scratch: Scratch,
    second: Scratch,
}

// What is said of values that are one block; Redis's words, which people search for.
const LIST: &str = "List node integrity check failed";
const INTSET: &str = "Intset integrity check failed";
const SET: &str = "Set listpack integrity check failed";
const ZIPMAP: &str = "Zipmap integrity check failed";
const HASH_ZIPLIST: &str = "Hash ziplist integrity check failed";
const HASH_LISTPACK: &str = "Hash listpack integrity check failed";
const ZSET_ZIPLIST: &str = "Zset ziplist integrity check failed";
const ZSET_LISTPACK: &str = "Zset listpack integrity check failed";

/// Longest printed integer of 64 bits.
const INTEGER_CHARS_MAX: usize = 20;

/// The value of a string that is neither number nor short.
fn string_value(text: Text<'_>, bytes: &[u8]) -> Value {
    match text {
        Text::Int(number) => Value::Number(number),
        _ => match number_of(bytes) {
            Some(number) => Value::Number(number),
            None => Value::Bytes(bytes.to_vec().into()),
        },
    }
}

/// The number that a string is kept as, if it is one.
#[inline]
pub fn number_of(bytes: &[u8]) -> Option<i64> {
    if bytes.len() > INTEGER_CHARS_MAX { None } else { canonical_int(bytes) }
}

impl Decoder {
    /// A decoder for payloads of this version.
    pub fn new(limits: Limits, version: Version) -> Decoder {
        Decoder { limits, version, scratch: Scratch::default(), second: Scratch::default() }
    }

    /// The value of this type that starts at the cursor; nothing for a collection without
    /// elements, which some old files have.
    pub fn value(&mut self, kind: u8, cursor: &mut Cursor<'_>) -> Result<Option<Value>, Error> {
        cursor.reading(format::type_name(kind));
        match kind {
            format::STRING => {
                let text = cursor.text()?;
                let bytes = cursor.unpack(text, &mut self.scratch)?;
                Ok(Some(string_value(text, bytes)))
            }
            format::LIST => self.list(cursor).map(list_value),
            format::LIST_ZIPLIST => {
                let packed = self.block(cursor, ziplist::packed_of_ziplist, LIST)?;
                Ok(list_value(List::from_packed(packed, self.limits.list)))
            }
            format::LIST_QUICKLIST | format::LIST_QUICKLIST_2 => {
                self.quicklist(kind, cursor).map(list_value)
            }
            format::SET => self.set(cursor).map(set_value),
            format::SET_INTSET => {
                let packed = self.block(cursor, intset::from_redis, INTSET)?;
                Ok(set_value(Set::from_intset(packed, self.limits.set)))
            }
            format::SET_LISTPACK => {
                let packed = self.block(cursor, Packed::from_listpack, SET)?;
                let set = Set::from_packed(packed, self.limits.set);
                Ok(set_value(set.map_err(|Malformed| cursor.damaged(SET))?))
            }
            format::HASH => self.hash(cursor).map(hash_value),
            format::HASH_ZIPMAP => self.packed_hash(cursor, ziplist::packed_of_zipmap, ZIPMAP),
            format::HASH_ZIPLIST => {
                self.packed_hash(cursor, ziplist::packed_of_ziplist, HASH_ZIPLIST)
            }
            format::HASH_LISTPACK => self.packed_hash(cursor, Packed::from_listpack, HASH_LISTPACK),
            format::ZSET | format::ZSET_2 => self.zset(kind, cursor).map(zset_value),
            format::ZSET_ZIPLIST => {
                self.packed_zset(cursor, ziplist::packed_of_ziplist, ZSET_ZIPLIST)
            }
            format::ZSET_LISTPACK => self.packed_zset(cursor, Packed::from_listpack, ZSET_LISTPACK),
            format::STREAM_LISTPACKS | format::STREAM_LISTPACKS_2 | format::STREAM_LISTPACKS_3 => {
                let stream = stream_form::decode(kind, cursor, &mut self.scratch)?;
                Ok(Some(Value::Stream(stream)))
            }
            format::TYPE_22..=format::HASH_LISTPACK_EX => {
                let scratch = [&mut self.scratch, &mut self.second];
                let hash = hash_times::decode(kind, self.version, cursor, self.limits, scratch)?;
                Ok(hash_value(hash))
            }
            format::MODULE_2 => self.foreign(cursor),
            _ => Err(self.refusal(kind, cursor)),
        }
    }

    /// A value of another crate's type: one string under a module's number.
    fn foreign(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Value>, Error> {
        let start = *cursor;
        let name = super::skip::module_name(cursor.length()?);
        let Some(loader) = keyspace::types::foreign::loader(&name) else {
            return Err(self.refusal(format::MODULE_2, &start));
        };
        if cursor.length()? != 5 {
            return Err(cursor.damaged("a value of another program under a known name"));
        }
        let value = loader(cursor.string(&mut self.scratch)?);
        if cursor.length()? != 0 {
            return Err(cursor.damaged("a module's value goes on after its end"));
        }
        match value {
            Ok(value) => Ok(Some(Value::Foreign(value))),
            Err(text) => Err(cursor.error(Why::Refused(text))),
        }
    }

    /// Why values of this type are not taken.
    fn refusal(&self, kind: u8, cursor: &Cursor<'_>) -> Error {
        let text = match kind {
            format::MODULE_2 => {
                let number = { *cursor }.length().unwrap_or(0);
                let name = super::skip::module_name(number);
                format!(
                    "The RDB file contains module data I can't load: no matching module type \
                     '{name}'"
                )
            }
            format::MODULE_PRE_GA => {
                "values of modules of the time before Redis 4.0 cannot be read".to_string()
            }
            _ => format!("Unknown RDB encoding type {kind}"),
        };
        cursor.error(Why::Refused(text))
    }

    /// A value that is one string, as a block.
    fn block(
        &mut self,
        cursor: &mut Cursor<'_>,
        read: impl FnOnce(&[u8]) -> Result<Packed, Malformed>,
        complaint: &'static str,
    ) -> Result<Packed, Error> {
        let start = *cursor;
        let bytes = cursor.string(&mut self.scratch)?;
        read(bytes).map_err(|Malformed| start.damaged(complaint))
    }

    fn list(&mut self, cursor: &mut Cursor<'_>) -> Result<List, Error> {
        let mut list = List::default();
        for _ in 0..cursor.count(1)? {
            let bytes = element(cursor.string(&mut self.scratch)?, cursor)?;
            list.push(End::Right, [bytes].into_iter(), self.limits.list);
        }
        Ok(list)
    }

    fn quicklist(&mut self, kind: u8, cursor: &mut Cursor<'_>) -> Result<List, Error> {
        let is_second = kind == format::LIST_QUICKLIST_2;
        let nodes = cursor.count(if is_second { 2 } else { 1 })?;
        let mut list = List::default();
        for _ in 0..nodes {
            let packed = match is_second.then(|| cursor.length()).transpose()? {
                None => self.block(cursor, ziplist::packed_of_ziplist, LIST)?,
                Some(format::NODE_PACKED) => self.block(cursor, Packed::from_listpack, LIST)?,
                Some(format::NODE_PLAIN) => {
                    let bytes = element(cursor.string(&mut self.scratch)?, cursor)?;
                    if bytes.is_empty() {
                        return Err(cursor.damaged("a list's long element that is empty"));
                    }
                    [bytes].into_iter().collect()
                }
                Some(_) => return Err(cursor.damaged("no such form of a list's node")),
            };
            if nodes == 1 {
                return Ok(List::from_packed(packed, self.limits.list));
            }
            list.push_node(&packed);
        }
        list.settle(self.limits.list);
        Ok(list)
    }

    fn set(&mut self, cursor: &mut Cursor<'_>) -> Result<Set, Error> {
        let count = cursor.count(1)?;
        let mut set = Set::default();
        for index in 0..count {
            let bytes = element(cursor.string(&mut self.scratch)?, cursor)?;
            if index == 0 {
                set = Set::for_members(bytes, count, self.limits.set);
            }
            if !set.insert(bytes, self.limits.set) {
                return Err(cursor.damaged("a member comes twice"));
            }
        }
        Ok(set)
    }

    fn hash(&mut self, cursor: &mut Cursor<'_>) -> Result<Hash, Error> {
        let count = cursor.count(2)?;
        let mut hash = Hash::default();
        hash.expect_fields(count, 0, self.limits.hash);
        for _ in 0..count {
            let field = element(cursor.string(&mut self.scratch)?, cursor)?;
            let value = element(cursor.string(&mut self.second)?, cursor)?;
            if !hash.set(field, value, self.limits.hash) {
                return Err(cursor.damaged("a field comes twice"));
            }
        }
        Ok(hash)
    }

    fn zset(&mut self, kind: u8, cursor: &mut Cursor<'_>) -> Result<Zset, Error> {
        let is_binary = kind == format::ZSET_2;
        let count = cursor.count(if is_binary { 9 } else { 2 })?;
        let mut members: Vec<(Cow<'_, [u8]>, f64)> = Vec::with_capacity(count);
        for _ in 0..count {
            let member = match cursor.text()? {
                Text::Raw(bytes) => Cow::Borrowed(element(bytes, cursor)?),
                text => Cow::Owned(cursor.unpack(text, &mut self.scratch)?.to_vec()),
            };
            let score = if is_binary { cursor.double()? } else { cursor.text_double()? };
            if score.is_nan() {
                return Err(cursor.damaged("a score that is not a number"));
            }
            members.push((member, score));
        }
        let members: Vec<(&[u8], f64)> =
            members.iter().map(|(member, score)| (&**member, *score)).collect();
        let zset = Zset::build(&members, self.limits.zset);
        if zset.len() == count { Ok(zset) } else { Err(cursor.damaged("a member comes twice")) }
    }

    fn packed_hash(
        &mut self,
        cursor: &mut Cursor<'_>,
        read: impl FnOnce(&[u8]) -> Result<Packed, Malformed>,
        complaint: &'static str,
    ) -> Result<Option<Value>, Error> {
        let packed = self.block(cursor, read, complaint)?;
        let hash = Hash::from_packed(packed, self.limits.hash);
        let twice =
            |Malformed| cursor.damaged("Hash listpack with dup elements: integrity check failed");
        Ok(hash_value(hash.map_err(twice)?))
    }

    fn packed_zset(
        &mut self,
        cursor: &mut Cursor<'_>,
        read: impl FnOnce(&[u8]) -> Result<Packed, Malformed>,
        complaint: &'static str,
    ) -> Result<Option<Value>, Error> {
        let packed = self.block(cursor, read, complaint)?;
        let zset = Zset::from_packed(packed, self.limits.zset);
        let twice =
            |Malformed| cursor.damaged("Zset listpack with dup elements: integrity check failed");
        Ok(zset_value(zset.map_err(twice)?))
    }
}

/// An element that is not too long for a block.
#[inline]
pub(super) fn element<'a>(bytes: &'a [u8], cursor: &Cursor<'_>) -> Result<&'a [u8], Error> {
    if bytes.len() <= ELEMENT_BYTES_MAX {
        return Ok(bytes);
    }
    Err(cursor.error(Why::Refused("an element of 4 GiB or more cannot be kept".into())))
}

fn list_value(list: List) -> Option<Value> {
    (!list.is_empty()).then_some(Value::List(list))
}

fn set_value(set: Set) -> Option<Value> {
    (!set.is_empty()).then_some(Value::Set(set))
}

fn hash_value(hash: Hash) -> Option<Value> {
    (!hash.is_empty()).then_some(Value::Hash(hash))
}

fn zset_value(zset: Zset) -> Option<Value> {
    (!zset.is_empty()).then_some(Value::Zset(zset))
}
