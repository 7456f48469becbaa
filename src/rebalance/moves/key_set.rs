//! The keys of a move's partitions, as one condition of SQL over a row's key.
//!
//! The same condition stands in the publication's filter, in the gates' triggers, in the comparison of both sides and in the
//! clean-up, so that what is copied, refused, compared and deleted is the same set of rows. A row whose key is NULL is in no set.

use crate::catalog::{quoted_identifier, quoted_literal};
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::{Bound, Group, PartitionId, Store, StoreError, Strategy};
use crate::sql::residues::{array_element, key_value, ranged};

/// As PostgreSQL reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeySet {
    /// An `int8multirange` of hashes.
    Hashes(String),
    /// An array of lookup keys.
    Keys(String),
    /// The ranges of a multirange of keys.
    Ranges(Vec<String>),
}

/// Why the keys cannot be told by a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoCondition(pub(super) String);

impl KeySet {
    pub(super) async fn read(store: &Store, group: &Group, partitions: &[PartitionId]) -> Result<Self, StoreError> {
        Ok(match group.strategy {
            Strategy::Hash => KeySet::Hashes(format!("{{{}}}", hash_ranges(group, partitions).join(","))),
            Strategy::Range => KeySet::Ranges(key_ranges(group, partitions)),
            Strategy::Lookup => KeySet::Keys(array(&store.keys_of_partitions(partitions).await?)),
        })
    }

    /// `row`: what stands before a column's name, as in `new.`.
    pub(super) fn condition(&self, key: &[KeyColumn], group: &Group, row: &str) -> Result<String, NoCondition> {
        let columns: Vec<String> = key.iter().map(|key| format!("{row}{}", quoted_identifier(&key.column))).collect();
        let values: Vec<String> = key.iter().zip(&columns).map(|(key, column)| key_value(key, column)).collect();
        let single = match (&values[..], &group.key_types[..]) {
            ([value], [key_type]) => Some((value, *key_type)),
            _ => None,
        };
        match (self, single) {
            (KeySet::Hashes(ranges), _) => {
                let types = &group.key_types;
                let hash = values.iter().zip(types).fold("0".to_owned(), |seed, (value, key_type)| key_type.hash_sql(value, &seed));
                // The hash of a record of NULLs is a number.
                let present = types.iter().zip(&columns).filter(|(key_type, _)| key_type.hash_sql("", "").contains("record"));
                let present: Vec<String> = present.map(|(_, column)| format!("{column} IS NOT NULL AND ")).collect();
                let ranges = quoted_literal(ranges);
                Ok(format!("({}{hash} OPERATOR(pg_catalog.<@) {ranges}::pg_catalog.int8multirange)", present.concat()))
            }
            (KeySet::Keys(keys), Some((value, key_type))) => {
                let keys = quoted_literal(keys);
                Ok(format!("({value} OPERATOR(pg_catalog.=) ANY ({keys}::pg_catalog.{}[]))", array_element(key_type)))
            }
            (KeySet::Ranges(ranges), Some((value, key_type))) => {
                let (value, multirange) = ranged(value, key_type).map_err(|_| no_range_type(key_type))?;
                let ranges = quoted_literal(&format!("{{{}}}", ranges.join(",")));
                Ok(format!("({value} OPERATOR(pg_catalog.<@) {ranges}::{multirange})"))
            }
            (KeySet::Keys(_) | KeySet::Ranges(_), None) => {
                Err(NoCondition("partitions by range or lookup of several columns cannot be moved yet".to_owned()))
            }
        }
    }

    /// The values of the columns `hashes`, `keys` and `ranges` of `shardgate.residue`.
    pub(super) fn residue_values(&self) -> String {
        match self {
            KeySet::Hashes(ranges) => format!("{}, NULL, NULL", quoted_literal(ranges)),
            KeySet::Keys(keys) => format!("NULL, {}, NULL", quoted_literal(keys)),
            KeySet::Ranges(ranges) => format!("NULL, NULL, {}", quoted_literal(&array(ranges))),
        }
    }
}

