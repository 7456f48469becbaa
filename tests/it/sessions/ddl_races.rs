//! Two proxies that change the schema of the same tables at once: they wait for each other, and a deadlock has one victim.

use super::stage::Stage;
use crate::support::{Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_by_two_proxies_at_once_are_both_made() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut one, mut other) = (stage.client().await, WireClient::connect(second.address()).await);
    for round in 0..6 {
        let changes = |who: &str| {
            ["accounts", "currencies", "notes"].map(|table| format!("ALTER TABLE {table} ADD COLUMN {who}{round} int")).to_vec()
        };
        let (straight, mut reversed) = (changes("one"), changes("other"));
        reversed.reverse();
        tokio::join!(all_succeed(&mut one, &straight), all_succeed(&mut other, &reversed));
    }
    for table in ["accounts", "currencies", "notes"] {
        let count = format!("SELECT count(*) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname ~ '^(one|other)'");
        for shard in 0..3 {
            let direct = stage.cluster.connect_shard(shard).await;
            assert_eq!(direct.query_one(&count, &[]).await.expect("a count").get::<_, i64>(0), 12, "{table} on {shard}");
        }
    }
    crosswise(&stage, &mut one, &mut other).await;
    stage.assert_log_is_clean();
}

async fn all_succeed(client: &mut WireClient, statements: &[String]) {
    for statement in statements {
        let told = client.ask(statement).await;
        assert!(told.ends_with("C(ALTER TABLE) Z(I)"), "{statement}: {told}");
    }
}

/// Each has what the other one wants: as in PostgreSQL one of them is the victim, not both in the end, and the other goes on.
async fn crosswise(stage: &Stage, one: &mut WireClient, other: &mut WireClient) {
    let change = |table: &str, who: &str| format!("ALTER TABLE {table} ADD COLUMN {who} int");
    for client in [&mut *one, &mut *other] {
        assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    }
    assert_eq!(one.ask(&change("accounts", "crossed_one")).await, "C(ALTER TABLE) Z(T)");
    assert_eq!(other.ask(&change("currencies", "crossed_other")).await, "C(ALTER TABLE) Z(T)");
    let ended = tokio::join!(end(one, change("currencies", "crossed_one")), end(other, change("accounts", "crossed_other")),);
    let victims = [&ended.0, &ended.1].into_iter().filter(|told| told.contains("E(40P01 ")).count();
    let made = [&ended.0, &ended.1].into_iter().filter(|told| told.ends_with("C(COMMIT) Z(I)")).count();
    assert_eq!((victims, made), (1, 1), "{ended:?}");
    stage.assert_no_panic();
}

async fn end(client: &mut WireClient, statement: String) -> String {
    let mut told = client.ask(&statement).await;
    for _ in 0..PATIENCE {
        if told != NOTHING_YET {
            break;
        }
        told = client.transcript().await;
    }
    format!("{told} {}", client.ask("COMMIT").await)
}

/// What a client says that has waited in vain for a while.
const NOTHING_YET: &str = "nothing";
const PATIENCE: usize = 6;
