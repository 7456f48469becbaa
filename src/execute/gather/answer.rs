//! The statement itself, over the temporary tables: its analysis, its rows, the end of the scratch transaction.

use bytes::{Buf, Bytes};

use super::{GatherError, Side, Stage, error_frame, note};
use crate::backend::{Connection, ConnectionError, Frame, Output, Own, ShardText, StatementName};
use crate::execute::RowSink;
use crate::shardmap::MapSnapshot;
use crate::sql::Context;
use crate::sql::residues::{Covered, cover};
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, originate, row_description, shard_tag};

/// What runs, and how the client asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Final<'a> {
    /// The client's own text.
    pub client_text: &'a str,
    /// By which the statement was routed.
    pub map: &'a MapSnapshot,
    /// By which its names were read.
    pub context: &'a Context,
    /// Over the temporary tables.
    pub text: &'a Covered,
    /// As the home shard inferred them.
    pub types: &'a [u32],
    /// The rest of the client's Bind.
    pub after_names: &'a [u8],
    /// Of these, the result formats: two bytes each.
    pub result_formats: &'a [u8],
    /// As the home shard described them.
    pub columns: &'a [FieldDescription],
    /// The simple protocol: the client gets a RowDescription.
    pub describes: bool,
    /// Its own columns have other names.
    pub is_renamed: bool,
    /// The client's rights have been checked on the transaction's own connection.
    pub is_permitted: bool,
}

impl Final<'_> {
    /// A text that belongs to it.
    pub(super) fn covered<G>(&self, text: impl Into<Bytes>) -> Result<Covered, GatherError<G>> {
        cover(text, self.context, self.map).map_err(GatherError::Unsupported)
    }

    /// PostgreSQL checks the client's rights on what it names, in its own text, when it makes ready to run it.
    pub(super) fn put_rights(&self, out: &mut Output) {
        let explain = format!("{EXPLAIN}{}", self.client_text);
        let text = Own::Plan.text(&explain);
        out.parse(StatementName::Unnamed, &text, self.types);
        out.bind(b"", StatementName::Unnamed, &text, &self.parameters());
        out.execute(b"", 0);
        out.sync();
    }

    /// The rest of a Bind of the client's values, all results in text.
    pub(super) fn parameters(&self) -> Vec<u8> {
        let kept = self.after_names.len().saturating_sub(self.result_formats.len() + 2);
        [self.after_names.get(..kept).unwrap_or_default(), &[0, 0]].concat()
    }

    pub(super) fn put_analysis(&self, out: &mut Output) {
        out.parse(StatementName::Named(STATEMENT), &ShardText::covered(self.text), self.types);
        out.describe_statement(StatementName::Named(STATEMENT));
        out.sync();
    }

    /// A column may come from another table, which is the temporary one; it must not be called otherwise, or of another type.
    pub(super) fn describes_same(&self, body: &[u8]) -> bool {
        let is_same = |(here, there): (&FieldDescription, &FieldDescription)| {
            (self.is_renamed || here.name == there.name) && here.type_oid == there.type_oid && here.typmod == there.typmod
        };
        row_description(body).is_ok_and(|found| found.len() == self.columns.len() && found.iter().zip(self.columns).all(is_same))
    }
}

/// Characters before the client's own text in the check of its rights.
pub const RIGHTS_OFFSET: usize = EXPLAIN.len();

/// Runs the loaded statement, relays its rows and its tag, and rolls the scratch transaction back. After an error of the
/// statement the connection is idle again.
pub async fn answer<S: RowSink>(
    scratch: &mut Connection,
    finish: &str,
    statement: &Final<'_>,
    sink: &mut S,
) -> Result<(), GatherError<S::Gone>> {
    scratch.output.query(&Own::Setting.text(finish));
    scratch.output.bind(b"", StatementName::Named(STATEMENT), &ShardText::covered(statement.text), statement.after_names);
    scratch.output.execute(b"", 0);
    scratch.output.sync();
    put_end(&mut scratch.output);
    if statement.describes {
        originate::row_description(sink.buffer(), statement.columns);
    }
    let lost = |error| GatherError::Lost { side: Side::Scratch, error };
    let mut failure = None;
    for stage in [Stage::Load, Stage::Answer, Stage::Load] {
        loop {
            let frame = scratch.peek().map_err(lost)?;
            let Some(Frame { header, is_complete: true }) = frame else {
                scratch.fill().await.map_err(lost)?;
                continue;
            };
            let bytes = scratch.input.get(..header.total).unwrap_or_default();
            match header.tag {
                shard_tag::DATA_ROW | shard_tag::COMMAND_COMPLETE if stage == Stage::Answer && failure.is_none() => {
                    sink.buffer().extend_from_slice(bytes);
                }
                shard_tag::NOTICE => sink.buffer().extend_from_slice(bytes),
                shard_tag::ERROR if failure.is_none() => {
                    let frame = error_frame(bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default());
                    failure = Some(GatherError::Shard { side: Side::Scratch, stage, frame });
                }
                _ => {}
            }
            let is_noted = matches!(header.tag, shard_tag::READY | shard_tag::PARAMETER_STATUS);
            if is_noted {
                let frame = scratch.input.split_to(header.total);
                note(scratch, header.tag, frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
            } else {
                scratch.input.advance(header.total);
            }
            if sink.buffer().len() >= BUFFER_BYTES {
                sink.send().await.map_err(GatherError::Gone)?;
            }
            if header.tag == shard_tag::READY {
                break;
            }
        }
    }
    scratch.pending.clear();
    failure.map_or(Ok(()), Err)
}

/// Whether the client may run its statement, on a connection of its own transaction.
pub async fn check_rights<G>(connection: &mut Connection, statement: &Final<'_>) -> Result<(), GatherError<G>> {
    let lost = |error| GatherError::Lost { side: Side::Scratch, error };
    statement.put_rights(&mut connection.output);
    connection.unnamed = None;
    let mut refusal = None;
    loop {
        let (tag, body) = connection.next_frame().await.map_err(lost)?;
        note(connection, tag, &body);
        match tag {
            shard_tag::ERROR => refusal = Some(error_frame(&body)),
            shard_tag::READY => break,
            _ => {}
        }
    }
    match refusal {
        Some(frame) => Err(GatherError::Shard { side: Side::Scratch, stage: Stage::Rights, frame }),
        None => Ok(()),
    }
}

/// Ends a transaction whose statements have all been answered.
pub async fn roll_back(scratch: &mut Connection) -> Result<(), ConnectionError> {
    put_end(&mut scratch.output);
    loop {
        let (tag, body) = scratch.next_frame().await?;
        note(scratch, tag, &body);
        if tag == shard_tag::READY {
            scratch.pending.clear();
            return Ok(());
        }
    }
}

/// The statement is closed after Sync: before it, an error would skip the message.
fn put_end(out: &mut Output) {
    out.close_statement(StatementName::Named(STATEMENT));
    out.query(&Own::Transaction.text("ROLLBACK"));
}

const EXPLAIN: &str = "EXPLAIN (COSTS OFF) ";
/// Name of the statement on the scratch session, for as long as its transaction.
pub(super) const STATEMENT: &[u8] = b"shardgate_gathered";
/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
