//! What PostgreSQL does not allow in a transaction, shard by shard: indexes made concurrently, VACUUM, REINDEX and their kind.
//!
//! Nothing undoes what is done on one shard when another fails. So the statement can be repeated until it is done everywhere: an
//! index that a shard has already is left alone, one that an attempt has left invalid is made anew, and the client is told what
//! is done and what is not. The other commands can be repeated as they are.

use std::sync::Arc;

use super::{Failure, Session};
use crate::catalog::quoted_literal;
use crate::error::{PgError, SqlState};
use crate::shardmap::Shard;
use crate::sql::concurrent_index::{ConcurrentIndex, concurrent_index};
use crate::sql::own_database::databases;

/// An index on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Missing,
    Invalid,
    Valid,
}

/// What is to be done on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run,
    /// The remains of an earlier attempt go first.
    DropFirst,
    Skip,
}

impl Session {
    pub(super) async fn run_outside(&mut self, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
        let index = concurrent_index(text, &self.context);
        let steps = match &index {
            None => vec![Step::Run; shards.len()],
            Some(index) => {
                let mut found = Vec::with_capacity(shards.len());
                for shard in shards {
                    found.push(self.find_index(shard, index).await?);
                }
                steps(&found, index.is_drop)
            }
        };
        let named = databases(text);
        let mut done: Vec<&str> = Vec::new();
        for (place, (shard, step)) in shards.iter().zip(&steps).enumerate() {
            let text = &self.naming_its_own(shard, text, &named)?;
            let ran = match step {
                Step::Skip => {
                    let state = if index.as_ref().is_some_and(|index| index.is_drop) { "gone" } else { "there" };
                    self.tell(&format!("the index is {state} already on shard \"{}\"", shard.name));
                    Ok(())
                }
                Step::Run => self.run_quietly(shard, text, done.is_empty()).await,
                Step::DropFirst => match self.drop_remains(shard, index.as_ref()).await {
                    Ok(()) => self.run_quietly(shard, text, done.is_empty()).await,
                    Err(failure) => Err(failure),
                },
            };
            if let Err(failure) = ran {
                let left = shards.get(place + 1..).unwrap_or_default();
                if place > 0 {
                    self.warn(SqlState::WARNING, &report(&done, &shard.name, left));
                }
                return Err(failure);
            }
            if *step != Step::Skip {
                done.push(&shard.name);
            }
        }
        Ok(())
    }

    async fn find_index(&mut self, shard: &Arc<Shard>, index: &ConcurrentIndex) -> Result<Found, Failure> {
        let name = quoted_literal(&index.name);
        let sql = format!("SELECT i.indisvalid FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass({name})");
        let rows = self.ask_shard(shard, &sql).await?;
        let is_valid = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
        Ok(match is_valid {
            None => Found::Missing,
            Some(b"t") => Found::Valid,
            Some(_) => Found::Invalid,
        })
    }

    async fn drop_remains(&mut self, shard: &Arc<Shard>, index: Option<&ConcurrentIndex>) -> Result<(), Failure> {
        let Some(index) = index else { return Ok(()) };
        self.tell(&format!("an invalid index of an earlier attempt is dropped on shard \"{}\"", shard.name));
        self.ask_shard(shard, &format!("DROP INDEX CONCURRENTLY IF EXISTS {}", index.name)).await.map(drop)
    }

    pub(super) async fn ask_shard(&mut self, shard: &Arc<Shard>, sql: &str) -> Result<Vec<Vec<Option<bytes::Bytes>>>, Failure> {
        let index = self.join(shard.id).await?;
        self.sync(index).await?;
        let Some(participant) = self.participants.get_mut(index) else {
            return Err(PgError::internal("participant is gone").into());
        };
        participant.connection.simple(sql).await.map_err(|error| super::setting::refused(&shard.name, error))
    }

    fn tell(&mut self, message: &str) {
        let notice =
            PgError { severity: crate::error::Severity::Notice, ..PgError::warning(SqlState::SUCCESSFUL_COMPLETION, message) };
        crate::wire::originate::error(&mut self.client.output, &notice);
    }
}

/// Where every shard is alike the statement runs everywhere: PostgreSQL says itself that the index is there, or is not.
fn steps(found: &[Found], is_drop: bool) -> Vec<Step> {
    let is_done = |found: &Found| if is_drop { *found == Found::Missing } else { *found == Found::Valid };
    let is_nothing_left = found.iter().all(is_done);
    let step = |found: &Found| match found {
        _ if is_nothing_left => Step::Run,
        found if is_done(found) => Step::Skip,
        Found::Invalid if !is_drop => Step::DropFirst,
        Found::Missing | Found::Invalid | Found::Valid => Step::Run,
    };
    found.iter().map(step).collect()
}

fn report(done: &[&str], failed: &str, left: &[Arc<Shard>]) -> String {
    let done = if done.is_empty() { "no shard".to_owned() } else { done.join(", ") };
    let left: Vec<&str> = left.iter().map(|shard| shard.name.as_str()).collect();
    let left = if left.is_empty() { String::new() } else { format!(", not begun on {}", left.join(", ")) };
    format!("done on {done}, failed on {failed}{left}; repeat the statement to go on")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Found::{Invalid, Missing, Valid};

    #[test]
    fn what_is_done_is_left_and_what_is_broken_is_made_anew() {
        assert_eq!(steps(&[Missing, Missing], false), [Step::Run, Step::Run]);
        assert_eq!(steps(&[Valid, Invalid, Missing], false), [Step::Skip, Step::DropFirst, Step::Run]);
        assert_eq!(steps(&[Valid, Valid], false), [Step::Run, Step::Run], "PostgreSQL says that it exists");
        assert_eq!(steps(&[Missing, Valid, Invalid], true), [Step::Skip, Step::Run, Step::Run]);
        assert_eq!(steps(&[Missing, Missing], true), [Step::Run, Step::Run], "PostgreSQL says that it does not exist");
    }
}
