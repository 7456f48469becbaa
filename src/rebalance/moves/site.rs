//! One side of a move: a connection of the mover's own to the source or the target.
//!
//! Everything that changes a shard is one message, which first proves the driver's term there and commits in the end: a driver that
//! was frozen, or whose connection was lost, has either done all of it or nothing, and comes too late once another one has raised
//! the term, for which that one waits until the older message has ended. Not from the pools of the query path.

use std::fmt;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgDatabaseError};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::time::timeout;

use super::liveness::{Backend, unless_lost};
use crate::backend::catalog_reader::{self, Known, WhenHeld};
use crate::backend::identity::{self, Expected};
use crate::backend::two_primaries;
use crate::catalog::Catalog;
use crate::config::ShardUrl;
use crate::net::{AttemptError, Attempts, io_reason};
use crate::shardmap::{MoveId, Pledge, PrimaryServer, Shard, Term};

pub(in crate::rebalance) struct Site {
    pub(in crate::rebalance) name: String,
    /// As `server_version_num`.
    pub(super) version: i32,
    connection: PgConnection,
    /// Looked for while an answer is waited for; `None` until it is prepared.
    backend: Option<Backend>,
    /// In the middle of an answer, of which no more will come.
    is_lost: bool,
    /// `None`: the map does not know which database it has to be.
    pledge: Option<Pledge>,
    move_id: MoveId,
    term: Term,
    /// A mistake that a test plants: no term is proven.
    pub(super) has_planted_term: bool,
}

/// What a shard answered to the mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rebalance) enum SiteError {
    /// No connection, no answer in time, or a lock that others hold: to be tried again.
    Busy { shard: String, reason: String },
    /// Another driver has the move.
    Overtaken,
    /// The shard says no.
    Refused { shard: String, code: String, reason: String },
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteError::Busy { shard, reason } => write!(f, "shard \"{shard}\": {reason}"),
            SiteError::Overtaken => f.write_str("another driver has taken over the move"),
            SiteError::Refused { shard, code, reason } => write!(f, "shard \"{shard}\": {reason} ({code})"),
        }
    }
}

impl Site {
    /// Checks that it is the shard's own database, on a primary. Bounded. Cancel safe.
    pub(in crate::rebalance) async fn open(shard: &Shard, move_id: MoveId, term: Term) -> Result<Self, SiteError> {
        let opened = Self::open_within(shard, (move_id, term), CONNECT_TIMEOUT).await?;
        opened.ok_or_else(|| SiteError::Busy { shard: shard.name.clone(), reason: "it does not answer".to_owned() })
    }

    /// The same. `None`: it does not answer within this.
    pub(super) async fn open_within(
        shard: &Shard,
        (move_id, term): (MoveId, Term),
        patience: Duration,
    ) -> Result<Option<Self>, SiteError> {
        let busy = |reason: String| SiteError::Busy { shard: shard.name.clone(), reason };
        let url = ShardUrl::parse(&shard.url).map_err(|_| busy("its url is not valid".to_owned()))?;
        let mut failure = busy("it does not answer".to_owned());
        let trying = async {
            let mut attempts = Attempts::of(&url, "shardgate mover");
            while let Some((_, attempt)) = attempts.next().await {
                let opened = match attempt {
                    Ok(connection) => Self::prepared((shard, &url), connection, move_id, term).await,
                    Err(AttemptError::Connect(error)) => Err(busy(reason(&error))),
                    Err(AttemptError::Options(error)) => Err(busy(error.to_string())),
                };
                match opened {
                    Ok(site) => return Some(site),
                    Err(error) => failure = error,
                }
            }
            None
        };
        let (opened, two) = tokio::join!(timeout(patience, Box::pin(trying)), refuse_two_primaries(shard));
        two?;
        match opened {
            Ok(Some(site)) => Ok(Some(site)),
            Ok(None) => Err(failure),
            Err(_) => Ok(None),
        }
    }

