//! An expression as SQL of one dialect.
//!
//! **Invariant:** the text consists of what is written in this file, quoted names of declared
//! columns, and a `?` for each value.

use super::expr::{Arithmetic, Expr, Function, Literal, Node, Sense};
use super::parse::{Direction, Order};
use crate::database::{Dialect, Value};
use crate::tables::date;
use crate::tables::schema::{Kind, Table};

/// SQL under way: its text and its values, in the order of their marks.
pub struct Sql<'t> {
    /// Whose columns are named.
    pub table: &'t Table,
    /// Which SQL.
    pub dialect: Dialect,
    /// The text so far.
    pub text: String,
    /// The values so far.
    pub values: Vec<Value>,
}

impl<'t> Sql<'t> {
    /// Nothing yet.
    pub fn new(table: &'t Table, dialect: Dialect) -> Sql<'t> {
        Sql { table, dialect, text: String::with_capacity(256), values: Vec::new() }
    }

    /// Adds text of ours.
    pub fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds a declared name, quoted.
    pub fn name(&mut self, name: &str) -> &mut Self {
        let quoted = quoted(self.dialect, name);
        self.push(&quoted)
    }

    /// Adds the name of a column.
    pub fn column(&mut self, index: usize) -> &mut Self {
        let table = self.table;
        self.name(&table.columns[index].name)
    }

    /// Adds a mark for a value of a type. PostgreSQL has to be told what a value is.
    pub fn value(&mut self, value: Value, kind: Kind) -> &mut Self {
        let mark = match (self.dialect, kind) {
            (Dialect::Sqlite, _) | (Dialect::Mysql, Kind::Text | Kind::Int | Kind::Bool) => "?",
            (Dialect::Mysql, Kind::Real) => "CAST(? AS DOUBLE)",
            (Dialect::Mysql, Kind::Date) => "CAST(? AS DATETIME(3))",
            (Dialect::Postgres, Kind::Text) => "CAST(? AS text)",
            (Dialect::Postgres, Kind::Int) => "CAST(? AS bigint)",
            (Dialect::Postgres, Kind::Real) => "CAST(? AS double precision)",
            (Dialect::Postgres, Kind::Bool) => "CAST(? AS boolean)",
            (Dialect::Postgres, Kind::Date) => "CAST(CAST(? AS text) AS timestamptz)",
        };
        self.values.push(value);
        self.push(mark)
    }

    /// Adds a literal.
    fn literal(&mut self, literal: &Literal) {
        let value = match literal {
            // Words of SQL in all dialects.
            Literal::Bool(is_true) => {
                self.push(if *is_true { "TRUE" } else { "FALSE" });
                return;
            }
            Literal::Text(text) => Value::from(text.as_str()),
            Literal::Int(number) => Value::Int(*number),
            Literal::Real(number) => Value::real(*number),
            Literal::Date(ms) => date_value(self.dialect, *ms),
        };
        self.value(value, literal.kind());
    }

    /// Adds an expression. It is in parentheses wherever it could be torn apart.
    pub fn expr(&mut self, expr: &Expr) -> &mut Self {
        match &expr.node {
            Node::Literal(literal) => self.literal(literal),
            Node::Column(index) => {
                self.column(*index);
            }
            Node::Compare(op, a, b) => self.pair(a, op.sign(), b),
            Node::IsNull(sense, inner) => {
                self.push("(").expr(inner);
                self.push(if *sense == Sense::Is { " IS NULL)" } else { " IS NOT NULL)" });
            }
            Node::And(a, b) => self.pair(a, "AND", b),
            Node::Or(a, b) => self.pair(a, "OR", b),
            Node::Not(inner) => {
                self.push("(NOT ").expr(inner);
                self.push(")");
            }
            Node::Arithmetic(op, a, b) => self.arithmetic(*op, a, b),
            Node::Call(function, arguments) => self.call(*function, arguments),
        }
        self
    }

    fn pair(&mut self, a: &Expr, sign: &str, b: &Expr) {
        let is_found = matches!((&a.node, &b.node), (Node::Column(_), Node::Literal(_)));
        if self.dialect == Dialect::Mysql && is_found && sign == "=" && a.kind == Kind::Text {
            // By its collation an index finds what may be equal; its bytes say whether it is.
            self.push("(").expr(a);
            self.push(" = ").expr(b);
            self.push(" AND ");
            self.sides(a, sign, b);
            self.push(")");
            return;
        }
        self.sides(a, sign, b);
    }

    fn sides(&mut self, a: &Expr, sign: &str, b: &Expr) {
        self.push("(");
        self.compared(a, sign);
        self.push(" ").push(sign).push(" ");
        self.compared(b, sign);
        self.push(")");
    }

    /// A side of a comparison: text is compared by its bytes.
    fn compared(&mut self, expr: &Expr, sign: &str) {
        if expr.kind != Kind::Text || self.dialect == Dialect::Sqlite {
            self.expr(expr);
            return;
        }
        match self.dialect {
            Dialect::Mysql => {
                self.push("CAST(").expr(expr);
                self.push(" AS BINARY)");
            }
            // Equality is that of bytes there, and finds an index.
            _ if matches!(sign, "=" | "<>") => {
                self.expr(expr);
            }
            _ => {
                self.push("(").expr(expr);
                self.push(" COLLATE \"C\")");
            }
        }
    }

    /// A number in double precision.
    fn double(&mut self, expr: &Expr) {
        if let Node::Literal(Literal::Int(number)) = expr.node {
            self.value(Value::real(number as f64), Kind::Real);
            return;
        }
        if expr.kind == Kind::Real {
            self.expr(expr);
            return;
        }
        self.push("CAST(").expr(expr);
        self.push(match self.dialect {
            Dialect::Sqlite => " AS REAL)",
            Dialect::Mysql => " AS DOUBLE)",
            Dialect::Postgres => " AS double precision)",
        });
    }

    fn arithmetic(&mut self, op: Arithmetic, a: &Expr, b: &Expr) {
        let is_postgres = self.dialect == Dialect::Postgres;
        let (open, sign, close) = match (op, self.dialect) {
            (Arithmetic::Add, _) => ("(", " + ", ")"),
            (Arithmetic::Sub, _) => ("(", " - ", ")"),
            (Arithmetic::Mul, _) => ("(", " * ", ")"),
            (Arithmetic::Div, Dialect::Postgres) => ("(", " / NULLIF(", ", 0))"),
            (Arithmetic::Div, _) => ("(", " / ", ")"),
            (Arithmetic::Mod, Dialect::Sqlite) => ("forebay_mod(", ", ", ")"),
            (Arithmetic::Mod, Dialect::Mysql) => ("MOD(", ", ", ")"),
            (Arithmetic::Mod, Dialect::Postgres) => {
                ("CAST(MOD(CAST(", " AS numeric), NULLIF(CAST(", " AS numeric), 0)) AS float8)")
            }
        };
        debug_assert!(is_postgres || !close.contains("NULLIF"));
        self.push(open).double(a);
        self.push(sign).double(b);
        self.push(close);
    }

    fn arguments(&mut self, before: &str, arguments: &[&Expr], after: &str) {
        self.push(before);
        for (index, argument) in arguments.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            self.expr(argument);
        }
        self.push(after);
    }

