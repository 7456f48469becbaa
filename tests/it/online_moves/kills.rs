//! What is in the way of a move that goes on: a server that stays away, a lost connection, an abort in the middle of a copy. The stage of
//! these, and of the kill matrix ([`super::matrix`]).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardgate::demo::servers::Server;
use tempfile::TempDir;
use tokio_postgres::Client;

use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cable, Cluster, Machine, Proxy, ProxyOptions, on_machines};

/// Everything has ended within this after the parts are back.
pub(super) const ENDED_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) proxy: Proxy,
    /// Of the parts, in their order; none: all are on this one.
    machines: Arc<[Machine]>,
    points: TempDir,
}

impl Stage {
    pub(super) async fn start(cluster: Cluster) -> Self {
        Self::start_on(Arc::default(), cluster, options()).await
    }

    /// Whoever drives a move makes this mistake, where one is planted.
    pub(super) async fn start_planted(cluster: Cluster, mistakes: &Path, planted: Option<&str>) -> Self {
        if let Some(name) = planted {
            std::fs::write(mistakes.join(format!("planted.move.{name}")), "").expect("planted");
        }
        let options = ProxyOptions { failpoints: Some(mistakes.to_owned()), ..options() };
        let stage = Self::start_on(Arc::default(), cluster, options).await;
        if let Some(name) = planted {
            std::fs::write(stage.path(&format!("planted.move.{name}")), "").expect("planted");
        }
        stage
    }

    /// Every part on a machine of its own.
    pub(super) async fn on_machines(machines: Arc<[Machine]>) -> Self {
        let servers = [Part::Map, Part::Source, Part::Target].map(|part| &machines[part.machine()]);
        let cluster = Cluster::on_machines(&servers).await;
        Self::start_on(machines, cluster, options()).await
    }

    async fn start_on(machines: Arc<[Machine]>, cluster: Cluster, options: ProxyOptions) -> Self {
        let proxy = match machines.last() {
            Some(machine) => proxy_on(machine, &cluster),
            None => Proxy::start(&cluster, options),
        };
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
        Self { cluster, proxy, machines, points }
    }

    /// Of a part of its own.
    pub(super) fn machine(&self, part: Part) -> Option<&Machine> {
        self.machines.get(part.machine())
    }

    pub(super) fn on_machine_of<T: Send>(&self, part: Part, work: impl FnOnce() -> T + Send) -> T {
        match self.machine(part) {
            Some(machine) => machine.run(work),
            None => work(),
        }
    }

    /// The second one.
    pub(super) fn start_proxy(&self) -> Proxy {
        match self.machine(Part::Proxy) {
            Some(machine) => proxy_on(machine, &self.cluster),
            None => Proxy::start(&self.cluster, options()),
        }
    }

