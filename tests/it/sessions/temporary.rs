//! Temporary tables beside rows of several shards: whose rows a session reads, and in which state its connection is left when such
//! a statement ends in another way than with its answer. What the answers are, the parity tests show.

use std::time::Duration;

use super::gathered::until_gone;
use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const JOINED: &str = "SELECT count(*) FROM accounts a JOIN ids i ON i.id = a.id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_tables_are_combined_with_rows_of_several_shards() {
    let settings = vec![("cross_shard.gather_bytes_max", "65536".to_owned()), ("pool.size_per_shard", "6".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    of_one_name(&stage).await;
    of_another_shape(&stage).await;
    pipelines(&stage).await;
    explained(&stage).await;
    failures(&stage).await;
    cancelled(&stage).await;
    too_large(&stage).await;
    beside_notifications(&stage).await;
    committed_on_several_shards(&stage).await;
    for shard in [0, 1] {
        until_gone(&stage, shard, "state LIKE 'idle in transaction%'").await;
    }
    stage.assert_log_is_clean();
}

/// With these ids.
async fn client_with(stage: &Stage, ids: &str) -> WireClient {
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TEMP TABLE ids (id int)").await;
    succeed(&mut client, &format!("INSERT INTO ids SELECT id FROM generate_series({ids}) id")).await;
    client
}

/// Two clients at the same time, each with its own; a third has none.
async fn of_one_name(stage: &Stage) {
    let (mut few, mut many, mut none) =
        (client_with(stage, "1, 3").await, client_with(stage, "1, 100").await, stage.client().await);
    let told = |count: u32| format!("T(count) D({count}) C(SELECT 1) Z(I)");
    for _ in 0..20 {
        few.query(JOINED);
        many.query(JOINED);
        few.flush().await;
        many.flush().await;
        assert_eq!((few.transcript().await, many.transcript().await), (told(3), told(90)));
    }
    assert!(none.ask(JOINED).await.contains("E(42P01 relation \"ids\" does not exist)"));
    succeed(&mut few, "BEGIN; INSERT INTO ids VALUES (50), (51)").await;
    assert_eq!(few.value(JOINED).await, "5");
    assert_eq!(many.value(JOINED).await, "90");
    succeed(&mut few, "COMMIT").await;
    drop(few);
    assert_eq!(many.value(JOINED).await, "90");
}

/// The same text is another statement for who has other columns.
async fn of_another_shape(stage: &Stage) {
    let text = "SELECT i.* FROM accounts a JOIN ids i ON i.id = a.id";
    let (mut one, mut other) = (client_with(stage, "7, 7").await, stage.client().await);
    succeed(&mut other, "CREATE TEMP TABLE ids (id bigint PRIMARY KEY, note text COLLATE \"C\")").await;
    succeed(&mut other, "INSERT INTO ids VALUES (8, 'eight')").await;
    for _ in 0..3 {
        for (client, told) in [(&mut one, "T(id) D(7)"), (&mut other, "T(id,note) D(8,eight)")] {
            assert_eq!(client.ask(text).await, format!("{told} C(SELECT 1) Z(I)"));
            client.parse("", text).describe(b'S', "").bind("", "", &[]).execute("", 0).sync();
            assert_eq!(client.transcript().await, format!("1 t(0 parameters) {told} C(SELECT 1) Z(I)").replace(") D", ") 2 D"));
        }
    }
    succeed(&mut one, "ALTER TABLE ids ADD COLUMN more int DEFAULT 1").await;
    assert_eq!(one.ask(text).await, "T(id,more) D(7,1) C(SELECT 1) Z(I)");
}

async fn pipelines(stage: &Stage) {
    let mut client = client_with(stage, "1, 4").await;
    for _ in 0..2 {
        client.unnamed(JOINED, &[]).unnamed("SELECT count(*) FROM ids", &[]).unnamed(JOINED, &[]).sync();
        let told = client.transcript().await;
        assert_eq!(told, "1 2 D(4) C(SELECT 1) 1 2 D(4) C(SELECT 1) 1 2 D(4) C(SELECT 1) Z(I)");
    }
    client.unnamed("INSERT INTO ids VALUES (5)", &[]).unnamed(JOINED, &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(0A000 this statement is not supported after a write in the same pipeline)"), "{told}");
    assert_eq!(client.value("SELECT count(*) FROM ids").await, "4", "the pipeline has failed");
}

async fn explained(stage: &Stage) {
    let mut client = client_with(stage, "1, 4").await;
    let told = client.ask(&format!("EXPLAIN (SHARDS) {JOINED}")).await;
    for line in [
        "Route: gather",
        "On shard0: SELECT \"id\" FROM \"pg_temp\".\"ids\"",
        "On shard1: SELECT \"id\" FROM \"public\".\"accounts\" WHERE \"id\" = ANY (keys \"id\" of pg_temp.ids)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!told.contains("On shard1: SELECT \"id\" FROM \"pg_temp\""), "{told}");
    let told = client.ask(&format!("EXPLAIN ANALYZE {JOINED}")).await;
    for line in ["On shard0: SELECT \"id\" FROM \"pg_temp\".\"ids\" (actual rows=4 ", "= ANY (4 keys \"id\" of pg_temp.ids)"] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

/// The client's mistakes, in its own words; afterwards the connection does as it is told.
async fn failures(stage: &Stage) {
    let mut client = client_with(stage, "1, 4").await;
    let divided = "SELECT sum(1 / (i.id - i.id)) FROM accounts a JOIN ids i ON i.id = a.id";
    for begin in [false, true] {
        let (state, end) = if begin { ("E", "ROLLBACK") } else { ("I", "SELECT 1") };
        for (text, error) in [
            (divided, "E(22012 division by zero)"),
            ("SELECT a.nothing FROM accounts a JOIN ids USING (id)", "E(42703 column a.nothing does not exist)"),
            ("SELECT i FROM accounts a JOIN ids i USING (id)", "E(0A000 the whole row \"i\" is not supported here"),
        ] {
            if begin {
                succeed(&mut client, "BEGIN").await;
            }
            let told = client.ask(text).await;
            assert!(told.contains(error) && told.ends_with(&format!("Z({state})")), "{text}: {told}");
            client.ask(end).await;
            assert_eq!(client.ask("INSERT INTO ids VALUES (90)").await, "C(INSERT 0 1) Z(I)", "{text}");
            assert_eq!(client.value(JOINED).await, "5", "{text}");
            succeed(&mut client, "DELETE FROM ids WHERE id = 90").await;
        }
    }
    // Wherever it is then.
    for limit in 1..20 {
        succeed(&mut client, &format!("SET statement_timeout = '{limit}ms'")).await;
        client.ask(&format!("{JOINED}, generate_series(1, 1000000)")).await;
        succeed(&mut client, "SET statement_timeout = 0").await;
        assert_eq!(client.value(JOINED).await, "4", "after {limit} ms");
    }
}

/// While another shard is waited for.
async fn cancelled(stage: &Stage) {
    let mut client = client_with(stage, "1, 4").await;
    let locker = stage.cluster.connect_shard(1).await;
    locker.batch_execute("BEGIN; LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    for begin in ["SELECT 1", "BEGIN"] {
        succeed(&mut client, begin).await;
        client.query(JOINED);
        client.flush().await;
        stage.until_active(1, "COPY (SELECT").await;
        client.cancel().await;
        let told = client.transcript().await;
        assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
        client.ask("ROLLBACK").await;
        assert_eq!(client.value("SELECT count(*) FROM ids").await, "4");
    }
    locker.batch_execute("ROLLBACK").await.expect("released");
    assert_eq!(client.value(JOINED).await, "4");
}

/// Its rows count like any others.
async fn too_large(stage: &Stage) {
    let mut client = client_with(stage, "1, 30000").await;
    for begin in [false, true] {
        if begin {
            succeed(&mut client, "BEGIN").await;
        }
        let told = client.ask(JOINED).await;
        assert!(told.contains("E(53400 statement needs more than 65536 bytes of rows of several shards)"), "{told}");
        client.ask("ROLLBACK").await;
        assert_eq!(client.value(&format!("{JOINED} WHERE i.id < 4")).await, "3");
    }
}

/// They come on the connection that has the tables too.
async fn beside_notifications(stage: &Stage) {
    let mut client = client_with(stage, "1, 4").await;
    let mut teller = stage.client().await;
    succeed(&mut client, "LISTEN news").await;
    for number in 0..5 {
        succeed(&mut teller, &format!("NOTIFY news, '{number}'")).await;
        client.query(JOINED);
        let mut answers = client.answers().await;
        assert!(answers.iter().any(|message| message.tag == b'D' && message.columns() == [Some("4".to_owned())]));
        answers.retain(|message| message.tag == b'A');
        if answers.is_empty() {
            answers.extend(client.next_within(Duration::from_secs(10)).await);
        }
        let [notification] = answers.as_slice() else { panic!("{} messages", answers.len()) };
        assert!(notification.body.ends_with(format!("news\0{number}\0").as_bytes()), "{}", notification.describe());
    }
}

/// PostgreSQL cannot prepare what has touched a temporary table: the home shard decides.
async fn committed_on_several_shards(stage: &Stage) {
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TEMP TABLE changes (id int, owner text)").await;
    let rows = stage.fill_in("INSERT INTO changes VALUES ({a}, 'here'), ({z}, 'there')");
    let update = "UPDATE accounts a SET owner = c.owner FROM changes c WHERE c.id = a.id";
    let count = "SELECT count(*) FROM accounts WHERE owner IN ('here', 'there')";
    for (end, expected) in [("ROLLBACK", "0"), ("COMMIT", "2")] {
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, &rows).await;
        assert_eq!(client.ask(update).await, "C(UPDATE 2) Z(T)");
        assert_eq!(client.value("SELECT count(*) FROM accounts a JOIN changes c USING (id, owner)").await, "2");
        succeed(&mut client, end).await;
        assert_eq!(client.value(count).await, expected);
        assert_eq!(client.value("SELECT count(*) FROM changes").await, expected);
    }
    assert_eq!(client.ask("UPDATE accounts a SET owner = 'o' || a.id FROM changes c WHERE c.id = a.id").await, "C(UPDATE 2) Z(I)");
    assert_eq!(client.value(count).await, "0");
}
