//! DDL through one proxy is followed by another at once: what was prepared before it gives PostgreSQL's answer after it.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

const ROUNDS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_change_through_one_proxy_is_followed_by_another_at_once() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut changer, mut other) = (stage.client().await, WireClient::connect(second.address()).await);
    let all = stage.fill_in("SELECT * FROM accounts WHERE id = {z}");
    let key = stage.key(1, 0);
    other.parse("all", &all).bind("", "all", &[]).execute("", 0).sync();
    assert_eq!(other.transcript().await, format!("1 2 D({key},o{key},100) C(SELECT 1) Z(I)"));
    for round in 0..ROUNDS {
        columns(&mut changer, &mut other, key, round).await;
        tables(&mut changer, &mut other, round).await;
        hidden_references(&stage, &mut changer, &mut other).await;
    }
    in_a_transaction(&mut changer, &mut other).await;
    stage.assert_log_is_clean();
    let log = second.log();
    assert!(!log.contains("panicked") && !log.contains(" ERROR "), "{log}");
}

async fn again(client: &mut WireClient, name: &str) -> String {
    client.bind("", name, &[]).execute("", 0).sync();
    client.transcript().await
}

async fn columns(changer: &mut WireClient, other: &mut WireClient, key: i64, round: usize) {
    succeed(changer, &format!("ALTER TABLE accounts ADD COLUMN extra int DEFAULT {round}")).await;
    assert_eq!(again(other, "all").await, "E(0A000 cached plan must not change result type) Z(I)");
    other.unnamed(&format!("SELECT * FROM accounts WHERE id = {key}"), &[]).sync();
    assert_eq!(other.transcript().await, format!("1 2 D({key},o{key},100,{round}) C(SELECT 1) Z(I)"));
    succeed(changer, "ALTER TABLE accounts DROP COLUMN extra").await;
    assert_eq!(again(other, "all").await, format!("2 D({key},o{key},100) C(SELECT 1) Z(I)"));
}

/// From no table to a table of the home shard to a sharded one, and away again.
async fn tables(changer: &mut WireClient, other: &mut WireClient, round: usize) {
    let name = format!("t{round}");
    let select = format!("SELECT id FROM {name} ORDER BY id");
    assert!(other.ask(&select).await.starts_with("E(42P01 "));
    succeed(changer, &format!("CREATE TABLE {name} (id int PRIMARY KEY, v text)")).await;
    other.parse(&name, &select).bind("", &name, &[]).execute("", 0).sync();
    assert_eq!(other.transcript().await, "1 2 C(SELECT 0) Z(I)");
    succeed(changer, &format!("SELECT shardgate.distribute_table('{name}', 'id')")).await;
    for id in 1..=9 {
        succeed(other, &format!("INSERT INTO {name} VALUES ({id}, 'v')")).await;
    }
    let rows: String = (1..=9).map(|id| format!("D({id}) ")).collect();
    assert_eq!(again(other, &name).await, format!("2 {rows}C(SELECT 9) Z(I)"));
    assert!(changer.ask(&select).await.ends_with(&format!("{rows}C(SELECT 9) Z(I)")));
    succeed(changer, &format!("DROP TABLE {name}")).await;
    assert!(again(other, &name).await.contains("E(42P01 "));
    // Under the same name something else.
    succeed(changer, &format!("CREATE TABLE {name} (other text)")).await;
    succeed(changer, &format!("INSERT INTO {name} VALUES ('home')")).await;
    assert_eq!(other.value(&format!("SELECT * FROM {name}")).await, "home");
    succeed(changer, &format!("DROP TABLE {name}")).await;
}

/// A trigger that writes to a table of the home shard makes a write elsewhere impossible.
async fn hidden_references(stage: &Stage, changer: &mut WireClient, other: &mut WireClient) {
    let update = stage.fill_in("UPDATE accounts SET balance = 100 WHERE id = {z}");
    assert_eq!(other.ask(&update).await, "C(UPDATE 1) Z(I)");
    let function = "CREATE OR REPLACE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS \
                    $$ BEGIN INSERT INTO notes VALUES (1, 'x'); RETURN NEW; END $$";
    let harmless = function.replace("INSERT INTO notes VALUES (1, 'x');", "");
    succeed(changer, &harmless).await;
    succeed(changer, "CREATE TRIGGER noted BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION noted()").await;
    let refused = changer.ask(function).await;
    assert!(refused.contains("this body of function \"noted\" would stop UPDATE on sharded table \"accounts\""), "{refused}");
    // While the trigger is disabled nobody asks it.
    succeed(changer, "ALTER TABLE accounts DISABLE TRIGGER noted").await;
    succeed(changer, function).await;
    succeed(changer, "ALTER TABLE accounts ENABLE TRIGGER noted").await;
    let told = other.ask(&update).await;
    assert!(told.starts_with("E(0A000 "), "{told}");
    succeed(changer, &harmless).await;
    assert_eq!(other.ask(&update).await, "C(UPDATE 1) Z(I)");
    succeed(changer, "DROP TRIGGER noted ON accounts").await;
    assert_eq!(other.ask(&update).await, "C(UPDATE 1) Z(I)");
}

