//! What an INSERT inserts into, and what that says about its rows: whether they may be written in several statements, and as constants.

use pg_raw_parse::{Node, nodes};

use super::writing::fires;
use crate::catalog::{Oid, Relation, TriggerEvents};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};

/// What an INSERT inserts into.
fn inserted_into<'c>(insert: &nodes::InsertStmt, context: &'c Context) -> Option<&'c Relation> {
    resolve(context, insert.relation()?, &context.search_path).table()
}

/// No trigger and no row of the same table looks at the rows of one statement together. One of two rows that conflict is left out
/// in several statements as in one, but an update of a row by two others fails in one only.
pub(super) fn may_batch(insert: &nodes::InsertStmt, context: &Context) -> bool {
    let conflict = insert.on_conflict_clause().map(|conflict| conflict.action);
    let mut returned = insert.returning_clause().into_iter().flat_map(|clause| clause.exprs().iter());
    matches!(conflict, None | Some(nodes::OnConflictAction::ONCONFLICT_NOTHING))
        && !returned.any(may_read)
        && inserted_into(insert, context).is_some_and(|relation| are_rows_alone(relation, relation.oid, context))
}

/// Of a table of this oid, or one of its partitions.
fn are_rows_alone(relation: &Relation, table: Oid, context: &Context) -> bool {
    !fires(relation, TriggerEvents::INSERT)
        && relation.rules.is_empty()
        && relation.foreign_keys.iter().all(|key| key.referenced != relation.oid && key.referenced != table)
        && relation
            .children
            .iter()
            .all(|child| context.catalog.relations.get(child).is_some_and(|child| are_rows_alone(child, table, context)))
}

/// It may look at rows that another part of the statement has inserted.
fn may_read(expression: Node<'_>) -> bool {
    let mut may_read = false;
    tree::walk(expression, &mut |node| {
        may_read |= matches!(node, Node::SubLink(_) | Node::FuncCall(_));
        !may_read
    });
    may_read
}

/// The rows of a query, which are inserted as constants, could be others: text has lost whether it was a string.
pub(super) fn casts_text(insert: &nodes::InsertStmt, context: &Context) -> bool {
    let target = insert.relation().map(|name| resolve(context, name, &context.search_path));
    let relation = match target {
        Some(Resolved::View(view)) => Some(view),
        target => target.and_then(Resolved::table),
    };
    relation.is_some_and(|relation| relation.columns.iter().any(|column| context.catalog.has_cast_from_text(column)))
}
