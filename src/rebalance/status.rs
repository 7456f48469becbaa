//! `status`: what each shard holds, how evenly, and what is under way.
//!
//! The map is read in one snapshot, then every shard at the same time, each within a deadline of its own: a shard that is away
//! is a row that says so, never a failure of the whole. Figures that would need it are then unknown, not smaller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use serde::Serialize;
use tokio::time::timeout;

use super::RebalanceError;
use super::cluster::{self, Cluster, Detail, MapEpoch, Move, OpenTransaction, RegisteredPartition, RegisteredShard};
use super::layout;
use super::plan::HashSlice;
use super::sizes::{self, ShardSizes};

#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// Count rows instead of estimating: reads every sharded table on every shard.
    pub is_exact: bool,
    /// List the partitions one by one.
    pub with_partitions: bool,
    /// How long the map database has, and then each shard.
    pub deadline: Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    pub epoch: MapEpoch,
    /// UTC.
    pub taken_at: String,
    /// Whether rows were counted; otherwise they are estimated.
    pub rows_are_exact: bool,
    pub shards: Vec<ShardStatus>,
    /// Only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<PartitionStatus>>,
    pub imbalance: Imbalance,
    /// Moves that have not ended; one in state `failed` waits for a person.
    pub moves: Vec<Move>,
    pub in_doubt_transactions: Vec<OpenTransaction>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShardStatus {
    pub name: String,
    /// As the map says: `online`, `preparing`.
    pub state: String,
    pub is_reachable: bool,
    /// Why it is not reachable.
    pub error: Option<String>,
    pub region: Option<String>,
    pub capacity: f64,
    pub is_home: bool,
    pub partitions: u64,
    /// Of the sharded tables. `None`: not known.
    pub rows: Option<u64>,
    /// Of the sharded tables with their TOAST and indexes. `None`: not known.
    pub bytes: Option<u64>,
    /// The same without the space that dead rows hold.
    pub live_bytes: Option<u64>,
    /// Of the whole database.
    pub database_bytes: Option<u64>,
    /// Rows whose key belongs to another shard, or to none. `None`: rows were not counted by partition.
    pub misplaced_rows: Option<u64>,
    /// Live bytes above (or below) the shard's fair share by capacity, as a share of it.
    pub above_fair_share: Option<f64>,
    pub tables: Vec<TableStatus>,
}

/// A sharded table on one shard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableStatus {
    pub table: String,
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
}

/// One partition, by what its shard holds of it. Unless rows are exact, rows and bytes are those of the group's tables on its
/// shard, divided over the group's partitions there: by their part of the hash space, right for keys that hash evenly; evenly for
/// ranges and lookups, a guess.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionStatus {
    pub partition_id: i32,
    pub colocation_group: i32,
    pub shard: String,
    pub state: String,
    pub rows: Option<u64>,
    /// Never measured: each table's live bytes by the partition's share of its rows.
    pub bytes: Option<u64>,
    /// Of a hash partition.
    #[serde(skip)]
    pub hashes: Option<HashSlice>,
}

/// How far the fullest shard is above its fair share by capacity, as a share of it: 0 is even, 0.25 is a quarter too much.
/// `None`: not known, since a shard did not answer or has no figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Imbalance {
    pub bytes: Option<f64>,
    pub rows: Option<f64>,
    pub partitions: Option<f64>,
}

/// Reads the map, then every shard at once. Cancel safe.
pub async fn status(map_url: &str, options: &StatusOptions) -> Result<Status, RebalanceError> {
    let detail = match (options.with_partitions, options.is_exact) {
        (false, _) => Detail::Shards,
        (true, false) => Detail::Partitions,
        (true, true) => Detail::Keys,
    };
    let reading = cluster::read(map_url, detail);
    let late = || RebalanceError::Deadline { place: "the map database".to_owned(), deadline: options.deadline };
    let cluster = timeout(options.deadline, reading).await.map_err(|_| late())??;
    let sizes = join_all(cluster.shards.iter().map(|shard| sizes_of(shard, &cluster, options))).await;
    Ok(assemble(cluster, &sizes, options))
}

async fn sizes_of(shard: &RegisteredShard, cluster: &Cluster, options: &StatusOptions) -> Result<ShardSizes, RebalanceError> {
    let late = || RebalanceError::Deadline { place: format!("shard \"{}\"", shard.name), deadline: options.deadline };
    timeout(options.deadline, sizes::read(shard, cluster, options.is_exact)).await.unwrap_or_else(|_| Err(late()))
}

