//! Transactions over several shards that wait for each other: one is told so within two seconds, the others go on.

use std::time::{Duration, Instant};

use crate::sessions::Stage;
use crate::support::{Proxy, ProxyOptions, WireClient};

const BROKEN_WITHIN: Duration = Duration::from_millis(2500);

fn update(stage: &Stage, shard: usize, nth: usize) -> String {
    format!("UPDATE accounts SET balance = balance + 1 WHERE id = {}", stage.key(shard, nth))
}

async fn begin_with(client: &mut WireClient, text: &str) {
    assert_eq!(client.ask("BEGIN").await, "C(BEGIN) Z(T)");
    assert_eq!(client.ask(text).await, "C(UPDATE 1) Z(T)");
}

/// Every client updates its row, then that of the next one; what each heard, and how long it took.
async fn ring(stage: &Stage, clients: Vec<WireClient>) -> (Vec<(WireClient, String)>, Duration) {
    let count = clients.len();
    let mut begun = Vec::new();
    for (place, mut client) in clients.into_iter().enumerate() {
        begin_with(&mut client, &update(stage, place, 0)).await;
        begun.push(client);
    }
    let started = Instant::now();
    let waiting = begun.into_iter().enumerate().map(|(place, mut client)| {
        let text = update(stage, (place + 1) % count, 0);
        async move {
            let told = client.ask(&text).await;
            // A victim has let go of its locks already; the others end here, so that who waits for them goes on.
            if !told.contains("E(") {
                let end = client.ask("COMMIT").await;
                assert_eq!(end, "C(COMMIT) Z(I)", "client {place} of {count}, {:?} after the first", started.elapsed());
            }
            (client, told)
        }
    });
    let told = futures::future::join_all(waiting).await;
    (told, started.elapsed())
}

const DEADLOCK: &str = "E(40P01 deadlock detected) Z(E)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_over_shards_and_proxies_is_broken() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let elsewhere = || WireClient::connect(second.address());
    for clients in [
        vec![stage.client().await, stage.client().await],
        vec![stage.client().await, elsewhere().await],
        vec![elsewhere().await, stage.client().await, stage.client().await],
    ] {
        let count = clients.len();
        let (told, took) = ring(&stage, clients).await;
        let victims: Vec<usize> =
            told.iter().enumerate().filter(|(_, (_, told))| told == DEADLOCK).map(|(place, _)| place).collect();
        let texts: Vec<&String> = told.iter().map(|(_, told)| told).collect();
        assert_eq!(victims.len(), 1, "{texts:?}");
        assert_eq!(texts.iter().filter(|told| **told == "C(UPDATE 1) Z(T)").count(), count - 1, "{texts:?}");
        assert!(took < BROKEN_WITHIN, "{took:?}");
        for (mut client, told) in told {
            if told == DEADLOCK {
                assert!(client.ask("SELECT 1").await.starts_with("E(25P02 "));
                assert_eq!(client.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
            }
            // Sessions and connections go on as before.
            begin_with(&mut client, &update(&stage, 0, 1)).await;
            assert_eq!(client.ask(&update(&stage, 1, 1)).await, "C(UPDATE 1) Z(T)");
            assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
        }
    }
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_waits_is_left_alone_and_savepoints_are_kept() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    // A chain: the second waits for the first, which is idle in its transaction for longer than any search takes.
    let (mut first, mut second) = (stage.client().await, stage.client().await);
    begin_with(&mut first, &update(&stage, 0, 0)).await;
    assert_eq!(first.ask(&update(&stage, 1, 1)).await, "C(UPDATE 1) Z(T)");
    begin_with(&mut second, &update(&stage, 1, 0)).await;
    let text = update(&stage, 0, 0);
    let waiting = tokio::spawn(async move { (second.ask(&text).await, second) });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
    let (told, mut second) = waiting.await.expect("no panic");
    assert_eq!(told, "C(UPDATE 1) Z(T)");
    assert_eq!(second.ask("ROLLBACK").await, "C(ROLLBACK) Z(I)");
    // With savepoints a victim keeps what it had before them, as in PostgreSQL.
    begin_with(&mut first, &update(&stage, 0, 0)).await;
    begin_with(&mut second, &update(&stage, 1, 0)).await;
    assert_eq!(second.ask("SAVEPOINT s").await, "C(SAVEPOINT) Z(T)");
    let (to_first, to_second) = (update(&stage, 1, 0), update(&stage, 0, 0));
    let waiting = tokio::spawn(async move { (first.ask(&to_first).await, first) });
    // The last to take a second shard is the youngest.
    stage.until_active(1, "balance + 1").await;
    assert_eq!(second.ask(&to_second).await, DEADLOCK);
    assert_eq!(second.ask("ROLLBACK TO s").await, "C(ROLLBACK) Z(T)");
    assert_eq!(second.ask("COMMIT").await, "C(COMMIT) Z(I)");
    let (told, mut first) = waiting.await.expect("no panic");
    assert_eq!(told, "C(UPDATE 1) Z(T)");
    assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
    // A cancel by the client stays one.
    begin_with(&mut first, &update(&stage, 0, 0)).await;
    begin_with(&mut second, &update(&stage, 1, 0)).await;
    let cancel = second.cancel();
    let text = update(&stage, 0, 0);
    let waiting = tokio::spawn(async move { second.ask(&text).await });
    stage.until_active(0, "balance + 1").await;
    cancel.await;
    assert_eq!(waiting.await.expect("no panic"), "E(57014 canceling statement due to user request) Z(E)");
    stage.assert_log_is_clean();
}

