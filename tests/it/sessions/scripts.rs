//! Transactions drawn from a seed, statement by statement and message by message as plain PostgreSQL answers them: the time of a
//! transaction in texts and in defaults, over several shards and after savepoints; LISTEN and NOTIFY in one transaction; statements of
//! a hundred thousand characters, ten thousand parameters, seventy thousand literals.
//!
//! `SHARDGATE_SCRIPTS_SEED` makes one script again. What is refused ends its script on both sides, and is counted.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::stage::{Stage, succeed};
use crate::support::{Message, ProxyOptions, WireClient, volume};

const TABLES: &[&str] = &[
    "CREATE TABLE stamps (k bigint, n int, at timestamptz DEFAULT now(), day date DEFAULT current_date, PRIMARY KEY (k, n))",
    "CREATE TABLE log (n int, at timestamptz DEFAULT transaction_timestamp())",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_answered_as_by_one_postgresql() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    for table in TABLES {
        succeed(&mut stage.client().await, table).await;
        succeed(&mut stage.plain_client().await, table).await;
    }
    succeed(&mut stage.client().await, "SELECT shardgate.distribute_table('stamps', 'k')").await;
    cases(&stage).await;
    let asked_for = std::env::var("SHARDGATE_SCRIPTS_SEED").ok().map(|seed| seed.parse::<u64>().expect("a seed"));
    let seeds: Vec<u64> = match asked_for {
        Some(seed) => vec![seed],
        // The same in every `make test`.
        None => (0..volume(60, 1_500)).map(|number| volume(number, rand::random::<u32>().into())).collect(),
    };
    let (mut statements, mut refused) = (0, BTreeMap::<String, usize>::new());
    for seed in seeds {
        let mut script = Script::new(seed);
        let mut is_refused = false;
        let (mut proxy, mut plain) = (stage.client().await, stage.plain_client().await);
        for number in 0..script.length() {
            let step = script.step();
            step.put(&mut proxy);
            step.put(&mut plain);
            let (told, expected) = (told(&mut proxy).await, told(&mut plain).await);
            statements += 1;
            if let Some(reason) = told.split("E(0A000 ").nth(1) {
                *refused.entry(reason.chars().take(80).collect()).or_default() += 1;
                is_refused = true;
                break;
            }
            assert_eq!(told, expected, "seed {seed}, statement {number}: {:?}", script.told);
        }
        // Whatever is open is rolled back; and what only one side has done, as the other one has refused, is not looked at.
        for client in [&mut proxy, &mut plain] {
            client.ask("ROLLBACK").await;
            if is_refused {
                succeed(client, &script.undone()).await;
            }
        }
        let rows = "SELECT count(*), count(DISTINCT at), min(n), max(n), sum(k) FROM stamps";
        assert_eq!(proxy.ask(rows).await, plain.ask(rows).await, "seed {seed}: {:?}", script.told);
    }
    println!("{statements} statements; refused: {refused:?}");
    assert!(refused.values().sum::<usize>() * 10 < statements, "too much is refused: {refused:?}");
    stage.assert_log_is_clean();
}

/// What was once answered otherwise.
async fn cases(stage: &Stage) {
    let (mut proxy, mut plain) = (stage.client().await, stage.plain_client().await);
    for text in [
        // A row for each of the rows, where each shard has one row of VALUES.
        "INSERT INTO stamps (k, n) VALUES (1, generate_series(-3, -1)), (2, -5)",
        "INSERT INTO stamps (k, n) VALUES (1, -1), (2, unnest(ARRAY[-1, -2])), (3, -1)",
        "SELECT count(*) FROM stamps",
        // A number of rows that is rounded.
        "PREPARE rows (numeric) AS SELECT id FROM accounts ORDER BY id LIMIT $1",
        "EXECUTE rows(2.5)",
        "PREPARE later (float8) AS SELECT id FROM accounts ORDER BY id OFFSET $1",
        "EXECUTE later(87.5)",
        "PREPARE whole (int2) AS SELECT id FROM accounts ORDER BY id LIMIT $1",
        "EXECUTE whole(2)",
        "DECLARE c CURSOR FOR SELECT generate_series(1, 2), owner, count(*) FROM accounts GROUP BY owner ORDER BY owner, 1; FETCH 3 FROM c; FETCH 3 FROM c",
    ] {
        proxy.query(text);
        plain.query(text);
        let (told, expected) = (told(&mut proxy).await, told(&mut plain).await);
        assert!(told == expected || told.contains("E(0A000 "), "{text}: {told} for {expected}");
    }
}

/// Everything up to the end of the answer, with what notifications say.
async fn told(client: &mut WireClient) -> String {
    let answers = client.answers().await;
    answers.iter().filter(|message| message.tag != b'S').map(describe).collect::<Vec<_>>().join(" ")
}

fn describe(message: &Message) -> String {
    match message.tag {
        b'A' => format!("A({})", String::from_utf8_lossy(&message.body[4..]).replace('\0', "|")),
        _ => message.describe(),
    }
}

/// What is sent before the answer is waited for.
struct Step {
    texts: Vec<(String, Vec<String>)>,
    is_extended: bool,
}

