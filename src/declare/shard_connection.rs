//! A connection to one shard for declaring: its settings, its deadline, its errors with the shard's name.
//!
//! Not from the pools of the query path: declaring is rare, takes locks and runs long copies. The url, and with it the
//! password, appears in no error and no log.
//!
//! When another server of the shard is promoted, the connection is as good as lost: nothing more is done by it nor believed, and
//! what waits for the former primary ends ([`on_primary`]). Before the map is told of what was done, [`ShardConnection::check_primary`].

use std::fmt::Display;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgDatabaseError};
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::backend::catalog_reader::Known;
use crate::backend::identity::{self, Expected, Misdirected};
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState, capitalised};
use crate::net::{AttemptError, Attempts, ShardEndpoint, io_reason};
use crate::shardmap::{Pledge, Primary, PrimaryServer, Shard, primary_changes};

pub(super) const UNABLE_TO_CONNECT: SqlState = SqlState(*b"08001");

const WRONG_PASSWORD: &str = "28P01";

/// How long a shard has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Oldest supported server, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 150_000;

/// An open connection that knows whose it is.
pub(super) struct ShardConnection {
    pub(super) connection: PgConnection,
    pub(super) name: String,
    pub(super) server_version: i32,
    pub(super) known: Known,
    /// `None`: which server it has to be is not known yet.
    pub(super) pledge: Option<Pledge>,
}

/// Which of a URL's hosts is connected to.
enum Wanted {
    /// A primary.
    Any,
    /// The shard's.
    Shard(Expected),
    /// A primary that was not promoted before this one, or is of another system.
    NotBefore(PrimaryServer),
}

/// Why a connection could not be opened.
pub(super) struct OpenFailure {
    pub(super) error: PgError,
    /// The password may have been changed on the server, and not in the map yet.
    pub(super) is_wrong_password: bool,
}

impl OpenFailure {
    fn of_attempt(name: &str, error: &AttemptError) -> Self {
        match error {
            AttemptError::Connect(error) => Self {
                error: unable_to_connect(name, error),
                is_wrong_password: database_error(error).is_some_and(|error| error.code() == WRONG_PASSWORD),
            },
            AttemptError::Options(error) => PgError::new(UNABLE_TO_CONNECT, format!("could not connect to shard \"{name}\""))
                .with_detail(format!("{}.", capitalised(&error.to_string())))
                .with_hint(FILES_HINT)
                .into(),
        }
    }
}

impl OpenFailure {
    /// With the code that a statement gets which needs a connection of a pool.
    pub(super) fn into_error_of_statement(self) -> PgError {
        let code = match self.is_wrong_password {
            true => SqlState::INVALID_PASSWORD,
            false if self.error.code == UNABLE_TO_CONNECT => SqlState::CANNOT_CONNECT_NOW,
            false => self.error.code,
        };
        PgError { code, ..self.error }
    }
}

impl From<PgError> for OpenFailure {
    fn from(error: PgError) -> Self {
        Self { error, is_wrong_password: false }
    }
}

/// A url that all connections can use, with the files that it names; the error never repeats it.
pub(super) fn usable(name: &str, url: &str) -> Result<ShardUrl, PgError> {
    let refused = |reason: &dyn Display, hint: &str| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("the url of shard \"{name}\" is not valid"))
            .with_detail(format!("{}.", capitalised(&reason.to_string())))
            .with_hint(hint)
    };
    let parsed = ShardUrl::parse(url).map_err(|error| refused(&error, URL_HINT))?;
    ShardEndpoint::of(parsed.clone()).map_err(|error| refused(&error, FILES_HINT))?;
    for host in &parsed.hosts {
        parsed.password_for(host).map_err(|error| refused(&error, FILES_HINT))?;
    }
    Ok(parsed)
}

impl ShardConnection {
    /// To a shard of the map: to its own database on its primary, or not at all. Cancel safe.
    pub(super) async fn open(shard: &Shard) -> Result<Self, PgError> {
        Self::try_open(shard).await.map_err(|failure| failure.error)
    }

    /// The same, and why not. Cancel safe.
    pub(super) async fn try_open(shard: &Shard) -> Result<Self, OpenFailure> {
        let wanted = if shard.identity.is_some() { Wanted::Shard(Expected::of(shard)) } else { Wanted::Any };
        Self::connect(&shard.name, &shard.url, &wanted).await
    }

