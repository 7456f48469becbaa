//! Puts an execution's values into a key condition: which keys can the rows have that the statement touches?
//!
//! Pure. The answer is never too small. A comparison that PostgreSQL would make in a way that is not proven counts as if it
//! were not there; a comparison with NULL is never true; a value outside of the column's type equals nothing. A value that an
//! INSERT stores is another matter: where it is not proven the row has no known home, and the statement is refused.

use std::ops::Bound;

use super::boxes::{Boxes, ColumnSet, KeyBox};
use super::inputs::{Inputs, Value};
use crate::error::{PgError, SqlState};
use crate::shard_key::{Conversion, Key, KeyDatum, KeyType, Position, after_prefix, oid};
use crate::shardmap::{Group, Strategy};
use crate::sql::analysis::{Comparison, KeyCondition, KeyTest, KeyValue, StoredValue, Test};

/// The keys that the rows of one part of a statement can have.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundCondition {
    /// Nothing is known, or so many keys that it makes no difference.
    All,
    /// A contradiction.
    Nothing,
    /// Sorted, without repetition, not empty, at most [`KEYS_MAX`]. Whole keys.
    Keys(Vec<Key>),
    /// Range groups only; not empty. In no order, may overlap.
    Ranges(Vec<KeyRange>),
}

/// Keys between two bounds in their order-preserving form ([`Key::ordered_bytes`]), `low` included and `high` not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// `None`: from the beginning of the key space.
    pub low: Option<Box<[u8]>>,
    /// `None`: to the end of the key space.
    pub high: Option<Box<[u8]>>,
}

/// More keys than this in one condition are not told apart.
pub const KEYS_MAX: usize = 10_000;

/// Conditions nested deeper than this are not looked at. No INSERT's is: its rows are one OR of ANDs.
const DEPTH_MAX: usize = 200;

/// What `condition` says of the group's keys in this execution. The error is a refusal: an INSERT whose key is not proven.
pub fn bind(condition: &KeyCondition, group: &Group, inputs: &Inputs<'_>) -> Result<BoundCondition, PgError> {
    let binder = Binder { column_count: group.key_types.len(), inputs };
    let boxes = binder.condition(condition, 0)?;
    if boxes.as_slice().is_empty() {
        return Ok(BoundCondition::Nothing);
    }
    if boxes.is_all() {
        return Ok(BoundCondition::All);
    }
    Ok(match (whole_keys(boxes.as_slice()), group.strategy) {
        (Some(keys), Strategy::Hash | Strategy::Range | Strategy::Lookup) => BoundCondition::Keys(keys),
        (None, Strategy::Hash | Strategy::Lookup) => BoundCondition::All,
        (None, Strategy::Range) => ranges(boxes.as_slice()).map_or(BoundCondition::All, BoundCondition::Ranges),
    })
}

struct Binder<'a> {
    column_count: usize,
    inputs: &'a Inputs<'a>,
}

