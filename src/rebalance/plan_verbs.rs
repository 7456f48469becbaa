//! `plan`: what should move.
//!
//! A plan is a file that a person may read and keep. It says from which state of the map it was made; [`super::apply`] does nothing of it
//! that does not fit the map any more.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::RebalanceError;
use super::estimates::Estimates;
use super::moves::preflight::{self, Finding};
use super::plan::{self, Cost, PlannedMove, PlannedPartition, PlannedShard, PlannedSplit};
use super::status::{Status, StatusOptions, status};
use super::units;
use crate::catalog::hex;
use crate::shard_key::{Key, KeyDatum};
use crate::shardmap::{Bound, Emptied, Group, GroupId, MapSnapshot, MoveOptions, Store};

#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub cost: Cost,
    pub threshold: f64,
    pub emptied: Option<Emptied>,
    /// Only of this colocation group.
    pub group: Option<GroupId>,
    /// Shards that do not answer are left out, and told, or else there is no plan.
    pub leaves_out: bool,
    pub deadline: std::time::Duration,
}

/// A plan as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub by: Cost,
    pub threshold: f64,
    pub made_at: String,
    /// As they were when the plan was made.
    pub shards: Vec<PlannedSize>,
    pub groups: Vec<PlannedGroup>,
    /// First these, then the moves.
    pub splits: Vec<PlannedSplit>,
    pub moves: Vec<PlannedMove>,
    /// What the schema says against the moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_the_way: Vec<Finding>,
    /// Shards that did not answer: nothing moves to them or from them, and they have no share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub shard: String,
    pub reason: String,
    /// That it owns.
    pub partitions: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedSize {
    pub shard: String,
    /// Of the sharded tables.
    pub bytes: u64,
}

/// A group of which something moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedGroup {
    pub colocation_group: i32,
    /// See `layout`.
    pub layout: String,
}

/// A digest of where the group's partitions begin, these places left out; of a lookup group, of their numbers.
pub(super) fn layout(group: &Group, without: &[Bound]) -> String {
    let stays = group.partitions.iter().filter(|partition| partition.low.as_ref().is_none_or(|low| !without.contains(low)));
    let place = |low: &Bound| hex(&low.to_stored());
    let name = |partition: &crate::shardmap::Partition| match group.strategy {
        crate::shardmap::Strategy::Lookup => partition.id.0.to_string(),
        crate::shardmap::Strategy::Hash | crate::shardmap::Strategy::Range => partition.low.as_ref().map(place).unwrap_or_default(),
    };
    let names: Vec<String> = stays.map(name).collect();
    format!("{:016x}", Key::new(vec![KeyDatum::Text(names.join(",").into())]).hash())
}

