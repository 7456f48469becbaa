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
mod restart;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::catalog::SequenceName;
use crate::error::{PgError, SqlState};
use crate::execute::recovery::Link;
use crate::shardmap::{ClusterSequence, NumberBlock, ShardId, ShardMap};
pub use alter::{Alteration, read_state, under_way};
use alter::{PATIENCE, while_closed};
use fill::Demand;
pub use restart::Restart;

/// One a proxy.
pub struct Numbers {
    map: Arc<ShardMap>,
    block: i64,
    held: Mutex<HashMap<SequenceName, Arc<tokio::sync::Mutex<Held>>>>,
    links: Mutex<HashMap<ShardId, Arc<tokio::sync::Mutex<Link>>>>,
    demand: Mutex<HashMap<(ShardId, SequenceName), Demand>>,
    /// Sequences whose counters the map has to be told.
    unconfirmed: Mutex<HashSet<SequenceName>>,
    /// Somebody waits for the next round.
    nudge: Notify,
    runtime: Handle,
}

/// What is left of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    next: i64,
    left: i64,
    increment: i64,
    generation: i64,
    incarnation: i64,
}

impl Held {
    fn take(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1).filter(|left| *left >= 0)?;
        let number = self.next;
        // Beyond the last one nothing is left.
        self.next = self.next.saturating_add(self.increment);
        Some(number)
    }

    /// From its next number to after its last.
    fn unused(&self) -> Option<Range<i128>> {
        let next = i128::from(self.next);
        (self.left > 0).then(|| next..next + i128::from(self.left) * i128::from(self.increment))
    }

    /// A newer generation than is known is right: the map has been asked after the change.
    fn is_void(&self, sequence: &ClusterSequence, incarnation: i64) -> bool {
        let is_other = self.generation == sequence.generation && self.increment != sequence.increment;
        self.incarnation != incarnation || self.generation < sequence.generation || is_other
    }
}

impl Numbers {
    /// To be called on the runtime that shall own the connections. `block`: numbers that are drawn from the map at a time.
    pub fn new(map: Arc<ShardMap>, block: u32) -> Self {
        Self {
            map,
            block: i64::from(block),
            held: Mutex::default(),
            links: Mutex::default(),
            demand: Mutex::default(),
            unconfirmed: Mutex::default(),
            nudge: Notify::new(),
            runtime: Handle::current(),
        }
    }

    /// Numbers that nobody else gets, in the sequence's order. Waits while somebody alters it. Cancel safe: at worst they are gaps.
    pub async fn draw(&self, name: &SequenceName, count: usize) -> Result<Vec<i64>, PgError> {
        let until = Instant::now() + PATIENCE;
        let entry = Arc::clone(self.held.lock().entry(name.clone()).or_default());
        // Whoever waits before this one may do so for as long.
        let Ok(mut held) = timeout_at(until, entry.lock()).await else { return Err(in_use(&name.1)) };
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..DRAW_ATTEMPTS {
            let (sequence, incarnation) = self.sequence(name)?;
            if held.is_void(&sequence, incarnation) {
                *held = Held::default();
            }
            while drawn.len() < count {
                let Some(number) = held.take() else { break };
                drawn.push(number);
            }
            if drawn.len() == count {
                return Ok(drawn);
            }
            let missing = i64::try_from(count - drawn.len()).unwrap_or(i64::MAX);
            let wanted = missing.max(self.block);
            let NumberBlock { first, count: left, generation, increment } = self.reserve(name, wanted, until).await?;
            *held = Held { next: first, left, increment, generation, incarnation };
        }
        Err(unstable(&name.1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gives_each_of_its_numbers_once_and_is_void_after_setval() {
        let mut held = Held { next: 7, left: 2, increment: -5, generation: 3, incarnation: 1 };
        let sequence = ClusterSequence { schema: "public".into(), name: "s".into(), increment: -5, generation: 3 };
        assert!(!held.is_void(&sequence, 1));
        assert!(held.is_void(&sequence, 2), "the map has failed over");
        assert!(held.is_void(&ClusterSequence { generation: 4, ..sequence.clone() }, 1));
        let earlier = ClusterSequence { generation: 2, increment: 3, ..sequence.clone() };
        assert!(!held.is_void(&earlier, 1), "this proxy does not know yet what has come between");
        assert!(held.is_void(&ClusterSequence { increment: 3, ..sequence }, 1));
        assert_eq!([held.take(), held.take(), held.take(), held.take()], [Some(7), Some(2), None, None]);
    }

    #[test]
    fn the_last_number_of_all_is_given_too() {
        let mut held = Held { next: i64::MAX, left: 1, increment: 50, generation: 0, incarnation: 0 };
        assert_eq!([held.take(), held.take()], [Some(i64::MAX), None]);
    }
}