    fn call(&mut self, function: Function, arguments: &[Expr]) {
        let all: Vec<&Expr> = arguments.iter().collect();
        match function {
            Function::SubstringOf => {
                self.place(arguments[1..].iter().chain(&arguments[..1]), " > 0)")
            }
            Function::StartsWith => self.place(arguments.iter(), " = 1)"),
            Function::IndexOf => self.place(arguments.iter(), " - 1)"),
            Function::EndsWith => self.ends_with(&arguments[0], &arguments[1]),
            Function::Concat if self.dialect == Dialect::Mysql => {
                self.arguments("CONCAT(", &all, ")")
            }
            Function::Concat => {
                self.push("(").expr(&arguments[0]);
                self.push(" || ").expr(&arguments[1]);
                self.push(")");
            }
            Function::ToLower if self.dialect == Dialect::Sqlite => {
                self.arguments("forebay_lower(", &all, ")");
            }
            Function::ToUpper if self.dialect == Dialect::Sqlite => {
                self.arguments("forebay_upper(", &all, ")");
            }
            Function::ToLower => self.arguments("LOWER(", &all, ")"),
            Function::ToUpper => self.arguments("UPPER(", &all, ")"),
            Function::Length if self.dialect == Dialect::Mysql => {
                self.arguments("CHAR_LENGTH(", &all, ")");
            }
            Function::Length => self.arguments("LENGTH(", &all, ")"),
            Function::Trim => self.arguments("TRIM(", &all, ")"),
            Function::Replace => self.arguments("REPLACE(", &all, ")"),
            Function::Substring => self.substring(arguments),
            Function::Floor => self.rounded("FLOOR(", "forebay_floor(", &arguments[0], ")"),
            Function::Ceiling => self.rounded("CEILING(", "forebay_ceil(", &arguments[0], ")"),
            Function::Round => self.round(&arguments[0]),
            Function::Day
            | Function::Month
            | Function::Year
            | Function::Hour
            | Function::Minute
            | Function::Second => self.part(function, &arguments[0]),
        }
    }

