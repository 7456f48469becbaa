//! What an administrator has said of a shard, and what it means to a session: it takes no writes, or its statements wait.
//!
//! ```text
//!   read_only     BEGIN READ ONLY and default_transaction_read_only = on at the shard, whatever the client says: what cannot be
//!                 proven, such as a function, PostgreSQL refuses; what is proven to write is refused here, in clear words
//!   maintenance   no connection is given out: who needs one waits for the map to change, up to pool.maintenance_timeout_ms; a
//!                 statement over several shards waits before it uses the first of them
//! ```
//! One that may have rows of a move that was given up takes no statement at all, and nobody waits for it.
//!
//! A transaction that has begun there goes on to its end, its commit over several shards too. Who waits holds its map: the
//! statement is planned, and may be sent as soon as the shard is back. A connection that is kept for a session cannot follow a shard
//! to another server: such a session ends, and its client knows that what was there is gone.
//!
//! A password that is changed on the server and then in the map, or in its file, is wrong in between: for as long as a session would
//! wait for a connection it waits for the other one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::participant::Participant;
use crate::backend::{Checkout, CheckoutError, CustomNames, Pool, Pooled, Settings};
use crate::error::{PgError, SqlState};
use crate::session::commands::{listening, map_database};
use crate::session::ddl::redefined;
use crate::session::gateway::MAP_DATABASE;
use crate::session::route::Route;
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::{MapSnapshot, Shard, ShardId, ShardState};
use crate::sql::analysis::{Analysis, Command, Effect};
use crate::sql::written::WriteOf;

impl Session {
    /// A connection by the address that the shard has when one is free.
    pub(in crate::session) async fn wait_for_address(
        &mut self,
        kind: Checkout,
        shard: &Arc<Shard>,
        names: Option<&CustomNames>,
    ) -> Result<Result<Pooled, CheckoutError>, Failure> {
        let mut password_deadline = None;
        loop {
            self.wait_out_maintenance(shard.id).await?;
            let pool = self.pool(shard)?;
            match self.wait_for_connection(&pool, kind, names).await? {
                Err(CheckoutError::Retired { .. }) => {}
                Err(error) if error.is_wrong_password() && self.gateway.logs_in_by_url(shard.id) => {
                    // However long it has waited for its turn before.
                    let patience = self.gateway.config.pool.checkout_timeout();
                    let deadline = *password_deadline.get_or_insert_with(|| Instant::now() + patience);
                    if !self.wait_for_other_password(&pool, deadline).await? {
                        return Ok(Err(error));
                    }
                }
                found => return Ok(found),
            }
        }
    }

    /// Another url in the map, or a moment in which a password file may have been changed. False: there is none at the deadline.
    async fn wait_for_other_password(&mut self, pool: &Pool, deadline: Instant) -> Result<bool, Failure> {
        let is_map = pool.shard == MAP_DATABASE;
        let is_other = |map: &MapSnapshot| !is_map && map.shard(pool.shard).is_none_or(|shard| !pool.address.is_of(shard));
        match pool.address.has_password_file() {
            true => {
                let next = deadline.min(Instant::now() + PASSWORD_FILE_EVERY);
                Ok(self.wait_for_map(next, is_other).await? || Instant::now() < deadline)
            }
            false if is_map => Ok(false),
            false => self.wait_for_map(deadline, is_other).await,
        }
    }

    /// Before the first of these is used: who waits for one holds nothing on the others for it.
    pub(in crate::session) async fn wait_for_shards_of(&mut self, route: &Route) -> Result<(), Failure> {
        match route {
            Route::Shard(reach) | Route::Scatter(reach) => self.wait_for_shards(reach.shards()).await,
            Route::Write(writing) => self.wait_for_shards(writing.shards()).await,
            Route::Gather(gathering) => self.wait_for_shards(gathering.reach.shards()).await,
        }
    }

