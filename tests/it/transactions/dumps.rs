//! pg_dump through the proxy, while money moves: every row of every table once, as of one moment, in a file that a plain PostgreSQL reads.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sessions::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient, client_program, psql_rows};

const RESTORED: &str = "restored";
/// One text for what a table holds.
const TABLES: [(&str, &str); 7] = [
    ("days", "SELECT count(*) || ' ' || min(day) || ' ' || max(day) || ' ' || sum(n) FROM days"),
    ("accounts", "SELECT count(*) || ' ' || sum(id) || ' ' || sum(balance) || ' ' || min(owner) || max(owner) FROM accounts"),
    ("orders", "SELECT count(*) || ' ' || sum(account) || ' ' || sum(number) FROM orders"),
    ("items", "SELECT count(*) || ' ' || sum(tenant) || ' ' || sum(id) FROM items"),
    ("currencies", "SELECT string_agg(code || name, ',' ORDER BY code) FROM currencies"),
    ("notes", "SELECT string_agg(id || text, ',' ORDER BY id) FROM notes"),
    ("files", "SELECT string_agg(id || md5(data), ',' ORDER BY id) FROM files"),
];

fn run(program: &str, conninfo: &str, arguments: &[&str]) -> String {
    let output = Command::new(client_program(program)).args(["-d", conninfo]).args(arguments).output().expect("run the program");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a dump is text")
}

fn dump(stage: &Stage, arguments: &[&str]) -> String {
    run("pg_dump", &stage.proxy.conninfo(), arguments)
}

/// Several connections read side by side, in one snapshot of all shards, and several restore.
async fn in_parallel(stage: &Stage, wanted: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dump");
    let path = path.to_str().expect("a path");
    dump(stage, &["-Fd", "-j", "3", "-f", path]);
    let name = format!("{RESTORED}_in_parallel");
    stage.cluster.map_server().create_database(&name).await.expect("a database");
    run("pg_restore", &plain_conninfo(stage, &name), &["-j", "3", "--exit-on-error", path]);
    holds_what_is_wanted(stage, &name, wanted).await;
}

/// A database without a proxy has these rows.
async fn holds_what_is_wanted(stage: &Stage, name: &str, wanted: &[String]) -> WireClient {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, stage.cluster.map_server().port()));
    let mut plain = WireClient::connect_with(address, &[("user", "postgres"), ("database", name)]).await;
    for ((table, sql), wanted) in TABLES.iter().zip(wanted) {
        assert_eq!(plain.value(sql).await, *wanted, "{table}");
    }
    assert_eq!(plain.value("SELECT count(*) FROM rich").await, "90");
    plain
}

/// Runs the dump in a new database. Its first lines are psql's own.
fn restore(conninfo: &str, dumped: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.sql");
    std::fs::write(&file, dumped).expect("written");
    psql_rows(conninfo, &format!("\\i {}", file.display()));
}

fn plain_conninfo(stage: &Stage, name: &str) -> String {
    format!("host=127.0.0.1 port={} user=postgres dbname={name}", stage.cluster.map_server().port())
}

/// The next numbers are above those of the rows.
async fn goes_on_numbering(client: &mut WireClient, day: &str) {
    let of_days = format!("INSERT INTO days (id, day) VALUES (7, '{day}') RETURNING n");
    for (table, column, insert) in [
        ("orders", "number", "INSERT INTO orders (account) VALUES (7) RETURNING number"),
        ("days", "n", &of_days),
        ("items", "id", "INSERT INTO items (tenant) VALUES (7) RETURNING id"),
    ] {
        let highest: i64 = client.value(&format!("SELECT max({column}) FROM {table}")).await.parse().expect("a number");
        let next: i64 = client.value(insert).await.parse().expect("a number");
        assert!(next > highest && next < highest + 100_000, "{table}: {next} after {highest}");
    }
    let told = client.ask("INSERT INTO items VALUES (7, 7)").await;
    assert!(told.starts_with("E(428C9 "), "{told}");
}

