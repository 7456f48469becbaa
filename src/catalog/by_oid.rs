//! Objects by their oid, which one version of the catalogue shares with the next.
//!
//! A change of one table makes another catalogue; what it has not changed is not copied.

use std::collections::HashMap;
use std::collections::hash_map::{Iter, Keys};
use std::ops::Index;
use std::sync::Arc;

use super::Oid;

#[derive(Debug)]
pub struct ByOid<V>(HashMap<Oid, Arc<V>>);

impl<V> Default for ByOid<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V> Clone for ByOid<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: PartialEq> PartialEq for ByOid<V> {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(oid, one): (&Oid, &Arc<V>)| other.0.get(oid).is_some_and(|other| Arc::ptr_eq(one, other) || one == other);
        self.0.len() == other.0.len() && self.0.iter().all(is_same)
    }
}

impl<V> ByOid<V> {
    pub fn get(&self, oid: &Oid) -> Option<&V> {
        self.0.get(oid).map(|value| &**value)
    }

    pub fn contains_key(&self, oid: &Oid) -> bool {
        self.0.contains_key(oid)
    }

    pub fn insert(&mut self, oid: Oid, value: V) {
        self.0.insert(oid, Arc::new(value));
    }

    pub fn keys(&self) -> Keys<'_, Oid, Arc<V>> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.0.values().map(|value| &**value)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V: Clone> ByOid<V> {
    pub fn get_mut(&mut self, oid: &Oid) -> Option<&mut V> {
        self.0.get_mut(oid).map(Arc::make_mut)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut().map(Arc::make_mut)
    }

    pub fn remove(&mut self, oid: &Oid) -> Option<V> {
        self.0.remove(oid).map(Arc::unwrap_or_clone)
    }

    /// An empty one where there is none.
    pub fn or_default(&mut self, oid: Oid) -> &mut V
    where
        V: Default,
    {
        Arc::make_mut(self.0.entry(oid).or_default())
    }
}

impl<V, const N: usize> From<[(Oid, V); N]> for ByOid<V> {
    fn from(values: [(Oid, V); N]) -> Self {
        Self(values.into_iter().map(|(oid, value)| (oid, Arc::new(value))).collect())
    }
}

impl<V> Index<&Oid> for ByOid<V> {
    type Output = V;

    fn index(&self, oid: &Oid) -> &V {
        &self.0[oid]
    }
}

impl<'m, V> IntoIterator for &'m ByOid<V> {
    type Item = (&'m Oid, &'m Arc<V>);
    type IntoIter = Iter<'m, Oid, Arc<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
