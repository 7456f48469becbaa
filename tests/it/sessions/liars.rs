//! A shard, or what lies before it, whose messages come in another order than PostgreSQL's: nobody takes a part of an answer for the
//! whole, nor anybody else's for his own, and the connection serves nobody any more.

use std::collections::BTreeSet;

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Lie, ProxyOptions, WireClient};

/// What the shard says wrongly, and whether no answer can pass with it.
const LIES: &[(&str, Lie, bool)] = &[
    ("no CommandComplete", |tag, frame| if tag == b'C' { Vec::new() } else { frame.to_vec() }, true),
    ("ready before the end", |tag, frame| if tag == b'C' { [READY, frame].concat() } else { frame.to_vec() }, true),
    ("no RowDescription", |tag, frame| if tag == b'T' { Vec::new() } else { frame.to_vec() }, false),
    ("no BindComplete", |tag, frame| if tag == b'2' { Vec::new() } else { frame.to_vec() }, false),
    ("a row before the answer", |tag, frame| if b"T21H".contains(&tag) { [ROW, frame].concat() } else { frame.to_vec() }, false),
    ("a row behind the end", |tag, frame| if tag == b'C' { [frame, ROW].concat() } else { frame.to_vec() }, true),
    ("two ends", |tag, frame| if tag == b'Z' { [frame, frame].concat() } else { frame.to_vec() }, false),
    ("another answer behind it", |tag, frame| if tag == b'Z' { [frame, ROW, TAG, READY].concat() } else { frame.to_vec() }, false),
    ("a length of 2^31", |tag, frame| if b"Dd".contains(&tag) { [&[tag], HUGE].concat() } else { frame.to_vec() }, false),
];
const READY: &[u8] = b"Z\0\0\0\x05I";
const ROW: &[u8] = b"D\0\0\0\x10\0\x01\0\0\0\x06theirs";
const TAG: &[u8] = b"C\0\0\0\x0dSELECT 1\0";
const HUGE: &[u8] = b"\x80\0\0\x04";

/// A lying shard takes part in each.
fn statements(own: i64) -> [String; 9] {
    [
        format!("SELECT owner FROM accounts WHERE id = {own} AND owner <> 'liar'"),
        "SELECT owner FROM accounts WHERE owner <> 'liar' ORDER BY id".to_owned(),
        "SELECT count(*), min(owner) FROM accounts WHERE owner <> 'liar'".to_owned(),
        "SELECT a.owner FROM accounts a JOIN liar b ON b.other = a.id ORDER BY a.id".to_owned(),
        "UPDATE accounts SET balance = balance + 1 WHERE owner <> 'liar'".to_owned(),
        "UPDATE accounts SET balance = balance + 1 WHERE owner <> 'liar' RETURNING id".to_owned(),
        "COPY (SELECT id FROM accounts WHERE owner <> 'liar' ORDER BY id) TO STDOUT".to_owned(),
        format!("COPY (SELECT id FROM accounts WHERE id = {own} AND owner <> 'liar') TO STDOUT"),
        format!("BEGIN; SELECT owner FROM accounts WHERE id = {own} AND owner <> 'liar'; COMMIT"),
    ]
}

