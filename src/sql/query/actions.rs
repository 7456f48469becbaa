//! What a write does to tables that it does not name: partitions with triggers of their own, and rows that refer to those written
//! (ON DELETE CASCADE and its kind).
//!
//! Each server carries these out for its own rows, which is right as long as no row gets another shard key, no copy of a reference
//! table another value, and what fires touches nothing that is elsewhere.

use std::collections::BTreeSet;

use pg_raw_parse::nodes;

use super::bind::Reader;
use super::expression::{Place, Scope};
use super::modify::{Target, TargetKind};
use super::placement::classes;
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::set_default::{is_same_on_every_copy, sets_default};
use super::{Facts, Predicate, Term, facts};
use crate::catalog::{
    Access, ActionOn, Called, Closure, Column, ForeignKeyAction, Relation, RelationKind, RowChange, SchemaEffect, TriggerEvents,
};
use crate::error::{PgError, SqlState};
use crate::shard_key::KeyColumn;
use crate::shardmap::TableKind;
use crate::sql::analysis::{KeyValue, SessionCall, Test};
use crate::sql::body::SqlBodyReader;

impl<'c> Reader<'c> {
    /// Triggers, rules and defaults of a table that is written, and of those that hold a part of its rows. Sequences of defaults are
    /// asked for where rows are made.
    pub fn written_relation(&mut self, relation: &Relation, events: TriggerEvents) {
        self.note_parts(relation, Access::Write, events, false);
        // Values that are assigned may be cast.
        let catalog = &self.context.catalog;
        let types = relation.columns.iter().filter_map(|column| catalog.types.get(&column.type_oid));
        let functions = types.filter_map(|known| catalog.type_functions.get(&known.name)).flatten();
        for function in functions.filter_map(|oid| catalog.functions.get(oid)) {
            let mut conversions = catalog.conversions.iter().filter(|conversion| conversion.function == function.oid).peekable();
            if conversions.peek().is_none() {
                self.note_user_function(function, Place::Stored);
            } else if conversions.any(|conversion| conversion.called != Called::Asked) {
                // Which values there are is known when all relations are.
                self.notes.assigned.insert(function.oid);
            }
        }
        for member in self.context.catalog.family(relation).into_iter().skip(1) {
            self.note_parts(member, Access::Action, events, false);
        }
    }

    /// `is_at_home`: it happens on the home shard, wherever else the statement runs.
    fn note_parts(&mut self, relation: &Relation, access: Access, events: TriggerEvents, is_at_home: bool) {
        let parts = self.context.catalog.closures_by_part(relation.oid, access, &SqlBodyReader);
        for part in parts.into_iter().filter(|part| part.fires_on.meets(events)) {
            let function = part.function.and_then(|function| self.context.catalog.functions.get(&function));
            if part.sets_local && !function.is_some_and(|function| self.is_declared(function)) {
                self.notes.session_call(SessionCall::SetsLocally);
            }
            let is_declared = function.is_some_and(|function| self.is_declared(function));
            self.notes
                .may_change_schema(part.changes_schema.filter(|(effect, _)| *effect == SchemaEffect::Changes || !is_declared));
            let closure = match function.filter(|_| is_declared) {
                Some(function) => self.closure(function),
                None => part.closure,
            };
            let closure = match closure {
                Closure::Known(references) if part.is_of_row || is_declared => {
                    Closure::Known(self.without_keyed(relation, function, references))
                }
                other => other,
            };
            match closure {
                Closure::Known(references) if is_at_home && references.writes.iter().all(|oid| self.is_home_table(*oid)) => {
                    let reads = references.reads.iter().copied().filter(|oid| !self.is_home_table(*oid)).collect();
                    let references = crate::catalog::References { reads, ..Default::default() };
                    self.note_references_of_part(&references, &part.name);
                }
                Closure::Known(references) => self.note_references_of_part(&references, &part.name),
                Closure::Unknown(reason) => {
                    function.into_iter().for_each(|function| self.note_declared_before(function));
                    self.notes.touches_anything.get_or_insert(reason);
                }
            }
        }
    }

