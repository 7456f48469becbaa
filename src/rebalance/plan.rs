//! Which partitions should move where, so that the shards come out even by their capacities. Pure.
//!
//! Each colocation group is spread by itself. The fullest shard gives to the emptiest one, and a partition moves only where that
//! makes the fuller of the two less full: so every step is a gain, and the plan ends. Of the partitions that help, the one that fits
//! best moves, so that few bytes travel. Where none helps and the shards are not even yet, a hash partition is cut so that its upper
//! piece is what is missing; each cut fills a shard or empties one down to its share, so there are about as many as shards.
//!
//! A partition leaves its region only where its shard is emptied and no other shard of the region takes partitions; from a shard
//! without a region it may go anywhere. What moves from one shard to another, of one group, is one move.

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
    pub region: Option<String>,
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
    /// As the shard's statistics have it. `None`: there are none.
    pub rows: Option<u64>,
    /// By what is to be evened out.
    pub cost: u64,
    /// Of a hash partition, where its cost is spread over its hashes: it can be cut.
    pub hashes: Option<HashSlice>,
}

/// A half-open interval of the hash space, counted from its beginning; the end of the space is 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSlice {
    pub start: u128,
    pub end: u128,
}

impl HashSlice {
    /// Of the hashes from `low` to before `high`; `None`: from the beginning, to the end.
    pub fn between(low: Option<i64>, high: Option<i64>) -> Self {
        let offset = |hash: i64| u128::from(hash.cast_unsigned() ^ (1 << 63));
        Self { start: low.map_or(0, offset), end: high.map_or(1 << 64, offset) }
    }

    pub fn width(self) -> u128 {
        self.end - self.start
    }

    /// The hash at which it begins.
    fn low(self) -> i64 {
        (u64::try_from(self.start).unwrap_or(u64::MAX) ^ (1 << 63)).cast_signed()
    }
}

/// A cut that comes before the moves: the lower piece keeps the partition's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedSplit {
    pub colocation_group: i32,
    pub partition: i32,
    /// The hash at which the upper piece begins; a text, since it is no number for every reader of JSON.
    pub at: String,
}

/// One move of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedMove {
    pub colocation_group: i32,
    /// Ascending; of a partition that is cut, its lower piece.
    pub partitions: Vec<i32>,
    /// Pieces that the splits make, which have no number yet: the hashes at which they begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<String>,
    pub source: String,
    pub target: String,
    pub bytes: u64,
    /// `None`: not known of all of its partitions.
    #[serde(default)]
    pub rows: Option<u64>,
    /// As moves of this cluster took until now. `None`: there was none like it.
    #[serde(default)]
    pub expected_seconds: Option<f64>,
    #[serde(default)]
    pub expected_pause_ms: Option<f64>,
}

/// First the splits, then the moves, the largest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    pub splits: Vec<PlannedSplit>,
    pub moves: Vec<PlannedMove>,
}

/// `threshold`: how far a shard may be above its fair share, as a part of it, before anything moves. What moves then makes the shards
/// even to within [`EVEN`], or to within the threshold where that is less.
pub fn plan(shards: &[PlannedShard], partitions: &[PlannedPartition], threshold: f64) -> Changes {
    let mut groups: BTreeMap<i32, Vec<PlannedPartition>> = BTreeMap::new();
    for partition in partitions {
        groups.entry(partition.group).or_default().push(partition.clone());
    }
    let mut changes = Changes::default();
    for (group, members) in groups {
        let mut spread = Spread::new(shards, &members);
        for pool in pools(shards) {
            spread.drain(&pool);
            if pool.evens && spread.fullest(&pool).is_some_and(|fullest| spread.is_above(&pool, fullest, threshold)) {
                spread.even(&pool, threshold.min(EVEN));
            }
        }
        spread.write(group, &mut changes);
    }
    changes.moves.sort_by(|left, right| right.bytes.cmp(&left.bytes).then(left.partitions.cmp(&right.partitions)));
    changes
}

