//! What can go wrong with the map database, and what a client reads of it.
//!
//! The map's own refusals are raised by its stored functions with SQLSTATE, detail and hint; they pass through field by field.
//! Everything else means that the map is not to be had now. A change whose answer was lost may have been made: that is a
//! case of its own, never "failed".

use std::sync::Arc;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::model::{Epoch, InvalidGroup};
use crate::config::UrlError;
use crate::error::{PgError, Severity, SqlState};

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The map database said no.
    #[error("{0}")]
    Refused(PgError),
    /// No connection, a standby, starting up, shutting down, no answer in time: nothing was changed.
    #[error("the map database is not reachable")]
    Unreachable(#[source] Arc<sqlx::Error>),
    /// The connection ended while a change was under way.
    #[error("the outcome of a change of the shard map is unknown")]
    OutcomeUnknown(#[source] Arc<sqlx::Error>),
    /// The schema `shardgate_map` is not there.
    #[error("the map database has no shard map")]
    NotInitialised,
    #[error("the shard map was made by another version of shardgate")]
    OtherVersion(#[source] Arc<sqlx::migrate::MigrateError>),
    /// An old primary, or a backup. Following it would bring back owners that are none any more.
    #[error("the map database is at epoch {found}, older than {known}")]
    Older { found: Epoch, known: Epoch },
    /// A value that this version does not know, or rows that contradict each other.
    #[error("the shard map holds what this version cannot read: {0}")]
    Unreadable(String),
    #[error("the shard map's url is not valid")]
    Url(#[source] UrlError),
}

impl StoreError {
    /// From a statement that changes nothing, or from taking a connection.
    pub(super) fn reading(error: sqlx::Error) -> Self {
        match Self::from_database(&error) {
            Some(known) => known,
            None if is_decoding(&error) => Self::Unreadable(error.to_string()),
            None => Self::Unreachable(Arc::new(error)),
        }
    }

    /// From a statement that was to change the map.
    pub(super) fn changing(error: sqlx::Error) -> Self {
        match Self::from_database(&error) {
            Some(known) => known,
            None => Self::OutcomeUnknown(Arc::new(error)),
        }
    }

    /// Of a change: it was not made, and will not be. A server that ends the connection says so before it has committed, or nothing.
    pub fn is_unchanged(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unreachable(_) | Self::NotInitialised => true,
            Self::OutcomeUnknown(_) | Self::OtherVersion(_) | Self::Older { .. } | Self::Unreadable(_) | Self::Url(_) => false,
        }
    }

    fn from_database(error: &sqlx::Error) -> Option<Self> {
        let database = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
        // What a server says that is not there for us: shutting down, starting, too many connections, a standby, bad rights.
        let is_absence = matches!(database.code().get(..2), Some("57" | "08" | "53" | "28" | "3D" | "58"))
            || database.code() == "25006"
            || matches!(database.severity(), PgSeverity::Fatal | PgSeverity::Panic);
        Some(match database.code() {
            // A schema, a table or a function that the migrations make.
            "3F000" | "42P01" | "42883" if is_about_the_map(database) => Self::NotInitialised,
            _ if is_absence => Self::Unreachable(Arc::new(sqlx::Error::Protocol(database.message().to_owned()))),
            _ => Self::Refused(to_pg_error(database)),
        })
    }

    pub(super) fn no_answer() -> Self {
        Self::Unreachable(Arc::new(sqlx::Error::PoolTimedOut))
    }
}

impl From<InvalidGroup> for StoreError {
    fn from(error: InvalidGroup) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<StoreError> for PgError {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::Refused(error) => error,
            StoreError::Unreachable(_) => map_unreachable(),
            StoreError::OutcomeUnknown(_) => PgError::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, text)
                .with_detail("The connection to the map database ended before it answered.")
                .with_hint("Look whether the change is in shardgate.history, and repeat it if it is not."),
            StoreError::NotInitialised => {
                PgError::new(SqlState::CANNOT_CONNECT_NOW, text).with_hint("Run \"shardgate init\", or set map.migrate = true.")
            }
            StoreError::OtherVersion(source) => PgError::new(SqlState::CANNOT_CONNECT_NOW, text).with_detail(format!("{source}.")),
            StoreError::Older { .. } => PgError::new(SqlState::CANNOT_CONNECT_NOW, text)
                .with_detail("It is an old primary or was restored from a backup.")
                .with_hint("Let map.url name the server that is the primary now."),
            StoreError::Unreadable(_) => PgError::internal(text),
            StoreError::Url(source) => PgError::new(SqlState::INVALID_PARAMETER_VALUE, text)
                .with_detail(format!("It is refused: {source}."))
                .with_hint("Write map.url as postgres://user:password@host:port/database."),
        }
    }
}

/// What a statement gets that needs the map database now.
pub fn map_unreachable() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "the shard map is not reachable now")
        .with_detail("The map database does not answer. Statements whose keys this proxy knows go on.")
        .with_hint("Try again when the map database is back.")
}

fn is_about_the_map(error: &PgDatabaseError) -> bool {
    error.message().contains("shardgate_map") || error.message().contains("_sqlx_migrations")
}

fn is_decoding(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::RowNotFound
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::TypeNotFound { .. }
    )
}

/// Without the context: it names functions of the map that are none of the user's.
fn to_pg_error(error: &PgDatabaseError) -> PgError {
    let code = error.code().as_bytes().try_into().map_or(SqlState::INTERNAL_ERROR, SqlState);
    PgError {
        severity: Severity::Error,
        detail: error.detail().map(str::to_owned),
        hint: error.hint().map(str::to_owned),
        ..PgError::new(code, error.message())
    }
}
