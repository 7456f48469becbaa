//! What takes part in a commit over several shards at each isolation level.

use super::kills::{Points, Told, commit};
use crate::sessions::Stage;
use crate::support::{Proxy, ProxyOptions, WireClient};

fn options(points: &Points) -> ProxyOptions {
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    ProxyOptions { settings, ..points.options() }
}

/// A transaction that begins by these statements reads on shard 2 and writes on these: on which shards is it prepared?
async fn assert_prepared(stage: &Stage, points: &Points, mut client: WireClient, begin: &str, written: &[usize], wanted: &[usize]) {
    let read = format!("SELECT balance FROM accounts WHERE id = {}", stage.key(2, 0));
    // Each by itself: in one Query a SET is part of the transaction that BEGIN goes on with.
    for text in begin.split("; ").chain([&*read]) {
        assert!(!client.ask(text).await.contains("E("), "{begin}: {text}");
    }
    for shard in written {
        let update = format!("UPDATE accounts SET balance = 1 WHERE id = {}", stage.key(*shard, 0));
        assert_eq!(client.ask(&update).await, "C(UPDATE 1) Z(T)");
    }
    points.arm("after_prepare", "hold");
    let committing = tokio::spawn(async move { commit(&mut client).await });
    points.until_reached("after_prepare").await;
    let direct = stage.cluster.connect_shard(0).await;
    let sql = "SELECT database FROM pg_prepared_xacts WHERE gid LIKE 'sg:%' ORDER BY database";
    let found: Vec<String> = direct.query(sql, &[]).await.expect("prepared").iter().map(|row| row.get(0)).collect();
    let wanted: Vec<String> = wanted.iter().map(|shard| format!("shard{shard}")).collect();
    points.release("after_prepare");
    assert_eq!(found, wanted, "{begin}");
    assert_eq!(committing.await.expect("no panic"), Told::Committed, "{begin}");
    assert_eq!(stage.client().await.value("SELECT count(*) FROM shardgate.transactions").await, "0");
}

/// In SERIALIZABLE what was read counts too: that shard may refuse as well, so it promises like one that was written.
#[tokio::test]
async fn a_shard_that_was_only_read_is_prepared_in_serializable_transactions() {
    let points = Points::new();
    let stage = Stage::start(3, options(&points)).await;
    let begin = |level: &str| format!("BEGIN ISOLATION LEVEL {level}");
    let set = |level: &str| format!("SET default_transaction_isolation = '{level}'");
    let by_default = |level: &str| format!("{}; BEGIN", set(level));
    for (begin, written, prepared) in [
        (begin("SERIALIZABLE"), vec![0, 1], vec![1, 2]),
        (begin("SERIALIZABLE"), vec![0], vec![2]),
        (begin("REPEATABLE READ"), vec![0, 1], vec![1]),
        (begin("READ COMMITTED"), vec![0, 1], vec![1]),
        ("BEGIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE".to_owned(), vec![0], vec![2]),
        (by_default("serializable"), vec![0], vec![2]),
        (by_default("repeatable read"), vec![0, 1], vec![1]),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN".to_owned(), vec![0], vec![2]),
        // These are about transactions to come.
        (format!("{}; {}", by_default("serializable"), set("read committed")), vec![0], vec![2]),
        (format!("BEGIN; {}", set("serializable")), vec![0, 1], vec![1]),
    ] {
        assert_prepared(&stage, &points, stage.client().await, &begin, &written, &prepared).await;
    }
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn a_default_of_the_database_the_role_or_the_client_is_the_level_of_its_transactions() {
    let points = Points::new();
    let mut stage = Stage::start(3, options(&points)).await;
    let direct = stage.cluster.connect_shard(0).await;
    let at_login = [("user", "postgres"), ("database", "app"), ("options", "-c default_transaction_isolation=serializable")];
    for (owner, parameters) in
        [("DATABASE shard0", &at_login[..2]), ("ROLE postgres", &at_login[..2]), ("ROLE reader", &at_login[..])]
    {
        let give = format!("ALTER {owner} SET default_transaction_isolation = 'serializable'");
        direct.batch_execute(&give).await.expect("given");
        // It has not asked for the defaults yet.
        stage.proxy = Proxy::start(&stage.cluster, options(&points));
        let client = WireClient::connect_with(stage.proxy.address(), parameters).await;
        assert_prepared(&stage, &points, client, "BEGIN", &[0], &[2]).await;
        direct.batch_execute(&format!("ALTER {owner} RESET ALL")).await.expect("taken back");
    }
    stage.assert_log_is_clean();
}
