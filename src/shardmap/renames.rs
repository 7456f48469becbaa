//! Tables, and columns of their keys, that a change of the schema gives other names.
//!
//! ```text
//! map: declared by both names ─► every proxy works by that ─► shards: ALTER TABLE … COMMIT ─► map: what is not there is forgotten
//! ```
//! While it is under way a catalogue may show the table before the change or after it: by the table's oid on the home shard it is told which of
//! its names it has there, and by its columns what its key is called ([`MapSnapshot::as_named_in`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use sqlx::types::Json;

use super::changes::{SchemaChangeId, read};
use super::encoding::{key_to_stored, unreadable};
use super::error::StoreError;
use super::model::{MapSnapshot, Table, TableKind, TableName};
use super::store::Store;
use crate::catalog::{Catalog, Oid, Relation, written_identifier};
use crate::shard_key::KeyColumn;

/// What a table may be called besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub change: SchemaChangeId,
    /// On the home shard.
    pub oid: Oid,
    /// Of each column of its key all names; empty: none of them is renamed.
    pub key_names: Vec<Vec<String>>,
}

/// One of the names of a table that stays when the change has ended, with the table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    name: TableName,
    /// Where its columns have other names now.
    key: Option<Vec<KeyColumn>>,
}

impl Renamed {
    /// The table's kind by the names that its columns have here.
    fn kind_in(&self, kind: &TableKind, relation: &Relation) -> TableKind {
        let TableKind::Sharded { group, key } = kind else { return TableKind::Reference };
        let mut key = key.clone();
        for (column, names) in key.iter_mut().zip(&self.key_names) {
            if let Some(name) = names.iter().find(|name| relation.column(name).is_some()) {
                column.column.clone_from(name);
            }
        }
        TableKind::Sharded { group: *group, key }
    }
}

impl Table {
    fn full_name(&self) -> TableName {
        (self.schema.clone(), self.name.clone())
    }

    /// Every name that the columns of its key may have, by their places in the key.
    pub fn key_names(&self) -> Vec<Vec<&str>> {
        let TableKind::Sharded { key, .. } = &self.kind else { return Vec::new() };
        let others = self.renamed.as_ref().map(|renamed| renamed.key_names.as_slice()).unwrap_or_default();
        let mut names: Vec<Vec<&str>> = others.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
        names.resize(key.len(), Vec::new());
        for (names, column) in names.iter_mut().zip(key) {
            if !names.contains(&column.column.as_str()) {
                names.push(&column.column);
            }
        }
        names
    }
}

impl MapSnapshot {
    fn renamed(&self) -> impl Iterator<Item = (&Arc<Table>, &Renamed)> {
        self.tables.values().filter_map(|table| Some((table, table.renamed.as_deref()?)))
    }

    /// With each table by the name, and the names of its key, that it has in this catalogue of the home shard. `None`: none is being
    /// renamed. A name that the catalogue does not have stays: what it will mean is the map's to say.
    pub fn as_named_in(&self, catalog: &Catalog) -> Option<Self> {
        self.renamed().next()?;
        let mut map = self.clone();
        for (table, renamed) in self.renamed() {
            match catalog.resolve(Some(&table.schema), &table.name, &[]) {
                Some(relation) if relation.oid == renamed.oid => {
                    let kind = renamed.kind_in(&table.kind, relation);
                    map.tables.insert(table.full_name(), Arc::new(Table { kind, ..(**table).clone() }));
                }
                // Another one has the name still, or again.
                Some(_) => drop(map.tables.remove(&table.full_name())),
                None => {}
            }
        }
        Some(map)
    }

