//! A shard joins the session: a connection with the session's settings, then what the transaction has done so far
//! ([`super::replay`]).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::participant::Participant;
use super::replay::hidden_statement;
use super::shard_state;
use crate::backend::{Checkout, CheckoutError, Connection, ConnectionError, CustomNames, Own, Pool, Pooled, Settings};
use crate::config::PoolMode;
use crate::error::{PgError, Severity, SqlState};
use crate::routing;
use crate::session::commands::map_database;
use crate::session::cursor::{HELD_CURSOR, Life, OnShard};
use crate::session::ddl::redefined;
use crate::session::gateway::MAP_DATABASE;
use crate::session::{Failure, Session, SessionEnd, lost};
use crate::shardmap::{Shard, ShardId, map_unreachable};

impl Session {
    /// The home shard.
    pub(in crate::session) fn home(&self) -> Result<Arc<Shard>, PgError> {
        self.gateway.map.snapshot().home().cloned().ok_or_else(no_shard_yet)
    }

    /// A connection to a shard with these settings, outside any transaction.
    pub(in crate::session) async fn checkout(&mut self, shard: &Arc<Shard>, settings: &Arc<Settings>) -> Result<Pooled, Failure> {
        self.checkout_as(self.checkout_kind(), shard, settings).await
    }

    /// As [`Session::checkout`], for a statement of the proxy's own that reads no custom setting.
    pub(in crate::session) async fn checkout_any(
        &mut self,
        shard: &Arc<Shard>,
        settings: &Arc<Settings>,
    ) -> Result<Pooled, Failure> {
        self.checkout_knowing(self.checkout_kind(), shard, settings, None).await
    }

    /// As [`Session::checkout`], for a statement that sets this custom setting: whether it was known there does not matter.
    pub(in crate::session) async fn checkout_to_set(
        &mut self,
        shard: &Arc<Shard>,
        settings: &Arc<Settings>,
        name: &str,
    ) -> Result<Pooled, Failure> {
        let mut names = self.custom_names.clone();
        names.insert(name);
        let mut connection = self.checkout_knowing(self.checkout_kind(), shard, settings, Some(names)).await?;
        connection.custom_names.insert(name);
        Ok(connection)
    }

    fn checkout_kind(&self) -> Checkout {
        let holds_any =
            !self.transaction.participants.is_empty() || self.open_cursors.holds_any() || self.staging.open_overflows.are_there();
        if holds_any { Checkout::LateJoiner } else { Checkout::First }
    }

    /// As [`Session::checkout`], for who holds other connections besides the participants.
    pub(in crate::session) async fn checkout_as(
        &mut self,
        kind: Checkout,
        shard: &Arc<Shard>,
        settings: &Arc<Settings>,
    ) -> Result<Pooled, Failure> {
        let names = Some(self.custom_names.clone());
        self.checkout_knowing(kind, shard, settings, names).await
    }

    /// A connection that knows no custom setting but these; `None`: whichever it knows.
    async fn checkout_knowing(
        &mut self,
        kind: Checkout,
        shard: &Arc<Shard>,
        settings: &Arc<Settings>,
        names: Option<CustomNames>,
    ) -> Result<Pooled, Failure> {
        let names = names.filter(|_| shard.id != MAP_DATABASE);
        let known = names.clone().unwrap_or_default();
        let names = names.map(|names| self.with_names_left(names));
        let (mut connection, applied) = loop {
            let mut connection = self.wait_for_ready(kind, shard, names.as_ref()).await?;
            let wanted = self.settings_on(&connection, settings);
            let applied = connection.apply_settings(&wanted, &known).await;
            // What it has is not to be changed by who it is now: it is closed, and a new one has nothing yet.
            if connection.is_new || !matches!(applied, Err(ConnectionError::Refused { .. })) {
                break (connection, applied);
            }
        };
        if let Err(error) = applied {
            return Err(match error {
                ConnectionError::Refused { sqlstate, message, .. } => {
                    let code = sqlstate.as_bytes().try_into().map_or(SqlState::INTERNAL_ERROR, SqlState);
                    PgError::new(code, message).with_context(format!("setting up a connection to shard \"{}\"", shard.name)).into()
                }
                other => lost(&shard.name, &other).into(),
            });
        }
        self.mark(&mut connection);
        Ok(connection)
    }

