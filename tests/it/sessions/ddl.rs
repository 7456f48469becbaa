//! Schema changes over shards: in the client's own transaction, beside those who use the tables, and what PostgreSQL does not allow
//! in a transaction.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_changes_over_shards_are_whole_and_hold_up_nobody() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    in_the_clients_own_transaction(&stage).await;
    locks_go_with_the_client(&stage).await;
    beside_a_long_transaction(&stage).await;
    indexes_made_concurrently(&stage).await;
    the_key_stays_as_it_is(&stage).await;
    blocks_of_changes(&stage).await;
    roles_belong_to_servers(&stage).await;
    the_database_by_its_name(&stage).await;
    differing_tables_are_refused(&stage).await;
    stage.assert_log_is_clean();
}

/// On each shard, in their order.
async fn on_shards(stage: &Stage, sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        found.push(direct.query_one(&format!("SELECT ({sql})::text"), &[]).await.expect(sql).get(0));
    }
    found
}

/// A client that leaves in the middle of its transaction leaves nothing behind that others wait for.
async fn locks_go_with_the_client(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "ALTER TABLE accounts ADD COLUMN gone int").await;
    drop(client);
    let mut other = stage.client().await;
    succeed(&mut other, "ALTER TABLE accounts ADD COLUMN gone int").await;
    succeed(&mut other, "ALTER TABLE accounts DROP COLUMN gone").await;
}

/// All shards are on one server: each of these is done there once.
async fn roles_belong_to_servers(stage: &Stage) {
    let mut client = stage.client().await;
    for sql in [
        "CREATE ROLE clerk",
        "ALTER ROLE clerk SET work_mem = '8MB'",
        "COMMENT ON ROLE clerk IS 'writes'",
        "GRANT clerk TO reader",
        "GRANT SELECT ON accounts TO clerk",
        "DO $$ BEGIN CREATE ROLE guest; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "BEGIN; CREATE ROLE nobody; CREATE TABLE of_nobody (id int); ROLLBACK",
        "BEGIN; CREATE ROLE somebody; CREATE TABLE beside (id int); COMMIT",
        "GRANT SELECT ON accounts TO somebody",
    ] {
        succeed(&mut client, sql).await;
    }
    let found =
        "SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname IN ('clerk', 'guest', 'nobody', 'somebody')";
    assert_eq!(client.value(found).await, "clerk guest somebody");
    let granted = "SELECT count(*) FROM information_schema.role_table_grants WHERE grantee IN ('clerk', 'somebody') AND table_name = 'accounts'";
    assert_eq!(on_shards(stage, granted).await, ["2"; 3]);
    assert!(client.ask("CREATE ROLE clerk").await.starts_with("E(42710 "));
    let told = client.ask("DO $$ BEGIN CREATE ROLE one; CREATE TABLE of_one (id int); END $$").await;
    assert!(told.starts_with("E(0A000 "), "{told}");
    for sql in ["DROP OWNED BY clerk, somebody", "ALTER ROLE guest RENAME TO visitor", "DROP ROLE clerk, visitor, somebody"] {
        succeed(&mut client, sql).await;
    }
    assert_eq!(client.value(&found.replace("'guest'", "'visitor'")).await, "NULL");
}

/// As migration tools do it: the change and the note of it are one.
async fn in_the_clients_own_transaction(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE migrations (version int PRIMARY KEY)").await;
    for (end, wanted) in [("ROLLBACK", "0"), ("COMMIT", "1")] {
        for sql in [
            "BEGIN",
            "ALTER TABLE accounts ADD COLUMN colour text DEFAULT 'red'",
            "CREATE INDEX accounts_colour ON accounts (colour)",
            "SAVEPOINT s",
            "CREATE TABLE wrong (id int)",
            "ROLLBACK TO s",
            "ALTER TABLE currencies ADD COLUMN sign text",
            "INSERT INTO migrations VALUES (1)",
            "UPDATE accounts SET colour = 'blue' WHERE id = 1",
        ] {
            succeed(&mut client, sql).await;
        }
        assert_eq!(client.ask(end).await, format!("C({end}) Z(I)"));
        let columns =
            "SELECT count(*) FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attname = 'colour' AND NOT attisdropped";
        assert_eq!(on_shards(stage, columns).await, [wanted; 3]);
        assert_eq!(on_shards(stage, "SELECT count(*) FROM pg_class WHERE relname = 'accounts_colour'").await, [wanted; 3]);
        assert_eq!(on_shards(stage, "SELECT count(*) FROM pg_class WHERE relname = 'wrong'").await, ["0"; 3]);
        assert_eq!(client.value("SELECT count(*) FROM migrations").await, wanted);
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE colour = 'blue'").await, "1");
    // An error in the middle undoes all of it, everywhere.
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "ALTER TABLE accounts ADD COLUMN size int").await;
    assert!(client.ask("ALTER TABLE accounts ADD COLUMN size int").await.starts_with("E(42701 "));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    assert_eq!(
        on_shards(stage, "SELECT count(*) FROM pg_attribute WHERE attname = 'size' AND attrelid = 'accounts'::regclass").await,
        ["0"; 3]
    );
}

