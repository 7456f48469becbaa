//! Prepared statements outlive what happens to connections and tables.

use super::gathered::until_gone;
use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_outlive_connections_and_schema_changes() {
    let settings = [("pool.size_per_shard", "3".to_owned()), ("cross_shard.prepared_statements_max", "20".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    terminated_connections(&stage).await;
    prepared_in_sql(&stage).await;
    search_paths(&stage).await;
    changes_beside_temporary_tables(&stage).await;
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

/// A driver keeps the columns of what it has prepared: when they change PostgreSQL says so, however the statement is asked for and
/// whoever has changed them, and works again once they are as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_change_are_refused_as_by_one_postgresql() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let other_proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut plain, mut plain_changer) = (stage.plain_client().await, stage.plain_client().await);
    let mut client = stage.client().await;
    let mut changers = [stage.client().await, WireClient::connect(other_proxy.address()).await];
    let statements = [
        "SELECT * FROM notes",
        "SELECT * FROM accounts WHERE id = {a}",
        "SELECT * FROM accounts WHERE id = {z}",
        "SELECT owner, balance FROM accounts WHERE id = {z}",
        "SELECT * FROM accounts ORDER BY id LIMIT 2",
        "SELECT a.* FROM accounts a JOIN accounts b ON a.balance = b.balance WHERE a.id = {z} AND b.id = {a}",
        "SELECT count(*) FROM accounts",
        "SELECT * FROM currencies ORDER BY code",
        "UPDATE accounts SET balance = balance WHERE id = {z} RETURNING *",
        "UPDATE accounts SET balance = balance RETURNING balance",
        "UPDATE accounts SET balance = balance WHERE id = {z}",
        "VALUES (1, 'a')",
    ];
    let changes = [
        ("ALTER TABLE accounts ADD COLUMN extra int", "ALTER TABLE accounts DROP COLUMN extra"),
        ("ALTER TABLE accounts ALTER COLUMN balance TYPE bigint", "ALTER TABLE accounts ALTER COLUMN balance TYPE int"),
        ("ALTER TABLE accounts ALTER COLUMN owner TYPE varchar(9)", "ALTER TABLE accounts ALTER COLUMN owner TYPE text"),
        ("ALTER TABLE accounts RENAME COLUMN owner TO holder", "ALTER TABLE accounts RENAME COLUMN holder TO owner"),
        ("ALTER TABLE accounts ALTER COLUMN owner SET NOT NULL", "ALTER TABLE accounts ALTER COLUMN owner DROP NOT NULL"),
        ("ALTER TABLE currencies ADD COLUMN extra int", "ALTER TABLE currencies DROP COLUMN extra"),
        ("ALTER TABLE notes ADD COLUMN extra int", "ALTER TABLE notes DROP COLUMN extra"),
        ("DROP TABLE notes", "CREATE TABLE notes (id int PRIMARY KEY, text text)"),
        ("CREATE TABLE more (id int)", "DROP TABLE more"),
    ];
    let statements = statements.map(|text| stage.fill_in(text));
    for (nth, (change, undo)) in changes.iter().enumerate() {
        for client in [&mut plain, &mut client] {
            for (number, text) in statements.iter().enumerate() {
                client.parse(&format!("bound{number}"), text).bind("", &format!("bound{number}"), &[]).execute("", 0);
                client.parse(&format!("described{number}"), text).describe(b'S', &format!("described{number}")).sync();
                client.transcript().await;
                succeed(client, &format!("PREPARE named{number} AS {text}")).await;
            }
            client.parse("execution", "EXECUTE named1").describe(b'S', "execution").sync();
            client.transcript().await;
        }
        let changer = &mut changers[nth % 2];
        for step in [change, undo] {
            succeed(&mut plain_changer, step).await;
            succeed(changer, step).await;
            for (number, text) in statements.iter().enumerate() {
                let told = after_a_change(&mut client, number, text).await;
                assert_eq!(told, after_a_change(&mut plain, number, text).await, "{text} after {step}");
            }
            for kind in [b'S', b'P'] {
                for client in [&mut plain, &mut client] {
                    if kind == b'P' {
                        client.bind("", "execution", &[]);
                    }
                    client.describe(kind, if kind == b'P' { "" } else { "execution" }).sync();
                }
                assert_eq!(client.transcript().await, plain.transcript().await, "EXECUTE after {step}");
            }
        }
        for client in [&mut plain, &mut client] {
            succeed(client, "DEALLOCATE ALL").await;
        }
    }
    stage.assert_log_is_clean();
}

/// Whatever way the statement is asked for, and what a new one of the same text answers.
async fn after_a_change(client: &mut WireClient, number: usize, text: &str) -> Vec<String> {
    let mut told = Vec::new();
    for name in [format!("bound{number}"), format!("described{number}")] {
        client.describe(b'S', &name).sync();
        told.push(client.transcript().await);
        client.bind("", &name, &[]).describe(b'P', "").execute("", 0).sync();
        told.push(client.transcript().await);
        client.bind("", &name, &[]).execute("", 0).sync();
        told.push(client.transcript().await);
    }
    told.push(client.ask(&format!("EXECUTE named{number}")).await);
    client.unnamed(text, &[]).sync();
    told.push(client.transcript().await);
    // In a transaction, which fails with it.
    succeed(client, "BEGIN").await;
    client.bind("", &format!("bound{number}"), &[]).execute("", 0).sync();
    told.push(client.transcript().await);
    told.push(client.ask("SELECT 1").await);
    succeed(client, "ROLLBACK").await;
    told
}

/// What a transaction has changed counts for itself at once, and for nobody once it is undone: neither for what it has prepared
/// before, nor for what it prepares anew.
#[tokio::test]
async fn columns_that_the_own_transaction_changes() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut client, mut plain) = (stage.client().await, stage.plain_client().await);
    let texts = ["SELECT * FROM notes", "SELECT * FROM accounts WHERE id = {a}", "SELECT * FROM accounts WHERE id = {z}"];
    let scattered = ["SELECT * FROM accounts ORDER BY id LIMIT 2", "UPDATE accounts SET balance = 1 WHERE id = {z} RETURNING *"];
    for text in texts.into_iter().chain(scattered) {
        let text = stage.fill_in(text);
        for table in ["notes", "accounts"] {
            let told = in_changed_transactions(&mut client, &text, table).await;
            assert_eq!(told, in_changed_transactions(&mut plain, &text, table).await, "{text}, {table} changed");
        }
    }
    stage.assert_log_is_clean();
}

