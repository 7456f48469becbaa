//! The map database: connections to it, its migrations, and how its answers become ours.
//!
//! Every connection is checked when it is made: a standby is refused, and a server that is not the one which gave the map's
//! incarnation (restored, promoted) takes a new incarnation before anything is read from it. So no two contents of the map
//! ever go under one epoch. A primary's identity cannot change while a connection to it lasts. A former primary, whose timeline is
//! older than the newest that this process has seen, is refused, and connections to it are given up: a pool is of one server
//! ([`Connections`]), and is replaced before its next use when the primary is another one.
//!
//! Where the URL names several hosts, connections go to the one that was the primary when it was looked for last:
//! [`Store::find_primary`], which is called when connections fail and, every second, in case that another one was promoted.
//!
//! All waits are bounded: [`CONNECT_TIMEOUT`] for a connection, [`READ_TIMEOUT`] for a reading, [`CHANGE_TIMEOUT`] for a change. The changes themselves are in
//! [`super::changes`], reading the whole map in [`super::loader`].

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{Connection, Execute, Executor, PgConnection, Postgres, SqlSafeStr};
use tokio::time::timeout;

use super::error::StoreError;
use super::model::Epoch;
use super::primary::{NotPrimary, Pledge, Primary, PrimaryServer, primary_changes};
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
    /// Replaced when they do not answer any more, or lead to a server that is not the primary any more.
    connections: Arc<ArcSwap<Connections>>,
    /// How long a connection is waited for.
    patience: Duration,
}

/// Connections to one server.
#[derive(Debug)]
struct Connections {
    pool: PgPool,
    /// Which their first connection has shown.
    server: Arc<OnceLock<PrimaryServer>>,
}

impl Connections {
    /// Makes none yet.
    fn lazy(options: PgConnectOptions, primary: &Arc<Primary>, patience: Duration) -> Self {
        let server = Arc::default();
        let pool = pool_options(primary, &server, patience).max_connections(CONNECTIONS_MAX).idle_timeout(IDLE_TIMEOUT);
        Self { pool: pool.connect_lazy_with(options), server }
    }

    /// Marked closed at once; its idle connections are closed when it is dropped. What is under way goes on.
    fn end(&self) {
        drop(self.pool.close());
    }

    fn is_at(&self, primary: Option<PrimaryServer>) -> bool {
        self.server.get().is_none_or(|server| primary == Some(*server))
    }
}

impl Database {
    /// With the password as it is now.
    fn options(&self) -> Result<PgConnectOptions, StoreError> {
        options(&self.url, &self.host.load())
    }

    /// To the host to which connections go now.
    fn new_connections(&self) -> Result<Arc<Connections>, StoreError> {
        Ok(Arc::new(Connections::lazy(self.options()?, &self.primary, self.patience)))
    }

    fn replace_connections(&self) -> Result<(), StoreError> {
        self.connections.swap(self.new_connections()?).end();
        Ok(())
    }

    /// Those to the server that is the primary, as far as this process has seen.
    fn connections(&self) -> Result<Arc<Connections>, StoreError> {
        let connections = self.connections.load_full();
        if connections.is_at(self.primary.server()) {
            return Ok(connections);
        }
        tracing::warn!("the map database has another primary");
        // Unless another task has done so, which may know of another host.
        let new = self.new_connections()?;
        if Arc::ptr_eq(&self.connections.compare_and_swap(&connections, new), &connections) {
            connections.end();
        }
        Ok(self.connections.load_full())
    }

    /// Of the server of a pool's connections, which is the primary, or nothing is to be asked of it.
    fn pledge_of(&self, server: &OnceLock<PrimaryServer>) -> Result<Option<Pledge>, StoreError> {
        let pledge = server.get().map(|server| self.primary.accept(*server)).transpose();
        pledge.map_err(|_| StoreError::no_answer())
    }

    /// From now on connections go to this host. True: it is another server than before.
    fn go_to(&self, host: Host, shown: PrimaryServer) -> bool {
        let is_other = **self.host.load() != host || !self.connections.load().is_at(Some(shown));
        if is_other {
            self.host.store(Arc::new(host));
            tracing::warn!(timeline = shown.timeline, "the map database has another primary");
            if let Err(error) = self.replace_connections() {
                tracing::warn!(%error, "no connection can be made to the map database");
            }
        }
        is_other
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
        let connections = Connections::lazy(options(&url, &first)?, &primary, patience);
        let connections = Arc::new(ArcSwap::from_pointee(connections));
        let (url, host) = (Arc::new(url), Arc::new(ArcSwap::from_pointee(first)));
        Ok(Self { database: Some(Database { url, host, primary, connections, patience }) })
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
        let outcome = prepare_connection(&mut connection, &self.primary(), None).await.map_err(StoreError::reading);
        close(connection).await;
        outcome
    }

