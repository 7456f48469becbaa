//! The simple query protocol: one message, one or more statements, one transaction.
//!
//! A text with one statement goes to its shard as the client sent it. Several statements are routed each by itself and run in
//! one transaction, unless all of them belong to one shard, which then gets the text whole. Otherwise each is read and run as if it had
//! come alone, when those before it have been run: so what they have changed counts for it, and the work grows with the text's length and
//! not with its square. Positions in errors and notices are moved to where the statement is in the client's text.

use bytes::Bytes;
use futures::future::BoxFuture;

use super::fast_path::Call;
use super::panicked::RunningStatement;
use crate::backend::{Reply, ShardText};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Reach};
use crate::session::commands::inner_query::has_inner_query;
use crate::session::commands::{cluster_state, command, dump, inner_query, relations};
use crate::session::cursor;
use crate::session::cursor::held;
use crate::session::ddl::{redefined, schema};
use crate::session::reads::scatter;
use crate::session::route::{Route, Turns};
use crate::session::sequences::numbers;
use crate::session::sequences::numbers::with_position;
use crate::session::{Failure, Session, SessionEnd};
use crate::sql::Read;
use crate::sql::analysis::{Analysis, Command, Effect, Numbers, Scope, TransactionModes};
use crate::sql::parse::lexer::Literals;
use crate::telemetry::RouteKind;
use crate::wire::{originate, query, shard_tag};

impl Session {
    /// A Query message. `body`: the text and its terminating zero.
    ///
    /// Where messages of the extended protocol came before it without a Sync, it is part of their transaction and ends it.
    pub(in crate::session) async fn query(&mut self, body: Bytes) -> Result<(), SessionEnd> {
        self.running.statement = RunningStatement::Query(body.clone());
        if self.batch.is_open && !Box::pin(self.join_pipeline()).await? {
            return Ok(());
        }
        self.statements.remove(&b""[..]);
        let result = match query(&body).map(std::str::from_utf8) {
            Ok(Ok(text)) => {
                self.shown.row.show_text(text);
                self.run_text(text).await
            }
            Ok(Err(_)) => Err(invalid_encoding().into()),
            Err(error) => Err(error.into()),
        };
        let is_right = result.is_ok();
        if let Err(failure) = result {
            self.settle(failure)?;
        }
        self.recover_skipping().await?;
        if self.batch.is_open {
            Box::pin(self.end_batch(is_right)).await?;
        } else if !self.transaction.is_open() {
            held::forget_cursors_of_shards(self, is_right);
        }
        self.portals.remove(&b""[..]);
        if !self.open_cursors.is_empty() {
            cursor::close_cursor(self, b"").await?;
        }
        self.end_cycle(!is_right).await
    }

    /// A FunctionCall message. Like a Query, it ends the pipeline that it comes in.
    pub(in crate::session) async fn function_call(&mut self, body: &[u8]) -> Result<(), SessionEnd> {
        let call = match Call::read(body) {
            Ok(call) => call,
            Err(failure) => {
                // After the answers to what came before.
                self.fail_batch(failure).await?;
                return self.on_sync().await;
            }
        };
        if self.batch.is_open && !Box::pin(self.join_pipeline()).await? {
            return Ok(());
        }
        let kept = self.divert();
        let run = self.query(Bytes::from([call.text.as_bytes(), b"\0"].concat())).await;
        let diverted = self.end_diversion(kept);
        if let Err(error) = call.answer(diverted, &mut self.client.output) {
            self.fail(error);
            originate::ready(&mut self.client.output, self.transaction.ready_status());
        }
        run
    }

    /// What came before is answered first. False: there was an error, after which all is skipped until Sync.
    async fn join_pipeline(&mut self) -> Result<bool, SessionEnd> {
        if !self.batch.has_failed {
            match self.on_flush().await {
                Ok(()) => self.keep_pipeline(),
                Err(failure) => self.fail_batch(failure).await?,
            }
        }
        Ok(!self.batch.has_failed)
    }

