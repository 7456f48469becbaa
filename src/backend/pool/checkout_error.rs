//! Why a session gets no connection, and what its client hears.

use std::time::Duration;

use thiserror::Error;

use crate::auth::ShardError;
use crate::backend::identity::Misdirected;
use crate::error::{PgError, SqlState};

#[derive(Debug, Error)]
pub enum CheckoutError {
    #[error("shard \"{shard}\" is not available")]
    Unavailable { shard: String, reason: String },
    #[error("no connection to shard \"{shard}\" became free")]
    Timeout { shard: String, size: usize, timeout: Duration },
    /// The shard refused the login: its own error.
    #[error("shard \"{shard}\" refused the connection")]
    Refused { shard: String, error: ShardError },
    #[error("the url of shard \"{shard}\" does not lead there")]
    Misdirected { shard: String, reason: Misdirected },
    /// The shard has another address or state: ask its new pool.
    #[error("the pool of shard \"{shard}\" is retired")]
    Retired { shard: String },
    /// Until the next generation of the lease.
    #[error("shard \"{shard}\" shuts this proxy out")]
    ShutOut { shard: String, generation: i64 },
}

impl CheckoutError {
    /// The login failed by the password.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, CheckoutError::Refused { error, .. } if error.code() == Some(SqlState::INVALID_PASSWORD))
    }
}

impl From<CheckoutError> for PgError {
    fn from(error: CheckoutError) -> Self {
        match error {
            CheckoutError::Unavailable { shard, reason } => {
                PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is not available now"))
                    .with_detail(sentence(&reason))
                    .with_hint("Retry; statements for other shards are not affected.")
            }
            CheckoutError::Timeout { shard, size, timeout } => PgError::new(
                SqlState::TOO_MANY_CONNECTIONS,
                format!("no connection to shard \"{shard}\" became free within {} ms", timeout.as_millis()),
            )
            .with_detail(format!("All {size} connections are in use (pool.size_per_shard)."))
            .with_hint("Raise pool.size_per_shard or pool.checkout_timeout_ms, or shorten transactions."),
            CheckoutError::Misdirected { shard, reason } => reason.into_error(&shard),
            CheckoutError::ShutOut { shard, .. } => {
                PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is not available to this proxy now"))
                    .with_detail(
                        "The proxy had lost its lease, and partitions may have moved. It has to reach the map database first.",
                    )
                    .with_hint("Retry the transaction, or use another proxy.")
            }
            CheckoutError::Retired { shard } => {
                PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("shard \"{shard}\" is not available now"))
                    .with_detail("Its address or state is being changed.")
                    .with_hint("Retry the statement.")
            }
            CheckoutError::Refused { shard, error } => {
                let text = |code| error.field(code).map(|text| String::from_utf8_lossy(text).into_owned());
                let told = PgError::new(error.code().unwrap_or(SqlState::CONNECTION_FAILURE), error.message());
                PgError { detail: text(b'D'), hint: text(b'H'), ..told }.with_context(format!("login to shard \"{shard}\""))
            }
        }
    }
}

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).chain(['.']).collect()).unwrap_or_default()
}
