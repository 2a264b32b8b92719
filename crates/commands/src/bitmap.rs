//! Strings as arrays of bits: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. Bit 0 is the highest of the
//! first byte. BITFIELD is in [`crate::bitfield`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keyspace::effects::class;
use keyspace::keys::Expire;
use keyspace::raw::entry::{EMBEDDED_MAX, NewValue};
use keyspace::value::Value;
use resp::{Args, number};

use crate::bitfield;
use crate::command::{
    Command, DENY_OOM, FAST, Family, Group, OW, READONLY, RO, RW, WRITE, at, first, range,
};
use crate::context::Context;
use crate::error::Error;
use crate::keys::mark_raw;
use crate::string::{string_bytes, string_len};
use crate::words::{integer, is};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Bitmap,
    commands: &[
        Command {
            name: "SETBIT",
            run: setbit,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(RW)],
            usage: "key offset value",
            summary: "Sets or clears a bit, growing the string to hold it; returns the old one.",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GETBIT",
            run: getbit,
            flags: READONLY.with(FAST),
            keys: &[first(RO)],
            usage: "key offset",
            summary: "Returns a bit; 0 beyond the string's end.",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BITCOUNT",
            run: bitcount,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key [start [end [BYTE | BIT]]]",
            summary: "Counts the bits that are set in a string or a part of it.",
            complexity: "O(N), N = bytes",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BITPOS",
            run: bitpos,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key bit [start [end [BYTE | BIT]]]",
            summary: "Finds the first bit that is set, or clear, in a string or a part of it.",
            complexity: "O(N), N = bytes",
            since: "2.8.7",
            ..Command::DEFAULT
        },
        Command {
            name: "BITOP",
            run: bitop,
            flags: WRITE.with(DENY_OOM),
            keys: &[at(2, OW), range(3, -1, 1, RO)],
            usage: "<AND | OR | XOR | NOT> destkey key [key ...]",
            summary: "Combines strings bit by bit and stores the result.",
            complexity: "O(N), N = bytes",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        bitfield::ROW,
        bitfield::ROW_RO,
    ],
};

/// A bit's offset: not negative and within the longest string allowed.
pub fn bit_offset(cx: &Context<'_>, offset: Option<i64>) -> Result<usize, Error> {
    let max_bytes = cx.keys.space().settings.proto_max_bulk_len.load(Ordering::Relaxed);
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    match offset.filter(|offset| offset / 8 < max_bytes) {
        Some(offset) => Ok(offset as usize),
        None => Err(Error::text("ERR bit offset is not an integer or out of range")),
    }
}

fn setbit(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let offset = bit_offset(cx, number::integer(args.word(2)))?;
    let on = match number::integer(args.word(3)) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let old_len = string_len(cx.keys.peek(key))?;
    let grows = !cx.keys.exists(key) || offset / 8 >= old_len;
    let bytes = cx.keys.string_bytes(key, old_len.max(offset / 8 + 1))?;
    let mask = 0x80 >> (offset % 8);
    let byte = &mut bytes[offset / 8];
    let was = *byte & mask != 0;
    if on {
        *byte |= mask
    } else {
        *byte &= !mask
    }
    if grows || was != on {
        cx.keys.changed(key);
        cx.keys.notify(class::STRING, "setbit", key);
    }
    cx.out.flag(was);
    Ok(())
}

fn getbit(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let offset = bit_offset(cx, number::integer(args.word(2)))?;
    let mut text = itoa::Buffer::new();
    let bytes = string_bytes(cx.keys.get(args.word(1)), &mut text)?;
    let is_missing = bytes.is_none();
    let byte = bytes.and_then(|bytes| bytes.get(offset / 8)).copied().unwrap_or(0);
    cx.out.flag(byte & (0x80 >> (offset % 8)) != 0);
    if is_missing {
        cx.keys.notify_miss(args.word(1));
    }
    Ok(())
}

/// What a part is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

/// The optional words `[start [end [BYTE | BIT]]]`.
struct Part {
    start: i64,
    end: Option<i64>,
    unit: Unit,
}

impl Part {
    fn read(args: Args<'_>, at: usize) -> Result<Part, Error> {
        if args.len() > at + 3 {
            return Err(Error::SYNTAX);
        }
        let start = args.get(at).map_or(Ok(0), integer)?;
        let unit = match args.get(at + 2) {
            None => Unit::Byte,
            Some(word) if is(word, "BYTE") => Unit::Byte,
            Some(word) if is(word, "BIT") => Unit::Bit,
            Some(_) => return Err(Error::SYNTAX),
        };
        let end = args.get(at + 1).map(integer).transpose()?;
        Ok(Part { start, end, unit })
    }

    /// The bits that are meant in a string of `len` bytes.
    fn bits(&self, len: usize) -> Range<usize> {
        let (total, scale) = match self.unit {
            Unit::Byte => (len as i64, 8),
            Unit::Bit => (len as i64 * 8, 1),
        };
        let from_end = |index: i64| if index < 0 { (total + index).max(0) } else { index };
        let start = from_end(self.start);
        let end = from_end(self.end.unwrap_or(total - 1)).min(total - 1);
        if start > end { 0..0 } else { start as usize * scale..(end as usize + 1) * scale }
    }
}

