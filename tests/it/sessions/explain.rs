//! EXPLAIN through the proxy: where a statement goes, and what each shard plans, as text and as one document.

use serde_json::Value;

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test]
async fn explain_says_where_a_statement_goes_and_what_each_shard_plans() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    one_shard(&stage, &mut client).await;
    several_shards(&stage, &mut client).await;
    home_and_reference_tables(&stage, &mut client).await;
    materialized_views(&stage, &mut client).await;
    documents(&stage, &mut client).await;
    parameters(&stage, &mut client).await;
    executions(&stage, &mut client).await;
    writes(&stage, &mut client).await;
    errors(&stage, &mut client).await;
    pipelines(&stage, &mut client).await;
    stage.assert_log_is_clean();
}

/// The lines of a plan, whichever protocol it was asked for by.
async fn lines(client: &mut WireClient, sql: &str) -> Vec<String> {
    client.query(sql);
    let simple = told_lines(client, sql).await;
    client.parse("", sql).describe(b'S', "").bind("", "", &[]).describe(b'P', "").execute("", 0).sync();
    let extended = told_lines(client, sql).await;
    let constant = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| !["Time:", "time=", "Actual Total Time", "Buffers:"].iter().any(|word| line.contains(word)))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(constant(&simple), constant(&extended), "{sql}");
    simple
}

async fn told_lines(client: &mut WireClient, sql: &str) -> Vec<String> {
    let answers = client.answers().await;
    let told: Vec<String> = answers.iter().map(|message| message.describe()).collect();
    assert!(told.contains(&"T(QUERY PLAN)".to_owned()) && told.contains(&"C(EXPLAIN)".to_owned()), "{sql}: {told:?}");
    answers.iter().filter(|message| message.tag == b'D').map(|row| row.columns().swap_remove(0).expect("a line")).collect()
}

fn assert_in_order(lines: &[String], wanted: &[&str]) {
    let mut rest = lines.iter();
    for part in wanted {
        assert!(rest.any(|line| line.contains(part)), "{part:?} is missing, or not in its place, in\n{}", lines.join("\n"));
    }
}

async fn one_shard(stage: &Stage, client: &mut WireClient) {
    for (key, shard) in [("{a}", "shard0"), ("{z}", "shard1")] {
        let sql = stage.fill_in(&format!("SELECT owner FROM accounts WHERE id = {key}"));
        let told = lines(client, &format!("EXPLAIN (COSTS OFF) {sql}")).await;
        assert_in_order(
            &told,
            &[
                "Route: single shard",
                &format!("Shards: {shard}"),
                "Why: Table \"accounts\"",
                &format!("On {shard}: {sql}"),
                &format!("Plan on {shard}:"),
                "accounts",
            ],
        );
        assert_in_order(
            &lines(client, &format!("EXPLAIN ANALYZE {sql}")).await,
            &["Route: single shard", "actual time", "Execution Time:"],
        );
    }
}

async fn several_shards(_: &Stage, client: &mut WireClient) {
    let told = lines(client, "EXPLAIN (COSTS OFF) SELECT id FROM accounts ORDER BY id LIMIT 3").await;
    let wanted = [
        "Route: scatter",
        "Shards: shard0, shard1",
        "On shard0:",
        "On shard1:",
        "Merge: by column 1, limit",
        "Plan on shard0:",
        "accounts",
        "Plan on shard1:",
        "accounts",
    ];
    assert_in_order(&told, &wanted);
    assert_in_order(
        &lines(client, "EXPLAIN ANALYZE SELECT * FROM accounts").await,
        &["Route: scatter", "rows=", "Plan on shard1:", "rows="],
    );
    // What would not run has no plan.
    let told = lines(client, "EXPLAIN UPDATE accounts SET id = id + 1").await;
    assert_in_order(&told, &["Route: split write", "Why: ", "Merge: rows are deleted where they are"]);
    let told = lines(client, "EXPLAIN DELETE FROM accounts WHERE id IN (SELECT max(id) FROM accounts)").await;
    assert_in_order(&told, &["Route: split write", "Why: ", "Merge: the queries in it are answered first"]);
    let told = lines(client, "EXPLAIN UPDATE accounts SET owner = 'x' WHERE ctid = '(0,1)'").await;
    assert_in_order(&told, &["Route: refused", "Why: ", "Hint: "]);
    assert!(!told.iter().any(|line| line.contains("Plan on")), "{told:?}");
}

