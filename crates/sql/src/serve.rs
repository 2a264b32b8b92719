//! Serving a command: where it arrives if it is short, else on its database's thread; inside MULTI
//! and Lua as part of the transaction.
//!
//! **Invariant:** a command's reply is written after what it did is committed and logged.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use commands::command::{Pipeline, WRITE};
use commands::context::{Block, Blocked, Context, Participant, Report, Wake};
use commands::error::Error;
use keyspace::hasher::hash;
use keyspace::keyspace::shard_of;
use keyspace::raw::shards::ShardSet;
use keyspace::value::{Kind, Value, ValueRef};
use keyspace::waiting::Waiter;
use resp::{Args, OwnedArgs, Writer};

use crate::database::{Database, Held, Lease, Record, TYPE_NAME};
use crate::error::Failure;
use crate::frozen;
use crate::image;
use crate::live;
use crate::perform::{Outcome, perform};
use crate::plan::{Action, Dialect, Plan, Row};
use crate::queue::{self, Client, Job, Order};
use crate::reply::Fields;
use crate::run::Place;
use crate::settings::settings;
use crate::statistics::Count;
use crate::{indexing, readers, statistics, transaction, unit};

/// The database at a key.
///
/// # Errors
/// If there is none, in the dialect's words.
pub fn find(cx: &Context<'_>, key: &[u8], dialect: Dialect) -> Result<Arc<Database>, Error> {
    match cx.keys.get(key) {
        Some(ValueRef::Foreign(value)) => match value.downcast::<Held>() {
            Some(held) => Ok(Arc::clone(&held.0)),
            None => Err(Error::WRONG_TYPE),
        },
        Some(_) if dialect == Dialect::V2 => Err(Error::text("Key does not belong to us")),
        Some(_) => Err(Error::WRONG_TYPE),
        None => Err(match dialect {
            Dialect::V1 => Error::text("ERR - Error the key is empty"),
            Dialect::V2 => Error::text("Key does not exists"),
            Dialect::Native => Error::text("ERR no such database"),
        }),
    }
}

/// What the client reads of a failure.
pub fn error_of(failure: Failure, dialect: Dialect) -> Error {
    match failure {
        Failure::Sql(error) if dialect == Dialect::Native => {
            Error::new(format!("{} {}", error.name(), error.message))
        }
        Failure::Sql(error) => Error::new(error.message),
        Failure::Refused(text) => Error::new(text),
        Failure::NeedsKeys => {
            Error::text("ERR live keys cannot be read here: the transaction does not hold them")
        }
        Failure::NeedsUnit => {
            Error::text("ERR commands cannot be called from here, nor live keys written")
        }
        Failure::TooLong | Failure::Yielded => Error::text("ERR the statement takes too long here"),
        Failure::Busy => busy(dialect),
        Failure::GroupLost => Error::text("ERR the transaction was rolled back"),
    }
}

/// Refuses a copy of or to what is no database, in the words of RediSQL.
fn look_for_copy(cx: &Context<'_>, plan: &Plan<'_>, args: Args<'_>) -> Result<(), Error> {
    let (Action::Copy { from }, Dialect::V1) = (plan.action, plan.dialect) else { return Ok(()) };
    let is_now = args.word(0).to_ascii_uppercase().ends_with(b".NOW");
    find(cx, from, plan.dialect).map_err(|error| match is_now {
        true => Error::text("Error in opening the SOURCE database"),
        false => error,
    })?;
    let found = find(cx, plan.key, plan.dialect);
    found.map(drop).map_err(|_| Error::text("Error in opening the DESTINATION database"))
}

fn row_of(entry: &commands::registry::Entry) -> &'static Row {
    let row = entry.command.extra.and_then(|extra| extra.downcast_ref::<Row>());
    row.expect("the rows of this crate's families have one")
}

/// The words of the record that does a command again: `SQL.APPLY key sequence now seed NAME ...`
/// with the key at `key_at` among its own words.
pub fn record_of(database: &Database, args: Args<'_>) -> Record {
    use std::sync::atomic::Ordering::AcqRel;
    let sequence = database.sequence.fetch_add(1, AcqRel) + 1;
    let seen = frozen::seen();
    let (now_ms, seed) = seen.map_or((0, 0), |seen| (seen.now_ms, seen.seed));
    let mut words = vec![
        sequence.to_string().into_bytes(),
        now_ms.to_string().into_bytes(),
        seed.to_string().into_bytes(),
    ];
    words.extend(args.iter().map(<[u8]>::to_vec));
    words
}

