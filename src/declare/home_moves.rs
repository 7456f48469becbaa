//! Brings all rows of colocation groups to the home shard, by moves, while applications read and write.
//!
//! What follows is a change of the map alone: the same rows are on the same shard by the old declaration and by the new one. The moves
//! are planned here and driven by a proxy. Where they take longer than a call waits, they go on by themselves, and the next call takes
//! up what is left.

use std::time::Duration;

use tokio::time::Instant;

use super::functions::no_shard;
use super::moves::{By, Rebalancing, Started, start};
use super::{Caller, Control};
use crate::error::{PgError, SqlState};
use crate::shardmap::{Emptied, Group, GroupId, MapSnapshot, Move, MoveState, Shard, TableName};

/// The moves that were planned, or would be. Waits until they are done. In a process that drives no moves it does nothing: what is not at
/// home is refused afterwards.
pub(super) async fn bring_home(
    control: &Control,
    caller: &Caller,
    groups: &[GroupId],
    is_dry_run: bool,
) -> Result<Vec<Started>, PgError> {
    if !control.drives_moves() {
        return Ok(Vec::new());
    }
    let mut planned = Vec::new();
    for group in groups {
        planned.extend(plan(control, caller, *group, is_dry_run).await?);
    }
    if !is_dry_run {
        let deadline = Instant::now() + PATIENCE;
        for group in groups {
            until_home(control, caller, (*group, &planned), deadline).await?;
        }
        planned.iter_mut().for_each(|planned| planned.state = Some(MoveState::Done));
    }
    Ok(planned)
}

async fn plan(control: &Control, caller: &Caller, id: GroupId, is_dry_run: bool) -> Result<Vec<Started>, PgError> {
    let map = control.fresh_snapshot().await?;
    let (home, Some(group)) = (map.home().ok_or_else(no_shard)?, map.group(id)) else { return Ok(Vec::new()) };
    if let Some(other) = running(control, id).await?.iter().find(|running| !leads_home(running, home)) {
        return Err(is_moving(other));
    }
    if is_home(group, home) {
        return Ok(Vec::new());
    }
    let wanted = Rebalancing {
        actor: caller.user.clone(),
        group: Some(id),
        by: By::Bytes,
        threshold: 0.0,
        emptied: Some(Emptied::AllBut(home.name.clone())),
        is_dry_run,
    };
    start(control, wanted).await
}

async fn until_home(
    control: &Control,
    caller: &Caller,
    (id, planned): (GroupId, &[Started]),
    deadline: Instant,
) -> Result<(), PgError> {
    loop {
        let running = running(control, id).await?;
        if let Some(failed) = running.iter().find(|running| running.state == MoveState::Failed) {
            return Err(PgError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("move {} to the home shard has failed", failed.id.0),
            )
            .with_detail(failed.error.clone().unwrap_or_default())
            .with_hint(format!(
                "\"shard-rebalance show {}\" tells what to do; call the function again when the move has ended.",
                failed.id.0
            )));
        }
        if running.is_empty() {
            return require_home(control, id, planned).await;
        }
        if Instant::now() > deadline {
            let progress: Vec<String> = running.iter().map(progress).collect();
            return Err(PgError::new(SqlState::OBJECT_IN_USE, "rows are still on their way to the home shard")
                .with_detail(progress.join("\n"))
                .with_hint(
                    "They go on by themselves: see shardgate.moves. Call the function again when none of these moves runs.",
                ));
        }
        caller.wait(INTERVAL).await?;
    }
}

/// No move runs any more.
async fn require_home(control: &Control, id: GroupId, planned: &[Started]) -> Result<(), PgError> {
    let map = control.fresh_snapshot().await?;
    let home = map.home().ok_or_else(no_shard)?;
    if map.group(id).is_none_or(|group| is_home(group, home)) {
        return control.reached().await;
    }
    let mut reason = None;
    for planned in planned.iter().filter_map(|planned| planned.move_id) {
        let ended = control.map.store().move_by_id(crate::shardmap::MoveId(planned)).await?;
        reason = reason.or(ended.filter(|ended| ended.state == MoveState::Aborted).and_then(|ended| ended.error));
    }
    Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "not all rows have come to the home shard")
        .with_detail(reason.unwrap_or_else(|| "A move was aborted, or partitions have been moved away meanwhile.".to_owned()))
        .with_hint("Call the function again; it moves what is left."))
}

/// Moves of the group that have not ended.
pub(super) async fn running(control: &Control, id: GroupId) -> Result<Vec<Move>, PgError> {
    let running = control.map.store().running_moves().await?;
    Ok(running.into_iter().filter(|running| running.group == id).collect())
}

/// It was planned here, by a call that has ended: it goes home and finishes by itself.
fn leads_home(running: &Move, home: &Shard) -> bool {
    running.target == home.name && !running.options.can_go_back() && !running.options.manual_cutover && !running.is_rollback
}

fn is_home(group: &Group, home: &Shard) -> bool {
    group.partitions.iter().all(|partition| partition.shard == home.id)
}

fn progress(running: &Move) -> String {
    format!(
        "Move {} from shard \"{}\": {}, {} rows copied.",
        running.id.0,
        running.source,
        running.state.name(),
        running.rows_copied
    )
}

pub(super) fn is_moving(other: &Move) -> PgError {
    let id = other.id.0;
    PgError::new(SqlState::OBJECT_IN_USE, format!("move {id} of the table's partitions is under way"))
        .with_detail(format!("It goes from shard \"{}\" to shard \"{}\": {}.", other.source, other.target, other.state.name()))
        .with_hint(format!(
            "Call the function again when it has ended: \"shard-rebalance finish {id}\" ends it after its switch, \
             \"shard-rebalance abort {id}\" before."
        ))
}

/// Moves carry all tables of a group. Those that stay sharded go along only where that is asked for.
pub(super) fn refuse_company(
    map: &MapSnapshot,
    groups: &[GroupId],
    leaving: &[TableName],
    (table, call): (&str, &str),
) -> Result<(), PgError> {
    let home = map.home().ok_or_else(no_shard)?;
    let is_spread = |id: &&GroupId| map.group(**id).is_some_and(|group| !is_home(group, home));
    let spread: Vec<&GroupId> = groups.iter().filter(is_spread).collect();
    let mut company: Vec<&str> = map
        .tables
        .values()
        .filter(|table| table.group().is_some_and(|group| spread.contains(&&group)))
        .filter(|table| !leaving.iter().any(|(schema, name)| (*schema == table.schema) && *name == table.name))
        .map(|table| table.name.as_str())
        .collect();
    if company.is_empty() {
        return Ok(());
    }
    company.sort_unstable();
    let names: Vec<String> = company.iter().map(|name| format!("\"{name}\"")).collect();
    Err(PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the rows of \"{table}\" cannot move to the home shard alone"),
    )
    .with_detail(format!(
        "Moves carry all tables of a colocation group: those of {} would move to the home shard \"{}\", too.",
        names.join(", "),
        home.name
    ))
    .with_hint(format!(
        "If it has the room: SELECT * FROM {call}. These tables stay sharded, and shardgate.redistribute_table() spreads them again."
    )))
}

/// Larger tables take longer, and the call is made again.
const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(50);
