//! ALTER TABLE ... ADD COLUMN of columns that number the rows of tables that are distributed already: rows that are there have
//! numbers that follow one another over all shards, rows to come go on from there, whoever inserts them, and the shards stay alike.

use std::collections::BTreeSet;

use super::inserters::Inserters;
use super::stage::{Stage, succeed};
use crate::support::{Proxy, ProxyOptions, ProxyUser, WireClient};
use crate::transactions::Points;

fn options() -> ProxyOptions {
    ProxyOptions { settings: vec![("cross_shard.sequence_block", "10".to_owned())], ..ProxyOptions::default() }
}

/// Rows of `accounts`, on three shards.
const ROWS: i64 = 90;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_there_are_numbered_over_all_shards() {
    let stage = Stage::start(3, options()).await;
    let second = Proxy::start(&stage.cluster, options());
    let (mut one, mut two) = (stage.client().await, WireClient::connect(second.address()).await);
    serial(&stage, &mut one, &mut two).await;
    identity(&stage, &mut one, &mut two).await;
    several_at_once(&stage, &mut one).await;
    names_and_kinds_of_tables(&stage, &mut one).await;
    limits(&stage, &mut one).await;
    reference_tables(&stage, &mut one, &mut two).await;
    made_again_in_one_transaction(&mut one).await;
    what_else_is_refused(&mut one).await;
    stage.assert_log_is_clean();
}

/// Count, distinct count, least and greatest value.
async fn summary(client: &mut WireClient, table: &str, column: &str) -> Vec<i64> {
    let row = client.row(&format!("SELECT count(*), count(DISTINCT {column}), min({column}), max({column}) FROM {table}")).await;
    row.iter().map(|value| value.parse().unwrap_or_else(|_| panic!("{table}.{column}: {row:?}"))).collect()
}

