//! What a statement sets inside of functions, triggers and the like: marked on the connection that runs it, and read back where the
//! names are known.
//!
//! ```text
//!   statement ─ effects? ─ none ─────────────────────────────► nothing to do
//!                 │ marks each connection that it gets
//!                 ├─ settings ─► read back before the next statement, and after the transaction ─► on record
//!                 ├─ kept ─────► the connection is pinned, and closed with the session
//!                 └─ unproven ─► the pool resets the connection before anybody else has it
//! ```
//!
//! In a transaction what was read counts as SET LOCAL for the shards that join: whether it outlives the transaction is known when
//! that has ended, and is read again then. So a rollback, a deferred trigger and a function that sets for the transaction only
//! are all followed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::setting::{IS_SUPERUSER, check_allowed, is_of_user, refused_in_function};
use crate::backend::{Connection, ConnectionError, CustomNames, Own};
use crate::catalog::{ChangedSettings, Kept, SessionEffects, is_custom_name, quoted_literal};
use crate::config::PoolMode;
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::describe::error_frame;
use crate::session::protocol::statement::Portal;
use crate::session::route::Route;
use crate::session::transaction::decider::TEMPORARY_OBJECTS;
use crate::session::transaction::participant::Participant;
use crate::session::transaction::{Status, Told};
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, SessionCall};
use crate::wire::client_tag;

/// What the statement that runs may leave behind.
#[derive(Default)]
pub(in crate::session) struct RunningEffects {
    /// Of all that was sent since the connections were handed out.
    effects: Option<Arc<SessionEffects>>,
    /// Of the statement that is routed, with what its values say.
    of_statement: Option<Arc<SessionEffects>>,
    /// What a text that it gives to a function is told to leave, by its words alone.
    told_by_words: BTreeSet<Kept>,
    /// Custom settings that functions may have set for a transaction.
    names_left: CustomNames,
    /// Where functions of the transaction that ends have set a name last: that is the session's value.
    set_last: BTreeMap<String, ShardId>,
    /// Settings may have been changed since they were read.
    is_stale: bool,
    /// A function of the session's statements may have made prepared statements.
    has_prepared: bool,
}

/// A setting that a connection has and that was not on record.
struct Changed {
    index: usize,
    name: String,
    value: String,
}

impl Session {
    /// Another message of the client begins. Cursors and portals that are open may go on with what they were made for.
    #[inline]
    pub(in crate::session) fn forget_running_effects(&mut self) {
        if self.running.effects.effects.is_some() && self.portals.is_empty() && self.open_cursors.is_empty() {
            self.running.effects.effects = None;
        }
    }

