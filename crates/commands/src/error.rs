//! What goes wrong in a command, as the client reads it: Redis's own words.

use std::borrow::Cow;

use keyspace::keys::WrongType;

/// An error reply, its code included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    text: Cow<'static, str>,
    /// The command inside a script that failed has been counted.
    is_counted: bool,
}

impl Error {
    /// The words are not what the command takes.
    pub const SYNTAX: Error = Error::text("ERR syntax error");
    /// A number was expected.
    pub const NOT_AN_INTEGER: Error = Error::text("ERR value is not an integer or out of range");
    /// A floating-point number was expected.
    pub const NOT_A_FLOAT: Error = Error::text("ERR value is not a valid float");
    /// A key must be there.
    pub const NO_SUCH_KEY: Error = Error::text("ERR no such key");
    /// An index must be inside.
    pub const OUT_OF_RANGE: Error = Error::text("ERR index out of range");
    /// A count must not be negative.
    pub const NOT_POSITIVE: Error = Error::text("ERR value is out of range, must be positive");
    /// A string would get too long.
    pub const STRING_TOO_LONG: Error =
        Error::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    /// INCR and its like ran over.
    pub const OVERFLOW: Error = Error::text("ERR increment or decrement would overflow");
    /// INCRBYFLOAT and its like left the numbers.
    pub const NAN_OR_INFINITY: Error = Error::text("ERR increment would produce NaN or Infinity");
    /// The key holds another type.
    pub const WRONG_TYPE: Error =
        Error::text("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// A timeout that is not a number.
    pub const BAD_TIMEOUT: Error = Error::text("ERR timeout is not a float or out of range");
    /// A timeout below zero.
    pub const NEGATIVE_TIMEOUT: Error = Error::text("ERR timeout is negative");

    /// A fixed text.
    pub const fn text(text: &'static str) -> Error {
        Error { text: Cow::Borrowed(text), is_counted: false }
    }

    /// A made text.
    pub fn new(text: impl Into<String>) -> Error {
        Error { text: Cow::Owned(text.into()), is_counted: false }
    }

    /// What the client reads.
    pub fn message(&self) -> &str {
        &self.text
    }

    /// The same, for one that is in the statistics of errors already: a script hands on what its
    /// command answered.
    pub fn counted(mut self) -> Error {
        self.is_counted = true;
        self
    }

    /// See [`Error::counted`].
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Too few or too many words for `command`, given in lower case (`config|get`).
    pub fn wrong_arity(command: &str) -> Error {
        Error::new(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// A time to live that is no time, in `command`.
    pub fn invalid_expire(command: &str) -> Error {
        Error::new(format!("ERR invalid expire time in '{command}' command"))
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WRONG_TYPE
    }
}
