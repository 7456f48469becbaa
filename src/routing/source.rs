//! What routing needs of the shard map, as a trait, so that it is tested without a map database.

use std::future::Future;
use std::sync::Arc;

use arc_swap::Guard;

use crate::error::PgError;
use crate::shard_key::Key;
use crate::shardmap::{Epoch, Group, GroupId, MapInUse, PartitionId, ShardMap};

/// The shard map, as one proxy knows it.
pub trait MapSource {
    /// The newest version. No wait, no lock. Never held over a wait: the proxy has reached an epoch only when nobody uses an
    /// older version any more.
    fn newest(&self) -> Guard<Arc<MapInUse>>;

    /// By [`Key::ordered_bytes`]. Outer `None`: not known here; inner `None`: known to have no mapping. No wait. May be newer
    /// than a version that was taken before, never older.
    fn find_cached(&self, group: GroupId, key: &[u8]) -> Option<Option<PartitionId>>;

    /// One answer a key, in order. Asks the map database. Cancel safe.
    fn find(&self, group: &Group, keys: &[Key]) -> impl Future<Output = Result<Vec<Option<PartitionId>>, PgError>> + Send;

    /// Ends when the newest version is another than `epoch`. Cancel safe.
    fn changed_since(&self, epoch: Epoch) -> impl Future<Output = ()> + Send;
}

impl MapSource for ShardMap {
    fn newest(&self) -> Guard<Arc<MapInUse>> {
        self.load()
    }

    fn find_cached(&self, group: GroupId, key: &[u8]) -> Option<Option<PartitionId>> {
        self.lookup_cached_bytes(group, key)
    }

    async fn find(&self, group: &Group, keys: &[Key]) -> Result<Vec<Option<PartitionId>>, PgError> {
        self.ask(group, keys).await.map_err(PgError::from)
    }

    fn changed_since(&self, epoch: Epoch) -> impl Future<Output = ()> + Send {
        let mut epochs = self.subscribe();
        async move {
            let outcome = epochs.wait_for(|now| *now != epoch).await.map(drop);
            assert!(outcome.is_ok(), "the map outlives its borrower");
        }
    }
}
