//! What becomes of a transaction when partitions that it uses change their owner.

use super::by_hand::Moving;
use crate::sessions::succeed;

const MOVED: &str = "E(40001 the partition of this key has moved)";

/// What it has written or locked may have been changed by others at the new owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transaction_has_written_or_locked_is_not_found_elsewhere() {
    let moving = Moving::start(2, &[]).await;
    for begin in [
        "SELECT FROM accounts WHERE id = {k} FOR UPDATE",
        "SELECT FROM accounts WHERE id = {k} FOR KEY SHARE",
        "UPDATE accounts SET owner = 'x' WHERE id = {k}",
        "SELECT id FROM accounts FOR SHARE",
        "UPDATE accounts SET owner = 'x'",
    ] {
        for then in [
            "UPDATE accounts SET balance = 1 WHERE id = {k}",
            "SELECT balance FROM accounts WHERE id = {l}",
            "SELECT count(*) FROM accounts",
            "INSERT INTO accounts VALUES ({l}, 'x', 1), ({z}, 'x', 1) ON CONFLICT DO NOTHING",
        ] {
            let mut client = moving.client().await;
            moving.run(&mut client, &["BEGIN", begin]).await;
            moving.switch_and_follow(200).await;
            assert_eq!(moving.ask(&mut client, then).await, format!("{MOVED} Z(E)"), "{begin}; {then}");
            succeed(&mut client, "ROLLBACK").await;
            moving.tidy().await;
            assert!(moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {k}").await.contains("D(200)"));
        }
    }
    // Rows are not locked any more where they were.
    for (begin, then) in [("DECLARE c CURSOR FOR SELECT balance FROM accounts WHERE id = {k} FOR UPDATE", "FETCH c")] {
        let mut client = moving.client().await;
        moving.run(&mut client, &["BEGIN", begin]).await;
        moving.switch_and_follow(200).await;
        assert_eq!(moving.ask(&mut client, then).await, format!("{MOVED} Z(E)"), "{begin}; {then}");
        succeed(&mut client, "ROLLBACK").await;
        moving.tidy().await;
        // DECLARE makes a portal, too.
        moving.run(&mut client, &["BEGIN", begin]).await;
        moving.switch_and_follow(200).await;
        assert_eq!(client.execute("c", 0).sync().transcript().await, format!("{MOVED} Z(E)"), "{begin}; Execute");
        succeed(&mut client, "ROLLBACK").await;
        moving.tidy().await;
    }
    // In a pipeline outside of a block as well.
    let mut client = moving.client().await;
    let lock = moving.fill_in("SELECT FROM accounts WHERE id = {k} FOR UPDATE");
    assert!(client.unnamed(&lock, &[]).flush_message().some(4).await.ends_with("C(SELECT 1)"));
    moving.switch_and_follow(200).await;
    let update = moving.fill_in("UPDATE accounts SET balance = 1 WHERE id = {k}");
    assert_eq!(client.unnamed(&update, &[]).sync().transcript().await, format!("1 {MOVED} Z(I)"));
    moving.tidy().await;
    // Nor do the next statements inherit it.
    let told = client.unnamed(&update, &[]).sync().transcript().await;
    assert_eq!(told, "1 2 C(UPDATE 1) Z(I)");
    moving.stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transaction_has_only_read_is_found_at_its_new_owner() {
    let moving = Moving::start(2, &[]).await;
    // A cursor has its snapshot.
    let mut client = moving.client().await;
    moving.run(&mut client, &["BEGIN", "DECLARE c CURSOR FOR SELECT balance FROM accounts WHERE id = {k}"]).await;
    moving.switch_and_follow(250).await;
    assert_eq!(client.ask("FETCH c").await, "T(balance) D(100) C(FETCH 1) Z(T)");
    succeed(&mut client, "COMMIT").await;
    for begin in [
        "SELECT balance FROM accounts WHERE id = {k}",
        "SELECT count(*) FROM accounts",
        "UPDATE accounts SET owner = 'x' WHERE id = {o}",
    ] {
        let mut client = moving.client().await;
        moving.run(&mut client, &["BEGIN", begin]).await;
        moving.switch_and_follow(300).await;
        let told = moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {k}").await;
        assert_eq!(told, "T(balance) D(300) C(SELECT 1) Z(T)", "{begin}");
        moving.run(&mut client, &["UPDATE accounts SET balance = 301 WHERE id = {k}", "COMMIT"]).await;
        let told = moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {k}").await;
        assert_eq!(told, "T(balance) D(301) C(SELECT 1) Z(I)", "{begin}");
    }
    moving.stage.assert_log_is_clean();
}

/// REPEATABLE READ and SERIALIZABLE read by the map that goes with their snapshot, however far the partitions have gone since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_read_where_its_rows_were() {
    let moving = Moving::start(2, &[]).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        moving.go_home(100).await;
        let mut client = moving.client().await;
        moving.run(&mut client, &[&format!("BEGIN ISOLATION LEVEL {level}"), "SELECT FROM accounts WHERE id = {o}"]).await;
        for _ in 0..3 {
            moving.switch_and_follow(400).await;
        }
        for text in ["SELECT balance FROM accounts WHERE id = {k}", "SELECT balance FROM accounts WHERE id IN ({k}, {l}) LIMIT 1"] {
            let balance = moving.ask(&mut client, text).await;
            assert_eq!(balance, "T(balance) D(100) C(SELECT 1) Z(T)", "{level}");
        }
        let told = moving.ask(&mut client, "UPDATE accounts SET balance = 1 WHERE id = {k}").await;
        assert_eq!(told, format!("{MOVED} Z(E)"), "{level}");
        succeed(&mut client, "ROLLBACK").await;
        let told = moving.ask(&mut client, "SELECT balance FROM accounts WHERE id = {k}").await;
        assert_eq!(told, "T(balance) D(400) C(SELECT 1) Z(I)");
    }
    moving.stage.assert_log_is_clean();
}

