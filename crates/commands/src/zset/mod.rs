//! Sorted sets: members, scores and ranks here; the rest in the files beside.
//!
//! | file | commands |
//! |---|---|
//! | `mod.rs` | the table; ZREM, ZCARD, scores, ranks, ZRANDMEMBER, ZSCAN |
//! | `add.rs` | ZADD, ZINCRBY |
//! | `range.rs` | ZRANGE and its kin, ZRANGESTORE, ZREMRANGEBY*, ZCOUNT, ZLEXCOUNT |
//! | `algebra.rs` | ZUNION, ZINTER, ZDIFF, their STORE forms, ZINTERCARD |
//! | `pop.rs` | ZPOPMIN, ZPOPMAX, ZMPOP and the blocking forms |

mod add;
mod algebra;
mod pop;
mod range;

pub use add::zadd_words;

use keyspace::effects::class;
use keyspace::raw::packed::Element;
use keyspace::types::zset::Zset;
use keyspace::value::Value;
use resp::{Args, Writer, number};

use crate::command::{
    BLOCKING, Command, DENY_OOM, FAST, Family, Flags, Group, KeySpec, OW, READONLY, RM, RO,
    RO_META, RW, RW_TAKE, RW_UPDATE, WRITE, at, counted, first, range as words_from,
};
use crate::context::Context;
use crate::elements::{self, Draw, ScanReply, empty_scan};
use crate::error::Error;
use crate::words::{Scanned, cursor, is, scan_options};

const READ_FAST: Flags = READONLY.with(FAST);
const WRITE_FAST: Flags = WRITE.with(FAST);
const WRITE_MORE: Flags = WRITE.with(DENY_OOM);
const ADD: Flags = WRITE_MORE.with(FAST);
const BLOCK: Flags = WRITE.with(BLOCKING);
const BLOCK_FAST: Flags = BLOCK.with(FAST);
const STORE_KEYS: &[KeySpec] = &[first(OW), counted(2, RO)];

const LOG: &str = "O(log(N)), N = members";
const RANGE_COST: &str = "O(log(N)+M), N = members, M = members of the range";
const POP_COST: &str = "O(M*log(N)), N = members, M = members popped";
const UNION_COST: &str = "O(N)+O(M*log(M)), N = members of all sets, M = members of the result";
const INTER_COST: &str = "O(N*K)+O(M*log(M)), N = members of the smallest of K sets, M = members \
                          of the result";
const DIFF_COST: &str = "O(N*K)+O(M*log(M)), N = members of the first of K sets, M = members of \
                         the result";

