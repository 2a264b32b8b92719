//! Tables that are kept in step with hashes: what an index is, and the changes that wait to be
//! written into its table.
//!
//! ```text
//! HSET, DEL, expiry, RENAME, EXEC, a script ...  --under its locks, at its end--> pending rows
//! any SQL on the database  --with the database's connection--> writes them first, in one piece
//! ```
//!
//! **Invariant:** SQL that begins after a change of a hash was answered sees it, and sees all or
//! nothing of a transaction: what is pending is written before any other SQL runs.
//! **Invariant:** what is written is a record of the database's log, so that the replay of a
//! statement that reads the table sees the same rows. After a start the hashes are read again.
//! **Bound:** a row is pending once for each key; beyond [`PENDING_MAX`] the database's own thread
//! is sent to write them.
//!
//! Source of the grammar: zeeSQL, `docs/references.md` and `docs/secondary-indexes.md`.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use commands::error::Error;
use commands::words::is;
use keyspace::keys::Keys;
use keyspace::keyspace::Keyspace;
use keyspace::observe::{Observer, Touched};
use keyspace::value::ValueRef;
use resp::Args;

use crate::connection::Connection;
use crate::database::{Database, Record, lock};
use crate::error::SqlError;
use crate::metadata;
use crate::plan::utf8;

/// Rows that may wait before somebody is sent to write them.
pub const PENDING_MAX: usize = 4096;

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The table.
    pub table: String,
    /// The prefix as it was given: `user:*`, or `*` for every hash.
    pub given: String,
    /// The database of the hashes.
    pub db: usize,
    /// The columns, which are the fields, with their types.
    pub columns: Vec<(String, String)>,
}

impl Definition {
    /// What the names of the hashes begin with.
    pub fn prefix(&self) -> &[u8] {
        self.given.strip_suffix('*').unwrap_or(&self.given).as_bytes()
    }

    fn wants(&self, db: usize, key: &[u8]) -> bool {
        self.db == db && key.starts_with(self.prefix())
    }

    /// The row of a key, if it is a hash.
    fn row(&self, value: Option<ValueRef<'_>>) -> Row {
        let Some(ValueRef::Hash(hash)) = value else { return None };
        let field = |(name, _): &(String, String)| Some(hash.get(name.as_bytes())?.to_vec());
        Some(self.columns.iter().map(field).collect())
    }
}

/// The fields of a hash, in the order of the columns; `None` where there is no hash.
type Row = Option<Vec<Option<Vec<u8>>>>;

/// What has to be written into one table.
#[derive(Debug, Default)]
struct Pending {
    /// All rows with the prefix are written anew.
    is_whole: bool,
    rows: BTreeMap<Vec<u8>, Row>,
}

/// What a database knows of its indexes.
#[derive(Default)]
pub struct Indexes {
    all: Mutex<Vec<(Arc<Definition>, Pending)>>,
    count: AtomicUsize,
    /// The hashes have to be read again: after a start, or when another database took its place.
    is_stale: AtomicBool,
    failures: AtomicU64,
}

