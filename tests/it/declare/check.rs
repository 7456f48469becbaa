//! `shardgate check`: silent on a cluster as it should be, one finding for each thing that is not.

use std::ffi::OsString;

use shardgate::config::Config;
use shardgate::declare::check::{Finding, findings};

use super::Declarer;

fn config(map_url: &str, users: &[&str], backend_user: &str) -> Config {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = written(&directory, map_url, users, backend_user);
    Config::load_with_environment(Some(&path), Vec::<(OsString, OsString)>::new()).expect("configuration")
}

/// The file's path.
fn written(directory: &tempfile::TempDir, map_url: &str, users: &[&str], backend_user: &str) -> std::path::PathBuf {
    let path = directory.path().join("shardgate.toml");
    let mut text = format!(
        "[listen]\nmax_clients = 100\n[map]\nurl = \"{map_url}\"\n[auth]\nmethod = \"trust\"\nbackend_user = \"{backend_user}\"\n"
    );
    for user in users {
        text.push_str(&format!("[[auth.users]]\nname = \"{user}\"\nadmin = true\n"));
    }
    std::fs::write(&path, text).expect("write the configuration");
    path
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[tokio::test]
async fn a_healthy_cluster_has_no_findings() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY)").await;
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    d.call("reference_table", &["r"]).await.expect("reference");
    assert_eq!(lines(&findings(&config(&d.cluster.map_url(), &["postgres"], "client")).await), "");
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_place() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY, email text); CREATE ROLE stranger").await;
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    d.on_shard(
        0,
        "CREATE UNIQUE INDEX t_email ON t (email); CREATE ROLE careless; ALTER ROLE careless SET standard_conforming_strings = off",
    )
    .await;
    d.on_shard(1, "CREATE PUBLICATION everything FOR ALL TABLES; ALTER TABLE t ADD note text").await;
    let told = lines(&findings(&config(&d.cluster.map_url(), &["postgres", "stranger", "nobody"], "client")).await);
    for expected in [
        "table \"public.t\": Unique index \"t_email\" does not contain the shard key column \"id\". DROP INDEX",
        "shard \"shard1\": publication \"everything\" is for all tables",
        "shard \"shard1\": column \"note\" of table \"public.t\" is missing here and exists there (here: home shard \"shard0\").",
        "shard \"shard1\": index \"t_email\" of table \"public.t\" exists here and is missing there",
        "shard \"shard0\": role \"careless\" has standard_conforming_strings=off",
        "shard \"shard0\": role \"stranger\" is no member of \"shardgate_2pc\"",
        "shard \"shard1\": user \"nobody\" of [[auth.users]] has no role there",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
    d.on_shard(0, "ALTER ROLE careless RESET ALL").await;
}

#[tokio::test]
async fn servers_without_replication_or_prepared_transactions_are_named() {
    use crate::support::Cluster;
    let cluster = Cluster::start_with(2, &[("wal_level", "replica"), ("max_prepared_transactions", "0")]).await;
    let map = super::connect_map(&cluster, true).await;
    let control = shardgate::declare::Control::new(map.clone(), vec![]);
    let d = Declarer { cluster, map, control };
    let configuration = config(&d.cluster.map_url(), &["postgres"], "shard");
    assert!(lines(&findings(&configuration).await).starts_with("map: there is no shard yet."));
    d.add(0).await.expect("add");
    assert_eq!(lines(&findings(&configuration).await), "", "one shard needs neither");
    d.add(1).await.expect("add");
    let told = lines(&findings(&configuration).await);
    assert!(told.contains("wal_level is replica") && told.contains("max_prepared_transactions is 0"), "{told}");
}

