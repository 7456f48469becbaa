//! Defaults of a database or a role count wherever a statement runs as they do on the home shard, and not as on another one. Who
//! logs in after a change of them has the new ones, and who was there before has the old ones, as in PostgreSQL.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, ProxyUser, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shard_goes_by_the_home_shards_defaults() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    for (shard, settings) in [(0, &HOME[..]), (1, &OTHER[..])] {
        let direct = stage.cluster.connect_shard(shard).await;
        let database: String = direct.query_one("SELECT current_database()", &[]).await.expect("its name").get(0);
        for setting in settings {
            direct.batch_execute(&format!("ALTER DATABASE {database} SET {setting}")).await.expect(setting);
        }
        direct.batch_execute("CREATE SCHEMA app; CREATE VIEW app.place AS SELECT 'app' AS schema").await.expect("a schema");
        direct.batch_execute("CREATE VIEW public.place AS SELECT 'public' AS schema").await.expect("a view");
    }
    let proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut client = WireClient::connect(proxy.address()).await;
    let (home, other) = (stage.key(0, 0), stage.key(1, 0));
    let asked = "('2024-03-01 12:00+00'::timestamptz)::text || ' ' || '1 day 02:00'::interval || ' ' || \
         coalesce(current_setting('app.tenant', true), 'none') || ' ' || (1.0::float8 / 3) || ' ' || (SELECT schema FROM place)";
    let on = |id: i64| format!("SELECT {asked} FROM accounts WHERE id = {id}");
    let (told, plain) = ("2024-03-01 17:30:00+05:30 P1DT2H t1 0.3333 app", "2024-03-01 12:00:00+00 1 day 02:00:00 none 0.3333 app");
    for _ in 0..2 {
        assert_eq!(client.value(&on(home)).await, told);
        assert_eq!(client.value(&on(other)).await, told);
        succeed(&mut client, "SET timezone = 'UTC'").await;
        assert!(client.value(&on(other)).await.starts_with("2024-03-01 12:00:00+00 "));
        succeed(&mut client, "RESET timezone").await;
        assert_eq!(client.value(&on(other)).await, told);
        succeed(&mut client, "DISCARD ALL").await;
    }
    let minimum =
        "SELECT min(('2024-03-01 23:00+00'::timestamptz)::date::text) || max(('2024-03-01 23:00+00'::timestamptz)::date::text)";
    assert_eq!(client.value(&format!("{minimum} FROM accounts")).await, "2024-03-022024-03-02");
    let asked_for = [
        ("user", "postgres"),
        ("database", "app"),
        ("TimeZone", "UTC"),
        ("options", "-c intervalstyle=postgres -c app.tenant=none"),
    ];
    let mut client = WireClient::connect_with(proxy.address(), &asked_for).await;
    assert_eq!(client.value(&on(home)).await, plain);
    assert_eq!(client.value(&on(other)).await, plain);
    // Who may not see all that is set there logs in none the less.
    for shard in 0..2 {
        stage.cluster.connect_shard(shard).await.batch_execute("ALTER ROLE reader LOGIN").await.expect("a login");
    }
    let settings = vec![("auth.backend_user", "client".to_owned())];
    let users = vec![ProxyUser { name: "reader".to_owned(), password: None, admin: false }];
    let proxy = Proxy::start(&stage.cluster, ProxyOptions { settings, users, ..ProxyOptions::default() });
    let mut reader = WireClient::connect_with(proxy.address(), &[("user", "reader"), ("database", "app")]).await;
    assert_eq!(reader.value("SELECT current_user || ' ' || current_setting('timezone')").await, "reader Asia/Kolkata");
    stage.assert_log_is_clean();
}

const HOME: [&str; 7] = [
    // Of a kind that only a superuser may see, and nobody may set.
    "session_preload_libraries = 'auto_explain'",
    "timezone = 'Asia/Kolkata'",
    "intervalstyle = 'iso_8601'",
    "search_path = app, public",
    "app.tenant = 't1'",
    "extra_float_digits = -11",
    "statement_timeout = '1min'",
];
const OTHER: [&str; 4] = ["timezone = 'America/New_York'", "datestyle = 'German'", "search_path = public", "app.tenant = 't2'"];

/// What a session has for these settings, on each shard by itself and on both by one statement.
async fn defaults_of(stage: &Stage, client: &mut WireClient) -> String {
    let asked = "current_setting('work_mem') || ' ' || current_setting('extra_float_digits') || ' ' || \
                 coalesce(current_setting('app.tenant', true), 'none')";
    let mut found = Vec::new();
    for shard in 0..2 {
        found.push(client.value(&format!("SELECT {asked} FROM accounts WHERE id = {}", stage.key(shard, 0))).await);
    }
    found.push(client.value(&format!("SELECT string_agg(DISTINCT {asked}, ',') FROM accounts")).await);
    found.push(client.value(&format!("SELECT {asked}")).await);
    found.dedup();
    found.join(" | ")
}

