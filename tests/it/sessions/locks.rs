//! Row locks over several shards, against other sessions: exactly the rows of the answer are locked, in their order, and for as
//! long as the transaction.

use std::time::Duration;

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_locks_are_taken_where_the_rows_are() {
    let settings = vec![("cross_shard.merge_bytes_max", "65536".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    first_rows_are_locked_and_no_others(&stage).await;
    rows_that_are_tied_are_locked(&stage).await;
    a_limit_waits_for_its_own_rows_only(&stage).await;
    what_changed_meanwhile_is_seen(&stage).await;
    nowait_fails_for_its_own_rows_only(&stage).await;
    the_same_locks_do_not_cross(&stage).await;
    locks_end_with_the_statement(&stage).await;
    too_many_rows_are_refused(&stage).await;
    a_wait_ends_when_it_is_cancelled(&stage).await;
    every_job_is_taken_once(&stage).await;
    rows_of_a_reference_table_are_locked_once(&stage).await;
    stage.assert_log_is_clean();
}

/// What another session can lock at once.
async fn free(stage: &Stage) -> Vec<i64> {
    let mut client = stage.client().await;
    client.query("SELECT id FROM accounts ORDER BY id FOR UPDATE SKIP LOCKED");
    ids(&mut client).await
}

async fn ids(client: &mut WireClient) -> Vec<i64> {
    let answers = client.answers().await;
    let rows = answers.iter().filter(|message| message.tag == b'D');
    rows.map(|row| row.columns()[0].as_deref().expect("an id").parse().expect("a number")).collect()
}

async fn first_rows_are_locked_and_no_others(stage: &Stage) {
    let mut client = stage.client().await;
    for (locking, locked) in [
        ("ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED", 1..=5),
        ("ORDER BY id LIMIT 3 OFFSET 2 FOR UPDATE SKIP LOCKED", 1..=5),
        ("ORDER BY id LIMIT 5 FOR UPDATE", 1..=5),
        ("ORDER BY id DESC LIMIT 4 FOR NO KEY UPDATE NOWAIT", 87..=90),
        ("WHERE id > 80 FOR UPDATE", 81..=90),
        ("WHERE id IN (SELECT id + 1 FROM accounts WHERE id < 4) FOR UPDATE", 2..=4),
        ("WHERE id > (SELECT max(id) - 2 FROM accounts) ORDER BY id LIMIT 1 FOR UPDATE", 89..=89),
    ] {
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, &format!("SELECT id FROM accounts {locking}")).await;
        let expected: Vec<i64> = (1..=90).filter(|id| !locked.contains(id)).collect();
        assert_eq!(free(stage).await, expected, "{locking}");
        // Those that are locked are passed by.
        let mut other = stage.client().await;
        other.query("SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED");
        assert_eq!(ids(&mut other).await, expected[..2], "{locking}");
        succeed(&mut client, "ROLLBACK").await;
    }
    assert_eq!(free(stage).await.len(), 90);
}

/// What is seen without locks may come in another order, and with other values: which of them is locked does not matter.
async fn rows_that_are_tied_are_locked(stage: &Stage) {
    let mut client = stage.client().await;
    for (query, locked) in [
        ("SELECT id FROM accounts ORDER BY balance LIMIT 5 FOR UPDATE", 5),
        ("SELECT id FROM accounts ORDER BY balance, id % 2 DESC LIMIT 5 OFFSET 3 FOR NO KEY UPDATE NOWAIT", 8),
        ("SELECT id, gen_random_uuid() FROM accounts ORDER BY id LIMIT 3 FOR SHARE", 3),
        ("SELECT id, clock_timestamp() FROM accounts LIMIT 60 FOR UPDATE", 60),
        ("SELECT a.id FROM accounts a JOIN accounts b ON a.id = b.id ORDER BY b.balance LIMIT 5 FOR UPDATE OF a", 5),
    ] {
        succeed(&mut client, "BEGIN").await;
        client.query(query);
        let mut told = ids(&mut client).await;
        told.sort_unstable();
        told.dedup();
        let free = free(stage).await;
        assert_eq!(free.len(), 90 - locked, "{query}");
        assert!(!told.is_empty() && told.iter().all(|id| !free.contains(id)), "{query}: {told:?} of those that are not {free:?}");
        assert_eq!(told.len(), if query.contains("OFFSET") { locked - 3 } else { locked }, "{query}");
        succeed(&mut client, "ROLLBACK").await;
    }
}

/// A row beyond the limit is held by somebody else, and does not matter.
async fn a_limit_waits_for_its_own_rows_only(stage: &Stage) {
    let (mut holder, mut client) = (stage.client().await, stage.client().await);
    succeed(&mut holder, "BEGIN").await;
    succeed(&mut holder, "SELECT id FROM accounts WHERE id IN (3, 4, 5, 6) ORDER BY id FOR UPDATE").await;
    client.query("SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE");
    assert_eq!(ids(&mut client).await, [1, 2]);
    succeed(&mut holder, "ROLLBACK").await;
}

async fn what_changed_meanwhile_is_seen(stage: &Stage) {
    let (mut holder, mut waiter) = (stage.client().await, stage.client().await);
    succeed(&mut holder, "BEGIN").await;
    succeed(&mut holder, "SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE").await;
    waiter.query("SELECT id, owner FROM accounts WHERE balance = 100 ORDER BY id LIMIT 3 FOR UPDATE");
    waiter.flush().await;
    let shard = if stage.is_on(0, 1) { 0 } else { 1 };
    stage.until_active(shard, "FETCH FORWARD").await;
    succeed(&mut holder, "UPDATE accounts SET balance = 99 WHERE id = 1").await;
    succeed(&mut holder, "UPDATE accounts SET owner = 'changed' WHERE id = 2").await;
    succeed(&mut holder, "COMMIT").await;
    let told = waiter.transcript().await;
    assert!(told.contains("D(2,changed) D(3,o3) D(4,o4)"), "{told}");
    assert!(!told.contains("D(1,"), "{told}");
    succeed(&mut holder, "UPDATE accounts SET balance = 100, owner = 'o' || id WHERE id IN (1, 2)").await;
}

/// Whichever shard a session would read them from.
async fn rows_of_a_reference_table_are_locked_once(stage: &Stage) {
    let mut holder = stage.client().await;
    for locking in ["FOR UPDATE", "FOR NO KEY UPDATE OF currencies", "FOR UPDATE OF c"] {
        let name = if locking.ends_with('c') { "currencies c" } else { "currencies" };
        succeed(&mut holder, "BEGIN").await;
        succeed(&mut holder, &format!("SELECT code FROM {name} WHERE code = 'EUR' {locking}")).await;
        for _ in 0..4 {
            let free = "SELECT code FROM currencies FOR UPDATE SKIP LOCKED";
            let told = stage.client().await.ask(free).await;
            assert!(told.ends_with("D(INR) C(SELECT 1) Z(I)") && !told.contains("EUR"), "{locking}: {told}");
            let free = "SELECT * FROM (SELECT code FROM currencies WHERE code = 'EUR') c FOR SHARE SKIP LOCKED";
            let told = stage.client().await.ask(free).await;
            assert!(told.ends_with("C(SELECT 0) Z(I)"), "{locking}: {told}");
        }
        succeed(&mut holder, "ROLLBACK").await;
    }
    let mut client = stage.client().await;
    for refused in [
        "SELECT a.id FROM accounts a JOIN currencies c ON c.code = a.owner WHERE a.id = 1 FOR UPDATE",
        "SELECT a.id FROM accounts a JOIN currencies c ON c.code = a.owner WHERE a.id = 1 FOR UPDATE OF a FOR SHARE OF c",
        "SELECT a.id FROM accounts a, (SELECT * FROM currencies) c WHERE a.id = 1 FOR UPDATE OF c",
    ] {
        let told = client.ask(refused).await;
        assert!(told.starts_with("E(0A000 row locks of a reference table beside sharded ones are not supported)"), "{told}");
    }
    let of_sharded = "SELECT a.id FROM accounts a LEFT JOIN currencies c ON c.code = a.owner WHERE a.id = 1 FOR UPDATE OF a";
    assert!(client.ask(of_sharded).await.contains("D(1) C(SELECT 1)"));
}

async fn nowait_fails_for_its_own_rows_only(stage: &Stage) {
    let (mut holder, mut client) = (stage.client().await, stage.client().await);
    succeed(&mut holder, "BEGIN").await;
    succeed(&mut holder, "SELECT id FROM accounts ORDER BY id LIMIT 3 FOR UPDATE").await;
    let told = client.ask("SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE NOWAIT").await;
    assert!(told.contains("E(55P03 could not obtain lock on row in relation \"accounts\")"), "{told}");
    client.query("SELECT id FROM accounts ORDER BY id DESC LIMIT 2 FOR UPDATE NOWAIT");
    assert_eq!(ids(&mut client).await, [90, 89]);
    client.query("SELECT id FROM accounts ORDER BY id LIMIT 2 FOR SHARE SKIP LOCKED");
    assert_eq!(ids(&mut client).await, [4, 5]);
    succeed(&mut holder, "ROLLBACK").await;
}

/// They wait for each other on the first shard, and then go on.
async fn the_same_locks_do_not_cross(stage: &Stage) {
    for locking in ["FOR UPDATE", "ORDER BY id FOR UPDATE", "ORDER BY id LIMIT 20 FOR UPDATE"] {
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let mut client = stage.client().await;
            tasks.push(tokio::spawn(async move {
                for _ in 0..3 {
                    succeed(&mut client, "BEGIN").await;
                    succeed(&mut client, &format!("SELECT id FROM accounts {locking}")).await;
                    succeed(&mut client, "COMMIT").await;
                }
            }));
        }
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(60), task).await.expect("nobody waits for ever").expect("answered");
        }
    }
}

