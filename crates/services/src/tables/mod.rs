//! Cached tables: a table API over a SQL database, answered from memory where that is right.
//!
//! ```text
//!   schema.rs    tables, declared          setup.rs     what the database needs, tables found
//!   odata/       expressions               query.rs     an address, typed, and its SQL
//!   ask.rs       questions and answers     service.rs   the cache: look, fetch, keep
//!   fill.rs      a question's answer from the database, as JSON (rows.rs)
//!   change.rs    changes of rows           versions.rs  what is known of a table's changes
//!   recent.rs    the last changes          matching.rs  which lists they cannot touch
//!   page.rs      a kept answer             shelf.rs     where kept answers lie
//!   trust.rs     columns that are compared in memory as in the database
//!   token.rs     who calls                 pool.rs      threads with connections
//!   widen.rs     tables that grow          packing.rs   bodies in fewer bytes
//! ```

pub mod ask;
pub mod change;
pub mod date;
mod fill;
pub mod matching;
pub mod odata;
mod packing;
pub mod page;
mod pool;
pub mod query;
pub mod recent;
pub mod rows;
pub mod schema;
pub mod service;
pub mod setup;
pub mod shelf;
pub mod stats;
#[doc(hidden)]
pub mod testing;
pub mod token;
pub mod trust;
pub mod versions;
pub mod widen;

pub use fill::row_etag;