fn no_range_type(key_type: KeyType) -> NoCondition {
    NoCondition(format!("partitions by range of {} cannot be moved yet: PostgreSQL has no range type for it", key_type.name()))
}

/// Neighbours joined, inclusive; the end of the key space is left open, since its number has no successor.
fn hash_ranges(group: &Group, partitions: &[PartitionId]) -> Vec<String> {
    let mut ranges: Vec<(i64, Option<i64>)> = Vec::new();
    for (at, partition) in group.partitions.iter().enumerate().filter(|(_, partition)| partitions.contains(&partition.id)) {
        let low = hash_of(partition.low.as_ref()).unwrap_or(i64::MIN);
        let end = group.partitions.get(at + 1).and_then(|next| hash_of(next.low.as_ref()));
        match ranges.last_mut() {
            Some((_, last_end)) if *last_end == Some(low) => *last_end = end,
            _ => ranges.push((low, end)),
        }
    }
    let written = |(low, end): (i64, Option<i64>)| match end {
        Some(end) => format!("[{low},{end})"),
        None => format!("[{low},)"),
    };
    ranges.into_iter().map(written).collect()
}

fn hash_of(bound: Option<&Bound>) -> Option<i64> {
    match bound {
        Some(Bound::Hash(hash)) => Some(*hash),
        Some(Bound::Key(_)) | None => None,
    }
}

fn key_ranges(group: &Group, partitions: &[PartitionId]) -> Vec<String> {
    let text = |bound: Option<&Bound>| bound.map(|bound| quoted(&bound.to_text(&group.key_types))).unwrap_or_default();
    let moved = group.partitions.iter().enumerate().filter(|(_, partition)| partitions.contains(&partition.id));
    let range = moved.map(|(at, partition)| {
        let end = group.partitions.get(at + 1).and_then(|next| next.low.as_ref());
        let opening = if partition.low.is_some() { "[" } else { "(" };
        format!("{opening}{},{})", text(partition.low.as_ref()), text(end))
    });
    range.collect()
}

fn array(elements: &[String]) -> String {
    format!("{{{}}}", elements.iter().map(|element| quoted(element)).collect::<Vec<_>>().join(","))
}

/// As an element of an array or the bound of a range.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shardmap::{GroupId, Partition, PartitionState, ShardId};

    fn group(strategy: Strategy, key_type: KeyType, lows: &[Option<Bound>]) -> Group {
        let partition = |(at, low): (usize, &Option<Bound>)| Partition {
            id: PartitionId(at as i32 + 1),
            shard: ShardId(1),
            state: PartitionState::Online,
            epoch: 0,
            low: low.clone(),
        };
        let partitions = lows.iter().enumerate().map(partition).collect();
        Group::new(GroupId(1), strategy, vec![key_type], partitions, None).expect("a group")
    }

    fn ids(ids: &[i32]) -> Vec<PartitionId> {
        ids.iter().copied().map(PartitionId).collect()
    }

    #[test]
    fn neighbouring_hash_partitions_are_one_range() {
        let lows = [None, Some(Bound::Hash(-10)), Some(Bound::Hash(0)), Some(Bound::Hash(10))];
        let group = group(Strategy::Hash, KeyType::Int8, &lows);
        assert_eq!(hash_ranges(&group, &ids(&[1, 2])), ["[-9223372036854775808,0)"]);
        assert_eq!(hash_ranges(&group, &ids(&[4, 2])), ["[-10,0)", "[10,)"]);
        let set = KeySet::Hashes("{[10,)}".to_owned());
        let key = [KeyColumn { column: "A b".to_owned(), column_type: KeyType::Int8, function: None }];
        let condition = set.condition(&key, &group, "new.").expect("a condition");
        assert_eq!(
            condition,
            "(pg_catalog.hashint8extended(new.\"A b\", 0) OPERATOR(pg_catalog.<@) '{[10,)}'::pg_catalog.int8multirange)"
        );
    }

    #[test]
    fn lookup_keys_are_quoted_as_elements() {
        assert_eq!(array(&["a".to_owned(), "b\"\\c,".to_owned()]), "{\"a\",\"b\\\"\\\\c,\"}");
    }
}
