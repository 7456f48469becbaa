//! The map database: connections to it, its migrations, and how its answers become ours.
//!
//! Every connection is checked when it is made: a standby is refused, and a server that is not the one which gave the map's
//! incarnation (restored, promoted) takes a new incarnation before anything is read from it. So no two contents of the map
//! ever go under one epoch. A primary's identity cannot change while a connection to it lasts. A former primary, whose timeline is
//! older than the newest that this process has seen, is refused, and connections to it are given up.
//!
//! Where the URL names several hosts, connections go to the one that was the primary when it was looked for last:
//! [`Store::find_primary`], which is called when connections fail and, every second, in case that another one was promoted.
//!
//! All waits are bounded: [`CONNECT_TIMEOUT`] for a connection, [`CHANGE_TIMEOUT`] for a change. The changes themselves are in
//! [`super::changes`], reading the whole map in [`super::loader`].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{Connection, Execute, Executor, PgConnection, Postgres};
use tokio::time::timeout;

use super::error::StoreError;
use super::model::Epoch;
use super::primary::{NotPrimary, Pledge, Primary, PrimaryServer};
use crate::config::{Host, ShardUrl, UrlError};
use crate::error::{PgError, SqlState};
use crate::net::{Attempts, ConnectOptionsError, connect_options};

/// The version of the map's schema before and after its migration; `None`: it was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub before: Option<i64>,
    pub after: i64,
}

/// Cheap to clone: clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    /// `None`: there is no map database, see [`Store::absent`].
    database: Option<Database>,
}

#[derive(Clone, Debug)]
struct Database {
    url: Arc<ShardUrl>,
    /// Of the URL's hosts, where connections go.
    host: Arc<ArcSwap<Host>>,
    primary: Arc<Primary>,
    /// Replaced when its connections do not answer any more.
    pool: Arc<ArcSwap<PgPool>>,
    /// How long a connection is waited for.
    patience: Duration,
}

impl Database {
    /// With the password as it is now.
    fn options(&self) -> Result<PgConnectOptions, StoreError> {
        options(&self.url, &self.host.load())
    }

    fn shared_pool(&self) -> Result<PgPool, StoreError> {
        let options = pool_options(&self.primary, self.patience).max_connections(CONNECTIONS_MAX).idle_timeout(IDLE_TIMEOUT);
        Ok(options.connect_lazy_with(self.options()?))
    }
}

fn options(url: &ShardUrl, host: &Host) -> Result<PgConnectOptions, StoreError> {
    connect_options(url, host, "shardgate").map_err(|error| match error {
        ConnectOptionsError::Url(error) => StoreError::Url(error),
        // The file may be there in a moment.
        ConnectOptionsError::Password(error) => StoreError::Unreachable(Arc::new(sqlx::Error::Configuration(Box::new(error)))),
    })
}

