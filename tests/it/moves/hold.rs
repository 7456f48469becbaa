//! While partitions are held, whatever would touch them waits, and goes on where they are then.

use std::time::{Duration, Instant};

use super::by_hand::Moving;
use crate::sessions::succeed;
use crate::support::WireClient;

/// What is sent, each time to another owner: the rows of the set have this balance there. `{b}`: in the answer.
const WAYS: &[(&str, Way, &str)] = &[
    ("SELECT balance FROM accounts WHERE id = {k}", Way::Simple, "D({b})"),
    ("SELECT balance FROM accounts WHERE id = {k}", Way::Extended, "D({b})"),
    ("SELECT balance FROM accounts WHERE id = {k}", Way::Prepared, "D({b})"),
    ("SELECT balance FROM accounts WHERE id = {k}", Way::Pipelined, "D(100) C(SELECT 1) 2 D({b})"),
    ("SELECT balance FROM accounts WHERE id IN ({o}, {k})", Way::Simple, "D({b})"),
    ("SELECT sum(balance) FROM accounts WHERE id = {o}; SELECT balance FROM accounts WHERE id = {k}", Way::Simple, "D({b})"),
    ("EXECUTE by_key({k})", Way::Simple, "D({b})"),
    ("SELECT balance FROM accounts WHERE balance = {b} LIMIT 1", Way::Simple, "D({b})"),
    ("SELECT max(balance) FROM accounts", Way::Simple, "D({b})"),
    ("SELECT max(balance) FROM accounts", Way::Extended, "D({b})"),
    ("SELECT max(balance) FROM accounts", Way::Prepared, "D({b})"),
    ("SELECT balance, row_number() OVER (ORDER BY balance DESC) FROM accounts LIMIT 1", Way::Simple, "D({b},1)"),
    ("SELECT balance FROM accounts WHERE id = {k} FOR UPDATE", Way::Simple, "D({b})"),
    ("SELECT balance FROM accounts ORDER BY balance DESC LIMIT 1 FOR UPDATE", Way::Simple, "D({b})"),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT max(balance) FROM accounts WHERE id = {k}; FETCH c; CLOSE c", Way::Simple, "D({b})"),
    ("BEGIN; DECLARE c CURSOR FOR SELECT balance FROM accounts ORDER BY balance DESC; FETCH c; COMMIT", Way::Simple, "D({b})"),
    (
        "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT FROM accounts WHERE id = {k} AND balance = {b}",
        Way::Simple,
        "rows=1",
    ),
    ("COPY (SELECT balance FROM accounts WHERE id = {k}) TO STDOUT", Way::Simple, "d"),
    ("COPY accounts TO STDOUT", Way::Simple, "d"),
    ("UPDATE accounts SET owner = 'seen' WHERE id = {k} AND balance = {b} RETURNING balance", Way::Simple, "D({b})"),
    ("UPDATE accounts SET owner = 'seen' WHERE id = {k} AND balance = {b} RETURNING balance", Way::Extended, "D({b})"),
    ("UPDATE accounts SET owner = 'seen' WHERE id = {k} AND balance = {b} RETURNING balance", Way::Prepared, "D({b})"),
    ("UPDATE accounts SET owner = 'all' WHERE balance = {b}", Way::Simple, "C(UPDATE {n})"),
    ("UPDATE accounts SET owner = 'all' WHERE balance = {b}", Way::Extended, "C(UPDATE {n})"),
    ("DELETE FROM accounts WHERE id = {k} AND balance <> {b}", Way::Simple, "C(DELETE 0)"),
    (
        "INSERT INTO accounts VALUES ({k}, 'new', 1), ({z}, 'new', 1) ON CONFLICT (id) DO UPDATE SET owner = accounts.balance",
        Way::Simple,
        "C(INSERT 0 2)",
    ),
    (
        "INSERT INTO accounts VALUES ({k}, 'new', 1), ({z}, 'new', 1) ON CONFLICT (id) DO UPDATE SET owner = accounts.balance",
        Way::Extended,
        "C(INSERT 0 2)",
    ),
    ("UPDATE accounts SET owner = (SELECT max(a.balance) FROM accounts a) WHERE id = {k} RETURNING owner", Way::Simple, "D({b})"),
    ("UPDATE accounts SET owner = (SELECT max(a.balance) FROM accounts a) WHERE id = {k} RETURNING owner", Way::Extended, "D({b})"),
    (
        "INSERT INTO accounts SELECT id, 'again', 1 FROM accounts WHERE balance = {b} ON CONFLICT DO NOTHING",
        Way::Simple,
        "C(INSERT 0 0)",
    ),
    ("UPDATE accounts SET id = id + 100000 WHERE id = {k} AND balance = {b} RETURNING balance", Way::Undone, "D({b})"),
    (
        "MERGE INTO accounts a USING (VALUES ({k}::bigint)) AS s(id) ON a.id = s.id WHEN MATCHED THEN UPDATE SET owner = 'merged'",
        Way::Simple,
        "C(MERGE 1)",
    ),
    ("LOCK TABLE accounts; SELECT max(balance) FROM accounts", Way::Simple, "D({b})"),
    ("SELECT balance FROM accounts WHERE id = {k}", Way::Block("BEGIN; SELECT FROM accounts WHERE id = {l}"), "D({b})"),
    (
        "UPDATE accounts SET owner = 'x' WHERE id = {k} RETURNING balance",
        Way::Block("BEGIN; UPDATE accounts SET owner = 'x' WHERE id = {o}"),
        "D({b})",
    ),
];

