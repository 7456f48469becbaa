//! `apply`: does exactly what a plan says: its splits first, then its moves.
//!
//! What was done of it before is left out, so it can be given again after any crash. Nothing is begun where the map or the sizes are no
//! longer those that the plan was made for. Moves run at the same time where they have no shard in common.

use std::collections::BTreeSet;
use std::path::Path;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::RebalanceError;
use super::move_verbs::{self, MoveRequest};
use super::plan::PlannedMove;
use super::plan_verbs::{Plan, layout};
use super::progress::ProgressDisplay;
use super::status::{Status, StatusOptions, status};
use crate::shardmap::{Bound, Group, GroupId, MapSnapshot, MoveOptions, Partition, PartitionId, Store};

pub async fn apply(map_url: &str, path: &Path, deadline: std::time::Duration, is_json: bool) -> Result<(), RebalanceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| RebalanceError::Refused(format!("the plan {} cannot be read: {error}", path.display())))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|error| {
        RebalanceError::Refused(format!("{} is not a plan of \"shard-rebalance plan --out\": {error}", path.display()))
    })?;
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let map = store.load().await?.snapshot;
    check_map(&map, &plan)?;
    let is_begun = plan.moves.iter().any(|planned| is_done(&map, planned)) || !store.running_moves().await?.is_empty();
    if !is_begun {
        let options = StatusOptions { is_exact: false, with_partitions: false, deadline };
        check_sizes(&plan, &status(map_url, &options).await?)?;
    }
    for planned in &plan.groups {
        let group = group(&map, planned.colocation_group)?;
        store.split_group("shard-rebalance", group, &cuts(&plan, planned.colocation_group)?).await?;
    }
    let map = store.load().await?.snapshot;
    let waiting: Vec<&PlannedMove> = plan.moves.iter().filter(|planned| !is_done(&map, planned)).collect();
    run(map_url, &map, waiting, is_json).await
}

/// The first error ends it, once the moves that run have ended.
async fn run(map_url: &str, map: &MapSnapshot, mut waiting: Vec<&PlannedMove>, is_json: bool) -> Result<(), RebalanceError> {
    let mut busy: BTreeSet<&str> = BTreeSet::new();
    let display = &ProgressDisplay::of_several(is_json);
    let mut running = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        while let Some(planned) = take_next(&mut waiting, &busy) {
            busy.extend([planned.source.as_str(), planned.target.as_str()]);
            let partitions = owned(map, planned)?.iter().map(|partition| partition.id.0).collect();
            // Without a way back: a plan of many moves would leave as many slots and copies behind it.
            let (target, options) = (planned.target.clone(), MoveOptions { grace_ms: 0, ..MoveOptions::default() });
            let request = MoveRequest { partitions, target, options, is_detached: false };
            running.push(async move { (planned, Box::pin(move_verbs::start_shown(map_url, &request, display)).await) });
        }
        let Some((planned, ended)) = running.next().await else {
            display.close()?;
            return outcome;
        };
        busy.remove(planned.source.as_str());
        busy.remove(planned.target.as_str());
        if ended.is_err() {
            waiting.clear();
            outcome = outcome.and(ended);
        }
    }
}

/// The first one whose shards are free.
fn take_next<'p>(waiting: &mut Vec<&'p PlannedMove>, busy: &BTreeSet<&str>) -> Option<&'p PlannedMove> {
    let is_free = |planned: &&PlannedMove| ![&planned.source, &planned.target].iter().any(|shard| busy.contains(shard.as_str()));
    waiting.iter().position(is_free).map(|at| waiting.remove(at))
}

fn check_map(map: &MapSnapshot, plan: &Plan) -> Result<(), RebalanceError> {
    for planned in &plan.groups {
        let group = group(map, planned.colocation_group)?;
        if layout(group, &cuts(plan, planned.colocation_group)?) != planned.layout {
            return Err(drifted(&format!("the partitions of group {} are others", planned.colocation_group)));
        }
    }
    for planned in &plan.moves {
        for partition in owned(map, planned)? {
            let shard = map.shard(partition.shard).map(|shard| &shard.name);
            if ![Some(&planned.source), Some(&planned.target)].contains(&shard) {
                return Err(drifted(&format!("partition {} is elsewhere", partition.id.0)));
            }
        }
    }
    Ok(())
}

