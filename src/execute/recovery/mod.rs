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
mod shared_link;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::execute::commit::rules::Finish;
use crate::execute::commit::{self, Finished, Registry, TransactionId};
use crate::shardmap::{Leases, ShardId, ShardMap, StoreError};
pub(super) use link::Link;
pub use link::{LinkError, Prepared};
pub(super) use shared_link::{SharedLink, SharedLinks};

/// One a proxy.
pub struct Recovery {
    map: Arc<ShardMap>,
    registry: Arc<Registry>,
    links: SharedLinks,
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

/// A prepared transaction, and where it is.
type Found = (Arc<SharedLink>, Prepared);

/// What one look at all shards has found.
struct Look {
    prepared: Vec<Found>,
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
            links: SharedLinks::default(),
            leases: Mutex::new(Leases::new(ROUND_GAP_MAX)),
            seen: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// One round over all shards. Returns how many prepared transactions it has finished.
    pub async fn round(&self) -> usize {
        self.registry.failpoints.reach("before_recovery_round").await;
        let asked_at = Instant::now();
        let look = self.look(asked_at).await;
        let ids: HashSet<&TransactionId> = look.prepared.iter().map(|(_, prepared)| &prepared.id).collect();
        let oldest = look.prepared.iter().map(|(_, prepared)| prepared.age).max().unwrap_or_default();
        *self.seen.lock() = (ids.len(), oldest);
        // Read after the prepared ones: a proxy that has just come is not taken for one that is gone.
        if let Err(error) = self.read_leases().await {
            tracing::debug!(%error, "the proxies' leases could not be read");
        }
        // One decider that does not answer holds up no transaction of others.
        let mut by_decider = BTreeMap::<String, Vec<_>>::new();
        for (id, participants) in self.orphans(look.prepared) {
            by_decider.entry(id.decider_uuid().to_owned()).or_default().push((id, participants));
        }
        let settling = by_decider.into_values().map(|transactions| async move {
            let mut finished = 0;
            for (id, participants) in transactions {
                finished += Box::pin(self.settle(&id, participants, asked_at)).await;
            }
            finished
        });
        join_all(settling).await.into_iter().sum()
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
            let look = this.look(Instant::now()).await;
            this.orphans(look.prepared).into_keys().collect()
        });
        looking.await.unwrap_or_default()
    }

    /// For [`Recovery::is_gone`], after what is asked about.
    pub async fn read_leases(&self) -> Result<(), StoreError> {
        let read = self.map.store().proxy_renewals().await;
        let mut leases = self.leases.lock();
        match &read {
            Ok(rows) => leases.note(rows, std::time::Instant::now()),
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
            let look = this.look(Instant::now()).await;
            !look.is_complete || look.prepared.iter().any(|(_, prepared)| prepared.id.incarnation() == proxy)
        });
        looking.await.unwrap_or(true)
    }

    /// Prepared transactions of ours that nobody works on, by transaction.
    fn orphans(&self, prepared: Vec<Found>) -> BTreeMap<TransactionId, Vec<Found>> {
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

    /// Asks the decider, then finishes the participants. Shards that have not answered since `asked_at` are not asked.
    async fn settle(&self, id: &TransactionId, participants: Vec<Found>, asked_at: Instant) -> usize {
        if self.registry.failpoints.has_planted("violation_read_as_committed") {
            return Box::pin(self.settle_wrongly(id, participants, asked_at)).await;
        }
        let is_committed = match self.resolve(id, asked_at).await {
            Ok(is_committed) => is_committed,
            Err(error) => {
                tracing::warn!(gid = %id, %error, "a transaction over several shards stays in doubt");
                return 0;
            }
        };
        self.finish_prepared(is_committed, participants, asked_at).await
    }

    /// The mistake that tests plant: whoever finds a row takes it for a commit, also the row of another participant's recovery.
    async fn settle_wrongly(&self, id: &TransactionId, participants: Vec<Found>, asked_at: Instant) -> usize {
        let mut count = 0;
        for participant in participants {
            let is_committed = self.decision(id, asked_at).await.is_ok_and(|decision| decision.is_some());
            if self.resolve(id, asked_at).await.is_ok() {
                count += self.finish_prepared(is_committed, vec![participant], asked_at).await;
            }
        }
        count
    }

    async fn finish_prepared(&self, is_committed: bool, participants: Vec<Found>, asked_at: Instant) -> usize {
        let mut count = 0;
        for (link, prepared) in participants {
            self.registry.failpoints.reach("before_recovery_finish").await;
            match finish_on(&link, asked_at, &prepared.id, &prepared.gid, is_committed).await {
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
    async fn look(&self, asked_at: Instant) -> Look {
        let asked = join_all(self.links().into_iter().map(|link| async move {
            let found = prepared_on(&link, asked_at, self.registry.cluster()).await;
            (link, found)
        }))
        .await;
        let mut look = Look { prepared: Vec::new(), is_complete: true };
        for (link, found) in asked {
            match found {
                Ok(found) => look.prepared.extend(found.into_iter().map(|prepared| (Arc::clone(&link), prepared))),
                // One that was never made ready has never taken part in anything.
                Err(LinkError::NotReady) => {}
                // Its server may be gone for good.
                Err(_) if link.has_left() => {}
                Err(error) => {
                    look.is_complete = false;
                    tracing::debug!(%error, "a shard's prepared transactions are not known");
                }
            }
        }
        look
    }

    /// One link a shard of the map, and a shard that has left it not long ago: a commit that had begun before may have prepared
    /// something there since.
    fn links(&self) -> Vec<Arc<SharedLink>> {
        let snapshot = self.map.snapshot();
        let online = || snapshot.shards.iter().filter(|shard| shard.state.is_ready());
        let mut links: Vec<_> = online().map(|shard| self.links.of(shard)).collect();
        links.extend(self.links.of_former(Instant::now(), |id| online().any(|shard| shard.id == id)));
        links
    }

    /// To a shard of the map, or to one that has left it.
    fn link(&self, shard: ShardId) -> Option<Arc<SharedLink>> {
        match self.map.snapshot().shard(shard) {
            Some(shard) => Some(self.links.of(shard)),
            None => self.links.known(shard),
        }
    }

    /// The only database that may be asked for the decision: the one that the transaction names.
    async fn decider(&self, id: &TransactionId, asked_at: Instant) -> Result<Arc<SharedLink>, LinkError> {
        let snapshot = self.map.snapshot();
        let identity = |link: &SharedLink| match snapshot.shard(link.shard.id) {
            Some(shard) => shard.identity.clone(),
            None => link.shard.identity.clone(),
        };
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.links().into_iter().map(|link| (identity(&link), link)).partition(|(identity, _)| identity.is_some());
        if let Some((_, link)) = known.into_iter().find(|(identity, _)| identity.as_deref() == Some(id.decider_uuid())) {
            return Ok(link);
        }
        let mut failure = LinkError::Unreachable("no shard is the decider".to_owned());
        for (_, link) in unknown {
            let uuid = match link.turn(asked_at).await {
                Ok(mut link) => link.known_uuid().await.map(str::to_owned),
                Err(_) => None,
            };
            match uuid {
                Some(uuid) if uuid == id.decider_uuid() => return Ok(link),
                Some(_) => {}
                None => failure = LinkError::Unreachable(format!("shard \"{}\" may be the decider", link.shard.name)),
            }
        }
        Err(failure)
    }

    /// The decision, made an abort when there is none.
    async fn resolve(&self, id: &TransactionId, asked_at: Instant) -> Result<bool, LinkError> {
        self.decider(id, asked_at).await?.turn(asked_at).await?.resolve(id).await
    }

    /// The same until it is known or the deadline is over, however long the shard takes to answer. What is under way then goes on.
    pub async fn resolve_until(self: &Arc<Self>, id: TransactionId, deadline: Instant) -> Option<bool> {
        let (this, transaction) = (Arc::clone(self), id.clone());
        let resolving = self.runtime.spawn(async move {
            loop {
                match this.resolve(&transaction, Instant::now()).await {
                    Ok(is_committed) => return Some(is_committed),
                    Err(error) if Instant::now() >= deadline => {
                        tracing::debug!(gid = %transaction, %error, "the decision cannot be read");
                        return None;
                    }
                    Err(_) => sleep(RETRY_PAUSE).await,
                }
            }
        });
        let resolved = by_deadline(resolving, deadline).await.flatten();
        if resolved.is_none() {
            tracing::error!(gid = %id, "the outcome of a commit over several shards is unknown");
        }
        resolved
    }

    /// Finishes one participant of a transaction whose outcome is known, until it is done or the deadline is over; as above.
    pub async fn finish_until(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        participant: usize,
        is_committed: bool,
        deadline: Instant,
    ) -> Finished {
        let this = Arc::clone(self);
        let finishing = self.runtime.spawn(async move {
            loop {
                let finished = this.finish_once(shard, &id, participant, is_committed).await;
                // Nothing is tried any more when the client has heard that it is not done.
                if finished != Finished::NotYet || Instant::now() + RETRY_PAUSE >= deadline {
                    return finished;
                }
                sleep(RETRY_PAUSE).await;
            }
        });
        by_deadline(finishing, deadline).await.unwrap_or(Finished::NotYet)
    }

    async fn finish_once(&self, shard: ShardId, id: &TransactionId, participant: usize, is_committed: bool) -> Finished {
        let Some(link) = self.link(shard) else { return Finished::NotYet };
        finish_on(&link, Instant::now(), id, &id.gid(participant), is_committed).await
    }

    /// What is prepared on any shard, for people to see. Shards that cannot be asked are left out.
    pub async fn in_doubt(self: &Arc<Self>) -> Vec<InDoubt> {
        let this = Arc::clone(self);
        let looking = self.runtime.spawn(async move {
            let asked_at = Instant::now();
            let mut found = BTreeMap::<TransactionId, InDoubt>::new();
            for (link, prepared) in this.look(asked_at).await.prepared {
                let entry = found.entry(prepared.id.clone()).or_insert_with(|| InDoubt {
                    id: prepared.id.clone(),
                    is_committed: None,
                    shards: Vec::new(),
                    age: Duration::ZERO,
                });
                entry.shards.push(link.shard.name.clone());
                entry.age = entry.age.max(prepared.age);
            }
            let mut all: Vec<InDoubt> = found.into_values().collect();
            for transaction in &mut all {
                transaction.is_committed = this.decision(&transaction.id, asked_at).await.ok().flatten();
            }
            all
        });
        looking.await.unwrap_or_default()
    }

    /// As far as it is made; changes nothing.
    async fn decision(&self, id: &TransactionId, asked_at: Instant) -> Result<Option<bool>, LinkError> {
        let decider = self.decider(id, asked_at).await?;
        decider.turn(asked_at).await?.decision(id).await
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
        if !self.links.known(shard).is_some_and(|link| link.is_alive()) {
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
        let looking = self.runtime.spawn(async move { Box::pin(this.try_to_finish_decided(shard)).await });
        match timeout(BEFORE_USE_TIMEOUT, looking).await {
            // One that was never made ready has never taken part in anything.
            Ok(Ok(Ok(Known::All) | Err(LinkError::NotReady))) => {}
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "a shard is used before what was prepared there is known");
                return;
            }
            // A decider that cannot be reached is no reason to keep everybody waiting: rounds go on.
            Ok(Ok(Ok(Known::InPart)) | Err(_)) | Err(_) => {
                tracing::warn!("a shard is used before all that was prepared there is finished");
            }
        }
        let mut unseen = self.unseen.lock();
        unseen.remove(&shard);
        self.has_unseen.store(!unseen.is_empty(), Ordering::Release);
    }

    /// Again where an attempt has failed: its connection may have been one of before the shard was away, or it has shared the failure of
    /// somebody who asked while the server was starting.
    async fn try_to_finish_decided(&self, shard: ShardId) -> Result<Known, LinkError> {
        let mut attempts = 1;
        loop {
            match self.finish_decided(shard).await {
                Ok(Known::InPart) | Err(LinkError::Unreachable(_)) if attempts < BEFORE_USE_ATTEMPTS => attempts += 1,
                told => return told,
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn finish_decided(&self, shard: ShardId) -> Result<Known, LinkError> {
        let (asked_at, Some(link)) = (Instant::now(), self.link(shard)) else { return Ok(Known::All) };
        let mut known = Known::All;
        for prepared in prepared_on(&link, asked_at, self.registry.cluster()).await? {
            if self.registry.is_active(&prepared.id) {
                continue;
            }
            let finished = match self.decision(&prepared.id, asked_at).await {
                Ok(None) => continue,
                // Read again in a way that waits for standbys: what a fail-over may still take back is not acted upon.
                Ok(Some(_)) => match self.resolve(&prepared.id, asked_at).await {
                    Ok(is_committed) => Ok(self.finish_prepared(is_committed, vec![(Arc::clone(&link), prepared)], asked_at).await),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = &finished {
                tracing::debug!(shard = link.shard.name, %error, "a decision cannot be read before the shard is used");
            }
            // Where another proxy is at it at this moment it is not there the next time.
            if !finished.is_ok_and(|count| count > 0) {
                known = Known::InPart;
            }
        }
        Ok(known)
    }
}

/// Of what commits have left on a shard.
enum Known {
    /// What is decided is finished.
    All,
    /// A decider could not be asked, or a part could not be finished.
    InPart,
}

async fn prepared_on(link: &SharedLink, asked_at: Instant, cluster: &str) -> Result<Vec<Prepared>, LinkError> {
    link.turn(asked_at).await?.prepared(cluster).await
}

/// One participant. Where there is none any more its row tells a part that was committed from one that was lost.
async fn finish_on(link: &SharedLink, asked_at: Instant, id: &TransactionId, gid: &str, is_committed: bool) -> Finished {
    let Ok(mut link) = link.turn(asked_at).await else { return Finished::NotYet };
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

/// Even where the deadline is over there is time for one attempt on a shard that answers.
async fn by_deadline<T>(attempts: JoinHandle<T>, deadline: Instant) -> Option<T> {
    timeout_at(deadline.max(Instant::now() + ATTEMPT_MIN), attempts).await.ok()?.ok()
}

/// Rounds follow each other within this, mostly.
const ROUND_GAP_MAX: Duration = Duration::from_secs(3);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const ATTEMPT_MIN: Duration = Duration::from_secs(1);
/// A session does not wait longer for a shard that has just come back.
const BEFORE_USE_TIMEOUT: Duration = Duration::from_secs(10);
const BEFORE_USE_ATTEMPTS: usize = 3;
