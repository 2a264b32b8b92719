//! Fields of hashes with a time to live: HEXPIRE and its like, HSETEX, HGETEX, HGETDEL.
//!
//! The log gets absolute times, and HDEL for what went at once.

use keyspace::effects::class;
use resp::Args;

use crate::command::{
    Command, DENY_OOM, FAST, Family, Flags, Group, KeySpec, READONLY, RM, RO, RW_UPDATE, WRITE,
    first,
};
use crate::context::Context;
use crate::elements;
use crate::error::Error;
use crate::expire::Conditions;
use crate::words::{Unit, integer, is};

const SETS: Flags = WRITE.with(FAST);
const FILLS: Flags = WRITE.with(DENY_OOM).with(FAST);
const ASKS: Flags = READONLY.with(FAST);
const CHANGED: &[KeySpec] = &[first(RW_UPDATE)];
const READ: &[KeySpec] = &[first(RO)];
const EACH_FIELD: &str = "O(N), N = fields named";
const MOVES_ON: &[&str] = &["nondeterministic_output"];
const BASE: Command = Command { complexity: EACH_FIELD, since: "7.4.0", ..Command::DEFAULT };
const BASE_8: Command = Command { complexity: EACH_FIELD, since: "8.0.0", ..Command::DEFAULT };

