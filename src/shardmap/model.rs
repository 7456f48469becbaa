//! The shard map as one immutable snapshot: shards, colocation groups, partitions, tables.
//!
//! Every strategy is key → partition → shard. Partitions of a hash or range group are sorted and cover the whole key space,
//! so routing is a binary search; the keys of a lookup group are too many for a snapshot and live in `cache`.
//! A snapshot never changes; a change of the map makes a new one that shares the groups it did not touch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::changes::SchemaChangeId;
use super::claims::ClaimCount;
use super::primary::Primary;
use super::renames::Renamed;
use crate::catalog::mentions;
use crate::shard_key::{KeyColumn, KeyType};

/// Version of the map: a map database that was restored or failed over gets a new incarnation, each change a new counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    pub incarnation: i64,
    pub counter: i64,
}

impl Epoch {
    /// Of a server that was promoted, or restored, after the map had been followed to that epoch: it counts on from the last change that
    /// it has, and one for itself.
    pub fn has_forgotten(self, followed: Self) -> bool {
        self.incarnation != followed.incarnation && followed.counter > 0 && self.counter <= followed.counter
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub i32);

/// As in NOTIFY and in messages: `incarnation:counter`.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.incarnation, self.counter)
    }
}

/// One PostgreSQL database that holds partitions.
#[derive(Clone, PartialEq)]
pub struct Shard {
    pub id: ShardId,
    pub name: String,
    /// Secret: holds a password. Never logged.
    pub url: String,
    pub region: Option<String>,
    pub capacity: f64,
    pub state: ShardState,
    pub is_home: bool,
    /// It may have rows of moves that were given up while it was away: no statement reaches it until they are deleted.
    pub owes: bool,
    /// The uuid that its database shows. `None`: registered by an earlier version, and not read yet.
    pub identity: Option<Arc<str>>,
    /// Which server is its primary: one for all versions of the map that this process reads.
    pub primary: Arc<Primary>,
}

/// Without the url, which holds a password.
impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("region", &self.region)
            .field("capacity", &self.capacity)
            .field("state", &self.state)
            .field("is_home", &self.is_home)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardState {
    /// Registered, its schema and reference tables not yet there: takes no statement.
    Preparing,
    Online,
    /// What would write is refused.
    ReadOnly,
    /// Serves the partitions that it has, and gets no new ones.
    Draining,
    /// Its statements wait.
    Maintenance,
}

impl ShardState {
    pub const ALL: [ShardState; 5] =
        [ShardState::Preparing, ShardState::Online, ShardState::ReadOnly, ShardState::Draining, ShardState::Maintenance];

    /// Is it a part of the cluster, with the schema and the reference tables, whether or not it can be used now?
    pub fn is_ready(self) -> bool {
        self != ShardState::Preparing
    }

    pub fn takes_new_partitions(self) -> bool {
        self == ShardState::Online
    }
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

impl Bound {
    /// Where a hash partition begins.
    pub fn hash(&self) -> Option<i64> {
        match self {
            Bound::Hash(hash) => Some(*hash),
            Bound::Key(_) => None,
        }
    }
}

/// A colocation group. Made by [`Group::new`] only, which checks that the partitions cover the key space.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub id: GroupId,
    pub strategy: Strategy,
    pub key_types: Vec<KeyType>,
    /// Sorted by `low`, the first one's is `None`, without gap. For lookup: by id.
    pub partitions: Vec<Partition>,
    /// Lookup only: where a key without mapping goes.
    pub default_partition: Option<PartitionId>,
    /// Rows of the group may lie on shards that do not own them: a partition moves.
    pub has_residues: bool,
    /// By this version of the group.
    pub claims: ClaimCount,
    /// Positions in `partitions`, sorted by partition id.
    by_id: Vec<u32>,
    /// Hash only: where each partition but the first one begins. Side by side, as every statement searches here.
    hash_lows: Vec<i64>,
    /// See [`Group::owners`].
    owners: Vec<ShardId>,
    /// See [`Group::held`].
    held: Vec<PartitionId>,
}

/// What keeps partitions from being a group. The map database's constraints exclude all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroup {
    #[error("a hash or range group has no partition")]
    Empty,
    #[error("no partition begins at the beginning of the key space")]
    Gap,
    #[error("two partitions begin at the same place")]
    Overlap,
    #[error("a partition's bound does not fit the group's strategy")]
    BoundOfOtherStrategy,
    #[error("two partitions have the same id")]
    RepeatedId,
    #[error("the default partition is not one of the group's")]
    UnknownDefault,
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
    /// A change of the schema that is under way gives it, or columns of its key, other names.
    pub renamed: Option<Arc<Renamed>>,
}

