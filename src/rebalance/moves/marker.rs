//! Markers: a row that is written at the publisher and waited for at the subscriber. Replication applies in the order of commits, so its
//! arrival proves that of everything before it, once every table of the subscription follows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

use super::direction::Direction;
use super::moving::Moving;
use super::objects;
use super::replication;
use super::stop::Stop;

/// Never used again, whichever driver uses it.
pub(super) fn new_number(direction: Direction) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    match direction {
        Direction::Forward => number,
        Direction::Back => -number,
    }
}

/// Sends one outside of the cut-over and gives the time that it took to arrive.
pub(super) async fn round_trip(moving: &mut Moving, direction: Direction) -> Result<Duration, Stop> {
    let number = new_number(direction);
    let began = Instant::now();
    let marker = objects::marker(moving.the_move.id, number);
    moving.publisher(direction).act(&marker).await?;
    arrival(moving, direction, number).await?;
    Ok(began.elapsed())
}

/// Waits until the marker is there. Not bounded: the caller is. Cancel safe.
pub(super) async fn arrival(moving: &mut Moving, direction: Direction, number: i64) -> Result<(), Stop> {
    let sql = objects::has_marker(moving.the_move.id, number);
    let enabled = format!(
        "SELECT coalesce((SELECT subenabled FROM pg_subscription WHERE subname = '{}'
                          AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())), false)",
        direction.name(moving.the_move.id)
    );
    let the_move = moving.the_move.clone();
    let mut polls = 0_u32;
    while !moving.subscriber(direction).value_again::<bool>(&sql).await? {
        polls += 1;
        if polls.is_multiple_of(64)
            && !moving.subscriber(direction).value::<bool>(&enabled).await?
            && !Box::pin(replication::revive(moving, direction)).await?
        {
            let shard = &moving.subscriber(direction).name;
            return Err(Stop::Abort(format!("replication has stopped with an error; the log of shard \"{shard}\" says why")));
        }
        if polls.is_multiple_of(64)
            && let Some(reason) = replication::excess(moving.publisher(direction), direction, &the_move).await?
        {
            return Err(match direction {
                Direction::Forward => Stop::Abort(reason),
                Direction::Back => Stop::Again(reason),
            });
        }
        sleep(if polls < POLLS_QUICK { POLL_INTERVAL_QUICK } else { POLL_INTERVAL }).await;
    }
    Ok(())
}

/// Statements may be held meanwhile.
const POLLS_QUICK: u32 = 100;
const POLL_INTERVAL_QUICK: Duration = Duration::from_millis(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
