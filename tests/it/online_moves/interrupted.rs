//! What a driver has begun on a shard, and what a person has asked for, outlives the driver, and the shard.

use std::time::{Duration, Instant};

use super::kills::{ENDED_WITHIN, Part, Stage};
use super::{partitions_on, rebalance};
use crate::support::{Cluster, Frozen};

/// Of the move that was planned last.
async fn shown(stage: &Stage, expression: &str) -> String {
    let map = stage.cluster.connect_map().await;
    let sql = format!("SELECT coalesce(({expression})::text, '') FROM shardgate_map.move m ORDER BY m.move_id DESC LIMIT 1");
    map.query_one(&sql, &[]).await.expect("the move").get(0)
}

async fn until_shown(stage: &Stage, expression: &str, wanted: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + ENDED_WITHIN;
    loop {
        let found = shown(stage, expression).await;
        if wanted(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{expression} is {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_move_that_is_to_go_on_waits_for_a_shard_that_is_slow() {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    let id = stage.switched(&partition, "1h").await;
    stage.arm("verified_again", "hold");
    let driver = stage.command(&["finish", &id]);
    stage.until_reached("verified_again").await;
    let target = stage.cluster.connect_shard(1).await;
    target.batch_execute("DELETE FROM shardgate.switched").await.expect("forgotten");
    stage.disarm("verified_again");
    stage.until_state("failed").await;
    drop(driver);
    assert_eq!(shown(&stage, "m.journal ->> 'failed_in'").await, "cleaning_up");
    let frozen = Frozen::server(stage.server_mut(Part::Target));
    let resuming = stage.command(&["resume", &id]);
    until_shown(&stage, "m.error", |error| error.contains("shard \"b\" does not answer within 5 s")).await;
    assert_eq!(shown(&stage, "m.state || ', ' || m.asked").await, "failed, resume");
    frozen.thaw();
    assert_eq!(stage.ended().await, "done");
    drop(resuming);
    stage.is_whole(&stage.proxy.connect().await, "a move that had failed beside a slow shard", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_back_is_known_before_anything_of_it_is_made() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("reverse_subscribed", "hold");
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--grace", "1h", "--partition", &partition];
    let mut driver = stage.command(&arguments);
    stage.until_reached("reverse_subscribed").await;
    assert_eq!(shown(&stage, "m.journal ->> 'reverse_began'").await, "true");
    driver.kill().await.expect("killed");
    stage.disarm("reverse_subscribed");
    until_shown(&stage, "m.journal ->> 'settled'", |settled| settled == "true").await;
    let id = shown(&stage, "m.move_id").await;
    let rolled_back = rebalance(&stage.cluster, &["rollback", &id]).await;
    assert!(rolled_back.status.success(), "{}", String::from_utf8_lossy(&rolled_back.stderr));
    assert_eq!(stage.ended().await, "aborted");
    stage.is_whole(&stage.proxy.connect().await, "a way back that was begun twice", 0).await;
}
