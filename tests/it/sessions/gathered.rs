//! What surrounds a statement over gathered rows: its limits, its end when it is cancelled, timed out, or loses a shard or its
//! client, and that nothing of it stays behind.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Cluster, ProxyOptions};

/// Not merged in the proxy, and quick.
const JOINED: &str = "SELECT count(*) FROM accounts a JOIN accounts b ON b.balance = a.balance AND b.id = a.id + 1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_over_gathered_rows_end_as_they_must() {
    let settings = vec![("cross_shard.gather_bytes_max", "65536".to_owned()), ("pool.size_per_shard", "8".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    explained(&stage).await;
    cancelled(&stage).await;
    timed_out(&stage).await;
    left_alone(&stage).await;
    without_temporary_tables(&stage).await;
    crowded(&stage).await;
    too_large(&stage).await;
    nothing_stays(&stage).await;
    stage.assert_log_is_clean();
}

async fn explained(stage: &Stage) {
    let mut client = stage.client().await;
    let told = client.ask(&format!("EXPLAIN (SHARDS) {JOINED}")).await;
    for line in [
        "Route: gather",
        "Shards: shard0, shard1",
        "On shard1: SELECT \"id\", \"balance\" FROM \"public\".\"accounts\"",
        "Merge: PostgreSQL on shard0: SELECT count(*) FROM pg_temp.\"shardgate_input_1\" a JOIN",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    for (options, plan) in [
        ("ANALYZE", "Aggregate  (cost="),
        ("ANALYZE, COSTS OFF, FORMAT JSON", "\"Node Type\": \"Aggregate\""),
        ("ANALYZE, COSTS OFF, FORMAT YAML", "Node Type: \"Aggregate\""),
        ("ANALYZE, FORMAT XML", "<Node-Type>Aggregate</Node-Type>"),
    ] {
        let told = client.ask(&format!("EXPLAIN ({options}) {JOINED}")).await;
        for line in ["gather", "(actual rows=", " bytes=", plan] {
            assert!(told.contains(line), "{options}, {line}: {told}");
        }
    }
    let told =
        client.ask("EXPLAIN ANALYZE SELECT 1 / (count(*) - count(*)) FROM accounts a, accounts b WHERE a.id = b.balance").await;
    assert_eq!(told, "E(22012 division by zero) Z(I)");
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    assert!(client.ask(&format!("EXPLAIN ANALYZE {JOINED}")).await.ends_with("C(EXPLAIN) Z(T)"));
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
}

/// While it waits for rows, and while it computes; in a transaction block too.
async fn cancelled(stage: &Stage) {
    let mut client = stage.client().await;
    let lock = Lock::take(stage, 1).await;
    for begin in ["SELECT 1", "BEGIN"] {
        succeed(&mut client, begin).await;
        client.query(JOINED);
        client.flush().await;
        stage.until_active(1, "COPY (SELECT").await;
        client.cancel().await;
        let told = client.transcript().await;
        assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
        client.ask("ROLLBACK").await;
    }
    lock.release().await;
    client.query("SELECT count(*) FROM accounts a, accounts b, accounts c, accounts d, accounts e WHERE a.id < b.balance + c.id");
    client.flush().await;
    stage.until_active(0, "shardgate_input_1").await;
    client.cancel().await;
    let told = client.transcript().await;
    assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
    assert_eq!(client.value(JOINED).await, "89");
}

/// One deadline over all of its parts.
async fn timed_out(stage: &Stage) {
    let mut client = stage.client().await;
    let lock = Lock::take(stage, 1).await;
    succeed(&mut client, "SET statement_timeout = '300ms'").await;
    let asked_at = Instant::now();
    let told = client.ask(JOINED).await;
    assert!(told.contains("E(57014 canceling statement due to statement timeout)"), "{told}");
    assert!(asked_at.elapsed() < Duration::from_secs(3), "{:?}", asked_at.elapsed());
    lock.release().await;
    assert_eq!(client.value(JOINED).await, "89");
}

/// A client that goes takes its statement with it.
async fn left_alone(stage: &Stage) {
    let lock = Lock::take(stage, 1).await;
    let mut client = stage.client().await;
    client.query(JOINED);
    client.flush().await;
    stage.until_active(1, "COPY (SELECT").await;
    drop(client);
    until_gone(stage, 1, "query LIKE '%COPY (SELECT%' AND wait_event_type = 'Lock'").await;
    until_gone(stage, 0, "state = 'idle in transaction'").await;
    lock.release().await;
}

async fn without_temporary_tables(stage: &Stage) {
    let home = stage.cluster.connect_shard(0).await;
    home.batch_execute("REVOKE TEMPORARY ON DATABASE shard0 FROM PUBLIC").await.expect("revoke");
    let mut client = stage.client().await;
    succeed(&mut client, "SET ROLE reader").await;
    let told = client.ask(JOINED).await;
    assert!(told.contains("E(0A000 this statement needs temporary tables, which this user may not create)"), "{told}");
    home.batch_execute("GRANT TEMPORARY ON DATABASE shard0 TO PUBLIC").await.expect("grant");
    assert_eq!(client.value(JOINED).await, "89");
}

/// More statements at once than there are connections.
async fn crowded(stage: &Stage) {
    let mut tasks = Vec::new();
    for _ in 0..24 {
        let mut client = stage.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..3 {
                assert_eq!(client.value(JOINED).await, "89");
            }
        }));
    }
    for task in tasks {
        task.await.expect("answered");
    }
}

