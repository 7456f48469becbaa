//! Whether what a statement touches has the same owners by two versions of the map.

use std::sync::Arc;

use super::claims::{Claims, overlapping};
use super::shard_set::Touched;
use crate::shardmap::{Group, MapSnapshot, Partition, PartitionState};

/// Of what is touched, something has another owner now than it had then.
pub fn has_moved(then: &MapSnapshot, now: &MapSnapshot, touched: &Touched) -> bool {
    any_partition(now, touched, |group, partition| has_other_owner(then, group, partition))
}

/// The same of one partition. `group`: as it is now.
pub fn has_other_owner(then: &MapSnapshot, group: &Arc<Group>, partition: &Partition) -> bool {
    let Some(before) = then.group(group.id) else { return true };
    !Arc::ptr_eq(before, group) && overlapping(before, group, partition).iter().any(|before| before.shard != partition.shard)
}

/// Of what is touched, something is held, for a transaction with these claims.
pub fn is_held(now: &MapSnapshot, touched: &Touched, claims: &Claims) -> bool {
    any_partition(now, touched, |group, partition| partition.state == PartitionState::Held && !claims.pass(group, partition))
}

/// What is not in the map any more counts as one of those.
fn any_partition(map: &MapSnapshot, touched: &Touched, is_one: impl Fn(&Arc<Group>, &Partition) -> bool) -> bool {
    let in_groups = touched.groups.iter().any(|id| match map.group(*id) {
        Some(group) => group.partitions.iter().any(|partition| is_one(group, partition)),
        None => true,
    });
    let among = touched.partitions.iter().any(|(group, partition)| {
        let found = map.group(*group).and_then(|group| group.partition(*partition).map(|partition| (group, partition)));
        found.is_none_or(|(group, partition)| is_one(group, partition))
    });
    in_groups || among
}

#[cfg(test)]
mod tests {
    use smallvec::{SmallVec, smallvec};

    use super::*;
    use crate::routing::testing::{GROUP, hash_group, snapshot, with_state};
    use crate::shard_key::KeyType;
    use crate::shardmap::{PartitionId, ShardId};

    #[test]
    fn only_what_is_touched_counts() {
        let group = hash_group(&[KeyType::Int8]);
        let then = snapshot(1, group.clone());
        let mut partitions = group.partitions.clone();
        partitions[1].shard = ShardId(2);
        let moved = Group::new(group.id, group.strategy, group.key_types.clone(), partitions, None).expect("valid");
        let now = snapshot(2, moved);
        let partition = |id: i32| Touched { partitions: smallvec![(GROUP, PartitionId(id))], groups: Vec::new() };
        let whole = Touched { partitions: SmallVec::new(), groups: vec![GROUP] };
        assert!(has_moved(&then, &now, &partition(11)) && has_moved(&then, &now, &whole));
        assert!(!has_moved(&then, &now, &partition(12)) && !has_moved(&then, &snapshot(2, group.clone()), &whole));
        assert!(has_moved(&then, &now, &partition(99)), "merged with another one");
        let held = snapshot(3, with_state(&group, 11, PartitionState::Held));
        let claims = Claims::default();
        assert!(is_held(&held, &partition(11), &claims) && is_held(&held, &whole, &claims));
        assert!(!is_held(&held, &partition(12), &claims));
    }
}
