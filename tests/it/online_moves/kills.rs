//! Somebody is killed at a named point of a move: the move ends by itself, done or aborted, and nothing is lost or left over.
//!
//! The driver is the command, which ends at the point as if killed; a proxy drives on. Servers are killed while the driver is held
//! at the point, and started again.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use shardgate::demo::servers::Server;
use tempfile::TempDir;
use tokio_postgres::Client;

use super::{leftovers, partitions_on};
use crate::support::{Cluster, Proxy, ProxyOptions};

/// In the order in which a move comes to them.
const POINTS: [&str; 23] = [
    "announced",
    "view_covered",
    "excluding",
    "gated",
    "published",
    "subscribed",
    "copied",
    "verified",
    "held",
    "drained",
    "fenced",
    "durable",
    "switched",
    "residue_at_source",
    "target_opened",
    "online",
    "replication_ended",
    "cleaning",
    "cleaned",
    "exclusion_ended",
    "view_uncovered",
    "ungated",
    "abort_cleaned",
];

/// Of a move that can be rolled back, beside those above.
const WAY_BACK_POINTS: [&str; 5] =
    ["reverse_published", "reverse_subscribed", "reverse_enabled", "verified_again", "reverse_ended"];

/// Of a rollback, in its order.
const ROLLBACK_POINTS: [&str; 10] = [
    "back_held",
    "back_drained",
    "back_fenced",
    "back_durable",
    "back_switched",
    "back_residue_at_source",
    "back_target_opened",
    "back_online",
    "abort_begun",
    "abort_cleaned",
];

/// Everything has ended within this after the parts are back.
pub(super) const ENDED_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) proxy: Proxy,
    points: TempDir,
}

impl Stage {
    pub(super) async fn start(cluster: Cluster) -> Self {
        let proxy = Proxy::start(&cluster, ProxyOptions::default());
        let admin = proxy.connect().await;
        admin.batch_execute(&format!("SELECT shardgate.add_shard('a', '{}')", cluster.shard_url(0))).await.expect("add_shard");
        admin
            .batch_execute(
                "CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL);
                 INSERT INTO t SELECT g, 1 FROM generate_series(1, 500) g;
                 CREATE VIEW seen AS SELECT * FROM t;
                 SELECT shardgate.distribute_table('t', 'id', partitions => 32)",
            )
            .await
            .expect("a table");
        admin.batch_execute(&format!("SELECT shardgate.add_shard('b', '{}')", cluster.shard_url(1))).await.expect("add_shard");
        let points = tempfile::Builder::new().prefix("shardgate-points-").tempdir().expect("a directory");
        Self { cluster, proxy, points }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.points.path().join(name)
    }

    pub(super) fn arm(&self, point: &str, action: &str) {
        std::fs::write(self.path(&format!("move.{point}")), action).expect("armed");
    }

    pub(super) fn disarm(&self, point: &str) {
        std::fs::remove_file(self.path(&format!("move.{point}"))).expect("disarmed");
        drop(std::fs::remove_file(self.path(&format!("move.{point}.reached"))));
    }

    /// The command, which drives a move of these partitions.
    pub(super) fn drive(&self, partitions: &str, more: &[&str]) -> tokio::process::Child {
        let arguments = ["move", "--to", "b", "--finish", "--max-pause", "3s", "--partition", partitions];
        self.command(&[&arguments, more].concat())
    }

