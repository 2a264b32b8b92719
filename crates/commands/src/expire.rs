//! Time to live: the EXPIRE and TTL families, PERSIST.

use keyspace::effects::class;
use keyspace::settings::freeing;
use resp::Args;

use crate::command::{
    Command, FAST, Family, Flags, Group, KeySpec, READONLY, RO, RW_UPDATE, WRITE, first,
};
use crate::context::Context;
use crate::error::Error;
use crate::words::{Unit, integer, is};

const SETS: Flags = WRITE.with(FAST);
const ASKS: Flags = READONLY.with(FAST);
const CHANGED: &[KeySpec] = &[first(RW_UPDATE)];
const READ: &[KeySpec] = &[first(RO)];
const MOVES_ON: &[&str] = &["nondeterministic_output"];

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "EXPIRE",
            run: |cx, args| set_time(cx, args, Unit::Seconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key seconds [NX | XX | GT | LT]",
            summary: "Sets when a key expires, in seconds from now.",
            ..Command::DEFAULT
        },
        Command {
            name: "PEXPIRE",
            run: |cx, args| set_time(cx, args, Unit::Milliseconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key milliseconds [NX | XX | GT | LT]",
            summary: "Sets when a key expires, in milliseconds from now.",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "EXPIREAT",
            run: |cx, args| set_time(cx, args, Unit::AtSeconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key unix-time-seconds [NX | XX | GT | LT]",
            summary: "Sets when a key expires, in seconds since 1970.",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PEXPIREAT",
            run: |cx, args| set_time(cx, args, Unit::AtMilliseconds),
            flags: SETS,
            keys: CHANGED,
            usage: "key unix-time-milliseconds [NX | XX | GT | LT]",
            summary: "Sets when a key expires, in milliseconds since 1970.",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "TTL",
            run: |cx, args| tell_time(cx, args, Unit::Seconds),
            flags: ASKS,
            keys: READ,
            usage: "key",
            summary: "Returns how long a key has to live, in seconds; -1 = for ever, -2 = no key.",
            tips: MOVES_ON,
            ..Command::DEFAULT
        },
        Command {
            name: "PTTL",
            run: |cx, args| tell_time(cx, args, Unit::Milliseconds),
            flags: ASKS,
            keys: READ,
            usage: "key",
            summary: "Returns how long a key has to live, in milliseconds; -1 and -2 as TTL.",
            since: "2.6.0",
            tips: MOVES_ON,
            ..Command::DEFAULT
        },
        Command {
            name: "EXPIRETIME",
            run: |cx, args| tell_time(cx, args, Unit::AtSeconds),
            flags: ASKS,
            keys: READ,
            usage: "key",
            summary: "Returns when a key expires, in seconds since 1970; -1 and -2 as TTL.",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PEXPIRETIME",
            run: |cx, args| tell_time(cx, args, Unit::AtMilliseconds),
            flags: ASKS,
            keys: READ,
            usage: "key",
            summary: "Returns when a key expires, in milliseconds since 1970; -1 and -2 as TTL.",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PERSIST",
            run: persist,
            flags: SETS,
            keys: CHANGED,
            usage: "key",
            summary: "Makes a key live for ever.",
            since: "2.2.0",
            ..Command::DEFAULT
        },
    ],
};