    /// Where the second text begins in the first, from 1; 0 if it does not.
    fn place<'e>(&mut self, texts: impl Iterator<Item = &'e Expr>, after: &str) {
        let mut texts: Vec<&Expr> = texts.collect();
        let before = match self.dialect {
            Dialect::Sqlite => "(INSTR(",
            Dialect::Postgres => "(STRPOS(",
            Dialect::Mysql => {
                texts.reverse();
                "(LOCATE("
            }
        };
        if self.dialect == Dialect::Mysql {
            self.push(before);
            // As letters, not as bytes: their places count.
            self.push("CONVERT(").expr(texts[0]);
            self.push(" USING utf8mb4) COLLATE utf8mb4_bin, CONVERT(").expr(texts[1]);
            self.push(" USING utf8mb4) COLLATE utf8mb4_bin)").push(after);
        } else {
            self.arguments(before, &texts, ")");
            self.push(after);
        }
    }

    fn ends_with(&mut self, text: &Expr, end: &Expr) {
        let (cut, comma) = match self.dialect {
            Dialect::Sqlite => ("(SUBSTR(", ", "),
            _ => ("(RIGHT(", ", "),
        };
        let length = if self.dialect == Dialect::Mysql { "CHAR_LENGTH(" } else { "LENGTH(" };
        self.push(cut).expr(text);
        self.push(comma);
        if self.dialect == Dialect::Sqlite {
            self.arguments("LENGTH(", &[text], ") - ");
        }
        self.arguments(length, &[end], ")");
        self.push(if self.dialect == Dialect::Sqlite { " + 1) = " } else { ") = " });
        self.compared(end, "=");
        self.push(")");
    }

    fn substring(&mut self, arguments: &[Expr]) {
        self.push("SUBSTRING(").expr(&arguments[0]);
        for (index, argument) in arguments.iter().enumerate().skip(1) {
            let Node::Literal(Literal::Int(number)) = argument.node else { continue };
            let number = Value::Int(number + i64::from(index == 1));
            // PostgreSQL has them as int.
            if self.dialect == Dialect::Postgres {
                self.push(", CAST(").value(number, Kind::Int).push(" AS int)");
            } else {
                self.push(", ").value(number, Kind::Int);
            }
        }
        self.push(")");
    }

    fn rounded(&mut self, others: &str, sqlite: &str, number: &Expr, after: &str) {
        self.push(if self.dialect == Dialect::Sqlite { sqlite } else { others });
        self.double(number);
        self.push(after);
    }

    fn round(&mut self, number: &Expr) {
        match self.dialect {
            Dialect::Sqlite => self.rounded("", "forebay_round(", number, ")"),
            // Of doubles these two round halves to even; of decimals away from zero.
            Dialect::Mysql => {
                self.rounded("CAST(ROUND(CAST(", "", number, " AS DECIMAL(60,20))) AS DOUBLE)");
            }
            Dialect::Postgres => {
                self.rounded("CAST(ROUND(CAST(", "", number, " AS numeric)) AS float8)");
            }
        }
    }

    fn part(&mut self, function: Function, date: &Expr) {
        let (from, len, word) = match function {
            Function::Year => (1, 4, "YEAR"),
            Function::Month => (6, 2, "MONTH"),
            Function::Day => (9, 2, "DAY"),
            Function::Hour => (12, 2, "HOUR"),
            Function::Minute => (15, 2, "MINUTE"),
            _ => (18, 2, "SECOND"),
        };
        match self.dialect {
            Dialect::Sqlite => {
                self.push("CAST(SUBSTR(").expr(date);
                self.push(&format!(", {from}, {len}) AS INTEGER)"));
            }
            Dialect::Mysql => {
                self.push(&format!("EXTRACT({word} FROM ")).expr(date);
                self.push(")");
            }
            Dialect::Postgres => {
                self.push(&format!("CAST(FLOOR(EXTRACT({word} FROM (")).expr(date);
                self.push(" AT TIME ZONE 'UTC'))) AS bigint)");
            }
        }
    }

    /// Adds keys to sort by, and `id` so that the order is one.
    pub fn orders(&mut self, orders: &[Order]) {
        // A constant sorts nothing; PostgreSQL takes none, MariaDB takes one for a column's place.
        for order in orders.iter().filter(|order| order.by.has_column()) {
            self.compared(&order.by, "<");
            let (ascending, descending) = match self.dialect {
                Dialect::Postgres => (" NULLS FIRST, ", " DESC NULLS LAST, "),
                _ => (", ", " DESC, "),
            };
            let is_up = order.direction == Direction::Ascending;
            self.push(if is_up { ascending } else { descending });
        }
        let id = Expr::column(0, self.table.columns[0].kind);
        self.compared(&id, "<");
    }
}

/// A declared name in SQL's quotes.
pub fn quoted(dialect: Dialect, name: &str) -> String {
    debug_assert!(super::lex::is_name(name), "names come from the schema");
    match dialect {
        Dialect::Mysql => format!("`{name}`"),
        _ => format!("\"{name}\""),
    }
}

/// A moment as a dialect takes it.
pub fn date_value(dialect: Dialect, ms: i64) -> Value {
    let text = date::text(ms);
    Value::Text(match dialect {
        Dialect::Mysql => text.trim_end_matches('Z').replace('T', " "),
        _ => text,
    })
}
