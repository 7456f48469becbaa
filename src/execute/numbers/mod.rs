//! Numbers of cluster-wide sequences: blocks that this proxy holds for its sessions, and blocks that it gives to the shards.
//!
//! ```text
//!   map: one counter a sequence ──block──► this proxy: INSERT ... VALUES, nextval()      draw
//!                               ──block──► a shard: what it numbers by itself             fill, in rounds
//! ```
//! A number is given once. What a proxy holds when it ends, and what a shard has not used, are gaps, as with CACHE. After setval a
//! sequence has another generation, and after a fail-over of the map another incarnation: blocks of an earlier one are void, and
//! after a fail-over nothing is drawn before the shards have said which numbers they know.
//!
//! Connections to shards belong to the runtime on which [`Numbers`] was made; calls from other runtimes are carried there.

mod alter;
mod fill;
mod held;
mod restart;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::catalog::SequenceName;
use crate::error::{PgError, SqlState};
use crate::execute::recovery::SharedLinks;
use crate::shardmap::{ClusterSequence, NumberBlock, ShardId, ShardMap};
pub use alter::{Alteration, read_state, under_way};
use alter::{PATIENCE, while_closed};
use fill::{Demand, Job};
use held::{Entry, Held, Sizes};
pub use restart::Restart;

/// One a proxy.
pub struct Numbers {
    map: Arc<ShardMap>,
    block: i64,
    held: Mutex<HashMap<SequenceName, Arc<Entry>>>,
    /// Sequences of which this proxy has few numbers left; [`Numbers::keep_ahead`] waits for one.
    short: Mutex<HashSet<SequenceName>>,
    is_short: Notify,
    links: SharedLinks,
    /// Work of earlier rounds that has not ended: a shard answers late, or not at all.
    under_way: Arc<Mutex<HashSet<Job>>>,
    demand: Mutex<HashMap<(ShardId, SequenceName), Demand>>,
    /// Sequences whose counters the map has to be told.
    unconfirmed: Mutex<HashSet<SequenceName>>,
    /// Somebody waits for the next round.
    nudge: Notify,
    runtime: Handle,
}

impl Numbers {
    /// To be called on the runtime that shall own the connections. `block`: numbers that are drawn from the map at a time.
    pub fn new(map: Arc<ShardMap>, block: u32) -> Self {
        Self {
            map,
            block: i64::from(block),
            held: Mutex::default(),
            short: Mutex::default(),
            is_short: Notify::new(),
            links: SharedLinks::default(),
            under_way: Arc::default(),
            demand: Mutex::default(),
            unconfirmed: Mutex::default(),
            nudge: Notify::new(),
            runtime: Handle::current(),
        }
    }

    /// Numbers that nobody else gets, in the sequence's order. Waits while somebody alters it. Cancel safe: at worst they are gaps.
    pub async fn draw(&self, name: &SequenceName, count: usize) -> Result<Vec<i64>, PgError> {
        let began = Instant::now();
        let until = began + PATIENCE;
        let entry = self.entry(name);
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..DRAW_ATTEMPTS {
            // Whoever waits before this one may do so for as long.
            let Ok(mut held) = timeout_at(until, entry.held.lock()).await else { return Err(in_use(&name.1)) };
            if self.take(name, &mut held, count, &mut drawn)? {
                return Ok(drawn);
            }
            drop(held);
            // Somebody may be at it already.
            let Ok((_fetching, mut held)) = timeout_at(until, entry.whole()).await else { return Err(in_use(&name.1)) };
            if self.take(name, &mut held, count, &mut drawn)? {
                return Ok(drawn);
            }
            held.failed_since(began)?;
            let (sequence, incarnation) = self.sequence(name)?;
            let missing = i64::try_from(count - drawn.len()).unwrap_or(i64::MAX);
            let wanted = held.next_size(Sizes::of(&sequence, self.block), Instant::now()).max(missing);
            let block = self.reserve(name, wanted, until).await.inspect_err(|error| held.has_failed(error))?;
            held.add(&block, incarnation);
            if self.take(name, &mut held, count, &mut drawn)? {
                return Ok(drawn);
            }
        }
        Err(unstable(&name.1))
    }

    /// Have enough been drawn? Tells where few are left.
    fn take(&self, name: &SequenceName, held: &mut Held, count: usize, drawn: &mut Vec<i64>) -> Result<bool, PgError> {
        let (sequence, incarnation) = self.sequence(name)?;
        held.take(count, drawn, &sequence, incarnation);
        if held.is_short(Sizes::of(&sequence, self.block)) && self.short.lock().insert(name.clone()) {
            self.is_short.notify_one();
        }
        Ok(drawn.len() >= count)
    }

