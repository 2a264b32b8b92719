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
    jobs: VecDeque<Job>,
    rows: usize,
    is_closed: bool,
    /// Threads that wait for something to come.
    waiting: usize,
    /// How many came, and how many of them are done with.
    came: u64,
    finished: u64,
    /// Who is to be told when so many are done with.
    watchers: Vec<(u64, Watcher)>,
}

/// Told once that something is done.
pub type Watcher = Box<dyn FnOnce() + Send>;

/// See the module.
pub struct Queue<W> {
    line: Mutex<Line<W>>,
    came: Condvar,
    rows_max: usize,
}

impl<W: Rows> Queue<W> {
    /// A queue of so many rows at most.
    pub fn new(rows_max: usize) -> Queue<W> {
        let (works, jobs) = (VecDeque::new(), VecDeque::new());
        let line = Line {
            works,
            jobs,
            rows: 0,
            is_closed: false,
            waiting: 0,
            came: 0,
            finished: 0,
            watchers: Vec::new(),
        };
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
        line.came += 1;
        line.works.push_back(work);
        self.wake(line);
        Ok(())
    }

    /// Adds something though there may be no room: what was promised already.
    pub fn push_anyway(&self, work: W) {
        let mut line = self.lock();
        line.rows += work.rows();
        line.came += 1;
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
                return Group::Jobs(std::mem::take(&mut line.jobs).into());
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

    /// Takes the next job alone, so that others can take those behind it; none when the queue is
    /// closed.
    pub fn take_job(&self) -> Option<Job> {
        let mut line = self.lock();
        loop {
            if let Some(job) = line.jobs.pop_front() {
                return Some(job);
            }
            if line.is_closed {
                return None;
            }
            line.waiting += 1;
            line = self.came.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner());
            line.waiting -= 1;
        }
    }

    /// Takes out those for which this is true; they are done with.
    pub fn take_out(&self, is_over: impl Fn(&W) -> bool) -> Vec<W> {
        let mut line = self.lock();
        let line = &mut *line;
        let first = line.came - line.works.len() as u64;
        let mut over = Vec::new();
        for (place, work) in (first..).zip(std::mem::take(&mut line.works)) {
            if !is_over(&work) {
                line.works.push_back(work);
                continue;
            }
            // As if it had never come: those behind it move up.
            let gone = over.len() as u64;
            let behind = line.watchers.iter_mut().filter(|(count, _)| *count > place - gone);
            behind.for_each(|(count, _)| *count -= 1);
            over.push(work);
        }
        line.came -= over.len() as u64;
        line.rows -= over.iter().map(Rows::rows).sum::<usize>();
        over
    }

    /// Says that so many of those that were taken are done with.
    pub fn finish(&self, count: usize) {
        let mut line = self.lock();
        line.finished += count as u64;
        let finished = line.finished;
        let all = std::mem::take(&mut line.watchers);
        let (done, waiting): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(count, _)| *count <= finished);
        line.watchers = waiting;
        drop(line);
        done.into_iter().for_each(|(_, watcher)| watcher());
    }

    /// Calls back when all that has come before is done with; at once if it is.
    pub fn when_finished(&self, watcher: Watcher) {
        let mut line = self.lock();
        if line.finished < line.came {
            let came = line.came;
            return line.watchers.push((came, watcher));
        }
        drop(line);
        watcher();
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
        line.jobs.push_back(job);
        self.wake(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    impl Rows for u32 {
        fn rows(&self) -> usize {
            1
        }
    }

    #[test]
    fn jobs_are_taken_one_by_one_until_the_end() {
        let queue = Queue::<u32>::new(0);
        let told = Arc::new(AtomicU32::new(0));
        for bit in [1, 2] {
            let told = Arc::clone(&told);
            queue.job(Box::new(move |_| {
                told.fetch_or(bit, Ordering::Relaxed);
            }));
        }
        queue.close();
        let lost = || Err(DatabaseError::Lost(String::new()));
        queue.take_job().expect("the first")(lost());
        assert_eq!(told.load(Ordering::Relaxed), 1);
        queue.take_job().expect("what came before the end is done")(lost());
        assert_eq!(told.load(Ordering::Relaxed), 3);
        assert!(queue.take_job().is_none());
    }

    #[test]
    fn watchers_are_told_when_what_came_before_is_done() {
        let (queue, told) = (Queue::<u32>::new(100), Arc::new(AtomicU32::new(0)));
        let watch = |bit: u32| {
            let told = Arc::clone(&told);
            queue.when_finished(Box::new(move || {
                told.fetch_or(bit, Ordering::Relaxed);
            }));
        };
        let seen = || told.load(Ordering::Relaxed);
        watch(1);
        assert_eq!(seen(), 1);
        for work in 0..4 {
            assert!(queue.push(work).is_ok());
        }
        watch(2);
        assert!(queue.push(4).is_ok());
        watch(4);
        let Group::Works(works) = queue.take(2, 1, Duration::ZERO) else { panic!("works") };
        assert_eq!(works, [0, 1]);
        // Two that wait are taken out, one before each watcher.
        assert_eq!(queue.take_out(|work| *work == 3 || *work == 4), [3, 4]);
        queue.finish(2);
        assert_eq!(seen(), 1);
        let Group::Works(works) = queue.take(2, 1, Duration::ZERO) else { panic!("works") };
        assert_eq!(works, [2]);
        queue.finish(1);
        assert_eq!(seen(), 7);
    }
}
