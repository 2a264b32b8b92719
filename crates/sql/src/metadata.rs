//! What a database knows of itself: rows of its table `RediSQLMetadata`, which is RediSQL's.
//!
//! ```text
//! data_type   key                value
//! path        path               its file
//! statement   name               SQL
//! limit       TIMEOUT, ROWS ...  number
//! index       table, pattern     definition
//! attach      name               file
//! sequence    last               the number of the last record of the log that is in here
//! ```
//!
//! **Invariant:** clients read it; only the server writes it.

use rusqlite::Params;

use crate::connection::Connection;
use crate::error::SqlError;
use crate::guard::as_owner;

/// The table.
pub const TABLE: &str = "RediSQLMetadata";

/// Makes the table, if it is not there.
///
/// # Errors
/// SQLite's.
pub fn create(connection: &Connection) -> Result<(), SqlError> {
    let text = format!("CREATE TABLE IF NOT EXISTS {TABLE}(data_type TEXT, key TEXT, value TEXT)");
    change(connection, &text, []).map(drop)
}

/// Runs a statement of the server's own on it; how many rows it changed.
///
/// # Errors
/// SQLite's.
pub fn change(connection: &Connection, text: &str, values: impl Params) -> Result<usize, SqlError> {
    let raw = connection.handle.connection();
    Ok(as_owner(|| raw.prepare_cached(text)?.execute(values))?)
}

/// Adds a row.
///
/// # Errors
/// SQLite's.
pub fn add(connection: &Connection, kind: &str, key: &str, value: &str) -> Result<(), SqlError> {
    let text = "INSERT INTO RediSQLMetadata VALUES (?1, ?2, ?3)";
    change(connection, text, [kind, key, value]).map(drop)
}

/// Removes the rows of a kind under a key; how many they were.
///
/// # Errors
/// SQLite's.
pub fn remove(connection: &Connection, kind: &str, key: &str) -> Result<usize, SqlError> {
    let text = "DELETE FROM RediSQLMetadata WHERE data_type = ?1 AND key = ?2";
    change(connection, text, [kind, key])
}

/// The rows of a kind, as key and value, in the order in which they were added.
///
/// # Errors
/// SQLite's.
pub fn rows(connection: &Connection, kind: &str) -> Result<Vec<(String, String)>, SqlError> {
    let raw = connection.handle.connection();
    let text = "SELECT key, value FROM RediSQLMetadata WHERE data_type = ?1 ORDER BY rowid";
    let mut query = raw.prepare_cached(text)?;
    let rows = query.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
