//! RediSQL's first dialect: REDISQL.* and REDISQL.V1.*, each with `.NOW`, which means the same
//! here: whether a command runs where it arrives or on its database's thread is not the client's
//! burden.
//!
//! Formats: RediSQL, `doc/docs/references.md` and the tests of release 1.1.2. EXEC and QUERY
//! without a version speak the second dialect if their third word is COMMAND or STATEMENT.

use commands::error::Error;
use commands::words::is;
use resp::Args;

use crate::plan::{Action, Dialect, Plan, Row, Rule, utf8};
use crate::reply::Shape;
use crate::run::{Request, Source, Values};
use crate::statistics::Count;
use crate::v2;

fn wrong(text: &str) -> Error {
    Error::new(text.to_string())
}

fn exactly(args: Args<'_>, count: usize) -> Result<(), Error> {
    if args.len() == count {
        return Ok(());
    }
    let given = args.len();
    Err(Error::new(format!("Wrong number of arguments, it accepts {count}, you provide {given}")))
}

fn plan<'a>(key: &'a [u8], action: Action<'a>, count: Count) -> Plan<'a> {
    Plan { key, action, dialect: Dialect::V1, count }
}

fn run<'a>(source: Source<'a>, values: Values<'a>, reads: bool) -> Action<'a> {
    Action::Run { request: Request::new(source, values, reads), shape: Shape::V1, into: None }
}

fn text(args: Args<'_>, reads: bool, count: Count) -> Result<Plan<'_>, Error> {
    exactly(args, 3)?;
    let source = Source::Text(utf8(args.word(2))?);
    Ok(plan(args.word(1), run(source, Values::None, reads), count))
}

fn is_second(args: Args<'_>) -> bool {
    args.len() > 3 && (is(args.word(2), "COMMAND") || is(args.word(2), "STATEMENT"))
}

fn exec(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if is_second(args) { v2::exec(args) } else { text(args, false, Count::Exec) }
}

fn exec_v1(args: Args<'_>) -> Result<Plan<'_>, Error> {
    text(args, false, Count::Exec)
}

fn query(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if is_second(args) { v2::query(args) } else { text(args, true, Count::Query) }
}

fn query_v1(args: Args<'_>) -> Result<Plan<'_>, Error> {
    text(args, true, Count::Query)
}

fn into<'a>(plan: Plan<'a>, stream: &'a [u8]) -> Plan<'a> {
    let Action::Run { request, shape, .. } = plan.action else { return plan };
    Plan { action: Action::Run { request, shape, into: Some(stream) }, ..plan }
}

fn query_into(args: Args<'_>) -> Result<Plan<'_>, Error> {
    exactly(args, 4)?;
    let source = Source::Text(utf8(args.word(3))?);
    let action = run(source, Values::None, true);
    Ok(into(plan(args.word(2), action, Count::QueryInto), args.word(1)))
}

fn statement(args: Args<'_>, reads: bool, count: Count) -> Result<Plan<'_>, Error> {
    if args.len() < 3 {
        return Err(wrong("Wrong number of arguments, it needs at least 3"));
    }
    let source = Source::Named(utf8(args.word(2))?);
    Ok(plan(args.word(1), run(source, Values::Words(args.from(3)), reads), count))
}

fn exec_statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    statement(args, false, Count::ExecStatement)
}

fn query_statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    statement(args, true, Count::QueryStatement)
}

fn now(args: Args<'_>, reads: bool, count: Count) -> Result<Plan<'_>, Error> {
    if args.len() < 3 {
        let given = args.len();
        return Err(Error::new(format!(
            "Wrong number of arguments, it needs at least more than 2, you provide only {given}"
        )));
    }
    statement(args, reads, count)
}

fn exec_statement_now(args: Args<'_>) -> Result<Plan<'_>, Error> {
    now(args, false, Count::ExecStatement)
}

fn query_statement_now(args: Args<'_>) -> Result<Plan<'_>, Error> {
    now(args, true, Count::QueryStatement)
}

fn query_statement_into(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if args.len() < 4 {
        return Err(wrong("Wrong number of arguments, it needs at least 4"));
    }
    let source = Source::Named(utf8(args.word(3))?);
    let action = run(source, Values::Words(args.from(4)), true);
    Ok(into(plan(args.word(2), action, Count::QueryStatementInto), args.word(1)))
}

fn store(args: Args<'_>, rule: Rule, count: Count) -> Result<Plan<'_>, Error> {
    if args.len() != 4 {
        return Err(wrong("Wrong number of arguments, it accepts 4"));
    }
    let (name, text) = (utf8(args.word(2))?, utf8(args.word(3))?);
    Ok(plan(args.word(1), Action::Store { name, text, rule }, count))
}

fn create_statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    store(args, Rule::New, Count::CreateStatement)
}

fn update_statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    store(args, Rule::Known, Count::UpdateStatement)
}

fn delete_statement(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if args.len() != 3 {
        return Err(wrong("Wrong number of arguments, it accepts 3"));
    }
    let action = Action::Forget { name: utf8(args.word(2))? };
    Ok(plan(args.word(1), action, Count::DeleteStatement))
}

fn copy(args: Args<'_>) -> Result<Plan<'_>, Error> {
    if args.len() != 3 {
        return Err(wrong("Wrong number of arguments, it accepts exactly 3"));
    }
    Ok(plan(args.word(2), Action::Copy { from: args.word(1) }, Count::Copy))
}

macro_rules! rows {
    ($($NAME:ident $parse:ident;)*) => {
        $(#[doc = concat!("How `", stringify!($parse), "` is read.")]
        pub static $NAME: Row = Row { parse: $parse };)*
    };
}

rows! {
    EXEC exec;
    EXEC_V1 exec_v1;
    QUERY query;
    QUERY_V1 query_v1;
    QUERY_INTO query_into;
    EXEC_STATEMENT exec_statement;
    EXEC_STATEMENT_NOW exec_statement_now;
    QUERY_STATEMENT query_statement;
    QUERY_STATEMENT_NOW query_statement_now;
    QUERY_STATEMENT_INTO query_statement_into;
    CREATE_STATEMENT create_statement;
    UPDATE_STATEMENT update_statement;
    DELETE_STATEMENT delete_statement;
    COPY copy;
}
