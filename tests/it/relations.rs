//! The relations of the schema `shardgate` and reference tables beside statements for shards.

use crate::support::{Cluster, Proxy, ProxyOptions, WireClient, psql_output};

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
        "SELECT shard FROM shardgate.locate('t', VARIADIC '{1}')",
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
    for text in ["SELECT * FROM shardgate.locate($1, VARIADIC $2)", "SELECT l.* FROM shardgate.locate($1, VARIADIC $2) l"] {
        let row = client.query_one(text, &[&"t", &vec!["1"]]).await.expect(text);
        assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (partition, shard.as_str()), "{text}");
    }
    let text = "SELECT r.expected_seconds FROM shardgate.rebalance(threshold => $1, dry_run => $2) r";
    client.query(text, &[&0.5_f64, &true]).await.expect(text);
    // By SQL's PREPARE, too.
    let statements = "PREPARE located (text) AS SELECT shard FROM shardgate.locate('t', $1); PREPARE named AS SELECT shard FROM \
                      shardgate.locate('t', $1)";
    client.batch_execute(statements).await.expect(statements);
    for text in ["EXECUTE located('1')", "EXECUTE named('1')"] {
        assert_eq!(client.query_one(text, &[]).await.expect(text).get::<_, String>(0), shard, "{text}");
    }
    // By the types of the parameters, whatever their bytes look like.
    let spread = client.query_one("SELECT * FROM shardgate.locate('t', $1)", &[&"\t 1 "]).await.map(|row| row.get::<_, i32>(0));
    assert_eq!(spread.expect("a number with blanks"), partition);
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
    // A relation that the path finds first is the one that is meant.
    client
        .batch_execute("CREATE SCHEMA app; CREATE TABLE app.t (id int); SET search_path = app, public")
        .await
        .expect("a home table");
    let error = client.simple_query("SELECT * FROM shardgate.locate('t', '1')").await.expect_err("app.t is no sharded table");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42P01"), "{error:?}");
    client.batch_execute("RESET search_path; DROP SCHEMA app CASCADE").await.expect("as before");
    what_changes_the_map_is_selected_from(&client, &cluster).await;
    errors_come_before_a_call_with_parameters(&proxy, &cluster).await;
    both_know_the_same_functions(&client, &cluster).await;
    their_columns_are_in_the_catalogue(&proxy, &client, &cluster).await;
}

