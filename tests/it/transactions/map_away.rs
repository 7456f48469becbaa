//! A commit over several shards needs the map database at no point: it may be stopped in the middle.

use std::time::Duration;

use super::Ledger;
use super::kills::{AFTER_DECISION, BEFORE_DECISION, Points, Told, commit, found_now, uuid, write};
use crate::sessions::Stage;
use crate::support::{Cluster, volume};

#[tokio::test]
async fn a_commit_goes_on_while_the_map_database_is_away() {
    let points = Points::new();
    let mut stage = Stage::on(Cluster::separate_servers(3).await, points.options()).await;
    Ledger::create(&stage).await;
    let all: Vec<&str> = BEFORE_DECISION.into_iter().chain(AFTER_DECISION).collect();
    let few = ["before_prepare", "before_decision", "before_finish.1"];
    for (number, point) in volume(few.to_vec(), all).into_iter().enumerate() {
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(number)).await;
        points.arm(point, "hold");
        let committing = tokio::spawn(async move { (commit(&mut client).await, client) });
        points.until_reached(point).await;
        stage.cluster.map_server_mut().kill().expect("killed");
        points.release(point);
        let (told, mut client) = committing.await.expect("no panic");
        assert_eq!(told, Told::Committed, "at {point}");
        assert_eq!(found_now(&stage, &uuid(number)).await, 3, "at {point}");
        // And the next one, whose keys the proxy knows, is made without it.
        let next = uuid(100 + number);
        write(&mut client, &stage, &next).await;
        assert_eq!(commit(&mut client).await, Told::Committed, "after {point}");
        assert_eq!(found_now(&stage, &next).await, 3);
        stage.cluster.map_server_mut().start_again().expect("started again");
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
    }
}
