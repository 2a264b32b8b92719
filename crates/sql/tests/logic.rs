//! Scripts in the grammar of the SQLite project's sqllogictest, generated from a seed, run through
//! the server's commands and through SQLite in process: the same rows, the same errors.
//!
//! ```text
//! statement ok            statement error         query IRT rowsort
//! INSERT INTO ...         INSERT INTO ...         SELECT ...
//! ```
//!
//! Records are separated by empty lines; `rowsort` and `nosort` say how rows are compared.

mod common;

use common::client;
use keyspace::random::Random;
use rusqlite::types::ValueRef;

/// Scripts, and records in each.
const SCRIPTS: u64 = 24;
const RECORDS: usize = 500;

/// What a record expects.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Kind {
    Statement { ok: bool },
    Query { sorts: bool },
}

/// Makes a script.
struct Maker {
    random: Random,
    tables: usize,
}

impl Maker {
    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.random.below(all.len())]
    }

    fn literal(&mut self) -> String {
        match self.random.below(8) {
            0 => "NULL".into(),
            1 => format!("{}.{}", self.random.below(100), self.random.below(100)),
            2 => format!("'{}'", self.pick(&["a", "Bee", "", "10", "x''y", "long text", "é"])),
            3 => format!("x'{:02x}{:02x}'", self.random.below(256), self.random.below(256)),
            4 => format!("-{}", self.random.below(1000)),
            _ => self.random.below(50).to_string(),
        }
    }

    fn expression(&mut self, depth: usize) -> String {
        let simple = depth == 0 || self.random.below(3) == 0;
        if simple {
            let column = self.pick(&["a", "b", "c", "d"]).to_string();
            return if self.random.below(3) == 0 { self.literal() } else { column };
        }
        let (one, other) = (self.expression(depth - 1), self.expression(depth - 1));
        match self.random.below(9) {
            0..3 => {
                let operator = self.pick(&["+", "-", "*", "/", "%", "||", "&", "|", "<<"]);
                format!("({one} {operator} {other})")
            }
            3..5 => {
                let operator = self.pick(&["<", "<=", "=", "<>", ">", "IS", "IS NOT", "LIKE"]);
                format!("({one} {operator} {other})")
            }
            5 => format!("CASE WHEN {one} THEN {other} ELSE {} END", self.literal()),
            6 => {
                let function = self.pick(&[
                    "abs", "length", "upper", "typeof", "quote", "hex", "coalesce", "round",
                ]);
                let more = if function == "coalesce" { ", 1" } else { "" };
                format!("{function}({one}{more})")
            }
            7 => format!("({one} IN ({other}, {}))", self.literal()),
            _ => format!("({one} BETWEEN {} AND {other})", self.literal()),
        }
    }

    fn table(&mut self) -> String {
        // Now and then one that is not there.
        let missing = usize::from(self.random.below(40) == 0);
        format!("t{}", self.random.below(self.tables + missing))
    }

    fn create(&mut self) -> String {
        self.tables += 1;
        let unique = self.pick(&["", " UNIQUE", " CHECK (a IS NULL OR a <> 13)", ""]);
        let kind = self.pick(&["INTEGER", "INT", "INTEGER PRIMARY KEY"]);
        let unique = if kind.contains("PRIMARY") { "" } else { unique };
        let table = self.tables - 1;
        format!("CREATE TABLE t{table}(a {kind}{unique}, b TEXT, c REAL, d)")
    }

    fn change(&mut self) -> String {
        let table = self.table();
        match self.random.below(10) {
            0 => format!("DELETE FROM {table} WHERE {}", self.expression(1)),
            1 => {
                let (set, filter) = (self.expression(2), self.expression(1));
                format!("UPDATE {table} SET {} = {set} WHERE {filter}", self.pick(&["b", "c", "d"]))
            }
            2 => {
                let from = self.table();
                format!("INSERT OR IGNORE INTO {table} SELECT a + 1, b, c, d FROM {from} LIMIT 3")
            }
            3 => format!("CREATE INDEX i{} ON {table}({})", self.random.bits(), "b, c"),
            _ => {
                let values: Vec<String> = (0..4).map(|_| self.literal()).collect();
                let verb = self.pick(&["INSERT", "INSERT", "INSERT OR REPLACE"]);
                format!("{verb} INTO {table} VALUES ({})", values.join(", "))
            }
        }
    }

    fn query(&mut self) -> (String, bool) {
        let (table, one, two) = (self.table(), self.expression(2), self.expression(1));
        match self.random.below(6) {
            0 => (format!("SELECT count(*), min(a), max({two}), total(c) FROM {table}"), false),
            1 => {
                let text = format!("SELECT typeof(d), count(*) FROM {table} GROUP BY 1");
                (text, true)
            }
            2 => {
                let other = self.table();
                let text = format!(
                    "SELECT x.a, y.b FROM {table} x JOIN {other} y ON x.a = y.a WHERE x.b <> 'q'"
                );
                (text, true)
            }
            3 => (format!("SELECT a, {one} FROM {table} ORDER BY rowid LIMIT 5"), false),
            4 => {
                let text = format!(
                    "SELECT a, row_number() OVER (ORDER BY rowid) FROM {table} WHERE {two}"
                );
                (text, true)
            }
            _ => (format!("SELECT {one}, {two} FROM {table} WHERE {two}"), true),
        }
    }

    /// A script's text.
    fn script(mut self) -> String {
        let mut text = String::new();
        for record in 0..RECORDS {
            if record < 3 || self.random.below(100) == 0 {
                text += &format!("statement ok\n{}\n\n", self.create());
            } else if self.random.below(2) == 0 {
                text += &format!("statement maybe\n{}\n\n", self.change());
            } else {
                let (query, sorts) = self.query();
                let sort = if sorts { "rowsort" } else { "nosort" };
                text += &format!("query T {sort}\n{query}\n\n");
            }
        }
        text
    }
}

