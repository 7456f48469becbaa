//! From an analysis and its target to a plan, or a refusal. Pure.
//!
//! The ladder for reads, best first: one shard; several shards whose answers the proxy merges exactly; PostgreSQL computes over
//! gathered rows; refused. This is the only place that chooses between them.
//!
//! The rules that bind a transaction over several shards stand here: whether a second shard may be written, and that a
//! transaction with one snapshot for all its statements stays on one shard, because several shards cannot share a snapshot; one
//! that only reads may have snapshots that were taken together.

use crate::config::{CrossShardIsolation, CrossShardWrites};
use crate::error::{PgError, SqlState};
use crate::routing::Reach;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Effect, QueryKind, Scope};
use crate::sql::gather::{HomeTables, Recipe};
use crate::sql::rewrite::clock;

/// How a statement runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    SingleShard,
    /// The same statement on each shard of its reach, the answers merged as the analysis says.
    Scatter,
    /// The same statement on each, which writes its own rows.
    Write,
    /// Rows of VALUES, each on its shard.
    Split,
    /// The rows of these are brought together, and PostgreSQL runs the statement over them.
    Gather(Gathering),
}

/// What a statement over gathered rows needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathering {
    pub recipe: Recipe,
    /// Every shard that may have rows of the sharded tables.
    pub reach: Reach,
}

/// What the session's transaction allows.
#[derive(Clone, Debug)]
pub struct TransactionScope {
    pub is_open: bool,
    /// A transaction block, not only statements that are waiting for their Sync.
    pub is_block: bool,
    /// REPEATABLE READ or SERIALIZABLE.
    pub has_snapshot: bool,
    /// Its snapshots were taken on all shards while no commit over several of them could be in between.
    pub has_common_snapshot: bool,
    /// SERIALIZABLE READ ONLY DEFERRABLE.
    pub is_deferrable: bool,
    pub isolation: CrossShardIsolation,
    pub fan_out_max: usize,
    /// Shards on which the transaction has begun.
    pub participants: Vec<ShardId>,
    pub writer: Option<ShardId>,
    /// The transaction has written or locked tables somewhere: there nobody else can read for it.
    pub holds_any: bool,
    /// The same on the home shard.
    pub holds_home: bool,
    pub writes: CrossShardWrites,
    /// The transaction has made or changed functions, types or the like.
    pub has_other_code: bool,
}

/// A statement whose rows lie on several shards. `recipe` says how it could run over gathered rows; asked only where the answers
/// cannot be merged.
pub fn plan(
    analysis: &Analysis,
    reach: &Reach,
    scope: &TransactionScope,
    recipe: impl FnOnce(HomeTables) -> Result<Recipe, PgError>,
) -> Result<Plan, PgError> {
    if reach.single().is_some() {
        return Ok(Plan::SingleShard);
    }
    let shards = reach.shards();
    match check_merge(analysis, shards.len()) {
        Ok(()) if analysis.effect == Effect::Write => {
            admit_several(shards, scope)?;
            Ok(if analysis.split_rows.is_some() { Plan::Split } else { Plan::Write })
        }
        Ok(()) => {
            if scope.is_open {
                check_snapshots(scope)?;
            }
            check_fan_out(shards, scope)?;
            Ok(Plan::Scatter)
        }
        Err(_) if may_gather(analysis) => gather(reach.clone(), scope, recipe).map(Plan::Gather),
        Err(refusal) => Err(refusal),
    }
}

/// The proxy can merge the shards' answers exactly.
fn check_merge(analysis: &Analysis, shard_count: usize) -> Result<(), PgError> {
    if let Scope::Placed { pushdown: Err(refusal), .. } = &analysis.scope {
        return Err(refusal.clone());
    }
    match analysis.effect {
        Effect::Read => {}
        // Which rows are its own each shard knows; rows of VALUES are split before.
        Effect::Write
            if matches!(
                analysis.command,
                Command::Query(QueryKind::Insert | QueryKind::Update | QueryKind::Delete | QueryKind::Merge)
            ) => {}
        // Where rows can be locked on several shards, the merge says so.
        Effect::ReadLocking if matches!(analysis.command, Command::Query(QueryKind::Select)) => {}
        Effect::ReadLocking | Effect::Write => return Err(several_shards_written(shard_count)),
    }
    match &analysis.merge {
        Ok(merge) if merge.locking.is_none() && analysis.effect == Effect::ReadLocking => Err(several_shards_written(shard_count)),
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal.clone()),
    }
}

fn may_gather(analysis: &Analysis) -> bool {
    analysis.effect == Effect::Read && matches!(analysis.command, Command::Query(QueryKind::Select))
}

