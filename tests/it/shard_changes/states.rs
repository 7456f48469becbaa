//! The states of a shard: what waits, what is refused, what goes on.

use std::time::Duration;

use super::load::Load;
use super::told;
use crate::sessions::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

#[tokio::test]
async fn in_maintenance_statements_wait_and_then_go_on() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let impatient = ProxyOptions { settings: vec![("pool.maintenance_timeout_ms", "200".to_owned())], ..ProxyOptions::default() };
    let second = Proxy::start(&stage.cluster, impatient);
    let mut admin = stage.client().await;
    let (here, there) = (stage.key(0, 0), stage.key(1, 0));
    // It has begun there, and goes on.
    let mut begun = stage.client().await;
    succeed(&mut begun, &format!("BEGIN; UPDATE accounts SET balance = 1 WHERE id = {there}")).await;
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard1', state => 'maintenance')").await;

    let statements = [
        (format!("SELECT owner FROM accounts WHERE id = {}", stage.key(1, 1)), "D("),
        ("SELECT count(*) FROM accounts".to_owned(), "D(90)"),
        ("SELECT count(DISTINCT a.owner) FROM accounts a JOIN notes n ON a.id = n.id".to_owned(), "D(0)"),
        (format!("UPDATE accounts SET balance = 2 WHERE id = {}", stage.key(1, 2)), "C(UPDATE 1)"),
        ("UPDATE currencies SET name = 'Rupie' WHERE code = 'INR'".to_owned(), "C(UPDATE 1)"),
        (
            format!(
                "BEGIN; UPDATE accounts SET balance = 3 WHERE id = {here}; UPDATE accounts SET balance = 3 WHERE id = {}; COMMIT",
                stage.key(1, 3)
            ),
            "C(COMMIT)",
        ),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM accounts; COMMIT".to_owned(), "D(90)"),
    ];
    let mut waiting = Vec::new();
    for (sql, expected) in statements {
        let mut client = stage.client().await;
        waiting.push((expected, sql.clone(), tokio::spawn(async move { client.ask(&sql).await })));
    }
    // One who waits may cancel.
    let mut canceled = stage.client().await;
    let cancel = canceled.cancel();
    let asked = tokio::spawn(async move { canceled.ask(&format!("SELECT owner FROM accounts WHERE id = {there}")).await });
    // Each of these takes a while in which the others could have been answered.
    let mut impatient = WireClient::connect(second.address()).await;
    let said = told(&mut impatient, &format!("SELECT owner FROM accounts WHERE id = {there}")).await;
    assert!(
        said.starts_with(
            "57P03 | shard \"shard1\" is in maintenance | It was not back within 200 ms (pool.maintenance_timeout_ms)."
        ),
        "{said}"
    );
    assert_eq!(impatient.value(&format!("SELECT owner FROM accounts WHERE id = {here}")).await, format!("o{here}"));
    assert_eq!(impatient.value("SELECT count(*) FROM currencies").await, "2");
    for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"] {
        let told = impatient.ask(&format!("{begin}; SELECT owner FROM accounts WHERE id = {here}; COMMIT")).await;
        assert!(told.ends_with(&format!("D(o{here}) C(SELECT 1) C(COMMIT) Z(I)")), "{begin}: {told}");
    }
    succeed(&mut begun, &format!("UPDATE accounts SET balance = 5 WHERE id = {there}; COMMIT")).await;
    cancel.await;
    let canceled = asked.await.expect("no panic");
    assert!(canceled.contains("E(57014 "), "{canceled}");
    for (_, sql, client) in &waiting {
        assert!(!client.is_finished(), "{sql}");
    }
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard1', state => 'online')").await;
    for (expected, sql, client) in waiting {
        let told = tokio::time::timeout(Duration::from_secs(20), client).await.expect("answered").expect("no panic");
        assert!(told.contains(expected) && !told.contains("E("), "{sql}: {told}");
    }
    assert_eq!(admin.value(&format!("SELECT balance FROM accounts WHERE id = {there}")).await, "5");
    stage.assert_log_is_clean();
}

