//! Commands that make databases or tell of them all: CREATE_DB, STATISTICS, VERSION, and APPLY, by
//! which the log does again what was done.

use std::sync::atomic::Ordering;

use commands::context::Context;
use commands::error::Error;
use commands::words::is;
use keyspace::effects::class;
use keyspace::value::ValueRef;
use resp::{Args, OwnedArgs, Writer};

use crate::database::{Database, Held, Lease};
use crate::error::SqlError;
use crate::perform::{perform, well};
use crate::plan::{Action, Dialect, Row};
use crate::run::Place;
use crate::serve::{error_of, find, put};
use crate::settings::settings;
use crate::statistics::{self, Count};
use crate::{calls, frozen, image, indexing, transaction};

/// Opens a database and puts it at a key.
fn create(cx: &mut Context<'_>, key: &[u8], path: &[u8], dialect: Dialect) -> Result<(), Error> {
    let file = settings().file(path).map_err(Error::text)?;
    let database = Database::open(file.as_deref()).map_err(|error| failed_open(error, dialect))?;
    put(cx, key, database);
    cx.keys.notify(class::MODULE, "sql.create", key);
    well(cx.out, dialect);
    Ok(())
}

fn failed_open(error: SqlError, dialect: Dialect) -> Error {
    match dialect {
        Dialect::V1 => Error::text("Err - Error opening the in memory databade"),
        Dialect::V2 => Error::new(error.message),
        Dialect::Native => error_of(error.into(), dialect),
    }
}

/// REDISQL.CREATE_DB, the first dialect unless its words are those of the second.
pub fn create_db(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let second = |index: usize| {
        let word = args.get(index).unwrap_or_default();
        ["PATH", "CAN_EXIST", "CAN_EXISTS", "MUST_CREATE"].iter().any(|known| is(word, known))
    };
    if second(2) { create_v2(cx, args) } else { create_v1(cx, args) }
}

