//! `shard-rebalance`: what it prints, as JSON and as text, and how it ends. The command itself, against real servers.

use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;
use shardgate::declare::{self, Argument, Call, Caller, Control};
use shardgate::shardmap::{MapOptions, ProxyId, ShardMap};

use crate::support::Cluster;

/// A cluster whose shards are added, without a proxy: the command does not need one.
struct Operated {
    cluster: Cluster,
    map: Arc<ShardMap>,
    control: Control,
}

impl Operated {
    async fn start(cluster: Cluster) -> Self {
        let map = ShardMap::connect(MapOptions {
            url: cluster.map_url(),
            migrate: true,
            lookup_cache_entries: 1000,
            poll_interval: std::time::Duration::from_secs(5),
            proxy_id: ProxyId::random(),
            address: "127.0.0.1:0".to_owned(),
        })
        .await
        .expect("connect to the map");
        let control = Control::new(map.clone(), Vec::new());
        let operated = Self { cluster, map, control };
        for shard in 0..operated.cluster.shard_count() {
            operated.call("add_shard", &[&format!("shard{shard}"), &operated.cluster.shard_url(shard)]).await;
        }
        operated
    }

    async fn call(&self, function: &str, arguments: &[&str]) {
        let caller = Caller {
            user: "postgres".to_owned(),
            is_admin: true,
            search_path: vec!["$user".to_owned(), "public".to_owned()],
            catalog: std::sync::Arc::default(),
            stop: Default::default(),
        };
        let arguments = arguments.iter().map(|argument| (None, Argument::Text((*argument).to_owned()))).collect();
        declare::call(&self.control, &caller, &Call { function: function.to_owned(), arguments }).await.expect(function);
    }

    async fn on_shard(&self, shard: usize, sql: &str) {
        self.cluster.connect_shard(shard).await.batch_execute(sql).await.expect(sql);
    }

    async fn on_every_shard(&self, sql: &str) {
        for shard in 0..self.cluster.shard_count() {
            self.on_shard(shard, sql).await;
        }
    }

