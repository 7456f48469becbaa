//! `plan_tables`: the script that declares a whole schema, statement by statement. Changes nothing.
//!
//! ```text
//! the home shard's schema, keys ─► members (who takes part, by which key) ─► changes (of the schema) ─► the schema as it will be
//!    ─► the declarations' own checks, on that ─► questions about the rows ─► the script; or, where anything is in the way, what
//! ```
//! What is planned is checked by the checks of the declarations themselves, so that a script which is given runs to its end. What is done
//! already is not planned again: after the script the plan is empty.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::arguments::Arguments;
use super::checks::{Candidate, CandidateKind, Obstacle};
use super::functions::no_shard;
use super::key::{self, TableKey};
use super::shard_connection::ShardConnection;
use super::shards::read_catalog;
use super::{BODY_READER, Caller, Control, names, reading};
use crate::catalog::{Catalog, Oid, Relation, RelationKind, quoted_literal, shown_name};
use crate::error::{PgError, SqlState};
use crate::shard_key::KeyColumn;
use crate::shardmap::{Group, GroupId, MapSnapshot, Strategy, Table, TableKind};
use crate::sql::Context;

mod candidates;
mod changes;
pub(super) mod definitions;
mod facts;
mod foreign_keys;
mod members;
mod moves;
mod rows_checked;
mod script;
mod statements;
mod triggers;
mod uniques;
mod views;

#[cfg(test)]
mod tests;

pub(super) use members::are_alike;
pub use script::{Row, text};

use candidates::propose;
use changes::Changes;
use facts::Facts;
use foreign_keys::{ForeignKeys, shown};
use members::{Members, Wishes, in_order, key_text};
use moves::AgainstMoves;
use rows_checked::Question;
use script::Kind;

pub(super) async fn call(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let snapshot = control.fresh_snapshot().await?;
    let mut home = control.open(snapshot.home().ok_or_else(no_shard)?).await?;
    let keys = arguments.optional_json("keys")?;
    let references = arguments.texts("reference_tables")?;
    let rows = match keys {
        Some(keys) => plan(&mut home, &snapshot, caller, keys, references).await,
        None => propose(&mut home, &snapshot, caller, references)
            .await
            .map(|proposed| proposed.into_iter().map(|one| one.row).collect()),
    };
    home.close().await;
    Ok(script::values(&rows?))
}

/// The script for these keys.
pub(super) async fn plan(
    home: &mut ShardConnection,
    snapshot: &MapSnapshot,
    caller: &Caller,
    keys: &Value,
    references: &[String],
) -> Result<Vec<Row>, PgError> {
    let schema = Schema::read(home, snapshot, caller).await?;
    let wishes = wishes(&schema.catalog, caller, keys, references)?;
    aside(move || schema.plan(&wishes).into_draft()).await?.checked(home).await
}

/// What is proposed, and the script of the best.
pub(super) async fn plan_best(
    home: &mut ShardConnection,
    snapshot: &MapSnapshot,
    caller: &Caller,
    references: &[String],
) -> Result<Vec<Row>, PgError> {
    let proposed = propose(home, snapshot, caller, references).await?;
    let best = proposed.first().map(|best| best.wishes.clone());
    let mut rows: Vec<Row> = proposed.into_iter().map(|one| one.row).collect();
    if let Some(wishes) = best {
        let schema = Schema::read(home, snapshot, caller).await?;
        rows.extend(aside(move || schema.plan(&wishes).into_draft()).await?.checked(home).await?);
    }
    Ok(rows)
}

/// A plan of hundreds of tables takes its time, in which other sessions want to go on.
async fn aside<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T, PgError> {
    tokio::task::spawn_blocking(compute).await.map_err(|_| PgError::internal("a plan was not finished"))
}

/// What a plan is made of.
struct Schema {
    catalog: Arc<Catalog>,
    map: MapSnapshot,
    facts: Facts,
    path: Vec<String>,
}

/// A plan before the rows were looked at.
struct Planned<'c> {
    members: Members<'c>,
    /// The schema after its changes.
    later: Arc<Catalog>,
    /// Of the foreign keys and of uniqueness: how much is lost.
    losses: Losses,
    rows: Vec<Row>,
    obstacles: Vec<Obstacle>,
    questions: Vec<Question>,
    against_moves: AgainstMoves,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses {
    foreign_keys: usize,
    uniques: usize,
}