    /// Before the statement is sent anywhere.
    #[inline]
    pub(in crate::session) fn note_effects_of(&mut self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<(), PgError> {
        let changes_schema = matches!(statement.command, Command::Ddl { .. } | Command::Maintenance | Command::Refresh(_));
        self.running.effects.of_statement = None;
        if matches!(statement.command, Command::Fetch { .. }) {
            self.note_effects_of_cursor();
        }
        // What the parts of temporary tables call is not in the catalogue.
        let of_temporary = || statement.has_unknown_names && self.temporary_tables.call_functions();
        match &statement.effects {
            None if of_temporary() => {
                self.note_effects(&Arc::new(SessionEffects { is_unproven: true, ..SessionEffects::default() }))
            }
            None => Ok(()),
            // Done by the session itself.
            Some(_) if matches!(statement.command, Command::SetConfig(_)) => Ok(()),
            Some(effects) if effects.is_of_schema_change && effects.kept.contains(&Kept::PreparedStatement) => Err(prepares()),
            // The session keeps its connections to its end, and what is left on them.
            Some(effects) if effects.is_of_schema_change && !(changes_schema && self.keeps_connections()) => {
                Err(left_by_schema_change())
            }
            Some(effects) => {
                let mut effects = match effects.is_to_be_named() {
                    true => Arc::new(effects.with_names(inputs.constants())),
                    false => Arc::clone(effects),
                };
                if !effects.is_unproven && of_temporary() {
                    Arc::make_mut(&mut effects).is_unproven = true;
                }
                self.check_names_are_known(&effects, changes_schema)?;
                let with_given = with_those_given(&effects, statement, inputs);
                self.running.effects.told_by_words = match effects.kept.contains(&Kept::GivenText) {
                    true => with_given.kept.difference(&effects.kept).copied().collect(),
                    false => BTreeSet::new(),
                };
                effects.custom_settings_of_transaction().for_each(|name| self.running.effects.names_left.insert(name));
                self.running.effects.of_statement = Some(effects);
                let effects = self.counting_now(with_given, statement);
                if effects.leaves_only_names() { Ok(()) } else { self.note_effects(&effects) }
            }
        }
    }

    /// Other shards have to be told what is set. No server says which custom settings there are.
    fn check_names_are_known(&self, effects: &SessionEffects, changes_schema: bool) -> Result<(), PgError> {
        let is_unnamed = effects.kept.contains(&Kept::UnnamedSetting) || effects.kept.contains(&Kept::MadeSetting);
        let is_set = is_unnamed && (!changes_schema || effects.is_of_schema_change);
        if is_set && !self.context.map.tables.is_empty() { Err(unnamed_setting()) } else { Ok(()) }
    }

    /// What is set for the transaction counts where more statements may follow in it, which may be on other shards.
    fn counting_now(&mut self, effects: Arc<SessionEffects>, statement: &Analysis) -> Arc<SessionEffects> {
        if effects.settings_of_transaction.is_nothing() {
            return effects;
        }
        let has_others = self.gateway.map.load().shards.len() > 1;
        let is_followed = has_others && statement.session_calls.contains(&SessionCall::SetsNamedLocally) && self.may_go_on();
        let effects = Arc::unwrap_or_clone(effects);
        Arc::new(if is_followed { effects.with_transaction() } else { effects.without_transaction() })
    }

    /// The statement is not the last one of its transaction, as far as is known.
    fn may_go_on(&mut self) -> bool {
        let mut is_last = || matches!(self.client.peek(), Ok(Some(header)) if header.tag == client_tag::SYNC);
        self.transaction.is_open() || (self.batch.is_open && !is_last())
    }

    /// The cursor's query goes on.
    pub(in crate::session) fn note_effects_of_cursor(&mut self) {
        let may_set = self.shards_to_be_read().next().is_some();
        self.running.effects.is_stale |= may_set;
    }

    /// Settings that a function changes are those of one shard, from which the others get them.
    pub(in crate::session) fn check_settings_followed(&self, statement: &Analysis, route: &Route) -> Result<(), PgError> {
        let is_called = |call: SessionCall| statement.session_calls.contains(&call);
        let is_in_transaction = || (self.transaction.is_open() || self.has_pipeline()) && !self.staging.is_under_way;
        let counts = is_called(SessionCall::Sets) || (is_called(SessionCall::SetsNamedLocally) && is_in_transaction());
        if !counts || route.shard().is_some() {
            return Ok(());
        }
        Err(PgError::unsupported(
            "a function that changes settings is not supported across shards",
            "Each shard would set its own, and the session would have them as one of the shards has set them last.",
            "Call it in a statement of its own, or restrict the statement to one shard key.",
        ))
    }

    /// As [`Session::note_effects_of`], of a portal that goes on to be run.
    pub(in crate::session) fn note_effects_of_portal(&mut self, name: &[u8]) -> Result<(), PgError> {
        let statement = match self.portals.get(name) {
            Some(Portal::Scatter { statement, .. } | Portal::Write { statement, .. } | Portal::Gather { statement, .. }) => {
                statement
            }
            _ => return Ok(()),
        };
        match statement.analysis().and_then(|analysis| analysis.effects.clone()) {
            None => Ok(()),
            // It keeps its connection already, if it does.
            Some(effects) => self.note_effects(&effects),
        }
    }

    fn note_effects(&mut self, effects: &Arc<SessionEffects>) -> Result<(), PgError> {
        if effects.kept.contains(&Kept::PreparedStatement) {
            return Err(prepares());
        }
        effects.named.iter().try_for_each(|name| check_allowed(name, not_allowed(name)).map_err(refused_in_function))?;
        self.running.effects.has_prepared |= effects.kept.contains(&Kept::PreparedByText);
        self.running.effects.is_stale |= !effects.settings.is_nothing() || effects.is_unproven;
        match &mut self.running.effects.effects {
            Some(known) if Arc::ptr_eq(known, effects) => {}
            Some(known) => Arc::make_mut(known).add(effects),
            None => self.running.effects.effects = Some(Arc::clone(effects)),
        }
        Ok(())
    }

    #[inline]
    fn running_effects(&self) -> Option<&Arc<SessionEffects>> {
        self.running.effects.effects.as_ref().filter(|_| !self.gateway.commits.failpoints.has_planted("not_reset"))
    }

    /// The connection is about to run it.
    pub(in crate::session) fn mark(&self, connection: &mut Connection) {
        if let Some(effects) = &self.running.effects.of_statement {
            note_names(effects, connection);
        }
        if let Some(effects) = self.running_effects() {
            connection.note_effects(effects);
            connection.has_planted_reset = self.gateway.commits.failpoints.has_planted("reset_by_path");
        }
    }

    pub(in crate::session) fn mark_participant(&mut self, index: usize) {
        if let (Some(effects), Some(participant)) =
            (&self.running.effects.of_statement, self.transaction.participants_mut().get_mut(index))
        {
            note_names(effects, &mut participant.connection);
        }
        // By what ran there before, in the same pipeline.
        if let Some(participant) =
            self.transaction.participants_mut().get_mut(index).filter(|participant| may_have_prepared(participant))
        {
            participant.connection.prepared.doubt_all();
        }
        let Some(effects) = self.running_effects().cloned() else { return };
        let has_planted_reset = self.gateway.commits.failpoints.has_planted("reset_by_path");
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.connection.note_effects(&effects);
            participant.connection.has_planted_reset = has_planted_reset;
        }
    }

