//! Sagas and their kin: a coordinator of distributed transactions that speaks dtm's protocol.
//!
//! ```text
//!   submission  JSON of dtm's API, or our own --> a Transaction
//!   machine     what happens to it: pure       verbs  what an operator may do
//!   codec       transactions <--> records of the log
//!   coordinator many of them: shards, log, timers, waiters, indexes, retention
//!   local       steps that the server runs itself, and outputs of branches
//!   view        a Transaction --> JSON
//! ```
//!
//! Nothing in here opens a socket or a file, looks at a clock or rolls dice: calls go out through
//! the trait `Caller`, records through the trait `State`, the rest is passed in.

pub mod base64;
pub mod codec;
pub mod coordinator;
pub mod index;
pub mod local;
pub mod machine;
pub mod outgoing;
pub mod plan;
pub mod policy;
mod recovery;
pub mod retention;
pub mod state;
pub mod submission;
pub mod topics;
pub mod transaction;
pub mod verbs;
pub mod view;
pub mod words;

#[cfg(test)]
mod model;
