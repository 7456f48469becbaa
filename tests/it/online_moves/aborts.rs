//! Moves that are refused or aborted leave everything as it was.

use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

pub async fn started(tables: &str) -> (Cluster, Proxy) {
    let cluster = Cluster::start(2).await;
    // Moves by SQL finish by themselves soon.
    let settings = vec![("moves.grace_ms", "300".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let admin = proxy.connect().await;
    for (shard, name) in [(0, "a"), (1, "b")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
        if shard == 0 {
            admin.batch_execute(tables).await.expect("tables");
        }
    }
    admin.batch_execute("SELECT shardgate.distribute_table('t', 'id', partitions => 4)").await.expect("distribute_table");
    (cluster, proxy)
}

#[tokio::test]
async fn what_is_in_the_way_is_told_at_once_and_nothing_is_touched() {
    let tables = "CREATE TABLE t (id bigint UNIQUE, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g;
                  CREATE VIEW seen AS SELECT id FROM t; CREATE MATERIALIZED VIEW kept AS SELECT * FROM seen;
                  CREATE VIEW rows AS SELECT s AS row FROM seen s; CREATE ROLE narrow; GRANT SELECT (v) ON t TO narrow";
    let (cluster, proxy) = started(tables).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let refused = rebalance(&cluster, &["move", "--partition", &partitions[0].to_string(), "--to", "b"]).await;
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stdout));
    let told = text(&refused.stderr);
    assert!(
        told.contains("replica identity")
            && told.contains("but not its shard key: narrow")
            && told.contains("materialized view public.kept reads tables of the move")
            && told.contains("view \"public\".\"rows\""),
        "{told}"
    );
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    for (arguments, code, part) in [
        (vec!["move", "--partition", "999", "--to", "b"], 3, "999"),
        (vec!["move", "--partition", "1", "--to", "nowhere"], 3, "nowhere"),
        (vec!["move", "--to", "b"], 2, "--partition"),
        (vec!["move", "--partition", "1", "--to", "b", "--max-pause", "1h"], 2, "between 20ms and 4s"),
        (vec!["show", "77"], 3, "there is no move 77"),
    ] {
        let output = rebalance(&cluster, &arguments).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}

/// Those that have not begun end with the table.
#[tokio::test]
async fn a_table_is_dropped_while_moves_of_it_are_planned() {
    let tables = "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g;
                  CREATE TABLE other (id bigint PRIMARY KEY)";
    let (cluster, proxy) = started(tables).await;
    let (mut client, mut another) = (WireClient::connect(proxy.address()).await, WireClient::connect(proxy.address()).await);
    for partition in partitions_on(&proxy, "t", "a").await {
        let told = client.ask(&format!("SELECT shardgate.move_partition({partition}, 'b')")).await;
        assert!(!told.contains("E("), "{told}");
    }
    assert_eq!(client.ask("DROP TABLE t").await, "C(DROP TABLE) Z(I)");
    let left = "SELECT count(*) FROM shardgate.moves WHERE state NOT IN ('aborted', 'done')";
    assert_eq!(another.value(left).await, "0");
    assert_eq!(another.value("SELECT count(*) FROM pg_class c JOIN other o ON c.oid = o.id").await, "0");
    assert_eq!(another.ask("SELECT shardgate.distribute_table('other', 'id')").await, "T(distribute_table) D() C(SELECT 1) Z(I)");
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_aborted_move_leaves_nothing() {
    let tables = "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g";
    let (cluster, proxy) = started(tables).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let list = format!("{},{}", partitions[0], partitions[1]);
    let planned = rebalance(&cluster, &["move", "--partition", &list, "--to", "b", "--manual-cutover", "--detach", "--json"]).await;
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    let id = planned["move_id"].to_string();
    let client = proxy.connect().await;
    // The proxy drives it until it waits for a person.
    loop {
        let row = client.query_one("SELECT state, coalesce(error, '') FROM shardgate.moves LIMIT 1", &[]).await.expect("the move");
        let (state, error): (String, String) = (row.get(0), row.get(1));
        assert_ne!(state, "aborted", "{error}");
        if error.contains("waits for \"shard-rebalance cutover") {
            break;
        }
        tokio::task::yield_now().await;
    }
    let stored: i64 = cluster.connect_shard(1).await.query_one("SELECT count(*) FROM t", &[]).await.expect("copies").get(0);
    assert!(stored > 0);
    let count = "SELECT count(*) FROM t";
    assert_eq!(client.query_one(count, &[]).await.expect("count").get::<_, i64>(0), 1000);
    let updated = client.execute("UPDATE t SET v = 'y'", &[]).await.expect("update over the shards");
    assert_eq!(updated, 1000);
    let aborted = rebalance(&cluster, &["abort", &id]).await;
    assert_eq!(aborted.status.code(), Some(0), "{}", text(&aborted.stderr));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    assert_eq!(client.query_one(count, &[]).await.expect("count").get::<_, i64>(0), 1000);
    let stored: i64 = cluster.connect_shard(1).await.query_one(count, &[]).await.expect("copies").get(0);
    assert_eq!(stored, 0);
    // And it can be moved after that.
    let again = rebalance(&cluster, &["abort", &id]).await;
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    // One that waits for its turn is aborted as well.
    let (first, rest) = list.split_once(',').expect("several partitions");
    let hold = rebalance(&cluster, &["move", "--partition", rest, "--to", "b", "--manual-cutover", "--detach", "--json"]).await;
    let queued = rebalance(&cluster, &["move", "--partition", first, "--to", "b", "--detach", "--json"]).await;
    for planned in [queued, hold] {
        let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).expect("JSON");
        let aborted = rebalance(&cluster, &["abort", &planned["move_id"].to_string()]).await;
        assert_eq!(aborted.status.code(), Some(0), "{}", text(&aborted.stderr));
    }
    for told in ["", "are on shard b already"] {
        let moved = rebalance(&cluster, &["move", "--partition", &list, "--to", "b", "--finish"]).await;
        assert!(moved.status.success() && text(&moved.stdout).contains(told), "{}{}", text(&moved.stdout), text(&moved.stderr));
    }
    assert_eq!(client.query_one("SELECT count(*) FROM t WHERE v = 'y'", &[]).await.expect("count").get::<_, i64>(0), 1000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

/// PostgreSQL takes no DEFERRABLE key for a replica identity: what is published of such a table may not be updated, by anybody.
#[tokio::test]
async fn a_table_that_could_not_be_updated_while_it_moves_is_refused() {
    let tables =
        "CREATE TABLE t (id bigint PRIMARY KEY DEFERRABLE, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g";
    let (cluster, proxy) = started(tables).await;
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let refused = rebalance(&cluster, &["move", "--partition", &partition, "--to", "b"]).await;
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{told}");
    assert!(told.contains("the primary key of table \"public\".\"t\"") && told.contains("DEFERRABLE"), "{told}");
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}
