//! What nobody can do to the map, with whatever SQL: gaps, overlaps, two owners, changes without an epoch.

use shardgate::shardmap::{MapSnapshot, PartitionId, Strategy};
use tokio_postgres::Client;

use super::{ACTOR, connect_map, distribute_hash, distribute_lookup, map_cluster, map_with_shards, text_key};

/// The SQLSTATE with which this fails, as a whole: some constraints speak at COMMIT.
async fn failure(client: &Client, statement: &str) -> String {
    let script = format!("BEGIN; SELECT shardgate_map.begin_change('mallory', 'attack', '{{}}'); {statement}; COMMIT");
    let outcome = client.batch_execute(&script).await;
    client.batch_execute("ROLLBACK").await.expect("roll back");
    match outcome {
        Ok(()) => panic!("accepted: {statement}"),
        Err(error) => error.code().expect("an error of the server").code().to_owned(),
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn no_sql_makes_a_gap_an_overlap_or_a_second_owner() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 4).await.0;
    let lookup = distribute_lookup(&map, "l").await;
    map.store().map_key(ACTOR, ("public", "l"), &text_key("k"), &lookup.key_types, "a").await.expect("map a key");
    let client = cluster.connect_map().await;
    let cases = [
        (
            "the first partition deleted",
            format!("DELETE FROM shardgate_map.partition WHERE group_id = {hash} AND low = ''"),
            "23503",
        ),
        (
            "the first partition begins later",
            format!(
                "UPDATE shardgate_map.partition SET low = '\\x0000000000000001', low_text = 'x' WHERE group_id = {hash} AND low = ''"
            ),
            "23503",
        ),
        ("all partitions deleted", format!("DELETE FROM shardgate_map.partition WHERE group_id = {hash}"), "23503"),
        (
            "two partitions at one place",
            format!(
                "INSERT INTO shardgate_map.partition (group_id, strategy, shard_id, low, low_text)
                     SELECT group_id, strategy, shard_id, low, low_text FROM shardgate_map.partition
                     WHERE group_id = {hash} AND low > '' LIMIT 1"
            ),
            "23505",
        ),
        (
            "two partitions at the beginning",
            format!(
                "INSERT INTO shardgate_map.partition (group_id, strategy, shard_id, low)
                     SELECT {hash}, 'hash', shard_id, '' FROM shardgate_map.shard LIMIT 1"
            ),
            "23505",
        ),
        (
            "an empty first partition",
            format!(
                "INSERT INTO shardgate_map.partition (group_id, strategy, shard_id, low, low_text)
                     SELECT {hash}, 'hash', shard_id, '\\x0000000000000000', 'min' FROM shardgate_map.shard LIMIT 1"
            ),
            "23514",
        ),
        (
            "a bound that is no hash",
            format!(
                "INSERT INTO shardgate_map.partition (group_id, strategy, shard_id, low, low_text)
                     SELECT {hash}, 'hash', shard_id, '\\x01', 'x' FROM shardgate_map.shard LIMIT 1"
            ),
            "23514",
        ),
        (
            "a partition of another strategy",
            format!(
                "INSERT INTO shardgate_map.partition (group_id, strategy, shard_id)
                     SELECT {hash}, 'lookup', shard_id FROM shardgate_map.shard LIMIT 1"
            ),
            "23503",
        ),
        (
            "a partition without a shard",
            format!("UPDATE shardgate_map.partition SET shard_id = NULL WHERE group_id = {hash}"),
            "23502",
        ),
        (
            "a partition on a shard that is not there",
            format!("UPDATE shardgate_map.partition SET shard_id = 4711 WHERE group_id = {hash}"),
            "23503",
        ),
        (
            "a group without partitions",
            "INSERT INTO shardgate_map.colocation_group (strategy, key_types, beginning)
                     VALUES ('range', '{bigint}', '')"
                .to_owned(),
            "23503",
        ),
        (
            "a group that claims to have no beginning",
            format!("UPDATE shardgate_map.colocation_group SET beginning = NULL WHERE group_id = {hash}"),
            "23514",
        ),
        (
            "a key mapped twice",
            "INSERT INTO shardgate_map.lookup_key (group_id, key, key_text, partition_id)
                     SELECT group_id, key, key_text, partition_id FROM shardgate_map.lookup_key"
                .to_owned(),
            "23505",
        ),
        (
            "a key in a partition of another group",
            format!(
                "UPDATE shardgate_map.lookup_key SET partition_id =
                     (SELECT partition_id FROM shardgate_map.partition WHERE group_id = {hash} LIMIT 1)"
            ),
            "23503",
        ),
        (
            "a partition deleted under its keys",
            "DELETE FROM shardgate_map.partition WHERE partition_id IN
                     (SELECT partition_id FROM shardgate_map.lookup_key)"
                .to_owned(),
            "23503",
        ),
        ("a shard deleted under its partitions", "DELETE FROM shardgate_map.shard WHERE name = 'b'".to_owned(), "23503"),
        ("a second home", "UPDATE shardgate_map.shard SET is_home = true WHERE name = 'b'".to_owned(), "23505"),
        (
            "a table without a group",
            "UPDATE shardgate_map.declared_table SET group_id = NULL WHERE table_name = 't'".to_owned(),
            "23514",
        ),
        ("a table deleted by TRUNCATE", "TRUNCATE shardgate_map.declared_table".to_owned(), "55000"),
    ];
    for (what, statement, sqlstate) in cases {
        assert_eq!(failure(&client, &statement).await, sqlstate, "{what}");
    }
    map.close().await;
}

