//! Routing by hand: `SET shardgate.shard`, or a comment in the text, names the shard of a statement.
//!
//! What reads sees the rows that are stored there, copies of a move included. What writes rows of sharded tables is let through where
//! its keys are proven to be that shard's, as without the hint: a row on another shard than its key's is one that nobody finds.

use super::route::Route;
use super::{Failure, Session};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Reach};
use crate::sql::analysis::{Analysis, Command, CopyDirection, Effect, Part, Scope};

impl Session {
    /// `SET shardgate.shard`, or the comment in the text.
    pub(super) fn hinted(&self, statement: &Analysis) -> Result<Option<Reach>, PgError> {
        let Some(name) = statement.shard_hint.as_deref().or_else(|| self.effective("shardgate.shard")) else { return Ok(None) };
        if name.is_empty() {
            return Ok(None);
        }
        Reach::named(name, self.gateway.map.load().snapshot()).map(Some).ok_or_else(|| {
            PgError::new(SqlState::NO_SUCH_SHARD, format!("there is no shard \"{name}\""))
                .with_detail("It is named by the routing hint of this statement or by the setting shardgate.shard.")
                .with_hint("SELECT name FROM shardgate.shards lists them; RESET shardgate.shard ends the hint.")
        })
    }

    /// Under a hint a statement runs as it is on the shard that is named. What writes rows of sharded tables has to be restricted to keys
    /// whose rows belong there.
    pub(super) async fn route_hinted(&mut self, statement: &Analysis, named: Reach, inputs: &Inputs<'_>) -> Result<Route, Failure> {
        if !writes_rows(statement) {
            return self.admit(statement, named).await;
        }
        let parts = match &statement.scope {
            Scope::Placed { parts, .. } if parts.iter().any(|part| matches!(part, Part::Sharded { .. })) => parts,
            Scope::Refused(refusal) => return Err(not_of_hinted(&named, sentence(&refusal.message)).into()),
            _ => return self.admit(statement, named).await,
        };
        let target = self.resolve(statement, parts, inputs).await?;
        let reach = Reach::of(&target, parts);
        if reach.single() != named.single() {
            let map = reach.map();
            let shards = reach.shards().iter().filter_map(|shard| map.shard(*shard)).map(|shard| format!("\"{}\"", shard.name));
            let why = format!("Its rows belong, or may belong, on {}.", shards.collect::<Vec<_>>().join(", "));
            return Err(not_of_hinted(&named, why).into());
        }
        // A row whose key changes is written where it goes, while rows move.
        match self.route_key_update(statement, parts, inputs)? {
            Some(_) => Err(not_of_hinted(&named, "It changes shard keys while rows are moved.").into()),
            None => self.admit(statement, reach).await,
        }
    }
}

fn writes_rows(statement: &Analysis) -> bool {
    let may_write = matches!(
        statement.command,
        Command::Query(_) | Command::Copy(CopyDirection::FromStdin | CopyDirection::Server) | Command::Call | Command::Do
    );
    may_write && statement.effect == Effect::Write
}

fn not_of_hinted(named: &Reach, why: impl Into<String>) -> PgError {
    let map = named.map();
    let shard = named.single().and_then(|shard| map.shard(shard)).map(|shard| shard.name.clone()).unwrap_or_default();
    PgError::unsupported(
        format!("cannot write rows on shard \"{shard}\" that may belong on another one"),
        why,
        "Restrict the statement to keys of that shard, or RESET shardgate.shard, so that each row is written where it belongs.",
    )
}

/// An error's message as a DETAIL.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}