fn assemble(cluster: Cluster, sizes: &[Result<ShardSizes, RebalanceError>], options: &StatusOptions) -> Status {
    let mut shards: Vec<ShardStatus> =
        cluster.shards.iter().zip(sizes).map(|(shard, sizes)| shard_status(shard, &cluster, sizes)).collect();
    let bytes = loads(&shards, |shard| shard.live_bytes);
    let fair_bytes = bytes.as_deref().and_then(per_capacity);
    for shard in shards.iter_mut().filter(|shard| shard.has_share()) {
        shard.above_fair_share = share_above(shard.live_bytes, shard.capacity, fair_bytes);
    }
    let imbalance = Imbalance {
        bytes: bytes.as_deref().and_then(imbalance),
        rows: loads(&shards, |shard| shard.rows).as_deref().and_then(imbalance),
        partitions: loads(&shards, |shard| Some(shard.partitions)).as_deref().and_then(imbalance),
    };
    let partitions = options.with_partitions.then(|| partition_statuses(&cluster, sizes));
    Status {
        epoch: cluster.epoch,
        taken_at: cluster.taken_at,
        rows_are_exact: options.is_exact,
        shards,
        partitions,
        imbalance,
        moves: cluster.moves,
        in_doubt_transactions: in_doubt(&cluster.shards, sizes),
    }
}

/// What is prepared on shards that answered, by transaction: the name without the participant's number.
fn in_doubt(shards: &[RegisteredShard], sizes: &[Result<ShardSizes, RebalanceError>]) -> Vec<OpenTransaction> {
    let mut found = BTreeMap::<&str, OpenTransaction>::new();
    for (shard, sizes) in shards.iter().zip(sizes) {
        for (gid, age_seconds) in sizes.iter().flat_map(|sizes| &sizes.prepared) {
            let transaction = gid.rsplit_once(':').map_or(gid.as_str(), |(transaction, _)| transaction);
            let entry = found.entry(transaction).or_insert_with(|| OpenTransaction {
                gid: transaction.to_owned(),
                state: "prepared".to_owned(),
                participants: Vec::new(),
                age_seconds: 0.0,
            });
            entry.participants.push(shard.name.clone());
            entry.age_seconds = entry.age_seconds.max(*age_seconds);
        }
    }
    found.into_values().collect()
}

fn shard_status(shard: &RegisteredShard, cluster: &Cluster, sizes: &Result<ShardSizes, RebalanceError>) -> ShardStatus {
    let tables: Vec<TableStatus> = match sizes {
        Ok(sizes) => cluster
            .tables
            .iter()
            .zip(&sizes.tables)
            .map(|(table, size)| TableStatus {
                table: table.display_name(),
                rows: size.and_then(|size| size.rows),
                bytes: size.map(|size| size.bytes),
            })
            .collect(),
        Err(_) => Vec::new(),
    };
    let is_reachable = sizes.is_ok();
    let live_bytes = sizes.as_ref().ok().and_then(|sizes| sizes.tables.iter().map(|size| Some((*size)?.live_bytes)).sum());
    let sum = |of: fn(&TableStatus) -> Option<u64>| if is_reachable { tables.iter().map(of).sum::<Option<u64>>() } else { None };
    ShardStatus {
        name: shard.name.clone(),
        state: shard.state.clone(),
        is_reachable,
        error: sizes.as_ref().err().map(ToString::to_string),
        region: shard.region.clone(),
        capacity: shard.capacity,
        is_home: shard.is_home,
        partitions: cluster.partitions_of(shard.shard_id),
        rows: sum(|table| table.rows),
        bytes: sum(|table| table.bytes),
        live_bytes,
        database_bytes: sizes.as_ref().ok().map(|sizes| sizes.database_bytes),
        misplaced_rows: sizes.as_ref().ok().and_then(|sizes| misplaced_rows(shard, cluster, sizes)),
        above_fair_share: None,
        tables,
    }
}

fn misplaced_rows(shard: &RegisteredShard, cluster: &Cluster, sizes: &ShardSizes) -> Option<u64> {
    let of_shard = cluster.partitions.iter().filter(|partition| partition.shard_id == shard.shard_id);
    // A move has its rows on both sides.
    let has_shard = |one: &&Move| [&one.source, &one.target].contains(&&shard.name);
    let moving = cluster.moves.iter().filter(has_shard).map(|one| one.partition_id);
    let owned: BTreeSet<i32> = of_shard.map(|partition| partition.partition_id).chain(moving).collect();
    Some(sizes.counts.as_ref()?.iter().map(|counts| counts.outside(|partition| owned.contains(&partition))).sum())
}

