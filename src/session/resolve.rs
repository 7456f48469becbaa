//! From a statement's keys to its shards, for the session: waits while a partition is held, and takes note of what the transaction
//! writes and locks.
//!
//! Routing by hand: `SET shardgate.shard`, or a comment in the text, names the shard of a statement. What reads sees the rows that are
//! stored there, copies of a move included. What writes rows of sharded tables is let through where its keys are proven to be that shard's,
//! as without the hint: a row on another shard than its key's is one that nobody finds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::route::{Route, Turns};
use super::writes::write::{Writing, WritingKind, has_on_conflict};
use super::{Failure, Session};
use crate::catalog::{Oid, Relation};
use crate::error::{PgError, SqlState};
use crate::routing::{self, Inputs, PlacedRows, Reach, Resolution, Resolved, Target};
use crate::session::writes::staged;
use crate::shardmap::{Group, GroupId, MapSnapshot, Partition, PartitionState, ShardId, TableKind};
use crate::sql::analysis::{Analysis, Command, Effect, KeyCondition, Part, QueryKind, Scope};
use crate::sql::is_access_share;

/// What is looked for.
struct Asked<'a> {
    inputs: &'a Inputs<'a>,
    /// Where a statement goes that touches no row.
    preferred: Option<ShardId>,
    /// It writes and locks nothing.
    is_read: bool,
    deadline: Instant,
}

impl Session {
    pub(super) async fn resolve(&mut self, statement: &Analysis, parts: &[Part], inputs: &Inputs<'_>) -> Result<Target, Failure> {
        let asked = Asked {
            inputs,
            preferred: self.shards_begun().next(),
            is_read: statement.effect == Effect::Read,
            deadline: Instant::now() + HOLD_WAIT,
        };
        let target = self.resolve_asked(parts, &asked).await?;
        self.check_stage(&target)?;
        // The rows of a COPY are claimed one by one.
        if !asked.is_read && statement.copy_in.is_none() {
            self.claim(&target);
        }
        Ok(target)
    }

    /// Waits while a partition is held.
    async fn resolve_asked(&mut self, parts: &[Part], asked: &Asked<'_>) -> Result<Target, Failure> {
        loop {
            let own = self.transaction.snapshots.map();
            let claims = &self.transaction.claims;
            let resolution = Resolution { claims, by: own, preferred: asked.preferred, deadline: asked.deadline };
            let held_by = match routing::resolve(&*self.gateway.map, parts, asked.inputs, &resolution).await? {
                Resolved::Placed(target) => {
                    let newest = self.gateway.map.load();
                    match self.transaction.compare_with(&newest, &target, asked.is_read)? {
                        None => {
                            let has_snapshot = self.has_snapshot();
                            return Ok(self.transaction.in_snapshot(&newest, target, has_snapshot));
                        }
                        Some(held_by) => held_by,
                    }
                }
                Resolved::Held(epoch) => epoch,
            };
            Box::pin(self.wait_for_hold(held_by, asked.deadline.into())).await?;
        }
    }

    /// All stages of a statement find the same owners: what one of them has read, or locked, the next one may write.
    fn check_stage(&mut self, target: &Target) -> Result<(), PgError> {
        if !self.staging.is_under_way {
            return Ok(());
        }
        let first = self.staging.planned_by.get_or_insert_with(|| Arc::clone(&target.map));
        if Arc::ptr_eq(first, &target.map) || !routing::has_moved(first, &target.map, &target.touched) {
            return Ok(());
        }
        Err(routing::partition_has_moved())
    }

    /// What comes later in the same transaction relies on it. By itself a statement of the simple protocol is all of its transaction.
    fn claim(&mut self, target: &Target) {
        if self.transaction.is_open() || self.batch.is_open {
            self.transaction.claims.add(&target.map, &target.touched);
        }
    }

    /// A cursor or a portal locks rows where they were when it was opened. By now others may change them elsewhere.
    pub(super) fn check_locks_are_right(&self) -> Result<(), PgError> {
        match self.transaction.claims.have_moved(&self.gateway.map.load()) {
            true => Err(routing::partition_has_moved()),
            false => Ok(()),
        }
    }

