//! Reads expressions by recursive descent, typed as they are read.
//!
//! ```text
//! or     = and { "or" and }              mul   = unary { ("mul" | "div" | "mod") unary }
//! and    = test { "and" test }           unary = "not" unary | primary
//! test   = sum [ ("eq" | ...) sum ]      primary = "(" or ")" | literal | "null" | column
//! sum    = mul { ("add" | "sub") mul }           | function "(" or { "," or } ")"
//! ```

use super::expr::{Arithmetic, Compare, Expr, FUNCTIONS, Function, Literal, Node, Sense};
use super::lex::{Token, Wrong, tokens};
use crate::tables::schema::{Kind, Table};

/// Longest expression, in bytes.
pub const BYTES_MAX: usize = 8192;
/// Nodes of an expression at most: the databases have limits, too.
pub const NODES_MAX: usize = 600;
/// Levels of parentheses, functions and `not` at most.
pub const DEPTH_MAX: usize = 64;
/// Longest third argument of `replace`, in letters.
const REPLACEMENT_MAX: usize = 100;
/// Keys of `$orderby` at most.
const ORDERS_MAX: usize = 16;

/// Which way rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Smallest first, null before everything.
    Ascending,
    /// Largest first, null after everything.
    Descending,
}

/// A key of `$orderby`.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// What rows are sorted by.
    pub by: Expr,
    /// Which way.
    pub direction: Direction,
}

/// What stands at a place: an expression, or null, which has no type.
enum Operand {
    Typed(Expr),
    Null,
}

struct Parser<'t> {
    table: &'t Table,
    tokens: Vec<(usize, Token)>,
    next: usize,
    nodes: usize,
    depth: usize,
}

type Read<T> = Result<T, Wrong>;

/// Reads a `$filter`.
pub fn filter(text: &str, table: &Table) -> Read<Expr> {
    let mut parser = Parser::new(text, table)?;
    let at = parser.at();
    let found = parser.or()?;
    let found = parser.typed(at, found)?;
    parser.end()?;
    if found.kind != Kind::Bool {
        return Err(Wrong::new(
            at,
            format!("a filter is true or false, not {}", found.kind.word()),
        ));
    }
    Ok(found)
}

/// Reads an `$orderby`.
pub fn orders(text: &str, table: &Table) -> Read<Vec<Order>> {
    let mut parser = Parser::new(text, table)?;
    let mut found = Vec::new();
    loop {
        let at = parser.at();
        if found.len() == ORDERS_MAX {
            return Err(Wrong::new(at, format!("rows are sorted by {ORDERS_MAX} keys at most")));
        }
        let by = parser.or()?;
        let by = parser.typed(at, by)?;
        let mut direction = Direction::Ascending;
        if parser.takes("desc") {
            direction = Direction::Descending;
        } else {
            parser.takes("asc");
        }
        found.push(Order { by, direction });
        if *parser.token() != Token::Comma {
            break;
        }
        parser.next += 1;
    }
    parser.end()?;
    Ok(found)
}

