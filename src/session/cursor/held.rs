//! Cursors WITH HOLD over several shards: what is to outlive its transaction.
//!
//! Their rows are gathered, and the scratch session has the cursor, declared as the client declares it. When the client's
//! transaction commits, so does the scratch session's: PostgreSQL itself makes the rows that are left and keeps them, the
//! temporary tables that they come from go. The session keeps that connection until the cursor is closed. It is none of
//! the transaction's, so that what is prepared on a shard has never touched a temporary table.
//!
//! ```text
//!   DECLARE … WITH HOLD ─► AtCommit ── COMMIT, or the end of the pipeline ─► Held ── CLOSE, DISCARD ALL, the client's end
//!                             └─ ROLLBACK, also to a savepoint before it
//! ```

use std::sync::Arc;

use bytes::Bytes;

use super::super::{Failure, Session, lost};
use super::gathered::GatheredCursor;
use super::{Cursors, Source};
use crate::backend::{ConnectionError, Own};
use crate::error::PgError;
use crate::session::cursor;
use crate::session::protocol::describe::error_frame;
use crate::session::reads::gather::moved;
use crate::shardmap::ShardId;

/// A cursor that DECLARE has made on one shard.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct OnShard {
    pub shard: ShardId,
    pub life: Life,
    /// How many savepoints there were: ROLLBACK TO an earlier one closes it.
    pub savepoints: usize,
}

/// How long a cursor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Life {
    /// As long as its transaction.
    Transaction,
    /// WITH HOLD, and its transaction goes on.
    AtCommit,
    /// WITH HOLD, of a transaction that is committed.
    Held,
}

impl Life {
    /// Its transaction is committed.
    pub fn committed(self) -> Self {
        match self {
            Life::Transaction => Life::Transaction,
            Life::AtCommit | Life::Held => Life::Held,
        }
    }
}

impl Cursors {
    /// Each has a connection to the home shard, which the session keeps.
    pub fn held(&self) -> usize {
        self.by_name.values().filter(|cursor| cursor.life == Life::Held).count()
    }

    /// Some have a connection that is none of the transaction's.
    pub fn holds_any(&self) -> bool {
        self.by_name.values().any(|cursor| matches!(cursor.source, Source::Gathered(_)))
    }

    /// The transaction is committed, and with it what [`hold_cursors`] has done.
    pub fn committed(&mut self) {
        for cursor in self.by_name.values_mut() {
            cursor.life = cursor.life.committed();
            cursor.savepoints = 0;
        }
    }
}

/// Before anything is committed: PostgreSQL makes the rows of cursors that are to be held. An error fails the transaction.
pub(in crate::session) async fn hold_cursors(session: &mut Session) -> Result<(), Failure> {
    let is_due = |(name, cursor): (&Bytes, &super::Cursor)| (cursor.life == Life::AtCommit).then(|| name.clone());
    let names: Vec<Bytes> = session.open_cursors.by_name.iter().filter_map(is_due).collect();
    for name in names {
        let Some(mut cursor) = session.open_cursors.by_name.remove(&name) else { continue };
        let held = match &mut cursor.source {
            Source::Gathered(gathered) => Box::pin(hold(session, gathered)).await,
            // Failed: PostgreSQL does not look at it either.
            Source::Merged(_) | Source::Kept(_) | Source::Late(_) | Source::Failed => Ok(()),
        };
        session.open_cursors.by_name.insert(name, cursor);
        held?;
    }
    Ok(())
}

/// The scratch session commits.
pub(super) async fn hold(session: &mut Session, cursor: &mut GatheredCursor) -> Result<(), Failure> {
    // It has had temporary tables: no other client gets it.
    cursor.scratch.is_pinned = true;
    session.cancel.started(&cursor.scratch);
    let committed = cursor.scratch.simple(&Own::Transaction.text("COMMIT")).await;
    session.cancel.ended(&cursor.scratch);
    match committed {
        Ok(_) => Ok(()),
        Err(ConnectionError::Refused { body, .. }) => Err(Failure::Shard(moved(&error_frame(&body), |_| 0))),
        Err(error) => Err(lost(&cursor.scratch.pool().address.name, &error).into()),
    }
}

/// What ran in this pipeline without a transaction block is committed with it, unless it has failed.
pub(in crate::session) async fn end_cursors_of_pipeline(session: &mut Session, is_committed: bool) -> Result<(), Failure> {
    let held = if is_committed { hold_cursors(session).await } else { Ok(()) };
    if held.is_ok() && is_committed {
        session.open_cursors.committed();
    }
    cursor::forget_cursors(session).await;
    held
}

/// The shards' own cursors: which live on.
pub(in crate::session) fn forget_cursors_of_shards(session: &mut Session, is_committed: bool) {
    session.cursors.retain(|_, cursor| {
        if is_committed {
            cursor.life = cursor.life.committed();
        }
        cursor.life == Life::Held
    });
}

/// The client's settings, which may have changed since the cursor was made, decide how its rows are printed.
pub(super) async fn give_settings(session: &mut Session, cursor: &mut GatheredCursor) -> Result<(), Failure> {
    let wanted = session.settings_now();
    if cursor.settings == wanted {
        return Ok(());
    }
    let sql = cursor.settings.statements_to(&wanted).join(";");
    // Not on record: the end of the scratch transaction takes it back.
    wanted.iter().for_each(|(name, _)| cursor.scratch.custom_names.insert(name));
    match cursor.scratch.simple(&Own::Setting.text(&sql)).await {
        Ok(_) => {}
        Err(ConnectionError::Refused { body, .. }) => return Err(Failure::Shard(error_frame(&body))),
        Err(error) => return Err(lost(&cursor.scratch.pool().address.name, &error).into()),
    }
    cursor.settings = Arc::clone(&wanted);
    Ok(())
}

pub(super) fn not_held() -> PgError {
    PgError::unsupported(
        "this WITH HOLD cursor over several shards is not supported",
        "Its rows are kept beyond the transaction, for which they are brought together, and that is not supported for this query.",
        "Declare it without HOLD inside of a transaction, or restrict it to one shard key.",
    )
}

/// Why a connection is kept.
pub(in crate::session) const HELD_CURSOR: &str = "WITH HOLD cursor";
