//! Lists: pushes and pops at both ends, by index, by value, between lists, and waiting for them.

use keyspace::effects::class;
use keyspace::raw::packed::Element;
use keyspace::types::list::{End, List, ListLimits, Side};
use keyspace::value::Kind;
use resp::{Args, Writer};

use crate::command::{
    BLOCKING, Command, DENY_OOM, FAST, Family, Flags, Group, KeySpec, READONLY, RM, RO, RO_META,
    RW_INSERT, RW_TAKE, RW_UPDATE, WRITE, at, counted, first, range,
};
use crate::context::Context;
use crate::elements;
use crate::error::Error;
use crate::string::range_of;
use crate::words::{count, integer, is, key_count, signed_count, timeout_ms};

const WRITE_FAST: Flags = WRITE.with(FAST);
const PUSH: Flags = WRITE.with(DENY_OOM).with(FAST);
const WRITE_MORE: Flags = WRITE.with(DENY_OOM);
const MOVE_KEYS: &[KeySpec] = &[first(RW_TAKE), at(2, RW_INSERT)];
const PUSH_COST: &str = "O(N), N = elements pushed";
const POP_COST: &str = "O(N), N = elements returned";

/// The family.
pub const FAMILY: Family = Family {
    group: Group::List,
    commands: &[
        Command {
            name: "LPUSH",
            run: lpush,
            flags: PUSH,
            keys: &[first(RW_INSERT)],
            usage: "key element [element ...]",
            summary: "Pushes elements to the left end of a list, one after the other.",
            complexity: PUSH_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "RPUSH",
            run: rpush,
            flags: PUSH,
            keys: &[first(RW_INSERT)],
            usage: "key element [element ...]",
            summary: "Pushes elements to the right end of a list, one after the other.",
            complexity: PUSH_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "LPUSHX",
            run: lpushx,
            flags: PUSH,
            keys: &[first(RW_INSERT)],
            usage: "key element [element ...]",
            summary: "Pushes elements to the left end of a list that is there already.",
            complexity: PUSH_COST,
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "RPUSHX",
            run: rpushx,
            flags: PUSH,
            keys: &[first(RW_INSERT)],
            usage: "key element [element ...]",
            summary: "Pushes elements to the right end of a list that is there already.",
            complexity: PUSH_COST,
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "LPOP",
            run: lpop,
            flags: WRITE_FAST,
            keys: &[first(RW_TAKE)],
            usage: "key [count]",
            summary: "Takes elements out at the left end of a list and returns them.",
            complexity: POP_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "RPOP",
            run: rpop,
            flags: WRITE_FAST,
            keys: &[first(RW_TAKE)],
            usage: "key [count]",
            summary: "Takes elements out at the right end of a list and returns them.",
            complexity: POP_COST,
            ..Command::DEFAULT
        },
        Command {
            name: "LMPOP",
            run: lmpop,
            flags: WRITE,
            keys: &[counted(1, RW_TAKE)],
            usage: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            summary: "Takes elements out of the first list that has any and returns them.",
            complexity: "O(N+M), N = keys, M = elements returned",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "LLEN",
            run: llen,
            flags: READONLY.with(FAST),
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns the length of a list.",
            ..Command::DEFAULT
        },
        Command {
            name: "LINDEX",
            run: lindex,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key index",
            summary: "Returns the element of a list with this index.",
            complexity: "O(N), N = nodes passed on the way from the nearer end",
            ..Command::DEFAULT
        },
        Command {
            name: "LSET",
            run: lset,
            flags: WRITE_MORE,
            keys: &[first(RW_UPDATE)],
            usage: "key index element",
            summary: "Puts an element in the place of the one with this index.",
            complexity: "O(N), N = nodes passed on the way from the nearer end",
            ..Command::DEFAULT
        },
        Command {
            name: "LINSERT",
            run: linsert,
            flags: WRITE_MORE,
            keys: &[first(RW_INSERT)],
            usage: "key <BEFORE | AFTER> pivot element",
            summary: "Inserts an element beside the first one equal to the pivot.",
            complexity: "O(N), N = elements up to the pivot",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "LRANGE",
            run: lrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start stop",
            summary: "Returns the elements of a list between two indexes.",
            complexity: "O(S+N), S = nodes passed on the way to the start, N = elements returned",
            ..Command::DEFAULT
        },
        Command {
            name: "LTRIM",
            run: ltrim,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key start stop",
            summary: "Keeps only the elements of a list between two indexes.",
            complexity: "O(N), N = elements taken out",
            ..Command::DEFAULT
        },
        Command {
            name: "LREM",
            run: lrem,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key count element",
            summary: "Takes elements equal to the given one out of a list.",
            complexity: "O(N), N = length of the list",
            ..Command::DEFAULT
        },
        Command {
            name: "LPOS",
            run: lpos,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
            summary: "Returns the indexes of elements equal to the given one.",
            complexity: "O(N), N = elements looked at",
            since: "6.0.6",
            ..Command::DEFAULT
        },
        Command {
            name: "LMOVE",
            run: lmove,
            flags: WRITE_MORE,
            keys: MOVE_KEYS,
            usage: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
            summary: "Moves an element from an end of one list to an end of another.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "RPOPLPUSH",
            run: rpoplpush,
            flags: WRITE_MORE,
            keys: MOVE_KEYS,
            usage: "source destination",
            summary: "Moves an element from the right of one list to the left of another.",
            since: "1.2.0",
            deprecated: Some(("6.2.0", "LMOVE with RIGHT and LEFT")),
            ..Command::DEFAULT
        },
        Command {
            name: "BLPOP",
            run: blpop,
            flags: WRITE.with(BLOCKING),
            keys: &[range(1, -2, 1, RW_TAKE)],
            usage: "key [key ...] timeout",
            summary: "Takes the leftmost element of the first list that has any, or waits.",
            complexity: "O(N), N = keys",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BRPOP",
            run: brpop,
            flags: WRITE.with(BLOCKING),
            keys: &[range(1, -2, 1, RW_TAKE)],
            usage: "key [key ...] timeout",
            summary: "Takes the rightmost element of the first list that has any, or waits.",
            complexity: "O(N), N = keys",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BLMOVE",
            run: blmove,
            flags: WRITE_MORE.with(BLOCKING),
            keys: MOVE_KEYS,
            usage: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
            summary: "Moves an element between two lists, or waits for one to move.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "BRPOPLPUSH",
            run: brpoplpush,
            flags: WRITE_MORE.with(BLOCKING),
            keys: MOVE_KEYS,
            usage: "source destination timeout",
            summary: "Moves an element from the right of one list to the left of another, \
                      or waits for one to move.",
            since: "2.2.0",
            deprecated: Some(("6.2.0", "BLMOVE with RIGHT and LEFT")),
            ..Command::DEFAULT
        },
        Command {
            name: "BLMPOP",
            run: blmpop,
            flags: WRITE.with(BLOCKING),
            keys: &[counted(2, RW_TAKE)],
            usage: "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            summary: "Takes elements out of the first list that has any, or waits for some.",
            complexity: "O(N+M), N = keys, M = elements returned",
            since: "7.0.0",
            ..Command::DEFAULT
        },
    ],
};

