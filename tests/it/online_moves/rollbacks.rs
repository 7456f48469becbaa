//! The grace period after a switch: the way back, and what ends it.

use serde_json::Value;

use super::aborts::started;
use super::operators::until_move;
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy, ProxyOptions};

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g";

/// The command succeeds; what it shows of the move.
async fn succeeds(cluster: &Cluster, arguments: &[&str]) -> Value {
    let output = rebalance(cluster, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The command ends with this code, and says this.
async fn ends(cluster: &Cluster, arguments: &[&str], code: i32, part: &str) {
    let output = rebalance(cluster, arguments).await;
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}\n{told}", text(&output.stdout));
    assert!(told.contains(part), "{arguments:?}: {told}");
}

async fn stored(cluster: &Cluster, shard: usize, condition: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM t WHERE {condition}");
    cluster.connect_shard(shard).await.query_one(&sql, &[]).await.expect("stored").get(0)
}

async fn count(proxy: &Proxy, condition: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM t WHERE {condition}");
    proxy.connect().await.query_one(&sql, &[]).await.expect("count").get(0)
}

#[tokio::test]
async fn what_was_written_at_the_target_comes_back_with_a_rollback() {
    let (cluster, proxy) = started(TABLE).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let list = format!("{},{}", partitions[0], partitions[1]);
    let moved = succeeds(&cluster, &["move", "--partition", &list, "--to", "b"]).await;
    assert_eq!((&moved["state"], &moved["can_roll_back"]), (&"switched".into(), &true.into()), "{moved}");
    assert!(moved["finish_at"].as_str().is_some_and(|at| at.ends_with(" UTC")), "{moved}");
    let id = moved["move_id"].to_string();
    let shown = text(&rebalance(&cluster, &["show", &id]).await.stdout);
    assert!(shown.contains("rollback     possible until ") && shown.contains("\"rollback\" moves them back"), "{shown}");
    assert_eq!(partitions_on(&proxy, "t", "b").await, partitions[..2]);
    let client = proxy.connect().await;
    assert_eq!(client.execute("UPDATE t SET v = 'y'", &[]).await.expect("update"), 1000);
    client
        .batch_execute("INSERT INTO t SELECT g, 'new' FROM generate_series(1001, 1100) g; DELETE FROM t WHERE id <= 100")
        .await
        .expect("writes");
    let healthy = rebalance(&cluster, &["doctor", "--fix"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stdout));
    let same = rebalance(&cluster, &["verify", "--move", &id]).await;
    assert!(same.status.success(), "{}", text(&same.stderr));
    let back = succeeds(&cluster, &["rollback", &id]).await;
    assert_eq!((&back["state"], &back["error"]), (&"aborted".into(), &"rolled back".into()), "{back}");
    assert_eq!(partitions_on(&proxy, "t", "a").await, partitions);
    assert_eq!((count(&proxy, "v = 'y'").await, count(&proxy, "v = 'new'").await), (900, 100));
    assert_eq!((stored(&cluster, 0, "true").await, stored(&cluster, 1, "true").await), (1000, 0));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    // Again: it is so already.
    succeeds(&cluster, &["rollback", &id]).await;
    // And there again, for good.
    let again = succeeds(&cluster, &["move", "--partition", &list, "--to", "b", "--keep"]).await;
    assert_eq!((&again["state"], &again["finish_at"]), (&"switched".into(), &Value::Null), "{again}");
    let id = again["move_id"].to_string();
    assert_eq!(client.execute("UPDATE t SET v = 'z'", &[]).await.expect("update"), 1000);
    let finished = succeeds(&cluster, &["finish", &id]).await;
    assert_eq!(finished["state"], "done", "{finished}");
    assert_eq!(stored(&cluster, 0, "true").await + stored(&cluster, 1, "true").await, 1000);
    assert_eq!(count(&proxy, "v = 'z'").await, 1000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    ends(&cluster, &["rollback", &id], 3, "cannot be rolled back. The rows at shard \"a\" are deleted").await;
}

#[tokio::test]
async fn what_stands_against_a_move_in_its_grace_period_is_told_with_the_way_out() {
    let (cluster, proxy) = started(TABLE).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let one = partitions[0].to_string();
    for (arguments, code, part) in [
        (vec!["move", "--partition", &one, "--to", "b", "--keep", "--finish"], 2, "cannot be used with"),
        (vec!["move", "--partition", &one, "--to", "b", "--grace", "1000h"], 2, "30 days"),
        (vec!["rollback", "77"], 3, "there is no move 77"),
        (vec!["rollback"], 2, "MOVE_ID"),
    ] {
        ends(&cluster, &arguments, code, part).await;
    }
    // Before the switch.
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b", "--manual-cutover", "--detach"]).await;
    ends(&cluster, &["rollback", "1"], 3, "it has not switched").await;
    succeeds(&cluster, &["cutover", "1"]).await;
    // After it.
    let finish = "\"shard-rebalance finish 1\"";
    ends(&cluster, &["abort", "1"], 3, "\"shard-rebalance rollback 1\"").await;
    ends(&cluster, &["pause", "1"], 3, "has switched already").await;
    // Nobody has asked for it, or does any more.
    let map = cluster.connect_map().await;
    let take = "SELECT shardgate_map.take_move(1, 77, interval '10 s', interval '10 s')";
    let term: i64 = loop {
        match map.query_one(take, &[]).await.expect("taken").get(0) {
            Some(term) => break term,
            None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    };
    let held = map.execute("SELECT shardgate_map.hold_move('test', 1, $1)", &[&term]).await.expect_err("refused");
    assert!(held.as_db_error().is_some_and(|error| error.message().contains("not to be rolled back")), "{held:?}");
    // A map that has forgotten the last terms gives none of them again.
    map.execute("UPDATE shardgate_map.move SET term = term - 5 WHERE move_id = 1", &[]).await.expect("forgotten");
    let next: i64 = map.query_one(take, &[]).await.expect("taken again").get(0);
    assert!(next > term, "{next} after {term}");
    map.execute("SELECT shardgate_map.leave_move(1, $1)", &[&next]).await.expect("left");
    // Nor does one wait until its clock has come to what the shards know.
    for shard in 0..2 {
        let ahead = "UPDATE shardgate.term SET term = term + 86400000 WHERE move_id = 1";
        assert_eq!(cluster.connect_shard(shard).await.execute(ahead, &[]).await.expect("a day ahead"), 1);
    }
    ends(&cluster, &["move", "--partition", &one, "--to", "a"], 3, finish).await;
    ends(&cluster, &["split", "--partition", &one, "--into", "2"], 3, finish).await;
    let client = proxy.connect().await;
    let add = format!("SELECT shardgate.add_shard('c', '{}')", cluster.url_on_shard(0, "postgres"));
    let refused = client.batch_execute(&add).await.expect_err("refused");
    let refused = refused.as_db_error().expect("an error of the server").clone();
    assert!(refused.code().code() == "55006" && refused.hint().is_some_and(|hint| hint.contains(finish)), "{refused:?}");
    // Others may move meanwhile, and statements may do what they like.
    let other = partitions[1].to_string();
    let moved = succeeds(&cluster, &["move", "--partition", &other, "--to", "b", "--finish"]).await;
    assert_eq!(moved["state"], "done", "{moved}");
    assert_eq!(client.execute("UPDATE t SET id = id + 10000 WHERE id <= 200", &[]).await.expect("keys change"), 200);
    assert_eq!(client.execute("UPDATE t SET v = 'w' WHERE id > 10000", &[]).await.expect("update"), 200);
    assert!(
        client
            .batch_execute("TRUNCATE t")
            .await
            .expect_err("refused")
            .as_db_error()
            .is_some_and(|error| error.code().code() == "55006")
    );
    // It has come to the source as well.
    succeeds(&cluster, &["rollback", "1"]).await;
    assert_eq!((count(&proxy, "true").await, count(&proxy, "v = 'w'").await), (1000, 200));
    assert_eq!(stored(&cluster, 0, "true").await + stored(&cluster, 1, "true").await, 1000);
    ends(&cluster, &["finish", "1"], 1, "rolled back").await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_schema_change_waits_for_the_end_of_a_grace_period_or_says_how_to_end_it() {
    let (cluster, proxy) = started(TABLE).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let (one, other) = (partitions[0].to_string(), partitions[1].to_string());
    let client = proxy.connect().await;
    client.batch_execute("CREATE TABLE days (day date) PARTITION BY RANGE (day)").await.expect("a partitioned table");
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b"]).await;
    succeeds(&cluster, &["move", "--partition", &other, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    // Nobody has asked for its end: it is not waited for, and no other move gives way for nothing.
    let began = std::time::Instant::now();
    for change in
        ["CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')", "ALTER TABLE t ADD w int"]
    {
        let refused = client.batch_execute(change).await.expect_err("refused");
        let refused = refused.as_db_error().expect("an error of the server").clone();
        assert_eq!((refused.code().code(), refused.message()), ("55006", "the schema cannot be changed while move 1 runs"));
        assert!(refused.hint().is_some_and(|hint| hint.contains("\"shard-rebalance finish 1\"")), "{refused:?}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "refused after {:?}", began.elapsed());
    let map = cluster.connect_map().await;
    let state = "SELECT state, asked FROM shardgate_map.move WHERE move_id = 2";
    let row = map.query_one(state, &[]).await.expect("the other move");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, Option<&str>>(1)), ("catching_up", None));
    let altering = async {
        let is_asked = "SELECT count(*) FROM shardgate_map.move WHERE move_id = 1 AND (asked = 'finish' OR state = 'cleaning_up')";
        while map.query_one(is_asked, &[]).await.expect("the move").get::<_, i64>(0) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        client.batch_execute("ALTER TABLE t ADD COLUMN w int DEFAULT 3").await.expect("altered once the move is finished");
    };
    tokio::join!(altering, succeeds(&cluster, &["finish", "1"]));
    let row = map.query_one(state, &[]).await.expect("the other move");
    assert_eq!(row.get::<_, &str>(0), "aborted", "it has given way");
    let sum: i64 = client.query_one("SELECT sum(w) FROM t", &[]).await.expect("sum").get(0);
    assert_eq!(sum, 3000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn copies_that_differ_at_the_end_are_left_to_a_person() {
    let (cluster, proxy) = started(TABLE).await;
    let one = partitions_on(&proxy, "t", "a").await[0].to_string();
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b"]).await;
    let source = cluster.connect_shard(0).await;
    let spoil = "SET session_replication_role = replica;
                 UPDATE t SET v = 'spoilt' WHERE id = (SELECT min(id) FROM t WHERE pg_catalog.hashint8extended(id, 0) <@ (SELECT hashes FROM shardgate.residue))";
    source.batch_execute(spoil).await.expect("spoilt");
    ends(&cluster, &["finish", "1"], 4, "source and target differ: table \"public\".\"t\"").await;
    let shown = rebalance(&cluster, &["show", "1"]).await;
    assert!(text(&shown.stdout).contains("source and target differ"), "{}", text(&shown.stdout));
    // It does not end by itself now, whatever the time.
    cluster.connect_map().await.batch_execute("UPDATE shardgate_map.move SET finish_at = now()").await.expect("due");
    ends(&cluster, &["finish", "1"], 4, "source and target differ").await;
    let finished = succeeds(&cluster, &["finish", "1", "--unverified"]).await;
    assert_eq!(finished["state"], "done", "{finished}");
    assert_eq!((count(&proxy, "true").await, count(&proxy, "v = 'spoilt'").await), (1000, 0));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_back_that_keeps_too_much_wal_is_given_up() {
    let mut cluster = Cluster::separate_servers(2).await;
    for shard in 0..2 {
        let client = cluster.connect_shard(shard).await;
        client.batch_execute("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'").await.expect("a limit");
        client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    }
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let admin = proxy.connect().await;
    for (shard, name, then) in [(0, "a", TABLE), (1, "b", "")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
        admin.batch_execute(then).await.expect("a table");
    }
    admin.batch_execute("SELECT shardgate.distribute_table('t', 'id', partitions => 4)").await.expect("distribute_table");
    let one = partitions_on(&proxy, "t", "a").await[0].to_string();
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b"]).await;
    cluster.shard_server_mut(0).kill().expect("killed");
    // A proxy drops the slot, without the source.
    without_slots_after_much_wal(&cluster, 1).await;
    let shown = text(&rebalance(&cluster, &["show", "1"]).await.stdout);
    assert!(
        shown.contains("rollback     not possible") && shown.contains("kept 1") && shown.contains("for the way back"),
        "{shown}"
    );
    ends(&cluster, &["rollback", "1"], 3, "do not follow any more").await;
    cluster.shard_server_mut(0).start_again().expect("started again");
    let finished = succeeds(&cluster, &["finish", "1"]).await;
    assert_eq!(finished["state"], "done", "{finished}");
    assert_eq!(count(&proxy, "true").await, 1000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

/// The slot of the way back waits for a writer at the target, and the source keeps WAL for the copy meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_begin_gives_its_wal_up() {
    let cluster = Cluster::separate_servers(2).await;
    let client = cluster.connect_shard(0).await;
    client.batch_execute("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'").await.expect("a limit");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    let proxy = Proxy::start(&cluster, ProxyOptions::default());
    let admin = proxy.connect().await;
    for (shard, name, then) in [(0, "a", TABLE), (1, "b", "")] {
        let add = format!("SELECT shardgate.add_shard('{name}', '{}')", cluster.shard_url(shard));
        admin.batch_execute(&add).await.expect("add_shard");
        admin.batch_execute(then).await.expect("a table");
    }
    admin.batch_execute("SELECT shardgate.distribute_table('t', 'id', partitions => 4)").await.expect("distribute_table");
    let one = partitions_on(&proxy, "t", "a").await[0].to_string();
    let writer = cluster.connect_shard(1).await;
    writer.batch_execute("CREATE TABLE other (n int); BEGIN; INSERT INTO other VALUES (1)").await.expect("a writer");
    let planned = rebalance(&cluster, &["move", "--partition", &one, "--to", "b", "--detach"]).await;
    assert!(planned.status.success(), "{}", text(&planned.stderr));
    until_move(&cluster, |_, error| error.contains("waits for transactions that write at shard \"b\"")).await;
    without_slots_after_much_wal(&cluster, 0).await;
    writer.batch_execute("COMMIT").await.expect("committed");
    let (_, error) = until_move(&cluster, |state, _| state == "aborted").await;
    assert!(error.contains("of WAL for the copy"), "{error}");
    assert_eq!(count(&proxy, "true").await, 1000);
    cluster.connect_shard(1).await.batch_execute("DROP TABLE other").await.expect("dropped");
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

async fn without_slots_after_much_wal(cluster: &Cluster, shard: usize) {
    let client = cluster.connect_shard(shard).await;
    let wal = "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 12)";
    client.batch_execute(wal).await.expect("written");
    let slots = "SELECT count(*) FROM pg_replication_slots";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while client.query_one(slots, &[]).await.expect("slots").get::<_, i64>(0) > 0 {
        assert!(std::time::Instant::now() < deadline, "a slot is kept");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_rollback_can_be_called_off_before_its_switch() {
    let (cluster, proxy) = started(TABLE).await;
    let one = partitions_on(&proxy, "t", "a").await[0].to_string();
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b", "--max-pause", "100ms"]).await;
    // A writer that does not end keeps it from being cut over.
    let mut writer = proxy.connect().await;
    let transaction = writer.transaction().await.expect("begin");
    transaction.execute("UPDATE t SET v = 'w'", &[]).await.expect("every row");
    let rollback = rebalance(&cluster, &["rollback", "1"]);
    let called_off = async {
        until_move(&cluster, |_, error| error.contains("have written in the partitions at shard \"b\" are open: postgres (pid "))
            .await;
        let shown = text(&rebalance(&cluster, &["show", "1"]).await.stdout);
        assert!(shown.contains("abort would  end the rollback"), "{shown}");
        let aborted = rebalance(&cluster, &["abort", "1"]).await;
        assert_eq!(aborted.status.code(), Some(0), "{}", text(&aborted.stderr));
    };
    let (rollback, ()) = tokio::join!(rollback, called_off);
    assert_eq!(rollback.status.code(), Some(3), "{}", text(&rollback.stderr));
    assert!(text(&rollback.stderr).contains("was not rolled back"), "{}", text(&rollback.stderr));
    transaction.commit().await.expect("commit");
    assert_eq!(partitions_on(&proxy, "t", "b").await.len(), 1);
    let finished = succeeds(&cluster, &["finish", "1"]).await;
    assert_eq!(finished["state"], "done", "{finished}");
    assert_eq!(count(&proxy, "v = 'w'").await, 1000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_way_back_that_meets_a_conflict_is_given_up_and_the_move_ends() {
    let (cluster, proxy) = started(TABLE).await;
    let one = partitions_on(&proxy, "t", "a").await[0].to_string();
    succeeds(&cluster, &["move", "--partition", &one, "--to", "b", "--keep"]).await;
    let moved: i64 = cluster
        .connect_shard(0)
        .await
        .query_one("SELECT min(id) FROM t WHERE pg_catalog.hashint8extended(id, 0) <@ (SELECT hashes FROM shardgate.residue)", &[])
        .await
        .expect("a moved key")
        .get(0);
    let client = proxy.connect().await;
    assert_eq!(client.execute("DELETE FROM t WHERE id = $1", &[&moved]).await.expect("deleted"), 1);
    // What nobody may do: the row comes back at the source, and is in the way of the next one.
    let source = cluster.connect_shard(0).await;
    let left = format!("SELECT count(*) FROM t WHERE id = {moved}");
    while source.query_one(&left, &[]).await.expect("count").get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let planted = format!("SET session_replication_role = replica; INSERT INTO t VALUES ({moved}, 'planted')");
    source.batch_execute(&planted).await.expect("planted");
    assert_eq!(client.execute("INSERT INTO t VALUES ($1, 'again')", &[&moved]).await.expect("inserted"), 1);
    ends(&cluster, &["rollback", "1"], 3, "replication to shard \"a\" has stopped with an error").await;
    ends(&cluster, &["rollback", "1"], 3, "do not follow any more").await;
    succeeds(&cluster, &["finish", "1"]).await;
    assert_eq!((count(&proxy, "true").await, count(&proxy, "v = 'planted'").await), (1000, 0));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}
