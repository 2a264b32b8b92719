//! What a command may take: time, rows, bytes, memory; and what a database may grow to.
//!
//! ```text
//! server   sql-timeout-ms, sql-rows-max, ...       CONFIG SET       every command
//! database SQL.LIMITS db TIMEOUT 500 ROWS 1000     kept with it     every command on it
//! command  SQL.EXEC db sql TIMEOUT 50 VALUES ...   for this once
//! ```
//!
//! **Invariant:** the narrowest holds; nobody can widen what the server allows.
//! **Invariant:** what the log says is done again whatever the limits are now.

use commands::error::Error;
use commands::words::is;
use resp::{Args, Writer, number};

use crate::connection::Connection;
use crate::error::SqlError;
use crate::metadata;
use crate::reply::Bounds;
use crate::run::Place;
use crate::settings::settings;

/// Limits; 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Milliseconds that a command may run.
    pub timeout_ms: u64,
    /// Rows that it may answer.
    pub rows: u64,
    /// Bytes that it may answer.
    pub bytes: u64,
    /// Bytes that SQLite may take for it, beyond what it gives back meanwhile.
    pub memory: u64,
    /// Bytes that the database may have.
    pub size: u64,
}

/// The narrower of two limits.
pub fn narrower(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, limit) | (limit, 0) => limit,
        (one, other) => one.min(other),
    }
}

/// A limit by the word that sets it.
type Field = (&'static str, fn(&mut Limits) -> &mut u64);

/// All of them; the last is a database's only.
const FIELDS: [Field; 5] = [
    ("TIMEOUT", |limits| &mut limits.timeout_ms),
    ("ROWS", |limits| &mut limits.rows),
    ("BYTES", |limits| &mut limits.bytes),
    ("MEMORY", |limits| &mut limits.memory),
    ("SIZE", |limits| &mut limits.size),
];

/// What a database calls them.
const KIND: &str = "limit";

const BAD_LIMIT: Error = Error::text("ERR a limit must be a whole number, 0 for none");

impl Limits {
    /// Both at once.
    pub fn and(self, other: Limits) -> Limits {
        Limits {
            timeout_ms: narrower(self.timeout_ms, other.timeout_ms),
            rows: narrower(self.rows, other.rows),
            bytes: narrower(self.bytes, other.bytes),
            memory: narrower(self.memory, other.memory),
            size: narrower(self.size, other.size),
        }
    }

    /// Takes a command's limits from the front of its words: `[TIMEOUT ms] [ROWS n] [BYTES n]
    /// [MEMORY n]`; returns how many words they were.
    ///
    /// # Errors
    /// If one is no number.
    pub fn take(&mut self, words: Args<'_>) -> Result<usize, Error> {
        self.take_of(words, &FIELDS[..4])
    }

    /// Takes a database's limits, which are all of its words.
    ///
    /// # Errors
    /// If one is no number, or no limit.
    pub fn take_all(&mut self, words: Args<'_>) -> Result<(), Error> {
        if self.take_of(words, &FIELDS)? == words.len() { Ok(()) } else { Err(Error::SYNTAX) }
    }

    fn take_of(&mut self, words: Args<'_>, fields: &[Field]) -> Result<usize, Error> {
        let mut taken = 0;
        while let Some(word) = words.get(taken)
            && let Some((_, field)) = fields.iter().find(|(name, _)| is(word, name))
        {
            let given = words.get(taken + 1).and_then(number::integer);
            let limit = given.and_then(|limit| u64::try_from(limit).ok()).ok_or(BAD_LIMIT)?;
            *field(self) = limit;
            taken += 2;
        }
        Ok(taken)
    }

    /// Tells them, in a map.
    pub fn tell(mut self, out: &mut Writer) {
        out.map(FIELDS.len());
        for (name, field) in FIELDS {
            out.text(&name.to_lowercase());
            out.int(*field(&mut self) as i64);
        }
    }

    /// What bounds an answer.
    pub fn bounds(&self) -> Bounds {
        let most = |limit: u64| if limit == 0 { usize::MAX } else { limit as usize };
        Bounds { rows_max: most(self.rows), bytes_max: most(self.bytes) }
    }

    /// The limits that a database keeps.
    ///
    /// # Errors
    /// SQLite's.
    pub fn read(connection: &Connection) -> Result<Limits, SqlError> {
        let mut limits = Limits::default();
        for (name, limit) in metadata::rows(connection, KIND)? {
            if let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == name) {
                *field(&mut limits) = limit.parse().unwrap_or(0);
            }
        }
        Ok(limits)
    }

    /// Has a database keep them.
    ///
    /// # Errors
    /// SQLite's.
    pub fn store(mut self, connection: &Connection) -> Result<(), SqlError> {
        for (name, field) in FIELDS {
            metadata::remove(connection, KIND, name)?;
            let limit = *field(&mut self);
            if limit > 0 {
                metadata::add(connection, KIND, name, &limit.to_string())?;
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Looks again at what the database keeps, if that may have changed.
    pub(crate) fn reload_limits(&mut self) {
        if std::mem::take(&mut self.limits_changed) {
            // Where it can't be read, the server's are left.
            self.limits = Limits::read(self).unwrap_or_default();
        }
    }

    /// What a command may take here: what it says itself, its database and the server allow.
    pub(crate) fn limits_of(&self, own: Limits, place: Place) -> Limits {
        if place == Place::REPLAY {
            return Limits::default();
        }
        own.and(self.limits).and(settings().limits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::OwnedArgs;

    #[test]
    fn the_narrowest_holds() {
        assert_eq!(narrower(0, 0), 0);
        assert_eq!(narrower(0, 5), 5);
        assert_eq!(narrower(5, 0), 5);
        assert_eq!(narrower(7, 5), 5);
        let one = Limits { timeout_ms: 10, rows: 0, bytes: 9, ..Limits::default() };
        let other = Limits { timeout_ms: 20, rows: 3, bytes: 4, ..Limits::default() };
        let both = Limits { timeout_ms: 10, rows: 3, bytes: 4, ..Limits::default() };
        assert_eq!(one.and(other), both);
    }

    #[test]
    fn words_are_read_up_to_the_first_that_is_no_limit() {
        let words = OwnedArgs::new(["timeout", "5", "ROWS", "7", "VALUES", "1"].map(str::as_bytes));
        let mut limits = Limits::default();
        assert_eq!(limits.take(words.args()), Ok(4));
        assert_eq!((limits.timeout_ms, limits.rows), (5, 7));
        // A size is a database's.
        let words = OwnedArgs::new(["SIZE", "5"].map(str::as_bytes));
        assert_eq!(limits.take(words.args()), Ok(0));
        assert_eq!(limits.take_all(words.args()), Ok(()));
        for bad in [&["ROWS"][..], &["ROWS", "-1"], &["ROWS", "x"], &["ROWS", "1", "and"]] {
            let words = OwnedArgs::new(bad.iter().map(|word| word.as_bytes()));
            assert!(limits.take_all(words.args()).is_err(), "{bad:?}");
        }
    }
}
