//! Hashes: fields and values, counters in fields, random fields.

use keyspace::effects::class;
use keyspace::raw::packed::Element;
use keyspace::types::hash::{Hash, HashLimits};
use resp::{Args, Writer, number};

use crate::command::{
    Command, DENY_OOM, FAST, Family, Flags, Group, RANDOM, READONLY, RM, RO, RO_META, RW,
    RW_INSERT, RW_UPDATE, WRITE, first,
};
use crate::context::Context;
use crate::elements::{self, Draw, ScanReply, empty_scan};
use crate::error::Error;
use crate::long_double::LongDouble;
use crate::words::{Scanned, cursor, integer, is, scan_options};

const SET: Flags = WRITE.with(DENY_OOM).with(FAST);
const GET: Flags = READONLY.with(FAST);

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Hash,
    commands: &[
        Command {
            name: "HSET",
            run: hset,
            flags: SET,
            keys: &[first(RW_UPDATE)],
            element: 2,
            usage: "key field value [field value ...]",
            summary: "Sets fields of a hash.",
            complexity: "O(N), N = fields set",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HMSET",
            run: hmset,
            flags: SET,
            keys: &[first(RW_UPDATE)],
            usage: "key field value [field value ...]",
            summary: "Sets fields of a hash; HSET's old name.",
            complexity: "O(N), N = fields set",
            since: "2.0.0",
            deprecated: Some(("4.0.0", "HSET with several fields")),
            ..Command::DEFAULT
        },
        Command {
            name: "HSETNX",
            run: hsetnx,
            flags: SET,
            keys: &[first(RW_INSERT)],
            element: 2,
            usage: "key field value",
            summary: "Sets a field of a hash that is not there yet.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HGET",
            run: hget,
            flags: GET,
            keys: &[first(RO)],
            element: 2,
            usage: "key field",
            summary: "Returns the value of a field of a hash.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HMGET",
            run: hmget,
            flags: GET,
            keys: &[first(RO)],
            usage: "key field [field ...]",
            summary: "Returns the values of several fields of a hash.",
            complexity: "O(N), N = fields asked for",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HGETALL",
            run: hgetall,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns all fields of a hash with their values.",
            complexity: "O(N), N = fields",
            since: "2.0.0",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "HKEYS",
            run: hkeys,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns all fields of a hash.",
            complexity: "O(N), N = fields",
            since: "2.0.0",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "HVALS",
            run: hvals,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns the values of all fields of a hash.",
            complexity: "O(N), N = fields",
            since: "2.0.0",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "HLEN",
            run: hlen,
            flags: GET,
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns how many fields a hash has.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HDEL",
            run: hdel,
            flags: WRITE.with(FAST),
            keys: &[first(RM)],
            element: 2,
            usage: "key field [field ...]",
            summary: "Takes fields out of a hash.",
            complexity: "O(N), N = fields taken out",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HEXISTS",
            run: hexists,
            flags: GET,
            keys: &[first(RO_META)],
            element: 2,
            usage: "key field",
            summary: "Says whether a hash has a field.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HSTRLEN",
            run: hstrlen,
            flags: GET,
            keys: &[first(RO_META)],
            element: 2,
            usage: "key field",
            summary: "Returns the length of the value of a field, in bytes.",
            since: "3.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HINCRBY",
            run: hincrby,
            flags: SET,
            keys: &[first(RW)],
            element: 2,
            usage: "key field increment",
            summary: "Adds to the integer value of a field.",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HINCRBYFLOAT",
            run: hincrbyfloat,
            flags: SET,
            keys: &[first(RW)],
            usage: "key field increment",
            summary: "Adds to the floating-point value of a field.",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "HRANDFIELD",
            run: hrandfield,
            flags: READONLY.with(RANDOM),
            keys: &[first(RO)],
            usage: "key [count [WITHVALUES]]",
            summary: "Returns random fields of a hash.",
            complexity: "O(N), N = fields returned",
            since: "6.2.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "HSCAN",
            run: hscan,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
            summary: "Returns the fields of a hash bit by bit.",
            complexity: "O(1) for each call, O(N) for all, N = fields",
            since: "2.8.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
    ],
};

fn limits(cx: &Context<'_>) -> HashLimits {
    cx.keys.space().settings.hash_limits()
}

