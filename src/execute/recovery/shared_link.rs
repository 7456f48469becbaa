//! A link to one shard that several users share, one at a time: rounds of recovery, commits that have lost the shard, sequences.
//!
//! An attempt on a shard that does not answer takes seconds, and many may wait for the link meanwhile. Those who waited while an
//! attempt failed share its failure; if each tried for itself, the last one would wait for all the others.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::link::{Link, LinkError};
use crate::shardmap::{Shard, ShardId};

pub struct SharedLink {
    /// As the map had it when the link was made.
    pub shard: Arc<Shard>,
    link: tokio::sync::Mutex<Link>,
    /// When the shard was first missing in the map.
    left_at: OnceLock<Instant>,
}

impl SharedLink {
    fn new(shard: Arc<Shard>) -> Arc<Self> {
        let link = tokio::sync::Mutex::new(Link::new(Arc::clone(&shard)));
        Arc::new(Self { shard, link, left_at: OnceLock::new() })
    }

    /// Waits for the caller's turn. An error: the shard has not answered somebody else since `asked_at`. Cancel safe.
    pub async fn turn(&self, asked_at: Instant) -> Result<MutexGuard<'_, Link>, LinkError> {
        let link = self.link.lock().await;
        match link.unanswered_at {
            Some(at) if at >= asked_at => Err(LinkError::Unreachable("it has just not answered".to_owned())),
            Some(_) | None => Ok(link),
        }
    }

    /// The first column of one statement's rows.
    pub async fn values(&self, asked_at: Instant, sql: String) -> Result<Vec<String>, LinkError> {
        self.turn(asked_at).await?.values(sql).await
    }

    /// Is its connection open, as far as is known without waiting?
    pub fn is_alive(&self) -> bool {
        self.link.try_lock().is_ok_and(|mut link| link.is_alive())
    }

    /// The shard is not in the map any more.
    pub fn has_left(&self) -> bool {
        self.left_at.get().is_some()
    }
}

/// One link for each shard.
#[derive(Default)]
pub struct SharedLinks(Mutex<HashMap<ShardId, Arc<SharedLink>>>);

impl SharedLinks {
    pub fn of(&self, shard: &Arc<Shard>) -> Arc<SharedLink> {
        let mut links = self.0.lock();
        let link = links.entry(shard.id).or_insert_with(|| SharedLink::new(Arc::clone(shard)));
        // Under another URL it may be another database.
        if link.shard.url != shard.url || link.has_left() {
            *link = SharedLink::new(Arc::clone(shard));
        }
        Arc::clone(link)
    }

    /// The one that there is.
    pub fn known(&self, shard: ShardId) -> Option<Arc<SharedLink>> {
        self.0.lock().get(&shard).cloned()
    }

    /// Drops those of shards that have left the map. Who uses one keeps it.
    pub fn keep_only(&self, is_in_map: impl Fn(ShardId) -> bool) {
        self.0.lock().retain(|id, _| is_in_map(*id));
    }

    /// Those of shards that have left the map; after [`KEPT_FOR`] they are dropped.
    pub fn of_former(&self, now: Instant, is_in_map: impl Fn(ShardId) -> bool) -> Vec<Arc<SharedLink>> {
        let mut links = self.0.lock();
        links.retain(|id, link| is_in_map(*id) || now.duration_since(*link.left_at.get_or_init(|| now)) < KEPT_FOR);
        links.iter().filter(|(id, _)| !is_in_map(**id)).map(|(_, link)| Arc::clone(link)).collect()
    }
}

/// A commit that had begun before its shard left the map has ended by then, or its transaction has been found.
const KEPT_FOR: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::net::TcpListener;

    use super::*;
    use crate::shardmap::ShardState;

    fn shard(url: String) -> Arc<Shard> {
        Arc::new(Shard {
            id: ShardId(3),
            name: "three".to_owned(),
            url,
            region: None,
            capacity: 1.0,
            state: ShardState::Online,
            is_home: false,
            owes: false,
            identity: None,
            primary: Arc::default(),
        })
    }

    /// Closes every connection at once, and counts them.
    async fn closing() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("postgres://nobody@{}/nowhere", listener.local_addr().expect("its address"));
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn those_who_wait_for_a_shard_that_does_not_answer_share_its_failure() {
        let (url, count) = closing().await;
        let link = SharedLinks::default().of(&shard(url));
        let ask = async || link.values(Instant::now(), "SELECT 1".to_owned()).await;
        assert!(matches!(ask().await, Err(LinkError::Unreachable(_))));
        let of_one = count.load(Ordering::Relaxed);
        // Who comes later tries again, and the others with him.
        let asked = join_all((0..20).map(|_| ask())).await;
        assert!(asked.iter().all(|answer| matches!(answer, Err(LinkError::Unreachable(_)))), "{asked:?}");
        assert_eq!(count.load(Ordering::Relaxed), 2 * of_one);
    }

    #[test]
    fn a_link_that_nothing_was_begun_by_goes_with_its_shard() {
        let (links, three) = (SharedLinks::default(), shard("postgres://nobody@127.0.0.1:1/nowhere".to_owned()));
        let link = links.of(&three);
        links.keep_only(|id| id == three.id);
        assert!(Arc::ptr_eq(&link, &links.of(&three)));
        links.keep_only(|_| false);
        assert!(links.known(three.id).is_none());
    }

    #[test]
    fn a_shard_that_has_left_the_map_keeps_its_link_for_a_while() {
        let (links, three) = (SharedLinks::default(), shard("postgres://nobody@127.0.0.1:1/nowhere".to_owned()));
        let (link, now) = (links.of(&three), Instant::now());
        assert!(links.of_former(now, |_| true).is_empty() && !link.has_left());
        assert_eq!(links.of_former(now, |_| false).len(), 1);
        assert!(link.has_left() && links.known(three.id).is_some());
        assert!(links.of_former(now + KEPT_FOR, |_| false).is_empty() && links.known(three.id).is_none());
    }
}
