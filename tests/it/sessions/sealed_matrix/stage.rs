//! What the cells of one configuration share: servers, the proxy, a plain database, and tables to carry what sets.
//!
//! * `carrier0(id, n)` has rows, `inbox0(id, n)` is empty: sharded, where anything is; `carrier_home0`, `inbox_home0` never are. There are
//!   as many as there are cells at a time.
//! * `spread`, `lasting`: sharded too; `which_place` says in which schema it is found.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::Client;

use super::cells::{PoolMode, Tables};
use super::speaker::Speaker;
use crate::sessions::succeed;
use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, WireClient};

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub is_distributed: bool,
    pub mode: PoolMode,
    /// Shard connections are made as the client's user.
    pub as_client: bool,
}

/// Cells at a time, each with tables of its own.
pub const SLOTS: usize = 16;

pub struct Stage {
    configuration: Configuration,
    cluster: Cluster,
    proxy: Proxy,
    /// Looks at the server's processes, locks and slots.
    watcher: Client,
    /// An id that is not on the home shard, where there is any other.
    key: String,
    seeded: String,
}

/// What placeholders stand for in one cell.
#[derive(Clone, Debug)]
pub struct Words {
    key: String,
    seeded: String,
    port: u16,
    /// Added to the names of tables.
    suffix: String,
    /// Its name is the cell's own: closures look for operators by their names alone.
    operator: String,
    schema: String,
}

impl Words {
    pub fn schema(&self) -> &str {
        &self.schema
    }

    pub fn fill_in(&self, text: &str) -> String {
        text.replace("{carrier}", &format!("carrier{}", self.suffix))
            .replace("{inbox}", &format!("inbox{}", self.suffix))
            .replace("{z}", &self.key)
            .replace("{seeded}", &self.seeded)
            .replace("{port}", &self.port.to_string())
            .replace("{operator}", &self.operator)
            .replace("{schema}", &self.schema)
            .replace("cell.", &format!("{}.", self.schema))
    }
}

impl Stage {
    pub async fn start(configuration: Configuration) -> Self {
        let cluster = Cluster::start(2).await;
        cluster.create_database("plain").await;
        let watcher = cluster.connect_map().await;
        watcher.batch_execute(ROLES).await.expect("roles");
        for database in ["plain", "shard0", "shard1"] {
            let client = crate::support::connect(&cluster.map_server().url(database)).await;
            client.batch_execute("CREATE EXTENSION pg_trgm; CREATE EXTENSION dblink").await.expect("extensions");
        }
        let proxy = Proxy::start(&cluster, options(configuration));
        let mut stage = Self { configuration, cluster, proxy, watcher, key: "1".to_owned(), seeded: String::new() };
        stage.create_tables().await;
        stage
    }

    async fn create_tables(&mut self) {
        let (mut plain, mut proxied) = (self.connect(false).await, self.connect(true).await);
        for shard in 0..2 {
            let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", self.cluster.public_url(shard));
            succeed(&mut proxied, &add).await;
        }
        for statement in [self.tables().as_str(), SCHEMA] {
            succeed(&mut plain, statement).await;
            succeed(&mut proxied, statement).await;
        }
        if self.configuration.is_distributed {
            let of_cells = (0..SLOTS).flat_map(|slot| [format!("carrier{slot}"), format!("inbox{slot}")]);
            let keys = of_cells.chain(["spread".to_owned(), "lasting".to_owned()]).map(|table| format!("\"{table}\": \"id\""));
            let keys = keys.collect::<Vec<_>>().join(", ");
            succeed(&mut proxied, &format!("SELECT shardgate.distribute_tables('{{{keys}}}', partitions => 8)")).await;
        }
        let mut rows: Vec<String> = ROWS.iter().map(|text| (*text).to_owned()).collect();
        rows.extend(self.suffixes().map(|suffix| format!("INSERT INTO carrier{suffix} SELECT g, 1 FROM generate_series(1, 12) g")));
        for statement in &rows {
            succeed(&mut plain, statement).await;
            succeed(&mut proxied, statement).await;
        }
        if self.configuration.is_distributed {
            let mut id = 1;
            while proxied.row(&format!("SELECT * FROM shardgate.locate('carrier0', '{id}')")).await[1] != "shard1" {
                id += 1;
            }
            assert!(id <= 12, "no row is on the second shard");
            self.key = id.to_string();
        }
        succeed(&mut plain, "SELECT setseed(0.5)").await;
        self.seeded = plain.value("SELECT random()").await;
    }

    fn suffixes(&self) -> impl Iterator<Item = String> + use<> {
        let kinds: &[&str] = if self.configuration.is_distributed { &["", "_home"] } else { &[""] };
        kinds.iter().flat_map(|kind| (0..SLOTS).map(move |slot| format!("{kind}{slot}")))
    }

    fn tables(&self) -> String {
        let of_cell = |suffix: String| {
            format!("CREATE TABLE carrier{suffix} (id bigint PRIMARY KEY, n int); CREATE TABLE inbox{suffix} (id bigint, n int); ")
        };
        self.suffixes().map(of_cell).collect()
    }

