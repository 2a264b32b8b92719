//! Acknowledgement by journal: requests are flushed to the server's own log and answered; the
//! database follows.
//!
//! ```text
//!  queue --> journal thread: look up, decide, append + flush, answer --> frames --> writer thread
//!                                                                                one transaction
//! ```
//!
//! A lone request is acknowledged by the thread that it came by, in the journal thread's place; see
//! [`lead`](super::lead).
//!
//! A frame is one line, `crc64 number json`. Frames come into the database in order, each
//! transaction with the number of its last one under the journal's name: after a crash those of the
//! file that come after the highest number there are sent again.
//!
//! **Invariant:** what was answered 202 is in the file until the database holds it.
//! **Invariant:** a frame is applied once.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::answer::{Ack, Outcome, Refusal, refuse};
use super::batch::{Batch, Number, Proof, Record};
use super::known::{Known, release};
use super::org::Org;
use super::queue::{Group, Queue, Rows, Work};
use super::service::lock;
use super::writer::{Clock, Committer, Counts, Crowd, Grouping, run_job};
use crate::database::{Connect, Database, DatabaseError, Statement};
use crate::pace::Pace;
use crate::store::Store;

/// Where frames are kept until the database has them.
pub trait Journal: Send {
    /// The journal's name: another one after each start.
    fn name(&self) -> String;

    /// The lines that a server before this one left, torn ends cut off.
    fn lines(&mut self) -> Result<Vec<String>, String>;

    /// Appends a line; it is on disk when this returns.
    fn append(&mut self, line: &str) -> Result<(), String>;

    /// Bytes in it.
    fn bytes(&self) -> u64;

    /// Empties it, and names it.
    fn clear(&mut self, name: &str) -> Result<(), String>;
}

/// A journal of this size is emptied as soon as the database has all of it.
const BYTES_KEPT: u64 = 16 << 20;
const RETRY_S: i64 = 1;
/// Numbers that a frame has for records without one; more than it can have records.
const RECORDS_OF_FRAME: i64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(100);

/// One line of the journal on its way to the database.
pub struct Frame {
    number: i64,
    batch: Batch,
    settle: Vec<(Arc<Org>, i64, i64)>,
}

impl Rows for Frame {
    fn rows(&self) -> usize {
        self.batch.records.len().max(1)
    }
}

/// What both threads share.
#[derive(Default)]
pub struct Between {
    /// What is in the journal and not yet in the database.
    pub known: Arc<Mutex<Known>>,
    /// The number of the last frame that the database has.
    applied: AtomicI64,
    /// The number of the last frame that is no more in the journal.
    cleared: AtomicI64,
    /// Frames made in this life, for metrics.
    pub frames: AtomicU64,
    /// Who is there.
    pub(super) crowd: Crowd,
    /// What the journal's flushes take.
    pub(super) pace: Pace,
}

/// A line's text without its checksum: `number json`.
pub fn encode(number: i64, batch: &Batch) -> String {
    // Rows of texts and numbers always have a JSON form.
    format!("{number} {}", serde_json::to_string(batch).unwrap_or_default())
}

/// What [`encode`] wrote.
pub fn decode(line: &str) -> Option<(i64, Batch)> {
    let (number, json) = line.split_once(' ')?;
    let number: i64 = number.parse().ok()?;
    let mut batch: Batch = serde_json::from_str(json).ok()?;
    if batch.records.iter().any(|record| record.record_id == 0) {
        // Of a server that left it to the database to number them.
        batch.name(i64::checked_mul(number, RECORDS_OF_FRAME)?);
    }
    Some((number, batch))
}

/// The number of the last frame of a journal that the database has; 0 if it has none.
pub fn applied(database: &mut dyn Database, journal: &str) -> Result<i64, DatabaseError> {
    let sql = "SELECT MAX(number) FROM quota_batch WHERE writer = ?";
    Ok(database.query(sql, &[journal.into()])?.first().map_or(0, |row| row[0].int()))
}