impl ShardStatus {
    /// A shard that is being prepared takes no rows yet, so that it has no share.
    fn has_share(&self) -> bool {
        self.state != PREPARING
    }
}

/// (load, capacity) of each shard that takes part; `None` when one is not known.
fn loads(shards: &[ShardStatus], of: impl Fn(&ShardStatus) -> Option<u64>) -> Option<Vec<(u64, f64)>> {
    shards.iter().filter(|shard| shard.has_share()).map(|shard| Some((of(shard)?, shard.capacity))).collect()
}

/// The load that a capacity of one has when all is even. `None`: there is no load.
#[expect(clippy::cast_precision_loss, reason = "a share of it is shown with three figures")]
fn per_capacity(loads: &[(u64, f64)]) -> Option<f64> {
    let total: u64 = loads.iter().map(|(load, _)| load).sum();
    let capacity: f64 = loads.iter().map(|(_, capacity)| capacity).sum();
    (total > 0 && capacity > 0.0).then(|| total as f64 / capacity)
}

#[expect(clippy::cast_precision_loss, reason = "shown with three figures")]
fn share_above(load: Option<u64>, capacity: f64, per_capacity: Option<f64>) -> Option<f64> {
    Some(load? as f64 / (per_capacity? * capacity) - 1.0)
}

/// See [`Imbalance`]. A cluster without load is even; one without shards has none.
fn imbalance(loads: &[(u64, f64)]) -> Option<f64> {
    let Some(fair) = per_capacity(loads) else {
        return (!loads.is_empty()).then_some(0.0);
    };
    loads.iter().filter_map(|(load, capacity)| share_above(Some(*load), *capacity, Some(fair))).reduce(f64::max)
}

fn partition_statuses(cluster: &Cluster, sizes: &[Result<ShardSizes, RebalanceError>]) -> Vec<PartitionStatus> {
    let shards: BTreeMap<i32, (&str, Option<&ShardSizes>)> = cluster
        .shards
        .iter()
        .zip(sizes)
        .map(|(shard, sizes)| (shard.shard_id, (shard.name.as_str(), sizes.as_ref().ok())))
        .collect();
    let hashes = hash_slices(cluster);
    let shares = even_shares(cluster, &shards, &hashes);
    cluster
        .partitions
        .iter()
        .map(|partition| {
            let sizes = shards.get(&partition.shard_id).and_then(|(_, sizes)| *sizes);
            let share = match sizes.and_then(|sizes| counted_share(cluster, partition, sizes)) {
                Some(counted) => counted,
                None => shares.get(&partition.partition_id).copied().unwrap_or_default(),
            };
            PartitionStatus {
                partition_id: partition.partition_id,
                colocation_group: partition.group_id,
                shard: shards.get(&partition.shard_id).map_or_else(String::new, |(name, _)| (*name).to_owned()),
                state: partition.state.clone(),
                rows: share.rows,
                bytes: share.bytes,
                hashes: hashes.get(&partition.partition_id).copied(),
            }
        })
        .collect()
}

/// `None`: its rows were not counted.
fn counted_share(cluster: &Cluster, partition: &RegisteredPartition, sizes: &ShardSizes) -> Option<Share> {
    let counts = sizes.counts.as_ref()?;
    let (mut rows, mut bytes) = (0, 0);
    for ((table, size), counted) in cluster.tables.iter().zip(&sizes.tables).zip(counts) {
        if let Some(size) = size.filter(|_| table.group_id == partition.group_id) {
            let own = counted.of(partition.partition_id);
            rows += own;
            let share = u128::from(size.live_bytes) * u128::from(own) / u128::from(counted.total().max(1));
            bytes += u64::try_from(share).unwrap_or(u64::MAX);
        }
    }
    Some(Share { rows: Some(rows), bytes: Some(bytes) })
}

#[derive(Clone, Copy, Default)]
struct Share {
    rows: Option<u64>,
    bytes: Option<u64>,
}

