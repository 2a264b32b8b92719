//! Doing what a plan says, on a connection: the one place where all dialects meet.

use resp::{Args, Writer};

use crate::connection::{Connection, Named, script_of};
use crate::error::Failure;
use crate::files;
use crate::guard;
use crate::image;
use crate::plan::{Action, Dialect, Plan, Rule};
use crate::reply::{Answer, Fields, Shape};
use crate::run::{Place, Request, Source, Values};
use crate::settings::settings;

/// What a plan's work leaves to its caller.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Something was changed: it belongs into the log.
    pub wrote: bool,
    /// All of the database, if it became another.
    pub image: Option<Vec<u8>>,
    /// Rows for a stream, when the plan has one.
    pub rows: Vec<Fields>,
}

const IS_PRESENT: &str = "The statement is already present in the database, try with \
     UPDATE_STATEMENT";
const NOT_TO_UPDATE: &str =
    "The statement is not present in the database, impossible to update it.";
const NOT_TO_DELETE: &str =
    "The statement is not present in the database, impossible to delete it.";
const NOT_PRESENT: &str = "The statement is not present in the database";

/// Answers that all is well, in the dialect's way.
pub fn well(out: &mut Writer, dialect: Dialect) {
    if dialect == Dialect::V2 {
        out.array(1);
        out.array(1);
        out.bulk(b"OK");
    } else {
        out.ok();
    }
}

/// Does it; the reply goes to `out` if all is well. `image` is what a copy copies.
///
/// # Errors
/// Any [`Failure`]: nothing is changed then, nothing written to `out`.
pub fn perform(
    connection: &mut Connection,
    plan: &Plan<'_>,
    image: Option<&[u8]>,
    out: &mut Writer,
    place: Place,
) -> Result<Outcome, Failure> {
    // The record's number is written in the same transaction, on the database's thread.
    let on_file_here = connection.on_file && place == Place::Here;
    match plan.action {
        Action::Run { request, shape, into } => {
            let shape = if into.is_some() { Shape::Kept } else { shape };
            let limits = connection.limits_of(request.limits, place);
            let mut answer = Answer::new(out, shape, limits.bounds());
            let done = connection.execute(&request, limits, &mut answer, place)?;
            let rows = answer.finish(done.counts);
            Ok(Outcome { wrote: done.wrote, rows, image: None })
        }
        Action::Store { .. } | Action::Forget { .. } if on_file_here => Err(Failure::TooLong),
        Action::Store { name, text, rule } => {
            store(connection, name, text, rule, plan.dialect)?;
            well(out, plan.dialect);
            Ok(Outcome { wrote: true, ..Outcome::default() })
        }
        Action::Forget { name } => {
            forget(connection, name)?;
            well(out, plan.dialect);
            Ok(Outcome { wrote: true, ..Outcome::default() })
        }
        Action::Tell { name } => tell(connection, name, out),
        Action::Explain { text } => explain(connection, text, out, place),
        Action::Stats => {
            stats(connection, out);
            Ok(Outcome::default())
        }
        Action::Limit { .. } if on_file_here => Err(Failure::TooLong),
        Action::Limit { words } => limit(connection, words, out),
        Action::Save { path } => {
            save(connection, path, place)?;
            out.ok();
            Ok(Outcome::default())
        }
        Action::Load { .. } | Action::Attach { .. } | Action::Detach { .. }
            if !matches!(place, Place::Thread(_)) =>
        {
            Err(Failure::TooLong)
        }
        Action::Load { .. } | Action::Attach { .. } | Action::Detach { .. } => {
            let image = change_files(connection, &plan.action)?;
            out.ok();
            Ok(Outcome { wrote: true, image, ..Outcome::default() })
        }
        Action::Copy { .. } => {
            let Some(image) = image else { return Err(Failure::TooLong) };
            copy(connection, image)?;
            well(out, plan.dialect);
            Ok(Outcome { wrote: true, ..Outcome::default() })
        }
    }
}

/// Loads, attaches, detaches; returns the database as bytes if it has become another.
fn change_files(
    connection: &mut Connection,
    action: &Action<'_>,
) -> Result<Option<Vec<u8>>, Failure> {
    match *action {
        Action::Load { path } => files::load(connection, path).map(Some),
        Action::Attach { path, name } => files::attach(connection, name, path).map(|()| None),
        Action::Detach { name } => files::detach(connection, name).map(|()| None),
        _ => Ok(None),
    }
}

/// How SQLite would run a statement: rows of EXPLAIN QUERY PLAN.
fn explain(
    connection: &mut Connection,
    text: &[u8],
    out: &mut Writer,
    place: Place,
) -> Result<Outcome, Failure> {
    let text = [b"EXPLAIN QUERY PLAN ", text].concat();
    let request = Request::new(Source::Text(&text), Values::None, true);
    let limits = connection.limits_of(request.limits, place);
    let mut answer = Answer::new(out, Shape::Native, limits.bounds());
    let done = connection.execute(&request, limits, &mut answer, place)?;
    answer.finish(done.counts);
    Ok(Outcome::default())
}

