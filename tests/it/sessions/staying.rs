//! The biggest table of a statement stays on its shards, and the rows of the others are brought there: which one that is, what is
//! shipped, by EXPLAIN ANALYZE, and what becomes of it where too much would be brought. That answers are PostgreSQL's, the parity
//! tests show.
//!
//! `lines` has 60 000 rows: `part` is 1 to 2000 in turn, `amount` the remainder by 10. Of `wares`, 50 000 rows, half have 1 in each of
//! `a` and `b`, and these in `c` and `d`, which PostgreSQL does not expect.

use std::time::{Duration, Instant};

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_biggest_table_stays_where_it_is() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE TABLE lines (id bigint PRIMARY KEY, part int, amount int, note text)",
        "CREATE TABLE parts (id int PRIMARY KEY, kind text, weight numeric(10, 2))",
        "CREATE TABLE wares (id int PRIMARY KEY, part int, a int, b int, c int, d int)",
        "CREATE TABLE kinds (kind text PRIMARY KEY, label text)",
        "SELECT shardgate.distribute_table('lines', 'id', partitions => 12)",
        "SELECT shardgate.distribute_table('parts', 'id', partitions => 12)",
        "SELECT shardgate.distribute_table('wares', 'id', partitions => 12)",
        "INSERT INTO lines SELECT g, (g - 1) % 2000 + 1, g % 10, 'a note of some length' FROM generate_series(1, 60000) g",
        "INSERT INTO parts SELECT g, 'kind ' || g % 4, g / 100.0 FROM generate_series(1, 2000) g",
        "INSERT INTO wares SELECT g, g % 2000 + 1, g % 2, g % 2, g % 2, g % 2 FROM generate_series(1, 50000) g",
        "INSERT INTO kinds VALUES ('kind 1', 'first'), ('kind 2', NULL)",
        "ANALYZE lines",
        "ANALYZE parts",
        "ANALYZE wares",
    ] {
        succeed(&mut client, statement).await;
    }
    stays(&mut client).await;
    is_gathered(&mut client).await;
    with_values(&mut client).await;
    in_transactions(&stage, &mut client).await;
    without_nested_loops(&stage, &mut client).await;
    stage.assert_log_is_clean();
}

/// Of 60 000 rows one for each group comes from each shard, and no row of theirs.
async fn stays(client: &mut WireClient) {
    for (text, answer, shipped) in [
        ("SELECT sum(l.amount) FROM lines l JOIN parts p ON p.id = l.part", "270000", 2002),
        ("SELECT count(*) FROM lines l LEFT JOIN parts p ON p.id = l.part AND p.kind = 'kind 1' WHERE p.id IS NULL", "45000", 502),
        ("SELECT count(*) FROM lines l WHERE l.part NOT IN (SELECT id FROM parts WHERE weight > 10)", "30000", 1002),
        (
            "SELECT count(*) FROM lines l JOIN parts p ON p.id = l.part JOIN kinds k ON k.kind = p.kind WHERE k.label = 'first'",
            "15000",
            503,
        ),
    ] {
        assert_eq!(client.value(text).await, answer, "{text}");
        let lines = explained(client, &format!("EXPLAIN ANALYZE {text}")).await;
        assert!(lines.iter().any(|line| line.contains("(rows of public.parts)")), "{text}: {lines:#?}");
        assert_eq!(rows_shipped(&lines), shipped, "{text}: {lines:#?}");
        let lines = explained(client, &format!("EXPLAIN (SHARDS) {text}")).await;
        assert!(lines.iter().any(|line| line.contains("(rows of public.parts)")), "{text}: {lines:#?}");
    }
}

