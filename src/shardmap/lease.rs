//! This proxy's lease: its row in the map, by which others know which epoch it has reached.
//!
//! ```text
//! register (epoch 0:0) ─► load the map ─► renew every second, and after each change, with the epochs seen and reached ─► … ─►
//! remove the row
//! ```
//! Registered before the map is read, so that nobody who changes the map overlooks a proxy that works by the old one. A
//! renewal is good for [`LEASE`] by this machine's boot-time clock (it goes on in suspend), counted from before the renewal was
//! sent; others judge the lease by a row that has not changed for that long on their own clock. Clocks are never compared.
//! A row that is gone (removed by a move that goes on without this proxy, removed as abandoned, or the map was restored) is made
//! again with epoch 0:0 and the next *generation*, and the map is loaded before the lease is valid again; so it is after a lease that
//! has run out. Connections to shards are of a generation ([`Membership`]), and a shard shuts out generations ([`super::fences`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rand::Rng;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::error::StoreError;
use super::model::Epoch;
use super::process;
use super::store::Store;

/// Random, one a process: a proxy that was started again is another proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProxyId(pub i64);

impl ProxyId {
    pub fn random() -> Self {
        Self(rand::rng().random_range(1..=i64::MAX))
    }
}

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What others may rely on of this proxy. Reading it costs a look at the clock.
pub struct Lease {
    proxy_id: ProxyId,
    address: String,
    /// Nanoseconds of the boot-time clock; the lease is valid before.
    valid_until: AtomicI64,
    /// For the relation `shardgate.proxies` only.
    clients: AtomicI64,
    /// Counter of the epoch that the last renewal has told as reached.
    told_reached: AtomicI64,
    /// The same of the one by which the held groups are drained; 0: they are not.
    told_drained: AtomicI64,
    membership: Arc<Membership>,
    /// Somebody has met a shard that shuts this generation out.
    doubted: Notify,
    doubted_generation: AtomicI64,
    /// The last generation that was to be registered: it may be shut out already, also where that was not heard.
    registered: AtomicI64,
}

/// By what shards know this process's connections.
#[derive(Debug)]
pub struct Membership {
    pub proxy: ProxyId,
    generation: watch::Sender<i64>,
}

impl Membership {
    pub fn new(proxy: ProxyId) -> Arc<Self> {
        Arc::new(Self { proxy, generation: watch::Sender::new(FIRST_GENERATION) })
    }

    /// Of connections that are opened now. Grows before the first map of the next generation is in place, so no connection is of an
    /// earlier one than the map that a statement on it is planned by.
    pub fn generation(&self) -> i64 {
        *self.generation.borrow()
    }

    pub(super) fn advance(&self, to: i64) {
        self.generation.send_replace(to);
    }
}

impl Lease {
    pub(super) fn new(proxy_id: ProxyId, address: String) -> Self {
        Self {
            proxy_id,
            address,
            valid_until: AtomicI64::new(0),
            clients: AtomicI64::new(0),
            told_reached: AtomicI64::new(0),
            told_drained: AtomicI64::new(0),
            membership: Membership::new(proxy_id),
            doubted: Notify::new(),
            doubted_generation: AtomicI64::new(0),
            registered: AtomicI64::new(FIRST_GENERATION),
        }
    }

    /// One that is always valid, for maps without a database.
    pub(super) fn unlimited() -> Self {
        Self { valid_until: AtomicI64::new(i64::MAX), ..Self::new(ProxyId(0), String::new()) }
    }

    pub fn proxy_id(&self) -> ProxyId {
        self.proxy_id
    }

    /// Where the proxy listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// While it is not, the map may have changed in ways that this proxy has not heard of.
    pub fn is_valid(&self) -> bool {
        boot_time() < self.valid_until.load(Ordering::Acquire)
    }

    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Waits for a later generation than this: a shard has shut this one out. Not bounded: the caller is. Cancel safe.
    pub async fn later_than(&self, generation: i64) {
        let mut generations = self.membership.generation.subscribe();
        self.doubted_generation.fetch_max(generation, Ordering::AcqRel);
        self.doubted.notify_one();
        // The sender lives as long as this lease.
        let outcome = generations.wait_for(|now| *now > generation).await.map(drop);
        assert!(outcome.is_ok(), "the lease outlives its borrower");
    }