    pub(in crate::session) async fn wait_for_shards(&mut self, shards: &[ShardId]) -> Result<(), Failure> {
        for shard in shards {
            if in_maintenance(&self.gateway.map.load(), *shard).is_none() {
                continue;
            }
            refuse_owing(&self.gateway.map.load(), *shard)?;
            if !self.transaction.participants.iter().any(|participant| participant.shard == *shard) {
                Box::pin(self.wait_out_maintenance(*shard)).await?;
            }
        }
        Ok(())
    }

    async fn wait_out_maintenance(&mut self, shard: ShardId) -> Result<(), Failure> {
        let Some(name) = in_maintenance(&self.gateway.map.load(), shard).map(str::to_owned) else { return Ok(()) };
        refuse_owing(&self.gateway.map.load(), shard)?;
        let timeout = self.gateway.config.pool.maintenance_timeout();
        if self.wait_for_map(Instant::now() + timeout, |map| in_maintenance(map, shard).is_none()).await? {
            return Ok(());
        }
        let detail = format!("It was not back within {} ms (pool.maintenance_timeout_ms).", timeout.as_millis());
        Err(not_back(&name).with_detail(detail).into())
    }

    /// Until the map is so: false at the deadline. The client may cancel, or go, and its own limits count.
    async fn wait_for_map(&mut self, deadline: Instant, is_so: impl Fn(&MapSnapshot) -> bool) -> Result<bool, Failure> {
        let (gateway, cancel, patience) = (Arc::clone(&self.gateway), Arc::clone(&self.cancel), redefined::patience(self));
        let mut epochs = gateway.map.subscribe();
        loop {
            if is_so(&gateway.map.load()) {
                return Ok(true);
            }
            tokio::select! {
                biased;
                _ = epochs.changed() => {}
                failure = patience.ends(&cancel) => return Err(failure.into()),
                () = sleep_until(deadline) => return Ok(false),
            }
        }
    }

    /// What this connection is given for a session with these settings.
    pub(in crate::session) fn settings_on(&self, connection: &Pooled, settings: &Arc<Settings>) -> Arc<Settings> {
        let pool = connection.pool();
        if pool.shard == MAP_DATABASE {
            return map_database::settings_there(settings);
        }
        match pool.address.state {
            ShardState::ReadOnly => settings_read_only(settings),
            ShardState::Preparing | ShardState::Online | ShardState::Draining | ShardState::Maintenance => Arc::clone(settings),
        }
    }

    /// A statement that is known to write does not reach a shard that takes no writes.
    pub(in crate::session) fn check_writable(&self, statement: &Analysis, text: &str, route: &Route) -> Result<(), PgError> {
        let map = self.gateway.map.load();
        let is_read_only = |shard: &&ShardId| is_read_only(&map, **shard);
        let shards: &[ShardId] = match route {
            Route::Shard(reach) if statement.effect == Effect::Write => reach.shards(),
            Route::Write(writing) => writing.shards(),
            Route::Shard(reach) | Route::Scatter(reach) if statement.effect == Effect::ReadLocking => reach.shards(),
            Route::Shard(_) | Route::Scatter(_) | Route::Gather(_) => &[],
        };
        let Some(shard) = shards.iter().find(is_read_only).and_then(|shard| map.shard(*shard)) else { return Ok(()) };
        let verb = match &statement.command {
            Command::Query(_) if statement.effect == Effect::ReadLocking => "SELECT FOR UPDATE or SHARE",
            // PostgreSQL decides by the mode.
            _ if statement.effect == Effect::ReadLocking => return Ok(()),
            Command::Truncate { .. } => "TRUNCATE TABLE",
            _ if statement.copy_in.is_some() => "COPY FROM",
            _ => match WriteOf::read(statement.alone(text), &self.context)? {
                Some(write) if write.is_of_lasting_tables => write.verb,
                // PostgreSQL decides.
                Some(_) | None => return Ok(()),
            },
        };
        Err(refused(verb, &shard.name))
    }