/// Applies what a server before this one left in its journal, and empties it.
pub fn recover(
    journal: &mut dyn Journal,
    connect: Arc<dyn Connect>,
    counts: Arc<Counts>,
    fresh_name: &str,
    now_ms: i64,
) -> Result<usize, String> {
    let lines = journal.lines()?;
    let mut applier = Applier {
        committer: Committer::new(connect, journal.name(), counts).marked(0),
        store: None,
        between: Arc::default(),
        pruned: 0,
    };
    let old = journal.name();
    let applied = applier.committer.insist(&mut || true, &mut |database| applied(database, &old));
    let applied = applied.map_err(|error| error.to_string())?;
    let mut records = 0;
    for line in &lines {
        let (number, batch) = decode(line).ok_or("the journal has a line that makes no sense")?;
        if number <= applied {
            continue;
        }
        records += batch.records.len();
        let frame = Frame { number, batch, settle: Vec::new() };
        if !applier.apply(vec![frame], now_ms) {
            return Err("the journal could not be applied".into());
        }
    }
    journal.clear(fresh_name)?;
    let forget = Statement::run("DELETE FROM quota_batch WHERE writer = ?", vec![old.into()]);
    if let Err(error) =
        applier.committer.once(&mut |database| database.transact(std::slice::from_ref(&forget)))
    {
        tracing::warn!("quota: old numbers are not forgotten: {error}");
    }
    Ok(records)
}

/// Brings frames into the database.
struct Applier {
    committer: Committer,
    store: Option<Arc<dyn Store>>,
    between: Arc<Between>,
    /// Numbers up to this one are deleted.
    pruned: i64,
}

