//! `aborting`: the set has not switched, or was rolled back, and what was made for the move is taken away, its copies last.
//!
//! After a rollback statements that were planned before it may still read the target's rows, so they are waited for.

use serde_json::json;

use super::super::deletion;
use super::super::direction::Direction;
use super::super::moving::Moving;
use super::super::patience::{Patience, bounded_if_held};
use super::super::stop::Stop;
use super::super::{covering_views, gates, objects, replication, servers, terms};
use super::cleaning_up::{forget, no_older_statement};
use super::{cutting_over, switched};
use crate::shardmap::{Move, MoveState};

/// Why it is aborted. What comes in its way later is no reason.
pub(in super::super) fn to_remember(reason: &str) -> serde_json::Value {
    json!({ REASON: reason })
}

fn reason(the_move: &Move) -> String {
    if the_move.is_rollback {
        return "rolled back".to_owned();
    }
    let remembered = the_move.journal.get(REASON).and_then(serde_json::Value::as_str);
    remembered.or(the_move.error.as_deref()).unwrap_or("aborted").to_owned()
}

/// What is in the way of a move, shown behind the reason for which it is aborted.
pub(in super::super) fn told(the_move: &Move, trouble: String) -> String {
    let reason = the_move.journal.get(REASON).and_then(serde_json::Value::as_str);
    match reason.filter(|_| the_move.state == MoveState::Aborting) {
        Some(reason) => format!("{reason}; the abort goes on when this is over: {trouble}"),
        None => trouble,
    }
}

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let (id, group) = (moving.the_move.id, moving.group_id());
    let patience = Patience::if_held(&moving.the_move);
    // It may have come no further than its announcement.
    bounded_if_held(patience, Box::pin(terms::begin(moving))).await?;
    if !moving.the_move.is_rollback && cutting_over::has_switched(moving, Direction::Forward).await? {
        // The map has failed over to a server that has not heard of the cut-over. Nothing was taken away yet.
        return Box::pin(cutting_over::switch_again(moving, Direction::Forward)).await;
    }
    if moving.the_move.is_rollback {
        if !moving.the_move.remembers("reopened") {
            let map = moving.cut_over().await?;
            bounded_if_held(patience, Box::pin(switched::take_over(moving, Direction::Back, map, None))).await?;
        } else if servers::changed(moving).is_some() {
            switched::put_back(moving, Direction::Back).await?;
        }
        no_older_statement(moving, "reopened").await?;
    }
    replication::end_all(moving).await?;
    moving.reach("abort_begun").await;
    if servers::changed(moving).is_some() && moving.the_move.remembers("shapes") {
        // A standby need not have heard that the copies are to be left out.
        let residue = objects::add_residue(id, group, &moving.keys.residue_values(&moving.group.key_types));
        moving.target.act(&residue).await?;
    }
    let has_residue = format!("SELECT EXISTS (SELECT FROM shardgate.residue WHERE group_id = {group} AND move_id = {})", id.0);
    if moving.target.value::<bool>(&has_residue).await? {
        confirm_owner(moving).await?;
        deletion::delete_rows(&mut moving.target, &mut moving.source, &moving.sharded).await?;
        moving.target.act(&objects::remove_residue(id, group)).await?;
    }
    moving.source.act(&objects::remove_residue(id, group)).await?;
    moving.reach("abort_cleaned").await;
    servers::confirm_primaries(moving).await?;
    Box::pin(covering_views::remove(moving)).await?;
    gates::remove(moving).await?;
    moving.store.end_move(&moving.actor, (id, moving.term), MoveState::Aborted, Some(&reason(&moving.the_move))).await?;
    moving.the_move.state = MoveState::Aborted;
    forget(moving).await;
    Ok(())
}

/// In the journal.
const REASON: &str = "abort_reason";

/// After a rollback the target may have rows that its owner lacks.
async fn confirm_owner(moving: &mut Moving) -> Result<(), Stop> {
    servers::confirm_primaries(moving).await?;
    if moving.the_move.is_rollback
        && !moving.the_move.remembers("rolled_back_unverified")
        && let Some(reason) = servers::may_lack(moving, Direction::Back).await?
    {
        return Err(Stop::Failed(reason));
    }
    Ok(())
}
