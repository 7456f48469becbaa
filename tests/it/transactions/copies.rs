//! Those who write the same rows of a reference table at one time, through two proxies: one after the other on every shard, in one
//! order, and nobody waits for himself.

use std::time::{Duration, Instant};

use super::{Ledger, Points};
use crate::sessions::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient, volume};

const CLIENTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_stay_equal_under_writers_of_the_same_rows() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let rounds = volume(6, 400);
    let writers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = if number % 2 == 0 { stage.proxy.address() } else { other.address() };
            tokio::spawn(async move { write(WireClient::connect(address).await, number, rounds).await })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no statement fails");
    }
    Ledger::until_nothing_is_prepared(&stage, std::time::Duration::from_secs(10)).await;
    let mut copies = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query("SELECT code, name FROM currencies ORDER BY code", &[]).await.expect("rows");
        copies.push(rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, String>(1))).collect::<Vec<_>>());
    }
    assert!(copies.iter().all(|copy| *copy == copies[0]), "the order of the writes is the same on all shards: {copies:#?}");
    for (code, name) in &copies[0] {
        assert_eq!(name.matches('.').count(), CLIENTS * rounds, "every write of {code} is there once");
    }
    stage.assert_log_is_clean();
}

/// Each write adds to what the one before has left: alone, or both rows and one of a shard in one transaction.
async fn write(mut client: WireClient, number: usize, rounds: usize) {
    let add = |code: &str| format!("UPDATE currencies SET name = name || '.{number}' WHERE code = '{code}'");
    for round in 0..rounds {
        let texts = match (number + round) % 3 {
            0 => vec![add("EUR"), add("INR")],
            1 => vec![format!("{}; {}", add("EUR"), add("INR"))],
            _ => {
                let own = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {}", number + 1);
                vec!["BEGIN".to_owned(), add("EUR"), own, add("INR"), "COMMIT".to_owned()]
            }
        };
        for text in texts {
            let told = client.ask(&text).await;
            assert!(!told.contains("E(") && !told.contains("C(UPDATE 0)") && told.contains("Z("), "{text}: {told}");
        }
    }
}

/// A commit is held after it was decided on the home shard, and before it reaches the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_meets_a_commit_half_done_is_no_sign_of_other_copies() {
    let points = Points::new();
    let stage = Stage::start(2, points.options()).await;
    let mut client = stage.client().await;
    let mark = "UPDATE currencies SET name = name || '!' WHERE code >= 'EUR'";
    let mark_one = |number: i32| format!("UPDATE currencies SET name = name || '!' WHERE code = 'N{number}' RETURNING code");

    // All of its transaction: it waits, and runs again.
    for (number, is_simple) in [(1, true), (2, false)] {
        let mut committing = begin_to_commit(&stage, &points, &add(&format!("N{number}"))).await;
        if is_simple {
            client.query(&mark_one(number))
        } else {
            client.unnamed(&mark_one(number), &[]).sync()
        };
        client.flush().await;
        stage.until_waiting("the write").await;
        points.release(HELD);
        assert_eq!(committing.transcript().await, "C(INSERT 0 1) Z(I)");
        let told = client.transcript().await;
        assert!(!told.contains("E(") && told.ends_with("C(UPDATE 1) Z(I)"), "{told}");
        assert_eq!(told.matches(&format!("D(N{number})")).count(), 1, "{told}");
    }
    check_copies(&stage).await;

    // It has done something else before: the client begins anew.
    let mut other = stage.client().await;
    let mut committing = begin_to_commit(&stage, &points, &add("N3")).await;
    succeed(&mut other, &format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {}", stage.key(1, 0))).await;
    other.query("UPDATE currencies SET name = name || '!' WHERE code = 'N3'");
    other.flush().await;
    until_compared(&stage).await;
    points.release(HELD);
    assert_eq!(committing.transcript().await, "C(INSERT 0 1) Z(I)");
    let answers = other.answers().await;
    assert_eq!((answers[0].field(b'C').as_str(), answers[1].describe().as_str()), ("40001", "Z(E)"));
    assert!(!answers[0].field(b'D').is_empty() && !answers[0].field(b'H').is_empty());
    succeed(&mut other, "ROLLBACK").await;
    check_copies(&stage).await;

    // Somebody has written to one copy directly.
    stage.cluster.connect_shard(1).await.batch_execute(&add("OWN")).await.expect("a row of its own");
    for block in ["", "BEGIN; "] {
        let told = client.ask(&format!("{block}{mark}")).await;
        assert!(told.contains("E(55000 the copies of the reference table differ on shard \"shard1\")"), "{told}");
        client.ask("ROLLBACK").await;
    }
    assert_eq!(client.value("SELECT count(*) FROM currencies WHERE name LIKE '%!!'").await, "0");
    stage.assert_log_is_clean();
}

