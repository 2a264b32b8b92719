//! Random OData queries against a database and against the plain model in memory: the same rows in
//! the same order, and the same count.
//!
//! The numbers and letters are chosen so that the products agree to the last bit: whole numbers
//! and quarters, short texts.

use std::cmp::Ordering;

use forebay_backends::address::open;
use services::database::{Database, Dialect, Row, Statement, Value};
use services::tables::date;
use services::tables::odata::expr::Literal;
use services::tables::odata::model::{self, Cell};
use services::tables::odata::sql::{date_value, quoted as quoted_name};
use services::tables::query::{Query, Shape, one_sql};
use services::tables::rows::write_rows;
use services::tables::schema::{Column, Kind, Table};
use services::tables::setup::create;
use services::tables::testing::table;

const ROWS: usize = 80;
const QUERIES: usize = 10_000;
const OWNERS: [&str; 2] = ["ann", "bob"];

/// Splitmix64: a seed makes a run again.
struct Dice {
    seed: u64,
    letters: &'static [&'static str],
}

/// Letters of all kinds.
const LETTERS: &[&str] = &["a", "b", "B", " ", "é", "É", "%", "_", "'", "\\", "ab", "-", "ж"];
/// For a PostgreSQL whose locale knows no case of others.
const ASCII: &[&str] = &["a", "b", "B", " ", "%", "_", "'", "\\", "ab", "-"];

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn word(&mut self) -> String {
        (0..self.roll(5)).map(|_| self.pick(self.letters)).collect()
    }

    fn number(&mut self) -> f64 {
        (self.roll(81) as f64 - 40.0) / 4.0
    }

    fn moment(&mut self) -> i64 {
        let day = self.roll(20_000) as i64 - 5_000;
        day * 86_400_000 + self.roll(86_400_000) as i64
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// An expression of a type, as text.
fn written(dice: &mut Dice, kind: Kind, depth: usize) -> String {
    if depth == 0 || dice.roll(5) == 0 {
        return leaf(dice, kind);
    }
    let deeper = |dice: &mut Dice, kind| written(dice, kind, depth - 1);
    match kind {
        Kind::Bool => test(dice, depth - 1),
        Kind::Text => match dice.roll(7) {
            0 => format!("concat({},{})", deeper(dice, kind), deeper(dice, kind)),
            1 => format!("tolower({})", deeper(dice, kind)),
            2 => format!("toupper({})", deeper(dice, kind)),
            3 => format!("trim({})", deeper(dice, kind)),
            4 => {
                let (from, to) = (quoted(&dice.word()), quoted(&dice.word()));
                format!("replace({},{from},{to})", leaf(dice, kind))
            }
            5 => format!("substring({},{})", deeper(dice, kind), dice.roll(4)),
            _ => format!("substring({},{},{})", deeper(dice, kind), dice.roll(4), dice.roll(4)),
        },
        Kind::Int => match dice.roll(4) {
            0 => format!("length({})", deeper(dice, Kind::Text)),
            1 => format!("indexof({},{})", deeper(dice, Kind::Text), leaf(dice, Kind::Text)),
            _ => {
                let part = dice.pick(&["day", "month", "year", "hour", "minute", "second"]);
                format!("{part}({})", leaf(dice, Kind::Date))
            }
        },
        Kind::Real => match dice.roll(3) {
            0 => {
                let function = dice.pick(&["floor", "ceiling", "round"]);
                format!("{function}({})", deeper(dice, Kind::Real))
            }
            1 => deeper(dice, Kind::Int),
            _ => {
                let op = dice.pick(&["add", "sub"]);
                if dice.roll(2) == 0 {
                    return format!("({} {op} {})", deeper(dice, kind), deeper(dice, kind));
                }
                // Of leaves alone, so that few digits come out.
                let op = dice.pick(&["mul", "mod"]);
                format!("({} {op} {})", leaf(dice, kind), leaf(dice, kind))
            }
        },
        Kind::Date => leaf(dice, kind),
    }
}

fn leaf(dice: &mut Dice, kind: Kind) -> String {
    let is_column = dice.roll(3) > 0;
    match kind {
        Kind::Text if is_column => dice.pick(&["text", "note", "id"]).to_string(),
        Kind::Text => quoted(&dice.word()),
        Kind::Int if is_column => "rank".into(),
        Kind::Int => (dice.roll(21) as i64 - 10).to_string(),
        Kind::Real if is_column => dice.pick(&["price", "rank"]).to_string(),
        Kind::Real => dice.number().to_string(),
        Kind::Bool if is_column => "done".into(),
        Kind::Bool => dice.pick(&["true", "false"]).to_string(),
        Kind::Date if is_column => "due".into(),
        Kind::Date => format!("datetime'{}'", date::text(dice.moment())),
    }
}

fn test(dice: &mut Dice, depth: usize) -> String {
    let any = |dice: &mut Dice, kind| written(dice, kind, depth);
    let words = ["eq", "ne", "gt", "ge", "lt", "le"];
    match dice.roll(10) {
        0 => format!("({} and {})", any(dice, Kind::Bool), any(dice, Kind::Bool)),
        1 => format!("({} or {})", any(dice, Kind::Bool), any(dice, Kind::Bool)),
        2 => format!("not {}", leaf(dice, Kind::Bool)),
        3 => {
            let function = dice.pick(&["substringof", "startswith", "endswith"]);
            format!("{function}({},{})", any(dice, Kind::Text), any(dice, Kind::Text))
        }
        4 => {
            let kind = [Kind::Text, Kind::Int, Kind::Bool, Kind::Date][dice.roll(4)];
            format!("({} {} null)", leaf(dice, kind), dice.pick(&["eq", "ne"]))
        }
        5 => {
            let (a, b) = (any(dice, Kind::Bool), any(dice, Kind::Bool));
            format!("({a} {} {b})", dice.pick(&["eq", "ne"]))
        }
        6 => format!("(price div {} {} {})", leaf(dice, Kind::Int), dice.pick(&words), "1"),
        _ => {
            let kind = [Kind::Text, Kind::Int, Kind::Real, Kind::Date][dice.roll(4)];
            format!("({} {} {})", any(dice, kind), dice.pick(&words), any(dice, kind))
        }
    }
}

fn address(dice: &mut Dice) -> String {
    let mut parts = Vec::new();
    let encode = |text: String| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    if dice.roll(12) > 0 {
        let depth = 1 + dice.roll(4);
        parts.push(format!("$filter={}", encode(test(dice, depth))));
    }
    if dice.roll(2) > 0 {
        let keys: Vec<String> = (0..1 + dice.roll(2))
            .map(|_| {
                let kind =
                    [Kind::Text, Kind::Int, Kind::Real, Kind::Date, Kind::Bool][dice.roll(5)];
                let way = dice.pick(&["", " asc", " desc"]);
                format!("{}{way}", written(dice, kind, 1))
            })
            .collect();
        parts.push(format!("$orderby={}", encode(keys.join(","))));
    }
    if dice.roll(3) == 0 {
        parts.push(format!("$skip={}", dice.roll(20)));
    }
    if dice.roll(3) == 0 {
        parts.push(format!("$top={}", dice.roll(30)));
    }
    if dice.roll(8) == 0 {
        parts.push("__includeDeleted=true".into());
    }
    parts.join("&")
}

fn maybe<T>(dice: &mut Dice, value: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    if dice.roll(6) == 0 { None } else { Some(value(dice)) }
}

/// Rows with nulls; the columns of [`table`].
fn rows(dice: &mut Dice) -> Vec<Vec<Cell>> {
    let third = if dice.letters.contains(&"é") { "é" } else { "c" };
    let row = |index: usize| {
        vec![
            Some(Literal::Text(format!("{}{index}", ["a", "B", third][index % 3]))),
            maybe(dice, |dice| Literal::Text(dice.word())),
            maybe(dice, |dice| Literal::Text(dice.word())),
            maybe(dice, |dice| Literal::Int(dice.roll(21) as i64 - 10)),
            maybe(dice, |dice| Literal::Real(dice.number())),
            maybe(dice, |dice| Literal::Bool(dice.roll(2) == 0)),
            maybe(dice, |dice| Literal::Date(dice.moment())),
            Some(Literal::Date(dice.moment())),
            Some(Literal::Date(dice.moment())),
            Some(Literal::Text("v".into())),
            Some(Literal::Bool(dice.roll(10) == 0)),
            Some(Literal::Text(OWNERS[dice.roll(2)].into())),
        ]
    };
    (0..ROWS).map(row).collect()
}

fn bound(cell: &Cell, dialect: Dialect) -> Value {
    match cell {
        None => Value::Null,
        Some(Literal::Text(text)) => Value::from(text.as_str()),
        Some(Literal::Int(number)) => Value::Int(*number),
        Some(Literal::Real(number)) => Value::real(*number),
        Some(Literal::Bool(is_true)) => Value::Bool(*is_true),
        Some(Literal::Date(ms)) => date_value(dialect, *ms),
    }
}

/// A cell as an answer has it.
fn shown(cell: &Cell) -> Value {
    match cell {
        Some(Literal::Date(ms)) => Value::Text(date::text(*ms)),
        cell => bound(cell, Dialect::Sqlite),
    }
}

fn fill(database: &mut dyn Database, all: &[Vec<Cell>]) {
    let (table, dialect) = (table(), database.dialect());
    let names =
        "id, text, note, rank, price, done, due, createdAt, updatedAt, version, deleted, owner";
    let quoted: Vec<String> = names.split(", ").map(|name| quoted_name(dialect, name)).collect();
    let into = format!("todo ({}) VALUES ({})", quoted.join(", "), ["?"; 12].join(", "));
    let insert = |row: &Vec<Cell>| {
        let values = row.iter().map(|cell| bound(cell, dialect)).collect();
        Statement::run(format!("INSERT INTO {into}"), values)
    };
    let clear = ["DROP TABLE IF EXISTS todo".to_string(), create(&table, dialect)];
    for sql in clear {
        database.transact(&[Statement::run(sql, Vec::new())]).expect("a table");
    }
    let inserts: Vec<Statement> = all.iter().map(insert).collect();
    database.transact(&inserts).expect("rows");
}

/// What the model answers: the page, and how many match.
fn expected(query: &Query, table: &Table, all: &[Vec<Cell>], owner: &str) -> (Vec<Row>, usize) {
    let mut found: Vec<&Vec<Cell>> = all
        .iter()
        .filter(|row| row[11] == Some(Literal::Text(owner.into())))
        .filter(|row| query.includes_deleted || row[10] == Some(Literal::Bool(false)))
        .filter(|row| {
            query.filter.as_ref().is_none_or(|filter| model::truth(filter, row) == Some(true))
        })
        .collect();
    found.sort_by(|a, b| -> Ordering { model::sorted(&query.orders, a, b) });
    let count = found.len();
    let page = found.into_iter().skip(query.skip as usize).take(query.take(table) as usize);
    (page.map(|row| row.iter().map(shown).collect()).collect(), count)
}

/// Runs the queries; how many of them found something, and not everything.
fn compare(
    database: &mut dyn Database,
    all: &[Vec<Cell>],
    letters: &'static [&'static str],
) -> usize {
    let (table, dialect) = (table(), database.dialect());
    let places: Vec<usize> = (0..table.columns.len()).collect();
    let mut telling = 0;
    for number in 0..QUERIES as u64 {
        let mut dice = Dice { seed: 7 ^ (number << 20), letters };
        let address = address(&mut dice);
        let owner = OWNERS[dice.roll(2)];
        let query = Query::read(&address, &table, Shape::Zumo2)
            .unwrap_or_else(|bad| panic!("{number}: {address}: {bad:?}"));
        let (want, count) = expected(&query, &table, all, owner);
        let sql = query.sql(&table, dialect, Some(owner));
        let got = database.query(&sql.text, &sql.values);
        let got = got.unwrap_or_else(|error| panic!("{number}: {}: {error}", sql.text));
        let json = |rows: &[Row]| {
            let mut out = Vec::new();
            write_rows(&mut out, rows, &places, &table);
            String::from_utf8(out).expect("JSON is UTF-8")
        };
        let about = || format!("{number}: {:?}\n{}\n{:?}", query.filter, sql.text, sql.values);
        assert_eq!(json(&got), json(&want), "{}", about());
        let sql = query.count_sql(&table, dialect, Some(owner));
        let got = database.query(&sql.text, &sql.values).expect("a count");
        assert_eq!(got[0][0].int() as usize, count, "{}", about());
        telling += usize::from(count > 0 && count < all.len() / 2 - 10);
    }
    telling
}

