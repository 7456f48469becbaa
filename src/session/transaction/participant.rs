//! A shard's connection that the session holds: from its first statement to the end of the transaction.

use std::sync::Arc;

use super::Transaction;
use super::sets::Sets;
use crate::backend::{Pooled, Settings};
use crate::error::PgError;
use crate::session::settings::setting::note_committed;
use crate::shardmap::{ShardId, ShardState};

pub(in crate::session) struct Participant {
    pub shard: ShardId,
    pub connection: Pooled,
    /// BEGIN has been sent, or is in the output before the statement.
    pub has_begun: bool,
    /// How many of the session's savepoints the shard knows.
    pub savepoints_known: usize,
    /// How many of the transaction's settings the shard has.
    pub settings_known: usize,
    pub has_written: bool,
    /// The shard takes no writes: what has run there, whatever it is, has written nothing.
    pub is_read_only: bool,
    /// LOCK TABLE has run there.
    pub has_locked: bool,
    /// Has begun for its snapshot, or to answer SHOW: no statement that counts has run there.
    pub is_spare: bool,
    /// Extended-protocol messages were sent since the last Sync: the shard may be skipping until one.
    pub needs_sync: bool,
    /// Kept until the session ends, and why: a temporary table, LISTEN, a session-level lock.
    pub pinned_by: Option<&'static str>,
    /// It is kept for something else too.
    pub has_other_pins: bool,
    /// A statement that unlocks session-level locks has run there.
    pub has_unlocked: bool,
    /// The shard's oids are not known yet: nothing but schema changes has run there.
    pub lacks_oids: bool,
}

impl Participant {
    pub fn new(shard: ShardId, connection: Pooled) -> Self {
        Self {
            shard,
            is_read_only: connection.pool().address.state == ShardState::ReadOnly,
            connection,
            has_begun: false,
            savepoints_known: 0,
            settings_known: 0,
            has_written: false,
            has_locked: false,
            is_spare: false,
            needs_sync: false,
            pinned_by: None,
            has_other_pins: false,
            has_unlocked: false,
            lacks_oids: false,
        }
    }

    /// The commit has to reach this shard with the others that were written.
    pub fn is_to_commit(&self) -> bool {
        self.has_written && !self.is_read_only
    }

    pub fn pin(&mut self, reason: &'static str) {
        self.has_other_pins |= self.pinned_by.map_or(self.connection.is_pinned, |first| first != reason);
        self.pinned_by.get_or_insert(reason);
        self.connection.is_pinned = true;
    }

    /// Nobody else gets the connection, whatever becomes of what it is kept for.
    pub fn pin_for_good(&mut self) {
        self.has_other_pins = true;
        self.connection.is_pinned = true;
    }

    /// The transaction reads there by this connection: another one would not see what it has written, or would wait for its locks.
    pub fn is_own(&self) -> bool {
        self.has_written || self.has_locked
    }

    /// Kept for nothing else, the connection is like any other again.
    pub fn unpin(&mut self, reason: &'static str) {
        if self.pinned_by == Some(reason) && !self.has_other_pins {
            self.pinned_by = None;
            self.connection.is_pinned = false;
        }
    }

    /// The transaction is over on this shard.
    pub fn forget_transaction(&mut self) {
        self.has_begun = false;
        self.savepoints_known = 0;
        self.settings_known = 0;
        self.has_written = false;
        self.has_locked = false;
        self.is_spare = false;
    }
}

/// Participants stand in the order in which they have come, unless they are sorted; the place of one changes when another one goes.
impl Transaction {
    pub fn participants(&self) -> &[Participant] {
        &self.participants
    }

    pub fn participants_mut(&mut self) -> &mut [Participant] {
        &mut self.participants
    }

    /// The one at this place, which is there.
    #[inline]
    pub fn at(&mut self, index: usize) -> Result<&mut Participant, PgError> {
        self.participants.get_mut(index).ok_or_else(|| PgError::internal("participant is gone"))
    }

    #[inline]
    pub fn index_of(&self, shard: ShardId) -> Option<usize> {
        self.participants.iter().position(|participant| participant.shard == shard)
    }

    pub fn on(&self, shard: ShardId) -> Option<&Participant> {
        self.participants.iter().find(|participant| participant.shard == shard)
    }

    pub fn on_mut(&mut self, shard: ShardId) -> Option<&mut Participant> {
        self.participants.iter_mut().find(|participant| participant.shard == shard)
    }

    /// Those of these shards.
    pub fn on_all<'a>(&'a mut self, shards: &'a [ShardId]) -> impl Iterator<Item = &'a mut Participant> {
        self.participants.iter_mut().filter(|participant| shards.contains(&participant.shard))
    }

    #[inline]
    pub fn add_participant(&mut self, participant: Participant) {
        self.participants.push(participant);
    }

    /// The last one takes its place.
    #[inline]
    pub fn remove_participant(&mut self, index: usize) -> Participant {
        self.participants.swap_remove(index)
    }

    /// The one at this place, and what the transaction has set.
    pub fn with_sets(&mut self, index: usize) -> Option<(&mut Participant, &Sets)> {
        Some((self.participants.get_mut(index)?, &self.sets))
    }

    /// It is over on every shard. `settings`: the session's, which it has left there.
    pub fn note_committed(&mut self, settings: &Arc<Settings>) {
        for participant in &mut self.participants {
            if participant.has_begun {
                note_committed(participant, &self.sets, settings);
            }
            participant.forget_transaction();
        }
    }

    /// What is held of the shards, and of the map. Connections that are not clean are closed, which undoes what they were doing.
    pub fn let_go(&mut self) {
        self.participants.clear();
        self.pinned_map.unpin();
    }
}

/// Why a connection is kept: notifications come on it.
pub(in crate::session) const LISTEN: &str = "LISTEN";
