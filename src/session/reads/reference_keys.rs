//! Groups over a join with a reference table: one shard looks for the keys of its rows, where all would scan it for the same few.
//!
//! ```text
//!   one shard:    EXPLAIN, now and then       does it scan the reference table for few rows?  no: as ever
//!   all shards:   BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT     their snapshots, taken together
//!   the first:    the keys                                          too many: without them
//!   all shards:   the statement, with the keys                      merged as ever
//!   all shards:   ROLLBACK
//! ```
//!
//! A reference table is written on all shards in one transaction, so that copies differ only while that is being committed: for
//! as long as the snapshots of a statement over several shards may differ anyway. Without them the keys could be older than what the
//! shards join them with by all the time that it takes to find them.
//!
//! Only outside of transactions, and where the session's own level is READ COMMITTED: a transaction has its snapshots already, or
//! is to have a new one for each statement. The transactions are not the session's; a connection on which one cannot be ended is
//! closed when it is given back.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

use super::ask;
use super::scatter::with_shard_named;
use crate::backend::{ConnectionError, Own, Reply, ShardText};
use crate::error::{PgError, SqlState};
use crate::execute::gather::read_to_end;
use crate::routing::Reach;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Combine, Merge};
use crate::sql::gather::ReferenceKeys;

/// What these shards run instead of this. With it they have transactions open, which [`end_snapshots`] ends.
pub(in crate::session) async fn with_reference_keys(
    session: &mut Session,
    fragment: &str,
    merge: &Merge,
    reach: &Reach,
) -> Result<Option<String>, Failure> {
    let shards = reach.shards();
    let has_groups = matches!(merge.combine, Some(Combine::Groups(_)));
    // On a connection that the session keeps, what comes between two statements is the client's.
    let keeps_any = session.transaction.participants().iter().any(|participant| participant.pinned_by.is_some());
    if !has_groups || keeps_any || session.transaction.is_open() || session.has_snapshot() {
        return Ok(None);
    }
    let known = hash(fragment);
    let verdict = session.gateway.keys_pay.get(&known);
    if verdict == Some(false) {
        return Ok(None);
    }
    let keys = ReferenceKeys::of(fragment, &session.context);
    let (Some(keys), Some(first), Some(last)) = (keys, shards.first().copied(), shards.last().copied()) else {
        session.gateway.keys_pay.insert(known, false);
        return Ok(None);
    };
    for shard in shards {
        ask::join_clean(session, *shard).await?;
    }
    if session.transaction.is_open() {
        // What a pipeline has written makes a transaction of it.
        return Ok(None);
    }
    if verdict.is_none() {
        let pays = pays(session, last, fragment, &keys).await?;
        session.gateway.keys_pay.insert(known, pays);
        if !pays {
            return Ok(None);
        }
    }
    let found = match take_snapshots(session, shards).await {
        true => {
            let context = std::sync::Arc::clone(&session.context);
            match ShardText::of(reach, keys.query.as_bytes(), &context) {
                Ok(text) => ask(session, first, &text).await,
                Err(refusal) => Err(refusal.into()),
            }
        }
        false => Ok(None),
    };
    match found {
        Ok(Some(rows)) => Ok(Some(match rows.into_iter().next() {
            Some(row) => keys.restricted(&first_text(row).unwrap_or_else(|| "{}".to_owned())),
            // Too many.
            None => fragment.to_owned(),
        })),
        // What a shard has against the keys it may not have against the statement.
        Ok(None) => {
            end_snapshots(session, shards).await;
            Ok(None)
        }
        Err(failure) => {
            end_snapshots(session, shards).await;
            Err(failure)
        }
    }
}

/// For EXPLAIN, which asks no shard whether it pays.
pub(in crate::session) fn told_of_reference_keys(session: &Session, fragment: &str, merge: &Merge) -> Option<String> {
    let has_groups = matches!(merge.combine, Some(Combine::Groups(_)));
    let keys = has_groups.then(|| ReferenceKeys::of(fragment, &session.context)).flatten()?;
    let ReferenceKeys { reference, query, .. } = &keys;
    Some(format!("Where each shard would scan \"{reference}\" for few rows, one looks for their keys first: {query}."))
}

/// Ends the transactions. The answer is there, or will not come: what goes wrong here costs the connection and nothing else.
pub(in crate::session) async fn end_snapshots(session: &mut Session, shards: &[ShardId]) {
    run_on_all(session, shards, ROLLBACK).await;
    if session.transaction.on_all(shards).any(|participant| participant.connection.status != b'I') {
        // A cancel request that came late has met it.
        run_on_all(session, shards, ROLLBACK).await;
    }
}

/// By the plan of one shard.
async fn pays(session: &mut Session, shard: ShardId, fragment: &str, keys: &ReferenceKeys) -> Result<bool, Failure> {
    let plan = ask(session, shard, &Own::Plan.text(&format!("EXPLAIN (FORMAT JSON) {fragment}"))).await?;
    let plan = plan.and_then(|rows| first_text(rows.into_iter().next()?));
    Ok(plan.is_some_and(|plan| keys.pays(&plan)))
}

/// Whether all have one.
async fn take_snapshots(session: &mut Session, shards: &[ShardId]) -> bool {
    run_on_all(session, shards, SNAPSHOT).await;
    session.transaction.on_all(shards).filter(|participant| participant.connection.status == b'T').count() == shards.len()
}

/// All are asked before the first is waited for. What they answer shows in their status.
async fn run_on_all(session: &mut Session, shards: &[ShardId], sql: &str) {
    for participant in session.transaction.on_all(shards) {
        let connection = &mut *participant.connection;
        connection.output.query(&Own::Transaction.text(sql));
        connection.unnamed = None;
        connection.expect(Reply::Query, false);
        connection.send().await;
    }
    for participant in session.transaction.on_all(shards) {
        if let Err(error) = read_to_end(&mut participant.connection).await {
            tracing::debug!(%error, sql, "a shard was lost");
        }
    }
}

/// The rows of a query of the proxy's own; `None`: the shard has refused it.
async fn ask(session: &mut Session, shard: ShardId, text: &ShardText<'_>) -> Result<Option<Vec<Vec<Option<Bytes>>>>, Failure> {
    let place = session.transaction.index_of(shard);
    let index = place.ok_or_else(|| PgError::internal("shard is gone"))?;
    let participant = session.transaction.participants_mut().get_mut(index).ok_or_else(|| PgError::internal("shard is gone"))?;
    session.cancel.started(&participant.connection);
    match participant.connection.simple(text).await {
        Ok(rows) => Ok(Some(rows)),
        Err(ConnectionError::Refused { sqlstate, body, .. }) if sqlstate.as_bytes() == SqlState::QUERY_CANCELED.0 => {
            let name = participant.connection.pool().address.name.clone();
            Err(Failure::Shard(with_shard_named(&crate::session::protocol::describe::error_frame(&body), &name)))
        }
        Err(ConnectionError::Refused { sqlstate, .. }) => {
            tracing::debug!(sqlstate, "no keys of a reference table");
            Ok(None)
        }
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn first_text(row: Vec<Option<Bytes>>) -> Option<String> {
    row.into_iter().next().flatten().map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Any query takes it. The other shards wait while the first one looks for keys.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout = 0; SELECT";
const ROLLBACK: &str = "ROLLBACK";
