//! Materialized views over rows of several shards: filled by REFRESH through a proxy, and by nothing else.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_materialized_view_is_filled_from_all_shards_or_not_at_all() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE MATERIALIZED VIEW totals AS SELECT sum(balance) AS sum, count(*) AS n FROM accounts").await;
    assert_eq!(client.row("SELECT * FROM totals").await, ["9000", "90"]);
    // On every shard it is the same, and without rows where it is not read.
    let other = stage.cluster.connect_shard(1).await;
    let there: bool =
        other.query_one("SELECT relispopulated FROM pg_class WHERE relname = 'totals'", &[]).await.expect("a row").get(0);
    assert!(!there);
    // Behind the proxy's back it is not filled by the rows of one shard.
    let home = stage.cluster.connect_shard(0).await;
    let refused = home.batch_execute("REFRESH MATERIALIZED VIEW totals").await.expect_err("an error");
    assert!(
        refused
            .as_db_error()
            .is_some_and(|error| error.message().contains("\"REFRESH it through Shardgate, by a statement of its own\"")),
        "{refused:?}"
    );
    for body in
        ["DO $$ BEGIN REFRESH MATERIALIZED VIEW totals; END $$", "DO $$ BEGIN EXECUTE 'REFRESH MATERIALIZED VIEW totals'; END $$"]
    {
        let told = client.ask(body).await;
        assert!(told.contains("E(0A000 "), "{body}: {told}");
    }
    let refreshes = "CREATE FUNCTION refreshes() RETURNS void LANGUAGE plpgsql AS 'BEGIN REFRESH MATERIALIZED VIEW totals; END'";
    succeed(&mut client, refreshes).await;
    succeed(&mut client, "SELECT shardgate.declare_function('refreshes')").await;
    succeed(&mut client, "SET shardgate_proxy.refreshed_in = 'off'").await;
    let told = client.ask("SELECT refreshes()").await;
    assert!(told.contains("E(22P02 ") && told.contains("REFRESH it through Shardgate"), "{told}");
    // Nor behind the proxy's own in a transaction, when the rows are not there any more.
    let told = client.ask("RESET ALL; BEGIN; REFRESH MATERIALIZED VIEW totals; SELECT refreshes()").await;
    assert!(told.contains("C(REFRESH MATERIALIZED VIEW)") && told.contains("E(22P02 "), "{told}");
    succeed(&mut client, "ROLLBACK; DROP FUNCTION refreshes()").await;
    assert_eq!(client.row("SELECT * FROM totals").await, ["9000", "90"]);
    // One over it alone has its rows on the home shard, and is PostgreSQL's own.
    succeed(&mut client, "CREATE MATERIALIZED VIEW upon AS SELECT n FROM totals").await;
    succeed(&mut client, &refreshes.replace("totals", "upon")).await;
    succeed(&mut client, "SELECT shardgate.declare_function('refreshes')").await;
    succeed(&mut client, "SELECT refreshes()").await;
    assert_eq!(client.value("SELECT n FROM upon").await, "90");
    succeed(&mut client, "DROP FUNCTION refreshes(); DROP MATERIALIZED VIEW upon").await;
    // Nor by the rows of the shard that a hint names.
    for statement in [
        "SET shardgate.shard = 'shard1'; REFRESH MATERIALIZED VIEW totals",
        "/* shardgate: shard=shard1 */ REFRESH MATERIALIZED VIEW totals",
    ] {
        let told = client.ask(statement).await;
        assert!(told.contains("E(0A000 REFRESH MATERIALIZED VIEW on one shard is not supported)"), "{told}");
        succeed(&mut client, "RESET shardgate.shard").await;
    }
    assert_eq!(client.row("SELECT * FROM totals").await, ["9000", "90"]);
    // What stands beside it gives nobody more than he has, whatever is granted on all tables.
    for statement in [
        "CREATE ROLE granted",
        "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO granted",
        "REVOKE ALL ON accounts, totals FROM granted",
        "SET ROLE granted",
    ] {
        succeed(&mut client, statement).await;
    }
    for statement in ["SELECT * FROM totals", "SELECT * FROM totals_query", "INSERT INTO totals_rows VALUES (1, 2)"] {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(42501 ") || told.contains(" E(42501 "), "{statement}: {told}");
    }
    succeed(&mut client, "RESET ROLE").await;
    // Who is not its owner gets PostgreSQL's error, who may act for the owner is told how.
    succeed(&mut client, "CREATE ROLE keeper; CREATE ROLE stranger").await;
    succeed(&mut client, "GRANT SELECT ON accounts TO keeper").await;
    succeed(&mut client, "ALTER MATERIALIZED VIEW totals OWNER TO keeper").await;
    let told = client.ask("SET ROLE stranger; REFRESH MATERIALIZED VIEW totals").await;
    assert!(told.contains("E(42501 must be owner of materialized view totals)"), "{told}");
    succeed(&mut client, "RESET ROLE").await;
    let told = client.ask("REFRESH MATERIALIZED VIEW totals").await;
    assert!(
        told.contains("E(0A000 REFRESH of materialized view \"totals\" by another user than its owner is not supported)"),
        "{told}"
    );
    succeed(&mut client, "UPDATE accounts SET balance = 101").await;
    succeed(&mut client, "SET ROLE keeper; REFRESH MATERIALIZED VIEW totals; RESET ROLE").await;
    assert_eq!(client.row("SELECT * FROM totals").await, ["9090", "90"]);
    // What its query reads is known to PostgreSQL, under the names that it has now.
    let told = client.ask("DROP TABLE accounts").await;
    assert!(told.contains("E(2BP01 "), "{told}");
    succeed(&mut client, "ALTER TABLE accounts RENAME COLUMN balance TO money").await;
    succeed(&mut client, "SET ROLE keeper; REFRESH MATERIALIZED VIEW totals; RESET ROLE").await;
    let told = client.ask("SET search_path = public, pg_catalog; SET ROLE keeper; REFRESH MATERIALIZED VIEW totals").await;
    assert!(told.contains("E(0A000 "), "{told}");
    succeed(&mut client, "RESET ALL; RESET ROLE").await;
    // All of it goes with it, also where the transaction has made it.
    succeed(&mut client, "DROP MATERIALIZED VIEW totals").await;
    succeed(
        &mut client,
        "BEGIN; CREATE MATERIALIZED VIEW brief AS SELECT id FROM accounts; REFRESH MATERIALIZED VIEW brief; \
         DROP MATERIALIZED VIEW brief; COMMIT",
    )
    .await;
    succeed(&mut client, "CREATE MATERIALIZED VIEW totals AS SELECT owner FROM accounts").await;
    succeed(&mut client, "DROP TABLE accounts CASCADE").await;
    for shard in 0..2 {
        let left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(totals|brief)'";
        let left: i64 = stage.cluster.connect_shard(shard).await.query_one(left, &[]).await.expect("a count").get(0);
        assert_eq!(left, 0, "on shard {shard}");
    }
    stage.assert_log_is_clean();
}

/// Each REFRESH begins to read when the one before it is done, or waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refresh_waits_for_another() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut first, mut second) = (stage.client().await, stage.client().await);
    succeed(&mut first, "CREATE MATERIALIZED VIEW totals AS SELECT sum(balance) AS sum FROM accounts").await;
    succeed(&mut first, "BEGIN; UPDATE accounts SET balance = 1; REFRESH MATERIALIZED VIEW totals").await;
    let waiting = tokio::spawn(async move { second.ask("REFRESH MATERIALIZED VIEW totals").await });
    let home = stage.cluster.connect_shard(0).await;
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'totals_rows'::regclass";
    while home.query_one(waits, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
        assert!(!waiting.is_finished());
        tokio::task::yield_now().await;
    }
    succeed(&mut first, "COMMIT").await;
    assert_eq!(waiting.await.expect("no panic"), "C(REFRESH MATERIALIZED VIEW) Z(I)");
    assert_eq!(first.value("SELECT sum FROM totals").await, "90");
    stage.assert_log_is_clean();
}
