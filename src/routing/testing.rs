//! A shard map made by hand, for the tests of this folder.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex};

use arc_swap::Guard;
use tokio::sync::watch;

use super::source::MapSource;
use crate::error::PgError;
use crate::shard_key::{Key, KeyDatum, KeyType};
use crate::shardmap::{
    Bound, Epoch, Group, GroupId, MapInUse, MapSnapshot, Partition, PartitionId, PartitionState, Shard, ShardId, ShardState,
    Strategy,
};
use crate::sql::analysis::{KeyCondition, KeyTest, KeyValue, StoredValue, Test};

pub(super) const GROUP: GroupId = GroupId(7);

pub(super) fn shard(id: i32) -> Arc<Shard> {
    Arc::new(Shard {
        id: ShardId(id),
        name: format!("s{id}"),
        url: String::new(),
        region: None,
        capacity: 1.0,
        state: ShardState::Online,
        is_home: id == 0,
        owes: false,
        identity: None,
        primary: Arc::default(),
    })
}

pub(super) fn partition(id: i32, shard: i32, low: Option<Bound>) -> Partition {
    Partition { id: PartitionId(id), shard: ShardId(shard), state: PartitionState::Online, epoch: 1, low }
}

/// Three partitions of a third of the hash space each: 10 on shard 0, 11 on shard 1, 12 on shard 2.
pub(super) fn hash_group(types: &[KeyType]) -> Group {
    let third = Some(Bound::Hash(i64::MIN / 3));
    let two_thirds = Some(Bound::Hash(i64::MAX / 3));
    let partitions = vec![partition(10, 0, None), partition(11, 1, third), partition(12, 2, two_thirds)];
    Group::new(GROUP, Strategy::Hash, types.to_vec(), partitions, None).expect("valid")
}

/// Partition 20 on shard 0 up to the first split point, 21 on shard 1 from there, 22 on shard 2 and so on.
pub(super) fn range_group(types: &[KeyType], splits: &[Key]) -> Group {
    let low = |key: &Key| Some(Bound::Key(key.ordered_bytes()));
    let lows = std::iter::once(None).chain(splits.iter().map(low));
    let partitions = (0..).zip(lows).map(|(index, low)| partition(20 + index, index, low)).collect();
    Group::new(GROUP, Strategy::Range, types.to_vec(), partitions, None).expect("valid")
}

/// Partitions 30, 31, 32 on shards 0, 1, 2.
pub(super) fn lookup_group(types: &[KeyType], default: Option<i32>) -> Group {
    let partitions = (0..3).map(|index| partition(30 + index, index, None)).collect();
    Group::new(GROUP, Strategy::Lookup, types.to_vec(), partitions, default.map(PartitionId)).expect("valid")
}

/// The same group with one partition in another state.
pub(super) fn with_state(group: &Group, partition: i32, state: PartitionState) -> Group {
    let mut partitions = group.partitions.clone();
    partitions.iter_mut().filter(|candidate| candidate.id.0 == partition).for_each(|partition| partition.state = state);
    Group::new(group.id, group.strategy, group.key_types.clone(), partitions, group.default_partition).expect("valid")
}

pub(super) fn snapshot(counter: i64, group: Group) -> MapSnapshot {
    MapSnapshot {
        epoch: Epoch { incarnation: 1, counter },
        shards: (0..4).map(shard).collect(),
        groups: BTreeMap::from([(group.id, Arc::new(group))]),
        ..MapSnapshot::default()
    }
}

/// A map that tests change under the feet of what is resolving.
pub(super) struct FakeMap {
    snapshot: watch::Sender<Arc<MapInUse>>,
    pub(super) cached: HashMap<Key, Option<PartitionId>>,
    /// What the map database knows; `None`: it does not answer.
    pub(super) stored: Option<HashMap<Key, PartitionId>>,
    /// The keys of each request to the map database.
    pub(super) requests: Mutex<Vec<Vec<Key>>>,
}

impl FakeMap {
    pub(super) fn new(group: Group) -> Self {
        Self {
            snapshot: watch::Sender::new(Arc::new(MapInUse::new(snapshot(1, group), 1))),
            cached: HashMap::new(),
            stored: Some(HashMap::new()),
            requests: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn publish(&self, counter: i64, group: Group) {
        self.snapshot.send_replace(Arc::new(MapInUse::new(snapshot(counter, group), 1)));
    }
}

impl MapSource for FakeMap {
    fn newest(&self) -> Guard<Arc<MapInUse>> {
        Guard::from_inner(self.snapshot.borrow().clone())
    }

    fn find_cached(&self, _group: GroupId, key: &[u8]) -> Option<Option<PartitionId>> {
        self.cached.iter().find(|(cached, _)| *cached.ordered_bytes() == *key).map(|(_, partition)| *partition)
    }

    async fn find(&self, _group: &Group, keys: &[Key]) -> Result<Vec<Option<PartitionId>>, PgError> {
        self.requests.lock().unwrap().push(keys.to_vec());
        match &self.stored {
            Some(stored) => Ok(keys.iter().map(|key| stored.get(key).copied()).collect()),
            None => std::future::pending().await,
        }
    }

    fn changed_since(&self, epoch: Epoch) -> impl Future<Output = ()> + Send {
        let mut receiver = self.snapshot.subscribe();
        async move {
            receiver.wait_for(|snapshot| snapshot.epoch != epoch).await.expect("the map lives longer");
        }
    }
}

pub(super) fn int(value: i64) -> KeyDatum {
    KeyDatum::Int(value)
}

pub(super) fn text(value: &str) -> KeyDatum {
    KeyDatum::Text(value.into())
}

pub(super) fn key(data: &[KeyDatum]) -> Key {
    Key::new(data.to_vec())
}

/// `$number`
pub(super) fn parameter(number: u16) -> KeyValue {
    KeyValue::Parameter { number, cast: None }
}

/// A constant of the text, of this type.
pub(super) fn constant(oid: u32, text: &str) -> KeyValue {
    KeyValue::Constant { text: text.to_owned(), oid }
}

/// An int4 constant.
pub(super) fn number(value: i64) -> KeyValue {
    constant(23, &value.to_string())
}

pub(super) fn test(column: usize, column_type: KeyType, test: Test) -> KeyCondition {
    KeyCondition::Test(KeyTest { column, column_type, function: None, test })
}

/// `column = value` on an int8 column.
pub(super) fn equals(column: usize, value: i64) -> KeyCondition {
    test(column, KeyType::Int8, Test::Equals(number(value)))
}

pub(super) fn stored(column: usize, column_type: KeyType, value: KeyValue, is_not_null: bool) -> KeyCondition {
    test(column, column_type, Test::Stored(StoredValue { value, typmod: -1, is_not_null }))
}