async fn home_and_reference_tables(_: &Stage, client: &mut WireClient) {
    assert_in_order(
        &lines(client, "EXPLAIN SELECT * FROM notes").await,
        &["Route: single shard", "Shards: shard0", "Plan on shard0:", "notes"],
    );
    assert_in_order(
        &lines(client, "EXPLAIN SELECT * FROM currencies").await,
        &["Route: single shard", "Shards: shard", "Plan on shard", "currencies"],
    );
    assert_in_order(&lines(client, "EXPLAIN SELECT 1").await, &["Route: single shard", "Plan on shard0:", "Result"]);
    assert_in_order(&lines(client, "EXPLAIN SELECT * FROM shardgate.shards").await, &["Route: ", "Plan on map:"]);
    assert_in_order(&lines(client, "EXPLAIN SELECT shardgate.locate('accounts', '1')").await, &["Route: local"]);
}

/// What would fill it, or why nothing does.
async fn materialized_views(_: &Stage, client: &mut WireClient) {
    for statement in [
        "CREATE TABLE later (id int PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW filled AS SELECT id FROM notes UNION ALL SELECT 1",
        "CREATE MATERIALIZED VIEW unfilled AS SELECT id FROM notes UNION ALL SELECT id FROM later",
        "CREATE VIEW both_later AS SELECT id FROM accounts UNION ALL SELECT id FROM later",
        "SELECT shardgate.distribute_table('later', 'id')",
    ] {
        succeed(client, statement).await;
    }
    let told = lines(client, "EXPLAIN REFRESH MATERIALIZED VIEW filled").await;
    assert_in_order(&told, &["Route: single shard", "Shards: shard0", "Why: The statement names no sharded table."]);
    let told = lines(client, "EXPLAIN (SHARDS) REFRESH MATERIALIZED VIEW unfilled").await;
    assert_in_order(&told, &["Route: refused", "Why: REFRESH of materialized view", "Hint: Make it anew"]);
    let told = lines(client, "EXPLAIN (SHARDS) SELECT * FROM both_later").await;
    assert_in_order(&told, &["Route: scatter", "Table \"accounts\" is not restricted", "Table \"later\" is not restricted"]);
}

/// One valid document, of the type that PostgreSQL gives it.
async fn documents(stage: &Stage, client: &mut WireClient) {
    for (sql, shards) in [("SELECT * FROM accounts WHERE id = {z}", 1), ("SELECT * FROM accounts", 2), ("SELECT * FROM notes", 1)] {
        let sql = stage.fill_in(sql);
        let told = lines(client, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}")).await;
        let [document] = told.as_slice() else { panic!("{told:?}") };
        let document: Value = serde_json::from_str(document).expect("JSON");
        let plans = document.as_array().expect("an array");
        assert_eq!(plans.len(), shards, "{document}");
        assert!(plans.iter().all(|plan| plan["Plan"]["Node Type"].is_string() && plan["Shard"].is_string()), "{document}");
        assert_eq!(plans[0]["Shardgate"]["Shards"].as_array().map(Vec::len), Some(shards), "{document}");
        let told = lines(client, &format!("EXPLAIN (FORMAT XML) {sql}")).await;
        let [document] = told.as_slice() else { panic!("{told:?}") };
        assert!(client.value(&format!("SELECT '{}'::xml IS DOCUMENT", document.replace('\'', "''"))).await == "t", "{document}");
        let count = format!(
            "SELECT count(*) FROM unnest(xpath('/e:explain/e:Query/e:Plan', '{}'::xml, '{{{{e,http://www.postgresql.org/2009/explain}}}}'))",
            document.replace('\'', "''")
        );
        assert_eq!(client.value(&count).await, shards.to_string(), "{document}");
        let told = lines(client, &format!("EXPLAIN (FORMAT YAML) {sql}")).await;
        let [document] = told.as_slice() else { panic!("{told:?}") };
        assert!(document.starts_with("- Shardgate: \n    Route: "), "{document}");
        assert_eq!(document.matches("\n  Plan: ").count(), shards, "{document}");
    }
    for (format, oid) in [("TEXT", 25_u32), ("JSON", 114), ("XML", 142), ("YAML", 25)] {
        for sql in [
            format!("EXPLAIN (FORMAT {format}) SELECT * FROM accounts"),
            format!("EXPLAIN (FORMAT {format}) SELECT shardgate.locate('accounts', '1')"),
        ] {
            client.query(&sql);
            let answers = client.answers().await;
            client.parse("", &sql).describe(b'S', "").bind("", "", &[]).describe(b'P', "").execute("", 0).sync();
            let described = client.answers().await;
            for message in answers.iter().chain(&described).filter(|message| message.tag == b'T') {
                let offset = 2 + "QUERY PLAN".len() + 1 + 6;
                assert_eq!(message.body[offset..offset + 4], oid.to_be_bytes(), "{sql}");
            }
            assert!(answers.iter().any(|message| message.tag == b'D'), "{sql}");
        }
    }
}