    /// LOCK TABLE and TRUNCATE on every shard: no partition is held, and all of them are the transaction's. Which tables they name does
    /// not matter enough to find out; a lock that keeps no writer out, such as that of a dump, is none.
    pub(super) async fn claim_tables(&mut self, statement: &Analysis, text: &str) -> Result<(), Failure> {
        if is_access_share(statement.alone(text)) {
            return Ok(());
        }
        let deadline = Instant::now() + HOLD_WAIT;
        loop {
            let map = self.gateway.map.snapshot();
            let is_held = |partition: &Partition| partition.state == PartitionState::Held;
            let waits = |group: &Arc<Group>| {
                let claims = &self.transaction.claims;
                group.partitions.iter().any(|partition| is_held(partition) && !claims.pass(group, partition))
            };
            if !map.groups.values().any(waits) {
                map.groups.values().for_each(|group| self.transaction.claims.add_group(group));
                return Ok(());
            }
            self.wait_for_hold(map.epoch, deadline.into()).await?;
        }
    }

    /// A write that may change keys of a reference table writes to rows that refer to them, on whichever shard owns these: they have
    /// one owner until its transaction ends. A plain INSERT changes none.
    pub(super) async fn claim_referring(&mut self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<(), Failure> {
        let may_change_keys = match &statement.command {
            Command::Query(QueryKind::Insert) => has_on_conflict(statement.alone(inputs.text())),
            Command::Query(_) => statement.effect == Effect::Write,
            _ => false,
        };
        let parts = if may_change_keys { self.referring_groups() } else { Vec::new() };
        if !parts.is_empty() {
            self.resolve(statement, &parts, inputs).await?;
        }
        Ok(())
    }

    /// Those with a table that refers to one which is not sharded.
    fn referring_groups(&self) -> Vec<Part> {
        let (catalog, map) = (&self.context.catalog, &self.context.map);
        let group_of = |relation: &Relation| match map.table(&relation.schema, &relation.name).map(|table| &table.kind) {
            Some(TableKind::Sharded { group, .. }) => Some(*group),
            Some(TableKind::Reference) | None => None,
        };
        let is_sharded = |oid: &Oid| catalog.relations.get(oid).is_some_and(|relation| group_of(relation).is_some());
        let refers = |relation: &&Relation| relation.foreign_keys.iter().any(|key| !is_sharded(&key.referenced));
        let groups: BTreeSet<GroupId> = catalog.relations.values().filter(refers).filter_map(group_of).collect();
        groups.into_iter().map(|group| Part::Sharded { group, condition: KeyCondition::All, stores: false }).collect()
    }

    /// Each row of VALUES to its shard. A row without one fails the statement before anything is sent.
    pub(super) async fn route_rows(&mut self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<Route, Failure> {
        let Scope::Placed { parts, .. } = &statement.scope else { return Err(PgError::internal("rows without a place").into()) };
        let group = parts.iter().find_map(|part| match part {
            Part::Sharded { group, .. } => Some(*group),
            Part::Home => None,
        });
        let group = group.ok_or_else(|| PgError::internal("rows without a shard key"))?;
        let rows = statement.split_rows.clone().unwrap_or_default();
        let deadline = Instant::now() + HOLD_WAIT;
        let placed = loop {
            match self.place_rows(group, &rows, inputs, deadline).await? {
                Some(placed) => break placed,
                // The map has changed the group while they were placed.
                None if Instant::now() >= deadline => return Err(routing::held_too_long().into()),
                None => {}
            }
        };
        let (reach, shard_of_row) = placed.into_parts();
        Ok(Route::Write(Arc::new(Writing { reach, kind: WritingKind::Rows(shard_of_row) })))
    }

    /// `None`: not all of them by one version of the group.
    async fn place_rows(
        &mut self,
        group: GroupId,
        rows: &[KeyCondition],
        inputs: &Inputs<'_>,
        deadline: Instant,
    ) -> Result<Option<PlacedRows>, Failure> {
        let mut placed = PlacedRows::default();
        let mut targets: Option<Target> = None;
        let mut turns = Turns::begin();
        for condition in rows {
            turns.piece_is_done().await;
            let part = [Part::Sharded { group, condition: condition.clone(), stores: true }];
            let preferred = placed.reach().and_then(|reach| reach.shards().first().copied());
            let asked = Asked { inputs, preferred, is_read: false, deadline };
            let target = self.resolve_asked(&part, &asked).await?;
            self.check_stage(&target)?;
            placed.push(&target).ok_or_else(|| PgError::internal("a row belongs to several shards"))?;
            match &mut targets {
                None => targets = Some(target),
                Some(all) if !has_same_group(&all.map, &target.map, group) => return Ok(None),
                Some(all) => {
                    all.touched.partitions.extend(target.touched.partitions);
                    all.touched.groups.extend(target.touched.groups);
                }
            }
        }
        if let Some(all) = &targets {
            self.claim(all);
        }
        Ok(Some(placed))
    }

    /// `SET shardgate.shard`, or the comment in the text.
    pub(super) fn hinted(&self, statement: &Analysis) -> Result<Option<Reach>, PgError> {
        let Some(name) = statement.shard_hint.as_deref().or_else(|| self.effective("shardgate.shard")) else { return Ok(None) };
        if name.is_empty() {
            return Ok(None);
        }
        Reach::named(name, self.gateway.map.load().snapshot()).map(Some).ok_or_else(|| {
            PgError::new(SqlState::NO_SUCH_SHARD, format!("there is no shard \"{name}\""))
                .with_detail("It is named by the routing hint of this statement or by the setting shardgate.shard.")
                .with_hint("SELECT name FROM shardgate.shards lists them; RESET shardgate.shard ends the hint.")
        })
    }

    /// Under a hint a statement runs as it is on the shard that is named. What writes rows of sharded tables has to be restricted to keys
    /// whose rows belong there.
    pub(super) async fn route_hinted(&mut self, statement: &Analysis, named: Reach, inputs: &Inputs<'_>) -> Result<Route, Failure> {
        if !writes_rows(statement) {
            return self.admit(statement, named).await;
        }
        let parts = match &statement.scope {
            Scope::Placed { parts, .. } if parts.iter().any(|part| matches!(part, Part::Sharded { .. })) => parts,
            Scope::Refused(refusal) => return Err(not_of_hinted(&named, sentence(&refusal.message)).into()),
            _ => return self.admit(statement, named).await,
        };
        let target = self.resolve(statement, parts, inputs).await?;
        let reach = Reach::of(&target, parts);
        if reach.single() != named.single() {
            let map = reach.map();
            let shards = reach.shards().iter().filter_map(|shard| map.shard(*shard)).map(|shard| format!("\"{}\"", shard.name));
            let why = format!("Its rows belong, or may belong, on {}.", shards.collect::<Vec<_>>().join(", "));
            return Err(not_of_hinted(&named, why).into());
        }
        // A row may be one that belongs to no shard.
        if statement.copy_in.is_some() {
            return Box::pin(self.route_copy(statement, reach)).await;
        }
        // A row whose key changes is written where it goes, while rows move.
        match staged::route_key_update(self, statement, parts, inputs)? {
            Some(_) => Err(not_of_hinted(&named, "It changes shard keys while rows are moved.").into()),
            None => self.admit(statement, reach).await,
        }
    }
}

fn writes_rows(statement: &Analysis) -> bool {
    let may_write = matches!(statement.command, Command::Query(_) | Command::Copy(_) | Command::Call | Command::Do);
    may_write && statement.effect == Effect::Write
}

fn not_of_hinted(named: &Reach, why: impl Into<String>) -> PgError {
    let map = named.map();
    let shard = named.single().and_then(|shard| map.shard(shard)).map(|shard| shard.name.clone()).unwrap_or_default();
    PgError::unsupported(
        format!("cannot write rows on shard \"{shard}\" that may belong on another one"),
        why,
        "Restrict the statement to keys of that shard, or RESET shardgate.shard, so that each row is written where it belongs.",
    )
}

/// An error's message as a DETAIL.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

/// Nothing of the group differs between these versions of the map.
fn has_same_group(one: &Arc<MapSnapshot>, other: &Arc<MapSnapshot>, group: GroupId) -> bool {
    let is_same = |(one, other): (&Arc<Group>, &Arc<Group>)| Arc::ptr_eq(one, other);
    Arc::ptr_eq(one, other) || one.group(group).zip(other.group(group)).is_some_and(is_same)
}

/// A statement waits this long for a partition that is held by a move.
pub(super) const HOLD_WAIT: Duration = Duration::from_secs(5);
