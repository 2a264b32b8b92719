//! Forebay's own commands: typed values, names, rows in bulk, replies that say all there is.
//!
//! ```text
//! SQL.EXEC db sql [READONLY] [limits] [VALUES value ...] values by their looks
//!                            [TYPED itrbn value ...] i integer, r real, t text, b bytes, n NULL,
//!                                                    which takes no word
//!                            [NAMED name value ...] for :name, @name, $name
//! SQL.BATCH db sql [limits] width value ...       one run for each `width` words, all or nothing
//! SQL.BATCH db sql [limits] TYPED itrb value ...  the same, each row of these types
//!
//! limits: [TIMEOUT ms] [ROWS n] [BYTES n] [MEMORY n]
//! ```

use commands::context::Context;
use commands::error::Error;
use commands::words::is;
use resp::{Args, number};

use crate::limits::Limits;
use crate::plan::{Action, Dialect, Plan, Row, utf8};
use crate::reply::Shape;
use crate::run::{Request, Source, Values};
use crate::serve::find;
use crate::statistics::Count;

fn plan<'a>(key: &'a [u8], action: Action<'a>) -> Plan<'a> {
    Plan { key, action, dialect: Dialect::Native, count: Count::Nothing }
}

const BAD_TYPES: Error =
    Error::text("ERR types are letters out of i, r, t, b and n, one for each value");

/// Checks the letters of types, and how many words they take.
fn types(letters: &[u8]) -> Result<usize, Error> {
    if letters.is_empty() || letters.iter().any(|letter| !b"irtbn".contains(letter)) {
        return Err(BAD_TYPES);
    }
    Ok(letters.iter().filter(|letter| **letter != b'n').count())
}

/// Checks words against their types.
fn check_words(letters: &[u8], words: Args<'_>) -> Result<(), Error> {
    let mut given = letters.iter().filter(|letter| **letter != b'n').cycle();
    for word in words.iter() {
        let fits = match given.next() {
            Some(b'i') => number::integer(word).is_some(),
            Some(b'r') => number::double(word).is_some(),
            Some(b't') => std::str::from_utf8(word).is_ok(),
            _ => true,
        };
        if !fits {
            return Err(Error::text("ERR a value is not of the type given for it"));
        }
    }
    Ok(())
}

fn run<'a>(args: Args<'a>, reads: bool, source: Source<'a>) -> Result<Plan<'a>, Error> {
    let mut request = Request::new(source, Values::None, reads);
    let mut index = 3;
    while index < args.len() {
        let word = args.word(index);
        index += 1;
        if is(word, "READONLY") {
            request.reads = true;
            continue;
        }
        let limits = request.limits.take(args.from(index - 1))?;
        if limits > 0 {
            index += limits - 1;
            continue;
        }
        let rest = args.from(index);
        request.values = if is(word, "VALUES") {
            Values::Given(rest)
        } else if is(word, "NAMED") && rest.len().is_multiple_of(2) {
            Values::Named(rest)
        } else if is(word, "TYPED") && rest.len() > 0 {
            let letters = rest.word(0);
            let words = rest.from(1);
            if types(letters)? != words.len() {
                return Err(BAD_TYPES);
            }
            check_words(letters, words)?;
            Values::Typed(letters, words)
        } else {
            return Err(Error::SYNTAX);
        };
        break;
    }
    let action = Action::Run { request, shape: Shape::Native, into: None };
    Ok(plan(args.word(1), action))
}

fn exec(args: Args<'_>) -> Result<Plan<'_>, Error> {
    run(args, false, Source::Text(utf8(args.word(2))?))
}

/// Reads SQL.QUERY, and SQL.CURSOR, which is told the same.
///
/// # Errors
/// If the words make no sense.
pub fn read_query(args: Args<'_>) -> Result<Plan<'_>, Error> {
    run(args, true, Source::Text(utf8(args.word(2))?))
}

fn call(args: Args<'_>) -> Result<Plan<'_>, Error> {
    run(args, false, Source::Named(utf8(args.word(2))?))
}

fn batch(args: Args<'_>) -> Result<Plan<'_>, Error> {
    const BAD_WIDTH: Error =
        Error::text("ERR the values are not a whole number of rows of the width given");
    let source = Source::Text(utf8(args.word(2))?);
    let mut limits = Limits::default();
    let at = 3 + limits.take(args.from(3))?;
    let shape = args.get(at).ok_or(Error::SYNTAX)?;
    let (letters, words): (&[u8], _) = if is(shape, "TYPED") {
        (args.get(at + 1).ok_or(Error::SYNTAX)?, args.from(at + 2))
    } else {
        (b"", args.from(at + 1))
    };
    let width = if letters.is_empty() {
        number::integer(shape).filter(|width| *width > 0).ok_or(Error::NOT_AN_INTEGER)? as usize
    } else {
        let width = types(letters)?;
        check_words(letters, words)?;
        width
    };
    if width == 0 || words.len() == 0 || !words.len().is_multiple_of(width) {
        return Err(BAD_WIDTH);
    }
    let mut request = Request::new(source, Values::Rows { letters, width, words }, false);
    request.limits = limits;
    let action = Action::Run { request, shape: Shape::Native, into: None };
    Ok(plan(args.word(1), action))
}

fn explain(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Explain { text: utf8(args.word(2))? }))
}

fn stats(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Stats))
}

fn limits(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Limit { words: args.from(2) }))
}

fn save(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Save { path: args.word(2) }))
}

fn load(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Load { path: args.word(2) }))
}

fn attach(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Attach { path: args.word(2), name: args.word(3) }))
}

fn detach(args: Args<'_>) -> Result<Plan<'_>, Error> {
    Ok(plan(args.word(1), Action::Detach { name: args.word(2) }))
}

/// SQL.CANCEL: stops what runs on the database now; it need not wait for it.
pub fn cancel(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let database = find(cx, args.word(1), Dialect::Native)?;
    let runs = database.is_busy();
    if runs {
        database.budget.cancel();
    }
    let reads = database.readers.cancel();
    cx.out.flag(runs || reads);
    Ok(())
}

/// How EXEC is read.
pub static EXEC: Row = Row { parse: exec };
/// How QUERY is read.
pub static QUERY: Row = Row { parse: read_query };
/// How CALL is read.
pub static CALL: Row = Row { parse: call };
/// How BATCH is read.
pub static BATCH: Row = Row { parse: batch };
/// How EXPLAIN is read.
pub static EXPLAIN: Row = Row { parse: explain };
/// How STATS is read.
pub static STATS: Row = Row { parse: stats };
/// How LIMITS is read.
pub static LIMITS: Row = Row { parse: limits };
/// How SAVE is read.
pub static SAVE: Row = Row { parse: save };
/// How LOAD is read.
pub static LOAD: Row = Row { parse: load };
/// How ATTACH is read.
pub static ATTACH: Row = Row { parse: attach };
/// How DETACH is read.
pub static DETACH: Row = Row { parse: detach };
