//! How a statement, or a session, ends badly.

use bytes::Bytes;

use crate::backend::CheckoutError;
use crate::error::{PgError, SqlState};
use crate::wire::{DecodeError, FRAME_HEADER_BYTES, error_fields};

/// Why a session is over.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The client closed its connection, or it broke.
    ClientGone,
    /// Terminate.
    Terminated,
    /// Said to the client as FATAL before the connection is closed.
    Fatal(PgError),
}

/// Why a statement did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// To be sent to the client.
    Error(PgError),
    /// A shard's own ErrorResponse, the whole frame, not yet forwarded.
    Shard(Bytes),
    /// A shard's error that has been forwarded already.
    Forwarded,
    End(SessionEnd),
}

/// Of an ErrorResponse, the whole frame; empty when it cannot be read.
pub(super) fn sqlstate(frame: &[u8]) -> &[u8] {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    error_fields(body).ok().and_then(|fields| fields.get(b'C')).unwrap_or_default()
}

/// Of an ErrorResponse, the whole frame: the shard does not take a row, since its partition is being moved, or has moved.
pub(super) fn is_of_gate(frame: &[u8]) -> bool {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    error_fields(body).is_ok_and(|fields| fields.get(b'n') == Some(GATE))
}

/// In the constraint's field of the error that the triggers of a move raise.
const GATE: &[u8] = b"shardgate_gate";

impl From<PgError> for Failure {
    fn from(error: PgError) -> Self {
        Failure::Error(error)
    }
}

impl From<CheckoutError> for Failure {
    fn from(error: CheckoutError) -> Self {
        Failure::Error(error.into())
    }
}

impl From<SessionEnd> for Failure {
    fn from(end: SessionEnd) -> Self {
        Failure::End(end)
    }
}

/// Bytes from the client that do not fit the protocol: the stream cannot be trusted any more.
impl From<DecodeError> for SessionEnd {
    fn from(error: DecodeError) -> Self {
        SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, error.to_string()))
    }
}
