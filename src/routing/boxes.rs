//! Sets of keys as unions of boxes: for each column of the key the values that it may have.
//!
//! The algebra behind [`super::bind`]: AND intersects, OR unites. Every operation may give a larger set than asked for, never a
//! smaller one; it does where the exact one would be too large to compute.

use std::ops::Bound;

use crate::shard_key::KeyDatum;

/// The values that one column may have. Never NULL: a comparison with NULL is never true.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnSet {
    Any,
    /// Sorted, without repetition.
    Values(Vec<KeyDatum>),
    /// Only for range groups, whose order is the order of the data.
    Between {
        low: Bound<KeyDatum>,
        high: Bound<KeyDatum>,
    },
}

/// One set a column; a key is inside when each of its columns is.
pub(super) type KeyBox = Vec<ColumnSet>;

/// A union of boxes; without any: no key at all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Boxes {
    column_count: usize,
    boxes: Vec<KeyBox>,
}

impl Boxes {
    pub(super) fn all(column_count: usize) -> Self {
        Self { column_count, boxes: vec![vec![ColumnSet::Any; column_count]] }
    }

    pub(super) fn nothing(column_count: usize) -> Self {
        Self { column_count, boxes: Vec::new() }
    }

    /// Every key whose column at `column` is in `set`.
    pub(super) fn column(column_count: usize, column: usize, set: ColumnSet) -> Self {
        let mut all = Self::all(column_count);
        if set.is_empty() {
            return Self::nothing(column_count);
        }
        if let Some(place) = all.boxes.first_mut().and_then(|key_box| key_box.get_mut(column)) {
            *place = set;
        }
        all
    }

    pub(super) fn as_slice(&self) -> &[KeyBox] {
        &self.boxes
    }

    pub(super) fn is_all(&self) -> bool {
        self.boxes.iter().any(|key_box| key_box.iter().all(|set| *set == ColumnSet::Any))
    }

    pub(super) fn intersect(self, other: Self) -> Self {
        if self.is_all() {
            return other;
        }
        if other.is_all() {
            return self;
        }
        if self.boxes.len().saturating_mul(other.boxes.len()) > BOXES_MAX {
            // Each of the two contains the intersection.
            return if self.boxes.len() <= other.boxes.len() { self } else { other };
        }
        let pairs = self.boxes.iter().flat_map(|left| other.boxes.iter().map(move |right| (left, right)));
        let boxes = pairs.filter_map(|(left, right)| intersect_boxes(left, right)).collect();
        Self { column_count: self.column_count, boxes }
    }

    pub(super) fn union(column_count: usize, parts: Vec<Self>) -> Self {
        if parts.iter().any(Self::is_all) {
            return Self::all(column_count);
        }
        let mut boxes = Vec::with_capacity(parts.len());
        // Keys of one column given by values, as `OR` and multi-row INSERT make them: one box.
        let mut values = Vec::new();
        for key_box in parts.into_iter().flat_map(|part| part.boxes) {
            match <[ColumnSet; 1]>::try_from(key_box) {
                Ok([ColumnSet::Values(more)]) => values.extend(more),
                Ok([set]) => boxes.push(vec![set]),
                Err(key_box) => boxes.push(key_box),
            }
        }
        if !values.is_empty() {
            boxes.push(vec![ColumnSet::values(values)]);
        }
        if boxes.len() > BOXES_MAX { Self::all(column_count) } else { Self { column_count, boxes } }
    }
}

impl ColumnSet {
    pub(super) fn values(mut values: Vec<KeyDatum>) -> Self {
        sort_values(&mut values);
        Self::Values(values)
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Values(values) => values.is_empty(),
            Self::Between { low, high } => match (low, high) {
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
                | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            },
        }
    }

    fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, set) | (set, Self::Any) => set.clone(),
            (Self::Values(left), Self::Values(right)) => {
                Self::Values(left.iter().filter(|value| right.binary_search(value).is_ok()).cloned().collect())
            }
            (Self::Values(values), Self::Between { low, high }) | (Self::Between { low, high }, Self::Values(values)) => {
                let range = (low.as_ref(), high.as_ref());
                Self::Values(values.iter().filter(|value| contains(range, value)).cloned().collect())
            }
            (Self::Between { low: low_a, high: high_a }, Self::Between { low: low_b, high: high_b }) => {
                Self::Between { low: higher_low(low_a, low_b).clone(), high: lower_high(high_a, high_b).clone() }
            }
        }
    }
}

/// `None`: no key is in both.
fn intersect_boxes(left: &KeyBox, right: &KeyBox) -> Option<KeyBox> {
    let columns: KeyBox = left.iter().zip(right).map(|(left, right)| left.intersect(right)).collect();
    (!columns.iter().any(ColumnSet::is_empty)).then_some(columns)
}

fn contains(range: (Bound<&KeyDatum>, Bound<&KeyDatum>), value: &KeyDatum) -> bool {
    std::ops::RangeBounds::<KeyDatum>::contains(&range, value)
}

fn higher_low<'a>(a: &'a Bound<KeyDatum>, b: &'a Bound<KeyDatum>) -> &'a Bound<KeyDatum> {
    match (a, b) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (Bound::Included(low_a) | Bound::Excluded(low_a), Bound::Included(low_b) | Bound::Excluded(low_b)) => {
            match low_a.cmp(low_b) {
                std::cmp::Ordering::Greater => a,
                std::cmp::Ordering::Less => b,
                std::cmp::Ordering::Equal if matches!(a, Bound::Excluded(_)) => a,
                std::cmp::Ordering::Equal => b,
            }
        }
    }
}

fn lower_high<'a>(a: &'a Bound<KeyDatum>, b: &'a Bound<KeyDatum>) -> &'a Bound<KeyDatum> {
    match (a, b) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (Bound::Included(high_a) | Bound::Excluded(high_a), Bound::Included(high_b) | Bound::Excluded(high_b)) => {
            match high_a.cmp(high_b) {
                std::cmp::Ordering::Less => a,
                std::cmp::Ordering::Greater => b,
                std::cmp::Ordering::Equal if matches!(a, Bound::Excluded(_)) => a,
                std::cmp::Ordering::Equal => b,
            }
        }
    }
}

fn sort_values(values: &mut Vec<KeyDatum>) {
    if !values.is_sorted_by(|left, right| left < right) {
        values.sort_unstable();
        values.dedup();
    }
}

/// Above it a set is not computed exactly.
const BOXES_MAX: usize = 10_000;
