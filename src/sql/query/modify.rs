//! INSERT, UPDATE, DELETE and MERGE.
//!
//! The rows that a write makes must be on the shard that owns their key. For UPDATE the key must not change; for INSERT its value
//! must be known: a constant or parameter, or a column of a sub-select whose rows are on the same shard by the same key.

use std::rc::Rc;

use pg_raw_parse::list::CastNodeList;
use pg_raw_parse::{Node, nodes};

use super::bind::{CteList, Reader, unknown_query};
use super::expression::{Findings, Place, Scope};
use super::facts;
use super::leaves::{Columns, LeafKey, LeafKind};
use super::placement::{Distribution, RowKey, classes};
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::scope::{Frame, Visible, VisibleColumns};
use super::{Block, Body, Bound, Facts, FromItem, Output, Predicate, Term};
use crate::catalog::{Access, Closure, Oid, Relation};
use crate::error::PgError;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyCondition, KeyTest, KeyValue, QueryKind, StoredValue, Test};
use crate::sql::body::SqlBodyReader;
use crate::sql::parse;

/// A write that was read and placed.
#[derive(Debug, Default)]
pub struct Modified {
    /// Of RETURNING.
    pub outputs: Vec<Output>,
    pub is_complete: bool,
    /// What holds for the rows that it returns.
    pub facts: Facts,
    /// The target is on every shard, and so must the write be.
    pub is_replicated: bool,
}

/// The table that is written.
struct Target<'c> {
    leaf: usize,
    relation: Option<&'c Relation>,
    kind: TargetKind<'c>,
}

enum TargetKind<'c> {
    Sharded { group: GroupId, key: Vec<LeafKey<'c>> },
    Replicated,
    Home,
}

