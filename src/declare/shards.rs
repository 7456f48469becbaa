//! `add_shard` and `drop_shard`.
//!
//! ```text
//! connect, check the server ─► support objects ─► is it another shard already? ─► schema: copy (empty) or compare
//!    ─► register (preparing) ─► reference tables: lock at home, copy, compare ─► gates closed ─► online ─► gates opened
//! ```
//! Everything before "register" changes nothing that anybody sees, and everything is repeatable: called again with the same
//! name and url it takes up what an earlier call left. A shard takes no statement before it is online.

use std::sync::Arc;
use std::time::Duration;

use super::functions::no_shard;
use super::gate::{self, LockedTables};
use super::rows_copy;
use super::shard_connection::{ShardConnection, on_primary};
use super::turn::{Turn, Unmade, repeated};
use super::{Control, arguments::Arguments, schema_copy, sequences, sharding, support};
use crate::backend::catalog_reader::{self, CatalogError, WhenHeld};
use crate::backend::schema_reader::OPENS_WITHIN;
use crate::catalog::{Catalog, Held, Relation, quoted_name};
use crate::error::{PgError, SqlState};
use crate::shardmap::{MapSnapshot, MoveState, NewShard, Planned, Shard, ShardId, ShardState, Silent, Table, TableKind};

const DUPLICATE: SqlState = SqlState::DUPLICATE_OBJECT;

/// For somebody else who reads the shard's schema.
const READER_PATIENCE: Duration = Duration::from_secs(1);

/// How many differences of two schemas an error lists.
const DIFFERENCES_MAX: usize = 20;

/// For tables that others hold, while their definitions are printed.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn add(control: &Control, actor: &str, arguments: &Arguments) -> Result<(), PgError> {
    let new = NewShard {
        name: arguments.text("name")?,
        url: arguments.text("url")?,
        region: arguments.optional_text("region")?,
        capacity: arguments.float("capacity")?,
        replication_url: arguments.optional_text("replication_url")?,
        identity: None,
    };
    check_urls(new.name, Some(new.url), new.replication_url)?;
    repeated(|| add_once(control, actor, &new)).await
}

async fn add_once(control: &Control, actor: &str, new: &NewShard<'_>) -> Result<(), Unmade> {
    let snapshot = control.fresh_snapshot().await?;
    if is_done(&snapshot, new)? {
        return Ok(Box::pin(finish_earlier(control, &snapshot)).await?);
    }
    if snapshot.home().is_none() {
        return Box::pin(add_first(control, actor, &snapshot, new)).await;
    }
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    if is_done(&turn.snapshot, new)? {
        return Ok(());
    }
    refuse_beside_moves(control, new.name).await?;
    let mut shard = ShardConnection::open_new(new.name, new.url).await?;
    let uuid = support::ensure(&mut shard, &control.client_roles).await?;
    let new = &NewShard { identity: Some(&uuid), ..new.clone() };
    refuse_same_database(&turn.snapshot, new, &uuid).await?;
    let home_catalog = Box::pin(match_schemas(control, &mut turn.home, &turn.home_shard, &mut shard)).await?;
    refuse_rows_of_sharded_tables(&turn.snapshot, &home_catalog, &mut shard).await?;
    control.map.store().add_shard(turn.planned()?, actor, new).await?;
    let result = Box::pin(prepare(control, actor, &mut turn, &mut shard, &home_catalog)).await;
    shard.close().await;
    turn.end().await;
    result
}

/// The home shard's schema has the gates of a move, which are nothing to copy.
async fn refuse_beside_moves(control: &Control, name: &str) -> Result<(), PgError> {
    let moves = control.map.store().running_moves().await?;
    match moves.iter().find(|running| running.state != MoveState::Planned) {
        None => Ok(()),
        Some(running) => Err(PgError::new(
            SqlState::OBJECT_IN_USE,
            format!("shard \"{name}\" cannot be added while move {} runs", running.id.0),
        )
        .with_detail(format!("Its state is \"{}\". Nothing was changed.", running.state.name()))
        .with_hint(match running.state {
            MoveState::Switched => format!(
                "End it with \"shard-rebalance finish {0}\", or move its partitions back with \"shard-rebalance rollback {0}\".",
                running.id.0
            ),
            _ => format!("Repeat it when the move has ended; \"shard-rebalance show {}\" says how far it is.", running.id.0),
        })),
    }
}

