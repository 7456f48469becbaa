//! ALTER TABLE ... ADD COLUMN ... DEFAULT now(), as migrations send it: the rows that are there have one time on all shards, as they
//! would on one server, those to come have their own, and the shards stay alike.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

/// Over all shards: distinct values, rows without one.
async fn values(client: &mut WireClient, table: &str, column: &str) -> String {
    client.value(&format!("SELECT count(DISTINCT {column}) || ' ' || count(*) FILTER (WHERE {column} IS NULL) FROM {table}")).await
}

async fn default(client: &mut WireClient, table: &str, column: &str) -> String {
    client
        .value(&format!(
            "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum \
             WHERE adrelid = '{table}'::regclass AND attname = '{column}'"
        ))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_with_the_time_as_its_default_has_one_for_all_rows() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let client = &mut client;
    succeed(client, "SET TimeZone = 'Asia/Tokyo'").await;
    for (column, told, wanted) in [
        ("at timestamptz NOT NULL DEFAULT now()", "now()", "now()"),
        ("\"createdAt\" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("day date DEFAULT CURRENT_DATE CHECK (day > '2020-01-01')", "CURRENT_DATE", "CURRENT_DATE"),
        ("later timestamptz CONSTRAINT d DEFAULT (now() + interval '1 day') NOT NULL", "", "(now() + '1 day'::interval)"),
        ("utc timestamp DEFAULT timezone('utc', now())", "", "timezone('utc'::text, now())"),
        ("word text COLLATE \"C\" DEFAULT to_char(now(), 'YYYY-MM-DD HH24:MI:SS.US')", "", "to_char("),
        ("begun timestamptz DEFAULT statement_timestamp()", "", "statement_timestamp()"),
    ] {
        let name = column.split(' ').next().expect("a name");
        for table in ["accounts", "currencies"] {
            assert_eq!(client.ask(&format!("ALTER TABLE {table} ADD COLUMN {column}")).await, "C(ALTER TABLE) Z(I)", "{column}");
            assert_eq!(values(client, table, name).await, "1 0", "{column}");
            let found = default(client, table, name.trim_matches('"')).await;
            assert!(found.contains(wanted) && found.contains(told), "{column}: {found}");
        }
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE \"createdAt\" <> date_trunc('ms', \"createdAt\")").await, "0");
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE utc NOT BETWEEN at::timestamp - interval '9 h 5 min' AND at::timestamp - interval '8 h 55 min'").await, "0");
    // Rows to come have the time at which they come.
    succeed(client, "INSERT INTO accounts (id, balance) VALUES (501, 1)").await;
    succeed(client, "INSERT INTO accounts (id, balance) VALUES (502, 1)").await;
    assert_eq!(values(client, "accounts", "at").await, "3 0");
    in_transactions(&stage, client).await;
    columns_that_are_there(client).await;
    what_is_refused(client).await;
    places_of_errors(client).await;
    alike(&stage).await;
    stage.assert_log_is_clean();
}

/// An error's place is counted in what the client has sent, behind a default that was replaced too.
async fn places_of_errors(client: &mut WireClient) {
    for text in [
        "ALTER TABLE accounts ADD COLUMN one timestamptz DEFAULT now(), ADD COLUMN two nothere",
        "SELECT 'é'; /* é */ ALTER TABLE accounts ADD COLUMN one timestamptz DEFAULT now(), ADD COLUMN two nothere",
        "SELECT 1; ALTER TABLE accounts ADD COLUMN one timestamptz DEFAULT now(), ADD two nothere, ADD three timestamptz DEFAULT now()",
        "  SELECT 1; ALTER TABLE accounts ADD COLUMN one date DEFAULT now(), ADD two date DEFAULT now(), ADD three nothere",
    ] {
        client.query(text);
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!(error.field(b'M'), "type \"nothere\" does not exist");
        let before = text.split("nothere").next().unwrap_or_default().chars().count();
        assert_eq!(error.field(b'P'), (before + 1).to_string(), "{text}");
    }
}

