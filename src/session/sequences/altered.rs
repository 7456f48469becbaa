//! ALTER SEQUENCE of sequences of the whole cluster: the session's side of [`Alteration`].
//!
//! PostgreSQL itself alters each shard's own sequence, which is used up otherwise: for the length of the statement it stands where the
//! cluster's does, so that all limits are compared, and refused, by PostgreSQL. What the home shard's has become is what the
//! transaction draws by, and what counts for everybody when it is committed. Rows that a shard would number by itself are refused
//! until then: shards have numbers of what is committed only.

use std::sync::Arc;

use super::restarts::not_after_restart;
use crate::backend::{Own, Stored};
use crate::catalog::{SequenceName, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::execute::numbers::{Alteration, read_state, under_way};
use crate::session::ddl::{every_shard, patient};
use crate::session::transaction::replay::hidden_statement;
use crate::session::{Failure, Session};
use crate::shardmap::{SchemaChangeId, SequencePlace, SequenceState, Shard};
use crate::sql::analysis::AlteredSequences;
use crate::sql::ddl::ddl_locks::TableLocks;
use crate::sql::rewrite::staging::Answer;

/// The transaction is open, and the change of the schema announced. Not cancel safe: what was closed stays so until its end.
pub(in crate::session) async fn alter_sequences(
    session: &mut Session,
    altered: &AlteredSequences,
    locks: Option<&TableLocks>,
    shards: &[Arc<Shard>],
    text: &str,
) -> Result<(), Failure> {
    for shard in shards {
        // Makes what a shard that was added by an earlier version lacks.
        session.commit_support(shard.id).await?;
    }
    if let Some(locks) = locks.filter(|_| shards.len() > 1) {
        Box::pin(patient::lock_ahead(session, shards, locks)).await?;
    }
    let home = session.home()?;
    if let Some(check) = &altered.check {
        run_aside(session, &home, check).await?;
    }
    let mut places = Vec::with_capacity(altered.sequences.len());
    for (sequence, _) in &altered.sequences {
        places.push(close_sequence(session, &home, sequence).await?);
    }
    let mut found = Vec::new();
    for shard in shards {
        let state = alter_on(session, shard, altered, &places, text).await?;
        if shard.is_home {
            found = state;
        } else if state != found {
            return Err(not_alike(altered, shard).into());
        }
    }
    let depth = session.transaction.savepoints.len();
    for ((sequence, _), state) in altered.sequences.iter().zip(found) {
        let alteration = Alteration { sequence: sequence.clone(), state, has_moved: false };
        session.transaction.alterations.push((depth, alteration));
    }
    session.transaction.dropped.extend(altered.dropped.iter().map(|sequence| (depth, sequence.clone())));
    Ok(())
}

/// What has become of the sequences there.
async fn alter_on(
    session: &mut Session,
    shard: &Arc<Shard>,
    altered: &AlteredSequences,
    places: &[SequencePlace],
    text: &str,
) -> Result<Vec<SequenceState>, Failure> {
    for ((sequence, statements), place) in altered.sequences.iter().zip(places) {
        let set_to = place.set_to.map_or_else(|| "NULL".to_owned(), |set_to| set_to.to_string());
        let show = format!("SELECT shardgate.show_numbers({}, {}, {set_to})", as_regclass(sequence), place.next);
        run_aside(session, shard, &show).await?;
        for statement in statements {
            run_aside(session, shard, statement).await?;
        }
    }
    every_shard::run_part(session, shard, altered.instead.as_deref().unwrap_or(text), shard.is_home).await?;
    let change = own_change(session)?;
    let mut found = Vec::with_capacity(altered.sequences.len());
    for (sequence, _) in &altered.sequences {
        let hide = format!(
            "SELECT n FROM pg_catalog.unnest(shardgate.hide_numbers({}, {})) WITH ORDINALITY s (n, place) ORDER BY place",
            as_regclass(sequence),
            change.0
        );
        let answer = run_aside(session, shard, &hide).await?;
        let told: Vec<String> = answer.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
        let state = read_state(&told);
        found.push(state.ok_or_else(|| PgError::internal(format!("unexpected answer of shard \"{}\"", shard.name)))?);
    }
    for sequence in &altered.dropped {
        run_aside(session, shard, &format!("DROP SEQUENCE {}", quoted_name(&sequence.0, &sequence.1))).await?;
    }
    Ok(found)
}

/// Where the sequence is, for this transaction alone from here on.
async fn close_sequence(session: &mut Session, home: &Arc<Shard>, sequence: &SequenceName) -> Result<SequencePlace, Failure> {
    if session.transaction.restart_of(sequence).is_some() {
        return Err(not_after_restart("ALTER SEQUENCE", &sequence.1).into());
    }
    if let Some(alteration) = session.transaction.alteration_of(sequence) {
        return Ok(alteration.state.place);
    }
    // Who may not alter it is told so, and who else alters it is waited for.
    run_aside(session, home, &format!("ALTER SEQUENCE {} RESTART", quoted_name(&sequence.0, &sequence.1))).await?;
    let change = hold_change(session).await?;
    if !session.transaction.closed.contains(sequence) {
        session.transaction.closed.push(sequence.clone());
    }
    if let Some(change) = &mut session.transaction.schema_change {
        change.closes_sequences = true;
    }
    let numbers = session.gateway.numbers.clone();
    let place = Box::pin(numbers.begin_alteration(&session.login.identity.user, sequence, change)).await?;
    session.gateway.commits.failpoints.reach("after_sequence_closed").await;
    Ok(place)
}

/// The transaction that goes on without what it has altered draws with all others again.
pub(in crate::session) async fn reopen_if_closed(session: &mut Session, sequence: &SequenceName) -> Result<(), PgError> {
    let Some(place) = session.transaction.closed.iter().position(|closed| closed == sequence) else { return Ok(()) };
    let change = own_change(session)?;
    session.gateway.numbers.reopen(sequence, change).await?;
    session.transaction.closed.swap_remove(place);
    Ok(())
}

/// PostgreSQL has given up the locks of a transaction that has failed, and has no savepoint to go back to.
pub(in crate::session) async fn reopen_after_failure(session: &mut Session) {
    while let Some(sequence) = session.transaction.closed.first().cloned() {
        if let Err(error) = reopen_if_closed(session, &sequence).await {
            // With the end of the change of the schema at the latest.
            tracing::debug!(%error, sequence = sequence.1, "a sequence is not open yet");
            return;
        }
    }
}

/// In the transaction, before the map knows of sequences that it makes or alters: as long as that lasts on the home shard, and is not
/// taken back, nobody closes the change, however long this proxy says nothing.
pub(in crate::session) async fn hold_change(session: &mut Session) -> Result<SchemaChangeId, Failure> {
    let (home, change) = (session.home()?, own_change(session)?);
    run_aside(session, &home, &under_way(change)).await?;
    Ok(change)
}

fn own_change(session: &Session) -> Result<SchemaChangeId, PgError> {
    let change =
        session.transaction.schema_change.as_ref().ok_or_else(|| PgError::internal("the change of the schema is not announced"))?;
    Ok(change.id())
}

/// Before the commit: how far the transaction has come with what it has altered.
pub(in crate::session) async fn note_alterations(session: &mut Session) -> Result<(), Failure> {
    let (home, change) = (session.home()?.id, own_change(session)?);
    let Some(index) = session.transaction.index_of(home) else { return Ok(()) };
    let notes: Vec<String> = session.transaction.last_alterations().map(|alteration| note(alteration, change)).collect();
    let participant = session.transaction.at(index)?;
    notes.iter().for_each(|note| hidden_statement(participant, &Own::Sequence.text(note)));
    session.sync(index).await
}

/// The transaction has ended: what it has altered counts for everybody.
pub(in crate::session) async fn settle_alterations(session: &mut Session, change: SchemaChangeId) -> Result<(), PgError> {
    let numbers = session.gateway.numbers.clone();
    for name in Box::pin(numbers.settle_alterations(&session.login.identity.user, &[change])).await? {
        session.warn(SqlState::WARNING, &format!("sequence \"{name}\" may not have been set back, its numbers go on"));
    }
    Ok(())
}

/// A statement that the client does not see, and its rows.
pub(in crate::session) async fn run_aside(session: &mut Session, shard: &Arc<Shard>, sql: &str) -> Result<Answer, Failure> {
    let kept = session.divert();
    let run = every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(sql), true).await;
    session.diverted(kept, run)
}

