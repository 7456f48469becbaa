//! Mistakes that are planted on purpose in a move, one by one: what the kill matrix and the tests beside it look at shows each of them.
//!
//! A scene is played twice, the second time with the mistake, and fails then. What fails it is [`Stage::is_whole`], or a move that does
//! not end, or a client that waits: what those tests look at.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::kills::{ENDED_WITHIN, Part, Stage};
use super::matrix::{Cell, Fault, Play, Way};
use super::partitions_on;
use crate::support::{Cluster, Frozen};

async fn shows<S: Future<Output = ()> + Send + 'static>(mistake: &str, servers: Servers, scene: fn(Stage) -> S) {
    for planted in [None, Some(mistake)] {
        let mistakes = tempfile::Builder::new().prefix("shardgate-mistakes-").tempdir().expect("a directory");
        let cluster = match servers {
            Servers::One => Cluster::start(2).await,
            Servers::Each => Cluster::separate_servers(2).await,
        };
        let stage = Stage::start_planted(cluster, mistakes.path(), planted).await;
        let played = tokio::spawn(scene(stage)).await;
        assert_eq!(played.is_err(), planted.is_some(), "{planted:?}");
        drop(mistakes);
    }
}

#[derive(Clone, Copy)]
enum Servers {
    One,
    /// One of them is killed.
    Each,
}

/// The first partition of the source.
async fn first(stage: &Stage) -> String {
    partitions_on(&stage.proxy, "t", "a").await[0].to_string()
}

/// What was committed in the pause has not arrived: the target's table is held by somebody. It is not switched, and tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_before_the_marker() {
    shows("switch_before_marker", Servers::One, |stage| async move {
        let writer = stage.proxy.connect().await;
        let driver = held_beside(&stage, &writer).await;
        let holder = stage.cluster.connect_shard(1).await;
        holder.batch_execute("BEGIN; LOCK TABLE t IN EXCLUSIVE MODE").await.expect("the target's table");
        writer.batch_execute("COMMIT").await.expect("acknowledged");
        stage.disarm("held");
        // It waits for the hold, and is answered by whoever owns the rows then.
        let sum = writer.query_one("SELECT sum(v)::bigint FROM t", &[]).await.expect("a reader").get::<_, i64>(0);
        assert_eq!(sum, 1000, "what was acknowledged is not shown");
        holder.batch_execute("ROLLBACK").await.expect("let go");
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&stage.proxy.connect().await, "a table that is held", 500).await;
    })
    .await;
}

/// The target is killed when the map has switched. It has all that came before in its WAL, or nobody may say that it owns the partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_that_is_not_durable_at_the_target() {
    shows("not_durable", Servers::Each, |mut stage| async move {
        let target = stage.cluster.connect_shard(1).await;
        // Nothing else writes its WAL soon, and nothing is copied once more after the crash.
        for statement in
            ["ALTER SYSTEM SET wal_writer_delay = '10s'", "ALTER SYSTEM SET bgwriter_delay = '10s'", "SELECT pg_reload_conf()"]
        {
            target.batch_execute(statement).await.expect(statement);
        }
        let writer = stage.proxy.connect().await;
        let driver = held_beside(&stage, &writer).await;
        target.batch_execute("ALTER SYSTEM SET max_logical_replication_workers = 0").await.expect("after the next start");
        stage.arm("switched", "hold");
        writer.batch_execute("COMMIT").await.expect("acknowledged");
        stage.disarm("held");
        stage.until_reached("switched").await;
        drop(target);
        stage.server_mut(Part::Target).kill().expect("killed");
        stage.start_again(Part::Target);
        stage.disarm("switched");
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&stage.proxy.connect().await, "a target that has crashed", 500).await;
    })
    .await;
}

/// A row that somebody writes straight at the target, to a partition on its way there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gate_at_the_target() {
    shows("no_gate_at_target", Servers::One, |stage| async move {
        let partition = first(&stage).await;
        let driver = verified(&stage, &partition).await;
        let admin = stage.proxy.connect().await;
        let id = new_id(&admin, &partition).await;
        let target = stage.cluster.connect_shard(1).await;
        drop(target.execute("INSERT INTO t VALUES ($1, 1)", &[&id]).await);
        stage.disarm("verified");
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&admin, "a row that was written at the target", 0).await;
    })
    .await;
}

/// A transaction straight at the source, whose snapshot is older than the move's gate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_for_a_gate() {
    shows("gate_is_a_row", Servers::One, |stage| async move {
        let partition = first(&stage).await;
        let driver = verified(&stage, &partition).await;
        let old = stage.cluster.connect_shard(0).await;
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1").await.expect("a snapshot");
        stage.arm("replication_ended", "hold");
        stage.disarm("verified");
        stage.until_reached("replication_ended").await;
        let written = match old.execute("UPDATE t SET v = v + 1", &[]).await {
            Ok(rows) => i64::try_from(rows).expect("few"),
            Err(error) => {
                assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error:?}");
                0
            }
        };
        old.batch_execute("COMMIT").await.expect("acknowledged");
        stage.disarm("replication_ended");
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&stage.proxy.connect().await, "an old snapshot", written).await;
    })
    .await;
}

