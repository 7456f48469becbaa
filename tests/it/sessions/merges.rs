//! What EXPLAIN (SHARDS) says of answers that the proxy puts together; the answers themselves are compared in `parity`.

use super::stage::Stage;
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_what_is_made_of_the_shards_answers() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for (sql, expected) in [
        ("SELECT count(*) FROM accounts", &["Merge: one group of all rows, sum of column 1"][..]),
        (
            "SELECT balance, avg(id) FROM accounts GROUP BY balance ORDER BY count(*) DESC LIMIT 3",
            &[
                "On shard1: SELECT balance, pg_catalog.sum(id) AS \"avg\", pg_catalog.count(id) AS shardgate_hidden, count(*) AS shardgate_hidden FROM accounts GROUP BY balance",
                "Merge: group by column 1, sum of column 2 by sum of column 3, sum of column 3, sum of column 4, sort by column 4 descending, limit literal 1",
            ],
        ),
        (
            "SELECT sum(balance) / count(*) FROM accounts HAVING count(*) > 5",
            &[
                "On shard0: SELECT NULL, count(*) AS shardgate_hidden, sum(balance) AS shardgate_hidden, count(*) AS shardgate_hidden FROM accounts",
                "Merge: one group of all rows, sum of column 2, sum of column 3, sum of column 4, then PostgreSQL on one of the shards: \
                 SELECT shardgate_groups.c3 / shardgate_groups.c2 AS \"?column?\" FROM (...) AS shardgate_groups (c1, c2, c3, c4) \
                 WHERE shardgate_groups.c4 > 5",
            ],
        ),
        (
            "SELECT DISTINCT balance FROM accounts ORDER BY 1 OFFSET 1 + 1",
            &[
                "On shard0: SELECT DISTINCT balance, (1 + 1)::pg_catalog.int8 AS shardgate_hidden FROM accounts ORDER BY 1 OFFSET COALESCE((SELECT 0 OFFSET (1 + 1)), 0)",
                "Merge: distinct rows, by column 1, offset as column 2 says",
            ],
        ),
        (
            "SELECT id FROM accounts ORDER BY balance % 7 FETCH FIRST 2 ROWS WITH TIES",
            &["Merge: by column 2, limit literal 2 with ties"],
        ),
    ] {
        let lines = explained(&mut client, sql).await;
        assert_eq!(lines.first().map(String::as_str), Some("Route: scatter"), "{sql}: {lines:#?}");
        for line in expected {
            assert!(lines.iter().any(|found| found == line), "{sql}: no {line} in {lines:#?}");
        }
    }
    for sql in ["SELECT count(DISTINCT balance) FROM accounts", "SELECT string_agg(owner, ',') FROM accounts"] {
        let lines = explained(&mut client, sql).await;
        assert_eq!(lines.first().map(String::as_str), Some("Route: gather"), "{sql}: {lines:#?}");
    }
    stage.assert_log_is_clean();
}

async fn explained(client: &mut WireClient, sql: &str) -> Vec<String> {
    client.query(&format!("EXPLAIN (SHARDS) {sql}"));
    let answers = client.answers().await;
    let rows = answers.iter().filter(|message| message.tag == b'D');
    rows.map(|row| row.columns().swap_remove(0).expect("a line")).collect()
}
