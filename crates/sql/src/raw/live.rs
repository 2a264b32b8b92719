//! The virtual tables over live keys: rows from the copy that [`crate::live`] keeps; what is
//! written into those over hashes and strings becomes calls ([`crate::calls`]).
//!
//! `CREATE VIRTUAL TABLE users USING redis_hash('user:', name, age)`: the first word is what keys
//! begin with, the others are fields. What a search says of the key narrows what is copied.
//!
//! ```text
//! INSERT  HSET key field value ...  (NULL: no field)      SET key value
//! UPDATE  HSET and, for NULL, HDEL, of what is changed    SET key value KEEPTTL
//! DELETE  DEL key                                         DEL key
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use resp::OwnedArgs;
use rusqlite::types::{Value, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Inserts, Module, UpdateVTab,
    Updates, VTab, VTabConnection, VTabCursor, VTabKind,
};
use rusqlite::{Error, Result, ffi};

use crate::calls::{self, word_of};
use crate::database::lock;
use crate::live::{
    Copied, MODULES, Range, Rows, Scope, Want, What, key_at, key_of, rowid_of, rows,
};

/// The names of a connection's tables over keys, each with how often it is connected.
#[derive(Debug, Default, Clone)]
pub struct LiveTables(Arc<Mutex<HashMap<String, usize>>>);

impl LiveTables {
    /// Whether there is one of this name.
    pub fn has(&self, table: &str) -> bool {
        let names = lock(&self.0);
        !names.is_empty() && names.contains_key(&table.to_ascii_lowercase())
    }

    fn add(&self, table: &str) {
        *lock(&self.0).entry(table.to_ascii_lowercase()).or_default() += 1;
    }

    fn remove(&self, table: &str) {
        let mut names = lock(&self.0);
        let name = table.to_ascii_lowercase();
        if let Some(count) = names.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&name);
            }
        }
    }
}

/// Gives a connection the modules; what tables it has of them is told by what is returned.
///
/// # Errors
/// SQLite's.
pub fn install(connection: &rusqlite::Connection) -> Result<LiveTables> {
    const READ_ONLY: &Module<'_, Live> = &Module::read_only_module();
    const WRITABLE: &Module<'_, Live> = &Module::update_module();
    let tables = LiveTables::default();
    for (name, what) in MODULES {
        let is_writable = matches!(what, What::Hash | What::Text);
        let module = if is_writable { WRITABLE } else { READ_ONLY };
        connection.create_module(*name, module, Some((*what, *name, tables.clone())))?;
    }
    Ok(tables)
}

/// A table over keys.
#[repr(C)]
struct Live {
    /// SQLite's part: must be first.
    base: ffi::sqlite3_vtab,
    want: Want,
    name: String,
    tables: LiveTables,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tables.remove(&self.name);
    }
}

/// A word of CREATE VIRTUAL TABLE without its quotes.
fn unquoted(word: &[u8]) -> Vec<u8> {
    let word = word.trim_ascii();
    match word {
        [b'\'' | b'"' | b'`', inner @ .., b'\'' | b'"' | b'`'] => inner.to_vec(),
        _ => word.to_vec(),
    }
}

fn columns(want: &Want) -> Result<String> {
    let quoted = |field: &Vec<u8>| {
        let name = std::str::from_utf8(field)
            .map_err(|_| Error::ModuleError("a field's name is no UTF-8".into()))?;
        Ok(format!(", \"{}\" TEXT", name.replace('"', "\"\"")))
    };
    Ok(match want.what {
        What::Keys => "key TEXT, type TEXT, ttl INTEGER".into(),
        What::Hash => {
            let fields = want.fields.iter().map(quoted).collect::<Result<String>>()?;
            format!("key TEXT{fields}")
        }
        What::Text => "key TEXT, value TEXT".into(),
        What::List => "key TEXT, position INTEGER, value TEXT".into(),
        What::Set => "key TEXT, member TEXT".into(),
        What::Zset => "key TEXT, member TEXT, score REAL".into(),
        What::Stream => "key TEXT, id TEXT, field TEXT, value TEXT".into(),
    })
}

/// How a search of a key is written in the plan: one letter for each value that it is given.
fn letter_of(operator: &IndexConstraintOp) -> Option<char> {
    Some(match operator {
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => '=',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LIKE => 'l',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GLOB => 'g',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT
        | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => '>',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT
        | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => '<',
        _ => return None,
    })
}

