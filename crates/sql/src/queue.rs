//! A database's own thread: runs what takes long or waits for a disk, and answers the clients that
//! wait for it.
//!
//! What has come together is run together, in one transaction and, on file, with one wait for the
//! disk; each command still fails or succeeds by itself. If one of them takes the transaction down
//! with it, all are run again, each by itself.
//!
//! **Invariant:** a reply leaves after what it tells is committed and logged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use commands::context::{Background, Context, Deliver, Report, Session};
use keyspace::keys::Keys;
use keyspace::value::ValueRef;
use keyspace::waiting::Waiter;
use resp::{OwnedArgs, Writer};

use crate::database::{Database, Held, Lease, Record, lock};
use crate::error::Failure;
use crate::lexer::{self, Verb};
use crate::perform::{Outcome, perform};
use crate::plan::{Action, Dialect, Plan, Row};
use crate::reply::Fields;
use crate::run::Place;
use crate::serve::{busy, error_of, fill_stream, image_record, log_records, record_of};
use crate::settings::settings;
use crate::{frozen, image, indexing, live, readers, statistics, unit};

/// One command that waits.
pub struct Order {
    /// How to read it.
    pub row: &'static Row,
    /// Its place in the registry.
    pub entry: usize,
    /// Its words.
    pub args: OwnedArgs,
    /// What a copy copies.
    pub source: Option<Arc<Database>>,
}

/// Who waits.
pub struct Client {
    /// Its id.
    pub id: u64,
    /// Its database of keys.
    pub db: usize,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// Its wait.
    pub waiter: Arc<Waiter>,
    /// Takes the reply.
    pub deliver: Deliver,
    /// Takes how long its commands ran.
    pub report: Report,
}

/// Measures a command.
pub(crate) struct Timer(Instant);

impl Timer {
    pub(crate) fn new() -> Timer {
        Timer(Instant::now())
    }

    /// The command has ended: tells who waits for it.
    pub(crate) fn end(self, client: &Client, order: &Order, failed: bool) {
        let nanoseconds = self.0.elapsed().as_nanos() as u64;
        let (entry, args) = (order.entry, order.args.clone());
        client.report.add(commands::context::Ran { entry, args, nanoseconds, failed });
    }
}

/// Commands of one client that wait together.
pub struct Job {
    /// The key of the database.
    pub key: Vec<u8>,
    /// The commands.
    pub orders: Vec<Order>,
    /// Who waits.
    pub client: Client,
    /// The server.
    pub background: Arc<dyn Background>,
    /// A reader could not do it.
    pub is_for_writer: bool,
}

/// Commands that are run together, at most.
const GROUP_MAX: usize = 1024;
/// The thread ends when nothing came for so long.
const IDLE: Duration = Duration::from_secs(10);

/// Puts a job in line.
pub fn push(database: &Arc<Database>, job: Job) {
    database.queued.fetch_add(1, Ordering::AcqRel);
    let mut queue = lock(&database.queue);
    queue.jobs.push_back(job);
    if !std::mem::replace(&mut queue.has_thread, true) {
        let own = Arc::clone(database);
        let thread = std::thread::Builder::new().name("sql".into());
        if let Err(error) = thread.spawn(move || serve(&own)) {
            tracing::error!(%error, "no thread for a SQL database");
            queue.has_thread = false;
        }
    }
    drop(queue);
    database.wake.notify_one();
}

/// The thread's life.
fn serve(database: &Arc<Database>) {
    loop {
        let mut queue = lock(&database.queue);
        while queue.jobs.is_empty() {
            if queue.is_closed {
                queue.has_thread = false;
                return;
            }
            let waited = database.wake.wait_timeout(queue, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            queue = guard;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.has_thread = false;
                return;
            }
        }
        let count = queue.jobs.len().min(GROUP_MAX);
        let jobs: Vec<Job> = queue.jobs.drain(..count).collect();
        drop(queue);
        run(database, jobs);
        database.queued.fetch_sub(count, Ordering::AcqRel);
    }
}

/// What a command came to.
pub(crate) enum Piece {
    /// Its reply.
    Reply(Writer),
    /// Rows for a stream.
    Stream(Vec<u8>, Vec<Fields>, Dialect),
}

/// A job's results so far.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) wrote: bool,
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

