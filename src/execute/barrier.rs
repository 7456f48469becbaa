//! A moment at which no commit over several shards is half done, for snapshots on all of them.
//!
//! A commit over several shards is decided on one of them and then finished on the others ([`super::commit`]). Snapshots that are
//! taken one by one could see it here and not there. So for the time that it takes to take them nobody decides, and what is
//! decided is finished:
//!
//! ```text
//!   the barrier, on connections of its own            sessions that commit            the session that takes the snapshots
//!   every shard: BEGIN; hold_decisions()              decide() waits
//!     prepared and decided? ── yes: wait a little     COMMIT PREPARED goes on
//!     └─ no: closed ────────────────────────────────────────────────────────────────► its snapshots, on every shard
//!   every shard: COMMIT  ◄─────────────────────────────────────────────────────────── they are there
//!     all say COMMIT: held all the time               decide() goes on
//!     one does not: the snapshots do not count
//! ```
//! Commits never wait for long: what is not had within half a second is let go for a while, and a proxy that is frozen meanwhile is
//! thrown out by the shards. One barrier at a time in a proxy; those of several proxies queue on the first shard.
//!
//! Commits of one shard are not kept away: they may fall between two of the snapshots.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::commit::{Registry, TransactionId};
use super::recovery::{Link, LinkError, Prepared};
use crate::shardmap::{Shard, ShardId};

/// One a proxy.
pub struct Barrier {
    registry: Arc<Registry>,
    /// Kept open once they were needed.
    links: tokio::sync::Mutex<HashMap<ShardId, Link>>,
    runtime: Handle,
}

/// Nobody decides until this is opened or dropped, or two seconds are over.
#[must_use]
pub struct Closed {
    open: oneshot::Sender<()>,
    holding: JoinHandle<Result<(), BarrierError>>,
}

#[derive(Debug, Error)]
pub enum BarrierError {
    #[error("shard \"{shard}\" cannot be asked: {error}")]
    Away { shard: String, error: LinkError },
    /// What commits over several shards need there is not there, or of another version.
    #[error("shard \"{}\" is not ready for it", .0.name)]
    NotReady(Arc<Shard>),
    /// Not in time. A transaction that is decided, as far as can be known, and not finished, if one was in the way.
    #[error("commits over several shards were not finished in time")]
    Late(Option<TransactionId>),
    /// The lock was lost before it was let go.
    #[error("a shard has let go")]
    Broken,
    /// Whoever asked is gone.
    #[error("nobody waits for it")]
    Abandoned,
}

/// Why an attempt has to be repeated.
enum Waits {
    /// Commits in progress, or another barrier.
    Lock,
    /// These are decided and not finished.
    Commits(BTreeSet<TransactionId>),
}