/// Registered before such urls were refused.
#[tokio::test]
async fn a_shard_whose_url_sessions_cannot_use_is_named_with_the_reason() {
    let d = Declarer::start(1).await;
    let store = d.map.store();
    let url = format!("{}?hostaddr=127.0.0.1", d.cluster.shard_url(0));
    let shard = shardgate::shardmap::NewShard {
        name: "odd",
        url: &url,
        region: None,
        capacity: 1.0,
        replication_url: None,
        identity: None,
    };
    let planned = shardgate::shardmap::Planned::at(store.epoch().await.expect("the epoch"));
    store.add_shard(planned, "test", &shard).await.expect("register");
    let url = d.cluster.shard_url(0).replace("//postgres@", "//postgres:s3cret@");
    let planned = shardgate::shardmap::Planned::at(store.epoch().await.expect("the epoch"));
    store.add_shard(planned, "test", &shardgate::shardmap::NewShard { name: "open", url: &url, ..shard }).await.expect("register");
    let told = lines(&findings(&config(&d.cluster.map_url(), &["postgres"], "shard")).await);
    let expected = "shard \"odd\": the url of shard \"odd\" is not valid (The URL's parameter \"hostaddr\" is not known";
    assert!(told.contains(expected), "{told}");
    let expected = "warning: shard \"open\": its password stands in the map";
    assert!(told.contains(expected) && !told.contains("s3cret"), "{told}");
    let replication = d.cluster.shard_url(0).replace("//postgres@", "//postgres:h1dden@");
    let planted = format!(
        "SELECT shardgate_map.begin_change('test', 'test', '{{}}');
         UPDATE shardgate_map.shard SET replication_url = '{replication}' WHERE name = 'odd'"
    );
    d.cluster.connect_map().await.batch_execute(&planted).await.expect("planted");
    let told = lines(&findings(&config(&d.cluster.map_url(), &["postgres"], "shard")).await);
    let expected = "warning: shard \"odd\": the password of its replication_url stands in the map";
    assert!(told.contains(expected) && !told.contains("h1dden"), "{told}");
}

/// What nobody would look for in the map: moves, pieces by time, and proxies of different versions.
#[tokio::test]
async fn what_stands_still_in_the_map_is_named() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE e (day date PRIMARY KEY)").await;
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    d.call("distribute_table", &["e", "day", "range"]).await.expect("distribute");
    d.call("time_partitions", &["e", "1 month"]).await.expect("pieces by time");
    let map = d.cluster.connect_map().await;
    let moves = [
        ("1", "failed", "NULL", "'the copy was cut off'", "0 s"),
        ("2", "copying", "NULL", "'shard \"shard1\" does not answer'", "0 s"),
        ("3", "catching_up", "'pause'", "NULL", "0 s"),
        ("4", "preparing", "NULL", "NULL", "2 min"),
        // Its turn comes when one of the others has ended.
        ("5", "planned", "NULL", "NULL", "2 min"),
        ("6", "copying", "NULL", "NULL", "0 s"),
        ("7", "done", "NULL", "'rolled back'", "2 min"),
        ("8", "aborted", "NULL", "'aborted'", "2 min"),
    ];
    for (id, state, asked, error, silent) in moves {
        let driver_seen = if state == "planned" { "NULL".to_owned() } else { format!("clock_timestamp() - interval '{silent}'") };
        let planted = format!(
            "INSERT INTO shardgate_map.move (move_id, group_id, source, target, state, asked, error, driver_seen, started_at)
             OVERRIDING SYSTEM VALUE
             SELECT {id}, min(group_id), 'shard0', 'shard1', '{state}', {asked}, {error}, {driver_seen}, now() - interval '1 hour'
             FROM shardgate_map.colocation_group;
             INSERT INTO shardgate_map.move_partition VALUES ({id}, {id}), ({id}, 1{id})"
        );
        map.batch_execute(&planted).await.expect(&planted);
    }
    map.batch_execute("UPDATE shardgate_map.time_partitions SET error = 'shard \"shard1\" is in maintenance'")
        .await
        .expect("planted");
    let other = "INSERT INTO shardgate_map.proxy (proxy_id, address, last_seen, version) VALUES
                 (1, 'here:1', clock_timestamp() + interval '1 hour', '0.0.9'), (2, 'gone:2', now() - interval '1 hour', '0.0.8')";
    map.batch_execute(other).await.expect("planted");
    let found = findings(&config(&d.cluster.map_url(), &["postgres"], "client")).await;
    let told = lines(&found);
    for expected in [
        "move 1: it has failed, of partitions 1, 11 from \"shard0\" to \"shard1\": the copy was cut off. \"shard-rebalance show 1\" says more; \
         \"shard-rebalance resume 1\" lets it go on",
        "warning: move 2: it waits, of partitions 2, 12 from \"shard0\" to \"shard1\", in state copying: shard \"shard1\" does not answer.",
        "warning: move 3: it is paused, of partitions 3, 13 from \"shard0\" to \"shard1\", in state catching_up. When it is to go on: \
         \"shard-rebalance resume 3\".",
        "move 4: nobody has driven it for 12",
        "table \"public.e\": its next piece by time (1 mon) is not where it should be: shard \"shard1\" is in maintenance. Mend that",
        concat!(
            "warning: map: proxies of different versions run: 127.0.0.1:0 of version ",
            env!("CARGO_PKG_VERSION"),
            ", here:1 of version 0.0.9."
        ),
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
    assert_eq!(found.len(), 6, "{told}");
}

