//! The built proxy, as a process of its own, in front of a test's cluster.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shardgate::demo::servers::{Account, WatchOptions, Watched, free_port};
use tempfile::TempDir;
use tokio_postgres::Client;

use super::{Cluster, connect, psql_rows};

/// Overrides for the configuration of a test's proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyOptions {
    /// `("pool.size_per_shard", "5")`, given as environment variables, which win over the file.
    pub settings: Vec<(&'static str, String)>,
    /// Beside `postgres`, who is an admin.
    pub users: Vec<ProxyUser>,
    /// TOML put at the end of the configuration file.
    pub toml: String,
    /// Other variables of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// Where it listens, and is reached: 127.0.0.1, unless it is on a machine in a network.
    pub address: Option<Ipv4Addr>,
    /// Directory in which a test arms named points of the proxy's commits.
    pub failpoints: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct ProxyUser {
    pub name: String,
    pub password: Option<String>,
    pub admin: bool,
}

/// A running proxy. Killed when dropped.
pub struct Proxy {
    process: Watched,
    address: Ipv4Addr,
    port: u16,
    admin_port: u16,
    directory: TempDir,
}

impl ProxyOptions {
    fn host(&self) -> Ipv4Addr {
        self.address.unwrap_or(Ipv4Addr::LOCALHOST)
    }
}

impl Proxy {
    /// Starts the proxy and waits until it takes connections and says that it is ready.
    pub fn start(cluster: &Cluster, options: ProxyOptions) -> Self {
        let mut directory = tempfile::Builder::new().prefix("shardgate-proxy-").tempdir().expect("temporary directory");
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (port, admin_port) = (free_port().expect("free port"), free_port().expect("free port"));
            let process = spawn(cluster, &options, directory.path(), port, admin_port);
            let address = options.host();
            let mut proxy = Proxy { process, address, port, admin_port, directory };
            match proxy.wait_until_ready() {
                Ok(()) => return proxy,
                // Another process was quicker at one of the ports.
                Err(log) if attempts < 5 && log.contains("ddress already in use") => directory = proxy.directory,
                Err(log) => panic!("the proxy did not become ready:\n{log}"),
            }
        }
    }

    /// Writes the configuration anew and tells the proxy to read it. What `start` gave by the environment still wins.
    pub fn reload(&mut self, cluster: &Cluster, options: &ProxyOptions) {
        let config = self.directory.path().join("shardgate.toml");
        std::fs::write(&config, config_text(cluster, options, self.port, self.admin_port)).expect("write the configuration");
        self.signal(Signal::HUP);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (self.address, self.port).into()
    }

    /// Process id of the proxy.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// For tokio-postgres and psql, as the user `postgres`, who is an admin.
    pub fn conninfo(&self) -> String {
        self.conninfo_as("postgres")
    }

    pub fn conninfo_as(&self, user: &str) -> String {
        let password = if self.address.is_loopback() { String::new() } else { format!(" password={PASSWORD}") };
        format!("host={} port={} user={user}{password} dbname=app", self.address, self.port)
    }

    pub async fn connect(&self) -> Client {
        connect(&self.conninfo()).await
    }

    /// Rows as psql prints them without decoration; panics when a statement fails.
    /// `shardgate check` with the proxy's settings: did it find nothing, and what it printed.
    pub fn check(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardgate"));
        command.arg("check").args(arguments).arg("--config").arg(self.directory.path().join("shardgate.toml"));
        let output = command.output().expect("run");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn psql(&self, script: &str) -> String {
        psql_rows(&self.conninfo(), script)
    }

    /// What `GET path` on the admin port answers: status and body.
    pub fn admin(&self, path: &str) -> Option<(u16, String)> {
        http_get(self.admin_port, path)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("proxy.log")).unwrap_or_default()
    }

    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal).expect("signal the proxy");
    }

    /// Waits for the proxy's own end, after a signal.
    pub fn wait(&mut self, patience: Duration) -> std::process::ExitStatus {
        self.process.wait(patience).expect("the proxy ends")
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let is_ready = http_get(self.admin_port, "/readyz").is_some_and(|(status, _)| status == 200);
            if is_ready && TcpStream::connect(self.address()).is_ok() {
                return Ok(());
            }
            if self.process.has_ended().expect("state of the proxy").is_some() || Instant::now() >= deadline {
                return Err(self.log());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn spawn(cluster: &Cluster, options: &ProxyOptions, directory: &Path, port: u16, admin_port: u16) -> Watched {
    let config = directory.join("shardgate.toml");
    std::fs::write(&config, config_text(cluster, options, port, admin_port)).expect("write the configuration");
    let log = directory.join("proxy.log");
    std::fs::write(&log, "").expect("empty the log");
    let settings = options.settings.iter().map(|(key, value)| (variable(key).into(), value.into()));
    let failpoints = options.failpoints.iter().map(|path| ("SHARDGATE_FAILPOINTS".into(), path.into()));
    let others = options.environment.iter().map(|(name, value)| ((*name).into(), value.into()));
    let environment = settings.chain(failpoints).chain(others).collect();
    let watch = WatchOptions { account: Account::Own, log, end_signal: "KILL", remove_at_end: None, environment };
    let arguments = ["serve".into(), "--config".into(), config.into_os_string()];
    Watched::spawn(Path::new(env!("CARGO_BIN_EXE_shardgate")), &arguments, &watch).expect("start the proxy")
}

/// `pool.size_per_shard` → `SHARDGATE__POOL__SIZE_PER_SHARD`.
fn variable(key: &str) -> String {
    format!("SHARDGATE__{}", key.replace('.', "__").to_uppercase())
}

/// Two threads on any machine, so that connections change theirs.
fn config_text(cluster: &Cluster, options: &ProxyOptions, port: u16, admin_port: u16) -> String {
    let (map, host) = (cluster.map_url(), options.host());
    // Away from the machine nobody is trusted.
    let is_asked = options.settings.iter().any(|(key, value)| *key == "auth.method" && value == "scram-sha-256");
    let (method, password) =
        if host.is_loopback() && !is_asked { ("trust", None) } else { ("scram-sha-256", Some(PASSWORD.to_owned())) };
    let mut text = format!(
        "[listen]\naddress = \"{host}:{port}\"\nthreads = 2\n\n[admin]\naddress = \"127.0.0.1:{admin_port}\"\n\n[map]\nurl = \"{map}\"\n\n\
         [database]\nname = \"app\"\n\n[auth]\nmethod = \"{method}\"\nbackend_user = \"shard\"\n"
    );
    let postgres = ProxyUser { name: "postgres".into(), password, admin: true };
    for user in std::iter::once(&postgres).chain(&options.users) {
        text.push_str(&format!("\n[[auth.users]]\nname = \"{}\"\nadmin = {}\n", user.name, user.admin));
        if let Some(password) = &user.password {
            text.push_str(&format!("password = \"{password}\"\n"));
        }
    }
    text.push('\n');
    text.push_str(&options.toml);
    text
}

/// Of the user `postgres`, where one is asked for.
const PASSWORD: &str = "of-a-test";

/// HTTP/1.0 in the few lines that a readiness check needs. `None` while nobody answers.
fn http_get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