impl Schema {
    async fn read(home: &mut ShardConnection, snapshot: &MapSnapshot, caller: &Caller) -> Result<Self, PgError> {
        let catalog = Arc::new(read_catalog(home).await?);
        let facts = Facts::read(home).await?;
        Ok(Self { catalog, map: snapshot.clone(), facts, path: reading::path_of(caller) })
    }

    fn plan<'c>(&'c self, wishes: &'c Wishes) -> Planned<'c> {
        let Schema { catalog, map, facts, .. } = self;
        let members = Members::find(catalog, map, wishes);
        let references = self.references_in_order(wishes);
        let keys = ForeignKeys { catalog, map, wishes, members: &members };
        let mut changes = Changes::find(&members, &keys, facts);
        let later = Arc::new(std::mem::take(&mut changes.planned));
        let mut obstacles = members.obstacles.clone();
        obstacles.extend(changes.obstacles.iter().cloned());
        let with_references = self.check_references(&references, &mut obstacles);
        let declared = self.check_members(&members, &later, &with_references, &mut obstacles);
        let declared = declared.filter(|_| obstacles.is_empty());
        let against_moves = AgainstMoves::find(&members, &changes, &later, declared.as_ref());
        let mut questions = rows_checked::questions(&members, &changes);
        if self.is_spread(&members) {
            questions.extend(rows_checked::questions_of_spread(&members));
        }
        let losses = Losses { foreign_keys: changes.dropped_count(), uniques: changes.weakened_count() };
        let mut rows: Vec<Row> = references.iter().map(|relation| reference_row(relation)).collect();
        rows.extend(changes.into_rows());
        rows.extend(distribute_row(&members));
        Planned { members, later, losses, rows, obstacles, questions, against_moves }
    }

