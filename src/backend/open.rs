//! Opens a connection to a shard and logs in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use thiserror::Error;

use super::identity::{self, Misdirected};
use super::registration::{Registered, Registration};
use super::{Connection, ConnectionError, ShardAddress};
use crate::auth::{self, BackendCredentials, LoginError, ShardError};
use crate::config::{PasswordError, TargetSession};
use crate::net::{ConnectError, NEXT_HOST_AFTER, ShardEndpoint};
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
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// It does not lead to the shard.
    #[error(transparent)]
    Misdirected(#[from] Misdirected),
    #[error("the connection was lost while the database was asked for its identity")]
    Lost(#[from] ConnectionError),
    /// This proxy, at this generation of its lease.
    #[error("the shard shuts this proxy out")]
    ShutOut { generation: i64 },
}

/// A fresh connection of this runtime, which leads to the shard's own database on its primary. `membership`: as whose it is registered
/// there. The caller sets the deadline.
///
/// Of several hosts the one that was the primary last is asked first, the others a moment later; the first that proves to be the
/// primary counts.
pub async fn open(
    address: &ShardAddress,
    credentials: &BackendCredentials,
    runtime: usize,
    membership: Option<&Membership>,
) -> Result<Connection, OpenError> {
    if let [endpoint] = address.endpoints.as_slice() {
        return Box::pin(open_at(endpoint, address, credentials, runtime, membership)).await;
    }
    let mut attempts = FuturesUnordered::new();
    let mut wait = Duration::ZERO;
    for (place, endpoint) in address.endpoints_by_likelihood() {
        attempts.push(Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            (place, Box::pin(open_at(endpoint, address, credentials, runtime, membership)).await)
        }));
        wait += NEXT_HOST_AFTER;
    }
    let mut failure = None;
    while let Some((place, opened)) = attempts.next().await {
        match opened {
            Ok(connection) => {
                address.note_primary_host(place);
                return Ok(connection);
            }
            Err(error) => failure = Some(more_telling(failure, error)),
        }
    }
    Err(failure.unwrap_or(OpenError::Connect(ConnectError::NoAddress)))
}

/// What the host says that would be the primary, rather than what becomes of the others.
fn more_telling(known: Option<OpenError>, error: OpenError) -> OpenError {
    let rank = |error: &OpenError| match error {
        OpenError::ShutOut { .. } => 5,
        OpenError::Password(_) => 4,
        OpenError::Refused(_) | OpenError::Login(_) => 3,
        OpenError::Misdirected(Misdirected::Standby) => 1,
        OpenError::Misdirected(_) => 2,
        OpenError::Timeout(_) | OpenError::Connect(_) | OpenError::Lost(_) => 0,
    };
    match known {
        Some(known) if rank(&known) >= rank(&error) => known,
        Some(_) | None => error,
    }
}

async fn open_at(
    endpoint: &Arc<ShardEndpoint>,
    address: &ShardAddress,
    credentials: &BackendCredentials,
    runtime: usize,
    membership: Option<&Membership>,
) -> Result<Connection, OpenError> {
    let registration = membership.filter(|_| address.expected.uuid.is_some()).map(Registration::of);
    let url = endpoint.url();
    let credentials = credentials.for_host(url, endpoint.host())?;
    let begun_at = Instant::now();
    let mut stream = endpoint.connect().await?;
    // Statements are read and forwarded as UTF-8; a client that asks for another encoding gets it by its settings. Whatever
    // the order, the server sets these after what `options` says.
    let own = [("client_encoding", Some("UTF8")), ("standard_conforming_strings", Some("on"))];
    let given = [("options", url.options.as_deref()), ("application_name", url.application_name.as_deref())];
    let parameters: Vec<(&str, &str)> = given.into_iter().chain(own).filter_map(|(name, value)| Some((name, value?))).collect();
    let mut question = BytesMut::new();
    let asked = [address.expected.query().to_owned()];
    let queries: Vec<String> = asked.into_iter().chain(registration.into_iter().flat_map(Registration::queries)).collect();
    queries.iter().for_each(|query| originate::query(&mut question, query.as_bytes()));
    let mut connection = match auth::login(&mut stream, &credentials, &address.database, &parameters, &question).await {
        Ok(greeting) => Connection::after_login(stream, endpoint, greeting, runtime, queries.len()),
        Err(LoginError::Shard(error)) => return Err(OpenError::Refused(error)),
        Err(error) => return Err(OpenError::Login(error)),
    };
    // What the server gives to a login, and may have changed meanwhile, was read after this.
    connection.opened_at = begun_at;
    connection.pledge = Some(identity::check_answer(&mut connection, &address.expected).await??);
    if url.target_session == TargetSession::ReadWrite && connection.parameter("default_transaction_read_only") == Some("on") {
        return Err(Misdirected::ReadOnly.into());
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
