//! Transactions that span commands of one connection: SQL.BEGIN, SQL.COMMIT, SQL.ROLLBACK.
//!
//! Each has a thread of its own, which holds the database and runs the client's commands in turn.
//!
//! ```text
//!            BEGIN                  COMMIT
//!  (none) ---------> open ----------------------> (none)   logged as one record
//!                     |  \---------------------->          ROLLBACK, RESET, disconnect: undone
//!          idle, too  |
//!          long, lost v                COMMIT: error
//!                   lost  ----------------------> (none)   ROLLBACK: fine
//!                    \ every other command on the database: error
//! ```
//!
//! In `open` a writing transaction has the database to itself; others wait, up to `sql-timeout-ms`,
//! and are told `database is locked` then; MULTI and scripts, which hold keys, are told so at once.
//! A reading one has a snapshot, and keeps nobody waiting.
//!
//! **Invariant:** what a transaction did is in the log once it is committed, as one record; before,
//! nobody else sees it.
//! **Invariant:** an image of the database (SAVE, DUMP, a snapshot) never waits for a transaction:
//! the transaction is taken back, lends the database, and does again what it did; its commands,
//! with the time and chance they saw, have the same results.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use commands::context::{Background, Context};
use commands::error::Error;
use commands::words::is;
use resp::{Args, OwnedArgs, Writer};

use crate::calls::{CALLS_MAX, Mode};
use crate::connection::Connection;
use crate::cursor::Cursors;
use crate::database::{Database, Lease, Record};
use crate::error::Failure;
use crate::perform::perform;
use crate::plan::{Action, Dialect, Plan, Row};
use crate::queue::{self, Client, Job, Order, Piece, Ran, Timer, now_ms, session_of};
use crate::run::Place;
use crate::serve::{error_of, find, log_left, log_records, make_wait};
use crate::settings::settings;
use crate::{calls, frozen, indexing, live, snapshot, statistics};

/// What is kept for a client between its commands.
#[derive(Default)]
pub struct Kept {
    open: Option<Open>,
    /// Its cursors.
    pub cursors: Cursors,
}

/// The client's end of an open transaction.
struct Open {
    database: Arc<Database>,
    db: usize,
    key: Vec<u8>,
    sender: Sender<Ask>,
    /// It could not begin.
    has_failed: Arc<AtomicBool>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // The thread has ended if it does not listen.
        let _ = self.sender.send(Ask::End);
    }
}

/// What the thread is asked.
enum Ask {
    Run(Order, Client),
    Commit(Job),
    Rollback(Client),
    /// Somebody needs an image.
    MakeWay,
    /// The client has gone.
    End,
}

/// Transactions and cursors that are open in this process.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// One of those.
pub struct Ticket(());

