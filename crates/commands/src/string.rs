//! Strings: SET, GET and their kin, counters, ranges, LCS.

use keyspace::effects::class;
use keyspace::keys::Expire;
use keyspace::raw::entry::NewValue;
use keyspace::value::{Value, ValueRef};
use resp::{Args, Writer, number};

use crate::command::{
    Command, DENY_OOM, FAST, Family, Group, OW, READONLY, RO, RO_META, RW, RW_INSERT, RW_TAKE,
    RW_UPDATE, WRITE, first, range,
};
use crate::context::Context;
use crate::error::Error;
use crate::lcs;
use crate::long_double::LongDouble;
use crate::words::{Unit, expire_at_ms, integer, is};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::String,
    commands: &[
        Command {
            name: "SET",
            run: set,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(&["RW", "access", "update", "variable_flags"])],
            usage: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | \
                    EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
            summary: "Sets the string value of a key, whatever its type.",
            ..Command::DEFAULT
        },
        Command {
            name: "GET",
            run: get,
            flags: READONLY.with(FAST),
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns the string value of a key.",
            ..Command::DEFAULT
        },
        Command {
            name: "SETNX",
            run: setnx,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(&["OW", "insert"])],
            usage: "key value",
            summary: "Sets the string value of a key that is not there yet.",
            deprecated: Some(("2.6.12", "SET with NX")),
            ..Command::DEFAULT
        },
        Command {
            name: "SETEX",
            run: setex,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(OW)],
            usage: "key seconds value",
            summary: "Sets the string value of a key and when it expires, in seconds.",
            since: "2.0.0",
            deprecated: Some(("2.6.12", "SET with EX")),
            ..Command::DEFAULT
        },
        Command {
            name: "PSETEX",
            run: psetex,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(OW)],
            usage: "key milliseconds value",
            summary: "Sets the string value of a key and when it expires, in milliseconds.",
            since: "2.6.0",
            deprecated: Some(("2.6.12", "SET with PX")),
            ..Command::DEFAULT
        },
        Command {
            name: "GETSET",
            run: getset,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key value",
            summary: "Sets the string value of a key and returns the one it had.",
            deprecated: Some(("6.2.0", "SET with GET")),
            ..Command::DEFAULT
        },
        Command {
            name: "GETDEL",
            run: getdel,
            flags: WRITE.with(FAST),
            keys: &[first(RW_TAKE)],
            usage: "key",
            summary: "Returns the string value of a key and deletes the key.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GETEX",
            run: getex,
            flags: WRITE.with(FAST),
            keys: &[first(RW)],
            usage: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                    PXAT unix-time-milliseconds | PERSIST]",
            summary: "Returns the string value of a key and sets when it expires.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "MGET",
            run: mget,
            flags: READONLY.with(FAST),
            keys: &[range(1, -1, 1, RO)],
            usage: "key [key ...]",
            summary: "Returns the string values of several keys at one moment.",
            complexity: "O(N), N = keys",
            tips: &["request_policy:multi_shard"],
            ..Command::DEFAULT
        },
        Command {
            name: "MSET",
            run: mset,
            flags: WRITE.with(DENY_OOM),
            keys: &[range(1, -1, 2, OW)],
            usage: "key value [key value ...]",
            summary: "Sets the string values of several keys at one moment.",
            complexity: "O(N), N = keys",
            since: "1.0.1",
            tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "MSETNX",
            run: msetnx,
            flags: WRITE.with(DENY_OOM),
            keys: &[range(1, -1, 2, &["OW", "insert"])],
            usage: "key value [key value ...]",
            summary: "Sets several keys, if none of them is there yet.",
            complexity: "O(N), N = keys",
            since: "1.0.1",
            ..Command::DEFAULT
        },
        Command {
            name: "APPEND",
            run: append,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW_INSERT)],
            usage: "key value",
            summary: "Appends to a string and returns its new length.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "STRLEN",
            run: strlen,
            flags: READONLY.with(FAST),
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns the length of a string, in bytes.",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SETRANGE",
            run: setrange,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(RW_UPDATE)],
            usage: "key offset value",
            summary: "Overwrites a part of a string, filling up with zero bytes.",
            complexity: "O(M), M = length of the value",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GETRANGE",
            run: getrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start end",
            summary: "Returns a part of a string.",
            complexity: "O(N), N = length of the part",
            since: "2.4.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SUBSTR",
            run: getrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start end",
            summary: "Returns a part of a string; GETRANGE's old name.",
            complexity: "O(N), N = length of the part",
            deprecated: Some(("2.0.0", "GETRANGE")),
            ..Command::DEFAULT
        },
        Command {
            name: "INCR",
            run: incr,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key",
            summary: "Adds one to the integer value of a key.",
            ..Command::DEFAULT
        },
        Command {
            name: "DECR",
            run: decr,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key",
            summary: "Takes one from the integer value of a key.",
            ..Command::DEFAULT
        },
        Command {
            name: "INCRBY",
            run: incrby,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key increment",
            summary: "Adds to the integer value of a key.",
            ..Command::DEFAULT
        },
        Command {
            name: "DECRBY",
            run: decrby,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key decrement",
            summary: "Takes from the integer value of a key.",
            ..Command::DEFAULT
        },
        Command {
            name: "INCRBYFLOAT",
            run: incrbyfloat,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key increment",
            summary: "Adds to the floating-point value of a key.",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        lcs::ROW,
    ],
};

