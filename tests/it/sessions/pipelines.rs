//! What must not pass from one statement of a pipeline, or from one client, to another.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_one_pipeline_do_not_undo_or_block_each_other() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    client.unnamed("INSERT INTO notes VALUES (1, 'kept')", &[]).unnamed("DISCARD ALL", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("C(INSERT 0 1)") && told.contains("E(25001 ") && told.ends_with("Z(I)"), "{told}");
    // As everything in a pipeline that fails.
    assert_eq!(client.value("SELECT count(*) FROM notes").await, "0");
    succeed(&mut client, "INSERT INTO notes VALUES (1, 'one')").await;

    // A new text is looked at beside the lock of what came before it.
    client.unnamed("TRUNCATE notes", &[]).parse("fresh", "SELECT id, text AS a_new_name FROM notes").describe(b'S', "fresh").sync();
    let told = client.transcript().await;
    assert!(told.contains("C(TRUNCATE TABLE)") && told.contains("T(id,a_new_name)") && told.ends_with("Z(I)"), "{told}");
    client.unnamed("TRUNCATE notes", &[]).unnamed("PREPARE another AS SELECT id, text AS newer FROM notes", &[]).sync();
    let told = client.transcript().await;
    assert!(told.ends_with("C(PREPARE) Z(I)"), "{told}");
    client.unnamed("TRUNCATE notes", &[]).unnamed("SELECT shardgate.reference_table('notes')", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(25001 ") && told.ends_with("Z(I)"), "{told}");
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_ends_what_it_is_in() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    // Refused before the data has ended: the shard's error comes while the client still sends.
    let key = stage.key(0, 0);
    for table in ["notes (id, text)", "accounts (id, owner, balance)"] {
        let text = format!("BEGIN; COPY {table} FROM STDIN; COMMIT; INSERT INTO notes VALUES (2, 'never')");
        client.query(&text);
        client.flush().await;
        let begun = client.some(2).await;
        assert!(begun.ends_with("G"), "{begun}");
        client.put(b'd', format!("{key}\tx\t1\t2\t3\n").as_bytes());
        client.flush().await;
        let error = client.some(1).await;
        assert!(error.starts_with("E(22P04 "), "{error}");
        client.put(b'd', b"more\n").put(b'c', b"");
        client.flush().await;
        let rest = client.transcript().await;
        assert_eq!(rest, "Z(E)", "{table}");
        succeed(&mut client, "ROLLBACK").await;
        assert_eq!(client.value("SELECT count(*) FROM notes").await, "0", "{table}");
    }
    // The data of a COPY may come long before Sync.
    client.unnamed("COPY notes (id, text) FROM STDIN", &[]).flush_message();
    client.flush().await;
    assert_eq!(client.some(3).await, "1 2 G");
    client.put(b'd', b"3\tthree\n").put(b'c', b"").sync();
    assert_eq!(client.transcript().await, "C(COPY 1) Z(I)");
    assert_eq!(client.value("SELECT text FROM notes").await, "three");
    stage.assert_log_is_clean();
}

/// Two clients share what is prepared on a server, and not what its constants mean.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constants_mean_what_they_mean_to_each_client() {
    let stage =
        Stage::start(2, ProxyOptions { settings: vec![("pool.size_per_shard", "2".to_owned())], ..ProxyOptions::default() }).await;
    let text = "SELECT extract(epoch FROM '2020-01-01 00:00'::timestamptz)::bigint";
    for (zone, seconds) in [("UTC", "1577836800"), ("America/New_York", "1577854800"), ("UTC", "1577836800")] {
        let mut client =
            WireClient::connect_with(stage.proxy.address(), &[("user", "postgres"), ("database", "app"), ("TimeZone", zone)]).await;
        client.unnamed(text, &[]).sync();
        assert_eq!(client.transcript().await, format!("1 2 D({seconds}) C(SELECT 1) Z(I)"), "{zone}");
    }
    // One that was prepared before the setting changed.
    let of_utc = [("user", "postgres"), ("database", "app"), ("TimeZone", "UTC")];
    let mut moved = WireClient::connect_with(stage.proxy.address(), &of_utc).await;
    let mut stays = WireClient::connect_with(stage.proxy.address(), &of_utc).await;
    moved.parse("s", text).sync();
    assert_eq!(moved.transcript().await, "1 Z(I)");
    succeed(&mut moved, "SET TimeZone = 'America/New_York'").await;
    let terminate =
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname ~ '^shard' AND pid <> pg_backend_pid()";
    stage.cluster.connect_map().await.execute(terminate, &[]).await.expect("ended");
    moved.bind("", "s", &[]).execute("", 0).sync();
    assert!(moved.transcript().await.ends_with("C(SELECT 1) Z(I)"));
    stays.unnamed(text, &[]).sync();
    assert_eq!(stays.transcript().await, "1 2 D(1577836800) C(SELECT 1) Z(I)");

    let (mut one, mut other) = (stage.client().await, stage.client().await);
    let mut at = Vec::new();
    for client in [&mut one, &mut other] {
        client.unnamed("SELECT 'now'::timestamptz::text", &[]).sync();
        at.push(client.transcript().await);
    }
    assert_ne!(at[0], at[1], "each is parsed at its own time");
    let mut client = stage.client().await;
    client.unnamed("SELECT setseed(0.5)", &[]).sync();
    assert!(client.transcript().await.contains("C(SELECT 1)"));
    let first = client.value("SELECT random()").await;
    succeed(&mut client, "SELECT setseed(0.5)").await;
    assert_eq!(client.value("SELECT random()").await, first);
    stage.assert_log_is_clean();
}

