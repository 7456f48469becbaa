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
