//! Covering views: what a covered text names in the place of a view over tables that have residues.
//!
//! A covering view is the view's own query with the conditions of `condition` in it, and covering views in the place of the views that
//! it reads. It excludes the residues of every group that can have any, so that its text is the same on every shard, for every move
//! and before and after a switch: it is made once, never altered, and serves a snapshot of any age. Its name is made of the view's,
//! so that whoever makes it and whoever names it need not ask each other.

use sha2::{Digest, Sha256};

use super::condition::is_excludable;
use super::{exclude, uncoverable};
use crate::catalog::{Catalog, DependencyTarget, DependentKind, Oid, Relation, RelationKind, hex, quoted_name, shown_name};
use crate::error::PgError;
use crate::shardmap::{GroupId, MapSnapshot, TableKind};
use crate::sql::context::Context;
use crate::sql::utility::materialized::{self, Beside};

/// In the schema `shardgate`.
pub fn covering_name(schema: &str, name: &str) -> String {
    let digest = Sha256::digest(quoted_name(schema, name));
    format!("{COVERING_PREFIX}{}", hex(digest.get(..DIGEST_BYTES).unwrap_or(&digest)))
}

/// The view whose covering view is named in what a shard says.
pub fn view_of_covering<'c>(text: &str, catalog: &'c Catalog) -> Option<(&'c Relation, String)> {
    if !text.contains(COVERING_PREFIX) {
        return None;
    }
    let views = catalog.relations.values().filter(|relation| relation.kind == RelationKind::View);
    views.map(|view| (view, covering_name(&view.schema, &view.name))).find(|(_, covering)| text.contains(covering))
}

/// Views that need a covering view while the group may have residues, each after those that it reads.
pub fn views_to_cover(context: &Context, group: GroupId) -> Vec<&Relation> {
    let excludable = excludable(&context.map);
    let mut found = Vec::new();
    let views = context.catalog.relations.values().filter(|relation| relation.kind == RelationKind::View);
    let mut views: Vec<&Relation> = views.filter(|view| reaches(context, &[group], view)).collect();
    views.sort_by_key(|view| view.oid);
    for view in views {
        add_with_read(context, &excludable, view, &mut found);
    }
    found
}

fn add_with_read<'c>(context: &'c Context, groups: &[GroupId], view: &'c Relation, found: &mut Vec<&'c Relation>) {
    if found.iter().any(|known| known.oid == view.oid) {
        return;
    }
    for read in read_by(&context.catalog, view.oid).filter_map(|oid| context.catalog.relations.get(&oid)) {
        if read.oid != view.oid && read.kind == RelationKind::View && reaches(context, groups, read) {
            stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || add_with_read(context, groups, read, found));
        }
    }
    found.push(view);
}

/// What reads rows of the group by a query of its own and is no view, materialized views and rules of tables, each with what to do.
pub fn reading_besides_views(context: &Context, group: GroupId) -> Vec<(String, String)> {
    let catalog = &context.catalog;
    let reads = |relation: &Relation| {
        let dependencies = catalog.relation_dependencies.get(&relation.oid).into_iter().flatten();
        let queries = dependencies.filter(|dependency| matches!(dependency.of, DependentKind::View | DependentKind::Rule));
        queries.into_iter().any(|query| match query.on {
            DependencyTarget::Relation(oid) if oid != relation.oid => {
                catalog.relations.get(&oid).is_some_and(|read| reaches(context, &[group], read))
            }
            DependencyTarget::Relation(_) | DependencyTarget::Function(_) => false,
        })
    };
    let mut found: Vec<(String, String)> = catalog
        .relations
        .values()
        .filter(|relation| relation.kind != RelationKind::View && Beside::of(relation).is_none() && reads(relation))
        .map(|relation| {
            let (reader, remedy) = match relation.kind {
                RelationKind::MaterializedView => ("materialized view".to_owned(), remedy_of_materialized(context, relation)),
                kind => (format!("a rule of {}", kind.word()), "Drop it for the time of the move".to_owned()),
            };
            let name = shown_name(&relation.schema, &relation.name);
            (format!("{reader} {name} reads tables of the move, copies included"), remedy)
        })
        .collect();
    found.sort();
    found
}

