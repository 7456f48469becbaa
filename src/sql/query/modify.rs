//! INSERT, UPDATE, DELETE and MERGE.
//!
//! The rows that a write makes must be on the shard that owns their key. For UPDATE the key must not change; for INSERT its value
//! must be known ([`super::insert`], [`super::merge_into`]).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use pg_raw_parse::list::CastNodeList;
use pg_raw_parse::{Node, nodes};

use super::bind::{Reader, unknown_query};
use super::expression::{Findings, Place, Scope};
use super::facts;
use super::leaves::{LeafKey, LeafKind};
use super::placement::{Distribution, classes};
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::scope::Frame;
use super::with::CteList;
use super::{Block, Body, Bound, Column, Facts, FromItem, Output, Predicate, Term};
use crate::catalog::{
    Access, BlockCall, Call, CallSets, Closure, Function, Oid, References, Relation, Trigger, TriggerEvents, mentions,
    quoted_identifier,
};
use crate::error::PgError;
use crate::shard_key::KeyColumn;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyCondition, KeyValue, Part, QueryKind, SessionCall, Test};
use crate::sql::body::SqlBodyReader;

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

impl Modified {
    /// A write that returns nothing.
    pub fn of(target: &Target<'_>) -> Self {
        Self { is_complete: true, is_replicated: matches!(target.kind, TargetKind::Replicated), ..Self::default() }
    }
}

/// The table that is written.
pub struct Target<'c> {
    pub leaf: usize,
    pub relation: Option<&'c Relation>,
    /// Through which it is written.
    pub view: Option<&'c Relation>,
    pub kind: TargetKind<'c>,
}

impl<'c> Target<'c> {
    /// What has the columns that the statement may name, in their order.
    pub fn named(&self) -> Option<&'c Relation> {
        self.view.or(self.relation)
    }
}

