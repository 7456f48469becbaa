//! Cursors whose rows are merged here: a portal on each shard, read in pieces.
//!
//! The portals are bound when the cursor is made, so that its snapshots are of that time, and are read by FETCH statements,
//! whose results may have any format. Between two pieces the shards' connections serve whatever else the transaction does.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::{Failure, Session};
use super::{Cursor, Life, Source};
use crate::backend::{
    ColumnsDigest, ConnectionError, NestedValues, Own, Reply, STATEMENT_TIMEOUT, Settings, ShardText, StatementName,
};
use crate::error::{PgError, SqlState};
use crate::execute::{Need, Next, Pieces, Spec, Unranked};
use crate::routing::{Inputs, Reach};
use crate::session::protocol::describe::{frame, prepare_on};
use crate::session::protocol::statement::Statement;
use crate::session::protocol::told::check_columns;
use crate::session::reads::gather::duration;
use crate::session::reads::lock_rows::no_cursor;
use crate::session::reads::scatter::{fragment_text, with_shard_named};
use crate::session::reads::{ask, ranking, scatter};
use crate::shard_key::oid;
use crate::shardmap::{MapSnapshot, ShardId};
use crate::sql::analysis::{Combine, Scroll};
use crate::sql::residues::cover;

use crate::wire::{self, FieldDescription, shard_tag};

pub(super) struct MergedCursor {
    /// Its portals' name.
    portal: String,
    /// By which it was routed.
    map: Arc<MapSnapshot>,
    /// In the order of the inputs of `pieces`.
    shards: Vec<ShardId>,
    pieces: Pieces,
    /// Format codes of the client's columns, as rows are fetched: none is text, one is for all. `None`: nothing was fetched yet.
    formats: Option<Vec<u8>>,
    /// Number of the row that it stands on; 0 is before the first.
    pub position: u64,
    pub is_at_end: bool,
    /// The client's columns.
    pub(super) columns: Vec<FieldDescription>,
    /// Of the client's parameters: types, and the rest of a Bind of their values.
    pub(super) types: Vec<u32>,
    values: Vec<u8>,
    /// The session's, when its rows were fetched last.
    pub(super) settings: Arc<Settings>,
    /// Whose rows they are.
    pub(super) statement: Arc<Statement>,
}

/// What a shard has said.
#[derive(Default)]
pub(in crate::session) struct Heard {
    pub rows: Vec<Bytes>,
    pub columns: Vec<FieldDescription>,
    /// The body of its ErrorResponse.
    error: Option<Bytes>,
}

/// Why there is no cursor.
pub(super) enum NotMerged {
    /// Nothing has been done that counts: there may be another way.
    Inexact(PgError),
    Failed(Failure),
}

impl<F: Into<Failure>> From<F> for NotMerged {
    fn from(failure: F) -> Self {
        NotMerged::Failed(failure.into())
    }
}

