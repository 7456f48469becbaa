//! `switched`: the target owns the set. Its gate is opened, the residue is the source's, statements go on, and replication ends.

use serde_json::json;
use tokio::time::Instant;

use super::super::moving::Moving;
use super::super::objects;
use super::super::replication;
use super::super::stop::Stop;
use crate::shardmap::{Asked, MoveState};

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    if moving.the_move.journal.get("opened").is_none() {
        take_over(moving, None).await?;
    }
    if moving.the_move.journal.get("replication_ended").is_none() {
        replication::end(moving).await?;
        moving.reach("replication_ended").await;
        moving.advance(MoveState::Switched, json!({ "replication_ended": true })).await?;
    }
    if moving.the_move.options.keep && moving.the_move.asked != Some(Asked::Finish) {
        return Err(Stop::Again(format!("waits for \"shard-rebalance finish {}\"", moving.the_move.id.0)));
    }
    moving.advance(MoveState::CleaningUp, json!({})).await
}

/// The last acts of the pause. The source's residue is known before the target's ends: a row is never counted twice.
pub(in super::super) async fn take_over(moving: &mut Moving, held_since: Option<Instant>) -> Result<(), Stop> {
    let (id, group) = (moving.the_move.id, moving.group_id());
    moving.source.act(&objects::add_residue(id, group, &moving.keys.residue_values())).await?;
    moving.reach("residue_at_source").await;
    let incarnation = moving.store.epoch().await?.incarnation;
    let decided =
        format!("INSERT INTO shardgate.switched (move_id, incarnation) VALUES ({}, {incarnation}) ON CONFLICT DO NOTHING;", id.0);
    moving.target.act(&format!("{decided}{}{}", objects::remove_residue(id, group), objects::open_gate(id))).await?;
    moving.reach("target_opened").await;
    let pause = held_since.map(|since| since.elapsed());
    let epoch = moving.store.open_move(&moving.actor, id, moving.term, pause).await?;
    moving.reach("online").await;
    moving.the_move.journal["opened"] = json!(epoch.counter);
    tracing::info!(move_id = id.0, pause_ms = pause.map(|pause| pause.as_millis() as u64), "partitions have moved");
    Ok(())
}
