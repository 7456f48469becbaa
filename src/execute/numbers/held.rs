//! The blocks of one sequence that this proxy holds.
//!
//! They grow with the rate at which the sequence is drawn from, to last for [`LASTING`], and the next one is fetched when half of that
//! is used: without the map inserts go on for some minutes. What is left when the proxy ends is a gap.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::error::{PgError, SqlState};
use crate::shardmap::{ClusterSequence, NumberBlock};

/// Of one sequence.
#[derive(Default)]
pub(super) struct Entry {
    /// Whoever asks the map has this, so that the blocks come in the sequence's order. Taken before `held`.
    pub fetching: Mutex<()>,
    pub held: Mutex<Held>,
}

impl Entry {
    /// Nobody else draws, and nobody fetches.
    pub async fn whole(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, Held>) {
        let fetching = self.fetching.lock().await;
        (fetching, self.held.lock().await)
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    blocks: VecDeque<Block>,
    /// Of the last block.
    size: i64,
    asked_at: Option<Instant>,
    /// Since then.
    drawn: i64,
    /// The sequence's when it was asked.
    generation: i64,
    /// When the map could not be asked last, and what was said of it.
    failed: Option<(Instant, PgError)>,
}

/// What is left of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    next: i64,
    left: i64,
    increment: i64,
    generation: i64,
    incarnation: i64,
}

/// Numbers of one block: at first and at least, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub first: i64,
    pub max: i64,
}

impl Sizes {
    /// `block`: as the settings have it. A sequence with few numbers has smaller blocks.
    pub fn of(sequence: &ClusterSequence, block: i64) -> Self {
        let bound = (sequence.size / SHARE).max(1);
        Self { first: block.min(bound), max: SIZE_MAX.max(block).min(bound) }
    }
}

impl Held {
    /// The map could not be asked.
    pub fn has_failed(&mut self, error: &PgError) {
        if error.code == SqlState::CANNOT_CONNECT_NOW {
            self.failed = Some((Instant::now(), error.clone()));
        }
    }

    /// Whoever has waited while the map could not be asked does not ask it once more: with many that wait, each would wait for all
    /// before it.
    pub fn failed_since(&self, began: Instant) -> Result<(), PgError> {
        match &self.failed {
            Some((at, error)) if *at >= began => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }

    /// Into `drawn`, up to `count`. Blocks that are void are let go.
    pub fn take(&mut self, count: usize, drawn: &mut Vec<i64>, sequence: &ClusterSequence, incarnation: i64) {
        // Another sequence may have the name now, and its own rate.
        if self.generation < sequence.generation {
            *self = Self::default();
        }
        self.blocks.retain(|block| !block.is_void(sequence, incarnation));
        while drawn.len() < count
            && let Some(block) = self.blocks.front_mut()
        {
            match block.take() {
                Some(number) => {
                    drawn.push(number);
                    self.drawn = self.drawn.saturating_add(1);
                }
                None => drop(self.blocks.pop_front()),
            }
        }
    }

    pub fn add(&mut self, block: &NumberBlock, incarnation: i64) {
        let &NumberBlock { first, count, generation, increment } = block;
        let new = Block { next: first, left: count, increment, generation, incarnation };
        self.generation = generation;
        match self.blocks.back_mut() {
            // Nobody else has drawn between.
            Some(last) if last.goes_on_with(&new) => last.left += count,
            _ => self.blocks.push_back(new),
        }
    }

    /// Is it time for the next block?
    pub fn is_short(&self, sizes: Sizes) -> bool {
        let left = self.blocks.iter().fold(0_i64, |left, block| left.saturating_add(block.left));
        self.asked_at.is_some() && left <= self.size.max(sizes.first) / 2
    }

    /// How many to ask for now.
    pub fn next_size(&mut self, sizes: Sizes, now: Instant) -> i64 {
        let at_this_rate = self.asked_at.map_or(0.0, |asked_at| {
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let drawn = self.drawn as f64;
            drawn / now.duration_since(asked_at).as_secs_f64().max(0.001) * LASTING.as_secs_f64()
        });
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the next line")]
        let wanted = at_this_rate.min(1e15) as i64;
        // One large statement is no rate.
        let max = self.size.saturating_mul(GROWTH).clamp(sizes.first, sizes.max);
        self.size = wanted.clamp(sizes.first, max);
        self.asked_at = Some(now);
        self.drawn = 0;
        self.size
    }

    /// Nothing is held any more. What nobody has been given of the last block: from its next number to after its last.
    pub fn give_up(&mut self, sequence: &ClusterSequence, incarnation: i64) -> Option<Range<i128>> {
        let last = std::mem::take(self).blocks.pop_back()?;
        last.unused().filter(|_| !last.is_void(sequence, incarnation))
    }
}

impl Block {
    fn take(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1).filter(|left| *left >= 0)?;
        let number = self.next;
        // Beyond the last one nothing is left.
        self.next = self.next.saturating_add(self.increment);
        Some(number)
    }

