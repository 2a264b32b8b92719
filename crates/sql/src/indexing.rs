//! ZEESQL.INDEX and SQL.INDEX, and when what is pending in an index is written; see
//! [`crate::index`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::command::{Command, DENY_OOM, Family, Group, NO_MULTI, NO_SCRIPT, RW, WRITE, first};
use commands::context::{Background, Context};
use commands::error::Error;
use commands::words::is;
use resp::Args;

use crate::database::{Database, Lease, Record};
use crate::error::SqlError;
use crate::index::{self, Definition, INDEXED, Indexes, Wish};
use crate::perform::well;
use crate::plan::Dialect;
use crate::serve::{busy, error_of, find, log_left, log_records};
use crate::settings::settings;
use crate::{queue, transaction};

const INDEX: Command = Command {
    flags: WRITE.with(DENY_OOM).with(NO_MULTI).with(NO_SCRIPT),
    keys: &[first(RW)],
    wants_all_keys: Some(changes),
    usage: "db <NEW TABLE table [PREFIX prefix] SCHEMA column type [column type ...] | LIST | \
         DELETE TABLE table [PREFIX prefix]>",
    arity_override: -3,
    summary: "Keeps a table in step with hashes.",
    complexity: "O(N), N = keys; LIST: O(1)",
    since: "1.0.0",
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Sql,
    commands: &[
        Command { name: "ZEESQL.INDEX", run: zee, ..INDEX },
        Command { name: "ZEESQL.V2.INDEX", run: zee, ..INDEX },
        Command { name: "SQL.INDEX", run: native, ..INDEX },
    ],
};

/// Whether the hashes are read: every shard is held for that.
fn changes(args: Args<'_>) -> bool {
    !args.get(2).is_some_and(|word| is(word, "LIST"))
}

fn zee(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let database = find(cx, args.word(1), Dialect::V2)?;
    match index::wish(args, cx.session.db)? {
        Wish::List => {
            let all = database.indexes.definitions();
            cx.out.array(1 + all.len());
            cx.out.array(1);
            cx.out.bulk(b"RESULT");
            for definition in all {
                cx.out.array(2);
                cx.out.text(&definition.table);
                cx.out.text(&definition.given);
            }
            Ok(())
        }
        Wish::New(definition) => {
            change(cx, &database, args.word(1), &definition, true, Dialect::V2)?;
            cx.out.ok();
            Ok(())
        }
        Wish::Delete(definition) => {
            let count = change(cx, &database, args.word(1), &definition, false, Dialect::V2)?;
            cx.out.array(2);
            cx.out.array(1);
            cx.out.bulk(b"DONE");
            cx.out.array(1);
            cx.out.count(count);
            Ok(())
        }
    }
}

fn native(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let database = find(cx, args.word(1), Dialect::Native)?;
    match index::wish(args, cx.session.db)? {
        Wish::List => {
            let all = database.indexes.definitions();
            cx.out.array(all.len());
            for definition in all {
                cx.out.map(4);
                cx.out.text("table");
                cx.out.text(&definition.table);
                cx.out.text("prefix");
                cx.out.text(&definition.given);
                cx.out.text("database");
                cx.out.count(definition.db);
                cx.out.text("failures");
                cx.out.int(database.indexes.failures() as i64);
            }
            Ok(())
        }
        Wish::New(definition) => {
            change(cx, &database, args.word(1), &definition, true, Dialect::Native)?;
            well(cx.out, Dialect::Native);
            Ok(())
        }
        Wish::Delete(definition) => {
            let count = change(cx, &database, args.word(1), &definition, false, Dialect::Native)?;
            cx.out.count(count);
            Ok(())
        }
    }
}

/// What the record of a new index is called, and that of one that is gone.
const DEFINED: [&str; 2] = ["SQL.INDEX.GONE", "SQL.INDEX.NEW"];

/// Makes or forgets an index, with all shards held. Returns how many there were.
fn change(
    cx: &mut Context<'_>,
    database: &Arc<Database>,
    key: &[u8],
    definition: &Definition,
    is_new: bool,
    dialect: Dialect,
) -> Result<usize, Error> {
    if transaction::is_open_on(cx, database) {
        return Err(Error::text("ERR no indexes inside a transaction"));
    }
    let was_stale = database.indexes.is_stale();
    cx.keys.before_inner_change(key);
    let mut lease = database.lease_for_unit(settings().busy_wait_ms()).ok_or(busy(dialect))?;
    log_left(cx, key, database);
    let failed = |error: SqlError| error_of(error.into(), dialect);
    lease.begin_group().map_err(failed)?;
    let done = set(&mut lease, definition, is_new);
    let count = done.inspect_err(|_| lease.rollback_group()).map_err(failed)?;
    let number = database.sequence.fetch_add(1, Ordering::AcqRel) + 1;
    queue::end_group(&mut lease, true).map_err(|failure| error_of(failure, dialect))?;
    drop(lease);
    let record = numbered(
        number,
        DEFINED[usize::from(is_new)],
        vec![index::render(definition).into_bytes()],
    );
    cx.keys.changed(key);
    cx.keys.rewrite_to_nothing();
    if cx.keys.space().is_logging() {
        log_records(cx, key, &[record]);
    }
    if is_new {
        index::watch(cx.keys.space(), database);
        database.indexes.read_again(&cx.keys);
    }
    if !was_stale {
        database.indexes.is_fresh();
    }
    Ok(count)
}