/// Rows of other shards, the home shard's own, and those that a transaction has written.
async fn too_large(stage: &Stage) {
    let mut client = stage.client().await;
    let limit = "E(53400 statement needs more than 65536 bytes of rows of several shards)";
    let longest = "SELECT max(length(a.owner)) FROM accounts a JOIN accounts b ON b.balance = a.balance";
    for shard in [1, 0] {
        succeed(&mut client, "BEGIN").await;
        for nth in 0..10 {
            let id = stage.key(shard, nth);
            // A value that does not compress.
            let text = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g)";
            succeed(&mut client, &format!("UPDATE accounts SET owner = {text} WHERE id = {id}")).await;
        }
        let told = client.ask(longest).await;
        assert!(told.contains(limit) && told.ends_with("Z(E)"), "own rows of shard{shard}: {told}");
        succeed(&mut client, "ROLLBACK").await;
        assert_eq!(client.value(longest).await, "3");
        let direct = stage.cluster.connect_shard(shard).await;
        let longer = "UPDATE accounts SET owner = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g)";
        direct.batch_execute(longer).await.expect("longer");
        let told = client.ask(longest).await;
        assert!(told.contains(limit) && told.ends_with("Z(I)"), "rows of shard{shard}: {told}");
        direct.batch_execute("UPDATE accounts SET owner = 'o' || id").await.expect("shorter");
        assert_eq!(client.value(longest).await, "3");
    }
}

async fn nothing_stays(stage: &Stage) {
    until_gone(stage, 0, "state LIKE 'idle in transaction%'").await;
    until_gone(stage, 1, "state LIKE 'idle in transaction%'").await;
    let home = stage.cluster.connect_shard(0).await;
    let left = home.query("SELECT FROM pg_class WHERE relname LIKE 'shardgate_input%'", &[]).await.expect("relations");
    assert!(left.is_empty(), "{} temporary tables are left", left.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_lost_ends_the_statement_with_its_name() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let lock = Lock::take(&stage, 1).await;
    let mut client = stage.client().await;
    client.query(JOINED);
    client.flush().await;
    stage.until_active(1, "COPY (SELECT").await;
    stage.cluster.shard_server_mut(1).kill().expect("kill the shard");
    let told = client.transcript().await;
    assert!(told.contains("E(08006 ") && told.contains("shard1"), "{told}");
    drop(lock);
    stage.cluster.shard_server_mut(1).start_again().expect("start it again");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.ask(JOINED).await.contains("D(89)") {
        assert!(Instant::now() < deadline, "the statement does not work again");
    }
    stage.assert_no_panic();
}

/// Many times more rows than the proxy may hold go through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_pass_through_in_bounded_memory() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    let rows = "INSERT INTO accounts SELECT g, repeat(md5(g::text), 10), g % 1000 FROM generate_series(1000, 201000) g";
    direct.batch_execute(rows).await.expect("rows");
    let mut client = stage.client().await;
    let ranked = |first: u32| {
        let rows = format!("SELECT owner, rank() OVER (ORDER BY balance, owner) AS r FROM accounts WHERE id >= {first}");
        format!("SELECT max(r) FROM ({rows}) x")
    };
    // Code and buffers that every such statement needs are there from now on.
    assert_eq!(client.value(&ranked(191_001)).await, "10000");
    let before = resident_kib(&stage);
    assert_eq!(client.value(&ranked(1_000)).await, "200001");
    let after = resident_kib(&stage);
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB after 64 MB of rows");
}

pub(super) fn resident_kib(stage: &Stage) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", stage.proxy.pid())).expect("the proxy's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Keeps everybody from reading `accounts` on one shard.
struct Lock(tokio_postgres::Client);

impl Lock {
    async fn take(stage: &Stage, shard: usize) -> Self {
        let client = stage.cluster.connect_shard(shard).await;
        client.batch_execute("BEGIN; LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        Self(client)
    }

    async fn release(self) {
        self.0.batch_execute("ROLLBACK").await.expect("released");
    }
}

pub(super) async fn until_gone(stage: &Stage, shard: usize, condition: &str) {
    let client = stage.cluster.connect_shard(shard).await;
    let sql = format!(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND {condition} AND query NOT LIKE 'BEGIN; LOCK%'"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.query(&sql, &[]).await.expect("activity").is_empty() {
        assert!(Instant::now() < deadline, "{condition} on shard{shard}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
