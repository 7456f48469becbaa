//! Why a state of a move is left without having reached its end.

use super::site::SiteError;
use crate::shardmap::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// To be tried again after a while.
    Again(String),
    /// No answer came in time: to be tried again, with more of it.
    Slow(String),
    /// The move cannot be done: back, while it has not switched.
    Abort(String),
    /// Both sides have different rows: back, while it has not switched.
    Differ(String),
    /// Nothing is to be done for a while. What the move waits for.
    Rest(Option<String>),
    /// Nothing was touched yet, and nothing will be.
    Withdraw(String),
    /// Another driver has the move.
    Overtaken,
    /// A person has to look.
    Failed(String),
}

impl Stop {
    /// In words.
    pub(super) fn reason(&self) -> &str {
        match self {
            Stop::Again(reason) | Stop::Slow(reason) | Stop::Abort(reason) | Stop::Differ(reason) => reason,
            Stop::Withdraw(reason) | Stop::Failed(reason) => reason,
            Stop::Rest(reason) => reason.as_deref().unwrap_or("nothing is to be done"),
            Stop::Overtaken => "another driver has taken over",
        }
    }

    /// A side is not there, for which statements wait.
    pub(super) fn while_held(self) -> Self {
        let told = |reason: String| {
            format!(
                "{reason}. Statements for the partitions wait: bring the shard back, or let shardgate.alter_shard() name the server \
                 that has taken its place"
            )
        };
        match self {
            Stop::Again(reason) => Stop::Again(told(reason)),
            Stop::Slow(reason) => Stop::Slow(told(reason)),
            Stop::Abort(_) | Stop::Differ(_) | Stop::Rest(_) | Stop::Withdraw(_) | Stop::Overtaken | Stop::Failed(_) => self,
        }
    }
}

impl From<SiteError> for Stop {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::Busy { .. } => Stop::Again(error.to_string()),
            SiteError::Overtaken => Stop::Overtaken,
            SiteError::Refused { .. } => Stop::Abort(error.to_string()),
        }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(error) if error.message.starts_with("another driver has taken over") => Stop::Overtaken,
            StoreError::Refused(error) => Stop::Again(format!("the map database: {}", error.message)),
            other => Stop::Again(other.to_string()),
        }
    }
}
