//! Sets: members, random members, algebra over several sets.

use keyspace::effects::class;
use keyspace::keys::Keys;
use keyspace::raw::packed::Element;
use keyspace::types::set::{Set, SetLimits};
use keyspace::value::{Kind, Value};
use resp::{Args, Writer};

use crate::command::{
    Command, DENY_OOM, FAST, Family, Group, KeySpec, OW, RANDOM, READONLY, RM, RO, RO_META,
    RW_INSERT, RW_TAKE, WRITE, at, counted, first, range,
};
use crate::context::Context;
use crate::elements::{self, Draw, ScanReply, empty_scan};
use crate::error::Error;
use crate::words::{ScanOptions, Scanned, count, cursor, is, scan_options};

const STORE_KEYS: &[KeySpec] = &[first(OW), range(2, -1, 1, RO)];
const INTER_COST: &str = "O(N*M), N = members of the smallest set, M = sets";
const UNION_COST: &str = "O(N), N = members of all sets";

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Set,
    commands: &[
        Command {
            name: "SADD",
            run: sadd,
            flags: WRITE.with(DENY_OOM).with(FAST),
            keys: &[first(RW_INSERT)],
            element: 2,
            usage: "key member [member ...]",
            summary: "Adds members to a set.",
            complexity: "O(N), N = members added",
            ..Command::DEFAULT
        },
        Command {
            name: "SREM",
            run: srem,
            flags: WRITE.with(FAST),
            keys: &[first(RM)],
            element: 2,
            usage: "key member [member ...]",
            summary: "Takes members out of a set.",
            complexity: "O(N), N = members taken out",
            ..Command::DEFAULT
        },
        Command {
            name: "SMOVE",
            run: smove,
            flags: WRITE.with(FAST),
            keys: &[first(RW_TAKE), at(2, RW_INSERT)],
            usage: "source destination member",
            summary: "Moves a member from one set to another.",
            ..Command::DEFAULT
        },
        Command {
            name: "SISMEMBER",
            run: sismember,
            flags: READONLY.with(FAST),
            keys: &[first(RO_META)],
            element: 2,
            usage: "key member",
            summary: "Says whether a set has a member.",
            ..Command::DEFAULT
        },
        Command {
            name: "SMISMEMBER",
            run: smismember,
            flags: READONLY.with(FAST),
            keys: &[first(RO)],
            usage: "key member [member ...]",
            summary: "Says of each given member whether a set has it.",
            complexity: "O(N), N = members asked for",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SCARD",
            run: scard,
            flags: READONLY.with(FAST),
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns how many members a set has.",
            ..Command::DEFAULT
        },
        Command {
            name: "SPOP",
            run: spop,
            flags: WRITE.with(FAST).with(RANDOM),
            keys: &[first(RW_TAKE)],
            usage: "key [count]",
            summary: "Takes random members out of a set and returns them.",
            complexity: "O(N), N = members returned",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "SRANDMEMBER",
            run: srandmember,
            flags: READONLY.with(RANDOM),
            keys: &[first(RO)],
            usage: "key [count]",
            summary: "Returns random members of a set.",
            complexity: "O(N), N = members returned",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "SMEMBERS",
            run: smembers,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns every member of a set.",
            complexity: "O(N), N = members",
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "SSCAN",
            run: sscan,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key cursor [MATCH pattern] [COUNT count]",
            summary: "Returns the members of a set bit by bit.",
            complexity: "O(1) for each call, O(N) for all, N = members",
            since: "2.8.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "SINTER",
            run: sinter,
            flags: READONLY,
            keys: &[range(1, -1, 1, RO)],
            usage: "key [key ...]",
            summary: "Returns the members that all the sets have.",
            complexity: INTER_COST,
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "SINTERCARD",
            run: sintercard,
            flags: READONLY,
            keys: &[counted(1, RO)],
            usage: "numkeys key [key ...] [LIMIT limit]",
            summary: "Returns how many members all the sets have in common.",
            complexity: INTER_COST,
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SINTERSTORE",
            run: sinterstore,
            flags: WRITE.with(DENY_OOM),
            keys: STORE_KEYS,
            usage: "destination key [key ...]",
            summary: "Stores the members that all the sets have.",
            complexity: INTER_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "SUNION",
            run: sunion,
            flags: READONLY,
            keys: &[range(1, -1, 1, RO)],
            usage: "key [key ...]",
            summary: "Returns the members that any of the sets has.",
            complexity: UNION_COST,
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "SUNIONSTORE",
            run: sunionstore,
            flags: WRITE.with(DENY_OOM),
            keys: STORE_KEYS,
            usage: "destination key [key ...]",
            summary: "Stores the members that any of the sets has.",
            complexity: UNION_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "SDIFF",
            run: sdiff,
            flags: READONLY,
            keys: &[range(1, -1, 1, RO)],
            usage: "key [key ...]",
            summary: "Returns the members of the first set that none of the others has.",
            complexity: UNION_COST,
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "SDIFFSTORE",
            run: sdiffstore,
            flags: WRITE.with(DENY_OOM),
            keys: STORE_KEYS,
            usage: "destination key [key ...]",
            summary: "Stores the members of the first set that none of the others has.",
            complexity: UNION_COST,
            ..Command::DEFAULT
        },
    ],
};

