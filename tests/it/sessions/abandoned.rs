//! Schema changes whose proxy is lost, frozen or without its map in the middle: another proxy, or the same later, closes them, and
//! everybody knows what has become of the schema.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use shardgate::demo::servers::StopMode;

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};
use crate::transactions::Points;

/// The map's row of the change, as another proxy sees it.
async fn until_closed(stage: &Stage) {
    let map = stage.cluster.connect_map().await;
    let began_at = Instant::now();
    while map
        .query_one("SELECT count(*) FROM shardgate_map.schema_change WHERE finished_at IS NULL", &[])
        .await
        .expect("a count")
        .get::<_, i64>(0)
        > 0
    {
        assert!(began_at.elapsed() < Duration::from_secs(40), "the change stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn lose_the_proxy(stage: &mut Stage, points: &Points, point: &str, sql: &str) {
    let mut client = stage.client().await;
    points.arm(point, "abort");
    client.query(sql);
    client.flush().await;
    while client.next().await.is_some() {}
    points.release(point);
    stage.proxy = Proxy::start(&stage.cluster, points.options());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_proxy_is_lost_is_closed() {
    let points = Points::new();
    let mut stage = Stage::start(3, points.options()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut other = WireClient::connect(second.address()).await;
    let declared = "SELECT count(*) FROM shardgate.tables WHERE table_name = 'accounts' AND kind = 'sharded'";

    for sql in ["DROP TABLE accounts CASCADE", "ALTER TABLE accounts ADD COLUMN n serial"] {
        lose_the_proxy(&mut stage, &points, "before_decision", sql).await;
        until_closed(&stage).await;
        assert_eq!(other.value(declared).await, "1", "{sql}");
        assert_eq!(other.value("SELECT count(*) FROM accounts").await, "90", "{sql}");
    }
    let map = stage.cluster.connect_map().await;
    let sequences = map.query_one("SELECT count(*) FROM shardgate_map.declared_sequence", &[]).await.expect("a count");
    assert_eq!(sequences.get::<_, i64>(0), 0);

    lose_the_proxy(&mut stage, &points, "after_decision", "DROP TABLE accounts CASCADE").await;
    until_closed(&stage).await;
    assert_eq!(other.value(declared).await, "0");
    assert!(other.ask("SELECT count(*) FROM accounts").await.starts_with("E(42P01 "));
    // The lost ones are known to have ended: here, their processes can be seen.
    succeed(&mut other, "CREATE TABLE accounts (id int PRIMARY KEY); SELECT shardgate.distribute_table('accounts', 'id')").await;
    succeed(&mut other, "INSERT INTO accounts SELECT generate_series(1, 9)").await;
    assert_eq!(stage.client().await.value("SELECT count(*) FROM accounts").await, "9");
}

/// It was only frozen, and commits after all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_made_after_it_was_closed_is_followed() {
    let mut stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut other = WireClient::connect(second.address()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN; CREATE TABLE late AS SELECT 7 AS n; CREATE TYPE mood AS ENUM ('well')").await;
    stage.proxy.signal(Signal::STOP);
    until_closed(&stage).await;
    stage.proxy.signal(Signal::CONT);
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(other.value("SELECT n FROM late").await, "7");
    assert_eq!(other.value("SELECT count(*) FROM accounts, late WHERE owner <> 'well'::mood::text").await, "90");
}

/// Its proxy was frozen, and does not know of the shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_on_the_only_shard_is_not_committed_when_there_are_two() {
    let mut stage = Stage::start(1, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut other = WireClient::connect(second.address()).await;
    succeed(&mut other, "DROP TABLE currencies").await;
    stage.cluster.create_database("joining").await;
    let url = stage.cluster.url_on_shard(0, "joining");
    let mut client = stage.client().await;
    let definition = "CREATE FUNCTION late() RETURNS int LANGUAGE sql AS 'SELECT 7'";
    succeed(&mut client, &format!("BEGIN; {definition}")).await;
    stage.proxy.signal(Signal::STOP);
    until_closed(&stage).await;
    succeed(&mut other, &format!("SELECT shardgate.add_shard('shard1', '{url}')")).await;
    stage.proxy.signal(Signal::CONT);
    let told = client.ask("COMMIT").await;
    assert!(told.starts_with("E(40001 shard \"shard1\" has joined since the transaction wrote to all shards)"), "{told}");
    succeed(&mut client, definition).await;
    for shard in ["shard0", "shard1"] {
        succeed(&mut other, &format!("SET shardgate.shard = '{shard}'")).await;
        assert_eq!(other.value("SELECT late()").await, "7");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_ends_without_the_map_is_closed_when_it_is_back() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN; ALTER TABLE accounts ADD COLUMN late int DEFAULT 7").await;
    stage.cluster.map_server_mut().stop(StopMode::Immediate).expect("stop the map");
    let told = client.ask("COMMIT").await;
    drop(client);
    stage.cluster.map_server_mut().start_again().expect("start it again");
    until_closed(&stage).await;
    let there = stage.client().await.ask("SELECT sum(late) FROM accounts").await;
    let expected = if told.starts_with("C(COMMIT) ") || there.contains("D(630)") { "D(630)" } else { "E(42703 " };
    assert!(there.contains(expected), "{told}: {there}");
    stage.assert_no_panic();
}
