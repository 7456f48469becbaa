//! `plan` and `apply`: what should move, and doing exactly that.
//!
//! A plan is a file that a person may read and keep. It says from which state of the map it was made; `apply` does nothing of it
//! that does not fit the map any more.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::RebalanceError;
use super::move_verbs::{self, MoveRequest};
use super::plan::{self, Cost, PlannedMove, PlannedPartition, PlannedShard};
use super::status::{Status, StatusOptions, status};
use super::units;
use crate::shardmap::{MoveOptions, Store};

#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub cost: Cost,
    pub threshold: f64,
    /// The shard that is to be emptied.
    pub drained: Option<String>,
    pub deadline: std::time::Duration,
    pub is_json: bool,
}

/// A plan as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub by: Cost,
    pub threshold: f64,
    pub made_at: String,
    pub moves: Vec<PlannedMove>,
}

/// Prints the plan, and writes it to a file where one is given. Changes nothing else.
pub async fn plan(map_url: &str, options: &PlanOptions, out: Option<&Path>) -> Result<(), RebalanceError> {
    let status_options = StatusOptions { is_exact: options.cost == Cost::Rows, with_partitions: true, deadline: options.deadline };
    let status = status(map_url, &status_options).await?;
    let made = make(&status, options)?;
    if let Some(path) = out {
        std::fs::write(path, serde_json::to_string_pretty(&made)? + "\n")?;
    }
    let text = match options.is_json {
        true => serde_json::to_string_pretty(&made)? + "\n",
        false => lines(&made),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

fn make(status: &Status, options: &PlanOptions) -> Result<Plan, RebalanceError> {
    if let Some(drained) = &options.drained
        && !status.shards.iter().any(|shard| shard.name == *drained)
    {
        return Err(RebalanceError::Refused(format!("there is no shard \"{drained}\"")));
    }
    if let Some(away) = status.shards.iter().find(|shard| !shard.is_reachable) {
        return Err(RebalanceError::Refused(format!("shard \"{}\" does not answer; its sizes are not known", away.name)));
    }
    let is_drained = |name: &str| options.drained.as_deref() == Some(name);
    let shards: Vec<PlannedShard> = status
        .shards
        .iter()
        .map(|shard| PlannedShard {
            name: shard.name.clone(),
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
        .filter(|partition| !status.moves.iter().any(|running| running.partition_id == partition.partition_id))
        .map(|partition| {
            let (bytes, rows) = (partition.bytes.unwrap_or_default(), partition.rows.unwrap_or_default());
            PlannedPartition {
                id: partition.partition_id,
                group: partition.colocation_group,
                shard: partition.shard.clone(),
                bytes,
                cost: cost(bytes, rows),
            }
        })
        .collect();
    let moves = plan::plan(&shards, &partitions, options.threshold);
    Ok(Plan { by: options.cost, threshold: options.threshold, made_at: status.taken_at.clone(), moves })
}

fn lines(made: &Plan) -> String {
    if made.moves.is_empty() {
        return "The shards are even enough: nothing is to be moved.\n".to_owned();
    }
    let total: u64 = made.moves.iter().map(|planned| planned.bytes).sum();
    let mut text = format!("{} moves, {}\n", made.moves.len(), units::bytes(total));
    for planned in &made.moves {
        let partitions: Vec<String> = planned.partitions.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "  {} -> {}  {}  {} partitions of group {}: {}\n",
            planned.source,
            planned.target,
            units::bytes(planned.bytes),
            planned.partitions.len(),
            planned.colocation_group,
            partitions.join(",")
        ));
    }
    text
}

/// Does the moves of a plan one after the other. What was done of it before is left out.
pub async fn apply(map_url: &str, path: &Path, is_json: bool) -> Result<(), RebalanceError> {
    let text = std::fs::read_to_string(path)?;
    let made: Plan = serde_json::from_str(&text).map_err(|error| {
        RebalanceError::Refused(format!("{} is not a plan of \"shard-rebalance plan --out\": {error}", path.display()))
    })?;
    let store = Store::new(map_url)?;
    store.check().await?;
    for planned in &made.moves {
        if is_done(&store, planned).await? {
            continue;
        }
        let options = MoveOptions::default();
        let request =
            MoveRequest { partitions: planned.partitions.clone(), target: planned.target.clone(), options, is_detached: false };
        move_verbs::start(map_url, &request, is_json).await?;
    }
    Ok(())
}

/// Refused where the partitions are neither where the plan found them nor where it puts them.
async fn is_done(store: &Store, planned: &PlannedMove) -> Result<bool, RebalanceError> {
    let map = store.load().await?.snapshot;
    let mut owners = planned.partitions.iter().map(|id| {
        let shard = map.partition(crate::shardmap::PartitionId(*id)).and_then(|(_, partition)| map.shard(partition.shard));
        (id, shard.map(|shard| shard.name.clone()))
    });
    let drifted = owners.clone().find(|(_, shard)| ![Some(&planned.source), Some(&planned.target)].contains(&shard.as_ref()));
    if let Some((id, _)) = drifted {
        return Err(RebalanceError::Refused(format!(
            "the map has changed since the plan was made: partition {id} is elsewhere; plan again"
        )));
    }
    Ok(owners.all(|(_, shard)| shard.as_ref() == Some(&planned.target)))
}
