//! Threads that hold a connection each and do what is queued.
//!
//! **Invariant:** what is queued is done or dropped, and is never more than the queue's limit.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::database::{Connect, Database, DatabaseError};

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
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    is_closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        loop {
            if let Some(work) = queue.waiting.pop_front() {
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
        if connection.is_none() {
            match connect.connect() {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    work(Err(error));
                    continue;
                }
            }
        }
        let Some(database) = &mut connection else { continue };
        if work(Ok(&mut **database)) == Health::Broken {
            connection = None;
        }
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
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
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
    /// the room of what somebody asked for.
    pub fn push_spare(&self, work: Work) {
        let _ = self.push_below(1, work);
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
    }
}