/// Shards between which partitions move freely.
struct Pool {
    /// Those whose partitions move.
    givers: Vec<usize>,
    takers: Vec<usize>,
    /// Or only empties what is to be emptied.
    evens: bool,
}

/// Each region by itself, then what has no region, last what has to leave its region.
fn pools(shards: &[PlannedShard]) -> Vec<Pool> {
    let those = |is_one: &dyn Fn(&PlannedShard) -> bool| -> Vec<usize> {
        shards.iter().enumerate().filter(|(_, shard)| is_one(shard)).map(|(at, _)| at).collect()
    };
    let mut regions: Vec<&String> = shards.iter().filter_map(|shard| shard.region.as_ref()).collect();
    regions.sort();
    regions.dedup();
    let in_region = |region: &&String| Pool {
        givers: those(&|shard| shard.region.as_ref() == Some(region)),
        takers: those(&|shard| shard.takes && shard.region.as_ref() == Some(region)),
        evens: true,
    };
    let mut pools: Vec<Pool> = regions.iter().map(in_region).collect();
    pools.push(Pool { givers: those(&|shard| shard.region.is_none()), takers: those(&|shard| shard.takes), evens: true });
    pools.push(Pool { givers: those(&|_| true), takers: those(&|shard| shard.takes), evens: false });
    pools
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.saturating_add(other))
}

/// A partition, or a part of one.
#[derive(Clone, Debug)]
struct Piece {
    /// Its place among the group's.
    partition: usize,
    hashes: Option<HashSlice>,
    cost: u64,
    bytes: u64,
    rows: Option<u64>,
    /// Where it lies so far.
    shard: usize,
}

/// The partitions of one group, and where they lie so far.
struct Spread<'s> {
    shards: &'s [PlannedShard],
    original: &'s [PlannedPartition],
    /// Where each of these lay.
    homes: Vec<usize>,
    pieces: Vec<Piece>,
    /// By shard.
    loads: Vec<u64>,
}

#[expect(clippy::cast_precision_loss, reason = "loads are compared, not added up")]
impl<'s> Spread<'s> {
    fn new(shards: &'s [PlannedShard], original: &'s [PlannedPartition]) -> Self {
        let home = |partition: &PlannedPartition| shards.iter().position(|shard| shard.name == partition.shard).unwrap_or_default();
        let homes: Vec<usize> = original.iter().map(home).collect();
        let piece = |(partition, (known, shard)): (usize, (&PlannedPartition, &usize))| Piece {
            partition,
            hashes: known.hashes,
            cost: known.cost,
            bytes: known.bytes,
            rows: known.rows,
            shard: *shard,
        };
        let pieces: Vec<Piece> = original.iter().zip(&homes).enumerate().map(piece).collect();
        let mut loads = vec![0; shards.len()];
        pieces.iter().for_each(|piece| loads[piece.shard] += piece.cost);
        Self { shards, original, homes, pieces, loads }
    }

    fn fill(&self, shard: usize) -> f64 {
        self.loads[shard] as f64 / self.shards[shard].capacity
    }

    /// What a shard of the pool has when all is even.
    fn fair(&self, pool: &Pool, shard: usize) -> f64 {
        let is_counted = |at: &usize| pool.takers.contains(at) || (pool.givers.contains(at) && self.shards[*at].is_drained);
        let total: u64 = (0..self.shards.len()).filter(is_counted).map(|at| self.loads[at]).sum();
        let capacity: f64 = pool.takers.iter().map(|at| self.shards[*at].capacity).sum();
        total as f64 * self.shards[shard].capacity / capacity
    }

    fn is_above(&self, pool: &Pool, shard: usize, share: f64) -> bool {
        self.loads[shard] as f64 > self.fair(pool, shard) * (1.0 + share)
    }

    /// What may move in this pool: by where it lay at first, since it has not moved yet.
    fn is_free(&self, pool: &Pool, piece: &Piece) -> bool {
        pool.givers.contains(&self.homes[piece.partition])
    }

