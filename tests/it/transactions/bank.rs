//! Money moves between accounts on different shards, through two proxies, while proxies and shards are killed: none appears and
//! none is lost, at no moment that anybody can see.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Ledger;
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient, volume};

/// In `make soak` for about two minutes.
const KILLS_IN_TEST: usize = 6;
const KILLS_IN_SOAK: usize = 70;
const CLIENTS_IN_TEST: usize = 8;
const CLIENTS_IN_SOAK: usize = 64;
/// Accounts that money moves between, on each shard.
const ACCOUNTS: usize = 10;
/// Before the next kill so many transfers are acknowledged, and so many totals read through each proxy.
const TRANSFERS_BETWEEN_KILLS: usize = 20;
const TOTALS_BETWEEN_KILLS: usize = 2;
/// Every account has this at the beginning.
const BALANCE: i64 = 100;

/// What clients and auditors know: where the proxies are just now, and between which accounts money moves.
struct Bank {
    proxies: Mutex<[SocketAddr; 2]>,
    /// Ascending: everybody locks in this order, so that nobody waits for each other.
    accounts: Vec<i64>,
    /// Transfers that were acknowledged.
    transfers: AtomicUsize,
    /// Totals that were read, through each proxy.
    totals: [AtomicUsize; 2],
    is_over: AtomicBool,
}

/// What one client did.
#[derive(Default)]
struct Record {
    acknowledged: Vec<String>,
    /// Told that nothing was applied, or COMMIT was never asked for.
    refused: Vec<String>,
    /// COMMIT was asked for and not answered.
    unknown: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_stays_the_same_under_kills() {
    let mut stage = Stage::on(Cluster::separate_servers(3).await, ProxyOptions::default()).await;
    Ledger::create(&stage).await;
    let mut other = Proxy::start(&stage.cluster, ProxyOptions::default());
    let mut accounts: Vec<i64> =
        (0..3).flat_map(|shard| (0..ACCOUNTS).map(move |nth| (shard, nth))).map(|(shard, nth)| stage.key(shard, nth)).collect();
    accounts.sort_unstable();
    let proxies = Mutex::new([stage.proxy.address(), other.address()]);
    let (transfers, totals) = (AtomicUsize::new(0), Default::default());
    let bank = Arc::new(Bank { proxies, accounts, transfers, totals, is_over: AtomicBool::new(false) });
    let clients: Vec<_> =
        (0..volume(CLIENTS_IN_TEST, CLIENTS_IN_SOAK)).map(|number| tokio::spawn(Arc::clone(&bank).transfer(number))).collect();
    let auditors: Vec<_> = (0..2).map(|proxy| tokio::spawn(Arc::clone(&bank).audit(proxy))).collect();
    for kill in 0..volume(KILLS_IN_TEST, KILLS_IN_SOAK) {
        bank.until_at_work().await;
        // Turn by turn: a shard, a proxy, a shard, the other proxy.
        match kill % 4 {
            1 => bank.replace(0, &mut stage.proxy, &stage.cluster),
            3 => bank.replace(1, &mut other, &stage.cluster),
            _ => {
                let server = stage.cluster.shard_server_mut(kill / 2 % 3);
                server.kill().expect("killed");
                server.start_again().expect("started again");
            }
        }
    }
    bank.until_at_work().await;
    bank.is_over.store(true, Ordering::Relaxed);
    let mut record = Record::default();
    for client in clients {
        let done = client.await.expect("no panic");
        record.acknowledged.extend(done.acknowledged);
        record.refused.extend(done.refused);
        record.unknown.extend(done.unknown);
    }
    for auditor in auditors {
        auditor.await.expect("the total is always the same");
    }
    Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
    for proxy in 0..2 {
        bank.check_total(proxy).await;
    }
    balances_are_those_of_the_ledger(&stage).await;
    record.compare(&ledger(&stage).await);
}

/// How many rows each transfer has in the ledger, over all shards.
async fn ledger(stage: &Stage) -> HashMap<String, usize> {
    let mut found = HashMap::<String, usize>::new();
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        for row in client.query("SELECT id::text FROM ledger", &[]).await.expect("rows") {
            *found.entry(row.get(0)).or_default() += 1;
        }
    }
    found
}

async fn balances_are_those_of_the_ledger(stage: &Stage) {
    for shard in 0..3 {
        let client = stage.cluster.connect_shard(shard).await;
        let wrong = "SELECT id, balance FROM accounts WHERE balance <> $1 + coalesce((SELECT sum(amount) FROM ledger WHERE account = accounts.id), 0)";
        assert!(
            client.query(wrong, &[&BALANCE]).await.expect("rows").is_empty(),
            "a balance on shard {shard} is not that of the ledger"
        );
    }
}

impl Record {
    fn compare(&self, ledger: &HashMap<String, usize>) {
        for id in &self.acknowledged {
            assert_eq!(ledger.get(id), Some(&2), "an acknowledged transfer is there, both sides");
        }
        for id in &self.refused {
            assert_eq!(ledger.get(id), None, "a transfer that was refused is not there");
        }
        for (id, count) in ledger {
            assert_eq!(*count, 2, "a transfer is whole or absent");
            assert!(self.acknowledged.contains(id) || self.unknown.contains(id), "somebody has asked for it");
        }
    }
}

impl Bank {
    /// The proxy is killed, and another one takes its place; clients find it.
    fn replace(&self, number: usize, proxy: &mut Proxy, cluster: &Cluster) {
        proxy.signal(Signal::KILL);
        *proxy = Proxy::start(cluster, ProxyOptions::default());
        self.proxies.lock().expect("not poisoned")[number] = proxy.address();
    }

