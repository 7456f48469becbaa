//! The shard map: which shard owns which key, at which version.
//!
//! The map lives in a PostgreSQL database, which keeps it right by constraints and one stored function for each change
//! (`shardmap-migrations/`). Each proxy holds it as an immutable snapshot, follows its changes, and serves what it knows while
//! the map database is away.
//!
//! ```text
//!   map database ──LISTEN, poll──► watch ──► loader ──► current: snapshot + known lookup keys ──► statements
//!        ▲  ▲                                               ▲
//!        │  └──── lookup: keys that are not known ──────────┘
//!        └─────── lease: this proxy lives, and has reached epoch e
//! ```
//! [`ShardMap`] is the front: everything that routes reads through it, without locks; everything that changes the map goes
//! through [`Store`]. Statements hold the snapshot that they were planned under until their replies are in, and no longer:
//! that is how the lease knows which epoch was reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::Guard;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch as watch_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::background::keep_running;
use crate::shard_key::Key;

mod attention;
mod cache;
mod changes;
mod claims;
mod current;
mod cut_over;
mod cuts;
mod encoding;
mod error;
mod fences;
mod lease;
mod loader;
mod lookup;
mod merge;
pub mod model;
mod movable;
mod moves;
mod owed;
mod placement;
mod primary;
mod process;
mod proxies;
mod renames;
mod sequences;
mod silence;
mod store;
mod watch;

pub use attention::{PieceInTrouble, RunningProxy, Standing, StandingMove};
pub use changes::{
    AddedShard, AlteredShard, DECLARATION_LOCK, DECLARING_TRIGGER, EndedSchemaChange, GroupOfTables, NewShard, NewShardedTable,
    OpenSchemaChanges, Placement, Planned, SchemaChangeId, TimePiece,
};
pub use claims::{ClaimCount, CountedClaim};
pub use cut_over::{CutOver, MoveServers};
pub use cuts::{Isolation, bounds_around, equal_pieces, refuse_impossible_key};
pub use encoding::key_from_stored;
pub use error::{StoreError, map_unreachable};
pub use fences::Fence;
pub use lease::{AWAITED_FOR, LEASE, Lease, Membership, ProxyId};
pub use loader::{Change, ChangedKeys, Loaded};
pub use lookup::LookupError;
pub use model::{
    Bound, ClusterSequence, DeclaredFunction, Epoch, Group, GroupId, InvalidGroup, MapSnapshot, Partition, PartitionId,
    PartitionState, Redefinition, Shard, ShardId, ShardState, Strategy, Table, TableKind, TableName,
};
pub use movable::{InTheWay, MovedTableFacts, MovedTableQuestion, cascading, in_the_way, named, replica_triggers, which};
pub use moves::{
    Asked, CUTOVER_LEASE, DEFAULT_GRACE_MS, DRIVER_LEASE, Move, MoveId, MoveOptions, MoveState, PastMove, Progress, ShardAddresses,
    Term,
};
pub use owed::{Lost, Owed};
pub use placement::{Emptied, NewPartition, hash_slices, spread};
pub use primary::{NotPrimary, Pledge, Primary, PrimaryServer, primary_changes};
pub use proxies::{ProxiesSeen, ProxyBehind, Silent};
pub use renames::{Renamed, Settled};
pub use sequences::{NewSequence, NumberBlock, SequencePlace, SequenceState};
pub use silence::Leases;
pub use store::{Migrated, Store, migrations, migrations_up_to};

use cache::LookupKey;
use current::Current;
pub use current::MapInUse;
use lookup::Misses;

/// No `Debug`: the url holds a password.
#[derive(Clone)]
pub struct MapOptions {
    pub url: String,
    /// Create or upgrade the map's schema first.
    pub migrate: bool,
    /// Most lookup keys that are remembered.
    pub lookup_cache_entries: u64,
    /// How often to look for changes of which no notification came.
    pub poll_interval: Duration,
    pub proxy_id: ProxyId,
    /// Where this proxy listens, for the relation `shardgate.proxies`.
    pub address: String,
}

/// The map as this proxy knows it.
pub struct ShardMap {
    shared: Arc<Shared>,
    store: Store,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    cancel: CancellationToken,
}

