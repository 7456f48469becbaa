//! From the parts of a statement to the shards where it runs.
//!
//! ```text
//! snapshot ─► place every part ─┬─ all placed ───────────────────────────────► Target
//!     ▲                         ├─ a partition is held ──────────────────────► the caller waits for another version
//!     │                         └─ lookup keys not known ─► ask the map ──┐
//!     └───────────────────────────────────────────────────────────────────┘
//! ```
//! Every round works on one version of the map, so that a target never mixes two. All waits end at the deadline. A transaction goes
//! on with the partitions that it has written or locked already, held or not, since the hold waits for it to end; where one of them
//! has another owner by now, it gets an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::smallvec;
use tokio::time::timeout_at;

use super::bind::{BoundCondition, KeyRange, bind};
use super::claims::Claims;
use super::inputs::Inputs;
use super::shard_set::{ShardSet, Touched};
use super::single_key::SingleKey;
use super::source::MapSource;
use crate::error::{PgError, SqlState};
use crate::shard_key::Key;
use crate::shardmap::{Bound, Epoch, Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, ShardId, Strategy};
use crate::sql::analysis::Part;

/// Where the parts of a statement are, by one version of the map: see [`super::Reach`].
#[derive(Clone, Debug)]
pub struct Target {
    /// Every shard that may hold a row of any part.
    pub shards: ShardSet,
    pub map: Arc<MapSnapshot>,
    pub touched: Touched,
}

/// What came of [`resolve`].
#[derive(Clone, Debug)]
pub enum Resolved {
    Placed(Target),
    /// A partition that the statement touches is held, by this version of the map.
    Held(Epoch),
}

/// What [`resolve`] may presume and how long it may take.
#[derive(Clone, Debug)]
pub struct Resolution<'a> {
    /// What the session's transaction has written or locked already.
    pub claims: &'a Claims,
    /// The version of the map that goes with the transaction's snapshot. `None`: the newest one.
    pub by: Option<&'a Arc<MapSnapshot>>,
    /// Where a statement goes that touches no row at all: a shard that the transaction is on already. `None`: home.
    pub preferred: Option<ShardId>,
    pub deadline: Instant,
}

/// The shards of the parts. Cancel safe.
pub async fn resolve(
    map: &impl MapSource,
    parts: &[Part],
    inputs: &Inputs<'_>,
    resolution: &Resolution<'_>,
) -> Result<Resolved, PgError> {
    match single_key_target(map, parts, inputs, resolution) {
        Some(target) => Ok(Resolved::Placed(target)),
        None => Box::pin(resolve_in_rounds(map, parts, inputs, resolution)).await,
    }
}

/// The commonest case, without a wait; what it cannot settle is left to the rounds.
#[inline]
fn single_key_target(map: &impl MapSource, parts: &[Part], inputs: &Inputs<'_>, resolution: &Resolution<'_>) -> Option<Target> {
    let single_key = SingleKey::of(parts)?;
    let newest = map.newest();
    let snapshot = resolution.by.unwrap_or_else(|| newest.snapshot());
    if !resolution.claims.are_current(snapshot) {
        return None;
    }
    let place = single_key.place(map, snapshot, inputs)?;
    let touched = Touched { partitions: smallvec![(place.group, place.partition)], ..Touched::default() };
    Some(Target { shards: ShardSet::one(place.shard), map: Arc::clone(snapshot), touched })
}

async fn resolve_in_rounds(
    map: &impl MapSource,
    parts: &[Part],
    inputs: &Inputs<'_>,
    resolution: &Resolution<'_>,
) -> Result<Resolved, PgError> {
    let deadline = resolution.deadline.into();
    let mut found = Found::default();
    for _ in 0..ROUNDS_MAX {
        let (epoch, outcome) = {
            let newest = map.newest();
            let snapshot = resolution.by.unwrap_or_else(|| newest.snapshot());
            let round = Round { map, snapshot, inputs, resolution, found: &found };
            (snapshot.epoch, round.place(parts)?)
        };
        match outcome {
            Outcome::Placed(target) => return Ok(Resolved::Placed(target)),
            // The snapshot may be older or younger than the end of the hold.
            Outcome::Held | Outcome::OtherVersion if resolution.by.is_some() => return Err(partition_has_moved()),
            Outcome::Held => return Ok(Resolved::Held(epoch)),
            Outcome::Unknown(missing) => {
                for (group, keys) in missing {
                    let partitions = timeout_at(deadline, map.find(&group, &keys)).await.map_err(|_| map_too_slow())??;
                    found.extend(epoch, group.id, keys, partitions);
                }
            }
            // The mapping is newer than the snapshot, so a newer snapshot is there already or on its way; if it does not come,
            // waiting longer does not help.
            Outcome::OtherVersion => {
                found.clear();
                let deadline = resolution.deadline.min(Instant::now() + VERSION_WAIT).into();
                timeout_at(deadline, map.changed_since(epoch)).await.map_err(|_| map_too_slow())?;
            }
        }
    }
    Err(held_too_long())
}