/// The record of a whole database that became another.
pub fn image_record(database: &Database, file: &[u8]) -> Record {
    use std::sync::atomic::Ordering::AcqRel;
    let sequence = database.sequence.fetch_add(1, AcqRel) + 1;
    let number = sequence.to_string();
    let words: [&[u8]; 5] = [number.as_bytes(), b"0", b"0", b"SQL.RESTORE", file];
    words.map(<[u8]>::to_vec).to_vec()
}

/// Writes records to the log under the key's lock.
pub fn log_records(cx: &mut Context<'_>, key: &[u8], records: &[Record]) {
    let db = cx.keys.db();
    for record in records {
        let mut words: Vec<&[u8]> = vec![b"SQL.APPLY", key];
        words.extend(record.iter().map(Vec::as_slice));
        cx.log.push(db, words.into_iter());
    }
}

/// Logs what others did before and could not log.
pub fn log_left(cx: &mut Context<'_>, key: &[u8], database: &Database) {
    let left = database.take_unlogged();
    if !left.is_empty() {
        log_records(cx, key, &left);
    }
}

/// What is answered where the wait for a database is over.
pub fn busy(dialect: Dialect) -> Error {
    match dialect {
        Dialect::Native => Error::text("SQLITE_BUSY database is locked"),
        _ => Error::text("database is locked"),
    }
}

/// Runs one command.
pub fn run(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let row = row_of(cx.entry);
    let plan = (row.parse)(args)?;
    look_for_copy(cx, &plan, args)?;
    let database = find(cx, plan.key, plan.dialect)?;
    let is_unit = cx.session.in_exec || cx.script.is_some();
    if cx.entry.command.flags.has(WRITE) {
        cx.keys.before_inner_change(plan.key);
    }
    if cx.session.kept.is_some() && transaction::takes(cx, row, &plan, &database, args)? {
        return Ok(());
    }
    let background = if is_unit { None } else { cx.host.background() };
    // Before the connection is taken: a database may be copied to itself.
    let later = is_unit || background.is_some();
    let source = copied(cx, &plan, later)?;
    let (mut lease, place) = match (&background, is_unit) {
        (Some(_), _) if !is_near(&database) => (None, Place::Here),
        (Some(_), _) => match database.try_lease() {
            Some(lease) => (Some(lease), Place::Here),
            None => (None, Place::Here),
        },
        (None, true) => return run_in_unit(cx, &plan, &database, args),
        (None, false) => (Some(database.lease()), Place::Thread(settings().timeout_ms())),
    };
    let mut is_long = false;
    if let Some(lease) = &mut lease {
        log_left(cx, plan.key, &database);
        catch_up(cx, plan.key, lease);
        frozen::begin(cx.keys.now_ms(), None);
        let mut result = perform_live(cx, lease, &plan, source.as_deref(), place);
        if matches!(result, Err(Failure::NeedsUnit)) {
            frozen::begin(cx.keys.now_ms(), None);
            result = unit::perform_alone(cx, lease, &plan, args, place);
        }
        match result {
            Err(Failure::TooLong | Failure::NeedsKeys | Failure::NeedsUnit | Failure::Busy)
                if background.is_some() =>
            {
                is_long = true;
            }
            result => return finish(cx, &plan, &database, args, result, source),
        }
    }
    drop(lease);
    let entry = cx.entry.index;
    let order = Order { row, entry, args: args.to_owned(), source: source_of(cx, &plan)? };
    enqueue(cx, &database, plan.key, vec![order], is_long);
    cx.keys.rewrite_to_nothing();
    Ok(())
}

/// Whether the database's indexes can be brought up to date where a command arrives.
fn is_near(database: &Database) -> bool {
    database.indexes.pending() <= PENDING_HERE_MAX && !database.indexes.is_stale()
}

/// Rows of indexes that are written on a connection's thread.
const PENDING_HERE_MAX: usize = 100;

/// Writes what is pending in the database's indexes, and logs it.
pub(crate) fn catch_up(cx: &mut Context<'_>, key: &[u8], lease: &mut Lease) {
    if let Some(record) = indexing::catch_up(lease)
        && cx.keys.space().is_logging()
    {
        log_records(cx, key, &[record]);
    }
}

