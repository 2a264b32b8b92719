//! Long reads, beside each other and beside the writer: on threads and connections of their own.
//!
//! ```text
//! on file    each reader has a connection, and sees what is committed when it begins
//! in memory  each reads a picture: a copy of the database, made once for all who waited for it
//! ```
//!
//! A read comes here after it was found to take long, or where its database is on file and busy.
//! What turns out not to be a read, or fails, goes to the database's own thread.
//!
//! **Invariant:** a read sees all that was committed before it arrived, indexes of hashes included:
//! its picture was made later, or nothing was committed since.
//! **Bound:** [`threads_max`] threads a database; no picture is made of a database larger than
//! [`PICTURE_BYTES_MAX`], and none is kept longer than `IDLE`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use resp::Writer;

use crate::budget::{Budget, Stopped};
use crate::connection::Connection;
use crate::database::{Database, Lease, lock};
use crate::error::{Failure, SqlError};
use crate::lexer::{self, Verb};
use crate::perform::{Outcome, perform};
use crate::plan::{Action, Plan};
use crate::queue::{self, Job, Order, Piece, ROUNDS_MAX, Ran, Timer, copy_keys, now_ms};
use crate::raw::picture::Picture;
use crate::run::{NO_STATEMENT, Place, Source};
use crate::serve::error_of;
use crate::settings::settings;
use crate::{frozen, image, indexing, live, snapshot, statistics};

/// The largest database of which a picture is made, in bytes.
pub const PICTURE_BYTES_MAX: usize = 512 << 20;
/// The largest of which one is made at once: some milliseconds. A read of a larger one is first
/// given about as much time on the writer's connection.
const AT_ONCE_BYTES_MAX: usize = 32 << 20;
/// A reader ends when nothing came for so long.
const IDLE: Duration = Duration::from_secs(2);

/// Readers of one database.
pub fn threads_max() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(4)
}

/// The readers of a database, and what waits for them.
#[derive(Default)]
pub struct Readers {
    line: Mutex<Line>,
    wake: Condvar,
    latest: Mutex<Option<Taken>>,
    running: Mutex<Vec<Arc<Budget>>>,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Read>,
    threads: usize,
    idle: usize,
}

/// A job that waits for a reader.
struct Read {
    job: Job,
    arrived: Instant,
}

/// The last picture.
#[derive(Clone)]
struct Taken {
    picture: Arc<Picture>,
    at: Instant,
    version: u32,
}

impl Readers {
    /// Has [`Readers::cancel`] stop what runs under a budget, as long as the result lives.
    pub(crate) fn watch<'r>(&'r self, budget: &Arc<Budget>) -> Watched<'r> {
        lock(&self.running).push(Arc::clone(budget));
        Watched { readers: self, budget: Arc::clone(budget) }
    }

    /// Stops what runs now; whether anything did.
    pub fn cancel(&self) -> bool {
        let running = lock(&self.running);
        running.iter().for_each(|budget| budget.cancel());
        !running.is_empty()
    }
}

/// A read that can be cancelled.
pub(crate) struct Watched<'r> {
    readers: &'r Readers,
    budget: Arc<Budget>,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        lock(&self.readers.running).retain(|other| !Arc::ptr_eq(other, &self.budget));
    }
}

/// Functions that tell of the connection, not of the database.
const OWN_TO_WRITER: [&[u8]; 3] = [b"changes", b"total_changes", b"last_insert_rowid"];

fn tells_of_writer(text: &[u8]) -> bool {
    OWN_TO_WRITER.iter().any(|word| lexer::has_word(text, word))
}

/// Whether a plan looks like a read.
pub fn is_read(plan: &Plan<'_>) -> bool {
    match plan.action {
        Action::Run { request, .. } => match request.source {
            Source::Text(text) => lexer::verb(text) == Verb::Query && !tells_of_writer(text),
            Source::Named(_) => request.reads,
        },
        _ => false,
    }
}

