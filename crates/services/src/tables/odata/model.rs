//! Expressions worked out on a row in memory: plain, slow, and what the databases have to agree
//! with.

use std::cmp::Ordering;

use super::expr::{Arithmetic, Compare, Expr, Function, Literal, Node, Sense};
use super::parse::{Direction, Order};
use crate::tables::date;

/// A value in a row, null if there is none.
pub type Cell = Option<Literal>;

fn number(literal: &Literal) -> f64 {
    match literal {
        Literal::Int(number) => *number as f64,
        Literal::Real(number) => *number,
        _ => f64::NAN,
    }
}

/// How two values of a type are sorted.
fn order(a: &Literal, b: &Literal) -> Ordering {
    match (a, b) {
        (Literal::Text(a), Literal::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Literal::Bool(a), Literal::Bool(b)) => a.cmp(b),
        (Literal::Date(a), Literal::Date(b)) => a.cmp(b),
        (Literal::Int(a), Literal::Int(b)) => a.cmp(b),
        (a, b) => number(a).partial_cmp(&number(b)).unwrap_or(Ordering::Equal),
    }
}

/// Whether a filter is true, false or unknown on a row.
pub fn truth(expr: &Expr, row: &[Cell]) -> Option<bool> {
    match value(expr, row)? {
        Literal::Bool(is_true) => Some(is_true),
        _ => None,
    }
}

/// How two rows are sorted; by `id`, the first column, in the end.
pub fn sorted(orders: &[Order], a: &[Cell], b: &[Cell]) -> Ordering {
    for key in orders {
        let ordering = cells(&value(&key.by, a), &value(&key.by, b));
        let ordering = match key.direction {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    cells(&a[0], &b[0])
}

fn cells(a: &Cell, b: &Cell) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => order(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// What an expression is on a row.
pub fn value(expr: &Expr, row: &[Cell]) -> Cell {
    match &expr.node {
        Node::Literal(literal) => Some(literal.clone()),
        Node::Column(index) => row[*index].clone(),
        Node::Compare(op, a, b) => {
            let ordering = order(&value(a, row)?, &value(b, row)?);
            Some(Literal::Bool(match op {
                Compare::Eq => ordering.is_eq(),
                Compare::Ne => ordering.is_ne(),
                Compare::Gt => ordering.is_gt(),
                Compare::Ge => ordering.is_ge(),
                Compare::Lt => ordering.is_lt(),
                Compare::Le => ordering.is_le(),
            }))
        }
        Node::IsNull(sense, inner) => {
            Some(Literal::Bool(value(inner, row).is_none() == (*sense == Sense::Is)))
        }
        Node::And(a, b) => match (truth(a, row), truth(b, row)) {
            (Some(false), _) | (_, Some(false)) => Some(Literal::Bool(false)),
            (a, b) => Some(Literal::Bool(a? && b?)),
        },
        Node::Or(a, b) => match (truth(a, row), truth(b, row)) {
            (Some(true), _) | (_, Some(true)) => Some(Literal::Bool(true)),
            (a, b) => Some(Literal::Bool(a? || b?)),
        },
        Node::Not(inner) => Some(Literal::Bool(!truth(inner, row)?)),
        Node::Arithmetic(op, a, b) => {
            arithmetic(*op, number(&value(a, row)?), number(&value(b, row)?))
        }
        Node::Call(function, arguments) => {
            let arguments: Option<Vec<Literal>> =
                arguments.iter().map(|argument| value(argument, row)).collect();
            Some(call(*function, &arguments?))
        }
    }
}

fn arithmetic(op: Arithmetic, a: f64, b: f64) -> Cell {
    let result = match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div if b == 0.0 => return None,
        Arithmetic::Div => a / b,
        Arithmetic::Mod if b == 0.0 => return None,
        Arithmetic::Mod => a % b,
    };
    Some(Literal::Real(result))
}

fn text(literal: &Literal) -> &str {
    if let Literal::Text(text) = literal { text } else { "" }
}

fn call(function: Function, arguments: &[Literal]) -> Literal {
    let first = &arguments[0];
    let count = |literal: Option<&Literal>| match literal {
        Some(Literal::Int(number)) => *number as usize,
        _ => usize::MAX,
    };
    let civil = || date::civil(if let Literal::Date(ms) = first { *ms } else { 0 });
    match function {
        Function::SubstringOf => Literal::Bool(text(&arguments[1]).contains(text(first))),
        Function::StartsWith => Literal::Bool(text(first).starts_with(text(&arguments[1]))),
        Function::EndsWith => Literal::Bool(text(first).ends_with(text(&arguments[1]))),
        Function::Concat => Literal::Text([text(first), text(&arguments[1])].concat()),
        Function::ToLower => Literal::Text(text(first).to_lowercase()),
        Function::ToUpper => Literal::Text(text(first).to_uppercase()),
        Function::Length => Literal::Int(text(first).chars().count() as i64),
        Function::Trim => Literal::Text(text(first).trim_matches(' ').to_string()),
        Function::IndexOf => {
            let at = text(first).find(text(&arguments[1]));
            let letters = at.map(|at| text(first)[..at].chars().count() as i64);
            Literal::Int(letters.unwrap_or(-1))
        }
        Function::Replace if text(&arguments[1]).is_empty() => first.clone(),
        Function::Replace => {
            Literal::Text(text(first).replace(text(&arguments[1]), text(&arguments[2])))
        }
        Function::Substring => {
            let (from, len) = (count(arguments.get(1)), count(arguments.get(2)));
            Literal::Text(text(first).chars().skip(from).take(len).collect())
        }
        Function::Year => Literal::Int(civil().year),
        Function::Month => Literal::Int(civil().month),
        Function::Day => Literal::Int(civil().day),
        Function::Hour => Literal::Int(civil().hour),
        Function::Minute => Literal::Int(civil().minute),
        Function::Second => Literal::Int(civil().second),
        Function::Floor => Literal::Real(number(first).floor()),
        Function::Ceiling => Literal::Real(number(first).ceil()),
        Function::Round => Literal::Real(number(first).round()),
    }
}
