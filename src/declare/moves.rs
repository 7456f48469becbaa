//! Moves that are started in SQL: `move_partition`, `move_partitions`, `isolate_key`, `rebalance`, and the names that Citus users know.
//!
//! What is written here is a plan; a proxy does it. What a rebalancing moves is found out by a [`Rebalancer`], which looks at the
//! shards: this module knows only that there is one.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::arguments::Arguments;
use super::keys::{find, unknown_partition};
use super::{Caller, Control};
use crate::config::{Host, ShardUrl};
use crate::error::{PgError, SqlState};
use crate::shardmap::{Emptied, GroupId, Isolation, MapSnapshot, MoveOptions, MoveState, PartitionId, Shard};

/// Plans the moves that make the shards even. Cuts partitions where that is needed.
pub type Rebalancer = Box<dyn Fn(Rebalancing) -> BoxFuture<'static, Result<Vec<Started>, PgError>> + Send + Sync>;

/// What is to be made even.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebalancing {
    /// In the history of the map.
    pub actor: String,
    /// Only of this colocation group.
    pub group: Option<GroupId>,
    pub by: By,
    /// How far a shard may be above its fair share, as a part of it.
    pub threshold: f64,
    pub emptied: Option<Emptied>,
    /// Only to be shown.
    pub is_dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Bytes,
    Rows,
    Count,
}

/// A move that was planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// `None` of a dry run.
    pub move_id: Option<i32>,
    pub source: String,
    pub target: String,
    pub partitions: usize,
    /// `None`: an earlier call has planned it, and it has not been measured yet.
    pub bytes: Option<u64>,
    /// As the statistics of the shards have it.
    pub rows: Option<u64>,
    pub expected_seconds: Option<f64>,
    /// As it was last seen. `None` of a dry run.
    pub state: Option<MoveState>,
}

/// The answer is the move's number.
pub(super) async fn plan(control: &Control, user: &str, partitions: &[i32], target: &str) -> Result<i32, PgError> {
    let partitions: Vec<PartitionId> = partitions.iter().copied().map(PartitionId).collect();
    let planned = control.map.store().plan_move(user, &partitions, target, &control.move_options(), None).await?;
    Ok(planned.0)
}

/// The same for one key, which gets a partition of its own first; no number where it is on that shard already.
pub(super) async fn isolate(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<Option<i32>, PgError> {
    let table = find(control, caller, arguments.text("table_name")?).await?;
    let isolation = Isolation { table: table.name(), key: arguments.text("key")?, shard: arguments.text("shard")? };
    let planned = control.map.store().plan_isolation(&caller.user, isolation, &control.move_options(), None).await?;
    control.reached().await?;
    Ok(planned.map(|id| id.0))
}

/// Moves a partition that is empty, or nearly so, and waits for it. Where it takes longer it goes on by itself.
pub(super) async fn carry(control: &Control, user: &str, partition: PartitionId, shard: &str) -> Result<(), PgError> {
    let map = control.fresh_snapshot().await?;
    let is_there = map.partition(partition).and_then(|(_, found)| map.shard(found.shard)).is_some_and(|found| found.name == shard);
    if is_there {
        return Ok(());
    }
    // What is empty needs no way back.
    let how = MoveOptions { grace_ms: 0, ..control.move_options() };
    let store = control.map.store();
    let id = store.plan_move(user, &[partition], shard, &how, None).await?;
    let deadline = Instant::now() + CARRY_PATIENCE;
    loop {
        let now = store.move_by_id(id).await?;
        let Some(now) = now.filter(|now| now.state != MoveState::Done) else { break };
        let pending = || format!("move {} of partition {} to shard \"{shard}\"", id.0, partition.0);
        let reason = now.error.unwrap_or_default();
        if matches!(now.state, MoveState::Aborted | MoveState::Failed) {
            return Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("{} has not been done", pending()))
                .with_detail(reason)
                .with_hint("The partition was split and lies where it was. Move it with shardgate.move_partition()."));
        }
        if Instant::now() > deadline {
            return Err(PgError::new(SqlState::OBJECT_IN_USE, format!("{} is still under way", pending()))
                .with_detail(reason)
                .with_hint("The partition was split, and the move goes on: see shardgate.moves."));
        }
        sleep(CARRY_INTERVAL).await;
    }
    control.reached().await
}

