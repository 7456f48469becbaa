//! A prepared statement keeps its parameters' types and its columns: a client remembers what it was told of them.
//!
//! PostgreSQL reads a prepared statement anew when what it names has changed, with the parameters' types that it had, and refuses
//! it while its columns are not what they were. Here one statement is prepared on many connections, at different times: on each
//! of them it is asked for its columns before it is bound there for the client, and so is the home shard. What was said first
//! stays with the statement, through all its readings, and what comes later is held against it.
//!
//! On the connection that a statement meets first, the question travels with the rest, and nobody waits for the answer.

use std::sync::Arc;

use super::describe::{Description, prepare_on};
use super::statement::Statement;
use crate::backend::{ColumnsDigest, Reply, StatementId, StatementName};
use crate::error::{PgError, SqlState};
use crate::session::cursor::{Heard, is_fetch};
use crate::session::{Failure, Session};
use crate::sql::analysis::Command;
use crate::wire::{FieldDescription, shard_tag};

impl Session {
    /// The statement is on this participant's connection, as far as its messages go, and gives the columns that it had.
    /// `is_due`: its ParseComplete is.
    pub(in crate::session) async fn prepare_as_told(
        &mut self,
        index: usize,
        statement: &Arc<Statement>,
        is_due: bool,
    ) -> Result<(), Failure> {
        let prepared_max = self.gateway.prepared_max();
        let participant = self.transaction.at(index)?;
        let connection = &mut *participant.connection;
        let there = connection.prepared.columns(statement.id);
        if let (Some(there), None) = (there, statement.told.get()) {
            let known = self.gateway.descriptions.get(&statement.id).or_else(|| self.gateway.told.get(&statement.id));
            known.filter(|known| known.columns() == there).map(|known| statement.told.set(known));
        }
        let told = statement.told.get().map(|told| (told.columns(), told.rows.is_some()));
        let is_known = told.is_some_and(|(columns, _)| there == Some(columns));
        if there.is_some() && told.is_some() && !is_known {
            // Prepared under another schema than the one that the client knows: which of them is today's?
            connection.prepared.doubt(statement.id);
        }
        let is_parsed = prepare_on(connection, statement, is_due, prepared_max);
        if is_due && !is_parsed {
            connection.expect(Reply::Local(shard_tag::PARSE_COMPLETE), true);
        }
        if is_known || !keeps_columns(statement) {
            return Ok(());
        }
        connection.output.describe_statement(StatementName::Registered(statement.id));
        connection.expect(Reply::Columns(statement.id), false);
        self.batch.unheard.retain(|unheard| !Arc::ptr_eq(unheard, statement));
        self.batch.unheard.push(Arc::clone(statement));
        let Some((columns, true)) = told else { return Ok(()) };
        self.drain_with_flush(index).await?;
        let there = self
            .transaction
            .participants()
            .get(index)
            .and_then(|participant| participant.connection.prepared.columns(statement.id));
        if there == Some(columns) { Ok(()) } else { Err(changed().into()) }
    }

    /// The answer has come.
    pub(in crate::session) fn note_told(&mut self, id: StatementId, description: Description) {
        let description = Arc::new(description);
        for statement in self.batch.unheard.extract_if(.., |statement| statement.id == id) {
            statement.told.get_or_init(|| Arc::clone(&description));
        }
        self.gateway.told.insert(id, description);
    }

    /// What was first said of it; `None`: nothing yet.
    pub(in crate::session) fn told(&self, statement: &Statement) -> Option<Arc<Description>> {
        if is_fetch(statement) {
            return statement.description.get().cloned();
        }
        let told = statement.told.get().cloned().filter(|_| keeps_columns(statement));
        told.or_else(|| self.gateway.descriptions.get(&statement.id)).or_else(|| self.gateway.told.get(&statement.id))
    }
}

/// The home shard has described the statement as it is read now.
pub(in crate::session) fn hold_to(statement: &Statement, description: &Arc<Description>) -> Result<(), PgError> {
    if !keeps_columns(statement) {
        return Ok(());
    }
    let told = statement.told.get_or_init(|| Arc::clone(description));
    if told.columns() == description.columns() { Ok(()) } else { Err(changed()) }
}

/// What PostgreSQL plans. What a FETCH or an EXECUTE gives is another object's affair.
fn keeps_columns(statement: &Statement) -> bool {
    statement.analysis().is_some_and(|analysis| matches!(analysis.command, Command::Query(_)))
}

/// All shards give rows of the columns that the client was told, and then the hidden ones.
pub(in crate::session) fn check_columns(all: &[Heard], hidden: usize, told: ColumnsDigest) -> Result<(), PgError> {
    let is_told = |columns: &[FieldDescription]| {
        let visible = columns.get(..columns.len().saturating_sub(hidden)).unwrap_or_default();
        ColumnsDigest::of_columns(visible) == told
    };
    if all.iter().all(|heard| is_told(&heard.columns)) { Ok(()) } else { Err(changed()) }
}

/// What was not prepared has nothing that could be out of date.
pub(in crate::session) fn changed_meanwhile() -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the columns of a table have changed while the statement ran")
        .with_hint("Retry the statement.")
}

/// In PostgreSQL's words, by which drivers know that they have to prepare the statement again.
pub(in crate::session) fn changed() -> PgError {
    PgError::changed_plan()
}
