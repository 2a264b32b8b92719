//! A stream's groups: XGROUP, and what is pending in them.

use keyspace::effects::class;
use keyspace::types::stream::{Group, Stream, StreamId};
use resp::Args;

use super::log::GroupName;
use super::write_id;
use super::{bad_subcommand, id, id_or_end, no_group, no_key_or_group, range_end, range_start};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

const KEY_REQUIRED: Error = Error::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
     use the MKSTREAM option to create an empty stream automatically.",
);

/// The options of CREATE and SETID.
#[derive(Default)]
struct GroupOptions {
    makes_stream: bool,
    entries_read: Option<u64>,
}

impl GroupOptions {
    fn parse(args: Args<'_>, may_make: bool) -> Result<GroupOptions, Error> {
        let mut options = GroupOptions::default();
        let mut at = 5;
        while at < args.len() {
            match args.get(at + 1) {
                _ if may_make && is(args.word(at), "MKSTREAM") => {
                    options.makes_stream = true;
                    at += 1;
                }
                Some(count) if is(args.word(at), "ENTRIESREAD") => {
                    options.entries_read = entries_read(count)?;
                    at += 2;
                }
                _ => return Err(bad_subcommand("XGROUP", args.word(1))),
            }
        }
        Ok(options)
    }
}

fn entries_read(word: &[u8]) -> Result<Option<u64>, Error> {
    match integer(word)? {
        -1 => Ok(None),
        count => match u64::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(Error::text("ERR value for ENTRIESREAD must be positive or -1")),
        },
    }
}

pub(super) fn create(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let options = GroupOptions::parse(args, true)?;
    let (key, name) = (args.word(2), args.word(3));
    let stream = cx.keys.stream(key)?;
    if stream.is_none() && !options.makes_stream {
        return Err(KEY_REQUIRED);
    }
    let last = match args.word(4) {
        b"$" => stream.map_or(StreamId::MIN, Stream::last_id),
        word => id(word)?,
    };
    let stream = cx.keys.stream_or_new(key)?;
    if !stream.add_group(name, Group::new(last, options.entries_read)) {
        return Err(Error::text("BUSYGROUP Consumer Group name already exists"));
    }
    cx.out.ok();
    cx.changed_elements(class::STREAM, "xgroup-create", key, 1);
    Ok(())
}

/// The stream whose group of the words' name a subcommand works on.
fn stream_with_group<'k>(
    cx: &'k mut Context<'_>,
    key: &[u8],
    group: &[u8],
) -> Result<&'k mut Stream, Error> {
    let stream = cx.keys.stream_mut(key)?.ok_or(KEY_REQUIRED)?;
    if stream.group(group).is_none() {
        return Err(no_group(key, group));
    }
    Ok(stream)
}

pub(super) fn setid(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let options = GroupOptions::parse(args, false)?;
    let (key, name) = (args.word(2), args.word(3));
    let stream = stream_with_group(cx, key, name)?;
    let last = match args.word(4) {
        b"$" => stream.last_id(),
        word => id_or_end(word, 0)?,
    };
    let group = stream.group_mut(name).ok_or_else(|| no_group(key, name))?;
    group.last_id = last;
    group.entries_read = options.entries_read;
    cx.out.ok();
    cx.keys.changed_within(1);
    cx.keys.notify(class::STREAM, "xgroup-setid", key);
    Ok(())
}

pub(super) fn destroy(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, name) = (args.word(2), args.word(3));
    let stream = cx.keys.stream_mut(key)?.ok_or(KEY_REQUIRED)?;
    if stream.remove_group(name).is_none() {
        cx.out.int(0);
        return Ok(());
    }
    cx.out.int(1);
    // Wakes the group's readers: there is nothing left for them to wait for.
    cx.changed_elements(class::STREAM, "xgroup-destroy", key, 1);
    Ok(())
}

pub(super) fn createconsumer(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, name) = (args.word(2), args.word(3));
    let now_ms = cx.keys.now_ms();
    let stream = stream_with_group(cx, key, name)?;
    let group = stream.group_mut(name).ok_or_else(|| no_group(key, name))?;
    let created = group.add_consumer(args.word(4), now_ms).is_some();
    cx.out.flag(created);
    if created {
        cx.keys.changed_within(1);
        cx.keys.notify(class::STREAM, "xgroup-createconsumer", key);
    }
    Ok(())
}