impl<'c> Reader<'c> {
    pub fn modification_in_with<'n>(&mut self, node: Node<'n>, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let (_, modified) = self.modification(node, ctes)?;
        if modified.is_replicated {
            self.notes.refuse(PgError::unsupported(
                "writing to a reference table in WITH is not supported",
                "The write must happen on every shard, the rest of the statement only once.",
                "Write to the reference table in a statement of its own.",
            ));
        }
        self.notes.not_pushable(PgError::unsupported(
            "INSERT, UPDATE, DELETE or MERGE in WITH is not supported across shards",
            "Its rows would be combined with the rest of the statement on each shard for itself.",
            "Restrict the statement to one shard key, or run its parts one after the other.",
        ));
        Ok(modified)
    }

    pub fn modification<'n>(&mut self, node: Node<'n>, ctes: &CteList<'n>) -> Result<(QueryKind, Modified), PgError> {
        self.notes.writes();
        Ok(match node {
            Node::InsertStmt(insert) => (QueryKind::Insert, self.insert(insert, ctes)?),
            Node::UpdateStmt(update) => (QueryKind::Update, self.update(update, ctes)?),
            Node::DeleteStmt(delete) => (QueryKind::Delete, self.delete(delete, ctes)?),
            Node::MergeStmt(merge) => (QueryKind::Merge, self.merge_statement(merge, ctes)?),
            _ => return Err(unknown_query()),
        })
    }

    fn target(&mut self, name: &nodes::RangeVar, frame: &mut Frame<'_>) -> Result<Target<'c>, PgError> {
        let resolved = relations::resolve(self.context, name, &self.search_path);
        if let Resolved::Map(relation) | Resolved::Proxy(relation) = &resolved {
            return Err(PgError::unsupported(
                format!("cannot change \"shardgate.{relation}\" directly"),
                "It shows the shard map, which only the functions of the schema shardgate change.",
                "Use shardgate.add_shard(), shardgate.distribute_table() and their kind.",
            ));
        }
        let relation = match &resolved {
            Resolved::Sharded { relation, .. } | Resolved::Reference(relation) | Resolved::View(relation) => Some(*relation),
            Resolved::Home(relation) => *relation,
            Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => None,
        };
        if let Resolved::View(view) = &resolved {
            self.written_view(view);
        }
        let leaf = self.relation_leaf(resolved, name)?;
        self.show(leaf, name.alias(), Some(name), frame);
        let kind = match self.leaves.get(leaf).map(|leaf| &leaf.kind) {
            Some(LeafKind::Sharded { group, key }) => TargetKind::Sharded { group: group.id, key: key.clone() },
            Some(LeafKind::Replicated) => TargetKind::Replicated,
            Some(LeafKind::Home | LeafKind::Elsewhere | LeafKind::Derived) | None => TargetKind::Home,
        };
        if let Some(relation) = relation {
            self.written_relation(relation);
            if let TargetKind::Sharded { key, .. } = &kind {
                self.check_key_triggers(relation, key);
            }
        }
        Ok(Target { leaf, relation, kind })
    }

    /// A write through a view changes the tables under it.
    fn written_view(&mut self, view: &Relation) {
        match self.context.catalog.closure_of_relation(view.oid, Access::Read, &SqlBodyReader).as_ref() {
            Closure::Known(references) => {
                let mut references = references.clone();
                references.writes.append(&mut references.reads);
                self.note_references(&references, &view.name);
            }
            Closure::Unknown(reason) => {
                self.notes.touches_anything.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// Triggers, rules and defaults of a table that is written. Sequences of defaults are asked for where rows are made.
    fn written_relation(&mut self, relation: &Relation) {
        for part in self.context.catalog.closures_by_part(relation.oid, Access::Write, &SqlBodyReader) {
            match part.closure {
                Closure::Known(references) => self.note_references(&references, &part.name),
                Closure::Unknown(reason) => {
                    self.notes.touches_anything.get_or_insert(reason);
                }
            }
        }
    }

    /// A BEFORE trigger that sets the key would put the row elsewhere.
    fn check_key_triggers(&mut self, relation: &Relation, key: &[LeafKey<'_>]) {
        for trigger in relation.triggers.iter().filter(|trigger| trigger.is_before && trigger.is_row) {
            let assigned = self.context.catalog.assigned_new_columns(trigger.function, &SqlBodyReader);
            let is_declared =
                self.context.catalog.functions.get(&trigger.function).is_some_and(|function| {
                    self.context.map.functions.contains_key(&(function.schema.clone(), function.name.clone()))
                });
            let sets_key = match &assigned {
                Some(columns) => key.iter().any(|key| columns.contains(&key.column.column)),
                None => !is_declared,
            };
            if sets_key {
                self.notes.touches_anything.get_or_insert_with(|| {
                    format!("Trigger \"{}\" of table \"{}\" may set the shard key.", trigger.name, relation.name)
                });
            }
        }
    }

    fn update<'n>(&mut self, update: &'n nodes::UpdateStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(update.with_clause(), ctes)?;
        let mut frame = Frame::default();
        let target = self.target(update.relation().ok_or_else(unknown_query)?, &mut frame)?;
        let mut findings = Findings::default();
        let mut from = vec![FromItem::Leaf(target.leaf)];
        for item in update.from_clause() {
            from.push(self.from_item(item, &mut frame, &ctes, &mut findings.subqueries)?);
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        self.check_current_of(update.where_clause());
        let filter = self.filter(update.where_clause(), &scope, &mut findings)?;
        for assignment in update.target_list() {
            self.scan(assignment.val(), &scope, Place::Stored, &mut findings)?;
        }
        self.check_key_assignments(update.target_list(), &target, &scope, &filter);
        let (outputs, is_complete) = self.returning(update.returning_clause(), &scope, &mut findings)?;
        self.place_write(&target, from, filter, findings, outputs, is_complete)
    }

    fn delete<'n>(&mut self, delete: &'n nodes::DeleteStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(delete.with_clause(), ctes)?;
        let mut frame = Frame::default();
        let target = self.target(delete.relation().ok_or_else(unknown_query)?, &mut frame)?;
        let mut findings = Findings::default();
        let mut from = vec![FromItem::Leaf(target.leaf)];
        for item in delete.using_clause() {
            from.push(self.from_item(item, &mut frame, &ctes, &mut findings.subqueries)?);
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        self.check_current_of(delete.where_clause());
        let filter = self.filter(delete.where_clause(), &scope, &mut findings)?;
        let (outputs, is_complete) = self.returning(delete.returning_clause(), &scope, &mut findings)?;
        let kept = filter.clone();
        let modified = self.place_write(&target, from, filter, findings, outputs, is_complete)?;
        Ok(Modified { facts: kept, ..modified })
    }

    /// Places the rows that an UPDATE or DELETE reads.
    fn place_write(
        &mut self,
        target: &Target<'c>,
        from: Vec<FromItem>,
        filter: Facts,
        findings: Findings,
        outputs: Vec<Output>,
        is_complete: bool,
    ) -> Result<Modified, PgError> {
        let block = Block { from, filter, subqueries: findings.subqueries, ..Block::default() };
        let bound = Bound { outputs: Vec::new(), is_complete: false, body: Body::Block(Box::new(block)), order: Vec::new() };
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        if let (TargetKind::Sharded { .. }, Distribution::Replicated | Distribution::Home) = (&target.kind, &placed.distribution) {
            return Err(PgError::internal("a sharded target was not placed"));
        }
        Ok(Modified { outputs, is_complete, facts: Facts::new(), is_replicated: matches!(target.kind, TargetKind::Replicated) })
    }

    fn returning<'n>(
        &mut self,
        clause: Option<&'n nodes::ReturningClause>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(Vec<Output>, bool), PgError> {
        let Some(clause) = clause else {
            return Ok((Vec::new(), true));
        };
        let targets = clause.exprs().iter().filter_map(|node| match node {
            Node::ResTarget(target) => Some(target),
            _ => None,
        });
        self.targets(targets, scope, findings)
    }

    /// `WHERE CURRENT OF cursor`: the row is where the cursor is, which only the shard of the cursor knows.
    fn check_current_of(&mut self, node: Node<'_>) {
        if matches!(node, Node::CurrentOfExpr(_)) {
            self.notes.not_pushable(PgError::unsupported(
                "WHERE CURRENT OF is not supported across shards",
                "The cursor is open on one shard.",
                "Name the row by its primary key.",
            ));
        }
    }

    /// SET of a key column, unless to what it is.
    fn check_key_assignments(
        &mut self,
        assignments: &CastNodeList<nodes::ResTarget>,
        target: &Target<'c>,
        scope: &Scope<'_, '_>,
        filter: &Facts,
    ) {
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        for assignment in assignments {
            let Some(column) = key.iter().find(|key| assignment.name() == Some(key.column.column.as_str())) else {
                continue;
            };
            if self.is_same_value(column, assignment.val(), scope, filter) {
                continue;
            }
            let name = column.column.column.clone();
            self.notes.not_pushable(PgError::unsupported(
                format!("cannot update shard key column \"{name}\""),
                "Changing it could move the row to another shard.",
                "Delete the row and insert it with the new key.",
            ));
            let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.add_part(*group, KeyCondition::All, &format!("{name} (assigned)"), &key);
        }
    }

    /// The value assigned is the column itself, its EXCLUDED twin, or what WHERE says it is.
    fn is_same_value(&mut self, key: &LeafKey<'_>, value: Node<'_>, scope: &Scope<'_, '_>, filter: &Facts) -> bool {
        match self.operand(value, scope.frame) {
            Operand::Term(term, _) => {
                let is_twin = term.function.is_none()
                    && term.column.index == key.term.column.index
                    && self.excluded_leaf == Some(term.column.leaf);
                let plain = Term::from(key.term.column);
                is_twin || term == plain || classes(filter).same(&term, &plain)
            }
            Operand::Value(value @ KeyValue::Parameter { .. }) => {
                let plain = Term::from(key.term.column);
                facts::conjuncts(filter.iter().map(Rc::as_ref)).into_iter().any(|predicate| {
                    matches!(predicate, Predicate::Test { term, test: Test::Equals(known), .. } if *term == plain && *known == value)
                })
            }
            Operand::Value(_) | Operand::Other => false,
        }
    }

    fn insert<'n>(&mut self, insert: &'n nodes::InsertStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(insert.with_clause(), ctes)?;
        let mut frame = Frame::default();
        let target = self.target(insert.relation().ok_or_else(unknown_query)?, &mut frame)?;
        let columns = self.insert_columns(insert, &target);
        let mut findings = Findings::default();
        match insert.select_stmt() {
            Node::SelectStmt(select) if is_plain_values(select) => {
                self.insert_values(insert, select, &target, &columns, &ctes, &mut findings)?;
            }
            Node::None => self.insert_default(&target, &columns),
            node => self.insert_select(insert, node, &target, &columns, &ctes)?,
        }
        self.check_made_rows(insert, &target, &columns);
        if let Some(conflict) = insert.on_conflict_clause() {
            self.add_excluded(&target, &mut frame)?;
            self.on_conflict(conflict, &target, &Scope { frame: &frame, ctes: &ctes, windows: None }, &mut findings)?;
            frame.items.pop();
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        let (outputs, is_complete) = self.returning(insert.returning_clause(), &scope, &mut findings)?;
        let anchors = self.target_anchor(&target);
        let block = Block { subqueries: findings.subqueries, ..Block::default() };
        self.place_subqueries(&block.subqueries, &Facts::new(), &anchors);
        if matches!(target.kind, TargetKind::Home) {
            self.place_from_list(&[FromItem::Leaf(target.leaf)], &Facts::new(), &[]);
        }
        Ok(Modified { outputs, is_complete, facts: Facts::new(), is_replicated: matches!(target.kind, TargetKind::Replicated) })
    }

    fn target_anchor(&self, target: &Target<'c>) -> Vec<RowKey> {
        match &target.kind {
            TargetKind::Sharded { group, key } => {
                vec![RowKey { group: *group, terms: key.iter().map(|key| key.term.clone()).collect(), is_total: true }]
            }
            TargetKind::Replicated | TargetKind::Home => Vec::new(),
        }
    }

    /// Names of the columns that the source's columns go to.
    fn insert_columns(&self, insert: &nodes::InsertStmt, target: &Target<'c>) -> Vec<String> {
        if insert.cols().is_empty() {
            return target
                .relation
                .map(|relation| relation.columns.iter().map(|column| column.name.clone()).collect())
                .unwrap_or_default();
        }
        insert
            .cols()
            .iter()
            .map(|node| match node {
                Node::ResTarget(column) => column.name().unwrap_or_default().to_owned(),
                _ => String::new(),
            })
            .collect()
    }

    fn insert_values<'n>(
        &mut self,
        insert: &'n nodes::InsertStmt,
        select: &'n nodes::SelectStmt,
        target: &Target<'c>,
        columns: &[String],
        ctes: &CteList<'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        let frame = Frame::default();
        let scope = Scope { frame: &frame, ctes, windows: None };
        let mut rows = Vec::new();
        for row in select.values_lists() {
            let row = row.as_node_list().ok_or_else(unknown_query)?;
            for value in row {
                self.scan(value, &scope, Place::Stored, findings)?;
            }
            if let TargetKind::Sharded { key, .. } = &target.kind {
                let value_of = |column: &str| {
                    let position = columns.iter().position(|name| name == column)?;
                    row.get(position)
                };
                let is_overridden = insert.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
                rows.push(self.row_condition(key, target, is_overridden, &value_of));
            }
        }
        self.insert_parts(target, rows);
        Ok(())
    }

    /// DEFAULT VALUES.
    fn insert_default(&mut self, target: &Target<'c>, _columns: &[String]) {
        if let TargetKind::Sharded { key, .. } = &target.kind {
            let row = self.row_condition(key, target, false, &|_| None);
            self.insert_parts(target, vec![row]);
        }
    }

    /// The rows' keys as one condition, and whether they may be on several shards.
    fn insert_parts(&mut self, target: &Target<'c>, rows: Vec<Result<KeyCondition, PgError>>) {
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let mut conditions = Vec::new();
        for row in rows {
            match row {
                Ok(condition) if conditions.contains(&condition) => {}
                Ok(condition) => conditions.push(condition),
                Err(reason) => {
                    self.notes.not_pushable(reason);
                    conditions = vec![KeyCondition::All];
                    break;
                }
            }
        }
        let condition = if conditions.len() == 1 { conditions.remove(0) } else { KeyCondition::Or(conditions) };
        let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        self.notes.not_pushable(PgError::unsupported(
            "INSERT of rows for several shards is not supported",
            "The rows of its VALUES belong to more than one shard.",
            "Insert the rows of each shard key in a statement of their own.",
        ));
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        self.add_part(*group, condition, &name, &key);
    }

    /// The key of one row that is made. An error: its key is not known before the row is made.
    fn row_condition<'n>(
        &mut self,
        key: &[LeafKey<'c>],
        target: &Target<'c>,
        is_overridden: bool,
        value_of: &dyn Fn(&str) -> Option<Node<'n>>,
    ) -> Result<KeyCondition, PgError> {
        let mut tests = Vec::new();
        for (index, key) in key.iter().enumerate() {
            let name = key.column.column.as_str();
            let column = target.relation.and_then(|relation| relation.column(name));
            let column = column.ok_or_else(|| unknown_key(name, "The column is not known."))?;
            if column.is_generated || (is_overridden && column.identity.is_some()) {
                return Err(unknown_key(name, "The column's value is generated when the row is made."));
            }
            let value = match value_of(name) {
                Some(node) if !matches!(node, Node::SetToDefault(_)) => self
                    .operand_value(node)
                    .ok_or_else(|| unknown_key(name, "Its value is an expression that the shard would compute."))?,
                _ if column.default.is_none() && column.identity.is_none() => KeyValue::Null,
                _ => return Err(unknown_key(name, "Its value is the column's default, which the shard would compute.")),
            };
            let stored = StoredValue { value, typmod: column.typmod, is_not_null: column.is_not_null };
            tests.push(KeyCondition::Test(KeyTest {
                column: index,
                column_type: key.column.column_type,
                function: key.column.function.clone(),
                test: Test::Stored(stored),
            }));
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { KeyCondition::And(tests) })
    }

    fn operand_value(&mut self, node: Node<'_>) -> Option<KeyValue> {
        match self.operand(node, &Frame::default()) {
            Operand::Value(value) => Some(value),
            Operand::Term(..) | Operand::Other => None,
        }
    }

    fn insert_select<'n>(
        &mut self,
        insert: &'n nodes::InsertStmt,
        node: Node<'n>,
        target: &Target<'c>,
        columns: &[String],
        ctes: &CteList<'n>,
    ) -> Result<(), PgError> {
        let bound = self.query(node, None, ctes)?;
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        if let Some(reason) = placed.gather {
            self.notes.not_pushable(reason);
        }
        let TargetKind::Sharded { group, key } = &target.kind else {
            if let Distribution::Sharded(_) = placed.distribution {
                self.notes.not_pushable(PgError::unsupported(
                    "INSERT ... SELECT from sharded tables into a table that is not sharded is not supported across shards",
                    "The rows of several shards would have to be collected first.",
                    "Select the rows and insert them, or restrict the query to one shard key.",
                ));
            }
            return Ok(());
        };
        let is_limited = matches!(&bound.body, Body::Block(block) if block.has_limit)
            || matches!(&bound.body, Body::SetOperation { has_limit: true, .. });
        if is_limited {
            self.notes.not_pushable(PgError::unsupported(
                "INSERT ... SELECT with LIMIT is not supported across shards",
                "Each shard would take that many rows of its own.",
                "Restrict the query to one shard key.",
            ));
        }
        let source = select_values(node);
        let output_of = |column: &str| columns.iter().position(|name| name == column);
        let constants: Vec<Option<Node<'n>>> =
            key.iter().map(|key| source.as_ref()?.get(output_of(&key.column.column)?).copied()).collect();
        let is_overridden = insert.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
        let value_of = |column: &str| constants.get(key.iter().position(|key| key.column.column == column)?).copied().flatten();
        if let Ok(condition) = self.constant_row(key, target, is_overridden, &value_of) {
            let columns: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.notes.not_pushable(unpushable_source());
            let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
            self.add_part(*group, condition, &name, &columns);
            return Ok(());
        }
        self.insert_from_columns(target, key, *group, &bound, &placed.distribution, &output_of, is_overridden)
    }

    /// Every key column is a constant of the select list.
    fn constant_row<'n>(
        &mut self,
        key: &[LeafKey<'c>],
        target: &Target<'c>,
        is_overridden: bool,
        value_of: &dyn Fn(&str) -> Option<Node<'n>>,
    ) -> Result<KeyCondition, PgError> {
        if key.iter().any(|key| value_of(&key.column.column).is_none()) {
            return Err(unpushable_source());
        }
        self.row_condition(key, target, is_overridden, value_of)
    }

    /// The key comes from the query's columns: the rows stay where they are when those are its rows' key.
    #[allow(clippy::too_many_arguments)]
    fn insert_from_columns(
        &mut self,
        target: &Target<'c>,
        key: &[LeafKey<'c>],
        group: GroupId,
        bound: &Bound,
        source: &Distribution,
        output_of: &dyn Fn(&str) -> Option<usize>,
        is_overridden: bool,
    ) -> Result<(), PgError> {
        let mut source_key = Vec::new();
        for key in key {
            let origin = output_of(&key.column.column).and_then(|index| bound.outputs.get(index)).filter(|_| bound.is_complete);
            let fits = origin.is_some_and(|output| self.stores_unchanged(key, target, output)) && !is_overridden;
            match origin.and_then(|output| output.origin.clone()).filter(|_| fits) {
                Some(origin) => source_key.push(LeafKey {
                    term: Term { column: origin.column, function: key.column.function.clone().or(origin.function) },
                    column: key.column,
                }),
                None => break,
            }
        }
        let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        if source_key.len() != key.len() {
            self.notes.not_pushable(unpushable_source());
            self.add_part(group, KeyCondition::All, &name, &names);
            return Ok(());
        }
        let implied = facts::implied(bound);
        let own = RowKey { group, terms: source_key.iter().map(|key| key.term.clone()).collect(), is_total: true };
        let classes = classes(&implied);
        let stays = match source {
            Distribution::Sharded(sharded) => sharded.keys.iter().any(|key| key.is_total && key.is_same(&own, &classes)),
            Distribution::Replicated | Distribution::Home => false,
        };
        if !stays {
            self.notes.not_pushable(unpushable_source());
        }
        let strategy =
            self.context.map.group(group).map(|group| group.strategy).ok_or_else(|| PgError::internal("group is gone"))?;
        let sorts_bytewise = |term: &Term| self.properties(term.column).is_collation_c;
        let condition = facts::condition(&implied, &source_key, strategy, &sorts_bytewise);
        self.add_part(group, condition, &name, &names);
        Ok(())
    }

    /// Assigning the source's column to the key column changes no value: same type, and no length that cuts.
    fn stores_unchanged(&self, key: &LeafKey<'_>, target: &Target<'c>, output: &Output) -> bool {
        let Some(column) = target.relation.and_then(|relation| relation.column(&key.column.column)) else {
            return false;
        };
        let is_function_output = output.origin.as_ref().is_some_and(|origin| origin.function.is_some());
        let same_type = crate::shard_key::KeyType::of_column(output.properties.type_oid) == Some(key.column.column_type);
        let same_length = column.typmod == -1 || column.typmod == output.properties.typmod;
        same_type && same_length && !column.is_generated && !(is_function_output && key.column.function.is_some())
    }

    /// What rows that are made draw from: defaults of columns that are not given.
    fn check_made_rows(&mut self, insert: &nodes::InsertStmt, target: &Target<'c>, columns: &[String]) {
        let Some(relation) = target.relation else {
            return;
        };
        for column in &relation.columns {
            let is_given = columns.contains(&column.name) && !uses_default(insert, columns, &column.name);
            let draws = column.identity.is_some() || column.default.as_deref().is_some_and(|default| default.contains("nextval("));
            if column.is_generated || is_given {
                continue;
            }
            match target.kind {
                TargetKind::Sharded { .. } if draws => self.notes.needs_home(|| {
                    format!(
                        "Column \"{}\" of table \"{}\" takes its default from a sequence, which lives on the home shard.",
                        column.name, relation.name
                    )
                }),
                TargetKind::Replicated if draws => {
                    self.notes.volatile.get_or_insert_with(|| format!("The default of column \"{}\"", column.name));
                }
                TargetKind::Replicated => {
                    if let Some(default) = &column.default {
                        self.note_default(default, &column.name);
                    }
                }
                TargetKind::Sharded { .. } | TargetKind::Home => {}
            }
        }
    }

    /// A default that differs from shard to shard.
    fn note_default(&mut self, default: &str, column: &str) {
        let text = format!("SELECT {default}");
        let Ok(tree) = parse::parse(&text) else {
            self.notes.volatile.get_or_insert_with(|| format!("The default of column \"{column}\""));
            return;
        };
        let mut reader = Reader::new(self.context, &text, &[]);
        for statement in tree.stmts() {
            let is_read = reader.query(statement, None, &None).is_ok();
            if !is_read || reader.notes.volatile.is_some() {
                self.notes.volatile.get_or_insert_with(|| format!("The default of column \"{column}\""));
            }
        }
    }

    /// EXCLUDED: the row that was to be inserted, with the target's columns.
    fn add_excluded(&mut self, target: &Target<'c>, frame: &mut Frame<'_>) -> Result<(), PgError> {
        let columns = target.relation.map_or(Columns::Unknown, Columns::Relation);
        let leaf = super::leaves::Leaf { name: EXCLUDED.to_owned(), kind: LeafKind::Replicated, columns, renamed: Vec::new() };
        let leaf = self.add_leaf(leaf)?;
        self.excluded_leaf = Some(leaf);
        frame.items.push(Visible { name: Some(EXCLUDED.to_owned()), schema: None, columns: VisibleColumns::Leaf(leaf) });
        Ok(())
    }

    fn on_conflict<'n>(
        &mut self,
        conflict: &'n nodes::OnConflictClause,
        target: &Target<'c>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        if let Some(infer) = conflict.infer() {
            self.scan(infer.where_clause(), scope, Place::Inside, findings)?;
        }
        for assignment in conflict.target_list() {
            self.scan(assignment.val(), scope, Place::Stored, findings)?;
        }
        self.scan(conflict.where_clause(), scope, Place::Inside, findings)?;
        self.check_key_assignments(conflict.target_list(), target, scope, &Facts::new());
        Ok(())
    }

    fn merge_statement<'n>(&mut self, merge: &'n nodes::MergeStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(merge.with_clause(), ctes)?;
        let mut frame = Frame::default();
        let target = self.target(merge.relation().ok_or_else(unknown_query)?, &mut frame)?;
        let mut findings = Findings::default();
        let source = self.from_item(merge.source_relation(), &mut frame, &ctes, &mut findings.subqueries)?;
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        let on = self.filter(merge.join_condition(), &scope, &mut findings)?;
        let mut keeps_source = false;
        let mut keeps_target = false;
        let source_facts = facts::of_rows(&source);
        for clause in merge.merge_when_clauses() {
            use nodes::MergeMatchKind as Kind;
            keeps_source |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_TARGET;
            keeps_target |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_SOURCE;
            self.merge_clause(clause, &target, &scope, &on, &source_facts, &mut findings)?;
        }
        let (outputs, is_complete) = self.returning(merge.returning_clause(), &scope, &mut findings)?;
        let kind = match (keeps_target, keeps_source) {
            (false, false) => super::Join::Inner,
            (true, false) => super::Join::Left,
            (false, true) => super::Join::Right,
            (true, true) => super::Join::Full,
        };
        let join = FromItem::Join {
            kind,
            left: Box::new(FromItem::Leaf(target.leaf)),
            right: Box::new(source),
            on,
            subqueries: Vec::new(),
        };
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        if !matches!(target.kind, TargetKind::Home) {
            self.notes.not_pushable(PgError::unsupported(
                format!("MERGE into \"{name}\" is not supported across shards"),
                "Its source would have to be split by the shard key.",
                "Restrict source and target to one shard key, or use INSERT ... ON CONFLICT.",
            ));
        }
        self.place_write(&target, vec![join], Facts::new(), findings, outputs, is_complete)
    }

    fn merge_clause<'n>(
        &mut self,
        clause: &'n nodes::MergeWhenClause,
        target: &Target<'c>,
        scope: &Scope<'_, 'n>,
        on: &Facts,
        source_facts: &Facts,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        self.scan(clause.condition(), scope, Place::Inside, findings)?;
        for value in clause.values() {
            self.scan(value, scope, Place::Stored, findings)?;
        }
        let mut columns = Vec::new();
        for assignment in clause.target_list() {
            let Node::ResTarget(assignment) = assignment else {
                return Err(unknown_query());
            };
            self.scan(assignment.val(), scope, Place::Stored, findings)?;
            columns.push(assignment.name().unwrap_or_default().to_owned());
            if clause.command_type == nodes::CmdType::CMD_UPDATE {
                self.check_merge_assignment(assignment, target, scope, on);
            }
        }
        if clause.command_type == nodes::CmdType::CMD_INSERT {
            if columns.is_empty() {
                columns = target
                    .relation
                    .map(|relation| relation.columns.iter().map(|column| column.name.clone()).collect())
                    .unwrap_or_default();
            }
            self.merge_insert(clause, target, scope, source_facts, &columns);
        }
        Ok(())
    }

    fn check_merge_assignment(&mut self, assignment: &nodes::ResTarget, target: &Target<'c>, scope: &Scope<'_, '_>, on: &Facts) {
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let Some(column) = key.iter().find(|key| assignment.name() == Some(key.column.column.as_str())) else {
            return;
        };
        if !self.is_same_value(column, assignment.val(), scope, on) {
            let name = column.column.column.clone();
            self.notes.not_pushable(PgError::unsupported(
                format!("cannot update shard key column \"{name}\""),
                "Changing it could move the row to another shard.",
                "Delete the row and insert it with the new key.",
            ));
            let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.add_part(*group, KeyCondition::All, &format!("{name} (assigned)"), &key);
        }
    }

    /// The key of the rows that WHEN NOT MATCHED inserts.
    fn merge_insert(
        &mut self,
        clause: &nodes::MergeWhenClause,
        target: &Target<'c>,
        scope: &Scope<'_, '_>,
        source_facts: &Facts,
        columns: &[String],
    ) {
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        let value_of = |column: &str| clause.values().get(columns.iter().position(|name| name == column)?);
        let is_overridden = clause.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
        let condition = match self.row_condition(key, target, is_overridden, &value_of) {
            Ok(condition) => condition,
            Err(_) => {
                let terms: Option<Vec<LeafKey<'c>>> = key
                    .iter()
                    .map(|key| match self.operand(value_of(&key.column.column)?, scope.frame) {
                        Operand::Term(term, _) => {
                            let properties = self.properties(term.column);
                            let output = Output { name: String::new(), origin: Some(term.clone()), properties };
                            let function = key.column.function.clone().or(term.function);
                            self.stores_unchanged(key, target, &output)
                                .then_some(LeafKey { term: Term { column: term.column, function }, column: key.column })
                        }
                        Operand::Value(_) | Operand::Other => None,
                    })
                    .collect();
                let strategy = self.context.map.group(*group).map(|group| group.strategy);
                match (terms, strategy) {
                    (Some(terms), Some(strategy)) => {
                        let sorts_bytewise = |term: &Term| self.properties(term.column).is_collation_c;
                        facts::condition(source_facts, &terms, strategy, &sorts_bytewise)
                    }
                    _ => KeyCondition::All,
                }
            }
        };
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        self.add_part(*group, condition, &name, &names);
    }

    /// What reading the relations touches besides: policies.
    pub fn note_policies(&mut self) {
        let relations: Vec<Oid> = self.notes.relations.iter().copied().collect();
        for oid in relations {
            let has_policies = self.context.catalog.relations.get(&oid).is_some_and(|relation| relation.has_row_security);
            if !has_policies {
                continue;
            }
            for part in self.context.catalog.closures_by_part(oid, Access::Read, &SqlBodyReader) {
                match part.closure {
                    Closure::Known(references) => self.note_references(&references, &part.name),
                    Closure::Unknown(reason) => {
                        self.notes.touches_anything.get_or_insert(reason);
                    }
                }
            }
        }
    }
}