/// What the tasks of one map have in common.
struct Shared {
    current: Current,
    misses: Misses,
    lease: Lease,
    /// Somebody knows of a newer epoch.
    nudge: Notify,
    /// Held while the map is loaded: one load at a time.
    loading: tokio::sync::Mutex<()>,
    is_reachable: AtomicBool,
    full_loads: AtomicU64,
    delta_loads: AtomicU64,
    rows_read: AtomicU64,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapStatistics {
    pub full_loads: u64,
    pub delta_loads: u64,
    /// Rows that these loads read.
    pub rows_read: u64,
    pub lookup_queries: u64,
    /// Keys that these queries asked for.
    pub lookup_keys: u64,
}

impl ShardMap {
    /// Registers this proxy, loads the map and begins to follow it. Fails when the map database cannot be reached: a proxy
    /// that has never seen the map can serve nothing.
    pub async fn connect(options: MapOptions) -> Result<Arc<Self>, StoreError> {
        let store = Store::new(&options.url)?;
        if options.migrate {
            store.migrate().await?;
        }
        store.check().await?;
        let lease = Lease::new(options.proxy_id, options.address);
        store.register_proxy(&lease, lease::FIRST_GENERATION).await?;
        let change = store.load().await?;
        let shared = Arc::new(Shared::new(change.snapshot, options.lookup_cache_entries, lease));
        shared.full_loads.store(1, Ordering::Relaxed);
        shared.rows_read.store(change.rows_read as u64, Ordering::Relaxed);
        lease::renew(&shared, &store).await?;

        let cancel = CancellationToken::new();
        let common = (shared.clone(), store.clone(), cancel.clone());
        let poll_interval = options.poll_interval;
        let tasks = vec![
            keep_running("map", common.clone(), move |(shared, store, cancel)| watch::follow(shared, store, poll_interval, cancel)),
            keep_running("map hosts", common.clone(), |(shared, store, cancel)| watch::watch_hosts(shared, store, cancel)),
            keep_running("lookups", common.clone(), |(shared, store, cancel)| lookup::answer_misses(shared, store, cancel)),
            keep_running("lease", common, |(shared, store, cancel)| lease::keep_renewing(shared, store, cancel)),
        ];
        let epoch = shared.current.load().epoch;
        tracing::info!(%epoch, rows = change.rows_read, proxy_id = %options.proxy_id, "shard map loaded");
        Ok(Arc::new(Self { shared, store, tasks: Mutex::new(tasks), cancel }))
    }

    /// A map that never changes, without a database, for tests. No lookup key has a mapping.
    pub fn fixed(snapshot: MapSnapshot) -> Arc<Self> {
        Self::fixed_with_keys(snapshot, [])
    }

    /// As [`ShardMap::fixed`], with these mappings of lookup keys.
    pub fn fixed_with_keys(snapshot: MapSnapshot, keys: impl IntoIterator<Item = (GroupId, Key, PartitionId)>) -> Arc<Self> {
        let epoch = snapshot.epoch;
        let shared = Arc::new(Shared::new(snapshot, u64::from(u32::MAX), Lease::unlimited()));
        let mapping =
            |(group, key, partition): (GroupId, Key, PartitionId)| (LookupKey { group, key: key.ordered_bytes() }, Some(partition));
        let mappings: Vec<_> = keys.into_iter().map(mapping).collect();
        let is_remembered = shared.current.remember(epoch, &mappings);
        assert!(is_remembered, "nobody else has the map yet");
        Arc::new(Self { shared, store: Store::absent(), tasks: Mutex::default(), cancel: CancellationToken::new() })
    }

    /// The map now, to be read. Holding it delays nobody.
    pub fn snapshot(&self) -> Arc<MapSnapshot> {
        Arc::clone(self.shared.current.load().snapshot())
    }

    /// The map now, to plan by. Hold it from planning a statement until its replies are in, and no longer.
    pub fn in_use(&self) -> Arc<MapInUse> {
        self.shared.current.load_full()
    }

    /// As [`ShardMap::in_use`], without touching the reference count: for the hot path. Not to be held over a wait.
    pub fn load(&self) -> Guard<Arc<MapInUse>> {
        self.shared.current.load()
    }

    /// The partitions to which these keys of a lookup group are mapped, in their order; `None`: without mapping, so the group's
    /// default applies ([`Group::partition_of_mapping`]). Answers within a second. A snapshot that is taken after the answer
    /// knows these partitions, unless they were merged meanwhile. Cancel safe.
    pub async fn lookup(&self, group: &Group, keys: &[Key]) -> Result<Vec<Option<PartitionId>>, LookupError> {
        let known: Vec<_> = keys.iter().map(|key| self.lookup_cached(group.id, key)).collect();
        let unknown: Vec<Key> = keys.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(key, _)| key.clone()).collect();
        if unknown.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        let mut answers = self.ask(group, &unknown).await?.into_iter();
        Ok(known.into_iter().map(|known| known.unwrap_or_else(|| answers.next().flatten())).collect())
    }

    /// The same without a look at what is known here already.
    pub async fn ask(&self, group: &Group, keys: &[Key]) -> Result<Vec<Option<PartitionId>>, LookupError> {
        let keys: Vec<LookupKey> = keys.iter().map(|key| LookupKey { group: group.id, key: key.ordered_bytes() }).collect();
        match self.store.is_absent() {
            true => Ok(vec![None; keys.len()]),
            false => self.shared.misses.ask(keys).await,
        }
    }

    /// What is known of this key without asking: `None`: nothing, call [`ShardMap::lookup`]; `Some(None)`: it has no mapping.
    /// Take the snapshot after this, not before.
    pub fn lookup_cached(&self, group: GroupId, key: &Key) -> Option<Option<PartitionId>> {
        self.lookup_cached_bytes(group, &key.ordered_bytes())
    }

