//! The cluster as the map database knows it: shards, tables, how many partitions each shard has, moves, open transactions.
//!
//! One snapshot of the map. Counts partitions in the database rather than reading them all: there may be a hundred thousand.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::{Connection, FromRow, PgConnection};

use super::RebalanceError;
use super::connection::Reader;
use super::layout::{self, Layout};
use crate::backend::identity::Expected;
use crate::catalog::quoted_name;
use crate::shardmap::{Primary, PrimaryServer};

/// No `Debug`: the urls hold passwords.
pub(super) struct Cluster {
    pub(super) epoch: MapEpoch,
    /// UTC, as the map database's clock says.
    pub(super) taken_at: String,
    /// By name.
    pub(super) shards: Vec<RegisteredShard>,
    /// The sharded ones, by name.
    pub(super) tables: Vec<ShardedTable>,
    /// (shard, colocation group) → partitions.
    pub(super) partition_counts: BTreeMap<(i32, i32), u64>,
    /// When asked for, by id.
    pub(super) partitions: Vec<RegisteredPartition>,
    /// When asked for: which key belongs to which partition.
    pub(super) layout: Option<Layout>,
    pub(super) moves: Vec<Move>,
    /// In the names of its prepared transactions.
    pub(super) cluster_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, FromRow)]
pub struct MapEpoch {
    pub incarnation: i64,
    pub counter: i64,
}

#[derive(FromRow)]
pub(super) struct RegisteredShard {
    pub(super) shard_id: i32,
    pub(super) name: String,
    pub(super) url: String,
    pub(super) region: Option<String>,
    pub(super) capacity: f64,
    pub(super) state: String,
    pub(super) is_home: bool,
    /// See [`crate::backend::identity`].
    pub(super) identity: Option<String>,
    /// What is known of its primary server.
    #[sqlx(skip)]
    pub(super) primary: Option<PrimaryServer>,
}

impl RegisteredShard {
    /// What a connection to it must show; `None`: a shard of an earlier version, of which nothing is known.
    pub(super) fn expected(&self) -> Option<Expected> {
        let uuid = self.identity.as_deref()?;
        Some(Expected { uuid: Some(uuid.into()), primary: Primary::of(self.primary) })
    }
}

#[derive(FromRow)]
pub(super) struct ShardedTable {
    pub(super) schema_name: String,
    pub(super) table_name: String,
    pub(super) group_id: i32,
    /// See [`crate::shardmap::key_from_stored`].
    pub(super) key: serde_json::Value,
}

#[derive(FromRow)]
pub(super) struct RegisteredPartition {
    pub(super) partition_id: i32,
    pub(super) group_id: i32,
    pub(super) shard_id: i32,
    pub(super) state: String,
    pub(super) strategy: String,
    /// Where it begins, as stored; lookup: `None`.
    pub(super) low: Option<Vec<u8>>,
}

/// A row of `shardgate.moves` that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
pub struct Move {
    pub move_id: i32,
    pub partition_id: i32,
    pub source: String,
    pub target: String,
    pub state: String,
    pub rows_copied: i64,
    pub bytes_copied: i64,
    pub lag_bytes: Option<i64>,
    pub started_at: String,
    pub error: Option<String>,
}

/// A transaction over several shards that is prepared on some and not finished there, as the shards tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenTransaction {
    pub gid: String,
    pub state: String,
    pub participants: Vec<String>,
    pub age_seconds: f64,
}

/// How much of the map is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Shards,
    /// The partitions one by one.
    Partitions,
    /// And which keys they have.
    Keys,
}

/// Reads all of it. Not bounded: the caller is. Cancel safe.
pub(super) async fn read(map_url: &str, detail: Detail) -> Result<Cluster, RebalanceError> {
    let mut reader = Reader::open("the map database", map_url).await?;
    match snapshot(&mut reader, detail).await {
        Ok(cluster) => {
            reader.close().await;
            Ok(cluster)
        }
        Err(error) => Err(reader.error(&error)),
    }
}

