//! HyperLogLog: counting different elements in a string of at most twelve kibibytes.

use keyspace::effects::class;
use keyspace::types::hyperloglog::{self as hll, Corrupted, Encoding, REGISTERS, Registers};
use keyspace::value::ValueRef;
use resp::Args;

use crate::command::{
    ADMIN, Command, DENY_OOM, FAST, Family, Group, MAY_REPLICATE, READONLY, RO, RW_INSERT, WRITE,
    at, first, range,
};
use crate::context::Context;
use crate::error::Error;
use crate::words::is;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::HyperLogLog,
    commands: &[
        Command {
            name: "PFADD",
            run: pfadd,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW_INSERT)],
            usage: "key [element [element ...]]",
            summary: "Adds elements to a HyperLogLog.",
            complexity: "O(1) for each element",
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "PFCOUNT",
            run: pfcount,
            flags: READONLY.with(MAY_REPLICATE),
            keys: &[range(1, -1, 1, &["RW", "access"])],
            usage: "key [key ...]",
            summary: "Estimates how many different elements were added to HyperLogLogs.",
            complexity: "O(1) for one key, O(N) for N keys",
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "PFMERGE",
            run: pfmerge,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(&["RW", "access", "insert"]), range(2, -1, 1, RO)],
            usage: "destkey [sourcekey [sourcekey ...]]",
            summary: "Merges HyperLogLogs into one.",
            complexity: "O(N), N = HyperLogLogs",
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "PFDEBUG",
            run: pfdebug,
            flags: WRITE.with(DENY_OOM).with(ADMIN),
            keys: &[at(2, &["RW", "access"])],
            usage: "<GETREG | DECODE | ENCODING | TODENSE> key",
            summary: "Shows a HyperLogLog's registers and encoding.",
            complexity: "O(1)",
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "PFSELFTEST",
            run: pfselftest,
            flags: ADMIN,
            usage: "",
            summary: "Tests the HyperLogLog code.",
            complexity: "O(1)",
            since: "2.8.9",
            ..Command::DEFAULT
        },
    ],
};

/// Elements that PFSELFTEST adds: a tenth of Redis's number, a fraction of a second's work.
const SELF_TEST_ELEMENTS: u64 = 1_000_000;

