//! The condition that leaves out the residues of one table.
//!
//! One test against a multirange (or an array of lookup keys) that the shard gives, NULL-safe: rows whose key is NULL belong to no
//! partition and stay. The sub-select is evaluated once a statement. Two operators for each row, so that PostgreSQL evaluates it before what the client's conditions compute. Every name and operator is
//! qualified: a user's own operators may stand first in the search path.

use crate::catalog::{Relation, quoted_identifier};
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
        (Strategy::Range, [value], [key_type]) => {
            let (value, multirange) = ranged(value, *key_type)?;
            format!("{value} OPERATOR(pg_catalog.<@) (SELECT shardgate.residue_ranges({})::{multirange})", group.id.0)
        }
        (Strategy::Lookup, [value], [key_type]) => {
            // As rows, which PostgreSQL hashes: the keys may be many.
            let (id, element) = (group.id.0, array_element(*key_type));
            format!(
                "{value} OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest(shardgate.residue_keys({id})::pg_catalog.{element}[]))"
            )
        }
        (Strategy::Range | Strategy::Lookup, _, _) => {
            return Err(uncoverable("Partitions by range or lookup of several columns cannot be excluded yet."));
        }
    };
    // The hash of a record of NULLs is a number.
    let present: Vec<String> = group
        .key_types
        .iter()
        .zip(&columns)
        .filter(|(key_type, _)| group.strategy == Strategy::Hash && key_type.hash_sql("", "").contains("record"))
        .map(|(_, column)| format!("{column} IS NOT NULL AND "))
        .collect();
    Ok(format!("({}{test}) IS NOT TRUE", present.concat()))
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
        (Strategy::Range, [key_type]) => ranged("", *key_type).is_ok(),
        (Strategy::Range | Strategy::Lookup, _) => false,
    }
}

/// The value as the element of a multirange type of PostgreSQL's, and that type.
pub fn ranged(value: &str, key_type: KeyType) -> Result<(String, &'static str), PgError> {
    match key_type {
        KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => Ok((format!("({value})::pg_catalog.int8"), "pg_catalog.int8multirange")),
        KeyType::Date => Ok((value.to_owned(), "pg_catalog.datemultirange")),
        KeyType::Timestamp => Ok((value.to_owned(), "pg_catalog.tsmultirange")),
        KeyType::Timestamptz => Ok((value.to_owned(), "pg_catalog.tstzmultirange")),
        KeyType::Text | KeyType::Bpchar | KeyType::Uuid | KeyType::Bool | KeyType::Bytea => {
            Err(uncoverable("PostgreSQL has no range type for this key."))
        }
    }
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
    }
}

/// Whether the condition can be written for a table, without writing it: what is checked before a partition moves.
pub fn can_exclude(relation: &Relation, key: &[KeyColumn], group: &Group) -> Result<(), PgError> {
    condition(key, group, "t", |name| relation.column(name).map(|column| column.name.clone())).map(drop)
}
