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

/// A row of another commit must be on all copies when a MERGE looks for it, or on none: it waits for whoever writes there.
#[tokio::test]
async fn a_merge_that_finds_rows_of_copies_or_makes_them_waits_for_other_writers() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let (mut holder, mut client) = (stage.client().await, stage.client().await);
    succeed(&mut holder, "BEGIN; INSERT INTO currencies VALUES ('NEW', 'first')").await;
    client.query(
        "MERGE INTO currencies c USING (VALUES ('NEW', 'merged'), ('OTH', 'other')) v (code, name) ON c.code = v.code \
         WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT VALUES (v.code, v.name)",
    );
    client.flush().await;
    stage.until_active(0, "LOCK TABLE").await;
    succeed(&mut holder, "COMMIT").await;
    assert_eq!(client.transcript().await, "C(MERGE 2) Z(I)");
    for shard in 0..3 {
        let sql = "SELECT string_agg(name, ' ' ORDER BY name) FROM currencies WHERE code IN ('NEW', 'OTH')";
        let row = stage.cluster.connect_shard(shard).await.query_one(sql, &[]).await.expect("a row");
        assert_eq!(row.get::<_, String>(0), "merged other", "shard {shard}");
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
    client.query(
        "INSERT INTO accounts SELECT g, repeat('x', 1000), 1 FROM generate_series(1000, 3000) g \
         ON CONFLICT (id) DO UPDATE SET balance = 0",
    );
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
    // Those between the greatest owner that has 7, o9, and the least that has not.
    let told =
        client.ask("DELETE FROM accounts a WHERE balance > (SELECT avg(balance) FROM accounts b WHERE b.owner > a.owner)").await;
    assert_eq!(told, "C(DELETE 79) Z(I)");
    assert_eq!(client.row("SELECT count(*), sum(balance) FROM accounts").await, ["11", "170"]);
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

/// The rows of a queue stay locked until they are written, wherever in the statement they are chosen.
#[tokio::test]
async fn jobs_that_are_taken_are_nobody_elses_before_they_are_written() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let jobs = "SELECT id FROM accounts WHERE balance = 100 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED";
    for (round, take) in [
        format!("UPDATE accounts a SET balance = 1 FROM ({jobs}) q WHERE a.id = q.id"),
        format!("DELETE FROM accounts a USING ({jobs}) q WHERE a.id = q.id"),
        format!("MERGE INTO accounts a USING ({jobs}) q ON a.id = q.id WHEN MATCHED THEN UPDATE SET balance = 1"),
    ]
    .iter()
    .enumerate()
    {
        // Writes wait, locks of rows do not. At home the statement is looked at first, which would wait too.
        let mut holders = Vec::new();
        for shard in 1..3 {
            let holder = stage.cluster.connect_shard(shard).await;
            holder.batch_execute("BEGIN; LOCK TABLE accounts IN SHARE MODE").await.expect("locked");
            holders.push(holder);
        }
        let mut worker = stage.client().await;
        let verb = take[..6].trim().to_owned();
        let (asked, take) = (take.clone(), take.clone());
        let working = tokio::spawn(async move { worker.ask(&asked).await });
        stage.until_waiting(&take).await;
        let first = client.ask(jobs).await;
        let expected = 5 * round + 6;
        assert!(first.starts_with(&format!("T(id) D({expected})")), "{verb}: {first}");
        for holder in holders {
            holder.batch_execute("COMMIT").await.expect("released");
        }
        assert_eq!(working.await.expect("no panic"), format!("C({verb} 5) Z(I)"));
    }
    stage.assert_log_is_clean();
}