/// The records of a script: what is expected, and the SQL.
fn parse(script: &str) -> Vec<(Option<Kind>, String)> {
    let record = |text: &str| {
        let (head, sql) = text.trim().split_once('\n')?;
        let words: Vec<&str> = head.split(' ').collect();
        let kind = match words[..] {
            ["statement", "ok"] => Some(Kind::Statement { ok: true }),
            ["statement", "error"] => Some(Kind::Statement { ok: false }),
            ["query", _, sort] => Some(Kind::Query { sorts: sort == "rowsort" }),
            _ => None,
        };
        Some((kind, sql.to_string()))
    };
    script.split("\n\n").filter_map(record).collect()
}

/// SQLite's own answer, written as the reply in RESP2 would be.
fn answer(connection: &rusqlite::Connection, sql: &str) -> Result<Vec<String>, String> {
    let run = || {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let mut line = format!("*{columns}");
            for index in 0..columns {
                line += &match row.get_ref(index)? {
                    ValueRef::Null => " $-1".to_string(),
                    ValueRef::Integer(number) => format!(" :{number}"),
                    ValueRef::Real(number) => bulk(resp::number::double_text(number).as_bytes()),
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bulk(bytes),
                };
            }
            all.push(line);
        }
        Ok(all)
    };
    run().map_err(|error: rusqlite::Error| match error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text,
        rusqlite::Error::SqlInputError { msg, .. } => msg,
        other => other.to_string(),
    })
}

fn bulk(bytes: &[u8]) -> String {
    format!(" ${} {}", bytes.len(), bytes.escape_ascii())
}

/// The server's rows, in the same form.
fn rows(reply: &[u8]) -> Result<Vec<String>, String> {
    use resp::reply::{Limits, Value, parse};
    let (value, _) = parse(reply, &Limits::default()).expect("a reply").expect("a whole one");
    if value.is_error() {
        let text = String::from_utf8_lossy(reply);
        return Err(text.trim_end().trim_start_matches('-').to_string());
    }
    let elements = value.as_elements().expect("an array");
    if elements.first().and_then(Value::as_bytes) == Some(b"DONE") {
        return Ok(Vec::new());
    }
    let cell = |cell: &Value| match (cell.as_bytes(), cell.as_integer()) {
        (Some(bytes), _) => bulk(bytes),
        (None, Some(number)) => format!(" :{number}"),
        (None, None) => " $-1".to_string(),
    };
    let row = |row: &Value| {
        let cells = row.as_elements().expect("a row");
        format!("*{}{}", cells.len(), cells.iter().map(cell).collect::<String>())
    };
    Ok(elements.iter().map(row).collect())
}

#[test]
fn scripts_have_the_results_of_sqlite_in_process() {
    let (mut records, mut errors, mut full) = (0, 0, 0);
    for seed in 0..SCRIPTS {
        let script = Maker { random: Random::new(seed + 1), tables: 0 }.script();
        let plain = rusqlite::Connection::open_in_memory().expect("memory");
        let mut client = client();
        client.run("REDISQL.CREATE_DB DB");
        for (kind, sql) in parse(&script) {
            let mut want = answer(&plain, &sql);
            let mut got = rows(&client.reply(&["REDISQL.EXEC", "DB", &sql]));
            if kind == Some(Kind::Query { sorts: true }) {
                want.iter_mut().for_each(|rows| rows.sort());
                got.iter_mut().for_each(|rows| rows.sort());
            }
            if let Some(Kind::Statement { ok }) = kind {
                assert_eq!(want.is_ok(), ok, "{sql}");
            }
            assert_eq!(got, want, "seed {seed}: {sql}");
            records += 1;
            errors += usize::from(want.is_err());
            full += usize::from(want.is_ok_and(|rows| !rows.is_empty()));
        }
    }
    assert!(records >= 10_000, "{records}");
    assert!(errors > 100 && full > 2_000, "{errors} errors, {full} with rows");
}
