//! Partitioned tables move as others do: rows of every partition, whatever its columns' order, partitions of partitions and the
//! default partition too, while clients write to the whole table, write to its partitions and move rows between these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::operators::until_move;
use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions};

/// `lines` has primary keys on its partitions only.
const TABLES: &str = "
    CREATE TABLE events (tenant bigint NOT NULL, day date NOT NULL, id bigint NOT NULL, note text, PRIMARY KEY (tenant, day, id))
        PARTITION BY RANGE (day);
    CREATE TABLE events_jan PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
    CREATE TABLE events_feb (gone int, note text, id bigint NOT NULL, day date NOT NULL, tenant bigint NOT NULL);
    ALTER TABLE events_feb DROP COLUMN gone;
    ALTER TABLE events ATTACH PARTITION events_feb FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
    CREATE TABLE events_mar PARTITION OF events FOR VALUES FROM ('2024-03-01') TO ('2024-04-01') PARTITION BY HASH (id);
    CREATE TABLE events_mar_0 PARTITION OF events_mar FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE events_mar_1 PARTITION OF events_mar FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    CREATE TABLE events_rest PARTITION OF events DEFAULT;
    CREATE TABLE marks (tenant bigint, day date, id bigint, mark int, PRIMARY KEY (tenant, day, id),
                        FOREIGN KEY (tenant, day, id) REFERENCES events ON DELETE CASCADE) PARTITION BY RANGE (day);
    CREATE TABLE marks_old PARTITION OF marks FOR VALUES FROM ('2024-01-01') TO ('2024-03-01');
    CREATE TABLE marks_rest PARTITION OF marks DEFAULT;
    CREATE TABLE lines (tenant bigint NOT NULL, line bigint NOT NULL, body text) PARTITION BY LIST (line);
    CREATE TABLE lines_1 PARTITION OF lines (PRIMARY KEY (tenant, line)) FOR VALUES IN (1);
    CREATE TABLE lines_more PARTITION OF lines (PRIMARY KEY (line, tenant)) DEFAULT;
    CREATE VIEW spring AS SELECT e.tenant, e.id, m.mark FROM events_mar e LEFT JOIN marks m USING (tenant, day, id);
    INSERT INTO events SELECT g % 50, date '2024-01-01' + g % 120, -g, repeat('x', 3000) FROM generate_series(1, 600) g;
    INSERT INTO marks SELECT tenant, day, id, 1 FROM events WHERE id % 2 = 0;
    INSERT INTO lines SELECT g % 50, g / 50 + 1, 'l' FROM generate_series(0, 149) g;";

async fn started() -> (Cluster, Proxy) {
    let cluster = Cluster::start(2).await;
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let admin = proxy.connect().await;
    for (shard, name, then) in [(0, "a", TABLES), (1, "b", "")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
        admin.batch_execute(then).await.expect("tables");
    }
    let keys =
        r#"SELECT shardgate.distribute_tables('{"events": "tenant", "marks": "tenant", "lines": "tenant"}', partitions => 4)"#;
    admin.batch_execute(keys).await.expect("distribute_tables");
    (cluster, proxy)
}

