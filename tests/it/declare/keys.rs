//! Keys, partitions, functions, ids.

use super::{Declarer, code, told};

async fn located(d: &Declarer, arguments: &[&str]) -> String {
    d.call("locate", arguments).await.expect("locate").rows[0][1].clone().expect("a shard")
}

#[tokio::test]
async fn lookup_keys_go_where_they_are_mapped() {
    let d = Declarer::with_schema(3, "CREATE TABLE books (isbn text PRIMARY KEY); CREATE TABLE h (id int PRIMARY KEY)").await;
    d.call("distribute_table", &["books", "right(isbn, 1)", "lookup"]).await.expect("distribute");
    for (key, shard) in [("0", "shard0"), ("3", "shard1"), ("4", "shard1"), ("X", "shard1"), ("6", "shard2")] {
        d.call("map_key", &["books", key, shard]).await.expect("map");
    }
    assert_eq!(located(&d, &["books", "019515448X"]).await, "shard1");
    assert_eq!(located(&d, &["books", "6"]).await, "shard2");
    assert_eq!(
        d.call("map_key", &["books", "3", "shard1"]).await.expect("again").rows,
        d.call("map_key", &["books", "4", "shard1"]).await.unwrap().rows
    );
    let error = d.call("locate", &["books", "9"]).await.unwrap_err();
    assert_eq!(code(&error), "SG001");
    assert!(told(&d.call("map_key", &["books", "0195154480", "shard0"]).await.unwrap_err()).contains("result of the key function"));
    assert_eq!(code(&d.call("map_key", &["books", "9", "shard7"]).await.unwrap_err()), "42704");
    assert!(told(&d.call("map_key", &["books", "3", "shard0"]).await.unwrap_err()).contains("already mapped to shard \"shard1\""));
    d.call("set_default_shard", &["books", "shard2"]).await.expect("default");
    assert_eq!(located(&d, &["books", "9"]).await, "shard2");
    d.call("distribute_table", &["h", "id"]).await.expect("hash");
    assert!(told(&d.call("map_key", &["h", "1", "shard0"]).await.unwrap_err()).contains("sharded by hash, not by lookup"));
    assert!(told(&d.call("map_key", &["bookz", "1", "shard0"]).await.unwrap_err()).contains("Perhaps you meant \"public.books\"."));
}

#[tokio::test]
async fn partitions_split_and_merge() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE orders (at date, id int, PRIMARY KEY (at, id)); CREATE TABLE h (id int PRIMARY KEY)",
    )
    .await;
    d.call("distribute_table", &["orders", "at", "range"]).await.expect("distribute");
    let lower = d.call("locate", &["orders", "2024-01-01"]).await.unwrap().rows[0][0].clone().unwrap();
    let upper = d.call("split_partition", &[&lower, "2024-02-01"]).await.expect("split").rows[0][0].clone().unwrap();
    assert_ne!(lower, upper);
    assert_eq!(d.call("locate", &["orders", "2024-02-01"]).await.unwrap().rows[0][0].as_deref(), Some(upper.as_str()));
    assert_eq!(d.call("locate", &["orders", "2024-01-31"]).await.unwrap().rows[0][0].as_deref(), Some(lower.as_str()));
    assert!(told(&d.call("split_partition", &[&upper, "2024-02-01"]).await.unwrap_err()).contains("at its edge"));
    assert_eq!(code(&d.call("split_partition", &["999", "2024-02-01"]).await.unwrap_err()), "42704");
    assert_eq!(code(&d.call("split_partition", &[&upper, "tomorrow"]).await.unwrap_err()), "22P02");
    assert_eq!(d.call("merge_partitions", &[&upper, &lower]).await.expect("merge").rows[0][0].as_deref(), Some(lower.as_str()));
    d.call("distribute_table", &["h", "id"]).await.expect("hash");
    let partition = d.call("locate", &["h", "1"]).await.unwrap().rows[0][0].clone().unwrap();
    assert!(told(&d.call("split_partition", &[&partition, "x"]).await.unwrap_err()).contains("which is a bigint"));
}

#[tokio::test]
async fn functions_are_declared_with_tables_that_exist() {
    let d =
        Declarer::with_schema(1, "CREATE TABLE a (x int); CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql AS 'select 1'").await;
    d.call_named("declare_function", &[("", "f"), ("reads", "{a}"), ("key_argument", "1")]).await.expect("declare");
    let declared = d.map.snapshot().functions.values().next().cloned().expect("one function");
    assert_eq!((declared.schema.as_str(), declared.reads.len(), declared.key_argument), ("public", 1, Some(1)));
    assert_eq!(code(&d.call("declare_function", &["g"]).await.unwrap_err()), "42883");
    assert_eq!(code(&d.call_named("declare_function", &[("", "f"), ("writes", "{nothing}")]).await.unwrap_err()), "42P01");
    assert_eq!(code(&d.call_named("declare_function", &[("", "f"), ("key_argument", "2")]).await.unwrap_err()), "22023");
}

#[tokio::test]
async fn ids_are_unique_and_grow() {
    let d = Declarer::start(1).await;
    let mut last = 0;
    for _ in 0..100 {
        let answer = d.call("unique_id", &[]).await.expect("id");
        assert_eq!(answer.columns, [("unique_id".to_owned(), 20)]);
        let id: i64 = answer.rows[0][0].as_deref().unwrap().parse().unwrap();
        assert!(id > last);
        last = id;
    }
}