pub(super) fn delconsumer(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, name) = (args.word(2), args.word(3));
    let stream = stream_with_group(cx, key, name)?;
    let group = stream.group_mut(name).ok_or_else(|| no_group(key, name))?;
    let pending = group.delete_consumer(args.word(4));
    cx.out.count(pending.unwrap_or(0));
    if pending.is_some() {
        cx.keys.changed_within(1);
        cx.keys.notify(class::STREAM, "xgroup-delconsumer", key);
    }
    Ok(())
}

pub(super) fn xack(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let GroupName { key, group: name } = GroupName::of(args);
    let found = cx.keys.stream_mut(key)?.and_then(|stream| stream.group_mut(name));
    let Some(group) = found else {
        cx.out.int(0);
        return Ok(());
    };
    let ids = || (3..args.len()).map(|at| id(args.word(at)));
    if args.len() > 4 {
        ids().try_for_each(|id| id.map(drop))?;
    }
    let mut count = 0;
    for id in ids() {
        count += usize::from(group.acknowledge(id?));
    }
    cx.keys.changed_within(count);
    cx.out.count(count);
    Ok(())
}

/// The words of XPENDING's long form.
struct PendingRange<'a> {
    min_idle_ms: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingRange<'a> {
    fn parse(args: Args<'a>) -> Result<PendingRange<'a>, Error> {
        if !(6..=9).contains(&args.len()) {
            return Err(Error::SYNTAX);
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if is(args.word(3), "IDLE") {
            min_idle_ms = integer(args.word(4))?;
            if args.len() < 8 {
                return Err(Error::SYNTAX);
            }
            at = 5;
        }
        let count = integer(args.word(at + 2))?.max(0) as usize;
        let (start, end) = (range_start(args.word(at))?, range_end(args.word(at + 1))?);
        Ok(PendingRange { min_idle_ms, start, end, count, consumer: args.get(at + 3) })
    }
}

pub(super) fn xpending(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let range = if args.len() == 3 { None } else { Some(PendingRange::parse(args)?) };
    let (key, name) = (args.word(1), args.word(2));
    let found = cx.keys.stream(key)?.and_then(|stream| stream.group(name));
    let group = found.ok_or_else(|| no_key_or_group(key, name))?;
    let out = &mut *cx.out;
    let Some(range) = range else {
        write_summary(out, group);
        return Ok(());
    };
    let now_ms = cx.keys.now_ms();
    let place = out.later();
    let mut written = 0;
    let write = |(id, pending): (StreamId, &keyspace::types::stream::Pending)| {
        out.array(4);
        write_id(out, id);
        out.bulk(&group.consumer(pending.consumer).name);
        out.int((now_ms - pending.delivered_ms).max(0));
        out.int(pending.count as i64);
        written += 1;
    };
    let is_idle = |(_, pending): &(StreamId, &keyspace::types::stream::Pending)| {
        range.min_idle_ms == 0 || now_ms - pending.delivered_ms >= range.min_idle_ms
    };
    match range.consumer.map(|consumer| group.find(consumer)) {
        Some(None) => {}
        Some(Some(number)) => {
            let ids = group.consumer_pending(number, range.start, range.end);
            let pending = ids.filter_map(|id| group.pending(id).map(|pending| (id, pending)));
            pending.filter(is_idle).take(range.count).for_each(write);
        }
        None => {
            let pending = group.pending_range(range.start, range.end);
            pending.filter(is_idle).take(range.count).for_each(write);
        }
    }
    out.array_at(place, written);
    Ok(())
}

/// How many entries are pending, from which to which, and whose.
fn write_summary(out: &mut resp::Writer, group: &Group) {
    out.array(4);
    out.count(group.pending_count());
    let first = group.pending_range(StreamId::MIN, StreamId::MAX).next();
    let Some(((first, _), (last, _))) = first.zip(group.pending_last()) else {
        out.null();
        out.null();
        out.null_array();
        return;
    };
    write_id(out, first);
    write_id(out, last);
    let place = out.later();
    let mut written = 0;
    for (_, consumer) in group.consumers().filter(|(_, owner)| owner.pending_count() > 0) {
        out.array(2);
        out.bulk(&consumer.name);
        out.bulk_int(consumer.pending_count() as i64);
        written += 1;
    }
    out.array_at(place, written);
}
