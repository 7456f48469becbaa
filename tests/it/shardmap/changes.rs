//! Each change of the map: what it does, what it refuses and with which words.

use shardgate::catalog::{Catalog, Column, Relation, RelationKind};
use shardgate::shard_key::{Key, KeyDatum, KeyType};
use shardgate::shardmap::{
    Bound, DeclaredFunction, MoveOptions, NewPartition, NewShard, PartitionId, Placement, ShardMap, ShardState, Strategy, TableKind,
};

use super::{
    ACTOR, add_shard, connect_map, distribute, distribute_hash, distribute_lookup, map_cluster, map_with_shards, now, refusal,
    text_key,
};

#[tokio::test]
async fn the_first_shard_is_home_and_the_next_ones_are_prepared() {
    let cluster = map_cluster().await;
    let map = connect_map(&cluster).await;
    let store = map.store();
    let shard = |name, url| NewShard { name, url, region: Some("eu"), capacity: 2.0, replication_url: None, identity: None };
    let home = store.add_shard(now(store).await, ACTOR, &shard("a", "postgres://a")).await.expect("add a");
    assert_eq!((home.is_home, home.state), (true, ShardState::Online));
    let second = store.add_shard(now(store).await, ACTOR, &shard("b", "postgres://b")).await.expect("add b");
    assert_eq!((second.is_home, second.state), (false, ShardState::Preparing));
    // An interrupted preparation is taken up.
    assert_eq!(store.add_shard(now(store).await, ACTOR, &shard("b", "postgres://b")).await.expect("add b again"), second);
    store.set_shard_state(now(store).await, ACTOR, "b", ShardState::Online).await.expect("online");
    map.refresh().await.expect("refresh");
    let snapshot = map.snapshot();
    assert_eq!(snapshot.home().map(|shard| shard.name.as_str()), Some("a"));
    assert_eq!(snapshot.shard_by_name("b").map(|shard| (shard.id, shard.state)), Some((second.id, ShardState::Online)));
    assert_eq!(snapshot.shard(second.id).and_then(|shard| shard.region.clone()), Some("eu".to_owned()));

    let cases = [
        (shard("b", "postgres://b"), "42710", "shard \"b\" already exists"),
        (shard("c", "postgres://b"), "42710", "shard \"b\" already has this url"),
        (shard("c d", "postgres://c"), "42602", "invalid shard name \"c d\""),
        (shard("", "postgres://c"), "42602", "invalid shard name \"\""),
        (shard("c", ""), "22023", "url must not be empty"),
        (NewShard { capacity: 0.0, ..shard("c", "postgres://c") }, "22023", "capacity must be a number greater than zero"),
        (NewShard { capacity: f64::NAN, ..shard("c", "postgres://c") }, "22023", "capacity must be a number greater than zero"),
    ];
    for (shard, code, message) in cases {
        let error = refusal(store.add_shard(now(store).await, ACTOR, &shard).await);
        assert_eq!((error.code.as_str(), error.message.as_str()), (code, message));
    }
    map.close().await;
}

#[tokio::test]
async fn a_shard_is_dropped_only_when_nothing_is_left_there() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    distribute_hash(&map, "t", 2).await;
    let error = refusal(store.drop_shard(ACTOR, "a").await);
    assert_eq!((error.code.as_str(), error.message.as_str()), ("55006", "cannot drop shard \"a\" because it is the home shard"));
    let error = refusal(store.drop_shard(ACTOR, "b").await);
    assert_eq!(error.message, "cannot drop shard \"b\" because it holds partitions");
    assert_eq!(error.detail.as_deref(), Some("1 partition lives there."));
    let error = refusal(store.drop_shard(ACTOR, "x").await);
    assert_eq!((error.code.as_str(), error.message.as_str()), ("42704", "shard \"x\" does not exist"));
    // A lookup partition without keys holds nothing.
    let lookup = distribute_lookup(&map, "l").await;
    store.map_key(ACTOR, ("public", "l"), &text_key("k"), &lookup.key_types, "b").await.expect("map");
    store.drop_shard(ACTOR, "c").await.expect("drop c");
    map.refresh().await.expect("refresh");
    assert!(map.snapshot().shard_by_name("c").is_none());
    assert_eq!(map.snapshot().group(lookup.id).map(|group| group.partitions.len()), Some(2));
    map.close().await;
}

