//! Ranges of a sorted set: by rank, by score, by string; read, stored, removed, counted.
//!
//! Whatever a range is asked by, it becomes two ranks first; then all is the same.

use std::ops::Range;

use keyspace::types::zset::{Edge, LexEdge, Zset};
use resp::{Args, number};

use super::{Scores, changed, limits, store};
use crate::context::Context;
use crate::error::Error;
use crate::string::range_of;
use crate::words::{integer, is};

const NOT_A_FLOAT: Error = Error::text("ERR min or max is not a float");
const NOT_A_STRING: Error = Error::text("ERR min or max not valid string range item");

/// What a range is asked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range as it was asked for.
enum Span<'a> {
    Rank(i64, i64),
    Score(Edge, Edge),
    Lex(LexEdge<'a>, LexEdge<'a>),
}

impl<'a> Span<'a> {
    /// Reads the two words of a range.
    fn read(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Span<'a>, Error> {
        Ok(match by {
            By::Rank => Span::Rank(integer(min)?, integer(max)?),
            By::Score => {
                let (min, min_is_open) = score(min)?;
                let (max, max_is_open) = score(max)?;
                let min = if min_is_open { Edge::After(min) } else { Edge::Before(min) };
                let max = if max_is_open { Edge::Before(max) } else { Edge::After(max) };
                Span::Score(min, max)
            }
            By::Lex => Span::Lex(
                lex_edge(min, LexEdge::Before, LexEdge::After)?,
                lex_edge(max, LexEdge::After, LexEdge::Before)?,
            ),
        })
    }

    /// The ranks it means, ascending; ranks of a reversed range count from the end.
    fn ranks(&self, set: &Zset, direction: Direction) -> Range<usize> {
        match *self {
            Span::Score(min, max) => set.score_range(min, max),
            Span::Lex(min, max) => set.lex_range(min, max),
            Span::Rank(start, stop) => {
                let len = set.len();
                let ranks = range_of(start, stop, len);
                match direction {
                    Direction::Forward => ranks,
                    Direction::Reverse => len - ranks.end..len - ranks.start,
                }
            }
        }
    }
}

