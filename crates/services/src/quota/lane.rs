//! A lane: the connection of an event loop. A request that comes alone is stored over it by the
//! thread that it came by, without another one that waits for the database.
//!
//! ```text
//!  lead: alone --> lane: decide, one transaction --> settle, answer
//!                           |-- refused: queued for a writer, which tries in its own way
//!                           +-- lost:    a thread of its own, until the end is known
//! ```
//!
//! **Invariant:** a transaction of unknown end is nobody's but the rescuer's, and the gate is not
//! passed before its end is known.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::answer::{Ack, Outcome};
use super::batch::{Batch, Proof};
use super::fence::{self, LANE_MARK, RESCUE_MARK, RESCUE_MARKS};
use super::gate::{Gate, Inside};
use super::known::{Known, release};
use super::queue::{Queue, Work};
use super::service::lock;
use super::writer::{Clock, Committer, Counts, Crowd, Writer, not_stored, put_back, settle};
use crate::database::{AsyncDatabase, Connect, DatabaseError, Statement};
use crate::store::Store;

/// After so long an event loop may try once more to open its connection.
const OPEN_PAUSE: Duration = Duration::from_secs(6);

/// What an event loop is to do beside its other things.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The connection of one event loop.
struct Lane {
    /// Not there while it is used, or before it is opened.
    idle: Option<Box<dyn AsyncDatabase>>,
    opens_after: Instant,
    mark: usize,
}

/// What all lanes have in common.
pub(super) struct Lanes {
    pub connect: Arc<dyn Connect>,
    pub queue: Arc<Queue<Work>>,
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    pub ack: Ack,
    pub counts: Arc<Counts>,
    pub gate: Arc<Gate>,
    pub crowd: Arc<Crowd>,
    /// The next record's number.
    pub record_id: AtomicI64,
    lanes: Mutex<HashMap<ThreadId, Lane>>,
    rescued: AtomicUsize,
}

impl Lanes {
    /// Lanes beside a writer, with other numbers for their records. None is open.
    pub fn new(writer: &Writer, connect: Arc<dyn Connect>, record_id: i64) -> Lanes {
        Lanes {
            connect,
            queue: Arc::clone(&writer.queue),
            store: Arc::clone(&writer.store),
            clock: Arc::clone(&writer.clock),
            ack: writer.grouping.ack,
            counts: Arc::clone(&writer.counts),
            gate: Arc::clone(&writer.gate),
            crowd: Arc::clone(&writer.crowd),
            record_id: AtomicI64::new(record_id),
            lanes: Mutex::default(),
            rescued: AtomicUsize::new(0),
        }
    }

    /// Takes the one request that waits, if this thread's connection is free, to be stored by what
    /// comes back. Where there is no connection yet, what comes back opens it, and the request is
    /// left to the writers.
    pub fn go(self: &Arc<Self>) -> Option<Task> {
        self.crowd.saw(self.queue.unfinished());
        let inside = if self.crowd.is_lone() { self.gate.try_enter() } else { None };
        let Some(inside) = inside else {
            self.queue.nudge();
            return None;
        };
        let thread = thread::current().id();
        let Some(database) = self.take(thread) else {
            drop(inside);
            self.queue.nudge();
            return self.open(thread);
        };
        let Some(work) = self.queue.take_lone() else {
            self.give_back(thread, database);
            drop(inside);
            self.queue.nudge();
            return None;
        };
        let lanes = Arc::clone(self);
        Some(Box::pin(async move { lanes.store(thread, database, inside, work).await }))
    }

    fn take(&self, thread: ThreadId) -> Option<Box<dyn AsyncDatabase>> {
        lock(&self.lanes).get_mut(&thread)?.idle.take()
    }

    fn give_back(&self, thread: ThreadId, database: Box<dyn AsyncDatabase>) {
        if let Some(lane) = lock(&self.lanes).get_mut(&thread) {
            lane.idle = Some(database);
        }
    }