fn limits(cx: &Context<'_>) -> SetLimits {
    cx.keys.space().settings.set_limits()
}

/// What follows a change of a set by `count` members.
fn changed(cx: &mut Context<'_>, key: &[u8], event: &'static str, count: usize) {
    cx.changed_elements(class::SET, event, key, count);
}

// Members.

fn sadd(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let limits = limits(cx);
    let set = cx.keys.set_or_new(key)?;
    set.expect_members(args.word(2), args.len() - 2, limits);
    let added = args.iter().skip(2).filter(|member| set.insert(member, limits)).count();
    cx.out.count(added);
    if added > 0 {
        changed(cx, key, "sadd", added);
    }
    Ok(())
}

fn srem(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let Some(set) = cx.keys.set_mut(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    let gone = args.iter().skip(2).filter(|member| set.remove(member)).count();
    cx.out.count(gone);
    if gone > 0 {
        changed(cx, key, "srem", gone);
        cx.keys.remove_if_empty(key);
    }
    Ok(())
}

fn smove(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (source, destination, member) = (args.word(1), args.word(2), args.word(3));
    let limits = limits(cx);
    let Some(set) = cx.keys.set_at(source)? else {
        cx.out.int(0);
        return Ok(());
    };
    let found = set.contains(member);
    if cx.keys.kind(destination).is_some_and(|kind| kind != Kind::Set) {
        return Err(Error::WRONG_TYPE);
    }
    cx.out.flag(found);
    if !found || source == destination {
        return Ok(());
    }
    if let Some(set) = cx.keys.set_mut(source)? {
        set.remove(member);
    }
    changed(cx, source, "srem", 1);
    cx.keys.remove_if_empty(source);
    if cx.keys.set_or_new(destination)?.insert(member, limits) {
        changed(cx, destination, "sadd", 1);
    }
    Ok(())
}

fn sismember(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let found = cx.keys.set_at(key)?.map(|set| set.contains(args.word(2)));
    cx.out.flag(found.unwrap_or(false));
    if found.is_none() {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn smismember(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let set = cx.keys.set_at(key)?;
    let missed = set.is_none();
    cx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        cx.out.flag(set.is_some_and(|set| set.contains(member)));
    }
    if missed {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn scard(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let len = cx.keys.set_at(key)?.map(Set::len);
    cx.out.count(len.unwrap_or(0));
    if len.is_none() {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn smembers(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    match cx.keys.set_at(key)? {
        Some(set) => write_all(cx.out, set),
        None => {
            cx.out.set(0);
            cx.keys.notify_miss(key);
        }
    }
    Ok(())
}

fn write_all(out: &mut Writer, set: &Set) {
    out.set(set.len());
    set.iter().for_each(|element| elements::write(out, element));
}

fn sscan(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, start) = (args.word(1), cursor(args.word(2))?);
    let Some(set) = cx.keys.set_at(key)? else {
        empty_scan(cx.out);
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let options = member_options(args)?;
    let mut reply = ScanReply::new(&options, cx.out.is_resp3());
    let next = set.scan(start, options.count, |element| reply.add(element, None));
    reply.finish(cx.out, next);
    Ok(())
}

fn member_options(args: Args<'_>) -> Result<ScanOptions<'_>, Error> {
    scan_options(args, 3, Scanned::Set)
}

// Random members.

fn spop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    match args.len() {
        2 => pop_one(cx, key),
        3 => pop_many(cx, key, count(args.word(2), &Error::NOT_POSITIVE)?),
        _ => Err(Error::SYNTAX),
    }
}

fn pop_one(cx: &mut Context<'_>, key: &[u8]) -> Result<(), Error> {
    let mut random = cx.keys.random.borrow().clone();
    let Some(set) = cx.keys.set_mut(key)? else {
        cx.out.null();
        return Ok(());
    };
    // A copy, for the log.
    let member = set.pop(&mut random, |member| member.to_vec()).expect("no set is empty");
    cx.keys.random.replace(random);
    cx.out.bulk(&member);
    changed(cx, key, "spop", 1);
    cx.keys.rewrite(&[b"SREM", key, &member]);
    cx.keys.remove_if_empty(key);
    Ok(())
}

/// Members in one SREM of the log.
const REWRITE_MAX: usize = 1024;

fn pop_many(cx: &mut Context<'_>, key: &[u8], wanted: usize) -> Result<(), Error> {
    let Some(set) = cx.keys.set_at(key)? else {
        cx.out.set(0);
        return Ok(());
    };
    if wanted == 0 {
        cx.out.set(0);
        return Ok(());
    }
    let len = set.len();
    if wanted >= len {
        write_all(cx.out, set);
        cx.keys.notify(class::SET, "spop", key);
        cx.keys.remove(key);
        cx.keys.effects.dirty += len as u64 - 1;
        cx.keys.notify(class::GENERIC, "del", key);
        cx.keys.rewrite(&[b"DEL", key]);
        return Ok(());
    }
    let mut members = Vec::with_capacity(wanted);
    set.sample(wanted, &mut cx.keys.random.borrow_mut(), |member| members.push(member.to_vec()));
    if let Some(set) = cx.keys.set_mut(key)? {
        members.iter().for_each(|member| {
            set.remove(member);
        });
    }
    cx.out.set(members.len());
    members.iter().for_each(|member| cx.out.bulk(member));
    changed(cx, key, "spop", members.len());
    for part in members.chunks(REWRITE_MAX) {
        let mut words: Vec<&[u8]> = vec![b"SREM", key];
        words.extend(part.iter().map(Vec::as_slice));
        cx.keys.rewrite(&words);
    }
    Ok(())
}

fn srandmember(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    if args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let draw = args.get(2).map(Draw::of).transpose()?;
    let Some(set) = cx.keys.set_at(key)? else {
        match draw {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let out = &mut *cx.out;
    let random = &mut cx.keys.random.borrow_mut();
    let mut write_one = |out: &mut Writer| {
        let member = set.random(random).expect("no set is empty");
        elements::write(out, member);
    };
    match draw {
        None => write_one(out),
        Some(Draw::Repeated(count)) => {
            out.array(count);
            (0..count).for_each(|_| write_one(out));
        }
        Some(Draw::Distinct(count)) => {
            out.array(count.min(set.len()));
            set.sample(count, random, |member| elements::write(out, member));
        }
    }
    Ok(())
}

// Algebra.

/// The sets at these keys, in order; `None` where there is none.
fn sets_at<'c, 'w>(
    keys: &'c Keys<'_>,
    names: impl Iterator<Item = &'w [u8]>,
) -> Result<Vec<Option<&'c Set>>, Error> {
    names.map(|name| Ok(keys.set_at(name)?)).collect()
}

/// Visits the members that all sets have, until `visit` says stop.
fn intersect(sets: &[Option<&Set>], mut visit: impl FnMut(Element<'_>) -> bool) {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<&Set>>>() else { return };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    for member in smallest.iter() {
        let mut others = others.iter().filter(|other| !std::ptr::eq(**other, *smallest));
        if others.all(|other| other.contains_element(member)) && !visit(member) {
            return;
        }
    }
}

fn sinter(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let sets = sets_at(&cx.keys, args.iter().skip(1))?;
    let place = cx.out.later();
    let mut len = 0;
    intersect(&sets, |member| {
        elements::write(cx.out, member);
        len += 1;
        true
    });
    cx.out.set_at(place, len);
    Ok(())
}

fn sintercard(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const NO_KEYS: Error = Error::text("ERR numkeys should be greater than 0");
    const BAD_LIMIT: Error = Error::text("ERR LIMIT can't be negative");
    let key_count = count(args.word(1), &NO_KEYS)?;
    if key_count == 0 {
        return Err(NO_KEYS);
    }
    if key_count > args.len() - 2 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    let mut limit = 0;
    for at in (2 + key_count..args.len()).step_by(2) {
        match args.get(at + 1) {
            Some(word) if is(args.word(at), "LIMIT") => limit = count(word, &BAD_LIMIT)?,
            _ => return Err(Error::SYNTAX),
        }
    }
    let sets = sets_at(&cx.keys, args.iter().skip(2).take(key_count))?;
    let mut common = 0;
    intersect(&sets, |_| {
        common += 1;
        common != limit
    });
    cx.out.count(common);
    Ok(())
}

fn sinterstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let limits = limits(cx);
    let sets = sets_at(&cx.keys, args.iter().skip(2))?;
    let mut result = Set::default();
    intersect(&sets, |member| result.insert_element(member, limits));
    result.compact_to_intset(limits);
    store(cx, args.word(1), result, "sinterstore");
    Ok(())
}

/// Stores the result of algebra, or removes the key if it is empty; the reply is its size.
fn store(cx: &mut Context<'_>, key: &[u8], result: Set, event: &'static str) {
    cx.out.count(result.len());
    if !result.is_empty() {
        cx.keys.put(key, Value::Set(result), None);
        cx.keys.notify(class::SET, event, key);
    } else if cx.keys.remove(key) {
        cx.keys.notify(class::GENERIC, "del", key);
    }
}

fn union(sets: &[Option<&Set>], limits: SetLimits) -> Set {
    let mut result = Set::default();
    for member in sets.iter().flatten().flat_map(|set| set.iter()) {
        result.insert_element(member, limits);
    }
    result
}

fn sunion(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let limits = limits(cx);
    let sets = sets_at(&cx.keys, args.iter().skip(1))?;
    let there: Vec<&Set> = sets.iter().copied().flatten().collect();
    match there[..] {
        [only] => write_all(cx.out, only),
        _ => write_all(cx.out, &union(&sets, limits)),
    }
    Ok(())
}

fn sunionstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let limits = limits(cx);
    let sets = sets_at(&cx.keys, args.iter().skip(2))?;
    let result = union(&sets, limits);
    store(cx, args.word(1), result, "sunionstore");
    Ok(())
}

/// The members of the first set that none of the others has. Either each of them is looked for in
/// all others, or all others' members are taken away from a copy: whichever is less work.
fn difference(sets: &[Option<&Set>], limits: SetLimits) -> Set {
    let mut result = Set::default();
    let Some((Some(first), others)) = sets.split_first() else { return result };
    let mut others: Vec<&Set> = others.iter().copied().flatten().collect();
    if others.iter().any(|other| std::ptr::eq(*other, *first)) {
        return result;
    }
    let one_by_one = first.len() * (others.len() + 1) / 2;
    let all_others = first.len() + others.iter().map(|other| other.len()).sum::<usize>();
    if one_by_one <= all_others {
        // The largest is the likeliest to have it.
        others.sort_by_key(|other| std::cmp::Reverse(other.len()));
        for member in first.iter() {
            if !others.iter().any(|other| other.contains_element(member)) {
                result.insert_element(member, limits);
            }
        }
        return result;
    }
    for member in first.iter() {
        result.insert_element(member, limits);
    }
    let mut text = itoa::Buffer::new();
    for other in others {
        for member in other.iter() {
            if result.is_empty() {
                return result;
            }
            result.remove(member.text(&mut text));
        }
    }
    result
}

fn sdiff(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let limits = limits(cx);
    let sets = sets_at(&cx.keys, args.iter().skip(1))?;
    let result = difference(&sets, limits);
    write_all(cx.out, &result);
    Ok(())
}

fn sdiffstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let limits = limits(cx);
    let sets = sets_at(&cx.keys, args.iter().skip(2))?;
    let result = difference(&sets, limits);
    store(cx, args.word(1), result, "sdiffstore");
    Ok(())
}