async fn done(cluster: &Cluster, arguments: &[&str]) -> Value {
    let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn count(client: &Client, from: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {from}"), &[]).await.expect("count").get(0)
}

async fn is_healthy(cluster: &Cluster) {
    let healthy = rebalance(cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}{}", text(&healthy.stdout), text(&healthy.stderr));
}

/// Rows that come, go from partition to partition with and without their large value, and leave again but for each fourth one. Gives
/// how many are left.
async fn write(client: Client, is_over: Arc<AtomicBool>, first: i64) -> i64 {
    let mut written = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (id, tenant) = (first + written, written % 50);
        let row = format!("tenant = {tenant} AND id = {id}");
        for sql in [
            format!("INSERT INTO events VALUES ({tenant}, '2024-01-05', {id}, repeat('y', 3000))"),
            format!("UPDATE events SET day = '2024-03-07' WHERE {row}"),
            format!("INSERT INTO marks VALUES ({tenant}, '2024-03-07', {id}, 2)"),
            format!("UPDATE events_mar SET note = note || 'z' WHERE {row}"),
            format!("DELETE FROM marks WHERE {row}"),
            format!("UPDATE events SET day = '2025-01-01' WHERE {row}"),
            format!("UPDATE lines SET body = 'w{id}' WHERE tenant = {tenant}"),
        ] {
            assert!(client.execute(&sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")) > 0, "{sql}");
        }
        if written % 4 != 0 {
            let gone = format!("DELETE FROM events_rest WHERE {row} AND note = repeat('y', 3000) || 'z'");
            assert_eq!(client.execute(&gone, &[]).await.expect("delete"), 1);
        }
        written += 1;
    }
    (written + 3) / 4
}

/// What no writer changes, by the whole table, by partitions, and by a view.
async fn read(client: Client, is_over: Arc<AtomicBool>) -> i64 {
    let mut reads = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (from, rows) in [
            ("events WHERE id < 0", 600),
            ("events_feb", 145),
            ("events_rest WHERE id < 0", 145),
            ("marks WHERE mark = 1", 300),
            ("lines", 150),
            ("spring WHERE id < 0", 155),
        ] {
            assert_eq!(count(&client, from).await, rows, "{from}");
        }
        reads += 1;
    }
    reads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_table_moves_there_and_back_and_there_under_load() {
    let (cluster, proxy) = started().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    for first in [1, 1_000_000] {
        writers.spawn(write(proxy.connect().await, Arc::clone(&is_over), first));
    }
    readers.spawn(read(proxy.connect().await, Arc::clone(&is_over)));
    let partitions = partitions_on(&proxy, "events", "a").await;
    let list = format!("{},{}", partitions[0], partitions[2]);
    done(&cluster, &["move", "--partition", &list, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    is_healthy(&cluster).await;
    for table in ["events_jan", "events_feb", "events_mar_1", "events_rest", "marks_old", "lines_1", "lines_more"] {
        assert!(count(&cluster.connect_shard(1).await, table).await > 0, "{table} is copied");
    }
    let shown = done(&cluster, &["cutover", "1"]).await;
    assert_eq!((&shown["state"], &shown["can_roll_back"]), (&"switched".into(), &true.into()), "{shown}");
    done(&cluster, &["verify", "--move", "1"]).await;
    let back = done(&cluster, &["rollback", "1"]).await;
    assert_eq!(back["error"], "rolled back", "{back}");
    assert_eq!(count(&cluster.connect_shard(1).await, "events").await, 0);
    let moved = move_partitions(&cluster, &[partitions[0], partitions[2]], "b").await;
    assert_eq!(moved["state"], "done", "{moved}");
    is_over.store(true, Ordering::Relaxed);
    let mut left = 0;
    while let Some(written) = writers.join_next().await {
        left += written.expect("no writer saw an error");
    }
    assert!(readers.join_next().await.expect("a reader").expect("no reader saw a wrong count") > 3);
    let client = proxy.connect().await;
    assert!(left > 10, "{left}");
    assert_eq!(count(&client, "events WHERE id > 0 AND day = '2025-01-01' AND note = repeat('y', 3000) || 'z'").await, left);
    assert_eq!((count(&client, "events").await, count(&client, "marks").await), (600 + left, 300));
    let (a, b) = (cluster.connect_shard(0).await, cluster.connect_shard(1).await);
    for (table, rows) in [("events", 600 + left), ("marks", 300), ("lines", 150)] {
        let stored = [count(&a, table).await, count(&b, table).await];
        assert!(stored.iter().sum::<i64>() == rows && stored.iter().all(|rows| *rows > 0), "{table}: {stored:?}");
    }
    is_healthy(&cluster).await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn partitions_that_come_and_go_end_a_move_and_wait_for_one_that_has_switched() {
    let (cluster, proxy) = started().await;
    let client = proxy.connect().await;
    let one = partitions_on(&proxy, "events", "a").await[0].to_string();
    let code = |error: tokio_postgres::Error| error.code().map(|code| code.code().to_owned());
    let waits = ["move", "--partition", &one, "--to", "b", "--manual-cutover", "--detach"];
    done(&cluster, &waits).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    // By the whole table and by its partition, through the proxy and past it.
    for table in ["events, marks", "events_jan, marks", "lines_1"] {
        let refused = client.batch_execute(&format!("TRUNCATE {table}")).await.expect_err("refused");
        assert_eq!(code(refused).as_deref(), Some("55006"), "{table}");
    }
    let direct = cluster.connect_shard(1).await;
    for sql in ["INSERT INTO lines_1 SELECT tenant, 1, 'd' FROM generate_series(1000, 1100) tenant", "UPDATE events SET note = 'd'"]
    {
        assert_eq!(code(direct.batch_execute(sql).await.expect_err("the gate")).as_deref(), Some("40001"), "{sql}");
    }
    // A new partition ends it, on every shard.
    client
        .batch_execute("CREATE TABLE events_apr PARTITION OF events FOR VALUES FROM ('2024-05-01') TO ('2024-06-01')")
        .await
        .expect("created");
    until_move(&cluster, |state, _| state == "aborted").await;
    assert_eq!((count(&direct, "events").await, count(&direct, "events_apr").await), (0, 0));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    // One that somebody makes past the proxy is found before the cut-over.
    done(&cluster, &waits).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    let source = cluster.connect_shard(0).await;
    let made = "CREATE TABLE events_jun PARTITION OF events FOR VALUES FROM ('2024-06-01') TO ('2024-07-01')";
    source.batch_execute(made).await.expect("made");
    let aborted = rebalance(&cluster, &["cutover", "2"]).await;
    assert_eq!(aborted.status.code(), Some(1), "{}", text(&aborted.stderr));
    until_move(&cluster, |state, _| state == "aborted").await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    let refused = rebalance(&cluster, &["move", "--partition", &one, "--to", "b"]).await;
    assert!(text(&refused.stderr).contains("shard \"b\" lacks table \"public\".\"events_jun\""), "{}", text(&refused.stderr));
    source.batch_execute("ALTER TABLE events DETACH PARTITION events_jun; DROP TABLE events_jun").await.expect("dropped");
    // After the switch it waits until the move is finished.
    done(&cluster, &["move", "--partition", &one, "--to", "b", "--grace", "1s"]).await;
    client
        .batch_execute("CREATE TABLE events_may PARTITION OF events FOR VALUES FROM ('2024-07-01') TO ('2024-08-01')")
        .await
        .expect("created");
    until_move(&cluster, |state, _| state == "done").await;
    assert_eq!(count(&client, "events").await, 600);
    is_healthy(&cluster).await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_in_the_way_at_a_partition_is_named_with_it() {
    let (cluster, proxy) = started().await;
    for (shard, sql) in [
        (0, "ALTER TABLE lines_1 DROP CONSTRAINT lines_1_pkey; ALTER TABLE marks_old SET UNLOGGED"),
        (0, "CREATE ROLE narrow; GRANT SELECT (note) ON events_feb TO narrow"),
        (1, "ALTER TABLE events DETACH PARTITION events_jan"),
    ] {
        cluster.connect_shard(shard).await.batch_execute(sql).await.expect("altered");
    }
    let one = partitions_on(&proxy, "events", "a").await[0].to_string();
    let refused = rebalance(&cluster, &["move", "--partition", &one, "--to", "b"]).await;
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{told}");
    for part in [
        "the primary key of table \"public\".\"lines_1\", or its replica identity, lacks the shard key, or is DEFERRABLE",
        "unlogged table \"public\".\"marks_old\"",
        "columns of table \"public\".\"events_feb\", but not its shard key: narrow",
        "shard \"b\" lacks table \"public\".\"events_jan\"",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}
