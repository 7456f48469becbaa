//! A cluster with a table of each kind and the proxy in front of it, shared by the cases of one test.
//!
//! * `accounts(id, owner, balance)`: sharded by a hash of `id`; 90 rows, `owner` is `o<id>`, `balance` 100.
//! * `currencies(code, name)`: a reference table with two rows.
//! * `notes(id, text)`: on the home shard, empty.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

pub struct Stage {
    pub cluster: Cluster,
    pub proxy: Proxy,
    /// Ids of `accounts` by shard, ascending.
    keys: BTreeMap<String, Vec<i64>>,
}

impl Stage {
    /// `shards` databases on one server.
    pub async fn start(shards: usize, options: ProxyOptions) -> Self {
        Self::on(Cluster::start(shards).await, options).await
    }

    pub async fn on(cluster: Cluster, options: ProxyOptions) -> Self {
        Self::on_as(cluster, options, "postgres").await
    }

    /// The shards' urls name this role.
    pub async fn on_as(cluster: Cluster, options: ProxyOptions, role: &str) -> Self {
        for shard in 0..cluster.shard_count() {
            cluster.connect_shard(shard).await.batch_execute(ROLE).await.expect("a role");
        }
        let proxy = Proxy::start(&cluster, options);
        let mut client = WireClient::connect(proxy.address()).await;
        for shard in 0..cluster.shard_count() {
            let url = cluster.public_url(shard).replace("//postgres@", &format!("//{role}@"));
            succeed(&mut client, &format!("SELECT shardgate.add_shard('shard{shard}', '{url}')")).await;
        }
        for statement in SCHEMA {
            succeed(&mut client, statement).await;
        }
        // One by one: not every stage can commit over several shards.
        for id in 1..=90 {
            succeed(&mut client, &format!("INSERT INTO accounts VALUES ({id}, 'o{id}', 100)")).await;
        }
        let mut keys = BTreeMap::<String, Vec<i64>>::new();
        for shard in 0..cluster.shard_count() {
            let found = cluster.connect_shard(shard).await.query("SELECT id FROM accounts ORDER BY id", &[]).await.expect("ids");
            keys.insert(format!("shard{shard}"), found.iter().map(|row| row.get(0)).collect());
        }
        Self { cluster, proxy, keys }
    }

    pub async fn client(&self) -> WireClient {
        WireClient::connect(self.proxy.address()).await
    }

    /// The `nth` id of `accounts` that lives on this shard.
    pub fn key(&self, shard: usize, nth: usize) -> i64 {
        self.keys[&format!("shard{shard}")][nth]
    }

    /// Whether this id of `accounts` lives there.
    pub fn is_on(&self, shard: usize, id: i64) -> bool {
        self.keys[&format!("shard{shard}")].contains(&id)
    }

    /// The same tables and rows in a database without a proxy, for comparison.
    pub async fn create_plain(&self) {
        self.cluster.map_server().create_database(PLAIN).await.expect("a database");
        let mut client = self.plain_client().await;
        for statement in SCHEMA.iter().filter(|statement| !statement.contains("shardgate.")) {
            succeed(&mut client, statement).await;
        }
        succeed(&mut client, "INSERT INTO accounts SELECT g, 'o' || g, 100 FROM generate_series(1, 90) g").await;
    }

    pub async fn plain_client(&self) -> WireClient {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.cluster.map_server().port()));
        WireClient::connect_with(address, &[("user", "postgres"), ("database", PLAIN)]).await
    }

    /// `{a}`, `{b}`, `{c}`: ids of `accounts` on the home shard, `{z}`, `{y}`: on the other one.
    pub fn fill_in(&self, text: &str) -> String {
        let keys = [("{a}", 0, 0), ("{b}", 0, 1), ("{c}", 0, 2), ("{z}", 1, 0), ("{y}", 1, 1)];
        keys.iter().fold(text.to_owned(), |text, &(name, shard, nth)| match text.contains(name) {
            true => text.replace(name, &self.key(shard, nth).to_string()),
            false => text,
        })
    }

    /// Waits until a statement that contains this text runs on the shard.
    pub async fn until_active(&self, shard: usize, text: &str) {
        let client = self.cluster.connect_shard(shard).await;
        let sql = "SELECT FROM pg_stat_activity WHERE state = 'active' AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()";
        let deadline = Instant::now() + Duration::from_secs(10);
        while client.query(sql, &[&text]).await.expect("activity").is_empty() {
            assert!(Instant::now() < deadline, "{text} does not run");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A statement waits for the lock of a table on some shard.
    pub async fn until_waiting(&self, what: &str) {
        let client = self.cluster.connect_map().await;
        let sql = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'";
        let deadline = Instant::now() + Duration::from_secs(10);
        while client.query(sql, &[]).await.expect("locks").is_empty() {
            assert!(Instant::now() < deadline, "{what} does not wait");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub fn assert_no_panic(&self) {
        let log = self.proxy.log();
        assert!(!log.contains("panicked"), "{log}");
    }

    /// The proxy has not panicked and logged nothing as an error.
    pub fn assert_log_is_clean(&self) {
        let log = self.proxy.log();
        let bad: Vec<&str> = log.lines().filter(|line| line.contains("panicked") || line.contains(" ERROR ")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

/// Runs a statement that must be answered without an error, to its end.
pub async fn succeed(client: &mut WireClient, sql: &str) {
    let told = client.ask(sql).await;
    let is_answered = told.ends_with("Z(I)") || told.ends_with("Z(T)");
    assert!(is_answered && !told.contains("E("), "{sql}: {told}");
}

/// Roles belong to a server, which several shards may share.
const ROLE: &str = "DO $$ BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$";
const PLAIN: &str = "plain";
const SCHEMA: &[&str] = &[
    "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, balance int NOT NULL CHECK (balance >= 0))",
    "CREATE TABLE currencies (code text PRIMARY KEY, name text)",
    "CREATE TABLE notes (id int PRIMARY KEY, text text)",
    "GRANT SELECT ON accounts, currencies, notes TO reader",
    "INSERT INTO currencies VALUES ('EUR', 'Euro'), ('INR', 'Rupee')",
    "SELECT shardgate.distribute_table('accounts', 'id', partitions => 12)",
    "SELECT shardgate.reference_table('currencies')",
];