    /// Of the takers that have something to give.
    fn fullest(&self, pool: &Pool) -> Option<usize> {
        let gives = |shard: &&usize| self.pieces.iter().any(|piece| piece.shard == **shard && self.is_free(pool, piece));
        let takers = pool.takers.iter().filter(gives).copied();
        takers.max_by(|left, right| self.fill(*left).total_cmp(&self.fill(*right)))
    }

    fn assign(&mut self, piece: usize, shard: usize) {
        let piece = &mut self.pieces[piece];
        self.loads[piece.shard] -= piece.cost;
        self.loads[shard] += piece.cost;
        piece.shard = shard;
    }

    /// Whoever is to be emptied gives everything, the largest first, empty partitions too.
    fn drain(&mut self, pool: &Pool) {
        let is_drained = |at: &usize| self.shards[self.pieces[*at].shard].is_drained && self.is_free(pool, &self.pieces[*at]);
        let mut leaving: Vec<usize> = (0..self.pieces.len()).filter(is_drained).collect();
        leaving.sort_by_key(|at| std::cmp::Reverse(self.pieces[*at].cost));
        for at in leaving {
            let after = |shard: &usize| (self.loads[*shard] + self.pieces[at].cost) as f64 / self.shards[*shard].capacity;
            let target = pool.takers.iter().copied().min_by(|left, right| after(left).total_cmp(&after(right)));
            if let Some(target) = target {
                self.assign(at, target);
            }
        }
    }

    fn even(&mut self, pool: &Pool, aim: f64) {
        let mut cuts_left = self.shards.len() * 4;
        while let Some(source) = self.fullest(pool).filter(|source| self.is_above(pool, *source, aim)) {
            let emptiest = pool.takers.iter().copied().min_by(|left, right| self.fill(*left).total_cmp(&self.fill(*right)));
            let Some(target) = emptiest else { return };
            let excess = self.loads[source] as f64 - self.fair(pool, source);
            let wanted = excess.min(self.fair(pool, target) - self.loads[target] as f64);
            let piece = match self.best_whole(pool, (source, target), wanted) {
                Some(piece) => Some(piece),
                None if cuts_left > 0 => {
                    cuts_left -= 1;
                    self.cut(pool, source, wanted)
                }
                None => None,
            };
            let Some(piece) = piece else { return };
            self.assign(piece, target);
        }
    }

    /// The piece whose move comes closest to what is wanted, of those that make the fuller of the two less full.
    fn best_whole(&self, pool: &Pool, (source, target): (usize, usize), wanted: f64) -> Option<usize> {
        let (fill, capacity) = (self.fill(source), self.shards[target].capacity);
        let helps = |piece: &Piece| piece.cost > 0 && (self.loads[target] + piece.cost) as f64 / capacity < fill;
        let there = self.pieces.iter().enumerate().filter(|(_, piece)| piece.shard == source && self.is_free(pool, piece));
        let distance = |piece: &Piece| (piece.cost as f64 - wanted).abs();
        let best = there.filter(|(_, piece)| helps(piece)).min_by(|(_, l), (_, r)| distance(l).total_cmp(&distance(r)));
        best.map(|(at, _)| at)
    }

