//! From an analysis and its target to a plan, or a refusal. Pure.
//!
//! The rules that bind a transaction over several shards stand here: whether a second shard may be written, and that a transaction
//! with one snapshot for all its statements stays on one shard, because several shards cannot share a snapshot.

use crate::config::{CrossShardIsolation, CrossShardWrites};
use crate::error::{PgError, SqlState};
use crate::routing::Target;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Effect, Scope};

/// How a statement runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    SingleShard(ShardId),
    /// The same statement on each, the answers merged as the analysis says.
    Scatter(Vec<ShardId>),
}

/// What the session's transaction allows.
#[derive(Clone, Debug)]
pub struct TransactionScope {
    pub is_open: bool,
    /// REPEATABLE READ or SERIALIZABLE.
    pub has_snapshot: bool,
    pub isolation: CrossShardIsolation,
    pub fan_out_max: usize,
    /// Shards on which the transaction has begun.
    pub participants: Vec<ShardId>,
    pub writer: Option<ShardId>,
    pub writes: CrossShardWrites,
}

/// A statement whose rows lie on several shards.
pub fn plan(analysis: &Analysis, target: &Target, scope: &TransactionScope) -> Result<Plan, PgError> {
    if let Some(shard) = target.shards.single() {
        return Ok(Plan::SingleShard(shard));
    }
    if let Scope::Placed { pushdown: Err(refusal), .. } = &analysis.scope {
        return Err(refusal.clone());
    }
    let shards: Vec<ShardId> = target.shards.iter().collect();
    match analysis.effect {
        Effect::Read => {}
        Effect::ReadLocking | Effect::Write => return Err(several_shards_written(shards.len())),
    }
    if let Err(refusal) = &analysis.merge {
        return Err(refusal.clone());
    }
    if scope.is_open && scope.has_snapshot && scope.isolation == CrossShardIsolation::Refuse {
        return Err(no_common_snapshot());
    }
    if shards.len() > scope.fan_out_max {
        let message = format!("statement needs {} shards, more than {}", shards.len(), scope.fan_out_max);
        return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
            .with_detail("The limit is cross_shard.fan_out_max.")
            .with_hint("Add a condition on the shard key, or raise the limit."));
    }
    Ok(Plan::Scatter(shards))
}

/// May a statement with this effect run on this shard, given where the transaction has been?
pub fn admit(effect: Effect, shard: ShardId, scope: &TransactionScope) -> Result<(), PgError> {
    let is_elsewhere = scope.participants.iter().any(|participant| *participant != shard);
    if is_elsewhere && scope.has_snapshot && scope.isolation == CrossShardIsolation::Refuse {
        return Err(no_common_snapshot());
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

fn several_shards_written(count: usize) -> PgError {
    PgError::unsupported(
        "cannot write or lock rows on several shards in one statement",
        format!("The statement is not limited to one shard: its keys lie on {count}."),
        "Add a condition on the shard key, or write the rows of each shard by a statement of its own.",
    )
}

fn no_common_snapshot() -> PgError {
    PgError::unsupported(
        "cannot use a second shard in a REPEATABLE READ or SERIALIZABLE transaction",
        "Several shards do not share one snapshot, so the isolation level could not be kept.",
        "Use READ COMMITTED, or set cross_shard.isolation = \"per_shard\" to accept one snapshot for each shard.",
    )
}
