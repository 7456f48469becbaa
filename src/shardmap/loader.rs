//! Reads the map into a snapshot: all of it at the start, later only what changed.
//!
//! Every row carries the counter of the epoch that changed it, and removals are recorded, so what a snapshot lacks is what
//! has a higher counter than the snapshot. Everything is read in one transaction of the map database, at one epoch. The keys of
//! lookup groups are not read, only which of them changed. All is loaded anew when the incarnation is another one or when the
//! record of removals does not reach back far enough.
//!
//! An epoch lower than the known one is refused. Rows that make no valid map are an error: the old snapshot stays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::Transaction;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::types::Json;
use tokio::time::timeout;

use super::changes::{SchemaChangeId, read};
use super::encoding::{declared_function, key_from_stored, key_types_from_stored, unreadable};
use super::error::StoreError;
use super::merge::{ChangedRows, GroupRow, PartitionRow, merge};
use super::model::{
    Bound, ClusterSequence, DeclaredFunction, Epoch, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, Redefinition,
    Shard, ShardId, ShardState, Strategy, Table, TableKind,
};
use super::primary::{Primary, PrimaryServer};
use super::renames::Renamed;
use super::store::Store;

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and moved once")]
pub enum Loaded {
    /// Nothing changed.
    Current,
    Changed(Change),
}

/// The way from one snapshot to the next.
#[derive(Debug)]
pub struct Change {
    pub snapshot: MapSnapshot,
    pub keys: ChangedKeys,
    /// Rows that were read from the map database.
    pub rows_read: usize,
    /// Everything was loaded.
    pub is_full: bool,
}

/// Lookup keys whose mapping changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangedKeys {
    /// By their order-preserving bytes.
    These(Vec<(GroupId, Box<[u8]>)>),
    /// Too many to name, or unknown which.
    All,
}

/// What one row of the map database says of the whole map.
struct Header {
    epoch: Epoch,
    removed_floor: i64,
    schema_version: i64,
    open_schema_changes: i64,
    redefinitions: Arc<[Redefinition]>,
}

impl Store {
    /// The whole map.
    pub async fn load(&self) -> Result<Change, StoreError> {
        self.in_time(self.load_whole()).await
    }

    /// What changed since this snapshot.
    pub async fn load_since(&self, known: &MapSnapshot) -> Result<Loaded, StoreError> {
        self.in_time(self.load_changed(known)).await
    }

    /// A map that is not read in this time is read by other connections: these may be dead without saying so, and whoever waits for
    /// this proxy to know of a change would wait for ever.
    async fn in_time<T>(&self, loading: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match timeout(LOAD_TIMEOUT, Box::pin(loading)).await {
            Ok(loaded) => loaded,
            Err(_) => {
                self.replace_connections();
                Err(StoreError::no_answer())
            }
        }
    }

    async fn load_whole(&self) -> Result<Change, StoreError> {
        let mut transaction = self.begin_reading().await?;
        let header = read_header(&mut transaction).await?;
        let change = load_all(&mut transaction, &header).await?;
        end(transaction).await?;
        Ok(change)
    }

    async fn load_changed(&self, known: &MapSnapshot) -> Result<Loaded, StoreError> {
        // Mostly nothing did: one short statement finds out, and soon notices a server that does not answer.
        let now = timeout(ANSWER_TIMEOUT, self.epoch()).await.unwrap_or_else(|_| Err(StoreError::no_answer()))?;
        check_not_older(now, known.epoch)?;
        if now == known.epoch {
            return Ok(Loaded::Current);
        }
        let mut transaction = self.begin_reading().await?;
        let header = read_header(&mut transaction).await?;
        check_not_older(header.epoch, known.epoch)?;
        let is_delta = header.epoch.incarnation == known.epoch.incarnation && known.epoch.counter >= header.removed_floor;
        let change = match is_delta {
            true => load_delta(&mut transaction, &header, known).await?,
            false => load_all(&mut transaction, &header).await?,
        };
        end(transaction).await?;
        Ok(Loaded::Changed(change))
    }

