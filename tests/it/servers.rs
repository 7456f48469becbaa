//! The servers that tests and the demo stand on: quick to start, gone with their owner, and back after a kill.

use std::time::Instant;

use shardgate::demo::servers::{Server, ServerError, ServerOptions, StopMode, test_settings};

use crate::support::{Cluster, connect};

#[tokio::test]
async fn one_server_hosts_the_map_and_every_shard() {
    let cluster = Cluster::start(3).await;
    assert_eq!(cluster.map_server().port(), cluster.shard_server(2).port());
    for shard in 0..3 {
        let client = cluster.connect_shard(shard).await;
        let row = client.query_one("SELECT current_database(), current_setting('wal_level')", &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), format!("shard{shard}"));
        assert_eq!(row.get::<_, &str>(1), "logical");
    }
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_rows_while_the_others_never_notice() {
    let mut cluster = Cluster::separate_servers(2).await;
    let bystander = cluster.connect_shard(0).await;
    let victim = cluster.connect_shard(1).await;
    victim.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS id").await.unwrap();

    cluster.shard_server_mut(1).kill().unwrap();
    assert!(victim.batch_execute("SELECT 1").await.is_err());
    bystander.batch_execute("SELECT 1").await.unwrap();

    cluster.shard_server_mut(1).start_again().unwrap();
    let row = cluster.connect_shard(1).await.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1000);
    bystander.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn stop_and_restart_keep_the_port_and_the_data() {
    let mut cluster = Cluster::start(1).await;
    cluster.connect_shard(0).await.batch_execute("CREATE TABLE kept ()").await.unwrap();
    let port = cluster.map_server().port();
    cluster.map_server_mut().restart().unwrap();
    cluster.map_server_mut().stop(StopMode::Immediate).unwrap();
    assert!(tokio_postgres::connect(&cluster.shard_url(0), tokio_postgres::NoTls).await.is_err());
    cluster.map_server_mut().start_again().unwrap();
    assert_eq!(cluster.map_server().port(), port);
    cluster.connect_shard(0).await.batch_execute("SELECT FROM kept").await.unwrap();
}

#[tokio::test]
async fn a_taken_port_is_named_and_not_shared() {
    let cluster = Cluster::start(0).await;
    let dir = tempfile::tempdir().unwrap();
    let port = cluster.map_server().port();
    let options =
        ServerOptions { dir: dir.path().join("second"), port: Some(port), settings: test_settings(), ..Default::default() };
    // The directory made by tempfile lets only its owner in.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    match Server::start(&options) {
        Err(ServerError::PortTaken { port: taken }) => assert_eq!(taken, port),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("two servers on one port"),
    }
}

#[tokio::test]
async fn dropping_a_cluster_ends_its_server_and_removes_its_directory() {
    let cluster = Cluster::start(1).await;
    let (url, dir) = (cluster.shard_url(0), cluster.map_server().dir().to_owned());
    drop(connect(&url).await);
    let before = Instant::now();
    drop(cluster);
    assert!(tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err());
    assert!(!dir.exists());
    assert!(before.elapsed().as_secs() < 10);
}
