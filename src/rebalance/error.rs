//! What keeps a verb from being done, as one line for the operator. Never holds a url or a password.

use std::io;
use std::time::Duration;

use super::units;
use crate::shardmap::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum RebalanceError {
    #[error("the url of {place} is not valid: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Url { place: String },
    #[error("could not connect to {place}: {reason}")]
    Unreachable { place: String, reason: String },
    #[error("no answer from {place} within {}", units::duration(*.deadline))]
    Deadline { place: String, deadline: Duration },
    #[error("the map database has no shard map; \"shardgate init\" makes one")]
    NotInitialised,
    #[error("{place}: {reason}")]
    Query { place: String, reason: String },
    /// With what is in the way and what to do.
    #[error("{0}")]
    Refused(String),
    #[error("move {move_id} was aborted: {reason}")]
    Aborted { move_id: i32, reason: String },
    #[error("move {move_id} waits for a person: {reason}")]
    NeedsPerson { move_id: i32, reason: String },
    /// Rows that should be the same are not.
    #[error("{0}")]
    Differs(String),
    #[error("could not write the output")]
    Output(#[source] io::Error),
    #[error("could not write the output as JSON")]
    Json(#[source] serde_json::Error),
}

impl RebalanceError {
    /// Whoever read the output has gone: nothing is left to be told.
    pub fn is_broken_pipe(&self) -> bool {
        let kind = match self {
            RebalanceError::Output(error) => Some(error.kind()),
            RebalanceError::Json(error) => error.io_error_kind(),
            RebalanceError::Url { .. }
            | RebalanceError::Unreachable { .. }
            | RebalanceError::Deadline { .. }
            | RebalanceError::NotInitialised
            | RebalanceError::Refused(_)
            | RebalanceError::Differs(_)
            | RebalanceError::Aborted { .. }
            | RebalanceError::NeedsPerson { .. }
            | RebalanceError::Query { .. } => None,
        };
        kind == Some(io::ErrorKind::BrokenPipe)
    }
}

impl RebalanceError {
    /// 1 failed, 3 refused by a check, 4 waits for a person.
    pub fn exit_code(&self) -> u8 {
        match self {
            RebalanceError::Refused(_) => 3,
            RebalanceError::NeedsPerson { .. } => 4,
            _ => 1,
        }
    }
}

impl From<StoreError> for RebalanceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(error) => {
                let parts = [Some(error.message), error.detail, error.hint];
                // Details and hints are sentences, messages are not.
                let parts = parts.iter().flatten().map(|part| part.trim_end_matches('.'));
                RebalanceError::Refused(parts.collect::<Vec<_>>().join(". "))
            }
            StoreError::NotInitialised => RebalanceError::NotInitialised,
            other => {
                let cause = std::error::Error::source(&other).map(|cause| format!(": {cause}")).unwrap_or_default();
                RebalanceError::Query { place: "the map database".to_owned(), reason: format!("{other}{cause}") }
            }
        }
    }
}

impl From<io::Error> for RebalanceError {
    fn from(error: io::Error) -> Self {
        RebalanceError::Output(error)
    }
}

impl From<serde_json::Error> for RebalanceError {
    fn from(error: serde_json::Error) -> Self {
        RebalanceError::Json(error)
    }
}
