//! ZADD and ZINCRBY: members get their scores.

use std::cmp::Ordering;

use keyspace::types::zset::{Outcome, Zset};
use resp::{Args, OwnedArgs};

use super::{Limits, changed, limits};
use crate::context::Context;
use crate::error::Error;
use crate::words::{float, is};

/// ZADD's options.
#[derive(Default)]
struct AddOptions {
    /// NX: members that are there stay as they are.
    only_new: bool,
    /// XX: no members are added.
    only_old: bool,
    /// GT, LT: a score changes only to one that compares so with the old.
    only_if: Option<Ordering>,
    /// CH: changed members count as added ones.
    count_changed: bool,
    /// INCR: the score is added to the old one.
    increment: bool,
}

impl AddOptions {
    /// Reads options from the third word on; also the index of the first score.
    fn read(args: Args<'_>) -> Result<(AddOptions, usize), Error> {
        let mut options = AddOptions::default();
        let (mut greater, mut less) = (false, false);
        let mut index = 2;
        while let Some(word) = args.get(index) {
            match word {
                _ if is(word, "NX") => options.only_new = true,
                _ if is(word, "XX") => options.only_old = true,
                _ if is(word, "CH") => options.count_changed = true,
                _ if is(word, "INCR") => options.increment = true,
                _ if is(word, "GT") => greater = true,
                _ if is(word, "LT") => less = true,
                _ => break,
            }
            index += 1;
        }
        options.only_if = match (greater, less) {
            (true, _) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        };
        let words = args.len() - index;
        if words == 0 || words % 2 == 1 {
            return Err(Error::SYNTAX);
        }
        if options.only_new && options.only_old {
            let text = "ERR XX and NX options at the same time are not compatible";
            return Err(Error::text(text));
        }
        if options.only_new && options.only_if.is_some() || greater && less {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(Error::text(text));
        }
        Ok((options, index))
    }

    /// The score a member gets instead of `old`; `None` = it stays as it is.
    fn score(&self, old: Option<f64>, score: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else { return Ok((!self.only_old).then_some(score)) };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increment { old + score } else { score };
        if score.is_nan() {
            return Err(Error::text("ERR resulting score is not a number (NaN)"));
        }
        let wanted = self.only_if.is_none_or(|order| score.partial_cmp(&old) == Some(order));
        Ok(wanted.then_some(score))
    }
}

/// What ZADD did.
#[derive(Default)]
struct Added {
    added: usize,
    updated: usize,
    /// The last member's score, unless the options left it as it was.
    score: Option<f64>,
}

impl Added {
    fn set(&mut self, set: &mut Zset, member: &[u8], score: f64, limits: Limits) {
        match set.set(member, score, limits) {
            Outcome::Added => self.added += 1,
            Outcome::Updated(_) => self.updated += 1,
            Outcome::Same => {}
        }
        self.score = Some(score);
    }
}

pub(super) fn zadd(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (options, first) = AddOptions::read(args)?;
    add(cx, args, &options, first)
}

pub(super) fn zincrby(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(cx, args, &AddOptions { increment: true, ..AddOptions::default() }, 2)
}

fn add(
    cx: &mut Context<'_>,
    args: Args<'_>,
    options: &AddOptions,
    first: usize,
) -> Result<(), Error> {
    let count = (args.len() - first) / 2;
    if options.increment && count > 1 {
        return Err(Error::text("ERR INCR option supports a single increment-element pair"));
    }
    // All scores are read before the first is set: the command is done as a whole or not at all.
    let first_score = float(args.word(first))?;
    for index in (first + 2..args.len()).step_by(2) {
        float(args.word(index))?;
    }
    let done = add_members(cx, args, options, first, first_score)?;
    let event = if options.increment { "zincr" } else { "zadd" };
    changed(cx, args.word(1), event, done.added + done.updated);
    match (options.increment, done.score) {
        (true, Some(score)) => cx.out.double(score),
        (true, None) => cx.out.null(),
        (false, _) if options.count_changed => cx.out.count(done.added + done.updated),
        (false, _) => cx.out.count(done.added),
    }
    Ok(())
}

/// Adds the pairs from the word at `first` on, whose scores have been read once.
fn add_members(
    cx: &mut Context<'_>,
    args: Args<'_>,
    options: &AddOptions,
    first: usize,
    first_score: f64,
) -> Result<Added, Error> {
    let key = args.word(1);
    let limits = limits(cx);
    let mut done = Added::default();
    let set = if options.only_old {
        let Some(set) = cx.keys.zset_mut(key)? else { return Ok(done) };
        set
    } else {
        cx.keys.zset_or_new(key)?
    };
    let longest_bytes = if set.is_empty() { args.word(first + 1).len() } else { 0 };
    set.expect_members((args.len() - first) / 2, longest_bytes, limits);
    let plain = !(options.only_new || options.only_old || options.increment);
    let plain = plain && options.only_if.is_none();
    for index in (first..args.len()).step_by(2) {
        let score = if index == first { first_score } else { float(args.word(index))? };
        let member = args.word(index + 1);
        if plain {
            done.set(set, member, score, limits);
            continue;
        }
        match options.score(set.score(member), score)? {
            Some(score) => done.set(set, member, score, limits),
            None => done.score = None,
        }
    }
    Ok(done)
}

/// GEOADD is ZADD with scores made of positions: `pairs` are the words of ZADD from its key on.
pub fn zadd_words(cx: &mut Context<'_>, words: &[&[u8]]) -> Result<(), Error> {
    let owned = OwnedArgs::new(words);
    zadd(cx, owned.args())
}
