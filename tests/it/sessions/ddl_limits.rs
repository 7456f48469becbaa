//! What ends a schema change that waits, what it leaves, and what of that keeps statements from running.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_change_ends_with_the_limits_of_its_client() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let direct = stage.cluster.connect_shard(1).await;
    succeed(&mut client, "SET statement_timeout = '1500ms'").await;
    direct.batch_execute("BEGIN; UPDATE accounts SET balance = balance").await.expect("a writer");
    let told = client.ask("ALTER TABLE accounts ADD COLUMN late int").await;
    assert!(told.ends_with("E(57014 canceling statement due to statement timeout) Z(I)"), "{told}");
    // An index that was begun, and is not finished, is taken up by the statement that makes it, and by no other.
    let make = "CREATE INDEX CONCURRENTLY by_balance ON accounts (balance)";
    let told = client.ask(make).await;
    assert!(told.contains("E(57014 "), "{told}");
    direct.batch_execute("COMMIT").await.expect("the writer ends");
    succeed(&mut client, "RESET statement_timeout").await;
    for other in [
        "CREATE UNIQUE INDEX CONCURRENTLY by_balance ON accounts (id, balance)",
        "CREATE INDEX CONCURRENTLY by_balance ON accounts (owner)",
        "CREATE INDEX CONCURRENTLY by_balance ON notes (text)",
    ] {
        assert_eq!(client.ask(other).await, "E(42P07 relation \"by_balance\" already exists) Z(I)", "{other}");
    }
    let told = client.ask(make).await;
    assert!(told.ends_with("C(CREATE INDEX) Z(I)"), "{told}");
    for shard in 0..2 {
        let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = 'by_balance'::regclass AND indisvalid";
        let found: i64 = stage.cluster.connect_shard(shard).await.query_one(valid, &[]).await.expect("counted").get(0);
        assert_eq!(found, 1, "shard{shard}");
    }
    plain_indexes_differ(&stage).await;
}

/// They make statements faster, and no other.
async fn plain_indexes_differ(stage: &Stage) {
    let direct = stage.cluster.connect_shard(1).await;
    direct.batch_execute("CREATE INDEX stray ON accounts (owner)").await.expect("made");
    let proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !proxy.log().contains("stray") {
        assert!(Instant::now() < deadline, "not noticed: {}", proxy.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut client = WireClient::connect(proxy.address()).await;
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}
