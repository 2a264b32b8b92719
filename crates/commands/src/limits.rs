//! Limits: CL.THROTTLE with redis-cell's reply, THROTTLE with throttlecrab's, and the counter that
//! never passes a limit, on which quotas stand.
//!
//! A throttle is one number at its key: the theoretical arrival time in microseconds since 1970;
//! the key expires when the limit is whole again.

use keyspace::effects::class;
use keyspace::keys::Expire;
use keyspace::raw::entry::NewValue;
use keyspace::value::{Value, ValueRef};
use resp::Args;
use throttle::{Throttle, Throttled, admit};

use crate::command::{Command, DENY_OOM, FAST, Family, Group, RW, WRITE, first};
use crate::context::Context;
use crate::error::Error;
use crate::words::integer;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "CL.THROTTLE",
            run: cl_throttle,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key max_burst count_per_period period [quantity]",
            summary: "Lets a quantity through a rate limit, or says when it would be.",
            ..Command::DEFAULT
        },
        Command {
            name: "THROTTLE",
            run: throttle,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key max_burst count_per_period period [quantity]",
            summary: "The same as CL.THROTTLE with another reply.",
            ..Command::DEFAULT
        },
        Command {
            name: "QUOTA.CHARGE",
            run: charge,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW)],
            usage: "key cost limit",
            summary: "Adds to a counter that is there, unless the sum would pass a limit.",
            ..Command::DEFAULT
        },
    ],
};

/// Longest period, in seconds: a number of microseconds stays far from its end.
const SECONDS_MAX: i64 = 1_000_000_000;

fn seconds_up(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 > 0)
}

fn cl_throttle(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let verdict = ask(cx, args)?;
    cx.out.array(5);
    cx.out.int(verdict.is_limited.into());
    cx.out.int(verdict.limit);
    cx.out.int(verdict.remaining);
    cx.out.int(verdict.retry_after_ms.map_or(-1, seconds_up));
    cx.out.int(seconds_up(verdict.reset_after_ms));
    Ok(())
}

fn throttle(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let verdict = ask(cx, args)?;
    cx.out.array(5);
    cx.out.int((!verdict.is_limited).into());
    cx.out.int(verdict.limit - 1);
    cx.out.int(verdict.remaining);
    cx.out.int(seconds_up(verdict.reset_after_ms));
    cx.out.int(verdict.retry_after_ms.map_or(0, seconds_up));
    Ok(())
}

fn ask(cx: &mut Context<'_>, args: Args<'_>) -> Result<Throttled, Error> {
    if args.len() > 6 {
        return Err(Error::SYNTAX);
    }
    let (burst_max, count, period) =
        (integer(args.word(2))?, integer(args.word(3))?, integer(args.word(4))?);
    let quantity = args.get(5).map_or(Ok(1), integer)?;
    let is_sound = (0..=SECONDS_MAX).contains(&burst_max)
        && (1..=SECONDS_MAX).contains(&count)
        && (1..=SECONDS_MAX).contains(&period)
        && (0..=SECONDS_MAX).contains(&quantity);
    if !is_sound {
        return Err(Error::text("ERR max_burst and quantity are not negative, the others above 0"));
    }
    let key = args.word(1);
    let kept = match cx.keys.peek(key) {
        None => None,
        Some(ValueRef::Number(number)) => Some(number),
        Some(ValueRef::Bytes(_) | ValueRef::Shared(_)) => return Err(Error::NOT_AN_INTEGER),
        Some(_) => return Err(Error::WRONG_TYPE),
    };
    let now_us = cx.keys.now_ms().saturating_mul(1000);
    let throttle = Throttle { burst_max, count, period_ms: period * 1000 };
    let (keep, verdict) = admit(kept, throttle, quantity, now_us);
    match keep {
        None => cx.keys.rewrite_to_nothing(),
        Some(at_us) => {
            let expire_at_ms = at_us / 1000 + 1;
            let (at, expire) = (at_us.to_string(), expire_at_ms.to_string());
            let value = NewValue::Value(Value::Number(at_us));
            cx.keys.set(key, value, Expire::At(expire_at_ms));
            cx.keys.rewrite(&[b"SET", key, at.as_bytes(), b"PXAT", expire.as_bytes()]);
            cx.keys.notify(class::STRING, "set", key);
        }
    }
    Ok(verdict)
}

