//! Keys of what is loaded first keep rows of the big tables from being shipped: how many come, by EXPLAIN ANALYZE, and that the
//! answer is the same without them. What it is for every kind of statement, the parity tests show.
//!
//! `orders` has 20 000 rows: `account` is 1 to 1000 in turn, NULL in every twentieth, `owner` is `o<account>`, `price` the account.

use std::pin::pin;

use bytes::Bytes;
use futures::SinkExt;

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_join_are_not_shipped() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    create(&stage, &mut client).await;
    fewer_are_shipped(&mut client).await;
    all_are_where_each_counts(&mut client).await;
    with_values(&mut client).await;
    of_temporary_tables(&mut client).await;
    shown(&mut client).await;
    too_many(&stage, &mut client).await;
    in_transactions(&stage, &mut client).await;
    stage.assert_log_is_clean();
}

/// In the transaction's snapshots, which its own connections have: what others change meanwhile is not seen, and what comes to an
/// end with an error leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_read_in_rounds() {
    let settings = vec![("cross_shard.isolation", "per_shard".to_owned()), ("cross_shard.gather_bytes_max", "131072".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    create(&stage, &mut client).await;
    let by_account = "SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account WHERE a.owner IN ('o7', 'mine')";
    let by_label = "SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account WHERE l.owner = 'o7'";
    succeed(&mut client, "CREATE TEMP TABLE wanted AS SELECT 7 AS account").await;
    let by_wanted = "SELECT count(*) FROM orders o JOIN wanted w USING (account)";
    let failing = format!("{by_account} AND 1 / (a.balance - 100) = 1");
    let too_large = "SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account WHERE o.owner <> 'o7'";
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        succeed(&mut client, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        succeed(&mut client, "SET LOCAL DateStyle = 'SQL, DMY'").await;
        // Each shard takes its snapshot when it is asked first.
        succeed(&mut client, "SELECT count(*) FROM accounts").await;
        let mut other = stage.client().await;
        succeed(&mut other, "INSERT INTO orders SELECT 100000 + g, 7, 'o7' FROM generate_series(1, 30) g").await;
        for text in [by_account, by_label, by_wanted] {
            assert_eq!(shipped_orders(&mut client, text).await, 20, "{level}: {text}");
        }
        assert_eq!(client.value(by_account).await, "20", "{level}");
        assert_eq!(client.value(by_label).await, "40", "{level}");
        succeed(&mut client, "SAVEPOINT a").await;
        for (text, error) in
            [(failing.as_str(), "E(22012 division by zero)"), (too_large, "E(53400 statement needs more than 131072")]
        {
            let told = client.ask(text).await;
            assert!(told.contains(error) && told.ends_with("Z(E)"), "{level}: {told}");
            succeed(&mut client, "ROLLBACK TO a").await;
        }
        succeed(&mut client, &stage.fill_in("UPDATE accounts SET owner = 'mine' WHERE id IN ({a}, {z}) AND id <> 7")).await;
        let mine: u32 =
            client.value("SELECT count(*) FROM accounts WHERE owner = 'mine' AND id % 20 <> 0").await.parse().expect("a number");
        assert_eq!(client.value(by_account).await, (20 + 20 * mine).to_string(), "{level}");
        let day = stage.fill_in("SELECT date '2024-01-31'::text FROM accounts WHERE id = {z}");
        assert_eq!(client.value(&day).await, "31/01/2024", "{level}");
        succeed(&mut client, "ROLLBACK").await;
        assert_eq!(client.value(by_account).await, "50", "{level}");
        succeed(&mut other, "DELETE FROM orders WHERE id > 100000").await;
    }
    stage.assert_log_is_clean();
}

async fn create(stage: &Stage, client: &mut WireClient) {
    for statement in [
        "CREATE TABLE orders (id bigint PRIMARY KEY, account int, owner text, price numeric(10, 2))",
        "CREATE TABLE labels (id int PRIMARY KEY, account int, owner text, price numeric(10, 2))",
        "SELECT shardgate.distribute_table('orders', 'id', partitions => 12)",
        "INSERT INTO labels VALUES (1, 7, 'o7', 7), (2, 7, 'o7', 7.5), (3, 8, 'o8', 8), (4, NULL, NULL, NULL)",
    ] {
        succeed(client, statement).await;
    }
    let line = |id: u32| match id % 20 {
        0 => format!("{id}\t\\N\t\\N\t\\N\n"),
        _ => format!("{id}\t{account}\to{account}\t{account}\n", account = (id - 1) % 1000 + 1),
    };
    let loader = stage.proxy.connect().await;
    let mut copy = pin!(loader.copy_in::<_, Bytes>("COPY orders FROM STDIN").await.expect("COPY"));
    copy.send(Bytes::from((1..=ROWS).map(line).collect::<String>())).await.expect("rows");
    assert_eq!(copy.finish().await.expect("the end of COPY"), u64::from(ROWS));
}

/// Each account has twenty orders.
async fn fewer_are_shipped(client: &mut WireClient) {
    for (text, answer, shipped) in [
        ("SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account WHERE a.owner = 'o7'", "20", 20),
        (
            "SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account WHERE a.owner IN ('o7', 'o9') AND o.id > 1000",
            "38",
            38,
        ),
        ("SELECT count(*) FROM orders o JOIN accounts a ON a.owner = o.owner WHERE a.id IN (7, 9)", "40", 40),
        ("SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.price WHERE a.owner = 'o7'", "20", 20),
        ("SELECT count(*) FROM accounts a LEFT JOIN orders o ON o.account = a.id WHERE a.owner IN ('o7', 'o20')", "21", 20),
        (
            "SELECT count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM accounts a WHERE a.id = o.account AND a.owner = 'o7')",
            "20",
            20,
        ),
        ("SELECT count(*) FROM orders JOIN (SELECT owner FROM accounts WHERE id = 7 LIMIT 1) a USING (owner)", "20", 20),
        ("SELECT count(*) FROM orders o JOIN (SELECT owner FROM accounts WHERE id = 7 LIMIT 1) a ON a.owner = o.owner", "20", 20),
        // A sub-select that the shards compute.
        ("SELECT count(*) FROM orders o WHERE o.owner IN (SELECT owner FROM accounts WHERE id IN (7, 9) GROUP BY owner)", "40", 40),
        ("WITH a AS (SELECT * FROM accounts WHERE id = 7) SELECT count(*) FROM orders o JOIN a USING (owner)", "20", 20),
        ("WITH a AS (SELECT * FROM accounts WHERE id = 7) SELECT count(*) FROM orders o, a WHERE a.owner = o.owner", "20", 20),
        // Of the home shard: a value that two rows have, NULL, one that no order has.
        ("SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account WHERE l.id < 3", "40", 20),
        ("SELECT count(*) FROM orders o JOIN labels l ON l.owner = o.owner WHERE l.id > 2", "20", 20),
        ("SELECT count(*) FROM orders o JOIN labels l ON l.price = o.id WHERE l.account = 7", "1", 1),
        ("SELECT count(*) FROM labels l LEFT JOIN orders o ON o.account = l.account WHERE l.id = 4", "1", 0),
        ("SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account WHERE l.id = 5", "0", 0),
        (
            "SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account JOIN accounts a ON a.id = o.id WHERE l.id = 3",
            "1",
            20,
        ),
    ] {
        assert_eq!(client.value(text).await, answer, "{text}");
        assert_eq!(shipped_orders(client, text).await, shipped, "{text}");
    }
}

async fn all_are_where_each_counts(client: &mut WireClient) {
    for (text, answer) in [
        ("SELECT count(*) FROM orders o LEFT JOIN accounts a ON a.id = o.account AND a.owner = 'o7'", "20000"),
        ("SELECT count(*) FROM orders o FULL JOIN accounts a ON a.id = o.account AND a.owner = 'o7'", "20089"),
        (
            "SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM labels l WHERE l.account = o.account AND l.id = 1)",
            "19980",
        ),
        ("SELECT count(*) FROM orders o WHERE o.account NOT IN (SELECT l.account FROM labels l WHERE l.id < 3)", "18980"),
        ("SELECT count(*) FROM orders o JOIN orders q ON q.account = o.id WHERE o.owner = 'o7'", "20"),
        ("SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account", "1720"),
    ] {
        assert_eq!(client.value(text).await, answer, "{text}");
        assert!(shipped_orders(client, text).await >= 19_000, "{text}");
    }
}

/// Whatever else is said of them; not where they are the kept side's.
async fn of_temporary_tables(client: &mut WireClient) {
    succeed(client, "CREATE TEMP TABLE wanted (account int, owner text, price numeric)").await;
    succeed(
        client,
        "INSERT INTO wanted VALUES (7, 'o7', 7), (9, 'o9', 9), (9, 'o9', 9.5), (5000, 'nobody', NULL), (NULL, NULL, NULL)",
    )
    .await;
    for (text, answer, shipped) in [
        ("SELECT count(*) FROM orders o JOIN wanted USING (account)", "60", 40),
        ("SELECT count(*) FROM orders o WHERE o.account IN (SELECT account FROM wanted)", "40", 40),
        ("SELECT count(*) FROM orders o JOIN wanted w ON w.owner = o.owner WHERE o.price < 8", "20", 20),
        ("SELECT count(*) FROM orders o JOIN wanted w ON w.price = o.id", "2", 2),
        ("SELECT count(*) FROM wanted w LEFT JOIN orders o USING (account)", "62", 40),
        ("SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account JOIN wanted w ON w.account = a.id", "60", 40),
        ("SELECT count(*) FROM orders o WHERE EXISTS (SELECT FROM wanted w WHERE w.account = o.account AND w.price > 8)", "20", 20),
        ("SELECT count(*) FROM orders o LEFT JOIN wanted w USING (account)", "20020", 20000),
        ("SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM wanted w WHERE w.account = o.account)", "19960", 20000),
    ] {
        assert_eq!(client.value(text).await, answer, "{text}");
        assert_eq!(shipped_orders(client, text).await, shipped, "{text}");
    }
    succeed(client, "DROP TABLE wanted").await;
}

/// In the extended protocol, for another value each time.
async fn with_values(client: &mut WireClient) {
    let text = "SELECT count(*) FROM orders o JOIN labels l ON l.owner = o.owner WHERE l.id = $1";
    for (value, count) in [("3", 20), ("4", 0), ("77", 0)] {
        let told = client.unnamed(text, &[value]).sync().transcript().await;
        assert_eq!(told, format!("1 2 D({count}) C(SELECT 1) Z(I)"), "{value}");
    }
}

async fn shown(client: &mut WireClient) {
    let text = "SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account WHERE l.id < 3";
    let told = client.ask(&format!("EXPLAIN (SHARDS) {text}")).await;
    for line in [
        "On shard0: SELECT \"account\" FROM \"public\".\"labels\" WHERE \"id\" OPERATOR(pg_catalog.<) (3)",
        "On shard1: SELECT \"id\", \"account\" FROM \"public\".\"orders\" WHERE \"account\" = ANY (keys \"account\" of public.labels)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!told.contains("On shard1: SELECT \"account\" FROM \"public\".\"labels\""), "{told}");
    let told = client.ask(&format!("EXPLAIN ANALYZE {text}")).await;
    assert!(told.contains("WHERE \"account\" = ANY (1 keys \"account\" of public.labels) (actual rows="), "{told}");
}

