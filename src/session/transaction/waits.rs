//! The transaction's side of deadlocks over several shards: what it holds is listed while it may wait, and a statement that gives way
//! fails as PostgreSQL's own would.
//!
//! Only a transaction that has joined a second shard, or waits for a connection to one, is listed ([`crate::execute::deadlock`]).

use std::sync::Arc;

use super::Transaction;
use super::participant::Participant;
use crate::backend::Pool;
use crate::error::{PgError, SqlState};
use crate::execute::deadlock::{Listed, Waits};
use crate::session::gateway::MAP_DATABASE;

/// As the search sees it.
pub(in crate::session) struct Waiting {
    waits: Arc<Waits>,
    /// The session's number there.
    session: i32,
    /// While it has several shards, or waits for a connection to a second one.
    listed: Option<Listed>,
}

impl Waiting {
    pub fn new(waits: Arc<Waits>, session: i32) -> Self {
        Self { waits, session, listed: None }
    }

    fn list(&mut self) -> &Listed {
        self.listed.get_or_insert_with(|| self.waits.list(self.session))
    }

    fn is_victim(&self) -> bool {
        self.listed.as_ref().is_some_and(Listed::is_victim)
    }
}

impl Transaction {
    /// After a shard has joined a transaction that others take part in.
    pub fn note_held(&mut self) {
        self.hold_those(|_| true);
    }

    /// Before spares are given back: it holds what is left, and with one shard alone it is not listed.
    pub fn note_kept(&mut self) {
        if self.waiting.listed.is_some() && !self.hold_those(|participant| !participant.is_spare) {
            self.waiting.listed = None;
        }
    }

    /// `false`: these are not two.
    fn hold_those(&mut self, is_kept: impl Fn(&Participant) -> bool) -> bool {
        let held = || self.participants.iter().filter(|participant| participant.shard != MAP_DATABASE && is_kept(participant));
        if held().count() < 2 {
            return false;
        }
        let backends = held().map(|participant| (participant.shard, participant.connection.process_id())).collect();
        let pools = held().map(|participant| pool_id(participant.connection.pool())).collect();
        let listed = self.waiting.list();
        listed.hold(backends, pools);
        true
    }

    /// It holds a shard and begins to wait for a connection to another.
    pub fn note_pool_wait(&mut self, pool: &Arc<Pool>) {
        if self.participants.is_empty() {
            return;
        }
        let listed = self.waiting.list();
        let held = self.participants.iter().map(|participant| (participant.shard, participant.connection.process_id()));
        listed.hold(held.collect(), self.participants.iter().map(|participant| pool_id(participant.connection.pool())).collect());
        listed.wait_for_pool(Some(pool_id(pool)), pool.describe().active);
    }

    pub fn end_pool_wait(&mut self) {
        if let Some(listed) = &self.waiting.listed {
            listed.wait_for_pool(None, 0);
        }
    }

    /// The statement has waited for a lock in vain, and will wait again.
    pub fn note_pause(&self) {
        if let Some(listed) = &self.waiting.listed {
            listed.pause();
        }
    }

    pub fn end_pause(&self) {
        if let Some(listed) = &self.waiting.listed {
            listed.resume();
        }
    }

    /// A message comes.
    #[inline]
    pub fn note_statement(&self) {
        if let Some(listed) = &self.waiting.listed {
            listed.begin_statement();
        }
    }

    /// The cycle is over. `true`: it has given way, and lets go of its locks on all shards at once, as a transaction of PostgreSQL does;
    /// with savepoints it may go on.
    pub fn end_statement(&self) -> bool {
        let Some(listed) = &self.waiting.listed else { return false };
        let gives_way = listed.is_victim() && self.has_failed_for_good();
        listed.end_statement();
        gives_way
    }

    /// It is over.
    pub fn end_waiting(&mut self) {
        self.waiting.listed = None;
    }

    pub fn is_listed(&self) -> bool {
        self.waiting.listed.is_some()
    }

    /// What the statement is told that was cancelled to break a deadlock; `sqlstate`: of its error.
    pub fn deadlock_of(&self, sqlstate: &[u8]) -> Option<PgError> {
        (self.waiting.is_victim() && sqlstate == SqlState::QUERY_CANCELED.0).then(deadlock)
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