/// Binds a portal on each shard. `bind`: of the client, its values count.
pub(super) async fn open_merged(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
) -> Result<Cursor, NotMerged> {
    let shards = reach.shards();
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("a cursor over nothing"))?;
    let merge = analysis.merge.clone()?;
    let description = session.describe(statement).await?;
    let rows = description.rows.clone().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let types = description.parameter_types.clone();
    let spec = scatter::spec(session, &merge, &Inputs::bound(statement.text(), &statement.literals, bind, &types))?;
    let fragment = match session.with_instant(fragment_text(analysis, &merge, statement.text()), shards).await {
        Ok(fragment) => fragment,
        Err(Failure::Error(refusal)) => return Err(NotMerged::Inexact(refusal)),
        Err(failure) => return Err(failure.into()),
    };
    let fragment = session.fragment_of_text(statement, fragment, &types, reach)?;
    let text = fragment.text_for(reach)?;
    if merge.locking.is_some() {
        return Err(no_cursor().into());
    }
    let portal = format!("shardgate_cursor_{}", session.open_cursors.number());
    let values = bind.with_result_formats(&[]);
    let prepared_max = session.gateway.prepared_max();
    for shard in shards {
        ask::join_clean(session, *shard).await?;
    }
    for participant in session.transaction.on_all(shards) {
        let connection = &mut *participant.connection;
        prepare_on(connection, &fragment, false, prepared_max);
        // The answers are read here, up to ReadyForQuery.
        connection.pending.clear();
        let there = connection.oids.bind_there(&types, &values);
        connection.output.bind(portal.as_bytes(), StatementName::Registered(fragment.id), &text, &there);
        connection.output.describe_portal(portal.as_bytes());
        connection.output.sync();
    }
    let heard = match hear_all(session, shards).await {
        Ok(heard) => heard,
        Err(failure) => {
            for participant in session.transaction.on_all(shards) {
                participant.connection.prepared.doubt(fragment.id);
            }
            return Err(match failure {
                Failure::Shard(frame) if merge.fragment.is_some() || analysis.start > 0 => {
                    scatter::told_of_the_text(session, frame, analysis, statement.text()).await
                }
                failure => failure,
            }
            .into());
        }
    };
    if !matches!(merge.combine, Some(Combine::Groups(_))) {
        check_columns(&heard, spec.hidden_columns, ColumnsDigest::of(Some(&rows))).map_err(Failure::from)?;
    }
    let fragment_columns = heard.into_iter().next().map(|heard| heard.columns).unwrap_or_default();
    let columns = wire::row_description(&rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    let known = dates_are_iso(session);
    let sorted = spec.merge.order_by.iter().filter_map(|key| fragment_columns.get(key.column));
    let has_other_dates = !known && sorted.into_iter().any(|column| is_date(column.type_oid));
    let pieces = Pieces::new(spec, fragment_columns, shards.len());
    let settings = session.settings_now();
    let cursor = |pieces| MergedCursor {
        settings,
        statement: Arc::clone(statement),
        portal: portal.clone(),
        map: Arc::clone(reach.map()),
        shards: shards.to_vec(),
        pieces,
        formats: None,
        position: 0,
        is_at_end: false,
        columns,
        types,
        values,
    };
    match pieces {
        Ok(pieces) if !has_other_dates => {
            let source = Source::Merged(Box::new(cursor(pieces)));
            Ok(Cursor { source, life: Life::Transaction, savepoints: 0, scroll: Scroll::Unsaid, is_binary: false, rows })
        }
        Ok(pieces) => {
            close_merged(session, &cursor(pieces));
            Err(NotMerged::Inexact(not_ordered("Dates are not in ISO form.".to_owned())))
        }
        Err(error) => {
            close_portals(session, &portal, shards);
            Err(NotMerged::Inexact(error.told()))
        }
    }
}

/// In text, dates are compared in the ISO form.
fn dates_are_iso(session: &Session) -> bool {
    let reported = || session.reported.iter().find(|(name, _)| &**name == "DateStyle").map(|(_, style)| &**style);
    let style = session.effective("datestyle").or_else(reported);
    style.is_none_or(|style| style.to_ascii_uppercase().starts_with("ISO"))
}

/// The portals end; the shards hear of it with the next message.
pub(super) fn close_merged(session: &mut Session, cursor: &MergedCursor) {
    close_portals(session, &cursor.portal, &cursor.shards);
}

pub(in crate::session) fn close_portals(session: &mut Session, portal: &str, shards: &[ShardId]) {
    for participant in session.transaction.on_all(shards) {
        participant.connection.output.close_portal(portal.as_bytes());
        participant.connection.expect(Reply::Close, false);
        participant.needs_sync = true;
    }
}