async fn snapshot(reader: &mut Reader, detail: Detail) -> Result<Cluster, sqlx::Error> {
    // Repeatable read, by the connection's settings: everything below is of one moment.
    let mut transaction = reader.connection.begin().await?;
    let epoch = sqlx::query_as("SELECT incarnation, counter FROM shardgate_map.cluster").fetch_one(&mut *transaction).await?;
    let taken_at = sqlx::query_scalar("SELECT to_char(now(), 'YYYY-MM-DD HH24:MI:SS')").fetch_one(&mut *transaction).await?;
    let mut shards: Vec<RegisteredShard> = sqlx::query_as(
        // A map of an earlier version has no identities.
        "SELECT shard_id, name, url, region, capacity, state, is_home, to_jsonb(s) ->> 'identity' AS identity
         FROM shardgate_map.shard s ORDER BY name COLLATE \"C\"",
    )
    .fetch_all(&mut *transaction)
    .await?;
    for (id, server) in primaries(&mut transaction).await? {
        shards.iter_mut().filter(|shard| shard.shard_id == id).for_each(|shard| shard.primary = Some(server));
    }
    let tables = sqlx::query_as(
        "SELECT schema_name, table_name, group_id, key FROM shardgate_map.declared_table WHERE kind = 'sharded'
         ORDER BY schema_name COLLATE \"C\", table_name COLLATE \"C\"",
    )
    .fetch_all(&mut *transaction)
    .await?;
    let counts: Vec<(i32, i32, i64)> =
        sqlx::query_as("SELECT shard_id, group_id, count(*) FROM shardgate_map.partition GROUP BY shard_id, group_id")
            .fetch_all(&mut *transaction)
            .await?;
    let partitions =
        match detail {
            Detail::Partitions | Detail::Keys => sqlx::query_as(
                "SELECT partition_id, group_id, shard_id, state, strategy, low FROM shardgate_map.partition ORDER BY partition_id",
            )
            .fetch_all(&mut *transaction)
            .await?,
            Detail::Shards => Vec::new(),
        };
    let layout = match detail {
        Detail::Keys => Some(layout::read(&mut transaction).await?),
        Detail::Shards | Detail::Partitions => None,
    };
    let moves = sqlx::query_as(
        "SELECT move_id, partition_id, source, target, state, rows_copied, bytes_copied, lag_bytes,
                to_char(started_at, 'YYYY-MM-DD HH24:MI:SS') AS started_at, error
         FROM shardgate.moves WHERE state NOT IN ('done', 'aborted') ORDER BY move_id",
    )
    .fetch_all(&mut *transaction)
    .await?;
    let cluster_id = sqlx::query_scalar("SELECT cluster_id FROM shardgate_map.cluster").fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    let count = |(shard, group, count): (i32, i32, i64)| ((shard, group), u64::try_from(count).unwrap_or_default());
    let partition_counts = counts.into_iter().map(count).collect();
    Ok(Cluster { epoch, taken_at, shards, tables, partition_counts, partitions, layout, moves, cluster_id })
}

/// By shard. A map of an earlier version knows none.
async fn primaries(connection: &mut PgConnection) -> Result<Vec<(i32, PrimaryServer)>, sqlx::Error> {
    let is_known = "SELECT to_regclass('shardgate_map.shard_primary') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(is_known).fetch_one(&mut *connection).await? {
        return Ok(Vec::new());
    }
    let known: Vec<(i32, i64, i32)> =
        sqlx::query_as("SELECT shard_id, system_identifier, timeline FROM shardgate_map.shard_primary")
            .fetch_all(connection)
            .await?;
    let server = |(id, system_identifier, timeline)| (id, PrimaryServer { system_identifier, timeline });
    Ok(known.into_iter().map(server).collect())
}

impl Cluster {
    /// Partitions of all groups that a shard has.
    pub(super) fn partitions_of(&self, shard: i32) -> u64 {
        self.partition_counts.iter().filter(|((of, _), _)| *of == shard).map(|(_, count)| count).sum()
    }
}

impl ShardedTable {
    /// For SQL.
    pub(super) fn quoted_name(&self) -> String {
        quoted_name(&self.schema_name, &self.table_name)
    }

    /// As `shardgate.tables` shows it.
    pub(super) fn display_name(&self) -> String {
        match self.schema_name.as_str() {
            "public" => self.table_name.clone(),
            schema => format!("{schema}.{}", self.table_name),
        }
    }
}
