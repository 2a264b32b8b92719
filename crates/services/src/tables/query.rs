//! A request to read: what its address says, typed; one canonical text for it; and its SQL.

use std::fmt::Write;

use super::odata::canonical;
use super::odata::expr::Expr;
use super::odata::lex::Wrong;
use super::odata::parse::{self, Order};
use super::odata::sql::Sql;
use super::schema::{Kind, Table};
use crate::database::{Dialect, Value};

/// Largest `$skip`.
const SKIP_MAX: u64 = 1_000_000_000;
/// Longest `id`, in bytes: 255 letters.
const ID_BYTES_MAX: usize = 255 * 4;

/// In which shape answers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Azure Mobile Apps: `zumo-api-version: 2.0.0`.
    Zumo2,
    /// Datasync: `zumo-api-version: 3.0.0`.
    Datasync3,
}

/// What is wrong with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadQuery {
    /// The parameter.
    pub parameter: String,
    /// Where in its decoded value, in bytes.
    pub at: Option<usize>,
    /// What is wrong.
    pub why: String,
}

impl BadQuery {
    fn new(parameter: &str, why: impl Into<String>) -> BadQuery {
        BadQuery { parameter: parameter.to_string(), at: None, why: why.into() }
    }

    fn of(parameter: &str, wrong: Wrong) -> BadQuery {
        BadQuery { parameter: parameter.to_string(), at: Some(wrong.at), why: wrong.why }
    }
}

/// A list of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Which rows.
    pub filter: Option<Expr>,
    /// In which order.
    pub orders: Vec<Order>,
    /// Rows left out at the start.
    pub skip: u64,
    /// Rows wanted at most.
    pub top: Option<u32>,
    /// Which columns, in the order of the table; all if none.
    pub select: Option<Vec<usize>>,
    /// Whether all that match are counted.
    pub counts: bool,
    /// Whether rows that are marked as deleted are there, too.
    pub includes_deleted: bool,
}

/// What is to be read.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A list.
    List(Box<Query>),
    /// One row.
    One {
        /// Its id.
        id: Value,
        /// Whether it is there when it is marked as deleted.
        includes_deleted: bool,
    },
}

/// An `id` out of an address; none if it can be that of no row.
pub fn id_of(table: &Table, text: &str) -> Option<Value> {
    if table.has_number_id() {
        return text.parse().ok().map(Value::Int);
    }
    let is_good = (1..=ID_BYTES_MAX).contains(&text.len()) && !text.contains('\0');
    is_good.then(|| Value::from(text))
}

/// Decodes `%20` and `+`; none if the result is no UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The parameters that have a meaning.
#[derive(Default)]
struct Words {
    filter: Option<String>,
    orderby: Option<String>,
    skip: Option<String>,
    top: Option<String>,
    select: Option<String>,
    inlinecount: Option<String>,
    count: Option<String>,
    include_deleted: Option<String>,
}

impl Words {
    fn read(query: &str) -> Result<Words, BadQuery> {
        let mut words = Words::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || BadQuery::new(name, "it is not percent-encoded UTF-8");
            let name = decode(name).ok_or_else(wrong)?;
            let place = match name.as_str() {
                "$filter" => &mut words.filter,
                "$orderby" => &mut words.orderby,
                "$skip" => &mut words.skip,
                "$top" => &mut words.top,
                "$select" => &mut words.select,
                "$inlinecount" => &mut words.inlinecount,
                "$count" => &mut words.count,
                _ if name.eq_ignore_ascii_case("__includedeleted") => &mut words.include_deleted,
                _ if name.starts_with('$') => {
                    return Err(BadQuery::new(&name, "there is no such parameter"));
                }
                _ => continue,
            };
            let value = decode(value).ok_or_else(wrong)?;
            if place.replace(value).is_some() {
                return Err(BadQuery::new(&name, "it is given twice"));
            }
        }
        Ok(words)
    }
}

fn number(name: &str, text: &str, most: u64) -> Result<u64, BadQuery> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|_| is_digits);
    let number = number.ok_or_else(|| BadQuery::new(name, "it is a whole number from 0"))?;
    if number > most {
        return Err(BadQuery::new(name, format!("it is {most} at most")));
    }
    Ok(number)
}

fn flag(name: &str, text: Option<&str>) -> Result<bool, BadQuery> {
    match text {
        None => Ok(false),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(BadQuery::new(name, "it is true or false")),
    }
}

