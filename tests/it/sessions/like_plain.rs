//! Rules of a session that the proxy keeps by itself: each script is sent to the proxy and to a database without one, and what both say is
//! the same, notices, positions and the state of the transaction included.

use super::stage::{Stage, succeed};
use crate::support::{Message, ProxyOptions, WireClient};

/// `P:` begins a pipeline of statements without names, between `;;`, with their values behind `|`.
const SCRIPTS: &[&[&str]] = &[
    // What needs a transaction block is refused in a pipeline, also where the proxy has begun a transaction for it.
    &["P:SET LOCAL work_mem = '5MB';;LOCK TABLE accounts"],
    &["P:SET LOCAL work_mem = '5MB';;LOCK TABLE notes"],
    &["P:SET LOCAL work_mem = '5MB';;SELECT 1;;LOCK TABLE currencies"],
    &["P:SELECT 1;;LOCK TABLE accounts"],
    &["P:SET LOCAL work_mem = '5MB';;DECLARE c CURSOR FOR SELECT 1"],
    &["P:SET work_mem = '5MB';;DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;;FETCH c"],
    &["P:BEGIN;;SET LOCAL work_mem = '5MB';;LOCK TABLE accounts;;DECLARE c CURSOR FOR SELECT 1;;COMMIT"],
    &["SET LOCAL work_mem = '5MB'; LOCK TABLE notes; DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; FETCH c"],
    // A savepoint takes back what SET TRANSACTION has changed behind it.
    &[
        "BEGIN",
        "SAVEPOINT a",
        "SET TRANSACTION READ ONLY",
        "INSERT INTO notes VALUES (1, 'x')",
        "ROLLBACK TO a",
        "INSERT INTO notes VALUES (1, 'x')",
        "UPDATE accounts SET balance = 1 WHERE id = {z}",
        "SHOW transaction_read_only",
        "ROLLBACK",
    ],
    &[
        "BEGIN",
        "SAVEPOINT a",
        "SET TRANSACTION READ ONLY",
        "SELECT count(*) FROM accounts",
        "SAVEPOINT b",
        "SHOW transaction_read_only",
        "UPDATE accounts SET balance = 1 WHERE id = {a}",
        "ROLLBACK TO a",
        "UPDATE accounts SET balance = 1 WHERE id IN ({a}, {z})",
        "SHOW transaction_read_only",
        "ROLLBACK",
    ],
    &[
        "BEGIN",
        "SAVEPOINT a",
        "SET TRANSACTION READ ONLY",
        "RELEASE a",
        "UPDATE accounts SET balance = 1 WHERE id = {a}",
        "SHOW transaction_read_only",
        "ROLLBACK",
    ],
    &["BEGIN READ ONLY", "SAVEPOINT a", "SET TRANSACTION READ WRITE", "ROLLBACK"],
    &["BEGIN", "SAVEPOINT a", "SET TRANSACTION READ WRITE", "SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE"],
    &["BEGIN", "SAVEPOINT a", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
    &["BEGIN", "SAVEPOINT a", "SET TRANSACTION DEFERRABLE"],
    // The name of a custom setting stays, whatever has become of its value.
    &["SET LOCAL app.x = '1'", "SELECT current_setting('app.x', true) IS NULL", "SHOW app.x"],
    &["SET LOCAL app.y TO DEFAULT", "SELECT current_setting('app.y', true) IS NULL"],
    &["SELECT set_config('app.z', '1', true)", "SELECT current_setting('app.z', true) IS NULL FROM accounts WHERE id = {z}"],
    &["BEGIN", "SET LOCAL app.v = '1'", "ROLLBACK", "SELECT current_setting('app.v', true) IS NULL"],
    // A value that its type does not take is an error of Bind.
    &["P:SELECT id FROM accounts WHERE owner = $1 AND balance = $2|x|abc"],
    &["P:SELECT id FROM accounts WHERE id = $1|abc"],
    &["P:UPDATE accounts SET balance = $1|abc"],
    &["P:INSERT INTO accounts VALUES ($1, 'x', $2), ($3, 'y', 1)|1000|abc|1001"],
    &["P:SELECT count(*) FROM accounts WHERE balance = $1::int|abc"],
    &["P:SELECT a.id FROM accounts a, accounts b WHERE a.balance = b.balance AND a.balance = $1|abc"],
    &[
        "P:SELECT 1;;SELECT owner FROM accounts WHERE id = $1;;UPDATE accounts SET balance = $1|{a};;UPDATE accounts SET balance = $1|abc",
    ],
    // Names are cut to 63 bytes before anybody looks for them.
    &[
        "CREATE TABLE LONGname (id int PRIMARY KEY, \"LONGcol\" int)",
        "only:SELECT shardgate.distribute_table('LONGname', 'id')",
        "INSERT INTO LONGnames VALUES (1, 2), (2, 3), (3, 4)",
        "SELECT id FROM LONGnamed WHERE id = 2",
        "P:SELECT id FROM LONGnamed x WHERE x.id = $1|2",
        "DELETE FROM LONGnamed t WHERE t.id = 1",
        "UPDATE LONGnames SET \"LONGcolumn\" = 5 WHERE LONGnamer.id = 2",
        "SELECT * FROM LONGname ORDER BY id",
        "DROP TABLE LONGnames",
    ],
    // Keys that are equal and look different are in each other's way.
    &[
        "CREATE TABLE num (k numeric PRIMARY KEY, v int)",
        "only:SELECT shardgate.distribute_table('num', 'k')",
        "INSERT INTO num VALUES (0.5, 1), (1.00, 2), (4.50, 4)",
        "UPDATE num SET k = k + 1.25",
        "SELECT * FROM num ORDER BY k",
        "UPDATE num SET k = k + 0.50 WHERE v = 4",
        "SELECT * FROM num WHERE k = 6.25",
    ],
];

/// All that is said of it, but for what is said of shards.
fn told(message: &Message) -> String {
    match message.tag {
        b'E' | b'N' => {
            let context = message.field(b'W');
            let context = context.lines().filter(|line| !line.starts_with("shard \"")).collect::<Vec<_>>().join(" ");
            let fields = [b'S', b'C', b'M', b'D', b'P'].map(|code| message.field(code)).join(" ");
            format!("{}({fields} {context})", char::from(message.tag))
        }
        _ => message.describe(),
    }
}

async fn answers(client: &mut WireClient, line: &str) -> Vec<String> {
    match line.strip_prefix("P:") {
        Some(statements) => {
            for statement in statements.split(";;") {
                let mut parts = statement.split('|');
                let sql = parts.next().unwrap_or_default().to_owned();
                let values: Vec<&str> = parts.collect();
                client.unnamed(&sql, &values);
            }
            client.sync();
        }
        None => {
            client.query(line);
        }
    }
    let mut answers: Vec<String> = client.answers().await.iter().map(told).collect();
    // Each shard says that it cuts a long name.
    answers.retain(|answer| !answer.starts_with("N(NOTICE 42622"));
    answers
}

/// A name of 60 bytes.
fn filled_in(stage: &Stage, line: &str) -> String {
    stage.fill_in(line).replace("LONG", &"long_".repeat(12))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_proxy_does_by_itself_is_as_without_it() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    for script in SCRIPTS {
        let (mut plain, mut client) = (stage.plain_client().await, stage.client().await);
        for line in *script {
            let line = filled_in(&stage, line);
            if let Some(line) = line.strip_prefix("only:") {
                let cut: String = line.replace("name'", "nam'");
                succeed(&mut client, &cut).await;
                continue;
            }
            let wanted = answers(&mut plain, &line).await;
            assert_eq!(answers(&mut client, &line).await, wanted, "{line} of {script:?}");
        }
    }
    stage.assert_log_is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_keys_of_other_looks_are_not_passed_by() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for sql in [
        "CREATE TABLE num (k numeric PRIMARY KEY, v int)",
        "SELECT shardgate.distribute_table('num', 'k')",
        "INSERT INTO num VALUES (0.5, 1), (1.00, 2), (4.50, 4)",
    ] {
        succeed(&mut client, sql).await;
    }
    // PostgreSQL finds the one in the other's way.
    let told = client.ask("UPDATE num SET k = k + 0.5").await;
    assert!(told.starts_with("E(0A000 cannot update the shard key of several rows to keys that others of them have)"), "{told}");
    assert_eq!(client.value("SELECT string_agg(k::text, ' ' ORDER BY k) FROM num").await, "0.5 1.00 4.50");
}

/// A cast counts where there may be a value to be cast.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_implicit_cast_that_sets_something_counts_where_it_may_apply() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for sql in [
        "CREATE TYPE coins AS (pence int)",
        "CREATE FUNCTION pence(coins) RETURNS int LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('app.counted', 'yes', false); RETURN ($1).pence; END $$",
        "CREATE TABLE purses (id int PRIMARY KEY, inside coins)",
        "INSERT INTO purses VALUES (1, ROW(7))",
        "CREATE CAST (coins AS int) WITH FUNCTION pence(coins) AS IMPLICIT",
    ] {
        succeed(&mut client, sql).await;
    }
    let (a, z) = (stage.key(0, 0), stage.key(1, 0));
    for (sql, told) in [
        ("UPDATE accounts SET balance = balance + 1".to_owned(), "C(UPDATE 90) Z(I)"),
        (format!("UPDATE accounts SET balance = 5 WHERE id IN ({a}, {z})"), "C(UPDATE 2) Z(I)"),
        ("INSERT INTO accounts VALUES (501, 'x', 1), (502, 'x', 1), (503, 'x', 1)".to_owned(), "C(INSERT 0 3) Z(I)"),
        ("DELETE FROM accounts WHERE id > 500".to_owned(), "C(DELETE 3) Z(I)"),
        ("INSERT INTO notes SELECT id, owner FROM accounts".to_owned(), "C(INSERT 0 90) Z(I)"),
    ] {
        assert_eq!(client.ask(&sql).await, told, "{sql}");
    }
    assert_eq!(client.value("SELECT current_setting('app.counted', true) IS NULL").await, "t");
    // Where it may be called it counts.
    for sql in [
        "UPDATE purses SET id = inside",
        "UPDATE accounts SET balance = (ROW(5)::coins)",
        "INSERT INTO accounts SELECT id, 'x', inside FROM purses",
    ] {
        let told = client.ask(sql).await;
        assert!(told.starts_with("E(0A000 "), "{sql}: {told}");
    }
}

