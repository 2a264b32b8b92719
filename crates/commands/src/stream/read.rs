//! Reading: ranges, what is new to one reader, what is new to a group.

use keyspace::types::stream::{ConsumerNumber, Delivery, Keeping, Stream, StreamId};
use keyspace::value::Kind;
use resp::{Args, OwnedArgs, Writer};

use super::log::GroupName;
use super::{IdText, id, lossy, range_end, range_start, write_entry, write_id};
use crate::context::{Context, Waits, Wake};
use crate::error::Error;
use crate::words::{integer, is};
use keyspace::effects::class;

// Ranges.

pub(super) fn xrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (start, end) = (range_start(args.word(2))?, range_end(args.word(3))?);
    range(cx, args, |out, stream, count| {
        let entries = stream.range(start, end).take(count);
        entries.map(|entry| write_entry(out, &entry)).count()
    })
}

pub(super) fn xrevrange(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (start, end) = (range_start(args.word(3))?, range_end(args.word(2))?);
    range(cx, args, |out, stream, count| {
        let entries = stream.range_back(start, end).take(count);
        entries.map(|entry| write_entry(out, &entry)).count()
    })
}

/// Writes what `write` finds, at most COUNT entries.
fn range(
    cx: &mut Context<'_>,
    args: Args<'_>,
    write: impl FnOnce(&mut Writer, &Stream, usize) -> usize,
) -> Result<(), Error> {
    let mut count = usize::MAX;
    let mut at = 4;
    while at < args.len() {
        match args.get(at + 1) {
            Some(value) if is(args.word(at), "COUNT") => count = integer(value)?.max(0) as usize,
            _ => return Err(Error::SYNTAX),
        }
        at += 2;
    }
    match cx.keys.stream(args.word(1))? {
        None => cx.out.array(0),
        Some(_) if count == 0 => cx.out.null_array(),
        Some(stream) => {
            let place = cx.out.later();
            let written = write(cx.out, stream, count);
            cx.out.array_at(place, written);
        }
    }
    Ok(())
}

// XREAD and XREADGROUP.

/// Where a reader wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// Behind this id.
    After(StreamId),
    /// `>`: behind what the group has had.
    Group,
}

/// The words up to the ids.
struct ReadWords<'a> {
    args: Args<'a>,
    wait_ms: Option<i64>,
    count: usize,
    keeping: Keeping,
    group: Option<(&'a [u8], &'a [u8])>,
    /// The first key's index.
    first: usize,
    streams: usize,
}

fn wait_ms(word: &[u8]) -> Result<i64, Error> {
    let ms = resp::number::integer(word)
        .filter(|ms| *ms <= i64::MAX / 2)
        .ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    if ms < 0 { Err(Error::NEGATIVE_TIMEOUT) } else { Ok(ms) }
}

