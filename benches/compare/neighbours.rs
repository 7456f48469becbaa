//! How long `SELECT 1` waits beside a session whose statements are long pure work for the proxy: texts of megabytes, keys by the hundred
//! thousand.
//!
//! The neighbours are as many as there are worker threads and more, so that some share the working session's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::report::print_table;
use crate::targets::Target;

pub async fn print(targets: &[Target]) {
    println!("\nSELECT 1 beside long work of another session: {NEIGHBOURS} neighbours, {SECONDS} s each");
    let mut rows = Vec::new();
    for target in targets.iter().filter(|target| target.name.starts_with("Shardgate")).take(1) {
        for (name, text) in works() {
            rows.push(row(&format!("{}, {name}", target.name), target, text).await);
        }
    }
    print_table(&["", "statements", "longest work, ms", "p50 ms", "p99 ms", "most, ms"], rows.into_iter());
}

/// By what the table calls them; none: nobody works.
fn works() -> [(&'static str, Option<String>); 4] {
    let numbers = (1..=100_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let rows = (1..=100_000).map(|number| format!("(-{number},0)")).collect::<Vec<_>>().join(",");
    [
        ("nobody works", None),
        ("a literal of 10 MB", Some(format!("SELECT length('{}')", "x".repeat(10_000_000)))),
        ("100,000 keys of IN", Some(format!("SELECT count(*) FROM pgbench_accounts WHERE aid IN ({numbers})"))),
        ("100,000 rows of VALUES", Some(format!("BEGIN; INSERT INTO pgbench_accounts (aid, bid) VALUES {rows}; ROLLBACK"))),
    ]
}

async fn row(name: &str, target: &Target, text: Option<String>) -> Vec<String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let working = match text {
        None => None,
        Some(text) => {
            let (client, is_over) = (client(target).await, Arc::clone(&is_over));
            Some(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    client.batch_execute(&text).await.expect("long work");
                    longest = longest.max(begun.elapsed());
                }
                longest
            }))
        }
    };
    let mut asking = Vec::new();
    for _ in 0..NEIGHBOURS {
        let (client, is_over) = (client(target).await, Arc::clone(&is_over));
        asking.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.batch_execute("SELECT 1").await.expect("an answer");
                waits.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
            waits
        }));
    }
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for one in asking {
        waits.extend(one.await.expect("no panic"));
    }
    let longest = match working {
        Some(working) => format!("{:.0}", working.await.expect("no panic").as_secs_f64() * 1000.0),
        None => String::new(),
    };
    waits.sort_by(f64::total_cmp);
    let at = |share: f64| waits.get(((waits.len() as f64 * share) as usize).min(waits.len().saturating_sub(1)));
    let figures = [0.5, 0.99, 1.0].map(|share| at(share).map_or_else(String::new, |wait| format!("{wait:.2}")));
    [vec![name.to_owned(), waits.len().to_string(), longest], figures.to_vec()].concat()
}

async fn client(target: &Target) -> Client {
    let conninfo = format!("host=127.0.0.1 port={} user=postgres dbname={}", target.port, target.database);
    let (client, connection) = tokio_postgres::connect(&conninfo, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

const NEIGHBOURS: usize = 8;
const SECONDS: u64 = 6;
