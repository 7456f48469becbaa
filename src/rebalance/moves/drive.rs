//! Drives a move from where it stands to its end, whoever began it.
//!
//! One turn takes a term, opens both sides, and runs the state that the map shows; what stops it says what comes next. A second
//! task tells the map that the driver lives, and hears what is asked; a third one goes on without proxies that are silent. Nothing that
//! a driver knows is needed by the next one but what the map and the shards hold.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::direction::Direction;
use super::fencing;
use super::moving::{Beside, Moving};
use super::patience::{Patience, bounded_if_held};
use super::states::{aborting, catching_up, cleaning_up, copying, cutting_over, failed, planned, preparing, switched, verifying};
use super::stop::Stop;
use super::{given_up, objects, one_sided, replication, reverse, servers, terms};
use crate::failpoint::Failpoints;
use crate::shardmap::{Asked, Lost, Move, MoveId, MoveState, Progress, Store, StoreError, Term};

/// Who drives.
#[derive(Clone)]
pub struct Driver {
    pub store: Store,
    /// Random, one a process.
    pub id: i64,
    /// For the history of the map.
    pub actor: String,
    /// A driver that was not heard of for so long is replaced by this one.
    pub lease: Duration,
    pub points: Arc<Failpoints>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The move is in another state now; take the next turn.
    WentOn,
    /// Something is in the way; the move's `error` says what. Try again after a while.
    Waits,
    /// Another driver has it.
    Taken,
    /// Done, aborted, or failed.
    Over,
}