/// The home shard. Overtaken by another one it is the second shard.
async fn add_first(control: &Control, actor: &str, snapshot: &MapSnapshot, new: &NewShard<'_>) -> Result<(), Unmade> {
    let mut shard = ShardConnection::open_new(new.name, new.url).await?;
    let uuid = support::ensure(&mut shard, &control.client_roles).await?;
    let new = NewShard { identity: Some(&uuid), ..new.clone() };
    control.map.store().add_shard(Planned::at(snapshot.epoch), actor, &new).await?;
    let catalog = read_catalog(&mut shard).await?;
    control.publish_home_tables(&catalog).await?;
    shard.close().await;
    Ok(control.reached().await?)
}

/// Called again for a shard that is online: what a call that ended half-way may have left, closed gates, is opened.
async fn finish_earlier(control: &Control, snapshot: &MapSnapshot) -> Result<(), PgError> {
    let tables = reference_names(snapshot);
    let Some(home) = snapshot.home().filter(|_| !tables.is_empty()) else { return Ok(()) };
    let mut home = control.open(home).await?;
    let is_closed = gate::has_closed(&mut home, &tables).await?;
    home.close().await;
    if !is_closed {
        return Ok(());
    }
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    gate::open_leftovers(control, &mut turn.home, &tables).await?;
    turn.end().await;
    Ok(())
}

fn reference_names(snapshot: &MapSnapshot) -> Vec<String> {
    let references = snapshot.tables.values().filter(|table| table.kind == TableKind::Reference);
    references.map(|table| quoted_name(&table.schema, &table.name)).collect()
}

/// A copy of a shard, or what a dump of the whole database has brought.
async fn refuse_rows_of_sharded_tables(
    snapshot: &MapSnapshot,
    catalog: &Catalog,
    shard: &mut ShardConnection,
) -> Result<(), PgError> {
    let is_sharded = |table: &&Arc<Table>| matches!(table.kind, TableKind::Sharded { .. });
    for table in snapshot.tables.values().filter(is_sharded) {
        if let Some(relation) = catalog.resolve(Some(&table.schema), &table.name, &[]) {
            sharding::refuse_rows(shard, relation).await?;
        }
    }
    Ok(())
}

/// Before anything is connected to: a url that only declarations could use would make a shard that no statement reaches.
pub(super) fn check_urls(name: &str, url: Option<&str>, replication_url: Option<&str>) -> Result<(), PgError> {
    if let Some(url) = url {
        super::shard_connection::usable(name, url)?;
    }
    if let Some(url) = replication_url {
        // PostgreSQL's own library reads it.
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            let message = format!("the replication_url of shard \"{name}\" is not valid");
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("Write it as postgres://user:password@host:port/database."));
        }
    }
    Ok(())
}

/// `true`: nothing to do, since this shard is online already. An error: the name or url is taken.
fn is_done(snapshot: &MapSnapshot, new: &NewShard<'_>) -> Result<bool, PgError> {
    if let Some(existing) = snapshot.shard_by_name(new.name) {
        if existing.url != new.url {
            return Err(PgError::new(DUPLICATE, format!("shard \"{}\" already exists", new.name))
                .with_detail("It has another url.")
                .with_hint("Choose another name; or change the url of that shard with shardgate.alter_shard()."));
        }
        return Ok(existing.state.is_ready());
    }
    match snapshot.shards.iter().find(|shard| shard.url == new.url) {
        Some(existing) => Err(same_database(&existing.name)),
        None => Ok(false),
    }
}

fn same_database(existing: &str) -> PgError {
    PgError::new(DUPLICATE, format!("the database is already shard \"{existing}\""))
        .with_detail("Two shards cannot be the same database.")
        .with_hint(
            "Give the url of another database. A copy of a shard's files or dump needs its schema \"shardgate\" dropped first.",
        )
}

