//! Statements that the proxy answers itself: transactions, settings, prepared statements by SQL, the functions of the schema
//! `shardgate`, EXPLAIN, and schema changes, which it runs on every shard.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::arguments::declared_call;
use super::listening::{ListenChange, Listening};
use super::relations;
use super::{explain, inner_query, listening, materialized, prepare, table_as, temporary};
use crate::backend::{Own, Reply};
use crate::catalog::quoted_identifier;
use crate::declare;
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::cursor;
use crate::session::cursor::held;
use crate::session::ddl::{calls, every_shard, schema};
use crate::session::protocol::describe::Description;
use crate::session::protocol::statement::Statement;
use crate::session::sequences::{altered, restarts, set_sequence};
use crate::session::transaction::participant::Participant;
use crate::session::transaction::{Status, Told};
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::oid;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Discard, Isolation, Scope, ShardgateCall, TransactionModes};
use crate::sql::parse::lexer::{self, Literals};
use crate::sql::utility::shardgate_call::is_declaration;
use crate::telemetry::RouteKind;
use crate::wire::{self, FieldDescription, originate, shard_tag};

/// Is it answered by the proxy rather than sent to the shard of its keys?
pub(in crate::session) fn is_own(command: &Command) -> bool {
    match command {
        Command::Begin(_)
        | Command::Commit { .. }
        | Command::Rollback { .. }
        | Command::Savepoint(_)
        | Command::Release(_)
        | Command::RollbackTo(_)
        | Command::SetTransaction(_)
        | Command::ImportSnapshot(_)
        | Command::SetSessionCharacteristics(_)
        | Command::TwoPhase
        | Command::SetConstraints
        | Command::Set { .. }
        | Command::SetConfig(_)
        | Command::SetSequence
        | Command::Reset(_)
        | Command::ResetAll
        | Command::Discard(_)
        | Command::Prepare { .. }
        | Command::Execute { .. }
        | Command::Deallocate(_)
        | Command::Shardgate(_)
        | Command::Ddl { .. }
        | Command::Maintenance
        | Command::Refresh(_)
        | Command::Listen(_)
        | Command::Unlisten(_)
        | Command::Explain { .. }
        | Command::Empty => true,
        Command::Query(_)
        | Command::Show(_)
        | Command::DeclareCursor { .. }
        | Command::Fetch { .. }
        | Command::CloseCursor(_)
        | Command::Notify
        | Command::Copy(_)
        | Command::Truncate { .. }
        | Command::Lock
        | Command::Call
        | Command::Do => false,
    }
}

/// Of the proxy's own statements: are the parameters in its text its own? Those in a PREPARE or a function's body are not.
pub(in crate::session) fn takes_parameters(command: &Command) -> bool {
    matches!(command, Command::Explain { .. } | Command::Shardgate(_) | Command::SetConfig(_))
}

/// In a failed transaction only its end, or the return to a savepoint, is let through.
pub(in crate::session) fn check_not_failed(session: &mut Session, command: &Command) -> Result<(), PgError> {
    // COMMIT says it by itself.
    if !matches!(command, Command::Commit { .. } | Command::Rollback { .. })
        && let Some(loss) = session.transaction.take_untold_loss()
    {
        return Err(loss);
    }
    let ends_it = matches!(command, Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_));
    if ends_it { Ok(()) } else { check_transaction(session) }
}

pub(in crate::session) fn check_transaction(session: &Session) -> Result<(), PgError> {
    if session.transaction.status == Status::Failed {
        return Err(PgError::new(
            SqlState::IN_FAILED_SQL_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        ));
    }
    Ok(())
}

/// Runs one of the proxy's own statements, whose text is in `text`.
pub(in crate::session) async fn own_command(session: &mut Session, statement: &Analysis, text: &str) -> Result<(), Failure> {
    own_command_with(session, statement, &Inputs::literals(text, &literals_for_effects(statement, text)), None).await
}

