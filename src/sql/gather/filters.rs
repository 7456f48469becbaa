//! Conditions of WHERE that can be evaluated before rows are gathered: a column compared with constants or parameters.
//!
//! Such a comparison cannot fail, reads nothing but its row, and removes only rows that the WHERE would remove anyway: it stands
//! in a conjunction at the level of a table that is not on the nullable side of a join. Everything else stays where it is.

use pg_raw_parse::{ConstValue, Node, nodes};

use crate::catalog::Relation;
use crate::shard_key::{Oid, oid};
use crate::sql::tree;

/// A conjunct of one query level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Tables of this level whose rows the WHERE filters: indexes in the survey's relations.
    pub relations: Vec<usize>,
    /// There is no other item in FROM, so that a column without a qualifier is this table's.
    pub is_sole: bool,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Compare { column: ColumnName, operator: &'static str, value: Value },
    In { column: ColumnName, values: Vec<Value>, is_negated: bool },
    Null { column: ColumnName, is_negated: bool },
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnName {
    pub qualifier: Option<String>,
    pub name: String,
}

/// What a column is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(String),
    Text(String),
    Bool(bool),
    Parameter(u16),
}

/// A condition as SQL, with places for the values of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Sql(String),
    Parameter(u16),
}

/// A conjunct that has this form.
pub fn condition(node: Node<'_>) -> Option<Condition> {
    within(node, 0)
}

fn within(node: Node<'_>, depth: usize) -> Option<Condition> {
    if depth == DEPTH_MAX {
        return None;
    }
    match node {
        Node::BoolExpr(e) => {
            let parts: Option<Vec<Condition>> = e.args().iter().map(|part| within(part, depth + 1)).collect();
            let mut parts = parts?;
            Some(match e.boolop {
                nodes::BoolExprType::AND_EXPR => Condition::And(parts),
                nodes::BoolExprType::OR_EXPR => Condition::Or(parts),
                _ => Condition::Not(Box::new(parts.pop()?)),
            })
        }
        Node::NullTest(e) => {
            let is_negated = e.nulltesttype == nodes::NullTestType::IS_NOT_NULL;
            Some(Condition::Null { column: column(e.arg())?, is_negated })
        }
        Node::A_Expr(e) => comparison(e),
        _ => None,
    }
}

fn comparison(e: &nodes::A_Expr) -> Option<Condition> {
    use nodes::A_Expr_Kind as Kind;
    let name = tree::single_name(e.name())?;
    match e.kind {
        Kind::AEXPR_OP => {
            let operators = [("=", "="), ("<>", "<>"), ("<", ">"), ("<=", ">="), (">", "<"), (">=", "<=")];
            let (operator, turned) = operators.into_iter().find(|(operator, _)| *operator == name)?;
            match (column(e.lexpr()), column(e.rexpr())) {
                (Some(column), None) => Some(Condition::Compare { column, operator, value: value(e.rexpr())? }),
                (None, Some(column)) => Some(Condition::Compare { column, operator: turned, value: value(e.lexpr())? }),
                (Some(_), Some(_)) | (None, None) => None,
            }
        }
        Kind::AEXPR_IN if matches!(name, "=" | "<>") => {
            let values: Option<Vec<Value>> = e.rexpr().as_node_list()?.iter().map(value).collect();
            Some(Condition::In { column: column(e.lexpr())?, values: values?, is_negated: name == "<>" })
        }
        Kind::AEXPR_BETWEEN => {
            let [low, high] = <[Node<'_>; 2]>::try_from(e.rexpr().as_node_list()?.iter().collect::<Vec<_>>()).ok()?;
            let column = column(e.lexpr())?;
            let bound = |operator, value| Condition::Compare { column: column.clone(), operator, value };
            Some(Condition::And(vec![bound(">=", value(low)?), bound("<=", value(high)?)]))
        }
        _ => None,
    }
}

pub fn column(node: Node<'_>) -> Option<ColumnName> {
    let Node::ColumnRef(column) = node else { return None };
    match tree::names(column.fields())?.as_slice() {
        [name] => Some(ColumnName { qualifier: None, name: (*name).to_owned() }),
        [table, name] => Some(ColumnName { qualifier: Some((*table).to_owned()), name: (*name).to_owned() }),
        _ => None,
    }
}

fn value(node: Node<'_>) -> Option<Value> {
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
        _ => None,
    }
}

