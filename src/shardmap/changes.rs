//! The changes of the map: one method for each stored function, each one transaction in the map database.
//!
//! `actor` is the proxy's user, for the history. A change is made when the method returns; this proxy sees it a moment later,
//! see [`super::ShardMap::reached`]. None of these is cancel safe: a change that was cancelled may have been made.
//! Whether the change makes sense on the shards (tables, rows, schemas) is the caller's to check, before.

use std::collections::BTreeSet;

use serde_json::json;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use super::encoding::{key_to_stored, key_types_to_stored, tables_to_stored, unreadable};
use super::error::StoreError;
use super::lease::ProxyId;
use super::loader::Redefines;
use super::model::{Bound, DeclaredFunction, Epoch, Group, GroupId, PartitionId, ShardId, ShardState, Strategy, TableName};
use super::placement::NewPartition;
use super::primary::PrimaryServer;
use super::renames::Settled;
use super::store::Store;
use crate::shard_key::{Key, KeyColumn, KeyType};

/// Of a session on the home shard, which declares; others wait for it. "shrd" and "decl" as numbers. Shared with nobody: of each cluster the
/// home shard is another database.
pub const DECLARATION_LOCK: &str = "1936224868, 1684366188";
/// On the home shard's tables: refuses writers while a declaration is made. The catalogue leaves out triggers whose function is ours.
pub const DECLARING_TRIGGER: &str = "shardgate_declaring";

/// A shard that is to be registered. No `Debug`: urls hold passwords.
#[derive(Clone)]
pub struct NewShard<'a> {
    pub name: &'a str,
    pub url: &'a str,
    pub region: Option<&'a str>,
    /// Relative to the other shards' capacities.
    pub capacity: f64,
    pub replication_url: Option<&'a str>,
    /// The uuid that its database shows.
    pub identity: Option<&'a str>,
}

/// What a shard is to be changed to; `None` stays. No `Debug`: urls hold passwords.
#[derive(Clone)]
pub struct AlteredShard<'a> {
    pub name: &'a str,
    pub url: Option<&'a str>,
    /// Read behind that url.
    pub identity: Option<&'a str>,
    /// The same.
    pub server: Option<PrimaryServer>,
    /// An empty one is taken away.
    pub region: Option<&'a str>,
    pub capacity: Option<f64>,
    /// An empty one is taken away.
    pub replication_url: Option<&'a str>,
    pub state: Option<&'a str>,
}

/// A piece of a table by time that is to be made: it begins at `bound`, and it is the `turn`th that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimePiece {
    pub group: GroupId,
    pub bound: String,
    pub on_shards: String,
    pub turn: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedShard {
    pub id: ShardId,
    pub is_home: bool,
    /// `Preparing`: to be given its schema and reference tables, then set online.
    pub state: ShardState,
}

/// A table that is to be sharded.
#[derive(Clone, Debug)]
pub struct NewShardedTable<'a> {
    pub schema: &'a str,
    pub name: &'a str,
    pub key: &'a [KeyColumn],
    /// The key as the user wrote it, for the relation `shardgate.tables`.
    pub key_text: &'a str,
}

/// The group that it is to be in.
#[derive(Clone, Debug)]
pub struct GroupOfTables<'a> {
    /// The types of the key's columns, after their functions.
    pub key_types: &'a [KeyType],
    pub strategy: Strategy,
    pub placement: Placement,
}

#[derive(Clone, Debug)]
pub enum Placement {
    /// In the group of another table.
    Colocated(GroupId),
    /// In a new group. Hash and range: one partition begins at the beginning (`low: None`). Lookup: every `low` is `None`.
    Partitions {
        partitions: Vec<NewPartition>,
        /// Lookup only: the shard of keys without a mapping. A table that has rows needs it, or they are not to be found.
        default_shard: Option<String>,
    },
}

/// By what a declaration was planned: the map takes it only while its shards, tables and schema are those, and refuses it with
/// 40001 otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// `None`: no home shard yet, on which declarations wait for each other.
    declaration: Option<i64>,
    epoch: Epoch,
}

