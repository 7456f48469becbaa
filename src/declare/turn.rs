//! One declaration at a time: those that copy rows, close gates or make plans by the shards' schema wait for each other.
//!
//! ```text
//! home:  lock ────────────────────────────────────────────────────────────────────► released with the connection
//! map:        begin ─► no schema change is open ─► read the map, plan, gates ─► the change, if begin is still the last one
//! ```
//! The lock is a session's on the home shard, held by the connection through which gates are closed and opened: who has lost the
//! lock can do neither. What it may still do is change the map, when it was frozen or its change was on the way; so the map
//! takes changes of the declaration that has begun last only, and by a plan that still holds ([`Planned`]). It refuses schema
//! changes that were planned before a declaration just as well, so that neither misses the other. A declaration that was overtaken
//! is planned anew ([`repeated`]).
//!
//! `drop_shard`, keys, partitions and functions are changes of the map alone, which its own lock orders: they do not wait here.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Control;
use super::shard_connection::ShardConnection;
use crate::error::{PgError, SqlState};
use crate::shardmap::{DECLARATION_LOCK, MapSnapshot, Planned, Shard, ShardState, StoreError};

/// Why a declaration was not made.
#[derive(Debug)]
pub(super) enum Unmade {
    /// What it was planned by has changed meanwhile, or a shard has chosen it to end a deadlock: planned anew it may be made, or have a
    /// better reason.
    Overtaken(PgError),
    Failed(PgError),
}

impl From<PgError> for Unmade {
    fn from(error: PgError) -> Self {
        match error.code {
            SqlState::DEADLOCK_DETECTED => Self::Overtaken(error),
            _ => Self::Failed(error),
        }
    }
}

impl From<StoreError> for Unmade {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(error) if error.code == SqlState::SERIALIZATION_FAILURE => Self::Overtaken(error),
            error => Self::Failed(error.into()),
        }
    }
}

/// Plans and tries to declare, again while it is overtaken.
pub(super) async fn repeated<F: Future<Output = Result<(), Unmade>>>(mut declare: impl FnMut() -> F) -> Result<(), PgError> {
    let mut attempt = 1;
    loop {
        match Box::pin(declare()).await {
            Ok(()) => return Ok(()),
            Err(Unmade::Overtaken(error)) if attempt < ATTEMPTS => {
                tracing::info!(reason = %error.message, "a declaration is planned anew");
                attempt += 1;
            }
            Err(Unmade::Overtaken(error) | Unmade::Failed(error)) => return Err(error),
        }
    }
}

/// Each one has waited until no schema change was open.
const ATTEMPTS: usize = 5;

/// While it lives nobody else declares.
#[must_use = "others wait for it"]
pub(super) struct Turn {
    pub(super) home_shard: Arc<Shard>,
    /// Holds the lock.
    pub(super) home: ShardConnection,
    /// Read after the declaration had begun.
    pub(super) snapshot: MapSnapshot,
    planned: Planned,
}

impl Turn {
    /// Waits for the declaration that is under way, and for schema changes that are open. `None`: there is no home shard yet.
    pub(super) async fn take(control: &Control) -> Result<Option<Self>, PgError> {
        let Some(home_shard) = control.fresh_snapshot().await?.home().cloned() else { return Ok(None) };
        let mut home = control.open(&home_shard).await?;
        lock(&mut home).await?;
        let (planned, snapshot) = begin(control).await?;
        Ok(Some(Self { home_shard, home, snapshot, planned }))
    }

    /// For the change of the map: what was read and done on the home shard is there, as no other server of it was promoted.
    pub(super) fn planned(&self) -> Result<Planned, StoreError> {
        self.home.check_primary().map_err(StoreError::Refused)?;
        Ok(self.planned)
    }

    /// But the home shard, where statements go.
    pub(super) fn other_shards(&self) -> Vec<Arc<Shard>> {
        self.snapshot.shards.iter().filter(|shard| !shard.is_home && shard.state.is_ready()).cloned().collect()
    }

    /// After a change of its own the declaration goes on as a new one, planned by the map as it is now.
    pub(super) async fn begin_again(&mut self, control: &Control) -> Result<(), PgError> {
        (self.planned, self.snapshot) = begin(control).await?;
        Ok(())
    }

    /// What declares a table makes it, or writes its rows, on every shard.
    pub(super) fn require_writable(&self) -> Result<(), PgError> {
        let is_closed = |shard: &&Arc<Shard>| matches!(shard.state, ShardState::ReadOnly | ShardState::Maintenance);
        let Some(shard) = self.snapshot.shards.iter().find(is_closed) else { return Ok(()) };
        let (name, state) = (&shard.name, shard.state.name());
        Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cannot declare a table while a shard takes no writes")
            .with_detail(format!("The state of shard \"{name}\" is \"{state}\"."))
            .with_hint(format!("First SELECT shardgate.alter_shard('{name}', state => 'online').")))
    }

    pub(super) async fn end(self) {
        self.home.close().await;
    }
}

async fn lock(home: &mut ShardConnection) -> Result<(), PgError> {
    home.run(&format!("SET lock_timeout = '{}s'", TURN_PATIENCE.as_secs())).await?;
    home.run(&format!("SELECT pg_advisory_lock({DECLARATION_LOCK})")).await.map_err(|error| match error.code {
        SqlState::LOCK_NOT_AVAILABLE => PgError::new(SqlState::LOCK_NOT_AVAILABLE, "another declaration is under way")
            .with_detail(format!("It has not ended within {} s, and only one can be made at a time.", TURN_PATIENCE.as_secs()))
            .with_hint("Call the function again when add_shard(), distribute_table() or reference_table() of the other has ended."),
        _ => error,
    })?;
    home.settle().await
}

async fn begin(control: &Control) -> Result<(Planned, MapSnapshot), PgError> {
    let deadline = Instant::now() + SCHEMA_PATIENCE;
    loop {
        let (planned, open_changes) = control.map.store().begin_declaration().await?;
        if open_changes == 0 {
            return Ok((planned, control.fresh_snapshot().await?));
        }
        if Instant::now() >= deadline {
            return Err(PgError::new(SqlState::OBJECT_IN_USE, "the schema of the shards is being changed")
                .with_detail(
                    "A transaction that has run DDL is still open, or was lost with its proxy and is not cleared away yet.",
                )
                .with_hint("Call the function again when it has ended."));
        }
        sleep(SCHEMA_POLL_INTERVAL).await;
    }
}

/// Longer than a declaration waits for the proxies. Copying rows may take longer.
const TURN_PATIENCE: Duration = Duration::from_secs(60);
/// As long as a declaration waits for a table's lock.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(5);
const SCHEMA_POLL_INTERVAL: Duration = Duration::from_millis(20);