fn limits(cx: &Context<'_>) -> ListLimits {
    cx.keys.space().settings.list_limits()
}

fn end_of(word: &[u8]) -> Result<End, Error> {
    match word {
        word if is(word, "LEFT") => Ok(End::Left),
        word if is(word, "RIGHT") => Ok(End::Right),
        _ => Err(Error::SYNTAX),
    }
}

fn end_name(end: End) -> &'static [u8] {
    if end == End::Left { b"LEFT" } else { b"RIGHT" }
}

fn push_event(end: End) -> &'static str {
    if end == End::Left { "lpush" } else { "rpush" }
}

fn pop_event(end: End) -> &'static str {
    if end == End::Left { "lpop" } else { "rpop" }
}

fn pop_command(end: End) -> &'static [u8] {
    if end == End::Left { b"LPOP" } else { b"RPOP" }
}

/// Where a possibly negative index lies in a list of `len` elements; `len` if it is outside.
fn index_of(index: i64, len: usize) -> usize {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).map_or(len, |index| index.min(len))
}

// Pushing.

fn lpush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    push(cx, args, End::Left)
}

fn rpush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    push(cx, args, End::Right)
}

fn lpushx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    push_if_there(cx, args, End::Left)
}

fn rpushx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    push_if_there(cx, args, End::Right)
}

fn push_if_there(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    if cx.keys.exists(args.word(1)) {
        return push(cx, args, end);
    }
    cx.out.int(0);
    Ok(())
}

fn push(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    let key = args.word(1);
    let limits = limits(cx);
    let list = cx.keys.list_or_new(key)?;
    list.push(end, (2..args.len()).map(|index| args.word(index)), limits);
    let len = list.len();
    cx.out.count(len);
    changed(cx, key, push_event(end), args.len() - 2);
    Ok(())
}

