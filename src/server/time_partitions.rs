//! Makes the next pieces of range tables by time ([`Control::make_time_partitions`](crate::declare::Control)): any proxy does, one at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = gateway.control.time_partitions_due() => {}
        }
        // Whoever stops in the middle leaves its claim, which runs out.
        let made = tokio::select! {
            () = stop.cancelled() => return,
            made = Box::pin(gateway.control.make_time_partitions()) => made,
        };
        match made {
            Ok(0) => {}
            Ok(pieces) => tracing::info!(pieces, "next pieces of tables by time made"),
            Err(error) => tracing::warn!(error = %error.message, "a next piece of a table by time was not made"),
        }
    }
}

/// Half of the shortest time that a piece may have.
const LOOK_EVERY: Duration = Duration::from_secs(30);
