//! Each row of a COPY goes by the newest map, however long the COPY has lasted.
//!
//! A row of a partition that is held waits, unless the transaction has written or locked in the set that is moved. One of a partition
//! that has moved since the transaction has written there ends the COPY.

use std::sync::Arc;

use tokio::time::Instant;

use super::Sharding;
use super::placing::place_of;
use crate::catalog::quoted_literal;
use crate::error::PgError;
use crate::execute::copy_in::{AddedCell, Value, values};
use crate::routing::{
    MapSource, StoredColumn, StoredPlace, has_other_owner, partition_has_moved, place_stored, sharding_has_changed,
};
use crate::session::resolve::HOLD_WAIT;
use crate::session::{Failure, Session};
use crate::shard_key::{Format, KeyType, oid};
use crate::shardmap::{Group, MapSnapshot, PartitionState};
use crate::sql::utility::copy_in::{CopyFormat, CopyIn};

/// May a row be written where it belongs?
enum Claimed {
    Yes,
    /// Its partition is held.
    Held,
}

pub(super) async fn place_of_row(
    session: &mut Session,
    copy: &CopyIn,
    columns: &[StoredColumn<'_>],
    sharding: &mut Sharding,
    row: &[u8],
    cells: &[AddedCell],
) -> Result<StoredPlace, Failure> {
    let is_other_encoding = sharding.is_other_encoding.clone()?;
    let format = if copy.format == CopyFormat::Binary { Format::Binary } else { Format::Text };
    let deadline = Instant::now() + HOLD_WAIT;
    loop {
        follow_map(session, sharding)?;
        let Sharding { map, group, .. } = &*sharding;
        let place = place_of(copy, row, cells, is_other_encoding, |values| {
            place_stored(&*session.gateway.map, map, group, columns, values, format)
        });
        let place = match place {
            StoredPlace::Unknown(key) => {
                let mapped = session.gateway.map.find(group, &[key]).await?;
                StoredPlace::mapped(map, group, mapped.into_iter().next().flatten())
            }
            place => place,
        };
        match claim_row(session, group, &place)? {
            Claimed::Yes => return Ok(place),
            // The shards wait for the rows that come after it.
            Claimed::Held => {
                let held_by = map.epoch;
                session.wait_while_held_by(held_by, deadline).await?;
            }
        }
    }
}

/// With ON_ERROR ignore a row is left out whose key is no value of its type. Where the proxy cannot tell, PostgreSQL does.
pub(super) async fn is_left_out(session: &mut Session, copy: &CopyIn, row: &[u8], added: &[AddedCell]) -> Result<bool, Failure> {
    let mut checks = Vec::new();
    for (key, value) in copy.key.iter().zip(values(copy, row, added)) {
        let Value::Bytes(bytes) = value else { continue };
        let Ok(text) = std::str::from_utf8(&bytes) else { return Ok(false) };
        // Of the two only varchar has a length.
        let oid = if key.column_type == KeyType::Text { oid::VARCHAR } else { key.column_type.oid() };
        let of_type = format!("pg_catalog.format_type({oid}, {})", key.typmod);
        checks.push(format!("pg_catalog.pg_input_is_valid({}, {of_type})", quoted_literal(text)));
    }
    if !copy.skips_bad_rows || copy.format == CopyFormat::Binary || checks.is_empty() {
        return Ok(false);
    }
    let home = session.home()?;
    let are_valid = session.ask_beside(&home, &format!("SELECT {}", checks.join(" AND "))).await?;
    Ok(are_valid.as_deref() == Some("f"))
}

/// Rows go by the newest map.
fn follow_map(session: &Session, sharding: &mut Sharding) -> Result<(), PgError> {
    let newest = session.gateway.map.load();
    if !Arc::ptr_eq(newest.snapshot(), &sharding.map) {
        sharding.group = newest.group(sharding.group.id).cloned().ok_or_else(sharding_has_changed)?;
        sharding.map = Arc::clone(newest.snapshot());
    }
    Ok(())
}

/// The transaction writes there, unless it has to wait first. A row that is refused is written nowhere.
fn claim_row(session: &mut Session, group: &Arc<Group>, place: &StoredPlace) -> Result<Claimed, PgError> {
    let StoredPlace::On(_, partition) = place else { return Ok(Claimed::Yes) };
    let own = session.transaction.snapshots.map();
    let has_other_owner =
        |own: &Arc<MapSnapshot>| group.partition(*partition).is_none_or(|partition| has_other_owner(own, group, partition));
    if own.is_some_and(has_other_owner) {
        return Err(partition_has_moved());
    }
    let claims = &mut session.transaction.claims;
    if !claims.are_of(group) || !group.held().is_empty() {
        let partition = group.partition(*partition).ok_or_else(sharding_has_changed)?;
        if claims.has_moved(group, partition) {
            return Err(partition_has_moved());
        }
        if partition.state == PartitionState::Held && !claims.pass(group, partition) {
            return Ok(Claimed::Held);
        }
    }
    claims.add_partition(group, *partition);
    Ok(Claimed::Yes)
}