impl Step {
    fn put(&self, client: &mut WireClient) {
        for (text, values) in &self.texts {
            match self.is_extended {
                true => client.unnamed(text, &values.iter().map(String::as_str).collect::<Vec<_>>()),
                false => client.query(text),
            };
        }
        if self.is_extended {
            client.sync();
        }
    }
}

struct Script {
    random: StdRng,
    seed: u64,
    /// Of the next row: no two scripts make the same.
    row: u64,
    is_in_transaction: bool,
    told: Vec<String>,
}

impl Script {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), seed, row: 0, is_in_transaction: false, told: Vec::new() }
    }

    fn length(&mut self) -> usize {
        self.random.random_range(6..16)
    }

    /// Takes its rows back.
    fn undone(&self) -> String {
        let (from, to) = (self.seed % 1_000_000 * 1_000, self.seed % 1_000_000 * 1_000 + 999);
        format!("DELETE FROM stamps WHERE n BETWEEN {from} AND {to}; DELETE FROM log WHERE n BETWEEN {from} AND {to}")
    }

    /// One statement, or several in one text or one pipeline.
    fn step(&mut self) -> Step {
        let is_extended = self.random.random_bool(0.5);
        let count = if self.random.random_bool(0.3) { self.random.random_range(2..5) } else { 1 };
        let mut texts: Vec<(String, Vec<String>)> = (0..count).map(|_| self.statement(is_extended)).collect();
        if !is_extended {
            let whole: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
            texts = vec![(whole.join("; "), Vec::new())];
        }
        self.told.extend(texts.iter().map(|(text, _)| text.chars().take(200).collect::<String>()));
        Step { texts, is_extended }
    }

    fn statement(&mut self, is_extended: bool) -> (String, Vec<String>) {
        let key = self.random.random_range(1..60);
        self.row += 1;
        let (n, batch) = (self.row, self.seed % 1_000_000);
        let n = i64::try_from(batch * 1_000 + n).expect("small");
        let from = batch * 1_000;
        let text = match self.random.random_range(0..27) {
            0 | 1 if !self.is_in_transaction => {
                self.is_in_transaction = true;
                "BEGIN".to_owned()
            }
            0 | 1 => {
                self.is_in_transaction = false;
                (if self.random.random_bool(0.7) { "COMMIT" } else { "ROLLBACK" }).to_owned()
            }
            2 if self.is_in_transaction => "SAVEPOINT s".to_owned(),
            3 if self.is_in_transaction => "ROLLBACK TO s".to_owned(),
            4 if self.is_in_transaction => "RELEASE s".to_owned(),
            2..=5 => format!("INSERT INTO stamps VALUES ({key}, {n}, now())"),
            6 | 7 => format!("INSERT INTO stamps (k, n) VALUES ({key}, {n})"),
            8 => format!("INSERT INTO stamps (k, n) VALUES ({key}, {n}), ({}, {n}), ({}, {n})", key + 1, key + 2),
            9 => format!("INSERT INTO log (n) VALUES ({n})"),
            10 => format!("UPDATE stamps SET at = now() WHERE k = {key} AND n > {from}"),
            11 => format!("UPDATE stamps SET at = current_timestamp WHERE n > {from} AND n < {n}"),
            12 => format!("SELECT count(*), count(DISTINCT at) FROM stamps WHERE n > {from} AND n <= {n}"),
            13 => format!("SELECT count(*) FROM stamps WHERE k = {key} AND at = now()"),
            14 => format!("SELECT n FROM stamps WHERE n > {from} AND n <= {n} AND at = now() ORDER BY n, k"),
            15 => "SELECT now() = transaction_timestamp(), current_timestamp = now()".to_owned(),
            16 => format!("SELECT count(*) FROM log l JOIN stamps s ON s.at = l.at WHERE l.n > {from} AND l.n <= {n}"),
            17 => format!("DELETE FROM stamps WHERE n > {from} AND n <= {n} AND at < now() - interval '1 day'"),
            18 => "LISTEN news".to_owned(),
            19 => "UNLISTEN news".to_owned(),
            20 => format!("NOTIFY news, '{n}'"),
            21 => format!("SELECT pg_notify('news', '{n}')"),
            22 => "SELECT pg_listening_channels()".to_owned(),
            23 => "SELECT 1 / (n - n) FROM notes UNION ALL SELECT 1 / 0".to_owned(),
            24 => format!("SELECT count(*) FROM stamps /* {} */ WHERE n = {n}", "x".repeat(100_000)),
            25 if is_extended && self.random.random_bool(0.3) => return many_parameters(key),
            26 if self.random.random_bool(0.1) => many_literals(),
            _ => format!("SELECT k, n FROM stamps WHERE k IN ({key}, {}) AND n > {from} ORDER BY k, n", key + 1),
        };
        (text, Vec::new())
    }
}

fn many_parameters(key: i64) -> (String, Vec<String>) {
    let places = (1..=10_000).map(|number| format!("${number}")).collect::<Vec<_>>().join(",");
    let values = (0..10_000).map(|number| (key + number).to_string()).collect();
    (format!("SELECT count(*) FROM accounts WHERE id IN ({places})"), values)
}

fn many_literals() -> String {
    let rows = (0..35_000).map(|number| format!("({number},-1)")).collect::<Vec<_>>().join(",");
    format!("SELECT count(*) FROM accounts a JOIN (VALUES {rows}) v (id, x) ON v.id = a.id")
}
