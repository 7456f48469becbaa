//! Proxies that not every shard has shut out yet: any proxy finishes that, where one runs and the shards answer.

use std::time::Duration;

use super::Leftover;
use crate::rebalance::moves::fencing;
use crate::shardmap::{Fence, LEASE, MapSnapshot, Store, StoreError};

pub(super) async fn find(store: &Store, map: &MapSnapshot, fixes: bool) -> Result<Vec<Leftover>, StoreError> {
    let late = async || -> Result<Vec<Fence>, StoreError> {
        let fences = store.proxies_silent(LEASE, &[]).await?.fences;
        Ok(fences.into_iter().filter(|fence| fence.begun > FINISHED_WITHIN).collect())
    };
    let found = late().await?;
    let left = if fixes && !found.is_empty() {
        fencing::finish_all(store).await?;
        late().await?
    } else {
        found.clone()
    };
    let told = found.iter().map(|fence| {
        let missing: Vec<&str> = fencing::missing(map, fence).map(|shard| shard.name.as_str()).collect();
        let what = format!("proxy {} ({}) is not shut out yet by: {}", fence.proxy, fence.address, missing.join(", "));
        let remedy = "a proxy, or doctor --fix, finishes it when these shards answer";
        Leftover { is_fixed: left.iter().all(|left| left.proxy != fence.proxy), ..Leftover::in_map(what, remedy) }
    });
    Ok(told.collect())
}

/// By a proxy that runs.
const FINISHED_WITHIN: Duration = Duration::from_secs(10);
