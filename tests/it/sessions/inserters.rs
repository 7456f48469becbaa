//! Clients that insert rows into `orders` through two proxies until they are stopped: rows of VALUES, and rows that the shards
//! number. For tests that change how the table is numbered meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::support::{Proxy, WireClient};

pub struct Inserters {
    is_over: Arc<AtomicBool>,
    /// Each gives the number of its rounds.
    tasks: Vec<JoinHandle<u32>>,
}

impl Inserters {
    /// Four, by turns through both proxies. `tenants`: of the rows of VALUES, by the number of the round; where they lie on several
    /// shards, a change that locks the table can meet a deadlock. `may_be_told`: what else than success is no failure.
    pub fn start(proxies: [&Proxy; 2], tenants: fn(u32) -> [u32; 3], may_be_told: fn(&str) -> bool) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let addresses = proxies.iter().cycle().take(4).map(|proxy| proxy.address());
        let tasks = addresses
            .map(|address| {
                let is_over = Arc::clone(&is_over);
                tokio::spawn(async move {
                    let mut client = WireClient::connect(address).await;
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let [a, b, c] = tenants(count);
                        for text in [
                            format!("INSERT INTO orders (tenant) VALUES ({a}), ({b}), ({c})"),
                            format!("INSERT INTO orders (tenant) SELECT {count} FROM generate_series(1, 3)"),
                        ] {
                            let told = client.ask(&text).await;
                            assert!(told == "C(INSERT 0 3) Z(I)" || may_be_told(&told), "{text}: {told}");
                        }
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        Self { is_over, tasks }
    }

    /// For who waits for their rows.
    pub fn assert_none_has_failed(&self) {
        assert!(self.tasks.iter().all(|task| !task.is_finished()), "an inserter has failed");
    }

    pub async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            assert!(task.await.expect("an inserter") > 10);
        }
    }
}