/// Sub-selects that name the target's rows and reach other shards: the rows are locked before they are looked at for the last time.
#[tokio::test]
async fn rows_that_change_while_they_are_chosen_are_looked_at_again() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let (mut first, mut second) = (stage.client().await, stage.client().await);
    succeed(&mut first, "CREATE TABLE marks (k bigint PRIMARY KEY, account bigint, least int)").await;
    succeed(&mut first, "SELECT shardgate.distribute_table('marks', 'k', partitions => 3)").await;
    let [kept, deleted] = [stage.key(0, 0), stage.key(1, 0)];
    succeed(&mut first, &format!("INSERT INTO marks VALUES (1, {kept}, 150), (2, {deleted}, 150)")).await;
    let delete =
        "DELETE FROM accounts WHERE EXISTS (SELECT FROM marks m WHERE m.account = accounts.id AND m.least > accounts.balance)";
    succeed(&mut first, "BEGIN").await;
    succeed(&mut first, &format!("UPDATE accounts SET balance = 200 WHERE id = {kept}")).await;
    let waiting = tokio::spawn(async move { (second.ask(delete).await, second) });
    stage.until_active(0, "FETCH FORWARD").await;
    assert_eq!(first.ask("COMMIT").await, "C(COMMIT) Z(I)");
    let (told, mut second) = waiting.await.expect("no panic");
    assert_eq!(told, "C(DELETE 1) Z(I)");
    let left = format!("SELECT count(*), max(balance) FROM accounts WHERE id IN ({kept}, {deleted})");
    assert_eq!(second.row(&left).await, ["1", "200"]);
    // Many rows are written in several statements, but looked at before the first of these.
    succeed(&mut first, "INSERT INTO accounts SELECT g, 'new', 1 FROM generate_series(100001, 112000) g").await;
    succeed(&mut first, "INSERT INTO marks SELECT g, g, 0 FROM generate_series(100001, 112000) g").await;
    let thin = "DELETE FROM accounts a WHERE id > 100000 AND EXISTS (SELECT FROM marks m, accounts b WHERE m.k = a.id AND b.id = m.account - 1)";
    assert_eq!(first.ask(thin).await, "C(DELETE 11999) Z(I)");
    assert_eq!(first.row("SELECT min(id), count(*) FROM accounts WHERE id > 100000").await, ["100001", "1"]);
    stage.assert_log_is_clean();
}

/// PostgreSQL asks for UPDATE alone; nobody gets to do more than he may.
#[tokio::test]
async fn rows_that_change_their_key_need_the_rights_to_move_them() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let (from, to) = (stage.key(0, 0), stage.key(1, 0));
    succeed(&mut client, &format!("DELETE FROM accounts WHERE id = {to}")).await;
    let update = format!("UPDATE accounts SET id = {to} WHERE id = {from}");
    succeed(&mut client, "SET ROLE reader").await;
    assert!(client.ask(&update).await.contains("42501 permission denied for table accounts"));
    for granted in ["SELECT, UPDATE", "DELETE"] {
        succeed(&mut client, &format!("RESET ROLE; GRANT {granted} ON accounts TO reader; SET ROLE reader")).await;
        client.query(&update);
        let answers = client.answers().await;
        assert_eq!(answers[0].field(b'C'), "42501", "{granted}");
        assert_eq!(answers[0].field(b'M'), "permission denied to move the rows of this UPDATE");
        assert_eq!(
            answers[0].field(b'H'),
            "Moving needs the privileges SELECT, INSERT and DELETE on the whole table, beside UPDATE."
        );
    }
    succeed(&mut client, "RESET ROLE; GRANT INSERT ON accounts TO reader; SET ROLE reader").await;
    assert_eq!(client.ask(&update).await, "C(UPDATE 1) Z(I)");
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn rows_that_are_chosen_first_need_the_right_to_lock_them() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE marks (k bigint PRIMARY KEY, account bigint)").await;
    succeed(&mut client, "SELECT shardgate.distribute_table('marks', 'k', partitions => 3)").await;
    succeed(&mut client, &format!("INSERT INTO marks VALUES (1, {})", stage.key(0, 0))).await;
    succeed(&mut client, "GRANT SELECT ON marks TO reader; GRANT DELETE ON accounts TO reader").await;
    succeed(&mut client, "SET ROLE reader").await;
    client.query("DELETE FROM accounts WHERE EXISTS (SELECT FROM marks WHERE account = accounts.id)");
    let answers = client.answers().await;
    assert_eq!((answers[0].field(b'C').as_str(), answers[0].field(b'H').is_empty()), ("42501", false));
    succeed(&mut client, "RESET ROLE; GRANT UPDATE (owner) ON accounts TO reader").await;
    succeed(&mut client, "SET ROLE reader").await;
    let delete = "DELETE FROM accounts WHERE EXISTS (SELECT FROM marks WHERE account = accounts.id)";
    assert_eq!(client.ask(delete).await, "C(DELETE 1) Z(I)");
    stage.assert_log_is_clean();
}
