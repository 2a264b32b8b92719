//! Cursors: the rows of a query in portions, from a snapshot: SQL.CURSOR, SQL.FETCH, SQL.CLOSE.
//!
//! Each has a thread, which stands in the middle of its statement between two portions.
//!
//! **Invariant:** all portions are from one instant, whatever is written meanwhile.
//! **Bound:** a portion ends at its number of rows or after `PORTION_BYTES`; nothing is read
//! ahead. A cursor nobody fetches from for `sql-idle-timeout-ms` is closed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use commands::context::{Background, Context};
use commands::error::Error;
use resp::{Args, OwnedArgs, Writer, number};

use crate::connection::{Connection, script_of};
use crate::database::{Database, lock};
use crate::error::{Failure, SqlError};
use crate::limits::{Limits, narrower};
use crate::plan::{Action, Dialect};
use crate::queue::{Client, now_ms};
use crate::raw::memory;
use crate::raw::statement::Statement;
use crate::reply::{native_columns, row_cells};
use crate::run::{Place, Request, Source};
use crate::serve::{error_of, find, make_wait};
use crate::settings::settings;
use crate::transaction::{Ticket, background, is_open_on, kept, reply, tidy};
use crate::{frozen, live, native, snapshot};

/// A portion ends after so many bytes.
const PORTION_BYTES: usize = 4 << 20;
/// The rows of a portion, unless the client says.
const PORTION_ROWS: i64 = 100;
/// The most that it may say.
const PORTION_ROWS_MAX: i64 = 1_000_000;

/// A client's cursors.
#[derive(Default)]
pub struct Cursors {
    last: i64,
    open: Vec<(i64, Line)>,
}

impl Cursors {
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// The way to a cursor's thread; it ends when this is dropped.
struct Line {
    sender: Sender<Portion>,
    is_closed: Arc<Mutex<bool>>,
}

/// A client that waits for rows.
struct Portion {
    client: Client,
    count: usize,
}

/// SQL.CURSOR.
pub fn open(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    native::read_query(args)?;
    let database = find(cx, args.word(1), Dialect::Native)?;
    let background = background(cx)?;
    if is_open_on(cx, &database) {
        let text = "ERR a cursor reads what is committed: end the SQL transaction first";
        return Err(Error::text(text));
    }
    let ticket = Ticket::take()?;
    let (sender, receiver) = channel();
    let is_closed = Arc::new(Mutex::new(false));
    let client = make_wait(cx);
    let cursors = &mut kept(cx).cursors;
    cursors.last += 1;
    let id = cursors.last;
    let start = Start {
        id,
        background,
        database,
        args: args.to_owned(),
        is_closed: Arc::clone(&is_closed),
        receiver,
        _ticket: ticket,
    };
    let thread = std::thread::Builder::new().name("sql-cursor".into());
    if thread.spawn(move || work(&start, client)).is_err() {
        cx.session.blocked = None;
        tidy(cx);
        return Err(Error::text("ERR there is no thread for it"));
    }
    kept(cx).cursors.open.push((id, Line { sender, is_closed }));
    Ok(())
}

const UNKNOWN: Error = Error::text("ERR no such cursor: it was closed, or never opened");

/// Where a client's cursor is among its others; those whose thread has ended are forgotten.
fn place_of(cx: &mut Context<'_>, word: &[u8]) -> Result<usize, Error> {
    let id = number::integer(word).ok_or(Error::NOT_AN_INTEGER)?;
    let open = &mut kept(cx).cursors.open;
    open.retain(|(_, line)| !*lock(&line.is_closed));
    let found = open.iter().position(|(known, _)| *known == id);
    tidy(cx);
    found.ok_or(UNKNOWN)
}

/// SQL.FETCH.
pub fn fetch(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    background(cx)?;
    let count = match args.get(2) {
        None => PORTION_ROWS,
        Some(word) => number::integer(word).ok_or(Error::NOT_AN_INTEGER)?,
    };
    if !(1..=PORTION_ROWS_MAX).contains(&count) || args.len() > 3 {
        return Err(Error::text("ERR the number of rows must be from 1 to 1000000"));
    }
    let place = place_of(cx, args.word(1))?;
    let client = make_wait(cx);
    let (_, line) = &kept(cx).cursors.open[place];
    // The thread looks for a last wish under this lock before it ends.
    let is_closed = lock(&line.is_closed);
    let portion = Portion { client, count: count as usize };
    let sent = !*is_closed && line.sender.send(portion).is_ok();
    drop(is_closed);
    if !sent {
        cx.session.blocked = None;
        return Err(UNKNOWN);
    }
    Ok(())
}

/// SQL.CLOSE.
pub fn close(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let place = place_of(cx, args.word(1))?;
    drop(kept(cx).cursors.open.remove(place));
    tidy(cx);
    cx.out.ok();
    Ok(())
}

// The thread.

struct Start {
    id: i64,
    background: Arc<dyn Background>,
    database: Arc<Database>,
    args: OwnedArgs,
    is_closed: Arc<Mutex<bool>>,
    receiver: Receiver<Portion>,
    _ticket: Ticket,
}

impl Start {
    /// The next wish of the client; `None` if it has none for too long, or has gone.
    fn next(&self) -> Option<Portion> {
        let idle = Duration::from_millis(settings().idle_ms());
        match self.receiver.recv_timeout(idle) {
            Ok(portion) => Some(portion),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let mut is_closed = lock(&self.is_closed);
                let last = self.receiver.try_recv().ok();
                *is_closed = last.is_none();
                last
            }
        }
    }
}

