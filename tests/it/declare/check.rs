//! `shardgate check`: silent on a cluster as it should be, one finding for each thing that is not.

use std::ffi::OsString;

use shardgate::config::Config;
use shardgate::declare::check::{Finding, findings};

use super::Declarer;

fn config(map_url: &str, users: &[&str], backend_user: &str) -> Config {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("shardgate.toml");
    let mut text = format!(
        "[listen]\nmax_clients = 100\n[map]\nurl = \"{map_url}\"\n[auth]\nmethod = \"trust\"\nbackend_user = \"{backend_user}\"\n"
    );
    for user in users {
        text.push_str(&format!("[[auth.users]]\nname = \"{user}\"\nadmin = true\n"));
    }
    std::fs::write(&path, text).expect("write the configuration");
    Config::load_with_environment(Some(&path), Vec::<(OsString, OsString)>::new()).expect("configuration")
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
}

/// Of a cluster that runs, whose urls have passwords in them.
#[tokio::test]
async fn a_warning_fails_nothing() {
    let d = Declarer::start(1).await;
    let url = d.cluster.shard_url(0).replace("//postgres@", "//postgres:s3cret@");
    d.call("add_shard", &["home", &url]).await.expect("add");
    let check = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardgate"));
        command.arg("check").args(arguments).env("SHARDGATE__MAP__URL", d.cluster.map_url());
        command.env("SHARDGATE__AUTH__METHOD", "trust").env("SHARDGATE__AUTH__BACKEND_USER", "shard");
        let output = command.output().expect("run");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, told) = check(&["--json"]);
    let found: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let found = found["findings"].as_array().expect("findings");
    let levels: Vec<&str> = found.iter().filter_map(|finding| finding["level"].as_str()).collect();
    let of_password = |finding: &&serde_json::Value| finding["finding"].as_str().is_some_and(|text| text.contains("password"));
    assert_eq!(found.iter().filter(of_password).filter_map(|finding| finding["level"].as_str()).collect::<Vec<_>>(), ["warning"]);
    assert_eq!(code, Some(i32::from(levels.contains(&"error"))), "{told}");
    assert!(!told.contains("s3cret"));
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
