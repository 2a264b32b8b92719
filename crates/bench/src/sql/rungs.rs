//! The rungs of the ladder: what a client sends, and what SQLite called in process does for it.
//!
//! ```text
//! t(a, b, c)            rows of three integers are inserted here and counted afterwards
//! s(a primary key, b)   100 000 rows whose b is their a, to be read
//! ```
//!
//! **Invariant:** a rung and its SQLite counterpart leave the same rows behind.

use crate::sql::in_process::Way;
use crate::workload::{After, Before, Expect, Test, Word};

use Word::{Between, Key, Text};

/// The first key of `s`; a client writes it as a one and twelve digits.
pub const FIRST_KEY: i64 = 1_000_000_000_000;
/// Rows of `s`.
pub const KEYS: u64 = 100_000;
/// What both tables are made by.
pub const TABLES: &str = "CREATE TABLE IF NOT EXISTS t(a INTEGER, b INTEGER, c INTEGER);\
     CREATE TABLE IF NOT EXISTS s(a INTEGER PRIMARY KEY, b INTEGER)";
/// What `s` is filled by.
pub const FILL: &str = "INSERT OR IGNORE INTO s WITH RECURSIVE n(i) AS \
     (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 100000) \
     SELECT 1000000000000 + i, 1000000000000 + i FROM n";
/// Counts what was inserted.
pub const COUNT: &str = "SELECT count(*) FROM t";
/// An insertion with parameters.
pub const INSERT: &str = "INSERT INTO t VALUES(?1,?2,?3)";
/// One without.
pub const INSERT_TEXT: &str = "INSERT INTO t VALUES(1,2,3)";
/// One whose first value changes.
pub const INSERT_AROUND: (&str, &str) = ("INSERT INTO t VALUES(", ",2,3)");
/// A row by its rowid.
pub const POINT: &str = "SELECT b FROM s WHERE a = ?1";
/// Some milliseconds of reading.
pub const SUM: &str = "SELECT sum(b % 1000) FROM s";
/// What that gives.
pub const SUM_IS: i64 = 49_950_000;

/// The database in memory.
pub const MEMORY: &str = "fbench:sql";
/// The database on file.
pub const FILE: &str = "fbench:sql:file";

/// What is measured on a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands under load.
    Load,
    /// Four connections that read and one that writes the same database, on all cores.
    Readers,
    /// GETs at a fixed rate while another connection's query runs, and without it.
    Beside(&'static str),
}

/// One rung.
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    /// Its name.
    pub name: &'static str,
    /// What is sent.
    pub test: &'static Test,
    /// Requests in flight on a connection.
    pub pipeline: usize,
    /// Rows that a request inserts.
    pub rows: u64,
    /// The database.
    pub db: &'static str,
    /// What SQLite does in process.
    pub way: Option<Way>,
    /// What is measured.
    pub kind: Kind,
    /// A command that servers other than this one may not have.
    pub needs: &'static str,
}

const fn test(words: &'static [Word], expect: Expect) -> Test {
    Test { name: "", words, expect, before: Before::Nothing, after: After::Nothing }
}

const ONE_ROW: Expect = Expect::Exactly("*2\r\n+DONE\r\n:1\r\n");

const fn exec(db: &'static str) -> [Word; 3] {
    [Text("REDISQL.EXEC"), Text(db), Text(INSERT_TEXT)]
}

const fn changing(db: &'static str) -> [Word; 3] {
    [Text("REDISQL.EXEC"), Text(db), Between(INSERT_AROUND.0, INSERT_AROUND.1)]
}

const fn statement(db: &'static str) -> [Word; 6] {
    let [one, two, three] = ROW;
    [Text("REDISQL.EXEC_STATEMENT"), Text(db), Text("insert"), one, two, three]
}

const ROW: [Word; 3] = [Text("1"), Text("2"), Text("3")];
/// Rows of one batch.
pub const BATCH_ROWS: usize = 100;

const fn batch(db: &'static str) -> [Word; 4 + 3 * BATCH_ROWS] {
    let mut words = [Text("1"); 4 + 3 * BATCH_ROWS];
    words[0] = Text("SQL.BATCH");
    words[1] = Text(db);
    words[2] = Text(INSERT);
    words[3] = Text("3");
    let mut index = 4;
    while index < words.len() {
        words[index] = ROW[(index - 4) % 3];
        index += 1;
    }
    words
}

static PING: Test = test(&[Text("PING")], Expect::Exactly("+PONG\r\n"));
static POINT_READ: Test = test(
    &[Text("REDISQL.QUERY_STATEMENT"), Text(MEMORY), Text("point"), Key("1")],
    Expect::Number("*1\r\n*1\r\n:1", "\r\n"),
);
static GET: Test =
    Test { before: Before::Values, ..test(&[Text("GET"), Key("fbench:k:")], Expect::Value) };

const SUM_REPLY: Expect = Expect::Exactly("*1\r\n*1\r\n:49950000\r\n");
static SUM_MEMORY: Test =
    test(&[Text("REDISQL.QUERY_STATEMENT"), Text(MEMORY), Text("sum")], SUM_REPLY);
