//! Connections that break in the middle: what one shard owes is nobody else's answer, and what was begun is undone.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_shard_owes_to_one_client_is_nobody_elses() {
    let stage = with_cables(&[1, 2]).await;
    let mut other = stage.client().await;
    let statements =
        ["SELECT owner FROM accounts WHERE balance = 100 ORDER BY id", "UPDATE accounts SET balance = balance WHERE id > 0"];
    for statement in statements {
        let mut client = stage.client().await;
        succeed(&mut client, statement).await;
        let mut locking = stage.cluster.connect_shard(0).await;
        let lock = locking.transaction().await.expect("a transaction");
        lock.batch_execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        // While the client waits for the last shard, the one before is lost; the first one is asked all the same.
        stage.cluster.cable(2).hold();
        client.query(statement);
        client.flush().await;
        until_held(&mut other, &["shard0", "shard1"]).await;
        stage.cluster.cable(1).cut();
        stage.cluster.cable(2).release();
        let told = client.transcript().await;
        assert!(told.contains("E(08006 ") && told.ends_with("Z(I)"), "{statement}: {told}");
        other.query("SELECT 'mine' FROM notes RIGHT JOIN (VALUES (1)) AS one ON true");
        other.flush().await;
        lock.commit().await.expect("the lock is let go");
        assert_eq!(other.transcript().await, "T(?column?) D(mine) C(SELECT 1) Z(I)", "{statement}");
        succeed(&mut client, statement).await;
    }
    stage.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_before_it_begins_leaves_nothing_begun() {
    let stage = with_cables(&[2]).await;
    let mut client = stage.client().await;
    let own = stage.key(0, 0);
    let in_block = [
        "SELECT owner FROM accounts ORDER BY id FOR UPDATE",
        "DECLARE c CURSOR FOR SELECT owner FROM accounts ORDER BY id",
        "SELECT owner FROM accounts ORDER BY id",
    ];
    stage.cluster.cable(2).refuse();
    for statement in in_block {
        succeed(&mut client, &format!("BEGIN; UPDATE accounts SET balance = balance WHERE id = {own}; SAVEPOINT s")).await;
        let told = client.ask(statement).await;
        assert!(told.contains("E(57P03 ") || told.contains("E(08006 "), "{statement}: {told}");
        assert_eq!(client.ask("ROLLBACK TO s").await, "C(ROLLBACK) Z(T)", "{statement}");
        assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {own}")).await, format!("o{own}"));
        succeed(&mut client, "COMMIT").await;
    }
    // A proxy that has not asked the shards yet whether they can prepare.
    let fresh = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(fresh.address()).await;
    let told = client.ask("CREATE TABLE never (id int)").await;
    assert!(told.starts_with("E(") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {own}")).await, format!("o{own}"));
    stage.assert_no_panic();
}

/// The others are told to stop: nobody waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_shard_ends_the_statement_on_all() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let wrong = stage.key(0, 0);
    let mut locking = stage.cluster.connect_shard(1).await;
    let lock = locking.transaction().await.expect("a transaction");
    lock.batch_execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    let statements = [
        format!("SELECT 1 / (id - {wrong}) FROM accounts"),
        format!("UPDATE accounts SET balance = 1 / (id - {wrong})"),
        format!("INSERT INTO accounts SELECT id + 1000, owner, 1 / (id - {wrong}) FROM accounts"),
    ];
    for statement in &statements {
        let told = client.ask(statement).await;
        assert!(told.contains("E(22012 ") && told.ends_with("Z(I)"), "{statement}: {told}");
        client.unnamed(statement, &[]).sync();
        let told = client.transcript().await;
        assert!(told.contains("E(22012 ") && told.ends_with("Z(I)"), "{statement}, as a portal: {told}");
        assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {wrong}")).await, format!("o{wrong}"));
    }
    drop(lock);
    stage.assert_log_is_clean();
}

/// Nothing has failed: after a while all are watched at once, and the answer is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_shard_is_waited_for() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let statements = [
        "SELECT id, owner FROM accounts ORDER BY id",
        "SELECT count(*), sum(balance) FROM accounts",
        "SELECT owner FROM accounts ORDER BY id DESC LIMIT 5 OFFSET 2",
        "UPDATE accounts SET balance = balance",
    ];
    for statement in statements {
        let quick = client.ask(statement).await;
        assert!(quick.contains("C(") && quick.ends_with("Z(I)"), "{statement}: {quick}");
        for slow in 0..3 {
            let mut locking = stage.cluster.connect_shard(slow).await;
            let lock = locking.transaction().await.expect("a transaction");
            lock.batch_execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
            client.query(statement);
            client.flush().await;
            assert_eq!(client.next_within(LONGER_THAN_ERRORS_KEEP_THEIR_ORDER).await, None, "{statement}");
            lock.commit().await.expect("the lock is let go");
            assert_eq!(client.transcript().await, quick, "{statement} with shard {slow} slow");
        }
    }
    stage.assert_log_is_clean();
}

