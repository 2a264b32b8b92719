//! Live keys as tables: what a statement reads of the keyspace, copied at one instant before it
//! runs, so that it holds no lock while it does.
//!
//! ```text
//! run -> a table is asked for keys nobody copied -> the wish is noted, the statement stops
//!     -> all shards are locked for a moment, all wishes are copied -> run again
//! ```
//!
//! **Invariant:** all that one statement sees of the keys is from one instant.
//! **Bound:** a copy has at most `sql-live-bytes-max` bytes; what is larger is refused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use keyspace::keys::Keys;
use keyspace::types::stream::StreamId;
use keyspace::value::{Kind, ValueRef};

use crate::settings::settings;

/// What the keys of a table hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Every key: name, type, time to live in milliseconds.
    Keys,
    /// Hashes: key, then one column for each field named.
    Hash,
    /// Strings: key, value.
    Text,
    /// Lists: key, position, value.
    List,
    /// Sets: key, member.
    Set,
    /// Sorted sets: key, member, score.
    Zset,
    /// Streams: key, id, field, value.
    Stream,
}

/// The modules by which tables over keys are made, each with what is in its keys.
pub const MODULES: &[(&str, What)] = &[
    ("redis_keys", What::Keys),
    ("redis_hash", What::Hash),
    ("redis_string", What::Text),
    ("redis_list", What::List),
    ("redis_set", What::Set),
    ("redis_zset", What::Zset),
    ("redis_stream", What::Stream),
    ("REDISQL_TABLES_BRUTE_HASH", What::Hash),
];

/// Keys that a table needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// What they hold.
    pub what: What,
    /// What their names begin with.
    pub prefix: Vec<u8>,
    /// The fields of hashes.
    pub fields: Vec<Vec<u8>>,
}

/// A value in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Copied {
    /// Nothing.
    Null,
    /// A number.
    Int(i64),
    /// A score.
    Real(f64),
    /// Bytes: text if they are UTF-8.
    Bytes(Vec<u8>),
}

/// Rows of a table, sorted by key, which is their first column.
pub type Rows = Rc<Vec<Vec<Copied>>>;

thread_local! {
    static COPIES: RefCell<Vec<(Want, Rows)>> = const { RefCell::new(Vec::new()) };
    static WRITES: Cell<bool> = const { Cell::new(false) };
    static WANTS: RefCell<Vec<Want>> = const { RefCell::new(Vec::new()) };
    /// There may be copies or wishes.
    static HAS_ANY: Cell<bool> = const { Cell::new(false) };
}

/// Forgets wishes and copies: a statement begins or has ended.
pub fn forget() {
    if !HAS_ANY.replace(false) {
        return;
    }
    COPIES.with_borrow_mut(Vec::clear);
    WANTS.with_borrow_mut(Vec::clear);
}

/// Why a statement that writes gets no keys.
pub const REFUSAL: &str = "a statement that writes cannot read live keys";

/// The rows that a table needs, if they were copied; else the wish is noted.
pub fn rows(want: &Want) -> Option<Rows> {
    if WRITES.get() {
        return None;
    }
    let found = COPIES.with_borrow(|copies| {
        copies.iter().find(|(known, _)| known == want).map(|(_, rows)| Rc::clone(rows))
    });
    if found.is_none() {
        HAS_ANY.set(true);
        WANTS.with_borrow_mut(|wants| wants.push(want.clone()));
    }
    found
}

/// Whether a statement stopped for want of keys.
pub fn has_wants() -> bool {
    WANTS.with_borrow(|wants| !wants.is_empty())
}

/// Says whether the statement that runs now writes: such a one gets no keys, since its replay from
/// the log would see others.
pub fn set_writes(writes: bool) {
    WRITES.set(writes);
}