#[tokio::test]
async fn a_distributed_table_is_routed_by_the_partitions_it_was_given() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let hash = distribute_hash(&map, "t", 4).await;
    let snapshot = map.snapshot();
    let group = snapshot.group(hash).expect("the group");
    let owner = |hash| snapshot.shard(group.partition_at(&Bound::Hash(hash)).shard).map(|shard| shard.name.clone());
    assert_eq!(owner(i64::MIN).as_deref(), Some("a"));
    assert_eq!(owner(-(1 << 62)).as_deref(), Some("b"));
    assert_eq!(owner(-1).as_deref(), Some("b"));
    assert_eq!(owner(0).as_deref(), Some("c"));
    assert_eq!(owner(i64::MAX).as_deref(), Some("a"));
    assert!(matches!(&snapshot.table("public", "t").expect("the table").kind,
        TableKind::Sharded { group, key } if *group == hash && key.len() == 1));

    let day = |text| Bound::Key(Key::parse(&[KeyType::Date], &[text]).expect("a date").ordered_bytes());
    let partitions = vec![
        NewPartition { low: Some(day("2026-07-01")), shard: "b".to_owned() },
        NewPartition { low: None, shard: "a".to_owned() },
    ];
    let placement = Placement::Partitions { partitions, default_shard: None };
    let range = distribute(map.store(), "orders", Strategy::Range, KeyType::Date, placement).await.expect("by range");
    map.refresh().await.expect("refresh");
    let snapshot = map.snapshot();
    let group = snapshot.group(range).expect("the group");
    assert_eq!(group.partition_at(&day("2026-06-30")).low, None);
    assert_eq!(group.partition_at(&day("2026-07-01")).low, Some(day("2026-07-01")));
    let client = cluster.connect_map().await;
    let rows = client
        .query(
            "SELECT low, high, shard FROM shardgate.partitions WHERE colocation_group = $1 ORDER BY low NULLS FIRST",
            &[&range.0],
        )
        .await
        .expect("partitions");
    let shown: Vec<(Option<String>, Option<String>, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let first_of_july = Some("2026-07-01".to_owned());
    assert_eq!(shown, [(None, first_of_july.clone(), "a".to_owned()), (first_of_july, None, "b".to_owned())]);
    map.close().await;
}

#[tokio::test]
async fn what_cannot_be_distributed_is_refused_with_the_reason() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let hash = distribute_hash(&map, "t", 2).await;
    store.reference_table(now(store).await, ACTOR, "public", "languages").await.expect("reference table");
    let at = |low: Option<i64>, shard: &str| NewPartition { low: low.map(Bound::Hash), shard: shard.to_owned() };
    let new = |partitions| Placement::Partitions { partitions, default_shard: None };
    let one = || new(vec![at(None, "a")]);
    let cases = [
        ("t", Strategy::Hash, KeyType::Int8, one(), "42710", "table \"t\" is already sharded"),
        ("languages", Strategy::Hash, KeyType::Int8, one(), "42710", "table \"languages\" is already a reference table"),
        ("u", Strategy::Hash, KeyType::Int8, new(vec![]), "22023", "the number of partitions must be between 1 and 1000000"),
        ("u", Strategy::Hash, KeyType::Int8, new(vec![at(Some(0), "a")]), "22023", "partitions must not leave a gap"),
        (
            "u",
            Strategy::Hash,
            KeyType::Int8,
            new(vec![at(None, "a"), at(Some(1), "a"), at(Some(1), "b")]),
            "22023",
            "partitions must not overlap",
        ),
        ("u", Strategy::Hash, KeyType::Int8, new(vec![at(None, "x")]), "42704", "shard \"x\" does not exist"),
        (
            "u",
            Strategy::Lookup,
            KeyType::Int8,
            Placement::Colocated(hash),
            "42P17",
            "cannot colocate a table sharded by lookup with tables sharded by hash",
        ),
        (
            "u",
            Strategy::Hash,
            KeyType::Text,
            Placement::Colocated(hash),
            "42P17",
            "cannot colocate tables whose shard keys have different types",
        ),
        (
            "u",
            Strategy::Hash,
            KeyType::Int8,
            Placement::Colocated(shardgate::shardmap::GroupId(4711)),
            "42704",
            "colocation group 4711 does not exist",
        ),
    ];
    for (name, strategy, key_type, placement, code, message) in cases {
        let error = refusal(distribute(store, name, strategy, key_type, placement).await);
        assert_eq!((error.code.as_str(), error.message.as_str()), (code, message));
    }
    // Integers of all sizes hash alike.
    let colocated = distribute(store, "u", Strategy::Hash, KeyType::Int4, Placement::Colocated(hash)).await;
    assert_eq!(colocated.expect("colocate"), hash);
    map.close().await;
}

