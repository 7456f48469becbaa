//! What `/metrics` says, after known things have happened.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Cluster, Proxy, ProxyOptions, psql_output};

/// A proxy before two shards with a sharded table `t` and a lookup table `l`.
async fn proxy() -> (Cluster, Proxy) {
    proxy_with(&[]).await
}

async fn proxy_with(settings: &[(&'static str, &str)]) -> (Cluster, Proxy) {
    let cluster = Cluster::start(2).await;
    let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let client = proxy.connect().await;
    for shard in 0..2 {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        client.batch_execute(&add).await.expect("add a shard");
    }
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE l (k text PRIMARY KEY)")
        .await
        .expect("create the tables");
    client.batch_execute("SELECT shardgate.distribute_table('t', 'id')").await.expect("distribute");
    client.batch_execute("SELECT shardgate.distribute_table('l', 'k', 'lookup')").await.expect("distribute");
    client.batch_execute("SELECT shardgate.map_key('l', 'a', 'shard1')").await.expect("map a key");
    (cluster, proxy)
}

/// The value of a series; 0 when it is not there yet.
fn value(proxy: &Proxy, series: &str) -> f64 {
    let (status, body) = proxy.admin("/metrics").expect("the admin address answers");
    assert_eq!(status, 200);
    let line = body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

/// Each series grows by this much while `act` runs, or soon after: some things are counted when the client has gone.
async fn assert_growth<const N: usize>(proxy: &Proxy, series: [&str; N], expected: [f64; N], act: impl AsyncFnOnce()) {
    let before = series.map(|series| value(proxy, series));
    act().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut grown = series.map(|series| value(proxy, series));
        for (grown, before) in grown.iter_mut().zip(before) {
            *grown -= before;
        }
        if grown == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{series:?} grew by {grown:?}, expected {expected:?}");
        tokio::task::yield_now().await;
    }
}

const ROUTES: [&str; 5] = [
    "shardgate_statements_total{route=\"single_shard\"}",
    "shardgate_statements_total{route=\"scatter\"}",
    "shardgate_statements_total{route=\"gather\"}",
    "shardgate_statements_total{route=\"local\"}",
    "shardgate_statements_total{route=\"refused\"}",
];

#[tokio::test]
async fn statements_are_counted_by_route_in_both_protocols() {
    let (_cluster, proxy) = proxy().await;
    let client = proxy.connect().await;
    assert_growth(&proxy, ROUTES, [1.0, 1.0, 1.0, 1.0, 1.0], async || {
        client.batch_execute("SELECT n FROM t WHERE id = 1").await.expect("one shard");
        client.batch_execute("SELECT id FROM t").await.expect("all shards");
        client.batch_execute("SET work_mem = '5MB'").await.expect("the proxy itself");
        client.batch_execute("SELECT count(*) FROM t AS a, t AS b").await.expect("gathered");
        client.batch_execute("SELECT ctid FROM t AS a").await.expect_err("refused");
    })
    .await;
    let one = client.prepare("SELECT n FROM t WHERE id = $1").await.expect("prepare");
    let all = client.prepare("SELECT id FROM t").await.expect("prepare");
    let joined = client.prepare("SELECT count(*) FROM t AS a, t AS b").await.expect("prepare");
    assert_growth(&proxy, ROUTES, [2.0, 1.0, 1.0, 0.0, 0.0], async || {
        client.query(&one, &[&1]).await.expect("one shard");
        client.query(&one, &[&2]).await.expect("one shard");
        client.query(&all, &[]).await.expect("all shards");
        client.query(&joined, &[]).await.expect("gathered");
    })
    .await;
}

#[tokio::test]
async fn what_clients_wait_for_is_measured_by_route_and_shard() {
    let (_cluster, proxy) = proxy().await;
    let client = proxy.connect().await;
    let series = [
        "shardgate_statement_seconds_count{route=\"single_shard\",shard=\"shard0\"}",
        "shardgate_statement_seconds_count{route=\"single_shard\",shard=\"shard1\"}",
        "shardgate_statement_seconds_count{route=\"scatter\"}",
        "shardgate_statement_seconds_count{route=\"gather\"}",
        "shardgate_statement_seconds_count{route=\"local\"}",
    ];
    client.batch_execute("CREATE TABLE h (a int)").await.expect("a home table");
    assert_growth(&proxy, series, [2.0, 1.0, 1.0, 1.0, 1.0], async || {
        client.batch_execute("SELECT a FROM h").await.expect("home");
        client.batch_execute("SELECT a FROM h").await.expect("home, by the short way");
        client.batch_execute("SELECT k FROM l WHERE k = 'a'").await.expect("by key");
        client.batch_execute("SELECT id FROM t; SELECT a FROM h").await.expect("the widest counts");
        client.batch_execute("SELECT count(*) FROM t AS a, t AS b").await.expect("gathered");
        client.batch_execute("SET work_mem = '5MB'").await.expect("the proxy itself");
    })
    .await;
    let (_, body) = proxy.admin("/metrics").expect("the admin address answers");
    assert!(body.contains("# TYPE shardgate_statement_seconds histogram"), "{body}");
}

#[tokio::test]
async fn errors_are_counted_by_class_whoever_raised_them() {
    let (_cluster, proxy) = proxy().await;
    let client = proxy.connect().await;
    let series = ["22", "23", "42", "0A", "SG"].map(|class| format!("shardgate_statement_errors_total{{class=\"{class}\"}}"));
    let [division, duplicate, name, unsupported, no_shard] = series.each_ref().map(String::as_str);
    assert_growth(&proxy, [division, duplicate, name, unsupported, no_shard], [1.0, 2.0, 1.0, 1.0, 1.0], async || {
        client.batch_execute("INSERT INTO t VALUES (1, 1)").await.expect("insert");
        client.batch_execute("INSERT INTO t VALUES (1, 1)").await.expect_err("a shard's, simple");
        client.execute("INSERT INTO t VALUES ($1, 1)", &[&1]).await.expect_err("a shard's, extended");
        client.batch_execute("SELECT id, 1 / (n - 1) FROM t").await.expect_err("a shard's, among several");
        client.batch_execute("SELECT nothing FROM t WHERE id = 1").await.expect_err("a name");
        client.batch_execute("INSERT INTO l VALUES ('unmapped')").await.expect_err("the proxy's");
        client.batch_execute("PREPARE TRANSACTION 'x'").await.expect_err("the proxy's");
    })
    .await;
}

#[tokio::test]
async fn transaction_blocks_are_counted_by_their_end() {
    let (_cluster, proxy) = proxy().await;
    let series = ["shardgate_transactions_total{outcome=\"commit\"}", "shardgate_transactions_total{outcome=\"rollback\"}"];
    let client = proxy.connect().await;
    assert_growth(&proxy, series, [1.0, 2.0], async || {
        client.batch_execute("SELECT n FROM t WHERE id = 1").await.expect("outside of a block");
        client.batch_execute("BEGIN; INSERT INTO t VALUES (2, 2); COMMIT").await.expect("commit");
        client.batch_execute("BEGIN; INSERT INTO t VALUES (3, 3); ROLLBACK").await.expect("rollback");
        client.batch_execute("BEGIN").await.expect("begin");
        client.batch_execute("SELECT 1 / 0").await.expect_err("division by zero");
        // Of a failed one: a rollback.
        client.batch_execute("COMMIT").await.expect("commit");
    })
    .await;
}

#[tokio::test]
async fn connections_logins_and_cancels_are_counted_by_what_became_of_them() {
    let (_cluster, proxy) = proxy_with(&[("listen.login_timeout_ms", "300")]).await;
    let outcome = |outcome: &str| format!("shardgate_client_connections_total{{outcome=\"{outcome}\"}}");
    let names = ["login", "refused", "closed", "timeout", "cancel"].map(outcome);
    let [login, refused, closed, timeout, cancel] = names.each_ref().map(String::as_str);
    let unknown = "shardgate_cancel_requests_total{outcome=\"unknown\"}";
    let logins = "shardgate_login_seconds_count";
    assert_growth(&proxy, [login, refused, closed, timeout, cancel, unknown, logins], [1.0; 7], async || {
        proxy.connect().await;
        let wrong = psql_output(&format!("host=127.0.0.1 port={} user=postgres dbname=wrong", proxy.port()), &["-c", "SELECT 1"]);
        assert!(!wrong.status.success());
        send(&proxy, b"GET / HTTP/1.1\r\n\r\n");
        // Nothing at all, until the deadline.
        send(&proxy, b"");
        send(&proxy, &[0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2]);
    })
    .await;
}

/// Sends these bytes on a connection of its own and waits for its end.
fn send(proxy: &Proxy, bytes: &[u8]) {
    let mut stream = TcpStream::connect(proxy.address()).expect("connect");
    stream.write_all(bytes).expect("write");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    let mut answer = Vec::new();
    // Closed or reset: either is an end.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

#[tokio::test]
async fn waits_for_connections_and_connects_are_counted_by_shard() {
    let (_cluster, proxy) = proxy_with(&[("pool.size_per_shard", "2"), ("pool.late_joiner_share", "0.5")]).await;
    // One connection to each shard is for late joiners: the second transaction waits for the first.
    let (first, second) = (proxy.connect().await, proxy.connect().await);
    let shard = shard_of_one(&proxy);
    let waits = format!("shardgate_pool_wait_seconds_count{{shard=\"{shard}\"}}");
    let waiting = format!("shardgate_pool_waiting_sessions{{shard=\"{shard}\"}}");
    assert_growth(&proxy, [waits.as_str()], [1.0], async || {
        first.batch_execute("BEGIN; SELECT n FROM t WHERE id = 1").await.expect("holds a connection");
        let wait = tokio::spawn(async move { second.batch_execute("SELECT n FROM t WHERE id = 1").await });
        let deadline = Instant::now() + Duration::from_secs(10);
        while value(&proxy, &waiting) < 1.0 {
            assert!(Instant::now() < deadline, "nobody waits");
            tokio::task::yield_now().await;
        }
        first.batch_execute("COMMIT").await.expect("commit");
        wait.await.expect("joined").expect("gets the connection");
    })
    .await;
    assert!(value(&proxy, &format!("shardgate_shard_connects_total{{shard=\"{shard}\",outcome=\"ok\"}}")) >= 1.0);
}

/// Where key 1 of `t` lives.
fn shard_of_one(proxy: &Proxy) -> String {
    let row = proxy.psql("SELECT * FROM shardgate.locate('t', '1')");
    row.split('|').nth(1).expect("partition, shard, epoch").to_owned()
}

#[tokio::test]
async fn the_map_s_loads_and_lookups_are_counted() {
    let (_cluster, proxy) = proxy().await;
    let client = proxy.connect().await;
    let series = ["shardgate_lookup_queries_total", "shardgate_lookup_keys_total"];
    client.batch_execute("SELECT 1 FROM l WHERE k = 'a'").await.expect("a mapped key");
    assert_growth(&proxy, series, [0.0, 0.0], async || {
        client.batch_execute("SELECT 1 FROM l WHERE k = 'a'").await.expect("a key that is in memory");
    })
    .await;
    assert_growth(&proxy, series, [1.0, 1.0], async || {
        client.batch_execute("SELECT 1 FROM l WHERE k = 'b'").await.expect("no row has a key without a mapping");
    })
    .await;
    assert_eq!(value(&proxy, "shardgate_map_loads_total{kind=\"full\"}"), 1.0);
    assert!(value(&proxy, "shardgate_map_loads_total{kind=\"changes\"}") >= 1.0);
    assert_eq!(value(&proxy, "shardgate_map_reachable"), 1.0);
}

/// What others do in between, such as the slow look at the home shard, may add a reading by changes.
#[tokio::test]
async fn a_schema_change_reads_once_what_has_changed() {
    let (_cluster, proxy) = proxy().await;
    let client = proxy.connect().await;
    client.batch_execute("CREATE TABLE first (id int PRIMARY KEY)").await.expect("create");
    let kinds = ["shardgate_schema_readings_total{kind=\"full\"}", "shardgate_schema_readings_total{kind=\"changes\"}"];
    let (before, begun) = (kinds.map(|kind| value(&proxy, kind)), Instant::now());
    let changes = [
        "CREATE TABLE made (id int PRIMARY KEY, n int)",
        "CREATE INDEX ON made (n)",
        "ALTER TABLE made ADD COLUMN x text DEFAULT 'a' NOT NULL",
        "CREATE VIEW seen AS SELECT id, n FROM made",
        "ALTER TABLE made RENAME COLUMN n TO number",
        "CREATE FUNCTION three() RETURNS int LANGUAGE sql AS 'SELECT 3'",
        "DROP VIEW seen",
        "DROP TABLE made",
    ];
    for change in changes {
        client.batch_execute(change).await.expect(change);
    }
    let [full, by_changes] = [0, 1].map(|kind| value(&proxy, kinds[kind]) - before[kind]);
    // The reader's connection is renewed once a minute, and looks by itself every ten seconds.
    let seconds = begun.elapsed().as_secs_f64();
    assert!(full <= 1.0 + seconds / 60.0, "{full} in {seconds} s");
    assert!(full + by_changes >= changes.len() as f64, "{by_changes}");
    assert!(by_changes <= changes.len() as f64 + 1.0 + seconds / 5.0, "{by_changes} in {seconds} s");
}