/// Whether readers can have a job.
pub fn may_have(database: &Database, job: &Job) -> bool {
    let is_read = |order: &Order| (order.row.parse)(order.args.args()).is_ok_and(|p| is_read(&p));
    let fits = database.is_on_file() || database.bytes() <= PICTURE_BYTES_MAX;
    fits && !job.is_for_writer && job.orders.iter().all(is_read)
}

/// Gives a job of reads to the readers; back if they cannot have it. `is_long`: it was begun and
/// took too long.
pub fn push(database: &Arc<Database>, job: Job, is_long: bool) -> Option<Job> {
    if !(is_long || database.is_on_file()) || !may_have(database, &job) {
        return Some(job);
    }
    let mut line = lock(&database.readers.line);
    line.jobs.push_back(Read { job, arrived: Instant::now() });
    if line.idle < line.jobs.len() && line.threads < threads_max() {
        line.threads += 1;
        let own = Arc::clone(database);
        let thread = std::thread::Builder::new().name("sql-reader".into());
        if let Err(error) = thread.spawn(move || serve(&own)) {
            tracing::error!(%error, "no thread for a SQL reader");
            line.threads -= 1;
            if line.threads == 0 {
                return line.jobs.pop_back().map(|read| read.job);
            }
        }
    }
    drop(line);
    database.readers.wake.notify_one();
    None
}

