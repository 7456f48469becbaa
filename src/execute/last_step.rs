//! Runs the query over the whole groups that is left where PostgreSQL must compute the answer from them, and relays its rows.
//!
//! It goes to one of the shards that had their part, on the same connection: in the same transaction, with the same settings.

use bytes::{Buf, Bytes};

use super::RowSink;
use crate::backend::{Connection, ConnectionError, Frame, NestedValues, ShardText, StatementName};
use crate::sql::residues::Covered;
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, originate, row_description, shard_tag};

/// What runs, and how the client asked for it.
#[derive(Clone, Copy, Debug)]
pub struct LastStep<'a> {
    pub text: &'a Covered,
    /// As the home shard inferred them for the client's own text.
    pub types: &'a [u32],
    /// The rest of the client's Bind.
    pub after_names: &'a [u8],
    /// As the home shard described the client's own text.
    pub columns: &'a [FieldDescription],
    /// The simple protocol: the client gets a RowDescription.
    pub describes: bool,
}

/// How it ended.
#[derive(Debug)]
pub enum LastStepEnd {
    Answered,
    /// Its columns would have other types than the client was promised; nothing was sent.
    Differs,
    /// An ErrorResponse: the whole frame.
    Refused(Bytes),
}

#[derive(Debug)]
pub enum LastStepError<G> {
    Lost(ConnectionError),
    Gone(G),
}

/// Reads to the end, also after an error, so that the connection stays usable. Not cancel safe.
pub async fn last_step<S: RowSink>(
    connection: &mut Connection,
    step: &LastStep<'_>,
    sink: &mut S,
) -> Result<LastStepEnd, LastStepError<S::Gone>> {
    connection.unnamed = None;
    connection.pending.clear();
    put(connection, step);
    connection.flush().await.map_err(LastStepError::Lost)?;
    let mut end = LastStepEnd::Answered;
    let mut nested = NestedValues::default();
    loop {
        let Some(Frame { header, is_complete: true }) = connection.peek().map_err(LastStepError::Lost)? else {
            connection.fill().await.map_err(LastStepError::Lost)?;
            continue;
        };
        if header.tag == shard_tag::DATA_ROW {
            connection.translate_row(&nested, FRAME_HEADER_BYTES..header.total);
        }
        let bytes = connection.input.get(..header.total).unwrap_or_default();
        let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        match header.tag {
            shard_tag::ROW_DESCRIPTION => {
                let mut columns = row_description(body).unwrap_or_default();
                nested = connection.oids.translate_columns(&mut columns);
                if !step.has(&columns) {
                    end = LastStepEnd::Differs;
                } else if step.describes {
                    originate::row_description(sink.buffer(), step.columns);
                }
            }
            shard_tag::DATA_ROW | shard_tag::COMMAND_COMPLETE if matches!(end, LastStepEnd::Answered) => {
                sink.buffer().extend_from_slice(bytes);
            }
            shard_tag::NOTICE => sink.buffer().extend_from_slice(bytes),
            shard_tag::ERROR if matches!(end, LastStepEnd::Answered) => {
                end = LastStepEnd::Refused(Bytes::copy_from_slice(bytes));
            }
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                connection.input.advance(header.total);
                return Ok(end);
            }
            _ => {}
        }
        connection.input.advance(header.total);
        if sink.buffer().len() >= BUFFER_BYTES {
            sink.send().await.map_err(LastStepError::Gone)?;
        }
    }
}

fn put(connection: &mut Connection, step: &LastStep<'_>) {
    let (oids, out) = (&connection.oids, &mut connection.output);
    let text = ShardText::covered(step.text);
    out.parse(StatementName::Unnamed, &text, &oids.types_there(step.types));
    out.bind(b"", StatementName::Unnamed, &text, &oids.bind_there(step.types, step.after_names));
    out.describe_portal(b"");
    out.execute(b"", 0);
    out.sync();
}

impl LastStep<'_> {
    fn has(&self, found: &[FieldDescription]) -> bool {
        let is_same = |(here, there): (&FieldDescription, &FieldDescription)| here.type_oid == there.type_oid;
        found.len() == self.columns.len() && found.iter().zip(self.columns).all(is_same)
    }
}

/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