impl Table {
    /// `None`: of a reference table.
    pub fn group(&self) -> Option<GroupId> {
        match self.kind {
            TableKind::Sharded { group, .. } => Some(group),
            TableKind::Reference => None,
        }
    }
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
    /// Fingerprints of the functions that it was said of; `None`: of whatever has the name.
    pub declared_as: Option<Vec<String>>,
}

impl DeclaredFunction {
    /// Was it said of the function with this fingerprint?
    pub fn is_of(&self, fingerprint: impl FnOnce() -> String) -> bool {
        self.declared_as.as_ref().is_none_or(|known| known.contains(&fingerprint()))
    }
}

/// A sequence of the whole cluster: its numbers are given away in blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSequence {
    pub schema: String,
    pub name: String,
    /// Not zero.
    pub increment: i64,
    /// Numbers that were drawn under another one are void: `setval` came between.
    pub generation: i64,
    /// How many numbers lie between its limits.
    pub size: i64,
}

/// Schema and name.
pub type TableName = (String, String);

/// The whole map at one epoch, without the lookup keys.
#[derive(Clone, Debug, Default)]
pub struct MapSnapshot {
    pub epoch: Epoch,
    /// Sorted by id.
    pub shards: Vec<Arc<Shard>>,
    pub groups: BTreeMap<GroupId, Arc<Group>>,
    pub tables: HashMap<TableName, Arc<Table>>,
    pub functions: HashMap<(String, String), Arc<DeclaredFunction>>,
    /// (schema, name) → sequence of the whole cluster.
    pub sequences: HashMap<(String, String), Arc<ClusterSequence>>,
    /// Counter of the epoch that last changed `shards`, `tables`, `functions` or which `sequences` there are: plans made under an
    /// older one are stale.
    pub tables_version: i64,
    /// Counter of the epoch that last changed the home shard, `tables` or `functions`: a catalogue read before it may lack what was
    /// made on the shards for these. A sequence comes before the schema change that it belongs to, whose locks keep readers of the
    /// catalogue waiting.
    pub declarations_version: i64,
    /// Counter of the epoch of the last change of the shards' schema (DDL) that is done: a catalogue read before it is stale.
    pub schema_version: i64,
    /// Changes of the shards' schema that have begun and not finished: the shards may differ.
    pub open_schema_changes: usize,
    /// What some of these give another meaning.
    pub redefinitions: Arc<[Redefinition]>,
}

/// A change of the schema that gives names another meaning: from some moment before its end on, each shard at its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redefinition {
    pub change: SchemaChangeId,
    /// Without their schemas. `None`: there may be any.
    pub names: Option<BTreeSet<String>>,
}

impl Redefinition {
    pub fn may_concern(&self, text: &str) -> bool {
        self.names.as_ref().is_none_or(|names| mentions(text, names))
    }
}

impl MapSnapshot {
    pub fn home(&self) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.is_home)
    }

    pub fn shard(&self, id: ShardId) -> Option<&Arc<Shard>> {
        self.shards.get(self.shards.binary_search_by_key(&id, |shard| shard.id).ok()?)
    }

    pub fn shard_by_name(&self, name: &str) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.name == name)
    }

    /// The partition of this id in whichever group. Walks over the groups: not for the hot path.
    pub fn partition(&self, id: PartitionId) -> Option<(&Arc<Group>, &Partition)> {
        self.groups.values().find_map(|group| group.partition(id).map(|partition| (group, partition)))
    }

    /// The sharded tables of a group, in no order.
    pub fn tables_of(&self, id: GroupId) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().filter(move |table| matches!(&table.kind, TableKind::Sharded { group, .. } if *group == id))
    }

    pub fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    /// Rows may lie on shards that do not own them. A cluster has few groups.
    /// Of some group the other version knows that shards may have rows that they do not own, and this one does not.
    pub fn lacks_residues_of(&self, other: &Self) -> bool {
        self.groups.values().any(|group| !group.has_residues && other.group(group.id).is_some_and(|other| other.has_residues))
    }

    /// The same version, with what the other one knows of them.
    #[must_use]
    pub fn with_residues_of(&self, other: &Self) -> Self {
        let mut map = self.clone();
        for group in map.groups.values_mut().filter(|group| other.group(group.id).is_some_and(|other| other.has_residues)) {
            *group = Arc::new((**group).clone().with_residues(true));
        }
        map
    }

    pub fn has_residues(&self) -> bool {
        self.groups.values().any(|group| group.has_residues)
    }

    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(&(schema.to_owned(), name.to_owned()))
    }
}