impl Condition {
    /// Every column in it.
    pub fn columns(&self) -> Vec<&ColumnName> {
        match self {
            Condition::Compare { column, .. } | Condition::In { column, .. } | Condition::Null { column, .. } => vec![column],
            Condition::And(parts) | Condition::Or(parts) => parts.iter().flat_map(Condition::columns).collect(),
            Condition::Not(part) => part.columns(),
        }
    }

    /// As SQL over a table without an alias; `None` when it may mean something else on another server, by the columns' types.
    pub fn to_sql(&self, relation: &Relation) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        self.put(relation, &mut pieces)?;
        Some(pieces)
    }

    fn put(&self, relation: &Relation, pieces: &mut Vec<Piece>) -> Option<()> {
        let comparable = |name: &ColumnName, is_order: bool| {
            let column = relation.column(&name.name).filter(|column| COMPARED.contains(&column.type_oid))?;
            // Shards may have other versions of a linguistic collation; equality is bytewise in all of them.
            let is_alike = column.is_deterministic && (!is_order || column.is_collation_c);
            (is_alike || !TEXTS.contains(&column.type_oid)).then(|| (super::splicing::quoted(&name.name), column.type_oid))
        };
        let sql = |text: String| Piece::Sql(text);
        match self {
            Condition::Compare { column, operator, value } => {
                let (name, type_oid) = comparable(column, !matches!(*operator, "=" | "<>"))?;
                pieces.extend([sql(format!("{name} OPERATOR(pg_catalog.{operator}) ")), value.to_piece(type_oid)?]);
            }
            Condition::In { column, values, is_negated } => {
                let (name, type_oid) = comparable(column, false)?;
                pieces.push(sql(format!("{name}{} IN (", if *is_negated { " NOT" } else { "" })));
                for (index, value) in values.iter().enumerate() {
                    pieces.extend((index > 0).then(|| sql(", ".to_owned())));
                    pieces.push(value.to_piece(type_oid)?);
                }
                pieces.push(sql(")".to_owned()));
            }
            Condition::Null { column, is_negated } => {
                // Of a composite it asks for the fields.
                let (name, _) = comparable(column, false)?;
                pieces.push(sql(format!("{name} IS{} NULL", if *is_negated { " NOT" } else { "" })));
            }
            Condition::And(parts) | Condition::Or(parts) => {
                let word = if matches!(self, Condition::And(_)) { " AND " } else { " OR " };
                for (index, part) in parts.iter().enumerate() {
                    pieces.push(sql(if index == 0 { "(" } else { word }.to_owned()));
                    part.put(relation, pieces)?;
                }
                pieces.push(sql(")".to_owned()));
            }
            Condition::Not(part) => {
                pieces.push(sql("(NOT ".to_owned()));
                part.put(relation, pieces)?;
                pieces.push(sql(")".to_owned()));
            }
        }
        Some(())
    }
}

impl Value {
    fn to_piece(&self, type_oid: Oid) -> Option<Piece> {
        Some(Piece::Sql(match self {
            Value::Parameter(number) => return Some(Piece::Parameter(*number)),
            // In parentheses: a minus sign is not an operator here.
            Value::Number(number) => format!("({number})"),
            Value::Bool(value) => value.to_string(),
            // Words in dates and times: the clock, names of zones and months.
            Value::Text(text) if TIMES.contains(&type_oid) && text.bytes().any(|byte| byte.is_ascii_alphabetic()) => return None,
            Value::Text(text) => literal(text),
        }))
    }
}

/// A string literal that means the same under either setting of `standard_conforming_strings`.
pub fn literal(text: &str) -> String {
    let prefix = if text.contains('\\') { "E" } else { "" };
    format!("{prefix}'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

const DEPTH_MAX: usize = 16;
const FLOAT4: Oid = 700;
const FLOAT8: Oid = 701;
const TEXTS: [Oid; 3] = [oid::TEXT, oid::VARCHAR, oid::BPCHAR];
const TIMES: [Oid; 3] = [oid::DATE, oid::TIMESTAMP, oid::TIMESTAMPTZ];
/// Comparisons of these cannot fail, and a constant is read alike everywhere.
pub const COMPARED: [Oid; 14] = [
    oid::BOOL,
    oid::INT2,
    oid::INT4,
    oid::INT8,
    FLOAT4,
    FLOAT8,
    oid::NUMERIC,
    oid::TEXT,
    oid::VARCHAR,
    oid::BPCHAR,
    oid::UUID,
    oid::DATE,
    oid::TIMESTAMP,
    oid::TIMESTAMPTZ,
];
