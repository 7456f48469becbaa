//! TRUNCATE ... RESTART IDENTITY of tables that the whole cluster numbers: the session's side of [`Restart`].
//!
//! The shards run it as it is, so that their own checks and the sequences of home tables are PostgreSQL's; what it has set back
//! there is used up again in the same transaction. The transaction's rows are numbered from the start, by the proxy alone: what a
//! shard would number by itself is refused until the transaction has ended.

use crate::backend::Own;
use crate::catalog::{Oid, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::execute::numbers::Restart;
use crate::session::route::Route;
use crate::session::transaction::Transaction;
use crate::session::transaction::replay::hidden_statement;
use crate::session::writes::write;
use crate::session::writes::write::{Request, Shown, Writing, WritingKind};
use crate::session::{Failure, Session};
use crate::sql::analysis::{Analysis, Command, Numbers};

/// As [`write::write_on`], for what may be a TRUNCATE that restarts sequences.
pub(in crate::session) async fn write_restarting(
    session: &mut Session,
    command: &Command,
    writing: &Writing,
    request: &Request<'_>,
    shown: Shown,
) -> Result<String, Failure> {
    match command {
        Command::Truncate { restarts } if !restarts.is_empty() => {
            Box::pin(truncate_and_restart(session, restarts, writing, request, shown)).await
        }
        _ => write::write_on(session, writing, request, shown).await,
    }
}

async fn truncate_and_restart(
    session: &mut Session,
    tables: &[Oid],
    writing: &Writing,
    request: &Request<'_>,
    shown: Shown,
) -> Result<String, Failure> {
    if !session.transaction.alterations.is_empty() || !session.transaction.closed.is_empty() {
        return Err(after_alteration().into());
    }
    let numbers = session.gateway.numbers.clone();
    let mut restarts = Box::pin(numbers.begin_restart(&session.login.identity.user, tables)).await?;
    let tag = write::write_on(session, writing, request, shown).await?;
    for shard in writing.shards() {
        let Some(index) = session.transaction.index_of(*shard) else { continue };
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        for Restart { sequence, .. } in &restarts {
            let name = quoted_literal(&quoted_name(&sequence.0, &sequence.1));
            let text = format!("SELECT shardgate.use_up({name}::pg_catalog.regclass)");
            hidden_statement(participant, &Own::Sequence.text(&text));
        }
        session.sync(index).await?;
    }
    for restart in &mut restarts {
        // The tables are held since: nobody else has restarted it.
        if let Some(known) = session.transaction.restart_of(&restart.sequence) {
            *restart = known.again();
        }
    }
    numbers.check_restart(&restarts).await?;
    let depth = session.transaction.savepoints.len();
    session.transaction.restarts.extend(restarts.into_iter().map(|restart| (depth, restart)));
    Ok(tag)
}

/// The tables are empty for everybody. What fails now cannot undo that.
pub(in crate::session) async fn finish_restarts(session: &mut Session, restarts: Vec<(usize, Restart)>) {
    let numbers = session.gateway.numbers.clone();
    for (place, (_, restart)) in restarts.iter().enumerate() {
        if restarts.iter().skip(place + 1).any(|(_, later)| later.sequence == restart.sequence) {
            continue;
        }
        if let Err(error) = Box::pin(numbers.finish_restart(&session.login.identity.user, restart)).await {
            tracing::warn!(%error, sequence = restart.sequence.1, "a sequence was not restarted");
            let message = format!("sequence \"{}\" may not have been restarted, its numbers go on", restart.sequence.1);
            session.warn(SqlState::WARNING, &message);
        }
    }
}

/// A shard has none of the transaction's own numbers.
pub(in crate::session) fn check_not_numbered_there(
    statement: &Analysis,
    route: &Route,
    transaction: &Transaction,
) -> Result<(), PgError> {
    let is_staged = matches!(route, Route::Write(writing) if matches!(writing.kind, WritingKind::Staged(_)));
    if statement.numbers != Numbers::Unseen || is_staged {
        return Ok(());
    }
    let what = if transaction.restarts.is_empty() { "ALTER SEQUENCE" } else { "TRUNCATE ... RESTART IDENTITY" };
    Err(PgError::unsupported(
        format!("rows that shards number by themselves are not supported after {what} in one transaction"),
        "It counts for the others when the transaction is committed, and the shards have no numbers before.",
        "Commit first, or insert the rows by VALUES.",
    ))
}

/// `what` would be done to a sequence that the transaction has restarted.
pub(in crate::session) fn not_after_restart(what: &str, sequence: &str) -> PgError {
    PgError::unsupported(
        format!("{what} of sequence \"{sequence}\" is not supported in a transaction that has restarted it"),
        format!("{what} knows what is committed, and the restart counts when the transaction is committed."),
        "Commit first.",
    )
}

fn after_alteration() -> PgError {
    PgError::unsupported(
        "TRUNCATE ... RESTART IDENTITY is not supported in a transaction that has altered a sequence of the whole cluster",
        "Both change what the transaction's next number is, and count for the others when it is committed.",
        "Use TRUNCATE ... CONTINUE IDENTITY and ALTER SEQUENCE ... RESTART, or commit first.",
    )
}

/// One shard by itself.
pub(in crate::session) fn check_not_alone(command: &Command) -> Result<(), PgError> {
    match command {
        Command::Truncate { restarts } if !restarts.is_empty() => Err(PgError::unsupported(
            "TRUNCATE ... RESTART IDENTITY on one shard is not supported",
            "Its rows are numbered by sequences of the whole cluster.",
            "Use CONTINUE IDENTITY, or RESET shardgate.shard.",
        )),
        _ => Ok(()),
    }
}