impl Binder<'_> {
    fn condition(&self, condition: &KeyCondition, depth: usize) -> Result<Boxes, PgError> {
        if depth > DEPTH_MAX {
            return Ok(Boxes::all(self.column_count));
        }
        match condition {
            KeyCondition::All => Ok(Boxes::all(self.column_count)),
            KeyCondition::Nothing => Ok(Boxes::nothing(self.column_count)),
            KeyCondition::Test(test) => Ok(Boxes::column(self.column_count, test.column, self.test(test)?)),
            KeyCondition::And(conditions) => conditions.iter().try_fold(Boxes::all(self.column_count), |boxes, condition| {
                Ok(boxes.intersect(self.condition(condition, depth + 1)?))
            }),
            KeyCondition::Or(conditions) => {
                let parts = conditions.iter().map(|condition| self.condition(condition, depth + 1));
                Ok(Boxes::union(self.column_count, parts.collect::<Result<_, _>>()?))
            }
        }
    }

    fn test(&self, test: &KeyTest) -> Result<ColumnSet, PgError> {
        Ok(match &test.test {
            Test::Equals(value) => self.equals(test, value),
            Test::In(values) => {
                let is_alone = values.len() == 1;
                self.any(
                    test,
                    values.iter().map(|value| if is_alone { self.conversion(test, value) } else { self.listed(test, value) }),
                )
            }
            Test::AnyOf(array) => self.any_of(test, array),
            Test::Compare(comparison, value) => self.compare(test, *comparison, value),
            Test::Stored(stored) => self.stored(test, stored)?,
        })
    }

    fn equals(&self, test: &KeyTest, value: &KeyValue) -> ColumnSet {
        self.any(test, std::iter::once(self.conversion(test, value)))
    }

    fn any_of(&self, test: &KeyTest, array: &KeyValue) -> ColumnSet {
        match self.inputs.value(array) {
            Value::Null => ColumnSet::Values(Vec::new()),
            Value::Unknown => ColumnSet::Any,
            Value::Typed { oid, format, bytes } => match KeyDatum::convert_array(test.column_type, oid, format, &bytes, KEYS_MAX) {
                Some(elements) => self.any(test, elements.into_iter()),
                None => ColumnSet::Any,
            },
        }
    }

    /// The values, each through the key function; one that is unknown makes all unknown.
    fn any(&self, test: &KeyTest, conversions: impl Iterator<Item = Conversion>) -> ColumnSet {
        let mut values = Vec::with_capacity(conversions.size_hint().0);
        for conversion in conversions {
            match conversion {
                Conversion::NoValue => {}
                Conversion::Unknown => return ColumnSet::Any,
                // What comes after so many is not looked at: it makes no difference.
                Conversion::Exactly(value) => match key_of(test, value) {
                    Some(value) if values.len() < KEYS_MAX => values.push(value),
                    Some(_) | None => return ColumnSet::Any,
                },
            }
        }
        ColumnSet::values(values)
    }

    /// NULL equals nothing.
    fn conversion(&self, test: &KeyTest, value: &KeyValue) -> Conversion {
        match self.inputs.value(value) {
            Value::Null => Conversion::NoValue,
            Value::Unknown => Conversion::Unknown,
            Value::Typed { oid, format, bytes } => KeyDatum::convert(test.column_type, oid, format, &bytes),
        }
    }

    /// Among other values: of char(n) and text PostgreSQL makes one type for all, which need not be the one that a single value
    /// would be compared by, where blanks at the end count.
    fn listed(&self, test: &KeyTest, value: &KeyValue) -> Conversion {
        match (test.column_type, self.inputs.value(value)) {
            (KeyType::Bpchar, Value::Typed { oid: oid::TEXT, bytes, .. }) if bytes.ends_with(b" ") => Conversion::Unknown,
            _ => self.conversion(test, value),
        }
    }

    fn compare(&self, test: &KeyTest, comparison: Comparison, value: &KeyValue) -> ColumnSet {
        // The order of a function's values is not that of the column's.
        if test.function.is_some() {
            return ColumnSet::Any;
        }
        match self.inputs.value(value) {
            Value::Null => ColumnSet::Values(Vec::new()),
            Value::Unknown => ColumnSet::Any,
            Value::Typed { oid, format, bytes } => between(comparison, &KeyDatum::position(test.column_type, oid, format, &bytes)),
        }
    }

    fn stored(&self, test: &KeyTest, stored: &StoredValue) -> Result<ColumnSet, PgError> {
        let conversion = match self.inputs.value(&stored.value) {
            // The shard raises the error, whichever it is.
            Value::Null if stored.is_not_null => return Ok(ColumnSet::Values(Vec::new())),
            Value::Null => return Err(null_key()),
            Value::Unknown => Conversion::Unknown,
            Value::Typed { oid, format, bytes } => KeyDatum::assign(test.column_type, stored.typmod, oid, format, &bytes),
        };
        match conversion {
            Conversion::Exactly(value) => key_of(test, value).map(|value| ColumnSet::Values(vec![value])).ok_or_else(unproven_key),
            // An error on any shard.
            Conversion::NoValue => Ok(ColumnSet::Values(Vec::new())),
            Conversion::Unknown => Err(unproven_key()),
        }
    }
}

/// The key that a value of the column has.
fn key_of(test: &KeyTest, value: KeyDatum) -> Option<KeyDatum> {
    match &test.function {
        None => Some(value),
        Some(function) => function.apply(&value),
    }
}

fn between(comparison: Comparison, position: &Position<'_>) -> ColumnSet {
    let none = || ColumnSet::Values(Vec::new());
    let below = |high| ColumnSet::Between { low: Bound::Unbounded, high };
    let above = |low| ColumnSet::Between { low, high: Bound::Unbounded };
    let is_less = match comparison {
        Comparison::Less | Comparison::LessOrEqual => true,
        Comparison::Greater | Comparison::GreaterOrEqual => false,
    };
    match (position, comparison) {
        (Position::Elsewhere | Position::Unknown, _) => ColumnSet::Any,
        (Position::AboveAll, _) => {
            if is_less {
                ColumnSet::Any
            } else {
                none()
            }
        }
        (Position::BelowAll, _) => {
            if is_less {
                none()
            } else {
                ColumnSet::Any
            }
        }
        (Position::At(value), Comparison::Less) => below(Bound::Excluded(value.to_datum())),
        (Position::At(value), Comparison::LessOrEqual) => below(Bound::Included(value.to_datum())),
        (Position::At(value), Comparison::Greater) => above(Bound::Excluded(value.to_datum())),
        (Position::At(value), Comparison::GreaterOrEqual) => above(Bound::Included(value.to_datum())),
        (Position::JustBelow(next), Comparison::Less | Comparison::LessOrEqual) => below(Bound::Excluded(next.to_datum())),
        (Position::JustBelow(next), Comparison::Greater | Comparison::GreaterOrEqual) => above(Bound::Included(next.to_datum())),
    }
}

