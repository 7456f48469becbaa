//! One statement that writes on several shards: UPDATE and DELETE whose rows lie on several, INSERT of rows for several, writes to
//! reference tables.
//!
//! ```text
//!   parts    every shard writes its own rows, at once          tags are summed, rows of RETURNING follow shard by shard
//!   rows     every shard gets its rows of VALUES, at once      tags are summed, rows of RETURNING come in the order of VALUES
//!   streamed COPY FROM STDIN: row by row while they come        (copy_rows.rs)
//!   staged   its queries are answered first                    (staged.rs)
//!   moved    an UPDATE of the key, as DELETE and INSERT         (moved.rs)
//!   locks    LOCK TABLE on every shard, one after the other, home first
//!   copies   every shard writes the same rows, home first      the tags must be equal, RETURNING is the home shard's;
//!            what may find several rows locks the table before  (unsettled.rs)
//! ```
//! Outside a transaction block the statement is a transaction of its own, in a pipeline the pipeline is, until Sync. Writers of
//! one reference table meet on the home shard first, so that they wait for each other there and never across shards.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::staged::Staging;
use super::unsettled::Difference;
use super::{moved, staged, unsettled};
use crate::backend::{Connection, ConnectionError, NestedValues, ShardText, StatementName};
use crate::error::{PgError, SqlState};
use crate::execute::{AskedBy, FAILURE_PATIENCE, STOP_AFTER, first_failure};
use crate::routing::Reach;
use crate::session::copy::copy_rows;
use crate::session::protocol::describe::Description;
use crate::session::protocol::statement::Statement;
use crate::session::protocol::told::changed;
use crate::session::reads::scatter;
use crate::session::reads::scatter::{failure_of_covered, with_shard_named};
use crate::session::route::{aside, is_read_here};
use crate::session::{Failure, Session};
use crate::shard_key::{Format, oid};
use crate::shardmap::{GroupId, ShardId};
use crate::sql::Context;
use crate::sql::analysis::Analysis;
use crate::sql::copies_locked::CopiesLock;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::residues::cover;
use crate::sql::rewrite::blanks::in_its_place;
use crate::sql::rewrite::moving::Moving;
use crate::sql::rewrite::value_rows::{value_rows, with_rows};
use crate::sql::utility::copy_in::CopyIn;
use crate::wire::{self, FieldDescription, originate, shard_tag};

/// Where a statement writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Writing {
    /// With copies, the home shard first. `None`: it is known when the statement's queries are answered.
    pub reach: Option<Reach>,
    pub kind: WritingKind,
}

impl Writing {
    /// None while they are not known.
    pub(in crate::session) fn shards(&self) -> &[ShardId] {
        self.reach.as_ref().map_or(&[], Reach::shards)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) enum WritingKind {
    Parts,
    Copies,
    /// Copies of tables that are locked on each shard before.
    LockedCopies(CopiesLock),
    /// LOCK TABLE, in the client's transaction.
    Locks,
    /// For each row of VALUES the place of its shard in [`Writing::shards`].
    Rows(Vec<usize>),
    /// COPY FROM STDIN. `group`: of a sharded table, whose rows are split; rows of a reference table go to all shards.
    Streamed {
        copy: Arc<CopyIn>,
        group: Option<GroupId>,
    },
    /// Its queries are answered first; the shards are known then.
    Staged(Arc<Staging>),
    /// An UPDATE of the shard key, whose rows change their shards; these are known then.
    Moved(Arc<Moving>),
}

/// What a shard said.
#[derive(Debug, Default)]
struct Part {
    tag: String,
    /// Rows that were kept, whole messages.
    rows: Vec<Bytes>,
    /// Bytes of these, and of those of the shards before.
    kept_bytes: usize,
    /// These are more than are kept.
    has_too_much: bool,
    /// The body of its ErrorResponse.
    error: Option<Bytes>,
    /// Its rows have other columns than the client was told.
    has_changed: bool,
}

/// How the shards are told what to write.
pub(in crate::session) enum Request<'r> {
    Query(&'r str),
    /// The same, where the shards' rows come by covering views. `columns`: as the client's own text has them.
    QueryOfViews {
        text: &'r str,
        columns: &'r [FieldDescription],
    },
    Bound {
        statement: &'r Statement,
        bind: &'r wire::Bind<'r>,
        description: &'r Description,
    },
    /// A text for each shard.
    Queries(&'r [String]),
    /// The same, with the parameters of all.
    Rows {
        texts: &'r [String],
        bind: &'r wire::Bind<'r>,
        description: &'r Description,
    },
}

impl Request<'_> {
    /// On the first shard.
    pub(in crate::session) fn text(&self) -> &str {
        match self {
            Request::Query(text) | Request::QueryOfViews { text, .. } => text,
            Request::Bound { statement, .. } => statement.text(),
            Request::Queries(texts) | Request::Rows { texts, .. } => texts.first().map_or("", String::as_str),
        }
    }

    /// As the shards read it: one for each of them, or one for all.
    fn shard_texts(&self, reach: &Reach, context: &Context) -> Result<Vec<ShardText<'_>>, PgError> {
        match self {
            Request::Query(text) | Request::QueryOfViews { text, .. } => Ok(vec![ShardText::of(reach, text.as_bytes(), context)?]),
            Request::Bound { statement, .. } => Ok(vec![statement.text_for(reach)?]),
            Request::Queries(texts) | Request::Rows { texts, .. } => {
                texts.iter().map(|text| ShardText::of(reach, text.as_bytes(), context)).collect()
            }
        }
    }

