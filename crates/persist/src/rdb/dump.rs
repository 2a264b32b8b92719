//! One value by itself: what DUMP gives and RESTORE takes.
//!
//! ```text
//!  | type | value | version u16 | CRC-64 of all before it |      little-endian
//! ```

use crc_fast::{CrcAlgorithm, checksum};
use keyspace::value::{Value, ValueRef};

use super::cursor::Cursor;
use super::decode::{Decoder, Limits};
use super::encode::{Compression, Encoder};
use super::error::Error;
use super::format::{self, VERSION_FIELD_TIMES, VERSION_WRITTEN, Version};
use super::reader::Checksum;

const FOOTER_BYTES: usize = 10;

/// A value's payload.
pub fn dump(value: ValueRef<'_>, compression: Compression) -> Vec<u8> {
    let mut out = vec![Encoder::kind(value)];
    Encoder::new(compression).value(value, &mut out);
    let has_field_times = out[0] == format::HASH_METADATA;
    seal_as(if has_field_times { VERSION_FIELD_TIMES } else { VERSION_WRITTEN }, &mut out);
    out
}

/// Appends version and checksum.
pub fn seal(payload: &mut Vec<u8>) {
    seal_as(VERSION_WRITTEN, payload);
}

fn seal_as(version: u32, payload: &mut Vec<u8>) {
    payload.extend_from_slice(&(version as u16).to_le_bytes());
    let crc = checksum(CrcAlgorithm::Crc64Redis, payload);
    payload.extend_from_slice(&crc.to_le_bytes());
}

/// The content of a payload whose footer is right: version and checksum. FUNCTION DUMP's payloads
/// have the same footer.
pub fn opened(payload: &[u8], verify: Checksum) -> Option<(Version, &[u8])> {
    let (content, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let (version, crc) = footer.split_first_chunk::<2>()?;
    let version = Version::new(u32::from(u16::from_le_bytes(*version))).ok()?;
    let stated = u64::from_le_bytes(crc.try_into().ok()?);
    let checked = &payload[..content.len() + 2];
    let is_right = || stated == checksum(CrcAlgorithm::Crc64Redis, checked);
    (verify == Checksum::Ignore || is_right()).then_some((version, content))
}

/// Why a payload gave no value.
#[derive(Debug)]
pub enum Refusal {
    /// Its footer is wrong.
    Footer,
    /// Its content is.
    Content(Error),
    /// It is an empty collection.
    Empty,
}

/// The value of a payload.
pub fn restore(payload: &[u8], limits: Limits, verify: Checksum) -> Result<Value, Refusal> {
    let (version, content) = opened(payload, verify).ok_or(Refusal::Footer)?;
    let mut cursor = Cursor::new(content, 0);
    let kind = cursor.reading("the type").byte().map_err(Refusal::Content)?;
    let value = Decoder::new(limits, version).value(kind, &mut cursor).map_err(Refusal::Content)?;
    if cursor.left() > 0 {
        return Err(Refusal::Content(cursor.damaged("bytes after the value's end")));
    }
    value.ok_or(Refusal::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    fn restored(payload: &[u8], verify: Checksum) -> Result<Value, Refusal> {
        restore(payload, Limits::default(), verify)
    }

    #[test]
    fn a_payload_is_what_redis_makes() {
        let payload = dump(ValueRef::Bytes(b"hello"), Compression::Lzf);
        assert_eq!(payload[..8], *b"\x00\x05hello\x0a");
        let Ok(Value::Bytes(bytes)) = restored(&payload, Checksum::Verify) else { panic!() };
        assert_eq!(**bytes, *b"hello");
        for at in 0..payload.len() {
            let mut wrong = payload.clone();
            wrong[at] ^= 0x40;
            assert!(restored(&wrong, Checksum::Verify).is_err(), "{at}");
            assert!(restored(&payload[..at], Checksum::Verify).is_err());
        }
        let mut without = payload.clone();
        without[9..].fill(0);
        assert!(matches!(restored(&without, Checksum::Verify), Err(Refusal::Footer)));
        assert!(restored(&without, Checksum::Ignore).is_ok());
    }
}
