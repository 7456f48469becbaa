//! What operators do beside the command's `move`: moves by SQL, schema changes in between, and looking for leftovers.

use std::process::Command;
use std::time::{Duration, Instant};

use super::aborts::started;
use super::{leftovers, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy};

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g";

/// The state and error of the last move, once `is_it` holds.
pub async fn until_move(cluster: &Cluster, is_it: impl Fn(&str, &str) -> bool) -> (String, String) {
    let map = cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let sql = "SELECT state, coalesce(error, '') FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        let row = map.query_one(sql, &[]).await.expect("a move");
        let (state, error): (String, String) = (row.get(0), row.get(1));
        if is_it(&state, &error) {
            return (state, error);
        }
        assert!(Instant::now() < deadline, "{state}: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_proxy_drives_what_was_asked_for_in_sql() {
    let (cluster, proxy) = started(TABLE).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    let client = proxy.connect().await;
    let id: i32 = client.query_one("SELECT shardgate.move_partition($1, 'b')", &[&partitions[0]]).await.expect("planned").get(0);
    until_move(&cluster, |state, _| state == "done").await;
    let id2: i32 =
        client.query_one("SELECT shardgate.move_partitions($1, 'b')", &[&&partitions[1..3]]).await.expect("planned").get(0);
    assert!(id2 > id);
    until_move(&cluster, |state, _| state == "done").await;
    assert_eq!(partitions_on(&proxy, "t", "b").await, partitions[..3]);
    let rows = client.query("SELECT move_id, partition_id, state FROM shardgate.moves ORDER BY 1, 2", &[]).await.expect("moves");
    assert_eq!(rows.len(), 3);
    let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    assert_eq!(count, 1000);
    for refused in ["SELECT shardgate.move_partition(999, 'b')", "SELECT shardgate.move_partitions('{}', 'b')"] {
        assert!(client.batch_execute(refused).await.is_err(), "{refused}");
    }
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_move_gives_way_to_a_change_of_the_schema() {
    let (cluster, proxy) = started(TABLE).await;
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let client = proxy.connect().await;
    // Names too, of the table and of its key.
    for (change, in_one) in [
        ("ALTER TABLE t ADD COLUMN w int DEFAULT 3", "SELECT sum(w) FROM t"),
        ("ALTER TABLE t RENAME TO things", "SELECT 3 * count(*) FROM things WHERE id > 0"),
        ("BEGIN; ALTER TABLE things RENAME id TO number; COMMIT", "SELECT 3 * count(*) FROM things WHERE number > 0"),
    ] {
        rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--manual-cutover", "--detach"]).await;
        until_move(&cluster, |_, error| error.contains("cutover")).await;
        client.batch_execute(change).await.expect("the schema is changed");
        let (_, error) = until_move(&cluster, |state, _| state == "aborted").await;
        assert!(error.starts_with("gave way to ALTER TABLE of "), "{error}");
        let sum: i64 = client.query_one(in_one, &[]).await.expect("sum").get(0);
        assert_eq!(sum, 3000, "{change}");
        assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    }
    // What has another name moves, and no row is lost by either.
    let moved = rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--finish"]).await;
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    for number in [1_i64, 500, 1000] {
        let found = client.query_one("SELECT count(*) FROM things WHERE number = $1", &[&number]).await.expect("by key");
        assert_eq!(found.get::<_, i64>(0), 1);
    }
    assert_eq!(client.query_one("SELECT count(*) FROM things", &[]).await.expect("all").get::<_, i64>(0), 1000);
    client.batch_execute("ALTER TABLE things RENAME TO t").await.expect("renamed");
    // And TRUNCATE, which a move refuses at the shard, goes on after it.
    client.batch_execute("TRUNCATE t").await.expect("truncated");
}

#[tokio::test]
async fn doctor_finds_and_removes_what_is_left_over() {
    let (cluster, proxy) = started(&format!("{TABLE}; CREATE VIEW seen AS SELECT * FROM t")).await;
    let first = partitions_on(&proxy, "t", "a").await[0].to_string();
    let moved = rebalance(&cluster, &["move", "--partition", &first, "--to", "b", "--finish"]).await;
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    let healthy = rebalance(&cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stdout));
    plant(&cluster).await;
    let declaring = cluster.connect_shard(0).await;
    declaring.execute("SELECT pg_advisory_lock(1936224868, 1684366188)", &[]).await.expect("the turn of a declaration");
    let found = rebalance(&cluster, &["doctor", "--json"]).await;
    assert_eq!(found.status.code(), Some(1));
    let told = text(&found.stdout);
    let back = |kind: &str| told.contains(&format!("{kind} shardgate_move_77_back"));
    assert!(["subscription", "publication", "slot"].into_iter().all(back), "what a way back has left: {told}");
    assert!(!told.contains("writes to table"), "of a declaration that runs: {told}");
    drop(declaring);
    let found = text(&rebalance(&cluster, &["doctor"]).await.stdout);
    assert!(found.contains("writes to table public.t are refused by a declaration that did not end"), "{found}");
    assert!(found.contains("shard \"half\" is registered, and add_shard() has not ended"), "{found}");
    for kind in [
        "slot shardgate_move_77",
        "publication",
        "subscription",
        "trigger",
        "gate",
        "residues of move 77",
        "covering view view_0123456789abcdef",
        "covering views of move 77",
        "markers of replication of move 77",
        "the term of a driver of move 77",
        "a record of the switch of move 1",
        "move 77, which the map does not know",
        "1 copies that were set aside",
        "replication origin pg_999999 without",
        "slot pg_999999_sync_16400_",
        "rows of table",
    ] {
        assert!(told.contains(kind), "{kind}: {told}");
    }
    let fixed = rebalance(&cluster, &["doctor", "--fix"]).await;
    // The stray rows stay: nothing deletes rows that it does not understand.
    assert_eq!(fixed.status.code(), Some(1), "{}", text(&fixed.stdout));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    let records = "SELECT (SELECT count(*) FROM shardgate.marker) + (SELECT count(*) FROM shardgate.term)
                        + (SELECT count(*) FROM shardgate.set_aside) + (SELECT count(*) FROM shardgate.covering_view)
                        + (SELECT count(*) FROM pg_replication_origin)";
    let source = cluster.connect_shard(0).await;
    assert_eq!(source.query_one(records, &[]).await.expect("records").get::<_, i64>(0), 0);
    // What the map has forgotten a person looks at.
    let known = source.query("DELETE FROM shardgate.switched RETURNING move_id", &[]).await.expect("switches");
    assert_eq!(known.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [77]);
    proxy
        .connect()
        .await
        .batch_execute("INSERT INTO t VALUES (2001, 'x'); DELETE FROM t WHERE id = 2001")
        .await
        .expect("writes go on");
    proxy.connect().await.batch_execute("SELECT shardgate.drop_shard('half')").await.expect("dropped");
    cluster.connect_shard(1).await.batch_execute("DELETE FROM t WHERE v = 'stray'").await.expect("deleted");
    let healthy = rebalance(&cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stdout));
    // What belongs to a running move is not left over. The metrics have it.
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    rebalance(&cluster, &["move", "--partition", &partition, "--to", "b", "--manual-cutover", "--detach"]).await;
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_shown = || {
        let (_, metrics) = proxy.admin("/metrics").expect("the admin address answers");
        let rows = metrics.lines().find_map(|line| line.strip_prefix("shardgate_move_rows{source=\"a\",target=\"b\"} "));
        metrics.contains("shardgate_moves{state=\"catching_up\"} 1\n") && rows.is_some_and(|rows| rows != "0")
    };
    while !is_shown() {
        assert!(Instant::now() < deadline, "{}", proxy.admin("/metrics").expect("the admin address answers").1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let during = rebalance(&cluster, &["doctor", "--fix"]).await;
    assert_eq!(during.status.code(), Some(0), "{}", text(&during.stdout));
    let status = rebalance(&cluster, &["status", "--exact", "--partitions", "--json"]).await;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    for shard in status["shards"].as_array().expect("shards") {
        assert_eq!(shard["misplaced_rows"], 0, "the copies of a move: {shard}");
    }
    let id: i32 =
        cluster.connect_map().await.query_one("SELECT max(move_id) FROM shardgate_map.move", &[]).await.expect("id").get(0);
    let done = rebalance(&cluster, &["cutover", &id.to_string()]).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains(&format!("move {id} ")), "a line for each change: {}", text(&done.stdout));
    // On a terminal a bar shows how far it is, and what it was is printed at the end.
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let told = on_terminal(&cluster, &["move", "--partition", &partition, "--to", "b"]).await;
    assert!(told.contains(&format!("move {} a -> b: switched [", id + 1)) && told.contains(" of "), "{told}");
    assert!(told.contains("pause "), "{told}");
    a_fence_is_finished(&cluster, proxy).await;
}

/// A transaction is told when nobody has finished it for ten seconds; nothing of this is mended by the command.
#[tokio::test]
async fn doctor_tells_what_is_prepared_and_where_the_schema_differs() {
    let (cluster, proxy) = started(TABLE).await;
    // No recovery finishes what is this cluster's.
    drop(proxy);
    let map = cluster.connect_map().await;
    let own: String = map.query_one("SELECT cluster_id FROM shardgate_map.cluster", &[]).await.expect("id").get(0);
    let own = format!("sg:{own}:00000000-0000-0000-0000-000000000000:1");
    let there = cluster.connect_shard(1).await;
    for gid in [own.as_str(), "of an application"] {
        there.batch_execute(&format!("BEGIN; SELECT txid_current(); PREPARE TRANSACTION '{gid}'")).await.expect(gid);
    }
    there.batch_execute("ALTER TABLE t ADD COLUMN w int; CREATE INDEX t_w ON t (w)").await.expect("changed directly");
    let found = rebalance(&cluster, &["doctor"]).await;
    assert_eq!(found.status.code(), Some(1));
    let told = text(&found.stdout);
    let differs =
        "shard b: its schema differs: column \"w\" of table \"public.t\" is missing here and exists there (here: home shard \"a\")";
    assert!(told.contains(differs) && told.contains("index \"t_w\""), "{told}");
    let deadline = Instant::now() + Duration::from_secs(60);
    let parts = [
        format!("shard b: transaction {own} was prepared 1"),
        "a proxy finishes it".to_owned(),
        "shard b: transaction of an application of another program was prepared 1".to_owned(),
    ];
    loop {
        let fixed = rebalance(&cluster, &["doctor", "--fix"]).await;
        let told = text(&fixed.stdout);
        assert_eq!(fixed.status.code(), Some(1), "{told}");
        if parts.iter().all(|part| told.contains(part)) {
            break;
        }
        assert!(Instant::now() < deadline, "{told}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    there.batch_execute("ALTER TABLE t DROP COLUMN w").await.expect("alike again");
    for gid in [own.as_str(), "of an application"] {
        there.batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).await.expect(gid);
    }
    let healthy = rebalance(&cluster, &["doctor"]).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stdout));
}

