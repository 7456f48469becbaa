//! Opens a connection to a shard and logs in.

use std::time::Duration;

use thiserror::Error;

use super::{Connection, ConnectionLimits, ShardAddress};
use crate::auth::{self, BackendCredentials, LoginError, ShardError};
use crate::net::ConnectError;

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The shard's own words.
    #[error("{0}")]
    Refused(ShardError),
    #[error(transparent)]
    Login(LoginError),
}

/// A fresh connection of this runtime. The caller sets the deadline.
pub async fn open(
    address: &ShardAddress,
    credentials: &BackendCredentials,
    runtime: usize,
    limits: ConnectionLimits,
) -> Result<Connection, OpenError> {
    let mut stream = address.endpoint.connect().await?;
    let url = address.endpoint.url();
    // Statements are read and forwarded as UTF-8; a client that asks for another encoding gets it by its settings. Whatever
    // the order, the server sets these after what `options` says.
    let own = [("client_encoding", Some("UTF8")), ("standard_conforming_strings", Some("on"))];
    let given = [("options", url.options.as_deref()), ("application_name", url.application_name.as_deref())];
    let parameters: Vec<(&str, &str)> = given.into_iter().chain(own).filter_map(|(name, value)| Some((name, value?))).collect();
    match auth::login(&mut stream, credentials, &address.database, &parameters).await {
        Ok(greeting) => Ok(Connection::new(stream, &address.endpoint, greeting, runtime, limits)),
        Err(LoginError::Shard(error)) => Err(OpenError::Refused(error)),
        Err(error) => Err(OpenError::Login(error)),
    }
}
