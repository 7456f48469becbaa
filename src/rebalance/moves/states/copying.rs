//! `copying`: PostgreSQL's logical replication copies the rows of the set and then follows what is written.
//!
//! The death of driver, proxy or map does not interrupt it. If the source or the target restarts, finished tables stay and the
//! one in progress begins again.

use std::time::Duration;

use serde_json::json;
use sqlx::FromRow;
use tokio::time::{Instant, sleep};

use super::super::direction::Direction;
use super::super::moved_table::bytes_sql;
use super::super::moving::Moving;
use super::super::objects;
use super::super::replication;
use super::super::stop::Stop;
use crate::shardmap::MoveState;

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let name = Direction::Forward.name(id);
    let exists = format!("SELECT EXISTS (SELECT FROM pg_catalog.pg_subscription WHERE subname = '{name}')");
    if !moving.target.value::<bool>(&exists).await? {
        let before =
            json!({ "bytes_before": moving.target.value::<i64>(&format!("SELECT {}", bytes_sql(&moving.sharded))).await? });
        moving.store.advance_move((id, moving.term), MoveState::Copying, MoveState::Copying, before.clone(), None).await?;
        moving.the_move.journal["bytes_before"] = before["bytes_before"].clone();
        let connection = moving.connection(Direction::Forward);
        let subscription = objects::subscription(id, Direction::Forward, connection, moving.target.version);
        moving.target.act(&subscription).await?;
    }
    moving.reach("subscribed").await;
    let mut last: Option<(Copied, Instant)> = None;
    loop {
        let copied = copied(moving, Direction::Forward).await?;
        {
            let mut progress = moving.progress();
            progress.rows_copied = Some(copied.rows);
            let before = moving.the_move.journal["bytes_before"].as_i64().unwrap_or_default();
            progress.bytes_copied = Some((copied.bytes - before).max(0));
        }
        if copied.is_complete(moving.tables.len()) {
            moving.reach("copied").await;
            return moving.advance(MoveState::CatchingUp, json!({})).await;
        }
        if !copied.is_enabled && !replication::revive(moving, Direction::Forward).await? {
            return Err(Stop::Abort("replication has stopped with an error; the log of the target's server says why".to_owned()));
        }
        if let Some(reason) = replication::excess(&mut moving.source, Direction::Forward, &moving.the_move).await? {
            return Err(Stop::Abort(reason));
        }
        last = match last {
            Some((before, since)) if before == copied => {
                if since.elapsed() > STALLED_AFTER {
                    return Err(Stop::Abort(format!("the copy has made no progress for {} minutes", STALLED_AFTER.as_secs() / 60)));
                }
                Some((before, since))
            }
            _ => Some((copied, Instant::now())),
        };
        sleep(POLL_INTERVAL).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub(in super::super) struct Copied {
    rows: i64,
    bytes: i64,
    tables: i64,
    ready: i64,
    is_enabled: bool,
}

impl Copied {
    /// All of the group's tables and the markers' are there and follow.
    pub(in super::super) fn is_complete(&self, tables: usize) -> bool {
        self.is_enabled && self.tables == self.ready && usize::try_from(self.ready).is_ok_and(|ready| ready == tables + 1)
    }
}

pub(in super::super) async fn copied(moving: &mut Moving, direction: Direction) -> Result<Copied, Stop> {
    let name = direction.name(moving.the_move.id);
    let sql = format!(
        "SELECT coalesce((SELECT sum(p.tuples_processed) FROM pg_stat_progress_copy p
                          WHERE p.datname = current_database() AND p.command = 'COPY FROM' AND p.type = 'CALLBACK'), 0)::int8 AS rows,
                {bytes} AS bytes,
                count(r.srrelid) AS tables, count(*) FILTER (WHERE r.srsubstate = 'r') AS ready,
                coalesce(bool_and(s.subenabled), false) AS is_enabled
         FROM pg_subscription s LEFT JOIN pg_subscription_rel r ON r.srsubid = s.oid
         WHERE s.subname = '{name}' AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        bytes = bytes_sql(&moving.sharded)
    );
    Ok(moving.subscriber(direction).rows::<Copied>(&sql).await?.pop().unwrap_or(Copied {
        rows: 0,
        bytes: 0,
        tables: 0,
        ready: 0,
        is_enabled: false,
    }))
}

const POLL_INTERVAL: Duration = Duration::from_millis(100);
const STALLED_AFTER: Duration = Duration::from_secs(600);
