//! Proxies that the shards shut out, so that others go on without them.
//!
//! ```text
//!   a row that nobody renews ─► deleted, and a fence begun, in one change of the map ─► each shard shuts the process out, up to this
//!   generation of its lease ─► all shards have: the fence is forgotten
//! ```
//! From the deletion on the proxy cannot renew that generation; it registers again with the next one, and reads the map first. What it
//! has planned before reaches no shard that has shut it out: see `crate::rebalance::moves::fencing`, which also says why that is enough.

use std::time::Duration;

use super::error::StoreError;
use super::lease::ProxyId;
use super::model::ShardId;
use super::store::Store;

/// One that some shard has not shut out yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub proxy: ProxyId,
    /// With all before it.
    pub generation: i64,
    pub address: String,
    /// These have.
    pub shards: Vec<ShardId>,
    /// So long ago.
    pub begun: Duration,
}

impl Store {
    /// `false`: it has renewed its lease since it was seen with these renewals, or its row is gone.
    pub async fn fence_proxy(&self, proxy: ProxyId, renewals: i64) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.fence_proxy($1, $2)").bind(proxy.0).bind(renewals);
        super::changes::read(&self.change(query).await?, 0)
    }

    /// This shard has shut it out.
    pub async fn note_fenced(&self, fence: &Fence, shard: ShardId) -> Result<(), StoreError> {
        let query =
            sqlx::query("SELECT shardgate_map.fenced_on($1, $2, $3)").bind(fence.proxy.0).bind(fence.generation).bind(shard.0);
        self.change(query).await.map(drop)
    }
}

/// As rows of the proxies.
pub(super) const FENCES: &str = "SELECT proxy_id, address, 0, 0, -1, 0, NULL, generation, shards,
     extract(epoch FROM clock_timestamp() - begun_at)::float8 FROM shardgate_map.fence";
