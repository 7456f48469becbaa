//! `plan` and `apply`: from one PostgreSQL to three even shards, with partitions that have to be cut for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::operators::until_move;
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions};

/// One shard with 12,000 rows in four partitions, and two empty ones.
async fn started() -> (Cluster, Proxy) {
    started_on(Cluster::start(3).await).await
}

async fn started_on(cluster: Cluster) -> (Cluster, Proxy) {
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let admin = proxy.connect().await;
    for (shard, name) in [(0, "a"), (1, "b"), (2, "c")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
        if shard == 0 {
            let tables = "CREATE TABLE t (id bigint PRIMARY KEY, v text);
                          INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 12000) g";
            admin.batch_execute(tables).await.expect("a table");
            admin.batch_execute("SELECT shardgate.distribute_table('t', 'id', partitions => 4)").await.expect("distribute_table");
        }
    }
    (cluster, proxy)
}

#[tokio::test]
async fn four_partitions_become_three_even_shards() {
    let (cluster, proxy) = started().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plan.json").to_string_lossy().into_owned();
    let shown = rebalance(&cluster, &["plan", "--out", &file]).await;
    let told = text(&shown.stdout);
    assert!(
        told.starts_with("2 splits, 2 moves") && told.contains("the piece from") && told.contains("No pause is longer"),
        "{told}"
    );
    assert!(told.contains("no move of that size has been done"), "{told}");
    // What somebody else has cut meanwhile is not what was planned.
    let partition = partitions_on(&proxy, "t", "a").await[3].to_string();
    let split = rebalance(&cluster, &["split", "--partition", &partition, "--into", "2", "--json"]).await;
    let pieces: Value = serde_json::from_slice(&split.stdout).expect("JSON");
    let refused = rebalance(&cluster, &["apply", &file]).await;
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("plan again"), "{}", text(&refused.stderr));
    let both = format!("{partition},{}", pieces["pieces"][1]["partition_id"]);
    assert!(rebalance(&cluster, &["merge", "--partitions", &both]).await.status.success());
    // Twice: what is done is left out. A script gets one list of what the moves have come to.
    for moves in [2, 0] {
        let applied = rebalance(&cluster, &["apply", &file, "--json"]).await;
        assert!(applied.status.success(), "{}\n{}", text(&applied.stdout), text(&applied.stderr));
        let ended: Vec<Value> = serde_json::from_slice(&applied.stdout).expect("one JSON document");
        assert_eq!(ended.len(), moves, "{ended:?}");
        assert!(ended.iter().all(|ended| ended["state"] == "done"), "{ended:?}");
    }
    let moves: i64 =
        cluster.connect_map().await.query_one("SELECT count(*) FROM shardgate_map.move", &[]).await.expect("count").get(0);
    assert_eq!(moves, 2);
    for shard in 0..3 {
        let rows: i64 = cluster.connect_shard(shard).await.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
        assert!((3700..=4300).contains(&rows), "shard {shard} has {rows} rows");
    }
    let count: i64 = proxy.connect().await.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    assert_eq!(count, 12_000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    // Now there are moves to go by. Unequal pieces count by their part of the hash space.
    let drained = rebalance(&cluster, &["plan", "--drain", "c", "--out", &file, "--json"]).await;
    let plan: Value = serde_json::from_slice(&drained.stdout).expect("JSON");
    let moves = plan["moves"].as_array().expect("moves");
    assert!(!moves.is_empty() && moves.iter().all(|planned| planned["expected_pause_ms"].is_f64()), "{plan}");
    assert!(moves.iter().all(|planned| planned["expected_seconds"].is_f64()), "{plan}");
    // To completion: the shard is empty and can go.
    let applied = rebalance(&cluster, &["apply", &file]).await;
    assert!(applied.status.success(), "{}\n{}", text(&applied.stdout), text(&applied.stderr));
    let admin = proxy.connect().await;
    admin.batch_execute("SELECT shardgate.drop_shard('c')").await.expect("an empty shard is dropped");
    let count: i64 = admin.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    assert_eq!(count, 12_000);
}

