//! Gives the shards their blocks, in rounds; sets a sequence everywhere; finds out what is used after a fail-over of the map.
//!
//! A shard that uses its numbers fast gets larger blocks, up to a bound, and smaller ones again when it does not: rows of a COPY
//! or of an INSERT ... SELECT wait in the shard until the next block is there.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::Numbers;
use super::alter::{PATIENCE, while_closed};
use super::held::{LASTING, Sizes};
use crate::catalog::{SequenceName, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::execute::recovery::{Link, LinkError};
use crate::shardmap::{Shard, ShardId};

/// How fast one shard uses the numbers of one sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    size: i64,
    filled_at: Instant,
    /// Of the sequence.
    generation: i64,
}

impl Demand {
    /// The next block's size. `left`: what the shard still has; none or less: somebody waits.
    fn next(known: Option<Self>, left: i64, sizes: Sizes, now: Instant) -> Self {
        let size = match known {
            None => sizes.first.saturating_mul(2),
            Some(known) if left <= 0 => known.size.saturating_mul(4),
            Some(known) if now.duration_since(known.filled_at) < FAST => known.size.saturating_mul(2),
            Some(known) => known.size / 2,
        };
        Self { size: size.clamp(sizes.first, sizes.max), filled_at: now, generation: known.map_or(0, |known| known.generation) }
    }

    /// Is it time for another block? Not before somebody has waited for the first: most tables are numbered by the proxies
    /// alone, and their numbers have no gaps then.
    fn is_due(known: Option<Self>, left: i64, block: i64) -> bool {
        left < known.map_or(0, |known| (known.size / 2).max(block))
    }
}

impl Numbers {
    /// One round over all shards. Returns the pause before the next one. A shard that answers late is waited for by no round: the
    /// next ones leave it out until it has answered.
    pub async fn fill(self: &Arc<Self>) -> Duration {
        let map = self.map.snapshot();
        self.forget_former(|id| map.shard(id).is_some());
        if map.sequences.is_empty() {
            return IDLE;
        }
        let names: Arc<[SequenceName]> = map.sequences.keys().cloned().collect();
        let shards: Arc<[Arc<Shard>]> = map.shards.iter().filter(|shard| shard.state.is_ready()).cloned().collect();
        // Held no longer: it would keep this proxy from following a newer map.
        drop(map);
        let (this, asked) = (Arc::clone(self), Arc::clone(&shards));
        let mut jobs = vec![self.begin(Job::Confirm, async move {
            this.confirm(&asked).await;
            0
        })];
        for shard in shards.iter() {
            let (this, shard, names) = (Arc::clone(self), Arc::clone(shard), Arc::clone(&names));
            jobs.push(self.begin(Job::Fill(shard.id), async move { this.fill_shard(&shard, &names).await }));
        }
        let given = join_all(jobs.into_iter().flatten().map(|job| timeout(ROUND_MAX, job))).await;
        if given.into_iter().any(|given| matches!(given, Ok(Ok(1..)) | Err(_))) { BUSY } else { IDLE }
    }

    /// Shards that have left the map get no numbers any more: their connections end.
    fn forget_former(&self, is_in_map: impl Fn(ShardId) -> bool) {
        self.links.keep_only(&is_in_map);
        self.demand.lock().retain(|(id, _), _| is_in_map(*id));
    }

    /// `None`: the same of an earlier round has not ended yet.
    fn begin(&self, job: Job, work: impl Future<Output = usize> + Send + 'static) -> Option<tokio::task::JoinHandle<usize>> {
        let running = Running::begin(&self.under_way, job)?;
        Some(self.runtime.spawn(async move {
            let given = work.await;
            drop(running);
            given
        }))
    }

