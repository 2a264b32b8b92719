//! What a protocol has to do for the load generator: make connections and requests, and judge what
//! comes back.
//!
//! **Invariant:** each request has one verdict that ends it: good, empty or bad. A connection that
//! the server closes is an error of the run, except for traffic that [renews](Traffic::RENEWS) it.

use std::time::Duration;

use crate::client::{Error, Socket};
use crate::random::Random;
use crate::target::Target;

/// What a buffer's first reply was.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected, and so many bytes long.
    Good(usize),
    /// Empty, because there is nothing left to pop.
    Empty(usize),
    /// A message that is no reply.
    Push(usize),
    /// Not what was expected: why.
    Bad(usize, String),
    /// Not all there.
    Incomplete,
}

/// The requests of a run, and the check of their replies.
pub trait Traffic: Sync {
    /// What is remembered of a request to check its reply.
    type Sent: Copy + Default;
    /// How far a connection's first reply has been read.
    type Reader: Default;
    /// Whether a connection that the server has closed is replaced by a new one.
    const RENEWS: bool = false;

    /// A connection that is ready for requests.
    fn connect(&self, target: &Target, timeout: Duration) -> Result<Socket, Error>;

    /// Appends one request and tells what to expect of it.
    fn append_request(&self, random: &mut Random, out: &mut Vec<u8>) -> Self::Sent;

    /// Checks the first reply of `buffer` against the request it answers.
    fn check(&self, sent: Self::Sent, buffer: &[u8], reader: &mut Self::Reader) -> Verdict;

    /// What a reply is that was still incomplete when the server closed the connection.
    fn cut_off(&self, _: Self::Sent, buffer: &[u8], _: &mut Self::Reader) -> Verdict {
        Verdict::Bad(buffer.len(), "the connection was closed before the answer's end".into())
    }

    /// Whether the server closes the connection after the reply that was checked last.
    fn is_last(_: &Self::Reader) -> bool {
        false
    }
}
