//! REPEATABLE READ and SERIALIZABLE: the snapshot is that of the transaction's first statement, also when that one names no
//! table, and wherever the transaction goes afterwards.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test]
async fn a_statement_without_tables_takes_the_snapshot_and_binds_no_shard() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        the_first_select_takes_the_snapshot(&stage, level).await;
        show_takes_none(&stage, level).await;
        one_shard_is_used(&stage, level).await;
        what_a_server_says_of_itself_binds(&stage, level).await;
    }
    settings_follow(&stage).await;
    conflicts_are_found(&stage).await;
    stage.assert_log_is_clean();
}

async fn set_balance(stage: &Stage, key: &str, balance: i32) {
    let mut client = stage.client().await;
    succeed(&mut client, &stage.fill_in(&format!("UPDATE accounts SET balance = {balance} WHERE id = {key}"))).await;
}

async fn balance(stage: &Stage, client: &mut WireClient, key: &str) -> String {
    client.value(&stage.fill_in(&format!("SELECT balance FROM accounts WHERE id = {key}"))).await
}

async fn the_first_select_takes_the_snapshot(stage: &Stage, level: &str) {
    let mut client = stage.client().await;
    for first in ["SELECT 1", "SELECT current_setting('work_mem')", "SELECT pg_sleep(0)", "EXPLAIN SELECT 1", "VALUES (1)"] {
        for key in ["{a}", "{z}"] {
            set_balance(stage, key, 100).await;
            succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            succeed(&mut client, first).await;
            set_balance(stage, key, 1).await;
            assert_eq!(balance(stage, &mut client, key).await, "100", "{first}");
            assert_eq!(balance(stage, &mut client, key).await, "100", "{first}");
            succeed(&mut client, "COMMIT").await;
            assert_eq!(balance(stage, &mut client, key).await, "1");
            set_balance(stage, key, 100).await;
            // In the extended protocol, with savepoints in between.
            client.unnamed(&format!("BEGIN ISOLATION LEVEL {level}"), &[]).unnamed(first, &[]).sync();
            assert!(!client.transcript().await.contains("E("));
            succeed(&mut client, "SAVEPOINT s; SELECT 2").await;
            set_balance(stage, key, 1).await;
            client.unnamed(&stage.fill_in("SELECT balance FROM accounts WHERE id = $1"), &[&stage.fill_in(key)]).sync();
            assert_eq!(client.transcript().await, "1 2 D(100) C(SELECT 1) Z(T)");
            succeed(&mut client, "ROLLBACK TO s").await;
            assert_eq!(balance(stage, &mut client, key).await, "100");
            succeed(&mut client, "ROLLBACK").await;
            set_balance(stage, key, 100).await;
        }
    }
}

async fn show_takes_none(stage: &Stage, level: &str) {
    let mut client = stage.client().await;
    for key in ["{a}", "{z}"] {
        succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(client.value("SHOW transaction_isolation").await, level.to_lowercase());
        succeed(&mut client, "SET LOCAL work_mem = '3MB'").await;
        assert_eq!(client.value("SHOW work_mem").await, "3MB");
        set_balance(stage, key, 5).await;
        assert_eq!(balance(stage, &mut client, key).await, "5");
        assert_eq!(client.value("SHOW work_mem").await, "3MB");
        set_balance(stage, key, 100).await;
        assert_eq!(balance(stage, &mut client, key).await, "5");
        succeed(&mut client, "COMMIT").await;
    }
}

