//! Streams as RDB files hold them.
//!
//! ```text
//!  blocks (id, listpack ..) | length | last id | first id, deleted id, added     not in type 15
//!  groups: name | last id | entries read                                         not in type 15
//!          | pending: id, delivered ms, count ..
//!          | consumers: name, seen ms, active ms, ids ..                         active: type 21
//! ```
//!
//! Ids among the numbers are two lengths; where they are keys they are 16 bytes, most significant
//! first. We write type 19: Redis 7.0 reads it, and all it lacks is when a consumer was active.

use std::collections::BTreeMap;

use keyspace::raw::packed::Malformed;
use keyspace::types::stream::{Group, Pending, Stream, StreamId};

use super::cursor::{Cursor, Scratch};
use super::encode::{Encoder, length};
use super::error::Error;
use super::format;

/// What stands for a number of entries read that is not known.
const UNKNOWN: u64 = u64::MAX;

fn write_id(id: StreamId, out: &mut Vec<u8>) {
    length(id.ms, out);
    length(id.seq, out);
}

/// Appends a stream in the form of type 19.
pub fn encode(stream: &Stream, encoder: &mut Encoder, out: &mut Vec<u8>) {
    length(stream.blocks().len() as u64, out);
    for (first, listpack) in stream.blocks() {
        encoder.string(&first.to_bytes(), out);
        encoder.string(listpack, out);
    }
    length(stream.len() as u64, out);
    write_id(stream.last_id(), out);
    write_id(stream.first_id(), out);
    write_id(stream.max_deleted_id(), out);
    length(stream.entries_added(), out);
    length(stream.groups().len() as u64, out);
    for (name, group) in stream.groups() {
        encoder.string(name, out);
        write_id(group.last_id, out);
        length(group.entries_read.unwrap_or(UNKNOWN), out);
        encode_group(group, encoder, out);
    }
}

fn encode_group(group: &Group, encoder: &mut Encoder, out: &mut Vec<u8>) {
    length(group.pending_count() as u64, out);
    for (id, pending) in group.pending_range(StreamId::MIN, StreamId::MAX) {
        out.extend_from_slice(&id.to_bytes());
        out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
        length(pending.count, out);
    }
    length(group.consumers().len() as u64, out);
    for (number, consumer) in group.consumers() {
        encoder.string(&consumer.name, out);
        out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        length(consumer.pending_count() as u64, out);
        for id in group.consumer_pending(number, StreamId::MIN, StreamId::MAX) {
            out.extend_from_slice(&id.to_bytes());
        }
    }
}

fn id(cursor: &mut Cursor<'_>) -> Result<StreamId, Error> {
    Ok(StreamId::new(cursor.length()?, cursor.length()?))
}

fn key(cursor: &mut Cursor<'_>) -> Result<StreamId, Error> {
    Ok(StreamId::from_bytes(cursor.array()?))
}

/// The stream that starts at the cursor, of one of the three types.
pub fn decode(kind: u8, cursor: &mut Cursor<'_>, scratch: &mut Scratch) -> Result<Stream, Error> {
    let has_extents = kind >= format::STREAM_LISTPACKS_2;
    let mut stream = Stream::default();
    for _ in 0..cursor.count(2)? {
        let start = *cursor;
        let bytes = cursor.string(scratch)?;
        let first: [u8; 16] =
            bytes.try_into().map_err(|_| start.damaged("a block's id that is none"))?;
        let listpack = cursor.string(scratch)?;
        stream
            .push_block(StreamId::from_bytes(first), listpack)
            .map_err(|Malformed| start.damaged("Stream listpack integrity check failed"))?;
    }
    if cursor.length()? != stream.len() as u64 {
        return Err(cursor.damaged("a stream's length that its blocks do not have"));
    }
    let last_id = id(cursor)?;
    if last_id < stream.last_id() {
        return Err(cursor.damaged("a stream's last id that is below an entry's"));
    }
    stream.set_last_id(last_id);
    stream.set_entries_added(stream.len() as u64);
    if has_extents {
        // The first id follows from the entries.
        id(cursor)?;
        stream.set_max_deleted_id(id(cursor)?);
        stream.set_entries_added(cursor.length()?);
    }
    for _ in 0..cursor.count(5)? {
        let start = *cursor;
        let name = cursor.string(scratch)?.to_vec();
        let last_id = id(cursor)?;
        let entries_read = if has_extents {
            Some(cursor.length()?).filter(|count| *count != UNKNOWN)
        } else {
            stream.entries_up_to(last_id)
        };
        let mut group = Group::new(last_id, entries_read);
        decode_group(kind, &mut group, cursor, scratch)?;
        if !stream.add_group(&name, group) {
            return Err(start.damaged("a group of a stream that comes twice"));
        }
    }
    Ok(stream)
}

/// What is wrong with a consumer's entry that is not among those still to be given out.
fn taken(group: &Group, id: StreamId) -> &'static str {
    match group.pending(id) {
        Some(_) => "Stream consumer PEL entry already has a consumer assigned",
        None => "Consumer entry not found in group global PEL",
    }
}

fn decode_group(
    kind: u8,
    group: &mut Group,
    cursor: &mut Cursor<'_>,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let mut pending = BTreeMap::new();
    for _ in 0..cursor.count(16 + 8 + 1)? {
        let (id, delivered_ms) = (key(cursor)?, cursor.milliseconds()?);
        if pending.insert(id, (delivered_ms, cursor.length()?)).is_some() {
            return Err(cursor.damaged("a pending entry that comes twice"));
        }
    }
    let has_active = kind >= format::STREAM_LISTPACKS_3;
    for _ in 0..cursor.count(if has_active { 18 } else { 10 })? {
        let start = *cursor;
        let name = cursor.string(scratch)?;
        let seen_ms = cursor.milliseconds()?;
        let active_ms = if has_active { cursor.milliseconds()? } else { seen_ms };
        let number = group.add_consumer(name, seen_ms);
        let consumer = number.ok_or_else(|| start.damaged("Duplicate stream consumer detected"))?;
        group.consumer_mut(consumer).active_ms = (active_ms >= 0).then_some(active_ms);
        for _ in 0..cursor.count(16)? {
            let at = *cursor;
            let id = key(cursor)?;
            let (delivered_ms, count) =
                pending.remove(&id).ok_or_else(|| at.damaged(taken(group, id)))?;
            group
                .restore_pending(id, Pending { delivered_ms, count, consumer })
                .map_err(|Malformed| at.damaged("an entry that is pending twice"))?;
        }
    }
    if pending.is_empty() {
        return Ok(());
    }
    Err(cursor.damaged("a pending entry that belongs to no consumer"))
}