async fn locks_end_with_the_statement(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "SELECT id FROM accounts ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED").await;
    client.unnamed("SELECT id FROM accounts ORDER BY id LIMIT $1 FOR UPDATE", &["7"]).sync();
    client.transcript().await;
    assert_eq!(free(stage).await.len(), 90);
}

async fn too_many_rows_are_refused(stage: &Stage) {
    let mut client = stage.client().await;
    let told = client.ask("SELECT id, repeat('x', 2000) FROM accounts ORDER BY id LIMIT 80 FOR UPDATE").await;
    assert!(told.contains("E(53400 the locked rows of the statement take more than 65536 bytes)"), "{told}");
    assert_eq!(free(stage).await.len(), 90);
}

async fn a_wait_ends_when_it_is_cancelled(stage: &Stage) {
    let (mut holder, mut waiter) = (stage.client().await, stage.client().await);
    succeed(&mut holder, "BEGIN").await;
    succeed(&mut holder, "SELECT id FROM accounts WHERE id > 85 FOR UPDATE").await;
    waiter.query("SELECT id FROM accounts ORDER BY id FOR UPDATE");
    waiter.flush().await;
    let shard = if (86..=90).any(|id| stage.is_on(0, id)) { 0 } else { 1 };
    stage.until_active(shard, "FETCH FORWARD").await;
    waiter.cancel().await;
    let told = waiter.transcript().await;
    assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
    succeed(&mut holder, "ROLLBACK").await;
    assert_eq!(free(stage).await.len(), 90);
}