    /// A prepared statement that the session does not know may be one that a function has made.
    pub(in crate::session) fn check_not_prepared_by_function(&self) -> Result<(), PgError> {
        if self.running.effects.has_prepared { Err(prepared_by_function()) } else { Ok(()) }
    }

    /// What lives on one connection is looked for on the home shard, by the statements that come later.
    pub(in crate::session) fn check_effects(&mut self, statement: &Analysis, route: &Route) -> Result<(), PgError> {
        let effects = self.running.effects.of_statement.as_ref();
        let Some(effects) = effects.filter(|effects| effects.keeping().next().is_some()).cloned() else { return Ok(()) };
        let home = self.home()?.id;
        match route.shard() {
            Some(shard) if shard == home || self.hinted(statement)?.is_some() => {
                if effects.kept.contains(&Kept::TemporaryObject) {
                    self.transaction.decide_on(shard, TEMPORARY_OBJECTS, &self.gateway, self.batch.is_open)?;
                }
                Ok(())
            }
            Some(_) | None => Err(kept_elsewhere(&effects)),
        }
    }

    /// With the names that this session's statements may leave on connections, by what functions set for the transaction. Connections that
    /// have them serve this session, so that the first such statement of each client costs no new one.
    pub(in crate::session) fn with_names_left(&self, mut names: CustomNames) -> CustomNames {
        self.running.effects.names_left.iter().for_each(|name| names.insert(name));
        names
    }

    /// The session's own, and others that its statements may have left.
    #[inline]
    pub(in crate::session) fn has_these_names(&self, names: &CustomNames) -> bool {
        let may_be_left = |name: &str| self.custom_names.contains(name) || self.running.effects.names_left.contains(name);
        *names == self.custom_names || (self.custom_names.is_subset(names) && names.iter().all(may_be_left))
    }

