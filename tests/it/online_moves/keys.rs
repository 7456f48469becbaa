//! Partitions by range of keys of any type and of several columns move, and so does the default partition of a lookup group.

use serde_json::Value;

use super::aborts::started;
use super::operators::until_move;
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy};

/// Text is compared bytewise, whatever the collation of a column is.
const TABLES: &str = r#"
    CREATE TABLE t (id bigint PRIMARY KEY);
    CREATE TABLE codes (code text COLLATE "C", n int, v text, PRIMARY KEY (code, n));
    CREATE TABLE ids (id uuid PRIMARY KEY, v text);
    CREATE TABLE places (region text COLLATE "C", day date, n int, v text, PRIMARY KEY (region, day, n));
    CREATE TABLE tenants (name text, n int, v text, PRIMARY KEY (name, n));
    CREATE TABLE branches (region text, number int, n int, PRIMARY KEY (region, number, n));
    CREATE VIEW berlin AS SELECT day, count(*) AS rows FROM places WHERE region = 'Berlin' GROUP BY day;
    CREATE TABLE prices (price numeric, n int, v text, PRIMARY KEY (price, n));
    INSERT INTO prices SELECT (g / 4.0 - 3)::numeric(10, 2), g, 'x' FROM generate_series(0, 59) g;
    INSERT INTO prices SELECT p, 100, 'x' FROM unnest(ARRAY[1.5, 1.500, 0, 'NaN', 'Infinity', 1e30]) WITH ORDINALITY AS u (p, i) WHERE i <> 2;
    INSERT INTO prices VALUES (1.5000, 101, 'x');
    INSERT INTO codes SELECT c, n, 'x' FROM unnest(ARRAY['A', 'Z', 'a b', '"q"', 'g', 'g\', 'ö', 'z', '']) c, generate_series(1, 5) n;
    INSERT INTO ids SELECT (lpad(to_hex(g), 2, '0') || repeat('0', 30))::uuid, 'x' FROM generate_series(0, 255) g;
    INSERT INTO places SELECT r, date '2024-01-01' + d, 1, 'x' FROM unnest(ARRAY['Berlin', 'Paris', 'Rome']) r, generate_series(0, 29) d;
    INSERT INTO branches SELECT r, g % 3, g FROM unnest(ARRAY['e, u', 'us']) r, generate_series(0, 29) g;
    INSERT INTO tenants SELECT 'tenant' || g % 10, g, 'x' FROM generate_series(0, 99) g;"#;

async fn done(cluster: &Cluster, arguments: &[&str]) -> Value {
    let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn count(cluster: &Cluster, shard: usize, from: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {from}");
    cluster.connect_shard(shard).await.query_one(&sql, &[]).await.expect("count").get(0)
}

async fn located(proxy: &Proxy, table: &str, key: &str) -> (i32, String) {
    let sql = format!("SELECT partition_id, shard FROM shardgate.locate('{table}', {key})");
    let row = proxy.connect().await.query_one(&sql, &[]).await.expect("locate");
    (row.get(0), row.get(1))
}

async fn nothing_left(cluster: &Cluster) {
    let healthy = rebalance(cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}{}", text(&healthy.stdout), text(&healthy.stderr));
    assert_eq!(leftovers(cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn partitions_by_range_of_any_key_move_there_and_back() {
    let (cluster, proxy) = started(TABLES).await;
    let client = proxy.connect().await;
    for call in [
        r"distribute_table('codes', 'code', strategy => 'range', bounds => ARRAY['Z', 'g\'])",
        "distribute_table('ids', 'id', strategy => 'range', bounds => ARRAY['40000000-0000-0000-0000-000000000000', 'c0000000-0000-0000-0000-000000000000'])",
        "distribute_table('places', 'region, day', strategy => 'range', bounds => ARRAY['(Berlin,2024-01-11)', '(Paris,2024-01-21)'])",
    ] {
        client.batch_execute(&format!("SELECT shardgate.{call}")).await.expect(call);
    }
    // The middle piece: its rows, and all rows.
    for (table, moved, rows) in [("codes", 15, 45), ("ids", 128, 256), ("places", 40, 90)] {
        let middle = partitions_on(&proxy, table, "a").await[1].to_string();
        let switched = done(&cluster, &["move", "--partition", &middle, "--to", "b"]).await;
        let id = switched["move_id"].to_string();
        assert_eq!(switched["can_roll_back"], true, "{switched}");
        assert_eq!(count(&cluster, 1, table).await, moved, "{table}");
        // Both sides have the rows, and each counts and changes once.
        let updated = client.execute(&format!("UPDATE {table} SET v = v || 'y'"), &[]).await.expect("update");
        assert_eq!(updated, rows, "{table}");
        let counted: i64 =
            client.query_one(&format!("SELECT count(*) FROM {table} WHERE v = 'xy'"), &[]).await.expect("count").get(0);
        assert_eq!(counted, i64::try_from(rows).expect("few"), "{table}");
        if table == "places" {
            let seen: i64 = client.query_one("SELECT sum(rows)::bigint FROM berlin", &[]).await.expect("a view").get(0);
            assert_eq!(seen, 30);
        }
        done(&cluster, &["verify", "--move", &id]).await;
        let back = done(&cluster, &["rollback", &id]).await;
        assert_eq!(back["error"], "rolled back", "{back}");
        assert_eq!((count(&cluster, 0, table).await, count(&cluster, 1, table).await), (i64::try_from(rows).expect("few"), 0));
    }
    // One key alone: 'g' is before 'g\'; of several columns each has to be the same.
    for (table, key, argument, moved, neighbour) in [
        ("codes", "g", "'g'", 5, r"'g\'"),
        (
            "ids",
            "41000000-0000-0000-0000-000000000000",
            "'41000000-0000-0000-0000-000000000000'",
            1,
            "'42000000-0000-0000-0000-000000000000'",
        ),
        ("places", "(Berlin,2024-01-12)", "'Berlin', '2024-01-12'", 1, "'Berlin', '2024-01-13'"),
    ] {
        let isolated = done(&cluster, &["isolate", "--table", table, "--key", key, "--to", "b", "--finish"]).await;
        assert_eq!(isolated["state"], "done", "{isolated}");
        assert_eq!(located(&proxy, table, argument).await.1, "b");
        assert_eq!(located(&proxy, table, neighbour).await.1, "a");
        assert_eq!(count(&cluster, 1, table).await, moved, "{table}");
    }
    numbers_move(&cluster, &proxy).await;
    nothing_left(&cluster).await;
}

/// Equal numbers are in one partition, with whatever zeros they end.
async fn numbers_move(cluster: &Cluster, proxy: &Proxy) {
    let client = proxy.connect().await;
    client.batch_execute("SELECT shardgate.distribute_table('prices', 'price', partitions => 4)").await.expect("distribute");
    let (partition, _) = located(proxy, "prices", "'1.50'").await;
    assert_eq!(located(proxy, "prices", "'1.5'").await.0, partition);
    let mut moved = 0;
    for row in client.query("SELECT price::text, count(*) FROM prices GROUP BY price", &[]).await.expect("prices") {
        let (price, rows): (String, i64) = (row.get(0), row.get(1));
        if located(proxy, "prices", &format!("'{price}'")).await.0 == partition {
            moved += rows;
        }
    }
    let switched = done(cluster, &["move", "--partition", &partition.to_string(), "--to", "b"]).await;
    assert_eq!(count(cluster, 1, "prices").await, moved);
    assert_eq!(client.execute("UPDATE prices SET v = v || 'y'", &[]).await.expect("update"), 66);
    client.batch_execute("INSERT INTO prices VALUES (1.50000, 102, 'xy')").await.expect("insert");
    for price in ["1.5", "1.50", "'1.500'", "15e-1"] {
        let found: i64 = client
            .query_one(&format!("SELECT count(*) FROM prices WHERE price = {price} AND v = 'xy'"), &[])
            .await
            .expect("count")
            .get(0);
        assert_eq!(found, 4, "{price}");
    }
    let id = switched["move_id"].to_string();
    done(cluster, &["verify", "--move", &id]).await;
    done(cluster, &["finish", &id]).await;
    assert_eq!((count(cluster, 0, "prices").await, count(cluster, 1, "prices").await), (66 - moved, moved + 1));
}

#[tokio::test]
async fn the_default_partition_of_a_lookup_group_moves_while_no_key_is_mapped() {
    let (cluster, proxy) = started(TABLES).await;
    let client = proxy.connect().await;
    for call in [
        "distribute_table('tenants', 'name', strategy => 'lookup')",
        "map_keys('tenants', ARRAY['tenant1', 'tenant2', 'nobody'], 'a')",
    ] {
        client.batch_execute(&format!("SELECT shardgate.{call}")).await.expect(call);
    }
    let (default, shard) = located(&proxy, "tenants", "'tenant9'").await;
    assert_eq!(shard, "a");
    let default = default.to_string();
    done(&cluster, &["move", "--partition", &default, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    assert_eq!(count(&cluster, 1, "tenants").await, 80);
    // Keys that no list names come and go; no list gets another key.
    let updated = client.execute("UPDATE tenants SET v = 'y'", &[]).await.expect("update");
    assert_eq!(updated, 100);
    client.batch_execute("INSERT INTO tenants VALUES ('new', 1, 'y'), ('tenant1', 1000, 'y')").await.expect("insert");
    client.batch_execute("UPDATE tenants SET name = 'tenant2' WHERE name = 'tenant8' AND n = 8").await.expect("into a list");
    client.batch_execute("UPDATE tenants SET name = 'newer' WHERE name = 'tenant2' AND n = 12").await.expect("out of a list");
    for call in ["map_key('tenants', 'tenant9', 'a')", "map_keys('tenants', ARRAY['other'], 'a')"] {
        let refused = client.batch_execute(&format!("SELECT shardgate.{call}")).await.expect_err("refused");
        assert!(refused.as_db_error().is_some_and(|error| error.message().contains("is being moved")), "{call}: {refused:?}");
    }
    let isolated = rebalance(&cluster, &["isolate", "--table", "tenants", "--key", "tenant9", "--to", "b"]).await;
    assert!(text(&isolated.stderr).contains("is being moved"), "{}", text(&isolated.stderr));
    let switched = done(&cluster, &["cutover", "1"]).await;
    assert_eq!(switched["state"], "switched", "{switched}");
    assert_eq!(located(&proxy, "tenants", "'tenant9'").await.1, "b");
    assert_eq!(located(&proxy, "tenants", "'tenant1'").await.1, "a");
    assert_eq!(client.execute("DELETE FROM tenants WHERE n = 3 AND v = 'y'", &[]).await.expect("delete"), 1);
    done(&cluster, &["verify", "--move", "1"]).await;
    done(&cluster, &["rollback", "1"]).await;
    assert_eq!((count(&cluster, 0, "tenants").await, count(&cluster, 1, "tenants").await), (101, 0));
    // With a list, and for good.
    let (listed, _) = located(&proxy, "tenants", "'tenant1'").await;
    let moved = done(&cluster, &["move", "--partition", &format!("{default},{listed}"), "--to", "b", "--finish"]).await;
    assert_eq!(moved["state"], "done", "{moved}");
    assert_eq!((count(&cluster, 0, "tenants").await, count(&cluster, 1, "tenants").await), (0, 101));
    client.batch_execute("SELECT shardgate.map_key('tenants', 'tenant9', 'b')").await.expect("keys are mapped again");
    let rows: i64 = client.query_one("SELECT count(*) FROM tenants", &[]).await.expect("count").get(0);
    assert_eq!(rows, 101);
    nothing_left(&cluster).await;
}

#[tokio::test]
async fn lookup_keys_of_several_columns_move() {
    let (cluster, proxy) = started(TABLES).await;
    let client = proxy.connect().await;
    for call in [
        "distribute_table('branches', 'region, number', strategy => 'lookup')",
        r#"map_keys('branches', ARRAY['("e, u",1)', '(us,2)'], 'a')"#,
    ] {
        client.batch_execute(&format!("SELECT shardgate.{call}")).await.expect(call);
    }
    let (default, _) = located(&proxy, "branches", "'us', '0'").await;
    let (listed, _) = located(&proxy, "branches", "'us', '2'").await;
    // Of six keys two are in the list: ten rows each.
    for (partition, copied, stays) in [(listed, 20, 40), (default, 40, 0)] {
        done(&cluster, &["move", "--partition", &partition.to_string(), "--to", "b", "--manual-cutover", "--detach"]).await;
        until_move(&cluster, |_, error| error.contains("cutover")).await;
        let before = 60 - stays - copied;
        assert_eq!(count(&cluster, 1, "branches").await, before + copied);
        let seen: i64 = client.query_one("SELECT count(*) FROM branches b WHERE b.n >= 0", &[]).await.expect("count").get(0);
        assert_eq!(seen, 60);
        let id: i32 = client.query_one("SELECT max(move_id) FROM shardgate.moves", &[]).await.expect("a move").get(0);
        done(&cluster, &["cutover", &id.to_string()]).await;
        let finished = done(&cluster, &["finish", &id.to_string()]).await;
        assert_eq!(finished["state"], "done", "{finished}");
        assert_eq!((count(&cluster, 0, "branches").await, count(&cluster, 1, "branches").await), (stays, 60 - stays));
    }
    nothing_left(&cluster).await;
}