fn check_sizes(plan: &Plan, now: &Status) -> Result<(), RebalanceError> {
    for shard in &now.shards {
        let was_left_out = plan.left_out.iter().any(|away| away.shard == shard.name);
        match (was_left_out, shard.is_reachable) {
            (true, true) => return Err(drifted(&format!("shard \"{}\" answers again", shard.name))),
            (false, false) => return Err(drifted(&format!("shard \"{}\" does not answer", shard.name))),
            (true, false) | (false, true) => {}
        }
    }
    for size in &plan.shards {
        let bytes = now.shards.iter().find(|shard| shard.name == size.shard).and_then(|shard| shard.bytes).unwrap_or_default();
        if bytes.abs_diff(size.bytes) > (size.bytes / 4).max(SIZE_TOLERANCE) {
            return Err(drifted(&format!("the size of shard \"{}\" is another", size.shard)));
        }
    }
    Ok(())
}

fn drifted(how: &str) -> RebalanceError {
    RebalanceError::Refused(format!("the cluster has changed since the plan was made: {how}; plan again"))
}

pub(super) fn group(map: &MapSnapshot, id: i32) -> Result<&Group, RebalanceError> {
    map.group(GroupId(id)).map(|group| &**group).ok_or_else(|| drifted(&format!("group {id} is gone")))
}

pub(super) fn cuts(plan: &Plan, group: i32) -> Result<Vec<Bound>, RebalanceError> {
    plan.splits.iter().filter(|split| split.colocation_group == group).map(|split| hash(&split.at)).collect()
}

fn hash(text: &str) -> Result<Bound, RebalanceError> {
    text.parse().map(Bound::Hash).map_err(|_| RebalanceError::Refused(format!("the plan's \"{text}\" is no hash")))
}

/// The partitions of a move, and those that its pieces are cut from or are.
pub(super) fn owned<'m>(map: &'m MapSnapshot, planned: &PlannedMove) -> Result<Vec<&'m Partition>, RebalanceError> {
    let group = group(map, planned.colocation_group)?;
    let by_id = planned
        .partitions
        .iter()
        .map(|id| group.partition(PartitionId(*id)).ok_or_else(|| drifted(&format!("partition {id} is gone"))));
    let pieces = planned.pieces.iter().map(|at| Ok(group.partition_at(&hash(at)?)));
    by_id.chain(pieces).collect()
}

fn is_done(map: &MapSnapshot, planned: &PlannedMove) -> bool {
    let is_there = |partition: &&Partition| map.shard(partition.shard).is_some_and(|shard| shard.name == planned.target);
    owned(map, planned).is_ok_and(|owned| owned.iter().all(is_there))
}

/// Sizes may differ by a quarter, and small ones by this.
const SIZE_TOLERANCE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_run_at_the_same_time_where_no_shard_is_shared() {
        let planned = |source: &str, target: &str| PlannedMove {
            colocation_group: 1,
            partitions: vec![1],
            pieces: Vec::new(),
            source: source.to_owned(),
            target: target.to_owned(),
            bytes: 0,
            rows: None,
            expected_seconds: None,
            expected_pause_ms: None,
        };
        let moves = [planned("a", "b"), planned("a", "c"), planned("d", "b"), planned("c", "d")];
        let mut waiting: Vec<&PlannedMove> = moves.iter().collect();
        let mut busy = BTreeSet::new();
        let mut started = Vec::new();
        while let Some(next) = take_next(&mut waiting, &busy) {
            busy.extend([next.source.as_str(), next.target.as_str()]);
            started.push((next.source.as_str(), next.target.as_str()));
        }
        assert_eq!(started, [("a", "b"), ("c", "d")]);
        assert_eq!(waiting.len(), 2);
    }
}
