//! What happens at a limit of the settings, and what a running proxy takes over from new ones.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, connect};

/// A proxy before one shard with a table `t`.
async fn proxy(settings: &[(&'static str, &str)]) -> (Cluster, Proxy) {
    let cluster = Cluster::start(1).await;
    let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let client = proxy.connect().await;
    let add = format!("SELECT shardgate.add_shard('shard0', '{}')", cluster.shard_url(0));
    client.batch_execute(&add).await.expect("add a shard");
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.expect("create a table");
    (cluster, proxy)
}

/// A client of the bare protocol.
struct Raw(TcpStream);

impl Raw {
    async fn log_in(proxy: &Proxy) -> Self {
        let mut raw = Raw(TcpStream::connect(proxy.address()).await.expect("connect"));
        let parameters = b"user\0postgres\0database\0app\0\0";
        let length = u32::try_from(8 + parameters.len()).expect("short");
        raw.0.write_all(&[&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), parameters].concat()).await.expect("write");
        raw.until(b'Z').await;
        raw
    }

    async fn send(&mut self, tag: u8, body: &[u8]) {
        let length = u32::try_from(4 + body.len()).expect("short");
        self.0.write_all(&[&[tag], &length.to_be_bytes()[..], body].concat()).await.expect("write");
    }

    /// A statement up to its end, without Sync.
    async fn read_and_flush(&mut self) {
        self.send(b'P', b"\0SELECT id FROM t\0\0\0").await;
        self.send(b'B', b"\0\0\0\0\0\0\0\0").await;
        self.send(b'E', b"\0\0\0\0\0").await;
        self.send(b'H', b"").await;
        self.until(b'C').await;
    }

    /// The body of the first message with this tag.
    async fn until(&mut self, tag: u8) -> String {
        loop {
            let mut header = [0; 5];
            self.0.read_exact(&mut header).await.expect("a message");
            let [found, length @ ..] = header;
            let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
            self.0.read_exact(&mut body).await.expect("its body");
            if found == tag {
                return String::from_utf8_lossy(&body).into_owned();
            }
        }
    }
}

#[tokio::test]
async fn a_pipeline_that_is_never_ended_gives_its_connection_back_at_the_limit() {
    let (_cluster, proxy) = proxy(&[("cross_shard.idle_in_pipeline_timeout_ms", "300")]).await;
    // Inside a transaction block it may take as long as it likes: this one begins before the other.
    let mut in_block = Raw::log_in(&proxy).await;
    in_block.send(b'Q', b"BEGIN\0").await;
    in_block.until(b'Z').await;
    in_block.read_and_flush().await;
    let mut raw = Raw::log_in(&proxy).await;
    raw.read_and_flush().await;
    let error = raw.until(b'E').await;
    assert!(error.contains("FATAL") && error.contains("25P03"), "{error}");
    in_block.send(b'S', b"").await;
    in_block.until(b'Z').await;
}

#[tokio::test]
async fn one_client_too_many_is_told_so_and_may_come_when_another_has_gone() {
    let cluster = Cluster::start(0).await;
    let settings = vec![("listen.max_clients", "2".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let (first, _second) = (proxy.connect().await, proxy.connect().await);
    let error = proxy_refusal(&proxy).await;
    assert!(error.contains("53300") && error.contains("listen.max_clients"), "{error}");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(10);
    while tokio_postgres::connect(&proxy.conninfo(), tokio_postgres::NoTls).await.is_err() {
        assert!(Instant::now() < deadline, "its place is not given back");
        tokio::task::yield_now().await;
    }
}

async fn proxy_refusal(proxy: &Proxy) -> String {
    let error = tokio_postgres::connect(&proxy.conninfo(), tokio_postgres::NoTls).await.err().expect("refused");
    let database = error.as_db_error().expect("an error of the server");
    format!("{} {}", database.code().code(), database.detail().unwrap_or_default())
}

#[tokio::test]
async fn a_session_waits_for_a_connection_no_longer_than_the_limit() {
    let settings = [("pool.size_per_shard", "2"), ("pool.late_joiner_share", "0.5"), ("pool.checkout_timeout_ms", "200")];
    let (_cluster, proxy) = proxy(&settings).await;
    let (first, second) = (proxy.connect().await, proxy.connect().await);
    first.batch_execute("BEGIN; SELECT id FROM t").await.expect("holds the connection");
    let error = second.batch_execute("SELECT id FROM t").await.expect_err("none is free");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.code().code(), "53300");
    assert!(error.message().contains("within 200 ms"), "{error}");
    first.batch_execute("COMMIT").await.expect("commit");
    second.batch_execute("SELECT id FROM t").await.expect("free again");
}

#[tokio::test]
async fn prepared_statements_and_long_messages_have_limits_of_their_own() {
    let settings = [("cross_shard.prepared_statements_max", "2"), ("cross_shard.statement_bytes_max", "2000")];
    let (_cluster, proxy) = proxy(&settings).await;
    let client = proxy.connect().await;
    let one = client.prepare("SELECT 1").await.expect("the first");
    let _two = client.prepare("SELECT 2").await.expect("the second");
    let error = client.prepare("SELECT 3").await.expect_err("one too many");
    assert_eq!(error.code().expect("a code").code(), "53400");
    drop(one);
    client.batch_execute("SELECT 1").await.expect("the session goes on");
    let long = format!("SELECT '{}'", "x".repeat(3000));
    let error = client.batch_execute(&long).await.expect_err("too long");
    assert_eq!(error.code().expect("a code").code(), "08P01");
    assert!(error.as_db_error().expect("an error of the server").severity() == "FATAL");
}

#[tokio::test]
async fn a_reload_takes_over_users_and_names_what_needs_a_restart() {
    let cluster = Cluster::start(1).await;
    let mut proxy = Proxy::start(&cluster, ProxyOptions::default());
    let client = proxy.connect().await;
    let add = format!("SELECT shardgate.add_shard('shard0', '{}')", cluster.shard_url(0));
    client.batch_execute(&add).await.expect("add a shard");
    let late = connect(&proxy.conninfo_as("late")).await;
    late.batch_execute("SELECT shardgate.declare_function('f')").await.expect_err("not an admin");

    let user = ProxyUser { name: "late".into(), password: None, admin: true };
    let options = ProxyOptions { users: vec![user], toml: "\n[pool]\nsize_per_shard = 7\n".into(), ..ProxyOptions::default() };
    proxy.reload(&cluster, &options);
    wait_for(&proxy, "settings reloaded");
    assert!(proxy.log().contains("changed settings wait for a restart settings=\"pool.size_per_shard\""), "{}", proxy.log());
    // The session that was there before keeps its rights, a new one has the new ones.
    let refused = late.batch_execute("SELECT shardgate.declare_function('f')").await.expect_err("not an admin");
    assert_eq!(refused.code().expect("a code").code(), "42501");
    let again = connect(&proxy.conninfo_as("late")).await;
    let known = again.batch_execute("SELECT shardgate.declare_function('f')").await.expect_err("no such function");
    assert_ne!(known.code().expect("a code").code(), "42501");

    // What is wrong leaves all as it is.
    proxy.reload(&cluster, &ProxyOptions { toml: "\n[pool]\nsize_per_shard = \"many\"\n".into(), ..ProxyOptions::default() });
    wait_for(&proxy, "settings not reloaded");
    connect(&proxy.conninfo()).await.batch_execute("SELECT 1").await.expect("it goes on");
}

fn wait_for(proxy: &Proxy, words: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !proxy.log().contains(words) {
        assert!(Instant::now() < deadline, "{words:?} is not in the log:\n{}", proxy.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}
