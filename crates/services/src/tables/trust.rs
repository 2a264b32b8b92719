//! Which columns' values are compared in memory exactly as the database compares them.
//!
//! What a column is declared as is one thing, what it is in the database another: a table that was
//! there already may ignore case, count finer than a millisecond, or change rows behind a delete.
//! So the database is asked, once, when a table is first served or has grown.
//!
//! **Invariant:** a column is trusted only if its type and collation are ones for which
//! [`super::odata::possible`] is right; whatever is not known is not trusted.

use super::schema::{Kind, Table};
use crate::database::{Database, DatabaseError, Dialect, Row, Value};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// Whose values they are.
    pub dialect: Dialect,
    /// By the place of each column.
    columns: Vec<bool>,
}

/// Collations of MySQL and MariaDB that compare bytes, but for spaces at the end.
const MYSQL_BINARY: [&str; 3] = ["utf8mb4_bin", "utf8mb4_nopad_bin", "utf8mb4_0900_bin"];

impl Trust {
    /// No column.
    pub fn none(dialect: Dialect) -> Trust {
        Trust { dialect, columns: Vec::new() }
    }

    /// These columns, by place.
    pub fn of(dialect: Dialect, columns: Vec<bool>) -> Trust {
        Trust { dialect, columns }
    }

    /// Whether the column at this place is trusted.
    pub fn has(&self, place: usize) -> bool {
        self.columns.get(place).copied().unwrap_or(false)
    }

    /// Whether any is.
    pub fn is_any(&self) -> bool {
        self.columns.contains(&true)
    }

    /// Asks the database about a table.
    pub fn ask(database: &mut dyn Database, table: &Table) -> Result<Trust, DatabaseError> {
        let dialect = database.dialect();
        let found = match dialect {
            Dialect::Sqlite => sqlite(database, table)?,
            Dialect::Mysql => mysql(database, table)?,
            Dialect::Postgres => postgres(database, table)?,
        };
        let Some(found) = found else { return Ok(Trust::none(dialect)) };
        let is_trusted = |(place, column): (usize, &super::schema::Column)| {
            let row = found.iter().find(|row| row[0].text() == column.name);
            row.is_some_and(|row| match dialect {
                Dialect::Sqlite => is_sqlite(column.kind, row),
                Dialect::Mysql => is_mysql(column.kind, row, Some(place) == table.owner),
                Dialect::Postgres => is_postgres(column.kind, row),
            })
        };
        let columns = table.columns.iter().enumerate().map(is_trusted).collect();
        Ok(Trust { dialect, columns })
    }
}

/// Name, type, and whether text is compared by its bytes; none if nothing is to be trusted.
fn sqlite(database: &mut dyn Database, table: &Table) -> Result<Option<Vec<Row>>, DatabaseError> {
    let encoding = database.query("SELECT encoding FROM pragma_encoding", &[])?;
    if encoding.first().is_none_or(|row| row[0].text() != "UTF-8") {
        return Ok(None);
    }
    // A collation can only come from the text that made the table.
    let sql = "SELECT c.name, lower(c.type), instr(lower(m.sql), 'collate') = 0 \
               FROM sqlite_master m, pragma_table_info(m.name) c \
               WHERE m.type = 'table' AND m.name = ?";
    database.query(sql, &[table.name.as_str().into()]).map(Some)
}

/// Any value says itself of which type it is, and is looked at when it is compared. What is left is
/// how text is compared: by a collation, or as a number if the column would have it as one.
fn is_sqlite(kind: Kind, row: &Row) -> bool {
    let (name, is_plain) = (row[1].text(), row[2].int() != 0);
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // The rules of SQLite's documentation ("Determination Of Column Affinity").
    let is_text = !has(&["int"]) && (name.is_empty() || has(&["char", "clob", "text", "blob"]));
    match kind {
        Kind::Text => is_plain && is_text,
        Kind::Date => is_plain,
        Kind::Int | Kind::Real | Kind::Bool => true,
    }
}

/// Name, type, character set, collation.
fn mysql(database: &mut dyn Database, table: &Table) -> Result<Option<Vec<Row>>, DatabaseError> {
    let name = [Value::from(table.name.as_str())];
    // What a foreign key changes in turn has no trigger that would count it.
    let keys = "SELECT COUNT(*) FROM information_schema.referential_constraints \
                WHERE unique_constraint_schema = DATABASE() AND referenced_table_name = ? \
                AND NOT (delete_rule IN ('RESTRICT', 'NO ACTION') \
                AND update_rule IN ('RESTRICT', 'NO ACTION'))";
    if database.query(keys, &name)?.first().is_none_or(|row| row[0].int() != 0) {
        return Ok(None);
    }
    let sql = "SELECT column_name, LOWER(column_type), character_set_name, collation_name \
               FROM information_schema.columns \
               WHERE table_schema = DATABASE() AND table_name = ?";
    database.query(sql, &name).map(Some)
}