async fn in_transactions(stage: &Stage, client: &mut WireClient) {
    succeed(client, "BEGIN; INSERT INTO accounts (id, balance) VALUES (503, 1)").await;
    succeed(
        client,
        "ALTER TABLE accounts ADD COLUMN a timestamptz DEFAULT now(), ADD b int DEFAULT 7, ADD c date DEFAULT current_date",
    )
    .await;
    succeed(client, "INSERT INTO accounts (id, balance) VALUES (504, 1), (505, 1), (506, 1)").await;
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE a IS DISTINCT FROM now() OR b <> 7 OR c IS NULL").await, "0");
    succeed(client, "ROLLBACK").await;
    assert!(client.ask("SELECT a FROM accounts").await.starts_with("E(42703 "));
    client.unnamed("ALTER TABLE accounts ADD COLUMN a timestamptz DEFAULT now()", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(ALTER TABLE) Z(I)");
    assert_eq!(values(client, "accounts", "a").await, "1 0");
    // Of a script, in which it is one of several, with its table under a path.
    succeed(
        client,
        "SET search_path = pg_catalog, public; ALTER TABLE accounts ADD e timestamptz DEFAULT now(); RESET search_path",
    )
    .await;
    assert_eq!(values(client, "accounts", "e").await, "1 0");
    succeed(client, "CREATE TABLE empty (id int, k int); SELECT shardgate.distribute_table('empty', 'k')").await;
    succeed(client, "ALTER TABLE empty ADD COLUMN at timestamptz DEFAULT now()").await;
    // Partitions have it too.
    succeed(
        client,
        "CREATE TABLE parted (k int, d date) PARTITION BY RANGE (d); CREATE TABLE parted_all PARTITION OF parted DEFAULT",
    )
    .await;
    succeed(client, "SELECT shardgate.distribute_table('parted', 'k')").await;
    succeed(client, "INSERT INTO parted SELECT n, '2026-01-01' FROM generate_series(1, 40) n").await;
    succeed(client, "ALTER TABLE parted ADD COLUMN at timestamptz DEFAULT now()").await;
    assert_eq!(values(client, "parted", "at").await, "1 0");
    assert_eq!(default(client, "parted_all", "at").await, "now()");
    assert_eq!(stage.client().await.value("SELECT count(*) FROM parted WHERE at < now()").await, "40");
}

async fn columns_that_are_there(client: &mut WireClient) {
    succeed(client, "ALTER TABLE accounts ADD COLUMN stays timestamptz DEFAULT '2020-01-01'").await;
    let again = "ALTER TABLE accounts ADD COLUMN IF NOT EXISTS stays timestamptz DEFAULT now(), ADD COLUMN IF NOT EXISTS comes timestamptz DEFAULT now()";
    assert!(client.ask(again).await.ends_with("C(ALTER TABLE) Z(I)"));
    assert!(default(client, "accounts", "stays").await.starts_with("'2020-01-01"));
    assert_eq!(default(client, "accounts", "comes").await, "now()");
    assert_eq!(values(client, "accounts", "comes").await, "1 0");
    assert!(client.ask("ALTER TABLE accounts ADD COLUMN stays timestamptz DEFAULT now()").await.starts_with("E(42701 "));
}

async fn what_is_refused(client: &mut WireClient) {
    for change in [
        "ALTER TABLE accounts ADD COLUMN z timestamptz DEFAULT 'now'",
        "ALTER TABLE accounts ADD COLUMN z timestamptz DEFAULT 'now'::timestamptz",
        "ALTER TABLE accounts ADD COLUMN z int DEFAULT pg_backend_pid()",
        "ALTER TABLE accounts ADD COLUMN z text DEFAULT now()::text || pg_backend_pid()",
        "ALTER TABLE accounts ADD COLUMN z timestamptz DEFAULT now(), ALTER COLUMN z DROP DEFAULT",
        "ALTER TABLE accounts ADD COLUMN z timestamptz DEFAULT now(), ADD COLUMN n bigserial",
        "ALTER TABLE currencies ADD COLUMN z uuid DEFAULT gen_random_uuid()",
        "DO $$BEGIN ALTER TABLE accounts ADD COLUMN z timestamptz DEFAULT now(); END$$",
    ] {
        let told = client.ask(change).await;
        assert!(told.starts_with("E(0A000 "), "{change}: {told}");
    }
}

/// Columns, their defaults, and what rows that were there before them have.
async fn alike(stage: &Stage) {
    let mut found = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query(DEFINITIONS, &[]).await.expect("definitions");
        found.push(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>());
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

const DEFINITIONS: &str = "SELECT format('%s %s %s %s %s %s', attrelid::regclass, attnum, attname, attnotnull,
            pg_get_expr(d.adbin, d.adrelid), attmissingval)
     FROM pg_attribute JOIN pg_class c ON c.oid = attrelid AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
     LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum WHERE attnum > 0
     ORDER BY 1";