/// Writes a string value as a bulk string; other types are an error.
fn write_string(out: &mut Writer, value: ValueRef<'_>) -> Result<(), Error> {
    match value {
        ValueRef::Bytes(bytes) => out.bulk(bytes),
        ValueRef::Number(number) => out.bulk_int(number),
        ValueRef::Shared(block) => out.bulk_shared(block),
        _ => return Err(Error::WRONG_TYPE),
    }
    Ok(())
}

/// A string's bytes, or `None` if there is no such key. Numbers are written into `text`.
pub fn string_bytes<'v>(
    value: Option<ValueRef<'v>>,
    text: &'v mut itoa::Buffer,
) -> Result<Option<&'v [u8]>, Error> {
    Ok(match value {
        None => None,
        Some(ValueRef::Bytes(bytes)) => Some(bytes),
        Some(ValueRef::Shared(block)) => Some(block),
        Some(ValueRef::Number(number)) => Some(text.format(number).as_bytes()),
        Some(_) => return Err(Error::WRONG_TYPE),
    })
}

/// The value that a word becomes: a number, a block of its own, or bytes to be copied.
#[inline]
fn value_of<'a>(args: Args<'a>, index: usize) -> NewValue<'a> {
    let word = args.word(index);
    if word.len() <= 20
        && let Some(number) = number::integer(word)
    {
        return NewValue::Value(Value::Number(number));
    }
    match args.block(index) {
        Some(block) => NewValue::Value(Value::Bytes(block.clone())),
        None => NewValue::Bytes(word),
    }
}

/// What SET's options ask for.
struct SetOptions {
    expire: Expire,
    /// NX: false, XX: true.
    must_exist: Option<bool>,
    get: bool,
    /// Whether a time was given relative to now, so that the log needs it in absolute form.
    unit: Option<Unit>,
}

fn set_options(cx: &Context<'_>, args: Args<'_>) -> Result<SetOptions, Error> {
    let mut options =
        SetOptions { expire: Expire::Never, must_exist: None, get: false, unit: None };
    let mut keep = false;
    let mut at = 3;
    while at < args.len() {
        let word = args.word(at);
        if is(word, "NX") && options.must_exist != Some(true) {
            options.must_exist = Some(false);
        } else if is(word, "XX") && options.must_exist != Some(false) {
            options.must_exist = Some(true);
        } else if is(word, "GET") {
            options.get = true;
        } else if is(word, "KEEPTTL") && options.unit.is_none() {
            keep = true;
            options.expire = Expire::Keep;
        } else if let (Some(unit), Some(time)) = (Unit::of(word), args.get(at + 1))
            && options.unit.is_none()
            && !keep
        {
            let when = expire_at_ms(time, unit, cx.keys.now_ms(), cx.command_name())?;
            options.expire = Expire::At(when);
            options.unit = Some(unit);
            at += 1;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

fn set(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    if args.len() == 3 {
        cx.keys.set(key, value_of(args, 2), Expire::Never);
        cx.keys.notify(class::STRING, "set", key);
        cx.out.ok();
        return Ok(());
    }
    let options = set_options(cx, args)?;
    if options.get {
        match cx.keys.get(key) {
            Some(value) => write_string(cx.out, value)?,
            None => cx.out.null(),
        }
    }
    if options.must_exist.is_some_and(|must| must != cx.keys.exists(key)) {
        if !options.get {
            cx.out.null();
        }
        return Ok(());
    }
    set_and_log(cx, args, 2, options.expire);
    if !options.get {
        cx.out.ok();
    }
    Ok(())
}

/// Sets a key to a word, with the events and the log record of SET. A time in the past deletes
/// the key, as in Redis.
fn set_and_log(cx: &mut Context<'_>, args: Args<'_>, value: usize, expire: Expire) {
    let key = args.word(1);
    cx.keys.set(key, value_of(args, value), expire);
    cx.keys.notify(class::STRING, "set", key);
    if let Expire::At(when) = expire {
        cx.keys.notify(class::GENERIC, "expire", key);
        let when = when.to_string();
        cx.keys.rewrite(&[b"SET", key, args.word(value), b"PXAT", when.as_bytes()]);
    }
}

fn setnx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let fresh = !cx.keys.exists(args.word(1));
    if fresh {
        set_and_log(cx, args, 2, Expire::Never);
    }
    cx.out.flag(fresh);
    Ok(())
}

fn setex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    set_with_time(cx, args, Unit::Seconds)
}

fn psetex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    set_with_time(cx, args, Unit::Milliseconds)
}

