//! Streams: logs of entries that many read, alone or as a group that shares the work.
//!
//! | file | holds |
//! |---|---|
//! | `add.rs` | XADD, XTRIM, XDEL, XLEN, XSETID |
//! | `trim.rs` | the words that say how a stream is cut |
//! | `read.rs` | XRANGE, XREVRANGE, XREAD, XREADGROUP |
//! | `groups.rs` | XGROUP, XACK, XPENDING |
//! | `claim.rs` | XCLAIM, XAUTOCLAIM |
//! | `info.rs` | XINFO |
//! | `log.rs` | what a group's changes are in the commit log |
//!
//! **Invariant:** what depends on the clock, on the size of blocks or on a group's place is logged
//! as what came of it: ids, exact trims, XCLAIM, XGROUP SETID.

mod add;
mod claim;
mod groups;
mod info;
mod log;
mod read;
#[cfg(test)]
mod tests;
mod trim;

use keyspace::types::stream::{Entry, StreamId};
use resp::Writer;

use crate::command::{
    BLOCKING, Command, DENY_OOM, FAST, Family, Find, Flags, Group, KeySpec, READONLY, RM, RO,
    RO_META, RW_INSERT, RW_UPDATE, WRITE, at, first,
};
use crate::elements;
use crate::error::Error;
use crate::help::HELP;

const READ_FAST: Flags = READONLY.with(FAST);
const WRITE_FAST: Flags = WRITE.with(FAST);
const WRITE_MORE: Flags = WRITE.with(DENY_OOM);
const RANGE_COST: &str = "O(N), N = entries returned; O(1) with a constant COUNT";
const SINCE_5: Command = Command { since: "5.0.0", ..Command::DEFAULT };
const GROUP_KEY: &[KeySpec] = &[at(2, RW_UPDATE)];