impl Store {
    /// Takes no connection yet.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Self::with_patience(url, CONNECT_TIMEOUT)
    }

    /// For a command, behind which no client waits: a map database that is slow to answer does not end it.
    pub async fn of_command(url: &str) -> Result<Self, StoreError> {
        let store = Self::with_patience(url, COMMAND_CONNECT_TIMEOUT)?;
        store.find_primary().await;
        Ok(store)
    }

    fn with_patience(url: &str, patience: Duration) -> Result<Self, StoreError> {
        let url = ShardUrl::parse(url).map_err(StoreError::Url)?;
        let first = url.hosts.first().cloned().ok_or(StoreError::Url(UrlError::Missing("host")))?;
        let primary: Arc<Primary> = Arc::default();
        let pool = pool_options(&primary, patience).max_connections(CONNECTIONS_MAX).idle_timeout(IDLE_TIMEOUT);
        let pool = Arc::new(ArcSwap::from_pointee(pool.connect_lazy_with(options(&url, &first)?)));
        let (url, host) = (Arc::new(url), Arc::new(ArcSwap::from_pointee(first)));
        Ok(Self { database: Some(Database { url, host, primary, pool, patience }) })
    }

    /// A store without a database: everything is unreachable.
    pub(super) fn absent() -> Self {
        Self { database: None }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.database.is_none()
    }

    /// Creates the map's schema, or brings it to this version. Any number of processes may do so at once.
    pub async fn migrate(&self) -> Result<Migrated, StoreError> {
        let mut connection = self.connect_bare().await?;
        let outcome = migrate_on(&mut connection).await;
        let outcome = match outcome {
            Err(StoreError::Refused(error)) if error.code == SqlState::INSUFFICIENT_PRIVILEGE => {
                Err(StoreError::Refused(with_missing_rights(error, &mut connection).await))
            }
            outcome => outcome,
        };
        close(connection).await;
        outcome
    }

    /// That the map database answers, is a primary and has the schema: with the reason, which the pool would only time out on.
    pub async fn check(&self) -> Result<(), StoreError> {
        let mut connection = self.connect_bare().await?;
        let outcome = prepare_connection(&mut connection, &self.primary()).await.map_err(StoreError::reading);
        close(connection).await;
        outcome
    }

    /// The map's epoch now.
    pub async fn epoch(&self) -> Result<Epoch, StoreError> {
        let row: (i64, i64) = sqlx::query_as("SELECT incarnation, counter FROM shardgate_map.cluster")
            .fetch_one(&self.pool()?)
            .await
            .map_err(StoreError::reading)?;
        Ok(Epoch { incarnation: row.0, counter: row.1 })
    }

    /// Names the cluster in its prepared transactions: stays the same whatever becomes of the map's server.
    pub async fn cluster_id(&self) -> Result<String, StoreError> {
        let row: (String,) = sqlx::query_as("SELECT cluster_id FROM shardgate_map.cluster")
            .fetch_one(&self.pool()?)
            .await
            .map_err(StoreError::reading)?;
        Ok(row.0)
    }

    pub async fn close(&self) {
        if let Some(database) = &self.database {
            database.pool.load_full().close().await;
        }
    }

    pub(super) fn pool(&self) -> Result<PgPool, StoreError> {
        Ok(self.database()?.pool.load().as_ref().clone())
    }

    /// Which server is the map's primary now, as far as this process has seen.
    pub fn primary(&self) -> Arc<Primary> {
        self.database.as_ref().map(|database| Arc::clone(&database.primary)).unwrap_or_default()
    }

    /// Lets go of connections that may be dead without saying so: of a host that vanished, the kernel tells after a quarter of
    /// an hour. What is under way on them goes on.
    pub(super) fn replace_connections(&self) {
        if let Some(database) = &self.database
            && let Ok(pool) = database.shared_pool()
        {
            let old = database.pool.swap(Arc::new(pool));
            // Marked closed at once; its idle connections are closed when it is dropped.
            drop(old.close());
        }
    }

    pub(super) fn has_several_hosts(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.url.hosts.len() > 1)
    }

    /// Asks all hosts of the URL, and goes to the one with the newest timeline. True: it is another server than before. Bounded.
    pub(super) async fn find_primary(&self) -> bool {
        let Some(database) = self.database.as_ref().filter(|database| database.url.hosts.len() > 1) else { return false };
        let before = database.primary.server();
        let mut newest: Option<(PrimaryServer, Host)> = None;
        let asking = async {
            let mut attempts = Attempts::of(&database.url, "shardgate");
            while let Some((host, attempt)) = attempts.next().await {
                let Ok(mut connection) = attempt else { continue };
                let shown = server_of(&mut connection).await;
                close(connection).await;
                let is_newer = |shown: &PrimaryServer| newest.as_ref().is_none_or(|(known, _)| known.timeline < shown.timeline);
                if let Ok(Some(shown)) = shown
                    && is_newer(&shown)
                    && database.primary.accept(shown).is_ok()
                {
                    newest = Some((shown, host));
                }
            }
        };
        // Who has not answered by then is not it.
        drop(timeout(FIND_TIMEOUT, Box::pin(asking)).await);
        let Some((found, host)) = newest else { return false };
        let is_elsewhere = **database.host.load() != host;
        database.host.store(Arc::new(host));
        let is_other = is_elsewhere || before.is_some_and(|before| before != found);
        if is_other {
            tracing::warn!(timeline = found.timeline, "the map database has another primary");
            self.replace_connections();
        }
        is_other
    }

    /// Hears of changes, on a connection of its own.
    pub(super) async fn listen(&self) -> Result<PgListener, StoreError> {
        let database = self.database()?;
        // A listener takes its connection from a pool: one of one.
        let pool = pool_options(&database.primary, CONNECT_TIMEOUT).max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.connect_lazy_with(database.options()?);
        let listening = async {
            let mut listener = Box::pin(PgListener::connect_with(&pool)).await?;
            listener.eager_reconnect(false);
            Box::pin(listener.listen("shardgate_map")).await?;
            Ok(listener)
        };
        timeout(CONNECT_TIMEOUT, Box::pin(listening)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(StoreError::reading)
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or_else(StoreError::no_answer)
    }

    /// A connection outside of the pool, neither checked nor prepared. Its owner closes it.
    async fn connect_bare(&self) -> Result<PgConnection, StoreError> {
        let database = self.database()?;
        self.find_primary().await;
        let options = database.options()?;
        let connecting = timeout(database.patience, Box::pin(PgConnection::connect_with(&options)));
        connecting.await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(StoreError::reading)
    }

    /// One statement that calls one stored function of the map; it commits by itself. When this is cancelled the change may
    /// have been made or not.
    pub(super) async fn change<'q, Q>(&self, query: Q) -> Result<PgRow, StoreError>
    where
        Q: Execute<'q, Postgres> + 'q,
    {
        let pledge = self.primary().pledge();
        let mut connection = Box::pin(self.pool()?.acquire()).await.map_err(StoreError::reading)?;
        let answer = async {
            match &pledge {
                // A former primary may wait for a standby that follows it no more, and what it says counts for nothing.
                Some(pledge) => tokio::select! {
                    biased;
                    () = pledge.broken() => Err(sqlx::Error::PoolTimedOut),
                    answer = connection.fetch_one(query) => answer,
                },
                None => connection.fetch_one(query).await,
            }
        };
        timeout(CHANGE_TIMEOUT, Box::pin(answer)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(StoreError::changing)
    }
}

fn pool_options(primary: &Arc<Primary>, patience: Duration) -> PgPoolOptions {
    let primary = Arc::clone(primary);
    PgPoolOptions::new().acquire_timeout(patience).after_connect(move |connection, _| {
        let primary = Arc::clone(&primary);
        Box::pin(async move { prepare_connection(connection, &primary).await.map(drop) })
    })
}

/// `None`: it is a standby.
async fn server_of(connection: &mut PgConnection) -> Result<Option<PrimaryServer>, sqlx::Error> {
    let (system_identifier, timeline): (i64, Option<i32>) = sqlx::query_as(
        "SELECT c.system_identifier, CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN
             ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int4 END
         FROM pg_catalog.pg_control_system() c",
    )
    .fetch_one(connection)
    .await?;
    Ok(timeline.map(|timeline| PrimaryServer { system_identifier, timeline }))
}

/// The map's own database may be restored elsewhere: then it is another incarnation, and only its timelines can be compared.
async fn check_primary(connection: &mut PgConnection, primary: &Arc<Primary>) -> Result<Option<Pledge>, sqlx::Error> {
    let Some(shown) = server_of(connection).await? else { return Ok(None) };
    match primary.accept(shown) {
        Ok(pledge) => Ok(Some(pledge)),
        Err(NotPrimary::OtherSystem) => {
            primary.learn(shown);
            Ok(primary.accept(shown).ok())
        }
        Err(NotPrimary::Former) => Err(sqlx::Error::Protocol("the map database is a former primary".to_owned())),
    }
}

/// Every version of the map's schema, oldest first; the bookkeeping lies in the map's own schema.
pub fn migrations() -> Migrator {
    with_bookkeeping(sqlx::migrate!("./shardmap-migrations"))
}

/// Only the first `count` versions: to make a map as an earlier version of this program left it.
pub fn migrations_up_to(count: usize) -> Migrator {
    let all = sqlx::migrate!("./shardmap-migrations");
    with_bookkeeping(Migrator::with_migrations(all.iter().take(count).cloned().collect()))
}

fn with_bookkeeping(mut migrator: Migrator) -> Migrator {
    migrator.create_schemas = Cow::Owned(vec![Cow::Borrowed("shardgate_map")]);
    migrator.table_name = Cow::Borrowed("shardgate_map._sqlx_migrations");
    migrator
}

async fn migrate_on(connection: &mut PgConnection) -> Result<Migrated, StoreError> {
    // "already exists, skipping" is no news.
    connection.execute("SET client_min_messages = warning").await.map_err(StoreError::reading)?;
    let before = version_of(connection).await?;
    migrations().run(&mut *connection).await.map_err(migration_failed)?;
    Ok(Migrated { before, after: version_of(connection).await?.unwrap_or_default() })
}

/// `None`: there is no map.
async fn version_of(connection: &mut PgConnection) -> Result<Option<i64>, StoreError> {
    let there = "SELECT pg_catalog.to_regclass('shardgate_map._sqlx_migrations') IS NOT NULL";
    let is_there: bool = sqlx::query_scalar(there).fetch_one(&mut *connection).await.map_err(StoreError::reading)?;
    if !is_there {
        return Ok(None);
    }
    let version = "SELECT pg_catalog.max(version) FROM shardgate_map._sqlx_migrations WHERE success";
    sqlx::query_scalar(version).fetch_one(connection).await.map_err(StoreError::reading)
}

/// What the role of the map's url lacks, and the GRANT.
async fn with_missing_rights(error: PgError, connection: &mut PgConnection) -> PgError {
    let rights = "SELECT pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(current_database()), \
                  pg_catalog.has_database_privilege(current_database(), 'CREATE'), \
                  (SELECT pg_catalog.quote_ident(r.rolname) FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner \
                   WHERE n.nspname IN ('shardgate', 'shardgate_map') AND NOT pg_catalog.pg_has_role(r.oid, 'USAGE') LIMIT 1)";
    let found: Result<(String, String, bool, Option<String>), _> = sqlx::query_as(rights).fetch_one(connection).await;
    match found {
        Ok((user, database, false, _)) => error
            .with_detail(format!("Role {user} may not create the schemas of the shard map in database {database}."))
            .with_hint(format!("GRANT CREATE ON DATABASE {database} TO {user}")),
        Ok((user, _, true, Some(owner))) => {
            error.with_detail(format!("The shard map belongs to role {owner}.")).with_hint(format!("GRANT {owner} TO {user}"))
        }
        Ok(_) | Err(_) => error,
    }
}

fn migration_failed(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => StoreError::reading(error),
        other => StoreError::OtherVersion(Arc::new(other)),
    }
}

/// Settings that a role or a database may have turned off, and the checks of the server.
async fn prepare_connection(connection: &mut PgConnection, primary: &Arc<Primary>) -> Result<(), sqlx::Error> {
    check_primary(connection, primary).await?;
    connection
        .execute(
            "SET default_transaction_isolation = 'read committed';
             SET default_transaction_read_only = off;
             SET statement_timeout = 0;
             SET lock_timeout = '5s';
             SET idle_in_transaction_session_timeout = '30s';
             SELECT pg_catalog.set_config('synchronous_commit', 'on', false)
             WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
             SELECT shardgate_map.adopt();",
        )
        .await?;
    Ok(())
}

/// For connections whose end matters to nobody: the server notices by itself when this fails.
async fn close(connection: PgConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "connection to the map database did not close cleanly");
    }
}

/// A proxy reads the map seldom and in batches.
const CONNECTIONS_MAX: u32 = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Below a second, so that a statement whose key is unknown hears of a missing map within one.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(800);
/// Of all hosts together: a host that is well answers in a fraction of it.
const FIND_TIMEOUT: Duration = Duration::from_millis(700);
/// As other servers are waited for.
const COMMAND_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A change waits for at most five seconds for the map's lock.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
