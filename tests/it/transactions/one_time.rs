//! One transaction has one `now()`, on however many shards it is: in texts and in defaults, by every message that a client may send.

use crate::sessions::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const SCHEMA: &[&str] = &[
    "CREATE TABLE stamps (k bigint PRIMARY KEY, at timestamptz DEFAULT now(), day date DEFAULT CURRENT_DATE, \
     utc timestamp DEFAULT (now() AT TIME ZONE 'utc'), note text)",
    "SELECT shardgate.distribute_table('stamps', 'k', colocate_with => 'accounts')",
    "CREATE TABLE journal (id serial, at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, what text)",
];

async fn stage() -> Stage {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in SCHEMA {
        succeed(&mut client, statement).await;
    }
    stage
}

/// `{0}`, `{1}`, `{2}`: a key of each shard; `{3}` … `{5}`: others of them.
fn fill_in(stage: &Stage, text: &str) -> String {
    (0..6).fold(text.to_owned(), |text, place| text.replace(&format!("{{{place}}}"), &stage.key(place % 3, place / 3).to_string()))
}

/// All times of the transaction, in both tables.
const TIMES: &str = "SELECT count(DISTINCT at), count(DISTINCT utc), count(DISTINCT day), \
                     bool_and(at = now() AND utc = now() AT TIME ZONE 'utc' AND day = current_date), count(*) FROM stamps";

/// How a statement is sent.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Simple,
    Unnamed,
    Named,
    Executed,
}

