//! SQLite databases as values of the keyspace: the REDISQL, ZEESQL and SQL families.
//!
//! ```text
//!  table      names -> rows                 serve    one command: here, queued, in a transaction
//!  v1 v2      words -> plan                 queue    a database's own thread
//!  perform    plan -> SQL, statements       database the value: a connection lent out
//!  index indexing: tables in step with hashes
//!  live       keys as tables                unit     SQL that calls commands, with its keys held
//!  calls      commands that SQL calls
//!  transaction, cursor: what stays between   snapshot to be read beside the writer
//!  readers    long reads beside the writer
//!  run        SQL on a connection           image    a database as bytes
//!  limits     what a command may take       budget   how long it may run
//!  metadata   what a database knows of itself
//!  connection statements kept, guard        raw      SQLite itself
//! ```

pub mod budget;
pub mod calls;
pub mod connection;
pub mod create;
pub mod cursor;
pub mod database;
pub mod error;
pub mod files;
pub mod frozen;
pub mod guard;
pub mod image;
pub mod index;
pub mod indexing;
pub mod lexer;
pub mod limits;
pub mod literals;
pub mod live;
pub mod metadata;
pub mod native;
pub mod perform;
pub mod plan;
pub mod queue;
pub mod raw;
pub mod readers;
pub mod reply;
pub mod run;
pub mod serve;
pub mod settings;
pub mod snapshot;
pub mod statistics;
pub mod table;
pub mod transaction;
pub mod unit;
pub mod v1;
pub mod v2;

/// The families of this crate.
pub const FAMILIES: &[commands::command::Family] = &[table::FAMILY, indexing::FAMILY];

/// Makes databases known to who reads files of data, and SQLite ready: to be called before anybody
/// else uses it.
pub fn register() {
    if let Err(error) = raw::clock::register() {
        tracing::error!("no SQL: {error}");
    }
    keyspace::types::foreign::register(database::TYPE_NAME, serve::load);
}
