//! Which partitions should move where, so that the shards come out even by their capacities. Pure.
//!
//! Each colocation group is spread by itself, the most loaded shard gives to the least loaded one, and a partition moves only where
//! that makes the fullest of the two less full: so every step is a gain, and the plan ends. Of the partitions that help, the one
//! that fits best moves, so that few bytes travel. What moves from one shard to another, of one group, is one move.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is to be evened out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    Bytes,
    Rows,
    Count,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedShard {
    pub name: String,
    /// Relative to the others'.
    pub capacity: f64,
    /// Gets new partitions: online, and not the one that is to be emptied.
    pub takes: bool,
    /// To be emptied.
    pub is_drained: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPartition {
    pub id: i32,
    pub group: i32,
    pub shard: String,
    pub bytes: u64,
    /// By what is to be evened out.
    pub cost: u64,
}

/// One move of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMove {
    pub colocation_group: i32,
    /// Ascending.
    pub partitions: Vec<i32>,
    pub source: String,
    pub target: String,
    pub bytes: u64,
}

/// The moves, the largest first. `threshold`: how far a shard may be above its fair share, as a part of it.
pub fn plan(shards: &[PlannedShard], partitions: &[PlannedPartition], threshold: f64) -> Vec<PlannedMove> {
    let mut groups: BTreeMap<i32, Vec<PlannedPartition>> = BTreeMap::new();
    for partition in partitions {
        groups.entry(partition.group).or_default().push(partition.clone());
    }
    let mut moves: BTreeMap<(i32, String, String), (Vec<i32>, u64)> = BTreeMap::new();
    for (group, members) in groups {
        let mut spread = Spread::new(shards, members);
        while let Some((at, target)) = spread.next_step(threshold) {
            let target = shards.get(target).map(|shard| shard.name.clone()).unwrap_or_default();
            spread.assign(at, &target);
        }
        for (original, now) in spread.changed() {
            let entry = moves.entry((group, original.shard.clone(), now)).or_default();
            entry.0.push(original.id);
            entry.1 += original.bytes;
        }
    }
    let planned = |((colocation_group, source, target), (mut partitions, bytes)): ((i32, String, String), (Vec<i32>, u64))| {
        partitions.sort_unstable();
        PlannedMove { colocation_group, partitions, source, target, bytes }
    };
    let mut moves: Vec<PlannedMove> = moves.into_iter().map(planned).collect();
    moves.sort_by(|left, right| right.bytes.cmp(&left.bytes).then(left.partitions.cmp(&right.partitions)));
    moves
}

/// The partitions of one group, and where they lie so far.
struct Spread<'s> {
    shards: &'s [PlannedShard],
    original: Vec<PlannedPartition>,
    now: Vec<String>,
}

impl<'s> Spread<'s> {
    fn new(shards: &'s [PlannedShard], original: Vec<PlannedPartition>) -> Self {
        let now = original.iter().map(|partition| partition.shard.clone()).collect();
        Self { shards, original, now }
    }

    fn assign(&mut self, at: usize, target: &str) {
        if let Some(now) = self.now.get_mut(at) {
            target.clone_into(now);
        }
    }

    fn changed(&self) -> impl Iterator<Item = (&PlannedPartition, String)> {
        self.original
            .iter()
            .zip(&self.now)
            .filter(|(original, now)| original.shard != **now)
            .map(|(original, now)| (original, now.clone()))
    }

    fn load(&self, shard: &str) -> u64 {
        self.original.iter().zip(&self.now).filter(|(_, now)| *now == shard).map(|(partition, _)| partition.cost).sum()
    }

