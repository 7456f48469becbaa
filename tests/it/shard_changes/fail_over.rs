//! Standbys that are promoted under writers who keep a ledger, while the primary before is dead, comes back, or has never gone away.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use shardgate::demo::servers::Server;

use super::load::Load;
use super::told;
use crate::sessions::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, Standby, WireClient, connect, volume};

/// From the promotion to the next statement that succeeds.
const SERVICE_AGAIN: Duration = Duration::from_secs(5);
/// On each proxy: enough to keep it busy.
const LEDGER_WRITERS: usize = 4;
const MOVED_WITHIN: Duration = Duration::from_secs(60);
const MOVE_LOOKS_WITHIN: Duration = Duration::from_secs(60);

/// All servers, as libpq writes them.
fn url_of(servers: &[&Server], database: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("postgres://postgres@{}/{database}?target_session_attrs=read-write", hosts.join(","))
}

/// Through each proxy, by new sessions.
async fn until_served(proxies: &[SocketAddr], sql: &str, since: Instant) {
    for proxy in proxies {
        loop {
            let told = WireClient::connect(*proxy).await.ask(sql).await;
            if told.ends_with("Z(I)") && !told.contains("E(") {
                break;
            }
            assert!(since.elapsed() < SERVICE_AGAIN, "{told}");
        }
        assert!(since.elapsed() < SERVICE_AGAIN, "it took {:?}", since.elapsed());
    }
}

/// Commits there need no standby: what is written to it by mistake would be acknowledged.
async fn let_it_commit_alone(server: &Server) {
    let client = connect(&server.url("postgres")).await;
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = ''").await.expect("set");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
}

async fn count(server: &Server, database: &str, sql: &str) -> i64 {
    connect(&server.url(database)).await.query_one(sql, &[]).await.expect("a count").get(0)
}

