//! The shard map: which shard owns which key, at which version.

mod changes;
mod encoding;
mod error;
mod loader;
mod merge;
pub mod model;
mod placement;
mod store;

pub use changes::{AddedShard, NewShard, NewShardedTable, Placement};
pub use error::{StoreError, map_unreachable};
pub use loader::{Change, ChangedKeys, Loaded};
pub use model::{
    Bound, DeclaredFunction, Epoch, Group, GroupId, InvalidGroup, MapSnapshot, Partition, PartitionId, PartitionState, Shard,
    ShardId, ShardState, Strategy, Table, TableKind,
};
pub use placement::{NewPartition, hash_slices, spread};
pub use store::{Store, migrations, migrations_up_to};
