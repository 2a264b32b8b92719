//! Metered ingest: an API key, a quota by the calendar, a record stored and a counter moved in one
//! SQL transaction.
//!
//! ```text
//!  request -> parse -> reserve (store) -> queue -> writer: one transaction -> settle -> answer
//!                          |                              |
//!                          +-- over the limit: refused    +-- failed: released, refused
//! ```
//!
//! **Invariant:** records accepted = rows stored = what the counter grew by, whatever dies when.
//! **Invariant:** what was reserved and is not yet settled counts: the limit is never passed.
//! **Invariant:** a batch is applied once: its transaction has a row that can not be there twice.

pub mod answer;
pub mod batch;
pub mod caller;
pub mod event;
mod expiry;
mod fence;
pub mod gate;
pub mod ingest;
pub mod journal;
pub mod known;
pub mod lane;
pub mod lead;
pub mod manage;
pub mod org;
pub mod period;
pub mod plan;
pub mod queue;
pub mod schema;
pub mod secret;
pub mod service;
pub mod session;
pub mod usage;
pub mod verify;
pub mod webhook;
pub mod writer;