    /// RETURNING gives what the client was told. By its types: names may have been lost with what was put into the text.
    fn is_told(&self, columns: &[FieldDescription]) -> bool {
        let told = match self {
            Request::Bound { description, .. } | Request::Rows { description, .. } => {
                let Some(Ok(told)) = description.rows.as_deref().map(wire::row_description) else { return true };
                told
            }
            Request::QueryOfViews { columns, .. } => columns.to_vec(),
            Request::Query(_) | Request::Queries(_) => return true,
        };
        let is_same = |(one, other): (&FieldDescription, &FieldDescription)| one.type_oid == other.type_oid;
        told.len() == columns.len() && told.iter().zip(columns).all(is_same)
    }
}

/// What of a shard's answer the client gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Shown {
    Nothing,
    Rows,
    /// The row description too.
    DescribedRows,
    /// Rows stay here until other shards have answered, as far as there is room for them.
    HeldRows,
    DescribedHeldRows,
    /// Rows are kept for their order.
    KeptRows,
    DescribedKeptRows,
}

impl Shown {
    fn is_held(self) -> bool {
        matches!(self, Shown::HeldRows | Shown::DescribedHeldRows)
    }
}

/// In the simple protocol.
pub(in crate::session) async fn write_text(
    session: &mut Session,
    writing: &Writing,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    if let WritingKind::Staged(staging) = &writing.kind {
        return Box::pin(staged::write_staged_text(session, staging, statement, text)).await;
    }
    if let WritingKind::Moved(moving) = &writing.kind {
        return Box::pin(moved::move_rows_of_text(session, moving, statement, text)).await;
    }
    check_several(session, writing).await?;
    // Positions in errors are those of the client's text.
    let alone = in_its_place(text, statement.start, statement.alone(text));
    let columns = Box::pin(columns_of_views_written(session, writing, &alone)).await?;
    let begins_here = !session.transaction.is_open();
    let is_alone = begins_here && !session.has_pipeline();
    if begins_here {
        session.begin_one_statement();
    }
    let written = match &writing.kind {
        WritingKind::Parts | WritingKind::Copies | WritingKind::LockedCopies(_) | WritingKind::Locks => {
            let request = match &columns {
                Some(columns) => Request::QueryOfViews { text: &alone, columns },
                None => Request::Query(&alone),
            };
            unsettled::write_settled(session, &statement.command, writing, &request, Shown::DescribedRows, is_alone).await
        }
        WritingKind::Streamed { copy, group } => Box::pin(copy_rows::copy_rows(session, copy, *group, writing, &alone)).await,
        WritingKind::Staged(_) | WritingKind::Moved(_) => Err(PgError::internal("a write that is run by itself").into()),
        WritingKind::Rows(shard_of_row) => match texts_of_rows(&alone, writing.shards().len(), shard_of_row).await {
            Ok(texts) => write_on(session, writing, &Request::Queries(&texts), Shown::DescribedKeptRows).await,
            Err(error) => Err(error.into()),
        },
    };
    let written = session.end_one_statement(begins_here, written).await;
    // Positions in a shard's rows are not those of the client's text.
    let written = match written {
        Err(Failure::Shard(frame)) if matches!(writing.kind, WritingKind::Rows(_)) => {
            Err(scatter::told_of_the_text(session, frame, statement, text).await)
        }
        written => written,
    };
    // The client hears of success when it is one.
    originate::command_complete(&mut session.client.output, &written?);
    Ok(())
}