    /// The number of client connections that the next renewal tells.
    pub fn set_clients(&self, clients: usize) {
        self.clients.store(i64::try_from(clients).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn extend(&self, renewal_sent_at: i64) {
        self.valid_until.fetch_max(renewal_sent_at.saturating_add(LEASE.as_nanos() as i64), Ordering::AcqRel);
    }

    fn told_reached(&self) -> i64 {
        self.told_reached.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.valid_until.store(0, Ordering::Release);
    }
}

/// Runs until cancelled; then removes the row.
pub(super) async fn keep_renewing(shared: Arc<Shared>, store: Store, cancel: CancellationToken) {
    let mut epochs = shared.current.subscribe();
    let mut ticks = interval(RENEWAL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changed_at = Instant::now();
    loop {
        let is_awaited = is_awaited(&shared, changed_at.elapsed());
        tokio::select! {
            () = cancel.cancelled() => break,
            _ = ticks.tick() => {}
            // Somebody may wait until we have seen it. The sender lives as long as `shared`; changes in quick succession are
            // told together.
            Ok(()) = epochs.changed() => {
                changed_at = Instant::now();
                match is_held(&shared) {
                    true => until_nothing_is_awaited(&shared).await,
                    false => tokio::time::sleep(CHANGES_TOGETHER).await,
                }
            }
            () = async {
                tokio::time::sleep(AWAITED_LOOK_INTERVAL).await;
                until_nothing_is_awaited(&shared).await;
            }, if is_awaited => {}
            () = shared.lease.doubted.notified() => {}
        }
        epochs.mark_unchanged();
        tokio::select! {
            () = cancel.cancelled() => break,
            outcome = renew(&shared, &store) => match outcome {
                Ok(()) => shared.note_success(),
                Err(error) => shared.note_failure(&error),
            },
        }
    }
    shared.lease.end();
    if let Err(error) = store.remove_proxy(shared.lease.proxy_id).await {
        tracing::debug!(%error, "lease was not removed; it ends by itself");
    }
}

/// A change of the schema waits for the statements that were planned before it was announced, for a while; a move waits for
/// those that were planned before its partitions were held.
fn is_awaited(shared: &Shared, since_change: Duration) -> bool {
    let map = shared.current.load();
    let is_behind = || shared.lease.told_reached() < map.epoch.counter;
    let is_full = || shared.lease.told_drained.load(Ordering::Relaxed) < map.epoch.counter;
    since_change < AWAITED_FOR && !map.redefinitions.is_empty() && is_behind()
        || since_change < HOLD_AWAITED_FOR && (is_behind() || is_full()) && is_held(shared)
}

fn is_held(shared: &Shared) -> bool {
    shared.current.load().groups.values().any(|group| !group.held().is_empty())
}

/// What others wait for is told when there is something to tell, and otherwise now and then: a renewal under way would be in its way.
async fn until_nothing_is_awaited(shared: &Shared) {
    let until = Instant::now() + AWAITED_INTERVAL;
    let is_done = || {
        let epoch = shared.current.load().epoch;
        // In this order, see `Current::is_drained`.
        shared.current.reached() >= epoch && shared.current.is_drained()
    };
    while !is_done() && Instant::now() < until {
        tokio::time::sleep(AWAITED_LOOK_INTERVAL).await;
    }
}

/// One renewal. Not cancel safe in that the row may be renewed without the lease getting longer, which harms nobody.
pub(super) async fn renew(shared: &Shared, store: &Store) -> Result<(), StoreError> {
    let lease = &shared.lease;
    let sent_at = boot_time();
    let (seen, reached) = (shared.current.load().epoch, shared.current.reached());
    let drained = if shared.current.is_drained() && !has_untold_primary(shared) { reached.counter } else { 0 };
    let generation = shared.current.load().generation();
    let renewing = timeout(RENEWAL_TIMEOUT, store.renew_proxy((lease, generation), seen, (reached, drained)));
    let is_shut_out = generation <= lease.doubted_generation.load(Ordering::Acquire);
    let renewed = renewing.await.unwrap_or_else(|_| Err(StoreError::no_answer()))?;
    let Some(epoch) = renewed.filter(|_| !is_shut_out) else {
        // The row is gone, or a shard does not let us in. Whoever changed the map meanwhile did not wait for us: all we know may be old.
        lease.end();
        let generation = generation.max(lease.registered.load(Ordering::Relaxed)) + 1;
        lease.registered.store(generation, Ordering::Relaxed);
        tracing::warn!(proxy_id = %lease.proxy_id, generation, "lease row is gone, registering again");
        store.register_proxy(lease, generation).await?;
        shared.refresh(store).await?;
        lease.membership.advance(generation);
        shared.current.begin_generation(generation);
        return Ok(());
    };
    lease.told_reached.store(reached.counter, Ordering::Relaxed);
    lease.told_drained.store(drained, Ordering::Relaxed);
    // The answer may be older than what has been heard since it was asked for.
    if epoch < seen {
        lease.end();
        return Err(StoreError::Older { found: epoch, known: seen });
    }
    let known = shared.current.load().epoch;
    if epoch > known && !lease.is_valid() {
        // Nobody has waited for us: what was planned by what we know must not pass for current.
        shared.refresh(store).await?;
    } else if epoch > known {
        shared.nudge.notify_one();
    }
    lease.extend(sent_at);
    Ok(())
}

/// What this proxy has written at a server of which the map has not heard yet, a mover that has the server before would not see.
fn has_untold_primary(shared: &Shared) -> bool {
    shared.current.load().shards.iter().any(|shard| shard.primary.untold().is_some())
}

impl Store {
    /// Makes the row, with epoch 0:0. Rows that nobody has renewed for [`ABANDONED_AFTER`] are swept out; the shards shut these
    /// proxies out.
    pub(super) async fn register_proxy(&self, lease: &Lease, generation: i64) -> Result<(), StoreError> {
        let query = sqlx::query(
            "WITH abandoned AS (
                 DELETE FROM shardgate_map.proxy WHERE last_seen < now() - make_interval(secs => $3) AND proxy_id <> $1
                 RETURNING proxy_id, generation, address
             ), fenced AS (
                 SELECT count(shardgate_map.begin_fence(proxy_id, generation, address)) FROM abandoned WHERE generation IS NOT NULL
             )
             INSERT INTO shardgate_map.proxy (proxy_id, address, process, generation, version)
             SELECT $1, $2, $4, $5, $6 FROM fenced
             ON CONFLICT (proxy_id) DO UPDATE
             SET incarnation = 0, counter = 0, seen_incarnation = 0, seen_counter = 0, drained = 0, last_seen = clock_timestamp(),
                 generation = excluded.generation, version = excluded.version, renewals = proxy.renewals + 1",
        )
        .bind(lease.proxy_id.0)
        .bind(&lease.address)
        .bind(ABANDONED_AFTER.as_secs_f64())
        .bind(process::own())
        .bind(generation)
        .bind(VERSION);
        self.answered(query.execute(&self.pool()?)).await.map(drop)
    }

    /// Gives the map's epoch; `None`: the row is gone.
    async fn renew_proxy(
        &self,
        (lease, generation): (&Lease, i64),
        seen: Epoch,
        (reached, drained): (Epoch, i64),
    ) -> Result<Option<Epoch>, StoreError> {
        let row: Option<(i64, i64)> = self
            .answered(
                sqlx::query_as(
                    "UPDATE shardgate_map.proxy p
             SET incarnation = $2, counter = $3, clients = $4, seen_incarnation = $5, seen_counter = $6, drained = $7,
                 renewals = p.renewals + 1, last_seen = clock_timestamp()
             FROM shardgate_map.cluster c
             WHERE p.proxy_id = $1 AND p.generation = $8
             RETURNING c.incarnation, c.counter",
                )
                .bind(lease.proxy_id.0)
                .bind(reached.incarnation)
                .bind(reached.counter)
                .bind(lease.clients.load(Ordering::Relaxed))
                .bind(seen.incarnation)
                .bind(seen.counter)
                .bind(drained)
                .bind(generation)
                .fetch_optional(&self.pool()?),
            )
            .await?;
        Ok(row.map(|(incarnation, counter)| Epoch { incarnation, counter }))
    }

    async fn remove_proxy(&self, proxy_id: ProxyId) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM shardgate_map.proxy WHERE proxy_id = $1").bind(proxy_id.0);
        let pool = self.pool()?;
        match timeout(RENEWAL_TIMEOUT, query.execute(&pool)).await {
            Ok(outcome) => outcome.map(drop).map_err(StoreError::reading),
            Err(_) => Err(StoreError::no_answer()),
        }
    }
}

/// Nanoseconds since boot, suspended time included where the system can tell.
fn boot_time() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// How long a renewal is good for.
pub const LEASE: Duration = Duration::from_secs(5);
/// Of this program, for the relation `shardgate.proxies` and `shardgate check`.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Of a process that has just registered.
pub(super) const FIRST_GENERATION: i64 = 1;
/// A proxy that says nothing for so long is taken for gone, whoever would have to wait for it.
pub(super) const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
const CHANGES_TOGETHER: Duration = Duration::from_millis(5);
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long statements may keep a change of the schema waiting.
pub const AWAITED_FOR: Duration = Duration::from_millis(500);
/// The same of a move at its cut-over, which gives up long before.
const HOLD_AWAITED_FOR: Duration = Duration::from_secs(10);
/// How often this proxy tells meanwhile how far it is.
const AWAITED_INTERVAL: Duration = Duration::from_millis(10);
/// How often it looks at that itself.
const AWAITED_LOOK_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_valid_for_five_seconds_from_before_its_renewal() {
        let lease = Lease::new(ProxyId::random(), "here".to_owned());
        assert!(!lease.is_valid());
        let long_ago = boot_time() - LEASE.as_nanos() as i64;
        lease.extend(long_ago);
        assert!(!lease.is_valid());
        lease.extend(boot_time());
        assert!(lease.is_valid());
        // An answer that comes late does not make the lease shorter.
        lease.extend(long_ago);
        assert!(lease.is_valid());
        lease.end();
        assert!(!lease.is_valid());
    }

    #[test]
    fn a_map_without_database_has_a_lease_without_end() {
        assert!(Lease::unlimited().is_valid());
    }
}
