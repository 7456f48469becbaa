//! The extended query protocol: Parse, Bind, Describe, Execute, Close, up to Sync or Flush.
//!
//! Messages are handled in order and answered in order. One shard at a time is the batch's current one: its requests are
//! collected and leave together; before another shard gets a message, or the proxy answers with an error, what the current one
//! owes is drained. The client's statements are prepared on a connection when they are first bound there.
//!
//! A Parse whose text the home shard has not seen is not answered at once: when a Bind follows, the shard that will run the
//! statement parses it, otherwise the home shard does. Either way the client hears PostgreSQL's own errors, and a statement that
//! is used once costs one trip.

use std::sync::Arc;

use bytes::Bytes;

use super::bound_unseen::BoundUnseen;
use super::describe::{Description, put_with_formats};
use super::portals::no_portal;
use super::statement::{Portal, Run, Statement};
use crate::backend::{Connection, NestedValues, Reply, StatementId, StatementName, StatementText};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Reach};
use crate::session::commands::{cluster_state, command, inner_query, prepare, relations, temporary};
use crate::session::cursor;
use crate::session::cursor::{held, is_fetch, portal, whereabouts};
use crate::session::ddl::{redefined, schema};
use crate::session::route::Route;
use crate::session::sequences::numbers;
use crate::session::settings::outdated::needs_block;
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Command, Effect, Numbers};
use crate::sql::parse::lexer::Literals;
use crate::sql::residues::cover;
use crate::wire::{self, Target, client_tag, originate, shard_tag};

/// What is known between two Syncs.
#[derive(Default)]
pub(in crate::session) struct Batch {
    /// Messages have been handled since the last Sync.
    pub is_open: bool,
    /// An error was reported: everything is skipped until Sync.
    pub has_failed: bool,
    /// The shard whose answers are due.
    pub current: Option<ShardId>,
    /// Parsed, not answered yet.
    pub unanswered: Option<Arc<Statement>>,
    /// Names whose text no shard had seen when they were given.
    pub unproven: Vec<(Bytes, StatementId)>,
    /// Shards have been asked for the columns of these.
    pub unheard: Vec<Arc<Statement>>,
    /// What is routed now is what the client runs, and no part of it: it may select from a call that changes the map.
    pub may_declare: bool,
    /// The unnamed statement was given anew while a shard still owed answers: an error there skips that.
    pub is_unnamed_in_doubt: bool,
    /// A COPY has swallowed the Sync that came with it; the next one counts.
    pub is_sync_swallowed: bool,
    /// The open transaction was begun by the proxy for the statements of one Query, or of one pipeline.
    pub is_implicit: bool,
    /// The last Bind that no shard has seen yet.
    pub(super) bound: Option<BoundUnseen>,
}

impl Session {
    pub(in crate::session) async fn extended(&mut self, tag: u8, body: &[u8]) -> Result<(), SessionEnd> {
        if tag == client_tag::SYNC {
            return self.on_sync().await;
        }
        self.batch.is_open = true;
        if self.batch.has_failed {
            // The error itself leaves without being asked for.
            return Ok(());
        }
        let handled = match tag {
            client_tag::PARSE => self.on_parse(body).await,
            client_tag::BIND => Box::pin(self.on_bind(body)).await,
            client_tag::DESCRIBE => self.on_describe(body).await,
            client_tag::EXECUTE => self.on_execute(body).await,
            client_tag::CLOSE => self.on_close(body).await,
            _ => self.on_flush().await,
        };
        let bounded = match handled {
            Ok(()) => self.bound_batch().await,
            failed => failed,
        };
        match bounded {
            Ok(()) => Ok(()),
            Err(failure) => self.fail_batch(failure).await,
        }
    }