    /// Those that others of them refer to first.
    fn references_in_order<'c>(&'c self, wishes: &Wishes) -> Vec<&'c Relation> {
        let is_declared = |relation: &Relation| {
            self.map.table(&relation.schema, &relation.name).is_some_and(|table| table.kind == TableKind::Reference)
        };
        let mut waiting: Vec<&Relation> = in_order(&self.catalog);
        waiting.retain(|relation| wishes.references.contains(&relation.oid) && !is_declared(relation));
        let mut ordered = Vec::new();
        while !waiting.is_empty() {
            let waits = |relation: &&Relation| {
                let mut others = relation.foreign_keys.iter().map(|key| key.referenced).filter(|oid| *oid != relation.oid);
                others.any(|oid| waiting.iter().any(|other| other.oid == oid))
            };
            // A circle stays an obstacle.
            let place = waiting.iter().position(|relation| !waits(relation)).unwrap_or_default();
            ordered.push(waiting.remove(place));
        }
        ordered
    }

    /// The map once they are declared.
    fn check_references(&self, references: &[&Relation], obstacles: &mut Vec<Obstacle>) -> MapSnapshot {
        let mut map = self.map.clone();
        for relation in references {
            let name = (relation.schema.clone(), relation.name.clone());
            if relation.kind == RelationKind::PartitionedTable {
                obstacles.push(Obstacle {
                    what: format!("Table {} is partitioned, and a partitioned table cannot be a reference table.", shown(relation)),
                    remedy: "Give it a key.".to_owned(),
                });
            }
            if map.table(&name.0, &name.1).is_some() {
                obstacles.push(Obstacle {
                    what: format!("Table {} is sharded already.", shown(relation)),
                    remedy: "Leave it out of reference_tables.".to_owned(),
                });
                continue;
            }
            obstacles.extend(names::inheritance(&self.catalog, relation).map(|error| of_error(&error)));
            let declared = reading::under(&self.catalog, map.clone(), &self.path);
            let kind = CandidateKind::Reference;
            let candidate =
                Candidate { catalog: &self.catalog, map: &map, relation, kind, reader: &BODY_READER, declared: &declared };
            add(obstacles, candidate.obstacles().into_iter().map(|obstacle| of_table(relation, obstacle)));
            let table = Table { schema: name.0.clone(), name: name.1.clone(), kind: TableKind::Reference, renamed: None };
            map.tables.insert(name, Arc::new(table));
        }
        map
    }

    /// As `distribute_tables` will check them, by the schema that it will find. Gives how statements are read then, and the group.
    fn check_members(
        &self,
        members: &Members<'_>,
        later: &Arc<Catalog>,
        map: &MapSnapshot,
        obstacles: &mut Vec<Obstacle>,
    ) -> Option<(Context, GroupId)> {
        let group = members.group.and_then(|group| map.group(group));
        let strategy = group.map_or(Strategy::Hash, |group| group.strategy);
        let mut keyed: Vec<(&Relation, TableKey)> = Vec::new();
        for member in members.list.iter().filter(|member| !member.is_declared) {
            let Some(relation) = later.relations.get(&member.relation.oid) else { continue };
            obstacles.extend(names::inheritance(&self.catalog, member.relation).map(|error| of_error(&error)));
            match TableKey::resolve(&key_text(&member.key), later, relation, strategy) {
                Ok(key) => keyed.push((relation, key)),
                // What is said of the column before is the cause.
                Err(_) if !members.obstacles.is_empty() => {}
                Err(error) => obstacles.push(of_error(&error)),
            }
        }
        let tables: Vec<(&Relation, &[KeyColumn])> =
            keyed.iter().map(|(relation, key)| (*relation, key.columns.as_slice())).collect();
        let types = keyed.first().map(|(_, key)| key.types.as_slice())?;
        let under = reading::with_tables(map, &tables, members.group, (strategy, types));
        let declared = reading::under(later, under, &self.path);
        let together: Vec<(Oid, &[KeyColumn])> = tables.iter().map(|(relation, key)| (relation.oid, *key)).collect();
        for (relation, key) in &tables {
            let kind = CandidateKind::Sharded { key, group: members.group, together_with: &together };
            let candidate = Candidate { catalog: later, map, relation, kind, reader: &BODY_READER, declared: &declared };
            add(obstacles, candidate.obstacles().into_iter().map(|obstacle| of_table(relation, obstacle)));
        }
        Some((declared, members.group.unwrap_or(reading::NEW_GROUP)))
    }

    /// Rows that are on the home shard would not belong there.
    fn is_spread(&self, members: &Members<'_>) -> bool {
        let is_elsewhere = |group: &Arc<Group>| {
            let home = self.map.home().map(|home| home.id);
            group.partitions.iter().any(|partition| Some(partition.shard) != home)
        };
        members.group.and_then(|group| self.map.group(group)).is_some_and(is_elsewhere)
    }
}

impl Planned<'_> {
    fn into_draft(self) -> Draft {
        Draft { rows: self.rows, obstacles: self.obstacles, questions: self.questions, against_moves: self.against_moves }
    }
}

/// A script, if the rows are as it needs them.
struct Draft {
    rows: Vec<Row>,
    obstacles: Vec<Obstacle>,
    questions: Vec<Question>,
    against_moves: AgainstMoves,
}

impl Draft {
    async fn checked(mut self, home: &mut ShardConnection) -> Result<Vec<Row>, PgError> {
        if !self.obstacles.is_empty() {
            return Ok(self.obstacles.iter().map(Row::obstacle).collect());
        }
        if self.rows.is_empty() {
            return Ok(Vec::new());
        }
        let answers = rows_checked::ask(home, &self.questions).await?;
        if !answers.obstacles.is_empty() {
            return Ok(answers.obstacles.iter().map(Row::obstacle).collect());
        }
        if let (Some(first), false) = (self.rows.first_mut(), answers.open.is_empty()) {
            let open = answers.open.join(" ");
            first.warning =
                Some(format!("Not found out in time, and if it is so the transaction fails and changes nothing: {open}"));
        }
        if let Some(last) = self.rows.last_mut().filter(|row| row.kind == Kind::Distribute.word()) {
            let warnings = self.against_moves.warnings(home).await?;
            last.warning = (!warnings.is_empty()).then(|| warnings.join("\n"));
        }
        Ok(self.rows)
    }
}

fn reference_row(relation: &Relation) -> Row {
    let table = shown(relation);
    let statement = format!("SELECT shardgate.reference_table({});", quoted_literal(&table).trim_start());
    let reason = "A copy on every shard: foreign keys to it stay, and joins with it need no other shard.";
    Row::statement(Kind::ReferenceTable, Some(table), statement, reason)
}

