//! Prepared statements outlive what happens to connections and tables.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_outlive_connections_and_schema_changes() {
    let settings = [("pool.size_per_shard", "3".to_owned()), ("cross_shard.prepared_statements_max", "20".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    terminated_connections(&stage).await;
    prepared_in_sql(&stage).await;
    schema_changes(&stage).await;
    search_paths(&stage).await;
    more_texts_than_a_connection_keeps(&stage).await;
    a_driver(&stage).await;
    stage.assert_log_is_clean();
}

async fn owner_of(client: &mut WireClient, key: i64) -> String {
    client.bind("", "s", &[&key.to_string()]).execute("", 0).sync();
    client.transcript().await
}

/// Somebody ends all idle connections on the shards: the next statement of each client does not notice.
async fn terminated_connections(stage: &Stage) {
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = stage.client().await;
        client.parse("s", "SELECT owner FROM accounts WHERE id = $1").sync();
        assert_eq!(client.transcript().await, "1 Z(I)");
        clients.push(client);
    }
    let direct = stage.cluster.connect_shard(0).await;
    for round in 0..3 {
        for client in &mut clients {
            for key in [stage.key(0, round), stage.key(1, round)] {
                assert_eq!(owner_of(client, key).await, format!("2 D(o{key}) C(SELECT 1) Z(I)"), "round {round}");
            }
        }
        let terminate = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                         WHERE datname IN ('shard0', 'shard1') AND state = 'idle' AND pid <> pg_backend_pid()";
        direct.query(terminate, &[]).await.expect("ended");
    }
}

/// PREPARE in SQL belongs to its client, wherever its connections go, and shares its names with the protocol's statements.
async fn prepared_in_sql(stage: &Stage) {
    let (mut one, mut other) = (stage.client().await, stage.client().await);
    succeed(&mut one, "PREPARE p (bigint) AS SELECT owner FROM accounts WHERE id = $1").await;
    succeed(&mut other, "PREPARE p (text) AS SELECT name FROM currencies WHERE code = $1").await;
    let direct = stage.cluster.connect_shard(0).await;
    for round in 0..3 {
        for key in [stage.key(0, round), stage.key(1, round)] {
            assert_eq!(one.value(&format!("EXECUTE p({key})")).await, format!("o{key}"));
            assert_eq!(one.value(&format!("BEGIN; EXECUTE p({key}); COMMIT")).await, format!("o{key}"));
            assert_eq!(other.value("EXECUTE p('EUR')").await, "Euro");
        }
        let terminate = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                         WHERE datname IN ('shard0', 'shard1') AND state = 'idle' AND pid <> pg_backend_pid()";
        direct.query(terminate, &[]).await.expect("ended");
    }
    // One namespace.
    let (key, next) = (stage.key(1, 0), stage.key(0, 0));
    one.parse("p", "SELECT 1").sync();
    assert!(one.transcript().await.starts_with("E(42P05 "));
    one.bind("", "p", &[&key.to_string()]).execute("", 0).sync();
    assert_eq!(one.transcript().await, format!("2 D(o{key}) C(SELECT 1) Z(I)"));
    one.parse("q", "SELECT owner FROM accounts WHERE id = $1").sync();
    assert_eq!(one.transcript().await, "1 Z(I)");
    assert_eq!(one.value(&format!("EXECUTE q({key})")).await, format!("o{key}"));
    // In its place among other messages, and in their transaction.
    let update = format!("EXECUTE u({key}, 7)");
    succeed(&mut one, "PREPARE u AS UPDATE accounts SET balance = $2 WHERE id = $1 RETURNING balance").await;
    one.unnamed(&format!("EXECUTE p({next})"), &[]).unnamed(&update, &[]).unnamed(&format!("EXECUTE q({key})"), &[]);
    one.unnamed("SELECT 1 / 0", &[]).sync();
    let told = one.transcript().await;
    let expected = format!("1 2 D(o{next}) C(SELECT 1) 1 2 D(7) C(UPDATE 1) 1 2 D(o{key}) C(SELECT 1) ");
    assert!(told.starts_with(&expected) && told.contains("E(22012 "), "{told}");
    assert_eq!(one.value(&format!("SELECT balance FROM accounts WHERE id = {key}")).await, "100", "undone with its pipeline");
    one.parse("", &format!("EXECUTE p({key})")).describe(b'S', "").bind("", "", &[]).describe(b'P', "").execute("", 0).sync();
    assert_eq!(one.transcript().await, format!("1 t(0 parameters) T(owner) 2 T(owner) D(o{key}) C(SELECT 1) Z(I)"));
    let second = stage.fill_in("BEGIN; EXECUTE u({a}, 1)");
    succeed(&mut one, &second).await;
    assert!(one.ask(&update).await.contains("C(UPDATE 1)"), "a second shard is written");
    succeed(&mut one, "ROLLBACK; DEALLOCATE ALL").await;
    assert!(one.ask(&update).await.starts_with("E(26000 "));
    assert!(one.ask("PREPARE sg_1 AS SELECT 1").await.starts_with("E(0A000 "));
    assert!(one.ask("PREPARE s AS SELECT set_config('work_mem', '1MB', false)").await.starts_with("E(0A000 "));
}