/// A REPEATABLE READ transaction that begins without a table has a connection to every shard, until it is known which one it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_given_back_are_no_part_of_a_ring() {
    // On one thread: each has idle connections of its own, and a client is on any of them.
    let settings = vec![("pool.size_per_shard", "8".to_owned()), ("listen.threads", "1".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let lock = |column: &str, shard, nth| format!("SELECT {column} FROM accounts WHERE id = {} FOR UPDATE", stage.key(shard, nth));
    let direct = stage.cluster.connect_shard(1).await;
    let in_transaction = async || {
        let sql = "SELECT pid FROM pg_stat_activity WHERE datname = 'shard1' AND state = 'idle in transaction'";
        let rows = direct.query(sql, &[]).await.expect("activity");
        rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>()
    };
    let (mut first, mut third) = (stage.client().await, stage.client().await);
    assert!(!first.ask("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.contains("E("));
    let given_back = in_transaction().await;
    assert_eq!(given_back.len(), 1);
    let told = third.ask(&format!("BEGIN; {}", lock("owner", 0, 1))).await;
    assert!(told.ends_with("Z(T)"), "{told}");
    let text = lock("balance", 0, 1);
    let first = tokio::spawn(async move { (first.ask(&text).await, first) });
    stage.until_active(0, "SELECT balance").await;

    // Who gets that connection holds a row by it.
    let mut others = Vec::new();
    while in_transaction().await.iter().all(|pid| !given_back.contains(pid)) {
        let mut second = stage.client().await;
        begin_with(&mut second, &update(&stage, 1, 1 + others.len())).await;
        others.push(second);
        assert!(others.len() < 5, "nobody gets the connection");
    }
    let text = lock("owner", 1, others.len());
    let third = tokio::spawn(async move { (third.ask(&text).await, third) });
    stage.until_active(1, "SELECT owner").await;

    // One ring that is one is found, with whatever else there is to find.
    let (told, _) = ring(&stage, vec![stage.client().await, stage.client().await]).await;
    assert_eq!(told.iter().filter(|(_, told)| told == DEADLOCK).count(), 1);
    for mut second in others {
        assert_eq!(second.ask("COMMIT").await, "C(COMMIT) Z(I)");
    }
    let (told, mut third) = third.await.expect("no panic");
    assert!(!told.contains("E("), "{told}");
    assert_eq!(third.ask("COMMIT").await, "C(COMMIT) Z(I)");
    let (told, mut first) = first.await.expect("no panic");
    assert!(!told.contains("E("), "{told}");
    assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
    stage.assert_log_is_clean();
}

/// Each holds the only connection to the shard that the other wants: no lock is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_pools_are_part_of_rings() {
    let settings = vec![
        ("pool.size_per_shard", "2".to_owned()),
        ("pool.late_joiner_share", "0.0".to_owned()),
        ("pool.checkout_timeout_ms", "20000".to_owned()),
    ];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut begun = Vec::new();
    for place in 0..4 {
        let mut client = stage.client().await;
        begin_with(&mut client, &update(&stage, place % 2, place / 2)).await;
        begun.push(client);
    }
    let started = Instant::now();
    let waiting = begun.into_iter().enumerate().map(|(place, mut client)| {
        let text = update(&stage, (place + 1) % 2, 2 + place);
        async move {
            let told = client.ask(&text).await;
            let end = client.ask("COMMIT").await;
            (told, end)
        }
    });
    let told = futures::future::join_all(waiting).await;
    let victims = told.iter().filter(|(told, _)| told == DEADLOCK).count();
    assert!((1..=2).contains(&victims), "{told:?}");
    assert!(told.iter().all(|(told, end)| (told == DEADLOCK) == (end == "C(ROLLBACK) Z(I)")), "{told:?}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    stage.assert_log_is_clean();
}

/// A statement that is all of its transaction has no order of its own to keep: the proxy repeats it, as another one that waits as long as
/// it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_over_several_shards_by_itself_is_repeated() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut first, mut alone) = (stage.client().await, stage.client().await);
    let keys = format!("({}, {})", stage.key(0, 0), stage.key(1, 0));
    let both = format!("UPDATE accounts SET balance = balance + 1 WHERE id IN {keys}");
    let value = |nth: usize| format!("SELECT balance FROM accounts WHERE id = {}", stage.key(nth, 0));
    for (timeout, told_alone) in [("0", "C(UPDATE 2) Z(I)"), ("4s", "E(57014 canceling statement due to statement timeout) Z(I)")] {
        assert_eq!(alone.ask(&format!("SET statement_timeout = '{timeout}'")).await, "C(SET) Z(I)");
        // The first has both shards before the other, which is the one to give way.
        begin_with(&mut first, &update(&stage, 0, 0)).await;
        assert_eq!(first.ask(&update(&stage, 1, 1)).await, "C(UPDATE 1) Z(T)");
        let commits = timeout == "0";
        let (told, ()) = tokio::join!(alone.ask(&both), close_ring(&stage, &mut first, commits));
        if !commits {
            assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
        }
        assert_eq!(told, told_alone, "{timeout}");
    }
    assert_eq!((first.value(&value(0)).await, first.value(&value(1)).await), ("103".to_owned(), "103".to_owned()));
    stage.assert_log_is_clean();
}

/// When the other one waits at the first shard.
async fn close_ring(stage: &Stage, first: &mut WireClient, commits: bool) {
    let shard = stage.cluster.connect_shard(0).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%accounts%'";
    while shard.query_one(waits, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(first.ask(&update(stage, 1, 0)).await, "C(UPDATE 1) Z(T)");
    if commits {
        assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
    }
}