/// Somebody reads the table in a long transaction: the change waits, and those who come after do not wait behind it, on no shard.
async fn beside_a_long_transaction(stage: &Stage) {
    let (mut reader, mut changer, mut other) = (stage.client().await, stage.client().await, stage.client().await);
    let read = stage.fill_in("SELECT balance FROM accounts WHERE id = {z}");
    let at_home = format!("SELECT balance FROM accounts WHERE id = {}", stage.key(0, 0));
    succeed(&mut reader, "BEGIN").await;
    succeed(&mut reader, &read).await;
    let changing = tokio::spawn(async move { (changer.ask("ALTER TABLE accounts ADD COLUMN late int").await, changer) });
    stage.until_active(1, "LOCK TABLE \"public\".\"accounts\"").await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2500) {
        for read in [&read, &at_home] {
            let before = Instant::now();
            succeed(&mut other, read).await;
            assert!(before.elapsed() < Duration::from_millis(1500), "{:?} behind the change", before.elapsed());
        }
    }
    succeed(&mut reader, "COMMIT").await;
    let (told, mut changer) = changing.await.expect("no panic");
    assert_eq!(told, "C(ALTER TABLE) Z(I)");
    assert_eq!(changer.value("SHOW lock_timeout").await, "0");
    succeed(&mut other, "SELECT late FROM accounts").await;
    // A limit of the client's own is kept to.
    succeed(&mut reader, "BEGIN").await;
    succeed(&mut reader, &read).await;
    succeed(&mut changer, "SET lock_timeout = '100ms'").await;
    assert_eq!(changer.ask("ALTER TABLE accounts DROP COLUMN late").await, "E(55P03 canceling statement due to lock timeout) Z(I)");
    succeed(&mut reader, "COMMIT; SELECT late FROM accounts").await;
}

async fn indexes_made_concurrently(stage: &Stage) {
    let mut client = stage.client().await;
    let make = "CREATE INDEX CONCURRENTLY by_owner ON accounts (owner)";
    assert_eq!(client.ask(make).await, "C(CREATE INDEX) Z(I)");
    assert!(client.ask(make).await.starts_with("E(42P07 "), "it is there on all shards");
    assert_eq!(client.ask("DROP INDEX CONCURRENTLY by_owner").await, "C(DROP INDEX) Z(I)");
    // It fails on one shard, and is taken up there.
    let direct = stage.cluster.connect_shard(1).await;
    direct.batch_execute("CREATE TABLE by_owner (x int)").await.expect("in the way");
    let told = client.ask(make).await;
    assert!(
        told.starts_with("N(01000 done on shard0, failed on shard1, not begun on shard2; repeat the statement to go on)")
            || told.contains("N(01000 done on shard0, failed on shard1, not begun on shard2; repeat the statement to go on)"),
        "{told}"
    );
    assert!(told.contains("E(42P07 "), "{told}");
    direct.batch_execute("DROP TABLE by_owner").await.expect("out of the way");
    let told = client.ask(make).await;
    assert!(told.contains("N(00000 the index is there already on shard \"shard0\") C(CREATE INDEX) Z(I)"), "{told}");
    let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('public.by_owner') AND indisvalid";
    assert_eq!(on_shards(stage, valid).await, ["1"; 3]);
    // An invalid one is made anew; one that is gone is no reason to stop.
    direct.batch_execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'by_owner'::regclass").await.expect("invalid");
    let told = client.ask(make).await;
    assert!(
        told.contains("an invalid index of an earlier attempt is dropped on shard \"shard1\"") && told.contains("C(CREATE INDEX)"),
        "{told}"
    );
    assert_eq!(on_shards(stage, valid).await, ["1"; 3]);
    direct.batch_execute("DROP INDEX by_owner").await.expect("dropped");
    let told = client.ask("DROP INDEX CONCURRENTLY by_owner").await;
    assert!(told.contains("the index is gone already on shard \"shard1\"") && told.contains("C(DROP INDEX)"), "{told}");
    for sql in [
        "VACUUM accounts",
        "ANALYZE accounts",
        "REINDEX TABLE CONCURRENTLY accounts",
        "VACUUM (ANALYZE) currencies",
        "VACUUM shardgate.identity",
        "VACUUM",
    ] {
        succeed(&mut client, sql).await;
    }
    assert!(client.ask("BEGIN; CREATE INDEX CONCURRENTLY by_owner ON accounts (owner)").await.contains("E(25001 "));
    succeed(&mut client, "ROLLBACK").await;
    // What was meant for every shard counts for its own transaction, and only where it has run.
    let one = format!("BEGIN; UPDATE accounts SET balance = 100 WHERE id = {}; COMMIT", stage.key(1, 0));
    for before in ["CREATE INDEX CONCURRENTLY by_balance ON accounts (balance)", "EXPLAIN UPDATE currencies SET name = name"] {
        succeed(&mut client, before).await;
        succeed(&mut client, &one).await;
    }
    assert!(client.ask("UPDATE currencies SET name = random()::text").await.contains("E(0A000 "));
    succeed(&mut client, &one).await;
    succeed(&mut client, "DROP INDEX by_balance").await;
}

