//! Keys and partitions: `map_key`, `map_keys`, `set_default_shard`, `split_partition`, `merge_partitions`, `locate`.
//!
//! Changes of the map only. The map's stored functions refuse what would leave rows behind.

use std::sync::Arc;

use super::arguments::Arguments;
use super::functions::no_shard;
use super::moves;
use super::names::{Name, nearest, perhaps};
use super::{Caller, Control};
use crate::catalog::shown_name;
use crate::error::{PgError, SqlState};
use crate::shard_key::{Key, KeyColumn, KeyType};
use crate::shardmap::{Bound, Group, GroupId, MapSnapshot, PartitionId, Strategy, Table, TableKind, refuse_impossible_key};

/// A sharded table as the map knows it.
pub(super) struct ShardedTable {
    table: Arc<Table>,
    pub(super) group: Arc<Group>,
}

impl ShardedTable {
    pub(super) fn name(&self) -> (&str, &str) {
        (&self.table.schema, &self.table.name)
    }

    fn key(&self) -> &[KeyColumn] {
        match &self.table.kind {
            TableKind::Sharded { key, .. } => key,
            TableKind::Reference => &[],
        }
    }

    /// The key of the group from texts for the group's columns: the key itself, after its functions.
    fn parse_key(&self, texts: &[String]) -> Result<Key, PgError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        match texts.as_slice() {
            // A key of several columns may be written as one row.
            [row] if self.group.key_types.len() > 1 => Key::parse_text(&self.group.key_types, row),
            texts => Key::parse(&self.group.key_types, texts),
        }
    }
}

/// By the snapshot that this proxy has, or else by the newest: mapping a million keys must not read the map a million times.
pub(super) async fn find(control: &Control, caller: &Caller, text: &str) -> Result<ShardedTable, PgError> {
    let name = Name::parse(text)?;
    let known = lookup_table(&control.map.snapshot(), caller, &name);
    match known {
        Some(table) => Ok(table),
        None => {
            let snapshot = control.fresh_snapshot().await?;
            if snapshot.shards.is_empty() {
                return Err(no_shard());
            }
            lookup_table(&snapshot, caller, &name).ok_or_else(|| not_sharded(&snapshot, &name))
        }
    }
}

fn lookup_table(snapshot: &MapSnapshot, caller: &Caller, name: &Name) -> Option<ShardedTable> {
    let schemas: Vec<&str> = match &name.schema {
        Some(schema) => vec![schema],
        None => caller.search_path.iter().map(|schema| if schema == "$user" { caller.user.as_str() } else { schema }).collect(),
    };
    // Another relation of the name may come before it in the path, as in any statement.
    let path: Vec<String> = schemas.iter().map(|schema| (*schema).to_owned()).collect();
    let meant = caller.catalog.resolve(None, &name.name, &path).map(|relation| relation.schema.as_str());
    schemas.iter().filter(|schema| meant.is_none_or(|meant| meant == **schema)).find_map(|schema| {
        let table = snapshot.table(schema, &name.name)?;
        match &table.kind {
            TableKind::Sharded { group, .. } => {
                Some(ShardedTable { table: Arc::clone(table), group: Arc::clone(snapshot.group(*group)?) })
            }
            TableKind::Reference => None,
        }
    })
}

fn not_sharded(snapshot: &MapSnapshot, name: &Name) -> PgError {
    let error = PgError::new(SqlState::UNDEFINED_TABLE, format!("table \"{}\" is not sharded", name.name));
    let sharded = snapshot.tables.values().filter(|table| matches!(table.kind, TableKind::Sharded { .. }));
    match nearest(&name.name, sharded, |table| &table.name) {
        Some(meant) => error.with_hint(perhaps(&shown_name(&meant.schema, &meant.name))),
        None => error.with_hint("SELECT * FROM shardgate.tables lists the tables."),
    }
}

fn require_lookup(table: &ShardedTable) -> Result<(), PgError> {
    match table.group.strategy {
        Strategy::Lookup => Ok(()),
        Strategy::Hash | Strategy::Range => Err(PgError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{}\" is sharded by {}, not by lookup", table.table.name, table.group.strategy.name()),
        )
        .with_hint("Only keys of lookup tables are mapped one by one.")),
    }
}

pub(super) async fn map(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<i32, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    require_lookup(&table)?;
    let key = Key::parse_text(&table.group.key_types, arguments.text("key")?)?;
    refuse_impossible_key(&table.table, &key)?;
    let shard = arguments.text("shard")?;
    let partition = control.map.store().map_key(&caller.user, table.name(), &key, &table.group.key_types, shard).await?;
    control.reached().await?;
    Ok(partition.0)
}

pub(super) async fn map_many(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<i32, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    require_lookup(&table)?;
    let parse = |text: &String| Key::parse_text(&table.group.key_types, text);
    let keys = arguments.texts("keys")?.iter().map(parse).collect::<Result<Vec<Key>, PgError>>()?;
    keys.iter().try_for_each(|key| refuse_impossible_key(&table.table, key))?;
    let (types, shard) = (&table.group.key_types, arguments.text("shard")?);
    let mapped = control.map.store().map_keys(&caller.user, table.name(), &keys, types, shard).await?;
    control.reached().await?;
    Ok(mapped)
}

