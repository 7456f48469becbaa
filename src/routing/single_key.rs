//! The short way: a statement that is about one key of one column.
//!
//! Read the value's bytes, hash, search. It does not allocate (but for a bytea in text form and a text to be stored), and it
//! never locks or waits. Whenever that is not enough (a lookup key that is not cached, a value that is not proven, a
//! partition that is held, an INSERT whose key is an error) it says nothing, and [`super::resolve()`] goes the long way.

use smallvec::SmallVec;

use super::inputs::{Inputs, Value};
use super::reach::{Proof, pinned};
use super::source::MapSource;
use crate::shard_key::{Conversion, DatumRef, KeyDatum, Position};
use crate::shardmap::{Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, ShardId, Strategy};
use crate::sql::analysis::{KeyCondition, KeyTest, KeyValue, Part, Test};

/// Where the key of a statement is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleKey<'a> {
    group: GroupId,
    test: &'a KeyTest,
    value: &'a KeyValue,
    usage: Usage,
}

/// What the statement does with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Compared,
    /// By an INSERT, in a column of this `atttypmod`.
    Stored(i32),
}

/// Where one key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub shard: ShardId,
    /// A statement about this key may run there as it is.
    pub proof: Proof,
    pub group: GroupId,
    pub partition: PartitionId,
}

impl<'a> SingleKey<'a> {
    /// `None`: the statement is about something else, or about several keys.
    #[inline]
    pub fn of(parts: &'a [Part]) -> Option<Self> {
        let [Part::Sharded { group, condition, .. }] = parts else {
            return None;
        };
        let test = single_test(condition)?;
        let (value, usage) = match &test.test {
            _ if test.column != 0 => return None,
            Test::Equals(value) => (value, Usage::Compared),
            Test::Stored(stored) => (&stored.value, Usage::Stored(stored.typmod)),
            Test::In(_) | Test::AnyOf(_) | Test::Compare(..) => return None,
        };
        Some(Self { group: *group, test, value, usage })
    }

    /// `None`: ask [`super::resolve()`]. `snapshot` is one of the map's.
    #[inline]
    pub fn place(&self, map: &impl MapSource, snapshot: &MapSnapshot, inputs: &Inputs<'_>) -> Option<Place> {
        let group = snapshot.group(self.group)?;
        if group.key_types.len() != 1 {
            return None;
        }
        let Value::Typed { oid, format, bytes } = inputs.value(self.value) else {
            return None;
        };
        let partition = match self.usage {
            Usage::Compared => match KeyDatum::position(self.test.column_type, oid, format, &bytes) {
                Position::At(datum) => self.partition(map, group, &datum)?,
                Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere | Position::Unknown => {
                    return None;
                }
            },
            Usage::Stored(typmod) => match KeyDatum::assign(self.test.column_type, typmod, oid, format, &bytes) {
                Conversion::Exactly(datum) => self.partition(map, group, &datum.as_ref())?,
                Conversion::NoValue | Conversion::Unknown => return None,
            },
        };
        match partition.state {
            PartitionState::Online | PartitionState::Moving => {
                let (shard, partition) = (partition.shard, partition.id);
                Some(Place { shard, proof: Proof::Pinned(pinned()), group: group.id, partition })
            }
            PartitionState::Held => None,
        }
    }

    fn partition<'g>(&self, map: &impl MapSource, group: &'g Group, value: &DatumRef<'_>) -> Option<&'g Partition> {
        match &self.test.function {
            None => partition_of(map, group, value),
            Some(function) => partition_of(map, group, &function.apply_ref(value)?),
        }
    }
}

/// An AND or OR of one condition is that condition.
fn single_test(mut condition: &KeyCondition) -> Option<&KeyTest> {
    loop {
        match condition {
            KeyCondition::Test(test) => return Some(test),
            KeyCondition::And(conditions) | KeyCondition::Or(conditions) => match conditions.as_slice() {
                [only] => condition = only,
                _ => return None,
            },
            KeyCondition::All | KeyCondition::Nothing => return None,
        }
    }
}

fn partition_of<'a>(map: &impl MapSource, group: &'a Group, key: &DatumRef<'_>) -> Option<&'a Partition> {
    match group.strategy {
        Strategy::Hash => Some(group.partition_at_hash(key.hash())),
        Strategy::Range => Some(group.partition_at_key(&ordered_bytes(key))),
        Strategy::Lookup => group.partition_of_mapping(map.find_cached(group.id, &ordered_bytes(key))?),
    }
}