async fn own_command_with(
    session: &mut Session,
    statement: &Analysis,
    inputs: &Inputs<'_>,
    bind: Option<&wire::Bind<'_>>,
) -> Result<(), Failure> {
    let text = inputs.text();
    session.note_effects_of(statement, inputs)?;
    if let Command::Explain { .. } = &statement.command {
        return Box::pin(explain::explain(session, statement, text, None)).await;
    }
    if let Scope::Refused(refusal) = &statement.scope {
        session.gateway.counters.statement(RouteKind::Refused);
        return Err(refusal.clone().into());
    }
    let alone = text.get(statement.start..statement.end).unwrap_or(text);
    match &statement.command {
        Command::Begin(modes) => {
            let is_start = alone.trim_start().get(..5).is_some_and(|word| word.eq_ignore_ascii_case("start"));
            begin(session, modes, if is_start { "START TRANSACTION" } else { "BEGIN" })
        }
        Command::Commit { chain } => commit(session, *chain).await,
        Command::Rollback { chain } => rollback(session, *chain).await,
        Command::Savepoint(name) => savepoint(session, name),
        Command::Release(name) => release_savepoint(session, name).await,
        Command::RollbackTo(name) => rollback_to(session, name).await,
        Command::SetTransaction(modes) => set_transaction(session, modes),
        Command::ImportSnapshot(name) => Box::pin(session.import_snapshot(name)).await,
        Command::SetSessionCharacteristics(modes) => session.set_session_characteristics(modes),
        Command::SetConstraints => Box::pin(session.set_constraints(alone)).await,
        Command::Set { name, value, is_local } => Box::pin(session.set(name, value.as_deref(), *is_local, alone)).await,
        Command::SetConfig(calls) => Box::pin(session.set_config(calls, inputs)).await,
        Command::SetSequence => Box::pin(set_sequence::set_sequence(session, alone, bind)).await,
        Command::Reset(name) => session.reset(name).await,
        Command::ResetAll => session.reset_all(),
        Command::Discard(what) => discard(session, *what).await,
        Command::Prepare { .. } => Box::pin(prepare::prepare_by_name(session, statement, text)).await,
        Command::Execute { .. } => Box::pin(prepare::execute_by_name(session, statement, text, bind)).await,
        Command::Listen(channel) => Box::pin(listening::listen(session, ListenChange::Listen(channel.clone()))).await,
        Command::Unlisten(channel) => {
            let change = channel.clone().map_or(ListenChange::UnlistenAll, ListenChange::Unlisten);
            Box::pin(listening::listen(session, change)).await
        }
        Command::Deallocate(name) => deallocate(session, name.as_deref()),
        Command::Shardgate(call) => Box::pin(shardgate_call(session, call, inputs, bind)).await,
        Command::Ddl { .. } if matches!(statement.scope, Scope::Placed { .. }) => {
            Box::pin(temporary::change_temporary(session, statement, text, None)).await
        }
        Command::Ddl { table_as: Some(table), .. } => Box::pin(table_as::create_table_as(session, table, statement, text)).await,
        Command::Refresh(refresh) => Box::pin(materialized::refresh(session, refresh.as_deref(), statement, alone)).await,
        Command::Ddl { .. } | Command::Maintenance => Box::pin(every_shard::on_every_shard(session, statement, text)).await,
        Command::Empty => {
            originate::bare(&mut session.client.output, shard_tag::EMPTY_QUERY);
            Ok(())
        }
        other => Err(PgError::internal(format!("not the proxy's own statement: {other:?}")).into()),
    }
}

