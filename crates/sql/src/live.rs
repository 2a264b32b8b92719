//! Live keys as tables: what a statement reads of the keyspace, copied at one instant before it
//! runs, so that it holds no lock while it does.
//!
//! ```text
//! run -> a table is asked for keys nobody copied -> the wish is noted, the statement stops
//!     -> all shards are locked for a moment, all wishes are copied -> run again
//! ```
//!
//! What a search says of the key (`=`, LIKE and GLOB with a beginning, ranges) narrows what is
//! copied; single keys are looked up, with no other shard locked.
//!
//! **Invariant:** all that one statement sees of the keys is from one instant.
//! **Bound:** a copy has at most `sql-live-bytes-max` bytes; what is larger is refused. After
//! [`NARROW_MAX`] searches of one table all of it is copied.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use keyspace::keys::Keys;
use keyspace::raw::entry::Entry;
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
    /// Which of those keys.
    pub scope: Scope,
}

/// Which keys of a table a search is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// One.
    Key(Vec<u8>),
    /// Those in a range.
    Part(Range),
}

/// Keys between two, or with a beginning; what is not said is not asked for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Range {
    /// The lowest.
    pub from: Option<Vec<u8>>,
    /// The highest.
    pub to: Option<Vec<u8>>,
    /// What they begin with.
    pub begins: Vec<u8>,
    /// The same, in either case.
    pub begins_like: Vec<u8>,
}

impl Range {
    /// Whether a key may be among them. One that is no text is: SQLite sorts it after all texts.
    fn may_have(&self, key: &[u8]) -> bool {
        let begins_like = || {
            let start = key.get(..self.begins_like.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(&self.begins_like))
        };
        let is_inside = self.from.as_deref().is_none_or(|from| from <= key)
            && self.to.as_deref().is_none_or(|to| key <= to)
            && key.starts_with(&self.begins)
            && begins_like();
        is_inside || std::str::from_utf8(key).is_err()
    }
}

impl Want {
    /// Whether both are about the same table.
    fn is_table_of(&self, other: &Want) -> bool {
        self.what == other.what && self.prefix == other.prefix && self.fields == other.fields
    }

    /// Whether a copy for this has all that the other asks for.
    fn serves(&self, other: &Want) -> bool {
        (self.scope == Scope::All || self.scope == other.scope) && self.is_table_of(other)
    }

    fn may_have(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
            && match &self.scope {
                Scope::All => true,
                Scope::Key(one) => one == key,
                Scope::Part(range) => range.may_have(key),
            }
    }
}

/// Searches of one table that are served one by one.
pub const NARROW_MAX: usize = 16;

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

/// The number of each key, and the keys by their numbers.
type Numbered = (HashMap<Vec<u8>, usize>, Vec<Vec<u8>>);

thread_local! {
    static COPIES: RefCell<Vec<(Want, Rows)>> = const { RefCell::new(Vec::new()) };
    static SIGHT: Cell<Sight> = const { Cell::new(Sight::Copies) };
    static WANTS: RefCell<Vec<Want>> = const { RefCell::new(Vec::new()) };
    /// Keys whose rows were given numbers.
    static NUMBERED: RefCell<Numbered> = RefCell::default();
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
    NUMBERED.with_borrow_mut(|(ids, keys)| {
        ids.clear();
        keys.clear();
    });
}

/// What a statement gets to see of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Copies.
    Copies,
    /// It writes tables: its replay from the log would see other keys.
    Refused,
    /// It is after one that writes keys, which will be done when the command ends.
    Stale,
    /// It is done again from the log, which has what it did to keys by itself: there are none.
    Nothing,
}

/// The rows that a table needs, if they were copied; else the wish is noted.
///
/// # Errors
/// In words, if there are none for it, or not yet.
pub fn rows(want: &Want) -> Result<Rows, &'static str> {
    match SIGHT.get() {
        Sight::Copies => {}
        Sight::Refused => return Err("a statement that writes cannot read live keys"),
        Sight::Stale => return Err("live keys cannot be read after they were written: see MULTI"),
        Sight::Nothing => return Ok(Rows::default()),
    }
    let (found, narrow) = COPIES.with_borrow(|copies| {
        let found = copies.iter().find(|(known, _)| known.serves(want));
        let narrow = copies.iter().filter(|(known, _)| known.is_table_of(want)).count();
        (found.map(|(_, rows)| Rc::clone(rows)), narrow)
    });
    if let Some(rows) = found {
        return Ok(rows);
    }
    HAS_ANY.set(true);
    let mut want = want.clone();
    if narrow >= NARROW_MAX {
        want.scope = Scope::All;
    }
    WANTS.with_borrow_mut(|wants| wants.push(want));
    Err("live keys have to be copied first")
}

