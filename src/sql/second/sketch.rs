//! A plain statement as this reading sees it: tables joined side by side, and what its conditions say of columns and values.
//!
//! Only statements without sub-selects, over tables that the catalogue has. Conditions are lowered to equalities; what is not
//! one is opaque when it names a column that the shard key might hang on, and silent otherwise.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use sqlparser::ast::{
    BinaryOperator, Expr, FromTable, Ident, Insert, JoinConstraint, JoinOperator, Query, Select, SetExpr, Statement, TableFactor,
    TableObject, TableWithJoins, UnaryOperator, Update, UpdateTableFromKind, Value, ValueWithSpan, Visit, Visitor,
};

use super::folded;
use super::names::{Names, relation_name};
use crate::catalog::Relation;
use crate::shard_key::KeyColumn;
use crate::shardmap::{GroupId, TableKind};
use crate::sql::context::Context;
use crate::sql::query::{Resolved, resolve_name};

pub struct Sketch<'c> {
    pub items: Vec<Item<'c>>,
    /// Conjunctions, each of which must be within the claims for its table: one for a query, one for each row of an INSERT.
    pub cases: Vec<Vec<Formula>>,
    /// The cases say what columns are set to.
    pub is_stored: bool,
}

/// One table of the statement.
pub struct Item<'c> {
    alias: String,
    pub relation: &'c Relation,
    /// Of a sharded table.
    pub key: Option<(GroupId, &'c [KeyColumn])>,
}

/// A column by its table's and its own position.
pub type Column = (usize, usize);

#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// Says nothing of the shard key.
    Silent,
    /// May say anything.
    Opaque,
    Equal(Column, Column),
    OneOf(Column, Vec<Constant>),
    /// One of these conjunctions holds; none of none.
    Any(Vec<Vec<Formula>>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A number as written or the characters of a string.
    Text(String),
    Parameter(u16),
    Null,
}

/// `None`: not a plain statement.
pub fn of<'c>(statement: &Statement, names: &Names, context: &'c Context) -> Option<Sketch<'c>> {
    let mut reader = Reader { context, items: Vec::new(), visible: 0..0, watched: BTreeSet::new(), conjuncts: Vec::new() };
    match statement {
        Statement::Query(query) if names.query_count == 1 => reader.select(plain_select(query)?, statement),
        Statement::Update(update) if names.query_count == 0 => reader.update(update, statement),
        Statement::Delete(delete) if names.query_count == 0 => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            let tables = from.iter().chain(delete.using.iter().flatten());
            reader.tables(tables, delete.selection.as_ref(), statement)
        }
        Statement::Insert(insert) if names.query_count == 1 => return reader.insert(insert),
        _ => None,
    }?;
    Some(Sketch { items: reader.items, cases: vec![reader.conjuncts], is_stored: false })
}

fn plain_select(query: &Query) -> Option<&Select> {
    match query.body.as_ref() {
        SetExpr::Select(select) if query.with.is_none() => Some(select),
        _ => None,
    }
}

struct Reader<'c> {
    context: &'c Context,
    items: Vec<Item<'c>>,
    /// Those that the condition sees which is looked at.
    visible: Range<usize>,
    /// Names of columns that the key is, or may be equal to.
    watched: BTreeSet<String>,
    conjuncts: Vec<Formula>,
}

impl<'c> Reader<'c> {
    fn select(&mut self, select: &Select, statement: &Statement) -> Option<()> {
        self.tables(select.from.iter(), select.selection.as_ref(), statement)
    }