    async fn connect(&self, proxy: usize) -> WireClient {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let address = self.proxies.lock().expect("not poisoned")[proxy];
            match WireClient::try_connect(address, &[("user", "postgres"), ("database", "app")]).await {
                Ok(client) => return client,
                Err(refusal) => assert!(Instant::now() < deadline, "not let in: {}", refusal.describe()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// One client, by turns of its number through the one proxy or the other.
    async fn transfer(self: Arc<Self>, number: usize) -> Record {
        let mut record = Record::default();
        let proxy = number % 2;
        let mut client = self.connect(proxy).await;
        let mut step = number * 7;
        while !self.is_over.load(Ordering::Relaxed) {
            step += 1;
            let count = self.accounts.len();
            let (a, b) = (self.accounts[step % count], self.accounts[(step * 11 + number) % count]);
            if a == b {
                continue;
            }
            let id = format!("00000000-0000-0000-{number:04}-{step:012}");
            match write(&mut client, &id, a.min(b), a.max(b)).await {
                Written::Ready => {}
                Written::Refused => {
                    record.refused.push(id);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                Written::ConnectionLost => {
                    record.refused.push(id);
                    client = self.connect(proxy).await;
                    continue;
                }
            }
            match commit(&mut client).await.as_deref() {
                Some("") => {
                    record.acknowledged.push(id);
                    self.transfers.fetch_add(1, Ordering::Relaxed);
                }
                Some("08007") => record.unknown.push(id),
                Some(_) => record.refused.push(id),
                None => {
                    record.unknown.push(id);
                    client = self.connect(proxy).await;
                }
            }
        }
        record
    }

    /// Until money moves, and the total is read through either proxy, since the last kill.
    async fn until_at_work(&self) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let before = (count(&self.transfers), self.totals.each_ref().map(count));
        let is_at_work = || {
            let totals = self.totals.each_ref().map(count);
            count(&self.transfers) >= before.0 + TRANSFERS_BETWEEN_KILLS
                && totals.iter().zip(before.1).all(|(now, before)| *now >= before + TOTALS_BETWEEN_KILLS)
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_at_work() {
            assert!(Instant::now() < deadline, "no transfers, or the total cannot be read");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reads the total again and again.
    async fn audit(self: Arc<Self>, proxy: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.totals[proxy].fetch_add(usize::from(self.is_total_right(proxy).await), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// When everything is back.
    async fn check_total(&self, proxy: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.is_total_right(proxy).await {
            assert!(Instant::now() < deadline, "the balances could not be read");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Row locks make what is read one moment of all shards. False: a shard or the proxy is away. Panics at any other total.
    async fn is_total_right(&self, proxy: usize) -> bool {
        let mut client = self.connect(proxy).await;
        let Some(balances) = self.balances(&mut client).await else { return false };
        assert_eq!(balances.iter().sum::<i64>(), BALANCE * i64::try_from(balances.len()).expect("few"), "{balances:?}");
        true
    }

    /// All in one packet. `None`: not all of them could be read.
    async fn balances(&self, client: &mut WireClient) -> Option<Vec<i64>> {
        client.query("BEGIN");
        for id in &self.accounts {
            client.query(&format!("SELECT balance FROM accounts WHERE id = {id} FOR UPDATE"));
        }
        let mut balances = Vec::with_capacity(self.accounts.len());
        for _ in 0..=self.accounts.len() {
            let answers = client.answers().await;
            if answers.last().is_none_or(|last| last.tag != b'Z') || answers.iter().any(|message| message.tag == b'E') {
                return None;
            }
            balances.extend(
                answers
                    .iter()
                    .filter(|message| message.tag == b'D')
                    .filter_map(|row| row.columns()[0].clone()?.parse::<i64>().ok()),
            );
        }
        drop(client.ask("ROLLBACK").await);
        (balances.len() == self.accounts.len()).then_some(balances)
    }
}

/// How far a transfer has come before COMMIT.
enum Written {
    Ready,
    Refused,
    ConnectionLost,
}

async fn write(client: &mut WireClient, id: &str, from: i64, to: i64) -> Written {
    let texts = [
        "BEGIN".to_owned(),
        format!("UPDATE accounts SET balance = balance - 1 WHERE id = {from}"),
        format!("UPDATE accounts SET balance = balance + 1 WHERE id = {to}"),
        format!("INSERT INTO ledger VALUES ('{id}', {from}, -1)"),
        format!("INSERT INTO ledger VALUES ('{id}', {to}, 1)"),
    ];
    for text in texts {
        let told = client.ask(&text).await;
        if !told.contains(" Z(") {
            return Written::ConnectionLost;
        }
        if told.contains("E(") {
            return if client.ask("ROLLBACK").await.contains(" Z(") { Written::Refused } else { Written::ConnectionLost };
        }
    }
    Written::Ready
}

/// The SQLSTATE that COMMIT was refused with, empty where it was not; `None`: the connection ended without a word.
async fn commit(client: &mut WireClient) -> Option<String> {
    client.query("COMMIT");
    client.flush().await;
    let mut told = None;
    while let Some(message) = client.next_within(Duration::from_secs(60)).await {
        match message.tag {
            b'C' => told = Some(String::new()),
            b'E' => told = Some(message.field(b'C')),
            b'Z' => break,
            _ => {}
        }
    }
    told
}