/// "cached plan must not change result type" is the proxy's affair, whoever changed what.
async fn schema_changes(stage: &Stage) {
    let (mut changer, mut here, mut there) = (stage.client().await, stage.client().await, stage.client().await);
    let all = stage.fill_in("SELECT * FROM accounts WHERE id = {z}");
    for client in [&mut changer, &mut here, &mut there] {
        client.parse("all", &all).parse("notes", "SELECT * FROM notes").sync();
        assert_eq!(client.transcript().await, "1 1 Z(I)");
    }
    let key = stage.key(1, 0);
    let changes = [
        ("ALTER TABLE accounts ADD COLUMN extra int DEFAULT 5", format!("2 D({key},o{key},100,5) C(SELECT 1) 2 C(SELECT 0) Z(I)")),
        (
            "ALTER TABLE accounts ALTER COLUMN extra TYPE text USING 'e' || extra",
            format!("2 D({key},o{key},100,e5) C(SELECT 1) 2 C(SELECT 0) Z(I)"),
        ),
        ("ALTER TABLE accounts DROP COLUMN extra", format!("2 D({key},o{key},100) C(SELECT 1) 2 C(SELECT 0) Z(I)")),
        ("ALTER TABLE notes ADD COLUMN more int", format!("2 D({key},o{key},100) C(SELECT 1) 2 C(SELECT 0) Z(I)")),
    ];
    for (change, expected) in &changes {
        for client in [&mut changer, &mut here, &mut there] {
            client.bind("", "all", &[]).execute("", 0).bind("", "notes", &[]).execute("", 0).sync();
            assert!(client.transcript().await.ends_with("Z(I)"));
        }
        succeed(&mut changer, change).await;
        for client in [&mut here, &mut changer, &mut there] {
            client.bind("", "all", &[]).execute("", 0).bind("", "notes", &[]).execute("", 0).sync();
            assert_eq!(&client.transcript().await, expected, "after {change}");
        }
    }
    // A new table under the old name.
    succeed(&mut changer, "DROP TABLE notes").await;
    here.bind("", "notes", &[]).execute("", 0).sync();
    assert!(here.transcript().await.contains("E(42P01 "));
    succeed(&mut changer, "CREATE TABLE notes (a text)").await;
    succeed(&mut changer, "INSERT INTO notes VALUES ('new')").await;
    here.bind("", "notes", &[]).execute("", 0).sync();
    assert_eq!(here.transcript().await, "2 D(new) C(SELECT 1) Z(I)");
}

/// The same text means another table for who has another search path; connections are shared all the same.
async fn search_paths(stage: &Stage) {
    let mut client = stage.client().await;
    for statement in [
        "CREATE SCHEMA a",
        "CREATE TABLE a.t (n int)",
        "INSERT INTO a.t VALUES (1)",
        "CREATE SCHEMA b",
        "CREATE TABLE b.t (n text, m int)",
        "INSERT INTO b.t VALUES ('x', 2)",
    ] {
        succeed(&mut client, statement).await;
    }
    for _ in 0..3 {
        for (path, row) in [("a", "1"), ("b", "x,2")] {
            let options = format!("-c search_path={path}");
            let parameters = [("user", "postgres"), ("database", "app"), ("options", &options)];
            let mut client = WireClient::connect_with(stage.proxy.address(), &parameters).await;
            client.unnamed("SELECT * FROM t", &[]).sync();
            assert_eq!(client.transcript().await, format!("1 2 D({row}) C(SELECT 1) Z(I)"), "in {path}");
            client.parse("s", "SELECT * FROM t").describe(b'S', "s").bind("", "s", &[]).execute("", 0).sync();
            let columns = if path == "a" { "n" } else { "n,m" };
            assert_eq!(
                client.transcript().await,
                format!("1 t(0 parameters) T({columns}) 2 D({row}) C(SELECT 1) Z(I)"),
                "in {path}"
            );
        }
    }
}