/// On the stack, but for long texts.
fn ordered_bytes(key: &DatumRef<'_>) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::new();
    key.write_ordered(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::inputs::Parameter;
    use crate::routing::testing::{
        FakeMap, GROUP, constant, equals, hash_group, int, key, lookup_group, parameter, range_group, stored, test, text,
        with_state,
    };
    use crate::shard_key::{Format, KeyFunction, KeyType, oid};
    use crate::shardmap::Bound;

    fn no_inputs() -> Inputs<'static> {
        Inputs::literals("", &[])
    }

    fn has_short_way(condition: KeyCondition) -> bool {
        SingleKey::of(&[Part::Sharded { group: GROUP, condition, stores: false }]).is_some()
    }

    fn place(map: &FakeMap, condition: KeyCondition, inputs: &Inputs<'_>) -> Option<i32> {
        let parts = [Part::Sharded { group: GROUP, condition, stores: false }];
        SingleKey::of(&parts).unwrap().place(map, &map.newest(), inputs).map(|place| place.partition.0)
    }

    #[test]
    fn one_equality_has_a_short_way_and_the_rest_has_not() {
        assert!(has_short_way(equals(0, 1)));
        assert!(has_short_way(KeyCondition::Or(vec![KeyCondition::And(vec![equals(0, 1)])])));
        assert!(has_short_way(stored(0, KeyType::Int8, parameter(1), true)));
        assert!(!has_short_way(equals(1, 1)), "not the first column");
        assert!(!has_short_way(KeyCondition::And(vec![equals(0, 1), equals(1, 1)])));
        assert!(!has_short_way(KeyCondition::All));
        assert!(!has_short_way(test(0, KeyType::Int8, Test::In(vec![parameter(1)]))));
        assert_eq!(SingleKey::of(&[Part::Home]), None);
        assert_eq!(SingleKey::of(&[]), None);
    }

    #[test]
    fn it_leads_where_the_long_way_leads() {
        let hash = FakeMap::new(hash_group(&[KeyType::Int8]));
        let range = FakeMap::new(range_group(&[KeyType::Int8], &[key(&[int(10)]), key(&[int(20)])]));
        for value in -5..40 {
            let expected = hash.newest().groups[&GROUP].partition_at(&Bound::Hash(key(&[int(value)]).hash())).id.0;
            let bytes = value.to_be_bytes();
            let parameters = [Parameter { oid: oid::INT8, format: Format::Binary, value: Some(&bytes) }];
            let inputs = Inputs::listed("", &[], &parameters);
            let condition = test(0, KeyType::Int8, Test::Equals(parameter(1)));
            assert_eq!(place(&hash, condition.clone(), &inputs), Some(expected));
            assert_eq!(place(&hash, stored(0, KeyType::Int8, parameter(1), true), &inputs), Some(expected));
            assert_eq!(place(&range, condition, &inputs), Some(20 + i32::from(value >= 10) + i32::from(value >= 20)));
        }
    }

    #[test]
    fn a_lookup_key_is_found_in_the_cache_only() {
        let mut map = FakeMap::new(lookup_group(&[KeyType::Text], None));
        map.cached.insert(key(&[text("X")]), Some(PartitionId(31)));
        map.cached.insert(key(&[text("Y")]), None);
        let isbn = |value| {
            let test = Test::Equals(constant(0, value));
            KeyCondition::Test(KeyTest { column: 0, column_type: KeyType::Text, function: Some(KeyFunction::Right(1)), test })
        };
        assert_eq!(place(&map, isbn("080442957X"), &no_inputs()), Some(31));
        assert_eq!(place(&map, isbn("080442957Y"), &no_inputs()), None, "known to have no shard: an error");
        assert_eq!(place(&map, isbn("080442957Z"), &no_inputs()), None, "not cached");
    }

    #[test]
    fn it_says_nothing_where_waiting_or_an_error_is_due() {
        let group = hash_group(&[KeyType::Int8]);
        let all_held = [10, 11, 12].iter().fold(group.clone(), |group, id| with_state(&group, *id, PartitionState::Held));
        assert_eq!(place(&FakeMap::new(all_held), equals(0, 1), &no_inputs()), None);
        let map = FakeMap::new(group);
        for value in [KeyValue::Null, constant(701, "1"), constant(1700, "1e30"), parameter(1)] {
            assert_eq!(place(&map, test(0, KeyType::Int8, Test::Equals(value.clone())), &no_inputs()), None);
            assert_eq!(place(&map, stored(0, KeyType::Int8, value, true), &no_inputs()), None);
        }
        let composite = FakeMap::new(hash_group(&[KeyType::Int8, KeyType::Int8]));
        assert_eq!(place(&composite, equals(0, 1), &no_inputs()), None);
    }
}
