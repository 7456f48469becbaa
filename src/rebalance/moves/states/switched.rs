//! `switched`: the target owns the set. Its gate is opened, the residue is the source's, statements go on. Then replication turns
//! round, and the source's copies follow the target until the move is finished or rolled back.
//!
//! ```text
//! target opened ─► forward replication ended ─► reverse began ─► settled ─┬─ finish, or its time has come ─► verified ─► `cleaning_up`
//!                                                                         └─ rollback ─► `cutting_over`, back ─► `aborting`
//! ```
//! A move that has settled is looked at now and then, and is nobody's in between.

use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::super::direction::Direction;
use super::super::estimate::Estimate;
use super::super::moving::Moving;
use super::super::objects;
use super::super::patience::{Patience, bounded_if_held};
use super::super::pause::{Pause, milliseconds};
use super::super::replication;
use super::super::reverse;
use super::super::servers;
use super::super::stop::Stop;
use super::super::verify;
use super::{catching_up, cutting_over, preparing};
use crate::shardmap::{Asked, CutOver, MoveState};

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let patience = Patience::if_held(&moving.the_move);
    if bounded_if_held(patience, Box::pin(cutting_over::has_switched(moving, Direction::Back))).await? {
        // The map has failed over to a server that has not heard of the rollback.
        return cutting_over::switch_again(moving, Direction::Back).await;
    }
    if !moving.the_move.remembers("opened") {
        let map = moving.cut_over().await?;
        bounded_if_held(patience, Box::pin(take_over(moving, Direction::Forward, map, None))).await?;
    } else if !moving.the_move.remembers("finishing") {
        put_back(moving, Direction::Forward).await?;
    }
    if !moving.the_move.remembers("replication_ended") {
        replication::end(moving, Direction::Forward).await?;
        moving.reach("replication_ended").await;
        moving.remember("replication_ended", json!(true)).await?;
    }
    if let Some(reason) = servers::changed(moving)
        && reverse::is_ready(&moving.the_move)
        && !moving.the_move.remembers("finishing")
    {
        reverse::lose(moving, &reason).await?;
    }
    let ends = moving.the_move.is_due || matches!(moving.the_move.asked, Some(Asked::Finish | Asked::FinishUnverified));
    if reverse::is_to_begin(&moving.the_move) && !ends {
        reverse::limit(moving).await?;
    }
    if reverse::is_to_begin(&moving.the_move) && !ends {
        reverse::begin(moving).await?;
    }
    if reverse::runs(&moving.the_move) {
        reverse::look(moving).await?;
    }
    if !moving.the_move.remembers("settled") {
        moving.remember("settled", json!(true)).await?;
    }
    match moving.the_move.asked {
        Some(Asked::Rollback) if reverse::runs(&moving.the_move) => roll_back(moving).await,
        Some(Asked::Finish) => finish(moving, true).await,
        Some(Asked::FinishUnverified) => finish(moving, false).await,
        _ if moving.the_move.is_due => finish(moving, true).await,
        _ => Err(Stop::Rest(waits_for(moving))),
    }
}

/// What the last acts of the pause have made, again: what a hold that did not lead back has left, and what a standby that was promoted had not
/// heard of.
pub(in super::super) async fn put_back(moving: &mut Moving, direction: Direction) -> Result<(), Stop> {
    let (id, group) = (moving.the_move.id, moving.group_id());
    // As long as it was behind it may not even have the gate.
    let gate = if servers::changed(moving).is_some() { objects::gate(id, false) } else { String::new() };
    let residue = objects::add_residue(id, group, &moving.keys.residue_values(&moving.group.key_types));
    moving.publisher(direction).act(&format!("{gate}{residue}{}", objects::close_gate_again(id))).await?;
    let incarnation = moving.store.epoch().await?.incarnation;
    let owned = format!("{gate}{}{}", objects::decide(id, incarnation), objects::keep_owner(id, group));
    moving.subscriber(direction).act(&owned).await?;
    Ok(())
}

