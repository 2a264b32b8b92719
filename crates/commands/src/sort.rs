//! SORT and SORT_RO: the elements of a list, set or sorted set in another order, by their own
//! values or by other keys', and other keys' values in place of them.
//!
//! A pattern names another key for each element: the element stands in for its first `*`, and what
//! follows a `->` is a field of the hash there. Such keys cannot be known beforehand, so a command
//! with such patterns takes every lock.

use std::borrow::Cow;
use std::cmp::Ordering;

use keyspace::effects::class;
use keyspace::keys::Keys;
use keyspace::raw::listpack::Element;
use keyspace::types::list::List;
use keyspace::types::nodes::End;
use keyspace::value::{Value, ValueRef};
use resp::{Args, Writer, number};

use crate::command::{Command, DENY_OOM, KeySpec, OW, READONLY, RO, WRITE, first, option, unknown};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

/// Options that take words of their own, with their number.
const OPTIONS: &[(&str, usize)] = &[("BY", 1), ("GET", 1), ("LIMIT", 2)];
const PATTERNS: KeySpec = unknown(RO);
const STORE: KeySpec = option("STORE", 2, OPTIONS, OW);
const CATEGORIES: Option<&[&str]> = Some(&["list", "set", "sortedset", "dangerous"]);
const COMPLEXITY: &str = "O(N+M*log(M)), N = elements to sort, M = elements returned";

/// SORT's row.
pub const ROW: Command = Command {
    name: "SORT",
    run: |cx, args| sort(cx, args, Options::read(args, true)?),
    flags: WRITE.with(DENY_OOM),
    keys: &[first(RO), PATTERNS, STORE],
    wants_all_keys: Some(|args| wants_all_keys(args, true)),
    usage: "key [BY by-pattern] [LIMIT offset count] [GET get-pattern [GET get-pattern ...]] \
            [ASC | DESC] [ALPHA] [STORE destination]",
    summary: "Sorts the elements of a list, set or sorted set, and returns or stores them.",
    complexity: COMPLEXITY,
    categories: CATEGORIES,
    ..Command::DEFAULT
};

/// SORT_RO's row.
pub const ROW_RO: Command = Command {
    name: "SORT_RO",
    run: |cx, args| sort(cx, args, Options::read(args, false)?),
    flags: READONLY,
    keys: &[first(RO), PATTERNS],
    wants_all_keys: Some(|args| wants_all_keys(args, false)),
    usage: "key [BY by-pattern] [LIMIT offset count] [GET get-pattern [GET get-pattern ...]] \
            [ASC | DESC] [ALPHA]",
    summary: "Sorts the elements of a list, set or sorted set, and returns them.",
    complexity: COMPLEXITY,
    since: "7.0.0",
    categories: CATEGORIES,
    ..Command::DEFAULT
};

/// What the words ask for.
#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    start: i64,
    /// Below zero: no limit.
    count: i64,
    descending: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn read(args: Args<'a>, may_store: bool) -> Result<Options<'a>, Error> {
        let mut options = Options { count: -1, ..Options::default() };
        let mut index = 2;
        while index < args.len() {
            let word = args.word(index);
            match (args.get(index + 1), args.get(index + 2)) {
                _ if is(word, "ASC") => options.descending = false,
                _ if is(word, "DESC") => options.descending = true,
                _ if is(word, "ALPHA") => options.alpha = true,
                (Some(start), Some(count)) if is(word, "LIMIT") => {
                    (options.start, options.count) = (integer(start)?, integer(count)?);
                    index += 2;
                }
                (Some(key), _) if is(word, "STORE") && may_store => {
                    options.store = Some(key);
                    index += 1;
                }
                (Some(pattern), _) if is(word, "BY") => {
                    options.by = Some(pattern);
                    index += 1;
                }
                (Some(pattern), _) if is(word, "GET") => {
                    options.get.push(pattern);
                    index += 1;
                }
                _ => return Err(Error::SYNTAX),
            }
            index += 1;
        }
        Ok(options)
    }

    /// Whether it looks at keys that it does not declare.
    fn uses_other_keys(&self) -> bool {
        self.by.is_some() || self.get.iter().any(|pattern| *pattern != b"#")
    }

    /// BY a pattern without a `*` is the way to say: do not sort.
    fn is_unsorted(&self) -> bool {
        self.by.is_some_and(|by| !by.contains(&b'*'))
    }

    /// The elements to return, of `len`.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(self.start.max(0)).unwrap_or(len).min(len);
        let count = usize::try_from(self.count).unwrap_or(len);
        start..start.saturating_add(count).min(len)
    }
}

fn wants_all_keys(args: Args<'_>, may_store: bool) -> bool {
    Options::read(args, may_store).is_ok_and(|options| {
        options.by.into_iter().chain(options.get).any(|pattern| pattern.contains(&b'*'))
    })
}

/// An element and what it is sorted by.
struct Item<'a> {
    element: Element<'a>,
    score: f64,
    text: Option<Cow<'a, [u8]>>,
}

