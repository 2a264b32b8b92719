//! Hashes whose fields expire, in the forms that Redis (rdb.c) and Valkey 9 write them.
//!
//! ```text
//! HASH_METADATA    first time i64 | fields | (0 or time - first + 1, field, value) ...
//! HASH_LISTPACK_EX first time i64 | listpack of field, value, time in ms (0 = never) ...
//! TYPE_22          Redis 7.4 RC: as HASH_METADATA, no first time, times in ms
//!                  Valkey 9:     fields | (field, value, time i64, -1 = never) ...
//! HASH_LISTPACK_EX_PRE_GA         as HASH_LISTPACK_EX, no first time
//! ```
//!
//! We write HASH_METADATA, which Redis 7.4 and later read. Times are milliseconds since 1970.

use keyspace::raw::packed::{Element, Packed};
use keyspace::types::hash::{Fields, Hash};
use resp::number;

use super::cursor::{Cursor, Scratch};
use super::decode::{Limits, element};
use super::encode::{Encoder, length};
use super::error::Error;
use super::format::{self, Version};

const DAMAGED: &str = "Hash listpack integrity check failed";

/// Appends a hash as HASH_METADATA, without the type.
pub fn encode(fields: &Fields, encoder: &mut Encoder, out: &mut Vec<u8>) {
    let first = fields.iter().filter_map(|(_, _, at)| at).min().unwrap_or(0);
    out.extend_from_slice(&first.to_le_bytes());
    length(fields.count() as u64, out);
    for (name, value, at) in fields.iter() {
        length(at.map_or(0, |at| at.abs_diff(first) + 1), out);
        encoder.string(name, out);
        encoder.string(value, out);
    }
}

/// Reads a hash of one of these types.
pub fn decode(
    kind: u8,
    version: Version,
    cursor: &mut Cursor<'_>,
    limits: Limits,
    scratch: [&mut Scratch; 2],
) -> Result<Hash, Error> {
    let has_first = matches!(kind, format::HASH_METADATA | format::HASH_LISTPACK_EX);
    let first = if has_first { cursor.milliseconds()? } else { 0 };
    if matches!(kind, format::HASH_LISTPACK_EX | format::HASH_LISTPACK_EX_PRE_GA) {
        return decode_listpack(cursor, limits, scratch);
    }
    let is_valkey = kind == format::TYPE_22 && version.is_valkey();
    let [one, other] = scratch;
    let mut hash = Hash::default();
    for _ in 0..cursor.count(if is_valkey { 10 } else { 3 })? {
        let mut at = None;
        if !is_valkey {
            let time = cursor.length()?;
            let too_late = || cursor.damaged("a field's time is out of range");
            let ms = i64::try_from(time).map_err(|_| too_late())?;
            at = match ms {
                0 => None,
                ms if has_first => Some(first.checked_add(ms - 1).ok_or_else(too_late)?),
                ms => Some(ms),
            };
        }
        let field = element(cursor.string(one)?, cursor)?;
        let value = element(cursor.string(other)?, cursor)?;
        if is_valkey {
            at = Some(cursor.milliseconds()?).filter(|at| *at != -1);
        }
        add(&mut hash, (field, value, at), cursor, limits)?;
    }
    Ok(hash)
}

fn decode_listpack(
    cursor: &mut Cursor<'_>,
    limits: Limits,
    [scratch, _]: [&mut Scratch; 2],
) -> Result<Hash, Error> {
    let start = *cursor;
    let damaged = || start.damaged(DAMAGED);
    let packed = Packed::from_listpack(cursor.string(scratch)?).map_err(|_| damaged())?;
    if !packed.len().is_multiple_of(3) {
        return Err(damaged());
    }
    let mut hash = Hash::default();
    let mut all = packed.iter();
    while let (Some(field), Some(value), Some(time)) = (all.next(), all.next(), all.next()) {
        let ms = match time {
            Element::Int(ms) => ms,
            Element::Str(text) => number::integer(text).ok_or_else(damaged)?,
        };
        let (field, value) = (field.to_vec(), value.to_vec());
        add(&mut hash, (&field, &value, Some(ms).filter(|ms| *ms != 0)), cursor, limits)?;
    }
    Ok(hash)
}

fn add(
    hash: &mut Hash,
    (field, value, at): (&[u8], &[u8], Option<i64>),
    cursor: &Cursor<'_>,
    limits: Limits,
) -> Result<(), Error> {
    if at.is_some_and(|at| at < 0) {
        return Err(cursor.damaged("a field's time is out of range"));
    }
    if !hash.set(field, value, limits.hash) {
        return Err(cursor.damaged("a field comes twice"));
    }
    hash.set_expire_at(field, at);
    Ok(())
}