/// Money moves in a ring over the shards: the sum stays the same. How often it has.
async fn pay(mut client: WireClient, ring: [i64; 3], is_over: Arc<AtomicBool>) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (from, to) = (ring[count % 3], ring[(count + 1) % 3]);
        succeed(&mut client, "BEGIN").await;
        succeed(&mut client, &format!("UPDATE accounts SET balance = balance - 10 WHERE id = {from}")).await;
        succeed(&mut client, &format!("UPDATE accounts SET balance = balance + 10 WHERE id = {to}")).await;
        succeed(&mut client, "COMMIT").await;
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_has_every_row_once() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for text in [
        "CREATE TABLE orders (account bigint, number bigserial, at timestamptz DEFAULT now(), PRIMARY KEY (account, number))",
        "SELECT shardgate.distribute_table('orders', 'account', colocate_with => 'accounts')",
        "INSERT INTO orders (account) SELECT id FROM accounts",
        "INSERT INTO notes VALUES (1, 'one'), (2, 'two')",
        "CREATE VIEW rich AS SELECT * FROM accounts WHERE balance > 50",
        "CREATE INDEX ON accounts (owner)",
        "CREATE MATERIALIZED VIEW held AS SELECT balance, count(*) AS n FROM accounts GROUP BY balance",
        "CREATE UNIQUE INDEX ON held (balance)",
        "ALTER MATERIALIZED VIEW held RENAME COLUMN n TO many",
        "CREATE VIEW many_held AS SELECT many FROM held",
        "CREATE TABLE days (id bigint, day date, n serial, twice bigint GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE days_2024 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "CREATE TABLE days_2025 PARTITION OF days FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
        "SELECT shardgate.distribute_table('days', 'id')",
        "INSERT INTO days (id, day) SELECT g, '2024-12-01'::date + g FROM generate_series(1, 60) g",
        "CREATE TABLE items (tenant int, id int GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (tenant, id))",
        "SELECT shardgate.distribute_table('items', 'tenant')",
        "INSERT INTO items (tenant) SELECT g FROM generate_series(1, 20) g",
        "CREATE TABLE files (id bigint PRIMARY KEY, data bytea)",
        "SELECT shardgate.distribute_table('files', 'id')",
        "INSERT INTO files SELECT g, decode(repeat(md5(g::text), 100000), 'hex') FROM generate_series(1, 4) g",
    ] {
        succeed(&mut client, text).await;
    }
    // What a dump is told of a sequence nobody hears who may not read it.
    let ask = "SELECT last_value, is_called FROM orders_number_seq";
    let told = client.ask(ask).await;
    assert!(told.contains(" D(1001,"), "{told}");
    succeed(&mut client, "CREATE ROLE no_reader_of_numbers; SET ROLE no_reader_of_numbers").await;
    assert!(client.ask(ask).await.starts_with("E(42501 "));
    succeed(&mut client, "RESET ROLE").await;
    let mut wanted = Vec::new();
    for (_, sql) in TABLES {
        wanted.push(client.value(sql).await);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let paying = tokio::spawn(pay(stage.client().await, [stage.key(0, 0), stage.key(1, 0), stage.key(2, 0)], Arc::clone(&is_over)));
    let whole = dump(&stage, &[]);
    let schema = dump(&stage, &["--schema-only"]);
    let rows = dump(&stage, &["--data-only"]);
    in_parallel(&stage, &wanted).await;
    is_over.store(true, Ordering::Relaxed);
    assert!(paying.await.expect("no panic") > 0, "money has moved");
    assert!(!whole.contains("shardgate"), "{whole}");
    for (number, dumped) in [whole.clone(), format!("{schema}\n{rows}")].iter().enumerate() {
        let name = format!("{RESTORED}{number}");
        stage.cluster.map_server().create_database(&name).await.expect("a database");
        restore(&plain_conninfo(&stage, &name), dumped);
        let mut plain = holds_what_is_wanted(&stage, &name, &wanted).await;
        goes_on_numbering(&mut plain, "2024-02-02").await;
    }
    let one = dump(&stage, &["-t", "items", "--inserts"]);
    assert!(one.contains("GENERATED ALWAYS AS IDENTITY") && one.matches("INSERT INTO").count() == 20, "{one}");
    // And back through the proxy.
    succeed(&mut client, "DROP TABLE orders, items, days, files, accounts, currencies, notes CASCADE").await;
    restore(&stage.proxy.conninfo(), &whole);
    for ((table, sql), wanted) in TABLES.iter().zip(&wanted) {
        assert_eq!(client.value(sql).await, *wanted, "{table}");
    }
    goes_on_numbering(&mut client, "2024-02-02").await;
    for (table, key) in [("orders", "account"), ("items", "tenant"), ("days", "id")] {
        succeed(&mut client, &format!("SELECT shardgate.distribute_table('{table}', '{key}')")).await;
    }
    goes_on_numbering(&mut client, "2024-02-03").await;
    exported_snapshots(&stage).await;
    stage.assert_log_is_clean();
}

/// One name for what all shards have, as long as its transaction is open.
async fn exported_snapshots(stage: &Stage) {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let (mut one, mut two, mut writer) = (stage.client().await, stage.client().await, stage.client().await);
    let sum = "SELECT sum(balance) FROM accounts";
    assert!(one.ask("SELECT pg_export_snapshot()").await.starts_with("E(0A000 "));
    succeed(&mut one, begin).await;
    let name = one.value("SELECT pg_export_snapshot()").await;
    let before = one.value(sum).await;
    succeed(&mut writer, "UPDATE accounts SET balance = balance + 1").await;
    let import = format!("SET TRANSACTION SNAPSHOT '{name}'");
    assert!(two.ask(&import).await.starts_with("N(25P01 "));
    succeed(&mut two, "BEGIN").await;
    assert!(two.ask(&import).await.starts_with("E(0A000 "));
    succeed(&mut two, &format!("ROLLBACK; {begin}; SET LOCAL work_mem = '7MB'; {import}")).await;
    assert_eq!(two.value("SHOW work_mem").await, "7MB");
    assert_eq!((two.value(sum).await, one.value(sum).await), (before.clone(), before.clone()));
    assert_eq!(two.value("SELECT count(*) FROM notes").await, one.value("SELECT count(*) FROM notes").await);
    succeed(&mut two, &format!("ROLLBACK; {begin}; SELECT count(*) FROM accounts")).await;
    assert!(two.ask(&import).await.starts_with("E(25001 "));
    succeed(&mut one, "COMMIT").await;
    succeed(&mut two, &format!("ROLLBACK; {begin}")).await;
    // By the name that the client was given: the proxy knows it no more.
    let told = two.ask(&import).await;
    assert!(told.starts_with("E(22023 ") && told.contains(&name), "{told}");
    succeed(&mut two, "ROLLBACK").await;
    assert_ne!(two.value(sum).await, before);
}