/// A portion being written.
struct Writing {
    portion: Portion,
    rows: Writer,
    count: usize,
}

impl Writing {
    fn new(portion: Portion) -> Writing {
        Writing { rows: Writer::new(portion.client.resp3), portion, count: 0 }
    }

    fn is_full(&self) -> bool {
        self.count >= self.portion.count || self.rows.len() >= PORTION_BYTES
    }

    fn send(self, is_done: bool) {
        let mut out = Writer::new(self.portion.client.resp3);
        out.map(2);
        out.text("rows");
        out.array(self.count);
        out.append(&self.rows);
        out.text("done");
        out.flag(is_done);
        reply(&self.portion.client, out);
    }
}

/// The thread's life.
fn work(start: &Start, client: Client) {
    let mut client = Some(client);
    let mut writing = None;
    let result = walk(start, &mut client, &mut writing);
    let failed = result.err().map(|failure| error_of(failure, Dialect::Native));
    // Whoever waits now is told; the next one finds the cursor closed.
    match (client, writing, failed) {
        (Some(client), _, failed) => {
            *lock(&start.is_closed) = true;
            let mut out = Writer::new(client.resp3);
            out.error(failed.unwrap_or(UNKNOWN).message());
            reply(&client, out);
        }
        (None, Some(Writing { portion, .. }), Some(error)) => {
            *lock(&start.is_closed) = true;
            let mut out = Writer::new(portion.client.resp3);
            out.error(error.message());
            reply(&portion.client, out);
        }
        (None, Some(writing), None) => {
            writing.send(true);
            // Done is done, as often as it is asked.
            while let Some(portion) = start.next() {
                Writing::new(portion).send(true);
            }
        }
        (None, None, _) => *lock(&start.is_closed) = true,
    }
}

/// Opens the snapshot and walks through the rows, from one wish to the next. Who waits is in
/// `client` until the cursor is open, then in `writing`.
fn walk(
    start: &Start,
    client: &mut Option<Client>,
    writing: &mut Option<Writing>,
) -> Result<(), Failure> {
    let parsed = native::read_query(start.args.args());
    let plan = parsed.map_err(|error| Failure::refused(error.message()))?;
    let Action::Run { request, .. } = plan.action else { return Ok(()) };
    let mut connection = snapshot::take(&start.database, &*start.background)?;
    let limits = connection.limits_of(request.limits, Place::Thread(0));
    memory::allow(limits.memory);
    let mut statement = statement_of(&mut connection, &request, &limits)?;
    let cells = request.values.cells(&statement)?;
    if let Some(client) = client.take() {
        let mut out = Writer::new(client.resp3);
        out.map(3);
        out.text("cursor");
        out.int(start.id);
        native_columns(&mut out, &statement);
        reply(&client, out);
    }
    let Some(first) = start.next() else { return Ok(()) };
    *writing = Some(Writing::new(first));
    begin_portion(&mut connection, &limits);
    live::forget();
    let readers = &start.database.readers;
    let budget = Arc::clone(&connection.budget);
    let mut watched = Some(readers.watch(&budget));
    let result = statement.run(cells.into_iter(), |row| {
        if writing.as_ref().is_some_and(Writing::is_full) {
            // Nothing runs until the client wants more.
            watched = None;
            if let Some(full) = writing.take() {
                full.send(false);
            }
            let Some(next) = start.next() else { return Ok(false) };
            *writing = Some(Writing::new(next));
            begin_portion(&mut connection, &limits);
            watched = Some(readers.watch(&budget));
        }
        if let Some(writing) = writing.as_mut() {
            row_cells(&mut writing.rows, row);
            writing.count += 1;
        }
        Ok::<bool, SqlError>(true)
    });
    drop(watched);
    if live::has_wants() {
        return Err(Failure::refused("ERR live keys cannot be read through a cursor"));
    }
    result.map_err(|error| connection.judge_reader(error.into()))
}

fn begin_portion(connection: &mut Connection, limits: &Limits) {
    frozen::begin(now_ms(), None);
    let time_ms = narrower(settings().timeout_ms(), limits.timeout_ms);
    connection.budget.allow(i64::MAX, Some(time_ms));
}

/// The one statement of a cursor.
fn statement_of(
    connection: &mut Connection,
    request: &Request<'_>,
    limits: &Limits,
) -> Result<Statement, Failure> {
    let Source::Text(text) = request.source else {
        return Err(Failure::refused("ERR a cursor is over a text"));
    };
    if request.limits.rows > 0 || request.limits.bytes > 0 {
        return Err(Failure::refused("ERR a cursor has no ROWS or BYTES: SQL.FETCH says how many"));
    }
    begin_portion(connection, limits);
    let mut parts = script_of(&connection.handle, text, true)?.parts;
    match parts.pop() {
        Some(part) if parts.is_empty() && part.statement.is_read_only() => Ok(part.statement),
        _ => Err(Failure::refused("ERR a cursor is over one statement that only reads")),
    }
}
