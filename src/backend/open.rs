//! Opens a connection to a shard and logs in.

use std::time::Duration;

use bytes::BytesMut;
use thiserror::Error;

use super::identity::{self, Misdirected};
use super::registration::{Registered, Registration};
use super::{Connection, ConnectionError, ShardAddress};
use crate::auth::{self, BackendCredentials, LoginError, ShardError};
use crate::net::ConnectError;
use crate::shardmap::Membership;
use crate::wire::originate;

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
    /// It does not lead to the shard.
    #[error(transparent)]
    Misdirected(#[from] Misdirected),
    #[error("the connection was lost while the database was asked for its identity")]
    Lost(#[from] ConnectionError),
    /// This proxy, at this generation of its lease.
    #[error("the shard shuts this proxy out")]
    ShutOut { generation: i64 },
}

/// A fresh connection of this runtime, which leads to the shard's own database. `membership`: as whose it is registered there. The
/// caller sets the deadline.
pub async fn open(
    address: &ShardAddress,
    credentials: &BackendCredentials,
    runtime: usize,
    membership: Option<&Membership>,
) -> Result<Connection, OpenError> {
    let registration = membership.filter(|_| address.identity.is_some()).map(Registration::of);
    let mut stream = address.endpoint.connect().await?;
    let url = address.endpoint.url();
    // Statements are read and forwarded as UTF-8; a client that asks for another encoding gets it by its settings. Whatever
    // the order, the server sets these after what `options` says.
    let own = [("client_encoding", Some("UTF8")), ("standard_conforming_strings", Some("on"))];
    let given = [("options", url.options.as_deref()), ("application_name", url.application_name.as_deref())];
    let parameters: Vec<(&str, &str)> = given.into_iter().chain(own).filter_map(|(name, value)| Some((name, value?))).collect();
    let mut question = BytesMut::new();
    let asked = address.identity.is_some().then(|| identity::QUERY.to_owned());
    let queries: Vec<String> = asked.into_iter().chain(registration.into_iter().flat_map(Registration::queries)).collect();
    queries.iter().for_each(|query| originate::query(&mut question, query.as_bytes()));
    let mut connection = match auth::login(&mut stream, credentials, &address.database, &parameters, &question).await {
        Ok(greeting) => Connection::after_login(stream, &address.endpoint, greeting, runtime, queries.len()),
        Err(LoginError::Shard(error)) => return Err(OpenError::Refused(error)),
        Err(error) => return Err(OpenError::Login(error)),
    };
    if let Some(expected) = &address.identity {
        identity::check_answer(&mut connection, expected).await??;
    }
    if let Some(registration) = registration {
        connection.generation = registration.generation;
        match Registration::check_answers(&mut connection).await? {
            Registered::Welcome => {}
            Registered::Unknown => connection.is_pinned = true,
            Registered::ShutOut => return Err(OpenError::ShutOut { generation: registration.generation }),
        }
    }
    Ok(connection)
}
