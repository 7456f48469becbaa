//! The verbs about moves: they write down what is wanted, drive a move, and show how far it is.
//!
//! What the operator sees comes from the map alone: whoever drives the move, this process, another one or a proxy, the same is
//! shown. To leave this process is to leave the driving to others.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::moves::drive::Driver;
use super::moves::site::Site;
use super::progress::ProgressDisplay;
use super::{RebalanceError, units};
use crate::failpoint::Failpoints;
use crate::shardmap::{
    Asked, DRIVER_LEASE, Isolation, Lost, MapSnapshot, Move, MoveId, MoveOptions, MoveState, PartitionId, Store, TableKind, Term,
};

#[derive(Clone, Debug)]
pub struct MoveRequest {
    pub partitions: Vec<i32>,
    pub target: String,
    pub options: MoveOptions,
    /// Leave the driving to the proxies.
    pub is_detached: bool,
}

/// One key that is to have a partition of its own on another shard.
#[derive(Clone, Debug)]
pub struct IsolationRequest {
    /// As `shardgate.tables` shows it, with or without its schema.
    pub table: String,
    pub key: String,
    pub target: String,
    pub options: MoveOptions,
    /// Leave the driving to the proxies.
    pub is_detached: bool,
}

/// One move, for people and machines.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    move_id: i32,
    partitions: Vec<i32>,
    source: &'a str,
    target: &'a str,
    state: &'static str,
    rows_copied: i64,
    bytes_copied: i64,
    bytes_expected: Option<i64>,
    lag_bytes: Option<i64>,
    attempts: i32,
    pause_ms: Option<f64>,
    /// Of the last cut-over, right before it.
    expected_pause_ms: Option<f64>,
    /// Of the cut-over that has switched, in their order.
    pause_steps: Vec<PauseStep>,
    error: Option<&'a str>,
    can_roll_back: bool,
    /// Why it can't be rolled back any more.
    way_back_lost: Option<&'a str>,
    /// When the source's rows are deleted; until then it can be rolled back.
    finish_at: Option<&'a str>,
    /// What `abort` would do now.
    abort_would: &'static str,
}

/// What statements were held for.
#[derive(Debug, Serialize, Deserialize)]
struct PauseStep {
    step: String,
    ms: f64,
}

impl<'a> Shown<'a> {
    fn of(the_move: &'a Move) -> Self {
        Self {
            move_id: the_move.id.0,
            partitions: the_move.partitions.iter().map(|id| id.0).collect(),
            source: &the_move.source,
            target: &the_move.target,
            state: the_move.state.name(),
            rows_copied: the_move.rows_copied,
            bytes_copied: the_move.bytes_copied,
            bytes_expected: the_move.bytes_expected,
            lag_bytes: the_move.lag_bytes,
            attempts: the_move.attempts,
            pause_ms: the_move.pause_ms,
            expected_pause_ms: the_move.journal.get("expected_pause_ms").and_then(serde_json::Value::as_f64),
            pause_steps: the_move.journal.get("pause_steps").and_then(|steps| Vec::deserialize(steps).ok()).unwrap_or_default(),
            error: the_move.error.as_deref(),
            can_roll_back: the_move.can_roll_back,
            way_back_lost: the_move.journal.get("reverse_lost").and_then(serde_json::Value::as_str),
            finish_at: the_move.finish_at.as_deref().filter(|_| the_move.state == MoveState::Switched),
            abort_would: match the_move.state {
                _ if Lost::of(the_move).is_some() => "change nothing: the move ends without one of its shards",
                _ if the_move.asked == Some(Asked::Rollback) => "end the rollback: the target owns the partitions, as before",
                MoveState::Switched if the_move.can_roll_back => {
                    "be refused: the target owns the partitions; \"rollback\" moves them back"
                }
                MoveState::Planned => "end it: nothing was touched yet",
                MoveState::Preparing
                | MoveState::Copying
                | MoveState::CatchingUp
                | MoveState::Verifying
                | MoveState::CuttingOver => "delete the copies at the target; the source owns the partitions",
                MoveState::Failed if the_move.is_rollback => "be refused: the source owns the partitions again",
                MoveState::Switched | MoveState::CleaningUp | MoveState::Failed => {
                    "be refused: the target owns the partitions, or may"
                }
                MoveState::Done | MoveState::Aborting | MoveState::Aborted => "change nothing",
            },
        }
    }

