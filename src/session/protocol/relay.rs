//! From a shard's answers to the client's socket, by frame header, without decoding rows.
//!
//! [`step`] walks the frames that have arrived and moves whole runs of visible ones; it waits for nothing. Each frame is held
//! against the entry of `pending` that it answers: hidden answers (a BEGIN that was put before the statement, a Parse that the
//! client did not ask for) are swallowed, errors never are. ReadyForQuery is never forwarded: its status would be the shard's,
//! and the session writes its own.

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

use super::describe::{Description, parameter_types};
use crate::backend::{Connection, ConnectionError, Pending, Reply, StatementId};
use crate::error::{PgError, SqlState};
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, error_fields, originate, parameter_status, shard_tag};

/// What the caller has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum Step {
    /// Every answer is in.
    Done,
    /// More bytes are needed from the shard.
    More,
    /// So much has been collected for the client that it should be sent first.
    Full,
    /// The shard waits for COPY data from the client.
    CopyIn,
    /// The shard has ended the connection: its own words.
    Lost(PgError),
}

/// What was noticed on the way.
#[derive(Debug, Default)]
pub(in crate::session) struct Noticed {
    /// An ErrorResponse went to the client.
    pub has_failed: bool,
    /// Where in the output the last of them begins.
    pub error_at: Option<usize>,
    /// A row went to the client.
    pub has_rows: bool,
    /// The error was about this text: it was not prepared.
    pub failed_parse: Option<StatementId>,
    /// Where in the output notices begin.
    pub notices_at: SmallVec<[usize; 1]>,
    /// SQLSTATEs of the errors that went to the client.
    pub errors: SmallVec<[[u8; 5]; 1]>,
    /// Values of settings that the shard reported.
    pub parameters: Vec<(String, String)>,
    /// What the connection says of statements, by the home shard's oids.
    pub described: Vec<(StatementId, Description)>,
    /// Of the Syncs that were sent to a COPY which has failed: so many the shard has not read with the data. It skips nothing any more.
    pub unread_syncs: Option<u32>,
}