/// As `perform`, with the keys that the SQL reads, where they can be had: where their shards are
/// held or free, in a transaction with keys, or where nobody else is there.
pub(crate) fn perform_live(
    cx: &mut Context<'_>,
    lease: &mut Lease,
    plan: &Plan<'_>,
    image: Option<&[u8]>,
    place: Place,
) -> Result<Outcome, Failure> {
    /// Each round knows at least one table more.
    const ROUNDS_MAX: usize = 64;
    live::forget();
    let mut result = perform(lease, plan, image, cx.out, place);
    let is_unit = matches!(place, Place::Unit(_)) || cx.host.background().is_none();
    for _ in 0..ROUNDS_MAX {
        if result.as_ref().err() != Some(&Failure::NeedsKeys) || !may_look(cx, is_unit) {
            break;
        }
        live::copy(&cx.keys).map_err(Failure::Refused)?;
        result = perform(lease, plan, image, cx.out, place);
    }
    live::forget();
    result
}

/// Whether the keys that are wanted are held, or can be. Outside of transactions only single ones
/// are looked at here.
fn may_look(cx: &mut Context<'_>, is_unit: bool) -> bool {
    let mut set = ShardSet::ALL;
    if let Some(keys) = live::single_keys() {
        set = ShardSet::default();
        keys.iter().for_each(|key| set.add(shard_of(hash(key))));
    } else if !is_unit {
        return cx.keys.held().has_all(&set);
    }
    let wait = if is_unit { settings().busy_wait_ms() } else { 0 };
    cx.take_more(&set, Duration::from_millis(wait)).is_ok()
}

/// What a copy copies, where it may be read at once.
fn copied(cx: &Context<'_>, plan: &Plan<'_>, later: bool) -> Result<Option<Vec<u8>>, Error> {
    let Some(source) = source_of(cx, plan)? else { return Ok(None) };
    if later {
        return Ok(None);
    }
    let image = source.lease().handle.serialize();
    image.map(Some).map_err(|error| error_of(error.into(), plan.dialect))
}

fn source_of(cx: &Context<'_>, plan: &Plan<'_>) -> Result<Option<Arc<Database>>, Error> {
    match plan.action {
        Action::Copy { from } => find(cx, from, plan.dialect).map(Some),
        _ => Ok(None),
    }
}

/// Ends a command that ran where it arrived, alone: log, stream, statistics.
fn finish(
    cx: &mut Context<'_>,
    plan: &Plan<'_>,
    database: &Database,
    args: Args<'_>,
    result: Result<Outcome, Failure>,
    source: Option<Vec<u8>>,
) -> Result<(), Error> {
    statistics::add(plan.count, result.is_ok().into(), result.is_err().into());
    let outcome = result.map_err(|failure| error_of(failure, plan.dialect))?;
    if outcome.wrote {
        cx.keys.changed(plan.key);
        cx.keys.rewrite_to_nothing();
        let record = match outcome.image.or(source) {
            Some(file) => image_record(database, &file),
            None => record_of(database, args),
        };
        if cx.keys.space().is_logging() {
            log_records(cx, plan.key, &[record]);
        }
    }
    if let Action::Run { into: Some(stream), .. } = plan.action {
        fill_stream(cx, stream, &outcome.rows, plan.dialect)?;
    }
    Ok(())
}

