//! Random key types and data for property tests.

use proptest::prelude::*;
use proptest::sample::select;

use super::{KeyDatum, KeyType};

pub(crate) fn any_key_type() -> impl Strategy<Value = KeyType> {
    select(&KeyType::ALL[..])
}

/// Any value that a column of this type can have.
pub(crate) fn any_datum(key_type: KeyType) -> BoxedStrategy<KeyDatum> {
    match key_type {
        KeyType::Int2 => any::<i16>().prop_map(|value| KeyDatum::Int(value.into())).boxed(),
        KeyType::Int4 => any::<i32>().prop_map(|value| KeyDatum::Int(value.into())).boxed(),
        KeyType::Int8 => prop_oneof![any::<i64>(), -3..3_i64].prop_map(KeyDatum::Int).boxed(),
        KeyType::Text => "[a-c ,\"\\\\(é\u{1}]{0,4}".prop_map(|text| KeyDatum::Text(text.into())).boxed(),
        KeyType::Bpchar => "[a-c ]{0,4}".prop_map(|text| KeyDatum::Text(text.trim_end_matches(' ').into())).boxed(),
        KeyType::Uuid => any::<[u8; 16]>().prop_map(KeyDatum::Uuid).boxed(),
        // Years 1 to 9999: what is printed is read back.
        KeyType::Date => prop_oneof![-730_119..2_921_940, Just(i32::MIN), Just(i32::MAX)].prop_map(KeyDatum::Date).boxed(),
        KeyType::Timestamp | KeyType::Timestamptz => {
            let finite = -63_082_281_600_000_000..252_455_616_000_000_000_i64;
            prop_oneof![finite, Just(i64::MIN), Just(i64::MAX)].prop_map(KeyDatum::Timestamp).boxed()
        }
        KeyType::Bool => any::<bool>().prop_map(KeyDatum::Bool).boxed(),
        KeyType::Bytea => proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..4)
            .prop_map(|bytes| KeyDatum::Bytea(bytes.into()))
            .boxed(),
        KeyType::Numeric => "NaN|-?Infinity|-?[0-9]{0,9}[0-9](\\.[0-9]{1,9})?"
            .prop_map(|text| KeyDatum::parse(KeyType::Numeric, &text).expect("a number"))
            .boxed(),
    }
}