    pub(super) fn start_again(&mut self, part: Part) {
        let machines = Arc::clone(&self.machines);
        let server = self.server_mut(part);
        let mut start = || server.start_again().expect("started again");
        match machines.get(part.machine()) {
            Some(machine) => machine.run(start),
            None => start(),
        }
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
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_shard-rebalance"));
        command
            .args(["--map", &self.cluster.map_url()])
            .args(arguments)
            .env("SHARDGATE_FAILPOINTS", self.points.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let runtime = tokio::runtime::Handle::current();
        self.on_machine_of(Part::Driver, || {
            let _runtime = runtime.enter();
            command.spawn().expect("run shard-rebalance")
        })
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

    pub(super) fn server_mut(&mut self, part: Part) -> &mut Server {
        match part {
            Part::Driver | Part::Proxy => panic!("{part:?} is no server"),
            Part::Map => self.cluster.map_server_mut(),
            Part::Source => self.cluster.shard_server_mut(0),
            Part::Target => self.cluster.shard_server_mut(1),
        }
    }

    pub(super) async fn until_reached(&self, point: &str) {
        self.until_reached_within(point, ENDED_WITHIN).await;
    }

    pub(super) async fn until_reached_within(&self, point: &str, patience: Duration) {
        let reached = self.path(&format!("move.{point}.reached"));
        let deadline = Instant::now() + patience;
        while !reached.exists() {
            assert!(Instant::now() < deadline, "{point} is not reached");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn until_state(&self, wanted: &str) {
        let map = self.cluster.connect_map().await;
        let deadline = Instant::now() + ENDED_WITHIN;
        let last = "SELECT state FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        while map.query_one(last, &[]).await.expect("a move").get::<_, String>(0) != wanted {
            assert!(Instant::now() < deadline, "the move is not {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The last move, which has switched and can be rolled back.
    pub(super) async fn switched(&self, partitions: &str, grace: &str) -> String {
        let arguments = ["move", "--to", "b", "--max-pause", "3s", "--grace", grace, "--partition", partitions];
        let moved = self.command(&arguments).wait().await.expect("it runs");
        assert!(moved.success(), "the move has not switched");
        let map = self.cluster.connect_map().await;
        let last = "SELECT max(move_id)::text FROM shardgate_map.move";
        map.query_one(last, &[]).await.expect("a move").get(0)
    }

    /// Before the cut-over, which waits for a person.
    pub(super) async fn ask_to_abort(&self) {
        let map = self.cluster.connect_map().await;
        let ask = "UPDATE shardgate_map.move SET asked = 'abort' WHERE state = 'catching_up'";
        let deadline = Instant::now() + ENDED_WITHIN;
        while map.execute(ask, &[]).await.expect("ask") == 0 {
            assert!(Instant::now() < deadline, "the move does not catch up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// No shard has kept the term of a driver.
    pub(super) async fn is_forgotten(&self, point: &str) {
        for shard in 0..2 {
            let terms = "SELECT count(*) FROM shardgate.term";
            let terms: i64 = self.cluster.connect_shard(shard).await.query_one(terms, &[]).await.expect("terms").get(0);
            assert_eq!(terms, 0, "{point}: shard {shard} knows the move again");
        }
    }

    pub(super) async fn ask(&self, what: &str) {
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

/// What fails. The servers are separate ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Driver,
    /// One of two.
    Proxy,
    Map,
    Source,
    Target,
}

impl Part {
    /// By number; the first proxy has the one behind these.
    pub(super) fn machine(self) -> usize {
        match self {
            Part::Map => 0,
            Part::Source => 1,
            Part::Target => 2,
            Part::Driver => 3,
            Part::Proxy => 4,
        }
    }
}

pub(super) const MACHINES: u8 = 6;

/// Drivers that are gone are replaced soon.
fn options() -> ProxyOptions {
    ProxyOptions { settings: vec![("moves.driver_lease_ms", "2000".to_owned())], ..ProxyOptions::default() }
}

fn proxy_on(machine: &Machine, cluster: &Cluster) -> Proxy {
    let options = ProxyOptions { address: Some(machine.address()), ..options() };
    machine.run(|| Proxy::start(cluster, options))
}

/// What a client may have to repeat.
pub(super) fn is_passing(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map(|code| code.code().to_owned());
    code.is_none_or(|code| ["40001", "57P03", "57P01", "08006"].contains(&code.as_str()))
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
    the_source_is_lost_when_the_target_owns(&mut stage).await;
}

/// Until it is back, or another server in its place, statements for the partitions wait. Whoever looks is told why, and what to do.
async fn the_source_is_lost_when_the_target_owns(stage: &mut Stage) {
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("switched", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("switched").await;
    stage.cluster.shard_server_mut(0).kill().expect("killed");
    stage.disarm("switched");
    let map = stage.cluster.connect_map().await;
    // Long ago.
    let held = "UPDATE shardgate_map.history SET changed_at = changed_at - interval '1 minute' WHERE change = 'hold_move'";
    map.batch_execute(held).await.expect("a hold");
    let last = "SELECT move_id::text, coalesce(error, '') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
    let deadline = Instant::now() + ENDED_WITHIN;
    let id = loop {
        let row = map.query_one(last, &[]).await.expect("the move");
        let error: String = row.get(1);
        if error.starts_with("shard \"a\": ") && error.contains("Statements for the partitions wait: bring the shard back") {
            break row.get::<_, String>(0);
        }
        assert!(Instant::now() < deadline, "it says: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let doctor = rebalance(&stage.cluster, &["doctor"]).await;
    let told = text(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("statements for partitions {partition} have waited for move {id} for ")), "{told}");
    assert!(told.contains("bring the shard back, or let shardgate.alter_shard() name the server"), "{told}");
    assert!(told.contains(&format!("move {id} cannot end without it: where it does not come back")), "{told}");
    stage.cluster.shard_server_mut(0).start_again().expect("started again");
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "source lost", 500).await;
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
    map.batch_execute(
        "CREATE TABLE turns (at timestamptz DEFAULT clock_timestamp());
         CREATE FUNCTION note_turn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.turns DEFAULT VALUES; RETURN NULL; END';
         CREATE TRIGGER turns AFTER UPDATE ON shardgate_map.move FOR EACH ROW WHEN (new.term > old.term) EXECUTE FUNCTION note_turn()",
    )
    .await
    .expect("turns are counted");
    let turns = async || map.query_one("SELECT count(*) FROM turns", &[]).await.expect("turns").get::<_, i64>(0);
    let deadline = Instant::now() + ENDED_WITHIN;
    while turns().await < 3 {
        assert!(Instant::now() < deadline, "nobody tries");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (before, began) = (turns().await, Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (turns, took) = (turns().await - before, began.elapsed());
    map.batch_execute("DROP TRIGGER turns ON shardgate_map.move; DROP FUNCTION note_turn; DROP TABLE turns")
        .await
        .expect("dropped");
    assert!(turns <= 12 * (1 + took.as_millis() as i64 / 1000), "{turns} turns in {took:?}");
    stage.cluster.shard_server_mut(0).start_again().expect("started again");
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "owner lost", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_lost_in_silence_keeps_nobody_waiting() {
    let stage = Stage::start(Cluster::start(2).await).await;
    let target = format!("127.0.0.1:{}", stage.cluster.shard_server(1).port());
    let cable = Cable::to(target.parse().expect("an address")).await;
    let direct = stage.cluster.shard_url(1);
    let url = direct.replace(&target, &cable.address().to_string());
    assert_ne!(url, direct);
    let admin = stage.proxy.connect().await;
    let alter = format!("SELECT shardgate.alter_shard('b', url => '{url}', replication_url => '{direct}')");
    admin.batch_execute(&alter).await.expect("alter_shard");
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    stage.arm("residue_at_source", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("residue_at_source").await;
    cable.lose_movers();
    stage.disarm("residue_at_source");
    // Held until the target is asked by a new connection: its server knows nothing of the loss.
    let began = Instant::now();
    loop {
        match admin.execute("UPDATE t SET v = v + 1", &[]).await {
            Ok(updated) => break assert_eq!(updated, 500),
            Err(error) => assert!(is_passing(&error) && began.elapsed() < Duration::from_secs(20), "{error:?}"),
        }
    }
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "a connection lost in silence", 500).await;
}

#[test]
fn an_answer_that_a_server_without_power_owes_is_not_waited_for() {
    let name = "an_answer_that_a_server_without_power_owes_is_not_waited_for";
    on_machines(name, MACHINES, an_answer_is_not_waited_for);
}

async fn an_answer_is_not_waited_for(machines: Arc<[Machine]>) {
    let mut stage = Stage::on_machines(Arc::clone(&machines)).await;
    let partition = partitions_on(&stage.proxy, "t", "a").await[0].to_string();
    // A slot is made when this transaction has ended: its server has heard of the request, and may take as long as it likes.
    let writer = stage.cluster.connect_shard(0).await;
    stage.arm("slot", "hold");
    let driver = stage.drive(&partition, &[]);
    stage.until_reached("slot").await;
    writer.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("a writer");
    stage.disarm("slot");
    let observer = stage.cluster.connect_shard(0).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%pg_create_logical_replication_slot%'";
    let deadline = Instant::now() + ENDED_WITHIN;
    while observer.query_one(waits, &[]).await.expect("activity").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "no slot is made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    machines[Part::Source.machine()].cut_off();
    stage.server_mut(Part::Source).kill().expect("killed");
    stage.start_again(Part::Source);
    machines[Part::Source.machine()].reconnect();
    drop((writer, observer));
    assert_eq!(stage.ended().await, "done");
    drop(driver);
    stage.is_whole(&stage.proxy.connect().await, "an answer that does not come", 0).await;
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
async fn a_move_that_has_failed_goes_on_when_a_person_says_so() {
    let stage = Stage::start(Cluster::start(2).await).await;
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
    let doctor = rebalance(&stage.cluster, &["doctor"]).await;
    let (told, way_out) = (text(&doctor.stdout), format!("\"shard-rebalance resume {id}\""));
    assert!(told.contains(&format!("move {id} has failed")) && told.contains(&way_out), "{told}");
    let refused = rebalance(&stage.cluster, &["finish", &id]).await;
    let told = text(&refused.stderr);
    assert!(told.contains("the target does not know that it owns the partitions") && told.contains(&way_out), "{told}");
    let client = stage.proxy.connect().await;
    let change = client.batch_execute("ALTER TABLE t ADD w int").await.expect_err("refused");
    assert!(change.as_db_error().and_then(|error| error.hint()).is_some_and(|hint| hint.contains(&way_out)), "{change:?}");
    assert!(rebalance(&stage.cluster, &["resume", &id]).await.status.success());
    assert_eq!(stage.ended().await, "done");
    stage.is_whole(&client, "a move that had failed", 0).await;
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