/// Adds rows to a stream, and answers which entries they became.
pub fn fill_stream(
    cx: &mut Context<'_>,
    stream: &[u8],
    rows: &[Fields],
    dialect: Dialect,
) -> Result<(), Error> {
    if rows.is_empty() {
        match dialect {
            Dialect::V2 => {
                cx.out.array(2);
                cx.out.array(1);
                cx.out.bulk(b"DONE");
                cx.out.array(1);
                cx.out.int(0);
            }
            _ => {
                cx.out.array(2);
                cx.out.simple("DONE");
                cx.out.int(0);
            }
        }
        return Ok(());
    }
    let core = cx.core;
    let Some(xadd) = core.registry.lookup(b"XADD") else {
        return Err(Error::text("ERR there are no streams here"));
    };
    let mut ids: Vec<Vec<u8>> = Vec::new();
    let mut reply = Writer::new(false);
    for row in rows {
        let mut words: Vec<&[u8]> = vec![b"XADD", stream, b"*"];
        words.extend(row.iter().flat_map(|(name, value)| [&name[..], &value[..]]));
        let owned = OwnedArgs::new(&words);
        reply.clear();
        std::mem::swap(cx.out, &mut reply);
        let result = (xadd.command.run)(cx, owned.args());
        std::mem::swap(cx.out, &mut reply);
        result?;
        let text = reply.to_vec();
        let id = text.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
        ids.push(id.strip_suffix(b"\r").unwrap_or(id).to_vec());
    }
    if dialect == Dialect::V2 {
        cx.out.array(2);
        cx.out.array(1);
        cx.out.bulk(b"RESULT");
    } else {
        cx.out.array(1);
    }
    cx.out.array(4);
    cx.out.bulk(stream);
    cx.out.bulk(ids.first().map_or(b"", |id| id));
    cx.out.bulk(ids.last().map_or(b"", |id| id));
    cx.out.count(rows.len());
    Ok(())
}

/// Gives commands to their database's thread or its readers, and makes the client wait for it.
fn enqueue(
    cx: &mut Context<'_>,
    database: &Arc<Database>,
    key: &[u8],
    orders: Vec<Order>,
    is_long: bool,
) {
    let Some(background) = cx.host.background() else { return };
    let client = make_wait(cx);
    if let Some(blocked) = &mut cx.session.blocked
        && let Some(report) = &mut blocked.report
    {
        report.expected = orders.len();
    }
    let job = Job { key: key.to_vec(), orders, client, background, is_for_writer: false };
    // What is pending in its indexes is for the writer.
    let is_behind = database.indexes.pending() > 0 || database.indexes.is_stale();
    let left = if is_behind { Some(job) } else { readers::push(database, job, is_long) };
    if let Some(job) = left {
        queue::push(database, job);
    }
}

/// Makes the client wait for another thread's answer.
pub fn make_wait(cx: &mut Context<'_>) -> Client {
    let waiter = Waiter::new(cx.session.id, Box::new(()));
    let client = Client {
        id: cx.session.id,
        db: cx.session.db,
        resp3: cx.session.resp3,
        waiter: Arc::clone(&waiter),
        deliver: cx.host.deliverer(cx.session),
        report: Report::default(),
    };
    let block = Block {
        keys: Vec::new(),
        wake: Wake::Filled(Kind::Foreign(TYPE_NAME)),
        words: None,
        deadline_ms: None,
        on_timeout: Writer::null,
    };
    let report = Some(client.report.clone());
    cx.session.blocked = Some(Blocked { waiter, block, db: cx.session.db, report });
    client
}

// Pipelines.

/// Runs commands of one pipeline in one transaction; each fails or succeeds by itself.
pub fn run_many(cx: &mut Context<'_>, pipeline: &Pipeline<'_>) -> (usize, u64) {
    let (count, mut failed, mut next) = (pipeline.entries.len(), 0, 0);
    while next < count && cx.session.blocked.is_none() {
        let (done, failures) = run_group(cx, pipeline, next);
        failed |= failures;
        next += done;
    }
    (next, failed)
}

/// Why a group ended before its pipeline.
#[derive(PartialEq, Eq)]
enum Stop {
    /// All ran.
    End,
    /// The next one is for another group, or for none.
    Other,
    /// The next one is for the database's thread.
    TooLong,
    /// Everything was rolled back.
    Lost,
}