    /// A partition, and the shard that gets it; `None`: even enough.
    #[expect(clippy::cast_precision_loss, reason = "loads are compared, not added up")]
    fn next_step(&self, threshold: f64) -> Option<(usize, usize)> {
        let takers = || self.shards.iter().enumerate().filter(|(_, shard)| shard.takes);
        let capacity: f64 = takers().map(|(_, shard)| shard.capacity).sum();
        let total: u64 = self.original.iter().map(|partition| partition.cost).sum();
        if capacity <= 0.0 {
            return None;
        }
        let fair = |shard: &PlannedShard| total as f64 * shard.capacity / capacity;
        let fill = |shard: &PlannedShard| self.load(&shard.name) as f64 / shard.capacity;
        let (to, target) = takers().min_by(|(_, left), (_, right)| fill(left).total_cmp(&fill(right)))?;
        let on = |shard: &PlannedShard| -> Vec<usize> {
            self.now.iter().enumerate().filter(|(_, now)| **now == shard.name).map(|(at, _)| at).collect()
        };
        // Whoever is to be emptied gives everything, empty partitions too.
        if let Some(at) = self.shards.iter().filter(|shard| shard.is_drained).find_map(|shard| on(shard).into_iter().next()) {
            return Some((at, to));
        }
        let (_, source) = takers().max_by(|(_, left), (_, right)| fill(left).total_cmp(&fill(right)))?;
        let load = self.load(&source.name) as f64;
        if load <= fair(source) * (1.0 + threshold) {
            return None;
        }
        let wanted = (load - fair(source)).min(fair(target) - self.load(&target.name) as f64);
        let helps = |at: &usize| {
            let cost = self.original[*at].cost as f64;
            cost > 0.0 && (self.load(&target.name) as f64 + cost) / target.capacity < fill(source)
        };
        let distance = |at: &usize| (self.original[*at].cost as f64 - wanted).abs();
        let best = on(source).into_iter().filter(helps).min_by(|left, right| distance(left).total_cmp(&distance(right)))?;
        Some((best, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str, capacity: f64) -> PlannedShard {
        PlannedShard { name: name.to_owned(), capacity, takes: true, is_drained: false }
    }

    fn partitions(group: i32, shard: &str, costs: &[u64]) -> Vec<PlannedPartition> {
        let partition = |(at, cost): (usize, &u64)| PlannedPartition {
            id: group * 100 + at as i32,
            group,
            shard: shard.to_owned(),
            bytes: *cost,
            cost: *cost,
        };
        costs.iter().enumerate().map(partition).collect()
    }

    fn loads(partitions: &[PlannedPartition], moves: &[PlannedMove]) -> BTreeMap<String, u64> {
        let mut loads = BTreeMap::new();
        for partition in partitions {
            let moved = moves.iter().find(|planned| planned.partitions.contains(&partition.id));
            let shard = moved.map_or(&partition.shard, |planned| &planned.target);
            *loads.entry(shard.clone()).or_default() += partition.cost;
        }
        loads
    }

    #[test]
    fn one_full_shard_gives_to_two_empty_ones_in_two_moves() {
        let shards = [shard("a", 1.0), shard("b", 1.0), shard("c", 1.0)];
        let all = partitions(1, "a", &[10; 60]);
        let moves = plan(&shards, &all, 0.0);
        assert_eq!(moves.len(), 2);
        assert!(loads(&all, &moves).values().all(|load| *load == 200));
        assert!(moves.iter().all(|planned| planned.source == "a" && planned.bytes == 200));
    }

    #[test]
    fn capacities_are_filled_in_proportion_and_what_is_even_stays() {
        let shards = [shard("a", 1.0), shard("b", 3.0)];
        let all = partitions(1, "a", &[10; 40]);
        let moves = plan(&shards, &all, 0.0);
        assert_eq!(loads(&all, &moves), BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 300)]));
        let even: Vec<PlannedPartition> = all
            .iter()
            .map(|partition| PlannedPartition {
                shard: if partition.id % 4 == 0 { "a" } else { "b" }.to_owned(),
                ..partition.clone()
            })
            .collect();
        assert_eq!(plan(&shards, &even, 0.0), []);
    }

    #[test]
    fn a_shard_that_is_drained_gives_everything() {
        let drained = PlannedShard { takes: false, is_drained: true, ..shard("a", 1.0) };
        let mut all = partitions(1, "a", &[5, 0, 7]);
        all.extend(partitions(2, "b", &[5, 5]));
        let moves = plan(&[drained, shard("b", 1.0), shard("c", 1.0)], &all, 0.1);
        assert_eq!(loads(&all, &moves).get("a"), None);
        assert_eq!(
            moves.iter().map(|planned| planned.partitions.len()).sum::<usize>(),
            4,
            "and the other group is spread: {moves:?}"
        );
    }

    #[test]
    fn no_step_makes_things_worse_whatever_the_costs() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let shards: Vec<PlannedShard> = (0..2 + random(5)).map(|at| shard(&format!("s{at}"), 1.0 + random(4) as f64)).collect();
            let costs: Vec<u64> = (0..1 + random(80)).map(|_| random(1000)).collect();
            let all = partitions(1, "s0", &costs);
            let moves = plan(&shards, &all, 0.05);
            let loads = loads(&all, &moves);
            let fullest = |loads: &BTreeMap<String, u64>| {
                shards
                    .iter()
                    .map(|shard| loads.get(&shard.name).copied().unwrap_or_default() as f64 / shard.capacity)
                    .fold(0.0, f64::max)
            };
            assert!(fullest(&loads) <= costs.iter().sum::<u64>() as f64 / shards[0].capacity);
            // Nothing more than one partition above the fair share.
            let fair = costs.iter().sum::<u64>() as f64 / shards.iter().map(|shard| shard.capacity).sum::<f64>();
            let largest = costs.iter().copied().max().unwrap_or_default() as f64;
            assert!(fullest(&loads) <= fair * 1.05 + largest + 1.0, "{costs:?} {shards:?} {loads:?}");
        }
    }
}
