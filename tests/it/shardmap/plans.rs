//! What a declaration or a schema change was planned by is what the map still is, or it is refused.

use shardgate::error::PgError;
use shardgate::shardmap::{
    GroupOfTables, NewPartition, NewShard, NewShardedTable, Placement, Planned, ShardMap, ShardState, Strategy,
};

use super::{ACTOR, connect_map, distribute_hash, id_column, map_cluster, map_with_shards, now, refusal};
use shardgate::shard_key::KeyType;

/// What every change that a declaration makes is answered under this plan.
async fn answers(map: &ShardMap, planned: Planned) -> Vec<PgError> {
    let store = map.store();
    let shard = NewShard { name: "d", url: "postgres://d", region: None, capacity: 1.0, replication_url: None, identity: None };
    let partitions = vec![NewPartition { low: None, shard: "a".to_owned() }];
    let table = NewShardedTable { schema: "public", name: "new", key: &[id_column(KeyType::Int8)], key_text: "id" };
    let placement = Placement::Partitions { partitions, default_shard: None };
    let group = GroupOfTables { key_types: &[KeyType::Int8], strategy: Strategy::Hash, placement };
    vec![
        refusal(store.add_shard(planned, ACTOR, &shard).await),
        refusal(store.set_shard_state(planned, ACTOR, "b", ShardState::Online).await),
        refusal(store.distribute_tables(planned, ACTOR, &[table], &group).await),
        refusal(store.reference_table(planned, ACTOR, "public", "new").await),
    ]
}

async fn expect_refused(map: &ShardMap, planned: Planned, message: &str) {
    let before = map.store().epoch().await.expect("the epoch");
    for error in answers(map, planned).await {
        assert_eq!((error.code.as_str(), error.message.as_str()), ("40001", message));
        assert!(error.hint.is_some_and(|hint| hint.starts_with("Call the function again")));
    }
    assert_eq!(map.store().epoch().await.expect("the epoch"), before);
}

const OUTDATED: &str = "shards, tables or their schema were changed since the declaration was planned";

#[tokio::test]
async fn a_plan_by_other_shards_or_tables_is_refused() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let by_shards = now(store).await;
    super::add_shard(store, "e").await;
    expect_refused(&map, by_shards, OUTDATED).await;
    let by_tables = now(store).await;
    distribute_hash(&map, "t", 2).await;
    expect_refused(&map, by_tables, OUTDATED).await;
    let by_a_table_that_is_gone = now(store).await;
    store.drop_table(ACTOR, "public", "t").await.expect("drop");
    expect_refused(&map, by_a_table_that_is_gone, OUTDATED).await;
    let by_a_shard_that_is_gone = now(store).await;
    store.drop_shard(ACTOR, "e").await.expect("drop");
    expect_refused(&map, by_a_shard_that_is_gone, OUTDATED).await;
    // What does not concern it is no matter.
    let planned = now(store).await;
    store.replace_home_tables(&[("public".to_owned(), "h".to_owned())]).await.expect("home tables");
    store.reference_table(planned, ACTOR, "public", "new").await.expect("as it was planned");
    map.close().await;
}

#[tokio::test]
async fn a_plan_by_another_schema_is_refused_while_it_changes_and_afterwards() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let planned = now(store).await;
    let epoch = store.epoch().await.expect("the epoch");
    let change = store.begin_schema_change(ACTOR, "ALTER TABLE", map.lease().proxy_id(), epoch).await.expect("begin");
    expect_refused(&map, planned, "the schema of the shards is being changed").await;
    expect_refused(&map, now(store).await, "the schema of the shards is being changed").await;
    store.finish_schema_change(ACTOR, change).await.expect("finish");
    expect_refused(&map, planned, OUTDATED).await;
    store.reference_table(now(store).await, ACTOR, "public", "new").await.expect("planned anew");
    map.close().await;
}

#[tokio::test]
async fn nothing_is_taken_of_a_declaration_before_the_last_one() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let (first, _) = map.store().begin_declaration().await.expect("the first");
    let (second, open_changes) = map.store().begin_declaration().await.expect("the second");
    assert_eq!(open_changes, 0);
    expect_refused(&map, first, "another declaration has begun since this one").await;
    map.store().reference_table(second, ACTOR, "public", "new").await.expect("the last");
    map.close().await;
}

#[tokio::test]
async fn a_schema_change_that_was_planned_before_a_declaration_is_refused() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let (store, proxy) = (map.store(), map.lease().proxy_id());
    let before = store.epoch().await.expect("the epoch");
    distribute_hash(&map, "t", 2).await;
    let error = refusal(store.begin_schema_change(ACTOR, "CREATE INDEX", proxy, before).await);
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("40001", "shards or tables were declared since the statement was planned")
    );
    let after = store.epoch().await.expect("the epoch");
    store.begin_schema_change(ACTOR, "CREATE INDEX", proxy, after).await.expect("planned anew");
    map.close().await;
}

#[tokio::test]
async fn the_second_first_shard_is_not_registered_by_the_way() {
    let cluster = map_cluster().await;
    let map = connect_map(&cluster).await;
    let planned = now(map.store()).await;
    super::add_shard(map.store(), "a").await;
    let shard = NewShard { name: "b", url: "postgres://b", region: None, capacity: 1.0, replication_url: None, identity: None };
    assert_eq!(refusal(map.store().add_shard(planned, ACTOR, &shard).await).message, OUTDATED);
    map.close().await;
}