/// Two commits are held in their middle, each visible on another shard: what an UPDATE of all rows finds differs from copy to
/// copy, and its counts do not. It waits until both are on all shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_many_rows_finds_the_same_on_every_copy() {
    let (home_first, home_last) = (Points::new(), Points::new());
    let stage = Stage::start(2, home_first.options()).await;
    let other = Proxy::start(&stage.cluster, home_last.options());
    let block = format!("BEGIN; UPDATE accounts SET balance = 7 WHERE id = {}", stage.key(1, 0));
    let writes = [
        ("", "UPDATE currencies SET name = name || '!'"),
        (&*block, "UPDATE currencies SET name = name || '!' WHERE code LIKE 'N%'"),
        ("", "UPDATE currencies SET name = name || '!' WHERE code IN ('EUR', 'Na3', 'Nb3')"),
        ("", "UPDATE currencies SET name = (SELECT max(owner) FROM accounts WHERE id < 3) WHERE code > 'M'"),
        ("", "UPDATE currencies c SET name = a.owner FROM accounts a WHERE a.id = length(c.code) - 2"),
        ("", "WITH w AS (UPDATE currencies SET name = 'w' RETURNING code) SELECT count(*) >= 2 FROM w"),
        ("", "DELETE FROM currencies WHERE name = 'new'"),
        (
            "",
            "MERGE INTO currencies c USING (SELECT max(owner) AS owner FROM accounts) a ON c.code > 'M' \
             WHEN MATCHED THEN UPDATE SET name = 'merged'",
        ),
    ];
    for (number, (before, write)) in writes.iter().enumerate() {
        let mut client = stage.client().await;
        if !before.is_empty() {
            succeed(&mut client, before).await;
        }
        let mut first = begin_to_commit(&stage, &home_first, &add(&format!("Na{number}"))).await;
        let mut last = WireClient::connect(other.address()).await;
        let held = format!("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT FROM accounts WHERE id = {}", stage.key(1, 0));
        succeed(&mut last, &held).await;
        succeed(&mut last, &add(&format!("Nb{number}"))).await;
        home_last.arm(HELD, "hold");
        last.query("COMMIT");
        last.flush().await;
        home_last.until_reached(HELD).await;

        if number % 2 == 0 {
            client.query(write)
        } else {
            client.unnamed(write, &[]).sync()
        };
        client.flush().await;
        let told = answered_after(&stage, &mut client, || [&home_first, &home_last].map(|points| points.release(HELD))).await;
        assert_eq!((first.transcript().await, last.transcript().await), ("C(INSERT 0 1) Z(I)".into(), "C(COMMIT) Z(I)".into()));
        assert!(!told.contains("E("), "{write}: {told}");
        if !before.is_empty() {
            succeed(&mut client, "COMMIT").await;
        }
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
        check_copies(&stage).await;
    }
    stage.assert_log_is_clean();
}

/// Where each shard keeps a snapshot, a lock comes too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_many_rows_by_snapshots_is_refused() {
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        succeed(&mut client, "UPDATE currencies SET name = 'one' WHERE code = 'EUR'").await;
        let told = client.ask("UPDATE currencies SET name = 'many'").await;
        assert!(told.contains("E(0A000 a write of a reference table that may find several rows"), "{told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    check_copies(&stage).await;
}

