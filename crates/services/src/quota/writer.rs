//! The writer: one thread with a connection that stores what waits, group after group.
//!
//! **Invariant:** a request is answered after the transaction that holds it is durable, or is known
//! not to have happened. A transaction of unknown end is sent again under the same number until its
//! end is known; it is never given up while the server runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::answer::{Ack, Outcome, Refusal, refuse};
use super::batch::{Batch, Number, Proof};
use super::fence;
use super::gate::Gate;
use super::known::{Known, release};
use super::org::Org;
use super::queue::{Group, Queue, Work};
use super::service::{busy, lock};
use crate::database::{Connect, Database, DatabaseError, Statement};
use crate::store::Store;

/// Waits between tries to reach a database, doubling.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Where a group fails as a whole, its requests are tried one by one; each so often if somebody
/// else's rows are in the way.
const TRIES_MAX: usize = 5;

/// Tells the time, in milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a request for ingest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ended {
    Accepted,
    Replayed,
    Malformed,
    Forbidden,
    OverQuota,
    OverBurst,
    Conflict,
    Busy,
}

impl Ended {
    /// All of them.
    pub const ALL: [Ended; 8] = [
        Ended::Accepted,
        Ended::Replayed,
        Ended::Malformed,
        Ended::Forbidden,
        Ended::OverQuota,
        Ended::OverBurst,
        Ended::Conflict,
        Ended::Busy,
    ];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Accepted => "accepted",
            Ended::Replayed => "replayed",
            Ended::Malformed => "malformed",
            Ended::Forbidden => "forbidden",
            Ended::OverQuota => "over_quota",
            Ended::OverBurst => "over_burst",
            Ended::Conflict => "conflict",
            Ended::Busy => "busy",
        }
    }

    /// How that ended.
    pub fn of(outcome: &Outcome) -> Ended {
        let refused = match outcome {
            Ok(answer) if answer.is_replay => return Ended::Replayed,
            Ok(_) => return Ended::Accepted,
            Err(refused) => &refused.refusal,
        };
        match refused {
            Refusal::Malformed(_) | Refusal::TooLarge(_) | Refusal::NotFound(_) => Ended::Malformed,
            Refusal::Unauthorized(_) | Refusal::Forbidden(_) => Ended::Forbidden,
            Refusal::Quota { policy: "burst", .. } => Ended::OverBurst,
            Refusal::Quota { .. } => Ended::OverQuota,
            Refusal::InFlight | Refusal::OtherContent => Ended::Conflict,
            Refusal::Busy { .. } => Ended::Busy,
        }
    }
}

/// What writers did, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Transactions.
    pub commits: AtomicU64,
    /// Records stored.
    pub records: AtomicU64,
    /// Times that the database was not reached.
    pub losses: AtomicU64,
    /// Set while it is not.
    pub is_lost: AtomicBool,
    /// Set when the server ends: what cannot be stored is given up.
    pub is_ending: AtomicBool,
    /// Requests by their end, in the order of [`Ended::ALL`].
    pub ended: [AtomicU64; 8],
    /// Organisations that may have passed a threshold in the period that begins then; for
    /// [`Service::tidy`](super::service::Service::tidy).
    pub passed: Mutex<Vec<(Arc<Org>, i64)>>,
}

/// A connection that comes back, and numbers for its transactions.
pub struct Committer {
    connect: Arc<dyn Connect>,
    database: Option<Box<dyn Database>>,
    /// Its name in the batch table.
    pub writer: String,
    counts: Arc<Counts>,
    /// The mark of its connections, if they store records; see [`fence`].
    pub(super) mark: Option<usize>,
}

impl Committer {
    /// Not connected yet.
    pub fn new(connect: Arc<dyn Connect>, writer: String, counts: Arc<Counts>) -> Committer {
        Committer { connect, database: None, writer, counts, mark: None }
    }

    /// The SQL.
    pub fn dialect(&self) -> crate::database::Dialect {
        self.connect.dialect()
    }

    /// For metrics.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Whether the server ends.
    pub fn is_ending(&self) -> bool {
        self.counts.is_ending.load(Ordering::Relaxed)
    }

    /// Does something with the connection, with a new one if the old one turns out to be broken.
    pub fn once<T>(
        &mut self,
        run: &mut dyn FnMut(&mut dyn Database) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        for _ in 0..2 {
            match self.database().and_then(&mut *run) {
                Err(DatabaseError::Lost(_)) => self.database = None,
                result => return result,
            }
        }
        self.database().and_then(run)
    }