/// The family.
pub const FAMILY: Family = Family {
    group: Group::SortedSet,
    commands: &[
        Command {
            name: "ZADD",
            run: add::zadd,
            flags: ADD,
            keys: &[first(RW_UPDATE)],
            element: 3,
            usage: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
            summary: "Gives members of a sorted set their scores, adding those that are new.",
            complexity: "O(M*log(N)), N = members, M = members given",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZINCRBY",
            run: add::zincrby,
            flags: ADD,
            keys: &[first(RW)],
            element: 3,
            usage: "key increment member",
            summary: "Adds to the score of a member of a sorted set.",
            complexity: LOG,
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZREM",
            run: zrem,
            flags: WRITE_FAST,
            keys: &[first(RM)],
            element: 2,
            usage: "key member [member ...]",
            summary: "Takes members out of a sorted set.",
            complexity: "O(M*log(N)), N = members, M = members given",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZCARD",
            run: zcard,
            flags: READ_FAST,
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns the number of members of a sorted set.",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZSCORE",
            run: zscore,
            flags: READ_FAST,
            keys: &[first(RO)],
            element: 2,
            usage: "key member",
            summary: "Returns the score of a member of a sorted set.",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZMSCORE",
            run: zmscore,
            flags: READ_FAST,
            keys: &[first(RO)],
            usage: "key member [member ...]",
            summary: "Returns the scores of several members of a sorted set.",
            complexity: "O(M), M = members given",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANK",
            run: zrank,
            flags: READ_FAST,
            keys: &[first(RO)],
            element: 2,
            usage: "key member [WITHSCORE]",
            summary: "Returns how many members of a sorted set come before one.",
            complexity: LOG,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZREVRANK",
            run: zrevrank,
            flags: READ_FAST,
            keys: &[first(RO)],
            element: 2,
            usage: "key member [WITHSCORE]",
            summary: "Returns how many members of a sorted set come after one.",
            complexity: LOG,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANDMEMBER",
            run: zrandmember,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key [count [WITHSCORES]]",
            summary: "Returns random members of a sorted set.",
            complexity: "O(M), M = members returned",
            since: "6.2.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "ZSCAN",
            run: zscan,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
            summary: "Goes through the members of a sorted set, step by step.",
            complexity: "O(1) a call, O(N) for all N members",
            since: "2.8.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "ZCOUNT",
            run: range::zcount,
            flags: READ_FAST,
            keys: &[first(RO)],
            usage: "key min max",
            summary: "Counts the members of a sorted set between two scores.",
            complexity: LOG,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZLEXCOUNT",
            run: range::zlexcount,
            flags: READ_FAST,
            keys: &[first(RO)],
            usage: "key min max",
            summary: "Counts the members of a sorted set between two strings.",
            complexity: LOG,
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANGE",
            run: range::zrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            summary: "Returns members of a sorted set by rank, score or string.",
            complexity: RANGE_COST,
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANGESTORE",
            run: range::zrangestore,
            flags: WRITE_MORE,
            keys: &[first(OW), at(2, RO)],
            usage: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
            summary: "Stores members of a sorted set by rank, score or string as another set.",
            complexity: RANGE_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZREVRANGE",
            run: range::zrevrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start stop [WITHSCORES]",
            summary: "Returns members of a sorted set by rank, the largest first.",
            complexity: RANGE_COST,
            since: "1.2.0",
            deprecated: Some(("6.2.0", "ZRANGE with REV")),
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANGEBYSCORE",
            run: range::zrangebyscore,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key min max [WITHSCORES] [LIMIT offset count]",
            summary: "Returns members of a sorted set by score.",
            complexity: RANGE_COST,
            since: "1.0.5",
            deprecated: Some(("6.2.0", "ZRANGE with BYSCORE")),
            ..Command::DEFAULT
        },
        Command {
            name: "ZREVRANGEBYSCORE",
            run: range::zrevrangebyscore,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key max min [WITHSCORES] [LIMIT offset count]",
            summary: "Returns members of a sorted set by score, the largest first.",
            complexity: RANGE_COST,
            since: "2.2.0",
            deprecated: Some(("6.2.0", "ZRANGE with REV and BYSCORE")),
            ..Command::DEFAULT
        },
        Command {
            name: "ZRANGEBYLEX",
            run: range::zrangebylex,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key min max [LIMIT offset count]",
            summary: "Returns members of a sorted set of one score by string.",
            complexity: RANGE_COST,
            since: "2.8.9",
            deprecated: Some(("6.2.0", "ZRANGE with BYLEX")),
            ..Command::DEFAULT
        },
        Command {
            name: "ZREVRANGEBYLEX",
            run: range::zrevrangebylex,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key max min [LIMIT offset count]",
            summary: "Returns members of a sorted set of one score by string, the largest first.",
            complexity: RANGE_COST,
            since: "2.8.9",
            deprecated: Some(("6.2.0", "ZRANGE with REV and BYLEX")),
            ..Command::DEFAULT
        },
        Command {
            name: "ZREMRANGEBYRANK",
            run: range::zremrangebyrank,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key start stop",
            summary: "Takes members out of a sorted set by rank.",
            complexity: RANGE_COST,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZREMRANGEBYSCORE",
            run: range::zremrangebyscore,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key min max",
            summary: "Takes members out of a sorted set by score.",
            complexity: RANGE_COST,
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZREMRANGEBYLEX",
            run: range::zremrangebylex,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key min max",
            summary: "Takes members out of a sorted set of one score by string.",
            complexity: RANGE_COST,
            since: "2.8.9",
            ..Command::DEFAULT
        },
        Command {
            name: "ZUNION",
            run: algebra::zunion,
            flags: READONLY,
            keys: &[counted(1, RO)],
            usage: "numkeys key [key ...] [WEIGHTS weight [weight ...]] \
                    [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
            summary: "Returns the union of sorted sets.",
            complexity: UNION_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZUNIONSTORE",
            run: algebra::zunionstore,
            flags: WRITE_MORE,
            keys: STORE_KEYS,
            usage: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] \
                    [AGGREGATE <SUM | MIN | MAX>]",
            summary: "Stores the union of sorted sets.",
            complexity: UNION_COST,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZINTER",
            run: algebra::zinter,
            flags: READONLY,
            keys: &[counted(1, RO)],
            usage: "numkeys key [key ...] [WEIGHTS weight [weight ...]] \
                    [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
            summary: "Returns the intersection of sorted sets.",
            complexity: INTER_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZINTERSTORE",
            run: algebra::zinterstore,
            flags: WRITE_MORE,
            keys: STORE_KEYS,
            usage: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] \
                    [AGGREGATE <SUM | MIN | MAX>]",
            summary: "Stores the intersection of sorted sets.",
            complexity: INTER_COST,
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZINTERCARD",
            run: algebra::zintercard,
            flags: READONLY,
            keys: &[counted(1, RO)],
            usage: "numkeys key [key ...] [LIMIT limit]",
            summary: "Counts the members of the intersection of sorted sets.",
            complexity: INTER_COST,
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZDIFF",
            run: algebra::zdiff,
            flags: READONLY,
            keys: &[counted(1, RO)],
            usage: "numkeys key [key ...] [WITHSCORES]",
            summary: "Returns the members of the first sorted set that are in no other.",
            complexity: DIFF_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZDIFFSTORE",
            run: algebra::zdiffstore,
            flags: WRITE_MORE,
            keys: STORE_KEYS,
            usage: "destination numkeys key [key ...]",
            summary: "Stores the members of the first sorted set that are in no other.",
            complexity: DIFF_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZPOPMIN",
            run: pop::zpopmin,
            flags: WRITE_FAST,
            keys: &[first(RW_TAKE)],
            usage: "key [count]",
            summary: "Takes the members with the lowest scores out of a sorted set.",
            complexity: POP_COST,
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZPOPMAX",
            run: pop::zpopmax,
            flags: WRITE_FAST,
            keys: &[first(RW_TAKE)],
            usage: "key [count]",
            summary: "Takes the members with the highest scores out of a sorted set.",
            complexity: POP_COST,
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ZMPOP",
            run: pop::zmpop,
            flags: WRITE,
            keys: &[counted(1, RW_TAKE)],
            usage: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
            summary: "Takes members out of the first sorted set that is there.",
            complexity: POP_COST,
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BZPOPMIN",
            run: pop::bzpopmin,
            flags: BLOCK_FAST,
            keys: &[words_from(1, -2, 1, RW_TAKE)],
            usage: "key [key ...] timeout",
            summary: "Takes the member with the lowest score, waiting for one if need be.",
            complexity: LOG,
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BZPOPMAX",
            run: pop::bzpopmax,
            flags: BLOCK_FAST,
            keys: &[words_from(1, -2, 1, RW_TAKE)],
            usage: "key [key ...] timeout",
            summary: "Takes the member with the highest score, waiting for one if need be.",
            complexity: LOG,
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BZMPOP",
            run: pop::bzmpop,
            flags: BLOCK,
            keys: &[counted(2, RW_TAKE)],
            usage: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
            summary: "Takes members out of the first sorted set, waiting for one if need be.",
            complexity: POP_COST,
            since: "7.0.0",
            ..Command::DEFAULT
        },
    ],
};