/// Rows by their key, and new ones, do not wait for each other; a write of many rows and new ones do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_writes_of_many_rows_keep_others_out() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut holder, mut client, mut many) = (stage.client().await, stage.client().await, stage.client().await);
    succeed(&mut client, "SET lock_timeout = '5s'").await;
    for statement in ["BEGIN", "UPDATE currencies SET name = 'held' WHERE code = 'EUR'", &add("ONE")] {
        succeed(&mut holder, statement).await;
    }
    let beside = [
        "UPDATE currencies SET name = 'other' WHERE code = 'INR'".to_owned(),
        "UPDATE currencies c SET name = 'other' WHERE name > '' AND 'INR'::text = c.code RETURNING code".to_owned(),
        add("TWO"),
        format!("{} ON CONFLICT (code) DO UPDATE SET name = 'again'", add("TWO")),
        "DELETE FROM ONLY currencies WHERE code = 'TWO'".to_owned(),
    ];
    for write in &beside {
        succeed(&mut client, write).await;
    }
    for (code, told) in [("INR", "C(UPDATE 1)"), ("none", "C(UPDATE 0)")] {
        client.unnamed("UPDATE currencies SET name = 'bound' WHERE code = $1", &[code]).sync().flush().await;
        let answer = client.transcript().await;
        assert!(answer.contains(told), "{answer}");
    }
    many.query("UPDATE currencies SET name = name || '!'");
    many.flush().await;
    until_locking(&stage).await;
    succeed(&mut holder, "COMMIT").await;
    assert_eq!(many.transcript().await, "C(UPDATE 3) Z(I)");

    // The other way round.
    succeed(&mut holder, "BEGIN; DELETE FROM currencies WHERE name = 'nothing'").await;
    client.query(&add("THREE"));
    client.flush().await;
    stage.until_waiting("the new row").await;
    assert_eq!(many.value("SELECT count(*) FROM currencies").await, "3", "nobody waits to read");
    succeed(&mut holder, "COMMIT").await;
    assert_eq!(client.transcript().await, "C(INSERT 0 1) Z(I)");
    check_copies(&stage).await;
    stage.assert_log_is_clean();
}

/// Who may write a column, and not the table, may not lock it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_lock_a_reference_table_writes_one_row_at_a_time() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "GRANT UPDATE (name) ON currencies TO reader").await;
    succeed(&mut client, "SET ROLE reader").await;
    assert!(client.ask("LOCK TABLE currencies").await.contains("E("));
    let refused = client.ask("UPDATE currencies SET name = name || '?'").await;
    assert!(
        refused.contains("E(0A000 writing several rows of reference table \"currencies\" with a privilege on some"),
        "{refused}"
    );
    let write = "UPDATE currencies SET name = name || '?' WHERE code = 'EUR'";
    assert_eq!(client.ask(write).await, "C(UPDATE 1) Z(I)");
    for text in ["BEGIN", write, "COMMIT"] {
        succeed(&mut client, text).await;
    }
    assert_eq!(client.ask("DELETE FROM currencies").await, "E(42501 permission denied for table currencies) Z(I)");
    assert_eq!(client.value("SELECT name FROM currencies WHERE code = 'EUR'").await, "Euro??");
    // No lock for what cannot be.
    let refused = client.ask("BEGIN READ ONLY; UPDATE currencies SET name = ''").await;
    assert!(refused.contains("E(25006 cannot execute UPDATE in a read-only transaction)"), "{refused}");
    check_copies(&stage).await;
}

/// The rows of each copy lie in an order of its own: values that are equal and do not look alike, numbers whose sum hangs on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_whose_rows_lie_in_other_orders_give_one_answer() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for text in [
        "CREATE TABLE scales (id int PRIMARY KEY, g int, n numeric, f float8)",
        "SELECT shardgate.reference_table('scales')",
        "INSERT INTO scales VALUES (1, 1, 1.0, 0.1), (2, 1, 1.00, 1e16), (3, 1, 1.000, -1e16)",
    ] {
        succeed(&mut client, text).await;
    }
    let other = stage.cluster.connect_shard(1).await;
    other.batch_execute("UPDATE scales SET g = g WHERE id = 1; UPDATE scales SET g = g WHERE id = 2").await.expect("moved");
    for value in [
        "(SELECT min(n)::text FROM scales)",
        "(SELECT max(n) FROM scales)::text",
        "(SELECT n::text FROM scales GROUP BY n)",
        "(SELECT DISTINCT n FROM scales)::text",
        "(SELECT n FROM scales ORDER BY n LIMIT 1)::text",
        "(SELECT n FROM scales UNION SELECT n FROM scales)::text",
        "(SELECT array_agg(n ORDER BY n) FROM scales)::text",
        "(SELECT sum(f)::text FROM scales)",
        "(SELECT sum(f) OVER () FROM scales LIMIT 1)::text",
    ] {
        succeed(&mut client, &format!("UPDATE accounts SET owner = {value}")).await;
        assert_eq!(client.value("SELECT count(DISTINCT owner) FROM accounts").await, "1", "{value}");
        succeed(&mut client, &format!("UPDATE currencies SET name = {value}")).await;
        check_copies(&stage).await;
    }
    stage.assert_log_is_clean();
}

