//! Which versions of a group open transactions have written or locked by.
//!
//! A transaction that has written in a set passes its hold until it ends, so whoever holds the set waits for it. Each version of a
//! group counts the transactions that have claimed something by it; when a version is superseded its count is kept as long as anybody
//! can still claim by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::model::{GroupId, MapSnapshot};

/// Of one version of a group; copies of the version share it.
#[derive(Clone, Debug, Default)]
pub struct ClaimCount(Arc<AtomicUsize>);

/// Two versions are not told apart by it.
impl PartialEq for ClaimCount {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One transaction's claim; ends with it.
#[derive(Debug)]
pub struct CountedClaim(ClaimCount);

impl ClaimCount {
    pub fn enter(&self) -> CountedClaim {
        self.0.fetch_add(1, Ordering::AcqRel);
        CountedClaim(self.clone())
    }
}

impl Drop for CountedClaim {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The counts of superseded versions.
#[derive(Debug, Default)]
pub(super) struct Superseded(Mutex<Vec<(GroupId, ClaimCount)>>);

impl Superseded {
    /// Before the next version is in place.
    pub(super) fn supersede(&self, old: &MapSnapshot, next: &MapSnapshot) {
        let is_kept = |id: &GroupId, group: &Arc<super::model::Group>| next.group(*id).is_some_and(|next| Arc::ptr_eq(next, group));
        let changed = old.groups.iter().filter(|(id, group)| !is_kept(id, group));
        self.0.lock().extend(changed.map(|(id, group)| (*id, group.claims.clone())));
    }

    /// No transaction has a claim of a group that is held by `map` by an earlier version of it.
    pub(super) fn are_drained(&self, map: &MapSnapshot) -> bool {
        let mut counts = self.0.lock();
        // Held by nobody else: no copy of that version is left by which somebody could claim.
        counts.retain(|(_, count)| Arc::strong_count(&count.0) > 1);
        let is_held = |id: &GroupId| map.group(*id).is_some_and(|group| !group.held().is_empty());
        !counts.iter().any(|(id, count)| is_held(id) && count.0.load(Ordering::Acquire) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Bound, Group, Partition, PartitionId, PartitionState, ShardId, Strategy};
    use super::*;
    use crate::shard_key::KeyType;

    fn map(state: PartitionState) -> MapSnapshot {
        let partition = |id: i32, low: Option<i64>, state| Partition {
            id: PartitionId(id),
            shard: ShardId(1),
            state,
            epoch: 0,
            low: low.map(Bound::Hash),
        };
        let partitions = vec![partition(1, None, state), partition(2, Some(0), PartitionState::Online)];
        let group = Group::new(GroupId(1), Strategy::Hash, vec![KeyType::Int8], partitions, None).expect("a group");
        MapSnapshot { groups: [(GroupId(1), Arc::new(group))].into(), ..MapSnapshot::default() }
    }

    #[test]
    fn a_claim_by_an_earlier_version_counts_until_it_ends() {
        let (before, held) = (map(PartitionState::Moving), map(PartitionState::Held));
        let superseded = Superseded::default();
        let group = before.group(GroupId(1)).expect("the group").clone();
        let claim = group.claims.enter();
        superseded.supersede(&before, &held);
        assert!(!superseded.are_drained(&held));
        assert!(superseded.are_drained(&before), "nothing is held");
        let later = held.group(GroupId(1)).expect("the group").claims.enter();
        drop(claim);
        assert!(superseded.are_drained(&held), "what was claimed since the hold does not count");
        // Who still has the earlier version may claim by it.
        let late = group.claims.enter();
        assert!(!superseded.are_drained(&held));
        drop((late, group, before, later));
        assert!(superseded.are_drained(&held) && superseded.0.lock().is_empty());
    }
}
