//! What a lost connection says of the others, and of the shard.
//!
//! ```text
//!   a connection is lost ─► those opened before go, of this user at once, of the others' when the proxy looks
//!                        └► the shard is tried by the proxy itself: up, or down until an attempt succeeds
//! ```
//! So the log and the metrics tell of an outage when it happens, and a statement that comes after it finds neither a connection that has
//! ended nor a shard that is taken for away.

use std::sync::Arc;
use std::time::Instant;

use super::{Pool, Pools};
use crate::backend::{Connection, Health};
use crate::shardmap::ShardId;

impl Pool {
    /// A connection was opened, or a login refused: the shard is there.
    pub(super) fn connected(&self) {
        let mut state = self.state.lock();
        let was_up = state.health.is_up();
        state.health.connected();
        state.is_suspect = false;
        drop(state);
        if !was_up {
            tracing::info!(shard = %self.address.name, user = self.user(), "shard is reachable again");
        }
    }

    /// A connection of this shard broke: the others that were opened before are suspect too.
    pub fn suspect(&self) {
        self.suspect_since(Instant::now());
        self.disturbed.notify_one();
    }

    fn suspect_since(&self, lost_at: Instant) {
        let mut state = self.state.lock();
        state.is_suspect = true;
        state.not_before = state.not_before.max(lost_at);
        let not_before = state.not_before;
        let mut dropped = Vec::new();
        for idle in &mut state.idle {
            dropped.extend(idle.extract_if(.., |connection| connection.opened_at < not_before));
        }
        state.open -= dropped.len();
        drop(state);
        drop(dropped);
    }

    /// When a connection was lost, if the shard was not tried since.
    fn suspect_at(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.is_suspect.then_some(state.not_before)
    }

    /// Tries whether the shard can be reached, where a connection was lost or the last attempt has failed, within its back-off and
    /// where there is room for one more connection.
    pub async fn probe(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let is_due = state.is_suspect || !state.health.is_up();
            if !is_due || state.open >= self.limits.size || !state.health.may_connect(Instant::now()) {
                return;
            }
            state.open += 1;
            state.in_use += 1;
        }
        // The outcome is noted, and the connection is of another thread than those that serve clients.
        drop(self.try_open(0, Health::probe_failed).await);
    }

    /// Takes note of why a connection has ended. One line for all that are lost together.
    pub(super) fn note_loss(&self, connection: &Connection) {
        let Some(reason) = connection.loss() else { return };
        self.counters.lost();
        let is_news = connection.opened_at >= self.state.lock().not_before;
        match is_news {
            true => tracing::warn!(shard = %self.address.name, user = self.user(), reason, "connection to shard lost"),
            false => tracing::debug!(shard = %self.address.name, user = self.user(), reason, "connection to shard lost"),
        }
        if is_news {
            self.suspect();
        }
    }
}

impl Pools {
    /// What one user's lost connection says of a shard holds for the others' as well.
    pub fn share_suspicion(&self) {
        let pools = self.all();
        let suspects: Vec<(ShardId, Instant)> =
            pools.iter().filter_map(|pool| pool.suspect_at().map(|lost_at| (pool.shard, lost_at))).collect();
        for (shard, lost_at) in suspects {
            let others = pools.iter().filter(|pool| pool.shard == shard && pool.suspect_at().is_none());
            others.for_each(|pool| pool.suspect_since(lost_at));
        }
    }
}
