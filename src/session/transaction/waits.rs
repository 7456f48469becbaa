//! The session's side of deadlocks over several shards: what it holds is listed while it may wait, and a statement that gives way
//! fails as PostgreSQL's own would.
//!
//! Only a transaction that has joined a second shard, or waits for a connection to one, is listed ([`crate::execute::deadlock`]).

use std::sync::Arc;

use bytes::Bytes;

use super::Status;
use super::participant::Participant;
use crate::backend::Pool;
use crate::error::{PgError, SqlState};
use crate::session::gateway::MAP_DATABASE;
use crate::session::{Failure, Session, SessionEnd};
use crate::wire::originate;

impl Session {
    /// After a shard has joined a transaction that others take part in.
    pub(in crate::session) fn note_held(&mut self) {
        self.hold_those(|_| true);
    }

    /// Before spares are given back: it holds what is left, and with one shard alone it is not listed.
    pub(in crate::session) fn note_kept(&mut self) {
        if self.transaction.wait.is_some() && !self.hold_those(|participant| !participant.is_spare) {
            self.transaction.wait = None;
        }
    }

    /// `false`: these are not two.
    fn hold_those(&mut self, is_kept: impl Fn(&Participant) -> bool) -> bool {
        let held =
            || self.transaction.participants.iter().filter(|participant| participant.shard != MAP_DATABASE && is_kept(participant));
        if held().count() < 2 {
            return false;
        }
        let backends = held().map(|participant| (participant.shard, participant.connection.process_id())).collect();
        let pools = held().map(|participant| pool_id(participant.connection.pool())).collect();
        let listed = self.transaction.wait.get_or_insert_with(|| self.gateway.waits.list(self.login.cancel_key.0));
        listed.hold(backends, pools);
        true
    }

    /// It holds a shard and begins to wait for a connection to another.
    pub(in crate::session) fn note_pool_wait(&mut self, pool: &Arc<Pool>) {
        if self.transaction.participants.is_empty() {
            return;
        }
        let listed = self.transaction.wait.get_or_insert_with(|| self.gateway.waits.list(self.login.cancel_key.0));
        let held = self.transaction.participants.iter().map(|participant| (participant.shard, participant.connection.process_id()));
        listed.hold(
            held.collect(),
            self.transaction.participants.iter().map(|participant| pool_id(participant.connection.pool())).collect(),
        );
        listed.wait_for_pool(Some(pool_id(pool)), pool.describe().active);
    }

    pub(in crate::session) fn end_pool_wait(&mut self) {
        if let Some(listed) = &self.transaction.wait {
            listed.wait_for_pool(None, 0);
        }
    }

    /// The statement has waited for a lock in vain, and will wait again.
    pub(in crate::session) fn note_pause(&self) {
        if let Some(listed) = &self.transaction.wait {
            listed.pause();
        }
    }

    pub(in crate::session) fn end_pause(&self) {
        if let Some(listed) = &self.transaction.wait {
            listed.resume();
        }
    }

    /// A message comes.
    #[inline]
    pub(in crate::session) fn note_statement(&self) {
        if let Some(listed) = &self.transaction.wait {
            listed.begin_statement();
        }
    }

    /// The cycle is over. A transaction that has given way lets go of its locks on all shards at once, as one of PostgreSQL does;
    /// with savepoints it may go on.
    pub(in crate::session) async fn end_wait(&mut self) -> Result<(), SessionEnd> {
        let Some(listed) = &self.transaction.wait else { return Ok(()) };
        let gives_way = listed.is_victim() && self.transaction.status == Status::Failed && self.transaction.savepoints.is_empty();
        listed.end_statement();
        if gives_way {
            self.abort_participants().await?;
        }
        if !self.transaction.is_open() {
            self.transaction.wait = None;
        }
        Ok(())
    }

    /// Rolls back on every shard; the session's transaction stays failed until the client ends it.
    async fn abort_participants(&mut self) -> Result<(), SessionEnd> {
        let begun: Vec<_> = self.transaction.participants.iter().filter(|held| held.has_begun).map(|held| held.shard).collect();
        for shard in begun {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            match self.finish_on(index, "ROLLBACK").await {
                Ok(()) | Err(Failure::Forwarded) => {}
                Err(Failure::End(end)) => return Err(end),
                Err(failure) => tracing::warn!(?failure, "rollback not confirmed, connection closed"),
            }
            if let Some(participant) = self.transaction.on_mut(shard) {
                participant.forget_transaction();
            }
        }
        Ok(())
    }

    /// The error of a statement that was cancelled to break a deadlock says so.
    pub(in crate::session) fn with_deadlock(&self, frame: Bytes) -> Bytes {
        let is_victim = self.transaction.wait.as_ref().is_some_and(|listed| listed.is_victim());
        if !is_victim || crate::session::failure::sqlstate(&frame) != SqlState::QUERY_CANCELED.0 {
            return frame;
        }
        let mut out = bytes::BytesMut::new();
        originate::error(&mut out, &deadlock());
        out.freeze()
    }

    pub(in crate::session) fn or_deadlock(&self, error: PgError) -> PgError {
        let is_victim = self.transaction.wait.as_ref().is_some_and(|listed| listed.is_victim());
        if is_victim && error.code == SqlState::QUERY_CANCELED { deadlock() } else { error }
    }
}

fn pool_id(pool: &Arc<Pool>) -> usize {
    Arc::as_ptr(pool).addr()
}

fn deadlock() -> PgError {
    PgError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
        .with_detail("Transactions over several shards wait for each other; this one was the last of them to take a second shard.")
        .with_hint("Repeat the transaction. Lock rows of several shards in the same order everywhere.")
}
