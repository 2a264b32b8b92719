//! Changes: what a body says, typed; their SQL; and what became of them.
//!
//! A change is one transaction: the row as it was, locked; the change with its conditions; then the
//! row and the table's version as they are now. Where the change touched nothing, the row says why.
//! What the row was and is says later which kept lists the change cannot touch ([`super::recent`]).

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value as Json};

use super::ask::{Change, ChangeDone, Changed, Fault, Served, Verb, Watch};
use super::date;
use super::odata::sql::{Sql, date_value};
use super::pool::{Health, Work};
use super::query::{columns, id_of, where_id};
use super::recent::Touched;
use super::schema::{Kind, Table};
use super::service::Tables;
use super::setup;
use crate::database::{Database, DatabaseError, Dialect, Row, Statement, Step, Stepped, Value};
use crate::quota::secret::base64;

/// Changes that have cost more are handed over to the writer, in microseconds: so long the caller's
/// thread can do without.
const CHANGE_HERE_US: u32 = 1000;

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBody {
    /// The column, if it is one.
    pub column: Option<String>,
    /// What is wrong.
    pub why: String,
}

/// What a body says of a row.
#[derive(Debug, Default, PartialEq)]
pub struct Item {
    /// Its `id`.
    pub id: Option<Value>,
    /// Its `version`.
    pub version: Option<String>,
    /// The other columns that it has.
    pub sets: Vec<(usize, Value)>,
}

fn bad(column: &str, why: impl Into<String>) -> BadBody {
    BadBody { column: Some(column.to_string()), why: why.into() }
}

/// A JSON value as a column takes it.
fn value_of(json: &Json, kind: Kind, dialect: Dialect) -> Option<Value> {
    Some(match (json, kind) {
        (Json::Null, _) => Value::Null,
        (Json::String(text), Kind::Text) if !text.contains('\0') => text.as_str().into(),
        (Json::String(text), Kind::Date) => date_value(dialect, date::parse(text)?),
        (Json::Number(number), Kind::Int) => Value::Int(whole(number)?),
        (Json::Number(number), Kind::Real) => Value::real(number.as_f64()?),
        (Json::Bool(is_true), Kind::Bool) => Value::Bool(*is_true),
        _ => return None,
    })
}

/// A whole number, also when it is written `3.0`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let real = || number.as_f64().filter(|real| real.fract() == 0.0 && real.abs() < 9.0e15);
    number.as_i64().or_else(|| real().map(|real| real as i64))
}

/// Reads a body.
pub fn item(body: &[u8], table: &Table, dialect: Dialect) -> Result<Item, BadBody> {
    let why = |error| BadBody { column: None, why: format!("the body is no JSON object: {error}") };
    let members: Map<String, Json> = serde_json::from_slice(body).map_err(why)?;
    let mut item = Item::default();
    for (name, json) in &members {
        if matches!(name.as_str(), "createdAt" | "updatedAt" | "deleted") {
            let why = format!("Cannot update item with property '{name}' as it is reserved");
            return Err(bad(name, why));
        }
        let unknown = || bad(name, format!("table {:?} has no column {name:?}", table.name));
        let place = table.find(name).ok_or_else(unknown)?;
        if Some(place) == table.version {
            item.version = json.as_str().map(str::to_string);
            continue;
        }
        let kind = table.columns[place].kind;
        if place == 0 {
            let id = match json {
                Json::Null => continue,
                Json::String(text) if kind == Kind::Text => id_of(table, text),
                Json::Number(number) if kind == Kind::Int => whole(number).map(Value::Int),
                _ => None,
            };
            item.id = Some(id.ok_or_else(|| bad(name, format!("id is {}", kind.word())))?);
            continue;
        }
        let wrong = || bad(name, format!("column {name:?} takes {}", kind.word()));
        item.sets.push((place, value_of(json, kind, dialect).ok_or_else(wrong)?));
    }
    Ok(item)
}

fn mark(sql: &mut Sql<'_>, place: usize, value: Value) {
    let kind = sql.table.columns[place].kind;
    sql.value(value, kind);
}

