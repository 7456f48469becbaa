//! A client that leaves while its statement waits for several shards: it is noticed on every way, and nothing of it stays.

use std::time::{Duration, Instant};

use super::stage::Stage;
use crate::support::{Cluster, ProxyOptions, WireClient};

/// Statements that wait for each other nowhere but where they are held up.
const TOGETHER: &[&str] = &[
    "SELECT id, owner FROM accounts ORDER BY id",
    "SELECT DISTINCT balance FROM accounts",
    "SELECT count(*), sum(balance) FROM accounts",
    "SELECT owner, count(*) FROM accounts GROUP BY owner ORDER BY 2, 1",
    "SELECT a.owner FROM accounts a JOIN accounts b ON b.id = a.balance - a.id ORDER BY a.id",
    "SELECT row_number() OVER (ORDER BY id), id FROM accounts",
    "COPY accounts TO STDOUT",
    "COPY (SELECT id FROM accounts ORDER BY id) TO STDOUT",
    "BEGIN; DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; FETCH ALL FROM c",
    "EXPLAIN ANALYZE SELECT id FROM accounts ORDER BY id",
    "SELECT 1; SELECT id FROM accounts ORDER BY id; SELECT 2",
    "CREATE TEMP TABLE copied AS SELECT id FROM accounts",
    "INSERT INTO notes SELECT id, owner FROM accounts",
    "INSERT INTO accounts SELECT id + 1000, owner, balance FROM accounts",
];
const BY_ITSELF: &[&str] = &[
    "UPDATE accounts SET balance = balance + 1",
    "BEGIN; SAVEPOINT s; DELETE FROM accounts WHERE balance = 100 RETURNING id",
    "COPY accounts FROM STDIN",
    "SELECT id FROM accounts ORDER BY id FOR UPDATE",
    "MERGE INTO accounts a USING (SELECT id FROM accounts) s ON a.id = s.id WHEN MATCHED THEN UPDATE SET balance = 1",
    "ALTER TABLE accounts ALTER balance SET DEFAULT 1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_in_the_middle_of_a_statement_leaves_nothing_behind() {
    let mut cluster = Cluster::start(3).await;
    cluster.lay_cable(1).await;
    let settings = vec![("pool.size_per_shard", "20".to_owned())];
    let stage = Stage::on(cluster, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let rounds: Vec<Vec<&str>> =
        std::iter::once(TOGETHER.to_vec()).chain(BY_ITSELF.iter().map(|statement| vec![*statement])).collect();
    let mut watcher = stage.client().await;
    for is_stalled in [false, true] {
        for statements in &rounds {
            let mut locking = stage.cluster.connect_shard(1).await;
            let lock = locking.transaction().await.expect("a transaction");
            if !is_stalled {
                lock.batch_execute("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
            }
            stage.cluster.cable(1).stall(is_stalled);
            let clients = leavers(&stage, statements).await;
            until_in_use(&mut watcher, clients.len()).await;
            clients
                .into_iter()
                .enumerate()
                .for_each(|(number, client)| if number % 2 == 0 { drop(client) } else { client.reset() });
            until_given_back(&mut watcher, statements).await;
            stage.cluster.cable(1).stall(false);
            if !is_stalled {
                until_nothing_waits(&stage, statements).await;
            }
            lock.rollback().await.expect("the lock is let go");
        }
        // A shard that took no new connections is away for a moment.
        let freed_at = Instant::now();
        let sum = "SELECT count(*), sum(balance) FROM accounts";
        while !watcher.ask(sum).await.contains("D(90,9000)") {
            assert!(freed_at.elapsed() < PATIENCE, "{}", watcher.ask(sum).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    stage.assert_log_is_clean();
}

/// Each has sent one of these, by the simple or by the extended protocol.
async fn leavers(stage: &Stage, statements: &[&str]) -> Vec<WireClient> {
    let mut clients = Vec::new();
    for (number, statement) in statements.iter().enumerate() {
        let mut client = stage.client().await;
        match number % 2 == 1 && !statement.contains(';') {
            true => client.unnamed(statement, &[]).sync(),
            false => client.query(statement),
        };
        if statement.ends_with("FROM STDIN") {
            // Rows for every shard, and no end of them.
            let rows: String = (2000..2090).map(|id| format!("{id}\tnobody\t1\n")).collect();
            client.put(b'd', rows.as_bytes());
        }
        client.flush().await;
        clients.push(client);
    }
    clients
}

const IN_USE: &str = "SELECT coalesce(sum(active), 0) FROM shardgate.pools WHERE shard LIKE 'shard%'";

/// All of them hold at least one connection.
async fn until_in_use(watcher: &mut WireClient, count: usize) {
    let asked_at = Instant::now();
    while watcher.value(IN_USE).await.parse::<usize>().expect("a number") < count {
        assert!(asked_at.elapsed() < PATIENCE, "they do not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_given_back(watcher: &mut WireClient, statements: &[&str]) {
    let left_at = Instant::now();
    while watcher.value(IN_USE).await != "0" {
        assert!(
            left_at.elapsed() < PATIENCE,
            "something stays of {statements:?}: {}",
            watcher.ask("SELECT * FROM shardgate.clients").await
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// On the shards themselves.
async fn until_nothing_waits(stage: &Stage, statements: &[&str]) {
    let client = stage.cluster.connect_map().await;
    let given_back_at = Instant::now();
    while !client.query("SELECT FROM pg_locks WHERE NOT granted", &[]).await.expect("locks").is_empty() {
        assert!(given_back_at.elapsed() < PATIENCE, "something runs on of {statements:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ten times what it takes.
const PATIENCE: Duration = Duration::from_secs(30);
