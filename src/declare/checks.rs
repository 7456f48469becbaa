//! What keeps a table from being distributed: all of it at once, each with what to do about it. Pure.
//!
//! The rules are those under which a statement may run on the shard that owns its key and nothing else: uniqueness must be
//! decidable on one shard, foreign keys must stay on one shard, and what fires unseen (triggers, policies, defaults, rules)
//! must not reach tables whose rows are elsewhere, nor change the key after it was routed.

use crate::catalog::{
    Access, BodyReader, Catalog, Closure, Function, ObjectName, Oid, References, Relation, Trigger, Unique, quoted_identifier,
    quoted_literal, quoted_name, shown_name,
};
use crate::error::capitalised;
use crate::shard_key::KeyColumn;
use crate::shardmap::{DeclaredFunction, GroupId, MapSnapshot, Table, TableKind};
use crate::sql::{Context, declaration, keyed_by_row};

use super::plan_tables::definitions::unique_with;
use super::sequences;

mod foreign_keys;

pub(super) use foreign_keys::text as key_text;

/// One reason, as a sentence, and a way out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) remedy: String,
}

/// A table on its way to be declared.
pub(super) struct Candidate<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) map: &'a MapSnapshot,
    pub(super) relation: &'a Relation,
    pub(super) kind: CandidateKind<'a>,
    pub(super) reader: &'a dyn BodyReader,
    /// As statements are read once the table is declared.
    pub(super) declared: &'a Context,
}

#[derive(Clone, Copy)]
pub(super) enum CandidateKind<'a> {
    /// `group`: the one it joins; `None`: a new one of its own.
    Sharded {
        key: &'a [KeyColumn],
        group: Option<GroupId>,
        /// Tables that are declared by the same change, for the same group.
        together_with: &'a [(Oid, &'a [KeyColumn])],
    },
    Reference,
}