impl From<Corrupted> for Error {
    fn from(_: Corrupted) -> Error {
        Error::text("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The bytes of a HyperLogLog.
fn valid(value: Option<ValueRef<'_>>) -> Result<Option<&[u8]>, Error> {
    let bytes: &[u8] = match value {
        None => return Ok(None),
        Some(ValueRef::Bytes(bytes)) => bytes,
        Some(ValueRef::Shared(bytes)) => bytes,
        Some(ValueRef::Number(_)) => &[],
        Some(_) => return Err(Error::WRONG_TYPE),
    };
    let text = "WRONGTYPE Key is not a valid HyperLogLog string value.";
    if hll::is_valid(bytes) { Ok(Some(bytes)) } else { Err(Error::text(text)) }
}

fn sparse_bytes_max(cx: &Context<'_>) -> usize {
    let settings = &cx.keys.space().settings;
    settings.hll_sparse_max_bytes.load(std::sync::atomic::Ordering::Relaxed)
}

/// Writes a HyperLogLog back where it came from; its time to live stays.
fn write_back(cx: &mut Context<'_>, key: &[u8], hll: &[u8]) -> Result<(), Error> {
    cx.keys.string_bytes(key, hll.len())?.copy_from_slice(hll);
    Ok(())
}

fn added(cx: &mut Context<'_>, key: &[u8]) {
    cx.keys.changed(key);
    cx.keys.notify(class::STRING, "pfadd", key);
}

fn pfadd(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let elements = args.iter().skip(2);
    let sparse_bytes_max = sparse_bytes_max(cx);
    let old = valid(cx.keys.peek(key))?;
    let mut is_changed = old.is_none();
    if let Some(len) = old.filter(|old| hll::encoding(old) == Encoding::Dense).map(<[u8]>::len) {
        let dense = cx.keys.string_bytes(key, len)?;
        elements.for_each(|element| is_changed |= hll::add_dense(dense, element));
        if is_changed {
            hll::invalidate(dense);
        }
    } else {
        // A sparse string may change its length at each element; it is short.
        let mut string = old.map_or_else(hll::new, <[u8]>::to_vec);
        for element in elements {
            is_changed |= hll::add(&mut string, element, sparse_bytes_max)?;
        }
        if is_changed {
            hll::invalidate(&mut string);
            write_back(cx, key, &string)?;
        }
    }
    if is_changed {
        added(cx, key);
    }
    cx.out.flag(is_changed);
    Ok(())
}

fn pfcount(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 2 {
        let (registers, _) = merge(cx, args)?;
        cx.out.int(hll::count_registers(&registers) as i64);
        return Ok(());
    }
    let key = args.word(1);
    let Some(string) = valid(cx.keys.get(key))? else {
        cx.out.count(0);
        return Ok(());
    };
    if let Some(count) = hll::cached_count(string) {
        cx.out.int(count as i64);
        return Ok(());
    }
    let (count, len) = (hll::count(string)?, string.len());
    // The count is kept in the string, which is a change like any other.
    hll::cache_count(cx.keys.string_bytes(key, len)?, count);
    cx.keys.changed(key);
    cx.out.int(count as i64);
    Ok(())
}

/// Each register's largest value among the keys from the first word on, and whether any of them
/// is dense.
fn merge(cx: &Context<'_>, args: Args<'_>) -> Result<(Box<Registers>, bool), Error> {
    let mut registers = Box::new([0; REGISTERS]);
    let mut any_dense = false;
    for key in args.iter().skip(1) {
        if let Some(string) = valid(cx.keys.get(key))? {
            any_dense |= hll::encoding(string) == Encoding::Dense;
            hll::merge(&mut registers, string)?;
        }
    }
    Ok((registers, any_dense))
}

fn pfmerge(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let (registers, any_dense) = merge(cx, args)?;
    let sparse_bytes_max = sparse_bytes_max(cx);
    let mut string = valid(cx.keys.peek(key))?.map_or_else(hll::new, <[u8]>::to_vec);
    if any_dense {
        hll::make_dense(&mut string)?;
    }
    for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        hll::raise(&mut string, index, *value, sparse_bytes_max)?;
    }
    hll::invalidate(&mut string);
    write_back(cx, key, &string)?;
    added(cx, key);
    cx.out.ok();
    Ok(())
}

/// Makes the string at a key dense; says whether it was sparse.
fn make_dense(cx: &mut Context<'_>, key: &[u8], string: &mut Vec<u8>) -> Result<bool, Error> {
    let was_sparse = hll::make_dense(string)?;
    if was_sparse {
        write_back(cx, key, string)?;
        cx.keys.changed(key);
    }
    Ok(was_sparse)
}

fn pfdebug(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (word, key) = (args.word(1), args.word(2));
    let Some(string) = valid(cx.keys.peek(key))? else {
        return Err(Error::text("ERR The specified key does not exist"));
    };
    let mut string = string.to_vec();
    if is(word, "GETREG") {
        make_dense(cx, key, &mut string)?;
        let mut registers = Box::new([0; REGISTERS]);
        hll::merge(&mut registers, &string)?;
        cx.out.array(REGISTERS);
        registers.iter().for_each(|value| cx.out.int(i64::from(*value)));
    } else if is(word, "DECODE") {
        let text = hll::decode(&string).ok_or(Error::text("ERR HLL encoding is not sparse"))?;
        cx.out.text(&text);
    } else if is(word, "ENCODING") {
        cx.out.simple(hll::encoding(&string).name());
    } else if is(word, "TODENSE") {
        let was_sparse = make_dense(cx, key, &mut string)?;
        cx.out.flag(was_sparse);
    } else {
        let word = String::from_utf8_lossy(word);
        return Err(Error::new(format!("ERR Unknown PFDEBUG subcommand '{word}'")));
    }
    Ok(())
}

fn pfselftest(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let random = &mut cx.keys.random.borrow_mut();
    hll::self_test(random, sparse_bytes_max(cx), SELF_TEST_ELEMENTS).map_err(Error::new)?;
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    /// `tests/reference.rs` compares the bytes with redis-server's.
    #[test]
    fn elements_are_counted_once() {
        Client::new().check(&[
            ("PFADD k a b c", ":1"),
            ("PFADD k a b c", ":0"),
            ("PFCOUNT k", ":3"),
            ("PFADD other c d", ":1"),
            ("PFCOUNT k other none", ":4"),
            ("PFMERGE all k other", "+OK"),
            ("PFCOUNT all", ":4"),
            ("PFADD empty", ":1"),
            ("PFCOUNT empty", ":0"),
            ("PFDEBUG DECODE k", "$44 Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603"),
            ("PFDEBUG ENCODING k", "+sparse"),
            ("PFDEBUG TODENSE k", ":1"),
            ("PFDEBUG TODENSE k", ":0"),
            ("PFADD k a e", ":1"),
            ("PFCOUNT k", ":4"),
            ("STRLEN k", ":12304"),
        ]);
    }

    #[test]
    fn other_strings_are_refused() {
        Client::new().check(&[
            ("SET text x", "+OK"),
            ("PFADD text a", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
            ("ZADD z 1 a", ":1"),
            ("PFADD z a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("PFADD k a", ":1"),
            ("SETRANGE k 17 x", ":21"),
            ("PFCOUNT k other", "-INVALIDOBJ Corrupted HLL object detected"),
            ("PFCOUNT k", "-INVALIDOBJ Corrupted HLL object detected"),
        ]);
    }
}
