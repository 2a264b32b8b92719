//! What is wrong with an RDB file or payload, and where.

use std::fmt;
use std::io;

/// What went wrong at an [`Error`]'s place.
#[derive(Debug)]
pub enum Why {
    /// The bytes end before what they begin; at least so many more are needed.
    Short(u64),
    /// The bytes cannot be right.
    Damaged(&'static str),
    /// It may be right, but it is nothing that this server takes.
    Refused(String),
    /// The file itself could not be read.
    Read(io::Error),
}

impl PartialEq for Why {
    fn eq(&self, other: &Why) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Short(bytes) => write!(f, "the data ends {bytes} bytes too early"),
            Why::Damaged(text) => f.write_str(text),
            Why::Refused(text) => f.write_str(text),
            Why::Read(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

/// Why an RDB file or payload was not taken.
#[derive(Debug, PartialEq)]
pub struct Error {
    /// Where, in bytes from the start.
    pub offset: u64,
    /// What was being read there.
    pub reading: &'static str,
    /// What is wrong.
    pub why: Why,
}

impl Error {
    /// Whether more bytes might make it right.
    pub fn is_short(&self) -> bool {
        matches!(self.why, Why::Short(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}, reading {}: {}", self.offset, self.reading, self.why)
    }
}

impl std::error::Error for Error {}
