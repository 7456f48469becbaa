//! Looks every second whether the clients of statements that run are still there.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => gateway.cancels.look_for_clients(),
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