static SUM_FILE: Test =
    test(&[Text("REDISQL.QUERY_STATEMENT"), Text(FILE), Text("sum")], SUM_REPLY);

static EXEC: [Test; 2] = [test(&exec(MEMORY), ONE_ROW), test(&exec(FILE), ONE_ROW)];
static CHANGING: [Test; 2] = [test(&changing(MEMORY), ONE_ROW), test(&changing(FILE), ONE_ROW)];
static STATEMENT: [Test; 2] = [test(&statement(MEMORY), ONE_ROW), test(&statement(FILE), ONE_ROW)];
const HUNDRED_ROWS: Expect = Expect::Begins("*4\r\n$7\r\nchanges\r\n:100\r\n");
static BATCH: [Test; 2] = [test(&batch(MEMORY), HUNDRED_ROWS), test(&batch(FILE), HUNDRED_ROWS)];

/// A query over all pairs of rows, which takes minutes.
pub const LONG: &str = "SELECT count(*) FROM s x, s y WHERE (x.b + y.b) % 7 = 3";
/// A query that never ends.
pub const RUNAWAY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
     SELECT count(*) FROM n";

const fn rung(
    name: &'static str,
    test: &'static Test,
    pipeline: usize,
    rows: u64,
    way: Option<Way>,
) -> Rung {
    let (db, kind, needs) = (MEMORY, Kind::Load, "REDISQL.EXEC");
    Rung { name, test, pipeline, rows, db, way, kind, needs }
}

const fn file(rung: Rung) -> Rung {
    Rung { db: FILE, ..rung }
}

const fn batched(rung: Rung) -> Rung {
    Rung { needs: "SQL.BATCH", ..rung }
}

const fn readers(rung: Rung) -> Rung {
    Rung { kind: Kind::Readers, ..rung }
}

const fn beside(name: &'static str, query: &'static str) -> Rung {
    Rung { kind: Kind::Beside(query), needs: "SQL.CANCEL", ..rung(name, &GET, 1, 0, None) }
}

/// The ladder.
pub static RUNGS: &[Rung] = &[
    rung("PING, P1", &PING, 1, 0, None),
    rung("PING, P50", &PING, 50, 0, None),
    rung("EXEC, same text, P1", &EXEC[0], 1, 1, Some(Way::Text)),
    rung("EXEC, same text, P50", &EXEC[0], 50, 1, Some(Way::Together)),
    rung("EXEC, changing text, P1", &CHANGING[0], 1, 1, Some(Way::ChangingText)),
    rung("EXEC, changing text, P50", &CHANGING[0], 50, 1, Some(Way::ChangingText)),
    rung("EXEC_STATEMENT, P1", &STATEMENT[0], 1, 1, Some(Way::Prepared)),
    rung("EXEC_STATEMENT, P50", &STATEMENT[0], 50, 1, Some(Way::Together)),
    batched(rung("SQL.BATCH rows, P1", &BATCH[0], 1, BATCH_ROWS as u64, Some(Way::Together))),
    batched(rung("SQL.BATCH rows, P50", &BATCH[0], 50, BATCH_ROWS as u64, Some(Way::Together))),
    rung("SELECT by rowid, P1", &POINT_READ, 1, 0, Some(Way::Point)),
    rung("SELECT by rowid, P50", &POINT_READ, 50, 0, Some(Way::Point)),
    file(rung("file: EXEC, same text, P1", &EXEC[1], 1, 1, Some(Way::Text))),
    file(rung("file: EXEC, same text, P50", &EXEC[1], 50, 1, Some(Way::Together))),
    file(rung("file: EXEC, changing text, P1", &CHANGING[1], 1, 1, Some(Way::ChangingText))),
    file(rung("file: EXEC, changing text, P50", &CHANGING[1], 50, 1, Some(Way::Together))),
    file(rung("file: EXEC_STATEMENT, P1", &STATEMENT[1], 1, 1, Some(Way::Prepared))),
    file(rung("file: EXEC_STATEMENT, P50", &STATEMENT[1], 50, 1, Some(Way::Together))),
    batched(file(rung("file: SQL.BATCH rows, P1", &BATCH[1], 1, 100, Some(Way::Together)))),
    batched(file(rung("file: SQL.BATCH rows, P50", &BATCH[1], 50, 100, Some(Way::Together)))),
    readers(rung("sums: 4 readers, 1 writer", &SUM_MEMORY, 1, 0, Some(Way::Sum))),
    readers(file(rung("file: sums: 4 readers, 1 writer", &SUM_FILE, 1, 0, Some(Way::Sum)))),
    beside("GET beside a long query", LONG),
    beside("GET beside a runaway query", RUNAWAY),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_its_rows() {
        let words = batch(MEMORY);
        assert_eq!(words.len(), 304);
        for (index, want) in [(4, "1"), (5, "2"), (6, "3"), (303, "3")] {
            assert!(matches!(words[index], Text(text) if text == want));
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, rung) in RUNGS.iter().enumerate() {
            let first = RUNGS.iter().position(|other| other.name == rung.name);
            assert_eq!(first, Some(index), "{}", rung.name);
        }
    }
}