    /// Fetches blocks before they are needed, so that the map may be away for a while. For ever; cancel safe.
    pub async fn keep_ahead(&self) {
        loop {
            let short: Vec<SequenceName> = self.short.lock().iter().cloned().collect();
            if short.is_empty() {
                self.is_short.notified().await;
                continue;
            }
            let mut has_failed = false;
            for name in short {
                let fetched = tokio::time::timeout(AHEAD_PATIENCE, self.fetch_ahead(&name)).await;
                // From here on a draw may say so again.
                self.short.lock().remove(&name);
                has_failed |= !matches!(fetched, Ok(Ok(())));
            }
            if has_failed {
                tracing::debug!("numbers cannot be fetched ahead");
                tokio::time::sleep(AHEAD_PAUSE).await;
            }
        }
    }

    async fn fetch_ahead(&self, name: &SequenceName) -> Result<(), PgError> {
        let entry = self.entry(name);
        let _fetching = entry.fetching.lock().await;
        let (sequence, incarnation) = self.sequence(name)?;
        let sizes = Sizes::of(&sequence, self.block);
        let size = {
            let mut held = entry.held.lock().await;
            if !held.is_short(sizes) {
                return Ok(());
            }
            held.next_size(sizes, Instant::now())
        };
        let reserved = self.map.store().reserve_numbers(&name.0, &name.1, size, Some(sequence.generation)).await?;
        if let Some(block) = reserved.filter(|block| block.count > 0) {
            entry.held.lock().await.add(&block, incarnation);
        }
        Ok(())
    }

    fn entry(&self, name: &SequenceName) -> Arc<Entry> {
        Arc::clone(self.held.lock().entry(name.clone()).or_default())
    }

    /// Does the home shard have one of this name, as others than its maker see it?
    pub async fn is_committed(self: &Arc<Self>, name: &SequenceName) -> Result<bool, PgError> {
        let home = self.map.snapshot().home().cloned().ok_or_else(|| PgError::internal("there is no home shard"))?;
        let sql = format!("SELECT to_regclass({})::text", fill::quoted(name));
        let this = Arc::clone(self);
        let found = self.on_runtime(async move { this.ask(&home, sql).await }).await?;
        Ok(found.iter().any(|found| !found.is_empty()))
    }

    fn sequence(&self, name: &SequenceName) -> Result<(Arc<ClusterSequence>, i64), PgError> {
        let map = self.map.load();
        let sequence = map.sequences.get(name).ok_or_else(|| {
            PgError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("sequence \"{}\" is not one of the whole cluster", name.1),
            )
        })?;
        Ok((Arc::clone(sequence), map.epoch.incarnation))
    }

    /// A block; waits while somebody alters the sequence, and for the counter to be confirmed when the map has failed over.
    async fn reserve(&self, name: &SequenceName, wanted: i64, until: Instant) -> Result<NumberBlock, PgError> {
        let deadline = Instant::now() + CONFIRM_PATIENCE;
        let store = self.map.store();
        loop {
            if let Some(block) = while_closed(until, || store.reserve_numbers(&name.0, &name.1, wanted, None)).await? {
                return Ok(block);
            }
            if Instant::now() >= deadline {
                return Err(unconfirmed(&name.1));
            }
            self.unconfirmed.lock().insert(name.clone());
            self.nudge.notify_one();
            tokio::time::sleep(CONFIRM_PAUSE).await;
        }
    }
}

fn unconfirmed(sequence: &str) -> PgError {
    PgError::new(
        SqlState::CANNOT_CONNECT_NOW,
        format!("the numbers of sequence \"{sequence}\" are not known after a fail-over of the map database"),
    )
    .with_detail("Every shard has to say which numbers it has, and one has not answered.")
    .with_hint("Repeat the statement when all shards can be reached.")
}

/// As the map says it.
fn in_use(sequence: &str) -> PgError {
    PgError::new(SqlState::OBJECT_IN_USE, format!("sequence \"{sequence}\" is being altered"))
        .with_hint("Repeat the statement when the transaction that alters it has ended.")
}

fn not_in_time(message: &str, detail: &str) -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, message).with_detail(detail).with_hint("Repeat the statement.")
}

fn unstable(sequence: &str) -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, format!("sequence \"{sequence}\" was set again and again meanwhile"))
        .with_hint("Repeat the statement.")
}

/// Each one but the last finds that somebody has set the sequence.
const DRAW_ATTEMPTS: usize = 8;
const CONFIRM_PATIENCE: Duration = Duration::from_secs(5);
const CONFIRM_PAUSE: Duration = Duration::from_millis(50);
/// Those who need a number wait for it no longer than that.
const AHEAD_PATIENCE: Duration = Duration::from_secs(1);
const AHEAD_PAUSE: Duration = Duration::from_secs(1);
