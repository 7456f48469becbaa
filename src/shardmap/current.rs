//! The snapshot that is valid now, the lookup keys that go with it, and who still uses older ones.
//!
//! A snapshot and the keys that its epoch changed are put in place together, under one lock that readers never take:
//!
//! ```text
//! publish(change)            forget the changed keys ─► swap the snapshot ─► tell who waits for the epoch
//! remember(read at epoch e)  only while the snapshot is at e: what was read before a change is never put in after it
//! ```
//! So whoever looks up a key first and takes the snapshot second has a snapshot that is at least as new as the mapping.
//!
//! Statements hold the version that they were planned under ([`MapInUse`]) until their replies are in. The oldest version that
//! anybody holds is therefore the epoch that this proxy has *reached*, see [`Current::reached`]. What only has to read the same
//! version later (a portal, a cursor, a reading of a text) holds the snapshot in it, which delays nobody.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::cache::{LookupCache, LookupKey};
use super::claims::Superseded;
use super::lease::FIRST_GENERATION;
use super::loader::Change;
use super::model::{Epoch, GroupId, MapSnapshot, PartitionId, Shard};

/// A version of the map that counts as in use as long as anybody holds it.
#[derive(Debug)]
pub struct MapInUse {
    snapshot: Arc<MapSnapshot>,
    /// Of this proxy's lease when the map was read: what is planned by it runs on no connection of a later one.
    generation: i64,
}

impl MapInUse {
    pub fn new(snapshot: MapSnapshot, generation: i64) -> Self {
        Self { snapshot: Arc::new(snapshot), generation }
    }

    /// The same version for those who only read it later: it does not count as in use.
    pub fn snapshot(&self) -> &Arc<MapSnapshot> {
        &self.snapshot
    }

    #[inline]
    pub fn generation(&self) -> i64 {
        self.generation
    }
}

impl Deref for MapInUse {
    type Target = MapSnapshot;

    fn deref(&self) -> &MapSnapshot {
        &self.snapshot
    }
}

/// What connections have found out about a shard's primary holds on, beside what the map says now.
fn keep_primaries(old: &MapSnapshot, new: &mut MapSnapshot) {
    for shard in &mut new.shards {
        let same = |before: &&Arc<Shard>| before.identity.is_none() || before.identity == shard.identity;
        let Some(before) = old.shard(shard.id).filter(same).filter(|before| !Arc::ptr_eq(&before.primary, &shard.primary)) else {
            continue;
        };
        match shard.primary.server() {
            Some(told) => before.primary.learn(told),
            None => before.primary.learn_nothing(),
        }
        let primary = Arc::clone(&before.primary);
        *shard = Arc::new(Shard { primary, ..Shard::clone(shard) });
    }
}

pub(super) struct Current {
    snapshot: ArcSwap<MapInUse>,
    cache: LookupCache,
    /// Held while either of the two above is written.
    writing: Mutex<()>,
    epoch: watch::Sender<Epoch>,
    /// Earlier snapshots, oldest first, with their epochs; those that nobody holds any more are swept out.
    superseded: Mutex<Vec<(Epoch, Weak<MapInUse>)>>,
    claims: Superseded,
}

impl Current {
    pub(super) fn new(snapshot: MapSnapshot, lookup_cache_entries: u64) -> Self {
        Self {
            epoch: watch::Sender::new(snapshot.epoch),
            snapshot: ArcSwap::from_pointee(MapInUse::new(snapshot, FIRST_GENERATION)),
            cache: LookupCache::new(lookup_cache_entries),
            writing: Mutex::new(()),
            superseded: Mutex::new(Vec::new()),
            claims: Superseded::default(),
        }
    }

    pub(super) fn load(&self) -> Guard<Arc<MapInUse>> {
        self.snapshot.load()
    }

    pub(super) fn load_full(&self) -> Arc<MapInUse> {
        self.snapshot.load_full()
    }

