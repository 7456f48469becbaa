//! How many prepared statements and portals a session may keep, by number and in bytes.

use crate::error::{PgError, SqlState};
use crate::session::Session;

impl Session {
    /// For one more statement, by this name and of so many bytes.
    pub(in crate::session) fn check_name_is_free(&self, name: &[u8], bytes: usize) -> Result<(), PgError> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
            return Err(PgError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let limit = self.gateway.prepared_max();
        if self.statements.len() >= limit {
            let message = format!("more than {limit} prepared statements in one session");
            return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.prepared_statements_max.")
                .with_hint("Close statements that are no longer used, or raise the limit."));
        }
        self.check_kept_bytes(bytes)
    }

    /// For so many bytes more of statements' texts and portals' values.
    pub(super) fn check_kept_bytes(&self, bytes: usize) -> Result<(), PgError> {
        let limit = usize::try_from(self.gateway.config.cross_shard.prepared_bytes_max).unwrap_or(usize::MAX);
        if self.statements.bytes().saturating_add(self.portals.bytes()).saturating_add(bytes) > limit {
            let message = format!("prepared statements and portals of more than {limit} bytes in one session");
            return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.prepared_bytes_max.")
                .with_hint("Close statements that are no longer used, or raise the limit."));
        }
        Ok(())
    }
}