impl Planned {
    /// For the first shard, and where nobody else declares.
    pub fn at(epoch: Epoch) -> Self {
        Self { declaration: None, epoch }
    }

    fn to_stored(self) -> serde_json::Value {
        let Epoch { incarnation, counter } = self.epoch;
        serde_json::json!({ "declaration": self.declaration, "incarnation": incarnation, "counter": counter })
    }
}

/// A change of the shards' schema that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchemaChangeId(pub i64);

/// Which version of the schema a change has made, and the last one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSchemaChange {
    pub before: i64,
    pub after: i64,
}

/// The changes of the shards' schema that are not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSchemaChanges {
    /// With the proxy that makes each; `None`: one of an earlier version.
    pub open: Vec<(SchemaChangeId, Option<ProxyId>)>,
    /// The newest change of all, finished or not.
    pub last: SchemaChangeId,
}

impl Store {
    /// From now on the map takes nothing of declarations that have begun before. What is read of the map after this is what the
    /// declaration may be planned by. Gives also how many changes of the shards' schema are open, with which it would be refused.
    pub async fn begin_declaration(&self) -> Result<(Planned, i64), StoreError> {
        let row = self.change(sqlx::query("SELECT * FROM shardgate_map.begin_declaration()")).await?;
        let epoch = Epoch { incarnation: read(&row, 1)?, counter: read(&row, 2)? };
        Ok((Planned { declaration: Some(read(&row, 0)?), epoch }, read(&row, 3)?))
    }

    /// Registers a shard. Called again for a shard whose preparation did not end, it changes nothing and gives it again.
    pub async fn add_shard(&self, planned: Planned, actor: &str, shard: &NewShard<'_>) -> Result<AddedShard, StoreError> {
        let query = sqlx::query("SELECT * FROM shardgate_map.add_shard($1, $2, $3, $4, $5, $6, $7, $8::uuid)")
            .bind(Json(planned.to_stored()))
            .bind(actor)
            .bind(shard.name)
            .bind(shard.url)
            .bind(shard.region)
            .bind(shard.capacity)
            .bind(shard.replication_url)
            .bind(shard.identity);
        let row = self.change(query).await?;
        let state: String = read(&row, 2)?;
        Ok(AddedShard {
            id: ShardId(read(&row, 0)?),
            is_home: read(&row, 1)?,
            state: ShardState::from_name(&state).ok_or_else(|| unreadable("shard state", &state))?,
        })
    }

