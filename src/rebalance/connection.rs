//! A connection to the map database or to a shard that only reads.
//!
//! Read-only by its settings, so that no mistake here can change a row. A lock that is not had soon ends the statement: reading
//! sizes must not queue behind DDL and so hold up everybody else. Callers bound the whole by a deadline.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError};
use sqlx::{Connection, Executor};

use super::RebalanceError;
use crate::backend::identity;
use crate::config::ShardUrl;
use crate::net::connect_options;

/// An open connection that knows where it leads.
pub(super) struct Reader {
    pub(super) connection: PgConnection,
    /// "the map database", `shard "x"`.
    place: String,
}

impl Reader {
    /// Not bounded: the caller is. Cancel safe.
    pub(super) async fn open(place: &str, url: &str) -> Result<Self, RebalanceError> {
        let options = options(url).ok_or_else(|| RebalanceError::Url { place: place.to_owned() })?;
        let mut connection = Box::pin(PgConnection::connect_with(&options))
            .await
            .map_err(|error| RebalanceError::Unreachable { place: place.to_owned(), reason: connect_failure(&error) })?;
        let settled = connection.execute(SETTINGS).await;
        let reader = Self { connection, place: place.to_owned() };
        match settled {
            Ok(_) => Ok(reader),
            Err(error) => Err(reader.error(&error)),
        }
    }

    /// It must lead to the shard's own database, or what is read there is another one's.
    pub(super) async fn check_identity(&mut self, expected: &str) -> Result<(), RebalanceError> {
        match identity::check(&mut self.connection, expected).await {
            Ok(shown) => {
                let place = self.place.clone();
                shown.map_err(|misdirected| RebalanceError::Query { place, reason: misdirected.to_string() })
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

fn options(url: &str) -> Option<PgConnectOptions> {
    connect_options(&ShardUrl::parse(url).ok()?, "shard-rebalance").ok()
}

/// What the server says (unknown database, wrong password) names the user or the database, never the password.
fn connect_failure(error: &sqlx::Error) -> String {
    match database_error(error) {
        Some(database) => database.message().to_owned(),
        None => match error {
            sqlx::Error::Io(error) => error.kind().to_string(),
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

    #[test]
    fn only_urls_of_postgresql_are_taken() {
        for url in ["", "mysql://u:secret@host/db", "postgres://u:secret@host:port/db", "host=a password=secret"] {
            assert!(options(url).is_none(), "{url}");
        }
        assert!(options("postgresql://u:secret@host:1/db").is_some());
    }
}