    async fn prepared(
        (shard, url): (&Shard, &ShardUrl),
        connection: PgConnection,
        move_id: MoveId,
        term: Term,
    ) -> Result<Self, SiteError> {
        let name = shard.name.clone();
        let mut site = Self {
            name,
            version: 0,
            connection,
            backend: None,
            is_lost: false,
            pledge: None,
            move_id,
            term,
            has_planted_term: false,
        };
        site.send(SETTINGS).await?;
        site.version = site.value("SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4").await?;
        if shard.identity.is_some() {
            let shown = identity::check(&mut site.connection, &Expected::of(shard)).await.map_err(|error| site.error(&error))?;
            let misdirected =
                |reason: identity::Misdirected| SiteError::Busy { shard: shard.name.clone(), reason: reason.to_string() };
            site.pledge = Some(shown.map_err(misdirected)?);
        }
        let backend = Backend::of(url.clone(), &mut site.connection).await.map_err(|error| site.error(&error))?;
        site.backend = Some(backend);
        Ok(site)
    }

    /// Which server it is; `None`: it was not asked.
    pub(super) fn server(&self) -> Option<PrimaryServer> {
        self.pledge.as_ref().map(Pledge::server)
    }

    fn lost(&mut self) -> SiteError {
        self.is_lost = true;
        let reason = match &self.pledge {
            Some(pledge) if pledge.is_broken() => OTHER_PROMOTED,
            Some(_) | None => "the connection was lost",
        };
        SiteError::Busy { shard: self.name.clone(), reason: reason.to_owned() }
    }

    /// Nothing is done on a server, nor believed, that is not the shard's primary any more.
    fn check_usable(&mut self) -> Result<(), SiteError> {
        if self.is_lost {
            return Err(self.lost());
        }
        match &self.pledge {
            Some(pledge) if pledge.is_broken() => Err(self.lost()),
            Some(_) | None => Ok(()),
        }
    }

    /// From now on what is done by a lower term fails. Gives the highest that the shard knows. See [`super::terms`].
    pub(super) async fn take_term(&mut self) -> Result<Term, SiteError> {
        let text = super::objects::take_term(self.move_id, self.term.0);
        self.send(&text).await?;
        let known = format!("SELECT coalesce(max(t.term), 0) FROM shardgate.term t WHERE t.move_id = {}", self.move_id.0);
        self.value(&known).await.map(Term)
    }

    /// Makes a slot, which no transaction can that has written: the term is looked at, and who takes a higher one waits.
    pub(super) async fn make_slot(&mut self, name: &str) -> Result<(), SiteError> {
        let text = super::objects::slot(self.move_id, self.term.0, name);
        self.send(&text).await
    }

    /// In one transaction and one message, under the driver's term.
    pub(super) async fn act(&mut self, sql: &str) -> Result<(), SiteError> {
        self.act_within(sql, LOCK_TIMEOUT).await
    }

    /// The same, where locks are waited for no longer than this.
    pub(super) async fn act_within(&mut self, sql: &str, lock_timeout: Duration) -> Result<(), SiteError> {
        let text = self.transaction(sql, lock_timeout);
        self.send(&text).await
    }

    /// Two transactions in one message, each under the driver's term: the first is durable before the second begins.
    pub(super) async fn act_twice(&mut self, first: &str, second: &str) -> Result<(), SiteError> {
        let text = format!("{}; {}", self.transaction(first, LOCK_TIMEOUT), self.transaction(second, LOCK_TIMEOUT));
        self.send(&text).await
    }

    fn transaction(&self, sql: &str, lock_timeout: Duration) -> String {
        let lock_timeout = lock_timeout.as_millis().max(1);
        if self.has_planted_term {
            return format!("BEGIN; SET LOCAL lock_timeout = {lock_timeout}; {sql}; COMMIT");
        }
        let (id, term) = (self.move_id.0, self.term.0);
        format!("BEGIN; SET LOCAL lock_timeout = {lock_timeout}; SELECT shardgate.prove_term({id}, {term}); {sql}; COMMIT")
    }