/// Can what is written be committed on all of them?
async fn check_several(session: &mut Session, writing: &Writing) -> Result<(), Failure> {
    match writing.kind {
        WritingKind::Locks => Ok(()),
        _ if writing.shards().len() == 1 => Ok(()),
        _ => session.check_commit_support(writing.shards()).await,
    }
}

/// Execute of a portal that writes on several shards.
pub(in crate::session) async fn write_bound(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &Bytes,
    writing: &Writing,
) -> Result<(), Failure> {
    let bind = wire::bind(bind)?;
    let description = session.describe(statement).await?;
    session.check_parameters(&bind, &description.parameter_types)?;
    check_several(session, writing).await?;
    let is_alone = !session.transaction.is_open() && !session.has_pipeline();
    if !session.transaction.is_open() {
        session.begin_for_pipeline();
    }
    let types = &description.parameter_types;
    let typed = match writing.reach.as_ref().filter(|reach| reach.proof().is_none()) {
        Some(reach) => session.fragment_of_text(statement, statement.text().to_owned(), types, reach)?,
        None => session.made_of(statement, statement.key.text.clone(), types.clone().into()),
    };
    let tag = match &writing.kind {
        WritingKind::Parts | WritingKind::Copies | WritingKind::LockedCopies(_) | WritingKind::Locks => {
            let request = Request::Bound { statement: &typed, bind: &bind, description: &description };
            match statement.analysis() {
                Some(analysis) => {
                    unsettled::write_settled(session, &analysis.command, writing, &request, Shown::Rows, is_alone).await?
                }
                None => return Err(PgError::internal("an empty statement writes").into()),
            }
        }
        WritingKind::Streamed { copy, group } => {
            Box::pin(copy_rows::copy_rows(session, copy, *group, writing, statement.text())).await?
        }
        WritingKind::Staged(staging) => Box::pin(staged::write_staged_bound(session, staging, statement, &bind)).await?,
        WritingKind::Moved(moving) => Box::pin(moved::move_rows_of_bound(session, moving, statement, &bind)).await?,
        WritingKind::Rows(shard_of_row) => {
            let texts = texts_of_rows(statement.text(), writing.shards().len(), shard_of_row).await?;
            let request = Request::Rows { texts: &texts, bind: &bind, description: &description };
            write_on(session, writing, &request, Shown::KeptRows).await?
        }
    };
    originate::command_complete(&mut session.client.output, &tag);
    Ok(())
}

