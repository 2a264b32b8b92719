//! Union, intersection and difference of sorted sets; plain sets count as sorted ones in which
//! every score is 1.

use std::borrow::Cow;
use std::collections::HashMap;

use keyspace::raw::packed::Element;
use keyspace::types::set::Set;
use keyspace::types::zset::Zset;
use keyspace::value::ValueRef;
use resp::{Args, number};

use super::{Scores, limits, store};
use crate::context::Context;
use crate::error::Error;
use crate::words::{count, integer, is};

type Member<'a> = Cow<'a, [u8]>;
type Members<'a> = Vec<(Member<'a>, f64)>;

/// What a key gives to an operation.
#[derive(Clone, Copy)]
enum Source<'a> {
    Nothing,
    Set(&'a Set),
    Zset(&'a Zset),
}

impl<'a> Source<'a> {
    fn of(value: Option<ValueRef<'a>>) -> Result<Source<'a>, Error> {
        match value {
            None => Ok(Source::Nothing),
            Some(ValueRef::Set(set)) => Ok(Source::Set(set)),
            Some(ValueRef::Zset(set)) => Ok(Source::Zset(set)),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    fn len(self) -> usize {
        match self {
            Source::Nothing => 0,
            Source::Set(set) => set.len(),
            Source::Zset(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Nothing => None,
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::Zset(set) => set.score(member),
        }
    }

    fn members(self) -> impl Iterator<Item = (Member<'a>, f64)> {
        let (set, zset) = match self {
            Source::Nothing => (None, None),
            Source::Set(set) => (Some(set), None),
            Source::Zset(zset) => (None, Some(zset)),
        };
        let set = set.into_iter().flat_map(|set| set.iter().map(|member| (member, 1.0)));
        let zset = zset.into_iter().flat_map(Zset::iter);
        set.chain(zset).map(|(member, score)| (bytes(member), score))
    }
}

fn bytes(element: Element<'_>) -> Member<'_> {
    match element {
        Element::Str(bytes) => Cow::Borrowed(bytes),
        Element::Int(_) => Cow::Owned(element.to_vec()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// How the scores of a member in several sets become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(word: &[u8]) -> Result<Aggregate, Error> {
        let all = [("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];
        let found = all.into_iter().find(|(name, _)| is(word, name));
        found.map(|(_, aggregate)| aggregate).ok_or(Error::SYNTAX)
    }

    /// Infinities that cancel each other out give 0, as in Redis.
    fn join(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a command does with the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Reply,
    Store,
    Count,
}

/// A whole command but for its keys' values.
struct Query {
    weights: Vec<f64>,
    aggregate: Aggregate,
    scores: Scores,
    /// LIMIT of ZINTERCARD; 0 = none.
    limit: usize,
}

impl Query {
    /// How many keys there are, which is the word at `at`.
    fn key_count(cx: &Context<'_>, args: Args<'_>, at: usize) -> Result<usize, Error> {
        let keys = integer(args.word(at))?;
        if keys < 1 {
            return Err(Error::new(format!(
                "ERR at least 1 input key is needed for '{}' command",
                cx.command_name()
            )));
        }
        let keys = usize::try_from(keys).map_err(|_| Error::SYNTAX)?;
        if keys > args.len() - at - 1 { Err(Error::SYNTAX) } else { Ok(keys) }
    }

    /// Reads the options, which start at the word at `at`.
    fn read(
        args: Args<'_>,
        keys: usize,
        at: usize,
        operation: Operation,
        form: Form,
    ) -> Result<Query, Error> {
        let mut query = Query {
            weights: vec![1.0; keys],
            aggregate: Aggregate::Sum,
            scores: Scores::Without,
            limit: 0,
        };
        let joins = operation != Operation::Diff && form != Form::Count;
        let mut at = at;
        while let Some(word) = args.get(at) {
            let left = args.len() - at;
            if joins && left > keys && is(word, "WEIGHTS") {
                for (weight, word) in query.weights.iter_mut().zip(args.iter().skip(at + 1)) {
                    const ERROR: Error = Error::text("ERR weight value is not a float");
                    *weight = number::double(word).ok_or(ERROR)?;
                }
                at += keys;
            } else if joins && left >= 2 && is(word, "AGGREGATE") {
                query.aggregate = Aggregate::of(args.word(at + 1))?;
                at += 1;
            } else if form == Form::Reply && is(word, "WITHSCORES") {
                query.scores = Scores::With;
            } else if form == Form::Count && left >= 2 && is(word, "LIMIT") {
                const ERROR: Error = Error::text("ERR LIMIT can't be negative");
                query.limit = count(args.word(at + 1), &ERROR)?;
                at += 1;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        Ok(query)
    }
}

fn run(
    cx: &mut Context<'_>,
    args: Args<'_>,
    operation: Operation,
    form: Form,
) -> Result<(), Error> {
    let at = if form == Form::Store { 2 } else { 1 };
    let keys = Query::key_count(cx, args, at)?;
    let mut sources = Vec::with_capacity(keys);
    for key in args.iter().skip(at + 1).take(keys) {
        sources.push((Source::of(cx.keys.get(key))?, 1.0));
    }
    let query = Query::read(args, keys, at + 1 + keys, operation, form)?;
    for ((_, own), weight) in sources.iter_mut().zip(&query.weights) {
        *own = *weight;
    }
    if operation != Operation::Diff {
        sources.sort_by_key(|(source, _)| source.len());
    }
    if form == Form::Count {
        cx.out.count(inter_count(&sources, query.limit));
        return Ok(());
    }
    let mut members = match operation {
        Operation::Union => union(&sources, query.aggregate),
        Operation::Inter => inter(&sources, query.aggregate),
        Operation::Diff => diff(&sources),
    };
    if form == Form::Reply {
        members.sort_unstable_by(|(one, score), (other, other_score)| {
            // Scores are numbers here: those that were none have become 0.
            score.partial_cmp(other_score).expect("numbers").then_with(|| one.cmp(other))
        });
        let members = members.iter().map(|(member, score)| (Element::Str(member), *score));
        query.scores.members(cx.out, members);
        return Ok(());
    }
    let pairs: Vec<(&[u8], f64)> =
        members.iter().map(|(member, score)| (&member[..], *score)).collect();
    let result = Zset::build(&pairs, limits(cx));
    let event = match operation {
        Operation::Union => "zunionstore",
        Operation::Inter => "zinterstore",
        Operation::Diff => "zdiffstore",
    };
    store(cx, args.word(1), result, event);
    Ok(())
}

fn union<'a>(sources: &[(Source<'a>, f64)], aggregate: Aggregate) -> Members<'a> {
    let longest = sources.last().map_or(0, |(source, _)| source.len());
    let mut scores: HashMap<Member<'a>, f64> = HashMap::with_capacity(longest);
    for (source, weight) in sources {
        for (member, score) in source.members() {
            let score = number_or_zero(score * weight);
            scores
                .entry(member)
                .and_modify(|old| *old = aggregate.join(*old, score))
                .or_insert(score);
        }
    }
    scores.into_iter().collect()
}

fn inter<'a>(sources: &[(Source<'a>, f64)], aggregate: Aggregate) -> Members<'a> {
    let Some(((smallest, weight), others)) = sources.split_first() else { return Vec::new() };
    let mut members = Vec::new();
    'members: for (member, score) in smallest.members() {
        let mut sum = number_or_zero(score * weight);
        for (source, weight) in others {
            let Some(score) = source.score(&member) else { continue 'members };
            sum = aggregate.join(sum, score * weight);
        }
        members.push((member, sum));
    }
    members
}

fn inter_count(sources: &[(Source<'_>, f64)], limit: usize) -> usize {
    let Some(((smallest, _), others)) = sources.split_first() else { return 0 };
    let common = smallest
        .members()
        .filter(|(member, _)| others.iter().all(|(source, _)| source.score(member).is_some()));
    common.take(if limit == 0 { usize::MAX } else { limit }).count()
}

fn diff<'a>(sources: &[(Source<'a>, f64)]) -> Members<'a> {
    let Some(((first, _), others)) = sources.split_first() else { return Vec::new() };
    let unique = first
        .members()
        .filter(|(member, _)| others.iter().all(|(source, _)| source.score(member).is_none()));
    unique.collect()
}

pub(super) fn zunion(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Union, Form::Reply)
}

pub(super) fn zunionstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Union, Form::Store)
}

pub(super) fn zinter(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Inter, Form::Reply)
}

pub(super) fn zinterstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Inter, Form::Store)
}

pub(super) fn zintercard(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Inter, Form::Count)
}

pub(super) fn zdiff(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Diff, Form::Reply)
}

pub(super) fn zdiffstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    run(cx, args, Operation::Diff, Form::Store)
}
