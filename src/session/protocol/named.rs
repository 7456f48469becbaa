//! What a session keeps by the client's names, with the bytes that it takes.

use std::collections::HashMap;

use bytes::Bytes;

/// Something whose memory counts.
pub(in crate::session) trait Weight {
    /// Of what the client has sent for it.
    fn bytes(&self) -> usize;
}

pub(in crate::session) struct Named<T> {
    by_name: HashMap<Bytes, T, foldhash::fast::RandomState>,
    bytes: usize,
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
        self.by_name.get(name)
    }

    /// Its weight stays what it is.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        self.by_name.get_mut(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_name.values()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.by_name.iter().map(|(name, value)| (&**name, value))
    }

    pub fn insert(&mut self, name: Bytes, value: T) {
        self.bytes += value.bytes();
        if let Some(replaced) = self.by_name.insert(name, value) {
            self.bytes -= replaced.bytes();
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        let removed = self.by_name.remove(name);
        self.bytes -= removed.as_ref().map_or(0, T::bytes);
        removed
    }

    pub fn keep_unnamed(&mut self) {
        self.by_name.retain(|name, _| name.is_empty());
        self.bytes = self.by_name.values().map(T::bytes).sum();
    }

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

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut named = Named::default();
        named.insert("a".into(), 5_usize);
        named.insert("".into(), 7);
        named.insert("a".into(), 2);
        assert_eq!((named.len(), named.bytes()), (2, 9));
        assert_eq!((named.remove(b"b"), named.remove(b"a")), (None, Some(2)));
        named.insert("c".into(), 1);
        named.keep_unnamed();
        assert_eq!((named.len(), named.bytes()), (1, 7));
        named.clear();
        assert_eq!((named.is_empty(), named.bytes()), (true, 0));
    }
}