enum Way {
    Simple,
    /// Parse to Sync at once.
    Extended,
    /// Bind to Sync of what was prepared and run before.
    Prepared,
    /// Behind a statement for a key that is not held, in one pipeline.
    Pipelined,
    /// In a transaction that is rolled back.
    Undone,
    /// In a transaction that has begun so.
    Block(&'static str),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_a_held_partition_waits_and_leads_to_its_owner() {
    every_way_leads_to_the_owner(Moving::start(2, &[]).await).await;
}

/// Whether it stands alone or in a transaction: nothing of it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_a_held_partition_is_planned_anew_where_the_schema_changes_meanwhile() {
    every_way_leads_to_the_owner(Moving::start(2, &[]).await.with_changed_tables()).await;
}

/// Its own error is told, also where the look at the whole text has met a move: nothing is planned over that was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_of_several_statements_is_told_beside_a_move() {
    let moving = Moving::start(2, &[]).await.with_changed_tables();
    for (first, told) in [
        ("SELECT 1 / (balance - 100) FROM accounts WHERE id = {o}", "E(22012 division by zero) Z(I)"),
        ("UPDATE accounts SET owner = (1 / (balance - 100))::text WHERE id = {o}", "E(22012 division by zero) Z(I)"),
        ("SELECT missing FROM accounts WHERE id = {o}", "E(42703 column \"missing\" does not exist) Z(I)"),
    ] {
        let mut reader = moving.reader().await;
        let text = moving.fill_in(&format!("{first}; SELECT balance FROM accounts WHERE id = {{k}}"));
        moving.hold().await;
        reader.query(&text).flush().await;
        moving.until_at_work("reader").await;
        moving.switch(1000).await;
        let all = reader.transcript().await;
        assert!(all.ends_with(told) && all.matches("E(").count() == 1, "{text}: {all}");
        moving.until_online().await;
        moving.go_home(1000).await;
    }
    moving.stage.assert_log_is_clean();
}

