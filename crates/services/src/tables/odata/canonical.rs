//! An expression as text that is the same for expressions that mean the same: blanks, parentheses
//! and the ways to write a value are gone.

use std::fmt::Write;

use super::expr::{Expr, Literal, Node, Sense};
use super::parse::{Direction, Order};
use crate::tables::date;
use crate::tables::schema::Table;

/// The text of an expression.
pub fn text(expr: &Expr, table: &Table) -> String {
    let mut out = String::new();
    write_expr(&mut out, expr, table);
    out
}

/// Adds the keys of an `$orderby`.
pub fn write_orders(out: &mut String, orders: &[Order], table: &Table) {
    for (index, order) in orders.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_expr(out, &order.by, table);
        if order.direction == Direction::Descending {
            out.push_str(" desc");
        }
    }
}

/// Adds the text of an expression.
pub fn write_expr(out: &mut String, expr: &Expr, table: &Table) {
    let mut list = |word: &str, parts: &[&Expr]| {
        let _ = write!(out, "({word}");
        for part in parts {
            out.push(' ');
            write_expr(out, part, table);
        }
        out.push(')');
    };
    match &expr.node {
        Node::Literal(literal) => write_literal(out, literal),
        Node::Column(index) => out.push_str(&table.columns[*index].name),
        Node::Compare(op, a, b) => list(op.word(), &[a, b]),
        Node::IsNull(Sense::Is, inner) => list("isnull", &[inner]),
        Node::IsNull(Sense::IsNot, inner) => list("notnull", &[inner]),
        Node::And(a, b) => list("and", &[a, b]),
        Node::Or(a, b) => list("or", &[a, b]),
        Node::Not(inner) => list("not", &[inner]),
        Node::Arithmetic(op, a, b) => list(op.word(), &[a, b]),
        Node::Call(function, arguments) => {
            list(function.signature().name, &arguments.iter().collect::<Vec<_>>());
        }
    }
}

fn write_literal(out: &mut String, literal: &Literal) {
    let _ = match literal {
        Literal::Text(text) => write!(out, "'{}'", text.replace('\'', "''")),
        Literal::Int(number) => write!(out, "{number}"),
        Literal::Real(number) => write!(out, "{number:?}"),
        Literal::Bool(is_true) => write!(out, "{is_true}"),
        Literal::Date(ms) => write!(out, "datetime'{}'", date::text(*ms)),
    };
}