    pub async fn set_shard_state(&self, planned: Planned, actor: &str, name: &str, state: ShardState) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.set_shard_state($1, $2, $3, $4)")
            .bind(Json(planned.to_stored()))
            .bind(actor)
            .bind(name)
            .bind(state.name());
        self.change(query).await.map(drop)
    }

    /// Of a shard that an earlier version has registered; nothing is changed where it is known.
    pub async fn note_identity(&self, actor: &str, name: &str, identity: &str) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.note_identity($1, $2, $3::uuid)").bind(actor).bind(name).bind(identity);
        self.change(query).await.map(drop)
    }

    /// Seen by a connection to the shard's own database. An older one changes nothing. Gives what the map knows now; `None`: the shard
    /// is gone.
    pub async fn note_primary(
        &self,
        actor: &str,
        shard: ShardId,
        server: PrimaryServer,
    ) -> Result<Option<PrimaryServer>, StoreError> {
        let query = sqlx::query("SELECT p.system_identifier, p.timeline FROM shardgate_map.note_primary($1, $2, $3, $4) p")
            .bind(actor)
            .bind(shard.0)
            .bind(server.system_identifier)
            .bind(server.timeline);
        let row = self.change(query).await?;
        let (system_identifier, timeline): (Option<i64>, Option<i32>) = (read(&row, 0)?, read(&row, 1)?);
        Ok(system_identifier.zip(timeline).map(|(system_identifier, timeline)| PrimaryServer { system_identifier, timeline }))
    }

    /// Of these shards, as the map knows them now.
    pub async fn primaries(&self, shards: &[ShardId]) -> Result<Vec<(ShardId, PrimaryServer)>, StoreError> {
        let ids: Vec<i32> = shards.iter().map(|id| id.0).collect();
        let sql = "SELECT shard_id, system_identifier, timeline FROM shardgate_map.shard_primary WHERE shard_id = ANY ($1)";
        let rows: Vec<(i32, i64, i32)> = self.answered(sqlx::query_as(sql).bind(ids).fetch_all(&self.pool()?)).await?;
        let primary = |(id, system_identifier, timeline)| (ShardId(id), PrimaryServer { system_identifier, timeline });
        Ok(rows.into_iter().map(primary).collect())
    }

    /// `false`: the shard was so already.
    pub async fn alter_shard(&self, actor: &str, altered: &AlteredShard<'_>) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.alter_shard($1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10)")
            .bind(actor)
            .bind(altered.name)
            .bind(altered.url)
            .bind(altered.identity)
            .bind(altered.region)
            .bind(altered.capacity)
            .bind(altered.replication_url)
            .bind(altered.state)
            .bind(altered.server.map(|server| server.system_identifier))
            .bind(altered.server.map(|server| server.timeline));
        read(&self.change(query).await?, 0)
    }

    pub async fn drop_shard(&self, actor: &str, name: &str) -> Result<(), StoreError> {
        self.change(sqlx::query("SELECT shardgate_map.drop_shard($1, $2)").bind(actor).bind(name)).await.map(drop)
    }

    /// All of them by one change.
    pub async fn distribute_tables(
        &self,
        planned: Planned,
        actor: &str,
        tables: &[NewShardedTable<'_>],
        group: &GroupOfTables<'_>,
    ) -> Result<GroupId, StoreError> {
        const SQL: &str = "SELECT shardgate_map.distribute_tables($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        self.declare_sharded(SQL, (planned, actor), tables, group).await
    }

    /// Sharded tables whose partitions all lie on the home shard get another key, or another group, whose partitions lie there, too.
    pub async fn redistribute_tables(
        &self,
        planned: Planned,
        actor: &str,
        tables: &[NewShardedTable<'_>],
        group: &GroupOfTables<'_>,
    ) -> Result<GroupId, StoreError> {
        const SQL: &str = "SELECT shardgate_map.redistribute_tables($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        self.declare_sharded(SQL, (planned, actor), tables, group).await
    }

    async fn declare_sharded(
        &self,
        sql: &'static str,
        (planned, actor): (Planned, &str),
        tables: &[NewShardedTable<'_>],
        group: &GroupOfTables<'_>,
    ) -> Result<GroupId, StoreError> {
        let (colocated, partitions, default_shard) = match &group.placement {
            Placement::Colocated(group) => (Some(group.0), None, None),
            Placement::Partitions { partitions, default_shard } => (None, Some(partitions), default_shard.as_deref()),
        };
        let shards: Option<Vec<&str>> = partitions.map(|all| all.iter().map(|partition| partition.shard.as_str()).collect());
        let bounded = partitions.filter(|_| group.strategy != Strategy::Lookup);
        // The beginning of the key space is the empty string.
        let stored = |partition: &NewPartition| partition.low.as_ref().map_or_else(Vec::new, Bound::to_stored);
        let text = |partition: &NewPartition| partition.low.as_ref().map(|low| low.to_text(group.key_types));
        let lows: Option<Vec<Vec<u8>>> = bounded.map(|all| all.iter().map(stored).collect());
        let low_texts: Option<Vec<Option<String>>> = bounded.map(|all| all.iter().map(text).collect());
        let table = |table: &NewShardedTable<'_>| {
            let key = key_to_stored(table.key);
            json!({ "schema": table.schema, "name": table.name, "key": key, "key_text": table.key_text })
        };
        let tables: Vec<serde_json::Value> = tables.iter().map(table).collect();
        let query = sqlx::query(sql)
            .bind(Json(planned.to_stored()))
            .bind(actor)
            .bind(Json(tables))
            .bind(key_types_to_stored(group.key_types))
            .bind(group.strategy.name())
            .bind(colocated)
            .bind(lows)
            .bind(low_texts)
            .bind(shards)
            .bind(default_shard);
        Ok(GroupId(read(&self.change(query).await?, 0)?))
    }

    pub async fn reference_table(&self, planned: Planned, actor: &str, schema: &str, name: &str) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.reference_table($1, $2, $3, $4)")
            .bind(Json(planned.to_stored()))
            .bind(actor)
            .bind(schema)
            .bind(name);
        self.change(query).await.map(drop)
    }

    /// Sharded tables whose partitions all lie on the home shard become home tables. `tables`: schemas and names.
    pub async fn undistribute_tables(&self, planned: Planned, actor: &str, tables: &[(&str, &str)]) -> Result<(), StoreError> {
        let (schemas, names): (Vec<&str>, Vec<&str>) = tables.iter().copied().unzip();
        let query = sqlx::query("SELECT shardgate_map.undistribute_tables($1, $2, $3, $4)")
            .bind(Json(planned.to_stored()))
            .bind(actor)
            .bind(schemas)
            .bind(names);
        self.change(query).await.map(drop)
    }

    /// After DROP TABLE; the group goes with its last table. `false`: the table was not declared, nothing was changed.
    pub async fn drop_table(&self, actor: &str, schema: &str, name: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.drop_table($1, $2, $3)").bind(actor).bind(schema).bind(name);
        read(&self.change(query).await?, 0)
    }

    /// Lookup: the key lives on this shard from now on. `key_types` are those by which the key is shown.
    pub async fn map_key(
        &self,
        actor: &str,
        table: (&str, &str),
        key: &Key,
        key_types: &[KeyType],
        shard: &str,
    ) -> Result<PartitionId, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.map_key($1, $2, $3, $4, $5, $6)")
            .bind(actor)
            .bind(table.0)
            .bind(table.1)
            .bind(key.ordered_bytes().into_vec())
            .bind(key.to_text(key_types))
            .bind(shard);
        Ok(PartitionId(read(&self.change(query).await?, 0)?))
    }

    /// Lookup: these keys live on this shard from now on, all or none. Gives how many were not mapped before.
    pub async fn map_keys(
        &self,
        actor: &str,
        table: (&str, &str),
        keys: &[Key],
        key_types: &[KeyType],
        shard: &str,
    ) -> Result<i32, StoreError> {
        let stored: Vec<Vec<u8>> = keys.iter().map(|key| key.ordered_bytes().into_vec()).collect();
        let texts: Vec<String> = keys.iter().map(|key| key.to_text(key_types)).collect();
        let query = sqlx::query("SELECT shardgate_map.map_keys($1, $2, $3, $4, $5, $6)")
            .bind(actor)
            .bind(table.0)
            .bind(table.1)
            .bind(stored)
            .bind(texts)
            .bind(shard);
        read(&self.change(query).await?, 0)
    }

    /// Lookup: the shard of keys without a mapping.
    pub async fn set_default_shard(&self, actor: &str, table: (&str, &str), shard: &str) -> Result<PartitionId, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.set_default_shard($1, $2, $3, $4)")
            .bind(actor)
            .bind(table.0)
            .bind(table.1)
            .bind(shard);
        Ok(PartitionId(read(&self.change(query).await?, 0)?))
    }

    /// The lower piece keeps the id; gives the id of the upper one, which begins at `at`. `group` is the partition's.
    pub async fn split_partition(
        &self,
        actor: &str,
        group: &Group,
        partition: PartitionId,
        at: &Bound,
    ) -> Result<PartitionId, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.split_partition($1, $2, $3, $4)")
            .bind(actor)
            .bind(partition.0)
            .bind(at.to_stored())
            .bind(at.to_text(&group.key_types));
        Ok(PartitionId(read(&self.change(query).await?, 0)?))
    }

    /// `every`: `None`: no more pieces are made ahead of now.
    pub async fn set_time_partitions(
        &self,
        actor: &str,
        group: GroupId,
        every: Option<&str>,
        ahead: i32,
        on_shards: &str,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.set_time_partitions($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(group.0)
            .bind(every)
            .bind(ahead)
            .bind(on_shards);
        self.change(query).await.map(drop)
    }

    /// A piece that is to be made now; nobody else gets it until it is released, or the claim has run out.
    pub async fn claim_time_partition(&self) -> Result<Option<TimePiece>, StoreError> {
        // One row in any case.
        let query = sqlx::query("SELECT c.* FROM (SELECT) one LEFT JOIN shardgate_map.claim_time_partition() c ON true");
        let row = self.change(query).await?;
        match (read(&row, 0)?, read(&row, 1)?, read(&row, 2)?, read(&row, 3)?) {
            (Some(group), Some(bound), Some(on_shards), Some(turn)) => {
                Ok(Some(TimePiece { group: GroupId(group), bound, on_shards, turn }))
            }
            _ => Ok(None),
        }
    }

    /// `is_made`: the piece is there. `reason`: why it is not, or why no shard can have it.
    pub async fn release_time_partition(&self, group: GroupId, is_made: bool, reason: Option<&str>) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.release_time_partition($1, $2, $3)").bind(group.0).bind(is_made).bind(reason);
        self.change(query).await.map(drop)
    }

    /// A piece that is made, and not on the shard whose turn it was. It is claimed again in two minutes.
    pub async fn time_piece_not_carried(&self, partition: PartitionId, shard: &str, reason: &str) -> Result<(), StoreError> {
        let query =
            sqlx::query("SELECT shardgate_map.time_piece_not_carried($1, $2, $3)").bind(partition.0).bind(shard).bind(reason);
        self.change(query).await.map(drop)
    }

    /// A piece that was made and could not be carried to this shard, to be tried again now.
    pub async fn claim_time_piece(&self) -> Result<Option<(PartitionId, String)>, StoreError> {
        let query = sqlx::query("SELECT c.* FROM (SELECT) one LEFT JOIN shardgate_map.claim_time_piece() c ON true");
        let row = self.change(query).await?;
        Ok(match (read(&row, 0)?, read(&row, 1)?) {
            (Some(partition), Some(shard)) => Some((PartitionId(partition), shard)),
            _ => None,
        })
    }

    /// Gives the id of the one that remains.
    pub async fn merge_partitions(&self, actor: &str, a: PartitionId, b: PartitionId) -> Result<PartitionId, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.merge_partitions($1, $2, $3)").bind(actor).bind(a.0).bind(b.0);
        Ok(PartitionId(read(&self.change(query).await?, 0)?))
    }

    /// Replaces what was declared of the function before.
    pub async fn declare_function(&self, actor: &str, function: &DeclaredFunction) -> Result<(), StoreError> {
        // An argument's number that is no int4 is refused there as zero is.
        let key_argument = function.key_argument.map(|argument| i32::try_from(argument).unwrap_or(0));
        let query = sqlx::query("SELECT shardgate_map.declare_function($1, $2, $3, $4, $5, $6, $7)")
            .bind(actor)
            .bind(&function.schema)
            .bind(&function.name)
            .bind(Json(tables_to_stored(&function.reads)))
            .bind(Json(tables_to_stored(&function.writes)))
            .bind(key_argument)
            .bind(function.declared_as.as_ref().map(Json));
        self.change(query).await.map(drop)
    }

    /// After DROP FUNCTION. `false`: it was not declared.
    pub async fn drop_function(&self, actor: &str, schema: &str, name: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.drop_function($1, $2, $3)").bind(actor).bind(schema).bind(name);
        read(&self.change(query).await?, 0)
    }

    /// Before the first shard's schema is changed: until it is finished every proxy knows that the shards may differ. Refused with
    /// 40001 when a shard or a table has been declared since the epoch that the statement was planned by.
    pub async fn begin_schema_change(
        &self,
        actor: &str,
        command_tag: &str,
        proxy: ProxyId,
        planned: Epoch,
    ) -> Result<SchemaChangeId, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.begin_schema_change($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(command_tag)
            .bind(proxy.0)
            .bind(planned.incarnation)
            .bind(planned.counter);
        Ok(SchemaChangeId(read(&self.change(query).await?, 0)?))
    }

    /// Before the first shard runs what gives these names (`None`: any) another meaning: statements
    /// about them wait for the change's end.
    pub async fn redefine(&self, actor: &str, change: SchemaChangeId, names: Option<BTreeSet<String>>) -> Result<(), StoreError> {
        let names = names.map_or(Redefines::Anything(true), Redefines::These);
        let query = sqlx::query("SELECT shardgate_map.redefine($1, $2, $3)").bind(actor).bind(change.0).bind(Json(names));
        self.change(query).await.map(drop)
    }

    /// After the last shard, whether the change was made or not, and whether or not somebody else has closed it.
    pub async fn finish_schema_change(&self, actor: &str, change: SchemaChangeId) -> Result<EndedSchemaChange, StoreError> {
        let query =
            sqlx::query("SELECT before, after FROM shardgate_map.complete_schema_change($1, $2)").bind(actor).bind(change.0);
        let row = self.change(query).await?;
        Ok(EndedSchemaChange { before: read(&row, 0)?, after: read(&row, 1)? })
    }

    pub async fn open_schema_changes(&self) -> Result<OpenSchemaChanges, StoreError> {
        let rows: Vec<(i64, Option<i64>, bool)> = self
            .answered(
                sqlx::query_as(
                    "SELECT c.schema_change_id, c.proxy_id, c.finished_at IS NULL FROM shardgate_map.schema_change c
             WHERE c.finished_at IS NULL OR c.schema_change_id = (SELECT max(schema_change_id) FROM shardgate_map.schema_change)",
                )
                .fetch_all(&self.pool()?),
            )
            .await?;
        let open = rows.iter().filter(|(_, _, is_open)| *is_open);
        Ok(OpenSchemaChanges {
            open: open.map(|(id, proxy, _)| (SchemaChangeId(*id), proxy.map(ProxyId))).collect(),
            last: SchemaChangeId(rows.iter().map(|(id, _, _)| *id).max().unwrap_or_default()),
        })
    }

    /// Closes all that were open, drops tables and sequences, each (schema, name), that are on the shards no more, and settles what is
    /// `renamed`. `known`: the map by which that was found. `false`, and nothing is done: a change has begun or ended meanwhile, or has come
    /// to a sequence or a name.
    pub async fn close_schema_changes(
        &self,
        actor: &str,
        changes: &OpenSchemaChanges,
        known: Epoch,
        (tables, sequences): (&[TableName], &[TableName]),
        renamed: &[Settled],
    ) -> Result<bool, StoreError> {
        let ids: Vec<i64> = changes.open.iter().map(|(id, _)| id.0).collect();
        let renamed: Vec<serde_json::Value> = renamed.iter().map(Settled::to_stored).collect();
        let query = sqlx::query("SELECT shardgate_map.close_schema_changes($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(actor)
            .bind(ids)
            .bind(changes.last.0)
            .bind(known.incarnation)
            .bind(known.counter)
            .bind(Json(tables))
            .bind(Json(sequences))
            .bind(Json(renamed));
        read(&self.change(query).await?, 0)
    }

    /// What the relation `shardgate.tables` shows as home tables, as (schema, name). Takes no epoch, since nothing is routed by
    /// it; declared tables are left out.
    pub async fn replace_home_tables(&self, tables: &[(String, String)]) -> Result<(), StoreError> {
        let schemas: Vec<&str> = tables.iter().map(|(schema, _)| schema.as_str()).collect();
        let names: Vec<&str> = tables.iter().map(|(_, name)| name.as_str()).collect();
        let query = sqlx::query("SELECT shardgate_map.replace_home_tables($1, $2)").bind(schemas).bind(names);
        self.change(query).await.map(drop)
    }

    /// Ids that are given away once and for ever: `first..first + count`. Grow with time. At most 1,000,000 at once.
    pub async fn reserve_unique_ids(&self, count: i32) -> Result<std::ops::Range<i64>, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.reserve_unique_ids($1)").bind(count);
        let first: i64 = read(&self.change(query).await?, 0)?;
        Ok(first..first + i64::from(count))
    }
}

pub(super) fn read<'r, T>(row: &'r PgRow, column: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(column).map_err(StoreError::reading)
}
