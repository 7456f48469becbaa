//! The shard map: which shard owns which key, at which version.

pub mod model;

pub use model::{
    Bound, DeclaredFunction, Epoch, Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, Shard, ShardId,
    ShardState, Strategy, Table, TableKind,
};