/// What follows a change of a hash by `count` fields.
fn changed(cx: &mut Context<'_>, key: &[u8], event: &'static str, count: usize) {
    cx.changed_elements(class::HASH, event, key, count);
}

// Setting.

fn hset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let created = set_pairs(cx, args)?;
    cx.out.count(created);
    Ok(())
}

fn hmset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    set_pairs(cx, args)?;
    cx.out.ok();
    Ok(())
}

/// Sets the fields that the words name; returns how many are new.
fn set_pairs(cx: &mut Context<'_>, args: Args<'_>) -> Result<usize, Error> {
    if args.len() % 2 == 1 {
        return Err(Error::wrong_arity(cx.command_name()));
    }
    let key = args.word(1);
    let limits = limits(cx);
    let hash = cx.keys.hash_or_new(key)?;
    let count = args.len() / 2 - 1;
    if count > 1 {
        let longest = args.iter().skip(2).map(<[u8]>::len).max();
        hash.expect_fields(count, longest.unwrap_or(0), limits);
    }
    let mut created = 0;
    for at in (2..args.len()).step_by(2) {
        created += usize::from(hash.set(args.word(at), args.word(at + 1), limits));
    }
    changed(cx, key, "hset", count);
    Ok(created)
}

fn hsetnx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, field) = (args.word(1), args.word(2));
    let limits = limits(cx);
    let hash = cx.keys.hash_or_new(key)?;
    let fresh = !hash.contains(field);
    if fresh {
        hash.set(field, args.word(3), limits);
        changed(cx, key, "hset", 1);
    }
    cx.out.flag(fresh);
    Ok(())
}

