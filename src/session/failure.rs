//! How a statement, or a session, ends badly.

use bytes::Bytes;

use super::Session;
use super::protocol::describe::error_frame;
use crate::backend::CheckoutError;
use crate::error::{PgError, SqlState};
use crate::sql::residues::view_of_covering;
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

/// What the triggers of a move refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedByMove {
    /// A row, since its partition is being moved, or has moved: by another map it may be taken.
    Row,
    /// To change a key while replication writes copies that refer to it: a moment later it may be done.
    KeyOfCopies,
}

/// Of an ErrorResponse, the whole frame.
pub(super) fn refused_by_move(frame: &[u8]) -> Option<RefusedByMove> {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    match error_fields(body).ok()?.get(b'n')? {
        GATE => Some(RefusedByMove::Row),
        COPIES => Some(RefusedByMove::KeyOfCopies),
        _ => None,
    }
}

/// In the constraint's field of the errors that the triggers of a move raise.
const GATE: &[u8] = b"shardgate_gate";
const COPIES: &[u8] = b"shardgate_copies";

impl Session {
    /// In the words of a statement that names views, where a shard has answered one that names their covering views.
    pub(super) fn naming_views(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Error(mut error) => {
                let texts = [Some(&mut error.message), error.detail.as_mut()];
                texts.into_iter().flatten().for_each(|text| self.name_view(text));
                Failure::Error(error)
            }
            Failure::Shard(frame) => self.naming_views_of_shard(frame),
            other @ (Failure::Forwarded | Failure::End(_)) => other,
        }
    }

    fn naming_views_of_shard(&self, frame: Bytes) -> Failure {
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let said = String::from_utf8_lossy(body);
        let (Some((view, covering)), Ok(fields)) = (view_of_covering(&said, &self.context.catalog), error_fields(body)) else {
            return Failure::Shard(frame);
        };
        if fields.get(b'C') == Some(&SqlState::UNDEFINED_TABLE.0) {
            return view_uncovered().into();
        }
        let mut named = Vec::with_capacity(body.len());
        for (code, value) in fields.iter() {
            named.push(code);
            named.extend_from_slice(&replaced(value, covering.as_bytes(), view.name.as_bytes()));
            named.push(0);
        }
        named.push(0);
        Failure::Shard(error_frame(&named))
    }

    fn name_view(&self, text: &mut String) {
        if let Some((view, covering)) = view_of_covering(text, &self.context.catalog) {
            *text = text.replace(&covering, &view.name);
        }
    }
}

/// In whatever encoding the client has.
fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match text.windows(from.len()).position(|window| window == from) {
        Some(place) => {
            let (before, after) = text.split_at(place);
            [before, to, after.get(from.len()..).unwrap_or_default()].concat()
        }
        None => text.to_vec(),
    }
}

/// The transaction's snapshot is of a move that has ended since.
fn view_uncovered() -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "a view cannot be read any more as of this snapshot")
        .with_detail("Rows of its tables were being moved when the snapshot was taken, and the move has ended.")
        .with_hint("Repeat the transaction.")
}

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

/// Of a message that is whole: the one behind it can be read.
impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        let code = match error {
            DecodeError::FormatCode(_) => SqlState::INVALID_PARAMETER_VALUE,
            DecodeError::FrameLength { .. }
            | DecodeError::Truncated
            | DecodeError::MissingTerminator
            | DecodeError::TrailingBytes
            | DecodeError::Invalid(_)
            | DecodeError::FormatCount { .. }
            | DecodeError::Subtype { .. }
            | DecodeError::OutOfOrder { .. } => SqlState::PROTOCOL_VIOLATION,
        };
        PgError::new(code, error.to_string()).into()
    }
}

/// Bytes from the client that do not fit the protocol: the stream cannot be trusted any more.
impl From<DecodeError> for SessionEnd {
    fn from(error: DecodeError) -> Self {
        SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, error.to_string()))
    }
}