fn number(told: &str) -> i64 {
    let value = told.split("D(").nth(1).and_then(|rest| rest.split([',', ')']).next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{told}"))
}

/// Columns, defaults, constraints, sequences and who owns them are the same on all shards.
async fn assert_alike(stage: &Stage) {
    let mut found = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let rows = direct.query(DEFINITIONS, &[]).await.expect("definitions");
        found.push(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>());
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

const DEFINITIONS: &str = "WITH own AS (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'My App'))
     SELECT format('%s %s %s %s %s %s', a.attrelid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            pg_get_expr(d.adbin, d.adrelid))
     FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r' AND c.relnamespace IN (TABLE own)
     LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attnum > 0
     UNION ALL SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace IN (TABLE own)
     UNION ALL SELECT format('%s of %s %s, %s', c.oid::regclass, p.refobjid::regclass, p.refobjsubid, s)
     FROM pg_class c JOIN pg_sequences s ON s.sequencename = c.relname
     JOIN pg_depend p ON p.objid = c.oid AND p.deptype IN ('a', 'i') AND p.refclassid = 'pg_class'::regclass
     WHERE c.relkind = 'S' AND c.relnamespace IN (TABLE own)
     ORDER BY 1";

/// Sequences of the whole cluster that the map knows.
async fn declared(stage: &Stage) -> i64 {
    let map = stage.cluster.connect_map().await;
    map.query_one("SELECT count(*) FROM shardgate_map.declared_sequence", &[]).await.expect("a count").get(0)
}

async fn serial(stage: &Stage, one: &mut WireClient, two: &mut WireClient) {
    assert_eq!(one.ask("ALTER TABLE accounts ADD COLUMN n serial").await, "C(ALTER TABLE) Z(I)");
    assert_eq!(summary(one, "accounts", "n").await, [ROWS, ROWS, 1, ROWS]);
    assert_alike(stage).await;
    let told = one.ask("INSERT INTO accounts (id, owner, balance) VALUES (101, 'a', 1), (102, 'b', 1) RETURNING n").await;
    assert_eq!(told, format!("T(n) D({}) D({}) C(INSERT 0 2) Z(I)", ROWS + 1, ROWS + 2));
    assert_eq!(one.value("SELECT currval('accounts_n_seq')").await, (ROWS + 2).to_string());
    assert_eq!(one.value("SELECT lastval()").await, (ROWS + 2).to_string());
    let mut seen = BTreeSet::from([ROWS + 1, ROWS + 2]);
    for round in 0..20 {
        for (place, client) in [&mut *one, &mut *two].into_iter().enumerate() {
            let id = 1_000 + 2 * round + i64::try_from(place).expect("small");
            let told = client.ask(&format!("INSERT INTO accounts (id, balance) VALUES ({id}, 1) RETURNING n")).await;
            assert!(number(&told) > ROWS && seen.insert(number(&told)), "{told}");
            let told = client.ask(&format!("INSERT INTO accounts (id, balance) SELECT {id} + 1000, 1 RETURNING n")).await;
            assert!(number(&told) > ROWS && seen.insert(number(&told)), "{told}");
        }
    }
    one.unnamed("INSERT INTO accounts (id, balance, n) VALUES ($1, 1, DEFAULT) RETURNING n > 90", &["5000"]).sync();
    assert_eq!(one.transcript().await, "1 2 D(t) C(INSERT 0 1) Z(I)");
    // In the extended protocol, and for all rows that there are by now.
    let rows = one.value("SELECT count(*) FROM accounts").await.parse::<i64>().expect("a count");
    two.unnamed("ALTER TABLE accounts ADD COLUMN n2 bigserial", &[]).sync();
    assert_eq!(two.transcript().await, "1 2 C(ALTER TABLE) Z(I)");
    assert_eq!(summary(one, "accounts", "n2").await, [rows, rows, 1, rows]);
    assert_eq!(number(&one.ask("INSERT INTO accounts (id, balance) VALUES (103, 1) RETURNING n2").await), rows + 1);
    dropped_and_added_again(stage, one, two).await;
}

async fn dropped_and_added_again(stage: &Stage, one: &mut WireClient, two: &mut WireClient) {
    let before = declared(stage).await;
    for client in [&mut *one, &mut *two] {
        succeed(client, "DELETE FROM accounts WHERE id > 90").await;
        succeed(client, "INSERT INTO accounts (id, balance) VALUES (91, 1)").await;
        succeed(client, "DELETE FROM accounts WHERE id > 90").await;
    }
    succeed(one, "ALTER TABLE accounts DROP COLUMN n2").await;
    assert_eq!(declared(stage).await, before - 1);
    succeed(one, "ALTER TABLE accounts ADD n2 int GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME accounts_n2_seq)").await;
    assert_eq!(summary(one, "accounts", "n2").await, [ROWS, ROWS, 1, ROWS]);
    for (place, client) in [&mut *one, &mut *two].into_iter().enumerate() {
        let told = client.ask(&format!("INSERT INTO accounts (id, balance) VALUES (20{place}, 1) RETURNING n2")).await;
        assert!((ROWS + 1..ROWS + 20).contains(&number(&told)), "{told}");
    }
    succeed(one, "DELETE FROM accounts WHERE id > 90").await;
    // Rolled back, or never committed, it leaves nothing; a later one begins as if it had not been.
    for end in ["ROLLBACK", "ROLLBACK TO a; COMMIT", "SELECT 1/0; COMMIT", ""] {
        let mut client = stage.client().await;
        succeed(&mut client, "BEGIN; SAVEPOINT a; ALTER TABLE accounts ADD COLUMN gone serial").await;
        assert_eq!(client.value("SELECT sum(gone) FROM accounts").await, "4095", "its own transaction sees it");
        // Nobody waits for it who does not use the table.
        for other in [&mut *one, &mut *two] {
            succeed(other, "UPDATE currencies SET name = name; SELECT nextval('accounts_n_seq')").await;
        }
        client.ask(end).await;
        drop(client);
        succeed(two, "ALTER TABLE accounts ADD COLUMN IF NOT EXISTS gone serial").await;
        assert_eq!(summary(two, "accounts", "gone").await, [ROWS, ROWS, 1, ROWS]);
        assert_eq!(number(&two.ask("INSERT INTO accounts (id, balance) VALUES (91, 1) RETURNING gone").await), ROWS + 1, "{end}");
        succeed(two, "DELETE FROM accounts WHERE id = 91; ALTER TABLE accounts DROP COLUMN gone").await;
        assert_eq!(declared(stage).await, before, "{end}");
    }
}

/// What a transaction may go back to keeps its numbers.
async fn made_again_in_one_transaction(one: &mut WireClient) {
    succeed(
        one,
        "INSERT INTO accounts (id, balance) SELECT g, 1 FROM generate_series(91, 150) g; DELETE FROM accounts WHERE id < 100",
    )
    .await;
    let last = one.value("SELECT max(n) FROM accounts").await.parse::<i64>().expect("a number");
    for text in [
        "ALTER TABLE accounts DROP COLUMN n; ALTER TABLE accounts ADD COLUMN n serial",
        "ALTER TABLE accounts ADD m serial; SAVEPOINT a; DELETE FROM accounts; ALTER TABLE accounts DROP m; ALTER TABLE accounts ADD m serial",
    ] {
        succeed(one, "BEGIN").await;
        let told = one.ask(text).await;
        assert!(
            told.contains("E(0A000 sequence \"accounts_") && told.ends_with("_seq\" is made again in one transaction) Z(E)"),
            "{told}"
        );
        succeed(one, "ROLLBACK").await;
        assert!(number(&one.ask("INSERT INTO accounts (id, balance) VALUES (1, 1) RETURNING n").await) > last, "{text}");
        succeed(one, "DELETE FROM accounts WHERE id = 1").await;
    }
}

async fn identity(stage: &Stage, one: &mut WireClient, two: &mut WireClient) {
    let text = "ALTER TABLE accounts ADD COLUMN i bigint GENERATED ALWAYS AS IDENTITY (START WITH 1000 INCREMENT BY 5 CACHE 3)";
    assert_eq!(one.ask(text).await, "C(ALTER TABLE) Z(I)");
    let found = summary(two, "accounts", "i").await;
    assert!(found[..3] == [ROWS, ROWS, 1000] && found[3] <= 1000 + 5 * (ROWS + 6), "{found:?}");
    assert_eq!(two.value("SELECT count(*) FROM accounts WHERE i % 5 <> 0").await, "0");
    let told = two.ask("INSERT INTO accounts (id, balance) VALUES (91, 1) RETURNING i").await;
    assert!(number(&told) > found[3] && number(&told) % 5 == 0, "{told}");
    let told = two.ask("INSERT INTO accounts (id, balance, i) VALUES (92, 1, 7)").await;
    assert!(told.starts_with("E(428C9 "), "{told}");
    succeed(one, "DELETE FROM accounts WHERE id = 91").await;
    succeed(one, "ALTER TABLE accounts ADD COLUMN d smallint GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1)").await;
    assert_eq!(summary(one, "accounts", "d").await, [ROWS, ROWS, -ROWS, -1]);
    assert_eq!(number(&two.ask("INSERT INTO accounts (id, balance) VALUES (91, 1) RETURNING d").await), -ROWS - 1);
    succeed(one, "DELETE FROM accounts WHERE id = 91").await;
    assert_alike(stage).await;
}

async fn several_at_once(stage: &Stage, one: &mut WireClient) {
    let text = "ALTER TABLE accounts ADD COLUMN IF NOT EXISTS n serial, ADD COLUMN a smallserial CHECK (a > 0), ADD c text DEFAULT 'x', \
                ADD COLUMN \"B b\" serial8 NOT NULL, ADD UNIQUE (id, a), ADD CONSTRAINT few CHECK (\"B b\" < 1000)";
    assert_eq!(one.ask(text).await, "N(42701 column \"n\" of relation \"accounts\" already exists, skipping) C(ALTER TABLE) Z(I)");
    assert_eq!(summary(one, "accounts", "a").await, [ROWS, ROWS, 1, ROWS]);
    assert_eq!(summary(one, "accounts", "\"B b\"").await, [ROWS, ROWS, 1, ROWS]);
    let told = one.ask("INSERT INTO accounts (id, balance) VALUES (91, 1) RETURNING a, \"B b\", n > 90").await;
    assert_eq!(told, "T(a,B b,?column?) D(91,91,t) C(INSERT 0 1) Z(I)");
    succeed(one, "DELETE FROM accounts WHERE id = 91").await;
    assert_alike(stage).await;
}

async fn names_and_kinds_of_tables(stage: &Stage, one: &mut WireClient) {
    for sql in [
        "CREATE SCHEMA \"My App\"",
        "CREATE TABLE \"My App\".\"It's\" (\"K\" int PRIMARY KEY)",
        "CREATE TABLE parent (k int, v text)",
        "CREATE TABLE empty (k int)",
        "SELECT shardgate.distribute_table('\"My App\".\"It''s\"', '\"K\"')",
        "SELECT shardgate.distribute_table('parent', 'k')",
        "SELECT shardgate.distribute_table('empty', 'k')",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO \"My App\".\"It's\" SELECT generate_series(1, 60)",
        "INSERT INTO parent SELECT generate_series(1, 30)",
        "INSERT INTO child SELECT generate_series(1, 30)",
        "ALTER TABLE ONLY \"My App\".\"It's\" ADD COLUMN \"No 1\" serial",
        "SET search_path = \"My App\", public",
        "ALTER TABLE IF EXISTS \"It's\" ADD COLUMN n smallserial",
        "ALTER TABLE parent ADD COLUMN n serial",
        "ALTER TABLE empty ADD COLUMN n serial",
    ] {
        succeed(one, sql).await;
    }
    for (table, column) in [("\"It's\"", "\"No 1\""), ("\"It's\"", "n"), ("parent", "n")] {
        assert_eq!(summary(one, table, column).await, [60, 60, 1, 60], "{table}");
    }
    for (sql, first) in [
        ("INSERT INTO \"It's\" (\"K\") VALUES (100) RETURNING \"No 1\"", 61),
        ("INSERT INTO \"It's\" VALUES (101) RETURNING n", 62),
        ("INSERT INTO parent VALUES (100) RETURNING n", 61),
        ("INSERT INTO empty VALUES (100) RETURNING n", 1),
    ] {
        assert_eq!(number(&one.ask(sql).await), first, "{sql}");
    }
    let told = one.ask("INSERT INTO child (k, v) VALUES (101, 'x') RETURNING n").await;
    assert!(number(&told) > 61, "{told}");
    succeed(one, "RESET search_path").await;
    let told = one.ask("ALTER TABLE ONLY parent ADD COLUMN m serial").await;
    assert_eq!(told, "E(42P16 column must be added to child tables too) Z(I)");
    assert_alike(stage).await;
}

async fn limits(stage: &Stage, one: &mut WireClient) {
    let before = declared(stage).await;
    for (sql, message) in [
        (
            "ALTER TABLE accounts ADD COLUMN x int GENERATED ALWAYS AS IDENTITY (MAXVALUE 80)",
            "E(2200H nextval: reached maximum value of sequence \"accounts_x_seq\" (80)) Z(I)",
        ),
        (
            "ALTER TABLE accounts ADD COLUMN x int GENERATED ALWAYS AS IDENTITY (INCREMENT -1 MINVALUE -80)",
            "E(2200H nextval: reached minimum value of sequence \"accounts_x_seq\" (-80)) Z(I)",
        ),
        (
            "ALTER TABLE accounts ADD COLUMN x serial CHECK (x < 90)",
            "E(23514 check constraint \"accounts_x_check\" of relation \"accounts\" is violated by some row) Z(I)",
        ),
        ("ALTER TABLE accounts ADD COLUMN n serial", "E(42701 column \"n\" of relation \"accounts\" already exists) Z(I)"),
        ("ALTER TABLE accounts ADD COLUMN x serial[]", "E(0A000 array of serial is not implemented) Z(I)"),
    ] {
        let told = one.ask(sql).await;
        assert!(told == message, "{sql}: {told}");
    }
    succeed(one, "ALTER TABLE accounts ADD COLUMN x int GENERATED ALWAYS AS IDENTITY (MAXVALUE 90)").await;
    assert_eq!(
        one.ask("INSERT INTO accounts (id, balance) VALUES (91, 1)").await,
        "E(2200H nextval: reached maximum value of sequence \"accounts_x_seq\" (90)) Z(I)"
    );
    succeed(one, "ALTER TABLE accounts DROP COLUMN x").await;
    assert_eq!(declared(stage).await, before);
    // Rows of the transaction itself.
    succeed(one, "BEGIN; ALTER TABLE accounts ADD COLUMN x serial").await;
    for id in [91, 92] {
        assert_eq!(number(&one.ask(&format!("INSERT INTO accounts (id, balance) VALUES ({id}, 1) RETURNING x")).await), id);
    }
    assert_eq!(one.value("SELECT count(DISTINCT x) FROM accounts").await, "92");
    succeed(one, "ROLLBACK").await;
    assert_alike(stage).await;
}

async fn reference_tables(stage: &Stage, one: &mut WireClient, two: &mut WireClient) {
    let told = one.ask("ALTER TABLE currencies ADD COLUMN n serial").await;
    assert!(told.starts_with("E(0A000 a column that numbers rows cannot be added to reference table \"currencies\")"), "{told}");
    succeed(one, "CREATE TABLE kinds (name text); SELECT shardgate.reference_table('kinds')").await;
    succeed(one, "ALTER TABLE kinds ADD COLUMN id serial PRIMARY KEY").await;
    for (place, client) in [&mut *one, &mut *two].into_iter().enumerate() {
        succeed(client, &format!("INSERT INTO kinds (name) VALUES ('a{place}'), ('b{place}')")).await;
    }
    let mut copies = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let row = direct.query_one("SELECT string_agg(id || name, ',' ORDER BY id) FROM kinds", &[]).await.expect("rows");
        copies.push(row.get::<_, String>(0));
    }
    assert!(copies.iter().all(|copy| *copy == copies[0] && copy.starts_with("1a0,2b0,")), "{copies:?}");
    assert_alike(stage).await;
}

async fn what_else_is_refused(one: &mut WireClient) {
    for sql in [
        "ALTER TABLE accounts ADD COLUMN x int DEFAULT nextval('accounts_n_seq')",
        "ALTER TABLE accounts ADD COLUMN x text DEFAULT 'N' || nextval('accounts_n_seq')",
        "ALTER TABLE accounts ALTER COLUMN balance SET DEFAULT nextval('accounts_n_seq')",
        "ALTER TABLE accounts ADD COLUMN x int GENERATED ALWAYS AS IDENTITY (MAXVALUE 10 CYCLE)",
        "ALTER TABLE accounts ADD COLUMN x int GENERATED ALWAYS AS IDENTITY (RESTART 10)",
        "ALTER TABLE accounts ADD COLUMN x serial, ALTER COLUMN x DROP DEFAULT",
        "ALTER TABLE accounts ADD COLUMN x serial, ADD COLUMN y int GENERATED ALWAYS AS (x * 2) STORED",
        "ALTER TABLE parent ADD COLUMN x int GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE accounts ALTER COLUMN balance ADD GENERATED ALWAYS AS IDENTITY (CYCLE)",
        "ALTER TABLE parent ALTER COLUMN k ADD GENERATED ALWAYS AS IDENTITY",
    ] {
        let told = one.ask(sql).await;
        assert!(
            told.starts_with("E(0A000 this change of the columns that number the rows of distributed table \""),
            "{sql}: {told}"
        );
    }
    for sql in ["DROP DEFAULT", "SET DEFAULT 5", "DROP NOT NULL"] {
        let told = one.ask(&format!("ALTER TABLE accounts ALTER COLUMN i {sql}")).await;
        assert_eq!(told, "E(42601 column \"i\" of relation \"accounts\" is an identity column) Z(I)", "{sql}");
    }
    for (sql, start) in [
        ("DROP SEQUENCE accounts_n_seq", "E(2BP01 cannot drop sequence accounts_n_seq because other objects depend on it)"),
        ("ALTER TABLE accounts ALTER n DROP IDENTITY", "E(55000 column \"n\" of relation \"accounts\" is not an identity column)"),
    ] {
        let told = one.ask(sql).await;
        assert!(told.starts_with(start), "{sql}: {told}");
    }
    // A serial is a column with a default, which may go.
    succeed(one, "ALTER TABLE accounts ALTER COLUMN n DROP DEFAULT").await;
    assert!(one.ask("INSERT INTO accounts (id, balance) VALUES (91, 1)").await.starts_with("E(23502 null value in column \"n\""));
    succeed(one, "ALTER TABLE accounts ALTER COLUMN n SET DEFAULT 5").await;
    assert_eq!(number(&one.ask("INSERT INTO accounts (id, balance) VALUES (91, 1) RETURNING n").await), 5);
}

/// Others insert all the time, by two proxies, rows of VALUES and rows that the shards number: no number stands in two rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_added_beside_inserts_give_no_number_twice() {
    let stage = Stage::start(3, options()).await;
    let second = Proxy::start(&stage.cluster, options());
    let mut client = stage.client().await;
    succeed(&mut client, "CREATE TABLE orders (tenant int); SELECT shardgate.distribute_table('orders', 'tenant')").await;
    let inserters = Inserters::start([&stage.proxy, &second], |count| [count, count, count + 1], is_deadlock);
    for round in 0..8 {
        let kind = if round % 2 == 0 { "serial" } else { "bigint GENERATED ALWAYS AS IDENTITY" };
        until_done(&mut client, &format!("ALTER TABLE orders ADD COLUMN n{round} {kind}")).await;
        let rows = client.value(&format!("SELECT max(n{round}) FROM orders")).await.parse::<i64>().expect("a number");
        while client.value(&format!("SELECT max(n{round}) < {rows} + 60 FROM orders")).await == "t" {
            inserters.assert_none_has_failed();
        }
        let [count, distinct, ..] = summary(&mut client, "orders", &format!("n{round}")).await[..] else { panic!() };
        assert_eq!(count, distinct, "round {round}");
    }
    inserters.stop().await;
    stage.assert_log_is_clean();
}

