//! Comparing rows that lie twice, from outside of a move: both sides of one that runs, and the copies of a reference table.
//!
//! Only reads. That the target of a move has what the source had is known from the slot: it confirms what the target has applied and
//! made durable. Copies of a reference table are written by transactions over all shards, so that they differ for a moment at most.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::direction::Direction;
use super::key_set::KeySet;
use super::moved_table::MovedTable;
use super::site::{Site, SiteError};
use super::stop::Stop;
use super::verify::{Sides, compare_table};
use crate::catalog::quoted_name;
use crate::rebalance::RebalanceError;
use crate::shardmap::{MapSnapshot, Move, MoveId, MoveState, Shard, Store, Term};

/// Gives the number of rows.
pub(in crate::rebalance) async fn both_sides(store: &Store, map: &MapSnapshot, the_move: &Move) -> Result<i64, RebalanceError> {
    let group = map.group(the_move.group).ok_or_else(|| RebalanceError::Refused("the tables of the move are gone".to_owned()))?;
    let keys = KeySet::read(store, group, &the_move.partitions).await?;
    let sharded = MovedTable::of_group(map, group, &keys).map_err(|reason| RebalanceError::Refused(reason.0))?;
    let shard =
        |name: &str| map.shard_by_name(name).ok_or_else(|| RebalanceError::Refused(format!("there is no shard \"{name}\"")));
    let (owner, other, direction) = match the_move.state {
        MoveState::Switched => (&the_move.target, &the_move.source, Direction::Back),
        _ => (&the_move.source, &the_move.target, Direction::Forward),
    };
    let mut sides =
        MoveSides { source: open(shard(owner)?).await?, target: open(shard(other)?).await?, slot: direction.name(the_move.id) };
    compare(&mut sides, &sharded).await
}

/// Of these and their partitions.
async fn compare(sides: &mut impl Sides, tables: &[MovedTable]) -> Result<i64, RebalanceError> {
    let mut rows = 0;
    for table in MovedTable::holding_rows_of(tables, sides.source()).await.map_err(|error| failed(error.into()))? {
        rows += compare_table(sides, &table).await.map_err(failed)?;
    }
    Ok(rows)
}

/// Of one reference table on two shards.
pub(in crate::rebalance) async fn copies(
    (schema, name): (&str, &str),
    (home, other): (&Shard, &Shard),
) -> Result<i64, RebalanceError> {
    let everything = || "true".to_owned();
    let table = MovedTable {
        schema: schema.to_owned(),
        name: name.to_owned(),
        quoted: quoted_name(schema, name),
        key: Vec::new(),
        condition: everything(),
        condition_old: everything(),
        condition_new: everything(),
    };
    let mut sides = Copies { home: open(home).await?, other: open(other).await? };
    compare(&mut sides, &[table]).await
}

async fn open(shard: &Shard) -> Result<Site, RebalanceError> {
    Box::pin(Site::open(shard, MoveId(0), Term(0))).await.map_err(|error| failed(error.into()))
}

fn failed(stop: Stop) -> RebalanceError {
    match stop {
        Stop::Differ(reason) => RebalanceError::Differs(reason),
        Stop::Abort(reason) | Stop::Again(reason) | Stop::Slow(reason) | Stop::Withdraw(reason) | Stop::Failed(reason) => {
            RebalanceError::Query { place: "comparison".to_owned(), reason }
        }
        Stop::Overtaken | Stop::Rest(_) => {
            RebalanceError::Query { place: "comparison".to_owned(), reason: "the move has gone on".to_owned() }
        }
    }
}

struct MoveSides {
    source: Site,
    target: Site,
    slot: String,
}

impl Sides for MoveSides {
    fn source(&mut self) -> &mut Site {
        &mut self.source
    }

    fn target(&mut self) -> &mut Site {
        &mut self.target
    }

    async fn catch_up(&mut self) -> Result<(), Stop> {
        let lsn: String = self.source.value("SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text").await?;
        let sql = format!(
            "SELECT coalesce((SELECT confirmed_flush_lsn >= '{lsn}'::pg_lsn FROM pg_replication_slots WHERE slot_name = '{}'), false)",
            self.slot
        );
        let confirmed = async {
            while !self.source.value::<bool>(&sql).await? {
                sleep(POLL_INTERVAL).await;
            }
            Ok::<(), SiteError>(())
        };
        match timeout(CATCH_UP_TIMEOUT, confirmed).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Stop::Again("the copy does not catch up with the source".to_owned())),
        }
    }
}

struct Copies {
    home: Site,
    other: Site,
}

impl Sides for Copies {
    fn source(&mut self) -> &mut Site {
        &mut self.home
    }

    fn target(&mut self) -> &mut Site {
        &mut self.other
    }

    async fn catch_up(&mut self) -> Result<(), Stop> {
        sleep(COMMIT_TIME).await;
        Ok(())
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// From the commit on one shard to that on the last one.
const COMMIT_TIME: Duration = Duration::from_millis(100);
