//! What surrounds cursors and COPY over several shards: their limits, their end when they are cancelled, timed out, or lose a
//! shard or their client, memory, and that nothing of them stays behind.

use std::time::{Duration, Instant};

use super::gathered::{resident_kib, until_gone};
use super::stage::{Stage, succeed};
use crate::support::{Cluster, ProxyOptions, WireClient};

/// Not merged in the proxy.
const JOINED: &str =
    "SELECT a.id, b.id AS other FROM accounts a JOIN accounts b ON b.balance = a.balance AND b.id = a.id + 1 ORDER BY 1";
/// Tens of milliseconds for each row, on every shard.
const SLOW: &str = "SELECT a.id, (SELECT count(*) FROM generate_series(1, 300000 + a.id)) FROM accounts a ORDER BY a.id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_over_several_shards_end_as_they_must() {
    let settings = vec![
        ("cross_shard.cursors_max", "3".to_owned()),
        ("cross_shard.gather_bytes_max", "65536".to_owned()),
        ("pool.size_per_shard", "8".to_owned()),
    ];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    limited(&stage).await;
    too_large(&stage).await;
    cancelled(&stage).await;
    timed_out(&stage).await;
    nothing_stays(&stage).await;
    others_go_on(&stage).await;
    held(&stage).await;
    opened_by_functions(&stage).await;
    rows_of_the_proxy(&stage).await;
    refusals(&stage).await;
    stage.assert_log_is_clean();
}

async fn begun(stage: &Stage) -> WireClient {
    let mut client = stage.client().await;
    succeed(&mut client, "BEGIN").await;
    client
}

async fn limited(stage: &Stage) {
    let mut client = begun(stage).await;
    for name in ["a", "b", "c"] {
        succeed(&mut client, &format!("DECLARE {name} CURSOR FOR SELECT id FROM accounts ORDER BY id")).await;
    }
    succeed(&mut client, "SAVEPOINT s").await;
    let told = client.ask("DECLARE d CURSOR FOR SELECT id FROM accounts ORDER BY id").await;
    assert!(told.contains("E(53400 more than 3 cursors over several shards in one session)"), "{told}");
    succeed(&mut client, "ROLLBACK TO s").await;
    succeed(&mut client, "CLOSE b").await;
    succeed(&mut client, "DECLARE d CURSOR FOR SELECT id FROM accounts ORDER BY id").await;
    assert_eq!(client.ask("FETCH 2 FROM d").await, "T(id) D(1) D(2) C(FETCH 2) Z(T)");
    succeed(&mut client, "COMMIT").await;
}

async fn too_large(stage: &Stage) {
    let mut client = begun(stage).await;
    let wide = "SELECT a.id, repeat(md5(a.owner), 40) FROM accounts a JOIN (SELECT id, repeat(md5(owner), 40) AS t FROM accounts) b \
                ON a.balance = b.id ORDER BY 1";
    succeed(&mut client, &format!("DECLARE small CURSOR FOR {wide}")).await;
    let long = "UPDATE accounts SET owner = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g) WHERE id < 30";
    succeed(&mut client, long).await;
    let told = client.ask(&format!("DECLARE c CURSOR FOR {wide}")).await;
    assert!(told.contains("E(53400 statement needs more than 65536 bytes of rows of several shards)"), "{told}");
    succeed(&mut client, "ROLLBACK").await;
}

async fn cancelled(stage: &Stage) {
    for (query, shard, running) in [
        (SLOW, 1, "FETCH FORWARD"),
        (
            "SELECT count(*) FROM accounts a, accounts b, accounts c, accounts d, accounts e WHERE a.id < b.balance + c.id",
            0,
            "FETCH ALL",
        ),
    ] {
        let mut client = begun(stage).await;
        succeed(&mut client, &format!("DECLARE c CURSOR FOR {query}")).await;
        client.query("FETCH ALL FROM c");
        client.flush().await;
        stage.until_active(shard, running).await;
        client.cancel().await;
        let told = client.transcript().await;
        assert!(told.contains("E(57014 canceling statement due to user request)") && told.ends_with("Z(E)"), "{told}");
        succeed(&mut client, "ROLLBACK").await;
        assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    }
}

/// However many pieces it takes.
async fn timed_out(stage: &Stage) {
    let mut client = begun(stage).await;
    succeed(&mut client, &format!("DECLARE c CURSOR FOR {SLOW}")).await;
    succeed(&mut client, "SET statement_timeout = '300ms'").await;
    let asked_at = Instant::now();
    let told = client.ask("FETCH ALL FROM c").await;
    assert!(told.contains("E(57014 canceling statement due to statement timeout)"), "{told}");
    assert!(asked_at.elapsed() < Duration::from_secs(5), "{:?}", asked_at.elapsed());
    succeed(&mut client, "ROLLBACK").await;
}