/// Reads so many rows, or all, and hands them to the client in these formats, as Bind has them; without, passes them by. Returns how
/// many. `savepoints`: how many there were when the cursor was made.
pub(super) async fn fetch_merged(
    session: &mut Session,
    (cursor, savepoints): (&mut MergedCursor, usize),
    wanted: Option<u64>,
    formats: Option<&[u8]>,
) -> Result<u64, Failure> {
    cursor.check_rows_are_of_now(session.settings_now(), &session.context.catalog)?;
    match formats {
        Some(formats) => cursor.set_formats(formats)?,
        None if cursor.formats.is_none() => cursor.set_formats(&[])?,
        None => {}
    }
    let deadline = session.effective(STATEMENT_TIMEOUT).and_then(duration).map(|limit| Instant::now() + limit);
    let mut given = 0;
    while wanted.is_none_or(|wanted| given < wanted) {
        let left = wanted.map_or(u64::MAX, |wanted| wanted - given);
        match cursor.pieces.next(left).map_err(|error| error.told())? {
            Next::Row(row) => {
                given += 1;
                if formats.is_some() {
                    session.client.output.extend_from_slice(&row);
                }
                if session.client.output.len() >= OUTPUT_BYTES {
                    session.client.flush().await?;
                }
            }
            Next::Needs(needs) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout").into());
                }
                fetch_pieces(session, cursor, &needs).await?;
            }
            Next::Unranked(columns) => Box::pin(rank_rows(session, cursor, &columns)).await?,
            Next::LastStep(text) => {
                open_last_step(session, cursor, &text).await?;
                if session.transaction.savepoints.len() > savepoints {
                    Box::pin(keep_last_step(session, cursor)).await?;
                }
            }
            Next::End => {
                cursor.is_at_end = true;
                break;
            }
        }
    }
    cursor.position += given;
    Ok(given)
}

async fn fetch_pieces(session: &mut Session, cursor: &mut MergedCursor, needs: &[Need]) -> Result<(), Failure> {
    let formats = cursor.fetch_formats();
    let mut shards = Vec::with_capacity(needs.len());
    for need in needs {
        let shard = *cursor.shards.get(need.input).ok_or_else(|| PgError::internal("a cursor's shard is gone"))?;
        ask::join_clean(session, shard).await?;
        shards.push(shard);
    }
    for (need, shard) in needs.iter().zip(&shards) {
        let Some(participant) = session.transaction.on_mut(*shard) else { continue };
        let out = &mut participant.connection.output;
        let text = format!("FETCH FORWARD {} FROM \"{}\"", need.rows, cursor.portal);
        let text = Own::Cursor.text(&text);
        out.parse(StatementName::Unnamed, &text, &[]);
        out.bind(b"", StatementName::Unnamed, &text, &formats);
        // Values in binary form may name types.
        out.describe_portal(b"");
        out.execute(b"", 0);
        out.sync();
        participant.connection.unnamed = None;
    }
    for (need, heard) in needs.iter().zip(hear_all(session, &shards).await?) {
        let has_ended = (heard.rows.len() as u64) < u64::from(need.rows);
        cursor.pieces.take(need.input, heard.rows, has_ended).map_err(|error| error.told())?;
    }
    Ok(())
}

/// All rows are here: PostgreSQL says how their text sorts.
async fn rank_rows(session: &mut Session, cursor: &mut MergedCursor, columns: &[Unranked]) -> Result<(), Failure> {
    let shard = cursor.shards.first().copied().ok_or_else(|| PgError::internal("a cursor without a shard"))?;
    let index = session.join(shard).await?;
    session.sync(index).await?;
    Ok(ranking::rank(session, &mut cursor.pieces, columns, shard).await?.map_err(|error| error.told())?)
}

