//! How long a cut-over would hold statements now, from what is measured right before it.
//!
//! Three things take time: what was written has to arrive at the subscriber, which a marker shows; the steps themselves are round trips
//! to the map and to the shards, one of each of which is made; and transactions that have written in the set have to end, which is
//! expected to take them as long again as they have taken. A cut-over is not begun while that is more than statements may be held.

use std::time::Duration;

use tokio::time::Instant;

use super::direction::Direction;
use super::marker;
use super::moving::Moving;
use super::objects;
use super::pause::milliseconds;
use super::stop::Stop;
use crate::shardmap::MoveId;

#[derive(Debug)]
pub(super) struct Estimate {
    /// From a marker's writing to its arrival.
    replication: Duration,
    /// The other steps, by their round trips.
    steps: Duration,
    /// Of these, the ones that come when everything has arrived, until the new owner is open.
    last_steps: Duration,
    /// Of the oldest transaction that has written in the set, as the owner's server sees it.
    writer_age: Duration,
    /// Of those transactions the users, processes, and ages.
    writers: String,
}

impl Estimate {
    /// Bounded by what [`marker::round_trip`] is bounded by.
    pub(super) async fn measure(moving: &mut Moving, direction: Direction) -> Result<Self, Stop> {
        let replication = marker::round_trip(moving, direction).await?;
        let began = Instant::now();
        moving.confirm_term().await?;
        let at_map = began.elapsed();
        let began = Instant::now();
        moving.subscriber(direction).act("SELECT 1").await?;
        let at_shard = began.elapsed();
        let steps = at_map * ROUND_TRIPS_TO_MAP + at_shard * ROUND_TRIPS_TO_SHARDS;
        let last_steps = at_map + at_shard * LAST_ROUND_TRIPS_TO_SHARDS;
        let sql = writers_sql(moving.the_move.id);
        let writers = moving.publisher(direction).rows::<(f64, String)>(&sql).await?;
        let (age, writers) = writers.into_iter().next().unwrap_or_default();
        let writer_age = Duration::try_from_secs_f64(age).unwrap_or_default();
        Ok(Self { replication, steps, last_steps, writer_age, writers })
    }

    pub(super) fn total(&self) -> Duration {
        self.replication + self.steps + self.writer_age
    }

    /// For how long statements may be held before the switch: what comes behind it is not given up any more.
    pub(super) fn before_switch(&self, budget: Duration) -> Duration {
        budget - self.last_steps.min(budget / 2)
    }

    /// Kept with the move, and shown beside what it then was.
    pub(super) async fn note(&self, moving: &mut Moving) -> Result<(), Stop> {
        moving.remember("expected_pause_ms", milliseconds(self.total()).into()).await
    }

    /// Why a cut-over is not begun. `None`: it can be.
    pub(super) fn excess(&self, moving: &Moving, direction: Direction) -> Option<String> {
        let budget = Duration::from_millis(moving.the_move.options.max_pause_ms);
        if self.total() <= budget {
            return None;
        }
        let (expected, budget) = (self.total().as_millis(), budget.as_millis());
        let shard = direction.publisher(&moving.the_move);
        let most = if self.writer_age > self.replication + self.steps {
            format!("transactions that have written in the partitions at shard \"{shard}\" are open: {}", self.writers)
        } else {
            let (behind, steps) = (self.replication.as_millis(), self.steps.as_millis());
            format!("replication is {behind} ms behind, and the steps of a cut-over take {steps} ms")
        };
        Some(format!("statements would be held for about {expected} ms, longer than {budget} ms: {most}"))
    }
}

/// Those that hold a lock of the gate: their triggers have looked at it. Also who reads it, as a dump of the shard does: nobody closes it
/// before that ends.
fn writers_sql(id: MoveId) -> String {
    format!(
        "SELECT coalesce(max(w.age), 0), coalesce(string_agg(format('%s (%s, for %s s)', w.usename, w.what, round(w.age::numeric, 1)), ', ' ORDER BY w.age DESC), '')
         FROM (
             SELECT coalesce(a.usename, p.owner) AS usename,
                    coalesce('pid ' || a.pid, 'prepared transaction ' || p.gid) AS what,
                    coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::float8 AS age
             FROM pg_locks l
             LEFT JOIN pg_stat_activity a ON a.pid = l.pid
             LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND l.virtualtransaction = '-1/' || p.transaction
             WHERE l.locktype = 'relation' AND l.relation = to_regclass('{gate}') AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
               AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
             ORDER BY age DESC LIMIT 5
         ) w",
        gate = objects::gate_table(id)
    )
}

/// A cut-over makes three changes of the map, and a proxy reads the change and tells that it has reached it, by about ten answers of the
/// map, of which most are quicker than a change.
const ROUND_TRIPS_TO_MAP: u32 = 9;
/// The gate is closed, the rows are made durable, the residue is known, the other gate is opened.
const ROUND_TRIPS_TO_SHARDS: u32 = 4;
/// Behind one to the map, the switch.
const LAST_ROUND_TRIPS_TO_SHARDS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_left_for_what_comes_behind_the_switch() {
        let ms = Duration::from_millis;
        let estimate = |last_steps| Estimate {
            replication: ms(5),
            steps: ms(60),
            last_steps,
            writer_age: Duration::ZERO,
            writers: String::new(),
        };
        assert_eq!(estimate(ms(12)).before_switch(ms(500)), ms(488));
        assert_eq!(estimate(ms(900)).before_switch(ms(500)), ms(250), "half of it at most");
    }
}
