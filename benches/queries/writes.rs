//! What writing on several shards costs: COMMIT of two shards against the same steps by hand, and COPY through the proxy against
//! the shards' own.

use std::collections::HashSet;
use std::time::Instant;

use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::Client;

use crate::report::{median, print_table};
use crate::support::{Cluster, Proxy, ProxyOptions};
use crate::{SERVER_SETTINGS, distribute_items};

pub async fn run(rounds: usize) {
    let cluster = Cluster::start_with(SHARDS, SERVER_SETTINGS).await;
    let settings = vec![("log.level", "warn".to_owned())];
    let proxy = Proxy::start(&cluster, ProxyOptions { settings, ..Default::default() });
    let client = proxy.connect().await;
    distribute_items(&client, &cluster).await;
    let mut direct = Vec::new();
    for shard in 0..SHARDS {
        direct.push(cluster.connect_shard(shard).await);
    }
    commits(&client, &direct).await;
    copies(&client, &direct, rounds).await;
}

/// A transaction of two updates: the time from COMMIT to its answer. By hand: PREPARE TRANSACTION on the one shard, COMMIT on the
/// other, COMMIT PREPARED. In turn, so that both see the same machine.
async fn commits(client: &Client, direct: &[Client]) {
    let rows: String = (1..=KEYS).map(|key| format!("({key}, 0, '')")).collect::<Vec<_>>().join(", ");
    client.batch_execute(&format!("INSERT INTO items VALUES {rows}")).await.expect("insert");
    let [a, b, ..] = direct else { panic!("two shards") };
    let (keys_a, keys_b) = (keys_of(a).await, keys_of(b).await);
    let (mut by_hand, mut prepares, mut proxied, mut one_direct, mut one_proxied) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for turn in 0..COMMITS {
        let (key_a, key_b) = (keys_a[turn % keys_a.len()], keys_b[turn % keys_b.len()]);
        let update = |key: i64| format!("UPDATE items SET kind = kind + 1 WHERE id = {key}");

        client.batch_execute(&format!("BEGIN; {}; {}", update(key_a), update(key_b))).await.expect("two updates");
        proxied.push(timed(client, "COMMIT").await);

        a.batch_execute(&format!("BEGIN; {}", update(key_a))).await.expect("update");
        b.batch_execute(&format!("BEGIN; {}", update(key_b))).await.expect("update");
        let prepare = timed(a, "PREPARE TRANSACTION 'by_hand'").await;
        let commit = timed(b, "COMMIT").await;
        by_hand.push(prepare + commit + timed(a, "COMMIT PREPARED 'by_hand'").await);
        prepares.push(prepare + commit);

        client.batch_execute(&format!("BEGIN; {}", update(key_a))).await.expect("update");
        one_proxied.push(timed(client, "COMMIT").await);
        a.batch_execute(&format!("BEGIN; {}", update(key_a))).await.expect("update");
        one_direct.push(timed(a, "COMMIT").await);
    }
    println!("\nCOMMIT, from the request to its answer: median of {COMMITS}, no flushing to disk");
    let line = |name: &str, direct: Vec<f64>, proxied: Vec<f64>| {
        let (direct, proxied) = (median(direct), median(proxied));
        vec![name.to_owned(), format!("{direct:.0}"), format!("{proxied:.0}"), format!("{:.2}", proxied / direct)]
    };
    let rows = [
        line("one shard", one_direct, one_proxied),
        line("two shards: PREPARE, COMMIT, COMMIT PREPARED", by_hand, proxied),
        vec!["of that PREPARE and COMMIT".to_owned(), format!("{:.0}", median(prepares)), String::new(), String::new()],
    ];
    print_table(&["", "by hand, µs", "proxy, µs", "times"], rows.into_iter());
}

/// The same rows: split beforehand and copied into all shards at once, and copied through the proxy.
async fn copies(client: &Client, direct: &[Client], rounds: usize) {
    client.batch_execute("TRUNCATE items").await.expect("truncate");
    let rows: Vec<String> =
        (1..=COPIED).map(|id| format!("{id}\t{}\tthe body of the row with the number {id}\n", id % 100)).collect();
    let whole = pieces(rows.iter().map(String::as_str));
    copy(client, whole.clone()).await;
    let mut split = Vec::new();
    for shard in direct {
        let keys: HashSet<i64> = keys_of(shard).await.into_iter().collect();
        let own = rows.iter().zip(1..).filter(|(_, id)| keys.contains(id)).map(|(row, _)| row.as_str());
        split.push(pieces(own));
    }
    let (mut by_hand, mut proxied) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        client.batch_execute("TRUNCATE items").await.expect("truncate");
        let began_at = Instant::now();
        futures::future::join_all(direct.iter().zip(&split).map(|(shard, rows)| copy(shard, rows.clone()))).await;
        by_hand.push(began_at.elapsed().as_secs_f64());
        client.batch_execute("TRUNCATE items").await.expect("truncate");
        let began_at = Instant::now();
        copy(client, whole.clone()).await;
        proxied.push(began_at.elapsed().as_secs_f64());
    }
    let per_second = |seconds: f64| format!("{:.0}", COPIED as f64 / seconds / 1000.0);
    let (by_hand, proxied) = (median(by_hand), median(proxied));
    let speed = by_hand / proxied;
    let goal = if speed >= COPY_GOAL { "" } else { " missed" };
    println!("\nCOPY FROM STDIN of {COPIED} rows over three shards: median of {rounds} rounds");
    let row = vec![per_second(by_hand), per_second(proxied), format!("{speed:.2}"), format!("{COPY_GOAL}{goal}")];
    print_table(&["split by hand, 1000 rows/s", "proxy, 1000 rows/s", "of it", "goal"], std::iter::once(row));
}

async fn keys_of(shard: &Client) -> Vec<i64> {
    let rows = shard.query("SELECT id FROM items ORDER BY id", &[]).await.expect("keys");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn timed(client: &Client, statement: &str) -> f64 {
    let began_at = Instant::now();
    client.batch_execute(statement).await.expect(statement);
    began_at.elapsed().as_secs_f64() * 1_000_000.0
}

async fn copy(client: &Client, rows: Vec<Bytes>) {
    let sink = client.copy_in("COPY items FROM STDIN").await.expect("COPY");
    let mut sink = std::pin::pin!(sink);
    for piece in rows {
        sink.feed(piece).await.expect("rows");
    }
    sink.finish().await.expect("the end of COPY");
}

fn pieces<'r>(rows: impl Iterator<Item = &'r str>) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for row in rows {
        piece.push_str(row);
        if piece.len() > PIECE_BYTES {
            pieces.push(Bytes::from(std::mem::take(&mut piece)));
        }
    }
    pieces.push(Bytes::from(piece));
    pieces
}

const SHARDS: usize = 3;
const KEYS: i64 = 1000;
const COMMITS: usize = 1000;
const COPIED: usize = 600_000;
/// As psql sends it.
const PIECE_BYTES: usize = 8192;
const COPY_GOAL: f64 = 0.8;
