//! Portals that run to their end at their first Execute, whatever its row limit: writes, EXECUTE, FETCH, EXPLAIN and their kind, as
//! in PostgreSQL, and row locks with LIMIT.
//!
//! The rows that the client has not asked for yet are kept, within `cross_shard.merge_bytes_max`.

use std::sync::Arc;

use bytes::Bytes;

use super::super::{Failure, Session};
use super::portal;
use super::{Cursor, Life, Source, is_fetch};
use crate::error::{PgError, SqlState};
use crate::session::commands::inner_query::has_inner_query;
use crate::session::commands::{command, prepare};
use crate::session::cursor;
use crate::session::protocol::diversion::{Kept, frames_of, outcome};
use crate::session::protocol::statement::{Portal, Statement};
use crate::session::reads::scatter;
use crate::session::writes::write;
use crate::sql::analysis::Scroll;
use crate::wire::{self, FRAME_HEADER_BYTES, FrameHeader, originate, shard_tag};

pub(super) struct KeptRows {
    /// DataRow messages.
    rows: Bytes,
    /// The command tag without its count: `INSERT 0 `.
    tag: String,
    /// The tag has a count, which is of the rows that an Execute has given.
    is_counted: bool,
}

/// Execute of a portal that the proxy runs by itself, or that writes on several shards.
pub(in crate::session) async fn execute_to_end(session: &mut Session, name: &[u8], row_limit: i32) -> Result<(), Failure> {
    if !session.open_cursors.contains(name) {
        let Some(portal) = session.portals.get(name).cloned() else { return Err(PgError::internal("no such portal").into()) };
        let statement = portal.bound().map(|(statement, _)| Arc::clone(statement)).filter(|_| row_limit > 0);
        let rows = match statement {
            Some(statement) => rows_of(session, &statement).await?,
            None => None,
        };
        let Some(rows) = rows else {
            let run = run_to_end(session, &portal).await;
            session.spend(name, &run);
            return run;
        };
        cursor::check_cursor_count(session)?;
        let kept = session.divert();
        let run = run_to_end(session, &portal).await;
        let kept = kept_rows(session, kept, run);
        if kept.is_err() {
            session.spend(name, &kept);
        }
        keep_rows(session, name, rows, kept?);
    }
    portal::execute_opened(session, &Bytes::copy_from_slice(name), row_limit).await
}

async fn run_to_end(session: &mut Session, portal: &Portal) -> Result<(), Failure> {
    match portal {
        Portal::Own { statement, bind } => Box::pin(command::execute_own(session, statement, bind)).await,
        Portal::Write { statement, bind, writing } => Box::pin(write::write_bound(session, statement, bind, writing)).await,
        Portal::Shard { .. } | Portal::Scatter { .. } | Portal::Gather { .. } | Portal::Finished { .. } | Portal::Spent { .. } => {
            Err(PgError::internal("a portal that does not run to its end").into())
        }
    }
}

/// Body of the RowDescription of what the portal gives; `None`: no rows.
pub(in crate::session) async fn rows_of(session: &mut Session, statement: &Arc<Statement>) -> Result<Option<Bytes>, Failure> {
    let Some(analysis) = statement.analysis() else { return Ok(None) };
    command::check_not_failed(session, &analysis.command)?;
    if has_inner_query(&analysis.command) && !is_fetch(statement) {
        return Ok(None);
    }
    Ok(match prepare::describe_by_itself(session, statement).await? {
        Some(own) => own.rows,
        None => session.describe(statement).await?.rows.clone(),
    })
}

/// The portal's rows are locked, all that its LIMIT lets through.
pub(super) async fn open_locked(session: &mut Session, name: &Bytes) -> Result<(), Failure> {
    let Some(Portal::Scatter { statement, bind, reach }) = session.portals.get(name) else {
        return Err(PgError::internal("not a portal that locks rows").into());
    };
    let (statement, bind, reach) = (statement.clone(), bind.clone(), reach.clone());
    cursor::check_cursor_count(session)?;
    let rows = session.describe(&statement).await?.rows.clone().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let bind = wire::bind(&bind)?;
    let kept = session.divert();
    let run = Box::pin(scatter::scatter_bound(session, &statement, &bind, &reach, false)).await;
    let kept = kept_rows(session, kept, run)?;
    keep_rows(session, name, rows, kept);
    Ok(())
}

fn keep_rows(session: &mut Session, name: &[u8], rows: Bytes, kept: KeptRows) {
    let source = Source::Kept(Box::new(kept));
    let cursor = Cursor { source, life: Life::Transaction, savepoints: 0, scroll: Scroll::Unsaid, is_binary: false, rows };
    cursor::keep_cursor(session, Bytes::copy_from_slice(name), cursor);
}

/// The rows of what was meant for the client since [`Session::divert`], and their end; everything else goes on to it.
fn kept_rows(session: &mut Session, kept: Kept, run: Result<(), Failure>) -> Result<KeptRows, Failure> {
    let diverted = session.end_diversion(kept);
    let (mut tag, mut is_counted, mut has_error) = (String::new(), false, false);
    for (kind, frame) in frames_of(diverted.frames.freeze()) {
        match kind {
            shard_tag::COMMAND_COMPLETE => {
                let told = String::from_utf8_lossy(frame.get(FRAME_HEADER_BYTES..).unwrap_or_default());
                let told = told.trim_end_matches('\0');
                told.trim_end_matches(|last: char| last.is_ascii_digit()).clone_into(&mut tag);
                is_counted = tag.len() < told.len();
            }
            // Describe has told it.
            shard_tag::ROW_DESCRIPTION => {}
            _ => {
                has_error |= kind == shard_tag::ERROR;
                session.client.output.extend_from_slice(&frame);
            }
        }
    }
    outcome(run, has_error)?;
    if !diverted.is_whole {
        return Err(too_many(session.kept_bytes_max()).into());
    }
    Ok(KeptRows { rows: diverted.rows.freeze(), tag, is_counted })
}

/// Hands on so many rows, or all.
pub(super) fn give_kept(session: &mut Session, kept: &mut KeptRows, wanted: Option<u64>) {
    let (mut given, mut bytes) = (0, 0);
    while wanted.is_none_or(|wanted| given < wanted)
        && let Some(rest) = kept.rows.get(bytes..)
        && let Ok(Some(header)) = FrameHeader::peek(rest, usize::MAX / 2)
    {
        given += 1;
        bytes += header.total;
    }
    session.client.output.extend_from_slice(&kept.rows.split_to(bytes.min(kept.rows.len())));
    match wanted == Some(given) {
        true => originate::bare(&mut session.client.output, shard_tag::PORTAL_SUSPENDED),
        false if kept.is_counted => originate::command_complete(&mut session.client.output, &format!("{}{given}", kept.tag)),
        false => originate::command_complete(&mut session.client.output, &kept.tag),
    }
}

fn too_many(bytes_max: usize) -> PgError {
    PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("a result that is fetched in parts has more than {bytes_max} bytes"))
        .with_detail("The rows of EXECUTE, of FETCH, and of a write or row locks over several shards are kept until they are fetched. The limit is cross_shard.merge_bytes_max.")
        .with_hint("Fetch the whole result (a fetch size of 0), or raise the limit.")
}
