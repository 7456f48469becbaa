//! Defaults that rows for several shards leave to PostgreSQL: one time for a statement, in a transaction for all of its statements
//! over several shards; keys that are drawn are drawn before the rows have a shard.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

async fn stage() -> (Stage, WireClient) {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for sql in [
        "CREATE TABLE docs (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, v text, created_at timestamptz DEFAULT now(), \
         updated_at timestamptz NOT NULL DEFAULT now(), day date DEFAULT current_date, token uuid DEFAULT gen_random_uuid(), \
         CHECK (created_at = updated_at))",
        "SELECT shardgate.distribute_table('docs', 'id')",
        "CREATE TABLE logs (id bigserial PRIMARY KEY, tenant int, n smallserial, at timestamptz NOT NULL DEFAULT now(), v text)",
        "SELECT shardgate.distribute_table('logs', 'id')",
        "CREATE TABLE tags (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, name text, at timestamptz DEFAULT now())",
        "SELECT shardgate.reference_table('tags')",
    ] {
        succeed(&mut client, sql).await;
    }
    (stage, client)
}

/// Rows, ids, tokens and times that differ.
async fn counts(client: &mut WireClient, filter: &str) -> Vec<String> {
    let query =
        format!("SELECT count(*), count(DISTINCT id), count(DISTINCT token), count(DISTINCT created_at) FROM docs WHERE {filter}");
    client.row(&query).await
}

