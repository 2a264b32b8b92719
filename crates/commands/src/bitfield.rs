//! BITFIELD: integers of 1 to 64 bits anywhere in a string, read, set and counted up, each step
//! with its own rule for what does not fit.
//!
//! **Invariant:** words are checked to the last before anything is changed.

use keyspace::effects::class;
use resp::{Args, number};

use crate::bitmap::bit_offset;
use crate::command::{Command, DENY_OOM, FAST, READONLY, RO, WRITE, first};
use crate::context::Context;
use crate::error::Error;
use crate::string::{string_bytes, string_len};
use crate::words::{integer, is};

/// BITFIELD's row.
pub const ROW: Command = Command {
    name: "BITFIELD",
    run: bitfield,
    flags: WRITE.with(DENY_OOM),
    keys: &[first(&["RW", "access", "update", "variable_flags"])],
    usage: "key [<GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
            <SET encoding offset value | INCRBY encoding offset increment>> ...]",
    summary: "Reads, sets and counts up integers of any width in a string.",
    complexity: "O(1) for each step",
    since: "3.2.0",
    ..Command::DEFAULT
};

/// BITFIELD_RO's row.
pub const ROW_RO: Command = Command {
    name: "BITFIELD_RO",
    run: bitfield_ro,
    flags: READONLY.with(FAST),
    keys: &[first(RO)],
    usage: "key [GET encoding offset ...]",
    summary: "Reads integers of any width in a string.",
    complexity: "O(1) for each step",
    since: "6.0.0",
    ..Command::DEFAULT
};

/// What becomes of a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer's form: `u8`, `i16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Encoding {
    signed: bool,
    bits: u32,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One step.
#[derive(Debug, Clone, Copy)]
struct Step {
    encoding: Encoding,
    offset: usize,
    action: Action,
    overflow: Overflow,
}

impl Encoding {
    fn read(word: &[u8]) -> Result<Encoding, Error> {
        const ERROR: Error = Error::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
             supported but i64 is.",
        );
        let (signed, bits_max) = match word.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(ERROR),
        };
        let bits = number::integer(&word[1..]).filter(|bits| (1..=bits_max).contains(bits));
        Ok(Encoding { signed, bits: bits.ok_or(ERROR)? as u32 })
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The number that these bits, the lowest ones of a word, mean.
    fn number(self, bits: u64) -> i64 {
        let spare = 64 - self.bits;
        if self.signed {
            (bits << spare).cast_signed() >> spare
        } else {
            (bits << spare >> spare) as i64
        }
    }

    /// What is stored for `number`; `None` if it must not be.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        if (self.min()..=self.max()).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.number(number as u64)),
            Overflow::Saturate => Some(number.clamp(self.min(), self.max()) as i64),
            Overflow::Fail => None,
        }
    }
}

/// `offset`, or `#index` in units of the integer's width.
fn read_offset(cx: &Context<'_>, word: &[u8], encoding: Encoding) -> Result<usize, Error> {
    let offset = match word {
        [b'#', index @ ..] => {
            number::integer(index).and_then(|index| index.checked_mul(encoding.bits.into()))
        }
        word => number::integer(word),
    };
    bit_offset(cx, offset)
}

fn read_steps(cx: &Context<'_>, args: Args<'_>) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < args.len() {
        let (word, left) = (args.word(index), args.len() - index - 1);
        if is(word, "OVERFLOW") && left >= 1 {
            overflow = match args.word(index + 1) {
                word if is(word, "WRAP") => Overflow::Wrap,
                word if is(word, "SAT") => Overflow::Saturate,
                word if is(word, "FAIL") => Overflow::Fail,
                _ => return Err(Error::text("ERR Invalid OVERFLOW type specified")),
            };
            index += 2;
            continue;
        }
        let gets = is(word, "GET") && left >= 2;
        let (sets, adds) = (is(word, "SET") && left >= 3, is(word, "INCRBY") && left >= 3);
        if !gets && !sets && !adds {
            return Err(Error::SYNTAX);
        }
        let encoding = Encoding::read(args.word(index + 1))?;
        let offset = read_offset(cx, args.word(index + 2), encoding)?;
        let action = if gets {
            Action::Get
        } else if sets {
            Action::Set(integer(args.word(index + 3))?)
        } else {
            Action::Add(integer(args.word(index + 3))?)
        };
        steps.push(Step { encoding, offset, action, overflow });
        index += if gets { 3 } else { 4 };
    }
    Ok(steps)
}

/// The integer's bits; zeros beyond the end.
fn read_bits(bytes: &[u8], offset: usize, bits: u32) -> u64 {
    // At most nine bytes: 64 bits that do not start at a byte's border.
    let mut word = [0; 16];
    let from = bytes.get(offset / 8..).unwrap_or_default();
    let len = from.len().min(9);
    word[..len].copy_from_slice(&from[..len]);
    let word = u128::from_be_bytes(word) << (offset % 8);
    (word >> (128 - bits)) as u64
}

/// Overwrites the integer's bits, which are all there.
fn write_bits(bytes: &mut [u8], offset: usize, bits: u32, value: u64) {
    let from = &mut bytes[offset / 8..];
    let len = from.len().min(9);
    let mut word = [0; 16];
    word[..len].copy_from_slice(&from[..len]);
    let shift = 128 - bits - (offset % 8) as u32;
    let mask = (u128::MAX >> (128 - bits)) << shift;
    let new = u128::from_be_bytes(word) & !mask | (u128::from(value) << shift) & mask;
    from[..len].copy_from_slice(&new.to_be_bytes()[..len]);
}

