//! `redistribute_table` without another key or group: a group that is on the home shard alone goes to all shards.
//!
//! The moves are planned here and driven by a proxy, while applications read and write. The call waits until the new owners serve, as
//! long as a small table takes; the moves of a larger one go on by themselves, and the same call made again waits for them.

use std::time::Duration;

use tokio::time::Instant;

use super::arguments::Arguments;
use super::home_moves::{is_moving, running};
use super::keys::find;
use super::moves::{Started, row, spread, start};
use super::{Caller, Control};
use crate::error::{PgError, SqlState};
use crate::shardmap::{Move, MoveId, MoveState};

/// One row a move.
pub(super) async fn spread_from_home(
    control: &Control,
    caller: &Caller,
    arguments: &Arguments,
) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    let map = control.fresh_snapshot().await?;
    let home = map.home().map(|home| (home.id, home.name.as_str()));
    let running = running(control, table.group.id).await?;
    if let Some(other) = running.iter().find(|running| !home.is_some_and(|(_, name)| leads_away(running, name))) {
        return Err(is_moving(other));
    }
    let is_dry_run = arguments.boolean("dry_run")?;
    if !running.is_empty() {
        let mut planned: Vec<Started> = running.iter().map(begun).collect();
        if !is_dry_run {
            until_spread(control, caller, &mut planned).await?;
        }
        return Ok(planned.into_iter().map(row).collect());
    }
    let partitions = map.group(table.group.id).map(|group| group.partitions.as_slice()).unwrap_or_default();
    if partitions.iter().any(|partition| Some(partition.shard) != home.map(|(id, _)| id)) {
        return Err(PgError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{}\" is on several shards already", table.name().1),
        )
        .with_hint("SELECT * FROM shardgate.rebalance() makes the shards even."));
    }
    let mut planned = start(control, spread(caller, Some(table.group.id), 0.0, is_dry_run)).await?;
    until_spread(control, caller, &mut planned).await?;
    Ok(planned.into_iter().map(row).collect())
}

/// Waits until the targets own the partitions, or [`PATIENCE`] is over. Notes the states.
pub(super) async fn until_spread(control: &Control, caller: &Caller, planned: &mut [Started]) -> Result<(), PgError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut is_spread = true;
        for planned in planned.iter_mut() {
            let Some(id) = planned.move_id else { continue };
            let Some(found) = control.map.store().move_by_id(MoveId(id)).await? else { continue };
            if matches!(found.state, MoveState::Aborting | MoveState::Aborted | MoveState::Failed) {
                return Err(has_not_ended(&found));
            }
            is_spread &= matches!(found.state, MoveState::Switched | MoveState::CleaningUp | MoveState::Done);
            planned.state = Some(found.state);
        }
        if is_spread || Instant::now() > deadline {
            return control.reached().await;
        }
        caller.wait(INTERVAL).await?;
    }
}

/// It was planned here, by a call that has ended or still waits: it leaves the home shard and finishes by itself.
fn leads_away(running: &Move, home: &str) -> bool {
    running.source == home && !running.options.can_go_back() && !running.options.manual_cutover && !running.is_rollback
}

fn begun(running: &Move) -> Started {
    Started {
        move_id: Some(running.id.0),
        source: running.source.clone(),
        target: running.target.clone(),
        partitions: running.partitions.len(),
        bytes: running.bytes_expected.and_then(|bytes| u64::try_from(bytes).ok()),
        rows: u64::try_from(running.rows_copied).ok(),
        expected_seconds: None,
        state: Some(running.state),
    }
}

fn has_not_ended(found: &Move) -> PgError {
    let id = found.id.0;
    let error = PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("move {id} to shard \"{}\" has not been done: it is {}", found.target, found.state.name()),
    )
    .with_detail(found.error.clone().unwrap_or_default());
    match found.state {
        MoveState::Failed => error
            .with_hint(format!("\"shard-rebalance show {id}\" tells what to do; call the function again when the move has ended.")),
        _ => error.with_hint(
            "The partitions are where they were. Call the function again, or, where others have moved, shardgate.rebalance().",
        ),
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(50);
