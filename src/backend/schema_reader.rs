//! The connections over which this proxy reads the shards' schemas, one for each shard, and what the last reading has left.
//!
//! ```text
//! none ─► open: the shard is checked, everything is read ─► kept: what has changed is read ─► closed: none
//! ```
//! The connection is the proof that the server is the one that was read before: only then are changes enough. Before each reading it
//! shows that its server is still the shard's primary, and the one to which this proxy's last connection was made: an old TCP session may
//! outlive a change of the address. It is closed when it cannot, when a reading fails or is given up, when the shard has another address,
//! and after a minute; everything is read again then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use sqlx::postgres::types::Oid;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use super::catalog_reader::{self, Known, WhenHeld};
use super::foreign_oids::{Nesting, OID_NAMES_SQL, OidName, OidNames};
use super::identity::{self, Expected, Misdirected, Shown};
use crate::catalog::Catalog;
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::net::Attempts;
use crate::shardmap::{Pledge, Shard, ShardId};

#[derive(Default)]
pub struct SchemaReader {
    kept: Option<Kept>,
    known: Known,
    /// What the last reading has found that logins are given: of the home shard alone.
    defaults: Vec<StoredDefault>,
}

/// One setting of `pg_db_role_setting`: what ALTER ROLE and ALTER DATABASE give to logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefault {
    /// `None`: of everybody.
    pub role: Option<String>,
    pub is_of_database: bool,
    /// As stored: `name=value`.
    pub setting: String,
}

/// Of the current database: whose it is, whether it is the database's, the setting.
const STORED_DEFAULTS: &str = "
    SELECT r.rolname::pg_catalog.text, s.setdatabase <> 0, setting
    FROM pg_catalog.pg_db_role_setting s
    CROSS JOIN pg_catalog.unnest(s.setconfig) AS setting
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
    WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
      AND (s.setrole = 0 OR r.oid IS NOT NULL)
    ORDER BY 1, 2, 3";

/// Who reads, until he is ready.
pub type ReadersTurn = OwnedMutexGuard<SchemaReader>;

struct Kept {
    url: String,
    opened: Instant,
    connection: PgConnection,
    /// `None`: the map does not know yet which database it has to be.
    pledge: Option<Pledge>,
}

/// A whole reading once in this time costs little.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// The connection answers at once, or it is another one's turn.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// For a statement that can do without: a server that takes longer to let one in does not answer at all.
pub const OPENS_SOON: Duration = Duration::from_secs(3);
pub const OPENS_WITHIN: Duration = Duration::from_secs(10);
/// For the connection and the queries, however often they are tried.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl SchemaReader {
    /// Without definitions that others hold. Within [`READ_TIMEOUT`]. Cancel safe: the connection is closed then.
    pub async fn read(&mut self, shard: &Shard, opens_within: Duration) -> Result<Catalog, PgError> {
        in_time(shard, self.read_changes(shard, opens_within)).await
    }

    /// As [`read`], which prints nothing that was printed before. The connection that was kept is closed.
    pub async fn read_whole(&mut self, shard: &Shard) -> Result<Catalog, PgError> {
        self.kept = None;
        self.known.forget_connection();
        read(shard, &mut self.known).await
    }

    /// What its shard calls its tables and types: those of the last reading, and perhaps later ones. `None`: it does not say. Cancel safe: the
    /// connection is closed then.
    pub async fn oid_names(&mut self) -> Option<OidNames> {
        let mut kept = self.kept.take()?;
        let asked = sqlx::query_as::<_, (String, Oid, String)>(OID_NAMES_SQL).fetch_all(&mut kept.connection);
        let Ok(Ok(rows)) = timeout(OPENS_SOON, asked).await else { return None };
        self.kept = Some(kept);
        let entry = |(name, Oid(oid), letter): (String, Oid, String)| {
            (name.into_bytes(), OidName { oid, nesting: Nesting::from_letter(letter.as_bytes()) })
        };
        Some(rows.into_iter().map(entry).collect())
    }

    /// What the last reading has left.
    pub fn known(&self) -> &Known {
        &self.known
    }

    pub fn defaults(&self) -> &[StoredDefault] {
        &self.defaults
    }

    async fn read_changes(&mut self, shard: &Shard, opens_within: Duration) -> Result<Catalog, PgError> {
        let is_usable = |kept: &Kept| kept.url == shard.url && kept.opened.elapsed() < KEPT_FOR;
        let mut kept = self.kept.take().filter(is_usable);
        if let Some(last) = &mut kept
            && !matches!(timeout(ANSWERS_WITHIN, last.is_at_primary(shard)).await, Ok(true))
        {
            kept = None;
        }
        let mut kept = match kept {
            Some(kept) => kept,
            None => {
                self.known.forget_connection();
                let (connection, pledge) = Box::pin(open(shard, opens_within)).await?;
                Kept { url: shard.url.clone(), opened: Instant::now(), connection, pledge }
            }
        };
        let read = catalog_reader::read_changes(&mut kept.connection, &mut self.known, WhenHeld::LeaveOut).await;
        let catalog = read.map_err(|error| failed(shard, &error))?;
        if shard.is_home {
            self.defaults = read_defaults(&mut kept.connection).await.map_err(|error| failed(shard, &error))?;
        }
        // Another one was promoted while it was read.
        if kept.pledge.as_ref().is_some_and(Pledge::is_broken) {
            return Err(Misdirected::FormerPrimary.into_error(&shard.name));
        }
        self.kept = Some(kept);
        Ok(catalog)
    }
}

