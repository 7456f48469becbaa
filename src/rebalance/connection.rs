//! A connection to the map database or to a shard that only reads.
//!
//! Read-only by its settings, so that no mistake here can change a row. A lock that is not had soon ends the statement: reading
//! sizes must not queue behind DDL and so hold up everybody else. Callers bound the whole by a deadline.

use sqlx::postgres::{PgConnection, PgDatabaseError};
use sqlx::{Connection, Executor};

use super::RebalanceError;
use super::cluster::RegisteredShard;
use crate::backend::identity::{self, Expected};
use crate::config::ShardUrl;
use crate::net::{AttemptError, Attempts, io_reason};

/// An open connection that knows where it leads.
pub(super) struct Reader {
    pub(super) connection: PgConnection,
    /// "the map database", `shard "x"`.
    place: String,
}

impl Reader {
    /// Not bounded: the caller is. Cancel safe.
    pub(super) async fn open(place: &str, url: &str) -> Result<Self, RebalanceError> {
        Self::open_on(place, url, None).await
    }

    /// To a shard: to its own database on its primary, as the map knows them, or not at all. Not bounded. Cancel safe.
    pub(super) async fn open_shard(shard: &RegisteredShard) -> Result<Self, RebalanceError> {
        Self::open_on(&format!("shard \"{}\"", shard.name), &shard.url, shard.expected()).await
    }

    async fn open_on(place: &str, url: &str, expected: Option<Expected>) -> Result<Self, RebalanceError> {
        let url = ShardUrl::parse(url).map_err(|_| RebalanceError::Url { place: place.to_owned() })?;
        let mut attempts = Attempts::of(&url, "shard-rebalance");
        let mut failure = RebalanceError::Unreachable { place: place.to_owned(), reason: "no host answers".to_owned() };
        while let Some((_, attempt)) = attempts.next().await {
            let opened = match attempt {
                Ok(connection) => Self::settled(place, connection, (url.hosts.len() > 1, expected.as_ref())).await,
                Err(error) => Err(RebalanceError::Unreachable { place: place.to_owned(), reason: connect_failure(&error) }),
            };
            match opened {
                Ok(reader) => return Ok(reader),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// `needs_primary`: there are other hosts, one of which it is.
    async fn settled(
        place: &str,
        connection: PgConnection,
        (needs_primary, expected): (bool, Option<&Expected>),
    ) -> Result<Self, RebalanceError> {
        let mut reader = Self { connection, place: place.to_owned() };
        let settled = reader.connection.execute(SETTINGS).await;
        settled.map_err(|error| reader.error(&error))?;
        if needs_primary {
            let asked = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(&mut reader.connection).await;
            if asked.map_err(|error| reader.error(&error))? {
                return Err(RebalanceError::Unreachable {
                    place: place.to_owned(),
                    reason: "all hosts that answer are standbys".to_owned(),
                });
            }
        }
        if let Some(expected) = expected {
            reader.check_identity(expected).await?;
        }
        Ok(reader)
    }

    /// It must lead to the shard's own database, and not on a former primary, or what is read there is not the shard's.
    async fn check_identity(&mut self, expected: &Expected) -> Result<(), RebalanceError> {
        match identity::check(&mut self.connection, expected).await {
            Ok(shown) => {
                let place = self.place.clone();
                shown.map(drop).map_err(|misdirected| RebalanceError::Query { place, reason: misdirected.to_string() })
            }
            Err(error) => Err(self.error(&error)),
        }
    }

    /// What a statement of ours failed with.
    pub(super) fn error(&self, error: &sqlx::Error) -> RebalanceError {
        let place = self.place.clone();
        match database_error(error) {
            Some(database) if matches!(database.code(), "3F000" | "42P01") && database.message().contains("shardgate") => {
                RebalanceError::NotInitialised
            }
            Some(database) => RebalanceError::Query { place, reason: format!("{} ({})", database.message(), database.code()) },
            None => match error {
                sqlx::Error::Io(_) => RebalanceError::Query { place, reason: "the connection was lost".to_owned() },
                _ => RebalanceError::Query { place, reason: error.to_string() },
            },
        }
    }

    /// Says goodbye. What fails here has no consequence: the server sees the end of the connection anyway.
    pub(super) async fn close(self) {
        if let Err(error) = self.connection.close().await {
            tracing::debug!(place = %self.place, %error, "closing a connection failed");
        }
    }
}

/// What the server says (unknown database, wrong password) names the user or the database, never the password.
fn connect_failure(error: &AttemptError) -> String {
    let error = match error {
        AttemptError::Connect(error) => error,
        AttemptError::Options(error) => return error.to_string(),
    };
    match database_error(error) {
        Some(database) => database.message().to_owned(),
        None => match error {
            sqlx::Error::Io(error) => io_reason(error),
            sqlx::Error::Tls(_) => "the server and this side did not agree on TLS".to_owned(),
            _ => "the server did not answer as PostgreSQL does".to_owned(),
        },
    }
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()
}

const SETTINGS: &str = "SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'; \
     SET default_transaction_deferrable = off; SET search_path = pg_catalog; SET lock_timeout = '2s'; SET statement_timeout = 0; \
     SET idle_in_transaction_session_timeout = '60s'; SET DateStyle = 'ISO, YMD'; SET TimeZone = 'UTC'; \
     SET extra_float_digits = 3; SET bytea_output = hex; SET client_min_messages = warning; SET row_security = off";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_urls_of_postgresql_are_taken() {
        for url in ["", "mysql://u:secret@host/db", "postgres://u:secret@host:port/db", "host=a password=secret"] {
            let opened = Reader::open("a place", url).await.map(drop);
            assert!(matches!(opened, Err(RebalanceError::Url { .. })), "{url}");
        }
    }
}
