//! What an expression can be on a row, worked out in memory: what is said is certain on the
//! database in use, and what is not certain is not said.
//!
//! ```text
//!   truth   a set of true, false, null: all that the database might find
//!           false and (any of the three) = false, as Kleene has it
//!   value   one value, null, or not known
//! ```
//!
//! The databases agree with [`super::model`] on the rows of its test. This is less and more: it
//! takes any row that may be in a table, and gives up where products, settings or values differ:
//! columns that are not trusted (their collation, precision, type), text that is no plain UTF-8,
//! whole numbers beyond 2^53 beside others, what is not finite, letters whose case depends on a
//! language, and all functions that are not named here.
//!
//! **Invariant:** the database finds nothing that is not in the set.
//! **Invariant:** so many steps are taken at most; what is left then may be anything.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::expr::{Arithmetic, Compare, Expr, Function, Literal, Node, Sense};
use crate::database::{Dialect, Value};
use crate::tables::date;
use crate::tables::schema::Kind;
use crate::tables::trust::Trust;

/// Whole numbers up to here are the same in double precision.
const EXACT_MAX: u64 = 1 << 53;
/// Bytes of text that cost as much as a step.
const STEP_BYTES: usize = 64;

/// Truths that are possible: a set of true, false and null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth(u8);

impl Truth {
    /// Certainly true.
    pub const TRUE: Truth = Truth(1);
    /// Certainly false.
    pub const FALSE: Truth = Truth(2);
    /// Certainly null.
    pub const NULL: Truth = Truth(4);
    /// Any of the three.
    pub const UNKNOWN: Truth = Truth(7);
    const ALL: [Truth; 3] = [Truth::TRUE, Truth::FALSE, Truth::NULL];

    fn of(is_true: bool) -> Truth {
        if is_true { Truth::TRUE } else { Truth::FALSE }
    }

    /// Whether it may be true.
    pub fn may_be_true(self) -> bool {
        self.has(Truth::TRUE)
    }

    fn has(self, one: Truth) -> bool {
        self.0 & one.0 != 0
    }

    /// SQL's truth of one of them; none is null.
    fn one(self) -> Option<bool> {
        (self != Truth::NULL).then_some(self == Truth::TRUE)
    }

    /// All that comes of any of these with any of those.
    fn with(
        self,
        other: Truth,
        join: impl Fn(Option<bool>, Option<bool>) -> Option<bool>,
    ) -> Truth {
        let mut found = 0;
        for a in Truth::ALL.into_iter().filter(|one| self.has(*one)) {
            for b in Truth::ALL.into_iter().filter(|one| other.has(*one)) {
                found |= join(a.one(), b.one()).map_or(Truth::NULL, Truth::of).0;
            }
        }
        Truth(found)
    }

    /// SQL's AND.
    pub fn and(self, other: Truth) -> Truth {
        self.with(other, |a, b| match (a, b) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (a, b) => Some(a? && b?),
        })
    }

    /// SQL's OR.
    pub fn or(self, other: Truth) -> Truth {
        !(!self).and(!other)
    }
}

impl std::ops::Not for Truth {
    type Output = Truth;

    fn not(self) -> Truth {
        self.with(Truth::TRUE, |a, _| a.map(|a| !a))
    }
}

/// A value that is known.
#[derive(Debug, Clone, PartialEq)]
enum Known<'r> {
    Null,
    Int(i64),
    Real(f64),
    Text(Cow<'r, str>),
    Date(i64),
}

impl Known<'_> {
    /// In double precision, if that is the same number.
    fn real(&self) -> Option<f64> {
        match self {
            Known::Int(number) if number.unsigned_abs() <= EXACT_MAX => Some(*number as f64),
            Known::Real(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        if let Known::Text(text) = self { Some(text) } else { None }
    }
}

/// A row whose values are looked at.
pub struct Looker<'r> {
    row: &'r [Value],
    trust: &'r Trust,
    /// Steps that are left.
    steps: &'r mut usize,
}