/// Copies what is wanted, and again what was copied before: all at one instant, with all shards
/// held by the caller.
///
/// # Errors
/// If it is too much.
pub fn copy(keys: &Keys<'_>) -> Result<(), String> {
    let mut wants = WANTS.with_borrow_mut(std::mem::take);
    let before = COPIES.with_borrow_mut(std::mem::take);
    wants.extend(before.into_iter().map(|(want, _)| want));
    let mut all: Vec<(Want, Vec<Vec<Copied>>)> =
        wants.into_iter().map(|want| (want, Vec::new())).collect();
    let (mut bytes, now_ms) = (0, keys.now_ms());
    let bytes_max = settings().live_bytes_max();
    keys.for_each(|entry| {
        for (want, rows) in &mut all {
            if bytes <= bytes_max && entry.key().starts_with(&want.prefix) {
                let kind = entry.kind();
                let ttl = entry.expire_at().map(|at| at - now_ms);
                add(want, entry.key(), kind, ttl, entry.value(), rows, &mut bytes);
            }
        }
    });
    if bytes > bytes_max {
        const TEXT: &str =
            "ERR the keys that the statement reads take too much memory (sql-live-bytes-max)";
        return Err(TEXT.to_string());
    }
    let sorted = all.into_iter().map(|(want, mut rows)| {
        rows.sort_by(|one, other| key_of(one).cmp(key_of(other)));
        (want, Rc::new(rows))
    });
    HAS_ANY.set(true);
    COPIES.with_borrow_mut(|copies| copies.extend(sorted));
    Ok(())
}

/// The key of a row.
pub fn key_of(row: &[Copied]) -> &[u8] {
    match row.first() {
        Some(Copied::Bytes(key)) => key,
        _ => b"",
    }
}

fn bytes_of(text: &[u8]) -> Copied {
    Copied::Bytes(text.to_vec())
}

/// Adds the rows of one key.
fn add(
    want: &Want,
    key: &[u8],
    kind: Kind,
    ttl: Option<i64>,
    value: ValueRef<'_>,
    rows: &mut Vec<Vec<Copied>>,
    bytes: &mut usize,
) {
    let before = rows.len();
    let name = || bytes_of(key);
    match (want.what, value) {
        (What::Keys, _) => {
            let ttl = ttl.map_or(Copied::Null, Copied::Int);
            rows.push(vec![name(), bytes_of(kind.name().as_bytes()), ttl]);
        }
        (What::Hash, ValueRef::Hash(hash)) => {
            let field = |field: &Vec<u8>| {
                hash.get(field).map_or(Copied::Null, |value| Copied::Bytes(value.to_vec()))
            };
            let mut row = vec![name()];
            row.extend(want.fields.iter().map(field));
            rows.push(row);
        }
        (What::Text, ValueRef::Number(number)) => {
            rows.push(vec![name(), bytes_of(number.to_string().as_bytes())]);
        }
        (What::Text, ValueRef::Bytes(text)) => rows.push(vec![name(), bytes_of(text)]),
        (What::Text, ValueRef::Shared(text)) => rows.push(vec![name(), bytes_of(text)]),
        (What::List, ValueRef::List(list)) => {
            let row = |(index, item): (usize, keyspace::raw::listpack::Element<'_>)| {
                vec![name(), Copied::Int(index as i64), Copied::Bytes(item.to_vec())]
            };
            rows.extend(list.iter().enumerate().map(row));
        }
        (What::Set, ValueRef::Set(set)) => {
            rows.extend(set.iter().map(|one| vec![name(), Copied::Bytes(one.to_vec())]));
        }
        (What::Zset, ValueRef::Zset(zset)) => rows.extend(zset.iter().map(|(member, score)| {
            vec![name(), Copied::Bytes(member.to_vec()), Copied::Real(score)]
        })),
        (What::Stream, ValueRef::Stream(stream)) => {
            for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                let id = entry.id.to_string();
                rows.extend(entry.fields().map(|(field, value)| {
                    let (field, value) = (field.to_vec(), value.to_vec());
                    let id = bytes_of(id.as_bytes());
                    vec![name(), id, Copied::Bytes(field), Copied::Bytes(value)]
                }));
            }
        }
        _ => {}
    }
    let size = |cell: &Copied| match cell {
        Copied::Bytes(text) => text.len() + 32,
        _ => 32,
    };
    *bytes += rows[before..].iter().flatten().map(size).sum::<usize>();
}
