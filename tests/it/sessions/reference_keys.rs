//! Groups over a join with a reference table of which few rows count: one shard looks for their keys, all join by them, and the
//! answer is that of the moment at which the statement began.
//!
//! Where the keys come from shows when the copies of the table are made to differ, which the proxy never does.

use std::pin::pin;

use bytes::Bytes;
use futures::SinkExt;

use super::gathered::until_gone;
use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

/// 50 items, of five parts.
const ASKED: &str = "SELECT count(*), sum(amount) FROM items JOIN parts ON parts.id = items.part WHERE parts.brand = 7";
const ANSWER: &str = "50 50";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_reference_table_are_looked_for_once() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    create(&stage, &mut client).await;
    explained(&mut client).await;
    answered(&mut client).await;
    one_shard_finds_them_for_all(&stage, &mut client).await;
    all_of_one_moment(&stage, &mut client).await;
    ends_as_any_other(&stage, &mut client).await;
    for shard in 0..2 {
        until_gone(&stage, shard, "state LIKE 'idle in transaction%'").await;
    }
    stage.assert_log_is_clean();
}

async fn create(stage: &Stage, client: &mut WireClient) {
    for statement in [
        "CREATE TABLE parts (id bigint PRIMARY KEY, brand int)",
        "CREATE TABLE items (id bigint PRIMARY KEY, part bigint, amount int)",
        "CREATE INDEX ON items (part)",
        "SELECT shardgate.reference_table('parts')",
        "SELECT shardgate.distribute_table('items', 'id', partitions => 12)",
    ] {
        succeed(client, statement).await;
    }
    let part = |item: u32| if item <= 50 { 7 + 40_000 * (item % 5) } else { item };
    let lines: String = (1..=20_000).map(|item| format!("{item}\t{}\t1\n", part(item))).collect();
    let loader = stage.proxy.connect().await;
    let mut copy = pin!(loader.copy_in::<_, Bytes>("COPY items FROM STDIN").await.expect("COPY"));
    copy.send(Bytes::from(lines)).await.expect("rows");
    assert_eq!(copy.finish().await.expect("the end of COPY"), 20_000);
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        let copy = "INSERT INTO parts SELECT g, g % 40000 FROM generate_series(1, 200000) g";
        direct.batch_execute(copy).await.expect("a copy");
        direct.batch_execute("VACUUM ANALYZE parts, items").await.expect("statistics");
    }
}

async fn explained(client: &mut WireClient) {
    let told = client.ask(&format!("EXPLAIN (SHARDS) {ASKED}")).await;
    for line in ["Route: scatter", "Where each shard would scan \"parts\" for few rows, one looks for their keys first: SELECT"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let told = client.ask("EXPLAIN (SHARDS) SELECT count(*) FROM items JOIN parts ON parts.id = items.part").await;
    assert!(!told.contains("for few rows"), "{told}");
}

async fn answered(client: &mut WireClient) {
    assert_eq!(client.row(ASKED).await.join(" "), ANSWER);
    let none = ASKED.replace("= 7", "= -7");
    let parameter = ASKED.replace("= 7", "= $1");
    for (text, values, row) in [(ASKED, &[][..], "50,50"), (&none, &[], "0,NULL"), (&parameter, &["7"], "50,50")] {
        let told = client.unnamed(text, values).sync().transcript().await;
        assert_eq!(told, format!("1 2 D({row}) C(SELECT 1) Z(I)"), "{text}");
    }
    let by_part = "SELECT p.id, count(*), max(i.id) FROM items AS i, parts AS p \
                   WHERE (p.id = i.part AND p.brand = 7 AND i.amount = 1) OR (i.part = p.id AND brand = 9 AND i.id < 10) \
                   GROUP BY 1 HAVING count(*) > 0 ORDER BY 1 DESC LIMIT 2 -- the last ones";
    assert!(client.ask(by_part).await.contains("D(160007,10,49) D(120007,10,48) C(SELECT 2)"));
}

/// One copy has a row more: by the keys of the other it does not count.
async fn one_shard_finds_them_for_all(stage: &Stage, client: &mut WireClient) {
    let direct = stage.cluster.connect_shard(1).await;
    let made = "UPDATE parts SET brand = 7 WHERE id = (SELECT min(part) FROM items WHERE id > 100)";
    direct.batch_execute(made).await.expect("another copy");
    assert_eq!(client.row(ASKED).await.join(" "), ANSWER);
    assert_eq!(client.unnamed(ASKED, &[]).sync().transcript().await, "1 2 D(50,50) C(SELECT 1) Z(I)");
    // Each of its statements has a snapshot of its own.
    succeed(client, "BEGIN").await;
    assert_eq!(client.row(ASKED).await.join(" "), "51 51");
    succeed(client, "COMMIT").await;
    direct.batch_execute("UPDATE parts SET brand = id % 40000 WHERE brand = 7 AND id % 40000 <> 7").await.expect("as it was");
}

/// While the keys are looked for, items and parts change together on both shards. There are 50 before and after.
async fn all_of_one_moment(stage: &Stage, client: &mut WireClient) {
    let (home, other) = (stage.cluster.connect_shard(0).await, stage.cluster.connect_shard(1).await);
    let change = "UPDATE parts SET brand = 8 WHERE brand = 7; UPDATE parts SET brand = 7 WHERE id = 12345;
                  UPDATE items SET part = 12345 WHERE id <= 50; UPDATE items SET part = 1 WHERE id = 12345";
    home.batch_execute("BEGIN; LOCK TABLE parts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    client.query(ASKED);
    client.flush().await;
    stage.until_active(0, "array_agg").await;
    other.batch_execute(&format!("BEGIN; {change}; COMMIT")).await.expect("changed");
    home.batch_execute(&format!("{change}; COMMIT")).await.expect("changed");
    let told = client.transcript().await;
    assert!(told.ends_with("D(50,50) C(SELECT 1) Z(I)"), "{told}");
    assert_eq!(client.row(ASKED).await.join(" "), ANSWER);
}

/// By an error of its rows, and cancelled while it looks for keys; the session goes on.
async fn ends_as_any_other(stage: &Stage, client: &mut WireClient) {
    let told = client.ask(&ASKED.replace("sum(amount)", "sum(1 / (amount - 1))")).await;
    assert_eq!(told, "E(22012 division by zero) Z(I)");
    let home = stage.cluster.connect_shard(0).await;
    home.batch_execute("BEGIN; LOCK TABLE parts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    client.query(ASKED);
    client.flush().await;
    stage.until_active(0, "array_agg").await;
    client.cancel().await;
    assert_eq!(client.transcript().await, "E(57014 canceling statement due to user request) Z(I)");
    home.batch_execute("ROLLBACK").await.expect("released");
    assert_eq!(client.row(ASKED).await.join(" "), ANSWER);
    succeed(client, "INSERT INTO items VALUES (20001, 12345, 1)").await;
    assert_eq!(client.row(ASKED).await.join(" "), "51 51");
}
