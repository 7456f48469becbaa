//! What clients see of a transaction that writes on several shards while nothing goes wrong, or one shard says no.

use super::Ledger;
use crate::sessions::Stage;
use crate::support::{ProxyOptions, WireClient};

#[tokio::test]
async fn a_transaction_that_writes_on_several_shards_is_whole_or_absent() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    Ledger::create(&stage).await;
    in_both_protocols(&stage).await;
    in_one_query_or_pipeline(&stage).await;
    a_refusal_at_commit_undoes_all(&stage).await;
    savepoints_reach_every_shard(&stage).await;
    settings_and_roles_stay_right(&stage).await;
    what_cannot_be_prepared_decides(&stage).await;
    readers_keep_their_locks_to_the_end(&stage).await;
    names_and_rows_of_the_protocol(&stage).await;
    stage.assert_log_is_clean();
}

fn update(stage: &Stage, shard: usize, balance: i32) -> String {
    format!("UPDATE accounts SET balance = {balance} WHERE id = {}", stage.key(shard, 0))
}

/// Balances of the first account of each shard, read past the proxy.
async fn balances(stage: &Stage) -> Vec<i32> {
    let mut found = Vec::new();
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        let row = client.query_one("SELECT balance FROM accounts WHERE id = $1", &[&stage.key(shard, 0)]).await.expect("a row");
        found.push(row.get(0));
    }
    found
}

async fn in_both_protocols(stage: &Stage) {
    let mut client = stage.client().await;
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    for shard in 0..3 {
        assert_eq!(client.ask(&update(stage, shard, 1)).await, "C(UPDATE 1) Z(T)");
    }
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(balances(stage).await, [1, 1, 1]);
    for text in ["BEGIN", &update(stage, 1, 2), &update(stage, 2, 2), "SELECT 1", "COMMIT"] {
        client.unnamed(text, &[]).sync();
        let told = client.transcript().await;
        assert!(!told.contains("E("), "{text}: {told}");
    }
    assert_eq!(balances(stage).await, [1, 2, 2]);
    assert_eq!(
        client.ask(&format!("BEGIN; {}; {}", update(stage, 0, 9), update(stage, 1, 9))).await,
        "C(BEGIN) C(UPDATE 1) C(UPDATE 1) Z(T)"
    );
    assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
    assert_eq!(balances(stage).await, [1, 2, 2]);
    assert_eq!(client.value("SELECT count(*) FROM shardgate.transactions").await, "0");
}

