//! pgbench's accounts: on one plain database, and sharded by hash.
//!
//! The shards are filled directly, each with the rows whose hash lies in its partitions: this is a preparation, not a
//! measurement of loading.

use tokio_postgres::Client;

use crate::support::{Cluster, Proxy};

pub const ROWS_PER_SCALE: usize = 100_000;

pub async fn fill_plain(client: &Client, scale: usize) {
    client.batch_execute(TABLE).await.expect("create the table");
    client.batch_execute(FUNCTIONS).await.expect("create the functions");
    client.batch_execute(&insert(scale, "true")).await.expect("fill the table");
    client.batch_execute("VACUUM ANALYZE pgbench_accounts").await.expect("vacuum");
}

pub async fn fill_sharded(proxy: &Proxy, cluster: &Cluster, shards: usize, scale: usize) {
    let client = proxy.connect().await;
    for shard in 0..shards {
        let url = cluster.shard_url(shard);
        client.batch_execute(&format!("SELECT shardgate.add_shard('shard{shard}', '{url}')")).await.expect("add a shard");
    }
    client.batch_execute(TABLE).await.expect("create the table");
    client.batch_execute(FUNCTIONS).await.expect("create the functions");
    client.batch_execute("SELECT shardgate.declare_function('unproven')").await.expect("declare the function");
    let declare = format!("SELECT shardgate.distribute_table('pgbench_accounts', 'aid', partitions => {})", shards * 4);
    client.batch_execute(&declare).await.expect("distribute the table");
    let rows = client.query("SELECT shard, low, high FROM shardgate.partitions", &[]).await.expect("partitions");
    for shard in 0..shards {
        let name = format!("shard{shard}");
        let ranges: Vec<String> = rows.iter().filter(|row| row.get::<_, &str>(0) == name).map(range).collect();
        let direct = cluster.connect_shard(shard).await;
        direct.batch_execute(&insert(scale, &ranges.join(" OR "))).await.expect("fill a shard");
        direct.batch_execute("VACUUM ANALYZE pgbench_accounts").await.expect("vacuum");
    }
}

fn range(row: &tokio_postgres::Row) -> String {
    let low: Option<&str> = row.get(1);
    let high: Option<&str> = row.get(2);
    let low = low.map_or("true".to_owned(), |low| format!("hash >= {low}"));
    let high = high.map_or("true".to_owned(), |high| format!("hash < {high}"));
    format!("({low} AND {high})")
}

fn insert(scale: usize, condition: &str) -> String {
    let rows = scale * ROWS_PER_SCALE;
    format!(
        "INSERT INTO pgbench_accounts SELECT aid, (aid - 1) / {ROWS_PER_SCALE} + 1, 0, '' \
         FROM generate_series(1, {rows}) aid, hashint8extended(aid, 0) hash WHERE {condition}"
    )
}

const TABLE: &str =
    "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84)) WITH (fillfactor = 100)";

const FUNCTIONS: &str = "\
    CREATE FUNCTION proven(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN n; END $$;
    CREATE FUNCTION unproven(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT ' || n INTO n; RETURN n; END $$";
