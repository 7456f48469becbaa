//! A snapshot and what changed since give the next snapshot. Pure.
//!
//! Groups that did not change are shared with the old snapshot. Removals come first, since a table may have been dropped and
//! declared again under one name; ids are never used again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::error::StoreError;
use super::model::{
    ClusterSequence, DeclaredFunction, Group, GroupId, MapSnapshot, Partition, PartitionId, Shard, ShardId, Strategy, Table,
};
use crate::shard_key::KeyType;

/// Rows as they are now, of what changed; names and ids of what is gone.
#[derive(Debug, Default)]
pub(super) struct ChangedRows {
    pub shards: Vec<Shard>,
    pub groups: Vec<GroupRow>,
    pub partitions: Vec<PartitionRow>,
    pub tables: Vec<Table>,
    pub functions: Vec<DeclaredFunction>,
    pub sequences: Vec<ClusterSequence>,
    pub removed_shards: Vec<ShardId>,
    pub removed_groups: Vec<GroupId>,
    pub removed_partitions: Vec<PartitionId>,
    pub removed_tables: Vec<(String, String)>,
    pub removed_functions: Vec<(String, String)>,
    pub removed_sequences: Vec<(String, String)>,
    pub removed_keys: Vec<(GroupId, Box<[u8]>)>,
}

/// A colocation group without its partitions.
#[derive(Clone, Debug)]
pub(super) struct GroupRow {
    pub id: GroupId,
    pub strategy: Strategy,
    pub key_types: Vec<KeyType>,
    pub default_partition: Option<PartitionId>,
    pub has_residues: bool,
}

#[derive(Debug)]
pub(super) struct PartitionRow {
    pub group: GroupId,
    pub partition: Partition,
}

impl ChangedRows {
    pub(super) fn count(&self) -> usize {
        self.shards.len()
            + self.groups.len()
            + self.partitions.len()
            + self.tables.len()
            + self.functions.len()
            + self.sequences.len()
            + self.removed_shards.len()
            + self.removed_groups.len()
            + self.removed_partitions.len()
            + self.removed_tables.len()
            + self.removed_functions.len()
            + self.removed_sequences.len()
            + self.removed_keys.len()
    }

    /// Plans made before are stale. They know which sequences there are, not how far these have come.
    pub(super) fn change_tables(&self, known: &MapSnapshot) -> bool {
        let is_known = |sequence: &ClusterSequence| {
            let known = known.sequences.get(&(sequence.schema.clone(), sequence.name.clone()));
            known.is_some_and(|known| known.increment == sequence.increment)
        };
        self.change_declarations()
            || !(self.shards.is_empty() && self.removed_shards.is_empty() && self.removed_sequences.is_empty())
            || !self.sequences.iter().all(is_known)
    }

    /// Tables, functions, or where the home shard is. What becomes of another shard changes nothing in the home shard's schema.
    pub(super) fn change_declarations(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_home)
            || !(self.tables.is_empty()
                && self.functions.is_empty()
                && self.removed_tables.is_empty()
                && self.removed_functions.is_empty())
    }
}

/// The next snapshot, still with the epoch of the old one.
pub(super) fn merge(known: &MapSnapshot, rows: ChangedRows) -> Result<MapSnapshot, StoreError> {
    let mut next = known.clone();
    merge_groups(&mut next.groups, &rows.removed_groups, &rows.removed_partitions, rows.groups, rows.partitions)?;

    next.shards.retain(|shard| !rows.removed_shards.contains(&shard.id));
    for shard in rows.shards {
        match next.shards.binary_search_by_key(&shard.id, |shard| shard.id) {
            Ok(place) => next.shards[place] = Arc::new(shard),
            Err(place) => next.shards.insert(place, Arc::new(shard)),
        }
    }

    rows.removed_tables.iter().for_each(|name| drop(next.tables.remove(name)));
    for table in rows.tables {
        next.tables.insert((table.schema.clone(), table.name.clone()), Arc::new(table));
    }
    rows.removed_functions.iter().for_each(|name| drop(next.functions.remove(name)));
    for function in rows.functions {
        next.functions.insert((function.schema.clone(), function.name.clone()), Arc::new(function));
    }
    rows.removed_sequences.iter().for_each(|name| drop(next.sequences.remove(name)));
    for sequence in rows.sequences {
        next.sequences.insert((sequence.schema.clone(), sequence.name.clone()), Arc::new(sequence));
    }
    Ok(next)
}