/// A cascade is PostgreSQL's to know, and is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cascade_takes_a_shard_key_away() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for sql in [
        "CREATE SCHEMA words",
        "CREATE COLLATION words.german (provider = icu, locale = 'de')",
        "CREATE TABLE by_word (k text COLLATE words.german, v int)",
        "SELECT shardgate.distribute_table('by_word', 'k')",
        "INSERT INTO by_word VALUES ('a', 1), ('b', 2), ('c', 3)",
        "CREATE DOMAIN counted AS int CHECK (VALUE > 0)",
        "ALTER TABLE by_word ADD COLUMN n counted",
        "CREATE FUNCTION drop_words() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DROP SCHEMA words CASCADE; END $$",
    ] {
        succeed(&mut client, sql).await;
    }
    for sql in [
        "DROP COLLATION words.german CASCADE",
        "DROP SCHEMA words CASCADE",
        "DO $$ BEGIN DROP SCHEMA words CASCADE; END $$",
        "SELECT drop_words()",
    ] {
        client.query(sql);
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!(error.field(b'M'), "cannot drop or retype shard key column \"k\"", "{sql}");
        assert!(answers.iter().all(|message| message.tag != b'C'), "{sql}");
        assert_eq!(client.value("SELECT sum(v) FROM by_word WHERE k < 'c'").await, "3", "{sql}");
    }
    succeed(&mut client, "BEGIN").await;
    assert!(client.ask("DROP SCHEMA words CASCADE").await.ends_with("Z(E)"));
    succeed(&mut client, "ROLLBACK").await;
    // What takes other columns, or the whole table, is done.
    assert!(client.ask("DROP DOMAIN counted CASCADE").await.ends_with("C(DROP DOMAIN) Z(I)"));
    assert_eq!(client.ask("ALTER TABLE by_word ADD COLUMN n int").await, "C(ALTER TABLE) Z(I)");
    assert_eq!(client.ask("DROP TABLE by_word CASCADE").await, "C(DROP TABLE) Z(I)");
    assert_eq!(
        client.ask("DROP SCHEMA words CASCADE").await,
        "N(00000 drop cascades to collation words.german) C(DROP SCHEMA) Z(I)"
    );
    stage.assert_log_is_clean();
}