    /// What the statement leaves on this connection keeps it.
    pub(in crate::session) fn pin_for_effects(&mut self, index: usize) {
        let home = self.home().ok().map(|home| home.id);
        let Some(effects) = &self.running.effects.of_statement else { return };
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return };
        effects.keeping().for_each(|kept| participant.pin(kept.reason()));
        // Where the session finds it again. Elsewhere the connection is closed when it is given back.
        if Some(participant.shard) == home {
            self.running.effects.told_by_words.iter().for_each(|kept| participant.pin(kept.reason()));
        }
        // Where it runs the name is known from here on, and so the session's other connections are told. One that PostgreSQL refuses is no
        // name anywhere.
        let names = effects.custom_settings_of_transaction().filter(|name| is_custom_name(name) && !name.starts_with(RESERVED));
        names.for_each(|name| self.custom_names.insert(name));
        let makes_temporary = |kept: &BTreeSet<Kept>| kept.contains(&Kept::TemporaryObject);
        if makes_temporary(&effects.kept) || makes_temporary(&self.running.effects.told_by_words) {
            self.temporary_tables.may_have_changed();
        }
    }

    #[inline]
    pub(in crate::session) fn has_effects_to_settle(&self) -> bool {
        self.transaction.participants().iter().any(|participant| self.is_to_be_read(participant) || may_have_prepared(participant))
    }

    /// Outside of a transaction: what was set in it, and by what ran at its end, counts or not. Where that cannot be asked, nobody knows
    /// what the session's settings are: it ends, as with its one server in PostgreSQL.
    pub(in crate::session) async fn settle_effects(&mut self) -> Result<(), SessionEnd> {
        self.transaction.participants_mut().iter_mut().filter(|participant| may_have_prepared(participant)).for_each(
            |participant| {
                participant.connection.prepared.doubt_all();
            },
        );
        self.running.effects.is_stale = false;
        match self.read_back_from_shards().await {
            Ok(()) => Ok(()),
            Err(Failure::End(end)) => Err(end),
            Err(Failure::Error(_) | Failure::Shard(_) | Failure::Forwarded) => Err(SessionEnd::Fatal(unread())),
        }
    }

    /// Something was sent that may have set something since that was asked last.
    #[inline]
    pub(in crate::session) fn has_unread_settings(&self) -> bool {
        self.running.effects.is_stale
    }

    pub(super) fn settings_may_have_changed(&mut self) {
        self.running.effects.is_stale = true;
    }

    fn shards_to_be_read(&self) -> impl Iterator<Item = ShardId> {
        self.transaction.participants().iter().filter(|participant| self.is_to_be_read(participant)).map(|one| one.shard)
    }

    /// Puts on record what statements have set that did not name it themselves. In a failed transaction nothing can be asked.
    pub(in crate::session) async fn read_back_settings(&mut self) -> Result<(), Failure> {
        if !self.running.effects.is_stale || self.transaction.status == Status::Failed {
            return Ok(());
        }
        if self.batch.is_open && !self.transaction.is_open() && self.shards_to_be_read().next().is_some() {
            // What comes later in this pipeline may fail, and takes back what was set.
            self.begin_for_pipeline();
        }
        self.read_back_from_shards().await?;
        self.running.effects.is_stale = false;
        Ok(())
    }

    async fn read_back_from_shards(&mut self) -> Result<(), Failure> {
        let mut changed = Vec::new();
        let shards: Vec<_> = self.shards_to_be_read().collect();
        // In one pipeline some may have been told only, for the transaction, what another one has set.
        let are_told = shards.len() > 1 && !self.transaction.is_open();
        for shard in shards {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            self.drain_with_flush(index).await?;
            self.sync(index).await?;
            self.read_back(index, are_told, &mut changed).await?;
        }
        let shards: Vec<ShardId> = self.transaction.participants().iter().map(|participant| participant.shard).collect();
        let set_last = match self.transaction.is_open() {
            true => BTreeMap::new(),
            false => std::mem::take(&mut self.running.effects.set_last),
        };
        let is_last = |change: &Changed| set_last.get(&change.name) == shards.get(change.index);
        // Another user has no role yet.
        changed.sort_by_key(|change| (change.name == "role", is_last(change)));
        for change in changed {
            self.put_on_record(change).await?;
        }
        if !self.transaction.is_open() {
            let keeps_all = self.keeps_connections();
            self.transaction.participants_mut().iter_mut().for_each(|participant| settings_are_on_record(participant, keeps_all));
        }
        Ok(())
    }

    /// Before the transaction ends: which shards' values count.
    pub(in crate::session) fn note_who_set_last(&mut self) {
        let of_functions = self.transaction.sets.last().filter_map(|set| Some((set.name.clone(), set.by?)));
        self.running.effects.set_last = of_functions.collect();
    }

    /// Before the COMMIT: what the client has set over what a function had set there, and nothing was sent since.
    pub(in crate::session) async fn tell_what_was_set_over(&mut self) -> Result<(), Failure> {
        let count = self.transaction.sets.len();
        let is_behind = |participant: &&Participant| {
            participant.has_begun && participant.settings_known < count && self.is_to_be_read(participant)
        };
        let behind: Vec<ShardId> = self.transaction.participants().iter().filter(is_behind).map(|one| one.shard).collect();
        for shard in behind {
            let Some(index) = self.transaction.index_of(shard) else { continue };
            self.gateway.commits.failpoints.reach("before_set_over").await;
            self.transaction.catch_up(index, &self.gateway.registry);
            self.drain_with_flush(index).await?;
            self.sync(index).await?;
            self.gateway.commits.failpoints.reach("after_set_over").await;
        }
        Ok(())
    }

    fn keeps_connections(&self) -> bool {
        self.gateway.config.pool.mode == PoolMode::Session
    }

    /// It may have set something. Whatever that was, a connection that the session keeps has it for the session's next statement.
    fn is_to_be_read(&self, participant: &Participant) -> bool {
        let is_kept = || participant.pinned_by.is_some() || self.keeps_connections();
        participant.shard != MAP_DATABASE
            && participant
                .connection
                .effects
                .as_ref()
                .is_some_and(|effects| !effects.settings.is_nothing() || (effects.is_unproven && is_kept()))
    }

    /// `is_told`: a setting may have been told to this shard, and be what it was by now.
    async fn read_back(&mut self, index: usize, is_told: bool, changed: &mut Vec<Changed>) -> Result<(), Failure> {
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        let Some(effects) = participant.connection.effects.clone() else { return Ok(()) };
        let sql = match &effects.settings {
            ChangedSettings::Named(names) if !effects.is_unproven && !is_told => values_of(names.iter().map(String::as_str)),
            ChangedSettings::Named(names) if !effects.is_unproven => {
                let is_seen =
                    |name: &&str| is_of_user(name) || name.contains('.') || participant.connection.settings.get(name).is_some();
                let (seen, others): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(is_seen);
                values_that_differ(&seen, &others)
            }
            ChangedSettings::Named(_) | ChangedSettings::Nothing | ChangedSettings::Any => {
                // The server does not list custom settings.
                let named = match &effects.settings {
                    ChangedSettings::Named(names) => Some(names),
                    ChangedSettings::Nothing | ChangedSettings::Any => None,
                };
                let named = named.into_iter().chain([&effects.named, &effects.custom_names]).flatten().map(String::as_str);
                let on_record = participant.connection.settings.iter().map(|(name, _)| name);
                let others = values_of(on_record.chain(named));
                if others.is_empty() { ALL_VALUES.to_owned() } else { format!("{ALL_VALUES} UNION ALL {others}") }
            }
        };
        let rows = self.ask_for_settings(index, &sql).await?;
        let is_open = self.transaction.is_open();
        let Some((participant, sets)) = self.transaction.with_sets(index) else { return Ok(()) };
        let mut values = BTreeMap::new();
        for (name, value) in rows.iter().filter_map(|row| Some((text(row.first()?)?, text(row.get(1)?)))) {
            let name = name.to_ascii_lowercase();
            match value {
                _ if is_own(&name) => {}
                // The first one counts: see `ask_for_settings`.
                Some(value) => {
                    values.entry(name).or_insert(value);
                }
                // The statement has not come to it.
                None => participant.connection.doubted_names.remove(&name),
            }
        }
        for name in values.keys() {
            participant.connection.custom_names.insert(name);
            self.custom_names.insert(name);
        }
        for (name, value) in &values {
            let before = believed(participant, sets, name);
            // Also where it is again what it was before.
            let counts = !is_open && self.running.effects.set_last.get(name) == Some(&participant.shard);
            if counts || before != Some(value.as_str()) && (before.is_some() || !is_default(participant, name, value)) {
                changed.push(Changed { index, name: name.clone(), value: value.clone() });
            }
        }
        Ok(())
    }

    /// A limit of time that was set may be too short for this statement: without it then, and the limit's own value is asked for first.
    async fn ask_for_settings(&mut self, index: usize, sql: &str) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
        let mut attempts = 0;
        loop {
            let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(Vec::new()) };
            let connection = &mut *participant.connection;
            let is_in_transaction = connection.status == b'T';
            let text = match (is_in_transaction, attempts) {
                (true, 0) => format!("{SAVEPOINT};{sql};{RELEASE}"),
                (false, 0) => sql.to_owned(),
                (true, _) => format!("{SAVEPOINT};{WITHOUT_LIMIT};{sql};{BACK};{RELEASE}"),
                (false, _) => format!("BEGIN;{WITHOUT_LIMIT};{sql};ROLLBACK"),
            };
            let (sqlstate, body) = match connection.simple(&Own::Setting.text(&text)).await {
                Ok(rows) => return Ok(rows),
                Err(ConnectionError::Refused { sqlstate, body, .. }) => (sqlstate, body),
                Err(error) => return Err(self.participant_lost(index, &error)),
            };
            attempts += 1;
            let undo = if is_in_transaction { format!("{BACK};{RELEASE}") } else { "ROLLBACK".to_owned() };
            let is_undone = match connection.status {
                b'I' => Ok(Vec::new()),
                _ => connection.simple(&Own::Transaction.text(&undo)).await,
            };
            match is_undone {
                Ok(_) if sqlstate.as_bytes() == SqlState::QUERY_CANCELED.0 && attempts < ATTEMPTS_MAX => {}
                Ok(_) | Err(ConnectionError::Refused { .. }) => return Err(Failure::Shard(error_frame(&body))),
                Err(error) => return Err(self.participant_lost(index, &error)),
            }
        }
    }

    async fn put_on_record(&mut self, change: Changed) -> Result<(), Failure> {
        let Changed { index, name, value } = change;
        if let Err(refusal) = check_allowed(&name, Some(&value)) {
            return self.take_back(index, &name, refusal).await;
        }
        let is_open = self.transaction.is_open();
        let known = self.transaction.sets.len();
        self.record(&name, Some(value.clone()), is_open);
        let known_now = self.transaction.sets.len();
        let by = self.transaction.participants().get(index).map(|participant| participant.shard);
        self.transaction.sets.set_by(known, by);
        let is_planted = self.gateway.commits.failpoints.has_planted("setting_not_on_record");
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            if is_open && participant.settings_known == known {
                participant.settings_known = known_now;
            }
            if !is_open && !is_planted {
                participant.connection.settings = Arc::new(participant.connection.settings.with(&name, &value));
            }
        }
        if is_of_user(&name) {
            return self.note_user_of(index).await;
        }
        Ok(())
    }

    /// As [`Session::note_user`]: the connection at hand has the session's role.
    async fn note_user_of(&mut self, index: usize) -> Result<(), Failure> {
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        match participant.connection.simple(&Own::Setting.text(IS_SUPERUSER)).await {
            Ok(rows) => {
                let value = rows.first().and_then(|row| text(row.first()?));
                value.into_iter().for_each(|value| self.learn_superuser(value));
                self.report_settings();
                Ok(())
            }
            Err(ConnectionError::Refused { body, .. }) => Err(Failure::Shard(error_frame(&body))),
            Err(error) => Err(self.participant_lost(index, &error)),
        }
    }

    /// A setting under which the proxy would read statements otherwise than the shard.
    async fn take_back(&mut self, index: usize, name: &str, refusal: PgError) -> Result<(), Failure> {
        let allowed = if not_allowed(name) == Some("off") { "on" } else { "off" };
        let sql = format!("SELECT pg_catalog.set_config({}, '{allowed}', false)", quoted_literal(name));
        let Some(participant) = self.transaction.participants_mut().get_mut(index) else { return Ok(()) };
        match participant.connection.simple(&Own::Setting.text(&sql)).await {
            Ok(_) => {
                self.warn(SqlState::WARNING, &format!("{}: it was set back", refused_in_function(refusal).message));
                Ok(())
            }
            Err(error) => Err(self.participant_lost(index, &error)),
        }
    }
}

