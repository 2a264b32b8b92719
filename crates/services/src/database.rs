//! A SQL database as the services need one: a query, and a transaction that is known before it
//! begins, so that an implementation can send it in one round trip.
//!
//! SQL is written with `?` for each value. What differs between products is asked of [`Dialect`].
//!
//! **Invariant:** a transaction happens as a whole or not at all. After [`DatabaseError::Lost`] it
//! is not known which; every other error says that it did not happen.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::time::Duration;

/// A value in a row or a statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Value {
    /// SQL's NULL.
    #[default]
    Null,
    /// True or false, where the product tells it from numbers.
    Bool(bool),
    /// Any whole number.
    Int(i64),
    /// Any other number that is kept as one.
    Real(Real),
    /// Text in UTF-8. Decimal numbers and moments are texts, too: `12.50`,
    /// `2026-11-20 12:00:00.5`.
    Text(String),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
}

/// A number with a fraction. Equal are those of the same bits.
#[derive(Debug, Clone, Copy)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl Value {
    /// A number in double precision.
    pub fn real(number: f64) -> Value {
        Value::Real(Real(number))
    }

    /// The number, or 0 where there is none.
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(number) => *number,
            Value::Bool(is) => i64::from(*is),
            Value::Real(Real(number)) => *number as i64,
            Value::Text(text) => text.parse().unwrap_or(0),
            Value::Null | Value::Bytes(_) => 0,
        }
    }

    /// The text, or nothing where there is none.
    pub fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    /// The text, if there is one.
    pub fn into_text(self) -> Option<String> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// One row of an answer.
pub type Row = Vec<Value>;

/// One statement of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Any SQL with its values.
    Run {
        /// With `?` for each value.
        sql: String,
        /// In order.
        values: Vec<Value>,
    },
    /// `INSERT INTO {into} VALUES (...), (...) {tail}`, cut into pieces where the product has a
    /// limit.
    Insert {
        /// The table and its columns: `t (a, b)`.
        into: &'static str,
        /// Number of columns.
        columns: usize,
        /// Row after row.
        values: Vec<Value>,
        /// What follows the rows, such as ON CONFLICT.
        tail: String,
    },
}

impl Statement {
    /// A statement with values.
    pub fn run(sql: impl Into<String>, values: Vec<Value>) -> Statement {
        Statement::Run { sql: sql.into(), values }
    }
}

/// A step of [`Database::unit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Changes rows.
    Write(Statement),
    /// Answers rows.
    Read {
        /// With `?` for each value.
        sql: String,
        /// In order.
        values: Vec<Value>,
    },
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    /// How many rows a write changed.
    Changed(u64),
    /// What a read answered.
    Rows(Vec<Row>),
}

impl Stepped {
    /// The rows of a read.
    pub fn into_rows(self) -> Vec<Row> {
        if let Stepped::Rows(rows) = self { rows } else { Vec::new() }
    }

    /// The count of a write.
    pub fn count(&self) -> u64 {
        if let Stepped::Changed(count) = self { *count } else { 0 }
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseError {
    /// A unique key is there already. Nothing happened.
    Duplicate(String),
    /// Somebody else was in the way (a lock, a deadlock). Nothing happened; try again.
    Busy(String),
    /// The connection broke: a transaction happened or it did not.
    Lost(String),
    /// The statement cannot be done, or there is no room. Nothing happened.
    Refused(String),
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseError::Duplicate(why) => write!(f, "a key is there already: {why}"),
            DatabaseError::Busy(why) => write!(f, "the database is busy: {why}"),
            DatabaseError::Lost(why) => write!(f, "the database is not reached: {why}"),
            DatabaseError::Refused(why) => write!(f, "the database refuses: {why}"),
        }
    }
}

impl std::error::Error for DatabaseError {}

/// Which SQL is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

impl Dialect {
    /// The tail of an insert that adds to the number columns `adds` of a row whose `keys` are
    /// there already.
    pub fn or_add(self, table: &str, keys: &str, adds: &[&str]) -> String {
        let sets: Vec<String> = adds
            .iter()
            .map(|column| match self {
                Dialect::Mysql => format!("{column} = {column} + VALUES({column})"),
                _ => format!("{column} = {table}.{column} + excluded.{column}"),
            })
            .collect();
        let sets = sets.join(", ");
        match self {
            Dialect::Mysql => format!("ON DUPLICATE KEY UPDATE {sets}"),
            _ => format!("ON CONFLICT ({keys}) DO UPDATE SET {sets}"),
        }
    }

