//! Who may say what became of a transaction: its own proxy, which knows the secret, and recovery, on the database that the
//! transaction names. Everybody can read its name.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid, write};
use super::leftover::Leftover;
use crate::sessions::Stage;
use crate::support::{ProxyOptions, volume};

const OTHER_UUID: &str = "0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b";

#[tokio::test]
async fn nobody_else_decides_a_transaction() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    let mut client = stage.client().await;
    write(&mut client, &stage, &uuid(1)).await;
    points.arm("before_decision", "hold");
    let committing = tokio::spawn(async move { commit(&mut client).await });
    points.until_reached("before_decision").await;
    let direct = stage.cluster.connect_shard(1).await;
    let prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    let gid: String = direct.query_one(prepared, &[]).await.expect("prepared").get(0);
    let gtx = gid.strip_suffix(":1").expect("the first participant");
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        for role in ["reader", "postgres"] {
            direct.batch_execute(&format!("SET ROLE {role}")).await.expect("taken");
            for function in ["decide", "joined"] {
                for secret in ["'guessed'", "''", "NULL"] {
                    let sql = format!("SELECT shardgate.{function}('{gtx}', {secret})");
                    assert_eq!(refusal(&direct, &sql).await, "42501", "{role} on {shard}: {sql}");
                }
            }
        }
        direct.batch_execute("SET ROLE reader").await.expect("taken");
        let identity = format!("SELECT shardgate.resolve('{gtx}', (SELECT shard FROM shardgate.identity))");
        let own = [
            identity,
            format!("SELECT shardgate.resolve('{gtx}', '{OTHER_UUID}')"),
            format!("INSERT INTO shardgate.decisions VALUES ('{gtx}', 'committed')"),
            "DELETE FROM shardgate.decisions".to_owned(),
            "DELETE FROM shardgate.applied".to_owned(),
            format!("COMMIT PREPARED '{gtx}:{shard}'"),
        ];
        // Of the last one: where it is not prepared there is no such transaction.
        for sql in &own[..if shard == 0 { 5 } else { 6 }] {
            assert_eq!(refusal(&direct, sql).await, "42501", "{sql}");
        }
    }
    assert_eq!(decisions(&stage, gtx).await, Vec::<String>::new());
    points.release("before_decision");
    assert_eq!(committing.await.expect("no panic"), Told::Committed);
    assert_eq!(found_now(&stage, &uuid(1)).await, 3);
}

/// It says that this is the wrong shard, and writes no decision.
#[tokio::test]
async fn a_database_that_is_not_the_decider_decides_nothing() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    Ledger::create(&stage).await;
    let left = Leftover::make_finished(&stage, 1).await;
    let unknown = left.id.as_str().replace(":1:1:", ":1:2:");
    let decider = left.id.decider_uuid();
    for (shard, uuid) in [(0, OTHER_UUID), (1, decider), (2, decider)] {
        let direct = stage.cluster.connect_shard(shard).await;
        for gtx in [left.id.as_str(), &unknown] {
            assert_eq!(refusal(&direct, &format!("SELECT shardgate.resolve('{gtx}', '{uuid}')")).await, "55000");
        }
    }
    assert_eq!(decisions(&stage, left.id.as_str()).await, ["committed"]);
    assert_eq!(decisions(&stage, &unknown).await, Vec::<String>::new());
    // The right one does: what it does not know it makes an abort.
    let direct = stage.cluster.connect_shard(0).await;
    for (gtx, wanted) in [(left.id.as_str(), "committed"), (&unknown, "aborted"), (&unknown, "aborted")] {
        let row = direct.query_one(&format!("SELECT shardgate.resolve('{gtx}', '{decider}')"), &[]).await.expect("resolved");
        assert_eq!(row.get::<_, String>(0), wanted);
    }
}

/// A copy in the decider's place does not know what was decided: nothing is guessed until the right one is back.
#[tokio::test]
async fn another_database_in_the_place_of_the_decider_is_not_believed() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    Ledger::create(&stage).await;
    let decider = stage.cluster.connect_shard(0).await;
    let swap = |uuid: &str| format!("UPDATE shardgate.identity SET shard = '{uuid}'");
    let own: String = decider.query_one("SELECT shard::text FROM shardgate.identity", &[]).await.expect("a uuid").get(0);
    for is_decided in volume(vec![true], vec![true, false]) {
        decider.batch_execute(&swap(OTHER_UUID)).await.expect("swapped");
        let left = Leftover::make_for(&stage, usize::from(is_decided), is_decided, &own).await;
        let deadline = Instant::now() + Duration::from_secs(15);
        while !stage.proxy.log().lines().any(|line| line.contains("stays in doubt") && line.contains(left.id.as_str())) {
            assert!(Instant::now() < deadline, "recovery has not looked");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(prepared_count(&stage).await, 2, "it stays in doubt");
        assert_eq!(decisions(&stage, left.id.as_str()).await.len(), usize::from(is_decided), "and nothing is decided");
        decider.batch_execute(&swap(&own)).await.expect("swapped back");
        left.assert_found(&stage, if is_decided { 3 } else { 0 }, "when the decider is back").await;
    }
}

async fn refusal(direct: &Client, sql: &str) -> String {
    let error = direct.batch_execute(sql).await.expect_err("a refusal");
    error.code().map(|code| code.code().to_owned()).unwrap_or_default()
}

/// On all shards.
async fn decisions(stage: &Stage, gtx: &str) -> Vec<String> {
    let mut found = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query("SELECT outcome FROM shardgate.decisions WHERE gtx = $1", &[&gtx]).await.expect("rows");
        found.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    found
}

async fn prepared_count(stage: &Stage) -> usize {
    let sql = "SELECT FROM pg_prepared_xacts WHERE gid LIKE 'sg:%'";
    stage.cluster.connect_shard(0).await.query(sql, &[]).await.expect("prepared").len()
}
