//! The lead: a request that comes alone is acknowledged by the thread that it came by.
//!
//! To hand a request to another thread and its answer back takes two wake-ups across cores, some
//! 35 us each, which is as much as a flush of the journal. Where many come at the same time the
//! handing over is shared, and worth it: one group is flushed while the next one is read.
//!
//! ```text
//!  handler: reserve, queue quietly, let the others of this turn come
//!     alone   --> journal, answer            (the thread waits for the disk)
//!                 who has come meanwhile?    (then the next ones are not alone)
//!     else    --> wake the journal's thread
//! ```
//!
//! **Invariant:** what was queued quietly is taken by the lead, or a thread is woken for it, also
//! when the handler is dropped.
//! **Invariant:** an event loop waits for a disk only if that was quick of late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use super::journal::{Between, Scribe};
use super::queue::{Queue, Work};

/// An event loop waits for the disk if it was not slower than this of late.
const QUICK: Duration = Duration::from_millis(1);

/// The slowest flush of late: each one that is quicker takes an eighth off.
#[derive(Debug)]
pub(super) struct Pace {
    nanoseconds: AtomicU64,
}

impl Default for Pace {
    /// Slow, until it is known better.
    fn default() -> Pace {
        Pace { nanoseconds: AtomicU64::new(QUICK.as_nanos() as u64 * 2) }
    }
}

impl Pace {
    /// A flush took so long.
    pub fn took(&self, time: Duration) {
        let slowest = self.nanoseconds.load(Ordering::Relaxed);
        let faded = slowest - slowest / 8;
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.store(time.max(faded), Ordering::Relaxed);
    }

    /// Whether the next one can be expected to be quick.
    pub fn is_quick(&self) -> bool {
        self.nanoseconds.load(Ordering::Relaxed) < QUICK.as_nanos() as u64
    }
}

/// Where those who lead meet the journal's thread.
pub(super) struct Pen {
    pub scribe: Arc<Mutex<Scribe>>,
    pub between: Arc<Between>,
    pub queue: Arc<Queue<Work>>,
}

impl Pen {
    /// Whether a request that comes now may be led: nobody else was there of late.
    pub fn is_free(&self) -> bool {
        self.between.crowd.is_lone() && self.between.pace.is_quick()
    }
}

/// A request that was queued and nobody was told of.
#[must_use]
pub struct Lead {
    pen: Arc<Pen>,
    is_settled: bool,
}

impl Lead {
    /// Of a request that was queued quietly just now.
    pub(super) fn new(pen: &Arc<Pen>) -> Lead {
        Lead { pen: Arc::clone(pen), is_settled: false }
    }

    /// Acknowledges the request if it is still the only one, else wakes a thread. To be called when
    /// what came together with it has been queued, too.
    pub fn go(&mut self) -> bool {
        self.is_settled = true;
        let is_led = self.try_alone();
        if !is_led {
            self.pen.queue.nudge();
        }
        is_led
    }

    fn try_alone(&self) -> bool {
        let Pen { scribe, between, queue } = &*self.pen;
        between.crowd.saw(queue.unfinished());
        if !between.crowd.is_lone() {
            return false;
        }
        let mut scribe = match scribe.try_lock() {
            Ok(scribe) => scribe,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(work) = queue.take_lone() else { return false };
        scribe.acknowledge(vec![work]);
        queue.finish(1);
        true
    }

    /// To be called when what has come while the disk was waited for was queued, too: then nobody
    /// is alone any more.
    pub fn look_around(&self) {
        self.pen.between.crowd.saw(1 + self.pen.queue.unfinished());
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_settled {
            self.pen.queue.nudge();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_flush_is_remembered_for_a_while() {
        let (pace, quick) = (Pace::default(), Duration::from_micros(100));
        let flushes_until_quick = || {
            let mut count = 0;
            while !pace.is_quick() {
                pace.took(quick);
                count += 1;
            }
            count
        };
        assert_eq!(flushes_until_quick(), 6);
        pace.took(Duration::from_millis(50));
        assert_eq!(flushes_until_quick(), 30);
    }
}
