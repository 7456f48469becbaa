//! MERGE: the target's rows that are changed, and the keys of those that are inserted.

use pg_raw_parse::{Node, nodes};

use super::bind::{Reader, unknown_query};
use super::expression::{Findings, Place, Scope};
use super::facts;
use super::leaves::LeafKey;
use super::modify::{Modified, Target, TargetKind, key_update};
use super::predicate::Operand;
use super::scope::Frame;
use super::with::CteList;
use super::{Facts, FromItem, Join, Output, Term};
use crate::error::PgError;
use crate::sql::analysis::KeyCondition;

/// A MERGE with its target and source read.
struct MergeInto<'t, 'c> {
    target: &'t Target<'c>,
    on: &'t Facts,
    source_facts: Facts,
}

impl<'c> Reader<'c> {
    pub fn merge_statement<'n>(&mut self, merge: &'n nodes::MergeStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(merge.with_clause(), ctes)?;
        let mut frame = Frame::default();
        let target = self.target(merge.relation().ok_or_else(unknown_query)?, &mut frame)?;
        let mut findings = Findings::default();
        let source = self.item_of_from(merge.source_relation(), &mut frame, &ctes, &mut findings.subqueries)?;
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        let on = self.filter(merge.join_condition(), &scope, &mut findings)?;
        let mut keeps_source = false;
        let mut keeps_target = false;
        let into = MergeInto { target: &target, on: &on, source_facts: facts::of_rows(&source) };
        for clause in merge.merge_when_clauses() {
            use nodes::MergeMatchKind as Kind;
            keeps_source |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_TARGET;
            keeps_target |= clause.match_kind == Kind::MERGE_WHEN_NOT_MATCHED_BY_SOURCE;
            self.merge_clause(clause, &into, &scope, &mut findings)?;
        }
        let (outputs, is_complete) = self.returning(merge.returning_clause(), &scope, &mut findings)?;
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
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        if !matches!(target.kind, TargetKind::Home) {
            self.notes.not_pushable(PgError::unsupported(
                format!("MERGE into \"{name}\" is not supported across shards"),
                "Its source would have to be split by the shard key.",
                "Restrict source and target to one shard key, or use INSERT ... ON CONFLICT.",
            ));
        }
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
        for value in clause.values() {
            self.scan(value, scope, Place::Stored, findings)?;
        }
        let mut columns = Vec::new();
        for assignment in clause.target_list() {
            let Node::ResTarget(assignment) = assignment else {
                return Err(unknown_query());
            };
            self.scan(Node::ResTarget(assignment), scope, Place::Stored, findings)?;
            columns.push(assignment.name().unwrap_or_default().to_owned());
            if clause.command_type == nodes::CmdType::CMD_UPDATE {
                self.check_merge_assignment(assignment, into, scope);
            }
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
        }
        Ok(())
    }

    fn check_merge_assignment(&mut self, assignment: &nodes::ResTarget, into: &MergeInto<'_, 'c>, scope: &Scope<'_, '_>) {
        let TargetKind::Sharded { group, key } = &into.target.kind else {
            return;
        };
        let Some(column) = key.iter().find(|key| assignment.name() == Some(key.column.column.as_str())) else {
            return;
        };
        if !self.is_same_value(column, assignment.val(), scope, into.on) {
            let name = column.column.column.clone();
            self.notes.not_pushable(key_update(&name));
            let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.add_part(*group, KeyCondition::All, &format!("{name} (assigned)"), &key);
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
                        facts::condition(&into.source_facts, &terms, strategy, &sorts_bytewise)
                    }
                    _ => KeyCondition::All,
                }
            }
        };
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        self.add_part(*group, condition, &name, &names);
    }
}
