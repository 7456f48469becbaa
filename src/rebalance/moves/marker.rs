//! Markers: a row that is written at the source and waited for at the target. Replication applies in the order of commits, so its
//! arrival proves that of everything before it, once every table of the subscription follows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

use super::moving::Moving;
use super::objects;
use super::stop::Stop;

/// Never used again, whichever driver uses it.
pub(super) fn new_number() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Sends one outside of the cut-over and gives the time that it took to arrive.
pub(super) async fn round_trip(moving: &mut Moving) -> Result<Duration, Stop> {
    let number = new_number();
    let began = Instant::now();
    moving.source.act(&objects::marker(moving.the_move.id, number)).await?;
    arrival(moving, number, POLL_INTERVAL_SLOW).await?;
    Ok(began.elapsed())
}

/// Waits until the marker is there. Not bounded: the caller is. Cancel safe.
pub(super) async fn arrival(moving: &mut Moving, number: i64, poll: Duration) -> Result<(), Stop> {
    let sql =
        format!("SELECT EXISTS (SELECT FROM shardgate.marker WHERE move_id = {} AND number = {number})", moving.the_move.id.0);
    let enabled = format!(
        "SELECT coalesce((SELECT subenabled FROM pg_subscription WHERE subname = '{}'
                          AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())), false)",
        objects::name(moving.the_move.id)
    );
    let mut polls = 0_u32;
    while !moving.target.value::<bool>(&sql).await? {
        polls += 1;
        if polls.is_multiple_of(64) && !moving.target.value::<bool>(&enabled).await? {
            return Err(Stop::Abort("replication has stopped with an error; the log of the target's server says why".to_owned()));
        }
        sleep(poll).await;
    }
    Ok(())
}

const POLL_INTERVAL_SLOW: Duration = Duration::from_millis(10);
/// While statements are held.
pub(super) const POLL_INTERVAL_HELD: Duration = Duration::from_millis(1);