/// A driver that stood still before it opened the target, while others have ended the pause, and have rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_term_of_the_driver() {
    shows("no_term", Servers::One, |stage| async move {
        let partition = first(&stage).await;
        stage.arm("residue_at_source", "hold");
        let moved = ["move", "--to", "b", "--max-pause", "3s", "--grace", "1h", "--partition", partition.as_str()];
        let mut frozen_driver = stage.command(&moved);
        stage.until_reached("residue_at_source").await;
        let frozen = Frozen::process(frozen_driver.id().expect("it runs").try_into().expect("a process id"));
        let map = stage.cluster.connect_map().await;
        let settled = "SELECT move_id::text FROM shardgate_map.move WHERE journal ? 'settled'";
        let deadline = Instant::now() + ENDED_WITHIN;
        let id: String = loop {
            match map.query_opt(settled, &[]).await.expect("a move") {
                Some(row) => break row.get(0),
                None => assert!(Instant::now() < deadline, "nobody goes on"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        stage.arm("back_online", "hold");
        let driver = stage.command(&["rollback", &id]);
        stage.until_reached("back_online").await;
        stage.disarm("residue_at_source");
        frozen.thaw();
        // It wakes, and is told at the target that it comes too late.
        let client = stage.proxy.connect().await;
        let awake = Instant::now();
        while awake.elapsed() < Duration::from_secs(2) {
            let rows = client.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get::<_, i64>(0);
            assert_eq!(rows, 500, "rows are shown twice");
        }
        stage.disarm("back_online");
        assert_eq!(stage.ended().await, "aborted");
        tokio::time::timeout(ENDED_WITHIN, frozen_driver.wait()).await.expect("it sees that the move is over").expect("status");
        drop(driver);
        stage.is_whole(&client, "a driver that stood still", 0).await;
    })
    .await;
}

/// A dump straight at the target, which has every table open. Statements go on beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_opened_by_truncate() {
    shows("opened_by_truncate", Servers::One, |stage| async move {
        let partition = first(&stage).await;
        let driver = verified(&stage, &partition).await;
        let dump = stage.cluster.connect_shard(1).await;
        let lock = "BEGIN; DO $$ DECLARE gate regclass; BEGIN
                        FOR gate IN SELECT oid FROM pg_class WHERE relnamespace = 'shardgate'::regnamespace AND relname ~ '^gate_' AND relkind = 'r'
                        LOOP EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', gate); END LOOP; END $$";
        dump.batch_execute(lock).await.expect("a dump");
        stage.arm("online", "hold");
        stage.disarm("verified");
        let client = stage.proxy.connect().await;
        stage.until_reached_within("online", Duration::from_secs(20)).await;
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect("beside the dump"), 500);
        dump.batch_execute("ROLLBACK").await.expect("the dump ends");
        stage.disarm("online");
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&client, "a dump", 500).await;
    })
    .await;
}

/// What was there for the way back still runs when the source's rows are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_up_before_the_way_back_has_ended() {
    shows("replication_left", Servers::One, |stage| async move {
        let id = stage.switched(&first(&stage).await, "1h").await;
        let driver = stage.command(&["finish", &id]);
        assert_eq!(stage.ended().await, "done");
        drop(driver);
        stage.is_whole(&stage.proxy.connect().await, "a way back that is over", 0).await;
    })
    .await;
}

/// The map database fails over to a server that has not heard of the switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_is_forgotten() {
    shows("switch_forgotten", Servers::Each, |stage| async move {
        let mut play = Play { stage, written: 0 };
        Box::pin(play.cell(&Cell(Part::Map, Fault::Forgets, Way::There, "online"))).await;
    })
    .await;
}

/// A move that is about to cut over.
async fn verified(stage: &Stage, partition: &str) -> tokio::process::Child {
    stage.arm("verified", "hold");
    let driver = stage.drive(partition, &[]);
    stage.until_reached("verified").await;
    driver
}

/// A move that holds its partition, while a transaction that has written to every row, and has begun before, is open.
async fn held_beside(stage: &Stage, writer: &Client) -> tokio::process::Child {
    let driver = verified(stage, &first(stage).await).await;
    stage.arm("held", "hold");
    writer.batch_execute("BEGIN; UPDATE t SET v = v + 1").await.expect("a writer");
    stage.disarm("verified");
    stage.until_reached("held").await;
    driver
}

/// An id of no row, in this partition.
async fn new_id(client: &Client, partition: &str) -> i64 {
    for id in 501..5000_i64 {
        let there =
            client.query_one(&format!("SELECT partition_id FROM shardgate.locate('t', '{id}')"), &[]).await.expect("located");
        if there.get::<_, i32>(0).to_string() == partition {
            return id;
        }
    }
    panic!("no id is in partition {partition}");
}
