//! Where a shard is and as whom to log in.

use std::fmt;
use std::sync::Arc;

use crate::auth::BackendCredentials;
use crate::config::{ShardUrl, UrlError};
use crate::net::{ShardEndpoint, TlsError};
use crate::shardmap::{Shard, ShardState};

/// How to reach a shard, by the map.
#[derive(Clone)]
pub struct ShardAddress {
    pub name: String,
    pub database: String,
    /// As in the map, to notice that it has changed. Secret.
    pub url: String,
    /// The connections of a shard that takes no writes are set up in another way.
    pub state: ShardState,
    /// What the database must show. `None`: the map does not know it.
    pub identity: Option<Arc<str>>,
    pub endpoint: Arc<ShardEndpoint>,
}

/// Why the map's URL is of no use.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ShardAddress {
    /// With the credentials of the URL.
    pub fn of(shard: &Shard) -> Result<(Self, BackendCredentials), AddressError> {
        let url = ShardUrl::parse(&shard.url)?;
        let credentials = BackendCredentials::from_url(&url);
        let address = Self {
            name: shard.name.clone(),
            database: url.database.clone(),
            url: shard.url.clone(),
            state: shard.state,
            identity: shard.identity.clone(),
            endpoint: Arc::new(ShardEndpoint::new(url)?),
        };
        Ok((address, credentials))
    }

    /// Do connections that were made by this address serve the shard as the map has it now?
    pub fn is_of(&self, shard: &Shard) -> bool {
        self.url == shard.url && self.state == shard.state && self.identity == shard.identity
    }

    pub fn is_same(&self, other: &ShardAddress) -> bool {
        self.url == other.url && self.state == other.state && self.identity == other.identity
    }

    /// Is the shard still at the same place, under whichever user and password?
    pub fn is_at(&self, shard: &Shard) -> bool {
        let own = self.endpoint.url();
        ShardUrl::parse(&shard.url).is_ok_and(|url| (&url.host, url.port, &url.database) == (&own.host, own.port, &own.database))
    }
}

impl fmt::Debug for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
