//! Rows that move refer to a reference table, whose keys are changed and deleted at every state of the move.
//!
//! Each shard has copies of rows that it does not own, which are as old as replication is late. They must not be in the way of a key
//! that nothing refers to any more, and no cascade may touch them: what becomes of them replication says.

use tokio_postgres::Client;

use super::kills::Stage;
use super::{leftovers, partitions_on};
use crate::support::Cluster;

/// Of every kind there are rows in one of these tables, in partitions that move and in others.
const TABLES: [(&str, &str); 6] = [
    ("to_none", "NO ACTION"),
    ("restricted", "RESTRICT"),
    ("cascading", "CASCADE ON UPDATE CASCADE"),
    ("to_null", "SET NULL ON UPDATE SET NULL"),
    ("to_default", "SET DEFAULT ON UPDATE SET DEFAULT"),
    ("deferred", "NO ACTION DEFERRABLE INITIALLY DEFERRED"),
];
const ROWS: i64 = 8;

struct Kinds {
    stage: Stage,
    client: Client,
    next: i32,
    /// What a client may see of each table in the end: rows of no kind, of the default one, of others.
    expected: [[i64; 3]; TABLES.len()],
}

impl Kinds {
    async fn start() -> Self {
        Self::start_on(Cluster::start(2).await).await
    }

    async fn start_on(cluster: Cluster) -> Self {
        let stage = Stage::start(cluster).await;
        let client = stage.proxy.connect().await;
        client
            .batch_execute(
                "CREATE TABLE kinds (id int PRIMARY KEY, name text); INSERT INTO kinds VALUES (0, 'default');
                 SELECT shardgate.reference_table('kinds')",
            )
            .await
            .expect("kinds");
        for (table, action) in TABLES {
            // A key of two columns: the reference is a part of a row's identity.
            let key = if table == "to_none" { "id, kind" } else { "id" };
            let create = format!(
                "CREATE TABLE {table} (id bigint, kind int DEFAULT 0 REFERENCES kinds ON DELETE {action}, x text, PRIMARY KEY ({key}));
                 SELECT shardgate.distribute_table('{table}', 'id', colocate_with => 't')"
            );
            client.batch_execute(&create).await.expect(table);
        }
        Self { stage, client, next: 1, expected: [[0; 3]; TABLES.len()] }
    }

    /// A kind with rows in a table of which it is the only one.
    async fn kind(&mut self, table: usize) -> i32 {
        let kind = self.next;
        self.next += 1;
        let name = TABLES[table].0;
        let rows = format!(
            "INSERT INTO kinds VALUES ({kind}, 'kind'), ({kind} + 100000, 'other'), ({kind} + 200000, 'third');
             INSERT INTO {name} SELECT {kind} * {ROWS} + g, {kind}, 'row' FROM generate_series(0, {ROWS} - 1) g"
        );
        self.client.batch_execute(&rows).await.expect("rows");
        kind
    }

