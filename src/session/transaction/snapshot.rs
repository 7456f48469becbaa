//! The snapshot of a REPEATABLE READ or SERIALIZABLE transaction that has begun without a table.
//!
//! PostgreSQL takes it with the first statement that is not a command of the session, `SELECT 1` included. Which shard the
//! transaction is for is not known then, so all take theirs at that moment: as *spares*, which do nothing else. The first
//! statement with a table keeps the spare of its shard and lets the others go. SHOW takes no snapshot; the shard that answers
//! it is a spare that is not used again.
//!
//! ```text
//!   nothing ── SELECT 1 ──► spares everywhere ── a table ──► its shard alone
//!      └────── SHOW ──────► a spare at home ──── a table, SELECT 1 ──► as if it had not been
//! ```
//!
//! One that only reads, in REPEATABLE READ, gets snapshots that serve together instead ([`super::common_snapshot`]), where they
//! can be had.
//!
//! What a server says of itself or of its transaction (its clock, a transaction id) makes that server the transaction's.

use std::sync::Arc;

use super::participant::Participant;
use super::replay::hidden_statement;
use crate::backend::Own;
use crate::config::CrossShardIsolation;
use crate::error::{PgError, SqlState};
use crate::session::commands::command;
use crate::session::route::Route;
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId, ShardState};
use crate::sql::analysis::{Analysis, Command, Effect, Scope, SessionCall};

impl Session {
    /// Does this statement, coming first, take the snapshot and leave open where the transaction goes?
    pub(in crate::session) fn opens_snapshots(&self, statement: &Analysis) -> bool {
        self.transaction.is_open()
            && means_the_same_everywhere(statement)
            && !self.transaction.has_snapshots_open
            && self.is_unbound()
    }

    /// One snapshot counts for the whole transaction, and none is taken that counts.
    fn is_unbound(&self) -> bool {
        self.has_snapshot()
            && self.gateway.config.cross_shard.isolation == CrossShardIsolation::Refuse
            && !self.transaction.participants.iter().any(|participant| participant.has_begun && !participant.is_spare)
    }

    /// Every shard takes its snapshot now. One that is away has none: the transaction cannot go there.
    pub(in crate::session) async fn open_snapshots(&mut self) -> Result<(), Failure> {
        let snapshot = Box::pin(self.wait_until_none_held()).await?;
        let is_usable = |shard: &&Arc<Shard>| shard.is_home || (shard.state.is_ready() && shard.state != ShardState::Maintenance);
        let online = snapshot.shards.iter().filter(is_usable);
        let shards: Vec<Arc<Shard>> = online.cloned().collect();
        if shards.len() < 2 || shards.len() > self.gateway.config.cross_shard.fan_out_max as usize {
            return Ok(());
        }
        self.let_spares_go(None).await?;
        self.transaction.has_spares = true;
        let mut joined = Vec::with_capacity(shards.len());
        for shard in &shards {
            match self.join(shard.id).await {
                Ok(index) => {
                    if let Some(participant) = self.transaction.participants.get_mut(index) {
                        take_snapshot(participant);
                        joined.push(shard.id);
                    }
                }
                Err(Failure::Error(error)) if !shard.is_home && is_away(&error) => {
                    tracing::debug!(shard = %shard.name, %error, "no snapshot of a shard that is away");
                }
                Err(failure) => return Err(failure),
            }
        }
        self.transaction.has_snapshots_open = true;
        // All are asked before the first is waited for.
        for participant in self.transaction.on_all(&joined) {
            participant.connection.send().await;
        }
        for shard in &joined {
            if let Some(index) = self.transaction.index_of(*shard) {
                self.sync(index).await?;
            }
        }
        self.transaction.snapshots.take_all(snapshot, joined);
        Ok(())
    }

    /// SHOW before anything that counts: the home shard answers, and has not begun what counts.
    pub(in crate::session) async fn join_for_show(&mut self, statement: &Analysis, shard: ShardId) -> Result<(), Failure> {
        if !matches!(statement.command, Command::Show(_)) || !self.transaction.is_open() || !self.is_unbound() {
            return Ok(());
        }
        let is_new = !self.transaction.participants.iter().any(|participant| participant.shard == shard && participant.has_begun);
        let index = self.join(shard).await?;
        if is_new && let Some(participant) = self.transaction.participants.get_mut(index) {
            participant.is_spare = true;
            self.transaction.has_spares = true;
        }
        Ok(())
    }

    /// The statement's route is known: spares that it does not need go.
    pub(in crate::session) async fn settle_spares(&mut self, statement: &Analysis, route: &Route) -> Result<(), Failure> {
        if matches!(statement.command, Command::Show(_)) || means_the_same_everywhere(statement) {
            return Ok(());
        }
        let kept = match route {
            Route::Shard(reach) if self.transaction.has_snapshots_open => reach.single(),
            Route::Shard(_) | Route::Scatter(_) | Route::Write(_) | Route::Gather(_) => None,
        };
        self.let_spares_go(kept).await?;
        self.transaction.has_spares = false;
        Ok(())
    }

    /// One that is kept is a participant like any other from now on.
    pub(in crate::session) async fn let_spares_go(&mut self, kept: Option<ShardId>) -> Result<(), Failure> {
        for participant in self.transaction.participants.iter_mut().filter(|participant| Some(participant.shard) == kept) {
            participant.is_spare = false;
        }
        let spares: Vec<ShardId> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| participant.is_spare)
            .map(|participant| participant.shard)
            .collect();
        if !spares.is_empty() {
            // Given back, they are somebody else's.
            self.transaction.note_kept();
        }
        for shard in spares {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            command::finish_on(self, index, "ROLLBACK").await?;
            let Some(index) = self.transaction.index_of(shard) else { continue };
            let Some(participant) = self.transaction.participants.get_mut(index) else { continue };
            participant.forget_transaction();
            if participant.pinned_by.is_none() {
                self.release(index);
            }
        }
        Ok(())
    }
}

/// Reads no table, and any server would say it at any time of the transaction.
fn means_the_same_everywhere(statement: &Analysis) -> bool {
    let inner = match &statement.command {
        Command::Explain { inner, .. } => inner,
        _ => statement,
    };
    matches!(inner.scope, Scope::Tableless)
        && statement.effect == Effect::Read
        && statement.shard_hint.is_none()
        && !statement.session_calls.contains(&SessionCall::Server)
}

/// Any query takes it.
pub(in crate::session) fn take_snapshot(participant: &mut Participant) {
    participant.is_spare = true;
    hidden_statement(participant, &Own::Constants.text("SELECT"));
}

pub(in crate::session) fn is_away(error: &PgError) -> bool {
    matches!(error.code, SqlState::CANNOT_CONNECT_NOW | SqlState::CONNECTION_FAILURE | SqlState::TOO_MANY_CONNECTIONS)
}