/// A report over all shards outlives any number of moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_all_shards_outlives_moves() {
    let moving = Moving::start(2, &[]).await;
    let count = i32::try_from(moving.count()).expect("few");
    let found = |balance: i32| ["90".to_owned(), (100 * (90 - count) + balance * count).to_string()];
    let sum = "SELECT count(*), sum(balance) FROM accounts";
    let mut client = moving.client().await;
    succeed(&mut client, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await;
    assert_eq!(client.row(sum).await, found(100));
    moving.switch_and_follow(200).await;
    moving.switch_and_follow(300).await;
    assert_eq!(client.row(sum).await, found(100));
    assert_eq!(client.value(&moving.fill_in("SELECT balance FROM accounts WHERE id = {k}")).await, "100");
    succeed(&mut client, "COMMIT").await;
    // It is not taken while a partition is held.
    let mut reader = moving.reader().await;
    succeed(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await;
    moving.hold().await;
    reader.query("SELECT 1").flush().await;
    moving.until_at_work("reader").await;
    moving.switch(500).await;
    assert_eq!(reader.transcript().await, "T(?column?) D(1) C(SELECT 1) Z(T)");
    assert_eq!(reader.row(sum).await, found(500));
    moving.stage.assert_log_is_clean();
}

/// With a snapshot for each shard: one that joins late must not show rows that have moved there meanwhile, nor miss any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_joins_a_snapshot_late_shows_no_other_owners() {
    let moving = Moving::start(2, &[("cross_shard.isolation", "per_shard")]).await;
    let begin = ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT FROM accounts WHERE id = {o}"];
    for then in [
        "SELECT balance FROM accounts WHERE id = {z}",
        "SELECT count(*) FROM accounts",
        "UPDATE accounts SET owner = 'x' WHERE id = {z}",
    ] {
        moving.go_home(100).await;
        let mut client = moving.client().await;
        moving.run(&mut client, &begin).await;
        moving.switch_and_follow(100).await;
        assert_eq!(moving.ask(&mut client, then).await, format!("{MOVED} Z(E)"), "{then}");
        succeed(&mut client, "ROLLBACK").await;
    }
    // What is held first waits, and then is compared.
    for is_moved in [false, true] {
        moving.go_home(100).await;
        let mut reader = moving.reader().await;
        moving.run(&mut reader, &begin).await;
        moving.hold().await;
        reader.query("SELECT count(*) FROM accounts").flush().await;
        moving.until_at_work("reader").await;
        if is_moved {
            moving.switch(100).await
        } else {
            moving.release().await
        }
        let expected = if is_moved { format!("{MOVED} Z(E)") } else { "T(count) D(90) C(SELECT 1) Z(T)".to_owned() };
        assert_eq!(reader.transcript().await, expected);
    }
    moving.stage.assert_log_is_clean();
}

/// What is answered in stages is answered by one map, or run again as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_in_stages_finds_the_same_owners_in_all_of_them() {
    let moving = Moving::start(2, &[]).await;
    let mut client = moving.client().await;
    let schema = [
        "CREATE TABLE pairs (id bigint PRIMARY KEY)",
        "SELECT shardgate.distribute_table('pairs', 'id')",
        "GRANT ALL ON accounts, pairs TO reader",
    ];
    moving.run(&mut client, &schema).await;
    let update = moving.fill_in("UPDATE accounts SET owner = (SELECT count(*) FROM pairs) WHERE id = {k} RETURNING balance");
    for (begin, answer) in [("BEGIN", format!("{MOVED} Z(E)")), ("SELECT 1", "T(balance) D(600) C(UPDATE 1) Z(I)".to_owned())] {
        let mut reader = moving.reader().await;
        succeed(&mut reader, begin).await;
        // Its first stage waits.
        let lock = moving.stage.cluster.connect_shard(1).await;
        lock.batch_execute("BEGIN; LOCK TABLE pairs").await.expect("a lock");
        reader.query(&update).flush().await;
        moving.stage.until_waiting("the first stage").await;
        moving.switch_and_follow(600).await;
        lock.batch_execute("COMMIT").await.expect("unlocked");
        assert_eq!(reader.transcript().await, answer);
    }
    moving.stage.assert_log_is_clean();
}