    fn update(&mut self, update: &Update, statement: &Statement) -> Option<()> {
        let from = update.from.iter().flat_map(|from| match from {
            UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables) => tables,
        });
        self.tables(std::iter::once(&update.table).chain(from), update.selection.as_ref(), statement)
    }

    fn tables<'s>(
        &mut self,
        tables: impl Iterator<Item = &'s TableWithJoins>,
        selection: Option<&Expr>,
        statement: &Statement,
    ) -> Option<()> {
        let mut conditions: Vec<(&Expr, Range<usize>)> = Vec::new();
        for table in tables {
            let first = self.items.len();
            self.item(&table.relation)?;
            for join in &table.joins {
                self.item(&join.relation)?;
                match &join.join_operator {
                    JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) | JoinOperator::CrossJoin(constraint) => {
                        let condition = self.constraint(constraint, first)?;
                        conditions.extend(condition.map(|condition| (condition, first..self.items.len())));
                    }
                    // Its ON counts for one side only, and that side may be kept after all: not looked at.
                    JoinOperator::Left(_) | JoinOperator::LeftOuter(_) | JoinOperator::Right(_) | JoinOperator::RightOuter(_) => {
                        self.conjuncts.push(Formula::Opaque);
                    }
                    _ => return None,
                }
            }
        }
        self.watch(statement);
        conditions.extend(selection.map(|condition| (condition, 0..self.items.len())));
        for (condition, visible) in conditions {
            self.visible = visible;
            self.conjunction(condition, 0);
        }
        Some(())
    }

    fn item(&mut self, factor: &TableFactor) -> Option<()> {
        let TableFactor::Table { name, alias, args: None, sample: None, with_ordinality: false, .. } = factor else {
            return None;
        };
        let (schema, name) = relation_name(name)?;
        let alias = match alias {
            Some(alias) if alias.columns.is_empty() => folded(&alias.name),
            Some(_) => return None,
            None => name.clone(),
        };
        let item = self.resolved(schema.as_deref(), &name, alias)?;
        self.items.push(item);
        Some(())
    }

    fn resolved(&self, schema: Option<&str>, name: &str, alias: String) -> Option<Item<'c>> {
        match resolve_name(self.context, schema, name, &self.context.search_path, true) {
            Resolved::Sharded { table, group, relation } => match &table.kind {
                TableKind::Sharded { key, .. } => Some(Item { alias, relation, key: Some((group.id, key)) }),
                TableKind::Reference => None,
            },
            Resolved::Reference(relation) | Resolved::Home(Some(relation)) => Some(Item { alias, relation, key: None }),
            Resolved::Home(None)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => None,
        }
    }

    /// ON gives a condition; USING makes equalities with the table that was added last. `first`: of the tables that are joined.
    fn constraint<'s>(&mut self, constraint: &'s JoinConstraint, first: usize) -> Option<Option<&'s Expr>> {
        match constraint {
            JoinConstraint::On(condition) => Some(Some(condition)),
            JoinConstraint::None => Some(None),
            JoinConstraint::Using(columns) => {
                for column in columns {
                    let (None, name) = relation_name(column)? else {
                        return None;
                    };
                    let last = self.items.len().checked_sub(1)?;
                    let right = self.column_of(last, &name)?;
                    let mut left = (first..last).filter_map(|item| self.column_of(item, &name));
                    self.conjuncts.push(Formula::Equal(left.next()?, right));
                    self.watched.insert(name);
                }
                Some(None)
            }
            JoinConstraint::Natural => None,
        }
    }

    fn column_of(&self, item: usize, name: &str) -> Option<Column> {
        let position = self.items.get(item)?.relation.columns.iter().position(|column| column.name == name)?;
        Some((item, position))
    }

    /// The key's columns, and all that are compared with another column.
    fn watch(&mut self, statement: &Statement) {
        for item in &self.items {
            self.watched.extend(item.key.iter().flat_map(|(_, key)| key.iter().map(|key| key.column.clone())));
        }
        let mut compared = Compared::default();
        if statement.visit(&mut compared).is_continue() {
            self.watched.append(&mut compared.names);
        }
    }

    fn conjunction(&mut self, condition: &Expr, depth: usize) {
        let mut stack = vec![condition];
        while let Some(condition) = stack.pop() {
            match condition {
                Expr::Nested(inner) => stack.push(inner),
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => stack.extend([left.as_ref(), right.as_ref()]),
                other => {
                    let formula = self.formula(other, depth);
                    self.conjuncts.push(formula);
                }
            }
        }
    }

    fn formula(&mut self, condition: &Expr, depth: usize) -> Formula {
        let found = match condition {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => self.equality(left, right),
            Expr::BinaryOp { op: BinaryOperator::Or, .. } if depth < DEPTH_MAX => Some(self.disjunction(condition, depth)),
            Expr::Value(constant) if matches!(constant.value, Value::Boolean(false) | Value::Null) => {
                Some(Formula::Any(Vec::new()))
            }
            Expr::InList { expr, list, negated: false } => self.column(expr).and_then(|column| {
                let constants: Option<Vec<Constant>> = list.iter().map(constant).collect();
                Some(Formula::OneOf(column, constants?))
            }),
            _ => None,
        };
        found.unwrap_or_else(|| if self.is_watched(condition) { Formula::Opaque } else { Formula::Silent })
    }

    fn equality(&self, left: &Expr, right: &Expr) -> Option<Formula> {
        match (self.column(left), constant(left), self.column(right), constant(right)) {
            (Some(left), _, Some(right), _) => Some(Formula::Equal(left, right)),
            (Some(column), _, _, Some(constant)) | (_, Some(constant), Some(column), _) => {
                Some(Formula::OneOf(column, vec![constant]))
            }
            _ => None,
        }
    }

    fn disjunction(&mut self, condition: &Expr, depth: usize) -> Formula {
        let mut branches = Vec::new();
        let mut stack = vec![condition];
        while let Some(branch) = stack.pop() {
            match branch {
                Expr::BinaryOp { left, op: BinaryOperator::Or, right } => stack.extend([left.as_ref(), right.as_ref()]),
                Expr::Nested(inner) if matches!(inner.as_ref(), Expr::BinaryOp { op: BinaryOperator::Or, .. }) => stack.push(inner),
                other => {
                    let outer = std::mem::take(&mut self.conjuncts);
                    self.conjunction(other, depth + 1);
                    branches.push(std::mem::replace(&mut self.conjuncts, outer));
                }
            }
        }
        Formula::Any(branches)
    }

    fn column(&self, expression: &Expr) -> Option<Column> {
        match expression {
            Expr::Nested(inner) => self.column(inner),
            Expr::Identifier(name) => {
                let name = folded(name);
                // In several only when USING has merged them: otherwise PostgreSQL calls it ambiguous.
                self.visible.clone().find_map(|item| self.column_of(item, &name))
            }
            Expr::CompoundIdentifier(path) => match path.as_slice() {
                [table, name] => {
                    let table = folded(table);
                    let item = self.visible.clone().find(|item| self.items.get(*item).is_some_and(|item| item.alias == table))?;
                    self.column_of(item, &folded(name))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn is_watched(&self, expression: &Expr) -> bool {
        let mut mentioned = Mentioned { watched: &self.watched };
        expression.visit(&mut mentioned).is_break()
    }

    /// `INSERT … VALUES`: a case for each row.
    fn insert(mut self, insert: &Insert) -> Option<Sketch<'c>> {
        let TableObject::TableName(name) = &insert.table else {
            return None;
        };
        let (schema, name) = relation_name(name)?;
        let item = self.resolved(schema.as_deref(), &name, name.clone())?;
        let SetExpr::Values(values) = insert.source.as_ref()?.body.as_ref() else {
            return None;
        };
        let given: Vec<String> = if insert.columns.is_empty() {
            item.relation.columns.iter().map(|column| column.name.clone()).collect()
        } else {
            insert.columns.iter().map(|column| relation_name(column).map(|(_, name)| name)).collect::<Option<_>>()?
        };
        let (_, key) = item.key?;
        self.items.push(item);
        let mut cases = Vec::new();
        for row in &values.rows {
            let mut case = Vec::new();
            for key in key {
                let column = self.column_of(0, &key.column)?;
                let value = given.iter().position(|name| *name == key.column).and_then(|position| row.get(position));
                case.push(match value.map(constant) {
                    Some(Some(constant)) => Formula::OneOf(column, vec![constant]),
                    Some(None) => Formula::Opaque,
                    None => Formula::OneOf(column, vec![Constant::Null]),
                });
            }
            cases.push(case);
        }
        Some(Sketch { items: self.items, cases, is_stored: true })
    }
}

/// ORs inside of ANDs inside of ORs.
const DEPTH_MAX: usize = 3;

/// A literal or parameter, whatever it is cast to: the cast is the first reading's business.
fn constant(expression: &Expr) -> Option<Constant> {
    match expression {
        Expr::Nested(inner) => constant(inner),
        Expr::Cast { expr, .. } => constant(expr),
        Expr::TypedString(typed) => value(&typed.value.value),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(number) => match &number.value {
                Value::Number(digits, _) => Some(Constant::Text(format!("-{digits}"))),
                _ => None,
            },
            _ => None,
        },
        Expr::Value(constant) => value(&constant.value),
        _ => None,
    }
}

fn value(value: &Value) -> Option<Constant> {
    match value {
        Value::Number(digits, _) => Some(Constant::Text(digits.clone())),
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Constant::Text(text.clone())),
        Value::DollarQuotedString(quoted) => Some(Constant::Text(quoted.value.clone())),
        Value::Boolean(value) => Some(Constant::Text(value.to_string())),
        Value::Placeholder(name) => Some(Constant::Parameter(name.strip_prefix('$')?.parse().ok()?)),
        Value::Null => Some(Constant::Null),
        _ => None,
    }
}

/// Names of columns that are compared with columns.
#[derive(Default)]
struct Compared {
    names: BTreeSet<String>,
}

impl Visitor for Compared {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = expression
            && let (Some(left), Some(right)) = (column_name(left), column_name(right))
        {
            self.names.extend([left, right]);
        }
        ControlFlow::Continue(())
    }
}

fn column_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Nested(inner) => column_name(inner),
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(path) => path.last().map(folded),
        _ => None,
    }
}

/// Breaks off at the first watched name, and at constants that may make the whole of it never true.
struct Mentioned<'w> {
    watched: &'w BTreeSet<String>,
}

impl Visitor for Mentioned<'_> {
    type Break = ();

    fn pre_visit_ident(&mut self, name: &Ident) -> ControlFlow<()> {
        if self.watched.contains(&folded(name)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        match value.value {
            Value::Null | Value::Boolean(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