fn select(text: &str, table: &Table) -> Result<Option<Vec<usize>>, BadQuery> {
    if text.trim() == "*" {
        return Ok(None);
    }
    let mut places = Vec::new();
    for name in text.split(',') {
        let unknown = || {
            let why = format!("table {:?} has no column {:?}", table.name, name.trim());
            BadQuery::new("$select", why)
        };
        places.push(table.find(name.trim()).ok_or_else(unknown)?);
    }
    places.sort_unstable();
    places.dedup();
    Ok(Some(places))
}

impl Query {
    /// Reads the query of an address.
    pub fn read(query: &str, table: &Table, shape: Shape) -> Result<Query, BadQuery> {
        let words = Words::read(query)?;
        let present =
            |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
        let filter = words.filter.as_ref().filter(|_| present(&words.filter));
        let filter = filter
            .map(|text| parse::filter(text, table).map_err(|wrong| BadQuery::of("$filter", wrong)));
        let orderby = words.orderby.as_ref().filter(|_| present(&words.orderby));
        let orders = orderby.map(|text| {
            parse::orders(text, table).map_err(|wrong| BadQuery::of("$orderby", wrong))
        });
        let top = words.top.as_deref();
        let top_max = u64::from(table.top_max);
        let top = top.map(|text| match number("$top", text, u64::MAX)? {
            top if top > top_max => {
                let why = format!("You cannot request more than {top_max} records");
                Err(BadQuery::new("$top", why))
            }
            top => Ok(top as u32),
        });
        let skip = words.skip.as_deref().map(|text| number("$skip", text, SKIP_MAX));
        let counts = match words.inlinecount.as_deref() {
            None | Some("" | "none") => flag("$count", words.count.as_deref())?,
            Some("allpages") => true,
            Some(_) => return Err(BadQuery::new("$inlinecount", "it is allpages or none")),
        };
        if words.count.is_some() && shape == Shape::Zumo2 {
            return Err(BadQuery::new("$count", "it is $inlinecount=allpages in this version"));
        }
        let select = words.select.as_ref().filter(|_| present(&words.select));
        Ok(Query {
            filter: filter.transpose()?,
            orders: orders.transpose()?.unwrap_or_default(),
            skip: skip.transpose()?.unwrap_or(0),
            top: top.transpose()?,
            select: select.map(|text| select_of(text, table)).transpose()?.flatten(),
            counts,
            includes_deleted: flag("__includeDeleted", words.include_deleted.as_deref())?,
        })
    }

    /// Rows that the answer has at most.
    pub fn take(&self, table: &Table) -> u32 {
        self.top.unwrap_or(table.page_size).min(table.page_size)
    }

    /// `$top` and `$skip` of the page after one with this many rows, if there may be one.
    pub fn next(&self, table: &Table, rows: usize) -> Option<(Option<u32>, u64)> {
        let size = table.page_size;
        let top = self.top.map(|top| top.saturating_sub(size));
        (rows as u64 == u64::from(size) && top != Some(0))
            .then_some((top, self.skip + u64::from(size)))
    }

    fn canonical(&self, table: &Table) -> String {
        let mut out = String::with_capacity(96);
        if let Some(filter) = &self.filter {
            out.push_str("f=");
            canonical::write_expr(&mut out, filter, table);
        }
        if !self.orders.is_empty() {
            out.push_str("&o=");
            canonical::write_orders(&mut out, &self.orders, table);
        }
        if let Some(select) = &self.select {
            let names: Vec<&str> =
                select.iter().map(|at| table.columns[*at].name.as_str()).collect();
            let _ = write!(out, "&c={}", names.join(","));
        }
        if self.skip > 0 {
            let _ = write!(out, "&s={}", self.skip);
        }
        if let Some(top) = self.top {
            let _ = write!(out, "&t={top}");
        }
        out.push_str(if self.counts { "&n" } else { "" });
        out.push_str(if self.includes_deleted { "&d" } else { "" });
        out
    }

    /// The columns of the answer.
    pub fn columns(&self, table: &Table) -> Vec<usize> {
        self.select.clone().unwrap_or_else(|| (0..table.columns.len()).collect())
    }