/// Returns the tag for the client.
pub(in crate::session) async fn write_on(
    session: &mut Session,
    writing: &Writing,
    request: &Request<'_>,
    shown: Shown,
) -> Result<String, Failure> {
    let reach = writing.reach.as_ref().ok_or_else(|| PgError::internal("a write without shards"))?;
    for shard in reach.shards() {
        let index = session.join(*shard).await?;
        session.sync(index).await?;
        if let Some(participant) = session.transaction.on_mut(*shard) {
            participant.has_written |= writing.kind != WritingKind::Locks;
            participant.has_locked |= writing.kind == WritingKind::Locks;
        }
    }
    session.transaction.is_everywhere |= matches!(writing.kind, WritingKind::Copies | WritingKind::LockedCopies(_));
    match &writing.kind {
        WritingKind::Parts => {
            let parts = write_and_read(session, reach, reach.shards(), request, shown).await?;
            sum_of_tags(parts.iter().map(|part| part.tag.as_str()))
        }
        WritingKind::Streamed { .. } | WritingKind::Staged(_) | WritingKind::Moved(_) => {
            Err(PgError::internal("a write that is run by itself").into())
        }
        WritingKind::Rows(shard_of_row) => {
            let parts = write_and_read(session, reach, reach.shards(), request, shown).await?;
            let tag = sum_of_tags(parts.iter().map(|part| part.tag.as_str()))?;
            let may_leave_out = match request {
                Request::Queries(texts) | Request::Rows { texts, .. } => texts.iter().any(|text| has_on_conflict(text)),
                Request::Query(_) | Request::QueryOfViews { .. } | Request::Bound { .. } => false,
            };
            for row in in_order(parts, shard_of_row, may_leave_out)? {
                session.client.output.extend_from_slice(&row);
            }
            Ok(tag)
        }
        WritingKind::Locks => {
            // Whoever else locks them waits on the first shard, and not crosswise.
            let mut tag = String::new();
            for (place, shard) in reach.shards().iter().enumerate() {
                let shown = if place == 0 { shown } else { Shown::Nothing };
                let parts = write_and_read(session, reach, std::slice::from_ref(shard), request, shown).await?;
                tag = parts.into_iter().next().unwrap_or_default().tag;
            }
            Ok(tag)
        }
        WritingKind::LockedCopies(lock) => {
            Box::pin(unsettled::lock_copies(session, lock, writing.shards())).await?;
            write_copies(session, reach, request, shown).await
        }
        WritingKind::Copies => write_copies(session, reach, request, shown).await,
    }
}

/// Of RETURNING, see [`scatter::columns_of_views`].
async fn columns_of_views_written(
    session: &mut Session,
    writing: &Writing,
    alone: &str,
) -> Result<Option<Vec<FieldDescription>>, Failure> {
    match (&writing.kind, &writing.reach) {
        (WritingKind::Parts, Some(reach)) if reach.map().has_residues() => {
            let covered = cover(alone.to_owned(), &session.context, reach.map())?;
            scatter::columns_of_views(session, &covered, alone).await
        }
        _ => Ok(None),
    }
}

/// A query of constants, on one shard. Returns its tag.
pub(in crate::session) async fn read_on(
    session: &mut Session,
    reach: &Reach,
    request: &Request<'_>,
    shown: Shown,
) -> Result<String, Failure> {
    let shard = reach.single().ok_or_else(|| PgError::internal("several shards as one"))?;
    let index = session.join(shard).await?;
    session.sync(index).await?;
    let parts = write_and_read(session, reach, reach.shards(), request, shown).await?;
    Ok(parts.into_iter().next().unwrap_or_default().tag)
}

async fn write_copies(session: &mut Session, reach: &Reach, request: &Request<'_>, shown: Shown) -> Result<String, Failure> {
    let (home, others) = reach.shards().split_first().ok_or_else(|| PgError::internal("no shard to write on"))?;
    let held = match shown {
        Shown::Rows => Shown::HeldRows,
        Shown::DescribedRows => Shown::DescribedHeldRows,
        shown => shown,
    };
    let first = write_and_read(session, reach, std::slice::from_ref(home), request, held).await?;
    let rest = write_and_read(session, reach, others, request, Shown::Nothing).await?;
    let home = first.into_iter().next().unwrap_or_default().tag;
    match rest.into_iter().zip(others).find(|(other, _)| other.tag != home) {
        None => Ok(home),
        Some((other, shard)) => {
            let difference = Difference { home, other: other.tag, shard: *shard };
            Err(Box::pin(unsettled::differing(session, difference, request.text())).await)
        }
    }
}

