//! `cutting_over`: statements of the set are held, and the set changes its owner.
//!
//! ```text
//! map: hold ─► every proxy has reached it ─► source: gate closed, marker ─► target: marker, durable ─► map: SWITCH ─► `switched`
//!                      └──────────────────────── out of time, or refused: gate opened ─► map: release
//! ```
//! A rollback is the same with source and target exchanged, from `switched` to `aborting`: the owner publishes, the other subscribes.
//! Everything up to the switch ends within the budget, less what the steps behind it are expected to take, or is undone. Where it is not known whether the map has switched, the map is
//! asked; nothing is undone before it has said no.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::super::direction::Direction;
use super::super::drive::Driver;
use super::super::estimate::Estimate;
use super::super::moving::{Moving, open};
use super::super::patience::{Patience, bounded_if_held};
use super::super::pause::Pause;
use super::super::site::INCARNATION;
use super::super::stop::Stop;
use super::super::{marker, objects, reverse, servers, terms};
use super::preparing::{known_shapes, shapes_sql};
use super::{copying, switched};
use crate::catalog::quoted_literal;
use crate::shardmap::{CutOver, Epoch, Move, MoveState, Term};

pub(in super::super) async fn run(moving: &mut Moving, direction: Direction, estimate: &Estimate) -> Result<(), Stop> {
    let budget = Duration::from_millis(moving.the_move.options.max_pause_ms);
    moving.none_is_split().await?;
    let before = Box::pin(Before::read(moving, direction)).await?;
    let mut map = moving.store.rehearsed_cut_over(&moving.actor, (moving.the_move.id, moving.term), moving.servers()).await?;
    let mut pause = Pause::begin();
    let deadline = pause.began() + estimate.before_switch(budget);
    let held = map.hold().await?;
    held_for(moving, direction);
    pause.passed("hold");
    let outcome = timeout_at(deadline, Box::pin(fence(moving, direction, (&mut map, held, &before), (&mut pause, deadline)))).await;
    let refused = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(stop @ (Stop::Overtaken | Stop::Failed(_) | Stop::Rest(_)))) => return Err(stop),
        Ok(Err(Stop::Again(reason) | Stop::Slow(reason) | Stop::Abort(reason) | Stop::Withdraw(reason) | Stop::Differ(reason))) => {
            Some(reason)
        }
        Err(_) => Some(format!("could not be cut over within {} ms", budget.as_millis())),
    };
    match refused {
        None => {
            switch(moving, direction, &mut map, held).await?;
            pause.passed("switch");
            let patience = Patience::if_held(&moving.the_move);
            let opening = Box::pin(switched::take_over(moving, direction, map, Some((pause, held.incarnation))));
            bounded_if_held(patience, opening).await
        }
        Some(reason) => {
            tracing::info!(move_id = moving.the_move.id.0, reason, steps = %pause, "cut-over was given up, and is tried again");
            // What was cut off may still be under way on that connection: the next driver's term waits for it.
            Err(Stop::Again(reason))
        }
    }
}

/// The driver of the hold is gone, or has given it up, and the map that has held the set says that it has not switched: under a higher
/// term it will not. So the target is not asked: it may be what was lost, and statements would wait for it. `false`: another map has
/// held it, which may have heard of a switch. The owner alone is asked.
pub(in super::super) async fn release(driver: &Driver, (the_move, term): (&Move, Term), reason: &str) -> Result<bool, Stop> {
    let (store, id) = (&driver.store, the_move.id);
    // It may have been held only because the other side is known to have decided.
    if the_move.remembers(DECIDED_ELSEWHERE) || store.held_in(id).await? != Some(store.epoch().await?.incarnation) {
        return Ok(false);
    }
    let map = store.load().await?.snapshot;
    let owner = Direction::of(the_move).publisher(the_move);
    let owner = map.shard_by_name(owner).ok_or_else(|| Stop::Again(format!("\"{owner}\" is no shard any more")))?;
    let mut owner = Box::pin(open(owner, (id, term), Patience::of(the_move))).await?;
    terms::require_newest(store, (id, term), owner.take_term().await?).await?;
    owner.act(&objects::keep_owner(id, the_move.group.0)).await?;
    store.release_move(&driver.actor, id, term, reason).await?;
    Ok(true)
}

