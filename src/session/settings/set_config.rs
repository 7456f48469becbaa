//! `SELECT set_config(…)`, answered like SET: the setting is the session's, not the connection's.

use std::collections::BTreeMap;

use super::setting::{SEED, check_allowed};
use crate::catalog::quoted_literal;
use crate::declare::Argument;
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::commands::arguments::argument_value;
use crate::session::commands::command::text_field;
use crate::session::{Failure, Session};
use crate::shard_key::oid;
use crate::sql::analysis::{ArgumentValue, ConfigCall, SetConfig};
use crate::wire::{FieldDescription, originate};

/// What a call has got.
enum Given {
    /// Value, for the transaction only.
    Set(Option<String>, bool),
    /// The second argument is not NULL, and what it says.
    Read(bool, bool),
}

impl Session {
    pub(in crate::session) async fn set_config(&mut self, calls: &[SetConfig], inputs: &Inputs<'_>) -> Result<(), Failure> {
        let mut given = Vec::with_capacity(calls.len());
        for call in calls {
            let what = match &call.what {
                ConfigCall::Set { value, is_local } => Given::Set(text(value, inputs)?, boolean(is_local, inputs)?),
                ConfigCall::SetWhereItExists { value, is_local } => {
                    let name = text(&call.name, inputs)?.unwrap_or_default();
                    let sql = format!(
                        "SELECT name FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) {}",
                        quoted_literal(&name)
                    );
                    if self.ask_as_session(&sql).await?.is_none() {
                        originate::row_description(&mut self.client.output, &[text_field(&call.column)]);
                        originate::command_complete(&mut self.client.output, "SELECT 0");
                        return Ok(());
                    }
                    Given::Set(text(value, inputs)?, boolean(is_local, inputs)?)
                }
                ConfigCall::Read { missing_ok } => Given::Read(text(missing_ok, inputs)?.is_some(), boolean(missing_ok, inputs)?),
            };
            given.push((text(&call.name, inputs)?, what));
        }
        // Before the calls, as PostgreSQL does: one that fails comes after it.
        let fields: Vec<FieldDescription> = calls.iter().map(|call| text_field(&call.column)).collect();
        originate::row_description(&mut self.client.output, &fields);
        let mut values = Vec::with_capacity(calls.len());
        // What is set for the transaction of this statement alone the calls behind it see.
        let mut of_statement = BTreeMap::new();
        for (name, what) in given {
            let lower = name.as_deref().map(str::to_ascii_lowercase);
            values.push(match (name, what) {
                (name, Given::Set(value, is_local)) => {
                    let value = self.set_one_config(name, value, is_local).await?;
                    match is_local && !self.transaction.is_open() {
                        true => of_statement.extend(lower.map(|name| (name, value.clone()))),
                        false => of_statement.retain(|known, _| Some(known) != lower.as_ref()),
                    }
                    Some(value)
                }
                (Some(name), Given::Read(true, missing_ok)) => match lower.and_then(|name| of_statement.get(&name)) {
                    Some(value) => Some(value.clone()),
                    None => self.read_config(&name, missing_ok).await?,
                },
                (_, Given::Read(..)) => None,
            });
        }
        let row: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        originate::data_row(&mut self.client.output, &row);
        originate::command_complete(&mut self.client.output, "SELECT 1");
        Ok(())
    }

    /// The value as PostgreSQL prints it.
    async fn set_one_config(&mut self, name: Option<String>, value: Option<String>, is_local: bool) -> Result<String, Failure> {
        let Some(name) = name else {
            return Err(PgError::new(SqlState(*b"22004"), "SET requires parameter name").into());
        };
        let name = name.to_ascii_lowercase();
        // NULL is the default, for the flag too.
        let value = value.or_else(|| self.login.settings.get(&name).map(str::to_owned));
        check_allowed(&name, value.as_deref())?;
        if name == SEED {
            return Err(PgError::unsupported(
                "cannot change \"seed\" by set_config",
                "It is what random() gives next on one connection, not a setting of the session.",
                "Call setseed().",
            )
            .into());
        }
        let canonical = self.try_value(&name, value.as_deref()).await?;
        // A setting for the transaction of this statement alone has no effect.
        if !is_local || self.transaction.is_open() {
            self.record(&name, value.is_some().then(|| canonical.clone()), is_local);
            self.note_user(&name).await?;
        } else {
            self.custom_names.insert(&name);
        }
        Ok(canonical)
    }
}

/// Type of a parameter that the client did not declare.
pub(in crate::session) fn parameter_type(calls: &[SetConfig], number: u16) -> u32 {
    let is_flag = calls.iter().any(|call| match &call.what {
        ConfigCall::Set { is_local: flag, .. }
        | ConfigCall::SetWhereItExists { is_local: flag, .. }
        | ConfigCall::Read { missing_ok: flag } => *flag == ArgumentValue::Parameter(number),
    });
    if is_flag { oid::BOOL } else { oid::TEXT }
}

pub(in crate::session) fn not_alone() -> PgError {
    PgError::unsupported(
        "set_config is only supported in a SELECT of nothing else",
        "What is set has to follow the session to other connections, so its name and value must be constants or parameters.",
        "Write SELECT set_config(name, value, is_local), or SET.",
    )
}

fn text(argument: &ArgumentValue, inputs: &Inputs<'_>) -> Result<Option<String>, PgError> {
    match argument_value(argument, inputs, &|_| oid::TEXT)? {
        Argument::Null => Ok(None),
        Argument::Text(text) => Ok(Some(text)),
        Argument::Array(_) => Err(not_alone()),
    }
}

fn boolean(argument: &ArgumentValue, inputs: &Inputs<'_>) -> Result<bool, PgError> {
    let Some(text) = text(argument, inputs)? else { return Ok(false) };
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "true" | "on" | "yes" | "y" | "1" => Ok(true),
        "f" | "false" | "off" | "no" | "n" | "0" => Ok(false),
        _ => {
            let message = format!("invalid input syntax for type boolean: \"{text}\"");
            Err(PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, message))
        }
    }
}