impl Candidate<'_> {
    /// In the order in which a user would mend them. What partitions have from their parent is told of the parent.
    pub(super) fn obstacles(&self) -> Vec<Obstacle> {
        let family = self.catalog.family(self.relation).into_iter();
        family.map(|member| self.obstacles_of(member)).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn obstacles_of(&self, member: &Relation) -> Vec<Obstacle> {
        // A key cannot be changed while foreign keys refer to it.
        let mut found: Vec<Obstacle> = self.foreign_keys(member).chain(self.referencing_keys(member)).collect();
        match self.kind {
            CandidateKind::Sharded { key, .. } => found.extend(self.uniques(member, key)),
            // Every row is everywhere, so every constraint is checked everywhere.
            CandidateKind::Reference => {}
        }
        found.extend(sequences::obstacles(member));
        found.extend(sequences::obstacles_of_partition(self.relation, member));
        found.extend(member.triggers.iter().filter_map(|trigger| self.trigger(trigger)));
        found.extend(self.hidden_references(member));
        found
    }

    fn uniques(&self, relation: &Relation, key: &[KeyColumn]) -> Vec<Obstacle> {
        let has = |unique: &Unique, column: &KeyColumn| unique.columns.iter().flatten().any(|name| *name == column.column);
        let obstacle = |unique: &Unique| {
            let missing: Vec<&str> =
                key.iter().filter(|column| !has(unique, column)).map(|column| column.column.as_str()).collect();
            (!missing.is_empty()).then(|| self.unique_obstacle(relation, unique, key, &missing))
        };
        relation.uniques.iter().filter_map(obstacle).collect()
    }

    fn unique_obstacle(&self, relation: &Relation, unique: &Unique, key: &[KeyColumn], missing: &[&str]) -> Obstacle {
        let columns: Vec<String> = key.iter().map(|column| format!("\"{}\"", column.column)).collect();
        let kind = match (unique.is_primary, unique.is_exclusion, unique.is_constraint) {
            (true, _, _) => "Primary key",
            (false, true, _) => "Exclusion constraint",
            (false, false, true) => "Unique constraint",
            (false, false, false) => "Unique index",
        };
        let compared = if unique.is_exclusion { " compared by =" } else { "" };
        let table = quoted_name(&relation.schema, &relation.name);
        let name = quoted_identifier(&unique.name);
        let part = if unique.is_constraint { "constraint" } else { "index" };
        let printed = self.catalog.definitions.get(&ObjectName::part_of(relation.whole(), part, unique.name.as_str()));
        let with_key = printed.filter(|_| !unique.is_exclusion).and_then(|printed| unique_with(printed, missing));
        let index = quoted_name(&relation.schema, &unique.name);
        let remedy = match (unique.is_constraint, with_key) {
            (true, Some(text)) => format!("ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {text}."),
            (true, None) => format!("ALTER TABLE {table} DROP CONSTRAINT {name}, and make it again with the shard key in it."),
            (false, Some(text)) => format!("DROP INDEX {index}; {text}."),
            (false, None) => format!("DROP INDEX {index}, and make it again with the shard key in it."),
        };
        Obstacle {
            what: format!("{kind} \"{}\" does not contain the shard key column {}{compared}.", unique.name, columns.join(", ")),
            remedy,
        }
    }

    fn place<'b>(&'b self, relation: &Relation) -> Place<'b> {
        if relation.oid == self.relation.oid {
            return match self.kind {
                CandidateKind::Sharded { key, group, .. } => Place::Sharded(group, key),
                CandidateKind::Reference => Place::Reference,
            };
        }
        if let CandidateKind::Sharded { group, together_with, .. } = self.kind
            && let Some((_, key)) = together_with.iter().find(|(oid, _)| *oid == relation.oid)
        {
            return Place::Sharded(group, key);
        }
        match self.map.table(&relation.schema, &relation.name).map(|table: &std::sync::Arc<Table>| &table.kind) {
            Some(TableKind::Sharded { group, key }) => Place::Sharded(Some(*group), key),
            Some(TableKind::Reference) => Place::Reference,
            None => {
                let parent = relation.parents.iter().find_map(|parent| self.catalog.relations.get(parent));
                parent.map_or(Place::Home, |parent| self.place(parent))
            }
        }
    }

    /// A trigger that fires at the wrong times or may change the row after it was routed. What it touches is the closure's.
    fn trigger(&self, trigger: &Trigger) -> Option<Obstacle> {
        let function = self.catalog.functions.get(&trigger.function);
        let function_name = function.map_or_else(|| "?".to_owned(), |function| shown_name(&function.schema, &function.name));
        if function.is_some_and(|function| self.declared(function).is_some()) {
            return None;
        }
        let changes_key = trigger.is_before && trigger.is_row && (trigger.fires_on.insert || trigger.fires_on.update);
        let key_columns: Vec<&str> = match self.kind {
            CandidateKind::Sharded { key, .. } => key.iter().map(|column| column.column.as_str()).collect(),
            CandidateKind::Reference => Vec::new(),
        };
        let what = if changes_key && !key_columns.is_empty() {
            match self.catalog.assigned_new_columns(trigger.function, self.reader) {
                Some(assigned) if !assigned.iter().any(|column| key_columns.contains(&column.as_str())) => return None,
                Some(_) => format!("Trigger \"{}\" sets the shard key after the row was routed.", trigger.name),
                None => format!(
                    "Trigger \"{}\" fires before each row and may set the shard key after the row was routed.",
                    trigger.name
                ),
            }
        } else if !trigger.is_row && (trigger.fires_on.insert || trigger.fires_on.update || trigger.fires_on.delete) {
            format!("Trigger \"{}\" fires for each statement, which would be once on every shard.", trigger.name)
        } else {
            return None;
        };
        let declaration = match &*self.catalog.closure_of_function(trigger.function, self.reader) {
            Closure::Known(references) => self.declaration(Some(trigger.function), references),
            Closure::Unknown(_) => None,
        };
        let declaration =
            declaration.unwrap_or_else(|| format!("SELECT shardgate.declare_function({});", quoted_literal(&function_name)));
        Some(Obstacle {
            what,
            remedy: format!(
                "Drop or disable the trigger; or, if its function neither sets the key nor minds, say so: {}.",
                declaration.trim_end_matches(';')
            ),
        })
    }

    fn declared(&self, function: &Function) -> Option<&DeclaredFunction> {
        let declared = self.map.functions.get(&(function.schema.clone(), function.name.clone()))?;
        declared.is_of(|| self.catalog.fingerprint(function)).then_some(declared)
    }

    fn hidden_references(&self, member: &Relation) -> Vec<Obstacle> {
        let mut found = Vec::new();
        for part in self.catalog.closures_by_part(member.oid, Access::Write, self.reader) {
            if part.notifies && matches!(self.kind, CandidateKind::Reference) {
                found.push(Obstacle {
                    what: format!("{} sends notifications, which every copy would send.", capitalised(&part.name)),
                    remedy: "Drop or disable it, or leave the table on the home shard; a sharded table may have such triggers."
                        .to_owned(),
                });
            }
            let declared =
                part.function.and_then(|oid| self.catalog.functions.get(&oid)).and_then(|function| self.declared(function));
            match (declared, &part.closure) {
                (Some(declared), _) => found.extend(self.declared_problem(&part.name, declared)),
                (None, Closure::Unknown(why)) => found.push(Obstacle {
                    what: format!("What {} touches cannot be proven: {why}.", part.name),
                    remedy: self.remedy_of_unknown(part.function),
                }),
                (None, Closure::Known(references)) => {
                    let function = part.function.filter(|_| part.is_of_row).and_then(|oid| self.catalog.functions.get(&oid));
                    let keyed = function.map(|function| keyed_by_row(self.declared, member, function)).unwrap_or_default();
                    let touched = references
                        .reads
                        .iter()
                        .map(|oid| (oid, "reads"))
                        .chain(references.writes.iter().map(|oid| (oid, "writes")));
                    for (oid, verb) in touched.filter(|(oid, _)| !keyed.contains(oid)) {
                        let Some(relation) = self.catalog.relations.get(oid) else { continue };
                        let declaration = self.declaration(part.function, references);
                        found.extend(self.touch_problem(&part.name, verb, relation, declaration.as_deref()));
                    }
                }
            }
        }
        found
    }

    /// A rule or a policy has no function that could be declared.
    fn remedy_of_unknown(&self, function: Option<Oid>) -> String {
        match function.and_then(|oid| self.catalog.functions.get(&oid)) {
            Some(function) => {
                let name = quoted_literal(&shown_name(&function.schema, &function.name));
                format!(
                    "Say what its function reads and writes, without the lists that are empty: \
                     SELECT shardgate.declare_function({name}, reads => '{{…}}', writes => '{{…}}')."
                )
            }
            None => "Drop it, or leave the table on the home shard.".to_owned(),
        }
    }

    /// What is proven to be touched: reference tables may be read; the table itself and others of its group hold the rows of
    /// the same key on the same shard only when the statement inside says so, which is for the user to declare.
    fn touch_problem(&self, part: &str, verb: &str, relation: &Relation, declaration: Option<&str>) -> Option<Obstacle> {
        let (where_to, remedy) = match (self.place(relation), verb) {
            (Place::Reference, "reads") => return None,
            (Place::Reference, _) => ("the reference table", "Write it by statements of its own, which reach every copy.".to_owned()),
            (Place::Home, _) => (
                "the home table",
                "Distribute that table, too, by the same key: first, or in one call (distribute_tables(), plan_tables()); or make it a reference table \
                 if it is only read; else drop what touches it."
                    .to_owned(),
            ),
            (Place::Sharded(..), _) => (
                "the sharded table",
                match declaration {
                    Some(declaration) => format!("If it only touches rows of the same shard key, say so: {declaration}"),
                    // A policy, a rule, a default: there is nothing to declare.
                    None => format!(
                        "Let it use the columns of its own table and settings of the session, or, if that table changes rarely: \
                         SELECT shardgate.reference_table({}); else drop it.",
                        quoted_literal(&shown_name(&relation.schema, &relation.name)).trim_start()
                    ),
                },
            ),
        };
        Some(Obstacle { what: format!("{} {verb} {where_to} \"{}\".", capitalised(part), relation.name), remedy })
    }

    fn declaration(&self, function: Option<Oid>, references: &References) -> Option<String> {
        let function = function.and_then(|oid| self.catalog.functions.get(&oid))?;
        Some(declaration(self.catalog, function, references, None))
    }

    /// A declaration is believed, but must be possible: rows of home tables are not on the other shards.
    fn declared_problem(&self, part: &str, declared: &DeclaredFunction) -> Vec<Obstacle> {
        let touched = declared.reads.iter().map(|name| (name, "reads")).chain(declared.writes.iter().map(|name| (name, "writes")));
        touched
            .filter_map(|(name, verb)| {
                let relation = self.catalog.relations.get(self.catalog.relation_names.get(name)?)?;
                match (self.place(relation), verb) {
                    (Place::Sharded(group, _), _) if group == self.own_group() => None,
                    (Place::Reference, "reads") => None,
                    (Place::Sharded(..) | Place::Reference | Place::Home, _) => Some(Obstacle {
                        what: format!(
                            "{} is declared to use function \"{}\", which {verb} table \"{}\", whose rows are not all on the same shard.",
                            capitalised(part),
                            declared.name,
                            relation.name
                        ),
                        remedy: "Distribute that table first, colocated with this one.".to_owned(),
                    }),
                }
            })
            .collect()
    }

    /// `Some(None)`: of a new group, in which nobody else is.
    fn own_group(&self) -> Option<GroupId> {
        match self.kind {
            CandidateKind::Sharded { group, .. } => group,
            CandidateKind::Reference => None,
        }
    }
}

enum Place<'a> {
    /// `None`: the new group of the candidate.
    Sharded(Option<GroupId>, &'a [KeyColumn]),
    Reference,
    Home,
}