/// FATAL of a shard ends its connection, and not the client's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_terminated_is_an_error_of_its_statement() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let statements = [
        "SELECT id, owner FROM accounts ORDER BY id",
        "SELECT count(*), sum(balance) FROM accounts",
        "SELECT row_number() OVER (ORDER BY id), id FROM accounts",
        "COPY accounts TO STDOUT",
        "COPY (SELECT id FROM accounts ORDER BY id) TO STDOUT",
        "UPDATE accounts SET balance = balance RETURNING id",
        "INSERT INTO accounts SELECT id + 1000, owner, balance FROM accounts",
        "BEGIN; DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; FETCH ALL FROM c; COMMIT",
    ];
    for statement in statements {
        for is_extended in [false, true] {
            let mut locking = stage.cluster.connect_shard(1).await;
            let lock = locking.transaction().await.expect("a transaction");
            lock.batch_execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
            match is_extended && !statement.contains(';') {
                true => client.unnamed(statement, &[]).sync(),
                false => client.query(statement),
            };
            client.flush().await;
            stage.until_waiting(statement).await;
            let terminate = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted";
            lock.query(terminate, &[]).await.expect("terminated");
            drop(lock);
            let answers = client.answers().await;
            let errors: Vec<_> = answers.iter().filter(|message| message.tag == b'E').collect();
            let severities: Vec<String> = errors.iter().map(|error| error.field(b'V')).collect();
            assert_eq!(severities, ["ERROR"], "{statement}: {answers:?}");
            assert_eq!(errors[0].field(b'C'), "08006", "{statement}");
            succeed(&mut client, "ROLLBACK").await;
            assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90", "{statement}");
        }
    }
    stage.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_over_shards_that_are_lost_is_answered_with_one_error() {
    let stage = with_cables(&[0, 1, 2]).await;
    let mut client = stage.client().await;
    for shards in [&[1][..], &[0, 1, 2]] {
        for is_seen_before_sync in [true, false] {
            for shard in shards {
                let update = format!("UPDATE accounts SET balance = 5 WHERE id = {}", stage.key(*shard, 0));
                client.unnamed(&update, &[]).flush_message();
                client.flush().await;
                assert_eq!(client.some(3).await, "1 2 C(UPDATE 1)");
            }
            if !is_seen_before_sync {
                // Sync comes to shards that are there and whose answer is lost.
                shards.iter().for_each(|shard| stage.cluster.cable(*shard).stall(true));
                client.sync();
                client.flush().await;
            }
            shards.iter().for_each(|shard| stage.cluster.cable(*shard).cut());
            shards.iter().for_each(|shard| stage.cluster.cable(*shard).stall(false));
            if is_seen_before_sync {
                for shard in shards {
                    until_gone(&stage, *shard).await;
                }
                client.sync();
            }
            let told = client.transcript().await;
            let errors = told.matches("E(").count();
            assert!(errors == 1 && told.contains("E(08006 ") && told.ends_with("Z(I)"), "{shards:?}: {told}");
            for shard in shards {
                let key = stage.key(*shard, 0);
                let balance = client.value(&format!("SELECT balance FROM accounts WHERE id = {key}")).await;
                // A Sync on its way may have come to the shard, and nobody can know.
                assert!(balance == "100" || (balance == "5" && !is_seen_before_sync), "{shards:?}: {balance}");
                succeed(&mut client, &format!("UPDATE accounts SET balance = 100 WHERE id = {key}")).await;
            }
        }
    }
    stage.assert_no_panic();
}

/// No transaction is open there any more.
async fn until_gone(stage: &Stage, shard: usize) {
    let direct = stage.cluster.connect_shard(shard).await;
    let open =
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";
    let asked_at = Instant::now();
    while !direct.query(open, &[]).await.expect("activity").is_empty() {
        assert!(asked_at.elapsed() < Duration::from_secs(20), "shard {shard} has not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn with_cables(shards: &[usize]) -> Stage {
    let mut cluster = Cluster::start(3).await;
    for shard in shards {
        cluster.lay_cable(*shard).await;
    }
    Stage::on(cluster, ProxyOptions::default()).await
}

/// Until a session has connections to these shards in its hands.
async fn until_held(client: &mut WireClient, shards: &[&str]) {
    let names: Vec<String> = shards.iter().map(|shard| format!("'{shard}'")).collect();
    let held = format!("SELECT count(DISTINCT shard) FROM shardgate.pools WHERE active > 0 AND shard IN ({})", names.join(","));
    let asked_at = Instant::now();
    while client.value(&held).await != shards.len().to_string() {
        assert!(asked_at.elapsed() < Duration::from_secs(20), "no session holds {shards:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const LONGER_THAN_ERRORS_KEEP_THEIR_ORDER: Duration = Duration::from_millis(400);