/// Workers that take jobs from one queue until it is empty.
async fn every_job_is_taken_once(stage: &Stage) {
    let mut tasks = Vec::new();
    for worker in 0..6 {
        let mut client = stage.client().await;
        tasks.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            // Others may hold for a moment what is left: an empty answer says it only when it comes again.
            let mut empty = 0;
            while empty < 20 {
                succeed(&mut client, "BEGIN").await;
                client.query("SELECT id FROM accounts WHERE balance = 100 ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED");
                let jobs = ids(&mut client).await;
                for id in &jobs {
                    succeed(&mut client, &format!("UPDATE accounts SET balance = {worker} WHERE id = {id}")).await;
                }
                succeed(&mut client, "COMMIT").await;
                empty = if jobs.is_empty() { empty + 1 } else { 0 };
                assert!(jobs.len() <= 3, "{jobs:?}");
                taken.extend(jobs);
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("worked"));
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=90).collect::<Vec<i64>>());
}

/// LOCK TABLE holds every shard's part, and whoever else wants it waits on the first of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_locked_on_every_shard() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let (mut client, mut other) = (stage.client().await, stage.client().await);
    assert_eq!(client.ask("LOCK TABLE accounts").await, "E(25P01 LOCK TABLE can only be used in transaction blocks) Z(I)");
    for table in ["accounts", "currencies"] {
        assert_eq!(client.ask(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")).await, "C(BEGIN) C(LOCK TABLE) Z(T)");
        for shard in 0..3 {
            let direct = stage.cluster.connect_shard(shard).await;
            let error = direct
                .batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ROW EXCLUSIVE MODE NOWAIT"))
                .await
                .expect_err("it is locked");
            assert_eq!(error.code().map(|code| code.code()), Some("55P03"), "{table} on shard {shard}");
        }
        // Those who may share it do.
        assert_eq!(
            other.ask(&format!("BEGIN; LOCK {table} IN SHARE MODE NOWAIT; COMMIT")).await,
            "C(BEGIN) C(LOCK TABLE) C(COMMIT) Z(I)"
        );
        let told = other.ask(&format!("BEGIN; LOCK {table} IN EXCLUSIVE MODE NOWAIT")).await;
        assert_eq!(told, format!("C(BEGIN) E(55P03 could not obtain lock on relation \"{table}\") Z(E)"));
        succeed(&mut other, "ROLLBACK").await;
        succeed(&mut client, "COMMIT").await;
    }
    // As messages of the extended protocol, and two at once: neither waits for the other crosswise.
    for round in 0..5 {
        for session in [&mut client, &mut other] {
            session.query(&format!("BEGIN; LOCK TABLE accounts; UPDATE accounts SET balance = balance + {round}; COMMIT"));
            session.flush().await;
        }
        for session in [&mut client, &mut other] {
            assert_eq!(session.transcript().await, "C(BEGIN) C(LOCK TABLE) C(UPDATE 90) C(COMMIT) Z(I)");
        }
    }
    succeed(&mut client, "BEGIN").await;
    client.unnamed("LOCK TABLE accounts, currencies, notes", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(LOCK TABLE) Z(T)");
    assert_eq!(client.value("SELECT count(*) FROM accounts a, notes n, currencies c").await, "0");
    succeed(&mut client, "ROLLBACK").await;
    // One snapshot cannot be that of several shards.
    dumped(&stage, &mut client).await;
    let told = client.ask("BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE accounts").await;
    assert!(told.starts_with("C(BEGIN) E(0A000 cannot use a second shard in a REPEATABLE READ"), "{told}");
    stage.assert_log_is_clean();
}

/// The session that gathers rows is another one on the shard: it must not wait for its own transaction.
/// As pg_dump does it: one snapshot, in which rows of one shard are read, and tables that nobody may change meanwhile.
async fn dumped(stage: &Stage, client: &mut WireClient) {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; LOCK TABLE accounts, notes, currencies, shardgate.identity \
                 IN ACCESS SHARE MODE";
    assert_eq!(client.ask(begin).await, "C(BEGIN) C(LOCK TABLE) Z(T)");
    assert_eq!(client.value("SELECT count(*) FROM pg_class WHERE relname = 'accounts'").await, "1");
    succeed(client, "COPY notes TO STDOUT").await;
    succeed(client, "COPY currencies TO STDOUT").await;
    let mut other = stage.client().await;
    for change in ["ALTER TABLE accounts ADD COLUMN late int", "TRUNCATE accounts", "DROP TABLE currencies"] {
        let told = other.ask(&format!("BEGIN; SET LOCAL lock_timeout = '50ms'; {change}")).await;
        assert!(told.contains("E(55P03 "), "{change}: {told}");
        succeed(&mut other, "ROLLBACK").await;
    }
    let told = client.ask("COPY accounts TO STDOUT").await;
    assert!(told.starts_with("E(0A000 cannot use a second shard in a REPEATABLE READ"), "the whole or nothing: {told}");
    succeed(client, "ROLLBACK").await;
    // A query before the locks, as the program's own, takes the snapshots of all shards.
    succeed(client, "BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").await;
    assert_eq!(client.value("SELECT count(*) FROM pg_class WHERE relname = 'accounts'").await, "1");
    succeed(client, "LOCK TABLE accounts, notes, currencies, shardgate.identity IN ACCESS SHARE MODE").await;
    let told = other.ask("BEGIN; SET LOCAL lock_timeout = '50ms'; TRUNCATE accounts").await;
    assert!(told.contains("E(55P03 "), "{told}");
    succeed(&mut other, "ROLLBACK").await;
    let total = other.value("SELECT sum(balance) FROM accounts").await;
    succeed(&mut other, "UPDATE accounts SET balance = balance + 1").await;
    assert_eq!(client.ask("COPY accounts (balance) TO STDOUT").await.matches("d").count(), 90);
    assert_eq!(client.value("SELECT sum(balance) FROM accounts").await, total);
    succeed(client, "COMMIT").await;
    succeed(&mut other, "UPDATE accounts SET balance = balance - 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_locked_home_table_are_gathered_by_who_has_locked_it() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "INSERT INTO notes VALUES (1, 'one'), (2, 'two')").await;
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "LOCK TABLE notes IN ACCESS EXCLUSIVE MODE").await;
    let told = client.ask("SELECT n.text, a.owner FROM notes n JOIN accounts a ON a.balance = n.id * 100 ORDER BY 2 LIMIT 1").await;
    assert_eq!(told, "T(text,owner) D(one,o1) C(SELECT 1) Z(T)");
    client.unnamed("SELECT count(*) FROM notes n, accounts a WHERE a.id < $1 AND n.id <> a.balance", &["10"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(18) C(SELECT 1) Z(T)");
    succeed(&mut client, "COMMIT").await;
    stage.assert_log_is_clean();
}
