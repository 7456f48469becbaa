//! What a session keeps by the client's names, with the bytes that it takes, and with the savepoint after which it was made.

use std::collections::HashMap;

use bytes::Bytes;

/// Something whose memory counts.
pub(in crate::session) trait Weight {
    /// Of what the client has sent for it, and what is kept with that.
    fn bytes(&self) -> usize;
}

pub(in crate::session) struct Named<T> {
    by_name: HashMap<Bytes, Entry<T>, foldhash::fast::RandomState>,
    bytes: usize,
}

struct Entry<T> {
    value: T,
    /// How many savepoints there were when it was made.
    savepoints: usize,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { by_name: HashMap::default(), bytes: 0 }
    }
}

impl<T: Weight> Named<T> {
    /// Of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    #[inline]
    pub fn contains_key(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        self.by_name.get(name).map(|entry| &entry.value)
    }

    /// Its weight stays what it is.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        self.by_name.get_mut(name).map(|entry| &mut entry.value)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_name.values().map(|entry| &entry.value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.by_name.iter().map(|(name, entry)| (&**name, &entry.value))
    }

    pub fn insert(&mut self, name: Bytes, value: T) {
        self.insert_after(name, value, 0);
    }

    /// The same of what ends with a savepoint. `savepoints`: how many there are.
    pub fn insert_after(&mut self, name: Bytes, value: T, savepoints: usize) {
        let bytes = Self::weight(&name, &value);
        self.bytes += bytes;
        // The key that is there stays, of the same bytes.
        let length = name.len();
        if let Some(replaced) = self.by_name.insert(name, Entry { value, savepoints }) {
            self.bytes -= Self::ENTRY_BYTES + length + replaced.value.bytes();
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        let removed = self.by_name.remove(name)?.value;
        self.bytes -= Self::weight(name, &removed);
        Some(removed)
    }

    /// How many savepoints there were when it was made.
    pub fn savepoints(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).map(|entry| entry.savepoints)
    }

    /// The savepoint of this index is released: what was made after it is as old as it is.
    pub fn release(&mut self, savepoint: usize) {
        self.by_name.values_mut().for_each(|entry| entry.savepoints = savepoint.min(entry.savepoints));
    }

    /// ROLLBACK TO the savepoint of this index.
    pub fn forget_after(&mut self, savepoint: usize) {
        self.keep_those(|_, entry| entry.savepoints <= savepoint);
    }

    pub fn keep_unnamed(&mut self) {
        self.keep_those(|name, _| name.is_empty());
    }

    fn keep_those(&mut self, is_kept: impl Fn(&[u8], &Entry<T>) -> bool) {
        self.by_name.retain(|name, entry| is_kept(name, entry));
        self.bytes = self.by_name.iter().map(|(name, entry)| Self::weight(name, &entry.value)).sum();
    }

    fn weight(name: &[u8], value: &T) -> usize {
        Self::ENTRY_BYTES + name.len() + value.bytes()
    }

    /// Of the table's own.
    const ENTRY_BYTES: usize = size_of::<(Bytes, Entry<T>)>();

    pub fn clear(&mut self) {
        self.by_name.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weight for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    /// What the table and names of these lengths take beside.
    fn entries(names: &[usize]) -> usize {
        names.iter().map(|name| Named::<usize>::ENTRY_BYTES + name).sum()
    }

    #[test]
    fn what_is_younger_than_a_savepoint_goes_with_it() {
        let mut named = Named::default();
        for (name, savepoints) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
            named.insert_after(name.into(), 1_usize, savepoints);
        }
        named.release(2);
        assert_eq!(named.savepoints(b"d"), Some(2));
        named.forget_after(2);
        assert_eq!(named.len(), 4);
        named.forget_after(1);
        assert!(named.contains_key(b"b") && !named.contains_key(b"c") && !named.contains_key(b"d"));
        assert_eq!(named.bytes(), 2 + entries(&[1, 1]));
        named.insert_after("b".into(), 5, 0);
        named.forget_after(0);
        assert_eq!((named.len(), named.bytes()), (2, 6 + entries(&[1, 1])));
    }

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut named = Named::default();
        named.insert("a".into(), 5_usize);
        named.insert("".into(), 7);
        named.insert("a".into(), 2);
        assert_eq!((named.len(), named.bytes()), (2, 9 + entries(&[1, 0])));
        assert_eq!((named.remove(b"b"), named.remove(b"a")), (None, Some(2)));
        named.insert("c".into(), 1);
        named.keep_unnamed();
        assert_eq!((named.len(), named.bytes()), (1, 7 + entries(&[0])));
        named.clear();
        assert_eq!((named.is_empty(), named.bytes()), (true, 0));
    }
}
