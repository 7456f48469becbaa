//! What each shard keeps of the rows that lie on it and are not owned by it, and who may ask for it.

use std::time::{Duration, Instant};

use crate::sessions::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, WireClient};

const KEYS: &str = "SELECT concat_ws(' ', shardgate.residue_hashes(5), shardgate.residue_keys(5)::text, shardgate.residue_ranges(5)::int8multirange)";

const OTHER_KEYS: &str = "SELECT shardgate.residue_other_keys(5)::text";

#[tokio::test]
async fn each_shard_says_which_rows_it_does_not_own() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    let keys = async || direct.query_one(KEYS, &[]).await.expect("a row").get::<_, String>(0);
    assert_eq!(keys().await, "{} {} {}");
    let other_keys = async || direct.query_one(OTHER_KEYS, &[]).await.expect("a row").get::<_, String>(0);
    assert_eq!(other_keys().await, "{NULL}", "nothing is known of keys that are not listed");
    // Rows of two moves, and of another group.
    let rows = "INSERT INTO shardgate.residue VALUES (5, 1, '{[1,3)}', '{a,\"b c\"}', '{\"[1,4)\"}'),
                    (5, 2, '{[2,9), [20,30)}', '{d}', '{\"[10,12)\",\"[3,6)\"}'), (6, 1, '{(,)}', '{z}', '{\"(,)\"}')";
    direct.batch_execute(rows).await.expect("inserted");
    assert_eq!(keys().await, "{[1,9),[20,30)} {a,\"b c\",d} {[1,6),[10,12)}");
    assert_eq!(other_keys().await, "{NULL}");
    let default = "INSERT INTO shardgate.residue (group_id, move_id, other_keys) VALUES (5, 3, '{e,\"f g\"}')";
    direct.batch_execute(default).await.expect("inserted");
    assert_eq!(other_keys().await, "{e,\"f g\"}");
    // A user's own functions and operators first in the path change nothing, and every user may ask; the table is not theirs.
    let theirs = "CREATE ROLE residue_reader; CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO PUBLIC;
        CREATE FUNCTION theirs.no(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR theirs.= (LEFTARG = int, RIGHTARG = int, FUNCTION = theirs.no);
        SET search_path = theirs, pg_catalog, public; SET ROLE residue_reader";
    direct.batch_execute(theirs).await.expect("set");
    assert_eq!(keys().await, "{[1,9),[20,30)} {a,\"b c\",d} {[1,6),[10,12)}");
    let refused = direct.query("SELECT FROM shardgate.residue", &[]).await.expect_err("not theirs");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"));
    direct.batch_execute("RESET ROLE; DROP SCHEMA theirs CASCADE; DROP ROLE residue_reader").await.expect("dropped");
    stage.assert_log_is_clean();
}

/// By a proxy of this version that starts.
#[tokio::test]
async fn a_shard_of_an_earlier_version_gets_what_it_lacks() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    for (earlier, asked) in [
        ("DROP FUNCTION shardgate.residue_other_keys(int); ALTER TABLE shardgate.residue DROP COLUMN other_keys", OTHER_KEYS),
        (
            "DROP FUNCTION shardgate.residue_hashes(int), shardgate.residue_keys(int), shardgate.residue_ranges(int);
             DROP TABLE shardgate.residue",
            KEYS,
        ),
    ] {
        direct.batch_execute(earlier).await.expect("as it was");
        let _later = Proxy::start(&stage.cluster, ProxyOptions::default());
        let deadline = Instant::now() + Duration::from_secs(20);
        while direct.query_one(asked, &[]).await.is_err() {
            assert!(Instant::now() < deadline, "the shard is complete");
            tokio::task::yield_now().await;
        }
    }
    assert!(direct.query_opt("SELECT FROM shardgate.residue", &[]).await.expect("the table").is_none());
}

/// A statement that was prepared before a move begins, and one that was prepared during it, see the rows that are owned, before it,
/// during it and after it. Where nothing is excluded they see the copy: it is there.
#[tokio::test]
async fn prepared_statements_follow_the_begin_and_the_end_of_a_move() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let key = stage.key(0, 0);
    let copy = format!("INSERT INTO accounts (id, owner, balance) VALUES ({key}, 'copy', 7)");
    let group = "SELECT group_id FROM shardgate_map.declared_table WHERE table_name = 'accounts'";
    let group: i32 = stage.cluster.connect_map().await.query_one(group, &[]).await.expect("a group").get(0);
    let excluded = format!(
        "INSERT INTO shardgate.residue (group_id, move_id, hashes)
         SELECT {group}, 1, int8multirange(int8range(h, h, '[]')) FROM (SELECT hashint4extended({key}, 0) AS h) x"
    );
    let there = stage.cluster.connect_shard(1).await;
    let mut clients = Vec::new();
    // Prepared before, and during the move.
    for has_residues in [false, true, false, true] {
        set_residues(&stage, group, has_residues).await;
        let mut client = stage.client().await;
        succeed(&mut client, "PREPARE p AS SELECT count(*), sum(balance) FROM accounts WHERE balance > $1").await;
        client.parse("s", "SELECT count(*), sum(balance) FROM accounts WHERE balance > $1").sync();
        assert!(!client.transcript().await.contains("E("));
        clients.push(client);
        let stored = match has_residues {
            true => {
                there.batch_execute(&format!("{excluded}; {copy}")).await.expect("copied");
                "90,9000"
            }
            false => "90,9000",
        };
        assert_all_see(&mut clients, stored).await;
        // What is not excluded is seen.
        if has_residues {
            there.batch_execute("DELETE FROM shardgate.residue").await.expect("forgotten");
            assert_all_see(&mut clients, "91,9007").await;
            there.batch_execute(&excluded).await.expect("excluded");
            assert_all_see(&mut clients, "90,9000").await;
            set_residues(&stage, group, false).await;
            assert_all_see(&mut clients, "91,9007").await;
            set_residues(&stage, group, true).await;
            assert_all_see(&mut clients, "90,9000").await;
            let rows = format!("DELETE FROM accounts WHERE id = {key}; DELETE FROM shardgate.residue");
            there.batch_execute(&rows).await.expect("cleaned up");
        }
    }
    stage.assert_log_is_clean();
}