    /// The map's epoch now.
    pub async fn epoch(&self) -> Result<Epoch, StoreError> {
        let row: (i64, i64) = self
            .answered(sqlx::query_as("SELECT incarnation, counter FROM shardgate_map.cluster").fetch_one(&self.pool()?))
            .await?;
        Ok(Epoch { incarnation: row.0, counter: row.1 })
    }

    /// Names the cluster in its prepared transactions: stays the same whatever becomes of the map's server.
    pub async fn cluster_id(&self) -> Result<String, StoreError> {
        let row: (String,) =
            self.answered(sqlx::query_as("SELECT cluster_id FROM shardgate_map.cluster").fetch_one(&self.pool()?)).await?;
        Ok(row.0)
    }

    pub async fn close(&self) {
        if let Some(database) = &self.database {
            database.connections.load_full().pool.close().await;
        }
    }

    /// What the map answers to a reading. A connection that does not answer may be dead without saying so, and so may be the others.
    pub(super) async fn answered<T>(&self, asking: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        match timeout(READ_TIMEOUT, Box::pin(asking)).await {
            Ok(answer) => answer.map_err(StoreError::reading),
            Err(_) => {
                self.replace_connections();
                Err(StoreError::no_answer())
            }
        }
    }

    pub(super) fn pool(&self) -> Result<PgPool, StoreError> {
        Ok(self.database()?.connections()?.pool.clone())
    }

    /// Which server is the map's primary now, as far as this process has seen.
    pub fn primary(&self) -> Arc<Primary> {
        self.database.as_ref().map(|database| Arc::clone(&database.primary)).unwrap_or_default()
    }

    /// Lets go of connections that may be dead without saying so: of a host that vanished, the kernel tells after a quarter of
    /// an hour. What is under way on them goes on.
    pub(super) fn replace_connections(&self) {
        if let Some(database) = &self.database
            && let Err(error) = database.replace_connections()
        {
            tracing::debug!(%error, "the connections to the map database are kept");
        }
    }