    /// The SQL that answers the rows.
    pub fn sql<'t>(&self, table: &'t Table, dialect: Dialect, owner: Option<&str>) -> Sql<'t> {
        let mut sql = Sql::new(table, dialect);
        columns(&mut sql, &self.columns(table));
        self.matching(&mut sql, owner);
        sql.push(" ORDER BY ");
        sql.orders(&self.orders);
        let take = i64::from(self.take(table));
        sql.push(" LIMIT ").value(Value::Int(take), Kind::Int);
        if self.skip > 0 {
            sql.push(" OFFSET ").value(Value::Int(self.skip as i64), Kind::Int);
        }
        sql
    }

    /// The SQL that counts what matches.
    pub fn count_sql<'t>(
        &self,
        table: &'t Table,
        dialect: Dialect,
        owner: Option<&str>,
    ) -> Sql<'t> {
        let mut sql = Sql::new(table, dialect);
        sql.push("SELECT COUNT(*)");
        self.matching(&mut sql, owner);
        sql
    }

    fn matching(&self, sql: &mut Sql<'_>, owner: Option<&str>) {
        sql.push(" FROM ");
        let table = sql.table;
        sql.name(&table.name);
        let mut joint = " WHERE ";
        if let Some(filter) = &self.filter {
            sql.push(joint).expr(filter);
            joint = " AND ";
        }
        allowed(sql, owner, self.includes_deleted, joint);
    }
}

fn select_of(text: &str, table: &Table) -> Result<Option<Vec<usize>>, BadQuery> {
    select(text, table)
}

/// Adds `SELECT` and columns in the form in which [`super::rows`] expects them.
pub fn columns(sql: &mut Sql<'_>, places: &[usize]) {
    sql.push("SELECT ");
    let table = sql.table;
    for (index, place) in places.iter().enumerate() {
        sql.push(if index > 0 { ", " } else { "" });
        let (before, after) = match (sql.dialect, table.columns[*place].kind) {
            (Dialect::Sqlite, _) | (_, Kind::Text) => ("", ""),
            (Dialect::Postgres, Kind::Date) => {
                ("to_char(", " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
            }
            (Dialect::Mysql, Kind::Date) => {
                ("CONCAT(LEFT(DATE_FORMAT(", ", '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z')")
            }
            (Dialect::Postgres, Kind::Int) => ("CAST(", " AS bigint)"),
            (Dialect::Postgres, Kind::Bool) => ("CAST(CAST(", " AS int) AS bigint)"),
            (Dialect::Postgres, Kind::Real) => ("CAST(", " AS double precision)"),
            (Dialect::Mysql, Kind::Int | Kind::Bool) => ("CAST(", " AS SIGNED)"),
            (Dialect::Mysql, Kind::Real) => ("CAST(", " AS DOUBLE)"),
        };
        sql.push(before).column(*place).push(after);
    }
}

/// Adds what a caller may see: their own rows, and those not marked as deleted.
fn allowed(sql: &mut Sql<'_>, owner: Option<&str>, includes_deleted: bool, joint: &str) {
    let mut joint = joint;
    let table = sql.table;
    if let Some(column) = table.owner {
        // Nobody owns what has no owner.
        sql.push(joint).column(column).push(" = ");
        sql.value(Value::from(owner.unwrap_or("")), Kind::Text);
        joint = " AND ";
    }
    if let Some(deleted) = table.deleted.filter(|_| !includes_deleted) {
        sql.push(joint).push("(").column(deleted).push(" IS NULL OR ");
        sql.column(deleted).push(" = FALSE)");
    }
}

/// Adds `WHERE id = ...` and what a caller may see.
pub fn where_id(sql: &mut Sql<'_>, id: &Value, owner: Option<&str>, includes_deleted: bool) {
    sql.push(" WHERE ").column(0).push(" = ");
    let kind = sql.table.columns[0].kind;
    sql.value(id.clone(), kind);
    if sql.dialect == Dialect::Mysql && kind == Kind::Text {
        // Its collations take `a` and `a ` for the same, and some `A`: the index finds what may be
        // equal, its bytes say whether it is.
        sql.push(" AND CAST(").column(0).push(" AS BINARY) = CAST(");
        sql.value(id.clone(), kind);
        sql.push(" AS BINARY)");
    }
    allowed(sql, owner, includes_deleted, " AND ");
}

/// The SQL that answers one row, all columns.
pub fn one_sql<'t>(
    table: &'t Table,
    dialect: Dialect,
    id: &Value,
    owner: Option<&str>,
    includes_deleted: bool,
) -> Sql<'t> {
    let mut sql = Sql::new(table, dialect);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    columns(&mut sql, &all);
    sql.push(" FROM ").name(&table.name);
    where_id(&mut sql, id, owner, includes_deleted);
    sql
}