fn bitcount(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let part = Part::read(args, 2)?;
    let mut text = itoa::Buffer::new();
    let Some(bytes) = string_bytes(cx.keys.get(args.word(1)), &mut text)? else {
        cx.out.int(0);
        cx.keys.notify_miss(args.word(1));
        return Ok(());
    };
    // Two negative indexes the wrong way round mean nothing, even before the beginning.
    let crossed = matches!(part.end, Some(end) if part.start < 0 && end < part.start);
    let bits = if crossed { 0..0 } else { part.bits(bytes.len()) };
    cx.out.count(count_bits(bytes, bits));
    Ok(())
}

/// The bits that are set among `bits`.
fn count_bits(bytes: &[u8], bits: Range<usize>) -> usize {
    if bits.is_empty() {
        return 0;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let before = bytes[first] & !(0xff_u8 >> (bits.start % 8));
    let after = bytes[last] & (0xff_u16 >> ((bits.end - 1) % 8 + 1)) as u8;
    popcount(&bytes[first..=last]) - (before.count_ones() + after.count_ones()) as usize
}

/// The bits that are set, by words of 64.
fn popcount(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: usize = words.iter().map(|w| u64::from_le_bytes(*w).count_ones() as usize).sum();
    words + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()
}

fn bitpos(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let wanted = match integer(args.word(2))? {
        bit @ 0..=1 => bit == 1,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let part = Part::read(args, 3)?;
    let mut text = itoa::Buffer::new();
    let Some(bytes) = string_bytes(cx.keys.get(args.word(1)), &mut text)? else {
        // As if zeros went on for ever.
        cx.out.int(if wanted { -1 } else { 0 });
        cx.keys.notify_miss(args.word(1));
        return Ok(());
    };
    let bits = part.bits(bytes.len());
    let place = match find_bit(bytes, bits.clone(), wanted) {
        Some(place) => place as i64,
        // Without an end, the string is followed by zeros.
        None if !wanted && part.end.is_none() && !bits.is_empty() => bits.end as i64,
        None => -1,
    };
    cx.out.int(place);
    Ok(())
}

/// The first of `bits` that is `wanted`.
fn find_bit(bytes: &[u8], bits: Range<usize>, wanted: bool) -> Option<usize> {
    if bits.is_empty() {
        return None;
    }
    let flip = if wanted { 0 } else { u64::MAX };
    let mut at = bits.start / 8;
    let mut mask = 0xff_u8 >> (bits.start % 8);
    while at * 8 < bits.end {
        if mask == 0xff
            && let Some(word) = bytes.get(at..at + 8)
        {
            let word = u64::from_be_bytes(word.try_into().expect("eight bytes"));
            if word == flip {
                at += 8;
                continue;
            }
            let place = at * 8 + (word ^ flip).leading_zeros() as usize;
            return Some(place).filter(|place| *place < bits.end);
        }
        let byte = (bytes[at] ^ flip as u8) & mask;
        if byte != 0 {
            let place = at * 8 + byte.leading_zeros() as usize;
            return Some(place).filter(|place| *place < bits.end);
        }
        (at, mask) = (at + 1, 0xff);
    }
    None
}

/// How BITOP combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

fn bitop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let operations = [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
    ];
    let named = operations.into_iter().find(|(name, _)| is(args.word(1), name));
    let (_, operation) = named.ok_or(Error::SYNTAX)?;
    if operation == Operation::Not && args.len() != 4 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
    }
    let (to, sources) = (args.word(2), args.from(3));
    let mut len = 0;
    for key in sources.iter() {
        len = len.max(string_len(cx.keys.get(key))?);
    }
    if len == 0 {
        if cx.keys.remove(to) {
            cx.keys.notify(class::GENERIC, "del", to);
        }
        cx.out.int(0);
        return Ok(());
    }
    let mut result = vec![0; len];
    for (index, key) in sources.iter().enumerate() {
        let mut text = itoa::Buffer::new();
        let bytes = string_bytes(cx.keys.peek(key), &mut text)?.unwrap_or_default();
        combine(&mut result, bytes, if index == 0 { Operation::Or } else { operation });
    }
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    let value = match result.len() {
        ..=EMBEDDED_MAX => NewValue::Bytes(&result),
        _ => NewValue::Value(Value::Bytes(Arc::new(result))),
    };
    cx.keys.set(to, value, Expire::Never);
    mark_raw(cx, to);
    cx.keys.notify(class::STRING, "set", to);
    cx.out.count(len);
    Ok(())
}

