//! Rows on a shard that no statement looks for: of tables that the map does not know, which then lie on the home shard alone.
//!
//! A map database that was promoted without all of its changes has forgotten what was declared last; the shards have it still.

use std::collections::BTreeSet;

use super::super::shard_connection::ShardConnection;
use super::{Finding, rows};
use crate::catalog::{Catalog, ObjectName, Oid, Relation, RelationKind, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::shardmap::MapSnapshot;

/// Of a shard that is not the home shard.
pub(super) async fn find(
    shard: &mut ShardConnection,
    subject: &str,
    catalog: &Catalog,
    snapshot: &MapSnapshot,
) -> Result<Vec<Finding>, PgError> {
    let readable = "SELECT oid::int8::text, '' FROM pg_class WHERE relkind = 'r' AND has_table_privilege(oid, 'SELECT')";
    let readable = rows(&mut shard.connection, readable).await.map_err(|error| shard.error(&error))?;
    let readable: BTreeSet<Oid> = readable.iter().filter_map(|(oid, _)| oid.parse().ok()).collect();
    let undeclared: Vec<&Relation> =
        undeclared(catalog, snapshot).into_iter().filter(|relation| readable.contains(&relation.oid)).collect();
    let mut found = Vec::new();
    for some in undeclared.chunks(TABLES_AT_ONCE) {
        let asked: Vec<String> = some.iter().map(|relation| has_rows(relation)).collect();
        let with_rows = rows(&mut shard.connection, &asked.join(" UNION ALL ")).await.map_err(|error| shard.error(&error))?;
        found.extend(with_rows.into_iter().map(|(table, quoted)| {
            Finding::new(
                subject,
                format!("table \"{table}\" has rows here, and the map does not know it as a distributed table: no statement sees them"),
                format!(
                    "If the map has forgotten a declaration or a rename, see \"What a map forgets\" in docs/failing-over.md; rows that \
                     nobody needs end with: TRUNCATE {quoted} there."
                ),
            )
        }));
    }
    Ok(found)
}

/// Ordinary tables that are no part of a declared one, nor of an extension.
fn undeclared<'c>(catalog: &'c Catalog, snapshot: &MapSnapshot) -> Vec<&'c Relation> {
    let declared: BTreeSet<Oid> = snapshot
        .tables
        .values()
        .filter_map(|table| catalog.resolve(Some(&table.schema), &table.name, &[]))
        .flat_map(|relation| catalog.family(relation))
        .map(|relation| relation.oid)
        .collect();
    let is_own = |relation: &&Relation| {
        let name = ObjectName::new(relation.kind.word(), format!("{}.{}", relation.schema, relation.name));
        relation.kind == RelationKind::Table
            && relation.schema != "shardgate_map"
            && catalog.definitions.contains(&name)
            && !declared.contains(&relation.oid)
    };
    let mut found: Vec<&Relation> = catalog.relations.values().filter(is_own).collect();
    found.sort_unstable_by_key(|relation| (&relation.schema, &relation.name));
    found
}

/// One row, its name twice, or none.
fn has_rows(relation: &Relation) -> String {
    let quoted = quoted_name(&relation.schema, &relation.name);
    let shown = quoted_literal(&format!("{}.{}", relation.schema, relation.name));
    format!("SELECT {shown}, {} WHERE EXISTS (SELECT FROM ONLY {quoted})", quoted_literal(&quoted))
}

/// By one query.
const TABLES_AT_ONCE: usize = 100;