/// Whether a reply tells the members' scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scores {
    Without,
    With,
}

impl Scores {
    /// The header of `count` members: with scores RESP2 has them in one flat array, RESP3 as pairs.
    fn header(self, out: &mut Writer, count: usize) {
        out.array(if self == Scores::With && !out.is_resp3() { count * 2 } else { count });
    }

    /// One member.
    #[inline]
    fn member(self, out: &mut Writer, member: Element<'_>, score: f64) {
        if self == Scores::With && out.is_resp3() {
            out.array(2);
        }
        elements::write(out, member);
        if self == Scores::With {
            out.double(score);
        }
    }

    /// All members of an iterator that knows its length.
    fn members<'m>(
        self,
        out: &mut Writer,
        members: impl ExactSizeIterator<Item = (Element<'m>, f64)>,
    ) {
        self.header(out, members.len());
        members.for_each(|(member, score)| self.member(out, member, score));
    }
}

// What writes have in common.

type Limits = keyspace::types::zset::ZsetLimits;

fn limits(cx: &Context<'_>) -> Limits {
    cx.keys.space().settings.zset_limits()
}

/// What follows a change of `count` members: nothing if there was none.
fn changed(cx: &mut Context<'_>, key: &[u8], event: &'static str, count: usize) {
    if count > 0 {
        cx.changed_elements(class::ZSET, event, key, count);
    }
}

