//! Two servers of one shard that are primaries of the newest timeline at once: looked for where there is no [`Primary`] that a watch keeps, as in
//! a command, or before something that must not be done on one of two.
//!
//! Only what the URL names is asked, and a server that does not answer in time is none.
//!
//! [`Primary`]: crate::shardmap::Primary

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::identity::{self, Expected};
use crate::config::{Host, ShardUrl};
use crate::net::connect_to;
use crate::shardmap::Shard;

/// `None`: there are not two, or the URL names a single server. Takes no longer than `patience`. Cancel safe.
pub async fn two_primaries(shard: &Shard, patience: Duration) -> Option<(Host, Host)> {
    let url = ShardUrl::parse(&shard.url).ok().filter(|url| url.hosts.len() > 1)?;
    let (url, expected) = (&url, &Expected::of(shard));
    let asking = url.hosts.iter().map(|host| async move {
        let shown = async {
            let mut connection = connect_to(url, host, "shardgate").await.ok()?;
            identity::show(&mut connection, expected).await.ok()?.ok()
        };
        Some((host, timeout(patience, Box::pin(shown)).await.ok()??))
    });
    let shown: Vec<_> = join_all(asking).await.into_iter().flatten().collect();
    let (one, other, server) = identity::two_primaries(&shown)?;
    let mut newest = shown.iter().map(|(_, shown)| shown.server).chain(shard.primary.server());
    let is_former = newest.any(|newest| newest.is_successor_of(server));
    (!is_former).then(|| (one.clone(), other.clone()))
}
