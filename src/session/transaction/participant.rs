//! A shard's connection that the session holds: from its first statement to the end of the transaction.

use crate::backend::Pooled;
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
            lacks_oids: false,
        }
    }

    /// The commit has to reach this shard with the others that were written.
    pub fn is_to_commit(&self) -> bool {
        self.has_written && !self.is_read_only
    }

    pub fn pin(&mut self, reason: &'static str) {
        let first = *self.pinned_by.get_or_insert(reason);
        self.has_other_pins |= first != reason;
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

/// Why a connection is kept: notifications come on it.
pub(in crate::session) const LISTEN: &str = "LISTEN";
