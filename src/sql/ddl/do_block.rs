//! DO blocks that change the schema and do nothing else: each shard runs them, as it would the changes by themselves.
//!
//! Migrations wrap a change in such a block where it has no IF NOT EXISTS: an exception is caught, or the system catalogue asked
//! whether the object is there. What a block decides by that is the same on shards that have the same schema. A block
//! that asks for anything else, or calls what is not known here, may decide otherwise on each of them, and is none of these.

use pg_raw_parse::nodes;

use crate::catalog::{BodyName, BodyReferences};
use crate::error::PgError;
use crate::sql::body::schema_changes;
use crate::sql::context::Context;
use crate::sql::parse::tokens::Tokens;

/// The texts of its changes; `None`: it is another block.
pub fn changes(block: &nodes::DoStmt, context: &Context) -> Option<Vec<String>> {
    let option = |name: &str| {
        let found = block.args().iter().find(|option| option.defname() == Some(name));
        found.and_then(|option| option.arg().as_str())
    };
    if option("language").is_some_and(|language| !language.eq_ignore_ascii_case("plpgsql")) {
        return None;
    }
    let text = option("as")?;
    let (changes, references) = schema_changes(text);
    (!changes.is_empty() && decides_by_schema(&references, context) && !names_a_server(text)).then_some(changes)
}

/// What the catalogue has otherwise on every shard though the schema is the same: the database's name, and what is counted or stored.
fn names_a_server(block: &str) -> bool {
    let tokens = Tokens::of(block);
    let is_own = |name: String| OF_SERVER.contains(&name.as_str()) || (name.ends_with("_catalog") && name != "pg_catalog");
    (0..tokens.count()).filter_map(|index| tokens.identifier(index)).any(is_own)
}

/// What it refers to is the schema, which is the same on every shard.
fn decides_by_schema(references: &BodyReferences, context: &Context) -> bool {
    let catalog = &context.catalog;
    let is_system = |name: &BodyName| match name.schema.as_deref() {
        Some("information_schema") => true,
        Some("pg_catalog") => OF_SCHEMA.contains(&name.name.as_str()),
        Some(_) => false,
        None => OF_SCHEMA.contains(&name.name.as_str()) && catalog.relations.values().all(|other| other.name != name.name),
    };
    let is_known = |name: &BodyName| {
        let is_plain = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
        is_plain && FUNCTIONS.contains(&name.name.as_str()) && !catalog.function_names.contains_key(&name.name)
    };
    references.unknown.is_none()
        && references.writes.is_empty()
        && references.reads.iter().all(is_system)
        && references.functions.iter().all(is_known)
        && references.operators.iter().all(|operator| OPERATORS.contains(&operator.as_str()))
}

/// A change that is made otherwise than by sending it as it is to every shard.
pub fn not_in_a_block(tag: &str) -> PgError {
    PgError::unsupported(
        format!("{tag} in this DO block is not supported"),
        "The proxy has a part in this change, and cannot take it inside of a block.",
        "Send the statement by itself, with IF EXISTS or IF NOT EXISTS where it may have been done before.",
    )
}

/// Of the system catalogue, what holds the schema, and nothing of what runs or is stored on one server.
const OF_SCHEMA: [&str; 31] = [
    "pg_am",
    "pg_attrdef",
    "pg_attribute",
    "pg_auth_members",
    "pg_cast",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_extension",
    "pg_index",
    "pg_indexes",
    "pg_inherits",
    "pg_language",
    "pg_matviews",
    "pg_namespace",
    "pg_operator",
    "pg_policies",
    "pg_policy",
    "pg_proc",
    "pg_roles",
    "pg_rules",
    "pg_tables",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_type",
    "pg_user",
    "pg_views",
];
/// Columns of it that are of one server.
const OF_SERVER: [&str; 9] = [
    "catalog_name",
    "relallvisible",
    "relfilenode",
    "relfrozenxid",
    "relminmxid",
    "relpages",
    "reltuples",
    "information_schema_catalog_name",
    "xmin",
];
const FUNCTIONS: [&str; 22] = [
    "array_agg",
    "bool_or",
    "concat",
    "count",
    "current_schema",
    "current_schemas",
    "format_type",
    "lower",
    "max",
    "min",
    "pg_function_is_visible",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_functiondef",
    "pg_get_indexdef",
    "pg_table_is_visible",
    "pg_type_is_visible",
    "to_regclass",
    "to_regnamespace",
    "to_regproc",
    "to_regtype",
    "upper",
];
const OPERATORS: [&str; 13] = ["=", "<>", "!=", "<", ">", "<=", ">=", "~~", "!~~", "~~*", "~", "~*", "||"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_shards_decides_nothing() {
        let asking = |condition: &str| {
            format!("BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE {condition}) THEN DROP TABLE t; END IF; END")
        };
        for condition in ["table_catalog = 'shard0'", "c.\"table_catalog\" = 'app'", "Reltuples > 0", "catalog_name = 'app'"] {
            assert!(names_a_server(&asking(condition)), "{condition}");
        }
        for condition in ["table_name = 'table_catalog'", "EXISTS (SELECT FROM pg_catalog.pg_class)", "table_schema = 'public'"] {
            assert!(!names_a_server(&asking(condition)), "{condition}");
        }
    }
}