    /// Every form of a change of a key that has to succeed, and one that must not.
    async fn changes(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for (table, statements, becomes) in [
            (0, "UPDATE to_none SET kind = 100000 + $ WHERE kind = $; DELETE FROM kinds WHERE id = $", Some(2)),
            (0, "DELETE FROM to_none WHERE kind = $; UPDATE kinds SET id = -$ WHERE id = $", None),
            (1, "DELETE FROM restricted WHERE kind = $; DELETE FROM kinds WHERE id = $", None),
            (1, "UPDATE restricted SET kind = NULL WHERE kind = $; UPDATE kinds SET id = -$ WHERE id = $", Some(0)),
            (2, "DELETE FROM kinds WHERE id = $", None),
            (2, "UPDATE kinds SET id = -$ WHERE id = $", Some(2)),
            (2, "UPDATE cascading SET kind = 100000 + $ WHERE kind = $; DELETE FROM kinds WHERE id = $", Some(2)),
            (2, "UPDATE cascading SET kind = 200000 + $ WHERE kind = $; DELETE FROM kinds WHERE name = 'kind' AND id = $", Some(2)),
            (3, "DELETE FROM kinds WHERE id = $", Some(0)),
            (3, "UPDATE kinds SET id = -$ WHERE id = $", Some(0)),
            (4, "DELETE FROM kinds WHERE id = $", Some(1)),
            (4, "UPDATE kinds SET id = -$ WHERE id = $", Some(1)),
            (5, "DELETE FROM kinds WHERE id = $; UPDATE deferred SET kind = 0 WHERE kind = $", Some(1)),
            (5, "UPDATE kinds SET id = -$ WHERE id = $; DELETE FROM deferred WHERE kind = $", None),
            (5, "DELETE FROM kinds WHERE id = $; DELETE FROM deferred WHERE kind = $; SET CONSTRAINTS ALL IMMEDIATE", None),
        ] {
            let kind = self.kind(table).await;
            let statements = statements.replace('$', &kind.to_string());
            // One by itself in autocommit, several as a transaction.
            let text = if statements.contains("; ") { format!("BEGIN; {statements}; COMMIT") } else { statements };
            match self.client.batch_execute(&text).await {
                Ok(()) => {
                    if let Some(column) = becomes {
                        self.expected[table][column] += ROWS;
                    }
                }
                Err(error) => {
                    failed.push(format!("{text}: {}", told(&error)));
                    self.client.batch_execute("ROLLBACK").await.expect("rolled back");
                    self.expected[table][2] += ROWS;
                }
            }
        }
        for table in [0, 1, 5] {
            let kind = self.kind(table).await;
            self.expected[table][2] += ROWS;
            for text in [format!("DELETE FROM kinds WHERE id = {kind}"), format!("UPDATE kinds SET id = -id WHERE id = {kind}")] {
                match self.client.batch_execute(&text).await {
                    Ok(()) => failed.push(format!("{text}: rows refer to it")),
                    Err(error) if error.code().is_some_and(|code| ["23001", "23503"].contains(&code.code())) => {}
                    Err(error) => failed.push(format!("{text}: {}", told(&error))),
                }
            }
        }
        failed
    }

    /// What a client sees is what was done, whatever lies where.
    async fn is_right(&self, point: &str) {
        for ((table, _), expected) in TABLES.iter().zip(self.expected) {
            let sql = format!(
                "SELECT count(*) FILTER (WHERE kind IS NULL), count(*) FILTER (WHERE kind = 0), count(*) FILTER (WHERE kind <> 0) FROM {table}"
            );
            let row = self.client.query_one(&sql, &[]).await.expect("counts");
            assert_eq!([0, 1, 2].map(|column| row.get::<_, i64>(column)), expected, "{point}: {table}");
        }
    }

    /// After a move: nothing is left, and no row refers to a key that is gone.
    async fn is_whole(&self, point: &str) {
        self.is_right(point).await;
        self.stage.is_whole(&self.client, point, 0).await;
        let mut stored = [0; TABLES.len()];
        for shard in 0..2 {
            let client = self.stage.cluster.connect_shard(shard).await;
            for (place, (table, _)) in TABLES.iter().enumerate() {
                let sql = format!(
                    "SELECT count(*), count(*) FILTER (WHERE kind IS NOT NULL AND NOT EXISTS (SELECT FROM kinds k WHERE k.id = c.kind)) FROM {table} c"
                );
                let row = client.query_one(&sql, &[]).await.expect("stored");
                assert_eq!(row.get::<_, i64>(1), 0, "{point}: rows of {table} on shard {shard} refer to nothing");
                stored[place] += row.get::<_, i64>(0);
            }
        }
        assert_eq!(stored, self.expected.map(|columns| columns.iter().sum::<i64>()), "{point}: rows lie where they are not owned");
        assert_eq!(leftovers(&self.stage.cluster).await, Vec::<String>::new());
    }
}

fn told(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| format!("{} {}", error.code().code(), error.message()))
}

