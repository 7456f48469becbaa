//! Which statements count as running by the map that they were planned by: a move waits for these, and for nothing else.

use super::by_hand::Moving;
use crate::sessions::succeed;
use crate::support::WireClient;

/// What a session may hold open for as long as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_its_client_keeps_no_epoch_from_being_reached() {
    let moving = Moving::start(2, &[]).await;
    let mut client = moving.client().await;
    let solo = ["CREATE TABLE solo (id bigint PRIMARY KEY)", "SELECT shardgate.distribute_table('solo', 'id', partitions => 1)"];
    moving.run(&mut client, &solo).await;
    for (name, statements) in IDLE {
        let mut client = moving.client().await;
        moving.run(&mut client, statements).await;
        is_reached(&moving, name).await;
        if statements.first().is_some_and(|first| first.starts_with("BEGIN")) {
            succeed(&mut client, "ROLLBACK").await;
        }
    }
    for flush in [false, true] {
        let mut client = moving.client().await;
        if !flush {
            succeed(&mut client, "BEGIN").await;
        }
        for (portal, text) in [
            ("one", moving.fill_in("SELECT g FROM accounts, generate_series(1, 9) AS g WHERE id = {k}")),
            ("many", "SELECT id FROM accounts ORDER BY id".to_owned()),
        ] {
            client.parse("", &text).bind(portal, "", &[]).execute(portal, 2);
            let ended = if flush { client.flush_message().some(5).await } else { client.sync().transcript().await };
            assert!(ended.contains("D(") && ended.contains('s'), "{portal}: {ended}");
            is_reached(&moving, portal).await;
        }
        let left = client.execute("many", 0).sync().transcript().await;
        assert!(left.starts_with("D("), "{left}");
    }
    for table in ["accounts", "solo"] {
        let mut client = moving.client().await;
        client.query(&format!("COPY {table} FROM STDIN"));
        assert!(client.some(1).await.starts_with('G'), "{table}");
        is_reached(&moving, &format!("COPY {table} FROM")).await;
        assert_eq!(client.put(b'c', b"").transcript().await, "C(COPY 0) Z(I)");
    }
    moving.stage.assert_log_is_clean();
}

const IDLE: &[(&str, &[&str])] = &[
    ("a transaction that has written", &["BEGIN", "UPDATE accounts SET balance = 100 WHERE id = {o}"]),
    ("a transaction that has read on several shards", &["BEGIN", "SELECT count(*) FROM accounts"]),
    ("a snapshot", &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT balance FROM accounts WHERE id = {k}"]),
    ("a snapshot of all shards", &["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SELECT count(*) FROM accounts"]),
    ("a failed transaction", &["BEGIN", "SELECT 1"]),
    ("a cursor on one shard", &["BEGIN", "DECLARE c CURSOR FOR SELECT * FROM accounts WHERE id = {k}", "FETCH c"]),
    ("a cursor over several shards", &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id", "FETCH c"]),
    (
        "a cursor over gathered rows",
        &["BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id FROM accounts ORDER BY id", "FETCH 2 FROM c"],
    ),
    ("a closed cursor", &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id", "FETCH c", "CLOSE c"]),
    ("a cursor WITH HOLD", &["DECLARE c CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id", "FETCH c"]),
    ("LISTEN", &["LISTEN news"]),
    ("a prepared statement", &["PREPARE p(bigint) AS SELECT * FROM accounts WHERE id = $1", "EXECUTE p({k})"]),
    ("a temporary table", &["CREATE TEMP TABLE scratch AS SELECT id FROM accounts"]),
];

/// A plain read counts until its first rows have come from every shard, however slowly the client takes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_read_counts_until_its_first_rows() {
    let moving = Moving::start(2, &[]).await;
    for text in [
        "SELECT id, repeat('x', 5000) FROM accounts, generate_series(1, 20000) AS g WHERE id = {k}",
        "SELECT id, repeat('x', 5000) FROM accounts, generate_series(1, 2000) AS g",
        "SELECT id, repeat('x', 5000), count(*) OVER (PARTITION BY owner) FROM accounts, generate_series(1, 2000) AS g",
        "COPY (SELECT id, repeat('x', 5000) FROM accounts, generate_series(1, 20000) AS g WHERE id = {k}) TO STDOUT",
        "COPY (SELECT id, repeat('x', 5000) FROM accounts, generate_series(1, 2000) AS g) TO STDOUT",
    ] {
        for is_extended in [false, true] {
            let mut client = moving.client().await;
            let text = moving.fill_in(text);
            if is_extended {
                client.unnamed(&text, &[]).sync();
            } else {
                client.query(&text);
            }
            // The client takes the first rows and no more.
            client.flush().await;
            until_row(&mut client).await;
            is_reached(&moving, &text).await;
            client.reset();
        }
    }
    moving.stage.assert_log_is_clean();
}

async fn until_row(client: &mut WireClient) {
    loop {
        let message = client.next().await.expect("an answer");
        assert_ne!(message.tag, b'E', "{}", message.describe());
        if matches!(message.tag, b'D' | b'd') {
            return;
        }
    }
}

/// What is planned and not answered counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_counts_until_it_is_answered() {
    let moving = Moving::start(2, &[]).await;
    let (mut holder, mut client) = (moving.client().await, moving.client().await);
    for text in [
        "UPDATE accounts SET balance = 100 WHERE id = {k}",
        "UPDATE accounts SET balance = 100",
        "SELECT * FROM accounts FOR UPDATE",
    ] {
        moving.run(&mut holder, &["BEGIN", "SELECT * FROM accounts WHERE id = {k} FOR UPDATE"]).await;
        client.query(&moving.fill_in(text)).flush().await;
        until_blocked(&moving).await;
        let epoch = moving.hold().await;
        moving.is_not_reached(epoch).await;
        succeed(&mut holder, "ROLLBACK").await;
        let told = client.transcript().await;
        assert!(!told.contains("E("), "{told}");
        moving.until("reached", epoch).await;
        moving.release().await;
    }
    // A portal that is bound and has not been run.
    for text in ["UPDATE accounts SET balance = 100 WHERE id = {k}", "UPDATE accounts SET balance = 100"] {
        let bound = client.parse("", &moving.fill_in(text)).bind("p", "", &[]).flush_message().some(2).await;
        assert_eq!(bound, "1 2");
        let epoch = moving.hold().await;
        moving.is_not_reached(epoch).await;
        let told = client.execute("p", 0).sync().transcript().await;
        assert!(told.starts_with("C(UPDATE"), "{told}");
        moving.until("reached", epoch).await;
        moving.release().await;
    }
    moving.stage.assert_log_is_clean();
}

async fn until_blocked(moving: &Moving) {
    let client = moving.stage.cluster.connect_shard(0).await;
    let sql = "SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while client.query(sql, &[]).await.expect("locks").is_empty() {
        assert!(std::time::Instant::now() < deadline, "no row lock is waited for");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn is_reached(moving: &Moving, what: &str) {
    let epoch = moving.set_state("held").await;
    assert!(moving.is("reached", epoch).await, "{what} keeps the epoch from being reached");
    moving.release().await;
}
