//! What a transaction has written or locked, and where that was then.
//!
//! A partition that changes its owner meanwhile is not found again at its new owner: what the transaction has seen and locked
//! there may have been changed by others since. And while a partition is held, a transaction that has written or locked in the set
//! that is moved passes: the move waits for its end.

use std::sync::Arc;

use smallvec::SmallVec;

use super::shard_set::Touched;
use crate::shardmap::{CountedClaim, Group, MapSnapshot, Partition, PartitionId, PartitionState, Strategy};

/// Grows until the transaction ends. What is taken back to a savepoint stays in it.
#[derive(Debug, Default)]
pub struct Claims {
    /// One for each version of a group by which something was claimed: mostly one a group.
    claims: Vec<Claim>,
}

#[derive(Debug)]
struct Claim {
    /// With the owners of then.
    group: Arc<Group>,
    partitions: Claimed,
    /// Whoever holds the group waits for it.
    _counted: CountedClaim,
}

#[derive(Debug)]
enum Claimed {
    All,
    /// Sorted.
    These(SmallVec<[PartitionId; 4]>),
}

impl Claims {
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub fn clear(&mut self) {
        self.claims.clear();
    }

    /// What a statement has touched that writes or locks, by the map that it was routed by.
    pub fn add(&mut self, map: &MapSnapshot, touched: &Touched) {
        for id in &touched.groups {
            if let Some(group) = map.group(*id) {
                self.add_group(group);
            }
        }
        for (group, partition) in &touched.partitions {
            if let Some(group) = map.group(*group) {
                self.add_partition(group, *partition);
            }
        }
    }

    /// Every partition of the group.
    pub fn add_group(&mut self, group: &Arc<Group>) {
        self.of(group).partitions = Claimed::All;
    }

    pub fn add_partition(&mut self, group: &Arc<Group>, partition: PartitionId) {
        if let Claimed::These(partitions) = &mut self.of(group).partitions
            && let Err(place) = partitions.binary_search(&partition)
        {
            partitions.insert(place, partition);
        }
    }

    fn of(&mut self, group: &Arc<Group>) -> &mut Claim {
        let known = self.claims.iter().position(|claim| Arc::ptr_eq(&claim.group, group));
        let place = known.unwrap_or_else(|| {
            let _counted = group.claims.enter();
            self.claims.push(Claim { group: Arc::clone(group), partitions: Claimed::These(SmallVec::new()), _counted });
            self.claims.len() - 1
        });
        &mut self.claims[place]
    }

    /// Nothing has changed in the groups that anything is claimed of.
    pub(super) fn are_current(&self, map: &MapSnapshot) -> bool {
        self.claims.iter().all(|claim| map.group(claim.group.id).is_some_and(|group| Arc::ptr_eq(group, &claim.group)))
    }

    /// Whatever is claimed of this group was claimed by this version of it.
    pub fn are_of(&self, group: &Arc<Group>) -> bool {
        self.claims.iter().all(|claim| claim.group.id != group.id || Arc::ptr_eq(&claim.group, group))
    }

    /// What was claimed of this part of the key space was claimed at another owner. `partition`: of `group`, as it is now.
    pub fn has_moved(&self, group: &Arc<Group>, partition: &Partition) -> bool {
        let is_other = |claim: &&Claim| claim.group.id == group.id && !Arc::ptr_eq(&claim.group, group);
        self.claims.iter().filter(is_other).any(|claim| {
            let then = overlapping(&claim.group, group, partition);
            then.iter().any(|then| then.shard != partition.shard && claim.partitions.has(then.id))
        })
    }

    /// Anything that was claimed has another owner by this map.
    pub fn have_moved(&self, map: &MapSnapshot) -> bool {
        let has_moved = |group: &Arc<Group>| group.partitions.iter().any(|partition| self.has_moved(group, partition));
        !self.are_current(map) && self.claims.iter().any(|claim| map.group(claim.group.id).is_none_or(has_moved))
    }

    /// Does the transaction pass the hold of this partition? A set is moved as a whole, and no two sets of a group with the same
    /// source at once: what is held of a group on one shard is one set.
    pub fn pass(&self, group: &Group, held: &Partition) -> bool {
        let is_of_the_set = |id: &PartitionId| {
            group.partition(*id).is_some_and(|known| known.state == PartitionState::Held && known.shard == held.shard)
        };
        self.claims.iter().filter(|claim| claim.group.id == group.id).any(|claim| match &claim.partitions {
            Claimed::All => true,
            Claimed::These(partitions) => partitions.iter().any(is_of_the_set),
        })
    }
}

