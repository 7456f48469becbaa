//! What statements over several shards cost: TPC-H in two layouts against one PostgreSQL, the proxy's share of scans, sorted pages
//! and aggregates, commits and copies.
//!
//! One server hosts every database, so both sides have the same processors and the same memory. Every query runs on both in turn,
//! in every round; the medians are printed. CPU is the proxy process's own accounting by the kernel.
//!
//! Set by the environment: `BENCH_TPCH_SCALE` (1: 8.6 million rows), `BENCH_ROUNDS`, `BENCH_ONLY` (`tpch`, `rows` or `writes`),
//! `BENCH_QUERY` (a number).

#[allow(dead_code, unused_imports, reason = "the tests need more of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

#[path = "../report.rs"]
mod report;
mod rows;
mod tpch;
mod writes;

use tokio_postgres::Client;

use crate::report::number;
use crate::support::Cluster;

fn main() {
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let rounds = number("BENCH_ROUNDS", 3.0) as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    if "rows".contains(&only) {
        runtime.block_on(rows::run());
    }
    if "writes".contains(&only) {
        runtime.block_on(writes::run(rounds));
    }
    if "tpch".contains(&only) {
        let query = std::env::var("BENCH_QUERY").ok().map(|_| number("BENCH_QUERY", 0.0) as usize);
        runtime.block_on(tpch::run(number("BENCH_TPCH_SCALE", 1.0), rounds, query));
    }
}

/// The table of what is measured on rows and writes, over all shards of the cluster.
async fn distribute_items(client: &Client, cluster: &Cluster) {
    for shard in 0..cluster.shard_count() {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        client.batch_execute(&add).await.expect("add a shard");
    }
    client.batch_execute("CREATE TABLE items (id bigint PRIMARY KEY, kind int, body text)").await.expect("create the table");
    client.batch_execute("SELECT shardgate.distribute_table('items', 'id', partitions => 12)").await.expect("distribute the table");
}

const SERVER_SETTINGS: &[(&str, &str)] = &[("shared_buffers", "512MB"), ("max_connections", "200"), ("autovacuum", "off")];