#[tokio::test]
async fn a_group_goes_with_its_last_table_and_renaming_keeps_the_group() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let lookup = distribute_lookup(&map, "l").await;
    store.map_key(ACTOR, ("public", "l"), &text_key("k"), &lookup.key_types, "b").await.expect("map");
    distribute(store, "m", Strategy::Lookup, KeyType::Text, Placement::Colocated(lookup.id)).await.expect("colocate");
    assert!(store.drop_table(ACTOR, "public", "l").await.expect("drop l"));
    assert!(!store.drop_table(ACTOR, "public", "l").await.expect("drop l again"));
    renamed(&map).await;
    let snapshot = map.snapshot();
    assert!(snapshot.table("public", "l").is_none() && snapshot.table("public", "m").is_none());
    assert_eq!(snapshot.tables_of(lookup.id).map(|table| table.name.as_str()).collect::<Vec<_>>(), ["n"]);
    assert!(store.drop_table(ACTOR, "s", "n").await.expect("drop n"));
    map.refresh().await.expect("refresh");
    assert!(map.snapshot().groups.is_empty());
    let client = cluster.connect_map().await;
    let row = client.query_one("SELECT count(*) FROM shardgate.lookup_keys", &[]).await.expect("lookup_keys");
    assert_eq!(row.get::<_, i64>(0), 0);
    map.close().await;
}

