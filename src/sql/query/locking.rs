//! Row locks over several shards: which of them can be taken where the rows are.
//!
//! A row of a sharded table has one place, and a lock there is the lock. A reference table has a copy on every shard: a lock on
//! one says nothing about the others. So every table that is locked must be sharded, and named in FROM itself.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::leaves::LeafKind;
use super::scope::{Frame, VisibleColumns};
use crate::catalog::quoted_identifier;
use crate::sql::analysis::{LockWait, Locking};
use crate::sql::tree;

impl Reader<'_> {
    /// `None`: they cannot.
    pub fn row_locks(&self, select: &nodes::SelectStmt, frame: &Frame<'_>) -> Option<Locking> {
        if self.depth != 1 || self.has_inner_locks || select.limit_option == nodes::LimitOption::LIMIT_OPTION_WITH_TIES {
            return None;
        }
        let mut wait = None;
        for clause in select.locking_clause().iter() {
            let policy = match clause.wait_policy {
                nodes::LockWaitPolicy::LockWaitBlock => LockWait::Wait,
                nodes::LockWaitPolicy::LockWaitSkip => LockWait::Skip,
                nodes::LockWaitPolicy::LockWaitError => LockWait::Error,
                _ => return None,
            };
            if wait.is_some_and(|known| known != policy) || !self.locks_sharded_tables(clause, frame) {
                return None;
            }
            wait = Some(policy);
        }
        let outline = self.outline.as_ref()?;
        let computed = |node: Node<'_>, range: &Option<Range<usize>>| {
            self.text.get(range.clone().filter(|_| is_of_constants(node))?).map(str::to_owned)
        };
        Some(Locking {
            wait: wait?,
            clauses: outline.locking.clone(),
            limit: computed(select.limit_count(), &outline.limit),
            offset: computed(select.limit_offset(), &outline.offset),
        })
    }

    /// Where the sharded tables among those that are locked could be locked alone: how.
    pub fn lock_less(&self, select: &nodes::SelectStmt, frame: &Frame<'_>) -> Option<String> {
        let locks_all = select.locking_clause().iter().all(|clause| clause.locked_rels().is_empty());
        let sharded: Vec<&str> =
            frame.items.iter().filter(|item| self.is_sharded(&item.columns)).filter_map(|item| item.name.as_deref()).collect();
        let names: Vec<String> = sharded.iter().map(|name| quoted_identifier(name)).collect();
        (locks_all && !names.is_empty() && sharded.len() < frame.items.len())
            .then(|| format!("Lock the rows of sharded tables alone: FOR UPDATE OF {}.", names.join(", ")))
    }

    fn is_sharded(&self, columns: &VisibleColumns) -> bool {
        match columns {
            VisibleColumns::Leaf(leaf) => matches!(self.leaves.get(*leaf).map(|leaf| &leaf.kind), Some(LeafKind::Sharded { .. })),
            VisibleColumns::Join { .. } => false,
        }
    }

    fn locks_sharded_tables(&self, clause: &nodes::LockingClause, frame: &Frame<'_>) -> bool {
        let names: Vec<&str> = clause
            .locked_rels()
            .iter()
            .map(|name| match name {
                Node::RangeVar(relation) => relation.relname().unwrap_or_default(),
                _ => "",
            })
            .collect();
        if names.is_empty() {
            return !frame.items.is_empty() && frame.items.iter().all(|item| self.is_sharded(&item.columns));
        }
        names.iter().all(|name| {
            let mut named = frame.items.iter().filter(|item| item.is_called(None, name));
            matches!((named.next(), named.next()), (Some(item), None) if self.is_sharded(&item.columns))
        })
    }
}

/// Evaluated by whoever gets it, it is the same: no function, no sub-select, but what PostgreSQL makes of operators.
fn is_of_constants(root: Node<'_>) -> bool {
    let mut is_known = !matches!(root, Node::None);
    tree::walk(root, &mut |node| {
        is_known &= matches!(
            node,
            Node::A_Const(_)
                | Node::ParamRef(_)
                | Node::TypeCast(_)
                | Node::A_Expr(_)
                | Node::NodeList(_)
                | Node::CoalesceExpr(_)
                | Node::MinMaxExpr(_)
        );
        is_known
    });
    is_known
}
