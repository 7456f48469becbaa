//! From a name in a statement to what it means under the session's search path: sharded, reference or home table, view,
//! catalogue, the proxy's own relations.

use std::sync::Arc;

use pg_raw_parse::nodes;

use crate::catalog::{Relation, RelationKind, qualified_name};
use crate::shardmap::{Group, Table, TableKind};
use crate::sql::context::Context;
use crate::sql::utility::shardgate_call;

/// What a relation's name means.
#[derive(Clone, Debug)]
pub enum Resolved<'c> {
    Sharded {
        table: &'c Table,
        group: &'c Arc<Group>,
        relation: &'c Relation,
    },
    Reference(&'c Relation),
    /// A table that is not distributed, a temporary table, or a name that the catalogue does not know.
    Home(Option<&'c Relation>),
    View(&'c Relation),
    /// `pg_catalog`, `information_schema`.
    System,
    /// In the map database.
    Map(String),
    /// Known only to the proxy that answers.
    Proxy(String),
    /// Cannot be placed: the reason.
    Mixed(String),
}

impl<'c> Resolved<'c> {
    /// The table, as the catalogue knows it.
    pub fn table(self) -> Option<&'c Relation> {
        match self {
            Resolved::Sharded { relation, .. } | Resolved::Reference(relation) | Resolved::Home(Some(relation)) => Some(relation),
            Resolved::Home(None)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => None,
        }
    }
}

/// How many levels of partitions of partitions are followed.
const ANCESTORS_MAX: usize = 16;

const PROXY_RELATIONS: [&str; 3] = ["clients", "pools", "transactions"];
const MAP_RELATIONS: [&str; 8] =
    ["shards", "tables", "partitions", "lookup_keys", "moves", "proxies", "history", "time_partitions"];

pub fn resolve<'c>(context: &'c Context, name: &nodes::RangeVar, search_path: &[String]) -> Resolved<'c> {
    resolve_name(context, name.schemaname(), name.relname().unwrap_or_default(), search_path, name.inh)
}

/// `with_children`: not ONLY.
pub fn resolve_name<'c>(
    context: &'c Context,
    schema: Option<&str>,
    name: &str,
    search_path: &[String],
    with_children: bool,
) -> Resolved<'c> {
    match schema {
        Some(shardgate_call::SCHEMA) => return own_relation(name),
        Some("pg_catalog" | "information_schema" | "pg_toast") => return Resolved::System,
        Some("pg_temp") if let Some(oid) = context.brought.get(name) => {
            return context.catalog.relations.get(oid).map_or(Resolved::Home(None), Resolved::Reference);
        }
        _ if means_temporary(context, schema, name, search_path) => return Resolved::Home(None),
        Some(_) | None => {}
    }
    let relation = match schema {
        Some(schema) => context.catalog.resolve(Some(schema), name, &[]),
        None => {
            let found = search_path.iter().find_map(|schema| {
                if schema == shardgate_call::SCHEMA && is_own_relation(name) {
                    return Some(None);
                }
                context.catalog.resolve(Some(schema), name, &[]).map(Some)
            });
            match found {
                Some(None) => return own_relation(name),
                Some(found) => found,
                None => None,
            }
        }
    };
    match relation {
        Some(relation) => placed(context, relation, with_children),
        None if name.starts_with("pg_") => Resolved::System,
        None if is_in_map(context, schema, name, search_path) => {
            Resolved::Mixed(format!("Table \"{name}\" is distributed, but this proxy has not seen it on the home shard yet."))
        }
        None => Resolved::Home(None),
    }
}

/// The name means a temporary table of the session: by its schema, or since these are found first, unless the path names `pg_temp`
/// later. The only place where this is decided.
pub fn means_temporary(context: &Context, schema: Option<&str>, name: &str, search_path: &[String]) -> bool {
    if let Some(schema) = schema {
        return is_temporary_schema(schema);
    }
    context.temporary_tables.iter().any(|table| table == name)
        && search_path
            .iter()
            .position(|schema| schema == "pg_temp")
            .and_then(|position| search_path.get(..position))
            .is_none_or(|before| context.catalog.resolve(None, name, before).is_none())
}

/// As [`means_temporary`], of a name as the input of regclass has it.
pub fn text_means_temporary(context: &Context, text: &str) -> bool {
    qualified_name(text).is_some_and(|(schema, name)| means_temporary(context, schema.as_deref(), &name, &context.search_path))
}

/// Nobody else can name a schema like this: PostgreSQL keeps the prefix for itself.
pub fn is_temporary_schema(schema: &str) -> bool {
    schema == "pg_temp" || schema.starts_with("pg_temp_")
}

fn is_in_map(context: &Context, schema: Option<&str>, name: &str, search_path: &[String]) -> bool {
    let is_known = |schema: &str| context.map.table(schema, name).is_some();
    schema.map_or_else(|| search_path.iter().any(|schema| is_known(schema)), is_known)
}

/// Is it shown by the map or the proxy?
pub fn is_own_relation(name: &str) -> bool {
    MAP_RELATIONS.contains(&name) || PROXY_RELATIONS.contains(&name)
}

fn own_relation<'c>(name: &str) -> Resolved<'c> {
    if PROXY_RELATIONS.contains(&name) { Resolved::Proxy(name.to_owned()) } else { Resolved::Map(name.to_owned()) }
}

/// Where the rows of a relation of the catalogue live.
pub fn placed<'c>(context: &'c Context, relation: &'c Relation, with_children: bool) -> Resolved<'c> {
    if relation.kind == RelationKind::View {
        return Resolved::View(relation);
    }
    // A partition of a sharded table is sharded like its parent, whose name alone is in the map.
    if let Some(table) = distributed_ancestor(context, relation, 0) {
        return match &table.kind {
            TableKind::Reference => Resolved::Reference(relation),
            TableKind::Sharded { group, .. } => match context.map.group(*group) {
                Some(group) => Resolved::Sharded { table, group, relation },
                None => Resolved::Mixed(format!("The map has no colocation group for table \"{}\".", relation.name)),
            },
        };
    }
    if with_children && has_distributed_child(context, relation, 0) {
        return Resolved::Mixed(format!("Table \"{}\" is not distributed, but a table that inherits from it is.", relation.name));
    }
    Resolved::Home(Some(relation))
}

fn distributed_ancestor<'c>(context: &'c Context, relation: &Relation, depth: usize) -> Option<&'c Table> {
    if let Some(table) = context.map.table(&relation.schema, &relation.name) {
        return Some(table);
    }
    if depth == ANCESTORS_MAX {
        return None;
    }
    relation.parents.iter().find_map(|parent| distributed_ancestor(context, context.catalog.relations.get(parent)?, depth + 1))
}

fn has_distributed_child(context: &Context, relation: &Relation, depth: usize) -> bool {
    depth < ANCESTORS_MAX
        && relation.children.iter().filter_map(|child| context.catalog.relations.get(child)).any(|child| {
            context.map.table(&child.schema, &child.name).is_some() || has_distributed_child(context, child, depth + 1)
        })
}