const EXCLUDED: &str = "excluded";

/// VALUES and nothing else.
fn is_plain_values(select: &nodes::SelectStmt) -> bool {
    !select.values_lists().is_empty()
        && select.with_clause().is_none()
        && select.sort_clause().is_empty()
        && matches!(select.limit_count(), Node::None)
        && matches!(select.limit_offset(), Node::None)
}

/// The select list's expressions, when each is one column.
fn select_values(node: Node<'_>) -> Option<Vec<Node<'_>>> {
    let Node::SelectStmt(select) = node else {
        return None;
    };
    if select.op != nodes::SetOperation::SETOP_NONE || !select.values_lists().is_empty() {
        return None;
    }
    let values: Vec<Node<'_>> = select.target_list().iter().map(|target| target.val()).collect();
    let has_star = values
        .iter()
        .any(|value| matches!(value, Node::ColumnRef(column) if matches!(column.fields().iter().last(), Some(Node::A_Star(_)))));
    (!has_star).then_some(values)
}

/// Some row gives DEFAULT for the column, or has no value for it.
fn uses_default(insert: &nodes::InsertStmt, columns: &[String], column: &str) -> bool {
    let Some(position) = columns.iter().position(|name| name == column) else {
        return true;
    };
    match insert.select_stmt() {
        Node::None => true,
        Node::SelectStmt(select) if is_plain_values(select) => select
            .values_lists()
            .iter()
            .any(|row| row.as_node_list().is_none_or(|row| matches!(row.get(position), None | Some(Node::SetToDefault(_))))),
        // Fewer columns selected than the table has leave the last ones to their defaults.
        Node::SelectStmt(_) => {
            insert.cols().is_empty() && select_values(insert.select_stmt()).is_some_and(|values| position >= values.len())
        }
        _ => true,
    }
}

fn unknown_key(column: &str, detail: &str) -> PgError {
    PgError::unsupported(
        format!("the value of shard key column \"{column}\" is not known before the row is inserted"),
        detail,
        "Give it as a constant or as a parameter.",
    )
}

fn unpushable_source() -> PgError {
    PgError::unsupported(
        "INSERT ... SELECT whose rows change their shard is not supported",
        "The selected rows are not on the shards that own the keys they are inserted with.",
        "Select the same shard key that the rows have, or read the rows and insert them one shard key at a time.",
    )
}