async fn in_changed_transactions(client: &mut WireClient, text: &str, table: &str) -> Vec<String> {
    let mut told = Vec::new();
    let change = format!("ALTER TABLE {table} ADD COLUMN extra int");
    succeed(client, &format!("PREPARE named AS {text}")).await;
    client.parse("old", text).bind("", "old", &[]).execute("", 0).sync();
    told.push(client.transcript().await);
    let rounds: [&[&str]; 3] =
        [&["BEGIN", &change, "fresh", "ROLLBACK"], &["BEGIN", "SAVEPOINT a", &change, "newer", "ROLLBACK TO a"], &[]];
    for steps in rounds {
        for step in steps {
            if step.starts_with(|first: char| first.is_uppercase()) {
                succeed(client, step).await;
            } else {
                client.unnamed(text, &[]).sync();
                told.push(client.transcript().await);
                client.parse(step, text).describe(b'S', step).bind("", step, &[]).execute("", 0).sync();
                told.push(client.transcript().await);
            }
        }
        for name in ["old", "fresh", "newer", "old"] {
            client.bind("", name, &[]).execute("", 0).sync();
            told.push(client.transcript().await);
            if told.last().is_some_and(|told| told.ends_with("Z(E)")) && steps.contains(&"SAVEPOINT a") {
                succeed(client, "ROLLBACK TO a").await;
            }
        }
        told.push(client.ask("EXECUTE named").await);
        client.query("ROLLBACK");
        client.transcript().await;
    }
    succeed(client, "BEGIN").await;
    succeed(client, &change).await;
    told.push(client.ask("EXECUTE named").await);
    succeed(client, "ROLLBACK").await;
    told.push(client.ask("EXECUTE named").await);
    succeed(client, "DEALLOCATE ALL").await;
    told
}

