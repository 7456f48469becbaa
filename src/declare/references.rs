//! `reference_table`: the same rows on every shard.
//!
//! Writers wait while the rows are copied and are refused, once, when they were planned before the declaration ([`super::gate`]).

use super::checks::{Candidate, CandidateKind};
use super::functions::no_shard;
use super::gate::LockedTables;
use super::shard_connection::ShardConnection;
use super::sharding::{ensure_table, refuse};
use super::shards::read_catalog;
use super::{BODY_READER, Caller, Control, names, rows_copy, sequences};
use crate::catalog::{Relation, RelationKind};
use crate::error::{PgError, SqlState};
use crate::shardmap::{ShardState, TableKind};

pub(super) async fn declare(control: &Control, caller: &Caller, table: &str) -> Result<(), PgError> {
    let snapshot = control.fresh_snapshot().await?;
    let home_shard = snapshot.home().ok_or_else(no_shard)?.clone();
    let mut home = control.open(&home_shard).await?;
    let catalog = read_catalog(&mut home).await?;
    let relation = names::find_table(&catalog, caller, table)?;
    if relation.kind == RelationKind::PartitionedTable {
        return Err(PgError::unsupported(
            format!("cannot make partitioned table \"{}\" a reference table", relation.name),
            "Every shard would have all of its partitions.",
            "Distribute it by a key, or make it an ordinary table.",
        ));
    }
    if let Some(known) = snapshot.table(&relation.schema, &relation.name) {
        return match known.kind {
            // What a call that ended half-way may have left: the gate.
            TableKind::Reference if LockedTables::open_leftovers(&mut home, &[relation]).await? => Ok(()),
            TableKind::Reference => {
                Err(PgError::new(SqlState::DUPLICATE_OBJECT, format!("table \"{}\" is already a reference table", relation.name)))
            }
            TableKind::Sharded { .. } => {
                Err(PgError::new(SqlState::DUPLICATE_OBJECT, format!("table \"{}\" is already sharded", relation.name))
                    .with_hint("SELECT * FROM shardgate.tables shows how."))
            }
        };
    }
    let candidate = Candidate { catalog: &catalog, map: &snapshot, relation, kind: CandidateKind::Reference, reader: &BODY_READER };
    refuse(&format!("cannot make \"{}\" a reference table", relation.name), &candidate.obstacles())?;

    if sequences::adopt(control, caller, &snapshot, &mut home, relation).await? {
        home.close().await;
        return Box::pin(declare(control, caller, table)).await;
    }
    let mut others = Vec::new();
    for shard in snapshot.shards.iter().filter(|shard| !shard.is_home && shard.state == ShardState::Online) {
        let mut connection = control.open(shard).await?;
        sequences::adopt_elsewhere(control, &mut connection, relation).await?;
        ensure_table(&mut home, &home_shard.url, &catalog, relation, &mut connection).await?;
        sequences::own(&mut connection, &sequences::cluster_sequences(relation)).await?;
        others.push(connection);
    }
    let mut locked = LockedTables::lock(&mut home, &[relation]).await?;
    if let Err(error) = copy_to_all(locked.connection(), &mut others, relation).await {
        locked.release().await?;
        return Err(error);
    }
    let gates = locked.close_gates().await?;
    if let Err(error) = control.map.store().reference_table(&caller.user, &relation.schema, &relation.name).await {
        gates.open(&mut home).await?;
        return Err(error.into());
    }
    gates.open_when_reached(control, &mut home).await?;
    for shard in others {
        shard.close().await;
    }
    home.close().await;
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