/// How one round over the parts ended.
enum Outcome {
    Placed(Target),
    Held,
    Unknown(Vec<(Arc<Group>, Vec<Key>)>),
    OtherVersion,
}

/// Lookup keys that earlier rounds have asked for, so that each round gets further even when the cache forgets at once.
#[derive(Default)]
struct Found {
    epoch: Epoch,
    partitions: HashMap<(GroupId, Key), Option<PartitionId>>,
}

impl Found {
    fn extend(&mut self, epoch: Epoch, group: GroupId, keys: Vec<Key>, partitions: Vec<Option<PartitionId>>) {
        if self.epoch != epoch {
            self.clear();
            self.epoch = epoch;
        }
        self.partitions.extend(keys.into_iter().map(|key| (group, key)).zip(partitions));
    }

    fn clear(&mut self) {
        self.partitions.clear();
    }

    fn get(&self, epoch: Epoch, group: GroupId, key: &Key) -> Option<Option<PartitionId>> {
        // Nothing is found by far the most often.
        if self.partitions.is_empty() || self.epoch != epoch {
            return None;
        }
        self.partitions.get(&(group, key.clone())).copied()
    }
}

struct Round<'a, M> {
    map: &'a M,
    snapshot: &'a Arc<MapSnapshot>,
    inputs: &'a Inputs<'a>,
    resolution: &'a Resolution<'a>,
    found: &'a Found,
}

/// What the parts of a round have come to so far.
#[derive(Default)]
struct Places {
    shards: smallvec::SmallVec<[ShardId; 4]>,
    touched: Touched,
    missing: Vec<(Arc<Group>, Vec<Key>)>,
    is_held: bool,
    /// What the transaction has written or locked has another owner by now.
    has_moved: bool,
    is_other_version: bool,
}

