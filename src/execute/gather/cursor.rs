//! A cursor over gathered rows: it lives on the scratch session, whose transaction stays open until the client's ends.
//!
//! What the client says about the cursor (FETCH, MOVE, Execute with a row limit) goes there as it is, so that positions and
//! directions are PostgreSQL's own. Row descriptions are the home shard's, as the client knows them.

use bytes::Buf;

use super::answer::STATEMENT;
use super::{Final, GatherError, Side, Stage, error_frame, note};
use crate::backend::{Connection, Frame, Output, Own, ShardText, StatementName};
use crate::execute::RowSink;
use crate::wire::{FRAME_HEADER_BYTES, FieldDescription, originate, row_description, shard_tag};

/// How the cursor comes to be.
#[derive(Clone, Copy, Debug)]
pub enum Opening<'a> {
    /// As a portal of this name, with the formats that the client asked for.
    Portal(&'a [u8]),
    /// By DECLARE; this is the text before the query.
    Declare(&'a str),
}

/// What the client asks of an open cursor.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// A statement of the simple protocol: FETCH, MOVE.
    Query(&'a str),
    /// The same, bound. `after_names`: the rest of its Bind.
    Bound { text: &'a str, after_names: &'a [u8] },
    /// Execute of a portal.
    Execute { portal: &'a [u8], row_limit: i32 },
    /// Its end; the client hears nothing.
    Close(&'a [u8]),
}

/// Opens the cursor over what was loaded.
pub async fn open<G>(
    scratch: &mut Connection,
    finish: &str,
    statement: &Final<'_>,
    opening: Opening<'_>,
) -> Result<(), GatherError<G>> {
    let out = &mut scratch.output;
    out.query(&Own::Setting.text(finish));
    match opening {
        Opening::Portal(name) => {
            out.bind(name, StatementName::Named(STATEMENT), &ShardText::covered(statement.text), statement.after_names);
        }
        Opening::Declare(before) => {
            // The statement is covered already.
            let text = statement.text.declared(before);
            let text = ShardText::covered(&text);
            out.parse(StatementName::Unnamed, &text, statement.types);
            out.bind(b"", StatementName::Unnamed, &text, &statement.parameters());
            out.execute(b"", 0);
        }
    }
    out.sync();
    let lost = |error| GatherError::Lost { side: Side::Scratch, error };
    let mut failure = None;
    for stage in [Stage::Load, if matches!(opening, Opening::Portal(_)) { Stage::Answer } else { Stage::Load }] {
        loop {
            let (tag, body) = scratch.next_frame().await.map_err(lost)?;
            note(scratch, tag, &body);
            match tag {
                shard_tag::ERROR if failure.is_none() => {
                    failure = Some(GatherError::Shard { side: Side::Scratch, stage, frame: error_frame(&body) });
                }
                shard_tag::READY => break,
                _ => {}
            }
        }
    }
    // The transaction goes on: nothing is owed, but it is not the pool's.
    scratch.pending.clear();
    failure.map_or(Ok(()), Err)
}

/// Asks and relays. After an error of PostgreSQL nothing is owed either.
pub async fn fetch<S: RowSink>(
    scratch: &mut Connection,
    fetch: Fetch<'_>,
    columns: &[FieldDescription],
    sink: &mut S,
) -> Result<(), GatherError<S::Gone>> {
    put(&mut scratch.output, fetch);
    scratch.unnamed = None;
    let lost = |error| GatherError::Lost { side: Side::Scratch, error };
    let mut failure = None;
    loop {
        let Some(Frame { header, is_complete: true }) = scratch.peek().map_err(lost)? else {
            scratch.fill().await.map_err(lost)?;
            continue;
        };
        let bytes = scratch.input.get(..header.total).unwrap_or_default();
        let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        match header.tag {
            shard_tag::ROW_DESCRIPTION => originate::row_description(sink.buffer(), &with_formats_of(columns, body)),
            shard_tag::DATA_ROW | shard_tag::COMMAND_COMPLETE | shard_tag::PORTAL_SUSPENDED | shard_tag::NOTICE => {
                sink.buffer().extend_from_slice(bytes);
            }
            shard_tag::ERROR if failure.is_none() => {
                failure = Some(GatherError::Shard { side: Side::Scratch, stage: Stage::Answer, frame: error_frame(body) });
            }
            shard_tag::READY | shard_tag::PARAMETER_STATUS => {
                let frame = scratch.input.split_to(header.total);
                note(scratch, header.tag, frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
                if header.tag == shard_tag::READY {
                    return failure.map_or(Ok(()), Err);
                }
                continue;
            }
            _ => {}
        }
        scratch.input.advance(header.total);
        if sink.buffer().len() >= BUFFER_BYTES {
            sink.send().await.map_err(GatherError::Gone)?;
        }
    }
}

fn put(out: &mut Output, fetch: Fetch<'_>) {
    match fetch {
        Fetch::Query(text) => return out.query(&Own::Cursor.text(text)),
        Fetch::Bound { text, after_names } => {
            let text = Own::Cursor.text(text);
            out.parse(StatementName::Unnamed, &text, &[]);
            out.bind(b"", StatementName::Unnamed, &text, after_names);
            out.execute(b"", 0);
        }
        Fetch::Execute { portal, row_limit } => out.execute(portal, row_limit),
        Fetch::Close(portal) => out.close_portal(portal),
    }
    out.sync();
}

/// The client's columns in the formats that the scratch session uses.
fn with_formats_of(columns: &[FieldDescription], described: &[u8]) -> Vec<FieldDescription> {
    let formats: Vec<i16> = row_description(described).unwrap_or_default().iter().map(|column| column.format).collect();
    let formats = formats.into_iter().chain(std::iter::repeat(0));
    columns.iter().zip(formats).map(|(column, format)| FieldDescription { format, ..column.clone() }).collect()
}

/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