async fn list_of_half(stage: &Stage) -> String {
    let all = partitions_on(&stage.proxy, "t", "a").await;
    all.iter().step_by(2).map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Does everything at each of these points, of a command that drives the move.
async fn at_each_point(kinds: &mut Kinds, points: &[&str], arguments: &[&str]) -> Vec<String> {
    points.iter().for_each(|point| kinds.stage.arm(point, "hold"));
    let mut driver = kinds.stage.command(arguments);
    let mut failed = Vec::new();
    for point in points {
        kinds.stage.until_reached(point).await;
        failed.extend(kinds.changes().await.into_iter().map(|failure| format!("{point}: {failure}")));
        kinds.is_right(point).await;
        kinds.stage.disarm(point);
    }
    assert!(driver.wait().await.expect("it runs").success(), "{arguments:?}");
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_reference_table_change_at_every_state_of_a_move() {
    let mut kinds = Kinds::start().await;
    let mut failed = kinds.changes().await;
    let list = list_of_half(&kinds.stage).await;
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--keep", "--partition", &list];
    let points =
        ["excluding", "gated", "published", "subscribed", "copied", "verified", "online", "replication_ended", "reverse_enabled"];
    failed.extend(at_each_point(&mut kinds, &points, &arguments).await);
    // What would take moving tables with it is refused, on all shards.
    let refused = kinds.client.batch_execute("TRUNCATE kinds CASCADE").await.expect_err("refused");
    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("55006"), "{}", told(&refused));
    // What acts as the mover nobody makes a trigger of, with arguments of his own.
    let target = kinds.stage.cluster.connect_shard(1).await;
    let may = "SELECT string_agg(proname, ', ') FROM pg_proc WHERE pronamespace = 'shardgate'::regnamespace AND prosecdef
               AND prosrc ~ 'TG_ARGV' AND has_function_privilege('of_no_rights', oid, 'EXECUTE')";
    target.batch_execute("CREATE ROLE of_no_rights").await.expect("a role");
    assert_eq!(target.query_one(may, &[]).await.expect("functions").get::<_, Option<String>>(0), None);
    let points = ["verified_again", "reverse_ended", "cleaning", "cleaned", "ungated"];
    failed.extend(at_each_point(&mut kinds, &points, &["finish", "1"]).await);
    assert_eq!(failed, Vec::<String>::new());
    kinds.is_whole("after the move").await;
    // And of one that goes back.
    let list = list_of_half(&kinds.stage).await;
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--keep", "--partition", &list];
    failed.extend(at_each_point(&mut kinds, &[], &arguments).await);
    failed.extend(at_each_point(&mut kinds, &["back_online", "abort_begun", "abort_cleaned"], &["rollback", "2"]).await);
    assert_eq!(failed, Vec::<String>::new());
    kinds.is_whole("after the rollback").await;
}

/// Replication is late: rows have got another kind at their owner, and the copies have not heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_deleted_while_replication_is_late() {
    let mut kinds = Kinds::start().await;
    let mut early = [0; TABLES.len()];
    for (table, kind) in early.iter_mut().enumerate() {
        *kind = kinds.kind(table).await;
    }
    // It refers to two keys of a kind.
    kinds
        .client
        .batch_execute(
            "ALTER TABLE kinds ADD COLUMN code int UNIQUE;
             CREATE TABLE coded (id bigint PRIMARY KEY, code int REFERENCES kinds (code) ON UPDATE CASCADE,
                                 kind int REFERENCES kinds ON UPDATE CASCADE);
             SELECT shardgate.distribute_table('coded', 'id', colocate_with => 't');
             INSERT INTO kinds VALUES (900001, 'coded', 5); INSERT INTO coded SELECT g, 5, 900001 FROM generate_series(1, 40) g",
        )
        .await
        .expect("a table that refers to two keys");
    let list = list_of_half(&kinds.stage).await;
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--keep", "--partition", &list];
    kinds.stage.arm("verified", "hold");
    let mut driver = kinds.stage.command(&arguments);
    kinds.stage.until_reached("verified").await;
    let target = kinds.stage.cluster.connect_shard(1).await;
    target.batch_execute("ALTER SUBSCRIPTION shardgate_move_1 DISABLE").await.expect("disabled");
    for ((table, _), kind) in TABLES.iter().zip(early) {
        let update = format!("UPDATE {table} SET kind = 100000 + {kind} WHERE kind = {kind}");
        kinds.client.batch_execute(&update).await.expect(&update);
        let delete = format!("DELETE FROM kinds WHERE id = {kind}");
        // Each constraint has its own time.
        let constraints = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS deferred_kind_fkey DEFERRED";
        let delete = if *table == "deferred" { format!("BEGIN; {constraints}; {delete}; COMMIT") } else { delete };
        kinds.client.batch_execute(&delete).await.unwrap_or_else(|error| panic!("{delete}: {}", told(&error)));
    }
    let copies = "SELECT count(*) FROM coded";
    let before: i64 = target.query_one(copies, &[]).await.expect("copies").get(0);
    for change in ["UPDATE kinds SET code = 6 WHERE code = 5", "UPDATE kinds SET id = 900002 WHERE id = 900001"] {
        kinds.client.batch_execute(change).await.expect(change);
        let after: i64 = target.query_one(copies, &[]).await.expect("copies").get(0);
        assert!(before > 0 && after == before, "{change}: {after} of {before} copies are left");
        let set_aside = target.query_one("SELECT count(*) FROM shardgate.set_aside", &[]).await.expect("what is set aside");
        assert_eq!(set_aside.get::<_, i64>(0), 0, "{change}");
    }
    // Rows that come while their kind goes.
    target.batch_execute("ALTER SUBSCRIPTION shardgate_move_1 ENABLE").await.expect("enabled");
    for round in 0..60 {
        let (table, action) = [(0, "DELETE FROM to_none WHERE kind = $"), (2, ""), (3, "")][round % 3];
        let kind = kinds.kind(table).await.to_string();
        if !action.is_empty() {
            kinds.client.batch_execute(&action.replace('$', &kind)).await.expect("its rows are deleted");
        }
        let change = format!("DELETE FROM kinds WHERE id = {kind}");
        kinds.client.batch_execute(&change).await.unwrap_or_else(|error| panic!("round {round}: {}", told(&error)));
        kinds.expected[3][0] += if table == 3 { ROWS } else { 0 };
    }
    target.batch_execute("ALTER SUBSCRIPTION shardgate_move_1 DISABLE").await.expect("disabled");
    // Rows that have come since, and are gone with their kind.
    let new = kinds.kind(2).await;
    kinds.client.batch_execute(&format!("DELETE FROM kinds WHERE id = {new}")).await.expect("a cascade");
    kinds.expected.iter_mut().for_each(|expected| expected[2] += ROWS);
    kinds.is_right("late").await;
    target.batch_execute("ALTER SUBSCRIPTION shardgate_move_1 ENABLE").await.expect("enabled");
    kinds.stage.disarm("verified");
    assert!(driver.wait().await.expect("it runs").success());
    // The same on the way back.
    let source = kinds.stage.cluster.connect_shard(0).await;
    source.batch_execute("ALTER SUBSCRIPTION shardgate_move_1_back DISABLE").await.expect("disabled");
    for ((table, _), kind) in TABLES.iter().zip(early) {
        let text = format!(
            "UPDATE {table} SET kind = 200000 + {kind} WHERE kind = 100000 + {kind}; DELETE FROM kinds WHERE id = 100000 + {kind}"
        );
        for text in text.split("; ") {
            kinds.client.batch_execute(text).await.expect(text);
        }
    }
    kinds.is_right("late on the way back").await;
    source.batch_execute("ALTER SUBSCRIPTION shardgate_move_1_back ENABLE").await.expect("enabled");
    assert!(kinds.stage.command(&["rollback", "1"]).wait().await.expect("it runs").success());
    kinds.is_whole("after the rollback").await;
    let coded = "SELECT count(*) FROM coded WHERE code = 6 AND kind = 900002";
    assert_eq!(kinds.client.query_one(coded, &[]).await.expect("coded").get::<_, i64>(0), 40);
}