/// Partition → its hashes.
fn hash_slices(cluster: &Cluster) -> BTreeMap<i32, HashSlice> {
    let hashed = cluster.partitions.iter().filter(|partition| partition.strategy == "hash");
    let mut lows: Vec<(i32, Option<i64>, i32)> = hashed
        .map(|partition| {
            let low = partition.low.as_deref().filter(|low| !low.is_empty()).map(layout::hash);
            (partition.group_id, low, partition.partition_id)
        })
        .collect();
    lows.sort_unstable();
    let next = |at: usize, group: i32| lows.get(at + 1).filter(|(of, _, _)| *of == group).and_then(|(_, low, _)| *low);
    let slice = |(at, (group, low, id)): (usize, &(i32, Option<i64>, i32))| (*id, HashSlice::between(*low, next(at, *group)));
    lows.iter().enumerate().map(slice).collect()
}

/// Partition → what it has of its shard's part of the group.
fn even_shares(
    cluster: &Cluster,
    shards: &BTreeMap<i32, (&str, Option<&ShardSizes>)>,
    hashes: &BTreeMap<i32, HashSlice>,
) -> BTreeMap<i32, Share> {
    let weight = |id: i32| hashes.get(&id).map_or(1, |hashes| hashes.width());
    let mut weights: BTreeMap<(i32, i32), u128> = BTreeMap::new();
    for partition in &cluster.partitions {
        *weights.entry((partition.shard_id, partition.group_id)).or_default() += weight(partition.partition_id);
    }
    let totals: BTreeMap<(i32, i32), Share> = weights.keys().map(|place| (*place, total(cluster, shards, *place))).collect();
    let share = |partition: &RegisteredPartition| {
        let place = (partition.shard_id, partition.group_id);
        let total = totals.get(&place).copied().unwrap_or_default();
        let part = |sum: u64| {
            let share = u128::from(sum) * weight(partition.partition_id) / weights.get(&place).copied().unwrap_or(1);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        (partition.partition_id, Share { rows: total.rows.map(part), bytes: total.bytes.map(part) })
    };
    cluster.partitions.iter().map(share).collect()
}

/// What a shard has of a group's tables.
fn total(cluster: &Cluster, shards: &BTreeMap<i32, (&str, Option<&ShardSizes>)>, (shard, group): (i32, i32)) -> Share {
    let sizes = shards.get(&shard).and_then(|(_, sizes)| *sizes);
    let of_group = || sizes.map(|sizes| cluster.tables.iter().zip(&sizes.tables).filter(|(table, _)| table.group_id == group));
    let rows = of_group().and_then(|tables| tables.map(|(_, size)| size.and_then(|size| size.rows)).sum());
    let bytes = of_group().and_then(|tables| tables.map(|(_, size)| size.map(|size| size.live_bytes)).sum());
    Share { rows, bytes }
}

const PREPARING: &str = "preparing";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_the_fullest_shard_s_excess_over_its_fair_share() {
        assert_eq!(imbalance(&[]), None);
        assert_eq!(imbalance(&[(0, 1.0), (0, 2.0)]), Some(0.0));
        assert_eq!(imbalance(&[(100, 1.0), (100, 1.0)]), Some(0.0));
        assert_eq!(imbalance(&[(300, 1.0), (100, 1.0)]), Some(0.5));
        // Twice the capacity may hold twice as much.
        assert_eq!(imbalance(&[(200, 2.0), (100, 1.0)]), Some(0.0));
        assert_eq!(imbalance(&[(400, 1.0), (0, 1.0), (0, 1.0), (0, 1.0)]), Some(3.0));
    }

    #[test]
    fn a_shard_without_figures_makes_the_imbalance_unknown_and_one_in_preparation_has_no_share() {
        let shard = |state: &str, bytes: Option<u64>| ShardStatus {
            name: "a".to_owned(),
            state: state.to_owned(),
            is_reachable: bytes.is_some(),
            error: None,
            region: None,
            capacity: 1.0,
            is_home: false,
            partitions: 1,
            rows: None,
            bytes,
            live_bytes: bytes,
            database_bytes: None,
            misplaced_rows: None,
            above_fair_share: None,
            tables: Vec::new(),
        };
        let of_bytes = |shards: &[ShardStatus]| loads(shards, |shard| shard.bytes);
        assert_eq!(of_bytes(&[shard("online", Some(5)), shard("online", None)]), None);
        assert_eq!(of_bytes(&[shard("online", Some(5)), shard(PREPARING, Some(0))]), Some(vec![(5, 1.0)]));
    }
}