    fn lines(&self) -> String {
        let partitions: Vec<String> = self.partitions.iter().map(ToString::to_string).collect();
        let mut lines = vec![
            format!("move         {}", self.move_id),
            format!("partitions   {}", partitions.join(", ")),
            format!("from         {}", self.source),
            format!("to           {}", self.target),
            format!("state        {}", self.state),
            format!("copied       {} rows, {}", self.rows_copied, bytes(self.bytes_copied)),
        ];
        if let Some(expected) = self.bytes_expected {
            lines.push(format!("expected     {}", bytes(expected)));
        }
        if let Some(lag) = self.lag_bytes {
            lines.push(format!("behind       {}", bytes(lag)));
        }
        if let Some(pause) = self.pause_ms {
            let expected = self.expected_pause_ms.map(|expected| format!(" (expected {expected:.0} ms)")).unwrap_or_default();
            lines.push(format!("pause        {pause:.0} ms{expected}, cut-over {} of {}", self.attempts, self.attempts));
            let steps: Vec<String> = self.pause_steps.iter().map(|PauseStep { step, ms }| format!("{step} {ms} ms")).collect();
            if !steps.is_empty() {
                lines.push(format!("its steps    {}", steps.join(", ")));
            }
        }
        if let Some(error) = self.error {
            lines.push(format!("now          {error}"));
        }
        if self.state == MoveState::Switched.name() {
            lines.push(format!("rollback     {}", self.way_back()));
        }
        lines.push(format!("abort would  {}", self.abort_would));
        lines.join("\n") + "\n"
    }
}

impl Shown<'_> {
    fn way_back(&self) -> String {
        match (self.can_roll_back, self.finish_at) {
            (false, _) => format!("not possible{}", self.way_back_lost.map(|reason| format!(": {reason}")).unwrap_or_default()),
            (true, Some(until)) => format!("possible until {until}, with \"shard-rebalance rollback {}\"", self.move_id),
            (true, None) => {
                format!("possible with \"shard-rebalance rollback {0}\", until \"shard-rebalance finish {0}\"", self.move_id)
            }
        }
    }
}

fn bytes(count: i64) -> String {
    units::bytes(u64::try_from(count).unwrap_or_default())
}

/// Plans a move and drives it until it waits out its grace period; without one, to its end. One that does just that and runs
/// already is followed.
pub async fn start(map_url: &str, request: &MoveRequest, is_json: bool) -> Result<(), RebalanceError> {
    Box::pin(start_shown(map_url, request, &ProgressDisplay::new(is_json))).await
}

/// Beside other moves that the same command follows.
pub(super) async fn start_shown(map_url: &str, request: &MoveRequest, display: &ProgressDisplay) -> Result<(), RebalanceError> {
    let driver = driver(map_url).await?;
    let partitions: Vec<PartitionId> = request.partitions.iter().copied().map(PartitionId).collect();
    let driving = (!request.is_detached).then_some(driver.id);
    let mut wanted = partitions.clone();
    wanted.sort_unstable();
    wanted.dedup();
    let running = driver.store.running_moves().await?;
    let id = match running.iter().find(|running| running.partitions == wanted && running.target == request.target) {
        // Asked for again.
        Some(same) => {
            if same.state == MoveState::Switched && !request.options.can_go_back() {
                driver.store.ask_move(&driver.actor, same.id, Some(Asked::Finish), driving).await?;
                return follow(&driver, same.id, differs, display).await;
            }
            same.id
        }
        None if are_there(&driver.store, &wanted, &request.target).await?
            && running.iter().all(|other| is_apart(other, &wanted)) =>
        {
            return tell_there("The partitions are", &request.target, display);
        }
        None => driver.store.plan_move(&driver.actor, &partitions, &request.target, &request.options, driving).await?,
    };
    Box::pin(follow_planned(&driver, id, request.is_detached, display)).await
}

async fn follow_planned(driver: &Driver, id: MoveId, is_detached: bool, display: &ProgressDisplay) -> Result<(), RebalanceError> {
    let planned = require(&driver.store, id).await?;
    if is_detached {
        return show_one(&planned, display);
    }
    let until = planned.options.can_go_back();
    follow(driver, id, move |now: &Move| until && now.has_settled(), display).await
}