fn merge_groups(
    groups: &mut BTreeMap<GroupId, Arc<Group>>,
    removed_groups: &[GroupId],
    removed_partitions: &[PartitionId],
    changed_groups: Vec<GroupRow>,
    changed_partitions: Vec<PartitionRow>,
) -> Result<(), StoreError> {
    removed_groups.iter().for_each(|id| drop(groups.remove(id)));
    let removed: HashSet<PartitionId> = removed_partitions.iter().copied().collect();
    let mut changed: HashMap<GroupId, HashMap<PartitionId, Partition>> = HashMap::new();
    for row in changed_partitions {
        changed.entry(row.group).or_default().insert(row.partition.id, row.partition);
    }
    for id in &removed {
        // One that came and went since the old snapshot is in no group.
        if let Some(group) = groups.values().find(|group| group.partition(*id).is_some()) {
            changed.entry(group.id).or_default();
        }
    }
    let mut rows: HashMap<GroupId, GroupRow> = changed_groups.into_iter().map(|row| (row.id, row)).collect();
    let touched: HashSet<GroupId> = rows.keys().chain(changed.keys()).copied().collect();
    for id in touched {
        let old = groups.get(&id);
        let row = match (rows.remove(&id), old) {
            (Some(row), _) => row,
            (None, Some(old)) => GroupRow {
                id,
                strategy: old.strategy,
                key_types: old.key_types.clone(),
                default_partition: old.default_partition,
                has_residues: old.has_residues,
            },
            (None, None) => return Err(StoreError::Unreadable(format!("partition of unknown group {}", id.0))),
        };
        let group = merge_group(old.map(Arc::as_ref), row, &removed, changed.remove(&id).unwrap_or_default())?;
        groups.insert(id, Arc::new(group));
    }
    Ok(())
}

fn merge_group(
    old: Option<&Group>,
    row: GroupRow,
    removed: &HashSet<PartitionId>,
    mut changed: HashMap<PartitionId, Partition>,
) -> Result<Group, StoreError> {
    let kept = old.map_or(&[][..], |group| &group.partitions).iter().filter(|partition| !removed.contains(&partition.id));
    let mut partitions: Vec<Partition> =
        kept.map(|partition| changed.remove(&partition.id).unwrap_or_else(|| partition.clone())).collect();
    partitions.extend(changed.into_values());
    Ok(Group::new(row.id, row.strategy, row.key_types, partitions, row.default_partition)?.with_residues(row.has_residues))
}

#[cfg(test)]
mod tests {
    use super::super::model::{Bound, PartitionState, TableKind};
    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn group_row() -> GroupRow {
        GroupRow {
            id: GROUP,
            strategy: Strategy::Hash,
            key_types: vec![KeyType::Int8],
            default_partition: None,
            has_residues: false,
        }
    }

    fn partition(id: i32, low: Option<i64>, shard: i32) -> PartitionRow {
        let low = low.map(Bound::Hash);
        let partition = Partition { id: PartitionId(id), shard: ShardId(shard), state: PartitionState::Online, epoch: 1, low };
        PartitionRow { group: GROUP, partition }
    }

    fn two_partitions() -> MapSnapshot {
        let partitions = vec![partition(1, None, 1), partition(2, Some(0), 2)];
        let rows = ChangedRows { groups: vec![group_row()], partitions, ..ChangedRows::default() };
        merge(&MapSnapshot::default(), rows).expect("valid")
    }

