//! The demo's processes: the map server, the shards' servers, and the proxy in front of them.
//!
//! A second start finds the data and the ports of the first one. All processes end with this one, in order when
//! [`LocalCluster::stop`] is called, at once when the value is dropped or the process dies.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::DemoError;
use super::catalogue::{ShardAddress, shard_name};
use super::directory::DemoDirectory;
use super::servers::{Account, Server, ServerError, ServerOptions, StopMode, WatchOptions, Watched, demo_settings, is_free_port};

#[derive(Debug)]
#[must_use = "the cluster ends when this is dropped"]
pub struct LocalCluster {
    /// Dropped, and so ended, before the servers.
    proxy: Watched,
    servers: Vec<(String, Server)>,
    directory: DemoDirectory,
    port: u16,
}

impl LocalCluster {
    /// Starts everything and waits until the proxy is ready. Its port is `port`, its admin port the next one.
    pub async fn start(directory: &DemoDirectory, shard_count: usize, port: u16) -> Result<Self, DemoError> {
        wait_for_ports(&[port, port + 1]).await?;
        let account = Account::for_servers().map_err(|source| DemoError::Server { server: "the servers".to_owned(), source })?;
        let root = directory.servers_path(account);
        account.create_directory(&root).map_err(|source| DemoError::Server { server: "the servers".to_owned(), source })?;
        let names: Vec<String> = std::iter::once(MAP.to_owned()).chain((0..shard_count).map(shard_name)).collect();
        let servers = tokio::task::spawn_blocking(move || start_servers(&root, names)).await.map_err(DemoError::Task)??;
        for (name, server) in &servers {
            server.create_database(name).await.map_err(|source| DemoError::Server { server: name.clone(), source })?;
        }
        let proxy = spawn_proxy(directory, &servers, port)?;
        let mut cluster = LocalCluster { proxy, servers, directory: directory.clone(), port };
        cluster.wait_for_proxy()?;
        Ok(cluster)
    }