fn set_with_time(cx: &mut Context<'_>, args: Args<'_>, unit: Unit) -> Result<(), Error> {
    let when = expire_at_ms(args.word(2), unit, cx.keys.now_ms(), cx.command_name())?;
    set_and_log(cx, args, 3, Expire::At(when));
    cx.out.ok();
    Ok(())
}

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    match cx.keys.get(key) {
        Some(value) => write_string(cx.out, value),
        None => {
            cx.out.null();
            cx.keys.notify_miss(key);
            Ok(())
        }
    }
}

fn getset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    get(cx, args)?;
    set_and_log(cx, args, 2, Expire::Never);
    let (key, value) = (args.word(1), args.word(2));
    cx.keys.rewrite(&[b"SET", key, value]);
    Ok(())
}

fn getdel(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    get(cx, args)?;
    if cx.keys.remove(key) {
        cx.keys.notify(class::GENERIC, "del", key);
        cx.keys.rewrite(&[b"DEL", key]);
    }
    Ok(())
}

fn getex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let change = match (args.get(2), args.get(3), args.len()) {
        (None, ..) => None,
        (Some(word), None, _) if is(word, "PERSIST") => Some(None),
        (Some(word), Some(time), 4) => {
            let unit = Unit::of(word).ok_or(Error::SYNTAX)?;
            Some(Some(expire_at_ms(time, unit, cx.keys.now_ms(), cx.command_name())?))
        }
        _ => return Err(Error::SYNTAX),
    };
    get(cx, args)?;
    match change {
        Some(Some(when)) if cx.keys.exists(key) && cx.keys.is_past(when) => {
            cx.keys.remove(key);
            cx.keys.notify(class::GENERIC, "del", key);
            cx.keys.rewrite(&[b"DEL", key]);
        }
        Some(Some(when)) if cx.keys.set_expire_at(key, Some(when)) => {
            cx.keys.changed(key);
            cx.keys.notify(class::GENERIC, "expire", key);
            cx.keys.rewrite(&[b"PEXPIREAT", key, when.to_string().as_bytes()]);
        }
        Some(None) if cx.keys.expire_at(key).flatten().is_some() => {
            cx.keys.set_expire_at(key, None);
            cx.keys.changed(key);
            cx.keys.notify(class::GENERIC, "persist", key);
            cx.keys.rewrite(&[b"PERSIST", key]);
        }
        _ => {}
    }
    Ok(())
}

fn mget(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.out.array(args.len() - 1);
    for key in args.iter().skip(1) {
        match cx.keys.get(key) {
            Some(value) if write_string(cx.out, value).is_ok() => {}
            _ => cx.out.null(),
        }
    }
    Ok(())
}

fn check_pairs(cx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len().is_multiple_of(2) { Err(Error::wrong_arity(cx.command_name())) } else { Ok(()) }
}

fn set_pairs(cx: &mut Context<'_>, args: Args<'_>) {
    for index in (1..args.len()).step_by(2) {
        cx.keys.set(args.word(index), value_of(args, index + 1), Expire::Never);
        cx.keys.notify(class::STRING, "set", args.word(index));
    }
}

fn mset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    check_pairs(cx, args)?;
    set_pairs(cx, args);
    cx.out.ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    check_pairs(cx, args)?;
    let free = args.iter().skip(1).step_by(2).all(|key| !cx.keys.exists(key));
    if free {
        set_pairs(cx, args);
    }
    cx.out.flag(free);
    Ok(())
}

