//! Keeps the picture of the home shard's schema true, and the pools in order.
//!
//! A change through a proxy is announced by the map's epoch; a change made directly on the home shard is found by a slow look.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::build::IDLE_CHECK;
use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut epochs = gateway.map.subscribe();
    let mut tables_version = gateway.map.load().tables_version;
    let mut last_look = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = epochs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(IDLE_CHECK) => {}
        }
        gateway.map.lease().set_clients(gateway.clients.len());
        let now = Instant::now();
        for pool in gateway.pools.all() {
            pool.close_idle(now);
        }
        let current = gateway.map.load().tables_version;
        if current == tables_version && now.duration_since(last_look) < SLOW_LOOK {
            continue;
        }
        if current != tables_version {
            let snapshot = gateway.map.snapshot();
            gateway.keep_pools_of(&snapshot);
        }
        (tables_version, last_look) = (current, now);
        if let Err(error) = gateway.refresh_catalog().await {
            tracing::debug!(%error, "the home shard's schema could not be read");
        }
    }
}

/// A change of the schema behind the proxy's back is seen within this.
const SLOW_LOOK: Duration = Duration::from_secs(10);