async fn more_texts_than_a_connection_keeps(stage: &Stage) {
    let mut client = stage.client().await;
    for number in 0..20 {
        client.parse(&format!("s{number}"), &format!("SELECT owner, {number} FROM accounts WHERE id = $1"));
    }
    client.sync();
    assert_eq!(client.transcript().await, format!("{}Z(I)", "1 ".repeat(20)));
    let mut other = stage.client().await;
    for round in 0..3 {
        for number in 0..20 {
            let key = stage.key(number % 2, round);
            client.bind("", &format!("s{number}"), &[&key.to_string()]).execute("", 0).sync();
            assert_eq!(client.transcript().await, format!("2 D(o{key},{number}) C(SELECT 1) Z(I)"));
            other.unnamed(&format!("SELECT owner, 1{number} FROM accounts WHERE id = $1"), &[&key.to_string()]).sync();
            assert_eq!(other.transcript().await, format!("1 2 D(o{key},1{number}) C(SELECT 1) Z(I)"));
        }
    }
    client.parse("one too many", "SELECT 1").sync();
    assert!(client.transcript().await.starts_with("E(53400 "));
    client.close(b'S', "s0").parse("one more", "SELECT 1").sync();
    assert_eq!(client.transcript().await, "3 1 Z(I)");
}

/// As drivers do it: binary, inferred types, a statement used for many keys at once, transactions.
async fn a_driver(stage: &Stage) {
    let mut client = stage.proxy.connect().await;
    let select = client.prepare("SELECT owner, balance, id FROM accounts WHERE id = $1 AND balance >= $2").await.expect("prepared");
    let keys: Vec<i64> = (0..10).flat_map(|nth| [stage.key(0, nth), stage.key(1, nth)]).collect();
    let asked = keys.iter().map(|key| {
        let (client, select) = (&client, &select);
        async move { (key, client.query_one(select, &[key, &0_i32]).await.expect("a row")) }
    });
    for (key, row) in futures::future::join_all(asked).await {
        assert_eq!((row.get::<_, String>(0), row.get::<_, i32>(1), row.get::<_, i64>(2)), (format!("o{key}"), 100, *key));
    }
    let update =
        client.prepare("UPDATE accounts SET balance = balance + $2 WHERE id = $1 RETURNING balance").await.expect("prepared");
    let transaction = client.transaction().await.expect("begun");
    assert_eq!(transaction.query_one(&update, &[&keys[1], &11_i32]).await.expect("updated").get::<_, i32>(0), 111);
    assert_eq!(transaction.query_one(&select, &[&keys[0], &0_i32]).await.expect("read").get::<_, i32>(1), 100);
    transaction.rollback().await.expect("rolled back");
    assert_eq!(client.query_one(&select, &[&keys[1], &0_i32]).await.expect("read").get::<_, i32>(1), 100);
    let error = client.query_one(&update, &[&keys[1], &-1000_i32]).await.expect_err("refused");
    let error = error.as_db_error().expect("PostgreSQL's own").clone();
    assert_eq!(
        (error.code().code(), error.constraint(), error.table()),
        ("23514", Some("accounts_balance_check"), Some("accounts"))
    );
    assert_eq!(
        client.query("SELECT id FROM accounts WHERE id = ANY($1) ORDER BY id", &[&keys]).await.expect("rows").len(),
        keys.len()
    );
}

/// EXECUTE of a write over several shards is part of its pipeline, as any statement.
#[tokio::test]
async fn what_is_executed_on_several_shards_belongs_to_the_pipeline() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "PREPARE add(int) AS UPDATE accounts SET balance = balance + $1").await;
    client.unnamed("EXECUTE add(1)", &[]).unnamed("SELECT 1 / 0", &[]).sync();
    let told = client.transcript().await;
    assert!(told.starts_with("1 2 C(UPDATE 90) ") && told.contains("E(22012 "), "{told}");
    assert_eq!(client.value("SELECT sum(balance) FROM accounts").await, "9000");
    client.unnamed("EXECUTE add(1)", &[]).unnamed("EXECUTE add(2)", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(UPDATE 90) 1 2 C(UPDATE 90) Z(I)");
    assert_eq!(client.value("SELECT sum(balance) FROM accounts").await, "9270");
    client.unnamed("EXECUTE add(-500)", &[]).sync();
    assert!(client.transcript().await.contains("E(23514 "));
    assert_eq!(client.value("SELECT sum(balance) FROM accounts").await, "9270");
    stage.assert_log_is_clean();
}
