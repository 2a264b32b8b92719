//! Whether a change of a row can touch a kept list: not if the row was certainly not of those that
//! match, before and after. Then neither the rows of the list, nor their order, nor how many there
//! are, nor what `$skip` leaves out is another.

use super::odata::possible::{Looker, Truth};
use super::query::Query;
use super::recent::Touched;
use super::schema::Table;
use super::trust::Trust;
use crate::database::{Dialect, Value};

/// Steps that one check takes at most; a step is a part of a filter at one row, about 10 ns. A
/// check that takes more is no cheaper than many a query.
pub const STEPS_MAX: usize = 40_000;

/// Who matches a list.
pub struct Matcher<'q> {
    query: &'q Query,
    table: &'q Table,
    trust: &'q Trust,
    owner: &'q str,
    steps: usize,
}

impl<'q> Matcher<'q> {
    /// Of this list, asked by this caller.
    pub fn new(
        query: &'q Query,
        table: &'q Table,
        trust: &'q Trust,
        owner: Option<&'q str>,
    ) -> Matcher<'q> {
        Matcher { query, table, trust, owner: owner.unwrap_or(""), steps: STEPS_MAX }
    }

    /// Whether a change certainly does not touch the list.
    pub fn is_spared(&mut self, touched: &Touched) -> bool {
        touched.rows().all(|row| !self.truth(row).may_be_true())
    }

    /// What the conditions of [`Query::sql`] can be on a row.
    pub fn truth(&mut self, row: &[Value]) -> Truth {
        let seen = self.owned(row).and(self.there(row));
        if !seen.may_be_true() {
            return seen;
        }
        let filter = self.query.filter.as_ref();
        let mut steps = self.steps;
        let truth = filter
            .map_or(Truth::TRUE, |filter| Looker::at(row, self.trust, &mut steps).truth(filter));
        self.steps = steps;
        seen.and(truth)
    }

    /// `owner = ...`, by the collation of the column.
    fn owned(&self, row: &[Value]) -> Truth {
        let Some(place) = self.table.owner else { return Truth::TRUE };
        match row.get(place) {
            _ if !self.trust.has(place) => Truth::UNKNOWN,
            Some(Value::Null) => Truth::NULL,
            Some(Value::Text(owner)) if owner == self.owner => Truth::TRUE,
            Some(Value::Text(owner)) => self.differ(owner),
            _ => Truth::UNKNOWN,
        }
    }

    /// Two texts of other bytes: some products do not count spaces at the end.
    fn differ(&self, owner: &str) -> Truth {
        let is_plain = |text: &str| !text.contains(['\0', '\u{fffd}']);
        let bare = |text: &'_ str| text.trim_end_matches(' ').len();
        let pads = self.trust.dialect == Dialect::Mysql;
        let is_same = pads && owner[..bare(owner)] == self.owner[..bare(self.owner)];
        if is_same || !is_plain(owner) || !is_plain(self.owner) {
            return Truth::UNKNOWN;
        }
        Truth::FALSE
    }

    /// `deleted IS NULL OR deleted = FALSE`.
    fn there(&self, row: &[Value]) -> Truth {
        let place = self.table.deleted.filter(|_| !self.query.includes_deleted);
        let Some(place) = place else { return Truth::TRUE };
        match row.get(place) {
            _ if !self.trust.has(place) => Truth::UNKNOWN,
            Some(Value::Null | Value::Bool(false) | Value::Int(0)) => Truth::TRUE,
            Some(Value::Bool(true) | Value::Int(1)) => Truth::FALSE,
            _ => Truth::UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::query::Shape;
    use crate::tables::testing::table;

    /// Whether a row of this owner, marked like that, can be of the list of `ann`.
    fn may(query: &str, dialect: Dialect, owner: Value, deleted: Value) -> bool {
        let table = table();
        let mut row = vec![Value::Null; table.columns.len()];
        row[table.owner.expect("it has owners")] = owner;
        row[table.deleted.expect("rows are marked")] = deleted;
        let trust = Trust::of(dialect, vec![true; table.columns.len()]);
        let query = Query::read(query, &table, Shape::Zumo2).expect("a query");
        let mut matcher = Matcher::new(&query, &table, &trust, Some("ann"));
        let is_spared = matcher.is_spared(&Touched { before: None, after: Some(row.clone()) });
        let trust = Trust::none(dialect);
        let mut matcher = Matcher::new(&query, &table, &trust, Some("ann"));
        assert!(!matcher.is_spared(&Touched { before: Some(row), after: None }), "untrusted");
        !is_spared
    }

    #[test]
    fn rows_of_others_and_marked_ones_are_not_of_the_list() {
        let (all, there) = ("__includeDeleted=true", "");
        for dialect in [Dialect::Sqlite, Dialect::Mysql, Dialect::Postgres] {
            let may = |query, owner, deleted| may(query, dialect, owner, deleted);
            assert!(may(there, "ann".into(), Value::Bool(false)));
            assert!(may(there, "ann".into(), Value::Null));
            assert!(
                !may(there, "ann".into(), Value::Int(1)) && may(all, "ann".into(), Value::Int(1))
            );
            assert!(may(there, "ann".into(), Value::Int(2)), "nobody knows what that is");
            assert!(
                !may(all, "bob".into(), Value::Int(0)) && !may(all, Value::Null, Value::Int(0))
            );
            assert!(
                !may(all, "Ann".into(), Value::Int(0)) && may(all, Value::Int(1), Value::Int(0))
            );
            // Spaces at the end do not count for some.
            assert_eq!(may(all, "ann ".into(), Value::Int(0)), dialect == Dialect::Mysql);
            assert!(may(all, "\u{fffd}".into(), Value::Int(0)));
        }
    }

    #[test]
    fn a_check_ends_when_its_steps_are_taken() {
        let table = table();
        let trust = Trust::of(Dialect::Sqlite, vec![true; table.columns.len()]);
        let query = "$filter=rank eq 1&__includeDeleted=true";
        let query = Query::read(query, &table, Shape::Zumo2).expect("a query");
        let mut matcher = Matcher::new(&query, &table, &trust, Some("ann"));
        let mut row = vec![Value::Int(2); table.columns.len()];
        row[table.owner.expect("it has owners")] = "ann".into();
        let touched = Touched { before: Some(row.clone()), after: Some(row) };
        let spared = (0..STEPS_MAX).take_while(|_| matcher.is_spared(&touched)).count();
        assert_eq!(spared, STEPS_MAX / 6, "three parts of a filter, two rows");
    }
}
