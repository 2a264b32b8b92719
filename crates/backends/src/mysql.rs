//! `Database` over MySQL and MariaDB.
//!
//! A query is a prepared statement, kept in its connection. A transaction is known before it
//! begins, so it is sent as one text, `BEGIN; ...; COMMIT`, with its values written out: one round
//! trip where prepared statements need one each (five for a record of metered ingest, 20 to 35 us
//! apart). The session's `sql_mode` says how quotes are written, so that nothing has to be guessed.
//!
//! **Invariant:** after an error before COMMIT the transaction is rolled back, or the connection is
//! dropped, which does the same.

use std::fmt::Write;
use std::time::Duration;

use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Error, Opts, OptsBuilder, Params, Value as Cell};
use services::database::{
    AsyncDatabase, Connect, Database, DatabaseError, Dialect, Inside, Ran, Real, Row, Soon,
    Statement, Step, Stepped, Value,
};

use crate::marks::pieces;
use crate::runtime::{CONNECT_TIMEOUT, LOCK_WAIT_S, STATEMENT_TIMEOUT, Turning, limited};
use crate::unit::{self, Stepwise};

/// Statements that stay prepared in a connection.
const STATEMENTS_KEPT: usize = 256;
/// A text longer than this is sent in several: servers take 16 MiB unless told otherwise, and the
/// longest record has 1 MiB.
const TEXT_BYTES_MAX: usize = 2 << 20;
/// The character set number of what is no text.
const BINARY: u16 = 63;
/// Keep-alive of idle TCP connections.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Where a server is: `mysql://user:password@host:port/database`, with `?socket=PATH` for a unix
/// socket.
pub struct Mysql {
    opts: Opts,
}

impl Mysql {
    /// The server that an address names.
    pub fn new(url: &str) -> Result<Mysql, String> {
        let url = match url.split_once("://") {
            Some((_, rest)) => format!("mysql://{rest}"),
            None => return Err("an address begins with mysql://".into()),
        };
        let opts = Opts::from_url(&url).map_err(|error| error.to_string())?;
        if opts.db_name().is_none_or(str::is_empty) {
            return Err("a database is named: mysql://user@host/database".into());
        }
        let mode = "STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,ERROR_FOR_DIVISION_BY_ZERO,\
                    NO_ENGINE_SUBSTITUTION";
        let init = vec![
            format!(
                "SET SESSION sql_mode = '{mode}', autocommit = 1, time_zone = '+00:00', \
                 innodb_lock_wait_timeout = {LOCK_WAIT_S}"
            ),
            // Rows are found by keys: gaps between them need no locks.
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_string(),
            "SET NAMES utf8mb4".to_string(),
        ];
        let builder = OptsBuilder::from_opts(opts)
            .init(init)
            .stmt_cache_size(STATEMENTS_KEPT)
            .client_found_rows(true)
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEPALIVE));
        Ok(Mysql { opts: builder.into() })
    }
}

impl Connect for Mysql {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let mut turning = Turning::new()?;
        let opts = self.opts.clone();
        let conn = turning
            .wait(CONNECT_TIMEOUT, async { Conn::new(opts).await.map_err(|err| error(&err)) })?;
        Ok(Box::new(Open { conn: Some(conn), turning }))
    }

    fn connect_async(&self) -> Option<Soon<'static, Box<dyn AsyncDatabase>>> {
        let opts = self.opts.clone();
        let conn = async { Conn::new(opts).await.map_err(|err| error(&err)) };
        Some(Box::pin(async move {
            Ok(Box::new(Driven(limited(CONNECT_TIMEOUT, conn).await?)) as Box<dyn AsyncDatabase>)
        }))
    }
}

/// A connection that somebody else's event loop drives.
struct Driven(Conn);

impl AsyncDatabase for Driven {
    fn query<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> Soon<'a, Vec<Row>> {
        let ran = run_prepared(&mut self.0, sql, values);
        Box::pin(async { limited(STATEMENT_TIMEOUT, ran).await.map(|ran| ran.rows) })
    }

    fn transact<'a>(&'a mut self, statements: &'a [Statement]) -> Soon<'a, Vec<u64>> {
        Box::pin(limited(STATEMENT_TIMEOUT, transact(&mut self.0, statements)))
    }
}

struct Open {
    /// None only while it is dropped.
    conn: Option<Conn>,
    turning: Turning,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Saying goodbye takes a task.
        let _entered = self.turning.enter();
        drop(self.conn.take());
    }
}

