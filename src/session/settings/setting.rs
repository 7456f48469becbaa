//! What the client sets: tracked by name and value as PostgreSQL prints it, undone with its transaction, given to every
//! connection that serves the client.
//!
//! A SET runs once on the home shard, in a transaction that is rolled back, to hear PostgreSQL's opinion of the value and its
//! canonical form, or on another one while that is away or in maintenance; inside a transaction that has reached a shard it runs there. Connections get it when they are next used,
//! participants with their next statement.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{ConnectionError, Own, STATEMENT_TIMEOUT, Settings};
use crate::catalog::{Kept, quoted_identifier, quoted_literal};
use crate::error::{PgError, SqlState};
use crate::session::commands::map_database;
use crate::session::ddl::every_shard;
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::describe::is_away;
use crate::session::transaction::participant::Participant;
use crate::session::transaction::{LocalSetting, Status, Told};
use crate::session::{Failure, Session};
use crate::shardmap::{Shard, ShardId};
use crate::sql::analysis::TransactionModes;
use crate::wire::originate;

impl Session {
    pub(in crate::session) async fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
        text: &str,
    ) -> Result<(), Failure> {
        let name = name.to_ascii_lowercase();
        check_allowed(&name, value)?;
        if name == SEED {
            return self.set_seed(text).await;
        }
        let is_block = self.transaction.is_open() && !(self.batch.is_implicit && self.batch.is_open);
        if is_local && !is_block {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "SET LOCAL can only be used in transaction blocks");
        }
        let Some(value) = value else { return self.reset_one(&name, is_local, "SET") };
        let canonical = match single(value) {
            Some(value) if name == STATEMENT_TIMEOUT => self.try_value(&name, Some(value)).await?,
            Some(_) | None => self.try_text(&name, text).await?,
        };
        if !is_local || self.transaction.is_open() {
            self.record(&name, Some(canonical), is_local);
            self.note_user(&name).await?;
        } else {
            // The value is gone at once; the name of a custom setting stays.
            self.custom_names.insert(&name);
        }
        originate::command_complete(&mut self.client.output, "SET");
        Ok(())
    }

    /// After another role is taken, drivers are told whether it is a superuser.
    pub(in crate::session) async fn note_user(&mut self, name: &str) -> Result<(), Failure> {
        if !is_of_user(name) {
            return Ok(());
        }
        if let Some(is_superuser) = self.ask_as_session(IS_SUPERUSER).await? {
            self.learn_superuser(is_superuser);
        }
        self.report_settings();
        Ok(())
    }

    pub(super) fn learn_superuser(&mut self, is_superuser: String) {
        if self.roles.superusers.len() >= SUPERUSERS_MAX {
            self.roles.superusers.clear();
        }
        self.roles.superusers.insert(self.current_user().to_owned(), is_superuser);
    }

    /// No setting: what `random()` gives next on the connection, which is kept for it.
    async fn set_seed(&mut self, text: &str) -> Result<(), Failure> {
        let home = self.home()?;
        let index = self.join(home.id).await?;
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.pin(Kept::Seed.reason());
        }
        every_shard::run_on_one(self, &home, &Own::Setting.text(text), true).await
    }

    /// What PostgreSQL makes of a SET, as it prints the value. In a transaction that has reached a shard it is made there, so that
    /// it costs no other connection and an error fails the transaction as it must; otherwise on the home shard, and taken back.
    async fn try_text(&mut self, name: &str, text: &str) -> Result<String, Failure> {
        let mut sql = format!("{text}\n;SELECT pg_catalog.current_setting(");
        sql.push_str(&quoted_literal(name));
        sql.push(')');
        match self.begun_on_shard() {
            Some(index) => self.set_on_participant(index, name, &sql).await,
            None => self.try_on_home(name, &format!("BEGIN;{sql};ROLLBACK")).await,
        }
    }

    /// As `try_text` of a value, `None` being the default. It is one statement: nothing runs under the new value.
    pub(in crate::session) async fn try_value(&mut self, name: &str, value: Option<&str>) -> Result<String, Failure> {
        let mut sql = String::from("SELECT pg_catalog.set_config(");
        sql.push_str(&quoted_literal(name));
        sql.push(',');
        match value {
            Some(value) => sql.push_str(&quoted_literal(value)),
            None => sql.push_str("NULL"),
        }
        sql.push_str(",true)");
        match self.begun_on_shard() {
            Some(index) => self.set_on_participant(index, name, &sql).await,
            None => self.try_on_home(name, &sql).await,
        }
    }

    /// As PostgreSQL says it where the session's settings are in force.
    pub(in crate::session) async fn read_config(&mut self, name: &str, missing_ok: bool) -> Result<Option<String>, Failure> {
        self.ask_as_session(&format!("SELECT pg_catalog.current_setting({},{missing_ok})", quoted_literal(name))).await
    }

    /// One value, where the session's settings and role are in force.
    pub(in crate::session) async fn ask_as_session(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        let rows = match self.begun_on_shard() {
            Some(index) => self.ask_participant(index, sql).await?,
            None => {
                let home = self.home()?;
                let other = self.maintenance_of(&home).and_then(|_| self.shards_beside(home.id).into_iter().next());
                return self.ask_beside(&other.unwrap_or(home), sql).await;
            }
        };
        Ok(only_value(&rows))
    }

    /// The same on a connection of this shard that has no part in the transaction.
    pub(in crate::session) async fn ask_beside(&mut self, shard: &Arc<Shard>, sql: &str) -> Result<Option<String>, Failure> {
        let mut connection = self.checkout(shard, &self.settings_now()).await?;
        let asked = connection.simple(&Own::Catalog.text(sql)).await;
        connection.release();
        Ok(only_value(&asked.map_err(|error| refused(&shard.name, error))?))
    }

    /// Index of a participant on which the open transaction has begun.
    pub(in crate::session) fn begun_on_shard(&self) -> Option<usize> {
        if self.transaction.status != Status::Open {
            return None;
        }
        self.transaction
            .participants()
            .iter()
            .position(|participant| participant.has_begun && !participant.is_spare && participant.shard != MAP_DATABASE)
    }

    async fn set_on_participant(&mut self, index: usize, name: &str, sql: &str) -> Result<String, Failure> {
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.connection.custom_names.insert(name);
        }
        self.ask_participant(index, sql).await.map(|rows| last_value(&rows))
    }

    /// One value, where the transaction has begun.
    pub(in crate::session) async fn ask_participant_one(&mut self, index: usize, sql: &str) -> Result<Option<String>, Failure> {
        self.ask_participant(index, sql).await.map(|rows| only_value(&rows))
    }

    async fn ask_participant(&mut self, index: usize, sql: &str) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
        self.transaction.catch_up(index, &self.gateway.registry);
        self.sync(index).await?;
        let participant = self.transaction.at(index)?;
        match participant.connection.simple(&Own::Catalog.text(sql)).await {
            Ok(rows) => Ok(rows),
            Err(ConnectionError::Refused { body, .. }) => {
                Err(Failure::Shard(crate::session::protocol::describe::error_frame(&body)))
            }
            Err(error) => Err(self.participant_lost(index, &error)),
        }
    }

    /// While the home shard is away, or in maintenance, another one says whether there is such a setting, and whether it takes this value: each connection
    /// is given it, and may refuse it, in any case.
    async fn try_on_home(&mut self, name: &str, sql: &str) -> Result<String, Failure> {
        let home = self.home()?;
        let mut shards = self.shards_beside(home.id);
        let is_last = self.maintenance_of(&home).is_some();
        shards.insert(if is_last { shards.len() } else { 0 }, home);
        let mut first = None;
        for shard in shards {
            match self.try_on(&shard, name, sql).await {
                Err(Failure::Error(error)) if is_away(&error) => first = first.or(Some(error)),
                answered => return answered,
            }
        }
        Err(first.unwrap_or_else(|| PgError::internal("no shard was asked")).into())
    }

    async fn try_on(&mut self, shard: &Arc<Shard>, name: &str, sql: &str) -> Result<String, Failure> {
        let mut connection = self.checkout_to_set(shard, &self.settings_now(), name).await?;
        let tried = connection.simple(&Own::Setting.text(sql)).await;
        if connection.status != b'I' {
            connection.simple(&Own::Transaction.text("ROLLBACK")).await.map_err(|error| refused(&shard.name, error))?;
        }
        connection.release();
        tried.map(|rows| last_value(&rows)).map_err(|error| refused(&shard.name, error))
    }

    pub(in crate::session) fn record(&mut self, name: &str, value: Option<String>, is_local: bool) {
        // Another user has no role yet, or the one by default.
        let role = (name == "session_authorization").then(|| match value {
            Some(_) => Some("none".to_owned()),
            None => self.login.settings.get("role").map(str::to_owned),
        });
        self.record_one(name, value, is_local);
        if let Some(role) = role {
            self.record_one("role", role, is_local);
        }
    }

    fn record_one(&mut self, name: &str, value: Option<String>, is_local: bool) {
        self.outdate_portals(name);
        self.custom_names.insert(name);
        if self.transaction.is_open() {
            let setting = LocalSetting { name: name.to_owned(), value: value.clone(), is_local, by: None };
            self.transaction.sets.push(Told::Setting(setting));
        }
        if is_local {
            self.report_settings();
            return;
        }
        let settings = match value {
            Some(value) => self.settings.with(name, &value),
            None => self.settings.without(name),
        };
        self.change_settings(Arc::new(settings));
    }

    /// SET CONSTRAINTS counts to the end of the transaction: on the shards that it is on, which check now what is not deferred any
    /// more, and on those to come.
    pub(in crate::session) async fn set_constraints(&mut self, text: &str) -> Result<(), Failure> {
        if !self.transaction.is_open() {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "SET CONSTRAINTS can only be used in transaction blocks");
        }
        let is_shard = |participant: &&Participant| participant.has_begun && participant.shard != MAP_DATABASE;
        let begun: Vec<ShardId> =
            self.transaction.participants().iter().filter(is_shard).map(|participant| participant.shard).collect();
        if begun.is_empty() {
            self.try_at_home(text).await?;
        }
        if self.transaction.is_open() {
            self.transaction.sets.push(Told::Statement(text.to_owned()));
        }
        for shard in begun {
            let index = self.join(shard).await?;
            self.sync(index).await?;
        }
        originate::command_complete(&mut self.client.output, "SET CONSTRAINTS");
        Ok(())
    }

    /// What PostgreSQL has to say against it.
    async fn try_at_home(&mut self, text: &str) -> Result<(), Failure> {
        let home = self.home()?;
        let mut connection = self.checkout_any(&home, &self.settings_now()).await?;
        let tried = connection.simple(&Own::Setting.text(&format!("BEGIN;{text}\n;ROLLBACK"))).await;
        if connection.status != b'I' {
            connection.simple(&Own::Transaction.text("ROLLBACK")).await.map_err(|error| refused(&home.name, error))?;
        }
        connection.release();
        tried.map(drop).map_err(|error| refused(&home.name, error))
    }

    pub(in crate::session) async fn reset(&mut self, name: &str) -> Result<(), Failure> {
        let name = name.to_ascii_lowercase();
        // A name with a dot may be anything.
        let is_known = matches!(name.as_str(), "role" | "session_authorization") || name.contains('.');
        if !is_known && !self.transaction.is_open() && self.settings.get(&name).is_none() {
            self.try_on_home(&name, &format!("BEGIN;RESET {}\n;ROLLBACK", quoted_identifier(&name))).await?;
        }
        self.reset_one(&name, false, "RESET")
    }

    fn reset_one(&mut self, name: &str, is_local: bool, tag: &str) -> Result<(), Failure> {
        let value = self.login.settings.get(name).map(str::to_owned);
        self.record(name, value, is_local);
        originate::command_complete(&mut self.client.output, tag);
        Ok(())
    }

    pub(in crate::session) fn reset_all(&mut self) -> Result<(), Failure> {
        // What functions have set in this transaction is no setting of the session yet.
        let of_transaction = self.transaction.sets.iter().filter_map(Told::setting).map(|set| set.name.as_str());
        let names: BTreeSet<String> = self
            .settings
            .iter()
            .map(|(name, _)| name)
            .chain(of_transaction)
            .filter(|name| !is_of_user(name))
            .map(str::to_owned)
            .collect();
        for name in names {
            let value = self.login.settings.get(&name).map(str::to_owned);
            self.record(&name, value, false);
        }
        originate::command_complete(&mut self.client.output, "RESET");
        Ok(())
    }

    pub(in crate::session) fn set_session_characteristics(&mut self, modes: &TransactionModes) -> Result<(), Failure> {
        let on_off = |value: bool| if value { "on" } else { "off" }.to_owned();
        if let Some(isolation) = modes.isolation {
            self.record("default_transaction_isolation", Some(isolation.name().to_owned()), false);
        }
        if let Some(is_read_only) = modes.is_read_only {
            self.record("default_transaction_read_only", Some(on_off(is_read_only)), false);
        }
        if let Some(is_deferrable) = modes.is_deferrable {
            self.record("default_transaction_deferrable", Some(on_off(is_deferrable)), false);
        }
        originate::command_complete(&mut self.client.output, "SET");
        Ok(())
    }

    /// The session goes by the defaults of its login, whichever its connections are opened with from now on.
    pub(in crate::session) fn keep_own_defaults(&mut self) {
        if Arc::ptr_eq(&self.gateway.defaults.load(), &self.login.defaults) {
            return;
        }
        self.login.defaults = self.gateway.defaults.load_full();
        let kept = self.login.defaults.kept(&self.login.greeting, &self.login.settings);
        if kept.is_empty() {
            return;
        }
        for (name, value) in kept.iter().filter(|(name, _)| name.contains('.')) {
            self.custom_names.insert(name);
            // Shards on which the transaction has begun know no value.
            if self.transaction.is_open() && self.effective(name).is_none() {
                let setting = LocalSetting { name: name.clone(), value: Some(value.clone()), is_local: false, by: None };
                self.transaction.sets.push(Told::Setting(setting));
            }
        }
        self.login.settings = self.gateway.shared(Arc::new(self.login.settings.with_defaults(&kept)));
        self.settings = self.gateway.shared(Arc::new(self.settings.with_defaults(&kept)));
        self.transaction.change_settings_before(|settings| Arc::new(settings.with_defaults(&kept)));
    }

    pub(in crate::session) fn change_settings(&mut self, settings: Arc<Settings>) {
        self.settings = self.gateway.shared(settings);
        self.report_settings();
    }

    /// What is in force now, SET LOCAL included: for connections outside the transaction that work for it.
    pub(in crate::session) fn settings_now(&self) -> Arc<Settings> {
        let mut now = Arc::clone(&self.settings);
        // The last one of a name counts: SET ends what SET LOCAL before it has set.
        for set in self.transaction.sets.last() {
            if now.get(&set.name) != set.value.as_deref() {
                now = Arc::new(match &set.value {
                    Some(value) => now.with(&set.name, value),
                    None => now.without(&set.name),
                });
            }
        }
        now
    }

    /// The value that is in force for the session: the transaction's, the session's, or the one at login.
    pub(in crate::session) fn effective(&self, name: &str) -> Option<&str> {
        match self.transaction.sets.last_of(name) {
            Some(set) => set.value.as_deref(),
            None => self.settings.get(name),
        }
    }

    /// Tells the client about settings that drivers follow, where they differ from what it last saw.
    pub(in crate::session) fn report_settings(&mut self) {
        let names: Vec<Arc<str>> = self.reported.iter().map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            let lower = name.to_ascii_lowercase();
            let own = if lower == "is_superuser" { self.roles.superusers.get(self.current_user()) } else { None };
            let wanted = own.map(String::as_str).or_else(|| self.effective(&lower)).map(str::to_owned).or_else(|| {
                self.login.greeting.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            });
            if let Some(value) = wanted {
                self.report_parameter(&name, &value);
            }
        }
    }

    pub(in crate::session) fn report_parameter(&mut self, name: &str, value: &str) {
        match self.reported.iter_mut().find(|(known, _)| &**known == name) {
            Some((_, known)) if &**known == value => return,
            Some((_, known)) => *known = value.into(),
            None => self.reported.push((name.into(), value.into())),
        }
        if name == "application_name" {
            self.shown.row.set_application_name(value);
        }
        originate::parameter_status(&mut self.client.output, name, value);
    }
}