/// The same database may be reached under another url; its uuid tells.
async fn refuse_same_database(snapshot: &MapSnapshot, new: &NewShard<'_>, uuid: &str) -> Result<(), PgError> {
    for shard in snapshot.shards.iter().filter(|shard| shard.name != new.name) {
        let is_same = match &shard.identity {
            Some(identity) => **identity == *uuid,
            None => {
                let mut connection = ShardConnection::open(shard).await?;
                let identity = support::identity(&mut connection).await;
                connection.close().await;
                identity?.as_deref() == Some(uuid)
            }
        };
        if is_same {
            return Err(same_database(&shard.name));
        }
    }
    Ok(())
}

/// The shard's schema as it is committed now. `own`: what has to be waited for is waited for there.
pub(super) async fn read_schema(control: &Control, shard: &Shard, own: &mut ShardConnection) -> Result<Catalog, PgError> {
    match Box::pin(on_primary(own.pledge.as_ref(), &own.name, read_kept(control, shard))).await? {
        Some(catalog) => Ok(*catalog),
        None => Box::pin(read_catalog(own)).await,
    }
}

/// The same, by a connection that is opened where it is needed.
pub(super) async fn read_committed(control: &Control, shard: &Shard) -> Result<Catalog, PgError> {
    if let Some(catalog) = Box::pin(read_kept(control, shard)).await {
        return Ok(*catalog);
    }
    let mut connection = control.open(shard).await?;
    let catalog = Box::pin(read_catalog(&mut connection)).await?;
    connection.close().await;
    Ok(catalog)
}

/// By the connection that is kept. `None`: others read, or hold what would be read, or it cannot be reached.
async fn read_kept(control: &Control, shard: &Shard) -> Option<Box<Catalog>> {
    let mut reader = control.schema_readers().of(shard, READER_PATIENCE).await?;
    match reader.read(shard, OPENS_WITHIN).await {
        Ok(catalog) => Some(Box::new(catalog)).filter(|catalog| catalog.held == Held::Nothing),
        Err(error) => {
            tracing::debug!(%error, shard = shard.name, "its schema is read by another connection");
            None
        }
    }
}

/// By this connection: everything at first, then what has changed since. Not in a transaction.
pub(super) async fn read_catalog(shard: &mut ShardConnection) -> Result<Catalog, PgError> {
    let reading = catalog_reader::read_changes(&mut shard.connection, &mut shard.known, WhenHeld::Wait(LOCK_PATIENCE));
    on_primary(shard.pledge.as_ref(), &shard.name, reading).await?.map_err(|error| match error {
        CatalogError::Query { part, source, .. } => match source.downcast_ref() {
            Some(source) => shard.error(source),
            None => PgError::internal(format!("shard \"{}\": cannot read the {part} of the schema", shard.name)),
        },
        other => PgError::internal(format!("shard \"{}\": {other}", shard.name)),
    })
}

/// Gives an empty shard the home shard's schema; any other must have it already. Returns the home shard's catalogue.
async fn match_schemas(
    control: &Control,
    home: &mut ShardConnection,
    home_shard: &Arc<Shard>,
    shard: &mut ShardConnection,
) -> Result<Catalog, PgError> {
    check_database(home, shard).await?;
    let wanted = read_schema(control, home_shard, home).await?;
    let found = read_catalog(shard).await?;
    if found.digest == wanted.digest {
        return Ok(wanted);
    }
    if is_empty(&found) {
        schema_copy::copy(home, &home_shard.url, shard).await?;
        let copied = read_catalog(shard).await?;
        return refuse_differences(home, &wanted, shard, &copied, "The schema was copied, and differs now").map(|()| wanted);
    }
    refuse_differences(home, &wanted, shard, &found, "They differ").map(|()| wanted)
}

/// Extensions alone are what a template database may bring.
fn is_empty(catalog: &Catalog) -> bool {
    !catalog.definitions.has_kind(&["table", "view", "materialized view", "foreign table", "sequence", "function", "type"])
}