async fn send(client: &mut WireClient, sent: Sent, sql: &str, parameters: &[&str]) -> String {
    let constants =
        || (0..parameters.len()).fold(sql.to_owned(), |sql, place| sql.replace(&format!("${}", place + 1), parameters[place]));
    match sent {
        Sent::Simple => client.ask(&constants()).await,
        Sent::Unnamed => client.unnamed(sql, parameters).sync().transcript().await,
        Sent::Named => {
            let name = format!("s{}", sql.len());
            client.parse(&name, sql).describe(b'S', &name).sync();
            let told = client.transcript().await;
            assert!(!told.contains("E("), "{sql}: {told}");
            client.bind("", &name, parameters).describe(b'P', "").execute("", 0).close(b'S', &name).sync();
            client.transcript().await
        }
        Sent::Executed => {
            let types = if parameters.is_empty() { String::new() } else { " (bigint)".to_owned() };
            succeed(client, &format!("PREPARE e{types} AS {sql}")).await;
            let arguments =
                if parameters.is_empty() { String::new() } else { format!(" ({}) /* as it is */", parameters.join(", ")) };
            let told = client.ask(&format!("EXECUTE e{arguments}")).await;
            succeed(client, "DEALLOCATE e").await;
            told
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_a_transaction_has_its_time() {
    let stage = stage().await;
    let mut client = stage.client().await;
    for sent in [Sent::Simple, Sent::Unnamed, Sent::Named, Sent::Executed] {
        succeed(&mut client, "BEGIN").await;
        for (sql, key) in [
            ("INSERT INTO stamps VALUES ($1, now())", "{0}"),
            ("INSERT INTO stamps (k, at) VALUES ($1, now())", "{1}"),
            ("INSERT INTO stamps (k) VALUES ($1)", "{2}"),
            ("INSERT INTO stamps VALUES ($1, DEFAULT, DEFAULT)", "{4}"),
            ("INSERT INTO stamps VALUES ($1)", "{5}"),
            (
                "INSERT INTO stamps (k, at, note) VALUES ($1, NULL, 'now()') ON CONFLICT (k) DO UPDATE SET at = CURRENT_TIMESTAMP",
                "{4}",
            ),
            ("INSERT INTO journal (what) VALUES ($1)", "{0}"),
            ("UPDATE stamps SET at = transaction_timestamp(), note = 'x' WHERE k = $1 AND at = now()", "{1}"),
        ] {
            let told = send(&mut client, sent, sql, &[&fill_in(&stage, key)]).await;
            let told = told.replace("UPDATE", "INSERT 0");
            assert!(told.contains("INSERT 0 1"), "{sent:?} {sql}: {told}");
        }
        assert_eq!(client.row(TIMES).await, ["1", "1", "1", "t", "5"], "{sent:?}");
        assert_eq!(client.value("SELECT at = now() FROM journal").await, "t", "{sent:?}");
        for place in 0..3 {
            for sql in [
                "SELECT k FROM stamps WHERE k = $1 AND at = now() AND day = CURRENT_DATE AND utc::time = (now() AT TIME ZONE 'utc')::time",
                "SELECT k FROM stamps WHERE k = $1 AND at < statement_timestamp()",
            ] {
                let key = fill_in(&stage, &format!("{{{place}}}"));
                let told = send(&mut client, sent, sql, &[&key]).await;
                assert!(told.contains(&format!("D({key})")), "{sent:?} {sql} on shard {place}: {told}");
            }
        }
        let told = send(
            &mut client,
            sent,
            "DELETE FROM stamps WHERE k = $1 AND at <= LOCALTIMESTAMP::timestamptz",
            &[&fill_in(&stage, "{2}")],
        )
        .await;
        assert!(told.contains("DELETE 1"), "{sent:?}: {told}");
        succeed(&mut client, "ROLLBACK").await;
    }
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_come_by_other_ways_have_it_too() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let ask = |text: &str| fill_in(&stage, text);
    succeed(&mut client, "BEGIN").await;
    // SHOW is answered by a shard on which the transaction does not begin.
    succeed(&mut client, "SHOW work_mem").await;
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({1})")).await;
    succeed(&mut client, "SAVEPOINT a").await;
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({0})")).await;
    succeed(&mut client, "ROLLBACK TO a").await;
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({0}), ({2}), ({4})")).await;
    client.query("COPY stamps (k, note) FROM STDIN").put(b'd', ask("{3}\tx\n{5}\ty\n").as_bytes()).put(b'c', b"");
    assert!(client.transcript().await.contains("COPY 2"));
    assert_eq!(client.row(TIMES).await, ["1", "1", "1", "t", "6"]);
    for (sql, wanted) in [
        ("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) UPDATE stamps SET note = now()::text WHERE k = {2}", ""),
        ("SELECT note = now()::text FROM stamps WHERE k = {2}", "D(t)"),
        ("DECLARE c CURSOR FOR SELECT at = now() FROM stamps WHERE k = {2}", "C(DECLARE CURSOR)"),
        ("FETCH c", "D(t)"),
        ("COPY (SELECT k FROM stamps WHERE k = {2} AND at = now()) TO STDOUT", "C(COPY 1)"),
        (
            "SELECT a.at = b.at AND a.at = now(), string_agg(c.note, ',') FROM stamps a, stamps b, stamps c WHERE a.k = {0} AND b.k = {2} GROUP BY 1",
            "D(t,",
        ),
        (
            "INSERT INTO stamps (k, at) SELECT {0} + 0 * k, at FROM stamps WHERE k = {1} AND at = now() ON CONFLICT (k) DO UPDATE SET at = now() RETURNING at = now()",
            "D(t)",
        ),
        ("UPDATE stamps SET at = now()", "C(UPDATE 6)"),
        ("SELECT now() = (SELECT max(at) FROM stamps)", "D(t)"),
        ("INSERT INTO journal (what) SELECT 'x' RETURNING at = now()", "D(t)"),
        ("INSERT INTO journal (what) SELECT 'rows' FROM stamps RETURNING at = now()", "D(t)"),
        ("INSERT INTO journal (what) VALUES ('script'); INSERT INTO journal (what) VALUES ('script') RETURNING at = now()", "D(t)"),
        (
            "MERGE INTO journal j USING stamps s ON j.id = -s.k WHEN NOT MATCHED THEN INSERT (id, at, what) VALUES (-s.k, now(), 'merged')",
            "C(MERGE 6)",
        ),
        ("SELECT count(DISTINCT at), bool_and(at = now()), count(*) FROM journal", "D(1,t,15)"),
    ] {
        let told = client.ask(&ask(sql)).await;
        assert!(!told.contains("E(") && told.contains(wanted), "{sql}: {told}");
    }
    assert_eq!(client.row(TIMES).await[..3], ["1", "1", "1"]);
    succeed(&mut client, "COMMIT").await;
    // A place in a text that was changed is one in the client's.
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, &ask("SELECT FROM stamps WHERE k = {1}")).await;
    client.query(&ask("SELECT now(), 'x'::int FROM stamps WHERE k = {0}"));
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert_eq!((error.field(b'C').as_str(), error.field(b'P').as_str()), ("22P02", "15"));
    succeed(&mut client, "ROLLBACK").await;
    stage.assert_log_is_clean();
}

/// Each server has its own clock: what reads it in a place where nothing can be put is refused beyond the first shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_have_it_is_refused_and_right_on_the_first_shard() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let ask = |text: &str| fill_in(&stage, text);
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({0}), ({1})")).await;
    for sql in [
        "UPDATE stamps SET at = DEFAULT WHERE k = {0}",
        "SELECT n FROM stamps, now() n WHERE k = {0}",
        "INSERT INTO journal DEFAULT VALUES",
    ] {
        for first in ["{0}", "{1}"] {
            succeed(&mut client, "BEGIN").await;
            succeed(&mut client, &ask(&format!("UPDATE stamps SET note = 'x' WHERE k = {first}"))).await;
            let told = client.ask(&ask(sql)).await;
            assert_eq!(told.contains("E(0A000"), first == "{1}", "{sql} after {first}: {told}");
            succeed(&mut client, "ROLLBACK").await;
        }
    }
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, &ask("UPDATE stamps SET note = 'x' WHERE k = {1}")).await;
    client.query("COPY journal (what) FROM STDIN");
    assert!(client.transcript().await.contains("E(0A000"));
    succeed(&mut client, "ROLLBACK").await;
    stage.assert_log_is_clean();
}