    /// Cuts the largest piece of the shard so that its upper part, which is given, costs what is wanted.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between nothing and a load")]
    fn cut(&mut self, pool: &Pool, source: usize, wanted: f64) -> Option<usize> {
        // Rounded up: what is a little too much for one is not left over on the other.
        let wanted = wanted.ceil() as u64;
        let can_be_cut = |piece: &&Piece| piece.shard == source && piece.cost > wanted && self.is_free(pool, piece);
        let largest = (0..self.pieces.len()).filter(|at| self.pieces.get(*at).as_ref().is_some_and(can_be_cut));
        let largest = largest.max_by_key(|at| self.pieces[*at].cost).filter(|_| wanted > 0)?;
        let piece = &mut self.pieces[largest];
        let hashes = piece.hashes?;
        let part = |whole: u128| whole * u128::from(wanted) / u128::from(piece.cost);
        let at = hashes.end - part(hashes.width());
        if at <= hashes.start || at >= hashes.end {
            return None;
        }
        let part_of = |whole: u64| u64::try_from(part(u128::from(whole))).unwrap_or(u64::MAX);
        let (bytes, rows) = (part_of(piece.bytes), piece.rows.map(part_of));
        let upper = Piece { hashes: Some(HashSlice { start: at, ..hashes }), cost: wanted, bytes, rows, ..piece.clone() };
        piece.hashes = Some(HashSlice { end: at, ..hashes });
        piece.cost -= wanted;
        piece.bytes -= bytes;
        piece.rows = piece.rows.zip(rows).map(|(whole, upper)| whole.saturating_sub(upper));
        self.pieces.push(upper);
        Some(self.pieces.len() - 1)
    }

    /// Pieces side by side that end up on one shard are one.
    fn joined(&self) -> Vec<Piece> {
        let mut pieces = self.pieces.clone();
        pieces.sort_by_key(|piece| (piece.partition, piece.hashes.map(|hashes| hashes.start)));
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces {
            match joined.last_mut() {
                Some(lower) if lower.partition == piece.partition && lower.shard == piece.shard => {
                    lower.hashes = lower.hashes.zip(piece.hashes).map(|(lower, upper)| HashSlice { end: upper.end, ..lower });
                    lower.cost += piece.cost;
                    lower.bytes += piece.bytes;
                    lower.rows = sum(lower.rows, piece.rows);
                }
                Some(_) | None => joined.push(piece),
            }
        }
        joined
    }

    fn write(&self, group: i32, changes: &mut Changes) {
        let mut moves: BTreeMap<(usize, usize), PlannedMove> = BTreeMap::new();
        for piece in self.joined() {
            let (partition, source) = (&self.original[piece.partition], self.homes[piece.partition]);
            // Of an upper piece: where it begins.
            let begins = piece.hashes.filter(|hashes| partition.hashes.is_some_and(|whole| whole.start != hashes.start));
            let begins = begins.map(|hashes| hashes.low().to_string());
            if let Some(at) = &begins {
                changes.splits.push(PlannedSplit { colocation_group: group, partition: partition.id, at: at.clone() });
            }
            if piece.shard == source {
                continue;
            }
            let name = |shard: usize| self.shards[shard].name.clone();
            let planned = moves.entry((source, piece.shard)).or_insert_with(|| PlannedMove {
                colocation_group: group,
                partitions: Vec::new(),
                pieces: Vec::new(),
                source: name(source),
                target: name(piece.shard),
                bytes: 0,
                rows: Some(0),
                expected_seconds: None,
                expected_pause_ms: None,
            });
            planned.bytes += piece.bytes;
            planned.rows = sum(planned.rows, piece.rows);
            match begins {
                Some(at) => planned.pieces.push(at),
                None => planned.partitions.push(partition.id),
            }
        }
        for (_, mut planned) in moves {
            planned.partitions.sort_unstable();
            changes.moves.push(planned);
        }
    }
}

