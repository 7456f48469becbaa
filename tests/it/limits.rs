//! What happens at a limit of the settings, and what a running proxy takes over from new ones.

use std::time::{Duration, Instant};

use shardgate::net::descriptors::STANDING_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, WireClient, connect};

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
    connect_when_free(&proxy).await;
}

/// A cancel request and a refusal need a connection beyond the limit; strangers who say nothing may not have them all.
#[tokio::test]
async fn connections_beyond_the_limit_that_say_nothing_are_bounded() {
    let cluster = Cluster::start(0).await;
    let settings = vec![("listen.max_clients", "1".to_owned()), ("listen.login_timeout_ms", "60000".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..ProxyOptions::default() });
    let first = connect_when_free(&proxy).await;
    let mut silent = Vec::new();
    for _ in 0..STANDING_MAX {
        silent.push(TcpStream::connect(proxy.address()).await.expect("connect"));
    }
    // Which of them comes last is the kernel's choice.
    silent.push(TcpStream::connect(proxy.address()).await.expect("connect"));
    let ends = silent.iter_mut().map(|stream| Box::pin(async { stream.read(&mut [0]).await.map_or(0, |count| count) }));
    let ended = tokio::time::timeout(Duration::from_secs(10), futures::future::select_all(ends)).await;
    assert_eq!(ended.expect("one of them is closed").0, 0);
    // They take nobody's place.
    drop(first);
    connect_when_free(&proxy).await;
}

/// Somebody else's place may be free in a moment.
async fn connect_when_free(proxy: &Proxy) -> tokio_postgres::Client {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Ok((client, connection)) = tokio_postgres::connect(&proxy.conninfo(), tokio_postgres::NoTls).await {
            tokio::spawn(connection);
            return client;
        }
        assert!(Instant::now() < deadline, "no place for a client");
        tokio::task::yield_now().await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_limit_of_open_files_is_raised_to_what_is_allowed() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let lower = Rlimit { current: limit.current.map(|current| current - 1), maximum: limit.maximum };
    setrlimit(Resource::Nofile, lower).expect("lowered for what this test starts");
    let cluster = Cluster::start(0).await;
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.pid())).expect("its limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let (soft, hard) = (files.split_whitespace().nth(3), files.split_whitespace().nth(4));
    assert_eq!(soft, hard, "{files}");
}

/// As PostgreSQL words it, with what it lists.
#[tokio::test]
async fn a_startup_parameter_that_the_shard_refuses_is_refused_in_its_words() {
    let (cluster, proxy) = proxy(&[]).await;
    let server = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, cluster.shard_server(0).port()));
    let mut told = Vec::new();
    for (address, database) in [(server, "shard0"), (proxy.address(), "app")] {
        let parameters = [("user", "postgres"), ("database", database), ("bytea_output", "nonsense")];
        let refusal = WireClient::try_connect(address, &parameters).await.err().expect("refused");
        told.push([b'S', b'C', b'M', b'D', b'H'].map(|field| refusal.field(field)));
    }
    assert!(told[0][4].contains("Available values"), "{told:?}");
    assert_eq!(told[0], told[1]);
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
