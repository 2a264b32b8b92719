//! A database as bytes, and what it has to recall when it is opened.
//!
//! ```text
//! image: | "FBSQL1" | sequence u64 | length of path u32 | path | SQLite's file, as it is |
//! ```
//!
//! A database on file is its path alone: the file has the data, and is never older than the image.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::connection::{Connection, Named, script_of};
use crate::database::Database;
use crate::error::SqlError;
use crate::limits::Limits;
use crate::metadata;
use crate::settings::settings;

const MAGIC: &[u8; 6] = b"FBSQL1";

/// Makes the table of what a database knows of itself, and reads the named statements.
///
/// # Errors
/// SQLite's.
pub fn prepare(connection: &mut Connection, path: Option<&Path>) -> Result<(), SqlError> {
    metadata::create(connection)?;
    if let Some(path) = path
        && metadata::rows(connection, "path")?.is_empty()
    {
        metadata::add(connection, "path", "path", &path.to_string_lossy())?;
    }
    connection.indexes_changed = true;
    note_triggers(connection)?;
    recall(connection)?;
    crate::files::attach_again(connection)
}

/// Reads what a database knows of itself: its limits and named statements.
///
/// # Errors
/// SQLite's.
pub(crate) fn recall(connection: &mut Connection) -> Result<(), SqlError> {
    connection.limits = Limits::read(connection)?;
    read_statements(connection)
}

/// Looks whether there are triggers whose failures leave rows behind.
fn note_triggers(connection: &mut Connection) -> Result<(), SqlError> {
    let handle = connection.handle.share();
    let text = "SELECT sql FROM sqlite_schema WHERE type = 'trigger'";
    let mut query = handle.connection().prepare(text)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        connection.note_trigger(row.get_ref(0)?.as_bytes().unwrap_or_default());
    }
    Ok(())
}

/// Reads the named statements; those that are known already stay as they are.
fn read_statements(connection: &mut Connection) -> Result<(), SqlError> {
    let handle = connection.handle.share();
    let rows = metadata::rows(connection, "statement")?;
    let mut known = std::mem::take(&mut connection.named);
    for (name, text) in rows {
        let (name, text) = (Box::from(name.into_bytes()), text.into_bytes());
        let named = match known.remove(&name).filter(|named| *named.text == *text) {
            Some(named) => named,
            // One that does not fit the schema any more comes back when it is updated.
            None => match script_of(&handle, &text, true) {
                Ok(script) => Named { text: text.into(), script },
                Err(_) => continue,
            },
        };
        connection.named.insert(name, named);
    }
    Ok(())
}

/// Writes or removes a named statement.
///
/// # Errors
/// SQLite's.
pub fn store_statement(
    connection: &Connection,
    name: &[u8],
    text: Option<&[u8]>,
) -> Result<(), SqlError> {
    let name = String::from_utf8_lossy(name);
    metadata::remove(connection, "statement", &name)?;
    match text {
        Some(text) => metadata::add(connection, "statement", &name, &String::from_utf8_lossy(text)),
        None => Ok(()),
    }
}

/// The number of the last record that is in the database.
///
/// # Errors
/// SQLite's.
pub fn sequence(connection: &Connection) -> Result<u64, SqlError> {
    let raw = connection.handle.connection();
    let number: i64 = raw.query_row(
        "SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM RediSQLMetadata \
         WHERE data_type = 'sequence'",
        [],
        |row| row.get(0),
    )?;
    Ok(number.max(0) as u64)
}

/// Writes the number of the last record into the database.
///
/// # Errors
/// SQLite's.
pub fn store_sequence(connection: &Connection, sequence: u64) -> Result<(), SqlError> {
    let number = sequence.to_string();
    let set = "UPDATE RediSQLMetadata SET value = ?1 WHERE data_type = 'sequence'";
    match metadata::change(connection, set, [&number])? {
        0 => metadata::add(connection, "sequence", "last", &number),
        _ => Ok(()),
    }
}

/// A database as bytes.
///
/// # Errors
/// SQLite's.
pub fn write(database: &Database, connection: &mut Connection) -> Result<Vec<u8>, SqlError> {
    let mut bytes = MAGIC.to_vec();
    let sequence = database.sequence.load(Ordering::Acquire);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    let path = database.path.as_deref().map(|path| settings().name_of(path)).unwrap_or_default();
    bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
    bytes.extend_from_slice(path.as_bytes());
    if database.path.is_none() {
        bytes.extend_from_slice(&connection.handle.serialize()?);
    }
    Ok(bytes)
}

struct Parts<'a> {
    sequence: u64,
    path: &'a str,
    file: &'a [u8],
}

fn parts(image: &[u8]) -> Option<Parts<'_>> {
    let rest = image.strip_prefix(MAGIC)?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    let path = std::str::from_utf8(rest.get(..len)?).ok()?;
    Some(Parts { sequence: u64::from_le_bytes(*sequence), path, file: &rest[len..] })
}

const DAMAGED: &str = "the image of a SQL database is damaged";

/// The database that an image is of: on its file if it has one, else in memory.
///
/// # Errors
/// In words.
pub fn read(image: &[u8]) -> Result<Arc<Database>, String> {
    let found = parts(image).ok_or(DAMAGED)?;
    if found.path.is_empty() {
        return read_into_memory(image);
    }
    // The image may come from a client: RESTORE.
    let path = settings().file(found.path.as_bytes())?;
    Database::open(path.as_deref()).map_err(|error| error.message)
}

/// The database that an image is of, in memory.
///
/// # Errors
/// In words.
pub fn read_into_memory(image: &[u8]) -> Result<Arc<Database>, String> {
    let found = parts(image).ok_or(DAMAGED)?;
    let database = of_file(found.file)?;
    database.sequence.store(found.sequence, Ordering::Release);
    Ok(database)
}

/// The database that the bytes of a file are, in memory.
///
/// # Errors
/// In words.
pub fn of_file(file: &[u8]) -> Result<Arc<Database>, String> {
    let words = |error: SqlError| format!("{DAMAGED}: {}", error.message);
    let database = Database::open(None).map_err(words)?;
    if !file.is_empty() {
        let mut lease = database.lease();
        restore(&mut lease, file).map_err(words)?;
    }
    Ok(database)
}

/// Makes a connection's database the one that these bytes of a file are.
///
/// # Errors
/// SQLite's.
pub fn restore(connection: &mut Connection, file: &[u8]) -> Result<(), SqlError> {
    let mut source = rusqlite::Connection::open_in_memory()?;
    // Bytes 18 and 19 say whether a write-ahead log belongs to the file: none comes with its bytes.
    let (head, rest) = file.split_at(file.len().min(20));
    let mut head = head.to_vec();
    if let [.., write, read] = &mut head[..] {
        (*write, *read) = ((*write).min(1), (*read).min(1));
    }
    let bytes = (&head[..]).chain(rest);
    source.deserialize_read_exact("main", bytes, file.len(), false)?;
    connection.forget();
    connection.handle.copy_from(&source)?;
    let path = None;
    prepare(connection, path)
}

/// Makes a connection's database a copy of another, which was not made here: what it says of its
/// own path and records is not ours.
///
/// # Errors
/// SQLite's.
pub fn restore_from(
    connection: &mut Connection,
    source: &rusqlite::Connection,
) -> Result<(), SqlError> {
    connection.forget();
    connection.handle.copy_from(source)?;
    prepare(connection, None)?;
    connection.indexes_changed = true;
    let forget = "DELETE FROM RediSQLMetadata WHERE data_type NOT IN ('statement', 'limit')";
    metadata::change(connection, forget, []).map(drop)
}
