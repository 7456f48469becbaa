//! `WITH d AS (DELETE FROM t … RETURNING *) INSERT INTO t SELECT … FROM d`: rows that leave a table and come back to it.
//!
//! PostgreSQL inserts a row when the DELETE has returned what it is made of, and may have other rows still to delete: a new row that
//! has the key of one of those is an error there, or not, by the order of the rows. Deleting all rows first is the same where no
//! new row can have the key of another deleted row: each column of a unique constraint is kept as it is, or is one value in all rows
//! that are deleted and one in all that are inserted. Either these are the same, and the row has its own key again, which is free by
//! then; or they differ, and so do all keys.

use pg_raw_parse::{Node, nodes};

use super::writing::{Part, tree as family};
use crate::catalog::{Relation, Unique};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query;

/// An INSERT, the later part, makes no row that has the key of another row that the DELETE before it deletes.
pub(super) fn gives_back(delete: &Part<'_>, insert: &Part<'_>, relation: &Relation, context: &Context) -> bool {
    let (Node::DeleteStmt(gone), Node::InsertStmt(back), Some(name)) = (delete.node, insert.node, delete.name) else {
        return false;
    };
    let uniques: Vec<&Unique> = family(relation, context).into_iter().flat_map(|member| &member.uniques).collect();
    if back.on_conflict_clause().is_some() {
        return false;
    }
    if uniques.is_empty() {
        return true;
    }
    let (Some(returned), Some(made)) = (returned(gone, relation), made(back, name, relation)) else { return false };
    let is_kept = |column: &str| match made.iter().find(|(target, _)| target == column).map(|(_, value)| value) {
        Some(Made::Place(place)) => returned.get(*place).is_some_and(|(_, source)| source == column),
        Some(Made::Column(output)) => {
            let mut sources = returned.iter().filter(|(known, _)| known == output).map(|(_, source)| source);
            matches!((sources.next(), sources.next()), (Some(source), None) if source == column)
        }
        Some(Made::OneValue) => is_one_value(gone, column),
        Some(Made::Other) | None => false,
    };
    uniques.iter().all(|unique| !unique.is_partial && unique.columns.iter().all(|column| column.as_deref().is_some_and(is_kept)))
}

/// What stands in a column of the new rows.
enum Made {
    /// The query's column in this place.
    Place(usize),
    /// One that the DELETE returns, by its name there.
    Column(String),
    OneValue,
    Other,
}

/// Names that the DELETE returns, with the columns of the table that they stand for.
fn returned(delete: &nodes::DeleteStmt, relation: &Relation) -> Option<Vec<(String, String)>> {
    let exprs = delete.returning_clause().filter(|_| delete.using_clause().is_empty())?.exprs();
    let mut columns = Vec::new();
    for target in exprs {
        let Node::ResTarget(target) = target else { return None };
        if is_star(target.val()) {
            columns.extend(relation.columns.iter().map(|column| (column.name.clone(), column.name.clone())));
        } else if let Some(column) = column(target.val()) {
            columns.push((target.name().unwrap_or(column).to_owned(), column.to_owned()));
        } else {
            // What it is called is not known where it has no name.
            columns.push((target.name()?.to_owned(), String::new()));
        }
    }
    Some(columns)
}

/// The columns of the new rows. `None`: they are not of the rows of this query of WITH alone.
fn made(insert: &nodes::InsertStmt, name: &str, relation: &Relation) -> Option<Vec<(String, Made)>> {
    let Node::SelectStmt(select) = insert.select_stmt() else { return None };
    let mut from = select.from_clause().iter();
    let (Some(Node::RangeVar(table)), None) = (from.next(), from.next()) else { return None };
    let has_names = table.alias().is_some_and(|alias| !alias.colnames().is_empty());
    let is_it = table.relname() == Some(name) && table.schemaname().is_none() && !has_names;
    if !is_it || select.op != nodes::SetOperation::SETOP_NONE || select.with_clause().is_some() {
        return None;
    }
    let name_of = |target: Node<'_>| match target {
        Node::ResTarget(target) => target.name().map(str::to_owned),
        _ => None,
    };
    let listed: Vec<String> = insert.cols().iter().map(name_of).collect::<Option<_>>()?;
    let columns = if listed.is_empty() { relation.columns.iter().map(|column| column.name.clone()).collect() } else { listed };
    let targets: Vec<&nodes::ResTarget> = select.target_list().iter().collect();
    if let [only] = targets.as_slice()
        && is_star(only.val())
    {
        return Some(columns.into_iter().enumerate().map(|(place, column)| (column, Made::Place(place))).collect());
    }
    if targets.iter().any(|target| query::is_star(target.val())) {
        return None;
    }
    Some(columns.into_iter().zip(targets).map(|(name, target)| (name, made_of(target.val()))).collect())
}

fn made_of(value: Node<'_>) -> Made {
    match value {
        Node::A_Const(_) | Node::ParamRef(_) => Made::OneValue,
        value => column(value).map_or(Made::Other, |column| Made::Column(column.to_owned())),
    }
}

/// The rows that are deleted have one value there.
fn is_one_value(delete: &nodes::DeleteStmt, wanted: &str) -> bool {
    let mut waiting = vec![delete.where_clause()];
    while let Some(node) = waiting.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == nodes::BoolExprType::AND_EXPR => waiting.extend(all.args().iter()),
            Node::A_Expr(equality)
                if equality.kind == nodes::A_Expr_Kind::AEXPR_OP && tree::single_name(equality.name()) == Some("=") =>
            {
                let is_value = |node: Node<'_>| matches!(node, Node::A_Const(_) | Node::ParamRef(_));
                let sides = [(equality.lexpr(), equality.rexpr()), (equality.rexpr(), equality.lexpr())];
                if sides.into_iter().any(|(one, other)| column(one) == Some(wanted) && is_value(other)) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// A column by its name, of whatever table: there is only one.
fn column(node: Node<'_>) -> Option<&str> {
    let Node::ColumnRef(column) = node else { return None };
    match tree::names(column.fields())?.as_slice() {
        [name] | [_, name] => Some(name),
        _ => None,
    }
}

fn is_star(node: Node<'_>) -> bool {
    matches!(node, Node::ColumnRef(column) if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))))
}