/// Plain loops over bytes: the compiler makes vector instructions of them.
fn combine(result: &mut [u8], bytes: &[u8], operation: Operation) {
    let (both, beyond) = result.split_at_mut(bytes.len());
    let pairs = both.iter_mut().zip(bytes);
    match operation {
        Operation::And => {
            pairs.for_each(|(byte, other)| *byte &= other);
            beyond.fill(0);
        }
        Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
        Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
        Operation::Not => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Client;
    use keyspace::random::Random;

    #[test]
    fn single_bits() {
        let offset = "-ERR bit offset is not an integer or out of range";
        Client::new().check(&[
            ("SETBIT k 7 1", ":0"),
            ("SETBIT k 7 1", ":1"),
            ("GETBIT k 7", ":1"),
            ("GETBIT k 100", ":0"),
            ("GETBIT none 1", ":0"),
            ("SETBIT k 16 0", ":0"),
            ("STRLEN k", ":3"),
            ("SET n 1", "+OK"),
            ("GETBIT n 2", ":1"),
            ("SETBIT n 6 1", ":0"),
            ("GET n", "$1 3"),
            ("SETBIT k -1 1", offset),
            ("SETBIT k 4294967296 1", offset),
            ("SETBIT k x 1", offset),
            ("GETBIT k 4294967296", offset),
            ("SETBIT k 1 2", "-ERR bit is not an integer or out of range"),
            ("SETBIT k 1 x", "-ERR bit is not an integer or out of range"),
        ]);
    }

    #[test]
    fn counting() {
        Client::new().check(&[
            ("SET k foobar", "+OK"),
            ("BITCOUNT k", ":26"),
            ("BITCOUNT k 0 0", ":4"),
            ("BITCOUNT k 1 1 BYTE", ":6"),
            ("BITCOUNT k 5 30 BIT", ":17"),
            ("BITCOUNT k 5", ":4"),
            ("BITCOUNT k -2 -1", ":7"),
            ("BITCOUNT k -1 -2", ":0"),
            ("BITCOUNT k 1 0", ":0"),
            ("BITCOUNT k 0 -100", ":4"),
            ("BITCOUNT none", ":0"),
            ("BITCOUNT k 0 1 X", "-ERR syntax error"),
            ("BITCOUNT k 0 1 BIT X", "-ERR syntax error"),
            ("BITCOUNT k a b", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn finding() {
        Client::new().check(&[
            ("SET k \"\\xff\\xf0\\x00\"", "+OK"),
            ("BITPOS k 0", ":12"),
            ("BITPOS k 1", ":0"),
            ("BITPOS k 1 2", ":-1"),
            ("BITPOS k 1 1 -1 BYTE", ":8"),
            ("BITPOS k 0 0 10 BIT", ":-1"),
            ("BITPOS k 0 7 15 BIT", ":12"),
            ("BITPOS k 1 12 23 BIT", ":-1"),
            ("SET ones \"\\xff\\xff\\xff\"", "+OK"),
            ("BITPOS ones 0", ":24"),
            ("BITPOS ones 0 1", ":24"),
            ("BITPOS ones 0 0 -1", ":-1"),
            ("BITPOS ones 0 3", ":-1"),
            ("BITPOS none 0", ":0"),
            ("BITPOS none 1", ":-1"),
            ("SETRANGE k 0 \"\"", ":3"),
            ("BITPOS k 2", "-ERR The bit argument must be 1 or 0."),
            ("BITPOS k 1 0 1 X", "-ERR syntax error"),
            ("BITPOS k x", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn counting_and_finding_agree_with_one_bit_at_a_time() {
        let mut random = Random::new(5);
        for _ in 0..300 {
            let len = random.below(40) + 1;
            let fill = [0, 0xff, random.bits() as u8][random.below(3)];
            let mut bytes = vec![fill; len];
            (0..random.below(4)).for_each(|_| bytes[random.below(len)] = random.bits() as u8);
            let start = random.below(len * 8);
            let bits = start..start + random.below(len * 8 - start + 1);
            let is_set = |bit: &usize| bytes[bit / 8] & (0x80 >> (bit % 8)) != 0;
            assert_eq!(count_bits(&bytes, bits.clone()), bits.clone().filter(is_set).count());
            let first = bits.clone().find(is_set);
            assert_eq!(find_bit(&bytes, bits.clone(), true), first);
            let first = bits.clone().find(|bit| !is_set(bit));
            assert_eq!(find_bit(&bytes, bits, false), first);
        }
    }

    #[test]
    fn combining() {
        Client::new().check(&[
            ("MSET a abc b ab n 12", "+OK"),
            ("BITOP AND d a b", ":3"),
            ("GET d", "$3 ab\0"),
            ("BITOP or d a b", ":3"),
            ("GET d", "$3 abc"),
            ("BITOP XOR d a b", ":3"),
            ("GET d", "$3 \0\0c"),
            ("BITOP NOT d d", ":3"),
            ("BITCOUNT d", ":20"),
            ("BITOP AND d a none", ":3"),
            ("GET d", "$3 \0\0\0"),
            ("BITOP OR d n", ":2"),
            ("GET d", "$2 12"),
            ("BITOP OR d none", ":0"),
            ("EXISTS d", ":0"),
            ("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key."),
            ("BITOP NAND d a", "-ERR syntax error"),
        ]);
    }
}