impl<'a> ReadWords<'a> {
    fn parse(args: Args<'a>, name: &str, for_group: bool) -> Result<ReadWords<'a>, Error> {
        let mut words = ReadWords {
            args,
            wait_ms: None,
            count: usize::MAX,
            keeping: Keeping::UntilAcknowledged,
            group: None,
            first: 0,
            streams: 0,
        };
        let mut at = 1;
        while at < args.len() && words.first == 0 {
            at += words.option(at, for_group)?;
        }
        if words.first == 0 {
            return Err(Error::SYNTAX);
        }
        let rest = args.len() - words.first;
        if rest % 2 == 1 {
            let symbol = if for_group { '>' } else { '$' };
            return Err(Error::new(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or \
                 '{symbol}' must be specified."
            )));
        }
        words.streams = rest / 2;
        if for_group && words.group.is_none() {
            return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(words)
    }

    /// Takes the option at `at`; returns how many words it has.
    fn option(&mut self, at: usize, for_group: bool) -> Result<usize, Error> {
        let args = self.args;
        let (word, next) = (args.word(at), args.get(at + 1));
        match (next, args.get(at + 2)) {
            (Some(ms), _) if is(word, "BLOCK") => self.wait_ms = Some(wait_ms(ms)?),
            (Some(count), _) if is(word, "COUNT") => {
                let count = integer(count)?;
                self.count = if count > 0 { count as usize } else { usize::MAX };
            }
            (Some(_), _) if is(word, "STREAMS") => self.first = at + 1,
            (Some(group), Some(consumer)) if is(word, "GROUP") => {
                if !for_group {
                    return Err(Error::text(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                    ));
                }
                self.group = Some((group, consumer));
                return Ok(3);
            }
            _ if is(word, "NOACK") => {
                if !for_group {
                    return Err(Error::text(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                    ));
                }
                self.keeping = Keeping::Nothing;
                return Ok(1);
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(2)
    }

    fn key(&self, index: usize) -> &'a [u8] {
        self.args.word(self.first + index)
    }

    fn id_at(&self, index: usize) -> usize {
        self.first + self.streams + index
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.args.from(self.first).iter().take(self.streams)
    }
}

/// Where XREAD goes on in a stream, or in one that is not there.
fn after(word: &[u8], stream: Option<&Stream>) -> Result<StreamId, Error> {
    let last = stream.map_or(StreamId::MIN, Stream::last_id);
    match word {
        b"$" => Ok(last),
        // The last entry that is there, so that it is what comes next.
        b"+" => {
            let entry = stream.and_then(Stream::last);
            Ok(entry.and_then(|entry| entry.id.previous()).unwrap_or(last))
        }
        b">" => Err(Error::text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
             <consumer> option.",
        )),
        word => id(word),
    }
}

pub(super) fn xread(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let words = ReadWords::parse(args, cx.command_name(), false)?;
    for index in 0..words.streams {
        after(args.word(words.id_at(index)), cx.keys.stream(words.key(index))?)?;
    }
    let mut reply = Reply::default();
    for index in 0..words.streams {
        let key = words.key(index);
        let Some(stream) = cx.keys.stream(key)? else { continue };
        let from = after(args.word(words.id_at(index)), Some(stream))?.next();
        let Some(from) = from.filter(|from| *from <= stream.last_id()) else { continue };
        let mut entries = stream.range(from, StreamId::MAX).take(words.count);
        let Some(first) = entries.next() else { continue };
        let place = reply.stream(cx.out, key);
        write_entry(cx.out, &first);
        let more = entries.map(|entry| write_entry(cx.out, &entry)).count();
        cx.out.array_at(place, more + 1);
    }
    if reply.is_empty() {
        return wait(cx, &words, Wake::Grown(Kind::Stream));
    }
    reply.finish(cx.out);
    Ok(())
}

/// Streams in a reply whose number is known at the end.
#[derive(Default)]
struct Reply {
    place: Option<resp::Later>,
    streams: usize,
}

impl Reply {
    fn is_empty(&self) -> bool {
        self.streams == 0
    }

    /// Begins a stream; its number of entries goes to the place that is returned.
    fn stream(&mut self, out: &mut Writer, key: &[u8]) -> resp::Later {
        if self.place.is_none() {
            self.place = Some(out.later());
        }
        self.streams += 1;
        if !out.is_resp3() {
            out.array(2);
        }
        out.bulk(key);
        out.later()
    }

    fn finish(self, out: &mut Writer) {
        match self.place {
            Some(place) if out.is_resp3() => out.map_at(place, self.streams),
            Some(place) => out.array_at(place, self.streams),
            None => {}
        }
    }
}

/// Nothing to read: waits, or says so.
fn wait(cx: &mut Context<'_>, words: &ReadWords<'_>, wake: Wake) -> Result<(), Error> {
    let Some(timeout_ms) = words.wait_ms else {
        cx.out.null_array();
        return Ok(());
    };
    // "From now on" must not mean "from the next look on".
    let is_now = |index: usize| words.args.word(words.id_at(index)) == b"$";
    let fixed = if (0..words.streams).any(is_now) && !cx.session.in_exec {
        let mut fixed: Vec<Vec<u8>> = words.args.iter().map(<[u8]>::to_vec).collect();
        for index in (0..words.streams).filter(|index| is_now(*index)) {
            let id = after(b"$", cx.keys.stream(words.key(index))?)?;
            fixed[words.id_at(index)] = IdText::new(id).bytes().to_vec();
        }
        Some(OwnedArgs::new(fixed))
    } else {
        None
    };
    let on_timeout = Writer::null_array;
    cx.wait(Waits { wake, timeout_ms, on_timeout, words: fixed }, words.keys());
    Ok(())
}

// Groups.

/// Where a group's reader goes on.
fn group_from(word: &[u8]) -> Result<From, Error> {
    let meaningless = |symbol: char| {
        Error::new(format!(
            "ERR The {symbol} ID is meaningless in the context of XREADGROUP: you want to read \
             the history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The {symbol} ID would just return an empty result set."
        ))
    };
    match word {
        b">" => Ok(From::Group),
        b"$" => Err(meaningless('$')),
        b"+" => Err(meaningless('+')),
        word => id(word).map(From::After),
    }
}

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (lossy(key), lossy(group));
    Error::new(format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    ))
}