/// The connection may know these from here on, whatever becomes of the statement. It may not come to set them, or run elsewhere: whoever
/// needs the names there has them told.
fn note_names(effects: &SessionEffects, connection: &mut Connection) {
    effects.custom_settings().for_each(|name| connection.doubted_names.insert(name));
}

/// What the connection has prepared may be there or not.
fn may_have_prepared(participant: &Participant) -> bool {
    let effects = participant.connection.effects.as_ref();
    effects.is_some_and(|effects| effects.is_closed || effects.kept.contains(&Kept::PreparedByText))
        && participant.connection.prepared.count() > 0
}

/// What was set is on record. What else there may be is not, and stays with the session to its end if the connection does.
fn settings_are_on_record(participant: &mut Participant, keeps_all: bool) {
    if participant.connection.effects.is_some() && (keeps_all || participant.pinned_by.is_some()) {
        participant.pin_for_good();
        participant.connection.effects = None;
        return;
    }
    let connection = &mut *participant.connection;
    let Some(effects) = connection.effects.as_mut() else { return };
    Arc::make_mut(effects).settings = ChangedSettings::Nothing;
    if effects.leaves_only_names() {
        connection.effects = None;
    }
}

/// Where it is not known what is run, the statement itself may hold it, or one of its values. Words that are only found there keep
/// nobody's connection: they may be anything. Values are told from words where no function is given a text to run: these only say
/// what no reset would take back.
fn with_those_given(effects: &Arc<SessionEffects>, statement: &Analysis, inputs: &Inputs<'_>) -> Arc<SessionEffects> {
    let Some(words) = &statement.words else { return Arc::clone(effects) };
    let values = inputs.constants().collect::<Vec<_>>().join("' '");
    let of_values = SessionEffects::of_unread(&values);
    let runs_values = effects.kept.contains(&Kept::GivenText) || effects.settings == ChangedSettings::Any;
    let mut both = SessionEffects::clone(effects);
    both.add(words);
    match runs_values {
        true => both.add(&of_values),
        false => both.is_closed |= of_values.outlives_reset(),
    }
    if both == **effects { Arc::clone(effects) } else { Arc::new(both) }
}

