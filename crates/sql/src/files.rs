//! Files that a database is loaded from, and such that are attached to it, to be read only.
//!
//! **Invariant:** only files below `sql-attach-dir` are opened, through no link, and none of them
//! is ever written. What is attached is known to the database itself (rows `attach` of its table of
//! metadata), so that copies, snapshots and the next start attach it again.

use std::path::Path;

use rusqlite::OpenFlags;

use crate::connection::Connection;
use crate::error::{Failure, SqlError};
use crate::guard::as_owner;
use crate::image;
use crate::metadata;
use crate::settings::settings;

fn file(path: &[u8]) -> Result<std::path::PathBuf, Failure> {
    let file = settings().file_to_read(path).map_err(Failure::refused)?;
    if file.is_file() {
        return Ok(file);
    }
    let name = String::from_utf8_lossy(path);
    Err(Failure::Refused(format!("ERR there is no file {name} in the folder for files to read")))
}

/// Makes the connection's database a copy of a file, unless the file is damaged; returns the copy
/// as bytes.
///
/// # Errors
/// SQLite's, and in words; nothing is changed then.
pub fn load(connection: &mut Connection, path: &[u8]) -> Result<Vec<u8>, Failure> {
    let file = file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = rusqlite::Connection::open_with_flags(file, flags).map_err(SqlError::from)?;
    let check = "PRAGMA quick_check(1)";
    let verdict = source.query_row(check, [], |row| row.get::<_, String>(0));
    let verdict = verdict.map_err(SqlError::from)?;
    if verdict != "ok" {
        let code = rusqlite::ffi::SQLITE_CORRUPT;
        return Err(SqlError::new(code, format!("the file is damaged: {verdict}")).into());
    }
    let in_group = connection.in_group;
    if in_group {
        connection.commit_group()?;
    }
    image::restore_from(connection, &source)?;
    if in_group {
        connection.begin_group()?;
    }
    Ok(connection.handle.serialize()?)
}

/// Whether a name may be a schema's: a word that SQL need not quote, and none of its own.
fn is_name(name: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let own = ["main", "temp"].iter().any(|own| own.as_bytes().eq_ignore_ascii_case(name));
    !own && name.len() <= 64
        && name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(is_word)
}

/// What a database calls what is attached to it.
const KIND: &str = "attach";

/// Attaches a file under a name.
///
/// # Errors
/// SQLite's, and in words.
pub fn attach(connection: &mut Connection, name: &[u8], path: &[u8]) -> Result<(), Failure> {
    if !is_name(name) {
        let text = "ERR the name must be letters, digits and _, not main or temp";
        return Err(Failure::refused(text));
    }
    let file = file(path)?;
    attach_file(connection, name, &file)?;
    let (name, path) = (String::from_utf8_lossy(name), String::from_utf8_lossy(path));
    Ok(metadata::add(connection, KIND, &name, &path)?)
}

fn attach_file(connection: &mut Connection, name: &[u8], file: &Path) -> Result<(), Failure> {
    let name = String::from_utf8_lossy(name);
    let raw = connection.handle.share();
    let attached = as_owner(|| {
        let text = format!("ATTACH ?1 AS \"{name}\"");
        raw.connection().execute(&text, [uri(file)])?;
        // It is opened at the first look.
        let look = format!("SELECT count(*) FROM \"{name}\".sqlite_schema");
        let looked = raw.connection().query_row(&look, [], |_| Ok(()));
        if looked.is_err() {
            let _ = raw.connection().execute(&format!("DETACH \"{name}\""), []);
        }
        looked
    });
    Ok(attached.map_err(SqlError::from)?)
}

/// A file's name as SQLite reads it, with the wish not to write.
fn uri(file: &Path) -> String {
    let mut text = String::from("file:");
    for byte in file.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(byte as char);
            }
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text + "?mode=ro"
}

/// Lets go of an attached file.
///
/// # Errors
/// SQLite's, and in words.
pub fn detach(connection: &mut Connection, name: &[u8]) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(name);
    let raw = connection.handle.share();
    let count = metadata::remove(connection, KIND, &text)?;
    if count == 0 || !is_name(name) {
        return Err(Failure::Refused(format!("ERR nothing is attached as {text}")));
    }
    connection.cached.clear();
    let detached = as_owner(|| raw.connection().execute(&format!("DETACH \"{text}\""), []));
    detached.map(|_| ()).map_err(|error| SqlError::from(error).into())
}

/// Attaches what the database says is attached; what is not there any more is passed over.
///
/// # Errors
/// SQLite's.
pub fn attach_again(connection: &mut Connection) -> Result<(), SqlError> {
    let mut query =
        connection.handle.connection().prepare("SELECT name FROM pragma_database_list")?;
    let attached = query.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    drop(query);
    for (name, path) in metadata::rows(connection, KIND)? {
        if attached.contains(&name) {
            continue;
        }
        let found = if is_name(name.as_bytes()) { file(path.as_bytes()) } else { continue };
        let attached = found.and_then(|file| attach_file(connection, name.as_bytes(), &file));
        if let Err(failure) = attached {
            tracing::warn!(?failure, "{path} cannot be attached again");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_are_written_so_that_they_mean_themselves() {
        for good in ["a", "_x1", "Other"] {
            assert!(is_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "1a", "main", "TEMP", "a b", "a\"b", "a;b", "ä"] {
            assert!(!is_name(bad.as_bytes()), "{bad}");
        }
        assert_eq!(uri(Path::new("/a/b?c%d#e.db")), "file:/a/b%3fc%25d%23e.db?mode=ro");
    }
}