/// Kept statements with how often they ran and how many steps they took.
fn stats(connection: &Connection, out: &mut Writer) {
    let named = connection.named.iter().map(|(name, named)| (Some(name), &named.script));
    let cached = connection.cached.values().map(|script| (None, script));
    let all: Vec<_> = named.chain(cached).collect();
    out.array(all.iter().map(|(_, script)| script.parts.len()).sum());
    for (name, script) in all {
        for part in &script.parts {
            out.map(4);
            out.text("name");
            match name {
                Some(name) => out.bulk(name),
                None => out.null(),
            }
            out.text("sql");
            out.bulk(part.statement.text());
            out.text("runs");
            out.int(part.runs as i64);
            out.text("steps");
            out.int(part.statement.steps());
        }
    }
}

/// Sets the limits that are given, and tells all.
fn limit(
    connection: &mut Connection,
    words: Args<'_>,
    out: &mut Writer,
) -> Result<Outcome, Failure> {
    let mut limits = connection.limits;
    limits.take_all(words).map_err(|error| Failure::refused(error.message()))?;
    let wrote = limits != connection.limits;
    if wrote {
        limits.store(connection)?;
        // Looked at again when all is done: a transaction may take it back.
        (connection.limits, connection.limits_changed) = (limits, true);
    }
    limits.tell(out);
    Ok(Outcome { wrote, ..Outcome::default() })
}

/// Writes a copy of the database into a file, whole or not at all.
fn save(connection: &Connection, path: &[u8], place: Place) -> Result<(), Failure> {
    let file = settings().file(path).map_err(Failure::refused)?;
    let Some(file) = file else { return Err(Failure::refused("ERR a file is needed")) };
    if place == Place::Here || place == Place::Group {
        return Err(Failure::TooLong);
    }
    let bytes = connection.handle.serialize()?;
    let part = file.with_extension("part");
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, &file));
    written.map_err(|error| Failure::Refused(format!("ERR the file cannot be written: {error}")))
}

fn store(
    connection: &mut Connection,
    name: &[u8],
    text: &[u8],
    rule: Rule,
    dialect: Dialect,
) -> Result<(), Failure> {
    match (rule, connection.named.contains_key(name)) {
        (Rule::New, true) => return Err(Failure::refused(IS_PRESENT)),
        (Rule::Known, false) => return Err(Failure::refused(NOT_TO_UPDATE)),
        _ => {}
    }
    let script = script_of(&connection.handle, text, true)?;
    if script.parts.is_empty() {
        let code = if dialect == Dialect::V2 { "No query provided" } else { "not an error" };
        return Err(Failure::refused(code));
    }
    if guard::take_made_trigger() {
        connection.note_trigger(text);
    }
    image::store_statement(connection, name, Some(text))?;
    connection.named.insert(name.into(), Named { text: text.into(), script });
    Ok(())
}

fn forget(connection: &mut Connection, name: &[u8]) -> Result<(), Failure> {
    if connection.named.remove(name).is_none() {
        return Err(Failure::refused(NOT_TO_DELETE));
    }
    Ok(image::store_statement(connection, name, None)?)
}

/// Named statements as rows: name, text, number of parameters, whether it only reads.
fn tell(
    connection: &Connection,
    name: Option<&[u8]>,
    out: &mut Writer,
) -> Result<Outcome, Failure> {
    let mut found: Vec<_> = connection
        .named
        .iter()
        .filter(|(known, _)| name.is_none_or(|name| name == &known[..]))
        .collect();
    if name.is_some() && found.is_empty() {
        return Err(Failure::refused(NOT_PRESENT));
    }
    found.sort_by_key(|(name, _)| *name);
    out.array(3 + found.len());
    out.array(1);
    out.bulk(b"RESULT");
    for header in
        [["identifier", "SQL", "parameters_count", "read_only"], ["TEXT", "TEXT", "INT", "INT"]]
    {
        out.array(4);
        header.iter().for_each(|word| out.text(word));
    }
    for (name, named) in found {
        out.array(4);
        out.bulk(name);
        out.bulk(&named.text);
        out.count(named.script.parameters);
        out.flag(named.script.parts.iter().all(|part| part.statement.is_read_only()));
    }
    Ok(Outcome::default())
}

/// Makes the database a copy of an image; its own path stays its own.
fn copy(connection: &mut Connection, image: &[u8]) -> Result<(), Failure> {
    let in_group = connection.in_group;
    if in_group {
        connection.commit_group()?;
    }
    image::restore(connection, image)?;
    if in_group {
        connection.begin_group()?;
    }
    Ok(())
}