impl<'r> Looker<'r> {
    /// At this row; `steps` are all that may be taken, and less afterwards.
    pub fn at(row: &'r [Value], trust: &'r Trust, steps: &'r mut usize) -> Looker<'r> {
        Looker { row, trust, steps }
    }

    /// Takes steps, if there are enough left.
    fn step(&mut self, count: usize) -> Option<()> {
        let left = self.steps.checked_sub(count);
        *self.steps = left.unwrap_or(0);
        left.map(drop)
    }

    /// What a condition can be.
    pub fn truth(&mut self, expr: &'r Expr) -> Truth {
        if self.step(1).is_none() {
            return Truth::UNKNOWN;
        }
        match &expr.node {
            Node::Literal(Literal::Bool(is_true)) => Truth::of(*is_true),
            Node::Column(place) => self.flag(*place),
            Node::Compare(op, a, b) if a.kind == Kind::Bool => {
                let (a, b) = (self.truth(a), self.truth(b));
                a.with(b, |a, b| Some((a? == b?) == (*op == Compare::Eq)))
            }
            Node::Compare(op, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                self.both(a, b, |looker, a, b| looker.order(a, b).map(|order| holds(*op, order)))
            }
            Node::IsNull(sense, inner) => {
                let is_null = self.is_null(inner);
                if *sense == Sense::Is { is_null } else { !is_null }
            }
            Node::And(a, b) => {
                let a = self.truth(a);
                if a == Truth::FALSE { a } else { a.and(self.truth(b)) }
            }
            Node::Or(a, b) => {
                let a = self.truth(a);
                if a == Truth::TRUE { a } else { a.or(self.truth(b)) }
            }
            Node::Not(inner) => !self.truth(inner),
            Node::Call(function, arguments) if arguments.len() == 2 => {
                let (a, b) = (self.value(&arguments[0]), self.value(&arguments[1]));
                self.both(a, b, |looker, a, b| looker.found(*function, a, b))
            }
            _ => Truth::UNKNOWN,
        }
    }

    /// A column of truths.
    fn flag(&self, place: usize) -> Truth {
        if !self.trust.has(place) {
            return Truth::UNKNOWN;
        }
        match self.row.get(place) {
            Some(Value::Null) => Truth::NULL,
            Some(Value::Bool(is_true)) => Truth::of(*is_true),
            Some(Value::Int(number @ 0..=1)) => Truth::of(*number == 1),
            _ => Truth::UNKNOWN,
        }
    }

    fn is_null(&mut self, inner: &'r Expr) -> Truth {
        if inner.kind == Kind::Bool {
            let truth = self.truth(inner);
            return truth.with(Truth::TRUE, |a, _| Some(a.is_none()));
        }
        match self.value(inner) {
            Some(value) => Truth::of(value == Known::Null),
            None => Truth(Truth::TRUE.0 | Truth::FALSE.0),
        }
    }

    /// A test of two values: null if any of them is.
    fn both(
        &mut self,
        a: Option<Known<'_>>,
        b: Option<Known<'_>>,
        test: impl FnOnce(&mut Self, &Known<'_>, &Known<'_>) -> Option<bool>,
    ) -> Truth {
        match (a, b) {
            (Some(Known::Null), _) | (_, Some(Known::Null)) => Truth::NULL,
            (Some(a), Some(b)) => test(self, &a, &b).map_or(Truth::UNKNOWN, Truth::of),
            _ => Truth::UNKNOWN,
        }
    }

    /// How two values of a kind are sorted.
    fn order(&mut self, a: &Known<'_>, b: &Known<'_>) -> Option<Ordering> {
        match (a, b) {
            (Known::Int(a), Known::Int(b)) | (Known::Date(a), Known::Date(b)) => Some(a.cmp(b)),
            (Known::Text(a), Known::Text(b)) => {
                self.step(a.len().min(b.len()) / STEP_BYTES)?;
                Some(a.as_bytes().cmp(b.as_bytes()))
            }
            // Minus zero is zero everywhere, and what is no number never comes here.
            (a, b) => a.real()?.partial_cmp(&b.real()?),
        }
    }

    /// Whether one text is in another, by their bytes.
    fn found(&mut self, function: Function, a: &Known<'_>, b: &Known<'_>) -> Option<bool> {
        let (a, b) = (a.text()?, b.text()?);
        self.step((a.len() + b.len()) / STEP_BYTES)?;
        match function {
            Function::SubstringOf => Some(b.contains(a)),
            Function::StartsWith => Some(a.starts_with(b)),
            Function::EndsWith => Some(a.ends_with(b)),
            _ => None,
        }
    }

    /// What an expression is, if that is certain.
    fn value(&mut self, expr: &'r Expr) -> Option<Known<'r>> {
        self.step(1)?;
        match &expr.node {
            Node::Literal(literal) => match literal {
                Literal::Text(text) => self.plain(text).map(|text| Known::Text(text.into())),
                Literal::Int(number) => Some(Known::Int(*number)),
                Literal::Real(number) => Some(Known::Real(*number)),
                Literal::Date(ms) => Some(Known::Date(*ms)),
                Literal::Bool(_) => None,
            },
            Node::Column(place) => self.column(*place, expr.kind),
            Node::Arithmetic(op, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                if a == Some(Known::Null) || b == Some(Known::Null) {
                    return Some(Known::Null);
                }
                arithmetic(*op, a?.real()?, b?.real()?)
            }
            Node::Call(function, arguments) => {
                let argument = self.value(arguments.first()?)?;
                self.call(*function, argument)
            }
            _ => None,
        }
    }

    /// Text that every product takes for the same letters.
    fn plain<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        self.step(text.len() / STEP_BYTES)?;
        // Some end at a zero byte; what was no UTF-8 has been read as the other.
        (!text.contains(['\0', '\u{fffd}'])).then_some(text)
    }

    fn column(&mut self, place: usize, kind: Kind) -> Option<Known<'r>> {
        if !self.trust.has(place) {
            return None;
        }
        let row = self.row;
        match (row.get(place)?, kind) {
            (Value::Null, _) => Some(Known::Null),
            (Value::Int(number), Kind::Int) => Some(Known::Int(*number)),
            // SQLite keeps whole numbers as such where a column is no REAL.
            (Value::Int(number), Kind::Real) => Known::Int(*number).real().map(Known::Real),
            (Value::Real(number), Kind::Real) => {
                number.0.is_finite().then_some(Known::Real(number.0))
            }
            (Value::Text(text), Kind::Text) => {
                self.plain(text).map(|text| Known::Text(text.into()))
            }
            // SQLite has any text there: only of the one form it is sorted as time is.
            (Value::Text(text), Kind::Date) => {
                date::parse(text).filter(|ms| date::text(*ms) == *text).map(Known::Date)
            }
            _ => None,
        }
    }

