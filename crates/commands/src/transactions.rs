//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: the commands that open and close a transaction. Running
//! the queue is the engine's work ([`crate::engine`]).

use resp::Args;

use crate::command::{
    ALLOW_BUSY, Command, FAST, Family, Flags, Group, LOADING, NO_SCRIPT, RO_META, SKIP_SLOWLOG,
    STALE, TRANSACTION, range,
};
use crate::context::{Context, Multi};
use crate::error::Error;

/// They run at all times, but not in scripts.
const QUICK: Flags = NO_SCRIPT.with(LOADING).with(STALE).with(FAST).with(ALLOW_BUSY);

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Transactions,
    commands: &[
        Command {
            name: "MULTI",
            run: multi,
            flags: QUICK.with(TRANSACTION),
            summary: "Starts a transaction: commands are queued until EXEC.",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "EXEC",
            run: exec,
            flags: NO_SCRIPT.with(LOADING).with(STALE).with(SKIP_SLOWLOG).with(TRANSACTION),
            summary: "Runs all queued commands as one.",
            complexity: "Depends on the commands in the transaction",
            since: "1.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "DISCARD",
            run: discard,
            flags: QUICK.with(TRANSACTION),
            summary: "Drops the queued commands and ends the transaction.",
            complexity: "O(N), N = queued commands",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "WATCH",
            run: watch,
            flags: QUICK.with(TRANSACTION),
            keys: &[range(1, -1, 1, RO_META)],
            usage: "key [key ...]",
            summary: "Makes the next EXEC fail if one of these keys changes before it.",
            complexity: "O(1) for each key",
            since: "2.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "UNWATCH",
            run: unwatch,
            flags: QUICK,
            summary: "Forgets the watched keys.",
            since: "2.2.0",
            ..Command::DEFAULT
        },
    ],
};

fn multi(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    if cx.session.multi.is_some() {
        return Err(Error::text("ERR MULTI calls can not be nested"));
    }
    cx.session.multi = Some(Multi::default());
    cx.out.ok();
    Ok(())
}

/// Reached without MULTI only: with it, the engine runs the queue.
fn exec(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(Error::text("ERR EXEC without MULTI"))
}

fn discard(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    if cx.session.multi.take().is_none() {
        return Err(Error::text("ERR DISCARD without MULTI"));
    }
    cx.session.forget_watches();
    cx.out.ok();
    Ok(())
}

fn watch(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if cx.session.multi.is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    let db = cx.session.db;
    for key in args.iter().skip(1) {
        if !cx.session.watched.iter().any(|(other, name)| *other == db && name == key) {
            cx.keys.watch(key, &cx.session.watch_flag);
            cx.session.watched.push((db, key.to_vec()));
        }
    }
    cx.out.ok();
    Ok(())
}

fn unwatch(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.session.forget_watches();
    cx.out.ok();
    Ok(())
}
