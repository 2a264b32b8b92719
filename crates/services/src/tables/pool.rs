//! Threads that hold a connection each and do what is queued. Where nothing waits, a caller may do
//! short work in its own thread, with a connection that never makes it wait: handing over costs two
//! wake-ups, which are often more than the work.
//!
//! **Invariant:** what is queued is done or dropped, and is never more than the queue's limit.
//! **Invariant:** of a pool of one thread one piece of work at most is under way, that of callers
//! included.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::database::{Connect, Database, DatabaseError};

/// Of so many pieces of work that callers could do themselves one is handed over: the threads'
/// connections do what tidying up there is.
const HANDED_ONE_IN: u32 = 64;

/// A piece of work: done with a connection, or told why there is none.
pub type Work = Box<dyn FnOnce(Result<&mut dyn Database, DatabaseError>) -> Health + Send>;

/// Whether a connection is good for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It is.
    Good,
    /// It is given up; the next piece of work gets a new one.
    Broken,
}

impl Health {
    /// After this.
    pub fn after<T>(result: &Result<T, DatabaseError>) -> Health {
        if matches!(result, Err(DatabaseError::Lost(_))) { Health::Broken } else { Health::Good }
    }
}

/// See the module.
pub struct Pool {
    shared: Arc<Shared>,
    limit: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    seat: Mutex<Seat>,
    threads: usize,
}

/// Where callers work.
#[derive(Default)]
struct Seat {
    connection: Option<Box<dyn Database>>,
    /// Whether the product has no such connections.
    is_never: bool,
    turns: u32,
}

