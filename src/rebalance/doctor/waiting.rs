//! Moves that cannot go on without a person: one that has failed, one for which statements wait, and those that need a shard which is away.
//!
//! A move waits for its shards by itself, however long that takes, and says so in its error. What is said here is what to do where a shard does
//! not come back.

use std::time::Duration;

use super::Leftover;
use crate::shardmap::{Move, MoveState, Shard, Store, StoreError};

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
pub(super) fn remedy(shard: &Shard, moves: &[Move]) -> String {
    let needs =
        |the_move: &&Move| [&the_move.source, &the_move.target].contains(&&shard.name) && the_move.state != MoveState::Planned;
    let waiting: Vec<String> = moves.iter().filter(needs).map(|the_move| the_move.id.0.to_string()).collect();
    if waiting.is_empty() {
        return "run doctor again when it is back".to_owned();
    }
    let moves = if waiting.len() == 1 { "move" } else { "moves" };
    format!(
        "run doctor again when it is back; {moves} {} cannot end without it: where it does not come back, let shardgate.alter_shard() name a \
         standby that was promoted, or a server that was restored",
        waiting.join(", ")
    )
}

/// Longer than any cut-over whose shards answer.
const HELD_MAX: Duration = Duration::from_secs(10);