/// What a function of a user finds first is found in each copy's own order; what it looks up is the same in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_read_copies_give_one_answer() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for text in [
        "CREATE TABLE scales (id int PRIMARY KEY, g int, name text)",
        "SELECT shardgate.reference_table('scales')",
        "INSERT INTO scales VALUES (1, 1, 'one'), (2, 1, 'two'), (3, 1, 'three')",
        "CREATE FUNCTION found() RETURNS text STABLE LANGUAGE sql AS 'SELECT name FROM scales LIMIT 1'",
        "CREATE FUNCTION found_within() RETURNS text STABLE LANGUAGE plpgsql AS 'BEGIN RETURN found(); END'",
        "CREATE FUNCTION listed(one int) RETURNS text STABLE LANGUAGE plpgsql AS \
         'DECLARE r record; v text := ''''; BEGIN FOR r IN SELECT name FROM scales WHERE g = one LOOP v := v || r.name; END LOOP; RETURN v; END'",
        "CREATE FUNCTION all_of(one int) RETURNS SETOF text STABLE LANGUAGE sql AS 'SELECT name FROM scales WHERE g = one'",
        "CREATE FUNCTION looked_up(one int) RETURNS text STABLE LANGUAGE sql AS 'SELECT name FROM scales WHERE id = one'",
        "CREATE FUNCTION counted(one int) RETURNS text STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM scales WHERE g = one); END'",
    ] {
        succeed(&mut client, text).await;
    }
    let other = stage.cluster.connect_shard(1).await;
    other.batch_execute("UPDATE scales SET g = g WHERE id = 1; UPDATE scales SET g = g WHERE id = 2").await.expect("moved");
    for value in ["found()", "found_within()", "listed(1)"] {
        let distinct = format!("SELECT count(DISTINCT v) FROM (SELECT {value} AS v FROM accounts) s");
        assert_eq!(client.value(&distinct).await, "1", "{value}");
        for text in [format!("UPDATE accounts SET owner = {value}"), format!("UPDATE currencies SET name = {value}")] {
            let told = client.ask(&text).await;
            assert!(told.contains("E(0A000 "), "{text}: {told}");
        }
    }
    for (value, expected) in [("looked_up(2)", "two"), ("counted(1)", "3"), ("(SELECT max(v) FROM all_of(1) v)", "two")] {
        succeed(&mut client, &format!("UPDATE accounts SET owner = {value}")).await;
        let told = client.value("SELECT string_agg(DISTINCT owner, ' ') FROM accounts").await;
        assert_eq!(told, expected, "{value}");
        succeed(&mut client, &format!("UPDATE currencies SET name = {value}")).await;
        check_copies(&stage).await;
    }
    stage.assert_log_is_clean();
}

/// The answer to a write that is to wait for the commits that are held, and is heard before where it does not.
async fn answered_after<T>(stage: &Stage, client: &mut WireClient, release: impl FnOnce() -> T) -> String {
    let mut answered = std::pin::pin!(client.transcript());
    let early = tokio::select! {
        told = &mut answered => Some(told),
        () = until_locking(stage) => None,
    };
    release();
    match early {
        Some(told) => told,
        None => answered.await,
    }
}

/// A write waits for those who write the same table.
async fn until_locking(stage: &Stage) {
    let sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'LOCK TABLE%SHARE ROW EXCLUSIVE MODE'";
    let client = stage.cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.query(sql, &[]).await.expect("activity").is_empty() {
        assert!(Instant::now() < deadline, "nobody waits for the lock");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn add(code: &str) -> String {
    format!("INSERT INTO currencies VALUES ('{code}', 'new')")
}

const HELD: &str = "before_finish.1";

async fn begin_to_commit(stage: &Stage, points: &Points, text: &str) -> WireClient {
    let mut client = stage.client().await;
    points.arm(HELD, "hold");
    client.query(text);
    client.flush().await;
    points.until_reached(HELD).await;
    client
}

/// The proxy looks whether the copies are alike, and waits for what is being committed.
async fn until_compared(stage: &Stage) {
    let sql = "SELECT FROM pg_stat_activity WHERE application_name = 'shardgate snapshot barrier'";
    let client = stage.cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.query(sql, &[]).await.expect("activity").is_empty() {
        assert!(Instant::now() < deadline, "nobody compares the copies");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn check_copies(stage: &Stage) {
    let mut copies = Vec::new();
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query("SELECT code || name FROM currencies ORDER BY code", &[]).await.expect("rows");
        copies.push(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>());
    }
    assert_eq!(copies[0], copies[1]);
}