impl Seat {
    fn open(&mut self, connect: &dyn Connect) {
        if self.connection.is_some() || self.is_never {
            return;
        }
        // Where it cannot be opened now, the next piece of work tries again.
        if let Ok(opened) = connect.connect_impatient() {
            self.is_never = opened.is_none();
            self.connection = opened;
        }
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Threads that do something, or are about to.
    busy: usize,
    is_closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        loop {
            if let Some(work) = queue.waiting.pop_front() {
                queue.busy += 1;
                return Some(work);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

fn work(shared: &Shared, connect: &dyn Connect) {
    let mut connection = None;
    while let Some(work) = shared.next() {
        // One thread is to be the only one: it waits for a caller that is at work.
        let alone = (shared.threads == 1).then(|| shared.seat());
        run(work, &mut connection, connect);
        drop(alone);
        shared.seat().open(connect);
        shared.queue().busy -= 1;
    }
}

fn run(work: Work, connection: &mut Option<Box<dyn Database>>, connect: &dyn Connect) {
    if connection.is_none() {
        match connect.connect() {
            Ok(opened) => *connection = Some(opened),
            Err(error) => {
                work(Err(error));
                return;
            }
        }
    }
    let Some(database) = connection else { return };
    if work(Ok(&mut **database)) == Health::Broken {
        *connection = None;
    }
}

impl Pool {
    /// Starts threads of this name; `limit` pieces of work may wait.
    pub fn start(
        name: &str,
        threads: usize,
        limit: usize,
        connect: &Arc<dyn Connect>,
    ) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            seat: Mutex::default(),
            threads,
        });
        for _ in 0..threads {
            let (shared, connect) = (Arc::clone(&shared), Arc::clone(connect));
            thread::Builder::new().name(name.into()).spawn(move || work(&shared, &*connect))?;
        }
        Ok(Pool { shared, limit })
    }

    /// Queues work; gives it back if too much waits.
    pub fn push(&self, work: Work) -> Result<(), Work> {
        self.push_below(self.limit, work)
    }

    /// Queues work that nobody waits for; drops it if anything else waits, so that it never takes
    /// the room of what somebody asked for. Whether it was taken.
    pub fn push_spare(&self, work: Work) -> bool {
        self.push_below(1, work).is_ok()
    }

    /// Does short work in the caller's thread, if nothing waits. Nothing is done if somebody else
    /// is in the way, and now and then; then it has to be queued.
    pub fn try_here<T>(
        &self,
        work: impl FnOnce(&mut dyn Database) -> Result<T, DatabaseError>,
    ) -> Option<Result<T, DatabaseError>> {
        let queue = self.shared.queue();
        if !queue.waiting.is_empty() || (self.shared.threads == 1 && queue.busy > 0) {
            return None;
        }
        drop(queue);
        let mut seat = self.shared.seat.try_lock().ok()?;
        seat.turns = (seat.turns + 1) % HANDED_ONE_IN;
        if seat.turns == 0 {
            return None;
        }
        let done = work(&mut **seat.connection.as_mut()?);
        if Health::after(&done) == Health::Broken {
            seat.connection = None;
        }
        (!matches!(done, Err(DatabaseError::Busy(_)))).then_some(done)
    }

    fn push_below(&self, limit: usize, work: Work) -> Result<(), Work> {
        let mut queue = self.shared.queue();
        if queue.waiting.len() >= limit || queue.is_closed {
            return Err(work);
        }
        queue.waiting.push_back(work);
        drop(queue);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        // Whoever sits there may be the one who drops this; then it closes with the threads.
        if let Ok(mut seat) = self.shared.seat.try_lock() {
            seat.connection = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::database::{Dialect, Row, Statement, Value};

    /// A product without anything.
    struct Empty;

    impl Database for Empty {
        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn query(&mut self, _: &str, _: &[Value]) -> Result<Vec<Row>, DatabaseError> {
            Ok(Vec::new())
        }

        fn transact(&mut self, _: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
            Ok(Vec::new())
        }
    }

    impl Connect for Empty {
        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
            Ok(Box::new(Empty))
        }

        fn connect_impatient(&self) -> Result<Option<Box<dyn Database>>, DatabaseError> {
            Ok(Some(Box::new(Empty)))
        }
    }

    fn nothing(_: &mut dyn Database) -> Result<(), DatabaseError> {
        Ok(())
    }

    /// A pool whose threads have done something, so that callers may.
    fn pool(threads: usize) -> Pool {
        let connect: Arc<dyn Connect> = Arc::new(Empty);
        let pool = Pool::start("test", threads, 10, &connect).expect("threads");
        assert!(pool.try_here(nothing).is_none(), "no thread has opened a connection for it");
        assert!(pool.push(Box::new(|_| Health::Good)).is_ok());
        wait(&pool);
        pool
    }

    fn wait(pool: &Pool) {
        let until = Instant::now() + Duration::from_secs(30);
        while pool.try_here(nothing).is_none() {
            assert!(Instant::now() < until, "nobody is in the way");
            thread::yield_now();
        }
    }

    #[test]
    fn callers_work_where_nobody_is_in_the_way() {
        for (threads, is_free) in [(1, false), (2, true)] {
            let pool = pool(threads);
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let work = Box::new(move |_: Result<&mut dyn Database, DatabaseError>| {
                begin.send(()).expect("waited for");
                let _ = ended.recv();
                Health::Good
            });
            assert!(pool.push(work).is_ok());
            begun.recv().expect("it begins");
            // Twice: now and then one is handed over.
            let is_done = pool.try_here(nothing).is_some() || pool.try_here(nothing).is_some();
            assert_eq!(is_done, is_free, "{threads} threads, one at work");
            drop(end);
            wait(&pool);
        }
    }

    #[test]
    fn callers_hand_over_now_and_then_and_where_they_would_wait() {
        let pool = pool(1);
        let handed = (0..HANDED_ONE_IN * 10).filter(|_| pool.try_here(nothing).is_none()).count();
        assert_eq!(handed, 10);
        wait(&pool);
        let busy = |_: &mut dyn Database| Err::<(), _>(DatabaseError::Busy("held".into()));
        assert!(pool.try_here(busy).is_none());
        wait(&pool);
        // A broken connection is told of, and not used again.
        let lost = |_: &mut dyn Database| Err::<(), _>(DatabaseError::Lost("gone".into()));
        let told = pool.try_here(lost).or_else(|| pool.try_here(lost));
        assert!(matches!(told, Some(Err(DatabaseError::Lost(_)))));
        assert!(pool.try_here(nothing).is_none() && pool.try_here(nothing).is_none());
        assert!(pool.push(Box::new(|_| Health::Good)).is_ok());
        wait(&pool);
    }
}
