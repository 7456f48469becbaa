//! What one client connection owns, from login to its end, and the cycle in which it is served.
//!
//! One task owns the client's socket and, while a statement needs them, the shards' connections: no channel lies between. A
//! cycle is what the client waits for: a Query, or messages up to Sync or Flush. Within it, messages are handled in order; each
//! is answered by the proxy itself or appended to a shard's output, and the answers are relayed in the order of the messages.
//!
//! ```text
//!   run ─ frame ─► simple    (Query: each statement by itself, or the whole text to one shard)
//!            └───► extended  (Parse, Bind, Describe, Execute, Close; Sync and Flush end the cycle)
//!                      │ command   what the proxy answers: transactions, settings, prepared statements, shardgate.*
//!                      │ join      a shard joins: connection, settings, BEGIN, savepoints
//!                      └ drain     answers to the client: relay, COPY
//! ```
//!
//! What every statement needs is methods of [`Session`]: the client's protocol, settings, the transaction, and the files beside this
//! one. Each way of answering (`reads`, `writes`, `copy`, `cursor`, `commands`, `sequences`, `ddl`) is functions that take the
//! session, so that a file's imports say whom it asks.
//!
//! The state of the transaction is the session's. Nothing of one session reaches another: a connection goes back to its pool
//! only when it is proven clean, with the settings it has on record.

mod cancel;
mod commands;
mod copy;
mod cursor;
mod cycle;
mod ddl;
mod failure;
mod gateway;
mod interrupted;
mod pinned_map;
mod protocol;
mod reads;
mod resolve;
mod route;
mod sequences;
mod settings;
mod stop;
mod stopwatch;
mod transaction;
mod writes;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

pub use cancel::{CancelKey, CancelRegistry};
pub use ddl::drift::DriftLook;
pub use gateway::Gateway;

use crate::auth::BackendCredentials;
use crate::backend::{ConnectionError, CustomNames, Pool, Settings};
use crate::error::{PgError, SqlState};
use crate::net::ClientStream;
use crate::shardmap::{MapSnapshot, ShardId};
use crate::sql::utility::cluster_state::Rewritten;
use crate::sql::{Context, RecentTemplates};
use crate::telemetry::ConnectionOutcome;
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, client_tag, originate};
use cancel::CancelTarget;
use commands::clients::{Backend, ClientRow, Held};
use commands::listening::{Listening, name_sender};
use commands::temporary::TemporaryTables;
use cursor::{Cursors, HELD_CURSOR, OnShard};
use cycle::{Cycle, Met};
use failure::{Failure, SessionEnd};
use protocol::client::Client;
use protocol::extended::Batch;
use protocol::greet::Greeting;
use protocol::named::Named;
use protocol::panicked::RunningStatement;
use protocol::relay;
use protocol::statement::{Portal, Statement};
use reads::overflow::OpenOverflows;
use reads::staying::NotStaying;
use sequences::numbers::DrawnNumbers;
use settings::current_user::Roles;
use settings::defaults::Defaults;
use settings::effects::RunningEffects;
use settings::outdated::BoundPortals;
use stopwatch::Stopwatch;
use transaction::Transaction;
use transaction::participant::Participant;
use transaction::waits::Waiting;

/// Who the client is, as login found out.
pub struct Identity {
    pub user: String,
    pub is_admin: bool,
    pub credentials: BackendCredentials,
    /// Startup parameters other than user, database and replication.
    pub parameters: Vec<(String, String)>,
}

/// A client after its login.
pub struct Connected {
    pub stream: ClientStream,
    /// What the client has sent after its startup.
    pub input: BytesMut,
    /// What login has left to be sent.
    pub reply: BytesMut,
    pub address: SocketAddr,
    pub accepted_at: Instant,
    /// The first ReadyForQuery has gone out by then, or the connection is closed.
    pub login_deadline: tokio::time::Instant,
    /// Index of the runtime that the session lives on.
    pub runtime: usize,
}