impl<M: MapSource> Round<'_, M> {
    fn place(&self, parts: &[Part]) -> Result<Outcome, PgError> {
        let mut places = Places::default();
        for part in parts {
            match part {
                Part::Home => places.shards.push(self.home()?),
                Part::Sharded { group, condition, stores } => {
                    let group = self.snapshot.group(*group).ok_or_else(sharding_has_changed)?;
                    let condition = bind(condition, group, self.inputs)?;
                    self.place_condition(group, &condition, *stores, &mut places)?;
                }
            }
        }
        if places.is_other_version {
            return Ok(Outcome::OtherVersion);
        }
        if places.has_moved {
            return Err(partition_has_moved());
        }
        if places.is_held {
            return Ok(Outcome::Held);
        }
        if !places.missing.is_empty() {
            return Ok(Outcome::Unknown(places.missing));
        }
        places.touched.normalise();
        let shards = match ShardSet::new(places.shards) {
            Some(shards) => shards,
            None => ShardSet::one(self.anywhere()?),
        };
        Ok(Outcome::Placed(Target { shards, map: Arc::clone(self.snapshot), touched: places.touched }))
    }

    fn place_condition(
        &self,
        group: &Arc<Group>,
        condition: &BoundCondition,
        stores: bool,
        places: &mut Places,
    ) -> Result<(), PgError> {
        match condition {
            BoundCondition::Nothing => {}
            BoundCondition::All => {
                places.touched.groups.push(group.id);
                places.shards.extend_from_slice(group.owners());
                let claims = self.resolution.claims;
                let is_held = |held: &Partition| held.state == PartitionState::Held && !claims.pass(group, held);
                places.is_held |= !group.held().is_empty() && group.partitions.iter().any(is_held);
                places.has_moved |= !claims.is_empty() && group.partitions.iter().any(|now| claims.has_moved(group, now));
            }
            BoundCondition::Ranges(ranges) => ranges.iter().for_each(|range| self.place_range(group, range, places)),
            BoundCondition::Keys(keys) => match group.strategy {
                Strategy::Hash => keys.iter().for_each(|key| {
                    self.place_partition(group, group.partition_at(&Bound::Hash(key.hash())), places);
                }),
                Strategy::Range => keys.iter().for_each(|key| {
                    self.place_partition(group, group.partition_at_key(&key.ordered_bytes()), places);
                }),
                Strategy::Lookup => self.place_lookup_keys(group, keys, stores, places)?,
            },
        }
        Ok(())
    }

    fn place_range(&self, group: &Arc<Group>, range: &KeyRange, places: &mut Places) {
        let low = range.low.clone().map(Bound::Key);
        let high = range.high.clone().map(Bound::Key);
        self.place_partitions(group, group.partitions_between(low.as_ref(), high.as_ref()), places);
    }

    /// No row has a key without a mapping. That is asked for each time: the key may have been mapped, and a row stored with it,
    /// by a proxy of which this one has not heard yet.
    fn place_lookup_keys(&self, group: &Arc<Group>, keys: &[Key], stores: bool, places: &mut Places) -> Result<(), PgError> {
        let mut missing = Vec::new();
        let is_nowhere = |mapped: &Option<PartitionId>| mapped.is_none() && group.default_partition.is_none();
        for key in keys {
            let cached = || self.map.find_cached(group.id, &key.ordered_bytes()).filter(|mapped| stores || !is_nowhere(mapped));
            match self.found.get(self.snapshot.epoch, group.id, key).or_else(cached) {
                None => missing.push(key.clone()),
                Some(mapped) if is_nowhere(&mapped) && stores => return Err(no_shard_for_key(self.snapshot, group)),
                Some(mapped) if is_nowhere(&mapped) => {}
                Some(mapped) => match group.partition_of_mapping(mapped) {
                    Some(partition) => self.place_partition(group, partition, places),
                    None => places.is_other_version = true,
                },
            }
        }
        if !missing.is_empty() {
            places.missing.push((Arc::clone(group), missing));
        }
        Ok(())
    }

    fn place_partitions(&self, group: &Arc<Group>, partitions: &[Partition], places: &mut Places) {
        partitions.iter().for_each(|partition| self.place_partition(group, partition, places));
    }

    fn place_partition(&self, group: &Arc<Group>, partition: &Partition, places: &mut Places) {
        // Next to each other they mostly lie on few shards.
        if !places.shards.contains(&partition.shard) {
            places.shards.push(partition.shard);
        }
        places.touched.partitions.push((group.id, partition.id));
        places.has_moved |= self.resolution.claims.has_moved(group, partition);
        match partition.state {
            PartitionState::Online | PartitionState::Moving => {}
            PartitionState::Held => places.is_held |= !self.resolution.claims.pass(group, partition),
        }
    }

    fn anywhere(&self) -> Result<ShardId, PgError> {
        match self.resolution.preferred {
            Some(shard) => Ok(shard),
            None => self.home(),
        }
    }

    fn home(&self) -> Result<ShardId, PgError> {
        self.snapshot.home().map(|shard| shard.id).ok_or_else(|| {
            PgError::new(SqlState::CANNOT_CONNECT_NOW, "the cluster has no shards yet")
                .with_hint("Add one with shardgate.add_shard(name, url).")
        })
    }
}

/// Names a table, never the key.
pub(super) fn no_shard_for_key(snapshot: &MapSnapshot, group: &Group) -> PgError {
    let table = snapshot.tables_of(group.id).map(|table| table.name.as_str()).min();
    let detail = match table {
        Some(table) => format!("The key is not mapped, and the colocation group of table \"{table}\" has no default shard."),
        None => "The key is not mapped, and its colocation group has no default shard.".to_owned(),
    };
    PgError::new(SqlState::NO_SHARD_FOR_KEY, "no shard for this key")
        .with_detail(detail)
        .with_hint("Map the key with shardgate.map_key, or set a default with shardgate.set_default_shard.")
}

/// The statement was read by a version of the map that said something else of its tables.
pub fn sharding_has_changed() -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the sharding of a table has changed").with_hint("Retry the transaction.")
}

pub fn held_too_long() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "the partition of this key is being moved")
        .with_detail("It did not become available in time. Nothing was applied.")
        .with_hint("Retry the transaction.")
}

/// What the transaction relies on is at another owner now, where others may have changed it.
pub fn partition_has_moved() -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the partition of this key has moved")
        .with_detail("It is on another shard since the transaction has used it. Nothing was applied.")
        .with_hint("Retry the transaction.")
}

/// Shards have shut this proxy out since the statement was planned: what it was planned by may be old.
pub fn was_shut_out() -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the proxy had lost its lease, and partitions may have moved")
        .with_detail("The transaction began before. Nothing was applied.")
        .with_hint("Retry the transaction.")
}

/// By another version of the map it may be none.
pub fn is_of_move(error: &PgError) -> bool {
    *error == partition_has_moved() || *error == sharding_has_changed() || *error == was_shut_out()
}

fn map_too_slow() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "the shard map did not answer in time")
        .with_hint("Retry the transaction. Statements for keys that are known go on.")
}

/// Each round needs a new version of the map or an answer of it.
const ROUNDS_MAX: usize = 100;
const VERSION_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