/// The others come out even, and whoever reads the plan is told. When the shard is back, the plan is one of another cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_goes_around_a_shard_that_does_not_answer() {
    let (mut cluster, proxy) = started_on(Cluster::separate_servers(3).await).await;
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let moved = rebalance(&cluster, &["move", "--partition", &partition, "--to", "c", "--finish"]).await;
    assert!(moved.status.success(), "{}\n{}", text(&moved.stdout), text(&moved.stderr));
    cluster.shard_server_mut(2).kill().expect("killed");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plan.json").to_string_lossy().into_owned();
    let planned = rebalance(&cluster, &["plan", "--out", &file]).await;
    let told = text(&planned.stdout);
    assert!(planned.status.success(), "{told}\n{}", text(&planned.stderr));
    assert!(told.starts_with("Planned without shard c, which does not answer, and the partition that it owns: "), "{told}");
    let plan: Value = serde_json::from_slice(&std::fs::read(&file).expect("the plan")).expect("JSON");
    assert_eq!((&plan["left_out"][0]["shard"], &plan["left_out"][0]["partitions"]), (&"c".into(), &1.into()), "{plan}");
    let moves = plan["moves"].as_array().expect("moves");
    assert!(!moves.is_empty() && moves.iter().all(|planned| planned["source"] == "a" && planned["target"] == "b"), "{plan}");
    // What leaves nothing to plan by is refused, with what helps.
    for (arguments, part) in
        [(&["plan", "--drain", "c"][..], "no rows can be moved from it"), (&["plan", "--drain", "d"], "no shard \"d\"")]
    {
        let refused = rebalance(&cluster, arguments).await;
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
    let called = proxy.connect().await.simple_query("SELECT * FROM shardgate.rebalance()").await.expect_err("sizes are not known");
    assert!(called.as_db_error().is_some_and(|error| error.message().contains("shard-rebalance plan")), "{called:?}");
    // Not when it is back: it would have had its share.
    cluster.shard_server_mut(2).start_again().expect("started again");
    let refused = rebalance(&cluster, &["apply", &file]).await;
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("shard \"c\" answers again; plan again"), "{}", text(&refused.stderr));
    cluster.shard_server_mut(2).kill().expect("killed");
    let applied = rebalance(&cluster, &["apply", &file]).await;
    assert!(applied.status.success(), "{}\n{}", text(&applied.stdout), text(&applied.stderr));
    let rows: i64 = cluster.connect_shard(1).await.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    assert!((3000..6000).contains(&rows), "shard b has {rows} rows");
    moves_under_views_wait_for_every_shard(&mut cluster, &proxy).await;
}

/// The plan says so, the move itself, and `doctor`.
async fn moves_under_views_wait_for_every_shard(cluster: &mut Cluster, proxy: &Proxy) {
    cluster.shard_server_mut(2).start_again().expect("started again");
    proxy.connect().await.batch_execute("CREATE VIEW seen AS SELECT id FROM t").await.expect("a view");
    cluster.shard_server_mut(2).kill().expect("killed");
    let planned = rebalance(cluster, &["plan", "--drain", "b"]).await;
    let told = text(&planned.stdout);
    assert!(told.contains("for views of its tables") && told.contains("wait for shard \"c\""), "{told}");
    let partition = partitions_on(proxy, "t", "b").await[0].to_string();
    rebalance(cluster, &["move", "--partition", &partition, "--to", "a", "--detach"]).await;
    until_move(cluster, |_, error| error.starts_with("needs every shard, for views of its tables: shard \"c\": ")).await;
    let refused = rebalance(cluster, &["verify", "--partition", "999"]).await;
    assert!(text(&refused.stderr).contains("partition 999 does not exist"), "{}", text(&refused.stderr));
}