/// A statement may wait for the very change, on a connection that has never seen it and reads it when the change is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_change_while_the_statement_waits() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut changer, mut client) = (stage.client().await, stage.client().await);
    for (text, running) in [
        ("SELECT * FROM accounts WHERE id = {z}", "SELECT * FROM accounts"),
        ("UPDATE accounts SET balance = 7 WHERE id = {z} RETURNING *", "UPDATE accounts"),
        ("SELECT * FROM accounts ORDER BY id LIMIT 1", "FROM accounts"),
        ("SELECT DISTINCT * FROM accounts", "FROM accounts"),
        ("SELECT * FROM accounts FOR UPDATE", "FROM accounts"),
        ("UPDATE accounts SET balance = 7 RETURNING *", "UPDATE accounts"),
    ] {
        let text = stage.fill_in(text);
        client.parse("s", &text).describe(b'S', "s").sync();
        assert_eq!(client.transcript().await, "1 t(0 parameters) T(id,owner,balance) Z(I)");
        succeed(&mut changer, "BEGIN").await;
        succeed(&mut changer, "ALTER TABLE accounts ADD COLUMN extra int").await;
        client.bind("", "s", &[]).execute("", 0).sync();
        client.flush().await;
        stage.until_active(1, running).await;
        succeed(&mut changer, "COMMIT").await;
        let told = client.transcript().await;
        assert!(
            told.trim_start_matches("2 ").starts_with("E(0A000 cached plan must not change result type) Z(I)"),
            "{text}: {told}"
        );
        succeed(&mut changer, "ALTER TABLE accounts DROP COLUMN extra").await;
        assert_eq!(client.value(&stage.fill_in("SELECT balance FROM accounts WHERE id = {z}")).await, "100");
        client.close(b'S', "s").sync();
        client.transcript().await;
    }
    // One shard is further than the other: rows of two kinds are no answer.
    let there = stage.cluster.connect_shard(1).await;
    there.batch_execute("ALTER TABLE accounts ADD COLUMN extra int").await.expect("changed");
    let told = client.ask("SELECT * FROM accounts").await;
    assert!(told.starts_with("E(40001 ") && !told.contains("D("), "{told}");
    stage.assert_log_is_clean();
}

/// A parameter keeps the type that it had: its values may come in binary form.
#[tokio::test]
async fn parameters_keep_their_types() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut client, mut plain) = (stage.client().await, stage.plain_client().await);
    for text in [
        "SELECT id FROM accounts WHERE id = {z} AND balance = $1",
        "SELECT id FROM accounts WHERE balance = $1 ORDER BY id LIMIT 1",
        "UPDATE accounts SET balance = $1 WHERE id = {z}",
        "INSERT INTO notes VALUES (1, $1) ON CONFLICT DO NOTHING",
    ] {
        let text = stage.fill_in(text);
        let mut told = Vec::new();
        for client in [&mut client, &mut plain] {
            client.parse("s", &text).bind("", "s", &["100"]).execute("", 0).sync();
            let mut answers = vec![client.transcript().await];
            succeed(client, "ALTER TABLE accounts DROP CONSTRAINT accounts_balance_check").await;
            for (accounts, notes) in [("bigint", "varchar"), ("text", "bigint USING 1"), ("int USING balance::int", "text")] {
                succeed(client, &format!("ALTER TABLE accounts ALTER COLUMN balance TYPE {accounts}")).await;
                succeed(client, &format!("ALTER TABLE notes ALTER COLUMN text TYPE {notes}")).await;
                client.describe(b'S', "s").sync();
                answers.push(client.transcript().await);
                client.bind("", "s", &["100"]).execute("", 0).sync();
                answers.push(client.transcript().await);
            }
            succeed(client, "ALTER TABLE accounts ADD CONSTRAINT accounts_balance_check CHECK (balance >= 0)").await;
            succeed(client, "DEALLOCATE ALL").await;
            told.push(answers);
        }
        assert_eq!(told[0], told[1], "{text}");
    }
    stage.assert_log_is_clean();
}

