//! Views over tables that move: whoever may use the view, and however, gets PostgreSQL's answer before, during and after the move.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::aborts::started;
use super::operators::until_move;
use super::{leftovers, move_partitions, partitions_on, rebalance, text};
use crate::support::{Cluster, Proxy};

const SCHEMA: &str = "
    CREATE TABLE t (id bigint PRIMARY KEY, v int, note text);
    INSERT INTO t SELECT g, g % 10, 'n' || g FROM generate_series(1, 1000) g;
    CREATE TABLE names (v int PRIMARY KEY, name text);
    INSERT INTO names SELECT g, 'name ' || g FROM generate_series(0, 20) g;
    CREATE SCHEMA app;
    CREATE ROLE views_owner; CREATE ROLE views_reader; CREATE ROLE views_narrow; CREATE ROLE views_stranger;
    GRANT SELECT, UPDATE ON t TO views_owner;
    CREATE VIEW plain AS SELECT id, v FROM t WHERE v < 9;
    CREATE VIEW app.plain AS SELECT id AS key, note FROM t;
    CREATE VIEW small AS SELECT id, v, note FROM t WHERE v < 5 WITH CHECK OPTION;
    CREATE VIEW sealed WITH (security_barrier) AS SELECT id, v FROM t WHERE note IS NOT NULL;
    CREATE VIEW invoked WITH (security_invoker) AS SELECT id, v FROM t;
    CREATE VIEW counted AS SELECT v, count(*) AS n, max(note) AS last FROM t GROUP BY v HAVING count(*) > 1;
    CREATE VIEW best AS SELECT id, v, row_number() OVER (ORDER BY id DESC) AS rank FROM t ORDER BY id DESC LIMIT 3;
    CREATE VIEW both_ways AS SELECT a.id, b.v FROM t a FULL JOIN plain b USING (id);
    CREATE VIEW all_of_them AS SELECT id FROM plain UNION ALL SELECT key FROM app.plain;
    CREATE VIEW named AS WITH used AS (SELECT DISTINCT v FROM plain) SELECT n.v, n.name, u.v IS NULL AS unused
        FROM names n LEFT JOIN used u ON u.v = n.v;
    CREATE VIEW unused AS SELECT v FROM names n WHERE NOT EXISTS (SELECT FROM app.plain p JOIN t ON t.id = p.key WHERE t.v = n.v);
    ALTER VIEW sealed OWNER TO views_owner;
    GRANT SELECT ON plain, sealed, invoked, counted TO views_reader;
    GRANT SELECT (key) ON app.plain TO views_reader;
    GRANT USAGE ON SCHEMA app TO views_reader;
    GRANT SELECT, UPDATE ON app.plain TO views_stranger;
    GRANT SELECT (id, v), UPDATE (v) ON small TO views_narrow;
    GRANT SELECT ON t TO views_narrow;
    GRANT SELECT ON invoked TO views_narrow";