/// The groups are whole: what is left to do is a query of its own, on one shard.
async fn open_last_step(session: &mut Session, cursor: &mut MergedCursor, text: &str) -> Result<(), Failure> {
    let shard = cursor.shards.first().copied().ok_or_else(|| PgError::internal("a cursor without a shard"))?;
    close_merged(session, cursor);
    let index = session.join(shard).await?;
    session.sync(index).await?;
    let portal = format!("{}_groups", cursor.portal);
    let text = session.with_instant(text.to_owned(), &[shard]).await?;
    let text = cover(text, &session.context, &cursor.map)?;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        let oids = Arc::clone(&participant.connection.oids);
        let out = &mut participant.connection.output;
        let text = ShardText::covered(&text);
        out.parse(StatementName::Unnamed, &text, &oids.types_there(&cursor.types));
        out.bind(portal.as_bytes(), StatementName::Unnamed, &text, &oids.bind_there(&cursor.types, &cursor.values));
        out.describe_portal(portal.as_bytes());
        out.sync();
        participant.connection.unnamed = None;
    }
    let heard = hear_all(session, &[shard]).await?.pop().unwrap_or_default();
    let is_same = |(here, there): (&FieldDescription, &FieldDescription)| here.type_oid == there.type_oid;
    if heard.columns.len() != cursor.columns.len() || !heard.columns.iter().zip(&cursor.columns).all(is_same) {
        return Err(PgError::unsupported(
            "this expression over aggregates is not supported in a cursor over several shards",
            "Over the groups of all shards its columns would be of other types.",
            "Cast the expression to the type that it has, or run the query without a cursor.",
        )
        .into());
    }
    cursor.pieces = Pieces::new(Spec::default(), heard.columns, 1).map_err(|error| error.told())?;
    cursor.portal = portal;
    cursor.shards = vec![shard];
    let formats = cursor.formats.take().unwrap_or_default();
    cursor.set_formats(&formats)?;
    Ok(())
}

/// The portal would end with a savepoint that the cursor outlives: all of its rows are read before.
async fn keep_last_step(session: &mut Session, cursor: &mut MergedCursor) -> Result<(), Failure> {
    let bytes_max = session.gateway.config.cross_shard.merge_bytes_max;
    while let Some(need) = cursor.pieces.next_piece() {
        fetch_pieces(session, cursor, &[need]).await?;
        if cursor.pieces.bytes() as u64 > bytes_max {
            return Err(too_much_to_keep(bytes_max).into());
        }
    }
    Ok(())
}

/// Sends what is in the outputs and reads every shard to its ReadyForQuery. The first error, with its shard named.
pub(in crate::session) async fn hear_all(session: &mut Session, shards: &[ShardId]) -> Result<Vec<Heard>, Failure> {
    for shard in shards {
        let Some(participant) = session.transaction.on_mut(*shard) else { continue };
        session.cancel.started(&participant.connection);
        participant.connection.send().await;
    }
    let mut all = Vec::with_capacity(shards.len());
    let mut failure = None;
    for shard in shards {
        match hear(session, *shard).await {
            Ok(Heard { error: Some(body), .. }) => {
                let name = session.gateway.shard(*shard)?.name.clone();
                failure.get_or_insert_with(|| Failure::Shard(with_shard_named(&frame(shard_tag::ERROR, &body), &name)));
            }
            Ok(heard) => all.push(heard),
            Err(Failure::End(end)) => return Err(end.into()),
            // The others are read to their end, so that they stay usable.
            Err(lost) => failure = Some(lost),
        }
    }
    failure.map_or(Ok(all), Err)
}

async fn hear(session: &mut Session, shard: ShardId) -> Result<Heard, Failure> {
    let mut heard = Heard::default();
    let mut nested = NestedValues::default();
    loop {
        let Some(index) = session.transaction.index_of(shard) else {
            return Err(PgError::internal("participant is gone").into());
        };
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        let connection = &mut *participant.connection;
        let (tag, body) = match connection.peek() {
            Ok(Some(crate::backend::Frame { header, is_complete: true })) => {
                let whole = connection.input.split_to(header.total).freeze();
                (header.tag, whole)
            }
            Ok(Some(_) | None) => {
                session.fill(index).await?;
                continue;
            }
            Err(error) => return Err(session.participant_lost(index, &error)),
        };
        let inner = body.slice(wire::FRAME_HEADER_BYTES.min(body.len())..);
        match tag {
            // Rows share the buffer that they were read into; a piece is small.
            shard_tag::DATA_ROW if nested.is_empty() => heard.rows.push(body),
            shard_tag::DATA_ROW => heard.rows.push(frame(tag, &connection.oids.row_at_home(&nested, inner))),
            shard_tag::ROW_DESCRIPTION => match wire::row_description(&inner) {
                Ok(mut columns) => {
                    nested = connection.oids.translate_columns(&mut columns);
                    heard.columns = columns;
                }
                Err(error) => return Err(session.participant_lost(index, &error.into())),
            },
            shard_tag::NOTICE => session.client.output.extend_from_slice(&body),
            shard_tag::ERROR => {
                if wire::error_fields(&inner).is_ok_and(|fields| fields.is_fatal()) {
                    return Err(session.participant_lost(index, &ConnectionError::Closed));
                }
                heard.error.get_or_insert(inner);
            }
            shard_tag::READY => {
                connection.note_ready(inner.first().copied().unwrap_or(b'E'));
                return Ok(heard);
            }
            _ => {}
        }
    }
}