pub(super) fn xreadgroup(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let words = ReadWords::parse(args, cx.command_name(), true)?;
    let Some((group, consumer)) = words.group else { return Err(Error::SYNTAX) };
    if words.streams > 1 {
        // Nothing may be delivered if any of them is refused.
        for index in 0..words.streams {
            let key = words.key(index);
            let found = cx.keys.stream(key)?.and_then(|stream| stream.group(group));
            found.ok_or_else(|| no_group(key, group))?;
            group_from(args.word(words.id_at(index)))?;
        }
    }
    let mut reply = Reply::default();
    for index in 0..words.streams {
        let name = GroupName { key: words.key(index), group };
        let from = args.word(words.id_at(index));
        read_group(cx, &words, name, consumer, from, &mut reply)?;
    }
    if reply.is_empty() {
        return wait(cx, &words, Wake::GrownOrGone(Kind::Stream));
    }
    reply.finish(cx.out);
    Ok(())
}

/// Reads one stream for a consumer.
#[inline]
fn read_group(
    cx: &mut Context<'_>,
    words: &ReadWords<'_>,
    name: GroupName<'_>,
    consumer: &[u8],
    from: &[u8],
    reply: &mut Reply,
) -> Result<(), Error> {
    let (now_ms, is_logging) = (cx.keys.now_ms(), cx.keys.space().is_logging());
    let stream = cx.keys.stream_mut(name.key)?.ok_or_else(|| no_group(name.key, name.group))?;
    let group = stream.group_mut(name.group).ok_or_else(|| no_group(name.key, name.group))?;
    let from = group_from(from)?;
    let (number, is_new) = see(group, consumer, now_ms);
    let delivery =
        Delivery { consumer: number, count: words.count, now_ms, keeping: words.keeping };
    let out = &mut *cx.out;
    let mut place = None;
    let mut ids = Vec::new();
    let count = match from {
        From::Group => stream.read_new(name.group, delivery, |entry| {
            if place.is_none() {
                place = Some(reply.stream(out, name.key));
            }
            write_entry(out, &entry);
            if is_logging {
                ids.push(entry.id);
            }
        }),
        From::After(id) => {
            place = Some(reply.stream(out, name.key));
            let from = id.next().unwrap_or(StreamId::MAX);
            stream.read_again(name.group, from, delivery, |id, entry| match entry {
                Some(entry) => write_entry(out, &entry),
                None => {
                    out.array(2);
                    write_id(out, id);
                    out.null_array();
                }
            })
        }
    };
    let is_written = place.is_some();
    if let Some(place) = place {
        out.array_at(place, count);
    }
    if is_new {
        cx.keys.notify(class::STREAM, "xgroup-createconsumer", name.key);
    }
    if is_new || is_written {
        cx.keys.changed_within(1);
    }
    if is_logging {
        log_read(cx, words, name, is_new.then_some(consumer), &ids);
    }
    Ok(())
}

/// The consumer of this name, made if there is none, and seen now; whether it was made.
pub(super) fn see(
    group: &mut keyspace::types::stream::Group,
    name: &[u8],
    now_ms: i64,
) -> (ConsumerNumber, bool) {
    if let Some(number) = group.find(name) {
        group.consumer_mut(number).seen_ms = now_ms;
        return (number, false);
    }
    let number = group.add_consumer(name, now_ms).expect("looked for just now");
    (number, true)
}

/// Logs what was delivered as what is pending, and how far the group has come.
fn log_read(
    cx: &mut Context<'_>,
    words: &ReadWords<'_>,
    name: GroupName<'_>,
    new_consumer: Option<&[u8]>,
    ids: &[StreamId],
) {
    // What a consumer reads again changes times and counts only, which Redis does not log, either.
    cx.keys.rewrite_to_nothing();
    if let Some(consumer) = new_consumer {
        name.log_consumer(cx, consumer);
    }
    if words.keeping == Keeping::UntilAcknowledged {
        name.log_pending(cx, ids);
    }
    if !ids.is_empty() {
        name.log_place(cx);
    }
}
