//! What a transaction has set, in its order, and the last value of each setting: a text may set thousands, and each asks for it.

use std::collections::HashMap;
use std::ops::Deref;

use super::{LocalSetting, Told};
use crate::shardmap::ShardId;

/// Reads as a list.
#[derive(Debug, Default)]
pub(in crate::session) struct Sets {
    all: Vec<Told>,
    /// Where a name is set, ascending.
    places: HashMap<String, Vec<usize>>,
}

impl Sets {
    pub fn push(&mut self, told: Told) {
        if let Some(setting) = told.setting() {
            self.places.entry(setting.name.clone()).or_default().push(self.all.len());
        }
        self.all.push(told);
    }

    /// Those from this one on are what a function has set on this shard.
    pub fn set_by(&mut self, from: usize, shard: Option<ShardId>) {
        for told in self.all.iter_mut().skip(from) {
            if let Told::Setting(setting) = told {
                setting.by = shard;
            }
        }
    }

    /// From this one on, shards are not told such a statement any more.
    pub fn forget_statement(&mut self, from: usize, statement: &str) {
        for told in self.all.iter_mut().skip(from) {
            if matches!(told, Told::Statement(text) if text == statement) {
                *told = Told::Nothing;
            }
        }
    }

    /// The last one of the name.
    pub fn last_of(&self, name: &str) -> Option<&LocalSetting> {
        self.places.get(name).and_then(|places| self.setting_at(places))
    }

    /// The last one of each name.
    pub fn last(&self) -> impl Iterator<Item = &LocalSetting> {
        self.places.values().filter_map(|places| self.setting_at(places))
    }

    fn setting_at(&self, places: &[usize]) -> Option<&LocalSetting> {
        self.all.get(*places.last()?).and_then(Told::setting)
    }

    pub fn truncate(&mut self, count: usize) {
        if count < self.all.len() {
            self.all.truncate(count);
            self.places.retain(|_, places| {
                places.truncate(places.partition_point(|place| *place < count));
                !places.is_empty()
            });
        }
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.places.clear();
    }
}

impl Deref for Sets {
    type Target = [Told];

    fn deref(&self) -> &[Told] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_name_counts_and_is_taken_back() {
        let mut sets = Sets::default();
        let set =
            |value: &str| Told::Setting(LocalSetting { name: "a".into(), value: Some(value.into()), is_local: true, by: None });
        let value = |sets: &Sets| sets.last_of("a").and_then(|set| set.value.clone());
        sets.push(set("1"));
        sets.push(Told::Statement("SET CONSTRAINTS ALL DEFERRED".into()));
        sets.push(set("2"));
        assert_eq!((value(&sets).as_deref(), sets.len(), sets.last().count()), (Some("2"), 3, 1));
        sets.truncate(2);
        assert_eq!((value(&sets).as_deref(), sets.len()), (Some("1"), 2));
        sets.truncate(0);
        assert_eq!((value(&sets), sets.last().count()), (None, 0));
    }
}
