//! Partitions that move between shards while applications use them: nothing lost, nothing counted twice, nobody told.

mod aborts;
mod crossings;
mod fail_overs;
mod frozen;
mod given_up;
mod interrupted;
mod keys;
mod kills;
mod long_readers;
mod matrix;
mod operators;
mod partitioned;
mod partitions;
mod plans;
mod planted;
mod references;
mod rollbacks;
mod under_load;
mod views;

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Cluster, Proxy};

/// `shard-rebalance` with these arguments, in a thread of its own.
pub async fn rebalance(cluster: &Cluster, arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let map = cluster.map_url();
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_shard-rebalance"))
            .args(arguments)
            .args(["--map", &map])
            .env_remove("SHARDMAP_URL")
            .output()
            .expect("run shard-rebalance")
    };
    tokio::task::spawn_blocking(run).await.expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Moves partitions, waits for the end, and gives what the command shows of it.
pub async fn move_partitions(cluster: &Cluster, partitions: &[i32], target: &str) -> Value {
    let list: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let arguments = ["move", "--partition", &list.join(","), "--to", target, "--finish", "--json"];
    let output = rebalance(cluster, &arguments).await;
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The partitions of a table's group on a shard, by id.
pub async fn partitions_on(proxy: &Proxy, table: &str, shard: &str) -> Vec<i32> {
    let sql = format!(
        "SELECT p.partition_id FROM shardgate.partitions p JOIN shardgate.tables t ON t.colocation_group = p.colocation_group
         WHERE t.table_name = '{table}' AND p.shard = '{shard}' ORDER BY 1"
    );
    let rows = proxy.connect().await.query(&sql, &[]).await.expect("partitions");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Nothing of a move is left on a shard: no slot, publication, subscription, trigger, gate, residue, covering view.
pub async fn leftovers(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for shard in 0..cluster.shard_count() {
        let client = cluster.connect_shard(shard).await;
        let rows = client
            .query(
                "SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
                 UNION ALL SELECT 'publication ' || pubname FROM pg_publication
                 UNION ALL SELECT 'subscription ' || subname FROM pg_subscription
                     WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                 UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname ~ '^(00|zz)_shardgate'
                 UNION ALL SELECT 'gate ' || relname FROM pg_class WHERE relname LIKE 'gate_%' AND relkind = 'r'
                 UNION ALL SELECT 'view ' || relname FROM pg_class WHERE relnamespace = 'shardgate'::regnamespace AND relname LIKE 'view_%'
                 UNION ALL SELECT 'residue ' || move_id FROM shardgate.residue",
                &[],
            )
            .await
            .expect("leftovers");
        found.extend(rows.iter().map(|row| format!("shard{shard}: {}", row.get::<_, String>(0))));
    }
    found
}
