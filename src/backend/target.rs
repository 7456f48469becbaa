//! Where a shard is and as whom to log in.

use std::fmt;
use std::sync::Arc;

use crate::net::ShardEndpoint;

/// How to reach a shard, by the URL in the map.
#[derive(Clone)]
pub struct ShardAddress {
    pub name: String,
    pub database: String,
    /// As in the map, to notice that it has changed. Secret.
    pub url: String,
    pub endpoint: Arc<ShardEndpoint>,
}

impl fmt::Debug for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
