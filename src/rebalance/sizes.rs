//! How much of each sharded table a shard holds.
//!
//! Bytes are what the files of the table, its TOAST and its indexes take on disk: exact, also of space that dead rows hold.
//! Live bytes leave that space out, so that a shard which has given rows away counts as less full, though its files are not smaller:
//! by the width of the rows where there are statistics, else by the rows that the server counts as live and dead.
//! Rows are estimates by default, as the planner makes them: the density at the last VACUUM or ANALYZE times the pages of now;
//! before the first one, the live rows that the server has counted. That reads no row of the table. An exact count reads all
//! of them, by partition where that is asked for.

use sqlx::{AssertSqlSafe, FromRow};

use super::RebalanceError;
use super::cluster::{Cluster, RegisteredShard, ShardedTable};
use super::connection::Reader;
use super::counts::{self, PartitionCounts};

/// What one shard says of itself.
pub(super) struct ShardSizes {
    /// In the order of the tables asked for; `None`: there is no such table here.
    pub(super) tables: Vec<Option<TableSize>>,
    /// Alike, when rows were counted by partition.
    pub(super) counts: Option<Vec<PartitionCounts>>,
    /// Of the whole database, tables that are not sharded included.
    pub(super) database_bytes: u64,
    /// Prepared transactions of this cluster: gid, age in seconds.
    pub(super) prepared: Vec<(String, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableSize {
    /// `None`: the server has no figure to estimate from.
    pub(super) rows: Option<u64>,
    pub(super) bytes: u64,
    /// Without the space of dead rows.
    pub(super) live_bytes: u64,
}

#[derive(FromRow)]
struct SizeRow {
    /// 1-based place among the tables asked for.
    place: i64,
    rows: Option<i64>,
    bytes: i64,
    live_bytes: i64,
}

/// Not bounded: the caller is. Cancel safe.
pub(super) async fn read(shard: &RegisteredShard, cluster: &Cluster, is_exact: bool) -> Result<ShardSizes, RebalanceError> {
    let mut reader = Reader::open_shard(shard).await?;
    let tables = &cluster.tables;
    let mut sizes = match sizes(&mut reader, cluster, is_exact && cluster.layout.is_none()).await {
        Ok(sizes) => sizes,
        Err(error) => return Err(reader.error(&error)),
    };
    if let Some(layout) = cluster.layout.as_ref().filter(|_| is_exact) {
        let mut counts = Vec::with_capacity(tables.len());
        for (table, size) in tables.iter().zip(&mut sizes.tables) {
            let counted = match size {
                Some(_) => counts::count(&mut reader, table, layout).await?,
                None => PartitionCounts::default(),
            };
            if let Some(size) = size {
                size.rows = Some(counted.total());
            }
            counts.push(counted);
        }
        sizes.counts = Some(counts);
    }
    reader.close().await;
    Ok(sizes)
}

async fn sizes(reader: &mut Reader, cluster: &Cluster, is_exact: bool) -> Result<ShardSizes, sqlx::Error> {
    let tables = &cluster.tables;
    let prepared = sqlx::query_as(
        "SELECT gid, extract(epoch FROM now() - prepared)::float8 FROM pg_prepared_xacts
         WHERE database = current_database() AND starts_with(gid, 'sg:' || $1 || ':') ORDER BY gid",
    )
    .bind(&cluster.cluster_id)
    .fetch_all(&mut reader.connection)
    .await?;
    let database_bytes: i64 =
        sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut reader.connection).await?;
    let schemas: Vec<&str> = tables.iter().map(|table| table.schema_name.as_str()).collect();
    let names: Vec<&str> = tables.iter().map(|table| table.table_name.as_str()).collect();
    let rows: Vec<SizeRow> = sqlx::query_as(TABLE_SIZES).bind(&schemas).bind(&names).fetch_all(&mut reader.connection).await?;
    let mut found: Vec<Option<TableSize>> = vec![None; tables.len()];
    for row in rows {
        let place = usize::try_from(row.place - 1).ok().and_then(|place| found.get_mut(place));
        if let Some(place) = place {
            *place =
                Some(TableSize { rows: row.rows.map(unsigned), bytes: unsigned(row.bytes), live_bytes: unsigned(row.live_bytes) });
        }
    }
    if is_exact {
        for (table, size) in tables.iter().zip(&mut found) {
            if let Some(size) = size {
                let rows: i64 = sqlx::query_scalar(AssertSqlSafe(count_sql(table))).fetch_one(&mut reader.connection).await?;
                size.rows = Some(unsigned(rows));
            }
        }
    }
    Ok(ShardSizes { tables: found, counts: None, database_bytes: unsigned(database_bytes), prepared })
}

fn count_sql(table: &ShardedTable) -> String {
    format!("SELECT count(*) FROM {}", table.quoted_name())
}

/// Sizes are never negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

// A declaratively partitioned table has its rows in its children. One without figures makes the sum unknown, not smaller.
const TABLE_SIZES: &str = "
    WITH RECURSIVE member AS (
        SELECT n.place, c.oid
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY n(schema_name, table_name, place)
        JOIN pg_namespace s ON s.nspname = n.schema_name
        JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = n.table_name
        UNION
        SELECT m.place, i.inhrelid FROM member m JOIN pg_inherits i ON i.inhparent = m.oid
    ), sized AS (
        SELECT m.place, c.oid, c.relkind, c.reltuples, c.relpages, pg_relation_size(c.oid) AS bytes,
               pg_stat_get_live_tuples(c.oid) AS live, pg_stat_get_dead_tuples(c.oid) AS dead, 28 + (
                   SELECT sum(s.avg_width * (1 - s.null_frac)) FROM pg_stats s
                   WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND NOT s.inherited) AS width
        FROM member m JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
    ), estimated AS (
        SELECT place, pg_total_relation_size(oid) AS bytes,
               pg_total_relation_size(oid)
                   * CASE WHEN bytes = 0 THEN 1
                          WHEN reltuples >= 0 AND relpages > 0 AND width IS NOT NULL
                              THEN least(1, reltuples::float8 / relpages * width / current_setting('block_size')::int8)
                          WHEN live + dead > 0 THEN live::float8 / (live + dead)
                          ELSE 1 END AS live_bytes,
               CASE WHEN relkind = 'p' OR bytes = 0 THEN 0
                    WHEN reltuples >= 0 AND relpages > 0
                        THEN reltuples::float8 / relpages * (bytes / current_setting('block_size')::int8)
                    WHEN pg_stat_get_live_tuples(oid) > 0 THEN pg_stat_get_live_tuples(oid)
               END AS rows
        FROM sized
    )
    SELECT place, sum(bytes)::int8 AS bytes, sum(live_bytes)::int8 AS live_bytes, CASE WHEN count(*) = count(rows) THEN round(sum(rows))::int8 END AS rows
    FROM estimated GROUP BY place";