fn sort(cx: &mut Context<'_>, args: Args<'_>, mut options: Options<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let keys = &cx.keys;
    let value = keys.get(key);
    let mut elements: Vec<Element<'_>> = match value {
        None => Vec::new(),
        Some(ValueRef::List(list)) => list.iter().collect(),
        Some(ValueRef::Set(set)) => set.iter().collect(),
        Some(ValueRef::Zset(zset)) => zset.iter().map(|(member, _)| member).collect(),
        Some(_) => return Err(Error::WRONG_TYPE),
    };
    let is_set = matches!(value, Some(ValueRef::Set(_)));
    let missed = value.is_none();
    let mut unsorted = options.is_unsorted();
    if unsorted && is_set && (options.store.is_some() || cx.script.is_some()) {
        // A set has no order of its own: what is stored must not depend on chance.
        (unsorted, options.alpha, options.by) = (false, true, None);
    }
    let range = options.range(elements.len());
    if unsorted {
        // Lists and sorted sets have an order, which DESC turns round.
        if options.descending && !is_set {
            elements.reverse();
        }
    } else {
        elements = sorted(keys, elements, &options)?;
    }
    let chosen = &elements[range];
    match options.store {
        Some(store) => {
            let values = values_of(keys, chosen, &options);
            store_list(cx, store, &values);
            if options.uses_other_keys() {
                log_list(cx, store, &values);
            }
        }
        None => write_values(keys, cx.out, chosen, &options),
    }
    if missed {
        cx.keys.notify_miss(key);
    }
    Ok(())
}

fn sorted<'a>(
    keys: &'a Keys<'_>,
    elements: Vec<Element<'a>>,
    options: &Options<'_>,
) -> Result<Vec<Element<'a>>, Error> {
    const NOT_DOUBLE: Error = Error::text("ERR One or more scores can't be converted into double");
    let mut items = Vec::with_capacity(elements.len());
    for element in elements {
        let mut item = Item { element, score: 0.0, text: None };
        let by = match options.by {
            None => Some(text_of(element)),
            Some(pattern) => look_up(keys, pattern, element),
        };
        if options.alpha {
            item.text = by;
        } else if let Some(by) = by {
            item.score = score(&by).ok_or(NOT_DOUBLE)?;
        }
        items.push(item);
    }
    items.sort_by(|one, other| {
        let order = if options.alpha {
            one.text.cmp(&other.text)
        } else {
            // Equal scores: by the elements themselves, so that the result is always the same.
            let scores = one.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
            scores.then_with(|| compare(one.element, other.element))
        };
        if options.descending { order.reverse() } else { order }
    });
    Ok(items.into_iter().map(|item| item.element).collect())
}

fn compare(one: Element<'_>, other: Element<'_>) -> Ordering {
    one.compare(other.text(&mut itoa::Buffer::new()))
}

fn text_of(element: Element<'_>) -> Cow<'_, [u8]> {
    match element {
        Element::Str(bytes) => Cow::Borrowed(bytes),
        Element::Int(_) => Cow::Owned(element.to_vec()),
    }
}

/// A number as `strtod` takes it: nothing is 0, white space may lead, too large is an error.
fn score(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    let score = number::double(text)?;
    let named = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    (score.is_finite() || named).then_some(score)
}

/// The value that a pattern names for an element; `None` if there is no such string.
fn look_up<'a>(keys: &'a Keys<'_>, pattern: &[u8], element: Element<'a>) -> Option<Cow<'a, [u8]>> {
    if pattern == b"#" {
        return Some(text_of(element));
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let rest = &pattern[star + 1..];
    let arrow = rest.windows(2).position(|two| two == b"->").filter(|at| at + 2 < rest.len());
    let (rest, field) = match arrow {
        Some(at) => (&rest[..at], Some(&rest[at + 2..])),
        None => (rest, None),
    };
    let key = [&pattern[..star], &text_of(element), rest].concat();
    match (keys.get(&key)?, field) {
        (ValueRef::Hash(hash), Some(field)) => hash.get(field).map(text_of),
        (ValueRef::Bytes(bytes), None) => Some(Cow::Borrowed(bytes)),
        (ValueRef::Shared(block), None) => Some(Cow::Borrowed(block)),
        (ValueRef::Number(number), None) => Some(Cow::Owned(number.to_string().into_bytes())),
        _ => None,
    }
}

fn write_values(keys: &Keys<'_>, out: &mut Writer, chosen: &[Element<'_>], options: &Options<'_>) {
    out.array(chosen.len() * options.get.len().max(1));
    for element in chosen {
        if options.get.is_empty() {
            out.bulk(&text_of(*element));
        }
        for pattern in &options.get {
            match look_up(keys, pattern, *element) {
                Some(value) => out.bulk(&value),
                None => out.null(),
            }
        }
    }
}

