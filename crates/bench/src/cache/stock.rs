//! The table that is asked, the addresses that ask it, and what the right answers are: read from
//! the database without anything in between.
//!
//! Every address makes the database look at all rows: no column but `id` has an index.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backends::address;
use services::database::{Connect, Database, DatabaseError, Dialect, Statement, Value};
use services::tables::query::{Query, Shape};
use services::tables::rows::write_rows;
use services::tables::schema::{Declarations, Table};
use services::tables::setup;

use crate::own_server::new_folder;

/// The table's name.
pub const TABLE: &str = "bench_item";
/// Rows of one statement that fills the table.
const FILLED_AT_ONCE: u32 = 5000;
const COLOURS: [&str; 7] = ["red", "orange", "yellow", "green", "blue", "indigo", "violet"];
const SELECT: &str = "$select=id,title,color,lot,price,done,stamp";

/// See the module.
pub struct Stock {
    /// Where connections come from.
    pub connect: Arc<dyn Connect>,
    /// The address for servers.
    pub address: String,
    /// The table as the services know it.
    pub table: Table,
    /// Product and version.
    pub version: String,
    folder: Option<PathBuf>,
}

/// What is asked, and the right answer to it.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path and query.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

fn text(error: DatabaseError) -> String {
    error.to_string()
}

/// What a server is told of the table. Times are in milliseconds.
pub fn declaration(ttl_ms: u64, more: &str) -> String {
    format!(
        "{{\"tables\":{{\"{TABLE}\":{{\"id\":\"int\",\"columns\":{{\"title\":\"text\",\
         \"color\":\"text\",\"lot\":\"int\",\"price\":\"real\",\"done\":\"bool\",\
         \"stamp\":\"int\"}},\"cache\":{{\"ttlMs\":{ttl_ms}{more}}}}}}}}}"
    )
}

impl Stock {
    /// Makes the table with so many rows, in a database of its own unless an address is given.
    pub fn fill(sql: Option<&str>, rows: u32) -> Result<Stock, String> {
        let folder = sql.is_none().then(new_folder).transpose().map_err(|e| e.to_string())?;
        let own = |folder: &PathBuf| format!("sqlite:{}", folder.join("stock.db").display());
        let address = folder.as_ref().map_or(sql.unwrap_or_default().to_owned(), own);
        let connect = address::open(&address, Path::new("."))?;
        let declared = Declarations::read(&declaration(0, ""))?;
        let table = declared.tables.into_iter().next().ok_or("a table is declared")?;
        let mut database = connect.connect().map_err(text)?;
        let run = |sql: String| Statement::run(sql, Vec::new());
        let drop = run(format!("DROP TABLE IF EXISTS {TABLE}"));
        let create = run(setup::create(&table, connect.dialect()));
        database.transact(&[drop]).map_err(text)?;
        database.transact(&[create]).map_err(text)?;
        for from in (0..rows).step_by(FILLED_AT_ONCE as usize) {
            let to = rows.min(from + FILLED_AT_ONCE);
            let insert = Statement::Insert {
                into: "bench_item (id, title, color, lot, price, done, stamp)",
                columns: 7,
                values: (from..to).flat_map(row).collect(),
                tail: String::new(),
            };
            database.transact(&[insert]).map_err(text)?;
        }
        let version = match connect.dialect() {
            Dialect::Sqlite => "SELECT 'SQLite ' || sqlite_version()",
            Dialect::Mysql => "SELECT CONCAT('MariaDB or MySQL ', VERSION())",
            Dialect::Postgres => "SELECT CAST(version() AS text)",
        };
        let version = database.query(version, &[]).map_err(text)?;
        let version = version.first().map_or("", |row| row[0].text()).to_owned();
        let version = version.split(" on ").next().unwrap_or_default().to_owned();
        Ok(Stock { connect, address, table, version, folder })
    }

    /// A connection.
    pub fn database(&self) -> Result<Box<dyn Database>, String> {
        self.connect.connect().map_err(text)
    }

    /// The questions with their right answers.
    pub fn questions(&self) -> Result<Vec<Question>, String> {
        let mut database = self.database()?;
        let ask = |path: String| {
            let body = answer(&self.table, &mut *database, &path)?;
            Ok(Question { path, body })
        };
        paths().into_iter().map(ask).collect()
    }

