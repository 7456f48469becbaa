//! The map's values as the map database stores them, and back.
//!
//! What is stored stays readable for later versions: names are PostgreSQL's, bounds are order-preserving bytes. A value that
//! is not understood is an error, never a default.

use serde_json::{Value, json};

use super::error::StoreError;
use super::model::{Bound, DeclaredFunction, PartitionState, ShardState, Strategy};
use crate::catalog::hex;
use crate::shard_key::{FunctionArgument, Key, KeyColumn, KeyFunction, KeyType};

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Hash => "hash",
            Strategy::Range => "range",
            Strategy::Lookup => "lookup",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Strategy::Hash, Strategy::Range, Strategy::Lookup].into_iter().find(|strategy| strategy.name() == name)
    }
}

impl ShardState {
    pub fn name(self) -> &'static str {
        match self {
            ShardState::Preparing => "preparing",
            ShardState::Online => "online",
            ShardState::ReadOnly => "read_only",
            ShardState::Draining => "draining",
            ShardState::Maintenance => "maintenance",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        ShardState::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl PartitionState {
    pub fn name(self) -> &'static str {
        match self {
            PartitionState::Online => "online",
            PartitionState::Moving => "moving",
            PartitionState::Held => "held",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [PartitionState::Online, PartitionState::Moving, PartitionState::Held].into_iter().find(|state| state.name() == name)
    }
}

impl Bound {
    /// Bytes that sort as the bounds do; never empty, since the empty ones are the beginning of the key space.
    pub fn to_stored(&self) -> Vec<u8> {
        match self {
            Bound::Hash(hash) => (hash.cast_unsigned() ^ SIGN).to_be_bytes().to_vec(),
            Bound::Key(key) => key.to_vec(),
        }
    }

    /// `None` inside: the beginning of the key space.
    pub(super) fn from_stored(strategy: Strategy, stored: Option<&[u8]>) -> Result<Option<Self>, StoreError> {
        match (strategy, stored) {
            (Strategy::Lookup, None) | (Strategy::Hash | Strategy::Range, Some([])) => Ok(None),
            (Strategy::Hash, Some(stored)) => {
                let bytes = stored.try_into().map_err(|_| unreadable("bound", "of a hash partition"))?;
                Ok(Some(Bound::Hash((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())))
            }
            (Strategy::Range, Some(stored)) => Ok(Some(Bound::Key(stored.into()))),
            (Strategy::Lookup, Some(_)) | (Strategy::Hash | Strategy::Range, None) => Err(unreadable("bound", strategy.name())),
        }
    }

    /// For people: a hash as a decimal number, a key as PostgreSQL prints it.
    pub fn to_text(&self, key_types: &[KeyType]) -> String {
        match self {
            Bound::Hash(hash) => hash.to_string(),
            // Bytes that are no key still make a bound (the end of all keys with a prefix).
            Bound::Key(key) => {
                Key::from_ordered_bytes(key_types, key).map_or_else(|| format!("\\x{}", hex(key)), |key| key.to_text(key_types))
            }
        }
    }
}

pub(super) fn key_types_to_stored(key_types: &[KeyType]) -> Vec<&'static str> {
    key_types.iter().map(|key_type| key_type.name()).collect()
}

pub(super) fn key_types_from_stored(names: &[String]) -> Result<Vec<KeyType>, StoreError> {
    names.iter().map(|name| KeyType::from_name(name).ok_or_else(|| unreadable("key type", name))).collect()
}

pub(super) fn key_to_stored(columns: &[KeyColumn]) -> Value {
    let column = |column: &KeyColumn| {
        let mut stored = json!({ "column": column.column, "type": column.column_type.name() });
        if let Some(function) = &column.function {
            stored["function"] = function_to_stored(function);
        }
        stored
    };
    Value::Array(columns.iter().map(column).collect())
}

/// The shard key of a declared table, as the column `key` holds it.
pub fn key_from_stored(stored: &Value) -> Result<Vec<KeyColumn>, StoreError> {
    let columns = stored.as_array().ok_or_else(|| unreadable("shard key", "that is no array"))?;
    columns
        .iter()
        .map(|column| key_column_from_stored(column).ok_or_else(|| unreadable("shard key", &column.to_string())))
        .collect()
}

fn key_column_from_stored(stored: &Value) -> Option<KeyColumn> {
    Some(KeyColumn {
        column: stored.get("column")?.as_str()?.to_owned(),
        column_type: KeyType::from_name(stored.get("type")?.as_str()?)?,
        function: match stored.get("function") {
            None => None,
            Some(function) => Some(function_from_stored(function)?),
        },
    })
}

/// As the call's name and arguments other than the column.
fn function_to_stored(function: &KeyFunction) -> Value {
    match function {
        KeyFunction::Left(length) => json!({ "name": "left", "arguments": [length] }),
        KeyFunction::Right(length) => json!({ "name": "right", "arguments": [length] }),
        KeyFunction::Substr(from, length) => json!({ "name": "substr", "arguments": [from, length] }),
        KeyFunction::Modulo(divisor) => json!({ "name": "mod", "arguments": [divisor] }),
        KeyFunction::DateTrunc(unit) => json!({ "name": "date_trunc", "arguments": [unit.name()] }),
    }
}

fn function_from_stored(stored: &Value) -> Option<KeyFunction> {
    use FunctionArgument::{Column, Integer, Text};
    let integer = |value: &Value| value.as_i64().map(Integer);
    let name = stored.get("name")?.as_str()?;
    match (name, stored.get("arguments")?.as_array()?.as_slice()) {
        ("left" | "right" | "mod", [argument]) => KeyFunction::from_call(name, &[Column, integer(argument)?]),
        ("substr", [from, length]) => KeyFunction::from_call(name, &[Column, integer(from)?, integer(length)?]),
        ("date_trunc", [unit]) => KeyFunction::from_call(name, &[Text(unit.as_str()?), Column]),
        _ => None,
    }
}

pub(super) fn tables_to_stored(tables: &[(String, String)]) -> Value {
    json!(tables)
}

/// The row of a declared function.
pub(super) fn declared_function(
    (schema, name): (String, String),
    reads: Value,
    writes: Value,
    key_argument: Option<i32>,
    declared_as: Option<Value>,
) -> Result<DeclaredFunction, StoreError> {
    let tables = |stored: Value| serde_json::from_value(stored).map_err(|_| unreadable("list of tables of function", &name));
    let fingerprints = |stored: Value| serde_json::from_value(stored).map_err(|_| unreadable("fingerprints of function", &name));
    Ok(DeclaredFunction {
        declared_as: declared_as.map(fingerprints).transpose()?,
        reads: tables(reads)?,
        writes: tables(writes)?,
        key_argument: key_argument.and_then(|argument| usize::try_from(argument).ok()),
        schema,
        name,
    })
}

pub(super) fn unreadable(what: &str, value: &str) -> StoreError {
    StoreError::Unreadable(format!("{what} {value}"))
}

/// Flipped, so that negative numbers sort before positive ones.
const SIGN: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_key::DateUnit;

    #[test]
    fn stored_hash_bounds_sort_as_the_numbers_do_and_come_back() {
        let numbers = [i64::MIN, -5, -1, 0, 1, 7_000_000_000, i64::MAX];
        let stored: Vec<_> = numbers.iter().map(|number| Bound::Hash(*number).to_stored()).collect();
        assert!(stored.is_sorted());
        for (number, stored) in numbers.iter().zip(&stored) {
            let read = Bound::from_stored(Strategy::Hash, Some(stored)).expect("readable");
            assert_eq!(read, Some(Bound::Hash(*number)));
        }
    }

    #[test]
    fn bounds_that_do_not_fit_their_strategy_are_errors() {
        assert!(Bound::from_stored(Strategy::Hash, Some(b"abc")).is_err());
        assert!(Bound::from_stored(Strategy::Hash, None).is_err());
        assert!(Bound::from_stored(Strategy::Lookup, Some(b"abc")).is_err());
        assert_eq!(Bound::from_stored(Strategy::Range, Some(b"")).expect("readable"), None);
    }

    #[test]
    fn keys_come_back_as_they_were_stored() {
        let plain = |column: &str, column_type| KeyColumn { column: column.to_owned(), column_type, function: None };
        let of = |function| KeyColumn { column: "isbn".to_owned(), column_type: KeyType::Text, function: Some(function) };
        let columns = vec![
            plain("Region \"x\"", KeyType::Bpchar),
            plain("at", KeyType::Timestamptz),
            of(KeyFunction::Left(-2)),
            of(KeyFunction::Right(1)),
            of(KeyFunction::Substr(2, 3)),
            of(KeyFunction::Modulo(16)),
            of(KeyFunction::DateTrunc(DateUnit::Month)),
        ];
        assert_eq!(key_from_stored(&key_to_stored(&columns)).expect("readable"), columns);
        assert!(
            key_from_stored(&json!([{ "column": "a", "type": "integer", "function": { "name": "md5", "arguments": [] } }]))
                .is_err()
        );
        assert!(key_from_stored(&json!([{ "column": "a", "type": "json" }])).is_err());
    }

    #[test]
    fn bounds_are_readable() {
        assert_eq!(Bound::Hash(-42).to_text(&[KeyType::Int8]), "-42");
        let key = Key::parse(&[KeyType::Date], &["2026-03-01"]).expect("a date");
        assert_eq!(Bound::Key(key.ordered_bytes()).to_text(&[KeyType::Date]), "2026-03-01");
        assert_eq!(Bound::Key([0xff].into()).to_text(&[KeyType::Date]), "\\xff");
    }
}