    /// However many messages come before Sync: what waits for it is bounded.
    #[inline]
    async fn bound_batch(&mut self) -> Result<(), Failure> {
        let current = self.current_index().and_then(|index| self.transaction.participants().get(index));
        let is_long = current.is_some_and(|participant| {
            participant.connection.output.len() > OUTPUT_BYTES || participant.connection.pending.len() > PENDING_MAX
        });
        if is_long || self.batch.unproven.len() > PENDING_MAX {
            Box::pin(self.drain_current()).await?;
            // The others have been parsed.
            let unanswered = self.batch.unanswered.as_ref().map(|statement| statement.id);
            self.batch.unproven.retain(|(_, id)| Some(*id) == unanswered);
        }
        if self.client.output.len() > OUTPUT_BYTES {
            self.client.flush().await?;
        }
        Ok(())
    }

    /// The error goes out after the answers to what came before it; then everything is skipped until Sync.
    pub(in crate::session) async fn fail_batch(&mut self, failure: Failure) -> Result<(), SessionEnd> {
        if let Failure::End(end) = failure {
            return Err(end);
        }
        let failure = match failure {
            // Of what a shard has skipped.
            Failure::Forwarded => Failure::Forwarded,
            // What was parsed before it has not been proven right.
            later => match self.answer_parse().await {
                Ok(()) => later,
                Err(Failure::End(end)) => return Err(end),
                Err(earlier) => earlier,
            },
        };
        if let Some(index) = self.current_index()
            && let Err(earlier) = self.drain_with_flush(index).await
        {
            // An earlier message failed: that is the error the client hears.
            self.batch.has_failed = true;
            return self.settle(earlier);
        }
        self.batch.has_failed = true;
        self.settle(failure)?;
        if let Some(bound) = self.batch.bound.take() {
            bound.take_back(&mut self.client);
        }
        Ok(())
    }

    async fn on_parse(&mut self, body: &[u8]) -> Result<(), Failure> {
        let parse = wire::parse(body)?;
        self.answer_parse().await?;
        let name = Bytes::copy_from_slice(parse.name);
        if name.is_empty() {
            // It is gone, whatever becomes of the new one.
            self.statements.remove(&name);
            self.batch.is_unnamed_in_doubt |= self.has_requests_waiting();
        } else {
            self.drain_current().await?;
        }
        let statement = self.prepare(parse.text, parse.types().collect()).await?;
        self.run_prepared(&statement);
        if let Some(analysis) = statement.analysis() {
            command::check_not_failed(self, &analysis.command)?;
        }
        self.check_name_is_free(&name, parse.text.len())?;
        whereabouts::describe_if_fetch(self, &statement).await?;
        self.statements.insert(name.clone(), Arc::clone(&statement));
        self.cycle.note_name(&name);
        let is_described = statement.description.get().is_some() || command::describe_own(self, &statement).is_some();
        if is_described || self.gateway.descriptions.contains_key(&statement.id) {
            self.answer(shard_tag::PARSE_COMPLETE);
        } else {
            self.batch.unproven.push((name, statement.id));
            self.batch.unanswered = Some(statement);
        }
        Ok(())
    }