/// Rows that wait in the proxy were made under the settings of the FETCH before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_is_not_changed_under_rows_that_were_fetched_ahead() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    succeed(
        &mut client,
        "CREATE FUNCTION set_tenant(t text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', t, false); END $$",
    )
    .await;
    succeed(
        &mut client,
        "CREATE FUNCTION tenant_of(a accounts) RETURNS text LANGUAGE sql STABLE AS $$ SELECT current_setting('app.tenant') || a.id $$",
    )
    .await;
    let refused = |name: &str| {
        format!("E(0A000 changing \"{name}\" between the FETCHes of a cursor over several shards is not supported) Z(E)")
    };
    for (query, change, name) in [
        ("SELECT id, current_setting('app.tenant', true) FROM accounts ORDER BY id", "SELECT set_tenant('2')", Some("app.tenant")),
        (
            "SELECT id, current_setting('app.tenant', true) FROM accounts ORDER BY id",
            "SET LOCAL app.tenant = '2'",
            Some("app.tenant"),
        ),
        // A function that is written as a column is.
        ("SELECT id, a.tenant_of FROM accounts a ORDER BY id", "SET LOCAL app.tenant = '2'", Some("app.tenant")),
        ("SELECT id, '2020-01-02'::date + id::int FROM accounts ORDER BY id", "SET datestyle = 'German'", Some("datestyle")),
        ("SELECT id, current_user FROM accounts ORDER BY id", "SET work_mem = '5MB'", None),
        ("SELECT id, owner FROM accounts ORDER BY id", "SELECT set_tenant('2')", None),
        (
            "SELECT owner, sum(balance) FROM accounts WHERE id > 0 GROUP BY owner ORDER BY owner",
            "SET timezone = 'Asia/Tokyo'",
            None,
        ),
    ] {
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, "SET LOCAL app.tenant = '1'").await;
        succeed(&mut client, &format!("DECLARE c CURSOR FOR {query}")).await;
        assert!(client.ask("FETCH 2 FROM c").await.ends_with("C(FETCH 2) Z(T)"), "{query}");
        assert!(client.ask(change).await.ends_with("Z(T)"), "{change}");
        let told = client.ask("FETCH 2 FROM c").await;
        match name {
            Some(name) => assert_eq!(told, refused(name), "{query}; {change}"),
            None => assert!(told.ends_with("C(FETCH 2) Z(T)"), "{query}; {change}: {told}"),
        }
        succeed(&mut client, "ROLLBACK").await;
    }
    // Before the first FETCH nothing waits, and after the last one nothing is left.
    succeed(&mut client, "BEGIN").await;
    succeed(
        &mut client,
        "DECLARE c CURSOR FOR SELECT id, current_setting('app.tenant', true) FROM accounts WHERE id <= 4 ORDER BY id",
    )
    .await;
    succeed(&mut client, "SELECT set_tenant('7')").await;
    assert_eq!(client.ask("FETCH ALL FROM c").await, "T(id,current_setting) D(1,7) D(2,7) D(3,7) D(4,7) C(FETCH 4) Z(T)");
    succeed(&mut client, "SELECT set_tenant('8')").await;
    assert!(client.ask("FETCH ALL FROM c").await.ends_with("C(FETCH 0) Z(T)"));
    succeed(&mut client, "COMMIT").await;
    stage.assert_log_is_clean();
}

/// In session pooling a schema change may call what sets something: the session's next statement has it on every shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_schema_change_sets_is_the_sessions() {
    let settings = vec![("pool.mode", "session".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    succeed(
        &mut client,
        "CREATE FUNCTION set_tenant(t text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', t, false); END $$",
    )
    .await;
    for (number, sql) in [
        "CREATE TEMP TABLE made AS SELECT set_tenant('{n}')",
        "SELECT set_tenant('{n}') INTO TEMP made",
        "CREATE TABLE made AS SELECT set_tenant('{n}')",
        "BEGIN; CREATE TEMP TABLE made AS SELECT set_tenant('{n}'); COMMIT",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = stage.client().await;
        succeed(&mut client, &sql.replace("{n}", &number.to_string())).await;
        for shard in [1, 0] {
            let asked = format!("SELECT current_setting('app.tenant', true) FROM accounts WHERE id = {}", stage.key(shard, 0));
            assert_eq!(client.value(&asked).await, number.to_string(), "{sql}");
        }
        succeed(&mut client, "DROP TABLE made").await;
    }
    stage.assert_log_is_clean();
}
