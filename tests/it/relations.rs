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

/// In FROM, with columns, conditions and joins, as PostgreSQL would take such a function.
#[tokio::test]
async fn functions_that_return_rows_are_selected_from() {
    let cluster = Cluster::start(2).await;
    let proxy = proxy(&cluster).await;
    let client = proxy.connect().await;
    let (partition, shard): (i32, String) = {
        let row = client.query_one("SELECT * FROM shardgate.locate('t', '1')", &[]).await.expect("the whole row");
        (row.get(0), row.get(1))
    };
    for text in [
        "SELECT shard FROM shardgate.locate('t', '1')",
        "SELECT l.shard FROM shardgate.locate('t', '1') AS l WHERE l.epoch > 0 AND partition_id = partition_id",
        "SELECT where_it_is FROM shardgate.locate('public.t', VARIADIC ARRAY['1']) AS l (p, where_it_is) ORDER BY p LIMIT 5",
        "SELECT s.name FROM shardgate.shards s JOIN shardgate.locate('t', '1') l ON l.shard = s.name",
        "SELECT (SELECT shard FROM shardgate.locate('t', '1'))",
        "WITH l AS (SELECT * FROM shardgate.locate('t', '1')) SELECT lower(l.shard) FROM l",
    ] {
        let rows = client.simple_query(text).await.expect(text);
        let found: Vec<&str> = rows
            .iter()
            .filter_map(|row| if let tokio_postgres::SimpleQueryMessage::Row(row) = row { row.get(0) } else { None })
            .collect();
        assert_eq!(found, [shard.as_str()], "{text}");
        assert_eq!(client.query_one(text, &[]).await.expect(text).get::<_, String>(0), shard, "{text}");
    }
    let none = "SELECT shard FROM shardgate.locate('t', '1') WHERE shard = 'elsewhere'";
    assert!(client.query(none, &[]).await.expect(none).is_empty());
    // Types are the function's, parameters are found by it, and each call has its own rows.
    let prepared = client
        .prepare("SELECT partition_id, shard, epoch FROM shardgate.locate($1, $2) WHERE shard <> $3")
        .await
        .expect("prepared");
    for key in ["1", "2", "3"] {
        let row = client.query_one(&prepared, &[&"t", &key, &"nowhere"]).await.expect("a row");
        let whole = client.query_one(&format!("SELECT * FROM shardgate.locate('t', '{key}')"), &[]).await.expect("the whole row");
        assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1), row.get::<_, i64>(2)), (whole.get(0), whole.get(1), whole.get(2)));
    }
    let two = "SELECT a.partition_id, b.partition_id FROM shardgate.locate('t', '1') a, shardgate.locate('t', '2') b";
    let row = client.query_one(two, &[]).await.expect(two);
    let other: i32 = client.query_one("SELECT partition_id FROM shardgate.locate('t', '2')", &[]).await.expect("a row").get(0);
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (partition, other));
    for (text, code) in [
        ("SELECT shard FROM shardgate.locate('nothing', '1')", "42P01"),
        ("SELECT shard FROM shardgate.locate('t', 1)", "42883"),
        ("SELECT nothing FROM shardgate.locate('t', '1')", "42703"),
        ("SELECT l.shard FROM shardgate.shards s, LATERAL shardgate.locate('t', s.name) l", "0A000"),
        ("SELECT l.shard FROM t, shardgate.locate('t', '1') l", "0A000"),
        ("SELECT name FROM shardgate.add_shard('x', 'y') AS a (name)", "0A000"),
    ] {
        let error = client.simple_query(text).await.expect_err(text);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(code), "{text}: {error:?}");
    }
}
