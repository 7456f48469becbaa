//! COPY to the client over several shards: the query runs as it would by itself, its rows go out as COPY data.
//!
//! Nothing is kept: rows are turned on their way to the client, whichever rung of the ladder they come from. The options are
//! checked, and the header and the trailer made, by PostgreSQL at home, in a COPY of the same query without rows.

use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{Connection, ConnectionError, ShardText};
use crate::error::{PgError, SqlState};
use crate::execute::{CopyModel, CopyRows};
use crate::routing::Inputs;
use crate::session::protocol::describe::{error_frame, frame};
use crate::session::protocol::statement::Statement;
use crate::session::reads::gather::{moved, release};
use crate::session::reads::{gather, scatter};
use crate::session::route::Route;
use crate::session::{Failure, Session, lost};
use crate::sql::analysis::{Analysis, Scope};
use crate::sql::residues::{Covered, cover};
use crate::sql::rewrite::blanks::in_its_place;
use crate::sql::utility::copy_in::CopyFormat;
use crate::sql::utility::copy_out::{self, CopyOut};
use crate::wire::{self, shard_tag};

/// Where its rows come from.
enum Source {
    /// One shard, which does all of it.
    Shard,
    /// No shard has to be asked for rows: PostgreSQL refuses it, at home as well as anywhere.
    Refused,
    Several(CopyOut, Arc<Statement>, Box<Route>),
}

