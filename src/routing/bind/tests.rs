//! What each shape of condition says, case by case.

use super::*;
use crate::routing::inputs::Parameter;
use crate::routing::testing::{
    constant, equals, hash_group, int, key, lookup_group, number, parameter, range_group, stored, test, text,
};
use crate::shard_key::{Format, KeyFunction, KeyType};

fn no_inputs() -> Inputs<'static> {
    Inputs::literals("", &[])
}

fn bound(condition: &KeyCondition, group: &Group) -> BoundCondition {
    bind(condition, group, &no_inputs()).unwrap()
}

fn keys(keys: &[&[KeyDatum]]) -> BoundCondition {
    BoundCondition::Keys(keys.iter().map(|data| key(data)).collect())
}

fn compare(column: usize, comparison: Comparison, value: KeyValue) -> KeyCondition {
    test(column, KeyType::Int8, Test::Compare(comparison, value))
}

#[test]
fn and_intersects_and_or_unites() {
    let group = hash_group(&[KeyType::Int8]);
    let one_or_two = KeyCondition::Or(vec![equals(0, 2), equals(0, 1), equals(0, 2)]);
    assert_eq!(bound(&equals(0, 1), &group), keys(&[&[int(1)]]));
    assert_eq!(bound(&one_or_two, &group), keys(&[&[int(1)], &[int(2)]]));
    let two = KeyCondition::And(vec![one_or_two.clone(), KeyCondition::All, equals(0, 2)]);
    assert_eq!(bound(&two, &group), keys(&[&[int(2)]]));
    assert_eq!(bound(&KeyCondition::And(vec![one_or_two.clone(), equals(0, 3)]), &group), BoundCondition::Nothing);
    assert_eq!(bound(&KeyCondition::Or(vec![one_or_two, KeyCondition::All]), &group), BoundCondition::All);
    assert_eq!(bound(&KeyCondition::Or(vec![]), &group), BoundCondition::Nothing);
    assert_eq!(bound(&KeyCondition::And(vec![]), &group), BoundCondition::All);
}

#[test]
fn null_equals_nothing_and_an_unproven_value_says_nothing() {
    let group = hash_group(&[KeyType::Int8]);
    let is = |value: KeyValue| bound(&test(0, KeyType::Int8, Test::Equals(value)), &group);
    assert_eq!(is(KeyValue::Null), BoundCondition::Nothing);
    assert_eq!(is(constant(1700, "1.5")), BoundCondition::Nothing);
    assert_eq!(is(constant(701, "1")), BoundCondition::All);
    assert_eq!(is(constant(0, "x")), BoundCondition::All);
    let among = |values: Vec<KeyValue>| bound(&test(0, KeyType::Int8, Test::In(values)), &group);
    assert_eq!(among(vec![number(2), KeyValue::Null, number(1)]), keys(&[&[int(1)], &[int(2)]]));
    assert_eq!(among(vec![KeyValue::Null]), BoundCondition::Nothing);
    assert_eq!(among(vec![number(2), constant(701, "1")]), BoundCondition::All);
}

#[test]
fn every_column_must_be_known_for_hash_and_lookup() {
    let types = [KeyType::Int8, KeyType::Int8];
    for group in [hash_group(&types), lookup_group(&types, None)] {
        let both = KeyCondition::And(vec![equals(0, 1), equals(1, 2)]);
        assert_eq!(bound(&both, &group), keys(&[&[int(1), int(2)]]));
        assert_eq!(bound(&equals(0, 1), &group), BoundCondition::All);
        assert_eq!(bound(&KeyCondition::Or(vec![both, equals(1, 2)]), &group), BoundCondition::All);
        let rows = [(1, 5), (3, 4), (1, 5)].map(|(a, b)| KeyCondition::And(vec![equals(0, a), equals(1, b)]));
        assert_eq!(bound(&KeyCondition::Or(rows.to_vec()), &group), keys(&[&[int(1), int(5)], &[int(3), int(4)]]));
        let crossed = KeyCondition::And(vec![KeyCondition::Or(vec![equals(0, 1), equals(0, 2)]), equals(1, 9)]);
        assert_eq!(bound(&crossed, &group), keys(&[&[int(1), int(9)], &[int(2), int(9)]]));
    }
}

#[test]
fn key_functions_are_applied_to_values_and_not_to_comparisons() {
    let group = lookup_group(&[KeyType::Text], None);
    let right =
        |test| KeyCondition::Test(KeyTest { column: 0, column_type: KeyType::Text, function: Some(KeyFunction::Right(1)), test });
    let isbn = Test::Equals(constant(0, "080442957X"));
    assert_eq!(bound(&right(isbn), &group), keys(&[&[text("X")]]));
    let range = range_group(&[KeyType::Text], &[]);
    let above = Test::Compare(Comparison::Greater, constant(0, "9"));
    assert_eq!(bound(&right(above), &range), BoundCondition::All);
}

