//! What routing needs of the shard map, as a trait, so that it is tested without a map database.

use std::future::Future;
use std::sync::Arc;

use crate::error::PgError;
use crate::shard_key::Key;
use crate::shardmap::{Epoch, Group, GroupId, MapSnapshot, PartitionId};

/// The shard map, as one proxy knows it.
pub trait MapSource {
    /// The newest version. No wait, no lock.
    fn snapshot(&self) -> Arc<MapSnapshot>;

    /// Outer `None`: not known here; inner `None`: known to have no mapping. No wait.
    fn lookup_cached(&self, group: GroupId, key: &Key) -> Option<Option<PartitionId>>;

    /// One answer a key, in order. Asks the map database for those that are not known here.
    fn lookup(&self, group: &Group, keys: &[Key]) -> impl Future<Output = Result<Vec<Option<PartitionId>>, SourceError>> + Send;

    /// Ends when the newest version is another than `epoch`. Cancel safe.
    fn changed_since(&self, epoch: Epoch) -> impl Future<Output = ()> + Send;
}

/// Why a lookup has no answer: as the client shall read it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceError(pub PgError);