/// One row a move; none where the shards are even enough.
pub(super) async fn rebalance(
    control: &Control,
    caller: &Caller,
    arguments: &Arguments,
) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let by = match arguments.text("by")? {
        "bytes" => By::Bytes,
        "rows" => By::Rows,
        "count" => By::Count,
        "load" => {
            return Err(PgError::unsupported(
                "rebalancing by load is not supported",
                "Statements are not counted by partition.",
                "Rebalance by bytes, rows or count.",
            ));
        }
        other => {
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid value for by: \"{other}\""))
                .with_hint("Available values: bytes, rows, count."));
        }
    };
    let group = match arguments.optional_text("table_name")? {
        Some(table) => Some(group_of(control, caller, table).await?),
        None => None,
    };
    let wanted = Rebalancing {
        actor: caller.user.clone(),
        group,
        by,
        threshold: arguments.float("threshold")?,
        emptied: arguments.optional_text("drain")?.map(|drained| Emptied::Shard(drained.to_owned())),
        is_dry_run: arguments.boolean("dry_run")?,
    };
    Ok(start(control, wanted).await?.into_iter().map(row).collect())
}

pub(super) fn row(started: Started) -> Vec<Option<String>> {
    vec![
        started.move_id.map(|id| id.to_string()),
        Some(started.source),
        Some(started.target),
        Some(started.partitions.to_string()),
        started.rows.map(|rows| rows.to_string()),
        started.bytes.map(|bytes| bytes.to_string()),
        started.expected_seconds.map(|seconds| seconds.to_string()),
        started.state.map(|state| state.name().to_owned()),
    ]
}

pub(super) async fn group_of(control: &Control, caller: &Caller, table: &str) -> Result<GroupId, PgError> {
    Ok(find(control, caller, table).await?.group.id)
}

/// `rebalance_table_shards(relation, threshold)`.
pub(super) async fn rebalance_table(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let group = match arguments.optional_text("relation")? {
        Some(table) => Some(group_of(control, caller, table).await?),
        None => None,
    };
    start(control, spread(caller, group, arguments.float("threshold")?, false)).await.map(drop)
}

pub(super) fn spread(caller: &Caller, group: Option<GroupId>, threshold: f64, is_dry_run: bool) -> Rebalancing {
    Rebalancing { actor: caller.user.clone(), group, by: By::Bytes, threshold, emptied: None, is_dry_run }
}

pub(super) async fn start(control: &Control, wanted: Rebalancing) -> Result<Vec<Started>, PgError> {
    if !(0.0..=MAX_THRESHOLD).contains(&wanted.threshold) {
        return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("threshold must be between 0 and {MAX_THRESHOLD}"))
            .with_hint("It is how far a shard may be above its fair share: 0.1 is a tenth."));
    }
    let rebalancer = control.rebalancer.as_ref().ok_or_else(|| {
        PgError::unsupported("no moves are driven here", "This process is no proxy.", "Use shard-rebalance plan and apply.")
    })?;
    let started = rebalancer(wanted).await?;
    control.reached().await?;
    Ok(started)
}

/// `citus_move_shard_placement(shard_id, source host, port, target host, port)`: a Citus shard is a partition, a node the shard at
/// this address.
pub(super) async fn move_placement(control: &Control, user: &str, arguments: &Arguments) -> Result<(), PgError> {
    let map = control.fresh_snapshot().await?;
    let partition = PartitionId(arguments.integer("shard_id")?);
    let (_, found) = map.partition(partition).ok_or_else(|| unknown_partition(partition))?;
    let source = shard_at(&map, arguments.text("source_node_name")?, arguments.integer("source_node_port")?)?;
    let target = shard_at(&map, arguments.text("target_node_name")?, arguments.integer("target_node_port")?)?;
    if found.shard != source.id {
        let owner = map.shard(found.shard).map(|shard| shard.name.clone()).unwrap_or_default();
        return Err(PgError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("partition {} is not on shard \"{}\"", partition.0, source.name),
        )
        .with_detail(format!("It is on shard \"{owner}\".")));
    }
    plan(control, user, &[partition.0], &target.name).await.map(drop)
}

/// By the address in its URL, or by its name.
fn shard_at<'m>(map: &'m MapSnapshot, host: &str, port: i32) -> Result<&'m Shard, PgError> {
    let is_meant = |known: &Host| known.name == host && i32::from(known.port) == port;
    let is_at = |shard: &Shard| ShardUrl::parse(&shard.url).is_ok_and(|url| url.hosts.iter().any(is_meant));
    let mut there = map.shards.iter().filter(|shard| is_at(shard) || shard.name == host);
    match (there.next(), there.next()) {
        (Some(shard), None) => Ok(shard),
        (Some(_), Some(_)) => Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("several shards are at {host}:{port}"))
            .with_hint("Give the shard's name in place of the host, or use shardgate.move_partition(partition, to_shard).")),
        (None, _) => Err(PgError::new(SqlState::UNDEFINED_OBJECT, format!("no shard is at {host}:{port}"))
            .with_hint("SELECT name FROM shardgate.shards lists the shards; a name may stand in place of the host.")),
    }
}

/// For a partition without rows: a second or two, or the time between two subscriptions of one server.
const CARRY_PATIENCE: Duration = Duration::from_secs(30);
const CARRY_INTERVAL: Duration = Duration::from_millis(50);

/// More than this is no threshold.
const MAX_THRESHOLD: f64 = 100.0;