fn refuse_differences(
    home: &ShardConnection,
    wanted: &Catalog,
    shard: &ShardConnection,
    found: &Catalog,
    what: &str,
) -> Result<(), PgError> {
    // Extensions that only the new shard has are no harm; the home shard's statements do not know them.
    let differences = wanted.diff(found);
    if differences.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<String> = differences.iter().take(DIFFERENCES_MAX).cloned().collect();
    if differences.len() > shown.len() {
        shown.push(format!("and {} more", differences.len() - shown.len()));
    }
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the schema of shard \"{}\" is not that of the home shard \"{}\"", shard.name, home.name),
    )
    .with_detail(format!("{what} (here: home shard, there: new shard):\n{}.", shown.join(";\n")))
    .with_hint("Give an empty database, which gets the home shard's schema, or make the schemas alike."))
}

/// What no dump carries over and what statements depend on.
async fn check_database(home: &mut ShardConnection, shard: &mut ShardConnection) -> Result<(), PgError> {
    const SQL: &str = "SELECT pg_encoding_to_char(encoding) || ', collation ' || datcollate || ', character type ' || datctype \
                       || coalesce(', locale ' || coalesce(to_jsonb(d)->>'datlocale', to_jsonb(d)->>'daticulocale'), '') \
                       FROM pg_database d WHERE datname = current_database()";
    let (wanted, found): (String, String) = (home.value(SQL).await?, shard.value(SQL).await?);
    if wanted == found {
        return Ok(());
    }
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the database of shard \"{}\" was created with other options than the home shard's", shard.name),
    )
    .with_detail(format!("Home shard: {wanted}. New shard: {found}."))
    .with_hint("Text would sort and compare differently there. Create the database with the home shard's ENCODING and LOCALE."))
}

/// From registered to online.
async fn prepare(
    control: &Control,
    actor: &str,
    turn: &mut Turn,
    shard: &mut ShardConnection,
    home_catalog: &Catalog,
) -> Result<(), Unmade> {
    turn.begin_again(control).await?;
    let cluster: Vec<_> = turn.snapshot.sequences.keys().cloned().collect();
    sequences::own(shard, &cluster).await?;
    let references = reference_tables(&turn.snapshot, home_catalog);
    let silent = who_may_write_copies(&turn.snapshot, turn.home_shard.id);
    gate::open_leftovers(control, &mut turn.home, &gate::names(&references)).await?;
    if silent == Silent::Awaited && !references.is_empty() {
        gate::refuse_silent_proxies(control).await?;
    }
    let mut locked = LockedTables::lock(&mut turn.home, gate::names(&references)).await?;
    let copied = copy_all(locked.connection(), shard, &references).await;
    if let Err(error) = copied {
        locked.release().await?;
        return Err(error.into());
    }
    let gates = locked.close_gates().await?;
    if let Err(error) = Box::pin(compare_again(control, turn, shard)).await {
        gates.open(&mut turn.home).await?;
        return Err(error.into());
    }
    match control.map.store().set_shard_state(turn.planned()?, actor, &shard.name, ShardState::Online).await {
        Ok(()) => Ok(gates.open_when_reached(control, &mut turn.home, silent).await?),
        Err(error) => Err(gates.open_unless_made(error, &mut turn.home).await),
    }
}

/// Copies on several shards are written with a valid lease only, and on the home shard first; while that is the only one, they are
/// written like home tables.
fn who_may_write_copies(snapshot: &MapSnapshot, home: ShardId) -> Silent {
    match snapshot.shards.iter().filter(|shard| shard.state.is_ready()).count() {
        0 | 1 => Silent::Awaited,
        _ => Silent::ShutOutOf(home),
    }
}

/// Schema changes go to registered shards; what slipped in before this one was registered shows here.
async fn compare_again(control: &Control, turn: &mut Turn, shard: &mut ShardConnection) -> Result<(), PgError> {
    let wanted = read_schema(control, &turn.home_shard, &mut turn.home).await?;
    let found = read_catalog(shard).await?;
    refuse_differences(&turn.home, &wanted, shard, &found, "The home shard's schema was changed meanwhile")
}

