//! What PostgreSQL says of its sessions, their locks and statements, and of sizes: through the proxy it is said of the cluster, under
//! the process ids that clients were given.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

/// Asks until the answer is this one.
async fn until(client: &mut WireClient, sql: &str, wanted: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let told = client.value(sql).await;
        if told == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {told}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// By an administrator: the last that the client hears.
async fn is_ended(client: &mut WireClient) {
    let told = client.rest().await;
    assert_eq!(told.last().map(|message| message.field(b'C')).as_deref(), Some("57P01"));
}

async fn as_user(stage: &Stage, user: &str) -> WireClient {
    WireClient::connect_with(stage.proxy.address(), &[("user", user), ("database", "app"), ("application_name", "painter")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_seen_and_ended_under_the_process_ids_of_their_clients() {
    let settings = vec![("auth.backend_user", "client".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    stage.create_plain().await;
    let mut admin = stage.client().await;
    for role in ["artist", "signaller"] {
        succeed(&mut admin, &format!("CREATE ROLE {role} LOGIN")).await;
    }
    succeed(&mut admin, "GRANT pg_signal_backend TO signaller").await;
    own_process(&stage, &mut admin).await;
    activity(&stage, &mut admin).await;
    hidden_queries_are_in_no_text(&stage, &mut admin).await;
    every_form_of_statement(&mut admin).await;
    beside_drawn_numbers(&mut admin).await;
    names_of_users(&stage).await;
    cancelling(&stage, &mut admin).await;
    ending(&stage, &mut admin).await;
    nobody_else_is_ended(&stage, &mut admin).await;
    rights(&stage).await;
    locks(&stage, &mut admin).await;
    prepared(&stage).await;
    sizes(&stage, &mut admin).await;
    sizes_beside_locks(&stage, &mut admin).await;
    beside_another_proxy(&stage, &mut admin).await;
    stage.assert_log_is_clean();
}

async fn own_process(stage: &Stage, admin: &mut WireClient) {
    let own = admin.process_id();
    assert_eq!(admin.ask("SELECT pg_backend_pid()").await, format!("T(pg_backend_pid) D({own}) C(SELECT 1) Z(I)"));
    assert_eq!(admin.value("SELECT pg_backend_pid()::text || '!'").await, format!("{own}!"));
    admin.unnamed("SELECT pg_catalog.pg_backend_pid() + $1", &["1"]).sync();
    assert!(admin.transcript().await.contains(&format!("D({})", own + 1)));
    let key = stage.key(1, 0);
    for text in [
        format!("SELECT pg_backend_pid() FROM accounts WHERE id = {key}"),
        "SELECT DISTINCT pg_backend_pid() FROM accounts".to_owned(),
        format!(
            "SELECT b.pid FROM (SELECT id, pg_backend_pid() AS pid FROM accounts) b JOIN accounts c ON c.id = {key} WHERE b.id = {key}"
        ),
    ] {
        assert_eq!(admin.value(&text).await, own.to_string(), "{text}");
    }
}

/// What a role may not see is not among what the shards are sent for it.
async fn hidden_queries_are_in_no_text(stage: &Stage, admin: &mut WireClient) {
    let mut other = as_user(stage, "artist").await;
    let is_told = "SELECT bool_or(current_query() ~ ('hid' || 'den')), bool_or(query ~ ('hid' || 'den')) FROM pg_stat_activity";
    succeed(admin, "SELECT 'hidden'").await;
    assert_eq!(other.row(is_told).await, ["f", "f"]);
    let plan = other.ask("EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) SELECT * FROM pg_stat_activity").await;
    assert!(plan.contains("Function Scan") && !plan.contains("hidden"), "{plan}");
    succeed(admin, "GRANT pg_read_all_stats TO artist").await;
    succeed(admin, "SELECT 'hidden'").await;
    assert_eq!(other.value("SELECT bool_or(query ~ ('hid' || 'den')) FROM pg_stat_activity").await, "t");
    succeed(admin, "REVOKE pg_read_all_stats FROM artist").await;
    // A plan needs nobody's queries, and shows what the client has written.
    let plan = admin.ask("EXPLAIN (SHARDS) SELECT pid FROM pg_stat_activity").await;
    assert!(plan.contains("On shard0: SELECT pid FROM pg_stat_activity)"), "{plan}");
    let plan = admin.ask("EXPLAIN (VERBOSE) SELECT * FROM pg_stat_activity").await;
    assert!(plan.contains("Function Scan") && !plan.contains("painter"), "{plan}");
}

async fn beside_drawn_numbers(admin: &mut WireClient) {
    succeed(admin, "CREATE TABLE numbered (id bigserial PRIMARY KEY, pid int)").await;
    succeed(admin, "SELECT shardgate.distribute_table('numbered', 'id')").await;
    let own = admin.process_id().to_string();
    let texts = [
        "INSERT INTO numbered (pid) VALUES (pg_backend_pid() + $1)",
        "INSERT INTO numbered VALUES (nextval('numbered_id_seq'), pg_backend_pid() + $1)",
        "INSERT INTO numbered (pid) VALUES ($1 + pg_catalog.pg_backend_pid()) /* pg_stat_activity */",
    ];
    for text in texts {
        succeed(admin, &text.replace("$1", "0")).await;
        admin.unnamed(text, &["0"]).sync();
        let told = admin.transcript().await;
        assert!(told.contains("C(INSERT 0 1)"), "{text}: {told}");
        succeed(admin, &format!("PREPARE numbered (int) AS {text}")).await;
        succeed(admin, "EXECUTE numbered (0)").await;
        succeed(admin, "DEALLOCATE numbered").await;
    }
    // Only in a comment.
    admin.unnamed("INSERT INTO numbered (pid) VALUES ($1) /* pg_stat_activity */", &[&own]).sync();
    let told = admin.transcript().await;
    assert!(told.contains("C(INSERT 0 1)"), "{told}");
    let counted = admin.row("SELECT count(*), count(DISTINCT id), min(pid), max(pid) FROM numbered").await;
    assert_eq!(counted, ["10", "10", &own, &own]);
    // A process id is no number of a column.
    assert_eq!(admin.value("SELECT count(*) FROM currencies GROUP BY pg_backend_pid()").await, "2");
    assert_eq!(admin.value("SELECT 1 FROM currencies ORDER BY pg_backend_pid() LIMIT 1").await, "1");
    // One text for all executions.
    admin.parse("marked", "SELECT count(*) AS marked FROM pg_stat_activity WHERE pid = $1").sync();
    admin.transcript().await;
    for _ in 0..3 {
        succeed(admin, "SELECT 1").await;
        admin.bind("", "marked", &[&own]).execute("", 0).sync();
        assert_eq!(admin.transcript().await, "2 D(1) C(SELECT 1) Z(I)");
    }
    let kept = "/* shardgate: shard=shard0 */ SELECT count(*) <= 1 AND coalesce(bool_and(strpos(statement, 'ClientRead') = 0), true) \
        FROM pg_prepared_statements WHERE statement ~ 'AS marked .*jsonb'";
    assert_eq!(admin.value(kept).await, "t");
    succeed(admin, "DEALLOCATE marked").await;
    succeed(admin, "DROP TABLE numbered").await;
}

async fn names_of_users(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TEMPORARY TABLE pg_locks (a int)").await;
    assert_eq!(client.ask("SELECT * FROM pg_locks").await, "T(a) C(SELECT 0) Z(I)");
    assert!(client.ask("SELECT * FROM pg_catalog.pg_locks LIMIT 0").await.starts_with("T(locktype,"));
    let mut client = stage.client().await;
    let text = "SELECT (WITH pg_prepared_statements AS (SELECT 7 AS n) SELECT n FROM pg_prepared_statements), count(*) FROM pg_prepared_statements";
    assert_eq!(client.row(text).await, ["7", "0"]);
}

async fn activity(stage: &Stage, admin: &mut WireClient) {
    let mut plain = stage.plain_client().await;
    for relation in ["pg_stat_activity", "pg_locks", "pg_prepared_statements"] {
        let text = format!("SELECT * FROM {relation} LIMIT 0");
        assert_eq!(admin.ask(&text).await, plain.ask(&text).await);
    }
    let mut other = as_user(stage, "artist").await;
    let seen = format!(
        "SELECT concat_ws('|', usename, application_name, state, query, datname = current_database(), usesysid::regrole, client_addr, \
         backend_type, wait_event, xact_start IS NULL, query_start <= state_change, backend_start <= query_start) \
         FROM pg_stat_activity WHERE pid = {}",
        other.process_id()
    );
    let row =
        |state: &str, query: &str, more: &str| format!("artist|painter|{state}|{query}|t|artist|127.0.0.1|client backend|{more}");
    succeed(&mut other, "SELECT 'é'").await;
    assert_eq!(admin.value(&seen).await, row("idle", "SELECT 'é'", "ClientRead|t|t|t"));
    succeed(&mut other, "BEGIN").await;
    other.unnamed("SELECT $1::text", &["x"]).sync();
    other.transcript().await;
    assert_eq!(admin.value(&seen).await, row("idle in transaction", "SELECT $1::text", "ClientRead|f|t|t"));
    other.ask("SELECT wrong").await;
    assert!(admin.value(&seen).await.contains("|idle in transaction (aborted)|"));
    succeed(&mut other, "ROLLBACK; SET application_name = 'sculptor'").await;
    assert!(admin.value(&seen).await.starts_with("artist|sculptor|idle|"));
    let own = "SELECT state || query FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(admin.value(own).await, format!("active{own}"));
    // What PostgreSQL hides from who has no rights to the other role.
    let of_admin =
        format!("SELECT usename || query || coalesce(state, '-') FROM pg_stat_activity WHERE pid = {}", admin.process_id());
    assert_eq!(other.value(&of_admin).await, "postgres<insufficient privilege>-");
    // The shards' own.
    let pid = admin.process_id();
    let of_shard = format!("/* shardgate: shard=shard1 */ SELECT count(*) > 0, bool_or(pid = {pid}) FROM pg_stat_activity");
    assert_eq!(admin.row(&of_shard).await, ["t", "f"]);
    succeed(admin, "SET shardgate.shard = 'shard1'").await;
    assert_eq!(admin.value(&format!("SELECT pg_backend_pid() = {pid}")).await, "f");
    succeed(admin, "RESET shardgate.shard").await;
}

async fn every_form_of_statement(admin: &mut WireClient) {
    let own = admin.process_id().to_string();
    let text = "SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    for (before, ask) in [
        (
            "PREPARE by_sql (int) AS SELECT pid FROM pg_stat_activity WHERE pid = $1 AND pid = pg_backend_pid()",
            format!("EXECUTE by_sql ({own})"),
        ),
        ("CREATE TABLE seen AS SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()", "TABLE seen".to_owned()),
        (
            "INSERT INTO notes SELECT pid, query FROM pg_stat_activity WHERE pid = pg_backend_pid()",
            "SELECT id FROM notes".to_owned(),
        ),
        ("BEGIN; DECLARE c CURSOR FOR SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()", "FETCH c".to_owned()),
        ("COMMIT", format!("WITH w AS ({text}) TABLE w")),
        (
            "SELECT 1",
            format!("SELECT a.pid FROM pg_stat_activity a JOIN accounts ON id = {own} - a.pid + 1 WHERE a.pid = pg_backend_pid()"),
        ),
    ] {
        succeed(admin, before).await;
        assert_eq!(admin.value(&ask).await, own, "{before}: {ask}");
    }
    assert!(admin.ask(&format!("COPY ({text}) TO STDOUT")).await.contains("C(COPY 1)"));
    assert!(admin.ask(&format!("EXPLAIN {text}")).await.contains("Route: "));
    assert_eq!(admin.ask(&format!("SELECT 1; {text}")).await.matches(&own).count(), 1);
    admin.unnamed(&format!("EXECUTE by_sql ({own})"), &[]).sync();
    let told = admin.transcript().await;
    assert!(told.contains(&format!("D({own})")), "{told}");
    succeed(admin, "DROP TABLE seen; DELETE FROM notes; DEALLOCATE by_sql").await;
    // Read once, run often.
    admin.parse("named", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1").sync();
    admin.transcript().await;
    for pid in [own.as_str(), "1"] {
        admin.bind("", "named", &[pid]).describe(b'P', "").execute("", 0).sync();
        let wanted = i32::from(pid == own);
        assert_eq!(admin.transcript().await, format!("2 T(count) D({wanted}) C(SELECT 1) Z(I)"));
    }
    // An error is where the client has written.
    let text = "SELECT pg_backend_pid(), wrong FROM pg_stat_activity";
    admin.query(text);
    let position = admin.answers().await.iter().find(|message| message.tag == b'E').map(|error| error.field(b'P'));
    assert_eq!(position, Some((text.find("wrong").expect("there") + 1).to_string()));
}

async fn cancelling(stage: &Stage, admin: &mut WireClient) {
    let mut sleeper = stage.client().await;
    for text in [
        "SELECT pg_cancel_backend({pid})",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ '^SELECT pg_sleep' LIMIT 1",
    ] {
        sleeper.query("SELECT pg_sleep(60)");
        sleeper.flush().await;
        stage.until_active(0, "pg_sleep").await;
        let text = text.replace("{pid}", &sleeper.process_id().to_string());
        assert_eq!(admin.ask(&text).await, "T(pg_cancel_backend) D(t) C(SELECT 1) Z(I)");
        assert!(sleeper.transcript().await.contains("E(57014 "));
    }
    let own = "SELECT pg_cancel_backend(pg_backend_pid())";
    assert_eq!(admin.ask(own).await, "E(57014 canceling statement due to user request) Z(I)");
    for text in [
        "SELECT 1 FROM pg_stat_activity WHERE pg_cancel_backend(pid)",
        "SELECT pg_cancel_backend(a.id::int) FROM accounts a",
        "EXPLAIN ANALYZE SELECT pg_terminate_backend(5)",
        "SELECT * FROM pg_terminate_backend(5)",
    ] {
        assert!(admin.ask(text).await.starts_with("E(0A000 "), "{text}");
    }
}

async fn ending(stage: &Stage, admin: &mut WireClient) {
    let key = stage.key(1, 0);
    let mut idle = stage.client().await;
    succeed(&mut idle, &format!("BEGIN; UPDATE accounts SET balance = 0 WHERE id = {key}")).await;
    let pid = idle.process_id();
    let told = admin.ask(&format!("SELECT pg_terminate_backend({pid}, 5000) AS ended, 1")).await;
    assert_eq!(told, "T(ended,?column?) D(t,1) C(SELECT 1) Z(I)");
    is_ended(&mut idle).await;
    assert_eq!(admin.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")).await, "0");
    assert_eq!(admin.value(&format!("SELECT balance FROM accounts WHERE id = {key}")).await, "100");
    let told = admin.ask(&format!("SELECT pg_terminate_backend({pid})")).await;
    assert_eq!(
        told,
        format!("N(01000 PID {pid} is not a PostgreSQL backend process) T(pg_terminate_backend) D(f) C(SELECT 1) Z(I)")
    );
    assert!(admin.ask("SELECT pg_terminate_backend(NULL)").await.ends_with(" D(NULL) C(SELECT 1) Z(I)"));
    let mut sleeper = stage.client().await;
    sleeper.query("SELECT pg_sleep(60)");
    sleeper.flush().await;
    stage.until_active(0, "pg_sleep").await;
    admin
        .unnamed(
            "SELECT pg_terminate_backend(pid), query FROM pg_stat_activity WHERE pid = $1 AND pid <> pg_backend_pid()",
            &[&sleeper.process_id().to_string()],
        )
        .sync();
    assert!(admin.transcript().await.contains("D(t,SELECT pg_sleep(60))"));
    is_ended(&mut sleeper).await;
    let (mut one, mut two) = (as_user(stage, "artist").await, as_user(stage, "artist").await);
    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'artist'";
    assert_eq!(admin.value(all).await, "2");
    is_ended(&mut one).await;
    is_ended(&mut two).await;
    let mut own = stage.client().await;
    own.query("SELECT pg_terminate_backend(pg_backend_pid())");
    let told = own.rest().await;
    assert_eq!(
        told.iter().map(|message| message.describe()).collect::<Vec<_>>(),
        ["E(57P01 terminating connection due to administrator command)"]
    );
}

/// What keeps PostgreSQL from calling the function, and what it has to say against the statement.
async fn nobody_else_is_ended(stage: &Stage, admin: &mut WireClient) {
    let mut bystander = stage.client().await;
    succeed(&mut bystander, "BEGIN").await;
    let pid = bystander.process_id();
    for list in [
        "CASE WHEN state = 'none' THEN pg_terminate_backend(pid) END",
        "count(pg_terminate_backend(pid)) FILTER (WHERE state = 'none')",
        "pid <> pid AND pg_terminate_backend(pid)",
    ] {
        let told = admin.ask(&format!("SELECT {list} FROM pg_stat_activity")).await;
        assert!(told.starts_with("E(0A000 pg_terminate_backend() and pg_cancel_backend() are not supported here)"), "{told}");
    }
    for (list, code) in [
        ("pg_terminate_backend(pid), wrong", "42703"),
        ("1 / (pid - pid), pg_terminate_backend(pid)", "22012"),
        ("count(pg_terminate_backend(pid)), sum(1 / (pid - pid))", "22012"),
        ("pg_terminate_backend(pid::bigint)", "42883"),
    ] {
        let told = admin.ask(&format!("SELECT {list} FROM pg_stat_activity WHERE pid = {pid}")).await;
        assert!(told.starts_with(&format!("E({code} ")), "{list}: {told}");
    }
    for call in [format!("pg_terminate_backend({pid}, NULL)"), "pg_terminate_backend(NULL, 5)".to_owned()] {
        let told = admin.ask(&format!("SELECT {call}")).await;
        assert_eq!(told, "T(pg_terminate_backend) D(NULL) C(SELECT 1) Z(I)");
    }
    let none = format!("SELECT pg_terminate_backend(pid), generate_series(1, 0) FROM pg_stat_activity WHERE pid = {pid}");
    assert!(admin.ask(&none).await.ends_with(" C(SELECT 0) Z(I)"));
    let none = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {pid} LIMIT 0");
    assert!(admin.ask(&none).await.ends_with(" C(SELECT 0) Z(I)"));
    assert_eq!(bystander.ask("SELECT 1").await, "T(?column?) D(1) C(SELECT 1) Z(T)");
}

async fn rights(stage: &Stage) {
    let (mut reader, mut another, mut signaller) =
        (as_user(stage, "artist").await, as_user(stage, "artist").await, as_user(stage, "signaller").await);
    let superuser = stage.client().await;
    let denied = |told: String| told.starts_with("E(42501 permission denied to terminate process)");
    let end = |process: i32| format!("SELECT pg_terminate_backend({process})");
    assert!(denied(reader.ask(&end(superuser.process_id())).await));
    assert!(denied(reader.ask(&end(signaller.process_id())).await));
    assert!(denied(signaller.ask(&end(superuser.process_id())).await));
    assert!(
        reader
            .ask(&format!("SELECT pg_cancel_backend({})", signaller.process_id()))
            .await
            .starts_with("E(42501 permission denied to cancel query)")
    );
    assert!(reader.ask(&end(another.process_id())).await.contains("D(t)"));
    is_ended(&mut another).await;
    assert!(signaller.ask(&end(reader.process_id())).await.contains("D(t)"));
    is_ended(&mut reader).await;
}

async fn locks(stage: &Stage, admin: &mut WireClient) {
    let key = stage.key(1, 1);
    let (mut holder, mut waiter) = (stage.client().await, stage.client().await);
    succeed(&mut holder, &format!("BEGIN; UPDATE accounts SET balance = 1 WHERE id = {key}")).await;
    waiter.query(&format!("UPDATE accounts SET balance = 2 WHERE id = {key}"));
    waiter.flush().await;
    let (holds, waits) = (holder.process_id(), waiter.process_id());
    until(admin, &format!("SELECT pg_blocking_pids({waits})"), &format!("{{{holds}}}")).await;
    assert_eq!(admin.value(&format!("SELECT pg_blocking_pids({holds})")).await, "{}");
    let text = format!(
        "SELECT string_agg(DISTINCT pid || ' ' || mode || ' ' || (database = (SELECT oid FROM pg_database WHERE datname = current_database())), ',') \
         FROM pg_locks WHERE pid = {holds} AND relation = 'accounts'::regclass"
    );
    assert_eq!(admin.value(&text).await, format!("{holds} RowExclusiveLock true"));
    assert_eq!(admin.value(&format!("SELECT count(*) FROM pg_locks WHERE pid = {waits} AND NOT granted")).await, "1");
    succeed(&mut holder, "ROLLBACK").await;
    waiter.transcript().await;
    // In a transaction, its own.
    succeed(admin, &format!("BEGIN; LOCK TABLE notes; SELECT FROM accounts WHERE id = {key}")).await;
    let own = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'notes'::regclass AND mode = 'AccessExclusiveLock'";
    assert_eq!(admin.value(own).await, "1");
    assert_eq!(admin.value("SELECT pg_table_size('notes') >= 0").await, "t");
    succeed(admin, "ROLLBACK").await;
}

async fn prepared(stage: &Stage) {
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    let listed = "SELECT string_agg(concat_ws('|', name, statement, parameter_types, from_sql, prepare_time <= now()), ',' ORDER BY name) FROM pg_prepared_statements";
    assert_eq!(one.value(listed).await, "NULL");
    one.parse("by_protocol", "SELECT owner FROM accounts WHERE id = $1").sync();
    one.transcript().await;
    one.bind("", "by_protocol", &["1"]).execute("", 0).sync();
    one.transcript().await;
    succeed(&mut one, "PREPARE by_sql (text) AS SELECT $1 || 'x';").await;
    assert_eq!(
        one.value(listed).await,
        "by_protocol|SELECT owner FROM accounts WHERE id = $1|{bigint}|f|t,by_sql|PREPARE by_sql (text) AS SELECT $1 || 'x';|{text}|t|t"
    );
    // Another client of the same connections.
    assert_eq!(two.value(listed).await, "NULL");
    succeed(&mut one, "DEALLOCATE by_sql").await;
    assert_eq!(one.value("SELECT count(*) FROM pg_prepared_statements").await, "1");
    succeed(&mut one, "DEALLOCATE ALL").await;
    assert_eq!(one.value("SELECT count(*) FROM pg_prepared_statements").await, "0");
}

async fn sizes(stage: &Stage, admin: &mut WireClient) {
    for text in [
        "CREATE TABLE \"Big, one\" (id bigint PRIMARY KEY, x text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF \"Big, one\" FOR VALUES FROM (MINVALUE) TO (1000)",
        "CREATE TABLE high PARTITION OF \"Big, one\" FOR VALUES FROM (1000) TO (MAXVALUE)",
        "SELECT shardgate.distribute_table('\"Big, one\"', 'id')",
        "INSERT INTO \"Big, one\" SELECT g, repeat('x', 100) FROM generate_series(1, 2000) g",
        "CREATE INDEX of_owner ON accounts (owner)",
    ] {
        succeed(admin, text).await;
    }
    for expression in [
        "pg_total_relation_size('accounts')",
        "pg_table_size('low'::regclass)",
        "pg_indexes_size('high')",
        "pg_relation_size('of_owner')",
        "pg_relation_size('low', 'fsm')",
        "pg_total_relation_size((SELECT oid FROM pg_class WHERE relname = 'high'))",
        "sum(pg_table_size(oid)) FROM pg_class WHERE relname IN ('low', 'high', 'low_pkey')",
        "pg_table_size(oid) FROM pg_class WHERE relname = 'low' GROUP BY oid, pg_table_size(oid)",
        "pg_database_size(current_database())",
        "pg_database_size(oid) FROM pg_database WHERE datname = current_database()",
    ] {
        let text = format!("SELECT {expression}");
        let mut sum = 0;
        for shard in 0..2 {
            sum += admin.value(&format!("/* shardgate: shard=shard{shard} */ {text}")).await.parse::<i64>().expect("a size");
        }
        assert_eq!(admin.value(&text).await, sum.to_string(), "{text}");
    }
    assert!(admin.ask("SELECT pg_total_relation_size('low')").await.starts_with("T(pg_total_relation_size) "));
    // One copy, as one PostgreSQL has it.
    let copy = "SELECT pg_total_relation_size('currencies')";
    assert_eq!(admin.value(copy).await, admin.value(&format!("/* shardgate: shard=shard0 */ {copy}")).await);
    let size = admin.value("SELECT pg_size_pretty(pg_table_size('low'))").await;
    let listed = stage.proxy.psql("\\dt+ low");
    assert!(listed.contains(&size), "{size}: {listed}");
    assert!(stage.proxy.psql("\\di+ low_pkey").contains("low_pkey"));
    assert!(stage.proxy.psql("\\l+").contains("shard0"));
    assert!(admin.ask("SELECT pg_table_size('nothing')").await.contains("E(42P01 "));
}

/// No wait for a lock without an end, and none for that of another table.
async fn sizes_beside_locks(stage: &Stage, admin: &mut WireClient) {
    let holder = stage.cluster.connect_shard(1).await;
    holder.batch_execute("BEGIN; LOCK TABLE accounts").await.expect("a lock");
    succeed(admin, "SET lock_timeout = '50ms'").await;
    for text in ["SELECT pg_table_size('accounts')", "SELECT sum(pg_table_size(oid)) FROM pg_class WHERE relname = 'low'"] {
        let told = admin.ask(text).await;
        assert!(told.starts_with("E(55P03 the size of a table cannot be read while the table is locked)"), "{text}: {told}");
    }
    succeed(admin, "SELECT pg_table_size('low'), pg_indexes_size('high'), pg_relation_size('low_pkey')").await;
    holder.batch_execute("ROLLBACK").await.expect("unlocked");
    // In a transaction its own limit counts again afterwards.
    succeed(admin, "BEGIN; SET LOCAL lock_timeout = '7s'; SELECT FROM accounts; SELECT pg_table_size('accounts')").await;
    assert_eq!(admin.value("SELECT current_setting('lock_timeout')").await, "7s");
    let there = "/* shardgate: shard=shard1 */ SELECT current_setting('lock_timeout')";
    assert_eq!(admin.value(there).await, "7s");
    succeed(admin, "ROLLBACK; RESET lock_timeout").await;
}

async fn beside_another_proxy(stage: &Stage, admin: &mut WireClient) {
    let other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut there = WireClient::connect(other.address()).await;
    let told = admin.ask(&format!("SELECT pg_terminate_backend({})", there.process_id())).await;
    assert!(told.starts_with(&format!("E(0A000 process {} is not a session of this proxy)", there.process_id())), "{told}");
    let told = admin.ask("SELECT count(*) > 0 FROM pg_stat_activity").await;
    assert!(told.starts_with("N(01000 pg_stat_activity has the sessions of this proxy only) "), "{told}");
    succeed(&mut there, "SELECT 1").await;
}