/// PostgreSQL computes. Rows come from connections of their own, but where the transaction has written or locked tables, or has a
/// snapshot on each shard: there they come from its own connections.
pub fn gather(
    reach: Reach,
    scope: &TransactionScope,
    recipe: impl FnOnce(HomeTables) -> Result<Recipe, PgError>,
) -> Result<Gathering, PgError> {
    let has_snapshots = scope.is_open && scope.has_snapshot;
    if scope.is_open {
        check_snapshots(scope)?;
    }
    if scope.has_other_code {
        return Err(PgError::unsupported(
            "this statement is not supported in a transaction that has changed functions or types",
            "It needs rows of several shards, which another connection brings together, and that does not see the change.",
            "Commit first.",
        ));
    }
    if scope.writer.is_some() && !scope.is_block {
        return Err(PgError::unsupported(
            "this statement is not supported after a write in the same pipeline",
            "It needs rows of several shards, and what was written is not committed before the pipeline ends.",
            "Send Sync first, or use a transaction block.",
        ));
    }
    check_fan_out(reach.shards(), scope)?;
    let home = match (has_snapshots, scope.holds_home) {
        (true, _) => HomeTables::OfSnapshot,
        (false, true) => HomeTables::Shipped,
        (false, false) => HomeTables::InPlace,
    };
    let mut recipe = recipe(home)?;
    if scope.holds_any {
        // Some of the rows come from the transaction's own connections, by one query each, where an error would be the client's.
        recipe = recipe.into_plain();
    }
    if scope.is_open && recipe.has_clock && !clock::is_movable(&recipe.text, None) {
        return Err(PgError::unsupported(
            "the transaction's time is not supported in this statement inside a transaction block",
            "It needs rows of several shards, which are brought together in a transaction of its own, with another time, and where it reads the time another cannot be put in its place.",
            "Pass the time as a parameter, or run the statement outside of the transaction block.",
        ));
    }
    Ok(Gathering { recipe, reach })
}

fn check_fan_out(shards: &[ShardId], scope: &TransactionScope) -> Result<(), PgError> {
    if shards.len() <= scope.fan_out_max {
        return Ok(());
    }
    let message = format!("statement needs {} shards, more than {}", shards.len(), scope.fan_out_max);
    Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
        .with_detail("The limit is cross_shard.fan_out_max.")
        .with_hint("Add a condition on the shard key, or raise the limit."))
}

/// May a statement with this effect run on this shard, given where the transaction has been?
pub fn admit(effect: Effect, shard: ShardId, scope: &TransactionScope) -> Result<(), PgError> {
    let is_elsewhere = scope.participants.iter().any(|participant| *participant != shard);
    if is_elsewhere {
        check_snapshots(scope)?;
    }
    let is_second_writer = effect == Effect::Write && scope.writer.is_some_and(|writer| writer != shard);
    match scope.writes {
        CrossShardWrites::Refuse if is_second_writer => Err(PgError::unsupported(
            "cannot write on a second shard in one transaction",
            "This transaction has written on another shard already, and cross_shard.writes is \"refuse\".",
            "Commit first, or use keys of one shard in a transaction; cross_shard.writes = \"2pc\" commits on several.",
        )),
        CrossShardWrites::Refuse | CrossShardWrites::TwoPhaseCommit => Ok(()),
    }
}

/// May one statement write on all these shards?
pub fn admit_several(shards: &[ShardId], scope: &TransactionScope) -> Result<(), PgError> {
    check_snapshots(scope)?;
    match scope.writes {
        CrossShardWrites::TwoPhaseCommit => check_fan_out(shards, scope),
        CrossShardWrites::Refuse => Err(PgError::unsupported(
            "cannot write on several shards in one statement",
            "cross_shard.writes is \"refuse\".",
            "Set cross_shard.writes = \"2pc\", or write the rows of each shard by a statement of its own.",
        )),
    }
}

/// May tables be locked on all these shards?
pub fn admit_locks(shards: &[ShardId], scope: &TransactionScope) -> Result<(), PgError> {
    check_snapshots(scope)?;
    check_fan_out(shards, scope)
}

/// May the transaction have a snapshot on each of several shards?
fn check_snapshots(scope: &TransactionScope) -> Result<(), PgError> {
    match scope.isolation {
        CrossShardIsolation::Refuse if scope.has_snapshot && !scope.has_common_snapshot => Err(no_common_snapshot()),
        CrossShardIsolation::PerShard if scope.is_deferrable => Err(PgError::unsupported(
            "cannot use a second shard in a SERIALIZABLE READ ONLY DEFERRABLE transaction",
            "Each shard would wait for a safe snapshot of its own, and together they would not be one.",
            "Leave out DEFERRABLE, or read each shard in a transaction of its own.",
        )),
        CrossShardIsolation::Refuse | CrossShardIsolation::PerShard => Ok(()),
    }
}

fn several_shards_written(count: usize) -> PgError {
    PgError::unsupported(
        "cannot write or lock rows on several shards in one statement",
        format!("The statement is not limited to one shard: its keys lie on {count}."),
        "Add a condition on the shard key, or write the rows of each shard by a statement of its own.",
    )
}

/// A shard that has not taken part cannot see what the transaction has seen.
pub fn no_common_snapshot() -> PgError {
    PgError::unsupported(
        "cannot use a second shard in a REPEATABLE READ or SERIALIZABLE transaction",
        "Several shards do not share one snapshot, so the isolation level could not be kept.",
        "Use READ COMMITTED; where nothing is written, REPEATABLE READ READ ONLY, and begin with a statement over several shards; or set cross_shard.isolation = \"per_shard\" to accept one snapshot for each shard.",
    )
}
