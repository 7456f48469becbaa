//! REPEATABLE READ READ ONLY over several shards: snapshots of all of them, under a barrier ([`crate::execute::barrier`]).
//!
//! The first statement that takes a snapshot and is not for one shard by its key takes them, on every shard; from then on the
//! transaction reads wherever it likes, and always in these. One that begins with a statement for one shard stays there, as
//! cheap as ever. Where the snapshots cannot be had, a statement of the home shard or of no table runs all the same, as the first
//! one of a transaction on one shard.
//!
//! ```text
//!   None ─ a statement of several shards, of home, of no table ─► Taken
//!                └─ not to be had ─► Refused: one shard, and the reason for those who want more
//! ```
//! LOCK TABLE takes no snapshot, and what it has waited for is to be seen in the one that is taken next: before the snapshots it
//! is what it is in any transaction of one shard.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::shard_state;
use super::snapshot::{is_away, take_snapshot};
use super::snapshot_map::takes_snapshot;
use crate::backend::STATEMENT_TIMEOUT;
use crate::config::CrossShardIsolation;
use crate::error::{PgError, SqlState, capitalised};
use crate::execute::barrier::{BarrierError, Closed};
use crate::session::gateway::MAP_DATABASE;
use crate::session::reads::gather::duration;
use crate::session::{Failure, Session};
use crate::shardmap::{MapSnapshot, Shard, ShardId};
use crate::sql::analysis::{Analysis, Isolation, Part};

/// Snapshots on all shards that were taken together.
#[derive(Debug, Default)]
pub(in crate::session) enum CommonSnapshot {
    #[default]
    None,
    Taken,
    /// They could not be had. The transaction is one of one shard.
    Refused(PgError),
}

impl Session {
    pub(in crate::session) fn has_common_snapshot(&self) -> bool {
        matches!(self.transaction.common_snapshot, CommonSnapshot::Taken)
    }

    /// May this transaction still have them?
    fn may_take_common_snapshot(&self) -> bool {
        if !self.transaction.is_open() || !self.is_repeatable_read_only() {
            return false;
        }
        let settings = &self.gateway.config.cross_shard;
        let count = self.gateway.map.snapshot().shards.len();
        let has_begun = || {
            let mut begun = self.transaction.participants.iter().filter(|participant| participant.shard != MAP_DATABASE);
            begun.any(|participant| participant.has_begun && !participant.is_spare)
        };
        settings.isolation == CrossShardIsolation::Refuse
            && (2..=settings.fan_out_max as usize).contains(&count)
            && matches!(self.transaction.common_snapshot, CommonSnapshot::None)
            && !has_begun()
    }

    /// By BEGIN, or by the defaults when it began.
    pub(super) fn is_repeatable_read_only(&self) -> bool {
        let modes = self.transaction.modes_at_begin();
        let default = |name: &str| self.transaction.settings_before().and_then(|settings| settings.get(name));
        let is_on = |value| matches!(value, "on" | "true" | "yes" | "1");
        self.isolation() == Isolation::RepeatableRead
            && modes.is_read_only.unwrap_or_else(|| default("default_transaction_read_only").is_some_and(is_on))
    }

    /// Before a statement that is not for one shard by its key. `needs_several`: without the snapshots it cannot run.
    pub(in crate::session) async fn take_common_snapshot(
        &mut self,
        statement: &Analysis,
        needs_several: bool,
    ) -> Result<(), Failure> {
        if !takes_snapshot(&statement.command) {
            return Ok(());
        }
        if let (CommonSnapshot::Refused(error), true) = (&self.transaction.common_snapshot, needs_several) {
            return Err(error.clone().into());
        }
        if !self.may_take_common_snapshot() {
            return Ok(());
        }
        let shards: Vec<ShardId> = self.online_shards().iter().map(|shard| shard.id).collect();
        if needs_several {
            self.wait_for_shards(&shards).await?;
        } else if let Some(error) = shard_state::any_in_maintenance(&self.gateway.map.load(), &shards) {
            self.transaction.common_snapshot = CommonSnapshot::Refused(because_of(&error));
            return Ok(());
        }
        // One that can do without waits less: what is in the way may be there for long.
        let patience = self.gateway.config.cross_shard.commit_timeout();
        let patience = if needs_several { patience } else { patience.min(PATIENCE_OF_ONE_SHARD) };
        let taken = self.try_common_snapshot(Instant::now() + patience).await;
        if taken.is_err() {
            self.let_spares_go(None).await?;
            self.transaction.has_spares = false;
        }
        self.transaction.common_snapshot = match taken {
            Ok(()) => CommonSnapshot::Taken,
            Err(Failure::Error(error)) if !needs_several && is_away(&error) => CommonSnapshot::Refused(error),
            Err(failure) => return Err(failure),
        };
        Ok(())
    }

