//! The `SAGA.*` family: the coordinator over RESP.
//!
//! The coordinator is one for the process and set once, when it is started; without it every
//! command of the family is refused. A command that has to wait blocks its client as BLPOP does:
//! the answer comes from the coordinator's thread through the client's own loop.

use std::sync::{Arc, OnceLock};

use commands::command::{
    ADMIN, BLOCKING, Command, FAST, Family, Group, NO_SCRIPT, READONLY, WRITE,
};
use commands::context::Context;
use commands::error::Error;
use forebay_http::saga::Clock;
use resp::{Args, Writer};
use services::saga::coordinator::{Coordinator, Done, Error as Refused, Report};
use services::saga::index::Filter;
use services::saga::submission::Request;
use services::saga::verbs::Verb;
use services::saga::view;
use services::saga::words::{Hold, Status};

use crate::later;

/// Transactions that a list has unless asked, and at most.
const PAGE: i64 = 50;
const PAGE_MAX: i64 = 1000;

static COORDINATOR: OnceLock<(Arc<Coordinator>, Arc<Clock>)> = OnceLock::new();

/// Lets the commands work.
pub fn set(coordinator: Arc<Coordinator>, clock: Arc<Clock>) {
    assert!(COORDINATOR.set((coordinator, clock)).is_ok(), "a process has one coordinator");
}

const fn verb(name: &'static str, summary: &'static str) -> Command {
    Command {
        name,
        run: operate,
        flags: WRITE.with(NO_SCRIPT).with(ADMIN),
        usage: "gid [branch]",
        summary,
        ..Command::DEFAULT
    }
}

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "SAGA.SUBMIT",
            run: submit,
            flags: WRITE.with(NO_SCRIPT).with(BLOCKING),
            usage: "request [WAIT]",
            summary: "Takes on a transaction, given as JSON in dtm's form.",
            ..Command::DEFAULT
        },
        Command {
            name: "SAGA.GET",
            run: get,
            flags: READONLY.with(NO_SCRIPT).with(FAST),
            usage: "gid",
            summary: "A transaction with its branches and timeline, as JSON.",
            ..Command::DEFAULT
        },
        Command {
            name: "SAGA.WAIT",
            run: wait,
            flags: READONLY.with(NO_SCRIPT).with(BLOCKING),
            usage: "gid timeout",
            summary: "Waits until a transaction is finished; timeout in seconds, 0 = for ever.",
            ..Command::DEFAULT
        },
        Command {
            name: "SAGA.LIST",
            run: list,
            flags: READONLY.with(NO_SCRIPT),
            usage: "[STATUS status] [HOLD hold] [NAME name] [CURSOR cursor] [LIMIT limit]",
            summary: "Transactions that match, newest first, after the cursor to go on with.",
            complexity: "O(N) with N the number of transactions looked at",
            ..Command::DEFAULT
        },
        Command {
            name: "SAGA.STATS",
            run: stats,
            flags: READONLY.with(NO_SCRIPT).with(FAST),
            summary: "How many transactions there are, by status.",
            ..Command::DEFAULT
        },
        verb("SAGA.RETRY", "Makes every attempt that is waited for due now."),
        verb("SAGA.SKIP", "Leaves out the branch that hinders a transaction, or that one."),
        verb("SAGA.FORCE", "Counts the branch that hinders a transaction, or that one, as done."),
        verb("SAGA.COMPENSATE", "Undoes a saga that is being carried out."),
        verb("SAGA.CANCEL", "Undoes a transaction, as far as its kind can be."),
        verb("SAGA.PAUSE", "Makes a transaction stand still."),
        verb("SAGA.RESUME", "Lets a transaction go on."),
        verb("SAGA.STOP", "Ends a transaction as failed; nothing is undone."),
    ],
};

fn coordinator() -> Result<&'static (Arc<Coordinator>, Arc<Clock>), Error> {
    COORDINATOR.get().ok_or_else(|| Error::text("ERR sagas are off; start with --saga yes"))
}

fn text(word: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(word).map_err(|_| Error::text("ERR not UTF-8"))
}

fn number(word: &[u8]) -> Result<i64, Error> {
    let number = text(word)?.parse();
    number.map_err(|_| Error::text("ERR value is not an integer or out of range"))
}

fn write(out: &mut Writer, answer: &Result<Report, Refused>) {
    match answer {
        Ok(report) => out.bulk(report.status.word().as_bytes()),
        Err(refused) => out.error(&format!("ERR {}", refused.text())),
    }
}