/// Something of every kind, of a move that the map does not know; and of one that has ended, what a shard knows of its switch.
async fn plant(cluster: &Cluster) {
    let source = cluster.connect_shard(0).await;
    source
        .batch_execute(
            "CREATE PUBLICATION shardgate_move_77 FOR TABLE t;
             CREATE TABLE shardgate.gate_77 (is_open bool);
             CREATE FUNCTION shardgate.gate_77() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER zz_shardgate_move_77_insert AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION shardgate.gate_77();
             INSERT INTO shardgate.residue (group_id, move_id, hashes) VALUES (1, 77, '{[1,2]}');
             CREATE TRIGGER \"00_shardgate_move_77_1_delete\" AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION shardgate.gate_77();
             CREATE SUBSCRIPTION shardgate_move_77_back CONNECTION 'host=127.0.0.1 port=1' PUBLICATION p
                 WITH (connect = false, slot_name = 'shardgate_move_77_back');
             CREATE VIEW shardgate.view_0123456789abcdef AS SELECT * FROM t;
             CREATE VIEW shardgate.view_00000000000000aa AS SELECT * FROM t;
             INSERT INTO shardgate.covering_view VALUES (77, 'view_00000000000000aa', 'SELECT');
             INSERT INTO shardgate.marker VALUES (77, 1), (77, 2);
             INSERT INTO shardgate.term VALUES (77, 1);
             INSERT INTO shardgate.switched (move_id, incarnation) VALUES (1, 1), (77, 1);
             CREATE TABLE IF NOT EXISTS shardgate.set_aside (transaction xid8 NOT NULL, relation regclass NOT NULL, contents text NOT NULL);
             INSERT INTO shardgate.set_aside VALUES (pg_current_xact_id(), 't', '(1,x)');
             INSERT INTO pg_replication_origin VALUES (999, 'pg_999999');
             CREATE TRIGGER shardgate_declaring BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION shardgate.refuse_while_declaring()",
        )
        .await
        .expect("planted");
    let half =
        "SELECT * FROM shardgate_map.add_shard(NULL, 'test', 'half', 'postgres://postgres@127.0.0.1:1/half', NULL, 1, NULL, NULL)";
    cluster.connect_map().await.batch_execute(half).await.expect("registered");
    let copy_slot = "SELECT pg_create_logical_replication_slot(format('pg_999999_sync_16400_%s', system_identifier), 'pgoutput')
                     FROM pg_control_system()";
    source.query_one(copy_slot, &[]).await.expect("the slot of a copy");
    source.execute("SELECT pg_create_logical_replication_slot('shardgate_move_77', 'pgoutput')", &[]).await.expect("a slot");
    cluster
        .connect_shard(1)
        .await
        .batch_execute(
            "CREATE SUBSCRIPTION shardgate_move_77 CONNECTION 'host=127.0.0.1 port=1' PUBLICATION p
                 WITH (connect = false, slot_name = 'shardgate_move_77');
             CREATE PUBLICATION shardgate_move_77_back FOR TABLE t;
             INSERT INTO t SELECT id, 'stray' FROM generate_series(1, 20) v (id) ON CONFLICT DO NOTHING",
        )
        .await
        .expect("planted");
    let slot = "SELECT pg_create_logical_replication_slot('shardgate_move_77_back', 'pgoutput')";
    cluster.connect_shard(1).await.execute(slot, &[]).await.expect("a slot");
}

