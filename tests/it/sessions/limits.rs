//! Limits and ends: who waits, who is refused, who is cancelled, and what is left when a client or the proxy goes.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::stage::{Stage, succeed};
use crate::support::{Message, ProxyOptions, WireClient, cancel};

fn options(settings: &[(&'static str, &str)]) -> ProxyOptions {
    let settings = settings.iter().map(|&(name, value)| (name, value.to_owned())).collect();
    ProxyOptions { settings, ..ProxyOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_waited_for_in_order_and_not_for_ever() {
    let settings = [
        ("pool.size_per_shard", "2"),
        ("pool.late_joiner_share", "0"),
        ("pool.checkout_timeout_ms", "3000"),
        ("listen.max_clients", "12"),
        ("cross_shard.idle_in_pipeline_timeout_ms", "300"),
    ];
    let stage = Stage::start(2, options(&settings)).await;
    begin_holds_nothing(&stage).await;
    deadline_and_order(&stage).await;
    cancel_requests(&stage).await;
    clients_that_leave(&stage).await;
    an_idle_pipeline_ends(&stage).await;
    more_clients_than_places(&stage).await;
    stage.assert_log_is_clean();
}

/// BEGIN costs no trip and no connection, nor do savepoints and settings before the first statement.
async fn begin_holds_nothing(stage: &Stage) {
    let mut clients = Vec::new();
    for number in 0..8 {
        let mut client = stage.client().await;
        for statement in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SAVEPOINT s", "SET LOCAL application_name = 'x'"] {
            succeed(&mut client, statement).await;
        }
        clients.push((number, client));
    }
    let key = stage.key(1, 0);
    // SET inside a transaction needs no connection beside the one that it has.
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    for client in [&mut one, &mut two] {
        succeed(client, &format!("BEGIN; SELECT owner FROM accounts WHERE id = {}", stage.key(0, 0))).await;
    }
    for client in [&mut one, &mut two] {
        succeed(client, "SET LOCAL work_mem = '2048kB'").await;
        assert_eq!(
            client.value(&format!("SELECT current_setting('work_mem') FROM accounts WHERE id = {}", stage.key(0, 1))).await,
            "2MB"
        );
        assert!(client.ask("SET LOCAL work_mem = 'nonsense'").await.starts_with("E(22023 "));
        assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    }
    for (number, client) in &mut clients {
        assert_eq!(client.value(&format!("SELECT {number} FROM accounts WHERE id = {key}")).await, number.to_string());
        succeed(client, "COMMIT").await;
    }
}

/// Two hold the connections; the others are served in the order in which they asked, or told that nothing became free.
async fn deadline_and_order(stage: &Stage) {
    let key = stage.key(1, 0);
    let ask = format!("SELECT owner FROM accounts WHERE id = {key}");
    let (mut one, mut two, mut late) = (stage.client().await, stage.client().await, stage.client().await);
    succeed(&mut one, &format!("BEGIN; {ask}")).await;
    succeed(&mut two, &format!("BEGIN; {ask}")).await;
    let asked_at = Instant::now();
    let refusal = late.ask(&ask).await;
    assert_eq!(refusal, "E(53300 no connection to shard \"shard1\" became free within 3000 ms) Z(I)");
    assert!((2900..8000).contains(&asked_at.elapsed().as_millis()), "{:?}", asked_at.elapsed());
    let other_shard = format!("SELECT owner FROM accounts WHERE id = {}", stage.key(0, 0));
    succeed(&mut late, &other_shard).await;

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for number in 0..5 {
        let mut client = stage.client().await;
        client.query(&format!("BEGIN; {ask}"));
        client.flush().await;
        until_waiting(stage, number + 1).await;
        let tell = tell.clone();
        waiting.push(tokio::spawn(async move {
            let answer = client.transcript().await;
            tell.send((number, answer)).expect("heard");
            // The connection goes to the next one.
            succeed(&mut client, "COMMIT").await;
        }));
    }
    succeed(&mut one, "COMMIT").await;
    for expected in 0..5 {
        let (number, answer) = told.recv().await.expect("an answer");
        assert_eq!((number, answer.contains("D(o")), (expected, true), "{answer}");
    }
    for task in waiting {
        task.await.expect("served");
    }
    succeed(&mut two, "COMMIT").await;
}

async fn until_waiting(stage: &Stage, count: usize) {
    let waits = format!("shardgate_pool_waiting_sessions{{shard=\"shard1\"}} {count}");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let metrics = stage.proxy.admin("/metrics").map(|(_, body)| body).unwrap_or_default();
        if metrics.contains(&waits) {
            return;
        }
        assert!(Instant::now() < deadline, "{count} clients do not wait");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn cancel_requests(stage: &Stage) {
    let key = stage.key(1, 0);
    let sleep = format!("SELECT pg_sleep(20) FROM accounts WHERE id = {key}");
    let cancelled = "E(57014 canceling statement due to user request) Z(I)";
    let (mut client, mut other, mut third) = (stage.client().await, stage.client().await, stage.client().await);

    client.query(&sleep);
    client.flush().await;
    stage.until_active(1, "pg_sleep(20)").await;
    // A wrong secret, a key of nobody, a key that is too short.
    let mut wrong = client.cancel_key.to_vec();
    wrong[7] ^= 1;
    for key in [&wrong[..], &[0, 0, 0, 1, 0, 0, 0, 0], &wrong[..6]] {
        cancel(stage.proxy.address(), key).await;
    }
    other.cancel().await;
    stage.until_active(1, "pg_sleep(20)").await;
    client.cancel().await;
    let told = client.transcript().await;
    assert!(told.ends_with(cancelled), "{told}");
    succeed(&mut client, "SELECT 1").await;
    // Between statements it does nothing.
    client.cancel().await;
    succeed(&mut client, &format!("SELECT owner FROM accounts WHERE id = {key}")).await;

    // A scatter, and one that waits for a connection.
    client.query("SELECT id FROM accounts, generate_series(1, 100000000) g WHERE g < 0");
    client.flush().await;
    stage.until_active(1, "WHERE g < 0").await;
    client.cancel().await;
    let told = client.transcript().await;
    assert!(told.ends_with(cancelled), "{told}");
    succeed(&mut other, &format!("BEGIN; SELECT owner FROM accounts WHERE id = {key}")).await;
    succeed(&mut third, &format!("BEGIN; SELECT owner FROM accounts WHERE id = {key}")).await;
    client.query(&format!("SELECT owner FROM accounts WHERE id = {key}"));
    client.flush().await;
    until_waiting(stage, 1).await;
    client.cancel().await;
    assert_eq!(client.transcript().await, cancelled);
    succeed(&mut other, "COMMIT").await;
    succeed(&mut third, "COMMIT").await;
    succeed(&mut client, &format!("SELECT owner FROM accounts WHERE id = {key}")).await;
}

/// What a client leaves open is rolled back, whatever way it goes.
async fn clients_that_leave(stage: &Stage) {
    // Where the table without a key is too.
    let key = stage.key(0, 0);
    let change = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {key}");
    let mut observer = stage.client().await;
    for way in ["terminate", "close", "reset", "half", "asleep", "copy"] {
        let mut client = stage.client().await;
        succeed(&mut client, &format!("BEGIN; {change}")).await;
        match way {
            "terminate" => drop(client.put(b'X', b"").rest().await),
            "close" => drop(client),
            "reset" => client.reset(),
            "half" => {
                client.half_close().await;
                drop(client.rest().await);
            }
            "asleep" => {
                client.query(&format!("SELECT pg_sleep(20) FROM accounts WHERE id = {key}"));
                client.flush().await;
                stage.until_active(1, "pg_sleep(20)").await;
                drop(client);
            }
            _ => {
                client.query("COPY notes FROM STDIN");
                assert_eq!(client.some(1).await, "G");
                client.put(b'd', b"1\tone\n");
                client.flush().await;
                drop(client);
            }
        }
        // Waits for the row's lock until the transaction is rolled back.
        let asked_at = Instant::now();
        assert_eq!(observer.value(&format!("SELECT balance FROM accounts WHERE id = {key} FOR UPDATE")).await, "100", "{way}");
        assert!(asked_at.elapsed() < Duration::from_secs(5), "{way}: {:?}", asked_at.elapsed());
    }
    assert_eq!(observer.value("SELECT count(*) FROM notes").await, "0");
}

/// Flush without Sync holds a connection, not for ever.
async fn an_idle_pipeline_ends(stage: &Stage) {
    let mut client = stage.client().await;
    let key = stage.key(1, 0).to_string();
    client.unnamed("SELECT owner FROM accounts WHERE id = $1", &[&key]).flush_message();
    assert!(client.some(4).await.ends_with("C(SELECT 1)"));
    let told = client.rest().await;
    let last = told.last().expect("a last word");
    assert_eq!((last.field(b'S').as_str(), last.field(b'C').as_str()), ("FATAL", "25P03"), "{told:?}");
    // In a transaction block that limit is PostgreSQL's idle_in_transaction_session_timeout.
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN").await;
    client.unnamed("SELECT owner FROM accounts WHERE id = $1", &[&key]).flush_message();
    assert!(client.some(4).await.ends_with("C(SELECT 1)"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    client.sync();
    assert_eq!(client.transcript().await, "Z(T)");
}

async fn more_clients_than_places(stage: &Stage) {
    let mut clients = Vec::new();
    let refusal = loop {
        match WireClient::try_connect(stage.proxy.address(), &[("user", "postgres"), ("database", "app")]).await {
            Ok(client) => clients.push(client),
            Err(refusal) => break refusal,
        }
        assert!(clients.len() <= 12, "listen.max_clients is 12");
    };
    assert_eq!(refusal.describe(), "E(53300 sorry, too many clients already)");
    // A cancel request needs no place.
    let leaving = clients.pop().expect("somebody");
    let key = stage.key(1, 0);
    let client = clients.last_mut().expect("somebody");
    client.query(&format!("SELECT pg_sleep(20) FROM accounts WHERE id = {key}"));
    client.flush().await;
    stage.until_active(1, "pg_sleep(20)").await;
    client.cancel().await;
    assert!(client.transcript().await.contains("57014"));
    drop(leaving);
    let freed_at = Instant::now();
    while WireClient::try_connect(stage.proxy.address(), &[("user", "postgres"), ("database", "app")]).await.is_err() {
        assert!(freed_at.elapsed() < Duration::from_secs(5), "the place is not free again");
    }
}

/// Sessions that hold a connection of one shard and want one of the other, and their mirror image: the share that is kept for
/// late joiners serves them one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_want_each_others_shards_do_not_wait_for_each_other() {
    let settings = [("pool.size_per_shard", "4"), ("pool.late_joiner_share", "0.25"), ("pool.checkout_timeout_ms", "8000")];
    let stage = Stage::start(2, options(&settings)).await;
    for _ in 0..5 {
        let mut clients = Vec::new();
        for (own, other) in [(0, 1), (1, 0)] {
            for nth in 0..3 {
                let mut client = stage.client().await;
                succeed(&mut client, &format!("BEGIN; UPDATE accounts SET balance = 100 WHERE id = {}", stage.key(own, nth))).await;
                clients.push((client, stage.key(other, nth)));
            }
        }
        let tasks: Vec<_> = clients
            .into_iter()
            .map(|(mut client, key)| {
                tokio::spawn(async move {
                    assert_eq!(client.value(&format!("SELECT owner FROM accounts WHERE id = {key}")).await, format!("o{key}"));
                    succeed(&mut client, "COMMIT").await;
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("served");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_lets_transactions_finish_and_ends_the_rest() {
    let mut stage = Stage::start(1, options(&[("listen.drain_timeout_ms", "20000")])).await;
    let key = stage.key(0, 0);
    let (mut idle, mut open, mut running) = (stage.client().await, stage.client().await, stage.client().await);
    succeed(&mut idle, "SELECT 1").await;
    succeed(&mut open, &format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {key}")).await;
    running.query("SELECT 'ran to its end', pg_sleep(0.5)");
    running.flush().await;
    stage.until_active(0, "pg_sleep(0.5)").await;
    stage.proxy.signal(Signal::TERM);
    let told = idle.rest().await;
    assert_eq!(told.iter().map(|message| message.field(b'C')).collect::<Vec<_>>(), ["57P01"], "{told:?}");
    // Each thread closes its own door.
    let closing_at = Instant::now();
    while tokio::net::TcpStream::connect(stage.proxy.address()).await.is_ok() {
        assert!(closing_at.elapsed() < Duration::from_secs(5), "new clients are taken");
    }
    assert!(running.transcript().await.contains("D(ran to its end,)"));
    assert_eq!(running.rest().await.last().map(|last| last.field(b'C')), Some("57P01".to_owned()));
    succeed(&mut open, &format!("UPDATE accounts SET balance = balance + 1 WHERE id = {key}")).await;
    assert_eq!(open.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(open.rest().await.last().map(|last| last.field(b'C')), Some("57P01".to_owned()));
    assert!(stage.proxy.wait(Duration::from_secs(10)).success());
    let direct = stage.cluster.connect_shard(0).await;
    let balance: i32 = direct.query_one("SELECT balance FROM accounts WHERE id = $1", &[&key]).await.expect("a row").get(0);
    assert_eq!(balance, 8);
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drain_deadline_ends_what_does_not_finish() {
    let mut stage = Stage::start(2, options(&[("listen.drain_timeout_ms", "300")])).await;
    let (key, other) = (stage.key(0, 0), stage.key(0, 1));
    let (mut open, mut running, mut scattered) = (stage.client().await, stage.client().await, stage.client().await);
    succeed(&mut open, &format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {key}")).await;
    running.query(&format!("SELECT pg_sleep(60) FROM accounts WHERE id = {key}"));
    running.flush().await;
    stage.until_active(0, "pg_sleep(60)").await;
    scattered.query("SELECT id FROM accounts, generate_series(1, 1000000000) g WHERE g < 0");
    scattered.flush().await;
    for shard in 0..2 {
        stage.until_active(shard, "WHERE g < 0").await;
    }
    // One that does not read its rows holds a lock.
    let mut blocked = stage.client().await;
    succeed(&mut blocked, &format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {other}")).await;
    blocked.query("SELECT repeat('x', 1000) AS long, 'blocked' FROM generate_series(1, 1000000)");
    blocked.flush().await;
    stage.until_active(0, "'blocked'").await;

    stage.proxy.signal(Signal::TERM);
    for client in [&mut open, &mut running, &mut scattered] {
        let told = client.rest().await;
        let ends: Vec<_> = told.iter().filter(|message| message.tag == b'E').map(Message::describe).collect();
        assert_eq!(ends, ["E(57P01 terminating connection due to administrator command)"]);
    }
    let balances = "SELECT balance FROM accounts WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
    let direct = stage.cluster.connect_shard(0).await;
    direct.batch_execute("SET lock_timeout = '5s'").await.expect("set");
    let rows = direct.query(balances, &[&[key, other].as_slice()]).await.expect("the locks are free");
    assert!(rows.iter().all(|row| row.get::<_, i32>(0) == 100), "rolled back");
    assert!(stage.proxy.wait(Duration::from_secs(10)).success());
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'pg_sleep|g < 0|blocked' \
         AND pid <> pg_backend_pid()";
    assert_eq!(direct.query_one(running, &[]).await.expect("a count").get::<_, i64>(0), 0, "statements go on");
    drop(blocked);
}

/// What the proxy has to say would be read as the rest of the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_lost_within_a_row_ends_the_session_without_a_word() {
    let stage = Stage::start(1, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    // More than all buffers on the way hold.
    client.query("SELECT repeat('x', 100000000) AS wide");
    client.flush().await;
    let direct = stage.cluster.connect_shard(0).await;
    let blocked =
        "SELECT pid FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND query ~ 'AS wide' AND pid <> pg_backend_pid()";
    let deadline = Instant::now() + Duration::from_secs(10);
    let pid: i32 = loop {
        match direct.query(blocked, &[]).await.expect("activity").first() {
            Some(row) => break row.get(0),
            None => assert!(Instant::now() < deadline, "the shard does not wait for the client"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    direct.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("terminated");
    let told = client.rest().await;
    assert_eq!(told.iter().map(Message::describe).collect::<Vec<_>>(), ["T(wide)"]);
    stage.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_session_mode_a_client_keeps_its_connections() {
    let stage = Stage::start(2, options(&[("pool.mode", "session"), ("pool.size_per_shard", "3")])).await;
    let (home, other) = (0, 1);
    // Of the shard's own process.
    let backend = |shard: usize| format!("/* shardgate: shard=shard{shard} */ SELECT pg_backend_pid()");
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    let mine = [one.value(&backend(home)).await, one.value(&backend(other)).await];
    let theirs = [two.value(&backend(home)).await, two.value(&backend(other)).await];
    assert!(mine[0] != theirs[0] && mine[1] != theirs[1]);
    for _ in 0..3 {
        assert_eq!([one.value(&backend(home)).await, one.value(&backend(other)).await], mine);
        assert_eq!([two.value(&backend(home)).await, two.value(&backend(other)).await], theirs);
    }
    // One transaction's write does not bind the next one.
    succeed(&mut one, &format!("UPDATE accounts SET balance = 101 WHERE id = {}", stage.key(home, 0))).await;
    succeed(&mut one, &format!("BEGIN; UPDATE accounts SET balance = 102 WHERE id = {}; COMMIT", stage.key(other, 0))).await;
    succeed(&mut one, "SET work_mem = '3MB'").await;
    assert_eq!(
        one.value(&format!("SELECT current_setting('work_mem') FROM accounts WHERE id = {}", stage.key(other, 0))).await,
        "3MB"
    );
    drop((one, two));
    let mut three = stage.client().await;
    assert_eq!(
        three.value(&format!("SELECT current_setting('work_mem') FROM accounts WHERE id = {}", stage.key(other, 0))).await,
        "4MB"
    );
    stage.assert_log_is_clean();
}

/// What the proxy keeps of groups and distinct rows is bounded; a statement that needs more ends, and its connections go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_distinct_rows_are_kept_within_their_limit() {
    let stage = Stage::start(2, options(&[("cross_shard.merge_bytes_max", "65536")])).await;
    let mut client = stage.client().await;
    for statement in [
        "SELECT owner || repeat('x', 2000) AS o, count(*) FROM accounts GROUP BY 1",
        "SELECT DISTINCT owner || repeat('x', 2000) FROM accounts",
        "SELECT owner || repeat('x', 2000) FROM accounts UNION SELECT name FROM currencies",
        "SELECT owner || repeat('x', 2000) AS o, count(*) + 1 FROM accounts GROUP BY 1 HAVING count(*) > 0",
    ] {
        let told = client.ask(statement).await;
        let refusal = "E(53400 the groups or distinct rows of the statement take more than 65536 bytes)";
        assert!(told.ends_with(&format!("{refusal} Z(I)")), "{statement}: {told}");
        assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    }
    assert_eq!(client.value("SELECT balance, count(*) FROM accounts GROUP BY balance").await, "100");
    // Groups that are on one shard each are not kept.
    let rows = client.ask("SELECT id, repeat('x', 2000), count(*) FROM accounts GROUP BY id").await;
    assert!(rows.ends_with("C(SELECT 90) Z(I)"), "{rows}");
    stage.assert_log_is_clean();
}