    /// Of a trigger, policy and so on, which is told by its name.
    pub(super) fn note_references_of_part(&mut self, references: &crate::catalog::References, part: &str) {
        let before = self.notes.hidden_sharded.len();
        self.note_references(references, part);
        if self.notes.hidden_sharded.len() > before {
            self.notes.hidden_by.get_or_insert_with(|| part.to_owned());
        }
    }

    fn is_home_table(&self, oid: u32) -> bool {
        let relation = self.context.catalog.relations.get(&oid);
        relation.is_some_and(|relation| {
            relation.kind != RelationKind::Sequence && matches!(relations::placed(self.context, relation, true), Resolved::Home(_))
        })
    }

    /// A DELETE.
    pub fn deleted_rows(&mut self, target: &Target<'c>) {
        self.changed_rows(target, RowChange::Deleted);
    }

    /// An UPDATE, or what stands for one in ON CONFLICT and MERGE.
    pub fn updated_rows<'n>(
        &mut self,
        assignments: impl Iterator<Item = &'n nodes::ResTarget>,
        target: &Target<'c>,
        scope: &Scope<'_, '_>,
        filter: &Facts,
    ) {
        let mut columns = BTreeSet::new();
        for assignment in assignments {
            self.check_generated(assignment, target);
            if !self.keeps_value(assignment, target, scope, filter) {
                columns.extend(assignment.name().map(str::to_owned));
            }
        }
        // Those that move a row are looked at by themselves.
        if let TargetKind::Sharded { key, .. } = &target.kind {
            columns.retain(|column| key.iter().all(|key| key.column.column != *column));
        }
        self.changed_rows(target, RowChange::Updated(columns));
    }

    /// The shards do not know of identity columns that the whole cluster numbers, nor see what moves to another shard as an UPDATE.
    fn check_generated(&mut self, assignment: &nodes::ResTarget, target: &Target<'c>) {
        let column = target.relation.and_then(|relation| relation.column(assignment.name()?));
        let is_shared = matches!(target.kind, TargetKind::Sharded { .. } | TargetKind::Replicated);
        let is_always = |column: &&Column| is_shared && (column.is_generated || column.identity == Some('a'));
        if let Some(column) = column.filter(is_always).filter(|_| !sets_default(assignment.val())) {
            let kind = if column.is_generated { "a generated column" } else { "an identity column defined as GENERATED ALWAYS" };
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
            let error = PgError::new(SqlState::GENERATED_ALWAYS, message);
            self.notes.refuse(error.with_detail(format!("Column \"{}\" is {kind}.", column.name)));
        }
    }

    fn changed_rows(&mut self, target: &Target<'c>, change: RowChange) {
        let Some(relation) = target.relation else { return };
        let catalog = &self.context.catalog;
        let actions = match relation.kind {
            // Its columns may have other names than the tables'.
            RelationKind::View => match catalog.closure_of_relation(relation.oid, Access::Read, &SqlBodyReader).as_ref() {
                Closure::Known(under) => {
                    let under = under.reads.iter().filter_map(|oid| catalog.relations.get(oid));
                    under.flat_map(|table| catalog.actions_after_any(table, &SqlBodyReader)).collect()
                }
                Closure::Unknown(_) => Vec::new(),
            },
            _ => catalog.actions_after(relation, change, &SqlBodyReader),
        };
        for action in actions {
            self.note_action(&action);
        }
    }

    fn note_action(&mut self, action: &ActionOn<'c>) {
        let relation = action.relation;
        let mut is_at_home = false;
        let events = match &action.change {
            RowChange::Deleted => TriggerEvents::DELETE,
            RowChange::Updated(columns) => self.context.catalog.events_of_update(relation, columns.clone(), &SqlBodyReader),
        };
        match relations::placed(self.context, relation, true) {
            Resolved::Sharded { table, .. } => {
                if let TableKind::Sharded { key, .. } = &table.kind {
                    self.check_key_of_action(action, key);
                    // Of the same key: a foreign key between sharded tables has the whole key in it.
                    let has_key = key.iter().all(|key| action.foreign_key.columns.contains(&key.column));
                    if has_key && action.change == RowChange::Deleted {
                        self.keyed.insert(relation.oid);
                    }
                }
                self.check_defaults_of_action(action);
            }
            Resolved::Reference(_) => {
                self.check_copied_triggers(relation, events);
                self.check_defaults_of_action(action);
            }
            Resolved::Home(_) => is_at_home = true,
            Resolved::View(_) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => {}
        }
        for member in self.context.catalog.family(relation) {
            self.note_parts(member, Access::Action, events, is_at_home);
        }
    }

    /// A row is on the shard of its key, and an action changes it where it is.
    fn check_key_of_action(&mut self, action: &ActionOn<'_>, key: &[KeyColumn]) {
        if let Some(changed) = key.iter().find(|key| action.changes(&key.column)) {
            let (name, table) = (&action.foreign_key.name, &action.relation.name);
            self.notes.refuse(PgError::unsupported(
                format!("foreign key \"{name}\" may change shard key column \"{}\" of table \"{table}\"", changed.column),
                "The rows that it changes would stay on their shards, where nobody looks for their new keys.",
                format!("Change or delete the rows of table \"{table}\" that refer to these first, by statements of their own."),
            ));
        }
        if matches!(action.change, RowChange::Updated(_)) {
            self.check_key_triggers(action.relation, &key.iter().collect::<Vec<_>>(), TriggerEvents::UPDATE);
        }
    }

    /// SET DEFAULT evaluates the default on each shard.
    fn check_defaults_of_action(&mut self, action: &ActionOn<'_>) {
        if action.action != ForeignKeyAction::SetsDefault {
            return;
        }
        let mut set = action.relation.columns.iter().filter(|column| action.changes(&column.name) && !column.is_generated);
        if let Some(column) = set.find(|column| !is_same_on_every_copy(column)) {
            self.notes.volatile.get_or_insert_with(|| format!("the default of column \"{}\"", column.name));
            self.notes.not_pushable(PgError::unsupported(
                format!("the default of column \"{}\" is not supported for rows of several shards", column.name),
                format!("Foreign key \"{}\" would have it evaluated on each shard.", action.foreign_key.name),
                format!("Change the rows of table \"{}\" first.", action.relation.name),
            ));
        }
    }

    /// The value assigned is the column itself, or what WHERE says it is.
    fn keeps_value(&mut self, assignment: &nodes::ResTarget, target: &Target<'c>, scope: &Scope<'_, '_>, filter: &Facts) -> bool {
        let named = target.named();
        let place = named.and_then(|relation| relation.columns.iter().position(|it| Some(it.name.as_str()) == assignment.name()));
        let Some(index) = place.filter(|_| assignment.indirection().is_empty()) else { return false };
        let plain = Term::from(super::Column { leaf: target.leaf, index });
        match self.operand(assignment.val(), scope.frame) {
            Operand::Term(term, _) => term == plain || classes(filter).same(&term, &plain),
            Operand::Value(value) => {
                let known: Vec<KeyValue> = facts::conjuncts(filter.iter().map(std::rc::Rc::as_ref))
                    .into_iter()
                    .filter_map(|predicate| match predicate {
                        Predicate::Test { term, test: Test::Equals(known), .. } if *term == plain => Some(known.clone()),
                        _ => None,
                    })
                    .collect();
                known.iter().any(|known| self.is_same_constant(&value, known))
            }
            Operand::Other => false,
        }
    }

    /// The same parameter, or the same literal once more, which the reading then depends on.
    fn is_same_constant(&mut self, value: &KeyValue, known: &KeyValue) -> bool {
        let (
            KeyValue::Literal { ordinal, negative, cast },
            KeyValue::Literal { ordinal: other, negative: is_other_negative, cast: other_cast },
        ) = (value, known)
        else {
            return matches!(value, KeyValue::Parameter { .. }) && value == known;
        };
        self.notes.fixed_literals.extend([*ordinal, *other]);
        let text = |ordinal: u32| {
            let literal = self.literals.get(ordinal as usize)?;
            self.text.get(literal.start as usize..literal.end as usize)
        };
        text(*ordinal).is_some_and(|own| text(*other) == Some(own)) && negative == is_other_negative && cast == other_cast
    }
}