impl Indexes {
    /// Rows that wait to be written.
    pub fn pending(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether the hashes have to be read again first.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// The indexes.
    pub fn definitions(&self) -> Vec<Arc<Definition>> {
        lock(&self.all).iter().map(|(definition, _)| Arc::clone(definition)).collect()
    }

    /// Rows that could not be written, because of what somebody did to the table.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Takes over what the database itself says.
    pub fn reload(&self, connection: &Connection) {
        let known = definitions(connection).unwrap_or_default();
        let mut all = lock(&self.all);
        let is_same = all.len() == known.len() && all.iter().all(|(one, _)| known.contains(one));
        if is_same {
            return;
        }
        all.retain(|(one, _)| known.contains(one));
        for definition in known {
            if !all.iter().any(|(one, _)| **one == definition) {
                all.push((Arc::new(definition), Pending::default()));
            }
        }
        self.is_stale.store(!all.is_empty(), Ordering::Release);
    }

    /// Reads all hashes of a database of keys again, with all shards held.
    pub fn read_again(&self, keys: &Keys<'_>) {
        let mut all = lock(&self.all);
        read_again(&mut all, keys);
        self.count.store(count(&all), Ordering::Release);
    }

    /// They have been read again.
    pub fn is_fresh(&self) {
        self.is_stale.store(false, Ordering::Release);
    }

    /// They have to be read again.
    pub fn is_fresh_no_more(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// The same indexes, with nothing pending.
    pub fn empty_copy(&self) -> Indexes {
        let all = lock(&self.all);
        let all = all.iter().map(|(one, _)| (Arc::clone(one), Pending::default())).collect();
        Indexes { all: Mutex::new(all), ..Indexes::default() }
    }

    /// Notes what was touched, in one piece.
    pub fn take_over(&self, keys: &mut Keys<'_>, touched: &[Touched]) {
        let mut all = lock(&self.all);
        for touched in touched {
            match touched {
                Touched::Key(db, key) => {
                    keys.select(*db);
                    let wanting = all.iter_mut().filter(|(one, _)| one.wants(*db, key));
                    for (definition, pending) in wanting {
                        pending.rows.insert(key.clone(), definition.row(keys.peek(key)));
                    }
                }
                Touched::All(db) => {
                    keys.select(*db);
                    read_again(&mut all, keys);
                }
            }
        }
        self.count.store(count(&all), Ordering::Release);
    }

    fn take(&self) -> Vec<(Arc<Definition>, Pending)> {
        let mut all = lock(&self.all);
        self.count.store(0, Ordering::Release);
        let full =
            all.iter_mut().filter(|(_, pending)| pending.is_whole || !pending.rows.is_empty());
        full.map(|(definition, pending)| (Arc::clone(definition), std::mem::take(pending)))
            .collect()
    }
}

fn read_again(all: &mut [(Arc<Definition>, Pending)], keys: &Keys<'_>) {
    for (definition, pending) in all.iter_mut().filter(|(one, _)| one.db == keys.db()) {
        pending.is_whole = true;
        pending.rows.clear();
        keys.for_each(|entry| {
            if entry.key().starts_with(definition.prefix())
                && let row @ Some(_) = definition.row(Some(entry.value()))
            {
                pending.rows.insert(entry.key().to_vec(), row);
            }
        });
    }
}

fn count(all: &[(Arc<Definition>, Pending)]) -> usize {
    all.iter().map(|(_, pending)| pending.rows.len() + usize::from(pending.is_whole)).sum()
}

// Who wants to know.

/// The databases of a keyspace that have indexes.
#[derive(Default)]
struct Watcher {
    databases: RwLock<Vec<Weak<Database>>>,
}

impl Watcher {
    fn each(&self, mut visit: impl FnMut(&Arc<Database>)) {
        let databases = self.databases.read().unwrap_or_else(|p| p.into_inner());
        databases.iter().filter_map(Weak::upgrade).for_each(|database| visit(&database));
    }
}

impl Observer for Watcher {
    fn wants(&self, db: usize, key: &[u8]) -> bool {
        let mut wants = false;
        self.each(|database| {
            let all = lock(&database.indexes.all);
            wants |= all.iter().any(|(definition, _)| definition.wants(db, key));
        });
        wants
    }

    fn changed(&self, keys: &mut Keys<'_>, touched: &[Touched]) {
        self.each(|database| database.indexes.take_over(keys, touched));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Has a database learn of changes from now on.
pub fn watch(space: &Keyspace, database: &Arc<Database>) {
    let observer = space.observer(|| Arc::new(Watcher::default()));
    let Some(watcher) = observer.as_any().downcast_ref::<Watcher>() else { return };
    let mut databases = watcher.databases.write().unwrap_or_else(|p| p.into_inner());
    databases.retain(|known| known.strong_count() > 0);
    if !databases.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(database))) {
        databases.push(Arc::downgrade(database));
    }
}

// Writing.

/// The name of the record of what was written.
pub const INDEXED: &str = "SQL.INDEXED";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A statement that brings one row up to date.
fn upsert(definition: &Definition) -> String {
    let names: Vec<String> = definition.columns.iter().map(|(name, _)| quoted(name)).collect();
    let all = [&[quoted("key")], &names[..]].concat().join(", ");
    let marks: Vec<String> = (1..=names.len() + 1).map(|n| format!("?{n}")).collect();
    let set: Vec<String> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let table = quoted(&definition.table);
    let marks = marks.join(", ");
    format!(
        "INSERT INTO {table}({all}) VALUES({marks}) ON CONFLICT(\"key\") DO UPDATE SET {}",
        set.join(", ")
    )
}

/// Text if it is UTF-8, else bytes.
fn bound(value: &[u8]) -> rusqlite::types::Value {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_string().into(),
        Err(_) => value.to_vec().into(),
    }
}

/// Writes what is pending, in a transaction of its own or as part of the one that is open. Returns
/// the words of its record, after its number.
///
/// # Errors
/// SQLite's, if it cannot begin; single rows that cannot be written are counted.
pub fn write(indexes: &Indexes, connection: &mut Connection) -> Result<Record, SqlError> {
    let mut words = Vec::new();
    for (definition, pending) in indexes.take() {
        words.push(definition.table.clone().into_bytes());
        words.push(definition.given.clone().into_bytes());
        words.push(vec![if pending.is_whole { b'w' } else { b'r' }]);
        words.push((definition.columns.len() as i64).to_string().into_bytes());
        words.extend(definition.columns.iter().map(|(name, _)| name.clone().into_bytes()));
        words.push((pending.rows.len() as i64).to_string().into_bytes());
        for (key, row) in pending.rows {
            words.push(key);
            words.push(vec![if row.is_some() { b'+' } else { b'-' }]);
            // A value stands behind a mark: no value has none.
            words.extend(
                row.into_iter()
                    .flatten()
                    .map(|value| value.map_or_else(Vec::new, |value| [&b"="[..], &value].concat())),
            );
        }
    }
    let failures = apply(connection, &words.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    indexes.failures.fetch_add(failures, Ordering::Relaxed);
    Ok(words)
}

/// Writes what a record says; returns how many rows could not be written.
///
/// # Errors
/// If it makes no sense, or SQLite cannot begin.
pub fn apply(connection: &mut Connection, words: &[&[u8]]) -> Result<u64, SqlError> {
    let owns = !connection.in_group;
    if owns {
        connection.begin_group()?;
    }
    connection.budget.allow(i64::MAX, None);
    let mut rest = words.iter().copied();
    let mut failures = 0;
    while let Some(table) = rest.next() {
        let done = apply_table(connection, table, &mut rest);
        match done {
            Some(more) => failures += more,
            None => {
                if owns {
                    connection.rollback_group();
                }
                return Err(SqlError::general("the record of an index makes no sense"));
            }
        }
    }
    if owns {
        connection.commit_group()?;
    }
    Ok(failures)
}

fn apply_table<'a>(
    connection: &Connection,
    table: &[u8],
    rest: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<u64> {
    let text = |word: &[u8]| String::from_utf8(word.to_vec()).ok();
    let number = |word: &[u8]| usize::try_from(resp::number::integer(word)?).ok();
    let (table, given) = (text(table)?, text(rest.next()?)?);
    let is_whole = rest.next()? == b"w";
    let width = number(rest.next()?)?;
    let mut columns = Vec::new();
    for _ in 0..width {
        columns.push((text(rest.next()?)?, String::new()));
    }
    let count = number(rest.next()?)?;
    let definition = Definition { table, given, db: 0, columns };
    let raw = connection.handle.connection();
    let name = quoted(&definition.table);
    let mut failures = 0;
    let mut run = |text: &str, values: Vec<rusqlite::types::Value>| {
        let ran = raw
            .prepare_cached(text)
            .and_then(|mut statement| statement.execute(rusqlite::params_from_iter(values)));
        failures += u64::from(ran.is_err());
    };
    if is_whole {
        let prefix = bound(definition.prefix());
        let same = format!("DELETE FROM {name} WHERE substr(\"key\", 1, length(?1)) = ?1");
        run(&same, vec![prefix]);
    }
    let (upsert, delete) = (upsert(&definition), format!("DELETE FROM {name} WHERE \"key\" = ?1"));
    for _ in 0..count {
        let key = rest.next()?;
        if rest.next()? == b"-" {
            run(&delete, vec![bound(key)]);
            continue;
        }
        let mut values = vec![bound(key)];
        for _ in 0..width {
            let value = rest.next()?.strip_prefix(b"=");
            values.push(value.map_or(rusqlite::types::Value::Null, bound));
        }
        run(&upsert, values);
    }
    Some(failures)
}

// What the database says of its indexes, the definition as lines.

const KIND: &str = "index";

fn definitions(connection: &Connection) -> Result<Vec<Definition>, SqlError> {
    let rows = metadata::rows(connection, KIND)?;
    Ok(rows.iter().filter_map(|(_, text)| parse(text)).collect())
}

/// A definition as the database keeps it.
pub fn render(definition: &Definition) -> String {
    let mut lines =
        vec![definition.table.clone(), definition.given.clone(), definition.db.to_string()];
    for (name, kind) in &definition.columns {
        lines.push(name.clone());
        lines.push(kind.clone());
    }
    lines.join("\n")
}

/// Reads it again.
pub fn parse(text: &str) -> Option<Definition> {
    let mut lines = text.split('\n').map(str::to_string);
    let (table, given) = (lines.next()?, lines.next()?);
    let db = lines.next()?.parse().ok()?;
    let mut columns = Vec::new();
    while let Some(name) = lines.next() {
        columns.push((name, lines.next()?));
    }
    Some(Definition { table, given, db, columns })
}

/// Makes an index: its table if there is none of this name, and the note of it.
///
/// # Errors
/// SQLite's.
pub fn define(connection: &Connection, definition: &Definition) -> Result<(), SqlError> {
    let raw = connection.handle.connection();
    let column = |(name, kind): &(String, String)| format!(", {} {kind}", quoted(name));
    let columns: String = definition.columns.iter().map(column).collect();
    let table = quoted(&definition.table);
    let text = format!("CREATE TABLE IF NOT EXISTS {table}(\"key\" TEXT PRIMARY KEY{columns})");
    raw.execute(&text, [])?;
    metadata::add(connection, KIND, &name_of(definition), &render(definition))
}

fn name_of(definition: &Definition) -> String {
    format!("{}\n{}", definition.table, definition.given)
}

/// Forgets an index; its table stays. Returns how many there were.
///
/// # Errors
/// SQLite's.
pub fn forget(connection: &Connection, definition: &Definition) -> Result<usize, SqlError> {
    metadata::remove(connection, KIND, &name_of(definition))
}

/// What INDEX is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// NEW.
    New(Definition),
    /// LIST.
    List,
    /// DELETE: table and prefix.
    Delete(Definition),
}

const NO_WISH: Error = Error::text("ERR INDEX is told NEW, LIST or DELETE");
const NO_TABLE: Error = Error::text("ERR no TABLE provided");
const NO_SCHEMA: Error = Error::text("ERR no SCHEMA provided: column type [column type ...]");
const BAD_NAME: Error = Error::text("ERR a name in the index has a line break");
const BAD_TYPE: Error = Error::text("ERR a column's type must be one word, such as TEXT");

/// Reads `db <NEW | LIST | DELETE> ...`, whose hashes lie in database `db` of the keys.
///
/// # Errors
/// In words.
pub fn wish(args: Args<'_>, db: usize) -> Result<Wish, Error> {
    let verb = args.get(2).ok_or(NO_WISH)?;
    if is(verb, "LIST") {
        return Ok(Wish::List);
    }
    let is_new = is(verb, "NEW");
    if !is_new && !is(verb, "DELETE") {
        return Err(NO_WISH);
    }
    let (mut table, mut given, mut columns) = (None, "*".to_string(), Vec::new());
    let text = |word: &[u8]| -> Result<String, Error> {
        let text = String::from_utf8_lossy(utf8(word)?).into_owned();
        if text.contains(['\n', '\0']) { Err(BAD_NAME) } else { Ok(text) }
    };
    let mut index = 3;
    while index < args.len() {
        let (word, next) = (args.word(index), args.get(index + 1));
        if is(word, "TABLE") {
            table = Some(text(next.ok_or(NO_TABLE)?)?);
        } else if is(word, "PREFIX") {
            given = text(next.ok_or(Error::text("ERR no PREFIX provided"))?)?;
        } else if is(word, "SCHEMA") {
            let words: Vec<&[u8]> = args.iter().skip(index + 1).collect();
            for pair in words.chunks(2) {
                let [name, kind] = pair else { return Err(NO_SCHEMA) };
                if kind.is_empty() || !kind.iter().all(u8::is_ascii_alphanumeric) {
                    return Err(BAD_TYPE);
                }
                columns.push((text(name)?, text(kind)?));
            }
            break;
        } else {
            return Err(Error::SYNTAX);
        }
        index += 2;
    }
    let table = table.filter(|table| !table.is_empty()).ok_or(NO_TABLE)?;
    if is_new && columns.is_empty() {
        return Err(NO_SCHEMA);
    }
    let definition = Definition { table, given, db, columns };
    Ok(if is_new { Wish::New(definition) } else { Wish::Delete(definition) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::OwnedArgs;

    #[test]
    fn definitions_are_read_as_they_are_written() {
        let words = ["x", "db", "new", "prefix", "user:*", "TABLE", "t", "schema", "a", "INT"];
        let Ok(Wish::New(definition)) = wish(OwnedArgs::new(words).args(), 3) else {
            panic!("it makes sense")
        };
        assert_eq!(parse(&render(&definition)), Some(definition.clone()));
        assert_eq!((definition.prefix(), definition.db), (&b"user:"[..], 3));
        assert!(definition.wants(3, b"user:1"));
        assert!(!definition.wants(2, b"user:1") && !definition.wants(3, b"use"));
        for bad in [
            "NEW TABLE t",
            "NEW SCHEMA a INT",
            "NEW TABLE t SCHEMA a",
            "X",
            "DELETE",
            "NEW TABLE t SCHEMA a INT);--",
            "NEW TABLE t NONSENSE x SCHEMA a INT",
        ] {
            let words = ["x", "db"].into_iter().chain(bad.split(' '));
            assert!(wish(OwnedArgs::new(words).args(), 0).is_err(), "{bad}");
        }
    }
}
