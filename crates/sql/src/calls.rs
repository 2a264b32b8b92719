//! Commands that SQL asks for: `redis('XADD', ...)` in statements and triggers, and what is written
//! into tables over live keys. They are collected while SQL runs and done when it commits.
//!
//! ```text
//! first asked, keys not to be had here --> the statement is undone, and run again as a unit:
//! unit: database and its key held --SQL--> calls --locks of their keys--> done, in order
//!          any of them fails --> SQL and calls undone      all well --> SQL committed, one unit
//!          in the log: the SQL's record, in whose replay calls are nothing, and the commands
//! ```
//!
//! **Invariant:** a call takes effect with the commit of the SQL that made it or not at all, and is
//! in the same unit of the log. Messages (PUBLISH) leave after that commit.
//! **Bound:** [`CALLS_MAX`] calls a command, `sql-live-bytes-max` bytes of words.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use commands::command::{
    ADMIN, ALL_KEYS, ATOMIC, BLOCKING, DANGEROUS, NO_MULTI, NO_SCRIPT, PUBSUB, SCRIPT, TRANSACTION,
    VISITS_ALL, WRITE,
};
use commands::context::Context;
use commands::engine::locks_of;
use commands::error::Error;
use commands::registry::{Entry, each_key};
use keyspace::raw::shards::ShardSet;
use resp::number::double_text;
use resp::{Args, OwnedArgs, Writer};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;

use crate::error::{Failure, SqlError};
use crate::settings::settings;

/// Calls of one command, at most.
pub const CALLS_MAX: usize = 100_000;

/// What becomes of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The statement has to run elsewhere.
    #[default]
    Elsewhere,
    /// It is done when the command commits.
    Collected,
    /// Nothing: the log has it by itself.
    Ignored,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Elsewhere) };
    /// The command may not change anything.
    static ONLY_READS: Cell<bool> = const { Cell::new(false) };
    static WAS_ASKED: Cell<bool> = const { Cell::new(false) };
    static CALLS: RefCell<Vec<OwnedArgs>> = const { RefCell::new(Vec::new()) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
    /// Rows that the command wrote into tables over live keys.
    static LIVE_ROWS: Cell<i64> = const { Cell::new(0) };
}

/// What becomes of calls now.
pub fn mode() -> Mode {
    MODE.get()
}

/// Runs something whose calls are treated so, and returns those that were collected.
pub fn with<T>(mode: Mode, run: impl FnOnce() -> T) -> (T, Vec<OwnedArgs>) {
    let was = MODE.replace(mode);
    let before = CALLS.take();
    let bytes = BYTES.replace(0);
    let result = run();
    MODE.set(was);
    BYTES.set(bytes);
    (result, CALLS.replace(before))
}

/// A command begins: how many calls there are. `reads`: it may not make any.
pub fn begin(reads: bool) -> usize {
    ONLY_READS.set(reads);
    WAS_ASKED.set(false);
    LIVE_ROWS.set(0);
    count()
}

/// Counts rows that were written into tables over live keys.
pub fn note_live_rows(count: i64) {
    LIVE_ROWS.set(LIVE_ROWS.get() + count);
}

/// How many of those the command has written.
pub fn live_rows() -> i64 {
    LIVE_ROWS.get()
}

/// How many calls there are.
pub fn count() -> usize {
    CALLS.with_borrow(Vec::len)
}

/// Forgets the calls after the first so many: what made them was undone.
pub fn back_to(count: usize) {
    CALLS.with_borrow_mut(|calls| calls.truncate(count));
}

/// Says that a statement has to run elsewhere.
pub fn ask() {
    WAS_ASKED.set(true);
}

/// Whether a command stopped because calls cannot be made where it ran.
pub fn was_asked() -> bool {
    WAS_ASKED.get()
}

/// Adds a call.
///
/// # Errors
/// In words, if it cannot be made.
pub fn add(words: OwnedArgs) -> Result<(), &'static str> {
    if ONLY_READS.get() {
        return Err("a command that only reads can neither call redis() nor write live keys");
    }
    match MODE.get() {
        Mode::Elsewhere => {
            ask();
            Err("commands cannot be called from here: only from statements of clients")
        }
        Mode::Ignored => Ok(()),
        Mode::Collected => {
            let bytes = BYTES.get() + words.bytes();
            BYTES.set(bytes);
            if count() >= CALLS_MAX || bytes > settings().live_bytes_max() {
                return Err("one command calls too many commands (sql-live-bytes-max)");
            }
            CALLS.with_borrow_mut(|calls| calls.push(words));
            Ok(())
        }
    }
}