/// Filters compare text by its bytes, whatever its collation; owners are compared by the collation.
fn is_mysql(kind: Kind, row: &Row, is_owner: bool) -> bool {
    let (name, set, collation) = (row[1].text(), row[2].text(), row[3].text());
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let is_whole = begins(&["tinyint", "smallint", "mediumint", "int", "bigint"]);
    match kind {
        Kind::Text => {
            begins(&["varchar", "text", "tinytext", "mediumtext", "longtext"])
                && set == "utf8mb4"
                && (!is_owner || MYSQL_BINARY.contains(&collation))
        }
        Kind::Int => is_whole && !name.contains("unsigned"),
        Kind::Bool => is_whole,
        Kind::Real => name == "double",
        Kind::Date => matches!(name, "datetime" | "datetime(3)"),
    }
}

/// Name, type, collation, of a table in which a row depends on no other one: not of a view, and no
/// policy says who sees it.
fn postgres(database: &mut dyn Database, table: &Table) -> Result<Option<Vec<Row>>, DatabaseError> {
    let encoding = database.query("SELECT current_setting('server_encoding')", &[])?;
    if encoding.first().is_none_or(|row| row[0].text() != "UTF8") {
        return Ok(None);
    }
    let sql = "SELECT CAST(column_name AS text), CAST(data_type AS text), \
               CAST(collation_name AS text) FROM information_schema.columns \
               WHERE table_schema = current_schema() AND table_name = ? AND EXISTS \
               (SELECT 1 FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace \
               WHERE n.nspname = table_schema AND r.relname = table_name \
               AND r.relkind IN ('r', 'p') AND NOT r.relrowsecurity)";
    database.query(sql, &[table.name.as_str().into()]).map(Some)
}

/// The collation of a database takes equal for the same bytes; one of a column need not.
fn is_postgres(kind: Kind, row: &Row) -> bool {
    let (name, has_collation) = (row[1].text(), row[2] != Value::Null);
    match kind {
        Kind::Text => matches!(name, "text" | "character varying") && !has_collation,
        Kind::Int => matches!(name, "smallint" | "integer" | "bigint"),
        Kind::Bool => name == "boolean",
        Kind::Real => name == "double precision",
        // Whether it is finite, of our era and in whole milliseconds is asked with each change.
        Kind::Date => name == "timestamp with time zone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(words: &[&str]) -> Row {
        words.iter().map(|word| Value::from(*word)).collect()
    }

    #[test]
    fn sqlites_columns_are_trusted_by_type_and_collation() {
        let is = |kind, name: &str, is_plain: i64| {
            is_sqlite(kind, &vec!["c".into(), name.into(), Value::Int(is_plain)])
        };
        assert!(is(Kind::Text, "text", 1) && is(Kind::Text, "varchar(20)", 1));
        assert!(is(Kind::Text, "", 1) && is(Kind::Int, "text", 1) && is(Kind::Bool, "boolean", 0));
        // What would be a number is compared as one.
        assert!(!is(Kind::Text, "string", 1) && !is(Kind::Text, "charint", 1));
        assert!(!is(Kind::Text, "text", 0) && !is(Kind::Date, "text", 0));
    }

    #[test]
    fn mysqls_columns_are_trusted_by_type_and_letters() {
        let is = |kind, words: &[&str]| is_mysql(kind, &row(&[&["c"], words].concat()), false);
        let owner = |words: &[&str]| is_mysql(Kind::Text, &row(&[&["c"], words].concat()), true);
        let (ours, ignores) = (["longtext", "utf8mb4", "utf8mb4_bin"], "utf8mb4_general_ci");
        assert!(is(Kind::Text, &ours) && owner(&ours));
        assert!(is(Kind::Text, &["varchar(255)", "utf8mb4", ignores]));
        assert!(!owner(&["varchar(255)", "utf8mb4", ignores]));
        assert!(!is(Kind::Text, &["varchar(9)", "latin1", "latin1_bin"]));
        assert!(!is(Kind::Text, &["char(9)", "utf8mb4", "utf8mb4_bin"]));
        assert!(is(Kind::Int, &["bigint(20)", "", ""]) && is(Kind::Bool, &["tinyint(1)", "", ""]));
        assert!(!is(Kind::Int, &["bigint(20) unsigned", "", ""]));
        assert!(is(Kind::Real, &["double", "", ""]) && !is(Kind::Real, &["float", "", ""]));
        assert!(!is(Kind::Real, &["decimal(9,2)", "", ""]));
        assert!(is(Kind::Date, &["datetime(3)", "", ""]));
        assert!(!is(Kind::Date, &["datetime(6)", "", ""]) && !is(Kind::Date, &["date", "", ""]));
    }

    #[test]
    fn postgres_columns_are_trusted_by_type_and_collation() {
        let is = |kind, name: &str| is_postgres(kind, &vec!["c".into(), name.into(), Value::Null]);
        assert!(is(Kind::Text, "text") && is(Kind::Int, "bigint") && is(Kind::Bool, "boolean"));
        assert!(is(Kind::Date, "timestamp with time zone") && is(Kind::Real, "double precision"));
        assert!(!is(Kind::Text, "character") && !is(Kind::Text, "USER-DEFINED"));
        assert!(!is(Kind::Real, "numeric") && !is(Kind::Date, "date"));
        assert!(!is_postgres(Kind::Text, &row(&["c", "text", "und-x-icu"])));
    }
}