pub struct Session {
    gateway: Arc<Gateway>,
    login: Login,
    client: Client,
    cancel: Arc<CancelTarget>,
    transaction: Transaction,
    /// What the client waits for: its messages as they came, and how far they have been handled.
    cycle: Cycle,
    batch: Batch,
    running: Running,
    staging: StagingState,
    statements: Named<Arc<Statement>>,
    portals: Named<Portal>,
    /// Cursors made by DECLARE on one shard: where they are, and how long they live.
    cursors: HashMap<String, OnShard>,
    /// Cursors and portals over several shards.
    open_cursors: Cursors,
    /// What the client has set; every connection gets the same before it serves the client.
    settings: Arc<Settings>,
    /// Custom settings that the client has ever set: see [`CustomNames`].
    custom_names: CustomNames,
    /// ParameterStatus values as the client last saw them.
    reported: Vec<(Arc<str>, Arc<str>)>,
    roles: Roles,
    /// What names mean.
    context: Arc<Context>,
    reading: Reading,
    recent_templates: RecentTemplates,
    temporary_tables: TemporaryTables,
    listening: Listening,
    drawn: DrawnNumbers,
    /// Side by side with their ids, as every statement looks here.
    pools: Vec<(ShardId, Arc<Pool>)>,
    shown: Shown,
}

/// What does not change from the login on.
struct Login {
    identity: Identity,
    accepted_at: Instant,
    deadline: tokio::time::Instant,
    runtime: usize,
    /// How many logins there were before.
    number: u64,
    cancel_key: CancelKey,
    /// What the client had set when it connected: RESET and DISCARD go back to it.
    settings: Arc<Settings>,
    greeting: Arc<Greeting>,
    /// Those that its settings were last compared with.
    defaults: Arc<Defaults>,
}

/// The statement that runs, or that ran last.
#[derive(Default)]
struct Running {
    /// For the log, if it panics.
    statement: RunningStatement,
    stopwatch: Stopwatch,
    /// Of a text with several statements: the characters before the one that runs.
    characters_before: usize,
    /// What it may leave in the session without being seen.
    effects: RunningEffects,
    portals: BoundPortals,
    /// While a text with the cluster's answers runs: what was made of the client's, and that.
    answered: Option<Box<(Rewritten, String)>>,
}

/// Writes whose queries are answered first.
#[derive(Default)]
struct StagingState {
    /// Where rows of their queries wait that are too many for memory.
    open_overflows: OpenOverflows,
    /// The queries of one are being answered: what they are part of is not answered in stages again.
    is_under_way: bool,
    /// The map by which the first of them was routed.
    planned_by: Option<Arc<MapSnapshot>>,
    /// Statements of which no input can stay where it is after all.
    not_staying: NotStaying,
}

/// What the context was made for.
#[derive(Default)]
struct Reading {
    /// The settings, outside of any transaction, that it belongs to; `None` where that is not known, or where they hold a routing hint.
    settled: Option<Arc<Settings>>,
    search_path_text: String,
    /// The same as [`crate::backend::StatementText`] has it.
    search_path: Arc<str>,
    /// A schema that `"$user"`, which the search path has, means on some shards only.
    schema_of_one_user: Option<String>,
}

/// What `shardgate.clients` shows.
struct Shown {
    row: Arc<ClientRow>,
    /// How many participants, and how many pinned ones, the row shows.
    held: (usize, usize),
}