/// Under which conditions EXPIRE sets a time.
#[derive(Default)]
pub(crate) struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    /// The one condition that a word names, if it does.
    pub(crate) fn one_of(word: &[u8]) -> Option<Conditions> {
        let one = Conditions {
            nx: is(word, "NX"),
            xx: is(word, "XX"),
            gt: is(word, "GT"),
            lt: is(word, "LT"),
        };
        (one.nx || one.xx || one.gt || one.lt).then_some(one)
    }

    fn of(args: Args<'_>) -> Result<Conditions, Error> {
        let mut all = Conditions::default();
        for word in args.from(3).iter() {
            let names = [
                ("NX", &mut all.nx),
                ("XX", &mut all.xx),
                ("GT", &mut all.gt),
                ("LT", &mut all.lt),
            ];
            match names.into_iter().find(|(name, _)| is(word, name)) {
                Some((_, condition)) => *condition = true,
                None => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Error::new(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if all.nx && (all.xx || all.gt || all.lt) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Error::text(text));
        }
        if all.gt && all.lt {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(Error::text(text));
        }
        Ok(all)
    }

    /// Whether a key that expires at `old` may expire at `new`. No time to live is longer than any.
    pub(crate) fn allow(&self, old: Option<i64>, new: i64) -> bool {
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

/// The time that a word means; below zero is allowed, and long ago.
fn time_ms(cx: &Context<'_>, word: &[u8], unit: Unit) -> Result<i64, Error> {
    let invalid = || Error::invalid_expire(cx.command_name());
    let number = integer(word)?;
    let ms = match unit {
        Unit::Seconds | Unit::AtSeconds => number.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Milliseconds | Unit::AtMilliseconds => number,
    };
    match unit {
        Unit::Seconds | Unit::Milliseconds => ms.checked_add(cx.keys.now_ms()).ok_or_else(invalid),
        Unit::AtSeconds | Unit::AtMilliseconds => Ok(ms),
    }
}

fn set_time(cx: &mut Context<'_>, args: Args<'_>, unit: Unit) -> Result<(), Error> {
    let key = args.word(1);
    let conditions = Conditions::of(args)?;
    let when = time_ms(cx, args.word(2), unit)?;
    let Some(old) = cx.keys.expire_at(key) else {
        cx.out.flag(false);
        return Ok(());
    };
    if !conditions.allow(old, when) {
        cx.out.flag(false);
        return Ok(());
    }
    if cx.keys.is_past(when) {
        let freeing = freeing(&cx.keys.space().settings.lazyfree_lazy_expire);
        cx.keys.delete(key, freeing);
        cx.keys.notify(class::GENERIC, "del", key);
        cx.keys.rewrite(&[b"DEL", key]);
    } else {
        cx.keys.set_expire_at(key, Some(when));
        cx.keys.changed(key);
        cx.keys.notify(class::GENERIC, "expire", key);
        let mut text = itoa::Buffer::new();
        cx.keys.rewrite(&[b"PEXPIREAT", key, text.format(when).as_bytes()]);
    }
    cx.out.flag(true);
    Ok(())
}

fn tell_time(cx: &mut Context<'_>, args: Args<'_>, unit: Unit) -> Result<(), Error> {
    let key = args.word(1);
    if cx.keys.look_up(key).is_none() {
        cx.keys.notify_miss(key);
        cx.out.int(-2);
        return Ok(());
    }
    let Some(at) = cx.keys.expire_at(key).flatten() else {
        cx.out.int(-1);
        return Ok(());
    };
    // Rounded to the nearest second, as Redis does it.
    let seconds = |ms: i64| ms.saturating_add(500) / 1000;
    cx.out.int(match unit {
        Unit::Seconds => seconds(at - cx.keys.now_ms()),
        Unit::Milliseconds => at - cx.keys.now_ms(),
        Unit::AtSeconds => seconds(at),
        Unit::AtMilliseconds => at,
    });
    Ok(())
}

fn persist(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let had = cx.keys.expire_at(key).flatten().is_some();
    if had {
        cx.keys.set_expire_at(key, None);
        cx.keys.changed(key);
        cx.keys.notify(class::GENERIC, "persist", key);
    }
    cx.out.flag(had);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn times_are_set_and_told() {
        Client::new().check(&[
            ("EXPIRE k 10", ":0"),
            ("TTL k", ":-2"),
            ("SET k v", "+OK"),
            ("TTL k", ":-1"),
            ("EXPIRE k 10", ":1"),
            ("TTL k", ":10"),
            ("PTTL k", ":10000"),
            ("EXPIRETIME k", ":1700000010"),
            ("PEXPIRETIME k", ":1700000010000"),
            ("PEXPIRE k 1499", ":1"),
            ("TTL k", ":1"),
            ("PEXPIRE k 1500", ":1"),
            ("TTL k", ":2"),
            ("EXPIREAT k 1700000100", ":1"),
            ("TTL k", ":100"),
            ("PEXPIREAT k 1700000100500", ":1"),
            ("PTTL k", ":100500"),
            ("PERSIST k", ":1"),
            ("PERSIST k", ":0"),
            ("PERSIST none", ":0"),
            ("PTTL k", ":-1"),
        ]);
    }

    #[test]
    fn conditions() {
        let incompatible = "-ERR NX and XX, GT or LT options at the same time are not compatible";
        Client::new().check(&[
            ("SET k v", "+OK"),
            ("EXPIRE k 10 XX", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 10 LT", ":1"),
            ("EXPIRE k 20 NX", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 11 GT XX", ":1"),
            ("EXPIRE k 11 lt", ":0"),
            ("EXPIRE k 5 LT", ":1"),
            ("PERSIST k", ":1"),
            ("EXPIRE k 5 NX", ":1"),
            ("EXPIRE k 5 NX XX", incompatible),
            ("EXPIRE k 5 GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("EXPIRE k 5 AB", "-ERR Unsupported option AB"),
        ]);
    }

    #[test]
    fn a_time_in_the_past_deletes() {
        let mut client = Client::new();
        for command in ["EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k -9223372036854775808"] {
            client.check(&[("SET k v", "+OK"), (command, ":1"), ("EXISTS k", ":0")]);
        }
        client.check(&[
            ("SET k v", "+OK"),
            ("EXPIREAT k 1699999999", ":1"),
            ("EXISTS k", ":0"),
            ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
            ("EXPIRE k 1.5", "-ERR value is not an integer or out of range"),
        ]);
    }
}
