//! Somebody is frozen at a named point of a move, and goes on later: the move ends by itself, and nothing is lost or left over.
//!
//! A driver is frozen until another one has ended the move, and then does what it was about to do: too late, by its term. A server
//! stands still with all of its connections, which is another failure than its death: nobody hears of it.

use std::time::Duration;

use super::kills::{ENDED_WITHIN, Part, Stage};
use super::partitions_on;
use crate::support::{Cluster, Frozen};

async fn driver_freezes_at(points: &[&str]) {
    let stage = Stage::start(Cluster::start(2).await).await;
    let client = stage.proxy.connect().await;
    for (cell, point) in points.iter().enumerate() {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
        stage.arm(point, "hold");
        let mut driver = stage.drive(&partition, &[]);
        stage.until_reached(point).await;
        let frozen = Frozen::process(driver.id().expect("it runs").try_into().expect("a process id"));
        stage.disarm(point);
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        assert_eq!(stage.ended().await, "done", "{point}");
        frozen.thaw();
        tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it finds that the move is over").expect("status");
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        stage.is_whole(&client, point, 1000 * (cell as i64 + 1)).await;
        for shard in 0..2 {
            let terms = "SELECT count(*) FROM shardgate.term";
            let terms: i64 = stage.cluster.connect_shard(shard).await.query_one(terms, &[]).await.expect("terms").get(0);
            assert_eq!(terms, 0, "{point}: shard {shard} knows the move again");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_freezes_before_the_switch_comes_too_late() {
    driver_freezes_at(&["gated", "taken", "slot", "held", "fenced", "durable"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_freezes_after_the_switch_comes_too_late() {
    driver_freezes_at(&["switched", "target_opened", "online", "cleaned"]).await;
}

async fn server_freezes_at(cells: &[(&str, Part)]) {
    let stage = Stage::start(Cluster::separate_servers(2).await).await;
    for (point, part) in cells {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
        stage.arm(point, "hold");
        let mut driver = stage.drive(&partition, &[]);
        stage.until_reached(point).await;
        let frozen = Frozen::server(match part {
            Part::Map => stage.cluster.map_server(),
            Part::Source => stage.cluster.shard_server(0),
            Part::Target => stage.cluster.shard_server(1),
        });
        stage.disarm(point);
        // Longer than a driver's lease in the pause, and than the pause.
        tokio::time::sleep(FROZEN_FOR).await;
        frozen.thaw();
        let state = stage.ended().await;
        drop(driver.kill().await);
        assert!(matches!(state.as_str(), "done" | "aborted"), "{point} {part:?}");
        stage.is_whole(&stage.proxy.connect().await, &format!("{point} {part:?}"), 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_freezes_keeps_no_move_from_ending() {
    use Part::{Source, Target};
    let cells = [
        ("subscribed", Source),
        ("held", Target),
        ("fenced", Source),
        ("fenced", Target),
        ("switched", Target),
        ("cleaning", Source),
    ];
    server_freezes_at(&cells).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_freezes_keeps_no_move_from_ending() {
    server_freezes_at(&["held", "fenced", "switched"].map(|point| (point, Part::Map))).await;
}

const FROZEN_FOR: Duration = Duration::from_secs(4);
