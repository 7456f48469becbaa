//! TRUNCATE: which tables it empties, CASCADE's among them.
//!
//! Each shard empties its own part, so the statement runs on every shard as it is. That is not the same where a trigger fires
//! for it: once on each shard. Columns that the whole cluster numbers are restarted by the proxy.

use std::collections::BTreeSet;

use pg_raw_parse::nodes;

use crate::catalog::{Oid, Relation};
use crate::error::PgError;
use crate::sql::analysis::{Command, Merge, Part, Scope};
use crate::sql::context::Context;
use crate::sql::ddl::named_relations::{beside_lasting, temporary_among};
use crate::sql::placing::{self, Placement};
use crate::sql::query::{Place, Reader, Resolved, placed, resolve};
use crate::sql::statement::Source;

/// What a TRUNCATE does besides.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub is_cascading: bool,
    /// RESTART IDENTITY.
    pub restarts: bool,
}

/// The placement with what CASCADE adds to it, and what triggers do.
pub fn of_all_that_is_emptied(
    placement: Placement,
    names: &[&nodes::RangeVar],
    options: Options,
    context: &Context,
    source: Source<'_>,
) -> Placement {
    let emptied = emptied(names, options.is_cascading, context);
    let is_distributed =
        |relation: &&Relation| matches!(placed(context, relation, true), Resolved::Sharded { .. } | Resolved::Reference(_));
    let is_everywhere = match &placement.scope {
        Scope::EveryShard => true,
        // What refers to a table of the home shard may have rows elsewhere.
        Scope::Placed { parts, .. } => parts.contains(&Part::Home) && emptied.iter().any(is_distributed),
        Scope::Session
        | Scope::Map
        | Scope::Proxy(_)
        | Scope::Tableless
        | Scope::System
        | Scope::Replicated
        | Scope::Refused(_) => false,
    };
    if !is_everywhere {
        return at_home(placement, &emptied, context, source);
    }
    if let Some(table) = temporary_among(names.iter().copied(), context).filter(|_| context.map.shards.len() > 1) {
        return Placement { scope: Scope::Refused(beside_lasting(table)), ..placement };
    }
    let is_numbered = |relation: &&Relation| relation.columns.iter().any(|column| column.cluster_sequence().is_some());
    let restarts = match options.restarts {
        true => emptied.iter().copied().filter(is_numbered).map(|relation| relation.oid).collect(),
        false => Vec::new(),
    };
    let fires = |relation: &&Relation| relation.triggers.iter().any(|trigger| trigger.fires_on.truncate);
    let scope = match emptied.into_iter().find(fires) {
        None => Scope::EveryShard,
        Some(relation) => Scope::Refused(PgError::unsupported(
            "TRUNCATE that fires a trigger is not supported across shards",
            format!("A trigger of table \"{}\" would fire once on every shard.", relation.name),
            "Use DELETE, or disable the trigger meanwhile.",
        )),
    };
    Placement { scope, command: Command::Truncate { restarts }, ..placement }
}

/// Tables of the home shard: what their triggers touch must be there too.
fn at_home(placement: Placement, emptied: &[&Relation], context: &Context, source: Source<'_>) -> Placement {
    let mut triggers =
        emptied.iter().flat_map(|relation| &relation.triggers).filter(|trigger| trigger.fires_on.truncate).peekable();
    if triggers.peek().is_none() || !matches!(placement.scope, Scope::Placed { .. }) {
        return placement;
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    reader.notes.writes();
    for function in triggers.filter_map(|trigger| context.catalog.functions.get(&trigger.function)) {
        reader.note_user_function(function, Place::Inside);
    }
    reader.parts.push(Part::Home);
    let has_unknown_names = placement.has_unknown_names;
    let placement = placing::finish(reader, placement.command, Ok(Merge::default()));
    Placement { has_unknown_names: placement.has_unknown_names || has_unknown_names, ..placement }
}

/// The relations named, their children, and with CASCADE all that refer to them.
fn emptied<'c>(names: &[&nodes::RangeVar], is_cascading: bool, context: &'c Context) -> Vec<&'c Relation> {
    let named = names.iter().filter_map(|name| match resolve(context, name, &context.search_path) {
        Resolved::Sharded { relation, .. } | Resolved::Reference(relation) | Resolved::View(relation) => Some(relation.oid),
        Resolved::Home(relation) => relation.map(|relation| relation.oid),
        Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => None,
    });
    let mut waiting: Vec<Oid> = named.collect();
    let mut found = BTreeSet::new();
    while let Some(oid) = waiting.pop() {
        if !found.insert(oid) {
            continue;
        }
        let Some(relation) = context.catalog.relations.get(&oid) else { continue };
        waiting.extend(&relation.children);
        if is_cascading {
            let refers = |other: &&Relation| other.foreign_keys.iter().any(|key| key.referenced == oid);
            waiting.extend(context.catalog.relations.values().filter(refers).map(|other| other.oid));
        }
    }
    found.iter().filter_map(|oid| context.catalog.relations.get(oid)).collect()
}