/// What follows a change of a list by `count` elements.
fn changed(cx: &mut Context<'_>, key: &[u8], event: &'static str, count: usize) {
    cx.changed_elements(class::LIST, event, key, count);
}

// Popping.

fn lpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop(cx, args, End::Left)
}

fn rpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop(cx, args, End::Right)
}

fn pop(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    let key = args.word(1);
    if args.len() > 3 {
        return Err(Error::wrong_arity(cx.command_name()));
    }
    let wanted = args.get(2).map(|word| count(word, &Error::NOT_POSITIVE)).transpose()?;
    match (wanted, cx.keys.list_mut(key)?.is_some()) {
        (None, false) => cx.out.null(),
        (Some(_), false) => cx.out.null_array(),
        (Some(0), true) => cx.out.array(0),
        (None, true) => take_one(cx, key, end),
        (Some(wanted), true) => {
            take(cx, key, end, wanted);
        }
    }
    Ok(())
}

/// Takes one element out of a list that is there, as a bulk string.
fn take_one(cx: &mut Context<'_>, key: &[u8], end: End) {
    let limits = limits(cx);
    let out = &mut *cx.out;
    if let Ok(Some(list)) = cx.keys.list_mut(key) {
        list.pop(end, limits, |element| elements::write(out, element));
    }
    removed(cx, key, pop_event(end), 1);
}

/// Takes up to `wanted` elements out of a list that is there, as an array; returns how many.
fn take(cx: &mut Context<'_>, key: &[u8], end: End, wanted: usize) -> usize {
    let limits = limits(cx);
    let Ok(Some(list)) = cx.keys.list_mut(key) else { return 0 };
    let len = list.len();
    let taken = wanted.min(len);
    cx.out.array(taken);
    match end {
        End::Left => {
            list.iter().take(taken).for_each(|element| elements::write(cx.out, element));
            list.remove_range(0, taken, limits);
        }
        End::Right => {
            list.iter_back(0).take(taken).for_each(|element| elements::write(cx.out, element));
            list.remove_range(len - taken, taken, limits);
        }
    }
    removed(cx, key, pop_event(end), taken);
    taken
}

/// What follows when `count` elements were taken out: the key goes with its last element.
fn removed(cx: &mut Context<'_>, key: &[u8], event: &'static str, count: usize) {
    changed(cx, key, event, count);
    cx.keys.remove_if_empty(key);
}

/// The words of LMPOP from its number of keys on.
struct Mpop<'a> {
    keys: Args<'a>,
    key_count: usize,
    end: End,
    count: usize,
}

impl<'a> Mpop<'a> {
    fn parse(args: Args<'a>, at: usize) -> Result<Mpop<'a>, Error> {
        const BAD_COUNT: Error = Error::text("ERR count should be greater than 0");
        let key_count = key_count(args, at)?;
        let end = end_of(args.get(at + key_count + 1).ok_or(Error::SYNTAX)?)?;
        let wanted = match (args.get(at + key_count + 2), args.get(at + key_count + 3)) {
            (None, _) => 1,
            (Some(word), Some(wanted)) if is(word, "COUNT") => count(wanted, &BAD_COUNT)?,
            _ => return Err(Error::SYNTAX),
        };
        if wanted == 0 {
            return Err(BAD_COUNT);
        }
        if args.len() > at + key_count + 4 {
            return Err(Error::SYNTAX);
        }
        Ok(Mpop { keys: args.from(at + 1), key_count, end, count: wanted })
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.keys.iter().take(self.key_count)
    }

    /// Takes from a list that is there, with the list's name and the log record.
    fn take(&self, cx: &mut Context<'_>, key: &[u8]) {
        cx.out.array(2);
        cx.out.bulk(key);
        let taken = take(cx, key, self.end, self.count);
        let mut text = itoa::Buffer::new();
        cx.keys.rewrite(&[pop_command(self.end), key, text.format(taken).as_bytes()]);
    }
}

fn lmpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mpop = Mpop::parse(args, 1)?;
    for key in mpop.keys() {
        if cx.keys.list(key)?.is_some() {
            mpop.take(cx, key);
            return Ok(());
        }
    }
    cx.out.null_array();
    Ok(())
}

// Looking.