/// Without BEGIN a text of several statements, and a pipeline up to Sync, are one transaction too.
async fn in_one_query_or_pipeline(stage: &Stage) {
    let mut client = stage.client().await;
    let both = format!("{}; {}", update(stage, 0, 3), update(stage, 1, 3));
    assert_eq!(client.ask(&both).await, "C(UPDATE 1) C(UPDATE 1) Z(I)");
    assert_eq!(balances(stage).await, [3, 3, 2]);
    let failing = format!("{}; {}; {}", update(stage, 0, 4), update(stage, 1, 4), update(stage, 2, -1));
    let told = client.ask(&failing).await;
    assert!(told.contains("E(23514 ") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(balances(stage).await, [3, 3, 2]);
    client.unnamed(&update(stage, 0, 5), &[]).unnamed(&update(stage, 1, 5), &[]).unnamed(&update(stage, 2, 5), &[]).sync();
    let told = client.transcript().await;
    assert_eq!(told.matches("C(UPDATE 1)").count(), 3, "{told}");
    assert!(!told.contains("E(") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(balances(stage).await, [5, 5, 5]);
    client.unnamed(&update(stage, 0, 6), &[]).unnamed(&update(stage, 1, 6), &[]).unnamed(&update(stage, 2, -6), &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(23514 ") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(balances(stage).await, [5, 5, 5]);
    assert_eq!(client.ask("SELECT 1").await, "T(?column?) D(1) C(SELECT 1) Z(I)");
}

/// Deferred constraints are checked at the commit: on a participant, and on the decider.
async fn a_refusal_at_commit_undoes_all(stage: &Stage) {
    for failing in 0..3 {
        let mut client = stage.client().await;
        assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
        for shard in 0..3 {
            let ledger = if shard == failing { "NULL" } else { "1" };
            let key = stage.key(shard, 0);
            let told =
                client.ask(&format!("INSERT INTO ledger (id, account, amount) VALUES (gen_random_uuid(), {key}, {ledger})")).await;
            assert_eq!(told, "C(INSERT 0 1) Z(T)");
        }
        let told = client.ask("COMMIT").await;
        assert_eq!(told, "E(P0001 an amount is missing) Z(I)", "on shard {failing}");
        assert_eq!(Ledger::rows(stage).await, [0, 0, 0]);
        assert_eq!(client.value("SELECT count(*) FROM shardgate.transactions").await, "0");
        assert_eq!(client.ask("COMMIT").await, "N(25P01 there is no transaction in progress) C(COMMIT) Z(I)");
    }
}

async fn savepoints_reach_every_shard(stage: &Stage) {
    let mut client = stage.client().await;
    for text in ["BEGIN", &update(stage, 0, 10), "SAVEPOINT s", &update(stage, 1, 10), "SAVEPOINT t", &update(stage, 2, 10)] {
        assert!(!client.ask(text).await.contains("E("), "{text}");
    }
    assert!(client.ask(&update(stage, 1, -1)).await.contains("E(23514 "));
    for text in ["ROLLBACK TO t", &update(stage, 2, 11), "RELEASE s"] {
        assert!(!client.ask(text).await.contains("E("), "{text}");
    }
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(balances(stage).await, [10, 10, 11]);
    // A failed transaction stays one.
    let both = format!("BEGIN; {}; {}", update(stage, 0, 12), update(stage, 1, 12));
    assert!(!client.ask(&both).await.contains("E("));
    assert!(client.ask(&update(stage, 2, -1)).await.contains("E(23514 "));
    assert!(client.ask(&update(stage, 0, 1)).await.starts_with("E(25P02 "));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    assert_eq!(balances(stage).await, [10, 10, 11]);
}

/// SET survives PREPARE TRANSACTION, whatever becomes of it, and SET ROLE must not hinder the commit.
async fn settings_and_roles_stay_right(stage: &Stage) {
    let mut client = stage.client().await;
    let grants = "GRANT SELECT, UPDATE, INSERT ON accounts, ledger TO reader";
    assert!(!client.ask(grants).await.contains("E("));
    for (is_local, end) in [("LOCAL", "COMMIT"), ("LOCAL", "ROLLBACK"), ("", "COMMIT"), ("", "ROLLBACK")] {
        let begin = format!("BEGIN; SET {is_local} ROLE reader; SET work_mem = '7MB'");
        assert!(!client.ask(&begin).await.contains("E("));
        for shard in 0..3 {
            assert_eq!(client.ask(&update(stage, shard, 20)).await, "C(UPDATE 1) Z(T)");
        }
        assert_eq!(client.ask(end).await, format!("C({end}) Z(I)"));
        let is_kept = end == "COMMIT";
        let (role, work_mem) =
            (if is_kept && is_local.is_empty() { "reader" } else { "postgres" }, if is_kept { "7MB" } else { "4MB" });
        for shard in 0..3 {
            let sql = format!(
                "SELECT current_user || ' ' || current_setting('work_mem') FROM accounts WHERE id = {}",
                stage.key(shard, 0)
            );
            assert_eq!(client.value(&sql).await, format!("{role} {work_mem}"), "after SET {is_local} and {end}");
        }
        assert!(!client.ask("RESET ROLE; RESET work_mem").await.contains("E("));
    }
    // Refused after PREPARE on others: the connections are the next client's, with its own settings.
    assert!(!client.ask("BEGIN; SET work_mem = '9MB'").await.contains("E("));
    for shard in 0..3 {
        let ledger = if shard == 0 { "NULL" } else { "1" };
        let sql = format!("INSERT INTO ledger (id, account, amount) VALUES (gen_random_uuid(), {}, {ledger})", stage.key(shard, 0));
        assert_eq!(client.ask(&sql).await, "C(INSERT 0 1) Z(T)");
    }
    assert!(client.ask("COMMIT").await.contains("E(P0001 "));
    for _ in 0..3 {
        let mut other = stage.client().await;
        for shard in 0..3 {
            let sql = format!(
                "SELECT current_user || ' ' || current_setting('work_mem') FROM accounts WHERE id = {}",
                stage.key(shard, 0)
            );
            assert_eq!(other.value(&sql).await, "postgres 4MB");
            assert_eq!(client.value(&sql).await, "postgres 4MB");
        }
    }
}

async fn what_cannot_be_prepared_decides(stage: &Stage) {
    let mut client = stage.client().await;
    let mut listener = stage.client().await;
    assert!(!listener.ask("LISTEN news").await.contains("E("));
    for text in ["BEGIN", "CREATE TEMP TABLE scratch (x int)", "NOTIFY news, 'hello'"] {
        assert!(!client.ask(text).await.contains("E("), "{text}");
    }
    for shard in [2, 1, 0] {
        assert_eq!(client.ask(&update(stage, shard, 30)).await, "C(UPDATE 1) Z(T)");
    }
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(balances(stage).await, [30, 30, 30]);
    assert_eq!(client.ask("INSERT INTO scratch VALUES (1)").await, "C(INSERT 0 1) Z(I)");
    let heard = listener.next().await.map(|message| message.tag);
    assert_eq!(heard, Some(b'A'), "the notification has come");
}

/// A lock that was taken by reading holds until the commit is everywhere: who waited for it sees what was written.
async fn readers_keep_their_locks_to_the_end(stage: &Stage) {
    let (lock, read) = (
        format!("SELECT 1 FROM accounts WHERE id = {} FOR UPDATE", stage.key(0, 1)),
        format!("SELECT balance FROM accounts WHERE id = {}", stage.key(2, 0)),
    );
    let writer = |client: WireClient, value: i32| {
        let texts = vec!["BEGIN".to_owned(), lock.clone(), update(stage, 1, value), update(stage, 2, value), "COMMIT".to_owned()];
        async move {
            let mut client = client;
            for text in texts {
                let told = client.ask(&text).await;
                assert!(!told.contains("E("), "{text}: {told}");
            }
        }
    };
    let (first, mut second) = (stage.client().await, stage.client().await);
    let mut last = 0;
    tokio::join!(
        async {
            let mut client = first;
            for value in 100..130 {
                writer(client, value).await;
                client = stage.client().await;
            }
        },
        async {
            for _ in 0..30 {
                assert!(!second.ask("BEGIN").await.contains("E("));
                assert!(!second.ask(&lock).await.contains("E("));
                let (seen, other): (i32, i32) = (
                    second.value(&read).await.parse().expect("a number"),
                    second
                        .value(&format!("SELECT balance FROM accounts WHERE id = {}", stage.key(1, 0)))
                        .await
                        .parse()
                        .expect("a number"),
                );
                assert_eq!(seen, other, "both writes of the last holder are seen");
                assert!(seen >= last);
                last = seen;
                assert!(!second.ask("COMMIT").await.contains("E("));
            }
        }
    );
}

/// Rows of both tables, by name; nothing prepared is left.
async fn names_and_rows_of_the_protocol(stage: &Stage) {
    let mut committed = Vec::new();
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        let decisions =
            client.query("SELECT gtx FROM shardgate.decisions WHERE outcome = 'committed'", &[]).await.expect("decisions");
        committed.extend(decisions.iter().map(|row| row.get::<_, String>(0)));
        let prepared = client.query("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'sg:%'", &[]).await.expect("prepared");
        assert!(prepared.is_empty());
    }
    assert!(committed.len() > 30);
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        for row in client.query("SELECT gtx FROM shardgate.applied", &[]).await.expect("applied") {
            assert!(committed.contains(&row.get::<_, String>(0)), "what was applied was decided");
        }
    }
}