/// Execute of a portal that the proxy runs itself.
pub(in crate::session) async fn execute_own(session: &mut Session, statement: &Arc<Statement>, bind: &[u8]) -> Result<(), Failure> {
    let bind = wire::bind(bind)?;
    let Some(analysis) = statement.analysis() else {
        originate::bare(&mut session.client.output, shard_tag::EMPTY_QUERY);
        return Ok(());
    };
    check_not_failed(session, &analysis.command)?;
    if let Command::Explain { .. } = &analysis.command {
        return Box::pin(explain::explain(session, analysis, statement.text(), Some((statement, &bind)))).await;
    }
    if super::inner_query::has_inner_query(&analysis.command) {
        return inner_query::execute_inner_query(session, analysis, statement, &bind).await;
    }
    if super::temporary::has_parameters(analysis) {
        return Box::pin(temporary::change_temporary(session, analysis, statement.text(), Some((statement, &bind)))).await;
    }
    if matches!(analysis.command, Command::Ddl { gives_rows: true, .. }) {
        calls::check_formats_of_call(session, statement, &bind).await?;
    }
    session.begin_if_undone_with_pipeline(&analysis.command)?;
    let before = session.client.output.len();
    let types = describe_own(session, statement).map(|description| description.parameter_types).unwrap_or_default();
    let literals = literals_for_effects(analysis, statement.text());
    let inputs = Inputs::bound(statement.text(), &literals, &bind, &types);
    let run = own_command_with(session, analysis, &inputs, Some(&bind)).await;
    // The row description was given at Describe.
    drop_row_description(&mut session.client.output, before);
    run
}

/// What Describe says of a statement of the proxy's own; `None` when the home shard is to be asked.
pub(in crate::session) fn describe_own(session: &Session, statement: &Statement) -> Option<Description> {
    let Some(analysis) = statement.analysis() else { return Some(Description::default()) };
    if let Command::Fetch { name, is_move: false, .. } = &analysis.command {
        let rows = session.open_cursors.rows(name.as_bytes())?;
        return Some(Description::new(Vec::new(), Some(rows)));
    }
    if !is_own(&analysis.command) {
        return None;
    }
    match &analysis.command {
        Command::Shardgate(call) => {
            let parameter_types = declared_types(statement, analysis, |number| declare::parameter_type(call, number));
            Some(Description::new(parameter_types, Some(rows_body(&columns_of(call)))))
        }
        Command::SetSequence => {
            let column = set_sequence::set_sequence_column(session, statement.text())?;
            Some(Description::new(Vec::new(), Some(rows_body(&[column]))))
        }
        Command::SetConfig(calls) => {
            let parameter_types =
                declared_types(statement, analysis, |number| crate::session::settings::set_config::parameter_type(calls, number));
            let fields: Vec<FieldDescription> = calls.iter().map(|call| text_field(&call.column)).collect();
            Some(Description::new(parameter_types, Some(rows_body(&fields))))
        }
        _ if super::temporary::has_parameters(analysis) => None,
        Command::Ddl { gives_rows: true, .. } => None,
        Command::Explain { .. } if super::explain::describes_at_home(analysis) => None,
        Command::Explain { format, .. } => {
            let parameter_types = declared_types(statement, analysis, |_| oid::TEXT);
            Some(Description::new(parameter_types, Some(rows_body(&[super::explain::plan_field(*format)]))))
        }
        _ => Some(Description::default()),
    }
}

// ---- transactions ----

fn begin(session: &mut Session, modes: &TransactionModes, tag: &str) -> Result<(), Failure> {
    if session.transaction.is_open() {
        if !session.batch.is_implicit {
            session.warn(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
        }
        if *modes != TransactionModes::default() {
            // What fails here leaves no block behind that was none before.
            session.change_modes(modes)?;
        }
        session.batch.is_implicit = false;
    } else {
        session.check_level_in_pipeline(modes)?;
        session.transaction.begin(modes.clone(), &session.settings);
        session.adopt_pipeline();
    }
    originate::command_complete(&mut session.client.output, tag);
    Ok(())
}

/// COMMIT and ROLLBACK without BEGIN end what ran earlier in this pipeline.
async fn end_pipeline(session: &mut Session, is_rollback: bool) -> Result<(), Failure> {
    for index in (0..session.transaction.participants().len()).rev() {
        if is_rollback {
            session.abort_implicit(index);
        }
        session.sync_and_commit(index).await?;
        if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
            participant.forget_transaction();
        }
    }
    if !session.open_cursors.is_empty() {
        Box::pin(held::end_cursors_of_pipeline(session, !is_rollback)).await?;
    }
    Ok(())
}

