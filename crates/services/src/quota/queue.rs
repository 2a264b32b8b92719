//! What waits for a thread with a connection: requests with something reserved, and jobs that must
//! run between its transactions. Bounded by rows; what finds it full is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::answer::{Outcome, Usage, Verdict};
use super::caller::Caller;
use super::event::Event;
use crate::database::{Database, DatabaseError};

/// Takes the outcome of a request; called once, from any thread.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// A job for a thread's connection, or for the case that there is none. It does its own answering.
pub type Job = Box<dyn FnOnce(Result<&mut dyn Database, DatabaseError>) + Send>;

/// One record of a request.
pub struct Item {
    /// What it says; none if it makes no sense.
    pub event: Option<Event>,
    /// What becomes of it, as far as it is known.
    pub verdict: Verdict,
    /// What it costs.
    pub cost: i64,
    /// Whether that is reserved.
    pub is_charged: bool,
    /// The start of the period it is charged to.
    pub period_ms: i64,
}

/// A request's idempotency key and what tells its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// As the client sent it.
    pub key: String,
    /// A digest of the content.
    pub fingerprint: String,
}

/// A request that waits to be stored.
pub struct Work {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// Its records.
    pub items: Vec<Item>,
    /// Its idempotency key, if it has one.
    pub idempotency: Option<Idempotency>,
    /// Where the organisation stands.
    pub usage: Usage,
    /// When it came, in milliseconds since 1970.
    pub received_ms: i64,
    /// After this moment it is refused if it is still waiting.
    pub deadline: Instant,
    /// Takes the outcome.
    pub done: Done,
}

/// Something that becomes rows.
pub trait Rows {
    /// How many, at most.
    fn rows(&self) -> usize;
}

impl Rows for Work {
    fn rows(&self) -> usize {
        self.items.len()
    }
}

impl Work {
    /// Whether the database must be asked what it knows of this already.
    pub fn needs_look(&self) -> bool {
        self.idempotency.is_some() || self.items.iter().any(|item| item.key().is_some())
    }
}

impl Item {
    /// What tells copies of its event, if it says.
    pub fn key(&self) -> Option<&str> {
        self.event.as_ref()?.event_key.as_deref()
    }
}

/// What the writer is given.
pub enum Group<W> {
    /// Jobs to be run one by one.
    Jobs(Vec<Job>),
    /// To be stored together.
    Works(Vec<W>),
    /// Nothing more will come.
    End,
}

struct Line<W> {
    works: VecDeque<W>,
    jobs: Vec<Job>,
    rows: usize,
    is_closed: bool,
    /// Threads that wait for something to come.
    waiting: usize,
}

/// See the module.
pub struct Queue<W> {
    line: Mutex<Line<W>>,
    came: Condvar,
    rows_max: usize,
}

impl<W: Rows> Queue<W> {
    /// A queue of so many rows at most.
    pub fn new(rows_max: usize) -> Queue<W> {
        let (works, jobs) = (VecDeque::new(), Vec::new());
        let line = Line { works, jobs, rows: 0, is_closed: false, waiting: 0 };
        Queue { line: Mutex::new(line), came: Condvar::new(), rows_max }
    }

    fn lock(&self) -> MutexGuard<'_, Line<W>> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a request; gives it back if there is no room, or no writer any more.
    pub fn push(&self, work: W) -> Result<(), Box<W>> {
        let mut line = self.lock();
        if line.is_closed || line.rows + work.rows() > self.rows_max {
            return Err(Box::new(work));
        }
        line.rows += work.rows();
        line.works.push_back(work);
        self.wake(line);
        Ok(())
    }

    /// Adds something though there may be no room: what was promised already.
    pub fn push_anyway(&self, work: W) {
        let mut line = self.lock();
        line.rows += work.rows();
        line.works.push_back(work);
        self.wake(line);
    }

    fn wake(&self, line: MutexGuard<'_, Line<W>>) {
        let waiting = line.waiting;
        drop(line);
        if waiting > 0 {
            self.came.notify_one();
        }
    }

    /// Takes the next jobs, or requests of `rows_max` rows together (one request at least). Where
    /// fewer than `hoped` requests are there, waits for them up to `linger`.
    pub fn take(&self, rows_max: usize, hoped: usize, linger: Duration) -> Group<W> {
        let mut line = self.lock();
        let mut until = None;
        loop {
            if !line.jobs.is_empty() {
                return Group::Jobs(std::mem::take(&mut line.jobs));
            }
            let is_enough = line.works.len() >= hoped || line.rows >= rows_max || line.is_closed;
            if !line.works.is_empty() && is_enough {
                break;
            }
            if line.is_closed {
                return Group::End;
            }
            line.waiting += 1;
            if line.works.is_empty() {
                line = self.came.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner());
            } else {
                let until = *until.get_or_insert_with(|| Instant::now() + linger);
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    line.waiting -= 1;
                    break;
                }
                let waited = self.came.wait_timeout(line, left);
                line = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
            line.waiting -= 1;
        }
        let mut works = Vec::new();
        let mut rows = 0;
        while let Some(work) = line.works.front() {
            if !works.is_empty() && rows + work.rows() > rows_max {
                break;
            }
            rows += work.rows();
            works.extend(line.works.pop_front());
        }
        line.rows -= rows;
        Group::Works(works)
    }

    /// Takes out those for which this is true.
    pub fn take_out(&self, is_over: impl Fn(&W) -> bool) -> Vec<W> {
        let mut line = self.lock();
        let (over, on): (Vec<W>, Vec<W>) =
            std::mem::take(&mut line.works).into_iter().partition(|work| is_over(work));
        line.works = on.into();
        line.rows -= over.iter().map(Rows::rows).sum::<usize>();
        over
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lock().works.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.lock().rows
    }

    /// Lets the writer finish what is there, and takes nothing more.
    pub fn close(&self) {
        let mut line = self.lock();
        line.is_closed = true;
        drop(line);
        self.came.notify_all();
    }
}

/// Takes jobs for a thread.
pub trait Jobs: Send + Sync {
    /// Adds a job, ahead of all that waits.
    fn job(&self, job: Job);
}

impl<W: Rows + Send> Jobs for Queue<W> {
    fn job(&self, job: Job) {
        let mut line = self.lock();
        line.jobs.push(job);
        self.wake(line);
    }
}