impl Group {
    /// Takes the partitions in any order.
    pub fn new(
        id: GroupId,
        strategy: Strategy,
        key_types: Vec<KeyType>,
        mut partitions: Vec<Partition>,
        default_partition: Option<PartitionId>,
    ) -> Result<Self, InvalidGroup> {
        match strategy {
            Strategy::Hash | Strategy::Range => {
                partitions.sort_by(|left, right| left.low.cmp(&right.low));
                check_cover(strategy, &partitions)?;
            }
            Strategy::Lookup => {
                if partitions.iter().any(|partition| partition.low.is_some()) {
                    return Err(InvalidGroup::BoundOfOtherStrategy);
                }
                partitions.sort_by_key(|partition| partition.id);
            }
        }
        let by_id = index_by_id(&partitions)?;
        let mut owners: Vec<ShardId> = partitions.iter().map(|partition| partition.shard).collect();
        owners.sort_unstable();
        owners.dedup();
        let is_held = |partition: &&Partition| partition.state == PartitionState::Held;
        let mut held: Vec<PartitionId> = partitions.iter().filter(is_held).map(|partition| partition.id).collect();
        held.sort_unstable();
        let hash_lows = partitions.iter().filter_map(|partition| match partition.low {
            Some(Bound::Hash(low)) => Some(low),
            Some(Bound::Key(_)) | None => None,
        });
        let hash_lows = hash_lows.collect();
        let group = Self {
            id,
            strategy,
            key_types,
            partitions,
            default_partition,
            by_id,
            hash_lows,
            owners,
            held,
            has_residues: false,
            claims: ClaimCount::default(),
        };
        match default_partition {
            Some(default) if strategy != Strategy::Lookup || group.partition(default).is_none() => {
                Err(InvalidGroup::UnknownDefault)
            }
            Some(_) | None => Ok(group),
        }
    }

    pub fn with_residues(self, has_residues: bool) -> Self {
        Self { has_residues, ..self }
    }

    /// The shards that have partitions of the group, sorted: where a statement goes that names no key, found without a walk
    /// over the partitions.
    pub fn owners(&self) -> &[ShardId] {
        &self.owners
    }

    /// The partitions in state [`PartitionState::Held`], sorted.
    pub fn held(&self) -> &[PartitionId] {
        &self.held
    }

    /// The partition that owns this point of the key space. Hash and range groups only.
    pub fn partition_at(&self, point: &Bound) -> &Partition {
        &self.partitions[self.position_at(point)]
    }

    /// As [`Group::partition_at`], from a hash. Hash groups only.
    #[inline]
    pub fn partition_at_hash(&self, hash: i64) -> &Partition {
        // The first partition begins at the beginning, and is not among them.
        &self.partitions[self.hash_lows.partition_point(|low| *low <= hash)]
    }

    /// As [`Group::partition_at`], from a key's order-preserving bytes as they lie in a buffer. Range groups only.
    pub fn partition_at_key(&self, key: &[u8]) -> &Partition {
        let after = self.partitions.partition_point(|partition| match &partition.low {
            None => true,
            Some(Bound::Key(low)) => **low <= *key,
            Some(Bound::Hash(_)) => false,
        });
        &self.partitions[after - 1]
    }

