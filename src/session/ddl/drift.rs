//! Tables that are not the same on all shards: statements over several shards on them are refused, by name.
//!
//! Schema changes through the proxies are alike everywhere. What is changed on one shard directly is found by a slow look at all
//! of them, and counts when two looks agree and no change was under way: then a statement that runs on one shard goes on as that
//! shard understands it, and one that would need them alike says what differs.

use std::collections::HashMap;
use std::sync::Arc;

use super::schema_reader;
use crate::backend::catalog_reader::Known;
use crate::catalog::{Catalog, Definitions, Held};
use crate::error::PgError;
use crate::session::gateway::Gateway;
use crate::session::{Failure, Session};
use crate::shardmap::{GroupId, ShardId, Table, TableKind};
use crate::sql::analysis::Part;

/// (schema, name) → what differs, as a sentence.
pub type Drift = HashMap<(String, String), String>;

/// What the last look has found.
#[derive(Debug, Default)]
pub struct DriftLook {
    suspected: Drift,
    /// Of each shard but the home shard.
    known: HashMap<ShardId, Known>,
}

impl Gateway {
    /// Looks at every shard. One that cannot be read says nothing.
    pub async fn look_for_drift(&self, look: &mut DriftLook) {
        let before = self.map.snapshot();
        if before.open_schema_changes > 0 || before.tables.is_empty() || !self.has_catalog_for(&before) {
            return;
        }
        let home = self.catalog.load_full();
        if home.held != Held::Nothing {
            return;
        }
        let shards: Vec<_> = before.shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()).cloned().collect();
        let tables: Vec<Arc<Table>> = before.tables.values().cloned().collect();
        let version = before.schema_version;
        drop(before);
        look.known.retain(|id, _| shards.iter().any(|shard| shard.id == *id));
        let mut found = Drift::new();
        for shard in shards {
            match schema_reader::read(&shard, look.known.entry(shard.id).or_default()).await {
                Ok(catalog) if catalog.held != Held::Nothing => tracing::debug!(shard = shard.name, "a part of its schema is held"),
                Ok(catalog) => add_differences(&mut found, &tables, &home, &shard.name, &catalog),
                Err(error) => tracing::debug!(shard = shard.name, %error, "a shard's schema is not known"),
            }
        }
        let after = self.map.load();
        if after.schema_version != version || after.open_schema_changes > 0 {
            return;
        }
        let confirmed: Drift = found.iter().filter(|(table, what)| look.suspected.get(*table) == Some(what)).map(own).collect();
        if **self.drift.load() != confirmed {
            for ((_, table), what) in &confirmed {
                tracing::warn!(table, what, "a table is not the same on all shards");
            }
            self.drift.store(Arc::new(confirmed));
        }
        look.suspected = found;
    }
}

fn own((table, what): (&(String, String), &String)) -> ((String, String), String) {
    (table.clone(), what.clone())
}

fn add_differences(found: &mut Drift, tables: &[Arc<Table>], home: &Catalog, shard: &str, catalog: &Catalog) {
    for table in tables {
        let name = (table.schema.clone(), table.name.clone());
        let Some(relation) = home.relation_names.get(&name).and_then(|oid| home.relations.get(oid)) else { continue };
        let there = match catalog.resolve(Some(&table.schema), &table.name, &[]) {
            Some(relation) => catalog.definitions_of_family(relation),
            None => Definitions::default(),
        };
        let differences = home.definitions_of_family(relation).differences(&there);
        if !differences.is_empty() && !found.contains_key(&name) {
            let list = differences.iter().take(DIFFERENCES_MAX).cloned().collect::<Vec<_>>().join(";\n");
            found.insert(name, format!("Here: the home shard, there: shard \"{shard}\".\n{list}."));
        }
    }
}

const DIFFERENCES_MAX: usize = 5;

impl Session {
    /// A statement over several shards needs its tables alike on them.
    pub(in crate::session) fn check_drift(&self, parts: &[Part]) -> Result<(), Failure> {
        let drift = self.gateway.drift.load();
        if drift.is_empty() {
            return Ok(());
        }
        let groups: Vec<GroupId> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Sharded { group, .. } => Some(*group),
                Part::Home => None,
            })
            .collect();
        let is_used = |table: &Table| matches!(&table.kind, TableKind::Sharded { group, .. } if groups.contains(group));
        self.refuse_drifted(&drift, is_used)
    }

    /// A write to every copy of a reference table.
    pub(in crate::session) fn check_drift_of_copies(&self) -> Result<(), Failure> {
        let drift = self.gateway.drift.load();
        if drift.is_empty() {
            return Ok(());
        }
        self.refuse_drifted(&drift, |table| table.kind == TableKind::Reference)
    }

    fn refuse_drifted(&self, drift: &Drift, is_used: impl Fn(&Table) -> bool) -> Result<(), Failure> {
        let map = self.gateway.map.load();
        let drifted = drift.iter().find(|(name, _)| map.tables.get(*name).is_some_and(|table| is_used(table)));
        match drifted {
            None => Ok(()),
            Some(((_, table), what)) => Err(PgError::unsupported(
                format!("table \"{table}\" is not the same on all shards"),
                what.clone(),
                "Make the tables alike: a schema change behind the comment /* shardgate: shard=name */ is made on that shard alone; \
                 \"shardgate check\" lists all differences. It is noticed within a minute.",
            )
            .into()),
        }
    }
}