/// `None`: a column is not given by values, or there are too many.
fn whole_keys(boxes: &[KeyBox]) -> Option<Vec<Key>> {
    let mut keys = Vec::new();
    for key_box in boxes {
        let columns = key_box.iter().map(|set| match set {
            ColumnSet::Values(values) => Some(values.as_slice()),
            ColumnSet::Any | ColumnSet::Between { .. } => None,
        });
        let columns: Vec<&[KeyDatum]> = columns.collect::<Option<_>>()?;
        if keys.len() + product(&columns)? > KEYS_MAX {
            return None;
        }
        keys.extend(combinations(&columns).into_iter().map(Key::new));
    }
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

fn product(columns: &[&[KeyDatum]]) -> Option<usize> {
    columns.iter().try_fold(1_usize, |product, values| product.checked_mul(values.len()))
}

/// Every way to take one value of each.
fn combinations(columns: &[&[KeyDatum]]) -> Vec<Vec<KeyDatum>> {
    columns.iter().fold(vec![Vec::new()], |prefixes, values| {
        let extend = |prefix: &Vec<KeyDatum>, value: &KeyDatum| {
            let mut longer = prefix.clone();
            longer.push(value.clone());
            longer
        };
        prefixes.iter().flat_map(|prefix| values.iter().map(move |value| extend(prefix, value))).collect()
    })
}

/// `None`: a box says nothing of the first column, or there are too many.
fn ranges(boxes: &[KeyBox]) -> Option<Vec<KeyRange>> {
    let mut ranges = Vec::new();
    for key_box in boxes {
        // The columns at the front that have values, then perhaps one with bounds; what follows does not narrow.
        let values: Vec<&[KeyDatum]> = key_box
            .iter()
            .map_while(|set| match set {
                ColumnSet::Values(values) => Some(values.as_slice()),
                ColumnSet::Any | ColumnSet::Between { .. } => None,
            })
            .collect();
        if ranges.len() + product(&values)? > KEYS_MAX {
            return None;
        }
        let next = key_box.get(values.len()).unwrap_or(&ColumnSet::Any);
        if values.is_empty() && *next == ColumnSet::Any {
            return None;
        }
        ranges.extend(combinations(&values).into_iter().map(|prefix| range_after(prefix, next)));
    }
    Some(ranges)
}

/// The keys that begin with `prefix` and whose next column is in `next`.
fn range_after(prefix: Vec<KeyDatum>, next: &ColumnSet) -> KeyRange {
    let bytes = |datum: Option<&KeyDatum>| {
        let mut bytes = Vec::new();
        prefix.iter().chain(datum).for_each(|datum| datum.as_ref().write_ordered(&mut bytes));
        bytes
    };
    let beginning = || (!prefix.is_empty()).then(|| bytes(None).into_boxed_slice());
    let end = || if prefix.is_empty() { None } else { after_prefix(&bytes(None)) };
    let (low, high) = match next {
        ColumnSet::Any | ColumnSet::Values(_) => (&Bound::Unbounded, &Bound::Unbounded),
        ColumnSet::Between { low, high } => (low, high),
    };
    KeyRange {
        low: match low {
            Bound::Unbounded => beginning(),
            Bound::Included(datum) => Some(bytes(Some(datum)).into_boxed_slice()),
            Bound::Excluded(datum) => after_prefix(&bytes(Some(datum))).or_else(beginning),
        },
        high: match high {
            Bound::Unbounded => end(),
            Bound::Excluded(datum) => Some(bytes(Some(datum)).into_boxed_slice()),
            Bound::Included(datum) => after_prefix(&bytes(Some(datum))).or_else(end),
        },
    }
}

pub fn unproven_key() -> PgError {
    PgError::unsupported(
        "cannot determine the shard of a row to be inserted",
        "The value of its shard key depends on a setting or on a conversion that only the server can make.",
        "Give the shard key as a value of the column's own type; dates and times in ISO form, with an offset for timestamptz.",
    )
}

pub(super) fn null_key() -> PgError {
    PgError::new(SqlState::FEATURE_NOT_SUPPORTED, "a row to be inserted has a null shard key")
        .with_detail("Such a row belongs to no shard.")
        .with_hint("Give every row a shard key, and declare the key columns NOT NULL.")
}

#[cfg(test)]
mod soundness;
#[cfg(test)]
mod tests;
