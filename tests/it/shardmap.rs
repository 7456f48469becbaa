//! The shard map in a real map database: its constraints and changes, how proxies follow it, and what they serve without it.

use std::sync::Arc;
use std::time::Duration;

use shardgate::error::PgError;
use shardgate::shard_key::{Key, KeyColumn, KeyDatum, KeyType};
use shardgate::shardmap::{
    Group, GroupId, GroupOfTables, MapOptions, NewPartition, NewShard, NewShardedTable, Placement, Planned, ProxyId, ShardMap,
    ShardState, Store, StoreError, Strategy, hash_slices, spread,
};

use crate::support::Cluster;

mod asked;
mod changes;
mod constraints;
mod following;
mod lookups;
mod migrations;
mod outage;
mod plans;
mod scale;

const ACTOR: &str = "alice";

/// A map database alone.
async fn map_cluster() -> Cluster {
    Cluster::start(0).await
}

fn options(cluster: &Cluster) -> MapOptions {
    MapOptions {
        url: cluster.map_url(),
        migrate: true,
        lookup_cache_entries: 1_000_000,
        // Long, so that a test that waits for a notification does not pass by the poll.
        poll_interval: Duration::from_secs(60),
        proxy_id: ProxyId::random(),
        address: "127.0.0.1:6432".to_owned(),
    }
}

async fn connect_map(cluster: &Cluster) -> Arc<ShardMap> {
    ShardMap::connect(options(cluster)).await.expect("connect to the map")
}

async fn add_shard(store: &Store, name: &str) {
    let url = format!("postgres://u:secret@h/{name}");
    let shard = NewShard { name, url: &url, region: None, capacity: 1.0, replication_url: None, identity: None };
    store.add_shard(now(store).await, ACTOR, &shard).await.expect("add a shard");
    store.set_shard_state(now(store).await, ACTOR, name, ShardState::Online).await.expect("set it online");
}

/// Planned by the map as it is.
async fn now(store: &Store) -> Planned {
    Planned::at(store.epoch().await.expect("the epoch"))
}

/// A map with the shards `a` (home), `b` and `c`.
async fn map_with_shards(cluster: &Cluster) -> Arc<ShardMap> {
    let map = connect_map(cluster).await;
    for name in ["a", "b", "c"] {
        add_shard(map.store(), name).await;
    }
    map.refresh().await.expect("refresh");
    map
}

fn shard_names() -> Vec<String> {
    ["a", "b", "c"].map(str::to_owned).into()
}

fn id_column(column_type: KeyType) -> KeyColumn {
    KeyColumn { column: "id".to_owned(), column_type, function: None }
}

async fn distribute(
    store: &Store,
    name: &str,
    strategy: Strategy,
    key_type: KeyType,
    placement: Placement,
) -> Result<GroupId, StoreError> {
    let table = NewShardedTable { schema: "public", name, key: &[id_column(key_type)], key_text: "id" };
    let group = GroupOfTables { key_types: &[key_type], strategy, placement };
    store.distribute_tables(now(store).await, ACTOR, &[table], &group).await
}

async fn distribute_hash(map: &ShardMap, name: &str, partitions: u32) -> GroupId {
    let partitions = spread(hash_slices(partitions), &shard_names());
    let placement = Placement::Partitions { partitions, default_shard: None };
    let group = distribute(map.store(), name, Strategy::Hash, KeyType::Int8, placement).await.expect("distribute by hash");
    map.refresh().await.expect("refresh");
    group
}

/// One partition on each of a, b and c.
async fn distribute_lookup(map: &ShardMap, name: &str) -> Arc<Group> {
    let partitions = shard_names().into_iter().map(|shard| NewPartition { low: None, shard }).collect();
    let placement = Placement::Partitions { partitions, default_shard: None };
    let group = distribute(map.store(), name, Strategy::Lookup, KeyType::Text, placement).await.expect("distribute by lookup");
    map.refresh().await.expect("refresh");
    map.snapshot().group(group).expect("the group").clone()
}

fn text_key(text: &str) -> Key {
    Key::new(vec![KeyDatum::Text(text.into())])
}

/// What a client reads of a refused change.
fn refusal<T>(outcome: Result<T, StoreError>) -> PgError {
    match outcome {
        Ok(_) => panic!("the change was made"),
        Err(error) => PgError::from(error),
    }
}

/// Waits for what another task brings about.
async fn eventually(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + patience;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
