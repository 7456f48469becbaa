//! A shard, or what lies before it, whose messages come in another order than PostgreSQL's: nobody takes a part of an answer for the
//! whole, nor anybody else's for his own, and the connection serves nobody any more.

use super::stage::{Stage, succeed};
use crate::support::{Cluster, Lie, ProxyOptions, WireClient};

/// What the shard says wrongly, and whether no answer can pass with it.
const LIES: &[(&str, Lie, bool)] = &[
    ("no CommandComplete", |tag, frame| if tag == b'C' { Vec::new() } else { frame.to_vec() }, true),
    ("ready before the end", |tag, frame| if tag == b'C' { [READY, frame].concat() } else { frame.to_vec() }, true),
    ("no RowDescription", |tag, frame| if tag == b'T' { Vec::new() } else { frame.to_vec() }, false),
    ("no BindComplete", |tag, frame| if tag == b'2' { Vec::new() } else { frame.to_vec() }, false),
    ("a row before the answer", |tag, frame| if b"T21H".contains(&tag) { [ROW, frame].concat() } else { frame.to_vec() }, false),
    // The answer was whole before it.
    ("a row behind the end", |tag, frame| if tag == b'C' { [frame, ROW].concat() } else { frame.to_vec() }, false),
    ("two ends", |tag, frame| if tag == b'Z' { [frame, frame].concat() } else { frame.to_vec() }, false),
    ("another answer behind it", |tag, frame| if tag == b'Z' { [frame, ROW, TAG, READY].concat() } else { frame.to_vec() }, false),
    ("a length of 2^31", |tag, frame| if b"Dd".contains(&tag) { [&[tag], HUGE].concat() } else { frame.to_vec() }, false),
];
const READY: &[u8] = b"Z\0\0\0\x05I";
const ROW: &[u8] = b"D\0\0\0\x10\0\x01\0\0\0\x06theirs";
const TAG: &[u8] = b"C\0\0\0\x0dSELECT 1\0";
const HUGE: &[u8] = b"\x80\0\0\x04";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_out_of_order_is_nobodys_answer() {
    let mut cluster = Cluster::start(3).await;
    cluster.lay_cable(1).await;
    let stage = Stage::on(cluster, ProxyOptions::default()).await;
    let own = stage.key(1, 0);
    let statements = [
        format!("SELECT owner FROM accounts WHERE id = {own} AND owner <> 'liar'"),
        "SELECT owner FROM accounts WHERE owner <> 'liar' ORDER BY id".to_owned(),
        "SELECT count(*), sum(balance) FROM accounts WHERE owner <> 'liar'".to_owned(),
        "SELECT a.owner FROM accounts a JOIN accounts b ON b.id = a.balance - a.id WHERE a.owner <> 'liar' ORDER BY a.id"
            .to_owned(),
        "UPDATE accounts SET balance = balance WHERE owner <> 'liar'".to_owned(),
        "UPDATE accounts SET balance = balance WHERE owner <> 'liar' RETURNING id".to_owned(),
        "COPY (SELECT id FROM accounts WHERE owner <> 'liar' ORDER BY id) TO STDOUT".to_owned(),
        format!("COPY (SELECT id FROM accounts WHERE id = {own} AND owner <> 'liar') TO STDOUT"),
        format!("BEGIN; SELECT owner FROM accounts WHERE id = {own} AND owner <> 'liar'; COMMIT"),
    ];
    let mut other = stage.client().await;
    for is_extended in [false, true] {
        for statement in statements.iter().filter(|statement| !is_extended || !statement.contains(';')) {
            let mut client = stage.client().await;
            let right = told(&mut client, statement, is_extended).await;
            assert!(!right.contains("E("), "{statement}: {right}");
            for (name, lie, is_fatal) in LIES {
                stage.cluster.cable(1).lie(Some(*lie));
                let told = told(&mut client, statement, is_extended).await;
                stage.cluster.cable(1).lie(None);
                // At a commit of several shards everything is rolled back, and may be repeated.
                let is_lost = told.contains("E(08006 ") || (statement.starts_with("UPDATE") && told.contains("E(40001 "));
                let is_refused = is_lost && (told.ends_with("Z(I)") || statement.starts_with("BEGIN"));
                // The rows of a join are asked for by texts of the proxy's own.
                let must_be_refused = *is_fatal && !statement.contains("JOIN");
                assert!(is_refused || (told == right && !must_be_refused), "{statement} with {name}: {told} for {right}");
                assert!(!told.contains("theirs"), "{statement} with {name}: {told}");
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
