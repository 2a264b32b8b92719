//! A key with its value as the commands that make it: the base of an append-only file where
//! `aof-use-rdb-preamble` says no.
//!
//! As Redis writes it (aof.c, `rewriteAppendOnlyFileRio`): large collections in several commands of
//! 64 elements, the time to live last.

use keyspace::raw::listpack::Element;
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
        }
        ValueRef::Zset(zset) => {
            let pair = |(member, score): (Element<'_>, f64)| {
                [double_text(score).into_bytes(), member.to_vec()]
            };
            in_parts(out, b"ZADD", key, 2, zset.iter().flat_map(pair));
        }
    }
    if let Some(at) = expire_at {
        let at = at.to_string();
        write_request(out, [&b"PEXPIREAT"[..], key, at.as_bytes()].into_iter());
    }
}

fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    write_request(out, [&b"SET"[..], key, value].into_iter());
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