/// Those that refer to others come after them, so that foreign keys hold while copying.
fn reference_tables<'a>(snapshot: &MapSnapshot, catalog: &'a Catalog) -> Vec<&'a Relation> {
    let mut names: Vec<&(String, String)> =
        snapshot.tables.iter().filter(|(_, table)| table.kind == TableKind::Reference).map(|(name, _)| name).collect();
    names.sort_unstable();
    let mut waiting: Vec<&Relation> =
        names.iter().filter_map(|name| catalog.relations.get(catalog.relation_names.get(*name)?)).collect();
    let mut ordered: Vec<&Relation> = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let is_blocked = |relation: &Relation| {
            relation
                .foreign_keys
                .iter()
                .any(|key| key.referenced != relation.oid && waiting.iter().any(|other| other.oid == key.referenced))
        };
        let (blocked, ready): (Vec<&Relation>, Vec<&Relation>) = waiting.iter().partition(|relation| is_blocked(relation));
        if ready.is_empty() {
            // A cycle: deferrable constraints, or triggers silenced, must do.
            ordered.extend(blocked);
            break;
        }
        ordered.extend(ready);
        waiting = blocked;
    }
    ordered
}

async fn copy_all(home: &mut ShardConnection, shard: &mut ShardConnection, tables: &[&Relation]) -> Result<(), PgError> {
    shard.run("BEGIN; SET CONSTRAINTS ALL DEFERRED").await?;
    for table in tables {
        if let Err(error) = rows_copy::copy(home, shard, table).await {
            shard.run("ROLLBACK").await?;
            return Err(error);
        }
    }
    shard.run("COMMIT").await
}

pub(super) async fn drop(control: &Control, actor: &str, arguments: &Arguments) -> Result<(), PgError> {
    let name = arguments.text("name")?;
    let snapshot = control.fresh_snapshot().await?;
    if snapshot.shard_by_name(name).is_some() {
        refuse_in_doubt(&snapshot, name).await?;
    }
    control.map.store().drop_shard(actor, name).await?;
    control.reached().await
}

/// A shard that has something prepared, or whose decision others wait for, must stay where recovery finds it. One that cannot be
/// reached may be dropped when nobody waits for it.
async fn refuse_in_doubt(snapshot: &MapSnapshot, name: &str) -> Result<(), PgError> {
    let mut kept = Vec::new();
    let mut waiting = Vec::new();
    for shard in &snapshot.shards {
        let mut connection = match ShardConnection::open(shard).await {
            Ok(connection) => connection,
            Err(_) if shard.name == name => continue,
            Err(error) => return Err(error),
        };
        let gids: Vec<String> = connection.value(PREPARED).await?;
        if shard.name == name {
            if !gids.is_empty() {
                return Err(in_doubt(name, "It has prepared transactions of this cluster."));
            }
        } else {
            kept.extend(support::identity(&mut connection).await?);
            waiting.extend(gids);
        }
        connection.close().await;
    }
    let decider = |gid: &String| gid.split(':').nth(2).map(str::to_owned).unwrap_or_default();
    match waiting.iter().find(|gid| !kept.contains(&decider(gid))) {
        None => Ok(()),
        Some(_) => Err(in_doubt(name, "Other shards have prepared transactions that this one may have decided.")),
    }
}

fn in_doubt(name: &str, detail: &str) -> PgError {
    PgError::new(SqlState::OBJECT_IN_USE, format!("shard \"{name}\" takes part in transactions that are not finished"))
        .with_detail(detail)
        .with_hint("SELECT * FROM shardgate.transactions shows them; they are finished when their shards are back.")
}

// Three fields of a gid are ours for certain: the prefix, the cluster, the decider.
const PREPARED: &str = "SELECT coalesce(array_agg(gid::text), '{}') FROM pg_prepared_xacts
     WHERE database = current_database() AND gid ~ '^sg:[0-9a-f]{16}:[0-9a-f-]{36}:'";
