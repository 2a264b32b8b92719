//! The `QUOTA.*` family: metered ingest over RESP, the same state as over HTTP.
//!
//! The service is one for the process and set once, when it is started; without it every command of
//! the family is refused. A command that has to wait for the database blocks its client as BLPOP
//! does.
//!
//! **Invariant:** none of these runs inside MULTI or a script: the service takes locks of keys that
//! the commands do not declare, and must be called with no lock held.

use std::sync::{Arc, OnceLock};

use commands::command::{
    ADMIN, BLOCKING, Command, FAST, Family, Flags, Group, NO_MULTI, NO_SCRIPT, READONLY, WRITE,
};
use commands::context::Context;
use commands::error::Error;
use resp::{Args, Writer};
use services::database::Database;
use services::quota::answer::{Outcome, Refusal, Usage};
use services::quota::event::{Format, RECORDS_MAX, cost_of, parse};
use services::quota::ingest::Ingest;
use services::quota::manage::Adjustment;
use services::quota::org::Glance;
use services::quota::plan::Plan;
use services::quota::queue::Idempotency;
use services::quota::secret::digest;
use services::quota::service::{Found, Service};

use crate::later;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 200;

static SERVICE: OnceLock<Arc<Service>> = OnceLock::new();

/// Lets the commands work.
pub fn set(service: Arc<Service>) {
    assert!(SERVICE.set(service).is_ok(), "a process has one quota service");
}

const ALONE: Flags = NO_SCRIPT.with(NO_MULTI);
const MANAGES: Flags = WRITE.with(ALONE).with(BLOCKING).with(ADMIN);

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "QUOTA.INGEST",
            run: ingest,
            flags: WRITE.with(ALONE).with(BLOCKING),
            usage: "key payload [IDEM id] [COST cost] [FORMAT JSON|NDJSON|CLOUDEVENT|CLOUDEVENTS]",
            summary: "Stores and counts records for the organisation of an API key, as JSON.",
            complexity: "O(N) with N the number of records",
            ..Command::DEFAULT
        },
        Command {
            name: "QUOTA.GET",
            run: get,
            flags: READONLY.with(ALONE).with(BLOCKING).with(FAST),
            usage: "org [JSON]",
            summary: "Used, limit, remaining (-1 = no limit), seconds to the next period.",
            ..Command::DEFAULT
        },
        Command {
            name: "QUOTA.SET",
            run: set_plan,
            flags: MANAGES,
            usage: "org plan",
            summary: "Makes an organisation, or gives it another plan, which is JSON.",
            ..Command::DEFAULT
        },
        Command {
            name: "QUOTA.ADJUST",
            run: adjust,
            flags: MANAGES,
            usage: "org delta id [reason]",
            summary: "Adds to the counter of the present period, once for each id.",
            ..Command::DEFAULT
        },
        Command {
            name: "QUOTA.FLUSH",
            run: flush,
            flags: WRITE.with(ALONE).with(BLOCKING),
            summary: "Waits until all that was accepted before is in the SQL database.",
            ..Command::DEFAULT
        },
    ],
};

fn service() -> Result<&'static Arc<Service>, Error> {
    SERVICE.get().ok_or_else(|| Error::text("ERR metered ingest is off; start with --quota yes"))
}

fn text(word: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(word).map_err(|_| Error::text("ERR not UTF-8"))
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Malformed(why) | Refusal::NotFound(why) | Refusal::TooLarge(why) => {
            format!("ERR {why}")
        }
        Refusal::Unauthorized(why) => format!("NOKEY {why}"),
        Refusal::Forbidden(why) => format!("NOPERM {why}"),
        Refusal::Quota { policy, retry_after_s } => {
            format!("QUOTAEXCEEDED the {policy} limit is reached; retry after {retry_after_s} s")
        }
        Refusal::InFlight => "INFLIGHT a request with this id is being worked on".into(),
        Refusal::OtherContent => "ERR this id came with other content before".into(),
        Refusal::Busy { detail, retry_after_s } => {
            format!("TRYAGAIN {detail}; retry after {retry_after_s} s")
        }
    }
}

fn write_refused(out: &mut Writer, refusal: &Refusal) {
    // An error is one line.
    out.error(&refused(refusal).replace(['\r', '\n'], " "));
}

// Ingest.

struct Options {
    id: Option<String>,
    cost: Option<i64>,
    format: Format,
}

