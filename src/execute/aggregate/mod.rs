//! Rows of several shards that become one: parts of groups, and equal rows.
//!
//! Pure: rows go in as they come from the shards, groups come out. Exact or not at all: the types of the shards' columns are
//! looked at before the first row, and what is not listed is an error ([`Inexact`]), never a guess. Memory is bounded: the groups
//! and keys that are kept are counted in bytes, and beyond the limit the statement ends.

mod cell;
mod decimal;
mod distinct;
mod groups;
mod last_step;
mod row_key;

pub use distinct::Seen;
pub use groups::{GroupRow, Groups};
pub use last_step::last_step_text;

use crate::error::{PgError, SqlState};

/// Why rows cannot be combined.
#[derive(Debug)]
pub enum CombineError {
    /// A type or a form of a value whose combination is not known to be exact: a sentence without its full stop.
    Inexact(String),
    /// Told to the client as it is.
    Error(PgError),
}

/// The bytes that one statement's groups and keys may take.
#[derive(Debug)]
struct Room {
    taken: usize,
    bytes_max: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), CombineError> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= self.bytes_max {
            return Ok(());
        }
        let message = format!("the groups or distinct rows of the statement take more than {} bytes", self.bytes_max);
        Err(CombineError::Error(
            PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.merge_bytes_max.")
                .with_hint("Group by fewer values, add a condition on the shard key, or raise the limit."),
        ))
    }
}

fn inexact(reason: impl Into<String>) -> CombineError {
    CombineError::Inexact(reason.into())
}
