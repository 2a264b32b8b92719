//! Reads an answer from the database: the table's version and the rows, out of one snapshot.

use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};

use super::ask::Ask;
use super::page::{Coding, Page};
use super::query::{Query, Shape, Target, one_sql};
use super::rows::{write_row, write_rows};
use super::setup;
use crate::database::{Database, DatabaseError, Dialect, Row, Step, Value};
use crate::quota::secret::hex;

/// The tag of a body: equal bodies have equal ones.
fn etag_of(body: &[u8]) -> String {
    format!("\"{}\"", hex(&digest(&SHA256, body).as_ref()[..12]))
}

fn steps(ask: &Ask, dialect: Dialect) -> Vec<Step> {
    let table = &ask.served.table;
    let owner = ask.owner.as_deref();
    let mut steps = vec![setup::version_step(&table.name)];
    let mut add = |sql: super::odata::sql::Sql<'_>| {
        steps.push(Step::Read { sql: sql.text, values: sql.values });
    };
    match &ask.target {
        Target::List(query) => {
            add(query.sql(table, dialect, owner));
            if query.counts {
                add(query.count_sql(table, dialect, owner));
            }
        }
        // Marked rows as well: that one is gone is another answer than that it never was.
        Target::One { id, .. } => add(one_sql(table, dialect, id, owner, true)),
    }
    steps
}

/// Reads the answer to a question.
pub fn read(
    ask: &Ask,
    database: &mut dyn Database,
    clock: &dyn Fn() -> i64,
    fill: u64,
) -> Result<Page, DatabaseError> {
    let filled_ms = clock();
    let begun = Instant::now();
    let mut results = database.unit(&steps(ask, database.dialect()))?.into_iter();
    let mut rows =
        || results.next().map(super::super::database::Stepped::into_rows).unwrap_or_default();
    let (version, changed_us) = rows().first().map_or((0, 0), |row| (row[0].int(), row[1].int()));
    let found = rows();
    let count = rows().first().map(|row| row[0].int());
    let cost_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
    let mut page = match &ask.target {
        Target::List(query) => list(ask, query, &found, count),
        Target::One { includes_deleted, .. } => one(ask, found.first(), *includes_deleted),
    };
    let caching = &ask.served.table.caching;
    let is_nothing = page.status != 200 || (page.rows == 0 && count.unwrap_or(0) == 0);
    let fresh_ms =
        if is_nothing { caching.ttl_ms.min(caching.negative_ms) } else { caching.ttl_ms };
    page.fresh_ms = u32::try_from(fresh_ms).unwrap_or(u32::MAX);
    Ok(Page { fill: fill & !Coding::TRIED, version, changed_us, filled_ms, cost_us, ..page })
}

fn page(status: u16, body: Vec<u8>) -> Page {
    let mut page = Page { status, ..Page::default() };
    page.bodies[0] = body.into();
    page
}

fn list(ask: &Ask, query: &Query, rows: &[Row], count: Option<i64>) -> Page {
    let table = &ask.served.table;
    let places = query.columns(table);
    let next = query.next(table, rows.len());
    let mut body = Vec::with_capacity(64 + rows.len() * 96);
    match ask.shape {
        Shape::Zumo2 => {
            body.extend_from_slice(if count.is_some() { b"{\"results\":" } else { b"" });
            write_rows(&mut body, rows, &places, table);
            if let Some(count) = count {
                body.extend_from_slice(format!(",\"count\":{count}}}").as_bytes());
            }
        }
        Shape::Datasync3 => {
            body.extend_from_slice(b"{\"items\":");
            write_rows(&mut body, rows, &places, table);
            if let Some(count) = count {
                body.extend_from_slice(format!(",\"count\":{count}").as_bytes());
            }
            if let Some((top, skip)) = next {
                body.extend_from_slice(
                    format!(",\"nextLink\":\"{}\"", next_of(top, skip)).as_bytes(),
                );
            }
            body.push(b'}');
        }
    }
    let mut page = page(200, body);
    page.rows = rows.len() as u32;
    page.etag = etag_of(page.plain());
    if let Some((top, skip)) = next {
        page.next = next_of(top, skip);
    }
    page
}

/// The parameters of the next page; the door adds the others of the request.
fn next_of(top: Option<u32>, skip: u64) -> String {
    top.map_or(format!("$skip={skip}"), |top| format!("$top={top}&$skip={skip}"))
}

fn one(ask: &Ask, row: Option<&Row>, includes_deleted: bool) -> Page {
    let table = &ask.served.table;
    let is_deleted = |row: &&Row| table.deleted.is_some_and(|at| row[at].int() != 0);
    let gone = !includes_deleted && row.as_ref().is_some_and(is_deleted);
    match row {
        Some(row) if !gone => {
            let places: Vec<usize> = (0..table.columns.len()).collect();
            let mut body = Vec::with_capacity(256);
            write_row(&mut body, row, &places, table);
            let mut page = page(200, body);
            page.rows = 1;
            page.etag = match table.version.map(|at| &row[at]) {
                Some(Value::Text(version)) => row_etag(version),
                _ => etag_of(page.plain()),
            };
            page
        }
        _ if gone && ask.shape == Shape::Datasync3 => page(410, absent("The item is deleted")),
        _ => page(404, absent("The item does not exist")),
    }
}

fn absent(why: &str) -> Vec<u8> {
    format!("{{\"error\":\"{why}\"}}").into_bytes()
}

/// The tag of a row by its version, as clients of the table API know it.
pub fn row_etag(version: &str) -> String {
    format!("\"{}\"", version.replace('"', "\\\""))
}