async fn commit(session: &mut Session, chain: bool) -> Result<(), Failure> {
    if !check_in_transaction(session, chain, "COMMIT AND CHAIN")? {
        end_pipeline(session, false).await?;
        originate::command_complete(&mut session.client.output, "COMMIT");
        return Ok(());
    }
    if let Some(loss) = session.transaction.take_untold_loss() {
        rollback_everywhere(session).await?;
        return Err(loss.into());
    }
    if session.transaction.status == Status::Failed {
        return rollback(session, chain).await;
    }
    let modes = session.transaction.modes.clone();
    commit_everywhere(session).await?;
    originate::command_complete(&mut session.client.output, "COMMIT");
    if chain {
        session.begin_next(modes).await?;
    }
    Ok(())
}

/// False: there is no transaction, and the client has been warned.
fn check_in_transaction(session: &mut Session, chain: bool, what: &str) -> Result<bool, PgError> {
    let is_block = session.transaction.is_open() && !session.batch.is_implicit;
    if !is_block && chain {
        return Err(PgError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, format!("{what} can only be used in transaction blocks")));
    }
    if !is_block {
        session.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
    }
    session.batch.is_implicit = false;
    Ok(session.transaction.is_open())
}

/// Commits on every participant, the one that has written first: when that fails, nothing has been committed anywhere.
///
/// Where several have written they agree first ([`Session::commit_on_several`]).
pub(in crate::session) async fn commit_everywhere(session: &mut Session) -> Result<(), Failure> {
    if session.has_effects_to_settle()
        && let Err(failure) = Box::pin(session.tell_what_was_set_over()).await
    {
        rollback_everywhere(session).await?;
        return Err(failure);
    }
    session.note_who_set_last();
    if !session.open_cursors.is_empty()
        && let Err(failure) = Box::pin(held::hold_cursors(session)).await
    {
        rollback_everywhere(session).await?;
        return Err(failure);
    }
    if !session.transaction.listens.is_empty()
        && let Err(failure) = Box::pin(listening::prepare_to_listen(session)).await
    {
        rollback_everywhere(session).await?;
        return Err(failure);
    }
    if !session.transaction.alterations.is_empty()
        && let Err(failure) = Box::pin(altered::note_alterations(session)).await
    {
        rollback_everywhere(session).await?;
        return Err(failure);
    }
    if session.transaction.is_everywhere
        && let Err(error) = Box::pin(session.check_everywhere()).await
    {
        rollback_everywhere(session).await?;
        return Err(error.into());
    }
    if let Some(error) = session.lost_what_it_claims() {
        rollback_everywhere(session).await?;
        return Err(error.into());
    }
    session.transaction.is_committing = true;
    session.cancel.commit(true);
    let committed = match session.writer_count() {
        _ if session.transaction.is_piecemeal => Box::pin(session.commit_one_by_one()).await,
        0 | 1 => commit_one_writer(session).await,
        _ => Box::pin(session.commit_on_several()).await,
    };
    session.cancel.commit(false);
    if let (Err(failure), Some(change)) = (&committed, &mut session.transaction.schema_change) {
        change.keep_declared();
        if is_unknown(failure) {
            change.leave_open();
        }
    }
    committed?;
    session.transaction.note_committed(&session.settings);
    let restarts = std::mem::take(&mut session.transaction.restarts);
    let listens = std::mem::take(&mut session.transaction.listens);
    let has_local = session.transaction.sets.iter().filter_map(Told::setting).any(|setting| setting.is_local);
    session.transaction.end();
    if has_local {
        session.report_settings();
    }
    session.temporary_tables.transaction_ended();
    forget_portals(session, true).await;
    session.gateway.counters.commit();
    if !restarts.is_empty() {
        Box::pin(restarts::finish_restarts(session, restarts)).await;
    }
    if !listens.is_empty() {
        Box::pin(listening::change_listening(session, &listens)).await?;
    }
    Ok(())
}

