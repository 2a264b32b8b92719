//! The last changes of a table by this service: what the changed row was before and after.
//!
//! ```text
//!   version   41      42      43      44      45
//!             known   known   -       known   known      current = 45
//!                             somebody else's, or one of which too little is known
//!
//!   an answer that was right at 43 is right at 45 if 44 and 45 cannot touch it;
//!   of one that was right at 42 nobody knows
//! ```
//!
//! **Invariant:** a version is here only if exactly this change made it: one row, before and after.
//! What is not here may have been anything; nothing here is no sign that nothing has changed.

use std::collections::BTreeMap;

use crate::database::{Row, Value};

/// Changes that are remembered of a table. An answer that is not asked for during so many changes
/// of its table is read anew: at a hundred changes a second it has not been asked for in 5 seconds.
pub const CHANGES_MAX: usize = 512;
/// Their bytes: 512 changes of rows of 500 bytes each.
pub const BYTES_MAX: usize = 512 << 10;

/// A change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The row as it was; none if it is new.
    pub before: Option<Row>,
    /// The row as it is; none if it is gone.
    pub after: Option<Row>,
}

impl Touched {
    /// Both rows, as far as they are there.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.before.iter().chain(&self.after)
    }

    fn bytes(&self) -> usize {
        let value = |value: &Value| {
            let text = match value {
                Value::Text(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            size_of::<Value>() + text
        };
        size_of::<Touched>() + self.rows().flatten().map(value).sum::<usize>()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Recent {
    changes: BTreeMap<i64, Touched>,
    bytes: usize,
}

impl Recent {
    /// Remembers the change that made a version; others go if there is no room.
    pub fn add(&mut self, version: i64, touched: Touched) {
        if self.changes.contains_key(&version) {
            // The same version twice: the database has gone back, and of which past these are is
            // not known.
            return self.clear();
        }
        self.bytes += touched.bytes();
        self.changes.insert(version, touched);
        while self.changes.len() > CHANGES_MAX || self.bytes > BYTES_MAX {
            let Some((_, oldest)) = self.changes.pop_first() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Recent::default();
    }

    /// Whether every change after version `from` up to `to` is known and is like that.
    pub fn all(&self, from: i64, to: i64, mut is: impl FnMut(&Touched) -> bool) -> bool {
        let Some(count) = to.checked_sub(from).and_then(|count| usize::try_from(count).ok()) else {
            return false;
        };
        if count == 0 || count > self.changes.len() {
            return count == 0;
        }
        let known = self.changes.range(from + 1..=to);
        // Each version is here once: so many are all of them.
        known.clone().count() == count && known.into_iter().all(|(_, touched)| is(touched))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(len: usize) -> Touched {
        Touched { before: None, after: Some(vec![Value::from("x".repeat(len))]) }
    }

    #[test]
    fn a_gap_is_no_knowledge() {
        let mut recent = Recent::default();
        assert!(recent.all(7, 7, |_| false), "nothing has changed");
        assert!(!recent.all(6, 7, |_| true), "nothing is known, as after a restart");
        // Changes become known in any order.
        for version in [5, 4, 7] {
            recent.add(version, touched(1));
        }
        assert!(recent.all(3, 5, |_| true) && recent.all(6, 7, |_| true));
        assert!(!recent.all(3, 7, |_| true), "6 was somebody else's");
        assert!(!recent.all(2, 5, |_| true) && !recent.all(6, 8, |_| true));
        assert!(!recent.all(3, 5, |_| false));
        assert!(!recent.all(7, 6, |_| true) && !recent.all(i64::MIN, i64::MAX, |_| true));
    }

    #[test]
    fn room_is_bounded_and_the_oldest_go() {
        let mut recent = Recent::default();
        for version in 1..=CHANGES_MAX as i64 + 10 {
            recent.add(version, touched(1));
        }
        let last = CHANGES_MAX as i64 + 10;
        assert_eq!(recent.changes.len(), CHANGES_MAX);
        assert!(recent.all(10, last, |_| true) && !recent.all(9, last, |_| true));
        recent.add(last + 1, touched(BYTES_MAX - 1000));
        assert!(recent.bytes <= BYTES_MAX && !recent.changes.is_empty());
        assert!(recent.all(last, last + 1, |_| true));
        recent.add(last + 2, touched(BYTES_MAX));
        assert!(recent.changes.is_empty() && recent.bytes == 0);
        assert!(!recent.all(last + 1, last + 2, |_| true));
    }

    #[test]
    fn a_version_that_comes_twice_is_another_past() {
        let mut recent = Recent::default();
        recent.add(4, touched(1));
        recent.add(5, touched(1));
        recent.add(5, touched(2));
        assert!(!recent.all(3, 5, |_| true) && !recent.all(4, 5, |_| true));
        recent.add(6, touched(1));
        assert!(recent.all(5, 6, |_| true) && !recent.all(4, 6, |_| true));
    }
}