/// At Bind.
pub(in crate::session) async fn copies_several(session: &mut Session, statement: &Analysis, text: &str) -> Result<bool, Failure> {
    let source = source_of_copy(session, statement, text).await;
    session.transaction.pinned_map.forget_planned();
    match source {
        Ok(Source::Shard) => Ok(false),
        Ok(Source::Refused | Source::Several(..)) => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// Runs it where its rows are on several shards. False: they are on one.
pub(in crate::session) async fn copy_out(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
    is_bound: bool,
) -> Result<bool, Failure> {
    let (copy, query, route) = match source_of_copy(session, statement, text).await? {
        Source::Shard => {
            session.transaction.pinned_map.forget_planned();
            return Ok(false);
        }
        Source::Refused => {
            let home = session.home()?.id;
            let padded = in_its_place(text, statement.start, statement.alone(text));
            // Which refuses it.
            let home = session.several([home])?;
            return session.run_on_shard(&home, statement, &padded).await.map(|()| true);
        }
        Source::Several(copy, query, route) => (copy, query, route),
    };
    let description = session.describe(&query).await?;
    let rows = description.rows.as_deref().ok_or_else(|| PgError::internal("a query without columns"))?;
    let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    let lead = text.get(..statement.start).map_or(0, |before| before.chars().count());
    let model = run_model(session, &copy, lead).await?;
    check_encoding(session, &copy)?;
    let quoted = columns.iter().map(|column| copy.quoted.has(&column.name)).collect();
    let is_binary = copy.format == CopyFormat::Binary;
    session.client.copy_rows = Some(Box::new(CopyRows::new(model, copy.format, quoted)));
    let bind = wire::bind(if is_binary { ALL_BINARY } else { ALL_TEXT })?;
    let run = match *route {
        Route::Scatter(reach) => Box::pin(scatter::scatter_bound(session, &query, &bind, &reach, !is_bound)).await,
        Route::Gather(gathering) => gather::gather_bound(session, &query, &bind, &gathering, !is_bound).await,
        Route::Shard(_) | Route::Write(_) => Err(PgError::internal("COPY of a query of one shard").into()),
    };
    let rows = session.client.copy_rows.take();
    run?;
    if let Some(rows) = rows {
        rows.finish(&mut session.client.output);
    }
    Ok(true)
}

async fn source_of_copy(session: &mut Session, statement: &Analysis, text: &str) -> Result<Source, Failure> {
    if !matches!(statement.scope, Scope::Placed { .. }) || statement.shard_hint.is_some() {
        return Ok(Source::Shard);
    }
    let Some(copy) = copy_out::read(statement.alone(text), &session.context)? else { return Ok(Source::Refused) };
    let start = copy.start.map_or(0, |start| statement.start + start);
    let padded = in_its_place(text, start, &copy.query);
    let query = session.prepare(padded.as_bytes(), Box::default()).await?;
    let analysis = query.analysis().ok_or_else(|| PgError::internal("COPY of nothing"))?;
    match session.route(analysis, &Inputs::literals(query.text(), &query.literals)).await {
        // What writes is refused as COPY of a write.
        Ok(Route::Shard(_) | Route::Write(_)) => Ok(Source::Shard),
        Ok(route @ (Route::Scatter(_) | Route::Gather(_))) => Ok(Source::Several(copy, query, Box::new(route))),
        Err(failure) => {
            // What PostgreSQL has to say against the query comes first.
            if matches!(&failure, Failure::Error(error) if error.code == SqlState::FEATURE_NOT_SUPPORTED) {
                session.describe(&query).await?;
            }
            Err(failure)
        }
    }
}

/// Values are put between delimiters as the bytes they are.
fn check_encoding(session: &Session, copy: &CopyOut) -> Result<(), PgError> {
    let session = session.effective("client_encoding").unwrap_or("UTF8");
    let same = |a: &str, b: &str| {
        let plain = |name: &str| -> String { name.chars().filter(char::is_ascii_alphanumeric).collect() };
        plain(a).eq_ignore_ascii_case(&plain(b))
    };
    let is_other = copy.encoding.as_deref().is_some_and(|encoding| !same(encoding, session));
    if !is_other && !has_ascii_inside(session) {
        return Ok(());
    }
    let encoding = copy.encoding.as_deref().unwrap_or(session);
    Err(PgError::unsupported(
        format!("COPY in the encoding \"{encoding}\" is not supported across shards"),
        "The rows of several shards would have to be converted.",
        "Copy in UTF8, as client_encoding.",
    ))
}

/// On the transaction's own connection, if it has one: it may hold locks that another would wait for. The same of the session's
/// temporary tables.
async fn run_model(session: &mut Session, copy: &CopyOut, lead: usize) -> Result<CopyModel, Failure> {
    let home = session.home()?;
    session.keep_pipeline_on(home.id);
    let covered = cover(copy.model.clone(), &session.context, session.gateway.map.load().snapshot())?;
    let heard = match session.is_asked_itself(home.id) {
        true => {
            let index = session.join(home.id).await?;
            session.sync(index).await?;
            let participant = session.transaction.at(index)?;
            session.cancel.started(&participant.connection);
            let heard = model(&mut participant.connection, &covered);
            match heard.await {
                Ok(heard) => heard,
                Err(error) => return Err(session.participant_lost(index, &error)),
            }
        }
        false => {
            let settings = session.settings_now();
            let mut connection = session.checkout(&home, &settings).await?;
            session.cancel.started(&connection);
            let heard = model(&mut connection, &covered).await;
            release(&session.cancel, connection);
            heard.map_err(|error| lost(&home.name, &error))?
        }
    };
    let (ours, theirs) = copy.options_at;
    // What covers it stands in the query, before the options.
    let covered = std::str::from_utf8(covered.text()).unwrap_or_default();
    let ours = ours + covered.chars().count().saturating_sub(copy.model.chars().count());
    let place = |position: usize| if position > ours { position - ours + theirs + lead } else { 0 };
    heard.map_err(|frame| Failure::Shard(moved(&frame, place)))
}

/// What PostgreSQL says around the rows, or its refusal.
async fn model(connection: &mut Connection, text: &Covered) -> Result<Result<CopyModel, Bytes>, ConnectionError> {
    connection.output.query(&ShardText::covered(text));
    connection.unnamed = None;
    let mut heard = CopyModel::default();
    let mut refusal = None;
    loop {
        let (tag, body) = connection.next_frame().await?;
        match tag {
            shard_tag::COPY_OUT => heard.response = frame(tag, &body),
            shard_tag::COPY_DATA => heard.data.push(body),
            shard_tag::ERROR => refusal = Some(error_frame(&body)),
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return Ok(refusal.map_or(Ok(heard), Err));
            }
            _ => {}
        }
    }
}

/// A Bind of nothing to nothing, all results in one format.
const ALL_TEXT: &[u8] = b"\0\0\0\0\0\0\0\x01\0\0";
const ALL_BINARY: &[u8] = b"\0\0\0\0\0\0\0\x01\0\x01";
/// Characters beyond ASCII may have bytes of ASCII in this encoding.
pub(in crate::session) fn has_ascii_inside(encoding: &str) -> bool {
    let plain: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
    WIDE_ENCODINGS.iter().any(|wide| plain.eq_ignore_ascii_case(wide))
}

/// With PostgreSQL's other names for them.
const WIDE_ENCODINGS: [&str; 18] = [
    "SJIS",
    "ShiftJIS",
    "mskanji",
    "WIN932",
    "Windows932",
    "BIG5",
    "WIN950",
    "Windows950",
    "GBK",
    "WIN936",
    "Windows936",
    "UHC",
    "WIN949",
    "Windows949",
    "GB18030",
    "JOHAB",
    "SHIFTJIS2004",
    "SJIS2004",
];
