//! What the client sets or resets itself over what a function has set before, in the same transaction and in the next one: the last
//! one counts on every shard, as on one server.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};
use crate::transactions::Points;

const FUNCTIONS: &[&str] = &[
    "CREATE FUNCTION set_tenant(t text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', t, false); END $$",
    "CREATE FUNCTION set_memory(t text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('work_mem', t, false); END $$",
    "CREATE FUNCTION be_lodger() RETURNS void LANGUAGE plpgsql AS $$ BEGIN SET ROLE lodger; END $$",
    "CREATE ROLE lodger",
    "GRANT SELECT ON accounts TO lodger",
];

const TENANT: &str = "SET app.tenant = '0'; ";

/// Tenant, memory and role on each of three shards, as one.
async fn on_each(stage: &Stage, client: &mut WireClient) -> String {
    let mut found = Vec::new();
    for shard in 0..3 {
        let key = stage.key(shard, 0);
        found.push(client.value(&format!("SELECT format('%s %s %s', current_setting('app.tenant', true), current_setting('work_mem'), current_user) FROM accounts WHERE id = {key}")).await);
    }
    assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
    found.swap_remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_set_over_what_a_function_has_set_counts() {
    for mode in ["transaction", "session"] {
        let settings = vec![("pool.mode", mode.to_owned()), ("pool.size_per_shard", "2".to_owned())];
        let stage = Stage::start(3, ProxyOptions { settings, ..ProxyOptions::default() }).await;
        let mut client = stage.client().await;
        for function in FUNCTIONS {
            succeed(&mut client, function).await;
        }
        let user = client.value("SELECT current_user").await;
        for (script, wanted) in [
            ("BEGIN; SELECT set_tenant('5'); RESET app.tenant; COMMIT", " 4MB USER"),
            ("BEGIN; SELECT set_tenant('5'); RESET ALL; COMMIT", " 4MB USER"),
            ("SELECT set_tenant('5'); RESET app.tenant", " 4MB USER"),
            ("SELECT set_tenant('5'); RESET ALL", " 4MB USER"),
            ("BEGIN; SELECT set_tenant('5'); SET app.tenant TO DEFAULT; COMMIT", " 4MB USER"),
            ("BEGIN; SELECT be_lodger(); RESET ROLE; COMMIT", " 4MB USER"),
            ("BEGIN; SELECT set_memory('5MB'); RESET work_mem; COMMIT", " 4MB USER"),
            ("BEGIN; SELECT set_memory('5MB'); SET work_mem = '6MB'; COMMIT", " 6MB USER"),
            (
                "SET app.tenant = '0'; BEGIN; SELECT set_tenant('5'); SELECT set_config('app.tenant', '6', false); COMMIT",
                "6 4MB USER",
            ),
            ("BEGIN; SELECT set_tenant('5'); SAVEPOINT a; SET app.tenant = '6'; ROLLBACK TO a; COMMIT", "5 4MB USER"),
            ("BEGIN; SELECT set_tenant('5'); SET LOCAL app.tenant = '6'; COMMIT", "5 4MB USER"),
            ("SET app.tenant = '0'; BEGIN; SELECT set_tenant('5'); RESET app.tenant; ROLLBACK", "0 4MB USER"),
            ("SET app.tenant = '0'; BEGIN; SELECT set_tenant('5'), be_lodger(); COMMIT AND CHAIN", "5 4MB lodger"),
            ("SET app.tenant = '0'; BEGIN; SELECT set_tenant('5'), be_lodger(); ROLLBACK AND CHAIN", "0 4MB USER"),
            (
                "SET app.tenant = '0'; BEGIN; SELECT set_tenant('5'); COMMIT AND CHAIN; SELECT set_tenant('6'); ROLLBACK AND CHAIN",
                "5 4MB USER",
            ),
            ("SET app.tenant = '0'; BEGIN; DECLARE c CURSOR FOR SELECT set_tenant('7'); FETCH c", "7 4MB USER"),
            ("SET app.tenant = '0'; BEGIN; DECLARE c CURSOR FOR SELECT set_tenant('7'); MOVE c", "7 4MB USER"),
            (
                "SET app.tenant = '0'; BEGIN; DECLARE c CURSOR FOR SELECT set_tenant(n::text) FROM generate_series(7, 8) n; FETCH c; SELECT 1; FETCH c",
                "8 4MB USER",
            ),
        ] {
            let mut one = stage.client().await;
            // What stands before BEGIN in its message is of its transaction.
            let begun = script.strip_prefix(TENANT).unwrap_or(script);
            if begun != script {
                succeed(&mut one, TENANT).await;
            }
            let told = one.ask(begun).await;
            assert!(!told.contains("E("), "{mode}: {script}: {told}");
            assert_eq!(on_each(&stage, &mut one).await, wanted.replace("USER", &user), "{mode}: {script}");
            // And after the transaction, where it is still open.
            if told.ends_with("Z(T)") {
                succeed(&mut one, "COMMIT").await;
                assert_eq!(on_each(&stage, &mut one).await, wanted.replace("USER", &user), "{mode}: {script}; COMMIT");
            }
        }
        where_functions_set_it_last(&stage, mode).await;
        in_pipelines(&stage, mode, &user).await;
        blocks_that_fail_at_once(&stage).await;
        stage.assert_log_is_clean();
    }
}

/// Functions on several shards: the one that ran last counts, not the shard that joined last.
async fn where_functions_set_it_last(stage: &Stage, mode: &str) {
    let keys: Vec<i64> = (0..3).map(|shard| stage.key(shard, 0)).collect();
    let on = |shard: usize, value: &str| format!("SELECT set_tenant('{value}') FROM accounts WHERE id = {}", keys[shard]);
    for (script, wanted) in [
        (vec![on(1, "a"), on(2, "b"), on(1, "c")], "c"),
        (vec![on(2, "a"), on(0, "b"), on(1, "c"), on(0, "d")], "d"),
        (vec![on(1, "a"), on(2, "b"), on(1, "0")], "0"),
        (vec![on(1, "a"), "SAVEPOINT s".to_owned(), on(2, "b"), "ROLLBACK TO s".to_owned()], "a"),
    ] {
        let mut one = stage.client().await;
        succeed(&mut one, TENANT).await;
        succeed(&mut one, "BEGIN").await;
        for statement in &script {
            succeed(&mut one, statement).await;
        }
        succeed(&mut one, "COMMIT").await;
        assert!(on_each(stage, &mut one).await.starts_with(&format!("{wanted} ")), "{mode}: {script:?}");
    }
}

async fn in_pipelines(stage: &Stage, mode: &str, user: &str) {
    let read = format!("SELECT 1 FROM accounts WHERE id = {}", stage.key(2, 0));
    for (statements, wanted) in [
        (vec!["SELECT set_tenant('5')", "RESET app.tenant"], " 4MB USER"),
        (vec!["SELECT set_tenant('5')", "RESET ALL"], " 4MB USER"),
        (vec!["SELECT set_tenant('5')", "SELECT set_config('app.tenant', '6', false)"], "6 4MB USER"),
        (vec!["SELECT set_memory('5MB')", &read], " 5MB USER"),
        (vec!["SELECT set_memory('5MB')", &read, "RESET work_mem"], " 4MB USER"),
        (vec!["SELECT set_tenant('5')", &read], "5 4MB USER"),
        (vec!["BEGIN", "SELECT set_tenant('5'), be_lodger()", "COMMIT AND CHAIN", &read, "COMMIT"], "5 4MB lodger"),
    ] {
        let mut one = stage.client().await;
        for statement in &statements {
            one.unnamed(statement, &[]);
        }
        one.sync();
        let told = one.transcript().await;
        assert!(!told.contains("E("), "{mode}: {statements:?}: {told}");
        assert_eq!(on_each(stage, &mut one).await, wanted.replace("USER", user), "{mode}: {statements:?}");
    }
}

/// A BEGIN that fails in a message of several statements leaves no block behind.
async fn blocks_that_fail_at_once(stage: &Stage) {
    let mut client = stage.client().await;
    let told = client.ask("SELECT 1; BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    assert!(told.contains("E(25001 ") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(client.value("SELECT 2").await, "2");
    client.unnamed("SELECT 1", &[]).unnamed("BEGIN ISOLATION LEVEL SERIALIZABLE", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(25001 ") && told.ends_with("Z(I)"), "{told}");
    assert!(client.ask("BEGIN; SELECT 1; BEGIN ISOLATION LEVEL SERIALIZABLE").await.ends_with("Z(E)"));
    succeed(&mut client, "ROLLBACK").await;
}

/// Who is killed where a connection is told, before the COMMIT, what was set over what a function had set there.
#[derive(Clone, Copy, Debug)]
enum Killed {
    Proxy,
    Shard,
    Client,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_while_a_connection_is_told_leaves_nothing() {
    let points = Points::new();
    let settings = vec![("pool.size_per_shard", "2".to_owned()), ("pool.late_joiner_share", "0".to_owned())];
    let options = || ProxyOptions { settings: settings.clone(), ..points.options() };
    let mut stage = Stage::start(3, options()).await;
    let mut client = stage.client().await;
    for function in FUNCTIONS {
        succeed(&mut client, function).await;
    }
    drop(client);
    let mut balance: i32 = 900;
    for killed in [Killed::Proxy, Killed::Shard, Killed::Client] {
        for point in ["before_set_over", "after_set_over"] {
            balance += 1;
            let mut one = stage.client().await;
            succeed(&mut one, TENANT).await;
            succeed(&mut one, "BEGIN").await;
            for shard in 0..3 {
                succeed(&mut one, &format!("UPDATE accounts SET balance = {balance} WHERE id = {}", stage.key(shard, 0))).await;
            }
            succeed(&mut one, "SELECT set_tenant('5'), be_lodger()").await;
            succeed(&mut one, "SET app.tenant = '6'; RESET ROLE").await;
            points.arm(point, if matches!(killed, Killed::Proxy) { "abort" } else { "hold" });
            one.query("COMMIT");
            one.flush().await;
            let wanted = kill(killed, &mut stage, one, (&points, point), &options).await;
            assert_eq!(until_settled(&stage, balance).await, wanted, "{killed:?} at {point}");
            // The next clients have all connections of the pools.
            let mut next = [stage.client().await, stage.client().await];
            for next in &mut next {
                succeed(next, "BEGIN").await;
                for shard in 0..3 {
                    let state = "SELECT format('%s %s', coalesce(current_setting('app.tenant', true), 'null'), current_user = session_user)";
                    let state = next.value(&format!("{state} FROM accounts WHERE id = {}", stage.key(shard, 0))).await;
                    assert_eq!(state, "null t", "{killed:?} at {point}");
                }
            }
        }
    }
    stage.assert_log_is_clean();
}

/// On how many shards the transaction is to be there afterwards.
async fn kill(
    killed: Killed,
    stage: &mut Stage,
    mut one: WireClient,
    (points, point): (&Points, &str),
    options: &dyn Fn() -> ProxyOptions,
) -> usize {
    match killed {
        Killed::Proxy => {
            assert!(one.rest().await.is_empty(), "killed at {point}");
            points.release(point);
            stage.proxy = Proxy::start(&stage.cluster, options());
            0
        }
        Killed::Shard => {
            points.until_reached(point).await;
            let shard = stage.cluster.connect_shard(0).await;
            let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                       WHERE datname = current_database() AND state = 'idle in transaction'";
            assert_eq!(shard.query(end, &[]).await.expect("terminated").len(), 1, "at {point}");
            points.release(point);
            let told = one.transcript().await;
            assert!(told.starts_with("E(08006 ") && told.ends_with("Z(I)"), "{point}: {told}");
            // As before the transaction.
            assert_eq!(on_each(stage, &mut one).await, "0 4MB postgres", "{point}");
            0
        }
        Killed::Client => {
            points.until_reached(point).await;
            drop(one);
            points.release(point);
            3
        }
    }
}

/// On how many shards this balance is, once no transaction is open or prepared.
async fn until_settled(stage: &Stage, balance: i32) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut found = 0;
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let open = "SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                    WHERE d.datname = current_database() AND l.relation = 'accounts'::regclass AND l.mode = 'RowExclusiveLock'";
        while !direct.query(open, &[]).await.expect("locks").is_empty() {
            assert!(Instant::now() < deadline, "a transaction stays open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        found += direct.query("SELECT FROM accounts WHERE balance = $1", &[&balance]).await.expect("rows").len();
    }
    found
}
