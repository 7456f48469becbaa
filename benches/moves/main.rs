//! What a move costs those who do not wait for it: its copy beside a plain subscription, what clients see meanwhile, and how long
//! statements of the moved keys are held.
//!
//! Two shards on one machine, without flushing to disk, under a load of updates by key that is paced and not saturating. The load is
//! measured by the kind of key: of the table that moves, and of others. Each line shows what is wanted beside what was measured.
//!
//! Set by the environment: `BENCH_MOVE_MB` (what is moved), `BENCH_MOVE_RATE` (updates a second), `BENCH_MOVE_CLIENTS`,
//! `BENCH_MOVE_CUTOVERS`, `BENCH_SECONDS` (of the load alone), `BENCH_ONLY` (`copies` or `pauses`).

#[allow(dead_code, unused_imports, reason = "the tests need more of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

mod copies;
mod load;
mod pauses;
#[path = "../report.rs"]
mod report;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::Client;

use self::report::number;
use self::support::{Cluster, Proxy, ProxyOptions};

/// What a run is made of.
pub struct Settings {
    pub megabytes: usize,
    pub rate: usize,
    pub clients: usize,
    pub cutovers: usize,
    pub alone: Duration,
}

/// The servers, the proxy, and a client of each.
pub struct Scene {
    pub cluster: Cluster,
    pub proxy: Proxy,
    pub admin: Client,
    pub map: Client,
}

fn main() {
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let settings = Settings {
        megabytes: number("BENCH_MOVE_MB", 1024.0) as usize,
        rate: number("BENCH_MOVE_RATE", 500.0) as usize,
        clients: number("BENCH_MOVE_CLIENTS", 8.0) as usize,
        cutovers: number("BENCH_MOVE_CUTOVERS", 50.0) as usize,
        alone: Duration::from_secs_f64(number("BENCH_SECONDS", 6.0)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    if "copies".contains(&only) {
        runtime.block_on(copies::run(&settings));
    }
    if "pauses".contains(&only) {
        runtime.block_on(pauses::run(&settings));
    }
}

impl Scene {
    /// Shard `a` with these tables, of which each is sharded, and shard `b` with nothing.
    pub async fn start(tables: &[(&str, usize, usize)]) -> Self {
        let cluster = Cluster::start_with(2, SERVER_SETTINGS).await;
        let settings = vec![("log.level", "warn".to_owned())];
        let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
        let admin = proxy.connect().await;
        admin.batch_execute(&format!("SELECT shardgate.add_shard('a', '{}')", cluster.shard_url(0))).await.expect("add a shard");
        for (table, rows, partitions) in tables {
            let create = format!(
                "CREATE TABLE {table} (id bigint PRIMARY KEY, n bigint NOT NULL, body text NOT NULL);
                 SELECT shardgate.distribute_table('{table}', 'id', partitions => {partitions})"
            );
            admin.batch_execute(&create).await.expect("a table");
            // Past the proxy: a preparation.
            let fill =
                format!("INSERT INTO {table} SELECT g, 0, repeat('x', {BODY}) FROM generate_series(1, {rows}) g; ANALYZE {table}");
            cluster.connect_shard(0).await.batch_execute(&fill).await.expect("rows");
        }
        admin.batch_execute(&format!("SELECT shardgate.add_shard('b', '{}')", cluster.shard_url(1))).await.expect("add a shard");
        let map = cluster.connect_map().await;
        Self { cluster, proxy, admin, map }
    }

    /// Partitions of the table's group on a shard, by where they begin.
    pub async fn partitions(&self, table: &str, shard: &str) -> Vec<i32> {
        let sql = format!(
            "SELECT p.partition_id FROM shardgate.partitions p JOIN shardgate.tables t ON t.colocation_group = p.colocation_group
             WHERE t.table_name = '{table}' AND p.shard = '{shard}' ORDER BY p.low::bigint NULLS FIRST"
        );
        self.admin.query(&sql, &[]).await.expect("partitions").iter().map(|row| row.get(0)).collect()
    }

    /// The command, to its end; gives what it shows, and when it began and ended.
    pub async fn rebalance(&self, arguments: &[&str]) -> (Value, Instant, Instant) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shard-rebalance"));
        command.args(arguments).args(["--json", "--map", &self.cluster.map_url()]).env_remove("SHARDMAP_URL");
        let began = Instant::now();
        let run = tokio::task::spawn_blocking(move || command.output().expect("run shard-rebalance"));
        let output = run.await.expect("it runs");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}\n{err}");
        (serde_json::from_str(&out).unwrap_or_default(), began, Instant::now())
    }
}

/// By its place: 0.5 is the middle one.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// Of a row, beside its numbers: about a kilobyte in all.
pub const BODY: usize = 960;
pub const ROW_BYTES: usize = 1024;

const SERVER_SETTINGS: &[(&str, &str)] =
    &[("shared_buffers", "512MB"), ("max_connections", "200"), ("max_wal_size", "8GB"), ("wal_retrieve_retry_interval", "100ms")];