impl Session {
    pub fn new(gateway: Arc<Gateway>, identity: Identity, connected: Connected) -> Self {
        let Connected { stream, input, reply, address, accepted_at, login_deadline, runtime } = connected;
        let frame_bytes_max = usize::try_from(gateway.config.cross_shard.statement_bytes_max).unwrap_or(usize::MAX / 2);
        let cancel = Arc::new(CancelTarget::default());
        let cancel_key = gateway.cancels.register(&cancel);
        let settings = Arc::new(Settings::default());
        let row = Arc::new(ClientRow::new(address, &identity.user, identity.is_admin));
        gateway.clients.insert(cancel_key.0, Arc::clone(&row));
        Self {
            context: Arc::new(gateway.no_context(&identity.user)),
            client: Client::new(stream, input, reply, frame_bytes_max),
            transaction: Transaction::new(gateway.map.load().generation(), Waiting::new(Arc::clone(&gateway.waits), cancel_key.0)),
            login: Login {
                identity,
                accepted_at,
                deadline: login_deadline,
                runtime,
                number: gateway.next_login(),
                cancel_key,
                settings: Arc::clone(&settings),
                greeting: Arc::default(),
                defaults: Arc::default(),
            },
            gateway,
            cancel,
            cycle: Cycle::default(),
            batch: Batch::default(),
            running: Running::default(),
            staging: StagingState::default(),
            statements: Named::default(),
            portals: Named::default(),
            cursors: HashMap::new(),
            open_cursors: Cursors::default(),
            settings,
            custom_names: CustomNames::default(),
            reported: Vec::new(),
            roles: Roles::default(),
            reading: Reading::default(),
            recent_templates: RecentTemplates::default(),
            temporary_tables: TemporaryTables::default(),
            listening: Listening::default(),
            drawn: DrawnNumbers::default(),
            pools: Vec::new(),
            shown: Shown { row, held: (0, 0) },
        }
    }

    /// Serves the client until it goes, the proxy drains (`stop`) and no transaction is open, or the drain's deadline comes.
    pub async fn run(mut self, stop: &tokio_util::sync::CancellationToken) {
        // The drain has begun before this session was registered: it is not told.
        if stop.is_cancelled() {
            self.cancel.stop.set();
        }
        let end = self.until_the_end_or_a_panic().await;
        if self.transaction.is_open() {
            self.gateway.counters.rollback();
        }
        match end {
            SessionEnd::Fatal(error) => {
                self.gateway.counters.error(&error.code.0);
                // The client would read it as a part of the row.
                let is_within_row = self.is_within_row();
                // First of all: a client that does not read its last message must not keep what the transaction has locked.
                self.let_go();
                if !is_within_row {
                    self.client.say_last(&error).await;
                }
            }
            SessionEnd::ClientGone => {
                Box::pin(self.cancel.cancel()).await;
            }
            SessionEnd::Terminated => {}
        }
        // The catalogues are read anew without waiting for what the transaction has locked.
        self.let_go();
        if let Err(error) = ddl::schema::finish_schema_change(&mut self).await {
            tracing::warn!(%error, "a schema change is left open in the map database");
        }
        self.client.end().await;
    }

    async fn greet_and_serve(&mut self) -> SessionEnd {
        match self.greet_in_time().await {
            Ok(()) => Box::pin(self.serve()).await,
            Err(end) => end,
        }
    }

    /// Has the client a part of a row whose rest has not come from its shard?
    fn is_within_row(&self) -> bool {
        !self.client.is_diverted()
            && self.transaction.participants().iter().any(|participant| participant.connection.frame_bytes_left > 0)
    }

    /// What the session holds of the shards, and of the map. Connections that are not clean are closed, which undoes what they were doing.
    fn let_go(&mut self) {
        self.transaction.let_go();
        self.open_cursors = Cursors::default();
        self.transaction.pinned_map.unpin();
    }

    /// The end of the login, which has one deadline from accept on.
    async fn greet_in_time(&mut self) -> Result<(), SessionEnd> {
        let greeted = tokio::time::timeout_at(self.login.deadline, self.greet()).await;
        let counters = &self.gateway.counters;
        match &greeted {
            Ok(Ok(())) => {
                counters.connection(ConnectionOutcome::Login);
                counters.login_took(self.login.accepted_at.elapsed());
            }
            Ok(Err(SessionEnd::Fatal(_))) => counters.connection(ConnectionOutcome::Refused),
            Ok(Err(SessionEnd::ClientGone | SessionEnd::Terminated)) => counters.connection(ConnectionOutcome::Closed),
            Err(_) => counters.connection(ConnectionOutcome::Timeout),
        }
        greeted.unwrap_or(Err(SessionEnd::Terminated))
    }

