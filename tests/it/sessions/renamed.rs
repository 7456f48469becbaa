//! Sharded and reference tables, and columns of their keys, get other names: on every shard and in the map, or nowhere. Whatever name
//! a statement has, through whichever proxy, its rows are those of the key's shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_the_map_has_one_name_everywhere() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (mut client, mut other) = (stage.client().await, WireClient::connect(second.address()).await);
    renamed(&stage, &mut client, &mut other).await;
    in_a_transaction(&stage, &mut client, &mut other).await;
    key_columns(&stage, &mut client, &mut other).await;
    taken_back(&mut client, &mut other).await;
    wrong_uses(&mut client, &mut other).await;
    families(&stage, &mut client, &mut other).await;
    schemas(&stage, &mut client, &mut other).await;
    beside_a_savepoint(&stage, &mut client).await;
    under_way(&stage, &mut client, &mut other).await;
    renamed_under_load(&stage, &second).await;
    succeed(&mut client, "BEGIN; ALTER TABLE coins RENAME TO medals; DROP TABLE medals; COMMIT").await;
    assert!(!other.value(NAMES).await.contains("coins"), "{}", other.value(NAMES).await);
    stage.assert_log_is_clean();
    let log = second.log();
    assert!(!log.contains("panicked") && !log.contains(" ERROR "), "{log}");
}

const NAMES: &str =
    "SELECT string_agg(concat_ws(' ', table_name, kind, key), ', ' ORDER BY table_name) FROM shardgate.tables WHERE kind <> 'home'";

