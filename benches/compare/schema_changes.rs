//! What a schema change costs beside many tables: PostgreSQL itself, and Shardgate before one shard and before three.
//!
//! One client, one statement after the other, in clusters of their own: other workloads are measured beside one table. Flushes to
//! disk are left out, as everywhere here; a change on several shards needs more of them than one on PostgreSQL.

use std::time::Instant;

use tokio_postgres::Client;

use crate::report::{median, print_table};
use crate::support::{Cluster, Proxy, ProxyOptions, connect};
use crate::targets::SERVER_SETTINGS;

pub async fn print() {
    println!("\nschema changes beside {TABLES} tables: one client, median of {REPEATS}");
    let plain = Cluster::start_with(0, SERVER_SETTINGS).await;
    let direct = connect(&plain.map_server().url("postgres")).await;
    direct.batch_execute(&tables()).await.expect("create the tables");
    let mut rows = vec![row("direct", &direct).await];
    for shards in [1, 3] {
        let cluster = Cluster::start_with(shards, SERVER_SETTINGS).await;
        for shard in 0..shards {
            cluster.connect_shard(shard).await.batch_execute(&tables()).await.expect("create the tables");
        }
        let proxy = Proxy::start(&cluster, ProxyOptions::default());
        let client = proxy.connect().await;
        for shard in 0..shards {
            let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
            client.batch_execute(&add).await.expect("add a shard");
        }
        rows.push(row(&format!("Shardgate, {shards} shards"), &client).await);
    }
    let header: Vec<&str> = std::iter::once("").chain(CHANGES.iter().map(|(name, _)| *name)).collect();
    print_table(&header, rows.into_iter());
}

async fn row(target: &str, client: &Client) -> Vec<String> {
    let mut times = vec![Vec::with_capacity(REPEATS); CHANGES.len()];
    for _ in 0..REPEATS {
        for ((_, sql), times) in CHANGES.iter().zip(&mut times) {
            let begun = Instant::now();
            client.batch_execute(sql).await.expect(sql);
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let medians = times.into_iter().map(|times| format!("{:.1}", median(times.into_iter())));
    std::iter::once(target.to_owned()).chain(medians).collect()
}

fn tables() -> String {
    format!(
        "DO $$ BEGIN FOR i IN 1..{TABLES} LOOP \
         EXECUTE format('CREATE TABLE t%s (id bigserial PRIMARY KEY, tenant bigint NOT NULL, name text DEFAULT ''x'', \
                         amount numeric(10,2) CHECK (amount > 0), at timestamptz DEFAULT now())', i); \
         EXECUTE format('CREATE INDEX ON t%s (tenant, name)', i); END LOOP; END $$"
    )
}

/// By what the table calls them, in milliseconds.
const CHANGES: [(&str, &str); 4] = [
    ("CREATE TABLE, ms", "CREATE TABLE made (id int PRIMARY KEY, n int, name text DEFAULT 'a')"),
    ("ADD COLUMN, ms", "ALTER TABLE made ADD COLUMN x int DEFAULT 3 NOT NULL"),
    ("CREATE INDEX, ms", "CREATE INDEX ON made (n)"),
    ("DROP TABLE, ms", "DROP TABLE made"),
];
const TABLES: usize = 1000;
const REPEATS: usize = 20;
