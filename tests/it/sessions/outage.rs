//! A shard that is killed, a map database that is stopped, two proxies: who notices, what it hears, and how soon it is over.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use shardgate::demo::servers::StopMode;

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Frozen, Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shard_is_noticed_by_its_own_statements_only() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let (home, other) = (stage.key(0, 0), stage.key(1, 0));
    let mut client = stage.client().await;
    let mut in_transaction = stage.client().await;
    let mut prepared = stage.client().await;
    succeed(&mut in_transaction, &format!("BEGIN; UPDATE accounts SET balance = 1 WHERE id = {other}")).await;
    prepared.parse("s", "SELECT owner FROM accounts WHERE id = $1").bind("", "s", &[&other.to_string()]).execute("", 0).sync();
    assert_eq!(prepared.transcript().await, format!("1 2 D(o{other}) C(SELECT 1) Z(I)"));
    let mut behind_savepoint = stage.client().await;
    let another = stage.key(1, 1);
    succeed(&mut behind_savepoint, &format!("BEGIN; UPDATE accounts SET balance = 1 WHERE id = {another}")).await;
    succeed(&mut behind_savepoint, "SAVEPOINT s").await;
    let mut listening = stage.client().await;
    succeed(&mut listening, "SET shardgate.shard = 'shard1'").await;
    succeed(&mut listening, "LISTEN news").await;
    let mut running = stage.client().await;
    running.query(&format!("SELECT pg_sleep(30) FROM accounts WHERE id = {other}"));
    running.flush().await;
    stage.until_active(1, "pg_sleep(30)").await;

    let bystander = Bystander::start(&stage, format!("SELECT owner FROM accounts WHERE id = {home}"), format!("D(o{home})"));
    stage.cluster.shard_server_mut(1).kill().expect("kill the shard");
    assert!(running.transcript().await.contains("E(08006 "), "the statement that ran there");
    let told = in_transaction.ask("COMMIT").await;
    // Unknown, when COMMIT was on its way before the loss was seen.
    let is_told = told.starts_with("E(08006 ") || told.starts_with("E(08007 ");
    assert!(is_told && told.ends_with("Z(I)"), "COMMIT of what was written there: {told}");
    let told = behind_savepoint.ask("ROLLBACK TO s").await;
    let at_commit = behind_savepoint.ask("COMMIT").await;
    if told.starts_with("E(08006 ") && told.ends_with("Z(E)") {
        assert_eq!(at_commit, "C(ROLLBACK) Z(I)", "the savepoint is lost too");
    } else {
        // The shard never heard of the savepoint and is not asked: when its end is not seen yet, COMMIT is what tells the loss.
        assert_eq!(told, "C(ROLLBACK) Z(T)");
        let is_told = at_commit.starts_with("E(08006 ") || at_commit.starts_with("E(08007 ");
        assert!(is_told && at_commit.ends_with("Z(I)"), "what was written there is gone: {at_commit}");
    }
    let told = listening.rest().await;
    assert!(told.last().is_some_and(|last| last.field(b'S') == "FATAL"), "what was pinned there is gone: {told:?}");
    for _ in 0..20 {
        let asked_at = Instant::now();
        let told = client.ask(&format!("SELECT owner FROM accounts WHERE id = {other}")).await;
        assert!(told.starts_with("E(08006 ") || told.starts_with("E(57P03 "), "{told}");
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
        let told = client.ask("SELECT count(*) FROM accounts").await;
        assert!(told.starts_with("E(08006 ") || told.starts_with("E(57P03 ") || told.starts_with("E(0A000 "), "{told}");
    }

    stage.cluster.shard_server_mut(1).start_again().expect("start it again");
    let back_at = Instant::now();
    while !client.ask(&format!("SELECT owner FROM accounts WHERE id = {other}")).await.contains(&format!("D(o{other})")) {
        assert!(back_at.elapsed() < Duration::from_secs(2), "not back within two seconds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    prepared.bind("", "s", &[&other.to_string()]).execute("", 0).sync();
    assert_eq!(prepared.transcript().await, format!("2 D(o{other}) C(SELECT 1) Z(I)"), "prepared statements are there again");
    assert_eq!(client.value(&format!("SELECT balance FROM accounts WHERE id = {other}")).await, "100", "nothing half done");
    bystander.stop().await;
}

/// Its idle connections are known to be gone, whatever the shard has said before it closed them, and nobody pays for them afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_was_away_costs_nobody_a_statement_after_its_return() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let other = stage.key(1, 0);
    let owner = format!("SELECT owner FROM accounts WHERE id = {other}");
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(stage.client().await);
    }
    for way in ["immediate stop", "crash of one backend"] {
        // So many connections are idle afterwards.
        for client in &mut clients {
            client.query(&format!("SELECT pg_sleep(0.3) FROM accounts WHERE id = {other}"));
            client.flush().await;
        }
        for client in &mut clients {
            assert!(client.transcript().await.ends_with("Z(I)"));
        }
        match way {
            "immediate stop" => {
                stage.cluster.shard_server_mut(1).stop(StopMode::Immediate).expect("stop the shard");
                until_up(&stage, "0").await;
                let log = stage.proxy.log();
                assert!(log.contains("connection to shard lost") && log.contains("shard not reachable"), "{log}");
                stage.cluster.shard_server_mut(1).start_again().expect("start it again");
            }
            _ => {
                let before = lost(&stage);
                let victim = stage.cluster.connect_shard(1).await;
                let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
                let pid = rustix::process::Pid::from_raw(pid).expect("a process");
                rustix::process::kill_process(pid, Signal::KILL).expect("killed");
                let asked_at = Instant::now();
                while lost(&stage) == before {
                    assert!(asked_at.elapsed() < Duration::from_secs(30), "nobody notices");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        until_up(&stage, "1").await;
        for client in &mut clients {
            client.query(&owner);
            client.flush().await;
        }
        for client in &mut clients {
            assert_eq!(client.transcript().await, format!("T(owner) D(o{other}) C(SELECT 1) Z(I)"), "after the {way}");
        }
    }
    let refused = WireClient::try_connect(stage.proxy.address(), &[("user", "stranger"), ("database", "nowhere")]).await;
    assert!(refused.is_err());
    let log = stage.proxy.log();
    let line = log.lines().find(|line| line.contains("login refused")).expect("a line");
    assert!(line.contains("stranger") && line.contains("127.0.0.1:"), "{line}");
}

async fn until_up(stage: &Stage, value: &str) {
    let asked_at = Instant::now();
    while metric(stage, "shardgate_shard_up{shard=\"shard1\"}") != value {
        assert!(asked_at.elapsed() < Duration::from_secs(30), "shardgate_shard_up is not {value}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn lost(stage: &Stage) -> String {
    metric(stage, "shardgate_shard_connections_lost_total{shard=\"shard1\"}")
}

fn metric(stage: &Stage, name: &str) -> String {
    let (_, metrics) = stage.proxy.admin("/metrics").expect("metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map(|value| value.trim().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_home_the_other_shards_go_on() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let (home, other) = (stage.key(0, 0), stage.key(1, 0));
    let mut client = stage.client().await;
    succeed(&mut client, &format!("SELECT owner FROM accounts WHERE id = {other}")).await;
    a_home_shard_that_stands_still_holds_up_nobody(&stage, other).await;
    stage.cluster.shard_server_mut(0).kill().expect("kill home");
    for _ in 0..5 {
        assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {other}")).await, format!("o{other}"));
        let told = client.ask(&format!("SELECT owner FROM accounts WHERE id = {home}")).await;
        assert!(told.starts_with("E(08006 ") || told.starts_with("E(57P03 "), "{told}");
    }
    // Who comes now is let in, and may prepare what nobody has prepared before, as long as the shard itself knows the types.
    let mut late = stage.client().await;
    late.unnamed("SELECT owner, 1 FROM accounts WHERE id = $1::bigint", &[&other.to_string()]).sync();
    assert_eq!(late.transcript().await, format!("1 2 D(o{other},1) C(SELECT 1) Z(I)"));
    stage.cluster.shard_server_mut(0).start_again().expect("start it again");
    let back_at = Instant::now();
    while !client.ask(&format!("SELECT owner FROM accounts WHERE id = {home}")).await.contains(&format!("D(o{home})")) {
        assert!(back_at.elapsed() < Duration::from_secs(2), "not back within two seconds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nobody has used another shard since the change, and nobody has prepared these statements before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_after_a_schema_change_the_other_shards_go_on_without_home() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let other = stage.key(1, 0);
    succeed(&mut stage.client().await, "ALTER TABLE accounts ADD COLUMN note text").await;
    stage.cluster.shard_server_mut(0).kill().expect("kill home");
    let mut late = stage.client().await;
    assert_eq!(late.value(&format!("SELECT owner FROM accounts WHERE id = {other}")).await, format!("o{other}"));
    for set in ["SET extra_float_digits = 3", "SET app.tenant = 'x'", "RESET work_mem"] {
        succeed(&mut late, set).await;
    }
    assert!(late.ask("SET nonsense = 1").await.starts_with("E(42704 "));
    succeed(&mut late, "PREPARE one AS SELECT owner FROM accounts WHERE id = $1").await;
    assert_eq!(late.value(&format!("EXECUTE one({other})")).await, format!("o{other}"));
    let driver = stage.proxy.connect().await;
    let written = driver.execute("UPDATE accounts SET note = $1 WHERE id = $2", &[&"kept", &other]).await;
    assert_eq!(written.expect("a write with parameters"), 1);
    let read = driver.query_one("SELECT note FROM accounts WHERE id = $1", &[&other]).await.expect("a row");
    assert_eq!(read.get::<_, &str>(0), "kept");
    assert_eq!(driver.execute("DELETE FROM accounts WHERE id = $1", &[&other]).await.expect("deleted"), 1);
    let inserted = driver.execute("INSERT INTO accounts VALUES ($1, $2, $3)", &[&other, &"new", &1_i32]).await;
    assert_eq!(inserted.expect("a new row"), 1);
}

/// Its schema has to be read again, as its row in the map has changed, and it says neither yes nor no.
async fn a_home_shard_that_stands_still_holds_up_nobody(stage: &Stage, other: i64) {
    let statement = format!("SELECT owner FROM accounts WHERE id = {other}");
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(stage.client().await);
    }
    let mut hurried = stage.client().await;
    succeed(&mut hurried, "SET statement_timeout = '300ms'").await;
    let map = stage.cluster.connect_map().await;
    let frozen = Frozen::server(stage.cluster.shard_server(0));
    let alter = "SELECT shardgate_map.alter_shard('test', 'shard0', NULL, NULL, NULL, 3, NULL, NULL, NULL, NULL)";
    map.batch_execute(alter).await.expect("another capacity");
    let altered_at = Instant::now();
    loop {
        let asked_at = Instant::now();
        let told = hurried.ask(&statement).await;
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}: {told}", asked_at.elapsed());
        if told == "E(57014 canceling statement due to statement timeout) Z(I)" {
            break;
        }
        assert!(altered_at.elapsed() < Duration::from_secs(3), "nobody waits for the schema: {told}");
    }
    for client in &mut clients {
        client.query(&statement);
        client.flush().await;
    }
    for client in &mut clients {
        assert_eq!(client.transcript().await, format!("T(owner) D(o{other}) C(SELECT 1) Z(I)"));
    }
    assert!(altered_at.elapsed() < Duration::from_secs(8), "{:?}", altered_at.elapsed());
    for client in &mut clients {
        let asked_at = Instant::now();
        assert_eq!(client.value(&statement).await, format!("o{other}"));
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    }
    frozen.thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_map_known_keys_go_on_and_two_proxies_agree_again_after_its_return() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = stage.client().await;
    let mut elsewhere = WireClient::connect(second.address()).await;
    for statement in LOOKUP {
        succeed(&mut client, statement).await;
    }
    succeed(&mut client, "INSERT INTO tenants VALUES ('known', 1)").await;
    assert_eq!(client.value("SELECT n FROM tenants WHERE name = 'known'").await, "1");
    let told = client.ask("INSERT INTO tenants VALUES ('unmapped', 1)").await;
    assert!(told.starts_with("E(SG001 "), "{told}");
    assert_eq!(client.value("SELECT count(*) FROM tenants WHERE name = 'unmapped'").await, "0");
    assert!(elsewhere.ask("INSERT INTO tenants VALUES ('new', 2)").await.starts_with("E(SG001 "));

    // A change through one proxy is what the other one goes by, within a second.
    let changed_at = Instant::now();
    succeed(&mut client, "SELECT shardgate.map_key('tenants', 'new', 'shard1')").await;
    succeed(&mut client, "INSERT INTO tenants VALUES ('new', 2)").await;
    assert_eq!(elsewhere.value("SELECT n FROM tenants WHERE name = 'new'").await, "2", "a row that is there is found at once");
    while elsewhere.ask("INSERT INTO tenants VALUES ('new', 2)").await.contains("SG001") {
        assert!(changed_at.elapsed() < Duration::from_secs(1), "the other proxy has not heard of it");
    }
    assert_eq!(elsewhere.value("SELECT n FROM tenants WHERE name = 'known'").await, "1");

    // More numbers than one block are there before they are needed.
    let numbered = format!("INSERT INTO numbered (v) VALUES {}", vec!["('x')"; 500].join(", "));
    for statement in
        ["CREATE TABLE numbered (id serial PRIMARY KEY, v text)", "SELECT shardgate.distribute_table('numbered', 'id')"]
    {
        succeed(&mut client, statement).await;
    }
    succeed(&mut client, &numbered).await;
    let map = stage.cluster.connect_map().await;
    let counter = "SELECT next_number::int8 FROM shardgate_map.sequence_counter WHERE sequence_name = 'numbered_id_seq'";
    let drawn_at = Instant::now();
    while map.query_one(counter, &[]).await.expect("a counter").get::<_, i64>(0) <= 2000 {
        assert!(drawn_at.elapsed() < Duration::from_secs(20), "nothing is fetched ahead");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    stage.cluster.map_server_mut().stop(StopMode::Immediate).expect("stop the map");
    for _ in 0..6 {
        succeed(&mut client, &numbered).await;
    }
    assert_eq!(client.value("SELECT count(DISTINCT id) FROM numbered").await, "3500");
    let hash_key = stage.key(1, 0);
    for _ in 0..5 {
        assert_eq!(client.value("SELECT n FROM tenants WHERE name = 'known'").await, "1");
        assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {hash_key}")).await, format!("o{hash_key}"));
        let asked_at = Instant::now();
        let told = client.ask("SELECT n FROM tenants WHERE name = 'never seen'").await;
        assert!(told.starts_with("E(57P03 "), "{told}");
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    }
    let told = client.ask("SELECT shardgate.map_key('tenants', 'x', 'shard1')").await;
    assert!(told.starts_with("E(57P03 "), "what changes the map says so: {told}");
    let told = client.ask("SELECT * FROM shardgate.shards").await;
    assert!(told.starts_with("E(57P03 ") || told.starts_with("E(08006 "), "{told}");
    succeed(&mut client, &format!("BEGIN; UPDATE accounts SET balance = 99 WHERE id = {hash_key}; COMMIT")).await;
    succeed(&mut stage.client().await, "SELECT 1").await;

    stage.cluster.map_server_mut().start_again().expect("start it again");
    let back_at = Instant::now();
    loop {
        let told = client.ask("SELECT n FROM tenants WHERE name = 'never seen'").await;
        if !told.starts_with("E(") {
            break;
        }
        assert!(told.starts_with("E(57P03 ") && back_at.elapsed() < Duration::from_secs(5), "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    succeed(&mut client, "SELECT shardgate.map_key('tenants', 'late', 'shard0')").await;
    let changed_at = Instant::now();
    while elsewhere.ask("SELECT n FROM tenants WHERE name = 'late'").await.contains("E(") {
        assert!(changed_at.elapsed() < Duration::from_secs(5), "the other proxy has not healed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.assert_no_panic();
}

/// No shard can give a key its number, since the number says which shard it is; nor does one count for `nextval`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_no_number_while_none_is_held_and_the_map_is_away() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE f (id bigserial PRIMARY KEY, v text)").await;
    succeed(&mut client, "SELECT shardgate.distribute_table('f', 'id')").await;
    stage.cluster.map_server_mut().stop(StopMode::Immediate).expect("stop the map");
    for statement in ["INSERT INTO f (v) VALUES ('x')", "SELECT nextval('f_id_seq')"] {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(55000 "), "{statement}: {told}");
    }
    stage.cluster.map_server_mut().start_again().expect("start it again");
    let back_at = Instant::now();
    while client.ask("INSERT INTO f (v) VALUES ('x')").await != "C(INSERT 0 1) Z(I)" {
        assert!(back_at.elapsed() < Duration::from_secs(30), "not back");
    }
    stage.assert_no_panic();
}

/// A shard may have joined that a proxy without the map has not heard of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_to_every_shard_needs_the_map() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let write = "UPDATE currencies SET name = name";
    stage.cluster.map_server_mut().stop(StopMode::Immediate).expect("stop the map");
    let stopped_at = Instant::now();
    loop {
        let told = client.ask(write).await;
        if told == "E(57P03 this statement concerns all shards, and which these are is not known now) Z(I)" {
            break;
        }
        assert!(told == "C(UPDATE 2) Z(I)" && stopped_at.elapsed() < Duration::from_secs(20), "{told}");
    }
    succeed(&mut client, &format!("UPDATE accounts SET balance = 99 WHERE id = {}", stage.key(1, 0))).await;
    succeed(&mut client, "SELECT count(*) FROM currencies").await;
    stage.cluster.map_server_mut().start_again().expect("start it again");
    let back_at = Instant::now();
    while client.ask(write).await != "C(UPDATE 2) Z(I)" {
        assert!(back_at.elapsed() < Duration::from_secs(10), "not back");
    }
    stage.assert_no_panic();
}

/// It was planned, and waited for a connection, when the proxy was frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_joins_while_a_proxy_is_frozen_misses_no_write_of_it() {
    let settings = vec![
        ("pool.size_per_shard", "2".to_owned()),
        ("pool.late_joiner_share", "0".to_owned()),
        ("pool.checkout_timeout_ms", "60000".to_owned()),
    ];
    let mut stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut other = WireClient::connect(second.address()).await;
    stage.cluster.create_database("joining").await;
    let mut holders = [stage.client().await, stage.client().await];
    for holder in &mut holders {
        succeed(holder, "BEGIN; SELECT count(*) FROM notes").await;
    }
    let mut client = stage.client().await;
    client.query("UPDATE currencies SET name = 'late'");
    client.flush().await;
    let is_waiting = |text: &str| {
        text.lines()
            .any(|line| line.starts_with("shardgate_pool_waiting_sessions") && line.ends_with(" 1") && line.contains("shard0"))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !stage.proxy.admin("/metrics").is_some_and(|(_, text)| is_waiting(&text)) {
        assert!(Instant::now() < deadline, "the write does not wait for a connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.proxy.signal(Signal::STOP);
    let url = stage.cluster.url_on_shard(0, "joining");
    succeed(&mut other, &format!("SELECT shardgate.add_shard('shard2', '{url}')")).await;
    // Of a machine that stands still the clock does too: only the shard can keep the proxy from going on as if nothing had been.
    let home = stage.cluster.connect_shard(0).await;
    let shut_out = home.query_one("SELECT count(*) FROM shardgate.shut_out", &[]).await.expect("a count");
    assert_eq!(shut_out.get::<_, i64>(0), 1, "{}", second.log());
    stage.proxy.signal(Signal::CONT);
    drop(holders);
    // It is begun again by the map of now where the proxy has read that first, and otherwise refused: on all shards or on none.
    let is_everywhere = match client.transcript().await.as_str() {
        "C(UPDATE 2) Z(I)" => true,
        told => {
            assert_eq!(told, "E(40001 shard \"shard2\" has joined since the transaction wrote to all shards) Z(I)");
            false
        }
    };
    for is_late in [true, false] {
        for shard in ["shard0", "shard1", "shard2"] {
            succeed(&mut other, &format!("SET shardgate.shard = '{shard}'")).await;
            let names = other.value("SELECT string_agg(DISTINCT name, ',') FROM currencies").await;
            assert_eq!(names == if is_late { "late" } else { "again" }, is_everywhere || !is_late, "{names} on {shard}");
        }
        succeed(&mut client, "UPDATE currencies SET name = 'again'").await;
    }
    stage.assert_no_panic();
}

/// A client that must never notice anything.
struct Bystander {
    stop: tokio_util::sync::CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Bystander {
    fn start(stage: &Stage, sql: String, row: String) -> Self {
        let stop = tokio_util::sync::CancellationToken::new();
        let (address, stopped) = (stage.proxy.address(), stop.clone());
        let task = tokio::spawn(async move {
            let mut client = WireClient::connect(address).await;
            let mut slowest = Duration::ZERO;
            while !stopped.is_cancelled() {
                let asked_at = Instant::now();
                let told = client.ask(&sql).await;
                assert!(told.contains(&row), "{told}");
                slowest = slowest.max(asked_at.elapsed());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(slowest < Duration::from_secs(1), "a statement for another shard took {slowest:?}");
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("the bystander never noticed");
    }
}

const LOOKUP: &[&str] = &[
    "CREATE TABLE tenants (name text PRIMARY KEY, n int)",
    "SELECT shardgate.distribute_table('tenants', 'name', 'lookup')",
    "SELECT shardgate.map_key('tenants', 'known', 'shard1')",
];
