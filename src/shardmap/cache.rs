//! The mappings of lookup keys that this proxy knows: which partition a key is in, or that it is in none.
//!
//! Cache-aside and bounded by a number of entries; what was not used for longest goes first. A key without mapping is
//! remembered too. Only [`super::current::Current`] writes, and only mappings of the epoch of the current snapshot, so an entry
//! is never newer than the snapshot and never older than its last change of the key. Never waits.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use equivalent::Equivalent;
use moka::sync::Cache;

use super::loader::ChangedKeys;
use super::model::{GroupId, PartitionId};

/// A lookup key of a group, by its order-preserving bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LookupKey {
    pub group: GroupId,
    pub key: Box<[u8]>,
}

pub(super) struct LookupCache {
    entries: Cache<Entry, Option<PartitionId>>,
    /// Grows when everything is forgotten: entries of an earlier generation are not found any more, from that instant.
    generation: AtomicU64,
}

#[derive(PartialEq, Eq, Hash)]
struct Entry {
    generation: u64,
    group: GroupId,
    key: Box<[u8]>,
}

/// An [`Entry`] without owning the key. Hashes alike: same fields in the same order, and a box hashes as its content.
#[derive(Hash)]
struct EntryRef<'a> {
    generation: u64,
    group: GroupId,
    key: &'a [u8],
}

impl Equivalent<Entry> for EntryRef<'_> {
    fn equivalent(&self, entry: &Entry) -> bool {
        self.generation == entry.generation && self.group == entry.group && *self.key == *entry.key
    }
}

impl LookupCache {
    pub(super) fn new(entries_max: u64) -> Self {
        Self { entries: Cache::new(entries_max), generation: AtomicU64::new(0) }
    }

    /// `None`: not known; `Some(None)`: known to have no mapping.
    pub(super) fn find(&self, group: GroupId, key: &[u8]) -> Option<Option<PartitionId>> {
        self.entries.get(&self.entry(group, key))
    }

    pub(super) fn remember(&self, key: &LookupKey, partition: Option<PartitionId>) {
        if key.key.len() > KEY_LENGTH_MAX {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        self.entries.insert(Entry { generation, group: key.group, key: key.key.clone() }, partition);
    }

    pub(super) fn forget(&self, keys: &ChangedKeys) {
        match keys {
            ChangedKeys::These(keys) => {
                keys.iter().for_each(|(group, key)| self.entries.invalidate(&self.entry(*group, key)));
            }
            ChangedKeys::All => {
                self.generation.fetch_add(1, Ordering::AcqRel);
                self.entries.invalidate_all();
            }
        }
    }

    fn entry<'a>(&self, group: GroupId, key: &'a [u8]) -> EntryRef<'a> {
        EntryRef { generation: self.generation.load(Ordering::Acquire), group, key }
    }
}

/// Bytes. Longer keys are asked for each time, so that the bound on entries is also one on memory.
const KEY_LENGTH_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LookupKey {
        LookupKey { group: GroupId(1), key: name.as_bytes().into() }
    }

    #[test]
    fn what_has_no_mapping_is_remembered_too() {
        let cache = LookupCache::new(10);
        assert_eq!(cache.find(GroupId(1), b"a"), None);
        cache.remember(&key("a"), Some(PartitionId(7)));
        cache.remember(&key("b"), None);
        assert_eq!(cache.find(GroupId(1), b"a"), Some(Some(PartitionId(7))));
        assert_eq!(cache.find(GroupId(1), b"b"), Some(None));
        assert_eq!(cache.find(GroupId(2), b"a"), None);
    }

    #[test]
    fn changed_keys_are_forgotten_and_others_stay() {
        let cache = LookupCache::new(10);
        cache.remember(&key("a"), None);
        cache.remember(&key("b"), None);
        cache.forget(&ChangedKeys::These(vec![(GroupId(1), b"a"[..].into())]));
        assert_eq!(cache.find(GroupId(1), b"a"), None);
        assert_eq!(cache.find(GroupId(1), b"b"), Some(None));
        cache.forget(&ChangedKeys::All);
        assert_eq!(cache.find(GroupId(1), b"b"), None);
        cache.remember(&key("b"), Some(PartitionId(1)));
        assert_eq!(cache.find(GroupId(1), b"b"), Some(Some(PartitionId(1))));
    }

    #[test]
    fn the_number_and_the_length_of_keys_are_bounded() {
        let cache = LookupCache::new(100);
        for number in 0..10_000 {
            cache.remember(&key(&number.to_string()), None);
        }
        cache.entries.run_pending_tasks();
        assert!(cache.entries.entry_count() <= 100);
        let long = key(&"x".repeat(KEY_LENGTH_MAX + 1));
        cache.remember(&long, None);
        assert_eq!(cache.find(long.group, &long.key), None);
    }
}
