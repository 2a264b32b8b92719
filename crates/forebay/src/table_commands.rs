//! The `TABLE.*` family: cached tables over RESP.
//!
//! The service is one for the process and set once, when it is started; without it every command of
//! the family is refused. What has to be looked for is looked for in the service's threads, while
//! the client is blocked as BLPOP does it: a command's own thread may hold locks of the keyspace.

use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use commands::command::{
    ADMIN, BLOCKING, Command, FAST, Family, Group, NO_SCRIPT, READONLY, WRITE,
};
use commands::context::{Block, Blocked, Context, Deliver, Wake};
use commands::error::Error;
use keyspace::value::Kind as ValueKind;
use keyspace::waiting::Waiter;
use resp::{Args, Writer};
use services::tables::ask::{Ask, Control, Fault, Served};
use services::tables::query::{Query, Shape, Target};
use services::tables::service::Tables;

static TABLES: OnceLock<Arc<Tables>> = OnceLock::new();

/// Lets the commands work.
pub fn set(tables: Arc<Tables>) {
    assert!(TABLES.set(tables).is_ok(), "a process has one service of tables");
}

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "TABLE.GET",
            run: get,
            flags: READONLY.with(NO_SCRIPT).with(BLOCKING),
            usage: "table [query] [AS user]",
            summary: "Rows of a table as JSON, kept or read; the query is that of an address.",
            ..Command::DEFAULT
        },
        Command {
            name: "TABLE.PURGE",
            run: purge,
            flags: WRITE.with(NO_SCRIPT).with(ADMIN).with(BLOCKING),
            usage: "table",
            summary: "Removes all kept answers of a table; how many there were.",
            complexity: "O(N) with N the number of keys",
            ..Command::DEFAULT
        },
        Command {
            name: "TABLE.STATS",
            run: stats,
            flags: READONLY.with(NO_SCRIPT).with(FAST),
            summary: "What the cache of tables has done, counted.",
            ..Command::DEFAULT
        },
    ],
};

fn tables() -> Result<&'static Arc<Tables>, Error> {
    TABLES.get().ok_or_else(|| Error::text("ERR tables are off; start with --tables yes"))
}

fn text(word: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(word).map_err(|_| Error::text("ERR not UTF-8"))
}

fn served(name: &[u8]) -> Result<Arc<Served>, Error> {
    tables()?.find(text(name)?).ok_or_else(|| Error::text("ERR no such table"))
}

/// What a command answers in the end.
enum Reply {
    Body(Bytes),
    Count(u64),
    Failed(String),
}

fn write(out: &mut Writer, reply: &Reply) {
    match reply {
        Reply::Body(body) => out.bulk(body),
        Reply::Count(count) => out.int(*count as i64),
        Reply::Failed(why) => out.error(&format!("ERR {why}")),
    }
}

type Tell = Box<dyn FnOnce(Reply) + Send>;

/// What is waited for: the reply if it came at once, or who gets it.
#[derive(Default)]
struct Pending {
    reply: Option<Reply>,
    waiting: Option<(Arc<Waiter>, Deliver)>,
}

/// Begins something and blocks the client until its reply comes.
fn later(cx: &mut Context<'_>, begin: impl FnOnce(Tell)) -> Result<(), Error> {
    if cx.session.in_exec {
        return Err(Error::text("ERR this command waits; it cannot be within MULTI"));
    }
    let pending = Arc::new(Mutex::new(Pending::default()));
    let (shared, resp3) = (Arc::clone(&pending), cx.session.resp3);
    begin(Box::new(move |reply| {
        let mut pending = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((waiter, deliver)) = pending.waiting.take() else {
            pending.reply = Some(reply);
            return;
        };
        if waiter.try_begin() {
            let mut out = Writer::new(resp3);
            write(&mut out, &reply);
            waiter.end();
            deliver(out);
        }
    }));
    let mut pending = pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(reply) = pending.reply.take() {
        write(cx.out, &reply);
        return Ok(());
    }
    let waiter = Waiter::new(cx.session.id, Box::new(()));
    pending.waiting = Some((Arc::clone(&waiter), cx.host.deliverer(cx.session)));
    let wait_ms = tables()?.wait_ms() as i64;
    let block = Block {
        keys: Vec::new(),
        wake: Wake::Grown(ValueKind::String),
        words: None,
        deadline_ms: Some(cx.keys.now_ms() + wait_ms),
        on_timeout: |out| out.error("ERR the database takes too long"),
    };
    cx.session.blocked = Some(Blocked { waiter, block, db: cx.session.db, report: None });
    Ok(())
}

fn why(fault: &Fault) -> String {
    match fault {
        Fault::Database(error) => error.to_string(),
        Fault::Busy(why) => (*why).to_string(),
        Fault::NotKept | Fault::Behind => "there is no such answer".into(),
    }
}

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let served = served(args.word(1))?;
    let words: Vec<&[u8]> = args.iter().skip(2).collect();
    let (query, user) = match words[..] {
        [] => ("", None),
        [query] => (text(query)?, None),
        [word, user] if word.eq_ignore_ascii_case(b"AS") => ("", Some(text(user)?)),
        [query, word, user] if word.eq_ignore_ascii_case(b"AS") => {
            (text(query)?, Some(text(user)?))
        }
        _ => return Err(Error::text("ERR syntax error")),
    };
    if served.table.owner.is_some() && user.is_none() {
        return Err(Error::text("ERR rows of this table are somebody's: AS user"));
    }
    let query = Query::read(query, &served.table, Shape::Zumo2).map_err(|bad| {
        let place = bad.at.map(|at| format!(" at position {at}")).unwrap_or_default();
        Error::new(format!("ERR {}{place}: {}", bad.parameter, bad.why))
    })?;
    let user = user.map(Arc::from);
    let target = Target::List(Box::new(query));
    let ask = Arc::new(Ask::new(&served, target, Shape::Zumo2, user.as_ref()));
    let tables = tables()?;
    later(cx, |tell| {
        tables.answer_later(&ask, Control::default(), |answer| {
            tell(match answer {
                Ok(answer) => Reply::Body(answer.page.plain().clone()),
                Err(fault) => Reply::Failed(why(&fault)),
            });
        });
    })
}

fn purge(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let name = served(args.word(1))?.table.name.clone();
    let tables = tables()?;
    later(cx, |tell| tables.purge_later(name, |count| tell(Reply::Count(count))))
}

fn stats(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let tables = tables()?;
    let rows = tables.stats.rows();
    let (count, bytes) = tables.hot_size();
    cx.out.map(rows.len() + 2);
    for (name, _, count) in rows {
        cx.out.bulk(name.as_bytes());
        cx.out.int(count as i64);
    }
    for (name, number) in [("hot_answers", count), ("hot_bytes", bytes)] {
        cx.out.bulk(name.as_bytes());
        cx.out.int(number as i64);
    }
    Ok(())
}
