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
    idle: usize,
    /// What the one thread that has found too little waits for.
    wanted: Option<Wanted>,
    /// How many came, and how many of them are done with.
    came: u64,
    finished: u64,
    /// Who is to be told when so many are done with.
    watchers: Vec<(u64, Watcher)>,
}

/// How much makes a group: so many requests, or rows of them.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    works: usize,
    rows: usize,
}

impl<W> Line<W> {
    /// Whether there is so much, or will be no more.
    fn has(&self, wanted: Wanted) -> bool {
        self.works.len() >= wanted.works || self.rows >= wanted.rows || self.is_closed
    }
}

/// Told once that something is done.
pub type Watcher = Box<dyn FnOnce() + Send>;

/// See the module.
pub struct Queue<W> {
    line: Mutex<Line<W>>,
    /// For threads that have nothing to do.
    came: Condvar,
    /// For the one that waits for more.
    enough: Condvar,
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
            idle: 0,
            wanted: None,
            came: 0,
            finished: 0,
            watchers: Vec::new(),
        };
        let (came, enough) = (Condvar::new(), Condvar::new());
        Queue { line: Mutex::new(line), came, enough, rows_max }
    }

    fn lock(&self) -> MutexGuard<'_, Line<W>> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a request; gives it back if there is no room, or no writer any more.
    pub fn push(&self, work: W) -> Result<(), Box<W>> {
        let line = self.add(work)?;
        self.wake(line);
        Ok(())
    }

    /// The same without waking a thread: [`Queue::nudge`] or [`Queue::take_lone`] has to follow.
    pub fn push_quietly(&self, work: W) -> Result<(), Box<W>> {
        self.add(work).map(drop)
    }

    fn add(&self, work: W) -> Result<MutexGuard<'_, Line<W>>, Box<W>> {
        let mut line = self.lock();
        if line.is_closed || line.rows + work.rows() > self.rows_max {
            return Err(Box::new(work));
        }
        line.rows += work.rows();
        line.came += 1;
        line.works.push_back(work);
        Ok(line)
    }

    /// Wakes a thread if something waits.
    pub fn nudge(&self) {
        let line = self.lock();
        if !line.works.is_empty() {
            self.wake(line);
        }
    }

    /// Takes the one request that waits, if there is one only and none is being worked on.
    pub fn take_lone(&self) -> Option<W> {
        let mut line = self.lock();
        if line.came - line.finished != 1 {
            return None;
        }
        let work = line.works.pop_front()?;
        line.rows -= work.rows();
        Some(work)
    }

    /// Adds something though there may be no room: what was promised already.
    pub fn push_anyway(&self, work: W) {
        let mut line = self.lock();
        line.rows += work.rows();
        line.came += 1;
        line.works.push_back(work);
        self.wake(line);
    }

    /// Wakes a thread if what has just come is something to do for one.
    fn wake(&self, line: MutexGuard<'_, Line<W>>) {
        let (idle, wanted) = (line.idle, line.wanted);
        let is_enough = wanted.is_some_and(|wanted| line.has(wanted) || !line.jobs.is_empty());
        drop(line);
        if is_enough {
            self.enough.notify_one();
        } else if wanted.is_none() && idle > 0 {
            self.came.notify_one();
        }
    }

    /// Takes the next jobs, or requests of `rows_max` rows together (one request at least). Where
    /// fewer than `hoped` requests are there, waits for them up to `linger`: one thread at a time,
    /// which is not woken before they are there.
    pub fn take(&self, rows_max: usize, hoped: usize, linger: Duration) -> Group<W> {
        let wanted = Wanted { works: hoped, rows: rows_max };
        let mut line = self.lock();
        let mut has_lingered = false;
        let group = loop {
            if !line.jobs.is_empty() {
                break Group::Jobs(std::mem::take(&mut line.jobs).into());
            }
            let is_free = line.wanted.is_none() || line.is_closed;
            if is_free && !line.works.is_empty() {
                if line.has(wanted) || has_lingered {
                    break Group::Works(take_rows(&mut line, rows_max));
                }
                line = self.linger(line, wanted, linger);
                has_lingered = true;
            } else if is_free && line.is_closed {
                break Group::End;
            } else {
                line.idle += 1;
                line = self.came.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner());
                line.idle -= 1;
            }
        };
        // Nobody was woken for what came while this one waited for more.
        let is_left = has_lingered && line.idle > 0 && !line.works.is_empty();
        drop(line);
        if is_left {
            self.came.notify_one();
        }
        group
    }

    /// Waits until there is enough, or a job, for so long at most.
    fn linger<'l>(
        &self,
        mut line: MutexGuard<'l, Line<W>>,
        wanted: Wanted,
        linger: Duration,
    ) -> MutexGuard<'l, Line<W>> {
        let until = Instant::now() + linger;
        line.wanted = Some(wanted);
        while !line.works.is_empty() && line.jobs.is_empty() && !line.has(wanted) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.enough.wait_timeout(line, left);
            line = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        line.wanted = None;
        line
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
            line.idle += 1;
            line = self.came.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner());
            line.idle -= 1;
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

    /// How many are not done with.
    pub fn unfinished(&self) -> usize {
        let line = self.lock();
        (line.came - line.finished) as usize
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
        self.enough.notify_all();
    }
}

