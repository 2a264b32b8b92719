//! Taking members from the ends of sorted sets, at once or when there are some.

use keyspace::types::zset::Zset;
use keyspace::value::Kind;
use resp::{Args, Writer};

use super::changed;
use crate::context::Context;
use crate::elements;
use crate::error::Error;
use crate::words::{count, is, key_count, timeout_ms};

/// Which end members are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn of(word: &[u8]) -> Option<End> {
        [("MIN", End::Min), ("MAX", End::Max)]
            .into_iter()
            .find(|(name, _)| is(word, name))
            .map(|(_, end)| end)
    }

    fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }

    /// The command that does the same without choice or wait, for the commit log.
    fn command(self) -> &'static [u8] {
        match self {
            End::Min => b"ZPOPMIN",
            End::Max => b"ZPOPMAX",
        }
    }
}

/// How popped members are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Member, score, member, score: ZPOPMIN.
    Flat,
    /// Pairs: ZPOPMIN with a count in RESP3.
    Pairs,
    /// The key, a member, its score: BZPOPMIN.
    KeyFlat,
    /// The key and an array of pairs: ZMPOP.
    KeyPairs,
}

impl Form {
    fn header(self, out: &mut Writer, key: &[u8], count: usize) {
        match self {
            Form::Flat => out.array(count * 2),
            Form::Pairs => out.array(count),
            Form::KeyFlat => {
                out.array(count * 2 + 1);
                out.bulk(key);
            }
            Form::KeyPairs => {
                out.array(2);
                out.bulk(key);
                out.array(count);
            }
        }
    }
}

/// Takes up to `max` members out and shows them; returns how many.
fn take(out: &mut Writer, key: &[u8], set: &mut Zset, end: End, max: usize, form: Form) -> usize {
    let len = set.len();
    let taken = max.min(len);
    form.header(out, key, taken);
    let show = |(member, score)| {
        if matches!(form, Form::Pairs | Form::KeyPairs) {
            out.array(2);
        }
        elements::write(out, member);
        out.double(score);
    };
    let ranks = match end {
        End::Min => 0..taken,
        End::Max => len - taken..len,
    };
    let members = set.range(ranks.clone());
    match end {
        End::Min => members.for_each(show),
        End::Max => members.rev().for_each(show),
    }
    set.remove_range(ranks)
}

/// What follows when members were taken.
fn taken(cx: &mut Context<'_>, key: &[u8], end: End, count: usize) {
    changed(cx, key, end.event(), count);
    cx.keys.remove_if_empty(key);
}

fn pop_one_key(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    let (max, form) = match (args.get(2), args.len()) {
        (None, _) => (1, Form::Flat),
        (Some(word), 3) => {
            let form = if cx.out.is_resp3() { Form::Pairs } else { Form::Flat };
            (count(word, &Error::NOT_POSITIVE)?, form)
        }
        _ => return Err(Error::SYNTAX),
    };
    let key = args.word(1);
    match cx.keys.zset_mut(key)? {
        Some(set) if max > 0 => {
            let count = take(cx.out, key, set, end, max, form);
            taken(cx, key, end, count);
        }
        _ => cx.out.array(0),
    }
    Ok(())
}

pub(super) fn zpopmin(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop_one_key(cx, args, End::Min)
}

pub(super) fn zpopmax(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop_one_key(cx, args, End::Max)
}

/// The words of ZMPOP and BZMPOP from `numkeys` on.
struct MultiPop {
    keys: usize,
    end: End,
    count: usize,
}

impl MultiPop {
    fn read(args: Args<'_>, at: usize) -> Result<MultiPop, Error> {
        let keys = key_count(args, at)?;
        let end = args.get(at + 1 + keys).and_then(End::of).ok_or(Error::SYNTAX)?;
        let count = match (args.get(at + 2 + keys), args.get(at + 3 + keys)) {
            (None, _) => 1,
            (Some(word), Some(number)) if is(word, "COUNT") => {
                const ERROR: Error = Error::text("ERR count should be greater than 0");
                count(number, &ERROR)
                    .and_then(|count| if count > 0 { Ok(count) } else { Err(ERROR) })?
            }
            _ => return Err(Error::SYNTAX),
        };
        if args.len() > at + 4 + keys {
            Err(Error::SYNTAX)
        } else {
            Ok(MultiPop { keys, end, count })
        }
    }
}

pub(super) fn zmpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let query = MultiPop::read(args, 1)?;
    for key in args.iter().skip(2).take(query.keys) {
        if let Some(set) = cx.keys.zset_mut(key)? {
            let count = take(cx.out, key, set, query.end, query.count, Form::KeyPairs);
            taken(cx, key, query.end, count);
            log_pop(cx, key, query.end, Some(count));
            return Ok(());
        }
    }
    cx.out.null_array();
    Ok(())
}

fn log_pop(cx: &mut Context<'_>, key: &[u8], end: End, count: Option<usize>) {
    match count {
        None => cx.keys.rewrite(&[end.command(), key]),
        Some(count) => cx.keys.rewrite(&[end.command(), key, count.to_string().as_bytes()]),
    }
}

/// Pops from the first of `keys` that holds something, or waits.
fn pop_or_wait<'a>(
    cx: &mut Context<'_>,
    keys: impl Iterator<Item = &'a [u8]> + Clone,
    timeout_ms: i64,
    end: End,
    count: Option<usize>,
) -> Result<(), Error> {
    for key in keys.clone() {
        if cx.keys.zset_mut(key)?.is_none() || !cx.may_take(key) {
            continue;
        }
        if let Some(set) = cx.keys.zset_mut(key)? {
            let form = if count.is_some() { Form::KeyPairs } else { Form::KeyFlat };
            let popped = take(cx.out, key, set, end, count.unwrap_or(1), form);
            taken(cx, key, end, popped);
            log_pop(cx, key, end, count.map(|_| popped));
            return Ok(());
        }
    }
    cx.block(keys, Kind::Zset, timeout_ms, Writer::null_array);
    Ok(())
}

fn bzpop(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(args.word(last))?;
    pop_or_wait(cx, (1..last).map(|index| args.word(index)), timeout_ms, end, None)
}

pub(super) fn bzpopmin(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    bzpop(cx, args, End::Min)
}

pub(super) fn bzpopmax(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    bzpop(cx, args, End::Max)
}

pub(super) fn bzmpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let query = MultiPop::read(args, 2)?;
    let timeout_ms = timeout_ms(args.word(1))?;
    let keys = (3..3 + query.keys).map(|index| args.word(index));
    pop_or_wait(cx, keys, timeout_ms, query.end, Some(query.count))
}
