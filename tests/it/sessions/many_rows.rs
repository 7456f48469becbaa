//! INSERT … SELECT and CREATE TABLE AS of many more rows than the proxy keeps: what they leave and say is what one PostgreSQL
//! would, in bounded memory, and however they end nothing of them stays behind.

use std::time::{Duration, Instant};

use super::gathered::{resident_kib, until_gone};
use super::stage::{Stage, succeed};
use crate::support::{Cluster, ProxyOptions, WireClient};

/// More rows than one statement takes, and several times the bytes that are kept.
const MANY: &str = "SELECT g, repeat('x', 20), g % 7 FROM generate_series(1000, 9000) g";

fn small() -> ProxyOptions {
    ProxyOptions { settings: vec![("cross_shard.merge_bytes_max", "65536".to_owned())], ..ProxyOptions::default() }
}

/// The answer to a statement that takes its time.
async fn patiently(client: &mut WireClient, sql: &str) -> String {
    client.query(sql);
    client.flush().await;
    let told = client.next_within(Duration::from_secs(100)).await.expect("an answer").describe();
    client.answers().await;
    told
}

async fn count(client: &mut WireClient) -> String {
    client.value("SELECT count(*) FROM accounts").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_times_more_rows_than_are_kept_are_inserted_in_bounded_memory() {
    let stage = Stage::start(2, small()).await;
    let mut client = stage.client().await;
    let from_home = |first: u32, last: u32| {
        let rows = format!("SELECT g, repeat(md5(g::text), 40), g % 1000 FROM generate_series({first}, {last}) g");
        format!("INSERT INTO accounts {rows}")
    };
    // Code and buffers that every such statement needs are there from now on.
    assert_eq!(client.ask(&from_home(1_000, 3_999)).await, "C(INSERT 0 3000) Z(I)");
    let from_both = "INSERT INTO accounts SELECT id + 1000000, owner, balance FROM accounts WHERE id > 90";
    assert_eq!(client.ask(from_both).await, "C(INSERT 0 3000) Z(I)");
    let before = resident_kib(&stage);
    assert_eq!(patiently(&mut client, &from_home(4_000, 12_999)).await, "C(INSERT 0 9000)");
    assert_eq!(client.ask("DELETE FROM accounts WHERE id > 1000000").await, "C(DELETE 3000) Z(I)");
    assert_eq!(patiently(&mut client, from_both).await, "C(INSERT 0 12000)");
    let after = resident_kib(&stage);
    assert!(after < before + 6 * 1024, "{before} KiB before, {after} KiB after 26 MB of rows");
    assert_eq!(client.row("SELECT count(*), count(DISTINCT owner) FROM accounts").await, ["24090", "12090"]);
    stage.assert_log_is_clean();
}

/// The same statements, one after the other, as in one PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_are_inserted_as_one_server_would() {
    let stage = Stage::start(2, small()).await;
    stage.create_plain().await;
    let (mut client, mut plain) = (stage.client().await, stage.plain_client().await);
    let sum = "SELECT count(*), sum(id), sum(balance), min(owner), max(owner) FROM accounts";
    let script = [
        format!("INSERT INTO accounts {MANY}"),
        // Its own rows are not its source's.
        "INSERT INTO accounts SELECT id + 10000, owner, balance FROM accounts".to_owned(),
        // Over gathered rows.
        "INSERT INTO accounts SELECT a.id + 200000, b.owner, rank() OVER (ORDER BY a.id) FROM accounts a \
         JOIN accounts b ON b.id = a.id - 10000"
            .to_owned(),
        format!("INSERT INTO accounts (owner, id, balance) SELECT 'again', g, 1 FROM ({MANY}) x (g) ON CONFLICT DO NOTHING"),
        "INSERT INTO accounts SELECT id - id % 2, 'half', 1 FROM accounts ON CONFLICT (id) DO NOTHING".to_owned(),
        "INSERT INTO accounts SELECT id - id % 2 + 400000, 'half', 1 FROM accounts ON CONFLICT (id) DO NOTHING".to_owned(),
        "WITH few AS (SELECT id FROM accounts WHERE id <= 60) \
         INSERT INTO accounts SELECT id + 600000, 'few', balance FROM accounts WHERE id % 90 IN (SELECT id FROM few)"
            .to_owned(),
        "INSERT INTO accounts SELECT id + 800000, owner, -1 FROM accounts".to_owned(),
        "INSERT INTO accounts SELECT id, owner, 1 FROM accounts".to_owned(),
        // Rows that are longer than what is sent at once.
        "INSERT INTO accounts SELECT g, repeat('wide', 50000), 1 FROM generate_series(3000000, 3000011) g".to_owned(),
        "INSERT INTO accounts SELECT id + 100, owner, 2 FROM accounts WHERE id >= 3000000".to_owned(),
        "UPDATE accounts SET owner = md5(owner) WHERE id >= 3000000".to_owned(),
        "BEGIN".to_owned(),
        "UPDATE accounts SET balance = balance + 1 WHERE id BETWEEN 1000 AND 4000".to_owned(),
        "SAVEPOINT s".to_owned(),
        "INSERT INTO accounts SELECT id + 1000000, 'taken back', balance FROM accounts".to_owned(),
        "ROLLBACK TO s".to_owned(),
        "INSERT INTO accounts SELECT id + 1000000, 'kept', balance FROM accounts WHERE id < 10000".to_owned(),
        "INSERT INTO accounts SELECT id + 1000000, 'twice', balance FROM accounts WHERE id < 10000".to_owned(),
        "ROLLBACK TO s".to_owned(),
        "INSERT INTO accounts SELECT id + 1000000, 'kept', balance FROM accounts WHERE id < 10000".to_owned(),
        "COMMIT".to_owned(),
        "CREATE TABLE kept AS SELECT owner, balance, id FROM accounts WHERE balance > 0".to_owned(),
        "SELECT count(*), sum(balance), sum(id) FROM kept".to_owned(),
    ];
    for statement in &script {
        let told = client.ask(statement).await;
        assert_eq!(told, plain.ask(statement).await, "{statement}");
        if !told.ends_with("Z(E)") {
            assert_eq!(client.row(sum).await, plain.row(sum).await, "{statement}");
        }
    }
    let returning = "INSERT INTO accounts SELECT id + 2000000, owner, balance FROM accounts WHERE id < $1 \
                     ON CONFLICT DO NOTHING RETURNING id - 1, $2::text";
    for _ in 0..2 {
        let mut answers = Vec::new();
        for client in [&mut client, &mut plain] {
            client.unnamed(returning, &["9000", "two"]).sync();
            let mut messages: Vec<String> = client.answers().await.iter().map(|message| message.describe()).collect();
            messages.sort();
            answers.push(messages);
        }
        assert!(answers[0] == answers[1], "{:?}", answers.iter().map(Vec::len).collect::<Vec<_>>());
    }
    assert_eq!(client.row(sum).await, plain.row(sum).await);
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_of_many_rows_ends_as_it_must() {
    let stage = Stage::start(2, small()).await;
    without_a_key(&stage).await;
    in_its_query(&stage).await;
    cancelled(&stage).await;
    timed_out(&stage).await;
    left_alone(&stage).await;
    without_temporary_tables(&stage).await;
    where_rows_must_be_kept(&stage).await;
    let mut client = stage.client().await;
    assert_eq!(count(&mut client).await, "90");
    for shard in 0..2 {
        until_gone(&stage, shard, "state LIKE 'idle in transaction%'").await;
    }
    stage.assert_log_is_clean();
}

/// The last row has none.
async fn without_a_key(stage: &Stage) {
    let mut client = stage.client().await;
    let told = client.ask(&format!("INSERT INTO accounts {MANY} UNION ALL SELECT NULL, 'none', 1")).await;
    assert_eq!(told, "E(23502 null value in column \"id\" of relation \"accounts\" violates not-null constraint) Z(I)");
    assert_eq!(count(&mut client).await, "90");
}

/// After more rows than are kept.
async fn in_its_query(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "INSERT INTO notes SELECT g, 'x' FROM generate_series(1, 1000) g").await;
    let wide = "SELECT repeat('x', 1000) || (1 / (800 - id))::text FROM notes";
    let error = "E(22012 division by zero)";
    assert_eq!(client.ask(&format!("DELETE FROM accounts WHERE owner IN ({wide})")).await, format!("{error} Z(I)"));
    assert_eq!(
        client.ask(&format!("BEGIN; UPDATE accounts SET owner = ({wide} LIMIT 900)")).await,
        format!("C(BEGIN) {error} Z(E)")
    );
    succeed(&mut client, "ROLLBACK").await;
    succeed(&mut client, &format!("PREPARE wide AS {wide}")).await;
    client.parse("", "EXECUTE wide").bind("", "", &[]).execute("", 5).sync();
    assert_eq!(client.transcript().await, format!("1 2 {error} Z(I)"));
    let told = client.ask("DELETE FROM accounts WHERE owner IN (SELECT repeat('x', 1000) FROM notes)").await;
    assert!(told.starts_with("E(53400 a sub-select has more than 65536 bytes of rows)"), "{told}");
    succeed(&mut client, "DELETE FROM notes").await;
}