/// A value as a word; `None` for NULL.
pub fn word_of(value: ValueRef<'_>) -> Option<Vec<u8>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(double_text(number).as_bytes().to_vec()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

/// The function's name.
pub const NAME: &str = "redis";

/// Gives a connection the function.
///
/// # Errors
/// SQLite's.
pub fn install(connection: &rusqlite::Connection) -> Result<(), SqlError> {
    // Innocuous in SQLite's sense: triggers may call it. What a call may do is looked at later.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    let refuse = |text: &str| rusqlite::Error::UserFunctionError(text.into());
    connection.create_scalar_function(NAME, -1, flags, move |context| {
        let mut words = OwnedArgs::default();
        for index in 0..context.len() {
            let word = word_of(context.get_raw(index));
            words.push(&word.ok_or_else(|| refuse("redis() takes no NULL"))?);
        }
        if context.is_empty() {
            return Err(refuse("redis() needs a command"));
        }
        add(words).map_err(refuse)?;
        Ok("QUEUED")
    })?;
    Ok(())
}

/// The command of a call, if SQL may call it.
fn entry_of<'a>(cx: &mut Context<'a>, args: Args<'_>, own: &[u8]) -> Result<&'a Entry, Error> {
    const NEVER: &str = "ERR redis() is for commands that write keys, and for messages";
    const OWN: Error = Error::text("ERR redis() may not touch the database that it is called from");
    let core = cx.core;
    let entry = core.registry.named(args)?;
    if !entry.takes(args.len()) {
        return Err(Error::wrong_arity(&entry.full_name));
    }
    let flags = entry.command.flags;
    let never = [
        ADMIN,
        ALL_KEYS,
        ATOMIC,
        BLOCKING,
        DANGEROUS,
        NO_MULTI,
        NO_SCRIPT,
        SCRIPT,
        TRANSACTION,
        VISITS_ALL,
    ];
    if never.iter().any(|flag| flags.has(*flag)) || !(flags.has(WRITE) || is_message(entry)) {
        return Err(Error::new(format!("{NEVER}, not for '{}'", entry.full_name)));
    }
    if is_message(entry) && cx.host.background().is_none() {
        return Err(Error::text("ERR messages cannot be sent from here"));
    }
    let mut is_own = false;
    let _ = each_key(&entry.command, args, |index, _| is_own |= args.word(index) == own);
    if is_own {
        return Err(OWN);
    }
    cx.host.admit_inside(cx.session, entry, args)?;
    Ok(entry)
}

fn is_message(entry: &Entry) -> bool {
    entry.command.flags.has(PUBSUB) && ["publish", "spublish"].contains(&&entry.full_name[..])
}

/// Does what SQL on the database at `own` has called for, or nothing of it; messages are left for
/// later ([`Context::late`]). The locks are taken besides those held.
///
/// # Errors
/// The first call's that fails; [`Failure::Busy`] if locks cannot be had.
pub fn run(cx: &mut Context<'_>, calls: Vec<OwnedArgs>, own: &[u8]) -> Result<(), Failure> {
    let refuse = |error: Error| Failure::refused(error.message());
    let mut keyed = Vec::with_capacity(calls.len());
    let mut late = Vec::new();
    let mut set = ShardSet::default();
    for words in calls {
        let entry = entry_of(cx, words.args(), own).map_err(refuse)?;
        if is_message(entry) {
            late.push(words);
        } else {
            locks_of(entry, words.args(), &mut set);
            keyed.push((entry, words));
        }
    }
    if cx.script.is_some() {
        for (entry, words) in &keyed {
            cx.prepare_inner(entry, words.args()).map_err(|_| Failure::Busy)?;
        }
    } else {
        let wait = Duration::from_millis(settings().busy_wait_ms());
        cx.take_more(&set, wait).map_err(|_| Failure::Busy)?;
    }
    // A command that fails has changed nothing: one alone need not be recorded.
    let outer = (keyed.len() > 1).then(|| cx.keys.record_part());
    let mark = cx.log.mark();
    let mut out = Writer::new(false);
    let mut failed = None;
    for (entry, words) in keyed {
        out.clear();
        if cx.run_in_script(entry, words.args(), &mut out) {
            let text = String::from_utf8_lossy(out.bytes().get(1..).unwrap_or_default());
            failed = Some(Failure::Refused(text.trim_end().to_string()));
            break;
        }
    }
    if let Some(outer) = outer {
        cx.keys.end_part(outer, failed.is_none());
    }
    match failed {
        Some(failure) => {
            cx.log.back_to(mark);
            Err(failure)
        }
        None => {
            cx.late.append(&mut late);
            Ok(())
        }
    }
}