/// `public.m` becomes `s.n`, and the column of its key `number`; what a savepoint takes back leaves nothing.
async fn renamed(map: &ShardMap) {
    let store = map.store();
    let epoch = store.epoch().await.expect("epoch");
    let change = store.begin_schema_change(ACTOR, "ALTER TABLE", map.lease().proxy_id(), epoch).await.expect("begin");
    let name = |schema: &str, name: &str| (schema.to_owned(), name.to_owned());
    let (old, never, new) = (name("public", "m"), name("public", "never"), name("s", "n"));
    for to in [&never, &new, &never] {
        store.begin_rename(ACTOR, change, (&old, to), 4711).await.expect("rename m");
    }
    store.begin_key_rename(ACTOR, change, &new, 4711, (0, "number")).await.expect("rename its key");
    store.begin_key_rename(ACTOR, change, &new, 4711, (0, "number")).await.expect("again");
    map.refresh().await.expect("refresh");
    let snapshot = map.snapshot();
    let tables = [&old, &never, &new].map(|name| snapshot.table(&name.0, &name.1).expect("declared").clone());
    assert!(tables.iter().all(|table| table.kind == tables[0].kind), "all names are placed alike");
    assert_eq!(tables[2].renamed.as_ref().expect("renamed").key_names, [["id", "number"]]);

    let second = store.begin_schema_change(ACTOR, "ALTER TABLE", map.lease().proxy_id(), snapshot.epoch).await.expect("begin");
    assert_eq!(refusal(store.begin_rename(ACTOR, second, (&old, &name("public", "x")), 4711).await).code.as_str(), "55006");
    assert_eq!(refusal(store.begin_rename(ACTOR, second, (&name("public", "l"), &never), 1).await).code.as_str(), "40001");
    assert_eq!(refusal(store.begin_rename(ACTOR, change, (&old, &new), 4712).await).code.as_str(), "55006", "another table");
    store.finish_schema_change(ACTOR, second).await.expect("finish");

    // The home shard's schema afterwards.
    let mut home = Catalog::default();
    let mut table = Relation::bare(4711, "s", "n", RelationKind::Table);
    table.columns = vec![Column { name: "number".to_owned(), ..column() }];
    home.relation_names.insert(new.clone(), 4711);
    home.relations.insert(4711, table);
    let seen = snapshot.as_named_in(&home).expect("renamed");
    let TableKind::Sharded { key, .. } = &seen.table("s", "n").expect("declared").kind else { panic!("not sharded") };
    assert_eq!(key[0].column, "number");
    assert_eq!(snapshot.names_in_doubt(&home, None).into_iter().collect::<Vec<_>>(), ["id", "m", "never"]);
    assert!(snapshot.names_in_doubt(&home, Some(change)).is_empty());
    let settled = snapshot.settled(&[change], &home, |_| true);
    assert!(store.settle_renames(ACTOR, &[change], &settled).await.expect("settle"));
    assert!(!store.settle_renames(ACTOR, &[change], &settled).await.expect("once"));
    store.finish_schema_change(ACTOR, change).await.expect("finish");
    assert_eq!(refusal(store.begin_rename(ACTOR, change, (&new, &old), 4711).await).code.as_str(), "40001", "it is closed");
    map.refresh().await.expect("refresh");
    let snapshot = map.snapshot();
    assert!(snapshot.table("public", "m").is_none() && snapshot.table("public", "never").is_none());
    let table = snapshot.table("s", "n").expect("declared");
    assert!(table.renamed.is_none() && table.key_names() == [["number"]]);
}

fn column() -> Column {
    Column {
        name: String::new(),
        attnum: 1,
        type_oid: 25,
        type_name: "text".to_owned(),
        typmod: -1,
        is_not_null: true,
        is_deterministic: true,
        is_collation_c: true,
        collation: None,
        default: None,
        is_generated: false,
        identity: None,
    }
}

#[tokio::test]
async fn keys_are_mapped_once_and_not_past_rows_that_may_exist() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let lookup = distribute_lookup(&map, "l").await;
    let table = ("public", "l");
    let types = &lookup.key_types;
    let on_b = store.map_key(ACTOR, table, &text_key("k"), types, "b").await.expect("map");
    assert_eq!(store.map_key(ACTOR, table, &text_key("k"), types, "b").await.expect("map again"), on_b);
    assert_eq!(store.map_key(ACTOR, table, &text_key("j"), types, "b").await.expect("map another"), on_b);
    let error = refusal(store.map_key(ACTOR, table, &text_key("k"), types, "c").await);
    assert_eq!((error.code.as_str(), error.message.as_str()), ("55000", "the key is already mapped to shard \"b\""));

    let default = store.set_default_shard(ACTOR, table, "c").await.expect("default");
    assert_eq!(store.set_default_shard(ACTOR, table, "c").await.expect("default again"), default);
    assert_eq!(refusal(store.set_default_shard(ACTOR, table, "a").await).code.as_str(), "55000");
    let error = refusal(store.map_key(ACTOR, table, &text_key("new"), types, "a").await);
    assert_eq!(error.message, "cannot map the key to shard \"a\" because its rows may be on the default shard \"c\"");
    let on_c = store.map_key(ACTOR, table, &text_key("new"), types, "c").await.expect("map where the rows are");
    assert_ne!(on_c, default);

    distribute_hash(&map, "t", 2).await;
    let error = refusal(store.map_key(ACTOR, ("public", "t"), &text_key("k"), types, "a").await);
    assert_eq!(error.message, "table \"t\" is sharded by hash, not by lookup");
    let error = refusal(store.map_key(ACTOR, ("public", "x"), &text_key("k"), types, "a").await);
    assert_eq!((error.code.as_str(), error.message.as_str()), ("42P01", "table \"x\" is not sharded"));
    map.close().await;
}

