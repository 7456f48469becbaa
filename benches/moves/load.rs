//! Updates by key at a steady pace, each with its time: who waits is seen to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Scene, Settings, percentile};

/// One update.
#[derive(Clone, Copy)]
struct Update {
    /// In the list of tables.
    table: usize,
    began: Instant,
    ms: f64,
}

pub struct Load {
    updates: Arc<Mutex<Vec<Update>>>,
    is_over: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

/// What the clients saw of one table in a while.
pub struct Seen {
    pub per_second: f64,
    pub p99_ms: f64,
    pub longest_ms: f64,
}

impl Load {
    /// The tables take turns; `rows`: of each, by id.
    pub async fn start(scene: &Scene, settings: &Settings, tables: &[&'static str], rows: usize) -> Self {
        let (updates, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut clients = JoinSet::new();
        let pace = Duration::from_secs_f64(settings.clients as f64 / settings.rate as f64);
        for number in 0..settings.clients {
            let client = scene.proxy.connect().await;
            let mut statements = Vec::new();
            for table in tables {
                statements.push(client.prepare(&format!("UPDATE {table} SET n = n + 1 WHERE id = $1")).await.expect("prepared"));
            }
            let (updates, is_over) = (Arc::clone(&updates), Arc::clone(&is_over));
            clients.spawn(async move {
                let mut ticks = interval(pace);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut state = number as u64 * 7919 + 1;
                while !is_over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let table = (state >> 33) as usize % statements.len();
                    let id = ((state >> 20) as usize % rows + 1) as i64;
                    let began = Instant::now();
                    let updated = client.execute(&statements[table], &[&id]).await.expect("no client sees an error");
                    assert_eq!(updated, 1);
                    updates.lock().push(Update { table, began, ms: began.elapsed().as_secs_f64() * 1000.0 });
                }
            });
        }
        Self { updates, is_over, clients }
    }

    /// Of the updates of a table that began between these.
    pub fn seen(&self, table: usize, from: Instant, to: Instant) -> Seen {
        let updates = self.updates.lock();
        let latencies: Vec<f64> = updates
            .iter()
            .filter(|update| update.table == table && (from..to).contains(&update.began))
            .map(|update| update.ms)
            .collect();
        Seen {
            per_second: latencies.len() as f64 / (to - from).as_secs_f64(),
            p99_ms: percentile(&latencies, 0.99),
            longest_ms: percentile(&latencies, 1.0),
        }
    }

    pub async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a client");
        }
    }
}