/// Puts a result at a key, or removes the key if the result is empty; answers the members' number.
fn store(cx: &mut Context<'_>, key: &[u8], set: Zset, event: &'static str) {
    cx.out.count(set.len());
    if set.is_empty() {
        if cx.keys.remove(key) {
            cx.keys.notify(class::GENERIC, "del", key);
        }
        return;
    }
    cx.keys.put(key, Value::Zset(set), None);
    cx.keys.notify(class::ZSET, event, key);
}

// Members.

fn zrem(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let Some(set) = cx.keys.zset_mut(key)? else {
        cx.out.count(0);
        return Ok(());
    };
    let removed = args.iter().skip(2).filter(|member| set.remove(member).is_some()).count();
    changed(cx, key, "zrem", removed);
    cx.keys.remove_if_empty(key);
    cx.out.count(removed);
    Ok(())
}

fn zcard(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.out.count(cx.keys.zset(args.word(1))?.map_or(0, Zset::len));
    Ok(())
}

fn write_score(out: &mut Writer, score: Option<f64>) {
    match score {
        Some(score) => out.double(score),
        None => out.null(),
    }
}

fn zscore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let set = cx.keys.zset(args.word(1))?;
    write_score(cx.out, set.and_then(|set| set.score(args.word(2))));
    Ok(())
}

fn zmscore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let set = cx.keys.zset(args.word(1))?;
    cx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        write_score(cx.out, set.and_then(|set| set.score(member)));
    }
    Ok(())
}

fn zrank(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_rank(cx, args, |rank, _| rank)
}

fn zrevrank(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_rank(cx, args, |rank, len| len - 1 - rank)
}

fn write_rank(
    cx: &mut Context<'_>,
    args: Args<'_>,
    rank_of: fn(usize, usize) -> usize,
) -> Result<(), Error> {
    let with_score = match (args.get(3), args.len()) {
        (None, _) => false,
        (Some(word), 4) if is(word, "WITHSCORE") => true,
        (Some(_), 4) => return Err(Error::SYNTAX),
        _ => return Err(Error::wrong_arity(cx.command_name())),
    };
    let set = cx.keys.zset(args.word(1))?;
    let found = set.and_then(|set| Some((set.rank(args.word(2))?, set.len())));
    match found {
        None if with_score => cx.out.null_array(),
        None => cx.out.null(),
        Some(((rank, score), len)) => {
            if with_score {
                cx.out.array(2);
            }
            cx.out.count(rank_of(rank, len));
            if with_score {
                cx.out.double(score);
            }
        }
    }
    Ok(())
}

fn zrandmember(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let Some(word) = args.get(2) else {
        let set = cx.keys.zset(args.word(1))?;
        match set.and_then(|set| set.random(&mut cx.keys.random.borrow_mut())) {
            Some((member, _)) => elements::write(cx.out, member),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let draw = Draw::of(word)?;
    let scores = match (args.get(3), args.len()) {
        (None, _) => Scores::Without,
        (Some(word), 4) if is(word, "WITHSCORES") => Scores::With,
        _ => return Err(Error::SYNTAX),
    };
    let Some(set) = cx.keys.zset(args.word(1))? else {
        cx.out.array(0);
        return Ok(());
    };
    let random = &mut cx.keys.random.borrow_mut();
    match draw {
        Draw::Distinct(count) => {
            scores.header(cx.out, count.min(set.len()));
            set.sample(count, random, |member, score| scores.member(cx.out, member, score));
        }
        Draw::Repeated(count) => {
            scores.header(cx.out, count);
            for (member, score) in (0..count).map_while(|_| set.random(random)) {
                scores.member(cx.out, member, score);
            }
        }
    }
    Ok(())
}

fn zscan(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let from = cursor(args.word(2))?;
    let options = scan_options(args, 3, Scanned::Zset)?;
    let Some(set) = cx.keys.zset(args.word(1))? else {
        empty_scan(cx.out);
        return Ok(());
    };
    let mut reply = ScanReply::new(&options, cx.out.is_resp3());
    let mut text = Vec::new();
    let next = set.scan(from, options.count, |member, score| {
        text.clear();
        number::write_double(&mut text, score);
        reply.add(member, (!options.only_names).then_some(Element::Str(&text)));
    });
    reply.finish(cx.out, next);
    Ok(())
}
