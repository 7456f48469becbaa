//! Looks, slowly, whether the shards' tables are still alike, for as long as the proxy takes clients.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::session::{DriftLook, Gateway};

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut look = DriftLook::default();
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        gateway.look_for_drift(&mut look).await;
        pause = (pause * 2).min(PAUSE);
    }
}

/// Two looks soon after the start: what was changed meanwhile is known then.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(25);
