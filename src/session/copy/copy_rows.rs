//! COPY FROM STDIN into a table of several shards: each row goes to the shard of its key while the data streams; rows of a
//! reference table go to every shard.
//!
//! ```text
//!   COPY on every shard ─► all wait for data ─► CopyInResponse to the client
//!   client ─ CopyData ─► split ─► a shard's output ─┬─ full: the client is not read until it has drained
//!                                                   └─ the shard's own words: an error ends the COPY on all
//!   CopyDone ─► CopyDone to all ─► tags are summed
//! ```
//! The caller has opened a transaction, and commits or rolls it back. However the COPY ends, every shard has answered it to its
//! ReadyForQuery then, or its connection is gone.
//!
//! Columns that the client leaves out and the shards would each fill for themselves are put before those of each row.
//!
//! A row that has no shard ends the COPY. It is sent to a shard all the same, followed by CopyFail: if PostgreSQL has something to
//! say against the row, that is what the client hears. Of several errors the client hears the one of the first line.

mod adding;
mod outcome;
mod placing;
mod rows_by_map;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use adding::Adding;
use outcome::{first_failure, is_of_skipped, notice_of_skipped, tag_of};
use placing::is_other_encoding;

use super::copy_rows;
use crate::backend::{ConnectionError, Frame, Own, ShardText, StatementName};
use crate::catalog::quoted_literal;
use crate::error::{PgError, SqlState};
use crate::execute::copy_in::{LineMap, Piece, PieceKind, Splitter};
use crate::routing::{Reach, StoredColumn, sharding_has_changed};
use crate::session::route::Turns;
use crate::session::writes::write::Writing;
use crate::session::{Failure, Participant, Session, SessionEnd};
use crate::shardmap::{Group, GroupId, MapSnapshot, ShardId};
use crate::sql::utility::copy_in::{CopyFormat, CopyIn};
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, client_tag, shard_tag};

/// A COPY over several shards.
struct Stream<'c> {
    copy: &'c CopyIn,
    /// Of the statement; each row has a place of its own.
    reach: &'c Reach,
    targets: Vec<Target>,
    /// `None`: the data is not looked at, every shard gets it as it is.
    split: Option<Split>,
    /// A reference table: every shard gets every row.
    is_copied: bool,
    /// Bytes that are still to come of the client's current CopyData.
    data_left: usize,
    /// There may be more in the client's input than was looked at, since a shard's output is full.
    is_held_back: bool,
    /// Syncs of the client that came meanwhile: a shard reads them with the data, and answers them where it has failed before.
    syncs: u32,
}

/// One shard of a COPY.
struct Target {
    shard: ShardId,
    name: String,
    lines: LineMap,
    /// Where the message begins in the connection's output that rows are being put into.
    open: Option<usize>,
    answer: Answer,
    /// The body of its notice of rows that it has left out.
    skipped: Option<Bytes>,
    /// It has answered to its ReadyForQuery.
    is_ready: bool,
}

/// How far a shard is.
#[derive(Debug)]
enum Answer {
    /// Takes data.
    Copying,
    /// Has refused: the body of its ErrorResponse.
    Refused(Bytes),
    /// Has taken it all: its tag.
    Done(String),
}

/// How rows are told apart and find their shards.
struct Split {
    splitter: Splitter,
    adding: Adding,
    /// `None`: every shard gets every row.
    sharding: Option<Sharding>,
}

struct Sharding {
    /// The newest that is known: rows are not planned by it, but placed one by one.
    map: Arc<MapSnapshot>,
    group: Arc<Group>,
    /// Text that is not ASCII means something else than its bytes. Errors: even ASCII may.
    is_other_encoding: Result<bool, PgError>,
}

/// What the client's messages have come to.
enum Fed {
    /// They have all been handed on.
    Some,
    Done,
    /// CopyFail, and why.
    Failed(String),
}