/// Of a proxy that a mover had begun to shut out, when nobody was left to finish it.
async fn a_fence_is_finished(cluster: &Cluster, mut proxy: Proxy) {
    proxy.signal(rustix::process::Signal::KILL);
    proxy.wait(Duration::from_secs(20));
    let map = cluster.connect_map().await;
    let fence = "INSERT INTO shardgate_map.fence (proxy_id, generation, address, begun_at)
                 VALUES (42, 3, 'gone:6432', clock_timestamp() - interval '1 min')";
    map.batch_execute(fence).await.expect("planted");
    let found = rebalance(cluster, &["doctor"]).await;
    assert!(text(&found.stdout).contains("(gone:6432) is not shut out yet by: a, b"), "{}", text(&found.stdout));
    assert_eq!(found.status.code(), Some(1));
    let fixed = rebalance(cluster, &["doctor", "--fix"]).await;
    assert_eq!(fixed.status.code(), Some(0), "{}", text(&fixed.stdout));
    assert_eq!(map.query_one("SELECT count(*) FROM shardgate_map.fence", &[]).await.expect("fences").get::<_, i64>(0), 0);
    for shard in 0..2 {
        let shut_out = "SELECT generation FROM shardgate.shut_out WHERE proxy_id = 42";
        let generation: i64 = cluster.connect_shard(shard).await.query_one(shut_out, &[]).await.expect("shut out").get(0);
        assert_eq!(generation, 3);
    }
}