impl Claimed {
    fn has(&self, partition: PartitionId) -> bool {
        match self {
            Claimed::All => true,
            Claimed::These(partitions) => partitions.binary_search(&partition).is_ok(),
        }
    }
}

/// The partitions of an earlier version of the group that had keys of this one.
pub(super) fn overlapping<'g>(earlier: &'g Group, group: &Group, partition: &Partition) -> &'g [Partition] {
    match group.strategy {
        Strategy::Hash | Strategy::Range => earlier.partitions_between(partition.low.as_ref(), group.high(partition.id)),
        Strategy::Lookup => earlier.partition(partition.id).map_or(&[], std::slice::from_ref),
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::routing::testing::{GROUP, hash_group, partition, snapshot, with_state};
    use crate::shard_key::KeyType;
    use crate::shardmap::{Bound, ShardId};

    fn with_owner(group: &Group, id: i32, owner: i32) -> Group {
        let mut partitions = group.partitions.clone();
        partitions.iter_mut().filter(|partition| partition.id.0 == id).for_each(|partition| partition.shard = ShardId(owner));
        Group::new(group.id, group.strategy, group.key_types.clone(), partitions, None).expect("valid")
    }

    fn moved(claims: &Claims, group: Group, id: i32) -> bool {
        let group = Arc::new(group);
        claims.has_moved(&group, group.partition(PartitionId(id)).expect("a partition"))
    }

    #[test]
    fn what_was_claimed_at_another_owner_has_moved() {
        let map = snapshot(1, hash_group(&[KeyType::Int8]));
        let group = (**map.group(GROUP).expect("the group")).clone();
        let mut claims = Claims::default();
        assert!(claims.are_current(&map) && claims.is_empty());
        claims.add(&map, &Touched { partitions: smallvec![(GROUP, PartitionId(11))], groups: Vec::new() });
        assert!(claims.are_current(&map) && !claims.are_current(&snapshot(2, group.clone())));
        assert!(!moved(&claims, group.clone(), 11));
        assert!(moved(&claims, with_owner(&group, 11, 2), 11));
        assert!(claims.have_moved(&snapshot(2, with_owner(&group, 11, 2))));
        assert!(!claims.have_moved(&snapshot(2, with_owner(&group, 12, 0))));
        assert!(!moved(&claims, with_owner(&group, 12, 0), 12), "another partition");
        claims.add(&map, &Touched { partitions: SmallVec::new(), groups: vec![GROUP] });
        assert!(moved(&claims, with_owner(&group, 12, 0), 12), "every partition of a group");
        claims.clear();
        assert!(!moved(&claims, with_owner(&group, 11, 2), 11));
    }

    #[test]
    fn a_part_of_what_was_claimed_has_moved_after_a_split() {
        let map = snapshot(1, hash_group(&[KeyType::Int8]));
        let mut claims = Claims::default();
        claims.add(&map, &Touched { partitions: smallvec![(GROUP, PartitionId(11))], groups: Vec::new() });
        let mut partitions = hash_group(&[KeyType::Int8]).partitions;
        partitions.push(partition(13, 3, Some(Bound::Hash(0))));
        let split = Group::new(GROUP, Strategy::Hash, vec![KeyType::Int8], partitions, None).expect("valid");
        assert!(moved(&claims, split.clone(), 13));
        assert!(!moved(&claims, split, 11));
    }

    #[test]
    fn a_claim_in_the_set_passes_the_hold_of_the_whole_set() {
        let group = with_owner(&hash_group(&[KeyType::Int8]), 12, 1);
        let map = snapshot(1, group.clone());
        let mut claims = Claims::default();
        claims.add(&map, &Touched { partitions: smallvec![(GROUP, PartitionId(11))], groups: Vec::new() });
        let passes = |claims: &Claims, group: &Group, id: i32| claims.pass(group, group.partition(PartitionId(id)).expect("known"));
        let both = with_state(&with_state(&group, 11, PartitionState::Held), 12, PartitionState::Held);
        assert!(passes(&claims, &both, 11) && passes(&claims, &both, 12));
        assert!(!passes(&claims, &with_state(&group, 12, PartitionState::Held), 12), "its own is not held");
        assert!(!passes(&claims, &with_owner(&both, 12, 2), 12), "another set");
        assert!(!passes(&Claims::default(), &both, 11));
        claims.add_group(map.group(GROUP).expect("the group"));
        assert!(passes(&claims, &with_owner(&both, 12, 2), 12));
    }
}