fn run(database: &Arc<Database>, jobs: Vec<Job>) {
    // Read before the own connection is taken: two databases may copy each other.
    let images: Vec<Vec<Option<Vec<u8>>>> = jobs.iter().map(images_of).collect();
    if let Some(job) = jobs.first() {
        indexing::refresh(database, &*job.background);
    }
    let Some(mut lease) = database.lease_within(settings().timeout_ms()) else {
        return jobs.iter().for_each(|job| refuse(database, job));
    };
    if let Some(record) = indexing::catch_up(&mut lease) {
        database.leave(record);
    }
    let commands: usize = jobs.iter().map(|job| job.orders.len()).sum();
    let mut records = Vec::new();
    let mut all = None;
    if commands > 1 {
        all = run_together(&mut lease, &jobs, &images, &mut records);
    }
    if all.is_none() {
        records.clear();
    }
    records.into_iter().for_each(|record| database.leave(record));
    let done = all.unwrap_or_else(|| jobs.iter().map(|_| None).collect());
    let each = jobs.iter().zip(&images).zip(done);
    let all: Vec<Option<Ran>> = each
        .map(|((job, images), done)| done.or_else(|| run_or_leave(&mut lease, job, images)))
        .collect();
    drop(lease);
    for (job, ran) in jobs.into_iter().zip(all) {
        match ran {
            Some(ran) => answer(database, &job, ran),
            None => {
                if let Some(job) = readers::push(database, job, true) {
                    refuse(database, &job);
                }
            }
        }
    }
}

/// Runs a job by itself; `None` if it is for the readers: it only reads, and takes long.
fn run_or_leave(lease: &mut Lease, job: &Job, images: &[Option<Vec<u8>>]) -> Option<Ran> {
    if readers::may_have(&lease.database, job) {
        match readers::try_here(lease, job) {
            Ok(ran) => return Some(ran),
            Err(Failure::TooLong | Failure::Yielded | Failure::NeedsKeys) => return None,
            Err(_) => {}
        }
    }
    Some(run_apart(lease, job, images))
}

/// Answers a job that a client's transaction kept waiting for too long.
fn refuse(database: &Arc<Database>, job: &Job) {
    let mut ran = Ran::default();
    for order in &job.orders {
        let mut out = Writer::new(job.client.resp3);
        let dialect = (order.row.parse)(order.args.args()).map(|plan| plan.dialect);
        out.error(busy(dialect.unwrap_or(Dialect::Native)).message());
        ran.pieces.push(Piece::Reply(out));
    }
    answer(database, job, ran);
}

fn images_of(job: &Job) -> Vec<Option<Vec<u8>>> {
    let image = |order: &Order| order.source.as_ref()?.urgent_lease()?.handle.serialize().ok();
    job.orders.iter().map(image).collect()
}

/// Runs one command; its reply or rows become a piece.
fn perform_order(
    lease: &mut Lease,
    order: &Order,
    image: Option<&[u8]>,
    client: &Client,
    place: Place,
) -> Result<(Piece, Option<Record>), Failure> {
    let args = order.args.args();
    let mut out = Writer::new(client.resp3);
    let plan: Plan<'_> = match (order.row.parse)(args) {
        Ok(plan) => plan,
        Err(error) => {
            out.error(error.message());
            return Ok((Piece::Reply(out), None));
        }
    };
    frozen::begin(now_ms(), None);
    let timer = Timer::new();
    match perform(lease, &plan, image, &mut out, place) {
        Ok(Outcome { wrote, rows, image: own }) => {
            let record = wrote.then(|| match own.as_deref().or(image) {
                Some(image) => image_record(&lease.database, image),
                None => record_of(&lease.database, args),
            });
            let piece = match plan.action {
                Action::Run { into: Some(stream), .. } => {
                    Piece::Stream(stream.to_vec(), rows, plan.dialect)
                }
                _ => Piece::Reply(out),
            };
            statistics::add(plan.count, 1, 0);
            timer.end(client, order, false);
            Ok((piece, record))
        }
        Err(
            failure @ (Failure::TooLong
            | Failure::GroupLost
            | Failure::NeedsKeys
            | Failure::NeedsUnit
            | Failure::Yielded),
        ) => Err(failure),
        Err(failure) => {
            statistics::add(plan.count, 0, 1);
            timer.end(client, order, true);
            out.error(error_of(failure, plan.dialect).message());
            Ok((Piece::Reply(out), None))
        }
    }
}