#[tokio::test]
async fn a_lookup_table_with_rows_has_its_default_from_the_first_moment() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let partitions = vec![NewPartition { low: None, shard: "a".to_owned() }];
    let placement = Placement::Partitions { partitions, default_shard: Some("a".to_owned()) };
    let group = distribute(map.store(), "l", Strategy::Lookup, KeyType::Text, placement).await.expect("distribute");
    map.refresh().await.expect("refresh");
    let snapshot = map.snapshot();
    let group = snapshot.group(group).expect("the group");
    let owner = group.partition_of_mapping(None).and_then(|partition| snapshot.shard(partition.shard));
    assert_eq!(owner.map(|shard| shard.name.as_str()), Some("a"));
    map.close().await;
}

#[tokio::test]
async fn partitions_are_split_and_merged_where_they_may_be() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let hash = distribute_hash(&map, "t", 2).await;
    let group = map.snapshot().group(hash).expect("the group").clone();
    let (first, second) = (group.partitions[0].id, group.partitions[1].id);
    for at in [i64::MIN, 0, 5] {
        let error = refusal(store.split_partition(ACTOR, &group, first, &Bound::Hash(at)).await);
        assert_eq!(error.message, format!("cannot split partition {} at its edge or outside of it", first.0));
        assert_eq!(error.detail.as_deref(), Some("The partition reaches from the beginning to 0."));
    }
    let upper = store.split_partition(ACTOR, &group, first, &Bound::Hash(-7)).await.expect("split");
    map.refresh().await.expect("refresh");
    let group = map.snapshot().group(hash).expect("the group").clone();
    assert_eq!(group.partition_at(&Bound::Hash(-8)).id, first);
    assert_eq!(group.partition_at(&Bound::Hash(-7)).id, upper);
    assert_eq!(group.partition(upper).map(|partition| partition.shard), group.partition(first).map(|partition| partition.shard));

    let error = refusal(store.merge_partitions(ACTOR, upper, second).await);
    assert_eq!(error.detail.as_deref(), Some("They are on different shards."));
    let third = store.split_partition(ACTOR, &group, upper, &Bound::Hash(-3)).await.expect("split");
    assert_eq!(refusal(store.merge_partitions(ACTOR, third, first).await).detail.as_deref(), Some("They are not neighbours."));
    assert_eq!(refusal(store.merge_partitions(ACTOR, first, first).await).code.as_str(), "22023");
    assert_eq!(refusal(store.merge_partitions(ACTOR, first, PartitionId(4711)).await).code.as_str(), "42704");
    assert_eq!(store.merge_partitions(ACTOR, third, upper).await.expect("merge"), upper);
    assert_eq!(store.merge_partitions(ACTOR, first, upper).await.expect("merge"), first);
    map.refresh().await.expect("refresh");
    assert_eq!(map.snapshot().group(hash).map(|group| group.partitions.len()), Some(2));

    let lookup = distribute_lookup(&map, "l").await;
    let at = Bound::Key(text_key("m").ordered_bytes());
    let error = refusal(store.split_partition(ACTOR, &lookup, lookup.partitions[0].id, &at).await);
    assert!(error.message.starts_with("cannot split lookup partition"), "{error}");
    map.close().await;
}

