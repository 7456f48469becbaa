//! The session's side of a commit on several shards: who decides, which connections are lent, what the client hears.
//!
//! ```text
//!   COMMIT ─► no shard or one has written ─► plain COMMIT, the writer first         (command.rs)
//!         └─► several ─► execute::commit on their connections ─► readers end ─► success, or the one error
//! ```
//! Participants that have only read end last: the locks of their reads count until the commit is everywhere. Temporary objects,
//! NOTIFY and cursors WITH HOLD cannot be prepared: such a shard decides ([`super::decider`]). Where it was not seen beforehand that
//! two are such, PostgreSQL refuses the PREPARE, and everything is rolled back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::participant::Participant;
use super::shard_state;
use super::{READ_ONLY, Told};
use crate::backend::ConnectionError;
use crate::config::CrossShardWrites;
use crate::declare::CommitSupport;
use crate::error::{PgError, SqlState};
use crate::execute::commit::{self, Active, Fallback, Finished, Limits, Outcome, Report, TakenPlaces, Wanted, Writer, rules};
use crate::execute::recovery::Recovery;
use crate::session::commands::{command, permitted};
use crate::session::gateway::MAP_DATABASE;
use crate::session::{Failure, Session, SessionEnd, lost};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Isolation, TransactionModes};
use crate::wire::FRAME_HEADER_BYTES;

impl Session {
    /// A transaction of one statement alone, which works on several shards outside of a transaction block. What has run in the pipeline
    /// before is part of it.
    pub(in crate::session) fn begin_one_statement(&mut self) {
        self.transaction.begin(TransactionModes::default(), &self.settings);
        self.adopt_pipeline();
    }

    /// Commits what the statement has done, or rolls it back where it has failed. `begins_here`: the transaction is the statement's
    /// own; otherwise it goes on.
    pub(in crate::session) async fn end_one_statement<T>(
        &mut self,
        begins_here: bool,
        run: Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !begins_here || !self.transaction.is_open() {
            return run;
        }
        match run {
            Ok(done) => command::commit_everywhere(self).await.map(|()| done),
            // The session's connections end with it, and what was begun on them.
            Err(Failure::End(end)) => Err(end.into()),
            Err(failure) => {
                command::rollback_everywhere(self).await?;
                Err(failure)
            }
        }
    }

    /// How many shards the COMMIT has to agree with.
    pub(in crate::session) fn writer_count(&self) -> usize {
        self.transaction.participants.iter().filter(|participant| self.is_writer(participant)).count()
    }

    fn is_writer(&self, participant: &Participant) -> bool {
        let may_write = self.transaction.modes.is_read_only.is_none_or(|is_read_only| !is_read_only);
        // What a serializable transaction has read counts as well, and a shard may refuse it at its commit.
        let is_serializable = self.isolation() == Isolation::Serializable;
        let counts = (may_write && participant.has_written)
            || self.transaction.decides(participant.shard)
            || (is_serializable && self.has_writer());
        participant.has_begun && participant.shard != MAP_DATABASE && !participant.is_read_only && counts
    }

    fn has_writer(&self) -> bool {
        let may_write = self.transaction.modes.is_read_only != Some(true);
        may_write && self.transaction.participants.iter().any(Participant::is_to_commit)
    }