/// Gives one key a partition of its own, and moves it as [`start`] does. A key that is there already stays.
pub async fn isolate(map_url: &str, request: &IsolationRequest, is_json: bool) -> Result<(), RebalanceError> {
    let driver = driver(map_url).await?;
    let (schema, name) = sharded_table(&driver.store.load().await?.snapshot, &request.table)?;
    let display = &ProgressDisplay::new(is_json);
    let isolation = Isolation { table: (&schema, &name), key: &request.key, shard: &request.target };
    let driving = (!request.is_detached).then_some(driver.id);
    match driver.store.plan_isolation(&driver.actor, isolation, &request.options, driving).await? {
        Some(id) => Box::pin(follow_planned(&driver, id, request.is_detached, display)).await,
        None => tell_there("The key is", &request.target, display),
    }
}

/// All of the partitions are on the shard.
async fn are_there(store: &Store, partitions: &[PartitionId], target: &str) -> Result<bool, RebalanceError> {
    let map = store.load().await?.snapshot;
    let shard_of = |id: &PartitionId| map.partition(*id).and_then(|(_, partition)| map.shard(partition.shard));
    Ok(!partitions.is_empty() && partitions.iter().all(|id| shard_of(id).is_some_and(|shard| shard.name == target)))
}

fn is_apart(running: &Move, partitions: &[PartitionId]) -> bool {
    running.partitions.iter().all(|moving| !partitions.contains(moving))
}

/// What is so already is done.
fn tell_there(what: &str, target: &str, display: &ProgressDisplay) -> Result<(), RebalanceError> {
    let text = format!("{what} on shard {target} already: nothing is to be moved.\n");
    display.end(serde_json::json!({ "move_id": null, "target": target }), &text)
}

/// The sharded table of this name, with its schema in front or without.
fn sharded_table(map: &MapSnapshot, wanted: &str) -> Result<(String, String), RebalanceError> {
    let sharded = map.tables.values().filter(|table| matches!(table.kind, TableKind::Sharded { .. }));
    let names = |table: &&std::sync::Arc<crate::shardmap::Table>| {
        table.name == wanted || wanted.strip_prefix(&table.schema).and_then(|rest| rest.strip_prefix('.')) == Some(&table.name)
    };
    let found: Vec<(String, String)> = sharded.filter(names).map(|table| (table.schema.clone(), table.name.clone())).collect();
    match &found[..] {
        [table] => Ok(table.clone()),
        [] => Err(RebalanceError::Refused(format!(
            "table \"{wanted}\" is not sharded; SELECT * FROM shardgate.tables lists the tables"
        ))),
        [_, _, ..] => Err(RebalanceError::Refused(format!("there are several tables \"{wanted}\"; give the schema: SCHEMA.TABLE"))),
    }
}

/// Says what is wanted of a move, and drives it until that is so.
pub async fn ask(map_url: &str, move_id: i32, asked: Option<Asked>, is_json: bool) -> Result<(), RebalanceError> {
    let driver = driver(map_url).await?;
    let (id, display) = (MoveId(move_id), &ProgressDisplay::new(is_json));
    let was_rolling_back = require(&driver.store, id).await?.asked == Some(Asked::Rollback);
    driver.store.ask_move(&driver.actor, id, asked, Some(driver.id)).await?;
    match asked {
        Some(Asked::Pause) => show_one(&require(&driver.store, id).await?, display),
        Some(Asked::Abort) => {
            let until = |now: &Move| was_rolling_back && now.state == MoveState::Switched;
            match follow(&driver, id, until, display).await {
                // That is what was wanted.
                Err(RebalanceError::Aborted { .. }) => Ok(()),
                Err(RebalanceError::Refused(_)) if require(&driver.store, id).await?.state == MoveState::Aborted => Ok(()),
                Ok(()) if require(&driver.store, id).await?.state == MoveState::Done => {
                    Err(RebalanceError::Refused(format!("move {move_id} is done, and no move is aborted after its end")))
                }
                outcome => outcome,
            }
        }
        Some(Asked::Rollback | Asked::RollbackUnverified) => {
            let given_up = |now: &Move| now.state == MoveState::Switched && now.asked != Some(Asked::Rollback);
            match follow(&driver, id, given_up, display).await {
                Err(RebalanceError::Aborted { .. } | RebalanceError::Refused(_)) => Ok(()),
                Ok(()) => {
                    let now = require(&driver.store, id).await?;
                    let reason = now.error.unwrap_or_else(|| format!("it is {} now", now.state.name()));
                    Err(RebalanceError::Refused(format!("move {move_id} was not rolled back: {reason}")))
                }
                outcome @ Err(_) => outcome,
            }
        }
        Some(Asked::Finish | Asked::FinishUnverified) => follow(&driver, id, differs, display).await,
        Some(Asked::Cutover | Asked::Resume) | None => {
            let until = require(&driver.store, id).await?.options.can_go_back();
            follow(&driver, id, move |now| until && now.has_settled(), display).await
        }
    }
}