/// Takes requests of so many rows off the front, one at least if there is one.
fn take_rows<W: Rows>(line: &mut Line<W>, rows_max: usize) -> Vec<W> {
    let (mut works, mut rows) = (Vec::new(), 0);
    while let Some(work) = line.works.front() {
        if !works.is_empty() && rows + work.rows() > rows_max {
            break;
        }
        rows += work.rows();
        works.extend(line.works.pop_front());
    }
    line.rows -= rows;
    works
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

    const HOUR: Duration = Duration::from_secs(3600);

    fn works(group: Group<u32>) -> Vec<u32> {
        match group {
            Group::Works(works) => works,
            Group::Jobs(_) | Group::End => panic!("works"),
        }
    }

    /// Waits until a thread waits for more than there is.
    fn until_one_lingers(queue: &Queue<u32>) {
        while queue.lock().wanted.is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_for_more_is_woken_once_it_is_there() {
        let queue = Queue::<u32>::new(100);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| works(queue.take(100, 3, HOUR)));
            assert!(queue.push(0).is_ok());
            until_one_lingers(&queue);
            // What is too much for one group goes to whoever else is there.
            let rest = scope.spawn(|| works(queue.take(2, 1, HOUR)));
            while queue.lock().idle == 0 {
                std::thread::yield_now();
            }
            for work in 1..4 {
                assert!(queue.push_quietly(work).is_ok());
            }
            assert!(queue.lock().wanted.is_some(), "nobody was told");
            queue.nudge();
            let taken = taken.join().expect("no panic");
            assert_eq!(taken, [0, 1, 2, 3]);
            assert!(queue.push(4).is_ok());
            assert_eq!(rest.join().expect("no panic"), [4]);
        });
    }

    #[test]
    fn what_one_leaves_is_taken_by_another() {
        let queue = Queue::<u32>::new(100);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| works(queue.take(2, 9, HOUR)));
            assert!(queue.push(0).is_ok());
            until_one_lingers(&queue);
            let second = scope.spawn(|| works(queue.take(9, 1, HOUR)));
            while queue.lock().idle == 0 {
                std::thread::yield_now();
            }
            assert!(queue.push_quietly(1).is_ok() && queue.push_quietly(2).is_ok());
            queue.nudge();
            assert_eq!(first.join().expect("no panic"), [0, 1]);
            assert_eq!(second.join().expect("no panic"), [2]);
        });
    }

    #[test]
    fn a_job_and_the_end_do_not_wait_for_more_requests() {
        let queue = Queue::<u32>::new(100);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| match queue.take(100, 3, HOUR) {
                Group::Jobs(jobs) => jobs.len(),
                Group::Works(_) | Group::End => 0,
            });
            assert!(queue.push(0).is_ok());
            until_one_lingers(&queue);
            queue.job(Box::new(|_| ()));
            assert_eq!(taken.join().expect("no panic"), 1);
            let taken = scope.spawn(|| works(queue.take(100, 3, HOUR)));
            until_one_lingers(&queue);
            queue.close();
            assert_eq!(taken.join().expect("no panic"), [0]);
            assert!(matches!(queue.take(100, 3, HOUR), Group::End));
        });
    }

    #[test]
    fn a_lone_request_is_one_that_nobody_else_is_worked_on_beside() {
        let queue = Queue::<u32>::new(100);
        assert_eq!(queue.take_lone(), None);
        assert!(queue.push_quietly(0).is_ok());
        assert_eq!(queue.take_lone(), Some(0));
        assert!(queue.push_quietly(1).is_ok());
        assert_eq!(queue.take_lone(), None, "the first one is not done with");
        queue.finish(1);
        assert_eq!(queue.take_lone(), Some(1));
        queue.finish(1);
        assert!(queue.push_quietly(2).is_ok() && queue.push_quietly(3).is_ok());
        assert_eq!(queue.take_lone(), None);
        assert_eq!((queue.len(), queue.rows(), queue.unfinished()), (2, 2, 2));
    }
}
