//! No answer goes to the wrong client: two hundred clients share five connections to each shard, and every statement selects a
//! value that nobody else has ever sent. What comes back is held against exactly what was asked, message by message, while
//! clients cancel, leave in mid-result, make errors inside pipelines, flush without Sync and run into timeouts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::stage::Stage;
use crate::support::{ProxyOptions, WireClient, volume};

const CLIENTS: usize = 200;
const CONNECTIONS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_clients_on_five_connections_get_their_own_answers() {
    let settings = [
        ("pool.size_per_shard", CONNECTIONS.to_string()),
        ("pool.late_joiner_share", "0".to_owned()),
        ("pool.checkout_timeout_ms", "60000".to_owned()),
    ];
    let stage = Stage::start(2, ProxyOptions { settings: settings.into(), ..ProxyOptions::default() }).await;
    let seed: u64 = rand::random();
    let tally = Arc::new(Tally { wanted: volume(50_000, 1_000_000), ..Tally::default() });
    let keys = [0, 1].map(|shard| (0..20).map(|nth| stage.key(shard, nth)).collect::<Vec<_>>());
    let mut askers = JoinSet::new();
    for number in 0..CLIENTS {
        let asker = Asker {
            address: stage.proxy.address(),
            number,
            count: 0,
            random: StdRng::seed_from_u64(seed.wrapping_add(number as u64)),
            keys: keys[number % 2].clone(),
            tally: Arc::clone(&tally),
        };
        askers.spawn(asker.run());
    }
    while let Some(asked) = askers.join_next().await {
        assert!(asked.is_ok(), "seed {seed}");
    }
    println!("seed {seed}: {tally:?}");
    let (answers, kills, cancelled) =
        (tally.answers.load(Ordering::Relaxed), tally.kills.load(Ordering::Relaxed), tally.cancelled.load(Ordering::Relaxed));
    assert!(answers >= tally.wanted && kills > 0 && cancelled > 0, "seed {seed}: {tally:?}");
    stage.assert_log_is_clean();
    // Nobody holds anything any more, and what is left of the connections is within the budget.
    let mut client = stage.client().await;
    let pools = "SELECT shard, active, active + idle <= 5, waiting FROM shardgate.pools ORDER BY shard";
    let ended_at = Instant::now();
    // Who left last may not be gone yet.
    while !client.ask(pools).await.contains("D(shard0,0,t,0) D(shard1,0,t,0)") {
        assert!(ended_at.elapsed() < Duration::from_secs(5), "{}", client.ask(pools).await);
    }
}

#[derive(Debug, Default)]
struct Tally {
    wanted: usize,
    answers: AtomicUsize,
    kills: AtomicUsize,
    /// Statements that a cancel has reached.
    cancelled: AtomicUsize,
    timeouts: AtomicUsize,
}

/// One client after another under the same number.
struct Asker {
    address: SocketAddr,
    number: usize,
    count: usize,
    random: StdRng,
    /// Ids of `accounts`, all on one shard, so that a pipeline is one transaction there.
    keys: Vec<i64>,
    tally: Arc<Tally>,
}

impl Asker {
    async fn run(mut self) {
        let mut client = self.arrive().await;
        while self.tally.answers.load(Ordering::Relaxed) < self.tally.wanted {
            match self.random.random_range(0..100) {
                0..27 => self.pipeline(&mut client).await,
                27..45 => self.named(&mut client).await,
                45..60 => self.simple(&mut client).await,
                60..70 => self.error_in_pipeline(&mut client).await,
                70..80 => self.flush_without_sync(&mut client).await,
                80..88 => self.transaction(&mut client).await,
                88..91 => self.long_result(&mut client).await,
                91..92 => self.timeout(&mut client).await,
                92..99 => self.cancel(&mut client).await,
                _ => {
                    self.leave_in_mid_result(client).await;
                    client = self.arrive().await;
                }
            }
        }
    }

    async fn arrive(&self) -> WireClient {
        let name = format!("client{}", self.number);
        let mut client =
            WireClient::connect_with(self.address, &[("user", "postgres"), ("database", "app"), ("application_name", &name)]).await;
        client.parse("mine", &named_text(self.number)).sync();
        assert_eq!(client.transcript().await, "1 Z(I)");
        client
    }

    /// What nobody has sent before.
    fn nonce(&mut self) -> String {
        self.count += 1;
        format!("c{}n{}", self.number, self.count)
    }