    /// Names of tables and of columns of keys, without schemas and tables, that changes other than this one give or take away, and that
    /// this catalogue does not know: what a statement means by them is not known before these have ended.
    pub fn names_in_doubt(&self, catalog: &Catalog, own: Option<SchemaChangeId>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (table, renamed) in self.renamed().filter(|(_, renamed)| Some(renamed.change) != own) {
            match catalog.resolve(Some(&table.schema), &table.name, &[]) {
                Some(relation) if relation.oid == renamed.oid => {
                    let all = renamed.key_names.iter().flatten();
                    names.extend(all.filter(|name| relation.column(name).is_none()).cloned());
                }
                _ => {
                    names.insert(table.name.clone());
                }
            }
        }
        names
    }

    /// What becomes of the names that these changes have given, which have ended: `home` is the home shard's schema as it is now.
    /// `is_nowhere`: no table has the name on any shard.
    pub fn settled(&self, changes: &[SchemaChangeId], home: &Catalog, is_nowhere: impl Fn(&TableName) -> bool) -> Vec<Settled> {
        let mut settled = Vec::new();
        for (table, renamed) in self.renamed().filter(|(_, renamed)| changes.contains(&renamed.change)) {
            let relation = home.resolve(Some(&table.schema), &table.name, &[]);
            let is_there = match (relation, home.relations.get(&renamed.oid)) {
                (Some(relation), Some(_)) => relation.oid == renamed.oid,
                (None, Some(_)) => false,
                (_, None) => !is_nowhere(&table.full_name()),
            };
            if is_there {
                let key = match relation.map(|relation| renamed.kind_in(&table.kind, relation)) {
                    Some(TableKind::Sharded { group, key }) if (TableKind::Sharded { group, key: key.clone() }) != table.kind => {
                        Some(key)
                    }
                    _ => None,
                };
                settled.push(Settled { name: table.full_name(), key });
            }
        }
        settled
    }
}

impl Settled {
    pub(super) fn to_stored(&self) -> serde_json::Value {
        let text = |key: &KeyColumn| {
            let column = written_identifier(&key.column);
            key.function.as_ref().map_or(column.clone(), |function| function.to_sql(&column))
        };
        let key_text = self.key.as_ref().map(|key| key.iter().map(text).collect::<Vec<_>>().join(", "));
        let key = self.key.as_ref().map(|key| key_to_stored(key));
        json!({ "schema": self.name.0, "name": self.name.1, "key": key, "key_text": key_text })
    }
}

impl Store {
    /// Before the first shard gives the table the other name, in this change of the schema: both are declared alike from now on. `oid`: on the
    /// home shard.
    pub async fn begin_rename(
        &self,
        actor: &str,
        change: SchemaChangeId,
        (from, to): (&TableName, &TableName),
        oid: Oid,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.begin_rename($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(change.0)
            .bind(Json(from))
            .bind(Json(to))
            .bind(i64::from(oid));
        self.change(query).await.map(drop)
    }

    /// As [`Store::begin_rename`], of a column of the key, by its place.
    pub async fn begin_key_rename(
        &self,
        actor: &str,
        change: SchemaChangeId,
        table: &TableName,
        oid: Oid,
        (place, to): (usize, &str),
    ) -> Result<(), StoreError> {
        let place = i32::try_from(place + 1).map_err(|_| unreadable("place in a shard key", &place.to_string()))?;
        let query = sqlx::query("SELECT shardgate_map.begin_key_rename($1, $2, $3, $4, $5, $6)")
            .bind(actor)
            .bind(change.0)
            .bind(Json(table))
            .bind(i64::from(oid))
            .bind(place)
            .bind(to);
        self.change(query).await.map(drop)
    }

    /// When the changes have ended. `false`: there was nothing to be done.
    pub async fn settle_renames(&self, actor: &str, changes: &[SchemaChangeId], kept: &[Settled]) -> Result<bool, StoreError> {
        let changes: Vec<i64> = changes.iter().map(|change| change.0).collect();
        let kept: Vec<serde_json::Value> = kept.iter().map(Settled::to_stored).collect();
        let query = sqlx::query("SELECT shardgate_map.settle_renames($1, $2, $3)").bind(actor).bind(changes).bind(Json(kept));
        read(&self.change(query).await?, 0)
    }
}