/// Row security that is forced on owners hides nothing from a superuser, who moves here.
#[tokio::test]
async fn what_the_schema_has_against_moves_is_told_by_the_plan() {
    let (cluster, proxy) = started().await;
    let admin = proxy.connect().await;
    for statement in [
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "CREATE POLICY none ON t USING (false)",
    ] {
        admin.batch_execute(statement).await.expect(statement);
    }
    let planned = rebalance(&cluster, &["plan"]).await;
    assert!(planned.status.success() && !text(&planned.stdout).contains("In the way"), "{}", text(&planned.stdout));
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let moved = rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--finish"]).await;
    assert!(moved.status.success(), "{}\n{}", text(&moved.stdout), text(&moved.stderr));
    for statement in [
        "CREATE TABLE u (id bigint PRIMARY KEY)",
        "SELECT shardgate.distribute_table('u', 'id', colocate_with => 't')",
        "ALTER TABLE u ADD CONSTRAINT follows FOREIGN KEY (id) REFERENCES t ON UPDATE CASCADE",
    ] {
        admin.batch_execute(statement).await.expect(statement);
    }
    let planned = rebalance(&cluster, &["plan"]).await;
    let told = text(&planned.stdout);
    let expected =
        "In the way of these moves:\n  foreign keys follow changes of the key of table \"public\".\"t\": follows. Make them";
    assert!(told.contains(expected), "{told}");
    let planned = rebalance(&cluster, &["plan", "--json"]).await;
    let plan: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    assert_eq!(plan["in_the_way"].as_array().map(Vec::len), Some(1), "{plan}");
}

#[tokio::test]
async fn shards_are_made_even_and_emptied_by_calls_in_sql() {
    let (cluster, proxy) = started().await;
    let client = proxy.connect().await;
    for (wrong, state) in [
        ("shardgate.rebalance(by => 'load')", "0A000"),
        ("shardgate.rebalance(by => 'weight')", "22023"),
        ("shardgate.rebalance(threshold => -1)", "22023"),
        ("shardgate.rebalance(drain => 'nowhere')", "55000"),
        ("shardgate.rebalance('nothing')", "42P01"),
        ("shardgate.redistribute_table('nothing')", "42P01"),
        ("citus_move_shard_placement(999, 'a', 0, 'b', 0)", "42704"),
    ] {
        let error = client.batch_execute(&format!("SELECT {wrong}")).await.expect_err(wrong);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(state), "{wrong}: {error:?}");
    }
    // Shown first, and nothing is changed.
    for shown in ["shardgate.rebalance(dry_run => true)", "shardgate.redistribute_table('t', dry_run => true)"] {
        let shown = client.query(&format!("SELECT * FROM {shown}"), &[]).await.expect("a dry run");
        assert_eq!(shown.len(), 2);
        assert!(shown.iter().all(|row| row.get::<_, Option<i32>>("move_id").is_none() && row.get::<_, i64>("bytes") > 0));
    }
    assert_eq!(partitions_on(&proxy, "t", "a").await.len(), 4);
    // The client's limit ends the wait, and no move.
    client.batch_execute("SET statement_timeout = '50ms'").await.expect("SET");
    let ended = client.batch_execute("SELECT shardgate.redistribute_table('t')").await.expect_err("no move is as fast");
    let ended = ended.as_db_error().expect("of the server");
    assert_eq!((ended.code().code(), ended.message()), ("57014", "canceling statement due to statement timeout"));
    assert_eq!(ended.detail(), Some("The moves go on by themselves."));
    client.batch_execute("RESET statement_timeout").await.expect("RESET");
    // Nor does it wait to show them.
    let shown = "SELECT move_id, state FROM shardgate.redistribute_table('t', dry_run => true)";
    assert_eq!(client.query(shown, &[]).await.expect("a dry run").len(), 2);
    // It waits until the rows are spread, and so does the same call made again meanwhile.
    let spread = "SELECT * FROM shardgate.redistribute_table('t')";
    let other = proxy.connect().await;
    let first = tokio::spawn(async move { other.query(spread, &[]).await });
    let again = client.query(spread, &[]).await.expect("the same moves");
    for shard in ["b", "c"] {
        assert!(!partitions_on(&proxy, "t", shard).await.is_empty(), "{shard}");
    }
    let planned = first.await.expect("no panic").expect("spread");
    let ids = |rows: &[tokio_postgres::Row]| rows.iter().map(|row| row.get::<_, i32>("move_id")).collect::<BTreeSet<_>>();
    assert!(!again.is_empty() && ids(&again).is_subset(&ids(&planned)), "{again:?} {planned:?}");
    assert_eq!(moves_in_all(&cluster).await, 2, "those of the first call");
    for row in planned.iter().chain(&again) {
        let state: &str = row.get("state");
        assert!(["switched", "cleaning_up", "done"].contains(&state), "{state}");
    }
    let targets: Vec<(String, String)> = planned.iter().map(|row| (row.get("source"), row.get("target"))).collect();
    assert_eq!(targets.len(), 2, "{targets:?}");
    assert!(targets.iter().all(|(source, target)| source == "a" && target != "a"), "{targets:?}");
    // Not all that an earlier call has planned has been measured.
    assert!(planned.iter().all(|row| row.get::<_, i32>("partitions") > 0 && row.get::<_, Option<i64>>("bytes") != Some(0)));
    until_all_are_done(&cluster).await;
    for shard in 0..3 {
        let rows: i64 = cluster.connect_shard(shard).await.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
        assert!((3700..=4300).contains(&rows), "shard {shard} has {rows} rows");
    }
    let again = client.batch_execute("SELECT shardgate.redistribute_table('t')").await.expect_err("on several shards");
    assert_eq!(again.code().map(tokio_postgres::error::SqlState::code), Some("55000"), "{again:?}");
    // Even enough: nothing moves.
    client.batch_execute("SELECT rebalance_table_shards('t')").await.expect("a name that Citus users know");
    assert_eq!(client.query("SELECT * FROM shardgate.rebalance()", &[]).await.expect("no rows").len(), 0);
    // A Citus shard is a partition, a node the server at an address: here they share one, so that their names have to stand for it.
    let partition = partitions_on(&proxy, "t", "b").await[0];
    let address = cluster.shard_url(0).rsplit_once('@').map(|(_, rest)| rest.split('/').next().unwrap_or_default().to_owned());
    let (host, port) = address.as_deref().and_then(|address| address.split_once(':')).expect("host and port");
    for (source, target, port, state) in [("a", "c", "0", "22023"), (host, "c", port, "22023"), ("b", "nowhere", "1", "42704")] {
        let wrong = format!("SELECT citus_move_shard_placement({partition}, '{source}', {port}, '{target}', {port})");
        let error = client.batch_execute(&wrong).await.expect_err(&wrong);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(state), "{wrong}: {error:?}");
    }
    let there = format!("SELECT citus_move_shard_placement({partition}, 'b', 5432, 'c', 5432, 'block_writes')");
    client.batch_execute(&there).await.expect("planned");
    until_move(&cluster, |state, _| state == "switched").await;
    assert!(rebalance(&cluster, &["finish", "3"]).await.status.success());
    let drained = client.query("SELECT * FROM shardgate.rebalance(drain => 'c')", &[]).await;
    assert_eq!(drained.expect("planned").first().map(|row| row.get::<_, i32>("move_id")), Some(4));
    until_all_are_done(&cluster).await;
    assert_eq!(partitions_on(&proxy, "t", "c").await, Vec::<i32>::new());
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    tables_get_another_key_and_another_group(&cluster, &proxy).await;
    tables_are_taken_back(&cluster, &proxy).await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