/// By each way in which a cursor ends.
async fn nothing_stays(stage: &Stage) {
    for ends in [
        &["COMMIT"][..],
        &["ROLLBACK"],
        &["CLOSE c", "COMMIT"],
        &["CLOSE ALL", "COMMIT"],
        &["FETCH ALL FROM c", "COMMIT"],
        &["SELECT 1 / 0", "ROLLBACK"],
        &[
            "SAVEPOINT s",
            "DECLARE d CURSOR FOR SELECT max(a.id) FROM accounts a JOIN accounts b ON b.balance = a.balance + 1",
            "ROLLBACK TO s",
            "COMMIT",
        ],
    ] {
        let mut client = begun(stage).await;
        succeed(&mut client, &format!("DECLARE c CURSOR FOR {JOINED}")).await;
        assert_eq!(client.ask("FETCH c").await, "T(id,other) D(1,2) C(FETCH 1) Z(T)");
        for end in ends {
            client.ask(end).await;
        }
        for shard in [0, 1] {
            until_gone(stage, shard, "state LIKE 'idle in transaction%'").await;
        }
    }
    let mut client = begun(stage).await;
    succeed(&mut client, &format!("DECLARE c CURSOR FOR {JOINED}")).await;
    drop(client);
    for shard in [0, 1] {
        until_gone(stage, shard, "state LIKE 'idle in transaction%'").await;
    }
    let mut client = stage.client().await;
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}

/// As many as take the first connections of a pool: each holds one, and its next one comes of those that are kept for such sessions.
async fn others_go_on(stage: &Stage) {
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = begun(stage).await;
        succeed(&mut client, &format!("DECLARE c CURSOR FOR {JOINED}")).await;
        clients.push(client);
    }
    for mut client in clients {
        assert_eq!(client.value("SELECT count(*) FROM notes").await, "0");
        assert_eq!(client.ask("FETCH c").await, "T(id,other) D(1,2) C(FETCH 1) Z(T)");
        succeed(&mut client, "COMMIT").await;
    }
}

/// A cursor that is held keeps one connection, and no transaction, until it is closed; a commit on several shards goes on beside it.
async fn held(stage: &Stage) {
    let pinned = "SELECT pinned_by, shards FROM shardgate.clients WHERE pinned_by IS NOT NULL";
    let mut other = stage.client().await;
    for ends in [&["CLOSE c"][..], &["CLOSE ALL"], &["DISCARD ALL"], &["BEGIN", "CLOSE c", "ROLLBACK"]] {
        let mut client = begun(stage).await;
        succeed(&mut client, &format!("DECLARE c CURSOR WITH HOLD FOR {JOINED}")).await;
        succeed(&mut client, "UPDATE accounts SET owner = owner").await;
        succeed(&mut client, "COMMIT").await;
        assert_eq!(client.ask("FETCH c").await, "T(id,other) D(1,2) C(FETCH 1) Z(I)");
        for shard in [0, 1] {
            until_gone(stage, shard, "state LIKE 'idle in transaction%'").await;
        }
        assert_eq!(other.ask(pinned).await, "T(pinned_by,shards) D(WITH HOLD cursor,{shard0}) C(SELECT 1) Z(I)");
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, "UPDATE accounts SET owner = owner").await;
        succeed(&mut client, "COMMIT").await;
        assert_eq!(client.ask("FETCH c").await, "T(id,other) D(2,3) C(FETCH 1) Z(I)");
        for end in ends {
            succeed(&mut client, end).await;
        }
        assert!(client.ask("FETCH c").await.starts_with("E(34000 "), "{ends:?}");
        assert_eq!(other.ask(pinned).await, "T(pinned_by,shards) C(SELECT 0) Z(I)", "{ends:?}");
    }
    let mut client = stage.client().await;
    for name in ["a", "b", "c"] {
        succeed(&mut client, &format!("DECLARE {name} CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id")).await;
    }
    let told = client.ask("DECLARE d CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id").await;
    assert!(told.contains("E(53400 more than 3 cursors over several shards in one session)"), "{told}");
    drop(client);
    let mut client = stage.client().await;
    let schemas = "SELECT pg_my_temp_schema()::int, count(*) FROM pg_class WHERE relname LIKE 'shardgate_input%'";
    for _ in 0..8 {
        assert_eq!(client.ask(schemas).await, "T(pg_my_temp_schema,count) D(0,0) C(SELECT 1) Z(I)");
    }
}

