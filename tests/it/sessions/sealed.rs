//! What a client sets inside of functions, triggers and the like is its own: it follows the client to every shard, as PostgreSQL
//! keeps it for the session, and no other client ever meets it.
//!
//! One client at a time on pools of one connection (and one for those that hold another shard's), so that the next client gets the
//! connection of the last one.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};
use crate::transactions::Points;

/// A cluster in which nothing is distributed.
struct Plain {
    cluster: Cluster,
    proxy: Proxy,
}

impl Plain {
    async fn start(settings: &[(&'static str, &str)]) -> Self {
        Self::start_with(settings, ProxyOptions::default()).await
    }

    async fn start_with(settings: &[(&'static str, &str)], options: ProxyOptions) -> Self {
        let size = if settings.iter().any(|(name, _)| *name == SIZE) { None } else { Some((SIZE, "2".to_owned())) };
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).chain(size).collect();
        let cluster = Cluster::start(1).await;
        let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..options });
        let plain = Self { cluster, proxy };
        let mut client = plain.client().await;
        // Over several shards a function that runs any text is refused: it may change the schema.
        let url = plain.cluster.public_url(0);
        succeed(&mut client, &format!("SELECT shardgate.add_shard('shard0', '{url}')")).await;
        for statement in FUNCTIONS {
            succeed(&mut client, statement).await;
        }
        plain
    }

    async fn client(&self) -> WireClient {
        WireClient::connect(self.proxy.address()).await
    }
}

const SIZE: &str = "pool.size_per_shard";
const FUNCTIONS: &[&str] = &[
    "CREATE TABLE notes (id int, text text)",
    "CREATE TABLE watched (id int)",
    "CREATE SCHEMA other",
    "CREATE TABLE public.w (x text)",
    "CREATE TABLE other.w (x text)",
    "INSERT INTO public.w VALUES ('public')",
    "INSERT INTO other.w VALUES ('other')",
    "CREATE FUNCTION set_tenant(t int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', t::text, false); END $$",
    "CREATE FUNCTION set_path(p text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('search_path', p, false) $$",
    "CREATE FUNCTION set_path_dynamic(p text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SET search_path = ' || p; END $$",
    "CREATE FUNCTION do_text(t text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE t; END $$",
    "CREATE FUNCTION do_part(t text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT ' || t; END $$",
    "CREATE FUNCTION set_named(k text, v text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config(k, v, false); END $$",
    "CREATE FUNCTION set_of_app(k text, v text) RETURNS void LANGUAGE sql AS $$ SELECT set_config('app.' || k, v, false) $$",
    "CREATE FUNCTION set_made(k text, v text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SET %s = %L', k, v); END $$",
    "CREATE TABLE jobs (id int, q text)",
    "INSERT INTO jobs VALUES (1, 'SET app.tenant = 5'), (2, 'SET search_path = other, public'), (3, 'SELECT pg_advisory_lock(77)'), \
     (4, 'CREATE TEMP TABLE notes (single text)'), (5, 'DEALLOCATE ALL')",
    "CREATE TABLE parts (id int, q text)",
    "INSERT INTO parts VALUES (1, 'set_config(''work_mem'', ''9MB'', false)'), (2, 'set_config(''search_path'', ''evil, pg_catalog'', false)'), \
     (3, 'pg_advisory_lock(77)')",
    "CREATE FUNCTION take_lock(k int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(k); END $$",
    "CREATE FUNCTION make_table() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE notes (single text); END $$",
    "CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET work_mem = '9MB'; RETURN NEW; END $$",
    "CREATE TRIGGER watch BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION watch()",
    "CREATE PROCEDURE set_and_commit() LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', '7', false); COMMIT; END $$",
    "CREATE FUNCTION pure(x int) RETURNS int LANGUAGE sql AS $$ SELECT x + 1 $$",
    "CREATE FUNCTION with_clause() RETURNS int LANGUAGE plpgsql SET app.named = 'x' AS $$ BEGIN RETURN 1; END $$",
    "CREATE TABLE clausal (id int, n int DEFAULT with_clause())",
    "CREATE FUNCTION set_locally(k text, v text) RETURNS text LANGUAGE sql AS $$ SELECT set_config(k, v, true) $$",
    "CREATE FUNCTION do_call(f text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT %I()', f); END $$",
    "CREATE FUNCTION do_rows() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r record; \
     BEGIN FOR r IN SELECT q FROM parts WHERE id = 4 LOOP EXECUTE 'SELECT ' || r.q; END LOOP; END $$",
    "INSERT INTO parts VALUES (4, 'set_config(''app.named'', ''x'', true)')",
    "CREATE FUNCTION unchanging(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM set_tenant(x); PERFORM take_lock(77); RETURN x; END $$",
    "CREATE TABLE parted (a int) PARTITION BY RANGE (unchanging(a))",
    "CREATE TABLE parted_rest PARTITION OF parted DEFAULT",
    "CREATE VIEW other_path AS SELECT set_path('other, public')",
    "CREATE FUNCTION go_other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_path('other, public'); RETURN NEW; END $$",
];

/// Each leaves the name of a setting on its connection, which has an empty value from then on, and not NULL.
const NAMING: &[&str] = &[
    "SELECT with_clause()",
    "INSERT INTO clausal VALUES (1)",
    "DO $$ BEGIN CREATE OR REPLACE FUNCTION made() RETURNS int LANGUAGE sql SET app.named = 'x' AS 'SELECT 1'; END $$",
    "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE FUNCTION made() RETURNS int LANGUAGE sql SET app.named = ''x'' AS ''SELECT 1'''; END $$",
    "SELECT set_locally('app.named', 'x')",
    "SELECT set_locally('app.' || 'left', 'x')",
    "SELECT do_call('with_clause')",
    "SELECT do_rows()",
    "SELECT do_part('set_config(''app.named'', ''x'', true)')",
    "EXPLAIN ANALYZE SELECT set_locally('app.named', 'x')",
];

/// A session that keeps its connection asks about settings on another one.
fn in_mode(mode: &str) -> [(&'static str, &str); 2] {
    [("pool.mode", mode), (SIZE, if mode == "session" { "4" } else { "2" })]
}

/// Each leaves something behind in PostgreSQL, for its own session.
const LEAVING: &[&str] = &[
    "SELECT set_tenant(5)",
    "SELECT set_path('other, public')",
    "SELECT set_path_dynamic('other, public')",
    "SELECT do_text('SET work_mem = ''9MB''')",
    "SELECT do_text('SET default_transaction_read_only = on')",
    "SELECT do_text('SET ROLE reader')",
    "SELECT do_text('SET SESSION AUTHORIZATION reader')",
    "SELECT do_text('SET DateStyle = ''German''')",
    "SELECT do_text('SET statement_timeout = ''900ms''')",
    "SELECT do_text('SET standard_conforming_strings = off')",
    "SELECT do_text('SET session_replication_role = replica')",
    "SELECT do_text('LISTEN somewhere')",
    "SELECT do_text('PREPARE mine AS SELECT 1')",
    "SELECT do_text('SET seed = 0.5')",
    "SELECT do_text('DEALLOCATE ALL')",
    "SELECT do_text('SELECT pg_advisory_lock(77)')",
    "SELECT do_text('CREATE TEMP TABLE notes (single text)')",
    "SELECT take_lock(77)",
    "SELECT set_named('app.tenant', '5')",
    "SELECT set_named('app.' || 'tenant', '5')",
    "SELECT set_of_app('tenant', '5')",
    "SELECT set_made('app.tenant', '5')",
    "SELECT do_text(q) FROM jobs WHERE id = 1",
    "SELECT do_text(q) FROM jobs WHERE id = 2",
    "SELECT do_text(q) FROM jobs WHERE id = 3",
    "SELECT do_text(q) FROM jobs WHERE id = 4",
    "SELECT do_text(q) FROM jobs WHERE id = 5",
    "SELECT do_part(q) FROM parts WHERE id = 1",
    "SELECT make_table()",
    "INSERT INTO watched VALUES (1)",
    "CALL set_and_commit()",
    "DO $$ BEGIN SET work_mem = '9MB'; END $$",
    "DO $$ BEGIN EXECUTE 'SET work_mem = ''9MB'''; END $$",
    "DO $$ BEGIN PERFORM set_config('search_path', 'other, public', false); END $$",
    "EXPLAIN ANALYZE SELECT set_path('other, public')",
    "COPY (SELECT set_path('other, public')) TO STDOUT",
    "UPDATE pg_settings SET setting = '9216' WHERE name = 'work_mem'",
    "COPY watched FROM STDIN WHERE set_tenant(id) = '5'",
    "COPY notes (id) FROM STDIN WHERE unchanging(id) = 5",
    "INSERT INTO parted VALUES (5)",
    "SELECT table_to_xml('other_path', true, false, '') IS NULL",
];

/// The state of the connection that a new client gets, in one row: as its server sees it.
const STATE: &str = "/* shardgate: shard=shard0 */ SELECT concat_ws('|', current_setting('work_mem'), current_setting('search_path'), current_setting('role'), \
    session_user, current_setting('datestyle'), current_setting('statement_timeout'), current_setting('standard_conforming_strings'), \
    current_setting('session_replication_role'), current_setting('default_transaction_read_only'), \
    coalesce(nullif(current_setting('app.tenant', true), ''), 'none'), \
    (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements WHERE from_sql), \
    (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()), \
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_function_leaves_is_not_met_by_the_next_client() {
    for mode in ["transaction", "session"] {
        let plain = Plain::start(&in_mode(mode)).await;
        let mut client = plain.client().await;
        succeed(&mut client, "DO $$ BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$").await;
        let clean = client.value(STATE).await;
        drop(client);
        for leaving in LEAVING {
            let ends_transactions = leaving.starts_with("CALL");
            for is_block in [false, true].into_iter().filter(|is_block| !(*is_block && ends_transactions)) {
                let mut leaver = plain.client().await;
                if is_block {
                    succeed(&mut leaver, "BEGIN").await;
                }
                leaver.query(leaving);
                if leaving.contains("FROM STDIN") {
                    leaver.put(b'd', b"1\n").put(b'c', b"");
                }
                let told = leaver.transcript().await;
                assert!(!told.contains("E("), "{leaving}: {told}");
                if is_block {
                    succeed(&mut leaver, "COMMIT").await;
                }
                drop(leaver);
                let mut next = plain.client().await;
                assert_eq!(next.value(STATE).await, clean, "{mode}: after {leaving}");
                // What others have prepared is there, or is prepared again.
                next.unnamed("SELECT count(*) FROM notes", &[]).sync();
                let told = next.transcript().await;
                assert!(told.contains("D(0)"), "{mode}: after {leaving}: {told}");
            }
        }
        for naming in NAMING {
            for is_block in [false, true] {
                let mut leaver = plain.client().await;
                let text = if is_block { format!("BEGIN; {naming}; COMMIT") } else { (*naming).to_owned() };
                let told = leaver.ask(&text).await;
                assert!(!told.contains("E("), "{mode}: {text}: {told}");
                drop(leaver);
                let left = plain.client().await.value("SELECT coalesce(current_setting('app.named', true), 'null')").await;
                assert_eq!(left, "null", "{mode}: after {text}");
            }
        }
        until_no_lock_is_held(&plain.cluster).await;
        let log = plain.proxy.log();
        assert!(!log.contains("panicked") && !log.contains(" ERROR "), "{log}");
    }
}

/// Locks of a client that has gone are given back without anybody asking for its connection.
async fn until_no_lock_is_held(cluster: &Cluster) {
    let shard = cluster.connect_shard(0).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !shard.query("SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 77", &[]).await.expect("locks").is_empty() {
        assert!(Instant::now() < deadline, "a lock of a client that has gone is held");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Where a client beside it has its statements on the same connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_beside_it_does_not_see_what_a_function_sets() {
    let plain = Plain::start(&[(SIZE, "3")]).await;
    let (mut setter, mut other) = (plain.client().await, plain.client().await);
    for statement in ["SELECT set_tenant(5)", "SELECT set_path('other, public')", "SELECT do_text('SET work_mem = ''9MB''')"] {
        succeed(&mut setter, statement).await;
        assert_eq!(other.value("SELECT coalesce(nullif(current_setting('app.tenant', true), ''), 'none')").await, "none");
        assert_eq!(other.value("SELECT x FROM w").await, "public");
        assert_eq!(other.value("SHOW work_mem").await, "4MB");
        succeed(&mut other, "SELECT set_tenant(6)").await;
        assert_eq!(setter.value("SELECT current_setting('app.tenant')").await, "5");
        succeed(&mut other, "RESET ALL").await;
    }
    assert_eq!(setter.value("SELECT x FROM w").await, "other");
    assert_eq!(setter.value("SHOW work_mem").await, "9MB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_function_sets_is_the_sessions_by_postgresqls_rule() {
    for mode in ["transaction", "session"] {
        let plain = Plain::start(&in_mode(mode)).await;
        let mut client = plain.client().await;
        let tenant = "SELECT coalesce(current_setting('app.tenant', true), 'null')";
        succeed(&mut client, "SELECT set_tenant(5)").await;
        assert_eq!(client.value(tenant).await, "5", "{mode}");
        for (end, expected) in [("ROLLBACK", "5"), ("COMMIT", "6")] {
            succeed(&mut client, "BEGIN").await;
            succeed(&mut client, "SELECT set_tenant(6)").await;
            assert_eq!(client.value(tenant).await, "6", "{mode}");
            succeed(&mut client, end).await;
            assert_eq!(client.value(tenant).await, expected, "{mode}: {end}");
        }
        for statement in ["BEGIN", "SAVEPOINT a", "SELECT set_tenant(7)", "ROLLBACK TO a", "COMMIT"] {
            succeed(&mut client, statement).await;
        }
        assert_eq!(client.value(tenant).await, "6", "{mode}");
        // A second SET of the same value is a change where a function has set another one since.
        succeed(&mut client, "SET search_path = public").await;
        for call in [
            "SELECT set_path('other, public')",
            "SELECT set_path_dynamic('other, public')",
            "SELECT do_text('SET search_path = other, public')",
        ] {
            succeed(&mut client, call).await;
            assert_eq!(client.value("SELECT x FROM w").await, "other", "{mode}: {call}");
            succeed(&mut client, "SET search_path = public").await;
            assert_eq!(client.value("SELECT x FROM w").await, "public", "{mode}: {call}");
        }
        // The same in one pipeline.
        client.unnamed("SELECT set_path('other, public')", &[]).unnamed("SELECT x FROM w", &[]).sync();
        let told = client.transcript().await;
        assert!(told.contains("D(other)") && !told.contains("D(public)"), "{mode}: {told}");
        what_a_function_is_given_counts(&mut client, mode).await;
        succeed(&mut client, "SELECT with_clause()").await;
        assert_eq!(client.value("SELECT current_setting('app.named', true)").await, "", "{mode}");
        what_planning_evaluates_counts(&mut client, mode).await;
        settings_are_read_back_under_any_limit(&mut client, mode).await;
        settings_that_cannot_be_read_end_the_session(&plain, mode).await;
        // A prepared statement, and a whole text of several.
        client.unnamed("SELECT set_tenant($1)", &["8"]).sync();
        assert!(!client.transcript().await.contains("E("));
        assert_eq!(client.value(tenant).await, "8", "{mode}");
        let told = client.ask("SELECT set_path('public'); SELECT x FROM w; SELECT set_tenant(9)").await;
        assert!(told.contains("D(public)"), "{mode}: {told}");
        assert_eq!(client.value(tenant).await, "9", "{mode}");
        // It keeps its connection from here on.
        what_temporary_objects_set_counts(&mut client, mode).await;
    }
}

/// PostgreSQL calls a function that is said to be immutable when it plans, also where nothing is run.
async fn what_planning_evaluates_counts(client: &mut WireClient, mode: &str) {
    let tenant = "SELECT coalesce(current_setting('app.tenant', true), 'null')";
    for (number, explain) in ["EXPLAIN SELECT unchanging(41)", "EXPLAIN (COSTS off) SELECT id FROM notes WHERE id = unchanging(42)"]
        .into_iter()
        .enumerate()
    {
        succeed(client, explain).await;
        assert_eq!(client.value("SELECT pg_advisory_unlock(77)").await, "t", "{mode}: {explain}");
        assert_eq!(client.value("SELECT pg_advisory_unlock(77)").await, "f", "{mode}: {explain}");
        assert_eq!(client.value(tenant).await, (41 + number).to_string(), "{mode}: {explain}");
    }
    // Bind plans.
    client.parse("", "SELECT unchanging(43)").bind("", "", &[]).sync();
    let told = client.transcript().await;
    assert!(!told.contains("E("), "{mode}: {told}");
    assert_eq!(client.value("SELECT pg_advisory_unlock(77)").await, "t", "{mode}");
    assert_eq!(client.value(tenant).await, "43", "{mode}");
}

/// By what only the session's own connection knows of.
async fn what_temporary_objects_set_counts(client: &mut WireClient, mode: &str) {
    succeed(client, "SET search_path = public").await;
    for (create, call) in [
        ("CREATE TEMP TABLE own_default (a text DEFAULT set_path('other, public'))", "INSERT INTO own_default DEFAULT VALUES"),
        (
            "CREATE TEMP VIEW own_view AS SELECT set_config('search_path', 'other, public', false)",
            "SELECT * FROM own_view; SELECT 1",
        ),
        (
            "CREATE TEMP TABLE own_trigger (id int); \
             CREATE TRIGGER go BEFORE INSERT ON own_trigger FOR EACH ROW EXECUTE FUNCTION go_other()",
            "INSERT INTO own_trigger VALUES (1)",
        ),
    ] {
        succeed(client, create).await;
        succeed(client, call).await;
        assert_eq!(client.value("SELECT x FROM w").await, "other", "{mode}: {call}");
        succeed(client, "SET search_path = public").await;
        assert_eq!(client.value("SELECT x FROM w").await, "public", "{mode}: {call}");
    }
}

/// A connection on which a statement did not come to set a name does not know it: whoever has set it elsewhere is told so there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_was_not_set_is_not_taken_for_known() {
    let plain = Plain::start(&[("pool.late_joiner_share", "0")]).await;
    let left = "SELECT coalesce(current_setting('app.tenant', true), 'null')";
    let mut sessions = [plain.client().await, plain.client().await];
    for session in &mut sessions {
        for statement in ["BEGIN", "SELECT set_tenant(5)", "ROLLBACK"] {
            succeed(session, statement).await;
        }
    }
    for not_set in ["SELECT CASE WHEN current_user = 'nobody' THEN set_tenant(6) END", "SELECT set_tenant(id) FROM watched"] {
        let mut other = plain.client().await;
        succeed(&mut other, not_set).await;
        assert_eq!(other.value(left).await, "null", "{not_set}");
        // Both connections, of which one has served the other client.
        for session in &mut sessions {
            succeed(session, "BEGIN").await;
            assert_eq!(session.value(left).await, "", "{not_set}");
        }
        for session in &mut sessions {
            succeed(session, "COMMIT").await;
        }
    }
}

/// A limit of a millisecond ends what reads all settings, and a statement of the client's now and then.
async fn settings_are_read_back_under_any_limit(client: &mut WireClient, mode: &str) {
    succeed(client, "SELECT do_text('SET statement_timeout = ''1ms''')").await;
    for (statement, expected) in [("SHOW statement_timeout", "D(1ms)"), ("SET statement_timeout = 0", "C(SET)")] {
        let mut told = client.ask(statement).await;
        for _ in 0..100 {
            if !told.starts_with("E(57014 ") {
                break;
            }
            told = client.ask(statement).await;
        }
        assert!(told.contains(expected), "{mode}: {statement}: {told}");
    }
}

/// What they are nobody knows then.
async fn settings_that_cannot_be_read_end_the_session(plain: &Plain, mode: &str) {
    let shard = plain.cluster.connect_shard(0).await;
    for statement in [
        "DO $$ BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "REVOKE SELECT ON pg_catalog.pg_settings FROM PUBLIC",
    ] {
        shard.batch_execute(statement).await.expect("done");
    }
    let mut client = plain.client().await;
    let told = client.ask("SELECT do_text('SET ROLE reader')").await;
    assert!(told.contains("C(SELECT 1)") && told.contains("E(08006 the settings that a function has changed"), "{mode}: {told}");
    assert_eq!(plain.client().await.value("SELECT current_user").await, "postgres", "{mode}");
    shard.batch_execute("GRANT SELECT ON pg_catalog.pg_settings TO PUBLIC").await.expect("done");
}

/// The name of a setting, or a text, that stands in a parameter or a row.
async fn what_a_function_is_given_counts(client: &mut WireClient, mode: &str) {
    let tenant = "SELECT coalesce(current_setting('app.tenant', true), 'null')";
    // A name that is refused when it is set harms no later statement.
    succeed(
        client,
        "CREATE OR REPLACE FUNCTION set_wrongly() RETURNS void LANGUAGE sql AS $$ SELECT set_config('app.no-name', '1', true) $$",
    )
    .await;
    assert!(client.ask("SELECT set_wrongly()").await.contains("E(42602 "), "{mode}");
    assert_eq!(client.value("SELECT count(*) FROM jobs").await, "5", "{mode}");
    // A name of a schema or of a column is no name of a setting, and no constant is the name that a function makes.
    succeed(client, "SELECT set_of_app('tenant', 'example.com')").await;
    assert_eq!(client.value(tenant).await, "example.com", "{mode}");
    succeed(client, "CREATE SCHEMA IF NOT EXISTS app").await;
    succeed(client, "CREATE OR REPLACE FUNCTION app.set_of(k text, v text) RETURNS void LANGUAGE sql AS $$ SELECT set_config('app.' || k, v, false) $$").await;
    for (call, value) in [
        ("SELECT app.set_of('tenant', '20')", "20"),
        ("SELECT set_named('app.tenant', '21')", "21"),
        ("SELECT set_of_app('tenant', '22')", "22"),
        ("SELECT set_made('app.tenant', '23')", "23"),
        ("SELECT set_named('app.' || 'tenant', '24')", "24"),
        ("EXPLAIN ANALYZE SELECT set_named('app.tenant', '25')", "25"),
        ("EXPLAIN ANALYZE SELECT do_text('SET app.tenant = 26')", "26"),
        ("COPY (SELECT do_text('SET app.tenant = 27')) TO STDOUT", "27"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT do_text('SET app.tenant = 28'); FETCH c; COMMIT", "28"),
    ] {
        succeed(client, call).await;
        assert_eq!(client.value(tenant).await, value, "{mode}: {call}");
    }
    for (call, parameters, value) in [
        ("SELECT set_named($1, $2)", ["app.tenant", "31"], "31"),
        ("SELECT set_of_app($1, $2)", ["tenant", "32"], "32"),
        ("SELECT do_text($1 || $2)", ["SET app.tenant = ", "33"], "33"),
    ] {
        client.unnamed(call, &parameters).sync();
        let told = client.transcript().await;
        assert!(!told.contains("E("), "{mode}: {call}: {told}");
        assert_eq!(client.value(tenant).await, value, "{mode}: {call}");
    }
    client.unnamed("SELECT do_text($1)", &["SET search_path = other, public"]).sync();
    client.transcript().await;
    assert_eq!(client.value("SELECT x FROM w").await, "other", "{mode}");
    succeed(client, "SET search_path = public").await;
    succeed(client, "SELECT do_text(q) FROM jobs WHERE id = 2").await;
    assert_eq!(client.value("SELECT x FROM w").await, "other", "{mode}");
    succeed(client, "SET search_path = public").await;
    client.unnamed("SELECT do_text($1)", &["SELECT pg_advisory_lock(77)"]).sync();
    client.transcript().await;
    assert_eq!(client.value("SELECT pg_advisory_unlock(77)").await, "t", "{mode}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_declared_function_sets_follows_to_every_shard() {
    let settings = vec![("pool.size_per_shard", "2".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE FUNCTION set_tenant(t int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', t::text, false); END $$",
        "CREATE FUNCTION do_text(t text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE t; END $$",
        "SELECT shardgate.declare_function('set_tenant')",
        "SELECT shardgate.declare_function('do_text')",
    ] {
        succeed(&mut client, statement).await;
    }
    let tenant = |key: &str| {
        stage.fill_in(&format!(
            "SELECT coalesce(nullif(current_setting('app.tenant', true), ''), 'none') FROM accounts WHERE id = {key}"
        ))
    };
    for round in 0..3 {
        let (mut setter, mut other) = (stage.client().await, stage.client().await);
        succeed(&mut setter, &format!("SELECT set_tenant({round})")).await;
        for _ in 0..3 {
            for key in ["{a}", "{z}"] {
                assert_eq!(setter.value(&tenant(key)).await, round.to_string(), "{key}");
                assert_eq!(other.value(&tenant(key)).await, "none", "{key}");
            }
        }
        succeed(&mut setter, "BEGIN").await;
        succeed(&mut setter, "SELECT set_tenant(100)").await;
        assert_eq!(setter.value(&tenant("{z}")).await, "100");
        succeed(&mut setter, "ROLLBACK").await;
        assert_eq!(setter.value(&tenant("{z}")).await, round.to_string());
        succeed(&mut setter, "SELECT do_text('SET DateStyle = ''German''')").await;
        assert_eq!(setter.value(&stage.fill_in("SELECT date '2000-03-06' FROM accounts WHERE id = {z}")).await, "06.03.2000");
        assert_eq!(other.value(&stage.fill_in("SELECT date '2000-03-06' FROM accounts WHERE id = {a}")).await, "2000-03-06");
    }
    what_portals_are_bound_under(&stage).await;
    what_a_server_says_of_itself_the_home_shard_says(&stage).await;
    stage.assert_log_is_clean();
}

/// As in PostgreSQL, a portal has names and values as of its Bind, and shows them as of its Execute.
async fn what_portals_are_bound_under(stage: &Stage) {
    let mut client = stage.client().await;
    for statement in ["CREATE SCHEMA later", "CREATE TABLE later.accounts (id int, owner text)"] {
        succeed(&mut client, statement).await;
    }
    let one = stage.fill_in("SELECT owner || date '2000-03-06' FROM accounts WHERE id = {z}");
    let owner = stage.fill_in("o{z}");
    for (set, is_of_session) in [("SET search_path = later, public", true), ("SELECT do_text('SET DateStyle = ''German''')", false)]
    {
        for (text, expected) in [
            (one.as_str(), format!("D({owner}{})", if is_of_session { "2000-03-06" } else { "06.03.2000" })),
            ("SELECT count(*) FROM accounts", "E(0A000 a portal that was bound before".to_owned()),
            ("UPDATE accounts SET balance = balance", "E(0A000 a portal that was bound before".to_owned()),
            ("EXPLAIN SELECT count(*) FROM accounts", "E(0A000 a portal that was bound before".to_owned()),
        ] {
            client.parse("set", set).parse("asked", text).bind("p1", "set", &[]).bind("p2", "asked", &[]);
            client.execute("p1", 0).execute("p2", 0).close(b'S', "set").close(b'S', "asked").sync();
            let told = client.transcript().await;
            assert!(told.contains(&expected) && told.ends_with("Z(I)"), "{set}: {text}: {told}");
            succeed(&mut client, "DISCARD ALL").await;
        }
    }
    // One after the other.
    client.unnamed("SET search_path = later, public", &[]).unnamed("SELECT count(*) FROM accounts", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("D(0)"), "{told}");
}

/// Also where the transaction is on another shard.
async fn what_a_server_says_of_itself_the_home_shard_says(stage: &Stage) {
    let mut client = stage.client().await;
    let oid = client.value("SELECT 'accounts'::regclass::oid").await;
    let questions = [
        "SELECT current_database()".to_owned(),
        "SELECT current_catalog".to_owned(),
        "SELECT 'accounts'::regclass::oid".to_owned(),
        format!("SELECT {oid}::regclass"),
        format!("SELECT '{oid}'::regclass"),
        format!("SELECT pg_relation_filepath({oid})"),
        format!("SELECT has_table_privilege({oid}, 'SELECT')"),
        "SELECT pg_backend_pid()".to_owned(),
        "SELECT inet_server_port()".to_owned(),
        "SHOW data_directory".to_owned(),
    ];
    for question in questions {
        let outside = client.value(&question).await;
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, &stage.fill_in("SELECT owner FROM accounts WHERE id = {z}")).await;
        let inside = client.value(&question).await;
        succeed(&mut client, "COMMIT").await;
        assert_eq!(inside, outside, "{question}");
    }
    // What is of the transaction is where the transaction is.
    succeed(&mut client, "BEGIN").await;
    let row = client.row(&stage.fill_in("UPDATE accounts SET balance = balance WHERE id = {z} RETURNING xmin, xmax")).await;
    let transaction = client.value("SELECT txid_current() % (2::numeric ^ 32)::bigint").await;
    assert!(row.contains(&transaction), "{row:?} {transaction}");
    succeed(&mut client, "ROLLBACK").await;
}

/// What a superuser has set is taken back by a superuser, whoever the session has been since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_is_taken_back_by_who_may() {
    let plain = Plain::start(&[]).await;
    let mut client = plain.client().await;
    succeed(&mut client, "DO $$ BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$").await;
    for role in ["SET SESSION AUTHORIZATION reader", "SET ROLE reader"] {
        let mut setter = plain.client().await;
        for statement in ["SET lo_compat_privileges = true", role, "SELECT 1", "SELECT current_setting('lo_compat_privileges')"] {
            succeed(&mut setter, statement).await;
        }
        let mut next = plain.client().await;
        assert_eq!(next.value("SELECT current_setting('lo_compat_privileges') || session_user").await, "offpostgres", "{role}");
        assert_eq!(setter.value("SELECT current_setting('lo_compat_privileges') || current_user").await, "onreader", "{role}");
        succeed(&mut setter, "RESET SESSION AUTHORIZATION").await;
        drop(setter);
        assert_eq!(next.value("SELECT current_setting('lo_compat_privileges') || session_user").await, "offpostgres", "{role}");
    }
}

/// Where it is proven that nothing is set, nothing is asked: the backend runs the client's statements and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_proven_to_set_nothing_costs_nothing() {
    let plain = Plain::start(&[]).await;
    let mut client = plain.client().await;
    succeed(&mut client, "SELECT pure(1)").await;
    let last =
        "SELECT query FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = $1 AND pid <> pg_backend_pid()";
    let shard = plain.cluster.connect_shard(0).await;
    let database: String = shard.query_one("SELECT current_database()::text", &[]).await.expect("a name").get(0);
    for statement in ["SELECT pure(2)", "INSERT INTO notes VALUES (1, 'a')", "SELECT count(*) FROM notes WHERE id = pure(1)"] {
        succeed(&mut client, statement).await;
        let queries: Vec<String> = shard.query(last, &[&database]).await.expect("activity").iter().map(|row| row.get(0)).collect();
        assert!(queries.iter().any(|query| query == statement), "{queries:?} after {statement}");
    }
}

/// Mistakes that are planted on purpose, one by one: what the other tests look at shows each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_of_the_reset_are_seen() {
    let points = Points::new();
    // Of two connections one is held: all others have the same, one after the other.
    let settings = [("pool.size_per_shard", "2"), ("pool.late_joiner_share", "0")];
    let plain = Plain::start_with(&settings, points.options()).await;
    let mut client = plain.client().await;
    // A setting that no server reports by itself.
    let set_memory =
        "CREATE FUNCTION set_memory(m text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('work_mem', m, false) $$";
    for statement in
        [set_memory, "CREATE SCHEMA evil", "CREATE FUNCTION evil.pg_advisory_unlock_all() RETURNS void LANGUAGE sql AS 'SELECT'"]
    {
        succeed(&mut client, statement).await;
    }
    drop(client);
    // By texts that lie in rows: nothing in the statement tells what they do.
    let leave = [("not_reset", vec!["1"]), ("setting_not_on_record", vec![]), ("reset_by_path", vec!["2", "3"])];
    for (mistake, texts) in &leave {
        for is_planted in [false, true] {
            if is_planted {
                points.arm(&format!("planted.{mistake}"), "");
            }
            let (mut holder, mut leaver) = (plain.client().await, plain.client().await);
            succeed(&mut holder, "BEGIN").await;
            succeed(&mut holder, "SELECT").await;
            succeed(&mut leaver, "BEGIN").await;
            for text in texts {
                leaver.unnamed("SELECT public.do_part(q) FROM public.parts WHERE id OPERATOR(pg_catalog.=) $1", &[text]).sync();
                let told = leaver.transcript().await;
                assert!(!told.contains("E("), "{text}: {told}");
            }
            succeed(&mut leaver, "COMMIT").await;
            if texts.is_empty() {
                succeed(&mut leaver, "SELECT set_memory('9MB')").await;
            }
            drop(leaver);
            let state = "/* shardgate: shard=shard0 */ SELECT concat_ws('|', current_setting('work_mem'), current_setting('search_path'), \
                         (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";
            let is_clean = plain.client().await.value(state).await == "4MB|\"$user\", public|0";
            assert_eq!(is_clean, !is_planted, "{mistake}");
            if is_planted {
                points.release(&format!("planted.{mistake}"));
                close_backends(&plain.cluster).await;
            }
        }
    }
}

/// So that the next case begins with new ones.
async fn close_backends(cluster: &Cluster) {
    let shard = cluster.connect_shard(0).await;
    let others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    shard.batch_execute(others).await.expect("closed");
}

/// Also where the call stands in the definition itself, and no function of users has it.
#[tokio::test]
async fn what_a_default_a_check_or_a_domain_sets_is_the_sessions_own() {
    let plain = Plain::start(&[]).await;
    let mut admin = plain.client().await;
    for statement in [
        "CREATE TABLE by_default (id int PRIMARY KEY, z text DEFAULT set_config('app.by_default', 'set', false))",
        "CREATE TABLE by_check (id int, z text CHECK (set_config('app.by_check', z, false) IS NOT NULL))",
        "CREATE DOMAIN checked AS text CHECK (set_config('app.by_domain', VALUE, false) IS NOT NULL)",
    ] {
        succeed(&mut admin, statement).await;
    }
    for (name, statement) in [
        ("app.by_default", "INSERT INTO by_default (id) VALUES (1)"),
        ("app.by_check", "INSERT INTO by_check VALUES (1, 'set')"),
        ("app.by_domain", "SELECT 'set'::checked"),
    ] {
        let mut client = plain.client().await;
        succeed(&mut client, statement).await;
        // Its connection is somebody else's.
        let mut neighbour = plain.client().await;
        assert_eq!(neighbour.value(&format!("SELECT current_setting('{name}', true) IS NULL")).await, "t", "{name}");
        assert_eq!(client.value(&format!("SELECT current_setting('{name}', true)")).await, "set", "{name}");
    }
}
