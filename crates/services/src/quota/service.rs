//! The service: its threads, its caches, who calls.
//!
//! ```text
//!  caller's thread          writer's thread                 a desk's thread
//!  ---------------          ---------------                 ---------------
//!  find the key -----------------------------------------> keys, plans, usage, audit
//!  reserve, queue --------> transactions, counters' loads
//!  answer <---------------- settle
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use super::answer::{Ack, Refusal};
use super::caller::{ApiKey, Caller};
use super::gate::Gate;
use super::journal::{Between, Flusher, Frame, Journal, Scribe, recover};
use super::lane::Lanes;
use super::lead::{Pen, Place};
use super::org::Org;
use super::plan::Plan;
use super::queue::{Job, Jobs, Queue, Rows, Work};
use super::secret;
use super::writer::{Clock, Committer, Counts, Crowd, Grouping, Writer, run_job};
use crate::database::{Connect, Database, DatabaseError, Dialect, Value};
use crate::store::Store;

/// A key that was found is asked for again after so long: another server may have changed it.
const CALLER_FRESH_MS: i64 = 60_000;
/// A key that was not found: the same.
const STRANGER_FRESH_MS: i64 = 2_000;
/// Keys and organisations in memory at most.
const CALLERS_MAX: usize = 100_000;
/// Threads with a connection each for all that is not storing: a report that takes long keeps
/// nobody from having a key looked up.
const DESKS: usize = 4;
/// Connections that store groups: the rows of one are inserted while the commit of the other is
/// flushed.
const GROUP_WRITERS: usize = 2;
/// Numbers that each has for its records.
const RECORDS_OF_WRITER: i64 = 1 << 48;
/// Seconds after which a client that met a database that does not answer shall try again.
const RETRY_S: i64 = 1;

/// What a service is made of.
pub struct Parts {
    /// Where counters are.
    pub store: Arc<dyn Store>,
    /// Where the database is.
    pub connect: Arc<dyn Connect>,
    /// The time.
    pub clock: Clock,
    /// Random bits.
    pub random: Box<dyn FnMut() -> u64 + Send>,
    /// The journal, if requests are acknowledged by it or one was left behind.
    pub journal: Option<Box<dyn Journal>>,
    /// Settings.
    pub settings: Settings,
}

/// What can be set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// When requests are acknowledged, and how they are put together.
    pub grouping: Grouping,
    /// Rows that may wait for the database.
    pub backlog_rows: usize,
    /// How long a request may wait for the database.
    pub wait: Duration,
    /// Connections that store requests side by side, where each has a transaction of its own.
    pub writers: usize,
    /// How long the journal's transactions wait for more records.
    pub flush: Duration,
    /// How long answers are kept for requests that come again, in milliseconds.
    pub kept_ms: i64,
    /// Milliseconds after which an idle session ends.
    pub session_idle_ms: i64,
    /// SHA-256 of the key that may do everything, in hexadecimal digits.
    pub root_hash: String,
}

impl Default for Settings {
    fn default() -> Settings {
        let linger = Duration::from_millis(2);
        Settings {
            grouping: Grouping { ack: Ack::Group, rows_max: 256, linger },
            backlog_rows: 100_000,
            wait: Duration::from_secs(5),
            writers: 4,
            flush: Duration::from_millis(20),
            kept_ms: 32 * 86_400_000,
            session_idle_ms: 30 * 60_000,
            root_hash: String::new(),
        }
    }
}

/// The desk's queue holds jobs only.
pub(super) enum Never {}

impl Rows for Never {
    fn rows(&self) -> usize {
        match *self {}
    }
}

/// Keys by their secrets' digests.
#[derive(Default)]
struct Callers {
    known: HashMap<String, Entry>,
    /// How often all were forgotten: what was read before that is not put here.
    forgotten: u64,
}

#[derive(Clone)]
struct Entry {
    caller: Option<Arc<Caller>>,
    at_ms: i64,
}