    fn owners(snapshot: &MapSnapshot) -> Vec<(i32, i32)> {
        let group = snapshot.group(GROUP).expect("the group");
        group.partitions.iter().map(|partition| (partition.id.0, partition.shard.0)).collect()
    }

    #[test]
    fn a_changed_partition_replaces_itself_only() {
        let rows = ChangedRows { partitions: vec![partition(2, Some(0), 3)], ..ChangedRows::default() };
        assert_eq!(owners(&merge(&two_partitions(), rows).expect("valid")), [(1, 1), (2, 3)]);
    }

    #[test]
    fn a_split_and_a_merge_leave_no_trace_of_what_is_gone() {
        let split = ChangedRows { partitions: vec![partition(1, None, 1), partition(3, Some(-10), 1)], ..ChangedRows::default() };
        let split = merge(&two_partitions(), split).expect("valid");
        assert_eq!(owners(&split), [(1, 1), (3, 1), (2, 2)]);
        let merged = ChangedRows {
            partitions: vec![partition(1, None, 1)],
            // 4 came and went in between.
            removed_partitions: vec![PartitionId(3), PartitionId(4)],
            ..ChangedRows::default()
        };
        assert_eq!(owners(&merge(&split, merged).expect("valid")), [(1, 1), (2, 2)]);
    }

    #[test]
    fn what_would_leave_a_gap_is_refused_and_untouched_groups_are_shared() {
        let known = two_partitions();
        let gap = ChangedRows { removed_partitions: vec![PartitionId(1)], ..ChangedRows::default() };
        assert!(merge(&known, gap).is_err());
        let table = Table { schema: "public".to_owned(), name: "t".to_owned(), kind: TableKind::Reference, renamed: None };
        let next = merge(&known, ChangedRows { tables: vec![table], ..ChangedRows::default() }).expect("valid");
        assert!(Arc::ptr_eq(known.group(GROUP).expect("group"), next.group(GROUP).expect("group")));
    }

    #[test]
    fn a_table_that_was_dropped_and_declared_again_is_there() {
        let table = |kind| Table { schema: "public".to_owned(), name: "t".to_owned(), kind, renamed: None };
        let name = ("public".to_owned(), "t".to_owned());
        let first = ChangedRows { tables: vec![table(TableKind::Reference)], ..ChangedRows::default() };
        let known = merge(&two_partitions(), first).expect("valid");
        let again = ChangedRows {
            tables: vec![table(TableKind::Sharded { group: GROUP, key: Vec::new() })],
            removed_tables: vec![name.clone()],
            ..ChangedRows::default()
        };
        let next = merge(&known, again).expect("valid");
        assert!(matches!(next.table("public", "t").map(|table| table.kind.clone()), Some(TableKind::Sharded { .. })));
        let gone = ChangedRows { removed_tables: vec![name], ..ChangedRows::default() };
        assert!(merge(&next, gone).expect("valid").table("public", "t").is_none());
    }

    #[test]
    fn a_group_keeps_its_residues_until_its_row_changes() {
        let with = ChangedRows { groups: vec![GroupRow { has_residues: true, ..group_row() }], ..ChangedRows::default() };
        let with = merge(&two_partitions(), with).expect("valid");
        assert_eq!(owners(&with), [(1, 1), (2, 2)]);
        assert!(with.has_residues());
        let moved = ChangedRows { partitions: vec![partition(2, Some(0), 3)], ..ChangedRows::default() };
        let moved = merge(&with, moved).expect("valid");
        assert!(moved.group(GROUP).is_some_and(|group| group.has_residues));
        let without = ChangedRows { groups: vec![group_row()], ..ChangedRows::default() };
        assert!(!merge(&moved, without).expect("valid").has_residues());
    }

    #[test]
    fn a_group_goes_with_all_its_partitions() {
        let rows = ChangedRows { removed_groups: vec![GROUP], ..ChangedRows::default() };
        assert!(merge(&two_partitions(), rows).expect("valid").groups.is_empty());
    }
}
