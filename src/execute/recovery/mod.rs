//! Finishes what commits over several shards have left: by any proxy, without a person, in any order, as often as it likes.
//!
//! ```text
//!   every 2 s, and before a shard that was away is used:
//!     prepared transactions of this cluster, on every shard ─► whose proxy is gone, or who are old ─► by transaction:
//!       the decider, found by its uuid: shardgate.resolve writes "aborted" unless a decision is there, and says what is
//!         ─► COMMIT PREPARED or ROLLBACK PREPARED on every participant
//! ```
//! The decision row arbitrates: a proxy that is slow, frozen or restarted cannot decide any more once it says aborted. Never acts
//! on anybody else's prepared transactions, and never guesses: while the decider cannot be reached the transaction stays in
//! doubt, and `shardgate.transactions` shows it.
//!
//! Connections belong to the runtime on which [`Recovery`] was made; calls from other runtimes are carried there.

mod collect;
mod link;
mod orphans;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::execute::commit::rules::Finish;
use crate::execute::commit::{self, Finished, Registry, TransactionId};
use crate::shardmap::{Leases, Shard, ShardId, ShardMap, StoreError};
pub(super) use link::Link;
pub use link::{LinkError, Prepared};

type SharedLink = Arc<tokio::sync::Mutex<Link>>;

/// One a proxy.
pub struct Recovery {
    map: Arc<ShardMap>,
    registry: Arc<Registry>,
    links: Mutex<HashMap<ShardId, SharedLink>>,
    leases: Mutex<Leases>,
    /// See [`Recovery::last_seen`].
    seen: Mutex<(usize, Duration)>,
    /// Shards that were away, or have never been looked at: nobody uses them before they have been.
    unseen: Mutex<HashSet<ShardId>>,
    /// Spares sessions the lock above.
    has_unseen: AtomicBool,
    runtime: Handle,
}

/// A transaction over several shards that is prepared somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    pub id: TransactionId,
    /// `None`: not decided yet, or the decider cannot be asked.
    pub is_committed: Option<bool>,
    /// Names of the shards on which it is prepared.
    pub shards: Vec<String>,
    pub age: Duration,
}

/// What one look at all shards has found.
struct Look {
    prepared: Vec<(SharedLink, Prepared)>,
    /// Every shard has answered.
    is_complete: bool,
}

