//! SQLite without a server: called in this process, by one thread on the core that the server has
//! in its turn.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::harness::Sample;
use crate::process::own_thread_cpu_ns;
use crate::sql::rungs::{self, FIRST_KEY, KEYS};
use crate::sys;

/// How SQLite is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each insertion the same text, prepared each time.
    Text,
    /// Each insertion another text.
    ChangingText,
    /// A prepared insertion, each in a transaction of its own.
    Prepared,
    /// Prepared insertions, all in one transaction; on file a thousand in each.
    Together,
    /// A row by its rowid.
    Point,
    /// A sum over a whole table.
    Sum,
}

impl Way {
    /// What the reader is told.
    pub fn words(self, on_file: bool) -> &'static str {
        match (self, on_file) {
            (Way::Text, _) => "the same text, prepared each time",
            (Way::ChangingText, _) => "changing text",
            (Way::Prepared, _) => "prepared, each row a transaction",
            (Way::Together, false) => "prepared, one transaction",
            (Way::Together, true) => "prepared, a thousand rows a transaction",
            (Way::Point, _) => "prepared, by rowid",
            (Way::Sum, _) => "prepared, one thread",
        }
    }
}

/// Calls SQLite for a while, and counts the rows it then has.
///
/// # Errors
/// SQLite's; if the thread cannot be pinned.
pub fn measure(
    way: Way,
    file: Option<&Path>,
    core: Option<usize>,
    time: Duration,
) -> Result<Sample, String> {
    thread::scope(|scope| {
        let run = || {
            if let Some(core) = core {
                sys::pin_current_thread(core).map_err(|error| error.to_string())?;
            }
            call(way, file, time).map_err(|error| error.to_string())
        };
        scope.spawn(run).join().unwrap_or_else(|_| Err("the thread panicked".into()))
    })
}

fn open(file: Option<&Path>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let path = file.unwrap_or(Path::new(":memory:"));
    let connection = Connection::open_with_flags(path, flags)?;
    if file.is_some() {
        connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")?;
    }
    connection.execute_batch(rungs::TABLES)?;
    Ok(connection)
}

/// What was done in how much time.
struct Done {
    count: u64,
    wrong: u64,
    elapsed: Duration,
    cpu_ns: Option<u64>,
}

fn call(way: Way, file: Option<&Path>, time: Duration) -> rusqlite::Result<Sample> {
    let connection = open(file)?;
    if matches!(way, Way::Point | Way::Sum) {
        connection.execute_batch(rungs::FILL)?;
    }
    let done = repeat(&connection, way, file.is_some(), time)?;
    let mut sample = Sample { checked: done.count, failures: done.wrong, ..Sample::default() };
    if !matches!(way, Way::Point | Way::Sum) {
        let rows: i64 = connection.query_row(rungs::COUNT, [], |row| row.get(0))?;
        if u64::try_from(rows) != Ok(done.count) {
            sample.failures += 1;
            sample.failure_examples.push(format!("{rows} rows after {} insertions", done.count));
        }
    }
    let count = done.count.max(1) as f64;
    sample.values.insert("ops_per_s", count / done.elapsed.as_secs_f64());
    if let Some(ns) = done.cpu_ns {
        sample.values.insert("server_cpu_us", ns as f64 / 1e3 / count);
    }
    Ok(sample)
}

fn repeat(
    connection: &Connection,
    way: Way,
    on_file: bool,
    time: Duration,
) -> rusqlite::Result<Done> {
    // A look at the clock for so many calls: a thousandth of their time.
    let run = match way {
        Way::Together => 1000,
        Way::Sum => 1,
        _ if on_file => 1,
        _ => 64,
    };
    let text = match way {
        Way::Point => rungs::POINT,
        Way::Sum => rungs::SUM,
        _ => rungs::INSERT,
    };
    let mut statement = connection.prepare(text)?;
    let is_one = way == Way::Together && !on_file;
    let (began, cpu) = (Instant::now(), own_thread_cpu_ns());
    let (mut count, mut wrong) = (0, 0);
    if is_one {
        connection.execute_batch("BEGIN")?;
    }
    // At least once, however long the beginning took.
    loop {
        if way == Way::Together && on_file {
            connection.execute_batch("BEGIN")?;
        }
        for number in count..count + run {
            wrong += u64::from(!once(connection, &mut statement, way, number)?);
        }
        count += run;
        if way == Way::Together && on_file {
            connection.execute_batch("COMMIT")?;
        }
        if began.elapsed() >= time {
            break;
        }
    }
    if is_one {
        connection.execute_batch("COMMIT")?;
    }
    let cpu_ns = cpu.zip(own_thread_cpu_ns()).map(|(before, after)| after - before);
    Ok(Done { count, wrong, elapsed: began.elapsed(), cpu_ns })
}

/// One call; whether its answer was right.
fn once(
    connection: &Connection,
    statement: &mut rusqlite::Statement<'_>,
    way: Way,
    number: u64,
) -> rusqlite::Result<bool> {
    match way {
        Way::Text => Ok(connection.execute(rungs::INSERT_TEXT, [])? == 1),
        Way::ChangingText => {
            let (before, after) = rungs::INSERT_AROUND;
            let text = format!("{before}{:012}{after}", scattered(number));
            Ok(connection.execute(&text, [])? == 1)
        }
        Way::Prepared | Way::Together => Ok(statement.execute((1_i64, 2_i64, 3_i64))? == 1),
        Way::Point => {
            let key = FIRST_KEY + scattered(number) as i64;
            Ok(statement.query_row([key], |row| row.get::<_, i64>(0))? == key)
        }
        Way::Sum => Ok(statement.query_row([], |row| row.get::<_, i64>(0))? == rungs::SUM_IS),
    }
}

/// A number below the number of keys: neighbours are far apart.
fn scattered(number: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (number.wrapping_mul(ODD) >> 20) % KEYS
}
