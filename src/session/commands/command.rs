//! Statements that the proxy answers itself: transactions, settings, prepared statements by SQL, the functions of the schema
//! `shardgate`, EXPLAIN, and schema changes, which it runs on every shard.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::arguments::declared_call;
use super::listening::{ListenChange, Listening};
use super::relations;
use crate::backend::{Own, Reply};
use crate::catalog::quoted_identifier;
use crate::declare;
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::protocol::describe::Description;
use crate::session::protocol::statement::Statement;
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

impl Session {
    /// In a failed transaction only its end, or the return to a savepoint, is let through.
    pub(in crate::session) fn check_not_failed(&mut self, command: &Command) -> Result<(), PgError> {
        // COMMIT says it by itself.
        if !matches!(command, Command::Commit { .. } | Command::Rollback { .. })
            && let Some(loss) = self.transaction.take_untold_loss()
        {
            return Err(loss);
        }
        let ends_it = matches!(command, Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_));
        if ends_it { Ok(()) } else { self.check_transaction() }
    }

    pub(in crate::session) fn check_transaction(&self) -> Result<(), PgError> {
        if self.transaction.status == Status::Failed {
            return Err(PgError::new(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    /// Runs one of the proxy's own statements, whose text is in `text`.
    pub(in crate::session) async fn own_command(&mut self, statement: &Analysis, text: &str) -> Result<(), Failure> {
        self.own_command_with(statement, &Inputs::literals(text, &literals_for_effects(statement, text)), None).await
    }

    async fn own_command_with(
        &mut self,
        statement: &Analysis,
        inputs: &Inputs<'_>,
        bind: Option<&wire::Bind<'_>>,
    ) -> Result<(), Failure> {
        let text = inputs.text();
        self.note_effects_of(statement, inputs)?;
        if let Command::Explain { .. } = &statement.command {
            return Box::pin(self.explain(statement, text, None)).await;
        }
        if let Scope::Refused(refusal) = &statement.scope {
            self.gateway.counters.statement(RouteKind::Refused);
            return Err(refusal.clone().into());
        }
        let alone = text.get(statement.start..statement.end).unwrap_or(text);
        match &statement.command {
            Command::Begin(modes) => {
                let is_start = alone.trim_start().get(..5).is_some_and(|word| word.eq_ignore_ascii_case("start"));
                self.begin(modes, if is_start { "START TRANSACTION" } else { "BEGIN" })
            }
            Command::Commit { chain } => self.commit(*chain).await,
            Command::Rollback { chain } => self.rollback(*chain).await,
            Command::Savepoint(name) => self.savepoint(name),
            Command::Release(name) => self.release_savepoint(name).await,
            Command::RollbackTo(name) => self.rollback_to(name).await,
            Command::SetTransaction(modes) => self.set_transaction(modes),
            Command::ImportSnapshot(name) => Box::pin(self.import_snapshot(name)).await,
            Command::SetSessionCharacteristics(modes) => self.set_session_characteristics(modes),
            Command::SetConstraints => Box::pin(self.set_constraints(alone)).await,
            Command::Set { name, value, is_local } => Box::pin(self.set(name, value.as_deref(), *is_local, alone)).await,
            Command::SetConfig(calls) => Box::pin(self.set_config(calls, inputs)).await,
            Command::SetSequence => Box::pin(self.set_sequence(alone, bind)).await,
            Command::Reset(name) => self.reset(name).await,
            Command::ResetAll => self.reset_all(),
            Command::Discard(what) => self.discard(*what).await,
            Command::Prepare { .. } => Box::pin(self.prepare_by_name(statement, text)).await,
            Command::Execute { .. } => Box::pin(self.execute_by_name(statement, text, bind)).await,
            Command::Listen(channel) => Box::pin(self.listen(ListenChange::Listen(channel.clone()))).await,
            Command::Unlisten(channel) => {
                let change = channel.clone().map_or(ListenChange::UnlistenAll, ListenChange::Unlisten);
                Box::pin(self.listen(change)).await
            }
            Command::Deallocate(name) => self.deallocate(name.as_deref()),
            Command::Shardgate(call) => Box::pin(self.shardgate_call(call, inputs, bind)).await,
            Command::Ddl { .. } if matches!(statement.scope, Scope::Placed { .. }) => {
                Box::pin(self.change_temporary(statement, text, None)).await
            }
            Command::Ddl { table_as: Some(table), .. } => Box::pin(self.create_table_as(table, statement, text)).await,
            Command::Ddl { .. } | Command::Maintenance => Box::pin(self.on_every_shard(statement, text)).await,
            Command::Empty => {
                originate::bare(&mut self.client.output, shard_tag::EMPTY_QUERY);
                Ok(())
            }
            other => Err(PgError::internal(format!("not the proxy's own statement: {other:?}")).into()),
        }
    }

    /// Execute of a portal that the proxy runs itself.
    pub(in crate::session) async fn execute_own(&mut self, statement: &Arc<Statement>, bind: &[u8]) -> Result<(), Failure> {
        let bind = wire::bind(bind)?;
        let Some(analysis) = statement.analysis() else {
            originate::bare(&mut self.client.output, shard_tag::EMPTY_QUERY);
            return Ok(());
        };
        self.check_not_failed(&analysis.command)?;
        if let Command::Explain { .. } = &analysis.command {
            return Box::pin(self.explain(analysis, statement.text(), Some((statement, &bind)))).await;
        }
        if super::inner_query::has_inner_query(&analysis.command) {
            return self.execute_inner_query(analysis, statement, &bind).await;
        }
        if super::temporary::has_parameters(analysis) {
            return Box::pin(self.change_temporary(analysis, statement.text(), Some((statement, &bind)))).await;
        }
        if matches!(analysis.command, Command::Ddl { gives_rows: true, .. }) {
            self.check_formats_of_call(statement, &bind).await?;
        }
        self.begin_if_undone_with_pipeline(&analysis.command)?;
        let before = self.client.output.len();
        let types = self.describe_own(statement).map(|description| description.parameter_types).unwrap_or_default();
        let literals = literals_for_effects(analysis, statement.text());
        let inputs = Inputs::bound(statement.text(), &literals, &bind, &types);
        let run = self.own_command_with(analysis, &inputs, Some(&bind)).await;
        // The row description was given at Describe.
        drop_row_description(&mut self.client.output, before);
        run
    }

    /// What Describe says of a statement of the proxy's own; `None` when the home shard is to be asked.
    pub(in crate::session) fn describe_own(&self, statement: &Statement) -> Option<Description> {
        let Some(analysis) = statement.analysis() else { return Some(Description::default()) };
        if let Command::Fetch { name, is_move: false, .. } = &analysis.command {
            let rows = self.open_cursors.rows(name.as_bytes())?;
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
                let column = self.set_sequence_column(statement.text())?;
                Some(Description::new(Vec::new(), Some(rows_body(&[column]))))
            }
            Command::SetConfig(calls) => {
                let parameter_types = declared_types(statement, analysis, |number| {
                    crate::session::settings::set_config::parameter_type(calls, number)
                });
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

    fn begin(&mut self, modes: &TransactionModes, tag: &str) -> Result<(), Failure> {
        if self.transaction.is_open() {
            if !self.batch.is_implicit {
                self.warn(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            }
            if *modes != TransactionModes::default() {
                // What fails here leaves no block behind that was none before.
                self.change_modes(modes)?;
            }
            self.batch.is_implicit = false;
        } else {
            self.check_level_in_pipeline(modes)?;
            self.transaction.begin(modes.clone(), &self.settings);
            self.adopt_pipeline();
        }
        originate::command_complete(&mut self.client.output, tag);
        Ok(())
    }

    /// COMMIT and ROLLBACK without BEGIN end what ran earlier in this pipeline.
    async fn end_pipeline(&mut self, is_rollback: bool) -> Result<(), Failure> {
        for index in (0..self.transaction.participants().len()).rev() {
            if is_rollback {
                self.abort_implicit(index);
            }
            self.sync_and_commit(index).await?;
            if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
                participant.forget_transaction();
            }
        }
        if !self.open_cursors.is_empty() {
            Box::pin(self.end_cursors_of_pipeline(!is_rollback)).await?;
        }
        Ok(())
    }

    async fn commit(&mut self, chain: bool) -> Result<(), Failure> {
        if !self.check_in_transaction(chain, "COMMIT AND CHAIN")? {
            self.end_pipeline(false).await?;
            originate::command_complete(&mut self.client.output, "COMMIT");
            return Ok(());
        }
        if let Some(loss) = self.transaction.take_untold_loss() {
            self.rollback_everywhere().await?;
            return Err(loss.into());
        }
        if self.transaction.status == Status::Failed {
            return self.rollback(chain).await;
        }
        let modes = self.transaction.modes.clone();
        self.commit_everywhere().await?;
        originate::command_complete(&mut self.client.output, "COMMIT");
        if chain {
            self.begin_next(modes).await?;
        }
        Ok(())
    }

    /// False: there is no transaction, and the client has been warned.
    fn check_in_transaction(&mut self, chain: bool, what: &str) -> Result<bool, PgError> {
        let is_block = self.transaction.is_open() && !self.batch.is_implicit;
        if !is_block && chain {
            return Err(PgError::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            ));
        }
        if !is_block {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
        self.batch.is_implicit = false;
        Ok(self.transaction.is_open())
    }

    /// Commits on every participant, the one that has written first: when that fails, nothing has been committed anywhere.
    ///
    /// Where several have written they agree first ([`Session::commit_on_several`]).
    pub(in crate::session) async fn commit_everywhere(&mut self) -> Result<(), Failure> {
        if self.has_effects_to_settle()
            && let Err(failure) = Box::pin(self.tell_what_was_set_over()).await
        {
            self.rollback_everywhere().await?;
            return Err(failure);
        }
        self.note_who_set_last();
        if !self.open_cursors.is_empty()
            && let Err(failure) = Box::pin(self.hold_cursors()).await
        {
            self.rollback_everywhere().await?;
            return Err(failure);
        }
        if !self.transaction.listens.is_empty()
            && let Err(failure) = Box::pin(self.prepare_to_listen()).await
        {
            self.rollback_everywhere().await?;
            return Err(failure);
        }
        if !self.transaction.alterations.is_empty()
            && let Err(failure) = Box::pin(self.note_alterations()).await
        {
            self.rollback_everywhere().await?;
            return Err(failure);
        }
        if self.transaction.is_everywhere
            && let Err(error) = Box::pin(self.check_everywhere()).await
        {
            self.rollback_everywhere().await?;
            return Err(error.into());
        }
        if let Some(error) = self.lost_what_it_claims() {
            self.rollback_everywhere().await?;
            return Err(error.into());
        }
        self.transaction.is_committing = true;
        self.cancel.commit(true);
        let committed = match self.writer_count() {
            _ if self.transaction.is_piecemeal => Box::pin(self.commit_one_by_one()).await,
            0 | 1 => self.commit_one_writer().await,
            _ => Box::pin(self.commit_on_several()).await,
        };
        self.cancel.commit(false);
        if let (Err(failure), Some(change)) = (&committed, &mut self.transaction.schema_change) {
            change.keep_declared();
            if is_unknown(failure) {
                change.leave_open();
            }
        }
        committed?;
        self.transaction.note_committed(&self.settings);
        let restarts = std::mem::take(&mut self.transaction.restarts);
        let listens = std::mem::take(&mut self.transaction.listens);
        let has_local = self.transaction.sets.iter().filter_map(Told::setting).any(|setting| setting.is_local);
        self.transaction.end();
        if has_local {
            self.report_settings();
        }
        self.temporary_tables.transaction_ended();
        self.forget_portals(true).await;
        self.gateway.counters.commit();
        if !restarts.is_empty() {
            Box::pin(self.finish_restarts(restarts)).await;
        }
        if !listens.is_empty() {
            Box::pin(self.change_listening(&listens)).await?;
        }
        Ok(())
    }

    async fn commit_one_writer(&mut self) -> Result<(), Failure> {
        let decider = self.transaction.decider.as_ref().map(|decider| decider.shard);
        let has_written = |participant: &Participant| participant.has_written || Some(participant.shard) == decider;
        self.transaction.participants_mut().sort_by_key(|participant| !has_written(participant));
        let begun: SmallVec<[(ShardId, bool); 4]> = self
            .transaction
            .participants()
            .iter()
            .filter(|participant| participant.has_begun)
            .map(|participant| (participant.shard, has_written(participant)))
            .collect();
        let mut is_committed = false;
        for (shard, has_written) in begun {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            if self.gateway.commits.failpoints.has_planted("lost_before_commit") {
                self.finish_on(index, "ROLLBACK").await?;
            }
            self.gateway.commits.failpoints.reach("before_commit").await;
            if is_committed && !has_written {
                self.end_reader(index).await?;
                continue;
            }
            match self.commit_on(index).await {
                Ok(()) => is_committed |= has_written,
                // Nothing was to be kept here, and what was read counts.
                Err(Failure::End(end)) if !has_written && self.isolation() != Isolation::Serializable => {
                    self.end_after_answer(end)?;
                }
                Err(Failure::Error(error)) if !has_written && self.isolation() != Isolation::Serializable => {
                    tracing::warn!(%error, "a shard that only read was lost at the end of its transaction");
                }
                Err(failure) => {
                    self.rollback_everywhere().await?;
                    return Err(self.commit_failure(failure));
                }
            }
        }
        Ok(())
    }

    /// COMMIT on one participant, which must say so: in a failed transaction PostgreSQL rolls back without an error, and without a
    /// transaction it has nothing to commit.
    pub(in crate::session) async fn commit_on(&mut self, index: usize) -> Result<(), Failure> {
        match self.sync_and_commit(index).await {
            Ok(()) | Err(Failure::Forwarded) => {}
            Err(failure) => return Err(failure),
        }
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        let shard = participant.shard;
        if participant.connection.status != b'T' {
            return Err(not_committed(&participant.connection.pool().address.name).into());
        }
        participant.connection.hidden_tag.clear();
        self.finish_on(index, "COMMIT").await?;
        match self.transaction.participants().get(index).filter(|participant| participant.shard == shard) {
            Some(participant) if *participant.connection.hidden_tag != *b"COMMIT" => {
                Err(not_committed(&participant.connection.pool().address.name).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A command of the transaction on one participant; its notices and errors go to the client.
    pub(in crate::session) async fn finish_on(&mut self, index: usize, text: &str) -> Result<(), Failure> {
        // An error in the extended protocol has left the shard skipping.
        match self.sync_and_commit(index).await {
            Ok(()) | Err(Failure::Forwarded) => {}
            Err(failure) => return Err(failure),
        }
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        let connection = &mut *participant.connection;
        if text == "ROLLBACK" && connection.status == b'I' {
            // A COMMIT that failed has ended the transaction.
            return Ok(());
        }
        connection.output.query(&Own::Transaction.text(text));
        connection.ends_transaction = text == "COMMIT";
        connection.unnamed = None;
        connection.expect(Reply::Query, false);
        let drained = self.drain(index).await;
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.connection.ends_transaction &= participant.connection.owes();
        }
        drained
    }

    async fn rollback(&mut self, chain: bool) -> Result<(), Failure> {
        if self.check_in_transaction(chain, "ROLLBACK AND CHAIN")? {
            let modes = self.transaction.modes.clone();
            self.rollback_everywhere().await?;
            if chain {
                self.begin_next(modes).await?;
            }
        } else {
            self.end_pipeline(true).await?;
        }
        originate::command_complete(&mut self.client.output, "ROLLBACK");
        Ok(())
    }

    /// Cannot fail: a participant that does not answer is closed, which rolls it back. An error: the client has gone.
    pub(in crate::session) async fn rollback_everywhere(&mut self) -> Result<(), SessionEnd> {
        let mut index = 0;
        while let Some(participant) = self.transaction.participants().get(index) {
            let shard = participant.shard;
            if participant.has_begun {
                match self.finish_on(index, "ROLLBACK").await {
                    Ok(()) | Err(Failure::Forwarded) => {}
                    Err(Failure::End(end)) => self.end_after_answer(end)?,
                    Err(failure) => tracing::warn!(?failure, "rollback not confirmed, connection closed"),
                }
            }
            if let Some(participant) =
                self.transaction.participants_mut().get_mut(index).filter(|participant| participant.shard == shard)
            {
                participant.forget_transaction();
                index += 1;
            }
        }
        if self.transaction.is_open() {
            self.gateway.counters.rollback();
        }
        self.temporary_tables.transaction_ended();
        if let Some(settings) = self.transaction.end() {
            self.change_settings(settings);
        }
        self.forget_portals(false).await;
        Ok(())
    }

    /// With the transaction its portals and cursors are gone, but for those that are held.
    async fn forget_portals(&mut self, is_committed: bool) {
        self.portals.clear();
        if !self.open_cursors.is_empty() {
            if is_committed {
                self.open_cursors.committed();
            }
            self.forget_cursors().await;
        }
        self.forget_cursors_of_shards(is_committed);
    }

    fn savepoint(&mut self, name: &str) -> Result<(), Failure> {
        self.check_block("SAVEPOINT")?;
        self.transaction.savepoint(name.to_owned(), &self.settings);
        originate::command_complete(&mut self.client.output, "SAVEPOINT");
        Ok(())
    }

    fn check_block(&self, what: &str) -> Result<(), PgError> {
        if self.transaction.is_open() && !self.batch.is_implicit {
            return Ok(());
        }
        Err(PgError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, format!("{what} can only be used in transaction blocks")))
    }

    async fn release_savepoint(&mut self, name: &str) -> Result<(), Failure> {
        self.check_block("RELEASE SAVEPOINT")?;
        let index = self.transaction.find_savepoint(name)?;
        let sql = format!("RELEASE SAVEPOINT {}", quoted_identifier(name));
        self.on_those_who_know(index, &sql, index).await?;
        self.transaction.release_savepoint(index);
        self.keep_portals_of(index);
        originate::command_complete(&mut self.client.output, "RELEASE");
        Ok(())
    }

    async fn rollback_to(&mut self, name: &str) -> Result<(), Failure> {
        self.check_block("ROLLBACK TO SAVEPOINT")?;
        let index = self.transaction.find_savepoint(name)?;
        let sql = format!("ROLLBACK TO SAVEPOINT {}", quoted_identifier(name));
        self.on_those_who_know(index, &sql, index + 1).await?;
        self.forget_portals_after(index).await;
        self.temporary_tables.transaction_ended();
        self.note_own_change();
        if let Some(settings) = self.transaction.rollback_to(index) {
            self.change_settings(settings);
        }
        let set_count = self.transaction.sets.len();
        for participant in self.transaction.participants_mut() {
            participant.settings_known = participant.settings_known.min(set_count);
        }
        originate::command_complete(&mut self.client.output, "ROLLBACK");
        Ok(())
    }

    /// Runs a savepoint command on the participants that have the savepoint; afterwards they know `known` of the stack.
    async fn on_those_who_know(&mut self, savepoint: usize, sql: &str, known: usize) -> Result<(), Failure> {
        for index in (0..self.transaction.participants().len()).rev() {
            let Some(participant) = self.transaction.participants_mut().get_mut(index) else { continue };
            if participant.has_begun && participant.savepoints_known > savepoint {
                self.finish_on(index, sql).await?;
                if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
                    participant.savepoints_known = known;
                }
            }
        }
        Ok(())
    }

    fn set_transaction(&mut self, modes: &TransactionModes) -> Result<(), Failure> {
        if !self.transaction.is_open() {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks");
            originate::command_complete(&mut self.client.output, "SET");
            return Ok(());
        }
        self.change_modes(modes)?;
        originate::command_complete(&mut self.client.output, "SET");
        Ok(())
    }

    // ---- prepared statements by SQL ----

    fn deallocate(&mut self, name: Option<&str>) -> Result<(), Failure> {
        match name {
            None => {
                self.statements.keep_unnamed();
                originate::command_complete(&mut self.client.output, "DEALLOCATE ALL");
            }
            Some(name) => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Err(PgError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message).into());
                }
                originate::command_complete(&mut self.client.output, "DEALLOCATE");
            }
        }
        Ok(())
    }

    async fn discard(&mut self, what: Discard) -> Result<(), Failure> {
        let tag = match what {
            Discard::All => {
                if self.transaction.is_open() || self.has_pipeline() {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message).into());
                }
                self.statements.clear();
                self.portals.clear();
                self.forget_all_cursors().await;
                self.temporary_tables.forget();
                // A pinned connection holds what is to be discarded.
                self.transaction.let_go();
                self.listening = Listening::default();
                self.drawn.discard();
                self.change_settings(Arc::clone(&self.login.settings));
                "DISCARD ALL"
            }
            Discard::Temporary => {
                self.discard_temporary().await?;
                "DISCARD TEMP"
            }
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => {
                self.drawn.discard();
                "DISCARD SEQUENCES"
            }
        };
        originate::command_complete(&mut self.client.output, tag);
        Ok(())
    }

    // ---- shardgate.* ----

    /// A declaration works on connections of its own and waits for statements under the old map: it would wait for this
    /// session's own transaction. Of several statements in one Query, those before it are committed.
    pub(super) async fn leave_transaction(&mut self, function: &str) -> Result<(), Failure> {
        if self.batch.is_implicit {
            self.commit_everywhere().await?;
            self.batch.is_implicit = false;
        }
        if self.transaction.is_open() || self.has_pipeline() {
            let message = format!("shardgate.{function} cannot run inside a transaction block");
            return Err(PgError::new(SqlState::ACTIVE_SQL_TRANSACTION, message)
                .with_hint("End the transaction first; a declaration is made at once and cannot be rolled back.")
                .into());
        }
        self.finish_schema_change().await?;
        self.transaction.pinned_map.unpin();
        Ok(())
    }

    async fn shardgate_call(
        &mut self,
        call: &ShardgateCall,
        inputs: &Inputs<'_>,
        bind: Option<&wire::Bind<'_>>,
    ) -> Result<(), Failure> {
        let is_query = !is_declaration(&call.function);
        if !is_query {
            self.leave_transaction(&call.function).await?;
        }
        let answer = Box::pin(self.call_declared(declared_call(call, inputs)?)).await?;
        if !is_query {
            self.gateway.refresh_catalog().await?;
        }
        let columns = columns_of(call);
        let rows = if call.is_void { vec![vec![Some(String::new())]] } else { answer.rows };
        originate::row_description(&mut self.client.output, &columns);
        for row in &rows {
            originate::data_row(&mut self.client.output, &relations::values_of(row, &columns, bind));
        }
        originate::command_complete(&mut self.client.output, &format!("SELECT {}", rows.len()));
        Ok(())
    }
}

fn not_committed(shard: &str) -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the transaction was rolled back at its commit")
        .with_detail(format!("Shard \"{shard}\" had no transaction that it could commit."))
        .with_hint("Retry the transaction.")
}

impl Session {
    /// When the connection broke before the shard's answer to COMMIT, nobody knows. So it is when the proxy has given it up, as the shard
    /// has sent too much.
    pub(in crate::session) fn commit_failure(&mut self, failure: Failure) -> Failure {
        match failure {
            Failure::Error(error) if is_loss(&error) => unknown_outcome(&error).into(),
            Failure::End(SessionEnd::Fatal(error)) if is_loss(&error) => {
                let unknown = unknown_outcome(&error);
                self.transaction.ending.get_or_insert(error);
                unknown.into()
            }
            other => other,
        }
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
