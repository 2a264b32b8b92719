//! What makes a stream longer or shorter, and its counts.

use keyspace::effects::class;
use keyspace::types::stream::{BLOCK_BYTES_MAX, Cut, Refused, StreamId};
use resp::Args;

use super::trim::{ExactWords, Options, Trim};
use super::{IdText, id, part, write_id};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

/// The id that an entry is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewId {
    /// `*`: the time, and the next number in it.
    Next,
    /// `ms-*`: the next number in this millisecond.
    NextIn(u64),
    /// This one.
    Given(StreamId),
}

const TOO_SMALL: Error =
    Error::text("ERR The ID specified in XADD is equal or smaller than the target stream top item");

const TOO_LARGE: Error = Error::text("ERR Elements are too large to be stored");

impl NewId {
    fn parse(word: &[u8]) -> Result<NewId, Error> {
        if let [ms @ .., b'-', b'*'] = word {
            return part(ms).map(NewId::NextIn).ok_or(super::BAD_ID);
        }
        match id(word)? {
            StreamId::MIN => {
                Err(Error::text("ERR The ID specified in XADD must be greater than 0-0"))
            }
            id => Ok(NewId::Given(id)),
        }
    }

    /// The id itself, behind `last`.
    #[inline]
    fn resolve(self, last: StreamId, now_ms: i64) -> Result<StreamId, Error> {
        let now = now_ms.max(0) as u64;
        match self {
            NewId::Next if now > last.ms => Ok(StreamId::new(now, 0)),
            NewId::Next => last.next().ok_or(TOO_SMALL),
            NewId::NextIn(ms) if ms == last.ms => {
                last.seq.checked_add(1).map(|seq| StreamId { ms, seq }).ok_or(TOO_SMALL)
            }
            NewId::NextIn(ms) => Ok(StreamId::new(ms, 0)),
            NewId::Given(id) => Ok(id),
        }
    }
}

/// The names and values of an XADD.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let value = self.args.get(self.at + 1)?;
        let name = self.args.word(self.at);
        self.at += 2;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.args.len() - self.at) / 2;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

/// An XADD's words up to its id.
struct AddWords {
    options: Options,
    id: NewId,
    id_at: usize,
}

impl AddWords {
    fn parse(args: Args<'_>) -> Result<AddWords, Error> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            let word = args.word(at);
            if word == b"*" {
                return Ok(AddWords { options, id: NewId::Next, id_at: at });
            }
            if let Some(words) = options.take(args, at)? {
                at += words;
            } else if is(word, "NOMKSTREAM") {
                options.only_if_there = true;
                at += 1;
            } else {
                return Ok(AddWords { options, id: NewId::parse(word)?, id_at: at });
            }
        }
        Ok(AddWords { options, id: NewId::Next, id_at: at })
    }
}

pub(super) fn xadd(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const EXHAUSTED: Error =
        Error::text("ERR The stream has exhausted the last possible ID, unable to add more items");
    let words = AddWords::parse(args)?;
    let trim = words.options.trim(cx)?;
    let fields_at = words.id_at + 1;
    if args.len() < fields_at + 2 || (args.len() - fields_at) % 2 == 1 {
        return Err(Error::wrong_arity(cx.command_name()));
    }
    let key = args.word(1);
    if words.options.only_if_there && cx.keys.stream(key)?.is_none() {
        cx.out.null();
        return Ok(());
    }
    let pairs = Pairs { args, at: fields_at };
    let (limits, now_ms) = (cx.keys.space().settings.stream_limits(), cx.keys.now_ms());
    if pairs.map(|(name, value)| name.len() + value.len()).sum::<usize>() > BLOCK_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    // What else is refused is refused by a stream that is there: none is made for nothing.
    let stream = cx.keys.stream_or_new(key)?;
    let last = stream.last_id();
    if last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    let id = words.id.resolve(last, now_ms)?;
    stream.add(id, pairs, limits).map_err(|refused| match refused {
        Refused::IdTooSmall => TOO_SMALL,
        Refused::TooLarge => TOO_LARGE,
    })?;
    let gone = trim.map_or(0, |trim| stream.trim(trim.keep, trim.cut));
    write_id(cx.out, id);
    cx.changed_elements(class::STREAM, "xadd", key, 1);
    if gone > 0 {
        cx.keys.notify(class::STREAM, "xtrim", key);
    }
    if cx.keys.space().is_logging() {
        log_add(cx, args, &words, trim, id);
    }
    Ok(())
}

