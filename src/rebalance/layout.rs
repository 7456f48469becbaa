//! Which key belongs to which partition: what counting rows by partition needs of the map.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;

/// By colocation group.
#[derive(Debug, Default)]
pub(super) struct Layout {
    groups: BTreeMap<i32, GroupLayout>,
}

#[derive(Debug)]
pub(super) enum GroupLayout {
    /// Where each partition begins, ascending; the first at the beginning.
    Hash(Vec<(i64, i32)>),
    /// The same by the keys' order-preserving bytes.
    Range(Vec<(Vec<u8>, i32)>),
    Lookup {
        partitions: HashMap<Vec<u8>, i32>,
        default: Option<i32>,
    },
}

impl Layout {
    pub(super) fn group(&self, id: i32) -> Option<&GroupLayout> {
        self.groups.get(&id)
    }
}

impl GroupLayout {
    /// The partition of the key with these order-preserving bytes. Hash groups are placed by the shard.
    pub(super) fn partition_of_key(&self, key: &[u8]) -> Option<i32> {
        match self {
            GroupLayout::Hash(_) => None,
            GroupLayout::Range(partitions) => {
                let after = partitions.partition_point(|(low, _)| low.as_slice() <= key);
                after.checked_sub(1).and_then(|at| partitions.get(at)).map(|(_, partition)| *partition)
            }
            GroupLayout::Lookup { partitions, default } => partitions.get(key).copied().or(*default),
        }
    }
}

pub(super) async fn read(connection: &mut PgConnection) -> Result<Layout, sqlx::Error> {
    let groups: Vec<(i32, String, Option<i32>)> =
        sqlx::query_as("SELECT group_id, strategy, default_partition FROM shardgate_map.colocation_group")
            .fetch_all(&mut *connection)
            .await?;
    let mut layout = Layout::default();
    for (group, strategy, default) in groups {
        let group_layout = match strategy.as_str() {
            "hash" => GroupLayout::Hash(bounds(connection, group).await?.into_iter().map(|(low, id)| (hash(&low), id)).collect()),
            "range" => GroupLayout::Range(bounds(connection, group).await?),
            _ => GroupLayout::Lookup { partitions: keys(connection, group).await?, default },
        };
        layout.groups.insert(group, group_layout);
    }
    Ok(layout)
}

/// Ascending, as `bytea` sorts.
async fn bounds(connection: &mut PgConnection, group: i32) -> Result<Vec<(Vec<u8>, i32)>, sqlx::Error> {
    sqlx::query_as("SELECT low, partition_id FROM shardgate_map.partition WHERE group_id = $1 ORDER BY low")
        .bind(group)
        .fetch_all(connection)
        .await
}

async fn keys(connection: &mut PgConnection, group: i32) -> Result<HashMap<Vec<u8>, i32>, sqlx::Error> {
    let rows: Vec<(Vec<u8>, i32)> = sqlx::query_as("SELECT key, partition_id FROM shardgate_map.lookup_key WHERE group_id = $1")
        .bind(group)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().collect())
}

/// A bound as it is stored: eight bytes, the sign bit flipped; none is the beginning.
pub(super) fn hash(low: &[u8]) -> i64 {
    <[u8; 8]>::try_from(low).map_or(i64::MIN, |bytes| (u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_last_partition_that_begins_at_or_before_it() {
        let range = GroupLayout::Range(vec![(vec![], 1), (b"c".to_vec(), 2), (b"f".to_vec(), 3)]);
        for (key, partition) in [("a", 1), ("bzz", 1), ("c", 2), ("ez", 2), ("f", 3), ("z", 3)] {
            assert_eq!(range.partition_of_key(key.as_bytes()), Some(partition), "{key}");
        }
        let mut lookup = GroupLayout::Lookup { partitions: [(b"a".to_vec(), 4)].into(), default: None };
        assert_eq!((lookup.partition_of_key(b"a"), lookup.partition_of_key(b"b")), (Some(4), None));
        if let GroupLayout::Lookup { default, .. } = &mut lookup {
            *default = Some(5);
        }
        assert_eq!(lookup.partition_of_key(b"b"), Some(5));
    }

    #[test]
    fn bounds_of_the_hash_space_are_read_as_they_are_stored() {
        assert_eq!(hash(b""), i64::MIN);
        assert_eq!(hash(&[0x80, 0, 0, 0, 0, 0, 0, 0]), 0);
        assert_eq!(hash(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), -1);
    }
}
