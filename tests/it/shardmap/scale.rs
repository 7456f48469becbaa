//! A large map: how long the start takes, and that one change does not read everything again. Times are printed, not asserted.

use std::time::Instant;

use shardgate::shard_key::{Key, KeyDatum};
use shardgate::shardmap::{Bound, PartitionId};

use super::{ACTOR, connect_map, distribute_hash, distribute_lookup, map_cluster, map_with_shards, text_key};

const PARTITIONS: u32 = 100_000;
const KEYS: i32 = 1_000_000;

#[tokio::test]
async fn a_large_map_is_loaded_once_and_followed_row_by_row() {
    let cluster = map_cluster().await;
    let setup = map_with_shards(&cluster).await;
    let began = Instant::now();
    let hash = distribute_hash(&setup, "t", PARTITIONS).await;
    println!("{PARTITIONS} partitions made and loaded as a change: {:?}", began.elapsed());
    let lookup = distribute_lookup(&setup, "l").await;
    fill_lookup(&cluster, lookup.id.0, lookup.partitions[0].id).await;

    let began = Instant::now();
    let map = connect_map(&cluster).await;
    println!("start with {PARTITIONS} partitions and {KEYS} lookup keys: {:?}", began.elapsed());
    assert!(map.statistics().rows_read < u64::from(PARTITIONS) + 100);

    let before = map.statistics();
    let group = map.snapshot().group(hash).expect("the group").clone();
    let at = Bound::Hash(4711);
    map.store().split_partition(ACTOR, &group, group.partition_at(&at).id, &at).await.expect("split");
    let began = Instant::now();
    map.refresh().await.expect("refresh");
    println!("one change: {:?}", began.elapsed());
    let after = map.statistics();
    assert!(after.rows_read - before.rows_read <= 2 && after.full_loads == before.full_loads, "{before:?} {after:?}");

    let began = Instant::now();
    assert_eq!(map.lookup(&lookup, &[number_key(KEYS / 2), text_key("none")]).await, Ok(vec![Some(lookup.partitions[0].id), None]));
    println!("one miss: {:?}", began.elapsed());
    let keys: Vec<Key> = (1..=10_000).map(|number| number_key(number * 50)).collect();
    let began = Instant::now();
    // In parts: each has the second that the map is given to answer.
    for part in keys.chunks(1_000) {
        let answers = map.lookup(&lookup, part).await.expect("answers");
        assert!(answers.iter().all(|answer| *answer == Some(lookup.partitions[0].id)));
    }
    println!("{} misses: {:?}", keys.len(), began.elapsed());
    let began = Instant::now();
    let is_known = keys.iter().all(|key| map.lookup_cached(lookup.id, key).is_some());
    println!("one hit: {:?}", began.elapsed() / 10_000);
    assert!(is_known);
    map.close().await;
    setup.close().await;
}

/// Without the triggers, which a million rows would pay for one by one.
async fn fill_lookup(cluster: &crate::support::Cluster, group: i32, partition: PartitionId) {
    let client = cluster.connect_map().await;
    let script = format!(
        "SET session_replication_role = replica;
         INSERT INTO shardgate_map.lookup_key (group_id, key, key_text, partition_id, epoch)
         SELECT {group}, convert_to(n::text, 'UTF8') || '\\x0000', n::text, {}, 1 FROM generate_series(1, {KEYS}) n;
         ANALYZE shardgate_map.lookup_key;",
        partition.0
    );
    client.batch_execute(&script).await.expect("a million keys");
}

fn number_key(number: i32) -> Key {
    Key::new(vec![KeyDatum::Text(number.to_string().into())])
}