/// Runs commands from `from` on together; returns how many, and which failed.
fn run_group(cx: &mut Context<'_>, pipeline: &Pipeline<'_>, from: usize) -> (usize, u64) {
    let key = pipeline.args(from).word(1);
    let database = match find(cx, key, Dialect::V1) {
        Ok(database)
            if cx.host.background().is_some()
                && cx.session.kept.is_none()
                && is_near(&database) =>
        {
            database
        }
        _ => return (1, run_single(cx, pipeline, from)),
    };
    cx.keys.before_inner_change(key);
    let on_file = database.is_on_file();
    let lease = if on_file { None } else { database.try_lease() };
    let Some(mut lease) = lease else { return queue_rest(cx, pipeline, from, &database, false) };
    log_left(cx, key, &database);
    catch_up(cx, key, &mut lease);
    let start = cx.out.bytes().len();
    if lease.begin_group().is_err() {
        drop(lease);
        return (1, run_single(cx, pipeline, from));
    }
    let mut group = Group::new(from);
    let mut stop = group.run(cx, pipeline, &mut lease);
    if stop == Stop::Lost || lease.commit_group().is_err() {
        // Somebody's statement took the others' with it: each again by itself.
        cx.out.truncate(start);
        group = Group::new(from);
        stop = group.run(cx, pipeline, &mut lease);
    }
    drop(lease);
    if !group.ran.is_empty() {
        cx.keys.changed(key);
        cx.keys.changed_within(group.ran.len() - 1);
    }
    for record in group.ran.drain(..) {
        log_records(cx, key, record.as_slice());
    }
    let (done, failed) = (group.next - from, group.failed);
    match stop {
        Stop::Other if done == 0 => (1, run_single(cx, pipeline, from)),
        Stop::TooLong | Stop::Lost => {
            let (more, _) = queue_rest(cx, pipeline, group.next, &database, stop == Stop::TooLong);
            (done + more, failed)
        }
        _ => (done, failed),
    }
}

/// Commands that run together.
struct Group {
    /// Those that changed something, with their records.
    ran: Vec<Option<Record>>,
    failed: u64,
    next: usize,
    /// Those that went well and are not counted yet: what they are, and how many.
    well: (Count, u64),
}

impl Drop for Group {
    fn drop(&mut self) {
        statistics::add(self.well.0, self.well.1, 0);
    }
}

impl Group {
    fn new(next: usize) -> Group {
        Group { ran: Vec::new(), failed: 0, next, well: (Count::Nothing, 0) }
    }

    fn count(&mut self, what: Count) {
        if self.well.0 != what {
            statistics::add(self.well.0, self.well.1, 0);
            self.well = (what, 0);
        }
        self.well.1 += 1;
    }

    fn run(&mut self, cx: &mut Context<'_>, pipeline: &Pipeline<'_>, lease: &mut Lease) -> Stop {
        let (now_ms, is_logging) = (cx.keys.now_ms(), cx.keys.space().is_logging());
        while self.next < pipeline.entries.len() {
            let args = pipeline.args(self.next);
            let plan = match (row_of(pipeline.entries[self.next]).parse)(args) {
                Ok(plan) => plan,
                Err(error) => {
                    self.fail(cx, &error);
                    continue;
                }
            };
            let goes_out = matches!(plan.action, Action::Run { into: Some(_), .. });
            if goes_out || !plan.action.fits_transaction() {
                return Stop::Other;
            }
            frozen::begin(now_ms, None);
            live::forget();
            match perform(lease, &plan, None, cx.out, Place::Here) {
                Ok(outcome) => {
                    if outcome.wrote {
                        self.ran.push(is_logging.then(|| record_of(&lease.database, args)));
                    }
                    self.count(plan.count);
                    self.next += 1;
                }
                Err(Failure::TooLong) => return Stop::TooLong,
                Err(Failure::NeedsKeys | Failure::NeedsUnit) => return Stop::Other,
                Err(Failure::GroupLost) => return Stop::Lost,
                Err(failure) => {
                    statistics::add(plan.count, 0, 1);
                    self.fail(cx, &error_of(failure, plan.dialect));
                }
            }
        }
        Stop::End
    }

    fn fail(&mut self, cx: &mut Context<'_>, error: &Error) {
        fail(cx, error);
        self.failed |= 1 << self.next;
        self.next += 1;
    }
}

fn fail(cx: &mut Context<'_>, error: &Error) {
    cx.host.error(error);
    cx.out.error(error.message());
}

/// Runs one command of a pipeline by itself, as the engine would.
fn run_single(cx: &mut Context<'_>, pipeline: &Pipeline<'_>, index: usize) -> u64 {
    let was = cx.entry;
    let entry = pipeline.entries[index];
    let args = pipeline.args(index);
    let core = cx.core;
    cx.entry = &core.registry.entries()[entry.index];
    let result = (entry.command.run)(cx, args);
    cx.entry = was;
    cx.keys.effects.rewrites = None;
    match result {
        Ok(()) => 0,
        Err(error) => {
            fail(cx, &error);
            1 << index
        }
    }
}