async fn commit_one_writer(session: &mut Session) -> Result<(), Failure> {
    let decider = session.transaction.decider.as_ref().map(|decider| decider.shard);
    let has_written = |participant: &Participant| participant.has_written || Some(participant.shard) == decider;
    session.transaction.participants_mut().sort_by_key(|participant| !has_written(participant));
    let begun: SmallVec<[(ShardId, bool); 4]> = session
        .transaction
        .participants()
        .iter()
        .filter(|participant| participant.has_begun)
        .map(|participant| (participant.shard, has_written(participant)))
        .collect();
    let mut is_committed = false;
    for (shard, has_written) in begun {
        let Some(index) = session.transaction.index_of(shard) else { continue };
        if session.gateway.commits.failpoints.has_planted("lost_before_commit") {
            finish_on(session, index, "ROLLBACK").await?;
        }
        session.gateway.commits.failpoints.reach("before_commit").await;
        if is_committed && !has_written {
            session.end_reader(index).await?;
            continue;
        }
        match commit_on(session, index).await {
            Ok(()) => is_committed |= has_written,
            // Nothing was to be kept here, and what was read counts.
            Err(Failure::End(end)) if !has_written && session.isolation() != Isolation::Serializable => {
                session.end_after_answer(end)?;
            }
            Err(Failure::Error(error)) if !has_written && session.isolation() != Isolation::Serializable => {
                tracing::warn!(%error, "a shard that only read was lost at the end of its transaction");
            }
            Err(failure) => {
                rollback_everywhere(session).await?;
                return Err(commit_failure(session, failure));
            }
        }
    }
    Ok(())
}

/// COMMIT on one participant, which must say so: in a failed transaction PostgreSQL rolls back without an error, and without a
/// transaction it has nothing to commit.
pub(in crate::session) async fn commit_on(session: &mut Session, index: usize) -> Result<(), Failure> {
    match session.sync_and_commit(index).await {
        Ok(()) | Err(Failure::Forwarded) => {}
        Err(failure) => return Err(failure),
    }
    let Some(participant) = session.transaction.participants_mut().get_mut(index) else { return Ok(()) };
    let shard = participant.shard;
    if participant.connection.status != b'T' {
        return Err(not_committed(&participant.connection.pool().address.name).into());
    }
    participant.connection.hidden_tag.clear();
    finish_on(session, index, "COMMIT").await?;
    match session.transaction.participants().get(index).filter(|participant| participant.shard == shard) {
        Some(participant) if *participant.connection.hidden_tag != *b"COMMIT" => {
            Err(not_committed(&participant.connection.pool().address.name).into())
        }
        Some(_) | None => Ok(()),
    }
}

/// A command of the transaction on one participant; its notices and errors go to the client.
pub(in crate::session) async fn finish_on(session: &mut Session, index: usize, text: &str) -> Result<(), Failure> {
    // An error in the extended protocol has left the shard skipping.
    match session.sync_and_commit(index).await {
        Ok(()) | Err(Failure::Forwarded) => {}
        Err(failure) => return Err(failure),
    }
    let Some(participant) = session.transaction.participants_mut().get_mut(index) else { return Ok(()) };
    let connection = &mut *participant.connection;
    if text == "ROLLBACK" && connection.status == b'I' {
        // A COMMIT that failed has ended the transaction.
        return Ok(());
    }
    connection.output.query(&Own::Transaction.text(text));
    connection.ends_transaction = text == "COMMIT";
    connection.unnamed = None;
    connection.expect(Reply::Query, false);
    let drained = session.drain(index).await;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        participant.connection.ends_transaction &= participant.connection.owes();
    }
    drained
}