    async fn serve(&mut self) -> SessionEnd {
        loop {
            if self.cancel.abort.is_set() {
                return shutting_down();
            }
            if self.cancel.has_left() {
                return SessionEnd::Terminated;
            }
            match self.client.peek() {
                Ok(Some(header)) => {
                    // What a pipeline is answered without a shard: one that does not read waits.
                    if self.client.output.len() >= OUTPUT_BYTES_MAX
                        && let Err(end) = self.client.flush().await
                    {
                        return end;
                    }
                    self.start_stopwatch();
                    let served = match self.serve_at_once(header.tag).await {
                        Ok(false) => self.message(header).await,
                        Ok(true) => Ok(()),
                        Err(end) => Err(end),
                    };
                    if let Err(end) = served {
                        return end;
                    }
                }
                Ok(None) => {
                    if let Err(end) = self.wait_for_client().await {
                        return end;
                    }
                }
                Err(end) => return end,
            }
        }
    }

    /// Handles one whole message at the front of the client's input.
    async fn message(&mut self, header: FrameHeader) -> Result<(), SessionEnd> {
        let is_copied = matches!(header.tag, client_tag::COPY_DATA | client_tag::COPY_DONE | client_tag::COPY_FAIL);
        if is_copied && self.has_requests_waiting() {
            return Box::pin(copy::send_copy(self)).await;
        }
        if header.tag != client_tag::SYNC {
            self.check_not_ending()?;
        }
        let message = self.client.input.split_to(header.total).freeze();
        self.note_message(&message);
        let body = message.slice(FRAME_HEADER_BYTES..);
        self.shown.row.begin();
        self.transaction.note_statement();
        self.forget_running_effects();
        match header.tag {
            client_tag::QUERY => Box::pin(self.query(body)).await,
            client_tag::PARSE
            | client_tag::BIND
            | client_tag::DESCRIBE
            | client_tag::EXECUTE
            | client_tag::CLOSE
            | client_tag::SYNC
            | client_tag::FLUSH => self.extended(header.tag, &body).await,
            // Leftovers of a COPY that has failed: PostgreSQL ignores them too.
            client_tag::COPY_DATA | client_tag::COPY_DONE | client_tag::COPY_FAIL => Ok(()),
            // As everything after an error, until Sync.
            client_tag::FUNCTION_CALL if self.batch.has_failed => Ok(()),
            client_tag::TERMINATE => Err(SessionEnd::Terminated),
            client_tag::FUNCTION_CALL => Box::pin(self.function_call(&body)).await,
            tag => {
                Err(SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, format!("invalid frontend message type {tag}"))))
            }
        }
    }

    /// Sends what is due, then waits for the client; meanwhile watches connections that are pinned.
    async fn wait_for_client(&mut self) -> Result<(), SessionEnd> {
        self.unpin_answered();
        if !self.client.output.is_empty() && (self.client.is_due || !self.batch.is_open || self.batch.has_failed) {
            self.client.flush().await?;
        }
        let is_stoppable = !self.transaction.is_open() && !self.batch.is_open;
        if is_stoppable && self.cancel.stop.is_set() {
            return Err(shutting_down());
        }
        if is_stoppable {
            commands::listening::check_listening(self)?;
        }
        self.transaction.is_committing = false;
        if self.transaction.participants().is_empty() {
            let (client, stop) = (&mut self.client, &self.cancel.stop);
            self.cancel.rest(true);
            let filled = std::future::poll_fn(|context| match client.poll_fill(context) {
                Poll::Pending if is_stoppable && stop.poll(context).is_ready() => Poll::Ready(Err(shutting_down())),
                filled => filled,
            })
            .await;
            self.cancel.rest(false);
            filled
        } else {
            self.wait_beside_participants(is_stoppable).await
        }
    }

    /// As above, with connections in hand: a notification, or their end, may come at any time. Of a session that listens,
    /// connections that its transaction does not use are not read meanwhile: what they have to tell waits in the shard.
    async fn wait_beside_participants(&mut self, is_stoppable: bool) -> Result<(), SessionEnd> {
        enum Event {
            Client(Result<(), SessionEnd>),
            Shard(usize, Result<(), ConnectionError>),
        }
        // Outside of a transaction block a client that has sent Flush and no Sync holds the connection for nothing.
        let idle_max =
            (self.batch.is_open && !self.transaction.is_open()).then(|| self.gateway.config.cross_shard.idle_in_pipeline_timeout());
        let reads_all = is_stoppable || !self.listening.is_active();
        let (client, participants, stop) = (&mut self.client, self.transaction.participants_mut(), &self.cancel.stop);
        self.cancel.rest(true);
        let event = tokio::select! {
            biased;
            () = idle(idle_max) => Event::Client(Err(idle_in_pipeline())),
            // Looked at when it is waited again.
            () = self.listening.map_changed(), if is_stoppable => Event::Client(Ok(())),
            event = std::future::poll_fn(|context| {
                if let Poll::Ready(filled) = client.poll_fill(context) {
                    return Poll::Ready(Event::Client(filled));
                }
                if is_stoppable && stop.poll(context).is_ready() {
                    return Poll::Ready(Event::Client(Err(shutting_down())));
                }
                for (index, participant) in participants.iter_mut().enumerate() {
                    if !(reads_all || participant.has_begun || participant.needs_sync) {
                        continue;
                    }
                    if let Poll::Ready(filled) = participant.connection.poll_fill(context) {
                        return Poll::Ready(Event::Shard(index, filled));
                    }
                }
                Poll::Pending
            }) => event,
        };
        self.cancel.rest(false);
        match event {
            Event::Client(Ok(())) if is_stoppable => self.leave_old_addresses(),
            Event::Client(filled) => filled,
            Event::Shard(index, Ok(())) => match self.step(index) {
                // Its last words; what they mean is said with the next statement.
                Ok((relay::Step::Lost(error), _)) => {
                    let error = self.with_lost_shard(index, error);
                    self.lost_between_statements(index, error).await
                }
                Ok((step, has_failed)) => {
                    let has_failed = match step {
                        relay::Step::CopyIn => {
                            self.note_running(index);
                            match Box::pin(copy::copy_in(self, index)).await {
                                Ok(copy_failed) => has_failed || copy_failed,
                                Err(failure) => {
                                    Box::pin(self.fail_batch(failure)).await?;
                                    has_failed
                                }
                            }
                        }
                        _ => has_failed,
                    };
                    if has_failed {
                        // What was sent without Sync and Flush has failed meanwhile.
                        Box::pin(self.fail_batch(Failure::Forwarded)).await?;
                    }
                    if is_stoppable {
                        self.give_notifications();
                    }
                    self.client.flush().await
                }
                Err(Failure::End(end)) => Err(end),
                Err(failure) => {
                    self.settle(failure)?;
                    self.client.flush().await
                }
            },
            // Said when the client sends its next statement: PostgreSQL would have ended the session here.
            Event::Shard(index, Err(error)) => {
                let name = self
                    .transaction
                    .participants()
                    .get(index)
                    .map(|participant| participant.connection.pool().address.name.clone());
                self.lost_between_statements(index, lost(&name.unwrap_or_default(), &error)).await
            }
        }
    }

    /// What shards have sent to a session that listens. Not within a transaction.
    fn give_notifications(&mut self) {
        let own = self.login.cancel_key.0;
        for participant in self.transaction.participants_mut() {
            let backend = participant.connection.process_id();
            let notifications = &mut participant.connection.notifications;
            if !notifications.is_empty() {
                name_sender(notifications, backend, own);
                self.client.output.extend_from_slice(&notifications.split());
            }
        }
    }

    async fn lost_between_statements(&mut self, index: usize, error: PgError) -> Result<(), SessionEnd> {
        tracing::debug!(%error, "shard lost between statements");
        // What the pipeline has done there would be committed by Sync, and is lost.
        let is_in_pipeline = self.transaction.participants().get(index).is_some_and(|participant| participant.needs_sync);
        match self.remove_lost(index, error, is_in_pipeline) {
            Failure::End(end) => Err(end),
            failure if is_in_pipeline && !self.batch.has_failed => {
                Box::pin(self.fail_batch(failure)).await?;
                self.client.flush().await
            }
            Failure::Error(_) | Failure::Shard(_) | Failure::Forwarded => Ok(()),
        }
    }

    /// A connection that the session cannot go on without was lost at the end of a transaction. The client hears first what has become
    /// of that: it would take the end of its session for a failure, and repeat what is committed.
    fn end_after_answer(&mut self, end: SessionEnd) -> Result<(), SessionEnd> {
        match end {
            SessionEnd::Fatal(error) => {
                self.transaction.ending.get_or_insert(error);
                Ok(())
            }
            SessionEnd::ClientGone | SessionEnd::Terminated => Err(end),
        }
    }

    fn check_not_ending(&mut self) -> Result<(), SessionEnd> {
        self.transaction.ending.take().map_or(Ok(()), |error| Err(SessionEnd::Fatal(error)))
    }

    /// Reports a statement's failure to the client and to the transaction.
    fn settle(&mut self, failure: Failure) -> Result<(), SessionEnd> {
        self.note_failure(&failure);
        match self.naming_views(failure) {
            Failure::Error(error) if error.is_fatal() => return Err(SessionEnd::Fatal(error)),
            Failure::Error(error) if self.is_aborted(&error.code.0) => return Err(shutting_down()),
            Failure::Shard(frame) if self.is_aborted(failure::sqlstate(&frame)) => return Err(shutting_down()),
            Failure::Error(error) => self.fail(error),
            Failure::Shard(frame) => {
                let frame = self.with_deadlock(frame);
                self.gateway.counters.error(failure::sqlstate(&frame));
                self.client.output.extend_from_slice(&frame);
                self.transaction.fail();
            }
            Failure::Forwarded => self.transaction.fail(),
            Failure::End(end) => return Err(end),
        }
        Ok(())
    }

    /// The error of a shard, or that of the deadlock that the statement was cancelled for.
    fn with_deadlock(&mut self, frame: Bytes) -> Bytes {
        let Some(deadlock) = self.transaction.deadlock_of(failure::sqlstate(&frame)) else { return frame };
        self.cycle.note_met(Some(Met::Deadlock));
        let mut out = BytesMut::new();
        originate::error(&mut out, &deadlock);
        out.freeze()
    }

    fn fail(&mut self, error: PgError) {
        let error = match self.transaction.deadlock_of(&error.code.0) {
            Some(deadlock) => {
                self.cycle.note_met(Some(Met::Deadlock));
                deadlock
            }
            None => error,
        };
        self.gateway.counters.error(&error.code.0);
        originate::error(&mut self.client.output, &error);
        self.transaction.fail();
    }

    fn warn(&mut self, code: SqlState, message: &str) {
        originate::error(&mut self.client.output, &PgError::warning(code, message));
    }

    /// For `shardgate.clients`; takes a lock only where that has changed.
    fn show_held(&mut self) {
        let pinned = self.transaction.participants().iter().filter(|participant| participant.pinned_by.is_some()).count();
        let cursors = self.open_cursors.held();
        if self.shown.held == (self.transaction.participants().len(), pinned + cursors) {
            return;
        }
        self.shown.held = (self.transaction.participants().len(), pinned + cursors);
        let name = |participant: &Participant| participant.connection.pool().address.name.clone();
        let mut shards: Vec<String> = self.transaction.participants().iter().map(name).collect();
        let home = self.home().ok().filter(|home| cursors > 0 && !shards.contains(&home.name));
        shards.extend(home.map(|home| home.name.clone()));
        let pinned_by = self.transaction.participants().iter().find_map(|participant| participant.pinned_by);
        let backends =
            self.transaction.participants().iter().filter_map(|participant| participant.connection.cancel_handle.as_deref());
        let backends = backends.map(Backend::of).collect();
        self.shown.row.set_held(Held { shards, pinned_by: pinned_by.or((cursors > 0).then_some(HELD_CURSOR)), backends });
    }

    /// Ends the cycle: connections that are not needed go back, the client hears that it may go on.
    async fn ready(&mut self) -> Result<(), SessionEnd> {
        self.running.statement = RunningStatement::Nothing;
        if self.transaction.is_listed() {
            Box::pin(self.end_wait()).await?;
        }
        if !self.transaction.is_open() {
            if self.has_effects_to_settle() {
                Box::pin(self.settle_effects()).await?;
            }
            self.give_notifications();
        }
        if !self.transaction.is_open()
            && self.transaction.participants().iter().any(|participant| participant.pinned_by.is_some())
            && let Err(failure) = Box::pin(self.end_pins()).await
        {
            self.settle(failure)?;
        }
        self.release_idle();
        self.unpin_answered();
        if !self.transaction.is_open() {
            self.transaction.decider = None;
            self.transaction.claims.clear();
            if self.transaction.schema_change.is_some()
                && let Err(error) = Box::pin(ddl::schema::finish_schema_change(self)).await
            {
                // Made on the shards all the same: what could not be done is to tell the other proxies, who look by themselves.
                self.warn(SqlState::WARNING, &format!("the schema change is not announced to other proxies yet: {error}"));
            }
        }
        if !self.transaction.closed.is_empty() && self.transaction.has_failed_for_good() {
            Box::pin(sequences::altered::reopen_after_failure(self)).await;
        }
        self.stop_stopwatch();
        self.show_held();
        self.shown.row.end(self.transaction.ready_status());
        originate::ready(&mut self.client.output, self.transaction.ready_status());
        self.check_not_ending()?;
        // The next message may be here already: answers to a pipeline leave together.
        if matches!(self.client.peek(), Ok(Some(_))) && self.client.output.len() < PIPELINE_OUTPUT_BYTES {
            self.client.is_due = true;
            return Ok(());
        }
        after_those_who_wait().await;
        self.client.flush().await
    }
}