/// Of a map that has failed over since the hold: released, unless the new owner knows that the set has switched.
pub(in super::super) async fn recover(moving: &mut Moving, reason: &str) -> Result<(), Stop> {
    let (id, direction) = (moving.the_move.id, Direction::of(&moving.the_move));
    if has_switched(moving, direction).await? {
        // The map has forgotten it: it has failed over to a server that had not heard of the switch, and may know an earlier receipt.
        servers::forget_receipt(moving, direction).await?;
        let incarnation = moving.store.epoch().await?.incarnation;
        let mut map = moving.cut_over().await?;
        return switch(moving, direction, &mut map, Epoch { incarnation, counter: 0 }).await;
    }
    let kept = objects::keep_owner(id, moving.group_id());
    moving.publisher(direction).act(&kept).await?;
    moving.store.release_move(&moving.actor, id, moving.term, reason).await?;
    moving.the_move.state = state_before(direction);
    moving.the_move.is_rollback = false;
    Ok(())
}

fn state_before(direction: Direction) -> MoveState {
    match direction {
        Direction::Forward => MoveState::CatchingUp,
        Direction::Back => MoveState::Switched,
    }
}

fn held_for(moving: &mut Moving, direction: Direction) {
    moving.the_move.state = MoveState::CuttingOver;
    moving.the_move.is_rollback = direction == Direction::Back;
}

/// The new owner has been told that it owns the set: nothing leads to the old one. Also where the first act is yet to come.
pub(in super::super) async fn has_switched(moving: &mut Moving, direction: Direction) -> Result<bool, Stop> {
    if moving.has_planted("switch_forgotten") {
        return Ok(false);
    }
    let decided = format!("SELECT EXISTS (SELECT FROM shardgate.switched WHERE move_id = {})", moving.the_move.id.0);
    let site = moving.subscriber(direction);
    let can_know = site.value::<bool>("SELECT pg_catalog.to_regclass('shardgate.switched') IS NOT NULL").await?;
    Ok(can_know && site.value::<bool>(&decided).await?)
}

/// Of a map that has forgotten that it was held.
pub(in super::super) async fn switch_again(moving: &mut Moving, direction: Direction) -> Result<(), Stop> {
    moving.remember(DECIDED_ELSEWHERE, json!(true)).await?;
    servers::forget_receipt(moving, direction).await?;
    let mut map = moving.cut_over().await?;
    let held = map.hold().await?;
    held_for(moving, direction);
    switch(moving, direction, &mut map, held).await
}

/// In the journal: the map has forgotten a switch of which the new owner knows.
const DECIDED_ELSEWHERE: &str = "decided_elsewhere";

/// What both servers were before statements are held, which a cut-over must not find changed.
struct Before {
    publisher: String,
    subscriber: String,
    /// Written when everything has arrived.
    receipt: i64,
}

impl Before {
    /// With what can be done before the pause, so that there is less to do in it.
    async fn read(moving: &mut Moving, direction: Direction) -> Result<Self, Stop> {
        if advances_way_back(moving, direction) {
            reverse::advance_most(moving).await;
        }
        let receipt = servers::new_receipt(moving, direction).await?;
        let (publisher, subscriber) = moving.sides(direction);
        let (publisher, subscriber) = tokio::try_join!(publisher.incarnation(), subscriber.incarnation())?;
        Ok(Self { publisher, subscriber, receipt })
    }
}

fn advances_way_back(moving: &Moving, direction: Direction) -> bool {
    direction == Direction::Forward && reverse::is_ready(&moving.the_move)
}