pub enum TargetKind<'c> {
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
        self.is_modification = true;
        self.notes.writes();
        Ok(match node {
            Node::InsertStmt(insert) => (QueryKind::Insert, self.insert(insert, ctes)?),
            Node::UpdateStmt(update) => (QueryKind::Update, self.update(update, ctes)?),
            Node::DeleteStmt(delete) => (QueryKind::Delete, self.delete(delete, ctes)?),
            Node::MergeStmt(merge) => (QueryKind::Merge, self.merge_statement(merge, ctes)?),
            _ => return Err(unknown_query()),
        })
    }

    /// `events`: for which triggers may fire.
    pub fn target(&mut self, name: &nodes::RangeVar, frame: &mut Frame<'_>, events: TriggerEvents) -> Result<Target<'c>, PgError> {
        self.note_name(name);
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
            self.written_relation(relation, events);
            match &kind {
                TargetKind::Sharded { key, .. } => {
                    self.check_key_triggers(relation, &key.iter().map(|key| key.column).collect::<Vec<_>>(), events);
                }
                TargetKind::Replicated => self.check_copied_triggers(relation, events),
                TargetKind::Home => {}
            }
        }
        Ok(Target { leaf, relation, view: None, kind })
    }

    /// A write through a view changes the tables under it.
    fn written_view(&mut self, view: &Relation) {
        match self.context.catalog.closure_of_relation(view.oid, Access::Read, &SqlBodyReader).as_ref() {
            Closure::Known(references) => {
                let mut references = references.clone();
                if let Some(table) = self.first_sharded(&references) {
                    let refusal = PgError::unsupported(
                        format!("writing through view \"{}\" of a sharded table is not supported", view.name),
                        format!(
                            "It shows more than columns of table \"{}\" under their own names, or not its whole shard key, or filters by more \
                             than these.",
                            table.name
                        ),
                        format!("Write to table \"{}\" itself, with a condition on its shard key.", table.name),
                    );
                    if view.triggers.is_empty() && view.rules.is_empty() {
                        self.notes.through_view.get_or_insert_with(|| refusal.clone());
                    }
                    self.notes.not_pushable(refusal);
                }
                references.writes.append(&mut references.reads);
                self.note_references(&references, &format!("view \"{}\"", view.name));
            }
            Closure::Unknown(reason) => {
                self.notes.touches_anything.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// A DO block: on the home shard, where all that it may touch must be.
    pub fn anonymous_block(&mut self, block: &nodes::DoStmt) {
        let option = |name: &str| {
            let found = block.args().iter().find(|option| option.defname() == Some(name));
            found.and_then(|option| option.arg().as_str())
        };
        self.notes.writes();
        let language = option("language").unwrap_or("plpgsql").to_ascii_lowercase();
        let body = option("as").unwrap_or_default();
        let BlockCall { call: Call { closure, sets }, notifies, sets_local } = match language.as_str() {
            "plpgsql" => self.context.catalog.call_of_block(body, &self.search_path, &SqlBodyReader),
            _ => {
                let closure = Arc::new(Closure::Unknown(format!("the DO block is written in {language}")));
                BlockCall { call: Call { closure, sets: CallSets::Nothing }, notifies: false, sets_local: false }
            }
        };
        self.notes.may_change_schema(self.context.catalog.block_changes_schema(&language, body, &SqlBodyReader));
        if sets == CallSets::Session {
            self.notes.session_call(SessionCall::Sets);
        }
        if sets_local {
            self.notes.session_call(match sets {
                CallSets::Nothing => SessionCall::SetsLocally,
                CallSets::Local | CallSets::Session => SessionCall::SetsNamedLocally,
            });
        }
        if notifies {
            self.notes.sends_notifications(|| "the DO block".to_owned());
        }
        match &*closure {
            Closure::Known(references) => {
                let mut references = references.clone();
                let sharded = self.sharded_in_block(&references, body);
                match sharded {
                    None => self.notes.needs_home(|| "A DO block runs on the home shard.".to_owned()),
                    Some((table, is_named)) => self.notes.not_pushable(PgError::unsupported(
                        "DO blocks that touch rows of several shards are not supported",
                        match is_named {
                            true => format!("The block uses table \"{}\", whose rows are on several shards.", table.name),
                            false => format!(
                                "A function, trigger, view or foreign key of what the block uses touches table \"{}\", whose rows are on \
                                 several shards.",
                                table.name
                            ),
                        },
                        "Restrict each of its statements to the same shard key, written as a constant, or send them one by one.",
                    )),
                }
                if let Some((touched, parts)) = sharded.and_then(|_| self.placed_block(body)) {
                    references.reads.retain(|oid| !touched.contains(oid));
                    references.writes.retain(|oid| !touched.contains(oid));
                    self.notes.is_bound_to_text = true;
                    self.notes.hidden_keyed.extend(touched);
                    self.parts.extend(parts);
                }
                self.note_references(&references, "the DO block");
            }
            Closure::Unknown(reason) => {
                self.notes.touches_anything.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// A sharded table that a block touches, and whether the block names it: one that it names, if there is one.
    fn sharded_in_block(&self, references: &References, body: &str) -> Option<(&'c Relation, bool)> {
        let is_named = |oid: &Oid| {
            self.context.catalog.relations.get(oid).is_some_and(|it| mentions(body, &BTreeSet::from([it.name.clone()])))
        };
        let only_named = |oids: &[Oid]| oids.iter().copied().filter(is_named).collect();
        let named =
            References { reads: only_named(&references.reads), writes: only_named(&references.writes), ..References::default() };
        let named = self.first_sharded(&named).map(|table| (table, true));
        named.or_else(|| self.first_sharded(references).map(|table| (table, false)))
    }

    fn first_sharded(&self, references: &References) -> Option<&'c Relation> {
        let catalog = &self.context.catalog;
        references.reads.iter().chain(&references.writes).find_map(|oid| {
            let relation = catalog.relations.get(oid)?;
            matches!(relations::placed(self.context, relation, true), Resolved::Sharded { .. }).then_some(relation)
        })
    }

    /// Triggers that send notifications when the target is written so, its partitions' own among them.
    pub fn note_notifying(&mut self, target: &Target<'c>, events: TriggerEvents) {
        if let Some(relation) = target.relation {
            self.note_notifying_relation(relation, events);
        }
    }

    fn note_notifying_relation(&mut self, relation: &Relation, events: TriggerEvents) {
        let catalog = &self.context.catalog;
        for part in catalog.closures_by_part(relation.oid, Access::Write, &SqlBodyReader) {
            if part.notifies && part.fires_on.meets(events) {
                self.notes.sends_notifications(|| format!("{} of table \"{}\"", part.name, relation.name));
            }
        }
        for child in relation.children.iter().filter_map(|child| catalog.relations.get(child)) {
            self.note_notifying_relation(child, events);
        }
    }

    /// What a BEFORE trigger makes of a row may differ from copy to copy, but for one whose function is IMMUTABLE: by that its owner says that
    /// it makes the same of the same row.
    pub fn check_copied_triggers(&mut self, relation: &Relation, events: TriggerEvents) {
        let catalog = &self.context.catalog;
        let function = |trigger: &Trigger| catalog.functions.get(&trigger.function);
        let differs = |trigger: &Trigger| function(trigger).is_none_or(|function| function.volatility != 'i');
        let fires = |trigger: &Trigger| trigger.is_before && trigger.is_row && trigger.fires_on.meets(events);
        for member in catalog.family(relation) {
            if let Some(trigger) = member.triggers.iter().find(|trigger| fires(trigger) && differs(trigger)) {
                self.notes.refuse(copied_trigger(trigger, function(trigger), member));
            }
        }
    }

    /// A BEFORE trigger that sets the key would put the row elsewhere.
    pub fn check_key_triggers(&mut self, relation: &Relation, key: &[&KeyColumn], events: TriggerEvents) {
        // The row that a DELETE takes away has no new key.
        let events = TriggerEvents { delete: false, ..events };
        for member in self.context.catalog.family(relation) {
            let fires = |trigger: &&Trigger| trigger.is_before && trigger.is_row && trigger.fires_on.meets(events);
            for trigger in member.triggers.iter().filter(fires) {
                if self.may_set_key(trigger, key) {
                    self.notes.touches_anything.get_or_insert_with(|| {
                        format!("Trigger \"{}\" of table \"{}\" may set the shard key.", trigger.name, member.name)
                    });
                }
            }
        }
    }

    fn may_set_key(&self, trigger: &Trigger, key: &[&KeyColumn]) -> bool {
        let catalog = &self.context.catalog;
        let is_declared = catalog.functions.get(&trigger.function).is_some_and(|function| self.is_declared(function));
        match catalog.assigned_new_columns(trigger.function, &SqlBodyReader) {
            Some(columns) => key.iter().any(|key| columns.contains(&key.column)),
            None => !is_declared,
        }
    }

    /// For which triggers an UPDATE that assigns these columns may fire, which are noted where they are more than its own: a row that
    /// gets to another shard or partition is deleted where it is and inserted there.
    pub fn note_moving<'n>(&mut self, assigned: impl Iterator<Item = &'n str>, target: &Target<'c>) -> TriggerEvents {
        let Some(relation) = target.relation else { return TriggerEvents::UPDATE };
        let columns: BTreeSet<String> = assigned.map(str::to_owned).collect();
        let key = match &target.kind {
            TargetKind::Sharded { key, .. } => key.iter().map(|key| key.column).collect(),
            TargetKind::Replicated | TargetKind::Home => Vec::new(),
        };
        let events = match key.iter().any(|key| columns.contains(&key.column)) {
            true => TriggerEvents::MOVE,
            false => self.context.catalog.events_of_update(relation, columns, &SqlBodyReader),
        };
        if events != TriggerEvents::UPDATE {
            self.written_relation(relation, events);
            match target.kind {
                TargetKind::Sharded { .. } => self.check_key_triggers(relation, &key, events),
                TargetKind::Replicated => self.check_copied_triggers(relation, events),
                TargetKind::Home => {}
            }
        }
        events
    }

    fn update<'n>(&mut self, update: &'n nodes::UpdateStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(update.with_clause(), None, ctes)?;
        let mut frame = Frame::default();
        let target = self.target_or_view(update.relation().ok_or_else(unknown_query)?, &mut frame, TriggerEvents::UPDATE)?;
        let events = self.note_moving(update.target_list().iter().filter_map(nodes::ResTarget::name), &target);
        let mut findings = Findings::default();
        let mut from = vec![FromItem::Leaf(target.leaf)];
        for item in update.from_clause() {
            from.push(self.item_of_from(item, &mut frame, &ctes, &mut findings.subqueries)?);
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        self.check_current_of(update.where_clause());
        let filter = self.filter(update.where_clause(), &scope, &mut findings)?;
        for assignment in update.target_list() {
            self.scan(Node::ResTarget(assignment), &scope, Place::Stored, &mut findings)?;
        }
        self.check_key_assignments(update.target_list(), &target, &scope, &filter);
        self.updated_rows(update.target_list().iter(), &target, &scope, &filter);
        let before = findings.subqueries.len();
        let (outputs, is_complete) = self.returning(update.returning_clause(), &scope, &mut findings)?;
        findings.returned = findings.subqueries.split_off(before);
        let is_determined = self.meets_one(update, &target);
        self.check_copied_write(&target, is_determined);
        self.note_notifying(&target, events);
        self.place_write(&target, from, filter, findings)?;
        Ok(Modified { outputs, is_complete, ..Modified::of(&target) })
    }

    fn delete<'n>(&mut self, delete: &'n nodes::DeleteStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(delete.with_clause(), None, ctes)?;
        let mut frame = Frame::default();
        let target = self.target_or_view(delete.relation().ok_or_else(unknown_query)?, &mut frame, TriggerEvents::DELETE)?;
        let mut findings = Findings::default();
        let mut from = vec![FromItem::Leaf(target.leaf)];
        for item in delete.using_clause() {
            from.push(self.item_of_from(item, &mut frame, &ctes, &mut findings.subqueries)?);
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        self.check_current_of(delete.where_clause());
        let filter = self.filter(delete.where_clause(), &scope, &mut findings)?;
        let (outputs, is_complete) = self.returning(delete.returning_clause(), &scope, &mut findings)?;
        self.check_copied_write(&target, true);
        self.note_notifying(&target, TriggerEvents::DELETE);
        self.deleted_rows(&target);
        let kept = filter.clone();
        self.place_write(&target, from, filter, findings)?;
        Ok(Modified { outputs, is_complete, facts: kept, ..Modified::of(&target) })
    }

    /// Places the rows that an UPDATE or DELETE reads.
    pub fn place_write(
        &mut self,
        target: &Target<'c>,
        from: Vec<FromItem>,
        filter: Facts,
        findings: Findings,
    ) -> Result<(), PgError> {
        let block = Block { from, filter, subqueries: findings.subqueries, ..Block::default() };
        let bound = Bound { outputs: Vec::new(), is_complete: false, body: Body::Block(Box::new(block)), order: Vec::new() };
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        if let (TargetKind::Sharded { .. }, Distribution::Replicated | Distribution::Home) = (&target.kind, &placed.distribution) {
            return Err(PgError::internal("a sharded target was not placed"));
        }
        if !findings.returned.is_empty() {
            let anchors = if let Distribution::Sharded(sharded) = placed.distribution { sharded.keys } else { Vec::new() };
            self.place_subqueries(&findings.returned, &written_facts(target, &bound), &anchors);
        }
        Ok(())
    }

    pub fn returning<'n>(
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

    /// SET of a key column, unless to what it is; and to defaults.
    pub fn check_key_assignments(
        &mut self,
        assignments: &CastNodeList<nodes::ResTarget>,
        target: &Target<'c>,
        scope: &Scope<'_, '_>,
        filter: &Facts,
    ) {
        for assignment in assignments {
            self.check_set_default(assignment, target);
        }
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
            self.notes.not_pushable(key_update(&name));
            let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            let part = Part::Sharded { group: *group, condition: KeyCondition::All, stores: true };
            self.add_part(part, &format!("{name} (assigned)"), &key);
        }
    }

    /// The value assigned is the column itself, its EXCLUDED twin, or what WHERE says it is.
    pub fn is_same_value(&mut self, key: &LeafKey<'_>, value: Node<'_>, scope: &Scope<'_, '_>, filter: &Facts) -> bool {
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
                let is_known = facts::conjuncts(filter.iter().map(Rc::as_ref)).into_iter().any(|predicate| {
                    matches!(predicate, Predicate::Test { term, test: Test::Equals(known), .. } if *term == plain && *known == value)
                });
                if is_known {
                    // Equal is the same only where the value pins the shard: 'a ' of type char equals 'a'.
                    self.notes.not_pushable(key_update(&key.column.column));
                }
                is_known
            }
            Operand::Value(_) | Operand::Other => false,
        }
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
                self.notes.may_change_schema(part.changes_schema);
                match part.closure {
                    Closure::Known(references) => self.note_references_of_part(&references, &part.name),
                    Closure::Unknown(reason) => {
                        self.notes.touches_anything.get_or_insert(reason);
                    }
                }
            }
        }
    }
}