/// Asks the coordinator; the reply is the transaction's status, now or when it comes.
fn ask(cx: &mut Context<'_>, timeout_ms: i64, ask: impl FnOnce(Done)) {
    later::ask(cx, timeout_ms, write, ask);
}

fn submit(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (coordinator, clock) = coordinator()?;
    let waits = match args.len() {
        2 => false,
        3 if args.word(2).eq_ignore_ascii_case(b"WAIT") => true,
        _ => return Err(Error::text("ERR syntax error")),
    };
    let moment = clock.moment();
    let wrong = |text: String| Error::new(format!("ERR {text}"));
    let request = Request::read(args.word(1)).map_err(wrong)?;
    let topics = coordinator.topics();
    let mut t = request.transaction(Status::Submitted, &topics, moment.now_ms).map_err(wrong)?;
    drop(topics);
    t.durability = coordinator.settings.durability;
    ask(cx, 0, |done| coordinator.submit(t, waits, moment, done));
    Ok(())
}

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (coordinator, _) = coordinator()?;
    match coordinator.get(text(args.word(1))?) {
        None => cx.out.null(),
        Some(t) => {
            let shown = view::detail(&t, &coordinator.settings.rules).to_string();
            cx.out.bulk(shown.as_bytes());
        }
    }
    Ok(())
}

fn wait(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (coordinator, _) = coordinator()?;
    let gid = text(args.word(1))?;
    let seconds: f64 = text(args.word(2))?.parse().unwrap_or(-1.0);
    if !(0.0..1e9).contains(&seconds) {
        return Err(Error::text("ERR timeout is not a float or out of range"));
    }
    ask(cx, (seconds * 1000.0) as i64, |done| coordinator.when_finished(gid, done));
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (coordinator, _) = coordinator()?;
    let syntax = || Error::text("ERR syntax error");
    let (mut filter, mut limit) = (Filter::default(), PAGE);
    let words: Vec<&[u8]> = args.iter().skip(1).collect();
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(syntax()) };
        match option.to_ascii_uppercase().as_slice() {
            b"STATUS" => filter.status = Some(Status::of_word(text(value)?).ok_or_else(syntax)?),
            b"HOLD" => filter.hold = Some(Hold::of_word(text(value)?).ok_or_else(syntax)?),
            b"NAME" => filter.name = Some(text(value)?.into()),
            b"CURSOR" => filter.before = Some(number(value)? as u64).filter(|&before| before != 0),
            b"LIMIT" => limit = number(value)?.clamp(1, PAGE_MAX),
            _ => return Err(syntax()),
        }
    }
    let (found, next) = coordinator.list(&filter, limit as usize);
    cx.out.array(2);
    cx.out.bulk(next.unwrap_or(0).to_string().as_bytes());
    cx.out.array(found.len());
    for t in found {
        cx.out.array(2);
        cx.out.bulk(t.gid.as_bytes());
        cx.out.bulk(t.status.word().as_bytes());
    }
    Ok(())
}

fn stats(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let (coordinator, _) = coordinator()?;
    let index = coordinator.index();
    cx.out.map(Status::ALL.len() + 3);
    for &status in Status::ALL {
        cx.out.bulk(status.word().as_bytes());
        cx.out.int(index.count(status) as i64);
    }
    for hold in [Hold::Paused, Hold::Dead] {
        cx.out.bulk(hold.word().as_bytes());
        cx.out.int(index.held_count(hold) as i64);
    }
    cx.out.bulk(b"retained_bytes");
    cx.out.int(index.finished_bytes as i64);
    Ok(())
}

fn operate(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (coordinator, clock) = coordinator()?;
    let name = cx.command_name().to_string();
    let word = name.split_once('.').map_or("", |(_, word)| word);
    let verb = Verb::of_word(word).ok_or_else(|| Error::text("ERR unknown verb"))?;
    let branch = match args.len() {
        2 => None,
        3 => Some(u16::try_from(number(args.word(2))?).map_err(|_| Error::text("ERR no branch"))?),
        _ => return Err(Error::text("ERR syntax error")),
    };
    let who = format!("client {}", cx.session.id);
    let (gid, moment) = (text(args.word(1))?, clock.moment());
    ask(cx, 0, |done| coordinator.operate(gid, verb, branch, &who, moment, done));
    Ok(())
}