/// Sends the request to these shards at once and reads all answers to their end.
async fn write_and_read(
    session: &mut Session,
    reach: &Reach,
    shards: &[ShardId],
    request: &Request<'_>,
    shown: Shown,
) -> Result<Vec<Part>, Failure> {
    let prepared_max = session.gateway.prepared_max();
    let context = Arc::clone(&session.context);
    // Whatever may fail comes before the first shard is asked.
    let texts = request.shard_texts(reach, &context)?;
    for (place, shard) in shards.iter().enumerate() {
        let Some(text) = texts.get(place).or(texts.first()) else { continue };
        let Some(index) = session.transaction.index_of(*shard) else { continue };
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        let connection = &mut *participant.connection;
        put_request(connection, request, text, prepared_max);
        session.cancel.started(&participant.connection);
        participant.connection.send().await;
    }
    let mut parts = Vec::with_capacity(shards.len());
    let (mut failure, mut is_over, mut kept_bytes) = (None, false, 0);
    let failing = Box::pin(first_failing(session, shards)).await;
    let in_turn = (0..shards.len()).filter(|place| Some(*place) != failing);
    for place in failing.into_iter().chain(in_turn) {
        let Some(shard) = shards.get(place) else { continue };
        let shown = match (&failure, place, shown) {
            (None, 1.., Shown::DescribedRows) => Shown::Rows,
            (None, 1.., Shown::DescribedKeptRows) => Shown::KeptRows,
            (None, _, shown) => shown,
            (Some(_), _, _) => Shown::Nothing,
        };
        let part = match is_over {
            true => Box::pin(read_stopped_part(session, *shard, request)).await,
            false => read_part(session, *shard, shown, request, kept_bytes).await,
        };
        // What has only changed is asked again, in the same transaction.
        is_over |= !matches!(part, Ok(Part { error: None, .. }));
        match part {
            Ok(Part { has_changed: true, .. }) => failure = failure.or(Some(changed().into())),
            Ok(Part { error: None, has_too_much: true, .. }) => {
                failure = failure.or(Some(too_many_rows(returned_bytes_max(session)).into()));
            }
            Ok(part @ Part { error: None, .. }) => {
                kept_bytes = part.kept_bytes;
                parts.push(part);
            }
            Ok(Part { error: Some(body), .. }) => {
                if let (Request::Bound { statement, .. }, Some(index)) = (request, session.transaction.index_of(*shard))
                    && let Some(participant) = session.transaction.participants_mut().get_mut(index)
                {
                    participant.connection.prepared.doubt(statement.id);
                }
                let name = session.gateway.shard(*shard)?.name.clone();
                failure.get_or_insert_with(|| {
                    let frame = with_shard_named(&crate::session::protocol::describe::error_frame(&body), &name);
                    let text = texts.get(place).or(texts.first());
                    failure_of_covered(frame, text.and_then(ShardText::covering))
                });
            }
            Err(Failure::End(end)) => return Err(end.into()),
            // The others are read to their end, so that they stay usable.
            Err(lost) => failure = Some(lost),
        }
    }
    failure.map_or(Ok(parts), Err)
}

/// Of rows that are kept for their order.
fn returned_bytes_max(session: &Session) -> usize {
    usize::try_from(session.gateway.config.cross_shard.row_bytes_max).unwrap_or(usize::MAX)
}

/// The place of the shard whose error is told first.
async fn first_failing(session: &mut Session, shards: &[ShardId]) -> Option<usize> {
    if shards.len() < 2 {
        return None;
    }
    let place = |shard: ShardId| shards.iter().position(|known| *known == shard);
    let asked = session.transaction.on_all(shards).map(|participant| (participant.shard, &mut *participant.connection));
    let mut asked: Vec<(ShardId, &mut Connection)> = asked.map(|(shard, connection)| (shard, &mut *connection)).collect();
    asked.sort_by_key(|(shard, _)| place(*shard));
    let (asked, connections): (Vec<ShardId>, Vec<&mut Connection>) = asked.into_iter().unzip();
    let failing = first_failure(connections, AskedBy::Other, FAILURE_PATIENCE).await.and_then(|place| asked.get(place).copied());
    failing.and_then(place)
}

