//! The version of the map that goes with the snapshot of a REPEATABLE READ or SERIALIZABLE transaction.
//!
//! What such a transaction reads lies where it lay when its snapshot was taken, so it is routed by the map of then to its end, however
//! many partitions move meanwhile. Two things do not go by that map alone:
//!
//! * a write, or a lock, of what has another owner by now is refused: its effect would be lost;
//! * a shard that joins later takes its snapshot then. It shows what has moved there, or does not show any more what has moved away,
//!   so no partition of a group that the transaction reads may have moved since.
//!
//! Whether the snapshot was taken before or after a switch is not known of a partition that was held by the transaction's map: it is
//! not used.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Transaction;
use crate::error::PgError;
use crate::routing::{self, Target, Touched};
use crate::session::route::Route;
use crate::shardmap::{Epoch, GroupId, MapSnapshot, ShardId};
use crate::sql::analysis::{Analysis, Command};

#[derive(Debug, Default)]
pub(in crate::session) struct Snapshots {
    map: Option<Arc<MapSnapshot>>,
    /// These have taken theirs.
    shards: SmallVec<[ShardId; 4]>,
    /// Groups that the transaction has used.
    groups: SmallVec<[GroupId; 2]>,
}

impl Snapshots {
    /// `None`: none is taken yet, or each statement has its own.
    pub fn map(&self) -> Option<&Arc<MapSnapshot>> {
        self.map.as_ref()
    }

    /// All of these shards have taken theirs, by this map.
    pub fn take_all(&mut self, map: Arc<MapSnapshot>, shards: impl IntoIterator<Item = ShardId>) {
        *self = Self { map: Some(map), shards: shards.into_iter().collect(), groups: SmallVec::new() };
    }

    /// They are taken back where nothing was read by them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A statement that ran since may not have come to its snapshot.
    pub fn doubt(&mut self) {
        self.shards.clear();
    }

    fn add(&mut self, map: &Arc<MapSnapshot>, shards: &[ShardId]) {
        self.map.get_or_insert_with(|| Arc::clone(map));
        for shard in shards {
            if !self.shards.contains(shard) {
                self.shards.push(*shard);
            }
        }
    }
}

impl Transaction {
    /// A statement is about to run there, where one snapshot counts for all: it goes with this map.
    pub fn note_snapshot(&mut self, statement: &Analysis, route: &Route) {
        if !self.is_open() || !takes_snapshot(&statement.command) {
            return;
        }
        let reach = match route {
            Route::Shard(reach) | Route::Scatter(reach) => reach,
            Route::Gather(gathering) => &gathering.reach,
            Route::Write(writing) => match &writing.reach {
                Some(reach) => reach,
                // Its stages take it.
                None => return,
            },
        };
        self.snapshots.add(reach.map(), reach.shards());
    }

    /// The epoch that holds what the statement needs; an error: something has moved that it cannot go without.
    pub fn compare_with(&self, newest: &MapSnapshot, target: &Target, is_read: bool) -> Result<Option<Epoch>, PgError> {
        let snapshots = &self.snapshots;
        let Some(own) = snapshots.map() else { return Ok(None) };
        let joins = target.shards.iter().any(|shard| !snapshots.shards.contains(&shard));
        if is_read && !joins {
            return Ok(None);
        }
        let needed = if joins { self.groups_with(&target.touched) } else { target.touched.clone() };
        if routing::has_moved(own, newest, &needed) {
            return Err(routing::partition_has_moved());
        }
        Ok(routing::is_held(newest, &needed, &self.claims).then_some(newest.epoch))
    }

    fn groups_with(&self, touched: &Touched) -> Touched {
        let mut groups: Vec<GroupId> = self.snapshots.groups.to_vec();
        groups.extend(touched.groups.iter().chain(touched.partitions.iter().map(|(group, _)| group)));
        groups.sort_unstable();
        groups.dedup();
        Touched { groups, ..Touched::default() }
    }

    /// The transaction goes on with this.
    pub fn in_snapshot(&mut self, newest: &MapSnapshot, target: Target, has_snapshot: bool) -> Target {
        if self.is_open() && has_snapshot {
            self.snapshots.groups = self.groups_with(&target.touched).groups.into();
        }
        self.with_residues(newest, target)
    }

    /// A shard that joins now may have rows that it does not own, of a move that has begun since.
    fn with_residues(&mut self, newest: &MapSnapshot, target: Target) -> Target {
        let Some(own) = self.snapshots.map.as_mut().filter(|own| own.lacks_residues_of(newest)) else { return target };
        *own = Arc::new(own.with_residues_of(newest));
        Target { map: Arc::clone(own), ..target }
    }
}

/// Not SHOW, nor LOCK TABLE; a cursor has its own.
pub(in crate::session) fn takes_snapshot(command: &Command) -> bool {
    !matches!(command, Command::Show(_) | Command::Lock | Command::Fetch { .. } | Command::CloseCursor(_) | Command::Notify)
}
