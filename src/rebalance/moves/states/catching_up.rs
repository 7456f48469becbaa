//! `catching_up`: waits until the copy is close behind, both sides were compared, and nothing is against the cut-over.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::super::direction::Direction;
use super::super::estimate::Estimate;
use super::super::marker;
use super::super::moving::Moving;
use super::super::replication;
use super::super::stop::Stop;
use super::{copying, cutting_over, preparing};
use crate::shardmap::{Asked, MoveState};

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    if moving.the_move.journal.get("verified").is_none() {
        catch_up(moving).await?;
        return moving.advance(MoveState::Verifying, json!({})).await;
    }
    back_off(moving.the_move.attempts).await;
    catch_up(moving).await?;
    wait_for_leave(moving).await?;
    if preparing::shapes(moving, Direction::Forward).await? != preparing::known_shapes(moving, Direction::Forward) {
        return Err(Stop::Abort("a table of the move was changed, truncated or rewritten since it was prepared".to_owned()));
    }
    moving.none_is_silent().await?;
    let _quiet = moving.quiet().await;
    let estimate = Box::pin(Estimate::measure(moving, Direction::Forward)).await?;
    if let Some(reason) = estimate.excess(moving, Direction::Forward) {
        return Err(Stop::Again(reason));
    }
    estimate.note(moving).await?;
    Box::pin(cutting_over::run(moving, Direction::Forward, &estimate)).await
}

/// Until a marker arrives well within the time for which statements may be held.
async fn catch_up(moving: &mut Moving) -> Result<(), Stop> {
    let budget = Duration::from_millis(moving.the_move.options.max_pause_ms);
    loop {
        let lag = lag_bytes(moving).await?;
        moving.progress().lag_bytes = Some(lag);
        if let Some(reason) = replication::excess(&mut moving.source, Direction::Forward, &moving.the_move).await? {
            return Err(Stop::Abort(reason));
        }
        if !copying::followed(moving, Direction::Forward).await?.is_complete(moving.tables.len()) {
            if replication::revive(moving, Direction::Forward).await? {
                sleep(POLL_INTERVAL).await;
                continue;
            }
            return Err(Stop::Abort(
                "a table of the copy has left replication; the log of the target's server says why".to_owned(),
            ));
        }
        let behind = marker::round_trip(moving, Direction::Forward).await?;
        if behind < budget / 2 {
            moving.waits_for(None);
            return Ok(());
        }
        moving.waits_for(Some(format!("the copy is {} ms behind", behind.as_millis())));
        sleep(POLL_INTERVAL).await;
    }
}

async fn lag_bytes(moving: &mut Moving) -> Result<i64, Stop> {
    let sql = format!(
        "SELECT coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8
                          FROM pg_replication_slots WHERE slot_name = '{}'), 0)",
        Direction::Forward.name(moving.the_move.id)
    );
    Ok(moving.source.value(&sql).await?)
}

/// A person may want to say when, or not now.
async fn wait_for_leave(moving: &mut Moving) -> Result<(), Stop> {
    loop {
        let now = moving.store.move_by_id(moving.the_move.id).await?;
        let asked = now.and_then(|now| now.asked);
        let waits = match asked {
            Some(Asked::Pause) => true,
            Some(Asked::Cutover | Asked::Finish | Asked::FinishUnverified) => false,
            Some(Asked::Abort | Asked::Rollback | Asked::RollbackUnverified | Asked::Resume) | None => {
                moving.the_move.options.manual_cutover
            }
        };
        if !waits {
            return Ok(());
        }
        // However long that takes.
        if let Some(reason) = replication::excess(&mut moving.source, Direction::Forward, &moving.the_move).await? {
            return Err(Stop::Abort(reason));
        }
        moving.waits_for(Some(format!("waits for \"shard-rebalance cutover {}\"", moving.the_move.id.0)));
        sleep(POLL_INTERVAL).await;
    }
}

/// Longer from one failed cut-over to the next.
pub(in super::super) async fn back_off(attempts: i32) {
    let Ok(failed @ 1..) = u32::try_from(attempts) else { return };
    sleep(BACK_OFF_FIRST.saturating_mul(1 << failed.min(8)).min(BACK_OFF_MAX)).await;
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(20);