    /// Connects, checks the server and settles what our statements rely on. Cancel safe.
    pub(super) async fn open_new(name: &str, url: &str) -> Result<Self, PgError> {
        Self::connect(name, url, &Wanted::Any).await.map_err(|failure| failure.error)
    }

    /// To a primary of whatever database, which is not one before `known`; or to that, where there is no other. Cancel safe.
    pub(super) async fn open_successor(name: &str, url: &str, known: Option<PrimaryServer>) -> Result<Self, PgError> {
        let Some(known) = known else { return Self::open_new(name, url).await };
        match Self::connect(name, url, &Wanted::NotBefore(known)).await {
            Err(failure) if failure.error.code == SqlState::CANNOT_CONNECT_NOW => Self::open_new(name, url).await,
            opened => opened.map_err(|failure| failure.error),
        }
    }

    /// Of several hosts, to the first that proves to be what is wanted.
    async fn connect(name: &str, url: &str, wanted: &Wanted) -> Result<Self, OpenFailure> {
        let url = usable(name, url)?;
        let mut attempts = Attempts::of(&url, "shardgate");
        let mut failure: Option<OpenFailure> = None;
        let trying = async {
            while let Some((_, attempt)) = attempts.next().await {
                let opened = match attempt {
                    Ok(connection) => Self::prepared(name, connection, wanted).await.map_err(OpenFailure::from),
                    Err(error) => Err(OpenFailure::of_attempt(name, &error)),
                };
                match opened {
                    Ok(shard) => return Some(shard),
                    // A server that answers and is not the one is more to the point than one that does not.
                    Err(error) if failure.as_ref().is_none_or(|known| known.error.code == UNABLE_TO_CONNECT) => {
                        failure = Some(error)
                    }
                    Err(_) => {}
                }
            }
            None
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(trying)).await {
            Ok(Some(shard)) => Ok(shard),
            Ok(None) => Err(failure.unwrap_or_else(|| no_answer(name).into())),
            Err(_) => Err(no_answer(name).into()),
        }
    }

    async fn prepared(name: &str, connection: PgConnection, wanted: &Wanted) -> Result<Self, PgError> {
        let mut shard = Self { connection, name: name.to_owned(), server_version: 0, known: Known::default(), pledge: None };
        shard.settle().await?;
        shard.check_server().await?;
        if !matches!(wanted, Wanted::Shard(_)) {
            shard.refuse_proxy().await?;
        }
        match wanted {
            Wanted::Any => {}
            Wanted::Shard(expected) => {
                let shown = identity::check(&mut shard.connection, expected).await.map_err(|error| shard.error(&error))?;
                shard.pledge = Some(shown.map_err(|misdirected| misdirected.into_error(name))?);
            }
            Wanted::NotBefore(known) => {
                let anybody = Expected { uuid: None, primary: Primary::of(None) };
                let shown = identity::show(&mut shard.connection, &anybody).await.map_err(|error| shard.error(&error))?;
                let shown = shown.map_err(|misdirected| misdirected.into_error(name))?;
                if known.is_successor_of(shown.server) {
                    return Err(Misdirected::FormerPrimary.into_error(name));
                }
            }
        }
        Ok(shard)
    }

    /// The settings that our statements rely on.
    pub(super) async fn settle(&mut self) -> Result<(), PgError> {
        self.run(SESSION_SETTINGS).await
    }

