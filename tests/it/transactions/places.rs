//! A server can hold few prepared transactions, and what waits for them ends: commits take turns, `CREATE INDEX CONCURRENTLY` does not
//! wait for what nobody finishes.

use std::time::{Duration, Instant};

use super::kills::{Points, Told, commit};
use crate::sessions::Stage;
use crate::support::{Cluster, ProxyOptions, WireClient};

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
