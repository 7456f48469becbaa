//! ALTER SEQUENCE of sequences of the whole cluster: with its transaction, for every proxy and every shard, and as PostgreSQL limits
//! it; who else wants a number meanwhile waits, and nothing is left of what was rolled back.

use std::collections::BTreeSet;

use super::inserters::Inserters;
use super::stage::{Stage, succeed};
use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, WireClient};
use crate::transactions::Points;

fn options() -> ProxyOptions {
    ProxyOptions { settings: vec![("cross_shard.sequence_block", "10".to_owned())], ..ProxyOptions::default() }
}

/// What the first row's first column is.
fn number(told: &str) -> i64 {
    let value = told.split("D(").nth(1).and_then(|rest| rest.split([',', ')']).next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{told}"))
}

const ADD: &str = "INSERT INTO orders (tenant) VALUES (1) RETURNING id";
/// Each shard numbers its own rows.
const ADD_THERE: &str = "INSERT INTO orders (tenant) SELECT tenant FROM tenants";

async fn with_orders(client: &mut WireClient) {
    for sql in [
        "CREATE TABLE orders (id serial, tenant int)",
        "SELECT shardgate.distribute_table('orders', 'tenant')",
        "CREATE TABLE tenants (tenant int PRIMARY KEY)",
        "SELECT shardgate.distribute_table('tenants', 'tenant', colocate_with => 'orders')",
        "INSERT INTO tenants SELECT generate_series(1, 20)",
    ] {
        succeed(client, sql).await;
    }
}

/// Definitions and states of the users' sequences are the same on all shards.
async fn assert_alike(stage: &Stage, shards: usize) {
    let mut found = BTreeSet::new();
    for shard in 0..shards {
        let direct = stage.cluster.connect_shard(shard).await;
        let sql = "SELECT string_agg(s::text, ' ' ORDER BY s::text) FROM pg_sequences s WHERE schemaname = 'public'";
        found.insert(direct.query_one(sql, &[]).await.expect("sequences").get::<_, Option<String>>(0));
    }
    assert_eq!(found.len(), 1, "{found:?}");
}

/// No block that another proxy or a shard had is used afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn altered_sequences_count_for_every_proxy_and_shard() {
    let stage = Stage::start(3, options()).await;
    let second = Proxy::start(&stage.cluster, options());
    let (mut one, mut two) = (stage.client().await, WireClient::connect(second.address()).await);
    with_orders(&mut one).await;
    for client in [&mut one, &mut two] {
        succeed(client, ADD).await;
        succeed(client, ADD_THERE).await;
    }
    assert_eq!(one.ask("ALTER SEQUENCE orders_id_seq RESTART WITH 5000").await, "C(ALTER SEQUENCE) Z(I)");
    assert_eq!(number(&two.ask(ADD).await), 5000);
    for client in [&mut one, &mut two] {
        assert!((5000..5030).contains(&number(&client.ask(ADD).await)));
        succeed(client, ADD_THERE).await;
    }
    assert_eq!(one.value("SELECT count(*) FROM orders WHERE id < 5000").await, "42");
    assert_eq!(one.value("SELECT count(DISTINCT id) = count(*) FROM orders").await, "t");
    // Another increment, also for the blocks that shards have.
    succeed(&mut two, "DELETE FROM orders; ALTER SEQUENCE orders_id_seq INCREMENT BY 50 RESTART WITH 10001").await;
    for client in [&mut one, &mut two] {
        assert_eq!(number(&client.ask(ADD).await) % 50, 1);
        succeed(client, ADD_THERE).await;
    }
    assert_eq!(one.value("SELECT count(*) FROM orders WHERE id % 50 <> 1 OR id < 10001").await, "0");
    assert_eq!(one.value("SELECT count(DISTINCT id) = count(*) FROM orders").await, "t");
    // A number that the column cannot hold.
    succeed(&mut one, "ALTER SEQUENCE orders_id_seq AS bigint RESTART WITH 3000000000").await;
    assert_eq!(two.ask(ADD).await, "E(22003 integer out of range) Z(I)");
    two.unnamed("INSERT INTO orders (tenant) VALUES ($1)", &["1"]).sync();
    assert_eq!(two.transcript().await, "1 E(22003 integer out of range) Z(I)");
    succeed(&mut one, "ALTER SEQUENCE orders_id_seq RESTART WITH 1 AS integer").await;
    // Limits.
    one.unnamed("ALTER SEQUENCE orders_id_seq INCREMENT BY 1 MINVALUE -5 MAXVALUE 20003 RESTART WITH 20001", &[]).sync();
    assert_eq!(one.transcript().await, "1 2 C(ALTER SEQUENCE) Z(I)");
    assert_eq!([number(&two.ask(ADD).await), number(&two.ask(ADD).await), number(&two.ask(ADD).await)], [20001, 20002, 20003]);
    for client in [&mut one, &mut two] {
        let told = client.ask(ADD).await;
        assert_eq!(told, "E(2200H nextval: reached maximum value of sequence \"orders_id_seq\" (20003)) Z(I)");
    }
    succeed(&mut one, "ALTER SEQUENCE orders_id_seq NO MAXVALUE AS bigint; ALTER TABLE orders ALTER COLUMN id TYPE bigint").await;
    assert_eq!(number(&two.ask(ADD).await), 20004);
    succeed(&mut one, "ALTER SEQUENCE orders_id_seq RESTART WITH 3000000000").await;
    assert_eq!(number(&two.ask(ADD).await), 3_000_000_000);
    assert_alike(&stage, 3).await;
    // A function on a shard that no proxy has read still fails there.
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        let error = direct.query("SELECT nextval('orders_id_seq')", &[]).await.expect_err("used up");
        assert_eq!(error.code().map(|code| code.code()), Some("2200H"));
    }
    stage.assert_log_is_clean();
}

