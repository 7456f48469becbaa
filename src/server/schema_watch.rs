//! Keeps the picture of the home shard's schema true, and the pools those of the shards as the map has them.
//!
//! A change through a proxy is announced by the map: read here, so that a statement seldom has to wait for it. A change made
//! directly on the home shard is found by a slow look. What a lost proxy has left open is closed. All of that may take long; a shard whose
//! address or state has changed gets no statement by the one before, so its pools are retired beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let following = async { tokio::join!(Box::pin(follow_schema(&gateway)), retire_pools(&gateway)) };
    tokio::select! {
        () = stop.cancelled() => {}
        ((), ()) = following => {}
    }
}

/// Ends with the map.
async fn retire_pools(gateway: &Gateway) {
    let mut epochs = gateway.map.subscribe();
    let mut known = None;
    while epochs.changed().await.is_ok() {
        let snapshot = gateway.map.snapshot();
        if known.replace(snapshot.tables_version) != Some(snapshot.tables_version) {
            gateway.keep_pools_of(&snapshot);
        }
    }
}

/// Ends with the map.
async fn follow_schema(gateway: &Gateway) {
    let mut epochs = gateway.map.subscribe();
    let versions = || (gateway.map.load().tables_version, gateway.map.load().schema_version);
    let mut known = versions();
    let mut last_look = Instant::now();
    // Statements go by the schema that is known until then.
    let mut is_unread = false;
    loop {
        tokio::select! {
            changed = epochs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        gateway.map.lease().set_clients(gateway.clients.len());
        let now = Instant::now();
        let current = versions();
        if current == known && !is_unread && now.duration_since(last_look) < SLOW_LOOK {
            continue;
        }
        if let Err(error) = gateway.control.learn_identities().await {
            tracing::debug!(%error, "the identity of a shard is not known yet");
        }
        let has_changed = current != known || is_unread;
        (known, last_look) = (current, now);
        let read = if has_changed { gateway.follow_schema().await } else { gateway.refresh_catalog().await };
        is_unread = read.is_err();
        if let Err(error) = read {
            tracing::debug!(%error, "the home shard's schema could not be read");
        } else if let Err(error) = gateway.close_abandoned_changes().await {
            tracing::debug!(%error, "schema changes that nobody works on are left open");
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A change of the schema behind the proxy's back is seen within this, and one that nobody works on.
const SLOW_LOOK: Duration = Duration::from_secs(10);
