//! RediSQL's second dialect, and zeeSQL's: words in any order, replies with a header.
//!
//! Formats: RediSQL, `parser/src` of its last version, and zeeSQL, `docs/references.md`. Words that
//! nobody knows are passed over, as there.

use commands::error::Error;
use commands::words::is;
use resp::Args;

use crate::plan::{Action, Dialect, Plan, Row, Rule, utf8};
use crate::reply::Shape;
use crate::run::{Request, Source, Values};
use crate::statistics::Count;

const INCOMPLETE: Error = Error::text("Command incomplete, no `COMMAND` nor `STATEMENT` fields");
const BOTH: Error = Error::text("Provided both STATEMENT and QUERY keywords");
const NO_QUERY: Error = Error::text("No query provided");
const NO_STATEMENT: Error = Error::text("No statement provided");
const NO_STREAM: Error = Error::text("No stream name provided");
const INTO_WITHOUT_HEADER: Error = Error::text("Asked for a STREAM without header");
const INTO_WRITES: Error = Error::text("Asked a STREAM for a query that is not READ_ONLY");
const NO_ACTION: Error = Error::text("No action provided to STATEMENT");

/// What EXEC and QUERY are told.
#[derive(Default)]
struct Words<'a> {
    source: Option<Source<'a>>,
    reads: bool,
    header: bool,
    json: bool,
    into: Option<&'a [u8]>,
    values: Option<Args<'a>>,
}

fn words(args: Args<'_>) -> Result<Words<'_>, Error> {
    let mut words = Words { header: true, ..Words::default() };
    let mut index = 2;
    while index < args.len() {
        let (word, next) = (args.word(index), args.get(index + 1));
        index += 1;
        if is(word, "COMMAND") || is(word, "STATEMENT") {
            let is_text = is(word, "COMMAND");
            let none = if is_text { NO_QUERY } else { NO_STATEMENT };
            let given = utf8(next.ok_or(none)?)?;
            if words.source.is_some() {
                return Err(BOTH);
            }
            let source = if is_text { Source::Text(given) } else { Source::Named(given) };
            words.source = Some(source);
            index += 1;
        } else if is(word, "READ_ONLY") {
            words.reads = true;
        } else if is(word, "NO_HEADER") {
            words.header = false;
        } else if is(word, "JSON") {
            words.json = true;
        } else if is(word, "INTO") {
            words.into = Some(next.ok_or(NO_STREAM)?);
            index += 1;
        } else if is(word, "ARGS") {
            words.values = Some(args.from(index));
            break;
        }
    }
    Ok(words)
}

fn plan<'a>(args: Args<'a>, reads: bool, count: Count, zee: bool) -> Result<Plan<'a>, Error> {
    let words = words(args)?;
    let source = words.source.ok_or(INCOMPLETE)?;
    let reads = reads || words.reads;
    if words.into.is_some() && !words.header {
        return Err(INTO_WITHOUT_HEADER);
    }
    if words.into.is_some() && !reads && !zee {
        return Err(INTO_WRITES);
    }
    let header = words.header;
    let shape = if words.json { Shape::Json { header } } else { Shape::V2 { header } };
    let values = match (words.values, source) {
        (Some(given), _) if zee => Values::Padded(given),
        (Some(given), _) => Values::Words(given),
        (None, Source::Named(_)) if !zee => Values::Words(args.from(args.len())),
        (None, _) => Values::None,
    };
    let request = Request::new(source, values, reads);
    let action = Action::Run { request, shape, into: words.into };
    Ok(Plan { key: args.word(1), action, dialect: Dialect::V2, count })
}

/// Reads EXEC.
///
/// # Errors
/// In RediSQL's words.
pub fn exec(args: Args<'_>) -> Result<Plan<'_>, Error> {
    plan(args, false, Count::Exec, false)
}

/// Reads QUERY.
///
/// # Errors
/// In RediSQL's words.
pub fn query(args: Args<'_>) -> Result<Plan<'_>, Error> {
    plan(args, true, Count::Query, false)
}

fn zee_exec(args: Args<'_>) -> Result<Plan<'_>, Error> {
    plan(args, false, Count::Exec, true)
}

fn zee_query(args: Args<'_>) -> Result<Plan<'_>, Error> {
    plan(args, true, Count::Query, true)
}

fn statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    let verb = args.get(2).ok_or(NO_ACTION)?;
    let has = |word: &str| args.iter().skip(3).any(|given| is(given, word));
    let name = || args.get(3).ok_or(NO_STATEMENT).and_then(utf8);
    let text = || args.get(4).ok_or(NO_QUERY).and_then(utf8);
    let (action, count) = if is(verb, "NEW") {
        let rule = if has("CAN_UPDATE") { Rule::Any } else { Rule::New };
        (Action::Store { name: name()?, text: text()?, rule }, Count::CreateStatement)
    } else if is(verb, "UPDATE") {
        let rule = if has("CAN_CREATE") { Rule::Any } else { Rule::Known };
        (Action::Store { name: name()?, text: text()?, rule }, Count::UpdateStatement)
    } else if is(verb, "DELETE") {
        (Action::Forget { name: name()? }, Count::DeleteStatement)
    } else if is(verb, "SHOW") {
        (Action::Tell { name: Some(name()?) }, Count::Nothing)
    } else if is(verb, "LIST") {
        (Action::Tell { name: None }, Count::Nothing)
    } else {
        return Err(NO_ACTION);
    };
    Ok(Plan { key: args.word(1), action, dialect: Dialect::V2, count })
}

fn copy(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if args.len() < 5 || !is(args.word(1), "FROM") || !is(args.word(3), "TO") {
        return Err(Error::text("Command incomplete, it needs FROM source TO destination"));
    }
    let action = Action::Copy { from: args.word(2) };
    Ok(Plan { key: args.word(4), action, dialect: Dialect::V2, count: Count::Copy })
}

/// How EXEC is read.
pub static EXEC: Row = Row { parse: exec };
/// How QUERY is read.
pub static QUERY: Row = Row { parse: query };
/// How zeeSQL's EXEC is read.
pub static ZEE_EXEC: Row = Row { parse: zee_exec };
/// How zeeSQL's QUERY is read.
pub static ZEE_QUERY: Row = Row { parse: zee_query };
/// How STATEMENT is read.
pub static STATEMENT: Row = Row { parse: statement };
/// How zeeSQL's COPY is read.
pub static COPY: Row = Row { parse: copy };