    /// Somebody waits for the next round. Cancel safe.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    async fn fill_shard(&self, shard: &Arc<Shard>, names: &[SequenceName]) -> usize {
        let link = self.links.of(shard);
        let unknown = |error: LinkError| tracing::debug!(shard = shard.name, %error, "the numbers that a shard has are not known");
        let mut link = match link.turn(Instant::now()).await {
            Ok(link) => link,
            Err(error) => {
                unknown(error);
                return 0;
            }
        };
        let rows = match link.values(LEFT.to_owned()).await {
            Ok(rows) => rows,
            Err(error) => {
                unknown(error);
                return 0;
            }
        };
        let mut given = 0;
        for row in rows {
            let Ok((schema, sequence, left)) = serde_json::from_str::<(String, String, i64)>(&row) else { continue };
            let name = (schema, sequence);
            // A sequence that was set begins with the proxies again.
            let Ok((sequence, _)) = self.sequence(&name) else { continue };
            let known = self.demand.lock().get(&(shard.id, name.clone())).copied();
            let known = known.filter(|known| known.generation == sequence.generation);
            let sizes = Sizes::of(&sequence, self.block);
            if !names.contains(&name) || !Demand::is_due(known, left, sizes.first) {
                continue;
            }
            let demand = Demand { generation: sequence.generation, ..Demand::next(known, left, sizes, Instant::now()) };
            match self.give(&mut link, &name, demand.size).await {
                Ok(()) => {
                    given += 1;
                    self.demand.lock().insert((shard.id, name), demand);
                }
                Err(error) => tracing::warn!(shard = shard.name, sequence = name.1, %error, "a shard was given no numbers"),
            }
        }
        given
    }

    /// A block for the shard. When it does not arrive its numbers are a gap.
    async fn give(&self, link: &mut Link, name: &SequenceName, size: i64) -> Result<(), PgError> {
        let (sequence, _) = self.sequence(name)?;
        let block = match self
            .map
            .store()
            .reserve_numbers(&name.0, &name.1, size, Some(sequence.generation))
            .await
            .map_err(PgError::from)
        {
            Ok(Some(block)) => block,
            Ok(None) => {
                self.unconfirmed.lock().insert(name.clone());
                return Ok(());
            }
            // Somebody alters it: there are no numbers before that has ended.
            Err(error) if error.code == SqlState::OBJECT_IN_USE => return Ok(()),
            Err(error) => return Err(error),
        };
        if block.count == 0 {
            return Ok(());
        }
        let sql = format!(
            "SELECT shardgate.add_numbers({}, {}, {}, {}, {})",
            as_regclass(name),
            block.first,
            block.count,
            block.increment,
            block.generation
        );
        link.values(sql).await.map(drop).map_err(|error| unreachable(&link.shard.name, &error))
    }

    /// setval: from here on the next number of every proxy and every shard follows this one. Not cancel safe: it may have been
    /// set in part, and may be repeated.
    pub async fn set(self: &Arc<Self>, actor: &str, name: &SequenceName, number: i64, is_called: bool) -> Result<(), PgError> {
        let (store, until) = (self.map.store(), Instant::now() + PATIENCE);
        while_closed(until, || store.set_sequence(actor, &name.0, &name.1, number, is_called)).await?;
        let epoch = self.map.refresh().await?;
        self.void(name, number).await?;
        if !self.map.seen_by_all(epoch, SEEN_WITHIN).await? {
            tracing::warn!(%epoch, "a proxy has not heard of a setval in time");
        }
        Ok(())
    }

    /// What the shards have was given to them before the sequence's generation that is known here. Numbers up to this one may be
    /// in use.
    pub(super) async fn void(self: &Arc<Self>, name: &SequenceName, number: i64) -> Result<(), PgError> {
        let (this, name) = (Arc::clone(self), name.clone());
        self.on_runtime(async move { this.void_everywhere(&name, number).await }).await
    }

    async fn void_everywhere(&self, name: &SequenceName, number: i64) -> Result<(), PgError> {
        let (sequence, _) = self.sequence(name)?;
        let shards: Vec<Arc<Shard>> = self.map.snapshot().shards.iter().filter(|shard| shard.state.is_ready()).cloned().collect();
        for shard in shards {
            let sql = format!(
                "SELECT shardgate.void_numbers(s.sequence::regclass, {number}, {}) FROM shardgate.number_sequences s \
                 WHERE s.sequence = to_regclass({})",
                sequence.generation,
                quoted(name)
            );
            self.ask(&shard, sql).await?;
        }
        Ok(())
    }

    /// On the runtime that owns the connections.
    pub(super) async fn on_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, PgError>> + Send + 'static,
    ) -> Result<T, PgError> {
        self.runtime.spawn(work).await.map_err(|_| PgError::internal("a call to a shard was interrupted"))?
    }

    pub(super) async fn ask(&self, shard: &Arc<Shard>, sql: String) -> Result<Vec<String>, PgError> {
        self.links.of(shard).values(Instant::now(), sql).await.map_err(|error| unreachable(&shard.name, &error))
    }

    /// Tells the map up to where numbers are used, when it has failed over and may have forgotten. Every shard must answer.
    async fn confirm(&self, shards: &[Arc<Shard>]) {
        let (asked_at, names) = (Instant::now(), self.unconfirmed.lock().iter().cloned().collect::<Vec<SequenceName>>());
        for name in names {
            match self.confirm_one(&name, shards, asked_at).await {
                Ok(()) => {
                    self.unconfirmed.lock().remove(&name);
                    tracing::info!(sequence = name.1, "the numbers of a sequence are confirmed after a fail-over of the map");
                }
                Err(error) => tracing::warn!(sequence = name.1, %error, "the numbers of a sequence cannot be confirmed"),
            }
        }
    }

    async fn confirm_one(&self, name: &SequenceName, shards: &[Arc<Shard>], asked_at: Instant) -> Result<(), PgError> {
        let (sequence, _) = self.sequence(name)?;
        let mut used: Option<i128> = None;
        for shard in shards {
            let sql = format!(
                "SELECT shardgate.numbers_used(s.sequence::regclass) FROM shardgate.number_sequences s WHERE s.sequence = to_regclass({})",
                quoted(name)
            );
            let found = self.links.of(shard).values(asked_at, sql).await.map_err(|error| unreachable(&shard.name, &error))?;
            for number in found.iter().filter_map(|found| found.parse::<i128>().ok()) {
                let farther = if sequence.increment > 0 { i128::max } else { i128::min };
                used = Some(used.map_or(number, |used| farther(used, number)));
            }
        }
        // Blocks that proxies held, of which no number has reached a shard.
        let margin = i128::from(sequence.increment) * i128::from(Sizes::of(&sequence, self.block).max) * HELD_BLOCKS;
        self.map.store().confirm_sequence("shardgate", (&name.0, &name.1), used, margin).await?;
        self.map.refresh().await?;
        Ok(())
    }
}