async fn rollback(session: &mut Session, chain: bool) -> Result<(), Failure> {
    if check_in_transaction(session, chain, "ROLLBACK AND CHAIN")? {
        let modes = session.transaction.modes.clone();
        rollback_everywhere(session).await?;
        if chain {
            session.begin_next(modes).await?;
        }
    } else {
        end_pipeline(session, true).await?;
    }
    originate::command_complete(&mut session.client.output, "ROLLBACK");
    Ok(())
}

/// Cannot fail: a participant that does not answer is closed, which rolls it back. An error: the client has gone.
pub(in crate::session) async fn rollback_everywhere(session: &mut Session) -> Result<(), SessionEnd> {
    let mut index = 0;
    while let Some(participant) = session.transaction.participants().get(index) {
        let shard = participant.shard;
        if participant.has_begun {
            match finish_on(session, index, "ROLLBACK").await {
                Ok(()) | Err(Failure::Forwarded) => {}
                Err(Failure::End(end)) => session.end_after_answer(end)?,
                Err(failure) => tracing::warn!(?failure, "rollback not confirmed, connection closed"),
            }
        }
        if let Some(participant) =
            session.transaction.participants_mut().get_mut(index).filter(|participant| participant.shard == shard)
        {
            participant.forget_transaction();
            index += 1;
        }
    }
    if session.transaction.is_open() {
        session.gateway.counters.rollback();
    }
    session.temporary_tables.transaction_ended();
    if let Some(settings) = session.transaction.end() {
        session.change_settings(settings);
    }
    forget_portals(session, false).await;
    Ok(())
}

/// With the transaction its portals and cursors are gone, but for those that are held.
async fn forget_portals(session: &mut Session, is_committed: bool) {
    session.portals.clear();
    if !session.open_cursors.is_empty() {
        if is_committed {
            session.open_cursors.committed();
        }
        cursor::forget_cursors(session).await;
    }
    held::forget_cursors_of_shards(session, is_committed);
}

fn savepoint(session: &mut Session, name: &str) -> Result<(), Failure> {
    check_block(session, "SAVEPOINT")?;
    session.transaction.savepoint(name.to_owned(), &session.settings);
    originate::command_complete(&mut session.client.output, "SAVEPOINT");
    Ok(())
}

fn check_block(session: &Session, what: &str) -> Result<(), PgError> {
    if session.transaction.is_open() && !session.batch.is_implicit {
        return Ok(());
    }
    Err(PgError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, format!("{what} can only be used in transaction blocks")))
}

async fn release_savepoint(session: &mut Session, name: &str) -> Result<(), Failure> {
    check_block(session, "RELEASE SAVEPOINT")?;
    let index = session.transaction.find_savepoint(name)?;
    let sql = format!("RELEASE SAVEPOINT {}", quoted_identifier(name));
    on_those_who_know(session, index, &sql, index).await?;
    session.transaction.release_savepoint(index);
    cursor::keep_portals_of(session, index);
    originate::command_complete(&mut session.client.output, "RELEASE");
    Ok(())
}

async fn rollback_to(session: &mut Session, name: &str) -> Result<(), Failure> {
    check_block(session, "ROLLBACK TO SAVEPOINT")?;
    let index = session.transaction.find_savepoint(name)?;
    let sql = format!("ROLLBACK TO SAVEPOINT {}", quoted_identifier(name));
    on_those_who_know(session, index, &sql, index + 1).await?;
    cursor::forget_portals_after(session, index).await;
    session.temporary_tables.transaction_ended();
    schema::note_own_change(session);
    if let Some(settings) = session.transaction.rollback_to(index) {
        session.change_settings(settings);
    }
    let set_count = session.transaction.sets.len();
    for participant in session.transaction.participants_mut() {
        participant.settings_known = participant.settings_known.min(set_count);
    }
    originate::command_complete(&mut session.client.output, "ROLLBACK");
    Ok(())
}