#[test]
fn a_row_is_found_by_its_id_alone() {
    for variable in ["", "FOREBAY_MYSQL", "FOREBAY_POSTGRES"] {
        let folder = std::env::temp_dir().join(format!("forebay-ids-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let address = match variable {
            "" => "sqlite:ids.db".to_string(),
            _ => match std::env::var(variable) {
                Ok(address) => address,
                Err(_) => continue,
            },
        };
        let connect = open(&address, &folder).expect("an address");
        let mut database = connect.connect().expect("a connection");
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let columns = vec![column("id", Kind::Text), column("rank", Kind::Int)];
        let table = Table::new("ids", columns).expect("a table");
        let run = |sql: String| Statement::run(sql, Vec::new());
        let drop = run("DROP TABLE IF EXISTS ids".into());
        database.transact(&[drop, run(create(&table, connect.dialect()))]).expect("made");
        database.transact(&[run("INSERT INTO ids (id) VALUES ('a ')".into())]).expect("a row");
        for (id, is_there) in [("a", 0), ("a ", 1), ("A ", 0), ("a  ", 0)] {
            let sql = one_sql(&table, connect.dialect(), &id.into(), None, true);
            let rows = database.query(&sql.text, &sql.values).expect("rows");
            assert_eq!(rows.len(), is_there, "{id:?} on {address}");
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[test]
fn every_database_agrees_with_the_model() {
    let mut addresses = vec!["sqlite:odata.db".to_string()];
    for variable in ["FOREBAY_MYSQL", "FOREBAY_POSTGRES"] {
        match std::env::var(variable) {
            Ok(address) => addresses.push(address),
            Err(_) => eprintln!("{variable} is not set: that database is not compared"),
        }
    }
    let folder = std::env::temp_dir().join(format!("forebay-odata-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for address in addresses {
        let connect = open(&address, &folder).expect("an address");
        let mut database = connect.connect().expect("a database");
        let lower = database.query("SELECT LOWER('É')", &[]).expect("a row").remove(0);
        let is_ascii = database.dialect() == Dialect::Postgres && lower[0].text() != "é";
        let letters = if is_ascii { ASCII } else { LETTERS };
        let all = rows(&mut Dice { seed: 1, letters });
        fill(&mut *database, &all);
        let telling = compare(&mut *database, &all, letters);
        assert!(telling > QUERIES / 4, "only {telling} queries told anything");
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}
