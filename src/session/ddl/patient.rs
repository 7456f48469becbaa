//! Schema changes that wait for their locks without holding up those who come after.
//!
//! A change that waits for a lock makes every later statement on the table wait behind it. So it waits for a moment only, inside
//! a savepoint of its own, lets the others pass, and tries again, until its patience is over; and it has its locks on all shards
//! before it begins on one. A session that has a lock_timeout of its own gets exactly that.

use std::sync::Arc;
use std::time::Duration;

use super::{every_shard, redefined};
use crate::backend::{Own, Stored};
use crate::session::commands::command;
use crate::session::transaction::replay::hidden_statement;
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::ddl::ddl_locks::TableLocks;
use crate::wire::{self, FrameHeader, shard_tag};

/// One shard's part of a schema change, in the open transaction. `is_told`: its answer is the client's.
pub(in crate::session) async fn run_patiently(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &str,
    is_told: bool,
) -> Result<(), Failure> {
    together(session, std::slice::from_ref(shard), text, is_told).await
}

/// The table's lock on every shard, before anything is done with it: who waits on one shard holds up nobody on another, who may
/// be the one that is waited for.
pub(in crate::session) async fn lock_patiently(session: &mut Session, shards: &[Arc<Shard>], table: &str) -> Result<(), Failure> {
    together(session, shards, &format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"), false).await
}

/// The locks that a schema change will take, on every shard before it begins on one. Where they cannot be had for another
/// reason than that others have them, the change itself says what is wrong.
pub(in crate::session) async fn lock_ahead(
    session: &mut Session,
    shards: &[Arc<Shard>],
    locks: &TableLocks,
) -> Result<(), Failure> {
    if has_own_lock_timeout(session) {
        return Ok(());
    }
    let (before, flushes) = (session.client.output.len(), session.client.flushes);
    match until_had(session, shards, &locks.statement(), false).await {
        Err((Failure::Forwarded, tried)) if flushes == session.client.flushes && !has_timed_out_since(session, before) => {
            go_back(session, shards.get(..tried).unwrap_or_default(), before).await
        }
        Err((failure, _)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

fn has_own_lock_timeout(session: &Session) -> bool {
    session.effective("lock_timeout").is_some_and(|timeout| !matches!(timeout, "0" | "0ms" | "0s"))
}

/// One after the other; the locks of all of them, or for a moment of none.
async fn together(session: &mut Session, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), Failure> {
    if has_own_lock_timeout(session) {
        for shard in shards {
            every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(text), is_visible).await?;
        }
        return Ok(());
    }
    until_had(session, shards, text, is_visible).await.map_err(|(failure, _)| failure)
}

/// An error says how many shards have a savepoint.
async fn until_had(session: &mut Session, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
    let had = in_pieces(session, shards, text, is_visible).await;
    session.transaction.end_pause();
    had
}

async fn in_pieces(session: &mut Session, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
    let patience = redefined::patience(session);
    for attempt in 1..=ATTEMPTS {
        let (before, flushes) = (session.client.output.len(), session.client.flushes);
        session.transaction.end_pause();
        let Err((failure, tried)) = try_together(session, shards, text, is_visible).await else {
            return keep_together(session, shards).await.map_err(|failure| (failure, 0));
        };
        let may_repeat = attempt < ATTEMPTS && flushes == session.client.flushes && matches!(failure, Failure::Forwarded);
        if !may_repeat || !has_timed_out_since(session, before) {
            return Err((failure, tried));
        }
        session.transaction.note_pause();
        go_back(session, shards.get(..tried).unwrap_or_default(), before).await.map_err(|failure| (failure, 0))?;
        tracing::debug!(attempt, "a schema change lets others pass");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            failure = patience.ends(&session.cancel) => return Err((failure.into(), 0)),
        }
    }
    Ok(())
}

/// The client has not heard of it: `before` is where its output was.
async fn go_back(session: &mut Session, shards: &[Arc<Shard>], before: usize) -> Result<(), Failure> {
    session.client.output.truncate(before);
    for shard in shards {
        if let Some(index) = session.transaction.index_of(shard.id) {
            command::finish_on(session, index, BACK).await?;
        }
    }
    Ok(())
}

fn has_timed_out_since(session: &Session, before: usize) -> bool {
    is_lock_timeout(session.client.output.get(before..).unwrap_or_default())
}

/// An error says how many shards have a savepoint.
async fn try_together(session: &mut Session, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
    for (place, shard) in shards.iter().enumerate() {
        let joined = if is_visible { session.join(shard.id).await } else { session.join_for_change(shard.id).await };
        let index = joined.map_err(|failure| (failure, place))?;
        if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
            BEFORE.iter().for_each(|sql| hidden_statement(participant, &Own::Transaction.text(sql)));
        }
        every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(text), is_visible)
            .await
            .map_err(|failure| (failure, place + 1))?;
    }
    Ok(())
}

async fn keep_together(session: &mut Session, shards: &[Arc<Shard>]) -> Result<(), Failure> {
    for shard in shards {
        let Some(index) = session.transaction.index_of(shard.id) else { continue };
        if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
            AFTER.iter().for_each(|sql| hidden_statement(participant, &Own::Transaction.text(sql)));
        }
        session.sync(index).await?;
    }
    Ok(())
}

/// Is the last message the error of a lock that was not had in time?
fn is_lock_timeout(mut frames: &[u8]) -> bool {
    let mut found = false;
    while let Some(header) = FrameHeader::peek(frames, usize::MAX - 8).ok().flatten() {
        let Some((frame, rest)) = frames.split_at_checked(header.total) else { return false };
        if header.tag == shard_tag::ERROR {
            let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
            found = wire::error_fields(body).is_ok_and(|fields| fields.get(b'C') == Some(b"55P03"));
        }
        frames = rest;
    }
    found
}

const BEFORE: [&str; 3] = [
    "SAVEPOINT shardgate_ddl",
    "SELECT pg_catalog.set_config('shardgate.lock_timeout_before', pg_catalog.current_setting('lock_timeout'), true)",
    "SET LOCAL lock_timeout = '500ms'",
];
const AFTER: [&str; 2] = [
    "RELEASE SAVEPOINT shardgate_ddl",
    // A function may have done RESET ALL since.
    "SELECT pg_catalog.set_config('lock_timeout', CASE \
     WHEN pg_catalog.current_setting('shardgate.lock_timeout_before') OPERATOR(pg_catalog.=) '' \
     THEN pg_catalog.current_setting('lock_timeout') \
     ELSE pg_catalog.current_setting('shardgate.lock_timeout_before') END, true)",
];
const BACK: &str = "ROLLBACK TO SAVEPOINT shardgate_ddl";
/// With the pauses, some fifteen seconds on each shard.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{PgError, SqlState};
    use crate::wire::originate;
    use bytes::BytesMut;

    #[test]
    fn only_a_lock_that_was_not_had_is_waited_for_again() {
        let mut out = BytesMut::new();
        originate::command_complete(&mut out, "SET");
        assert!(!is_lock_timeout(&out));
        originate::error(&mut out, &PgError::new(SqlState(*b"55P03"), "canceling statement due to lock timeout"));
        assert!(is_lock_timeout(&out));
        originate::error(&mut out, &PgError::new(SqlState::UNDEFINED_TABLE, "no"));
        assert!(!is_lock_timeout(&out));
        assert!(!is_lock_timeout(b"E\0\0"));
    }
}