/// The connections that were only there for their snapshots go back, and a second shard stays refused.
async fn one_shard_is_used(stage: &Stage, level: &str) {
    let (mut client, mut other) =
        (WireClient::connect_with(stage.proxy.address(), &[("user", "rr"), ("database", "app")]).await, stage.client().await);
    let held = "SELECT shards FROM shardgate.clients WHERE \"user\" = 'rr'";
    for (key, shard, second) in [("{a}", "{shard0}", "{z}"), ("{z}", "{shard1}", "{a}")] {
        succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}; SELECT 1")).await;
        assert_eq!(other.value(held).await, "{shard0,shard1}");
        assert_eq!(balance(stage, &mut client, key).await, "100");
        assert_eq!(other.value(held).await, shard);
        succeed(&mut client, "SELECT 1; SHOW work_mem").await;
        assert_eq!(other.value(held).await, shard);
        let told = client.ask(&stage.fill_in(&format!("SELECT balance FROM accounts WHERE id = {second}"))).await;
        assert!(told.starts_with("E(0A000 "), "{told}");
        succeed(&mut client, "ROLLBACK").await;
        assert_eq!(other.value(held).await, "{}");
    }
    // Writes count as ever.
    succeed(
        &mut client,
        &stage
            .fill_in(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1; UPDATE accounts SET balance = 7 WHERE id = {{z}}; COMMIT")),
    )
    .await;
    assert_eq!(balance(stage, &mut client, "{z}").await, "7");
    set_balance(stage, "{z}", 100).await;
}

/// Its clock and its transaction are those of one server: the rest of the transaction must run there too.
async fn what_a_server_says_of_itself_binds(stage: &Stage, level: &str) {
    let mut client = stage.client().await;
    for first in ["SELECT now()", "SELECT CURRENT_TIMESTAMP", "SELECT txid_current()"] {
        succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let said = client.value(first).await;
        assert_eq!(client.value(first).await, said);
        assert_eq!(balance(stage, &mut client, "{a}").await, "100");
        let told = client.ask(&stage.fill_in("SELECT balance FROM accounts WHERE id = {z}")).await;
        assert!(told.starts_with("E(0A000 "), "{first}: {told}");
        succeed(&mut client, "ROLLBACK").await;
        // Once the transaction is somewhere, it is that server that says it.
        succeed(
            &mut client,
            &stage.fill_in(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1; SELECT FROM accounts WHERE id = {{z}}")),
        )
        .await;
        let said = client.value(first).await;
        assert_eq!(client.value(&stage.fill_in(&format!("{first} FROM accounts WHERE id = {{z}}"))).await, said);
        succeed(&mut client, "COMMIT").await;
    }
}

async fn settings_follow(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
    succeed(&mut client, "BEGIN; SELECT 1; SET LOCAL work_mem = '2MB'; SAVEPOINT a; SET LOCAL work_mem = '3MB'; ROLLBACK TO a")
        .await;
    let sql = stage.fill_in("SELECT current_setting('work_mem') FROM accounts WHERE id = {z}");
    assert_eq!(client.value(&sql).await, "2MB");
    succeed(&mut client, "COMMIT").await;
    assert_eq!(client.value(&sql).await, "4MB");
    // An error is the transaction's.
    succeed(&mut client, "BEGIN; SELECT 1").await;
    assert!(client.ask("SELECT 1 / 0").await.ends_with("Z(E)"));
    assert!(client.ask(&sql).await.starts_with("E(25P02 "));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
}

async fn conflicts_are_found(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
    set_balance(stage, "{z}", 50).await;
    let told = client.ask(&stage.fill_in("UPDATE accounts SET balance = balance - 60 WHERE id = {z}")).await;
    assert!(told.starts_with("E(40001 "), "{told}");
    succeed(&mut client, "ROLLBACK").await;
    set_balance(stage, "{z}", 100).await;
}

/// A connection that was only there for its snapshot is somebody else's: what ends this client's statement does not end theirs.
#[tokio::test]
async fn what_was_given_back_is_not_cancelled() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    for leaves in [false, true] {
        let (mut client, mut other) = (stage.client().await, stage.client().await);
        succeed(&mut client, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
        client.query(&stage.fill_in("SELECT pg_sleep(60) FROM accounts WHERE id = {a}"));
        client.flush().await;
        stage.until_active(0, "pg_sleep(60)").await;
        other.query(&stage.fill_in("SELECT 'theirs', pg_sleep(1) FROM accounts WHERE id = {z}"));
        other.flush().await;
        stage.until_active(1, "'theirs'").await;
        if leaves {
            drop(client);
        } else {
            client.cancel().await;
            let told = client.transcript().await;
            assert!(told.ends_with("E(57014 canceling statement due to user request) Z(E)"), "{told}");
        }
        let told = other.transcript().await;
        assert!(told.contains("D(theirs,)"), "{told}");
    }
    stage.assert_log_is_clean();
}