/// Runs jobs in one transaction; `None` if that did not work, and nothing is left of it. Those
/// that call commands are left out.
fn run_together(
    lease: &mut Lease,
    jobs: &[Job],
    images: &[Vec<Option<Vec<u8>>>],
    records: &mut Vec<Record>,
) -> Option<Vec<Option<Ran>>> {
    lease.begin_group().ok()?;
    live::forget();
    let mut all = Vec::with_capacity(jobs.len());
    for (job, images) in jobs.iter().zip(images) {
        let mut ran = Some(Ran::default());
        for (order, image) in job.orders.iter().zip(images) {
            let client = &job.client;
            match perform_order(lease, order, image.as_deref(), client, Place::Group) {
                Ok((piece, record)) => {
                    let ran = ran.get_or_insert_default();
                    ran.pieces.push(piece);
                    ran.wrote |= record.is_some();
                    records.extend(record);
                }
                Err(Failure::NeedsUnit) if job.orders.len() == 1 => ran = None,
                Err(_) => {
                    lease.rollback_group();
                    // All is run again, and measured then.
                    jobs.iter().for_each(|job| drop(job.client.report.take()));
                    return None;
                }
            }
        }
        all.push(ran);
    }
    if end_group(lease, !records.is_empty()).is_err() {
        jobs.iter().for_each(|job| drop(job.client.report.take()));
        return None;
    }
    Some(all)
}

/// Has a file remember the last record that is in it, as part of the open transaction.
pub(crate) fn note_sequence(lease: &mut Lease) -> Result<(), Failure> {
    if lease.database.is_on_file() {
        let sequence = lease.database.sequence.load(Ordering::Acquire);
        image::store_sequence(lease, sequence)?;
    }
    Ok(())
}

/// Commits a group, with the number of its last record if it wrote.
pub(crate) fn end_group(lease: &mut Lease, wrote: bool) -> Result<(), Failure> {
    if wrote && let Err(failure) = note_sequence(lease) {
        lease.rollback_group();
        return Err(failure);
    }
    Ok(lease.commit_group()?)
}

/// Runs a command by itself; on file, in one transaction with the number of its record.
fn perform_alone(
    lease: &mut Lease,
    order: &Order,
    image: Option<&[u8]>,
    client: &Client,
) -> Result<(Piece, Option<Record>), Failure> {
    let place = Place::Thread(settings().timeout_ms());
    let vacuums = order.args.args().iter().any(|word| lexer::verb(word) == Verb::Vacuum);
    if !lease.database.is_on_file() || vacuums {
        return perform_order(lease, order, image, client, place);
    }
    lease.begin_group()?;
    match perform_order(lease, order, image, client, place) {
        Ok((piece, record)) => {
            if lease.in_group {
                end_group(lease, record.is_some())?;
            }
            Ok((piece, record))
        }
        Err(failure) => {
            lease.rollback_group();
            Err(failure)
        }
    }
}

/// The same; makes way for who needs an image, and begins again.
fn perform_yielding(
    lease: &mut Lease,
    order: &Order,
    image: Option<&[u8]>,
    client: &Client,
) -> Result<(Piece, Option<Record>), Failure> {
    loop {
        if lease.database.budget.is_urgent() {
            lease.make_way();
        }
        match perform_alone(lease, order, image, client) {
            Err(Failure::Yielded) => {}
            result => return result,
        }
    }
}

/// Each round of copying keys knows at least one table more.
pub(crate) const ROUNDS_MAX: usize = 64;

/// Copies the keys that a statement asked for, with their shards locked for the moment.
pub(crate) fn copy_keys(job: &Job) -> Result<(), String> {
    let mut copied = Ok(());
    let single = live::single_keys();
    job.background.turn(&mut |turn| {
        let Some(keys) = &single else {
            copied = turn.with_all_keys(job.client.db, live::copy);
            return;
        };
        let (mut session, mut out) = (session_of(&job.client), Writer::new(false));
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        turn.with_keys(&mut session, &mut out, &keys, |cx| copied = live::copy(&cx.keys));
    });
    copied
}

/// A session in a waiting client's place.
pub(crate) fn session_of(client: &Client) -> Session {
    let mut session = Session::new(client.id);
    (session.db, session.resp3) = (client.db, client.resp3);
    session
}