    fn call(&mut self, function: Function, argument: Known<'r>) -> Option<Known<'r>> {
        if argument == Known::Null {
            // Only of those below: another one may take more arguments, or not mind a null.
            return is_known(function).then_some(Known::Null);
        }
        let civil = || match argument {
            Known::Date(ms) => Some(date::civil(ms)),
            _ => None,
        };
        let number = match function {
            Function::Length => argument.text()?.chars().count() as i64,
            Function::ToLower => return self.cased(argument.text()?, str::to_ascii_lowercase),
            Function::ToUpper => return self.cased(argument.text()?, str::to_ascii_uppercase),
            Function::Year => civil()?.year,
            Function::Month => civil()?.month,
            Function::Day => civil()?.day,
            Function::Hour => civil()?.hour,
            Function::Minute => civil()?.minute,
            Function::Second => civil()?.second,
            _ => return None,
        };
        Some(Known::Int(number))
    }

    /// A text in another case, if no language has its own: in Turkish an `I` has no dot when small.
    fn cased(&self, text: &str, run: fn(&str) -> String) -> Option<Known<'r>> {
        let is_sqlite = self.trust.dialect == Dialect::Sqlite;
        let is_same = text.is_ascii() && (is_sqlite || !text.contains(['i', 'I']));
        is_same.then(|| Known::Text(run(text).into()))
    }
}

/// Whether [`Looker::call`] works it out.
fn is_known(function: Function) -> bool {
    use Function::{Day, Hour, Length, Minute, Month, Second, ToLower, ToUpper, Year};
    matches!(function, Length | ToLower | ToUpper | Year | Month | Day | Hour | Minute | Second)
}

fn holds(op: Compare, order: Ordering) -> bool {
    match op {
        Compare::Eq => order.is_eq(),
        Compare::Ne => order.is_ne(),
        Compare::Gt => order.is_gt(),
        Compare::Ge => order.is_ge(),
        Compare::Lt => order.is_lt(),
        Compare::Le => order.is_le(),
    }
}

