//! Conditions that can be evaluated before rows are gathered: a column compared with constants, parameters, or a column beside it.
//!
//! Such a comparison, by operators of PostgreSQL's own or of the extension that has the column's type, cannot fail, reads nothing but its row, and removes only rows that the statement would remove anyway: it
//! stands in a conjunction of WHERE, at the level of a table that is not on the nullable side of a join, or in the ON of a join,
//! for the sides that this ON filters. Of a condition over several tables each gets what follows for its own rows: of `(a.x = 1
//! AND b.y = 2) OR (a.x = 3 AND b.y = 4)` the table `a` gets `x = 1 OR x = 3`. Everything else stays where it is.

use pg_raw_parse::{Node, nodes};

use super::Keys;
use super::constants::{Value, value};
use crate::catalog::{Catalog, Column, Relation, quoted_identifier, quoted_literal};
use crate::shard_key::{Oid, oid};
use crate::sql::parse::tree;

/// A conjunct of one query level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Tables of this level whose rows it filters: indexes in the survey's relations.
    pub relations: Vec<usize>,
    /// Columns without a qualifier mean those of the tables of this level that have them, if any has.
    pub unqualified: Unqualified,
    pub condition: Condition,
}

/// What a column without a qualifier may mean at one level of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unqualified {
    /// The column of the table that has one of this name; were there two, PostgreSQL would refuse the statement. Not these, which
    /// USING has merged.
    Own { merged: Vec<String> },
    /// NATURAL joins: anything.
    Unknown,
    /// Aliases of joins, which hide the tables below them: their names too may be those of tables around the level.
    Hidden,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Compare {
        column: ColumnName,
        operator: &'static str,
        value: Value,
    },
    /// Of two columns of one row.
    Pair {
        left: ColumnName,
        operator: &'static str,
        right: ColumnName,
    },
    In {
        column: ColumnName,
        values: Vec<Value>,
        is_negated: bool,
    },
    Like {
        column: ColumnName,
        pattern: String,
        is_negated: bool,
    },
    Null {
        column: ColumnName,
        is_negated: bool,
    },
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    /// Anything else.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnName {
    pub qualifier: Option<String>,
    pub name: String,
}

/// A condition as SQL, with places for the values of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Sql(String),
    Parameter(u16),
    /// The same, which is of this type or the condition means another one.
    Typed(u16, Oid),
    /// After a column: its value is among these.
    Keys(Keys),
}

/// A conjunct, as far as it has this form.
pub fn condition(node: Node<'_>) -> Condition {
    within(node, 0).unwrap_or(Condition::Unknown)
}

fn within(node: Node<'_>, depth: usize) -> Option<Condition> {
    if depth == DEPTH_MAX {
        return None;
    }
    match node {
        Node::BoolExpr(e) => {
            let part = |part| within(part, depth + 1).unwrap_or(Condition::Unknown);
            let mut parts: Vec<Condition> = e.args().iter().map(part).collect();
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
                (Some(left), Some(right)) => Some(Condition::Pair { left, operator, right }),
                (None, None) => None,
            }
        }
        Kind::AEXPR_IN if matches!(name, "=" | "<>") => {
            let values: Option<Vec<Value>> = e.rexpr().as_node_list()?.iter().map(value).collect();
            Some(Condition::In { column: column(e.lexpr())?, values: values?, is_negated: name == "<>" })
        }
        // A pattern that ends in an escape is an error, for the rows that come to it.
        Kind::AEXPR_LIKE if matches!(name, "~~" | "!~~") => match value(e.rexpr())? {
            Value::Text(pattern) if !pattern.contains('\\') => {
                Some(Condition::Like { column: column(e.lexpr())?, pattern, is_negated: name == "!~~" })
            }
            _ => None,
        },
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

/// Writes conditions over one table, without an alias.
pub struct Writer<'r> {
    pub relation: &'r Relation,
    /// The name by which columns may be qualified.
    pub name: &'r str,
    pub unqualified: &'r Unqualified,
    /// `date`, `timestamp` and `interval` are PostgreSQL's own types.
    pub has_plain_types: bool,
    pub catalog: &'r Catalog,
    /// In which operators are looked for.
    pub search_path: &'r [String],
}

/// A column whose values are compared alike on every shard.
struct Compared<'r> {
    column: &'r Column,
    /// Under domains.
    type_oid: Oid,
    /// Of its operators; `None`: `pg_catalog`.
    schema: Option<&'r str>,
}

impl Compared<'_> {
    fn name(&self) -> String {
        quoted_identifier(&self.column.name)
    }

    fn operator(&self, operator: &str) -> String {
        let schema = self.schema.map_or("pg_catalog".to_owned(), quoted_identifier);
        format!("OPERATOR({schema}.{operator})")
    }
}

