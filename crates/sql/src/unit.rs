//! SQL together with the commands that it calls: with the database and its key held, so that both
//! happen or neither does. See [`crate::calls`].
//!
//! **Invariant:** the database's key is locked before its connection is taken, and more locks are
//! taken with both: who waits for the connection while holding keys holds that key, too, so nobody
//! waits in a circle.
//! **Bound:** a statement that calls commands runs for `sql-unit-timeout-ms`, since keys are held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::context::Context;
use resp::{Args, OwnedArgs, Writer};

use crate::calls::{self, Mode};
use crate::connection::own;
use crate::database::{Database, Lease};
use crate::error::{Failure, SqlError};
use crate::perform::Outcome;
use crate::plan::{Action, Dialect, Plan};
use crate::queue::{self, Job, Order, Piece, Timer, holds, session_of};
use crate::run::Place;
use crate::serve::{catch_up, error_of, log_left, log_records, perform_live, record_of};
use crate::settings::settings;
use crate::{frozen, statistics};

/// Runs a command and what it calls, in a transaction of its own; it is logged then. The database's
/// key is held.
///
/// # Errors
/// Any [`Failure`]: nothing has happened then. [`Failure::Busy`] if locks cannot be had now.
pub fn perform_alone(
    cx: &mut Context<'_>,
    lease: &mut Lease,
    plan: &Plan<'_>,
    args: Args<'_>,
    place: Place,
) -> Result<Outcome, Failure> {
    // A file is waited for on the database's thread.
    if lease.database.is_on_file() && place == Place::Here {
        return Err(Failure::TooLong);
    }
    lease.begin_group()?;
    let start = cx.out.bytes().len();
    let (result, calls) =
        calls::with(Mode::Collected, || perform_live(cx, lease, plan, None, place));
    cx.log.open();
    let mark = cx.log.mark();
    let result = result.and_then(|outcome| commit(cx, lease, plan, args, outcome, calls));
    if result.is_err() {
        lease.rollback_group();
        cx.log.back_to(mark);
        cx.late.clear();
        cx.out.truncate(start);
    }
    cx.log.close();
    cx.run_late();
    // Last: each command that was called has asked for its own record.
    cx.keys.rewrite_to_nothing();
    result
}

/// Does the calls and commits.
fn commit(
    cx: &mut Context<'_>,
    lease: &mut Lease,
    plan: &Plan<'_>,
    args: Args<'_>,
    outcome: Outcome,
    calls: Vec<OwnedArgs>,
) -> Result<Outcome, Failure> {
    if !lease.in_group {
        return Err(Failure::GroupLost);
    }
    if lease.handle.has_broken_keys() {
        let code = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
        return Err(SqlError::new(code, "FOREIGN KEY constraint failed".into()).into());
    }
    if outcome.wrote {
        let record = record_of(&lease.database, args);
        if cx.keys.space().is_logging() {
            log_records(cx, plan.key, &[record]);
        }
        queue::note_sequence(lease)?;
    }
    calls::run(cx, calls, plan.key)?;
    lease.commit_group()?;
    if outcome.wrote {
        cx.keys.select(cx.session.db);
        cx.keys.changed(plan.key);
    }
    Ok(Outcome { wrote: false, ..outcome })
}

/// Runs a command and what it calls inside MULTI or a script, whose transaction is open.
///
/// # Errors
/// Any [`Failure`]: nothing of this command has happened then.
pub fn perform_within(
    cx: &mut Context<'_>,
    lease: &mut Lease,
    plan: &Plan<'_>,
) -> Result<Outcome, Failure> {
    let place = Place::Unit(settings().unit_timeout_ms());
    let start = cx.out.bytes().len();
    own(&mut lease.save)?;
    let (result, calls) =
        calls::with(Mode::Collected, || perform_live(cx, lease, plan, None, place));
    let result = result.and_then(|outcome| {
        calls::run(cx, calls, plan.key)?;
        cx.keys.select(cx.session.db);
        Ok(outcome)
    });
    if !lease.in_group {
        return result;
    }
    match result {
        Ok(outcome) => {
            own(&mut lease.release)?;
            Ok(outcome)
        }
        Err(failure) => {
            lease.undo_command();
            cx.out.truncate(start);
            Err(failure)
        }
    }
}

/// Runs an order that calls commands, from the database's thread, which holds nothing; its reply.
pub(crate) fn run_order(database: &Arc<Database>, job: &Job, order: &Order) -> Piece {
    let until = Instant::now() + Duration::from_millis(settings().timeout_ms());
    let mut out = Writer::new(job.client.resp3);
    let timer = Timer::new();
    let parsed = (order.row.parse)(order.args.args());
    let dialect = parsed.as_ref().map_or(Dialect::Native, |plan| plan.dialect);
    let result = parsed.map_err(|error| Failure::refused(error.message())).and_then(|plan| {
        loop {
            let result = try_order(database, job, order, &plan, &mut out);
            let left = until.saturating_duration_since(Instant::now());
            if result != Err(Failure::Busy) || left.is_zero() {
                break result;
            }
            // Others have the database, or the keys: once they let go of it, it is tried again.
            drop(database.lease_within(left.as_millis() as u64));
        }
    });
    timer.end(&job.client, order, result.is_err());
    if let Err(failure) = result {
        out = Writer::new(job.client.resp3);
        out.error(error_of(failure, dialect).message());
    }
    Piece::Reply(out)
}

fn try_order(
    database: &Arc<Database>,
    job: &Job,
    order: &Order,
    plan: &Plan<'_>,
    out: &mut Writer,
) -> Result<(), Failure> {
    const NO_STREAM: &str = "ERR a statement that calls commands cannot fill a stream";
    if matches!(plan.action, Action::Run { into: Some(_), .. }) {
        return Err(Failure::refused(NO_STREAM));
    }
    let mut result = Err(Failure::Busy);
    let mut session = session_of(&job.client);
    job.background.turn(&mut |turn| {
        turn.with_keys(&mut session, out, &[&job.key], |cx| {
            if !holds(cx, &job.key, database) {
                result = Err(Failure::refused("ERR the database has gone from its key"));
                return;
            }
            let Some(mut lease) = database.lease_for_unit(settings().busy_wait_ms()) else {
                return;
            };
            cx.keys.before_inner_change(&job.key);
            log_left(cx, &job.key, database);
            catch_up(cx, &job.key, &mut lease);
            frozen::begin(cx.keys.now_ms(), None);
            let place = Place::Unit(settings().unit_timeout_ms());
            let done = perform_alone(cx, &mut lease, plan, order.args.args(), place);
            if !matches!(done, Err(Failure::Busy)) {
                statistics::add(plan.count, done.is_ok().into(), done.is_err().into());
            }
            result = done.map(drop);
        });
    });
    result
}