/// Moves what has arrived from the connection's input to `output`.
#[expect(clippy::too_many_lines, reason = "one loop over frames, for each of which every local counts")]
pub(in crate::session) fn step(
    connection: &mut Connection,
    output: &mut BytesMut,
    noticed: &mut Noticed,
) -> Result<Step, ConnectionError> {
    // Bytes at the front of the input that go to the client as they are.
    let mut run = 0;
    let step = loop {
        if let Some(&Pending { reply: Reply::Local(tag), is_visible }) = connection.pending.front() {
            move_run(connection, output, &mut run);
            if is_visible {
                originate::bare(output, tag);
            }
            connection.pending.pop_front();
            continue;
        }
        if run + output.len() >= OUTPUT_BYTES {
            break Step::Full;
        }
        let rest = connection.input.get(run..).unwrap_or_default();
        if connection.frame_bytes_left > 0 {
            let taken = connection.frame_bytes_left.min(rest.len());
            connection.frame_bytes_left -= taken;
            run += taken;
            if connection.frame_bytes_left > 0 {
                break Step::More;
            }
            continue;
        }
        let Some(header) = FrameHeader::peek(rest, usize::MAX - 8)? else {
            break if connection.pending.is_empty() && rest.is_empty() { Step::Done } else { Step::More };
        };
        let is_complete = rest.len() >= header.total;
        let Some(&pending) = connection.pending.front() else {
            // Nothing is owed: a notice, a notification, a parameter, or the end of the connection.
            if !is_complete {
                connection.check_is_kept(header)?;
                break Step::More;
            }
            move_run(connection, output, &mut run);
            match unasked(connection, header, output, noticed)? {
                Some(lost) => break lost,
                None => continue,
            }
        };
        if !is_complete {
            if header.total >= STREAM_BYTES
                && pending.is_visible
                && !matches!(pending.reply, Reply::ExecuteNested(_))
                && matches!(header.tag, shard_tag::DATA_ROW | shard_tag::COPY_DATA)
            {
                // A row larger than a buffer passes through in pieces.
                noticed.has_rows = true;
                connection.frame_bytes_left = header.total - rest.len();
                run += rest.len();
            } else {
                connection.check_is_kept(header)?;
            }
            break Step::More;
        }
        match header.tag {
            shard_tag::DATA_ROW | shard_tag::COPY_DATA if pending.is_visible => {
                if let Reply::ExecuteNested(entry) = pending.reply {
                    connection.translate_row_of(entry, run + FRAME_HEADER_BYTES..run + header.total);
                }
                noticed.has_rows = true;
                run += header.total;
            }
            shard_tag::NOTICE if pending.reply == Reply::Echo => {
                move_run(connection, output, &mut run);
                connection.input.advance(header.total);
            }
            shard_tag::NOTICE => {
                noticed.notices_at.push(output.len() + run);
                run += header.total;
            }
            shard_tag::NOTIFICATION => {
                move_run(connection, output, &mut run);
                connection.keep_notification(header)?;
            }
            shard_tag::PARAMETER_STATUS => {
                move_run(connection, output, &mut run);
                take_parameter(connection, header, noticed)?;
            }
            shard_tag::ERROR => {
                move_run(connection, output, &mut run);
                if let Some(lost) = take_error(connection, header, pending, output, noticed)? {
                    break lost;
                }
            }
            shard_tag::READY => {
                move_run(connection, output, &mut run);
                take_ready(connection, header, pending)?;
            }
            shard_tag::CLOSE_COMPLETE if matches!(pending.reply, Reply::Sync | Reply::SyncsOfCopy(_)) => {
                move_run(connection, output, &mut run);
                let unread = connection.take_syncs_of_copy();
                noticed.unread_syncs = Some(unread.ok_or(crate::wire::DecodeError::Invalid(i64::from(header.tag)))?);
                connection.input.advance(header.total);
            }
            tag => {
                let is_last = ends(pending.reply, tag).ok_or(crate::wire::DecodeError::Invalid(i64::from(tag)))?;
                if pending.is_visible {
                    if tag == shard_tag::ROW_DESCRIPTION {
                        translate_oids(connection, run, header.total);
                    }
                    run += header.total;
                } else {
                    move_run(connection, output, &mut run);
                    match pending.reply {
                        Reply::Columns(id) => take_description(connection, header, id, noticed)?,
                        Reply::Query if tag == shard_tag::COMMAND_COMPLETE => {
                            let frame = connection.input.split_to(header.total);
                            let tag = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
                            connection.hidden_tag = tag.strip_suffix(b"\0").unwrap_or(tag).into();
                        }
                        _ => connection.input.advance(header.total),
                    }
                }
                if is_last {
                    connection.pending.pop_front();
                }
                if tag == shard_tag::COMMAND_COMPLETE {
                    connection.end_copy();
                }
                if tag == shard_tag::COPY_IN {
                    break Step::CopyIn;
                }
            }
        }
    };
    move_run(connection, output, &mut run);
    Ok(step)
}

/// Clients know tables and types by the home shard's oids.
fn translate_oids(connection: &mut Connection, start: usize, length: usize) {
    if let Some(body) = connection.input.get_mut(start + FRAME_HEADER_BYTES..start + length) {
        connection.oids.translate(body);
    }
}

fn move_run(connection: &mut Connection, output: &mut BytesMut, run: &mut usize) {
    if *run > 0 {
        if output.is_empty() && *run == connection.input.len() && *run >= SWAP_BYTES {
            // The whole input goes to the client: exchange the buffers instead of copying.
            std::mem::swap(&mut connection.input, output);
            connection.input.clear();
        } else {
            // With room for what usually ends the answer.
            output.reserve(*run + 64);
            output.extend_from_slice(connection.input.get(..*run).unwrap_or_default());
            connection.input.advance(*run);
        }
        *run = 0;
    }
}