/// The values of parameters decide, as they do for the statement, whether their types were declared or not.
async fn parameters(stage: &Stage, client: &mut WireClient) {
    for options in ["(COSTS OFF)", "ANALYZE", "(SHARDS)"] {
        let sql = format!("EXPLAIN {options} SELECT owner FROM accounts WHERE id = $1");
        for (key, shard) in [("{a}", "shard0"), ("{z}", "shard1")] {
            client.parse("", &sql).describe(b'S', "").bind("", "", &[&stage.fill_in(key)]).describe(b'P', "").execute("", 0).sync();
            let told = told_lines(client, &sql).await;
            assert_in_order(&told, &["Route: single shard", &format!("Shards: {shard}")]);
            client.unnamed(&sql, &[&stage.fill_in(key)]).sync();
            let told = client.transcript().await;
            assert!(told.starts_with(&format!("1 2 D(Route: single shard) D(Shards: {shard})")), "{told}");
        }
    }
    client
        .parse("", "EXPLAIN SELECT owner FROM accounts WHERE id = $1 OR balance = $2")
        .bind("", "", &["1", "2"])
        .execute("", 0)
        .sync();
    let told = client.transcript().await;
    assert!(told.contains("D(Route: scatter)") && told.contains("D(Plan on shard1:)"), "{told}");
}

/// What is prepared is explained with its arguments, as the statement would be with them.
async fn executions(stage: &Stage, client: &mut WireClient) {
    succeed(client, "PREPARE one AS SELECT owner FROM accounts WHERE id = $1").await;
    succeed(client, "PREPARE several (int) AS SELECT id FROM accounts WHERE balance > $1 ORDER BY id").await;
    succeed(
        client,
        "PREPARE gathered AS SELECT count(*) FROM accounts a JOIN accounts b ON b.balance = a.balance AND b.id = a.id + $1",
    )
    .await;
    for (key, shard) in [("{a}", "shard0"), ("{z}", "shard1")] {
        let sql = stage.fill_in(&format!("EXPLAIN (COSTS OFF) EXECUTE one ({key})"));
        assert_in_order(&lines(client, &sql).await, &["Route: single shard", &format!("Shards: {shard}"), "accounts"]);
    }
    let told = lines(client, "EXPLAIN (COSTS OFF) EXECUTE several (10 + 20)").await;
    assert_in_order(&told, &["Route: scatter", "Plan on shard0:", "(balance > 30)", "Plan on shard1:", "(balance > 30)"]);
    assert_in_order(
        &lines(client, "EXPLAIN ANALYZE EXECUTE gathered (1)").await,
        &["Route: gather", "actual rows=47", "Execution Time:"],
    );
    assert_in_order(&lines(client, "EXPLAIN (SHARDS) EXECUTE gathered (1)").await, &["Route: gather"]);
    for (sql, error) in [
        ("EXPLAIN EXECUTE none_such", "E(26000 prepared statement \"none_such\" does not exist)"),
        ("EXPLAIN EXECUTE one", "E(42601 wrong number of parameters for prepared statement \"one\")"),
        ("EXPLAIN EXECUTE several ('x')", "E(22P02 invalid input syntax for type integer: \"x\")"),
    ] {
        assert_eq!(client.ask(sql).await, format!("{error} Z(I)"), "{sql}");
    }
    let sql = "EXPLAIN ANALYZE SELECT count(*) FROM accounts a JOIN accounts b ON b.balance = a.balance AND b.id = a.id + $1 \
               WHERE a.owner <> $2";
    client.parse("", sql).describe(b'S', "").bind("", "", &["1", "o1"]).describe(b'P', "").execute("", 0).sync();
    assert_in_order(&told_lines(client, sql).await, &["Route: gather", "actual rows=", "Execution Time:"]);
}

