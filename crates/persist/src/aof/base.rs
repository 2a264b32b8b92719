//! A key with its value as the commands that make it: the base of an append-only file where
//! `aof-use-rdb-preamble` says no.
//!
//! As Redis writes it (aof.c, `rewriteAppendOnlyFileRio`): large collections in several commands of
//! 64 elements, the time to live last.

use keyspace::raw::listpack::Element;
use keyspace::types::hash::{Hash, HashView};
use keyspace::types::stream::{Group, Stream, StreamId};
use keyspace::value::ValueRef;
use resp::number::double_text;
use resp::write_request;

/// Elements of a collection in one command.
const ELEMENTS: usize = 64;

/// Appends the commands that make `key` hold `value`; `expire_at` in milliseconds since 1970.
pub fn write_commands(out: &mut Vec<u8>, key: &[u8], value: ValueRef<'_>, expire_at: Option<i64>) {
    match value {
        ValueRef::Number(number) => set(out, key, number.to_string().as_bytes()),
        ValueRef::Bytes(bytes) => set(out, key, bytes),
        ValueRef::Shared(bytes) => set(out, key, bytes),
        ValueRef::List(list) => in_parts(out, b"RPUSH", key, 1, list.iter().map(Element::to_vec)),
        ValueRef::Set(set) => in_parts(out, b"SADD", key, 1, set.iter().map(Element::to_vec)),
        ValueRef::Hash(hash) => {
            let words = hash.iter().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]);
            in_parts(out, b"HMSET", key, 2, words);
            write_field_times(out, key, hash);
        }
        ValueRef::Zset(zset) => {
            let pair = |(member, score): (Element<'_>, f64)| {
                [double_text(score).into_bytes(), member.to_vec()]
            };
            in_parts(out, b"ZADD", key, 2, zset.iter().flat_map(pair));
        }
        ValueRef::Stream(stream) => write_stream(out, key, stream),
        ValueRef::Foreign(_) => {
            let payload = crate::rdb::dump::dump(value, crate::rdb::encode::Compression::Off);
            words(out, &[b"RESTORE", key, b"0", &payload]);
        }
    }
    if let Some(at) = expire_at {
        let at = at.to_string();
        write_request(out, [&b"PEXPIREAT"[..], key, at.as_bytes()].into_iter());
    }
}

fn write_field_times(out: &mut Vec<u8>, key: &[u8], hash: &Hash) {
    let HashView::Fields(fields) = hash.view() else { return };
    for (field, _, at) in fields.iter() {
        if let Some(at) = at {
            let at = at.to_string();
            words(out, &[b"HPEXPIREAT", key, at.as_bytes(), b"FIELDS", b"1", field]);
        }
    }
}

fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    write_request(out, [&b"SET"[..], key, value].into_iter());
}

fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_request(out, words.iter().copied());
}

fn write_stream(out: &mut Vec<u8>, key: &[u8], stream: &Stream) {
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        let id = entry.id.to_string();
        let fields = entry.fields().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]);
        let fields: Vec<Vec<u8>> = fields.collect();
        let mut request: Vec<&[u8]> = vec![b"XADD", key, id.as_bytes()];
        request.extend(fields.iter().map(Vec::as_slice));
        words(out, &request);
    }
    let last = stream.last_id();
    if stream.is_empty() {
        // An entry that goes at once: there is no other command that makes an empty stream.
        let id = if last == StreamId::MIN { StreamId::new(0, 1) } else { last }.to_string();
        words(out, &[b"XADD", key, b"MAXLEN", b"0", id.as_bytes(), b"x", b"y"]);
    }
    let (added, deleted) = (stream.entries_added().to_string(), stream.max_deleted_id());
    let (last, deleted) = (last.to_string(), deleted.to_string());
    let marks: [&[u8]; 4] =
        [b"ENTRIESADDED", added.as_bytes(), b"MAXDELETEDID", deleted.as_bytes()];
    words(out, &[&[b"XSETID", key, last.as_bytes()][..], &marks].concat());
    stream.groups().for_each(|(name, group)| write_group(out, key, name, group));
}

fn write_group(out: &mut Vec<u8>, key: &[u8], name: &[u8], group: &Group) {
    let last = group.last_id.to_string();
    let read = group.entries_read.map_or("-1".to_string(), |count| count.to_string());
    let create: [&[u8]; 7] =
        [b"XGROUP", b"CREATE", key, name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
    words(out, &create);
    for (_, consumer) in group.consumers() {
        words(out, &[b"XGROUP", b"CREATECONSUMER", key, name, &consumer.name]);
    }
    for (id, pending) in group.pending_range(StreamId::MIN, StreamId::MAX) {
        let consumer = &group.consumer(pending.consumer).name;
        let (id, count) = (id.to_string(), pending.count.to_string());
        let time = pending.delivered_ms.to_string();
        let claim: [&[u8]; 12] = [
            b"XCLAIM",
            key,
            name,
            consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            time.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"JUSTID",
            b"FORCE",
        ];
        words(out, &claim);
    }
}

/// Writes commands of at most `ELEMENTS` elements of `words_each` words.
fn in_parts(
    out: &mut Vec<u8>,
    command: &[u8],
    key: &[u8],
    words_each: usize,
    words: impl Iterator<Item = Vec<u8>>,
) {
    let mut part: Vec<Vec<u8>> = Vec::with_capacity(ELEMENTS * words_each);
    let flush = |out: &mut Vec<u8>, part: &mut Vec<Vec<u8>>| {
        let mut request: Vec<&[u8]> = vec![command, key];
        request.extend(part.iter().map(Vec::as_slice));
        write_request(out, request.into_iter());
        part.clear();
    };
    for word in words {
        part.push(word);
        if part.len() == ELEMENTS * words_each {
            flush(out, &mut part);
        }
    }
    if !part.is_empty() {
        flush(out, &mut part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::settings::Settings;
    use keyspace::types::list::{End, List};

    fn lines(bytes: &[u8]) -> usize {
        String::from_utf8_lossy(bytes).matches("RPUSH").count()
    }

    #[test]
    fn long_lists_come_in_parts() {
        let limits = Settings::default().list_limits();
        let mut list = List::default();
        for number in 0..130 {
            let text = number.to_string();
            list.push(End::Right, [text.as_bytes()].into_iter(), limits);
        }
        let mut out = Vec::new();
        write_commands(&mut out, b"k", ValueRef::List(&list), Some(12));
        assert_eq!(lines(&out), 3);
        let end = b"*3\r\n$9\r\nPEXPIREAT\r\n$1\r\nk\r\n$2\r\n12\r\n";
        assert!(out.ends_with(end), "{}", String::from_utf8_lossy(&out));
    }
}