fn hdel(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let Some(hash) = cx.keys.hash_mut(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    let gone = args.iter().skip(2).filter(|field| hash.remove(field)).count();
    cx.out.count(gone);
    if gone > 0 {
        changed(cx, key, "hdel", gone);
        cx.keys.remove_if_empty(key);
    }
    Ok(())
}

fn hincrby(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const NOT_AN_INTEGER: Error = Error::text("ERR hash value is not an integer");
    let (key, field, increment) = (args.word(1), args.word(2), integer(args.word(3))?);
    let old = match cx.keys.hash(key)?.and_then(|hash| hash.get(field)) {
        None => 0,
        Some(Element::Int(number)) => number,
        Some(Element::Str(text)) => number::integer(text).ok_or(NOT_AN_INTEGER)?,
    };
    let new = old.checked_add(increment).ok_or(Error::OVERFLOW)?;
    let limits = limits(cx);
    let mut text = itoa::Buffer::new();
    cx.keys.hash_or_new(key)?.change(field, text.format(new).as_bytes(), limits);
    cx.out.int(new);
    changed(cx, key, "hincrby", 1);
    Ok(())
}

fn hincrbyfloat(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const NOT_A_FLOAT: Error = Error::text("ERR hash value is not a float");
    let (key, field) = (args.word(1), args.word(2));
    let increment = LongDouble::parse(args.word(3)).ok_or(Error::NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let old = match cx.keys.hash(key)?.and_then(|hash| hash.get(field)) {
        None => LongDouble::from_int(0),
        Some(Element::Int(number)) => LongDouble::from_int(number),
        Some(Element::Str(text)) => LongDouble::parse(text).ok_or(NOT_A_FLOAT)?,
    };
    if !old.is_finite() || !old.plus(increment).is_finite() {
        return Err(Error::NAN_OR_INFINITY);
    }
    let limits = limits(cx);
    let text = old.plus(increment).text();
    let hash = cx.keys.hash_or_new(key)?;
    hash.change(field, text.as_bytes(), limits);
    let expires = hash.expire_at(field).flatten().is_some();
    cx.out.text(&text);
    changed(cx, key, "hincrbyfloat", 1);
    let text = text.as_bytes();
    if expires {
        cx.keys.rewrite(&[b"HSETEX", key, b"KEEPTTL", b"FIELDS", b"1", field, text]);
    } else {
        cx.keys.rewrite(&[b"HSET", key, field, text]);
    }
    Ok(())
}

// Getting.

fn write_value(out: &mut Writer, value: Option<Element<'_>>) {
    match value {
        Some(value) => elements::write(out, value),
        None => out.null(),
    }
}

fn hget(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    match cx.keys.hash(key)? {
        Some(hash) => write_value(cx.out, hash.get(args.word(2))),
        None => {
            cx.out.null();
            cx.keys.notify_miss(key);
        }
    }
    Ok(())
}

fn hmget(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let hash = cx.keys.hash(key)?;
    let missed = hash.is_none();
    cx.out.array(args.len() - 2);
    for field in args.iter().skip(2) {
        write_value(cx.out, hash.and_then(|hash| hash.get(field)));
    }
    if missed {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn hgetall(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let Some(hash) = cx.keys.hash(key)? else {
        cx.out.map(0);
        cx.keys.notify_miss(key);
        return Ok(());
    };
    cx.out.map(hash.len());
    let out = &mut *cx.out;
    hash.iter().for_each(|(field, value)| {
        elements::write(out, field);
        elements::write(out, value);
    });
    Ok(())
}

fn hkeys(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_column(cx, args.word(1), |(field, _)| field)
}

fn hvals(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_column(cx, args.word(1), |(_, value)| value)
}

fn write_column(
    cx: &mut Context<'_>,
    key: &[u8],
    column: for<'e> fn((Element<'e>, Element<'e>)) -> Element<'e>,
) -> Result<(), Error> {
    let Some(hash) = cx.keys.hash(key)? else {
        cx.out.array(0);
        cx.keys.notify_miss(key);
        return Ok(());
    };
    cx.out.array(hash.len());
    let out = &mut *cx.out;
    hash.iter().for_each(|pair| elements::write(out, column(pair)));
    Ok(())
}

/// Answers a question about a hash with a number, 0 if there is none.
fn answer(cx: &mut Context<'_>, key: &[u8], ask: impl FnOnce(&Hash) -> usize) -> Result<(), Error> {
    let answer = cx.keys.hash(key)?.map(ask);
    cx.out.count(answer.unwrap_or(0));
    if answer.is_none() {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn hlen(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    answer(cx, args.word(1), Hash::len)
}

fn hexists(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    answer(cx, args.word(1), |hash| usize::from(hash.contains(args.word(2))))
}

fn hstrlen(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    answer(cx, args.word(1), |hash| hash.get(args.word(2)).map_or(0, Element::len))
}

/// What HRANDFIELD returns of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Fields,
    Pairs,
}

fn hrandfield(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let draw = args.get(2).map(Draw::of).transpose()?;
    let show = match args.get(3) {
        None => Show::Fields,
        Some(word) if args.len() == 4 && is(word, "WITHVALUES") => Show::Pairs,
        Some(_) => return Err(Error::SYNTAX),
    };
    let too_many = |draw| matches!(draw, Draw::Distinct(count) if count > i64::MAX as usize / 2);
    if show == Show::Pairs && draw.is_some_and(too_many) {
        return Err(Error::text("ERR value is out of range"));
    }
    let Some(hash) = cx.keys.hash(key)? else {
        match draw {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let out = &mut *cx.out;
    let random = &mut cx.keys.random.borrow_mut();
    match draw {
        None => write_value(out, hash.random(random).map(|(field, _)| field)),
        Some(Draw::Distinct(count)) => {
            write_pair_header(out, count.min(hash.len()), show);
            hash.sample(count, random, |field, value| write_pair(out, field, value, show));
        }
        Some(Draw::Repeated(count)) => {
            write_pair_header(out, count, show);
            for _ in 0..count {
                let (field, value) = hash.random(random).expect("no hash is empty");
                write_pair(out, field, value, show);
            }
        }
    }
    Ok(())
}

/// In RESP3 a field and its value are an array of their own.
fn write_pair_header(out: &mut Writer, count: usize, show: Show) {
    let flat = show == Show::Pairs && !out.is_resp3();
    out.array(if flat { count * 2 } else { count });
}

fn write_pair(out: &mut Writer, field: Element<'_>, value: Element<'_>, show: Show) {
    if show == Show::Pairs && out.is_resp3() {
        out.array(2);
    }
    elements::write(out, field);
    if show == Show::Pairs {
        elements::write(out, value);
    }
}

fn hscan(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, start) = (args.word(1), cursor(args.word(2))?);
    let Some(hash) = cx.keys.hash(key)? else {
        empty_scan(cx.out);
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let options = scan_options(args, 3, Scanned::Hash)?;
    let mut reply = ScanReply::new(&options, cx.out.is_resp3());
    let next = hash.scan(start, options.count, |field, value| {
        reply.add(field, (!options.only_names).then_some(value));
    });
    reply.finish(cx.out, next);
    Ok(())
}
