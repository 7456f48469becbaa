//! Writers on several proxies that remember what was acknowledged: rows of one shard, and pairs of rows that are written together, by
//! a commit over two shards where their keys say so.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::sessions::Stage;
use crate::support::WireClient;

pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    writers: Vec<JoinHandle<Written>>,
    began_at: Instant,
}

#[derive(Default)]
pub struct Written {
    /// Ids whose COMMIT the client has seen.
    pub acknowledged: Vec<i64>,
    /// First ids of pairs that were sent, whatever became of them.
    pairs: Vec<i64>,
    pub errors: Vec<String>,
    /// The ids of what got an error.
    pub failed: Vec<Vec<i64>>,
    /// Acknowledged statements and transactions.
    pub per_second: f64,
}

impl Load {
    /// Two writers on each proxy. `number`: which load of the test it is.
    pub fn start(proxies: &[SocketAddr], number: i64) -> Self {
        Self::of_writers(proxies, number, 2)
    }

    /// So many on each proxy.
    pub fn of_writers(proxies: &[SocketAddr], number: i64, each: usize) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let firsts = (1..).map(|writer| FIRST_ID * (number * 100 + writer));
        let writers = proxies.iter().cycle().take(proxies.len() * each).zip(firsts).map(|(address, first)| {
            let (stop, acknowledged, address) = (Arc::clone(&stop), Arc::clone(&acknowledged), *address);
            tokio::spawn(async move { write(address, first, &stop, &acknowledged).await })
        });
        Self { writers: writers.collect(), stop, acknowledged, began_at: Instant::now() }
    }

    /// Waits until so many more writes are acknowledged.
    pub async fn until_written(&self, count: usize) {
        let (wanted, began_at) = (self.acknowledged.load(Ordering::Relaxed) + count, Instant::now());
        while self.acknowledged.load(Ordering::Relaxed) < wanted {
            assert!(began_at.elapsed() < Duration::from_secs(30), "the writers do not go on");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends the writers; what was acknowledged is there once and where its key leads to, pairs are whole.
    pub async fn end(self, stage: &Stage) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let (count, seconds) = (self.acknowledged.load(Ordering::Relaxed), self.began_at.elapsed().as_secs_f64());
        let mut all = Written { per_second: f64::from(u32::try_from(count).unwrap_or(0)) / seconds, ..Written::default() };
        println!("{count} acknowledged writes in {seconds:.1} s, {:.0} a second", all.per_second);
        for writer in self.writers {
            let written = writer.await.expect("no panic");
            all.acknowledged.extend(written.acknowledged);
            all.pairs.extend(written.pairs);
            all.errors.extend(written.errors);
            all.failed.extend(written.failed);
        }
        let stored = stored(stage).await;
        let lost: Vec<&i64> = all.acknowledged.iter().filter(|id| !stored.contains(id)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let halves: Vec<&i64> = all.pairs.iter().filter(|id| stored.contains(id) != stored.contains(&(**id + 1))).collect();
        assert!(halves.is_empty(), "half of a pair: {halves:?}");
        // By its key: where it is looked for, as it was written.
        let mut client = stage.client().await;
        for id in all.acknowledged.iter().step_by(all.acknowledged.len() / KEYS_READ + 1) {
            let sql = format!("SELECT owner, balance FROM accounts WHERE id = {id}");
            assert_eq!(client.row(&sql).await, ["w", "1"], "{id}");
        }
        all
    }
}

impl Written {
    /// Of the kinds that docs/failures.md names.
    pub fn assert_errors_are_named(&self) {
        let is_named = |told: &String| {
            ["57P01", "57P03", "08006", "08007", "25P02", "40001"].iter().any(|code| told.contains(&format!("E({code} ")))
        };
        let unexpected: Vec<&String> = self.errors.iter().filter(|told| !is_named(told) && !told.ends_with("end")).collect();
        assert!(unexpected.is_empty(), "{unexpected:#?}");
    }

    /// Whatever failed has a key of that shard.
    pub async fn assert_errors_are_of(&self, stage: &Stage, shard: &str) {
        let mut client = stage.client().await;
        for (ids, told) in self.failed.iter().zip(&self.errors) {
            let mut shards = Vec::new();
            for id in ids {
                shards.push(client.value(&format!("SELECT shard FROM shardgate.locate('accounts', '{id}')")).await);
            }
            assert!(shards.iter().any(|found| found == shard), "{shards:?}: {told}");
        }
    }
}

async fn stored(stage: &Stage) -> BTreeSet<i64> {
    let mut stored = BTreeSet::new();
    for shard in 0..stage.cluster.shard_count() {
        let client = stage.cluster.connect_shard(shard).await;
        let rows = client.query("SELECT id FROM accounts WHERE id >= $1", &[&FIRST_ID]).await.expect("rows");
        for id in rows.iter().map(|row| row.get::<_, i64>(0)) {
            assert!(stored.insert(id), "{id} is on two shards");
        }
        let other = "SELECT count(*) FROM accounts WHERE id >= $1 AND (owner, balance) IS DISTINCT FROM ('w', 1)";
        let other: i64 = client.query_one(other, &[&FIRST_ID]).await.expect("a count").get(0);
        assert_eq!(other, 0, "rows of shard {shard} that nobody has written so");
    }
    stored
}

async fn write(address: SocketAddr, first: i64, stop: &AtomicBool, acknowledged: &AtomicUsize) -> Written {
    let mut written = Written::default();
    let mut client = WireClient::connect(address).await;
    for id in (first..).step_by(2) {
        if stop.load(Ordering::Relaxed) {
            return written;
        }
        let is_pair = id % 3 == 0;
        let sql = if is_pair {
            written.pairs.push(id);
            format!("BEGIN; INSERT INTO accounts VALUES ({id}, 'w', 1); INSERT INTO accounts VALUES ({}, 'w', 1); COMMIT", id + 1)
        } else {
            format!("INSERT INTO accounts VALUES ({id}, 'w', 1)")
        };
        let told = ask(&mut client, &sql).await;
        let is_done = if is_pair { told.ends_with("C(COMMIT) Z(I)") } else { told == "C(INSERT 0 1) Z(I)" };
        if is_done {
            written.acknowledged.extend(if is_pair { vec![id, id + 1] } else { vec![id] });
            acknowledged.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if told.ends_with("end") {
            client = WireClient::connect(address).await;
        } else if told.ends_with("Z(E)") {
            client.ask("ROLLBACK").await;
        }
        written.errors.push(told);
        written.failed.push(if is_pair { vec![id, id + 1] } else { vec![id] });
    }
    written
}

/// As [`WireClient::ask`], for as long as a statement may wait for a shard.
async fn ask(client: &mut WireClient, sql: &str) -> String {
    client.query(sql).flush().await;
    let mut told = Vec::new();
    loop {
        let Some(message) = client.next_within(PATIENCE).await else {
            told.push("end".to_owned());
            return told.join(" ");
        };
        told.extend((message.tag != b'S').then(|| message.describe()));
        if message.tag == b'Z' {
            return told.join(" ");
        }
    }
}

const KEYS_READ: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);
/// No other row has an id as large.
const FIRST_ID: i64 = 1_000_000;