enum Event {
    Client(Result<(), SessionEnd>),
    Shard(usize, Result<(), ConnectionError>),
}

/// Why the rows cannot go on, and the line that it is about.
struct Stop {
    failure: Failure,
    line: Option<u64>,
}

impl Stop {
    fn at(line: u64, copy: &CopyIn, error: PgError) -> Self {
        let context = format!("COPY {}, line {line}", copy.table);
        Self { failure: error.with_context(context).into(), line: Some(line) }
    }

    /// Of the whole row, which PostgreSQL shows.
    fn at_row(line: u64, copy: &CopyIn, row: &[u8], error: PgError) -> Self {
        if copy.format == CopyFormat::Binary {
            return Self::at(line, copy, error);
        }
        let shown = String::from_utf8_lossy(row);
        let end = shown.floor_char_boundary(SHOWN_BYTES_MAX);
        let dots = if end < shown.len() { "..." } else { "" };
        let context = format!("COPY {}, line {line}: \"{}{dots}\"", copy.table, shown.get(..end).unwrap_or_default());
        Self { failure: error.with_context(context).into(), line: Some(line) }
    }
}

impl<F: Into<Failure>> From<F> for Stop {
    fn from(failure: F) -> Self {
        Self { failure: failure.into(), line: None }
    }
}

/// Runs `text`, a COPY FROM STDIN, on these shards, which have not joined yet. `group`: of a sharded table. Returns the tag
/// for the client. Not cancel safe.
pub(in crate::session) async fn copy_rows(
    session: &mut Session,
    copy: &CopyIn,
    group: Option<GroupId>,
    writing: &Writing,
    text: &str,
) -> Result<String, Failure> {
    let reach = writing.reach.as_ref().ok_or_else(|| PgError::internal("a COPY without shards"))?;
    let shards = reach.shards();
    let split = match group.is_some() || !copy.added.is_empty() {
        true => Some(Box::pin(split_of(session, copy, group, shards)).await?),
        false => None,
    };
    let is_copied = group.is_none();
    session.transaction.is_everywhere |= is_copied;
    let mut stream = Stream { copy, reach, targets: Vec::new(), split, is_copied, data_left: 0, is_held_back: false, syncs: 0 };
    for shard in shards {
        let index = session.join(*shard).await?;
        session.sync(index).await?;
        let name = session.gateway.shard(*shard)?.name.clone();
        stream.targets.push(Target {
            shard: *shard,
            name,
            lines: LineMap::default(),
            open: None,
            answer: Answer::Copying,
            skipped: None,
            is_ready: false,
        });
    }
    if let Some(split) = stream.split.as_mut().filter(|_| are_strict(session, shards)) {
        split.splitter.be_strict();
    }
    if is_copied {
        keep_other_writers_out(session, copy, shards).await?;
    }
    match copy.added.is_empty() {
        true => begin_copies(session, &mut stream, text).await?,
        false => copy_rows::adding::begin_longer_copies(session, &mut stream, text).await?,
    }
    session.transaction.pinned_map.note_copy();
    let stop = match feed_copies(session, &mut stream).await {
        Ok(()) => None,
        // A message that does not belong there; a shard that has failed before skips it.
        Err(stop @ Stop { failure: Failure::End(SessionEnd::Fatal(_)), .. }) => Some(stop),
        Err(Stop { failure: Failure::End(end), .. }) => return Err(end.into()),
        Err(stop) => Some(stop),
    };
    end_copies(session, stream, stop).await
}

/// The rest of a message whose rows are not wanted any more.
async fn skip_data(session: &mut Session, mut left: usize) -> Result<(), SessionEnd> {
    loop {
        let length = left.min(session.client.input.len());
        session.client.input.advance(length);
        left -= length;
        if left == 0 {
            return Ok(());
        }
        poll_fn(|context| session.client.poll_fill(context)).await?;
    }
}

