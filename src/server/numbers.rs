//! Keeps the shards in numbers of cluster-wide sequences, for as long as the proxy runs, its drain included.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::execute::numbers::Numbers;
use crate::shardmap::ShardMap;

pub(super) async fn run(numbers: Arc<Numbers>, map: Arc<ShardMap>, stop: CancellationToken) {
    let keeping = numbers.keep_ahead();
    tokio::select! {
        () = stop.cancelled() => {}
        () = keeping => {}
        () = fill(&numbers, &map, &stop) => {}
    }
}

async fn fill(numbers: &Arc<Numbers>, map: &ShardMap, stop: &CancellationToken) {
    let mut epochs = map.subscribe();
    loop {
        let pause = Box::pin(numbers.fill()).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = numbers.nudged() => {}
            // A sequence may have been declared.
            changed = epochs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}
