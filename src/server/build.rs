//! Makes what all sessions share, in the order in which it depends on each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::backend::{Backoff, ConnectionLimits, PoolLimits, Pools};
use crate::config::{BackendUser, Config};
use crate::declare::Control;
use crate::session::Gateway;
use crate::shardmap::{MapOptions, ProxyId, ShardMap, StoreError};
use crate::telemetry::{Counters, Metrics};

pub(super) async fn gateway(config: &Arc<Config>, runtimes: usize, metrics: &Metrics) -> anyhow::Result<Arc<Gateway>> {
    let proxy_id = ProxyId::random();
    let connect = || {
        ShardMap::connect(MapOptions {
            url: config.map.url.reveal().to_owned(),
            migrate: config.map.migrate,
            lookup_cache_entries: config.map.lookup_cache_entries,
            poll_interval: config.map.poll_interval(),
            proxy_id,
            address: config.listen.address.to_string(),
        })
    };
    let map = patiently(connect).await.context("the shard map could not be loaded (map.url)")?;
    let client_roles = match config.auth.backend_user {
        BackendUser::Client => config.auth.users.iter().map(|user| user.name.clone()).collect(),
        BackendUser::Shard => Vec::new(),
    };
    let control = Control::new(Arc::clone(&map), client_roles)
        .with_grace_ms(config.moves.grace_ms)
        .with_rebalancer(super::moves::rebalancer(config.map.url.reveal().to_owned()));
    let cluster = patiently(|| map.store().cluster_id()).await.context("the cluster's id could not be read (map.url)")?;
    let pools = Pools::new(pool_limits(config), runtimes, metrics.clone(), Arc::clone(map.lease().membership()));
    let gateway = Arc::new(Gateway::new(Arc::clone(config), map, pools, Arc::new(control), Counters::new(metrics), cluster));
    // While the home shard is away its schema is read later; clients get an error until then.
    if let Err(error) = gateway.refresh_catalog().await {
        tracing::warn!(%error, "the home shard's schema could not be read yet");
    }
    Ok(gateway)
}

/// Proxy and map database are often started together: one that does not answer yet is asked again.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let deadline = Instant::now() + MAP_PATIENCE;
    loop {
        match ask().await {
            Err(error @ StoreError::Unreachable(_)) if Instant::now() < deadline => {
                tracing::warn!(%error, "waiting for the map database");
                tokio::time::sleep(MAP_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

fn pool_limits(config: &Config) -> PoolLimits {
    let pool = &config.pool;
    let size = pool.size_per_shard as usize;
    PoolLimits {
        size,
        late_joiner_reserve: share_of(size, pool.late_joiner_share),
        checkout_timeout: pool.checkout_timeout(),
        connect_timeout: pool.connect_timeout(),
        idle_timeout: pool.idle_timeout(),
        max_lifetime: pool.max_lifetime(),
        backoff: Backoff {
            base: pool.health.backoff_base(),
            factor: pool.health.backoff_factor,
            jitter: pool.health.backoff_jitter,
            max: pool.health.backoff_max(),
        },
        connection: ConnectionLimits {
            message_bytes_max: usize::try_from(config.cross_shard.row_bytes_max).unwrap_or(usize::MAX),
            unasked_bytes_max: usize::try_from(pool.unasked_bytes_max).unwrap_or(usize::MAX),
        },
    }
}

/// The share of a budget, rounded down: a budget of one has no reserve.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "share is within 0..1")]
fn share_of(size: usize, share: f64) -> usize {
    (size as f64 * share) as usize
}

/// Shorter than what starts the proxy is likely to wait for its readiness.
const MAP_PATIENCE: Duration = Duration::from_secs(10);
const MAP_PAUSE: Duration = Duration::from_millis(500);