fn check_length(cx: &Context<'_>, len: usize) -> Result<(), Error> {
    let max = &cx.keys.space().settings.proto_max_bulk_len;
    let max = max.load(std::sync::atomic::Ordering::Relaxed);
    if len as u64 > max { Err(Error::STRING_TOO_LONG) } else { Ok(()) }
}

/// A string's length in bytes, 0 if there is no such key.
pub fn string_len(value: Option<ValueRef<'_>>) -> Result<usize, Error> {
    Ok(string_bytes(value, &mut itoa::Buffer::new())?.map_or(0, <[u8]>::len))
}

fn append(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, more) = (args.word(1), args.word(2));
    let Some(value) = cx.keys.peek(key) else {
        cx.keys.set(key, value_of(args, 2), Expire::Never);
        cx.keys.notify(class::STRING, "append", key);
        cx.out.count(more.len());
        return Ok(());
    };
    let old = string_len(Some(value))?;
    check_length(cx, old.saturating_add(more.len()))?;
    cx.keys.string_bytes(key, old + more.len())?[old..].copy_from_slice(more);
    cx.keys.changed(key);
    cx.keys.notify(class::STRING, "append", key);
    cx.out.count(old + more.len());
    Ok(())
}

fn strlen(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let len = string_len(cx.keys.get(args.word(1)))?;
    cx.out.count(len);
    Ok(())
}

fn setrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, value) = (args.word(1), args.word(3));
    let offset = integer(args.word(2))?;
    if offset < 0 {
        return Err(Error::text("ERR offset is out of range"));
    }
    let old = string_len(cx.keys.peek(key))?;
    if value.is_empty() {
        cx.out.count(old);
        return Ok(());
    }
    let end = (offset as usize).saturating_add(value.len());
    check_length(cx, end)?;
    let bytes = cx.keys.string_bytes(key, old.max(end))?;
    bytes[offset as usize..end].copy_from_slice(value);
    cx.keys.changed(key);
    cx.keys.notify(class::STRING, "setrange", key);
    cx.out.count(old.max(end));
    Ok(())
}

/// The part of `len` items that Redis's inclusive indexes mean, negative ones from the end.
pub fn range_of(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let end = if end < 0 { end + len } else { end.min(len - 1) };
    if start > end || start >= len { 0..0 } else { start as usize..end as usize + 1 }
}

fn getrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (start, end) = (integer(args.word(2))?, integer(args.word(3))?);
    let mut text = itoa::Buffer::new();
    let bytes = string_bytes(cx.keys.get(args.word(1)), &mut text)?.unwrap_or_default();
    // Two negative indexes the wrong way round mean nothing, even before the beginning.
    let part = if start < 0 && end < 0 && start > end {
        0..0
    } else {
        range_of(start, end.max(-(bytes.len() as i64)), bytes.len())
    };
    cx.out.bulk(&bytes[part]);
    Ok(())
}

fn incr(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(cx, args.word(1), 1)
}

fn decr(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(cx, args.word(1), -1)
}

fn incrby(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(cx, args.word(1), integer(args.word(2))?)
}

fn decrby(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let more = integer(args.word(2))?;
    let more = more.checked_neg().ok_or(Error::text("ERR decrement would overflow"))?;
    add(cx, args.word(1), more)
}

fn add(cx: &mut Context<'_>, key: &[u8], more: i64) -> Result<(), Error> {
    if let Some(sum) = cx.keys.add_number(key, more) {
        let new = sum.ok_or(Error::OVERFLOW)?;
        cx.keys.notify(class::STRING, "incrby", key);
        cx.out.int(new);
        return Ok(());
    }
    let old = match cx.keys.peek(key) {
        None => 0,
        Some(ValueRef::Number(number)) => number,
        Some(ValueRef::Bytes(bytes)) => integer(bytes)?,
        Some(ValueRef::Shared(_)) => return Err(Error::NOT_AN_INTEGER),
        Some(_) => return Err(Error::WRONG_TYPE),
    };
    let new = old.checked_add(more).ok_or(Error::OVERFLOW)?;
    cx.keys.set(key, NewValue::Value(Value::Number(new)), Expire::Keep);
    cx.keys.notify(class::STRING, "incrby", key);
    cx.out.int(new);
    Ok(())
}

