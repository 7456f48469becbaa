//! `cutting_over`: statements of the set are held, and the set changes its owner.
//!
//! ```text
//! map: hold ─► every proxy has reached it ─► source: gate closed, marker ─► target: marker, durable ─► map: SWITCH ─► `switched`
//!                      └──────────────────────── out of time, or refused: gate opened ─► map: release
//! ```
//! Everything up to the switch ends within the budget or is undone. Where it is not known whether the map has switched, the map is
//! asked; nothing is undone before it has said no.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::super::drive::Driver;
use super::super::moving::Moving;
use super::super::site::Site;
use super::super::stop::Stop;
use super::super::{marker, objects};
use super::preparing::shapes_sql;
use super::{copying, switched};
use crate::catalog::quoted_literal;
use crate::shardmap::{Epoch, Move, MoveState, Term};

pub(in super::super) async fn run(moving: &mut Moving) -> Result<(), Stop> {
    let began = Instant::now();
    let budget = Duration::from_millis(moving.the_move.options.max_pause_ms);
    let held = moving.store.hold_move(&moving.actor, moving.the_move.id, moving.term).await?;
    moving.the_move.state = MoveState::CuttingOver;
    let outcome = timeout_at(began + budget, Box::pin(fence(moving, held, began + budget))).await;
    let refused = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(stop @ (Stop::Overtaken | Stop::Failed(_)))) => return Err(stop),
        Ok(Err(Stop::Again(reason) | Stop::Abort(reason) | Stop::Withdraw(reason))) => Some(reason),
        Err(_) => Some(format!("could not be cut over within {} ms", budget.as_millis())),
    };
    match refused {
        None => {
            switch(moving, held).await?;
            switched::take_over(moving, Some(began)).await
        }
        Some(reason) => {
            tracing::info!(move_id = moving.the_move.id.0, reason, "cut-over was given up, and is tried again");
            // What was cut off may still be under way on that connection: the next driver's term waits for it.
            Err(Stop::Again(reason))
        }
    }
}

/// The driver of the hold is gone, or has given it up, and the map that has held the set says that it has not switched: under a higher
/// term it will not. So the target is not asked: it may be what was lost, and statements would wait for it. `false`: another map has
/// held it, which may have heard of a switch.
pub(in super::super) async fn release(driver: &Driver, (the_move, term): (&Move, Term), reason: &str) -> Result<bool, Stop> {
    let (store, id) = (&driver.store, the_move.id);
    if store.held_in(id).await? != Some(store.epoch().await?.incarnation) {
        return Ok(false);
    }
    let map = store.load().await?.snapshot;
    let source = map.shard_by_name(&the_move.source).ok_or_else(|| Stop::Again("the source is no shard any more".to_owned()))?;
    let mut source = Box::pin(Site::open(source, id, term)).await?;
    source.send(&objects::take_term(id, term.0)).await?;
    source.act(&objects::open_gate(id)).await?;
    store.release_move(&driver.actor, id, term, reason).await?;
    Ok(true)
}

/// Of a map that has failed over since the hold: back, unless the target knows that the set has switched.
pub(in super::super) async fn recover(moving: &mut Moving, reason: &str) -> Result<(), Stop> {
    let id = moving.the_move.id;
    if has_switched(moving).await? {
        // The map has forgotten it: it has failed over to a server that had not heard of the switch.
        let incarnation = moving.store.epoch().await?.incarnation;
        switch(moving, Epoch { incarnation, counter: 0 }).await?;
        return switched::take_over(moving, None).await;
    }
    moving.source.act(&objects::open_gate(id)).await?;
    moving.store.release_move(&moving.actor, id, moving.term, reason).await?;
    moving.the_move.state = MoveState::CatchingUp;
    Ok(())
}

/// The target has been told that it owns the set: nothing goes back.
pub(in super::super) async fn has_switched(moving: &mut Moving) -> Result<bool, Stop> {
    let decided = format!("SELECT EXISTS (SELECT FROM shardgate.switched WHERE move_id = {})", moving.the_move.id.0);
    Ok(moving.target.value(&decided).await?)
}

/// Of a map that has forgotten that it was held.
pub(in super::super) async fn switch_again(moving: &mut Moving) -> Result<(), Stop> {
    let held = moving.store.hold_move(&moving.actor, moving.the_move.id, moving.term).await?;
    moving.the_move.state = MoveState::CuttingOver;
    switch(moving, held).await?;
    switched::take_over(moving, None).await
}

async fn fence(moving: &mut Moving, epoch: Epoch, deadline: Instant) -> Result<(), Stop> {
    moving.reach("held").await;
    let incarnations = (moving.source.incarnation().await?, moving.target.incarnation().await?);
    all_drained(moving, epoch).await?;
    moving.reach("drained").await;
    let number = close(moving, deadline).await?;
    moving.reach("fenced").await;
    marker::arrival(moving, number, marker::POLL_INTERVAL_HELD).await?;
    if !copying::copied(moving).await?.is_complete(moving.tables.len()) {
        return Err(Stop::Again("a table of the copy does not follow".to_owned()));
    }
    // Visible is not durable: this commit flushes all that replication has applied before it.
    moving.target.act("SELECT 1").await?;
    moving.reach("durable").await;
    if incarnations != (moving.source.incarnation().await?, moving.target.incarnation().await?) {
        return Err(Stop::Again("a server was restarted".to_owned()));
    }
    Ok(())
}

/// As [`Moving::all_reached`], at a quicker pace; and no transaction is left that passes the hold.
async fn all_drained(moving: &Moving, epoch: Epoch) -> Result<(), Stop> {
    while !moving.store.proxies_not_drained(epoch, &moving.both()).await?.behind.is_empty() {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// Waits for every writer that is in, refuses the others, and writes the marker behind them, in one transaction. Gives the marker.
async fn close(moving: &mut Moving, deadline: Instant) -> Result<i64, Stop> {
    let id = moving.the_move.id;
    let number = marker::new_number();
    let shapes = moving.the_move.journal.get("shapes").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let check = format!(
        "DO $check$ BEGIN IF ({}) IS DISTINCT FROM {} THEN RAISE EXCEPTION USING ERRCODE = '55000', \
         MESSAGE = 'a table of the move was changed, truncated or rewritten since it was prepared'; END IF; END $check$;",
        shapes_sql(moving),
        quoted_literal(&shapes)
    );
    let text = format!("{}{check}{}", objects::close_gate(id), objects::marker(id, number));
    let patience = deadline.saturating_duration_since(Instant::now());
    moving.source.act_within(&text, patience).await?;
    Ok(number)
}

/// An outcome that is not known is asked for.
async fn switch(moving: &mut Moving, held: Epoch) -> Result<(), Stop> {
    let id = moving.the_move.id;
    let switched = moving.store.switch_move(&moving.actor, id, moving.term, held).await;
    if let Err(error) = switched {
        let now = moving.store.move_by_id(id).await?;
        if !now.is_some_and(|now| now.state.has_switched()) {
            return Err(error.into());
        }
    }
    moving.the_move.state = MoveState::Switched;
    moving.reach("switched").await;
    Ok(())
}