/// Values of RETURNING that name types.
fn nested_values(session: &Session, shard: ShardId, request: &Request<'_>) -> NestedValues {
    let (bind, description) = match request {
        Request::Bound { bind, description, .. } | Request::Rows { bind, description, .. } => (bind, description),
        Request::Query(_) | Request::QueryOfViews { .. } | Request::Queries(_) => return NestedValues::default(),
    };
    let participant = session.transaction.on(shard);
    match (participant, &description.rows) {
        (Some(participant), Some(rows)) => participant.connection.oids.nested_columns(rows, bind),
        (Some(_) | None, _) => NestedValues::default(),
    }
}

/// What another shard has refused is over: this one is told so, and read to its end so that it stays usable.
async fn read_stopped_part(session: &mut Session, shard: ShardId, request: &Request<'_>) -> Result<Part, Failure> {
    let mut part = Part::default();
    let read = tokio::time::timeout(STOP_AFTER, read_into(session, &mut part, shard, Shown::Nothing, request)).await;
    if let Ok(read) = read {
        return read.map(|()| part);
    }
    if let Some(participant) = session.transaction.on_mut(shard) {
        participant.connection.stop().await;
    }
    read_into(session, &mut part, shard, Shown::Nothing, request).await.map(|()| part)
}

/// One shard's answer up to ReadyForQuery. A client that does not read holds the shard back.
/// `kept_bytes`: of rows that other shards have given.
async fn read_part(
    session: &mut Session,
    shard: ShardId,
    shown: Shown,
    request: &Request<'_>,
    kept_bytes: usize,
) -> Result<Part, Failure> {
    let mut part = Part { kept_bytes, ..Part::default() };
    read_into(session, &mut part, shard, shown, request).await.map(|()| part)
}

/// The same, given up or not: what has come is in `part`, and more may follow. Where nothing is shown.
async fn read_into(
    session: &mut Session,
    part: &mut Part,
    shard: ShardId,
    mut shown: Shown,
    request: &Request<'_>,
) -> Result<(), Failure> {
    let nested = nested_values(session, shard, request);
    loop {
        let Some(index) = session.transaction.index_of(shard) else { return Err(PgError::internal("participant is gone").into()) };
        let participant = session.transaction.at(index)?;
        let (tag, body) = match participant.connection.next_frame().await {
            Ok(frame) => frame,
            Err(error) => return Err(session.participant_lost(index, &error)),
        };
        match tag {
            shard_tag::DATA_ROW if shown != Shown::Nothing => {
                let row = participant.connection.oids.row_at_home(&nested, body);
                let row = crate::session::protocol::describe::frame(tag, &row);
                if matches!(shown, Shown::KeptRows | Shown::DescribedKeptRows) {
                    part.kept_bytes += row.len();
                    part.has_too_much = part.kept_bytes > returned_bytes_max(session);
                    match part.has_too_much {
                        true => (shown, part.rows) = (Shown::Nothing, Vec::new()),
                        false => part.rows.push(row),
                    }
                    continue;
                }
                session.client.output.extend_from_slice(&row);
                let room = if shown.is_held() { HELD_BYTES_MAX } else { OUTPUT_BYTES };
                if session.client.output.len() >= room {
                    session.client.flush().await?;
                }
            }
            shard_tag::ROW_DESCRIPTION => {
                let mut columns = match wire::row_description(&body) {
                    Ok(columns) => columns,
                    Err(error) => return Err(session.participant_lost(index, &error.into())),
                };
                participant.connection.oids.translate_columns(&mut columns);
                if !request.is_told(&columns) {
                    part.has_changed = true;
                    shown = Shown::Nothing;
                }
                if matches!(shown, Shown::DescribedRows | Shown::DescribedHeldRows | Shown::DescribedKeptRows) {
                    let columns = match request {
                        Request::QueryOfViews { columns, .. } => columns,
                        _ => &columns[..],
                    };
                    originate::row_description(&mut session.client.output, columns);
                }
            }
            shard_tag::NOTICE if shown != Shown::Nothing => {
                session.client.output.extend_from_slice(&crate::session::protocol::describe::frame(tag, &body));
                if !shown.is_held() && session.client.output.len() >= OUTPUT_BYTES {
                    session.client.flush().await?;
                }
            }
            shard_tag::COMMAND_COMPLETE => {
                part.tag = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(&body)).into_owned();
            }
            shard_tag::ERROR => {
                if wire::error_fields(&body).is_ok_and(|fields| fields.is_fatal()) {
                    return Err(session.participant_lost(index, &ConnectionError::Closed));
                }
                part.error.get_or_insert(body);
            }
            shard_tag::READY => {
                participant.connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(());
            }
            _ => {}
        }
    }
}