/// Errors by the numbers of `include/mysqld_error.h` (MySQL, MariaDB).
fn error(error: &Error) -> DatabaseError {
    let Error::Server(server) = error else { return DatabaseError::Lost(error.to_string()) };
    let text = format!("{} ({})", server.message, server.code);
    match server.code {
        // A duplicate key; what is to be created is there already, what is to be dropped is gone.
        1022 | 1062 | 1169 | 1586 | 1050 | 1060 | 1061 | 1091 => DatabaseError::Duplicate(text),
        // Locks, deadlocks, too many connections, read-only for a while, changed meanwhile.
        1020 | 1040 | 1203 | 1205 | 1213 | 1226 | 1290 | 1792 | 1836 | 3024 | 3572 => {
            DatabaseError::Busy(text)
        }
        // The server goes away, or ended us.
        1053
        | 1077
        | 1079
        | 1080
        | 1152
        | 1158..=1161
        | 1184
        | 1317
        | 1927
        | 2006
        | 2013
        | 4031 => DatabaseError::Lost(text),
        _ => DatabaseError::Refused(text),
    }
}

fn to_cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::NULL,
        Value::Bool(is) => Cell::Int(i64::from(*is)),
        Value::Int(number) => Cell::Int(*number),
        Value::Real(Real(number)) => Cell::Double(*number),
        Value::Text(text) => Cell::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => Cell::Bytes(bytes.clone()),
    }
}

fn fraction(micros: u32) -> String {
    if micros == 0 { String::new() } else { format!(".{micros:06}") }
}

fn of_cell(cell: Cell, column: &Column) -> Value {
    match cell {
        Cell::NULL => Value::Null,
        Cell::Int(number) => Value::Int(number),
        Cell::UInt(number) => {
            i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Int)
        }
        Cell::Float(number) => Value::Real(Real(f64::from(number))),
        Cell::Double(number) => Value::Real(Real(number)),
        Cell::Date(year, month, day, ..)
            if matches!(column.column_type(), ColumnType::MYSQL_TYPE_DATE) =>
        {
            Value::Text(format!("{year:04}-{month:02}-{day:02}"))
        }
        Cell::Date(year, month, day, hour, minute, second, micros) => Value::Text(format!(
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{}",
            fraction(micros)
        )),
        Cell::Time(is_negative, days, hours, minute, second, micros) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = days * 24 + u32::from(hours);
            Value::Text(format!("{sign}{hours:02}:{minute:02}:{second:02}{}", fraction(micros)))
        }
        Cell::Bytes(bytes) => {
            let is_decimal = matches!(
                column.column_type(),
                ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL
            );
            if column.character_set() == BINARY && !is_decimal {
                return Value::Bytes(bytes);
            }
            match String::from_utf8(bytes) {
                Ok(text) => Value::Text(text),
                Err(error) => Value::Bytes(error.into_bytes()),
            }
        }
    }
}

/// Writes a value as SQL under the `sql_mode` of [`Mysql::new`]: a quote is doubled, nothing else
/// means anything in a text.
fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("NULL"),
        Value::Bool(is) => text.push_str(if *is { "1" } else { "0" }),
        Value::Int(number) => text.push_str(itoa::Buffer::new().format(*number)),
        Value::Real(Real(number)) if number.is_finite() => {
            let _ = write!(text, "{number:e}");
        }
        Value::Real(_) => text.push_str("NULL"),
        Value::Text(word) => {
            text.push('\'');
            let mut pieces = word.split('\'');
            text.push_str(pieces.next().unwrap_or_default());
            for piece in pieces {
                text.push_str("''");
                text.push_str(piece);
            }
            text.push('\'');
        }
        Value::Bytes(bytes) => {
            text.push_str("x'");
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\'');
        }
    }
}

/// A transaction as texts to be sent one after the other; how many statements count in each (not
/// BEGIN and COMMIT), and for each of them the statement that it is a piece of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Script {
    texts: Vec<String>,
    owners: Vec<usize>,
}

impl Script {
    fn of(statements: &[Statement]) -> Result<Script, DatabaseError> {
        let mut script = Script { texts: vec![String::new()], owners: Vec::new() };
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Run { sql, values } => {
                    let text = written_out(sql, values)?;
                    script.next(index).push_str(&text);
                }
                Statement::Insert { into, columns, values, tail } => {
                    script.insert(index, into, values.chunks(*columns), tail);
                }
            }
        }
        Ok(script)
    }

    /// The text that the next piece goes into.
    fn next(&mut self, owner: usize) -> &mut String {
        self.owners.push(owner);
        if self.texts.last().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            self.texts.push(String::new());
        }
        let last = self.texts.len() - 1;
        let text = &mut self.texts[last];
        if !text.is_empty() {
            text.push(';');
        }
        text
    }

    fn insert<'v>(
        &mut self,
        owner: usize,
        into: &str,
        rows: impl Iterator<Item = &'v [Value]>,
        tail: &str,
    ) {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let text = self.next(owner);
            let _ = write!(text, "INSERT INTO {into} VALUES ");
            let mut separator = '(';
            for row in rows.by_ref() {
                for value in row {
                    text.push(separator);
                    write_value(text, value);
                    separator = ',';
                }
                text.push(')');
                if text.len() > TEXT_BYTES_MAX {
                    break;
                }
                text.push(',');
                separator = '(';
            }
            if text.ends_with(',') {
                text.pop();
            }
            let _ = write!(text, " {tail}");
        }
    }
}

