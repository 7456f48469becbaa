//! Keeps finishing what commits over several shards have left, for as long as the proxy runs, its drain included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use tokio_util::sync::CancellationToken;

use crate::execute::recovery::Recovery;

pub(super) async fn run(recovery: Arc<Recovery>, stop: CancellationToken) {
    let mut collected_at = Instant::now();
    loop {
        // Proxies that started at one time do not stay in step.
        let pause = ROUND_INTERVAL.mul_f64(rand::rng().random_range(0.8..1.2));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let finished = Box::pin(recovery.round()).await;
        if finished > 0 {
            tracing::info!(finished, "prepared transactions recovered");
        }
        if collected_at.elapsed() >= COLLECT_INTERVAL || recovery.collects_in_every_round() {
            collected_at = Instant::now();
            let removed = Box::pin(recovery.collect()).await;
            tracing::debug!(removed, "old decisions removed");
        }
    }
}

const ROUND_INTERVAL: Duration = Duration::from_secs(2);
const COLLECT_INTERVAL: Duration = Duration::from_secs(600);