    /// Reads a text that is to be prepared.
    pub(in crate::session) async fn prepare(&mut self, text: &[u8], types: Box<[u32]>) -> Result<Arc<Statement>, Failure> {
        let text_str = std::str::from_utf8(text).map_err(|_| super::simple::invalid_encoding())?;
        redefined::refresh_context_for(self, text_str).await?;
        let read = schema::read_anew(self, text_str).await?;
        if read.analyzed.statements.len() > 1 {
            return Err(PgError::new(SqlState::SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement").into());
        }
        let key = self.statement_text(Bytes::copy_from_slice(text), types);
        let id = self.gateway.registry.id(&key);
        Ok(Arc::new(Statement::new(id, key, read.analyzed, self.context.id, read.literals).made_now()))
    }

    /// A text with what its names mean now.
    pub(in crate::session) fn statement_text(&self, text: Bytes, types: Box<[u32]>) -> Arc<StatementText> {
        let search_path = Arc::clone(&self.reading.search_path);
        let (constants, parsed) = self.constants_of(&text);
        Arc::new(StatementText { text, types, catalog_version: temporary::schema_version(self), search_path, constants, parsed })
    }

    /// A text that was made of a statement, to run in its place.
    pub(in crate::session) fn made_of(&self, statement: &Statement, text: Bytes, types: Box<[u32]>) -> Statement {
        let key = self.statement_text(text, types);
        Statement::new(self.gateway.registry.id(&key), key, Arc::clone(&statement.analyzed), 0, Literals::new())
    }

    /// What each of several shards runs, made of a statement.
    pub(in crate::session) fn fragment_of_text(
        &self,
        statement: &Statement,
        text: String,
        types: &[u32],
        reach: &Reach,
    ) -> Result<Statement, PgError> {
        let covered = cover(text, &self.context, reach.map())?;
        Ok(Statement { covered: Some(covered.clone()), ..self.made_of(statement, covered.text().clone(), types.into()) })
    }

    /// Names in it mean what they meant when it was made.
    pub(in crate::session) fn means_the_same(&self, statement: &Statement) -> bool {
        let key = &statement.key;
        key.catalog_version == temporary::schema_version(self)
            && (Arc::ptr_eq(&key.search_path, &self.reading.search_path) || *key.search_path == *self.reading.search_path)
            && self.reads_constants_alike(&key.constants)
    }

    /// It was read as it would be now.
    #[inline]
    pub(in crate::session) fn is_current(&self, statement: &Statement) -> bool {
        statement.context_id == self.context.id && self.means_the_same(statement)
    }

    /// The Parse that is still unanswered: the home shard says whether it is right.
    pub(in crate::session) async fn answer_parse(&mut self) -> Result<(), Failure> {
        if let Some(statement) = self.batch.unanswered.take() {
            self.describe(&statement).await?;
            self.answer(shard_tag::PARSE_COMPLETE);
        }
        Ok(())
    }

    /// An error of a shard skips what came after it. Which of several unnamed statements was before it is not known: there is none then.
    pub(in crate::session) fn forget_unnamed_in_doubt(&mut self) {
        if std::mem::take(&mut self.batch.is_unnamed_in_doubt) {
            self.statements.remove(&Bytes::new());
        }
    }

    /// A shard has refused this text: names that were given to it in this batch do not exist, and its Parse has its answer, which is
    /// not asked for again in a transaction that has failed by it.
    pub(in crate::session) fn forget_unproven(&mut self, id: StatementId) {
        self.batch.unanswered.take_if(|unanswered| unanswered.id == id);
        for (name, _) in self.batch.unproven.extract_if(.., |(_, unproven)| *unproven == id) {
            if self.statements.get(&name).is_some_and(|statement| statement.id == id) {
                self.statements.remove(&name);
            }
        }
    }

    /// A bodyless answer of the proxy's own, in its place among those of the current shard.
    pub(super) fn answer(&mut self, tag: u8) {
        let current = self.batch.current;
        let waiting = self
            .transaction
            .participants_mut()
            .iter_mut()
            .find(|participant| Some(participant.shard) == current && !participant.connection.pending.is_empty());
        match waiting {
            Some(participant) => participant.connection.expect(Reply::Local(tag), true),
            None => originate::bare(&mut self.client.output, tag),
        }
    }

    fn statement(&self, name: &[u8]) -> Result<Arc<Statement>, PgError> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name))
            };
            PgError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    /// The statement, read again when names may mean something else by now.
    pub(in crate::session) async fn current_statement(&mut self, name: &[u8]) -> Result<Arc<Statement>, Failure> {
        let statement = self.statement(name)?;
        redefined::refresh_context_for(self, statement.text()).await?;
        if self.is_current(&statement) && !schema::is_in_doubt(self, &statement.analyzed) {
            return Ok(statement);
        }
        let read = schema::read_anew(self, statement.text()).await?;
        let told = self.told(&statement);
        let types = told.as_ref().map_or_else(|| statement.key.types.clone(), |told| told.parameter_types.clone().into());
        let key = self.statement_text(statement.key.text.clone(), types);
        let renewed = Statement::new(self.gateway.registry.id(&key), key, read.analyzed, self.context.id, read.literals);
        if let Some(told) = told {
            let known = if is_fetch(&statement) { &renewed.description } else { &*statement.told };
            known.get_or_init(|| told);
        }
        let renewed = Arc::new(Statement { told: Arc::clone(&statement.told), made: statement.made.clone(), ..renewed });
        self.statements.insert(Bytes::copy_from_slice(name), Arc::clone(&renewed));
        Ok(renewed)
    }

    async fn on_bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        loop {
            let bound = self.bind_once(body).await;
            if !self.cycle.plans_again(&bound) {
                return bound;
            }
        }
    }

    async fn bind_once(&mut self, body: &[u8]) -> Result<(), Failure> {
        let bind = wire::bind(body)?;
        let statement = self.current_statement(bind.statement).await?;
        self.run_prepared(&statement);
        self.cycle.note_statement(statement.analysis().map(|analysis| &analysis.command));
        if statement.analysis().is_some_and(|analysis| cluster_state::asks_cluster(self, analysis)) {
            return Box::pin(cluster_state::bind_about_cluster(self, statement, body)).await;
        }
        cluster_state::bind_as_it_is(self, statement, body).await
    }

    /// A statement that draws numbers from sequences.
    pub(in crate::session) async fn bind_numbered(&mut self, statement: Arc<Statement>, body: &[u8]) -> Result<(), Failure> {
        let bind = wire::bind(body)?;
        let Some(analysis) = statement.analysis() else { return Err(PgError::internal("no statement").into()) };
        command::check_not_failed(self, &analysis.command)?;
        if numbers::draws(self, analysis) && Self::check_parameter_count(&statement, &bind).is_ok() {
            // What PostgreSQL has to say against the statement is about the client's own text.
            self.answer_parse().await?;
            self.describe(&statement).await?;
            if let Some((changed, body)) = Box::pin(numbers::draw_for_bind(self, &statement, body)).await? {
                let bind = wire::bind(&body)?;
                return self.bind_statement(changed, &bind, &body).await;
            }
        }
        self.bind_statement(statement, &bind, body).await
    }

    pub(in crate::session) async fn bind_statement(
        &mut self,
        statement: Arc<Statement>,
        bind: &wire::Bind<'_>,
        body: &[u8],
    ) -> Result<(), Failure> {
        if self.batch.unanswered.as_ref().is_some_and(|unanswered| unanswered.id != statement.id) {
            self.answer_parse().await?;
        }
        let portal = Bytes::copy_from_slice(bind.portal);
        self.batch.bound = None;
        if !portal.is_empty() {
            self.check_kept_bytes(body.len())?;
        }
        if !self.open_cursors.is_empty() {
            cursor::replace_portal(self, &portal).await?;
        }
        let Some(analysis) = statement.analysis().filter(|analysis| !crate::session::commands::command::is_own(&analysis.command))
        else {
            self.answer_parse().await?;
            if let Some(analysis) = statement.analysis() {
                command::check_not_failed(self, &analysis.command)?;
                if crate::session::commands::command::takes_parameters(&analysis.command) {
                    Self::check_parameter_count(&statement, bind)?;
                }
            }
            return self.keep_own_portal(portal, statement, bind, body).await;
        };
        command::check_not_failed(self, &analysis.command)?;
        if let Err(mismatch) = Self::check_parameter_count(&statement, bind) {
            self.answer_parse().await?;
            return Err(mismatch.into());
        }
        if crate::session::commands::inner_query::has_inner_query(&analysis.command)
            && Box::pin(inner_query::runs_inner_query(self, &statement, bind)).await?
        {
            self.answer_parse().await?;
            return self.keep_own_portal(portal, statement, bind, body).await;
        }
        let described = self.parameter_types(&statement, bind).await?;
        let types = described.as_ref().map_or(&*statement.key.types, |description| &description.parameter_types);
        let inputs = Inputs::bound(statement.text(), &statement.literals, bind, types);
        relations::allow_declaration(self, &analysis.scope, &portal)?;
        let route = match self.route(analysis, &inputs).await {
            Ok(route) => route,
            Err(failure) => {
                // What PostgreSQL has to say against the statement comes first.
                self.answer_parse().await?;
                self.count_refusal(&failure);
                return Err(failure);
            }
        };
        if analysis.numbers != Numbers::None {
            numbers::note_numbers_of(self, analysis.numbers, &route);
        }
        let of_block = needs_block(&statement).map(|what| (portal.clone(), what));
        self.bind_routed(route, statement, (bind, body), portal).await?;
        self.note_needs_block(of_block);
        Ok(())
    }

    async fn bind_routed(
        &mut self,
        route: Route,
        statement: Arc<Statement>,
        (bind, body): (&wire::Bind<'_>, &[u8]),
        portal: Bytes,
    ) -> Result<(), Failure> {
        let Some(analysis) = statement.analysis() else { return Err(PgError::internal("no statement").into()) };
        match route {
            Route::Shard(reach) => {
                self.check_portal_is_new(&portal, reach.single())?;
                match self.reads_other_clock(analysis, reach.single())? {
                    true => Box::pin(self.bind_with_time(&reach, statement, bind, portal)).await,
                    false => self.bind_on_shard(&reach, statement, bind, portal).await,
                }
            }
            Route::Scatter(reach) => {
                self.check_bound_to_several(&portal, &statement, bind).await?;
                let bind = Bytes::copy_from_slice(body);
                self.keep_portal(portal.clone(), Portal::Scatter { statement, bind, reach });
                Box::pin(portal::portal_bound(self, &portal)).await?;
                self.answer_bind(portal).await
            }
            Route::Write(writing) => {
                self.check_bound_to_several(&portal, &statement, bind).await?;
                let bind = Bytes::copy_from_slice(body);
                self.keep_portal(portal.clone(), Portal::Write { statement, bind, writing });
                self.answer_bind(portal).await
            }
            Route::Gather(gathering) => {
                self.check_bound_to_several(&portal, &statement, bind).await?;
                let bind = Bytes::copy_from_slice(body);
                self.keep_portal(portal.clone(), Portal::Gather { statement, bind, gathering });
                Box::pin(portal::portal_bound(self, &portal)).await?;
                self.answer_bind(portal).await
            }
        }
    }

    /// The answer to the Bind of a portal over several shards.
    async fn answer_bind(&mut self, portal: Bytes) -> Result<(), Failure> {
        self.drain_current().await?;
        self.batch.bound = Some(BoundUnseen::new(portal, &self.client));
        self.answer(shard_tag::BIND_COMPLETE);
        Ok(())
    }

    /// As PostgreSQL says it, with the client's name of the statement.
    pub(in crate::session) fn check_parameter_count(statement: &Statement, bind: &wire::Bind<'_>) -> Result<(), PgError> {
        let highest = statement.analysis().map_or(0, |analysis| usize::from(analysis.parameter_count));
        let required = highest.max(statement.key.types.len());
        if bind.parameter_count == required {
            return Ok(());
        }
        let (supplied, name) = (bind.parameter_count, String::from_utf8_lossy(bind.statement));
        let message = format!("bind message supplies {supplied} parameters, but prepared statement \"{name}\" requires {required}");
        Err(PgError::new(SqlState::PROTOCOL_VIOLATION, message))
    }

    /// Parameter types as PostgreSQL infers them; needed only where a key is a parameter that the client did not declare.
    async fn parameter_types(
        &mut self,
        statement: &Arc<Statement>,
        bind: &wire::Bind<'_>,
    ) -> Result<Option<Arc<Description>>, Failure> {
        let is_declared = statement.key.types.len() >= bind.parameter_count && !statement.key.types.contains(&0);
        let has_key_parameters = statement.analysis().is_some_and(crate::routing::uses_parameters);
        if is_declared || !has_key_parameters {
            return Ok(None);
        }
        self.describe(statement).await.map(Some)
    }

    pub(in crate::session) async fn bind_on_shard(
        &mut self,
        reach: &Reach,
        statement: Arc<Statement>,
        bind: &wire::Bind<'_>,
        portal: Bytes,
    ) -> Result<(), Failure> {
        let shard = reach.single().ok_or_else(|| PgError::internal("several shards as one"))?;
        if self.batch.current != Some(shard) {
            if let Some(index) = self.current_index() {
                self.drain_with_flush(index).await?;
            }
            self.batch.current = Some(shard);
        }
        let described = self.description_for_nested(shard, &statement, bind).await?;
        let index = self.join(shard).await?;
        if let Some(analysis) = statement.analysis() {
            numbers::check_sequence_value(self, index, analysis)?;
            self.pin_if_needed(index, analysis);
        }
        let is_due = self.batch.unanswered.take().is_some_and(|unanswered| unanswered.id == statement.id);
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.needs_sync = true;
        }
        self.prepare_as_told(index, &statement, is_due).await?;
        let participant = self.transaction.at(index)?;
        participant.has_written |= statement.analysis().is_some_and(|analysis| analysis.effect == Effect::Write);
        let connection = &mut *participant.connection;
        let oids = Arc::clone(&connection.oids);
        let described = described.as_ref();
        let rows = described.and_then(|description| description.rows.as_deref());
        let nested = rows.map_or_else(NestedValues::default, |rows| oids.nested_columns(rows, bind));
        let there = described.and_then(|description| oids.parameters_there(&description.parameter_types, bind, bind.after_names));
        let after_names = there.as_deref().unwrap_or(bind.after_names);
        let text = statement.text_for(reach)?;
        connection.output.bind(&portal, StatementName::Registered(statement.id), &text, after_names);
        connection.expect(Reply::Bind, true);
        let (number, may_set) = (connection.unnamed_portal(), self.has_unread_settings());
        self.keep_portal(portal, Portal::Shard { shard, nested, number, run: Run::NotYet, may_set });
        Ok(())
    }

    /// What the home shard says of the statement, where another one is asked for values in binary form: they may name types.
    async fn description_for_nested(
        &mut self,
        shard: ShardId,
        statement: &Arc<Statement>,
        bind: &wire::Bind<'_>,
    ) -> Result<Option<Arc<Description>>, Failure> {
        let has_binary = bind.has_binary_results() || bind.has_binary_parameters();
        if !has_binary || self.gateway.map.snapshot().home().is_none_or(|home| home.id == shard) {
            return Ok(None);
        }
        self.answer_parse().await?;
        match is_fetch(statement) {
            // Of its cursor now.
            true => Ok(Some(Arc::new(Box::pin(whereabouts::describe_fetch(self, statement)).await?))),
            false => self.describe(statement).await.map(Some),
        }
    }

    async fn on_describe(&mut self, body: &[u8]) -> Result<(), Failure> {
        let target = wire::describe(body)?;
        if matches!(target, Target::Portal(_)) {
            self.answer_parse().await?;
        }
        match target {
            Target::Statement(name) => {
                let statement = self.statement(name)?;
                // What returns no rows is described in a failed transaction too.
                let has_rows = self.told(&statement).is_none_or(|told| told.rows.is_some());
                if let Some(analysis) = statement.analysis().filter(|_| has_rows) {
                    command::check_not_failed(self, &analysis.command)?;
                }
                self.answer_parse().await?;
                self.describe_statement(&statement, name).await
            }
            Target::Portal(name) => match self.portals.get(name) {
                Some(Portal::Shard { shard, number, .. }) => {
                    let (shard, number) = (*shard, *number);
                    self.describe_on_shard(shard, name, Some(number)).await
                }
                portal => match portal.and_then(Portal::bound) {
                    Some((statement, bind)) => {
                        let (statement, bind) = (Arc::clone(statement), bind.clone());
                        self.describe_portal(&statement, &bind).await
                    }
                    None => self.describe_cursor(name).await,
                },
            },
        }
    }

    /// Of a cursor that DECLARE has made: server-side cursors of drivers are asked so for their columns.
    async fn describe_cursor(&mut self, name: &[u8]) -> Result<(), Failure> {
        if let Some(cursor) = std::str::from_utf8(name).ok().and_then(|name| self.cursors.get(name)) {
            return self.describe_on_shard(cursor.shard, name, None).await;
        }
        let rows = self.open_cursors.rows(name).ok_or_else(|| no_portal(name))?;
        command::check_transaction(self)?;
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        self.put_rows(Some(&rows), &[])?;
        Ok(())
    }

    async fn describe_on_shard(&mut self, shard: ShardId, name: &[u8], number: Option<u32>) -> Result<(), Failure> {
        let write = |connection: &mut Connection| {
            connection.output.describe_portal(name);
            connection.expect(Reply::DescribePortal, true);
        };
        match number {
            Some(number) => portal::forward_to_portal(self, shard, name, number, write).await,
            None => self.forward(shard, write).await,
        }
    }

    async fn describe_statement(&mut self, statement: &Arc<Statement>, name: &[u8]) -> Result<(), Failure> {
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        let is_execution = statement.analysis().is_some_and(|analysis| matches!(analysis.command, Command::Execute { .. }));
        let told = if is_execution { None } else { self.told(statement) };
        let described = match &told {
            // Without rows there is nothing that could have become other; nor is what a FETCH gave when it was parsed.
            Some(told) if told.rows.is_none() || is_fetch(statement) => Ok(Arc::clone(told)),
            Some(_) | None => self.description_now(statement, name).await,
        };
        // The parameters are what they were, whatever has become of the rest.
        let parameters = described.as_ref().ok().or(told.as_ref()).map(|description| &description.parameter_types[..]);
        if let Some(types) = parameters.or(is_execution.then_some(&[])) {
            originate::parameter_description(&mut self.client.output, types);
        }
        self.put_rows(described?.rows.as_deref(), &[])?;
        Ok(())
    }

    async fn description_now(&mut self, statement: &Arc<Statement>, name: &[u8]) -> Result<Arc<Description>, Failure> {
        if let Some(own) = prepare::describe_by_itself(self, statement).await? {
            return Ok(Arc::new(own));
        }
        let statement = self.current_statement(name).await?;
        self.describe(&statement).await
    }

    async fn describe_portal(&mut self, statement: &Arc<Statement>, bind: &[u8]) -> Result<(), Failure> {
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        let bind = wire::bind(bind)?;
        let description = match prepare::describe_by_itself(self, statement).await? {
            Some(description) => Arc::new(description),
            None => self.describe(statement).await?,
        };
        self.put_rows(description.rows.as_deref(), bind.result_formats)?;
        Ok(())
    }

    fn put_rows(&mut self, rows: Option<&[u8]>, formats: &[u8]) -> Result<(), PgError> {
        match rows {
            Some(rows) => put_with_formats(&mut self.client.output, rows, formats)?,
            None => originate::bare(&mut self.client.output, shard_tag::NO_DATA),
        }
        Ok(())
    }

    /// A message about something that lives on one shard.
    pub(in crate::session) async fn forward(&mut self, shard: ShardId, write: impl FnOnce(&mut Connection)) -> Result<(), Failure> {
        if self.batch.current != Some(shard) {
            if let Some(index) = self.current_index() {
                self.drain_with_flush(index).await?;
            }
            self.batch.current = Some(shard);
        }
        let index = self.join(shard).await?;
        let participant = self.transaction.at(index)?;
        participant.needs_sync = true;
        write(&mut participant.connection);
        Ok(())
    }

    async fn on_close(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.answer_parse().await?;
        match wire::close(body)? {
            Target::Statement(name) => {
                self.drain_current().await?;
                self.statements.remove(name);
                self.answer(shard_tag::CLOSE_COMPLETE);
                Ok(())
            }
            Target::Portal(name) => match self.portals.remove(name) {
                Some(Portal::Shard { shard, .. })
                    if self.transaction.participants().iter().any(|participant| participant.shard == shard) =>
                {
                    let write = |connection: &mut Connection| {
                        connection.output.close_portal(name);
                        connection.expect(Reply::Close, true);
                    };
                    self.forward(shard, write).await
                }
                Some(
                    Portal::Shard { .. }
                    | Portal::Own { .. }
                    | Portal::Scatter { .. }
                    | Portal::Write { .. }
                    | Portal::Gather { .. }
                    | Portal::Finished { .. }
                    | Portal::Spent { .. },
                )
                | None => {
                    if !self.open_cursors.is_empty() {
                        cursor::close_cursor(self, name).await?;
                    }
                    self.answer(shard_tag::CLOSE_COMPLETE);
                    Ok(())
                }
            },
        }
    }

    pub(in crate::session) async fn on_flush(&mut self) -> Result<(), Failure> {
        self.answer_parse().await?;
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        self.client.flush().await?;
        Ok(())
    }

    pub(in crate::session) async fn on_sync(&mut self) -> Result<(), SessionEnd> {
        if !self.batch.has_failed
            && let Err(failure) = self.answer_parse().await
        {
            self.fail_batch(failure).await?;
        }
        // What ran in this batch outside a transaction must not be committed when the batch has failed elsewhere.
        let mut must_abort = self.batch.has_failed && !self.transaction.is_open();
        let mut has_failed = false;
        let current = self.current_index();
        let others = (0..self.transaction.participants().len()).rev().filter(|index| Some(*index) != current);
        let order: Vec<usize> = current.into_iter().chain(others).collect();
        let shards: Vec<ShardId> =
            order.iter().filter_map(|index| Some(self.transaction.participants().get(*index)?.shard)).collect();
        for shard in shards {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            if must_abort {
                self.abort_implicit(index);
            }
            if !self.sync_with_one_error(index, has_failed || self.batch.has_failed).await? {
                has_failed = true;
                // Heard of only now: the other shards have not been told to commit yet.
                must_abort = !self.transaction.is_open();
            }
        }
        if std::mem::take(&mut self.batch.is_sync_swallowed) {
            self.batch.has_failed |= has_failed;
            return self.client.flush().await;
        }
        has_failed |= self.batch.has_failed;
        self.end_batch(!must_abort).await?;
        self.end_cycle(has_failed).await
    }

    /// Nothing is owed any more. `is_right`: no shard has been told to undo what ran outside of a transaction.
    pub(in crate::session) async fn end_batch(&mut self, is_right: bool) -> Result<(), SessionEnd> {
        if std::mem::take(&mut self.batch.is_implicit) {
            // Several shards were written in this pipeline: it ends as one transaction.
            self.end_implicit().await?;
        }
        let has_failed = std::mem::take(&mut self.batch).has_failed;
        let is_committed = !has_failed && is_right;
        if !self.transaction.is_open() {
            self.portals.clear();
            held::forget_cursors_of_shards(self, is_committed);
            if !self.open_cursors.is_empty()
                && let Err(failure) = Box::pin(held::end_cursors_of_pipeline(self, is_committed)).await
            {
                self.settle(failure)?;
            }
        }
        Ok(())
    }

    async fn end_implicit(&mut self) -> Result<(), SessionEnd> {
        if self.batch.has_failed || self.transaction.status == crate::session::transaction::Status::Failed {
            return command::rollback_everywhere(self).await;
        }
        match Box::pin(command::commit_everywhere(self)).await {
            Ok(()) => Ok(()),
            Err(failure) => self.settle(failure),
        }
    }

    /// Makes the shard roll back what the batch did there: a Bind of a statement that does not exist fails its implicit
    /// transaction.
    pub(in crate::session) fn abort_implicit(&mut self, index: usize) {
        if let Some(participant) = self.transaction.participants_mut().get_mut(index)
            && participant.needs_sync
        {
            let connection = &mut *participant.connection;
            connection.output.bind_missing();
            connection.expect(Reply::Abort, false);
        }
    }
}

/// Requests, and answers, are collected up to this size before they leave.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Requests that a shard has not answered.
const PENDING_MAX: usize = 4096;