/// Arithmetic in double precision, which is the same everywhere until it runs over or under: then
/// some go on and some refuse. What is left over is worked out in decimals by some.
fn arithmetic(op: Arithmetic, a: f64, b: f64) -> Option<Known<'static>> {
    let result = match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div if b == 0.0 => return Some(Known::Null),
        Arithmetic::Div => a / b,
        Arithmetic::Mod => return None,
    };
    let is_product = matches!(op, Arithmetic::Mul | Arithmetic::Div);
    let has_vanished = is_product && a != 0.0 && b != 0.0 && !result.is_normal();
    (result.is_finite() && !has_vanished).then_some(Known::Real(result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::odata::parse;
    use crate::tables::testing::table;

    /// What a filter can be on a row with these columns, on a database whose columns are all
    /// trusted but `note`.
    fn truth_on(dialect: Dialect, filter: &str, set: &[(&str, Value)]) -> Truth {
        let table = table();
        let mut row = vec![Value::Null; table.columns.len()];
        for (name, value) in set {
            row[table.find(name).expect("a column")] = value.clone();
        }
        let trusted = table.columns.iter().map(|column| column.name != "note").collect();
        let trust = Trust::of(dialect, trusted);
        let expr = parse::filter(filter, &table).expect("a filter");
        Looker::at(&row, &trust, &mut 1000).truth(&expr)
    }

    fn truth(filter: &str, set: &[(&str, Value)]) -> Truth {
        truth_on(Dialect::Sqlite, filter, set)
    }

    #[test]
    fn null_goes_through_as_in_sql() {
        for (filter, want) in [
            ("rank eq 1", Truth::NULL),
            ("not (rank eq 1)", Truth::NULL),
            ("rank eq 1 and false", Truth::FALSE),
            ("rank eq 1 or true", Truth::TRUE),
            ("rank eq 1 or false", Truth::NULL),
            ("rank eq null", Truth::TRUE),
            ("rank ne null", Truth::FALSE),
            ("(rank eq 1) eq null", Truth::TRUE),
            ("done", Truth::NULL),
            ("done eq true", Truth::NULL),
            ("length(text) gt 0", Truth::NULL),
            ("startswith(text,'a')", Truth::NULL),
            ("price add 1 gt 0", Truth::NULL),
            ("1 div 0 eq 1", Truth::NULL),
        ] {
            assert_eq!(truth(filter, &[]), want, "{filter}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_more_than_it_has_to_be() {
        let set = [("note", "x".into()), ("rank", Value::Int(1))];
        for (filter, want) in [
            ("note eq 'x'", Truth::UNKNOWN),
            ("note eq 'x' and rank eq 2", Truth::FALSE),
            ("rank eq 2 and note eq 'x'", Truth::FALSE),
            ("note eq 'x' or rank eq 1", Truth::TRUE),
            ("not (note eq 'x')", Truth::UNKNOWN),
            ("note eq null", Truth(3)),
            ("note eq 'x' and price gt 1", Truth(6)),
            ("note eq text", Truth::NULL),
            ("(note eq 'x') eq (rank eq 1)", Truth::UNKNOWN),
        ] {
            assert_eq!(truth(filter, &set), want, "{filter}");
        }
    }

    #[test]
    fn boundaries_are_those_of_the_databases() {
        let at = |number: i64| [("rank", Value::Int(number))];
        let exact = 1_i64 << 53;
        assert_eq!(truth("rank ge 5", &at(5)), Truth::TRUE);
        assert_eq!(truth("rank gt 5", &at(5)), Truth::FALSE);
        // Whole numbers beside whole ones are exact, beside others only as far as those are.
        let literal = format!("rank eq {}", exact + 1);
        assert_eq!(truth(&literal, &at(exact)), Truth::FALSE);
        assert_eq!(truth("rank gt 1.5", &at(exact)), Truth::TRUE);
        assert_eq!(truth("rank gt 1.5", &at(exact + 1)), Truth::UNKNOWN);
        assert_eq!(truth("rank add 1 gt 1.5", &at(i64::MIN)), Truth::UNKNOWN);
        let price = |number: f64| [("price", Value::real(number))];
        assert_eq!(truth("price eq 0", &price(-0.0)), Truth::TRUE);
        assert_eq!(truth("price eq 1", &price(1.0)), Truth::TRUE);
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(truth("price gt 1", &price(number)), Truth::UNKNOWN);
        }
        assert_eq!(truth("price mul 10 gt 1", &price(1e308)), Truth::UNKNOWN);
        assert_eq!(truth("price mul 0.1 gt 1", &price(1e-308)), Truth::UNKNOWN);
        assert_eq!(truth("price mod 2 eq 1", &price(1.0)), Truth::UNKNOWN);
        assert_eq!(truth("round(price) eq 1", &price(1.0)), Truth::UNKNOWN);
    }

    #[test]
    fn a_value_of_another_type_is_not_known() {
        for (name, value, filter) in [
            ("rank", Value::from("1"), "rank eq 1"),
            ("rank", Value::real(1.5), "rank gt 2"),
            ("price", Value::from("1"), "price eq 2"),
            ("price", Value::Int((1 << 53) + 1), "price gt 1"),
            ("done", Value::Int(2), "done"),
            ("done", Value::from("true"), "done"),
            ("text", Value::Int(1), "text eq '2'"),
            ("text", Value::Bytes(vec![1]), "text eq '2'"),
            ("text", "a\0b".into(), "text eq '2'"),
            ("text", "\u{fffd}".into(), "text eq '2'"),
            ("due", "2026-01-01".into(), "due lt datetime'2020-01-01'"),
            ("due", "2026-01-01T00:00:00.0000Z".into(), "due lt datetime'2020-01-01'"),
        ] {
            assert_eq!(truth(filter, &[(name, value)]), Truth::UNKNOWN, "{filter}");
        }
        assert_eq!(truth("price eq 2", &[("price", Value::Int(2))]), Truth::TRUE);
        assert_eq!(truth("done", &[("done", Value::Bool(true))]), Truth::TRUE);
        let due = [("due", "2026-01-01T00:00:00.000Z".into())];
        assert_eq!(truth("due ge datetime'2026-01-01'", &due), Truth::TRUE);
        assert_eq!(truth("year(due) eq 2025", &due), Truth::FALSE);
    }

    #[test]
    fn text_is_its_bytes_and_case_is_that_of_no_language() {
        let text = |text: &str| [("text", Value::from(text))];
        assert_eq!(truth("text eq 'a'", &text("a ")), Truth::FALSE);
        assert_eq!(truth("text eq 'e'", &text("É")), Truth::FALSE);
        assert_eq!(truth("text lt 'a'", &text("B")), Truth::TRUE);
        assert_eq!(truth("text eq ''", &text("")), Truth::TRUE);
        assert_eq!(truth("substringof('',text)", &text("")), Truth::TRUE);
        assert_eq!(truth("endswith(text,'abc')", &text("bc")), Truth::FALSE);
        assert_eq!(truth("length(text) eq 1", &text("é")), Truth::TRUE);
        assert_eq!(truth("tolower(text) eq 'ab'", &text("AB")), Truth::TRUE);
        assert_eq!(truth("tolower(text) eq 'é'", &text("É")), Truth::UNKNOWN);
        let on = |dialect, word: &str| truth_on(dialect, "tolower(text) eq 'x'", &text(word));
        assert_eq!(on(Dialect::Sqlite, "I"), Truth::FALSE);
        assert_eq!(on(Dialect::Postgres, "I"), Truth::UNKNOWN);
        assert_eq!(on(Dialect::Mysql, "A"), Truth::FALSE);
    }

    #[test]
    fn steps_are_bounded() {
        let table = table();
        let trust = Trust::of(Dialect::Sqlite, vec![true; table.columns.len()]);
        let expr = parse::filter("rank eq 1 and rank eq 2", &table).expect("a filter");
        let row = vec![Value::Int(1); table.columns.len()];
        for (steps, want) in [(7, Truth::FALSE), (6, Truth::UNKNOWN), (0, Truth::UNKNOWN)] {
            assert_eq!(Looker::at(&row, &trust, &mut steps.clone()).truth(&expr), want, "{steps}");
        }
        let long = vec![Value::from("x".repeat(64 * 100)); table.columns.len()];
        let expr = parse::filter("text eq 'x'", &table).expect("a filter");
        assert_eq!(Looker::at(&long, &trust, &mut 99).truth(&expr), Truth::UNKNOWN);
        assert_eq!(Looker::at(&long, &trust, &mut 110).truth(&expr), Truth::FALSE);
    }
}