/// Gives the rest of a pipeline to the database's thread.
fn queue_rest(
    cx: &mut Context<'_>,
    pipeline: &Pipeline<'_>,
    from: usize,
    database: &Arc<Database>,
    is_long: bool,
) -> (usize, u64) {
    let order = |index: usize| {
        let (row, entry) = (row_of(pipeline.entries[index]), pipeline.entries[index].index);
        Order { row, entry, args: pipeline.args(index).to_owned(), source: None }
    };
    let orders: Vec<Order> = (from..pipeline.entries.len()).map(order).collect();
    let count = orders.len();
    enqueue(cx, database, pipeline.args(from).word(1), orders, is_long);
    (count, 0)
}

// Transactions with keys.

/// A database that takes part in a transaction.
struct Taken {
    lease: Lease,
    /// Records of what was done before, which the transaction logs, too, unless it is undone.
    left: Vec<Record>,
    /// How much of what the transaction touched is in the database's indexes.
    touched: usize,
}

impl Participant for Taken {
    fn prepare(&mut self) -> Result<(), String> {
        if self.lease.in_group && self.lease.handle.has_broken_keys() {
            return Err("FOREIGN KEY constraint failed".to_string());
        }
        Ok(())
    }

    fn end(mut self: Box<Self>, keep: bool) {
        if keep && self.lease.in_group {
            if let Err(error) = queue::note_sequence(&mut self.lease) {
                tracing::error!("a file does not know its last record: {error:?}");
            }
            // What can be foreseen was looked at; what is left is a full disk.
            if let Err(error) = self.lease.commit_group() {
                tracing::error!("a transaction's SQL could not be committed: {}", error.message);
            }
        } else {
            self.lease.rollback_group();
            for record in self.left.drain(..) {
                self.lease.database.leave(record);
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Runs a command inside MULTI or a script.
fn run_in_unit(
    cx: &mut Context<'_>,
    plan: &Plan<'_>,
    database: &Arc<Database>,
    args: Args<'_>,
) -> Result<(), Error> {
    if !plan.action.fits_transaction() {
        return Err(Error::text("ERR no copies, loads or attachments inside a transaction"));
    }
    if database.indexes.is_stale()
        && let Some(background) = cx.host.background()
    {
        indexing::refresh_later(database, background);
        return Err(busy(plan.dialect));
    }
    let mut unit = std::mem::take(&mut cx.session.unit);
    let is_it = |participant: &mut Box<dyn Participant>| {
        let taken = participant.as_any().downcast_mut::<Taken>();
        taken.is_some_and(|taken| Arc::ptr_eq(&taken.lease.database, database))
    };
    let at = match unit.iter_mut().position(is_it) {
        Some(at) => at,
        None => {
            let Some(mut lease) = database.lease_for_unit(settings().busy_wait_ms()) else {
                cx.session.unit = unit;
                return Err(busy(plan.dialect));
            };
            let mut left = database.take_unlogged();
            left.extend(indexing::catch_up(&mut lease));
            if let Err(error) = lease.begin_group() {
                left.into_iter().for_each(|record| database.leave(record));
                cx.session.unit = unit;
                return Err(error_of(error.into(), plan.dialect));
            }
            if cx.keys.space().is_logging() {
                log_records(cx, plan.key, &left);
            }
            unit.push(Box::new(Taken { lease, left, touched: 0 }));
            unit.len() - 1
        }
    };
    let taken = unit[at].as_any().downcast_mut::<Taken>().expect("found as one");
    let own = indexing::catch_up_unit(cx, &mut taken.lease, &mut taken.touched);
    if let Some(record) = own
        && cx.keys.space().is_logging()
    {
        log_records(cx, plan.key, &[record]);
    }
    frozen::begin(cx.keys.now_ms(), None);
    let result = unit::perform_within(cx, &mut taken.lease, plan);
    cx.session.unit = unit;
    finish(cx, plan, database, args, result, None)
}

/// Puts a new database at a key.
pub fn put(cx: &mut Context<'_>, key: &[u8], database: Arc<Database>) {
    let value = keyspace::types::foreign::Foreign::new(Held(database));
    cx.keys.put(key, Value::Foreign(value), None);
}

/// The bytes of a database's image, as the keyspace's files have them.
///
/// # Errors
/// In words.
pub fn load(bytes: &[u8]) -> Result<keyspace::types::foreign::Foreign, String> {
    image::read(bytes).map(|database| keyspace::types::foreign::Foreign::new(Held(database)))
}
