//! What goes wrong in SQL, and what becomes of the command then.

use rusqlite::ffi;

/// SQLite's error: its extended code and its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// The extended result code.
    pub code: i32,
    /// SQLite's words.
    pub message: String,
}

impl SqlError {
    /// An error.
    pub fn new(code: i32, message: String) -> SqlError {
        SqlError { code, message }
    }

    /// An error of the general kind.
    pub fn general(message: &str) -> SqlError {
        SqlError::new(ffi::SQLITE_ERROR, message.to_string())
    }

    /// The name of the code, as SQLite's documentation has it.
    pub fn name(&self) -> &'static str {
        let named = |table: &[(i32, &'static str)], code: i32| {
            table.iter().find(|(other, _)| *other == code).map(|(_, name)| *name)
        };
        named(EXTENDED, self.code)
            .or_else(|| named(PRIMARY, self.code & 0xff))
            .unwrap_or("SQLITE_ERROR")
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> SqlError {
        match error {
            rusqlite::Error::SqliteFailure(code, message) => {
                let text = message.unwrap_or_else(|| code.to_string());
                SqlError::new(code.extended_code, text)
            }
            other => SqlError::general(&other.to_string()),
        }
    }
}

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// SQLite refused it.
    Sql(SqlError),
    /// It makes no sense; the reply's text.
    Refused(String),
    /// It takes more steps than may be spent where it ran: it left nothing behind and belongs to
    /// the database's own thread.
    TooLong,
    /// It reads keys that must be copied first; see [`crate::live`].
    NeedsKeys,
    /// It calls commands, for which keys have to be held; see [`crate::unit`].
    NeedsUnit,
    /// Others use the database for too long.
    Busy,
    /// Somebody needs the connection for a moment: it was undone and is to be run again.
    Yielded,
    /// The transaction that it shared with others is gone, and with it what they did.
    GroupLost,
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Failure {
        Failure::Sql(error)
    }
}

impl Failure {
    /// A refusal in fixed words.
    pub fn refused(text: &str) -> Failure {
        Failure::Refused(text.to_string())
    }
}

macro_rules! codes {
    ($($name:ident)*) => { &[$((ffi::$name, stringify!($name))),*] };
}

const PRIMARY: &[(i32, &str)] = codes![
    SQLITE_ERROR SQLITE_INTERNAL SQLITE_PERM SQLITE_ABORT SQLITE_BUSY SQLITE_LOCKED SQLITE_NOMEM
    SQLITE_READONLY SQLITE_INTERRUPT SQLITE_IOERR SQLITE_CORRUPT SQLITE_FULL SQLITE_CANTOPEN
    SQLITE_PROTOCOL SQLITE_SCHEMA SQLITE_TOOBIG SQLITE_CONSTRAINT SQLITE_MISMATCH SQLITE_MISUSE
    SQLITE_AUTH SQLITE_RANGE SQLITE_NOTADB
];

const EXTENDED: &[(i32, &str)] = codes![
    SQLITE_CONSTRAINT_CHECK SQLITE_CONSTRAINT_FOREIGNKEY SQLITE_CONSTRAINT_NOTNULL
    SQLITE_CONSTRAINT_PRIMARYKEY SQLITE_CONSTRAINT_TRIGGER SQLITE_CONSTRAINT_UNIQUE
    SQLITE_CONSTRAINT_ROWID SQLITE_CONSTRAINT_DATATYPE
];