    async fn run_text(&mut self, text: &str) -> Result<(), Failure> {
        loop {
            let run = self.run_text_once(text).await;
            if !self.cycle.plans_again(&run) {
                return run;
            }
        }
    }

    async fn run_text_once(&mut self, text: &str) -> Result<(), Failure> {
        redefined::refresh_context_for(self, text).await?;
        let asked = match dump::may_be_asked_by_dump(self, text) {
            true => Box::pin(dump::asked_by_dump(self, text)).await?,
            false => None,
        };
        let text = asked.as_deref().unwrap_or(text);
        let read = schema::read_anew(self, text).await?;
        match read.analyzed.statements.as_slice() {
            [] => {
                originate::bare(&mut self.client.output, shard_tag::EMPTY_QUERY);
                Ok(())
            }
            [statement] => {
                self.cycle.note_statement(Some(&statement.command));
                command::check_not_failed(self, &statement.command)?;
                self.run_statement(statement, text, &read).await
            }
            _ => {
                self.cycle.note_statement(None);
                Box::pin(self.run_several(text, &read)).await
            }
        }
    }

    /// The one statement of a text.
    async fn run_statement(&mut self, statement: &Analysis, text: &str, read: &Read) -> Result<(), Failure> {
        if cluster_state::asks_cluster(self, statement)
            && let Some(made) = cluster_state::with_cluster_state(self, text).await?
        {
            let changed = made.text.clone();
            let read = self.read(&changed).await?;
            let [statement] = read.analyzed.statements.as_slice() else {
                return Err(PgError::internal("a statement about the cluster is not one").into());
            };
            self.running.answered = Some(Box::new((made, text.to_owned())));
            let run = self.run_as_read(statement, &changed, &read).await;
            let run = run.map_err(|failure| match failure {
                Failure::Shard(frame) => Failure::Shard(cluster_state::without_answers(self, frame)),
                other => other,
            });
            self.running.answered = None;
            return run;
        }
        self.run_as_read(statement, text, read).await
    }