    /// The shards of the transaction's common snapshot, which is taken now where it is not yet.
    pub(super) async fn share_snapshot(&mut self) -> Result<Vec<Arc<Shard>>, Failure> {
        let shards = self.online_shards();
        if !self.has_common_snapshot() {
            if !self.may_take_common_snapshot() {
                return Err(super::exported_snapshot::not_exported().into());
            }
            let ids: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
            self.wait_for_shards(&ids).await?;
            let taken = self.try_common_snapshot(Instant::now() + self.gateway.config.cross_shard.commit_timeout()).await;
            if taken.is_err() {
                self.let_spares_go(None).await?;
                self.transaction.has_spares = false;
            }
            taken?;
            self.transaction.common_snapshot = CommonSnapshot::Taken;
        }
        for shard in &shards {
            self.check_in_common_snapshot(shard.id)?;
        }
        Ok(shards)
    }

    /// A shard that has no part in the snapshots would show another moment.
    pub(in crate::session) fn check_in_common_snapshot(&self, shard: ShardId) -> Result<(), PgError> {
        let has_begun =
            || self.transaction.participants.iter().any(|participant| participant.shard == shard && participant.has_begun);
        if !self.has_common_snapshot() || shard == MAP_DATABASE || has_begun() {
            return Ok(());
        }
        let name = self.gateway.shard(shard).map_or_else(|_| shard.0.to_string(), |shard| shard.name.clone());
        Err(PgError::new(SqlState::SERIALIZATION_FAILURE, format!("shard \"{name}\" is not part of the transaction's snapshot"))
            .with_detail("It was added after the transaction had taken its snapshot.")
            .with_hint("Retry the transaction."))
    }

    async fn try_common_snapshot(&mut self, deadline: Instant) -> Result<(), Failure> {
        // Said to every shard, whatever its own defaults are.
        self.transaction.change_modes_at_begin(|modes| {
            modes.isolation = Some(Isolation::RepeatableRead);
            modes.is_read_only = Some(true);
        });
        for _ in 0..ATTEMPTS {
            self.let_spares_go(None).await?;
            let shards = self.online_shards();
            self.attach_all(&shards).await?;
            let map = Box::pin(self.wait_until_none_held()).await?;
            let closed = self.close_barrier(&shards, deadline).await?;
            self.gateway.commits.failpoints.reach("snapshot_barrier").await;
            let taken = Box::pin(self.take_together(&shards)).await;
            let opened = closed.open().await;
            taken?;
            match opened {
                Ok(()) if self.are_all(&shards) => {
                    self.transaction.participants.iter_mut().for_each(|participant| participant.is_spare = false);
                    self.transaction.has_spares = false;
                    self.transaction.snapshots.take_all(map, shards.iter().map(|shard| shard.id));
                    return Ok(());
                }
                opened => tracing::debug!(?opened, "snapshots of all shards do not count"),
            }
        }
        Err(not_to_be_had("Commits over several shards could not be kept away for so long.".to_owned()).into())
    }