fn incrbyfloat(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let mut text = itoa::Buffer::new();
    let old = match string_bytes(cx.keys.peek(key), &mut text)? {
        None => LongDouble::from_int(0),
        Some(bytes) => LongDouble::parse(bytes).ok_or(Error::NOT_A_FLOAT)?,
    };
    let more = LongDouble::parse(args.word(2)).ok_or(Error::NOT_A_FLOAT)?;
    if !old.is_finite() || !more.is_finite() || !old.plus(more).is_finite() {
        return Err(Error::NAN_OR_INFINITY);
    }
    let text = old.plus(more).text();
    cx.keys.set(key, NewValue::Bytes(text.as_bytes()), Expire::Keep);
    cx.keys.notify(class::STRING, "incrbyfloat", key);
    cx.keys.rewrite(&[b"SET", key, text.as_bytes(), b"KEEPTTL"]);
    cx.out.bulk(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn set_and_get() {
        Client::new().check(&[
            ("GET k", "$-1"),
            ("SET k v", "+OK"),
            ("GET k", "$1 v"),
            ("SET k w NX", "$-1"),
            ("SET k w XX GET", "$1 v"),
            ("SET k2 w XX", "$-1"),
            ("SET k2 w GET", "$-1"),
            ("SET k v NX XX", "-ERR syntax error"),
            ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k v EX abc", "-ERR value is not an integer or out of range"),
            ("SET k v EX 10 KEEPTTL", "-ERR syntax error"),
            ("SET k", "-ERR wrong number of arguments for 'set' command"),
            ("MSET a 1 b 2", "+OK"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MGET a b c", "*3 $1 1 $1 2 $-1"),
            ("MSETNX c 1 a 1", ":0"),
            ("GETDEL a", "$1 1"),
            ("GETDEL a", "$-1"),
            ("SETNX a x", ":1"),
            ("SETNX a x", ":0"),
        ]);
    }

    #[test]
    fn expiry_is_seen_at_once() {
        let mut client = Client::new();
        client.check(&[("SET k v PX 100", "+OK"), ("GET k", "$1 v")]);
        client.now_ms += 100;
        client.check(&[("GET k", "$-1"), ("SET k v KEEPTTL", "+OK"), ("GET k", "$1 v")]);
        client.now_ms += 1_000_000;
        client.check(&[("GET k", "$1 v"), ("GETEX k PX 5", "$1 v"), ("GETEX k PERSIST", "$1 v")]);
        client.now_ms += 5;
        client.check(&[("GET k", "$1 v")]);
    }

    #[test]
    fn counters() {
        Client::new().check(&[
            ("INCR n", ":1"),
            ("INCRBY n 9223372036854775806", ":9223372036854775807"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
            ("SET s abc", "+OK"),
            ("INCR s", "-ERR value is not an integer or out of range"),
            ("SET f 10.50", "+OK"),
            ("INCRBYFLOAT f 0.1", "$4 10.6"),
            ("INCRBYFLOAT f -5.0e3", "$23 -4989.39999999999999991"),
            ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
        ]);
    }

    #[test]
    fn parts_of_strings() {
        Client::new().check(&[
            ("SETRANGE k 5 abc", ":8"),
            ("GETRANGE k 0 -1", "$8 \0\0\0\0\0abc"),
            ("GETRANGE k -3 -2", "$2 ab"),
            ("GETRANGE k 100 200", "$0 "),
            ("GETRANGE k 0 -100", "$1 \0"),
            ("GETRANGE k -1 -5", "$0 "),
            ("SETRANGE k -1 x", "-ERR offset is out of range"),
            ("SETRANGE none 3 \"\"", ":0"),
            ("APPEND k de", ":10"),
            ("APPEND m 12", ":2"),
            ("APPEND m 3", ":3"),
            ("INCR m", ":124"),
            ("STRLEN m", ":3"),
        ]);
    }

    #[test]
    fn transactions_run_as_one() {
        Client::new().check(&[
            ("EXEC", "-ERR EXEC without MULTI"),
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("SET k 1", "+QUEUED"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*2 +OK :2"),
            ("MULTI", "+OK"),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("WATCH k", "+OK"),
            ("SET k 5", "+OK"),
            ("MULTI", "+OK"),
            ("GET k", "+QUEUED"),
            ("EXEC", "*-1"),
            ("WATCH k", "+OK"),
            ("UNWATCH", "+OK"),
            ("SET k 6", "+OK"),
            ("MULTI", "+OK"),
            ("GET k", "+QUEUED"),
            ("EXEC", "*1 $1 6"),
        ]);
    }
}