/// Migrations wrap changes in DO blocks, to be repeated at will.
async fn blocks_of_changes(stage: &Stage) {
    let mut client = stage.client().await;
    let types = "SELECT count(*) FROM pg_type WHERE typname IN ('mood', 'size', 'pair')";
    for (block, wanted) in [
        ("DO 'BEGIN CREATE TYPE mood AS ENUM (''sad'', ''happy''); EXCEPTION WHEN duplicate_object THEN null; END';", "1"),
        (
            "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
             WHERE lower(t.typname) = 'size' AND n.nspname = current_schema()) THEN CREATE TYPE size AS ENUM ('s', 'l'); END IF; END $$",
            "2",
        ),
        (
            "DO LANGUAGE plpgsql $$ DECLARE found int; BEGIN SELECT count(*) INTO found FROM pg_type WHERE typname = 'pair'; \
             IF found = 0 THEN EXECUTE 'CREATE TYPE pair AS (a int, b mood)'; \
             ELSE RAISE NOTICE 'there are %', found; END IF; END $$",
            "3",
        ),
    ] {
        for attempt in 0..2 {
            let told = client.ask(block).await;
            assert!(told.ends_with("C(DO) Z(I)") && !told.contains("E("), "attempt {attempt}: {told}");
            assert!(told.matches("N(").count() <= 1, "told once: {told}");
            assert_eq!(on_shards(stage, types).await, [wanted; 3], "{block}");
        }
    }
    succeed(&mut client, "ALTER TABLE accounts ADD COLUMN mood mood DEFAULT 'sad'").await;
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE mood = 'sad'").await, "90");
    // All of it or nothing, with what is around it.
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "DO $$ BEGIN ALTER TABLE accounts DROP COLUMN mood; DROP TYPE pair, mood, size; END $$").await;
    assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
    assert_eq!(on_shards(stage, types).await, ["3"; 3]);
    let told = client.ask("DO $$ BEGIN ALTER TABLE accounts DROP COLUMN mood; DROP TYPE pair, mood, size, none_such; END $$").await;
    assert!(told.starts_with("E(42704 "), "{told}");
    assert_eq!(on_shards(stage, types).await, ["3"; 3]);
    let told = client.ask("DO $$ BEGIN ALTER TABLE accounts ADD UNIQUE (owner); EXCEPTION WHEN OTHERS THEN NULL; END $$").await;
    assert!(told.starts_with("E(0A000 a unique constraint of sharded table \"accounts\" must contain its shard key)"), "{told}");
    client.parse("", "DO $$ BEGIN ALTER TABLE accounts DROP COLUMN mood; DROP TYPE pair, mood, size; END $$");
    client.bind("", "", &[]).execute("", 0).sync();
    assert_eq!(client.transcript().await, "1 2 C(DO) Z(I)");
    assert_eq!(on_shards(stage, types).await, ["0"; 3]);
}

