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

/// The parts of the key space that a statement touches: single partitions, or groups as a whole, whose partitions may be too many
/// to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Sorted, without repetition.
    pub partitions: SmallVec<[(GroupId, PartitionId); 2]>,
    /// Every partition of these. Sorted, without repetition.
    pub groups: Vec<GroupId>,
}

impl Touched {
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }

    pub(super) fn normalise(&mut self) {
        self.partitions.sort_unstable();
        self.partitions.dedup();
        self.groups.sort_unstable();
        self.groups.dedup();
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
}