fn insert<'t>(change: &Change, table: &'t Table, dialect: Dialect) -> Sql<'t> {
    let mut sql = Sql::new(table, dialect);
    sql.push("INSERT INTO ").name(&table.name).push(" (");
    let id = (change.id != Value::Null).then(|| (0, change.id.clone()));
    let all: Vec<(usize, Value)> = id.into_iter().chain(change.sets.iter().cloned()).collect();
    for (index, (place, _)) in all.iter().enumerate() {
        sql.push(if index > 0 { ", " } else { "" }).column(*place);
    }
    sql.push(") VALUES (");
    for (index, (place, value)) in all.into_iter().enumerate() {
        sql.push(if index > 0 { ", " } else { "" });
        mark(&mut sql, place, value);
    }
    sql.push(")");
    sql
}

fn update<'t>(change: &Change, table: &'t Table, dialect: Dialect) -> Sql<'t> {
    let mut sql = Sql::new(table, dialect);
    if matches!(change.verb, Verb::Delete) && table.deleted.is_none() {
        sql.push("DELETE FROM ").name(&table.name);
    } else {
        sql.push("UPDATE ").name(&table.name).push(" SET ");
        for (index, (place, value)) in change.sets.iter().enumerate() {
            sql.push(if index > 0 { ", " } else { "" }).column(*place).push(" = ");
            mark(&mut sql, *place, value.clone());
        }
    }
    let is_undelete = matches!(change.verb, Verb::Undelete);
    where_id(&mut sql, &change.id, change.owner.as_deref(), is_undelete);
    if let (Some(version), Some(place)) = (&change.condition, table.version) {
        sql.push(" AND ").column(place).push(" = ");
        mark(&mut sql, place, version.as_str().into());
    }
    sql
}

/// Whether nobody else may change the row until the transaction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Yes,
    No,
}

/// Reads the row of a change, marked or not.
fn row(change: &Change, dialect: Dialect, lock: Lock) -> Sql<'_> {
    let table = &change.served.table;
    let mut sql = Sql::new(table, dialect);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    columns(&mut sql, &all);
    plain_dates(&mut sql, change);
    sql.push(" FROM ").name(&table.name);
    if change.id == Value::Null {
        sql.push(" WHERE ").column(0).push(match dialect {
            Dialect::Sqlite => " = last_insert_rowid()",
            Dialect::Mysql => " = LAST_INSERT_ID()",
            Dialect::Postgres => " = lastval()",
        });
    } else {
        where_id(&mut sql, &change.id, change.owner.as_deref(), true);
    }
    // SQLite has one writer at a time.
    if lock == Lock::Yes && dialect != Dialect::Sqlite {
        sql.push(" FOR UPDATE");
    }
    sql
}

/// On PostgreSQL, one more column: whether the row's dates are what they are read as. Those without
/// end, before our era or finer than a millisecond are read as others.
fn plain_dates(sql: &mut Sql<'_>, change: &Change) {
    if !has_plain(change, sql.dialect) {
        return;
    }
    sql.push(", (TRUE");
    let columns = &change.served.table.columns;
    for place in (0..columns.len()).filter(|place| columns[*place].kind == Kind::Date) {
        if !change.served.trust.has(place) {
            continue;
        }
        sql.push(" AND (").column(place).push(" IS NULL OR (").column(place);
        sql.push(" BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999+00' AND ");
        sql.column(place).push(" = date_trunc('milliseconds', ").column(place).push(")))");
    }
    sql.push(")");
}

/// Whether rows have that column.
fn has_plain(change: &Change, dialect: Dialect) -> bool {
    dialect == Dialect::Postgres && is_noted(change)
}

/// What it says.
fn is_plain(change: &Change, row: &Row) -> bool {
    let is_asked = has_plain(change, change.served.trust.dialect);
    !is_asked || row.get(change.served.table.columns.len()) == Some(&Value::Bool(true))
}

/// A row's version, as no row had it before: the time, and never the same twice.
fn next_version(tables: &Tables) -> String {
    use std::sync::atomic::{AtomicI64, Ordering};
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = tables.now_ms() << 16;
    let next = |last| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(now);
    base64(&now.max(last + 1).to_be_bytes())
}

impl Tables {
    /// The SQL of the database.
    pub fn dialect(&self) -> Dialect {
        self.parts.connect.dialect()
    }

