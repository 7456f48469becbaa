//! Where a shard is and as whom to log in.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::identity::Expected;
use crate::auth::BackendCredentials;
use crate::config::{Host, ShardUrl, UrlError};
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
    pub expected: Expected,
    /// One for each host of the url.
    pub endpoints: Vec<Arc<ShardEndpoint>>,
    /// Index of the host that was the primary when it was last looked for.
    pub primary_host: Arc<AtomicUsize>,
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
            expected: Expected::of(shard),
            endpoints: ShardEndpoint::of(url)?,
            primary_host: Arc::default(),
        };
        Ok((address, credentials))
    }

    /// Do connections that were made by this address serve the shard as the map has it now?
    pub fn is_of(&self, shard: &Shard) -> bool {
        self.url == shard.url && self.state == shard.state && self.expected.uuid == shard.identity
    }

    pub fn is_same(&self, other: &ShardAddress) -> bool {
        self.url == other.url && self.state == other.state && self.expected.uuid == other.expected.uuid
    }

    /// Is the shard still at the same place, or at one of the same places, under whichever user and password?
    pub fn is_at(&self, shard: &Shard) -> bool {
        let is_own = |host: &Host| self.endpoints.iter().any(|endpoint| endpoint.host() == host);
        ShardUrl::parse(&shard.url).is_ok_and(|url| url.database == self.database && url.hosts.iter().any(is_own))
    }

    /// May the password be another one soon, without a change of the url?
    pub fn has_password_file(&self) -> bool {
        self.endpoints.first().is_some_and(|endpoint| endpoint.url().has_password_file())
    }

    /// With the place of each among the url's hosts, the one that was the primary last first.
    pub(super) fn endpoints_by_likelihood(&self) -> Vec<(usize, &Arc<ShardEndpoint>)> {
        let first = self.primary_host.load(Ordering::Relaxed);
        let mut endpoints: Vec<_> = self.endpoints.iter().enumerate().collect();
        endpoints.sort_by_key(|(place, _)| *place != first);
        endpoints
    }

    pub(super) fn note_primary_host(&self, place: usize) {
        self.primary_host.store(place, Ordering::Relaxed);
    }
}

impl fmt::Debug for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
