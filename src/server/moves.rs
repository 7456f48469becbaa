//! Moves go on while any proxy runs: each takes those that nobody drives, and shows all of them in its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::declare::{By, Rebalancer, Rebalancing, Started};
use crate::error::{PgError, SqlState};
use crate::failpoint::Failpoints;
use crate::rebalance::moves::background;
use crate::rebalance::moves::drive::Driver;
use crate::rebalance::plan::Cost;
use crate::rebalance::plan_verbs::PlanOptions;
use crate::rebalance::{RebalanceError, in_sql};
use crate::session::Gateway;
use crate::shardmap::{Move, MoveState};
use crate::telemetry::{Metrics, names};

pub(super) async fn run(gateway: Arc<Gateway>, metrics: Metrics, stop: CancellationToken) {
    let driver = Driver {
        store: gateway.map.store().clone(),
        id: gateway.map.lease().proxy_id().0,
        actor: "shardgate".to_owned(),
        lease: Duration::from_millis(gateway.config.moves.driver_lease_ms),
        points: Arc::new(Failpoints::from_environment()),
    };
    let shown = MovesShown { metrics, between: Mutex::default() };
    Box::pin(background::keep_driving(driver, |moves| shown.show(moves), stop)).await;
}

/// For `shardgate.rebalance()`: by the operator's plan.
pub(super) fn rebalancer(map_url: String) -> Rebalancer {
    Box::new(move |wanted| Box::pin(rebalanced(map_url.clone(), wanted)))
}

async fn rebalanced(map_url: String, wanted: Rebalancing) -> Result<Vec<Started>, PgError> {
    let cost = match wanted.by {
        By::Bytes => Cost::Bytes,
        By::Rows => Cost::Rows,
        By::Count => Cost::Count,
    };
    let Rebalancing { actor, group, by: _, threshold, emptied, is_dry_run } = wanted;
    let actor = (!is_dry_run).then_some(actor);
    // A call cannot say that it leaves one out.
    let options = PlanOptions { cost, threshold, emptied, group, leaves_out: false, deadline: SIZES_DEADLINE };
    let planned = Box::pin(in_sql::rebalance(&map_url, actor.as_deref(), &options)).await.map_err(|error| told(&error))?;
    let started = |planned: in_sql::PlannedInSql| Started {
        move_id: planned.id.map(|id| id.0),
        source: planned.source,
        target: planned.target,
        partitions: planned.partitions,
        bytes: Some(planned.bytes),
        rows: planned.rows,
        expected_seconds: planned.expected_seconds,
        state: planned.id.map(|_| MoveState::Planned),
    };
    Ok(planned.into_iter().map(started).collect())
}

fn told(error: &RebalanceError) -> PgError {
    let state = match error {
        RebalanceError::Refused(_) => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        _ => SqlState::CANNOT_CONNECT_NOW,
    };
    PgError::new(state, error.to_string())
}

/// Sizes are read from every shard; rows are counted by reading every table.
const SIZES_DEADLINE: Duration = Duration::from_secs(60);

/// The moves that have not ended, as gauges.
struct MovesShown {
    metrics: Metrics,
    /// Rows, bytes, and bytes of lag, by source and target: of all that were ever shown, for a gauge keeps what it was told.
    between: Mutex<BTreeMap<(String, String), [i64; 3]>>,
}

impl MovesShown {
    #[expect(clippy::cast_precision_loss, reason = "for the eye")]
    fn show(&self, moves: &[Move]) {
        for state in MoveState::ALL.into_iter().filter(|state| !state.is_over()) {
            let count = moves.iter().filter(|the_move| the_move.state == state).count();
            self.metrics.gauge(names::MOVES, &[(names::LABEL_STATE, state.name())]).set(count as f64);
        }
        let mut between = self.between.lock();
        between.values_mut().for_each(|sums| *sums = [0; 3]);
        for the_move in moves {
            let sums = between.entry((the_move.source.clone(), the_move.target.clone())).or_default();
            let more = [the_move.rows_copied, the_move.bytes_copied, the_move.lag_bytes.unwrap_or_default()];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        for ((source, target), sums) in &*between {
            let labels = [(names::LABEL_SOURCE, source.as_str()), (names::LABEL_TARGET, target.as_str())];
            for (name, sum) in [names::MOVE_ROWS, names::MOVE_BYTES, names::MOVE_LAG_BYTES].into_iter().zip(sums) {
                self.metrics.gauge(name, &labels).set(*sum as f64);
            }
        }
    }
}
