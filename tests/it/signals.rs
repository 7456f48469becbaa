//! What the process does with signals at awkward moments: while it starts, while it drains, with settings that are half wrong.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Cluster, Proxy, ProxyOptions};

/// Killed when dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Started {
    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(status) = self.0.try_wait().expect("its state") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn sigterm_ends_a_proxy_that_still_waits_for_its_map() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardgate"));
    let settings = [
        ("SHARDGATE__MAP__URL", "postgres://u@127.0.0.1:1/map"),
        ("SHARDGATE__AUTH__METHOD", "trust"),
        ("SHARDGATE__LISTEN__ADDRESS", "127.0.0.1:0"),
        ("SHARDGATE__ADMIN__ADDRESS", "127.0.0.1:0"),
    ];
    let child = command.arg("serve").envs(settings).stderr(Stdio::piped()).spawn().expect("started");
    let mut proxy = Started(child);
    let mut lines = BufReader::new(proxy.0.stderr.take().expect("its log")).lines();
    let is_waiting = lines.any(|line| line.expect("a line").contains("waiting for the map database"));
    assert!(is_waiting);
    kill_process(Pid::from_child(&proxy.0), Signal::TERM).expect("signalled");
    assert!(proxy.end().success());
}

/// Nor shared: half of the clients would come to another cluster.
#[tokio::test]
async fn an_address_where_another_proxy_listens_is_refused() {
    let (cluster, other) = (Cluster::start(0).await, Cluster::start(0).await);
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let settings = [
        ("SHARDGATE__MAP__URL", other.map_url()),
        ("SHARDGATE__AUTH__METHOD", "trust".to_owned()),
        ("SHARDGATE__LISTEN__ADDRESS", proxy.address().to_string()),
        ("SHARDGATE__ADMIN__ADDRESS", "127.0.0.1:0".to_owned()),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardgate"));
    let child = command.arg("serve").envs(settings).stderr(Stdio::piped()).spawn().expect("started");
    let mut second = Started(child);
    let lines = BufReader::new(second.0.stderr.take().expect("its log")).lines();
    let log: Vec<String> =
        lines.map(|line| line.expect("a line")).inspect(|line| assert!(!line.contains("accepting"), "{line}")).collect();
    let expected = format!("cannot listen on {}: another process listens there, perhaps another proxy; stop it", proxy.address());
    assert!(!second.end().success() && log.join("\n").contains(&expected), "{log:#?}");
    // It has left no trace that a declaration would wait for.
    let left: i64 =
        other.connect_map().await.query_one("SELECT count(*) FROM shardgate.proxies", &[]).await.expect("a count").get(0);
    assert_eq!(left, 0);
}

fn until_said(proxy: &Proxy, words: &str, times: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while proxy.log().matches(words).count() < times {
        assert!(Instant::now() < deadline, "{words:?} is not {times} times in the log:\n{}", proxy.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As systemd's socket, until the proxy has said this there.
fn until_told(manager: &UnixDatagram, state: &str) {
    let mut bytes = [0; 256];
    let mut told = Vec::new();
    loop {
        let Ok(length) = manager.recv(&mut bytes) else { panic!("{state} was not told, but {told:?}") };
        let said = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if said.starts_with(state) {
            return;
        }
        told.push(said);
    }
}

#[tokio::test]
async fn a_drain_hears_sighup_and_then_ctrl_c() {
    let cluster = Cluster::start(1).await;
    let settings = vec![("listen.drain_timeout_ms", "60000".to_owned())];
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("bound");
    manager.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let environment = vec![("NOTIFY_SOCKET", socket.display().to_string()), ("WATCHDOG_USEC", "400000".to_owned())];
    let mut proxy = Proxy::start(&cluster, ProxyOptions { settings, environment, ..ProxyOptions::default() });
    until_told(&manager, "READY=1");
    for state in ["WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"] {
        until_told(&manager, state);
    }
    proxy.signal(Signal::HUP);
    for state in ["RELOADING=1\nMONOTONIC_USEC=", "READY=1"] {
        until_told(&manager, state);
    }
    let client = proxy.connect().await;
    let add = format!("SELECT shardgate.add_shard('shard0', '{}')", cluster.shard_url(0));
    client.batch_execute(&add).await.expect("add a shard");
    client.batch_execute("BEGIN; SELECT 1").await.expect("a transaction that keeps the drain waiting");
    proxy.signal(Signal::TERM);
    until_said(&proxy, "draining", 1);
    until_told(&manager, "STOPPING=1");
    until_told(&manager, "WATCHDOG=1");
    for times in 1..=3 {
        proxy.signal(Signal::HUP);
        until_said(&proxy, "settings not reloaded, the proxy is stopping", times);
    }
    proxy.signal(Signal::INT);
    assert_eq!(proxy.wait(Duration::from_secs(5)).code(), Some(130));
}

#[tokio::test]
async fn settings_that_are_refused_leave_the_log_level_as_it_is() {
    let cluster = Cluster::start(0).await;
    let mut proxy = Proxy::start(&cluster, ProxyOptions::default());
    let debug = "[log]\nlevel = \"debug\"\n";
    let tls = "[listen.tls]\nmode = \"allow\"\ncert = \"/nowhere/server.crt\"\nkey = \"/nowhere/server.key\"\n";
    proxy.reload(&cluster, &ProxyOptions { toml: format!("{tls}{debug}"), ..ProxyOptions::default() });
    until_said(&proxy, "settings not reloaded", 1);
    rubbish(&proxy).await;
    proxy.reload(&cluster, &ProxyOptions { toml: debug.to_owned(), ..ProxyOptions::default() });
    until_said(&proxy, "settings reloaded", 1);
    rubbish(&proxy).await;
    let told_at_debug = "connection refused before login";
    until_said(&proxy, told_at_debug, 1);
    assert_eq!(proxy.log().matches(told_at_debug).count(), 1, "{}", proxy.log());
}

/// A connection that is no client's, up to its end.
async fn rubbish(proxy: &Proxy) {
    let mut stream = TcpStream::connect(proxy.address()).await.expect("connected");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    drop(stream.read_to_end(&mut Vec::new()).await);
}
