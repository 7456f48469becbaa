//! Writes whose queries are answered first: what they promise beyond the rows that they leave, which the parity cases compare.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test]
async fn rows_are_deleted_in_batches_of_exactly_so_many() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let mut deleted = Vec::new();
    loop {
        let told = client.ask("DELETE FROM accounts WHERE id IN (SELECT id FROM accounts WHERE balance = 100 LIMIT 35)").await;
        let count: usize =
            told.strip_prefix("C(DELETE ").and_then(|rest| rest.split(')').next()).expect(&told).parse().expect("a count");
        if count == 0 {
            break;
        }
        deleted.push(count);
    }
    assert_eq!(deleted, [35, 35, 20]);
}

#[tokio::test]
async fn a_write_over_several_shards_has_one_time() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask("UPDATE accounts SET owner = now()::text").await, "C(UPDATE 90) Z(I)");
    assert_eq!(client.value("SELECT count(DISTINCT owner) FROM accounts").await, "1");
    client.unnamed("UPDATE accounts SET owner = clock_timestamp()::text || current_timestamp::text", &[]).sync();
    assert!(client.transcript().await.ends_with("C(UPDATE 90) Z(I)"));
    succeed(&mut client, "BEGIN; UPDATE accounts SET owner = now()::text; INSERT INTO currencies VALUES ('CLK', now()::text)")
        .await;
    let times = "SELECT count(DISTINCT owner), (SELECT name FROM currencies WHERE code = 'CLK') = max(owner) FROM accounts";
    assert_eq!(client.row(times).await, ["1", "t"], "all statements of a transaction have its time");
    succeed(&mut client, "COMMIT").await;
    for shard in 0..3 {
        let row = stage.cluster.connect_shard(shard).await.query_one("SELECT name FROM currencies WHERE code = 'CLK'", &[]).await;
        let first = stage.cluster.connect_shard(0).await.query_one("SELECT name FROM currencies WHERE code = 'CLK'", &[]).await;
        let (row, first): (String, String) = (row.expect("a row").get(0), first.expect("a row").get(0));
        assert_eq!(row, first, "copies are alike");
    }
}

#[tokio::test]
async fn what_could_not_be_exact_is_refused_by_the_setting() {
    let settings = vec![("cross_shard.merge_bytes_max", "1048576".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    let update = "UPDATE accounts SET owner = (SELECT max(now())::text || avg(balance::float8) FROM accounts)";
    let times = "DELETE FROM accounts WHERE now() > ANY (SELECT 'infinity'::timestamptz FROM accounts)";
    let floats = "DELETE FROM accounts WHERE balance::float8 = ANY (SELECT 0.1::float8 FROM accounts)";
    for (set, write) in
        [("SET DateStyle = 'SQL, DMY'", times), ("SET extra_float_digits = 0", floats), ("SET client_encoding = 'LATIN1'", update)]
    {
        succeed(&mut client, set).await;
        client.query(write);
        let answers = client.answers().await;
        assert_eq!(answers[0].field(b'C'), "0A000", "{set}");
        assert!(!answers[0].field(b'D').is_empty() && !answers[0].field(b'H').is_empty(), "{set}");
        succeed(&mut client, "RESET ALL").await;
        assert_eq!(client.ask(write).await.split(' ').next().map(|word| &word[..2]), Some("C("), "{write}");
    }
    client.query("INSERT INTO accounts SELECT g, repeat('x', 1000), 1 FROM generate_series(1000, 3000) g");
    let answers = client.answers().await;
    assert_eq!(answers[0].field(b'C'), "53400");
    assert!(answers[0].field(b'D').contains("cross_shard.merge_bytes_max"));
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE id >= 1000").await, "0");
}

#[tokio::test]
async fn the_rules_of_transactions_bind_staged_writes_too() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let writes = [
        "INSERT INTO accounts SELECT id + 1000, owner, balance FROM accounts",
        "DELETE FROM accounts WHERE id IN (SELECT max(id) FROM accounts)",
        "UPDATE accounts SET id = id + 1000",
    ];
    for write in writes {
        succeed(&mut client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        let told = client.ask(write).await;
        assert!(told.starts_with("E(0A000 ") && told.ends_with("Z(E)"), "{told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    let settings = vec![("cross_shard.writes", "refuse".to_owned())];
    let refusing = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = refusing.client().await;
    for write in [
        "INSERT INTO accounts SELECT id + 1000, owner, balance FROM accounts",
        "UPDATE accounts SET id = id + 1000",
        "TRUNCATE accounts",
    ] {
        let told = client.ask(write).await;
        assert!(told.starts_with("E(0A000 ") && told.ends_with("Z(I)"), "{write}: {told}");
    }
    assert_eq!(client.row("SELECT count(*), max(id) FROM accounts").await, ["90", "90"]);
    stage.assert_log_is_clean();
}

/// A name that the sub-select does not know is the outer statement's: it is not answered by itself.
#[tokio::test]
async fn a_query_that_names_the_outer_row_stays_where_it_is() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    // "owner" is no column of currencies.
    assert_eq!(
        client
            .ask("UPDATE accounts SET balance = 7 WHERE owner IN (SELECT owner FROM currencies WHERE code = 'EUR') AND id < 11")
            .await,
        "C(UPDATE 10) Z(I)"
    );
    let told =
        client.ask("DELETE FROM accounts a WHERE balance > (SELECT avg(balance) FROM accounts b WHERE b.owner > a.owner)").await;
    assert!(told.starts_with("E(0A000 "), "{told}");
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
}

/// Workers take jobs of one queue that lies on several shards: each as many as it asks for, none the same.
#[tokio::test]
async fn jobs_are_taken_in_exactly_the_number_asked_for() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let take = "UPDATE accounts SET balance = 1 WHERE id IN \
                (SELECT id FROM accounts WHERE balance = 100 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) RETURNING id";
    let (mut one, mut other) = (stage.client().await, stage.client().await);
    let mut taken = Vec::new();
    for client in [&mut one, &mut other] {
        succeed(client, "BEGIN").await;
        client.query(take);
        let answers = client.answers().await;
        let told: Vec<String> = answers.iter().map(|message| message.describe()).collect();
        let ids: Vec<i64> = answers
            .iter()
            .filter(|message| message.tag == b'D')
            .map(|row| row.columns()[0].clone().expect("an id").parse().expect("an id"))
            .collect();
        assert_eq!(ids.len(), 5, "{told:?}");
        taken.extend(ids);
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=10).collect::<Vec<i64>>(), "the second worker passes over what the first has");
    succeed(&mut one, "COMMIT").await;
    succeed(&mut other, "ROLLBACK").await;
    assert_eq!(one.value("SELECT count(*) FROM accounts WHERE balance = 1").await, "5");
    one.unnamed(take, &[]).sync();
    assert!(one.transcript().await.ends_with("C(UPDATE 5) Z(I)"));
    assert_eq!(one.value("SELECT count(*) FROM accounts WHERE balance = 1").await, "10");
}