/// See the module.
pub struct Service {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) queue: Arc<Queue<Work>>,
    /// The thread that changes the database; its jobs run between its transactions.
    pub(super) changer: Arc<dyn Jobs>,
    pub(super) frames: Option<Arc<Queue<Frame>>>,
    /// For those who acknowledge a request in the thread that it came by.
    pub(super) place: Option<Place>,
    pub(super) clock: Clock,
    desk: Arc<Queue<Never>>,
    callers: RwLock<Callers>,
    /// Held while a plan is written and taken over, so that both happen in the same order.
    pub(super) planning: Mutex<()>,
    orgs: Mutex<HashMap<Arc<str>, Arc<Org>>>,
    pub(super) in_flight: Mutex<HashSet<(Arc<str>, String)>>,
    pub(super) sessions: Mutex<super::session::Sessions>,
    random: Mutex<Box<dyn FnMut() -> u64 + Send>>,
    /// When old rows are looked for next.
    pub(super) expire_next_ms: AtomicI64,
    /// For metrics.
    pub counts: Arc<Counts>,
    /// When a webhook has to be called next, in milliseconds since 1970.
    pub(super) due_ms: AtomicI64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Who a secret belongs to.
pub enum Found {
    /// This one.
    Caller(Arc<Caller>),
    /// Nobody.
    Nobody,
    /// It has to be asked for: [`Service::look_up`].
    Unknown,
}