/// What a round does, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Job {
    /// Asks every shard what it has used, after a fail-over of the map.
    Confirm,
    Fill(ShardId),
}

/// A job that has begun; it may begin again when this is dropped.
struct Running {
    all: Arc<Mutex<HashSet<Job>>>,
    job: Job,
}

impl Running {
    fn begin(all: &Arc<Mutex<HashSet<Job>>>, job: Job) -> Option<Self> {
        all.lock().insert(job).then(|| Self { all: Arc::clone(all), job })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().remove(&self.job);
    }
}

pub(super) fn unreachable(shard: &str, error: &dyn std::fmt::Display) -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("the numbers of a sequence did not reach shard \"{shard}\""))
        .with_detail(format!("The shard says: {error}."))
        .with_hint("Repeat the statement when the shard can be reached.")
}

/// `"schema"."name"` as a literal.
pub(super) fn quoted(name: &SequenceName) -> String {
    quoted_literal(&quoted_name(&name.0, &name.1))
}

fn as_regclass(name: &SequenceName) -> String {
    format!("{}::pg_catalog.regclass", quoted(name))
}

const LEFT: &str = "SELECT pg_catalog.json_build_array(schema_name, sequence_name, how_many)::text FROM shardgate.numbers_left()";
/// A block that lasts less long was too small.
const FAST: Duration = LASTING;
const IDLE: Duration = Duration::from_millis(250);
const BUSY: Duration = Duration::from_millis(20);
/// A shard that is well has answered by then.
const ROUND_MAX: Duration = Duration::from_millis(250);
pub(super) const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// More proxies than this would have to have drawn a block each since the shards last heard of the sequence.
const HELD_BLOCKS: i128 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_lasts_is_not_begun_twice() {
        let all = Arc::default();
        let running = Running::begin(&all, Job::Fill(ShardId(1)));
        assert!(running.is_some() && Running::begin(&all, Job::Fill(ShardId(1))).is_none());
        assert!(Running::begin(&all, Job::Fill(ShardId(2))).is_some() && Running::begin(&all, Job::Confirm).is_some());
        drop(running);
        assert!(Running::begin(&all, Job::Fill(ShardId(1))).is_some());
    }

    #[test]
    fn blocks_grow_with_the_demand_and_shrink_without() {
        let (start, sizes) = (Instant::now(), Sizes { first: 100, max: 1 << 18 });
        let first = Demand::next(None, 0, sizes, start);
        assert_eq!(first.size, 200);
        let waited = Demand::next(Some(first), -3, sizes, start + Duration::from_millis(50));
        assert_eq!(waited.size, 800);
        let fast = Demand::next(Some(waited), 90, sizes, start + Duration::from_millis(90));
        assert_eq!(fast.size, 1600);
        let mut size = fast;
        for _ in 0..20 {
            size = Demand::next(Some(size), -1, sizes, start);
        }
        assert_eq!(size.size, sizes.max);
        for round in 0..30 {
            size = Demand::next(Some(size), 50, sizes, start + FAST * (2 * round + 2));
        }
        assert_eq!(size.size, 100);
        assert!(Demand::is_due(Some(waited), 399, 100) && !Demand::is_due(Some(waited), 400, 100));
        assert!(Demand::is_due(None, -1, 100) && !Demand::is_due(None, 0, 100));
    }
}