    /// Removes what was made.
    pub fn remove(&mut self) -> Result<(), String> {
        match self.folder.take() {
            Some(folder) => std::fs::remove_dir_all(folder).map_err(|error| error.to_string()),
            None => {
                let drop = Statement::run(format!("DROP TABLE IF EXISTS {TABLE}"), Vec::new());
                self.database()?.transact(&[drop]).map(|_| ()).map_err(text)
            }
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        // What an experiment has removed is gone already.
        let _ = self.folder.take().map(std::fs::remove_dir_all);
    }
}

/// A row by its number: the same in every run.
fn row(number: u32) -> [Value; 7] {
    let mix = number.wrapping_mul(2_654_435_761) >> 7;
    [
        Value::Int(i64::from(number)),
        Value::from(format!("Item {number:07} of lot {}", mix % 1000)),
        Value::from(COLOURS[(mix % 7) as usize]),
        Value::Int(i64::from(mix % 1000)),
        Value::real(f64::from(mix % 100_003) / 100.0 + 0.005),
        Value::Bool(mix.is_multiple_of(3)),
        Value::Int(0),
    ]
}

/// Four addresses of each of eight kinds.
fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    for number in 0..32_u32 {
        let (kind, turn) = (number % 8, number / 8);
        let colour = COLOURS[turn as usize];
        let lot = 37 + 211 * turn;
        let filter = match kind {
            0 => format!("$filter=lot eq {lot}&$orderby=price desc,id"),
            1 => format!("$filter=color eq '{colour}' and price gt 985&$orderby=title,id&$top=20"),
            2 => format!("$filter=substringof('{lot}',title)&$orderby=price,id"),
            3 => format!("$filter=startswith(title,'Item 000{turn}')&$orderby=lot,id&$top=10"),
            4 => format!("$filter=lot gt {} and not done&$orderby=price desc,id", 900 + turn),
            5 => format!("$filter=price mul 2 lt {}&$orderby=id", 15 + turn),
            6 => format!("$filter=length(title) gt 20 and lot eq {lot}&$inlinecount=allpages"),
            _ => {
                format!("$filter=done and price ge {lot} and price lt {}&$orderby=lot,id", lot + 9)
            }
        };
        let mut path = format!("/tables/{TABLE}?");
        for letter in format!("{filter}&{SELECT}").chars() {
            match letter {
                ' ' => path.push_str("%20"),
                letter => path.push(letter),
            }
        }
        paths.push(path);
    }
    paths
}

/// What the database answers, as JSON.
pub fn answer(table: &Table, database: &mut dyn Database, path: &str) -> Result<Vec<u8>, String> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let query = Query::read(query, table, Shape::Zumo2).map_err(|bad| bad.why)?;
    let dialect = database.dialect();
    let sql = query.sql(table, dialect, None);
    let rows = database.query(&sql.text, &sql.values).map_err(text)?;
    let mut body = Vec::with_capacity(64 + rows.len() * 96);
    body.extend_from_slice(if query.counts { b"{\"results\":" } else { b"" });
    write_rows(&mut body, &rows, &query.columns(table), table);
    if query.counts {
        let sql = query.count_sql(table, dialect, None);
        let count = database.query(&sql.text, &sql.values).map_err(text)?;
        let count = count.first().map_or(0, |row| row[0].int());
        body.extend_from_slice(format!(",\"count\":{count}}}").as_bytes());
    }
    Ok(body)
}

/// Whether two bodies are the same but for the stamps of their rows; id and stamp of each row.
pub fn stamps(want: &[u8], body: &[u8]) -> Option<Vec<(u64, u64)>> {
    let (want, body) = (std::str::from_utf8(want).ok()?, std::str::from_utf8(body).ok()?);
    let (mut wanted, mut found) = (want.split("\"stamp\":"), body.split("\"stamp\":"));
    let number = |text: &str| -> Option<(u64, usize)> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok().map(|number| (number, end))
    };
    let id_in = |text: &str| number(&text[text.rfind("\"id\":")? + 5..]).map(|(id, _)| id);
    let (mut rows, mut id) = (Vec::new(), None);
    let (first, other) = (wanted.next()?, found.next()?);
    if first != other {
        return None;
    }
    id = id_in(other).or(id);
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(rows),
            (Some(want), Some(got)) => {
                let ((_, want_end), (stamp, end)) = (number(want)?, number(got)?);
                if want[want_end..] != got[end..] {
                    return None;
                }
                rows.push((id?, stamp));
                id = id_in(got).or(id);
            }
            _ => return None,
        }
    }
}

/// A request for an address.
pub fn request(path: &str, more: &str) -> String {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n");
    let _ = write!(request, "zumo-api-version: 2.0.0\r\n{more}\r\n");
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_understood_and_answers_rows() {
        let mut stock = Stock::fill(None, 20_000).expect("a table");
        let questions = stock.questions().expect("answers");
        assert_eq!(questions.len(), 32);
        for question in &questions {
            let rows = stamps(&question.body, &question.body).expect("stamps");
            assert!(!rows.is_empty() && rows.len() <= 50, "{}", question.path);
        }
        stock.remove().expect("removed");
    }

    #[test]
    fn bodies_may_differ_in_stamps_only() {
        let want = br#"[{"id":3,"stamp":0,"x":1},{"id":4,"stamp":0,"x":2}]"#;
        let newer = br#"[{"id":3,"stamp":71,"x":1},{"id":4,"stamp":0,"x":2}]"#;
        assert_eq!(stamps(want, newer), Some(vec![(3, 71), (4, 0)]));
        let other = br#"[{"id":3,"stamp":71,"x":1},{"id":4,"stamp":0,"x":3}]"#;
        assert_eq!(stamps(want, other), None);
        assert_eq!(stamps(want, b"[]"), None);
        assert_eq!(stamps(want, &newer[..27]), None);
    }
}