/// Logs the id that the entry got, and what its trim came to, unless the words say so already.
fn log_add(
    cx: &mut Context<'_>,
    args: Args<'_>,
    words: &AddWords,
    trim: Option<Trim>,
    id: StreamId,
) {
    let key = args.word(1);
    let about = trim.filter(|trim| trim.cut != Cut::Exact);
    if about.is_none() && matches!(words.id, NewId::Given(_)) {
        return;
    }
    let text = IdText::new(id);
    let exact = match (about, cx.keys.stream(key)) {
        (Some(trim), Ok(Some(stream))) => Some(ExactWords::new(trim.keep, stream)),
        _ => None,
    };
    let mut logged = vec![&b"XADD"[..], key];
    match &exact {
        Some(exact) => logged.extend(exact.words()),
        None => logged.extend((2..words.id_at).map(|at| args.word(at))),
    }
    logged.push(text.bytes());
    logged.extend((words.id_at + 1..args.len()).map(|at| args.word(at)));
    cx.keys.rewrite(&logged);
}

pub(super) fn xlen(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let len = cx.keys.stream(args.word(1))?.map_or(0, |stream| stream.len());
    cx.out.count(len);
    Ok(())
}

pub(super) fn xdel(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    if cx.keys.stream(key)?.is_none() {
        cx.out.int(0);
        return Ok(());
    }
    let ids = || (2..args.len()).map(|at| id(args.word(at)));
    ids().try_for_each(|id| id.map(drop))?;
    let mut count = 0;
    if let Some(stream) = cx.keys.stream_mut(key)? {
        count = ids().filter(|id| id.as_ref().is_ok_and(|id| stream.delete(*id))).count();
    }
    if count > 0 {
        cx.changed_elements(class::STREAM, "xdel", key, count);
    }
    cx.out.count(count);
    Ok(())
}

pub(super) fn xtrim(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut options = Options::default();
    let mut at = 2;
    while at < args.len() {
        at += options.take(args, at)?.ok_or(Error::SYNTAX)?;
    }
    let Some(trim) = options.trim(cx)? else {
        return Err(Error::text("ERR syntax error, XTRIM must be called with a trimming strategy"));
    };
    let key = args.word(1);
    let gone = match cx.keys.stream_mut(key)? {
        Some(stream) => stream.trim(trim.keep, trim.cut),
        None => 0,
    };
    cx.out.count(gone);
    if gone == 0 {
        return Ok(());
    }
    cx.changed_elements(class::STREAM, "xtrim", key, gone);
    if cx.keys.space().is_logging()
        && trim.cut != Cut::Exact
        && let Some(stream) = cx.keys.stream(key)?
    {
        let exact = ExactWords::new(trim.keep, stream);
        let [name, sign, threshold] = exact.words();
        cx.keys.rewrite(&[b"XTRIM", key, name, sign, threshold]);
    }
    Ok(())
}

pub(super) fn xsetid(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let text = Error::text;
    let last = id(args.word(2))?;
    let (mut added, mut deleted) = (None, StreamId::MIN);
    let mut at = 3;
    while at < args.len() {
        let (word, value) = (args.word(at), args.get(at + 1).ok_or(Error::SYNTAX)?);
        if is(word, "ENTRIESADDED") {
            const ERROR: Error = Error::text("ERR entries_added must be positive");
            added = Some(u64::try_from(integer(value)?).map_err(|_| ERROR)?);
        } else if is(word, "MAXDELETEDID") {
            deleted = id(value)?;
            if last < deleted {
                return Err(text(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    let key = args.word(1);
    let stream = cx.keys.stream_mut(key)?.ok_or(Error::NO_SUCH_KEY)?;
    if last < stream.max_deleted_id() {
        return Err(text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if stream.last().is_some_and(|entry| last < entry.id) {
        return Err(text(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if !stream.is_empty() && added.is_some_and(|added| added < stream.len() as u64) {
        return Err(text(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.set_last_id(last);
    if let Some(added) = added {
        stream.set_entries_added(added);
    }
    if deleted != StreamId::MIN {
        stream.set_max_deleted_id(deleted);
    }
    cx.out.ok();
    cx.changed_elements(class::STREAM, "xsetid", key, 1);
    Ok(())
}
