//! Breaks deadlocks over several shards, for as long as the proxy runs, its drain included.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::execute::deadlock::Detector;
use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut detector = Detector::new(Arc::clone(&gateway.waits), Arc::clone(&gateway.map));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = gateway.waits.some() => {}
        }
        // All at once: a frozen shard, which takes no cancel request, keeps the victims on others from hearing theirs. One whose
        // statement has ended meanwhile is left alone.
        let victims = detector.round().await;
        let running = victims.iter().filter(|victim| gateway.waits.is_running(victim));
        join_all(running.map(|victim| gateway.cancels.cancel_session(victim.session))).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

const PAUSE: Duration = Duration::from_millis(200);