fn distribute_row(members: &Members<'_>) -> Option<Row> {
    let new: Vec<_> = members.list.iter().filter(|member| !member.is_declared).collect();
    let first = new.first()?;
    let colocated = members.list.iter().find(|member| member.is_declared).map(|member| {
        let table = shown_name(&member.relation.schema, &member.relation.name);
        format!(", colocate_with => {}", quoted_literal(&table).trim_start())
    });
    let literal = |text: &str| quoted_literal(text).trim_start().to_owned();
    let statement = match new.as_slice() {
        [member] => {
            format!("SELECT shardgate.distribute_table({}, {}", literal(&shown(member.relation)), literal(&key_text(&member.key)))
        }
        _ => {
            let pair = |member: &&members::Member<'_>| {
                format!("{}: {}", Value::from(shown(member.relation)), Value::from(key_text(&member.key)))
            };
            let pairs: Vec<String> = new.iter().map(pair).collect();
            format!("SELECT shardgate.distribute_tables({}", literal(&format!("{{{}}}", pairs.join(", "))))
        }
    };
    let statement = format!("{statement}{});", colocated.unwrap_or_default());
    let followed: Vec<String> = new
        .iter()
        .filter_map(|member| Some(format!("{} by foreign key \"{}\"", shown(member.relation), member.because?.name)))
        .collect();
    let mut reason = "Tables with rows stay on the home shard until their partitions are moved; empty ones are spread.".to_owned();
    if !followed.is_empty() {
        reason.push_str(&format!(" Not named, and taken along: {}.", followed.join(", ")));
    }
    let table = (new.len() == 1).then(|| shown(first.relation));
    Some(Row::statement(Kind::Distribute, table, statement, reason))
}

fn wishes(catalog: &Catalog, caller: &Caller, keys: &Value, references: &[String]) -> Result<Wishes, PgError> {
    let malformed = || {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, "keys must be an object of tables and their shard keys").with_hint(
            "For example: SELECT * FROM shardgate.plan_tables('{\"customers\": \"id\", \"invoices\": \"customer_id\"}').",
        )
    };
    let keys = keys.as_object().filter(|keys| !keys.is_empty()).ok_or_else(malformed)?;
    let mut wishes = Wishes::default();
    for (table, key) in keys {
        let relation = names::find_table(catalog, caller, table)?;
        let key = match key {
            Value::Null => None,
            Value::String(key) => Some(key::parse(key)?),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => return Err(malformed()),
        };
        if wishes.keys.insert(relation.oid, key).is_some() {
            return Err(named_twice(relation));
        }
    }
    wishes.references = references_named(catalog, caller, references)?;
    match wishes.keys.keys().find(|oid| wishes.references.contains(oid)).and_then(|oid| catalog.relations.get(oid)) {
        Some(relation) => Err(named_twice(relation)),
        None => Ok(wishes),
    }
}

fn references_named(catalog: &Catalog, caller: &Caller, references: &[String]) -> Result<BTreeSet<Oid>, PgError> {
    references.iter().map(|table| names::find_table(catalog, caller, table).map(|relation| relation.oid)).collect()
}

fn named_twice(relation: &Relation) -> PgError {
    PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("table \"{}\" is named twice", relation.name))
}

/// Nothing is told twice.
fn add(obstacles: &mut Vec<Obstacle>, found: impl Iterator<Item = Obstacle>) {
    for obstacle in found {
        if !obstacles.contains(&obstacle) {
            obstacles.push(obstacle);
        }
    }
}

/// Of many tables each obstacle says whose it is.
fn of_table(relation: &Relation, obstacle: Obstacle) -> Obstacle {
    let table = shown(relation);
    let names_it = obstacle.what.contains(&relation.name);
    Obstacle { what: if names_it { obstacle.what } else { format!("Table {table}: {}", obstacle.what) }, ..obstacle }
}

fn of_error(error: &PgError) -> Obstacle {
    let message = crate::error::capitalised(&error.message);
    let detail = error.detail.as_ref().map(|detail| format!(" {detail}")).unwrap_or_default();
    Obstacle { what: format!("{message}.{detail}"), remedy: error.hint.clone().unwrap_or_default() }
}