/// Ends a move without one of its shards, which is lost for good, and drives it to that end. `verb`: by which this is asked.
pub async fn give_up(map_url: &str, move_id: i32, (verb, lost): (&str, Lost), is_json: bool) -> Result<(), RebalanceError> {
    let driver = driver(map_url).await?;
    let id = MoveId(move_id);
    let the_move = require(&driver.store, id).await?;
    if Lost::of(&the_move).is_none() && !the_move.state.is_over() && the_move.state != MoveState::Planned {
        let map = driver.store.load().await?.snapshot;
        let shard = map.shard_by_name(lost.shard(&the_move));
        if let Some(shard) = shard
            && Box::pin(Site::open(shard, id, Term(0))).await.is_ok()
        {
            let (name, verb) = (&shard.name, lost.verb());
            return Err(RebalanceError::Refused(format!(
                "shard \"{name}\" answers, and is not lost: use \"shard-rebalance {verb} {move_id}\""
            )));
        }
    }
    driver.store.give_up_move(&driver.actor, id, (verb, lost), driver.id).await?;
    match follow(&driver, id, |_| false, &ProgressDisplay::new(is_json)).await {
        Err(RebalanceError::Aborted { .. } | RebalanceError::Refused(_)) if lost == Lost::Target => Ok(()),
        outcome => outcome,
    }
}

/// Both sides were compared before the end, and are not the same.
fn differs(now: &Move) -> bool {
    now.state == MoveState::Switched && now.asked.is_none() && now.remembers("differs")
}

pub async fn show(map_url: &str, move_id: i32, is_json: bool) -> Result<(), RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let found = require(&store, MoveId(move_id)).await?;
    show_one(&found, &ProgressDisplay::new(is_json))
}

async fn driver(map_url: &str) -> Result<Driver, RebalanceError> {
    let store = Store::of_command(map_url).await?;
    store.check().await?;
    let points = Arc::new(Failpoints::from_environment());
    let (id, actor) = (rand::random_range(1..=i64::MAX), "shard-rebalance".to_owned());
    Ok(Driver { store, id, actor, lease: DRIVER_LEASE, points })
}

async fn require(store: &Store, id: MoveId) -> Result<Move, RebalanceError> {
    let found = store.move_by_id(id).await?;
    found.ok_or_else(|| RebalanceError::Refused(format!("there is no move {}; SELECT * FROM shardgate.moves shows them", id.0)))
}

/// Drives the move and shows how far it is, until it has ended.
async fn follow(
    driver: &Driver,
    id: MoveId,
    until: impl Fn(&Move) -> bool,
    display: &ProgressDisplay,
) -> Result<(), RebalanceError> {
    let driving = driver.drive(id, until);
    let mut driving = std::pin::pin!(driving);
    let mut shown = display.of_move();
    let ended = loop {
        tokio::select! {
            ended = &mut driving => break ended?,
            () = sleep(SHOW_INTERVAL) => {}
        }
        if let Ok(Some(now)) = driver.store.move_by_id(id).await {
            shown.show(&now)?;
        }
    };
    drop(shown);
    show_one(&ended, display)?;
    let reason = ended.error.clone().unwrap_or_else(|| "no reason was given".to_owned());
    match ended.state {
        // Refused before anything was touched.
        MoveState::Aborted if ended.journal.get("shapes").is_none() && ended.attempts == 0 => Err(RebalanceError::Refused(reason)),
        MoveState::Aborted => Err(RebalanceError::Aborted { move_id: id.0, reason }),
        MoveState::Failed => Err(RebalanceError::NeedsPerson { move_id: id.0, reason }),
        MoveState::Switched if differs(&ended) => Err(RebalanceError::NeedsPerson { move_id: id.0, reason }),
        _ => Ok(()),
    }
}

fn show_one(the_move: &Move, display: &ProgressDisplay) -> Result<(), RebalanceError> {
    let shown = Shown::of(the_move);
    display.end(serde_json::to_value(&shown)?, &shown.lines())
}

const SHOW_INTERVAL: Duration = Duration::from_millis(200);