/// As a map leaves them that has forgotten a declaration: no statement looks there.
#[tokio::test]
async fn rows_that_no_statement_sees_are_named() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY); CREATE TABLE h (id int PRIMARY KEY);
                  CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p DEFAULT;
                  CREATE TABLE q (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE q1 PARTITION OF q DEFAULT";
    let d = Declarer::with_schema(2, schema).await;
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    d.call("distribute_table", &["p", "id"]).await.expect("distribute");
    d.call("reference_table", &["r"]).await.expect("reference");
    for shard in 0..2 {
        let fill = ["t", "r", "p"].map(|table| format!("INSERT INTO {table} VALUES (1)")).join(";");
        d.on_shard(shard, &fill).await;
    }
    d.on_shard(0, "INSERT INTO h VALUES (1)").await;
    let configuration = config(&d.cluster.map_url(), &["postgres"], "client");
    assert_eq!(lines(&findings(&configuration).await), "");
    d.on_shard(1, "INSERT INTO h VALUES (2); INSERT INTO q VALUES (2)").await;
    let found = findings(&configuration).await;
    let told = lines(&found);
    for table in ["h", "q1"] {
        let expected = format!(
            "shard \"shard1\": table \"public.{table}\" has rows here, and the map does not know it as a distributed table: no statement sees them. \
             If the map has forgotten a declaration or a rename"
        );
        assert!(told.contains(&expected), "{told}");
    }
    assert_eq!(found.len(), 2, "{told}");
}

/// Of a cluster that runs, whose urls have passwords in them.
#[tokio::test]
async fn a_warning_fails_nothing() {
    let d = Declarer::start(1).await;
    let url = d.cluster.shard_url(0).replace("//postgres@", "//postgres:s3cret@");
    d.call("add_shard", &["home", &url]).await.expect("add");
    let check = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardgate"));
        let output = command.arg("check").args(arguments).output().expect("run");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = written(&directory, &d.cluster.map_url(), &["postgres"], "shard");
    let (code, told) = check(&["--json", "--config", &path.to_string_lossy()]);
    let found: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let found = found["findings"].as_array().expect("findings");
    let levels: Vec<&str> = found.iter().filter_map(|finding| finding["level"].as_str()).collect();
    assert_eq!((levels.as_slice(), code), (["warning"].as_slice(), Some(0)), "{told}");
    assert!(told.contains("password") && !told.contains("s3cret"), "{told}");
}

/// A program that reads the findings finds wrong settings among them.
#[test]
fn settings_that_are_wrong_are_a_finding_in_json() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardgate"));
    command.args(["check", "--json"]).env("SHARDGATE__MAP__URL", "postgres://u:s3cret@h/map?sslmode=on");
    let output = command.output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let finding = told["findings"][0]["finding"].as_str().expect("a finding");
    assert!(finding.contains("map.url") && finding.contains("sslmode is \"on\"") && !finding.contains("s3cret"), "{told}");
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_without_a_password() {
    let told = lines(&findings(&config("postgres://u:s3cret@127.0.0.1:1/map", &["postgres"], "shard")).await);
    assert!(told.starts_with("map: could not connect to the map database"), "{told}");
    assert!(!told.contains("s3cret"));
    let d = Declarer::start(0).await;
    let store = d.map.store();
    let shard = shardgate::shardmap::NewShard {
        name: "lost",
        url: "postgres://u:s3cret@127.0.0.1:1/x",
        region: None,
        capacity: 1.0,
        replication_url: None,
        identity: None,
    };
    let planned = shardgate::shardmap::Planned::at(store.epoch().await.expect("the epoch"));
    store.add_shard(planned, "test", &shard).await.expect("register");
    let told = lines(&findings(&config(&d.cluster.map_url(), &["postgres"], "shard")).await);
    assert!(told.contains("shard \"lost\": could not connect to shard \"lost\""), "{told}");
    assert!(!told.contains("s3cret"));
}