/// Others wait for the end of the transaction, by both proxies; what they get is what it has left, or what was before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_draws_waits_for_the_transaction_that_alters() {
    let stage = Stage::start(2, options()).await;
    let second = Proxy::start(&stage.cluster, options());
    let (mut one, mut two) = (stage.client().await, WireClient::connect(second.address()).await);
    let mut beside = stage.client().await;
    with_orders(&mut one).await;
    succeed(&mut one, ADD_THERE).await;
    for client in [&mut one, &mut two, &mut beside] {
        succeed(client, ADD).await;
    }
    for (end, expected) in [("ROLLBACK", 0), ("COMMIT", 7002), ("SELECT 1/0", 0), ("COMMIT", 7002)] {
        let before = number(&one.ask("SELECT nextval('orders_id_seq')").await);
        succeed(&mut one, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 7000").await;
        for client in [&mut two, &mut beside] {
            client.query(ADD);
            client.flush().await;
        }
        assert_eq!(number(&one.ask(ADD).await), 7000);
        assert_eq!(number(&one.ask("SELECT nextval('orders_id_seq')").await), 7001);
        one.ask(end).await;
        let mut seen = BTreeSet::from([before, 7000, 7001]);
        for client in [&mut two, &mut beside] {
            let drawn = number(&client.transcript().await);
            assert!(seen.insert(drawn), "{drawn} twice after {end}");
            let (from, to) = if end == "COMMIT" { (expected, expected + 40) } else { (before, before + 4_000) };
            assert!((from..to).contains(&drawn), "{drawn} after {end}");
        }
        one.ask("ROLLBACK").await;
    }
    // Who waits may give up.
    succeed(&mut one, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 7000").await;
    two.query(ADD);
    two.flush().await;
    let requests: Vec<_> = (0..500).map(|_| two.cancel()).collect();
    let told = tokio::select! {
        told = two.transcript() => told,
        () = async { for request in requests { request.await } } => panic!("it is not cancelled"),
    };
    assert_eq!(told, "E(57014 canceling statement due to user request) Z(I)");
    succeed(&mut one, "ROLLBACK").await;
    // Numbers of a part that was gone back on are everybody's again.
    let before = number(&one.ask("SELECT nextval('orders_id_seq')").await);
    succeed(&mut one, "BEGIN; SAVEPOINT a; ALTER SEQUENCE orders_id_seq RESTART WITH 100000; ROLLBACK TO a").await;
    let own = number(&one.ask("SELECT nextval('orders_id_seq')").await);
    let other = number(&two.ask(ADD).await);
    assert!(own > before && other > before && own != other && own < 10_000 && other < 10_000, "{before} {own} {other}");
    succeed(&mut one, "COMMIT").await;
    // One after the other.
    succeed(&mut one, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 200000").await;
    two.query("ALTER SEQUENCE orders_id_seq INCREMENT BY 3");
    two.flush().await;
    beside.query("SELECT setval('orders_id_seq', 300000)");
    beside.flush().await;
    while one.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders_id_seq'::regclass").await == "0" {}
    succeed(&mut one, "COMMIT").await;
    assert_eq!(two.transcript().await, "C(ALTER SEQUENCE) Z(I)");
    assert_eq!(beside.transcript().await, "T(setval) D(300000) C(SELECT 1) Z(I)");
    let drawn = number(&one.ask(ADD).await);
    assert!([300_001, 300_003].contains(&drawn), "{drawn}");
    // What shards would number by themselves.
    succeed(&mut one, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 400000").await;
    let told = one.ask(ADD_THERE).await;
    assert!(told.starts_with("E(0A000 rows that shards number by themselves are not supported after ALTER SEQUENCE"), "{told}");
    succeed(&mut one, "ROLLBACK").await;
    succeed(&mut one, ADD_THERE).await;
    // A client that goes in the middle leaves nothing.
    let mut gone = stage.client().await;
    succeed(&mut gone, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 500000").await;
    drop(gone);
    assert!(number(&two.ask(ADD).await) < 400_000);
    assert_alike(&stage, 2).await;
    stage.assert_log_is_clean();
}

/// Others insert all the time: after a restart beyond all numbers, none is given twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_by_alter_sequence_beside_inserts_give_no_number_twice() {
    let stage = Stage::start(3, options()).await;
    let second = Proxy::start(&stage.cluster, options());
    let mut client = stage.client().await;
    with_orders(&mut client).await;
    let inserters = Inserters::start([&stage.proxy, &second], |count| [count, count, 1], |_| false);
    for round in 1..=10 {
        let (from, increment) = (round * 1_000_000, 1 + round % 3);
        let text = if round % 2 == 0 {
            format!("ALTER SEQUENCE orders_id_seq RESTART WITH {from} INCREMENT BY {increment}")
        } else {
            format!(
                "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH {from} INCREMENT BY {increment}; \
                 INSERT INTO orders (tenant) VALUES (1), (2), (3); COMMIT"
            )
        };
        let told = client.ask(&text).await;
        assert!(told.ends_with(" Z(I)") && !told.contains("E("), "{told}");
        while client.value(&format!("SELECT count(*) < 60 FROM orders WHERE id >= {from}")).await == "t" {
            inserters.assert_none_has_failed();
        }
        let twice = client.ask("SELECT id, count(*) FROM orders GROUP BY id HAVING count(*) > 1").await;
        assert_eq!(twice, "T(id,count) C(SELECT 0) Z(I)", "round {round}");
    }
    inserters.stop().await;
}

/// The proxy is lost at a point of the commit: the sequence is altered for all others, or for nobody, and no number is given twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_whose_proxy_is_lost_is_altered_or_not() {
    let points = Points::new();
    let armed = || ProxyOptions { settings: options().settings, ..points.options() };
    let mut stage = Stage::start(3, armed()).await;
    let second = Proxy::start(&stage.cluster, options());
    let mut other = WireClient::connect(second.address()).await;
    with_orders(&mut other).await;
    for (point, is_altered) in [("before_prepare", false), ("before_decision", false), ("after_decision", true)] {
        succeed(&mut other, "ALTER SEQUENCE orders_id_seq RESTART WITH 10 INCREMENT BY 1").await;
        assert_eq!(number(&other.ask(ADD).await), 10);
        let mut client = stage.client().await;
        succeed(&mut client, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 9000 INCREMENT BY 2").await;
        assert_eq!(number(&client.ask("SELECT nextval('orders_id_seq')").await), 9000);
        assert_eq!(number(&client.ask(ADD).await), 9002);
        points.arm(point, "abort");
        client.query("COMMIT");
        client.flush().await;
        while client.next().await.is_some() {}
        points.release(point);
        stage.proxy = Proxy::start(&stage.cluster, armed());
        let drawn = number(&other.ask(ADD).await);
        if is_altered {
            assert_eq!(drawn, 9004, "{point}");
        } else {
            assert!((11..60).contains(&drawn), "{point}: {drawn}");
        }
        let mut client = stage.client().await;
        assert!(number(&client.ask(ADD).await) > drawn, "{point}");
        assert_alike(&stage, 3).await;
    }
}

/// The transaction is committed, and the map that should hear of it is away: nobody draws before it is back, and knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_altered_sequence_waits_for_the_map() {
    let mut stage = Stage::on(Cluster::separate_servers(2).await, options()).await;
    let mut client = stage.client().await;
    with_orders(&mut client).await;
    succeed(&mut client, ADD).await;
    succeed(&mut client, "BEGIN; ALTER SEQUENCE orders_id_seq RESTART WITH 9000").await;
    assert_eq!(number(&client.ask(ADD).await), 9000);
    stage.cluster.map_server_mut().kill().expect("killed");
    client.query("COMMIT");
    let answers = client.answers().await;
    assert!(answers.iter().any(|message| message.tag == b'C' && message.body.starts_with(b"COMMIT")));
    stage.cluster.map_server_mut().start_again().expect("started again");
    let mut told = String::new();
    for _ in 0..1_000 {
        told = client.ask(ADD).await;
        if !told.contains("E(") {
            break;
        }
    }
    assert_eq!(number(&told), 9001);
}

/// The owner of a sequence who may do nothing else alters it, and nobody else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sequences_owner_may_alter_it_and_others_may_not() {
    let settings = [options().settings, vec![("auth.backend_user", "client".to_owned())]].concat();
    let user = |name: &str| ProxyUser { name: name.to_owned(), password: None, admin: false };
    let users = vec![user("owns_sequence"), user("draws_only")];
    let stage = Stage::start(2, ProxyOptions { settings, users, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        for role in ["owns_sequence", "draws_only"] {
            let sql = format!("DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
            direct.batch_execute(&sql).await.expect("a role");
        }
    }
    for sql in [
        "CREATE TABLE owned (k int PRIMARY KEY, n serial, i int GENERATED ALWAYS AS IDENTITY)",
        "SELECT shardgate.distribute_table('owned', 'k')",
        "ALTER TABLE owned OWNER TO owns_sequence",
        "GRANT ALL ON owned, owned_n_seq TO draws_only",
    ] {
        succeed(&mut client, sql).await;
    }
    for shard in 0..2 {
        let direct = stage.cluster.connect_shard(shard).await;
        direct.batch_execute("GRANT shardgate_2pc TO owns_sequence, draws_only").await.expect("granted");
    }
    let address = stage.proxy.address();
    let mut owner = WireClient::connect_with(address, &[("user", "owns_sequence"), ("database", "app")]).await;
    let mut other = WireClient::connect_with(address, &[("user", "draws_only"), ("database", "app")]).await;
    for (sql, message) in [
        ("ALTER SEQUENCE owned_n_seq RESTART WITH 100", "must be owner of sequence owned_n_seq"),
        ("ALTER TABLE owned ALTER COLUMN i RESTART WITH 100", "must be owner of table owned"),
        ("ALTER TABLE owned ALTER COLUMN i TYPE bigint", "must be owner of table owned"),
        ("ALTER TABLE owned ALTER COLUMN i DROP IDENTITY", "must be owner of table owned"),
    ] {
        assert_eq!(other.ask(sql).await, format!("E(42501 {message}) Z(I)"), "{sql}");
    }
    assert_eq!(number(&other.ask("INSERT INTO owned VALUES (1) RETURNING n").await), 1);
    succeed(&mut owner, "ALTER SEQUENCE owned_n_seq RESTART WITH 100; ALTER TABLE owned ALTER COLUMN i RESTART WITH 200").await;
    assert_eq!(other.ask("INSERT INTO owned VALUES (2) RETURNING n, i").await, "T(n,i) D(100,200) C(INSERT 0 1) Z(I)");
    // By SET ROLE it is the role that counts, also when it is no more at the commit.
    succeed(&mut client, "BEGIN; SET LOCAL ROLE owns_sequence; ALTER SEQUENCE owned_n_seq RESTART WITH 300; RESET ROLE").await;
    assert_eq!(number(&client.ask("SELECT nextval('owned_n_seq')").await), 300);
    succeed(&mut client, "COMMIT").await;
    assert_eq!(number(&other.ask("INSERT INTO owned VALUES (3) RETURNING n").await), 301);
    for sql in [
        "SELECT shardgate.note_alteration('owned_n_seq', 1, ARRAY[1, 1, 9, 1, 1])",
        "SELECT shardgate.show_numbers('owned_n_seq', 1, 1)",
        "SELECT shardgate.hide_numbers('owned_n_seq', 1)",
    ] {
        let direct = stage.cluster.connect_shard(0).await;
        let error = direct.batch_execute(&format!("BEGIN; SET LOCAL ROLE draws_only; {sql}")).await.expect_err(sql);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{sql}");
    }
}

/// What is said of an identity column inside of a transaction that the proxy does not see through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_columns_change_with_their_transactions() {
    let stage = Stage::start(2, options()).await;
    let mut client = stage.client().await;
    for sql in [
        "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, tenant int, plain int NOT NULL DEFAULT 0)",
        "SELECT shardgate.distribute_table('orders', 'tenant')",
        ADD,
    ] {
        succeed(&mut client, sql).await;
    }
    succeed(&mut client, "BEGIN").await;
    let told = client.ask("ALTER TABLE orders ALTER COLUMN id SET GENERATED BY DEFAULT").await;
    assert!(told.starts_with("E(0A000 SET GENERATED of a column of a distributed table is not supported inside"), "{told}");
    succeed(&mut client, "ROLLBACK; BEGIN; SAVEPOINT a; ALTER TABLE orders ALTER COLUMN id DROP IDENTITY; SAVEPOINT b").await;
    let told = client.ask(ADD).await;
    assert_eq!(told, "E(23502 null value in column \"id\" of relation \"orders\" violates not-null constraint) Z(E)");
    succeed(&mut client, "ROLLBACK TO a").await;
    assert_eq!(number(&client.ask(ADD).await), 2);
    succeed(&mut client, "ALTER TABLE orders ALTER COLUMN id DROP IDENTITY; COMMIT").await;
    assert!(client.ask(ADD).await.starts_with("E(23502 null value in column \"id\""));
    let map = stage.cluster.connect_map().await;
    let count = map.query_one("SELECT count(*) FROM shardgate_map.declared_sequence", &[]).await.expect("a count");
    assert_eq!(count.get::<_, i64>(0), 0);
    // And back, as web frameworks do.
    succeed(
        &mut client,
        "BEGIN; ALTER TABLE orders ALTER COLUMN plain DROP DEFAULT; \
         ALTER TABLE orders ALTER COLUMN plain ADD GENERATED BY DEFAULT AS IDENTITY; COMMIT",
    )
    .await;
    let told = client.ask("INSERT INTO orders (id, tenant) VALUES (8, 1), (9, 2), (9, 3) RETURNING plain").await;
    assert_eq!(told, "T(plain) D(1) D(2) D(3) C(INSERT 0 3) Z(I)");
    assert_alike(&stage, 2).await;
    stage.assert_log_is_clean();
}