/// Keys are looked for as they are stored, and texts are read as they are meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_be_read_in_another_way_is_refused() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for sql in ["CREATE TABLE words (word text PRIMARY KEY, n int)", "SELECT shardgate.distribute_table('words', 'word')"] {
        succeed(&mut client, sql).await;
    }
    succeed(&mut client, "SET client_encoding = 'EUC_JP'").await;
    let word = "\u{e9}";
    client.unnamed("INSERT INTO words VALUES ($1, 1)", &[word]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "{told}");
    assert!(client.ask(&format!("SELECT n FROM words WHERE word = '{word}'")).await.contains("E(0A000 "));
    for staged in [
        "INSERT INTO words SELECT $1, count(*) FROM accounts",
        "DELETE FROM words WHERE word = $1 AND n IN (SELECT id FROM accounts)",
    ] {
        client.unnamed(staged, &[word]).sync();
        let told = client.transcript().await;
        assert!(told.contains("E(0A000 ") && told.ends_with("Z(I)"), "{staged}: {told}");
    }
    client.unnamed("INSERT INTO words VALUES ($1, 1)", &["plain"]).sync();
    assert!(client.transcript().await.contains("C(INSERT 0 1)"));
    succeed(&mut client, "SET client_encoding = 'UTF8'").await;
    client.unnamed("INSERT INTO words VALUES ($1, 1)", &[word]).sync();
    assert!(client.transcript().await.contains("C(INSERT 0 1)"));

    let options = |options| [("user", "postgres"), ("database", "app"), ("options", options)];
    for refused in ["-c standard_conforming_strings=off", "-c Transform_Null_Equals=on", "-c standard_conforming_strings=f"] {
        let refusal = WireClient::try_connect(stage.proxy.address(), &options(refused)).await.err().expect("refused");
        assert_eq!(refusal.field(b'C'), "0A000", "{refused}");
    }
    assert!(client.ask("SET standard_conforming_strings = 'of'").await.contains("E(0A000 "));
    // Whatever the database's default is.
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        let set = format!("ALTER DATABASE shard{shard} SET standard_conforming_strings = off");
        direct.batch_execute(&set).await.expect("a default");
    }
    let terminate =
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname ~ '^shard' AND pid <> pg_backend_pid()";
    stage.cluster.connect_map().await.execute(terminate, &[]).await.expect("ended");
    let mut client = stage.client().await;
    assert_eq!(client.value("SELECT length('a\\061')").await, "5");
    stage.assert_no_panic();
}