impl Target {
    /// The same text for whatever means the same.
    pub fn canonical(&self, table: &Table) -> String {
        match self {
            Target::List(query) => format!("q:{}", query.canonical(table)),
            Target::One { id, includes_deleted } => {
                let deleted = if *includes_deleted { "&d" } else { "" };
                match id {
                    Value::Text(text) => format!("i:{text}{deleted}"),
                    id => format!("i:{}{deleted}", id.int()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::testing::table;

    fn key(query: &str) -> String {
        let table = table();
        match Query::read(query, &table, Shape::Zumo2) {
            Ok(query) => Target::List(Box::new(query)).canonical(&table),
            Err(bad) => format!("{} {:?}: {}", bad.parameter, bad.at, bad.why),
        }
    }

    #[test]
    fn equal_queries_have_one_text() {
        let same = [
            "$filter=rank eq 1 and text eq 'a b'&$top=5&$skip=0",
            "$top=5&$filter=rank%20eq%201%20and%20text%20eq%20'a%20b'",
            "$filter=rank+eq+1+and+text+eq+%27a+b%27&$top=5",
            "%24filter=(rank%20eq+1)%20and%20(text%20eq%20%27a%20b%27)&%24top=5&_=17",
            "$inlinecount=none&$top=5&$filter=rank+eq+1L+and+text+eq+%27a%20b%27&$orderby=",
        ];
        for query in same {
            assert_eq!(key(query), "q:f=(and (eq rank 1) (eq text 'a b'))&t=5", "{query}");
        }
        assert_eq!(key(""), "q:");
        assert_ne!(key("$inlinecount=allpages"), key(""));
        assert_ne!(key("$filter=text eq 'A'"), key("$filter=text eq 'a'"));
        assert_eq!(key("$select=text,id,text"), key("$select=id,%20text"));
    }

    #[test]
    fn bad_addresses_are_named() {
        for (query, want) in [
            ("$top=1001", "$top None: You cannot request more than 1000 records"),
            ("$top=-1", "$top None: it is a whole number from 0"),
            ("$skip=1e3", "$skip None: it is a whole number from 0"),
            ("$filter=rank eq", "$filter Some(7): something is missing at the end"),
            ("$orderby=nope", "$orderby Some(0): table \"todo\" has no column \"nope\""),
            ("$select=id,nope", "$select None: table \"todo\" has no column \"nope\""),
            ("$expand=x", "$expand None: there is no such parameter"),
            ("$inlinecount=maybe", "$inlinecount None: it is allpages or none"),
            ("$top=1&$top=2", "$top None: it is given twice"),
            ("$filter=%zz", "$filter None: it is not percent-encoded UTF-8"),
            ("$filter=%ff", "$filter None: it is not percent-encoded UTF-8"),
            ("__includeDeleted=maybe", "__includeDeleted None: it is true or false"),
        ] {
            assert_eq!(key(query), want, "{query}");
        }
    }

    #[test]
    fn sql_has_marks_for_values() {
        let table = table();
        let text =
            "$filter=text eq 'x''; DROP TABLE todo--' and rank gt 2&$orderby=rank desc&$skip=9";
        let query = Query::read(text, &table, Shape::Zumo2).expect("a query");
        let sql = query.sql(&table, Dialect::Sqlite, Some("ann"));
        let want = "FROM \"todo\" WHERE ((\"text\" = ?) AND (\"rank\" > ?)) AND \"owner\" = ? AND \
                    (\"deleted\" IS NULL OR \"deleted\" = FALSE) ORDER BY \"rank\" DESC, \"id\" \
                    LIMIT ? OFFSET ?";
        assert!(sql.text.ends_with(want), "{}", sql.text);
        let values = ["x'; DROP TABLE todo--".into(), Value::Int(2), "ann".into()];
        assert_eq!(sql.values[..3], values);
        assert_eq!(sql.values[3..], [Value::Int(50), Value::Int(9)]);
    }

    #[test]
    fn pages_follow_each_other() {
        let table = table();
        let read = |text| Query::read(text, &table, Shape::Zumo2).expect("a query");
        assert_eq!(read("").next(&table, 50), Some((None, 50)));
        assert_eq!(read("").next(&table, 49), None);
        assert_eq!(read("$top=120&$skip=7").next(&table, 50), Some((Some(70), 57)));
        assert_eq!(read("$top=50").next(&table, 50), None);
        assert_eq!((read("$top=7").take(&table), read("$top=90").take(&table)), (7, 50));
    }
}