    /// A connection to the shard as it is now.
    async fn wait_for_ready(&mut self, kind: Checkout, shard: &Arc<Shard>, names: Option<&CustomNames>) -> Result<Pooled, Failure> {
        let is_map = shard.id == MAP_DATABASE;
        let connection = match Box::pin(self.wait_for_address(kind, shard, names)).await? {
            Err(CheckoutError::Unavailable { .. }) if is_map => return Err(map_unreachable().into()),
            Err(error @ CheckoutError::Unavailable { .. }) => {
                self.gateway.recovery.was_away(shard.id);
                return Err(error.into());
            }
            Err(CheckoutError::ShutOut { shard, generation }) => return Err(Box::pin(self.shut_out(shard, generation)).await),
            checked_out => checked_out?,
        };
        if connection.generation > self.transaction.generation {
            connection.release();
            return Err(routing::was_shut_out().into());
        }
        if connection.is_new && !is_map {
            self.gateway.recovery.was_opened(shard.id);
        }
        if self.gateway.recovery.is_unseen(shard.id) {
            Box::pin(self.gateway.recovery.before_use(shard.id)).await;
        }
        Ok(connection)
    }

    /// The proxy has lost its lease: it takes another one, and reads the map first. What was planned by the old map is not run.
    async fn shut_out(&mut self, shard: String, generation: i64) -> Failure {
        let (gateway, cancel, patience) = (Arc::clone(&self.gateway), Arc::clone(&self.cancel), redefined::patience(self));
        let is_back = async {
            gateway.map.is_reachable() && timeout(GENERATION_WAIT, gateway.map.lease().later_than(generation)).await.is_ok()
        };
        tokio::select! {
            biased;
            failure = patience.ends(&cancel) => failure.into(),
            is_back = is_back => match is_back {
                true => routing::was_shut_out().into(),
                false => CheckoutError::ShutOut { shard, generation }.into(),
            },
        }
    }