/// What another shard can say as well does not wait for it: settings, and what a statement's columns are.
#[tokio::test]
async fn while_the_home_shard_is_in_maintenance_settings_and_other_keys_go_on() {
    let patient = ProxyOptions { settings: vec![("pool.maintenance_timeout_ms", "600000".to_owned())], ..ProxyOptions::default() };
    let stage = Stage::start(2, patient).await;
    let mut admin = stage.client().await;
    let mut old = stage.client().await;
    let there = stage.key(1, 0);
    for statement in [
        "CREATE FUNCTION locks() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); END'",
        "SELECT shardgate.declare_function('locks')",
    ] {
        succeed(&mut admin, statement).await;
    }
    succeed(&mut old, "SET work_mem = '5MB'").await;
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard0', state => 'maintenance')").await;
    let mut new = stage.client().await;
    let going_on = async {
        for client in [&mut old, &mut new] {
            succeed(client, "SET work_mem = '6MB'").await;
            succeed(client, "SET search_path = public").await;
            assert_eq!(client.value("SHOW work_mem").await, "6MB");
            assert_eq!(client.value("SELECT 1").await, "1");
            assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {there}")).await, format!("o{there}"));
            succeed(client, &format!("PREPARE p AS SELECT owner FROM accounts WHERE id = {there}")).await;
            assert_eq!(client.value("EXECUTE p").await, format!("o{there}"));
            client.unnamed("SELECT owner FROM accounts WHERE id = $1", &[&there.to_string()]).sync();
            assert!(client.transcript().await.contains(&format!("D(o{there})")));
            succeed(client, "RESET work_mem").await;
            succeed(client, "DISCARD ALL").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), going_on).await.expect("nothing waits for the home shard");
    // A lock that others may have there is taken there.
    let canceled = new.ask("SET statement_timeout = '300ms'; SELECT locks()").await;
    assert!(canceled.contains("E(57014 "), "{canceled}");
    succeed(&mut new, "RESET statement_timeout").await;
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard0', state => 'online')").await;
    assert_eq!(new.value("SELECT count(*) FROM accounts").await, "90");
    stage.assert_log_is_clean();
}

/// The home shard describes every statement.
#[tokio::test]
async fn the_home_shard_may_be_in_maintenance_under_load() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut admin = stage.client().await;
    let load = Load::start(&[stage.proxy.address(), second.address()], 0);
    for round in 0..3 {
        load.until_written(30).await;
        succeed(&mut admin, "SELECT shardgate.alter_shard('shard0', state => 'maintenance')").await;
        // Sessions begin meanwhile.
        let mut client = WireClient::connect(second.address()).await;
        let sql = format!("INSERT INTO notes VALUES ({round}, 'x')");
        let written = tokio::spawn(async move { client.ask(&sql).await });
        assert_eq!(admin.value("SELECT state FROM shardgate.shards WHERE is_home").await, "maintenance");
        succeed(&mut admin, "SELECT shardgate.alter_shard('shard0', state => 'online')").await;
        assert_eq!(written.await.expect("no panic"), "C(INSERT 0 1) Z(I)");
    }
    load.until_written(30).await;
    let written = load.end(&stage).await;
    assert!(written.errors.is_empty(), "{:#?}", written.errors);
}