#[tokio::test]
async fn a_moving_partition_keeps_its_keys_tables_and_bounds() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let store = map.store();
    let hash = distribute_hash(&map, "t", 2).await;
    let group = map.snapshot().group(hash).expect("the group").clone();
    let lookup = distribute_lookup(&map, "l").await;
    let table = ("public", "l");
    let default = store.set_default_shard(ACTOR, table, "a").await.expect("default");
    let moving_hash = group.partitions[0].id;
    let split = store.split_partition(ACTOR, &group, moving_hash, &Bound::Hash(-7)).await.expect("split");
    let moving_lookup = lookup.partitions[0].id;
    let client = cluster.connect_map().await;
    let change = store.begin_schema_change(ACTOR, "ALTER TABLE", map.lease().proxy_id(), map.snapshot().epoch).await;
    let change = change.expect("no move runs");
    let insert = "WITH made AS (INSERT INTO shardgate_map.move (group_id, source, target, state) VALUES (1, 'a', 'b', 'planned') RETURNING move_id)
                  INSERT INTO shardgate_map.move_partition SELECT move_id, $1 FROM made";
    client.execute(insert, &[&moving_hash.0]).await.expect("a move");
    let name = |name: &str| ("public".to_owned(), name.to_owned());
    assert_eq!(refusal(store.begin_rename(ACTOR, change, (&name("t"), &name("u")), 1).await).code.as_str(), "55006");
    store.finish_schema_change(ACTOR, change).await.expect("finish");
    for state in ["planned", "copying", "switched", "cleaning_up", "failed"] {
        client.batch_execute("DELETE FROM shardgate_map.move").await.expect("no moves");
        for partition in [moving_hash, moving_lookup, default] {
            let insert = "WITH made AS (INSERT INTO shardgate_map.move (group_id, source, target, state) VALUES (1, 'a', 'b', $2)
                                        RETURNING move_id)
                          INSERT INTO shardgate_map.move_partition SELECT move_id, $1 FROM made";
            client.execute(insert, &[&partition.0, &state]).await.expect("a move");
            // A partition is in one move at a time.
            let second = store.plan_move(ACTOR, &[partition], "b", &MoveOptions::default(), None).await;
            assert_eq!(refusal(second).code.as_str(), "55006");
        }
        let busy = format!("partition {} is being moved", moving_hash.0);
        let mut refused = vec![
            refusal(store.split_partition(ACTOR, &group, moving_hash, &Bound::Hash(-99)).await),
            refusal(store.merge_partitions(ACTOR, moving_hash, split).await),
            refusal(store.merge_partitions(ACTOR, split, moving_hash).await),
            refusal(distribute(store, "u", Strategy::Hash, KeyType::Int8, Placement::Colocated(hash)).await),
        ];
        // A move that is only planned has fixed nothing, and does not keep a table that the shards have dropped.
        if state != "planned" {
            refused.push(refusal(store.drop_table(ACTOR, "public", "t").await));
        }
        for error in refused {
            assert_eq!((error.code.as_str(), &error.message), ("55006", &busy), "{state}");
            assert!(error.hint.is_some());
        }
        assert_eq!(refusal(store.map_key(ACTOR, table, &text_key("x"), &lookup.key_types, "a").await).code.as_str(), "55006");
        assert!(refusal(store.drop_shard(ACTOR, "b").await).message.contains("because move"));
    }
    // Without the default moving: a key goes to another partition than the one whose filter is fixed.
    client
        .execute(
            "UPDATE shardgate_map.move m SET state = 'aborted' FROM shardgate_map.move_partition p
                 WHERE p.move_id = m.move_id AND p.partition_id = $1",
            &[&default.0],
        )
        .await
        .expect("abort");
    let other = store.map_key(ACTOR, table, &text_key("x"), &lookup.key_types, "a").await.expect("map");
    assert!(other != moving_lookup && other != default);
    client.batch_execute("UPDATE shardgate_map.move SET state = 'done'").await.expect("done");
    store.merge_partitions(ACTOR, moving_hash, split).await.expect("merge after the move");
    map.close().await;
}

