//! What cannot follow a client from connection to connection keeps the connection, visibly, and ends with the client.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lives_on_one_connection_keeps_it_and_ends_with_its_client() {
    let settings = [("pool.size_per_shard", "4".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    temporary_tables(&stage).await;
    notifications(&stage).await;
    unlisten(&stage).await;
    advisory_locks(&stage).await;
    cursors_with_hold(&stage).await;
    cursors_that_seem_closed(&stage).await;
    functions_that_set(&stage).await;
    startup_options(&stage).await;
    roles(&stage).await;
    names_of_settings(&stage).await;
    stage.assert_log_is_clean();
}

async fn pins(client: &mut WireClient, user: &str) -> String {
    client
        .value(&format!(
            "SELECT coalesce(string_agg(pinned_by, ',' ORDER BY pinned_by), '') FROM shardgate.clients WHERE \"user\" = '{user}'"
        ))
        .await
}

async fn client_of(stage: &Stage, user: &str) -> WireClient {
    WireClient::connect_with(stage.proxy.address(), &[("user", user), ("database", "app")]).await
}

/// A statement of the proxy's own may run on a connection that has never heard of the client's custom settings.
async fn names_of_settings(stage: &Stage) {
    let unknown = stage.fill_in("SELECT current_setting('app.described', true) IS NULL FROM accounts WHERE id = {a}");
    let (mut describer, mut holder, mut stranger) = (stage.client().await, stage.client().await, stage.client().await);
    for client in [&mut describer, &mut holder] {
        succeed(client, "SET app.described = 'x'").await;
    }
    // An idle connection that nobody with that setting has had, while the one that knows it is held.
    succeed(&mut stranger, "BEGIN").await;
    assert_eq!(stranger.value(&unknown).await, "t");
    succeed(&mut holder, "BEGIN").await;
    assert_eq!(holder.value(&unknown).await, "f");
    succeed(&mut stranger, "COMMIT").await;
    describer.parse("s", "SELECT 'only described', owner FROM accounts WHERE id = $1").describe(b'S', "s").sync();
    let told = describer.transcript().await;
    assert!(told.ends_with("Z(I)") && !told.contains("E("), "{told}");
    for _ in 0..3 {
        assert_eq!(stranger.value(&unknown).await, "t", "it has never heard of the setting");
    }
    succeed(&mut holder, "ROLLBACK").await;
}

async fn temporary_tables(stage: &Stage) {
    let (mut owner, mut other) = (client_of(stage, "temp").await, stage.client().await);
    for statement in
        ["CREATE TEMP TABLE mine (n int)", "INSERT INTO mine VALUES (1), (2)", "CREATE TEMP TABLE also AS SELECT 7 AS n"]
    {
        succeed(&mut owner, statement).await;
    }
    for _ in 0..10 {
        assert_eq!(owner.value("SELECT sum(n) FROM mine").await, "3");
        assert_eq!(owner.value("SELECT n FROM also").await, "7");
        let told = other.ask("SELECT * FROM mine").await;
        assert!(told.starts_with("E(42P01 "), "{told}");
        succeed(&mut owner, &stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await;
    }
    assert_eq!(pins(&mut other, "temp").await, "temporary table");
    succeed(&mut owner, "DISCARD ALL").await;
    assert!(owner.ask("SELECT * FROM mine").await.starts_with("E(42P01 "));
    assert_eq!(pins(&mut other, "temp").await, "");
    // Under the name of a table that everybody sees, for this client alone.
    succeed(&mut owner, "CREATE TEMP TABLE notes (single text)").await;
    succeed(&mut owner, "INSERT INTO notes VALUES ('mine')").await;
    assert_eq!(owner.value("SELECT single FROM notes").await, "mine");
    assert_eq!(other.value("SELECT count(*) FROM notes").await, "0");
    drop(owner);
    assert_eq!(other.value("SELECT count(*) FROM notes").await, "0");
}

async fn notifications(stage: &Stage) {
    let (mut listener, mut teller) = (client_of(stage, "ears").await, stage.client().await);
    succeed(&mut listener, "LISTEN news").await;
    assert_eq!(pins(&mut teller, "ears").await, "LISTEN");
    for number in 0..3 {
        succeed(&mut teller, &format!("NOTIFY news, 'n{number}'")).await;
        let message = listener.next().await.expect("a notification");
        assert_eq!(message.tag, b'A');
        assert!(message.body.ends_with(format!("news\0n{number}\0").as_bytes()), "{message:?}");
    }
    // In a transaction they come after it, and statements between do not lose any.
    succeed(&mut listener, &stage.fill_in("BEGIN; SELECT owner FROM accounts WHERE id = {z}")).await;
    succeed(&mut teller, "BEGIN; NOTIFY news, 'later'; COMMIT").await;
    let told = listener.ask("COMMIT").await;
    assert!(told.starts_with("C(COMMIT) Z(I)") || told == "A C(COMMIT) Z(I)" || told == "C(COMMIT) A Z(I)", "{told}");
    if !told.contains('A') {
        assert_eq!(listener.some(1).await, "A");
    }
    // Nor do answers that are merged: it comes with the home shard's part, which waits for a lock meanwhile.
    let direct = stage.cluster.connect_shard(0).await;
    for sql in [
        "SELECT count(*) FROM accounts",
        "SELECT id FROM accounts ORDER BY id",
        "SELECT count(*) FROM accounts a JOIN accounts b ON a.balance < b.balance",
        "UPDATE accounts SET balance = balance",
    ] {
        direct.batch_execute("BEGIN; LOCK TABLE accounts").await.expect("the lock");
        listener.query(sql);
        listener.flush().await;
        stage.until_active(0, "accounts").await;
        succeed(&mut teller, "NOTIFY news, 'meanwhile'").await;
        direct.batch_execute("COMMIT").await.expect("let go");
        let told = listener.transcript().await;
        assert!(told.contains("A ") || listener.some(1).await == "A", "{sql}: {told}");
    }
    succeed(&mut listener, "UNLISTEN *").await;
    assert_eq!(pins(&mut teller, "ears").await, "", "nothing else keeps the connection");
    succeed(&mut teller, "NOTIFY news, 'unheard'").await;
    assert_eq!(listener.ask("SELECT 1").await, "T(?column?) D(1) C(SELECT 1) Z(I)");
}

/// UNLISTEN * counts when it is committed, and does not let go of a connection that is kept for something else.
async fn unlisten(stage: &Stage) {
    let (mut listener, mut other) = (client_of(stage, "ears2").await, stage.client().await);
    for (end, kept) in [("ROLLBACK", "LISTEN"), ("COMMIT", "")] {
        succeed(&mut listener, "LISTEN news").await;
        succeed(&mut listener, "BEGIN; UNLISTEN *").await;
        succeed(&mut listener, end).await;
        assert_eq!(pins(&mut other, "ears2").await, kept, "after {end}");
    }
    succeed(&mut listener, "LISTEN news; UNLISTEN *; LISTEN other").await;
    assert_eq!(pins(&mut other, "ears2").await, "LISTEN");
    succeed(&mut listener, "BEGIN; UNLISTEN *; LISTEN other; COMMIT").await;
    assert_eq!(pins(&mut other, "ears2").await, "LISTEN");
    succeed(&mut listener, "CREATE TEMP TABLE kept (n int)").await;
    succeed(&mut listener, "UNLISTEN *").await;
    assert_ne!(pins(&mut other, "ears2").await, "");
    succeed(&mut listener, "INSERT INTO kept VALUES (1)").await;
    listener.unnamed("LISTEN news", &[]).unnamed("UNLISTEN *", &[]).sync();
    assert!(!listener.transcript().await.contains("E("));
    assert_eq!(listener.value("SELECT n FROM kept").await, "1");
}

async fn advisory_locks(stage: &Stage) {
    let (mut holder, mut other) = (client_of(stage, "lock").await, stage.client().await);
    succeed(&mut holder, "SELECT pg_advisory_lock(42)").await;
    assert_eq!(pins(&mut other, "lock").await, "advisory lock");
    for _ in 0..10 {
        assert_eq!(other.value("SELECT pg_try_advisory_lock(42)").await, "f");
        succeed(&mut holder, &stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await;
    }
    // As often as it was locked.
    succeed(&mut holder, "SELECT pg_advisory_lock(42)").await;
    assert_eq!(holder.value("SELECT pg_advisory_unlock(42)").await, "t");
    assert_eq!(pins(&mut other, "lock").await, "advisory lock");
    assert_eq!(holder.value("SELECT pg_advisory_unlock(42)").await, "t");
    assert_eq!(pins(&mut other, "lock").await, "");
    assert_eq!(other.value("SELECT pg_try_advisory_lock(42)").await, "t");
    // The other one leaves without a word: what it held is free again.
    drop(other);
    let left_at = Instant::now();
    while holder.value("SELECT pg_try_advisory_lock(42)").await == "f" {
        assert!(left_at.elapsed() < Duration::from_secs(5), "the lock outlives its client");
    }
    succeed(&mut holder, "CREATE TEMP TABLE locked_too (n int)").await;
    assert_eq!(holder.value("SELECT pg_advisory_unlock_all()").await, "");
    succeed(&mut holder, "INSERT INTO locked_too VALUES (1)").await;
    // A lock for the transaction ends with it and keeps nothing.
    let mut short = client_of(stage, "short").await;
    succeed(&mut short, "BEGIN; SELECT pg_advisory_xact_lock(43); COMMIT").await;
    assert_eq!(holder.value("SELECT pg_try_advisory_lock(43)").await, "t");
    assert_eq!(pins(&mut holder, "short").await, "");
}

async fn cursors_with_hold(stage: &Stage) {
    let (mut reader, mut other) = (client_of(stage, "hold").await, stage.client().await);
    let declare = "DECLARE c CURSOR WITH HOLD FOR SELECT g FROM accounts, generate_series(1, 9) g WHERE id = {z} ORDER BY g";
    succeed(&mut reader, "BEGIN").await;
    succeed(&mut reader, &stage.fill_in(declare)).await;
    assert_eq!(reader.value("FETCH c").await, "1");
    succeed(&mut reader, "COMMIT").await;
    assert_eq!(pins(&mut other, "hold").await, "WITH HOLD cursor");
    for number in 2..6 {
        assert_eq!(reader.value("FETCH c").await, number.to_string());
        succeed(&mut other, &stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await;
        assert!(other.ask("FETCH c").await.starts_with("E(34000 "));
    }
    succeed(&mut reader, "CLOSE c").await;
    assert!(reader.ask("FETCH c").await.starts_with("E(34000 "));
    assert_eq!(pins(&mut other, "hold").await, "");
    // Other ways to an end.
    for end in ["ROLLBACK", "COMMIT; CLOSE ALL", "ROLLBACK TO s; COMMIT", "SELECT 1 / 0; COMMIT", "CLOSE c; COMMIT"] {
        succeed(&mut reader, &stage.fill_in(&format!("BEGIN; SAVEPOINT s; {declare}"))).await;
        reader.ask(end).await;
        reader.ask("ROLLBACK").await;
        assert_eq!(pins(&mut other, "hold").await, "", "{end}");
    }
    // A name that is taken.
    succeed(&mut reader, &stage.fill_in(declare)).await;
    assert!(reader.ask(&stage.fill_in(declare)).await.starts_with("E(42P03 "));
    assert_eq!(pins(&mut other, "hold").await, "WITH HOLD cursor");
    assert_eq!(reader.value("FETCH c").await, "1");
    drop(reader);
    let mut reader = client_of(stage, "hold").await;
    succeed(&mut reader, "DECLARE all_of_them CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id").await;
    assert_eq!(pins(&mut other, "hold").await, "WITH HOLD cursor");
    assert_eq!(reader.value("FETCH all_of_them").await, "1");
    succeed(&mut reader, "CLOSE all_of_them").await;
    assert_eq!(pins(&mut other, "hold").await, "");
}

/// What the proxy has seen says that the cursor is closed, and it is not: nobody else gets its connection, and its client has it still.
async fn cursors_that_seem_closed(stage: &Stage) {
    let declare = "DECLARE c CURSOR WITH HOLD FOR SELECT g FROM accounts, generate_series(1, 9) g WHERE id = {z} ORDER BY g";
    let failing = "SELECT 1 / (id - id) FROM accounts WHERE id = {z}";
    // In a pipeline, whose messages behind the error the shard does not read.
    let pipelines: [&[&str]; 4] = [
        &[failing, "CLOSE c"],
        &[failing, "CLOSE ALL"],
        &["BEGIN", failing, "CLOSE c"],
        &["BEGIN", "SAVEPOINT s", failing, "CLOSE c"],
    ];
    // One after the other.
    let texts: [&[&str]; 6] = [
        &["BEGIN", failing, "CLOSE c", "ROLLBACK"],
        &["BEGIN", "SAVEPOINT s", failing, "CLOSE c", "ROLLBACK TO s", "COMMIT"],
        &["BEGIN", failing, "CLOSE ALL", "ROLLBACK"],
        &["SELECT 1 / (id - id) FROM accounts WHERE id = {z}; CLOSE c"],
        &["BEGIN; SELECT 1 / (id - id) FROM accounts WHERE id = {z}; CLOSE c", "ROLLBACK"],
        &["BEGIN", "SAVEPOINT s", "FETCH 0 FROM c", "ROLLBACK TO s", "ROLLBACK"],
    ];
    for (number, statements) in pipelines.iter().chain(&texts).enumerate() {
        let mut holder = client_of(stage, "seems").await;
        succeed(&mut holder, &stage.fill_in(declare)).await;
        match number < pipelines.len() {
            true => {
                for sql in *statements {
                    holder.unnamed(&stage.fill_in(sql), &[]);
                }
                holder.sync();
                holder.transcript().await;
                holder.ask("ROLLBACK").await;
            }
            false => {
                for sql in *statements {
                    holder.ask(&stage.fill_in(sql)).await;
                }
            }
        }
        is_held_alone(stage, holder, &format!("{statements:?}")).await;
    }
}

/// The client's cursor `c` is nobody else's, keeps its connection, and lets go of it when it is closed.
async fn is_held_alone(stage: &Stage, mut holder: WireClient, after: &str) {
    let open = "/* shardgate: shard=shard1 */ SELECT count(*) FROM pg_catalog.pg_cursors WHERE is_holdable";
    let mut others = Vec::new();
    // As many as find room beside it.
    for _ in 0..2 {
        let mut other = stage.client().await;
        succeed(&mut other, "BEGIN").await;
        assert_eq!(other.value(open).await, "0", "after {after}");
        let told = other.ask("FETCH c").await;
        assert!(told.starts_with("E(34000 "), "after {after}: {told}");
        others.push(other);
    }
    for other in &mut others {
        other.ask("ROLLBACK").await;
    }
    let mut other = stage.client().await;
    assert_eq!(pins(&mut other, "seems").await, "WITH HOLD cursor", "after {after}");
    assert_eq!(holder.value("FETCH c").await, "1", "after {after}");
    succeed(&mut holder, "CLOSE c").await;
    assert_eq!(pins(&mut other, "seems").await, "", "after {after}");
}

/// A function may set for good on the connection where it runs; nobody else may meet it there.
async fn functions_that_set(stage: &Stage) {
    let mut client = stage.client().await;
    for statement in [
        "CREATE FUNCTION remember() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('work_mem', '9MB', false); RETURN 'done'; END $$",
        "CREATE FUNCTION remember_sql() RETURNS text LANGUAGE sql AS $$ SELECT set_config('work_mem', '9MB', false) $$",
        "CREATE FUNCTION remember_set() RETURNS text LANGUAGE plpgsql AS $$ BEGIN SET work_mem = '9MB'; RETURN 'done'; END $$",
    ] {
        succeed(&mut client, statement).await;
    }
    for call in
        ["SELECT remember()", "SELECT remember_sql()", "SELECT remember_set()", "SELECT remember() FROM accounts WHERE id = {z}"]
    {
        let mut caller = stage.client().await;
        let told = caller.ask(&stage.fill_in(call)).await;
        drop(caller);
        for _ in 0..4 {
            let mut next = stage.client().await;
            for key in ["{a}", "{z}"] {
                let sql = stage.fill_in(&format!("SELECT current_setting('work_mem') FROM accounts WHERE id = {key}"));
                assert_eq!(next.value(&sql).await, "4MB", "after {call}, which was answered {told}");
            }
        }
    }
}

/// Drivers hear at once whose rights the session has.
async fn roles(stage: &Stage) {
    let mut client = stage.client().await;
    for (statement, user, is_superuser) in [
        ("SET ROLE reader", "postgres", "off"),
        ("RESET ROLE", "postgres", "on"),
        ("BEGIN; SET LOCAL ROLE reader", "postgres", "off"),
        ("COMMIT", "postgres", "on"),
        ("BEGIN; SET ROLE reader", "postgres", "off"),
        ("ROLLBACK", "postgres", "on"),
        ("SELECT set_config('role', 'reader', false)", "postgres", "off"),
        ("SET ROLE none", "postgres", "on"),
        ("SET SESSION AUTHORIZATION reader", "reader", "off"),
        ("RESET SESSION AUTHORIZATION", "postgres", "on"),
    ] {
        succeed(&mut client, statement).await;
        let told = (client.parameter("session_authorization"), client.parameter("is_superuser"));
        assert_eq!(told, (Some(user), Some(is_superuser)), "{statement}");
    }
}

async fn startup_options(stage: &Stage) {
    let parameters = [
        ("user", "postgres"),
        ("database", "app"),
        ("application_name", "mine"),
        ("options", "-c work_mem=3MB -c app.tenant=t\\ 1 --search_path=other,public"),
        ("TimeZone", "Asia/Kolkata"),
    ];
    let mut client = WireClient::connect_with(stage.proxy.address(), &parameters).await;
    assert_eq!((client.parameter("TimeZone"), client.parameter("application_name")), (Some("Asia/Kolkata"), Some("mine")));
    let settings = "concat_ws('/', current_setting('work_mem'), current_setting('app.tenant'), current_setting('search_path'), \
                    current_setting('application_name'), current_setting('timezone'))";
    let expected = "3MB/t 1/other,public/mine/Asia/Kolkata";
    for key in ["{a}", "{z}", "{b}", "{y}"] {
        assert_eq!(client.value(&stage.fill_in(&format!("SELECT {settings} FROM accounts WHERE id = {key}"))).await, expected);
    }
    succeed(&mut client, "SET work_mem = '5MB'; SET timezone = 'UTC'").await;
    assert_eq!(client.parameter("TimeZone"), Some("UTC"), "drivers are told");
    succeed(&mut client, "RESET ALL").await;
    assert_eq!(client.parameter("TimeZone"), Some("Asia/Kolkata"));
    assert_eq!(
        client.value(&stage.fill_in(&format!("SELECT {settings} FROM accounts WHERE id = {{z}}"))).await,
        expected,
        "back to login's"
    );
    drop(client);
    let mut other = stage.client().await;
    for key in ["{a}", "{z}", "{b}", "{y}"] {
        let told = other.value(&stage.fill_in(&format!("SELECT current_setting('work_mem') FROM accounts WHERE id = {key}"))).await;
        assert_eq!(told, "4MB");
    }
    for (options, code) in [("-c work_mem=nonsense", "22023"), ("-c no_such_setting=1", "42704"), ("--x", "42601")] {
        let parameters = [("user", "postgres"), ("database", "app"), ("options", options)];
        let refusal = WireClient::try_connect(stage.proxy.address(), &parameters).await.err().expect("refused");
        assert_eq!((refusal.field(b'S').as_str(), refusal.field(b'C').as_str()), ("FATAL", code), "{options}");
    }
}