    async fn check_server(&mut self) -> Result<(), PgError> {
        let (version, is_standby): (i32, bool) =
            sqlx::query_as("SELECT current_setting('server_version_num')::int, pg_is_in_recovery()")
                .fetch_one(&mut self.connection)
                .await
                .map_err(|error| self.error(&error))?;
        self.server_version = version;
        if version < SERVER_VERSION_MIN {
            return Err(PgError::unsupported(
                format!("the server of shard \"{}\" is too old", self.name),
                format!("Its version is {}; shards need PostgreSQL 15 or newer.", version / 10_000),
                "Upgrade the server, or give another one.",
            ));
        }
        if is_standby {
            return Err(PgError::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                format!("the server of shard \"{}\" is a standby", self.name),
            )
            .with_hint("Give the url of the primary."));
        }
        Ok(())
    }

    /// The url may lead to this proxy, or to that of another cluster: only a proxy knows the option.
    async fn refuse_proxy(&mut self) -> Result<(), PgError> {
        match sqlx::query("EXPLAIN (SHARDS) SELECT").fetch_all(&mut self.connection).await {
            Err(error) if database_error(&error).is_some() => Ok(()),
            Err(error) => Err(self.error(&error)),
            Ok(_) => Err(PgError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("the url of shard \"{}\" leads to a Shardgate proxy", self.name),
            )
            .with_hint("Give the address of the PostgreSQL server itself.")),
        }
    }

    /// Runs statements without results. `sql` is our own text; names in it are quoted.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), PgError> {
        let running = self.connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())));
        let result = on_primary(self.pledge.as_ref(), &self.name, running).await?;
        result.map(|_| ()).map_err(|error| self.error(&error))
    }

    /// One value of one row. `sql` as in [`ShardConnection::run`].
    pub(super) async fn value<T>(&mut self, sql: &str) -> Result<T, PgError>
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let asking = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection);
        on_primary(self.pledge.as_ref(), &self.name, asking).await?.map_err(|error| self.error(&error))
    }

    /// No other server was promoted since the connection was opened: what was done by it is there.
    pub(super) fn check_primary(&self) -> Result<(), PgError> {
        match &self.pledge {
            Some(pledge) if pledge.is_broken() => Err(another_primary(&self.name)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn error(&self, error: &sqlx::Error) -> PgError {
        shard_error(&self.name, error)
    }

    /// Says goodbye. What fails here has no consequence: the server sees the end of the connection anyway.
    pub(super) async fn close(self) {
        if self.check_primary().is_err() {
            return;
        }
        if let Err(error) = self.connection.close().await {
            tracing::debug!(shard = %self.name, %error, "closing a connection failed");
        }
    }
}

const URL_HINT: &str = "Write it as postgres://user:password@host:port/database, with percent signs for special characters; several hosts as \
     host1:port1,host2:port2. What may follow are target_session_attrs, passfile, password_env, sslmode, sslrootcert, sslcert, sslkey, \
     options and application_name.";

const FILES_HINT: &str = "Every proxy must be able to read the files that passfile, sslrootcert, sslcert and sslkey name, and have the variable of \
     password_env in its environment.";

const REACHABILITY_HINT: &str =
    "Check the host, port, user and password in the url, and that the server accepts connections from here.";

// Independent of the role's and database's own settings. A lock that is not had soon would queue everybody behind us.
const SESSION_SETTINGS: &str = "SET standard_conforming_strings = on; SET search_path = pg_catalog; SET lock_timeout = '5s'; \
     SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; \
     SET client_min_messages = warning; SET row_security = off; SET default_transaction_isolation = 'read committed'; \
     SET default_transaction_read_only = off; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = postgres; \
     SET extra_float_digits = 3; SET TimeZone = 'UTC'";

fn no_answer(name: &str) -> PgError {
    PgError::new(UNABLE_TO_CONNECT, format!("could not connect to shard \"{name}\""))
        .with_detail(format!("There was no answer within {} seconds.", CONNECT_TIMEOUT.as_secs()))
        .with_hint(REACHABILITY_HINT)
}

fn unable_to_connect(name: &str, error: &sqlx::Error) -> PgError {
    let detail = match database_error(error) {
        // What the server says (unknown database, wrong password) names the user or the database, never the password.
        Some(database) => format!("The server says: {}.", database.message()),
        None => match error {
            sqlx::Error::Io(error) => format!("{}.", capitalised(&io_reason(error))),
            sqlx::Error::Tls(_) => "The server and this side did not agree on TLS.".to_owned(),
            _ => "The server did not answer as PostgreSQL does.".to_owned(),
        },
    };
    PgError::new(UNABLE_TO_CONNECT, format!("could not connect to shard \"{name}\""))
        .with_detail(detail)
        .with_hint(REACHABILITY_HINT)
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()
}

/// What `work` on a shard's connection gives, unless another server of the shard is promoted before: then it may never end.
pub(super) async fn on_primary<T>(pledge: Option<&Pledge>, name: &str, work: impl Future<Output = T>) -> Result<T, PgError> {
    tokio::select! {
        biased;
        () = primary_changes(pledge) => Err(another_primary(name)),
        done = Box::pin(work) => Ok(done),
    }
}

fn another_primary(name: &str) -> PgError {
    PgError::new(SqlState::CONNECTION_FAILURE, format!("lost the connection to shard \"{name}\""))
        .with_detail("Another server of the shard was promoted.")
        .with_hint("Call the function again.")
}

/// What a shard said, with the shard named in the context; a lost connection as such.
pub(super) fn shard_error(name: &str, error: &sqlx::Error) -> PgError {
    let Some(database) = database_error(error) else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => {
                PgError::internal(format!("unexpected answer of shard \"{name}\""))
            }
            _ => PgError::new(SqlState::CONNECTION_FAILURE, format!("lost the connection to shard \"{name}\"")),
        };
    };
    let code = database.code().as_bytes().try_into().map_or(SqlState::INTERNAL_ERROR, SqlState);
    let mut told = PgError::new(code, database.message()).with_context(format!("shard \"{name}\""));
    told.detail = database.detail().map(str::to_owned);
    told.hint = database.hint().map(str::to_owned);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_is_refused_without_repeating_it() {
        for url in ["", "mysql://user:secret@host/db", "postgres://user:secret@host:port/db", "host=a password=secret"] {
            let error = usable("a", url).unwrap_err();
            assert_eq!(error.message, "the url of shard \"a\" is not valid");
            assert!(!error.to_string().contains("secret"));
        }
        assert!(usable("a", "postgres://user:secret@localhost:1/db").is_ok());
    }

    #[tokio::test]
    async fn what_waits_for_a_former_primary_ends_and_nothing_more_is_done_there() {
        let server = |timeline| PrimaryServer { system_identifier: 1, timeline };
        let primary = Primary::of(None);
        let pledge = primary.accept(server(1)).expect("the first");
        assert_eq!(on_primary(Some(&pledge), "a", async { 7 }).await.expect("done"), 7);
        let promoted = async { drop(primary.accept(server(2)).expect("promoted")) };
        let (waited, ()) = tokio::join!(on_primary(Some(&pledge), "a", std::future::pending::<()>()), promoted);
        let error = waited.expect_err("it never ends");
        assert_eq!(
            (error.code, error.detail.as_deref()),
            (SqlState::CONNECTION_FAILURE, Some("Another server of the shard was promoted."))
        );
        on_primary(Some(&pledge), "a", async { 7 }).await.expect_err("not begun");
        assert_eq!(on_primary(None, "a", async { 7 }).await.expect("done"), 7);
    }

    #[test]
    fn a_url_that_sessions_could_not_use_is_refused_and_says_what_to_do() {
        let refused = [
            (
                "target_session_attrs=standby",
                "The URL's target_session_attrs is \"standby\", which leads to servers that take no writes",
            ),
            ("sslmode=verify-full", "The URL's sslmode verify-full needs sslrootcert: the path of a PEM file"),
            ("sslmode=require&sslrootcert=system", "The URL's sslmode require may not be used with sslrootcert=system"),
            ("sslmode=verify-ca&sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ];
        for (parameters, expected) in refused {
            let error = usable("a", &format!("postgres://user:secret@localhost:1/db?{parameters}")).unwrap_err();
            assert_eq!(
                (error.code, error.message.as_str()),
                (SqlState::INVALID_PARAMETER_VALUE, "the url of shard \"a\" is not valid")
            );
            let detail = error.detail.clone().unwrap_or_default();
            assert!(detail.contains(expected) && error.hint.is_some(), "{parameters}: {detail}");
            assert!(!format!("{error:?}").contains("secret"));
        }
        for (parameters, expected) in [
            ("passfile=/nowhere/pass", "The password file \"/nowhere/pass\" cannot be read."),
            ("password_env=SHARDGATE_PASSWORD_OF_NOBODY", "The environment variable \"SHARDGATE_PASSWORD_OF_NOBODY\""),
        ] {
            let error = usable("a", &format!("postgres://user@localhost:1/db?{parameters}")).unwrap_err();
            assert!(error.detail.is_some_and(|detail| detail.starts_with(expected)), "{parameters}");
        }
        for parameters in ["sslrootcert=system", "options=-c%20geqo%3Doff&application_name=x", "sslmode=require"] {
            usable("a", &format!("postgres://user:secret@localhost:1/db?{parameters}")).expect(parameters);
        }
    }
}
