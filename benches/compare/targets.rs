//! What is measured: PostgreSQL itself, PgBouncer where it is installed, and Shardgate, once for each number of shards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shardgate::demo::servers::{Account, WatchOptions, Watched, free_port};
use tempfile::TempDir;

use crate::support::{Cluster, Proxy, ProxyOptions, connect};
use crate::{Settings, data};

pub struct Target {
    pub name: String,
    pub port: u16,
    pub database: String,
    /// For prepared statements: another pool mode of PgBouncer, whose older versions have none in transaction pooling.
    pub prepared_database: String,
    pub idle_database: String,
    /// `None`: a direct connection.
    pub proxy_pid: Option<i32>,
    _owned: Owned,
}

/// What must live as long as the target.
#[expect(dead_code, reason = "held for its drop")]
enum Owned {
    Nothing,
    PgBouncer(Watched, TempDir),
    Shardgate(Box<Proxy>, Cluster),
}

/// The server of the plain database.
pub async fn start_plain(settings: &Settings) -> Cluster {
    let cluster = Cluster::start_with(0, SERVER_SETTINGS).await;
    data::fill_plain(&connect(&cluster.map_server().url("postgres")).await, settings.scale).await;
    cluster
}

pub async fn start_all(cluster: &Cluster, settings: &Settings) -> Vec<Target> {
    let mut targets = vec![direct(cluster)];
    targets.extend(pgbouncer(cluster));
    for &shards in &settings.shards {
        targets.push(shardgate(shards, settings).await);
    }
    targets
}

fn direct(cluster: &Cluster) -> Target {
    let plain = || "postgres".to_owned();
    Target {
        name: "direct".to_owned(),
        port: cluster.map_server().port(),
        database: plain(),
        prepared_database: plain(),
        idle_database: plain(),
        proxy_pid: None,
        _owned: Owned::Nothing,
    }
}

/// A map of its own for each number of shards, so a cluster of its own too; all databases of one are on one server.
async fn shardgate(shards: usize, settings: &Settings) -> Target {
    let cluster = Cluster::start_with(shards, SERVER_SETTINGS).await;
    let options = ProxyOptions {
        settings: vec![
            ("pool.size_per_shard", "20".to_owned()),
            ("listen.max_clients", "20000".to_owned()),
            ("listen.threads", "0".to_owned()),
            ("log.level", "warn".to_owned()),
        ],
        ..Default::default()
    };
    let proxy = Proxy::start(&cluster, options);
    data::fill_sharded(&proxy, &cluster, shards, settings.scale).await;
    let app = || "app".to_owned();
    Target {
        name: format!("Shardgate, {shards} shards"),
        port: proxy.port(),
        database: app(),
        prepared_database: app(),
        idle_database: app(),
        proxy_pid: Some(proxy.pid()),
        _owned: Owned::Shardgate(Box::new(proxy), cluster),
    }
}

fn pgbouncer(cluster: &Cluster) -> Option<Target> {
    let program =
        ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"].iter().map(Path::new).find(|path| path.is_file());
    let Some(program) = program else {
        println!("PgBouncer is not installed and is left out");
        return None;
    };
    let account = Account::for_servers().expect("account for servers");
    let directory = tempfile::Builder::new().prefix("shardgate-bench-").tempdir().expect("temporary directory");
    account.create_directory(directory.path()).expect("directory of PgBouncer");
    let port = free_port().expect("free port");
    let config = directory.path().join("pgbouncer.ini");
    fs::write(&config, config_text(cluster.map_server().port(), port)).expect("write pgbouncer.ini");
    account.take_over(&config).expect("give pgbouncer.ini away");
    let watch = WatchOptions {
        account,
        log: directory.path().join("log"),
        end_signal: "TERM",
        remove_at_end: None,
        environment: Vec::new(),
    };
    let process = Watched::spawn(program, &[PathBuf::from(&config).into_os_string()], &watch).expect("start PgBouncer");
    let version =
        Command::new(program).arg("--version").output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_else(|| "PgBouncer".to_owned());
    wait_for(port);
    Some(Target {
        name: version,
        port,
        database: "transaction".to_owned(),
        prepared_database: "session".to_owned(),
        idle_database: "transaction".to_owned(),
        proxy_pid: Some(process.pid()),
        _owned: Owned::PgBouncer(process, directory),
    })
}

fn config_text(server_port: u16, port: u16) -> String {
    let server = format!("host=127.0.0.1 port={server_port} dbname=postgres user=postgres");
    format!(
        "[databases]\ntransaction = {server} pool_mode=transaction\nsession = {server} pool_mode=session\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         default_pool_size = 20\nmax_client_conn = 20000\nlog_connections = 0\nlog_disconnections = 0\nignore_startup_parameters = extra_float_digits\n"
    )
}

fn wait_for(port: u16) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(std::time::Instant::now() < deadline, "PgBouncer does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

pub const SERVER_SETTINGS: &[(&str, &str)] =
    &[("shared_buffers", "512MB"), ("max_connections", "1200"), ("synchronous_commit", "off"), ("autovacuum", "off")];
