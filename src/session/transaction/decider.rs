//! The one shard of a transaction that cannot be prepared: it has sent notifications, has used temporary objects or holds a cursor
//! beyond the transaction.
//!
//! In a commit on several shards such a shard decides, by its own commit, when the others are prepared. So there can be one in a
//! transaction: the statement that would make a second one is refused, and a statement that would do it on several shards at once.

use super::Transaction;
use crate::error::{PgError, capitalised};
use crate::session::gateway::{Gateway, MAP_DATABASE};
use crate::session::route::Route;
use crate::session::writes::write::WritingKind;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command};

/// Which shard, and what was done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Decider {
    pub shard: ShardId,
    why: String,
}

impl Transaction {
    /// Before the statement runs where it was routed to.
    /// `in_pipeline`: it may be prepared with what comes after it.
    pub fn check_decider(
        &mut self,
        statement: &Analysis,
        route: &Route,
        gateway: &Gateway,
        in_pipeline: bool,
    ) -> Result<(), PgError> {
        if let (Command::DeclareCursor { is_hold: true, .. }, Some(shard)) = (&statement.command, route.shard()) {
            self.decide_on(shard, HELD_CURSOR, gateway, in_pipeline)?;
        }
        let Some(what) = &statement.notifies else { return Ok(()) };
        match route {
            Route::Shard(reach) => match reach.single() {
                Some(shard) => self.decide_on(shard, &format!("{what} sends notifications"), gateway, in_pipeline),
                None => Err(notifies_on_several(what)),
            },
            // What it is made into is routed by itself.
            Route::Write(writing) if matches!(writing.kind, WritingKind::Staged(_) | WritingKind::Moved(_)) => Ok(()),
            Route::Write(writing) => match *writing.shards() {
                [shard] => self.decide_on(shard, &format!("{what} sends notifications"), gateway, in_pipeline),
                _ => Err(notifies_on_several(what)),
            },
            Route::Scatter(_) | Route::Gather(_) => Err(notifies_on_several(what)),
        }
    }

    /// From here on this shard cannot be prepared. Outside of a transaction nothing will be.
    pub fn decide_on(&mut self, shard: ShardId, why: &str, gateway: &Gateway, in_pipeline: bool) -> Result<(), PgError> {
        if shard == MAP_DATABASE || !(self.is_open() || in_pipeline) {
            return Ok(());
        }
        match &self.decider {
            Some(decider) if decider.shard == shard => Ok(()),
            Some(decider) => Err(second_decider(decider, shard, why, gateway)),
            None => {
                self.decider = Some(Decider { shard, why: why.to_owned() });
                Ok(())
            }
        }
    }

    pub fn decides(&self, shard: ShardId) -> bool {
        self.decider.as_ref().is_some_and(|decider| decider.shard == shard)
    }
}

fn second_decider(first: &Decider, shard: ShardId, why: &str, gateway: &Gateway) -> PgError {
    let name = |shard: ShardId| gateway.shard(shard).map_or_else(|_| "?".to_owned(), |shard| shard.name.clone());
    PgError::unsupported(
        "cannot do on a second shard what PostgreSQL cannot prepare",
        format!(
            "On shard \"{}\" {why}, and in the same transaction on shard \"{}\" {}: only one shard can commit without being prepared.",
            name(shard),
            name(first.shard),
            first.why,
        ),
        "Commit before it, or write the rows of each shard in a transaction of its own.",
    )
}

fn notifies_on_several(what: &str) -> PgError {
    PgError::unsupported(
        "a statement that sends notifications cannot run on several shards",
        format!(
            "{} sends notifications, each shard by itself, and PostgreSQL cannot prepare a transaction that has.",
            capitalised(what)
        ),
        "Restrict the statement to one shard key, or to a row at a time, and commit after each.",
    )
}

const HELD_CURSOR: &str = "a cursor WITH HOLD is declared";
/// Why the home shard decides where temporary tables are made or dropped.
pub(in crate::session) const TEMPORARY_OBJECTS: &str = "temporary objects are used";