/// Runs a savepoint command on the participants that have the savepoint; afterwards they know `known` of the stack.
async fn on_those_who_know(session: &mut Session, savepoint: usize, sql: &str, known: usize) -> Result<(), Failure> {
    for index in (0..session.transaction.participants().len()).rev() {
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        if participant.has_begun && participant.savepoints_known > savepoint {
            finish_on(session, index, sql).await?;
            if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
                participant.savepoints_known = known;
            }
        }
    }
    Ok(())
}

fn set_transaction(session: &mut Session, modes: &TransactionModes) -> Result<(), Failure> {
    if !session.transaction.is_open() {
        session.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks");
        originate::command_complete(&mut session.client.output, "SET");
        return Ok(());
    }
    session.change_modes(modes)?;
    originate::command_complete(&mut session.client.output, "SET");
    Ok(())
}

// ---- prepared statements by SQL ----

fn deallocate(session: &mut Session, name: Option<&str>) -> Result<(), Failure> {
    match name {
        None => {
            session.statements.keep_unnamed();
            originate::command_complete(&mut session.client.output, "DEALLOCATE ALL");
        }
        Some(name) => {
            if session.statements.remove(name.as_bytes()).is_none() {
                let message = format!("prepared statement \"{name}\" does not exist");
                return Err(PgError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message).into());
            }
            originate::command_complete(&mut session.client.output, "DEALLOCATE");
        }
    }
    Ok(())
}

async fn discard(session: &mut Session, what: Discard) -> Result<(), Failure> {
    let tag = match what {
        Discard::All => {
            if session.transaction.is_open() || session.has_pipeline() {
                let message = "DISCARD ALL cannot run inside a transaction block";
                return Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message).into());
            }
            session.statements.clear();
            session.portals.clear();
            cursor::forget_all_cursors(session).await;
            session.temporary_tables.forget();
            // A pinned connection holds what is to be discarded.
            session.transaction.let_go();
            session.listening = Listening::default();
            session.drawn.discard();
            session.change_settings(Arc::clone(&session.login.settings));
            "DISCARD ALL"
        }
        Discard::Temporary => {
            temporary::discard_temporary(session).await?;
            "DISCARD TEMP"
        }
        Discard::Plans => "DISCARD PLANS",
        Discard::Sequences => {
            session.drawn.discard();
            "DISCARD SEQUENCES"
        }
    };
    originate::command_complete(&mut session.client.output, tag);
    Ok(())
}

// ---- shardgate.* ----

/// A declaration works on connections of its own and waits for statements under the old map: it would wait for this
/// session's own transaction. Of several statements in one Query, those before it are committed.
pub(super) async fn leave_transaction(session: &mut Session, function: &str) -> Result<(), Failure> {
    if session.batch.is_implicit {
        commit_everywhere(session).await?;
        session.batch.is_implicit = false;
    }
    if session.transaction.is_open() || session.has_pipeline() {
        let message = format!("shardgate.{function} cannot run inside a transaction block");
        return Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message)
            .with_hint("End the transaction first; a declaration is made at once and cannot be rolled back.")
            .into());
    }
    schema::finish_schema_change(session).await?;
    session.transaction.pinned_map.unpin();
    Ok(())
}

async fn shardgate_call(
    session: &mut Session,
    call: &ShardgateCall,
    inputs: &Inputs<'_>,
    bind: Option<&wire::Bind<'_>>,
) -> Result<(), Failure> {
    let is_query = !is_declaration(&call.function);
    if !is_query {
        leave_transaction(session, &call.function).await?;
    }
    let answer = Box::pin(relations::call_declared(session, declared_call(call, inputs)?)).await?;
    if !is_query {
        session.gateway.refresh_catalog().await?;
    }
    let columns = columns_of(call);
    let rows = if call.is_void { vec![vec![Some(String::new())]] } else { answer.rows };
    originate::row_description(&mut session.client.output, &columns);
    for row in &rows {
        originate::data_row(&mut session.client.output, &relations::values_of(row, &columns, bind));
    }
    originate::command_complete(&mut session.client.output, &format!("SELECT {}", rows.len()));
    Ok(())
}