async fn refused(client: &tokio_postgres::Client, call: &str, expected: &str) {
    let error = client.simple_query(&format!("SELECT * FROM shardgate.{call}")).await.expect_err(call);
    let error = error.as_db_error().expect("an answer");
    let told = format!(
        "{} {} | {} | {}",
        error.code().code(),
        error.message(),
        error.detail().unwrap_or_default(),
        error.hint().unwrap_or_default()
    );
    assert!(told.contains(expected), "{call}: {told}");
}

async fn value(client: &tokio_postgres::Client, sql: &str) -> String {
    let rows = client.simple_query(sql).await.expect(sql);
    let found = rows.iter().find_map(|row| if let tokio_postgres::SimpleQueryMessage::Row(row) = row { row.get(0) } else { None });
    found.expect(sql).to_owned()
}

/// `orders` by tenant becomes `orders` by id, and then a table of the group of `t`. Rows are written meanwhile.
async fn tables_get_another_key_and_another_group(cluster: &Cluster, proxy: &Proxy) {
    let client = proxy.connect().await;
    for statement in [
        "CREATE TABLE orders (tenant int, id int, note text, PRIMARY KEY (tenant, id))",
        "SELECT shardgate.distribute_table('orders', 'tenant', partitions => 4)",
        "INSERT INTO orders SELECT g % 7, g, 'n' FROM generate_series(1, 300) g",
    ] {
        client.batch_execute(statement).await.expect(statement);
    }
    let before = partitions_on(proxy, "orders", "b").await;
    refused(&client, "redistribute_table('orders', key => 'note')", "0A000 cannot distribute table \"orders\" | ").await;
    refused(&client, "redistribute_table('orders', key => 'nothing')", "42703 ").await;
    refused(&client, "redistribute_table('orders', strategy => 'random')", "22023 unknown strategy").await;
    refused(&client, "redistribute_table('orders', strategy => 'range', planned_shards => 4)", "22023 planned_shards").await;
    refused(
        &client,
        "redistribute_table('orders', key => 'id', colocate_with => 't')",
        "55000 the rows of \"orders\" cannot move to the home shard alone | Moves carry all tables of a colocation group: those of \
         \"t\" would move to the home shard \"a\", too. | If it has the room: SELECT * FROM shardgate.redistribute_table('public.orders', \
         key => 'id', colocate_with => 't', with_colocated => true).",
    )
    .await;
    let shown = client.query("SELECT * FROM shardgate.redistribute_table('orders', key => 'id', dry_run => true)", &[]).await;
    let shown = shown.expect("a dry run");
    assert!(!shown.is_empty() && shown.iter().all(|row| row.get::<_, Option<i32>>("move_id").is_none()));
    assert!(shown.iter().all(|row| row.get::<_, &str>("target") == "a"));
    assert_eq!(partitions_on(proxy, "orders", "b").await, before, "nothing has moved");

    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn(write_orders(proxy.connect().await, std::sync::Arc::clone(&stop)));
    let by_id = "SELECT source FROM shardgate.redistribute_table('orders', key => 'id') WHERE target <> 'a' AND move_id > 0";
    assert!(client.query(by_id, &[]).await.expect("by id").iter().all(|row| row.get::<_, &str>(0) == "a"));
    until_all_are_done(cluster).await;
    assert_eq!(value(&client, "SELECT key FROM shardgate.tables WHERE table_name = 'orders'").await, "id");
    assert!(!partitions_on(proxy, "orders", "b").await.is_empty());
    let with_t = "SELECT count(*) FROM shardgate.redistribute_table('orders', colocate_with => 't', with_colocated => true)";
    client.query_one(with_t, &[]).await.expect("in the group of t");
    until_all_are_done(cluster).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let written = writer.await.expect("no panic");
    assert!(written > 0);
    assert_eq!(value(&client, "SELECT count(*) FROM orders").await, (300 + written).to_string());
    assert_eq!(value(&client, "SELECT count(*) FROM orders JOIN t USING (id)").await, (300 + written).to_string());
    for id in [1, 150, 300 + written] {
        assert_eq!(value(&client, &format!("SELECT count(*) FROM orders WHERE id = {id}")).await, "1");
    }
    refused(&client, "redistribute_table('orders', colocate_with => 't')", "42710 table \"orders\" is colocated with it already")
        .await;
    let groups = "SELECT count(DISTINCT colocation_group) FROM shardgate.tables WHERE table_name IN ('t', 'orders')";
    assert_eq!(value(&client, groups).await, "1");
    assert!(!partitions_on(proxy, "orders", "b").await.is_empty(), "both are spread");
}