impl<'t> Parser<'t> {
    fn new(text: &str, table: &'t Table) -> Read<Parser<'t>> {
        if text.len() > BYTES_MAX {
            let why = format!("an expression has {BYTES_MAX} bytes at most");
            return Err(Wrong::new(BYTES_MAX, why));
        }
        Ok(Parser { table, tokens: tokens(text)?, next: 0, nodes: 0, depth: 0 })
    }

    fn token(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn at(&self) -> usize {
        self.tokens[self.next].0
    }

    /// Steps over a word if it stands here.
    fn takes(&mut self, word: &str) -> bool {
        let is_here = matches!(self.token(), Token::Word(here) if here == word);
        self.next += usize::from(is_here);
        is_here
    }

    fn end(&self) -> Read<()> {
        match self.token() {
            Token::End => Ok(()),
            Token::Word(word) => {
                Err(Wrong::new(self.at(), format!("{word:?} is not expected here")))
            }
            Token::Close => Err(Wrong::new(self.at(), "this parenthesis closes nothing")),
            _ => Err(Wrong::new(self.at(), "an operator is expected here")),
        }
    }

    fn make(&mut self, at: usize, kind: Kind, node: Node) -> Read<Operand> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Wrong::new(at, format!("an expression has {NODES_MAX} parts at most")));
        }
        Ok(Operand::Typed(Expr { kind, node }))
    }

    fn typed(&self, at: usize, operand: Operand) -> Read<Expr> {
        match operand {
            Operand::Typed(expr) => Ok(expr),
            Operand::Null => Err(Wrong::new(at, "null can only be compared, with eq or ne")),
        }
    }

    fn of_kind(&self, at: usize, operand: Operand, kind: Kind, what: &str) -> Read<Expr> {
        let expr = self.typed(at, operand)?;
        if expr.kind == kind || (kind == Kind::Real && expr.kind == Kind::Int) {
            return Ok(expr);
        }
        let why = format!("{what} takes {}, and this is {}", kind.word(), expr.kind.word());
        Err(Wrong::new(at, why))
    }

    fn or(&mut self) -> Read<Operand> {
        let at = self.at();
        let mut left = self.and()?;
        while self.takes("or") {
            let a = self.of_kind(at, left, Kind::Bool, "or")?;
            let right_at = self.at();
            let b = self.and()?;
            let b = self.of_kind(right_at, b, Kind::Bool, "or")?;
            left = self.make(at, Kind::Bool, Node::Or(Box::new(a), Box::new(b)))?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Read<Operand> {
        let at = self.at();
        let mut left = self.test()?;
        while self.takes("and") {
            let a = self.of_kind(at, left, Kind::Bool, "and")?;
            let right_at = self.at();
            let b = self.test()?;
            let b = self.of_kind(right_at, b, Kind::Bool, "and")?;
            left = self.make(at, Kind::Bool, Node::And(Box::new(a), Box::new(b)))?;
        }
        Ok(left)
    }

    fn test(&mut self) -> Read<Operand> {
        let at = self.at();
        let left = self.sum()?;
        let sign_at = self.at();
        let Some((op, ..)) = Compare::ALL.into_iter().find(|(_, word, _)| self.takes(word)) else {
            return Ok(left);
        };
        let right_at = self.at();
        let right = self.sum()?;
        let (a, b) = match (left, right) {
            (Operand::Typed(a), Operand::Typed(b)) => (a, b),
            (Operand::Null, Operand::Null) if matches!(op, Compare::Eq | Compare::Ne) => {
                let is_equal = Literal::Bool(op == Compare::Eq);
                return self.make(at, Kind::Bool, Node::Literal(is_equal));
            }
            (Operand::Typed(one), Operand::Null) | (Operand::Null, Operand::Typed(one)) => {
                let sense = match op {
                    Compare::Eq => Sense::Is,
                    Compare::Ne => Sense::IsNot,
                    _ => return Err(Wrong::new(sign_at, "null is only compared with eq and ne")),
                };
                return self.make(at, Kind::Bool, Node::IsNull(sense, Box::new(one)));
            }
            _ => return Err(Wrong::new(sign_at, "null is only compared with eq and ne")),
        };
        let is_order = !matches!(op, Compare::Eq | Compare::Ne);
        if is_order && a.kind == Kind::Bool {
            return Err(Wrong::new(sign_at, "true and false are only compared with eq and ne"));
        }
        let b = self.as_kind_of(&a, b);
        let a = self.as_kind_of(&b, a);
        if a.kind != b.kind && !(a.kind.is_number() && b.kind.is_number()) {
            let (a, b) = (a.kind.word(), b.kind.word());
            return Err(Wrong::new(right_at, format!("{a} and {b} cannot be compared")));
        }
        self.make(at, Kind::Bool, Node::Compare(op, Box::new(a), Box::new(b)))
    }

    /// A text literal beside a date is meant as one.
    fn as_kind_of(&self, other: &Expr, expr: Expr) -> Expr {
        if other.kind == Kind::Date
            && let Node::Literal(Literal::Text(text)) = &expr.node
            && let Some(ms) = crate::tables::date::parse(text)
        {
            return Expr::literal(Literal::Date(ms));
        }
        expr
    }

    fn sum(&mut self) -> Read<Operand> {
        let at = self.at();
        let mut left = self.product()?;
        while let Some((op, word)) =
            Arithmetic::ALL[..2].iter().find(|(_, word)| self.takes(word)).copied()
        {
            let a = self.of_kind(at, left, Kind::Real, word)?;
            let right_at = self.at();
            let b = self.product()?;
            let b = self.of_kind(right_at, b, Kind::Real, word)?;
            left = self.make(at, Kind::Real, Node::Arithmetic(op, Box::new(a), Box::new(b)))?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Read<Operand> {
        let at = self.at();
        let mut left = self.unary()?;
        while let Some((op, word)) =
            Arithmetic::ALL[2..].iter().find(|(_, word)| self.takes(word)).copied()
        {
            let a = self.of_kind(at, left, Kind::Real, word)?;
            let right_at = self.at();
            let b = self.unary()?;
            let b = self.of_kind(right_at, b, Kind::Real, word)?;
            left = self.make(at, Kind::Real, Node::Arithmetic(op, Box::new(a), Box::new(b)))?;
        }
        Ok(left)
    }

    /// Goes one level deeper for `read`.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let why = format!("an expression is {DEPTH_MAX} levels deep at most");
            return Err(Wrong::new(self.at(), why));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn unary(&mut self) -> Read<Operand> {
        let at = self.at();
        if !self.takes("not") {
            return self.primary();
        }
        let inner_at = self.at();
        let inner = self.deeper(Self::unary)?;
        let inner = self.of_kind(inner_at, inner, Kind::Bool, "not")?;
        self.make(at, Kind::Bool, Node::Not(Box::new(inner)))
    }

    fn primary(&mut self) -> Read<Operand> {
        let (at, token) = self.tokens[self.next].clone();
        if token == Token::End {
            return Err(Wrong::new(at, "something is missing at the end"));
        }
        self.next += 1;
        match token {
            Token::Literal(literal) => self.make(at, literal.kind(), Node::Literal(literal)),
            Token::Open => {
                let inner = self.deeper(Self::or)?;
                self.close(at)?;
                Ok(inner)
            }
            Token::Word(word) => self.named(at, &word),
            _ => Err(Wrong::new(at, "a value, a column or a function is expected here")),
        }
    }

    fn close(&mut self, opened_at: usize) -> Read<()> {
        if *self.token() == Token::Close {
            self.next += 1;
            return Ok(());
        }
        if *self.token() == Token::End {
            return Err(Wrong::new(opened_at, "this parenthesis is not closed"));
        }
        Err(Wrong::new(self.at(), "an operator or a closing parenthesis is expected here"))
    }

    fn named(&mut self, at: usize, word: &str) -> Read<Operand> {
        if *self.token() == Token::Open {
            return self.call(at, word);
        }
        match word {
            "null" => return Ok(Operand::Null),
            "true" | "false" => {
                let is_true = Literal::Bool(word == "true");
                return self.make(at, Kind::Bool, Node::Literal(is_true));
            }
            _ => {}
        }
        let table = self.table;
        let Some(index) = table.find(word) else {
            let why = format!("table {:?} has no column {word:?}", table.name);
            return Err(Wrong::new(at, why));
        };
        self.make(at, table.columns[index].kind, Node::Column(index))
    }

    fn call(&mut self, at: usize, word: &str) -> Read<Operand> {
        let name = if word == "contains" { "substringof" } else { word };
        let Some(signature) = FUNCTIONS.iter().find(|signature| signature.name == name) else {
            return Err(Wrong::new(at, format!("there is no function {word:?}")));
        };
        self.next += 1;
        let open_at = at + word.len();
        let (mut arguments, mut places) = (Vec::new(), Vec::new());
        loop {
            let argument_at = self.at();
            let argument = self.deeper(Self::or)?;
            let Some(kind) = signature.takes.get(arguments.len()) else {
                return Err(count(argument_at, word, signature.takes.len()));
            };
            arguments.push(self.of_kind(argument_at, argument, *kind, word)?);
            places.push(argument_at);
            if *self.token() != Token::Comma {
                break;
            }
            self.next += 1;
        }
        self.close(open_at)?;
        if arguments.len() < signature.takes.len() - signature.optional {
            return Err(count(at, word, signature.takes.len() - signature.optional));
        }
        if word == "contains" {
            arguments.swap(0, 1);
        }
        constants(signature.function, &arguments, &places)?;
        self.make(at, signature.gives, Node::Call(signature.function, arguments))
    }
}

fn count(at: usize, word: &str, count: usize) -> Wrong {
    Wrong::new(at, format!("{word} takes {count} arguments"))
}

/// What has to be written out: the numbers of `substring`, and what `replace` puts in, which might
/// grow without end otherwise.
fn constants(function: Function, arguments: &[Expr], places: &[usize]) -> Read<()> {
    match function {
        Function::Substring => {
            for (argument, at) in arguments.iter().zip(places).skip(1) {
                let good = matches!(argument.node, Node::Literal(Literal::Int(0..=1_000_000_000)));
                if !good {
                    let why = "substring takes whole numbers from 0, written out";
                    return Err(Wrong::new(*at, why));
                }
            }
        }
        Function::Replace => {
            if arguments[..2].iter().any(|argument| argument.calls(Function::Replace)) {
                return Err(Wrong::new(places[0], "replace cannot be within replace"));
            }
            let good = matches!(&arguments[2].node, Node::Literal(Literal::Text(text))
                if text.chars().count() < REPLACEMENT_MAX);
            if !good {
                let why = format!("replace puts in a text, written out, below {REPLACEMENT_MAX}");
                return Err(Wrong::new(places[2], why));
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::odata::canonical;
    use crate::tables::testing::table;

    fn shown(text: &str) -> String {
        let table = table();
        match filter(text, &table) {
            Ok(expr) => canonical::text(&expr, &table),
            Err(wrong) => format!("{}: {}", wrong.at, wrong.why),
        }
    }

    #[test]
    fn operators_bind_as_odata_has_them() {
        for (text, want) in [
            ("done", "done"),
            ("rank eq 1 or done and not done", "(or (eq rank 1) (and done (not done)))"),
            ("not done eq true", "(eq (not done) true)"),
            ("1 add 2 mul 3 eq rank", "(eq (add 1 (mul 2 3)) rank)"),
            ("(1 add 2) mul 3 eq rank", "(eq (mul (add 1 2) 3) rank)"),
            ("rank  eq null", "(isnull rank)"),
            ("null ne text", "(notnull text)"),
            ("contains(text,'a')", "(substringof 'a' text)"),
            ("due gt '2026-01-01'", "(gt due datetime'2026-01-01T00:00:00.000Z')"),
            ("text eq 'it''s'", "(eq text 'it''s')"),
            ("substring(text, 1) eq 'a'", "(eq (substring text 1) 'a')"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn every_error_has_its_place() {
        for (text, want) in [
            ("", "0: something is missing at the end"),
            ("rank", "0: a filter is true or false, not a whole number"),
            ("nope eq 1", "0: table \"todo\" has no column \"nope\""),
            ("rank eq nope", "8: table \"todo\" has no column \"nope\""),
            ("frob(text) eq 1", "0: there is no function \"frob\""),
            ("length(rank) eq 1", "7: length takes text, and this is a whole number"),
            ("length(text, text) eq 1", "13: length takes 1 arguments"),
            ("concat(text) eq 'a'", "0: concat takes 2 arguments"),
            ("rank eq 'a'", "8: a whole number and text cannot be compared"),
            ("done gt true", "5: true and false are only compared with eq and ne"),
            ("rank gt null", "5: null is only compared with eq and ne"),
            ("(rank eq 1", "0: this parenthesis is not closed"),
            ("rank eq 1)", "9: this parenthesis closes nothing"),
            ("rank eq 1 rank", "10: \"rank\" is not expected here"),
            ("rank eq 1 2", "10: an operator is expected here"),
            ("length() eq 1", "7: a value, a column or a function is expected here"),
            (
                "substring(text, rank) eq 'a'",
                "16: substring takes whole numbers from 0, written out",
            ),
            (
                "replace(replace(text,'a','b'),'c','d') eq 'x'",
                "8: replace cannot be within replace",
            ),
            ("replace(text,'a',text) eq 'x'", "17: replace puts in a text, written out, below 100"),
            ("done and rank", "9: and takes true or false, and this is a whole number"),
            ("null", "0: null can only be compared, with eq or ne"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn limits_hold() {
        let deep = format!("{}done{}", "(".repeat(DEPTH_MAX + 1), ")".repeat(DEPTH_MAX + 1));
        assert!(shown(&deep).ends_with("levels deep at most"));
        assert!(shown(&format!("{}done", "not ".repeat(100))).ends_with("levels deep at most"));
        let long = vec!["done"; 400].join(" or ");
        assert!(shown(&long).ends_with("600 parts at most"), "{}", shown(&long));
        assert!(shown(&"x".repeat(BYTES_MAX + 1)).ends_with("8192 bytes at most"));
    }

    #[test]
    fn orders_are_lists() {
        let table = table();
        let read = orders("rank desc, text,length(text) asc", &table).expect("an order");
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].direction, Direction::Descending);
        assert_eq!(orders("rank down", &table).expect_err("no direction").at, 5);
        assert_eq!(orders("rank,", &table).expect_err("a missing key").at, 5);
    }

    proptest::proptest! {
        #[test]
        fn no_text_takes_it_down(words in proptest::collection::vec(0usize..WORDS.len(), 0..60),
            at in 0usize..200, letter in proptest::prelude::any::<char>())
        {
            let table = table();
            let mut text: String = words.iter().map(|word| WORDS[*word]).collect();
            for _ in 0..2 {
                match filter(&text, &table) {
                    Err(wrong) => proptest::prop_assert!(text.is_char_boundary(wrong.at)),
                    Ok(expr) => check(&expr, &table)?,
                }
                let _ = orders(&text, &table);
                let place = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
                text.insert(place.unwrap_or(0), letter);
            }
        }
    }

    const WORDS: &[&str] = &[
        "(",
        ")",
        ",",
        " ",
        "'a'",
        "'",
        "rank",
        "text",
        "done",
        "due",
        " eq ",
        " ne ",
        " and ",
        " or ",
        "not ",
        "null",
        "true",
        "1",
        "-2.5",
        "length(",
        "concat(",
        "round(",
        "year(",
        " add ",
        " mod ",
        "datetime'2026-01-01'",
        "substring(",
        "replace(",
        "substringof(",
        "é",
    ];

    /// What is read has a canonical text that says whether it is the same, and SQL that has nothing
    /// of a client's in it.
    fn check(expr: &Expr, table: &Table) -> Result<(), proptest::test_runner::TestCaseError> {
        use crate::database::Dialect;
        use crate::tables::odata::sql::Sql;
        proptest::prop_assert!(!canonical::text(expr, table).is_empty());
        for dialect in [Dialect::Sqlite, Dialect::Mysql, Dialect::Postgres] {
            let mut sql = Sql::new(table, dialect);
            sql.expr(expr);
            proptest::prop_assert_eq!(sql.text.matches('?').count(), sql.values.len());
            proptest::prop_assert!(sql.text.is_ascii());
        }
        Ok(())
    }
}
