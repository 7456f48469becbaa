//! The map that the session's statements are planned by, until they are answered: by it a proxy tells which epoch it has reached.
//!
//! ```text
//!   planned ──► sent ──► every shard has proven its snapshots ──► answered
//!   └─ pinned ───────────┴─ of a plain read ──────────────────────┴─ of any other
//! ```
//! A move waits until no statement is left that was planned before its partitions were held. So what lasts as long as the client
//! likes, or as long as the move, is not pinned: a transaction between two statements, a cursor, a portal that has run in part, rows
//! that a slow client takes, a statement that waits for the move. What these still read they read in snapshots that they have. A
//! portal that is bound and has not been run is planned and not answered: it counts until its transaction ends.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::protocol::statement::{Portal, Run};
use super::transaction::Status;
use super::{Failure, Session};
use crate::backend::Reply;
use crate::routing::{MapSource, held_too_long, sharding_has_changed};
use crate::session::ddl::{own_catalog, redefined};
use crate::shardmap::{Epoch, MapInUse};

#[derive(Default)]
pub(super) struct PinnedMap {
    /// Of the statement that was planned first.
    map: Option<Arc<MapInUse>>,
    /// How many were planned since.
    planned: u32,
    /// The only one is a plain read, which takes no snapshots beside its first one.
    ends_with_rows: bool,
}

impl PinnedMap {
    pub fn get(&self) -> Option<&Arc<MapInUse>> {
        self.map.as_ref()
    }

    /// Unless one is pinned.
    #[inline]
    pub fn pin(&mut self, map: impl FnOnce() -> Arc<MapInUse>) {
        self.map.get_or_insert_with(map);
    }

    /// Nothing that was planned by it is left.
    pub fn unpin(&mut self) {
        *self = Self::default();
    }

    /// One more statement is planned.
    #[inline]
    pub fn note_planned(&mut self, is_plain_read: bool) {
        self.planned += 1;
        self.ends_with_rows = self.planned == 1 && is_plain_read;
    }

    /// What was planned was a question about a statement, which is planned now.
    pub fn forget_planned(&mut self) {
        (self.planned, self.ends_with_rows) = (0, false);
    }

    /// The first row has come from the only shard.
    pub fn note_rows(&mut self) {
        if self.ends_with_rows {
            self.unpin();
        }
    }

    /// A shard takes the data of a COPY: where rows go from now on the newest map says, or the shard.
    pub fn note_copy(&mut self) {
        if self.planned <= 1 {
            self.unpin();
        }
    }

    /// To be dropped when all shards have proven their snapshots ([`crate::execute::AskedBy`]); else to be given back. `None`: it stays to the end.
    pub fn lend_until_proven(&mut self) -> Option<Arc<MapInUse>> {
        self.map.take_if(|_| self.ends_with_rows)
    }

    pub fn give_back(&mut self, lent: Option<Arc<MapInUse>>) {
        match lent {
            Some(map) => self.map = Some(map),
            None if self.map.is_none() => self.unpin(),
            None => {}
        }
    }
}

impl Session {
    /// Lets go of the map unless something that was planned by it is still to run or to be answered.
    pub(super) fn unpin_answered(&mut self) {
        if self.transaction.pinned_map.get().is_some() && !self.owes_answers() && !self.has_portals_to_run() {
            self.transaction.pinned_map.unpin();
        }
    }

    fn owes_answers(&self) -> bool {
        let mut pending = self.transaction.participants().iter().flat_map(|participant| &participant.connection.pending);
        pending.any(|pending| !matches!(pending.reply, Reply::Close | Reply::CloseStatement(_)))
    }

    /// After an error none of them runs.
    fn has_portals_to_run(&self) -> bool {
        let is_to_run = |(name, portal): (&[u8], &Portal)| match portal {
            Portal::Shard { run, .. } => *run == Run::NotYet,
            Portal::Write { .. } => true,
            Portal::Scatter { .. } | Portal::Gather { .. } => !self.open_cursors.contains(name),
            Portal::Own { .. } | Portal::Finished { .. } | Portal::Spent { .. } => false,
        };
        self.transaction.status != Status::Failed && !self.batch.has_failed && self.portals.iter().any(is_to_run)
    }

    /// Until the partition is not held any more, or is elsewhere, as far as another version of the map says. The client may cancel,
    /// or go, and its own limits count. What came before in its pipeline is answered first: the move waits for that.
    pub(super) async fn wait_for_hold(&mut self, held_by: Epoch, deadline: Instant) -> Result<(), Failure> {
        self.drain_current().await?;
        self.unpin_answered();
        self.wait_while_held_by(held_by, deadline).await?;
        self.transaction.pinned_map.pin(|| self.gateway.map.in_use());
        // What the statement says was read by the map from before.
        match self.transaction.pinned_map.get() {
            Some(map)
                if map.redefinitions.is_empty()
                    && self.context_is_of(own_catalog::own_catalog(self).unwrap_or(&self.gateway.catalog.load()), map) =>
            {
                Ok(())
            }
            _ => {
                self.transaction.pinned_map.unpin();
                if !self.staging.is_under_way {
                    self.cycle.note_unsent();
                }
                Err(sharding_has_changed().into())
            }
        }
    }

    /// The wait alone: nothing that was planned is left.
    pub(super) async fn wait_while_held_by(&mut self, held_by: Epoch, deadline: Instant) -> Result<(), Failure> {
        let (gateway, cancel, patience) = (Arc::clone(&self.gateway), Arc::clone(&self.cancel), redefined::patience(self));
        let began_at = Instant::now();
        let waited = tokio::select! {
            biased;
            () = gateway.map.changed_since(held_by) => Ok(()),
            failure = patience.ends(&cancel) => Err(failure.into()),
            () = sleep_until(deadline) => Err(held_too_long().into()),
        };
        gateway.counters.held(began_at.elapsed());
        waited
    }
}