/// Is this message the last one of the reply? `None`: it does not belong to it at all.
fn ends(reply: Reply, tag: u8) -> Option<bool> {
    match (reply, tag) {
        (Reply::Parse(_) | Reply::ParseUnnamed, shard_tag::PARSE_COMPLETE) => Some(true),
        (Reply::Bind, shard_tag::BIND_COMPLETE) => Some(true),
        (Reply::Close | Reply::CloseStatement(_), shard_tag::CLOSE_COMPLETE) => Some(true),
        (Reply::Columns(_), shard_tag::PARAMETER_DESCRIPTION) => Some(false),
        (Reply::Columns(_) | Reply::DescribePortal, shard_tag::ROW_DESCRIPTION | shard_tag::NO_DATA) => Some(true),
        (
            Reply::Execute | Reply::ExecuteNested(_),
            shard_tag::COMMAND_COMPLETE | shard_tag::PORTAL_SUSPENDED | shard_tag::EMPTY_QUERY,
        ) => Some(true),
        (
            Reply::Execute | Reply::ExecuteNested(_) | Reply::Query | Reply::Echo,
            shard_tag::DATA_ROW | shard_tag::COPY_IN | shard_tag::COPY_OUT | shard_tag::COPY_DATA | shard_tag::COPY_DONE,
        ) => Some(false),
        (
            Reply::Query | Reply::Echo,
            shard_tag::ROW_DESCRIPTION | shard_tag::COMMAND_COMPLETE | shard_tag::EMPTY_QUERY | shard_tag::FUNCTION_RESULT,
        ) => Some(false),
        _ => None,
    }
}

fn take_ready(connection: &mut Connection, header: FrameHeader, pending: Pending) -> Result<(), ConnectionError> {
    let mut reply = pending.reply;
    if reply == Reply::Abort {
        // The shard was skipping already: the failure that was asked for was not needed.
        connection.pending.pop_front();
        reply = connection.pending.front().map_or(reply, |pending| pending.reply);
    }
    match reply {
        Reply::Query | Reply::Echo | Reply::Sync => {
            connection.note_ready(connection.input.get(FRAME_HEADER_BYTES).copied().unwrap_or(b'E'));
            connection.input.advance(header.total);
            connection.pending.pop_front();
            Ok(())
        }
        _ => Err(crate::wire::DecodeError::Invalid(i64::from(header.tag)).into()),
    }
}