    pub(super) fn command(&self, arguments: &[&str]) -> tokio::process::Child {
        tokio::process::Command::new(env!("CARGO_BIN_EXE_shard-rebalance"))
            .args(["--map", &self.cluster.map_url()])
            .args(arguments)
            .env("SHARDGATE_FAILPOINTS", self.points.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("run shard-rebalance")
    }

    /// Waits until the last move has ended, and gives its state.
    pub(super) async fn ended(&self) -> String {
        let deadline = Instant::now() + ENDED_WITHIN;
        let mut seen = String::new();
        loop {
            let client = crate::support::connect(&self.cluster.map_url()).await;
            let last = "SELECT state, coalesce(error, '') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
            if let Ok(row) = client.query_one(last, &[]).await {
                let (state, error): (String, String) = (row.get(0), row.get(1));
                if matches!(state.as_str(), "done" | "aborted") {
                    return state;
                }
                seen = format!("{state}: {error}");
            }
            assert!(Instant::now() < deadline, "the move has not ended: {seen}\n{}", self.proxy.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn server_mut(&mut self, part: Part) -> &mut Server {
        match part {
            Part::Map => self.cluster.map_server_mut(),
            Part::Source => self.cluster.shard_server_mut(0),
            Part::Target => self.cluster.shard_server_mut(1),
        }
    }

    pub(super) async fn until_reached(&self, point: &str) {
        let reached = self.path(&format!("move.{point}.reached"));
        let deadline = Instant::now() + ENDED_WITHIN;
        while !reached.exists() {
            assert!(Instant::now() < deadline, "{point} is not reached");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_state(&self, wanted: &str) {
        let map = self.cluster.connect_map().await;
        let deadline = Instant::now() + ENDED_WITHIN;
        let last = "SELECT state FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        while map.query_one(last, &[]).await.expect("a move").get::<_, String>(0) != wanted {
            assert!(Instant::now() < deadline, "the move is not {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&self, what: &str) {
        let map = self.cluster.connect_map().await;
        map.execute("UPDATE shardgate_map.move SET asked = $1", &[&what]).await.expect("asked");
    }

    /// Through the proxy all rows are there, once; nothing is left of the move.
    pub(super) async fn is_whole(&self, client: &Client, point: &str, written: i64) {
        let row = client.query_one("SELECT count(*), sum(v)::bigint FROM t", &[]).await.expect("count");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (500, 500 + written), "{point}");
        let row = client.query_one("SELECT count(*), sum(v)::bigint FROM seen", &[]).await.expect("count");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (500, 500 + written), "{point}: the view");
        let mut stored = 0;
        for shard in 0..2 {
            let client = self.cluster.connect_shard(shard).await;
            stored += client.query_one("SELECT count(*) FROM t", &[]).await.expect("stored").get::<_, i64>(0);
        }
        assert_eq!(stored, 500, "{point}: rows lie where they are not owned");
        assert_eq!(leftovers(&self.cluster).await, Vec::<String>::new(), "{point}");
        let map = self.cluster.connect_map().await;
        let held = "SELECT count(*) FROM shardgate_map.partition WHERE state <> 'online'";
        assert_eq!(map.query_one(held, &[]).await.expect("states").get::<_, i64>(0), 0, "{point}");
    }
}

async fn driver_dies_at(points: &[&str]) {
    let stage = Stage::start(Cluster::start(2).await).await;
    let client = stage.proxy.connect().await;
    for (cell, point) in points.iter().enumerate() {
        let partitions = partitions_on(&stage.proxy, "t", "a").await;
        let chosen = format!("{},{}", partitions[0], partitions[1]);
        stage.arm(point, "abort");
        let is_abort = point.starts_with("abort");
        let mut driver = stage.drive(&chosen, if is_abort { &["--manual-cutover"] } else { &[] });
        if is_abort {
            let map = stage.cluster.connect_map().await;
            let ask = "UPDATE shardgate_map.move SET asked = 'abort' WHERE state = 'catching_up'";
            while map.execute(ask, &[]).await.expect("ask") == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let died = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it comes to the point").expect("status");
        assert!(died.code().is_none(), "{point}: the driver was not killed but ended with {died}");
        stage.disarm(point);
        // A write of every row waits where a part of the table is held, and is never refused.
        let update = ["UPDATE t SET v = v + 1", "UPDATE seen SET v = v + 1"][cell % 2];
        assert_eq!(client.execute(update, &[]).await.expect(point), 500);
        let state = stage.ended().await;
        assert_eq!(state, if is_abort { "aborted" } else { "done" }, "{point}");
        stage.is_whole(&client, point, 500 * (cell as i64 + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_before_the_hold_is_replaced() {
    driver_dies_at(&POINTS[..8]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_in_the_pause_is_replaced() {
    driver_dies_at(&POINTS[8..15]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_after_the_pause_is_replaced() {
    driver_dies_at(&POINTS[15..]).await;
}

/// The last move, which has switched and can be rolled back.
async fn switched(stage: &Stage, partitions: &str, grace: &str) -> String {
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--grace", grace, "--partition", partitions];
    let moved = stage.command(&arguments).wait().await.expect("it runs");
    assert!(moved.success(), "the move has not switched");
    let map = stage.cluster.connect_map().await;
    let last = "SELECT max(move_id)::text FROM shardgate_map.move";
    map.query_one(last, &[]).await.expect("a move").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_while_it_makes_or_ends_the_way_back_is_replaced() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let client = stage.proxy.connect().await;
    for (cell, point) in WAY_BACK_POINTS.iter().enumerate() {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
        let is_end = cell >= 3;
        let id = if is_end { switched(&stage, &partition, "1h").await } else { String::new() };
        stage.arm(point, "abort");
        let mut driver = match is_end {
            true => stage.command(&["finish", &id]),
            false => stage.command(&["move", "--to", "b", "--max-pause", "3s", "--grace", "1s", "--partition", &partition]),
        };
        let died = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it comes to the point").expect("status");
        assert!(died.code().is_none(), "{point}: the driver was not killed but ended with {died}");
        stage.disarm(point);
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        assert_eq!(stage.ended().await, "done", "{point}");
        stage.is_whole(&client, point, 500 * (cell as i64 + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_dies_in_a_rollback_is_replaced() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let client = stage.proxy.connect().await;
    for (cell, point) in ROLLBACK_POINTS.iter().enumerate() {
        let partitions = partitions_on(&stage.proxy, "t", "a").await;
        let id = switched(&stage, &format!("{},{}", partitions[0], partitions[1]), "1h").await;
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        stage.arm(point, "abort");
        let mut driver = stage.command(&["rollback", &id]);
        let died = tokio::time::timeout(ENDED_WITHIN, driver.wait()).await.expect("it comes to the point").expect("status");
        assert!(died.code().is_none(), "{point}: the driver was not killed but ended with {died}");
        stage.disarm(point);
        assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        assert_eq!(stage.ended().await, "aborted", "{point}");
        stage.is_whole(&client, point, 1000 * (cell as i64 + 1)).await;
        assert_eq!(partitions_on(&stage.proxy, "t", "a").await, partitions, "{point}");
    }
}

/// In the grace period and in a rollback. What was written before the crash is there after it, wherever the move ends.
async fn server_dies_after_the_switch(cells: &[(&str, Part)]) {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    for (cell, (point, part)) in cells.iter().enumerate() {
        let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
        let is_rollback = point.starts_with("back");
        let id = if is_rollback { switched(&stage, &partition, "1h").await } else { String::new() };
        stage.arm(point, "hold");
        let mut driver = match is_rollback {
            true => stage.command(&["rollback", &id]),
            false => stage.command(&["move", "--to", "b", "--max-pause", "3s", "--grace", "1s", "--partition", &partition]),
        };
        stage.until_reached(point).await;
        if !is_rollback {
            let client = stage.proxy.connect().await;
            assert_eq!(client.execute("UPDATE t SET v = v + 1", &[]).await.expect(point), 500);
        }
        let server = stage.server_mut(*part);
        server.kill().expect("killed");
        server.start_again().expect("started again");
        stage.disarm(point);
        let state = stage.ended().await;
        drop(driver.kill().await);
        assert_eq!(state, if is_rollback { "aborted" } else { "done" }, "{point} {part:?}");
        let client = stage.proxy.connect().await;
        let written = cells[..=cell].iter().filter(|(point, _)| !point.starts_with("back")).count() as i64;
        stage.is_whole(&client, &format!("{point} {part:?}"), 500 * written).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_crash_in_the_grace_period_lose_nothing() {
    let cells = [
        ("reverse_subscribed", Part::Target),
        ("reverse_enabled", Part::Source),
        ("reverse_enabled", Part::Target),
        ("reverse_enabled", Part::Map),
    ];
    server_dies_after_the_switch(&cells).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_crash_in_a_rollback_lose_nothing() {
    let cells = [
        ("back_fenced", Part::Target),
        ("back_durable", Part::Source),
        ("back_switched", Part::Target),
        ("back_switched", Part::Source),
        ("back_fenced", Part::Map),
        ("back_switched", Part::Map),
    ];
    server_dies_after_the_switch(&cells).await;
}

/// Of the separate servers: the map's, the source's, the target's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Map,
    Source,
    Target,
}

async fn server_dies_at(cells: &[(&str, Part)]) {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    for (point, part) in cells {
        let partitions = partitions_on(&stage.proxy, "t", "a").await;
        stage.arm(point, "hold");
        let mut driver = stage.drive(&partitions[0].to_string(), &[]);
        stage.until_reached(point).await;
        let server = stage.server_mut(*part);
        server.kill().expect("killed");
        server.start_again().expect("started again");
        stage.disarm(point);
        let state = stage.ended().await;
        drop(driver.kill().await);
        assert!(matches!(state.as_str(), "done" | "aborted"), "{point} {part:?}");
        let client = stage.proxy.connect().await;
        stage.is_whole(&client, &format!("{point} {part:?}"), 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_crashes_loses_nothing() {
    let cells = ["subscribed", "verified", "fenced", "durable", "switched", "cleaning"].map(|point| (point, Part::Source));
    server_dies_at(&cells).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_crashes_loses_nothing() {
    let cells = ["subscribed", "fenced", "durable", "switched", "target_opened"].map(|point| (point, Part::Target));
    server_dies_at(&cells).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_that_crashes_loses_nothing() {
    let cells = ["gated", "held", "fenced", "switched", "online", "cleaning"].map(|point| (point, Part::Map));
    server_dies_at(&cells).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_lost_in_the_pause_keeps_nobody_waiting() {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("fenced", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("fenced").await;
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    stage.disarm("fenced");
    // The source alone ends the hold, while the target is away.
    stage.until_state("catching_up").await;
    let client = stage.proxy.connect().await;
    for id in 1..=500_i64 {
        let updated = client.execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&id]).await.expect("a write goes on");
        assert_eq!(updated, 1);
    }
    stage.cluster.shard_server_mut(1).start_again().expect("started again");
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "target lost", 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_lost_in_the_pause_is_asked_now_and_then() {
    let mut stage = Stage::start(Cluster::separate_servers(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("fenced", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("fenced").await;
    stage.cluster.shard_server_mut(0).kill().expect("killed");
    stage.disarm("fenced");
    // Each turn takes a term.
    let map = stage.cluster.connect_map().await;
    let term = async || map.query_one("SELECT max(term) FROM shardgate_map.move", &[]).await.expect("a term").get::<_, i64>(0);
    let first = term().await;
    let deadline = Instant::now() + ENDED_WITHIN;
    while term().await < first + 3 {
        assert!(Instant::now() < deadline, "nobody tries");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (before, began) = (term().await, Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (turns, took) = (term().await - before, began.elapsed());
    assert!(turns <= 12 * (1 + took.as_millis() as i64 / 1000), "{turns} turns in {took:?}");
    stage.cluster.shard_server_mut(0).start_again().expect("started again");
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "owner lost", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_aborted_while_it_copies_leaves_no_slot() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("published", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("published").await;
    // The copy has its slot and cannot write.
    let holder = stage.cluster.connect_shard(1).await;
    let waits = "SELECT pg_advisory_lock(77); \
         CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END'; \
         CREATE TRIGGER waits BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION waits(); \
         ALTER TABLE t ENABLE ALWAYS TRIGGER waits";
    holder.batch_execute(waits).await.expect("locked");
    stage.disarm("published");
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg\\_%\\_sync\\_%'";
    let source = stage.cluster.connect_shard(0).await;
    let deadline = Instant::now() + ENDED_WITHIN;
    while source.query_one(slots, &[]).await.expect("slots").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "nothing is copied");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.ask("abort").await;
    stage.until_state("aborting").await;
    holder.batch_execute("SELECT pg_advisory_unlock(77)").await.expect("unlocked");
    assert_eq!(stage.ended().await, "aborted");
    drop(driver);
    holder.batch_execute("DROP FUNCTION waits() CASCADE").await.expect("dropped");
    stage.is_whole(&stage.proxy.connect().await, "aborted while it copies", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_loses_its_connection_goes_on() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("verified", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("verified").await;
    let (source, target) = (stage.cluster.connect_shard(0).await, stage.cluster.connect_shard(1).await);
    let end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE 'shardgate%' AND active";
    let stopped = "SELECT count(*) FROM pg_subscription WHERE subname LIKE 'shardgate%' AND NOT subenabled";
    let deadline = Instant::now() + ENDED_WITHIN;
    while target.query_one(stopped, &[]).await.expect("subscriptions").get::<_, i64>(0) == 0 {
        source.query(end, &[]).await.expect("ended");
        assert!(Instant::now() < deadline, "the subscription goes on by itself");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.disarm("verified");
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "a lost connection", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_rewritten_ends_the_move() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("verified", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("verified").await;
    stage.cluster.connect_shard(0).await.batch_execute("VACUUM FULL t").await.expect("rewritten");
    stage.disarm("verified");
    assert_eq!(stage.ended().await, "aborted");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "rewritten", 0).await;
}