/// While it is open nobody else sees it; with its COMMIT everybody does.
async fn in_a_transaction(changer: &mut WireClient, other: &mut WireClient) {
    succeed(changer, "BEGIN").await;
    succeed(changer, "CREATE TABLE later (id int)").await;
    succeed(changer, "INSERT INTO later VALUES (7)").await;
    assert_eq!(changer.value("SELECT id FROM later").await, "7");
    assert!(other.ask("SELECT id FROM later").await.starts_with("E(42P01 "));
    succeed(changer, "COMMIT").await;
    assert_eq!(other.value("SELECT id FROM later").await, "7");
    succeed(changer, "BEGIN; DROP TABLE later").await;
    succeed(changer, "ROLLBACK").await;
    assert_eq!(other.value("SELECT id FROM later").await, "7");
}

/// What has the name of a sharded table is placed by the map, whatever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_the_map_is_used_anew_when_the_map_has_let_it_go() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut client, mut other) = (stage.client().await, stage.client().await);
    let key = stage.key(1, 0);
    succeed(&mut client, &format!("INSERT INTO notes VALUES ({key}, 'at home')")).await;
    assert_eq!(client.ask("CREATE TABLE IF NOT EXISTS accounts (id int)").await, ALREADY_THERE);
    succeed(&mut client, "BEGIN").await;
    assert_eq!(client.ask("CREATE TABLE IF NOT EXISTS accounts (id int)").await, ALREADY_THERE.replace("Z(I)", "Z(T)"));
    succeed(&mut client, "ROLLBACK").await;
    for (dropped, taken) in [
        ("accounts", "ALTER TABLE notes RENAME TO accounts"),
        ("currencies", "ALTER TABLE notes RENAME TO currencies"),
        ("accounts", "CREATE TABLE IF NOT EXISTS public.accounts AS SELECT * FROM notes"),
        ("accounts", "SELECT * INTO accounts FROM currencies"),
        ("accounts", "CREATE VIEW accounts AS SELECT * FROM notes"),
        ("currencies", "ALTER TABLE spare.currencies SET SCHEMA public"),
    ] {
        succeed(&mut client, "BEGIN").await;
        if taken.contains("spare.") {
            succeed(&mut client, "CREATE SCHEMA spare; CREATE TABLE spare.currencies (id int)").await;
        }
        succeed(&mut client, &format!("DROP TABLE {dropped} CASCADE")).await;
        let told = client.ask(taken).await;
        assert!(told.contains("E(0A000 "), "{taken}: {told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    for sql in [
        "DROP TABLE accounts CASCADE; CREATE TABLE accounts (id int)",
        "DO $$ BEGIN DROP TABLE accounts CASCADE; CREATE TABLE accounts (id int); END $$",
    ] {
        assert!(client.ask(sql).await.contains("E(0A000 "), "{sql}");
    }
    client.unnamed("DROP TABLE accounts CASCADE", &[]).unnamed("CREATE TABLE accounts (id int)", &[]).sync();
    assert!(client.transcript().await.contains("E(0A000 "));
    assert_eq!(other.value("SELECT count(*) FROM accounts").await, "90");
    succeed(&mut client, "DROP TABLE accounts CASCADE").await;
    succeed(&mut client, "ALTER TABLE notes RENAME TO accounts").await;
    assert_eq!(other.value(&format!("SELECT text FROM accounts WHERE id = {key}")).await, "at home");
    stage.assert_log_is_clean();
}

const ALREADY_THERE: &str = "N(42P07 relation \"accounts\" already exists, skipping) C(CREATE TABLE) Z(I)";

/// Reading what views say takes locks, where it has changed. Who locks their tables meanwhile, in whatever order, is in no deadlock with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_the_schema_stands_in_nobodys_way() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE VIEW seen AS SELECT * FROM accounts").await;
    succeed(&mut client, "CREATE VIEW others AS SELECT * FROM notes").await;
    let (direct, observer) = (stage.cluster.connect_shard(0).await, stage.cluster.connect_shard(0).await);
    let waits = "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE NOT l.granted AND a.application_name = 'shardgate' AND a.datname = current_database()";
    for (first, then, old, new) in [("accounts", "notes", "id", "key"), ("notes", "accounts", "key", "id")] {
        direct.batch_execute(&format!("BEGIN; LOCK TABLE {first}")).await.expect("the first lock");
        let rename = format!("ALTER VIEW seen RENAME {old} TO {new}; ALTER VIEW others RENAME {old} TO {new}");
        observer.batch_execute(&rename).await.expect("the views are not locked");
        client.query("COMMENT ON TABLE currencies IS 'money'");
        client.flush().await;
        let deadline = Instant::now() + Duration::from_secs(10);
        while observer.query(waits, &[]).await.expect("locks").is_empty() {
            assert!(Instant::now() < deadline, "nobody reads the schema");
        }
        direct.batch_execute(&format!("LOCK TABLE {then}; COMMIT")).await.expect("the second lock");
        assert_eq!(client.transcript().await, "C(COMMENT) Z(I)");
    }
    stage.assert_log_is_clean();
}