    /// `number`: of the cell, whose objects are in a schema of its own. `slot`: of those at a time.
    pub fn words(&self, tables: Tables, slot: usize, number: usize) -> Words {
        let is_home = matches!(tables, Tables::Home | Tables::DeclaredHome);
        let schema = format!("{}{number}", if tables.is_declared() { "declared" } else { "m" });
        let suffix = format!("{}{slot}", if is_home { "_home" } else { "" });
        let operator = "@".repeat(slot + 3);
        let port = self.cluster.map_server().port();
        Words { key: self.key.clone(), seeded: self.seeded.clone(), port, suffix, operator, schema }
    }

    pub fn side(&self, is_proxied: bool, words: &Words) -> Side<'_> {
        Side { stage: self, is_proxied, words: words.clone() }
    }

    async fn connect(&self, is_proxied: bool) -> WireClient {
        let user = if self.configuration.as_client { "alice" } else { "postgres" };
        let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, self.cluster.map_server().port()));
        let (address, database) = if is_proxied { (self.proxy.address(), "app") } else { (plain, "plain") };
        WireClient::connect_with(address, &[("user", user), ("database", database)]).await
    }

    /// No connection of the pool outlives it: what leaked in one cell is not met in the next.
    pub fn restart_proxy(&mut self) {
        self.proxy.signal(Signal::TERM);
        self.proxy.wait(Duration::from_secs(60));
        self.proxy = Proxy::start(&self.cluster, options(self.configuration));
    }

    /// What the shards still hold when all clients have gone; waits for it to go.
    pub async fn held_for_ever(&self) -> Option<String> {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let rows = self.watcher.query(HELD, &[]).await.expect("locks and slots");
            let held: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            if held.is_empty() {
                return None;
            }
            if Instant::now() > deadline {
                return Some(held.join(", "));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn panics(&self) -> Option<String> {
        let log = self.proxy.log();
        log.contains("panicked").then(|| log.lines().filter(|line| line.contains("panicked")).collect())
    }
}

/// Plain PostgreSQL, or the proxy.
pub struct Side<'a> {
    stage: &'a Stage,
    is_proxied: bool,
    words: Words,
}

impl Side<'_> {
    pub async fn speaker(&self, name: &str) -> Speaker {
        Speaker::new(name, self.client().await, self.words.clone())
    }

    pub async fn client(&self) -> WireClient {
        self.stage.connect(self.is_proxied).await
    }

    /// How many clients have all connections.
    pub fn connections(&self) -> usize {
        if self.is_proxied { connections(self.stage.configuration.mode) } else { 1 }
    }

    /// A client leaves. Without a proxy its process ends within a moment.
    pub async fn until_gone(&self, speaker: Speaker) {
        if self.is_proxied {
            return;
        }
        let process = speaker.process_id();
        drop(speaker);
        let watcher = &self.stage.watcher;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !watcher.query("SELECT FROM pg_stat_activity WHERE pid = $1", &[&process]).await.expect("activity").is_empty() {
            assert!(Instant::now() < deadline, "a process does not end");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// In session mode the session and the client beside it have one each.
fn connections(mode: PoolMode) -> usize {
    match mode {
        PoolMode::Transaction => 2,
        PoolMode::Session => 3,
    }
}

fn options(configuration: Configuration) -> ProxyOptions {
    let mode = match configuration.mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
    };
    let backend_user = if configuration.as_client { "client" } else { "shard" };
    let settings = vec![
        ("pool.mode", mode.to_owned()),
        ("pool.size_per_shard", connections(configuration.mode).to_string()),
        ("pool.late_joiner_share", "0".to_owned()),
        ("auth.backend_user", backend_user.to_owned()),
    ];
    let users = vec![ProxyUser { name: "alice".to_owned(), password: None, admin: true }];
    ProxyOptions { settings, users, ..ProxyOptions::default() }
}

const ROLES: &str = "CREATE ROLE reader; CREATE ROLE writer; CREATE ROLE alice LOGIN SUPERUSER; \
                     SELECT pg_replication_origin_create('m_origin')";

const SCHEMA: &str = "CREATE TABLE spread (id bigint PRIMARY KEY, n int); \
    CREATE TABLE lasting (id bigint PRIMARY KEY); \
    CREATE TABLE which_place (place text); \
    CREATE SCHEMA other_place; \
    CREATE TABLE other_place.which_place (place text); \
    GRANT USAGE ON SCHEMA other_place TO PUBLIC; \
    GRANT ALL ON ALL TABLES IN SCHEMA public, other_place TO PUBLIC";

const ROWS: &[&str] = &[
    "INSERT INTO spread SELECT g, 1 FROM generate_series(1, 6) g",
    "INSERT INTO lasting SELECT g FROM generate_series(1, 6) g",
    "INSERT INTO which_place VALUES ('public')",
    "INSERT INTO other_place.which_place VALUES ('other')",
];

const HELD: &str = "SELECT 'advisory lock in ' || d.datname FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
     WHERE l.locktype = 'advisory' AND l.objid = 4711 \
     UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots";