    /// Adds what the table API sets itself.
    fn complete(&self, change: &mut Change) {
        let table = &change.served.table;
        let is_insert = matches!(change.verb, Verb::Insert);
        if matches!(change.verb, Verb::Delete) && table.deleted.is_none() {
            return;
        }
        let now = date_value(self.dialect(), self.now_ms());
        let mut set = |place: Option<usize>, value: Value| {
            if let Some(place) = place {
                change.sets.retain(|(other, _)| *other != place);
                change.sets.push((place, value));
            }
        };
        if is_insert {
            set(table.created_at, now.clone());
        }
        set(table.updated_at, now);
        set(table.version, next_version(self).into());
        match change.verb {
            Verb::Insert | Verb::Undelete => set(table.deleted, Value::Bool(false)),
            Verb::Delete => set(table.deleted, Value::Bool(true)),
            Verb::Update | Verb::Replace => {}
        }
        if let Some(owner) = table.owner {
            set(Some(owner), change.owner.as_deref().unwrap_or("").into());
        }
    }

    /// Makes a change.
    pub fn change(self: &Arc<Self>, mut change: Change, done: ChangeDone) {
        self.complete(&mut change);
        let this = Arc::clone(self);
        let done = Arc::new(std::sync::Mutex::new(Some(done)));
        let tell = Arc::clone(&done);
        let work: Work = Box::new(move |database| {
            let result = match database {
                Ok(database) => this.make(&change, database),
                Err(error) => Err(error),
            };
            let health = Health::after(&result);
            told(&tell, this.counted(result));
            health
        });
        if self.writers.push(work).is_err() {
            self.stats.overloaded.add();
            told(&done, Err(Fault::Busy("too many changes wait for the database")));
        }
    }

    /// Makes a change in the caller's thread, if changes of the table have been quick lately and
    /// nobody is in the way; else gives it back, and nothing has happened.
    pub fn change_here(&self, mut change: Change) -> Result<Result<Changed, Fault>, Change> {
        if change.served.paces.change.cost_us() > CHANGE_HERE_US {
            return Err(change);
        }
        self.complete(&mut change);
        let made = self.writers.try_here(|database| self.make(&change, database));
        made.map(|made| self.counted(made)).ok_or(change)
    }

    fn counted(&self, made: Result<Changed, DatabaseError>) -> Result<Changed, Fault> {
        match &made {
            Ok(Changed::Done { .. }) => self.stats.writes.add(),
            Ok(_) => {}
            Err(_) => self.stats.write_errors.add(),
        }
        made.map_err(Fault::Database)
    }

    fn make(&self, change: &Change, database: &mut dyn Database) -> Result<Changed, DatabaseError> {
        let Served { table, versions, .. } = &*change.served;
        let dialect = database.dialect();
        let is_insert = matches!(change.verb, Verb::Insert);
        let write = if is_insert { insert } else { update }(change, table, dialect);
        let read = |sql: Sql<'_>| Step::Read { sql: sql.text, values: sql.values };
        let before =
            (is_noted(change) && !is_insert).then(|| read(row(change, dialect, Lock::Yes)));
        let has_before = before.is_some();
        let steps = before.into_iter().chain([
            Step::Write(Statement::run(write.text, write.values)),
            read(row(change, dialect, Lock::No)),
            setup::version_step(&table.name),
        ]);
        let (era, begun) = (versions.era(), Instant::now());
        let done = database.unit(&steps.collect::<Vec<_>>());
        if !matches!(done, Err(DatabaseError::Busy(_))) {
            change.served.paces.change.took(begun.elapsed());
        }
        let mut done = match done {
            Err(DatabaseError::Duplicate(_)) if is_insert => return Ok(Changed::Exists),
            done => done?,
        };
        let before = if has_before { done.remove(0).into_rows() } else { Vec::new() };
        let [count, after, version] = <[Stepped; 3]>::try_from(done)
            .map_err(|_| DatabaseError::Refused("another number of results".into()))?;
        let after = after.into_rows();
        let version = version.into_rows().first().map_or(0, |row| row[0].int());
        if let Some(touched) = touched(change, count.count(), before, &after) {
            versions.touched(version, touched, era);
        }
        let row = after.into_iter().next().map(|mut row| {
            row.truncate(table.columns.len());
            row
        });
        if count.count() > 0 {
            let id = row.as_ref().map_or(&change.id, |row| &row[0]);
            versions.wrote(id, version);
            return Ok(Changed::Done { row, version });
        }
        versions.saw(version);
        Ok(untouched(change, table, row))
    }
}