/// Bits of a row's number that tell rows of one key apart.
const PLACE_BITS: u32 = 32;

/// The number of a row: the same in each copy, and told from all others while a command runs.
pub fn rowid_of(rows: &Rows, at: usize) -> i64 {
    let Some(key) = rows.get(at).map(|row| key_of(row)) else { return -1 };
    let first = rows.partition_point(|row| key_of(row) < key);
    let id = NUMBERED.with_borrow_mut(|(ids, keys)| match ids.get(key) {
        Some(id) => *id,
        None => {
            keys.push(key.to_vec());
            ids.insert(key.to_vec(), keys.len() - 1);
            keys.len() - 1
        }
    });
    (id << PLACE_BITS | (at - first)) as i64
}

/// The key of the row with a number that was told.
pub fn key_at(rowid: i64) -> Option<Vec<u8>> {
    let id = usize::try_from(rowid).ok()? >> PLACE_BITS;
    NUMBERED.with_borrow(|(_, keys)| keys.get(id).cloned())
}

/// Whether a statement stopped for want of keys.
pub fn has_wants() -> bool {
    WANTS.with_borrow(|wants| !wants.is_empty())
}

/// Says what the statement that runs now gets to see.
pub fn set_sight(sight: Sight) {
    SIGHT.set(sight);
}

/// The keys that are to be copied, if they are known one by one: their shards are all that
/// [`copy`] needs. Else it needs every shard.
pub fn single_keys() -> Option<Vec<Vec<u8>>> {
    let key = |want: &Want| match &want.scope {
        Scope::Key(key) => Some(key.clone()),
        _ => None,
    };
    let wants = WANTS.with_borrow(|wants| wants.iter().map(key).collect::<Option<Vec<_>>>())?;
    let before = COPIES.with_borrow(|copies| {
        copies.iter().map(|(want, _)| key(want)).collect::<Option<Vec<_>>>()
    })?;
    Some([wants, before].concat())
}

/// Copies what is wanted, and again what was copied before: all at one instant, with the shards
/// held by the caller that [`single_keys`] says.
///
/// # Errors
/// If it is too much.
pub fn copy(keys: &Keys<'_>) -> Result<(), String> {
    let is_single = single_keys().is_some();
    let mut wants = WANTS.with_borrow_mut(std::mem::take);
    let before = COPIES.with_borrow_mut(std::mem::take);
    wants.extend(before.into_iter().map(|(want, _)| want));
    let whole: Vec<Want> = wants.iter().filter(|want| want.scope == Scope::All).cloned().collect();
    wants.retain(|want| {
        want.scope == Scope::All || !whole.iter().any(|whole| whole.is_table_of(want))
    });
    let mut all: Vec<(Want, Vec<Vec<Copied>>)> =
        wants.into_iter().map(|want| (want, Vec::new())).collect();
    let (mut bytes, now_ms) = (0, keys.now_ms());
    let bytes_max = settings().live_bytes_max();
    let mut add_entry = |want: &Want, entry: &Entry, rows: &mut Vec<Vec<Copied>>| {
        if bytes <= bytes_max && want.may_have(entry.key()) {
            let kind = entry.kind();
            let ttl = entry.expire_at().map(|at| at - now_ms);
            add(want, entry.key(), kind, ttl, entry.value(), rows, &mut bytes);
        }
    };
    if is_single {
        for (want, rows) in &mut all {
            if let Scope::Key(key) = &want.scope {
                keys.inspect(key, |entry| add_entry(want, entry, rows));
            }
        }
    } else {
        keys.for_each(|entry| {
            all.iter_mut().for_each(|(want, rows)| add_entry(want, entry, rows));
        });
    }
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