    fn key(&mut self) -> i64 {
        self.keys[self.random.random_range(0..self.keys.len())]
    }

    fn got(&self, answers: usize) {
        self.tally.answers.fetch_add(answers, Ordering::Relaxed);
    }

    async fn expect(&self, client: &mut WireClient, expected: &str, answers: usize) {
        assert_eq!(client.transcript().await, expected, "client {}", self.number);
        self.got(answers);
    }

    fn put_ask(&mut self, client: &mut WireClient, told: &mut String) {
        let (nonce, key) = (self.nonce(), self.key());
        client.unnamed("SELECT $2::text FROM accounts WHERE id = $1", &[&key.to_string(), &nonce]);
        told.push_str(&format!("1 2 D({nonce}) C(SELECT 1) "));
    }

    async fn pipeline(&mut self, client: &mut WireClient) {
        let (length, mut told) = (self.random.random_range(1..40), String::new());
        for _ in 0..length {
            self.put_ask(client, &mut told);
        }
        client.sync();
        self.expect(client, &format!("{told}Z(I)"), length).await;
    }

    /// A prepared statement of the same name in every session, with a text of its own.
    async fn named(&mut self, client: &mut WireClient) {
        let (length, mut told) = (self.random.random_range(1..20), String::new());
        for _ in 0..length {
            let (nonce, key) = (self.nonce(), self.key());
            client.bind("", "mine", &[&nonce, &key.to_string()]).execute("", 0);
            told.push_str(&format!("2 D({nonce},s{}) C(SELECT 1) ", self.number));
        }
        client.sync();
        self.expect(client, &format!("{told}Z(I)"), length).await;
    }

    async fn simple(&mut self, client: &mut WireClient) {
        let (one, other, key) = (self.nonce(), self.nonce(), self.key());
        client.query(&format!(
            "SELECT '{one}' AS a FROM accounts WHERE id = {key}; SELECT '{other}' AS b FROM accounts WHERE id = {key}"
        ));
        self.expect(client, &format!("T(a) D({one}) C(SELECT 1) T(b) D({other}) C(SELECT 1) Z(I)"), 2).await;
    }

    async fn error_in_pipeline(&mut self, client: &mut WireClient) {
        let (before, after, mut told) = (self.random.random_range(0..4), self.random.random_range(0..4), String::new());
        for _ in 0..before {
            self.put_ask(client, &mut told);
        }
        let key = self.key().to_string();
        client.unnamed("SELECT 1 / (balance - $2) FROM accounts WHERE id = $1", &[&key, "100"]);
        told.push_str("1 2 E(22012 division by zero) ");
        for _ in 0..after {
            self.put_ask(client, &mut String::new());
        }
        client.sync();
        let mut next = String::new();
        self.put_ask(client, &mut next);
        client.sync();
        self.expect(client, &format!("{told}Z(I)"), before).await;
        self.expect(client, &format!("{next}Z(I)"), 1).await;
    }

    async fn flush_without_sync(&mut self, client: &mut WireClient) {
        let mut told = String::new();
        self.put_ask(client, &mut told);
        client.flush_message().flush().await;
        assert_eq!(client.some(4).await, told.trim_end(), "client {}", self.number);
        self.got(1);
        let mut more = String::new();
        self.put_ask(client, &mut more);
        client.sync();
        self.expect(client, &format!("{more}Z(I)"), 1).await;
    }

    async fn transaction(&mut self, client: &mut WireClient) {
        let (nonce, key) = (self.nonce(), self.key());
        client.query("BEGIN");
        client.query(&format!("SET LOCAL application_name = '{nonce}'"));
        client.query(&format!("SELECT current_setting('application_name') AS a FROM accounts WHERE id = {key}"));
        client.query("COMMIT");
        self.expect(client, "C(BEGIN) Z(T)", 0).await;
        self.expect(client, "C(SET) Z(T)", 0).await;
        self.expect(client, &format!("T(a) D({nonce}) C(SELECT 1) Z(T)"), 1).await;
        self.expect(client, "C(COMMIT) Z(I)", 0).await;
        client.query(&format!("SELECT current_setting('application_name') AS a FROM accounts WHERE id = {key}"));
        self.expect(client, &format!("T(a) D(client{}) C(SELECT 1) Z(I)", self.number), 1).await;
    }

