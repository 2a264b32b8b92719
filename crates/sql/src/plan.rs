//! What a command asks for, whatever its dialect: found from its words alone, so that it can be
//! found again on another thread.

use commands::error::Error;
use resp::Args;

use crate::reply::Shape;
use crate::run::Request;
use crate::statistics::Count;

/// Whose manners a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// RediSQL up to 1.1.
    V1,
    /// RediSQL's second, and zeeSQL's.
    V2,
    /// Forebay's own.
    Native,
}

/// When a named statement may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It must not be there.
    New,
    /// It must be there.
    Known,
    /// Either.
    Any,
}

/// What is to be done on a database.
#[derive(Clone, Copy)]
pub enum Action<'a> {
    /// Run SQL.
    Run {
        /// What.
        request: Request<'a>,
        /// How it is answered.
        shape: Shape,
        /// The stream that the rows go to.
        into: Option<&'a [u8]>,
    },
    /// Write a named statement.
    Store {
        /// Its name.
        name: &'a [u8],
        /// Its text.
        text: &'a [u8],
        /// Whether it may be there.
        rule: Rule,
    },
    /// Forget a named statement.
    Forget {
        /// Its name.
        name: &'a [u8],
    },
    /// Tell named statements: one, or all.
    Tell {
        /// Its name.
        name: Option<&'a [u8]>,
    },
    /// Tell how a statement would run.
    Explain {
        /// Its text.
        text: &'a [u8],
    },
    /// Tell how often the kept statements ran, and how long.
    Stats,
    /// Write a copy into a file.
    Save {
        /// Where.
        path: &'a [u8],
    },
    /// Become a copy of a file.
    Load {
        /// Which.
        path: &'a [u8],
    },
    /// Attach a file, to be read.
    Attach {
        /// Which.
        path: &'a [u8],
        /// As what.
        name: &'a [u8],
    },
    /// Let go of an attached file.
    Detach {
        /// Its name.
        name: &'a [u8],
    },
    /// Tell the database's limits, or keep those given.
    Limit {
        /// The new ones, by their words.
        words: Args<'a>,
    },
    /// Become a copy of another database.
    Copy {
        /// Its key.
        from: &'a [u8],
    },
}

impl Action<'_> {
    /// Whether it may be part of a transaction: it does not replace or reopen the database.
    pub fn fits_transaction(&self) -> bool {
        !matches!(
            self,
            Action::Copy { .. }
                | Action::Load { .. }
                | Action::Attach { .. }
                | Action::Detach { .. }
        )
    }
}

/// A command's wish.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// The key of the database.
    pub key: &'a [u8],
    /// What to do.
    pub action: Action<'a>,
    /// How to answer.
    pub dialect: Dialect,
    /// What it counts as.
    pub count: Count,
}

/// What a family knows of a command: how to read its words.
pub struct Row {
    /// Reads them.
    pub parse: for<'a> fn(Args<'a>) -> Result<Plan<'a>, Error>,
}

/// The text of a word that must be one.
///
/// # Errors
/// If it is no UTF-8.
pub fn utf8(word: &[u8]) -> Result<&[u8], Error> {
    match std::str::from_utf8(word) {
        Ok(_) => Ok(word),
        Err(_) => Err(Error::text("Got a non-valid UTF8 string as input")),
    }
}