#[tokio::test]
async fn a_shard_fails_over_and_its_former_primary_serves_nobody() {
    // For so long a new password is waited for.
    let settings = vec![("pool.checkout_timeout_ms", "30000".to_owned())];
    let options = ProxyOptions { settings, ..ProxyOptions::default() };
    let mut stage = Stage::on(Cluster::separate_servers(2).await, options.clone()).await;
    let second = Proxy::start(&stage.cluster, options);
    let proxies = [stage.proxy.address(), second.address()];
    let mut admin = stage.client().await;
    let standby = Standby::start(&stage.cluster, 1).await;
    let first_url = url_of(&[stage.cluster.shard_server(1)], "shard1");
    let url = url_of(&[stage.cluster.shard_server(1), standby.server()], "shard1");
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', url => '{url}')")).await;
    assert_eq!(admin.value("SELECT timeline FROM shardgate.shards WHERE name = 'shard1'").await, "1");
    // One ledger over all that happens to the shard: its fail-overs, other hosts and passwords, maintenance, and a new piece of a range.
    let ledger = Load::of_writers(&proxies, 9, LEDGER_WRITERS);

    let _former = the_primary_dies(&mut stage, &proxies, standby).await;
    assert_eq!(admin.value("SELECT timeline FROM shardgate.shards WHERE name = 'shard1'").await, "2");
    let history = "SELECT arguments::text FROM shardgate.history WHERE change = 'note_primary'";
    assert_eq!(admin.value(history).await, r#"{"name": "shard1", "timeline": 2}"#);
    // Its url alone is refused.
    let said = told(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', url => '{first_url}')")).await;
    assert!(
        said.starts_with(
            "22023 | the url of shard \"shard1\" leads to a former primary server | Its timeline is 1, and the shard has been on timeline 2. | \
             Give the url of the server that was promoted, or of all servers"
        ),
        "{said}"
    );
    let _former_too = the_primary_is_alive(&mut stage, &proxies).await;
    the_shard_goes_on(&stage, &proxies).await;
    ledger.until_written(volume(50, 5_000)).await;
    let written = ledger.end(&stage).await;
    assert!(written.acknowledged.len() > volume(2_000, 30_000), "{}", written.acknowledged.len());
    // In builds as they are for use: what is shown is shown under load.
    assert!(written.per_second >= volume(0.0, 500.0), "{:.0} writes a second", written.per_second);
    written.assert_errors_are_named();
    written.assert_errors_are_of(&stage, "shard1").await;
    two_primaries(&stage, &second).await;
    stage.assert_no_panic();
}

/// A standby is started as a primary: of two servers with one history none is used, and the one that is left is.
async fn two_primaries(stage: &Stage, second: &Proxy) {
    let there = stage.key(1, 0);
    let primary = stage.cluster.shard_server(1);
    let mut standby = Standby::start(&stage.cluster, 1).await;
    let mut admin = stage.client().await;
    let url = url_of(&[primary, standby.server()], "shard1");
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', url => '{url}')")).await;
    let_it_commit_alone(primary).await;
    let mut open = stage.client().await;
    succeed(&mut open, &format!("BEGIN; UPDATE accounts SET owner = 'never' WHERE id = {there}")).await;
    standby.start_as_primary().await;
    let update = format!("UPDATE accounts SET owner = owner WHERE id = {there}");
    for proxy in [&stage.proxy, second] {
        let since = Instant::now();
        while !told(&mut WireClient::connect(proxy.address()).await, &update).await.starts_with(
            "57P03 | shard \"shard1\" is not available now | Two servers of the shard are primaries of the same timeline at once. | Stop the one",
        ) {
            assert!(since.elapsed() < SERVICE_AGAIN, "two primaries are not noticed");
        }
        let shown = proxy.admin("/metrics").expect("metrics").1;
        assert!(shown.contains("shardgate_shard_split{shard=\"shard1\"} 1"), "{shown}");
    }
    let said = open.ask("COMMIT").await;
    assert!(said.contains("E(08006 ") || said.contains("E(57P0") || said.contains("E(40001 "), "{said}");
    let (is_well, said) = stage.proxy.check(&[]);
    assert!(
        !is_well && said.contains("shard \"shard1\": 127.0.0.1:") && said.contains("are primaries of the same timeline at once"),
        "{said}"
    );
    no_move_uses_either(stage).await;
    standby.stop_primary();
    until_served(&[stage.proxy.address(), second.address()], &update, Instant::now()).await;
    assert!(stage.proxy.admin("/metrics").expect("metrics").1.contains("shardgate_shard_split{shard=\"shard1\"} 0"));
}

/// Nor does doctor.
async fn no_move_uses_either(stage: &Stage) {
    let mut admin = stage.client().await;
    let partition = "SELECT p.partition_id FROM shardgate.partitions p JOIN shardgate.tables t USING (colocation_group) \
                     WHERE t.table_name = 'accounts' AND p.shard = 'shard1' LIMIT 1";
    let partition = admin.value(partition).await;
    let id = admin.value(&format!("SELECT shardgate.move_partition({partition}, 'shard0')")).await;
    let since = Instant::now();
    let refused = "shard \"shard1\": two servers are primaries of the same timeline at once, ";
    loop {
        let error = admin.value(&format!("SELECT coalesce(max(error), '') FROM shardgate.moves WHERE move_id = {id}")).await;
        if error.starts_with(refused) {
            break;
        }
        assert!(since.elapsed() < MOVE_LOOKS_WITHIN, "the move says: {error}");
    }
    let run = |arguments: &[&str]| {
        let map = stage.cluster.map_url();
        let command = env!("CARGO_BIN_EXE_shard-rebalance");
        std::process::Command::new(command).args(arguments).args(["--map", &map]).output().expect("it runs")
    };
    let doctor = run(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned() + &String::from_utf8_lossy(&doctor.stderr);
    assert!(!doctor.status.success() && said.contains("two servers are primaries of the same timeline at once"), "{said}");
    let aborted = run(&["abort", &id]);
    assert!(aborted.status.success(), "{}", String::from_utf8_lossy(&aborted.stderr));
}

async fn the_primary_dies(stage: &mut Stage, proxies: &[SocketAddr], standby: Standby) -> Server {
    let there = stage.key(1, 0);
    let load = Load::start(proxies, 0);
    load.until_written(200).await;
    stage.cluster.shard_server_mut(1).kill().expect("killed");
    let since = Instant::now();
    let promoted = standby.promote().await;
    until_served(proxies, &format!("UPDATE accounts SET owner = 'second' WHERE id = {there}"), since).await;
    let mut before = stage.cluster.replace_shard_server(1, promoted);
    before.start_again().expect("started again");
    let_it_commit_alone(&before).await;
    let rows = "SELECT count(*) FROM accounts";
    let known = count(&before, "shard1", rows).await;
    load.until_written(200).await;
    // Sessions that are new, of proxies that are new, and those that are old.
    let third = Proxy::start(&stage.cluster, ProxyOptions::default());
    for proxy in proxies.iter().copied().chain([third.address()]) {
        for _ in 0..10 {
            let owner = WireClient::connect(proxy).await.value(&format!("SELECT owner FROM accounts WHERE id = {there}")).await;
            assert_eq!(owner, "second");
        }
    }
    load.end(stage).await.assert_errors_are_named();
    assert_eq!(count(&before, "shard1", rows).await, known, "nothing is written to the former primary");
    // The command line refuses it as the proxies do, although it is the first host of the url.
    let (status, map) = (env!("CARGO_BIN_EXE_shard-rebalance"), stage.cluster.map_url());
    let shown = std::process::Command::new(status).args(["status", "--exact", "--json", "--map", &map]).output().expect("status");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let mut shards = shown["shards"].as_array().expect("shards").iter();
    let counted = shards.find(|shard| shard["name"] == "shard1").and_then(|shard| shard["rows"].as_i64());
    assert!(counted > Some(known), "{known} rows on the former primary: {shown}");
    before
}

/// Nobody has told the proxies, and their connections to the server before do not break.
async fn the_primary_is_alive(stage: &mut Stage, proxies: &[SocketAddr]) -> Server {
    let there = stage.key(1, 0);
    let mut admin = stage.client().await;
    let standby = Standby::start(&stage.cluster, 1).await;
    let url = url_of(&[stage.cluster.shard_server(1), standby.server()], "shard1");
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', url => '{url}')")).await;
    let (mut listener, mut open) = (stage.client().await, stage.client().await);
    succeed(&mut listener, "LISTEN news").await;
    succeed(&mut open, &format!("BEGIN; UPDATE accounts SET owner = 'never' WHERE id = {}", stage.key(1, 1))).await;
    let load = Load::start(proxies, 1);
    load.until_written(200).await;
    let since = Instant::now();
    let promoted = standby.promote().await;
    until_served(proxies, &format!("UPDATE accounts SET owner = 'third' WHERE id = {there} RETURNING 1"), since).await;
    let mut admin = stage.client().await;
    while admin.value("SELECT timeline FROM shardgate.shards WHERE name = 'shard1'").await != "3" {
        assert!(since.elapsed() < SERVICE_AGAIN, "nobody has seen the promotion");
    }
    until_served(proxies, &format!("UPDATE accounts SET owner = 'fourth' WHERE id = {there}"), since).await;
    let before = stage.cluster.replace_shard_server(1, promoted);
    let_it_commit_alone(&before).await;
    // What has begun on the former primary cannot be committed, and who listens there would wait for ever.
    let said = open.ask("COMMIT").await;
    assert!(said.contains("E(08006 ") || said.contains("E(57P0") || said.contains("E(40001 "), "{said}");
    let said = listener.rest().await.iter().map(crate::support::Message::describe).collect::<Vec<_>>().join(" ");
    assert!(said.contains("E(08006 ") || said.contains("E(57P01 "), "{said}");
    load.until_written(200).await;
    for proxy in proxies {
        let mut client = WireClient::connect(*proxy).await;
        assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {there}")).await, "fourth");
    }
    load.end(stage).await.assert_errors_are_named();
    let strangers = "SELECT count(*) FROM accounts WHERE owner = 'never' OR owner = 'fourth'";
    assert_eq!(count(&before, "shard1", strangers).await, 0);
    assert_eq!(count(stage.cluster.shard_server(1), "shard1", "SELECT count(*) FROM accounts WHERE owner = 'never'").await, 0);
    before
}

/// What is planned costs no error: another host in the url, another password twice, maintenance and back, a new piece of a range that is
/// filled there.
async fn the_shard_goes_on(stage: &Stage, proxies: &[SocketAddr]) {
    let server = stage.cluster.shard_server(1);
    let direct = connect(&server.url("shard1")).await;
    direct.batch_execute("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'p0'").await.expect("a role");
    let file: String = direct.query_one("SHOW hba_file", &[]).await.expect("a path").get(0);
    let rules = std::fs::read_to_string(&file).expect("its rules");
    std::fs::write(&file, format!("host all app 127.0.0.1/32 scram-sha-256\n{rules}")).expect("written");
    direct.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");

    let mut admin = stage.client().await;
    let load = Load::start(proxies, 2);
    for password in ["p0", "p1", "p2"] {
        load.until_written(50).await;
        direct.batch_execute(&format!("ALTER ROLE app PASSWORD '{password}'")).await.expect("altered");
        let url = url_of(&[server], "shard1").replace("//postgres@", &format!("//app:{password}@"));
        assert_eq!(told(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', url => '{url}')")).await, "");
    }
    load.until_written(50).await;
    for state in ["maintenance", "online"] {
        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard1', state => '{state}')")).await;
    }
    load.until_written(50).await;
    for statement in [
        "CREATE TABLE orders (day date, id int, PRIMARY KEY (day, id))",
        "SELECT shardgate.distribute_table('orders', 'day', 'range', on_shards => 'shard0,shard1', bounds => '{2020-01-01}')",
        "INSERT INTO orders SELECT date '2019-12-30' + n, n FROM generate_series(1, 10) n",
    ] {
        succeed(&mut admin, statement).await;
    }
    let last = "SELECT p.partition_id FROM shardgate.partitions p JOIN shardgate.tables t USING (colocation_group) \
                WHERE t.table_name = 'orders' AND p.low = '2020-01-01'";
    let last = admin.value(last).await;
    let split = format!("SELECT shardgate.split_partition({last}, '2021-01-01', 'shard0')");
    if let Err(error) = stage.proxy.connect().await.batch_execute(&split).await {
        // On a busy machine the move of the empty piece outlasts the call, and goes on.
        assert_eq!(error.code().map(|code| code.code()), Some("55006"), "{error}");
    }
    let since = Instant::now();
    while admin.value("SELECT count(*) FROM shardgate.moves WHERE state <> 'done'").await != "0" {
        assert!(since.elapsed() < MOVED_WITHIN, "the new piece is not carried to its shard");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    succeed(&mut admin, "INSERT INTO orders SELECT date '2020-12-31' + n, n FROM generate_series(1, 5) n").await;
    assert_eq!(count(server, "shard1", "SELECT count(*) FROM orders").await, 9);
    assert_eq!(admin.value("SELECT count(*) FROM orders").await, "15");
    load.until_written(50).await;
    let written = load.end(stage).await;
    assert!(written.errors.is_empty(), "{:#?}", written.errors);
}

/// The home shard's schema is read by a connection that is kept: it has to follow, too.
#[tokio::test]
async fn the_home_shard_and_the_map_database_fail_over() {
    let cluster = Cluster::separate_servers(2).await;
    let (home, map) = (Standby::start(&cluster, 0).await, Standby::of(cluster.map_server()).await);
    let map_url = url_of(&[cluster.map_server(), map.server()], "map");
    let options = ProxyOptions { settings: vec![("map.url", map_url)], ..ProxyOptions::default() };
    let url = url_of(&[cluster.shard_server(0), home.server()], "shard0");
    let mut stage = Stage::on(cluster, options.clone()).await;
    let second = Proxy::start(&stage.cluster, options);
    let proxies = [stage.proxy.address(), second.address()];
    let mut admin = stage.client().await;
    succeed(&mut admin, &format!("SELECT shardgate.alter_shard('shard0', url => '{url}')")).await;
    let load = Load::start(&proxies, 0);
    load.until_written(100).await;

    // Both are alive.
    let since = Instant::now();
    let promoted = home.promote().await;
    // A write on the server before waits for its standby, which is none any more.
    let write = format!("UPDATE accounts SET owner = 'x' WHERE id = {}", stage.key(0, 0));
    until_served(&proxies, &write, since).await;
    let before = stage.cluster.replace_shard_server(0, promoted);
    let_it_commit_alone(&before).await;
    let mut admin = stage.client().await;
    while admin.value("SELECT timeline FROM shardgate.shards WHERE is_home").await != "2" {
        assert!(since.elapsed() < SERVICE_AGAIN, "nobody has seen the promotion");
    }
    for (proxy, table) in proxies.iter().zip(["third", "fourth"]) {
        let mut client = WireClient::connect(*proxy).await;
        succeed(&mut client, &format!("CREATE TABLE {table} (id int)")).await;
        succeed(&mut client, &format!("INSERT INTO {table} VALUES (1)")).await;
        let made = format!("SELECT count(*) FROM pg_class WHERE relname = '{table}'");
        assert_eq!(count(&before, "shard0", &made).await, 0);
        assert_eq!(count(stage.cluster.shard_server(0), "shard0", &made).await, 1);
    }
    load.until_written(100).await;

    let since = Instant::now();
    let promoted = map.promote().await;
    let former = stage.cluster.replace_map_server(promoted);
    let changed = |name: &str| format!("SELECT count(*) FROM shardgate.shards WHERE region = '{name}'");
    for (number, proxy) in proxies.iter().enumerate() {
        // The same as of a shard: on the server before it would wait.
        until_served(&[*proxy], &format!("SELECT shardgate.alter_shard('shard1', region => 'r{number}')"), since).await;
        assert_eq!(count(stage.cluster.map_server(), "map", &changed(&format!("r{number}"))).await, 1);
    }
    let_it_commit_alone(&former).await;
    for (number, proxy) in proxies.iter().enumerate() {
        let mut client = WireClient::connect(*proxy).await;
        succeed(&mut client, &format!("SELECT shardgate.alter_shard('shard1', region => 's{number}')")).await;
        assert_eq!(client.value("SELECT region FROM shardgate.shards WHERE name = 'shard1'").await, format!("s{number}"));
        assert_eq!(count(&former, "map", &changed(&format!("s{number}"))).await, 0, "nothing is changed in the former map");
    }
    load.until_written(100).await;
    load.end(&stage).await.assert_errors_are_named();
    stage.assert_no_panic();
}
