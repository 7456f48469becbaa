//! Copies a table's rows from the home shard to another shard, streamed, and compares both sides.
//!
//! For reference tables. The caller holds the table's lock on the home shard and decides about the transaction on the target.
//! Rows go as text under equal settings, which loses nothing; what arrived is compared by count and by a hash of every row, so
//! that a trigger or a default on the target that changed something does not go unnoticed.

use futures::TryStreamExt;
use sqlx::AssertSqlSafe;

use super::shard_connection::{ShardConnection, on_primary, shard_error};
use crate::catalog::{Relation, quoted_identifier, quoted_name};
use crate::error::{PgError, SqlState};

/// What two copies of a table are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) rows: i64,
    hash: String,
}

/// Under our settings equal rows print alike; the sum does not depend on their order. Columns by name, since their order may
/// differ where columns were dropped.
pub(super) async fn fingerprint(shard: &mut ShardConnection, relation: &Relation) -> Result<Fingerprint, PgError> {
    let columns: Vec<String> = relation.columns.iter().map(|column| quoted_identifier(&column.name)).collect();
    let sql = format!(
        "SELECT count(*), coalesce(sum(hashtextextended(ROW({})::text, 0)::numeric), 0)::text FROM {}",
        columns.join(", "),
        quoted_name(&relation.schema, &relation.name)
    );
    let asking = sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut shard.connection);
    let row: (i64, String) = on_primary(shard.pledge.as_ref(), &shard.name, asking).await?.map_err(|error| shard.error(&error))?;
    Ok(Fingerprint { rows: row.0, hash: row.1 })
}

pub(super) async fn has_rows(shard: &mut ShardConnection, relation: &Relation) -> Result<bool, PgError> {
    let table = quoted_name(&relation.schema, &relation.name);
    shard.value(&format!("SELECT EXISTS (SELECT FROM {table})")).await
}

/// Both connections are in a transaction. Nothing is copied where the target holds the same rows already, from a copy that was
/// interrupted before it counted; other rows there are not touched but refused.
pub(super) async fn copy(home: &mut ShardConnection, target: &mut ShardConnection, relation: &Relation) -> Result<(), PgError> {
    let wanted = fingerprint(home, relation).await?;
    let table = quoted_name(&relation.schema, &relation.name);
    target.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await?;
    let present = fingerprint(target, relation).await?;
    if present == wanted {
        return Ok(());
    }
    if present.rows > 0 {
        return Err(PgError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{}\" on shard \"{}\" holds other rows than on the home shard", relation.name, target.name),
        )
        .with_detail(format!("It has {} rows there and {} on shard \"{}\".", present.rows, wanted.rows, home.name))
        .with_hint(format!("If they are not needed, empty the table there (TRUNCATE {table}), then call the function again.")));
    }
    let triggers_fire = !silence_triggers(target).await?;
    stream(home, target, relation).await?;
    let arrived = fingerprint(target, relation).await?;
    if arrived != wanted {
        let error = PgError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("the copy of table \"{}\" on shard \"{}\" differs from the home shard's", relation.name, target.name),
        )
        .with_detail(format!("{} rows were copied, {} arrived.", wanted.rows, arrived.rows));
        return Err(if triggers_fire && !relation.triggers.is_empty() {
            error.with_hint("The table's triggers changed what was copied; disable them until it is done.")
        } else {
            error
        });
    }
    Ok(())
}

/// Until the end of the transaction. `false`: not permitted, triggers and foreign keys do their work as ever.
async fn silence_triggers(target: &mut ShardConnection) -> Result<bool, PgError> {
    target.run("SAVEPOINT silence").await?;
    match target.run("SET LOCAL session_replication_role = replica").await {
        Ok(()) => Ok(true),
        Err(error) if error.code == SqlState::INSUFFICIENT_PRIVILEGE => {
            target.run("ROLLBACK TO silence").await?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Generated columns are computed there.
async fn stream(home: &mut ShardConnection, target: &mut ShardConnection, relation: &Relation) -> Result<(), PgError> {
    let columns: Vec<String> =
        relation.columns.iter().filter(|column| !column.is_generated).map(|column| quoted_identifier(&column.name)).collect();
    let columns = columns.join(", ");
    let table = quoted_name(&relation.schema, &relation.name);
    let copy_out = format!("COPY (SELECT {columns} FROM {table}) TO STDOUT (ENCODING 'UTF8')");
    let copy_in = format!("COPY {table} ({columns}) FROM STDIN (ENCODING 'UTF8')");
    let (home_name, target_name) = (home.name.as_str(), target.name.as_str());
    let (home_pledge, target_pledge) = (home.pledge.as_ref(), target.pledge.as_ref());
    let at_home = |error: sqlx::Error| shard_error(home_name, &error);
    let at_target = |error: sqlx::Error| shard_error(target_name, &error);
    let mut source = on_primary(home_pledge, home_name, home.connection.copy_out_raw(&copy_out)).await?.map_err(at_home)?;
    let mut sink = on_primary(target_pledge, target_name, target.connection.copy_in_raw(&copy_in)).await?.map_err(at_target)?;
    loop {
        let next = on_primary(home_pledge, home_name, source.try_next()).await;
        match next.and_then(|next| next.map_err(at_home)) {
            Ok(Some(chunk)) => {
                on_primary(target_pledge, target_name, sink.send(chunk)).await?.map_err(at_target)?;
            }
            Ok(None) => break,
            Err(error) => {
                let aborted = on_primary(target_pledge, target_name, sink.abort("the source failed")).await?;
                if let Err(abort) = aborted {
                    tracing::debug!(shard = %target_name, error = %abort, "ending a copy failed");
                }
                return Err(error);
            }
        }
    }
    on_primary(target_pledge, target_name, sink.finish()).await?.map(drop).map_err(at_target)
}
