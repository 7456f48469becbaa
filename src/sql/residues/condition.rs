//! The condition that leaves out the residues of one table.
//!
//! One test against a multirange (or arrays of lookup keys) that the shard gives, NULL-safe: rows whose key is NULL belong to no
//! partition and stay. The sub-select is evaluated once a statement. Two operators for each row, so that PostgreSQL evaluates it before what the client's conditions compute. Every name and operator is
//! qualified: a user's own operators may stand first in the search path.

use std::collections::BTreeSet;

use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::shard_key::{DateUnit, KeyColumn, KeyFunction, KeyType};
use crate::shardmap::{Group, Strategy};

use super::uncoverable;

/// `row`: how the text names the table's row (`public.t`, an alias). `column`: from the table's column to its name there.
pub fn condition(key: &[KeyColumn], group: &Group, row: &str, column: impl Fn(&str) -> Option<String>) -> Result<String, PgError> {
    let columns: Vec<String> = key
        .iter()
        .map(|key| Some(format!("{row}.{}", quoted_identifier(&column(&key.column)?))))
        .collect::<Option<_>>()
        .ok_or_else(|| uncoverable("The shard key has no name in this statement."))?;
    let values: Vec<String> = key.iter().zip(&columns).map(|(key, column)| key_value(key, column)).collect();
    let test = match (group.strategy, &values[..], &group.key_types[..]) {
        (Strategy::Hash, _, types) => {
            let hash = values.iter().zip(types).fold("0".to_owned(), |seed, (value, key_type)| key_type.hash_sql(value, &seed));
            format!("{hash} OPERATOR(pg_catalog.<@) (SELECT shardgate.residue_hashes({}))", group.id.0)
        }
        (Strategy::Range, values, types) => {
            let space = KeySpace::of(types)?;
            let value = space.value(values);
            format!("{value} OPERATOR(pg_catalog.<@) (SELECT shardgate.residue_ranges({})::{})", group.id.0, space.multirange)
        }
        (Strategy::Lookup, values, types) => {
            let (value, element) = match (values, types) {
                ([value], [key_type]) => (value.clone(), format!("pg_catalog.{}", array_element(*key_type))),
                (values, types) => {
                    let values = values.iter().zip(types).map(|(value, key_type)| bytewise(value, *key_type));
                    (format!("ROW({})", values.collect::<Vec<_>>().join(", ")), KeySpace::of(types)?.element)
                }
            };
            // As rows, which PostgreSQL hashes: the keys may be many.
            let among = |keys: &str| {
                let keys = format!("shardgate.{keys}({})::{element}[]", group.id.0);
                format!("{value} OPERATOR(pg_catalog.=) ANY (SELECT * FROM pg_catalog.unnest({keys}))")
            };
            format!("({} OR NOT {})", among("residue_keys"), among("residue_other_keys"))
        }
    };
    let present = columns.iter().zip(&group.key_types).filter(|(_, key_type)| takes_null(group, **key_type));
    let present: Vec<String> = present.map(|(column, _)| format!("{column} IS NOT NULL AND ")).collect();
    Ok(format!("({}{test}) IS NOT TRUE", present.concat()))
}

/// Whether the test of a group's keys may be true where this column is NULL: the hash of a record of NULLs is a number, rows are
/// compared by their first columns, and nothing is among no keys.
pub fn takes_null(group: &Group, key_type: KeyType) -> bool {
    match group.strategy {
        Strategy::Hash => key_type.hash_sql("", "").contains("record"),
        Strategy::Range => group.key_types.len() > 1,
        Strategy::Lookup => true,
    }
}

/// A value that is compared as the map compares it, whatever the collation of its column is.
pub fn bytewise(value: &str, key_type: KeyType) -> String {
    if is_collated(key_type) { format!("{value} COLLATE pg_catalog.\"C\"") } else { value.to_owned() }
}

/// The key column's value, after its function.
pub fn key_value(key: &KeyColumn, column: &str) -> String {
    match &key.function {
        None => column.to_owned(),
        Some(KeyFunction::Left(length)) => format!("pg_catalog.\"left\"({column}, {length})"),
        Some(KeyFunction::Right(length)) => format!("pg_catalog.\"right\"({column}, {length})"),
        Some(KeyFunction::Substr(from, length)) => format!("pg_catalog.substr({column}, {from}, {length})"),
        Some(KeyFunction::Modulo(divisor)) => format!("({column} OPERATOR(pg_catalog.%) {divisor})"),
        Some(KeyFunction::DateTrunc(unit)) => format!("pg_catalog.date_trunc('{}', {column})", DateUnit::name(*unit)),
    }
}

/// Whether the rows of the group's partitions can be excluded at all.
pub fn is_excludable(group: &Group) -> bool {
    match (group.strategy, &group.key_types[..]) {
        (Strategy::Hash, _) | (Strategy::Lookup, [_]) => true,
        (Strategy::Range | Strategy::Lookup, types) => KeySpace::of(types).is_ok(),
    }
}

