//! Lookup keys: asked for once, together, remembered with and without a mapping, and never older than the map.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use shardgate::shard_key::Key;
use shardgate::shardmap::{Group, MapOptions, PartitionId, ShardMap};

use super::{ACTOR, connect_map, distribute_lookup, map_cluster, map_with_shards, options, text_key};
use crate::support::Cluster;

async fn map_key(map: &ShardMap, group: &Group, key: &Key, shard: &str) -> PartitionId {
    map.store().map_key(ACTOR, ("public", "l"), key, &group.key_types, shard).await.expect("map a key")
}

/// A map with the lookup table `l`, and a second proxy.
async fn two_proxies() -> (Cluster, Arc<ShardMap>, Arc<ShardMap>, Arc<Group>) {
    let cluster = map_cluster().await;
    let one = map_with_shards(&cluster).await;
    let group = distribute_lookup(&one, "l").await;
    let other = connect_map(&cluster).await;
    (cluster, one, other, group)
}

#[tokio::test]
async fn keys_are_found_in_the_order_in_which_they_were_asked_for() {
    let (_cluster, one, other, group) = two_proxies().await;
    let on_a = map_key(&one, &group, &text_key("x"), "a").await;
    let on_b = map_key(&one, &group, &text_key("y"), "b").await;
    let keys = ["y", "none", "x", "y"].map(text_key);
    assert_eq!(other.lookup(&group, &keys).await, Ok(vec![Some(on_b), None, Some(on_a), Some(on_b)]));
    // Half of them known.
    let keys = ["new", "x", "newer"].map(text_key);
    assert_eq!(other.lookup(&group, &keys).await, Ok(vec![None, Some(on_a), None]));
    assert_eq!(other.lookup(&group, &[]).await, Ok(vec![]));
    let snapshot = other.snapshot();
    assert_eq!(snapshot.partition(on_b).map(|(found, _)| found.id), Some(group.id));
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_key_is_asked_for_once_however_many_wait_for_it() {
    let (_cluster, one, other, group) = two_proxies().await;
    let partition = map_key(&one, &group, &text_key("k"), "c").await;
    let key = [text_key("k")];
    let before = other.statistics();
    let answers = join_all((0..100).map(|_| other.lookup(&group, &key))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(vec![Some(partition)])));
    let after = other.statistics();
    // Twice when the map changed in between: the answer was newer than the snapshot.
    assert!(after.lookup_keys - before.lookup_keys <= 2, "{before:?} {after:?}");
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn misses_that_come_together_are_one_query() {
    let (_cluster, one, other, group) = two_proxies().await;
    let before = other.statistics();
    let keys: Vec<[Key; 1]> = (0..2000).map(|number| [text_key(&number.to_string())]).collect();
    let answers = join_all(keys.iter().map(|key| other.lookup(&group, key))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(vec![None])));
    let after = other.statistics();
    assert_eq!(after.lookup_keys - before.lookup_keys, 2000);
    assert!(after.lookup_queries - before.lookup_queries <= 3, "{before:?} {after:?}");
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_key_without_mapping_is_remembered_until_it_is_mapped() {
    let (_cluster, one, other, group) = two_proxies().await;
    let key = text_key("k");
    assert_eq!(other.lookup_cached(group.id, &key), None);
    assert_eq!(other.lookup(&group, std::slice::from_ref(&key)).await, Ok(vec![None]));
    let asked = other.statistics().lookup_queries;
    assert_eq!(other.lookup_cached(group.id, &key), Some(None));
    assert_eq!(other.lookup(&group, std::slice::from_ref(&key)).await, Ok(vec![None]));
    assert_eq!(other.statistics().lookup_queries, asked);

    let other_key = text_key("stays");
    assert_eq!(other.lookup(&group, std::slice::from_ref(&other_key)).await, Ok(vec![None]));
    let partition = map_key(&one, &group, &key, "b").await;
    let epoch = one.store().epoch().await.expect("epoch");
    tokio::time::timeout(Duration::from_secs(1), other.reached(epoch)).await.expect("within a second");
    assert_eq!(other.lookup(&group, std::slice::from_ref(&key)).await, Ok(vec![Some(partition)]));
    assert_eq!(other.lookup_cached(group.id, &other_key), Some(None), "only the changed key was forgotten");
    one.close().await;
    other.close().await;
}

/// Readers that miss all the time while keys are mapped: once a proxy has reached a mapping's epoch it never says "none".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_older_than_the_map_that_was_reached() {
    let (_cluster, one, other, group) = two_proxies().await;
    let keys: Arc<Vec<Key>> = Arc::new((0..60).map(|number| text_key(&format!("k{number}"))).collect());
    let stop = tokio_util::sync::CancellationToken::new();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (other, group, keys, stop) = (other.clone(), group.clone(), keys.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    for key in keys.iter() {
                        other.lookup(&group, std::slice::from_ref(key)).await.expect("an answer");
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for key in keys.iter() {
        let partition = map_key(&one, &group, key, "b").await;
        other.refresh().await.expect("refresh");
        for _ in 0..3 {
            let answer = other.lookup(&group, std::slice::from_ref(key)).await;
            assert_eq!(answer, Ok(vec![Some(partition)]));
            tokio::task::yield_now().await;
        }
    }
    stop.cancel();
    for reader in readers {
        reader.await.expect("a reader");
    }
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_merge_moves_the_keys_of_what_is_gone() {
    let (_cluster, one, other, group) = two_proxies().await;
    let first = map_key(&one, &group, &text_key("x"), "a").await;
    let client = _cluster.connect_map().await;
    // A second partition on the same shard, as after an isolation.
    client
        .batch_execute(
            "BEGIN; SELECT shardgate_map.begin_change('x', 'test', '{}');
             INSERT INTO shardgate_map.partition (group_id, strategy, shard_id)
             SELECT group_id, strategy, shard_id FROM shardgate_map.partition
             WHERE partition_id = (SELECT partition_id FROM shardgate.lookup_keys);
             UPDATE shardgate_map.lookup_key SET partition_id = (SELECT max(partition_id) FROM shardgate_map.partition);
             COMMIT",
        )
        .await
        .expect("isolate");
    other.refresh().await.expect("refresh");
    let key = [text_key("x")];
    let isolated = other.lookup(&group, &key).await.expect("an answer")[0].expect("mapped");
    assert_ne!(isolated, first);
    assert_eq!(one.store().merge_partitions(ACTOR, first, isolated).await.expect("merge"), first);
    other.refresh().await.expect("refresh");
    assert_eq!(other.lookup(&group, &key).await, Ok(vec![Some(first)]));
    assert!(other.snapshot().partition(isolated).is_none());
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_small_cache_answers_rightly_too() {
    let (cluster, one, other, group) = two_proxies().await;
    let small = ShardMap::connect(MapOptions { lookup_cache_entries: 10, ..options(&cluster) }).await.expect("connect");
    let mut expected = Vec::new();
    let keys: Vec<Key> = (0..50).map(|number| text_key(&number.to_string())).collect();
    for (key, shard) in keys.iter().zip(["a", "b", "c"].iter().cycle()) {
        expected.push(Some(map_key(&one, &group, key, shard).await));
    }
    for _ in 0..3 {
        assert_eq!(small.lookup(&group, &keys).await.as_ref(), Ok(&expected));
    }
    one.close().await;
    other.close().await;
    small.close().await;
}
