//! `shardgate demo`: the first thing that a new user runs.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A demo in a directory of its own. Ended when dropped.
struct Demo {
    directory: TempDir,
    port: u16,
}

impl Demo {
    /// The ports may be taken between the look and the start.
    fn start() -> Self {
        let mut told = String::new();
        for _ in 0..5 {
            let directory = TempDir::new().expect("a directory");
            // The servers run as another user.
            std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
            let demo = Self { directory, port: two_free_ports() };
            let started =
                run(&["demo", "--detach", "--port", &demo.port.to_string(), "--dir", demo.data().to_str().expect("a path")]);
            if started.status.success() {
                return demo;
            }
            told = String::from_utf8_lossy(&started.stderr).into_owned();
        }
        panic!("the demo does not start: {told}");
    }

    fn stop_and_start(&self) {
        stop(&self.data());
        let started = run(&["demo", "--detach", "--port", &self.port.to_string(), "--dir", self.data().to_str().expect("a path")]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("demo")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        stop(&self.data());
    }
}

fn stop(data: &Path) -> Output {
    run(&["demo", "stop", "--dir", data.to_str().expect("a path")])
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shardgate")).args(arguments).output().expect("run the program")
}

fn two_free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its address").port();
        if port < u16::MAX && is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}

#[tokio::test]
async fn the_demo_is_a_cluster_to_look_at() {
    let demo = Demo::start();
    let conninfo = format!("host=127.0.0.1 port={} user=postgres dbname=app", demo.port);
    let (client, connection) = tokio_postgres::connect(&conninfo, NoTls).await.expect("connect");
    tokio::spawn(connection);
    let title: &str = "SELECT title FROM books WHERE isbn = '0200002090'";
    assert_eq!(client.query(title, &[]).await.expect(title).len(), 1);
    let counted = client.query_one("SELECT count(*) FROM books", &[]).await.expect("the books");
    assert!(counted.get::<_, i64>(0) > 1000);
    let shards = client.query("SELECT name FROM shardgate.shards", &[]).await.expect("the shards");
    assert_eq!(shards.len(), 3);
    // What has moved stays there when it is started again.
    let located = "SELECT partition_id, shard FROM shardgate.locate('books', '0200002090')";
    let before = client.query_one(located, &[]).await.expect(located);
    let (partition, shard) = (before.get::<_, i32>(0), before.get::<_, String>(1));
    assert_eq!(shard, "bookdbshard0");
    client.execute(&format!("SELECT shardgate.move_partition({partition}, 'bookdbshard2')"), &[]).await.expect("a move");
    await_shard(&client, located, "bookdbshard2").await;
    demo.stop_and_start();
    let (client, connection) = tokio_postgres::connect(&conninfo, NoTls).await.expect("connect again");
    tokio::spawn(connection);
    await_shard(&client, located, "bookdbshard2").await;
    assert_eq!(client.query(title, &[]).await.expect(title).len(), 1);
    let stopped = stop(&demo.data());
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    assert!(tokio_postgres::connect(&conninfo, NoTls).await.is_err(), "it has ended");
}

async fn await_shard(client: &Client, located: &str, shard: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let now: String = client.query_one(located, &[]).await.expect(located).get(1);
        if now == shard {
            return;
        }
        assert!(Instant::now() < deadline, "it is on {now}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