/// SQL.CREATE.
pub fn create_native(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    if cx.keys.exists(args.word(1)) {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    create(cx, args.word(1), args.get(2).unwrap_or_default(), Dialect::Native)
}

/// REDISQL.V1.CREATE_DB.
pub fn create_v1(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let result = if !(2..=3).contains(&args.len()) {
        Err(Error::text("Wrong number of arguments, it accepts 2 or 3"))
    } else if cx.keys.exists(args.word(1)) {
        Err(Error::WRONG_TYPE)
    } else {
        create(cx, args.word(1), args.get(2).unwrap_or_default(), Dialect::V1)
    };
    statistics::add(Count::CreateDb, result.is_ok().into(), result.is_err().into());
    result
}

/// REDISQL.V2.CREATE_DB and ZEESQL.CREATE_DB.
pub fn create_v2(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (mut path, mut can_exist, mut must_create): (&[u8], _, _) = (b"", false, false);
    let mut index = 2;
    while index < args.len() {
        let word = args.word(index);
        if is(word, "PATH") {
            index += 1;
            path = args.get(index).ok_or(Error::text("No path provided after PATH"))?;
        }
        can_exist |= is(word, "CAN_EXIST") || is(word, "CAN_EXISTS");
        must_create |= is(word, "MUST_CREATE");
        index += 1;
    }
    if can_exist && must_create {
        return Err(Error::text("Provided both CAN_EXIST and MUST_CREATE flags"));
    }
    let key = args.word(1);
    let is_ours = match cx.keys.peek(key) {
        Some(ValueRef::Foreign(value)) => Some(value.downcast::<Held>().is_some()),
        Some(_) => Some(false),
        None => None,
    };
    match is_ours {
        Some(false) => Err(Error::text("Key does not belong to us")),
        Some(true) if must_create => Err(Error::text("Database already exists")),
        Some(true) => {
            well(cx.out, Dialect::V2);
            Ok(())
        }
        None => {
            let result = create(cx, key, path, Dialect::V2);
            statistics::add(Count::CreateDb, result.is_ok().into(), result.is_err().into());
            result
        }
    }
}

/// REDISQL.STATISTICS.
pub fn tell_statistics(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let all: Vec<_> = statistics::all().collect();
    cx.out.array(all.len());
    for (name, count) in all {
        cx.out.array(2);
        cx.out.text(&name);
        cx.out.int(count as i64);
    }
    Ok(())
}

/// REDISQL.VERSION: of the dialect that is spoken, which clients test for.
pub fn tell_version(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.text("1.1.2");
    Ok(())
}

/// ZEESQL.LICENSE: nothing is to be paid.
pub fn license(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    well(cx.out, Dialect::V2);
    Ok(())
}

/// SQL.APPLY: `SQL.APPLY key sequence now-ms seed NAME word ...`: does what the log says, unless
/// the database has it already.
pub fn apply(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let database = find(cx, key, Dialect::Native)?;
    let number = |index: usize| resp::number::integer(args.word(index)).ok_or(Error::SYNTAX);
    let (sequence, now_ms, seed) = (number(2)? as u64, number(3)?, number(4)? as u64);
    if sequence <= database.sequence.load(Ordering::Acquire) {
        cx.out.flag(false);
        return Ok(());
    }
    let mut lease = database.lease();
    if is(args.word(5), "SQL.RESTORE") {
        let file = args.get(6).ok_or(Error::SYNTAX)?;
        image::restore(&mut lease, file).map_err(|e| error_of(e.into(), Dialect::Native))?;
    } else if let Some(applied) = indexing::apply(&mut lease, args.from(5)) {
        applied.map_err(|error| error_of(error.into(), Dialect::Native))?;
    } else if is(args.word(5), transaction::UNIT) {
        apply_unit(cx, &mut lease, args.from(6))?;
    } else {
        apply_command(cx, &mut lease, args.from(5), now_ms, seed)?;
    }
    if database.is_on_file() {
        let stored = image::store_sequence(&lease, sequence);
        stored.map_err(|error| error_of(error.into(), Dialect::Native))?;
    }
    database.sequence.store(sequence, Ordering::Release);
    drop(lease);
    cx.keys.changed(key);
    cx.out.flag(true);
    Ok(())
}

/// Does again what a whole transaction did, or nothing.
fn apply_unit(cx: &Context<'_>, lease: &mut Lease, words: Args<'_>) -> Result<(), Error> {
    let native = |error: SqlError| error_of(error.into(), Dialect::Native);
    let commands = transaction::unit_commands(words)?;
    lease.begin_group().map_err(native)?;
    for (now_ms, seed, words) in commands {
        if let Err(error) = apply_command(cx, lease, words.args(), now_ms, seed) {
            lease.rollback_group();
            return Err(error);
        }
    }
    lease.commit_group().map_err(native)
}

fn apply_command(
    cx: &Context<'_>,
    lease: &mut Lease,
    words: Args<'_>,
    now_ms: i64,
    seed: u64,
) -> Result<(), Error> {
    let entry = cx.core.registry.lookup(words.word(0)).ok_or(Error::SYNTAX)?;
    let row = entry.command.extra.and_then(|extra| extra.downcast_ref::<Row>());
    let owned = OwnedArgs::new(words.iter());
    let plan = (row.ok_or(Error::SYNTAX)?.parse)(owned.args())?;
    let now_ms = if now_ms == 0 { cx.keys.now_ms() } else { now_ms };
    frozen::begin(now_ms, (seed != 0).then_some(seed));
    let place = Place::REPLAY;
    // What it called is in the log by itself.
    let run = || perform(lease, &plan, None, &mut Writer::new(false), place);
    let (done, _) = calls::with(calls::Mode::Ignored, run);
    if done.is_err() && matches!(plan.action, Action::Attach { .. } | Action::Detach { .. }) {
        // The file may have gone since.
        return Ok(());
    }
    done.map(drop).map_err(|failure| error_of(failure, Dialect::Native))
}
