//! Sub-selects that PostgreSQL may leave out when it evaluates the expression that they stand in.

use std::collections::HashSet;

use pg_raw_parse::{Node, nodes};

use crate::sql::parse::tree;

/// The locations of those under this expression. Not among them are what CASE and COALESCE begin with, which decide about the rest.
pub(super) fn conditional(root: Node<'_>) -> HashSet<i32> {
    let mut found = HashSet::new();
    tree::walk(root, &mut |node| {
        for part in left_out(node) {
            tree::walk(part, &mut |node| {
                match node {
                    Node::SubLink(sublink) => drop(found.insert(sublink.location)),
                    Node::MultiAssignRef(assignment) => {
                        if let Node::SubLink(sublink) = assignment.source() {
                            found.insert(sublink.location);
                        }
                    }
                    _ => {}
                }
                true
            });
        }
        true
    });
    found
}

/// The parts of an expression of which PostgreSQL may not evaluate all. It may look at the parts of AND and OR in any order.
fn left_out(node: Node<'_>) -> Vec<Node<'_>> {
    match node {
        Node::CaseExpr(case) => {
            let mut parts = vec![case.defresult()];
            for (place, when) in case.args().iter().enumerate() {
                parts.extend(when_parts(when).into_iter().skip(usize::from(place == 0)));
            }
            parts
        }
        Node::CoalesceExpr(coalesce) => coalesce.args().iter().skip(1).collect(),
        Node::BoolExpr(all) if all.boolop != nodes::BoolExprType::NOT_EXPR => all.args().iter().collect(),
        _ => Vec::new(),
    }
}

/// Its condition and its result.
fn when_parts(node: Node<'_>) -> Vec<Node<'_>> {
    match node {
        Node::CaseWhen(when) => vec![when.expr(), when.result()],
        _ => Vec::new(),
    }
}
