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

/// Makes the functions and their table of the same rows.
macro_rules! functions {
    ($($function:ident = $name:literal ($($takes:ident)* ; $optional:literal) $gives:ident
       $doc:literal)*) => {
        /// Functions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Function {
            $(#[doc = $doc] $function,)*
        }

        /// Every function, in the order of [`Function`].
        pub const FUNCTIONS: &[Signature] = &[$(Signature {
            function: Function::$function,
            name: $name,
            takes: &[$(Kind::$takes),*],
            optional: $optional,
            gives: Kind::$gives,
        }),*];
    };
}

// What it is called, what it takes and how many of these may be left out at the end, what it gives.
functions! {
    SubstringOf = "substringof" (Text Text; 0) Bool
        "`substringof(needle, hay)`; OData 4's `contains(hay, needle)` becomes this."
    StartsWith = "startswith" (Text Text; 0) Bool "`startswith(text, start)`"
    EndsWith = "endswith" (Text Text; 0) Bool "`endswith(text, end)`"
    Concat = "concat" (Text Text; 0) Text "`concat(a, b)`"
    ToLower = "tolower" (Text; 0) Text "`tolower(text)`"
    ToUpper = "toupper" (Text; 0) Text "`toupper(text)`"
    Length = "length" (Text; 0) Int "`length(text)`, in code points"
    Trim = "trim" (Text; 0) Text "`trim(text)`: spaces at both ends"
    IndexOf = "indexof" (Text Text; 0) Int "`indexof(text, needle)`: from 0; -1 if it is not there"
    Replace = "replace" (Text Text Text; 0) Text "`replace(text, from, to)`"
    Substring = "substring" (Text Int Int; 1) Text "`substring(text, start[, length])`, from 0"
    Day = "day" (Date; 0) Int "`day(date)`"
    Month = "month" (Date; 0) Int "`month(date)`"
    Year = "year" (Date; 0) Int "`year(date)`"
    Hour = "hour" (Date; 0) Int "`hour(date)`"
    Minute = "minute" (Date; 0) Int "`minute(date)`"
    Second = "second" (Date; 0) Int "`second(date)`"
    Floor = "floor" (Real; 0) Real "`floor(number)`"
    Ceiling = "ceiling" (Real; 0) Real "`ceiling(number)`"
    Round = "round" (Real; 0) Real "`round(number)`: halves away from zero"
}

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
        for (index, (op, ..)) in Compare::ALL.iter().enumerate() {
            assert_eq!(*op as usize, index);
        }
        for (index, (op, _)) in Arithmetic::ALL.iter().enumerate() {
            assert_eq!(*op as usize, index);
        }
    }
}