/// As in PostgreSQL, where a pipeline without BEGIN is one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_that_fails_keeps_nothing() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let before = client.value("SHOW work_mem").await;
    for set in ["SET work_mem = '7MB'", "SELECT set_config('work_mem', '7MB', false)", "SET SESSION work_mem TO '7168'"] {
        client.unnamed(set, &[]).unnamed("SELECT 1/0", &[]).sync();
        let told = client.transcript().await;
        assert!(told.contains("E(22012 ") && told.ends_with("Z(I)"), "{told}");
        assert_eq!(client.value("SHOW work_mem").await, before, "{set}");
        client.unnamed(set, &[]).unnamed("SHOW work_mem", &[]).sync();
        let told = client.transcript().await;
        assert!(told.contains("D(7MB)") && told.ends_with("Z(I)"), "{told}");
        assert_eq!(client.value("SHOW work_mem").await, "7MB", "{set}");
        client.unnamed("RESET work_mem", &[]).unnamed("SELECT 1/0", &[]).sync();
        assert!(client.transcript().await.ends_with("Z(I)"));
        assert_eq!(client.value("SHOW work_mem").await, "7MB", "{set}");
        succeed(&mut client, "RESET work_mem").await;
    }
    client.unnamed("SET LOCAL work_mem = '7MB'", &[]).unnamed("SELECT 1", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("N(25P01") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(client.value("SHOW work_mem").await, before);

    client.unnamed("CREATE TABLE halves (id int)", &[]).unnamed("SELECT 1/0", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("C(CREATE TABLE)") && told.contains("E(22012 ") && told.ends_with("Z(I)"), "{told}");
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        let made = direct.query_one("SELECT to_regclass('halves')::text", &[]).await.expect("asked");
        assert_eq!(made.get::<_, Option<String>>(0), None, "shard {shard}");
    }
    client.unnamed("CREATE TABLE halves (id int)", &[]).unnamed("INSERT INTO halves VALUES (1)", &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(CREATE TABLE) 1 2 C(INSERT 0 1) Z(I)");
    assert_eq!(client.value("SELECT id FROM halves").await, "1");
    // A declaration is made at once, with what it is about.
    client.unnamed("CREATE TABLE wholes (id int PRIMARY KEY)", &[]);
    client.unnamed("SELECT shardgate.distribute_table('wholes', 'id')", &[]).sync();
    let told = client.transcript().await;
    assert!(told.contains("C(SELECT 1)") && told.ends_with("Z(I)"), "{told}");

    // The fast path ends what it comes in, after the answers to what came before.
    client.unnamed("INSERT INTO halves VALUES (2)", &[]).put(b'F', &[0; 10]);
    client.flush().await;
    let told = client.transcript().await;
    assert!(told.starts_with("1 2 C(INSERT 0 1) E(0A000 ") && told.ends_with("Z(I)"), "{told}");
    assert_eq!(client.value("SELECT count(*) FROM halves").await, "1");
    stage.assert_log_is_clean();
}