    /// The same, without keeping those waiting for long who come meanwhile.
    pub(super) async fn act_briefly(&mut self, sql: &str) -> Result<(), SiteError> {
        self.act_within(sql, SHORT_LOCK_TIMEOUT).await
    }

    /// Tries again where locks that others hold were in the way, so that nobody has to queue behind us for long.
    pub(super) async fn act_patiently(&mut self, sql: &str) -> Result<(), SiteError> {
        let mut attempt = 1;
        loop {
            match self.act_briefly(sql).await {
                Err(SiteError::Busy { .. }) if attempt < LOCK_ATTEMPTS && self.answers().await => {
                    attempt += 1;
                    tokio::time::sleep(SHORT_LOCK_TIMEOUT).await;
                }
                Err(SiteError::Busy { shard, reason }) => {
                    let open = self.open_transactions().await.unwrap_or_default();
                    let reason = if open.is_empty() { reason } else { format!("{reason}; open transactions: {open}") };
                    return Err(SiteError::Busy { shard, reason });
                }
                outcome => return outcome,
            }
        }
    }

    async fn answers(&mut self) -> bool {
        !self.is_lost
            && unless_lost((self.backend.as_ref(), self.pledge.as_ref()), self.connection.ping())
                .await
                .is_some_and(|ponged| ponged.is_ok())
    }

    /// Who may be in the way: users, processes, and for how long.
    async fn open_transactions(&mut self) -> Result<String, SiteError> {
        self.value(
            "SELECT coalesce(string_agg(format('%s (pid %s, for %s s)', a.usename, a.pid,
                                               extract(epoch FROM clock_timestamp() - a.xact_start)::int8), ', ' ORDER BY a.xact_start), '')
             FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
               AND a.xact_start < clock_timestamp() - interval '1 s'",
        )
        .await
    }

    /// Statements in one message, outside of a term: reading, and what cannot be done in a transaction.
    pub(in crate::rebalance) async fn send(&mut self, sql: &str) -> Result<(), SiteError> {
        self.check_usable()?;
        let text = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match unless_lost((self.backend.as_ref(), self.pledge.as_ref()), self.connection.execute(text)).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => {
                // A transaction that has failed is left, or every later statement fails with it.
                match unless_lost((self.backend.as_ref(), self.pledge.as_ref()), self.connection.execute("ROLLBACK")).await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::debug!(shard = %self.name, %error, "the connection of a move is lost"),
                    None => return Err(self.lost()),
                }
                Err(self.error(&error))
            }
            None => Err(self.lost()),
        }
    }

    pub(in crate::rebalance) async fn value<T>(&mut self, sql: &str) -> Result<T, SiteError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        self.scalar(sql, false).await
    }

    /// The same of what is asked again and again, which the server need not read anew.
    pub(super) async fn value_again<T>(&mut self, sql: &str) -> Result<T, SiteError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        self.scalar(sql, true).await
    }

    async fn scalar<T>(&mut self, sql: &str, is_kept: bool) -> Result<T, SiteError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        self.check_usable()?;
        let asking = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).persistent(is_kept).fetch_one(&mut self.connection);
        let asked = unless_lost((self.backend.as_ref(), self.pledge.as_ref()), asking).await;
        self.answered(asked)
    }

    fn answered<T>(&mut self, asked: Option<Result<T, sqlx::Error>>) -> Result<T, SiteError> {
        let asked = asked.ok_or_else(|| self.lost())?;
        self.check_usable()?;
        asked.map_err(|error| self.error(&error))
    }

    pub(in crate::rebalance) async fn rows<T>(&mut self, sql: &str) -> Result<Vec<T>, SiteError>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        self.check_usable()?;
        let asking = sqlx::query_as(AssertSqlSafe(sql.to_owned())).persistent(false).fetch_all(&mut self.connection);
        let asked = unless_lost((self.backend.as_ref(), self.pledge.as_ref()), asking).await;
        self.answered(asked)
    }

    /// The shard's schema.
    pub(in crate::rebalance) async fn catalog(&mut self) -> Result<Catalog, SiteError> {
        self.check_usable()?;
        let mut known = Known::default();
        let reading = catalog_reader::read(&mut self.connection, &mut known, WhenHeld::Wait(LOCK_TIMEOUT));
        let read =
            unless_lost((self.backend.as_ref(), self.pledge.as_ref()), Box::pin(reading)).await.ok_or_else(|| self.lost())?;
        read.map_err(|error| SiteError::Busy { shard: self.name.clone(), reason: error.to_string() })
    }

    pub(super) async fn incarnation(&mut self) -> Result<String, SiteError> {
        self.value(&format!("SELECT {INCARNATION}")).await
    }

    fn error(&self, error: &sqlx::Error) -> SiteError {
        let shard = self.name.clone();
        let database = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        match database {
            Some(database) if database.code() == TERM_PASSED => SiteError::Overtaken,
            Some(database) if is_passing(database.code()) => SiteError::Busy { shard, reason: database.message().to_owned() },
            Some(database) => {
                let detail = database.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
                let reason = format!("{}{detail}", database.message());
                SiteError::Refused { shard, code: database.code().to_owned(), reason }
            }
            None => SiteError::Busy { shard, reason: reason(error) },
        }
    }
}

