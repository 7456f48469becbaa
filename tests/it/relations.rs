//! The relations of the schema `shardgate` and reference tables beside statements for shards.

use crate::support::{Cluster, Proxy, ProxyOptions};

/// Two shards, a sharded table `t` with a row, a reference table `r` with a row.
async fn proxy(cluster: &Cluster) -> Proxy {
    let proxy = Proxy::start(cluster, ProxyOptions::default());
    let client = proxy.connect().await;
    for shard in 0..2 {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        client.batch_execute(&add).await.expect("add a shard");
    }
    for statement in [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE r (id int PRIMARY KEY)",
        "INSERT INTO r VALUES (7)",
        "SELECT shardgate.distribute_table('t', 'id')",
        "SELECT shardgate.reference_table('r')",
        "INSERT INTO t VALUES (1)",
    ] {
        client.batch_execute(statement).await.expect(statement);
    }
    proxy
}

#[tokio::test]
async fn reading_the_map_in_a_transaction_leads_no_other_statement_there() {
    let cluster = Cluster::start(2).await;
    let proxy = proxy(&cluster).await;
    let client = proxy.connect().await;
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
        client.batch_execute(begin).await.expect(begin);
        let shards = client.query("SELECT name FROM shardgate.shards", &[]).await.expect("the map's relation");
        assert_eq!(shards.len(), 2);
        // Neither is there, and the map is no shard whose snapshot the transaction would share.
        client.query_one("SELECT id FROM r", &[]).await.expect("the reference table");
        client.query_one("SELECT id FROM t WHERE id = 1", &[]).await.map(drop).or_else(second_shard).expect("the sharded table");
        client.batch_execute("ROLLBACK").await.expect("rollback");
    }
    client.batch_execute("BEGIN; SELECT name FROM shardgate.shards").await.expect("the map's relation");
    let database: String = client.query_one("SELECT current_database()::text", &[]).await.expect("without a table").get(0);
    assert_ne!(database, "map");
    client.batch_execute("ROLLBACK").await.expect("rollback");
}

/// The row of `t` may lie on another shard than the one that the reference table was read from.
fn second_shard(error: tokio_postgres::Error) -> Result<(), tokio_postgres::Error> {
    match error.code().map(tokio_postgres::error::SqlState::code) {
        Some("0A000") if error.as_db_error().is_some_and(|error| error.message().contains("a second shard")) => Ok(()),
        Some(_) | None => Err(error),
    }
}

#[tokio::test]
async fn a_reference_table_is_read_from_a_shard_that_is_there() {
    let mut cluster = Cluster::separate_servers(2).await;
    let proxy = proxy(&cluster).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(proxy.connect().await);
    }
    cluster.shard_server_mut(1).kill().expect("kill a shard");
    // One may find that a connection which was open is gone, one that none can be opened; nobody has to after that.
    let mut failures = 0;
    for client in &clients {
        failures += usize::from(client.query_one("SELECT id FROM r", &[]).await.is_err());
    }
    assert!(failures <= 2, "{failures} of 16 sessions failed");
    for client in &clients {
        client.query_one("SELECT id FROM r", &[]).await.expect("the other shard has it");
    }
}