    pub(super) fn has_several_hosts(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.url.hosts.len() > 1)
    }

    /// Asks all hosts of the URL, and goes to the one with the newest timeline. Where no host of the database cluster that is known is a
    /// primary, and those of exactly one other are, goes there, as it was restored: not while a host is silent, which may be the one.
    /// True: it is another server than before. Bounded.
    pub(super) async fn find_primary(&self) -> bool {
        let Some(database) = self.database.as_ref().filter(|database| database.url.hosts.len() > 1) else { return false };
        let before = database.primary.server();
        let mut is_other = false;
        let mut strangers: Vec<(PrimaryServer, Host)> = Vec::new();
        let mut newest: Option<i32> = None;
        let asking = async {
            let mut attempts = Attempts::of(&database.url, "shardgate");
            while let Some((host, attempt)) = attempts.next().await {
                let Ok(mut connection) = attempt else { continue };
                let shown = server_of(&mut connection).await;
                close(connection).await;
                let Ok(Some(shown)) = shown else { continue };
                match database.primary.accept(shown) {
                    Ok(_) if newest < Some(shown.timeline) => {
                        newest = Some(shown.timeline);
                        is_other |= database.go_to(host, shown) || before.is_some_and(|before| before != shown);
                    }
                    Err(NotPrimary::OtherSystem) => strangers.push((shown, host)),
                    Ok(_) | Err(NotPrimary::Former | NotPrimary::Split) => {}
                }
            }
        };
        // Who has not answered by then is not it.
        let have_all_answered = timeout(FIND_TIMEOUT, Box::pin(asking)).await.is_ok();
        if newest.is_none()
            && have_all_answered
            && let Some((shown, host)) = newest_of_one_system(strangers)
        {
            database.primary.learn(shown);
            is_other = database.go_to(host, shown);
        }
        is_other
    }

    /// Hears of changes, on a connection of its own; with a pledge of its server.
    pub(super) async fn listen(&self) -> Result<(PgListener, Option<Pledge>), StoreError> {
        let database = self.database()?;
        // A listener takes its connection from a pool: one of one.
        let server = Arc::default();
        let pool =
            pool_options(&database.primary, &server, CONNECT_TIMEOUT).max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.connect_lazy_with(database.options()?);
        let listening = async {
            let mut listener = Box::pin(PgListener::connect_with(&pool)).await?;
            listener.eager_reconnect(false);
            Box::pin(listener.listen("shardgate_map")).await?;
            Ok(listener)
        };
        let listening = timeout(CONNECT_TIMEOUT, Box::pin(listening)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        Ok((listening.map_err(StoreError::reading)?, database.pledge_of(&server)?))
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

    /// With a pledge of the server to which it leads, not of the one that may have become the primary meanwhile.
    async fn connection_to_primary(&self) -> Result<(PoolConnection<Postgres>, Option<Pledge>), StoreError> {
        let database = self.database()?;
        for _ in 0..2 {
            let connections = database.connections()?;
            let connection = Box::pin(connections.pool.acquire()).await.map_err(StoreError::reading)?;
            // A new connection may be the first that shows another primary: then once more, by connections to that.
            if let Ok(pledge) = database.pledge_of(&connections.server) {
                return Ok((connection, pledge));
            }
        }
        Err(StoreError::no_answer())
    }

    /// One statement that calls one stored function of the map; it commits by itself. When this is cancelled the change may
    /// have been made or not.
    pub(super) async fn change<'q, Q>(&self, query: Q) -> Result<PgRow, StoreError>
    where
        Q: Execute<'q, Postgres> + 'q,
    {
        self.kept().await?.change(query).await
    }

    /// A connection for several changes, or readings, one after the other.
    pub(super) async fn kept(&self) -> Result<Kept, StoreError> {
        let (connection, pledge) = self.connection_to_primary().await?;
        Ok(Kept { connection, pledge })
    }
}

/// One connection to the primary.
pub(super) struct Kept {
    connection: PoolConnection<Postgres>,
    pledge: Option<Pledge>,
}

impl Kept {
    /// As [`Store::change`].
    pub(super) async fn change<'q, Q>(&mut self, query: Q) -> Result<PgRow, StoreError>
    where
        Q: Execute<'q, Postgres> + 'q,
    {
        let Self { connection, pledge } = self;
        in_time(pledge.as_ref(), connection.fetch_one(query)).await.map_err(StoreError::changing)
    }

    pub(super) async fn rows<'q, Q>(&mut self, query: Q) -> Result<Vec<PgRow>, StoreError>
    where
        Q: Execute<'q, Postgres> + 'q,
    {
        let Self { connection, pledge } = self;
        in_time(pledge.as_ref(), connection.fetch_all(query)).await.map_err(StoreError::reading)
    }

    /// A statement that is going to be run by this connection, as it is written there.
    pub(super) async fn prepare(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let Self { connection, pledge } = self;
        in_time(pledge.as_ref(), connection.prepare(sql.into_sql_str())).await.map(drop).map_err(StoreError::reading)
    }
}

async fn in_time<T>(pledge: Option<&Pledge>, answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let answer = async {
        tokio::select! {
            biased;
            // A former primary may wait for a standby that follows it no more, and what it says counts for nothing.
            () = primary_changes(pledge) => Err(sqlx::Error::PoolTimedOut),
            answer = answer => answer,
        }
    };
    timeout(CHANGE_TIMEOUT, Box::pin(answer)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// `server`: of the pool's connections.
fn pool_options(primary: &Arc<Primary>, server: &Arc<OnceLock<PrimaryServer>>, patience: Duration) -> PgPoolOptions {
    let (primary, server) = (Arc::clone(primary), Arc::clone(server));
    PgPoolOptions::new().acquire_timeout(patience).after_connect(move |connection, _| {
        let (primary, server) = (Arc::clone(&primary), Arc::clone(&server));
        Box::pin(async move { prepare_connection(connection, &primary, Some(&server)).await })
    })
}

/// `None`: there is none, or they are of several database clusters.
fn newest_of_one_system(mut found: Vec<(PrimaryServer, Host)>) -> Option<(PrimaryServer, Host)> {
    found.sort_by_key(|(shown, _)| shown.timeline);
    let (newest, host) = found.pop()?;
    let is_same = |(other, _): &(PrimaryServer, Host)| other.system_identifier == newest.system_identifier;
    found.iter().all(is_same).then_some((newest, host))
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
/// `None`: it is a standby.
async fn check_primary(connection: &mut PgConnection, primary: &Arc<Primary>) -> Result<Option<PrimaryServer>, sqlx::Error> {
    let Some(shown) = server_of(connection).await? else { return Ok(None) };
    match primary.accept(shown) {
        Ok(_) => Ok(Some(shown)),
        Err(NotPrimary::OtherSystem) => {
            primary.learn(shown);
            Ok(Some(shown))
        }
        Err(NotPrimary::Former | NotPrimary::Split) => Err(former_primary()),
    }
}

fn former_primary() -> sqlx::Error {
    sqlx::Error::Protocol("the map database is a former primary".to_owned())
}

/// The first connection of a pool says which server it is of. One that shows a newer server than that makes the pool outdated
/// ([`Connections::is_at`]); one to an older server, which was accepted a moment before, must not come into a pool of the newer one.
fn enter_pool(shown: PrimaryServer, server: &OnceLock<PrimaryServer>, primary: &Primary) -> Result<(), sqlx::Error> {
    server.get_or_init(|| shown);
    if primary.server() == Some(shown) { Ok(()) } else { Err(former_primary()) }
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
async fn prepare_connection(
    connection: &mut PgConnection,
    primary: &Arc<Primary>,
    server: Option<&OnceLock<PrimaryServer>>,
) -> Result<(), sqlx::Error> {
    let shown = check_primary(connection, primary).await?;
    if let (Some(shown), Some(server)) = (shown, server) {
        enter_pool(shown, server, primary)?;
    }
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
/// A reading waits for nobody's lock.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// A change waits for at most five seconds for the map's lock.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    const fn server(system_identifier: i64, timeline: i32) -> PrimaryServer {
        PrimaryServer { system_identifier, timeline }
    }

    #[tokio::test]
    async fn connections_to_a_server_that_is_the_primary_no_more_are_replaced() {
        let store = Store::new("postgres://us@127.0.0.1:1/map").expect("valid");
        let database = store.database().expect("there");
        let first = database.connections().expect("made");
        database.primary.accept(server(1, 1)).expect("the first");
        enter_pool(server(1, 1), &first.server, &database.primary).expect("the primary");
        assert!(Arc::ptr_eq(&first, &database.connections().expect("kept")));
        // Another connection, of this pool or not, has seen a promotion.
        database.primary.accept(server(1, 2)).expect("promoted");
        let second = database.connections().expect("made");
        assert!(first.pool.is_closed() && !second.pool.is_closed() && second.server.get().is_none());
        // Accepted before, and prepared after the first connection of the new pool.
        enter_pool(server(1, 2), &second.server, &database.primary).expect("the primary");
        enter_pool(server(1, 1), &second.server, &database.primary).expect_err("a former primary");
        assert!(Arc::ptr_eq(&second, &database.connections().expect("kept")));
    }

    #[tokio::test]
    async fn a_host_that_was_promoted_is_gone_to_even_if_its_timeline_is_known() {
        let store = Store::new("postgres://us@127.0.0.1:1,127.0.0.1:2/map").expect("valid");
        let database = store.database().expect("there");
        let hosts = database.url.hosts.clone();
        let first = database.connections().expect("made");
        database.primary.accept(server(1, 1)).expect("the first");
        enter_pool(server(1, 1), &first.server, &database.primary).expect("the primary");
        assert!(!database.go_to(hosts[0].clone(), server(1, 1)));
        database.primary.accept(server(1, 2)).expect("promoted");
        assert!(database.go_to(hosts[1].clone(), server(1, 2)) && first.pool.is_closed());
        assert!(!database.go_to(hosts[1].clone(), server(1, 2)));
    }

    #[test]
    fn only_one_other_system_can_be_meant() {
        let hosts = ShardUrl::parse("postgres://us@a,b,c/map").expect("valid").hosts;
        let found = |servers: &[PrimaryServer]| {
            let found = servers.iter().copied().zip(hosts.iter().cloned()).collect();
            newest_of_one_system(found).map(|(shown, host)| (shown, host.name))
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[server(2, 1)]), Some((server(2, 1), "a".to_owned())));
        assert_eq!(found(&[server(2, 1), server(2, 3), server(2, 2)]), Some((server(2, 3), "b".to_owned())));
        assert_eq!(found(&[server(2, 1), server(3, 1)]), None);
    }
}