impl Writer<'_> {
    /// What must be true of a row of the table for the condition to be true; `None` when that is nothing, or may mean something
    /// else on another server.
    pub fn implied(&self, condition: &Condition) -> Option<Vec<Piece>> {
        match condition {
            Condition::And(parts) => joined(" AND ", parts.iter().filter_map(|part| self.implied(part)).collect()),
            Condition::Or(parts) => joined(" OR ", parts.iter().map(|part| self.implied(part)).collect::<Option<_>>()?),
            Condition::Compare { .. }
            | Condition::Pair { .. }
            | Condition::In { .. }
            | Condition::Like { .. }
            | Condition::Null { .. }
            | Condition::Not(_)
            | Condition::Unknown => self.exact(condition),
        }
    }

    /// The condition is an equality of a column with constants, or one follows from it.
    pub fn pins(&self, condition: &Condition) -> bool {
        match condition {
            Condition::And(parts) => parts.iter().any(|part| self.pins(part)),
            Condition::Or(parts) => !parts.is_empty() && parts.iter().all(|part| self.pins(part)),
            Condition::Compare { operator: "=", .. } | Condition::In { is_negated: false, .. } => self.exact(condition).is_some(),
            Condition::Compare { .. }
            | Condition::Pair { .. }
            | Condition::In { .. }
            | Condition::Like { .. }
            | Condition::Null { .. }
            | Condition::Not(_)
            | Condition::Unknown => false,
        }
    }

    /// The condition itself.
    fn exact(&self, condition: &Condition) -> Option<Vec<Piece>> {
        let sql = |text: String| Piece::Sql(text);
        Some(match condition {
            Condition::Compare { column, operator, value } => {
                let column = self.comparable(column, !matches!(*operator, "=" | "<>"))?;
                vec![sql(format!("{} {} ", column.name(), column.operator(operator))), self.value(value, column.type_oid)?]
            }
            Condition::Pair { left, operator, right } => {
                let is_order = !matches!(*operator, "=" | "<>");
                let (left, right) = (self.comparable(left, is_order)?, self.comparable(right, is_order)?);
                let is_alike = left.column.type_oid == right.column.type_oid
                    && left.column.collation == right.column.collation
                    && COMPARED.contains(&left.column.type_oid);
                let text = format!("{} {} {}", left.name(), left.operator(operator), right.name());
                is_alike.then(|| vec![sql(text)])?
            }
            Condition::In { column, values, is_negated } => {
                let column = self.comparable(column, false)?;
                let mut pieces = vec![sql(format!("{}{} IN (", column.name(), if *is_negated { " NOT" } else { "" }))];
                for (index, value) in values.iter().enumerate() {
                    pieces.extend((index > 0).then(|| sql(", ".to_owned())));
                    pieces.push(self.value(value, column.type_oid)?);
                }
                pieces.push(sql(")".to_owned()));
                pieces
            }
            Condition::Like { column, pattern, is_negated } => {
                let column = self.comparable(column, false).filter(|column| TEXTS.contains(&column.type_oid))?;
                let operator = if *is_negated { "!~~" } else { "~~" };
                vec![sql(format!("{} {} {}", column.name(), column.operator(operator), quoted_literal(pattern)))]
            }
            Condition::Null { column, is_negated } => {
                // Of a composite it asks for the fields.
                let column = self.comparable(column, false)?;
                vec![sql(format!("{} IS{} NULL", column.name(), if *is_negated { " NOT" } else { "" }))]
            }
            Condition::And(parts) => joined(" AND ", parts.iter().map(|part| self.exact(part)).collect::<Option<_>>()?)?,
            Condition::Or(parts) => joined(" OR ", parts.iter().map(|part| self.exact(part)).collect::<Option<_>>()?)?,
            Condition::Not(part) => {
                let mut pieces = vec![sql("(NOT ".to_owned())];
                pieces.extend(self.exact(part)?);
                pieces.push(sql(")".to_owned()));
                pieces
            }
            Condition::Unknown => return None,
        })
    }

    /// The table's column of this name, when its values are compared alike on every shard.
    fn comparable(&self, name: &ColumnName, is_order: bool) -> Option<Compared<'_>> {
        let is_meant = match (&name.qualifier, self.unqualified) {
            (_, Unqualified::Hidden) | (None, Unqualified::Unknown) => false,
            (Some(qualifier), _) => qualifier == self.name,
            (None, Unqualified::Own { merged }) => !merged.contains(&name.name),
        };
        let column = self.relation.column(&name.name).filter(|_| is_meant)?;
        let type_oid = self.catalog.under_domains(column.type_oid);
        if COMPARED.contains(&type_oid) {
            // Shards may have other versions of a linguistic collation; equality is bytewise in all of them.
            let is_alike = column.is_deterministic && (!is_order || column.is_collation_c);
            let compared = Compared { column, type_oid, schema: None };
            return (is_alike || !TEXTS.contains(&type_oid)).then_some(compared);
        }
        let is_enum = self.catalog.types.get(&type_oid).is_some_and(|known| known.kind == 'e');
        let schema = self.catalog.extension_equalities.get(&type_oid).map(String::as_str);
        // Users have made no operator of the name, which might be meant.
        let is_own = ["=", "<>"].iter().all(|operator| !self.catalog.operator_functions.contains_key(*operator));
        let is_found = is_enum || schema.is_some_and(|schema| self.search_path.iter().any(|searched| searched == schema));
        (is_own && is_found && !is_order && column.is_deterministic).then_some(Compared { column, type_oid, schema })
    }

    fn value(&self, value: &Value, type_oid: Oid) -> Option<Piece> {
        let is_of_postgresql = COMPARED.contains(&type_oid);
        Some(Piece::Sql(match value {
            Value::Parameter(number) if !is_of_postgresql => return Some(Piece::Typed(*number, type_oid)),
            Value::Text(text) if !is_of_postgresql => quoted_literal(text),
            _ if !is_of_postgresql => return None,
            Value::Parameter(number) => return Some(Piece::Parameter(*number)),
            // In parentheses: a minus sign is not an operator here.
            Value::Number(number) => format!("({number})"),
            Value::Bool(value) => value.to_string(),
            // Words in dates and times: the clock, names of zones and months.
            Value::Text(text) if TIMES.contains(&type_oid) && text.bytes().any(|byte| byte.is_ascii_alphabetic()) => return None,
            Value::Text(text) => quoted_literal(text),
            // With a time zone it would hang on a setting.
            Value::Day(sql) if self.has_plain_types && matches!(type_oid, oid::DATE | oid::TIMESTAMP) => sql.clone(),
            Value::Day(_) | Value::Interval(_) => return None,
        }))
    }
}