fn not_committed(shard: &str) -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the transaction was rolled back at its commit")
        .with_detail(format!("Shard \"{shard}\" had no transaction that it could commit."))
        .with_hint("Retry the transaction.")
}

/// When the connection broke before the shard's answer to COMMIT, nobody knows. So it is when the proxy has given it up, as the shard
/// has sent too much.
pub(in crate::session) fn commit_failure(session: &mut Session, failure: Failure) -> Failure {
    match failure {
        Failure::Error(error) if is_loss(&error) => unknown_outcome(&error).into(),
        Failure::End(SessionEnd::Fatal(error)) if is_loss(&error) => {
            let unknown = unknown_outcome(&error);
            session.transaction.ending.get_or_insert(error);
            unknown.into()
        }
        other => other,
    }
}

fn is_loss(error: &PgError) -> bool {
    matches!(error.code, SqlState::CONNECTION_FAILURE | SqlState::CONFIGURATION_LIMIT_EXCEEDED)
}

fn unknown_outcome(loss: &PgError) -> PgError {
    PgError::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, "the outcome of COMMIT is unknown")
        .with_detail(format!("The {} before it answered.", loss.message))
        .with_hint("Check whether the transaction was applied before you repeat it.")
}

/// A shard that has not answered may commit yet.
fn is_unknown(failure: &Failure) -> bool {
    match failure {
        Failure::Error(error) => error.code == SqlState::TRANSACTION_RESOLUTION_UNKNOWN,
        Failure::End(_) => true,
        Failure::Shard(_) | Failure::Forwarded => false,
    }
}

/// What a statement leaves in the session may be said by its constants.
fn literals_for_effects(statement: &Analysis, text: &str) -> Literals {
    statement.effects.as_ref().map(|_| lexer::scan(text).literals).unwrap_or_default()
}

fn declared_types(statement: &Statement, analysis: &Analysis, infer: impl Fn(u16) -> u32) -> Vec<u32> {
    let declared = |number: u16| statement.key.types.get(usize::from(number) - 1).copied().filter(|oid| *oid != 0);
    (1..=analysis.parameter_count).map(|number| declared(number).unwrap_or_else(|| infer(number))).collect()
}

fn columns_of(call: &ShardgateCall) -> Vec<FieldDescription> {
    let columns = match call.is_void {
        true => vec![(call.function.clone(), oid::VOID)],
        false => declare::describe(&call.function).unwrap_or_default(),
    };
    let alias = call.alias.clone().filter(|_| columns.len() == 1);
    columns
        .into_iter()
        .map(|(name, type_oid)| FieldDescription { type_oid, ..text_field(alias.as_deref().unwrap_or(&name)) })
        .collect()
}

pub(in crate::session) fn text_field(name: &str) -> FieldDescription {
    FieldDescription {
        name: name.as_bytes().to_vec(),
        table_oid: 0,
        attnum: 0,
        type_oid: oid::TEXT,
        type_size: -1,
        typmod: -1,
        format: 0,
    }
}

fn rows_body(fields: &[FieldDescription]) -> Bytes {
    let mut frame = BytesMut::new();
    originate::row_description(&mut frame, fields);
    frame.freeze().slice(wire::FRAME_HEADER_BYTES..)
}

/// Takes out the RowDescription that starts at `from`, if one does.
pub(in crate::session) fn drop_row_description(output: &mut BytesMut, from: usize) {
    let Some(header) = output.get(from..).and_then(|rest| wire::FrameHeader::peek(rest, usize::MAX - 8).ok().flatten()) else {
        return;
    };
    if header.tag == shard_tag::ROW_DESCRIPTION {
        let mut kept = BytesMut::with_capacity(output.len() - header.total);
        kept.put_slice(output.get(..from).unwrap_or_default());
        kept.put_slice(output.get(from + header.total..).unwrap_or_default());
        *output = kept;
    }
}
