//! Somebody is killed at a named point of a commit over several shards: the transaction is whole or absent afterwards.
//!
//! Each transaction writes one row with its own id on each of three shards. The proxy that runs it stops at the point (a file in
//! the directory of failpoints holds it there, or makes it abort); then somebody is killed, started again, and the rows are
//! looked at, past any proxy, once nothing is prepared any more. A second proxy is there from the start.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::Ledger;
use crate::sessions::Stage;
use crate::support::{Cluster, Message, Proxy, ProxyOptions, WireClient, connect, volume};

/// Everything that is back is recovered within this, a proxy's lease included.
const RECOVERED_WITHIN: Duration = Duration::from_secs(10);

/// Points before the decision and after it. Number 0 decides.
pub const BEFORE_DECISION: [&str; 7] = [
    "before_prepare",
    "before_prepare.1",
    "before_prepare.2",
    "after_prepare.0",
    "after_prepare.1",
    "after_prepare",
    "before_decision",
];
pub const AFTER_DECISION: [&str; 6] =
    ["after_decision", "before_finish.1", "after_finish.1", "before_finish.2", "after_finish.2", "before_answer"];

/// Where failpoints are armed.
pub struct Points(TempDir);

impl Points {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("shardgate-failpoints-").tempdir().expect("a directory"))
    }

    pub fn options(&self) -> ProxyOptions {
        ProxyOptions { failpoints: Some(self.0.path().to_owned()), ..ProxyOptions::default() }
    }

    pub fn arm(&self, point: &str, action: &str) {
        std::fs::write(self.path(point), action).expect("armed");
    }

    pub fn release(&self, point: &str) {
        std::fs::remove_file(self.path(point)).expect("released");
        drop(std::fs::remove_file(self.path(&format!("{point}.reached"))));
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.0.path()).join(name)
    }

    pub async fn until_reached(&self, point: &str) {
        let reached = self.path(&format!("{point}.reached"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached.exists() {
            assert!(Instant::now() < deadline, "{point} is not reached");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What the client of a transaction was told at COMMIT.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Committed,
    Failed(String),
    /// The connection ended.
    Nothing,
}

/// Writes one row on each shard; `id` is the transaction's.
pub async fn write(client: &mut WireClient, stage: &Stage, id: &str) {
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    for shard in 0..3 {
        let told = client.ask(&format!("INSERT INTO ledger VALUES ('{id}', {}, 1)", stage.key(shard, 0))).await;
        assert_eq!(told, "C(INSERT 0 1) Z(T)", "{id}");
    }
}

pub async fn commit(client: &mut WireClient) -> Told {
    client.query("COMMIT");
    client.flush().await;
    let mut told = Told::Nothing;
    while let Some(message) = client.next_within(Duration::from_secs(60)).await {
        match message.tag {
            b'C' => told = Told::Committed,
            b'E' => told = Told::Failed(message.field(b'C')),
            b'Z' => break,
            _ => {}
        }
    }
    told
}

/// On how many shards is the transaction there? Waits until nothing is prepared.
async fn found(stage: &Stage, id: &str) -> usize {
    Ledger::until_nothing_is_prepared(stage, RECOVERED_WITHIN).await;
    found_now(stage, id).await
}

pub async fn found_now(stage: &Stage, id: &str) -> usize {
    let mut found = 0;
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        let sql = format!("SELECT FROM ledger WHERE id = '{id}'");
        found += client.query(&sql, &[]).await.expect("rows").len();
    }
    found
}

pub fn uuid(number: usize) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

#[tokio::test]
async fn a_proxy_that_dies_at_any_point_leaves_nothing_half_done() {
    let points = Points::new();
    let mut stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    let _other = Proxy::start(&stage.cluster, ProxyOptions::default());
    for (number, point) in BEFORE_DECISION.iter().chain(&AFTER_DECISION).enumerate() {
        let id = uuid(number);
        let mut client = stage.client().await;
        write(&mut client, &stage, &id).await;
        points.arm(point, "abort");
        let told = commit(&mut client).await;
        assert_eq!(told, Told::Nothing, "at {point}");
        points.release(point);
        let wanted = if AFTER_DECISION.contains(point) { 3 } else { 0 };
        assert_eq!(found(&stage, &id).await, wanted, "at {point}");
        stage.proxy = Proxy::start(&stage.cluster, points.options());
    }
}

#[tokio::test]
async fn a_frozen_proxy_cannot_commit_what_was_rolled_back() {
    let points = Points::new();
    let options = ProxyOptions { settings: vec![("cross_shard.commit_timeout_ms", "2000".to_owned())], ..points.options() };
    let mut stage = Stage::start(3, options).await;
    Ledger::create(&stage).await;
    let _other = Proxy::start(&stage.cluster, ProxyOptions::default());
    // Elsewhere it depends on who was quicker whether there is anything to roll back.
    let certain = ["after_prepare", "before_decision", "after_decision", "before_finish.2"];
    let all = BEFORE_DECISION.into_iter().chain(AFTER_DECISION).collect();
    for (number, point) in volume(certain.to_vec(), all).iter().enumerate() {
        let id = uuid(number);
        let mut client = stage.client().await;
        write(&mut client, &stage, &id).await;
        points.arm(point, "hold");
        let committing = tokio::spawn(async move { commit(&mut client).await });
        points.until_reached(point).await;
        stage.proxy.signal(Signal::STOP);
        let wanted = if AFTER_DECISION.contains(point) { 3 } else { 0 };
        let there = found(&stage, &id).await;
        assert!(!certain.contains(point) || there == wanted, "{there}, frozen at {point}");
        points.release(point);
        stage.proxy.signal(Signal::CONT);
        let told = committing.await.expect("no panic");
        let there = found(&stage, &id).await;
        assert!(there == 0 || there == 3, "{there} of 3, thawed at {point}");
        assert_eq!(told == Told::Committed, there == 3, "{told:?} at {point}");
        assert!(!certain.contains(point) || there == wanted, "{there}, thawed at {point}");
    }
}

/// The deciding shard is the home shard, number 0; another is number 1.
#[tokio::test]
async fn a_shard_that_dies_at_any_point_comes_back_with_all_or_nothing() {
    let points = Points::new();
    let mut stage = Stage::on(Cluster::separate_servers(3).await, points.options()).await;
    Ledger::create(&stage).await;
    let mut number = 0;
    let few = vec![
        "before_prepare",
        "after_prepare",
        "before_decision",
        "after_decision",
        "before_finish.1",
        "after_finish.1",
        "before_answer",
    ];
    let points_of_all: Vec<&str> = volume(few, BEFORE_DECISION.into_iter().chain(AFTER_DECISION).collect());
    for killed in volume(vec![0, 1], vec![0, 1, 2]) {
        for point in points_of_all.iter().copied() {
            number += 1;
            let id = uuid(number);
            let mut client = stage.client().await;
            write(&mut client, &stage, &id).await;
            points.arm(point, "hold");
            let committing = tokio::spawn(async move { commit(&mut client).await });
            points.until_reached(point).await;
            let server = stage.cluster.shard_server_mut(killed);
            server.kill().expect("killed");
            points.release(point);
            stage.cluster.shard_server_mut(killed).start_again().expect("started again");
            let told = committing.await.expect("no panic");
            let there = found(&stage, &id).await;
            assert!(there == 0 || there == 3, "{there} of 3 when shard {killed} was killed at {point}");
            assert!(told != Told::Committed || there == 3, "acknowledged and lost: shard {killed} at {point}");
            assert!(
                told == Told::Committed || there == 0 || told == Told::Failed("08007".to_owned()),
                "{told:?} and there: shard {killed} at {point}"
            );
            let is_decided = AFTER_DECISION.contains(&point);
            assert_eq!(there == 3, is_decided || (there == 3 && told == Told::Committed), "shard {killed} at {point}");
            let mut reader = stage.client().await;
            until_usable(&mut reader).await;
        }
    }
}

/// Every shard answers again.
async fn until_usable(client: &mut WireClient) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.ask("SELECT count(*) FROM accounts WHERE id > 0 AND id IN (SELECT 1)").await.is_empty()
        || client.ask("SELECT id FROM accounts").await.contains("E(")
    {
        assert!(Instant::now() < deadline, "the shards do not answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_in_doubt_is_shown_and_others_prepared_transactions_are_left_alone() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let foreign = ["mine", "sg:", "sg:0000000000000000:0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b:1:1:aa:1"];
    let direct = stage.cluster.connect_shard(1).await;
    for (number, gid) in foreign.iter().enumerate() {
        let sql = format!("BEGIN; INSERT INTO ledger VALUES ('{}', -1, {number}); PREPARE TRANSACTION '{gid}'", uuid(900 + number));
        direct.batch_execute(&sql).await.expect("prepared");
    }
    for (number, (point, state)) in [("before_decision", "in doubt"), ("before_finish.1", "committed")].into_iter().enumerate() {
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(number)).await;
        points.arm(point, "hold");
        let committing = tokio::spawn(async move { commit(&mut client).await });
        points.until_reached(point).await;
        let mut viewer = WireClient::connect(other.address()).await;
        let rows = format!(
            "SELECT state, cardinality(participants), participants <@ ARRAY['shard1', 'shard2'], age < interval '1 minute', gid LIKE 'sg:%' \
             FROM shardgate.transactions WHERE state = '{state}'"
        );
        // After the decision the other participant may be finished by now.
        let row = viewer.row(&rows).await;
        assert_eq!((row[0].as_str(), &row[2..]), (state, &["t".to_owned(), "t".to_owned(), "t".to_owned()][..]));
        let told = viewer.ask("SELECT shardgate.drop_shard('shard2')").await;
        assert!(told.starts_with("E(55006 "), "{told}");
        points.release(point);
        assert_eq!(committing.await.expect("no panic"), Told::Committed);
        assert_eq!(viewer.value("SELECT count(*) FROM shardgate.transactions").await, "0");
    }
    // Rounds of recovery go by: the transactions of a proxy that dies are finished in one.
    points.arm("before_decision", "abort");
    let mut client = stage.client().await;
    write(&mut client, &stage, &uuid(77)).await;
    assert_eq!(commit(&mut client).await, Told::Nothing);
    let deadline = Instant::now() + RECOVERED_WITHIN;
    let ours = "SELECT FROM pg_prepared_xacts WHERE gid LIKE 'sg:%' AND NOT gid = ANY ($1)";
    while !direct.query(ours, &[&foreign.as_slice()]).await.expect("prepared").is_empty() {
        assert!(Instant::now() < deadline, "not recovered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for gid in foreign {
        direct.batch_execute(&format!("COMMIT PREPARED '{gid}'")).await.expect("still there");
    }
    what_a_dropped_shard_has_prepared_is_finished(&stage, &other, &points).await;
}

/// The shard leaves the map between the moment at which nothing was prepared there and the one at which something is.
async fn what_a_dropped_shard_has_prepared_is_finished(stage: &Stage, other: &Proxy, points: &Points) {
    stage.cluster.create_database("spare").await;
    let admin = other.connect().await;
    let added = format!("SELECT shardgate.add_shard('spare', '{}')", stage.cluster.url_on_shard(0, "spare"));
    admin.batch_execute(&added).await.expect("added");
    let direct = connect(&stage.cluster.url_on_shard(0, "spare")).await;
    let recoveries = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'shardgate recovery'";
    let deadline = Instant::now() + RECOVERED_WITHIN;
    while direct.query(recoveries, &[]).await.expect("connections").is_empty() {
        assert!(Instant::now() < deadline, "recovery does not look at the new shard");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let dying = Proxy::start(&stage.cluster, points.options());
    let mut client = WireClient::connect(dying.address()).await;
    write(&mut client, stage, &uuid(78)).await;
    assert_eq!(client.ask("UPDATE currencies SET name = name").await, "C(UPDATE 2) Z(T)");
    points.arm("before_prepare", "hold");
    let committing = tokio::spawn(async move { commit(&mut client).await });
    points.until_reached("before_prepare").await;
    admin.batch_execute("SELECT shardgate.drop_shard('spare')").await.expect("dropped");
    points.arm("before_decision", "abort");
    points.release("before_prepare");
    assert_eq!(committing.await.expect("no panic"), Told::Nothing);
    let prepared = "SELECT FROM pg_prepared_xacts WHERE database = current_database()";
    assert!(!direct.query(prepared, &[]).await.expect("prepared").is_empty(), "it was not in time");
    let deadline = Instant::now() + RECOVERED_WITHIN;
    while !direct.query(prepared, &[]).await.expect("prepared").is_empty() {
        assert!(Instant::now() < deadline, "not recovered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whoever has asked for COMMIT and does not wait for the answer: the transaction is on all shards all the same, at once.
#[tokio::test]
async fn a_client_that_goes_in_mid_commit_leaves_a_whole_transaction() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    for (number, point) in BEFORE_DECISION.iter().chain(&AFTER_DECISION).enumerate() {
        let id = uuid(number);
        let mut client = stage.client().await;
        write(&mut client, &stage, &id).await;
        points.arm(point, "hold");
        client.query("COMMIT");
        client.flush().await;
        points.until_reached(point).await;
        // Closed in order, or by a reset.
        match number % 2 {
            0 => drop(client),
            _ => client.reset(),
        }
        points.release(point);
        // The session finishes it: that is quicker than recovery ever is.
        assert_eq!(found(&stage, &id).await, 3, "gone at {point}");
        let mut next = stage.client().await;
        write(&mut next, &stage, &uuid(100 + number)).await;
        assert_eq!(next.value("SELECT count(*) FROM shardgate.transactions").await, "0", "gone at {point}");
        assert_eq!(commit(&mut next).await, Told::Committed, "after {point}");
    }
    stage.assert_log_is_clean();
}

/// A client that hears 57P01 takes its transaction for rolled back, and may repeat it.
#[tokio::test]
async fn a_commit_at_the_drain_deadline_is_told_or_said_to_be_unknown() {
    let points = Points::new();
    for ends_in_time in [true, false] {
        let settings = vec![("listen.drain_timeout_ms", "200".to_owned())];
        let mut stage = Stage::start(3, ProxyOptions { settings, ..points.options() }).await;
        Ledger::create(&stage).await;
        let _other = Proxy::start(&stage.cluster, ProxyOptions::default());
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(1)).await;
        points.arm("after_decision", "hold");
        client.query("COMMIT");
        client.flush().await;
        points.until_reached("after_decision").await;
        stage.proxy.signal(Signal::TERM);
        while !stage.proxy.log().contains("sessions closed at the drain deadline") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if ends_in_time {
            points.release("after_decision");
        }
        let told: Vec<String> = client.rest().await.iter().map(Message::describe).collect();
        let wanted: &[&str] = match ends_in_time {
            true => &["C(COMMIT)", "Z(I)", "E(57P01 terminating connection due to administrator command)"],
            false => &["E(08007 the outcome of the statement is unknown)"],
        };
        assert_eq!(told, wanted);
        assert!(stage.proxy.wait(Duration::from_secs(20)).success());
        if !ends_in_time {
            points.release("after_decision");
        }
        assert_eq!(found(&stage, &uuid(1)).await, 3);
    }
}
