//! Defaults of a database or a role count wherever a statement runs as they do on the home shard, and not as on another one.

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