fn remedy_of_materialized(context: &Context, view: &Relation) -> String {
    match view.view_definition.as_deref() {
        Some(query) => {
            let (drop, create) = materialized::made_anew(&context.catalog, view, query, &context.user);
            format!(
                "It was made when these were on one shard. Make it anew, with its privileges, its comments and what depends on it: {drop} {create}"
            )
        }
        None => "Drop it for the time of the move".to_owned(),
    }
}

/// A view whose query cannot be covered.
pub fn uncovered(view: &str, error: &PgError) -> (String, String) {
    let why = error.detail.clone().unwrap_or_else(|| error.message.clone());
    let remedy = "Drop the view for the time of the move, or write its query in another form";
    (format!("rows that are being moved cannot be left out of view {view}: {why}"), remedy.to_owned())
}

/// The query of a covering view. `definition`: the view's, as PostgreSQL prints it where the search path is empty.
pub fn covering_query(definition: &str, context: &Context) -> Result<String, PgError> {
    let context = Context { search_path: Vec::new(), temporary_tables: Vec::new(), ..context.clone() };
    let definition = definition.trim().trim_end_matches(';');
    match exclude(definition, &context, &excludable(&context.map))? {
        Some(excluding) => Ok(excluding.text),
        None => Err(uncoverable("The view reads no table of several shards.")),
    }
}

fn excludable(map: &MapSnapshot) -> Vec<GroupId> {
    map.groups.values().filter(|group| is_excludable(group)).map(|group| group.id).collect()
}

/// Is it a table of which residues may lie on the shard, or does its query read one, through whatever views?
pub fn reaches(context: &Context, groups: &[GroupId], relation: &Relation) -> bool {
    let mut waiting = vec![relation.oid];
    let mut seen: Vec<Oid> = Vec::new();
    while let Some(oid) = waiting.pop() {
        if seen.contains(&oid) {
            continue;
        }
        seen.push(oid);
        let relation = context.catalog.relations.get(&oid);
        if relation.is_some_and(|relation| is_of(context, groups, relation)) {
            return true;
        }
        // It shows what it has stored.
        if relation.is_some_and(|relation| relation.kind == RelationKind::MaterializedView) {
            continue;
        }
        waiting.extend(read_by(&context.catalog, oid));
    }
    false
}

/// Is it a table of one of the groups, or a part of one?
pub fn is_of(context: &Context, groups: &[GroupId], relation: &Relation) -> bool {
    let group = |relation: &Relation| -> Option<GroupId> {
        match &context.map.table(&relation.schema, &relation.name)?.kind {
            TableKind::Sharded { group, .. } => Some(*group),
            TableKind::Reference => None,
        }
    };
    let parents = relation.parents.iter().filter_map(|parent| context.catalog.relations.get(parent));
    group(relation).is_some_and(|group| groups.contains(&group)) || parents.into_iter().any(|parent| is_of(context, groups, parent))
}

fn read_by(catalog: &Catalog, view: Oid) -> impl Iterator<Item = Oid> + '_ {
    let dependencies = catalog.relation_dependencies.get(&view).into_iter().flatten();
    dependencies.filter(|dependency| dependency.of == DependentKind::View).filter_map(|dependency| match dependency.on {
        DependencyTarget::Relation(oid) => Some(oid),
        DependencyTarget::Function(_) => None,
    })
}

const COVERING_PREFIX: &str = "view_";
const DIGEST_BYTES: usize = 8;
const STACK_LEFT_BYTES_MIN: usize = 128 * 1024;
const STACK_BYTES: usize = 1024 * 1024;