fn note(alteration: &Alteration, change: SchemaChangeId) -> String {
    let SequenceState { increment, minimum, maximum, place } = alteration.state;
    let set_to = place.set_to.unwrap_or(place.next);
    format!(
        "SELECT shardgate.note_alteration({}, {}, ARRAY[{increment}, {minimum}, {maximum}, {}, {set_to}]::numeric[])",
        as_regclass(&alteration.sequence),
        change.0,
        place.next
    )
}

fn as_regclass(sequence: &SequenceName) -> String {
    format!("{}::pg_catalog.regclass", quoted_literal(&quoted_name(&sequence.0, &sequence.1)))
}

/// Statements are read with what others know of the column.
pub(in crate::session) fn generated_in_a_block() -> PgError {
    PgError::unsupported(
        "SET GENERATED of a column of a distributed table is not supported inside a transaction block",
        "The later statements of the transaction would be read as if it had not been changed.",
        "Run it by itself, outside of a transaction block.",
    )
}

/// As others know the column, it is still numbered.
pub(in crate::session) fn drawn_after_drop(sequence: &str) -> PgError {
    PgError::unsupported(
        format!("rows that sequence \"{sequence}\" numbers are not supported in the transaction that drops it"),
        "The column has lost it, and the proxy follows when the transaction is committed.",
        "Commit first.",
    )
}

fn not_alike(altered: &AlteredSequences, shard: &Shard) -> PgError {
    let name = altered.sequences.first().map(|((_, name), _)| name.as_str()).unwrap_or_default();
    PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("sequence \"{name}\" is not the same on shard \"{}\"", shard.name),
    )
    .with_detail("Altered alike, it is another one there than on the home shard.")
    .with_hint("Make the shards alike; \"shardgate check\" lists all differences.")
}