/// On each shard a function opens a cursor of its own under the same name.
async fn opened_by_functions(stage: &Stage) {
    let mut client = stage.client().await;
    let body = "BEGIN OPEN c FOR SELECT code FROM currencies ORDER BY code; RETURN c; END";
    succeed(&mut client, &format!("CREATE FUNCTION opened(c refcursor) RETURNS refcursor LANGUAGE plpgsql AS '{body}'")).await;
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, &stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await;
    succeed(&mut client, "SELECT opened('named')").await;
    succeed(&mut client, &stage.fill_in("SELECT owner FROM accounts WHERE id = {a}")).await;
    let fetch = "FETCH ALL FROM named";
    assert_eq!(client.ask(fetch).await, "T(code) D(EUR) D(INR) C(FETCH 2) Z(T)");
    succeed(&mut client, "SELECT opened('named')").await;
    client.query(fetch);
    let answers = client.answers().await;
    let told = [b'C', b'M', b'D', b'H'].map(|code| answers[0].field(code));
    let expected = [
        "0A000",
        "cursor \"named\" is open on several shards",
        "Functions have opened cursors of this name on them, and each shard has its own.",
        "Give the cursors names of their own.",
    ];
    assert_eq!(told, expected.map(str::to_owned));
    succeed(&mut client, "ROLLBACK").await;
    succeed(&mut client, "DROP FUNCTION opened(refcursor)").await;
}

/// A row limit counts for what the proxy answers by itself, too.
async fn rows_of_the_proxy(stage: &Stage) {
    let mut client = stage.client().await;
    for (sql, tag) in [
        ("EXPLAIN SELECT count(*) FROM accounts a JOIN accounts b ON a.balance = b.id", "EXPLAIN"),
        ("EXPLAIN (SHARDS) SELECT id FROM accounts", "EXPLAIN"),
        ("SELECT * FROM shardgate.locate('accounts', '1')", "SELECT 0"),
    ] {
        client.parse("", sql).bind("", "", &[]).execute("", 1).execute("", 1_000_000).execute("", 1).sync();
        let told = client.transcript().await;
        let rest = told.strip_prefix("1 2 D(").and_then(|told| told.split_once(") s ")).map(|(_, rest)| rest).unwrap_or_default();
        assert!(rest.ends_with(&format!("C({tag}) Z(I)")) && !rest.contains(" s "), "{told}");
        assert_eq!(rest.matches("C(").count(), 2, "{told}");
    }
}

