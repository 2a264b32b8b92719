//! The typed tree of an expression, its operators and its functions.
//!
//! **Invariant:** operands have the types that their operator takes; only `eq` and `ne` meet null,
//! and are [`Node::IsNull`] then.

use crate::tables::schema::Kind;

/// A value in an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `'text'`.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Any other number; never infinite.
    Real(f64),
    /// `true` or `false`.
    Bool(bool),
    /// `datetime'...'`: milliseconds since 1970.
    Date(i64),
}

impl Literal {
    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Literal::Text(_) => Kind::Text,
            Literal::Int(_) => Kind::Int,
            Literal::Real(_) => Kind::Real,
            Literal::Bool(_) => Kind::Bool,
            Literal::Date(_) => Kind::Date,
        }
    }
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// `eq`
    Eq,
    /// `ne`
    Ne,
    /// `gt`
    Gt,
    /// `ge`
    Ge,
    /// `lt`
    Lt,
    /// `le`
    Le,
}

impl Compare {
    /// All with their words and SQL's signs.
    pub const ALL: [(Compare, &'static str, &'static str); 6] = [
        (Compare::Eq, "eq", "="),
        (Compare::Ne, "ne", "<>"),
        (Compare::Gt, "gt", ">"),
        (Compare::Ge, "ge", ">="),
        (Compare::Lt, "lt", "<"),
        (Compare::Le, "le", "<="),
    ];

    /// OData's word.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// SQL's sign.
    pub fn sign(self) -> &'static str {
        Self::ALL[self as usize].2
    }
}

/// Arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `add`
    Add,
    /// `sub`
    Sub,
    /// `mul`
    Mul,
    /// `div`
    Div,
    /// `mod`
    Mod,
}

impl Arithmetic {
    /// All with their words.
    pub const ALL: [(Arithmetic, &'static str); 5] = [
        (Arithmetic::Add, "add"),
        (Arithmetic::Sub, "sub"),
        (Arithmetic::Mul, "mul"),
        (Arithmetic::Div, "div"),
        (Arithmetic::Mod, "mod"),
    ];

    /// OData's word.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `substringof(needle, hay)`; OData 4's `contains(hay, needle)` becomes this.
    SubstringOf,
    /// `startswith(text, start)`
    StartsWith,
    /// `endswith(text, end)`
    EndsWith,
    /// `concat(a, b)`
    Concat,
    /// `tolower(text)`
    ToLower,
    /// `toupper(text)`
    ToUpper,
    /// `length(text)`, in code points
    Length,
    /// `trim(text)`: spaces at both ends
    Trim,
    /// `indexof(text, needle)`: from 0; -1 if it is not there
    IndexOf,
    /// `replace(text, from, to)`
    Replace,
    /// `substring(text, start[, length])`, from 0
    Substring,
    /// `day(date)`
    Day,
    /// `month(date)`
    Month,
    /// `year(date)`
    Year,
    /// `hour(date)`
    Hour,
    /// `minute(date)`
    Minute,
    /// `second(date)`
    Second,
    /// `floor(number)`
    Floor,
    /// `ceiling(number)`
    Ceiling,
    /// `round(number)`: halves away from zero
    Round,
}

/// What a function takes and gives.
pub struct Signature {
    /// Which.
    pub function: Function,
    /// Its name.
    pub name: &'static str,
    /// Types of its arguments; [`Kind::Real`] stands for any number.
    pub takes: &'static [Kind],
    /// Arguments at the end that may be left out.
    pub optional: usize,
    /// The type of its result.
    pub gives: Kind,
}

const fn row(
    function: Function,
    name: &'static str,
    takes: &'static [Kind],
    gives: Kind,
) -> Signature {
    Signature { function, name, takes, optional: 0, gives }
}

const TEXT: &[Kind] = &[Kind::Text];
const TEXTS: &[Kind] = &[Kind::Text, Kind::Text];
const DATE: &[Kind] = &[Kind::Date];
const NUMBER: &[Kind] = &[Kind::Real];

/// Every function, in the order of [`Function`].
pub const FUNCTIONS: &[Signature] = &[
    row(Function::SubstringOf, "substringof", TEXTS, Kind::Bool),
    row(Function::StartsWith, "startswith", TEXTS, Kind::Bool),
    row(Function::EndsWith, "endswith", TEXTS, Kind::Bool),
    row(Function::Concat, "concat", TEXTS, Kind::Text),
    row(Function::ToLower, "tolower", TEXT, Kind::Text),
    row(Function::ToUpper, "toupper", TEXT, Kind::Text),
    row(Function::Length, "length", TEXT, Kind::Int),
    row(Function::Trim, "trim", TEXT, Kind::Text),
    row(Function::IndexOf, "indexof", TEXTS, Kind::Int),
    row(Function::Replace, "replace", &[Kind::Text, Kind::Text, Kind::Text], Kind::Text),
    Signature {
        optional: 1,
        ..row(Function::Substring, "substring", &[Kind::Text, Kind::Int, Kind::Int], Kind::Text)
    },
    row(Function::Day, "day", DATE, Kind::Int),
    row(Function::Month, "month", DATE, Kind::Int),
    row(Function::Year, "year", DATE, Kind::Int),
    row(Function::Hour, "hour", DATE, Kind::Int),
    row(Function::Minute, "minute", DATE, Kind::Int),
    row(Function::Second, "second", DATE, Kind::Int),
    row(Function::Floor, "floor", NUMBER, Kind::Real),
    row(Function::Ceiling, "ceiling", NUMBER, Kind::Real),
    row(Function::Round, "round", NUMBER, Kind::Real),
];

impl Function {
    /// What it takes and gives.
    pub fn signature(self) -> &'static Signature {
        &FUNCTIONS[self as usize]
    }
}