/// What the command writes to a terminal.
async fn on_terminal(cluster: &Cluster, arguments: &[&str]) -> String {
    let command = format!("{} {} --map '{}'", env!("CARGO_BIN_EXE_shard-rebalance"), arguments.join(" "), cluster.map_url());
    let run = move || Command::new("script").args(["-qec", &command, "/dev/null"]).output().expect("run script, of bsdutils");
    text(&tokio::task::spawn_blocking(run).await.expect("it runs").stdout)
}

#[tokio::test]
async fn an_open_writer_delays_the_cut_over_and_sees_every_row() {
    let (cluster, proxy) = started(TABLE).await;
    let mut writer = proxy.connect().await;
    let transaction = writer.transaction().await.expect("begin");
    assert_eq!(transaction.execute("UPDATE t SET v = 'w'", &[]).await.expect("every row"), 1000);
    let partition = partitions_on(&proxy, "t", "a").await[0].to_string();
    let arguments = ["--to", "b", "--finish", "--max-pause", "200ms", "--manual-cutover", "--detach"];
    rebalance(&cluster, &[&["move", "--partition", &partition][..], &arguments].concat()).await;
    // It waits before the copy for what has written already; what has locked since holds it up at the cut-over.
    until_move(&cluster, |_, error| error.contains("open transactions: postgres (pid ")).await;
    transaction.commit().await.expect("commit");
    until_move(&cluster, |_, error| error.contains("cutover")).await;
    let transaction = writer.transaction().await.expect("begin");
    assert_eq!(transaction.query("SELECT id FROM t FOR UPDATE", &[]).await.expect("every row").len(), 1000);
    let map = cluster.connect_map().await;
    map.execute("UPDATE shardgate_map.move SET asked = 'cutover'", &[]).await.expect("asked");
    let seen = async || {
        let last = "SELECT attempts, term FROM shardgate_map.move ORDER BY move_id DESC LIMIT 1";
        let row = map.query_one(last, &[]).await.expect("the move");
        (row.get::<_, i32>(0), row.get::<_, i64>(1))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen().await.0 < 3 {
        // It passes the hold, and reads by one owner of each row.
        let count: i64 = transaction.query_one("SELECT count(*) FROM t WHERE v = 'w'", &[]).await.expect("count").get(0);
        assert_eq!(count, 1000);
        assert!(Instant::now() < deadline, "the cut-over is not tried");
    }
    assert_eq!(transaction.execute("UPDATE t SET v = 'y'", &[]).await.expect("every row"), 1000);
    // What has written can be seen before anybody is held.
    let waits = "transactions that have written in the partitions at shard \"a\" are open: postgres (pid ";
    until_move(&cluster, |_, error| error.contains(waits)).await;
    let (attempts, term) = seen().await;
    while seen().await.1 < term + 2 {
        assert!(Instant::now() < deadline, "nobody looks");
    }
    assert_eq!(seen().await.0, attempts, "statements were held for nothing");
    transaction.commit().await.expect("commit");
    until_move(&cluster, |state, _| state == "done").await;
    let count: i64 = writer.query_one("SELECT count(*) FROM t WHERE v = 'y'", &[]).await.expect("count").get(0);
    assert_eq!(count, 1000);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}
