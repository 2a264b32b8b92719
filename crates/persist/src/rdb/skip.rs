//! Finds where a value ends without building it: what cuts a file into entries for many threads.
//!
//! A value is a few lengths and strings one after the other; only those are looked at. Whether
//! they make sense is found out when the value is decoded.
//!
//! **Invariant:** each step takes bytes, so a slice is skipped in time linear in its length.

use super::cursor::Cursor;
use super::error::{Error, Why};
use super::format::{self, Version};

impl Cursor<'_> {
    /// Skips a string.
    #[inline]
    pub fn skip_text(&mut self) -> Result<(), Error> {
        self.text().map(|_| ())
    }

    fn skip_texts(&mut self, count: usize) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.skip_text())
    }

    fn skip_lengths(&mut self, count: usize) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.length().map(|_| ()))
    }
}

/// Skips a value of this type.
pub fn skip_value(kind: u8, version: Version, cursor: &mut Cursor<'_>) -> Result<(), Error> {
    cursor.reading(format::type_name(kind));
    match kind {
        format::STRING
        | format::HASH_ZIPMAP..=format::HASH_ZIPLIST
        | format::HASH_LISTPACK
        | format::ZSET_LISTPACK
        | format::SET_LISTPACK => cursor.skip_text(),
        format::LIST | format::SET | format::LIST_QUICKLIST => {
            let count = cursor.count(1)?;
            cursor.skip_texts(count)
        }
        format::HASH => {
            let count = cursor.count(2)?;
            cursor.skip_texts(count * 2)
        }
        format::ZSET => {
            for _ in 0..cursor.count(2)? {
                cursor.skip_text()?;
                cursor.text_double()?;
            }
            Ok(())
        }
        format::ZSET_2 => {
            for _ in 0..cursor.count(9)? {
                cursor.skip_text()?;
                cursor.double()?;
            }
            Ok(())
        }
        format::LIST_QUICKLIST_2 => {
            for _ in 0..cursor.count(2)? {
                cursor.length()?;
                cursor.skip_text()?;
            }
            Ok(())
        }
        format::STREAM_LISTPACKS | format::STREAM_LISTPACKS_2 | format::STREAM_LISTPACKS_3 => {
            skip_stream(kind, cursor)
        }
        format::MODULE_2 => skip_module(cursor),
        _ => skip_field_times(kind, version, cursor),
    }
}

/// Skips the hashes whose fields expire.
fn skip_field_times(kind: u8, version: Version, cursor: &mut Cursor<'_>) -> Result<(), Error> {
    match kind {
        format::TYPE_22 if version.is_valkey() => {
            for _ in 0..cursor.count(10)? {
                cursor.skip_texts(2)?;
                cursor.milliseconds()?;
            }
            Ok(())
        }
        format::TYPE_22 | format::HASH_METADATA => {
            if kind == format::HASH_METADATA {
                cursor.milliseconds()?;
            }
            for _ in 0..cursor.count(3)? {
                cursor.length()?;
                cursor.skip_texts(2)?;
            }
            Ok(())
        }
        format::HASH_LISTPACK_EX_PRE_GA | format::HASH_LISTPACK_EX => {
            if kind == format::HASH_LISTPACK_EX {
                cursor.milliseconds()?;
            }
            cursor.skip_text()
        }
        format::MODULE_PRE_GA => Err(cursor.error(Why::Refused(
            "values of modules of the time before Redis 4.0 cannot be read".into(),
        ))),
        _ => Err(cursor.error(Why::Refused(format!("Unknown RDB encoding type {kind}")))),
    }
}

fn skip_stream(kind: u8, cursor: &mut Cursor<'_>) -> Result<(), Error> {
    let has_extents = kind >= format::STREAM_LISTPACKS_2;
    let blocks = cursor.count(2)?;
    cursor.skip_texts(blocks * 2)?;
    cursor.skip_lengths(if has_extents { 8 } else { 3 })?;
    for _ in 0..cursor.count(5)? {
        cursor.skip_text()?;
        cursor.skip_lengths(if has_extents { 3 } else { 2 })?;
        for _ in 0..cursor.count(16 + 8 + 1)? {
            cursor.take(16 + 8)?;
            cursor.length()?;
        }
        let times = if kind >= format::STREAM_LISTPACKS_3 { 16 } else { 8 };
        for _ in 0..cursor.count(2 + times)? {
            cursor.skip_text()?;
            cursor.take(times as usize)?;
            let pending = cursor.count(16)?;
            cursor.take(pending * 16)?;
        }
    }
    Ok(())
}

/// Skips a module's number and its data.
pub fn skip_module(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    cursor.reading("a module's value");
    cursor.length()?;
    skip_module_data(cursor)
}

/// Skips a module's data, which tells its own structure.
pub fn skip_module_data(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    loop {
        match cursor.length()? {
            0 => return Ok(()),
            1 | 2 => cursor.length().map(|_| ())?,
            3 => cursor.take(4).map(|_| ())?,
            4 => cursor.take(8).map(|_| ())?,
            5 => cursor.skip_text()?,
            _ => return Err(cursor.damaged("no such piece of a module's value")),
        }
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The number of a module type by its name of nine characters and its version.
pub fn module_number(name: &str, version: u64) -> u64 {
    let place = |byte: u8| LETTERS.iter().position(|letter| *letter == byte).unwrap_or(0) as u64;
    name.bytes().take(9).fold(0, |number, byte| number << 6 | place(byte)) << 10 | version
}

/// The name of a module type by its number: nine characters of six bits, then ten of version.
pub fn module_name(number: u64) -> String {
    let letter = |index: u32| LETTERS[(number >> (58 - 6 * index) & 63) as usize] as char;
    (0..9).map(letter).collect()
}