#[tokio::test]
async fn declared_functions_are_replaced_and_dropped() {
    let cluster = map_cluster().await;
    let map = connect_map(&cluster).await;
    add_shard(map.store(), "a").await;
    let table = |name: &str| ("public".to_owned(), name.to_owned());
    let function = |key_argument| DeclaredFunction {
        schema: "public".to_owned(),
        name: "f".to_owned(),
        reads: vec![table("t"), ("a.b".to_owned(), "c\"d".to_owned())],
        writes: vec![table("u")],
        key_argument,
        declared_as: key_argument.map(|_| vec!["one".to_owned(), "another".to_owned()]),
    };
    map.store().declare_function(ACTOR, &function(None)).await.expect("declare");
    map.store().declare_function(ACTOR, &function(Some(2))).await.expect("declare again");
    map.refresh().await.expect("refresh");
    let name = ("public".to_owned(), "f".to_owned());
    assert_eq!(map.snapshot().functions.get(&name).map(|found| (**found).clone()), Some(function(Some(2))));
    assert_eq!(refusal(map.store().declare_function(ACTOR, &function(Some(0))).await).code.as_str(), "22023");
    assert!(map.store().drop_function(ACTOR, "public", "f").await.expect("drop"));
    assert!(!map.store().drop_function(ACTOR, "public", "f").await.expect("drop again"));
    map.refresh().await.expect("refresh");
    assert!(map.snapshot().functions.is_empty());
    map.close().await;
}

#[tokio::test]
async fn unique_ids_are_given_once_and_grow() {
    let cluster = map_cluster().await;
    let map = connect_map(&cluster).await;
    let one = || async { map.store().reserve_unique_ids(100).await.expect("a block") };
    let blocks = futures::future::join_all((0..20).map(|_| one())).await;
    let mut ids: Vec<i64> = blocks.into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2000);
    assert!(one().await.start > ids[1999]);
    assert_eq!(refusal(map.store().reserve_unique_ids(0).await).code.as_str(), "22023");
    map.close().await;
}

#[tokio::test]
async fn the_relations_show_the_map_without_secrets() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    distribute_hash(&map, "t", 3).await;
    map.store().reference_table(now(map.store()).await, ACTOR, "books", "languages").await.expect("reference table");
    let home = [("public".to_owned(), "t".to_owned()), ("public".to_owned(), "settings".to_owned())];
    map.store().replace_home_tables(&home).await.expect("home tables");
    let key = Key::new(vec![KeyDatum::Text("0-19-853453-1".into())]);
    let lookup = distribute_lookup(&map, "l").await;
    map.store().map_key(ACTOR, ("public", "l"), &key, &lookup.key_types, "c").await.expect("map");
    let client = cluster.connect_map().await;
    let json = |relation: &'static str, order: &'static str| {
        let client = &client;
        async move {
            let query = format!("SELECT coalesce(json_agg(r ORDER BY {order})::text, '') FROM shardgate.{relation} r");
            client.query_one(&query, &[]).await.expect(relation).get::<_, String>(0)
        }
    };
    let columns = [
        ("shards", "name", "name region capacity state is_home partitions"),
        ("tables", "table_name", "table_name kind strategy key colocation_group"),
        ("partitions", "partition_id", "partition_id colocation_group strategy low high shard state epoch"),
        ("lookup_keys", "key", "colocation_group key partition_id"),
        (
            "moves",
            "move_id",
            "move_id partition_id source target state rows_copied bytes_copied lag_bytes pause_ms started_at error",
        ),
        ("proxies", "proxy_id", "proxy_id address epoch last_seen clients"),
        ("transactions", "gid", "gid state participants age"),
        ("history", "epoch", "epoch changed_at actor change arguments"),
    ];
    for (relation, order, names) in columns {
        let list = names.replace(' ', ", ");
        client.query(&format!("SELECT {list} FROM shardgate.{relation}"), &[]).await.expect(relation);
        assert!(!json(relation, order).await.contains("secret"), "{relation} shows a password");
    }
    let tables = client.query("SELECT table_name, kind FROM shardgate.tables ORDER BY 1", &[]).await.expect("tables");
    let tables: Vec<(String, String)> = tables.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [("books.languages", "reference"), ("l", "sharded"), ("settings", "home"), ("t", "sharded")];
    assert_eq!(tables, expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    let history = client.query_one("SELECT actor, arguments->>'shard' FROM shardgate.history WHERE change = 'map_key'", &[]).await;
    let history = history.expect("history");
    assert_eq!((history.get::<_, &str>(0), history.get::<_, &str>(1)), (ACTOR, "c"));
    map.close().await;
}
