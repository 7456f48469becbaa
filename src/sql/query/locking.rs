//! Row locks over several shards: which of them can be taken where the rows are.
//!
//! A row of a sharded table has one place, and a lock there is the lock. A reference table has a copy on every shard: a lock on
//! one says nothing about the others. So every table that is locked must be sharded, and named in FROM itself.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::leaves::{Columns, Leaf, LeafKind};
use super::scope::{Frame, VisibleColumns};
use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::sql::analysis::{LockWait, Locking};
use crate::sql::parse::tree;

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

    /// The copies of a reference table are locked one by one, and who locks another one is not kept out. So they are locked on
    /// the home shard, where their writers come first. `leaves`: of FROM, with those of its sub-selects and views, which are
    /// locked with these.
    pub fn note_locked_copies(&mut self, select: &nodes::SelectStmt, frame: &Frame<'_>, leaves: Range<usize>) {
        let has_copies = |mut leaves: Range<usize>| leaves.any(|leaf| self.is_copied(leaf));
        let is_locked = |name: Node<'_>| {
            let Node::RangeVar(relation) = name else { return true };
            let mut called = frame.items.iter().filter(|item| item.is_called(None, relation.relname().unwrap_or_default()));
            called.any(|item| match &item.columns {
                VisibleColumns::Leaf(leaf) if !matches!(self.leaves.get(*leaf).map(|leaf| &leaf.kind), Some(LeafKind::Derived)) => {
                    self.is_copied(*leaf)
                }
                VisibleColumns::Leaf(_) | VisibleColumns::Join { .. } => has_copies(leaves.clone()),
            })
        };
        let locks = select.locking_clause().iter().any(|clause| match clause.locked_rels() {
            all if all.is_empty() => has_copies(leaves.clone()),
            named => named.iter().any(is_locked),
        });
        if locks {
            let alone =
                "Lock its rows by a statement of their own, SELECT ... FROM the reference table FOR UPDATE, which does so once.";
            let hint = self.lock_hint.clone().unwrap_or_else(|| alone.to_owned());
            self.notes.locks_copies.get_or_insert_with(|| copies_locked_apart(&hint));
        }
    }

    fn is_copied(&self, leaf: usize) -> bool {
        let is_copied = |leaf: &Leaf<'_>| matches!((&leaf.kind, &leaf.columns), (LeafKind::Replicated, Columns::Relation(_)));
        self.leaves.get(leaf).is_some_and(is_copied)
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

fn copies_locked_apart(hint: &str) -> PgError {
    PgError::unsupported(
        "row locks of a reference table beside sharded ones are not supported",
        "Each shard has a copy of the table, and who locks a row of one does not keep out who locks it in another.",
        hint,
    )
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
