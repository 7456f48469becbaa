//! What a shard that joins is told before its first statement: BEGIN, the settings that the transaction has made, its savepoints.
//!
//! They travel in the packet of that statement, without Sync: an error there makes the shard skip the statement too, so that a write
//! can never run outside the transaction that it was meant for.

use std::sync::Arc;

use bytes::Bytes;

use super::participant::Participant;
use super::{Told, Transaction};
use crate::backend::{Own, Reply, ShardText, StatementName, StatementRegistry, StatementText};
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::session::commands::map_database;
use crate::session::gateway::MAP_DATABASE;
use crate::sql::analysis::{Isolation, TransactionModes};
use crate::wire::originate;

impl Transaction {
    /// Puts BEGIN, settings and savepoints that the shard has missed before its next statement.
    pub fn catch_up(&mut self, index: usize, registry: &StatementRegistry) {
        self.begin_on(index, registry);
        let Some(participant) = self.participants.get_mut(index) else { return };
        // In the order in which the client gave them: ROLLBACK TO takes back what was set after the savepoint.
        for savepoint in self.savepoints.iter().skip(participant.savepoints_known) {
            put_settings(participant, &self.sets, savepoint.set_count);
            let sql = format!("SAVEPOINT {}", quoted_identifier(&savepoint.name));
            hidden_statement(participant, &Own::Transaction.text(&sql));
        }
        put_settings(participant, &self.sets, self.sets.len());
        participant.savepoints_known = self.savepoints.len();
    }

    /// Puts BEGIN alone, which takes no snapshot: settings do.
    pub(super) fn begin_on(&mut self, index: usize, registry: &StatementRegistry) {
        let Some(participant) = self.participants.get_mut(index) else { return };
        if !participant.has_begun {
            let modes = self.savepoints.first().map_or(&self.modes, |savepoint| &savepoint.modes);
            let text = match participant.shard {
                MAP_DATABASE => begin_text_read_only(modes),
                _ if participant.is_read_only => begin_text_read_only(modes),
                _ => begin_text(modes),
            };
            let key = statement_text_anywhere(text);
            let id = registry.id(&key);
            let connection = &mut *participant.connection;
            if !connection.prepared.has(id) {
                // Never counted against the client's texts: there are a handful.
                for unwanted in connection.prepared.insert(id, usize::MAX) {
                    connection.output.close_statement(StatementName::Registered(unwanted));
                    connection.expect(Reply::CloseStatement(unwanted), false);
                }
                connection.output.parse(StatementName::Registered(id), &Own::Transaction.text(text), &[]);
                connection.expect(Reply::Parse(id), false);
            }
            let text = Own::Transaction.text(text);
            connection.output.bind(b"", StatementName::Registered(id), &text, originate::BIND_NOTHING);
            connection.output.execute(b"", 0);
            connection.expect(Reply::Bind, false);
            connection.expect(Reply::Execute, false);
            participant.has_begun = true;
            participant.needs_sync = true;
        }
    }
}

/// Gives the shard the transaction's settings up to this many.
fn put_settings(participant: &mut Participant, sets: &[Told], count: usize) {
    for told in sets.iter().take(count).skip(participant.settings_known) {
        let set = match told {
            Told::Setting(set) if map_database::is_told(participant.shard, set) => set,
            Told::Statement(text) if participant.shard != MAP_DATABASE => {
                hidden_statement(participant, &Own::Transaction.text(text));
                continue;
            }
            Told::Setting(_) | Told::Statement(_) | Told::Nothing => continue,
        };
        let mut sql = String::from("SELECT pg_catalog.set_config(");
        sql.push_str(&quoted_literal(&set.name));
        sql.push(',');
        match &set.value {
            Some(value) => sql.push_str(&quoted_literal(value)),
            None => sql.push_str("NULL"),
        }
        sql.push_str(if set.is_local { ",true)" } else { ",false)" });
        hidden_statement(participant, &Own::Setting.text(&sql));
        participant.connection.custom_names.insert(&set.name);
    }
    participant.settings_known = participant.settings_known.max(count);
}

/// A statement whose answers the client does not see, unless it fails. As the unnamed one: the client's own unnamed statement
/// is parsed again whenever it is bound.
pub(in crate::session) fn hidden_statement(participant: &mut Participant, text: &ShardText<'_>) {
    let connection = &mut *participant.connection;
    connection.output.parse(StatementName::Unnamed, text, &[]);
    connection.output.bind(b"", StatementName::Unnamed, text, originate::BIND_NOTHING);
    connection.output.execute(b"", 0);
    connection.unnamed = None;
    connection.expect(Reply::ParseUnnamed, false);
    connection.expect(Reply::Bind, false);
    connection.expect(Reply::Execute, false);
    participant.needs_sync = true;
}

/// A text that means the same under every schema.
fn statement_text_anywhere(text: &'static str) -> Arc<StatementText> {
    let text = Bytes::from_static(text.as_bytes());
    Arc::new(StatementText {
        text,
        types: Box::default(),
        catalog_version: 0,
        search_path: Arc::default(),
        constants: Arc::default(),
        parsed: 0,
    })
}

/// The one where nothing is to be written, whatever the client has said. DEFERRABLE, it could wait where it did not.
fn begin_text_read_only(modes: &TransactionModes) -> &'static str {
    begin_text(&TransactionModes { is_read_only: Some(true), is_deferrable: None, ..modes.clone() })
}

/// One fixed text for each combination of modes, so that every connection has it prepared once.
fn begin_text(modes: &TransactionModes) -> &'static str {
    use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
    let deferrable = modes.is_deferrable == Some(true);
    match (modes.isolation, modes.is_read_only, deferrable) {
        (None, None, false) => "BEGIN",
        (None, Some(true), false) => "BEGIN READ ONLY",
        (None, Some(false), false) => "BEGIN READ WRITE",
        (None, None, true) => "BEGIN DEFERRABLE",
        (None, Some(true), true) => "BEGIN READ ONLY DEFERRABLE",
        (None, Some(false), true) => "BEGIN READ WRITE DEFERRABLE",
        (Some(ReadUncommitted), None, _) => "BEGIN ISOLATION LEVEL READ UNCOMMITTED",
        (Some(ReadUncommitted), Some(true), _) => "BEGIN ISOLATION LEVEL READ UNCOMMITTED READ ONLY",
        (Some(ReadUncommitted), Some(false), _) => "BEGIN ISOLATION LEVEL READ UNCOMMITTED READ WRITE",
        (Some(ReadCommitted), None, _) => "BEGIN ISOLATION LEVEL READ COMMITTED",
        (Some(ReadCommitted), Some(true), _) => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        (Some(ReadCommitted), Some(false), _) => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        (Some(RepeatableRead), None, _) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        (Some(RepeatableRead), Some(true), _) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        (Some(RepeatableRead), Some(false), _) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
        (Some(Serializable), None, false) => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        (Some(Serializable), Some(true), false) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        (Some(Serializable), Some(false), false) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        (Some(Serializable), None, true) => "BEGIN ISOLATION LEVEL SERIALIZABLE DEFERRABLE",
        (Some(Serializable), Some(true), true) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        (Some(Serializable), Some(false), true) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE DEFERRABLE",
    }
}
