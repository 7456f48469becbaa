//! Shards whose schema is not the home shard's: something was changed on one of them directly, or a change has failed half-way.
//!
//! A change that a proxy makes goes from shard to shard. So nothing is said while one is under way, and only what two looks have found.

use tokio::time::{Instant, sleep};

use super::records::{LOOK_AGAIN_AFTER, REMOVED_WITHIN};
use super::{Leftover, Look};
use crate::catalog::Catalog;
use crate::rebalance::moves::site::{Site, SiteError};
use crate::shardmap::{MoveId, Shard, StoreError, Term};

/// Of one shard, against the home shard; none where that one cannot be read.
pub(super) async fn find(shard: &Shard, look: &Look<'_>) -> Result<Vec<Leftover>, SiteError> {
    let Some(home) = look.map.home().filter(|home| home.id != shard.id) else { return Ok(Vec::new()) };
    let mut differing = differences(shard, home).await?;
    if differing.is_empty() || !no_change_runs(look).await.unwrap_or(false) {
        return Ok(Vec::new());
    }
    let second = differences(shard, home).await?;
    differing.retain(|difference| second.contains(difference));
    let more = differing.len().saturating_sub(DIFFERENCES_MAX);
    differing.truncate(DIFFERENCES_MAX);
    if more > 0 {
        differing.push(format!("and {more} more"));
    }
    let told = differing.into_iter().map(|difference| {
        Leftover::on(
            &shard.name,
            format!("its schema differs: {difference} (here: home shard \"{}\")", home.name),
            "make the schemas alike on that shard itself; make later changes through the proxy",
        )
    });
    Ok(told.collect())
}

async fn differences(shard: &Shard, home: &Shard) -> Result<Vec<String>, SiteError> {
    let Ok(here) = schema(home).await else { return Ok(Vec::new()) };
    Ok(here.diff(&schema(shard).await?))
}

async fn schema(shard: &Shard) -> Result<Catalog, SiteError> {
    let mut site = Box::pin(Site::open(shard, MoveId(0), Term(0))).await?;
    Box::pin(site.catalog()).await
}

/// Waits for one that is about to end.
async fn no_change_runs(look: &Look<'_>) -> Result<bool, StoreError> {
    let until = Instant::now() + REMOVED_WITHIN;
    loop {
        if look.store.load().await?.snapshot.open_schema_changes == 0 {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

const DIFFERENCES_MAX: usize = 20;
