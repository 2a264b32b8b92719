//! What is known of a table's version: the number that every committed change of the table raises,
//! in the change's own transaction, whoever makes it.
//!
//! An answer is labelled with the version in the snapshot that it was read from. A list is good
//! while its label is the newest version known, or every later one is known to be a change of ours
//! that cannot touch it ([`super::recent`]). One row is good while every later version is known to
//! be a change of ours to another row.
//!
//! **Invariant:** whoever has been told of version v (by a write, or an answer labelled v) has
//! raised `current` to v before, so that nobody is served an older answer afterwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::recent::{Recent, Touched};
use crate::database::Value;

/// Rows that our changes are remembered of; beyond, all rows count as changed.
const ROWS_MAX: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Versions {
    current: AtomicI64,
    rows: Mutex<Rows>,
    /// How often the database has gone back.
    era: AtomicU64,
    recent: RwLock<Recent>,
}

#[derive(Debug, Default)]
struct Rows {
    /// Up to here each version is either at or below `floor`, or a change of a row in `last`.
    accounted: i64,
    /// Anything may have changed at this version or before.
    floor: i64,
    /// The last change of each row since then.
    last: HashMap<Value, i64>,
}

impl Versions {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The newest version known.
    pub fn current(&self) -> i64 {
        self.current.load(Ordering::Acquire)
    }

    /// Somebody saw this version; whether it is news.
    pub fn saw(&self, version: i64) -> bool {
        self.current.fetch_max(version, Ordering::AcqRel) < version
    }

    /// We changed a row, and that was this version.
    pub fn wrote(&self, row: &Value, version: i64) {
        let mut rows = self.rows();
        if version == rows.accounted + 1 && rows.last.len() < ROWS_MAX {
            rows.last.insert(row.clone(), version);
        } else {
            rows.floor = rows.floor.max(version);
            rows.last.clear();
        }
        rows.accounted = rows.accounted.max(version);
        // Under the lock: who sees the version finds it accounted for.
        self.saw(version);
    }

    /// In which of the database's pasts we are: another one after each [`Versions::reset`].
    pub fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Exactly this change made this version; it was begun in this era. To be told before
    /// [`Versions::wrote`], so that who sees the version finds the change.
    pub fn touched(&self, version: i64, touched: Touched, era: u64) {
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        if era == self.era() {
            recent.add(version, touched);
        }
    }

    /// Whether all that has changed after version `from` up to `to` is known and is like that.
    pub fn only(&self, from: i64, to: i64, is: impl FnMut(&Touched) -> bool) -> bool {
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        recent.all(from, to, is)
    }

    /// The database has gone back, as after a restore: what is known is worth nothing.
    pub fn reset(&self, version: i64) {
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        self.era.fetch_add(1, Ordering::AcqRel);
        recent.clear();
        drop(recent);
        let mut rows = self.rows();
        *rows = Rows { accounted: version, floor: version, last: HashMap::new() };
        self.current.store(version, Ordering::Release);
    }

    /// Whether a list with this label is good.
    pub fn is_list_good(&self, label: i64) -> bool {
        label == self.current()
    }

    /// Whether a row, or that it is not there, with this label is good.
    pub fn is_row_good(&self, row: &Value, label: i64) -> bool {
        if self.is_list_good(label) {
            return true;
        }
        let rows = self.rows();
        let current = self.current();
        label <= current
            && current <= rows.accounted
            && label >= rows.floor
            && rows.last.get(row).is_none_or(|changed| label >= *changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_outlive_changes_of_other_rows() {
        let versions = Versions::default();
        let (a, b) = (Value::from("a"), Value::from("b"));
        versions.reset(4);
        assert!(versions.is_row_good(&a, 4) && versions.is_list_good(4));
        versions.wrote(&b, 5);
        assert!(versions.is_row_good(&a, 4) && !versions.is_list_good(4));
        assert!(!versions.is_row_good(&b, 4) && versions.is_row_good(&b, 5));
        // Somebody else changed we do not know what.
        assert!(versions.saw(6) && !versions.saw(6));
        assert!(!versions.is_row_good(&a, 4) && versions.is_row_good(&a, 6));
        versions.wrote(&b, 7);
        assert!(!versions.is_row_good(&a, 4) && !versions.is_row_good(&a, 6));
        assert!(versions.is_row_good(&a, 7));
        versions.reset(2);
        assert!(!versions.is_list_good(7) && !versions.is_row_good(&a, 7));
    }

    #[test]
    fn a_change_of_a_past_that_was_undone_is_not_remembered() {
        let versions = Versions::default();
        let touched = || Touched { before: None, after: None };
        versions.reset(4);
        versions.touched(5, touched(), versions.era());
        assert!(versions.only(4, 5, |_| true) && !versions.only(4, 5, |_| false));
        // Begun before the database went back, told after it.
        let era = versions.era();
        versions.reset(3);
        assert!(!versions.only(4, 5, |_| true));
        versions.touched(4, touched(), era);
        assert!(!versions.only(3, 4, |_| true));
        versions.touched(4, touched(), versions.era());
        assert!(versions.only(3, 4, |_| true));
    }
}