/// Prints the plan, and writes it to a file where one is given. Changes nothing else.
pub async fn plan(map_url: &str, options: &PlanOptions, out: Option<&Path>, is_json: bool) -> Result<(), RebalanceError> {
    let mut made = made_now(map_url, options).await?;
    made.in_the_way = in_the_way(map_url, &made).await?;
    if let Some(path) = out {
        std::fs::write(path, serde_json::to_string_pretty(&made)? + "\n")?;
    }
    let text = match is_json {
        true => serde_json::to_string_pretty(&made)? + "\n",
        false => lines(&made),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// What every move of these would be refused for, as far as it can be seen before.
async fn in_the_way(map_url: &str, made: &Plan) -> Result<Vec<Finding>, RebalanceError> {
    let places: BTreeSet<(i32, &str)> =
        made.moves.iter().map(|planned| (planned.colocation_group, planned.source.as_str())).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let store = Store::of_command(map_url).await?;
    let map = store.load().await?.snapshot;
    let mut found: Vec<Finding> = Vec::new();
    for group in made.groups.iter().filter_map(|group| map.group(GroupId(group.colocation_group))) {
        for away in &made.left_out {
            found.extend(preflight::waits_for(&map, group, &away.shard).await);
        }
    }
    for (group, source) in places {
        // Gone meanwhile: the plan does not fit the map any more, which its application finds.
        let (Some(group), Some(source)) = (map.group(GroupId(group)), map.shard_by_name(source)) else { continue };
        for finding in preflight::of_schema(&store, &map, group, source).await {
            if !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    Ok(found)
}

/// How often sizes are read for a map that stays as it is meanwhile.
const ATTEMPTS: usize = 5;

/// By what the shards hold now. Cancel safe.
pub(super) async fn made_now(map_url: &str, options: &PlanOptions) -> Result<Plan, RebalanceError> {
    let status_options = StatusOptions { is_exact: options.cost == Cost::Rows, with_partitions: true, deadline: options.deadline };
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    for _ in 0..ATTEMPTS {
        let status = status(map_url, &status_options).await?;
        let map = store.load().await?.snapshot;
        // Moves that begin or end change the map, too.
        if (map.epoch.incarnation, map.epoch.counter) == (status.epoch.incarnation, status.epoch.counter) {
            return make(&status, &map, &Estimates::of(&store.past_moves().await?), options);
        }
    }
    let refusal = "the map has changed each time that the sizes were read; plan again when fewer moves and declarations run";
    Err(RebalanceError::Refused(refusal.to_owned()))
}

fn make(status: &Status, map: &MapSnapshot, estimates: &Estimates, options: &PlanOptions) -> Result<Plan, RebalanceError> {
    let left_out = left_out(status, options)?;
    let is_drained = |name: &str| match &options.emptied {
        None => false,
        Some(Emptied::Shard(emptied)) => name == emptied,
        Some(Emptied::AllBut(kept)) => name != kept,
    };
    let answering = || status.shards.iter().filter(|shard| shard.is_reachable);
    let shards: Vec<PlannedShard> = answering()
        .map(|shard| PlannedShard {
            name: shard.name.clone(),
            region: shard.region.clone(),
            capacity: shard.capacity,
            takes: shard.state == "online" && !is_drained(&shard.name),
            is_drained: is_drained(&shard.name) || shard.state == "draining",
        })
        .collect();
    if !shards.iter().any(|shard| shard.takes) {
        return Err(RebalanceError::Refused("no shard is online that could take partitions".to_owned()));
    }
    let cost = |bytes: u64, rows: u64| match options.cost {
        Cost::Bytes => bytes,
        Cost::Rows => rows,
        Cost::Count => 1,
    };
    let partitions: Vec<PlannedPartition> = status
        .partitions
        .iter()
        .flatten()
        // What moves already is not planned again.
        .filter(|partition| options.group.is_none_or(|group| group.0 == partition.colocation_group))
        .filter(|partition| !status.moves.iter().any(|running| running.partition_id == partition.partition_id))
        .filter(|partition| !left_out.iter().any(|away| away.shard == partition.shard))
        .map(|partition| {
            let (bytes, rows) = (partition.bytes.unwrap_or_default(), partition.rows.unwrap_or_default());
            PlannedPartition {
                id: partition.partition_id,
                group: partition.colocation_group,
                shard: partition.shard.clone(),
                bytes,
                rows: partition.rows,
                cost: cost(bytes, rows),
                // By count no part of a partition is less than the whole.
                hashes: partition.hashes.filter(|_| options.cost != Cost::Count),
            }
        })
        .collect();
    let plan::Changes { splits, mut moves } = plan::plan(&shards, &partitions, options.threshold);
    for planned in &mut moves {
        planned.expected_seconds = estimates.seconds(planned.bytes);
        planned.expected_pause_ms = estimates.pause_ms;
    }
    let mut moving: Vec<i32> = moves.iter().map(|planned| planned.colocation_group).collect();
    moving.sort_unstable();
    moving.dedup();
    let group = |id: i32| {
        let found = map.group(GroupId(id))?;
        Some(PlannedGroup { colocation_group: id, layout: layout(found, &[]) })
    };
    let size =
        |shard: &super::status::ShardStatus| PlannedSize { shard: shard.name.clone(), bytes: shard.bytes.unwrap_or_default() };
    Ok(Plan {
        by: options.cost,
        threshold: options.threshold,
        made_at: status.taken_at.clone(),
        shards: answering().map(size).collect(),
        groups: moving.into_iter().filter_map(group).collect(),
        splits,
        moves,
        in_the_way: Vec::new(),
        left_out,
    })
}

/// Shards that do not answer, where a plan can do without them.
fn left_out(status: &Status, options: &PlanOptions) -> Result<Vec<LeftOut>, RebalanceError> {
    let refused = |reason: String| Err(RebalanceError::Refused(reason));
    let emptied = options.emptied.as_ref();
    if let Some(Emptied::Shard(named) | Emptied::AllBut(named)) = emptied
        && !status.shards.iter().any(|shard| shard.name == *named)
    {
        return refused(format!("there is no shard \"{named}\""));
    }
    let mut left_out = Vec::new();
    for away in status.shards.iter().filter(|shard| !shard.is_reachable) {
        let name = &away.name;
        if emptied == Some(&Emptied::Shard(name.clone())) {
            return refused(format!(
                "shard \"{name}\" does not answer, and no rows can be moved from it: if its server does not come back, promote a standby of it \
                 or restore a backup, and let shardgate.alter_shard() name that one"
            ));
        }
        if !options.leaves_out {
            return refused(format!(
                "shard \"{name}\" does not answer; its sizes are not known. \"shard-rebalance plan\" plans without it"
            ));
        }
        let reason = away.error.clone().unwrap_or_else(|| "it does not answer".to_owned());
        left_out.push(LeftOut { shard: name.clone(), reason, partitions: away.partitions });
    }
    Ok(left_out)
}

fn lines(made: &Plan) -> String {
    let mut text = String::new();
    for away in &made.left_out {
        let owned = match away.partitions {
            0 => String::new(),
            1 => ", and the partition that it owns".to_owned(),
            owned => format!(", and the {owned} partitions that it owns"),
        };
        text.push_str(&format!("Planned without shard {}, which does not answer{owned}: {}\n", away.shard, away.reason));
    }
    if made.moves.is_empty() {
        return text + "The shards are even enough: nothing is to be moved.\n";
    }
    let total: u64 = made.moves.iter().map(|planned| planned.bytes).sum();
    text += &format!("{} splits, {} moves, {}\n", made.splits.len(), made.moves.len(), units::bytes(total));
    for split in &made.splits {
        text.push_str(&format!("  split partition {} of group {} at {}\n", split.partition, split.colocation_group, split.at));
    }
    for planned in &made.moves {
        let partitions = planned.partitions.iter().map(ToString::to_string);
        let pieces = planned.pieces.iter().map(|at| format!("the piece from {at}"));
        text.push_str(&format!(
            "  {} -> {}  {}{}{}  {} partitions of group {}: {}\n",
            planned.source,
            planned.target,
            units::bytes(planned.bytes),
            planned.rows.map(|rows| format!(", about {} rows", units::count(rows))).unwrap_or_default(),
            expected(planned),
            planned.partitions.len() + planned.pieces.len(),
            planned.colocation_group,
            partitions.chain(pieces).collect::<Vec<_>>().join(", ")
        ));
    }
    let budget = MoveOptions::default().max_pause_ms;
    text.push_str(&format!("No pause is longer than {budget} ms: a cut-over that does not fit is given up and tried again.\n"));
    if made.moves.iter().any(|planned| planned.expected_seconds.is_none()) {
        text.push_str("Where no time is given, no move of that size has been done on this cluster yet.\n");
    }
    if !made.in_the_way.is_empty() {
        text.push_str("In the way of these moves:\n");
        made.in_the_way.iter().for_each(|finding| text.push_str(&format!("  {finding}\n")));
    }
    text
}

/// As moves took until now.
fn expected(planned: &PlannedMove) -> String {
    let duration = |seconds: f64| units::duration(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let time = planned.expected_seconds.map(|seconds| format!(", about {}", duration(seconds)));
    let pause = planned.expected_pause_ms.map(|pause| format!(", pause about {pause:.0} ms"));
    [time, pause].into_iter().flatten().collect()
}