/// As many texts as are sent, and one more.
async fn too_many(stage: &Stage, client: &mut WireClient) {
    let home = stage.cluster.connect_shard(0).await;
    let labels = "INSERT INTO labels SELECT 100000 + g, NULL, 'o' || g FROM generate_series(1, 10001) g";
    home.batch_execute(labels).await.expect("labels");
    let text = |most: u32| {
        format!("SELECT count(*) FROM orders o JOIN labels l ON l.owner = o.owner WHERE l.id BETWEEN 100001 AND {}", 100_000 + most)
    };
    for (most, condition) in [(10_000, "= ANY (10000 keys \"owner\" of public.labels)"), (10_001, "\"owner\" IS NOT NULL (actual")]
    {
        assert_eq!(client.value(&text(most)).await, "19000");
        let told = client.ask(&format!("EXPLAIN ANALYZE {}", text(most))).await;
        assert!(told.contains(condition), "{condition}: {told}");
    }
    home.batch_execute("INSERT INTO labels VALUES (200001, NULL, repeat('o', 129)), (200002, NULL, 'o7')")
        .await
        .expect("a long one");
    let long = "SELECT count(*) FROM orders o JOIN labels l ON l.owner = o.owner WHERE l.id > 200000";
    assert_eq!(client.value(long).await, "20");
    assert_eq!(shipped_orders(client, long).await, 19_000);
}