/// A pipeline without BEGIN is one transaction, in which portals live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_portal_of_one_shard_outlives_what_runs_on_several() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let [read, add] = ["SELECT id, text FROM notes ORDER BY id", "INSERT INTO notes VALUES (3, 'three') RETURNING id"];
    let other = stage.fill_in("SELECT owner FROM accounts WHERE id = {z}");
    let count = "SELECT count(*) FROM accounts";
    let gathered = "SELECT count(*) FROM accounts a JOIN accounts b ON a.owner = b.owner";
    let write = "UPDATE accounts SET balance = balance + 1 WHERE id < 50";
    for is_block in [false, true] {
        for between in [count, gathered, write] {
            for portal in [read, add, &other] {
                if portal == add && between == gathered {
                    // Gathered rows would not show what the pipeline has written.
                    continue;
                }
                let mut told = Vec::new();
                for mut client in [stage.plain_client().await, stage.client().await] {
                    succeed(&mut client, "DELETE FROM notes; INSERT INTO notes VALUES (1, 'one'), (2, 'two')").await;
                    if is_block {
                        succeed(&mut client, "BEGIN").await;
                    }
                    client.parse("s", portal).bind("p", "s", &[]).describe(b'P', "p").unnamed(between, &[]);
                    client.execute("p", 1).unnamed(between, &[]).execute("p", 0).sync();
                    let whole = client.transcript().await;
                    // What fails takes all with it.
                    client.bind("p2", "s", &[]).unnamed(between, &[]).execute("p2", 0).unnamed("SELECT 1/0", &[]).sync();
                    let failed = client.transcript().await;
                    let ended = client.ask("COMMIT").await;
                    told.push((whole, failed, ended, client.ask(read).await, client.ask(count).await));
                }
                assert_eq!(told[1], told[0], "{portal} around {between}, in a block: {is_block}");
            }
        }
    }
    // A shard has one unnamed portal, which the statement between has used.
    let mut client = stage.client().await;
    for step in [b'E', b'D'] {
        client.parse("", read).bind("", "", &[]).parse("s", count).bind("p", "s", &[]).execute("p", 0);
        match step {
            b'E' => client.execute("", 0),
            _ => client.describe(b'P', ""),
        };
        let answers = { client.close(b'S', "s").sync().answers().await };
        let error = answers.iter().find(|message| message.tag == b'E').expect("refused");
        assert_eq!(error.field(b'C'), "0A000", "{}", error.describe());
        assert!(!error.field(b'D').is_empty() && !error.field(b'H').is_empty());
        client.close(b'S', "s").sync();
        assert_eq!(client.transcript().await, "3 Z(I)");
    }
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unnamed_statement_that_an_error_skips_is_not_run() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let failing_at_one = format!("SELECT balance / 0 FROM accounts WHERE id = {}", stage.key(1, 0));
    for failing in ["SELECT 1 / (id - id) FROM notes", "SELECT x FROM nowhere", "SELECT balance / 0 FROM accounts", &failing_at_one]
    {
        succeed(&mut client, "INSERT INTO notes VALUES (1, 'x')").await;
        client.parse("", "SELECT 3").sync();
        assert_eq!(client.transcript().await, "1 Z(I)");
        client.parse("b", failing).bind("q", "b", &[]).execute("q", 0).parse("", "SELECT 5").sync();
        let told = client.transcript().await;
        assert!(told.contains("E(") && told.ends_with("Z(I)"), "{failing}: {told}");
        client.bind("", "", &[]).execute("", 0).sync();
        let told = client.transcript().await;
        // PostgreSQL has the one before; that there is none is told.
        assert!(told.contains("D(3)") || told.starts_with("E(26000 "), "{failing}: {told}");
        client.close(b'S', "b").sync();
        client.transcript().await;
        // Nor where another shard has answered meanwhile.
        client.parse("", "SELECT 3").sync();
        assert_eq!(client.transcript().await, "1 Z(I)");
        let at_home = format!("SELECT owner, {} AS told FROM accounts WHERE id = {}", failing.len(), stage.key(0, 0));
        client
            .parse("b", failing)
            .bind("q", "b", &[])
            .execute("q", 0)
            .parse("", &at_home)
            .describe(b'S', "")
            .bind("p", "", &[])
            .sync();
        let told = client.transcript().await;
        assert!(told.contains("E(") && told.ends_with("Z(I)"), "{failing}: {told}");
        client.bind("", "", &[]).execute("", 0).sync();
        let told = client.transcript().await;
        assert!(told.contains("D(3)") || told.starts_with("E(26000 "), "{failing}: {told}");
        client.close(b'S', "b").sync();
        client.transcript().await;
        succeed(&mut client, "DELETE FROM notes").await;
    }
    stage.assert_log_is_clean();
}
