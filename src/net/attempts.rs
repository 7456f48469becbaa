//! Connections of the proxy itself, by sqlx, to each host of a URL at once: whose is the primary is for the caller to ask.
//!
//! The first host begins; each further one begins a moment later, so that in the normal case one connection is made, and a host that
//! does not answer costs a moment and not the whole deadline. Not bounded: the caller is.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::connect_options::{ConnectOptionsError, connect_options};
use crate::config::{Host, ShardUrl};

/// Why one host gave no connection.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error(transparent)]
    Options(#[from] ConnectOptionsError),
    #[error(transparent)]
    Connect(#[from] sqlx::Error),
}

/// Those that are under way. Dropped, they end.
pub struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, (Host, Result<PgConnection, AttemptError>)>>,
}

impl Attempts {
    pub fn of(url: &ShardUrl, application_name: &str) -> Self {
        let running = FuturesUnordered::new();
        let mut wait = Duration::ZERO;
        for host in &url.hosts {
            let (url, host, name) = (url.clone(), host.clone(), application_name.to_owned());
            let attempt: BoxFuture<'static, _> = Box::pin(async move {
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                let connected = connect_to(&url, &host, &name).await;
                (host, connected)
            });
            running.push(attempt);
            wait += NEXT_HOST_AFTER;
        }
        Self { running }
    }

    /// What the next host gives; `None`: there is none left. Cancel safe.
    pub async fn next(&mut self) -> Option<(Host, Result<PgConnection, AttemptError>)> {
        self.running.next().await
    }
}

/// What the system says of a connection that failed: in the words that it has for all of them, and otherwise, as of a host's name that
/// nobody knows, in its own.
pub fn io_reason(error: &io::Error) -> String {
    if error.raw_os_error().is_some() { error.kind().to_string() } else { error.to_string() }
}

/// One connection to this host.
pub async fn connect_to(url: &ShardUrl, host: &Host, application_name: &str) -> Result<PgConnection, AttemptError> {
    let options = connect_options(url, host, application_name)?;
    Ok(Box::pin(PgConnection::connect_with(&options)).await?)
}

/// Longer than a host needs that is well.
pub const NEXT_HOST_AFTER: Duration = Duration::from_millis(250);
