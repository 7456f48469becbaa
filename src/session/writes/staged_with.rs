//! Queries of WITH, where a statement over several shards is answered in parts. One that writes is run as a statement of its own, with
//! all that this may need, and what it returns is kept. That the parts do not see each other's writes has been seen before
//! ([`crate::sql::rewrite::staging`]).
//!
//! What follows them may be a query: it is answered last, over what they have returned, before all of it is committed.

use super::staged::{Asked, Clock, Found};
use super::write::{Request, Shown, WritingKind};
use super::{exact, moved, staged, write};
use crate::error::PgError;
use crate::session::{Failure, Session};
use crate::sql::analysis::Splice;
use crate::sql::rewrite::returned;
use crate::sql::rewrite::staging::{Answer, CteStage, Stage, StageKind, Stages, are_run, returned, under_with};

/// The queries of WITH, in their order: by name what those after them see, and what stands in their places in the text.
pub(in crate::session) async fn answer_with(
    session: &mut Session,
    stages: &Stages,
    alone: &str,
    clock: Option<&Clock>,
) -> Result<(Vec<(String, String)>, Vec<Splice>), Failure> {
    let (mut with, mut splices) = (Vec::new(), Vec::new());
    for (CteStage { stage, name, head, writes }, is_run) in stages.ctes.iter().zip(are_run(&stages.ctes, alone)) {
        let answer = match writes {
            true => Box::pin(answer_write(session, &under_with(&with, &stage.query)?)).await?,
            false if !is_run => staged::described_only(session, &under_with(&with, &stage.query)?).await?,
            false => staged::answer_stage(session, stage, &with, stages, clock).await?,
        };
        let Some(text) = stage.constant(&answer, &session.context.catalog)? else { continue };
        with.push((name.clone(), format!("{head}{text})")));
        splices.push(Splice { start: stage.start, end: stage.end, text });
    }
    Ok((with, splices))
}

/// The query that follows WITH, whose queries are constants now: for the client. Returns the tag.
pub(in crate::session) async fn answer_rest(session: &mut Session, text: &str, asked: &Asked<'_>) -> Result<String, Failure> {
    let query = staged::with_values_of(session, asked, &[text]).await?.concat();
    let answer = staged::answer_query(session, &query, &StageKind::Cte).await?;
    show(session, &answer, asked).await
}

/// An INSERT whose RETURNING has sub-selects over other shards: it runs by itself, and they over the rows that it returns.
/// `refusal`: why it cannot run as it is. Returns the tag.
pub(in crate::session) async fn insert_apart(
    session: &mut Session,
    text: &str,
    refusal: PgError,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    let Some(apart) = returned::insert_apart(text, &session.context) else { return Err(refusal.into()) };
    let insert = staged::with_values_of(session, asked, &[apart.insert.as_str()]).await?.concat();
    let Found { writing, text } = staged::find_write(session, &insert, &Asked::Own).await?;
    if begins {
        session.begin_one_statement();
    }
    if writing.shards().len() > 1 {
        session.check_commit_support(writing.shards()).await?;
    }
    let kept = session.divert();
    let run = staged::write_text_of(session, &writing, &text, &Asked::Own).await;
    let tag = run.as_ref().map_or_else(|_| String::new(), Clone::clone);
    let mut rows = session.diverted(kept, run.map(drop))?;
    exact::check_types_are_exact(session, &rows.columns)?;
    staged::add_collations(session, &returned(&apart.insert).unwrap_or_default(), &mut rows).await?;
    let stage = Stage { start: 0, end: 0, query: String::new(), kind: StageKind::From { alias: Some(apart.alias.clone()) } };
    let table = stage.constant(&rows, &session.context.catalog)?.unwrap_or_default();
    let query = staged::with_values_of(session, asked, &[apart.query(&table).as_str()]).await?.concat();
    let answer = staged::answer_query(session, &query, &StageKind::Cte).await?;
    show(session, &answer, asked).await?;
    Ok(tag)
}

/// Rows for the client, in the formats that it has asked for. Returns the tag of a query.
pub(in crate::session) async fn show(session: &mut Session, answer: &Answer, asked: &Asked<'_>) -> Result<String, Failure> {
    let stage = Stage { start: 0, end: 0, query: String::new(), kind: StageKind::Cte };
    let rows = match answer.columns.is_empty() {
        true => format!("SELECT FROM pg_catalog.generate_series(1, {})", answer.rows.len()),
        false => stage.constant(answer, &session.context.catalog)?.unwrap_or_default(),
    };
    staged::put_description(session, asked.rows())?;
    let texts = [rows];
    let home = session.several([session.home()?.id])?;
    match asked {
        Asked::Text { .. } => write::read_on(session, &home, &Request::Queries(&texts), Shown::Rows).await,
        Asked::Own => write::read_on(session, &home, &Request::Queries(&texts), Shown::DescribedRows).await,
        Asked::Bound { bind, description } => {
            write::read_on(session, &home, &Request::Rows { texts: &texts, bind, description }, Shown::Rows).await
        }
    }
}

/// Runs one of them, inside the transaction of the whole.
pub(in crate::session) async fn answer_write(session: &mut Session, query: &str) -> Result<Answer, Failure> {
    // It may have queries of its own that are answered first.
    session.staging.is_under_way = false;
    let found = staged::find_write(session, query, &Asked::Own).await;
    session.staging.is_under_way = true;
    let Found { writing, text } = found?;
    if writing.shards().len() > 1 {
        session.check_commit_support(writing.shards()).await?;
    }
    let kept = session.divert();
    let run = match &writing.kind {
        WritingKind::Staged(staging) => Box::pin(staged::run_stages(session, staging, &text, &Asked::Own, false)).await,
        WritingKind::Moved(moving) => {
            Box::pin(moved::delete_and_insert(session, moving, (&text, &moving.delete), &Asked::Own)).await
        }
        WritingKind::Parts
        | WritingKind::Copies
        | WritingKind::LockedCopies(_)
        | WritingKind::Locks
        | WritingKind::Rows(_)
        | WritingKind::Streamed { .. } => staged::write_text_of(session, &writing, &text, &Asked::Own).await,
    };
    let mut answer = session.diverted(kept, run.map(drop))?;
    let Some(returned) = returned(query) else { return Ok(answer) };
    // A write without anything to write was not sent, and nobody has described it.
    if answer.columns.is_empty() {
        answer = staged::described_only(session, &returned).await?;
    }
    exact::check_types_are_exact(session, &answer.columns)?;
    staged::add_collations(session, &returned, &mut answer).await?;
    Ok(answer)
}