/// How ranges of a group's keys are written: as a multirange of PostgreSQL's own where it has one, otherwise of a range type that a
/// move makes on every shard. In it text is compared bytewise and keys of several columns as rows, as the map compares them.
pub struct KeySpace<'t> {
    types: &'t [KeyType],
    /// The type, qualified.
    pub multirange: String,
    /// The type of the elements.
    element: String,
    is_own: bool,
}

impl<'t> KeySpace<'t> {
    pub fn of(types: &'t [KeyType]) -> Result<Self, PgError> {
        let built_in = |element: &str, multirange: &str| Self {
            types,
            element: format!("pg_catalog.{element}"),
            multirange: format!("pg_catalog.{multirange}"),
            is_own: false,
        };
        match types {
            [KeyType::Int2 | KeyType::Int4 | KeyType::Int8] => return Ok(built_in("int8", "int8multirange")),
            [KeyType::Date] => return Ok(built_in("date", "datemultirange")),
            [KeyType::Timestamp] => return Ok(built_in("timestamp", "tsmultirange")),
            [KeyType::Timestamptz] => return Ok(built_in("timestamptz", "tstzmultirange")),
            _ => {}
        }
        let names = types.iter().map(|key_type| array_element(*key_type)).collect::<Vec<_>>().join("_");
        if names.len() + MULTIRANGE_PREFIX.len() > NAME_BYTES_MAX {
            return Err(uncoverable("Ranges of this many columns have no name for their type."));
        }
        let element = match types {
            [_] => format!("pg_catalog.{names}"),
            _ => format!("shardgate.key_{names}"),
        };
        Ok(Self { types, element, multirange: format!("shardgate.{MULTIRANGE_PREFIX}{names}"), is_own: true })
    }

    /// The key's value as an element.
    fn value(&self, values: &[String]) -> String {
        match values {
            [value] => format!("({value})::{}", self.element),
            values => format!("ROW({})::{}", values.join(", "), self.element),
        }
    }

    /// What makes the range type on a shard, in a transaction. Can be repeated. `None`: PostgreSQL has it.
    fn made(&self) -> Option<String> {
        if !self.is_own {
            return None;
        }
        let multirange = &self.multirange;
        let range = multirange.replace(MULTIRANGE_PREFIX, RANGE_PREFIX);
        let (element, collation) = match self.types {
            [key_type] if is_collated(*key_type) => (String::new(), r#", collation = pg_catalog."C""#),
            [_] => (String::new(), ""),
            types => {
                let column = |(at, key_type): (usize, &KeyType)| {
                    let collation = if is_collated(*key_type) { r#" COLLATE pg_catalog."C""# } else { "" };
                    format!("k{} pg_catalog.{}{collation}", at + 1, array_element(*key_type))
                };
                let columns: Vec<String> = types.iter().enumerate().map(column).collect();
                (format!("CREATE TYPE {} AS ({}); GRANT USAGE ON TYPE {0} TO PUBLIC; ", self.element, columns.join(", ")), "")
            }
        };
        Some(format!(
            "DO $type$ BEGIN IF pg_catalog.to_regtype('{multirange}') IS NULL THEN {element}\
             CREATE TYPE {range} AS RANGE (subtype = {}{collation}, multirange_type_name = {multirange}); \
             GRANT USAGE ON TYPE {range} TO PUBLIC; END IF; END $type$;",
            self.element
        ))
    }
}

fn is_collated(key_type: KeyType) -> bool {
    match key_type {
        KeyType::Text | KeyType::Bpchar => true,
        KeyType::Int2
        | KeyType::Int4
        | KeyType::Int8
        | KeyType::Uuid
        | KeyType::Date
        | KeyType::Timestamp
        | KeyType::Timestamptz
        | KeyType::Bool
        | KeyType::Bytea
        | KeyType::Numeric => false,
    }
}

/// What conditions for these groups name on a shard besides what every shard has: in a transaction. Can be repeated.
pub fn key_types<'g>(groups: impl Iterator<Item = &'g Group>) -> String {
    let of_keys = groups.filter(|group| match group.strategy {
        Strategy::Hash => false,
        Strategy::Range => true,
        Strategy::Lookup => group.key_types.len() > 1,
    });
    let made: BTreeSet<String> = of_keys.filter_map(|group| KeySpace::of(&group.key_types).ok()?.made()).collect();
    made.into_iter().collect()
}

/// Of `pg_catalog`.
pub fn array_element(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::Int2 => "int2",
        KeyType::Int4 => "int4",
        KeyType::Int8 => "int8",
        KeyType::Text => "text",
        KeyType::Bpchar => "bpchar",
        KeyType::Uuid => "uuid",
        KeyType::Date => "date",
        KeyType::Timestamp => "timestamp",
        KeyType::Timestamptz => "timestamptz",
        KeyType::Bool => "bool",
        KeyType::Bytea => "bytea",
        KeyType::Numeric => "numeric",
    }
}

const RANGE_PREFIX: &str = "key_range_";
const MULTIRANGE_PREFIX: &str = "key_ranges_";
/// Of PostgreSQL's names.
const NAME_BYTES_MAX: usize = 63;