    pub(super) fn find(&self, group: GroupId, key: &[u8]) -> Option<Option<PartitionId>> {
        self.cache.find(group, key)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    /// Replaces the snapshot, unless the change leads to an epoch that is not newer.
    pub(super) fn publish(&self, mut change: Change) {
        let next = change.snapshot.epoch;
        {
            let _writing = self.writing.lock();
            let old = self.snapshot.load_full();
            if next <= old.epoch {
                return;
            }
            // Before the swap: until then the old one is found as the current snapshot, so there is no gap.
            self.superseded.lock().push((old.epoch, Arc::downgrade(&old)));
            self.claims.supersede(&old, &change.snapshot);
            keep_primaries(&old, &mut change.snapshot);
            self.cache.forget(&change.keys);
            self.snapshot.store(Arc::new(MapInUse::new(change.snapshot, old.generation)));
        }
        self.epoch.send_replace(next);
    }

    /// The map that was read last is of a new generation of the lease. What was planned until now counts as planned by an older map.
    pub(super) fn begin_generation(&self, generation: i64) {
        let _writing = self.writing.lock();
        let old = self.snapshot.load_full();
        self.superseded.lock().push((old.epoch, Arc::downgrade(&old)));
        let snapshot = Arc::clone(&old.snapshot);
        self.snapshot.store(Arc::new(MapInUse { snapshot, generation }));
    }

    /// Puts mappings in that were read at `epoch`; `false`: that is not the snapshot's epoch, nothing was put in.
    pub(super) fn remember(&self, epoch: Epoch, mappings: &[(LookupKey, Option<PartitionId>)]) -> bool {
        let _writing = self.writing.lock();
        if self.snapshot.load().epoch != epoch {
            return false;
        }
        mappings.iter().for_each(|(key, partition)| self.cache.remember(key, *partition));
        true
    }

    /// The newest epoch such that no snapshot of an older one is held by anybody.
    pub(super) fn reached(&self) -> Epoch {
        // First: a snapshot that is superseded after this line only makes the answer older than it could be.
        let current = self.snapshot.load().epoch;
        let mut superseded = self.superseded.lock();
        superseded.retain(|(_, snapshot)| snapshot.strong_count() > 0);
        superseded.iter().map(|(epoch, _)| *epoch).fold(current, Epoch::min)
    }

    /// No transaction that has written or locked in a group before it was held is left. Ask for [`Current::reached`] first: what a
    /// statement of an earlier version claims it claims before it ends.
    pub(super) fn is_drained(&self) -> bool {
        self.claims.are_drained(&self.snapshot.load())
    }

    /// The same, as if nobody held this snapshot once.
    pub(super) fn reached_but_for(&self, own: Option<&Arc<MapInUse>>) -> Epoch {
        let current = self.snapshot.load().epoch;
        let own = own.map(Arc::as_ptr);
        let superseded = self.superseded.lock();
        let held = superseded.iter().filter(|(_, snapshot)| snapshot.strong_count() > usize::from(own == Some(snapshot.as_ptr())));
        held.map(|(epoch, _)| *epoch).fold(current, Epoch::min)
    }
}

#[cfg(test)]
mod tests {
    use super::super::loader::ChangedKeys;
    use super::*;

    fn epoch(counter: i64) -> Epoch {
        Epoch { incarnation: 1, counter }
    }

    fn snapshot(counter: i64) -> MapSnapshot {
        MapSnapshot { epoch: epoch(counter), ..MapSnapshot::default() }
    }

    fn change(counter: i64, keys: ChangedKeys) -> Change {
        Change { snapshot: snapshot(counter), keys, rows_read: 0, is_full: false }
    }

    fn key() -> LookupKey {
        LookupKey { group: GroupId(1), key: b"k"[..].into() }
    }

    #[test]
    fn an_older_snapshot_does_not_replace_a_newer_one() {
        let current = Current::new(snapshot(5), 10);
        current.publish(change(4, ChangedKeys::All));
        assert_eq!(current.load().epoch, epoch(5));
        current.publish(change(6, ChangedKeys::All));
        assert_eq!(*current.subscribe().borrow(), epoch(6));
    }

    #[test]
    fn a_mapping_that_was_read_before_a_change_is_not_put_in_after_it() {
        let current = Current::new(snapshot(1), 10);
        let mapping = [(key(), Some(PartitionId(3)))];
        assert!(current.remember(epoch(1), &mapping));
        assert_eq!(current.find(GroupId(1), b"k"), Some(Some(PartitionId(3))));
        current.publish(change(2, ChangedKeys::These(vec![(GroupId(1), b"k"[..].into())])));
        assert!(!current.remember(epoch(1), &mapping));
        assert_eq!(current.find(GroupId(1), b"k"), None);
        assert!(!current.remember(epoch(3), &mapping));
    }

    #[test]
    fn the_epoch_reached_is_that_of_the_oldest_snapshot_in_use() {
        let current = Current::new(snapshot(1), 10);
        let full = current.load_full();
        current.publish(change(2, ChangedKeys::All));
        let guard = current.load();
        current.publish(change(3, ChangedKeys::All));
        assert_eq!(current.reached(), epoch(1));
        let kept = Arc::clone(full.snapshot());
        drop(full);
        assert_eq!(current.reached(), epoch(2));
        drop(guard);
        assert_eq!(current.reached(), epoch(3), "what is kept to be read is not in use");
        assert_eq!(kept.epoch, epoch(1));
        assert!(current.superseded.lock().is_empty());
    }
}
