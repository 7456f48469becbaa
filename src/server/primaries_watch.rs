//! Keeps what is known of the shards' primaries: tells the map what connections have found, and, where a shard's URL names several hosts,
//! asks each of them, so that a promotion is seen while the server before may still answer.
//!
//! ```text
//!   a connection shows a newer timeline ─► Primary ─► the map ─► every proxy
//!   a host that was a standby is asked again ─┘          its connections to the server before are good for nothing from then on
//! ```
//! A standby keeps its sessions when it is promoted, so that asking costs one short query a second and host.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::identity::{self, Expected};
use crate::config::{Host, ShardUrl};
use crate::net::connect_to;
use crate::session::Gateway;
use crate::shardmap::{Shard, ShardId};

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut asked: HashMap<ShardId, Hosts> = HashMap::new();
    let mut ask_at = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(TELL_EVERY) => {}
        }
        let shards: Vec<Arc<Shard>> = gateway.map.snapshot().shards.clone();
        if Instant::now() >= ask_at {
            asked.retain(|id, _| shards.iter().any(|shard| shard.id == *id));
            for shard in shards.iter().filter(|shard| shard.identity.is_some()) {
                asked.entry(shard.id).or_default().follow(shard);
            }
            let known = asked.iter_mut().filter_map(|(id, hosts)| Some((hosts, shards.iter().find(|shard| shard.id == *id)?)));
            tokio::select! {
                () = stop.cancelled() => return,
                _ = join_all(known.map(|(hosts, shard)| hosts.ask(shard))) => {}
            }
            ask_at = Instant::now() + ASK_EVERY;
        }
        for shard in &shards {
            tell(&gateway, shard).await;
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
}

impl Hosts {
    fn follow(&mut self, shard: &Shard) {
        if self.text == shard.url {
            return;
        }
        let url = ShardUrl::parse(&shard.url).ok().filter(|url| url.hosts.len() > 1);
        let hosts = url.iter().flat_map(|url| &url.hosts);
        self.connections = hosts.map(|host| (host.clone(), None)).collect();
        (self.text, self.url) = (shard.url.clone(), url);
    }

    async fn ask(&mut self, shard: &Shard) {
        let Some(url) = &self.url else { return };
        let before = shard.primary.server();
        join_all(self.connections.iter_mut().map(|(host, connection)| ask_one(url, host, connection, shard))).await;
        let now = shard.primary.server();
        if let (Some(before), Some(now)) = (before, now)
            && before != now
        {
            tracing::warn!(shard = %shard.name, timeline = now.timeline, "another server of the shard was promoted");
        }
    }
}

/// A host that does not answer is asked again the next time.
async fn ask_one(url: &ShardUrl, host: &Host, connection: &mut Option<PgConnection>, shard: &Shard) {
    let kept = connection.take();
    let asking = async {
        let mut connection = match kept {
            Some(connection) => connection,
            None => connect_to(url, host, "shardgate").await.ok()?,
        };
        // Whose primary is of no newer timeline than is known changes nothing.
        match identity::show(&mut connection, &Expected::of(shard)).await.ok()? {
            Ok(shown) => drop(shard.primary.accept(shown.server)),
            Err(reason) => tracing::trace!(shard = %shard.name, %host, %reason, "no primary"),
        }
        Some(connection)
    };
    *connection = timeout(ANSWER_TIMEOUT, Box::pin(asking)).await.ok().flatten();
}

const TELL_EVERY: Duration = Duration::from_millis(250);
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