/// Its own rows count, on a shard and on the home shard; what it has not changed is restricted there too.
async fn in_transactions(stage: &Stage, client: &mut WireClient) {
    let by_account = "SELECT count(*) FROM orders o JOIN accounts a ON a.id = o.account WHERE a.owner = 'mine'";
    let by_label = "SELECT count(*) FROM orders o JOIN labels l ON l.account = o.account WHERE l.owner = 'mine'";
    for shard in 0..2 {
        let id = stage.key(shard, if stage.key(shard, 0) % 20 == 0 { 1 } else { 0 });
        for statement in ["BEGIN".to_owned(), format!("UPDATE accounts SET owner = 'mine' WHERE id = {id}")] {
            succeed(client, &statement).await;
        }
        assert_eq!(client.value(by_account).await, "20", "{id}");
        succeed(client, &format!("INSERT INTO orders VALUES ({}, {id})", 1_000_000 + id)).await;
        assert_eq!(client.value(by_account).await, "21", "{id}");
        succeed(client, "UPDATE labels SET owner = 'mine' WHERE id = 3").await;
        assert_eq!(client.value(by_label).await, "20", "{id}");
        succeed(client, "ROLLBACK").await;
        assert_eq!(client.value(by_account).await, "0", "{id}");
        assert_eq!(client.value(by_label).await, "0", "{id}");
    }
}

/// How many rows of `orders` the shards have sent.
async fn shipped_orders(client: &mut WireClient, sql: &str) -> u64 {
    client.query(&format!("EXPLAIN ANALYZE {sql}"));
    let answers = client.answers().await;
    let lines = answers.iter().filter(|message| message.tag == b'D').map(|row| row.columns().swap_remove(0).expect("a line"));
    let rows = lines.filter(|line| line.starts_with("On shard") && line.contains("\"public\".\"orders\"")).map(|line| {
        let rows = line.split_once("(actual rows=").and_then(|(_, rest)| rest.split_once(' ')).expect("how many").0.to_owned();
        rows.parse::<u64>().expect("a number")
    });
    let rows: Vec<u64> = rows.collect();
    assert!(!rows.is_empty(), "{sql}: no rows of orders were gathered");
    rows.iter().sum()
}

const ROWS: u32 = 20_000;
