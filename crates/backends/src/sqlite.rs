//! `Database` over SQLite: the one that needs nothing installed. A file in WAL mode whose commits
//! are flushed to disk before they are answered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use services::database::{
    Connect, Database, DatabaseError, Dialect, Inside, Ran, Real, Row, Statement, Value, Within,
};

/// Statements that stay prepared in a connection.
const STATEMENTS_KEPT: usize = 128;
/// How long a connection waits for another one's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages of the write-ahead log after which it is moved into the database.
const CHECKPOINT_PAGES: i64 = 4000;

/// A database file, made at the first connection.
#[derive(Debug, Clone)]
pub struct Sqlite {
    path: PathBuf,
}

impl Sqlite {
    /// The database in this file.
    pub fn new(path: impl AsRef<Path>) -> Sqlite {
        Sqlite { path: path.as_ref().to_path_buf() }
    }
}

impl Connect for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(error)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(error)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        for (name, value) in [("journal_mode", "WAL"), ("synchronous", "FULL")] {
            connection.pragma_update(None, name, value).map_err(error)?;
        }
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(error)?;
        Ok(Box::new(Open(connection)))
    }
}

struct Open(Connection);

/// A value as SQLite takes it, without a copy.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(is) => ValueRef::Integer(i64::from(*is)),
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Real(Real(number)) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn bound(values: &[Value]) -> impl Iterator<Item = Bound<'_>> {
    values.iter().map(Bound)
}

fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Real(Real(number)),
        ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

fn error(error: rusqlite::Error) -> DatabaseError {
    let text = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return DatabaseError::Refused(text);
    };
    match failure.code {
        ErrorCode::ConstraintViolation
            if matches!(
                failure.extended_code,
                rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
                    | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            ) =>
        {
            DatabaseError::Duplicate(text)
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => DatabaseError::Busy(text),
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => DatabaseError::Lost(text),
        _ => DatabaseError::Refused(text),
    }
}

fn run(connection: &Connection, statement: &Statement) -> rusqlite::Result<u64> {
    match statement {
        Statement::Run { sql, values } => {
            let mut prepared = connection.prepare_cached(sql)?;
            Ok(prepared.execute(rusqlite::params_from_iter(bound(values)))? as u64)
        }
        Statement::Insert { into, columns, values, tail } => {
            let marks = vec!["?"; *columns].join(",");
            // One prepared row again and again is faster than parsing ever new lists of rows.
            let sql = format!("INSERT INTO {into} VALUES ({marks}) {tail}");
            let mut prepared = connection.prepare_cached(&sql)?;
            let mut changed = 0;
            for row in values.chunks(*columns) {
                changed += prepared.execute(rusqlite::params_from_iter(bound(row)))? as u64;
            }
            Ok(changed)
        }
    }
}

struct UnderWay<'a>(rusqlite::Transaction<'a>);

impl Within for UnderWay<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
        let mut prepared = self.0.prepare_cached(sql).map_err(error)?;
        let columns = prepared.column_count();
        let mut ran = Ran::default();
        let mut rows = prepared.query(rusqlite::params_from_iter(bound(values))).map_err(error)?;
        while let Some(row) = rows.next().map_err(error)? {
            let row: Result<Row, _> =
                (0..columns).map(|index| row.get_ref(index).map(value_of)).collect();
            ran.rows.push(row.map_err(error)?);
        }
        drop(rows);
        if !prepared.readonly() {
            ran.changed = self.0.changes();
        }
        Ok(ran)
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let mut prepared = self.0.prepare_cached(sql).map_err(error)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(rusqlite::params_from_iter(bound(values))).map_err(error)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(error)? {
            let row: Result<Row, _> =
                (0..columns).map(|index| row.get_ref(index).map(value_of)).collect();
            all.push(row.map_err(error)?);
        }
        Ok(all)
    }

    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
        // Dropped without a commit, it rolls back.
        let transaction =
            self.0.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        let changed: rusqlite::Result<Vec<u64>> =
            statements.iter().map(|statement| run(&transaction, statement)).collect();
        let changed = changed.map_err(error)?;
        transaction.commit().map_err(error)?;
        Ok(changed)
    }

    fn within(&mut self, inside: Inside<'_>) -> Result<(), DatabaseError> {
        let transaction =
            self.0.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        let mut under_way = UnderWay(transaction);
        match inside(&mut under_way)? {
            true => under_way.0.commit().map_err(error),
            // Dropped without a commit, it rolls back.
            false => Ok(()),
        }
    }
}
