//! The fence at the start: a server that was killed may have left a transaction that its database
//! still works on, or has not even read yet. Counters that were loaded before its end would be too
//! low for ever after.
//!
//! Each connection that stores records holds a lock that ends with the database's own end of the
//! connection, which comes after the last word that was sent over it. A new server waits until
//! all of those locks are free. SQLite needs none: what is killed takes its transactions along.
//!
//! **Invariant:** nobody waits for longer than [`WAIT`]: somebody who is alive may hold a lock.

use std::time::{Duration, Instant};

use super::writer::Committer;
use crate::database::{Database, DatabaseError, Dialect, Value};

/// How long a start waits for what is left of the server before it.
const WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);
/// The first half of PostgreSQL's lock number; the second is 0. Any number that nobody else uses.
const POSTGRES_CLASS: i64 = 0x0f0e_ba1f;
/// Connections of a server that store; MySQL has a lock for each. First the writers' (256 by their
/// option), then those of HTTP threads (256), then those that find out how a transaction ended.
const MARKS: usize = RESCUE_MARK + RESCUE_MARKS;
/// The first mark of an HTTP thread.
pub(super) const LANE_MARK: usize = 256;
/// The first mark of a rescuer, and how many there are: they are taken in turn.
pub(super) const RESCUE_MARK: usize = 512;
pub(super) const RESCUE_MARKS: usize = 64;

/// MySQL's locks are the whole server's; a database's own begin with this.
const MYSQL_NAME: &str = "CONCAT('fb.quota.', MD5(DATABASE()), '.', ?)";

/// The query that marks a connection as one that stores records, `index` of its server. That
/// somebody else has the mark does no harm.
pub(super) fn mark(dialect: Dialect, index: usize) -> Option<(String, Vec<Value>)> {
    match dialect {
        Dialect::Sqlite => None,
        Dialect::Postgres => {
            let sql = format!("SELECT pg_try_advisory_lock_shared({POSTGRES_CLASS}, 0)");
            Some((sql, Vec::new()))
        }
        Dialect::Mysql => {
            let sql = format!("SELECT GET_LOCK({MYSQL_NAME}, 0)");
            Some((sql, vec![Value::Int(index as i64)]))
        }
    }
}

/// Marks a connection.
pub(super) fn hold(database: &mut dyn Database, index: usize) -> Result<(), DatabaseError> {
    match mark(database.dialect(), index) {
        Some((sql, values)) => database.query(&sql, &values).map(drop),
        None => Ok(()),
    }
}

/// Whether no other connection is marked.
fn is_free(database: &mut dyn Database) -> Result<bool, DatabaseError> {
    match database.dialect() {
        Dialect::Sqlite => Ok(true),
        Dialect::Postgres => {
            let sql = format!(
                "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' \
                 AND classid = {POSTGRES_CLASS} AND objid = 0 AND pid <> pg_backend_pid() \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            );
            Ok(database.query(&sql, &[])?.first().is_none_or(|row| row[0].int() == 0))
        }
        Dialect::Mysql => {
            let one = |index: usize| {
                format!("IS_USED_LOCK({})", MYSQL_NAME.replace('?', &index.to_string()))
            };
            let all: Vec<String> = (0..MARKS).map(one).collect();
            let sql = format!("SELECT COALESCE({}, 0)", all.join(", "));
            Ok(database.query(&sql, &[])?.first().is_none_or(|row| row[0].int() == 0))
        }
    }
}

/// Waits for the end of what a server before this one was storing.
pub(super) fn wait_for_the_dead(database: &mut dyn Database) -> Result<(), DatabaseError> {
    let until = Instant::now() + WAIT;
    let mut is_told = false;
    while !is_free(database)? {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("quota: another server's connections are still open; waiting for them");
        }
        if Instant::now() > until {
            tracing::warn!(
                "quota: another server stores in this database; each has counters of its own"
            );
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl Committer {
    /// Marks its connections as ones that store records.
    pub(super) fn marked(mut self, index: usize) -> Committer {
        self.mark = Some(index);
        self
    }
}