/// What it runs has the time, and values that are read by a clock are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_with_parameters_has_it() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let ask = |text: &str| fill_in(&stage, text);
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({0}), ({1}), ({2})")).await;
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, &ask("SELECT FROM stamps WHERE k = {1}")).await;
    for (sql, key) in [
        ("EXPLAIN ANALYZE UPDATE stamps SET at = now(), utc = now() AT TIME ZONE 'utc', day = current_date WHERE k = $1", "{0}"),
        ("EXPLAIN ANALYZE UPDATE stamps SET at = now(), utc = now() AT TIME ZONE 'utc', day = current_date WHERE k = $1", "{1}"),
        ("EXPLAIN ANALYZE UPDATE stamps SET at = now(), utc = now() AT TIME ZONE 'utc', day = current_date WHERE k = $1", "{2}"),
        ("EXPLAIN ANALYZE INSERT INTO stamps (k) VALUES ($1)", "{3}"),
        ("EXPLAIN ANALYZE INSERT INTO journal (what) VALUES ($1)", "{0}"),
    ] {
        let told = client.unnamed(sql, &[&ask(key)]).sync().transcript().await;
        assert!(!told.contains("E("), "{sql}: {told}");
    }
    assert_eq!(client.row(TIMES).await, ["1", "1", "1", "t", "4"]);
    assert_eq!(client.value("SELECT at = now() FROM journal").await, "t");
    let told =
        client.unnamed("EXPLAIN ANALYZE UPDATE stamps SET at = $2 WHERE k = $1", &[&ask("{0}"), "now"]).sync().transcript().await;
    assert!(told.contains("E(0A000"), "{told}");
    stage.assert_log_is_clean();
}

/// Without BEGIN the messages up to Sync are one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_has_one_time() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let ask = |text: &str| fill_in(&stage, text);
    succeed(&mut client, &ask("INSERT INTO stamps (k) VALUES ({0}), ({1}), ({2})")).await;
    for last in
        ["SELECT max(now()) FROM stamps", "INSERT INTO journal (what) VALUES ('piped') RETURNING at", "SELECT 'now'::timestamptz"]
    {
        for first in ["{0}", "{1}", "{2}"] {
            client.unnamed("SELECT now() FROM stamps WHERE k = $1", &[&ask(first)]);
            for key in ["{0}", "{1}", "{2}"] {
                client.unnamed("SELECT now() FROM stamps WHERE k = $1 AND at < now()", &[&ask(key)]);
            }
            client.unnamed(&ask("INSERT INTO stamps (k) VALUES ({4}) ON CONFLICT (k) DO UPDATE SET at = now() RETURNING at"), &[]);
            let told = client.unnamed(last, &[]).sync().transcript().await;
            let times: Vec<&str> = told.match_indices("D(").filter_map(|(at, _)| told[at..].split([')', '(']).nth(1)).collect();
            assert!(times.len() == 6 && times.iter().all(|time| *time == times[0]), "{last} after {first}: {told}");
        }
    }
    stage.assert_log_is_clean();
}
