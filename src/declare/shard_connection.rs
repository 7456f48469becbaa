//! A connection to one shard for declaring: its settings, its deadline, its errors with the shard's name.
//!
//! Not from the pools of the query path: declaring is rare, takes locks and runs long copies. The url, and with it the
//! password, appears in no error and no log.

use std::fmt::Display;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError};
use sqlx::{AssertSqlSafe, Connection, Executor};

use super::checks::capitalised;
use crate::backend::catalog_reader::Known;
use crate::backend::identity;
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::net::{ShardEndpoint, connect_options};
use crate::shardmap::Shard;

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
}

/// Why a connection could not be opened.
pub(super) struct OpenFailure {
    pub(super) error: PgError,
    /// The password may have been changed on the server, and not in the map yet.
    pub(super) is_wrong_password: bool,
}

impl From<PgError> for OpenFailure {
    fn from(error: PgError) -> Self {
        Self { error, is_wrong_password: false }
    }
}

/// Options for one of our connections, by a url that sessions can use as well; the error never repeats it.
pub(super) fn options(name: &str, url: &str) -> Result<PgConnectOptions, PgError> {
    let refused = |reason: &dyn Display, hint: &str| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("the url of shard \"{name}\" is not valid"))
            .with_detail(format!("{}.", capitalised(&reason.to_string())))
            .with_hint(hint)
    };
    let parsed = ShardUrl::parse(url).map_err(|error| refused(&error, URL_HINT))?;
    let options = connect_options(&parsed, "shardgate").map_err(|error| refused(&error, URL_HINT))?;
    ShardEndpoint::new(parsed).map_err(|error| refused(&error, AUTHORITIES_HINT))?;
    Ok(options)
}

impl ShardConnection {
    /// To a shard of the map: to its own database, or not at all. Cancel safe.
    pub(super) async fn open(shard: &Shard) -> Result<Self, PgError> {
        Self::try_open(shard).await.map_err(|failure| failure.error)
    }

    /// The same, and why not. Cancel safe.
    pub(super) async fn try_open(shard: &Shard) -> Result<Self, OpenFailure> {
        let mut connection = Self::connect(&shard.name, &shard.url).await?;
        connection.check_identity(shard).await?;
        Ok(connection)
    }

    /// Connects, checks the server and settles what our statements rely on. Cancel safe.
    pub(super) async fn open_new(name: &str, url: &str) -> Result<Self, PgError> {
        Self::connect(name, url).await.map_err(|failure| failure.error)
    }

    async fn connect(name: &str, url: &str) -> Result<Self, OpenFailure> {
        let options = options(name, url)?;
        let opening = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(PgConnection::connect_with(&options))).await;
        let connection = match opening {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                let is_wrong_password = database_error(&error).is_some_and(|error| error.code() == WRONG_PASSWORD);
                return Err(OpenFailure { error: unable_to_connect(name, &error), is_wrong_password });
            }
            Err(_) => {
                let error = PgError::new(UNABLE_TO_CONNECT, format!("could not connect to shard \"{name}\""))
                    .with_detail(format!("There was no answer within {} seconds.", CONNECT_TIMEOUT.as_secs()))
                    .with_hint(REACHABILITY_HINT);
                return Err(error.into());
            }
        };
        let mut shard = Self { connection, name: name.to_owned(), server_version: 0, known: Known::default() };
        shard.settle().await?;
        shard.check_server().await?;
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

    async fn check_identity(&mut self, shard: &Shard) -> Result<(), PgError> {
        let Some(expected) = &shard.identity else { return Ok(()) };
        let shown = identity::check(&mut self.connection, expected).await.map_err(|error| self.error(&error))?;
        shown.map_err(|misdirected| misdirected.into_error(&self.name))
    }

    /// Runs statements without results. `sql` is our own text; names in it are quoted.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), PgError> {
        let result = self.connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        result.map(|_| ()).map_err(|error| self.error(&error))
    }

    /// One value of one row. `sql` as in [`ShardConnection::run`].
    pub(super) async fn value<T>(&mut self, sql: &str) -> Result<T, PgError>
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let result = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection).await;
        result.map_err(|error| self.error(&error))
    }

    pub(super) fn error(&self, error: &sqlx::Error) -> PgError {
        shard_error(&self.name, error)
    }

    /// Says goodbye. What fails here has no consequence: the server sees the end of the connection anyway.
    pub(super) async fn close(self) {
        if let Err(error) = self.connection.close().await {
            tracing::debug!(shard = %self.name, %error, "closing a connection failed");
        }
    }
}

const URL_HINT: &str = "Write it as postgres://user:password@host:port/database, with percent signs for special characters; what may follow \
     are sslmode, sslrootcert, options and application_name.";

const AUTHORITIES_HINT: &str = "Let sslrootcert name a PEM file with certificate authorities that every proxy can read.";

const REACHABILITY_HINT: &str =
    "Check the host, port, user and password in the url, and that the server accepts connections from here.";

// Independent of the role's and database's own settings. A lock that is not had soon would queue everybody behind us.
const SESSION_SETTINGS: &str = "SET standard_conforming_strings = on; SET search_path = pg_catalog; SET lock_timeout = '5s'; \
     SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; \
     SET client_min_messages = warning; SET row_security = off; SET default_transaction_isolation = 'read committed'; \
     SET default_transaction_read_only = off; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = postgres; \
     SET extra_float_digits = 3; SET TimeZone = 'UTC'";

fn unable_to_connect(name: &str, error: &sqlx::Error) -> PgError {
    let detail = match database_error(error) {
        // What the server says (unknown database, wrong password) names the user or the database, never the password.
        Some(database) => format!("The server says: {}.", database.message()),
        None => match error {
            sqlx::Error::Io(error) => format!("{}.", error.kind()),
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
            let error = options("a", url).unwrap_err();
            assert_eq!(error.message, "the url of shard \"a\" is not valid");
            assert!(!error.to_string().contains("secret"));
        }
        assert!(options("a", "postgres://user:secret@localhost:1/db").is_ok());
    }

    #[test]
    fn a_url_that_sessions_could_not_use_is_refused_and_says_what_to_do() {
        let refused = [
            ("target_session_attrs=any", "The URL's parameter \"target_session_attrs\" is not known: allowed are sslmode,"),
            ("sslmode=verify-full", "The URL's sslmode verify-full needs sslrootcert: the path of a PEM file"),
            ("sslmode=require&sslrootcert=system", "The URL's sslmode require may not be used with sslrootcert=system"),
            ("sslmode=verify-ca&sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ];
        for (parameters, expected) in refused {
            let error = options("a", &format!("postgres://user:secret@localhost:1/db?{parameters}")).unwrap_err();
            assert_eq!(
                (error.code, error.message.as_str()),
                (SqlState::INVALID_PARAMETER_VALUE, "the url of shard \"a\" is not valid")
            );
            let detail = error.detail.clone().unwrap_or_default();
            assert!(detail.contains(expected) && error.hint.is_some(), "{parameters}: {detail}");
            assert!(!format!("{error:?}").contains("secret"));
        }
        for parameters in ["sslrootcert=system", "options=-c%20geqo%3Doff&application_name=x", "sslmode=require"] {
            options("a", &format!("postgres://user:secret@localhost:1/db?{parameters}")).expect(parameters);
        }
    }
}