/// Lets the sessions go first that were woken together with this one: answers to clients then leave side by side. A client
/// process with several connections is woken once for all of them, which costs it and us less than once for each.
async fn after_those_who_wait() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for Session {
    fn drop(&mut self) {
        self.gateway.clients.remove(self.login.cancel_key.0);
        // Last: from here on another session may be given its process id.
        self.gateway.cancels.remove(self.login.cancel_key);
    }
}

fn shutting_down() -> SessionEnd {
    SessionEnd::Fatal(PgError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command"))
}

/// Where the shards have not said in time what has become of the last statement.
fn unanswered() -> PgError {
    PgError::fatal(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, "the outcome of the statement is unknown")
        .with_detail("The connection is terminated due to administrator command, before the shards have answered.")
        .with_hint("Check whether it was applied before you repeat it.")
}

/// Until it has been as long as this; for ever without a limit.
async fn idle(max: Option<Duration>) {
    match max {
        Some(max) => tokio::time::sleep(max).await,
        None => std::future::pending().await,
    }
}

fn idle_in_pipeline() -> SessionEnd {
    let error = PgError::fatal(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "terminating connection because a pipeline was not ended by Sync",
    );
    SessionEnd::Fatal(error.with_detail("The limit is cross_shard.idle_in_pipeline_timeout_ms."))
}

/// The error for a connection that broke in mid-statement.
fn lost(shard: &str, error: &ConnectionError) -> PgError {
    if let ConnectionError::TooMuch { what, setting, bytes_max } = error {
        let message = format!("shard \"{shard}\" has sent {what} of more than {bytes_max} bytes ({setting})");
        return PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
            .with_detail("The proxy keeps it in memory as a whole.")
            .with_hint(format!("Ask for less, or raise {setting}."));
    }
    PgError::new(SqlState::CONNECTION_FAILURE, format!("connection to shard \"{shard}\" was lost"))
        .with_detail(format!("While a statement ran there: {error}."))
        .with_hint("Retry; if the statement wrote outside a transaction, check first whether it was applied.")
}

/// Answers of pipelined cycles are collected up to this size.
const PIPELINE_OUTPUT_BYTES: usize = 16 * 1024;

const OUTPUT_BYTES_MAX: usize = 64 * 1024;