fn written_out(sql: &str, values: &[Value]) -> Result<String, DatabaseError> {
    let pieces = pieces(sql);
    if pieces.len() != values.len() + 1 {
        let (marks, count) = (pieces.len() - 1, values.len());
        return Err(DatabaseError::Refused(format!("{count} values for {marks} marks: {sql}")));
    }
    let mut text = String::from(pieces[0]);
    for (value, piece) in values.iter().zip(&pieces[1..]) {
        write_value(&mut text, value);
        text.push_str(piece);
    }
    Ok(text)
}

/// Sends a text of several statements; the rows that each changed.
async fn send(conn: &mut Conn, text: String) -> Result<Vec<u64>, Error> {
    let mut result = conn.query_iter(text).await?;
    let mut changed = Vec::new();
    loop {
        let (is_last, count) = (result.is_empty(), result.affected_rows());
        // An error of a later statement looks like the end until it is asked for.
        result.map(drop::<mysql_async::Row>).await?;
        changed.push(count);
        if is_last {
            return Ok(changed);
        }
    }
}

async fn transact(conn: &mut Conn, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
    let Script { mut texts, owners } = Script::of(statements)?;
    let is_alone = owners.len() <= 1;
    let last = texts.len() - 1;
    if !is_alone {
        texts[0].insert_str(0, "BEGIN;");
        texts[last].push_str(";COMMIT");
    }
    let mut changed = Vec::new();
    let mut result = Ok(());
    for text in texts {
        match send(conn, text).await {
            Ok(counts) => changed.extend(counts),
            Err(err) => {
                result = Err(error(&err));
                break;
            }
        }
    }
    if let Err(error) = result {
        if !is_alone && !matches!(error, DatabaseError::Lost(_)) {
            // It failed before COMMIT was reached: InnoDB's COMMIT itself does not fail.
            let undone = conn.query_drop("ROLLBACK").await;
            if undone.is_err() {
                return Err(DatabaseError::Lost(format!("{error}, and then the connection")));
            }
        }
        return Err(error);
    }
    let skipped = usize::from(!is_alone);
    let mut sums = vec![0; statements.len()];
    for (owner, count) in owners.into_iter().zip(changed.into_iter().skip(skipped)) {
        sums[owner] += count;
    }
    Ok(sums)
}

async fn run_prepared(conn: &mut Conn, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
    let values: Vec<Cell> = values.iter().map(to_cell).collect();
    let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let mut result = conn.exec_iter(sql, params).await.map_err(|err| error(&err))?;
    let changed = result.affected_rows();
    let rows: Vec<mysql_async::Row> = result.collect().await.map_err(|err| error(&err))?;
    result.drop_result().await.map_err(|err| error(&err))?;
    let of_row = |row: mysql_async::Row| {
        let columns = row.columns();
        let cells = row.unwrap_raw().into_iter().map(|cell| cell.unwrap_or(Cell::NULL));
        cells.zip(&*columns).map(|(cell, column)| of_cell(cell, column)).collect()
    };
    Ok(Ran { changed, rows: rows.into_iter().map(of_row).collect() })
}

impl Open {
    fn conn(&mut self) -> (&mut Turning, &mut Conn) {
        (&mut self.turning, self.conn.as_mut().expect("it is there until it is dropped"))
    }
}

impl Stepwise for Open {
    const DIALECT: Dialect = Dialect::Mysql;
    const SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
                        START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError> {
        let (turning, conn) = self.conn();
        turning.wait(STATEMENT_TIMEOUT, async {
            conn.query_drop(sql).await.map_err(|err| error(&err))
        })
    }

    fn run_prepared(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
        let (turning, conn) = self.conn();
        turning.wait(STATEMENT_TIMEOUT, run_prepared(conn, sql, values))
    }

    fn commit(&mut self) -> Result<(), DatabaseError> {
        // InnoDB's COMMIT itself does not fail: what it refuses has an unknown end.
        self.plain("COMMIT").map_err(|error| match error {
            DatabaseError::Refused(why) => DatabaseError::Lost(why),
            error => error,
        })
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.run_prepared(sql, values).map(|ran| ran.rows)
    }

    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        let (turning, conn) = self.conn();
        turning.wait(STATEMENT_TIMEOUT, transact(conn, statements))
    }

    fn unit(&mut self, steps: &[Step]) -> Result<Vec<Stepped>, DatabaseError> {
        unit::alone(self, steps)
    }

    fn within(&mut self, inside: Inside<'_>) -> Result<(), DatabaseError> {
        unit::within(self, inside)
    }
}