// SAFETY: `repr(C)`, SQLite's part first.
unsafe impl<'vtab> VTab<'vtab> for Live {
    type Aux = (What, &'static str, LiveTables);
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        name: &[u8],
        args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some((what, module, tables)) = aux.cloned() else {
            return Err(Error::ModuleError("no such table over keys".into()));
        };
        let mut words = args.iter().map(|word| unquoted(word));
        let mut prefix = words.next().unwrap_or_default();
        if module.starts_with("REDISQL") {
            // RediSQL's tables are over keys `name:number`.
            prefix.push(b':');
        }
        let want = Want { what, prefix, fields: words.collect(), scope: Scope::All };
        let text = format!("CREATE TABLE x({})", columns(&want)?);
        let text = CString::new(text)
            .map_err(|_| Error::ModuleError("a field's name has a NUL".into()))?;
        let name = String::from_utf8_lossy(name).into_owned();
        tables.add(&name);
        Ok((Cow::Owned(text), Live { base: ffi::sqlite3_vtab::default(), want, name, tables }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut letters = String::new();
        let of_key = |(index, constraint): (usize, rusqlite::vtab::IndexConstraint<'_>)| {
            let is_key = constraint.is_usable() && constraint.column() == 0;
            is_key.then(|| letter_of(&constraint.operator()).map(|letter| (index, letter)))?
        };
        let found: Vec<(usize, char)> = info.constraints().enumerate().filter_map(of_key).collect();
        for (index, letter) in found {
            // LIKE and GLOB know no collation; others search in the order of bytes only.
            let is_binary = matches!(letter, 'l' | 'g') || info.collation(index)? == "BINARY";
            let is_enough = letters.contains('=') || letters.contains(letter);
            if is_binary && !is_enough {
                letters.push(letter);
                info.constraint_usage(index).set_argv_index(letters.len() as c_int);
            }
        }
        let (cost, count) = match letters.as_str() {
            text if text.contains('=') => (10.0, 1),
            "" => (100_000.0, 10_000),
            _ => (20_000.0, 1000),
        };
        info.set_idx_str(&letters);
        info.set_estimated_cost(cost);
        info.set_estimated_rows(count);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        let want = self.want.clone();
        let base = ffi::sqlite3_vtab_cursor::default();
        Ok(Cursor { base, want, rows: Rc::default(), at: 0, end: 0, _table: PhantomData })
    }
}

impl CreateVTab<'_> for Live {
    const KIND: VTabKind = VTabKind::Default;
}

fn refused(text: &str) -> Error {
    Error::ModuleError(text.to_string())
}

/// Adds a call of these words.
fn call<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Result<()> {
    calls::add(OwnedArgs::new(words)).map_err(refused)
}

/// The key that a row's number stands for.
fn key_of_row(rowid: ValueRef<'_>) -> Result<Vec<u8>> {
    let key = rowid.as_i64().ok().and_then(key_at);
    key.ok_or_else(|| refused("a row of live keys is not known any more"))
}

impl UpdateVTab<'_> for Live {
    fn delete(&mut self, rowid: ValueRef<'_>) -> Result<()> {
        call([b"DEL", &key_of_row(rowid)?[..]])
    }

    fn insert(&mut self, values: &Inserts<'_>) -> Result<i64> {
        let mut cells = values.iter().skip(2);
        let key = cells.next().and_then(word_of);
        let key = key.ok_or_else(|| refused("a row of live keys needs a key"))?;
        if !key.starts_with(&self.want.prefix) {
            return Err(refused("the key does not begin as the table's keys do"));
        }
        let cells: Vec<Option<Vec<u8>>> = cells.map(word_of).collect();
        if self.want.what == What::Text {
            let value = cells.into_iter().next().flatten();
            let value = value.ok_or_else(|| refused("a string needs a value"))?;
            call([&b"SET"[..], &key, &value])?;
            return Ok(0);
        }
        let given = self.want.fields.iter().zip(&cells);
        let given: Vec<&[u8]> = given
            .filter_map(|(field, cell)| Some([&field[..], cell.as_deref()?]))
            .flatten()
            .collect();
        if given.is_empty() {
            return Err(refused("a hash needs a field"));
        }
        call([b"HSET", &key[..]].into_iter().chain(given))?;
        Ok(0)
    }