#[tokio::test]
async fn a_read_only_shard_is_read_and_not_written() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut admin = stage.client().await;
    let (here, there) = (stage.key(0, 0), stage.key(1, 0));
    for statement in [
        "CREATE TABLE jotted (n int)",
        "CREATE FUNCTION jot() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO jotted VALUES (1); RETURN 1; END $$",
    ] {
        succeed(&mut admin, statement).await;
    }
    for shard in 0..2 {
        let name = format!("shard{shard}");
        let (closed, open) = if shard == 0 { (here, there) } else { (there, here) };
        // Sessions that were there before: one has just written, one keeps a temporary table, one is in a transaction.
        let mut client = WireClient::connect(second.address()).await;
        let update = |id: i64| format!("UPDATE accounts SET balance = balance + 1 WHERE id = {id}");
        succeed(&mut client, &update(closed)).await;
        client.parse("again", "UPDATE accounts SET balance = balance + 1 WHERE id = $1").sync();
        client.answers().await;
        let closed_text = closed.to_string();
        client.bind("", "again", &[&closed_text]).execute("", 0).sync();
        assert_eq!(client.transcript().await, "2 C(UPDATE 1) Z(I)");
        let mut begun = stage.client().await;
        succeed(&mut begun, &format!("BEGIN; {}", update(closed))).await;
        succeed(&mut begun, &update(open)).await;
        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('{name}', state => 'read_only')")).await;
        succeed(&mut begun, "COMMIT").await;

        let refusal = format!(
            "25006 | cannot execute UPDATE on shard \"{name}\", which is read-only | An administrator has set the state of the shard to \
             read_only. | SELECT shardgate.alter_shard('{name}', state => 'online') lets it take writes again."
        );
        assert_eq!(told(&mut client, &update(closed)).await, refusal);
        client.bind("", "again", &[&closed_text]).execute("", 0).sync();
        let said = client.transcript().await;
        assert!(said.contains("E(25006 cannot execute UPDATE on shard"), "{said}");
        for sql in [
            "UPDATE accounts SET balance = 7".to_owned(),
            "UPDATE currencies SET name = 'x'".to_owned(),
            format!("INSERT INTO accounts VALUES ({closed}, 'x', 1)"),
            format!("DELETE FROM accounts WHERE id = {closed}"),
            format!("BEGIN; SET TRANSACTION READ WRITE; {}", update(closed)),
            format!("SELECT balance FROM accounts WHERE id = {closed} FOR UPDATE"),
            "TRUNCATE accounts".to_owned(),
            "CREATE TABLE new (n int)".to_owned(),
        ] {
            let mut client = stage.client().await;
            client.ask("SET default_transaction_read_only = off").await;
            let said = told(&mut client, &sql).await;
            assert!(said.contains("25006 | cannot execute "), "{name}, {sql}: {said}");
        }
        for sql in
            [format!("SELECT balance FROM accounts WHERE id = {closed} FOR SHARE"), "SELECT id FROM accounts FOR UPDATE".to_owned()]
        {
            let said = told(&mut stage.client().await, &sql).await;
            let expected =
                format!("25006 | cannot execute SELECT FOR UPDATE or SHARE on shard \"{name}\", which is read-only | An admin");
            assert!(said.starts_with(&expected), "{sql}: {said}");
        }
        // What a function writes the shard itself refuses, also where the client asks for a transaction that writes.
        if shard == 0 {
            for sql in ["SELECT jot()", "BEGIN READ WRITE; SELECT jot()", "BEGIN; SELECT count(*) FROM jotted; SELECT jot()"] {
                let said = told(&mut stage.client().await, sql).await;
                assert!(said.contains("25006 | cannot execute "), "{sql}: {said}");
            }
        }
        // Reads go on, also those that need a temporary table on the home shard, and writes elsewhere.
        assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
        let joined = "SELECT count(*) FROM accounts a JOIN accounts b ON a.owner = b.owner WHERE a.balance > -1";
        assert_eq!(client.value(joined).await, "90");
        assert_eq!(client.value("SELECT count(*) FROM currencies").await, "2");
        succeed(&mut client, &update(open)).await;
        let both = format!("BEGIN; {}; SELECT owner FROM accounts WHERE id = {closed}; {}; COMMIT", update(open), update(open));
        let said = client.ask(&both).await;
        assert!(said.ends_with("C(COMMIT) Z(I)"), "{said}");
        let said = told(&mut admin, "CREATE TABLE fresh (n int); SELECT shardgate.reference_table('currencies')").await;
        assert!(said.contains("25006 ") || said.contains("takes no writes"), "{said}");

        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('{name}', state => 'online')")).await;
        succeed(&mut client, &update(closed)).await;
        succeed(&mut client, "SELECT jot()").await;
    }
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn a_draining_shard_gets_no_new_partitions() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut admin = stage.client().await;
    let there = stage.key(1, 0);
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard1', state => 'draining')").await;
    succeed(&mut admin, &format!("UPDATE accounts SET balance = 1 WHERE id = {there}")).await;
    for statement in [
        "CREATE TABLE spread (id bigint PRIMARY KEY)",
        "SELECT shardgate.distribute_table('spread', 'id', colocate_with => NULL, partitions => 8)",
        "CREATE TABLE tenants (name text PRIMARY KEY)",
        "SELECT shardgate.distribute_table('tenants', 'name', 'lookup')",
    ] {
        succeed(&mut admin, statement).await;
    }
    let shards = "SELECT string_agg(DISTINCT shard, ',' ORDER BY shard) FROM shardgate.partitions p JOIN shardgate.tables t \
                  USING (colocation_group) WHERE table_name = ";
    assert_eq!(admin.value(&format!("{shards}'spread'")).await, "shard0,shard2");
    assert_eq!(admin.value(&format!("{shards}'tenants'")).await, "shard0,shard2");
    for (call, expected) in [
        ("map_key('tenants', 'a', 'shard1')", "55000 | shard \"shard1\" takes no new partitions | Its state is \"draining\"."),
        ("set_default_shard('tenants', 'shard1')", "55000 | shard \"shard1\" takes no new partitions"),
        ("distribute_table('other', 'id', on_shards => 'shard1')", "55000 | shard \"shard1\" takes no new partitions"),
    ] {
        succeed(&mut admin, "CREATE TABLE IF NOT EXISTS other (id bigint PRIMARY KEY)").await;
        let said = told(&mut admin, &format!("SELECT shardgate.{call}")).await;
        assert!(said.starts_with(expected), "{call}: {said}");
    }
    // Moves leave it, and none goes there.
    let leaving = "SELECT bool_and(source = 'shard1' AND target <> 'shard1') FROM shardgate.rebalance('accounts', dry_run => true)";
    assert_eq!(admin.value(leaving).await, "t");
    let elsewhere = "SELECT min(partition_id) FROM shardgate.partitions p JOIN shardgate.tables t USING (colocation_group) \
                     WHERE table_name = 'accounts' AND shard = 'shard0'";
    let elsewhere = admin.value(elsewhere).await;
    let said = told(&mut admin, &format!("SELECT shardgate.move_partition({elsewhere}, 'shard1')")).await;
    assert!(said.starts_with("55000 | shard \"shard1\" takes no new partitions | Its state is \"draining\"."), "{said}");
    // A table that has rows stays where they are, also on a draining home shard.
    succeed(&mut admin, "SELECT shardgate.alter_shard('shard0', state => 'draining'); CREATE TABLE kept (id bigint PRIMARY KEY)")
        .await;
    succeed(&mut admin, "INSERT INTO kept VALUES (1)").await;
    succeed(&mut admin, "SELECT shardgate.distribute_table('kept', 'id', partitions => 4)").await;
    assert_eq!(admin.value(&format!("{shards}'kept'")).await, "shard0");
    for name in ["shard0", "shard1"] {
        succeed(&mut admin, &format!("SELECT shardgate.alter_shard('{name}', state => 'online')")).await;
    }
    succeed(&mut admin, "SELECT shardgate.map_key('tenants', 'a', 'shard1')").await;
    super::time_partitions::next_pieces_are_made_ahead_of_now(&stage).await;
}