impl Ticket {
    /// One more, if that is allowed.
    ///
    /// # Errors
    /// In words.
    pub fn take() -> Result<Ticket, Error> {
        let ticket = Ticket(());
        if OPEN.fetch_add(1, Ordering::AcqRel) < settings().sessions_max() {
            return Ok(ticket);
        }
        Err(Error::text("ERR too many SQL transactions and cursors are open (sql-sessions-max)"))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is kept for the client; made if nothing is.
pub fn kept<'c>(cx: &'c mut Context<'_>) -> &'c mut Kept {
    let is_ours = cx.session.kept.as_ref().is_some_and(|kept| kept.is::<Kept>());
    if !is_ours {
        cx.session.kept = Some(Box::<Kept>::default());
    }
    let kept = cx.session.kept.as_mut().and_then(|kept| kept.downcast_mut::<Kept>());
    kept.expect("it was made so")
}

fn known<'c>(cx: &'c mut Context<'_>) -> Option<&'c mut Kept> {
    cx.session.kept.as_mut()?.downcast_mut::<Kept>()
}

/// Forgets what is kept, if there is nothing in it.
pub fn tidy(cx: &mut Context<'_>) {
    if known(cx).is_some_and(|kept| kept.open.is_none() && kept.cursors.is_empty()) {
        cx.session.kept = None;
    }
}

const NO_THREAD: Error = Error::text("ERR there is no thread for it");

/// Refuses where a command cannot wait.
///
/// # Errors
/// In a transaction with keys, in a script.
pub fn background(cx: &Context<'_>) -> Result<Arc<dyn Background>, Error> {
    const TEXT: &str = "ERR not inside MULTI or a script: those are transactions themselves";
    if cx.session.in_exec || cx.script.is_some() {
        return Err(Error::text(TEXT));
    }
    cx.host.background().ok_or(NO_THREAD)
}

/// Whether the client has a writing or reading transaction open on this database.
pub fn is_open_on(cx: &mut Context<'_>, database: &Arc<Database>) -> bool {
    let open = known(cx).and_then(|kept| kept.open.as_ref());
    open.is_some_and(|open| Arc::ptr_eq(&open.database, database))
}

/// SQL.BEGIN.
pub fn begin(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let reads = match args.get(2) {
        None => false,
        Some(word) if is(word, "READ") && args.len() == 3 => true,
        Some(_) => return Err(Error::SYNTAX),
    };
    let key = args.word(1);
    let database = find(cx, key, Dialect::Native)?;
    let background = background(cx)?;
    forget_failed(cx);
    if kept(cx).open.is_some() {
        return Err(Error::text("ERR a SQL transaction is open already"));
    }
    let ticket = Ticket::take().inspect_err(|_| tidy(cx))?;
    let (sender, receiver) = channel();
    let has_failed = Arc::new(AtomicBool::new(false));
    let client = make_wait(cx);
    let start = Start {
        ticket,
        reads,
        background,
        database: Arc::clone(&database),
        sender: sender.clone(),
        has_failed: Arc::clone(&has_failed),
    };
    let thread = std::thread::Builder::new().name("sql-session".into());
    if thread.spawn(move || work(start, &client, &receiver)).is_err() {
        cx.session.blocked = None;
        tidy(cx);
        return Err(NO_THREAD);
    }
    let db = cx.session.db;
    kept(cx).open = Some(Open { database, db, key: key.to_vec(), sender, has_failed });
    Ok(())
}

/// Forgets a transaction that could not begin.
fn forget_failed(cx: &mut Context<'_>) {
    if let Some(kept) = known(cx)
        && kept.open.as_ref().is_some_and(|open| open.has_failed.load(Ordering::Acquire))
    {
        kept.open = None;
    }
}

const NONE_OPEN: Error = Error::text("ERR no SQL transaction is open");

fn take_open(cx: &mut Context<'_>) -> Result<Open, Error> {
    forget_failed(cx);
    let open = known(cx).and_then(|kept| kept.open.take()).ok_or(NONE_OPEN);
    tidy(cx);
    open
}

/// SQL.COMMIT.
pub fn commit(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let background = background(cx)?;
    let open = take_open(cx)?;
    let mut client = make_wait(cx);
    client.db = open.db;
    let job =
        Job { key: open.key.clone(), orders: Vec::new(), client, background, is_for_writer: false };
    open.sender.send(Ask::Commit(job)).map_err(|_| give_up(cx))
}

/// SQL.ROLLBACK.
pub fn rollback(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    background(cx)?;
    let open = take_open(cx)?;
    let client = make_wait(cx);
    open.sender.send(Ask::Rollback(client)).map_err(|_| give_up(cx))
}

/// The thread has gone, which it does not before it is told to.
fn give_up(cx: &mut Context<'_>) -> Error {
    cx.session.blocked = None;
    NO_THREAD
}

/// Gives a command to the client's open transaction, if it is on that database.
///
/// # Errors
/// If the command has no place there.
pub fn takes(
    cx: &mut Context<'_>,
    row: &'static Row,
    plan: &Plan<'_>,
    database: &Arc<Database>,
    args: Args<'_>,
) -> Result<bool, Error> {
    forget_failed(cx);
    let db = cx.session.db;
    let Some(open) = known(cx).and_then(|kept| kept.open.as_ref()) else { return Ok(false) };
    if !Arc::ptr_eq(&open.database, database) {
        if open.db == db && open.key == plan.key {
            return Err(Error::text("ERR the database of the open SQL transaction is gone"));
        }
        return Ok(false);
    }
    let sender = open.sender.clone();
    match plan.action {
        action if !action.fits_transaction() => {
            let text = "ERR no copies, loads or attachments inside a transaction";
            return Err(Error::text(text));
        }
        Action::Run { into: Some(_), .. } => {
            let text = "ERR rows cannot go to a stream inside SQL.BEGIN: it would see them early";
            return Err(Error::text(text));
        }
        _ => {}
    }
    background(cx)?;
    let order = Order { row, entry: cx.entry.index, args: args.to_owned(), source: None };
    let client = make_wait(cx);
    sender.send(Ask::Run(order, client)).map(|()| true).map_err(|_| give_up(cx))
}

// The thread.

/// What a transaction begins with.
struct Start {
    ticket: Ticket,
    reads: bool,
    background: Arc<dyn Background>,
    database: Arc<Database>,
    sender: Sender<Ask>,
    has_failed: Arc<AtomicBool>,
}

/// What a transaction runs on.
enum Side {
    Writes(Lease),
    Reads(Box<Connection>),
}

impl Deref for Side {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Side::Writes(lease) => lease,
            Side::Reads(connection) => connection,
        }
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Connection {
        match self {
            Side::Writes(lease) => lease,
            Side::Reads(connection) => connection,
        }
    }
}

/// A command that changed something: what it takes to do it again.
struct Step {
    now_ms: i64,
    seed: u64,
    order: Order,
}

/// An open transaction, or what is left of one.
struct Work {
    database: Arc<Database>,
    /// Where it runs; `None` once it is lost.
    side: Option<Side>,
    why_lost: String,
    steps: Vec<Step>,
    /// Commands that they called: for the commit.
    calls: Vec<OwnedArgs>,
    until: Instant,
    _ticket: Ticket,
}

/// Answers a client that waits.
pub(crate) fn reply(client: &Client, out: Writer) {
    if client.waiter.try_begin() {
        (client.deliver)(out);
        client.waiter.end();
    }
}

fn reply_with(client: &Client, result: Result<(), Error>) {
    let mut out = Writer::new(client.resp3);
    match result {
        Ok(()) => out.ok(),
        Err(error) => out.error(error.message()),
    }
    reply(client, out);
}

/// The thread's life.
fn work(start: Start, client: &Client, receiver: &Receiver<Ask>) {
    let mut work = match open(start) {
        Ok(work) => work,
        Err((has_failed, failure)) => {
            has_failed.store(true, Ordering::Release);
            return reply_with(client, Err(error_of(failure, Dialect::Native)));
        }
    };
    reply_with(client, Ok(()));
    loop {
        let asked = match work.patience() {
            Some(wait) => receiver.recv_timeout(wait),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match asked {
            Ok(Ask::Run(order, client)) => work.run(order, &client),
            Ok(Ask::Commit(job)) => return work.commit(&job),
            Ok(Ask::Rollback(client)) => {
                drop(work);
                return reply_with(&client, Ok(()));
            }
            Ok(Ask::MakeWay) => work.make_way(),
            Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= work.until => {
                work.lose("it was open for longer than sql-transaction-timeout-ms");
            }
            Err(RecvTimeoutError::Timeout) => {
                work.lose("it was idle for longer than sql-idle-timeout-ms");
            }
        }
    }
}

/// Takes the database and begins.
fn open(start: Start) -> Result<Work, (Arc<AtomicBool>, Failure)> {
    let Start { ticket, reads, background, database, sender, has_failed } = start;
    let side = || -> Result<Side, Failure> {
        if reads {
            return snapshot::take(&database, &*background).map(Side::Reads);
        }
        indexing::refresh(&database, &*background);
        let lease = database.lease_within(settings().timeout_ms());
        let mut lease = lease.ok_or(Failure::Busy)?;
        let record = indexing::catch_up(&mut lease);
        record.into_iter().for_each(|record| database.leave(record));
        lease.begin_group()?;
        lease.reserve(Box::new(move || {
            // Whoever ends the transaction lets go of the database.
            let _ = sender.send(Ask::MakeWay);
        }));
        Ok(Side::Writes(lease))
    };
    let side = match side() {
        Ok(side) => side,
        Err(failure) => return Err((has_failed, failure)),
    };
    let until = Instant::now() + Duration::from_millis(settings().transaction_ms());
    let (why_lost, steps, calls) = (String::new(), Vec::new(), Vec::new());
    Ok(Work { database, side: Some(side), why_lost, steps, calls, until, _ticket: ticket })
}

impl Work {
    /// How long to wait for the client; for ever once there is nothing to lose.
    fn patience(&self) -> Option<Duration> {
        self.side.as_ref()?;
        let left = self.until.saturating_duration_since(Instant::now());
        Some(left.min(Duration::from_millis(settings().idle_ms())))
    }

    fn lose(&mut self, why: &str) {
        self.side = None;
        self.steps.clear();
        self.calls.clear();
        self.why_lost = why.to_string();
    }

    fn lost(&self) -> Error {
        Error::new(format!("ERR the SQL transaction was rolled back: {}", self.why_lost))
    }

    /// Runs one command and answers it.
    fn run(&mut self, order: Order, client: &Client) {
        let mut out = Writer::new(client.resp3);
        let timer = Timer::new();
        let result = loop {
            match self.perform(&order, &mut out) {
                Err(Failure::Yielded) => self.make_way(),
                result => break result,
            }
        };
        timer.end(client, &order, result.is_err());
        match result {
            Ok(Some((now_ms, seed))) => self.steps.push(Step { now_ms, seed, order }),
            Ok(None) => {}
            Err(failure) => {
                let plan = (order.row.parse)(order.args.args());
                let dialect = plan.map_or(Dialect::Native, |plan| plan.dialect);
                let was_open = self.side.is_some();
                let error = error_of(failure, dialect);
                if self.side.as_ref().is_some_and(|side| !side.in_group) {
                    self.lose(&format!("a statement took it along: {}", error.message()));
                }
                let lost = self.side.is_none() && !was_open;
                out.error(if lost { self.lost() } else { error }.message());
            }
        }
        reply(client, out);
    }

    /// Performs one command; tells the time and the chance it saw if it changed something.
    fn perform(&mut self, order: &Order, out: &mut Writer) -> Result<Option<(i64, u64)>, Failure> {
        let Some(side) = &mut self.side else { return Err(Failure::GroupLost) };
        let _watched = match side {
            Side::Reads(reader) => Some(self.database.readers.watch(&reader.budget)),
            Side::Writes(_) => None,
        };
        let parsed = (order.row.parse)(order.args.args());
        let plan = parsed.map_err(|error| Failure::refused(error.message()))?;
        let now_ms = now_ms();
        frozen::begin(now_ms, None);
        live::forget();
        let place = Place::Thread(settings().timeout_ms());
        if self.calls.len() >= CALLS_MAX {
            return Err(Failure::refused("ERR the transaction calls too many commands"));
        }
        let run = || perform(side, &plan, None, out, place);
        let (result, calls) = calls::with(Mode::Collected, run);
        self.calls.extend(calls);
        live::forget();
        let counted = !matches!(result, Err(Failure::Yielded));
        let is_well = result.is_ok();
        if counted {
            statistics::add(plan.count, is_well.into(), (!is_well).into());
        }
        let seed = frozen::seen().map_or(0, |seen| seen.seed);
        result.map(|outcome| outcome.wrote.then_some((now_ms, seed)))
    }

    /// Lends the database to who needs an image, and does again what was done.
    fn make_way(&mut self) {
        let Some(Side::Writes(lease)) = &mut self.side else { return };
        lease.make_way();
        if let Err(failure) = do_again(lease, &self.steps) {
            let error = error_of(failure, Dialect::Native);
            self.lose(&format!("it could not be repeated after a save: {}", error.message()));
        }
    }

    /// Commits, logs, answers.
    fn commit(mut self, job: &Job) {
        let steps = std::mem::take(&mut self.steps);
        let lease = match self.side.take() {
            None => return reply_with(&job.client, Err(self.lost())),
            Some(Side::Reads(_)) => return reply_with(&job.client, Ok(())),
            Some(Side::Writes(lease)) => lease,
        };
        if self.database.is_gone() {
            drop(lease);
            let text = "ERR the database was removed while the transaction was open";
            return reply_with(&job.client, Err(Error::text(text)));
        }
        if !self.calls.is_empty() {
            let calls = std::mem::take(&mut self.calls);
            let result = commit_with_calls(&self.database, job, lease, &steps, &calls);
            let error = |failure| error_of(failure, Dialect::Native);
            return reply_with(&job.client, result.map_err(error));
        }
        match commit_steps(lease, &steps) {
            Ok(()) => {
                let mut out = Writer::new(job.client.resp3);
                out.ok();
                let ran = Ran { pieces: vec![Piece::Reply(out)], wrote: !steps.is_empty() };
                queue::answer(&self.database, job, ran);
            }
            Err(failure) => reply_with(&job.client, Err(error_of(failure, Dialect::Native))),
        }
    }
}

/// Does again what was done, in a new transaction; what it called then is known.
fn do_again(lease: &mut Lease, steps: &[Step]) -> Result<(), Failure> {
    lease.begin_group()?;
    let mut out = Writer::new(false);
    for step in steps {
        let parsed = (step.order.row.parse)(step.order.args.args());
        let plan = parsed.map_err(|error| Failure::refused(error.message()))?;
        frozen::begin(step.now_ms, (step.seed != 0).then_some(step.seed));
        let place = Place::Unit(u64::MAX / 4);
        let run = || perform(lease, &plan, None, &mut out, place);
        calls::with(Mode::Ignored, run).0?;
        out.clear();
    }
    Ok(())
}

/// Commits what was done together with what it called, and logs both as one. Keys are locked
/// before the connection is taken: so it is given back first, and what was done is done again.
fn commit_with_calls(
    database: &Arc<Database>,
    job: &Job,
    mut lease: Lease,
    steps: &[Step],
    calls: &[OwnedArgs],
) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_millis(settings().timeout_ms());
    loop {
        lease.end();
        let mut result = Err(Failure::Busy);
        let (mut session, mut out) = (session_of(&job.client), Writer::new(false));
        job.background.turn(&mut |turn| {
            turn.with_keys(&mut session, &mut out, &[&job.key], |cx| {
                if !queue::holds(cx, &job.key, database) {
                    let text = "ERR the database has gone from its key";
                    result = Err(Failure::refused(text));
                    return;
                }
                cx.keys.before_inner_change(&job.key);
                lease.come_back();
                log_left(cx, &job.key, database);
                result = commit_now(cx, &mut lease, &job.key, steps, calls);
            });
        });
        if result != Err(Failure::Busy) || Instant::now() >= until {
            return result;
        }
    }
}

/// The same, with the database's key held.
fn commit_now(
    cx: &mut Context<'_>,
    lease: &mut Lease,
    key: &[u8],
    steps: &[Step],
    calls: &[OwnedArgs],
) -> Result<(), Failure> {
    do_again(lease, steps)?;
    cx.log.open();
    let mark = cx.log.mark();
    let mut commit = || -> Result<(), Failure> {
        if !steps.is_empty() {
            let sequence = lease.database.sequence.fetch_add(1, Ordering::AcqRel) + 1;
            if cx.keys.space().is_logging() {
                log_records(cx, key, &[unit_record(sequence, steps)]);
            }
            queue::note_sequence(lease)?;
        }
        calls::run(cx, calls.to_vec(), key)?;
        cx.keys.select(cx.session.db);
        cx.keys.changed(key);
        Ok(lease.commit_group()?)
    };
    let result = commit();
    if result.is_err() {
        cx.log.back_to(mark);
        cx.late.clear();
    }
    cx.log.close();
    cx.run_late();
    // Last: each command that was called has asked for its own record.
    cx.keys.rewrite_to_nothing();
    result
}

/// Commits what was done, and leaves its record.
fn commit_steps(mut lease: Lease, steps: &[Step]) -> Result<(), Failure> {
    if steps.is_empty() {
        return Ok(lease.commit_group()?);
    }
    let database = Arc::clone(&lease.database);
    let sequence = database.sequence.fetch_add(1, Ordering::AcqRel) + 1;
    queue::end_group(&mut lease, true)?;
    database.leave(unit_record(sequence, steps));
    Ok(())
}

/// The record of a whole transaction: `sequence 0 0 SQL.UNIT`, then for each command the number of
/// its words, the time and the seed it saw, and the words.
fn unit_record(sequence: u64, steps: &[Step]) -> Record {
    let number = |number: i64| number.to_string().into_bytes();
    let mut record = vec![sequence.to_string().into_bytes(), number(0), number(0)];
    record.push(UNIT.as_bytes().to_vec());
    for step in steps {
        let words = step.order.args.args();
        record.push(number(words.len() as i64));
        record.push(number(step.now_ms));
        record.push(number(step.seed as i64));
        record.extend(words.iter().map(<[u8]>::to_vec));
    }
    record
}

/// What a whole transaction is called in the log.
pub const UNIT: &str = "SQL.UNIT";

/// The commands of a record's words after its name, each with the time and the seed it saw.
///
/// # Errors
/// If they make no sense.
pub fn unit_commands(words: Args<'_>) -> Result<Vec<(i64, u64, OwnedArgs)>, Error> {
    let number = |index: usize| {
        let word = words.get(index).ok_or(Error::SYNTAX)?;
        resp::number::integer(word).ok_or(Error::SYNTAX)
    };
    let (mut at, mut commands) = (0, Vec::new());
    while at < words.len() {
        let count = usize::try_from(number(at)?).map_err(|_| Error::SYNTAX)?;
        let (now_ms, seed) = (number(at + 1)?, number(at + 2)? as u64);
        at += 3;
        if count == 0 || count > words.len() - at {
            return Err(Error::SYNTAX);
        }
        let own: Vec<&[u8]> = words.iter().skip(at).take(count).collect();
        commands.push((now_ms, seed, OwnedArgs::new(&own)));
        at += count;
    }
    Ok(commands)
}
