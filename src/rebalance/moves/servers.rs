//! Which servers the two sides of a move were when it began: a copy does not outlive the promotion of a standby.
//!
//! A standby that is promoted need not have all that its primary had, and replication does not notice. Where the subscriber's is promoted,
//! the slot is confirmed for what the primary before had taken, and goes on behind it. Where the publisher's is, the subscriber has what
//! the new primary never had. In both cases replication goes on without an error, and the copy lacks rows or has too many. So before the
//! switch the move is aborted, and after it the way back is lost. What a promotion has taken of the mover's own records is put back.
//!
//! ```text
//! cut-over: marker ─► arrived at the new owner ─► receipt written there, behind it ─► SWITCH ─► the other side's rows are deleted
//!                                                    └─ the new owner has failed over: is the receipt there? ─┘
//! ```
//! Where the new owner of the set fails over after a switch, the other side's rows may be all that is left of some. What the promoted server
//! has is the beginning of its primary's WAL: if the *receipt* is in it, which the mover wrote there when everything had arrived, then so is all
//! that came before, and the move goes on. Otherwise the rows are deleted when a person says so. A marker proves nothing of this kind:
//! replication may bring it to the promoted server, and not what the primary before had confirmed. Nor does a receipt where the other side has
//! followed the owner since: it may have what the owner acknowledged later, and the promoted server lacks.
//!
//! A server that is started again keeps its timeline, and has all that it has acknowledged: it is the same.

use serde_json::{Value, json};

use super::direction::Direction;
use super::moving::Moving;
use super::stop::Stop;
use super::{marker, objects, reverse};
use crate::shardmap::{MoveServers, PrimaryServer};

const SERVERS: &str = "servers";

/// To be remembered before anything is touched.
pub(super) fn to_remember(moving: &Moving) -> (&'static str, serde_json::Value) {
    (SERVERS, json!(moving.servers()))
}

/// Why a copy is not to be relied on. `None`: both sides are what they were, as far as that is known.
pub(super) fn changed(moving: &Moving) -> Option<String> {
    let (before, now) = (known(moving)?, moving.servers());
    let sides = [(&moving.source.name, before.source, now.source), (&moving.target.name, before.target, now.target)];
    let (shard, ..) = sides.into_iter().find(|(_, before, now)| is_other(*before, *now))?;
    Some(format!("shard \"{shard}\" has failed over to another server since the move began"))
}

/// Right before a cut-over: a receipt that this one alone writes, and which the map knows where it knows of its switch.
pub(super) async fn new_receipt(moving: &mut Moving, direction: Direction) -> Result<i64, Stop> {
    let number = marker::new_number(direction);
    moving.remember(receipt(direction), json!(number)).await?;
    Ok(number)
}

/// Of a switch that the map has forgotten: whether the receipt that it knows is of that one it cannot say.
pub(super) async fn forget_receipt(moving: &mut Moving, direction: Direction) -> Result<(), Stop> {
    moving.remember(receipt(direction), Value::Null).await
}

fn receipt(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "receipt",
        Direction::Back => "receipt_back",
    }
}

/// Why the rows of the side that gave the set away must not be deleted: its owner is another server since, and may lack some.
pub(super) async fn may_lack(moving: &mut Moving, direction: Direction) -> Result<Option<String>, Stop> {
    let owner = |servers: MoveServers| if direction == Direction::Forward { servers.target } else { servers.source };
    let (before, now) = (known(moving).and_then(owner), owner(moving.servers()));
    if !is_other(before, now) || is_whole(moving, now) || has_receipt(moving, direction, (before, now)).await? {
        return Ok(None);
    }
    let (verb, keeper) = match direction {
        Direction::Forward => ("finish", "source"),
        Direction::Back => ("rollback", "target"),
    };
    let (id, shard) = (moving.the_move.id.0, &moving.subscriber(direction).name);
    Ok(Some(format!(
        "shard \"{shard}\" has failed over to another server since the move began, which may lack rows that the {keeper} still has: look at both \
         sides with SET shardgate.shard; \"shard-rebalance {verb} --unverified {id}\" deletes the {keeper}'s"
    )))
}

/// The receipts go before the move ends: what was found of this server is remembered.
const WHOLE: &str = "whole";

fn is_whole(moving: &Moving, now: Option<PrimaryServer>) -> bool {
    moving.the_move.journal.get(WHOLE).is_some_and(|whole| *whole == json!(now))
}

async fn has_receipt(
    moving: &mut Moving,
    direction: Direction,
    (before, now): (Option<PrimaryServer>, Option<PrimaryServer>),
) -> Result<bool, Stop> {
    let is_successor = before.zip(now).is_some_and(|(before, now)| now.is_successor_of(before));
    let has_followed = direction == Direction::Forward && reverse::has_begun(&moving.the_move);
    let number = moving.the_move.journal.get(receipt(direction)).and_then(Value::as_i64);
    let Some(number) = number.filter(|_| is_successor && !has_followed) else { return Ok(false) };
    let found = objects::has_marker(moving.the_move.id, number);
    if !moving.subscriber(direction).value::<bool>(&found).await? {
        return Ok(false);
    }
    tracing::info!(move_id = moving.the_move.id.0, "the owner has failed over, and has all that the other side gave it");
    moving.remember(WHOLE, json!(now)).await?;
    Ok(true)
}

fn known(moving: &Moving) -> Option<MoveServers> {
    serde_json::from_value(moving.the_move.journal.get(SERVERS)?.clone()).ok()
}

fn is_other<T: PartialEq>(before: Option<T>, now: Option<T>) -> bool {
    before.is_some() && now.is_some() && before != now
}

/// Of a move that has copied, and has not switched. One that was begun by an earlier version remembers them from here on.
pub(super) async fn require_same(moving: &mut Moving) -> Result<(), Stop> {
    if !moving.the_move.remembers(SERVERS) {
        let (what, servers) = to_remember(moving);
        return moving.remember(what, servers).await;
    }
    changed(moving).map_or(Ok(()), |reason| Err(Stop::Abort(reason)))
}

/// What was done at these servers was done at the shards' primaries, as far as the map knows by now.
pub(super) async fn confirm_primaries(moving: &Moving) -> Result<(), Stop> {
    let MoveServers { source, target } = moving.servers();
    let [source_id, target_id] = moving.both();
    for (id, primary) in moving.store.primaries(&moving.both()).await? {
        let (worked_with, name) = if id == source_id { (source, &moving.source.name) } else { (target, &moving.target.name) };
        debug_assert!(id == source_id || id == target_id, "only these were asked for");
        if worked_with.is_some_and(|server| server != primary) {
            return Err(Stop::Again(format!("shard \"{name}\" has another primary server since")));
        }
    }
    Ok(())
}
