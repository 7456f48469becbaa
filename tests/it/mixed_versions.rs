//! Shards of two major versions of PostgreSQL in one cluster: each kind of object is taken over, each kind of statement answered, and
//! partitions move there and back. And what PostgreSQL 18 alone can make different on two shards.

use std::time::Duration;

use shardgate::backend::catalog_reader::{self, Known, WhenHeld};
use shardgate::catalog::Catalog;
use sqlx::{Connection, PgConnection};

use crate::online_moves::{leftovers, move_partitions, partitions_on};
use crate::sessions::succeed;
use crate::support::{Cluster, OtherVersion, Proxy, ProxyOptions, WireClient, postgres_18, system_major};

/// The home shard is the system's PostgreSQL, and one of version 18 is added: the way onto a newer server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_server_joins_an_older_home_shard() {
    let newer = postgres_18();
    let cluster = Cluster::of_versions(&[None, Some(&newer)]).await;
    works_as_one(cluster, ProxyOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_server_joins_a_newer_home_shard() {
    let newer = postgres_18();
    let cluster = Cluster::of_versions(&[Some(&newer), None]).await;
    // Its pg_dump must be as new as the home shard.
    let path = std::env::var("PATH").expect("a path");
    let environment = vec![("PATH", format!("{}:{path}", newer.clients.display()))];
    works_as_one(cluster, ProxyOptions { environment, ..ProxyOptions::default() }).await;
}

async fn works_as_one(cluster: Cluster, options: ProxyOptions) {
    let proxy = Proxy::start(&cluster, options);
    let mut client = WireClient::connect(proxy.address()).await;
    add_shard(&mut client, &cluster, 0).await;
    for statement in OBJECTS {
        succeed(&mut client, statement).await;
    }
    add_shard(&mut client, &cluster, 1).await;
    // Called again, it compares what is there.
    add_shard(&mut client, &cluster, 1).await;
    only_the_version_differs(&proxy);
    for statement in DECLARATIONS {
        succeed(&mut client, statement).await;
    }
    let half: Vec<i32> = partitions_on(&proxy, "items", "shard0").await.into_iter().step_by(2).collect();
    move_partitions(&cluster, &half, "shard1").await;
    let mut wrong = String::new();
    for (statement, expected) in STATEMENTS {
        let told = client.ask(statement).await;
        if told != *expected {
            wrong.push_str(&format!("{statement}\n    {told}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    schema_changes(&cluster, &mut client).await;
    only_the_version_differs(&proxy);
    // Back, from the other version.
    move_partitions(&cluster, &partitions_on(&proxy, "items", "shard1").await, "shard0").await;
    assert_eq!(client.value("SELECT count(*) || ' ' || sum(id) FROM items").await, "100 5050");
    assert_eq!(leftovers(&cluster).await, Vec::<String>::new());
    let log = proxy.log();
    assert!(!log.contains("panicked"), "{log}");
    let major = |shard: usize| cluster.shard_server(shard).installation().version().to_owned();
    println!("home shard {}, other shard {}", major(0), major(1));
}

async fn add_shard(client: &mut WireClient, cluster: &Cluster, shard: usize) {
    succeed(client, &format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.public_url(shard))).await;
}

/// Where the system's PostgreSQL is 18 as well, nothing does.
fn only_the_version_differs(proxy: &Proxy) {
    let (_, told) = proxy.check(&[]);
    let other: Vec<&str> = told.lines().filter(|line| *line != "no findings" && !line.contains("its server has version")).collect();
    // The tests' shards have passwords neither in the map nor elsewhere.
    assert!(other.is_empty(), "{told}");
    assert_eq!(told.contains("its server has version"), system_major() != 18, "{told}");
}

async fn schema_changes(cluster: &Cluster, client: &mut WireClient) {
    for statement in [
        "ALTER TABLE items ADD COLUMN weight int DEFAULT 1 NOT NULL",
        "CREATE VIEW heavy AS SELECT id, weight FROM items WHERE weight > 1",
        "DO $$BEGIN CREATE TABLE made (id int PRIMARY KEY, note text NOT NULL); END$$",
        "CREATE VIEW of_made AS SELECT id, note FROM made WHERE note <> ''",
        "DO $$BEGIN IF NOT EXISTS (SELECT FROM pg_class WHERE relname = 'again') THEN CREATE TABLE again (id int); END IF; END$$",
        "UPDATE items SET weight = 2 WHERE id IN (1, 2, 3)",
    ] {
        succeed(client, statement).await;
    }
    assert_eq!(client.value("SELECT count(*) FROM heavy").await, "3");
    for shard in 0..2 {
        cluster.connect_shard(shard).await.batch_execute("SELECT id, note FROM of_made; SELECT id FROM again").await.expect("made");
    }
}

/// One of each kind whose definition PostgreSQL prints from its tree.
const OBJECTS: &[&str] = &[
    "CREATE EXTENSION pgcrypto",
    "CREATE TYPE size AS ENUM ('small', 'large')",
    "CREATE DOMAIN price AS numeric(10, 2) CHECK (value >= 0)",
    "CREATE TABLE kinds (code text PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE items (id bigint PRIMARY KEY, kind text, size size DEFAULT 'small', price price, \
     twice numeric GENERATED ALWAYS AS (price * 2) STORED, made date DEFAULT current_date, CHECK (id > 0 AND kind <> ''))",
    "CREATE TABLE log (id int, what text, EXCLUDE USING gist (int4range(id, id + 1) WITH &&) WHERE (id > 1000))",
    "CREATE TABLE parted (a int, b text) PARTITION BY RANGE (lower(b), (a + 1))",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('a', 1) TO ('m', 10)",
    "CREATE INDEX items_lower ON items (lower(kind), (price + 1)) WHERE price > 3",
    "CREATE VIEW cheap AS SELECT id, kind AS k, price FROM items WHERE price < 50 AND kind LIKE 'k%'",
    "CREATE VIEW counted WITH (security_barrier) AS SELECT kind, count(*) AS n FROM items GROUP BY kind HAVING count(*) > 1",
    "CREATE VIEW named AS SELECT i.id, k.name FROM items i LEFT JOIN kinds k ON k.code = i.kind",
    "CREATE VIEW best AS WITH w AS (SELECT id, price FROM items) SELECT DISTINCT ON (price) price, id FROM w ORDER BY price, id LIMIT 3",
    "CREATE VIEW logged AS SELECT id, what FROM log WHERE id IN (SELECT l.id FROM parted_1 p JOIN log l ON l.id = p.a) OR id > 0",
    "CREATE MATERIALIZED VIEW kept AS SELECT code, upper(name) AS name FROM kinds WHERE name <> ''",
    "CREATE RULE logs AS ON INSERT TO logged DO INSTEAD INSERT INTO log (id, what) SELECT new.id, new.what WHERE new.id > 0 RETURNING id, what",
    "CREATE FUNCTION cost(p bigint) RETURNS numeric STABLE BEGIN ATOMIC SELECT price * 2 FROM items WHERE id = p; END",
    "CREATE FUNCTION half(p numeric, q int DEFAULT 2) RETURNS numeric IMMUTABLE RETURN p / q",
    "CREATE PROCEDURE note(p int) BEGIN ATOMIC INSERT INTO log (id, what) SELECT p, 'noted' WHERE p > 0; DELETE FROM log WHERE id < 0 AND what IS NULL; END",
    "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.kind := lower(NEW.kind); RETURN NEW; END$$",
    "CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON items FOR EACH ROW WHEN (new.kind IS DISTINCT FROM lower(new.kind)) EXECUTE FUNCTION stamp()",
    "ALTER TABLE log ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON log USING (what = current_user OR id IN (SELECT a FROM parted)) WITH CHECK (EXISTS (SELECT FROM parted p WHERE p.a = log.id))",
    "CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int, INITCOND = '0')",
    "INSERT INTO kinds VALUES ('k0', 'Zero'), ('k1', 'One'), ('k2', 'Two')",
    "INSERT INTO items (id, kind, price) SELECT g, 'K' || g % 3, g FROM generate_series(1, 100) g",
];

const DECLARATIONS: &[&str] =
    &["SELECT shardgate.reference_table('kinds')", "SELECT shardgate.distribute_table('items', 'id', partitions => 8)"];

/// A read and a write of each kind. All items are there, on both shards.
const STATEMENTS: &[(&str, &str)] = &[
    ("SELECT kind, price, twice FROM items WHERE id = 7", "T(kind,price,twice) D(k1,7.00,14.00) C(SELECT 1) Z(I)"),
    (
        "SELECT count(*), sum(price), min(size), max(made) = current_date AS now FROM items",
        "T(count,sum,min,now) D(100,5050.00,small,t) C(SELECT 1) Z(I)",
    ),
    ("SELECT id FROM items WHERE price > 97 ORDER BY id DESC", "T(id) D(100) D(99) D(98) C(SELECT 3) Z(I)"),
    ("SELECT a.id FROM items a JOIN items b ON b.id = a.price + 1 WHERE a.id > 98", "T(id) D(99) C(SELECT 1) Z(I)"),
    (
        "SELECT k.name, count(*) FROM items i JOIN kinds k ON k.code = i.kind GROUP BY 1 ORDER BY 1",
        "T(name,count) D(One,34) D(Two,33) D(Zero,33) C(SELECT 3) Z(I)",
    ),
    ("SELECT count(*), sum(price) FROM cheap", "T(count,sum) D(49,1225.00) C(SELECT 1) Z(I)"),
    ("SELECT * FROM counted ORDER BY kind", "T(kind,n) D(k0,33) D(k1,34) D(k2,33) C(SELECT 3) Z(I)"),
    ("SELECT * FROM named WHERE id IN (1, 2, 3) ORDER BY id", "T(id,name) D(1,One) D(2,Two) D(3,Zero) C(SELECT 3) Z(I)"),
    ("SELECT * FROM best", "T(price,id) D(1.00,1) D(2.00,2) D(3.00,3) C(SELECT 3) Z(I)"),
    ("SELECT half(9)", "T(half) D(4.5000000000000000) C(SELECT 1) Z(I)"),
    ("INSERT INTO items (id, kind, price) VALUES (201, 'K', 1), (202, 'K', 2), (203, 'K', 3), (204, 'K', 4)", "C(INSERT 0 4) Z(I)"),
    ("UPDATE items SET price = price + half(1) WHERE id > 200", "C(UPDATE 4) Z(I)"),
    ("SELECT sum(price) FROM items WHERE id > 200 AND kind = 'k'", "T(sum) D(12.00) C(SELECT 1) Z(I)"),
    (
        "INSERT INTO items (id, kind, price) VALUES (1, 'k', 1) ON CONFLICT (id) DO UPDATE SET price = 1 RETURNING id, price",
        "T(id,price) D(1,1.00) C(INSERT 0 1) Z(I)",
    ),
    ("DELETE FROM items WHERE id > 200", "C(DELETE 4) Z(I)"),
    ("INSERT INTO kinds VALUES ('k', 'None')", "C(INSERT 0 1) Z(I)"),
    (
        "BEGIN; UPDATE items SET size = 'large' WHERE id <= 50; SELECT count(*) FROM items WHERE size = 'large'; ROLLBACK",
        "C(BEGIN) C(UPDATE 50) T(count) D(50) C(SELECT 1) C(ROLLBACK) Z(I)",
    ),
    ("INSERT INTO log VALUES (1, 'one') RETURNING id", "T(id) D(1) C(INSERT 0 1) Z(I)"),
    ("CALL note(2)", "C(CALL) Z(I)"),
    ("SELECT total(id) FROM log", "T(total) D(3) C(SELECT 1) Z(I)"),
    ("REFRESH MATERIALIZED VIEW kept", "C(REFRESH MATERIALIZED VIEW) Z(I)"),
];

async fn read(cluster: &Cluster, shard: usize) -> Catalog {
    let mut connection = PgConnection::connect(&cluster.shard_url(shard)).await.expect("connect");
    catalog_reader::read(&mut connection, &mut Known::default(), WhenHeld::Wait(Duration::ZERO)).await.expect("read")
}

/// Constraints of NOT NULL have names, may be NOT VALID or NO INHERIT; generated columns are stored or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_18_can_make_different_is_a_difference() {
    let version: OtherVersion = postgres_18();
    let cluster = Cluster::start_of(2, &version).await;
    for shard in 0..2 {
        let client = cluster.connect_shard(shard).await;
        client
            .batch_execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int, d int GENERATED ALWAYS AS (id + 1) VIRTUAL)")
            .await
            .expect("t");
        client
            .batch_execute("INSERT INTO t VALUES (1, NULL, 1, 1); ALTER TABLE t ADD CONSTRAINT n NOT NULL a NOT VALID")
            .await
            .expect("n");
    }
    let here = read(&cluster, 0).await;
    assert_eq!(here.diff(&read(&cluster, 1).await), Vec::<String>::new());
    let t = here.resolve(Some("public"), "t", &[]).expect("t");
    let is_not_null = |name: &str| t.column(name).is_some_and(|column| column.is_not_null);
    assert!(is_not_null("id") && !is_not_null("a"), "a row has NULL in a");
    let other = cluster.connect_shard(1).await;
    let of_a = |here: &str, there: &str| format!("constraint of column \"a\" of table \"public.t\" {here} here and {there} there");
    let stands = "is CONSTRAINT n NOT NULL a NOT VALID";
    for (change, back, expected) in [
        (
            "UPDATE t SET a = 1; ALTER TABLE t VALIDATE CONSTRAINT n",
            "ALTER TABLE t DROP CONSTRAINT n; ALTER TABLE t ADD CONSTRAINT n NOT NULL a NOT VALID",
            vec![
                "column \"a\" of table \"public.t\" is integer here and integer not null there".to_owned(),
                of_a(stands, "CONSTRAINT n NOT NULL a"),
            ],
        ),
        (
            "ALTER TABLE t RENAME CONSTRAINT n TO \"Other\"",
            "ALTER TABLE t RENAME CONSTRAINT \"Other\" TO n",
            vec![of_a(stands, "CONSTRAINT \"Other\" NOT NULL a NOT VALID")],
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT n; ALTER TABLE t ADD CONSTRAINT n NOT NULL a NO INHERIT NOT VALID",
            "ALTER TABLE t DROP CONSTRAINT n; ALTER TABLE t ADD CONSTRAINT n NOT NULL a NOT VALID",
            vec![of_a(stands, "CONSTRAINT n NOT NULL a NO INHERIT NOT VALID")],
        ),
        (
            "ALTER TABLE t DROP COLUMN d, ADD COLUMN d int GENERATED ALWAYS AS (id + 1) STORED",
            "ALTER TABLE t DROP COLUMN d, ADD COLUMN d int GENERATED ALWAYS AS (id + 1) VIRTUAL",
            vec![
                "column \"d\" of table \"public.t\" is integer generated always as (id + 1) virtual here and integer generated always \
                 as (id + 1) stored there"
                    .to_owned(),
            ],
        ),
    ] {
        other.batch_execute(change).await.expect(change);
        assert_eq!(here.diff(&read(&cluster, 1).await), expected, "{change}");
        other.batch_execute(back).await.expect(back);
        assert_eq!(here.diff(&read(&cluster, 1).await), Vec::<String>::new(), "{back}");
    }
    what_newer_versions_have(&cluster).await;
}

/// JSON_TABLE stays beside its row; rows that COPY leaves out are told with their sum.
async fn what_newer_versions_have(cluster: &Cluster) {
    let proxy = Proxy::start(cluster, ProxyOptions::default());
    let mut client = WireClient::connect(proxy.address()).await;
    add_shard(&mut client, cluster, 0).await;
    add_shard(&mut client, cluster, 1).await;
    for statement in [
        "CREATE TABLE docs (id int PRIMARY KEY, n int, j jsonb)",
        "SELECT shardgate.distribute_table('docs', 'id')",
        "CREATE TABLE codes (id int PRIMARY KEY, n int)",
        "SELECT shardgate.reference_table('codes')",
        "CREATE TABLE days (day date PRIMARY KEY, n int)",
        "SELECT shardgate.distribute_table('days', 'day')",
        "CREATE TABLE tags (day date, code varchar(3), n int, PRIMARY KEY (day, code))",
        "SELECT shardgate.distribute_table('tags', 'day, code')",
        "INSERT INTO docs SELECT g, g, jsonb_build_object('a', jsonb_build_array(1, g, g + 1)) FROM generate_series(1, 20) g",
    ] {
        succeed(&mut client, statement).await;
    }
    let elements = "JSON_TABLE(d.j, '$.a[*]' COLUMNS (place FOR ORDINALITY, v int PATH '$')) x";
    for (statement, expected) in [
        (format!("SELECT d.id, x.v FROM docs d, {elements} WHERE x.v > 19 AND place = 2"), "T(id,v) D(20,20) C(SELECT 1) Z(I)"),
        (format!("SELECT count(*), sum(x.v) FROM docs d, {elements}"), "T(count,sum) D(60,460) C(SELECT 1) Z(I)"),
        (
            format!("SELECT d.id, x.v FROM docs d LEFT JOIN {elements} ON x.v = 21 WHERE d.id > 18 ORDER BY d.id"),
            "T(id,v) D(19,NULL) D(20,21) C(SELECT 2) Z(I)",
        ),
        (
            format!("SELECT count(*) FROM docs d CROSS JOIN {elements} JOIN docs o ON o.n = x.v + 1"),
            "T(count) D(57) C(SELECT 1) Z(I)",
        ),
        (format!("SELECT x.v FROM docs d, {elements} WHERE d.id = 5 ORDER BY place"), "T(v) D(1) D(5) D(6) C(SELECT 3) Z(I)"),
    ] {
        assert_eq!(client.ask(&statement).await, expected, "{statement}");
    }
    let rows: String = (101..=120).map(|id| if id % 5 == 0 { format!("{id}\tx\n") } else { format!("{id}\t{id}\n") }).collect();
    for (table, rows, skipped, copied) in [
        ("docs", format!("{rows}none\t7\n"), "5 rows were", 16),
        ("docs", "201\t1\n202\tx\n".to_owned(), "1 row was", 1),
        ("codes", rows.clone(), "4 rows were", 16),
        // Only PostgreSQL tells whether these are values of a key.
        ("days", "2024-03-06\t1\nsoon\t2\n2024-13-06\t3\n2024-03-07\tx\n2024-03-08\t4\n".to_owned(), "3 rows were", 2),
        // The length of a key counts too, behind one that only PostgreSQL reads.
        ("tags", "2024-03-06\tabc\t1\n2024-03-06\tabcd\t2\ntoday\tabcd\t3\n2024-03-06\tabd \t4\n".to_owned(), "2 rows were", 2),
    ] {
        let columns = match table {
            "days" => "day, n",
            "tags" => "day, code, n",
            _ => "id, n",
        };
        client.query(&format!("COPY {table} ({columns}) FROM STDIN (ON_ERROR ignore)")).put(b'd', rows.as_bytes()).put(b'c', b"");
        let told = client.transcript().await;
        assert!(told.contains(&format!(" {skipped} skipped due to data type incompatibility)")), "{told}");
        assert!(told.ends_with(&format!("C(COPY {copied}) Z(I)")) && told.matches("N(").count() == 1, "{told}");
    }
    assert_eq!(client.value("SELECT count(*) || ' ' || sum(n) FROM docs WHERE id > 100").await, "17 1761");
    assert!(client.ask("COPY docs (id, n) FROM STDIN (ON_ERROR ignore, LOG_VERBOSITY verbose)").await.starts_with("E(0A000 "));
    let log = proxy.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Major versions, and what is run with each.
pub const VERSIONS: [(u32, &str); 4] = [
    (15, "every test (the version of the system that runs them)"),
    (16, "what is run by hand: `make test PG=16`"),
    (17, "a part: adding shards, schema changes, dumps, moves that are given up"),
    (
        18,
        "a part: most of sessions, transactions over several shards, declarations, dumps, moves that are given up or go back, of partitioned tables",
    ),
];
/// The home shard's and another one's.
const MIXTURES: [(u32, u32); 2] = [(15, 18), (18, 15)];
/// Names of tests that stand for what the table says of 17 and 18.
const PARTS: [(u32, &[&str]); 2] = [
    (17, &["declare::shards", "sessions::ddl::", "transactions::dumps", "online_moves::aborts"]),
    (18, &["sessions::prepared", "sessions::parity", "transactions::atomic", "declare::keys", "online_moves::rollbacks"]),
];

/// The table in the documentation is of what is run. `UPDATE_DOCS=1` writes it.
#[test]
fn the_documentation_lists_the_versions_that_are_tested() {
    let makefile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Makefile")).expect("the Makefile");
    for (major, parts) in PARTS {
        let (_, rest) = makefile.split_once(&format!("\nTESTS_OF_{major} = ")).expect("the tests of this version");
        let line = rest.replace("\\\n", " ");
        let run: Vec<&str> = line.lines().next().unwrap_or_default().split_whitespace().collect();
        assert!(parts.iter().all(|part| run.contains(part)), "{major}: {run:?}");
    }
    let mut table = "\n| PostgreSQL | what is run with it |\n|---|---|\n".to_owned();
    table.extend(VERSIONS.iter().map(|(major, what)| format!("| {major} | {what} |\n")));
    table.push_str("\n| home shard | other shard | what is run with them |\n|---|---|---|\n");
    let what = "objects of every kind are taken over, statements of every kind, schema changes, moves there and back";
    table.extend(MIXTURES.iter().map(|(home, other)| format!("| {home} | {other} | {what} |\n")));
    table.push('\n');
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/upgrading.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once(TABLE_BEGIN).expect("the beginning of the table");
    let (listed, after) = rest.split_once(TABLE_END).expect("the end of the table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, [before, TABLE_BEGIN, "\n", &table, TABLE_END, after].concat()).expect("the page is written");
    } else {
        assert!(listed.trim() == table.trim(), "docs/upgrading.md differs: UPDATE_DOCS=1 cargo test --test it mixed_versions");
    }
}

const TABLE_BEGIN: &str =
    "<!-- versions: made from tests/it/mixed_versions.rs; UPDATE_DOCS=1 cargo test --test it mixed_versions -->";
const TABLE_END: &str = "<!-- /versions -->";
