//! What keeps a verb from being done, as one line for the operator. Never holds a url or a password.

use std::io;
use std::time::Duration;

use super::units;

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
            | RebalanceError::Query { .. } => None,
        };
        kind == Some(io::ErrorKind::BrokenPipe)
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
