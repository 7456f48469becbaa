//! Drives moves in a proxy: those that nobody drives, planned by SQL or left by a driver that is gone.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::drive::{Driver, Turn};
use super::fencing;
use crate::shardmap::{Move, MoveId};

/// Runs until cancelled; what it drives then is left to others. `watch`: told again and again which moves have not ended.
pub async fn keep_driving(driver: Driver, watch: impl Fn(&[Move]), cancel: CancellationToken) {
    let mut driven: BTreeSet<MoveId> = BTreeSet::new();
    let mut driving: JoinSet<MoveId> = JoinSet::new();
    // By itself: a shard that does not answer must not keep moves of others waiting.
    let mut shutting_out = Box::pin(keep_shutting_out(&driver));
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            never = &mut shutting_out => match never {},
            Some(ended) = driving.join_next() => {
                match ended {
                    Ok(id) => drop(driven.remove(&id)),
                    Err(error) => {
                        tracing::error!(%error, "driving a move has panicked");
                        // Which one it was is not known: all that still run are found again by their terms.
                        driven.clear();
                    }
                }
                continue;
            }
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let Ok(moves) = driver.store.running_moves().await else { continue };
        watch(&moves);
        let is_mine = |the_move: &Move| !the_move.rests && !driven.contains(&the_move.id);
        for the_move in moves.into_iter().filter(is_mine).collect::<Vec<_>>() {
            driven.insert(the_move.id);
            driving.spawn(one_turn(driver.clone(), the_move));
        }
    }
}

async fn keep_shutting_out(driver: &Driver) -> Infallible {
    loop {
        if let Err(error) = fencing::finish_all(&driver.store).await {
            tracing::debug!(%error, "which proxies are shut out could not be read");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// A turn at a time, so that a move which another one drives costs a look now and then.
async fn one_turn(driver: Driver, the_move: Move) -> MoveId {
    let id = the_move.id;
    match Box::pin(driver.turn(the_move)).await {
        Ok(Turn::WentOn) => {}
        Ok(Turn::Waits | Turn::Taken | Turn::Over) => tokio::time::sleep(LOOK_INTERVAL).await,
        Err(error) => tracing::warn!(move_id = id.0, %error, "a move cannot be driven now"),
    }
    id
}

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
