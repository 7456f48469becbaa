//! `shardgate.rebalance()`: a plan whose moves proxies drive, one after the other where they have a shard in common.
//!
//! Nothing is kept of the plan but its moves. Where the call ends half-way, what it has begun goes on, and the next call plans the rest.

use super::RebalanceError;
use super::apply::{cuts, group, owned};
use super::plan::PlannedMove;
use super::plan_verbs::{PlanOptions, made_now};
use crate::shardmap::{MoveId, MoveOptions, PartitionId, Store};

/// A move that was planned.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedInSql {
    /// `None`: it would be planned.
    pub id: Option<MoveId>,
    pub source: String,
    pub target: String,
    pub partitions: usize,
    /// Of its tables with their indexes, as far as they are known.
    pub bytes: u64,
    pub rows: Option<u64>,
    /// As moves of this cluster took until now, where there was one like it.
    pub expected_seconds: Option<f64>,
}

/// Cuts partitions where that is needed, and plans the moves; the largest first. None: the shards are even enough.
/// Not cancel safe: some moves may have been planned. `actor`: who does it; `None`: nobody, nothing is changed.
pub async fn rebalance(map_url: &str, actor: Option<&str>, options: &PlanOptions) -> Result<Vec<PlannedInSql>, RebalanceError> {
    let plan = made_now(map_url, options).await?;
    let Some(actor) = actor else {
        return Ok(plan.moves.into_iter().map(|planned| shown(planned, None)).collect());
    };
    let store = Store::of_command(map_url).await?;
    let map = store.load().await?.snapshot;
    for planned in &plan.groups {
        let cuts = cuts(&plan, planned.colocation_group)?;
        store.split_group(actor, group(&map, planned.colocation_group)?, &cuts).await?;
    }
    let map = store.load().await?.snapshot;
    // Without a way back, as `apply` does: many moves would leave as many slots and copies behind them.
    let how = MoveOptions { grace_ms: 0, ..MoveOptions::default() };
    let mut all = Vec::with_capacity(plan.moves.len());
    for planned in plan.moves {
        let partitions: Vec<PartitionId> = owned(&map, &planned)?.iter().map(|partition| partition.id).collect();
        let id = store.plan_move(actor, &partitions, &planned.target, &how, None).await?;
        all.push(shown(planned, Some(id)));
    }
    Ok(all)
}

fn shown(planned: PlannedMove, id: Option<MoveId>) -> PlannedInSql {
    PlannedInSql {
        id,
        partitions: planned.partitions.len() + planned.pieces.len(),
        source: planned.source,
        target: planned.target,
        bytes: planned.bytes,
        rows: planned.rows,
        expected_seconds: planned.expected_seconds,
    }
}