async fn mapped(d: &Declarer, arguments: &[&str]) -> String {
    d.call("map_keys", arguments).await.expect("map").rows[0][0].clone().expect("a count")
}

#[tokio::test]
async fn keys_are_mapped_by_the_thousand_in_one_change() {
    let d = Declarer::with_schema(2, "CREATE TABLE tenants (name text PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)").await;
    d.call("distribute_table", &["tenants", "name", "lookup"]).await.expect("distribute");
    d.call("distribute_table", &["other", "id"]).await.expect("distribute");
    let list = |range: std::ops::Range<usize>| format!("{{{}}}", range.map(|n| format!("k{n}")).collect::<Vec<_>>().join(","));
    let before = d.map.snapshot().epoch;
    assert_eq!(mapped(&d, &["tenants", &list(0..5000), "shard1"]).await, "5000");
    assert_eq!(d.map.snapshot().epoch.counter, before.counter + 1);
    // Again, and some more of them twice: only what is new.
    assert_eq!(mapped(&d, &["tenants", &list(0..5000), "shard1"]).await, "0");
    assert_eq!(d.map.snapshot().epoch.counter, before.counter + 1);
    assert_eq!(mapped(&d, &["tenants", "{k1,new,new}", "shard1"]).await, "1");
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.lookup_keys").await, "5001");
    for (arguments, expected, message) in [
        (["tenants", "{k1,x,k2}", "shard0"], "55000", "2 of the keys are already mapped to other shards, one to shard \"shard1\""),
        (["tenants", "{}", "shard0"], "22023", "the number of keys must be between 1 and 100000"),
        (["tenants", "{a}", "shard9"], "42704", "shard \"shard9\" does not exist"),
        (["other", "{1}", "shard0"], "55000", "table \"other\" is sharded by hash, not by lookup"),
        (["nothing", "{1}", "shard0"], "42P01", "table \"nothing\" is not sharded"),
    ] {
        let error = d.call("map_keys", &arguments).await.unwrap_err();
        assert_eq!((code(&error).as_str(), error.message.as_str()), (expected, message));
    }
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.lookup_keys").await, "5001", "all or none");
    d.call("set_default_shard", &["tenants", "shard0"]).await.expect("a default");
    let error = d.call("map_keys", &["tenants", "{k1,y}", "shard1"]).await.unwrap_err();
    assert_eq!(error.message, "cannot map the keys to shard \"shard1\" because their rows may be on the default shard \"shard0\"");
}

#[tokio::test]
async fn a_range_table_begins_with_its_pieces_on_their_shards() {
    let d = Declarer::with_schema(
        3,
        "CREATE TABLE orders (at date PRIMARY KEY); CREATE TABLE old (id int PRIMARY KEY); INSERT INTO old VALUES (1)",
    )
    .await;
    let bounds = "{2026-01-01,2026-02-01,2026-03-01}";
    let declare = |table: &'static str, key: &'static str, rest: Vec<(&'static str, &'static str)>| {
        let mut arguments = vec![("", table), ("", key)];
        arguments.extend(rest);
        arguments
    };
    d.call_named(
        "distribute_table",
        &declare("orders", "at", vec![("strategy", "range"), ("bounds", bounds), ("on_shards", "shard1, shard2, shard0")]),
    )
    .await
    .expect("declared");
    let pieces = "SELECT string_agg(coalesce(low, '') || ' ' || shard, ', ' ORDER BY low NULLS FIRST) FROM shardgate.partitions";
    assert_eq!(d.value_on_map(pieces).await, " shard1, 2026-01-01 shard2, 2026-02-01 shard0, 2026-03-01 shard1");
    // What a table has already stays where it is.
    d.call_named("distribute_table", &declare("old", "id", vec![("strategy", "range"), ("bounds", "{10,20}")]))
        .await
        .expect("declared");
    let at_home = "SELECT string_agg(DISTINCT shard, ',') FROM shardgate.partitions WHERE low = '10'";
    assert_eq!(d.value_on_map(at_home).await, "shard0");
    d.on_shard(0, "CREATE TABLE t (id int PRIMARY KEY)").await;
    for (rest, message) in [
        (vec![("bounds", "{1}")], "bounds are given for strategy 'range' only, without colocate_with"),
        (
            vec![("strategy", "range"), ("planned_shards", "3")],
            "planned_shards is given for strategy 'hash' only, without colocate_with",
        ),
        (vec![("planned_shards", "0")], "planned_shards must be between 1 and 10000"),
        (
            vec![("strategy", "range"), ("bounds", "{1}"), ("colocate_with", "old")],
            "bounds are given for strategy 'range' only, without colocate_with",
        ),
        (vec![("strategy", "range"), ("bounds", "{2,1}")], "the bounds of the partitions do not ascend"),
        (vec![("strategy", "range"), ("bounds", "{1,1}")], "the bounds of the partitions do not ascend"),
        (vec![("strategy", "range"), ("bounds", "{x}")], "invalid shard key value for type integer"),
    ] {
        let error = d.call_named("distribute_table", &declare("t", "id", rest)).await.unwrap_err();
        assert_eq!(error.message, message);
    }
    d.call_named("distribute_table", &declare("t", "id", vec![("planned_shards", "12")])).await.expect("declared");
    let made = "SELECT max(count) FROM (SELECT count(*) FROM shardgate.partitions GROUP BY colocation_group) g";
    assert_eq!(d.value_on_map(made).await, "120");
}
