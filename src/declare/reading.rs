//! How statements are read once a table is declared: what a declaration proves of bodies it proves under the map that it makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Caller;
use crate::catalog::{Catalog, ClosureCache, Column, Numbering, Oid, Relation, quoted_literal, shown_name};
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::{Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, ShardId, Strategy, Table, TableKind};
use crate::sql::Context;

/// By this map.
pub(super) fn under(catalog: &Arc<Catalog>, map: MapSnapshot, search_path: &[String]) -> Context {
    Context {
        catalog: numbered_by_cluster(catalog, &map),
        map: Arc::new(map),
        search_path: search_path.to_vec(),
        temporary_tables: Vec::new(),
        brought: BTreeMap::new(),
        id: 0,
        user: String::new(),
    }
}

/// A declaration makes sequences of the whole cluster out of the columns' own: each shard may number its rows then.
fn numbered_by_cluster(catalog: &Arc<Catalog>, map: &MapSnapshot) -> Arc<Catalog> {
    let own = |column: &Column| matches!(column.numbering(), Some(Numbering::Local(_) | Numbering::Identity));
    let declared = map.tables.keys().filter_map(|name| catalog.relations.get(catalog.relation_names.get(name)?));
    let numbered: Vec<Oid> = declared
        .flat_map(|relation| catalog.family(relation))
        .filter(|relation| relation.columns.iter().any(own))
        .map(|relation| relation.oid)
        .collect();
    if numbered.is_empty() {
        return Arc::clone(catalog);
    }
    let mut later = Catalog { closures: ClosureCache::default(), ..Catalog::clone(catalog) };
    for oid in numbered {
        let Some(relation) = later.relations.get_mut(&oid) else { continue };
        let (schema, table) = (relation.schema.clone(), relation.name.clone());
        for column in relation.columns.iter_mut().filter(|column| own(column)) {
            let sequence = match column.numbering() {
                Some(Numbering::Local((schema, name))) => shown_name(&schema, &name),
                // As PostgreSQL names it.
                _ => shown_name(&schema, &format!("{table}_{}_seq", column.name)),
            };
            column.default = Some(format!("shardgate.next_id({}::regclass)", quoted_literal(&sequence).trim_start()));
            column.identity = None;
        }
    }
    Arc::new(later)
}

/// The map with these tables sharded in this group; `None`: in a group of their own.
pub(super) fn with_tables(
    map: &MapSnapshot,
    tables: &[(&Relation, &[KeyColumn])],
    group: Option<GroupId>,
    (strategy, types): (Strategy, &[KeyType]),
) -> MapSnapshot {
    let mut map = map.clone();
    let id = group.unwrap_or(NEW_GROUP);
    if group.is_none() {
        let all =
            Partition { id: PartitionId(i32::MAX), shard: ShardId(i32::MAX), state: PartitionState::Online, epoch: 0, low: None };
        if let Ok(made) = Group::new(id, strategy, types.to_vec(), vec![all], None) {
            map.groups.insert(id, Arc::new(made));
        }
    }
    for (relation, key) in tables {
        let name = (relation.schema.clone(), relation.name.clone());
        let kind = TableKind::Sharded { group: id, key: key.to_vec() };
        map.tables.insert(name.clone(), Arc::new(Table { schema: name.0, name: name.1, kind, renamed: None }));
    }
    map
}

/// The caller's search path, as names in bodies are found by it.
pub(super) fn path_of(caller: &Caller) -> Vec<String> {
    caller.search_path.iter().map(|schema| if schema == "$user" { caller.user.clone() } else { schema.clone() }).collect()
}

/// No group of the map has this number.
pub(super) const NEW_GROUP: GroupId = GroupId(i32::MAX);