    /// A connection, unless the client cancels while it waits for one.
    pub(super) async fn wait_for_connection(
        &mut self,
        pool: &Arc<Pool>,
        kind: Checkout,
        names: Option<&CustomNames>,
    ) -> Result<Result<Pooled, CheckoutError>, Failure> {
        let fits = |connection: &Connection| names.is_none_or(|names| connection.knows_only(names));
        let mut checkout = pin!(pool.checkout(kind, self.login.runtime, fits));
        // Mostly there is nothing to wait for.
        if let Poll::Ready(found) = poll_fn(|context| Poll::Ready(checkout.as_mut().poll(context))).await {
            return Ok(found);
        }
        self.transaction.note_pool_wait(pool);
        let found = tokio::select! {
            biased;
            found = checkout => Ok(found),
            () = self.cancel.cancelled() => {
                Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into())
            }
        };
        self.transaction.end_pool_wait();
        found
    }

    /// The shard's pool for this client. Kept until the map changes: looking it up takes locks. One of an address that the map has left is not
    /// used, whether or not it is retired yet.
    pub(in crate::session) fn pool(&mut self, shard: &Arc<Shard>) -> Result<Arc<Pool>, PgError> {
        if let Some(pool) = self.known_pool(shard.id).filter(|pool| !pool.is_retired()) {
            let map = self.gateway.map.load();
            if shard.id == MAP_DATABASE || map.shard(shard.id).is_some_and(|now| pool.address.is_of(now)) {
                return Ok(Arc::clone(pool));
            }
        }
        let pool = self.gateway.pool(shard.id, &self.login.identity.credentials, self.login.number)?;
        self.pools.retain(|(id, _)| *id != shard.id);
        let place = self.pools.partition_point(|(id, _)| *id < shard.id);
        self.pools.insert(place, (shard.id, Arc::clone(&pool)));
        Ok(pool)
    }

    /// The pool, if this client has used it since the map has changed.
    #[inline]
    pub(in crate::session) fn known_pool(&self, shard: ShardId) -> Option<&Arc<Pool>> {
        let place = self.pools.binary_search_by_key(&shard, |(id, _)| *id).ok()?;
        self.pools.get(place).map(|(_, pool)| pool)
    }

    /// Index of the shard's participant, ready for a statement: what has to come before it is in its output.
    #[inline]
    pub(in crate::session) async fn join(&mut self, id: ShardId) -> Result<usize, Failure> {
        self.check_in_common_snapshot(id)?;
        let index = self.attach(id).await?;
        if self.transaction.is_open() {
            self.transaction.catch_up(index, &self.gateway.registry);
        }
        Ok(index)
    }

    /// As [`Session::join`], for a schema change whose answer names no object of the shard's. The shard's oids are asked for when
    /// another statement comes: most changes are followed by none.
    pub(in crate::session) async fn join_for_change(&mut self, id: ShardId) -> Result<usize, Failure> {
        self.check_in_common_snapshot(id)?;
        if self.transaction.index_of(id).is_none() {
            let shard = self.gateway.shard(id)?;
            let settings = Arc::clone(self.transaction.settings_before().unwrap_or(&self.settings));
            let connection = self.checkout(&shard, &settings).await?;
            let mut participant = Participant::new(id, connection);
            participant.lacks_oids = true;
            self.add_participant(participant);
        }
        let index = self.transaction.index_of(id).ok_or_else(|| PgError::internal("participant is gone"))?;
        self.refresh_settings(index).await?;
        self.mark_participant(index);
        if self.transaction.is_open() {
            self.transaction.catch_up(index, &self.gateway.registry);
        }
        Ok(index)
    }

    fn add_participant(&mut self, participant: Participant) {
        self.transaction.add_participant(participant);
        if self.transaction.participants.len() > 1 {
            self.transaction.note_held();
        }
    }

    /// As [`Session::join`], without taking part in the transaction yet.
    #[inline]
    pub(in crate::session) async fn attach(&mut self, id: ShardId) -> Result<usize, Failure> {
        let index = match self.transaction.index_of(id) {
            Some(index) => {
                if self.transaction.participants.get(index).is_some_and(|participant| participant.lacks_oids) {
                    Box::pin(self.learn_oids_late(index)).await?;
                }
                self.refresh_settings(index).await?;
                index
            }
            None => {
                let shard = self.gateway.shard(id)?;
                // What the transaction has set is replayed after BEGIN, to be undone with it.
                let settings = Arc::clone(self.transaction.settings_before().unwrap_or(&self.settings));
                self.learn_home_oids(&shard).await?;
                let mut connection = self.checkout(&shard, &settings).await?;
                self.learn_oids(&mut connection, &shard).await?;
                self.add_participant(Participant::new(id, connection));
                self.transaction.participants.len() - 1
            }
        };
        self.mark_participant(index);
        Ok(index)
    }

    /// A connection that the session has kept gets what was set since.
    async fn refresh_settings(&mut self, index: usize) -> Result<(), Failure> {
        let Some(participant) = self.transaction.participants.get_mut(index) else { return Ok(()) };
        let is_map = participant.shard == MAP_DATABASE;
        if !participant.has_begun {
            // Kept for the session, it may be older than the shard's state.
            participant.is_read_only = shard_state::is_read_only(&self.gateway.map.load(), participant.shard);
        }
        let wanted = self.transaction.settings_before.as_ref().unwrap_or(&self.settings);
        let wanted = match (is_map, participant.is_read_only) {
            (true, _) => &map_database::settings_there(wanted),
            (false, true) => &shard_state::settings_read_only(wanted),
            (false, false) => wanted,
        };
        let names = if is_map { &CustomNames::default() } else { &self.custom_names };
        let connection = &participant.connection;
        // What the pipeline has bound there may set them when it is executed.
        let may_be_set = |name: &str| participant.needs_sync && connection.doubted_names.contains(name);
        let has_names = names.iter().all(|name| connection.custom_names.contains(name) || may_be_set(name));
        let has_all = connection.settings == *wanted && has_names;
        if participant.has_begun || has_all {
            return Ok(());
        }
        if participant.needs_sync {
            // In the middle of a pipeline, whose failure would undo it.
            participant.pin_for_good();
            let statements = participant.connection.settings_statements(wanted, names);
            statements.iter().for_each(|sql| hidden_statement(participant, &Own::Setting.text(sql)));
            return Ok(());
        }
        match participant.connection.apply_settings(wanted, names).await {
            Ok(()) => Ok(()),
            Err(ConnectionError::Refused { body, .. }) => {
                Err(Failure::Shard(crate::session::protocol::describe::error_frame(&body)))
            }
            Err(error) => Err(self.participant_lost(index, &error)),
        }
    }

    /// Outside of a transaction, before connections are given back. What the session believes is no reason to let go of a connection: a
    /// statement that was skipped or has failed, or a function, has perhaps done something else. Only the shard knows what is left there,
    /// and is asked where nothing seems to be.
    pub(in crate::session) async fn end_pins(&mut self) -> Result<(), Failure> {
        let cursors = &self.cursors;
        let seems_over = |participant: &&Participant| match participant.pinned_by {
            Some(HELD_CURSOR) => cursors.values().all(|cursor| cursor.shard != participant.shard),
            _ => participant.has_unlocked,
        };
        let shards = self.transaction.participants().iter().filter(seems_over).map(|participant| participant.shard);
        for shard in shards.collect::<Vec<ShardId>>() {
            Box::pin(self.end_pin(shard)).await?;
        }
        Ok(())
    }

    /// Unless something is left there, nothing keeps the connection. Cursors that are left are put on record, so that the shard is asked
    /// again when they are closed.
    async fn end_pin(&mut self, shard: ShardId) -> Result<(), Failure> {
        let Some(index) = self.transaction.index_of(shard) else { return Ok(()) };
        let participant = self.transaction.at(index)?;
        if participant.needs_sync || participant.connection.owes() {
            return Ok(());
        }
        participant.has_unlocked = false;
        let (reason, question) = match participant.pinned_by {
            Some(HELD_CURSOR) => (HELD_CURSOR, OWN_CURSORS),
            Some(ADVISORY_LOCK) => (ADVISORY_LOCK, OWN_LOCKS),
            Some(_) | None => return Ok(()),
        };
        if participant.has_other_pins {
            return Ok(());
        }
        self.cancel.started(&participant.connection);
        match participant.connection.simple(&Own::Catalog.text(question)).await {
            Ok(rows) if rows.is_empty() => participant.unpin(reason),
            Ok(rows) if reason == HELD_CURSOR => {
                let names = rows.iter().filter_map(|row| row.first()?.as_deref());
                let on_shard = OnShard { shard, life: Life::Held, savepoints: 0 };
                self.cursors.extend(names.map(|name| (String::from_utf8_lossy(name).into_owned(), on_shard)));
            }
            // By the client's own limit of time, perhaps: it is asked again, about locks after the next unlock.
            Ok(_) | Err(ConnectionError::Refused { .. }) => {}
            Err(error) => return Err(self.participant_lost(index, &error)),
        }
        Ok(())
    }

    /// Gives back the connections that no transaction and no pin holds.
    pub(in crate::session) fn release_idle(&mut self) {
        if self.transaction.participants.is_empty() {
            return;
        }
        let has_cancelled = self.cancel.finished();
        if self.transaction.is_open() {
            return;
        }
        let keeps_all = self.gateway.config.pool.mode == PoolMode::Session;
        for index in (0..self.transaction.participants.len()).rev() {
            let is_kept = |participant: &Participant| {
                participant.pinned_by.is_some() || keeps_all && !participant.connection.pool().is_retired()
            };
            if !self.transaction.participants.get(index).is_some_and(is_kept) {
                if has_cancelled {
                    self.release(index);
                } else {
                    self.transaction.remove_participant(index).connection.release();
                }
            } else if let Some(participant) = self.transaction.participants.get_mut(index) {
                participant.forget_transaction();
            }
        }
    }

    pub(in crate::session) fn release(&mut self, index: usize) {
        let participant = self.transaction.remove_participant(index);
        crate::session::reads::gather::release(&self.cancel, participant.connection);
    }

    /// The connection broke: it is closed, the shard's other idle connections are suspect, an open transaction has failed.
    pub(in crate::session) fn participant_lost(&mut self, index: usize, error: &ConnectionError) -> Failure {
        let is_within_row = self.is_within_row();
        let name = self.transaction.participants.get(index).map(|participant| participant.connection.pool().address.name.clone());
        let error = lost(&name.unwrap_or_default(), error);
        let failure = self.remove_lost(index, error, true);
        // The client would read the error as the rest of the row: all that is left is to close.
        if is_within_row { SessionEnd::Terminated.into() } else { failure }
    }

    /// `is_told`: the client hears the error now. A session whose connection held what cannot be brought back ends, as it
    /// would with its server.
    pub(in crate::session) fn remove_lost(&mut self, index: usize, error: PgError, is_told: bool) -> Failure {
        let participant = self.transaction.remove_participant(index);
        // What was too much for the proxy says nothing against the shard.
        let is_too_much = error.code == SqlState::CONFIGURATION_LIMIT_EXCEEDED;
        if participant.connection.loss().is_none() && !is_too_much {
            // It has not answered in time.
            participant.connection.pool().suspect();
        }
        if !is_too_much && participant.shard != MAP_DATABASE {
            self.gateway.recovery.was_away(participant.shard);
        }
        if let Some(reason) = participant.pinned_by {
            let detail = format!("The session's {reason} was on that connection.");
            return SessionEnd::Fatal(PgError { severity: Severity::Fatal, ..error.with_detail(detail) }).into();
        }
        if participant.has_begun && !participant.is_spare {
            self.transaction.lose(&error, is_told);
        }
        error.into()
    }
}

/// Why a connection is kept.
pub(in crate::session) const ADVISORY_LOCK: &str = "advisory lock";
/// Those of a transaction have ended with it.
const OWN_LOCKS: &str = "SELECT FROM pg_catalog.pg_locks \
    WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1";
/// Portals of the protocol are never holdable.
const OWN_CURSORS: &str = "SELECT name FROM pg_catalog.pg_cursors WHERE is_holdable";
/// Until the map database has answered, if it does.
const GENERATION_WAIT: Duration = Duration::from_secs(2);

/// Before the first shard is added only the functions and relations of the schema `shardgate` work.
fn no_shard_yet() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "the cluster has no shard yet")
        .with_detail("Only the functions and relations of the schema \"shardgate\" can be used before the first shard is added.")
        .with_hint("Add one: SELECT shardgate.add_shard('name', 'postgres://user@host:5432/database');")
}