    /// The partitions of `[from, to)`; `None`: from the beginning, to the end. Hash and range groups only.
    pub fn partitions_between(&self, from: Option<&Bound>, to: Option<&Bound>) -> &[Partition] {
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            return &[];
        }
        let first = from.map_or(0, |from| self.position_at(from));
        let end = to.map_or(self.partitions.len(), |to| {
            self.partitions.partition_point(|partition| partition.low.as_ref().is_none_or(|low| low < to))
        });
        self.partitions.get(first..end).unwrap_or_default()
    }

    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        let place = self.by_id.binary_search_by_key(&id, |position| self.partitions[*position as usize].id).ok()?;
        self.partitions.get(*self.by_id.get(place)? as usize)
    }

    /// Where this partition ends (exclusive); `None`: at the end of the key space. Hash and range groups only.
    pub fn high(&self, id: PartitionId) -> Option<&Bound> {
        let place = self.by_id.binary_search_by_key(&id, |position| self.partitions[*position as usize].id).ok()?;
        let position = *self.by_id.get(place)? as usize;
        self.partitions.get(position + 1)?.low.as_ref()
    }

    /// The partition of a key whose mapping is `mapped`; `None`: the key has no shard. Lookup groups only.
    pub fn partition_of_mapping(&self, mapped: Option<PartitionId>) -> Option<&Partition> {
        self.partition(mapped.or(self.default_partition)?)
    }

    fn position_at(&self, point: &Bound) -> usize {
        let after = self.partitions.partition_point(|partition| partition.low.as_ref().is_none_or(|low| low <= point));
        // The first partition's low is None, so at least one precedes the point.
        after - 1
    }
}

/// Sorted by `low`: without gap and overlap, and all bounds of the strategy's kind.
fn check_cover(strategy: Strategy, partitions: &[Partition]) -> Result<(), InvalidGroup> {
    match partitions.first() {
        None => return Err(InvalidGroup::Empty),
        Some(first) if first.low.is_some() => return Err(InvalidGroup::Gap),
        Some(_) => {}
    }
    for pair in partitions.windows(2) {
        if let [left, right] = pair
            && left.low == right.low
        {
            return Err(InvalidGroup::Overlap);
        }
    }
    let fits = |low: &Bound| match low {
        Bound::Hash(_) => strategy == Strategy::Hash,
        Bound::Key(_) => strategy == Strategy::Range,
    };
    match partitions.iter().filter_map(|partition| partition.low.as_ref()).all(fits) {
        true => Ok(()),
        false => Err(InvalidGroup::BoundOfOtherStrategy),
    }
}