/// The value that the connection has by what is on record.
fn believed<'a>(participant: &'a Participant, sets: &'a [Told], name: &str) -> Option<&'a str> {
    let mut told = sets.iter().take(participant.settings_known).rev().filter_map(Told::setting);
    match told.find(|set| set.name == name) {
        Some(set) => set.value.as_deref(),
        None => participant.connection.settings.get(name),
    }
}

/// Of a setting that is not on record: nobody has changed it, as far as that can be told.
fn is_default(participant: &Participant, name: &str, value: &str) -> bool {
    match name {
        "role" => value == "none",
        "session_authorization" => value == participant.connection.pool().user(),
        _ => participant.connection.has_by_default(name, value),
    }
}

/// Of the proxy itself, on the connection: what the client sets of these is on record.
fn is_own(name: &str) -> bool {
    name.starts_with("shardgate.")
}

/// A statement that gives the names and values of these, of those that there are.
fn values_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut sql = String::new();
    for name in names {
        let name = quoted_literal(name);
        let before = if sql.is_empty() { "VALUES " } else { "," };
        sql.push_str(&format!("{before}({name},pg_catalog.current_setting({name},true))"));
    }
    sql
}

/// The same of the first ones, and of the others where the session has a value of its own.
fn values_that_differ(names: &[&str], others: &[&str]) -> String {
    let others: Vec<String> = others.iter().map(|name| quoted_literal(&name.to_ascii_lowercase())).collect();
    let session = format!(
        "SELECT name, pg_catalog.current_setting(name) FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session' \
         AND pg_catalog.lower(name) OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.text[])",
        others.join(",")
    );
    if names.is_empty() { session } else { format!("{} UNION ALL {session}", values_of(names.iter().copied())) }
}

