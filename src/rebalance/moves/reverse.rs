//! Reverse replication: after the switch the copies at the source follow what is written at the target, so that the move can be
//! rolled back until it is finished.
//!
//! ```text
//! preparing: publication and slot at the target ─► … ─► cut-over: slot advanced ─► switch ─► subscription at the source ─► finish, rollback
//!                       └─ advanced every few seconds: keeps no WAL ─┘
//! ```
//! The slot is made early, since that waits for every transaction that writes at the target. Where the subscription begins is told by
//! the place of the WAL that the target has stored with its decision: what came from the source before it is not sent back, even
//! where a crash has put the slot back. A slot that keeps too much WAL, or whose subscription has stopped, is dropped: the move goes
//! on, and can't be rolled back any more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::direction::Direction;
use super::drive::Driver;
use super::moving::Moving;
use super::site::Site;
use super::states::copying;
use super::stop::Stop;
use super::{one_sided, replication};
use crate::shardmap::{Move, MoveId, MoveState, Term};

/// It was made, and is not known to be lost.
pub(super) fn is_ready(the_move: &Move) -> bool {
    the_move.remembers("reverse_prepared") && !the_move.remembers("reverse_lost")
}

/// It was made, and the source does not follow yet, as far as is known.
pub(super) fn is_to_begin(the_move: &Move) -> bool {
    is_ready(the_move) && !the_move.remembers(RUNS)
}

/// The source follows the target.
pub(super) fn runs(the_move: &Move) -> bool {
    is_ready(the_move) && the_move.remembers(RUNS) && !the_move.remembers("reverse_ended")
}

/// The source follows the target, or may: it was about to be made to.
pub(super) fn has_begun(the_move: &Move) -> bool {
    the_move.remembers(BEGAN)
}

/// While nobody reads the slot: keeps it from keeping WAL, or gives it up. Runs beside the states before the cut-over; `quiet` is
/// locked while it must not. Ends only by being dropped.
pub(super) async fn keep_advanced(driver: &Driver, (the_move, term): (&Move, Term), quiet: Arc<Mutex<()>>) -> Infallible {
    let is_needed = matches!(the_move.state, MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying);
    if !is_needed || !is_ready(the_move) {
        return std::future::pending().await;
    }
    loop {
        sleep(ADVANCE_INTERVAL).await;
        let _advancing = quiet.lock().await;
        if let Err(stop) = Box::pin(advance_or_give_up(driver, the_move, term)).await {
            tracing::debug!(move_id = the_move.id.0, ?stop, "the slot of the way back was not advanced");
        }
    }
}

async fn advance_or_give_up(driver: &Driver, the_move: &Move, term: Term) -> Result<(), Stop> {
    let Some(mut target) = one_sided::open(driver, the_move, term, Direction::Back).await? else { return Ok(()) };
    let advanced = target.act(&advance_before_switch(the_move.id)).await;
    match replication::excess(&mut target, Direction::Back, the_move).await? {
        Some(reason) => give_up(driver, (the_move, term), &mut target, &reason).await,
        None => Ok(advanced?),
    }
}

/// Never past what was written since the switch, however late this arrives.
fn advance_before_switch(id: MoveId) -> String {
    format!(
        "DO $advance$ BEGIN \
             IF NOT EXISTS (SELECT FROM shardgate.switched WHERE move_id = {}) THEN \
                 PERFORM pg_catalog.pg_replication_slot_advance(s.slot_name, pg_catalog.pg_current_wal_flush_lsn()) \
                 FROM pg_catalog.pg_replication_slots s \
                 WHERE s.slot_name = '{}' AND s.confirmed_flush_lsn < pg_catalog.pg_current_wal_flush_lsn(); \
             END IF; END $advance$",
        id.0,
        Direction::Back.name(id)
    )
}

/// Right before the pause, so that there is little left to read in it. Called where [`keep_advanced`] is quiet.
pub(super) async fn advance_most(moving: &mut Moving) {
    let advance = advance_before_switch(moving.the_move.id);
    if let Err(error) = moving.target.act(&advance).await {
        tracing::debug!(move_id = moving.the_move.id.0, %error, "the slot of the way back was not advanced before the pause");
    }
}

/// The same where the source cannot be reached, also after the switch, when the slot is not advanced any more.
pub(super) async fn look_without_source(driver: &Driver, the_move: &Move, term: Term) -> Result<(), Stop> {
    if !is_ready(the_move) || the_move.remembers("reverse_ended") {
        return Ok(());
    }
    if the_move.state != MoveState::Switched {
        return advance_or_give_up(driver, the_move, term).await;
    }
    let Some(mut target) = one_sided::open(driver, the_move, term, Direction::Back).await? else { return Ok(()) };
    match replication::excess(&mut target, Direction::Back, the_move).await? {
        Some(reason) => give_up(driver, (the_move, term), &mut target, &reason).await,
        None => Ok(()),
    }
}