    /// The type of what it waits for is left out of those around it, which nest too deeply for the compiler.
    fn run_as_read<'a>(&'a mut self, statement: &'a Analysis, text: &'a str, read: &'a Read) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.run_read(statement, text, read))
    }

    async fn run_read(&mut self, statement: &Analysis, text: &str, read: &Read) -> Result<(), Failure> {
        if crate::session::commands::command::is_own(&statement.command) {
            self.count_statement(RouteKind::Local, None);
            return Box::pin(command::own_command(self, statement, text)).await;
        }
        if has_inner_query(&statement.command) && inner_query::run_inner_query(self, statement, text, None).await? {
            return Ok(());
        }
        if statement.numbers != Numbers::None {
            return Box::pin(self.run_numbered(statement, text, read)).await;
        }
        let inputs = Inputs::literals(text, &read.literals);
        relations::allow_declaration(self, &statement.scope, b"")?;
        let route = self.route(statement, &inputs).await;
        match self.counted(route) {
            Ok(Route::Shard(reach)) => self.run_on_shard(&reach, statement, text).await,
            Err(failure) => Box::pin(self.refuse(failure, statement, text)).await,
            Ok(route) => Box::pin(scatter::run_by_route(self, route, statement, text, &inputs)).await,
        }
    }

    /// A statement that draws numbers from sequences.
    async fn run_numbered(&mut self, statement: &Analysis, text: &str, read: &Read) -> Result<(), Failure> {
        let drawn = if numbers::draws(self, statement) { Box::pin(numbers::draw_into(self, text)).await? } else { None };
        let run = match drawn {
            None => Box::pin(self.run_routed(statement, text, &read.literals)).await,
            Some(drawn) => {
                let read = self.read(&drawn).await?;
                match read.analyzed.statements.as_slice() {
                    [statement] => Box::pin(self.run_routed(statement, &drawn, &read.literals)).await,
                    _ => Err(PgError::internal("a statement with numbers is not one").into()),
                }
            }
        };
        let run = run.map_err(|failure| self.with_own_place(failure));
        numbers::forget_moved(self);
        run
    }

    fn with_own_place(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Shard(frame) => Failure::Shard(numbers::with_own_position(self, frame)),
            other => other,
        }
    }

    async fn run_routed(&mut self, statement: &Analysis, text: &str, literals: &Literals) -> Result<(), Failure> {
        let inputs = Inputs::literals(text, literals);
        let route = self.route(statement, &inputs).await;
        if let Ok(route) = &route {
            numbers::note_numbers_of(self, statement.numbers, route);
        }
        match self.counted(route) {
            Ok(Route::Shard(reach)) => self.run_on_shard(&reach, statement, text).await,
            Err(failure) => self.refuse(failure, statement, text).await,
            Ok(route) => Box::pin(scatter::run_by_route(self, route, statement, text, &inputs)).await,
        }
    }

    /// A statement that is wrong is told so in PostgreSQL's words, one that is right why it is not supported.
    async fn refuse(&mut self, failure: Failure, statement: &Analysis, text: &str) -> Result<(), Failure> {
        let is_refusal = matches!(&failure, Failure::Error(error) if error.code == SqlState::FEATURE_NOT_SUPPORTED);
        if is_refusal && matches!(statement.command, Command::Query(_)) && statement.parameter_count == 0 {
            let prepared = self.prepare(text.as_bytes(), Box::default()).await?;
            self.describe(&prepared).await?;
        }
        self.count_refusal(&failure);
        Err(failure)
    }

    /// Sends a text to one shard as a Query and relays what comes.
    pub(in crate::session) async fn run_on_shard(
        &mut self,
        reach: &Reach,
        statement: &Analysis,
        text: &str,
    ) -> Result<(), Failure> {
        let shard = reach.single().ok_or_else(|| PgError::internal("several shards as one"))?;
        let timed = match self.reads_other_clock(statement, Some(shard))? {
            true => Box::pin(self.text_with_time(reach, statement, text)).await?,
            false => None,
        };
        let text = timed.as_deref().unwrap_or(text);
        let index = self.join(shard).await?;
        let participant = self.transaction.at(index)?;
        participant.has_written |= statement.effect == Effect::Write;
        numbers::check_sequence_value(self, index, statement)?;
        self.pin_if_needed(index, statement);
        let text = ShardText::of(reach, text.as_bytes(), &self.context)?;
        let participant = self.transaction.at(index)?;
        let connection = &mut *participant.connection;
        connection.output.query(&text);
        connection.unnamed = None;
        connection.expect(Reply::Query, true);
        let drained = self.drain(index).await;
        self.transaction.timed = None;
        if let Some(participant) = self.transaction.participants_mut().get_mut(index)
            && drained.is_ok()
        {
            participant.needs_sync = false;
        }
        drained
    }

    /// Several statements: one transaction, stopped at the first error.
    async fn run_several(&mut self, text: &str, read: &Read) -> Result<(), Failure> {
        let statements = &read.analyzed.statements;
        if let Some(reach) = self.common_reach(statements, &Inputs::literals(text, &read.literals)).await? {
            let writes = statements.iter().find(|statement| statement.effect == Effect::Write);
            let decisive = writes.or(statements.first()).ok_or_else(|| PgError::internal("no statement"))?;
            // The time of a transaction is put into one statement at a time.
            if !self.reads_other_clock(decisive, reach.single())? {
                self.gateway.counters.statements(RouteKind::SingleShard, statements.len() as u64);
                self.note_route(RouteKind::SingleShard, reach.shards().first().copied());
                return self.run_on_shard(&reach, decisive, text).await;
            }
        }
        let mut end = 0;
        self.running.characters_before = 0;
        for range in read.analyzed.ranges(text) {
            self.running.characters_before += text.get(end..range.start).map_or(0, |before| before.chars().count());
            end = range.start;
            let alone = text.get(range).unwrap_or_default();
            let run = loop {
                let run = self.run_one_of_several(alone).await;
                if !self.cycle.plans_again(&run) {
                    break run;
                }
            };
            if let Err(failure) = run.map_err(|failure| self.in_whole_text(failure)) {
                self.running.characters_before = 0;
                if self.batch.is_implicit {
                    self.settle(failure)?;
                    self.recover_skipping().await?;
                    self.batch.is_implicit = false;
                    command::rollback_everywhere(self).await?;
                    return Ok(());
                }
                return Err(failure);
            }
        }
        self.running.characters_before = 0;
        if std::mem::take(&mut self.batch.is_implicit) {
            command::commit_everywhere(self).await?;
        }
        Ok(())
    }

    async fn run_one_of_several(&mut self, alone: &str) -> Result<(), Failure> {
        self.check_not_ending()?;
        self.forget_running_effects();
        redefined::refresh_context_for(self, alone).await?;
        let read = schema::read_anew(self, alone).await?;
        let [statement] = read.analyzed.statements.as_slice() else {
            return Err(PgError::internal("a statement of several is not one").into());
        };
        command::check_not_failed(self, &statement.command)?;
        if !self.transaction.is_open() && !matches!(statement.command, Command::Begin(_)) {
            self.transaction.begin(TransactionModes::default(), &self.settings);
            self.batch.is_implicit = true;
        }
        Box::pin(self.run_statement(statement, alone, &read)).await
    }

    /// A failure of one of several statements, with its position in the whole text.
    fn in_whole_text(&self, failure: Failure) -> Failure {
        let before = self.running.characters_before;
        match failure {
            Failure::Shard(frame) if before > 0 => Failure::Shard(with_position(frame, |position| position + before)),
            Failure::Error(error) => {
                let position = error.position.map(|position| position.saturating_add(u32::try_from(before).unwrap_or(u32::MAX)));
                Failure::Error(error.with_position(position))
            }
            failure => failure,
        }
    }

    /// The one shard that all statements belong to, when nothing among them concerns the session.
    async fn common_reach(&mut self, statements: &[Analysis], inputs: &Inputs<'_>) -> Result<Option<Reach>, Failure> {
        let is_plain = |statement: &Analysis| {
            matches!(statement.command, Command::Query(_))
                // What it reads of the proxy is given for each by itself.
                && !matches!(statement.scope, Scope::Proxy(_))
                && statement.numbers == Numbers::None
                // What may be left is looked for statement by statement.
                && statement.effects.is_none()
        };
        let asks_cluster = statements.iter().any(|statement| cluster_state::asks_cluster(self, statement));
        let calls_unseen = self.temporary_tables.call_functions();
        if self.transaction.is_open() || asks_cluster || calls_unseen || !statements.iter().all(is_plain) {
            return Ok(None);
        }
        let mut common: Option<Reach> = None;
        let mut turns = Turns::begin();
        for statement in statements {
            turns.piece_is_done().await;
            // A statement that is refused must not keep those before it from running: then each is routed by itself.
            match self.route(statement, inputs).await {
                Ok(Route::Shard(reach)) => match common.take() {
                    None => common = Some(reach),
                    Some(known) => match known.with(&reach) {
                        Some(both) => common = Some(both),
                        None => return Ok(None),
                    },
                },
                Ok(_) | Err(Failure::Error(_)) => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
        Ok(common)
    }

    /// After an error that came from what was put before a simple query, the shard skips until Sync.
    async fn recover_skipping(&mut self) -> Result<(), SessionEnd> {
        for index in (0..self.transaction.participants().len()).rev() {
            match self.sync_and_commit(index).await {
                Ok(()) | Err(Failure::Forwarded) => {}
                Err(failure) => self.settle(failure)?,
            }
        }
        Ok(())
    }
}

pub(in crate::session) fn invalid_encoding() -> PgError {
    PgError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
        .with_hint("Statements are read as UTF-8, whatever client_encoding says.")
}
