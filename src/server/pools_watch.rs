//! Keeps the pools in order: idle connections that have ended, or are too old, go; a shard whose connections are lost is tried at
//! once, so that the log and the metrics say whether it is there, and the next statement finds out nothing new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    loop {
        let pools = gateway.pools.all();
        let is_any_away = pools.iter().any(|pool| !pool.is_up());
        drop(pools);
        tokio::select! {
            () = stop.cancelled() => return,
            () = gateway.pools.disturbed() => {}
            () = tokio::time::sleep(if is_any_away { AWAY_CHECK } else { IDLE_CHECK }) => {}
        }
        let now = Instant::now();
        let pools = gateway.pools.all();
        pools.iter().for_each(|pool| pool.close_idle(now));
        gateway.pools.share_suspicion();
        tokio::select! {
            () = stop.cancelled() => return,
            // Each within the time that it may take to connect.
            _ = join_all(pools.iter().map(|pool| pool.probe())) => {}
        }
    }
}

/// How often connections that have been idle too long are looked for.
const IDLE_CHECK: Duration = Duration::from_secs(1);
/// How often a shard that is away is tried.
const AWAY_CHECK: Duration = Duration::from_millis(250);