/// Locks whatever happened to other threads that held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Service {
    /// Brings the database up to date and starts the threads.
    pub fn start(parts: Parts) -> Result<Arc<Service>, DatabaseError> {
        let Parts { store, connect, clock, mut random, journal, settings } = parts;
        let mut first = connect.connect()?;
        super::schema::migrate(&mut *first)?;
        super::fence::wait_for_the_dead(&mut *first)?;
        drop(first);
        let counts = Arc::new(Counts::default());
        let queue = Arc::new(Queue::new(settings.backlog_rows));
        let desk = Arc::new(Queue::new(0));
        let name = secret::fresh(&mut random);
        // Small enough to leave room for all that will come.
        let record_id = (random() >> 2) as i64;
        let committer = |role: &str| {
            let name = format!("{role}-{}", &name[..24]);
            Committer::new(Arc::clone(&connect), name, Arc::clone(&counts))
        };
        let journal = journal
            .map(|journal| take_over(journal, &connect, &counts, &name, clock()))
            .transpose()?
            .filter(|_| settings.grouping.ack == Ack::Journal);
        let mut threads = desks(&desk, &committer)?;
        let crew =
            Crew { store: &store, clock: &clock, queue: &queue, settings: &settings, record_id };
        let (changer, frames, place): (Arc<dyn Jobs>, _, _) = match journal {
            None => {
                let place = crew.write(&connect, &committer, &mut threads)?;
                (Arc::clone(&queue) as _, None, place)
            }
            Some(journal) => {
                let (frames, pen) = crew.keep(journal, &committer, &mut threads)?;
                (Arc::clone(&frames) as _, Some(frames), Some(Place::Journal(pen)))
            }
        };
        Ok(Arc::new(Service {
            store,
            settings,
            queue,
            changer,
            frames,
            place,
            clock,
            desk,
            callers: RwLock::default(),
            planning: Mutex::default(),
            orgs: Mutex::default(),
            in_flight: Mutex::default(),
            sessions: Mutex::default(),
            random: Mutex::new(random),
            expire_next_ms: AtomicI64::new(0),
            counts,
            due_ms: AtomicI64::new(0),
            threads: Mutex::new(threads),
        }))
    }

    /// Stores what waits and ends the threads. What comes later is refused.
    pub fn stop(&self) {
        self.counts.is_ending.store(true, std::sync::atomic::Ordering::Relaxed);
        self.queue.close();
        self.desk.close();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Whether more waits for the database than may wait.
    pub(super) fn is_full(&self) -> bool {
        let frames = self.frames.as_ref();
        frames.is_some_and(|frames| frames.rows() >= self.settings.backlog_rows)
    }

    /// The time.
    pub fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    /// Random bits.
    pub(super) fn random_bits(&self) -> u64 {
        (lock(&self.random))()
    }

    /// A new secret of 48 digits.
    pub(super) fn fresh_secret(&self) -> String {
        let mut random = lock(&self.random);
        secret::fresh(&mut **random)
    }

    /// Whether this is the key that may do everything.
    pub fn is_root(&self, hash: &str) -> bool {
        !self.settings.root_hash.is_empty() && self.settings.root_hash == hash
    }

    /// Whose this secret is, by its digest, as far as memory knows.
    pub fn find(&self, hash: &str, now_ms: i64) -> Found {
        let callers = self.callers.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        match callers.known.get(hash) {
            Some(Entry { caller: Some(caller), at_ms })
                if (0..CALLER_FRESH_MS).contains(&(now_ms - at_ms)) =>
            {
                Found::Caller(Arc::clone(caller))
            }
            Some(Entry { caller: None, at_ms })
                if (0..STRANGER_FRESH_MS).contains(&(now_ms - at_ms)) =>
            {
                Found::Nobody
            }
            _ => Found::Unknown,
        }
    }

    /// Asks the database whose this secret is. If it does not answer, what was known before holds.
    pub fn look_up(
        self: &Arc<Self>,
        hash: String,
        done: impl FnOnce(Result<Option<Arc<Caller>>, Refusal>) + Send + 'static,
    ) {
        let service = Arc::clone(self);
        self.at_desk(move |database| {
            let now_ms = service.now_ms();
            let forgotten = service.callers().forgotten;
            let found = database.and_then(|database| service.read_caller(database, &hash));
            let mut callers = service.callers();
            let old = callers.known.get(&hash).and_then(|entry| entry.caller.clone());
            let found = match (found, old) {
                (Err(DatabaseError::Lost(_) | DatabaseError::Busy(_)), Some(old)) => Ok(Some(old)),
                (found, _) => found,
            };
            if let Ok(caller) = &found
                && callers.forgotten == forgotten
            {
                if callers.known.len() >= CALLERS_MAX {
                    callers.known.clear();
                }
                callers.known.insert(hash, Entry { caller: caller.clone(), at_ms: now_ms });
            }
            drop(callers);
            done(found.map_err(unreachable_database));
        });
    }

    fn callers(&self) -> RwLockWriteGuard<'_, Callers> {
        self.callers.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn read_caller(
        &self,
        database: &mut dyn Database,
        hash: &str,
    ) -> Result<Option<Arc<Caller>>, DatabaseError> {
        let sql = format!("SELECT {} FROM quota_key WHERE secret_hash = ?", ApiKey::COLUMNS);
        let rows = database.query(&sql, &[hash.into()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let key = ApiKey::of(row);
        let org = self.org(database, &key.org)?;
        Ok(org.map(|org| Arc::new(Caller { key, org })))
    }

    /// An organisation, from memory or the database.
    pub(super) fn org(
        &self,
        database: &mut dyn Database,
        id: &str,
    ) -> Result<Option<Arc<Org>>, DatabaseError> {
        if let Some(org) = lock(&self.orgs).get(id) {
            return Ok(Some(Arc::clone(org)));
        }
        let sql = "SELECT plan FROM quota_org WHERE org_id = ?";
        let rows = database.query(sql, &[id.into()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let plan: Plan = serde_json::from_str(row[0].text())
            .map_err(|error| DatabaseError::Refused(format!("the plan of {id}: {error}")))?;
        let org = Org::new(id, plan).map_err(DatabaseError::Refused)?;
        let mut orgs = lock(&self.orgs);
        if orgs.len() >= CALLERS_MAX {
            // Nobody else may hold one that is forgotten: it would be made twice.
            orgs.retain(|_, org| Arc::strong_count(org) > 1 || !org.is_idle());
        }
        let org = Arc::clone(orgs.entry(id.into()).or_insert_with(|| Arc::new(org)));
        Ok(Some(org))
    }

    /// An organisation that is in memory, unless somebody else is looking for one just now.
    pub(super) fn known_org(&self, id: &str) -> Option<Arc<Org>> {
        self.orgs.try_lock().ok()?.get(id).cloned()
    }

    /// Records that wait for the database.
    pub fn backlog_rows(&self) -> usize {
        self.queue.rows() + self.frames.as_ref().map_or(0, |frames| frames.rows())
    }

    /// How many organisations are in memory.
    pub fn orgs_in_memory(&self) -> usize {
        lock(&self.orgs).len()
    }

    /// How many sessions are open.
    pub fn sessions_open(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Organisations in memory.
    pub(super) fn known_orgs(&self) -> Vec<Arc<Org>> {
        lock(&self.orgs).values().cloned().collect()
    }

    /// Forgets which keys there are: they are asked for again.
    pub(super) fn forget_callers(&self) {
        let mut callers = self.callers();
        callers.known.clear();
        callers.forgotten += 1;
    }

    /// Runs a job at the desk.
    pub(super) fn at_desk(
        &self,
        job: impl FnOnce(Result<&mut dyn Database, DatabaseError>) + Send + 'static,
    ) {
        self.desk.job(Box::new(job) as Job);
    }

    /// Loads the counter of an organisation's period at a moment into the store, then goes on.
    pub(super) fn load(
        self: &Arc<Self>,
        org: Arc<Org>,
        at_ms: i64,
        then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
    ) {
        let service = Arc::clone(self);
        self.changer.job(Box::new(move |database| {
            let read = |database: &mut dyn Database| {
                let (period, _) = org.period(at_ms);
                let sql = "SELECT used + adjusted FROM quota_counter \
                           WHERE org_id = ? AND period_ms = ?";
                database.query(sql, &[Value::from(&*org.id), Value::Int(period.start_ms)])
            };
            let result = database.and_then(read).map_err(unreachable_database).and_then(|rows| {
                let held = rows.first().map_or(0, |row| row[0].int());
                let loaded = org.load(&*service.store, at_ms, held, service.now_ms());
                loaded.map_err(|error| busy(error.to_string()))
            });
            then(result);
        }));
    }
}

/// Brings what was left in a journal into the database, and gives it this server's name.
fn take_over(
    mut journal: Box<dyn Journal>,
    connect: &Arc<dyn Connect>,
    counts: &Arc<Counts>,
    name: &str,
    now_ms: i64,
) -> Result<Box<dyn Journal>, DatabaseError> {
    let name = format!("journal-{}", &name[..24]);
    let records = recover(&mut *journal, Arc::clone(connect), Arc::clone(counts), &name, now_ms)
        .map_err(DatabaseError::Refused)?;
    if records > 0 {
        tracing::info!("quota: {records} records were in the journal");
    }
    Ok(journal)
}

/// What the threads that store have in common.
struct Crew<'a> {
    store: &'a Arc<dyn Store>,
    clock: &'a Clock,
    queue: &'a Arc<Queue<Work>>,
    settings: &'a Settings,
    /// The first record's number.
    record_id: i64,
}

impl Crew<'_> {
    fn writer(&self, committer: Committer, gate: &Arc<Gate>, crowd: &Arc<Crowd>) -> Writer {
        Writer {
            counts: committer.counts(),
            committer,
            queue: Arc::clone(self.queue),
            store: Arc::clone(self.store),
            clock: Arc::clone(self.clock),
            grouping: self.settings.grouping,
            number: 0,
            record_id: self.record_id,
            gate: Arc::clone(gate),
            crowd: Arc::clone(crowd),
        }
    }

    /// Starts the writers; where lone requests may be stored without them.
    fn write(
        &self,
        connect: &Arc<dyn Connect>,
        committer: &dyn Fn(&str) -> Committer,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<Option<Place>, DatabaseError> {
        let count = writers(self.settings, connect.dialect());
        let (gate, crowd) = (Arc::default(), Arc::new(Crowd::of(count)));
        let mut record_id = self.record_id;
        let mut place = None;
        for index in 0..count {
            let committer = committer(&format!("writer{index}")).marked(index);
            let mut writer = self.writer(committer, &gate, &crowd);
            writer.record_id = record_id;
            record_id += RECORDS_OF_WRITER;
            if connect.connect_async().is_some() {
                let lanes = Lanes::new(&writer, Arc::clone(connect), record_id);
                place = Some(Place::Lane(Arc::new(lanes)));
            }
            threads.push(spawn("quota-writer", move || writer.run())?);
        }
        Ok(place)
    }

    /// Starts the threads around a journal: where its frames wait, and where those who lead meet.
    fn keep(
        &self,
        journal: Box<dyn Journal>,
        committer: &dyn Fn(&str) -> Committer,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(Arc<Queue<Frame>>, Arc<Pen>), DatabaseError> {
        let (flusher, scribe) =
            self.journal(committer("journal").marked(0), committer("scribe"), journal);
        let (frames, between) = (Arc::clone(&flusher.frames), Arc::clone(&flusher.between));
        let scribe = Arc::new(Mutex::new(scribe));
        let pen = Pen { scribe: Arc::clone(&scribe), between, queue: Arc::clone(self.queue) };
        threads.push(spawn("quota-journal", move || Scribe::run(&scribe))?);
        threads.push(spawn("quota-writer", move || flusher.run())?);
        Ok((frames, Arc::new(pen)))
    }

    fn journal(
        &self,
        committer: Committer,
        looker: Committer,
        journal: Box<dyn Journal>,
    ) -> (Flusher, Scribe) {
        let (frames, between) = (Arc::new(Queue::new(usize::MAX)), Arc::new(Between::default()));
        let flusher = Flusher {
            frames: Arc::clone(&frames),
            committer,
            store: Arc::clone(self.store),
            clock: Arc::clone(self.clock),
            rows_max: self.settings.grouping.rows_max,
            linger: self.settings.flush,
            between: Arc::clone(&between),
        };
        let scribe = Scribe {
            queue: Arc::clone(self.queue),
            frames,
            journal,
            committer: looker,
            store: Arc::clone(self.store),
            clock: Arc::clone(self.clock),
            grouping: self.settings.grouping,
            between,
            number: 0,
            record_id: self.record_id,
        };
        (flusher, scribe)
    }
}

/// How many threads store requests.
fn writers(settings: &Settings, dialect: Dialect) -> usize {
    match (settings.grouping.ack, dialect) {
        (Ack::Sync, _) => settings.writers.max(1),
        // One writes at a time, and the others sleep until they look again.
        (_, Dialect::Sqlite) => 1,
        _ => GROUP_WRITERS,
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DatabaseError> {
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|error: io::Error| DatabaseError::Refused(error.to_string()))
}

/// The desks' threads.
fn desks(
    queue: &Arc<Queue<Never>>,
    committer: &dyn Fn(&str) -> Committer,
) -> Result<Vec<JoinHandle<()>>, DatabaseError> {
    let desk = |index: usize| {
        let (queue, mut committer) = (Arc::clone(queue), committer(&format!("desk{index}")));
        spawn("quota-desk", move || run_desk(&queue, &mut committer))
    };
    (0..DESKS).map(desk).collect()
}

fn run_desk(queue: &Queue<Never>, committer: &mut Committer) {
    while let Some(job) = queue.take_job() {
        run_job(committer, job);
    }
}

/// What a client is told when the database does not answer.
pub(super) fn unreachable_database(error: DatabaseError) -> Refusal {
    busy(error.to_string())
}

pub(super) fn busy(detail: String) -> Refusal {
    Refusal::Busy { detail, retry_after_s: RETRY_S }
}
