//! A shard whose commits wait for a synchronous standby, and a standby that goes in mid-commit: what it does not have counts for
//! nothing, and nobody guesses meanwhile.

use std::time::{Duration, Instant};

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid, write};
use super::leftover::Leftover;
use crate::sessions::Stage;
use crate::support::{Cluster, ProxyOptions, Standby, WireClient, connect};

const PATIENCE: Duration = Duration::from_secs(15);
const PREPARED: &str = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'sg:%'";

async fn stage_with(points: &Points, commit_timeout_ms: &str) -> Stage {
    let settings = vec![("cross_shard.commit_timeout_ms", commit_timeout_ms.to_owned())];
    let stage = Stage::on(Cluster::separate_servers(3).await, ProxyOptions { settings, ..points.options() }).await;
    Ledger::create(&stage).await;
    stage
}

/// Writes on all shards, asks for COMMIT and loses the shard's standby at the point. What the client will be told.
async fn commit_without(
    stage: &Stage,
    points: &Points,
    standby: &mut Standby,
    point: &str,
    id: &str,
) -> tokio::task::JoinHandle<Told> {
    let mut client = stage.client().await;
    write(&mut client, stage, id).await;
    points.arm(point, "hold");
    let committing = tokio::spawn(async move { commit(&mut client).await });
    points.until_reached(point).await;
    standby.stop().await;
    points.release(point);
    committing
}

/// A PREPARE that its standby does not have is no promise; the decision of one is no decision yet.
#[tokio::test]
async fn what_a_standby_does_not_have_counts_for_nothing() {
    let points = Points::new();
    let mut stage = stage_with(&points, "1500").await;
    let mut standby = Standby::start(&stage.cluster, 1).await;
    a_prepare_that_waits_is_a_failure(&stage, &points, &mut standby).await;
    a_prepare_whose_wait_is_cut_short_is_a_failure(&stage, &points, &mut standby).await;
    what_is_decided_outlives_a_fail_over(&mut stage, &points, standby).await;
    assert!(!stage.proxy.log().contains("panicked"));
}

async fn a_prepare_that_waits_is_a_failure(stage: &Stage, points: &Points, standby: &mut Standby) {
    let committing = commit_without(stage, points, standby, "before_prepare.1", &uuid(1)).await;
    assert_eq!(committing.await.expect("no panic"), Told::Failed("40001".to_owned()));
    let shard = stage.cluster.connect_shard(1).await;
    assert_eq!(shard.query(PREPARED, &[]).await.expect("prepared").len(), 1, "recovery waits for the standby too");
    assert_eq!(found_now(stage, &uuid(1)).await, 0);
    standby.start_again().await;
    Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
    assert_eq!(found_now(stage, &uuid(1)).await, 0);
}

/// Cancelled, the wait ends with a warning only, and the tag of success.
async fn a_prepare_whose_wait_is_cut_short_is_a_failure(stage: &Stage, points: &Points, standby: &mut Standby) {
    let committing = commit_without(stage, points, standby, "before_prepare.1", &uuid(2)).await;
    let shard = stage.cluster.connect_shard(1).await;
    let deadline = Instant::now() + PATIENCE;
    let cancel =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%PREPARE TRANSACTION%'";
    while shard.query(cancel, &[]).await.expect("cancelled").is_empty() {
        assert!(Instant::now() < deadline, "nobody waits for the standby");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(committing.await.expect("no panic"), Told::Failed("40001".to_owned()));
    assert_eq!(found_now(stage, &uuid(2)).await, 0);
    standby.start_again().await;
    Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
    assert_eq!(found_now(stage, &uuid(2)).await, 0);
}

/// The primary dies between the decision and COMMIT PREPARED: its standby has what was promised, and commits it.
async fn what_is_decided_outlives_a_fail_over(stage: &mut Stage, points: &Points, standby: Standby) {
    let mut acknowledged = stage.client().await;
    write(&mut acknowledged, stage, &uuid(3)).await;
    assert_eq!(commit(&mut acknowledged).await, Told::Committed);
    let mut client = stage.client().await;
    write(&mut client, stage, &uuid(4)).await;
    points.arm("before_finish.1", "hold");
    let committing = tokio::spawn(async move { commit(&mut client).await });
    points.until_reached("before_finish.1").await;
    let port = stage.cluster.shard_server(1).port();
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    let _promoted = standby.take_over(port).await;
    points.release("before_finish.1");
    assert_eq!(committing.await.expect("no panic"), Told::Committed);
    Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
    for number in [3, 4] {
        assert_eq!(found_now(stage, &uuid(number)).await, 3, "the fail-over lost nothing");
    }
}

/// A standby that is in its primary's place, and not promoted yet, can finish nothing: it is looked at again.
#[tokio::test]
async fn what_is_decided_is_finished_when_a_standby_in_the_primarys_place_is_promoted() {
    let points = Points::new();
    let mut stage = stage_with(&points, "1500").await;
    let standby = Standby::start(&stage.cluster, 1).await;
    points.arm("before_recovery_round", "hold");
    points.until_reached("before_recovery_round").await;
    let _left = Leftover::make(&stage, 1, true).await;
    let port = stage.cluster.shard_server(1).port();
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    let server = standby.take_place(port);

    let mut client = stage.client().await;
    let read = format!("SELECT count(*) FROM ledger WHERE account = {}", stage.key(1, 0));
    let direct = connect(&server.url("postgres")).await;
    // Nobody reads what a standby has, in which the decision may be missing.
    let told = client.ask(&read).await;
    assert!(told.contains("E(57P03 "), "{told}");
    direct.query_one("SELECT pg_promote()", &[]).await.expect("promoted");
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let told = client.ask(&read).await;
        if told.contains("D(") {
            break told;
        }
        assert!(told.contains("E(") && Instant::now() < deadline, "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(told.contains("D(1)"), "the first that is read has what was decided: {told}");
}

/// The deciding shard's own commit waits: nobody knows the outcome until the standby is back, and then it is a commit.
#[tokio::test]
async fn a_decision_that_waits_for_its_standby_is_unknown_until_it_is_back() {
    let points = Points::new();
    let stage = stage_with(&points, "1500").await;
    let mut standby = Standby::start(&stage.cluster, 0).await;
    let committing = commit_without(&stage, &points, &mut standby, "before_decision", &uuid(1)).await;
    assert_eq!(committing.await.expect("no panic"), Told::Failed("08007".to_owned()));
    for shard in [1, 2] {
        let direct = stage.cluster.connect_shard(shard).await;
        assert_eq!(direct.query(PREPARED, &[]).await.expect("prepared").len(), 1, "nobody guesses");
    }
    assert_eq!(found_now(&stage, &uuid(1)).await, 0);
    let mut viewer = WireClient::connect(stage.proxy.address()).await;
    assert_eq!(viewer.value("SELECT state FROM shardgate.transactions").await, "in doubt");
    standby.start_again().await;
    Ledger::until_nothing_is_prepared(&stage, PATIENCE).await;
    assert_eq!(found_now(&stage, &uuid(1)).await, 3);
    assert!(!stage.proxy.log().contains("panicked"));
}
