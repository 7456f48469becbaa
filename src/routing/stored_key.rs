//! Where a row goes that is stored with this key, by one version of the map: for rows that stream by, without a wait.

use smallvec::SmallVec;

use super::bind::{null_key, unproven_key};
use super::resolve::no_shard_for_key;
use super::source::MapSource;
use crate::error::{PgError, SqlState};
use crate::shard_key::{Conversion, Format, Key, KeyDatum, KeyFunction, KeyType};
use crate::shardmap::{Bound, Group, MapSnapshot, Partition, PartitionId, ShardId, Strategy};

/// A column of the key as the row's table has it.
#[derive(Clone, Copy, Debug)]
pub struct StoredColumn<'a> {
    pub column_type: KeyType,
    pub function: Option<&'a KeyFunction>,
    /// `atttypmod` of the column.
    pub typmod: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StoredPlace {
    On(ShardId, PartitionId),
    /// A lookup key that is not known here: ask the map, then [`StoredPlace::mapped`].
    Unknown(Key),
    /// It is no value of the column's type, as any shard will say.
    NoValue,
    /// Nowhere: why.
    Refused(PgError),
}

/// The shard of one row. `values`: of the key's columns, in the column's own type and this format; `None` is NULL.
pub fn place_stored(
    map: &impl MapSource,
    snapshot: &MapSnapshot,
    group: &Group,
    columns: &[StoredColumn<'_>],
    values: &[Option<&[u8]>],
    format: Format,
) -> StoredPlace {
    let mut data: SmallVec<[KeyDatum; 2]> = SmallVec::with_capacity(columns.len());
    for (column, value) in columns.iter().zip(values) {
        let Some(bytes) = value else { return StoredPlace::Refused(null_key()) };
        // Text is what the type's input function reads, as it reads an untyped literal.
        let oid = match format {
            Format::Text => 0,
            Format::Binary => column.column_type.oid(),
        };
        let datum = match KeyDatum::assign(column.column_type, column.typmod, oid, format, bytes) {
            Conversion::Exactly(datum) => match column.function {
                None => Some(datum),
                Some(function) => function.apply(&datum),
            },
            Conversion::NoValue => return StoredPlace::NoValue,
            Conversion::Unknown => None,
        };
        match datum {
            Some(datum) => data.push(datum),
            None => return StoredPlace::Refused(unproven_key()),
        }
    }
    if data.is_empty() || data.len() != group.key_types.len() {
        return StoredPlace::Refused(PgError::internal("a row's key has another number of columns than its group"));
    }
    let hash = |data: &[KeyDatum]| match data {
        [only] => only.as_ref().hash(),
        several => Key::new(several.to_vec()).hash(),
    };
    match group.strategy {
        Strategy::Hash => StoredPlace::in_partition(group.partition_at(&Bound::Hash(hash(&data)))),
        Strategy::Range => StoredPlace::in_partition(group.partition_at_key(&ordered_bytes(&data))),
        Strategy::Lookup => match map.find_cached(group.id, &ordered_bytes(&data)) {
            None => StoredPlace::Unknown(Key::new(data.into_vec())),
            Some(mapped) => StoredPlace::mapped(snapshot, group, mapped),
        },
    }
}

impl StoredPlace {
    fn in_partition(partition: &Partition) -> Self {
        Self::On(partition.shard, partition.id)
    }

    /// Of a lookup key, by what the map says of it.
    pub fn mapped(snapshot: &MapSnapshot, group: &Group, mapped: Option<PartitionId>) -> Self {
        let partition: Option<&Partition> = group.partition_of_mapping(mapped);
        match (partition, mapped) {
            (Some(partition), _) => Self::in_partition(partition),
            (None, None) => Self::Refused(no_shard_for_key(snapshot, group)),
            // The mapping is newer than the version by which the rows before this one have gone.
            (None, Some(_)) => Self::Refused(
                PgError::new(SqlState::SERIALIZATION_FAILURE, "the sharding of a table has changed")
                    .with_hint("Retry the transaction."),
            ),
        }
    }
}

fn ordered_bytes(data: &[KeyDatum]) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::new();
    data.iter().for_each(|datum| datum.as_ref().write_ordered(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::testing::{FakeMap, GROUP, hash_group, int, key, lookup_group, range_group, text};

    fn place(map: &FakeMap, columns: &[StoredColumn<'_>], values: &[Option<&[u8]>]) -> StoredPlace {
        let snapshot = map.newest();
        place_stored(map, &snapshot, &snapshot.groups[&GROUP], columns, values, Format::Text)
    }

    fn column(column_type: KeyType) -> StoredColumn<'static> {
        StoredColumn { column_type, function: None, typmod: -1 }
    }

    #[test]
    fn a_row_goes_where_its_key_is() {
        let hash = FakeMap::new(hash_group(&[KeyType::Int8]));
        let range = FakeMap::new(range_group(&[KeyType::Int8], &[key(&[int(10)]), key(&[int(20)])]));
        for value in [-3_i64, 0, 9, 10, 19, 20, 21] {
            let written = value.to_string();
            let newest = hash.newest();
            let expected = newest.groups[&GROUP].partition_at(&Bound::Hash(key(&[int(value)]).hash()));
            assert_eq!(place(&hash, &[column(KeyType::Int8)], &[Some(written.as_bytes())]), StoredPlace::in_partition(expected));
            let newest = range.newest();
            let expected = newest.groups[&GROUP].partition_at_key(&key(&[int(value)]).ordered_bytes());
            assert_eq!(place(&range, &[column(KeyType::Int8)], &[Some(written.as_bytes())]), StoredPlace::in_partition(expected));
        }
    }

    #[test]
    fn a_key_that_is_not_known_has_no_place() {
        let hash = FakeMap::new(hash_group(&[KeyType::Int8]));
        assert!(matches!(place(&hash, &[column(KeyType::Int8)], &[None]), StoredPlace::Refused(_)));
        for value in ["x", ""] {
            assert_eq!(place(&hash, &[column(KeyType::Int8)], &[Some(value.as_bytes())]), StoredPlace::NoValue);
        }
        let mut lookup = FakeMap::new(lookup_group(&[KeyType::Text], None));
        lookup.cached.insert(key(&[text("X")]), None);
        assert!(matches!(place(&lookup, &[column(KeyType::Text)], &[Some(b"X")]), StoredPlace::Refused(_)));
        let unknown = place(&lookup, &[column(KeyType::Text)], &[Some(b"Y")]);
        assert_eq!(unknown, StoredPlace::Unknown(key(&[text("Y")])));
    }
}
