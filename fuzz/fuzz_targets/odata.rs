//! Any text as a filter: it is read or refused with a place in it, and what is read has one
//! canonical text and SQL with a mark for each value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use services::database::Dialect;
use services::tables::odata::{canonical, parse, sql::Sql};
use services::tables::query::{Query, Shape};
use services::tables::testing::table;

fuzz_target!(|text: &str| {
    let table = table();
    let _ = Query::read(text, &table, Shape::Zumo2);
    match parse::filter(text, &table) {
        Err(wrong) => assert!(wrong.at <= text.len().max(parse::BYTES_MAX)),
        Ok(expr) => {
            canonical::text(&expr, &table);
            for dialect in [Dialect::Sqlite, Dialect::Mysql, Dialect::Postgres] {
                let mut sql = Sql::new(&table, dialect);
                sql.expr(&expr);
                assert_eq!(sql.text.matches('?').count(), sql.values.len());
                assert!(sql.text.is_ascii() && !sql.text.contains([';', '\\']));
            }
        }
    }
});