pub(super) async fn set_default(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<i32, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    require_lookup(&table)?;
    let partition = control.map.store().set_default_shard(&caller.user, table.name(), arguments.text("shard")?).await?;
    control.reached().await?;
    Ok(partition.0)
}

pub(super) async fn split(control: &Control, user: &str, arguments: &Arguments) -> Result<i32, PgError> {
    let partition = PartitionId(arguments.integer("partition")?);
    let snapshot = control.fresh_snapshot().await?;
    let (group, _) = snapshot.partition(partition).ok_or_else(|| unknown_partition(partition))?;
    let at = Bound::parse(group, arguments.text("at")?)?;
    let shard = arguments.optional_text("shard")?;
    if let Some(shard) = shard {
        require_target(&snapshot, shard)?;
    }
    let upper = control.map.store().split_partition(user, group, partition, &at).await?;
    control.reached().await?;
    if let Some(shard) = shard {
        moves::carry(control, user, upper, shard).await?;
    }
    Ok(upper.0)
}

/// Before anything is cut.
fn require_target(snapshot: &MapSnapshot, shard: &str) -> Result<(), PgError> {
    match snapshot.shard_by_name(shard) {
        Some(found) if found.state.takes_new_partitions() => Ok(()),
        Some(_) => Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("shard \"{shard}\" takes no partitions"))
            .with_hint("SELECT name, state FROM shardgate.shards shows which are online.")),
        None => Err(PgError::new(SqlState::UNDEFINED_OBJECT, format!("there is no shard \"{shard}\""))
            .with_hint("SELECT name FROM shardgate.shards lists the shards.")),
    }
}

pub(super) fn unknown_partition(partition: PartitionId) -> PgError {
    PgError::new(SqlState::UNDEFINED_OBJECT, format!("partition {} does not exist", partition.0))
        .with_hint("SELECT partition_id, low, high FROM shardgate.partitions lists the partitions.")
}

pub(super) async fn merge(control: &Control, user: &str, arguments: &Arguments) -> Result<i32, PgError> {
    let (a, b) = (PartitionId(arguments.integer("a")?), PartitionId(arguments.integer("b")?));
    let kept = control.map.store().merge_partitions(user, a, b).await?;
    control.reached().await?;
    Ok(kept.0)
}

pub(super) async fn locate(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<Vec<Option<String>>, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    let columns = arguments.texts("key")?;
    let key = locate_key(&table, columns)?;
    let mapped = match table.group.strategy {
        Strategy::Lookup => {
            control.map.lookup(&table.group, std::slice::from_ref(&key)).await.map_err(PgError::from)?.into_iter().next().flatten()
        }
        Strategy::Hash | Strategy::Range => None,
    };
    // After the lookup: this snapshot knows what it answered.
    let snapshot = control.map.snapshot();
    let group = snapshot.group(table.group.id).ok_or_else(|| gone(table.group.id))?;
    let partition = match group.strategy {
        Strategy::Hash => Some(group.partition_at(&Bound::Hash(key.hash()))),
        Strategy::Range => Some(group.partition_at(&Bound::Key(key.ordered_bytes()))),
        Strategy::Lookup => group.partition_of_mapping(mapped),
    };
    let partition = partition.ok_or_else(|| {
        PgError::new(SqlState::NO_SHARD_FOR_KEY, format!("no shard for this key of table \"{}\"", table.table.name))
            .with_hint("Map it with shardgate.map_key(), or set a default with shardgate.set_default_shard().")
    })?;
    let shard = snapshot.shard(partition.shard).ok_or_else(|| PgError::internal("a partition without a shard"))?;
    Ok(vec![Some(partition.id.0.to_string()), Some(shard.name.clone()), Some(partition.epoch.to_string())])
}

/// Values of the table's key columns, to which the key functions are applied.
fn locate_key(table: &ShardedTable, texts: &[String]) -> Result<Key, PgError> {
    let key = table.key();
    if key.iter().all(|column| column.function.is_none()) {
        return table.parse_key(texts);
    }
    let types: Vec<KeyType> = key.iter().map(|column| column.column_type).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let values = Key::parse(&types, &texts)?;
    let data = key.iter().zip(values.data()).map(|(column, datum)| match &column.function {
        None => Ok(datum.clone()),
        Some(function) => function.apply(datum).ok_or_else(|| {
            PgError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("{} cannot be evaluated for this value", function.to_sql(&column.column)),
            )
        }),
    });
    Ok(Key::new(data.collect::<Result<_, _>>()?))
}

fn gone(group: GroupId) -> PgError {
    PgError::new(SqlState::UNDEFINED_OBJECT, format!("colocation group {} does not exist any more", group.0))
}