/// In parentheses.
fn joined(word: &str, parts: Vec<Vec<Piece>>) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        pieces.push(Piece::Sql(if index == 0 { "(" } else { word }.to_owned()));
        pieces.extend(part);
    }
    if pieces.is_empty() {
        return None;
    }
    pieces.push(Piece::Sql(")".to_owned()));
    Some(pieces)
}

/// The value of the column is among the rows of a query of one column.
pub fn among(column: String, query: Vec<Piece>) -> Vec<Piece> {
    let mut pieces = vec![Piece::Sql(column), Piece::Sql(AMONG.to_owned())];
    pieces.extend(query);
    pieces.push(Piece::Sql(")".to_owned()));
    pieces
}

/// The column and the query of [`among`].
fn as_among(condition: &[Piece]) -> Option<(&Piece, &[Piece])> {
    match condition {
        [column, Piece::Sql(among), query @ .., _] if among == AMONG => Some((column, query)),
        _ => None,
    }
}

/// What must be true of a row that one of several readers needs. `uses`: what each needs to be true, all of it.
///
/// A query never stands below OR: it would no longer be a join, but be run again for every row where its rows are too many to
/// keep in memory. Queries of one column become one query, others say nothing.
pub fn any_of(uses: &[Vec<Vec<Piece>>]) -> Vec<Vec<Piece>> {
    let Some((first, others)) = uses.split_first() else { return Vec::new() };
    let is_shared = |condition: &Vec<Piece>| others.iter().all(|conditions| conditions.contains(condition));
    let (mut all, _): (Vec<_>, Vec<_>) = first.iter().cloned().partition(is_shared);
    let differing = |conditions: &Vec<Vec<Piece>>| conditions.iter().filter(|c| !all.contains(c)).cloned().collect::<Vec<_>>();
    let differing: Vec<Vec<Vec<Piece>>> = uses.iter().map(differing).collect();
    let plain = |conditions: &Vec<Vec<Piece>>| {
        joined(" AND ", conditions.iter().filter(|condition| as_among(condition).is_none()).cloned().collect())
    };
    all.extend(differing.iter().map(plain).collect::<Option<_>>().and_then(|parts| joined(" OR ", parts)));
    all.extend(among_any(&differing));
    all
}

/// Each of the uses asks for a column's value to be in a query: it is in one of them.
fn among_any(uses: &[Vec<Vec<Piece>>]) -> Option<Vec<Piece>> {
    let (column, _) = uses.first()?.iter().find_map(|condition| as_among(condition))?;
    let mut query: Vec<Piece> = Vec::new();
    for conditions in uses {
        let (_, rows) = conditions.iter().filter_map(|condition| as_among(condition)).find(|(own, _)| *own == column)?;
        if !query.is_empty() {
            query.push(Piece::Sql(" UNION ALL ".to_owned()));
        }
        query.extend(rows.iter().cloned());
    }
    match column {
        Piece::Sql(column) => Some(among(column.clone(), query)),
        Piece::Parameter(_) | Piece::Typed(..) | Piece::Keys(_) => None,
    }
}

const AMONG: &str = " IN (";
const DEPTH_MAX: usize = 16;
pub const TEXTS: [Oid; 3] = [oid::TEXT, oid::VARCHAR, oid::BPCHAR];
const TIMES: [Oid; 3] = [oid::DATE, oid::TIMESTAMP, oid::TIMESTAMPTZ];
/// Comparisons of these cannot fail, and a constant is read alike everywhere.
pub const COMPARED: [Oid; 14] = [
    oid::BOOL,
    oid::INT2,
    oid::INT4,
    oid::INT8,
    oid::FLOAT4,
    oid::FLOAT8,
    oid::NUMERIC,
    oid::TEXT,
    oid::VARCHAR,
    oid::BPCHAR,
    oid::UUID,
    oid::DATE,
    oid::TIMESTAMP,
    oid::TIMESTAMPTZ,
];