#[tokio::test]
async fn a_statement_has_one_time_and_each_row_a_key() {
    let (stage, mut client) = stage().await;
    for (v, sql) in [
        ("one", "INSERT INTO docs (v) VALUES ('one')"),
        ("some", "INSERT INTO docs (v) VALUES ('some'), ('some'), ('some'), ('some'), ('some'), ('some')"),
        ("given", "INSERT INTO docs (v, created_at) VALUES ('given', now()), ('given', DEFAULT), ('given', current_timestamp)"),
        ("default", "INSERT INTO docs (id, v) VALUES (DEFAULT, 'default'), (DEFAULT, 'default'), (DEFAULT, 'default')"),
        ("select", "INSERT INTO docs (v) SELECT 'select' FROM generate_series(1, 60)"),
        ("again", "INSERT INTO docs (v, updated_at) SELECT 'again', now() FROM docs WHERE v = 'select' LIMIT 30"),
    ] {
        let told = client.ask(sql).await;
        assert!(told.starts_with("C(INSERT 0 "), "{sql}: {told}");
        let count = told.trim_start_matches("C(INSERT 0 ").split(')').next().unwrap_or_default().to_owned();
        assert_eq!(counts(&mut client, &format!("v = '{v}'")).await, [&count, &count, &count, "1"], "{sql}");
    }
    client.unnamed("INSERT INTO docs (v) VALUES ($1), ($1), ($1) RETURNING v", &["bound"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(bound) D(bound) D(bound) C(INSERT 0 3) Z(I)");
    assert_eq!(counts(&mut client, "v = 'bound'").await, ["3", "3", "3", "1"]);
    let id = client.value("SELECT id FROM docs WHERE v = 'one'").await;
    assert_eq!(client.value(&format!("SELECT v FROM docs WHERE id = '{id}'")).await, "one", "it is on the shard of its key");
    succeed(&mut client, "INSERT INTO tags (name) VALUES ('a'), ('b')").await;
    succeed(&mut client, "INSERT INTO tags (name) SELECT v FROM docs WHERE v = 'some'").await;
    let mut copies = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let copy = direct.query_one("SELECT string_agg(t::text, ',' ORDER BY id), count(*) FROM tags t", &[]).await.expect("rows");
        copies.push((copy.get::<_, String>(0), copy.get::<_, i64>(1)));
    }
    assert!(copies.iter().all(|copy| *copy == copies[0] && copy.1 == 8), "{copies:?}");
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn a_transaction_has_one_time() {
    let (stage, mut client) = stage().await;
    succeed(&mut client, "BEGIN").await;
    succeed(&mut client, "INSERT INTO docs (v) SELECT 'a' FROM generate_series(1, 9)").await;
    succeed(&mut client, "INSERT INTO docs (v) VALUES ('b'), ('c')").await;
    succeed(&mut client, "INSERT INTO logs (v) SELECT v FROM docs").await;
    client.query("COPY logs (v) FROM STDIN").put(b'd', b"x\ny\nz\n").put(b'c', b"");
    assert!(client.answers().await.iter().all(|message| message.tag != b'E'));
    assert_eq!(
        client.value("SELECT count(DISTINCT at) FROM (SELECT created_at AS at FROM docs UNION SELECT at FROM logs) s").await,
        "1"
    );
    succeed(&mut client, "COMMIT").await;
    assert_eq!(client.value("SELECT count(DISTINCT created_at) FROM docs").await, "1");
    assert_eq!(client.row("SELECT count(*), count(DISTINCT at), count(DISTINCT n) FROM logs").await, ["14", "1", "14"]);
    stage.assert_log_is_clean();
}

/// Tuples of the binary format get fields in front of theirs.
#[tokio::test]
async fn rows_in_binary_are_numbered_and_dated() {
    let (stage, mut client) = stage().await;
    let header = [&b"PGCOPY\n\xff\r\n\0"[..], &[0; 8]].concat();
    let tuple = |v: &str| [&1_i16.to_be_bytes()[..], &(v.len() as i32).to_be_bytes(), v.as_bytes()].concat();
    let rows: Vec<u8> = (0..40).flat_map(|row| tuple(&format!("row {row}"))).collect();
    client.query("COPY logs (v) FROM STDIN (FORMAT binary)");
    client.put(b'd', &header).put(b'd', &rows).put(b'd', &(-1_i16).to_be_bytes()).put(b'c', b"");
    assert!(client.answers().await.iter().any(|message| message.describe() == "C(COPY 40)"));
    let query = "SELECT count(*), count(DISTINCT id), count(DISTINCT n), count(DISTINCT at), bool_and(abs(extract(epoch FROM now() - at)) < 600), \
                 bool_and(n = id) FROM logs";
    assert_eq!(client.row(query).await, ["40", "40", "40", "1", "t", "t"]);
    assert_eq!(client.value("SELECT v FROM logs ORDER BY id LIMIT 1").await, "row 0");
    client.query("COPY logs (v) FROM STDIN (FORMAT binary)");
    client.put(b'd', &header).put(b'd', &tuple("x")).put(b'd', &[0, 2, 255, 255, 255, 255, 255, 255, 255, 255]).put(b'c', b"");
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert_eq!((error.field(b'C').as_str(), error.field(b'M').as_str()), ("22P04", "row field count is 2, expected 1"));
    assert_eq!(client.value("SELECT count(*) FROM logs").await, "40");
    stage.assert_log_is_clean();
}

/// A key that COPY leaves to `gen_random_uuid()` is drawn before its row has a shard, and copies of a row are alike.
#[tokio::test]
async fn copied_rows_get_keys_of_their_own() {
    let (stage, mut client) = stage().await;
    let lines: String = (0..90).map(|n| format!("row {n}\n")).collect();
    let mut binary = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for n in 0..90_u8 {
        binary.extend_from_slice(&[0, 1, 0, 0, 0, 2, b'b', b'0' + n % 10]);
    }
    binary.extend_from_slice(&[0xff, 0xff]);
    for (number, (options, rows)) in
        [("", lines.as_bytes()), (" (FORMAT csv, HEADER)", lines.as_bytes()), (" (FORMAT binary)", &binary)].into_iter().enumerate()
    {
        let told = copy(&mut client, &format!("COPY docs (v) FROM STDIN{options}"), rows).await;
        let count = if number == 1 { 89 } else { 90 };
        assert_eq!(told, format!("COPY {count}"), "{options}");
    }
    let count = "269";
    let query = "SELECT count(*), count(DISTINCT id), count(DISTINCT token) FROM docs";
    assert_eq!(client.row(query).await, [count, count, count]);
    // Each row is on the shard of its key, and a version 4 uuid as PostgreSQL makes them.
    let direct = stage.cluster.connect_shard(1).await;
    let some = direct.query("SELECT id::text, v FROM docs LIMIT 20", &[]).await.expect("rows");
    assert_eq!(some.len(), 20);
    for row in some {
        let (id, v): (String, String) = (row.get(0), row.get(1));
        assert_eq!(client.value(&format!("SELECT v FROM docs WHERE id = '{id}'")).await, v);
        assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
    }
    assert_eq!(copy(&mut client, "COPY tags (name) FROM STDIN", lines.as_bytes()).await, "COPY 90");
    let mut copies = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let copy = direct.query_one("SELECT string_agg(t::text, ',' ORDER BY id), count(DISTINCT id) FROM tags t", &[]).await;
        let copy = copy.expect("rows");
        copies.push((copy.get::<_, String>(0), copy.get::<_, i64>(1)));
    }
    assert!(copies.iter().all(|copy| *copy == copies[0] && copy.1 == 90));
    stage.assert_log_is_clean();
}

/// The tag.
async fn copy(client: &mut WireClient, text: &str, rows: &[u8]) -> String {
    client.query(text);
    client.flush().await;
    let told = client.some(1).await;
    assert!(told.starts_with('G'), "{text}: {told}");
    client.put(b'd', rows).put(b'c', b"");
    let answers = client.answers().await;
    let end = answers.iter().find(|message| matches!(message.tag, b'C' | b'E')).expect("an end");
    match end.tag {
        b'E' => end.field(b'M'),
        _ => String::from_utf8_lossy(&end.body).trim_end_matches('\0').to_owned(),
    }
}

/// What stays refused says why.
#[tokio::test]
async fn a_default_that_cannot_be_evaluated_before_is_named() {
    let (_stage, mut client) = stage().await;
    succeed(&mut client, "INSERT INTO docs (v) VALUES ('a')").await;
    succeed(&mut client, "CREATE FUNCTION mine() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1'").await;
    succeed(&mut client, "CREATE TABLE odd (id int DEFAULT mine() PRIMARY KEY, v text)").await;
    succeed(&mut client, "SELECT shardgate.distribute_table('odd', 'id')").await;
    for sql in ["INSERT INTO odd (v) SELECT v FROM docs", "INSERT INTO odd (v) SELECT 'x'", "COPY odd (v) FROM STDIN"] {
        client.query(sql);
        let answers = client.answers().await;
        let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!(error.field(b'C'), "0A000", "{sql}");
        assert_eq!(error.field(b'M'), "the value of shard key column \"id\" is not known before the row is inserted", "{sql}");
    }
}

/// `shardgate.unique_id()` in statements: each call a number of its own, in both protocols.
#[tokio::test]
async fn unique_ids_are_put_into_statements() {
    let (_stage, mut client) = stage().await;
    succeed(&mut client, "CREATE TABLE things (id bigint PRIMARY KEY, code text, v text)").await;
    succeed(&mut client, "SELECT shardgate.distribute_table('things', 'id')").await;
    let mut told = client.ask("INSERT INTO things VALUES (shardgate.unique_id(), 'a', 'x') RETURNING v").await;
    assert_eq!(told, "T(v) D(x) C(INSERT 0 1) Z(I)");
    told = client
        .ask(
            "INSERT INTO things (v, code, id) VALUES ('x', 'T' || shardgate.unique_id(), shardgate.unique_id()), \
              ('y', shardgate.unique_id(), shardgate.unique_id() + 0), ('z', NULL, shardgate.unique_id())",
        )
        .await;
    assert_eq!(told, "C(INSERT 0 3) Z(I)");
    client.parse("many", "INSERT INTO things (id, code, v) VALUES (shardgate.unique_id(), $1, 'p'), (shardgate.unique_id(), 'T' || shardgate.unique_id(), $1)").sync();
    assert_eq!(client.transcript().await, "1 Z(I)");
    for _ in 0..10 {
        client.bind("", "many", &["again"]).execute("", 0).sync();
        assert_eq!(client.transcript().await, "2 C(INSERT 0 2) Z(I)");
    }
    assert_eq!(client.row("SELECT count(*), count(DISTINCT id), count(DISTINCT code) FROM things").await, ["24", "24", "14"]);
    let id = client.value("SELECT max(id) FROM things").await;
    assert_eq!(client.value(&format!("SELECT count(*) FROM things WHERE id = {id}")).await, "1", "it is on the shard of its key");
    let row =
        client.ask("SELECT shardgate.unique_id(), 'T' || shardgate.unique_id() AS code, shardgate.unique_id()::text, 5").await;
    assert!(row.starts_with("T(unique_id,code,unique_id,?column?) D("), "{row}");
    client.unnamed("SELECT shardgate.unique_id() < shardgate.unique_id(), $1::int", &["5"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(t,5) C(SELECT 1) Z(I)");
    for sql in [
        "UPDATE things SET id = shardgate.unique_id()",
        "UPDATE things SET code = shardgate.unique_id() WHERE id = 5",
        "INSERT INTO things (id) SELECT shardgate.unique_id() FROM docs",
        "SELECT CASE WHEN true THEN shardgate.unique_id() END",
        "SELECT (SELECT shardgate.unique_id()), shardgate.unique_id()",
    ] {
        let told = client.ask(sql).await;
        assert!(told.starts_with("E(0A000 shardgate.unique_id() is not supported "), "{sql}: {told}");
    }
    for sql in [
        "CREATE TABLE computed (id bigint DEFAULT shardgate.unique_id() + 1)",
        "ALTER TABLE things ALTER COLUMN code SET DEFAULT 'x' || shardgate.unique_id()",
        "ALTER TABLE things ADD COLUMN n bigint DEFAULT shardgate.unique_id()",
    ] {
        let told = client.ask(sql).await;
        assert!(told.starts_with("E(0A000 this default with shardgate.unique_id() is not supported) "), "{sql}: {told}");
    }
    assert_eq!(client.value("SELECT count(*) FROM things").await, "24");
}

/// `DEFAULT shardgate.unique_id()`: the proxy gives it to rows of VALUES, of queries and of COPY, also where it is the shard key.
#[tokio::test]
async fn rows_get_unique_ids_by_default() {
    let (stage, mut client) = stage().await;
    for sql in [
        "CREATE TABLE made (id bigint DEFAULT shardgate.unique_id() PRIMARY KEY, v text)",
        "SELECT shardgate.distribute_table('made', 'id')",
        "CREATE TABLE marks (tenant int, v text, n bigint NOT NULL)",
        "SELECT shardgate.distribute_table('marks', 'tenant')",
        "ALTER TABLE marks ALTER COLUMN n SET DEFAULT shardgate.unique_id()",
        "CREATE TABLE labels (id bigint PRIMARY KEY DEFAULT shardgate.unique_id(), v text)",
        "SELECT shardgate.reference_table('labels')",
        "CREATE TABLE plain (id bigint DEFAULT shardgate.unique_id(), v text)",
        "INSERT INTO docs (v) SELECT 'x' FROM generate_series(1, 20)",
    ] {
        succeed(&mut client, sql).await;
    }
    for (rows, sql) in [
        (1, "INSERT INTO made (v) VALUES ('a')"),
        (3, "INSERT INTO made VALUES (DEFAULT, 'a'), (DEFAULT, 'b'), (shardgate.unique_id(), 'c')"),
        (1, "INSERT INTO made DEFAULT VALUES"),
        (20, "INSERT INTO made (v) SELECT v FROM docs"),
        (2, "INSERT INTO marks VALUES (1, 'a'), (2, 'b')"),
        (2, "INSERT INTO marks (v, tenant, n) VALUES ('a', 1, DEFAULT), ('b', 2, 7)"),
        (2, "INSERT INTO labels (v) VALUES ('a'), ('b')"),
        (20, "INSERT INTO labels (v) SELECT v FROM docs"),
        (2, "INSERT INTO plain (v) VALUES ('a'), ('b')"),
    ] {
        assert_eq!(client.ask(sql).await, format!("C(INSERT 0 {rows}) Z(I)"), "{sql}");
    }
    client.unnamed("INSERT INTO made (v) VALUES ($1), ($1) RETURNING v", &["p"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(p) D(p) C(INSERT 0 2) Z(I)");
    assert_eq!(copy(&mut client, "COPY made (v) FROM STDIN", b"a\nb\nc\n").await, "COPY 3");
    assert_eq!(copy(&mut client, "COPY marks (v, tenant) FROM STDIN", b"a\t1\nb\t2\nc\t3\n").await, "COPY 3");
    for (table, column, count) in [("made", "id", "30"), ("marks", "n", "7"), ("labels", "id", "22"), ("plain", "id", "2")] {
        let query = format!("SELECT count(*), count(DISTINCT {column}) FROM {table}");
        assert_eq!(client.row(&query).await, [count, count], "{table}");
    }
    let id = client.value("SELECT max(id) FROM made").await;
    assert_eq!(client.value(&format!("SELECT count(*) FROM made WHERE id = {id}")).await, "1", "it is on the shard of its key");
    // A shard that makes a row by itself has none to give.
    let direct = stage.cluster.connect_shard(1).await;
    let error = direct.batch_execute("INSERT INTO marks (tenant) VALUES (1)").await.expect_err("no id");
    assert_eq!(error.code().map(|code| code.code()), Some("0A000"));
    // So its rows are read first, wherever they are, also in the extended protocol.
    assert_eq!(client.ask("INSERT INTO marks (tenant, v) SELECT tenant, v FROM marks").await, "C(INSERT 0 7) Z(I)");
    assert_eq!(client.ask("INSERT INTO marks SELECT tenant, v FROM marks WHERE tenant = 3").await, "C(INSERT 0 2) Z(I)");
    assert_eq!(client.ask("INSERT INTO plain (v) SELECT v FROM plain").await, "C(INSERT 0 2) Z(I)");
    client.unnamed("INSERT INTO marks (tenant, v) SELECT tenant, $1 FROM marks WHERE tenant = $2 RETURNING v", &["q", "3"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(q) D(q) D(q) D(q) C(INSERT 0 4) Z(I)");
    assert_eq!(client.row("SELECT count(*), count(DISTINCT n) FROM marks").await, ["20", "20"]);
    assert_eq!(client.row("SELECT count(*), count(DISTINCT id) FROM plain").await, ["4", "4"]);
    let beside = "WITH w AS (INSERT INTO marks (tenant) SELECT tenant FROM marks RETURNING n) SELECT count(DISTINCT n) FROM w";
    assert_eq!(client.value(beside).await, "20");
}
