//! Moves that cannot go on without a person: one that has failed, one for which statements wait, and those that need a shard which is away.
//!
//! A move waits for its shards by itself, however long that takes, and says so in its error. What is said here is what to do where a shard does
//! not come back.

use std::time::Duration;

use super::Leftover;
use crate::rebalance::moves::{covering_views, given_up};
use crate::shardmap::{Lost, MapSnapshot, Move, MoveState, Shard, Store, StoreError};

/// By the map alone.
pub(super) async fn find(store: &Store, moves: &[Move]) -> Result<Vec<Leftover>, StoreError> {
    let mut found = Vec::new();
    for the_move in moves {
        let id = the_move.id.0;
        if the_move.state == MoveState::Failed {
            let remedy = format!(
                "\"shard-rebalance show {id}\" says why; \"shard-rebalance resume {id}\" lets it go on when that is mended"
            );
            found.push(Leftover::in_map(format!("move {id} has failed"), remedy));
        }
        if the_move.holds()
            && let Some(held_for) = store.held_for(the_move.id).await?.filter(|held_for| *held_for > HELD_MAX)
        {
            let partitions: Vec<String> = the_move.partitions.iter().map(|partition| partition.0.to_string()).collect();
            let what = format!(
                "statements for partitions {} have waited for move {id} for {} s",
                partitions.join(", "),
                held_for.as_secs()
            );
            let remedy = the_move.error.clone().unwrap_or_else(|| format!("\"shard-rebalance show {id}\" says what it waits for"));
            found.push(Leftover::in_map(what, remedy));
        }
    }
    Ok(found)
}

/// What to do about a shard that cannot be looked at.
pub(super) fn remedy(map: &MapSnapshot, shard: &Shard, moves: &[Move]) -> String {
    let takes_part = |the_move: &Move| [&the_move.source, &the_move.target].contains(&&shard.name);
    // A view is covered on every shard.
    let needs =
        |the_move: &&Move| the_move.state != MoveState::Planned && (takes_part(the_move) || covering_views::are_made(the_move));
    let waiting: Vec<String> = moves.iter().filter(needs).map(|the_move| the_move.id.0.to_string()).collect();
    if waiting.is_empty() {
        return format!("run doctor again when it is back; {}", given_up::if_it_stays_away(map, shard));
    }
    let plural = if waiting.len() == 1 { "move" } else { "moves" };
    format!(
        "run doctor again when it is back; {plural} {} cannot end without it: where it does not come back, let shardgate.alter_shard() name a \
         standby that was promoted, or a server that was restored{}",
        waiting.join(", "),
        moves.iter().filter(|the_move| takes_part(the_move)).filter_map(|the_move| way_out(shard, the_move)).collect::<String>()
    )
}

/// A move whose other shard owns the partitions can be given up.
fn way_out(shard: &Shard, the_move: &Move) -> Option<String> {
    let lost = if the_move.source == shard.name { Lost::Source } else { Lost::Target };
    let target_owns = match the_move.state {
        MoveState::Switched | MoveState::CleaningUp => true,
        MoveState::CuttingOver => the_move.is_rollback,
        MoveState::Preparing | MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying | MoveState::Aborting => false,
        MoveState::Planned | MoveState::Failed | MoveState::Done | MoveState::Aborted => return None,
    };
    let can_end = target_owns == (lost == Lost::Source);
    can_end.then(|| format!("; or \"shard-rebalance {} {} --lost {}\"", lost.verb(), the_move.id.0, lost.name()))
}

/// Longer than any cut-over whose shards answer.
const HELD_MAX: Duration = Duration::from_secs(10);