/// A role, and what it asks.
const QUESTIONS: &[(&str, &str)] = &[
    ("", "SELECT count(*), sum(v) FROM plain"),
    ("", "SELECT public.plain.id, plain.v FROM public.plain WHERE public.plain.id < 4 ORDER BY 1"),
    ("", "SELECT count(*) FROM plain AS p (key, x) JOIN app.plain AS q USING (key) WHERE x < 3"),
    ("", "SELECT count(*), count(p.id) FROM t LEFT JOIN plain p ON p.id = t.id"),
    ("", "SELECT count(*) FROM small FULL JOIN plain USING (id)"),
    ("", "TABLE best"),
    ("", "SELECT * FROM counted ORDER BY v"),
    ("", "SELECT count(*), count(v) FROM both_ways"),
    ("", "SELECT count(*), sum(id) FROM all_of_them"),
    ("", "SELECT * FROM named ORDER BY v LIMIT 12"),
    ("", "SELECT count(*) FROM unused"),
    ("", "SELECT to_json(plain) FROM plain WHERE v = 3 AND id < 20 ORDER BY id"),
    ("", "SELECT v, count(*) FROM sealed GROUP BY v ORDER BY v"),
    ("", "UPDATE small SET v = 9 WHERE note = 'n13'"),
    ("", "UPDATE small SET v = v + 1 WHERE v < 4 AND id > 980 RETURNING v, id"),
    ("", "DELETE FROM plain WHERE v = 2"),
    ("", "UPDATE t SET note = 'of a view' FROM plain p WHERE p.id = t.id AND p.v = 1"),
    ("", "INSERT INTO t SELECT id + 5000, v, 'new' FROM plain WHERE v = 4"),
    ("", "SELECT id FROM plain WHERE v = 8 FOR UPDATE"),
    ("views_reader", "SELECT count(*), sum(v) FROM plain"),
    ("views_reader", "SELECT count(*), sum(v) FROM sealed"),
    ("views_reader", "SELECT count(*) FROM invoked"),
    ("views_reader", "SELECT count(*) FROM t"),
    ("views_reader", "SELECT count(key) FROM app.plain"),
    ("views_reader", "SELECT count(note) FROM app.plain"),
    ("views_reader", "UPDATE sealed SET v = 0"),
    ("views_narrow", "SELECT count(id), sum(v) FROM small"),
    ("views_narrow", "SELECT note FROM small"),
    ("views_narrow", "SELECT count(*) FROM invoked"),
    ("views_narrow", "UPDATE small SET v = 4 WHERE v < 3"),
    ("views_narrow", "UPDATE small SET note = ''"),
    ("views_stranger", "SELECT count(*) FROM plain"),
    // Whose schema is closed to it.
    ("views_stranger", "SELECT count(*) FROM app.plain"),
    ("views_stranger", "UPDATE app.plain SET note = ''"),
];

/// What each question is answered, in a transaction that is rolled back; rows in any order.
async fn answers(proxy: &Proxy) -> Vec<String> {
    let client = proxy.connect().await;
    let mut told = Vec::new();
    for (role, question) in QUESTIONS {
        let role = if role.is_empty() { "RESET ROLE".to_owned() } else { format!("SET ROLE {role}") };
        client.batch_execute(&format!("{role}; BEGIN")).await.expect("begin");
        told.push(format!("{role}; {question}\n    {}", answer(&client, question).await));
        client.batch_execute("ROLLBACK").await.expect("rollback");
    }
    told
}

async fn answer(client: &Client, question: &str) -> String {
    match client.simple_query(question).await {
        Ok(messages) => {
            let mut rows: Vec<String> = messages.iter().map(line).collect();
            rows.sort();
            rows.join(" | ")
        }
        Err(error) => {
            let error = error.as_db_error().expect("an error of the server");
            format!("{} {} {:?}", error.code().code(), error.message(), error.detail())
        }
    }
}