/// How far above its fair share a shard may be when a plan was done.
pub const EVEN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shard(name: &str, capacity: f64) -> PlannedShard {
        PlannedShard { name: name.to_owned(), region: None, capacity, takes: true, is_drained: false }
    }

    fn in_region(name: &str, region: &str) -> PlannedShard {
        PlannedShard { region: Some(region.to_owned()), ..shard(name, 1.0) }
    }

    fn partitions(group: i32, shard: &str, costs: &[u64]) -> Vec<PlannedPartition> {
        let partition = |(at, cost): (usize, &u64)| PlannedPartition {
            id: group * 1000 + at as i32,
            group,
            shard: shard.to_owned(),
            bytes: *cost,
            rows: Some(*cost),
            cost: *cost,
            hashes: None,
        };
        costs.iter().enumerate().map(partition).collect()
    }

    /// Of the same size, dealt out over shards in turn.
    fn hash_partitions(count: u32, shards: &[&str], cost: u64) -> Vec<PlannedPartition> {
        let bound = |at: u32| (u128::from(at) << 64) / u128::from(count);
        let mut all = partitions(1, "", &vec![cost; count as usize]);
        for (at, partition) in (0..).zip(&mut all) {
            partition.hashes = Some(HashSlice { start: bound(at), end: bound(at + 1) });
            partition.shard = shards[at as usize % shards.len()].to_owned();
        }
        all
    }

    /// What each shard has after the plan, found from what the plan says alone.
    fn loads(partitions: &[PlannedPartition], changes: &Changes) -> BTreeMap<String, u64> {
        let mut loads = BTreeMap::new();
        for partition in partitions {
            let whole = partition.hashes.unwrap_or(HashSlice { start: 0, end: 1 << 64 });
            let cuts = changes.splits.iter().filter(|split| split.partition == partition.id);
            let mut lows: Vec<(u128, Option<&String>)> =
                cuts.map(|split| (HashSlice::between(split.at.parse().ok(), None).start, Some(&split.at))).collect();
            lows.push((whole.start, None));
            lows.sort();
            for (at, (low, name)) in lows.iter().enumerate() {
                let end = lows.get(at + 1).map_or(whole.end, |(next, _)| *next);
                let moved = changes.moves.iter().find(|planned| match name {
                    Some(name) => planned.pieces.contains(name),
                    None => planned.partitions.contains(&partition.id),
                });
                let shard = moved.map_or(&partition.shard, |planned| &planned.target);
                assert!(moved.is_none_or(|planned| planned.source == partition.shard));
                let cost = (u128::from(partition.cost) * (end - low) + whole.width() / 2) / whole.width();
                *loads.entry(shard.clone()).or_default() += u64::try_from(cost).unwrap();
            }
        }
        loads
    }

    #[test]
    fn one_full_shard_gives_to_two_empty_ones_in_two_moves() {
        let shards = [shard("a", 1.0), shard("b", 1.0), shard("c", 1.0)];
        let all = partitions(1, "a", &[10; 60]);
        let changes = plan(&shards, &all, 0.0);
        assert_eq!((changes.moves.len(), changes.splits.len()), (2, 0));
        assert!(loads(&all, &changes).values().all(|load| *load == 200));
        assert!(changes.moves.iter().all(|planned| planned.source == "a" && planned.bytes == 200));
    }

    #[test]
    fn capacities_are_filled_in_proportion_and_what_is_even_stays() {
        let shards = [shard("a", 1.0), shard("b", 3.0)];
        let all = partitions(1, "a", &[10; 40]);
        let changes = plan(&shards, &all, 0.0);
        assert_eq!(loads(&all, &changes), BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 300)]));
        let even: Vec<PlannedPartition> = all
            .iter()
            .map(|partition| PlannedPartition {
                shard: if partition.id % 4 == 0 { "a" } else { "b" }.to_owned(),
                ..partition.clone()
            })
            .collect();
        assert_eq!(plan(&shards, &even, 0.0), Changes::default());
    }

    #[test]
    fn a_shard_that_is_drained_gives_everything() {
        let drained = PlannedShard { takes: false, is_drained: true, ..shard("a", 1.0) };
        let mut all = partitions(1, "a", &[5, 0, 7]);
        all.extend(partitions(2, "b", &[5, 5]));
        let changes = plan(&[drained, shard("b", 1.0), shard("c", 1.0)], &all, 0.1);
        assert_eq!(loads(&all, &changes).get("a"), None);
        assert_eq!(
            changes.moves.iter().map(|planned| planned.partitions.len()).sum::<usize>(),
            4,
            "and the other group is spread: {changes:?}"
        );
    }

    #[test]
    fn a_partition_that_no_shard_can_take_whole_is_cut() {
        let shards = [shard("a", 1.0), shard("b", 1.0), shard("c", 1.0)];
        let all = hash_partitions(1, &["a"], 3000);
        let changes = plan(&shards, &all, 0.1);
        assert_eq!(loads(&all, &changes).into_values().collect::<Vec<_>>(), [1000, 1000, 1000]);
        let at: Vec<&str> = changes.splits.iter().map(|split| split.at.as_str()).collect();
        assert_eq!(at, ["-3074457345618258602", "3074457345618258603"]);
        assert!(changes.moves.iter().all(|planned| planned.partitions.is_empty() && planned.pieces.len() == 1), "{changes:?}");
        // By count there is nothing to be cut.
        assert_eq!(plan(&shards, &partitions(1, "a", &[1]), 0.1), Changes::default());
    }

    #[test]
    fn what_is_even_within_the_threshold_is_left_alone() {
        let shards = [shard("a", 1.0), shard("b", 1.0)];
        let mut all = hash_partitions(2, &["a", "b"], 1000);
        all[0].cost = 1150;
        assert_eq!(plan(&shards, &all, 0.1), Changes::default());
        let cut = plan(&shards, &all, 0.05);
        assert_eq!((cut.splits.len(), cut.moves.len(), cut.moves[0].bytes), (1, 1, 65), "{cut:?}");
    }

    #[test]
    fn a_partition_leaves_its_region_only_when_it_must() {
        let shards = [in_region("eu1", "eu"), in_region("eu2", "eu"), in_region("us1", "us")];
        let all = partitions(1, "eu1", &[10; 8]);
        let to = |changes: &Changes| changes.moves.iter().map(|planned| planned.target.clone()).collect::<Vec<_>>();
        let changes = plan(&shards, &all, 0.0);
        assert_eq!((to(&changes), loads(&all, &changes)["eu2"]), (vec!["eu2".to_owned()], 40));
        let drained = |at: usize| {
            let mut shards = shards.clone();
            shards[at] = PlannedShard { takes: false, is_drained: true, ..shards[at].clone() };
            shards
        };
        assert_eq!(to(&plan(&drained(0), &all, 0.0)), ["eu2"]);
        let mut alone = drained(0);
        alone[1].takes = false;
        assert_eq!(to(&plan(&alone, &all, 0.0)), ["us1"], "nothing else of the region takes it");
        // From a shard without a region they go anywhere.
        let mut mixed = shards.to_vec();
        mixed.push(shard("home", 1.0));
        let mut targets = to(&plan(&mixed, &partitions(1, "home", &[10; 8]), 0.0));
        targets.sort();
        assert_eq!(targets, ["eu1", "eu2", "us1"]);
    }

    proptest! {
        /// From partitions on few shards to more shards, whatever their numbers.
        #[test]
        fn shards_come_out_even(count in 1_u32..130, first in 1_usize..6, more in 0_usize..30, cost in 1000_u64..1_000_000_000) {
            let names: Vec<String> = (0..first + more).map(|at| format!("s{at:02}")).collect();
            let shards: Vec<PlannedShard> = names.iter().map(|name| shard(name, 1.0)).collect();
            let few: Vec<&str> = names.iter().take(first).map(String::as_str).collect();
            let all = hash_partitions(count, &few, cost);
            let changes = plan(&shards, &all, EVEN);
            let loads = loads(&all, &changes);
            let mean = (cost * u64::from(count)) as f64 / shards.len() as f64;
            let largest = loads.values().copied().max().unwrap_or_default() as f64;
            prop_assert!(largest <= mean * 1.05 + 1.0, "{largest} over {mean}: {loads:?}");
            prop_assert!(changes.splits.len() <= 2 * shards.len(), "{} splits for {} shards", changes.splits.len(), shards.len());
            let moved: u64 = changes.moves.iter().map(|planned| planned.bytes).sum();
            prop_assert!(moved <= cost * u64::from(count));
        }
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
            let changes = plan(&shards, &all, 0.05);
            let loads = loads(&all, &changes);
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