    /// A table of 300 rows on the first shard and none on the others.
    async fn with_table(self) -> Self {
        self.on_every_shard("CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        self.call("distribute_table", &["t", "id"]).await;
        self.on_shard(0, "INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 300) g; ANALYZE t").await;
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        rebalance(&[arguments, &["--map", &self.cluster.map_url()]].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn rebalance(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shard-rebalance"))
        .args(arguments)
        .env_remove("SHARDMAP_URL")
        .output()
        .expect("run shard-rebalance")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn status_shows_what_each_shard_holds_and_how_uneven_that_is() {
    let operated = Operated::start(Cluster::start(2).await).await.with_table().await;
    let status = operated.json(&["status"]);
    assert_eq!(status["rows_are_exact"], false);
    let shards = status["shards"].as_array().expect("shards");
    let named: Vec<_> = shards.iter().map(|shard| (&shard["name"], &shard["is_home"], &shard["is_reachable"])).collect();
    assert_eq!(named, [(&"shard0".into(), &true.into(), &true.into()), (&"shard1".into(), &false.into(), &true.into())]);
    assert_eq!((&shards[0]["rows"], &shards[1]["rows"]), (&300.into(), &0.into()));
    assert_eq!((&shards[0]["partitions"], &shards[1]["partitions"]), (&32.into(), &32.into()));
    assert!(shards[0]["bytes"].as_u64() > shards[1]["bytes"].as_u64());
    // All rows on one of two shards of equal capacity: twice its fair share.
    assert_eq!((&status["imbalance"]["rows"], &status["imbalance"]["partitions"]), (&1.0.into(), &0.0.into()));
    assert_eq!((&status["moves"], &status["in_doubt_transactions"]), (&Value::Array(vec![]), &Value::Array(vec![])));

    let output = operated.run(&["status"]);
    let shown = text(&output.stdout);
    for part in ["shard0", "rows ~", "estimated", "rows +100.0 %", "Running moves: none", "In-doubt transactions: none"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[tokio::test]
async fn exact_counts_are_those_of_now_and_estimates_are_marked() {
    let operated = Operated::start(Cluster::start(1).await).await.with_table().await;
    operated.on_shard(0, "DELETE FROM t WHERE id > 100").await;
    let exact = operated.json(&["status", "--exact"]);
    assert_eq!((&exact["rows_are_exact"], &exact["shards"][0]["rows"]), (&true.into(), &100.into()));
    // The density of the last ANALYZE, since the table's pages are as many as then.
    let estimated = operated.json(&["status"]);
    assert_eq!((&estimated["rows_are_exact"], &estimated["shards"][0]["rows"]), (&false.into(), &300.into()));
}

#[tokio::test]
async fn partitions_are_listed_when_asked_for_with_an_even_share() {
    let operated = Operated::start(Cluster::start(2).await).await.with_table().await;
    assert_eq!(operated.json(&["status"]).get("partitions"), None);
    let status = operated.json(&["status", "--partitions"]);
    let partitions = status["partitions"].as_array().expect("partitions");
    assert_eq!(partitions.len(), 64);
    for partition in partitions {
        let expected = if partition["shard"] == "shard0" { 300 / 32 } else { 0 };
        assert_eq!(partition["rows"], expected, "{partition}");
    }
}

#[tokio::test]
async fn partitions_are_counted_exactly_under_every_strategy_and_misplaced_rows_are_found() {
    let operated = Operated::start(Cluster::start(2).await).await;
    operated
        .on_every_shard(
            "CREATE TABLE h (a int, b text, PRIMARY KEY (a, b)); CREATE TABLE r (at date PRIMARY KEY);
             CREATE TABLE l (isbn text PRIMARY KEY)",
        )
        .await;
    operated.call("distribute_table", &["h", "a, b", "hash"]).await;
    operated.call("distribute_table", &["r", "at", "range"]).await;
    operated.call("distribute_table", &["l", "right(isbn, 1)", "lookup"]).await;
    operated.call("map_key", &["l", "0", "shard0"]).await;
    operated.call("map_key", &["l", "1", "shard1"]).await;
    let ranges = operated.json(&["status", "--partitions"]);
    let of_range = |status: &Value| -> Vec<Value> {
        let partitions = status["partitions"].as_array().expect("partitions").iter();
        partitions.filter(|partition| partition["colocation_group"] == 2).cloned().collect()
    };
    let first = of_range(&ranges)[0]["partition_id"].to_string();
    operated.call("split_partition", &[&first, "2026-03-01"]).await;
    // All rows on one shard: those of the other's partitions are misplaced.
    operated
        .on_shard(
            0,
            "INSERT INTO h SELECT g, 'x' || g FROM generate_series(1, 100) g;
             INSERT INTO r SELECT date '2026-02-27' + g FROM generate_series(0, 9) g;
             INSERT INTO l SELECT g || '0' FROM generate_series(1, 5) g; INSERT INTO l VALUES ('1'), ('21'), ('9')",
        )
        .await;
    let status = operated.json(&["status", "--partitions", "--exact"]);
    assert_eq!(status["shards"][0]["rows"], 118);
    let rows: Vec<_> = of_range(&status).iter().map(|partition| partition["rows"].clone()).collect();
    let home = of_range(&status)[0]["shard"].clone();
    match home == "shard0" {
        // Two days of February, eight of March.
        true => assert_eq!(rows, [2, 8]),
        false => assert_eq!(rows, [0, 0]),
    }
    let partitions = status["partitions"].as_array().expect("partitions");
    let sum = |group: i32, shard: &str| -> u64 {
        let of_group = partitions.iter().filter(|partition| partition["colocation_group"] == group && partition["shard"] == shard);
        of_group.map(|partition| partition["rows"].as_u64().expect("counted")).sum()
    };
    assert_eq!((sum(3, "shard0"), sum(3, "shard1")), (5, 0));
    let hashed = sum(1, "shard0");
    assert!((20..80).contains(&hashed), "{hashed} of 100 rows on one of two shards");
    let misplaced = (100 - hashed) + if home == "shard0" { 0 } else { 10 } + 3;
    assert_eq!(status["shards"][0]["misplaced_rows"], misplaced);
    assert_eq!(status["shards"][1]["misplaced_rows"], 0);
    // What the shard itself says of the first hash partition's range.
    let by_shard: i64 = operated
        .cluster
        .connect_shard(0)
        .await
        .query_one(
            "SELECT count(*) FROM h WHERE hashtextextended(b, hashint8extended(a, 0)) < -9223372036854775808 + 288230376151711744",
            &[],
        )
        .await
        .expect("count")
        .get(0);
    assert_eq!(partitions[0]["rows"].as_i64(), Some(if partitions[0]["shard"] == "shard0" { by_shard } else { 0 }));
}

#[tokio::test]
async fn a_shard_that_is_away_is_a_row_and_what_needs_it_is_unknown() {
    let mut operated = Operated::start(Cluster::separate_servers(2).await).await.with_table().await;
    operated.cluster.shard_server_mut(1).kill().expect("kill a shard");
    let status = operated.json(&["status", "--deadline", "5s"]);
    let lost = &status["shards"][1];
    assert_eq!((&lost["state"], &lost["is_reachable"], &lost["rows"]), (&"online".into(), &false.into(), &Value::Null));
    assert!(lost["error"].as_str().is_some_and(|error| error.contains("could not connect to shard \"shard1\"")), "{lost}");
    assert_eq!(status["shards"][0]["rows"], 300);
    assert_eq!((&status["imbalance"]["rows"], &status["imbalance"]["partitions"]), (&Value::Null, &0.0.into()));

    let output = operated.run(&["status"]);
    let shown = text(&output.stdout);
    assert!(output.status.success());
    assert!(shown.contains("unreachable") && shown.contains("rows ?"), "{shown}");
}

#[tokio::test]
async fn a_shard_that_does_not_answer_is_given_up_at_the_deadline() {
    let operated = Operated::start(Cluster::start(1).await).await.with_table().await;
    // Accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let url = format!("postgres://u:s3cret@127.0.0.1:{}/x", silent.local_addr().expect("address").port());
    let shard = shardgate::shardmap::NewShard {
        name: "silent",
        url: &url,
        region: None,
        capacity: 1.0,
        replication_url: None,
        identity: None,
    };
    let store = operated.map.store();
    let planned = shardgate::shardmap::Planned::at(store.epoch().await.expect("the epoch"));
    store.add_shard(planned, "test", &shard).await.expect("register");
    let status = operated.json(&["status", "--deadline", "500ms"]);
    let silent = &status["shards"][1];
    assert_eq!((&silent["name"], &silent["is_reachable"]), (&"silent".into(), &false.into()));
    assert_eq!(silent["error"], "no answer from shard \"silent\" within 500 ms");
    // It is being prepared and has no share yet, so that the others' imbalance is known.
    assert_eq!((&silent["state"], &status["imbalance"]["rows"]), (&"preparing".into(), &0.0.into()));
    assert!(!text(&operated.run(&["status", "--deadline", "500ms"]).stdout).contains("s3cret"));
}

#[tokio::test]
async fn watching_prints_lines_where_there_is_no_terminal() {
    use std::io::{BufRead, BufReader};
    let operated = Operated::start(Cluster::start(1).await).await.with_table().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_shard-rebalance"))
        .args(["status", "--watch", "--interval", "10ms"])
        .env("SHARDMAP_URL", operated.cluster.map_url())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("run shard-rebalance");
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().expect("output")).lines().take(3).collect::<Result<_, _>>().expect("lines");
    for line in &lines {
        assert!(line.contains(" shards=1 unreachable=0 partitions=64 rows_estimated=300 "), "{line}");
    }
    // Its reader has gone by now, which is no failure.
    assert!(child.wait().expect("its end").success());
}

#[tokio::test]
async fn history_tells_every_change_with_who_and_when() {
    let operated = Operated::start(Cluster::start(1).await).await.with_table().await;
    let history = operated.json(&["history"]);
    let changes: Vec<_> = history.as_array().expect("entries").iter().map(|entry| (&entry["change"], &entry["actor"])).collect();
    assert_eq!(changes.first(), Some(&(&"add_shard".into(), &"postgres".into())), "{history}");
    assert_eq!(changes.last(), Some(&(&"distribute_table".into(), &"postgres".into())), "{history}");
    let shown = text(&operated.run(&["history", "--last", "1"]).stdout);
    assert!(shown.lines().count() == 2 && shown.contains("distribute_table"), "{shown}");
    // Never the password of a shard.
    assert!(!history.to_string().contains("postgres://"));
}

#[tokio::test]
async fn a_map_database_without_a_map_says_how_to_make_one() {
    let cluster = Cluster::start(0).await;
    for verb in ["status", "history"] {
        let output = rebalance(&[verb, "--map", &cluster.map_url()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("\"shardgate init\" makes one"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_map_that_cannot_be_reached_is_a_failure_without_its_password() {
    for verb in ["status", "history"] {
        let output = rebalance(&[verb, "--map", "postgres://u:s3cret@127.0.0.1:1/map"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), "shard-rebalance: could not connect to the map database: connection refused\n");
        assert_eq!(rebalance(&[verb, "--map", "mysql://u:s3cret@host/map"]).status.code(), Some(1));
    }
}

#[tokio::test]
async fn what_every_verb_takes_stands_before_it_or_after_it() {
    let operated = Operated::start(Cluster::start(1).await).await;
    let map = operated.cluster.map_url();
    let orders: [&[&str]; 3] = [
        &["--map", &map, "--json", "--deadline", "20s", "history"],
        &["--map", &map, "history", "--json", "--deadline", "20s"],
        &["history", "--map", &map, "--json", "--deadline", "20s"],
    ];
    let [first, second, third] = orders.map(|arguments| {
        let output = rebalance(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    });
    assert!(first.contains("add_shard") && first == second && second == third, "{first}{second}{third}");
}

#[test]
fn wrong_usage_ends_with_2() {
    let wrong: [&[&str]; 7] = [
        &[],
        &["status"],
        &["no-such-verb"],
        &["status", "--map", "postgres://u@h/d", "--interval", "3"],
        &["status", "--map", "postgres://u@h/d", "--interval", "3s"],
        &["status", "--map", "postgres://u@h/d", "--deadline", "soon"],
        &["history", "--map", "postgres://u@h/d", "--last", "some"],
    ];
    for arguments in wrong {
        assert_eq!(rebalance(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let without_map = text(&rebalance(&["status"]).stderr);
    assert!(without_map.contains("--map URL") && without_map.contains("SHARDMAP_URL"), "{without_map}");
    assert_eq!(rebalance(&["--help"]).status.code(), Some(0));
}