/// Messages that nobody has asked for, before the end of an answer: more than `pool.unasked_bytes_max`.
const FLOODS: &[(&str, Lie)] = &[
    ("notifications", |tag, frame| {
        let body = [&[0, 0, 0, 1][..], b"channel\0", &[b'x'; 1_000], b"\0"].concat();
        if tag == b'C' { [message(b'A', &body).repeat(1_200), frame.to_vec()].concat() } else { frame.to_vec() }
    }),
    ("settings", |tag, frame| {
        let setting = |number: usize| message(b'S', &[format!("app.s{number}\0").as_bytes(), &[b'x'; 1_000], b"\0"].concat());
        if tag == b'C' { [(0..1_200).flat_map(setting).collect(), frame.to_vec()].concat() } else { frame.to_vec() }
    }),
];

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[tag][..], &length, body].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_what_nobody_asked_for_ends_at_its_setting() {
    let mut cluster = Cluster::start(2).await;
    cluster.lay_cable(1).await;
    let settings = vec![("pool.unasked_bytes_max", (1 << 20).to_string())];
    let stage = Stage::on(cluster, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let own = stage.key(1, 0);
    let cable = stage.cluster.cable(1);
    for (what, flood) in FLOODS {
        for statement in statements(own).iter().filter(|statement| !statement.contains("liar b")) {
            for is_extended in [false, true].into_iter().filter(|is_extended| !is_extended || !statement.contains(';')) {
                let mut client = stage.client().await;
                cable.lie(Some(*flood));
                let told = told(&mut client, statement, is_extended).await;
                cable.lie(None);
                let is_refused = told.contains("E(53400 ") && told.contains("pool.unasked_bytes_max");
                // At a commit of several shards everything is rolled back, and may be repeated.
                assert!(
                    is_refused || (statement.starts_with("UPDATE") && told.contains("E(40001 ")),
                    "{what}: {statement}: {told}"
                );
                client.ask("ROLLBACK").await;
                assert_eq!(client.value("SELECT 1").await, "1", "{what}: {statement}");
            }
        }
    }
    stage.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_out_of_order_is_nobodys_answer() {
    let mut cluster = Cluster::start(3).await;
    cluster.lay_cable(1).await;
    let stage = Stage::on(cluster, ProxyOptions::default()).await;
    let own = stage.key(1, 0);
    let mut other = stage.client().await;
    for statement in [
        "CREATE TABLE liar (id bigint PRIMARY KEY, other bigint)",
        "SELECT shardgate.distribute_table('liar', 'id')",
        "INSERT INTO liar SELECT g, 91 - g FROM generate_series(1, 90) g",
    ] {
        succeed(&mut other, statement).await;
    }
    let cable = stage.cluster.cable(1);
    let shards = Shards::of(&stage).await;
    for is_extended in [false, true] {
        for statement in statements(own).iter().filter(|statement| !is_extended || !statement.contains(';')) {
            let mut client = stage.client().await;
            let right = told(&mut client, statement, is_extended).await;
            assert!(!right.contains("E("), "{statement}: {right}");
            for (name, lie, is_fatal) in LIES {
                let (lies_told, balance) = (cable.lies_told(), shards.balance().await);
                cable.lie(Some(*lie));
                let told = told(&mut client, statement, is_extended).await;
                cable.lie(None);
                let has_lied = cable.lies_told() > lies_told;
                assert!(has_lied || !is_fatal, "{statement} with {name}: nothing was changed");
                // At a commit of several shards everything is rolled back, and may be repeated.
                let is_lost = told.contains("E(08006 ") || (statement.starts_with("UPDATE") && told.contains("E(40001 "));
                let is_refused = is_lost && (told.ends_with("Z(I)") || statement.starts_with("BEGIN"));
                assert!(is_refused || (told == right && !is_fatal), "{statement} with {name}: {told} for {right}");
                assert!(!told.contains("theirs"), "{statement} with {name}: {told}");
                let is_written = statement.starts_with("UPDATE") && !is_refused;
                assert_eq!(shards.balance().await, balance + i32::from(is_written), "{statement} with {name}: {told}");
                let asked = format!("SELECT owner FROM accounts WHERE id = {own}");
                assert_eq!(other.value(&asked).await, format!("o{own}"), "{statement} with {name}");
                if statement.starts_with("BEGIN") {
                    succeed(&mut client, "ROLLBACK").await;
                }
            }
        }
    }
    stage.assert_no_panic();
}

async fn told(client: &mut WireClient, statement: &str, is_extended: bool) -> String {
    match is_extended {
        false => client.query(statement),
        true => client.unnamed(statement, &[]).sync(),
    };
    client.flush().await;
    client.transcript().await
}

/// What the shards themselves say.
struct Shards(Vec<tokio_postgres::Client>);

impl Shards {
    async fn of(stage: &Stage) -> Self {
        let mut clients = Vec::new();
        for shard in 0..stage.cluster.shard_count() {
            clients.push(stage.cluster.connect_shard(shard).await);
        }
        Self(clients)
    }

    /// Of every account: a write is on all shards, or on none.
    async fn balance(&self) -> i32 {
        let mut balances = BTreeSet::new();
        for client in &self.0 {
            let rows = client.query("SELECT balance FROM accounts", &[]).await.expect("rows");
            balances.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        assert_eq!(balances.len(), 1, "{balances:?}");
        balances.pop_first().expect("one")
    }
}