async fn login(proxy: &Proxy) -> WireClient {
    WireClient::connect(proxy.address()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_default_counts_from_the_next_login_on() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let other_proxy = Proxy::start(&stage.cluster, ProxyOptions::default());
    let (first, last) = ("4MB 1 none", "4MB 1 ");
    let mut earliest = stage.client().await;
    let mut elsewhere = login(&other_proxy).await;
    let mut in_transaction = stage.client().await;
    for client in [&mut earliest, &mut elsewhere] {
        assert_eq!(defaults_of(&stage, client).await, first);
    }
    succeed(&mut in_transaction, "BEGIN").await;
    let count = format!("SELECT count(*) FROM accounts WHERE id = {}", stage.key(0, 0));
    assert_eq!(in_transaction.value(&count).await, "1");
    let mut admin = stage.client().await;
    for sql in ["SET work_mem = '7MB'", "SET extra_float_digits = -3", "SET app.tenant = 't7'"] {
        succeed(&mut admin, &format!("ALTER ROLE postgres {sql}")).await;
    }
    let changed = "7MB -3 t7";
    for proxy in [&stage.proxy, &other_proxy] {
        let mut later = login(proxy).await;
        assert_eq!(defaults_of(&stage, &mut later).await, changed);
        for sql in ["SET work_mem = '9MB'", "RESET work_mem", "SET LOCAL work_mem = '9MB'", "DISCARD ALL", "RESET ALL"] {
            succeed(&mut later, sql).await;
        }
        assert_eq!(defaults_of(&stage, &mut later).await, changed);
    }
    let mut middle = stage.client().await;
    for client in [&mut earliest, &mut elsewhere, &mut admin, &mut in_transaction] {
        assert_eq!(defaults_of(&stage, client).await, last);
    }
    succeed(&mut in_transaction, "ROLLBACK").await;
    assert_eq!(defaults_of(&stage, &mut in_transaction).await, last);
    succeed(&mut in_transaction, "DISCARD ALL").await;
    assert_eq!(defaults_of(&stage, &mut in_transaction).await, last);
    // In a transaction that is rolled back nothing has changed; in one that is committed it has from then on.
    succeed(&mut admin, "BEGIN; ALTER ROLE postgres SET work_mem = '8MB'; ROLLBACK").await;
    assert_eq!(defaults_of(&stage, &mut stage.client().await).await, changed);
    succeed(&mut admin, "BEGIN").await;
    succeed(&mut admin, "ALTER ROLE postgres RESET ALL").await;
    assert_eq!(defaults_of(&stage, &mut stage.client().await).await, changed);
    succeed(&mut admin, "COMMIT").await;
    for proxy in [&stage.proxy, &other_proxy] {
        assert_eq!(defaults_of(&stage, &mut login(proxy).await).await, first);
    }
    assert_eq!(defaults_of(&stage, &mut middle).await, changed);
    // In one database: each shard has its own.
    succeed(&mut admin, "ALTER ROLE postgres IN DATABASE app SET work_mem = '6MB'").await;
    assert_eq!(defaults_of(&stage, &mut stage.client().await).await, "6MB 1 none");
    assert_eq!(defaults_of(&stage, &mut middle).await, changed);
    let stored =
        "SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = setdatabase WHERE datname = current_database()";
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        assert_eq!(direct.query_one(stored, &[]).await.expect("a count").get::<_, i64>(0), 1);
    }
    succeed(&mut admin, "ALTER ROLE ALL SET work_mem = '5MB'; ALTER ROLE postgres IN DATABASE app RESET ALL").await;
    assert_eq!(defaults_of(&stage, &mut stage.client().await).await, "5MB 1 none");
    stage.assert_log_is_clean();
}

/// Made at the shard itself, it is seen by the next slow look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_that_was_changed_at_the_shard_counts_soon() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut earlier = stage.client().await;
    assert_eq!(defaults_of(&stage, &mut earlier).await, "4MB 1 none");
    let direct = stage.cluster.connect_shard(0).await;
    let database: String = direct.query_one("SELECT current_database()", &[]).await.expect("its name").get(0);
    direct.batch_execute(&format!("ALTER DATABASE {database} SET work_mem = '7MB'")).await.expect("changed");
    let deadline = Instant::now() + Duration::from_secs(100);
    while defaults_of(&stage, &mut stage.client().await).await != "7MB 1 none" {
        assert!(Instant::now() < deadline, "the change is not seen");
    }
    assert_eq!(defaults_of(&stage, &mut earlier).await, "4MB 1 none");
    direct.batch_execute(&format!("ALTER DATABASE {database} RESET work_mem")).await.expect("changed");
    while defaults_of(&stage, &mut stage.client().await).await != "4MB 1 none" {
        assert!(Instant::now() < deadline, "the change is not seen");
    }
    assert_eq!(defaults_of(&stage, &mut earlier).await, "4MB 1 none");
    stage.assert_log_is_clean();
}
