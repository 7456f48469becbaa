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
//! Two hosts that are primaries of one timeline at once are no promotion, but standbys that were promoted apart from one another, or a copy:
//! none is the newer one, and none is used until only one is seen, [`GONE_AFTER`] times in a row. An administrator hears so.

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
use crate::shardmap::{PrimaryServer, Shard, ShardId};

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
    /// In how many rounds, the last ones, a single primary was seen since there were two.
    seen_alone: u32,
}

impl Hosts {
    fn follow(&mut self, shard: &Shard) {
        if self.text == shard.url {
            return;
        }
        let url = ShardUrl::parse(&shard.url).ok().filter(|url| url.hosts.len() > 1);
        let hosts = url.iter().flat_map(|url| &url.hosts);
        self.connections = hosts.map(|host| (host.clone(), None)).collect();
        (self.text, self.url, self.seen_alone) = (shard.url.clone(), url, 0);
        // Perhaps of other servers.
        if let Some(server) = shard.primary.server() {
            shard.primary.note_split(server, false);
        }
    }

    async fn ask(&mut self, shard: &Shard) {
        let Some(url) = &self.url else { return };
        let before = shard.primary.server();
        let asking = self.connections.iter_mut().map(|(host, connection)| ask_one(url, host, connection, shard));
        let shown: Vec<(&Host, Shown)> = join_all(asking).await.into_iter().flatten().collect();
        note_seen(&mut self.seen_alone, shard, Seen::of(&shown, shard.primary.server()));
        let now = shard.primary.server();
        if let (Some(before), Some(now)) = (before, now)
            && before != now
        {
            tracing::warn!(shard = %shard.name, timeline = now.timeline, "another server of the shard was promoted");
        }
    }
}

/// How many servers have shown themselves as the shard's primary in one round.
enum Seen<'a> {
    /// It may be away with all of its hosts, or only slow: nothing is known of another one.
    None,
    One(PrimaryServer),
    Two(&'a Host, &'a Host, PrimaryServer),
}

impl<'a> Seen<'a> {
    fn of(shown: &[(&'a Host, Shown)], primary: Option<PrimaryServer>) -> Self {
        let is_primary = |server: PrimaryServer| Some(server) == primary;
        match identity::two_primaries(shown) {
            Some((one, other, server)) if is_primary(server) => Seen::Two(one, other, server),
            Some(_) | None => match shown.iter().find(|(_, shown)| is_primary(shown.server)) {
                Some((_, shown)) => Seen::One(shown.server),
                None => Seen::None,
            },
        }
    }
}

fn note_seen(seen_alone: &mut u32, shard: &Shard, seen: Seen<'_>) {
    match seen {
        Seen::Two(one, other, server) => {
            *seen_alone = 0;
            if !shard.primary.is_split() {
                tracing::error!(
                    shard = %shard.name, %one, %other,
                    "two servers of the shard are primaries of the same timeline, and none is used: stop the one that was not meant to be"
                );
            }
            shard.primary.note_split(server, true);
        }
        Seen::One(server) => {
            *seen_alone += 1;
            if shard.primary.is_split() && *seen_alone >= GONE_AFTER {
                tracing::warn!(shard = %shard.name, "one primary of the shard is left, and is used");
                shard.primary.note_split(server, false);
            }
        }
        Seen::None => *seen_alone = 0,
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

/// One of them may only be slow.
const GONE_AFTER: u32 = 2;
const TELL_EVERY: Duration = Duration::from_millis(250);
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shardmap::{Primary, ShardState};

    const NOW: PrimaryServer = PrimaryServer { system_identifier: 1, timeline: 2 };
    const FORMER: PrimaryServer = PrimaryServer { system_identifier: 1, timeline: 1 };

    /// Rounds, in each of which these have answered as primaries; whether none is used behind each.
    fn played(rounds: &[&[(PrimaryServer, i64)]]) -> Vec<bool> {
        let url = ShardUrl::parse("postgres://nobody@127.0.0.1:1,127.0.0.1:2/nowhere").expect("a url");
        let shard = Shard {
            id: ShardId(3),
            name: "three".to_owned(),
            url: String::new(),
            region: None,
            capacity: 1.0,
            state: ShardState::Online,
            is_home: false,
            owes: false,
            identity: None,
            primary: Primary::of(Some(NOW)),
        };
        let mut seen_alone = 0;
        let mut round = |answers: &&[(PrimaryServer, i64)]| {
            let shown = answers.iter().map(|(server, started_at)| Shown { server: *server, started_at: *started_at });
            let shown: Vec<(&Host, Shown)> = url.hosts.iter().zip(shown).collect();
            note_seen(&mut seen_alone, &shard, Seen::of(&shown, shard.primary.server()));
            shard.primary.is_split()
        };
        rounds.iter().map(&mut round).collect()
    }

    #[test]
    fn of_two_primaries_one_is_used_when_it_was_seen_alone_twice_in_a_row() {
        let (two, one): (&[_], &[_]) = (&[(NOW, 10), (NOW, 20)], &[(NOW, 10)]);
        assert_eq!(played(&[one, two, one, one]), [false, true, true, false]);
        assert_eq!(played(&[two, one, two, one, one]), [true, true, true, true, false]);
        assert_eq!(played(&[&[(NOW, 10), (NOW, 10)], &[(NOW, 10), (FORMER, 20)]]), [false, false], "two names, and a former one");
    }

    #[test]
    fn servers_that_do_not_answer_are_not_seen_alone() {
        let (two, one, none): (&[_], &[_], &[_]) = (&[(NOW, 10), (NOW, 20)], &[(NOW, 10)], &[]);
        assert_eq!(played(&[two, none, none, none]), [true; 4]);
        assert_eq!(played(&[two, one, none, one, one]), [true, true, true, true, false]);
        assert_eq!(played(&[two, &[(FORMER, 30)], &[(FORMER, 30)]]), [true; 3], "a former one is none");
    }
}
