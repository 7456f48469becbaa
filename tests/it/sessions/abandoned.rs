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

/// A proxy has found that another one is gone, and that the transaction of its change is not.
async fn until_left_open(proxy: &Proxy) {
    let began_at = Instant::now();
    while !proxy.log().contains("its transaction has not ended") {
        assert!(began_at.elapsed() < Duration::from_secs(40), "nobody has looked");
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

    for sql in ["DROP TABLE accounts CASCADE", "ALTER TABLE accounts ADD COLUMN n serial", RENAMED] {
        lose_the_proxy(&mut stage, &points, "before_decision", sql).await;
        until_closed(&stage).await;
        assert_eq!(other.value(declared).await, "1", "{sql}");
        assert_eq!(other.value("SELECT count(*) FROM accounts").await, "90", "{sql}");
        assert_eq!(other.value(&stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await, stage.fill_in("o{z}"), "{sql}");
    }
    let map = stage.cluster.connect_map().await;
    let sequences = map.query_one("SELECT count(*) FROM shardgate_map.declared_sequence", &[]).await.expect("a count");
    assert_eq!(sequences.get::<_, i64>(0), 0);

    lose_the_proxy(&mut stage, &points, "after_decision", RENAMED).await;
    until_closed(&stage).await;
    assert_eq!(other.value("SELECT key FROM shardgate.tables WHERE table_name = 'folk' AND kind = 'sharded'").await, "number");
    assert_eq!(other.value(&stage.fill_in("SELECT owner FROM folk WHERE number = {z}")).await, stage.fill_in("o{z}"));
    assert_eq!(other.value(declared).await, "0");
    lose_the_proxy(&mut stage, &points, "after_decision", "DROP TABLE folk CASCADE").await;
    until_closed(&stage).await;
    assert_eq!(other.value("SELECT count(*) FROM shardgate.tables WHERE kind = 'sharded'").await, "0");
    assert!(other.ask("SELECT count(*) FROM accounts").await.starts_with("E(42P01 "));
    // The lost ones are known to have ended: here, their processes can be seen.
    succeed(&mut other, "CREATE TABLE accounts (id int PRIMARY KEY); SELECT shardgate.distribute_table('accounts', 'id')").await;
    succeed(&mut other, "INSERT INTO accounts SELECT generate_series(1, 9)").await;
    assert_eq!(stage.client().await.value("SELECT count(*) FROM accounts").await, "9");
}

const RENAMED: &str = "BEGIN; ALTER TABLE accounts RENAME TO folk; ALTER TABLE folk RENAME id TO number; COMMIT";

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

/// A table of which the catalogue can be read while it is altered: none of its expressions has to be printed.
async fn create_things(client: &mut WireClient) {
    succeed(client, "CREATE TABLE things (id int, text text); SELECT shardgate.distribute_table('things', 'id')").await;
    succeed(client, "INSERT INTO things SELECT generate_series(1, 9), 'old'").await;
}

/// The map has the new sequence before it is committed, and after its proxy was frozen too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sequence_stays_known_while_its_transaction_is_open() {
    for shards in [1, 2] {
        let mut stage = Stage::start(shards, ProxyOptions::default()).await;
        let second = Proxy::start(&stage.cluster, ProxyOptions::default());
        let mut other = WireClient::connect(second.address()).await;
        let mut client = stage.client().await;
        create_things(&mut client).await;
        succeed(&mut client, "BEGIN; ALTER TABLE things ADD COLUMN n serial; ALTER TABLE currencies RENAME TO coins").await;
        succeed(&mut client, RENAMED.trim_start_matches("BEGIN; ").trim_end_matches("; COMMIT")).await;
        stage.proxy.signal(Signal::STOP);
        until_left_open(&second).await;
        stage.proxy.signal(Signal::CONT);
        assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
        for (client, id) in [(&mut client, 10), (&mut other, 11)] {
            let told = client.ask(&format!("INSERT INTO things VALUES ({id}, 'new')")).await;
            assert_eq!(told, "C(INSERT 0 1) Z(I)", "{shards} shards");
        }
        assert_eq!(other.value("SELECT count(DISTINCT n) FROM things").await, "11");
        until_closed(&stage).await;
        for client in [&mut client, &mut other] {
            assert_eq!(client.value("SELECT string_agg(concat_ws(' ', table_name, key), ', ' ORDER BY table_name) FROM shardgate.tables WHERE kind <> 'home'").await, "coins, folk number, things id");
            assert_eq!(client.value("SELECT count(*) FROM folk, coins WHERE number = 7").await, "2");
        }

        // Who is lost for good leaves nothing.
        succeed(&mut client, "BEGIN; ALTER TABLE things ADD COLUMN m serial; ALTER TABLE folk RENAME TO gone").await;
        stage.proxy.signal(Signal::KILL);
        until_closed(&stage).await;
        assert_eq!(other.value("SELECT count(*) FROM folk WHERE number = 7").await, "1");
        let map = stage.cluster.connect_map().await;
        let sequences = map.query_one("SELECT count(*) FROM shardgate_map.declared_sequence", &[]).await.expect("a count");
        assert_eq!(sequences.get::<_, i64>(0), 1);
    }
}

/// As a map is that was restored between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sequence_that_the_map_has_forgotten_is_declared_again() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN; ALTER TABLE accounts ADD COLUMN n serial").await;
    let map = stage.cluster.connect_map().await;
    let forget = "SELECT shardgate_map.drop_sequence('test', 'public', 'accounts_n_seq')";
    map.batch_execute(forget).await.expect("forgotten");
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    succeed(&mut client, "INSERT INTO accounts VALUES (1001, 'new', 1)").await;
    assert_eq!(client.value("SELECT count(DISTINCT n) FROM accounts").await, "91");
}