fn set(lease: &mut Lease, definition: &Definition, is_new: bool) -> Result<usize, SqlError> {
    lease.indexes_changed = true;
    let count = index::forget(lease, definition)?;
    if is_new {
        index::define(lease, definition)?;
    }
    Ok(count)
}

fn numbered(number: u64, name: &str, words: Record) -> Record {
    let head = [number.to_string().as_str(), "0", "0", name].map(|word| word.as_bytes().to_vec());
    head.into_iter().chain(words).collect()
}

/// Does again what a record of an index says: `name word ...`. `None` if it is no such record.
pub fn apply(lease: &mut Lease, words: Args<'_>) -> Option<Result<(), SqlError>> {
    let rest: Vec<&[u8]> = words.iter().skip(1).collect();
    if is(words.word(0), INDEXED) {
        return Some(index::apply(lease, &rest).map(drop));
    }
    let is_new = DEFINED.iter().position(|name| is(words.word(0), name))? == 1;
    let text = rest.first().and_then(|text| std::str::from_utf8(text).ok());
    let definition = text.and_then(index::parse);
    let nonsense = SqlError::general("the record of an index makes no sense");
    Some(definition.ok_or(nonsense).and_then(|one| set(lease, &one, is_new).map(drop)))
}

// Catching up.

/// Writes what is pending into its tables; the record of it, if there was anything.
pub fn catch_up(lease: &mut Lease) -> Option<Record> {
    let database = Arc::clone(&lease.database);
    if database.indexes.pending() == 0 {
        return None;
    }
    write(lease, &database.indexes)
}

fn write(lease: &mut Lease, indexes: &Indexes) -> Option<Record> {
    let database = Arc::clone(&lease.database);
    let owns = !lease.in_group;
    let begun = if owns { lease.begin_group() } else { Ok(()) };
    let written = begun.and_then(|()| index::write(indexes, lease));
    let number = database.sequence.fetch_add(1, Ordering::AcqRel) + 1;
    let ended = written.map_err(crate::error::Failure::from).and_then(|words| {
        if owns {
            queue::end_group(lease, true)?;
        }
        Ok(words)
    });
    match ended {
        Ok(words) => Some(numbered(number, INDEXED, words)),
        Err(failure) => {
            // They are read again before the next statement.
            tracing::error!(?failure, "rows of an index could not be written");
            database.indexes.is_fresh_no_more();
            None
        }
    }
}

/// Writes what the transaction with keys itself has changed so far, from `from` on of what it
/// touched; the record of it.
pub fn catch_up_unit(cx: &mut Context<'_>, lease: &mut Lease, from: &mut usize) -> Option<Record> {
    let database = Arc::clone(&lease.database);
    let touched = cx.keys.effects.touched.get(*from..)?.to_vec();
    *from = cx.keys.effects.touched.len();
    if touched.is_empty() {
        return None;
    }
    let own = database.indexes.empty_copy();
    let db = cx.keys.db();
    own.take_over(&mut cx.keys, &touched);
    cx.keys.select(db);
    if own.pending() == 0 { None } else { write(lease, &own) }
}

/// Reads the hashes again, if that has to be done; nothing may be locked.
pub fn refresh(database: &Arc<Database>, background: &dyn Background) {
    if !database.indexes.is_stale() {
        return;
    }
    let mut databases: Vec<usize> =
        database.indexes.definitions().iter().map(|definition| definition.db).collect();
    databases.sort_unstable();
    databases.dedup();
    background.turn(&mut |turn| {
        index::watch(&turn.core.space, database);
        for db in &databases {
            turn.with_all_keys(*db, |keys| database.indexes.read_again(keys));
        }
    });
    database.indexes.is_fresh();
}

/// The same on a thread of its own, where nobody can wait.
pub fn refresh_later(database: &Arc<Database>, background: Arc<dyn Background>) {
    let database = Arc::clone(database);
    let thread = std::thread::Builder::new().name("sql-index".into());
    if let Err(error) = thread.spawn(move || refresh(&database, &*background)) {
        tracing::error!(%error, "no thread to read hashes again");
    }
}
