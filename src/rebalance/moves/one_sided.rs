//! What is done while one side of a move cannot be reached: the other side's slot must not fill its disk.
//!
//! A copy that is too far behind is given up with the move, a way back alone, and the move goes on without it. Slots of a move that
//! aborts are not needed any more. What the side that is away still has is taken away when it is back.

use super::direction::Direction;
use super::drive::Driver;
use super::site::Site;
use super::stop::Stop;
use super::{replication, reverse};
use crate::shardmap::{Move, MoveState, Term};

pub(super) async fn look(driver: &Driver, the_move: &Move, term: Term) -> Result<(), Stop> {
    match the_move.state {
        MoveState::Preparing | MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying => {
            if let Some(mut source) = open(driver, the_move, term, Direction::Forward).await?
                && let Some(reason) = replication::excess(&mut source, Direction::Forward, the_move).await?
                && the_move.state != MoveState::Preparing
            {
                return Err(Stop::Abort(reason));
            }
            reverse::look_without_source(driver, the_move, term).await
        }
        MoveState::Switched => reverse::look_without_source(driver, the_move, term).await,
        MoveState::Aborting => {
            if let Some(mut source) = open(driver, the_move, term, Direction::Forward).await? {
                replication::end_copy(&mut source, the_move).await?;
            }
            if let Some(mut target) = open(driver, the_move, term, Direction::Back).await? {
                replication::unpublish(&mut target, &Direction::Back.name(the_move.id)).await?;
            }
            Ok(())
        }
        MoveState::Planned
        | MoveState::CuttingOver
        | MoveState::CleaningUp
        | MoveState::Done
        | MoveState::Aborted
        | MoveState::Failed => Ok(()),
    }
}

/// Of a move that was withdrawn; and a driver that comes too late may have told shards its term that had forgotten the move.
pub(super) async fn forget(driver: &Driver, the_move: &Move, term: Term) {
    let sql = format!("DELETE FROM shardgate.term WHERE move_id = {}", the_move.id.0);
    for direction in [Direction::Forward, Direction::Back] {
        let forgotten = match open(driver, the_move, term, direction).await {
            Ok(Some(mut site)) => site.act(&sql).await.map_err(Stop::from),
            Ok(None) => Ok(()),
            Err(stop) => Err(stop),
        };
        if let Err(stop) = forgotten {
            tracing::debug!(move_id = the_move.id.0, ?stop, "a shard that had forgotten a move was told of it");
        }
    }
}

/// The shard that publishes this way. `None`: it is the one that is away.
pub(super) async fn open(driver: &Driver, the_move: &Move, term: Term, direction: Direction) -> Result<Option<Site>, Stop> {
    let map = driver.store.load().await?.snapshot;
    let Some(shard) = map.shard_by_name(direction.publisher(the_move)) else { return Ok(None) };
    Ok(Box::pin(Site::open(shard, the_move.id, term)).await.ok())
}
