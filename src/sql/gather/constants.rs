//! Constants that conditions compare columns with, days and spans of time among them.

use pg_raw_parse::{ConstValue, Node, nodes};

use crate::catalog::quoted_literal;
use crate::sql::parse::tree;

/// What a column is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(String),
    Text(String),
    Bool(bool),
    Parameter(u16),
    /// SQL of type date or timestamp, which no setting reads otherwise.
    Day(String),
    Interval(String),
}

/// A constant that means the same on every server, or a parameter.
pub fn value(node: Node<'_>) -> Option<Value> {
    match node {
        Node::ParamRef(parameter) => u16::try_from(parameter.number).ok().map(Value::Parameter),
        Node::A_Const(constant) if !constant.isnull => match constant.val()? {
            ConstValue::Integer(number) => Some(Value::Number(number.to_string())),
            ConstValue::Float(text) if text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte)) => {
                Some(Value::Number(text.to_owned()))
            }
            ConstValue::String(text) => Some(Value::Text(text.to_owned())),
            ConstValue::Boolean(value) => Some(Value::Bool(value)),
            _ => None,
        },
        Node::TypeCast(cast) => typed(cast),
        Node::A_Expr(e) => sum(e),
        _ => None,
    }
}

/// `date '2024-01-31'`, `interval '3' month`.
fn typed(cast: &nodes::TypeCast) -> Option<Value> {
    let Some(Value::Text(text)) = value(cast.arg()).filter(|_| matches!(cast.arg(), Node::A_Const(_))) else { return None };
    let name = cast.type_name()?;
    let names: Vec<&str> = name.names().iter().filter_map(|part| part.sval()).collect();
    let type_name = match names.as_slice() {
        ["pg_catalog", name] | [name] => *name,
        _ => return None,
    };
    if !name.array_bounds().is_empty() || name.setof {
        return None;
    }
    match (type_name, name.typmods().iter().collect::<Vec<_>>().as_slice()) {
        ("date", []) if is_day(&text) => Some(Value::Day(format!("{}::pg_catalog.date", quoted_literal(&text)))),
        ("timestamp", []) if is_day(&text) => Some(Value::Day(format!("{}::pg_catalog.timestamp", quoted_literal(&text)))),
        ("interval", []) => span(&text, None),
        ("interval", [Node::A_Const(mask)]) => match mask.val()? {
            ConstValue::Integer(mask) => span(&text, UNITS.iter().find(|(_, bit)| *bit == mask).map(|(unit, _)| *unit)),
            _ => None,
        },
        _ => None,
    }
}

/// Year, month, day, as no DateStyle reads it otherwise.
fn is_day(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = bytes.iter().enumerate().all(|(place, byte)| match place {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    bytes.len() == 10 && digits
}

/// A number of one unit: `'3' month`, `'90 days'`.
fn span(text: &str, unit: Option<&'static str>) -> Option<Value> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let written = rest.trim().trim_end_matches('s');
    let unit = match unit {
        Some(unit) if rest.is_empty() => unit,
        Some(_) => return None,
        None => UNITS.iter().find(|(unit, _)| *unit == written)?.0,
    };
    let is_short = (1..=DIGITS_MAX).contains(&number.len());
    is_short.then(|| Value::Interval(format!("'{number} {unit}'::pg_catalog.interval")))
}

/// A sum or difference of constants.
fn sum(e: &nodes::A_Expr) -> Option<Value> {
    let operator = tree::single_name(e.name()).filter(|name| matches!(*name, "+" | "-"))?;
    if e.kind != nodes::A_Expr_Kind::AEXPR_OP {
        return None;
    }
    // Not of sums again: texts of many thousand terms nest as deep.
    let term = |node| value(node).filter(|_| !matches!(node, Node::A_Expr(_)));
    match (term(e.lexpr())?, term(e.rexpr())?) {
        (Value::Number(left), Value::Number(right)) => {
            Some(Value::Number(format!("({left}) OPERATOR(pg_catalog.{operator}) ({right})")))
        }
        (Value::Day(day), Value::Interval(span)) => Some(Value::Day(format!("({day} OPERATOR(pg_catalog.{operator}) {span})"))),
        _ => None,
    }
}

/// With the bits by which the grammar tells them.
const UNITS: [(&str, i32); 3] = [("month", 1 << 1), ("year", 1 << 2), ("day", 1 << 3)];
/// Far from where a date would be out of range.
const DIGITS_MAX: usize = 4;
