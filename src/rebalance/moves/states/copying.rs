//! `copying`: PostgreSQL's logical replication copies the rows of the set and then follows what is written.
//!
//! The death of driver, proxy or map does not interrupt it. If the source or the target restarts, finished tables stay and the
//! one in progress begins again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sqlx::FromRow;
use tokio::time::{Instant, sleep};

use super::super::copy_slots;
use super::super::direction::Direction;
use super::super::moved_table::{bytes_sql, members_sql};
use super::super::moving::Moving;
use super::super::objects;
use super::super::replication;
use super::super::stop::Stop;
use crate::shardmap::{MoveId, MoveState};

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
    if copy_slots::remember(moving).await? {
        moving.target.act(&format!("ALTER SUBSCRIPTION {name} ENABLE")).await?;
    }
    moving.reach("subscribed").await;
    let mut rows = BTreeMap::new();
    let mut last: Option<(Copied, Instant)> = None;
    let mut looked: Option<Instant> = None;
    let mut idle_since: Option<Instant> = None;
    loop {
        let followed = followed(moving, Direction::Forward).await?;
        if followed.is_complete(moving.tables.len()) {
            look(moving, &mut rows, followed.ready).await?;
            moving.reach("copied").await;
            return moving.advance(MoveState::CatchingUp, json!({})).await;
        }
        if !followed.is_enabled && !replication::revive(moving, Direction::Forward).await? {
            return Err(Stop::Abort("replication has stopped with an error; the log of the target's server says why".to_owned()));
        }
        // The sizes of many partitions are many files.
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
            looked = Some(Instant::now());
            if let Some(reason) = replication::excess(&mut moving.source, Direction::Forward, &moving.the_move).await? {
                return Err(Stop::Abort(reason));
            }
            let disconnected = replication::disconnected(moving, Direction::Forward).await?;
            let since = *idle_since.get_or_insert_with(Instant::now);
            match disconnected {
                Some(reason) if since.elapsed() > CONNECTED_WITHIN => moving.waits_for(Some(reason)),
                Some(_) => {}
                None => {
                    if since.elapsed() > CONNECTED_WITHIN {
                        moving.waits_for(None);
                    }
                    idle_since = None;
                }
            }
            let copied = look(moving, &mut rows, followed.ready).await?;
            last = match last {
                Some((before, since)) if before == copied => {
                    if since.elapsed() > STALLED_AFTER {
                        let minutes = STALLED_AFTER.as_secs() / 60;
                        return Err(Stop::Abort(format!("the copy has made no progress for {minutes} minutes")));
                    }
                    Some((before, since))
                }
                _ => Some((copied, Instant::now())),
            };
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The tables of a subscription, those of them whose copy is complete and that follow, and whether it goes on.
#[derive(Clone, Copy, Debug, Default, FromRow)]
pub(in super::super) struct Followed {
    tables: i64,
    ready: i64,
    is_enabled: bool,
}

impl Followed {
    /// All of the group's tables and the markers' are there and follow.
    pub(in super::super) fn is_complete(&self, tables: usize) -> bool {
        self.is_enabled && self.tables == self.ready && usize::try_from(self.ready).is_ok_and(|ready| ready == tables + 1)
    }
}

pub(in super::super) async fn followed(moving: &mut Moving, direction: Direction) -> Result<Followed, Stop> {
    let name = direction.name(moving.the_move.id);
    let sql = format!(
        "SELECT count(r.srrelid) AS tables, count(*) FILTER (WHERE r.srsubstate = 'r') AS ready,
                coalesce(bool_and(s.subenabled), false) AS is_enabled
         FROM pg_subscription s LEFT JOIN pg_subscription_rel r ON r.srsubid = s.oid
         WHERE s.subname = '{name}' AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    Ok(moving.subscriber(direction).rows::<Followed>(&sql).await?.pop().unwrap_or_default())
}

/// Fails where [`Followed::is_complete`] would say no. A statement.
pub(in super::super) fn require_complete(id: MoveId, direction: Direction, tables: usize) -> String {
    let expression = format!(
        "SELECT pg_catalog.count(*) FILTER (WHERE r.srsubstate = 'r') || ' of ' || pg_catalog.count(*) \
         FROM pg_catalog.pg_subscription s JOIN pg_catalog.pg_subscription_rel r ON r.srsubid = s.oid \
         WHERE s.subname = '{}' AND s.subenabled \
           AND s.subdbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())",
        direction.name(id)
    );
    objects::require(&expression, &format!("'{0} of {0}'", tables + 1), "a table of the copy does not follow")
}

/// How far the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    rows: i64,
    bytes: i64,
    tables: i64,
}

/// Tells the move how far its copy is. `rows`: of each table, as many as were seen; PostgreSQL tells only of those in progress.
async fn look(moving: &mut Moving, rows: &mut BTreeMap<i64, i64>, tables: i64) -> Result<Copied, Stop> {
    let in_progress = format!(
        "SELECT p.relid::int8, max(p.tuples_processed) FROM pg_stat_progress_copy p
         WHERE p.datname = current_database() AND p.command = 'COPY FROM' AND p.type = 'CALLBACK'
           AND p.relid IN (SELECT m.oid FROM ({}) m) GROUP BY 1",
        members_sql(&moving.sharded)
    );
    for (table, copied) in moving.target.rows::<(i64, i64)>(&in_progress).await? {
        let seen = rows.entry(table).or_default();
        *seen = copied.max(*seen);
    }
    let bytes: i64 = moving.target.value(&format!("SELECT {}", bytes_sql(&moving.sharded))).await?;
    let before = moving.the_move.journal["bytes_before"].as_i64().unwrap_or_default();
    let copied = Copied { rows: rows.values().sum(), bytes, tables };
    let mut progress = moving.progress();
    progress.rows_copied = Some(copied.rows);
    progress.bytes_copied = Some((bytes - before).max(0));
    Ok(copied)
}

/// How often it is looked at whether the copy is complete; how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Servers try every five seconds.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
const STALLED_AFTER: Duration = Duration::from_secs(600);