/// `[1, sum]`, or `[0, present value]` where the sum would pass the limit; null without a counter.
/// A cost below 0 always goes.
fn charge(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, cost, limit) = (args.word(1), integer(args.word(2))?, integer(args.word(3))?);
    let used = match cx.keys.peek(key) {
        None => {
            cx.out.null_array();
            return Ok(());
        }
        Some(ValueRef::Number(used)) => used,
        Some(ValueRef::Bytes(_) | ValueRef::Shared(_)) => return Err(Error::NOT_AN_INTEGER),
        Some(_) => return Err(Error::WRONG_TYPE),
    };
    let sum = used.checked_add(cost).ok_or(Error::OVERFLOW)?;
    let is_done = cost < 0 || sum <= limit;
    if is_done && cost != 0 {
        cx.keys.add_number(key, cost);
        cx.keys.notify(class::STRING, "incrby", key);
    }
    cx.out.array(2);
    cx.out.int(is_done.into());
    cx.out.int(if is_done { sum } else { used });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn throttles_answer_as_redis_cell_does() {
        let mut client = Client::new();
        // 16 at once, 30 a minute: the example of redis-cell's own page.
        client.check(&[("CL.THROTTLE user123 15 30 60 1", "*5 :0 :16 :15 :-1 :2")]);
        for _ in 0..15 {
            client.run("CL.THROTTLE user123 15 30 60 1");
        }
        client.check(&[
            ("CL.THROTTLE user123 15 30 60", "*5 :1 :16 :0 :2 :32"),
            ("CL.THROTTLE user123 15 30 60 0", "*5 :0 :16 :0 :-1 :32"),
            ("THROTTLE user123 15 30 60", "*5 :0 :15 :0 :32 :2"),
            // What can never fit has no time to come back at.
            ("CL.THROTTLE other 4 10 1 6", "*5 :1 :5 :5 :-1 :0"),
            ("THROTTLE other 4 10 1", "*5 :1 :4 :4 :1 :0"),
            ("PTTL user123", ":32001"),
        ]);
        client.now_ms += 2000;
        client.check(&[("CL.THROTTLE user123 15 30 60", "*5 :0 :16 :0 :-1 :32")]);
        client.now_ms += 60_000;
        client.check(&[("EXISTS user123", ":0")]);
    }

    #[test]
    fn throttles_refuse_nonsense() {
        let mut client = Client::new();
        for line in ["x -1 1 1", "x 1 0 1", "x 1 1 0", "x 1 1 1 -1", "x a 1 1", "x 1 1 1 1 1"] {
            let reply = client.run(&format!("CL.THROTTLE {line}"));
            assert!(reply.starts_with("-ERR"), "{line}: {reply}");
        }
        client.run("RPUSH list a");
        assert!(client.run("CL.THROTTLE list 1 1 1").starts_with("-WRONGTYPE"));
        client.check(&[("EXISTS x", ":0")]);
    }

    #[test]
    fn counters_never_pass_their_limit() {
        let mut client = Client::new();
        client.check(&[
            ("QUOTA.CHARGE c 1 10", "*-1"),
            ("SET c 8 PX 5000", "+OK"),
            ("QUOTA.CHARGE c 2 10", "*2 :1 :10"),
            ("QUOTA.CHARGE c 1 10", "*2 :0 :10"),
            ("QUOTA.CHARGE c 0 5", "*2 :0 :10"),
            ("QUOTA.CHARGE c -20 5", "*2 :1 :-10"),
            ("PTTL c", ":5000"),
        ]);
    }

    #[test]
    fn the_log_has_what_can_be_done_again() {
        let mut client = Client::new();
        let lines = client.logged("CL.THROTTLE k 1 1 1");
        assert_eq!(lines, ["SET k 1700000001000000 PXAT 1700000001001"]);
        assert!(client.logged("CL.THROTTLE k 1 1 1 2").is_empty());
    }
}