    /// Before the barrier is closed: waiting for a connection may take its time.
    async fn attach_all(&mut self, shards: &[Arc<Shard>]) -> Result<(), Failure> {
        for shard in shards {
            match self.attach(shard.id).await {
                Ok(index) => {
                    if let Some(participant) = self.transaction.participants.get_mut(index) {
                        participant.is_spare = true;
                        self.transaction.has_spares = true;
                    }
                }
                Err(Failure::Error(error)) if is_away(&error) => return Err(because_of(&error).into()),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// No shard has joined the cluster, whose commits the barrier would not have kept away.
    fn are_all(&self, shards: &[Arc<Shard>]) -> bool {
        let ids = |shards: &[Arc<Shard>]| shards.iter().map(|shard| shard.id).collect::<Vec<_>>();
        ids(&self.online_shards()) == ids(shards)
    }

    /// A version of the map by which no partition is held: by it all shards can take their snapshots. None is taken by an older one
    /// that a move waits for.
    pub(in crate::session) async fn wait_until_none_held(&mut self) -> Result<Arc<MapSnapshot>, Failure> {
        let deadline = tokio::time::Instant::now() + crate::session::resolve::HOLD_WAIT;
        loop {
            let map = self.gateway.map.snapshot();
            if map.groups.values().all(|group| group.held().is_empty()) {
                return Ok(map);
            }
            self.wait_for_hold(map.epoch, deadline).await?;
        }
    }

    pub(in crate::session) fn online_shards(&self) -> Vec<Arc<Shard>> {
        let snapshot = self.gateway.map.snapshot();
        snapshot.shards.iter().filter(|shard| shard.state.is_ready()).cloned().collect()
    }

    /// Until nobody decides and what is decided is finished: the client may cancel, or go.
    pub(in crate::session) async fn close_barrier(&mut self, shards: &[Arc<Shard>], deadline: Instant) -> Result<Closed, Failure> {
        let mut made_ready = Vec::new();
        loop {
            match self.wait_for_barrier(shards, deadline).await? {
                Err(BarrierError::NotReady(shard)) if !made_ready.contains(&shard.id) => {
                    let user = self.pool(&shard)?.user().to_owned();
                    let patience = deadline.saturating_duration_since(Instant::now());
                    let looked_at = Box::pin(self.gateway.control.commit_support(&shard, &user, patience)).await;
                    looked_at.map_err(|error| because_of(&error))?;
                    made_ready.push(shard.id);
                }
                closed => return Ok(closed.map_err(told)?),
            }
        }
    }

    async fn wait_for_barrier(
        &mut self,
        shards: &[Arc<Shard>],
        deadline: Instant,
    ) -> Result<Result<Closed, BarrierError>, Failure> {
        let limit = self.effective(STATEMENT_TIMEOUT).and_then(duration).map(|limit| Instant::now() + limit);
        let (target, barrier) = (Arc::clone(&self.cancel), Arc::clone(&self.gateway.barrier));
        let timed_out = async {
            match limit {
                Some(limit) => sleep_until(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            closed = barrier.close(shards.to_vec(), deadline) => Ok(closed),
            () = target.cancelled() => Err(cancelled("canceling statement due to user request")),
            () = timed_out => Err(cancelled("canceling statement due to statement timeout")),
        }
    }

    /// One packet to each shard, and all are asked before the first is waited for.
    async fn take_together(&mut self, shards: &[Arc<Shard>]) -> Result<(), Failure> {
        for shard in shards {
            let index = self.attach(shard.id).await?;
            self.transaction.catch_up(index, &self.gateway.registry);
            let Some(participant) = self.transaction.participants.get_mut(index) else { continue };
            take_snapshot(participant);
            if let Err(error) = participant.connection.flush().await {
                return Err(self.participant_lost(index, &error));
            }
        }
        for shard in shards {
            if let Some(index) = self.transaction.index_of(shard.id) {
                self.sync(index).await?;
            }
        }
        Ok(())
    }
}

/// Nothing but rows of sharded tables.
pub(in crate::session) fn is_by_key(parts: &[Part]) -> bool {
    parts.iter().all(|part| matches!(part, Part::Sharded { .. }))
}

fn cancelled(message: &str) -> Failure {
    PgError::new(SqlState::QUERY_CANCELED, message).into()
}

fn told(error: BarrierError) -> PgError {
    let detail = match error {
        BarrierError::Away { shard, .. } => format!("Shard \"{shard}\" cannot be asked which commits are under way."),
        BarrierError::NotReady(shard) => format!("Shard \"{}\" is of another version of Shardgate.", shard.name),
        BarrierError::Late(Some(id)) => format!("Transaction \"{id}\" is not finished on all its shards yet."),
        BarrierError::Late(None) => "Commits over several shards did not end in time.".to_owned(),
        BarrierError::Broken | BarrierError::Abandoned => "A shard was lost meanwhile.".to_owned(),
    };
    not_to_be_had(detail)
}

fn not_to_be_had(detail: String) -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "cannot take one snapshot of all shards now")
        .with_detail(detail)
        .with_hint("Repeat the transaction later, begin it with a statement for one shard key, or use READ COMMITTED.")
}

fn because_of(error: &PgError) -> PgError {
    not_to_be_had(format!("{}.", capitalised(&error.message)))
}

const PATIENCE_OF_ONE_SHARD: Duration = Duration::from_secs(3);
/// A barrier that does not hold is a matter of chance.
const ATTEMPTS: usize = 3;