fn index_by_id(partitions: &[Partition]) -> Result<Vec<u32>, InvalidGroup> {
    let mut by_id: Vec<u32> = (0..).take(partitions.len()).collect();
    by_id.sort_unstable_by_key(|position| partitions[*position as usize].id);
    let is_repeated = |pair: &[u32]| match pair {
        [left, right] => partitions[*left as usize].id == partitions[*right as usize].id,
        _ => false,
    };
    match by_id.windows(2).any(is_repeated) {
        true => Err(InvalidGroup::RepeatedId),
        false => Ok(by_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(id: i32, low: Option<Bound>) -> Partition {
        Partition { id: PartitionId(id), shard: ShardId(1), state: PartitionState::Online, epoch: 1, low }
    }

    #[test]
    fn a_promoted_map_that_counts_on_from_less_has_forgotten_changes() {
        let epoch = |incarnation, counter| Epoch { incarnation, counter };
        for (found, followed, expected) in [
            (epoch(2, 28), epoch(1, 42), true),
            // One change was lost: the server's own has taken its number.
            (epoch(2, 42), epoch(1, 42), true),
            (epoch(2, 43), epoch(1, 42), false),
            (epoch(1, 43), epoch(1, 42), false),
            // Nothing was followed before.
            (epoch(2, 0), epoch(0, 0), false),
        ] {
            assert_eq!(found.has_forgotten(followed), expected, "{found} after {followed}");
        }
    }

    fn group(strategy: Strategy, partitions: Vec<Partition>) -> Result<Group, InvalidGroup> {
        Group::new(GroupId(1), strategy, vec![KeyType::Int8], partitions, None)
    }

    /// `[…, -10)` is 7, `[-10, 0)` 3, `[0, …]` 5.
    fn hash_group() -> Group {
        let bound = |at| Some(Bound::Hash(at));
        group(Strategy::Hash, vec![partition(5, bound(0)), partition(7, None), partition(3, bound(-10))]).expect("valid")
    }

    fn ids(partitions: &[Partition]) -> Vec<i32> {
        partitions.iter().map(|partition| partition.id.0).collect()
    }

    #[test]
    fn a_point_belongs_to_the_partition_that_begins_at_or_before_it() {
        let group = hash_group();
        for (point, owner) in [(i64::MIN, 7), (-11, 7), (-10, 3), (-1, 3), (0, 5), (i64::MAX, 5)] {
            assert_eq!(group.partition_at(&Bound::Hash(point)).id, PartitionId(owner), "point {point}");
            assert_eq!(group.partition_at_hash(point).id, PartitionId(owner), "point {point}");
        }
    }

    #[test]
    fn key_bytes_are_found_without_making_a_bound() {
        let key = |bytes: &[u8]| Some(Bound::Key(bytes.into()));
        let group =
            group(Strategy::Range, vec![partition(1, None), partition(2, key(b"b")), partition(3, key(b"bb"))]).expect("valid");
        for (point, owner) in [(&b""[..], 1), (b"a", 1), (b"b", 2), (b"ba", 2), (b"bb", 3), (b"c", 3)] {
            assert_eq!(group.partition_at_key(point).id, PartitionId(owner), "point {point:?}");
            assert_eq!(group.partition_at(&Bound::Key(point.into())).id, PartitionId(owner), "point {point:?}");
        }
    }

    #[test]
    fn ranges_give_every_partition_that_they_touch() {
        let group = hash_group();
        let between = |from: Option<i64>, to: Option<i64>| {
            ids(group.partitions_between(from.map(Bound::Hash).as_ref(), to.map(Bound::Hash).as_ref()))
        };
        assert_eq!(between(Some(-20), Some(-10)), [7]);
        assert_eq!(between(None, Some(-9)), [7, 3]);
        assert_eq!(between(Some(0), None), [5]);
        assert_eq!(between(None, None), [7, 3, 5]);
        assert_eq!(between(Some(3), Some(3)), Vec::<i32>::new());
    }

    #[test]
    fn partitions_are_found_by_id_and_know_their_end() {
        let group = hash_group();
        assert_eq!(group.partition(PartitionId(3)).and_then(|partition| partition.low.clone()), Some(Bound::Hash(-10)));
        assert_eq!(group.partition(PartitionId(4)), None);
        assert_eq!(group.high(PartitionId(7)), Some(&Bound::Hash(-10)));
        assert_eq!(group.high(PartitionId(5)), None);
    }

    #[test]
    fn what_does_not_cover_the_key_space_is_no_group() {
        let bound = |at| Some(Bound::Hash(at));
        assert_eq!(group(Strategy::Hash, vec![]), Err(InvalidGroup::Empty));
        assert_eq!(group(Strategy::Hash, vec![partition(1, bound(0))]), Err(InvalidGroup::Gap));
        assert_eq!(group(Strategy::Hash, vec![partition(1, None), partition(2, None)]), Err(InvalidGroup::Overlap));
        let twice = vec![partition(1, None), partition(2, bound(0)), partition(3, bound(0))];
        assert_eq!(group(Strategy::Hash, twice), Err(InvalidGroup::Overlap));
        let same_id = vec![partition(1, None), partition(1, bound(0))];
        assert_eq!(group(Strategy::Hash, same_id), Err(InvalidGroup::RepeatedId));
        let other_kind = vec![partition(1, None), partition(2, bound(0))];
        assert_eq!(group(Strategy::Range, other_kind), Err(InvalidGroup::BoundOfOtherStrategy));
        assert_eq!(group(Strategy::Lookup, vec![]).map(|group| group.partitions.len()), Ok(0));
    }

    #[test]
    fn a_key_without_mapping_goes_to_the_default_or_nowhere() {
        let partitions = vec![partition(2, None), partition(1, None)];
        let make = |default| Group::new(GroupId(1), Strategy::Lookup, vec![KeyType::Text], partitions.clone(), default);
        let without = make(None).expect("valid");
        assert_eq!(without.partition_of_mapping(None), None);
        assert_eq!(without.partition_of_mapping(Some(PartitionId(2))).map(|partition| partition.id), Some(PartitionId(2)));
        let with = make(Some(PartitionId(1))).expect("valid");
        assert_eq!(with.partition_of_mapping(None).map(|partition| partition.id), Some(PartitionId(1)));
        assert_eq!(make(Some(PartitionId(9))), Err(InvalidGroup::UnknownDefault));
    }

    #[test]
    fn a_shard_is_printed_without_its_url() {
        let shard = Shard {
            id: ShardId(1),
            name: "a".to_owned(),
            url: "postgres://u:secret@h/d".to_owned(),
            region: None,
            capacity: 1.0,
            state: ShardState::Online,
            is_home: true,
            owes: false,
            identity: None,
            primary: Arc::default(),
        };
        assert!(!format!("{shard:?}").contains("secret"));
    }
}