    /// Opens this thread's connection, unless that was tried just now.
    fn open(self: &Arc<Self>, thread: ThreadId) -> Option<Task> {
        let now = Instant::now();
        let mark = {
            let mut lanes = lock(&self.lanes);
            let mark = LANE_MARK + lanes.len();
            let new = Lane { idle: None, opens_after: now, mark };
            let lane = lanes.entry(thread).or_insert(new);
            if now < lane.opens_after {
                return None;
            }
            lane.opens_after = now + OPEN_PAUSE;
            lane.mark
        };
        let opened = self.connect.connect_async()?;
        let lanes = Arc::clone(self);
        Some(Box::pin(async move {
            let opened = async {
                let mut database = opened.await?;
                if let Some((sql, values)) = fence::mark(lanes.connect.dialect(), mark) {
                    database.query(&sql, &values).await?;
                }
                Ok::<_, DatabaseError>(database)
            };
            // Where there is none the writers say why.
            if let Ok(database) = opened.await {
                lanes.give_back(thread, database);
            }
        }))
    }

    /// Stores a request that does not say who it is.
    async fn store(
        self: Arc<Self>,
        thread: ThreadId,
        mut database: Box<dyn AsyncDatabase>,
        inside: Inside,
        mut work: Work,
    ) {
        let mut batch = Batch::default();
        let now_ms = (self.clock)();
        let outcome =
            Known::default().decide(&mut work, &*self.store, self.ack, now_ms, &mut batch);
        let count = batch.records.len();
        batch.name(self.record_id.fetch_add(count as i64, Ordering::Relaxed));
        let Some(proof) = batch.proof() else {
            self.give_back(thread, database);
            return self.finish(work, outcome, inside);
        };
        let statements = batch.statements(self.connect.dialect(), None);
        match database.transact(&statements).await {
            Ok(_) => {
                self.counts.commits.fetch_add(1, Ordering::Relaxed);
                self.give_back(thread, database);
                self.stored(work, outcome, inside, count);
            }
            Err(DatabaseError::Lost(why)) => {
                tracing::warn!("quota: {why}; trying again");
                self.counts.losses.fetch_add(1, Ordering::Relaxed);
                self.forget(thread);
                self.rescue(Lost { work, outcome, inside, statements, proof, count });
            }
            Err(_) => {
                self.give_back(thread, database);
                put_back(std::slice::from_mut(&mut work), statements);
                drop(inside);
                self.queue.push_anyway(work);
                self.queue.finish(1);
            }
        }
    }

    /// The connection is broken: another one may be opened at once.
    fn forget(&self, thread: ThreadId) {
        if let Some(lane) = lock(&self.lanes).get_mut(&thread) {
            lane.opens_after = Instant::now();
        }
    }

    fn stored(&self, work: Work, outcome: Outcome, inside: Inside, count: usize) {
        self.counts.records.fetch_add(count as u64, Ordering::Relaxed);
        settle(&work, &self.counts);
        self.finish(work, outcome, inside);
    }

    fn finish(&self, work: Work, outcome: Outcome, inside: Inside) {
        drop(inside);
        (work.done)(outcome);
        self.queue.finish(1);
    }

    /// Finds out in a thread what became of a transaction, or sends it again.
    fn rescue(self: &Arc<Self>, lost: Lost) {
        let lanes = Arc::clone(self);
        let index = self.rescued.fetch_add(1, Ordering::Relaxed);
        let connect = Arc::clone(&self.connect);
        let committer = Committer::new(connect, format!("rescue{index}"), Arc::clone(&self.counts))
            .marked(RESCUE_MARK + index % RESCUE_MARKS);
        let run = move || lost.rescue(&lanes, committer);
        if let Err(error) = thread::Builder::new().name("quota-rescue".into()).spawn(run) {
            // Then nobody is told how it ended, and what it holds stays reserved.
            tracing::error!("quota: no thread for a transaction of unknown end: {error}");
        }
    }
}

/// A request in a transaction of unknown end.
struct Lost {
    work: Work,
    outcome: Outcome,
    inside: Inside,
    statements: Vec<Statement>,
    proof: Proof,
    count: usize,
}

impl Lost {
    fn rescue(self, lanes: &Lanes, mut committer: Committer) {
        let Lost { mut work, outcome, inside, statements, proof, count } = self;
        let deadline = work.deadline;
        let mut meanwhile = || Instant::now() < deadline;
        let Err(error) = committer.commit_lost(&statements, &proof, &mut meanwhile) else {
            return lanes.stored(work, outcome, inside, count);
        };
        release(&mut work, &*lanes.store, (lanes.clock)(), |_| true);
        let refused = not_stored(&work, &error);
        lanes.finish(work, refused, inside);
    }
}
