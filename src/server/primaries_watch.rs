//! Keeps what is known of the shards' primaries: tells the map what connections have found, and, where a shard's URL names several hosts,
//! asks each of them, so that a promotion is seen while the server before may still answer.
//!
//! ```text
//!   a connection shows a newer timeline ─► Primary ─► the map ─► every proxy
//!   a host that was a standby is asked again ─┘          its connections to the server before are good for nothing from then on
//! ```
//! A standby keeps its sessions when it is promoted, so that asking costs one short query a second and host. A map that does not answer
//! keeps nobody from asking.
//!
//! Two hosts that are primaries of one timeline at once are no promotion, but a standby that was started as a primary, or a copy: none is
//! the newer one, and statements may go to either. An administrator hears so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sqlx::postgres::PgConnection;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::identity::{self, Expected, Shown};
use crate::config::{Host, ShardUrl};
use crate::net::connect_to;
use crate::session::Gateway;
use crate::shardmap::{Shard, ShardId};

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = ask_for_ever(&gateway) => {}
        () = tell_for_ever(&gateway) => {}
    }
}

async fn ask_for_ever(gateway: &Gateway) {
    let mut asked: HashMap<ShardId, Hosts> = HashMap::new();
    loop {
        let shards: Vec<Arc<Shard>> = gateway.map.snapshot().shards.clone();
        asked.retain(|id, _| shards.iter().any(|shard| shard.id == *id));
        for shard in shards.iter().filter(|shard| shard.identity.is_some()) {
            asked.entry(shard.id).or_default().follow(shard);
        }
        let known = asked.iter_mut().filter_map(|(id, hosts)| Some((hosts, shards.iter().find(|shard| shard.id == *id)?)));
        join_all(known.map(|(hosts, shard)| hosts.ask(shard))).await;
        sleep(ASK_EVERY).await;
    }
}

async fn tell_for_ever(gateway: &Gateway) {
    loop {
        sleep(TELL_EVERY).await;
        let shards: Vec<Arc<Shard>> = gateway.map.snapshot().shards.clone();
        for shard in &shards {
            tell(gateway, shard).await;
        }
    }
}

async fn tell(gateway: &Gateway, shard: &Shard) {
    let Some(server) = shard.primary.untold() else { return };
    match gateway.map.store().note_primary("shardgate", shard.id, server).await {
        Ok(Some(answer)) => shard.primary.note_answer(server, answer),
        // It will be gone here as well.
        Ok(None) => {}
        Err(error) => tracing::debug!(shard = %shard.name, %error, "the map has not been told of a shard's primary yet"),
    }
}

/// Of one shard; nothing where its URL names a single one.
#[derive(Default)]
struct Hosts {
    text: String,
    url: Option<ShardUrl>,
    connections: Vec<(Host, Option<PgConnection>)>,
    /// It was said that two of them are primaries.
    is_split_told: bool,
}

impl Hosts {
    fn follow(&mut self, shard: &Shard) {
        if self.text == shard.url {
            return;
        }
        let url = ShardUrl::parse(&shard.url).ok().filter(|url| url.hosts.len() > 1);
        let hosts = url.iter().flat_map(|url| &url.hosts);
        self.connections = hosts.map(|host| (host.clone(), None)).collect();
        (self.text, self.url, self.is_split_told) = (shard.url.clone(), url, false);
    }

    async fn ask(&mut self, shard: &Shard) {
        let Some(url) = &self.url else { return };
        let before = shard.primary.server();
        let asking = self.connections.iter_mut().map(|(host, connection)| ask_one(url, host, connection, shard));
        let shown: Vec<(&Host, Shown)> = join_all(asking).await.into_iter().flatten().collect();
        match two_primaries(&shown) {
            Some((one, other)) if !self.is_split_told => {
                self.is_split_told = true;
                tracing::error!(
                    shard = %shard.name, %one, %other,
                    "two servers of the shard are primaries of the same timeline: stop the one that was not meant to be"
                );
            }
            Some(_) => {}
            None => self.is_split_told = false,
        }
        let now = shard.primary.server();
        if let (Some(before), Some(now)) = (before, now)
            && before != now
        {
            tracing::warn!(shard = %shard.name, timeline = now.timeline, "another server of the shard was promoted");
        }
    }
}

/// Gives the host if it is a primary. One that does not answer is asked again the next time.
async fn ask_one<'a>(
    url: &ShardUrl,
    host: &'a Host,
    connection: &mut Option<PgConnection>,
    shard: &Shard,
) -> Option<(&'a Host, Shown)> {
    let kept = connection.take();
    let asking = async {
        let mut connection = match kept {
            Some(connection) => connection,
            None => connect_to(url, host, "shardgate").await.ok()?,
        };
        let shown = match identity::show(&mut connection, &Expected::of(shard)).await.ok()? {
            Ok(shown) => Some((host, shown)),
            Err(reason) => {
                tracing::trace!(shard = %shard.name, %host, %reason, "no primary");
                None
            }
        };
        if let Some((_, shown)) = shown {
            // Whose primary is of no newer timeline than is known changes nothing.
            drop(shard.primary.accept(shown.server));
        }
        Some((connection, shown))
    };
    let (kept, shown) = timeout(ANSWER_TIMEOUT, Box::pin(asking)).await.ok().flatten()?;
    *connection = Some(kept);
    shown
}

/// By the time of its start a server is known under two names.
fn two_primaries<'a>(shown: &[(&'a Host, Shown)]) -> Option<(&'a Host, &'a Host)> {
    shown.iter().enumerate().find_map(|(place, (host, one))| {
        let is_split = |(_, other): &&(&Host, Shown)| other.server == one.server && other.started_at != one.started_at;
        shown.get(place + 1..)?.iter().find(is_split).map(|(other, _)| (*host, *other))
    })
}

const TELL_EVERY: Duration = Duration::from_millis(250);
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shardmap::PrimaryServer;

    #[test]
    fn two_servers_of_one_timeline_are_seen_and_one_with_two_names_is_none() {
        let hosts = ShardUrl::parse("postgres://us@a,b,c/shard").expect("valid").hosts;
        let found = |servers: &[(i32, i64)]| {
            let shown = |(timeline, started_at): &(i32, i64)| {
                let server = PrimaryServer { system_identifier: 1, timeline: *timeline };
                Shown { server, started_at: *started_at }
            };
            let shown: Vec<(&Host, Shown)> = hosts.iter().zip(servers.iter().map(shown)).collect();
            two_primaries(&shown).map(|(one, other)| (one.name.clone(), other.name.clone()))
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(1, 10), (1, 10), (2, 20)]), None);
        assert_eq!(found(&[(1, 10), (2, 20), (2, 30)]), Some(("b".to_owned(), "c".to_owned())));
    }
}
