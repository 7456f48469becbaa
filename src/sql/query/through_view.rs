//! Writes through a view of one sharded table, which PostgreSQL runs as writes to that table.
//!
//! Where the view shows columns of the table under their own names, the whole shard key among them, and leaves out rows by its own
//! columns alone, each shard runs the statement by its own view, and what the key says of its rows is what it says of the view's.
//! CHECK OPTION is then the shards' to look after. Any other view is written as one of the home shard, or refused.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::leaves::{Columns, Leaf, LeafKey, LeafKind};
use super::modify::{Target, TargetKind};
use super::relations::{Resolved, resolve};
use super::scope::Frame;
use super::{Column, Term};
use crate::catalog::{Relation, TriggerEvents};
use crate::error::PgError;
use crate::shardmap::TableKind;
use crate::sql::parse;
use crate::sql::parse::tree;

impl<'c> Reader<'c> {
    /// The target of an INSERT, UPDATE or DELETE.
    pub fn target_or_view(
        &mut self,
        name: &nodes::RangeVar,
        frame: &mut Frame<'_>,
        events: TriggerEvents,
    ) -> Result<Target<'c>, PgError> {
        let Resolved::View(view) = resolve(self.context, name, &self.search_path) else { return self.target(name, frame, events) };
        let Some(Resolved::Sharded { table, group, relation }) = self.under(view) else { return self.target(name, frame, events) };
        let TableKind::Sharded { key, .. } = &table.kind else { return self.target(name, frame, events) };
        let index = self.leaves.len();
        let key: Option<Vec<LeafKey<'c>>> = key
            .iter()
            .map(|column| {
                let place = view.columns.iter().position(|known| known.name == column.column)?;
                let term = Term { column: Column { leaf: index, index: place }, function: column.function.clone() };
                Some(LeafKey { term, column })
            })
            .collect();
        let Some(key) = key.filter(|key| !key.is_empty()) else { return self.target(name, frame, events) };
        self.note_name(name);
        self.notes.touches(view.oid);
        self.notes.touches(relation.oid);
        let kind = LeafKind::Sharded { group, key: key.clone() };
        let leaf = Leaf { name: view.name.clone(), kind, columns: Columns::Relation(view), renamed: Vec::new() };
        let leaf = self.add_leaf(leaf)?;
        self.show(leaf, name.alias(), Some(name), frame);
        self.written_relation(relation, events);
        self.check_key_triggers(relation, &key.iter().map(|key| key.column).collect::<Vec<_>>(), events);
        Ok(Target { leaf, relation: Some(relation), view: Some(view), kind: TargetKind::Sharded { group: group.id, key } })
    }

    /// Rows that a view makes, where the table numbers its own: the proxy would have to see which columns are given.
    pub fn check_rows_of_view(&mut self, target: &Target<'c>) {
        let (Some(view), Some(relation)) = (target.view, target.relation) else { return };
        if let Some(column) = relation.columns.iter().find(|column| column.identity.is_some() || column.is_drawn_by_proxy()) {
            self.notes.refuse(PgError::unsupported(
                format!("INSERT into view \"{}\" is not supported", view.name),
                format!("Column \"{}\" of table \"{}\" numbers its rows.", column.name, relation.name),
                format!("Insert into table \"{}\" itself.", relation.name),
            ));
        }
    }

    /// The sharded table of which the view shows columns.
    fn under(&self, view: &'c Relation) -> Option<Resolved<'c>> {
        let definition = parse::parse(view.view_definition.as_deref()?).ok()?;
        let Some(Node::SelectStmt(select)) = definition.stmts().next() else { return None };
        let is_plain = select.op == nodes::SetOperation::SETOP_NONE
            && select.values_lists().is_empty()
            && select.with_clause().is_none()
            && select.distinct_clause().is_empty()
            && select.group_clause().is_empty()
            && select.window_clause().is_empty()
            && select.locking_clause().is_empty()
            && [select.having_clause(), select.limit_count(), select.limit_offset()].iter().all(|it| matches!(it, Node::None));
        let is_untouched = view.triggers.is_empty() && view.rules.is_empty();
        let (Some(Node::RangeVar(table)), 1) = (select.from_clause().first(), select.from_clause().len()) else { return None };
        let shown = select.target_list();
        let is_shown = |(target, column): (&nodes::ResTarget, &crate::catalog::Column)| {
            let name = match target.val() {
                Node::ColumnRef(reference) => tree::names(reference.fields()).and_then(|names| names.last().copied()),
                _ => None,
            };
            name == Some(column.name.as_str()) && column.default.is_none()
        };
        let is_of_table = shown.len() == view.columns.len() && shown.iter().zip(&view.columns).all(is_shown);
        (is_plain && is_untouched && is_of_table && table.inh && is_of_columns(select.where_clause())).then_some(())?;
        let search_path = [view.schema.clone(), "public".to_owned()];
        let found = resolve(self.context, table, &search_path);
        matches!(found, Resolved::Sharded { .. }).then_some(found)
    }
}

/// Nothing but columns, constants and operators that PostgreSQL brings.
fn is_of_columns(condition: Node<'_>) -> bool {
    let mut is_plain = true;
    tree::walk(condition, &mut |node| {
        is_plain &= match node {
            Node::SubLink(_) | Node::FuncCall(_) | Node::SQLValueFunction(_) => false,
            Node::A_Expr(operation) => operation.name().len() == 1,
            node => tree::is_known(node),
        };
        is_plain
    });
    is_plain
}