async fn moves_in_all(cluster: &Cluster) -> i64 {
    let map = cluster.connect_map().await;
    map.query_one("SELECT count(*) FROM shardgate_map.move", &[]).await.expect("moves").get(0)
}

async fn write_orders(client: tokio_postgres::Client, stop: std::sync::Arc<std::sync::atomic::AtomicBool>) -> i32 {
    let mut written = 0;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let id = 301 + written;
        let sql = format!("INSERT INTO orders VALUES ({}, {id}, 'w')", id % 7);
        client.batch_execute(&sql).await.expect("nobody is told");
        written += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    written
}

async fn tables_are_taken_back(cluster: &Cluster, proxy: &Proxy) {
    let client = proxy.connect().await;
    let orders = value(&client, "SELECT count(*) FROM orders").await;
    refused(
        &client,
        "undistribute_table('orders', dry_run => true)",
        "shardgate.undistribute_table('public.orders', with_colocated => true)",
    )
    .await;
    let dry = "SELECT source, target FROM shardgate.undistribute_table('orders', dry_run => true, with_colocated => true)";
    let shown = client.query(dry, &[]).await.expect("a dry run");
    assert!(!shown.is_empty() && shown.iter().all(|row| row.get::<_, &str>(1) == "a"));
    assert!(!partitions_on(proxy, "orders", "b").await.is_empty(), "nothing has moved");
    let back = client.query("SELECT * FROM shardgate.undistribute_table('orders', with_colocated => true)", &[]).await;
    assert!(back.expect("at home").iter().all(|row| row.get::<_, i32>("move_id") > 0));
    let kinds = "SELECT string_agg(table_name || ' ' || kind, ', ' ORDER BY table_name) FROM shardgate.tables";
    assert_eq!(value(&client, kinds).await, "orders home, t sharded");
    assert_eq!(value(&client, "SELECT count(*) FROM orders").await, orders);
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "12000");
    for shard in 1..3 {
        let there = cluster.connect_shard(shard).await;
        let rows: i64 =
            there.query_one("SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM t)", &[]).await.expect("count").get(0);
        assert_eq!(rows, 0);
    }
    refused(&client, "undistribute_table('orders')", "55000 table \"orders\" is not sharded").await;
    // As by Citus.
    let void = client.query("SELECT undistribute_table('t')", &[]).await.expect("at home already");
    let columns: Vec<_> =
        void.iter().flat_map(tokio_postgres::Row::columns).map(|column| (column.name(), column.type_())).collect();
    assert_eq!(columns, [("undistribute_table", &tokio_postgres::types::Type::VOID)]);
}