impl MergedCursor {
    /// Rows wait here.
    pub(super) fn is_ahead(&self) -> bool {
        self.pieces.is_ahead()
    }

    /// In which format rows come from now on. Those that wait here already have one.
    pub fn set_formats(&mut self, formats: &[u8]) -> Result<(), Failure> {
        match &self.formats {
            Some(known) if is_same_format(known, formats, self.columns.len()) => return Ok(()),
            Some(_) => {
                return Err(PgError::unsupported(
                    "the format of a cursor's rows cannot change",
                    "Rows of several shards wait in the format of the FETCH before.",
                    "Ask for text, or for binary values, in every FETCH.",
                )
                .into());
            }
            None => {}
        }
        self.formats = Some(formats.to_vec());
        let codes: Vec<i16> = self.codes();
        self.pieces.set_formats(codes.into_iter());
        Ok(())
    }

    /// One for each column of the fragments' rows.
    fn codes(&self) -> Vec<i16> {
        let formats = self.formats.as_deref().unwrap_or_default();
        let visible = self.pieces.column_count().saturating_sub(self.pieces.hidden_columns());
        let code = |column: usize| match formats.len() / 2 {
            _ if self.pieces.has_last_step() => 0,
            0 => 0,
            1 => formats.get(1).copied().unwrap_or(0),
            _ if column >= visible => 0,
            _ => formats.get(column * 2 + 1).copied().unwrap_or(0),
        };
        (0..self.pieces.column_count()).map(|column| i16::from(code(column))).collect()
    }

    /// The rest of a Bind without parameters.
    fn fetch_formats(&self) -> Vec<u8> {
        let codes = self.codes();
        let mut out = vec![0, 0, 0, 0];
        out.extend(u16::try_from(codes.len()).unwrap_or(u16::MAX).to_be_bytes());
        codes.iter().for_each(|code| out.extend(code.to_be_bytes()));
        out
    }
}

/// One code for all is the same as that code for each.
fn is_same_format(known: &[u8], formats: &[u8], columns: usize) -> bool {
    let spread = |formats: &[u8]| -> Vec<u8> {
        let code = |column: usize| match formats.len() / 2 {
            0 => 0,
            1 => formats.get(1).copied().unwrap_or(0),
            _ => formats.get(column * 2 + 1).copied().unwrap_or(0),
        };
        (0..columns).map(code).collect()
    };
    spread(known) == spread(formats)
}

fn not_ordered(detail: String) -> PgError {
    PgError::unsupported(
        "rows of several shards cannot be put in order",
        detail,
        "Set DateStyle to ISO, or add a condition on the shard key.",
    )
}

fn too_much_to_keep(bytes_max: u64) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("the rows of the cursor take more than {bytes_max} bytes"))
        .with_detail("They are kept since the cursor was made before the savepoint. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Fetch its first row before the savepoint, or raise the limit.")
}

fn is_date(type_oid: u32) -> bool {
    matches!(type_oid, oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ)
}
/// Rows are handed on in pieces of this size.
const OUTPUT_BYTES: usize = 32 * 1024;