fn line(message: &SimpleQueryMessage) -> String {
    match message {
        SimpleQueryMessage::Row(row) => {
            (0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect::<Vec<_>>().join(",")
        }
        SimpleQueryMessage::CommandComplete(count) => format!("done {count}"),
        SimpleQueryMessage::RowDescription(columns) => {
            columns.iter().map(|column| column.name().to_owned()).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}

/// With half of the partitions on each shard, and a move of some of them that waits for its cut-over: copies lie on shard b.
async fn moving(schema: &str) -> (Cluster, Proxy, Vec<i32>) {
    let (cluster, proxy) = started(schema).await;
    let partitions = partitions_on(&proxy, "t", "a").await;
    (cluster, proxy, partitions)
}

async fn begin_move(cluster: &Cluster, partitions: &[i32], target: &str) {
    let list: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let begun =
        rebalance(cluster, &["move", "--partition", &list.join(","), "--to", target, "--manual-cutover", "--keep", "--detach"])
            .await;
    assert!(begun.status.success(), "{}", text(&begun.stderr));
    until_move(cluster, |state, error| {
        assert_ne!(state, "aborted", "{error}");
        error.contains("cutover")
    })
    .await;
}

async fn ask_move(cluster: &Cluster, what: &str) {
    let map = cluster.connect_map().await;
    map.execute("UPDATE shardgate_map.move SET asked = $1 WHERE state NOT IN ('done', 'aborted')", &[&what]).await.expect("asked");
}

async fn covering_views(cluster: &Cluster, shard: usize) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'shardgate'::regnamespace AND relkind = 'v' AND relname LIKE 'view_%'";
    cluster.connect_shard(shard).await.query_one(sql, &[]).await.expect("count").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_of_a_view_sees_the_same_before_during_and_after_a_move() {
    let (cluster, proxy, partitions) = moving(SCHEMA).await;
    // Over two shards from the beginning.
    assert_eq!(move_partitions(&cluster, &partitions[..1], "b").await["state"], "done");
    let before = answers(&proxy).await;
    let count = cluster.connect_shard(0).await;
    let prepared = proxy.connect().await;
    let plain = prepared.prepare("SELECT count(*) FROM plain WHERE v <> $1").await.expect("prepared");
    let kept = async || prepared.query_one(&plain, &[&1_i32]).await.expect("counted").get::<_, i64>(0);
    let expected = kept().await;
    begin_move(&cluster, &partitions[1..3], "b").await;
    let copies: i64 = cluster.connect_shard(1).await.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    let owned: i64 = count.query_one("SELECT count(*) FROM t", &[]).await.expect("count").get(0);
    assert!(copies + owned > 1000, "copies lie on the target");
    assert_eq!([covering_views(&cluster, 0).await, covering_views(&cluster, 1).await], [11, 11]);
    assert_eq!(answers(&proxy).await.join("\n"), before.join("\n"), "copies at the target");
    assert_eq!(kept().await, expected);
    // An open cursor goes on, whatever becomes of the move.
    let mut reader = proxy.connect().await;
    let transaction = reader.transaction().await.expect("begin");
    transaction.batch_execute("DECLARE c CURSOR FOR SELECT id FROM plain").await.expect("declared");
    assert_eq!(transaction.query("FETCH 10 FROM c", &[]).await.expect("fetched").len(), 10);
    ask_move(&cluster, "cutover").await;
    until_move(&cluster, |state, error| state == "switched" && error.contains("finish")).await;
    assert_eq!(answers(&proxy).await.join("\n"), before.join("\n"), "left-overs at the source");
    assert_eq!(kept().await, expected);
    ask_move(&cluster, "finish").await;
    until_move(&cluster, |state, error| state == "cleaning_up" && error.contains("open transactions")).await;
    assert_eq!(answers(&proxy).await.join("\n"), before.join("\n"), "while the end waits for who reads");
    assert_eq!(transaction.query("FETCH ALL FROM c", &[]).await.expect("fetched").len(), 890);
    transaction.commit().await.expect("commit");
    until_move(&cluster, |state, _| state == "done").await;
    assert_eq!(answers(&proxy).await.join("\n"), before.join("\n"), "after the move");
    assert_eq!(kept().await, expected);
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_view_ends_the_move_before_it_is_made() {
    let (cluster, proxy, partitions) = moving(SCHEMA).await;
    let client = proxy.connect().await;
    for change in [
        "GRANT SELECT ON plain TO views_stranger",
        "REVOKE SELECT ON plain FROM views_reader",
        "ALTER VIEW plain OWNER TO views_owner",
        "CREATE OR REPLACE VIEW plain AS SELECT id, v FROM t WHERE v < 8",
        "CREATE VIEW another AS SELECT * FROM plain",
        "DROP VIEW another",
    ] {
        begin_move(&cluster, &partitions[..2], "b").await;
        client.batch_execute(change).await.expect(change);
        until_move(&cluster, |state, _| state == "aborted").await;
        assert_eq!(leftovers(&cluster).await, Vec::<String>::new(), "{change}");
    }
    let count: i64 = client.query_one("SELECT count(*) FROM plain", &[]).await.expect("count").get(0);
    assert_eq!(count, 800);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_a_move_that_has_ended_is_told_to_repeat() {
    let (cluster, proxy, partitions) = moving(SCHEMA).await;
    assert_eq!(move_partitions(&cluster, &partitions[..1], "b").await["state"], "done");
    begin_move(&cluster, &partitions[1..3], "b").await;
    let client = proxy.connect().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let counted =
        async |view: &str| client.query_one(&format!("SELECT count(*) FROM {view}"), &[]).await.map(|row| row.get::<_, i64>(0));
    client.batch_execute(begin).await.expect("begin");
    assert_eq!(counted("t").await.expect("a snapshot of the move"), 1000);
    assert_eq!(counted("plain").await.expect("a snapshot of the move"), 900);
    ask_move(&cluster, "abort").await;
    // It waits for who has read a view.
    until_move(&cluster, |state, error| state == "aborting" && error.contains("open transactions")).await;
    assert_eq!(counted("plain").await.expect("the same snapshot"), 900);
    client.batch_execute("COMMIT").await.expect("commit");
    until_move(&cluster, |state, _| state == "aborted").await;
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    // And not for who reads one afterwards.
    begin_move(&cluster, &partitions[1..3], "b").await;
    client.batch_execute(begin).await.expect("begin");
    assert_eq!(counted("t").await.expect("a snapshot of the move"), 1000);
    ask_move(&cluster, "abort").await;
    while covering_views(&cluster, 0).await + covering_views(&cluster, 1).await > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counted("t").await.expect("the same snapshot"), 1000);
    let refused = counted("plain").await.expect_err("nothing shows the view without copies");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("40001"), "{refused:?}");
    client.batch_execute("ROLLBACK").await.expect("rollback");
    assert_eq!(counted("plain").await.expect("repeated"), 900);
    until_move(&cluster, |state, _| state == "aborted").await;
    // Its triggers may be left, since the table was read.
    let fixed = rebalance(&cluster, &["doctor", "--fix"]).await;
    assert_eq!(fixed.status.code(), Some(0), "{}", text(&fixed.stdout));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_of_two_groups_share_the_covering_view_of_a_view_over_both() {
    let schema = "CREATE TABLE t (id bigint PRIMARY KEY, v int); INSERT INTO t SELECT g, 1 FROM generate_series(1, 400) g;
                  CREATE TABLE u (id text PRIMARY KEY, v int); INSERT INTO u SELECT g::text, 2 FROM generate_series(1, 400) g;
                  CREATE VIEW of_u AS SELECT * FROM u;
                  CREATE VIEW sums AS SELECT (SELECT sum(v) FROM t) AS t, (SELECT sum(v) FROM of_u) AS u";
    let (cluster, proxy, partitions) = moving(schema).await;
    let client = proxy.connect().await;
    client.batch_execute("SELECT shardgate.distribute_table('u', 'id', partitions => 4)").await.expect("distributed");
    let other = partitions_on(&proxy, "u", "a").await;
    assert_eq!(move_partitions(&cluster, &partitions[..1], "b").await["state"], "done");
    assert_eq!(move_partitions(&cluster, &other[..1], "b").await["state"], "done");
    let sums = async || {
        let row = client.query_one("SELECT t, u FROM sums", &[]).await.expect("sums");
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    begin_move(&cluster, &partitions[1..2], "b").await;
    assert_eq!((sums().await, covering_views(&cluster, 0).await), ((400, 800), 2));
    // The other one begins and ends meanwhile.
    assert_eq!(move_partitions(&cluster, &other[1..2], "b").await["state"], "done");
    assert_eq!((sums().await, covering_views(&cluster, 0).await), ((400, 800), 2));
    ask_move(&cluster, "abort").await;
    until_move(&cluster, |_, _| true).await;
    let map = cluster.connect_map().await;
    let running = "SELECT count(*) FROM shardgate_map.move WHERE state NOT IN ('done', 'aborted')";
    while map.query_one(running, &[]).await.expect("moves").get::<_, i64>(0) > 0 {
        assert_eq!(sums().await, (400, 800));
    }
    assert_eq!(sums().await, (400, 800));
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
}
