//! Schema changes that wait for their locks without holding up those who come after.
//!
//! A change that waits for a lock makes every later statement on the table wait behind it. So it waits for a moment only, inside
//! a savepoint of its own, lets the others pass, and tries again, until its patience is over; and it has its locks on all shards
//! before it begins on one. A session that has a lock_timeout of its own gets exactly that.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Own, Stored};
use crate::session::transaction::replay::hidden_statement;
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::ddl::ddl_locks::TableLocks;
use crate::wire::{self, FrameHeader, shard_tag};

impl Session {
    /// One shard's part of a schema change, in the open transaction. `is_told`: its answer is the client's.
    pub(in crate::session) async fn run_patiently(&mut self, shard: &Arc<Shard>, text: &str, is_told: bool) -> Result<(), Failure> {
        self.together(std::slice::from_ref(shard), text, is_told).await
    }

    /// The table's lock on every shard, before anything is done with it: who waits on one shard holds up nobody on another, who may
    /// be the one that is waited for.
    pub(in crate::session) async fn lock_patiently(&mut self, shards: &[Arc<Shard>], table: &str) -> Result<(), Failure> {
        self.together(shards, &format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"), false).await
    }

    /// The locks that a schema change will take, on every shard before it begins on one. Where they cannot be had for another
    /// reason than that others have them, the change itself says what is wrong.
    pub(in crate::session) async fn lock_ahead(&mut self, shards: &[Arc<Shard>], locks: &TableLocks) -> Result<(), Failure> {
        if self.has_own_lock_timeout() {
            return Ok(());
        }
        let (before, flushes) = (self.client.output.len(), self.client.flushes);
        match self.until_had(shards, &locks.statement(), false).await {
            Err((Failure::Forwarded, tried)) if flushes == self.client.flushes && !self.has_timed_out_since(before) => {
                self.go_back(shards.get(..tried).unwrap_or_default(), before).await
            }
            Err((failure, _)) => Err(failure),
            Ok(()) => Ok(()),
        }
    }

    fn has_own_lock_timeout(&self) -> bool {
        self.effective("lock_timeout").is_some_and(|timeout| !matches!(timeout, "0" | "0ms" | "0s"))
    }

    /// One after the other; the locks of all of them, or for a moment of none.
    async fn together(&mut self, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), Failure> {
        if self.has_own_lock_timeout() {
            for shard in shards {
                self.run_on_one(shard, &Stored::SchemaChange.text(text), is_visible).await?;
            }
            return Ok(());
        }
        self.until_had(shards, text, is_visible).await.map_err(|(failure, _)| failure)
    }

    /// An error says how many shards have a savepoint.
    async fn until_had(&mut self, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
        let had = self.in_pieces(shards, text, is_visible).await;
        self.transaction.end_pause();
        had
    }

    async fn in_pieces(&mut self, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
        let patience = self.patience();
        for attempt in 1..=ATTEMPTS {
            let (before, flushes) = (self.client.output.len(), self.client.flushes);
            self.transaction.end_pause();
            let Err((failure, tried)) = self.try_together(shards, text, is_visible).await else {
                return self.keep_together(shards).await.map_err(|failure| (failure, 0));
            };
            let may_repeat = attempt < ATTEMPTS && flushes == self.client.flushes && matches!(failure, Failure::Forwarded);
            if !may_repeat || !self.has_timed_out_since(before) {
                return Err((failure, tried));
            }
            self.transaction.note_pause();
            self.go_back(shards.get(..tried).unwrap_or_default(), before).await.map_err(|failure| (failure, 0))?;
            tracing::debug!(attempt, "a schema change lets others pass");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                failure = patience.ends(&self.cancel) => return Err((failure, 0)),
            }
        }
        Ok(())
    }

    /// The client has not heard of it: `before` is where its output was.
    async fn go_back(&mut self, shards: &[Arc<Shard>], before: usize) -> Result<(), Failure> {
        self.client.output.truncate(before);
        for shard in shards {
            if let Some(index) = self.transaction.index_of(shard.id) {
                self.finish_on(index, BACK).await?;
            }
        }
        Ok(())
    }

    fn has_timed_out_since(&self, before: usize) -> bool {
        is_lock_timeout(self.client.output.get(before..).unwrap_or_default())
    }

    /// An error says how many shards have a savepoint.
    async fn try_together(&mut self, shards: &[Arc<Shard>], text: &str, is_visible: bool) -> Result<(), (Failure, usize)> {
        for (place, shard) in shards.iter().enumerate() {
            let joined = if is_visible { self.join(shard.id).await } else { self.join_for_change(shard.id).await };
            let index = joined.map_err(|failure| (failure, place))?;
            if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
                BEFORE.iter().for_each(|sql| hidden_statement(participant, &Own::Transaction.text(sql)));
            }
            self.run_on_one(shard, &Stored::SchemaChange.text(text), is_visible).await.map_err(|failure| (failure, place + 1))?;
        }
        Ok(())
    }

    async fn keep_together(&mut self, shards: &[Arc<Shard>]) -> Result<(), Failure> {
        for shard in shards {
            let Some(index) = self.transaction.index_of(shard.id) else { continue };
            if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
                AFTER.iter().for_each(|sql| hidden_statement(participant, &Own::Transaction.text(sql)));
            }
            self.sync(index).await?;
        }
        Ok(())
    }
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