/// Runs a job's commands one by one.
fn run_apart(lease: &mut Lease, job: &Job, images: &[Option<Vec<u8>>]) -> Ran {
    let mut ran = Ran::default();
    for (order, image) in job.orders.iter().zip(images) {
        let client = &job.client;
        live::forget();
        let mut result = perform_yielding(lease, order, image.as_deref(), client);
        for _ in 0..ROUNDS_MAX {
            if !matches!(result, Err(Failure::NeedsKeys)) {
                break;
            }
            // Nobody who holds the connection may wait for keys.
            let database = Arc::clone(&lease.database);
            lease.end();
            let copied = copy_keys(job);
            *lease = database.lease();
            result = match copied {
                Ok(()) => perform_yielding(lease, order, image.as_deref(), client),
                Err(text) => Err(Failure::Refused(text)),
            };
        }
        live::forget();
        if matches!(result, Err(Failure::NeedsUnit)) {
            let database = Arc::clone(&lease.database);
            lease.end();
            ran.pieces.push(unit::run_order(&database, job, order));
            *lease = database.lease();
            continue;
        }
        match result {
            Ok((piece, record)) => {
                ran.pieces.push(piece);
                ran.wrote |= record.is_some();
                if let Some(record) = record {
                    lease.database.leave(record);
                }
            }
            Err(failure) => {
                let mut out = Writer::new(client.resp3);
                out.error(error_of(failure, Dialect::Native).message());
                ran.pieces.push(Piece::Reply(out));
            }
        }
    }
    ran
}

/// Logs what a job did, fills its streams, and answers its client.
pub(crate) fn answer(database: &Arc<Database>, job: &Job, ran: Ran) {
    let mut session = session_of(&job.client);
    let mut reply = Writer::new(job.client.resp3);
    let mut keys: Vec<&[u8]> = vec![&job.key];
    keys.extend(ran.pieces.iter().filter_map(|piece| match piece {
        Piece::Stream(stream, ..) => Some(&stream[..]),
        Piece::Reply(_) => None,
    }));
    job.background.turn(&mut |turn| {
        turn.with_keys(&mut session, &mut reply, &keys, |cx| {
            if ran.wrote {
                log_job(cx, database, &job.key);
            }
            for piece in &ran.pieces {
                match piece {
                    Piece::Reply(part) => cx.out.append(part),
                    Piece::Stream(stream, rows, dialect) => {
                        if let Err(error) = fill_stream(cx, stream, rows, *dialect) {
                            cx.out.error(error.message());
                        }
                        log_rewrites(cx);
                    }
                }
            }
        });
    });
    if ran.wrote {
        log_renamed(database, job);
    }
    if job.client.waiter.try_begin() {
        (job.client.deliver)(reply);
        job.client.waiter.end();
    }
}

pub(crate) fn holds(cx: &Context<'_>, key: &[u8], database: &Arc<Database>) -> bool {
    match cx.keys.peek(key) {
        Some(ValueRef::Foreign(value)) => {
            value.downcast::<Held>().is_some_and(|held| Arc::ptr_eq(&held.0, database))
        }
        _ => false,
    }
}

/// Logs what was left, if the key still has the database.
pub(crate) fn log_job(cx: &mut Context<'_>, database: &Arc<Database>, key: &[u8]) {
    if !holds(cx, key, database) {
        return;
    }
    let records = database.take_unlogged();
    cx.keys.changed(key);
    if cx.keys.space().is_logging() {
        log_records(cx, key, &records);
    }
}

/// Logs what is left of a database that was renamed while a command waited: under its new name.
fn log_renamed(database: &Arc<Database>, job: &Job) {
    if database.is_gone() || !database.has_unlogged.load(Ordering::Acquire) {
        return;
    }
    job.background.turn(&mut |turn| {
        for db in 0..turn.core.space.databases() {
            let found = turn.with_all_keys(db, |keys| name_of(keys, database));
            let Some(key) = found else { continue };
            let mut session = Session::new(job.client.id);
            session.db = db;
            let mut out = Writer::new(false);
            turn.with_keys(&mut session, &mut out, &[&key], |cx| log_job(cx, database, &key));
        }
    });
}

/// The key that has a database.
fn name_of(keys: &Keys<'_>, database: &Arc<Database>) -> Option<Vec<u8>> {
    let mut found = None;
    keys.for_each(|entry| {
        if let ValueRef::Foreign(value) = entry.value()
            && value.downcast::<Held>().is_some_and(|held| Arc::ptr_eq(&held.0, database))
        {
            found = Some(entry.key().to_vec());
        }
    });
    found
}

/// Logs what the entries of a stream came to.
fn log_rewrites(cx: &mut Context<'_>) {
    let db = cx.keys.db();
    for words in cx.keys.effects.rewrites.take().unwrap_or_default() {
        cx.log.push(db, words.iter().map(Vec::as_slice));
    }
}
