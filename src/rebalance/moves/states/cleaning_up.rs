//! `cleaning_up`: the source's rows are deleted, and what was made for the move is taken away.
//!
//! Begins when no statement runs any more that was planned before the switch, and when nothing publishes the deletions to the
//! new owner.

use super::super::deletion;
use super::super::direction::Direction;
use super::super::moving::Moving;
use super::super::stop::Stop;
use super::super::{covering_views, gates, moved_table, objects, replication, servers};
use crate::shardmap::{Epoch, MoveState};

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    no_older_statement(moving, "opened").await?;
    if !moving.has_planted("replication_left") {
        replication::end_all(moving).await?;
    }
    confirm_owner(moving).await?;
    servers::confirm_primaries(moving).await?;
    if !moving.the_move.remembers("unverified")
        && let Some(reason) = servers::may_lack(moving, Direction::Forward).await?
    {
        return Err(Stop::Failed(format!("{reason}, after \"shard-rebalance resume {}\"", moving.the_move.id.0)));
    }
    moving.reach("cleaning").await;
    deletion::delete_rows(&mut moving.source, &mut moving.target, &moving.sharded).await?;
    moved_table::analyze(&moving.sharded, &mut moving.source).await?;
    let (id, group) = (moving.the_move.id, moving.group_id());
    moving.source.act(&objects::remove_residue(id, group)).await?;
    moving.target.act(&objects::remove_residue(id, group)).await?;
    moving.reach("cleaned").await;
    servers::confirm_primaries(moving).await?;
    Box::pin(covering_views::remove(moving)).await?;
    gates::remove(moving).await?;
    moving.reach("ungated").await;
    let ended = moving.store.end_move(&moving.actor, (id, moving.term), MoveState::Done, None).await;
    ended?;
    moving.the_move.state = MoveState::Done;
    forget(moving).await;
    Ok(())
}

/// None that was planned before the set went on at its new owner.
pub(in super::super) async fn no_older_statement(moving: &mut Moving, opened: &str) -> Result<(), Stop> {
    let opened = moving.the_move.journal.get(opened).and_then(serde_json::Value::as_i64);
    let now = moving.store.epoch().await?;
    let counter = opened.ok_or_else(|| Stop::Failed("the move does not know since when it has switched".to_owned()))?;
    moving.all_reached(Epoch { incarnation: now.incarnation, counter }).await
}

/// What is deleted is owned by the target: by the map, by what the target has been told, and by what the source has not been told.
async fn confirm_owner(moving: &mut Moving) -> Result<(), Stop> {
    let map = moving.store.load().await?.snapshot;
    let target = map.shard_by_name(&moving.the_move.target).map(|shard| shard.id);
    let mut partitions = moving.the_move.partitions.iter().map(|id| map.partition(*id).map(|(_, partition)| partition.shard));
    if target.is_none() || !partitions.all(|shard| shard == target) {
        return Err(Stop::Failed("the map does not say that the target owns the partitions".to_owned()));
    }
    let decided = format!("SELECT EXISTS (SELECT FROM shardgate.switched WHERE move_id = {})", moving.the_move.id.0);
    if !moving.target.value::<bool>(&decided).await? {
        return Err(Stop::Failed("the target does not know that it owns the partitions".to_owned()));
    }
    if moving.source.value::<bool>(&decided).await? {
        return Err(Stop::Failed("the source has been told that it owns the partitions again".to_owned()));
    }
    Ok(())
}

/// The last records, once the map knows that the move has ended. Rows of moves that have ended are read by nobody.
pub(in super::super) async fn forget(moving: &mut Moving) {
    let id = moving.the_move.id.0;
    let sql = format!("DELETE FROM shardgate.switched WHERE move_id = {id}; DELETE FROM shardgate.term WHERE move_id = {id}");
    for site in [&mut moving.source, &mut moving.target] {
        if let Err(error) = site.act(&sql).await {
            tracing::debug!(move_id = id, %error, "records of a move that has ended are left");
        }
    }
}
