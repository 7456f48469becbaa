//! Writes of a reference table: each copy must become the same.
//!
//! Which rows a query finds first may differ from copy to copy, so that such a write reads no other table. Constants are the same
//! everywhere, those that other tables' rows have become among them. Still an UPDATE whose row meets several of them takes one, and
//! which one its plan decides: it must be seen that each row meets at most one.

use std::collections::HashSet;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::leaves::{Leaf, LeafKind};
use super::modify::{Target, TargetKind};
use crate::catalog::{Column, Relation};
use crate::shard_key::oid;
use crate::sql::parse::tree;

/// Rows of constants in FROM.
struct Constants<'n> {
    alias: &'n str,
    names: Vec<&'n str>,
    rows: Vec<Vec<Node<'n>>>,
}

impl<'c> Reader<'c> {
    /// An UPDATE or DELETE of copies. `is_determined`: what it makes of a row does not hang on the order of others.
    pub fn check_copied_write(&mut self, target: &Target<'_>, is_determined: bool) {
        let own = [Some(target.leaf), self.excluded_leaf];
        let reads = |(place, leaf): (usize, &Leaf<'_>)| !own.contains(&Some(place)) && !matches!(leaf.kind, LeafKind::Derived);
        if matches!(target.kind, TargetKind::Replicated) && (!is_determined || self.leaves.iter().enumerate().any(reads)) {
            self.notes.volatile.get_or_insert_with(|| "Reading other rows".to_owned());
        }
    }

    /// Each row of the target meets at most one row of FROM. True of the numbers and strings of this text only.
    pub fn meets_one(&mut self, update: &nodes::UpdateStmt, target: &Target<'_>) -> bool {
        if !matches!(target.kind, TargetKind::Replicated) || update.from_clause().is_empty() {
            return true;
        }
        let (Some(constants), Some(relation)) = (constants(update), target.relation) else { return false };
        self.notes.is_bound_to_text = true;
        let called = update.relation().and_then(|name| name.alias().and_then(|alias| alias.aliasname()).or(name.relname()));
        let mut places = Vec::new();
        for condition in tree::conjuncts(update.where_clause()) {
            let Node::A_Expr(equality) = condition else { continue };
            let is_equality = equality.kind == nodes::A_Expr_Kind::AEXPR_OP
                && matches!(tree::names(equality.name()).as_deref(), Some(["="] | ["pg_catalog", "="]));
            let sides = [(equality.lexpr(), equality.rexpr()), (equality.rexpr(), equality.lexpr())];
            for (own, other) in sides.into_iter().filter(|_| is_equality) {
                let column = column_of(own, called, relation, &constants.names);
                places.extend(column.zip(constants.place_of(other, relation)));
            }
        }
        let mut seen = HashSet::new();
        !places.is_empty()
            && constants.rows.iter().all(|row| {
                let key: Option<Vec<String>> = places.iter().map(|(column, place)| value(*row.get(*place)?, column)).collect();
                key.is_some_and(|key| seen.insert(key))
            })
    }
}

impl<'n> Constants<'n> {
    /// `alias.column`, or the column alone where the target has none of this name.
    fn place_of(&self, node: Node<'_>, relation: &Relation) -> Option<usize> {
        let Node::ColumnRef(column) = node else { return None };
        let name = match tree::names(column.fields())?.as_slice() {
            [alias, name] if *alias == self.alias => *name,
            [name] if relation.column(name).is_none() => *name,
            _ => return None,
        };
        self.names.iter().position(|known| *known == name)
    }
}

fn constants(update: &nodes::UpdateStmt) -> Option<Constants<'_>> {
    let (Some(Node::RangeSubselect(item)), 1) = (update.from_clause().first(), update.from_clause().len()) else { return None };
    let alias = item.alias()?;
    let Node::SelectStmt(select) = item.subquery() else { return None };
    let (names, values) = match select.from_clause().first() {
        None => (alias.colnames(), select),
        // What the proxy has made of a query.
        Some(Node::RangeSubselect(inner)) if alias.colnames().is_empty() && is_all_of(select) => match inner.subquery() {
            Node::SelectStmt(values) => (inner.alias()?.colnames(), values),
            _ => return None,
        },
        Some(_) => return None,
    };
    let rows = values.values_lists().iter().map(|row| Some(row.as_node_list()?.iter().collect())).collect::<Option<_>>()?;
    Some(Constants { alias: alias.aliasname()?, names: names.iter().filter_map(Node::as_str).collect(), rows })
}

/// `SELECT * FROM one`, without any condition.
fn is_all_of(select: &nodes::SelectStmt) -> bool {
    let mut targets = select.target_list().iter();
    let is_star =
        |node: Node<'_>| matches!(node, Node::ColumnRef(column) if matches!(column.fields().iter().next(), Some(Node::A_Star(_))));
    select.from_clause().len() == 1
        && matches!((targets.next(), targets.next()), (Some(target), None) if is_star(target.val()))
        && matches!(select.where_clause(), Node::None)
        && select.values_lists().is_empty()
}

/// A column of the target.
fn column_of<'r>(node: Node<'_>, called: Option<&str>, relation: &'r Relation, others: &[&str]) -> Option<&'r Column> {
    let Node::ColumnRef(column) = node else { return None };
    match tree::names(column.fields())?.as_slice() {
        [table, name] if Some(*table) == called => relation.column(name),
        [name] if !others.contains(name) => relation.column(name),
        _ => None,
    }
}

/// A constant as a key: other texts are other values of the column's type. `None`: that is not known.
fn value(node: Node<'_>, column: &Column) -> Option<String> {
    let constant = match node {
        Node::A_Const(constant) => constant,
        Node::TypeCast(cast) => match (cast.arg(), cast.type_name()?.names().iter().next_back()?.sval()?) {
            (Node::A_Const(constant), "int2" | "int4" | "int8" | "text" | "varchar" | "uuid" | "date") => constant,
            _ => return None,
        },
        _ => return None,
    };
    match (column.type_oid, constant.val()?) {
        (oid::INT2 | oid::INT4 | oid::INT8, ConstValue::Integer(number)) => Some(number.to_string()),
        (oid::INT2 | oid::INT4 | oid::INT8, ConstValue::String(text)) => {
            text.trim().parse::<i64>().ok().map(|number| number.to_string())
        }
        (oid::TEXT | oid::VARCHAR, ConstValue::String(text)) if column.is_deterministic => Some(text.to_owned()),
        (oid::UUID, ConstValue::String(text)) => {
            Some(text.chars().filter(char::is_ascii_alphanumeric).map(|digit| digit.to_ascii_lowercase()).collect())
        }
        _ => None,
    }
}