/// It is called once, before the statement, and only where nothing else is wrong with that.
async fn what_changes_the_map_is_selected_from(client: &tokio_postgres::Client, cluster: &Cluster) {
    let map = cluster.connect_map().await;
    for statement in ["CREATE TABLE l (k text PRIMARY KEY)", "SELECT shardgate.distribute_table('l', 'k', 'lookup')"] {
        client.batch_execute(statement).await.expect(statement);
    }
    let mapped = async |key: &str| {
        let sql = "SELECT partition_id FROM shardgate.lookup_keys WHERE key = $1";
        map.query_opt(sql, &[&key]).await.expect(sql).map(|row| row.get::<_, i32>(0))
    };
    let numbers = client.query("SELECT u FROM shardgate.unique_id() AS u WHERE u > 0", &[]).await.expect("an id");
    assert_eq!(numbers.len(), 1);
    let call = |key: &str, name: &str| format!("shardgate.map_key('l', '{key}', 'shard1') AS {name}");
    let text = format!("SELECT p FROM {} WHERE p > 0 ORDER BY 1 LIMIT 1", call("a", "p"));
    let rows = client.query(&text, &[]).await.expect(&text);
    assert_eq!(rows.first().map(|row| row.get::<_, i32>(0)), mapped("a").await);
    assert!(mapped("a").await.is_some());
    let text = format!("SELECT m.p + 0 AS sum FROM {} WHERE m.p IS NOT NULL", call("b", "m (p)"));
    let rows = client.simple_query(&text).await.expect(&text);
    assert!(rows.iter().any(|row| matches!(row, tokio_postgres::SimpleQueryMessage::Row(_))) && mapped("b").await.is_some());
    // None of its rows, but it was called.
    let none = format!("SELECT 1 FROM {} WHERE p < 0", call("c", "p"));
    assert!(client.query(&none, &[]).await.expect(&none).is_empty() && mapped("c").await.is_some());
    let key = "SELECT p FROM shardgate.map_key('l', $1, shard => $2) AS p WHERE p <> $3";
    assert_eq!(client.query(key, &[&"d", &"shard0", &0]).await.expect(key).len(), 1);
    assert!(mapped("d").await.is_some());
    let dry = "SELECT count(*) FROM shardgate.rebalance(dry_run => true, \"by\" => 'count') r WHERE r.move_id IS NULL";
    client.query_one(dry, &[]).await.expect(dry);
    for (text, code) in [
        (format!("SELECT nothing FROM {}", call("z", "p")), "42703"),
        (format!("SELECT p.map_key FROM {}", call("z", "p")), "0A000"),
        (format!("SELECT p FROM {}, shardgate.shards", call("z", "p")), "0A000"),
        (format!("SELECT (SELECT p FROM {})", call("z", "p")), "0A000"),
        (format!("WITH w AS (SELECT p FROM {}) SELECT p FROM w", call("z", "p")), "0A000"),
        (format!("SELECT p FROM {} UNION SELECT 1", call("z", "p")), "0A000"),
        (format!("SELECT p, (SELECT q FROM {}) FROM {}", call("z", "q"), call("z", "p")), "0A000"),
        (format!("COPY (SELECT p FROM {}) TO STDOUT", call("z", "p")), "0A000"),
        (format!("DECLARE c CURSOR WITH HOLD FOR SELECT p FROM {}", call("z", "p")), "0A000"),
        (format!("EXPLAIN ANALYZE SELECT p FROM {}", call("z", "p")), "0A000"),
        (format!("CREATE TABLE made AS SELECT p FROM {}", call("z", "p")), "0A000"),
        (format!("INSERT INTO t SELECT p FROM {}", call("z", "p")), "0A000"),
        (format!("INSERT INTO t VALUES ((SELECT p FROM {}))", call("z", "p")), "0A000"),
        (format!("BEGIN; SELECT p FROM {}", call("z", "p")), "25001"),
        ("ROLLBACK; SELECT p FROM shardgate.map_key('l', 'z', 'nowhere') AS p".to_owned(), "42704"),
    ] {
        let error = client.simple_query(&text).await.expect_err(&text);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(code), "{text}: {error:?}");
        assert_eq!(mapped("z").await, None, "{text}");
    }
    client.batch_execute(&format!("EXPLAIN SELECT p FROM {}", call("z", "p"))).await.expect("what would be done");
    assert_eq!(mapped("z").await, None);
}

/// Of a statement that is bound without having been described.
async fn errors_come_before_a_call_with_parameters(proxy: &Proxy, cluster: &Cluster) {
    let mut client = WireClient::connect(proxy.address()).await;
    let key = |key: &str| format!("SELECT 1 FROM shardgate.lookup_keys WHERE key = '{key}'");
    let map = cluster.connect_map().await;
    for (columns, expected) in [("nothing", "E(42703 "), ("p + $2", "E(22P02 "), ("p", "C(SELECT 1)")] {
        let sql = format!("SELECT {columns} FROM shardgate.map_key('l', $1, 'shard1') AS p WHERE $2 <> 'x'");
        client.unnamed(&sql, &["y", "z"]).sync();
        let told = client.transcript().await;
        assert!(told.contains(expected), "{sql}: {told}");
        let is_called = !expected.starts_with('E');
        assert_eq!(map.query_opt(&key("y"), &[]).await.expect("the map").is_some(), is_called, "{sql}");
    }
    for (condition, value, expected) in
        [("p > $2", "x", "E(22P02 "), ("$2::date IS NULL", "soon", "E(22007 "), ("p > $2", "0", "D(")]
    {
        let sql = format!("SELECT p FROM shardgate.map_key('l', $1, 'shard1') AS p WHERE {condition}");
        client.unnamed(&sql, &["v", value]).sync();
        let told = client.transcript().await;
        assert!(told.contains(expected), "{sql}: {told}");
        assert_eq!(map.query_opt(&key("v"), &[]).await.expect("the map").is_some(), expected == "D(", "{sql}");
    }
    client.query("SELECT 1; SELECT nothing FROM shardgate.map_key('l', 'w', 'shard1') AS p");
    let error = client.answers().await.into_iter().find(|message| message.tag == b'E').expect("no such column");
    assert_eq!((error.field(b'C').as_str(), error.field(b'P').as_str()), ("42703", "18"));
    // What is named by a hint, the shards say.
    let hinted = client.ask("/* shardgate: shard=shard0 */ SELECT p FROM shardgate.map_key('l', 'w', 'shard1') AS p").await;
    assert!(hinted.contains("E("), "{hinted}");
    assert!(map.query_opt(&key("w"), &[]).await.expect("the map").is_none());
}