    /// Cancel safe. A task of its own: a BEGIN given up half-way would not be known to the connection, and whoever got it next from
    /// the pool would work in its transaction, by an old snapshot.
    async fn begin_reading(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        let pool = self.pool()?;
        let begin = async move { Box::pin(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")).await };
        match tokio::spawn(begin).await {
            Ok(begun) => begun.map_err(StoreError::reading),
            Err(_) => Err(StoreError::no_answer()),
        }
    }
}

fn check_not_older(found: Epoch, known: Epoch) -> Result<(), StoreError> {
    match found < known {
        true => Err(StoreError::Older { found, known }),
        false => Ok(()),
    }
}

async fn end(transaction: Transaction<'static, Postgres>) -> Result<(), StoreError> {
    transaction.commit().await.map_err(StoreError::reading)
}

async fn read_header(transaction: &mut Transaction<'_, Postgres>) -> Result<Header, StoreError> {
    let row: (i64, i64, i64, i64, i64, OpenRedefinitions) = sqlx::query_as(
        "SELECT c.incarnation, c.counter, c.removed_floor, c.schema_version, count(s.schema_change_id),
                coalesce(jsonb_agg(jsonb_build_array(s.schema_change_id, s.redefines)) FILTER (WHERE s.redefines IS NOT NULL), '[]')
         FROM shardgate_map.cluster c LEFT JOIN shardgate_map.schema_change s ON s.finished_at IS NULL
         GROUP BY c.incarnation, c.counter, c.removed_floor, c.schema_version",
    )
    .fetch_one(&mut **transaction)
    .await
    .map_err(StoreError::reading)?;
    Ok(Header {
        epoch: Epoch { incarnation: row.0, counter: row.1 },
        removed_floor: row.2,
        schema_version: row.3,
        open_schema_changes: row.4,
        redefinitions: row.5.0.into_iter().map(|(change, redefines)| redefines.by(SchemaChangeId(change))).collect(),
    })
}

async fn load_all(transaction: &mut Transaction<'_, Postgres>, header: &Header) -> Result<Change, StoreError> {
    // Every row was changed after epoch -1.
    let rows = read_changed(transaction, -1, Kinds::ALL).await?;
    let rows_read = rows.count();
    let mut snapshot = merge(&MapSnapshot::default(), rows)?;
    snapshot.tables_version = header.epoch.counter;
    snapshot.declarations_version = header.epoch.counter;
    header.apply(&mut snapshot);
    Ok(Change { snapshot, keys: ChangedKeys::All, rows_read, is_full: true })
}

async fn load_delta(
    transaction: &mut Transaction<'_, Postgres>,
    header: &Header,
    known: &MapSnapshot,
) -> Result<Change, StoreError> {
    let since = known.epoch.counter;
    let kinds = Kinds::changed(transaction, since).await?;
    let mut rows = read_changed(transaction, since, kinds).await?;
    if kinds.removed {
        read_removed(transaction, since, &mut rows).await?;
    }
    let changed_keys = if kinds.keys { read_changed_keys(transaction, since).await? } else { Vec::new() };
    let rows_read = rows.count() + changed_keys.len();
    let mut keys = std::mem::take(&mut rows.removed_keys);
    keys.extend(changed_keys);
    let (changes_tables, changes_declarations) = (rows.change_tables(known), rows.change_declarations());
    let mut snapshot = merge(known, rows)?;
    if changes_tables {
        snapshot.tables_version = header.epoch.counter;
    }
    if changes_declarations {
        snapshot.declarations_version = header.epoch.counter;
    }
    header.apply(&mut snapshot);
    let keys = if keys.len() > CHANGED_KEYS_MAX { ChangedKeys::All } else { ChangedKeys::These(keys) };
    Ok(Change { snapshot, keys, rows_read, is_full: false })
}

impl Header {
    fn apply(&self, snapshot: &mut MapSnapshot) {
        snapshot.epoch = self.epoch;
        snapshot.schema_version = self.schema_version;
        snapshot.open_schema_changes = usize::try_from(self.open_schema_changes).unwrap_or_default();
        snapshot.redefinitions = Arc::clone(&self.redefinitions);
    }
}

/// With the changes that they belong to.
type OpenRedefinitions = Json<Vec<(i64, Redefines)>>;

/// The column `schema_change.redefines`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Redefines {
    These(BTreeSet<String>),
    /// True.
    Anything(bool),
}

impl Redefines {
    fn by(self, change: SchemaChangeId) -> Redefinition {
        let names = match self {
            Redefines::These(names) => Some(names),
            Redefines::Anything(_) => None,
        };
        Redefinition { change, names }
    }
}

/// Kinds of rows that are to be read. Most changes are of one or two, and each that is not read saves a round trip, for which statements
/// of a move's partitions wait.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
#[expect(clippy::struct_excessive_bools, reason = "one for each table of the map")]
struct Kinds {
    shards: bool,
    groups: bool,
    partitions: bool,
    tables: bool,
    functions: bool,
    sequences: bool,
    keys: bool,
    removed: bool,
}

impl Kinds {
    const ALL: Self = Self {
        shards: true,
        groups: true,
        partitions: true,
        tables: true,
        functions: true,
        sequences: true,
        keys: true,
        removed: true,
    };