/// Later times are refused, in milliseconds since 1970: Redis's bound (t_hash.c).
const TIME_MS_MAX: i64 = (1 << 46) - 1;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Hash,
    commands: &[
        Command {
            name: "HEXPIRE",
            run: |cx, args| set_time(cx, args, Unit::Seconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            summary: "Sets when fields of a hash expire, in seconds from now.",
            ..BASE
        },
        Command {
            name: "HPEXPIRE",
            run: |cx, args| set_time(cx, args, Unit::Milliseconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            summary: "Sets when fields of a hash expire, in milliseconds from now.",
            ..BASE
        },
        Command {
            name: "HEXPIREAT",
            run: |cx, args| set_time(cx, args, Unit::AtSeconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            summary: "Sets when fields of a hash expire, in seconds since 1970.",
            ..BASE
        },
        Command {
            name: "HPEXPIREAT",
            run: |cx, args| set_time(cx, args, Unit::AtMilliseconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field \
                    [field ...]",
            summary: "Sets when fields of a hash expire, in milliseconds since 1970.",
            ..BASE
        },
        Command {
            name: "HTTL",
            run: |cx, args| tell_time(cx, args, Unit::Seconds),
            flags: ASKS,
            keys: READ,
            usage: "key FIELDS numfields field [field ...]",
            summary: "Returns how long fields of a hash have to live, in seconds; -1 = for ever, \
                      -2 = no field.",
            tips: MOVES_ON,
            ..BASE
        },
        Command {
            name: "HPTTL",
            run: |cx, args| tell_time(cx, args, Unit::Milliseconds),
            flags: ASKS,
            keys: READ,
            usage: "key FIELDS numfields field [field ...]",
            summary: "Returns how long fields of a hash have to live, in milliseconds; -1 and -2 \
                      as HTTL.",
            tips: MOVES_ON,
            ..BASE
        },
        Command {
            name: "HEXPIRETIME",
            run: |cx, args| tell_time(cx, args, Unit::AtSeconds),
            flags: ASKS,
            keys: READ,
            usage: "key FIELDS numfields field [field ...]",
            summary: "Returns when fields of a hash expire, in seconds since 1970; -1 and -2 as \
                      HTTL.",
            ..BASE
        },
        Command {
            name: "HPEXPIRETIME",
            run: |cx, args| tell_time(cx, args, Unit::AtMilliseconds),
            flags: ASKS,
            keys: READ,
            usage: "key FIELDS numfields field [field ...]",
            summary: "Returns when fields of a hash expire, in milliseconds since 1970; -1 and -2 \
                      as HTTL.",
            ..BASE
        },
        Command {
            name: "HPERSIST",
            run: persist,
            flags: SETS,
            keys: CHANGED,
            usage: "key FIELDS numfields field [field ...]",
            summary: "Makes fields of a hash live for ever.",
            ..BASE
        },
        Command {
            name: "HSETEX",
            run: set_with_time,
            flags: FILLS,
            keys: CHANGED,
            usage: "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
                    unix-time-milliseconds | KEEPTTL] FIELDS numfields field value \
                    [field value ...]",
            summary: "Sets fields of a hash and when they expire.",
            ..BASE_8
        },
        Command {
            name: "HGETEX",
            run: get_with_time,
            flags: SETS,
            keys: CHANGED,
            usage: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
                    unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
            summary: "Returns the values of fields of a hash and sets when they expire.",
            ..BASE_8
        },
        Command {
            name: "HGETDEL",
            run: get_and_delete,
            flags: SETS,
            keys: &[first(RM)],
            usage: "key FIELDS numfields field [field ...]",
            summary: "Returns the values of fields of a hash and takes them out.",
            ..BASE_8
        },
    ],
};

const NO_FIELDS: Error =
    Error::text("ERR Mandatory argument FIELDS is missing or not at the right position");
const NOT_AS_MANY: Error =
    Error::text("ERR The `numfields` parameter must match the number of arguments");
const NO_COUNT: Error = Error::text("ERR Number of fields must be a positive integer");
const NO_COUNT_TO_EXPIRE: Error = Error::text("ERR Parameter `numFields` should be greater than 0");

/// The words after `FIELDS count`, which stands at `at`: `width` words for each field.
fn fields(args: Args<'_>, at: usize, width: usize, no_count: Error) -> Result<Args<'_>, Error> {
    if !args.get(at).is_some_and(|word| is(word, "FIELDS")) {
        return Err(NO_FIELDS);
    }
    let count = args.get(at + 1).and_then(|word| integer(word).ok()).filter(|count| *count > 0);
    let count = count.ok_or(no_count)?;
    let words = args.from(at + 2);
    let is_so = usize::try_from(count).ok().and_then(|count| count.checked_mul(width));
    if is_so == Some(words.len()) { Ok(words) } else { Err(NOT_AS_MANY) }
}

/// The time that a word means, in milliseconds since 1970.
fn time_ms(cx: &Context<'_>, word: &[u8], unit: Unit) -> Result<i64, Error> {
    let number = integer(word)?;
    if number < 0 {
        return Err(Error::text("ERR invalid expire time, must be >= 0"));
    }
    let ms = match unit {
        Unit::Seconds | Unit::AtSeconds => number.checked_mul(1000),
        Unit::Milliseconds | Unit::AtMilliseconds => Some(number),
    };
    let at = match unit {
        Unit::Seconds | Unit::Milliseconds => ms.and_then(|ms| ms.checked_add(cx.keys.now_ms())),
        Unit::AtSeconds | Unit::AtMilliseconds => ms,
    };
    let at = at.filter(|at| *at <= TIME_MS_MAX);
    at.ok_or_else(|| Error::invalid_expire(cx.command_name()))
}

/// What becomes of the times of fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Keep,
    Never,
    At(i64),
}

/// Gives fields that are there their times, or takes them out where that is past; tells the log
/// and the watchers.
fn apply(cx: &mut Context<'_>, key: &[u8], fields: &[&[u8]], at: Option<i64>) -> Result<(), Error> {
    if fields.is_empty() {
        return Ok(());
    }
    let is_past = at.is_some_and(|at| cx.keys.is_past(at));
    let Some(hash) = cx.keys.hash_mut(key)? else { return Ok(()) };
    for field in fields {
        if is_past {
            hash.remove(field)
        } else {
            hash.set_expire_at(field, at)
        };
    }
    if let (false, Some(at)) = (is_past, at) {
        cx.keys.field_expires(key, at);
    }
    let (event, command): (_, &[u8]) = match at {
        _ if is_past => ("hdel", b"HDEL"),
        Some(_) => ("hexpire", b"HPEXPIREAT"),
        None => ("hpersist", b"HPERSIST"),
    };
    cx.changed_elements(class::HASH, event, key, fields.len());
    let (mut time, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let mut words = vec![command, key];
    words.extend(at.filter(|_| !is_past).map(|at| time.format(at).as_bytes()));
    if !is_past {
        words.extend([&b"FIELDS"[..], count.format(fields.len()).as_bytes()]);
    }
    words.extend(fields);
    cx.keys.rewrite(&words);
    if is_past {
        cx.keys.remove_if_empty(key);
    }
    Ok(())
}

fn set_time(cx: &mut Context<'_>, args: Args<'_>, unit: Unit) -> Result<(), Error> {
    const SET: i64 = 1;
    const DELETED: i64 = 2;
    let key = args.word(1);
    cx.keys.hash(key)?;
    let at = time_ms(cx, args.word(2), unit)?;
    let condition = Conditions::one_of(args.word(3));
    let fields = fields(args, 3 + usize::from(condition.is_some()), 1, NO_COUNT_TO_EXPIRE)?;
    let condition = condition.unwrap_or_default();
    let done = if cx.keys.is_past(at) { DELETED } else { SET };
    cx.out.array(fields.len());
    let mut chosen = Vec::new();
    let hash = cx.keys.hash(key)?;
    for field in fields.iter() {
        // A field that comes twice is gone at the second time, or has its new time.
        let is_again = chosen.contains(&field);
        let old = match hash.and_then(|hash| hash.expire_at(field)) {
            Some(_) if is_again && done == SET => Some(Some(at)),
            _ if is_again => None,
            old => old,
        };
        cx.out.int(match old {
            None => -2,
            Some(old) if !condition.allow(old, at) => 0,
            Some(_) => {
                if !is_again {
                    chosen.push(field);
                }
                done
            }
        });
    }
    apply(cx, key, &chosen, Some(at))
}

fn tell_time(cx: &mut Context<'_>, args: Args<'_>, unit: Unit) -> Result<(), Error> {
    let key = args.word(1);
    cx.keys.hash(key)?;
    let fields = fields(args, 2, 1, NO_COUNT)?;
    let now = cx.keys.now_ms();
    let hash = cx.keys.hash(key)?;
    // Rounded up, as Redis does it.
    let seconds = |ms: i64| ms.saturating_add(999) / 1000;
    cx.out.array(fields.len());
    for field in fields.iter() {
        cx.out.int(match (hash.and_then(|hash| hash.expire_at(field)), unit) {
            (None, _) => -2,
            (Some(None), _) => -1,
            (Some(Some(at)), Unit::Seconds) => seconds(at - now),
            (Some(Some(at)), Unit::Milliseconds) => at - now,
            (Some(Some(at)), Unit::AtSeconds) => seconds(at),
            (Some(Some(at)), Unit::AtMilliseconds) => at,
        });
    }
    Ok(())
}

fn persist(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    cx.keys.hash(key)?;
    let fields = fields(args, 2, 1, NO_COUNT)?;
    let hash = cx.keys.hash(key)?;
    let mut chosen = Vec::new();
    cx.out.array(fields.len());
    for field in fields.iter() {
        cx.out.int(match hash.and_then(|hash| hash.expire_at(field)) {
            None => -2,
            Some(Some(_)) if !chosen.contains(&field) => {
                chosen.push(field);
                1
            }
            Some(_) => -1,
        });
    }
    apply(cx, key, &chosen, None)
}

/// The options before FIELDS of HSETEX and HGETEX; `keeps` is the one that takes no time.
struct Options {
    times: Times,
    only_if: Option<bool>,
    /// Where FIELDS stands.
    at: usize,
}

fn options(cx: &Context<'_>, args: Args<'_>, keeps: (&str, Times)) -> Result<Options, Error> {
    let is_setting = keeps.1 == Times::Keep;
    let default = if is_setting { Times::Never } else { Times::Keep };
    let mut options = Options { times: default, only_if: None, at: 2 };
    let mut is_timed = false;
    while let Some(word) = args.get(options.at).filter(|word| !is(word, "FIELDS")) {
        let condition = [("FNX", false), ("FXX", true)];
        let condition = condition.into_iter().find(|(name, _)| is_setting && is(word, name));
        let unit = Unit::of(word);
        if let Some((_, wanted)) = condition {
            if options.only_if.replace(wanted).is_some() {
                let text = "ERR Only one of FXX or FNX arguments can be specified";
                return Err(Error::text(text));
            }
        } else if unit.is_some() || is(word, keeps.0) {
            if std::mem::replace(&mut is_timed, true) {
                return Err(Error::new(format!(
                    "ERR Only one of EX, PX, EXAT, PXAT or {} arguments can be specified",
                    keeps.0
                )));
            }
            options.times = keeps.1;
            if let Some(unit) = unit {
                options.at += 1;
                let missing = Error::text("ERR missing expire time");
                let word = args.get(options.at).ok_or(missing)?;
                options.times = Times::At(time_ms(cx, word, unit)?);
            }
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(Error::new(format!("ERR unknown argument: {word}")));
        }
        options.at += 1;
    }
    Ok(options)
}

fn set_with_time(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    cx.keys.hash(key)?;
    let options = options(cx, args, ("KEEPTTL", Times::Keep))?;
    let pairs = fields(args, options.at, 2, NO_COUNT)?;
    let names = || pairs.iter().step_by(2);
    let hash = cx.keys.hash(key)?;
    let has = |field: &[u8]| hash.is_some_and(|hash| hash.contains(field));
    if options.only_if.is_some_and(|wanted| names().any(|field| has(field) != wanted)) {
        cx.out.int(0);
        return Ok(());
    }
    let limits = cx.keys.space().settings.hash_limits();
    let hash = cx.keys.hash_or_new(key)?;
    for (field, value) in names().zip(pairs.iter().skip(1).step_by(2)) {
        match options.times {
            Times::Keep => hash.change(field, value, limits),
            _ => hash.set(field, value, limits),
        };
    }
    cx.changed_elements(class::HASH, "hset", key, pairs.len() / 2);
    if let Times::At(at) = options.times {
        let words: Vec<&[u8]> = [&b"HSET"[..], key].into_iter().chain(pairs.iter()).collect();
        cx.keys.rewrite(&words);
        let mut chosen: Vec<&[u8]> = names().collect();
        chosen.sort_unstable();
        chosen.dedup();
        apply(cx, key, &chosen, Some(at))?;
    }
    cx.out.int(1);
    Ok(())
}

/// Answers with the values of the fields; returns those that are there, each once.
fn write_values<'f>(
    cx: &mut Context<'_>,
    key: &[u8],
    fields: Args<'f>,
) -> Result<Vec<&'f [u8]>, Error> {
    let hash = cx.keys.hash(key)?;
    let mut there = Vec::new();
    cx.out.array(fields.len());
    for field in fields.iter() {
        let value = hash.and_then(|hash| hash.get(field));
        match value {
            Some(value) => elements::write(cx.out, value),
            None => cx.out.null(),
        }
        if value.is_some() && !there.contains(&field) {
            there.push(field);
        }
    }
    Ok(there)
}

fn get_with_time(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    cx.keys.hash(key)?;
    let options = options(cx, args, ("PERSIST", Times::Never))?;
    let fields = fields(args, options.at, 1, NO_COUNT)?;
    let mut there = write_values(cx, key, fields)?;
    match options.times {
        Times::Keep => Ok(()),
        Times::At(at) => apply(cx, key, &there, Some(at)),
        Times::Never => {
            if let Some(hash) = cx.keys.hash(key)? {
                there.retain(|field| hash.expire_at(field).flatten().is_some());
            }
            apply(cx, key, &there, None)
        }
    }
}

fn get_and_delete(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    cx.keys.hash(key)?;
    let fields = fields(args, 2, 1, NO_COUNT)?;
    // A field that comes twice is gone at the second time.
    let hash = cx.keys.hash(key)?;
    let mut there: Vec<&[u8]> = Vec::new();
    cx.out.array(fields.len());
    for field in fields.iter() {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) if !there.contains(&field) => {
                elements::write(cx.out, value);
                there.push(field);
            }
            _ => cx.out.null(),
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    if let Some(hash) = cx.keys.hash_mut(key)? {
        for field in &there {
            hash.remove(field);
        }
    }
    cx.changed_elements(class::HASH, "hdel", key, there.len());
    let words: Vec<&[u8]> = [&b"HDEL"[..], key].into_iter().chain(there).collect();
    cx.keys.rewrite(&words);
    cx.keys.remove_if_empty(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn times_of_fields_are_set_and_told() {
        Client::new().check(&[
            ("HEXPIRE h 10 FIELDS 2 a b", "*2 :-2 :-2"),
            ("HTTL h FIELDS 1 a", "*1 :-2"),
            ("HSET h a 1 b 2 c 3", ":3"),
            ("OBJECT ENCODING h", "$8 listpack"),
            ("HEXPIRE h 10 FIELDS 3 a b none", "*3 :1 :1 :-2"),
            ("OBJECT ENCODING h", "$9 hashtable"),
            ("HTTL h FIELDS 4 a b c none", "*4 :10 :10 :-1 :-2"),
            ("HPTTL h FIELDS 1 a", "*1 :10000"),
            ("HPEXPIRE h 1500 FIELDS 1 a", "*1 :1"),
            ("HTTL h FIELDS 1 a", "*1 :2"),
            ("HEXPIREAT h 1700000100 FIELDS 1 a", "*1 :1"),
            ("HEXPIRETIME h FIELDS 2 a c", "*2 :1700000100 :-1"),
            ("HPEXPIREAT h 1700000100500 FIELDS 1 a", "*1 :1"),
            ("HPEXPIRETIME h FIELDS 1 a", "*1 :1700000100500"),
            ("HPERSIST h FIELDS 4 a a c none", "*4 :1 :-1 :-1 :-2"),
            ("HTTL h FIELDS 2 a b", "*2 :-1 :10"),
            ("HSET h b 2", ":0"),
            ("HTTL h FIELDS 1 b", "*1 :-1"),
            ("HEXPIRE h 10 FIELDS 1 b", "*1 :1"),
            ("HINCRBY h b 5", ":7"),
            ("HINCRBYFLOAT h b 0.5", "$3 7.5"),
            ("HTTL h FIELDS 1 b", "*1 :10"),
            ("HEXPIRE h 0 FIELDS 3 a b a", "*3 :2 :2 :-2"),
            ("HGETALL h", "*2 $1 c $1 3"),
            ("HEXPIREAT h 1600000000 FIELDS 1 c", "*1 :2"),
            ("EXISTS h", ":0"),
        ]);
    }

    #[test]
    fn conditions_hold_for_each_field() {
        Client::new().check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HEXPIRE h 10 XX FIELDS 1 a", "*1 :0"),
            ("HEXPIRE h 10 GT FIELDS 1 a", "*1 :0"),
            ("HEXPIRE h 10 LT FIELDS 1 a", "*1 :1"),
            ("HEXPIRE h 20 NX FIELDS 2 a b", "*2 :0 :1"),
            ("HEXPIRE h 15 GT FIELDS 2 a b", "*2 :1 :0"),
            ("HEXPIRE h 16 xx FIELDS 2 a b", "*2 :1 :1"),
        ]);
    }

    #[test]
    fn values_are_set_and_read_with_times() {
        Client::new().check(&[
            ("HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1"),
            ("HTTL h FIELDS 2 a b", "*2 :10 :10"),
            ("HSETEX h FNX FIELDS 2 a 5 c 5", ":0"),
            ("HSETEX h FXX FIELDS 2 a 5 c 5", ":0"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 a 5", ":1"),
            ("HTTL h FIELDS 1 a", "*1 :10"),
            ("HSETEX h FIELDS 1 a 6", ":1"),
            ("HTTL h FIELDS 1 a", "*1 :-1"),
            ("HGETEX h FIELDS 3 a b none", "*3 $1 6 $1 2 $-1"),
            ("HGETEX h PX 2000 FIELDS 2 a none", "*2 $1 6 $-1"),
            ("HTTL h FIELDS 2 a b", "*2 :2 :10"),
            ("HGETEX h PERSIST FIELDS 1 b", "*1 $1 2"),
            ("HTTL h FIELDS 1 b", "*1 :-1"),
            ("HGETEX h EXAT 1600000000 FIELDS 1 b", "*1 $1 2"),
            ("HGETALL h", "*2 $1 a $1 6"),
            ("HGETDEL h FIELDS 3 a a none", "*3 $1 6 $-1 $-1"),
            ("EXISTS h", ":0"),
            ("HGETDEL h FIELDS 1 a", "*1 $-1"),
            ("HGETEX h FIELDS 1 a", "*1 $-1"),
            ("HSETEX h PXAT 1 FIELDS 1 a 1", ":1"),
            ("EXISTS h", ":0"),
        ]);
    }

    #[test]
    fn the_log_has_absolute_times_and_what_went() {
        let mut client = Client::new();
        for (line, logged) in [
            ("HSET h a 1 b 2", &["HSET h a 1 b 2"][..]),
            ("HEXPIRE h 10 FIELDS 3 a b c", &["HPEXPIREAT h 1700000010000 FIELDS 2 a b"]),
            ("HEXPIRE h 20 NX FIELDS 1 a", &[]),
            ("HINCRBYFLOAT h a 0.5", &["HSETEX h KEEPTTL FIELDS 1 a 1.5"]),
            ("HPERSIST h FIELDS 2 a c", &["HPERSIST h FIELDS 1 a"]),
            ("HINCRBYFLOAT h a 0.5", &["HSET h a 2"]),
            (
                "HSETEX h PX 5 FIELDS 1 c 3",
                &["MULTI", "HSET h c 3", "HPEXPIREAT h 1700000000005 FIELDS 1 c", "EXEC"],
            ),
            ("HGETEX h EXAT 1 FIELDS 1 c", &["HDEL h c"]),
            ("HGETEX h FIELDS 1 a", &[]),
            ("HGETDEL h FIELDS 2 a none", &["HDEL h a"]),
        ] {
            assert_eq!(client.logged(line), logged, "{line}");
        }
        client.now_ms += 10_000;
        assert_eq!(client.logged("SET other 1"), ["SET other 1"], "its shard was not locked");
        assert_eq!(client.logged("HGET h b"), ["DEL h"], "the last field has gone");
        client.logged("HSET h a 1 b 2");
        client.logged("HEXPIRE h 10 FIELDS 1 a");
        client.now_ms += 10_000;
        assert_eq!(client.logged("HSET h c 3"), ["HDEL h a", "HSET h c 3"]);
    }

    #[test]
    fn mistakes_are_told_in_redis_words() {
        const NO_FIELDS: &str =
            "-ERR Mandatory argument FIELDS is missing or not at the right position";
        const NOT_AS_MANY: &str =
            "-ERR The `numfields` parameter must match the number of arguments";
        const ONE_TIME: &str =
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
        Client::new().check(&[
            ("SET s v", "+OK"),
            (
                "HEXPIRE s x FIELDS 1 a",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range"),
            ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
            (
                "HPEXPIREAT h 70368744177664 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpireat' command",
            ),
            (
                "HEXPIRE h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hexpire' command",
            ),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", NO_FIELDS),
            ("HTTL h FELDS 1 a", NO_FIELDS),
            ("HEXPIRE h 1 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0"),
            ("HTTL h FIELDS x a", "-ERR Number of fields must be a positive integer"),
            ("HTTL h FIELDS 2 a", NOT_AS_MANY),
            ("HSETEX h FIELDS 1 a b c", NOT_AS_MANY),
            ("HSETEX h FIELDS 9223372036854775807 a b", NOT_AS_MANY),
            ("HSETEX h EX 1 KEEPTTL FIELDS 1 a 1", ONE_TIME),
            (
                "HSETEX h FNX FXX FIELDS 1 a 1",
                "-ERR Only one of FXX or FNX arguments can be specified",
            ),
            ("HGETEX h FNX FIELDS 1 a", "-ERR unknown argument: FNX"),
            ("HGETEX h EX 1 XX FIELDS 1 a", "-ERR unknown argument: XX"),
        ]);
    }
}