async fn give_up(driver: &Driver, (the_move, term): (&Move, Term), target: &mut Site, reason: &str) -> Result<(), Stop> {
    tracing::warn!(move_id = the_move.id.0, reason, "a move cannot be rolled back any more");
    let (id, state) = (the_move.id, the_move.state);
    driver.store.advance_move((id, term), state, state, json!({ "reverse_lost": reason }), Some(reason)).await?;
    replication::unpublish(target, &Direction::Back.name(id)).await
}

/// In the pause, with everything durable at the target: nothing that has come from the source will be sent back. Never after a switch,
/// by a driver that was frozen: what was written since would be left out.
pub(super) fn advance_to_flushed(id: MoveId) -> String {
    format!(
        "DO $advance$ BEGIN \
             IF EXISTS (SELECT FROM shardgate.switched WHERE move_id = {}) THEN \
                 RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the target owns the set already'; \
             END IF; \
             IF (WITH flushed AS MATERIALIZED (SELECT pg_catalog.pg_current_wal_flush_lsn() AS lsn) \
                 SELECT advanced.end_lsn < flushed.lsn \
                 FROM flushed CROSS JOIN LATERAL pg_catalog.pg_replication_slot_advance('{}', flushed.lsn) advanced) THEN \
                 RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the slot of the way back did not advance'; \
             END IF; END $advance$;",
        id.0,
        Direction::Back.name(id)
    )
}

/// After the switch and the end of forward replication. That it begins the map knows before the source has anything of it: from then on
/// the source may have what the target acknowledged later.
pub(super) async fn begin(moving: &mut Moving) -> Result<(), Stop> {
    moving.remember(BEGAN, json!(true)).await?;
    let id = moving.the_move.id;
    let name = Direction::Back.name(id);
    let here = format!("s.subname = '{name}' AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())");
    let exists = format!("SELECT EXISTS (SELECT FROM pg_subscription s WHERE {here})");
    if !moving.source.value::<bool>(&exists).await? {
        let subscription =
            super::objects::subscription(id, Direction::Back, moving.connection(Direction::Back), moving.source.version);
        moving.source.act(&subscription).await?;
    }
    moving.reach("reverse_subscribed").await;
    let switched_at = format!("SELECT lsn::text FROM shardgate.switched WHERE move_id = {} AND lsn IS NOT NULL", id.0);
    let lsn: String = moving.target.value(&switched_at).await?;
    // Two acts: an origin is advanced at once, also where its subscription is rolled back.
    let origin = format!(
        "DO $origin$ BEGIN \
             PERFORM pg_replication_origin_advance('pg_' || s.oid, '{lsn}') FROM pg_subscription s \
             WHERE {here} AND NOT s.subenabled \
               AND coalesce(pg_replication_origin_progress('pg_' || s.oid, true), '0/0') < '{lsn}'::pg_lsn; \
         END $origin$"
    );
    moving.source.act(&origin).await?;
    moving.source.act(&format!("ALTER SUBSCRIPTION {name} ENABLE")).await?;
    moving.reach("reverse_enabled").await;
    moving.remember(RUNS, json!(true)).await
}

/// Looks after one that runs. Where it has stopped for good it is taken away, and the reason remembered.
pub(super) async fn look(moving: &mut Moving) -> Result<(), Stop> {
    let the_move = moving.the_move.clone();
    let mut reason = replication::excess(&mut moving.target, Direction::Back, &the_move).await?;
    if reason.is_none()
        && !copying::followed(moving, Direction::Back).await?.is_complete(moving.tables.len())
        && !replication::revive(moving, Direction::Back).await?
    {
        let shard = &moving.source.name;
        reason = Some(format!("replication to shard \"{shard}\" has stopped with an error, and the log of its server says why"));
    }
    match reason {
        Some(reason) => lose(moving, &reason).await,
        None => Ok(()),
    }
}

/// The same before it has begun, which may take long.
pub(super) async fn limit(moving: &mut Moving) -> Result<(), Stop> {
    match replication::excess(&mut moving.target, Direction::Back, &moving.the_move).await? {
        Some(reason) => lose(moving, &reason).await,
        None => Ok(()),
    }
}

/// The way back is taken away; the move goes on without it.
pub(super) async fn lose(moving: &mut Moving, reason: &str) -> Result<(), Stop> {
    tracing::warn!(move_id = moving.the_move.id.0, reason, "a move cannot be rolled back any more");
    moving.remember("reverse_lost", json!(reason)).await?;
    replication::end(moving, Direction::Back).await
}

/// In the journal.
const BEGAN: &str = "reverse_began";
const RUNS: &str = "reverse_runs";
const ADVANCE_INTERVAL: Duration = Duration::from_secs(3);