async fn every_way_leads_to_the_owner(moving: Moving) {
    for (place, (text, way, answer)) in WAYS.iter().enumerate() {
        let balance = 1000 + i32::try_from(place).expect("few");
        let text = moving.fill_in(text).replace("{b}", &balance.to_string());
        let answer = answer.replace("{b}", &balance.to_string()).replace("{n}", &moving.count().to_string());
        let mut reader = moving.reader().await;
        prepare(&moving, &mut reader, &text, way).await;
        moving.hold().await;
        send(&moving, &mut reader, &text, way).await;
        moving.until_at_work("reader").await;
        moving.switch(balance).await;
        let told = until_ready(&mut reader).await;
        assert!(told.contains(&answer) && !told.contains("E("), "{text}: {told}\nwanted: {answer}");
        if matches!(way, Way::Undone | Way::Block(_)) {
            succeed(&mut reader, "ROLLBACK").await;
        }
        moving.until_online().await;
    }
    moving.stage.assert_log_is_clean();
}

async fn prepare(moving: &Moving, client: &mut WireClient, text: &str, way: &Way) {
    match way {
        Way::Prepared => {
            let told = client.parse("p", text).bind("", "p", &[]).execute("", 0).sync().transcript().await;
            assert!(!told.contains("E("), "{told}");
        }
        Way::Undone => succeed(client, "BEGIN").await,
        Way::Block(begin) => succeed(client, &moving.fill_in(begin)).await,
        Way::Simple if text.starts_with("EXECUTE") => {
            succeed(client, "PREPARE by_key(bigint) AS SELECT balance FROM accounts WHERE id = $1").await;
        }
        Way::Simple | Way::Extended | Way::Pipelined => {}
    }
}

async fn send(moving: &Moving, client: &mut WireClient, text: &str, way: &Way) {
    match way {
        Way::Simple | Way::Undone | Way::Block(_) => client.query(text),
        Way::Extended => client.unnamed(text, &[]).sync(),
        Way::Prepared => client.bind("", "p", &[]).execute("", 0).sync(),
        Way::Pipelined => {
            let first = moving.fill_in("SELECT balance FROM accounts WHERE id = {o}");
            client.unnamed(&first, &[]).parse("s", text).bind("", "s", &[]).execute("", 0).sync()
        }
    };
    client.flush().await;
}

/// Everything up to ReadyForQuery; of COPY data the tags.
async fn until_ready(client: &mut WireClient) -> String {
    let mut told = client.transcript().await;
    // The ParseComplete of the second statement may come before or after the answer to the first.
    told = told.replace("1 2", "2");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_held_partition_ends_with_the_clients_limits() {
    let moving = Moving::start(2, &[]).await;
    moving.hold().await;
    for text in ["SELECT balance FROM accounts WHERE id = {k}", "SELECT count(*) FROM accounts", "UPDATE accounts SET owner = 'x'"]
    {
        let text = moving.fill_in(text);
        let mut client = moving.reader().await;
        succeed(&mut client, "SET statement_timeout = '30ms'").await;
        assert_eq!(client.ask(&text).await, "E(57014 canceling statement due to statement timeout) Z(I)");
        succeed(&mut client, "SET statement_timeout = 0").await;
        client.query(&text).flush().await;
        moving.until_at_work("reader").await;
        client.cancel().await;
        assert_eq!(client.transcript().await, "E(57014 canceling statement due to user request) Z(I)");
        assert_eq!(
            moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {o}").await,
            "T(balance) D(100) C(SELECT 1) Z(I)"
        );
        // One that leaves leaves nothing behind.
        client.query(&text).flush().await;
        moving.until_at_work("reader").await;
        drop(client);
        moving.until_gone("reader").await;
    }
    // Nobody lets go of it: the wait has an end.
    let begun = Instant::now();
    let mut client = moving.client().await;
    let told = moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {k}").await;
    assert_eq!(told, "E(57P03 the partition of this key is being moved) Z(I)");
    assert!(begun.elapsed() >= Duration::from_secs(4));
    moving.stage.assert_log_is_clean();
}

/// A move waits for the end of such a transaction, which therefore must not wait for the move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_written_or_locked_in_the_set_passes_its_hold() {
    let moving = Moving::start(2, &[]).await;
    for begin in [
        "UPDATE accounts SET owner = 'x' WHERE id = {k}",
        "SELECT FROM accounts WHERE id = {k} FOR SHARE",
        "UPDATE accounts SET owner = 'x'",
        "LOCK TABLE accounts IN SHARE MODE",
    ] {
        let (mut client, mut reader) = (moving.client().await, moving.reader().await);
        moving.run(&mut client, &["BEGIN", begin]).await;
        moving.run(&mut reader, &["BEGIN", "SELECT FROM accounts WHERE id = {k}"]).await;
        let epoch = moving.hold().await;
        reader.query(&moving.fill_in("SELECT balance FROM accounts WHERE id = {k}")).flush().await;
        moving.until_at_work("reader").await;
        moving.until("reached", epoch).await;
        // The whole set, and what is scattered over it.
        let passing = [
            "UPDATE accounts SET owner = 'y' WHERE id = {l}",
            "UPDATE accounts SET owner = 'y' WHERE id = {q}",
            "SELECT count(*) FROM accounts",
            "INSERT INTO accounts VALUES ({q}, 'new', 1), ({z}, 'new', 1) ON CONFLICT DO NOTHING",
        ];
        moving.run(&mut client, &passing).await;
        succeed(&mut client, "ROLLBACK").await;
        moving.release().await;
        assert_eq!(reader.transcript().await, "T(balance) D(100) C(SELECT 1) Z(T)");
    }
    moving.stage.assert_log_is_clean();
}