/// `text`: of this shard.
fn put_request(connection: &mut Connection, request: &Request<'_>, text: &ShardText<'_>, prepared_max: usize) {
    match request {
        Request::Query(_) | Request::QueryOfViews { .. } | Request::Queries(_) => {
            connection.unnamed = None;
            connection.output.query(text);
        }
        Request::Rows { bind, description, .. } => {
            connection.unnamed = None;
            let types = connection.oids.types_there(&description.parameter_types);
            let types = for_rows(text.as_str(), bind, &types);
            connection.output.parse(StatementName::Unnamed, text, &types);
            put_bind(connection, (StatementName::Unnamed, text), bind, description);
            put_describe(connection, description);
            connection.output.execute(b"", 0);
            connection.output.sync();
        }
        Request::Bound { statement, bind, description } => {
            crate::session::protocol::describe::prepare_on(connection, statement, false, prepared_max);
            // The answers are read here, up to ReadyForQuery.
            connection.pending.clear();
            put_bind(connection, (StatementName::Registered(statement.id), text), bind, description);
            put_describe(connection, description);
            connection.output.execute(b"", 0);
            connection.output.sync();
        }
    }
}

/// RETURNING: the statement may have waited for a change of its columns.
fn put_describe(connection: &mut Connection, description: &Description) {
    if description.rows.is_some() {
        connection.output.describe_portal(b"");
    }
}

/// With the parameters as this shard numbers their types.
fn put_bind(
    connection: &mut Connection,
    (name, text): (StatementName<'_>, &ShardText<'_>),
    bind: &wire::Bind<'_>,
    description: &Description,
) {
    let there = connection.oids.parameters_there(&description.parameter_types, bind, bind.after_names);
    connection.output.bind(b"", name, text, there.as_deref().unwrap_or(bind.after_names));
}

/// `UPDATE 2` and `UPDATE 3` are `UPDATE 5`.
pub(in crate::session) fn sum_of_tags<'t>(tags: impl Iterator<Item = &'t str>) -> Result<String, Failure> {
    let mut sum = 0_u64;
    let mut words = "";
    for tag in tags {
        let count = tag.rsplit_once(' ').and_then(|(before, count)| Some((before, count.parse::<u64>().ok()?)));
        let Some((before, count)) = count else {
            return Err(PgError::internal(format!("unexpected command tag \"{tag}\"")).into());
        };
        sum = sum.saturating_add(count);
        words = before;
    }
    Ok(format!("{words} {sum}"))
}

/// The statement with the rows of each shard alone.
pub(in crate::session) async fn texts_of_rows(
    text: &str,
    shard_count: usize,
    shard_of_row: &[usize],
) -> Result<Vec<String>, PgError> {
    if is_read_here(text) {
        return split_rows(text, shard_count, shard_of_row);
    }
    let (text, shard_of_row) = (text.to_owned(), shard_of_row.to_vec());
    aside(move || split_rows(&text, shard_count, &shard_of_row)).await?
}

fn split_rows(text: &str, shard_count: usize, shard_of_row: &[usize]) -> Result<Vec<String>, PgError> {
    let unknown = || PgError::internal("the rows of VALUES were not found in the text");
    let rows = value_rows(text, shard_of_row.len()).ok_or_else(unknown)?;
    let mut rows_of_shards = vec![Vec::new(); shard_count];
    for (row, shard) in shard_of_row.iter().enumerate() {
        rows_of_shards.get_mut(*shard).ok_or_else(unknown)?.push(row);
    }
    rows_of_shards.iter().map(|kept| with_rows(text, &rows, kept).ok_or_else(unknown)).collect()
}