#[cfg(test)]
mod tests {
    use keyspace::value::Value;
    use proptest::prelude::*;

    use super::*;
    use crate::rdb::decode::Decoder;
    use crate::rdb::dump::{dump, restore};
    use crate::rdb::encode::Compression;
    use crate::rdb::reader::Checksum;

    type Told = Vec<(Vec<u8>, Vec<u8>, Option<i64>)>;

    fn told(value: &Value) -> Told {
        let Value::Hash(hash) = value else { panic!("a hash") };
        let all = hash.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
        let mut all: Told = all
            .map(|(name, value)| (name.clone(), value, hash.expire_at(&name).flatten()))
            .collect();
        all.sort();
        all
    }

    fn read(kind: u8, version: u32, bytes: &[u8]) -> Result<Option<Value>, Error> {
        let version = Version::new(version).expect("known");
        let mut cursor = Cursor::new(bytes, 0);
        let value = Decoder::new(Limits::default(), version).value(kind, &mut cursor)?;
        let mut skipped = Cursor::new(bytes, 0);
        crate::rdb::skip::skip_value(kind, version, &mut skipped)?;
        assert_eq!(skipped.position(), cursor.position(), "skipping goes as far as reading");
        Ok(value)
    }

    /// `a` expires at 1000, `b` never, `c` at 1500.
    fn expected() -> Told {
        let field = |name: &str, value: &str, at| (name.into(), value.into(), at);
        vec![field("a", "1", Some(1000)), field("b", "2", None), field("c", "3", Some(1500))]
    }

    #[test]
    fn every_form_is_read() {
        let first = 1000i64.to_le_bytes();
        let counted: &[u8] = b"\x03\x01\x01a\x011\x00\x01b\x012\x41\xf5\x01c\x013";
        let metadata = [&first[..], counted].concat();
        let absolute: &[u8] = b"\x03\x43\xe8\x01a\x011\x00\x01b\x012\x45\xdc\x01c\x013";
        let mut valkey = vec![3];
        for (name, value, at) in expected() {
            valkey.extend([&[1][..], &name, &[1], &value].concat());
            valkey.extend(at.unwrap_or(-1).to_le_bytes());
        }
        let words: [&[u8]; 9] = [b"a", b"1", b"1000", b"b", b"2", b"0", b"c", b"3", b"1500"];
        let listpack = words.into_iter().collect::<Packed>().to_listpack();
        let listpack = [&[listpack.len() as u8][..], &listpack].concat();
        let with_first = [&first[..], &listpack].concat();
        for (kind, version, bytes) in [
            (format::HASH_METADATA, 12, &metadata[..]),
            (format::TYPE_22, 12, absolute),
            (format::TYPE_22, format::VERSION_VALKEY, &valkey),
            (format::HASH_LISTPACK_EX, 12, &with_first),
            (format::HASH_LISTPACK_EX_PRE_GA, 12, &listpack),
        ] {
            let value = read(kind, version, bytes).expect("whole").expect("not empty");
            assert_eq!(told(&value), expected(), "type {kind} of version {version}");
            for len in 0..bytes.len() {
                assert!(read(kind, version, &bytes[..len]).is_err(), "type {kind} cut at {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            fields in proptest::collection::btree_map(
                "[a-z]{1,30}", ("[a-z0-9]{0,40}", proptest::option::of(1..1i64 << 46)), 1..20,
            )
        ) {
            let mut hash = Hash::default();
            for (name, (value, at)) in &fields {
                hash.set(name.as_bytes(), value.as_bytes(), Limits::default().hash);
                hash.set_expire_at(name.as_bytes(), *at);
            }
            let is_timed = hash.next_expire_at().is_some();
            let value = Value::Hash(hash);
            let payload = dump(value.as_ref(), Compression::Lzf);
            prop_assert_eq!(payload[0] == format::HASH_METADATA, is_timed);
            let back = restore(&payload, Limits::default(), Checksum::Verify).expect("our own");
            prop_assert_eq!(told(&back), told(&value));
        }

        #[test]
        fn damage_is_an_error_or_another_hash(
            kind in 22..=25u8, valkey: bool, bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let version = if valkey { format::VERSION_VALKEY } else { 12 };
            if let Ok(Some(value)) = read(kind, version, &bytes) {
                prop_assert!(!told(&value).is_empty());
            }
        }
    }
}
