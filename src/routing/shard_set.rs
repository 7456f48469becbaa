//! The shards that a statement runs on, and what of the key space it touches there.

use smallvec::{SmallVec, smallvec};

use crate::shardmap::{GroupId, PartitionId, ShardId};

/// Some shards, sorted, at least one. One or two do not allocate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSet(SmallVec<[ShardId; 4]>);

impl ShardSet {
    pub fn one(shard: ShardId) -> Self {
        Self(smallvec![shard])
    }

    /// In any order, with repetitions. `None` when there is none.
    pub fn new(shards: impl IntoIterator<Item = ShardId>) -> Option<Self> {
        let mut shards: SmallVec<[ShardId; 4]> = shards.into_iter().collect();
        shards.sort_unstable();
        shards.dedup();
        (!shards.is_empty()).then_some(Self(shards))
    }

    /// The shard, if it is only one.
    pub fn single(&self) -> Option<ShardId> {
        match self.0.as_slice() {
            [shard] => Some(*shard),
            _ => None,
        }
    }

    pub fn as_slice(&self) -> &[ShardId] {
        &self.0
    }

    pub fn iter(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.0.iter().copied()
    }

    /// Never 0.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, shard: ShardId) -> bool {
        self.0.binary_search(&shard).is_ok()
    }
}

/// The parts of the key space that a statement or a transaction touches, with their owners when it touched them first: single
/// partitions, or groups as a whole, whose partitions may be too many to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Sorted, without repetition.
    pub partitions: SmallVec<[(PartitionId, ShardId); 2]>,
    /// Every partition of these, with all owners. Sorted, without repetition.
    pub groups: Vec<(GroupId, ShardSet)>,
}

impl Touched {
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }

    /// This partition, or its group as a whole.
    pub fn has(&self, group: GroupId, partition: PartitionId) -> bool {
        self.partitions.binary_search_by_key(&partition, |(id, _)| *id).is_ok()
            || self.groups.binary_search_by_key(&group, |(id, _)| *id).is_ok()
    }

    /// What a later statement touches. What was touched before keeps the owner that it had.
    pub fn extend(&mut self, later: &Touched) {
        for touched in &later.partitions {
            if let Err(place) = self.partitions.binary_search_by_key(&touched.0, |(id, _)| *id) {
                self.partitions.insert(place, *touched);
            }
        }
        for touched in &later.groups {
            if let Err(place) = self.groups.binary_search_by_key(&touched.0, |(id, _)| *id) {
                self.groups.insert(place, touched.clone());
            }
        }
    }

    pub fn clear(&mut self) {
        self.partitions.clear();
        self.groups.clear();
    }

    pub(super) fn normalise(&mut self) {
        self.partitions.sort_unstable();
        self.partitions.dedup();
        self.groups.sort_unstable_by_key(|(group, _)| *group);
        self.groups.dedup_by_key(|(group, _)| *group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_sorted_and_never_empty() {
        let set = ShardSet::new([3, 1, 3, 2].map(ShardId)).unwrap();
        assert_eq!(set.as_slice(), [1, 2, 3].map(ShardId));
        assert_eq!((set.count(), set.single(), set.contains(ShardId(2)), set.contains(ShardId(4))), (3, None, true, false));
        assert_eq!(ShardSet::new([]), None);
        assert_eq!(ShardSet::new([ShardId(5), ShardId(5)]), Some(ShardSet::one(ShardId(5))));
        assert_eq!(ShardSet::one(ShardId(5)).single(), Some(ShardId(5)));
    }

    #[test]
    fn what_was_touched_keeps_its_owner_of_then() {
        let mut transaction = Touched::default();
        let partitions = |owner: i32| smallvec![(PartitionId(3), ShardId(owner)), (PartitionId(7), ShardId(owner))];
        let group = |owner: i32| vec![(GroupId(1), ShardSet::one(ShardId(owner)))];
        transaction.extend(&Touched { partitions: partitions(1), groups: Vec::new() });
        assert!(!transaction.has(GroupId(1), PartitionId(4)) && transaction.has(GroupId(1), PartitionId(7)));
        transaction.extend(&Touched { partitions: partitions(2), groups: group(1) });
        transaction.extend(&Touched { partitions: smallvec![(PartitionId(1), ShardId(2))], groups: group(2) });
        let owners = [(1, 2), (3, 1), (7, 1)].map(|(id, owner)| (PartitionId(id), ShardId(owner)));
        assert_eq!((transaction.partitions.as_slice(), &transaction.groups), (&owners[..], &group(1)));
        assert!(transaction.has(GroupId(1), PartitionId(4)), "every partition of a group");
    }
}
