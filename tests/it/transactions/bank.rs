//! Money moves between accounts on different shards while proxies and shards are killed: none appears and none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Ledger;
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient, volume};

/// In `make soak` for about a minute.
const KILLS_IN_TEST: usize = 6;
const KILLS_IN_SOAK: usize = 70;
const CLIENTS_IN_TEST: usize = 8;
const CLIENTS_IN_SOAK: usize = 64;
/// Every account has 100 at the beginning, and there are 90.
const TOTAL: i64 = 9_000;

/// What one client did.
#[derive(Default)]
struct Record {
    acknowledged: Vec<String>,
    /// Told that nothing was applied.
    refused: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_stays_the_same_under_kills() {
    let mut stage = Stage::on(Cluster::separate_servers(3).await, ProxyOptions::default()).await;
    Ledger::create(&stage).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let keys: Vec<i64> =
        (0..3).flat_map(|shard| (0..10).map(move |nth| (shard, nth))).map(|(shard, nth)| stage.key(shard, nth)).collect();
    let clients: Vec<_> = (0..volume(CLIENTS_IN_TEST, CLIENTS_IN_SOAK))
        .map(|number| tokio::spawn(transfers(number, other.address(), keys.clone(), Arc::clone(&is_over))))
        .collect();
    for kill in 0..volume(KILLS_IN_TEST, KILLS_IN_SOAK) {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let shard = kill % 3;
        stage.cluster.shard_server_mut(shard).kill().expect("killed");
        stage.cluster.shard_server_mut(shard).start_again().expect("started again");
        if kill % 2 == 1 {
            stage.proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        check_total(&stage).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut record = Record::default();
    for client in clients {
        let done = client.await.expect("no panic");
        record.acknowledged.extend(done.acknowledged);
        record.refused.extend(done.refused);
    }
    Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
    check_total(&stage).await;
    let mut found = std::collections::HashMap::<String, usize>::new();
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        for row in client.query("SELECT id::text FROM ledger", &[]).await.expect("rows") {
            *found.entry(row.get(0)).or_default() += 1;
        }
    }
    for id in &record.acknowledged {
        assert_eq!(found.get(id), Some(&2), "an acknowledged transfer is there, both sides");
    }
    for id in &record.refused {
        assert_eq!(found.get(id), None, "a transfer that was refused is not there");
    }
    assert!(found.values().all(|count| *count == 2), "a transfer is whole or absent");
    assert!(record.acknowledged.len() > 20, "only {} transfers", record.acknowledged.len());
}

/// Row locks make what is read one moment of all shards. Asked again while a shard is away.
async fn check_total(stage: &Stage) {
    for _ in 0..200 {
        let mut client = WireClient::connect(stage.proxy.address()).await;
        let mut total = 0;
        let mut is_read = client.ask("BEGIN").await.starts_with("C(BEGIN)");
        for id in 1..=90 {
            client.query(&format!("SELECT balance FROM accounts WHERE id = {id} FOR UPDATE"));
            let answers = client.answers().await;
            match answers.iter().find(|message| message.tag == b'D') {
                Some(row) => total += row.columns()[0].as_deref().and_then(|text| text.parse::<i64>().ok()).expect("a number"),
                None => {
                    is_read = false;
                    break;
                }
            }
        }
        drop(client.ask("ROLLBACK").await);
        if is_read {
            assert_eq!(total, TOTAL);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the balances could not be read");
}

async fn transfers(number: usize, proxy: std::net::SocketAddr, keys: Vec<i64>, is_over: Arc<AtomicBool>) -> Record {
    let mut record = Record::default();
    let mut client = WireClient::connect(proxy).await;
    let mut step = number * 7;
    while !is_over.load(Ordering::Relaxed) {
        step += 1;
        let id = format!("00000000-0000-0000-{number:04}-{step:012}");
        // In the order of the keys, so that two transfers do not wait for each other.
        let (a, b) = (keys[step % keys.len()], keys[(step * 11 + number) % keys.len()]);
        if a == b {
            continue;
        }
        let (from, to) = (a.min(b), a.max(b));
        let texts = [
            "BEGIN".to_owned(),
            format!("UPDATE accounts SET balance = balance - 1 WHERE id = {from}"),
            format!("UPDATE accounts SET balance = balance + 1 WHERE id = {to}"),
            format!("INSERT INTO ledger VALUES ('{id}', {from}, -1)"),
            format!("INSERT INTO ledger VALUES ('{id}', {to}, 1)"),
        ];
        let mut is_ready = true;
        for text in texts {
            if client.ask(&text).await.contains("E(") {
                is_ready = false;
                break;
            }
        }
        if !is_ready {
            drop(client.ask("ROLLBACK").await);
            record.refused.push(id);
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        client.query("COMMIT");
        client.flush().await;
        let mut told = None;
        while let Some(message) = client.next_within(Duration::from_secs(60)).await {
            match message.tag {
                b'C' => told = Some(String::new()),
                b'E' => told = Some(message.field(b'C')),
                b'Z' => break,
                _ => {}
            }
        }
        match told.as_deref() {
            Some("") => record.acknowledged.push(id),
            // The outcome is unknown.
            Some("08007") => {}
            Some(_) => record.refused.push(id),
            None => client = WireClient::connect(proxy).await,
        }
    }
    record
}