    fn update(&mut self, values: &Updates<'_>) -> Result<()> {
        let cell = |index: usize| values.iter().nth(index).and_then(word_of);
        let key = key_of_row(values.iter().next().unwrap_or(ValueRef::Null))?;
        if !values.no_change(2) && cell(2).as_deref() != Some(&key) {
            return Err(refused("a key cannot be changed: insert and delete"));
        }
        if self.want.what == What::Text {
            if values.no_change(3) {
                return Ok(());
            }
            let value = cell(3).ok_or_else(|| refused("a string needs a value"))?;
            return call([&b"SET"[..], &key, &value, b"KEEPTTL"]);
        }
        let (mut set, mut gone) = (Vec::new(), Vec::new());
        for (index, field) in self.want.fields.iter().enumerate() {
            match cell(index + 3) {
                _ if values.no_change(index + 3) => {}
                Some(value) => set.extend([field.clone(), value]),
                None => gone.push(field.clone()),
            }
        }
        // First what adds: a hash without fields goes, and its time to live with it.
        for (name, words) in [("HSET", set), ("HDEL", gone)] {
            if !words.is_empty() {
                call([name.as_bytes().to_vec(), key.clone()].into_iter().chain(words))?;
            }
        }
        Ok(())
    }
}

/// A walk through the rows.
#[repr(C)]
struct Cursor<'vtab> {
    /// SQLite's part: must be first.
    base: ffi::sqlite3_vtab_cursor,
    want: Want,
    rows: Rows,
    at: usize,
    end: usize,
    _table: PhantomData<&'vtab Live>,
}

/// What a pattern's matches begin with.
fn beginning(pattern: &[u8], wild: &[u8]) -> Vec<u8> {
    let end = pattern.iter().position(|byte| wild.contains(byte));
    pattern[..end.unwrap_or(pattern.len())].to_vec()
}

/// What the values of a search say of the key; `None` if no key can be it.
fn scope_of(letters: &str, args: &Filters<'_>) -> Result<Option<Scope>> {
    let mut range = Range::default();
    for (index, letter) in letters.chars().enumerate() {
        let value = args.get::<Value>(index)?;
        let text = match &value {
            Value::Null => return Ok(None),
            Value::Text(text) => Some(text.as_bytes()),
            _ => None,
        };
        match (letter, text) {
            ('=', _) => {
                let key = word_of((&value).into()).unwrap_or_default();
                return Ok(Some(Scope::Key(key)));
            }
            ('l', Some(pattern)) => range.begins_like = beginning(pattern, b"%_"),
            ('g', Some(pattern)) => range.begins = beginning(pattern, b"*?["),
            ('>', Some(text)) => range.from = Some(text.to_vec()),
            ('<', Some(text)) => range.to = Some(text.to_vec()),
            _ => {}
        }
    }
    let is_all = range == Range::default();
    Ok(Some(if is_all { Scope::All } else { Scope::Part(range) }))
}

// SAFETY: `repr(C)`, SQLite's part first.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, letters: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let Some(scope) = scope_of(letters.unwrap_or_default(), args)? else {
            (self.at, self.end) = (0, 0);
            return Ok(());
        };
        self.want.scope = scope;
        let rows = rows(&self.want).map_err(refused)?;
        (self.at, self.end) = (0, rows.len());
        if let Scope::Key(key) = &self.want.scope {
            self.at = rows.partition_point(|row| key_of(row) < &key[..]);
            self.end = rows.partition_point(|row| key_of(row) <= &key[..]);
        }
        self.rows = rows;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.at >= self.end
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        if context.no_change() {
            return Ok(());
        }
        let cell = self.rows.get(self.at).and_then(|row| row.get(column as usize));
        match cell {
            Some(Copied::Int(number)) => context.set_result(number),
            Some(Copied::Real(number)) => context.set_result(number),
            Some(Copied::Bytes(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => context.set_result(text),
                Err(_) => context.set_result(&bytes[..]),
            },
            Some(Copied::Null) | None => context.set_result(rusqlite::types::Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(rowid_of(&self.rows, self.at))
    }
}