    async fn changed(transaction: &mut Transaction<'_, Postgres>, since: i64) -> Result<Self, StoreError> {
        sqlx::query_as(CHANGED_KINDS).bind(since).fetch_one(&mut **transaction).await.map_err(StoreError::reading)
    }
}

async fn read_changed(transaction: &mut Transaction<'_, Postgres>, since: i64, kinds: Kinds) -> Result<ChangedRows, StoreError> {
    let mut rows = ChangedRows::default();
    for row in fetch_if(kinds.shards, transaction, SHARDS, since).await? {
        rows.shards.push(shard(&row)?);
    }
    for row in fetch_if(kinds.groups, transaction, GROUPS, since).await? {
        rows.groups.push(group(&row)?);
    }
    for row in fetch_if(kinds.partitions, transaction, PARTITIONS, since).await? {
        rows.partitions.push(partition(&row)?);
    }
    for row in fetch_if(kinds.tables, transaction, TABLES, since).await? {
        rows.tables.push(table(&row)?);
    }
    for row in fetch_if(kinds.functions, transaction, FUNCTIONS, since).await? {
        rows.functions.push(function(&row)?);
    }
    for row in fetch_if(kinds.sequences, transaction, SEQUENCES, since).await? {
        rows.sequences.push(ClusterSequence {
            schema: read(&row, 0)?,
            name: read(&row, 1)?,
            increment: read(&row, 2)?,
            generation: read(&row, 3)?,
            size: read(&row, 4)?,
        });
    }
    Ok(rows)
}

async fn fetch_if(
    is_wanted: bool,
    transaction: &mut Transaction<'_, Postgres>,
    sql: &'static str,
    since: i64,
) -> Result<Vec<PgRow>, StoreError> {
    if is_wanted { fetch(transaction, sql, since).await } else { Ok(Vec::new()) }
}

async fn fetch(transaction: &mut Transaction<'_, Postgres>, sql: &'static str, since: i64) -> Result<Vec<PgRow>, StoreError> {
    sqlx::query(sql).bind(since).fetch_all(&mut **transaction).await.map_err(StoreError::reading)
}

/// One more than may be named, so that too many are noticed.
async fn read_changed_keys(
    transaction: &mut Transaction<'_, Postgres>,
    since: i64,
) -> Result<Vec<(GroupId, Box<[u8]>)>, StoreError> {
    let rows = fetch(transaction, CHANGED_KEYS, since).await?;
    rows.iter().map(|row| Ok((GroupId(read(row, 0)?), read::<Vec<u8>>(row, 1)?.into_boxed_slice()))).collect()
}

async fn read_removed(transaction: &mut Transaction<'_, Postgres>, since: i64, rows: &mut ChangedRows) -> Result<(), StoreError> {
    for row in fetch(transaction, REMOVED, since).await? {
        let kind: &str = read(&row, 0)?;
        let id: Option<i32> = read(&row, 1)?;
        let name = || Ok::<_, StoreError>((read(&row, 3)?, read(&row, 4)?));
        match (kind, id) {
            ("shard", Some(id)) => rows.removed_shards.push(ShardId(id)),
            ("colocation_group", Some(id)) => rows.removed_groups.push(GroupId(id)),
            ("partition", Some(id)) => rows.removed_partitions.push(PartitionId(id)),
            ("lookup_key", Some(id)) => rows.removed_keys.push((GroupId(id), read::<Vec<u8>>(&row, 2)?.into_boxed_slice())),
            ("declared_table", _) => rows.removed_tables.push(name()?),
            ("declared_function", _) => rows.removed_functions.push(name()?),
            ("declared_sequence", _) => rows.removed_sequences.push(name()?),
            (other, _) => return Err(unreadable("record of removal", other)),
        }
    }
    Ok(())
}

fn shard(row: &PgRow) -> Result<Shard, StoreError> {
    let state: &str = read(row, 5)?;
    Ok(Shard {
        id: ShardId(read(row, 0)?),
        name: read(row, 1)?,
        url: read(row, 2)?,
        region: read(row, 3)?,
        capacity: read(row, 4)?,
        state: ShardState::from_name(state).ok_or_else(|| unreadable("shard state", state))?,
        is_home: read(row, 6)?,
        owes: read(row, 10)?,
        identity: read::<Option<String>>(row, 7)?.map(Arc::from),
        primary: Primary::of(match (read(row, 8)?, read(row, 9)?) {
            (Some(system_identifier), Some(timeline)) => Some(PrimaryServer { system_identifier, timeline }),
            _ => None,
        }),
    })
}

fn group(row: &PgRow) -> Result<GroupRow, StoreError> {
    let key_types: Vec<String> = read(row, 2)?;
    Ok(GroupRow {
        id: GroupId(read(row, 0)?),
        strategy: strategy(read(row, 1)?)?,
        key_types: key_types_from_stored(&key_types)?,
        default_partition: read::<Option<i32>>(row, 3)?.map(PartitionId),
        has_residues: read(row, 4)?,
    })
}

fn partition(row: &PgRow) -> Result<PartitionRow, StoreError> {
    let state: &str = read(row, 4)?;
    let stored_low: Option<&[u8]> = read(row, 5)?;
    let partition = Partition {
        id: PartitionId(read(row, 0)?),
        shard: ShardId(read(row, 3)?),
        state: PartitionState::from_name(state).ok_or_else(|| unreadable("partition state", state))?,
        epoch: read(row, 6)?,
        low: Bound::from_stored(strategy(read(row, 2)?)?, stored_low)?,
    };
    Ok(PartitionRow { group: GroupId(read(row, 1)?), partition })
}

fn table(row: &PgRow) -> Result<Table, StoreError> {
    let group: Option<i32> = read(row, 2)?;
    let key: Option<Json<serde_json::Value>> = read(row, 3)?;
    let kind = match (group, key) {
        (Some(group), Some(key)) => TableKind::Sharded { group: GroupId(group), key: key_from_stored(&key)? },
        (None, None) => TableKind::Reference,
        (Some(_), None) | (None, Some(_)) => return Err(unreadable("table", read(row, 1)?)),
    };
    let renamed = read::<Option<i64>>(row, 4)?.map(|change| renamed(row, SchemaChangeId(change))).transpose()?;
    Ok(Table { schema: read(row, 0)?, name: read(row, 1)?, kind, renamed: renamed.map(Arc::new) })
}

fn renamed(row: &PgRow, change: SchemaChangeId) -> Result<Renamed, StoreError> {
    let (oid, names): (i64, Option<Json<Vec<Vec<String>>>>) = (read(row, 5)?, read(row, 6)?);
    let oid = u32::try_from(oid).map_err(|_| unreadable("oid", &oid.to_string()))?;
    Ok(Renamed { change, oid, key_names: names.map(|names| names.0).unwrap_or_default() })
}

fn function(row: &PgRow) -> Result<DeclaredFunction, StoreError> {
    let reads: Json<serde_json::Value> = read(row, 2)?;
    let writes: Json<serde_json::Value> = read(row, 3)?;
    let declared_as: Option<Json<serde_json::Value>> = read(row, 5)?;
    declared_function((read(row, 0)?, read(row, 1)?), reads.0, writes.0, read(row, 4)?, declared_as.map(|stored| stored.0))
}

fn strategy(name: &str) -> Result<Strategy, StoreError> {
    Strategy::from_name(name).ok_or_else(|| unreadable("strategy", name))
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Of a map with very many partitions, too.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);
/// More than these forget the whole cache of lookup keys.
const CHANGED_KEYS_MAX: usize = 10_000;

/// As the queries below find them.
const CHANGED_KINDS: &str = "SELECT
    EXISTS (SELECT FROM shardgate_map.shard WHERE epoch > $1)
        OR EXISTS (SELECT FROM shardgate_map.shard_primary WHERE epoch > $1) AS shards,
    EXISTS (SELECT FROM shardgate_map.colocation_group WHERE epoch > $1) AS groups,
    EXISTS (SELECT FROM shardgate_map.partition WHERE epoch > $1) AS partitions,
    EXISTS (SELECT FROM shardgate_map.declared_table WHERE epoch > $1) AS tables,
    EXISTS (SELECT FROM shardgate_map.declared_function WHERE epoch > $1) AS functions,
    EXISTS (SELECT FROM shardgate_map.declared_sequence WHERE epoch > $1) AS sequences,
    EXISTS (SELECT FROM shardgate_map.lookup_key WHERE epoch > $1) AS keys,
    EXISTS (SELECT FROM shardgate_map.removed WHERE epoch > $1) AS removed";
const SHARDS: &str = "SELECT s.shard_id, s.name, s.url, s.region, s.capacity, s.state, s.is_home, s.identity::text,
                             p.system_identifier, p.timeline,
                             EXISTS (SELECT FROM shardgate_map.owed o WHERE o.shard_id = s.shard_id)
                      FROM shardgate_map.shard s LEFT JOIN shardgate_map.shard_primary p USING (shard_id)
                      WHERE s.epoch > $1 OR p.epoch > $1";
const GROUPS: &str = "SELECT group_id, strategy, key_types, default_partition, has_residues
                      FROM shardgate_map.colocation_group WHERE epoch > $1";
const PARTITIONS: &str = "SELECT partition_id, group_id, strategy, shard_id, state, low, epoch
                          FROM shardgate_map.partition WHERE epoch > $1";
const TABLES: &str = "SELECT schema_name, table_name, group_id, key, renamed_in, home_oid, key_names
                      FROM shardgate_map.declared_table WHERE epoch > $1";
const FUNCTIONS: &str = "SELECT schema_name, function_name, reads, writes, key_argument, declared_as
                         FROM shardgate_map.declared_function WHERE epoch > $1";
const SEQUENCES: &str = "SELECT schema_name, sequence_name, increment, generation,
                         least((maximum::numeric - minimum) / abs(increment::numeric), 9223372036854775807)::bigint
                         FROM shardgate_map.declared_sequence WHERE epoch > $1";
const CHANGED_KEYS: &str = "SELECT group_id, key FROM shardgate_map.lookup_key WHERE epoch > $1 LIMIT 10001";
const REMOVED: &str = "SELECT kind, id, key, schema_name, name FROM shardgate_map.removed WHERE epoch > $1";