    /// The tail of an insert that leaves a row alone whose `keys` are there already.
    pub fn or_ignore(self, keys: &str) -> String {
        let first = keys.split(',').next().unwrap_or(keys).trim();
        match self {
            Dialect::Mysql => format!("ON DUPLICATE KEY UPDATE {first} = {first}"),
            _ => format!("ON CONFLICT ({keys}) DO NOTHING"),
        }
    }
}

/// A connection.
pub trait Database: Send {
    /// Its SQL.
    fn dialect(&self) -> Dialect;

    /// The rows that a statement answers.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError>;

    /// Runs all statements as one transaction; the number of rows that each changed. It is durable
    /// when this returns.
    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError>;

    /// Runs all steps as one transaction; what each came to. Reads see one state of the database:
    /// a snapshot if nothing is written, else that with the writes before them.
    fn unit(&mut self, steps: &[Step]) -> Result<Vec<Stepped>, DatabaseError> {
        let _ = steps;
        Err(DatabaseError::Refused("not on this database yet".into()))
    }

    /// A number that is another one when somebody else may have committed since it was asked last,
    /// if the product has one that costs nothing.
    fn foreign_mark(&mut self) -> Result<Option<i64>, DatabaseError> {
        Ok(None)
    }

    /// Waits until somebody has sent a notification on this channel, for so long at most: whether
    /// somebody has. None, at once, where the product has no such thing.
    fn listen(&mut self, channel: &str, most: Duration) -> Result<Option<bool>, DatabaseError> {
        let _ = (channel, most);
        Ok(None)
    }

    /// Runs a transaction whose statements depend on each other's answers: kept (durably) if
    /// `inside` says so, else undone.
    fn within(&mut self, inside: Inside<'_>) -> Result<(), DatabaseError> {
        let _ = inside;
        Err(DatabaseError::Refused("not on this database yet".into()))
    }
}

/// What a statement within a transaction came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ran {
    /// Rows that it changed.
    pub changed: u64,
    /// Rows that it answered.
    pub rows: Vec<Row>,
}

/// A transaction that is under way.
pub trait Within {
    /// Its SQL.
    fn dialect(&self) -> Dialect;

    /// Runs a statement.
    fn run(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError>;

    /// Runs a statement about the transaction itself, such as SAVEPOINT.
    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError>;
}

/// What happens within a transaction; whether it is to be kept.
pub type Inside<'a> = &'a mut dyn FnMut(&mut dyn Within) -> Result<bool, DatabaseError>;

/// An answer that an event loop waits for.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// A connection that belongs to the event loop it was made in: no thread waits for its answers.
/// After an answer that nobody waited for, or [`DatabaseError::Lost`], it is of no more use.
pub trait AsyncDatabase: Send {
    /// See [`Database::query`].
    fn query<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> Soon<'a, Vec<Row>>;

    /// See [`Database::transact`].
    fn transact<'a>(&'a mut self, statements: &'a [Statement]) -> Soon<'a, Vec<u64>>;
}

/// Where connections come from.
pub trait Connect: Send + Sync {
    /// The SQL of all of them.
    fn dialect(&self) -> Dialect;

    /// Opens one.
    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError>;

    /// Opens one for a thread that must not wait: where somebody else's lock is in the way, it says
    /// [`DatabaseError::Busy`] at once, and it leaves tidying up to the other connections. None
    /// where the product has no such thing.
    fn connect_impatient(&self) -> Result<Option<Box<dyn Database>>, DatabaseError> {
        Ok(None)
    }

    /// Opens one for the event loop that this is waited for in. None where the product works in the
    /// thread that asks.
    fn connect_async(&self) -> Option<Soon<'static, Box<dyn AsyncDatabase>>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_add_in_their_own_words() {
        let sqlite = Dialect::Sqlite.or_add("t", "a, b", &["n"]);
        assert_eq!(sqlite, "ON CONFLICT (a, b) DO UPDATE SET n = t.n + excluded.n");
        let mysql = Dialect::Mysql.or_add("t", "a, b", &["n", "m"]);
        assert_eq!(mysql, "ON DUPLICATE KEY UPDATE n = n + VALUES(n), m = m + VALUES(m)");
        assert_eq!(Dialect::Mysql.or_ignore("a, b"), "ON DUPLICATE KEY UPDATE a = a");
    }
}