/// The values to store; one that is not there is an empty string.
fn values_of(keys: &Keys<'_>, chosen: &[Element<'_>], options: &Options<'_>) -> Vec<Vec<u8>> {
    let mut values = Vec::with_capacity(chosen.len() * options.get.len().max(1));
    for element in chosen {
        if options.get.is_empty() {
            values.push(element.to_vec());
        }
        for pattern in &options.get {
            let value = look_up(keys, pattern, *element);
            values.push(value.map_or_else(Vec::new, Cow::into_owned));
        }
    }
    values
}

/// Logs what was stored instead of how it was found: keys that the patterns name may be past their
/// time without the log having said so.
fn log_list(cx: &mut Context<'_>, key: &[u8], values: &[Vec<u8>]) {
    const VALUES: usize = 1024;
    cx.keys.rewrite(&[b"DEL", key]);
    for part in values.chunks(VALUES) {
        let words: [&[u8]; 2] = [b"RPUSH", key];
        let words = words.into_iter().chain(part.iter().map(Vec::as_slice));
        cx.keys.rewrite(&words.collect::<Vec<_>>());
    }
}

fn store_list(cx: &mut Context<'_>, key: &[u8], values: &[Vec<u8>]) {
    if !values.is_empty() {
        let mut list = List::default();
        let limits = cx.keys.space().settings.list_limits();
        list.push(End::Right, values.iter().map(Vec::as_slice), limits);
        cx.keys.put(key, Value::List(list), None);
        cx.keys.notify(class::LIST, "sortstore", key);
    } else if cx.keys.remove(key) {
        cx.keys.notify(class::GENERIC, "del", key);
    }
    cx.out.count(values.len());
}

#[cfg(test)]
mod tests {
    use keyspace::types::list::List;
    use keyspace::types::nodes::End;
    use keyspace::value::Value;

    use crate::testing::Client;

    /// A client with a list and weights, made without the list family.
    fn client() -> Client {
        let client = Client::new();
        let mut list = List::default();
        let words: [&[u8]; 4] = [b"3", b"1", b"10", b"2"];
        list.push(End::Right, words.into_iter(), client.core.space.settings.list_limits());
        let held = client.core.space.lock(&keyspace::raw::shards::ShardSet::ALL);
        let random = keyspace::random::Random::new(1);
        let tally = client.core.space.tally(0);
        let mut keys =
            keyspace::keys::Keys::new(&client.core.space, held, tally, client.now_ms, random);
        keys.put(b"l", Value::List(list), None);
        drop(keys);
        client
    }

    #[test]
    fn by_the_elements() {
        client().check(&[
            ("SORT none", "*0"),
            ("SORT l", "*4 $1 1 $1 2 $1 3 $2 10"),
            ("SORT l DESC", "*4 $2 10 $1 3 $1 2 $1 1"),
            ("SORT l ALPHA", "*4 $1 1 $2 10 $1 2 $1 3"),
            ("SORT_RO l LIMIT 1 2", "*2 $1 2 $1 3"),
            ("SORT l LIMIT 0 0", "*0"),
            ("SORT l LIMIT -5 -5", "*4 $1 1 $1 2 $1 3 $2 10"),
            ("SORT l LIMIT 100 2", "*0"),
            ("SORT l BY nosort", "*4 $1 3 $1 1 $2 10 $1 2"),
            ("SORT l BY nosort DESC LIMIT 0 2", "*2 $1 2 $2 10"),
            ("SORT l LIMIT 1", "-ERR syntax error"),
            ("SORT l LIMIT a b", "-ERR value is not an integer or out of range"),
            ("SORT_RO l STORE x", "-ERR syntax error"),
            ("SET s v", "+OK"),
            ("SORT s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn by_other_keys() {
        client().check(&[
            ("MSET w_1 30 w_2 20 w_3 10 w_10 x name_1 one name_2 two", "+OK"),
            ("SORT l BY w_*", "-ERR One or more scores can't be converted into double"),
            ("SORT l BY w_* ALPHA", "*4 $1 3 $1 2 $1 1 $2 10"),
            ("SET w_10 5", "+OK"),
            ("SORT l BY w_*", "*4 $2 10 $1 3 $1 2 $1 1"),
            ("SORT l GET name_* GET # LIMIT 0 2", "*4 $3 one $1 1 $3 two $1 2"),
            ("SORT l GET none LIMIT 0 1", "*1 $-1"),
            ("SORT l BY missing_* LIMIT 0 2", "*2 $1 1 $2 10"),
        ]);
    }

    #[test]
    fn storing() {
        let mut client = client();
        client.check(&[
            ("SORT l STORE out", ":4"),
            ("TYPE out", "+list"),
            ("SORT out BY x DESC", "*4 $2 10 $1 3 $1 2 $1 1"),
            ("SORT l GET name_* STORE out", ":4"),
            ("SORT none STORE out", ":0"),
            ("EXISTS out", ":0"),
            ("SORT l STORE a GET store STORE b", ":4"),
            ("EXISTS a b store", ":1"),
            ("SORT l STORE dst GET store DESC", ":4"),
            ("TYPE dst", "+list"),
        ]);
        assert_eq!(client.logged("SORT l STORE out"), ["SORT l STORE out"]);
        assert!(client.logged("SORT l").is_empty());
    }
}
