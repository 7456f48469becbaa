//! What operators see of a running proxy: the admin HTTP with its gauges.
//!
//! Ready from the moment clients are accepted until the drain: a proxy whose map database is away goes on with the keys it
//! knows, and taking all proxies out of service for that would make an outage of it. `shardgate_map_reachable` tells.

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::admin::{self, Admin, Readiness};
use crate::config::Config;
use crate::session::Gateway;
use crate::telemetry::{Metrics, names, set_map_counters};

/// Serves the admin HTTP until `stop`. Returns the channel that says whether clients may come.
pub(super) async fn start(
    config: &Config,
    metrics: Metrics,
    gateway: &Arc<Gateway>,
    stop: CancellationToken,
) -> anyhow::Result<watch::Sender<Readiness>> {
    let address = config.admin.address;
    let (tell, readiness) = watch::channel(Readiness::Ready);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} (admin.address)"))?;
    metrics.gauge(names::CLIENTS_MAX, &[]).set(f64::from(config.listen.max_clients));
    let gauges = {
        let (metrics, gateway) = (metrics.clone(), Arc::clone(gateway));
        move || set_gauges(&metrics, &gateway)
    };
    let admin = Admin { metrics, readiness, before_scrape: Arc::new(gauges) };
    tokio::spawn(async move {
        if let Err(error) = admin::serve(listener, admin, stop).await {
            tracing::error!(%error, "the admin HTTP has ended");
        }
    });
    Ok(tell)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn set_gauges(metrics: &Metrics, gateway: &Gateway) {
    metrics.gauge(names::CLIENTS, &[]).set(gateway.clients.len() as f64);
    metrics.gauge(names::MAP_EPOCH, &[]).set(gateway.map.load().epoch.counter as f64);
    metrics.gauge(names::MAP_REACHABLE, &[]).set(if gateway.map.is_reachable() { 1.0 } else { 0.0 });
    let (prepared, oldest) = gateway.recovery.last_seen();
    metrics.gauge(names::PREPARED_TRANSACTIONS, &[]).set(prepared as f64);
    metrics.gauge(names::PREPARED_SECONDS_MAX, &[]).set(oldest.as_secs_f64());
    let map = gateway.map.statistics();
    set_map_counters(metrics, map.full_loads, map.delta_loads, map.lookup_queries, map.lookup_keys);
    // One shard has a pool for each user.
    let mut shards = std::collections::BTreeMap::<String, (usize, usize, usize, bool)>::new();
    for pool in gateway.pools.all() {
        let state = pool.describe();
        let sum = shards.entry(state.shard).or_insert((0, 0, 0, true));
        *sum = (sum.0 + state.active, sum.1 + state.idle, sum.2 + state.waiting, sum.3 && pool.is_up());
    }
    let known = gateway.map.snapshot();
    metrics.keep_shards(shards.keys().map(String::as_str));
    for (shard, (active, idle, waiting, is_up)) in shards {
        let shard = (names::LABEL_SHARD, shard.as_str());
        metrics.gauge(names::POOL_CONNECTIONS, &[shard, (names::LABEL_STATE, "active")]).set(active as f64);
        metrics.gauge(names::POOL_CONNECTIONS, &[shard, (names::LABEL_STATE, "idle")]).set(idle as f64);
        metrics.gauge(names::POOL_WAITING, &[shard]).set(waiting as f64);
        metrics.gauge(names::SHARD_UP, &[shard]).set(if is_up { 1.0 } else { 0.0 });
        let is_split = known.shard_by_name(shard.1).is_some_and(|shard| shard.primary.is_split());
        metrics.gauge(names::SHARD_SPLIT, &[shard]).set(if is_split { 1.0 } else { 0.0 });
    }
}