async fn assert_all_see(clients: &mut [WireClient], stored: &str) {
    for client in clients {
        let simple = client.ask("SELECT count(*), sum(balance) FROM accounts WHERE balance > 0").await;
        assert!(simple.contains(&format!("D({stored})")), "{simple}");
        let executed = client.ask("EXECUTE p (0)").await;
        assert!(executed.contains(&format!("D({stored})")), "{executed}");
        client.bind("", "s", &["0"]).execute("", 0).sync();
        let bound = client.transcript().await;
        assert!(bound.contains(&format!("D({stored})")), "{bound}");
    }
}

/// An error in a row that is not owned is not the client's: a read finds out over gathered rows, what else is to be repeated.
#[tokio::test]
async fn an_error_of_a_row_that_is_not_owned_is_not_told_as_the_client_s() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let key = stage.key(0, 0);
    let group = "SELECT group_id FROM shardgate_map.declared_table WHERE table_name = 'accounts'";
    let group: i32 = stage.cluster.connect_map().await.query_one(group, &[]).await.expect("a group").get(0);
    let rows = format!(
        "INSERT INTO shardgate.residue (group_id, move_id, hashes) VALUES ({group}, 1, '{{(,)}}');
         INSERT INTO accounts (id, owner, balance) VALUES ({key}, 'copy', 0)"
    );
    // Nothing else is owned there: all rows are the first shard's.
    stage.cluster.connect_shard(1).await.batch_execute("DELETE FROM accounts").await.expect("emptied");
    stage.cluster.connect_shard(1).await.batch_execute(&rows).await.expect("copied");
    set_residues(&stage, group, true).await;
    let mut client = stage.client().await;
    // One operator: PostgreSQL begins with it.
    let read = "SELECT count(*) FROM accounts WHERE 10 / balance IS NOT NULL";
    let counted = client.ask("SELECT count(*) FROM accounts").await;
    let told = client.ask(read).await;
    assert_eq!(told, counted, "over gathered rows");
    let write = "UPDATE accounts SET owner = 'x' WHERE 10 / balance IS NOT NULL";
    for (begin, sql) in [("", write), ("BEGIN", write), ("BEGIN", read)] {
        if !begin.is_empty() {
            succeed(&mut client, begin).await;
        }
        client.query(sql);
        let error = client.answers().await.into_iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!((error.field(b'C').as_str(), error.field(b'H').as_str()), ("40001", "Repeat the transaction."), "{sql}");
        assert!(error.field(b'D').contains("division by zero"), "{}", error.field(b'D'));
        client.ask("ROLLBACK").await;
    }
    // What the client has itself done wrong is told as by PostgreSQL.
    for (sql, code) in [
        ("SELECT 1 / (balance - balance) FROM accounts", "22012"),
        ("UPDATE accounts SET balance = 1 / (balance - balance)", "22012"),
        ("SELECT count(*) FROM accounts WHERE 10 / (balance - 100) < 1", "22012"),
        ("DELETE FROM accounts WHERE balance = 'x'", "22P02"),
    ] {
        let told = client.ask(sql).await;
        assert!(told.contains(&format!("E({code} ")), "{sql}: {told}");
    }
    stage.assert_log_is_clean();
}

/// As a mover does it; the proxy has seen it.
async fn set_residues(stage: &Stage, group: i32, has_residues: bool) {
    let map = stage.cluster.connect_map().await;
    let change = format!(
        "BEGIN; SELECT shardgate_map.begin_change('test', 'test', '{{}}');
         UPDATE shardgate_map.colocation_group SET has_residues = {has_residues} WHERE group_id = {group}; COMMIT"
    );
    map.batch_execute(&change).await.expect("changed");
    // Reads the map anew.
    succeed(&mut stage.client().await, "SELECT shardgate.alter_shard('shard1', capacity => 1)").await;
}
