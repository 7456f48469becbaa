//! One instant for a statement over several shards, and for all such statements of a transaction.
//!
//! It is that of the first shard that the transaction has begun on, or of the home shard where it has begun on all at once; outside
//! of a transaction of the statement's first shard. The shards get it as a setting, before what they run. A statement for one shard
//! alone, which is another one, gets it in its text ([`super::time_of_other`]).

use std::sync::Arc;

use super::replay::hidden_statement;
use crate::backend::Own;
use crate::error::PgError;
use crate::session::route::{aside, is_read_here};
use crate::session::{Failure, Session};
use crate::shard_key::Format;
use crate::shardmap::ShardId;
use crate::sql::Context;
use crate::sql::rewrite::{clock, clock_literals};
use crate::wire;

/// As PostgreSQL prints them in UTC, which it reads back under any settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Instant {
    pub transaction: String,
    pub statement: String,
}

impl Instant {
    /// A query that gives it to the server that runs it. `is_local`: for the open transaction only.
    pub fn sql(&self, is_local: bool) -> String {
        // Digits, dashes, colons: nothing to quote.
        format!(
            "SELECT pg_catalog.set_config('{}', '{}', {is_local}), pg_catalog.set_config('{}', '{}', {is_local})",
            clock::INSTANT,
            self.transaction,
            clock::STATEMENT_INSTANT,
            self.statement
        )
    }

    /// A text with this instant in place of its clocks; `None`: it has none, or none that can be told. `context`: as in
    /// [`clock::replaced`].
    pub fn fixed(&self, text: &str, context: Option<&Context>) -> Option<String> {
        clock::fixed(text, context, &|setting| self.of(setting).to_owned()).ok().flatten()
    }

    /// The value of a setting.
    pub fn of(&self, setting: &str) -> &str {
        if setting == clock::INSTANT { &self.transaction } else { &self.statement }
    }
}

impl Session {
    /// What these shards are to run, with one instant for all.
    pub(in crate::session) async fn with_instant(&mut self, text: String, shards: &[ShardId]) -> Result<String, Failure> {
        let (text, replaced) = match is_read_here(&text) {
            true => with_setting(text, &self.context)?,
            false => {
                let context = Arc::clone(&self.context);
                aside(move || with_setting(text, &context)).await??
            }
        };
        let Some(replaced) = replaced else { return Ok(text) };
        let instant = self.instant(shards).await?;
        let sql = instant.sql(false);
        for shard in shards {
            let index = self.join(*shard).await?;
            let Some(participant) = self.transaction.participants.get_mut(index) else { continue };
            hidden_statement(participant, &Own::Setting.text(&sql));
            self.sync(index).await?;
        }
        Ok(replaced)
    }

    /// A value that several shards would each read by their own clock.
    pub(in crate::session) fn check_parameters(&self, bind: &wire::Bind<'_>, types: &[u32]) -> Result<(), PgError> {
        for ((format, value), type_oid) in bind.parameters().zip(types) {
            if let (Format::Text, Some(value)) = (format, value) {
                clock_literals::check_parameter(*type_oid, value, &self.context)?;
            }
        }
        Ok(())
    }

    /// Asked of a shard that the transaction is on.
    pub(in crate::session) async fn instant(&mut self, shards: &[ShardId]) -> Result<Instant, Failure> {
        let shard = self.clock_shard()?.or(shards.first().copied()).ok_or_else(|| PgError::internal("no shard"))?;
        let index = self.join(shard).await?;
        self.sync(index).await?;
        let participant = self.transaction.at(index)?;
        let rows = match participant.connection.simple(&Own::Constants.text(CLOCK)).await {
            Ok(rows) => rows,
            Err(error) => return Err(self.participant_lost(index, &error)),
        };
        let mut values = rows.into_iter().flatten().flatten().map(|value| String::from_utf8_lossy(&value).into_owned());
        let (Some(transaction), Some(statement)) = (values.next(), values.next()) else {
            return Err(PgError::internal("a clock without a time").into());
        };
        if !self.transaction.is_open() {
            return Ok(Instant { transaction: statement.clone(), statement });
        }
        self.transaction.clock_shard.get_or_insert(shard);
        let transaction = self.transaction.instant.get_or_insert(transaction).clone();
        Ok(Instant { transaction, statement })
    }
}

/// The text, its times cast to their types; and with the settings in place of its clocks, if it has any.
fn with_setting(text: String, context: &Context) -> Result<(String, Option<String>), PgError> {
    let text = clock_literals::typed(&text, context)?.unwrap_or(text);
    let replaced = clock::replaced(&text, Some(context))?;
    Ok((text, replaced))
}

const CLOCK: &str = "SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.now()), 'YYYY-MM-DD HH24:MI:SS.US\"+00\"'), \
                     pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.statement_timestamp()), 'YYYY-MM-DD HH24:MI:SS.US\"+00\"')";