/// Each row waits by itself, and a COPY that has written in the set passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_copy_wait_for_their_partition() {
    let moving = Moving::start(2, &[]).await;
    let mut client = moving.reader().await;
    succeed(&mut moving.client().await, "GRANT ALL ON accounts TO reader").await;
    moving.run(&mut moving.client().await, &["DELETE FROM accounts WHERE id = {m}"]).await;
    client.query("COPY accounts FROM STDIN");
    assert!(client.some(1).await.starts_with('G'));
    let row = |id: i64| format!("{id}\tcopied\t7\n");
    client.put(b'd', row(100_000).as_bytes()).flush().await;
    moving.hold().await;
    client.put(b'd', row(moving.id(0, 2)).as_bytes()).flush().await;
    moving.until_at_work("reader").await;
    moving.switch_and_follow(100).await;
    assert_eq!(client.put(b'c', b"").transcript().await, "C(COPY 2) Z(I)");
    let owner = moving.stage.cluster.connect_shard(moving.owner()).await;
    let found = owner.query("SELECT FROM accounts WHERE id = $1 AND balance = 7", &[&moving.id(0, 2)]).await.expect("rows");
    assert_eq!(found.len(), 1, "the row is at the new owner");
    // What has written there goes on.
    moving.run(&mut client, &["DELETE FROM accounts WHERE id IN ({m}, {l}, {q})"]).await;
    client.query("COPY accounts FROM STDIN");
    assert!(client.some(1).await.starts_with('G'));
    client.put(b'd', row(moving.id(0, 2)).as_bytes()).flush().await;
    moving.until_copied().await;
    moving.hold().await;
    client.put(b'd', row(moving.id(0, 1)).as_bytes()).put(b'd', row(moving.id(1, 0)).as_bytes());
    assert_eq!(client.put(b'c', b"").transcript().await, "C(COPY 3) Z(I)");
    moving.release().await;
    // And where it has written before the partition has moved, it ends.
    moving.run(&mut client, &["DELETE FROM accounts WHERE id IN ({m}, {l})"]).await;
    client.query("COPY accounts FROM STDIN");
    assert!(client.some(1).await.starts_with('G'));
    client.put(b'd', row(moving.id(0, 2)).as_bytes()).flush().await;
    moving.until_copied().await;
    moving.switch_and_follow(100).await;
    client.put(b'd', row(moving.id(0, 1)).as_bytes());
    let told = client.put(b'c', b"").transcript().await;
    assert_eq!(told, "E(40001 the partition of this key has moved) Z(I)");
    moving.stage.assert_log_is_clean();
}
