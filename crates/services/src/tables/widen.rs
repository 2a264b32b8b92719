//! Tables that grow: a body with a name that a dynamic table has no column of makes the column,
//! by the type of its value: text, a number in double precision, or true or false.
//!
//! **Invariant:** one column is made at a time, and what is kept of the table is removed before
//! anybody is told of it, since every answer has one more member from then on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use serde_json::{Map, Value as Json};

use super::ask::{Fault, Served};
use super::change::BadBody;
use super::odata::lex::is_name;
use super::pool::{Health, Work};
use super::schema::{COLUMNS_MAX, Column, Kind, Table};
use super::service::Tables;
use super::setup;
use super::trust::Trust;
use crate::database::{Database, DatabaseError};

/// Takes what became of it, once.
pub type WidenDone = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// The columns that a body wants and a table has not. What cannot be a column is left out: the
/// body is refused for it as that of any other table.
pub fn missing(body: &[u8], table: &Table) -> Result<Vec<Column>, BadBody> {
    let members: Map<String, Json> = serde_json::from_slice(body).unwrap_or_default();
    let is_there = |name: &str| {
        table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name))
            || super::schema::SYSTEM.iter().any(|system| system.eq_ignore_ascii_case(name))
    };
    let column = |(name, value): (String, Json)| {
        let kind = match value {
            Json::String(_) => Kind::Text,
            Json::Number(_) => Kind::Real,
            Json::Bool(_) => Kind::Bool,
            Json::Null | Json::Array(_) | Json::Object(_) => return None,
        };
        (is_name(&name) && !is_there(&name)).then_some(Column { name, kind })
    };
    let columns: Vec<Column> = members.into_iter().filter_map(column).collect();
    if table.columns.len() + columns.len() > COLUMNS_MAX {
        let why = format!("table {:?} has {COLUMNS_MAX} columns at most", table.name);
        return Err(BadBody { column: columns.first().map(|column| column.name.clone()), why });
    }
    Ok(columns)
}

impl Tables {
    /// Makes columns of a table that it has not.
    pub fn widen(self: &Arc<Self>, name: &str, columns: Vec<Column>, done: WidenDone) {
        let (this, name) = (Arc::clone(self), name.to_string());
        let done = Arc::new(std::sync::Mutex::new(Some(done)));
        let tell = Arc::clone(&done);
        let told = |done: &std::sync::Mutex<Option<WidenDone>>, result| {
            let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(done) = done {
                done(result);
            }
        };
        let work: Work = Box::new(move |database| {
            let result = database.and_then(|database| this.make_columns(database, &name, columns));
            let health = Health::after(&result);
            told(&tell, result.map_err(Fault::Database));
            health
        });
        if self.writers.push(work).is_err() {
            self.stats.overloaded.add();
            told(&done, Err(Fault::Busy("too many changes wait for the database")));
        }
    }

    fn make_columns(
        &self,
        database: &mut dyn Database,
        name: &str,
        columns: Vec<Column>,
    ) -> Result<(), DatabaseError> {
        let _one = self.widening.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(served) = self.find(name) else { return Ok(()) };
        let mut table = served.table.clone();
        for column in columns {
            // Somebody else may have made it meanwhile.
            if table.columns.iter().any(|known| known.name.eq_ignore_ascii_case(&column.name)) {
                continue;
            }
            setup::add_column(database, &table, &column)?;
            table.columns.push(column);
        }
        if table.columns.len() > served.table.columns.len() {
            let trust = setup::trust(database, &table);
            self.replace(&served, table, trust);
        }
        Ok(())
    }

    fn replace(&self, served: &Served, table: Table, trust: Trust) {
        let name = table.name.clone();
        let wider = Served {
            table,
            versions: Arc::clone(&served.versions),
            trust,
            watch: served.watch,
            begun: served.begun,
            paces: Arc::clone(&served.paces),
            is_compared: AtomicBool::new(served.is_compared.load(Ordering::Acquire)),
        };
        self.serve(wider);
        self.purge(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::testing::table;

    #[test]
    fn only_what_can_be_a_column_becomes_one() {
        let body = br#"{"id":"a","text":"x","Text":"y","colour":"red","weight":3,"good":true,
            "list":[1],"nothing":null,"no name":1,"a\"b":1,"createdat":1}"#;
        let found = missing(body, &table()).expect("columns");
        let found: Vec<(&str, Kind)> =
            found.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        let want = [("colour", Kind::Text), ("good", Kind::Bool), ("weight", Kind::Real)];
        assert_eq!(found, want);
        assert_eq!(missing(b"no JSON", &table()), Ok(Vec::new()));
        let many: Vec<String> = (0..COLUMNS_MAX).map(|at| format!("\"c{at}\":1")).collect();
        let many = format!("{{{}}}", many.join(","));
        assert!(missing(many.as_bytes(), &table()).is_err());
    }
}