/// What is done on one of two primaries the other one lacks. A server that does not answer at once is none.
pub(super) async fn refuse_two_primaries(shard: &Shard) -> Result<(), SiteError> {
    if shard.identity.is_none() {
        return Ok(());
    }
    match Box::pin(two_primaries(shard, OTHERS_ANSWER_WITHIN)).await {
        None => Ok(()),
        Some((one, other)) => {
            let reason = format!(
                "two servers are primaries of the same timeline at once, {one} and {other}, and none is used: stop the one that was not meant \
                 to be, and take it out of the url"
            );
            Err(SiteError::Busy { shard: shard.name.clone(), reason })
        }
    }
}

/// Locks that are held, deadlocks, too many connections, servers that stop and start, objects in use.
fn is_passing(code: &str) -> bool {
    matches!(code, "55P03" | "40P01" | "40001" | "55006" | "25006" | "57014") || matches!(code.get(..2), Some("57" | "53" | "08"))
}

/// Never holds a password.
fn reason(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(database) => database.message().to_owned(),
        None => match error {
            sqlx::Error::Io(error) => io_reason(error),
            sqlx::Error::Tls(_) => "the server and this side did not agree on TLS".to_owned(),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => error.to_string(),
            _ => "the connection was lost".to_owned(),
        },
    }
}

/// When the server started, and its timeline: another value, and what was not flushed may be lost. An expression.
pub(super) const INCARNATION: &str = "pg_catalog.concat(pg_catalog.pg_postmaster_start_time(), ' ', \
     pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))";
const OTHER_PROMOTED: &str = "another server was promoted";
/// Of `shardgate.prove_term`.
const TERM_PASSED: &str = "SG003";
const OTHERS_ANSWER_WITHIN: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Of locks behind which the application's statements would queue.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
const LOCK_ATTEMPTS: usize = 50;

const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp; SET lock_timeout = '5s'; SET statement_timeout = 0; \
     SET idle_in_transaction_session_timeout = '60s'; SET default_transaction_isolation = 'read committed'; \
     SET default_transaction_read_only = off; SET default_transaction_deferrable = off; SET DateStyle = 'ISO, YMD'; \
     SET IntervalStyle = postgres; SET TimeZone = 'UTC'; SET extra_float_digits = 3; SET bytea_output = hex; \
     SET client_min_messages = warning; SET row_security = off; SET session_replication_role = origin; SET synchronous_commit = on";