/// Names that begin so are the language's own, and no others are taken.
const RESERVED: &str = "plpgsql.";

const SAVEPOINT: &str = "SAVEPOINT shardgate_settings";
const BACK: &str = "ROLLBACK TO SAVEPOINT shardgate_settings";
const RELEASE: &str = "RELEASE SAVEPOINT shardgate_settings";
const WITHOUT_LIMIT: &str =
    "SELECT 'statement_timeout', pg_catalog.current_setting('statement_timeout');SET LOCAL statement_timeout = 0";
/// A limit of a millisecond lets a short statement through sooner or later.
const ATTEMPTS_MAX: usize = 10;

/// The same of all that differ from the connection's own. What belongs to a transaction is no setting of the session.
const ALL_VALUES: &str = "SELECT name, pg_catalog.current_setting(name) FROM pg_catalog.pg_settings \
WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) \
ALL (ARRAY['transaction_isolation', 'transaction_read_only', 'transaction_deferrable']) \
UNION ALL SELECT 'session_authorization', pg_catalog.current_setting('session_authorization') \
UNION ALL SELECT 'role', pg_catalog.current_setting('role')";

/// A value that a function might give a setting by which statements are read.
fn not_allowed(name: &str) -> Option<&'static str> {
    match name {
        "standard_conforming_strings" => Some("off"),
        "transform_null_equals" => Some("on"),
        _ => None,
    }
}