/// Somebody holds one of the rows.
async fn held(stage: &Stage, client: &mut WireClient, begin: &str, id: u32) -> WireClient {
    let mut holder = stage.client().await;
    succeed(&mut holder, &format!("BEGIN; INSERT INTO accounts VALUES ({id}, 'held', 1)")).await;
    succeed(client, begin).await;
    client.query(&format!("INSERT INTO accounts {MANY}"));
    client.flush().await;
    let place = holder.row(&format!("SELECT * FROM shardgate.locate('accounts', '{id}')")).await;
    let shard = usize::from(place[1] == "shard1");
    until_waiting(stage, shard).await;
    holder
}

async fn until_waiting(stage: &Stage, shard: usize) {
    let client = stage.cluster.connect_shard(shard).await;
    let sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO accounts%'";
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.query(sql, &[]).await.expect("activity").is_empty() {
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn cancelled(stage: &Stage) {
    let mut client = stage.client().await;
    for begin in ["SELECT 1", "BEGIN"] {
        let mut holder = held(stage, &mut client, begin, 9000).await;
        client.cancel().await;
        let told = client.transcript().await;
        assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
        client.ask("ROLLBACK").await;
        succeed(&mut holder, "ROLLBACK").await;
        assert_eq!(count(&mut client).await, "90");
    }
}

/// One deadline over all of its parts, each of which takes less.
async fn timed_out(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "SET statement_timeout = '700ms'").await;
    let told = client.ask("INSERT INTO accounts SELECT g, '', 1 FROM generate_series(1000, 201000) g").await;
    assert!(told.contains("E(57014 canceling statement due to statement timeout)"), "{told}");
    succeed(&mut client, "RESET statement_timeout").await;
    assert_eq!(count(&mut client).await, "90");
}

/// Before all of it is written.
async fn left_alone(stage: &Stage) {
    let mut client = stage.client().await;
    let mut holder = held(stage, &mut client, "SELECT 1", 1000).await;
    drop(client);
    // That it has left is noticed while the lock is still held: afterwards the statement may end before.
    for shard in 0..2 {
        until_gone(stage, shard, "pid <> pg_backend_pid() AND state <> 'idle' AND query LIKE 'INSERT INTO%'").await;
    }
    succeed(&mut holder, "ROLLBACK").await;
    assert_eq!(count(&mut holder).await, "90");
}

async fn without_temporary_tables(stage: &Stage) {
    for shard in 0..2 {
        let shard = stage.cluster.connect_shard(shard).await;
        shard.batch_execute("GRANT INSERT ON accounts TO reader").await.expect("grant");
    }
    let home = stage.cluster.connect_shard(0).await;
    home.batch_execute("REVOKE TEMPORARY ON DATABASE shard0 FROM PUBLIC").await.expect("revoke");
    let mut client = stage.client().await;
    succeed(&mut client, "SET ROLE reader").await;
    let told = client.ask(&format!("INSERT INTO accounts {MANY}")).await;
    assert!(told.contains("E(0A000 so many rows for several shards need temporary tables"), "{told}");
    home.batch_execute("GRANT TEMPORARY ON DATABASE shard0 TO PUBLIC").await.expect("grant");
    succeed(&mut client, "BEGIN").await;
    assert_eq!(client.ask(&format!("INSERT INTO accounts {MANY}")).await, "C(INSERT 0 8001) Z(T)");
    succeed(&mut client, "ROLLBACK").await;
}

/// Only one statement can tell that a row is updated twice.
async fn where_rows_must_be_kept(stage: &Stage) {
    let mut client = stage.client().await;
    let updated = "ON CONFLICT (id) DO UPDATE SET balance = 1";
    for insert in [format!("{MANY} {updated}"), format!("{MANY} RETURNING (SELECT count(*) FROM currencies)")] {
        client.query(&format!("INSERT INTO accounts {insert}"));
        let answers = client.answers().await;
        assert_eq!(answers[0].field(b'C'), "53400", "{insert}");
        assert!(answers[0].field(b'D').contains("cross_shard.merge_bytes_max"), "{insert}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_aside_has_a_limit_and_may_be_lost() {
    let mut options = small();
    options.settings.push(("cross_shard.gather_bytes_max", "2097152".to_owned()));
    let stage = Stage::on(Cluster::start(2).await, options).await;
    let mut client = stage.client().await;
    client.query("INSERT INTO accounts SELECT g, repeat('x', 1000), 1 FROM generate_series(1000, 6000) g");
    let answers = client.answers().await;
    assert_eq!(answers[0].field(b'C'), "53400");
    assert!(answers[0].field(b'D').contains("cross_shard.gather_bytes_max"));
    assert_eq!(count(&mut client).await, "90");
    let mut holder = held(&stage, &mut client, "SELECT 1", 1000).await;
    let home = stage.cluster.connect_shard(0).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_temp.shardgate_overflow%' \
                AND state = 'idle in transaction'";
    assert_eq!(home.query(kill, &[]).await.expect("killed").len(), 1);
    succeed(&mut holder, "ROLLBACK").await;
    let told = client.transcript().await;
    assert!(told.contains("E(08006 ") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(count(&mut client).await, "90");
    assert_eq!(client.ask(&format!("INSERT INTO accounts {MANY}")).await, "C(INSERT 0 8001) Z(I)");
}