    async fn long_result(&mut self, client: &mut WireClient) {
        let (nonce, key, rows) = (self.nonce(), self.key(), self.random.random_range(1..500));
        client.query(&format!("SELECT '{nonce}', g FROM accounts, generate_series(1, {rows}) g WHERE id = {key}"));
        let told: Vec<String> = (1..=rows).map(|row| format!("D({nonce},{row})")).collect();
        self.expect(client, &format!("T(?column?,g) {} C(SELECT {rows}) Z(I)", told.join(" ")), 1).await;
    }

    async fn timeout(&mut self, client: &mut WireClient) {
        let key = self.key();
        client.query("BEGIN");
        client.query("SET LOCAL statement_timeout = '2ms'");
        client.query(&format!("SELECT pg_sleep(10) FROM accounts WHERE id = {key}"));
        client.query("ROLLBACK");
        self.expect(client, "C(BEGIN) Z(T)", 0).await;
        self.expect(client, "C(SET) Z(T)", 0).await;
        let told = client.transcript().await;
        // One in some thousands of such a short limit is a "user request" by PostgreSQL's own account, where the machine is busy.
        let is_ended = ["statement timeout", "user request"]
            .iter()
            .any(|cause| told.ends_with(&format!("E(57014 canceling statement due to {cause}) Z(E)")));
        assert!(is_ended, "client {}: {told}", self.number);
        self.expect(client, "C(ROLLBACK) Z(I)", 0).await;
        self.tally.timeouts.fetch_add(1, Ordering::Relaxed);
        self.ask_one(client).await;
    }

    /// The cancel may come too late for its statement; it reaches nobody else's, and none of one's own that is sent after it
    /// has been delivered.
    async fn cancel(&mut self, client: &mut WireClient) {
        let (nonce, key, seconds) = (self.nonce(), self.key(), self.random.random_range(0.0..0.01));
        let is_in_transaction = self.random.random_bool(0.7);
        if is_in_transaction {
            // With a connection in hand the statement runs when the cancel comes; otherwise it mostly waits for one.
            client.query(&format!("BEGIN; SELECT FROM accounts WHERE id = {key}"));
            self.expect(client, "C(BEGIN) T() D() C(SELECT 1) Z(T)", 0).await;
        }
        client.query(&format!("SELECT '{nonce}' AS a, pg_sleep({seconds}) FROM accounts WHERE id = {key}"));
        if is_in_transaction {
            // The connection goes to somebody else while the cancel is on its way.
            client.query("COMMIT");
        }
        client.flush().await;
        let cancelling = tokio::spawn(client.cancel());
        let told = client.transcript().await;
        let (done, failed) = if is_in_transaction { ("T", "E") } else { ("I", "I") };
        if told.ends_with(&format!("E(57014 canceling statement due to user request) Z({failed})")) {
            self.tally.cancelled.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(told, format!("T(a,pg_sleep) D({nonce},) C(SELECT 1) Z({done})"), "client {}", self.number);
            self.got(1);
        }
        if is_in_transaction {
            let told = client.transcript().await;
            assert!(told == "C(COMMIT) Z(I)" || told == "C(ROLLBACK) Z(I)" || told.starts_with("E(57014 "), "{told}");
        }
        cancelling.await.expect("cancelled");
        self.ask_one(client).await;
    }

    async fn ask_one(&mut self, client: &mut WireClient) {
        let mut told = String::new();
        self.put_ask(client, &mut told);
        client.sync();
        self.expect(client, &format!("{told}Z(I)"), 1).await;
    }

    async fn leave_in_mid_result(&mut self, mut client: WireClient) {
        let (nonce, key) = (self.nonce(), self.key());
        let is_in_transaction = self.random.random_bool(0.3);
        if is_in_transaction {
            client.query("BEGIN");
        }
        client.query(&format!("SELECT '{nonce}', g FROM accounts, generate_series(1, 200000) g WHERE id = {key}"));
        client.flush().await;
        let mut rows = 0;
        while rows < 10 {
            let message = client.next().await.expect("a row");
            if message.tag == b'D' {
                rows += 1;
                assert_eq!(message.describe(), format!("D({nonce},{rows})"));
            }
        }
        self.tally.kills.fetch_add(1, Ordering::Relaxed);
        client.reset();
    }
}

fn named_text(number: usize) -> String {
    format!("SELECT $1::text, 's{number}' FROM accounts WHERE id = $2")
}
