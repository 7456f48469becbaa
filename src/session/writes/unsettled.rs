//! Copies of a reference table that have given different answers to one write.
//!
//! A commit over several shards reaches them one after the other. A write to all copies that comes in between finds its rows here
//! and not there, and counts differ though the copies do not. So they are compared at a moment when no commit is half done:
//!
//! ```text
//!   counts differ ─┬─ the statement is all of its transaction: it runs again, under a lock of the tables on every shard
//!                  └─ no commit is half done: one snapshot of each shard ─┬─ the copies differ: 55000, for somebody to look at
//!                                                                         └─ they are alike: 40001
//! ```
//! Writes that may find several rows have locked the table before ([`crate::sql::copies_locked`]): here are those of one row. A lock
//! before each write would keep others out who write other rows.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::write;
use super::write::{Request, Shown, Writing, WritingKind, copies_differ};
use crate::backend::Own;
use crate::catalog::Relation;
use crate::error::{PgError, SqlState};
use crate::session::commands::command;
use crate::session::copy::copy_rows;
use crate::session::sequences::restarts;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Command, TransactionModes};
use crate::sql::copies_locked::CopiesLock;
use crate::sql::copies_named;

/// Two shards' tags of one write.
pub(in crate::session) struct Difference {
    pub home: String,
    pub other: String,
    pub shard: ShardId,
}

/// Keeps other writers out of reference tables, of those that the user may lock, to the end of the transaction: on each shard
/// until it is committed there, also when it is prepared. One shard after the other, home first, as copies are written: whoever
/// else locks them, or writes them, waits on the first.
pub(in crate::session) async fn lock_copies(session: &mut Session, lock: &CopiesLock, shards: &[ShardId]) -> Result<(), Failure> {
    let Some(home) = shards.first() else { return Ok(()) };
    let index = session.join(*home).await?;
    session.sync(index).await?;
    let rows = copy_rows::run_on_participant(session, index, &Own::Catalog.text(&lock.rights())).await?;
    let place = |row: &Vec<Option<Bytes>>| std::str::from_utf8(row.first()?.as_deref()?).ok()?.parse().ok();
    let is_lockable = |row: &&Vec<Option<Bytes>>| matches!(row.get(1), Some(Some(told)) if **told == *b"t");
    let (lockable, of_columns): (Vec<_>, Vec<_>) = rows.iter().partition(is_lockable);
    of_columns.into_iter().filter_map(place).try_for_each(|place| lock.check_columns(place))?;
    let places: Vec<usize> = lockable.into_iter().filter_map(place).collect();
    let Some(text) = lock.statement(&places) else { return Ok(()) };
    for shard in shards {
        write::read_on(session, &session.several([*shard])?, &Request::Query(&text), Shown::Nothing).await?;
        if let Some(participant) = session.transaction.on_mut(*shard) {
            participant.has_locked = true;
        }
    }
    Ok(())
}

/// As [`restarts::write_restarting`]. `is_alone`: the statement is all of its transaction, and may be run again in another one.
pub(in crate::session) async fn write_settled(
    session: &mut Session,
    command: &Command,
    writing: &Writing,
    request: &Request<'_>,
    shown: Shown,
    is_alone: bool,
) -> Result<String, Failure> {
    if !is_alone {
        return restarts::write_restarting(session, command, writing, request, shown).await;
    }
    let before = (session.client.output.len(), session.client.flushes);
    session.transaction.begun_for = Some(before);
    let written = restarts::write_restarting(session, command, writing, request, shown).await;
    if !(is_unsettled(&written) && may_begin_anew(session)) {
        return written;
    }
    Box::pin(begin_anew(session, before.0)).await?;
    let Some(lock) = copies_named::lock(request.text(), &session.context) else {
        return restarts::write_restarting(session, command, writing, request, shown).await;
    };
    let locked = Writing { reach: writing.reach.clone(), kind: WritingKind::LockedCopies(lock) };
    restarts::write_restarting(session, command, &locked, request, shown).await
}

/// Nothing of the answer has left.
fn may_begin_anew(session: &Session) -> bool {
    let is_unheard = |(before, flushes)| flushes == session.client.flushes && before <= session.client.output.len();
    session.transaction.begun_for.is_some_and(is_unheard)
}

/// Nothing but the statement that runs has been done in the transaction. What the client has bound stays.
async fn begin_anew(session: &mut Session, before: usize) -> Result<(), Failure> {
    session.client.output.truncate(before);
    let portals = std::mem::take(&mut session.portals);
    command::rollback_everywhere(session).await?;
    session.portals = portals;
    match session.batch.is_implicit {
        true => session.begin_for_pipeline(),
        false => session.transaction.begin(TransactionModes::default(), &session.settings),
    }
    Ok(())
}

/// What becomes of a write to which the copies have given different answers.
pub(in crate::session) async fn differing(session: &mut Session, difference: Difference, text: &str) -> Failure {
    let shard = match session.gateway.shard(difference.shard) {
        Ok(shard) => shard.name.clone(),
        Err(error) => return error.into(),
    };
    if may_begin_anew(session) {
        return unsettled(&difference, &shard).into();
    }
    match are_copies_alike(session, text).await {
        Ok(false) => copies_differ(&difference.home, &difference.other, &shard).into(),
        Ok(true) => unsettled(&difference, &shard).into(),
        Err(Failure::Error(error)) if error.code != SqlState::QUERY_CANCELED => {
            tracing::debug!(%error, "copies of a reference table could not be compared");
            unsettled(&difference, &shard).into()
        }
        Err(failure) => failure,
    }
}

async fn are_copies_alike(session: &mut Session, text: &str) -> Result<bool, Failure> {
    let tables: Vec<Relation> = copies_named::tables(text, &session.context).into_iter().cloned().collect();
    let shards = session.online_shards();
    let control = Arc::clone(&session.gateway.control);
    let mut copies = control.open_copies(&shards).await?;
    let deadline = Instant::now() + session.gateway.config.cross_shard.commit_timeout();
    let closed = session.close_barrier(&shards, deadline).await?;
    let taken = copies.take_snapshots().await;
    let opened = closed.open().await;
    taken?;
    match opened {
        Ok(()) => Ok(copies.are_alike(&tables).await?),
        Err(error) => Err(PgError::internal(format!("the snapshots do not count: {error}")).into()),
    }
}

fn is_unsettled(written: &Result<String, Failure>) -> bool {
    matches!(written, Err(Failure::Error(error)) if error.code == SqlState::SERIALIZATION_FAILURE && error.message == UNSETTLED)
}

fn unsettled(difference: &Difference, shard: &str) -> PgError {
    let Difference { home, other, .. } = difference;
    PgError::new(SqlState::SERIALIZATION_FAILURE, UNSETTLED)
        .with_detail(format!(
            "Another transaction was being committed on the shards meanwhile: the home shard answered {home}, shard \"{shard}\" {other}."
        ))
        .with_hint("Retry the transaction.")
}

const UNSETTLED: &str = "could not serialize access to the copies of a reference table";