fn waits_for(moving: &Moving) -> Option<String> {
    let the_move = &moving.the_move;
    let text = |what: &str| the_move.journal.get(what).and_then(serde_json::Value::as_str);
    if let Some(difference) = text("differs") {
        return Some(difference.to_owned());
    }
    let lost = text("reverse_lost").map(|reason| format!("it cannot be rolled back: {reason}"));
    let kept = the_move.options.keep.then(|| format!("waits for \"shard-rebalance finish {}\"", the_move.id.0));
    let both: Vec<String> = lost.into_iter().chain(kept).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// The last acts of the pause. The residue of the side that gives the set away is known before the other's ends: a row is never
/// counted twice.
pub(in super::super) async fn take_over(
    moving: &mut Moving,
    direction: Direction,
    mut map: CutOver,
    held: Option<(Pause, i64)>,
) -> Result<(), Stop> {
    let (id, group) = (moving.the_move.id, moving.group_id());
    let residue = objects::add_residue(id, group, &moving.keys.residue_values(&moving.group.key_types));
    moving.publisher(direction).act(&residue).await?;
    moving.reach_on_way(direction, "residue_at_source").await;
    let (mut pause, incarnation) = match held {
        Some((pause, incarnation)) => (Some(pause), incarnation),
        None => (None, moving.store.epoch().await?.incarnation),
    };
    passed(&mut pause, "residue");
    let decided = objects::decide(id, incarnation);
    let locked = if moving.has_planted("opened_by_truncate") { objects::close_gate(id) } else { String::new() };
    let opened = format!("{decided}{}{locked}{}", objects::remove_residue(id, group), objects::open_gate(id));
    moving.subscriber(direction).act(&opened).await?;
    moving.reach_on_way(direction, "target_opened").await;
    passed(&mut pause, "open");
    let length = pause.as_ref().map(Pause::length);
    let epoch = map.open(length).await?;
    passed(&mut pause, "online");
    moving.reach_on_way(direction, "online").await;
    let (opened, what) = match direction {
        Direction::Forward => ("opened", "partitions have moved"),
        Direction::Back => ("reopened", "partitions have moved back"),
    };
    moving.the_move.journal[opened] = json!(epoch.counter);
    let Some(pause) = pause else {
        tracing::info!(move_id = id.0, "{what}");
        return Ok(());
    };
    let expected_ms = moving.the_move.journal.get("expected_pause_ms").and_then(serde_json::Value::as_f64);
    tracing::info!(move_id = id.0, pause_ms = length.map(milliseconds), expected_ms, steps = %pause, "{what}");
    moving.remember("pause_steps", pause.to_json()).await
}

fn passed(pause: &mut Option<Pause>, step: &'static str) {
    if let Some(pause) = pause {
        pause.passed(step);
    }
}

/// As on the way forward both sides are compared first, once. A person may think better of it until the cut-over, which is given up and
/// tried again as there.
async fn roll_back(moving: &mut Moving) -> Result<(), Stop> {
    if !moving.the_move.remembers("compared") {
        moving.waits_for(Some("both sides are compared".to_owned()));
        compare(moving).await?;
        moving.remember("compared", json!(true)).await?;
    }
    let attempts = moving.the_move.journal.get("rollback_attempts").and_then(serde_json::Value::as_i64).unwrap_or_default();
    catching_up::back_off(i32::try_from(attempts).unwrap_or(i32::MAX)).await;
    let estimate = loop {
        if !is_still_asked(moving).await? {
            return Ok(());
        }
        // Between two looks at what is asked.
        match timeout(ASKED_INTERVAL, Box::pin(Estimate::measure(moving, Direction::Back))).await {
            Ok(estimate) => {
                let estimate = estimate?;
                let excess = estimate.excess(moving, Direction::Back);
                if excess.is_none() {
                    estimate.note(moving).await?;
                    break estimate;
                }
                moving.waits_for(excess);
            }
            Err(_) => moving.waits_for(Some("the copies at the source do not follow".to_owned())),
        }
        sleep(POLL_INTERVAL).await;
    };
    moving.waits_for(None);
    if preparing::shapes(moving, Direction::Back).await? != preparing::known_shapes(moving, Direction::Back) {
        return reverse::lose(moving, "a table was changed, truncated or rewritten at the target since the move was prepared")
            .await;
    }
    moving.none_is_silent().await?;
    if !is_still_asked(moving).await? {
        return Ok(());
    }
    Box::pin(cutting_over::run(moving, Direction::Back, &estimate)).await
}

async fn is_still_asked(moving: &Moving) -> Result<bool, Stop> {
    let now = moving.store.move_by_id(moving.the_move.id).await?;
    Ok(now.is_some_and(|now| now.asked == Some(Asked::Rollback)))
}

/// Both sides are compared once more while the source follows: what is deleted then is the same as what stays. Where they differ a
/// person decides.
async fn finish(moving: &mut Moving, verifies: bool) -> Result<(), Stop> {
    match servers::may_lack(moving, Direction::Forward).await? {
        Some(reason) if verifies => {
            moving.remember("differs", json!(reason)).await?;
            return Err(Stop::Rest(Some(reason)));
        }
        Some(_) => moving.remember("unverified", json!(true)).await?,
        None => {}
    }
    if reverse::runs(&moving.the_move) && !moving.the_move.remembers("finishing") {
        if verifies {
            compare(moving).await?;
        }
        moving.reach("verified_again").await;
        moving.remember("finishing", json!(true)).await?;
    }
    if !moving.has_planted("replication_left") {
        replication::end_all(moving).await?;
    }
    moving.reach("reverse_ended").await;
    moving.advance(MoveState::CleaningUp, json!({ "finishing": true, "reverse_ended": true })).await
}

async fn compare(moving: &mut Moving) -> Result<(), Stop> {
    match verify::compare(moving, Direction::Back).await {
        Ok(_) => Ok(()),
        Err(Stop::Differ(reason)) => {
            moving.remember("differs", json!(reason)).await?;
            Err(Stop::Rest(Some(reason)))
        }
        Err(stop) => Err(stop),
    }
}

const ASKED_INTERVAL: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
