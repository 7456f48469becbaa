//! `verify`: compares rows that lie twice. Of a partition that does not move there is one copy, and nothing to compare it with.

use std::io::{self, Write};

use serde::Serialize;

use super::RebalanceError;
use super::moves::comparison;
use crate::shardmap::{MapSnapshot, Move, MoveId, MoveState, PartitionId, Store, TableKind};

#[derive(Debug, Serialize)]
struct Compared {
    what: String,
    rows: i64,
}

/// Of a move, or of a partition's move; of all reference tables where neither is given.
pub async fn verify(map_url: &str, move_id: Option<i32>, partition: Option<i32>, is_json: bool) -> Result<(), RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let map = store.load().await?.snapshot;
    let compared = match (move_id, partition) {
        (None, None) => reference_tables(&map).await?,
        (Some(_), _) | (_, Some(_)) => vec![running_move(&store, &map, move_id, partition).await?],
    };
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&compared)?)?;
        return Ok(out.flush()?);
    }
    if compared.is_empty() {
        writeln!(out, "Nothing lies twice: there are no reference tables on several shards.")?;
    }
    for one in &compared {
        writeln!(out, "{}: {} rows are the same on both sides", one.what, one.rows)?;
    }
    Ok(out.flush()?)
}

async fn running_move(
    store: &Store,
    map: &MapSnapshot,
    move_id: Option<i32>,
    partition: Option<i32>,
) -> Result<Compared, RebalanceError> {
    let is_meant =
        |the_move: &&Move| move_id == Some(the_move.id.0) || the_move.partitions.iter().any(|moving| partition == Some(moving.0));
    let running = store.running_moves().await?;
    let Some(the_move) = running.iter().find(is_meant) else {
        let what = match (move_id, partition) {
            (Some(id), _) if store.move_by_id(MoveId(id)).await?.is_none() => {
                return Err(RebalanceError::Refused(format!("there is no move {id}; SELECT * FROM shardgate.moves shows them")));
            }
            (Some(id), _) => format!("move {id} does not run"),
            (None, Some(id)) if map.partition(PartitionId(id)).is_none() => {
                return Err(RebalanceError::Refused(format!(
                    "partition {id} does not exist; \"shard-rebalance status --partitions\" lists them"
                )));
            }
            (None, id) => format!("partition {} is not being moved", id.unwrap_or_default()),
        };
        return Err(RebalanceError::Refused(format!(
            "{what}: its rows lie on one shard alone, and there is nothing to compare them with"
        )));
    };
    if !is_comparable(the_move) {
        return Err(RebalanceError::Refused(format!(
            "move {} is in state \"{}\": both sides are the same only between the copy and the cut-over, and while it can be rolled back",
            the_move.id.0,
            the_move.state.name()
        )));
    }
    let was_switched = the_move.state.has_switched();
    let compared = Box::pin(comparison::both_sides(store, map, the_move)).await;
    let now = store.move_by_id(the_move.id).await?;
    match (compared, now) {
        (Err(RebalanceError::Differs(_)), Some(now)) if !is_comparable(&now) || now.state.has_switched() != was_switched => {
            Err(RebalanceError::Refused("the move has been cut over meanwhile".to_owned()))
        }
        (compared, _) => Ok(Compared { what: format!("move {}", the_move.id.0), rows: compared? }),
    }
}

fn is_comparable(the_move: &Move) -> bool {
    matches!(the_move.state, MoveState::CatchingUp | MoveState::Verifying) || the_move.can_roll_back
}

async fn reference_tables(map: &MapSnapshot) -> Result<Vec<Compared>, RebalanceError> {
    let Some(home) = map.home() else { return Ok(Vec::new()) };
    let mut tables: Vec<(&str, &str)> = map
        .tables
        .values()
        .filter(|table| matches!(table.kind, TableKind::Reference))
        .map(|table| (table.schema.as_str(), table.name.as_str()))
        .collect();
    tables.sort_unstable();
    let mut compared = Vec::new();
    for (schema, name) in tables {
        for other in map.shards.iter().filter(|shard| shard.state.is_ready() && shard.id != home.id) {
            let what = format!("table {schema}.{name} on {} and {}", home.name, other.name);
            let rows = Box::pin(comparison::copies((schema, name), (home, other))).await.map_err(|error| match error {
                RebalanceError::Differs(reason) => RebalanceError::Differs(format!("{what}: {reason}")),
                other => other,
            })?;
            compared.push(Compared { what, rows });
        }
    }
    Ok(compared)
}
