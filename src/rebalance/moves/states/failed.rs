//! `failed`: a person has looked, and says that the move goes on. From where, the map's owner of the partitions says: the next state
//! looks at both sides again, and goes on, or fails again.

use serde_json::json;

use super::super::direction::Direction;
use super::super::moving::Moving;
use super::super::objects;
use super::super::servers;
use super::super::stop::Stop;
use super::super::terms;
use super::cutting_over;
use crate::shardmap::MoveState;

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    terms::begin(moving).await?;
    let map = moving.store.load().await?.snapshot;
    let owns = |shard: &str| {
        let shard = map.shard_by_name(shard).map(|shard| shard.id);
        let mut owners = moving.the_move.partitions.iter().map(|id| map.partition(*id).map(|(_, partition)| partition.shard));
        shard.is_some() && owners.all(|owner| owner == shard)
    };
    let (is_at_target, is_at_source) = (owns(&moving.the_move.target), owns(&moving.the_move.source));
    let next = match (is_at_target, is_at_source) {
        (true, _) if cutting_over::has_switched(moving, Direction::Back).await? => MoveState::Switched,
        (true, _) => {
            // Without it nothing says so there: the target's standby need not have heard of it.
            let incarnation = moving.store.epoch().await?.incarnation;
            let decided = objects::decide(moving.the_move.id, incarnation);
            moving.target.act(&decided).await?;
            // What a standby may lack is looked at by a person before it is deleted at the source.
            let is_certain =
                moving.the_move.remembers("unverified") || servers::may_lack(moving, Direction::Forward).await?.is_none();
            let is_cleaning = moving.the_move.remembers("finishing") && moving.the_move.remembers("opened") && is_certain;
            if is_cleaning { MoveState::CleaningUp } else { MoveState::Switched }
        }
        (false, true) => MoveState::Aborting,
        (false, false) => return Err(Stop::Failed("neither of both shards owns all of the partitions, by the map".to_owned())),
    };
    moving.advance(next, json!({})).await
}
