//! Gives a connection the settings of the session that it serves next.

use std::sync::Arc;

use super::{Connection, ConnectionError, CustomNames, Own, Setter, Settings};
use crate::error::SqlState;

impl Connection {
    /// Gives the connection these settings, and the session's names. One round trip when they differ, none otherwise.
    pub async fn apply_settings(&mut self, wanted: &Arc<Settings>, names: &CustomNames) -> Result<(), ConnectionError> {
        if self.settings == *wanted && self.custom_names == *names {
            self.settings = Arc::clone(wanted);
            return Ok(());
        }
        let before = Arc::clone(&self.settings);
        let mut applied = Ok(());
        for setter in [Setter::Session, Setter::Login, Setter::Role] {
            let sql = self.settings_statements_as(setter, wanted, names);
            if sql.is_empty() {
                return Ok(());
            }
            applied = Box::pin(self.run_settings(&sql.join(";"))).await;
            if applied.is_ok() {
                return Ok(());
            }
            self.settings = Arc::clone(&before);
            if !applied.as_ref().is_err_and(is_for_want_of_rights) {
                break;
            }
        }
        applied
    }

    async fn run_settings(&mut self, sql: &str) -> Result<(), ConnectionError> {
        let mut applied = self.simple(&Own::Setting.text(sql)).await;
        // The limit that the connection has from whom it served before ends this too, where the machine is busy.
        for _ in 0..SETTINGS_ATTEMPTS {
            match &applied {
                Err(ConnectionError::Refused { sqlstate, .. }) if sqlstate.as_bytes() == SqlState::QUERY_CANCELED.0 => {}
                Ok(_) | Err(_) => break,
            }
            applied = self.simple(&Own::Setting.text(sql)).await;
        }
        applied.map(drop)
    }

    /// What has to run for these settings and names, which are on record as if it had.
    pub fn settings_statements(&mut self, wanted: &Arc<Settings>, names: &CustomNames) -> Vec<String> {
        self.settings_statements_as(Setter::Session, wanted, names)
    }

    fn settings_statements_as(&mut self, setter: Setter, wanted: &Arc<Settings>, names: &CustomNames) -> Vec<String> {
        let mut statements = self.custom_names.statements_to(names, wanted);
        statements.extend(self.settings.statements_as(setter, wanted));
        self.settings = Arc::clone(wanted);
        self.custom_names.extend(names);
        // Who gives it settings for a statement of the proxy's own names none.
        wanted.iter().for_each(|(name, _)| self.custom_names.insert(name));
        statements
    }
}

/// A setting needs the rights of another user.
fn is_for_want_of_rights(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::Refused { sqlstate, .. } if sqlstate.as_bytes() == SqlState::INSUFFICIENT_PRIVILEGE.0)
}

/// How often a connection's settings are tried once more when a limit ends them.
const SETTINGS_ATTEMPTS: usize = 5;