/// A score and whether a `(` leaves it out.
fn score(word: &[u8]) -> Result<(f64, bool), Error> {
    let (is_open, digits) = match word {
        [b'(', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // As with strtod: nothing at all is 0, and space before a number is no matter.
    if digits.is_empty() {
        return Ok((0.0, is_open));
    }
    let score = number::rounded_double(digits.trim_ascii_start()).ok_or(NOT_A_FLOAT)?;
    Ok((score, is_open))
}

fn lex_edge<'a>(
    word: &'a [u8],
    closed: fn(&'a [u8]) -> LexEdge<'a>,
    open: fn(&'a [u8]) -> LexEdge<'a>,
) -> Result<LexEdge<'a>, Error> {
    match word {
        b"-" => Ok(LexEdge::First),
        b"+" => Ok(LexEdge::Last),
        [b'[', member @ ..] => Ok(closed(member)),
        [b'(', member @ ..] => Ok(open(member)),
        _ => Err(NOT_A_STRING),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

/// A whole range command.
struct Query<'a> {
    span: Span<'a>,
    direction: Direction,
    scores: Scores,
    /// LIMIT: so many are skipped, so many shown; negative: nothing shown, all shown.
    offset: i64,
    count: i64,
}

/// What a command's name says already; the rest are words.
struct Fixed {
    by: Option<By>,
    direction: Option<Direction>,
    /// WITHSCORES is no option of ZRANGESTORE.
    has_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads key, minimum, maximum and options, the key being the word at `key`.
    fn read(args: Args<'a>, key: usize, fixed: &Fixed) -> Result<Query<'a>, Error> {
        let (mut by, mut direction) = (fixed.by, fixed.direction);
        let mut scores = Scores::Without;
        let (mut offset, mut count) = (0, -1);
        let mut at = key + 3;
        while at < args.len() {
            let word = args.word(at);
            match (args.get(at + 1), args.get(at + 2)) {
                _ if fixed.has_scores && is(word, "WITHSCORES") => scores = Scores::With,
                (Some(skip), Some(show)) if is(word, "LIMIT") => {
                    (offset, count) = (integer(skip)?, integer(show)?);
                    at += 2;
                }
                _ if direction.is_none() && is(word, "REV") => {
                    direction = Some(Direction::Reverse);
                }
                _ if by.is_none() && is(word, "BYLEX") => by = Some(By::Lex),
                _ if by.is_none() && is(word, "BYSCORE") => by = Some(By::Score),
                _ => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        let by = by.unwrap_or(By::Rank);
        let direction = direction.unwrap_or(Direction::Forward);
        if count != -1 && by == By::Rank {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if scores == Scores::With && by == By::Lex {
            return Err(Error::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (mut min, mut max) = (args.word(key + 1), args.word(key + 2));
        if direction == Direction::Reverse && by != By::Rank {
            (min, max) = (max, min);
        }
        Ok(Query { span: Span::read(by, min, max)?, direction, scores, offset, count })
    }

    /// The ranks to show, ascending.
    fn ranks(&self, set: &Zset) -> Range<usize> {
        let ranks = self.span.ranks(set, self.direction);
        if matches!(self.span, Span::Rank(..)) {
            return ranks;
        }
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let skipped = offset.min(ranks.len());
        let shown = usize::try_from(self.count).unwrap_or(usize::MAX).min(ranks.len() - skipped);
        match self.direction {
            Direction::Forward => ranks.start + skipped..ranks.start + skipped + shown,
            Direction::Reverse => ranks.end - skipped - shown..ranks.end - skipped,
        }
    }
}

fn read(cx: &mut Context<'_>, args: Args<'_>, fixed: &Fixed) -> Result<(), Error> {
    let query = Query::read(args, 1, fixed)?;
    let Some(set) = cx.keys.zset(args.word(1))? else {
        cx.out.array(0);
        return Ok(());
    };
    let members = set.range(query.ranks(set));
    match query.direction {
        Direction::Forward => query.scores.members(cx.out, members),
        Direction::Reverse => query.scores.members(cx.out, members.rev()),
    }
    Ok(())
}

pub(super) fn zrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read(cx, args, &Fixed { by: None, direction: None, has_scores: true })
}

fn read_by(
    cx: &mut Context<'_>,
    args: Args<'_>,
    by: By,
    direction: Direction,
) -> Result<(), Error> {
    let fixed = Fixed { by: Some(by), direction: Some(direction), has_scores: true };
    read(cx, args, &fixed)
}

pub(super) fn zrevrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read_by(cx, args, By::Rank, Direction::Reverse)
}

pub(super) fn zrangebyscore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read_by(cx, args, By::Score, Direction::Forward)
}

pub(super) fn zrevrangebyscore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read_by(cx, args, By::Score, Direction::Reverse)
}

pub(super) fn zrangebylex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read_by(cx, args, By::Lex, Direction::Forward)
}

pub(super) fn zrevrangebylex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    read_by(cx, args, By::Lex, Direction::Reverse)
}

pub(super) fn zrangestore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let fixed = Fixed { by: None, direction: None, has_scores: false };
    let query = Query::read(args, 2, &fixed)?;
    let limits = limits(cx);
    let mut result = Zset::default();
    if let Some(set) = cx.keys.zset(args.word(2))? {
        let members = set.range(query.ranks(set));
        result.expect_members(members.len(), 0, limits);
        let mut text = itoa::Buffer::new();
        for (member, score) in members {
            result.set(member.text(&mut text), score, limits);
        }
    }
    store(cx, args.word(1), result, "zrangestore");
    Ok(())
}

fn remove(cx: &mut Context<'_>, args: Args<'_>, by: By, event: &'static str) -> Result<(), Error> {
    let key = args.word(1);
    let span = Span::read(by, args.word(2), args.word(3))?;
    let Some(set) = cx.keys.zset_mut(key)? else {
        cx.out.count(0);
        return Ok(());
    };
    let removed = set.remove_range(span.ranks(set, Direction::Forward));
    changed(cx, key, event, removed);
    cx.keys.remove_if_empty(key);
    cx.out.count(removed);
    Ok(())
}

pub(super) fn zremrangebyrank(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    remove(cx, args, By::Rank, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    remove(cx, args, By::Score, "zremrangebyscore")
}

pub(super) fn zremrangebylex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    remove(cx, args, By::Lex, "zremrangebylex")
}

fn count(cx: &mut Context<'_>, args: Args<'_>, by: By) -> Result<(), Error> {
    let span = Span::read(by, args.word(2), args.word(3))?;
    let set = cx.keys.zset(args.word(1))?;
    cx.out.count(set.map_or(0, |set| span.ranks(set, Direction::Forward).len()));
    Ok(())
}

pub(super) fn zcount(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    count(cx, args, By::Score)
}

pub(super) fn zlexcount(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    count(cx, args, By::Lex)
}