fn options(args: Args<'_>) -> Result<Options, Error> {
    let mut options = Options { id: None, cost: None, format: Format::Json };
    let words: Vec<&[u8]> = args.iter().skip(3).collect();
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(Error::SYNTAX) };
        let value = text(value)?;
        match name.to_ascii_uppercase().as_slice() {
            b"IDEM" if (1..=KEY_BYTES_MAX).contains(&value.len()) => {
                options.id = Some(value.to_owned());
            }
            b"IDEM" => return Err(Error::text("ERR an id has 1 to 200 bytes")),
            b"COST" => {
                let cost = cost_of(value).map_err(|why| Error::new(format!("ERR {why}")))?;
                options.cost = Some(cost);
            }
            b"FORMAT" => {
                options.format = match value.to_ascii_uppercase().as_str() {
                    "JSON" => Format::Json,
                    "NDJSON" => Format::Lines,
                    "CLOUDEVENT" => Format::CloudEvent,
                    "CLOUDEVENTS" => Format::CloudEvents,
                    _ => return Err(Error::SYNTAX),
                }
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok(options)
}

fn ingest(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let service = service()?;
    let Options { id, cost, format } = options(args)?;
    let payload = text(args.word(2))?;
    let records = parse(payload, format);
    if records.as_ref().is_ok_and(|records| records.len() > RECORDS_MAX) {
        return Err(Error::new(format!("ERR a request has {RECORDS_MAX} records at most")));
    }
    let idempotency = id.map(|id| {
        let content = format!("{format:?} {cost:?} {payload}");
        Idempotency { key: format!("resp:{id}"), fingerprint: digest(content.as_bytes()) }
    });
    let now_ms = service.now_ms();
    let hash = digest(args.word(1));
    let request = move |caller, done: Box<dyn FnOnce(Outcome) + Send>| Ingest {
        caller,
        records,
        cost,
        idempotency,
        now_ms,
        done,
    };
    const NOBODY: &str = "nobody knows this API key";
    match service.find(&hash, now_ms) {
        Found::Nobody => write_refused(cx.out, &Refusal::Unauthorized(NOBODY)),
        Found::Caller(caller) => {
            later::ask(cx, 0, write_outcome, |done| service.ingest(request(caller, done)));
        }
        Found::Unknown => later::ask(cx, 0, write_outcome, |done| {
            service.look_up(hash, move |found| {
                let refuse = |refusal| services::quota::answer::refuse(refusal, None);
                match found {
                    Ok(Some(caller)) => service.ingest(request(caller, done)),
                    Ok(None) => done(refuse(Refusal::Unauthorized(NOBODY))),
                    Err(refusal) => done(refuse(refusal)),
                }
            });
        }),
    }
    Ok(())
}

fn write_outcome(out: &mut Writer, outcome: &Outcome) {
    match outcome {
        Ok(answer) => out.bulk(answer.body.as_bytes()),
        Err(no) => write_refused(out, &no.refusal),
    }
}

// Standing.

fn write_glance(out: &mut Writer, glance: &Glance) {
    out.array(4);
    out.int(glance.used);
    out.int(glance.limit.unwrap_or(-1));
    out.int(glance.limit.map_or(-1, |limit| (limit - glance.used).max(0)));
    out.int(glance.reset_after_s);
}

fn write_usage(out: &mut Writer, usage: &Result<Usage, Refusal>) {
    match usage {
        Err(refusal) => write_refused(out, refusal),
        Ok(usage) => {
            let limit = usage.planned.plan.limit;
            let (used, reset_after_s) = (usage.standing.used, usage.reset_after_s());
            write_glance(out, &Glance { used, limit, reset_after_s });
        }
    }
}

fn write_usage_json(out: &mut Writer, usage: &Result<Usage, Refusal>) {
    match usage {
        Err(refusal) => write_refused(out, refusal),
        Ok(usage) => {
            let mut body = String::from("{\"usage\":");
            usage.write_json(&mut body);
            // A plan always has a JSON form.
            let plan = serde_json::to_string(&usage.planned.plan).unwrap_or_default();
            out.bulk(format!("{body},\"plan\":{plan}}}").as_bytes());
        }
    }
}

/// Looks an organisation up, then tells where it stands.
fn look(service: &'static Arc<Service>, org: String, done: Box<Took>) {
    let find =
        move |service: &Service, database: &mut dyn Database| service.org_or_none(database, &org);
    service.desk(find, move |found| match found {
        Ok(org) => service.usage_of(org, service.now_ms(), done),
        Err(refusal) => done(Err(refusal)),
    });
}

type Took = dyn FnOnce(Result<Usage, Refusal>) + Send;

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let service = service()?;
    let org = text(args.word(1))?;
    match args.get(2) {
        None => match service.glance(org, cx.keys.now_ms()) {
            Some(glance) => write_glance(cx.out, &glance),
            None => later::ask(cx, 0, write_usage, |done| look(service, org.to_owned(), done)),
        },
        Some(word) if args.len() == 3 && word.eq_ignore_ascii_case(b"JSON") => {
            later::ask(cx, 0, write_usage_json, |done| look(service, org.to_owned(), done));
        }
        Some(_) => return Err(Error::SYNTAX),
    }
    Ok(())
}

// Management.

fn set_plan(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let service = service()?;
    let (org, actor) = (text(args.word(1))?.to_owned(), format!("client {}", cx.session.id));
    let plan: Plan = serde_json::from_slice(args.word(2))
        .map_err(|error| Error::new(format!("ERR the plan does not make sense: {error}")))?;
    let write = |out: &mut Writer, done: &Result<bool, Refusal>| match done {
        Ok(_) => out.simple("OK"),
        Err(refusal) => write_refused(out, refusal),
    };
    later::ask(cx, 0, write, |done| {
        let put = move |service: &Service, database: &mut dyn Database| {
            service.put_plan(database, &org, plan, &actor)
        };
        service.desk(put, done);
    });
    Ok(())
}

fn adjust(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let service = service()?;
    if args.len() > 5 {
        return Err(Error::SYNTAX);
    }
    let (org, actor) = (text(args.word(1))?.to_owned(), format!("client {}", cx.session.id));
    let delta = text(args.word(2))?.parse().map_err(|_| Error::NOT_AN_INTEGER)?;
    let idempotency_key = text(args.word(3))?.to_owned();
    let reason = args.get(4).map_or(Ok(""), text)?.to_owned();
    let adjustment = Adjustment { delta, reason, idempotency_key };
    later::ask(cx, 0, write_usage, |done| {
        let make = move |service: &Service, database: &mut dyn Database| {
            service.adjust(database, &org, &adjustment, &actor)?;
            service.org_or_none(database, &org)
        };
        service.between_transactions(make, move |made| match made {
            Ok(org) => service.usage_of(org, service.now_ms(), done),
            Err(refusal) => done(Err(refusal)),
        });
    });
    Ok(())
}

fn flush(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let service = service()?;
    later::ask(
        cx,
        0,
        |out: &mut Writer, (): &()| out.simple("OK"),
        |done| {
            service.flush(move || done(()));
        },
    );
    Ok(())
}
