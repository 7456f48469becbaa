//! The shard map as one immutable snapshot: shards, colocation groups, partitions, tables.
//!
//! Every strategy is key → partition → shard. Partitions of a hash or range group are sorted and cover the whole key space,
//! so routing is a binary search; the keys of a lookup group are too many for a snapshot and live in [`super::cache`].
//! A snapshot never changes; a change of the map makes a new one that shares the groups it did not touch.

use std::collections::HashMap;
use std::sync::Arc;

use crate::shard_key::{KeyColumn, KeyType};

/// Version of the map: a map database that was restored or failed over gets a new incarnation, each change a new counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    pub incarnation: i64,
    pub counter: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub i32);

/// One PostgreSQL database that holds partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    pub id: ShardId,
    pub name: String,
    /// Secret: holds a password. Never logged.
    pub url: String,
    pub region: Option<String>,
    pub capacity: f64,
    pub state: ShardState,
    pub is_home: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardState {
    /// Registered, its schema and reference tables not yet there: takes no statement.
    Preparing,
    Online,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    Hash,
    Range,
    Lookup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionState {
    Online,
    /// Being copied to another shard; reads and writes go on at the owner.
    Moving,
    /// At the cut-over of a move: new statements wait.
    Held,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    pub id: PartitionId,
    pub shard: ShardId,
    pub state: PartitionState,
    /// Counter of the epoch that last changed it.
    pub epoch: i64,
    /// Inclusive lower bound: a hash (hash) or an order-preserving key (range). `None`: from the beginning; always for lookup.
    pub low: Option<Bound>,
}

/// A bound in the key space; half-open intervals, so a partition ends where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    Hash(i64),
    /// `Key::ordered_bytes`.
    Key(Box<[u8]>),
}

/// A colocation group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub id: GroupId,
    pub strategy: Strategy,
    pub key_types: Vec<KeyType>,
    /// Sorted by `low`, the first one's is `None`, without gap. For lookup: by id.
    pub partitions: Vec<Partition>,
    /// Lookup only: where a key without mapping goes.
    pub default_partition: Option<PartitionId>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TableKind {
    Sharded { group: GroupId, key: Vec<KeyColumn> },
    Reference,
}

/// A table that is not a home table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub schema: String,
    pub name: String,
    pub kind: TableKind,
}

/// What `declare_function` says of a function that cannot be proven.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredFunction {
    pub schema: String,
    pub name: String,
    /// (schema, name) of each table.
    pub reads: Vec<(String, String)>,
    pub writes: Vec<(String, String)>,
    /// 1-based argument that is the shard key.
    pub key_argument: Option<usize>,
}

/// The whole map at one epoch, without the lookup keys.
#[derive(Clone, Debug, Default)]
pub struct MapSnapshot {
    pub epoch: Epoch,
    /// By id.
    pub shards: Vec<Arc<Shard>>,
    pub groups: HashMap<GroupId, Arc<Group>>,
    /// (schema, name) → table.
    pub tables: HashMap<(String, String), Arc<Table>>,
    pub functions: HashMap<(String, String), Arc<DeclaredFunction>>,
    /// Counter of the epoch that last changed `shards`, `tables` or `functions`: plans made under an older one are stale.
    pub tables_version: i64,
}

impl MapSnapshot {
    pub fn home(&self) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.is_home)
    }

    pub fn shard(&self, id: ShardId) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.id == id)
    }

    pub fn shard_by_name(&self, name: &str) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.name == name)
    }

    pub fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(&(schema.to_owned(), name.to_owned()))
    }
}

impl Group {
    /// The partition that owns this point of the key space. Hash and range groups only.
    pub fn partition_at(&self, point: &Bound) -> &Partition {
        assert!(!self.partitions.is_empty(), "a hash or range group covers its key space");
        let after = self.partitions.partition_point(|partition| partition.low.as_ref().is_none_or(|low| low <= point));
        // The first partition's low is None, so at least one precedes the point.
        &self.partitions[after - 1]
    }

    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.id == id)
    }
}
