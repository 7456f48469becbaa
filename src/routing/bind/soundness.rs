//! The one property that must never break: no row that the statement can touch is left out.
//!
//! Random conditions over two columns are evaluated row by row and compared with what [`bind`] says.

use proptest::prelude::*;

use super::{BoundCondition, bind};
use crate::routing::Inputs;
use crate::routing::testing::{constant, hash_group, int, key, lookup_group, number, range_group, test};
use crate::shard_key::{Key, KeyType};
use crate::sql::analysis::{Comparison, KeyCondition, KeyValue, Test};

/// Conditions on two int8 columns, with values between 0 and 5, halves, NULL and unknown ones among them.
fn any_condition() -> impl Strategy<Value = KeyCondition> {
    let value = || {
        prop_oneof![
            8 => (0..6_i64).prop_map(number),
            2 => (0..6_i64).prop_map(|value| constant(1700, &format!("{value}.5"))),
            1 => Just(KeyValue::Null),
            1 => Just(constant(701, "1")),
        ]
    };
    let comparison = prop_oneof![
        Just(Comparison::Less),
        Just(Comparison::LessOrEqual),
        Just(Comparison::Greater),
        Just(Comparison::GreaterOrEqual)
    ];
    let a_test = prop_oneof![
        3 => value().prop_map(Test::Equals),
        2 => proptest::collection::vec(value(), 0..4).prop_map(Test::In),
        3 => (comparison, value()).prop_map(|(comparison, value)| Test::Compare(comparison, value)),
    ];
    let leaf = prop_oneof![
        10 => (0..2_usize, a_test).prop_map(|(column, a_test)| test(column, KeyType::Int8, a_test)),
        1 => Just(KeyCondition::All),
        1 => Just(KeyCondition::Nothing),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(KeyCondition::And),
            proptest::collection::vec(inner, 0..4).prop_map(KeyCondition::Or),
        ]
    })
}

/// Can a row with this key satisfy the condition? An unknown comparison can always hold.
fn can_hold(condition: &KeyCondition, row: [f64; 2]) -> bool {
    // Three values: NULL and false are alike here, since nothing is negated.
    let value = |value: &KeyValue| match value {
        KeyValue::Constant { oid: 701, .. } => None,
        KeyValue::Constant { text, .. } => Some(text.parse::<f64>().unwrap()),
        KeyValue::Null => Some(f64::NAN),
        other => panic!("{other:?}"),
    };
    match condition {
        KeyCondition::All => true,
        KeyCondition::Nothing => false,
        KeyCondition::And(conditions) => conditions.iter().all(|condition| can_hold(condition, row)),
        KeyCondition::Or(conditions) => conditions.iter().any(|condition| can_hold(condition, row)),
        KeyCondition::Test(test) => {
            let column = row[test.column];
            match &test.test {
                Test::Equals(right) => value(right).is_none_or(|right| column == right),
                Test::In(values) => values.iter().any(|right| value(right).is_none_or(|right| column == right)),
                Test::Compare(comparison, right) => value(right).is_none_or(|right| match comparison {
                    Comparison::Less => column < right,
                    Comparison::LessOrEqual => column <= right,
                    Comparison::Greater => column > right,
                    Comparison::GreaterOrEqual => column >= right,
                }),
                Test::AnyOf(_) | Test::Stored(_) => panic!("not generated"),
            }
        }
    }
}

fn holds_key(bound: &BoundCondition, key: &Key) -> bool {
    let bytes = key.ordered_bytes();
    match bound {
        BoundCondition::All => true,
        BoundCondition::Nothing => false,
        BoundCondition::Keys(keys) => keys.contains(key),
        BoundCondition::Ranges(ranges) => ranges.iter().any(|range| {
            range.low.as_ref().is_none_or(|low| *low <= bytes) && range.high.as_ref().is_none_or(|high| bytes < *high)
        }),
    }
}

proptest! {
    #[test]
    fn no_row_that_can_match_is_left_out(condition in any_condition()) {
        let types = [KeyType::Int8, KeyType::Int8];
        for group in [hash_group(&types), range_group(&types, &[]), lookup_group(&types, None)] {
            let inputs = Inputs::literals("", &[]);
                let bound = bind(&condition, &group, &inputs).unwrap();
            for (a, b) in (-1..8_i32).flat_map(|a| (-1..8_i32).map(move |b| (a, b))) {
                let row = key(&[int(a.into()), int(b.into())]);
                let can_match = can_hold(&condition, [a.into(), b.into()]);
                prop_assert!(!can_match || holds_key(&bound, &row), "{:?} is left out of {:?}", row, bound);
                if let BoundCondition::Keys(_) = bound {
                    prop_assert!(can_match || !holds_key(&bound, &row), "{:?} is in {:?} for nothing", row, bound);
                }
            }
        }
    }
}