    fn unused(&self) -> Option<Range<i128>> {
        let next = i128::from(self.next);
        (self.left > 0).then(|| next..next + i128::from(self.left) * i128::from(self.increment))
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        let is_alike = (self.increment, self.generation, self.incarnation) == (next.increment, next.generation, next.incarnation);
        is_alike && self.unused().is_some_and(|unused| unused.end == i128::from(next.next))
    }

    /// A newer generation than is known is right: the map has been asked after the change.
    fn is_void(&self, sequence: &ClusterSequence, incarnation: i64) -> bool {
        let is_other = self.generation == sequence.generation && self.increment != sequence.increment;
        self.incarnation != incarnation || self.generation < sequence.generation || is_other
    }
}

/// How long the numbers shall last.
pub(super) const LASTING: Duration = Duration::from_secs(600);
/// A block is at most so many times the one before.
const GROWTH: i64 = 4;
/// What every proxy may hold is left out after a fail-over of the map.
const SIZE_MAX: i64 = 1 << 18;
/// A block is at most this part of all numbers.
const SHARE: i64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(increment: i64, generation: i64) -> ClusterSequence {
        ClusterSequence { schema: "public".into(), name: "s".into(), increment, generation, size: i64::MAX }
    }

    fn block(first: i64, count: i64, increment: i64) -> NumberBlock {
        NumberBlock { first, count, generation: 3, increment }
    }

    fn drawn(held: &mut Held, count: usize, sequence: &ClusterSequence, incarnation: i64) -> Vec<i64> {
        let mut numbers = Vec::new();
        held.take(count, &mut numbers, sequence, incarnation);
        numbers
    }

    #[test]
    fn a_block_gives_each_of_its_numbers_once() {
        let mut held = Held::default();
        held.add(&block(7, 2, -5), 1);
        held.add(&block(-90, 1, -5), 1);
        assert_eq!(held.blocks.len(), 2, "somebody has drawn between");
        assert_eq!(drawn(&mut held, 9, &sequence(-5, 3), 1), [7, 2, -90]);
        held.add(&block(i64::MAX, 1, 50), 0);
        assert_eq!(drawn(&mut held, 2, &sequence(50, 3), 0), [i64::MAX], "the last number of all is given too");
    }

    #[test]
    fn blocks_are_void_after_setval_and_fail_over() {
        for (sequence, incarnation, is_void) in [
            (sequence(-5, 3), 1, false),
            (sequence(-5, 3), 2, true),
            (sequence(-5, 4), 1, true),
            // This proxy does not know yet what has come between.
            (sequence(3, 2), 1, false),
            (sequence(3, 3), 1, true),
        ] {
            let mut held = Held::default();
            held.add(&block(7, 2, -5), 1);
            assert_eq!(drawn(&mut held, 1, &sequence, incarnation).is_empty(), is_void, "{sequence:?} {incarnation}");
        }
    }

    #[test]
    fn a_block_is_a_small_part_of_the_sequence() {
        let of = |size, block| Sizes::of(&ClusterSequence { size, ..sequence(1, 0) }, block);
        assert_eq!(of(i64::MAX, 1000), Sizes { first: 1000, max: SIZE_MAX });
        assert_eq!(of(i64::MAX, 1_000_000), Sizes { first: 1_000_000, max: 1_000_000 });
        assert_eq!(of(32_766, 1000), Sizes { first: 7, max: 7 });
        assert_eq!(of(3, 1000), Sizes { first: 1, max: 1 });
    }

    #[test]
    fn what_is_left_is_given_back_as_one_range() {
        let mut held = Held::default();
        held.add(&block(1, 10, 2), 1);
        held.add(&block(21, 5, 2), 1);
        assert_eq!(drawn(&mut held, 3, &sequence(2, 3), 1), [1, 3, 5]);
        assert_eq!(held.give_up(&sequence(2, 3), 1), Some(7..31));
        assert_eq!(held.give_up(&sequence(2, 3), 1), None);
    }

    #[test]
    fn blocks_grow_with_the_rate_and_shrink_without() {
        let (mut held, start) = (Held::default(), Instant::now());
        let sizes = Sizes::of(&sequence(1, 3), 100);
        assert!(!held.is_short(sizes), "nobody has drawn");
        assert_eq!(held.next_size(sizes, start), 100);
        held.drawn = 90;
        assert_eq!(held.next_size(sizes, start + Duration::from_secs(1)), 400, "at most four times");
        held.drawn = 400;
        assert_eq!(held.next_size(sizes, start + Duration::from_secs(401)), 600, "one a second for ten minutes");
        held.drawn = 10;
        assert_eq!(held.next_size(sizes, start + Duration::from_secs(1401)), 100);
        for _ in 0..20 {
            held.drawn = 1 << 40;
            held.next_size(sizes, start + Duration::from_secs(1402));
        }
        assert_eq!(held.size, SIZE_MAX);
        held.add(&block(1, SIZE_MAX, 1), 1);
        assert!(!held.is_short(sizes));
        held.take(1 << 17, &mut Vec::new(), &sequence(1, 3), 1);
        assert!(held.is_short(sizes));
    }
}