/// It changes who the session's user is.
pub(super) fn is_of_user(name: &str) -> bool {
    matches!(name, "role" | "session_authorization")
}

pub(super) const IS_SUPERUSER: &str = "SELECT pg_catalog.current_setting('is_superuser')";
/// A setting in name only.
pub(super) const SEED: &str = "seed";
/// Roles of a session whose rights are remembered.
const SUPERUSERS_MAX: usize = 64;

/// The value of a SET whose text is not needed: a number, or a literal without quotes and commas in it.
fn single(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(value);
    (!inner.contains(['\'', ','])).then_some(inner)
}

fn last_value(rows: &[Vec<Option<Bytes>>]) -> String {
    only_value(rows).unwrap_or_default()
}

fn only_value(rows: &[Vec<Option<Bytes>>]) -> Option<String> {
    let value = rows.last().and_then(|row| row.first()).and_then(Option::as_ref);
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The settings that a participant has when its transaction has been committed, or prepared.
pub(in crate::session) fn settings_after(participant: &Participant, sets: &[Told]) -> Arc<Settings> {
    let mut settings = Arc::clone(&participant.connection.settings);
    let is_kept = |set: &&LocalSetting| !set.is_local && map_database::is_told(participant.shard, set);
    for set in sets.iter().take(participant.settings_known).filter_map(Told::setting).filter(is_kept) {
        settings = Arc::new(match &set.value {
            Some(value) => settings.with(&set.name, value),
            None => settings.without(&set.name),
        });
    }
    settings
}

pub(in crate::session) fn note_committed(participant: &mut Participant, sets: &[Told], session: &Arc<Settings>) {
    let settings = settings_after(participant, sets);
    participant.connection.settings = if settings == *session { Arc::clone(session) } else { settings };
}

/// An error of a statement of ours, as the client should see it.
pub(in crate::session) fn refused(shard: &str, error: ConnectionError) -> Failure {
    match error {
        ConnectionError::Refused { body, .. } => Failure::Shard(crate::session::protocol::describe::error_frame(&body)),
        other => crate::session::lost(shard, &other).into(),
    }
}

/// Settings under which a statement's text would mean something else than what the proxy reads in it.
pub(in crate::session) fn check_allowed(name: &str, value: Option<&str>) -> Result<(), PgError> {
    if matches!(name, "transaction_isolation" | "transaction_read_only" | "transaction_deferrable") {
        return Err(PgError::unsupported(
            format!("cannot change \"{name}\" like a setting"),
            "It belongs to the transaction, which may be on several shards.",
            "Use SET TRANSACTION, or give the mode with BEGIN.",
        ));
    }
    let value = value.unwrap_or_default().trim_matches('\'').to_ascii_lowercase();
    let is_off = is_off(&value);
    let refused = match name {
        "standard_conforming_strings" => is_off,
        "transform_null_equals" => !is_off && !value.is_empty(),
        _ => false,
    };
    if !refused {
        return Ok(());
    }
    Err(PgError::unsupported(
        format!("cannot change \"{name}\""),
        "It changes what a statement's text means, and the proxy reads statements by PostgreSQL's default rules.",
        "Write E'…' strings where backslashes are escapes, and IS NULL for comparisons with null.",
    ))
}

/// The same, of what a function sets.
pub(in crate::session) fn refused_in_function(error: PgError) -> PgError {
    PgError { message: format!("{} in a function", error.message), ..error }
}

/// As PostgreSQL reads it: a word may be cut where it is still the only one.
fn is_off(value: &str) -> bool {
    let is_word = |word: &str, letters: usize| value.len() >= letters && word.starts_with(value);
    value == "0" || is_word("off", 2) || is_word("false", 1) || is_word("no", 1)
}