fn bitfield(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let steps = read_steps(cx, args)?;
    let writes = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let Some(end) = writes.map(|step| step.offset + step.encoding.bits as usize).max() else {
        return read_only(cx, args, &steps);
    };
    let key = args.word(1);
    let old_len = string_len(cx.keys.peek(key))?;
    let grows = end.div_ceil(8) > old_len;
    let bytes = cx.keys.string_bytes(key, old_len.max(end.div_ceil(8)))?;
    let mut changes = 0;
    cx.out.array(steps.len());
    for step in &steps {
        let Step { encoding, offset, .. } = *step;
        let old = encoding.number(read_bits(bytes, offset, encoding.bits));
        let (new, tells_old) = match step.action {
            Action::Get => {
                cx.out.int(old);
                continue;
            }
            // Redis takes what is set into an unsigned integer as 64 bits without a sign.
            Action::Set(new) if !encoding.signed => (i128::from(new.cast_unsigned()), true),
            Action::Set(new) => (new.into(), true),
            Action::Add(more) => (i128::from(old) + i128::from(more), false),
        };
        let Some(new) = encoding.fit(new, step.overflow) else {
            cx.out.null();
            continue;
        };
        write_bits(bytes, offset, encoding.bits, new.cast_unsigned());
        cx.out.int(if tells_old { old } else { new });
        changes += u64::from(grows || old != new);
    }
    if grows || changes > 0 {
        cx.keys.changed(key);
        cx.keys.effects.dirty += changes.saturating_sub(1);
        cx.keys.notify(class::STRING, "setbit", key);
    }
    Ok(())
}

fn bitfield_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let steps = read_steps(cx, args)?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read_only(cx, args, &steps)
}

fn read_only(cx: &mut Context<'_>, args: Args<'_>, steps: &[Step]) -> Result<(), Error> {
    let mut text = itoa::Buffer::new();
    let bytes = string_bytes(cx.keys.get(args.word(1)), &mut text)?;
    let is_missing = bytes.is_none();
    let bytes = bytes.unwrap_or_default();
    cx.out.array(steps.len());
    for Step { encoding, offset, .. } in steps {
        cx.out.int(encoding.number(read_bits(bytes, *offset, encoding.bits)));
    }
    if is_missing {
        cx.keys.notify_miss(args.word(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Client;
    use keyspace::random::Random;

    #[test]
    fn steps() {
        Client::new().check(&[
            ("BITFIELD k", "*0"),
            ("BITFIELD k GET u8 0", "*1 :0"),
            ("EXISTS k", ":0"),
            ("BITFIELD k SET i8 0 -100 SET i8 0 101 GET i8 0", "*3 :0 :-100 :101"),
            ("BITFIELD k SET u8 #1 255 GET u16 0 INCRBY u8 #1 1", "*3 :0 :26111 :0"),
            ("BITFIELD u OVERFLOW SAT INCRBY u2 100 5 INCRBY u2 100 -9", "*2 :3 :0"),
            ("BITFIELD u OVERFLOW FAIL INCRBY u2 102 4 INCRBY u2 102 3", "*2 $-1 :3"),
            ("BITFIELD s OVERFLOW SAT SET i8 0 1000 SET i8 0 -1000 GET i8 0", "*3 :0 :127 :-128"),
            ("BITFIELD w SET i8 0 200 GET i8 0", "*2 :0 :-56"),
            ("BITFIELD x SET u4 0 -1 GET u4 0 GET u5 0", "*3 :0 :15 :30"),
            ("BITFIELD i SET i64 3 -9223372036854775808 GET i64 3", "*2 :0 :-9223372036854775808"),
            ("BITFIELD i INCRBY i64 3 -1", "*1 :9223372036854775807"),
            ("BITFIELD i OVERFLOW SAT INCRBY i64 3 1", "*1 :9223372036854775807"),
            ("BITFIELD_RO i GET i64 3", "*1 :9223372036854775807"),
        ]);
    }

    #[test]
    fn bad_words() {
        let encoding = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is \
                        not supported but i64 is.";
        let offset = "-ERR bit offset is not an integer or out of range";
        Client::new().check(&[
            ("BITFIELD k GET u64 0", encoding),
            ("BITFIELD k GET i65 0", encoding),
            ("BITFIELD k GET i0 0", encoding),
            ("BITFIELD k GET 8 0", encoding),
            ("BITFIELD k GET \"\" 0", encoding),
            ("BITFIELD k GET u8 -1", offset),
            ("BITFIELD k GET u8 #-1", offset),
            ("BITFIELD k GET u8 #9223372036854775807", offset),
            ("BITFIELD k GET u8 x", offset),
            ("BITFIELD k SET u8 0", "-ERR syntax error"),
            ("BITFIELD k OVERFLOW X SET u8 0 1", "-ERR Invalid OVERFLOW type specified"),
            ("BITFIELD k SET u8 0 x", "-ERR value is not an integer or out of range"),
            ("BITFIELD_RO k SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
            ("EXISTS k", ":0"),
        ]);
    }

    #[test]
    fn bits_come_back_and_others_stay() {
        let mut random = Random::new(9);
        for _ in 0..2000 {
            let mut bytes: Vec<u8> = (0..20).map(|_| random.bits() as u8).collect();
            let before = bytes.clone();
            let (bits, offset) = (random.below(64) as u32 + 1, random.below(90));
            let value = random.bits() >> (64 - bits);
            write_bits(&mut bytes, offset, bits, value);
            assert_eq!(read_bits(&bytes, offset, bits), value);
            let kept = |bit: &usize| !(offset..offset + bits as usize).contains(bit);
            for bit in (0..160).filter(kept) {
                let mask = 0x80 >> (bit % 8);
                assert_eq!(bytes[bit / 8] & mask, before[bit / 8] & mask);
            }
        }
    }
}
