//! Rows of one table on one shard, counted by partition.
//!
//! Hash partitions are counted by the shard, which has the hash itself. Keys of the other strategies come grouped, as text, and
//! are placed here by the same order-preserving bytes as statements are. Either way the shard reads every row, and only counts
//! travel.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use sqlx::AssertSqlSafe;

use super::RebalanceError;
use super::cluster::ShardedTable;
use super::connection::Reader;
use super::layout::{GroupLayout, Layout};
use super::sizes::unsigned;
use crate::catalog::quoted_identifier;
use crate::shard_key::{Key, KeyColumn, KeyType};
use crate::shardmap::key_from_stored;

/// Rows by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionCounts {
    rows: BTreeMap<i32, u64>,
    /// Of keys that belong to no partition.
    homeless: u64,
}

impl PartitionCounts {
    pub(super) fn of(&self, partition: i32) -> u64 {
        self.rows.get(&partition).copied().unwrap_or_default()
    }

    pub(super) fn total(&self) -> u64 {
        self.rows.values().sum::<u64>() + self.homeless
    }

    /// Rows of other partitions than these.
    pub(super) fn outside(&self, is_owned: impl Fn(i32) -> bool) -> u64 {
        let strays = self.rows.iter().filter(|(partition, _)| !is_owned(**partition)).map(|(_, rows)| rows).sum::<u64>();
        strays + self.homeless
    }

    fn add(&mut self, partition: Option<i32>, rows: u64) {
        match partition {
            Some(partition) => *self.rows.entry(partition).or_default() += rows,
            None => self.homeless += rows,
        }
    }
}

/// Not bounded: the caller is. Cancel safe.
pub(super) async fn count(reader: &mut Reader, table: &ShardedTable, layout: &Layout) -> Result<PartitionCounts, RebalanceError> {
    let unreadable = |reason: String| RebalanceError::Query { place: "the map database".to_owned(), reason };
    let columns = key_from_stored(&table.key).map_err(|error| unreadable(error.to_string()))?;
    let types = key_types(&columns).ok_or_else(|| unreadable(format!("shard key of table \"{}\"", table.table_name)))?;
    let group = layout.group(table.group_id).ok_or_else(|| unreadable(format!("colocation group {}", table.group_id)))?;
    let counted = match group {
        GroupLayout::Hash(partitions) => count_hashes(reader, table, &columns, &types, partitions).await,
        GroupLayout::Range(_) | GroupLayout::Lookup { .. } => count_keys(reader, table, &columns, &types, group).await,
    };
    counted.map_err(|error| reader.error(&error))
}

async fn count_hashes(
    reader: &mut Reader,
    table: &ShardedTable,
    columns: &[KeyColumn],
    types: &[KeyType],
    partitions: &[(i64, i32)],
) -> Result<PartitionCounts, sqlx::Error> {
    let hash =
        columns.iter().zip(types).fold("0".to_owned(), |seed, (column, key_type)| key_type.hash_sql(&expression(column), &seed));
    let sql =
        format!("SELECT width_bucket({hash}, $1::bigint[])::bigint AS place, count(*) FROM {} GROUP BY place", table.quoted_name());
    // What lies before the second bound is in the first partition.
    let lows: Vec<i64> = partitions.iter().skip(1).map(|(low, _)| *low).collect();
    let rows: Vec<(Option<i64>, i64)> = sqlx::query_as(AssertSqlSafe(sql)).bind(&lows).fetch_all(&mut reader.connection).await?;
    let mut counts = PartitionCounts::default();
    for (place, rows) in rows {
        let at = place.and_then(|place| usize::try_from(place).ok());
        counts.add(at.and_then(|at| partitions.get(at)).map(|(_, partition)| *partition), unsigned(rows));
    }
    Ok(counts)
}

async fn count_keys(
    reader: &mut Reader,
    table: &ShardedTable,
    columns: &[KeyColumn],
    types: &[KeyType],
    group: &GroupLayout,
) -> Result<PartitionCounts, sqlx::Error> {
    let keys: Vec<String> = columns.iter().map(|column| format!("{}::text", expression(column))).collect();
    let sql = format!("SELECT ARRAY[{}] AS key, count(*) FROM {} GROUP BY key", keys.join(", "), table.quoted_name());
    let mut rows = sqlx::query_as::<_, (Vec<Option<String>>, i64)>(AssertSqlSafe(sql)).fetch(&mut reader.connection);
    let mut counts = PartitionCounts::default();
    while let Some((texts, rows)) = rows.try_next().await? {
        let texts: Option<Vec<&str>> = texts.iter().map(Option::as_deref).collect();
        let key = texts.and_then(|texts| Key::parse(types, &texts).ok());
        counts.add(key.and_then(|key| group.partition_of_key(&key.ordered_bytes())), unsigned(rows));
    }
    Ok(counts)
}

/// The types of the key itself, which a key function may change.
fn key_types(columns: &[KeyColumn]) -> Option<Vec<KeyType>> {
    let key_type = |column: &KeyColumn| match &column.function {
        Some(function) => function.result_type(column.column_type),
        None => Some(column.column_type),
    };
    columns.iter().map(key_type).collect()
}

fn expression(column: &KeyColumn) -> String {
    let name = quoted_identifier(&column.column);
    column.function.as_ref().map_or_else(|| name.clone(), |function| function.to_sql(&name))
}