/// Until one of these processes waits for a lock of this kind.
async fn until_waits(client: &Client, backend: &str, lock: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
         WHERE NOT l.granted AND l.locktype = '{lock}' AND a.backend_type LIKE '{backend}%' AND a.datname = current_database()"
    );
    let deadline = std::time::Instant::now() + super::kills::ENDED_WITHIN;
    while client.query_one(&sql, &[]).await.expect("locks").get::<_, i64>(0) == 0 {
        assert!(std::time::Instant::now() < deadline, "no {backend} waits for a lock of {lock}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Replication and the change of a key meet in the middle: neither ends in a deadlock, and no answer is false.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_changed_while_rows_that_refer_to_it_arrive() {
    // A slot is made only when no transaction of its server writes.
    let mut kinds = Kinds::start_on(Cluster::separate_servers(2).await).await;
    let (copied, first, second, third, fourth) =
        (kinds.kind(1).await, kinds.kind(1).await, kinds.kind(1).await, kinds.kind(1).await, kinds.kind(1).await);
    let repoint = |kind: i32| format!("UPDATE restricted SET kind = 100000 + {kind} WHERE kind = {kind}");
    for kind in [first, third] {
        kinds.client.batch_execute(&repoint(kind)).await.expect("nothing refers to it");
    }
    let list = list_of_half(&kinds.stage).await;
    let arguments = ["move", "--to", "b", "--max-pause", "3s", "--finish", "--partition", &list];
    kinds.stage.arm("published", "hold");
    kinds.stage.arm("verified", "hold");
    let mut driver = kinds.stage.command(&arguments);
    kinds.stage.until_reached("published").await;
    let (source, target) = (kinds.stage.cluster.connect_shard(0).await, kinds.stage.cluster.connect_shard(1).await);
    let hashes: String = target.query_one("SELECT hashes::text FROM shardgate.residue", &[]).await.expect("the set").get(0);
    let moving = async |table: &str| {
        let sql = format!("SELECT min(id) FROM {table} WHERE hashint8extended(id, 0) <@ '{hashes}'::int8multirange");
        source.query_one(&sql, &[]).await.expect("a row that moves").get::<_, i64>(0)
    };
    let holder = kinds.stage.cluster.connect_shard(1).await;
    let other = kinds.stage.cluster.connect_shard(1).await;
    let deleting = |client: Client, condition: String| {
        tokio::spawn(async move {
            client.batch_execute(&format!("DELETE FROM kinds WHERE {condition}")).await.map_err(|error| told(&error))
        })
    };

    // The first copy of a table has read rows that refer to the key, and comes to its end between what looks for them and the check.
    let row = moving("restricted").await;
    let in_the_way = format!(
        "BEGIN; SET LOCAL session_replication_role = replica; SET LOCAL shardgate.unfollowed = 'on'; INSERT INTO restricted (id) VALUES ({row})"
    );
    holder.batch_execute(&in_the_way).await.expect("in the way of the copy");
    kinds.stage.disarm("published");
    until_waits(&target, "logical replication", "transactionid").await;
    let ready = "SELECT count(*) FROM pg_subscription_rel WHERE srrelid = 'to_none'::regclass AND srsubstate = 'r'";
    while target.query_one(ready, &[]).await.expect("states").get::<_, i64>(0) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    kinds.client.batch_execute(&repoint(copied)).await.expect("after the copy has read");
    other.batch_execute("BEGIN; LOCK TABLE to_none IN EXCLUSIVE MODE").await.expect("the check waits");
    let deleted = deleting(kinds.stage.proxy.connect().await, format!("id = {copied}"));
    until_waits(&target, "client backend", "relation").await;
    holder.batch_execute("ROLLBACK").await.expect("out of the way");
    let arrived =
        "SELECT EXISTS (SELECT FROM restricted) OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";
    while !target.query_one(arrived, &[]).await.expect("the copy").get::<_, bool>(0) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    other.batch_execute("ROLLBACK").await.expect("the check goes on");
    assert_eq!(deleted.await.expect("it runs"), Ok(()), "nothing refers to the key");
    kinds.stage.until_reached("verified").await;

    // Replication has written rows that refer to the second key, and waits for the change of the first one.
    let stalled = format!("BEGIN; SELECT FROM t WHERE id = {} FOR UPDATE", moving("t").await);
    let stall = format!("UPDATE t SET v = v WHERE id = {}", moving("t").await);
    holder.batch_execute(&stalled).await.expect("replication waits");
    for text in [&stall, &repoint(second)] {
        kinds.client.batch_execute(text).await.expect(text);
    }
    until_waits(&target, "logical replication", "transactionid").await;
    other.batch_execute("BEGIN; LOCK TABLE to_none IN EXCLUSIVE MODE").await.expect("the change waits");
    let began = std::time::Instant::now();
    let deleted = deleting(kinds.stage.proxy.connect().await, format!("id IN ({first}, {second})"));
    until_waits(&target, "client backend", "relation").await;
    holder.batch_execute("ROLLBACK").await.expect("replication goes on");
    until_waits(&target, "logical replication", "advisory").await;
    other.batch_execute("ROLLBACK").await.expect("the change goes on");
    assert_eq!(deleted.await.expect("it runs"), Ok(()), "tried again");
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "it has taken {:?}", began.elapsed());
    let repeated = kinds.stage.proxy.admin("/metrics").expect("metrics").1;
    let refusals = repeated.lines().find_map(|line| line.strip_prefix("shardgate_gate_refusals_total "));
    assert!(refusals.is_some_and(|count| count != "0"), "{repeated}");

    // The same in a transaction, which the client repeats.
    holder.batch_execute(&stalled).await.expect("replication waits");
    for text in [&stall, &repoint(fourth)] {
        kinds.client.batch_execute(text).await.expect(text);
    }
    until_waits(&target, "logical replication", "transactionid").await;
    kinds.client.batch_execute(&format!("BEGIN; DELETE FROM kinds WHERE id = {third}")).await.expect("the first key");
    holder.batch_execute("ROLLBACK").await.expect("replication goes on");
    until_waits(&target, "logical replication", "advisory").await;
    let delete = format!("DELETE FROM kinds WHERE id = {fourth}");
    let refused = kinds.client.batch_execute(&delete).await.expect_err("replication waits for this transaction");
    assert_eq!(told(&refused), "40001 rows that refer to this key are being moved");
    kinds.client.batch_execute("ROLLBACK").await.expect("rolled back");
    kinds.client.batch_execute(&format!("DELETE FROM kinds WHERE id IN ({third}, {fourth})")).await.expect("repeated");
    let errors =
        "SELECT sum(apply_error_count + sync_error_count)::bigint FROM pg_stat_subscription_stats WHERE subname LIKE 'shardgate%'";
    assert_eq!(target.query_one(errors, &[]).await.expect("errors").get::<_, i64>(0), 0, "replication has met a deadlock");
    kinds.stage.disarm("verified");
    assert!(driver.wait().await.expect("it runs").success());
    kinds.expected[1][2] += 5 * ROWS;
    kinds.is_whole("after the move").await;
}

