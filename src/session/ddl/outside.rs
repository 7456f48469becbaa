//! What PostgreSQL does not allow in a transaction, shard by shard: indexes made concurrently, databases, VACUUM, REINDEX and
//! their kind.
//!
//! Nothing undoes what is done on one shard when another fails. So the statement can be repeated until it is done everywhere: an
//! index or a database that is there already is left alone, one that an attempt has left invalid is made anew, and the client is
//! told what is done and what is not. The other commands can be repeated as they are.

use std::sync::Arc;

use super::every_shard;
use crate::backend::{Own, ShardText, Stored};
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::ddl::own_database::databases;
use crate::sql::ddl::resumable::{Resumable, Thing, resumable, waits_for_transactions};
use crate::sql::ddl::same_index::is_same_index;

/// What it is about, on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Missing,
    Invalid,
    Valid,
    /// Another one has its name.
    Other,
}

/// What is to be done on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run,
    /// The remains of an earlier attempt go first.
    DropFirst,
    Skip,
}

pub(in crate::session) async fn run_outside(session: &mut Session, shards: &[Arc<Shard>], text: &str) -> Result<(), Failure> {
    let thing = resumable(text, &session.context);
    let steps = match &thing {
        None => vec![Step::Run; shards.len()],
        Some(thing) => {
            check_not_its_own(session, thing)?;
            let mut found = Vec::with_capacity(shards.len());
            for shard in shards {
                found.push(find(session, shard, thing, text).await?);
            }
            steps(&found, thing.is_drop)
        }
    };
    if waits_for_transactions(text) {
        check_nothing_in_doubt(session).await?;
    }
    let kind = thing.as_ref().map_or("", Resumable::kind);
    let named = databases(text);
    let mut done: Vec<&str> = Vec::new();
    for (place, (shard, step)) in shards.iter().zip(&steps).enumerate() {
        let text = &every_shard::naming_its_own(session, shard, text, &named)?;
        let ran = match step {
            Step::Skip => {
                let state = if thing.as_ref().is_some_and(|thing| thing.is_drop) { "gone" } else { "there" };
                tell(session, &format!("the {kind} is {state} already on shard \"{}\"", shard.name));
                Ok(())
            }
            Step::Run => every_shard::run_quietly(session, shard, text, done.is_empty()).await,
            Step::DropFirst => match drop_remains(session, shard, thing.as_ref(), text).await {
                Ok(()) => every_shard::run_quietly(session, shard, text, done.is_empty()).await,
                Err(failure) => Err(failure),
            },
        };
        if let Err(failure) = ran {
            let left = shards.get(place + 1..).unwrap_or_default();
            if place > 0 {
                session.warn(SqlState::WARNING, &report(&done, &shard.name, left));
            }
            return Err(failure);
        }
        if *step != Step::Skip {
            done.push(&shard.name);
        }
    }
    Ok(())
}

/// What a lost commit has left is finished first. What cannot be finished would be waited for without end, with an invalid index
/// when somebody gives up.
async fn check_nothing_in_doubt(session: &Session) -> Result<(), PgError> {
    let left = session.gateway.recovery.left_in_doubt().await;
    let Some(first) = left.first() else { return Ok(()) };
    Err(PgError::new(SqlState::OBJECT_IN_USE, "transactions over several shards are in doubt, and this statement waits for them")
        .with_detail(format!("They are {}, the first one \"{first}\": the shard that decides cannot be asked.", left.len()))
        .with_hint("Bring that shard back; SELECT * FROM shardgate.transactions shows them."))
}

