//! Partitions are split and merged, and one key gets a partition of its own and moves: by the command and in SQL.

use serde_json::Value;

use super::aborts::started;
use super::operators::until_move;
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy};

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g;
     CREATE TABLE days (day date, n int, PRIMARY KEY (day, n));
     INSERT INTO days SELECT date '2024-01-01' + g, 1 FROM generate_series(0, 99) g;
     CREATE TABLE tenants (name text, n int, PRIMARY KEY (name, n));
     INSERT INTO tenants SELECT 'tenant' || g % 10, g FROM generate_series(0, 99) g";

/// What a command says that has to succeed.
async fn done(cluster: &Cluster, arguments: &[&str]) -> Value {
    let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn refused(cluster: &Cluster, arguments: &[&str], part: &str) {
    let output = rebalance(cluster, arguments).await;
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {told}");
    assert!(told.contains(part), "{arguments:?}: {told}");
}

/// Partition and shard of a key.
async fn located(proxy: &Proxy, table: &str, key: &str) -> (i32, String) {
    let sql = format!("SELECT partition_id, shard FROM shardgate.locate('{table}', '{key}')");
    let row = proxy.connect().await.query_one(&sql, &[]).await.expect("locate");
    (row.get(0), row.get(1))
}

/// All rows are seen once, and none lies where it is not owned.
async fn nothing_lost(cluster: &Cluster, proxy: &Proxy) {
    let client = proxy.connect().await;
    for (table, rows) in [("t", 1000_i64), ("days", 100), ("tenants", 100)] {
        let count: i64 = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.expect("count").get(0);
        assert_eq!(count, rows, "{table}");
    }
    let healthy = rebalance(cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stdout));
    assert_eq!(leftovers(cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn partitions_are_split_and_merged_and_told_so_when_they_are_already() {
    let (cluster, proxy) = started(TABLE).await;
    let client = proxy.connect().await;
    client
        .batch_execute("SELECT shardgate.distribute_table('days', 'day', strategy => 'range', bounds => ARRAY['2024-02-01'])")
        .await
        .expect("distribute_table");
    let hashed = partitions_on(&proxy, "t", "a").await;
    let first = hashed[0].to_string();
    let split = done(&cluster, &["split", "--partition", &first, "--into", "3"]).await;
    let pieces: Vec<i64> =
        split["pieces"].as_array().expect("pieces").iter().map(|piece| piece["partition_id"].as_i64().expect("id")).collect();
    assert_eq!((pieces.len(), pieces[0]), (3, i64::from(hashed[0])), "{split}");
    assert_eq!(partitions_on(&proxy, "t", "a").await.len(), 6);
    // Merged again, neighbour by neighbour; a second time it is told that it is so.
    let (middle, last) = (pieces[1].to_string(), pieces[2].to_string());
    refused(&cluster, &["merge", "--partitions", &format!("{first},{last}")], "not neighbours").await;
    for unchanged in [false, true] {
        let merged = done(&cluster, &["merge", "--partitions", &format!("{last},{middle}")]).await;
        assert_eq!(
            (&merged["is_unchanged"], &merged["pieces"][0]["partition_id"]),
            (&Value::Bool(unchanged), &Value::from(pieces[1]))
        );
    }
    for unchanged in [false, true] {
        let split = done(&cluster, &["split", "--partition", &first, "--at", "-9000000000000000000"]).await;
        assert_eq!(
            (&split["is_unchanged"], split["pieces"].as_array().expect("pieces").len()),
            (&Value::Bool(unchanged), 2),
            "{split}"
        );
    }
    refused(&cluster, &["split", "--partition", &first, "--at", "9000000000000000000"], "at its edge or outside of it").await;
    refused(&cluster, &["split", "--partition", "999", "--into", "2"], "does not exist").await;
    refused(&cluster, &["merge", "--partitions", &format!("{first},999")], "999").await;
    let (day, _) = located(&proxy, "days", "2024-03-01").await;
    refused(&cluster, &["split", "--partition", &day.to_string(), "--into", "2"], "--at KEY").await;
    let split = done(&cluster, &["split", "--partition", &day.to_string(), "--at", "2024-03-01"]).await;
    assert_eq!(split["pieces"][1]["low"], "2024-03-01");
    for arguments in
        [&["split", "--partition", "1"][..], &["merge", "--partitions", "1"], &["split", "--partition", "1", "--into", "1"]]
    {
        assert_eq!(rebalance(&cluster, arguments).await.status.code(), Some(2), "{arguments:?}");
    }
    let shown = rebalance(&cluster, &["split", "--partition", &day.to_string(), "--at", "2024-03-01"]).await;
    assert!(text(&shown.stdout).contains("from 2024-02-01 to 2024-03-01"), "{}", text(&shown.stdout));
    nothing_lost(&cluster, &proxy).await;
}

/// A command may be given twice, after a lost answer. What has become another partition since is cut by it.
#[tokio::test]
async fn a_partition_is_cut_into_pieces_once() {
    let (cluster, proxy) = started(TABLE).await;
    let first = partitions_on(&proxy, "t", "a").await[0].to_string();
    let split = async |into: &str| {
        let split = done(&cluster, &["split", "--partition", &first, "--into", into]).await;
        let pieces: Vec<i64> =
            split["pieces"].as_array().expect("pieces").iter().map(|piece| piece["partition_id"].as_i64().expect("id")).collect();
        (split["is_unchanged"] == true, pieces)
    };
    let (is_unchanged, pieces) = split("3").await;
    assert_eq!((is_unchanged, pieces.len()), (false, 3));
    assert_eq!(split("3").await, (true, pieces.clone()));
    let told = rebalance(&cluster, &["split", "--partition", &first, "--into", "3"]).await;
    let told = text(&told.stdout);
    for part in ["nothing was changed", &format!("was cut into 3 pieces before; \"split --partition {first} --at ")] {
        assert!(told.contains(part), "{told}");
    }
    // Another command.
    assert!(!split("2").await.0 && split("2").await.0);
    assert_eq!(partitions_on(&proxy, "t", "a").await.len(), 7);
    // Whole again, it can be cut again.
    for _ in 0..3 {
        let map = cluster.connect_map().await;
        let above = "SELECT n.partition_id FROM shardgate_map.partition p JOIN shardgate_map.partition n USING (group_id)
                     WHERE p.partition_id = $1 AND n.low > p.low ORDER BY n.low LIMIT 1";
        let above: i32 = map.query_one(above, &[&first.parse::<i32>().expect("id")]).await.expect("a neighbour").get(0);
        done(&cluster, &["merge", "--partitions", &format!("{first},{above}")]).await;
    }
    assert_eq!(partitions_on(&proxy, "t", "a").await.len(), 4);
    let (is_unchanged, again) = split("3").await;
    assert!(!is_unchanged && again.len() == 3 && again[1..] != pieces[1..], "{again:?}");
    nothing_lost(&cluster, &proxy).await;
}

#[tokio::test]
async fn one_key_gets_a_partition_of_its_own_and_moves() {
    let (cluster, proxy) = started(TABLE).await;
    let client = proxy.connect().await;
    for call in [
        "distribute_table('days', 'day', strategy => 'range')",
        "distribute_table('tenants', 'name', strategy => 'lookup')",
        "map_keys('tenants', ARRAY['tenant0','tenant1','tenant2','tenant3','tenant4'], 'a')",
    ] {
        client.batch_execute(&format!("SELECT shardgate.{call}")).await.expect(call);
    }
    // A key by hash, by range, from a list, and one that only the default shard has.
    for (table, key, neighbour) in [
        ("t", "42", "43"),
        ("days", "2024-01-31", "2024-02-01"),
        ("tenants", "tenant1", "tenant2"),
        ("tenants", "tenant9", "tenant8"),
    ] {
        let isolate = ["isolate", "--table", table, "--key", key, "--to", "b", "--finish"];
        let moved = done(&cluster, &isolate).await;
        assert_eq!(moved["state"], "done", "{moved}");
        let (partition, shard) = located(&proxy, table, key).await;
        assert_eq!((shard.as_str(), &moved["partitions"]), ("b", &serde_json::json!([partition])));
        let (other, stays) = located(&proxy, table, neighbour).await;
        assert!(other != partition && stays == "a", "{table} {neighbour}: {other} on {stays}");
        let again = done(&cluster, &isolate).await;
        assert_eq!(again["move_id"], Value::Null, "{again}");
    }
    let rows: i64 = cluster.connect_shard(1).await.query_one("SELECT count(*) FROM tenants", &[]).await.expect("count").get(0);
    assert_eq!(rows, 20);
    // In SQL, back again, driven by a proxy; nothing where the key is there already.
    let isolate = "SELECT shardgate.isolate_key('t', '42', 'a')";
    let planned: Option<i32> = client.query_one(isolate, &[]).await.expect("planned").get(0);
    assert!(planned.is_some());
    until_move(&cluster, |state, _| state == "done").await;
    assert_eq!(located(&proxy, "t", "42").await.1, "a");
    let planned: Option<i32> = client.query_one(isolate, &[]).await.expect("nothing to do").get(0);
    assert_eq!(planned, None);
    for (arguments, part) in [
        (["--table", "nothing", "--key", "1", "--to", "b"], "not sharded"),
        (["--table", "t", "--key", "x", "--to", "b"], "invalid shard key value"),
        (["--table", "t", "--key", "1", "--to", "nowhere"], "nowhere"),
    ] {
        refused(&cluster, &[&["isolate"][..], &arguments].concat(), part).await;
    }
    nothing_lost(&cluster, &proxy).await;
}

#[tokio::test]
async fn a_key_of_a_moving_partition_stays_in_it_until_the_move_has_ended() {
    let (cluster, proxy) = started(TABLE).await;
    let client = proxy.connect().await;
    client
        .batch_execute("SELECT shardgate.distribute_table('tenants', 'name', strategy => 'lookup')")
        .await
        .expect("distribute_table");
    client.batch_execute("SELECT shardgate.map_keys('tenants', ARRAY['tenant1', 'tenant2'], 'a')").await.expect("map_keys");
    let (partition, _) = located(&proxy, "tenants", "tenant1").await;
    let partition = partition.to_string();
    rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    let isolate = ["isolate", "--table", "tenants", "--key", "tenant1", "--to", "b"];
    refused(&cluster, &isolate, "is being moved").await;
    let (moving, _) = located(&proxy, "t", "42").await;
    let moving = moving.to_string();
    rebalance(&cluster, &["move", "--partition", &moving, "--to", "b", "--manual-cutover", "--detach"]).await;
    refused(&cluster, &["isolate", "--table", "t", "--key", "42", "--to", "b"], "is being moved").await;
    refused(&cluster, &["split", "--partition", &moving, "--into", "2"], "is being moved").await;
}

#[tokio::test]
async fn the_upper_piece_of_a_range_goes_to_its_shard() {
    let (cluster, proxy) = started(TABLE).await;
    let client = proxy.connect().await;
    client
        .batch_execute("SELECT shardgate.distribute_table('days', 'day', strategy => 'range', bounds => ARRAY['2024-02-01'])")
        .await
        .expect("distribute_table");
    let (last, shard) = located(&proxy, "days", "2024-05-01").await;
    assert_eq!(shard, "a");
    for (shard, state) in [("nowhere", "42704"), ("", "42704")] {
        let wrong = format!("SELECT shardgate.split_partition({last}, '2025-01-01', '{shard}')");
        let error = client.batch_execute(&wrong).await.expect_err(&wrong);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(state), "{wrong}: {error:?}");
    }
    assert_eq!(located(&proxy, "days", "2025-01-01").await, (last, "a".to_owned()), "nothing was cut");
    // One without rows, one with some, and one that stays.
    let split = "SELECT shardgate.split_partition($1, $2, $3)";
    let next: i32 = client.query_one(split, &[&last, &"2025-01-01", &"b"]).await.expect("split and moved").get(0);
    assert_eq!(located(&proxy, "days", "2025-06-01").await, (next, "b".to_owned()));
    let filled: i32 = client.query_one(split, &[&last, &"2024-03-01", &"b"]).await.expect("split and moved").get(0);
    assert_eq!(located(&proxy, "days", "2024-03-01").await, (filled, "b".to_owned()));
    client.query_one(split, &[&last, &"2024-02-10", &"a"]).await.expect("it is there");
    assert_eq!(located(&proxy, "days", "2024-02-10").await.1, "a");
    client
        .batch_execute("INSERT INTO days VALUES ('2025-06-01', 1); DELETE FROM days WHERE day = '2025-06-01'")
        .await
        .expect("a row");
    nothing_lost(&cluster, &proxy).await;
}

/// Plans cut no partitions of lookup keys, and carry the keys that no list names like the others.
#[tokio::test]
async fn a_lookup_table_leaves_a_shard_by_a_plan_and_comes_home() {
    let (cluster, proxy) = started(TABLE).await;
    let client = proxy.connect().await;
    for statement in [
        "SELECT shardgate.distribute_table('tenants', 'name', strategy => 'lookup')",
        "SELECT shardgate.map_keys('tenants', '{tenant1,tenant2}', 'a')",
    ] {
        client.batch_execute(statement).await.expect(statement);
    }
    let moves = client.query("SELECT * FROM shardgate.rebalance('tenants', drain => 'a')", &[]).await.expect("planned");
    assert!(!moves.is_empty());
    until_all_ended(&cluster).await;
    for (key, shard) in [("tenant1", "b"), ("tenant5", "b"), ("tenant77", "b")] {
        assert_eq!(located(&proxy, "tenants", key).await.1, shard, "{key}");
    }
    nothing_lost(&cluster, &proxy).await;
    client.batch_execute("INSERT INTO tenants VALUES ('tenant77', 1), ('tenant1', 1000)").await.expect("inserted");
    client.batch_execute("SELECT * FROM shardgate.undistribute_table('tenants')").await.expect("at home again");
    let home = cluster.connect_shard(0).await;
    assert_eq!(home.query_one("SELECT count(*) FROM tenants", &[]).await.expect("count").get::<_, i64>(0), 102);
    client.batch_execute("DELETE FROM tenants WHERE name = 'tenant77' OR n = 1000").await.expect("deleted");
    nothing_lost(&cluster, &proxy).await;
}

async fn until_all_ended(cluster: &Cluster) {
    let map = cluster.connect_map().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let running = "SELECT count(*) FROM shardgate_map.move WHERE state NOT IN ('done', 'aborted')";
    while map.query_one(running, &[]).await.expect("moves").get::<_, i64>(0) > 0 {
        assert!(std::time::Instant::now() < deadline, "moves have not ended");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