/// Clients know it as `app`, or as the home shard calls it; each shard has its own name for it.
async fn the_database_by_its_name(stage: &Stage) {
    let mut client = stage.client().await;
    let is_granted = "SELECT has_database_privilege('reader', current_database(), 'CREATE')";
    for (sql, wanted) in [
        ("GRANT CREATE ON DATABASE app TO reader", "true"),
        ("REVOKE CREATE ON DATABASE \"app\" FROM reader", "false"),
        ("GRANT CREATE, CONNECT ON DATABASE shard0 TO reader", "true"),
        ("REVOKE ALL ON DATABASE app FROM reader", "false"),
    ] {
        succeed(&mut client, sql).await;
        assert_eq!(on_shards(stage, is_granted).await, [wanted; 3], "{sql}");
    }
    succeed(&mut client, "COMMENT ON DATABASE app IS 'ours'").await;
    let comment = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()";
    assert_eq!(on_shards(stage, comment).await, ["ours"; 3]);
    succeed(&mut client, "REINDEX DATABASE app").await;
    succeed(&mut client, "REINDEX (VERBOSE) SYSTEM shard0").await;
    assert!(client.ask("GRANT CREATE ON DATABASE none_such TO reader").await.starts_with("E(3D000 "));
    assert!(client.ask("ALTER DATABASE app RENAME TO other").await.starts_with("E(0A000 "));
}

async fn the_key_stays_as_it_is(stage: &Stage) {
    let mut client = stage.client().await;
    for sql in [
        "ALTER TABLE accounts DROP COLUMN id",
        "ALTER TABLE accounts ALTER COLUMN id TYPE text",
        "ALTER TABLE accounts ADD UNIQUE (owner)",
        "CREATE UNIQUE INDEX ON accounts (owner)",
        "ALTER TABLE accounts SET SCHEMA pg_catalog",
    ] {
        let told = client.ask(sql).await;
        assert!(told.starts_with("E(0A000 "), "{sql}: {told}");
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}

/// Somebody changes one shard directly: a proxy that comes later notices, and one that runs within a minute.
async fn differing_tables_are_refused(stage: &Stage) {
    let direct = stage.cluster.connect_shard(2).await;
    direct
        .batch_execute("ALTER TABLE accounts ADD COLUMN stray int; ALTER TABLE currencies ADD COLUMN stray int; ALTER TABLE notes ADD COLUMN stray int")
        .await
        .expect("changed");
    let proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(proxy.address()).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut told = String::new();
    while !told.starts_with("E(0A000 table \"accounts\" is not the same on all shards)") {
        assert!(Instant::now() < deadline, "not noticed: {told}");
        told = client.ask("SELECT count(*) FROM accounts").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let log = proxy.log();
    assert!(log.contains(r#"column \"stray\" of table \"public.notes\" is missing here"#) && log.contains("shard2"), "{log}");
    client.query("UPDATE accounts SET balance = 1");
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert!(
        error.field(b'D').contains("shard2") && error.field(b'D').contains("stray") && !error.field(b'H').is_empty(),
        "{}",
        error.field(b'D')
    );
    assert!(
        client
            .ask("INSERT INTO currencies (code) VALUES ('XXX')")
            .await
            .starts_with("E(0A000 table \"currencies\" is not the same")
    );
    // What runs on one shard goes on.
    succeed(&mut client, &stage.fill_in("SELECT balance FROM accounts WHERE id = {a}")).await;
    succeed(&mut client, "SELECT code FROM currencies").await;
    direct
        .batch_execute(
            "ALTER TABLE accounts DROP COLUMN stray; ALTER TABLE currencies DROP COLUMN stray; ALTER TABLE notes DROP COLUMN stray",
        )
        .await
        .expect("mended");
    let again = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(again.address()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}

/// A client's login can be passed on to every shard: what they store of its password is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_the_same_on_every_server() {
    let stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let stored = async || {
        let mut found = Vec::new();
        for shard in 0..2 {
            let direct = stage.cluster.connect_shard(shard).await;
            let row = direct.query_one("SELECT rolpassword FROM pg_authid WHERE rolname = 'clerk'", &[]).await.expect("a role");
            found.push(row.get::<_, Option<String>>(0).unwrap_or_default());
        }
        assert_eq!(found.first(), found.last());
        found.swap_remove(0)
    };
    succeed(&mut client, "CREATE ROLE clerk LOGIN PASSWORD 'it''s a secret'").await;
    let first = stored().await;
    assert!(first.starts_with("SCRAM-SHA-256$4096:"), "{first}");
    succeed(&mut client, "ALTER ROLE clerk PASSWORD 'another' VALID UNTIL 'infinity'").await;
    assert_ne!(stored().await, first);
    succeed(&mut client, &format!("ALTER ROLE clerk PASSWORD '{first}'")).await;
    assert_eq!(stored().await, first, "as it was given");
    succeed(&mut client, "ALTER ROLE clerk PASSWORD NULL").await;
    assert_eq!(stored().await, "");
}