fn take_parameter(connection: &mut Connection, header: FrameHeader, noticed: &mut Noticed) -> Result<(), ConnectionError> {
    let frame = connection.input.split_to(header.total);
    let (name, value) = parameter_status(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())?;
    let (name, value) = (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
    connection.note_parameter(&name, &value)?;
    noticed.parameters.push((name, value));
    Ok(())
}

/// Two messages; the second one says which columns there are, if any.
fn take_description(
    connection: &mut Connection,
    header: FrameHeader,
    id: StatementId,
    noticed: &mut Noticed,
) -> Result<(), ConnectionError> {
    let mut body = connection.input.split_to(header.total).split_off(FRAME_HEADER_BYTES);
    if header.tag == shard_tag::PARAMETER_DESCRIPTION {
        let types = parameter_types(&body)?;
        connection.parameters_described = types.into_iter().map(|oid| connection.oids.at_home(oid)).collect();
        return Ok(());
    }
    connection.oids.translate(&mut body);
    let rows = (header.tag == shard_tag::ROW_DESCRIPTION).then(|| body.freeze());
    let description = Description::new(std::mem::take(&mut connection.parameters_described), rows);
    connection.prepared.note_columns(id, description.columns());
    noticed.described.push((id, description));
    Ok(())
}

/// Forwards an error and drops the answers that will not come because of it.
fn take_error(
    connection: &mut Connection,
    header: FrameHeader,
    pending: Pending,
    output: &mut BytesMut,
    noticed: &mut Noticed,
) -> Result<Option<Step>, ConnectionError> {
    let frame = connection.input.split_to(header.total);
    let fields = error_fields(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())?;
    if fields.is_fatal() {
        connection.note_farewell(fields.sqlstate(), &fields.message());
        return Ok(Some(Step::Lost(lost(&fields))));
    }
    match pending.reply {
        // The failure that was asked for.
        Reply::Abort => {
            skip_to_sync(connection);
            return Ok(None);
        }
        // A simple query, or a deferred constraint at the implicit commit: ReadyForQuery still follows.
        Reply::Query | Reply::Echo | Reply::Sync => {}
        Reply::Parse(id) => {
            noticed.failed_parse = Some(id);
            skip_to_sync(connection);
        }
        Reply::ParseUnnamed
        | Reply::Bind
        | Reply::Close
        | Reply::CloseStatement(_)
        | Reply::Columns(_)
        | Reply::DescribePortal
        | Reply::Execute
        | Reply::ExecuteNested(_)
        | Reply::SyncsOfCopy(_)
        | Reply::Local(_) => skip_to_sync(connection),
    }
    connection.ask_for_syncs();
    noticed.has_failed = true;
    noticed.errors.push(fields.get(b'C').and_then(|code| code.try_into().ok()).unwrap_or(*b"XX000"));
    noticed.error_at = Some(output.len());
    output.extend_from_slice(&frame);
    Ok(None)
}

/// After an error in the extended protocol the shard skips everything up to Sync, a simple query included.
fn skip_to_sync(connection: &mut Connection) {
    while let Some(&pending) = connection.pending.front() {
        match pending.reply {
            Reply::Sync => return,
            Reply::Parse(id) => connection.prepared.doubt(id),
            Reply::CloseStatement(id) => connection.prepared.doubt_closed(id),
            Reply::ParseUnnamed => connection.unnamed = None,
            Reply::Query
            | Reply::Echo
            | Reply::Bind
            | Reply::Close
            | Reply::Columns(_)
            | Reply::DescribePortal
            | Reply::Execute
            | Reply::ExecuteNested(_)
            | Reply::Abort
            | Reply::SyncsOfCopy(_)
            | Reply::Local(_) => {}
        }
        connection.pending.pop_front();
    }
}

/// A message that answers nothing.
fn unasked(
    connection: &mut Connection,
    header: FrameHeader,
    output: &mut BytesMut,
    noticed: &mut Noticed,
) -> Result<Option<Step>, ConnectionError> {
    match header.tag {
        shard_tag::NOTIFICATION => {
            connection.keep_notification(header)?;
            Ok(None)
        }
        shard_tag::NOTICE => {
            output.extend_from_slice(connection.input.get(..header.total).unwrap_or_default());
            connection.input.advance(header.total);
            Ok(None)
        }
        shard_tag::PARAMETER_STATUS => take_parameter(connection, header, noticed).map(|()| None),
        shard_tag::ERROR => {
            let frame = connection.input.split_to(header.total);
            let fields = error_fields(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default())?;
            connection.note_farewell(fields.sqlstate(), &fields.message());
            Ok(Some(Step::Lost(lost(&fields))))
        }
        tag => Err(crate::wire::DecodeError::Invalid(i64::from(tag)).into()),
    }
}

fn lost(fields: &crate::wire::ErrorFields<'_>) -> PgError {
    PgError::new(SqlState::CONNECTION_FAILURE, "the shard ended the connection")
        .with_detail(format!("It said: {}.", fields.message()))
}

/// Send to the client when this much has been collected.
const OUTPUT_BYTES: usize = 32 * 1024;
/// Rows from this size on are not collected whole.
const STREAM_BYTES: usize = 64 * 1024;
/// Above this, exchanging buffers is cheaper than copying.
const SWAP_BYTES: usize = 4 * 1024;
