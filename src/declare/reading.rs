//! How statements are read once a table is declared: what a declaration proves of bodies it proves under the map that it makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Caller;
use crate::catalog::{Catalog, Relation};
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::{Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, ShardId, Strategy, Table, TableKind};
use crate::sql::Context;

/// By this map.
pub(super) fn under(catalog: &Arc<Catalog>, map: MapSnapshot, search_path: &[String]) -> Context {
    Context {
        catalog: Arc::clone(catalog),
        map: Arc::new(map),
        search_path: search_path.to_vec(),
        temporary_tables: Vec::new(),
        brought: BTreeMap::new(),
        id: 0,
        user: String::new(),
    }
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
const NEW_GROUP: GroupId = GroupId(i32::MAX);
