//! Breaks deadlocks over several shards, for as long as the proxy runs, its drain included.

use std::sync::Arc;
use std::time::Duration;

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
        for session in detector.round().await {
            gateway.cancels.cancel_session(session).await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

const PAUSE: Duration = Duration::from_millis(200);