async fn renamed(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    for statement in [
        "CREATE VIEW seen AS SELECT * FROM accounts",
        "CREATE FUNCTION touch(n bigint) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT 1'; RETURN 1; END $$",
        "SELECT shardgate.declare_function('touch', writes => '{accounts}', key_argument => 1)",
    ] {
        succeed(client, statement).await;
    }
    let before = other.value("SELECT count(*) FROM accounts").await;
    assert_eq!(client.ask("ALTER TABLE accounts RENAME TO people").await, "C(ALTER TABLE) Z(I)");
    // PostgreSQL takes this for a table, too.
    assert_eq!(client.ask("ALTER INDEX currencies RENAME TO coins").await, "C(ALTER INDEX) Z(I)");
    let (here, there) = (stage.key(0, 0), stage.key(1, 0));
    for client in [client, other] {
        assert_eq!(client.value("SELECT count(*) FROM people").await, before);
        assert_eq!(client.value("SELECT count(*) FROM seen").await, before);
        for id in [here, there] {
            assert_eq!(client.value(&format!("SELECT owner FROM people WHERE id = {id}")).await, format!("o{id}"));
        }
        assert!(client.ask("SELECT count(*) FROM accounts").await.starts_with("E(42P01 "));
        assert!(client.ask("INSERT INTO currencies VALUES ('X', 'x')").await.starts_with("E(42P01 "));
        assert_eq!(client.value("SELECT count(*) FROM coins").await, "2");
        assert_eq!(client.value(NAMES).await, "coins reference, people sharded id");
    }
    assert_eq!(written(stage).await, r#"[["public", "people"]]"#);
}

/// What the declared function writes, as the map has it.
async fn written(stage: &Stage) -> String {
    let map = stage.cluster.connect_map().await;
    map.query_one("SELECT writes::text FROM shardgate_map.declared_function", &[]).await.expect("declared").get(0)
}

async fn in_a_transaction(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    let there = stage.key(1, 0);
    for (end, name) in [("ROLLBACK", "people"), ("COMMIT", "folk")] {
        succeed(client, "BEGIN; ALTER TABLE people RENAME TO persons; ALTER TABLE persons RENAME TO folk").await;
        assert_eq!(client.value("SELECT count(*) FROM folk").await, "90");
        assert_eq!(client.value(&format!("SELECT owner FROM folk WHERE id = {there}")).await, format!("o{there}"));
        succeed(client, &format!("UPDATE folk SET balance = balance WHERE id = {there}")).await;
        succeed(client, end).await;
        assert_eq!(other.value(NAMES).await, format!("coins reference, {name} sharded id"));
        assert_eq!(other.value(&format!("SELECT count(*) FROM {name}")).await, "90");
        assert_eq!(written(stage).await, format!(r#"[["public", "{name}"]]"#));
    }
    for gone in ["people", "persons"] {
        assert!(other.ask(&format!("SELECT count(*) FROM {gone}")).await.starts_with("E(42P01 "));
    }
}

/// By the key's new name rows are found, placed and moved as by the old one.
async fn key_columns(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    other.parse("by_key", "SELECT owner FROM folk WHERE id = $1").sync();
    other.transcript().await;
    for (from, to) in [("id", "number"), ("number", "\"The Id\"")] {
        succeed(client, &format!("ALTER TABLE folk RENAME COLUMN {from} TO {to}")).await;
        for client in [&mut *client, &mut *other] {
            for (shard, id) in [(0, stage.key(0, 1)), (1, stage.key(1, 1))] {
                assert_eq!(client.value(&format!("SELECT owner FROM folk WHERE {to} = {id}")).await, format!("o{id}"));
                assert!(client.ask(&format!("SELECT owner FROM folk WHERE {from} = {id}")).await.starts_with("E(42703 "));
                let explained = client.ask(&format!("EXPLAIN (SHARDS) SELECT owner FROM folk WHERE {to} = {id}")).await;
                assert!(
                    explained.contains(&format!("shard{shard}")) && !explained.contains(&format!("shard{}", 1 - shard)),
                    "{explained}"
                );
            }
            // The key of a row changes its shard.
            let (old, new) = (stage.key(0, 2), 5_000_000 + stage.key(1, 2));
            for (from, into) in [(old, new), (new, old)] {
                assert_eq!(client.ask(&format!("UPDATE folk SET {to} = {into} WHERE {to} = {from}")).await, "C(UPDATE 1) Z(I)");
                assert_eq!(client.value(&format!("SELECT owner FROM folk WHERE {to} = {into}")).await, format!("o{old}"));
            }
        }
        other.bind("", "by_key", &["1"]).execute("", 0).sync();
        assert!(other.transcript().await.contains("E(42703 "));
    }
    assert_eq!(client.value(NAMES).await, "coins reference, folk sharded \"The Id\"");
    succeed(
        client,
        "BEGIN; ALTER TABLE folk RENAME \"The Id\" TO tmp; ALTER TABLE folk RENAME tmp TO id; ALTER TABLE folk RENAME TO people",
    )
    .await;
    let id = stage.key(1, 3);
    assert_eq!(client.value(&format!("SELECT owner FROM people WHERE id = {id}")).await, format!("o{id}"));
    succeed(client, &format!("INSERT INTO people (owner, id, balance) VALUES ('new', {}, 1)", 1_000_000 + id)).await;
    succeed(client, &format!("DELETE FROM people WHERE owner = 'new' AND id = {}; COMMIT", 1_000_000 + id)).await;
    assert_eq!(other.value(&format!("SELECT owner FROM people WHERE id = {id}")).await, format!("o{id}"));
    assert_eq!(other.value(NAMES).await, "coins reference, people sharded id");
    assert_eq!(other.value("SELECT count(*) FROM seen").await, "90");
}

async fn taken_back(client: &mut WireClient, other: &mut WireClient) {
    for end in ["COMMIT", "ROLLBACK"] {
        succeed(client, "BEGIN; SAVEPOINT s; ALTER TABLE people RENAME TO gone; ALTER TABLE gone RENAME id TO number").await;
        assert_eq!(client.value("SELECT count(*) FROM gone WHERE number > 0").await, "90");
        succeed(client, "ROLLBACK TO s").await;
        assert_eq!(client.value("SELECT count(*) FROM people WHERE id > 0").await, "90");
        // Once more, and another one.
        succeed(client, "ALTER TABLE people RENAME TO gone; ROLLBACK TO s; ALTER TABLE people RENAME id TO no; ROLLBACK TO s")
            .await;
        assert_eq!(client.value("SELECT count(*) FROM people WHERE id > 0").await, "90");
        succeed(client, end).await;
        assert_eq!(other.value(NAMES).await, "coins reference, people sharded id");
        assert_eq!(other.value("SELECT count(*) FROM people WHERE id > 0").await, "90");
    }
}

async fn wrong_uses(client: &mut WireClient, other: &mut WireClient) {
    for (sql, expected) in [
        ("ALTER TABLE people RENAME TO notes", "E(42P07 relation \"notes\" already exists)"),
        ("ALTER TABLE people RENAME TO people", "E(42P07 relation \"people\" already exists)"),
        ("ALTER TABLE people RENAME id TO owner", "E(42701 column \"owner\" of relation \"people\" already exists)"),
        ("ALTER TABLE people SET SCHEMA none_such", "E(3F000 "),
        ("ALTER TABLE people SET SCHEMA public", "C(ALTER TABLE)"),
        ("ALTER TABLE none_such RENAME TO x", "E(42P01 "),
        ("ALTER VIEW people RENAME TO x", "E(42809 "),
        ("SET ROLE reader; ALTER TABLE people RENAME TO x", "E(42501 must be owner of table people)"),
        ("RESET ROLE; ALTER TABLE people RENAME TO notes", "E(42P07 "),
        ("DO $$ BEGIN ALTER TABLE people RENAME TO x; END $$", "E(0A000 "),
        ("DO $$ BEGIN ALTER TABLE people RENAME id TO x; END $$", "E(0A000 "),
        ("/* shardgate: shard=shard1 */ ALTER TABLE people RENAME id TO x", "E(0A000 "),
        ("BEGIN; ALTER TABLE people RENAME TO x; ALTER TABLE notes RENAME TO people", "E(0A000 "),
        ("ROLLBACK; BEGIN; ALTER TABLE people RENAME TO x; ALTER TABLE x DROP COLUMN id", "E(0A000 "),
        ("ROLLBACK; BEGIN; ALTER TABLE people RENAME id TO x; ALTER TABLE people DROP COLUMN x", "E(0A000 "),
        ("ROLLBACK; BEGIN; ALTER TABLE people RENAME id TO x; ALTER TABLE people RENAME balance TO id", "E(0A000 "),
        ("ROLLBACK; BEGIN; ALTER TABLE people RENAME id TO x; ALTER TABLE people ALTER x TYPE text", "E(0A000 "),
    ] {
        let told = client.ask(sql).await;
        assert!(told.contains(expected), "{sql}: {told}");
    }
    succeed(client, "ROLLBACK").await;
    exchanged(client, other).await;
    assert_eq!(other.value(NAMES).await, "coins reference, people sharded id");
    // The old name is free for something else, and what a failed transaction wanted too.
    succeed(client, "ALTER TABLE people RENAME TO \"The People\"").await;
    succeed(client, "CREATE VIEW people AS SELECT * FROM \"The People\"").await;
    assert_eq!(other.value("SELECT count(*) FROM people").await, "90");
    succeed(client, "DROP VIEW people; CREATE TABLE x (id int); ALTER TABLE \"The People\" RENAME TO people").await;
    assert_eq!(other.value("SELECT count(*) FROM people, notes").await, "0");
    succeed(client, "DROP TABLE x").await;
}

/// Columns of one key do not take over each other's names in one transaction: in the middle of it a name would mean either of them.
async fn exchanged(client: &mut WireClient, other: &mut WireClient) {
    succeed(client, "CREATE TABLE pairs (a int, b int, c int)").await;
    succeed(client, "SELECT shardgate.distribute_table('pairs', 'a, b')").await;
    succeed(client, "INSERT INTO pairs SELECT n, 100 - n, n FROM generate_series(1, 40) n").await;
    succeed(client, "BEGIN; ALTER TABLE pairs RENAME a TO t; ALTER TABLE pairs RENAME t TO a; ALTER TABLE pairs RENAME a TO t")
        .await;
    let told = client.ask("ALTER TABLE pairs RENAME b TO a").await;
    assert!(told.starts_with("E(0A000 the name of column \"a\" cannot be used anew in the transaction that renames it)"), "{told}");
    succeed(client, "ROLLBACK").await;
    for rename in ["a TO t", "b TO a", "t TO b"] {
        succeed(client, &format!("ALTER TABLE pairs RENAME {rename}")).await;
    }
    for client in [&mut *client, &mut *other] {
        for n in 1..=40 {
            assert_eq!(client.value(&format!("SELECT c FROM pairs WHERE b = {n} AND a = {}", 100 - n)).await, n.to_string());
        }
    }
    succeed(client, "DROP TABLE pairs").await;
}

/// With a partitioned table, foreign keys, a trigger, and keys in a table.
async fn families(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    for statement in [
        "CREATE TABLE log (id bigint, year int, what text, PRIMARY KEY (id, year)) PARTITION BY RANGE (year)",
        "CREATE TABLE log_old PARTITION OF log FOR VALUES FROM (0) TO (2000)",
        "CREATE TABLE log_new PARTITION OF log FOR VALUES FROM (2000) TO (3000)",
        "CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.what := NEW.what || '!'; RETURN NEW; END $$",
        "CREATE TRIGGER stamped BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION stamped()",
        "SELECT shardgate.distribute_table('log', 'id', colocate_with => 'people')",
        "ALTER TABLE log ADD FOREIGN KEY (id) REFERENCES people ON DELETE CASCADE",
        "INSERT INTO log SELECT id, 1990 + 20 * (id % 2)::int, 'in' FROM people",
        "CREATE TABLE tenants (name text PRIMARY KEY)",
        "SELECT shardgate.distribute_table('tenants', 'name', strategy => 'lookup')",
        "SELECT shardgate.map_keys('tenants', '{a,b}', 'shard1')",
        "INSERT INTO tenants VALUES ('a')",
        "ALTER TABLE log RENAME TO journal",
        "ALTER TABLE log_old RENAME TO journal_old",
        "ALTER TABLE journal RENAME COLUMN id TO person",
        "ALTER TABLE journal RENAME COLUMN year TO at",
        "ALTER TABLE people RENAME COLUMN id TO person",
        "ALTER TABLE tenants RENAME TO customers; ALTER TABLE customers RENAME name TO customer",
    ] {
        succeed(client, statement).await;
    }
    assert!(client.ask("ALTER TABLE journal_old RENAME COLUMN person TO x").await.starts_with("E(42P16 "));
    let (here, there) = (stage.key(0, 4), stage.key(1, 4));
    for client in [&mut *client, &mut *other] {
        assert_eq!(
            client.value("SELECT count(*) FROM journal_old").await,
            client.value("SELECT count(*) FROM journal WHERE at < 2000").await
        );
        assert_eq!(client.value("SELECT count(*) FROM people JOIN journal USING (person) WHERE what = 'in!'").await, "90");
        for id in [here, there] {
            assert_eq!(client.value(&format!("SELECT what FROM journal WHERE person = {id}")).await, "in!");
            succeed(client, &format!("INSERT INTO journal_old (person, at, what) VALUES ({id}, 7, 'old')")).await;
            assert!(client.ask(&format!("INSERT INTO journal VALUES ({}, 7, 'x')", 7_000_000 + id)).await.starts_with("E(23503 "));
            assert_eq!(client.value(&format!("DELETE FROM journal WHERE person = {id} AND at = 7 RETURNING what")).await, "old!");
        }
        assert_eq!(client.value("SELECT customer FROM customers WHERE customer = 'a'").await, "a");
    }
    succeed(client, "SELECT shardgate.map_key('customers', 'c', 'shard0'); INSERT INTO customers VALUES ('b'), ('c')").await;
    let direct = stage.cluster.connect_shard(1).await;
    let stored: i64 = direct.query_one("SELECT count(*) FROM customers", &[]).await.expect("customers").get(0);
    assert_eq!(stored, 2);
    assert_eq!(
        other.value(NAMES).await,
        "coins reference, customers sharded customer, journal sharded person, people sharded person"
    );
    succeed(client, "DROP TABLE journal, customers; ALTER TABLE people RENAME person TO id").await;
}

async fn schemas(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    for statement in [
        "CREATE SCHEMA away",
        "ALTER TABLE people ADD COLUMN n serial",
        "ALTER SEQUENCE people_n_seq OWNED BY NONE",
        "ALTER TABLE people SET SCHEMA away",
        "ALTER TABLE coins SET SCHEMA away",
    ] {
        succeed(client, statement).await;
    }
    let id = stage.key(1, 5);
    for (nth, client) in [&mut *client, &mut *other].into_iter().enumerate() {
        assert_eq!(client.value(NAMES).await, "away.coins reference, away.people sharded id");
        assert!(client.ask("SELECT count(*) FROM people").await.starts_with("E(42P01 "));
        assert_eq!(client.value(&format!("SELECT owner FROM away.people WHERE id = {id}")).await, format!("o{id}"));
        succeed(client, &format!("INSERT INTO away.people VALUES ({}, 'n', 1)", 8_000_000 + nth)).await;
        assert_eq!(client.value("SELECT count(DISTINCT n) FROM away.people").await, (91 + nth).to_string());
        assert_eq!(client.value("SELECT count(*) FROM seen WHERE id < 8000000").await, "90");
    }
    succeed(client, "DELETE FROM away.people WHERE id >= 8000000; ALTER TABLE away.people SET SCHEMA public; ALTER TABLE away.coins SET SCHEMA public").await;
    succeed(client, "ALTER TABLE people DROP COLUMN n; DROP SEQUENCE people_n_seq").await;
    assert_eq!(other.value(NAMES).await, "coins reference, people sharded id");
}

/// Somebody else's open savepoint holds nobody's reading of the schema up.
async fn beside_a_savepoint(stage: &Stage, client: &mut WireClient) {
    let (open, later) = (stage.cluster.connect_shard(0).await, stage.cluster.connect_shard(0).await);
    open.batch_execute("BEGIN; SAVEPOINT s; INSERT INTO notes VALUES (1, 'x')").await.expect("a savepoint");
    later.batch_execute("CREATE TABLE passing (id int); DROP TABLE passing").await.expect("a later transaction");
    let began = std::time::Instant::now();
    succeed(client, "BEGIN; SAVEPOINT s; ALTER TABLE people RENAME TO gone; ROLLBACK TO s").await;
    assert_eq!(client.value("SELECT count(*) FROM people").await, "90");
    succeed(client, "COMMIT").await;
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
    open.batch_execute("ROLLBACK").await.expect("rolled back");
}

/// A transaction that has begun goes on by the old names, which the shards let it have; what the new ones mean it cannot know.
async fn under_way(stage: &Stage, client: &mut WireClient, other: &mut WireClient) {
    let id = stage.key(0, 6);
    succeed(other, &format!("BEGIN; SELECT count(*) FROM notes; UPDATE people SET balance = balance WHERE id = {id}")).await;
    client.query("ALTER TABLE people RENAME TO folk");
    client.flush().await;
    stage.until_waiting("the rename").await;
    succeed(other, &format!("UPDATE people SET owner = 'under way' WHERE id = {id}")).await;
    assert!(other.ask("SELECT count(*) FROM folk").await.starts_with("E(40001 "));
    succeed(other, "ROLLBACK").await;
    assert_eq!(client.transcript().await, "C(ALTER TABLE) Z(I)");
    assert_eq!(other.value(&format!("SELECT owner FROM folk WHERE id = {id}")).await, format!("o{id}"));
    succeed(other, "ALTER TABLE folk RENAME TO people").await;
}

/// What is acknowledged is on the shard of its key, whichever name it was written by.
async fn renamed_under_load(stage: &Stage, second: &Proxy) {
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [stage.proxy.address(), second.address()].into_iter().zip([1_000_000, 2_000_000]).map(|(address, first)| {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            let mut client = WireClient::connect(address).await;
            let mut written = Vec::new();
            for id in first.. {
                if stop.load(Ordering::Relaxed) {
                    return written;
                }
                for into in ["people (id, owner, balance)", "humans (number, owner, balance)"] {
                    let told = client.ask(&format!("INSERT INTO {into} VALUES ({id}, 'w', 1)")).await;
                    match told.as_str() {
                        "C(INSERT 0 1) Z(I)" => {
                            written.push(id);
                            break;
                        }
                        told => assert!(told.starts_with("E(42P01 ") || told.starts_with("E(42703 "), "{told}"),
                    }
                }
            }
            written
        })
    });
    let writers: Vec<tokio::task::JoinHandle<Vec<i64>>> = writers.collect();
    let mut admin = stage.client().await;
    for _ in 0..3 {
        succeed(&mut admin, "BEGIN; ALTER TABLE people RENAME TO humans; ALTER TABLE humans RENAME id TO number; COMMIT").await;
        succeed(&mut admin, "BEGIN; ALTER TABLE humans RENAME number TO id; ALTER TABLE humans RENAME TO people; COMMIT").await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = 0;
    for writer in writers {
        let written = writer.await.expect("no panic");
        for id in written.iter().step_by(5) {
            assert_eq!(admin.value(&format!("SELECT count(*) FROM people WHERE id = {id}")).await, "1", "{id}");
        }
        all += i64::try_from(written.len()).expect("few");
    }
    assert!(all > 0);
    assert_eq!(admin.value("SELECT count(*) FROM people WHERE id >= 1000000").await, all.to_string());
    let mut stored = 0;
    for shard in 0..2 {
        let direct = connect(&stage.cluster.public_url(shard)).await;
        stored += direct.query_one("SELECT count(*) FROM people WHERE id >= 1000000", &[]).await.expect("rows").get::<_, i64>(0);
    }
    assert_eq!(stored, all);
}
