//! A server can hold few prepared transactions, and what waits for them ends: commits take turns, `CREATE INDEX CONCURRENTLY` does not
//! wait for what nobody finishes.

use std::time::{Duration, Instant};

use super::Ledger;
use super::kills::{Points, Told, commit};
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

async fn write_on_two(client: &mut WireClient, stage: &Stage, row: usize) {
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    for shard in 0..2 {
        let update = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {}", stage.key(shard, row));
        assert_eq!(client.ask(&update).await, "C(UPDATE 1) Z(T)");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_commits_than_a_server_can_prepare_take_turns() {
    let cluster = Cluster::start_with(2, &[("max_prepared_transactions", "3")]).await;
    let stage = Stage::on(cluster, ProxyOptions::default()).await;
    let committing = (0..CLIENTS).map(|row| {
        let stage = &stage;
        async move {
            let mut client = stage.client().await;
            for _ in 0..ROUNDS {
                write_on_two(&mut client, stage, row).await;
                assert_eq!(commit(&mut client).await, Told::Committed);
            }
        }
    });
    futures::future::join_all(committing).await;
    let mut client = stage.client().await;
    let changed = format!("SELECT count(*) FROM accounts WHERE balance = {}", 100 + ROUNDS);
    assert_eq!(client.value(&changed).await, (2 * CLIENTS).to_string());
    stage.assert_log_is_clean();
}

const CLIENTS: usize = 16;
const ROUNDS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_waits_for_its_turn_for_a_while_and_operators_see_why() {
    let points = Points::new();
    let cluster = Cluster::start_with(2, &[("max_prepared_transactions", "1")]).await;
    let settings = vec![("pool.checkout_timeout_ms", "300".to_owned())];
    let stage = Stage::on(cluster, ProxyOptions { settings, ..points.options() }).await;
    let (mut holder, mut waiter) = (stage.client().await, stage.client().await);
    write_on_two(&mut holder, &stage, 0).await;
    write_on_two(&mut waiter, &stage, 1).await;
    points.arm("after_decision", "hold");
    let holding = tokio::spawn(async move { commit(&mut holder).await });
    points.until_reached("after_decision").await;
    assert_eq!(commit(&mut waiter).await, Told::Failed("53400".to_owned()));
    until_metrics(&stage, |prepared, age| prepared == 1.0 && age > 0.0).await;
    points.release("after_decision");
    assert_eq!(holding.await.expect("no panic"), Told::Committed);
    write_on_two(&mut waiter, &stage, 1).await;
    assert_eq!(commit(&mut waiter).await, Told::Committed);
    until_metrics(&stage, |prepared, age| prepared == 0.0 && age == 0.0).await;
    assert_eq!(waiter.value("SELECT count(*) FROM accounts WHERE balance = 101").await, "4");
}

/// Prepared transactions and the age of the oldest, as scraped.
async fn until_metrics(stage: &Stage, is_right: impl Fn(f64, f64) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (_, text) = stage.proxy.admin("/metrics").expect("metrics");
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a metric");
            line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
        };
        if is_right(value("shardgate_prepared_transactions"), value("shardgate_prepared_transactions_seconds_max")) {
            return;
        }
        assert!(Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What can be finished is, by the proxy that runs the statement; for the rest the client is told instead of waiting for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_not_built_behind_what_stays_in_doubt() {
    let points = Points::new();
    let stage = Stage::start(2, points.options()).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(other.address()).await;
    let mut lost = stage.client().await;
    write_on_two(&mut lost, &stage, 0).await;
    points.arm("after_decision", "abort");
    assert_eq!(commit(&mut lost).await, Told::Nothing);
    assert_eq!(client.ask("CREATE INDEX CONCURRENTLY one ON accounts (owner)").await, "C(CREATE INDEX) Z(I)");
    Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;

    let map = stage.cluster.connect_map().await;
    let cluster: String = map.query_one("SELECT cluster_id FROM shardgate_map.cluster", &[]).await.expect("a cluster").get(0);
    let gid = format!("sg:{cluster}:00000000-0000-4000-8000-000000000000:1:1:{}:1", "ab".repeat(32));
    let direct = stage.cluster.connect_shard(1).await;
    direct
        .batch_execute(&format!("BEGIN; UPDATE accounts SET owner = owner; PREPARE TRANSACTION '{gid}'"))
        .await
        .expect("prepared");
    for statement in
        ["CREATE INDEX CONCURRENTLY two ON accounts (owner)", "DROP INDEX CONCURRENTLY one", "REINDEX INDEX CONCURRENTLY one"]
    {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(55006 "), "{statement}: {told}");
    }
    direct.batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).await.expect("ended");
    assert_eq!(client.ask("DROP INDEX CONCURRENTLY one").await, "C(DROP INDEX) Z(I)");
}