impl Driver {
    /// Until the move is over. `Taken` is waited out: the other driver may die. Not bounded. May be dropped at any time: another
    /// driver goes on.
    pub async fn drive(&self, id: MoveId, until: impl Fn(&Move) -> bool) -> Result<Move, StoreError> {
        let mut waits = BACK_OFF_FIRST;
        let mut lost_since = None;
        loop {
            let the_move = match self.require(id).await {
                Ok(the_move) => the_move,
                // The map restarts, or is slow: the shards go on meanwhile.
                Err(StoreError::Unreachable(_)) if lost_since.get_or_insert_with(Instant::now).elapsed() < MAP_PATIENCE => {
                    sleep(waits).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            lost_since = None;
            if the_move.is_at_rest() || until(&the_move) {
                return Ok(the_move);
            }
            match Box::pin(self.turn(the_move)).await {
                Ok(Turn::WentOn) => waits = BACK_OFF_FIRST,
                Ok(Turn::Over) => {}
                Ok(Turn::Waits | Turn::Taken) | Err(_) => {
                    sleep(waits).await;
                    waits = (waits * 2).min(BACK_OFF_MAX);
                }
            }
        }
    }

    async fn require(&self, id: MoveId) -> Result<Move, StoreError> {
        let found = self.store.move_by_id(id).await?;
        found.ok_or_else(|| StoreError::Unreadable(format!("there is no move {}", id.0)))
    }

    /// One state's work.
    pub async fn turn(&self, the_move: Move) -> Result<Turn, StoreError> {
        let id = the_move.id;
        if the_move.is_at_rest() {
            return Ok(Turn::Over);
        }
        let Some(term) = self.store.take_move(id, self.id, self.lease).await? else { return Ok(Turn::Taken) };
        // As it is under the term: another driver may have acted meanwhile, or ended it. Then nobody would take away what shards are told.
        let the_move = self.require(id).await?;
        if the_move.state.is_over() {
            return Ok(Turn::Over);
        }
        let progress = Mutex::new(Progress { error: the_move.error.clone(), ..Progress::default() });
        let beside = Beside { progress: Arc::new(progress), ..Beside::default() };
        let state = the_move.state;
        let outcome = tokio::select! {
            outcome = Box::pin(self.run(the_move.clone(), term, beside.clone())) => outcome,
            stop = self.keep((id, term), state, &beside) => Err(stop),
            () = fencing::keep_shutting_out(&self.store, &the_move, &beside.trouble) => Ok(()),
            never = reverse::keep_advanced(self, (&the_move, term), Arc::clone(&beside.quiet)) => match never {},
        };
        match outcome {
            Ok(()) => Ok(Turn::WentOn),
            Err(stop) => self.stopped(&the_move, term, stop).await,
        }
    }

    async fn run(&self, the_move: Move, term: Term, beside: Beside) -> Result<(), Stop> {
        if the_move.state == MoveState::Planned && the_move.asked == Some(Asked::Abort) {
            return Err(Stop::Withdraw(the_move.abort_reason()));
        }
        if the_move.state != MoveState::Planned
            && let Some(lost) = Lost::of(&the_move)
        {
            let ending = Box::pin(given_up::run(self, (&the_move, term), &beside, lost));
            return bounded_if_held(Patience::if_held(&the_move), ending).await;
        }
        let is_abort_asked = the_move.asked == Some(Asked::Abort);
        let (state, reason) = (the_move.state, the_move.error.clone());
        if state == MoveState::CuttingOver {
            let reason = reason.as_deref().unwrap_or("the driver of the cut-over was lost");
            let releasing = Box::pin(cutting_over::release(self, (&the_move, term), reason));
            if bounded_if_held(Patience::if_held(&the_move), releasing).await.map_err(Stop::while_held)? {
                return Ok(());
            }
        }
        let opening = Box::pin(Moving::open(self, (the_move.clone(), term), beside));
        let mut moving = match bounded_if_held(Patience::if_held(&the_move), opening).await {
            Ok(moving) => moving,
            Err(stop) => {
                Box::pin(one_sided::look(self, &the_move, term)).await?;
                return Err(if the_move.holds() { stop.while_held() } else { stop });
            }
        };
        moving.reach("taken").await;
        Box::pin(run_state(&mut moving, is_abort_asked, reason)).await
    }

    /// Tells the map every second that the driver lives, and hears which servers are primaries; ends when the turn has to end.
    async fn keep(&self, (id, term): (MoveId, Term), state: MoveState, beside: &Beside) -> Stop {
        let mut ticks = interval(KEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let told = beside.progress.lock().clone();
            match self.store.keep_move(id, term, &told).await {
                Ok(Some(Asked::Abort)) if is_interrupted_by_abort(state) => {
                    return self.require(id).await.map_or_else(Stop::from, |asked| Stop::Abort(asked.abort_reason()));
                }
                Ok(_) => {}
                // Away: the driver goes on as long as nobody else has taken the move, which the shards know as well.
                Err(StoreError::Unreachable(_) | StoreError::OutcomeUnknown(_)) => {}
                Err(error) => return error.into(),
            }
            if let Err(error) = beside.learn_primaries(&self.store).await {
                tracing::debug!(move_id = id.0, %error, "which servers are primaries could not be read");
            }
            // A pause ends first.
            if state != MoveState::CuttingOver && beside.has_other_addresses(&self.store).await.unwrap_or(false) {
                return Stop::Again("a shard has got another address, or another password".to_owned());
            }
        }
    }

    async fn stopped(&self, the_move: &Move, term: Term, stop: Stop) -> Result<Turn, StoreError> {
        let id = the_move.id;
        // The state under which the turn has stopped.
        let now = self.require(id).await?;
        tracing::info!(move_id = id.0, state = now.state.name(), ?stop, "move stopped");
        match stop {
            Stop::Overtaken => {
                if now.state.is_over() {
                    one_sided::forget(self, the_move, term).await;
                }
                Ok(Turn::Taken)
            }
            Stop::Withdraw(reason) if now.state == MoveState::Planned => {
                self.store.withdraw_move(&self.actor, id, term, &reason).await?;
                // Shards that know of an earlier move were told the term before the first look.
                one_sided::forget(self, the_move, term).await;
                Ok(Turn::Over)
            }
            Stop::Failed(reason) => {
                // What asked it to go on, where it had failed before, is answered by that.
                let remembered = serde_json::json!({ "failed_in": now.state.name() });
                self.store.advance_move((id, term), now.state, MoveState::Failed, remembered, Some(&reason)).await?;
                Ok(Turn::Over)
            }
            Stop::Abort(reason) | Stop::Differ(reason) if can_abort(now.state) => {
                let remembered = aborting::to_remember(&reason);
                self.store.advance_move((id, term), now.state, MoveState::Aborting, remembered, Some(&reason)).await?;
                Ok(Turn::WentOn)
            }
            Stop::Rest(waits_for) => {
                self.store.keep_move(id, term, &Progress { error: waits_for, ..Progress::default() }).await?;
                self.store.leave_move(id, term).await?;
                Ok(Turn::Waits)
            }
            Stop::Slow(reason) => {
                let remembered = Patience::of(&now).to_remember((now.state, now.attempts));
                let told = aborting::told(&now, reason);
                self.store.advance_move((id, term), now.state, now.state, remembered, Some(&told)).await?;
                Ok(Turn::Waits)
            }
            Stop::Again(reason) | Stop::Abort(reason) | Stop::Differ(reason) | Stop::Withdraw(reason) => {
                let told = aborting::told(&now, reason);
                self.store.keep_move(id, term, &Progress { error: Some(told), ..Progress::default() }).await?;
                // A hold that was just given up is ended at once; what keeps it from being ended may last.
                let has_held = now.state == MoveState::CuttingOver && the_move.state != MoveState::CuttingOver;
                Ok(if has_held { Turn::WentOn } else { Turn::Waits })
            }
        }
    }
}

async fn run_state(moving: &mut Moving, is_abort_asked: bool, reason: Option<String>) -> Result<(), Stop> {
    let patience = Patience::if_held(&moving.the_move);
    // First of all: what an earlier driver has under way ends, or comes too late.
    bounded_if_held(patience, Box::pin(terms::take(moving))).await?;
    if can_abort(moving.the_move.state) && Box::pin(has_gone_on(moving, is_abort_asked)).await? {
        return Ok(());
    }
    if !moving.the_move.holds() {
        replication::follow_addresses(moving).await?;
    }
    match moving.the_move.state {
        MoveState::CuttingOver => {
            let reason = reason.unwrap_or_else(|| "the driver of the cut-over was lost".to_owned());
            bounded_if_held(patience, Box::pin(cutting_over::recover(moving, &reason))).await
        }
        MoveState::Planned => Box::pin(planned::run(moving)).await,
        MoveState::Preparing => Box::pin(preparing::run(moving)).await,
        MoveState::Copying => Box::pin(copying::run(moving)).await,
        MoveState::CatchingUp => Box::pin(catching_up::run(moving)).await,
        MoveState::Verifying => Box::pin(verifying::run(moving)).await,
        MoveState::Switched => Box::pin(switched::run(moving)).await,
        MoveState::CleaningUp => Box::pin(cleaning_up::run(moving)).await,
        MoveState::Aborting => Box::pin(aborting::run(moving)).await,
        MoveState::Failed => Box::pin(failed::run(moving)).await,
        MoveState::Done | MoveState::Aborted => Ok(()),
    }
}

/// By the map it has not switched. `true`: the target knows better, since the map has failed over to a server that has not heard of the
/// cut-over, or of more before it; the move has gone on from there.
async fn has_gone_on(moving: &mut Moving, is_abort_asked: bool) -> Result<bool, Stop> {
    if cutting_over::has_switched(moving, Direction::Forward).await? {
        if moving.the_move.state == MoveState::Preparing {
            // Nor has it heard that copies are left out.
            preparing::exclude(moving).await?;
            let epoch = moving.store.epoch().await?;
            moving.all_reached(epoch).await?;
        }
        cutting_over::switch_again(moving, Direction::Forward).await?;
        return Ok(true);
    }
    if is_abort_asked {
        return Err(Stop::Abort(moving.the_move.abort_reason()));
    }
    servers::require_same(moving).await?;
    if moving.the_move.state != MoveState::Preparing {
        // That a cut-over was begun the map may have forgotten as well.
        let kept = objects::keep_owner(moving.the_move.id, moving.group_id());
        moving.source.act(&kept).await?;
    }
    Ok(false)
}

/// Where nothing is held that the interruption would leave to wait.
fn is_interrupted_by_abort(state: MoveState) -> bool {
    matches!(state, MoveState::Preparing | MoveState::Copying | MoveState::Verifying | MoveState::CatchingUp)
}

fn can_abort(state: MoveState) -> bool {
    matches!(state, MoveState::Preparing | MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying)
}

const MAP_PATIENCE: Duration = Duration::from_secs(30);
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
