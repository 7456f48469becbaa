//! The map database and the shards of one test, on servers of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use shardgate::demo::servers::{Account, Server, ServerOptions, test_settings};
use tokio_postgres::{Client, NoTls};

use super::{Cable, Machine, OtherVersion};

/// In bytes: the servers of a few tests at once take about two GiB.
const ROOM_IN_MEMORY: u64 = 8 << 30;

/// Databases `map` and `shard0`, `shard1`, …: all on one server, or each on its own.
pub struct Cluster {
    servers: Vec<Server>,
    shard_count: usize,
    text: Text,
    cables: BTreeMap<usize, Cable>,
}

/// How the databases sort text by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    Bytewise,
    /// As people read it: by ICU.
    Linguistic,
}

impl Cluster {
    /// One server for everything: the quickest, right wherever no server shall be stopped.
    pub async fn start(shard_count: usize) -> Self {
        Self::start_with(shard_count, &[]).await
    }

    /// The same, with further settings for the server.
    pub async fn start_with(shard_count: usize, settings: &[(&str, &str)]) -> Self {
        let cluster = Cluster { servers: vec![start_server(settings)], shard_count, text: Text::Bytewise, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    /// One server for everything.
    pub async fn start_sorting(shard_count: usize, text: Text) -> Self {
        let cluster = Cluster { servers: vec![start_server(&[])], shard_count, text, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    /// One server of this PostgreSQL for everything.
    pub async fn start_of(shard_count: usize, version: &OtherVersion) -> Self {
        let servers = vec![start_server_of(Some(version))];
        let cluster = Cluster { servers, shard_count, text: Text::Bytewise, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    /// A server for each shard, of this PostgreSQL; `None`: the system's, which the map's server is too.
    pub async fn of_versions(versions: &[Option<&OtherVersion>]) -> Self {
        let servers = thread::scope(|scope| {
            let all = std::iter::once(&None).chain(versions);
            let starting: Vec<_> = all.map(|version| scope.spawn(|| start_server_of(*version))).collect();
            starting.into_iter().map(|handle| handle.join().expect("a server did not start")).collect()
        });
        let cluster = Cluster { servers, shard_count: versions.len(), text: Text::Bytewise, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    /// On the server of the map, sorting like the others.
    pub async fn create_database(&self, name: &str) {
        self.create_database_on(self.map_server(), name).await;
    }

    async fn create_database_on(&self, server: &Server, name: &str) {
        let locale = match self.text {
            Text::Bytewise => "",
            Text::Linguistic => "LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C.UTF-8'",
        };
        // As files rather than through the log: quicker wherever nothing is flushed.
        let create = format!("CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy {locale}");
        connect(&server.url("postgres")).await.batch_execute(&create).await.expect("create a database");
    }

    /// A server for the map and one for each shard, so that one can be killed without the others.
    pub async fn separate_servers(shard_count: usize) -> Self {
        let servers = thread::scope(|scope| {
            let starting: Vec<_> = (0..=shard_count).map(|_| scope.spawn(|| start_server(&[]))).collect();
            starting.into_iter().map(|handle| handle.join().expect("a server did not start")).collect()
        });
        let cluster = Cluster { servers, shard_count, text: Text::Bytewise, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    /// The same on machines of their own: the map on the first.
    pub async fn on_machines(machines: &[&Machine]) -> Self {
        let start = |machine: &&Machine| {
            let address = machine.address();
            let mut options = server_options(&[]);
            options.address = Some(address);
            options.hba.push(format!("host all all {address}/24 trust"));
            machine.run(|| Server::start(&options).expect("start a PostgreSQL server"))
        };
        let servers: Vec<Server> = machines.iter().map(start).collect();
        let shard_count = servers.len() - 1;
        let cluster = Cluster { servers, shard_count, text: Text::Bytewise, cables: BTreeMap::new() };
        cluster.create_databases().await;
        cluster
    }

    pub fn shard_count(&self) -> usize {
        self.shard_count
    }

    pub fn map_url(&self) -> String {
        self.map_server().url("map")
    }

    pub fn shard_url(&self, shard: usize) -> String {
        self.shard_server(shard).url(&shard_name(shard))
    }

    /// The proxy reaches this shard over it.
    pub async fn lay_cable(&mut self, shard: usize) {
        let target = format!("127.0.0.1:{}", self.shard_server(shard).port());
        self.cables.insert(shard, Cable::to(target.parse().expect("an address")).await);
    }

    pub fn cable(&self, shard: usize) -> &Cable {
        &self.cables[&shard]
    }

    /// As the proxy is told it.
    pub fn public_url(&self, shard: usize) -> String {
        let url = self.shard_url(shard);
        match self.cables.get(&shard) {
            Some(cable) => url.replace(&format!(":{}/", self.shard_server(shard).port()), &format!(":{}/", cable.address().port())),
            None => url,
        }
    }

    /// URL of any database on the server of a shard.
    pub fn url_on_shard(&self, shard: usize, database: &str) -> String {
        self.shard_server(shard).url(database)
    }

    pub async fn connect_map(&self) -> Client {
        connect(&self.map_url()).await
    }

    /// Directly to a shard's database, past the proxy.
    pub async fn connect_shard(&self, shard: usize) -> Client {
        connect(&self.shard_url(shard)).await
    }

    pub fn map_server(&self) -> &Server {
        &self.servers[0]
    }

    pub fn shard_server(&self, shard: usize) -> &Server {
        let index = self.shard_server_index(shard);
        &self.servers[index]
    }

    /// To stop, kill and start again. On a cluster of one server that is the server of everything.
    pub fn map_server_mut(&mut self) -> &mut Server {
        &mut self.servers[0]
    }

    pub fn shard_server_mut(&mut self, shard: usize) -> &mut Server {
        let index = self.shard_server_index(shard);
        &mut self.servers[index]
    }

    /// Another server is the shard's from now on; the one before.
    pub fn replace_shard_server(&mut self, shard: usize, server: Server) -> Server {
        std::mem::replace(self.shard_server_mut(shard), server)
    }

    /// The same of the map's.
    pub fn replace_map_server(&mut self, server: Server) -> Server {
        std::mem::replace(self.map_server_mut(), server)
    }

    fn shard_server_index(&self, shard: usize) -> usize {
        assert!(shard < self.shard_count, "the cluster has {} shards", self.shard_count);
        if self.servers.len() == 1 { 0 } else { shard + 1 }
    }

    async fn create_databases(&self) {
        self.create_database_on(self.map_server(), "map").await;
        for shard in 0..self.shard_count {
            self.create_database_on(self.shard_server(shard), &shard_name(shard)).await;
        }
    }
}

/// A connection whose other half runs as a task of the test's runtime.
pub async fn connect(conninfo: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(conninfo, NoTls).await.expect("connect");
    // Ends with the client; what went wrong on the connection is told by the client's own calls.
    tokio::spawn(connection);
    client
}

fn shard_name(shard: usize) -> String {
    format!("shard{shard}")
}

/// Options of a new server.
pub(super) fn server_options(settings: &[(&str, &str)]) -> ServerOptions {
    let mut all = test_settings();
    // Statistics that come in the middle of a test change plans, and with them the order of rows that have none.
    all.push(("autovacuum".to_owned(), "off".to_owned()));
    // They may be kept in memory.
    all.push(("max_wal_size".to_owned(), "256MB".to_owned()));
    // Up to 15 a server starts one subscription in this time, five seconds by default.
    all.push(("wal_retrieve_retry_interval".to_owned(), "100ms".to_owned()));
    all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    ServerOptions {
        dir: server_directory(),
        settings: all,
        template_cache: Some(template_cache()),
        ephemeral: true,
        ..Default::default()
    }
}

/// A new directory for one server: in memory where the machine has the room, for most of what a test's servers do on a disk is to
/// make files and to remove them, which took a fifth of the whole run.
pub fn server_directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map(|found| found.f_bavail * found.f_frsize);
    let is_chosen = std::env::var_os("TMPDIR").is_some();
    let parent = if !is_chosen && room.is_ok_and(|room| room >= ROOM_IN_MEMORY) { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("shardgate-test-").tempdir_in(parent).expect("temporary directory").keep()
}

fn start_server(settings: &[(&str, &str)]) -> Server {
    Server::start(&server_options(settings)).expect("start a PostgreSQL server")
}

fn start_server_of(version: Option<&OtherVersion>) -> Server {
    let programs = version.map(|version| version.servers.clone());
    Server::start(&ServerOptions { programs, ..server_options(&[]) }).expect("start a PostgreSQL server")
}

/// Below `target`, or, where the servers' account may not go there, in the directory for temporary files.
fn template_cache() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    match Account::for_servers().expect("account for servers").can_enter(&target) {
        true => target.join("postgresql-templates"),
        false => std::env::temp_dir().join("shardgate-postgresql-templates"),
    }
}