/// A reader's life.
fn serve(database: &Arc<Database>) {
    let readers = &database.readers;
    let mut reader = Reader { connection: None, version: None };
    loop {
        let mut line = lock(&readers.line);
        let read = loop {
            if let Some(read) = line.jobs.pop_front() {
                break read;
            }
            line.idle += 1;
            let waited = readers.wake.wait_timeout(line, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            line = guard;
            line.idle -= 1;
            if timeout.timed_out() && line.jobs.is_empty() {
                line.threads -= 1;
                let is_last = line.threads == 0;
                drop(line);
                if is_last {
                    lock(&readers.latest).take();
                }
                return;
            }
        };
        drop(line);
        match reader.run(database, &read) {
            Ok(ran) => queue::answer(database, &read.job, ran),
            // The writer knows better what is wrong with it, and may be able to do it.
            Err(_) => {
                drop(read.job.client.report.take());
                queue::push(database, Job { is_for_writer: true, ..read.job });
            }
        }
    }
}

/// One reader's connection.
struct Reader {
    connection: Option<Box<Connection>>,
    /// That of the picture that it reads.
    version: Option<u32>,
}

impl Reader {
    /// Runs a job.
    fn run(&mut self, database: &Arc<Database>, read: &Read) -> Result<Ran, Failure> {
        indexing::refresh(database, &*read.job.background);
        if !database.is_on_file() {
            if let Some(ran) = self.catch_up(database, read)? {
                return Ok(ran);
            }
        } else if self.connection.is_none() {
            let path = database.path.as_deref();
            self.connection = Some(Box::new(Connection::open_to_read(path)?));
        }
        let Some(connection) = &mut self.connection else { return Err(Failure::Busy) };
        if database.is_on_file() {
            snapshot::catch_up(database)?;
            image::recall(connection)?;
        }
        let _watched = database.readers.watch(&connection.budget);
        let place = Place::Thread(settings().timeout_ms());
        run_orders(connection, &read.job, place)
    }

    /// Sees to it that the connection reads a picture that is new enough; what the job came to, if
    /// it was short after all.
    fn catch_up(&mut self, database: &Arc<Database>, read: &Read) -> Result<Option<Ran>, Failure> {
        let latest = lock(&database.readers.latest).clone();
        if let Some(taken) = latest.filter(|taken| taken.at >= read.arrived) {
            self.show(&taken)?;
            return Ok(None);
        }
        let mut lease = snapshot::lease_to_read(database)?;
        if !database.is_reserved() {
            let record = indexing::catch_up(&mut lease);
            record.into_iter().for_each(|record| database.leave(record));
        }
        // Looked at again: others may have waited for the same lease.
        let latest = lock(&database.readers.latest).clone();
        let version = lease.handle.data_version();
        if let Some(taken) = latest.filter(|taken| taken.version == version) {
            drop(lease);
            self.show(&taken)?;
            return Ok(None);
        }
        if database.bytes() > AT_ONCE_BYTES_MAX {
            match try_here(&mut lease, &read.job) {
                Err(Failure::TooLong | Failure::Yielded | Failure::NeedsKeys) => {}
                result => return result.map(Some),
            }
        }
        let at = Instant::now();
        let picture = Arc::new(lease.handle.picture()?);
        drop(lease);
        let taken = Taken { picture, at, version };
        *lock(&database.readers.latest) = Some(taken.clone());
        self.show(&taken)?;
        Ok(None)
    }

    /// Reads a picture from now on.
    fn show(&mut self, taken: &Taken) -> Result<(), SqlError> {
        if self.version == Some(taken.version) && self.connection.is_some() {
            return Ok(());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Box::new(Connection::open_to_read(None)?),
        };
        connection.forget();
        connection.handle.show(&taken.picture)?;
        image::recall(&mut connection)?;
        (self.connection, self.version) = (Some(connection), Some(taken.version));
        Ok(())
    }
}

/// Runs a job of reads on the writer's connection, if it does not take long there.
///
/// # Errors
/// [`Failure::TooLong`], [`Failure::NeedsKeys`]; any other, which is for the writer to tell.
pub(crate) fn try_here(lease: &mut Lease, job: &Job) -> Result<Ran, Failure> {
    run_orders(lease, job, Place::Group)
}

/// Runs a job's orders.
fn run_orders(connection: &mut Connection, job: &Job, place: Place) -> Result<Ran, Failure> {
    let mut ran = Ran::default();
    for order in &job.orders {
        live::forget();
        let mut result = run_order(connection, job, order, place);
        for _ in 0..ROUNDS_MAX {
            if place == Place::Group || !matches!(result, Err(Failure::NeedsKeys)) {
                break;
            }
            result = match copy_keys(job) {
                Ok(()) => run_order(connection, job, order, place),
                Err(text) => Err(Failure::Refused(text)),
            };
        }
        live::forget();
        ran.pieces.push(result?);
    }
    Ok(ran)
}

fn run_order(
    connection: &mut Connection,
    job: &Job,
    order: &Order,
    place: Place,
) -> Result<Piece, Failure> {
    let parsed = (order.row.parse)(order.args.args());
    let mut plan = parsed.map_err(|_| Failure::refused(NO_STATEMENT))?;
    let Action::Run { request, .. } = &mut plan.action else {
        return Err(Failure::refused(NO_STATEMENT));
    };
    // What writes is refused before it does: it may be the writer's connection.
    request.reads = true;
    if let Source::Named(name) = request.source {
        let text = connection.named.get(name).map(|named| &named.text[..]);
        if text.is_none_or(tells_of_writer) {
            return Err(Failure::Sql(SqlError::general(NO_STATEMENT)));
        }
    }
    let mut out = Writer::new(job.client.resp3);
    frozen::begin(now_ms(), None);
    let timer = Timer::new();
    match perform(connection, &plan, None, &mut out, place) {
        Ok(Outcome { rows, wrote, .. }) => {
            debug_assert!(!wrote);
            statistics::add(plan.count, 1, 0);
            timer.end(&job.client, order, false);
            Ok(match plan.action {
                Action::Run { into: Some(stream), .. } => {
                    Piece::Stream(stream.to_vec(), rows, plan.dialect)
                }
                _ => Piece::Reply(out),
            })
        }
        Err(Failure::Refused(text)) if connection.budget.stopped() != Stopped::No => {
            statistics::add(plan.count, 0, 1);
            timer.end(&job.client, order, true);
            out.error(error_of(Failure::Refused(text), plan.dialect).message());
            Ok(Piece::Reply(out))
        }
        Err(failure) => Err(failure),
    }
}