/// Where both are big, where what is big would be brought, and where there is more of the others than was expected.
async fn is_gathered(client: &mut WireClient) {
    let wares = "SELECT count(*) FROM lines l JOIN wares w ON w.part = l.part WHERE l.amount >= 0 AND w.a = 1 AND w.b = 1";
    let unexpected = format!("{wares} AND w.c = 1 AND w.d = 1");
    for _ in 0..2 {
        assert_eq!(client.value(wares).await, "750000");
        assert_eq!(client.value(&unexpected).await, "750000");
        assert_eq!(client.value("SELECT count(*) FROM parts p LEFT JOIN lines l ON p.id = l.part AND l.id > 50000").await, "10000");
    }
    let lines = explained(client, &format!("EXPLAIN ANALYZE {unexpected}")).await;
    assert!(!lines.iter().any(|line| line.contains("(rows of")), "{lines:#?}");
    let few = "SELECT count(*) FROM lines l JOIN parts p ON p.id = l.part WHERE l.id < 100";
    assert_eq!(client.value(few).await, "99");
    let lines = explained(client, &format!("EXPLAIN ANALYZE {few}")).await;
    assert!(!lines.iter().any(|line| line.contains("(rows of")), "{lines:#?}");
}

async fn with_values(client: &mut WireClient) {
    succeed(client, "PREPARE of_kind (text, int) AS SELECT count(*) FROM lines l JOIN parts p ON p.id = l.part WHERE p.kind = $1 AND l.amount < $2").await;
    assert_eq!(client.value("EXECUTE of_kind ('kind 1', 5)").await, "6000");
    assert_eq!(client.value("EXECUTE of_kind ('kind 1', NULL)").await, "0");
    assert_eq!(client.value("EXECUTE of_kind ('none', 5)").await, "0");
    let lines = explained(client, "EXPLAIN ANALYZE EXECUTE of_kind ('kind 1', 5)").await;
    assert!(lines.iter().any(|line| line.contains("(rows of public.parts)")), "{lines:#?}");
}

/// What the transaction has written is seen; then all is gathered.
async fn in_transactions(stage: &Stage, client: &mut WireClient) {
    let text = "SELECT sum(l.amount) FROM lines l JOIN parts p ON p.id = l.part WHERE p.kind <> 'kind 3'";
    let before: i64 = client.value(text).await.parse().expect("a number");
    succeed(client, "BEGIN").await;
    assert_eq!(client.value(text).await, before.to_string());
    succeed(client, "INSERT INTO lines VALUES (70000, 1, 1000, ''), (70001, 2, 1000, ''), (70002, 4, 1000, '')").await;
    succeed(client, "UPDATE parts SET kind = 'kind 3' WHERE id = 2").await;
    let inside = client.value(text).await;
    let mut other = stage.client().await;
    assert_eq!(other.value(text).await, before.to_string());
    succeed(client, "COMMIT").await;
    assert_eq!(client.value(text).await, inside);
    assert_eq!(other.value(text).await, inside);
}

/// Of rows that stand as constants PostgreSQL knows nothing: the shards plan as if there were many. Outside of it the session's own
/// settings hold.
async fn without_nested_loops(stage: &Stage, client: &mut WireClient) {
    let text = "SELECT sum(l.amount) FROM lines l JOIN parts p ON p.id = l.part";
    let shard = stage.cluster.connect_shard(1).await;
    let last = "SELECT FROM pg_stat_activity WHERE query LIKE 'SET LOCAL enable_nestloop = off;COPY%'";
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        client.value(text).await;
        // Unless something else has been asked there since.
        if !shard.query(last, &[]).await.expect("what ran last").is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "the shards plan with nested loops");
    }
    for _ in 0..4 {
        assert_eq!(client.value("SELECT current_setting('enable_nestloop') FROM lines WHERE id = 1").await, "on");
    }
}

async fn explained(client: &mut WireClient, sql: &str) -> Vec<String> {
    client.query(sql);
    let answers = client.answers().await;
    answers.iter().filter(|message| message.tag == b'D').map(|row| row.columns().swap_remove(0).expect("a line")).collect()
}

/// By all shards.
fn rows_shipped(lines: &[String]) -> u64 {
    let shipped = lines.iter().filter(|line| line.starts_with("On shard")).map(|line| {
        let rows = line.split_once("(actual rows=").and_then(|(_, rest)| rest.split_once(' ')).expect("how many").0;
        rows.parse::<u64>().expect("a number")
    });
    shipped.sum()
}