#[tokio::test]
async fn a_change_that_takes_no_epoch_is_refused() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    distribute_hash(&map, "t", 2).await;
    let client = cluster.connect_map().await;
    for statement in [
        "UPDATE shardgate_map.partition SET shard_id = (SELECT min(shard_id) FROM shardgate_map.shard)",
        "DELETE FROM shardgate_map.partition WHERE low > ''",
        "UPDATE shardgate_map.shard SET url = url || 'x'",
        "DELETE FROM shardgate_map.declared_table",
    ] {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code().expect("an error of the server").code(), "55000", "{statement}");
    }
    map.close().await;
}

/// Any number of sessions that split, merge and map at random: the map is whole at every moment that one can see.
#[tokio::test]
async fn the_map_is_whole_whatever_happens_at_once() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 3).await;
    let lookup = distribute_lookup(&map, "l").await;
    let workers: Vec<_> = (0..6_u64).map(|seed| tokio::spawn(attack(map.clone(), hash, lookup.clone(), seed))).collect();
    let observer = connect_map(&cluster).await;
    for _ in 0..20 {
        // A group with a gap or an overlap is an error of the load.
        let change = observer.store().load().await.expect("a whole map");
        assert_is_whole(&change.snapshot);
    }
    let mut changes = 0;
    for worker in workers {
        changes += worker.await.expect("a worker");
    }
    assert!(changes > 50, "the workers changed too little: {changes}");
    // Following change by change leads to the same map as loading it.
    observer.refresh().await.expect("refresh");
    let loaded = observer.store().load().await.expect("load").snapshot;
    assert_eq!(observer.snapshot().groups, loaded.groups);
    assert_eq!(observer.snapshot().epoch, loaded.epoch);
    // Every epoch has its line in the history, and none has two.
    let client = cluster.connect_map().await;
    let row = client
        .query_one("SELECT count(*), max(h.counter), (SELECT counter FROM shardgate_map.cluster) FROM shardgate_map.history h", &[])
        .await
        .expect("history");
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1));
    assert_eq!(row.get::<_, i64>(1), row.get::<_, i64>(2));
    observer.close().await;
    map.close().await;
}

async fn attack(
    map: std::sync::Arc<shardgate::shardmap::ShardMap>,
    hash: shardgate::shardmap::GroupId,
    lookup: std::sync::Arc<shardgate::shardmap::Group>,
    seed: u64,
) -> usize {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let store = map.store();
    let mut changes = 0;
    for _ in 0..40 {
        let snapshot = map.snapshot();
        let group = snapshot.group(hash).expect("the group").clone();
        let any = |random: &mut rand::rngs::StdRng| group.partitions[random.random_range(0..group.partitions.len())].id;
        let made = match random.random_range(0..4) {
            0 | 1 => {
                let at = shardgate::shardmap::Bound::Hash(random.random());
                store.split_partition(ACTOR, &group, group.partition_at(&at).id, &at).await.is_ok()
            }
            2 => store.merge_partitions(ACTOR, any(&mut random), any(&mut random)).await.is_ok(),
            _ => {
                let key = text_key(&random.random_range(0..50).to_string());
                let shard = ["a", "b", "c"][random.random_range(0..3)];
                store.map_key(ACTOR, ("public", "l"), &key, &lookup.key_types, shard).await.is_ok()
            }
        };
        changes += usize::from(made);
        map.refresh().await.expect("refresh");
    }
    changes
}

fn assert_is_whole(snapshot: &MapSnapshot) {
    for group in snapshot.groups.values() {
        for partition in &group.partitions {
            assert!(snapshot.shard(partition.shard).is_some(), "a partition without a shard");
            assert_eq!(group.partition(partition.id), Some(partition));
        }
        assert_eq!(group.partition(PartitionId(0)), None);
        assert!(group.strategy == Strategy::Lookup || group.partitions.first().is_some_and(|first| first.low.is_none()));
    }
}