/// What holds for the rows of a write once they are written: nothing that is said of the target's columns, but of its key, which stays.
fn written_facts(target: &Target<'_>, bound: &Bound) -> Facts {
    let is_key = |column: &Column| match &target.kind {
        TargetKind::Sharded { key, .. } => key.iter().any(|key| key.term.column == *column),
        TargetKind::Replicated | TargetKind::Home => false,
    };
    let may_change = |column: &Column| column.leaf == target.leaf && !is_key(column);
    facts::implied(bound).into_iter().filter(|fact| !fact.mentions(&may_change)).collect()
}

pub fn key_update(column: &str) -> PgError {
    PgError::unsupported(
        format!("cannot update shard key column \"{column}\""),
        "Changing it could move the row to another shard.",
        "Delete the row and insert it with the new key.",
    )
}

fn copied_trigger(trigger: &Trigger, function: Option<&Function>, table: &Relation) -> PgError {
    let name = |schema: &str, name: &str| format!("{}.{}", quoted_identifier(schema), quoted_identifier(name));
    let (quoted, table) = (quoted_identifier(&trigger.name), name(&table.schema, &table.name));
    let function = function.map(|function| name(&function.schema, &function.name)).unwrap_or_default();
    PgError::unsupported(
        "this write to a reference table is not supported",
        format!("Trigger {quoted} would make another value on each shard, perhaps."),
        format!(
            "If it makes the same of the same row everywhere: ALTER FUNCTION {function}() IMMUTABLE. If not, as with now(): \
             DROP TRIGGER {quoted} ON {table}, and give the value in the statement."
        ),
    )
}