fn llen(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let len = cx.keys.list(key)?.map(List::len);
    cx.out.count(len.unwrap_or(0));
    if len.is_none() {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn lindex(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let Some(list) = cx.keys.list(key)? else {
        cx.out.null();
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let index = index_of(integer(args.word(2))?, list.len());
    match list.get(index) {
        Some(element) => elements::write(cx.out, element),
        None => cx.out.null(),
    }
    Ok(())
}

fn lrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let (start, stop) = (integer(args.word(2))?, integer(args.word(3))?);
    let Some(list) = cx.keys.list(key)? else {
        cx.out.array(0);
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let range = range_of(start, stop, list.len());
    cx.out.array(range.len());
    let out = &mut *cx.out;
    let part = list.iter_from(range.start).take(range.len());
    part.for_each(|element| elements::write(out, element));
    Ok(())
}

/// LPOS's options.
struct Search {
    from: End,
    /// The first match to return, from 1.
    rank: usize,
    /// How many, 0 = all; without it one, and not as an array.
    count: Option<usize>,
    /// How many elements to look at, 0 = all.
    max_len: usize,
}

fn search_options(args: Args<'_>) -> Result<Search, Error> {
    const ZERO_RANK: &str = "ERR RANK can't be zero: use 1 to start from the first match, \
         2 from the second ... or use negative to start from the end of the list";
    let mut search = Search { from: End::Left, rank: 1, count: None, max_len: 0 };
    for at in (3..args.len()).step_by(2) {
        let (word, value) = (args.word(at), args.get(at + 1).ok_or(Error::SYNTAX)?);
        if is(word, "RANK") {
            search.rank = match signed_count(value)? {
                0 => return Err(Error::text(ZERO_RANK)),
                rank => {
                    search.from = if rank < 0 { End::Right } else { End::Left };
                    rank.unsigned_abs() as usize
                }
            };
        } else if is(word, "COUNT") {
            let error = Error::text("ERR COUNT can't be negative");
            search.count = Some(count(value, &error)?);
        } else if is(word, "MAXLEN") {
            search.max_len = count(value, &Error::text("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(search)
}

fn lpos(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let search = search_options(args)?;
    let Some(list) = cx.keys.list(key)? else {
        match search.count {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        cx.keys.notify_miss(key);
        return Ok(());
    };
    let needle = Element::new(args.word(2));
    let limit = if search.max_len == 0 { usize::MAX } else { search.max_len };
    let wanted = match search.count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    match search.from {
        End::Left => {
            let matches = list.iter().take(limit).enumerate();
            let matches = matches.filter(|(_, element)| *element == needle).map(|(index, _)| index);
            write_indexes(cx.out, search.count, matches.skip(search.rank - 1).take(wanted));
        }
        End::Right => {
            let last = list.len().wrapping_sub(1);
            let matches = list.iter_back(0).take(limit).enumerate();
            let matches = matches.filter(|(_, element)| *element == needle);
            let matches = matches.map(|(index, _)| last - index);
            write_indexes(cx.out, search.count, matches.skip(search.rank - 1).take(wanted));
        }
    }
    Ok(())
}

fn write_indexes(out: &mut Writer, count: Option<usize>, mut indexes: impl Iterator<Item = usize>) {
    if count.is_none() {
        return match indexes.next() {
            Some(index) => out.count(index),
            None => out.null(),
        };
    }
    let place = out.later();
    let mut len = 0;
    for index in indexes {
        out.count(index);
        len += 1;
    }
    out.array_at(place, len);
}

// Changing.

fn lset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let limits = limits(cx);
    let list = cx.keys.list_mut(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let index = index_of(integer(args.word(2))?, list.len());
    if !list.set(index, args.word(3), limits) {
        return Err(Error::OUT_OF_RANGE);
    }
    cx.out.ok();
    changed(cx, key, "lset", 1);
    Ok(())
}

fn linsert(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let side = match args.word(2) {
        word if is(word, "BEFORE") => Side::Before,
        word if is(word, "AFTER") => Side::After,
        _ => return Err(Error::SYNTAX),
    };
    let limits = limits(cx);
    let Some(list) = cx.keys.list_mut(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    if !list.insert(args.word(3), args.word(4), side, limits) {
        cx.out.int(-1);
        return Ok(());
    }
    let len = list.len();
    cx.out.count(len);
    changed(cx, key, "linsert", 1);
    Ok(())
}

fn ltrim(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let (start, stop) = (integer(args.word(2))?, integer(args.word(3))?);
    let limits = limits(cx);
    if let Some(list) = cx.keys.list_mut(key)? {
        let len = list.len();
        let kept = range_of(start, stop, len);
        let gone = len - kept.len();
        if gone == 0 {
            // Nothing changed, and yet Redis says so to watchers and listeners.
            cx.keys.signal(key);
            cx.keys.notify(class::LIST, "ltrim", key);
        } else {
            list.remove_range(kept.end, len - kept.end, limits);
            list.remove_range(0, kept.start, limits);
            removed(cx, key, "ltrim", gone);
        }
    }
    cx.out.ok();
    Ok(())
}

fn lrem(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let wanted = signed_count(args.word(2))?;
    let from = if wanted < 0 { End::Right } else { End::Left };
    let count = if wanted == 0 { usize::MAX } else { wanted.unsigned_abs() as usize };
    let limits = limits(cx);
    let Some(list) = cx.keys.list_mut(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    let gone = list.remove_equal(args.word(3), from, count, limits);
    cx.out.count(gone);
    if gone > 0 {
        removed(cx, key, "lrem", gone);
    }
    Ok(())
}

// From list to list.

fn lmove(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (from, to) = (end_of(args.word(3))?, end_of(args.word(4))?);
    if !transfer(cx, args, from, to)? {
        cx.out.null();
    }
    Ok(())
}

fn rpoplpush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !transfer(cx, args, End::Right, End::Left)? {
        cx.out.null();
    }
    Ok(())
}

/// Moves an element and writes it; returns false if there is none to move.
fn transfer(cx: &mut Context<'_>, args: Args<'_>, from: End, to: End) -> Result<bool, Error> {
    let (source, destination) = (args.word(1), args.word(2));
    let limits = limits(cx);
    if cx.keys.list(source)?.is_none() {
        return Ok(false);
    }
    if cx.keys.kind(destination).is_some_and(|kind| kind != Kind::List) {
        return Err(Error::WRONG_TYPE);
    }
    let list = cx.keys.list_mut(source)?.expect("just seen");
    // A copy: both lists may be one, or lie in two tables.
    let moved = list.pop(from, limits, |element| element.to_vec()).expect("no list is empty");
    cx.out.bulk(&moved);
    let list = cx.keys.list_or_new(destination)?;
    list.push(to, [moved.as_slice()].into_iter(), limits);
    changed(cx, destination, push_event(to), 1);
    removed(cx, source, pop_event(from), 1);
    Ok(true)
}

// Waiting.

fn blpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop_or_wait(cx, args, End::Left)
}

fn brpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    pop_or_wait(cx, args, End::Right)
}

/// The first of `keys` with a list that this client may take from now.
fn ready<'k>(
    cx: &Context<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<&'k [u8]>, Error> {
    for key in keys {
        if cx.keys.list(key)?.is_some() && cx.may_take(key) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn pop_or_wait(cx: &mut Context<'_>, args: Args<'_>, end: End) -> Result<(), Error> {
    let timeout = timeout_ms(args.word(args.len() - 1))?;
    let keys = || args.iter().skip(1).take(args.len() - 2);
    let Some(key) = ready(cx, keys())? else {
        cx.block(keys(), Kind::List, timeout, Writer::null_array);
        return Ok(());
    };
    cx.out.array(2);
    cx.out.bulk(key);
    take_one(cx, key, end);
    cx.keys.rewrite(&[pop_command(end), key]);
    Ok(())
}

fn blmpop(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mpop = Mpop::parse(args, 2)?;
    let timeout = timeout_ms(args.word(1))?;
    match ready(cx, mpop.keys())? {
        Some(key) => mpop.take(cx, key),
        None => cx.block(mpop.keys(), Kind::List, timeout, Writer::null_array),
    }
    Ok(())
}

fn blmove(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (from, to) = (end_of(args.word(3))?, end_of(args.word(4))?);
    let timeout = timeout_ms(args.word(5))?;
    let (source, destination) = (args.word(1), args.word(2));
    if transfer_or_wait(cx, args, from, to, timeout)? {
        cx.keys.rewrite(&[b"LMOVE", source, destination, end_name(from), end_name(to)]);
    }
    Ok(())
}

fn brpoplpush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let timeout = timeout_ms(args.word(3))?;
    if transfer_or_wait(cx, args, End::Right, End::Left, timeout)? {
        cx.keys.rewrite(&[b"RPOPLPUSH", args.word(1), args.word(2)]);
    }
    Ok(())
}

/// Moves an element, or waits; returns whether it moved one.
fn transfer_or_wait(
    cx: &mut Context<'_>,
    args: Args<'_>,
    from: End,
    to: End,
    timeout_ms: i64,
) -> Result<bool, Error> {
    let source = args.word(1);
    if ready(cx, std::iter::once(source))?.is_some() {
        return transfer(cx, args, from, to);
    }
    if cx.session.in_exec {
        cx.out.null();
    } else {
        cx.block([source], Kind::List, timeout_ms, Writer::null_array);
    }
    Ok(false)
}
