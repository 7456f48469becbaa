//! Those who write the same rows of a reference table at one time, through two proxies: one after the other on every shard, in one
//! order, and nobody waits for himself.

use super::Ledger;
use crate::sessions::Stage;
use crate::support::{Proxy, ProxyOptions, WireClient, volume};

const CLIENTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_stay_equal_under_writers_of_the_same_rows() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let rounds = volume(6, 400);
    let writers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = if number % 2 == 0 { stage.proxy.address() } else { other.address() };
            tokio::spawn(async move { write(WireClient::connect(address).await, number, rounds).await })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no statement fails");
    }
    Ledger::until_nothing_is_prepared(&stage, std::time::Duration::from_secs(10)).await;
    let mut copies = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query("SELECT code, name FROM currencies ORDER BY code", &[]).await.expect("rows");
        copies.push(rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, String>(1))).collect::<Vec<_>>());
    }
    assert!(copies.iter().all(|copy| *copy == copies[0]), "the order of the writes is the same on all shards: {copies:#?}");
    for (code, name) in &copies[0] {
        assert_eq!(name.matches('.').count(), CLIENTS * rounds, "every write of {code} is there once");
    }
    stage.assert_log_is_clean();
}

/// Each write adds to what the one before has left: alone, or both rows and one of a shard in one transaction.
async fn write(mut client: WireClient, number: usize, rounds: usize) {
    let add = |code: &str| format!("UPDATE currencies SET name = name || '.{number}' WHERE code = '{code}'");
    for round in 0..rounds {
        let texts = match (number + round) % 3 {
            0 => vec![add("EUR"), add("INR")],
            1 => vec![format!("{}; {}", add("EUR"), add("INR"))],
            _ => {
                let own = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {}", number + 1);
                vec!["BEGIN".to_owned(), add("EUR"), own, add("INR"), "COMMIT".to_owned()]
            }
        };
        for text in texts {
            let told = client.ask(&text).await;
            assert!(!told.contains("E(") && !told.contains("C(UPDATE 0)") && told.contains("Z("), "{text}: {told}");
        }
    }
}