/// A session with temporary tables has statements of its own, which follow what others change.
async fn changes_beside_temporary_tables(stage: &Stage) {
    let (mut client, mut changer) = (stage.client().await, stage.client().await);
    succeed(&mut client, "CREATE TEMP TABLE own (n int)").await;
    let text = stage.fill_in("SELECT * FROM accounts WHERE id = {z}");
    let key = stage.key(1, 0);
    client.parse("s", &text).describe(b'S', "s").bind("", "s", &[]).execute("", 0).sync();
    assert_eq!(client.transcript().await, format!("1 t(0 parameters) T(id,owner,balance) 2 D({key},o{key},100) C(SELECT 1) Z(I)"));
    succeed(&mut changer, "ALTER TABLE accounts ADD COLUMN beside int DEFAULT 5").await;
    client.parse("t", &text).describe(b'S', "t").bind("", "t", &[]).execute("", 0).sync();
    let told = "1 t(0 parameters) T(id,owner,balance,beside)";
    assert_eq!(client.transcript().await, format!("{told} 2 D({key},o{key},100,5) C(SELECT 1) Z(I)"));
    client.bind("", "s", &[]).execute("", 0).sync();
    assert!(client.transcript().await.contains("E(0A000 "), "its columns were others");
    succeed(&mut changer, "ALTER TABLE accounts DROP COLUMN beside").await;
    client.bind("", "s", &[]).execute("", 0).sync();
    assert_eq!(client.transcript().await, format!("2 D({key},o{key},100) C(SELECT 1) Z(I)"), "and are the same again");
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
    // Read anew in another path, it has other columns.
    client.query("SET search_path = a").parse("s", "SELECT * FROM t").bind("", "s", &[]).execute("", 0).sync();
    assert_eq!(client.transcript().await, "C(SET) Z(I)");
    assert_eq!(client.transcript().await, "1 2 D(1) C(SELECT 1) Z(I)");
    for (path, told) in [("b", "E(0A000 cached plan must not change result type) Z(I)"), ("a", "2 D(1) C(SELECT 1) Z(I)")] {
        succeed(&mut client, &format!("SET search_path = {path}")).await;
        client.bind("", "s", &[]).execute("", 0).sync();
        assert_eq!(client.transcript().await, told);
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

/// What is prepared or described may wait for a lock on the home shard: it hears the cancel request, and the client's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_described_can_be_stopped() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let locker = stage.cluster.connect_shard(0).await;
    locker.batch_execute("BEGIN; LOCK TABLE notes IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    let begin = stage.fill_in("BEGIN; SELECT FROM accounts WHERE id = {a}");
    for (number, before) in ["SELECT 1", &begin].into_iter().enumerate() {
        for by_name in [true, false] {
            let text = format!("SELECT text, {number} FROM notes WHERE id > 0 AND {by_name}");
            let ask = |client: &mut WireClient| match by_name {
                true => drop(client.query(&format!("PREPARE p AS {text}"))),
                false => drop(client.parse("", &text).describe(b'S', "").sync()),
            };
            let mut client = stage.client().await;
            succeed(&mut client, before).await;
            ask(&mut client);
            client.flush().await;
            stage.until_active(0, &text).await;
            client.cancel().await;
            let told = client.transcript().await;
            assert!(told.starts_with("E(57014 canceling statement due to user request) Z("), "{text}: {told}");
            client.query("ROLLBACK");
            client.transcript().await;
            assert_eq!(client.value("SELECT 2").await, "2");
            succeed(&mut client, before).await;
            ask(&mut client);
            client.flush().await;
            stage.until_active(0, &text).await;
            client.reset();
            until_gone(&stage, 0, "wait_event_type = 'Lock'").await;
        }
    }
    locker.batch_execute("ROLLBACK").await.expect("unlocked");
    stage.assert_log_is_clean();
}
