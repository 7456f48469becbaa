//! INSERT … SELECT of many rows: they are written in several statements of one transaction, each of a bounded size.
//!
//! ```text
//!   the query, to its end ─► rows, beyond a bound on the home shard ─┬─► so many as one statement takes ─► their shards
//!                                                                    └─◄ the next ones, when these are written
//! ```
//! Only where nothing tells that from one statement: no trigger sees the rows of a statement together, and none of them is
//! checked against the others but by what ends either.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures::future::poll_fn;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::staged;
use super::staged::{Asked, Clock, Found, refused_if_about_the_text, with_names};
use crate::backend::STATEMENT_TIMEOUT;
use crate::error::{PgError, SqlState};
use crate::session::protocol::diversion::StoredRows;
use crate::session::reads::gather::duration;
use crate::session::{Failure, Session};
use crate::sql::analysis::Splice;
use crate::sql::rewrite::staging::{Answer, Stage, StageKind, Stages, spliced};

/// What a query of a statement in stages has answered.
pub(in crate::session) enum Answered {
    Whole(Answer),
    /// To be inserted, and more than one statement takes.
    Many(Box<ManyRows>),
}

pub(in crate::session) struct ManyRows {
    first: Answer,
    rest: StoredRows,
}

/// An INSERT whose rows are too many for one statement.
#[derive(Clone, Copy)]
pub(in crate::session) struct Batches<'a> {
    pub stage: &'a Stage,
    pub stages: &'a Stages,
    pub clock: Option<&'a Clock>,
    /// The client's statement, and what else is replaced in it.
    pub alone: &'a str,
    pub others: &'a [Splice],
    pub refusal: &'a PgError,
    /// Of the statement.
    pub began_at: Instant,
}

/// What ends a statement between two of its parts, when no shard is at work for it.
pub(in crate::session) struct Watch<'a, 'c> {
    cancelled: Pin<&'a mut Notified<'c>>,
    deadline: Option<Instant>,
}

impl<'a, 'c> Watch<'a, 'c> {
    /// `cancelled`: of the session's own cancel target.
    pub fn new(session: &Session, cancelled: Pin<&'a mut Notified<'c>>, began_at: Instant) -> Self {
        let limit = session.effective(STATEMENT_TIMEOUT).and_then(duration);
        Self { cancelled, deadline: limit.map(|limit| began_at + limit) }
    }
}

/// The rows that an INSERT inserts, or any other query's.
pub(in crate::session) async fn answer_source(
    session: &mut Session,
    stage: &Stage,
    with: &[(String, String)],
    stages: &Stages,
    clock: Option<&Clock>,
) -> Result<Answered, Failure> {
    if stage.kind != StageKind::Source || !stages.may_batch {
        return staged::answer_stage(session, stage, with, stages, clock).await.map(Answered::Whole);
    }
    let query = staged::query_of(session, stage, with, clock)?;
    let mut rows = staged::answer_rows(session, &query).await?;
    let mut first = rows.next(BATCH_VALUES_MAX, BATCH_BYTES_MAX).await?;
    staged::add_defaults(session, &mut first, stages, clock).await?;
    if rows.is_at_end() {
        rows.end().await?;
        return Ok(Answered::Whole(first));
    }
    Ok(Answered::Many(Box::new(ManyRows { first, rest: rows })))
}

/// Each statement's rows are written before the next ones are read.
pub(in crate::session) async fn write_batches(
    session: &mut Session,
    many: ManyRows,
    batches: &Batches<'_>,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    let target = Arc::clone(&session.cancel);
    let cancelled = pin!(target.cancelled());
    let mut watch = Watch::new(session, cancelled, batches.began_at);
    let ManyRows { first: mut batch, mut rest } = many;
    let mut count = write_batch(session, &batch, batches, asked, begins).await?;
    // The rows of RETURNING have been described.
    let again = match asked {
        Asked::Text { .. } => &Asked::Text { rows: None },
        asked => asked,
    };
    while !rest.is_at_end() {
        check_goes_on(&mut watch).await?;
        batch = rest.next(BATCH_VALUES_MAX, BATCH_BYTES_MAX).await?;
        staged::add_defaults(session, &mut batch, batches.stages, batches.clock).await?;
        count += write_batch(session, &batch, batches, again, false).await?;
        if session.client.output.len() >= OUTPUT_BYTES {
            session.client.flush().await?;
        }
    }
    rest.end().await?;
    Ok(format!("INSERT 0 {count}"))
}

async fn write_batch(
    session: &mut Session,
    batch: &Answer,
    batches: &Batches<'_>,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<u64, Failure> {
    let Some(text) = batches.stage.constant(batch, &session.context.catalog)? else { return Ok(0) };
    let mut splices = with_names(batches.stages, batches.others.to_vec());
    splices.push(Splice { start: batches.stage.start, end: batches.stage.end, text });
    let Found { writing, text } = Box::pin(staged::find_write(session, &spliced(batches.alone, &splices), asked)).await?;
    if begins {
        session.begin_one_statement();
    }
    session.check_commit_support(writing.shards()).await?;
    let tag = refused_if_about_the_text(staged::write_text_of(session, &writing, &text, asked).await, batches.refusal)?;
    Ok(tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default())
}

/// Between two parts a cancel request finds no shard at work, and nobody else looks at the time.
pub(in crate::session) async fn check_goes_on(watch: &mut Watch<'_, '_>) -> Result<(), Failure> {
    let is_cancelled = poll_fn(|context| Poll::Ready(watch.cancelled.as_mut().poll(context).is_ready())).await;
    let ended = |reason: &str| PgError::new(SqlState::QUERY_CANCELED, format!("canceling statement due to {reason}"));
    match watch.deadline {
        _ if is_cancelled => Err(ended("user request").into()),
        Some(deadline) if Instant::now() >= deadline => Err(ended("statement timeout").into()),
        Some(_) | None => Ok(()),
    }
}

/// Values of one INSERT; a text has a bound of literals.
pub(in crate::session) const BATCH_VALUES_MAX: usize = 10_000;
/// Bytes of its rows, but for the last one.
pub(in crate::session) const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Rows are sent to the client in pieces of this size.
const OUTPUT_BYTES: usize = 32 * 1024;
