//! How long SQL may run where it runs: counted in steps of SQLite's machine, in time, or until
//! somebody cancels it.
//!
//! **Invariant:** the count is looked at every [`TICK`] steps, so nothing runs longer than its
//! budget by more than the longest run of so many steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// Steps between two looks.
pub const TICK: i32 = 500;

/// Why SQL was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It was not.
    No,
    /// Its steps were spent.
    Steps,
    /// Its time was over.
    Time,
    /// Somebody asked for it.
    Cancelled,
    /// Somebody needs the connection for a moment: it may begin again after.
    Yielded,
}

/// See the module. Set by who runs, read as it runs, cancelled by anybody.
pub struct Budget {
    base: Instant,
    ticks: AtomicI64,
    /// Milliseconds since `base`; `u64::MAX` for never.
    deadline_ms: AtomicU64,
    is_cancelled: AtomicBool,
    /// Those who wait for the connection while they hold keys, to read an image.
    urgent: AtomicI64,
    /// What runs can be undone and begin again.
    may_yield: AtomicBool,
    stopped: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            base: Instant::now(),
            ticks: AtomicI64::new(i64::MAX),
            deadline_ms: AtomicU64::new(u64::MAX),
            is_cancelled: AtomicBool::new(false),
            urgent: AtomicI64::new(0),
            may_yield: AtomicBool::new(false),
            stopped: AtomicU64::new(0),
        }
    }
}

impl Budget {
    /// Allows so many ticks, and so much time if any is given.
    pub fn allow(&self, ticks: i64, time_ms: Option<u64>) {
        self.ticks.store(ticks, Ordering::Relaxed);
        let deadline = time_ms.map_or(u64::MAX, |ms| self.base.elapsed().as_millis() as u64 + ms);
        self.deadline_ms.store(deadline, Ordering::Relaxed);
        self.stopped.store(0, Ordering::Relaxed);
        self.is_cancelled.store(false, Ordering::Relaxed);
        self.may_yield.store(false, Ordering::Relaxed);
    }

    /// Says that what runs now can be undone and begin again, when somebody is in a hurry.
    pub fn allow_yield(&self) {
        self.may_yield.store(true, Ordering::Relaxed);
    }

    /// Adds to those who are in a hurry.
    pub fn add_urgent(&self, more: i64) {
        self.urgent.fetch_add(more, Ordering::AcqRel);
    }

    /// Whether anybody is in a hurry.
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire) > 0
    }

    /// Stops what runs now.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// One look: true to stop.
    fn tick(&self) -> bool {
        let left = self.ticks.load(Ordering::Relaxed) - 1;
        self.ticks.store(left, Ordering::Relaxed);
        let why = if left < 0 {
            Stopped::Steps
        } else if self.is_cancelled.load(Ordering::Relaxed) {
            Stopped::Cancelled
        } else if self.may_yield.load(Ordering::Relaxed) && self.is_urgent() {
            Stopped::Yielded
        } else {
            let deadline = self.deadline_ms.load(Ordering::Relaxed);
            if deadline == u64::MAX || (self.base.elapsed().as_millis() as u64) < deadline {
                return false;
            }
            Stopped::Time
        };
        self.stopped.store(why as u64, Ordering::Relaxed);
        true
    }

    /// Sets why it was stopped: what was done since to tidy up does not count.
    pub fn note(&self, stopped: Stopped) {
        self.stopped.store(stopped as u64, Ordering::Relaxed);
    }

    /// Why it was stopped, if it was.
    pub fn stopped(&self) -> Stopped {
        let all =
            [Stopped::No, Stopped::Steps, Stopped::Time, Stopped::Cancelled, Stopped::Yielded];
        all[self.stopped.load(Ordering::Relaxed) as usize]
    }

    /// Has a connection look at the budget.
    ///
    /// # Errors
    /// SQLite's.
    pub fn watch(
        self: &Arc<Self>,
        connection: &mut rusqlite::Connection,
    ) -> Result<(), rusqlite::Error> {
        let budget = Arc::clone(self);
        connection.progress_handler(TICK, Some(move || budget.tick()))
    }
}
