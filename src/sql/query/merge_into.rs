//! MERGE: the target's rows that are changed, and the keys of those that are inserted.
//!
//! Each shard merges its own rows where target and source are joined by the whole key. A row that WHEN NOT MATCHED inserts stays on
//! its shard when its key is that of a source's row there: what ON says of it does not hold then, and proves nothing.

use pg_raw_parse::{Node, nodes};

use super::bind::{Reader, unknown_query};
use super::expression::{Findings, Place, Scope};
use super::facts;
use super::insert::expanded_value;
use super::leaves::{LeafKey, LeafKind};
use super::modify::{Modified, Target, TargetKind, key_update};
use super::numbered::generated_always;
use super::placement::classes;
use super::predicate::{Operand, is_star};
use super::scope::Frame;
use super::with::CteList;
use super::{Facts, FromItem, Join, Output, Term};
use crate::catalog::TriggerEvents;
use crate::error::PgError;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyCondition, Part};

/// A MERGE with its target and source read.
struct MergeInto<'t, 'c> {
    target: &'t Target<'c>,
    on: &'t Facts,
    source_facts: Facts,
}

impl<'c> Reader<'c> {
    pub fn merge_statement<'n>(&mut self, merge: &'n nodes::MergeStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(merge.with_clause(), None, ctes)?;
        let mut frame = Frame::default();
        let target = self.target(merge.relation().ok_or_else(unknown_query)?, &mut frame, events_of(merge))?;
        let mut events = events_of(merge);
        for clause in merge.merge_when_clauses().iter().filter(|clause| clause.command_type == nodes::CmdType::CMD_UPDATE) {
            let assigned = clause.target_list().iter().filter_map(|assignment| match assignment {
                Node::ResTarget(assignment) => assignment.name(),
                _ => None,
            });
            events = events.with(self.note_moving(assigned, &target));
        }
        let mut findings = Findings::default();
        let source = self.item_of_from(merge.source_relation(), &mut frame, &ctes, &mut findings.subqueries)?;
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        let on = self.filter(merge.join_condition(), &scope, &mut findings)?;
        let on_count = findings.subqueries.len();
        let mut keeps_source = false;
        let mut keeps_target = false;
        let into = MergeInto { target: &target, on: &on, source_facts: facts::of_rows(&source) };
        for clause in merge.merge_when_clauses() {
            use nodes::MergeMatchKind as Kind;
            keeps_source |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_TARGET;
            keeps_target |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_SOURCE;
            self.merge_clause(clause, &into, &scope, &mut findings)?;
        }
        if keeps_source || keeps_target {
            // Of rows that do not match ON says nothing, nor do its sub-selects.
            findings.subqueries.iter_mut().take(on_count).for_each(|subquery| subquery.is_required = false);
        }
        let before = findings.subqueries.len();
        let (outputs, is_complete) = self.returning(merge.returning_clause(), &scope, &mut findings)?;
        findings.returned = findings.subqueries.split_off(before);
        let kind = match (keeps_target, keeps_source) {
            (false, false) => Join::Inner,
            (true, false) => Join::Left,
            (false, true) => Join::Right,
            (true, true) => Join::Full,
        };
        let join = FromItem::Join {
            kind,
            left: Box::new(FromItem::Leaf(target.leaf)),
            right: Box::new(source),
            on,
            subqueries: Vec::new(),
        };
        self.check_copied_write(&target, true);
        self.note_notifying(&target, events);
        self.place_write(&target, vec![join], Facts::new(), findings)?;
        Ok(Modified { outputs, is_complete, ..Modified::of(&target) })
    }

    fn merge_clause<'n>(
        &mut self,
        clause: &'n nodes::MergeWhenClause,
        into: &MergeInto<'_, 'c>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        self.scan(clause.condition(), scope, Place::Inside, findings)?;
        // Of rows without a source ON says nothing.
        let nothing = Facts::new();
        let is_matched = clause.match_kind == nodes::MergeMatchKind::MERGE_WHEN_MATCHED;
        let known = if is_matched { into.on } else { &nothing };
        for value in clause.values() {
            self.scan(value, scope, Place::Stored, findings)?;
        }
        if clause.values().iter().any(is_star) && self.fills_by_place(into.target) {
            self.notes.refuse(expanded_value());
        }
        let mut columns = Vec::new();
        for assignment in clause.target_list() {
            let Node::ResTarget(assignment) = assignment else {
                return Err(unknown_query());
            };
            self.scan(Node::ResTarget(assignment), scope, Place::Stored, findings)?;
            columns.push(assignment.name().unwrap_or_default().to_owned());
            if clause.command_type == nodes::CmdType::CMD_UPDATE {
                self.check_merge_assignment(assignment, into.target, known, scope);
            }
        }
        match clause.command_type {
            nodes::CmdType::CMD_UPDATE => {
                let assignments = clause.target_list().iter().filter_map(|node| match node {
                    Node::ResTarget(assignment) => Some(assignment),
                    _ => None,
                });
                self.updated_rows(assignments, into.target, scope, known);
            }
            nodes::CmdType::CMD_DELETE => self.deleted_rows(into.target),
            _ => {}
        }
        if clause.command_type == nodes::CmdType::CMD_INSERT {
            if columns.is_empty() {
                columns = into
                    .target
                    .relation
                    .map(|relation| relation.columns.iter().map(|column| column.name.clone()).collect())
                    .unwrap_or_default();
            }
            self.merge_insert(clause, into, scope, &columns);
            self.check_merged_rows(clause, into.target, &columns);
        }
        Ok(())
    }

    /// `known`: what holds for the rows that are updated.
    fn check_merge_assignment(&mut self, assignment: &nodes::ResTarget, target: &Target<'c>, known: &Facts, scope: &Scope<'_, '_>) {
        self.check_set_default(assignment, target);
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let Some(column) = key.iter().find(|key| assignment.name() == Some(key.column.column.as_str())) else {
            return;
        };
        if !self.is_same_value(column, assignment.val(), scope, known) {
            let name = column.column.column.clone();
            self.notes.not_pushable(key_update(&name));
            let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            let part = Part::Sharded { group: *group, condition: KeyCondition::All, stores: true };
            self.add_part(part, &format!("{name} (assigned)"), &key);
        }
    }

    /// The key of the rows that WHEN NOT MATCHED inserts.
    fn merge_insert(
        &mut self,
        clause: &nodes::MergeWhenClause,
        into: &MergeInto<'_, 'c>,
        scope: &Scope<'_, '_>,
        columns: &[String],
    ) {
        let target = into.target;
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        let value_of = |column: &str| clause.values().get(columns.iter().position(|name| name == column)?);
        let is_overridden = clause.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        let (condition, stores) = match self.row_condition(key, target, is_overridden, &value_of) {
            Ok(condition) => {
                self.notes.not_pushable(inserted_elsewhere(&name));
                (condition, true)
            }
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
                let stays = terms.as_ref().is_some_and(|terms| !is_overridden && self.is_key_of_rows(terms, *group, into));
                if !stays {
                    self.notes.not_pushable(inserted_elsewhere(&name));
                }
                let strategy = self.context.map.group(*group).map(|group| group.strategy);
                let condition = match (terms, strategy) {
                    (Some(terms), Some(strategy)) => {
                        let sorts_bytewise = |term: &Term| self.properties(term.column).is_collation_c;
                        facts::condition(&into.source_facts, &terms, strategy, &sorts_bytewise)
                    }
                    _ => KeyCondition::All,
                };
                // The key of a row that is there already has its place.
                (condition, !stays)
            }
        };
        self.add_part(Part::Sharded { group: *group, condition, stores }, &name, &names);
    }

    /// The terms are the whole key of a sharded table of the source, by what holds for all of its rows: what they are on a shard
    /// belongs there. NULL, which an outer join makes of a key, the target refuses.
    fn is_key_of_rows(&self, terms: &[LeafKey<'c>], group: GroupId, into: &MergeInto<'_, 'c>) -> bool {
        let is_not_null = |key: &LeafKey<'_>| {
            let column = into.target.relation.and_then(|relation| relation.column(&key.column.column));
            column.is_some_and(|column| column.is_not_null)
        };
        let classes = classes(&into.source_facts);
        let mut leaves = self.leaves.iter().enumerate().filter(|(index, _)| *index != into.target.leaf);
        terms.iter().all(is_not_null)
            && leaves.any(|(_, leaf)| match &leaf.kind {
                LeafKind::Sharded { group: own, key } => {
                    let is_same = |(key, inserted): (&LeafKey<'_>, &LeafKey<'_>)| classes.same(&key.term, &inserted.term);
                    own.id == group && key.len() == terms.len() && key.iter().zip(terms).all(is_same)
                }
                LeafKind::Replicated | LeafKind::Home | LeafKind::Elsewhere | LeafKind::Derived => false,
            })
    }

    /// Columns that WHEN NOT MATCHED leaves to their defaults, and identity columns that it gives.
    fn check_merged_rows(&mut self, clause: &nodes::MergeWhenClause, target: &Target<'c>, columns: &[String]) {
        let is_default = |place: usize| matches!(clause.values().get(place), None | Some(Node::SetToDefault(_)));
        let is_given = |column: &str| columns.iter().position(|name| name == column).is_some_and(|place| !is_default(place));
        self.check_made_rows(target, &is_given);
        let is_system = clause.override_ == nodes::OverridingKind::OVERRIDING_SYSTEM_VALUE;
        let numbered = target.relation.iter().flat_map(|relation| &relation.columns);
        let mut numbered = numbered.filter(|column| column.identity == Some('a') && column.cluster_sequence().is_some());
        if let Some(column) = numbered.find(|column| is_given(&column.name) && !is_system) {
            self.notes.refuse(generated_always(&column.name));
        }
    }
}

fn inserted_elsewhere(name: &str) -> PgError {
    PgError::unsupported(
        format!("MERGE into \"{name}\" is not supported across shards"),
        "The shard key of the rows that it inserts is not that of the source's rows, which would be on other shards.",
        "Insert the shard key of a source that is sharded alike, restrict source and target to one key, or use INSERT ... ON CONFLICT.",
    )
}

/// Of its actions.
fn events_of(merge: &nodes::MergeStmt) -> TriggerEvents {
    merge.merge_when_clauses().iter().fold(TriggerEvents::NONE, |events, clause| match clause.command_type {
        nodes::CmdType::CMD_INSERT => events.with(TriggerEvents::INSERT),
        nodes::CmdType::CMD_UPDATE => events.with(TriggerEvents::UPDATE),
        nodes::CmdType::CMD_DELETE => events.with(TriggerEvents::DELETE),
        _ => events,
    })
}
