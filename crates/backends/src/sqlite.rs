//! `Database` over SQLite: the one that needs nothing installed. A file in WAL mode whose commits
//! are flushed to disk before they are answered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use services::database::{
    Connect, Database, DatabaseError, Dialect, Inside, Ran, Real, Row, Statement, Step, Stepped,
    Value, Within,
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

    fn open(&self, timeout: Duration, checkpoint: i64) -> rusqlite::Result<Open> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(timeout)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        for (name, value) in [("journal_mode", "WAL"), ("synchronous", "FULL")] {
            connection.pragma_update(None, name, value)?;
        }
        functions(&connection)?;
        connection.pragma_update(None, "wal_autocheckpoint", checkpoint)?;
        Ok(Open(connection))
    }
}

impl Connect for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let opened = self.open(BUSY_TIMEOUT, CHECKPOINT_PAGES).map_err(error)?;
        Ok(Box::new(opened))
    }

    fn connect_impatient(&self) -> Result<Option<Box<dyn Database>>, DatabaseError> {
        // Moving the log into the database takes long: the other connections do it.
        let opened = self.open(Duration::ZERO, 0).map_err(error)?;
        Ok(Some(Box::new(opened)))
    }
}

/// What tables' queries call and SQLite has not, or only for some letters and numbers.
fn functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    type OfText = fn(&str) -> String;
    let texts: [(&str, OfText); 2] =
        [("forebay_lower", str::to_lowercase), ("forebay_upper", str::to_uppercase)];
    for (name, run) in texts {
        connection.create_scalar_function(name, 1, flags, move |context| {
            Ok(context.get_raw(0).as_str_or_null()?.map(run))
        })?;
    }
    type OfNumber = fn(f64) -> f64;
    let numbers: [(&str, OfNumber); 3] =
        [("forebay_floor", f64::floor), ("forebay_ceil", f64::ceil), ("forebay_round", f64::round)];
    for (name, run) in numbers {
        connection.create_scalar_function(name, 1, flags, move |context| {
            Ok(context.get::<Option<f64>>(0)?.map(run))
        })?;
    }
    connection.create_scalar_function("forebay_mod", 2, flags, |context| {
        let (a, b) = (context.get::<Option<f64>>(0)?, context.get::<Option<f64>>(1)?);
        Ok(a.zip(b).filter(|(_, b)| *b != 0.0).map(|(a, b)| a % b))
    })
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

fn rows(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(sql)?;
    let columns = prepared.column_count();
    let mut rows = prepared.query(rusqlite::params_from_iter(bound(values)))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let row: Result<Row, _> =
            (0..columns).map(|index| row.get_ref(index).map(value_of)).collect();
        all.push(row?);
    }
    Ok(all)
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

    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError> {
        self.0.execute_batch(sql).map_err(error)
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        rows(&self.0, sql, values).map_err(error)
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

    fn unit(&mut self, steps: &[Step]) -> Result<Vec<Stepped>, DatabaseError> {
        let writes = steps.iter().any(|step| matches!(step, Step::Write(_)));
        let behavior =
            if writes { TransactionBehavior::Immediate } else { TransactionBehavior::Deferred };
        let transaction = self.0.transaction_with_behavior(behavior).map_err(error)?;
        let one = |step: &Step| match step {
            Step::Write(statement) => run(&transaction, statement).map(Stepped::Changed),
            Step::Read { sql, values } => rows(&transaction, sql, values).map(Stepped::Rows),
        };
        let done: rusqlite::Result<Vec<Stepped>> = steps.iter().map(one).collect();
        let done = done.map_err(error)?;
        transaction.commit().map_err(error)?;
        Ok(done)
    }

    fn foreign_mark(&mut self) -> Result<Option<i64>, DatabaseError> {
        let read = self.0.query_row("PRAGMA data_version", [], |row| row.get(0));
        read.map(Some).map_err(error)
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