impl Recovery {
    /// To be called on the runtime that shall own the connections.
    pub fn new(map: Arc<ShardMap>, registry: Arc<Registry>) -> Self {
        let unseen: HashSet<ShardId> = map.snapshot().shards.iter().map(|shard| shard.id).collect();
        Self {
            has_unseen: AtomicBool::new(!unseen.is_empty()),
            unseen: Mutex::new(unseen),
            map,
            registry,
            links: Mutex::default(),
            leases: Mutex::new(Leases::new(ROUND_GAP_MAX)),
            seen: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// One round over all shards. Returns how many prepared transactions it has finished.
    pub async fn round(&self) -> usize {
        self.registry.failpoints.reach("before_recovery_round").await;
        let look = self.look().await;
        let ids: HashSet<&TransactionId> = look.prepared.iter().map(|(_, prepared)| &prepared.id).collect();
        let oldest = look.prepared.iter().map(|(_, prepared)| prepared.age).max().unwrap_or_default();
        *self.seen.lock() = (ids.len(), oldest);
        // Read after the prepared ones: a proxy that has just come is not taken for one that is gone.
        if let Err(error) = self.read_leases().await {
            tracing::debug!(%error, "the proxies' leases could not be read");
        }
        let orphans = self.orphans(look.prepared);
        let mut finished = 0;
        for (id, participants) in orphans {
            finished += Box::pin(self.settle(&id, participants)).await;
        }
        finished
    }

    /// How many proxies share the servers, as the last round saw it; at least one.
    pub fn live_proxies(&self) -> usize {
        self.leases.lock().count_live()
    }

    /// What the last round has found prepared: how many transactions, and the age of the oldest.
    pub fn last_seen(&self) -> (usize, Duration) {
        *self.seen.lock()
    }

    /// Finishes what can be finished now. Returns the transactions that nobody works on and that stay prepared all the same.
    pub async fn left_in_doubt(self: &Arc<Self>) -> Vec<TransactionId> {
        let this = Arc::clone(self);
        let looking = self.runtime.spawn(async move {
            Box::pin(this.round()).await;
            let look = this.look().await;
            this.orphans(look.prepared).into_keys().collect()
        });
        looking.await.unwrap_or_default()
    }

    /// For [`Recovery::is_gone`], after what is asked about.
    pub async fn read_leases(&self) -> Result<(), StoreError> {
        let read = self.map.store().proxy_renewals().await;
        let mut leases = self.leases.lock();
        match &read {
            Ok(rows) => leases.note(rows, Instant::now()),
            Err(_) => leases.note_failure(),
        }
        read.map(drop)
    }

    /// Has this proxy lost its lease, while others could renew theirs? As the last reading saw it; it may have been frozen.
    pub fn is_gone(&self, proxy: i64) -> bool {
        self.leases.lock().has_ended(proxy)
    }

    /// Is anything that this proxy has prepared still there, as far as all shards can be asked?
    pub async fn may_have_prepared(self: &Arc<Self>, proxy: i64) -> bool {
        let this = Arc::clone(self);
        let looking = self.runtime.spawn(async move {
            let look = this.look().await;
            !look.is_complete || look.prepared.iter().any(|(_, prepared)| prepared.id.incarnation() == proxy)
        });
        looking.await.unwrap_or(true)
    }

    /// Prepared transactions of ours that nobody works on, by transaction.
    fn orphans(&self, prepared: Vec<(SharedLink, Prepared)>) -> BTreeMap<TransactionId, Vec<(SharedLink, Prepared)>> {
        let leases = self.leases.lock();
        let mut orphans = BTreeMap::<TransactionId, Vec<_>>::new();
        for (link, prepared) in prepared {
            let is_active = self.registry.is_active(&prepared.id);
            if orphans::is_orphan(&prepared, self.registry.incarnation(), is_active, &leases) {
                orphans.entry(prepared.id.clone()).or_default().push((link, prepared));
            }
        }
        orphans
    }

    /// Asks the decider, then finishes the participants.
    async fn settle(&self, id: &TransactionId, participants: Vec<(SharedLink, Prepared)>) -> usize {
        if self.registry.failpoints.has_planted("violation_read_as_committed") {
            return Box::pin(self.settle_wrongly(id, participants)).await;
        }
        let is_committed = match self.resolve(id).await {
            Ok(is_committed) => is_committed,
            Err(error) => {
                tracing::warn!(gid = %id, %error, "a transaction over several shards stays in doubt");
                return 0;
            }
        };
        self.finish_prepared(is_committed, participants).await
    }

    /// The mistake that tests plant: whoever finds a row takes it for a commit, also the row of another participant's recovery.
    async fn settle_wrongly(&self, id: &TransactionId, participants: Vec<(SharedLink, Prepared)>) -> usize {
        let mut count = 0;
        for participant in participants {
            let is_committed = self.decision(id).await.is_some();
            if self.resolve(id).await.is_ok() {
                count += self.finish_prepared(is_committed, vec![participant]).await;
            }
        }
        count
    }

    async fn finish_prepared(&self, is_committed: bool, participants: Vec<(SharedLink, Prepared)>) -> usize {
        let mut count = 0;
        for (link, prepared) in participants {
            self.registry.failpoints.reach("before_recovery_finish").await;
            let mut link = link.lock().await;
            match finish_on(&mut link, &prepared.id, &prepared.gid, is_committed).await {
                Finished::Done => {
                    count += 1;
                    tracing::info!(gid = prepared.gid, shard = link.shard.name, is_committed, "prepared transaction finished");
                }
                Finished::PartLost => commit::report_lost_part(&prepared.id, &link.shard.name),
                Finished::NotYet => {}
            }
        }
        count
    }

    /// Every shard's prepared transactions.
    async fn look(&self) -> Look {
        let links = self.links();
        let asked = join_all(links.into_iter().map(|link| async move {
            let found = link.lock().await.prepared(self.registry.cluster()).await;
            (link, found)
        }))
        .await;
        let mut look = Look { prepared: Vec::new(), is_complete: true };
        for (link, found) in asked {
            match found {
                Ok(found) => look.prepared.extend(found.into_iter().map(|prepared| (Arc::clone(&link), prepared))),
                // One that was never made ready has never taken part in anything.
                Err(LinkError::NotReady) => {}
                Err(error) => {
                    look.is_complete = false;
                    tracing::debug!(%error, "a shard's prepared transactions are not known");
                }
            }
        }
        look
    }

    /// One link a shard of the map; what belongs to no shard any more is dropped.
    fn links(&self) -> Vec<SharedLink> {
        let snapshot = self.map.snapshot();
        let online = || snapshot.shards.iter().filter(|shard| shard.state.is_ready());
        self.links.lock().retain(|id, _| online().any(|shard| shard.id == *id));
        online().map(|shard| self.link(shard)).collect()
    }

    fn link(&self, shard: &Arc<Shard>) -> SharedLink {
        let mut links = self.links.lock();
        let fresh = || Arc::new(tokio::sync::Mutex::new(Link::new(Arc::clone(shard))));
        let link = links.entry(shard.id).or_insert_with(fresh);
        // Under another URL it may be another database.
        if link.try_lock().is_ok_and(|link| link.shard.url != shard.url) {
            *link = fresh();
        }
        Arc::clone(link)
    }

    /// The decision, made an abort when there is none. Only the database that the transaction names is asked.
    async fn resolve(&self, id: &TransactionId) -> Result<bool, LinkError> {
        let mut failure = None;
        for link in self.links() {
            let mut link = link.lock().await;
            match link.known_uuid().await {
                Some(uuid) if uuid == id.decider_uuid() => return link.resolve(id).await,
                Some(_) => {}
                None => failure = Some(LinkError::Unreachable(format!("shard \"{}\" may be the decider", link.shard.name))),
            }
        }
        Err(failure.unwrap_or_else(|| LinkError::Unreachable("no shard is the decider".to_owned())))
    }

    /// The same until it is known or the deadline is over.
    pub async fn resolve_until(self: &Arc<Self>, id: TransactionId, deadline: tokio::time::Instant) -> Option<bool> {
        let this = Arc::clone(self);
        let resolving = self.runtime.spawn(async move {
            loop {
                match this.resolve(&id).await {
                    Ok(is_committed) => return Some(is_committed),
                    Err(error) if tokio::time::Instant::now() >= deadline => {
                        tracing::error!(gid = %id, %error, "the outcome of a commit over several shards is unknown");
                        return None;
                    }
                    Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                }
            }
        });
        resolving.await.unwrap_or(None)
    }

    /// Finishes one participant of a transaction whose outcome is known, until it is done or the deadline is over.
    pub async fn finish_until(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        participant: usize,
        is_committed: bool,
        deadline: tokio::time::Instant,
    ) -> Finished {
        let this = Arc::clone(self);
        let finishing = self.runtime.spawn(async move {
            loop {
                let finished = this.finish_once(shard, &id, participant, is_committed).await;
                if finished != Finished::NotYet || tokio::time::Instant::now() >= deadline {
                    return finished;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        });
        finishing.await.unwrap_or(Finished::NotYet)
    }

    async fn finish_once(&self, shard: ShardId, id: &TransactionId, participant: usize, is_committed: bool) -> Finished {
        let Some(shard) = self.map.snapshot().shard(shard).cloned() else { return Finished::NotYet };
        let link = self.link(&shard);
        let mut link = link.lock().await;
        finish_on(&mut link, id, &id.gid(participant), is_committed).await
    }

    /// What is prepared on any shard, for people to see. Shards that cannot be asked are left out.
    pub async fn in_doubt(self: &Arc<Self>) -> Vec<InDoubt> {
        let this = Arc::clone(self);
        let looking = self.runtime.spawn(async move {
            let mut found = BTreeMap::<TransactionId, InDoubt>::new();
            for (link, prepared) in this.look().await.prepared {
                let shard = link.lock().await.shard.name.clone();
                let entry = found.entry(prepared.id.clone()).or_insert_with(|| InDoubt {
                    id: prepared.id.clone(),
                    is_committed: None,
                    shards: Vec::new(),
                    age: Duration::ZERO,
                });
                entry.shards.push(shard);
                entry.age = entry.age.max(prepared.age);
            }
            let mut all: Vec<InDoubt> = found.into_values().collect();
            for transaction in &mut all {
                transaction.is_committed = this.decision(&transaction.id).await;
            }
            all
        });
        looking.await.unwrap_or_default()
    }

    /// As far as it is made and can be read; changes nothing.
    async fn decision(&self, id: &TransactionId) -> Option<bool> {
        for link in self.links() {
            let mut link = link.lock().await;
            if link.known_uuid().await == Some(id.decider_uuid()) {
                return link.decision(id).await.ok().flatten();
            }
        }
        None
    }

    // ---- before a shard is used again ----

    /// A shard's connection broke, or could not be made: what commits have left there is finished before it is used again.
    pub fn was_away(&self, shard: ShardId) {
        self.unseen.lock().insert(shard);
        self.has_unseen.store(true, Ordering::Release);
    }

    /// A connection to the shard was opened. Perhaps since idle ones have ended with the shard's server, which has come back with
    /// what was prepared there: recovery's own connection has ended then as well.
    pub fn was_opened(&self, shard: ShardId) {
        let link = self.links.lock().get(&shard).cloned();
        let is_alive = link.is_some_and(|link| link.try_lock().is_ok_and(|mut link| link.is_alive()));
        if !is_alive {
            self.was_away(shard);
        }
    }

    /// Must [`Recovery::before_use`] be called first?
    #[inline]
    pub fn is_unseen(&self, shard: ShardId) -> bool {
        self.has_unseen.load(Ordering::Acquire) && self.unseen.lock().contains(&shard)
    }

    /// Finishes what is decided, so that nobody reads there less than was acknowledged. What is not decided stays: its locks
    /// protect it. One that cannot be asked stays unseen.
    pub async fn before_use(self: &Arc<Self>, shard: ShardId) {
        let this = Arc::clone(self);
        let looking = self.runtime.spawn(async move { Box::pin(this.finish_decided(shard)).await });
        match tokio::time::timeout(BEFORE_USE_TIMEOUT, looking).await {
            // One that was never made ready has never taken part in anything.
            Ok(Ok(Ok(()) | Err(LinkError::NotReady))) => {}
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "a shard is used before what was prepared there is known");
                return;
            }
            // A decider that cannot be reached is no reason to keep everybody waiting: rounds go on.
            Ok(Err(_)) | Err(_) => tracing::warn!("a shard is used before all that was prepared there is finished"),
        }
        let mut unseen = self.unseen.lock();
        unseen.remove(&shard);
        self.has_unseen.store(!unseen.is_empty(), Ordering::Release);
    }

    async fn finish_decided(&self, shard: ShardId) -> Result<(), LinkError> {
        let Some(shard) = self.map.snapshot().shard(shard).cloned() else { return Ok(()) };
        let link = self.link(&shard);
        let prepared = link.lock().await.prepared(self.registry.cluster()).await?;
        for prepared in prepared {
            if !self.registry.is_active(&prepared.id) && self.decision(&prepared.id).await.is_some() {
                // Read again in a way that waits for standbys: what a fail-over may still take back is not acted upon.
                let Ok(is_committed) = self.resolve(&prepared.id).await else { continue };
                self.finish_prepared(is_committed, vec![(Arc::clone(&link), prepared)]).await;
            }
        }
        Ok(())
    }
}

/// One participant. Where there is none any more its row tells a part that was committed from one that was lost.
async fn finish_on(link: &mut Link, id: &TransactionId, gid: &str, is_committed: bool) -> Finished {
    match link.finish(gid, is_committed).await {
        Finish::Done => Finished::Done,
        Finish::Busy | Finish::Lost => Finished::NotYet,
        Finish::Gone if !is_committed => Finished::Done,
        Finish::Gone => match link.is_applied(id).await {
            Ok(true) => Finished::Done,
            Ok(false) => Finished::PartLost,
            Err(_) => Finished::NotYet,
        },
    }
}

/// Rounds follow each other within this, mostly.
const ROUND_GAP_MAX: Duration = Duration::from_secs(3);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A session does not wait longer for a shard that has just come back.
const BEFORE_USE_TIMEOUT: Duration = Duration::from_secs(3);
