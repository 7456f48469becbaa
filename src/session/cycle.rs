//! What the client waits for, from its first message to ReadyForQuery, and the way back when a partition has moved meanwhile.
//!
//! A statement that is planned by a map from before a move may reach a shard after it. The shard's gate refuses it then, or the
//! session sees by itself that an owner has changed. Where the statement is all of its transaction, nothing was applied; and where
//! nothing of its answer has left, the client's messages are put back and handled again, by a newer map. Everybody else gets the
//! `40001`. A statement that has waited for a move, and was read by another schema than there is then, is read and planned once more
//! wherever it stands in its transaction: nothing of it was sent.
//!
//! ```text
//!   messages ─► planned ─► refused because of a move ─┬─ alone, unheard ─► wait for another map ─► the messages once more
//!                                                     └─ otherwise ──────► 40001
//!                                                                  (after a deadlock: for a moment)
//! ```
//! A change of a key to which copies refer that replication writes just now is tried again a moment later, whatever the map. So is a
//! statement over several shards that has given way in a deadlock: it takes its shards at once, and has no order of its own to keep.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::ddl::every_shard::keep_frames;
use super::failure::{RefusedByMove, refused_by_move};
use super::resolve::HOLD_WAIT;
use super::{Failure, Session, SessionEnd};
use crate::routing::{self, MapSource};
use crate::session::ddl::redefined;
use crate::shardmap::Epoch;
use crate::sql::analysis::Command;
use crate::wire::shard_tag;

#[derive(Default)]
pub(super) struct Cycle {
    /// Its messages, as long as they may be handled again.
    messages: Vec<Bytes>,
    bytes: usize,
    /// Statements that were to be run.
    statements: usize,
    /// Names that were given to statements.
    names: Vec<Bytes>,
    /// How much the client had to be told before, and how often that had been sent.
    before: (usize, u64),
    /// It does what cannot be done again: it is not one query by itself, or is too long to be kept.
    is_for_good: bool,
    /// What its error, the last one, is of.
    met: Option<Met>,
    /// Nothing of the statement that fails next was sent, and it was read by a schema from before.
    is_unsent: bool,
    /// How often its messages have been put back, or its statement planned again.
    repeats: usize,
}

/// What a statement has met that may be gone when it is run again.
#[derive(Clone, Copy)]
pub(super) enum Met {
    /// A shard's gate, where the map of this version has led to.
    Gate(Option<Epoch>),
    /// A shard, whose replication was at work on rows that refer to a changed key.
    Replication,
    /// The session itself, by a newer map than it had begun with.
    Session,
    /// Others over several shards, which waited for it as it did for them.
    Deadlock,
}

impl Cycle {
    fn keep(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.is_for_good |= self.bytes > KEPT_BYTES_MAX;
        match self.is_for_good {
            true => self.messages.clear(),
            false => self.messages.push(message),
        }
    }

    /// A statement is to be run.
    #[inline]
    pub fn note_statement(&mut self, command: Option<&Command>) {
        self.statements += 1;
        // What else there is may commit in the middle, or count for the session.
        self.is_for_good |= !matches!(command, Some(Command::Query(_) | Command::Execute { .. }));
        self.is_for_good |= self.statements > 1;
    }

    pub fn note_name(&mut self, name: &Bytes) {
        if !name.is_empty() {
            self.names.push(name.clone());
        }
    }

    /// A statement is read.
    #[inline]
    pub fn begin_attempt(&mut self) {
        self.is_unsent = false;
    }

    pub fn note_unsent(&mut self) {
        self.is_unsent = true;
    }

    /// Is the statement to be planned again, as nothing of it was sent?
    #[inline]
    pub fn plans_again(&mut self, run: &Result<(), Failure>) -> bool {
        // What was found out about several statements at once may be forgotten by the error of the first of them, which was sent.
        let is_of_planning = matches!(run, Err(Failure::Error(error)) if *error == routing::sharding_has_changed());
        if !std::mem::take(&mut self.is_unsent) || !is_of_planning || self.repeats >= REPEATS_MAX {
            return false;
        }
        self.repeats += 1;
        self.statements = self.statements.saturating_sub(1);
        true
    }

    /// Of the error that comes last.
    pub fn note_met(&mut self, met: Option<Met>) {
        self.met = met;
    }

    /// Its messages have been put back, and come once more.
    pub fn is_repeated(&self) -> bool {
        self.repeats > 0
    }

    pub fn take_met(&mut self) -> Option<Met> {
        self.met.take()
    }
}

impl Session {
    /// An error is told.
    pub(super) fn note_failure(&mut self, failure: &Failure) {
        if !matches!(failure, Failure::Forwarded) {
            self.cycle.note_met(self.met_by(failure));
        }
    }