fn unread() -> PgError {
    PgError::fatal(SqlState::CONNECTION_FAILURE, "the settings that a function has changed could not be read")
        .with_detail("What the session's settings are is not known. The statement itself has run.")
        .with_hint("Connect again.")
}

fn prepares() -> PgError {
    PgError::unsupported(
        "PREPARE, DEALLOCATE and DISCARD are not supported in a function, procedure or DO block",
        "The proxy keeps the prepared statements of a session itself, and would not know of these.",
        "Send the command by itself.",
    )
}

fn left_by_schema_change() -> PgError {
    PgError::unsupported(
        "a function that leaves something in the session is not supported in a schema change that evaluates it",
        "The change runs on connections that are closed after it, and with them goes what the function has set or taken.",
        "Call the function in a statement of its own.",
    )
}

fn prepared_by_function() -> PgError {
    PgError::unsupported(
        "a prepared statement that a function has made is not supported",
        "The proxy keeps the prepared statements of a session itself, and knows of none that functions make.",
        "Send PREPARE by itself.",
    )
}

fn unnamed_setting() -> PgError {
    PgError::unsupported(
        "a function that makes the name of a setting is not supported beside distributed tables",
        "Other shards have to be told what is set, and the server does not list settings like app.tenant.",
        "Write the name into the function, or pass it as a constant or parameter of the statement.",
    )
}

fn kept_elsewhere(effects: &SessionEffects) -> PgError {
    let what = effects.keeping().next().map_or("", |kept| kept.reason());
    PgError::unsupported(
        "what this statement may leave in the session is not supported on a shard that is not the home shard",
        format!("It may leave this on one connection, by a function or trigger: {what}."),
        "Restrict the statement to tables of the home shard.",
    )
}

fn text(column: &Option<Bytes>) -> Option<String> {
    column.as_deref().map(|value| String::from_utf8_lossy(value).into_owned())
}
