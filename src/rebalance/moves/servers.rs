//! Which servers the two sides of a move were when it began: a copy does not outlive the promotion of a standby.
//!
//! A standby that is promoted need not have all that its primary had, and replication does not notice. Where the subscriber's is promoted,
//! the slot is confirmed for what the primary before had taken, and goes on behind it. Where the publisher's is, the subscriber has what
//! the new primary never had. In both cases replication goes on without an error, and the copy lacks rows or has too many. So before the
//! switch the move is aborted, and after it the way back is lost; and where the target's was promoted, the source's rows are deleted only when
//! a person says so. What a promotion has taken of the mover's own records is put back.
//!
//! A server that is started again keeps its timeline, and has all that it has acknowledged: it is the same.

use serde_json::json;

use super::moving::Moving;
use super::stop::Stop;
use crate::shardmap::MoveServers;

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

/// The target alone is another server: it may lack rows of the copy, or all of it, though the source that gave them never failed.
pub(super) fn target_changed(moving: &Moving) -> Option<String> {
    let target = &moving.target.name;
    is_other(known(moving)?.target, moving.servers().target).then(|| {
        format!(
            "shard \"{target}\" has failed over to another server since the move began, which may lack rows that the source still has: \
             look at both sides with SET shardgate.shard; \"shard-rebalance finish --unverified {}\" deletes the source's",
            moving.the_move.id.0
        )
    })
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