    /// As [`ShardMap::lookup_cached`], by the key's order-preserving bytes. Does not allocate.
    pub fn lookup_cached_bytes(&self, group: GroupId, key: &[u8]) -> Option<Option<PartitionId>> {
        self.shared.current.find(group, key)
    }

    /// To change the map.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn lease(&self) -> &Lease {
        &self.shared.lease
    }

    /// Tells every new epoch of the snapshot.
    pub fn subscribe(&self) -> watch_channel::Receiver<Epoch> {
        self.shared.current.subscribe()
    }

    /// Waits until the snapshot is at this epoch or a later one. Not bounded: the caller is. Cancel safe.
    pub async fn reached(&self, epoch: Epoch) {
        if self.load().epoch >= epoch {
            return;
        }
        let mut epochs = self.subscribe();
        self.shared.nudge.notify_one();
        // The sender lives as long as this map.
        let outcome = epochs.wait_for(|now| *now >= epoch).await.map(drop);
        assert!(outcome.is_ok(), "the map outlives its borrower");
    }

    /// Reads what changed, now: after a change of our own, so that the next statement sees it. Cancel safe.
    pub async fn refresh(&self) -> Result<Epoch, StoreError> {
        self.shared.refresh(&self.store).await?;
        Ok(self.load().epoch)
    }

    /// The map database answered when it was last asked.
    pub fn is_reachable(&self) -> bool {
        self.shared.is_reachable.load(Ordering::Relaxed)
    }

    pub fn statistics(&self) -> MapStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MapStatistics {
            full_loads: read(&self.shared.full_loads),
            delta_loads: read(&self.shared.delta_loads),
            rows_read: read(&self.shared.rows_read),
            lookup_queries: read(&self.shared.misses.queries),
            lookup_keys: read(&self.shared.misses.keys),
        }
    }

    /// Ends following, removes the lease and closes the connections. After the last statement. A map database that does not
    /// answer does not hold this up: the lease runs out by itself.
    pub async fn close(&self) {
        self.cancel.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let closing = async {
            for task in tasks {
                if let Err(error) = task.await {
                    tracing::error!(%error, "a task of the shard map panicked");
                }
            }
            self.store.close().await;
        };
        if tokio::time::timeout(CLOSE_PATIENCE, closing).await.is_err() {
            tracing::warn!("the map database did not answer; its connections are left to end by themselves");
        }
    }
}

/// Longest wait for the map database at the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

impl Drop for ShardMap {
    fn drop(&mut self) {
        // For those who did not close: the tasks end, the lease runs out.
        self.cancel.cancel();
    }
}

impl Shared {
    fn new(snapshot: MapSnapshot, lookup_cache_entries: u64, lease: Lease) -> Self {
        Self {
            current: Current::new(snapshot, lookup_cache_entries),
            misses: Misses::default(),
            lease,
            nudge: Notify::new(),
            loading: tokio::sync::Mutex::new(()),
            is_reachable: AtomicBool::new(true),
            full_loads: AtomicU64::new(0),
            delta_loads: AtomicU64::new(0),
            rows_read: AtomicU64::new(0),
        }
    }

    /// Cancel safe: what was read is published or not.
    async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let _loading = self.loading.lock().await;
        let known = self.current.load_full();
        let loading = timeout(LOAD_TIMEOUT, Box::pin(store.load_since(&known)));
        let loaded = loading.await.unwrap_or_else(|_| Err(StoreError::no_answer()))?;
        let followed = known.epoch;
        // Or this snapshot would be taken for one that a statement still uses.
        drop(known);
        match loaded {
            Loaded::Current => {}
            Loaded::Changed(change) => {
                let loads = if change.is_full { &self.full_loads } else { &self.delta_loads };
                loads.fetch_add(1, Ordering::Relaxed);
                self.rows_read.fetch_add(change.rows_read as u64, Ordering::Relaxed);
                tracing::info!(epoch = %change.snapshot.epoch, rows = change.rows_read, is_full = change.is_full, "shard map changed");
                if change.snapshot.epoch.has_forgotten(followed) {
                    tracing::error!(
                        %followed, found = %change.snapshot.epoch,
                        "the map database has failed over, or was restored, and has forgotten changes; shardgate check says what the shards \
                         have and the map does not"
                    );
                }
                self.current.publish(change);
            }
        }
        Ok(())
    }

    fn note_success(&self) {
        if !self.is_reachable.swap(true, Ordering::Relaxed) {
            tracing::info!("map database answers again");
        }
    }

    /// Logged once, when it begins.
    fn note_failure(&self, error: &StoreError) {
        if self.is_reachable.swap(false, Ordering::Relaxed) {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(%error, cause, "map database cannot be read; what is known goes on being served");
        }
    }
}

/// A full load of a large map over a slow network.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