impl Applier {
    /// Applies these frames in one transaction if that goes, one by one if not. Does not come back
    /// before they are applied, unless the server ends.
    fn apply(&mut self, mut frames: Vec<Frame>, now_ms: i64) -> bool {
        loop {
            let cleared = self.between.cleared.load(Ordering::Acquire);
            let (statements, proof) = self.transaction(&frames, cleared, now_ms);
            match self.committer.commit(&statements, &proof, &mut || true) {
                Ok(()) => {
                    self.pruned = cleared;
                    for (org, period_ms, cost) in frames.iter().flat_map(|frame| &frame.settle) {
                        if org.settle(*period_ms, *cost) {
                            let counts = self.committer.counts();
                            lock(&counts.passed).push((Arc::clone(org), *period_ms));
                        }
                    }
                    return true;
                }
                Err(error) if self.committer.is_ending() => {
                    tracing::warn!("quota: what is in the journal stays there: {error}");
                    return false;
                }
                Err(_) if frames.len() > 1 => {
                    return frames.into_iter().all(|frame| self.apply(vec![frame], now_ms));
                }
                Err(DatabaseError::Duplicate(_)) => {
                    let cleaned =
                        frames.into_iter().map(|frame| self.without_copies(frame, now_ms));
                    frames = cleaned.collect();
                }
                Err(error) => {
                    tracing::warn!("quota: {error}; what is in the journal is sent again");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// What brings these frames into the database, and tells that it did.
    fn transaction(&self, frames: &[Frame], cleared: i64, now_ms: i64) -> (Vec<Statement>, Proof) {
        let mut all = Batch::default();
        for Frame { batch, .. } in frames {
            all.records.extend_from_slice(&batch.records);
            all.kept.extend_from_slice(&batch.kept);
        }
        let writer = self.committer.writer.clone();
        let last = frames.last().map_or(0, |frame| frame.number);
        let number = Number { writer: writer.clone(), number: last, now_ms };
        let mut statements = all.statements(self.committer.dialect(), Some(&number));
        if cleared > self.pruned {
            let sql = "DELETE FROM quota_batch WHERE writer = ? AND number <= ?";
            statements.push(Statement::run(sql, vec![writer.into(), cleared.into()]));
        }
        (statements, number.proof())
    }

    /// A frame without the records that another server has stored meanwhile.
    fn without_copies(&mut self, mut frame: Frame, now_ms: i64) -> Frame {
        let mut known = Known::default();
        let batch = &frame.batch;
        let asked =
            self.committer.insist(&mut || true, &mut |database| known.ask_of(database, batch));
        if let Err(error) = asked {
            tracing::warn!("quota: {error}");
            return frame;
        }
        let Frame { batch, settle, .. } = &mut frame;
        batch.kept.retain(|kept| !known.has_answer(&kept.org, &kept.idempotency.key));
        let is_copy = |record: &Record| {
            record.event_key.as_ref().is_some_and(|key| known.has_event(&record.org, key))
        };
        for record in batch.records.iter().filter(|record| is_copy(record)) {
            tracing::warn!("quota: {} has a record from two servers; one is kept", record.org);
            let mut found = settle.iter_mut().filter(|(org, period_ms, cost)| {
                org.id == record.org && *period_ms == record.period_ms && *cost == record.cost
            });
            if let (Some(store), Some((org, period_ms, cost))) = (&self.store, found.next()) {
                let _ = org.release(&**store, *period_ms, *cost, now_ms);
                *cost = 0;
            }
        }
        batch.records.retain(|record| !is_copy(record));
        frame
    }
}

/// The thread that takes frames to the database.
pub struct Flusher {
    /// Where frames wait.
    pub frames: Arc<Queue<Frame>>,
    /// The connection, under the journal's name.
    pub committer: Committer,
    /// Where counters are.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Clock,
    /// Rows of a transaction at most.
    pub rows_max: usize,
    /// How long a transaction waits for more rows: nobody waits for it.
    pub linger: Duration,
    /// Shared with the journal's thread.
    pub between: Arc<Between>,
}

impl Flusher {
    /// Applies what comes until the queue is closed and empty.
    pub fn run(self) {
        let Flusher { frames, committer, store, clock, rows_max, linger, between } = self;
        let counts = committer.counts();
        let between_too = Arc::clone(&between);
        let mut applier =
            Applier { committer, store: Some(store), between: between_too, pruned: 0 };
        loop {
            match frames.take(rows_max, usize::MAX, linger) {
                Group::End => return,
                Group::Jobs(jobs) => {
                    jobs.into_iter().for_each(|job| run_job(&mut applier.committer, job));
                }
                Group::Works(group) => {
                    let last = group.last().map_or(0, |frame| frame.number);
                    let count = group.len();
                    let rows: usize = group.iter().map(|frame| frame.batch.records.len()).sum();
                    let names = group.iter().map(|frame| Known::names(&frame.batch));
                    let names: Vec<_> = names.collect();
                    if !applier.apply(group, clock()) {
                        continue;
                    }
                    let mut known = lock(&between.known);
                    names.iter().for_each(|names| known.forget(names));
                    counts.records.fetch_add(rows as u64, Ordering::Relaxed);
                    between.applied.store(last, Ordering::Release);
                    frames.finish(count);
                }
            }
        }
    }
}

/// The thread that acknowledges.
pub struct Scribe {
    /// Where requests wait.
    pub queue: Arc<Queue<Work>>,
    /// Where frames go.
    pub frames: Arc<Queue<Frame>>,
    /// The journal.
    pub journal: Box<dyn Journal>,
    /// A connection for looking things up.
    pub committer: Committer,
    /// Where counters are.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Clock,
    /// How requests are put together.
    pub grouping: Grouping,
    /// Shared with the flusher.
    pub between: Arc<Between>,
    /// The last frame's number.
    pub number: i64,
    /// The next record's.
    pub record_id: i64,
}

impl Scribe {
    /// Acknowledges what comes until the queue is closed and empty; then closes the frames' queue.
    /// The scribe is free while nothing is there.
    pub fn run(scribe: &Mutex<Scribe>) {
        let (queue, between, rows_max) = {
            let scribe = lock(scribe);
            let Scribe { queue, between, grouping, .. } = &*scribe;
            (Arc::clone(queue), Arc::clone(between), grouping.rows_max)
        };
        loop {
            // Flushing is quick: those who come meanwhile are the next group.
            match queue.take(rows_max, 1, Duration::ZERO) {
                Group::End => break,
                Group::Jobs(jobs) => {
                    let committer = &mut lock(scribe).committer;
                    jobs.into_iter().for_each(|job| run_job(committer, job));
                }
                Group::Works(works) => {
                    let count = works.len();
                    lock(scribe).acknowledge(works);
                    between.crowd.saw(queue.unfinished());
                    queue.finish(count);
                }
            }
        }
        lock(scribe).frames.close();
    }

    /// Writes down what is to be stored of these requests, and answers all of them.
    pub(super) fn acknowledge(&mut self, works: Vec<Work>) {
        let now_ms = (self.clock)();
        let mut known = Known::behind(Arc::clone(&self.between.known));
        // First what is not in the database yet: it may come to be there while that is asked.
        known.recall(&works);
        let (works, refused) = self.look(works, &mut known);
        for (mut work, why) in refused {
            self.refuse(&mut work, now_ms);
            (work.done)(refuse(why, Some(work.usage)));
        }
        let mut works = works;
        let mut batch = Batch::default();
        let store = Arc::clone(&self.store);
        let outcomes: Vec<Outcome> = works
            .iter_mut()
            .map(|work| known.decide(work, &*store, Ack::Journal, now_ms, &mut batch))
            .collect();
        let result = if batch.is_empty() { Ok(()) } else { self.keep(batch, &works) };
        for (mut work, outcome) in works.into_iter().zip(outcomes) {
            match &result {
                Ok(()) => (work.done)(outcome),
                Err(detail) => {
                    self.refuse(&mut work, now_ms);
                    let detail = detail.clone();
                    let refusal = Refusal::Busy { detail, retry_after_s: RETRY_S };
                    (work.done)(refuse(refusal, Some(work.usage)));
                }
            }
        }
    }

    /// Asks the database about requests that say who they are; those about which it cannot be asked
    /// come back refused, the others do not wait for it.
    #[allow(clippy::type_complexity)]
    fn look(&mut self, works: Vec<Work>, known: &mut Known) -> (Vec<Work>, Vec<(Work, Refusal)>) {
        if !works.iter().any(Work::needs_look) {
            return (works, Vec::new());
        }
        let asked = self.committer.once(&mut |database| known.ask(database, &works));
        let Err(error) = asked else { return (works, Vec::new()) };
        let (refused, works): (Vec<_>, Vec<_>) = works.into_iter().partition(Work::needs_look);
        let turn_away = |work| {
            let detail = format!("it cannot be told whether it came before: {error}");
            (work, Refusal::Busy { detail, retry_after_s: RETRY_S })
        };
        (works, refused.into_iter().map(turn_away).collect())
    }

    fn refuse(&self, work: &mut Work, now_ms: i64) {
        release(work, &*self.store, now_ms, |_| true);
    }

    /// Writes a batch down and sends it on its way.
    fn keep(&mut self, mut batch: Batch, works: &[Work]) -> Result<(), String> {
        let number = self.number + 1;
        batch.name(self.record_id);
        self.record_id += batch.records.len() as i64;
        if self.may_clear() {
            let name = self.journal.name();
            self.journal.clear(&name)?;
            self.between.cleared.store(self.number, Ordering::Release);
        }
        let begun = Instant::now();
        self.journal.append(&encode(number, &batch)).map_err(|error| {
            tracing::error!("quota: the journal cannot be written: {error}");
            format!("the journal cannot be written: {error}")
        })?;
        self.between.pace.took(begun.elapsed());
        self.number = number;
        lock(&self.between.known).note(&batch);
        self.between.frames.fetch_add(1, Ordering::Relaxed);
        let mut settle = Vec::new();
        for work in works {
            let charged = work.items.iter().filter(|item| item.is_charged);
            settle.extend(
                charged.map(|item| (Arc::clone(&work.caller.org), item.period_ms, item.cost)),
            );
        }
        // The requests' queue and this one are bounded together, where requests come in.
        self.frames.push_anyway(Frame { number, batch, settle });
        Ok(())
    }

    /// Whether the journal is large and the database has all of it.
    fn may_clear(&self) -> bool {
        self.journal.bytes() > BYTES_KEPT
            && self.between.applied.load(Ordering::Acquire) == self.number
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Kept;
    use super::super::queue::Idempotency;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_hold_any_record(
            number in 1i64..1_000_000,
            data in ".{0,50}",
            kind in proptest::option::of(".{0,10}"),
            cost in 0i64..1000,
        ) {
            let org: Arc<str> = "acme".into();
            let record = Record {
                record_id: number, org: Arc::clone(&org), key_id: "key".into(), period_ms: -5,
                received_ms: 6, event_ms: 7, kind, source: None, subject: None,
                event_key: Some(data.clone()), cost, data: data.clone(),
            };
            let idempotency = Idempotency { key: "k".into(), fingerprint: "f".into() };
            let kept = Kept { org, idempotency, status: 202, answer: data, at_ms: 8 };
            let batch = Batch { records: vec![record], kept: vec![kept] };
            let line = encode(number, &batch);
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(decode(&line), Some((number, batch)));
        }

        #[test]
        fn records_of_earlier_programs_are_numbered(number in 1i64..1_000_000) {
            let record = r#"{"org":"a","key_id":"k","period_ms":1,"received_ms":2,"event_ms":3,
                "kind":null,"source":null,"subject":null,"event_key":null,"cost":1,"data":"{}"}"#;
            let line = format!("{number} {{\"records\":[{record},{record}],\"kept\":[]}}");
            let (_, batch) = decode(&line).expect("a batch");
            let numbers = batch.records.iter().map(|record| record.record_id).collect::<Vec<_>>();
            prop_assert_eq!(numbers, [number << 20, (number << 20) + 1]);
        }

        #[test]
        fn no_line_takes_it_down(line in ".{0,80}") {
            let _ = decode(&line);
        }
    }
}
