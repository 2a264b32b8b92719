//! `Shelf` over the keyspace of this process: kept answers are strings that anybody can look at and
//! remove.

use services::tables::shelf::Shelf;

use crate::embedded::{Embedded, Engine};

/// Keys looked at in one step of a purge.
const SCANNED: &[u8] = b"1000";

/// The bytes of a bulk reply; none for null.
fn bulk(reply: &[u8]) -> Result<Option<&[u8]>, String> {
    let strange = || String::from_utf8_lossy(&reply[..reply.len().min(200)]).trim().to_string();
    if reply.starts_with(b"$-1") {
        return Ok(None);
    }
    let end = reply.iter().position(|byte| *byte == b'\r').ok_or_else(strange)?;
    let len = reply.strip_prefix(b"$").and_then(|rest| std::str::from_utf8(&rest[..end - 1]).ok());
    let len: usize = len.and_then(|len| len.parse().ok()).ok_or_else(strange)?;
    reply.get(end + 2..end + 2 + len).map(Some).ok_or_else(strange)
}

/// The words of a reply that is lists of bulks, without their structure.
fn words(mut reply: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(end) = reply.iter().position(|byte| *byte == b'\r') {
        if reply[0] != b'$' {
            reply = &reply[end + 2..];
            continue;
        }
        let Ok(Some(word)) = bulk(reply) else { break };
        found.push(word.to_vec());
        reply = &reply[end + 2 + word.len() + 2..];
    }
    found
}

impl<E: Engine> Embedded<E> {
    fn ask<T>(
        &self,
        words: &[&[u8]],
        now_ms: i64,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut result = Err("no reply".to_string());
        self.0.run(words, now_ms, &mut |reply| result = read(reply));
        result
    }
}

impl<E: Engine> Shelf for Embedded<E> {
    fn begins(&self, key: &str, start: &[u8], now_ms: i64) -> Result<bool, String> {
        let mut end = itoa::Buffer::new();
        let end = end.format(start.len() - 1).as_bytes();
        let words = [b"GETRANGE", key.as_bytes(), b"0", end];
        self.ask(&words, now_ms, |reply| Ok(bulk(reply)? == Some(start)))
    }

    fn get(&self, key: &str, now_ms: i64) -> Result<Option<Vec<u8>>, String> {
        let words = [b"GET".as_slice(), key.as_bytes()];
        self.ask(&words, now_ms, |reply| Ok(bulk(reply)?.map(<[u8]>::to_vec)))
    }

    fn put(&self, key: &str, value: &[u8], expire_at_ms: i64, now_ms: i64) -> Result<(), String> {
        let at = expire_at_ms.to_string();
        let words = [b"SET", key.as_bytes(), value, b"PXAT", at.as_bytes()];
        self.ask(&words, now_ms, |reply| match reply {
            [b'+', ..] => Ok(()),
            reply => Err(String::from_utf8_lossy(reply).trim().to_string()),
        })
    }

    fn purge(&self, prefix: &str, now_ms: i64) -> Result<u64, String> {
        let pattern = format!("{prefix}*");
        let mut cursor = b"0".to_vec();
        let mut purged = 0;
        loop {
            let scan = [b"SCAN", &cursor[..], b"MATCH", pattern.as_bytes(), b"COUNT", SCANNED];
            let mut found = self.ask(&scan, now_ms, |reply| Ok(words(reply)))?;
            if found.is_empty() {
                return Err("SCAN is not answered".into());
            }
            cursor = found.remove(0);
            for key in found {
                let unlink = [b"UNLINK", &key[..]];
                purged += self.ask(&unlink, now_ms, |reply| Ok(u64::from(reply == b":1\r\n")))?;
            }
            if cursor == b"0" {
                return Ok(purged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::testing::Keys;

    #[test]
    fn answers_are_keys() {
        let shelf = Embedded(Keys::default());
        let now = 1_700_000_000_000;
        assert_eq!(shelf.get("cache:t:a", now), Ok(None));
        assert_eq!(shelf.begins("cache:t:a", b"one", now), Ok(false));
        shelf.put("cache:t:a", b"one\r\n two", now + 1000, now).expect("a key");
        assert_eq!(shelf.get("cache:t:a", now), Ok(Some(b"one\r\n two".to_vec())));
        assert_eq!(shelf.begins("cache:t:a", b"one\r", now), Ok(true));
        assert_eq!(shelf.begins("cache:t:a", b"two", now), Ok(false));
        assert_eq!(shelf.get("cache:t:a", now + 1000), Ok(None));
        let now = now + 2000;
        for number in 0..3000 {
            shelf.put(&format!("cache:t:{number}"), b"x", now + 1000, now).expect("a key");
        }
        shelf.put("cache:tt:1", b"x", now + 1000, now).expect("a key");
        assert_eq!(shelf.purge("cache:t:", now), Ok(3000));
        assert_eq!(shelf.purge("cache:t:", now), Ok(0));
        assert_eq!(shelf.begins("cache:tt:1", b"x", now), Ok(true));
        shelf.0.0.lock().expect("unpoisoned").run("RPUSH list a");
        assert!(shelf.get("list", now).is_err());
    }
}