/// The types of parameters on a shard that has some of the rows. Where one is not known there, and its rows do not use it, any
/// type does that takes its bytes.
fn for_rows(text: &str, bind: &wire::Bind<'_>, types: &[u32]) -> Vec<u32> {
    if !types.contains(&0) {
        return types.to_vec();
    }
    let used: HashSet<usize> = lexer::tokens(text)
        .filter(|token| token.kind == TokenKind::Parameter)
        .filter_map(|token| text.get(token.start + 1..token.end)?.parse().ok())
        .collect();
    let there = |(index, oid): (usize, &u32)| match *oid == 0 && !used.contains(&(index + 1)) {
        true if bind.format(index) == Format::Binary => oid::BYTEA,
        true => oid::TEXT,
        false => *oid,
    };
    types.iter().enumerate().map(there).collect()
}

fn too_many_rows(bytes_max: usize) -> PgError {
    PgError::new(
        SqlState::CONFIGURATION_LIMIT_EXCEEDED,
        format!("RETURNING of an INSERT over several shards gives more than {bytes_max} bytes"),
    )
    .with_detail("Its rows are kept until all shards have answered. The limit is cross_shard.row_bytes_max.")
    .with_hint("Insert fewer rows at a time, return fewer columns, or raise the limit.")
}

/// Rows of RETURNING in the order of VALUES; none when there is no RETURNING. `may_leave_out`: ON CONFLICT may leave out rows;
/// which ones is not told, and then they come shard by shard.
fn in_order(parts: Vec<Part>, shard_of_row: &[usize], may_leave_out: bool) -> Result<Vec<Bytes>, Failure> {
    let count: usize = parts.iter().map(|part| part.rows.len()).sum();
    if count == 0 {
        return Ok(Vec::new());
    }
    if may_leave_out && count < shard_of_row.len() {
        return Ok(parts.into_iter().flat_map(|part| part.rows).collect());
    }
    let mut rows: Vec<_> = parts.into_iter().map(|part| part.rows.into_iter()).collect();
    let ordered: Option<Vec<Bytes>> = shard_of_row.iter().map(|place| rows.get_mut(*place)?.next()).collect();
    match ordered {
        Some(ordered) if rows.iter().all(|rest| rest.len() == 0) => Ok(ordered),
        Some(_) | None => Err(PgError::unsupported(
            "RETURNING of an INSERT for several shards is not supported here",
            "A trigger has left out rows, so that their order is not known.",
            "Insert the rows of each shard key in a statement of their own.",
        )
        .into()),
    }
}

pub(in crate::session) fn copies_differ(home: &str, other: &str, shard: &str) -> PgError {
    PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the copies of the reference table differ on shard \"{shard}\""),
    )
    .with_detail(format!("The home shard answered {home}, that shard {other}. Nothing was changed."))
    .with_hint("Somebody has written to one copy directly. Make the copies alike on the shards.")
}

pub(in crate::session) fn has_on_conflict(text: &str) -> bool {
    let words: Vec<&str> = lexer::tokens(text)
        .filter(|token| token.kind == TokenKind::Word)
        .filter_map(|token| text.get(token.start..token.end))
        .collect();
    words.array_windows().any(|[first, second]| first.eq_ignore_ascii_case("on") && second.eq_ignore_ascii_case("conflict"))
}

/// Rows are sent to the client in pieces of this size.
const OUTPUT_BYTES: usize = 32 * 1024;
/// Of the home shard's rows, while the other copies are written: what is more goes out before.
const HELD_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_summed() {
        let sum = |tags: &[&str]| sum_of_tags(tags.iter().copied()).ok();
        assert_eq!(sum(&["UPDATE 2", "UPDATE 0", "UPDATE 3"]).as_deref(), Some("UPDATE 5"));
        assert_eq!(sum(&["INSERT 0 2", "INSERT 0 1"]).as_deref(), Some("INSERT 0 3"));
        assert_eq!(sum(&["BEGIN", "UPDATE 1"]), None);
    }
}