async fn fence(
    moving: &mut Moving,
    direction: Direction,
    (map, held, before): (&mut CutOver, Epoch, &Before),
    (pause, deadline): (&mut Pause, Instant),
) -> Result<(), Stop> {
    moving.reach_on_way(direction, "held").await;
    all_drained(moving, map, held).await?;
    pause.passed("drain");
    moving.reach_on_way(direction, "drained").await;
    let number = close(moving, direction, deadline).await?;
    pause.passed("close");
    moving.reach_on_way(direction, "fenced").await;
    if !moving.has_planted("switch_before_marker") {
        marker::arrival(moving, direction, number).await?;
    }
    pause.passed("marker");
    make_durable(moving, direction, before).await?;
    pause.passed("durable");
    moving.reach_on_way(direction, "durable").await;
    Ok(())
}

/// Visible is not durable: the subscriber's first commit flushes all that replication has applied before it. Only behind that does the
/// slot of the way back advance, and is it known that no crash has taken anything.
async fn make_durable(moving: &mut Moving, direction: Direction, before: &Before) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let unchanged = |known: &str| objects::require(INCARNATION, &quoted_literal(known), "a server was restarted");
    let is_complete = copying::require_complete(id, direction, moving.tables.len());
    let advance = if advances_way_back(moving, direction) { reverse::advance_to_flushed(id) } else { String::new() };
    let flushed = if moving.has_planted("not_durable") { "SET LOCAL synchronous_commit = off;" } else { "" };
    let is_complete = format!("{flushed}{is_complete}");
    let durable = format!("{flushed}{advance}{}{}", unchanged(&before.subscriber), objects::marker(id, before.receipt));
    let (publisher, subscriber) = moving.sides(direction);
    // The marker has arrived: all that the publisher has to be is the one that has sent it.
    let publisher_unchanged = unchanged(&before.publisher);
    tokio::try_join!(subscriber.act_twice(&is_complete, &durable), publisher.send(&publisher_unchanged))?;
    Ok(())
}

/// As [`Moving::all_reached`], at a quicker pace; and no transaction is left that passes the hold.
async fn all_drained(moving: &Moving, map: &mut CutOver, held: Epoch) -> Result<(), Stop> {
    while !map.not_drained(held, &moving.both()).await?.behind.is_empty() {
        tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits for every writer that is in, refuses the others, and writes the marker behind them, in one transaction. Gives the marker.
async fn close(moving: &mut Moving, direction: Direction, deadline: Instant) -> Result<i64, Stop> {
    let id = moving.the_move.id;
    let number = marker::new_number(direction);
    let check = objects::require(
        &shapes_sql(moving),
        &quoted_literal(known_shapes(moving, direction)),
        "a table of the move was changed, truncated or rewritten since it was prepared",
    );
    let closed = if moving.has_planted("gate_is_a_row") { objects::delete_gate_row(id) } else { objects::close_gate(id) };
    let text = format!("{closed}{check}{}", objects::marker(id, number));
    let patience = deadline.saturating_duration_since(Instant::now());
    moving.publisher(direction).act_within(&text, patience).await?;
    Ok(number)
}

/// An outcome that is not known is asked for.
async fn switch(moving: &mut Moving, direction: Direction, map: &mut CutOver, held: Epoch) -> Result<(), Stop> {
    let id = moving.the_move.id;
    if let Err(error) = map.switch(held).await {
        let now = moving.store.move_by_id(id).await?;
        if !now.is_some_and(|now| is_switched(&now, direction)) {
            return Err(error.into());
        }
    }
    moving.the_move.state = match direction {
        Direction::Forward => MoveState::Switched,
        Direction::Back => MoveState::Aborting,
    };
    moving.reach_on_way(direction, "switched").await;
    Ok(())
}

fn is_switched(now: &Move, direction: Direction) -> bool {
    match direction {
        Direction::Forward => now.state.has_switched(),
        Direction::Back => now.is_rollback && now.state.has_gone_back(),
    }
}

/// Statements are held meanwhile.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