    /// For an admin.
    pub fn proxy_url(&self) -> String {
        format!("postgres://postgres@{}:{}/{DATABASE}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub fn shards(&self) -> Vec<ShardAddress> {
        let shards = self.servers.iter().filter(|(name, _)| name != MAP);
        shards.map(|(name, server)| ShardAddress { name: name.clone(), url: server.url(name) }).collect()
    }

    /// Fails once the proxy is no longer there.
    pub fn check_proxy(&mut self) -> Result<(), DemoError> {
        match self.proxy.has_ended().map_err(DemoError::Proxy)? {
            None => Ok(()),
            Some(_) => Err(DemoError::ProxyEnded { log: self.proxy_log_end() }),
        }
    }

    /// Ends everything in order: the proxy drains, then the servers write their checkpoints, all at once.
    pub fn stop(mut self) -> Result<(), DemoError> {
        self.proxy.signal(Signal::TERM).map_err(DemoError::Proxy)?;
        // A proxy that does not end is killed when it is dropped; the servers get their clean end in any case.
        let proxy = self.proxy.wait(PROXY_STOP_PATIENCE).map_err(DemoError::Proxy).map(|_| ());
        let mut outcomes = vec![proxy];
        thread::scope(|scope| {
            let stopping: Vec<_> = self
                .servers
                .iter_mut()
                .map(|(name, server)| {
                    scope.spawn(|| server.stop(StopMode::Fast).map_err(|source| DemoError::Server { server: name.clone(), source }))
                })
                .collect();
            outcomes.extend(stopping.into_iter().map(join));
        });
        outcomes.into_iter().collect()
    }

    fn wait_for_proxy(&mut self) -> Result<(), DemoError> {
        let deadline = Instant::now() + PROXY_START_PATIENCE;
        loop {
            if is_ready(self.port + 1) && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            self.check_proxy()?;
            if Instant::now() >= deadline {
                return Err(DemoError::ProxyNotReady { seconds: PROXY_START_PATIENCE.as_secs(), log: self.proxy_log_end() });
            }
            thread::sleep(POLL);
        }
    }

    fn proxy_log_end(&self) -> String {
        last_lines(&self.directory.proxy_log_path(), 20)
    }
}

/// The proxy of a demo that was killed a moment ago still drains; a port that stays taken is somebody else's.
async fn wait_for_ports(ports: &[u16]) -> Result<(), DemoError> {
    let deadline = Instant::now() + PREDECESSOR_PATIENCE;
    while let Some(port) = ports.iter().copied().find(|port| !is_free_port(*port)) {
        if Instant::now() >= deadline {
            return Err(DemoError::ProxyPortTaken { port });
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// In parallel: each runs `initdb` at its first start.
fn start_servers(root: &Path, names: Vec<String>) -> Result<Vec<(String, Server)>, DemoError> {
    thread::scope(|scope| {
        let starting: Vec<_> = names
            .into_iter()
            .map(|name| scope.spawn(move || start_server(&root.join(&name), &name).map(|server| (name, server))))
            .collect();
        starting.into_iter().map(join).collect()
    })
}

/// Another thread's outcome; its panic goes on here.
fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The port of a server is part of its shard's url in the map, so it is kept for ever.
fn start_server(dir: &Path, name: &str) -> Result<Server, DemoError> {
    let port_path = dir.join("port");
    let port: Option<u16> = fs::read_to_string(&port_path).ok().and_then(|text| text.trim().parse().ok());
    let options = ServerOptions { dir: dir.to_owned(), port, settings: demo_settings(), ..Default::default() };
    let server = Server::start(&options).map_err(|source| match source {
        ServerError::PortTaken { port } => DemoError::ServerPortTaken { server: name.to_owned(), port, dir: dir.to_owned() },
        source => DemoError::Server { server: name.to_owned(), source },
    })?;
    fs::write(&port_path, server.port().to_string()).map_err(DemoError::file("write", &port_path))?;
    Ok(server)
}

fn spawn_proxy(directory: &DemoDirectory, servers: &[(String, Server)], port: u16) -> Result<Watched, DemoError> {
    let Some((_, map)) = servers.first() else { return Err(DemoError::ShardCount { max: SHARDS_MAX }) };
    let config = directory.config_path();
    fs::write(&config, config_text(&map.url(MAP), port)).map_err(DemoError::file("write", &config))?;
    let log = directory.proxy_log_path();
    fs::write(&log, "").map_err(DemoError::file("write", &log))?;
    let program = std::env::current_exe().map_err(DemoError::file("find", PathBuf::from("this program")))?;
    let options = WatchOptions { account: Account::Own, log, end_signal: "TERM", remove_at_end: None, environment: Vec::new() };
    Watched::spawn(&program, &["serve".into(), "--config".into(), config.into_os_string()], &options).map_err(DemoError::Proxy)
}

fn config_text(map_url: &str, port: u16) -> String {
    let admin_port = port + 1;
    format!(
        "# Written by `shardgate demo` at every start. config/shardgate.toml explains every setting.\n\
         [listen]\naddress = \"127.0.0.1:{port}\"\ndrain_timeout_ms = 2000\n\n\
         [admin]\naddress = \"127.0.0.1:{admin_port}\"\n\n\
         [map]\nurl = \"{map_url}\"\n\n\
         [database]\nname = \"{DATABASE}\"\n\n\
         # Anyone on this machine may connect, under any name, and arrives at the shards as their superuser.\n\
         [auth]\nmethod = \"trust\"\nbackend_user = \"shard\"\n\n\
         [[auth.users]]\nname = \"postgres\"\nadmin = true\n"
    )
}

/// Whether `GET /readyz` answers 200.
fn is_ready(admin_port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port))?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer.split_whitespace().nth(1) == Some("200"))
    };
    ask().unwrap_or(false)
}

/// The end of a log, for a message.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

pub(super) const SHARDS_MAX: usize = 16;
/// The database name that clients give.
pub(super) const DATABASE: &str = "app";
/// Name of the map's server and of its database.
const MAP: &str = "map";
const PROXY_START_PATIENCE: Duration = Duration::from_secs(60);
const PROXY_STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Longer than the proxy's own drain_timeout_ms.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(4);
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 65_536;
const POLL: Duration = Duration::from_millis(20);
