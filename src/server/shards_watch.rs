//! Makes what shards lack that an earlier version has registered: the objects of the schema `shardgate`.
//!
//! Each shard is asked once. One that is away is asked again later, and does not keep the others waiting for more than that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::session::Gateway;
use crate::shardmap::{Shard, ShardId};

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut complete: BTreeSet<ShardId> = BTreeSet::new();
    loop {
        let snapshot = gateway.map.snapshot();
        let asked = |shard: &&Arc<Shard>| shard.state.is_ready() && !complete.contains(&shard.id);
        let shards: Vec<Arc<Shard>> = snapshot.shards.iter().filter(asked).cloned().collect();
        drop(snapshot);
        for shard in shards {
            let completed = tokio::select! {
                () = stop.cancelled() => return,
                completed = gateway.control.complete_shard(&shard) => completed,
            };
            match completed {
                Ok(()) => drop(complete.insert(shard.id)),
                Err(error) => tracing::debug!(shard = %shard.name, %error, "support objects of a shard could not be checked"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(10);