/// Between the map, which has closed the sequence to others, and the home shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_stays_closed_while_its_transaction_is_open() {
    let points = Points::new();
    let mut stage = Stage::start(2, points.options()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut other = WireClient::connect(second.address()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE orders (id serial, tenant int); SELECT shardgate.distribute_table('orders', 'tenant')")
        .await;
    let add = "INSERT INTO orders (tenant) VALUES (1), (2), (3)";
    succeed(&mut other, add).await;
    points.arm("after_sequence_closed", "hold");
    client.query(&format!("BEGIN; ALTER SEQUENCE orders_id_seq INCREMENT BY 1000; {add}")).flush().await;
    points.until_reached("after_sequence_closed").await;
    stage.proxy.signal(Signal::STOP);
    until_left_open(&second).await;
    points.release("after_sequence_closed");
    stage.proxy.signal(Signal::CONT);
    assert_eq!(client.transcript().await, "C(BEGIN) C(ALTER SEQUENCE) C(INSERT 0 3) Z(T)");
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    succeed(&mut other, add).await;
    assert_eq!(other.value("SELECT count(DISTINCT id) FROM orders").await, "9");
    assert_eq!(other.value("SELECT count(DISTINCT id / 1000) FROM orders").await, "7", "by thousands");
}

/// What it says of its sequences counts for nothing once the change is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_change_was_closed_makes_no_sequence() {
    for late in [
        "ALTER TABLE things ADD COLUMN n serial",
        "ALTER SEQUENCE orders_id_seq RESTART",
        "CREATE OR REPLACE VIEW v AS SELECT 2 AS n",
    ] {
        let mut stage = Stage::start(2, ProxyOptions::default()).await;
        let _second = Proxy::start(&stage.cluster, ProxyOptions::default());
        let mut client = stage.client().await;
        succeed(&mut client, "CREATE TABLE orders (id serial, tenant int); SELECT shardgate.distribute_table('orders', 'tenant')")
            .await;
        create_things(&mut client).await;
        succeed(&mut client, "CREATE VIEW v AS SELECT 1 AS n").await;
        succeed(&mut client, "BEGIN; CREATE TYPE mood AS ENUM ('well')").await;
        stage.proxy.signal(Signal::STOP);
        until_closed(&stage).await;
        stage.proxy.signal(Signal::CONT);
        let told = client.ask(late).await;
        assert!(told.starts_with("E(40001 the change of the schema was closed meanwhile)"), "{late}: {told}");
        assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
        succeed(&mut client, late).await;
    }
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
