//! The lead: a request that comes alone is acknowledged by the thread that it came by.
//!
//! To hand a request to another thread and its answer back takes two wake-ups across cores, some
//! 35 us each, which is as much as a flush of the journal. Where many come at the same time the
//! handing over is shared, and worth it: one group is stored while the next one is read.
//!
//! ```text
//!  handler: reserve, queue quietly, let the others of this turn come
//!     alone   --> journal, answer            (the thread waits for the disk)
//!                 who has come meanwhile?    (then the next ones are not alone)
//!             --> or its lane's database     (the thread goes on meanwhile)
//!     else    --> wake the journal's thread, or a writer
//! ```
//!
//! **Invariant:** what was queued quietly is taken by the lead, or a thread is woken for it, also
//! when the handler is dropped.
//! **Invariant:** an event loop waits for a disk only if that was quick of late.

use std::sync::{Arc, Mutex, TryLockError};

use super::journal::{Between, Scribe};
use super::lane::{Lanes, Task};
use super::queue::{Queue, Work};

/// An event loop waits for the disk if it was not slower than this of late, in microseconds.
const QUICK_US: u32 = 1000;

/// Where those who lead meet the journal's thread.
pub(super) struct Pen {
    pub scribe: Arc<Mutex<Scribe>>,
    pub between: Arc<Between>,
    pub queue: Arc<Queue<Work>>,
}

impl Pen {
    /// Whether a request that comes now may be led: nobody else was there of late.
    pub fn is_free(&self) -> bool {
        self.between.crowd.is_lone() && self.between.pace.cost_us() < QUICK_US
    }

    /// Acknowledges the one request that waits, if it is still the only one.
    fn acknowledge(&self) -> bool {
        let Pen { scribe, between, queue } = self;
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
}

/// Where a lone request may be acknowledged.
#[derive(Clone)]
pub(super) enum Place {
    Journal(Arc<Pen>),
    Lane(Arc<Lanes>),
}

impl Place {
    /// Whether a request that comes now may be led: nobody else was there of late.
    pub fn is_free(&self) -> bool {
        match self {
            Place::Journal(pen) => pen.is_free(),
            Place::Lane(lanes) => lanes.crowd.is_lone(),
        }
    }

    fn nudge(&self) {
        match self {
            Place::Journal(pen) => pen.queue.nudge(),
            Place::Lane(lanes) => lanes.queue.nudge(),
        }
    }
}

/// What became of a request that was led.
#[must_use]
pub enum Led {
    /// Another thread was woken for it.
    Elsewhere,
    /// It is answered. [`Lead::look_around`] is to be called when what has come meanwhile was
    /// queued.
    Here,
    /// The event loop is to run this; it goes on though nobody waits for the request any more.
    Task(Task),
}

/// A request that was queued and nobody was told of.
#[must_use]
pub struct Lead {
    place: Place,
    is_settled: bool,
}

impl Lead {
    /// Of a request that was queued quietly just now.
    pub(super) fn new(place: &Place) -> Lead {
        Lead { place: place.clone(), is_settled: false }
    }

    /// Acknowledges the request if it is still the only one, else wakes a thread. To be called when
    /// what came together with it has been queued, too.
    pub fn go(&mut self) -> Led {
        self.is_settled = true;
        match &self.place {
            Place::Journal(pen) if pen.acknowledge() => Led::Here,
            Place::Journal(pen) => {
                pen.queue.nudge();
                Led::Elsewhere
            }
            Place::Lane(lanes) => lanes.go().map_or(Led::Elsewhere, Led::Task),
        }
    }

    /// To be called when what has come while the disk was waited for was queued, too: then nobody
    /// is alone any more.
    pub fn look_around(&self) {
        if let Place::Journal(pen) = &self.place {
            pen.between.crowd.saw(1 + pen.queue.unfinished());
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_settled {
            self.place.nudge();
        }
    }
}