async fn find(session: &mut Session, shard: &Arc<Shard>, thing: &Resumable, text: &str) -> Result<Found, Failure> {
    let rows = ask_shard(session, shard, &Own::Catalog.text(&thing.state_query())).await?;
    let Some(row) = rows.first() else { return Ok(Found::Missing) };
    let column = |place: usize| row.get(place).and_then(Option::as_deref);
    let is_valid = column(0) == Some(b"t");
    let printed = column(2).and_then(|printed| std::str::from_utf8(printed).ok());
    match printed {
        // PostgreSQL says which index cannot be dropped.
        Some(_) if thing.is_drop => {}
        Some(printed) if !is_same_index(text, printed) => return Ok(Found::Other),
        Some(_) if !is_valid && column(1) == Some(b"t") => {
            let error = PgError::new(SqlState::OBJECT_IN_USE, "this index is being created by another session");
            let error = error.with_detail(format!("It is on shard \"{}\".", shard.name));
            return Err(error.with_hint("Repeat the statement when the other one has ended.").into());
        }
        Some(_) | None => {}
    }
    Ok(if is_valid { Found::Valid } else { Found::Invalid })
}

async fn drop_remains(session: &mut Session, shard: &Arc<Shard>, thing: Option<&Resumable>, text: &str) -> Result<(), Failure> {
    let Some(thing) = thing else { return Ok(()) };
    // Somebody else may have finished it since.
    if find(session, shard, thing, text).await? != Found::Invalid {
        return Ok(());
    }
    tell(session, &format!("an invalid {} of an earlier attempt is dropped on shard \"{}\"", thing.kind(), shard.name));
    ask_shard(session, shard, &Stored::SchemaChange.text(&thing.removal())).await.map(drop)
}

/// The databases behind the one that the client is in are no others: they can be neither dropped nor made nor copied.
fn check_not_its_own(session: &Session, resumable: &Resumable) -> Result<(), PgError> {
    let Thing::Database { name, template } = &resumable.thing else { return Ok(()) };
    let snapshot = session.gateway.map.snapshot();
    let behind = snapshot.shards.iter().chain([&session.gateway.map_database]);
    let mut own: Vec<String> = behind.filter_map(|shard| Some(ShardUrl::parse(&shard.url).ok()?.database)).collect();
    own.push(session.gateway.config.database.name.clone());
    if own.contains(name) && resumable.is_drop {
        return Err(PgError::new(SqlState::OBJECT_IN_USE, "cannot drop the currently open database"));
    }
    if own.contains(name) {
        return Err(PgError::new(SqlState::DUPLICATE_DATABASE, format!("database \"{name}\" already exists")));
    }
    if template.as_ref().is_some_and(|template| own.contains(template)) {
        return Err(PgError::unsupported(
            "a sharded database cannot be the template of another",
            "Each server would copy its shard, or several.",
            "Use another template, or pg_dump the database.",
        ));
    }
    Ok(())
}

pub(in crate::session) async fn ask_shard(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &ShardText<'_>,
) -> Result<Vec<Vec<Option<bytes::Bytes>>>, Failure> {
    let index = session.join(shard.id).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    participant.connection.simple(text).await.map_err(|error| crate::session::settings::setting::refused(&shard.name, error))
}

fn tell(session: &mut Session, message: &str) {
    let notice = PgError { severity: crate::error::Severity::Notice, ..PgError::warning(SqlState::SUCCESSFUL_COMPLETION, message) };
    crate::wire::originate::error(&mut session.client.output, &notice);
}

/// Where every shard is alike the statement runs everywhere: PostgreSQL says itself that the index is there, or is not.
fn steps(found: &[Found], is_drop: bool) -> Vec<Step> {
    let is_done = |found: &Found| if is_drop { *found == Found::Missing } else { *found == Found::Valid };
    // PostgreSQL refuses it on the first shard where another one has the name.
    let is_nothing_left = found.iter().all(is_done) || found.contains(&Found::Other);
    let step = |found: &Found| match found {
        _ if is_nothing_left => Step::Run,
        found if is_done(found) => Step::Skip,
        Found::Invalid if !is_drop => Step::DropFirst,
        Found::Missing | Found::Invalid | Found::Valid | Found::Other => Step::Run,
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
