//! `reference_table`: the same rows on every shard.
//!
//! Writers wait while the rows are copied and are refused, once, when they were planned before the declaration ([`super::gate`]).

use std::sync::Arc;

use super::checks::{Candidate, CandidateKind, Obstacle};
use super::functions::no_shard;
use super::gate::{self, LockedTables};
use super::reading;
use super::shard_connection::ShardConnection;
use super::sharding::{ensure_table, refuse, refuse_changed_schema};
use super::shards::read_schema;
use super::turn::{Turn, Unmade, repeated};
use super::{BODY_READER, Caller, Control, names, rows_copy, sequences};
use crate::catalog::{Catalog, Relation, RelationKind};
use crate::error::{PgError, SqlState};
use crate::shardmap::{Silent, TableKind};

pub(super) async fn declare(control: &Control, caller: &Caller, table: &str) -> Result<(), PgError> {
    repeated(|| declare_once(control, caller, table)).await
}

async fn declare_once(control: &Control, caller: &Caller, table: &str) -> Result<(), Unmade> {
    let mut turn = Turn::take(control).await?.ok_or_else(no_shard)?;
    turn.require_writable()?;
    let mut catalog = Arc::new(read_schema(control, &turn.home_shard, &mut turn.home).await?);
    let relation = names::find_table(&catalog, caller, table)?;
    if relation.kind == RelationKind::PartitionedTable {
        return Err(PgError::unsupported(
            format!("cannot make partitioned table \"{}\" a reference table", relation.name),
            "Every shard would have all of its partitions.",
            "Distribute it by a key, or make it an ordinary table.",
        )
        .into());
    }
    let had_leftover = gate::open_leftovers(control, &mut turn.home, &gate::names(&[relation])).await?;
    if let Some(known) = turn.snapshot.table(&relation.schema, &relation.name) {
        return match known.kind {
            // A call that ended half-way is at its end now.
            TableKind::Reference if had_leftover => Ok(()),
            TableKind::Reference => {
                Err(PgError::new(SqlState::DUPLICATE_OBJECT, format!("table \"{}\" is already a reference table", relation.name))
                    .into())
            }
            TableKind::Sharded { .. } => {
                Err(PgError::new(SqlState::DUPLICATE_OBJECT, format!("table \"{}\" is already sharded", relation.name))
                    .with_hint("SELECT * FROM shardgate.tables shows how.")
                    .into())
            }
        };
    }
    let cycling = sequences::cycling(&mut turn.home, relation).await?;
    refuse_obstacles(&turn, &catalog, relation, cycling)?;
    if Box::pin(sequences::adopt(control, caller, &turn.snapshot, &mut turn.home, relation)).await? {
        catalog = Arc::new(read_schema(control, &turn.home_shard, &mut turn.home).await?);
    }
    let relation = names::find_table(&catalog, caller, table)?;
    Box::pin(copy_and_store(control, caller, turn, &catalog, relation)).await
}

fn refuse_obstacles(turn: &Turn, catalog: &Arc<Catalog>, relation: &Relation, cycling: Vec<Obstacle>) -> Result<(), PgError> {
    let declared = reading::under(catalog, turn.snapshot.clone(), &[]);
    let kind = CandidateKind::Reference;
    let candidate = Candidate { catalog, map: &turn.snapshot, relation, kind, reader: &BODY_READER, declared: &declared };
    let obstacles: Vec<Obstacle> = candidate.obstacles().into_iter().chain(cycling).collect();
    refuse(&format!("cannot make \"{}\" a reference table", relation.name), &obstacles)
}

async fn copy_and_store(
    control: &Control,
    caller: &Caller,
    mut turn: Turn,
    catalog: &Catalog,
    relation: &Relation,
) -> Result<(), Unmade> {
    let mut others = Vec::new();
    for shard in &turn.other_shards() {
        let mut connection = control.open(shard).await?;
        sequences::adopt_elsewhere(control, &mut connection, relation).await?;
        Box::pin(ensure_table(control, &mut turn, catalog, relation, (shard, &mut connection))).await?;
        sequences::own(&mut connection, &sequences::cluster_sequences(relation)).await?;
        others.push(connection);
    }
    if others.is_empty() {
        // Where its rows are, every proxy thinks they are; who writes copies of a shard that joins waits for that.
        refuse_changed_schema(control, &turn.home_shard, catalog).await?;
        control.map.store().reference_table(turn.planned()?, &caller.user, &relation.schema, &relation.name).await?;
        control.reached().await?;
        turn.end().await;
        return Ok(());
    }
    gate::refuse_silent_proxies(control).await?;
    let mut locked = LockedTables::lock(&mut turn.home, gate::names(&[relation])).await?;
    let copied = match refuse_changed_schema(control, &turn.home_shard, catalog).await {
        Ok(()) => copy_to_all(locked.connection(), &mut others, relation).await.map_err(Unmade::Failed),
        changed => changed,
    };
    if let Err(error) = copied {
        locked.release().await?;
        return Err(error);
    }
    let gates = locked.close_gates().await?;
    // Copies on a server that was the primary then count for nothing.
    if let Err(error) = others.iter().try_for_each(ShardConnection::check_primary) {
        gates.open(&mut turn.home).await?;
        return Err(error.into());
    }
    match control.map.store().reference_table(turn.planned()?, &caller.user, &relation.schema, &relation.name).await {
        Ok(()) => gates.open_when_reached(control, &mut turn.home, Silent::Awaited).await?,
        Err(error) => return Err(gates.open_unless_made(error, &mut turn.home).await),
    }
    for shard in others {
        shard.close().await;
    }
    turn.end().await;
    Ok(())
}

/// All copies are there, or none is kept.
async fn copy_to_all(home: &mut ShardConnection, others: &mut [ShardConnection], relation: &Relation) -> Result<(), PgError> {
    for shard in others.iter_mut() {
        shard.run("BEGIN; SET CONSTRAINTS ALL DEFERRED").await?;
        if let Err(error) = rows_copy::copy(home, shard, relation).await {
            // The others' transactions end with their connections.
            shard.run("ROLLBACK").await?;
            return Err(error);
        }
    }
    for shard in others {
        shard.run("COMMIT").await?;
    }
    Ok(())
}