    fn met_by(&self, failure: &Failure) -> Option<Met> {
        match failure {
            Failure::Error(error) if routing::is_of_move(error) => Some(Met::Session),
            Failure::Shard(frame) => refused_by_move(frame).map(|refused| self.refused_by_move(refused)),
            Failure::Error(_) | Failure::Forwarded | Failure::End(_) => None,
        }
    }

    pub(super) fn refused_by_move(&self, refused: RefusedByMove) -> Met {
        self.gateway.counters.refused_by_gate();
        match refused {
            RefusedByMove::Row => Met::Gate(self.transaction.pinned_map.get().map(|map| map.epoch)),
            RefusedByMove::KeyOfCopies => Met::Replication,
        }
    }

    /// A message comes.
    pub(super) fn note_message(&mut self, message: &Bytes) {
        if !self.batch.is_open {
            let repeats = std::mem::take(&mut self.cycle.repeats);
            let before = (self.client.output.len(), self.client.flushes);
            self.cycle = Cycle { before, repeats, is_for_good: self.transaction.is_open(), ..Cycle::default() };
            if !self.transaction.is_open() {
                self.transaction.generation = self.gateway.map.load().generation();
            }
        }
        self.cycle.keep(message.clone());
    }

    /// The end of a cycle: unless it is handled again, the client hears that it may go on.
    pub(super) async fn end_cycle(&mut self, has_failed: bool) -> Result<(), SessionEnd> {
        if let Some(met) = self.cycle.take_met()
            && has_failed
            && Box::pin(self.repeat_cycle(met)).await?
        {
            return Ok(());
        }
        self.cycle = Cycle::default();
        self.ready().await
    }

    async fn repeat_cycle(&mut self, met: Met) -> Result<bool, SessionEnd> {
        let cycle = &self.cycle;
        let is_alone = !cycle.is_for_good && cycle.statements == 1 && !self.transaction.is_open();
        // Others may wait for what the session holds, an advisory lock for example: they would still do so.
        let holds_more = || self.transaction.participants().iter().any(|participant| participant.pinned_by.is_some());
        if matches!(met, Met::Deadlock) && holds_more() {
            return Ok(false);
        }
        if !is_alone || cycle.repeats >= REPEATS_MAX || !self.may_repeat(met, cycle.before).await? {
            return Ok(false);
        }
        self.cycle.repeats += 1;
        self.gateway.counters.repeated();
        for name in std::mem::take(&mut self.cycle.names) {
            self.statements.remove(&name);
        }
        let messages = std::mem::take(&mut self.cycle.messages);
        self.client.put_back(&messages);
        Ok(true)
    }

    /// The same for a cycle of the short way, whose messages have not been taken yet.
    pub(super) async fn may_repeat(&mut self, met: Met, (told, flushes): (usize, u64)) -> Result<bool, SessionEnd> {
        if flushes != self.client.flushes || told > self.client.output.len() {
            return Ok(false);
        }
        self.release_idle();
        self.transaction.pinned_map.unpin();
        self.transaction.claims.clear();
        // It is another statement from here on, which has not been chosen to give way.
        self.transaction.end_statement();
        self.transaction.end_waiting();
        self.transaction.decider = None;
        // Answers from before may be waited for.
        let refused = self.client.output.split_off(told);
        self.client.flush().await?;
        self.client.output.unsplit(refused);
        let may_repeat = match met {
            Met::Session | Met::Gate(None) => true,
            Met::Gate(Some(planned_by)) => self.has_waited(Some(planned_by), HOLD_WAIT).await?,
            Met::Replication | Met::Deadlock => self.has_waited(None, pause(self.cycle.repeats)).await?,
        };
        if may_repeat {
            tracing::debug!("a statement that met a move, or a deadlock, is run again");
            keep_frames(&mut self.client.output, 0, |tag, _| tag == shard_tag::PARAMETER_STATUS);
        }
        Ok(may_repeat)
    }

    /// For another map than this, or, without one, for that time. `false`: there is none in time, or the client waits no longer.
    async fn has_waited(&mut self, planned_by: Option<Epoch>, at_most: Duration) -> Result<bool, SessionEnd> {
        let deadline = Instant::now() + at_most;
        let (gateway, cancel, patience) = (Arc::clone(&self.gateway), Arc::clone(&self.cancel), redefined::patience(self));
        let another_map = async {
            match planned_by {
                Some(planned_by) => gateway.map.changed_since(planned_by).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = another_map => Ok(true),
            _ = patience.ends(&cancel) => Ok(false),
            () = sleep_until(deadline) => Ok(planned_by.is_none()),
        }
    }
}

/// Before the next attempt: replication, and others, go on as soon as the last one has ended.
fn pause(repeats: usize) -> Duration {
    PAUSE * (1 << repeats.min(REPEATS_MAX))
}

/// What a client sends for one statement is mostly far shorter.
const KEPT_BYTES_MAX: usize = 64 * 1024;
const REPEATS_MAX: usize = 5;
/// Doubled each time.
const PAUSE: Duration = Duration::from_millis(20);