/// Whether a test is turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    /// As it is.
    Is,
    /// Turned round.
    IsNot,
}

/// A part of a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A value.
    Literal(Literal),
    /// The column with this place in its table.
    Column(usize),
    /// A comparison of two of a kind.
    Compare(Compare, Box<Expr>, Box<Expr>),
    /// `x eq null`, `x ne null`.
    IsNull(Sense, Box<Expr>),
    /// `and`
    And(Box<Expr>, Box<Expr>),
    /// `or`
    Or(Box<Expr>, Box<Expr>),
    /// `not`
    Not(Box<Expr>),
    /// Arithmetic.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// A function with its arguments.
    Call(Function, Vec<Expr>),
}

/// A part of a tree and its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Its type.
    pub kind: Kind,
    /// What it is.
    pub node: Node,
}

impl Expr {
    /// A column.
    pub fn column(index: usize, kind: Kind) -> Expr {
        Expr { kind, node: Node::Column(index) }
    }

    /// A value.
    pub fn literal(literal: Literal) -> Expr {
        Expr { kind: literal.kind(), node: Node::Literal(literal) }
    }

    /// Whether it has a function in it.
    pub fn calls(&self, wanted: Function) -> bool {
        self.any(&|node| matches!(node, Node::Call(function, _) if *function == wanted))
    }

    /// Whether it has a column in it.
    pub fn has_column(&self) -> bool {
        self.any(&|node| matches!(node, Node::Column(_)))
    }

    /// Whether any part of it is like that.
    fn any(&self, is: &dyn Fn(&Node) -> bool) -> bool {
        if is(&self.node) {
            return true;
        }
        match &self.node {
            Node::Literal(_) | Node::Column(_) => false,
            Node::IsNull(_, inner) | Node::Not(inner) => inner.any(is),
            Node::Compare(_, a, b) | Node::Arithmetic(_, a, b) => a.any(is) || b.any(is),
            Node::And(a, b) | Node::Or(a, b) => a.any(is) || b.any(is),
            Node::Call(_, arguments) => arguments.iter().any(|argument| argument.any(is)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_their_enums() {
        for (index, signature) in FUNCTIONS.iter().enumerate() {
            assert_eq!(signature.function as usize, index, "{}", signature.name);
        }
        for (index, (op, ..)) in Compare::ALL.iter().enumerate() {
            assert_eq!(*op as usize, index);
        }
        for (index, (op, _)) in Arithmetic::ALL.iter().enumerate() {
            assert_eq!(*op as usize, index);
        }
    }
}