impl Barrier {
    /// To be called on the runtime that shall own the connections.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, links: tokio::sync::Mutex::default(), runtime: Handle::current() }
    }

    /// `shards`: all that may take part in a commit. Cancel safe: dropped, it lets go.
    pub async fn close(self: &Arc<Self>, shards: Vec<Arc<Shard>>, deadline: Instant) -> Result<Closed, BarrierError> {
        let (tell, told) = oneshot::channel();
        let (open, opened) = oneshot::channel();
        let holding = self.runtime.spawn(Arc::clone(self).hold(shards, deadline, tell, opened));
        match told.await {
            Ok(()) => Ok(Closed { open, holding }),
            Err(_) => Err(holding.await.unwrap_or(Ok(())).err().unwrap_or(BarrierError::Broken)),
        }
    }

    /// The whole life of one barrier.
    async fn hold(
        self: Arc<Self>,
        shards: Vec<Arc<Shard>>,
        deadline: Instant,
        tell: oneshot::Sender<()>,
        opened: oneshot::Receiver<()>,
    ) -> Result<(), BarrierError> {
        let mut kept = timeout_at(deadline, self.links.lock()).await.map_err(|_| BarrierError::Late(None))?;
        let mut links = take_links(&mut kept, &shards);
        let closed = Box::pin(self.close_over(&mut links, deadline, &tell)).await;
        if closed.is_ok() && tell.send(()).is_ok() && timeout(HELD_MAX, opened).await.is_err() {
            tracing::warn!("a snapshot barrier was held for too long");
        }
        let has_held = let_go(&mut links).await;
        kept.extend(links.into_iter().map(|link| (link.shard.id, link)));
        closed?;
        if has_held { Ok(()) } else { Err(BarrierError::Broken) }
    }

    /// Until it is closed. Between two attempts nothing is held.
    async fn close_over(&self, links: &mut [Link], deadline: Instant, tell: &oneshot::Sender<()>) -> Result<(), BarrierError> {
        let mut pause = PAUSE;
        loop {
            let Some(waits) = self.attempt(links, deadline.min(Instant::now() + ATTEMPT)).await? else { return Ok(()) };
            let_go(links).await;
            loop {
                if tell.is_closed() {
                    return Err(BarrierError::Abandoned);
                }
                if Instant::now() >= deadline {
                    return Err(BarrierError::Late(match waits {
                        Waits::Lock => None,
                        Waits::Commits(ids) => ids.into_iter().next(),
                    }));
                }
                sleep(pause).await;
                let Waits::Commits(ids) = &waits else { break };
                let prepared = self.prepared(links).await?;
                if !prepared.iter().any(|prepared| ids.contains(&prepared.id)) {
                    break;
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// `None`: it is closed.
    async fn attempt(&self, links: &mut [Link], until: Instant) -> Result<Option<Waits>, BarrierError> {
        if !lock_all(links, until).await? {
            return Ok(Some(Waits::Lock));
        }
        if self.registry.failpoints.has_planted("unfinished_not_waited_for") {
            return Ok(None);
        }
        loop {
            let unfinished = self.unfinished(links).await?;
            if unfinished.is_empty() {
                return Ok(None);
            }
            if Instant::now() >= until {
                return Ok(Some(Waits::Commits(unfinished)));
            }
            sleep(POLL).await;
        }
    }

    /// Decided, or perhaps decided, and prepared somewhere. What is not decided cannot be before the barrier is open again, and
    /// is seen nowhere.
    async fn unfinished(&self, links: &mut [Link]) -> Result<BTreeSet<TransactionId>, BarrierError> {
        let mut left: BTreeSet<TransactionId> = self.prepared(links).await?.into_iter().map(|prepared| prepared.id).collect();
        for link in links {
            let own: Vec<&TransactionId> = left.iter().filter(|id| link.uuid.as_deref() == Some(id.decider_uuid())).collect();
            if own.is_empty() {
                continue;
            }
            let own: Vec<TransactionId> = own.into_iter().cloned().collect();
            let committed = link.committed(&own).await.map_err(|error| away(link, error))?;
            left.retain(|id| !own.contains(id) || committed.iter().any(|gtx| gtx == id.as_str()));
        }
        Ok(left)
    }

    /// On all shards.
    async fn prepared(&self, links: &mut [Link]) -> Result<Vec<Prepared>, BarrierError> {
        let cluster = self.registry.cluster();
        let asked = links.iter_mut().map(|link| async move { link.prepared(cluster).await.map_err(|error| away(link, error)) });
        let found: Result<Vec<Vec<Prepared>>, BarrierError> = join_all(asked).await.into_iter().collect();
        Ok(found?.concat())
    }
}

impl Closed {
    /// Ok: nothing was decided from [`Barrier::close`] until now.
    pub async fn open(self) -> Result<(), BarrierError> {
        if self.open.send(()).is_err() {
            return Err(BarrierError::Broken);
        }
        self.holding.await.unwrap_or(Err(BarrierError::Broken))
    }
}

/// In the order of the shards. Under another URL it may be another database.
fn take_links(kept: &mut HashMap<ShardId, Link>, shards: &[Arc<Shard>]) -> Vec<Link> {
    let mut shards = shards.to_vec();
    shards.sort_by_key(|shard| shard.id);
    let link = |shard: Arc<Shard>| match kept.remove(&shard.id) {
        Some(link) if link.shard.url == shard.url => link,
        Some(_) | None => Link::new(shard),
    };
    let links = shards.into_iter().map(link).collect();
    // Of shards that are gone.
    kept.clear();
    links
}

/// The first shard before the others: there barriers queue, so that no two wait for each other. False: not in time.
async fn lock_all(links: &mut [Link], until: Instant) -> Result<bool, BarrierError> {
    let Some((first, others)) = links.split_first_mut() else { return Ok(true) };
    if !lock(first, until).await? {
        return Ok(false);
    }
    let locked = join_all(others.iter_mut().map(|link| lock(link, until))).await;
    let locked: Result<Vec<bool>, BarrierError> = locked.into_iter().collect();
    Ok(locked?.into_iter().all(|is_locked| is_locked))
}

async fn lock(link: &mut Link, until: Instant) -> Result<bool, BarrierError> {
    let wait_ms = until.saturating_duration_since(Instant::now()).as_millis().max(1);
    let text = format!(
        "SET LOCAL application_name = 'shardgate snapshot barrier';SET LOCAL lock_timeout = {wait_ms};\
         SET LOCAL idle_in_transaction_session_timeout = {};SELECT shardgate.hold_decisions()",
        HELD_MAX.as_millis()
    );
    match link.begin(&text).await {
        Ok(rows) if rows.last().is_some_and(|decides_with_lock| decides_with_lock == "t") => Ok(true),
        Ok(_) | Err(LinkError::NotReady) => Err(BarrierError::NotReady(Arc::clone(&link.shard))),
        Err(error) if error.is_undefined() => Err(BarrierError::NotReady(Arc::clone(&link.shard))),
        Err(error) if error.is_lock_timeout() => Ok(false),
        Err(error) => Err(away(link, error)),
    }
}

/// True: every shard has held until now.
async fn let_go(links: &mut [Link]) -> bool {
    join_all(links.iter_mut().map(Link::end)).await.into_iter().all(|has_held| has_held)
}

fn away(link: &Link, error: LinkError) -> BarrierError {
    BarrierError::Away { shard: link.shard.name.clone(), error }
}

/// For so long commits may wait for a barrier that is not closed yet.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Then they pass, longer each time.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Between two looks whether a commit is finished, which mostly takes a round trip.
const POLL: Duration = Duration::from_millis(3);
/// For so long commits wait for a proxy that has closed it and says nothing more.
const HELD_MAX: Duration = Duration::from_secs(2);
