//! COMMIT of what only one shard has to commit, lost there: the client never hears of success.

use std::time::{Duration, Instant};

use super::Points;
use crate::sessions::Stage;

/// What is defined, and how the home shard says that it is there.
const TABLE: (&str, &str) = ("CREATE TABLE late (n int)", "SELECT FROM pg_class WHERE relname = 'late'");
const ROLE: (&str, &str) = ("CREATE ROLE late", "SELECT FROM pg_roles WHERE rolname = 'late'");

/// In one database: what is in a transaction there.
async fn end_transactions(stage: &Stage) {
    let direct = stage.cluster.connect_shard(0).await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND state = 'idle in transaction'";
    let began_at = Instant::now();
    assert!(!direct.query(sql, &[]).await.expect("backends").is_empty(), "nobody is in a transaction");
    while !direct.query(sql, &[]).await.expect("backends").is_empty() {
        assert!(began_at.elapsed() < Duration::from_secs(20), "it does not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// On the only shard, and on one of each server's.
#[tokio::test]
async fn a_lost_commit_of_a_definition_is_no_success() {
    for (shards, (definition, is_there)) in [(1, TABLE), (1, ROLE), (2, ROLE)] {
        let points = Points::new();
        let stage = Stage::start(shards, points.options()).await;
        let direct = stage.cluster.connect_shard(0).await;
        for in_block in [true, false] {
            let case = format!("{definition}, {shards} shards, in a block: {in_block}");
            let mut client = stage.client().await;
            let last = if in_block {
                assert!(!client.ask("BEGIN").await.contains("E("));
                assert!(!client.ask(definition).await.contains("E("), "{case}");
                "COMMIT"
            } else {
                definition
            };
            points.arm("before_commit", "hold");
            let committing = tokio::spawn(async move { (client.ask(last).await, client) });
            points.until_reached("before_commit").await;
            end_transactions(&stage).await;
            points.release("before_commit");
            let (told, mut client) = committing.await.expect("no panic");
            assert!(told.starts_with("E("), "{case}: {told}");
            assert!(!told.contains("C("), "{case}: {told}");
            assert!(direct.query(is_there, &[]).await.expect("rows").is_empty(), "{case}");

            // The shard has no transaction any more: its COMMIT is none.
            points.arm("planted.lost_before_commit", "");
            let told = client.ask(&format!("BEGIN; {definition}; COMMIT")).await;
            assert!(told.contains("E(40001 the transaction was rolled back at its commit)"), "{case}: {told}");
            points.release("planted.lost_before_commit");
            assert!(direct.query(is_there, &[]).await.expect("rows").is_empty(), "{case}");
        }
        let told = stage.client().await.ask(&format!("BEGIN; {definition}; COMMIT")).await;
        assert!(!told.contains("E("), "{told}");
        assert_eq!(direct.query(is_there, &[]).await.expect("rows").len(), 1);
    }
}

/// A role belongs to a transaction over several shards like any row.
#[tokio::test]
async fn a_role_and_rows_of_another_shard_are_committed_together() {
    let points = Points::new();
    let stage = Stage::start(2, points.options()).await;
    let direct = stage.cluster.connect_shard(0).await;
    let mut client = stage.client().await;
    let update = format!("UPDATE accounts SET balance = 7 WHERE id = {}", stage.key(1, 0));
    let changed = "SELECT count(*) FROM accounts WHERE balance = 7";
    for text in [format!("BEGIN; {update}; CREATE ROLE late; COMMIT"), format!("BEGIN; CREATE ROLE late; {update}; COMMIT")] {
        points.arm("before_decision", "hold");
        let committing = tokio::spawn(async move { (client.ask(&text).await, client) });
        points.until_reached("before_decision").await;
        end_transactions(&stage).await;
        points.release("before_decision");
        let (told, again) = committing.await.expect("no panic");
        assert!(told.contains("E(40001 ") && !told.contains("C(COMMIT)"), "{told}");
        client = again;
        assert!(direct.query(ROLE.1, &[]).await.expect("rows").is_empty());
        assert_eq!(client.value(changed).await, "0");
    }
    let told = client.ask(&format!("BEGIN; {update}; CREATE ROLE late; COMMIT")).await;
    assert!(told.ends_with("C(COMMIT) Z(I)"), "{told}");
    assert_eq!(direct.query(ROLE.1, &[]).await.expect("rows").len(), 1);
    assert_eq!(client.value(changed).await, "1");
    stage.assert_log_is_clean();
}