/// A change of a table waits on one shard for those who wait for it on another.
fn is_deadlock(told: &str) -> bool {
    told == "E(40P01 deadlock detected) Z(I)"
}

async fn until_done(client: &mut WireClient, sql: &str) {
    let mut told = client.ask(sql).await;
    while is_deadlock(&told) {
        told = client.ask(sql).await;
    }
    assert_eq!(told, "C(ALTER TABLE) Z(I)", "{sql}");
}

/// The proxy is lost at a point of the commit: the column is there on all shards with all its numbers, or on none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_whose_proxy_is_lost_is_whole_or_absent() {
    let points = Points::new();
    let armed = || ProxyOptions { settings: options().settings, ..points.options() };
    let mut stage = Stage::start(3, armed()).await;
    let second = Proxy::start(&stage.cluster, options());
    let mut other = WireClient::connect(second.address()).await;
    for (point, is_there) in [("before_prepare", false), ("before_decision", false), ("after_decision", true)] {
        let mut client = stage.client().await;
        points.arm(point, "abort");
        client.query("ALTER TABLE accounts ADD COLUMN n serial");
        client.flush().await;
        while client.next().await.is_some() {}
        points.release(point);
        stage.proxy = Proxy::start(&stage.cluster, armed());
        let mut client = stage.client().await;
        if !is_there {
            // The map may have the sequence still, and the home shard's own of that name is its own.
            assert_eq!(other.ask("CREATE SEQUENCE accounts_n_seq START 700").await, "C(CREATE SEQUENCE) Z(I)");
            assert_eq!(other.value("SELECT nextval('accounts_n_seq')").await, "700", "{point}");
            succeed(&mut other, "DROP SEQUENCE accounts_n_seq").await;
        }
        // Waits for what is prepared to be finished.
        let told = other.ask("ALTER TABLE accounts ADD COLUMN n serial").await;
        assert_eq!(told.starts_with("E(42701 "), is_there, "{point}: {told}");
        assert!(is_there || told == "C(ALTER TABLE) Z(I)", "{point}: {told}");
        assert_eq!(summary(&mut client, "accounts", "n").await, [ROWS, ROWS, 1, ROWS], "{point}");
        for (place, client) in [&mut client, &mut other].into_iter().enumerate() {
            let told = client.ask(&format!("INSERT INTO accounts (id, balance) VALUES (10{place}, 1) RETURNING n")).await;
            assert!((ROWS + 1..ROWS + 30).contains(&number(&told)), "{point}: {told}");
        }
        let found = summary(&mut client, "accounts", "n").await;
        assert_eq!(found[0], found[1], "{point}");
        assert_alike(&stage).await;
        succeed(&mut client, "DELETE FROM accounts WHERE id > 90; ALTER TABLE accounts DROP COLUMN n").await;
    }
}

