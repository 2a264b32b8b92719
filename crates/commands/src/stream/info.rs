//! XINFO: what is known of streams, groups and consumers.

use keyspace::types::stream::{Entry, Group, Stream, StreamId};
use resp::{Args, Writer};

use super::{bad_subcommand, no_group, write_entry, write_id};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

/// Entries of each list that FULL returns without COUNT.
const COUNT_DEFAULT: usize = 10;

fn number(out: &mut Writer, name: &str, number: i64) {
    out.text(name);
    out.int(number);
}

fn known_number(out: &mut Writer, name: &str, number: Option<i64>) {
    out.text(name);
    match number {
        Some(number) => out.int(number),
        None => out.null(),
    }
}

fn id(out: &mut Writer, name: &str, id: StreamId) {
    out.text(name);
    write_id(out, id);
}

/// FULL's count, if FULL was asked for.
fn full_count(args: Args<'_>) -> Result<Option<usize>, Error> {
    let error = || bad_subcommand("XINFO", args.word(1));
    match (args.get(3), args.get(4), args.get(5)) {
        (None, ..) => Ok(None),
        (Some(full), None, _) if is(full, "FULL") => Ok(Some(COUNT_DEFAULT)),
        (Some(full), Some(word), Some(count))
            if args.len() == 6 && is(full, "FULL") && is(word, "COUNT") =>
        {
            Ok(Some(match integer(count)? {
                ..0 => COUNT_DEFAULT,
                0 => usize::MAX,
                count => count as usize,
            }))
        }
        _ => Err(error()),
    }
}

pub(super) fn stream(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let stream = cx.keys.stream(args.word(2))?.ok_or(Error::NO_SUCH_KEY)?;
    let full = full_count(args)?;
    let out = &mut *cx.out;
    out.map(if full.is_some() { 9 } else { 10 });
    number(out, "length", stream.len() as i64);
    number(out, "radix-tree-keys", stream.block_count() as i64);
    // Redis counts the nodes of its tree; ours has blocks and itself.
    number(out, "radix-tree-nodes", stream.block_count() as i64 + 1);
    id(out, "last-generated-id", stream.last_id());
    id(out, "max-deleted-entry-id", stream.max_deleted_id());
    number(out, "entries-added", stream.entries_added() as i64);
    id(out, "recorded-first-entry-id", stream.first_id());
    match full {
        None => {
            number(out, "groups", stream.groups().len() as i64);
            let first = stream.range(StreamId::MIN, StreamId::MAX).next();
            write_edge(out, "first-entry", first);
            write_edge(out, "last-entry", stream.last());
        }
        Some(count) => write_full(out, stream, count),
    }
    Ok(())
}

fn write_edge(out: &mut Writer, name: &str, entry: Option<Entry<'_>>) {
    out.text(name);
    match entry {
        Some(entry) => write_entry(out, &entry),
        None => out.null(),
    }
}

fn write_full(out: &mut Writer, stream: &Stream, count: usize) {
    out.text("entries");
    out.array(stream.len().min(count));
    let entries = stream.range(StreamId::MIN, StreamId::MAX).take(count);
    entries.for_each(|entry| write_entry(out, &entry));
    out.text("groups");
    out.array(stream.groups().len());
    for (name, group) in stream.groups() {
        out.map(7);
        out.text("name");
        out.bulk(name);
        id(out, "last-delivered-id", group.last_id);
        known_number(out, "entries-read", group.entries_read.map(|read| read as i64));
        known_number(out, "lag", stream.lag(group));
        number(out, "pel-count", group.pending_count() as i64);
        out.text("pending");
        out.array(group.pending_count().min(count));
        for (id, pending) in group.pending_range(StreamId::MIN, StreamId::MAX).take(count) {
            out.array(4);
            write_id(out, id);
            out.bulk(&group.consumer(pending.consumer).name);
            out.int(pending.delivered_ms);
            out.int(pending.count as i64);
        }
        write_full_consumers(out, group, count);
    }
}

fn write_full_consumers(out: &mut Writer, group: &Group, count: usize) {
    out.text("consumers");
    out.array(group.consumers().len());
    for (consumer_number, consumer) in group.consumers() {
        out.map(5);
        out.text("name");
        out.bulk(&consumer.name);
        number(out, "seen-time", consumer.seen_ms);
        number(out, "active-time", consumer.active_ms.unwrap_or(-1));
        number(out, "pel-count", consumer.pending_count() as i64);
        out.text("pending");
        out.array(consumer.pending_count().min(count));
        let ids = group.consumer_pending(consumer_number, StreamId::MIN, StreamId::MAX);
        for id in ids.take(count) {
            let pending = group.pending(id).expect("a consumer's entries are its group's");
            out.array(3);
            write_id(out, id);
            out.int(pending.delivered_ms);
            out.int(pending.count as i64);
        }
    }
}

pub(super) fn groups(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let stream = cx.keys.stream(args.word(2))?.ok_or(Error::NO_SUCH_KEY)?;
    let out = &mut *cx.out;
    out.array(stream.groups().len());
    for (name, group) in stream.groups() {
        out.map(6);
        out.text("name");
        out.bulk(name);
        number(out, "consumers", group.consumers().len() as i64);
        number(out, "pending", group.pending_count() as i64);
        id(out, "last-delivered-id", group.last_id);
        known_number(out, "entries-read", group.entries_read.map(|read| read as i64));
        known_number(out, "lag", stream.lag(group));
    }
    Ok(())
}

pub(super) fn consumers(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, name) = (args.word(2), args.word(3));
    let stream = cx.keys.stream(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let group = stream.group(name).ok_or_else(|| no_group(key, name))?;
    let now_ms = cx.keys.now_ms();
    let out = &mut *cx.out;
    out.array(group.consumers().len());
    for (_, consumer) in group.consumers() {
        out.map(4);
        out.text("name");
        out.bulk(&consumer.name);
        number(out, "pending", consumer.pending_count() as i64);
        number(out, "idle", (now_ms - consumer.seen_ms).max(0));
        number(out, "inactive", consumer.active_ms.map_or(-1, |at| now_ms - at));
    }
    Ok(())
}
