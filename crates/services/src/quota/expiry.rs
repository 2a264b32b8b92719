//! Old rows: answers kept for requests that come again, and numbers of transactions whose writer
//! cannot come back. Deleted at the desk, some at a time.
//!
//! **Invariant:** a number of a journal's transaction stays until that journal is emptied: it may
//! be sent again after any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::service::Service;
use crate::database::{Database, DatabaseError, Statement, Value};

/// Rows that are deleted at once, about.
const ROWS_MAX: i64 = 1000;
/// Where there was nothing more to delete, it is looked again after so long.
const PAUSE_MS: i64 = 60_000;
/// Writers know the end of their transactions after so long, or are gone.
const NUMBERS_KEPT_MS: i64 = 86_400_000;

impl Service {
    /// Deletes some old rows, if it is time to.
    pub(super) fn expire(self: &Arc<Self>, now_ms: i64) {
        if now_ms < self.expire_next_ms.load(Ordering::Relaxed) {
            return;
        }
        self.expire_next_ms.store(now_ms + PAUSE_MS, Ordering::Relaxed);
        let service = Arc::clone(self);
        self.at_desk(move |database| {
            let kept_ms = service.settings.kept_ms;
            match database.and_then(|database| expire(database, now_ms, kept_ms)) {
                Ok(true) => service.expire_next_ms.store(now_ms, Ordering::Relaxed),
                Ok(false) => {}
                Err(error) => tracing::warn!("quota: old rows are not deleted: {error}"),
            }
        });
    }
}

/// Deletes some old rows; whether there may be more.
pub(super) fn expire(
    database: &mut dyn Database,
    now_ms: i64,
    kept_ms: i64,
) -> Result<bool, DatabaseError> {
    let answers = delete(database, "quota_idempotency", "at_ms < ?", now_ms - kept_ms)?;
    let mine = "at_ms < ? AND writer NOT LIKE 'journal-%'";
    let numbers = delete(database, "quota_batch", mine, now_ms - NUMBERS_KEPT_MS)?;
    Ok(answers || numbers)
}

/// Deletes the oldest of these rows; whether there may be more.
fn delete(
    database: &mut dyn Database,
    table: &str,
    which: &str,
    before_ms: i64,
) -> Result<bool, DatabaseError> {
    // No product's DELETE has the LIMIT of the others: the moment of the last row is asked first.
    let sql = format!(
        "SELECT COUNT(*), MAX(at_ms) FROM \
         (SELECT at_ms FROM {table} WHERE {which} ORDER BY at_ms LIMIT {ROWS_MAX}) AS oldest"
    );
    let rows = database.query(&sql, &[before_ms.into()])?;
    let [count, last_ms] = [0, 1].map(|index| rows.first().map_or(0, |row| row[index].int()));
    if count == 0 {
        return Ok(false);
    }
    let sql = format!("DELETE FROM {table} WHERE {which}");
    database.transact(&[Statement::run(sql, vec![Value::Int(last_ms + 1)])])?;
    Ok(count >= ROWS_MAX)
}
