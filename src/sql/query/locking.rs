//! Row locks over several shards: which of them can be taken where the rows are.
//!
//! A row of a sharded table has one place, and a lock there is the lock. A reference table has a copy on every shard: a lock on
//! one says nothing about the others. So every table that is locked must be sharded, and named in FROM itself.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::leaves::LeafKind;
use super::scope::{Frame, VisibleColumns};
use crate::sql::analysis::{LockWait, Locking};

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
        Some(Locking { wait: wait?, clauses: self.outline.as_ref()?.locking.clone() })
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
        let is_sharded = |columns: &VisibleColumns| match columns {
            VisibleColumns::Leaf(leaf) => matches!(self.leaves.get(*leaf).map(|leaf| &leaf.kind), Some(LeafKind::Sharded { .. })),
            VisibleColumns::Join { .. } => false,
        };
        if names.is_empty() {
            return !frame.items.is_empty() && frame.items.iter().all(|item| is_sharded(&item.columns));
        }
        names.iter().all(|name| {
            let mut named = frame.items.iter().filter(|item| item.is_called(None, name));
            matches!((named.next(), named.next()), (Some(item), None) if is_sharded(&item.columns))
        })
    }
}