async fn read_defaults(connection: &mut PgConnection) -> Result<Vec<StoredDefault>, sqlx::Error> {
    let rows: Vec<(Option<String>, bool, String)> = sqlx::query_as(STORED_DEFAULTS).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(role, is_of_database, setting)| StoredDefault { role, is_of_database, setting }).collect())
}

impl Kept {
    /// It leads to where statements go now.
    async fn is_at_primary(&mut self, shard: &Shard) -> bool {
        let Some(pledge) = &self.pledge else { return self.connection.ping().await.is_ok() };
        let shown = identity::show(&mut self.connection, &Expected::of(shard)).await;
        let started_at = shard.primary.started_at();
        let is_last_used = |shown: Shown| started_at == 0 || shown.started_at == started_at;
        matches!(shown, Ok(Ok(shown)) if is_last_used(shown)) && !pledge.is_broken()
    }
}

/// Of every shard. One reads at a time.
#[derive(Default)]
pub struct SchemaReaders {
    home: Arc<Turns<SchemaReader>>,
    others: Mutex<HashMap<ShardId, Arc<Turns<SchemaReader>>>>,
}

impl SchemaReaders {
    /// Of the home shard, whichever it is. Cancel safe.
    pub async fn home(&self) -> ReadersTurn {
        Arc::clone(&self.home).lock_owned().await
    }

    /// `None`: somebody reads just now.
    pub fn home_at_once(&self) -> Option<ReadersTurn> {
        Arc::clone(&self.home).try_lock_owned().ok()
    }

    /// `None`: somebody else still reads after this time.
    pub async fn of(&self, shard: &Shard, patience: Duration) -> Option<ReadersTurn> {
        let reader = match shard.is_home {
            true => Arc::clone(&self.home),
            false => Arc::clone(self.others.lock().entry(shard.id).or_default()),
        };
        timeout(patience, reader.lock_owned()).await.ok()
    }

    /// The other shards have left.
    pub fn retain(&self, shards: &[Arc<Shard>]) {
        self.others.lock().retain(|id, _| shards.iter().any(|shard| shard.id == *id));
    }
}

/// Reads everything, by a connection of its own. Without definitions that others hold. Within [`READ_TIMEOUT`].
pub async fn read(shard: &Shard, known: &mut Known) -> Result<Catalog, PgError> {
    in_time(shard, read_whole(shard, known)).await
}

async fn read_whole(shard: &Shard, known: &mut Known) -> Result<Catalog, PgError> {
    let (mut connection, _) = Box::pin(open(shard, OPENS_WITHIN)).await?;
    let catalog = catalog_reader::read(&mut connection, known, WhenHeld::LeaveOut).await.map_err(|error| failed(shard, &error))?;
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "connection for the schema not closed in order");
    }
    Ok(catalog)
}

/// A server that accepts a connection may answer nothing on it.
async fn in_time(shard: &Shard, reading: impl Future<Output = Result<Catalog, PgError>>) -> Result<Catalog, PgError> {
    timeout(READ_TIMEOUT, Box::pin(reading)).await.unwrap_or_else(|_| Err(no_answer_within(shard, READ_TIMEOUT)))
}

fn no_answer_within(shard: &Shard, limit: Duration) -> PgError {
    unreadable(shard).with_detail(format!("There was no answer within {} s.", limit.as_secs()))
}

/// To the shard's primary, and to no other database.
async fn open(shard: &Shard, within: Duration) -> Result<(PgConnection, Option<Pledge>), PgError> {
    timeout(within, Box::pin(try_to_open(shard))).await.unwrap_or_else(|_| Err(no_answer_within(shard, within)))
}

async fn try_to_open(shard: &Shard) -> Result<(PgConnection, Option<Pledge>), PgError> {
    let url =
        ShardUrl::parse(&shard.url).map_err(|error| unreadable(shard).with_detail(format!("Its URL cannot be used: {error}.")))?;
    let expected = shard.identity.is_some().then(|| Expected::of(shard));
    let mut attempts = Attempts::of(&url, "shardgate");
    let mut failure = unreadable(shard);
    while let Some((_, attempt)) = attempts.next().await {
        let mut connection = match attempt {
            Ok(connection) => connection,
            Err(error) => {
                failure = failed(shard, &error);
                continue;
            }
        };
        let Some(expected) = &expected else { return Ok((connection, None)) };
        match identity::check(&mut connection, expected).await.map_err(|error| failed(shard, &error))? {
            Ok(pledge) => return Ok((connection, Some(pledge))),
            Err(misdirected) => failure = misdirected.into_error(&shard.name),
        }
    }
    Err(failure)
}

fn failed(shard: &Shard, error: &dyn std::error::Error) -> PgError {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    unreadable(shard).with_detail(format!("{error}{source}"))
}

fn unreadable(shard: &Shard) -> PgError {
    let kind = if shard.is_home { "the home shard" } else { "shard" };
    PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("the schema of {kind} \"{}\" cannot be read", shard.name)).with_hint(
        format!(
            "If its address or password has changed: SELECT shardgate.alter_shard('{}', url => 'postgres://…').",
            shard.name.replace('\'', "''")
        ),
    )
}