/// What is not supported is said so: message, detail and hint.
async fn refusals(stage: &Stage) {
    let mut client = stage.client().await;
    for (statements, message, detail, hint) in [
        (
            &["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT accounts FROM accounts"][..],
            "this WITH HOLD cursor over several shards is not supported",
            "Its rows are kept beyond the transaction, for which they are brought together, and that is not supported for this query.",
            "Declare it without HOLD inside of a transaction, or restrict it to one shard key.",
        ),
        (
            &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id", "FETCH 2 FROM c", "FETCH PRIOR FROM c"],
            "going backwards in this cursor over several shards is not supported",
            "Its rows come from the shards in one direction.",
            "Declare it with SCROLL, so that its rows are brought together first.",
        ),
        (
            &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM accounts FOR UPDATE"],
            "a cursor or row limit with row locks over several shards is not supported",
            "Rows are locked before the client asks for them.",
            "Use LIMIT, or fetch the whole result (a fetch size of 0).",
        ),
        (
            &["BEGIN", "SELECT * FROM accounts a, currencies FOR UPDATE"],
            "row locks of a reference table beside sharded ones are not supported",
            "Each shard has a copy of the table, and who locks a row of one does not keep out who locks it in another.",
            "Lock the rows of sharded tables alone: FOR UPDATE OF \"a\".",
        ),
        (
            &["BEGIN", "SELECT id FROM accounts ORDER BY id LIMIT (SELECT 1) FOR UPDATE"],
            "row locks with this LIMIT or OFFSET are not supported across shards",
            "It is an expression, whose value is not known before a row is locked.",
            "Compute the number first and pass it.",
        ),
        (
            &["BEGIN", "EXPLAIN ANALYZE SELECT id FROM accounts FOR UPDATE"],
            "EXPLAIN ANALYZE of row locks over several shards is not supported",
            "Each shard would lock rows that the statement itself would not.",
            "Use EXPLAIN without ANALYZE, or restrict the statement to one shard key.",
        ),
        (
            &["BEGIN", "COPY accounts TO STDOUT (ENCODING 'LATIN1')"],
            "COPY in the encoding \"LATIN1\" is not supported across shards",
            "The rows of several shards would have to be converted.",
            "Copy in UTF8, as client_encoding.",
        ),
        (
            &["BEGIN", "COPY accounts TO STDOUT USING DELIMITERS ','"],
            "this form of COPY is not supported across shards",
            "Its options are written in an old way.",
            "Write COPY ... TO STDOUT (FORMAT ..., DELIMITER ...).",
        ),
        (
            &["BEGIN", "SELECT max(a.id), 'today 10:00'::timestamp FROM accounts a JOIN accounts b ON a.balance = b.balance"],
            "the transaction's time is not supported in this statement inside a transaction block",
            "It needs rows of several shards, which are brought together in a transaction of its own, with another time, and where it \
             reads the time another cannot be put in its place.",
            "Pass the time as a parameter, or run the statement outside of the transaction block.",
        ),
    ] {
        let (last, before) = statements.split_last().expect("statements");
        for statement in before {
            succeed(&mut client, statement).await;
        }
        client.query(last);
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').unwrap_or_else(|| panic!("{last} is not refused"));
        let told = (error.field(b'C'), error.field(b'M'), error.field(b'D'), error.field(b'H'));
        assert_eq!(told, ("0A000".to_owned(), message.to_owned(), detail.to_owned(), hint.to_owned()), "{last}");
        succeed(&mut client, "ROLLBACK").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_lost_ends_the_cursor_with_its_name() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, ProxyOptions::default()).await;
    let mut client = begun(&stage).await;
    succeed(&mut client, "DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id").await;
    assert_eq!(client.ask("FETCH c").await, "T(id) D(1) C(FETCH 1) Z(T)");
    stage.cluster.shard_server_mut(1).kill().expect("kill the shard");
    let told = client.ask("FETCH ALL FROM c").await;
    assert!(told.contains("E(08006 ") && told.contains("shard1"), "{told}");
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
    stage.assert_no_panic();
}

/// Many times more rows than the proxy may hold: in pieces, in one answer, as COPY data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_any_number_take_bounded_memory() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    for shard in [0, 1] {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = format!(
            "INSERT INTO accounts SELECT g * 2 + {shard}, repeat(md5(g::text), 10), 1 FROM generate_series(1000, 101000) g"
        );
        direct.batch_execute(&rows).await.expect("rows");
    }
    let mut client = stage.client().await;
    let fetched = async |client: &mut WireClient, first: u32| {
        succeed(client, "BEGIN").await;
        succeed(client, &format!("DECLARE c CURSOR FOR SELECT id, owner FROM accounts WHERE id >= {first} ORDER BY id")).await;
        let mut rows = 0;
        loop {
            client.query("FETCH 2000 FROM c");
            let count = client.answers().await.iter().filter(|message| message.tag == b'D').count();
            rows += count;
            if count < 2000 {
                break;
            }
        }
        succeed(client, "COMMIT").await;
        rows
    };
    let copied = async |client: &mut WireClient, first: u32| {
        client.query(&format!("COPY (SELECT id, owner FROM accounts WHERE id >= {first} ORDER BY id) TO STDOUT"));
        client.answers().await.iter().filter(|message| message.tag == b'd').count()
    };
    assert_eq!(fetched(&mut client, 190_000).await, 12_002);
    assert_eq!(copied(&mut client, 190_000).await, 12_002);
    let before = resident_kib(&stage);
    assert_eq!(fetched(&mut client, 2_000).await, 200_002);
    assert_eq!(copied(&mut client, 2_000).await, 200_002);
    let after = resident_kib(&stage);
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB after 128 MB of rows");
}

/// One time for all statements over several shards of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_one_time_over_several_shards() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = begun(&stage).await;
    let time = client.value("SELECT max(now()) FROM accounts").await;
    for same in [
        "SELECT min(current_timestamp) FROM accounts",
        "SELECT now() FROM accounts ORDER BY id LIMIT 1",
        "SELECT max(transaction_timestamp()) FROM accounts a JOIN accounts b ON b.balance = a.balance AND b.id = a.id + 1",
        "SELECT now() FROM accounts ORDER BY id LIMIT 1 FOR UPDATE",
    ] {
        assert_eq!(client.value(same).await, time, "{same}");
    }
    assert_ne!(client.value("SELECT max(statement_timestamp()) FROM accounts").await, time);
    succeed(&mut client, "COMMIT").await;
    assert_ne!(client.value("SELECT max(now()) FROM accounts").await, time);
}