    /// A schema change is made on all of these shards, or on none.
    pub(in crate::session) fn check_all_writable(&self, tag: &str, shards: &[ShardId]) -> Result<(), PgError> {
        let map = self.gateway.map.load();
        let read_only = shards.iter().find(|shard| is_read_only(&map, **shard)).and_then(|shard| map.shard(*shard));
        read_only.map_or(Ok(()), |shard| Err(refused(tag, &shard.name)))
    }

    /// Between transactions: connections of a retired pool are given up. A session whose connection is kept for what is there ends
    /// when the shard is somewhere else.
    pub(in crate::session) fn leave_old_addresses(&mut self) -> Result<(), SessionEnd> {
        let is_left = |participant: &Participant| participant.pinned_by.is_none() && participant.connection.pool().is_retired();
        for index in (0..self.transaction.participants.len()).rev() {
            if self.transaction.participants.get(index).is_some_and(is_left) {
                self.release(index);
            }
        }
        // Who listens would miss something.
        listening::check_listening(self)?;
        let map = self.gateway.map.load();
        for participant in &self.transaction.participants {
            let address = &participant.connection.pool().address;
            let has_moved = || map.shard(participant.shard).is_some_and(|shard| address.url != shard.url && !address.is_at(shard));
            if let Some(reason) = participant.pinned_by.filter(|_| participant.shard != MAP_DATABASE && has_moved()) {
                let message = format!("terminating connection because shard \"{}\" is on another server now", address.name);
                let error = PgError::fatal(SqlState::ADMIN_SHUTDOWN, message)
                    .with_detail(format!("The session's {reason} was on the connection to the one before."))
                    .with_hint("Connect again.");
                return Err(SessionEnd::Fatal(error));
            }
        }
        Ok(())
    }
}

/// How often a changed password file is tried.
const PASSWORD_FILE_EVERY: Duration = Duration::from_millis(100);

/// Where nothing is to be written, whatever the client has said.
pub(in crate::session) fn settings_read_only(settings: &Settings) -> Arc<Settings> {
    Arc::new(settings.with("default_transaction_read_only", "on"))
}

pub(in crate::session) fn is_read_only(map: &MapSnapshot, shard: ShardId) -> bool {
    map.shard(shard).is_some_and(|shard| shard.state == ShardState::ReadOnly)
}

/// What to say where it is not waited for.
pub(in crate::session) fn any_in_maintenance(map: &MapSnapshot, shards: &[ShardId]) -> Option<PgError> {
    shards.iter().find_map(|shard| in_maintenance(map, *shard)).map(not_back)
}

/// In a transaction that has begun there, too: what it would read by the map of now is not left out of the texts any more.
fn refuse_owing(map: &MapSnapshot, shard: ShardId) -> Result<(), PgError> {
    let Some(shard) = map.shard(shard).filter(|shard| shard.owes) else { return Ok(()) };
    let message = format!("shard \"{}\" is not used until an administrator has cleaned it", shard.name);
    Err(PgError::new(SqlState::CANNOT_CONNECT_NOW, message)
        .with_detail("A move was given up while it was away: it may have rows that another shard owns.")
        .with_hint(
            "\"shard-rebalance doctor --fix\" deletes them when the shard is back. Statements for other shards are not affected.",
        ))
}

fn not_back(shard: &str) -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is in maintenance"))
        .with_hint("Retry later; statements for other shards are not affected.")
}

/// The shard's name.
fn in_maintenance(map: &MapSnapshot, shard: ShardId) -> Option<&str> {
    map.shard(shard).filter(|shard| shard.state == ShardState::Maintenance).map(|shard| shard.name.as_str())
}

fn refused(verb: &str, shard: &str) -> PgError {
    PgError::new(SqlState::READ_ONLY_SQL_TRANSACTION, format!("cannot execute {verb} on shard \"{shard}\", which is read-only"))
        .with_detail("An administrator has set the state of the shard to read_only.")
        .with_hint(format!("SELECT shardgate.alter_shard('{shard}', state => 'online') lets it take writes again."))
}