const fn streams(from: usize) -> KeySpec {
    KeySpec { find: Find::HalfAfter { keyword: "STREAMS", from }, flags: RO }
}

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Stream,
    commands: &[
        Command {
            name: "XADD",
            run: add::xadd,
            flags: WRITE_MORE.with(FAST),
            keys: &[first(RW_UPDATE)],
            usage: "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> \
                    field value [field value ...]",
            summary: "Adds an entry to a stream, which is made if it is not there.",
            complexity: "O(1); O(N) with trimming, N = entries that go",
            tips: &["nondeterministic_output"],
            ..SINCE_5
        },
        Command {
            name: "XLEN",
            run: add::xlen,
            flags: READ_FAST,
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns the number of entries of a stream.",
            ..SINCE_5
        },
        Command {
            name: "XDEL",
            run: add::xdel,
            flags: WRITE_FAST,
            keys: &[first(RM)],
            usage: "key id [id ...]",
            summary: "Deletes entries of a stream; returns how many were there.",
            complexity: "O(1) for each entry",
            ..SINCE_5
        },
        Command {
            name: "XTRIM",
            run: add::xtrim,
            flags: WRITE,
            keys: &[first(RM)],
            usage: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count]",
            summary: "Deletes entries from the start of a stream.",
            complexity: "O(N), N = entries that go",
            tips: &["nondeterministic_output"],
            ..SINCE_5
        },
        Command {
            name: "XSETID",
            run: add::xsetid,
            flags: WRITE_MORE.with(FAST),
            keys: &[first(RW_UPDATE)],
            usage: "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
            summary: "Sets the last id of a stream: for replication and recovery.",
            ..SINCE_5
        },
        Command {
            name: "XRANGE",
            run: read::xrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key start end [COUNT count]",
            summary: "Returns the entries of a stream between two ids.",
            complexity: RANGE_COST,
            ..SINCE_5
        },
        Command {
            name: "XREVRANGE",
            run: read::xrevrange,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key end start [COUNT count]",
            summary: "Returns the entries of a stream between two ids, the last one first.",
            complexity: RANGE_COST,
            ..SINCE_5
        },
        Command {
            name: "XREAD",
            run: read::xread,
            flags: READONLY.with(BLOCKING),
            keys: &[streams(1)],
            usage: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            summary: "Returns the entries of streams behind an id each, or waits for some.",
            complexity: RANGE_COST,
            ..SINCE_5
        },
        Command {
            name: "XREADGROUP",
            run: read::xreadgroup,
            flags: WRITE.with(BLOCKING),
            keys: &[streams(4)],
            usage: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] \
                    STREAMS key [key ...] id [id ...]",
            summary: "Returns entries nobody of a group has had, or a consumer's pending ones.",
            complexity: "O(M), M = entries returned",
            ..SINCE_5
        },
        Command {
            name: "XACK",
            run: groups::xack,
            flags: WRITE_FAST,
            keys: &[first(RW_UPDATE)],
            usage: "key group id [id ...]",
            summary: "Acknowledges entries: they are no longer pending.",
            complexity: "O(1) for each entry",
            ..SINCE_5
        },
        Command {
            name: "XPENDING",
            run: groups::xpending,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key group [[IDLE min-idle-time] start end count [consumer]]",
            summary: "Returns what a group's consumers have not acknowledged.",
            complexity: "O(N), N = entries returned; without a range, consumers",
            tips: &["nondeterministic_output"],
            ..SINCE_5
        },
        Command {
            name: "XCLAIM",
            run: claim::xclaim,
            flags: WRITE_FAST,
            keys: &[first(RW_UPDATE)],
            usage: "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-ms] \
                    [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            summary: "Makes pending entries those of another consumer.",
            complexity: "O(log N), N = the group's pending entries",
            tips: &["nondeterministic_output"],
            ..SINCE_5
        },
        Command {
            name: "XAUTOCLAIM",
            run: claim::xautoclaim,
            flags: WRITE_FAST,
            keys: &[first(RW_UPDATE)],
            usage: "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            summary: "Makes entries that have been pending for long those of another consumer.",
            complexity: "O(1) with a small COUNT",
            since: "6.2.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        XGROUP,
        XINFO,
    ],
};

const XGROUP: Command = Command {
    name: "XGROUP",
    summary: "Manages the groups of a stream.",
    complexity: "Depends on the subcommand",
    sub: &[
        Command {
            name: "CREATE",
            run: groups::create,
            flags: WRITE_MORE,
            keys: &[at(2, RW_INSERT)],
            usage: "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
            summary: "Adds a group to a stream.",
            ..SINCE_5
        },
        Command {
            name: "SETID",
            run: groups::setid,
            flags: WRITE,
            keys: GROUP_KEY,
            usage: "key group <id | $> [ENTRIESREAD entries-read]",
            summary: "Sets which entry a group has had last.",
            ..SINCE_5
        },
        Command {
            name: "DESTROY",
            run: groups::destroy,
            flags: WRITE,
            keys: &[at(2, RM)],
            usage: "key group",
            summary: "Removes a group.",
            complexity: "O(N), N = its pending entries",
            ..SINCE_5
        },
        Command {
            name: "CREATECONSUMER",
            run: groups::createconsumer,
            flags: WRITE_MORE,
            keys: &[at(2, RW_INSERT)],
            usage: "key group consumer",
            summary: "Adds a consumer to a group.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "DELCONSUMER",
            run: groups::delconsumer,
            flags: WRITE,
            keys: &[at(2, RM)],
            usage: "key group consumer",
            summary: "Removes a consumer and what is pending for it.",
            ..SINCE_5
        },
        HELP,
    ],
    ..SINCE_5
};

