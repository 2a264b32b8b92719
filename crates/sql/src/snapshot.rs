//! A database as it is at one instant, to be read beside whoever writes.
//!
//! ```text
//! on file    a connection of its own, with a reading transaction on SQLite's write-ahead log
//! in memory  a copy; an open transaction's changes are not in it
//! ```
//!
//! **Invariant:** what is read from a snapshot was committed, all of it at the same instant, and
//! nothing can be written to it.
//! **Bound:** a copy takes as much memory as its database; `sql-sessions-max` says how many.

use std::sync::Arc;

use commands::context::Background;

use crate::connection::Connection;
use crate::database::{Database, Lease};
use crate::error::Failure;
use crate::settings::settings;
use crate::{image, indexing};

/// Pins the instant: the first read of a transaction does.
const PIN: &str = "BEGIN; SELECT count(*) FROM sqlite_schema";

/// Takes a snapshot. To be called without any lock on keys: it may wait.
///
/// # Errors
/// SQLite's; [`Failure::Busy`] if the database is in use for too long.
pub fn take(
    database: &Arc<Database>,
    background: &dyn Background,
) -> Result<Box<Connection>, Failure> {
    indexing::refresh(database, background);
    catch_up(database)?;
    let mut connection = match database.path.as_deref() {
        Some(path) => {
            let mut connection = Connection::open_to_read(Some(path))?;
            image::recall(&mut connection)?;
            crate::files::attach_again(&mut connection)?;
            connection
        }
        None => {
            let lease = lease_to_read(database)?;
            let file = lease.handle.serialize()?;
            drop(lease);
            let mut connection = Connection::open_to_read(None)?;
            image::restore(&mut connection, &file)?;
            connection
        }
    };
    connection.handle.connection().execute_batch(PIN).map_err(crate::error::SqlError::from)?;
    connection.in_group = true;
    Ok(Box::new(connection))
}

/// Writes what is pending in the database's indexes.
///
/// # Errors
/// [`Failure::Busy`] if the database is in use for too long.
pub fn catch_up(database: &Arc<Database>) -> Result<(), Failure> {
    if database.indexes.pending() > 0 && !database.is_reserved() {
        let lease = database.lease_within(settings().timeout_ms());
        let record = indexing::catch_up(&mut lease.ok_or(Failure::Busy)?);
        record.into_iter().for_each(|record| database.leave(record));
    }
    Ok(())
}

/// The writing connection with what is committed in it, to be copied. To be called without any lock
/// on keys: it may wait.
///
/// # Errors
/// [`Failure::Busy`] if the database is in use for too long.
pub fn lease_to_read(database: &Arc<Database>) -> Result<Lease, Failure> {
    // A transaction may stay open for long: it lends what was there before it.
    let lease = if database.is_reserved() {
        database.urgent_lease()
    } else {
        database.lease_within(settings().timeout_ms())
    };
    lease.ok_or(Failure::Busy)
}