/// Of a view, and of a column whose type has a cast.
const FOREIGN_DEFAULTS: &str = "CREATE SCHEMA IF NOT EXISTS own;
    CREATE FUNCTION own.caught() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$caught$$; END';
    CREATE VIEW own.seen AS SELECT own.caught() AS n;
    ALTER VIEW own.seen ALTER COLUMN n SET DEFAULT shardgate.next_id('public.owned_n_seq');
    CREATE TYPE own.kind AS ENUM ('1', '2');
    CREATE FUNCTION own.number(own.kind) RETURNS numeric LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$caught$$; END';
    CREATE FUNCTION own.kind(bigint) RETURNS own.kind LANGUAGE sql AS 'SELECT own.kind $$1$$';
    CREATE CAST (own.kind AS numeric) WITH FUNCTION own.number(own.kind);
    CREATE CAST (bigint AS own.kind) WITH FUNCTION own.kind(bigint) AS ASSIGNMENT;
    CREATE TABLE own.kinds (n own.kind DEFAULT shardgate.next_id('public.owned_n_seq'));
    INSERT INTO own.kinds VALUES ('2'), (NULL)";

/// The owner of a table who may do nothing else adds the column, and nobody gets rights that he has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_owner_may_add_it_and_others_may_not() {
    let settings = [options().settings, vec![("auth.backend_user", "client".to_owned())]].concat();
    let user = |name: &str| ProxyUser { name: name.to_owned(), password: None, admin: false };
    let users = vec![user("owner_of_it"), user("somebody")];
    let stage = Stage::start(3, ProxyOptions { settings, users, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    for sql in [
        "DO $$ BEGIN CREATE ROLE owner_of_it LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "DO $$ BEGIN CREATE ROLE somebody LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    ] {
        for shard in 0..3 {
            stage.cluster.connect_shard(shard).await.batch_execute(sql).await.expect("a role");
        }
    }
    for sql in [
        "GRANT CREATE ON SCHEMA public TO owner_of_it",
        "CREATE TABLE owned (k int PRIMARY KEY)",
        "ALTER TABLE owned OWNER TO owner_of_it",
        "GRANT SELECT, INSERT ON owned TO somebody",
        "SELECT shardgate.distribute_table('owned', 'k')",
        "INSERT INTO owned SELECT generate_series(1, 40)",
    ] {
        succeed(&mut client, sql).await;
    }
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let own = format!("GRANT shardgate_2pc TO owner_of_it, somebody; GRANT CREATE ON DATABASE shard{shard} TO somebody");
        direct.batch_execute(&own).await.expect("granted");
    }
    let mut somebody = WireClient::connect_with(stage.proxy.address(), &[("user", "somebody"), ("database", "app")]).await;
    let told = somebody.ask("ALTER TABLE owned ADD COLUMN n serial").await;
    assert!(told.starts_with("E(42501 "), "{told}");
    let mut owner = WireClient::connect_with(stage.proxy.address(), &[("user", "owner_of_it"), ("database", "app")]).await;
    for text in ["n serial", "i bigint GENERATED ALWAYS AS IDENTITY"] {
        assert_eq!(owner.ask(&format!("ALTER TABLE owned ADD COLUMN {text}")).await, "C(ALTER TABLE) Z(I)");
    }
    assert_eq!(summary(&mut owner, "owned", "n").await, [40, 40, 1, 40]);
    assert_eq!(number(&owner.ask("INSERT INTO owned VALUES (41) RETURNING i").await), 41);
    // By SET ROLE it is the role that counts.
    succeed(&mut client, "SET ROLE owner_of_it; ALTER TABLE owned ADD COLUMN r serial; RESET ROLE").await;
    assert_eq!(summary(&mut client, "owned", "r").await, [41, 41, 1, 41]);
    assert_alike(&stage).await;
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        // Looking for the numbers that are used runs nobody's functions with the rights of the shard's user.
        direct.batch_execute(&format!("SET ROLE somebody; {FOREIGN_DEFAULTS}; RESET ROLE")).await.expect("made");
        let used = direct.query_one("SELECT shardgate.numbers_used('owned_n_seq')::int8 = max(n) FROM owned", &[]).await;
        assert!(used.expect("the numbers that are used").get::<_, bool>(0));
        for (role, sql) in [
            ("somebody", "SELECT shardgate.keep_numbers('owned_n_seq')"),
            ("somebody", "SELECT shardgate.own_sequence('owned_n_seq')"),
            ("somebody", "SELECT shardgate.number_added_column('owned', 'n', true, NULL), 1 / 0"),
            ("owner_of_it", "SELECT shardgate.add_numbers('owned_n_seq', 1, 1, 1, 1)"),
            ("owner_of_it", "SELECT shardgate.numbers_left()"),
            ("owner_of_it", "INSERT INTO shardgate.number_sequences VALUES (1)"),
        ] {
            let error = direct.batch_execute(&format!("BEGIN; SET LOCAL ROLE {role}; {sql}")).await.expect_err(sql);
            assert_ne!(error.code().map(|code| code.code()), None, "{sql}");
            assert!(role == "somebody" || error.code().is_some_and(|code| code.code() == "42501"), "{sql}: {error:?}");
            direct.batch_execute("ROLLBACK").await.expect("rolled back");
        }
    }
}

/// Numbered on some shards only, the rows of others would have the numbers too.
#[tokio::test]
async fn without_a_commit_on_all_shards_at_once_it_is_refused() {
    let settings = vec![("cross_shard.writes", "refuse".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    let told = client.ask("ALTER TABLE accounts ADD COLUMN n serial").await;
    assert!(told.starts_with("E(0A000 a column that numbers rows cannot be added to distributed table \"accounts\") "), "{told}");
    succeed(&mut client, "ALTER TABLE accounts ADD COLUMN n int").await;
    assert_eq!(client.value("SELECT count(n) FROM accounts").await, "0");
}