const XINFO: Command = Command {
    name: "XINFO",
    summary: "Tells about streams, groups and consumers.",
    complexity: "Depends on the subcommand",
    sub: &[
        Command {
            name: "STREAM",
            run: info::stream,
            flags: READONLY,
            keys: &[at(2, RO)],
            usage: "key [FULL [COUNT count]]",
            summary: "Returns what is known of a stream.",
            ..SINCE_5
        },
        Command {
            name: "GROUPS",
            run: info::groups,
            flags: READONLY,
            keys: &[at(2, RO)],
            usage: "key",
            summary: "Returns the groups of a stream.",
            ..SINCE_5
        },
        Command {
            name: "CONSUMERS",
            run: info::consumers,
            flags: READONLY,
            keys: &[at(2, RO)],
            usage: "key group",
            summary: "Returns the consumers of a group.",
            tips: &["nondeterministic_output"],
            ..SINCE_5
        },
        HELP,
    ],
    ..SINCE_5
};

const BAD_ID: Error = Error::text("ERR Invalid stream ID specified as stream command argument");

/// The number before or after an id's dash.
fn part(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    word.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// An id of two numbers, or of one and `seq`.
fn id_or(word: &[u8], seq: u64) -> Result<StreamId, Error> {
    let (ms, seq) = match word.iter().position(|byte| *byte == b'-') {
        Some(dash) => (part(&word[..dash]), part(&word[dash + 1..])),
        None => (part(word), Some(seq)),
    };
    ms.zip(seq).map(|(ms, seq)| StreamId { ms, seq }).ok_or(BAD_ID)
}

/// An id of two numbers, or of one and 0.
fn id(word: &[u8]) -> Result<StreamId, Error> {
    id_or(word, 0)
}

/// The same, or `-` or `+` for the first or last there can be.
fn id_or_end(word: &[u8], seq: u64) -> Result<StreamId, Error> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        word => id_or(word, seq),
    }
}

/// Where a range starts: an id, `-`, or `(` and an id that is not in it.
fn range_start(word: &[u8]) -> Result<StreamId, Error> {
    const ERROR: Error = Error::text("ERR invalid start ID for the interval");
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => id(rest)?.next().ok_or(ERROR),
        word => id_or_end(word, 0),
    }
}

/// Where a range ends.
fn range_end(word: &[u8]) -> Result<StreamId, Error> {
    const ERROR: Error = Error::text("ERR invalid end ID for the interval");
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => id_or(rest, u64::MAX)?.previous().ok_or(ERROR),
        word => id_or_end(word, u64::MAX),
    }
}

/// An id's text.
struct IdText {
    bytes: [u8; 41],
    len: usize,
}

impl IdText {
    fn new(id: StreamId) -> IdText {
        let mut text = IdText { bytes: [0; 41], len: 0 };
        let mut digits = itoa::Buffer::new();
        text.add(digits.format(id.ms).as_bytes());
        text.add(b"-");
        text.add(digits.format(id.seq).as_bytes());
        text
    }

    fn add(&mut self, more: &[u8]) {
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[inline]
fn write_id(out: &mut Writer, id: StreamId) {
    out.bulk(IdText::new(id).bytes());
}

/// Writes an entry: its id, and its names and values.
#[inline]
fn write_entry(out: &mut Writer, entry: &Entry<'_>) {
    out.array(2);
    write_id(out, entry.id);
    out.array(entry.len() * 2);
    for (name, value) in entry.fields() {
        elements::write(out, name);
        elements::write(out, value);
    }
}

fn lossy(word: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(word)
}

/// Neither key nor group: XPENDING, XCLAIM, XAUTOCLAIM.
fn no_key_or_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (lossy(key), lossy(group));
    Error::new(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

/// No such group of a key that is there: XGROUP, XINFO.
fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (lossy(key), lossy(group));
    Error::new(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// Words after a subcommand that it does not take.
fn bad_subcommand(container: &str, word: &[u8]) -> Error {
    let word = lossy(&word[..word.len().min(128)]).into_owned();
    Error::new(format!(
        "ERR unknown subcommand or wrong number of arguments for '{word}'. Try {container} HELP."
    ))
}