/// All of these are of PostgreSQL 18 or later.
fn are_strict(session: &Session, shards: &[ShardId]) -> bool {
    let is_strict = |participant: &Participant| participant.connection.major_version() >= Some(STRICT_VERSION);
    session.transaction.participants().iter().filter(|participant| shards.contains(&participant.shard)).all(is_strict)
}

async fn split_of(session: &mut Session, copy: &CopyIn, group: Option<GroupId>, shards: &[ShardId]) -> Result<Split, Failure> {
    let encoding = copy.encoding.as_deref().or_else(|| session.effective("client_encoding")).unwrap_or("UTF8");
    let is_other_encoding = is_other_encoding(encoding, copy);
    let map = session.gateway.map.snapshot();
    let sharding = match group {
        Some(group) => {
            let group = map.group(group).cloned().ok_or_else(sharding_has_changed)?;
            Some(Sharding { map, group, is_other_encoding })
        }
        None => None,
    };
    let row_bytes_max = usize::try_from(session.gateway.config.cross_shard.statement_bytes_max).unwrap_or(usize::MAX / 2);
    let adding = copy_rows::adding::adding_of(session, copy, shards).await?;
    Ok(Split { splitter: Splitter::new(copy, row_bytes_max), adding, sharding })
}

/// Rows of a reference table reach all shards at once. Other writers meet on the home shard first, and wait there: otherwise two
/// could wait for each other on different shards. Who may not lock the table relies on the search for deadlocks.
async fn keep_other_writers_out(session: &mut Session, copy: &CopyIn, shards: &[ShardId]) -> Result<(), Failure> {
    let Some(index) = shards.first().and_then(|home| session.transaction.index_of(*home)) else { return Err(gone().into()) };
    let literal = quoted_literal(&copy.qualified);
    let may_lock = format!("SELECT pg_catalog.has_table_privilege({literal}, 'UPDATE, DELETE, TRUNCATE')");
    let rows = run_on_participant(session, index, &Own::Catalog.text(&may_lock)).await?;
    let may_lock = rows.first().and_then(|row| row.first()).and_then(Option::as_deref) == Some(b"t");
    if may_lock {
        run_on_participant(session, index, &Own::Lock.text(&format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", copy.qualified)))
            .await?;
    }
    Ok(())
}

/// The rows of a query of the proxy's own.
pub(in crate::session) async fn run_on_participant(
    session: &mut Session,
    index: usize,
    text: &ShardText<'_>,
) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
    let participant = session.transaction.at(index)?;
    session.cancel.started(&participant.connection);
    match participant.connection.simple(text).await {
        Ok(rows) => Ok(rows),
        Err(ConnectionError::Refused { body, .. }) => Err(Failure::Shard(crate::session::protocol::describe::error_frame(&body))),
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

/// The statement on all shards. When all of them wait for data, so may the client's begin.
async fn begin_copies(session: &mut Session, stream: &mut Stream<'_>, text: &str) -> Result<(), Failure> {
    let context = Arc::clone(&session.context);
    let text = ShardText::of(stream.reach, text.as_bytes(), &context)?;
    for target in &stream.targets {
        let Some(index) = session.transaction.index_of(target.shard) else { return Err(gone().into()) };
        let participant = session.transaction.at(index)?;
        // A copy is written whole, the triggers of a statement fire without rows too.
        participant.has_written |= stream.is_copied || stream.copy.fires_per_statement;
        participant.connection.unnamed = None;
        participant.connection.output.query(&text);
        session.cancel.started(&participant.connection);
        participant.connection.send().await;
    }
    let mut response = None;
    let mut stop = None;
    for place in 0..stream.targets.len() {
        match begin_copy(session, stream, place).await {
            Ok(begun) => response = response.or(begun),
            Err(Failure::End(end)) => return Err(end.into()),
            Err(lost) => stop = Some(lost),
        }
    }
    if let Some(Split { sharding: Some(Sharding { is_other_encoding: Err(refusal), .. }), .. }) = &stream.split {
        stop.get_or_insert_with(|| refusal.clone().into());
    }
    let is_refused = stream.targets.iter().any(|target| !matches!(target.answer, Answer::Copying));
    match response {
        Some(response) if !is_refused && stop.is_none() => {
            session.client.output.extend_from_slice(&response_of(stream.copy, response));
            session.client.flush().await?;
            Ok(())
        }
        Some(_) | None => {
            let targets = std::mem::take(&mut stream.targets);
            let stream = Stream { targets, split: None, ..*stream };
            let failure = stop.map(|failure| Stop { failure, line: None });
            end_copies(session, stream, Some(failure.unwrap_or_else(|| PgError::internal("COPY did not begin").into()))).await?;
            Err(PgError::internal("COPY ended before it began").into())
        }
    }
}

/// One shard's answer to the statement: its CopyInResponse, or `None` when it has refused.
async fn begin_copy(session: &mut Session, stream: &mut Stream<'_>, place: usize) -> Result<Option<Bytes>, Failure> {
    let Some(target) = stream.targets.get_mut(place) else { return Ok(None) };
    loop {
        let Some(index) = session.transaction.index_of(target.shard) else { return Err(gone().into()) };
        let participant = session.transaction.at(index)?;
        let (tag, body) = match participant.connection.next_frame().await {
            Ok(frame) => frame,
            Err(error) => return Err(session.participant_lost(index, &error)),
        };
        if tag == shard_tag::COPY_IN {
            return Ok(Some(crate::session::protocol::describe::frame(tag, &body)));
        }
        take_answer(session, target, index, tag, body)?;
        if target.is_ready {
            return Ok(None);
        }
    }
}

/// From the client to the shards, until the client has sent all.
async fn feed_copies(session: &mut Session, stream: &mut Stream<'_>) -> Result<(), Stop> {
    // What they have said with their readiness is here already.
    for place in 0..stream.targets.len() {
        read_while_copying(session, stream, place).await?;
    }
    loop {
        match forward_input(session, stream).await? {
            Fed::Done => return Ok(()),
            Fed::Failed(reason) => {
                let line = stream.split.as_ref().map(|split| split.splitter.line());
                let error = PgError::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}"));
                return Err(match line {
                    Some(line) => Stop::at(line, stream.copy, error),
                    None => error.into(),
                });
            }
            Fed::Some => {}
        }
        match wait_for_copy(session, stream).await? {
            Event::Client(filled) => filled?,
            Event::Shard(place, Ok(())) => {
                read_while_copying(session, stream, place).await?;
            }
            Event::Shard(place, Err(error)) => {
                let index = stream.targets.get(place).and_then(|target| session.transaction.index_of(target.shard));
                return Err(match index {
                    Some(index) => session.participant_lost(index, &error).into(),
                    None => gone().into(),
                });
            }
        }
    }
}

async fn wait_for_copy(session: &mut Session, stream: &Stream<'_>) -> Result<Event, Stop> {
    let indexes: Option<SmallVec<[usize; 16]>> =
        stream.targets.iter().map(|target| session.transaction.index_of(target.shard)).collect();
    let indexes = indexes.ok_or_else(gone)?;
    let (client, participants) = (&mut session.client, session.transaction.participants_mut());
    session.cancel.rest(true);
    let event = poll_fn(|context| {
        // What comes quickly is collected, so that it leaves in large pieces.
        let is_due = indexes.iter().any(|index| {
            participants.get(*index).is_some_and(|participant| participant.connection.output.len() >= OUTPUT_BYTES_MIN)
        });
        if !is_due
            && !stream.is_held_back
            && let Poll::Ready(filled) = client.poll_fill(context)
        {
            return Poll::Ready(Event::Client(filled));
        }
        let mut is_full = false;
        for (place, index) in indexes.iter().enumerate() {
            let Some(participant) = participants.get_mut(*index) else { continue };
            if let Poll::Ready(filled) = participant.connection.poll_fill(context) {
                return Poll::Ready(Event::Shard(place, filled));
            }
            is_full |= participant.connection.output.len() >= OUTPUT_BYTES_MAX;
        }
        // A shard that does not keep up holds back the client.
        if is_full {
            return Poll::Pending;
        }
        if stream.is_held_back {
            return Poll::Ready(Event::Client(Ok(())));
        }
        client.poll_fill(context).map(Event::Client)
    })
    .await;
    session.cancel.rest(false);
    Ok(event)
}

/// What a shard says while it takes data. An error: it has ended the COPY.
async fn read_while_copying(session: &mut Session, stream: &mut Stream<'_>, place: usize) -> Result<(), Stop> {
    let Some(target) = stream.targets.get_mut(place) else { return Ok(()) };
    loop {
        let Some(index) = session.transaction.index_of(target.shard) else { return Err(gone().into()) };
        let participant = session.transaction.at(index)?;
        let header = match participant.connection.peek() {
            Ok(Some(Frame { header, is_complete: true })) => header,
            Ok(Some(_) | None) => break,
            Err(error) => return Err(session.participant_lost(index, &error).into()),
        };
        let mut body = participant.connection.input.split_to(header.total).freeze();
        body.advance(FRAME_HEADER_BYTES);
        take_answer(session, target, index, header.tag, body)?;
        if !matches!(target.answer, Answer::Copying) {
            return Err(PgError::internal("a shard has ended the COPY").into());
        }
    }
    session.client.flush().await?;
    Ok(())
}

/// Takes note of one message.
fn take_answer(session: &mut Session, target: &mut Target, index: usize, tag: u8, body: Bytes) -> Result<(), Failure> {
    let participant = session.transaction.at(index)?;
    match tag {
        shard_tag::ERROR => {
            if matches!(target.answer, Answer::Copying) {
                target.answer = Answer::Refused(body);
            }
        }
        shard_tag::COMMAND_COMPLETE => {
            let tag = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(&body)).into_owned();
            target.answer = Answer::Done(tag);
        }
        shard_tag::NOTICE if is_of_skipped(&body) => target.skipped = Some(body),
        shard_tag::NOTICE => session.client.output.extend_from_slice(&crate::session::protocol::describe::frame(tag, &body)),
        shard_tag::READY => {
            participant.connection.note_ready(body.first().copied().unwrap_or(b'E'));
            target.is_ready = true;
        }
        _ => {}
    }
    Ok(())
}

/// Hands on what the client has sent, as far as the shards take it.
async fn forward_input(session: &mut Session, stream: &mut Stream<'_>) -> Result<Fed, Stop> {
    stream.is_held_back = false;
    let mut turns = Turns::begin();
    loop {
        if is_full(session, stream) {
            stream.is_held_back = true;
            return Ok(Fed::Some);
        }
        if stream.data_left > 0 {
            let length = stream.data_left.min(session.client.input.len()).min(DATA_AT_ONCE);
            if length == 0 {
                return Ok(Fed::Some);
            }
            stream.data_left -= length;
            let data = session.client.input.split_to(length);
            forward_data(session, stream, &data).await?;
            turns.piece_is_done().await;
            continue;
        }
        // The data of one message need not fit in memory.
        if session.client.input.first() == Some(&client_tag::COPY_DATA) {
            match FrameHeader::peek(&session.client.input, COPY_DATA_BYTES_MAX).map_err(SessionEnd::from)? {
                Some(header) => {
                    session.client.input.advance(FRAME_HEADER_BYTES);
                    stream.data_left = header.body_bytes();
                    continue;
                }
                None => return Ok(Fed::Some),
            }
        }
        let Some(header) = session.client.peek()? else { return Ok(Fed::Some) };
        if !is_of_copy(header.tag) {
            let message = format!("unexpected message type 0x{:02X} during COPY from stdin", header.tag);
            return Err(SessionEnd::Fatal(PgError::fatal(SqlState::PROTOCOL_VIOLATION, message)).into());
        }
        let frame = session.client.input.split_to(header.total);
        match header.tag {
            client_tag::COPY_DONE => {
                if let Some(split) = &mut stream.split {
                    split.splitter.complete();
                }
                forward_data(session, stream, b"").await?;
                return Ok(Fed::Done);
            }
            client_tag::COPY_FAIL => {
                let reason = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
                let reason = reason.strip_suffix(b"\0").unwrap_or(reason);
                return Ok(Fed::Failed(String::from_utf8_lossy(reason).into_owned()));
            }
            client_tag::SYNC => forward_sync(session, stream),
            client_tag::TERMINATE => return Err(SessionEnd::Terminated.into()),
            _ => {}
        }
    }
}

/// Each message of data is whole in the shards' outputs.
fn forward_sync(session: &mut Session, stream: &mut Stream<'_>) {
    stream.syncs += 1;
    for target in &stream.targets {
        if let Some(participant) = session.transaction.on_mut(target.shard) {
            participant.connection.output.sync();
        }
    }
}

fn is_full(session: &Session, stream: &Stream<'_>) -> bool {
    let is_full = |target: &Target| {
        let participant = session.transaction.on(target.shard);
        participant.is_some_and(|participant| participant.connection.output.len() >= OUTPUT_BYTES_MAX)
    };
    stream.targets.iter().any(is_full)
}

/// Some of the data: row by row to their shards, or all of it to all.
async fn forward_data(session: &mut Session, stream: &mut Stream<'_>, data: &[u8]) -> Result<(), Stop> {
    let Stream { copy, targets, split, .. } = stream;
    let Some(split) = split else {
        targets.iter_mut().for_each(|target| put(session, target, data));
        return Ok(close_messages(session, targets)?);
    };
    split.splitter.feed(data);
    let outcome = forward_rows(session, copy, targets, split).await;
    close_messages(session, targets)?;
    outcome
}

async fn forward_rows(session: &mut Session, copy: &CopyIn, targets: &mut [Target], split: &mut Split) -> Result<(), Stop> {
    let Split { splitter, adding, sharding } = split;
    if let Some(Sharding { is_other_encoding: Err(refusal), .. }) = sharding {
        return Err(refusal.clone().into());
    }
    let columns = copy.key.iter().map(|key| StoredColumn {
        column_type: key.column_type,
        function: key.function.as_ref(),
        typmod: key.typmod,
    });
    let columns: SmallVec<[StoredColumn<'_>; 2]> = columns.collect();
    loop {
        let line = splitter.line();
        let Some(piece) = splitter.next_piece().map_err(|error| Stop::at(line, copy, error))? else { return Ok(()) };
        let row = match piece.kind {
            PieceKind::Everywhere => {
                let bytes = adding.header(copy, piece.bytes);
                targets.iter_mut().for_each(|target| put_piece(session, target, piece, bytes));
                continue;
            }
            PieceKind::Broken => {
                put_row(session, targets, 0, piece, piece.bytes);
                continue;
            }
            PieceKind::Row { values: length } => piece.bytes.get(..length).unwrap_or_default(),
        };
        if let Some(denial) = adding.denial() {
            return Err(Stop::at_row(piece.last_line, copy, row, denial.clone()));
        }
        copy_rows::adding::draw_for_row(session, copy, adding).await?;
        let place = match sharding {
            Some(sharding) => copy_rows::rows_by_map::place_of_row(session, copy, &columns, sharding, row, adding.cells())
                .await?
                .place_among(targets, copy),
            None => Ok(0),
        };
        let place = match place {
            Err(_)
                if copy.skips_bad_rows
                    && Box::pin(copy_rows::rows_by_map::is_left_out(session, copy, row, adding.cells())).await? =>
            {
                Ok(0)
            }
            place => place,
        };
        let bytes = adding.row(copy, piece.bytes).map_err(|error| Stop::at(piece.last_line, copy, error))?;
        match (place, &sharding) {
            (Ok(place), Some(_)) => put_row(session, targets, place, piece, bytes),
            (Ok(_), None) => targets.iter_mut().for_each(|target| put_piece(session, target, piece, bytes)),
            (Err(error), _) => {
                // Its last words.
                put_row(session, targets, 0, piece, bytes);
                return Err(Stop::at(piece.last_line, copy, error));
            }
        }
    }
}

fn put_row(session: &mut Session, targets: &mut [Target], place: usize, piece: Piece<'_>, bytes: &[u8]) {
    if let Some(target) = targets.get_mut(place) {
        put_piece(session, target, piece, bytes);
        let participant = session.transaction.on_mut(target.shard);
        if let Some(participant) = participant {
            participant.has_written = true;
        }
    }
}

/// `bytes`: of the piece, with what was put before them.
fn put_piece(session: &mut Session, target: &mut Target, piece: Piece<'_>, bytes: &[u8]) {
    target.lines.push(lines_there(target, piece), piece.last_line);
    put(session, target, bytes);
}

/// Into the CopyData that is open in the shard's output.
fn put(session: &mut Session, target: &mut Target, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if let Some(participant) = session.transaction.on_mut(target.shard) {
        let output = &mut participant.connection.output;
        target.open.get_or_insert_with(|| output.begin_copy_data());
        output.copy_more(bytes);
    }
}

/// Before the outputs are sent: the length of each open CopyData.
fn close_messages(session: &mut Session, targets: &mut [Target]) -> Result<(), Failure> {
    for target in targets {
        let Some(start) = target.open.take() else { continue };
        let participant = session.transaction.on_mut(target.shard);
        let output = &mut participant.ok_or_else(gone)?.connection.output;
        output.end_copy_data(start).ok_or_else(|| PgError::internal("a CopyData is too long"))?;
    }
    Ok(())
}

/// Ends the COPY on all shards and reads all answers to their end.
async fn end_copies(session: &mut Session, mut stream: Stream<'_>, mut stop: Option<Stop>) -> Result<String, Failure> {
    for target in &stream.targets {
        let Some(index) = session.transaction.index_of(target.shard) else { continue };
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        let output = &mut participant.connection.output;
        match (&target.answer, &stop) {
            (Answer::Copying, None) => output.copy_done(),
            (Answer::Copying, Some(_)) => output.copy_fail(FAIL_REASON),
            (Answer::Refused(_) | Answer::Done(_), _) => {}
        }
    }
    let mut unread = 0;
    for target in &mut stream.targets {
        // Lost already.
        let Some(index) = session.transaction.index_of(target.shard) else { continue };
        match read_copy_to_end(session, target, index, stream.syncs).await {
            Ok(syncs) => unread = unread.max(syncs),
            Err(Failure::End(end)) => return Err(end.into()),
            Err(lost) => stop = Some(Stop { failure: lost, line: None }),
        }
    }
    skip_data(session, stream.data_left).await?;
    session.client.put_back_syncs(unread);
    match first_failure(&stream, stop) {
        Some(failure) => Err(failure),
        None => {
            let tag = tag_of(&stream)?;
            session.client.output.extend_from_slice(&notice_of_skipped(&stream).unwrap_or_default());
            Ok(tag)
        }
    }
}

/// How many of the client's Syncs the shard had not read before it failed.
async fn read_copy_to_end(session: &mut Session, target: &mut Target, index: usize, syncs: u32) -> Result<u32, Failure> {
    while !target.is_ready {
        let participant = session.transaction.at(index)?;
        let (tag, body) = match participant.connection.next_frame().await {
            Ok(frame) => frame,
            Err(error) => return Err(session.participant_lost(index, &error)),
        };
        take_answer(session, target, index, tag, body)?;
    }
    session.client.flush().await?;
    if syncs > 0 && matches!(target.answer, Answer::Refused(_)) {
        return read_unread_syncs(session, target, index).await;
    }
    // A shard that refused ignores what was sent after it; it must leave all the same.
    let participant = session.transaction.at(index)?;
    match participant.connection.flush().await {
        Ok(()) => Ok(0),
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

/// The shard answers them before what is put behind them.
async fn read_unread_syncs(session: &mut Session, target: &mut Target, index: usize) -> Result<u32, Failure> {
    let participant = session.transaction.at(index)?;
    participant.connection.unnamed = None;
    participant.connection.output.close_statement(StatementName::Unnamed);
    participant.connection.output.sync();
    let (mut unread, mut is_past) = (0, false);
    loop {
        let participant = session.transaction.at(index)?;
        let (tag, body) = match participant.connection.next_frame().await {
            Ok(frame) => frame,
            Err(error) => return Err(session.participant_lost(index, &error)),
        };
        match tag {
            shard_tag::CLOSE_COMPLETE => is_past = true,
            shard_tag::READY if is_past => {
                take_answer(session, target, index, tag, body)?;
                return Ok(unread);
            }
            tag => {
                unread += u32::from(tag == shard_tag::READY);
                take_answer(session, target, index, tag, body)?;
            }
        }
    }
}

/// How many lines the shard takes the piece for. Between quotes it counts the line ends of the style that it knows, which is none
/// before its first line has ended: PostgreSQL counts carriage returns then.
fn lines_there(target: &Target, piece: Piece<'_>) -> u64 {
    match piece.kind {
        PieceKind::Row { values } if piece.lines > 1 && target.lines.is_empty() => {
            let values = piece.bytes.get(..values).unwrap_or_default();
            1 + values.iter().filter(|byte| **byte == b'\r').count() as u64
        }
        PieceKind::Row { .. } | PieceKind::Everywhere | PieceKind::Broken => piece.lines,
    }
}

/// CopyInResponse without the columns that are added: one format for all, how many there are, and the format of each.
fn response_of(copy: &CopyIn, response: Bytes) -> Bytes {
    let Some(format) = response.get(FRAME_HEADER_BYTES).filter(|_| !copy.added.is_empty()) else { return response };
    let count = u16::try_from(copy.column_count).unwrap_or(u16::MAX);
    let mut body = vec![*format];
    body.extend_from_slice(&count.to_be_bytes());
    (0..count).for_each(|_| body.extend_from_slice(&[0, *format]));
    crate::session::protocol::describe::frame(shard_tag::COPY_IN, &body)
}

/// A client may send it while the shards wait for data.
fn is_of_copy(tag: u8) -> bool {
    use client_tag::{COPY_DATA, COPY_DONE, COPY_FAIL, FLUSH, SYNC, TERMINATE};
    matches!(tag, COPY_DATA | COPY_DONE | COPY_FAIL | FLUSH | SYNC | TERMINATE)
}

fn gone() -> PgError {
    PgError::internal("participant is gone")
}

/// PostgreSQL shows as much of a line.
const SHOWN_BYTES_MAX: usize = 100;
/// By which the shards' answers to the proxy's own CopyFail are known.
const FAIL_REASON: &str = "shardgate ends the COPY on all shards";
/// Data is sent to a shard when there is so much, or when no more comes at once.
const OUTPUT_BYTES_MIN: usize = 32 * 1024;
/// Rows of so many bytes are placed before the other sessions of this core may have their turn.
const DATA_AT_ONCE: usize = 16 * 1024;
/// Data waiting for one shard; above this the client is not read.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// From this version on `\.` is a value in csv.
const STRICT_VERSION: u32 = 18;
/// PostgreSQL's own limit of a message.
const COPY_DATA_BYTES_MAX: usize = 0x3fff_ffff;
