//! The verbs that cut and join partitions: changes of the map only, the rows stay where they are.
//!
//! Each can be given again: a place where a partition begins needs no cut, and the map's history says what was merged, and what was cut into
//! how many pieces.

use std::io::{self, Write};

use serde::Serialize;

use super::RebalanceError;
use crate::error::PgError;
use crate::shardmap::{Bound, Group, MapSnapshot, PartitionId, Store, StoreError, Strategy, equal_pieces};

/// Where a partition is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// As a person writes it: a key of a range partition, a hash of a hash partition.
    At(String),
    /// Equal pieces of the hash space.
    Into(u32),
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Piece {
    partition_id: i32,
    shard: String,
    /// `None`: from the beginning, to the end.
    low: Option<String>,
    high: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Done {
    /// It was so already.
    is_unchanged: bool,
    pieces: Vec<Piece>,
    /// Why nothing was changed, where that is not plain from the pieces, and what would change something.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub async fn split(map_url: &str, partition: i32, cuts: &Cuts, is_json: bool) -> Result<(), RebalanceError> {
    let store = open(map_url).await?;
    let id = PartitionId(partition);
    let map = store.load().await?.snapshot;
    let (group, whole) = map.partition(id).ok_or_else(|| unknown(id))?;
    if let Cuts::Into(count) = cuts
        && let Some(bounds) = store.was_split(group, id, *count).await?
    {
        return print(&cut_before(&map, group, (id, *count), &bounds), is_json);
    }
    let bounds = match cuts {
        Cuts::At(text) => Bound::parse(group, text).map(|bound| vec![bound]),
        Cuts::Into(count) => equal_pieces(group, id, *count),
    };
    let bounds = bounds.map_err(refused)?;
    // Where it ends it has been cut before, perhaps by this.
    let is_outside =
        |bound: &Bound| whole.low.as_ref().is_some_and(|low| bound <= low) || group.high(id).is_some_and(|high| bound > high);
    if bounds.iter().any(is_outside) {
        return Err(RebalanceError::Refused(format!(
            "cannot split partition {partition} at its edge or outside of it: it reaches from {} to {}",
            shown(group, whole.low.as_ref()).unwrap_or_else(|| "the beginning".to_owned()),
            shown(group, group.high(id)).unwrap_or_else(|| "the end".to_owned())
        )));
    }
    let made = match cuts {
        Cuts::At(_) => store.split_group(ACTOR, group, &bounds).await?,
        Cuts::Into(_) => store.split_into(ACTOR, group, id, &bounds).await?,
    };
    let low = whole.low.clone();
    let map = store.load().await?.snapshot;
    let group = map.group(group.id).map(|group| &**group).ok_or_else(|| unknown(id))?;
    let pieces = pieces(&map, group, low.as_ref(), &bounds);
    print(&Done { is_unchanged: made == 0, pieces, note: None }, is_json)
}

fn refused(error: PgError) -> RebalanceError {
    RebalanceError::from(StoreError::Refused(error))
}

/// The same command was given before: a piece of what it has made is not cut by it.
fn cut_before(map: &MapSnapshot, group: &Group, (id, count): (PartitionId, u32), bounds: &[Bound]) -> Done {
    let low = group.partition(id).and_then(|partition| partition.low.as_ref());
    let place = equal_pieces(group, id, 2).ok().and_then(|places| shown(group, places.first()));
    let halved = place.map(|place| format!("; \"split --partition {} --at {place}\" halves the first piece", id.0));
    let note = format!("Partition {} was cut into {count} pieces before{}.", id.0, halved.unwrap_or_default());
    Done { is_unchanged: true, pieces: pieces(map, group, low, bounds), note: Some(note) }
}

/// Partitions that begin there.
fn pieces(map: &MapSnapshot, group: &Group, low: Option<&Bound>, bounds: &[Bound]) -> Vec<Piece> {
    let is_piece = |begins: Option<&Bound>| begins == low || begins.is_some_and(|begins| bounds.contains(begins));
    let pieces = group.partitions.iter().filter(|partition| is_piece(partition.low.as_ref()));
    pieces.map(|partition| piece(map, group, partition.id)).collect()
}

/// The one that remains has both.
pub async fn merge(map_url: &str, (a, b): (i32, i32), is_json: bool) -> Result<(), RebalanceError> {
    let store = open(map_url).await?;
    let (a, b) = (PartitionId(a), PartitionId(b));
    let map = store.load().await?.snapshot;
    let (kept, gone) = if map.partition(a).is_some() { (a, b) } else { (b, a) };
    let is_done = map.partition(gone).is_none() && store.was_merged(kept, gone).await?;
    let remaining = if is_done { kept } else { store.merge_partitions(ACTOR, a, b).await? };
    let map = store.load().await?.snapshot;
    let (group, _) = map.partition(remaining).ok_or_else(|| unknown(remaining))?;
    print(&Done { is_unchanged: is_done, pieces: vec![piece(&map, group, remaining)], note: None }, is_json)
}

async fn open(map_url: &str) -> Result<Store, RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    Ok(store)
}

fn unknown(id: PartitionId) -> RebalanceError {
    RebalanceError::Refused(format!("partition {} does not exist; \"shard-rebalance status --partitions\" lists them", id.0))
}

fn piece(map: &MapSnapshot, group: &Group, id: PartitionId) -> Piece {
    let partition = group.partition(id);
    let shard = partition.and_then(|partition| map.shard(partition.shard));
    let high = if group.strategy == Strategy::Lookup { None } else { group.high(id) };
    Piece {
        partition_id: id.0,
        shard: shard.map(|shard| shard.name.clone()).unwrap_or_default(),
        low: shown(group, partition.and_then(|partition| partition.low.as_ref())),
        high: shown(group, high),
    }
}

fn shown(group: &Group, bound: Option<&Bound>) -> Option<String> {
    bound.map(|bound| bound.to_text(&group.key_types))
}

fn print(done: &Done, is_json: bool) -> Result<(), RebalanceError> {
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(done)?)?;
        return Ok(out.flush()?);
    }
    if done.is_unchanged {
        writeln!(out, "It is so already; nothing was changed.")?;
    }
    if let Some(note) = &done.note {
        writeln!(out, "{note}")?;
    }
    for piece in &done.pieces {
        let low = piece.low.as_deref().unwrap_or("the beginning");
        let high = piece.high.as_deref().unwrap_or("the end");
        writeln!(out, "partition {} on {}: from {low} to {high}", piece.partition_id, piece.shard)?;
    }
    Ok(out.flush()?)
}

/// For the history of the map.
const ACTOR: &str = "shard-rebalance";
