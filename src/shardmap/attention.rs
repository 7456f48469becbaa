//! What the map says of the cluster that a person has to look at: moves and pieces by time that do not go on, and which proxies run.
//!
//! Read by `shardgate check`. Changes nothing.

use sqlx::FromRow;

use super::error::StoreError;
use super::lease::LEASE;
use super::moves::MoveId;
use super::store::Store;

/// A proxy whose lease holds, by the map database's clock.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct RunningProxy {
    pub address: String,
    /// `None`: a version that does not tell it.
    pub version: Option<String>,
}

/// A table whose last piece by time could not be made, or not be carried to its shard.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct PieceInTrouble {
    /// One of the tables of the group.
    pub table: String,
    pub every: String,
    pub error: String,
}

/// Why a move is not on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// For a person.
    Failed,
    Paused,
    /// No driver was heard of for so many seconds.
    Abandoned(i64),
    /// Its driver says for what.
    Waits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingMove {
    pub id: MoveId,
    /// "3, 7, 9".
    pub partitions: String,
    pub source: String,
    pub target: String,
    pub state: String,
    pub standing: Standing,
    pub error: Option<String>,
}

#[derive(FromRow)]
struct MoveRow {
    move_id: i32,
    partitions: String,
    source: String,
    target: String,
    state: String,
    asked: Option<String>,
    error: Option<String>,
    silent_seconds: i64,
    is_in_queue: bool,
}

impl MoveRow {
    fn standing(&self) -> Option<Standing> {
        match (self.state.as_str(), self.asked.as_deref()) {
            ("failed", _) => Some(Standing::Failed),
            _ if self.silent_seconds > ABANDONED_AFTER_SECONDS && !self.is_in_queue => {
                Some(Standing::Abandoned(self.silent_seconds))
            }
            (_, Some("pause")) => Some(Standing::Paused),
            _ => self.error.is_some().then_some(Standing::Waits),
        }
    }
}

impl Store {
    pub async fn running_proxies(&self) -> Result<Vec<RunningProxy>, StoreError> {
        let sql = "SELECT p.address, p.version FROM shardgate_map.proxy p
                   WHERE p.last_seen > clock_timestamp() - make_interval(secs => $1) ORDER BY p.address, p.proxy_id";
        self.answered(sqlx::query_as(sql).bind(LEASE.as_secs_f64()).fetch_all(&self.pool()?)).await
    }

    pub async fn pieces_in_trouble(&self) -> Result<Vec<PieceInTrouble>, StoreError> {
        let sql = "SELECT coalesce((SELECT min(t.schema_name || '.' || t.table_name) FROM shardgate_map.declared_table t
                                    WHERE t.group_id = p.group_id), 'of group ' || p.group_id) AS \"table\",
                          p.every::text AS every, v.error
                   FROM shardgate_map.time_partitions p JOIN shardgate.time_partitions v ON v.colocation_group = p.group_id
                   WHERE v.error IS NOT NULL ORDER BY p.group_id";
        self.answered(sqlx::query_as(sql).fetch_all(&self.pool()?)).await
    }

    pub async fn standing_moves(&self) -> Result<Vec<StandingMove>, StoreError> {
        let sql = "WITH running AS (
                       SELECT m.*, extract(epoch FROM clock_timestamp() - coalesce(m.driver_seen, m.started_at))::int8 AS silent_seconds
                       FROM shardgate_map.move m WHERE m.state NOT IN ('done', 'aborted')
                   )
                   SELECT r.move_id, r.source, r.target, r.state, r.asked, r.error, r.silent_seconds,
                          (SELECT string_agg(p.partition_id::text, ', ' ORDER BY p.partition_id)
                           FROM shardgate_map.move_partition p WHERE p.move_id = r.move_id) AS partitions,
                          r.state = 'planned' AND EXISTS (
                              SELECT FROM running o WHERE o.move_id <> r.move_id AND o.silent_seconds <= $1) AS is_in_queue
                   FROM running r ORDER BY r.move_id";
        let query = sqlx::query_as::<_, MoveRow>(sql).bind(ABANDONED_AFTER_SECONDS);
        let rows = self.answered(query.fetch_all(&self.pool()?)).await?;
        Ok(rows.into_iter().filter_map(|row| row.standing().map(|standing| row.into_standing(standing))).collect())
    }
}

impl MoveRow {
    fn into_standing(self, standing: Standing) -> StandingMove {
        let Self { move_id, partitions, source, target, state, error, .. } = self;
        StandingMove { id: MoveId(move_id), partitions, source, target, state, standing, error }
    }
}

/// A driver is heard of every few seconds, whatever it waits for.
const ABANDONED_AFTER_SECONDS: i64 = 60;