    /// The connection, made if there is none.
    pub fn database(&mut self) -> Result<&mut dyn Database, DatabaseError> {
        if self.database.is_none() {
            let mut database = self.connect.connect()?;
            if let Some(mark) = self.mark {
                fence::hold(&mut *database, mark)?;
            }
            self.database = Some(database);
        }
        let database = self.database.as_mut().expect("it was made above");
        Ok(&mut **database)
    }

    /// Does something with the connection until it is not lost or busy; `meanwhile` is called
    /// before each new try and says whether there shall be one.
    pub fn insist<T>(
        &mut self,
        meanwhile: &mut dyn FnMut() -> bool,
        run: &mut dyn FnMut(&mut dyn Database) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let mut pause = PAUSE_MIN;
        loop {
            let mut is_lost = true;
            let tried = self.database().map(|database| {
                let result = run(database);
                is_lost = matches!(result, Err(DatabaseError::Lost(_)));
                result
            });
            let error = match tried {
                // A server that lets nobody in now may do so later.
                Err(error) => error,
                Ok(Err(error @ (DatabaseError::Lost(_) | DatabaseError::Busy(_)))) => error,
                Ok(result) => {
                    if self.counts.is_lost.swap(false, Ordering::Relaxed) {
                        tracing::warn!("quota: the database is reached again");
                    }
                    return result;
                }
            };
            if is_lost {
                self.database = None;
                self.counts.losses.fetch_add(1, Ordering::Relaxed);
                if !self.counts.is_lost.swap(true, Ordering::Relaxed) {
                    tracing::warn!("quota: {error}; trying again");
                }
            }
            if self.counts.is_ending.load(Ordering::Relaxed) || !meanwhile() {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Runs a transaction once, whatever happens on the way. It is given up when `meanwhile` says
    /// so, but only if it is known not to have happened.
    pub fn commit(
        &mut self,
        statements: &[Statement],
        proof: &Proof,
        meanwhile: &mut dyn FnMut() -> bool,
    ) -> Result<(), DatabaseError> {
        self.commit_after(false, statements, proof, meanwhile)
    }

    /// The same for a transaction that somebody else has sent and got no answer.
    pub fn commit_lost(
        &mut self,
        statements: &[Statement],
        proof: &Proof,
        meanwhile: &mut dyn FnMut() -> bool,
    ) -> Result<(), DatabaseError> {
        self.commit_after(true, statements, proof, meanwhile)
    }

    fn commit_after(
        &mut self,
        was_lost: bool,
        statements: &[Statement],
        proof: &Proof,
        meanwhile: &mut dyn FnMut() -> bool,
    ) -> Result<(), DatabaseError> {
        let is_open = Cell::new(was_lost);
        let mut meanwhile = || meanwhile() || is_open.get();
        let result = self.insist(&mut meanwhile, &mut |database| {
            let done = database.transact(statements).map(drop);
            // Once a try was lost, only an answer of the database tells that it did not happen.
            let may_be_there = match done {
                Err(DatabaseError::Lost(_)) => {
                    is_open.set(true);
                    false
                }
                // Applied by a try whose end was lost, of this call or one before it.
                Err(DatabaseError::Duplicate(_)) => true,
                Err(DatabaseError::Refused(_)) => is_open.get(),
                _ => false,
            };
            let is_there = may_be_there && !database.query(proof.sql, &proof.values)?.is_empty();
            if is_there { Ok(()) } else { done }
        });
        if result.is_ok() {
            self.counts.commits.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

/// How requests are put together.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// When requests are acknowledged.
    pub ack: Ack,
    /// Rows of a group at most (one request at least).
    pub rows_max: usize,
    /// How long a group waits for those who came with the last one.
    pub linger: Duration,
}

/// How many clients there seem to be: all whose requests wait or are being stored, the most of
/// late. They make one group more than there are writers, so that each writer stores one while
/// another one is answered and comes again; were it fewer, each would wait for the other's work.
#[derive(Debug, Default)]
pub struct Crowd {
    seen: AtomicUsize,
    writers: usize,
}

impl Crowd {
    /// Of so many writers.
    pub(super) fn of(writers: usize) -> Crowd {
        Crowd { seen: AtomicUsize::new(0), writers }
    }

    /// So many were seen together.
    pub(super) fn saw(&self, count: usize) {
        // Two threads at once are no harm: both have seen somebody.
        let seen = self.seen.load(Ordering::Relaxed);
        self.seen.store(count.max(seen - seen.div_ceil(8)), Ordering::Relaxed);
    }

    /// Whether one comes at a time.
    pub(super) fn is_lone(&self) -> bool {
        self.seen.load(Ordering::Relaxed) <= 1
    }

    /// How many are worth waiting for.
    fn hoped(&self) -> usize {
        self.seen.load(Ordering::Relaxed).div_ceil(self.writers + 1).max(1)
    }
}

/// See the module.
pub struct Writer {
    /// The connection.
    pub committer: Committer,
    /// Where requests wait.
    pub queue: Arc<Queue<Work>>,
    /// Where counters are.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Clock,
    /// How requests are put together.
    pub grouping: Grouping,
    /// The last number of a batch that has one.
    pub number: i64,
    /// The next record's.
    pub record_id: i64,
    /// For metrics.
    pub counts: Arc<Counts>,
    /// Held while a group is stored and settled; a job has it alone.
    pub gate: Arc<Gate>,
    /// Who is there; shared by all writers.
    pub crowd: Arc<Crowd>,
}

impl Writer {
    /// Stores what waits until the queue is closed and empty.
    pub fn run(mut self) {
        // Nobody shall wait for it later; if there is none now, whoever comes first says so.
        let _ = self.committer.database();
        let crowd = Arc::clone(&self.crowd);
        let Grouping { ack, rows_max, linger } = self.grouping;
        let rows_max = if ack == Ack::Sync { 1 } else { rows_max };
        loop {
            match self.queue.take(rows_max, crowd.hoped(), linger) {
                Group::End => return,
                Group::Jobs(jobs) => {
                    let gate = Arc::clone(&self.gate);
                    let _alone = gate.alone();
                    for job in jobs {
                        run_job(&mut self.committer, job);
                    }
                }
                Group::Works(works) => {
                    let count = works.len();
                    let inside = self.gate.enter();
                    let answers = self.store_group(works, TRIES_MAX);
                    drop(inside);
                    crowd.saw(self.queue.unfinished());
                    for (work, outcome) in answers {
                        (work.done)(outcome);
                    }
                    self.queue.finish(count);
                }
            }
        }
    }

    /// Stores a group; the outcome of each request, to be given when all is done.
    fn store_group(&mut self, works: Vec<Work>, tries: usize) -> Vec<(Work, Outcome)> {
        let mut works = works;
        let now_ms = (self.clock)();
        let mut known = match self.look(&works) {
            Ok(known) => known,
            Err(error) => return self.refuse(works, &error),
        };
        let mut batch = Batch::default();
        let (store, ack) = (Arc::clone(&self.store), self.grouping.ack);
        let decide = |work: &mut Work| known.decide(work, &*store, ack, now_ms, &mut batch);
        let outcomes: Vec<Outcome> = works.iter_mut().map(decide).collect();
        if batch.is_empty() {
            return works.into_iter().zip(outcomes).collect();
        }
        let records = batch.records.len() as u64;
        match self.commit(batch, now_ms, last_deadline(&works)) {
            Ok(()) => {
                self.counts.records.fetch_add(records, Ordering::Relaxed);
                works.iter().for_each(|work| settle(work, &self.counts));
                works.into_iter().zip(outcomes).collect()
            }
            Err((error, statements)) => {
                put_back(&mut works, statements);
                self.again(works, &error, tries)
            }
        }
    }

    /// Commits a batch; if that fails, with what would have been done.
    fn commit(
        &mut self,
        mut batch: Batch,
        now_ms: i64,
        deadline: Instant,
    ) -> Result<(), (DatabaseError, Vec<Statement>)> {
        batch.name(self.record_id);
        self.record_id += batch.records.len() as i64;
        // Its first record tells that it happened; only where there is none it needs a number.
        let (number, proof) = match batch.proof() {
            Some(proof) => (None, proof),
            None => {
                self.number += 1;
                let writer = self.committer.writer.clone();
                let number = Number { writer, number: self.number, now_ms };
                let proof = number.proof();
                (Some(number), proof)
            }
        };
        let Writer { committer, queue, store, clock, .. } = self;
        let mut meanwhile = || {
            refuse_overdue(queue, &**store, clock());
            Instant::now() < deadline
        };
        let statements = batch.statements(committer.dialect(), number.as_ref());
        let done = committer.commit(&statements, &proof, &mut meanwhile);
        done.map_err(|error| (error, statements))
    }

    /// After a transaction that did not happen: tries each request alone, or gives up.
    fn again(
        &mut self,
        works: Vec<Work>,
        error: &DatabaseError,
        tries: usize,
    ) -> Vec<(Work, Outcome)> {
        let is_twice = matches!(error, DatabaseError::Duplicate(_));
        if works.len() > 1 {
            return works
                .into_iter()
                .flat_map(|work| self.store_group(vec![work], tries))
                .collect();
        }
        if is_twice && tries > 1 {
            return self.store_group(works, tries - 1);
        }
        self.refuse(works, error)
    }

    fn look(&mut self, works: &[Work]) -> Result<Known, DatabaseError> {
        let mut known = Known::default();
        if works.iter().any(Work::needs_look) {
            let Writer { committer, queue, store, clock, .. } = self;
            let deadline = last_deadline(works);
            let mut meanwhile = || {
                refuse_overdue(queue, &**store, clock());
                Instant::now() < deadline
            };
            committer.insist(&mut meanwhile, &mut |database| known.ask(database, works))?;
        }
        Ok(known)
    }

    fn refuse(&self, works: Vec<Work>, error: &DatabaseError) -> Vec<(Work, Outcome)> {
        tracing::warn!("quota: {} requests are not stored: {error}", works.len());
        let turn_away = |mut work: Work| {
            release(&mut work, &*self.store, (self.clock)(), |_| true);
            let refused = not_stored(&work, error);
            (work, refused)
        };
        works.into_iter().map(turn_away).collect()
    }
}

/// What a request is told that the database does not take now.
pub(super) fn not_stored(work: &Work, error: &DatabaseError) -> Outcome {
    let detail = format!("the record cannot be stored now: {error}");
    refuse(busy(detail), Some(work.usage.clone()))
}

/// When the last of them has waited long enough.
fn last_deadline(works: &[Work]) -> Instant {
    works.iter().map(|work| work.deadline).max().unwrap_or_else(Instant::now)
}

/// Runs a job with the connection, or without one if there is none to be had.
pub fn run_job(committer: &mut Committer, job: super::queue::Job) {
    // It may have broken since it was used last: then a new one is tried once.
    for _ in 0..2 {
        if let Ok(database) = committer.database()
            && database.query("SELECT 1", &[]).is_ok()
        {
            return job(Ok(database));
        }
        committer.database = None;
    }
    job(Err(DatabaseError::Lost("no connection".into())));
}

/// Says of a stored request that nothing of it is reserved any more.
pub fn settle(work: &Work, counts: &Counts) {
    let org = &work.caller.org;
    for item in work.items.iter().filter(|item| item.is_charged) {
        if org.settle(item.period_ms, item.cost) {
            lock(&counts.passed).push((Arc::clone(org), item.period_ms));
        }
    }
}

/// Gives the requests back the records that were taken for a transaction.
pub(super) fn put_back(works: &mut [Work], statements: Vec<Statement>) {
    let mut events = Batch::events(statements).into_iter();
    for work in works {
        let taken = work.items.iter_mut().filter(|item| item.is_charged && item.event.is_none());
        for item in taken {
            item.event = events.next();
        }
    }
}

/// Refuses those that have waited too long.
pub fn refuse_overdue(queue: &Queue<Work>, store: &dyn Store, now_ms: i64) {
    let now = Instant::now();
    for mut work in queue.take_out(|work| work.deadline <= now) {
        release(&mut work, store, now_ms, |_| true);
        let usage = Some(work.usage.clone());
        let detail = "the database has not answered in time".to_string();
        (work.done)(refuse(busy(detail), usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_crowd_is_hoped_for_until_it_has_gone() {
        let crowd = Crowd::of(1);
        assert_eq!(crowd.hoped(), 1);
        crowd.saw(64);
        assert_eq!(crowd.hoped(), 32);
        crowd.saw(40);
        assert_eq!(crowd.hoped(), 28);
        for _ in 0..32 {
            crowd.saw(1);
        }
        assert_eq!(crowd.hoped(), 1, "a lone client waits for nobody");
        let crowd = Crowd::of(2);
        crowd.saw(64);
        assert_eq!(crowd.hoped(), 22);
    }
}