    /// Before a statement writes on this shard while another one has been written: can it be committed on both?
    pub(in crate::session) async fn admit_writer(&mut self, shard: ShardId) -> Result<(), Failure> {
        let mut others: Vec<ShardId> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| participant.is_to_commit())
            .map(|participant| participant.shard)
            .collect();
        let is_read_only = shard_state::is_read_only(&self.gateway.map.load(), shard);
        if others.is_empty() || others.contains(&shard) || is_read_only {
            return Ok(());
        }
        others.push(shard);
        self.check_commit_support(&others).await?;
        if !self.transaction.is_open() {
            // A pipeline without BEGIN: what has run in it becomes part of one transaction, which ends with the pipeline.
            self.begin_for_pipeline();
        }
        Ok(())
    }

    /// From here to Sync the pipeline is one transaction over all its shards.
    pub(in crate::session) fn begin_for_pipeline(&mut self) {
        self.transaction.begin(TransactionModes::default(), &self.settings);
        self.batch.is_implicit = true;
        self.adopt_pipeline();
    }

    /// What ran earlier in this pipeline becomes part of the transaction, as in PostgreSQL: it must not be committed at Sync.
    pub(in crate::session) fn adopt_pipeline(&mut self) {
        for index in 0..self.transaction.participants().len() {
            if self.transaction.participants().get(index).is_some_and(|participant| participant.needs_sync) {
                self.transaction.catch_up(index, &self.gateway.registry);
            }
        }
    }

    /// AND CHAIN: with the settings that the transaction before has left.
    pub(in crate::session) async fn begin_next(&mut self, modes: TransactionModes) -> Result<(), SessionEnd> {
        if self.has_effects_to_settle() {
            Box::pin(self.settle_effects()).await?;
        }
        self.transaction.begin(modes, &self.settings);
        Ok(())
    }

    /// Of the open transaction. Once a shard has begun it must have them already.
    pub(in crate::session) fn change_modes(&mut self, modes: &TransactionModes) -> Result<(), PgError> {
        let known = &self.transaction.modes;
        let is_other_level = modes.isolation.is_some_and(|level| level != self.isolation());
        let is_other_access = modes.is_read_only.is_some() && modes.is_read_only != known.is_read_only;
        let is_other = is_other_level || is_other_access || modes.is_deferrable.is_some();
        if is_other && self.transaction.participants().iter().any(|participant| participant.has_begun) {
            if is_other_level {
                return Err(after_a_query());
            }
            return Err(PgError::unsupported(
                "cannot change the mode of a transaction that has begun on a shard",
                "Shards that joined before the change would not have it.",
                "Give the mode with BEGIN, or before the first statement of the transaction.",
            ));
        }
        if !self.transaction.savepoints.is_empty() {
            self.check_modes_in_subtransaction(modes, is_other_level)?;
            if modes.is_read_only == Some(true) {
                self.transaction.sets.push(Told::Statement(READ_ONLY.to_owned()));
            }
        }
        let known = &mut self.transaction.modes;
        known.isolation = modes.isolation.or(known.isolation);
        known.is_read_only = modes.is_read_only.or(known.is_read_only);
        known.is_deferrable = modes.is_deferrable.or(known.is_deferrable);
        Ok(())
    }

    /// As PostgreSQL says it.
    fn check_modes_in_subtransaction(&self, modes: &TransactionModes, is_other_level: bool) -> Result<(), PgError> {
        let message = if is_other_level {
            "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction"
        } else if modes.is_deferrable.is_some() {
            "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction"
        } else if modes.is_read_only == Some(false) && permitted::is_read_only(self) {
            "cannot set transaction read-write mode inside a read-only transaction"
        } else {
            return Ok(());
        };
        Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
    }

    /// Of a BEGIN behind other statements of its pipeline, which have begun under the level that is.
    pub(in crate::session) fn check_level_in_pipeline(&self, modes: &TransactionModes) -> Result<(), PgError> {
        let has_run = self.transaction.participants().iter().any(|participant| participant.needs_sync);
        match modes.isolation.is_some_and(|level| level != self.isolation()) && has_run {
            true => Err(after_a_query()),
            false => Ok(()),
        }
    }

    /// That all these shards can take part in a commit over several; else a refusal that says which cannot, and why.
    pub(in crate::session) async fn check_commit_support(&mut self, shards: &[ShardId]) -> Result<(), Failure> {
        for shard in shards {
            let support = self.commit_support(*shard).await?;
            let name = self.gateway.shard(*shard)?.name.clone();
            if support.max_prepared_transactions == 0 {
                return Err(PgError::unsupported(
                    "cannot write on a second shard in one transaction",
                    format!("On shard \"{name}\" max_prepared_transactions is 0, so that the commit could not be atomic."),
                    "Set max_prepared_transactions there and restart the server, or write on one shard in a transaction.",
                )
                .into());
            }
            if !support.has_role {
                return Err(rules::lacks_role(&name).into());
            }
        }
        Ok(())
    }

    pub(in crate::session) async fn commit_support(&mut self, shard: ShardId) -> Result<Arc<CommitSupport>, PgError> {
        let shard = self.gateway.shard(shard)?;
        let user = match self.effective("session_authorization") {
            Some(user) => user.to_owned(),
            None => self.pool(&shard)?.user().to_owned(),
        };
        // Of the database, whose address and password may change.
        let key = (shard.identity.as_deref().unwrap_or(&shard.url).to_owned(), user);
        if let Some(known) = self.gateway.commit_support.get(&key) {
            return Ok(known);
        }
        let patience = self.gateway.config.pool.checkout_timeout();
        let found = Arc::new(Box::pin(self.gateway.control.commit_support(&shard, &key.1, patience)).await?);
        if found.has_role && found.max_prepared_transactions > 0 {
            self.gateway.commit_support.insert(key, Arc::clone(&found));
        }
        Ok(found)
    }

    /// Ends a transaction that has written on several shards. The session's state is the caller's to clear on success.
    pub(in crate::session) async fn commit_on_several(&mut self) -> Result<(), Failure> {
        if let Err(failure) = self.settle_participants().await {
            command::rollback_everywhere(self).await?;
            return Err(failure);
        }
        let (active, places) = match self.begin_commit().await {
            Ok(begun) => begun,
            Err(failure) => {
                command::rollback_everywhere(self).await?;
                return Err(failure);
            }
        };
        if active.failpoints().has_planted("readers_end_first") {
            self.end_those_who_read(false).await?;
        }
        let report = self.run_commit(&active).await;
        self.note_prepared(&report.prepared);
        for notice in &report.notices {
            put_notice(&mut self.client.output, notice);
        }
        let id = active.id.as_str().to_owned();
        drop((active, places));
        self.forget_lost(&report.lost)?;
        match report.outcome {
            Outcome::Committed => {
                self.end_those_who_read(true).await?;
                self.note_undelivered(&report.undelivered)?;
                for (_, shard) in &report.undelivered {
                    self.warn(
                        SqlState::WARNING,
                        &format!("transaction \"{id}\" is committed, and shard \"{shard}\" will show it when it is back"),
                    );
                }
                Ok(())
            }
            Outcome::RefusedBy(shard, body) => {
                command::rollback_everywhere(self).await?;
                Err(Failure::Shard(crate::session::reads::scatter::with_shard_named(
                    &crate::session::protocol::describe::error_frame(&body),
                    &shard,
                )))
            }
            Outcome::Aborted(error) => {
                command::rollback_everywhere(self).await?;
                Err(error.into())
            }
            Outcome::Unknown => {
                command::rollback_everywhere(self).await?;
                Err(unknown(&id).into())
            }
        }
    }

    /// What was sent before COMMIT has been answered, and no shard has failed its transaction.
    async fn settle_participants(&mut self) -> Result<(), Failure> {
        for index in (0..self.transaction.participants.len()).rev() {
            self.sync_and_commit(index).await?;
            if let Some(participant) = self.transaction.participants.get(index)
                && participant.has_begun
                && participant.connection.status != b'T'
            {
                let name = &participant.connection.pool().address.name;
                return Err(PgError::new(SqlState::IN_FAILED_SQL_TRANSACTION, "the transaction was rolled back on all shards")
                    .with_detail(format!("On shard \"{name}\" it had failed."))
                    .into());
            }
        }
        Ok(())
    }

    async fn begin_commit(&mut self) -> Result<(Active, TakenPlaces), Failure> {
        let home = self.home()?.id;
        // Who must decide does; the home shard, with its temporary tables and the schema, before others.
        let decider = self.transaction.decider.as_ref().map(|decider| decider.shard);
        let place = |shard: ShardId| (Some(shard) != decider, shard != home, shard);
        self.transaction.participants.sort_by_key(|participant| place(participant.shard));
        let writers: Vec<ShardId> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| self.is_writer(participant))
            .map(|participant| participant.shard)
            .collect();
        self.check_commit_support(&writers).await?;
        let (decider, prepared) = writers.split_first().ok_or_else(|| PgError::internal("no shard has written"))?;
        let support = self.commit_support(*decider).await?;
        let places = self.take_places(prepared).await?;
        Ok((self.gateway.commits.begin(&support.uuid), places))
    }

    /// On the servers of the shards that will be prepared.
    async fn take_places(&mut self, prepared: &[ShardId]) -> Result<TakenPlaces, Failure> {
        let mut wanted = BTreeMap::<String, Wanted>::new();
        for shard in prepared {
            let support = self.commit_support(*shard).await?;
            let of = usize::try_from(support.max_prepared_transactions).unwrap_or(0);
            wanted.entry(support.server.clone()).or_insert(Wanted { places: 0, of }).places += 1;
        }
        let proxies = self.gateway.recovery.live_proxies();
        let taking = self.gateway.places.take(&wanted, proxies);
        tokio::select! {
            biased;
            taken = tokio::time::timeout(self.gateway.config.pool.checkout_timeout(), taking) => {
                taken.map_err(|_| no_place(proxies).into())
            }
            () = self.cancel.cancelled() => {
                Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into())
            }
        }
    }

    async fn run_commit(&mut self, active: &Active) -> Report {
        for participant in &self.transaction.participants {
            if self.is_writer(participant) {
                self.cancel.started(&participant.connection);
            }
        }
        let limits = Limits { patience: self.gateway.config.cross_shard.commit_timeout() };
        let is_writer: Vec<bool> = self.transaction.participants.iter().map(|participant| self.is_writer(participant)).collect();
        let sets = &self.transaction.sets;
        let writers =
            self.transaction.participants.iter_mut().zip(is_writer).filter(|(_, is_writer)| *is_writer).map(|(participant, _)| {
                let role = crate::session::settings::setting::settings_after(participant, sets).get("role").map(str::to_owned);
                let name = participant.connection.pool().address.name.clone();
                Writer { shard: participant.shard, name, connection: &mut participant.connection, role }
            });
        let fallback = Elsewhere { recovery: &self.gateway.recovery, cancel: &self.cancel };
        Box::pin(commit::commit(writers.collect(), active, &fallback, limits)).await
    }

    /// PREPARE has kept what the transaction has SET, whatever came of it then.
    fn note_prepared(&mut self, prepared: &[ShardId]) {
        for participant in self.transaction.participants.iter_mut().filter(|participant| prepared.contains(&participant.shard)) {
            participant.connection.settings =
                crate::session::settings::setting::settings_after(participant, &self.transaction.sets);
            participant.settings_known = 0;
        }
    }

    /// A shard has ended its part of a transaction that has locked rows: what is written elsewhere relies on these locks.
    pub(in crate::session) fn lost_what_it_claims(&mut self) -> Option<PgError> {
        if self.transaction.claims.is_empty() || self.transaction.participants.len() < 2 {
            return None;
        }
        let begun = self
            .transaction
            .participants_mut()
            .iter_mut()
            .filter(|participant| participant.has_begun && participant.shard != MAP_DATABASE);
        begun.map(|participant| &mut participant.connection).find_map(|connection| {
            connection.has_ended_unseen().then(|| lost(&connection.pool().address.name, &ConnectionError::Closed))
        })
    }

    /// Connections that broke in the commit.
    fn forget_lost(&mut self, shards: &[ShardId]) -> Result<(), SessionEnd> {
        for shard in shards {
            let Some(index) = self.transaction.index_of(*shard) else { continue };
            let Some(participant) = self.transaction.participants.get_mut(index) else { continue };
            participant.has_begun = false;
            let error = lost(&participant.connection.pool().address.name.clone(), &ConnectionError::Closed);
            if let Failure::End(end) = self.remove_lost(index, error, true) {
                self.end_after_answer(end)?;
            }
        }
        Ok(())
    }

    /// `are_all`: the writers have ended.
    async fn end_those_who_read(&mut self, are_all: bool) -> Result<(), Failure> {
        let readers: Vec<ShardId> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| participant.has_begun && participant.connection.status != b'I')
            .filter(|participant| are_all || !self.is_writer(participant))
            .map(|participant| participant.shard)
            .collect();
        for shard in readers {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            self.end_reader(index).await?;
        }
        Ok(())
    }

    /// COMMIT on a shard whose answer does not count, as what was written is committed already: the client, who would repeat it,
    /// does not hear what is said against it.
    pub(in crate::session) async fn end_reader(&mut self, index: usize) -> Result<(), SessionEnd> {
        let (told, flushes) = (self.client.output.len(), self.client.flushes);
        match command::commit_on(self, index).await {
            Ok(()) => {}
            Err(Failure::End(end)) => self.end_after_answer(end)?,
            Err(failure) => {
                if flushes == self.client.flushes {
                    self.client.output.truncate(told);
                }
                tracing::warn!(?failure, "a shard that only read was lost at the end of its transaction");
            }
        }
        Ok(())
    }

    /// What the home shard's schema is, is not known before it has its part of the transaction.
    fn note_undelivered(&mut self, undelivered: &[(ShardId, String)]) -> Result<(), PgError> {
        let home = self.home()?.id;
        if let Some(change) =
            self.transaction.schema_change.as_mut().filter(|_| undelivered.iter().any(|(shard, _)| *shard == home))
        {
            change.leave_open();
        }
        Ok(())
    }

    /// The cycle of a transaction that is listed for the search for deadlocks is over.
    pub(in crate::session) async fn end_wait(&mut self) -> Result<(), SessionEnd> {
        if self.transaction.end_statement() {
            self.abort_participants().await?;
        }
        if !self.transaction.is_open() {
            self.transaction.end_waiting();
        }
        Ok(())
    }

    /// Rolls back on every shard; the session's transaction stays failed until the client ends it.
    async fn abort_participants(&mut self) -> Result<(), SessionEnd> {
        let begun: Vec<_> = self.transaction.participants.iter().filter(|held| held.has_begun).map(|held| held.shard).collect();
        for shard in begun {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            match command::finish_on(self, index, "ROLLBACK").await {
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

    /// Are transactions over several shards wanted at all?
    pub(in crate::session) fn may_write_on_several(&self) -> bool {
        self.gateway.config.cross_shard.writes == CrossShardWrites::TwoPhaseCommit
    }
}

/// What the commit needs when its own connections do not do.
struct Elsewhere<'s> {
    recovery: &'s Arc<Recovery>,
    cancel: &'s crate::session::cancel::CancelTarget,
}

impl Fallback for Elsewhere<'_> {
    async fn resolve(&self, active: &Active, deadline: tokio::time::Instant) -> Option<bool> {
        self.recovery.resolve_until(active.id.clone(), deadline).await
    }

    async fn finish(
        &self,
        shard: ShardId,
        active: &Active,
        participant: usize,
        is_committed: bool,
        deadline: tokio::time::Instant,
    ) -> Finished {
        self.recovery.finish_until(shard, active.id.clone(), participant, is_committed, deadline).await
    }

    fn shield(&self) {
        self.cancel.finished();
    }
}

fn no_place(proxies: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, "too many transactions over several shards are being committed")
        .with_detail(format!(
            "No place among a server's max_prepared_transactions, shared by {proxies} proxies, was free within \
             pool.checkout_timeout_ms. The transaction was rolled back."
        ))
        .with_hint("Retry the transaction, or raise max_prepared_transactions on the servers of the shards.")
}

fn unknown(id: &str) -> PgError {
    PgError::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, format!("the outcome of COMMIT is unknown for transaction \"{id}\""))
        .with_detail(
            "The shard that decides was lost while it committed, and did not come back in time (cross_shard.commit_timeout_ms).",
        )
        .with_hint(
            "It is finished, one way on all shards, when the shard is back: look whether it was applied before you repeat it.",
        )
}

/// A notice's body as a message.
fn after_a_query() -> PgError {
    let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
    PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message)
}

fn put_notice(out: &mut bytes::BytesMut, body: &Bytes) {
    let mut frame = crate::session::protocol::describe::error_frame(body).to_vec();
    if let Some(tag) = frame.first_mut() {
        *tag = crate::wire::shard_tag::NOTICE;
    }
    debug_assert_eq!(frame.len(), body.len() + FRAME_HEADER_BYTES);
    out.extend_from_slice(&frame);
}