/// Whether what the row was is worth a look: something is kept of the table, its changes are
/// counted, and something can be said of its columns.
fn is_noted(change: &Change) -> bool {
    let Served { table, trust, watch, .. } = &*change.served;
    table.caching.ttl_ms > 0 && matches!(watch, Watch::Triggers(_)) && trust.is_any()
}

/// What a change of so many rows did, if that is certain. It is not where several rows have its id;
/// and where nothing is another value, a product may not have counted it as a change.
fn touched(change: &Change, count: u64, mut before: Vec<Row>, after: &[Row]) -> Option<Touched> {
    if !is_noted(change) || count != 1 {
        // PostgreSQL's triggers count statements, those of no row as well.
        let is_counted = is_noted(change) && change.served.trust.dialect == Dialect::Postgres;
        return (count == 0 && is_counted).then_some(Touched { before: None, after: None });
    }
    let is_insert = matches!(change.verb, Verb::Insert);
    let is_gone = matches!(change.verb, Verb::Delete) && change.served.table.deleted.is_none();
    let counts = (before.len(), after.len());
    if counts != (usize::from(!is_insert), usize::from(!is_gone)) {
        return None;
    }
    let (before, after) = (before.pop(), after.first().cloned());
    let are_plain = before.iter().chain(&after).all(|row| is_plain(change, row));
    (are_plain && before != after).then_some(Touched { before, after })
}

/// Why a change touched nothing.
fn untouched(change: &Change, table: &Table, row: Option<Vec<Value>>) -> Changed {
    let Some(row) = row else { return Changed::NotFound };
    let is_deleted = table.deleted.is_some_and(|place| row[place].int() != 0);
    if is_deleted && !matches!(change.verb, Verb::Undelete) {
        return Changed::Deleted;
    }
    Changed::Mismatch(row)
}

fn told(done: &std::sync::Mutex<Option<ChangeDone>>, result: Result<Changed, Fault>) {
    let done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(done) = done {
        done(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::testing::table;

    #[test]
    fn bodies_fit_their_columns() {
        let table = table();
        let read = |body: &str| item(body.as_bytes(), &table, Dialect::Sqlite);
        let good = read(
            r#"{"id":"a","text":"x","rank":3.0,"price":2,"done":true,"due":"2026-01-01",
                "version":"v"}"#,
        );
        let good = good.expect("a row");
        assert_eq!(good.id, Some("a".into()));
        assert_eq!(good.version.as_deref(), Some("v"));
        let names: Vec<(&str, &Value)> =
            good.sets.iter().map(|(at, v)| (table.columns[*at].name.as_str(), v)).collect();
        assert!(names.contains(&("rank", &Value::Int(3))));
        assert!(names.contains(&("price", &Value::real(2.0))));
        assert!(names.contains(&("due", &Value::from("2026-01-01T00:00:00.000Z"))));
        for (body, column) in [
            (r#"{"rank":"3"}"#, "rank"),
            (r#"{"rank":3.5}"#, "rank"),
            (r#"{"text":["a"]}"#, "text"),
            (r#"{"text":"a\u0000"}"#, "text"),
            (r#"{"done":1}"#, "done"),
            (r#"{"due":"soon"}"#, "due"),
            (r#"{"nope\" = 1; --":1}"#, "nope\" = 1; --"),
            (r#"{"deleted":true}"#, "deleted"),
            (r#"{"createdAt":"2026-01-01"}"#, "createdAt"),
            (r#"{"id":7}"#, "id"),
            (r#"{"id":""}"#, "id"),
        ] {
            assert_eq!(read(body).expect_err(body).column.as_deref(), Some(column), "{body}");
        }
        for body in ["", "[]", "3", "{"] {
            assert_eq!(read(body).expect_err(body).column, None, "{body}");
        }
    }
}
