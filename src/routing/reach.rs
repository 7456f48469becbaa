//! Where a statement's text runs, by which version of the map, and why it may run there.
//!
//! A shard may hold rows that it does not own: those that a move has copied to it, and those that a move has left behind. A text
//! may go to a shard as it is only if it cannot see such rows. [`Proof`] says why it cannot, and only this folder makes one. Where
//! there is none ([`Why::Several`]) the text goes through `sql::residues`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::resolve::Target;
use crate::shardmap::{MapSnapshot, ShardId};
use crate::sql::analysis::{Part, Scope};

/// Routing's whole answer for one text.
#[derive(Clone, Debug)]
pub struct Reach {
    /// At least one; in the order in which they are asked.
    shards: SmallVec<[ShardId; 4]>,
    /// What the text was routed by. Holding it delays no move.
    map: Arc<MapSnapshot>,
    why: Why,
}

/// Why a text runs on the shards of its [`Reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Each shard's text is restricted to keys of partitions that the shard owns.
    Pinned(Pinned),
    /// One shard owns every partition of the groups that the text reads.
    OneOwner(OneOwner),
    /// Shards that own parts of what the text reads; rows that they do not own have to be excluded.
    Several,
    /// The text reads no sharded table: home tables, reference tables, or none.
    Unsharded(Unsharded),
    /// The client has named the shard by a routing hint: it sees the rows that are stored there.
    Named(Named),
}

/// Why a text may run on its shard as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Pinned(Pinned),
    OneOwner(OneOwner),
    Unsharded(Unsharded),
    Named(Named),
}

/// See [`Why::Pinned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned(());

/// See [`Why::OneOwner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneOwner(());

/// See [`Why::Unsharded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsharded(());

/// See [`Why::Named`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named(());

impl Reach {
    /// Of a statement whose parts [`super::resolve()`] has placed, each of its shards running the same text.
    pub fn of(target: &Target, parts: &[Part]) -> Self {
        let reads_sharded = parts.iter().any(|part| matches!(part, Part::Sharded { .. }));
        let why = match (target.shards.single(), target.touched.groups.is_empty()) {
            (None, _) => Why::Several,
            (Some(_), true) if reads_sharded => Why::Pinned(Pinned(())),
            (Some(_), true) => Why::Unsharded(Unsharded(())),
            (Some(_), false) => Why::OneOwner(OneOwner(())),
        };
        Self { shards: target.shards.iter().collect(), map: Arc::clone(&target.map), why }
    }

    /// Of a statement that reads no sharded table, on these shards. `None`: it may read one, or there is no shard.
    pub fn unsharded(scope: &Scope, shards: impl IntoIterator<Item = ShardId>, map: &Arc<MapSnapshot>) -> Option<Self> {
        Self::made(shards, map, Why::Unsharded(unsharded(scope)?))
    }

    /// Of a statement that names its shard by a routing hint. `None`: there is no shard of this name.
    pub fn named(shard: &str, map: &Arc<MapSnapshot>) -> Option<Self> {
        Self::made([map.shard_by_name(shard)?.id], map, Why::Named(Named(())))
    }

    /// Nothing is said of the texts: each is to exclude the rows that its shard does not own.
    pub fn several(shards: impl IntoIterator<Item = ShardId>, map: &Arc<MapSnapshot>) -> Option<Self> {
        Self::made(shards, map, Why::Several)
    }

    /// Of this statement and another one, in one text. `None`: they are not on one shard by the same version of the map.
    pub fn with(self, other: &Self) -> Option<Self> {
        if self.single().is_none() || self.shards != other.shards || self.map.epoch != other.map.epoch {
            return None;
        }
        let why = match (self.why, other.why) {
            (Why::Several, _) | (_, Why::Several) => return None,
            (named @ Why::Named(_), _) | (_, named @ Why::Named(_)) => named,
            (owner @ Why::OneOwner(_), _) | (_, owner @ Why::OneOwner(_)) => owner,
            (pinned @ Why::Pinned(_), _) | (_, pinned @ Why::Pinned(_)) => pinned,
            (unsharded @ Why::Unsharded(_), Why::Unsharded(_)) => unsharded,
        };
        Some(Self { why, ..self })
    }

    fn made(shards: impl IntoIterator<Item = ShardId>, map: &Arc<MapSnapshot>, why: Why) -> Option<Self> {
        let shards: SmallVec<[ShardId; 4]> = shards.into_iter().collect();
        (!shards.is_empty()).then(|| Self { shards, map: Arc::clone(map), why })
    }

    pub fn shards(&self) -> &[ShardId] {
        &self.shards
    }

    /// The shard, if it is only one.
    pub fn single(&self) -> Option<ShardId> {
        match *self.shards {
            [shard] => Some(shard),
            _ => None,
        }
    }

    pub fn map(&self) -> &Arc<MapSnapshot> {
        &self.map
    }

    pub fn why(&self) -> Why {
        self.why
    }

    /// Why a text may run on each of the shards as it is; `None`: it has to be covered.
    pub fn proof(&self) -> Option<Proof> {
        match self.why {
            Why::Pinned(pinned) => Some(Proof::Pinned(pinned)),
            Why::OneOwner(owner) => Some(Proof::OneOwner(owner)),
            Why::Several => None,
            Why::Unsharded(unsharded) => Some(Proof::Unsharded(unsharded)),
            Why::Named(named) => Some(Proof::Named(named)),
        }
    }
}

/// The same shards for the same reason, by the same version of the map.
impl PartialEq for Reach {
    fn eq(&self, other: &Self) -> bool {
        (&self.shards, self.map.epoch, self.why) == (&other.shards, other.map.epoch, other.why)
    }
}

impl Eq for Reach {}

/// Rows that [`super::resolve()`] places one by one: each shard's text gets its own rows.
#[derive(Debug, Default)]
pub struct PlacedRows {
    reach: Option<Reach>,
    /// For each row the place of its shard in the reach.
    shard_of_row: Vec<usize>,
}

impl PlacedRows {
    /// The next row. `None`: it belongs to several shards, and is not taken.
    pub fn push(&mut self, target: &Target) -> Option<()> {
        let shard = target.shards.single()?;
        let pinned = Why::Pinned(Pinned(()));
        let reach = self.reach.get_or_insert_with(|| Reach { shards: SmallVec::new(), map: Arc::clone(&target.map), why: pinned });
        reach.map = Arc::clone(&target.map);
        if !target.touched.groups.is_empty() {
            reach.why = Why::Several;
        }
        let known = reach.shards.iter().position(|known| *known == shard);
        self.shard_of_row.push(known.unwrap_or(reach.shards.len()));
        if known.is_none() {
            reach.shards.push(shard);
        }
        Some(())
    }

    /// `None` before the first row.
    pub fn reach(&self) -> Option<&Reach> {
        self.reach.as_ref()
    }

    pub fn into_parts(self) -> (Option<Reach>, Vec<usize>) {
        (self.reach, self.shard_of_row)
    }
}

/// One key of one partition, as [`super::SingleKey`] has placed it.
pub(super) fn pinned() -> Pinned {
    Pinned(())
}

/// A statement that reads no sharded table; `None`: it may read one.
pub fn unsharded(scope: &Scope) -> Option<Unsharded> {
    match scope {
        Scope::Session
        | Scope::Map
        | Scope::Proxy(_)
        | Scope::Tableless
        | Scope::System
        | Scope::Replicated
        | Scope::EveryShard => Some(Unsharded(())),
        Scope::Placed { parts, .. } => parts.iter().all(|part| *part == Part::Home).then_some(Unsharded(())),
        Scope::Refused(_) => None,
    }
}