/// What may be selected from has the parameters in the map database that the proxy knows.
async fn both_know_the_same_functions(client: &tokio_postgres::Client, cluster: &Cluster) {
    let sql = "SELECT proname::text, pg_get_function_arguments(oid) FROM pg_proc WHERE pronamespace = 'shardgate'::regnamespace \
               AND prokind = 'f'";
    let there = cluster.connect_map().await.query(sql, &[]).await.expect(sql);
    let mut known = 0;
    for row in there {
        let (name, arguments): (String, String) = (row.get(0), row.get(1));
        let types = ["::text[]", "::text", "::double precision", "::integer", "::boolean", "::jsonb"];
        let arguments = types.iter().fold(arguments, |arguments, of_type| arguments.replace(of_type, ""));
        let arguments = arguments.split(", OUT ").next().unwrap_or_default().to_owned();
        let wrong = format!("SELECT shardgate.{name}(nothing => 1)");
        let error = client.simple_query(&wrong).await.expect_err(&wrong);
        let hint = error.as_db_error().and_then(|error| error.hint()).unwrap_or_default().to_owned();
        assert_eq!(hint, format!("The function is shardgate.{name}({arguments})."));
        known += 1;
    }
    assert_eq!(known, 14);
}

/// Of the home shard, which psql, editors and ORMs ask.
async fn their_columns_are_in_the_catalogue(proxy: &Proxy, client: &tokio_postgres::Client, cluster: &Cluster) {
    let sql = "SELECT c.relname::text, string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) \
               FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
               WHERE c.relnamespace = 'shardgate'::regnamespace AND c.relkind = 'v' GROUP BY 1 ORDER BY 1";
    let rows = |rows: Vec<tokio_postgres::Row>| rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(String, String)>>();
    let known = rows(cluster.connect_map().await.query(sql, &[]).await.expect(sql));
    assert_eq!(rows(client.query(sql, &[]).await.expect(sql)), known);
    assert_eq!(known.len(), 11);
    let shard = cluster.connect_shard(0).await;
    for (relation, columns) in &known {
        let told = psql_output(&proxy.conninfo(), &["-c", &format!("\\d shardgate.{relation}")]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let first = columns.split([',', ' ']).next().expect("a column");
        assert!(told.contains(&format!("View \"shardgate.{relation}\"")) && told.contains(&format!("\n {first} ")), "{told}");
        client.query(&format!("SELECT * FROM shardgate.{relation}"), &[]).await.expect(relation);
        // Without a proxy it is not empty, but an error.
        let error = shard.simple_query(&format!("SELECT count(*) FROM shardgate.{relation}")).await.expect_err(relation);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("0A000"), "{error:?}");
    }
    let visible = "SELECT to_regclass('shardgate.shards') IS NOT NULL AND has_table_privilege('shardgate.shards', 'SELECT')";
    assert!(client.query_one(visible, &[]).await.expect(visible).get::<_, bool>(0));
}