/// In the pause: a change waits and then succeeds, and a transaction that has changed a key before is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_reference_table_change_in_the_pause() {
    let mut kinds = Kinds::start().await;
    for point in ["held", "fenced", "residue_at_source"] {
        let (kind, before) = (kinds.kind(2).await, kinds.kind(2).await);
        let list =
            partitions_on(&kinds.stage.proxy, "t", "a").await[..4].iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let arguments = ["move", "--to", "b", "--max-pause", "4s", "--finish", "--partition", &list];
        kinds.stage.arm("verified", "hold");
        kinds.stage.arm(point, "hold");
        let mut driver = kinds.stage.command(&arguments);
        kinds.stage.until_reached("verified").await;
        let writer = kinds.stage.proxy.connect().await;
        writer.batch_execute(&format!("BEGIN; UPDATE kinds SET id = -{before} WHERE id = {before}")).await.expect(point);
        kinds.stage.disarm("verified");
        if point != "held" {
            writer.batch_execute("COMMIT").await.expect(point);
        }
        kinds.stage.until_reached(point).await;
        let text = format!("DELETE FROM kinds WHERE id = {kind}");
        let changing = tokio::spawn({
            let client = kinds.stage.proxy.connect().await;
            async move { client.batch_execute(&text).await.map_err(|error| told(&error)) }
        });
        kinds.stage.disarm(point);
        if point == "held" {
            writer.batch_execute("COMMIT").await.expect(point);
        }
        assert_eq!(changing.await.expect("it runs"), Ok(()), "{point}");
        assert!(driver.wait().await.expect("it runs").success(), "{point}");
        kinds.expected[2][2] += ROWS;
        kinds.is_whole(point).await;
    }
}