#[test]
fn arrays_are_taken_apart() {
    let group = hash_group(&[KeyType::Int8]);
    let any = test(0, KeyType::Int8, Test::AnyOf(parameter(1)));
    let with = |oid, value: Option<&[u8]>| {
        let parameters = [Parameter { oid, format: Format::Text, value }];
        bind(&any, &group, &Inputs::listed("", &[], &parameters)).unwrap()
    };
    assert_eq!(with(1016, Some(b"{2,NULL,1}")), keys(&[&[int(1)], &[int(2)]]));
    assert_eq!(with(1016, Some(b"{}")), BoundCondition::Nothing);
    assert_eq!(with(1016, None), BoundCondition::Nothing);
    assert_eq!(with(1022, Some(b"{1}")), BoundCondition::All);
    assert_eq!(bind(&any, &group, &no_inputs()).unwrap(), BoundCondition::All, "a parameter that is not there");
}

#[test]
fn comparisons_are_ranges_of_a_range_group() {
    let group = range_group(&[KeyType::Int8], &[]);
    let bytes = |value| Some(key(&[int(value)]).ordered_bytes());
    let range = |low, high| BoundCondition::Ranges(vec![KeyRange { low, high }]);
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    assert_eq!(bound(&compare(0, Less, number(5)), &group), range(None, bytes(5)));
    assert_eq!(bound(&compare(0, LessOrEqual, number(5)), &group), range(None, bytes(6)));
    assert_eq!(bound(&compare(0, Greater, number(5)), &group), range(bytes(6), None));
    assert_eq!(bound(&compare(0, GreaterOrEqual, number(5)), &group), range(bytes(5), None));
    assert_eq!(bound(&compare(0, Greater, constant(1700, "5.5")), &group), range(bytes(6), None));
    assert_eq!(bound(&compare(0, LessOrEqual, constant(1700, "5.5")), &group), range(None, bytes(6)));
    assert_eq!(bound(&compare(0, Less, constant(1700, "1e30")), &group), BoundCondition::All);
    assert_eq!(bound(&compare(0, Greater, constant(1700, "NaN")), &group), BoundCondition::Nothing);
    assert_eq!(bound(&compare(0, Less, KeyValue::Null), &group), BoundCondition::Nothing);
    let between = KeyCondition::And(vec![compare(0, GreaterOrEqual, number(3)), compare(0, Less, number(5))]);
    assert_eq!(bound(&between, &group), range(bytes(3), bytes(5)));
    let empty = KeyCondition::And(vec![compare(0, Greater, number(5)), compare(0, Less, number(5))]);
    assert_eq!(bound(&empty, &group), BoundCondition::Nothing);
    let point = KeyCondition::And(vec![compare(0, Greater, number(5)), KeyCondition::Or(vec![equals(0, 4), equals(0, 9)])]);
    assert_eq!(bound(&point, &group), keys(&[&[int(9)]]));
}

#[test]
fn the_first_columns_narrow_a_range_group() {
    let group = range_group(&[KeyType::Text, KeyType::Int8], &[]);
    let region = test(0, KeyType::Text, Test::Equals(constant(0, "eu")));
    let eu = key(&[text("eu")]).ordered_bytes();
    let end = after_prefix(&eu);
    let ranges = |low, high| BoundCondition::Ranges(vec![KeyRange { low, high }]);
    assert_eq!(bound(&region, &group), ranges(Some(eu), end.clone()));
    let above = KeyCondition::And(vec![region, compare(1, Comparison::Greater, number(5))]);
    assert_eq!(bound(&above, &group), ranges(Some(key(&[text("eu"), int(6)]).ordered_bytes()), end));
    assert_eq!(bound(&equals(1, 5), &group), BoundCondition::All, "the second column alone does not narrow");
}

#[test]
fn an_insert_needs_a_proven_key() {
    let group = hash_group(&[KeyType::Int8]);
    let insert = |value, is_not_null| bind(&stored(0, KeyType::Int8, value, is_not_null), &group, &no_inputs());
    assert_eq!(insert(number(5), true), Ok(keys(&[&[int(5)]])));
    assert_eq!(insert(constant(1700, "1.5"), true), Ok(keys(&[&[int(2)]])), "rounded");
    for unproven in [constant(701, "1"), constant(0, "0x10"), parameter(1)] {
        assert_eq!(insert(unproven, true).unwrap_err().code, SqlState::FEATURE_NOT_SUPPORTED);
    }
    for wrong in [KeyValue::Null, constant(0, "x"), constant(1700, "1e30")] {
        assert_eq!(insert(wrong, true), Ok(BoundCondition::Nothing), "the shard says what is wrong");
    }
    assert_eq!(insert(KeyValue::Null, false).unwrap_err().message, "a row to be inserted has a null shard key");
    let rows = (0..3_000).map(|row| stored(0, KeyType::Int8, number(row), true)).collect();
    let BoundCondition::Keys(keys) = bound(&KeyCondition::Or(rows), &group) else { panic!("not keys") };
    assert_eq!(keys.len(), 3_000);
}

#[test]
fn too_many_keys_or_too_deep_a_condition_are_everything() {
    let group = hash_group(&[KeyType::Int8, KeyType::Int8]);
    let many = |column| test(column, KeyType::Int8, Test::In((0..200).map(number).collect()));
    assert_eq!(bound(&KeyCondition::And(vec![many(0), many(1)]), &group), BoundCondition::All);
    let nested = (0..100_000).fold(equals(0, 1), |condition, _| KeyCondition::And(vec![condition]));
    assert_eq!(bound(&nested, &hash_group(&[KeyType::Int8])), BoundCondition::All);
    // Dropping it would overflow the stack; nothing that was parsed nests like this.
    std::mem::forget(nested);
}