/// Nothing was aborted.
async fn until_all_are_done(cluster: &Cluster) {
    let map = cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let ends = "SELECT state, coalesce(error, '') FROM shardgate_map.move WHERE state <> 'done'";
        let left = map.query(ends, &[]).await.expect("moves");
        let left: Vec<(String, String)> = left.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(left.iter().all(|(state, _)| !["aborted", "failed"].contains(&state.as_str())), "{left:?}");
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_lies_twice_is_compared_row_by_row() {
    let (cluster, proxy) = started().await;
    let client = proxy.connect().await;
    client
        .batch_execute("CREATE TABLE languages (code text PRIMARY KEY, name text); INSERT INTO languages VALUES ('de', 'German'), ('en', 'English')")
        .await
        .expect("a table");
    client.batch_execute("SELECT shardgate.reference_table('languages')").await.expect("reference_table");
    let same = rebalance(&cluster, &["verify", "--json"]).await;
    let compared: Value = serde_json::from_slice(&same.stdout).expect("JSON");
    assert!(compared.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["rows"] == 2)), "{compared}");
    let spoil = "UPDATE languages SET name = 'Deutsch' WHERE code = 'de'";
    cluster.connect_shard(2).await.batch_execute(spoil).await.expect("spoilt");
    let differs = rebalance(&cluster, &["verify"]).await;
    assert_eq!(differs.status.code(), Some(1));
    assert!(text(&differs.stderr).contains("languages") && text(&differs.stderr).contains("(de)"), "{}", text(&differs.stderr));
    // Of a partition there is one copy, unless it moves.
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let alone = rebalance(&cluster, &["verify", "--partition", &partition]).await;
    assert_eq!(alone.status.code(), Some(3));
    assert!(text(&alone.stderr).contains("is not being moved"), "{}", text(&alone.stderr));
    rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    let same = rebalance(&cluster, &["verify", "--partition", &partition]).await;
    assert!(same.status.success() && text(&same.stdout).contains("are the same"), "{}{}", text(&same.stdout), text(&same.stderr));
    let copied = "SELECT min(id) FROM t";
    let target = cluster.connect_shard(1).await;
    let id: i64 = target.query_one(copied, &[]).await.expect("a copied row").get(0);
    let spoil = format!("SET session_replication_role = replica; UPDATE t SET v = 'spoilt' WHERE id = {id}");
    target.batch_execute(&spoil).await.expect("spoilt");
    let differs = rebalance(&cluster, &["verify", "--move", "1"]).await;
    assert_eq!(differs.status.code(), Some(1), "{}", text(&differs.stderr));
    assert!(text(&differs.stderr).contains(&format!("({id})")), "{}", text(&differs.stderr));
}
