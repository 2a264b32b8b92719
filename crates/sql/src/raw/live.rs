//! The virtual tables over live keys: rows from the copy that [`crate::live`] keeps.
//!
//! `CREATE VIRTUAL TABLE users USING redis_hash('user:', name, age)`: the first word is what keys
//! begin with, the others are fields. A search by `key = ...` looks in the sorted rows.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::rc::Rc;

use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConnection,
    VTabCursor, VTabKind,
};
use rusqlite::{Error, Result, ffi};

use crate::live::{Copied, MODULES, REFUSAL, Rows, Want, What, key_of, rows};

/// Gives a connection the modules.
///
/// # Errors
/// SQLite's.
pub fn install(connection: &rusqlite::Connection) -> Result<()> {
    const MODULE: &Module<'_, Live> = &Module::read_only_module();
    for (name, what) in MODULES {
        connection.create_module(*name, MODULE, Some((*what, *name)))?;
    }
    Ok(())
}

/// A table over keys.
#[repr(C)]
struct Live {
    /// SQLite's part: must be first.
    base: ffi::sqlite3_vtab,
    want: Want,
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

// SAFETY: `repr(C)`, SQLite's part first.
unsafe impl<'vtab> VTab<'vtab> for Live {
    type Aux = (What, &'static str);
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some((what, module)) = aux.copied() else {
            return Err(Error::ModuleError("no such table over keys".into()));
        };
        let mut words = args.iter().map(|word| unquoted(word));
        let mut prefix = words.next().unwrap_or_default();
        if module.starts_with("REDISQL") {
            // RediSQL's tables are over keys `name:number`.
            prefix.push(b':');
        }
        let want = Want { what, prefix, fields: words.collect() };
        let text = format!("CREATE TABLE x({})", columns(&want)?);
        let text = CString::new(text)
            .map_err(|_| Error::ModuleError("a field's name has a NUL".into()))?;
        Ok((Cow::Owned(text), Live { base: ffi::sqlite3_vtab::default(), want }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut by_key = false;
        for (constraint, mut usage) in info.constraints_and_usages() {
            let is_key = constraint.is_usable()
                && constraint.column() == 0
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            if is_key && !by_key {
                by_key = true;
                usage.set_argv_index(1);
            }
        }
        info.set_idx_num(by_key.into());
        info.set_estimated_cost(if by_key { 10.0 } else { 100_000.0 });
        info.set_estimated_rows(if by_key { 1 } else { 10_000 });
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

// SAFETY: `repr(C)`, SQLite's part first.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, by_key: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let Some(rows) = rows(&self.want) else {
            return Err(Error::ModuleError(REFUSAL.into()));
        };
        (self.at, self.end) = (0, rows.len());
        if by_key == 1 {
            use rusqlite::types::Value;
            let key = match args.get::<Value>(0)? {
                Value::Text(text) => text.into_bytes(),
                Value::Blob(bytes) => bytes,
                Value::Integer(number) => number.to_string().into_bytes(),
                _ => Vec::new(),
            };
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
        Ok(self.at as i64)
    }
}
