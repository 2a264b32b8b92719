//! Reading several connections before running any: while the kernel copies one connection's bytes,
//! the processor fetches the keys that the others ask for.
//!
//! Without pipelining each connection brings one command, and finding its key costs two or three
//! misses of the cache, as much as a tenth of the whole request. So the connections of a turn are
//! taken in groups: all are read, each one's shard is fetched meanwhile, then the place of its key,
//! then its entry; then they are run as ever.
//!
//! **Invariant:** what is read ahead stands at the end of the connection's input, as if it had just
//! arrived; nothing is run, counted or answered here.

use std::io::Read;

use keyspace::hasher::hash;
use keyspace::keyspace::{Keyspace, shard_of};

use crate::worker::Worker;
use crate::worker_input::note_drained;

/// Connections that are read before the first is run, at most.
const GROUP: usize = 16;
/// Bytes that are read ahead, at most: far more than one command has, so that one read takes all.
const AHEAD_BYTES: usize = 4096;
/// A connection whose last read brought so many has a pipeline of its own, whose keys are fetched
/// side by side anyway: it is not read ahead.
const PIPELINE_BYTES: usize = 200;

impl Worker {
    /// Reads and runs the connections of this turn.
    pub(crate) fn read_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        for group in ready.chunks(GROUP) {
            if group.len() > 1 {
                self.fetch(group);
            }
            for index in group {
                self.readable(*index);
            }
            self.release();
        }
        ready.clear();
        self.ready = ready;
    }

    fn fetch(&mut self, group: &[usize]) {
        let mut hashes = [None; GROUP];
        for (index, hash) in group.iter().zip(&mut hashes) {
            *hash = self.read_ahead(*index);
            if let Some((hash, _)) = *hash {
                self.hub.shared.core.space.prefetch_lock(shard_of(hash));
            }
        }
        let space = &self.hub.shared.core.space;
        for (hash, db) in hashes.into_iter().flatten() {
            let held = space.lock_one_or_busy(shard_of(hash));
            held.inspect(|held| Keyspace::prefetch(held, hash, db));
        }
        for (hash, db) in hashes.into_iter().flatten() {
            let held = space.lock_one_or_busy(shard_of(hash));
            held.inspect(|held| Keyspace::prefetch_entry(held, hash, db));
        }
    }

    /// Reads a connection that is between commands; the hash of the key that it asks for, and its
    /// database, if that is easy to see.
    fn read_ahead(&mut self, index: usize) -> Option<(u64, usize)> {
        let connection = self.connections.get_mut(index)?.as_mut()?;
        let is_plain = connection.stream.tls.is_none()
            && connection.last_read_bytes < PIPELINE_BYTES
            && connection.input.is_empty()
            && connection.queue.is_empty()
            && connection.session.blocked.is_none()
            && !connection.parser.is_inside()
            && !connection.peer.closes
            && connection.ahead.is_none();
        if !is_plain {
            return None;
        }
        let buffer = &mut self.buffer[..AHEAD_BYTES];
        let count = connection.stream.read(buffer).ok()?;
        connection.input.extend_from_slice(&buffer[..count]);
        connection.ahead = Some(count);
        connection.may_read = true;
        note_drained(connection, count < AHEAD_BYTES);
        let key = second_word(&buffer[..count])?;
        Some((hash(key), connection.session.db))
    }
}

/// The second word of a command in RESP, if it has one and all of it is there.
fn second_word(input: &[u8]) -> Option<&[u8]> {
    let input = input.strip_prefix(b"*")?;
    let (_, input) = line(input)?;
    let (len, input) = line(input.strip_prefix(b"$")?)?;
    let input = input.get(len + 2..)?;
    let (len, input) = line(input.strip_prefix(b"$")?)?;
    input.get(..len)
}

/// A number and what follows its line; of at most four digits, as these have.
fn line(input: &[u8]) -> Option<(usize, &[u8])> {
    let end = input.iter().take(5).position(|byte| *byte == b'\r')?;
    let number = input[..end].iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + usize::from(byte - b'0'))
    })?;
    Some((number, input.get(end + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_is_found() {
        let cases: [(&[u8], Option<&[u8]>); 7] = [
            (b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", Some(b"key")),
            (b"*3\r\n$3\r\nSET\r\n$12\r\nkey:00000001\r\n$1\r\nv\r\n", Some(b"key:00000001")),
            (b"*1\r\n$4\r\nPING\r\n", None),
            (b"PING\r\n", None),
            (b"*2\r\n$3\r\nGET\r\n$30\r\nkey", None),
            (b"*2\r\n$99999\r\n", None),
            (b"", None),
        ];
        for (input, word) in cases {
            assert_eq!(second_word(input), word);
        }
    }
}