async fn writes(stage: &Stage, client: &mut WireClient) {
    let update = stage.fill_in("UPDATE accounts SET balance = balance + 1 WHERE id = {z}");
    assert_in_order(
        &lines(client, &format!("EXPLAIN {update}")).await,
        &["Route: single shard", "Plan on shard1:", "Update on accounts"],
    );
    let balance = stage.fill_in("SELECT balance FROM accounts WHERE id = {z}");
    assert_eq!(client.value(&balance).await, "100", "nothing was run");
    assert_in_order(&lines(client, &format!("EXPLAIN ANALYZE {update}")).await, &["Plan on shard1:", "Update on accounts"]);
    assert_eq!(client.value(&balance).await, "102", "run once in each protocol");
    succeed(client, &format!("BEGIN; EXPLAIN ANALYZE {update}; ROLLBACK")).await;
    assert_eq!(client.value(&balance).await, "102");
    for sql in ["EXPLAIN ANALYZE UPDATE accounts SET balance = 0", "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM accounts"] {
        assert!(client.ask(sql).await.starts_with("E(0A000 "));
        client.unnamed(sql, &[]).sync();
        assert!(client.transcript().await.contains("E(0A000 "));
    }
    // A second writer is one, under EXPLAIN ANALYZE too: both are committed, or none.
    let other = stage.fill_in("EXPLAIN ANALYZE UPDATE accounts SET balance = balance WHERE id = {a}");
    succeed(client, &format!("BEGIN; EXPLAIN ANALYZE {update}")).await;
    succeed(client, &other).await;
    assert_eq!(client.ask("COMMIT").await, "C(COMMIT) Z(I)");
    assert_eq!(client.value(&balance).await, "103");
}

/// PostgreSQL's own, with nothing before them.
async fn errors(stage: &Stage, client: &mut WireClient) {
    let errors = [
        ("EXPLAIN SELECT nothing FROM accounts", "E(42703 column \"nothing\" does not exist) Z(I)"),
        ("EXPLAIN (FORMAT NONSENSE) SELECT 1", "E(22023 unrecognized value for EXPLAIN option \"format\": \"nonsense\") Z(I)"),
        ("EXPLAIN (NONSENSE) SELECT * FROM accounts", "E(42601 unrecognized EXPLAIN option \"nonsense\") Z(I)"),
        ("EXPLAIN ANALYZE SELECT 1 / (id - id) FROM accounts WHERE id = {z}", "E(22012 division by zero) Z(I)"),
        ("EXPLAIN ANALYZE SELECT 1 / (id - id) FROM accounts", "E(22012 division by zero) Z(I)"),
        ("EXPLAIN UPDATE accounts SET nothing = 1", "E(42703 column \"nothing\" of relation \"accounts\" does not exist) Z(I)"),
    ];
    for (sql, wanted) in errors {
        assert_eq!(client.ask(&stage.fill_in(sql)).await, wanted, "{sql}");
        client.unnamed(&stage.fill_in(sql), &[]).sync();
        let told = client.transcript().await;
        assert!(told.ends_with(wanted) && !told.contains('D'), "{sql}: {told}");
    }
    client.query("SELECT 1; EXPLAIN SELECT nothing FROM accounts");
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert_eq!(error.field(b'P'), "26", "the position is that of the client's text");
}

/// Its place among other statements, and its transaction.
async fn pipelines(stage: &Stage, client: &mut WireClient) {
    let explain = stage.fill_in("EXPLAIN (ANALYZE, COSTS OFF) UPDATE accounts SET owner = 'piped' WHERE id = {a}");
    let owner = stage.fill_in("SELECT owner FROM accounts WHERE id = {a}");
    client.unnamed(&owner, &[]).unnamed(&explain, &[]).unnamed(&owner, &[]).unnamed("SELECT 1 / 0", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("C(EXPLAIN) 1 2 D(piped) C(SELECT 1)") && told.contains("E(22012"), "{told}");
    assert_ne!(client.value(&owner).await, "piped", "the pipeline is one transaction");
    succeed(client, "BEGIN").await;
    assert!(client.ask("EXPLAIN SELECT nothing").await.ends_with("Z(E)"));
    assert_eq!(client.ask("COMMIT").await, "C(ROLLBACK) Z(I)");
}
