//! Writes, and queries that lock rows, whose sub-selects are answered first.
//!
//! ```text
//!   refused where it stands ─► its queries, each by the ladder ─► rows ─► constants in the client's text ─► a write like any other
//! ```
//! The queries run as the session's own statements: on one shard, merged, or over gathered rows, with what the transaction has
//! written. Their answers are kept instead of sent, within a bound. Queries that take row locks run inside the transaction in which
//! the write runs; so does the whole where the client has begun one.
//!
//! The client's own text is described by the home shard before: what is wrong with it is PostgreSQL's to say.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant as Moment;

use super::batches::{Answered, Batches};
use super::left_out::unless_left_out;
use super::write::{Request, Shown, Writing, WritingKind, texts_of_rows};
use super::{batches, exact, merging, moved, staged_with, write};
use crate::backend::ShardText;
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::session::commands::permitted;
use crate::session::ddl::schema;
use crate::session::protocol::describe::Description;
use crate::session::protocol::diversion::StoredRows;
use crate::session::protocol::statement::Statement;
use crate::session::reads::scatter;
use crate::session::route::Route;
use crate::session::sequences::numbers;
use crate::session::transaction::instant::Instant;
use crate::session::writes;
use crate::session::{Failure, Session};
use crate::shard_key::oid;
use crate::shardmap::GroupId;
use crate::sql::Context;
use crate::sql::analysis::{Analysis, Command, Effect, Part, QueryKind, Splice};
use crate::sql::parse::lexer::Literals;
use crate::sql::residues::cover;
use crate::sql::rewrite::chosen::chosen;
use crate::sql::rewrite::clock;
use crate::sql::rewrite::clock_literals::clock_literals;
use crate::sql::rewrite::moving::moving;
use crate::sql::rewrite::staging::{
    Answer, AnswerColumn, Defaults, Stage, StageKind, Stages, is_under_with, spliced, stages, under_with,
};
use crate::wire::{self, FRAME_HEADER_BYTES, originate};

/// A write and what is answered before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Staging {
    pub stages: Stages,
    refusal: PgError,
}

impl Staging {
    /// Why the statement cannot run as it is.
    pub(in crate::session) fn refusal(&self) -> &PgError {
        &self.refusal
    }
}

/// A write whose text is all constants, and where it goes.
pub(in crate::session) struct Found {
    pub writing: Arc<Writing>,
    pub text: String,
}

/// The time of a statement in stages.
pub(in crate::session) struct Clock {
    instant: Instant,
    /// Its queries have it too.
    is_for_queries: bool,
}

/// How the client asked.
pub(in crate::session) enum Asked<'a> {
    /// In the simple protocol: the rows as the home shard described them.
    Text {
        rows: Option<&'a Bytes>,
    },
    /// By the session itself, which needs a description of the rows.
    Own,
    Bound {
        bind: &'a wire::Bind<'a>,
        description: &'a Description,
    },
}

impl<'a> Asked<'a> {
    /// The description that the client gets before any row.
    pub fn rows(&self) -> Option<&'a Bytes> {
        match self {
            Self::Text { rows } => *rows,
            Self::Own | Self::Bound { .. } => None,
        }
    }
}

/// A route for a write that was refused as it is, when it has queries that can be answered first; else the refusal. A key without
/// a mapping is an error only where these give a row with it.
pub(in crate::session) fn route_staged(
    session: &Session,
    refusal: Failure,
    statement: &Analysis,
    inputs: &Inputs<'_>,
) -> Result<Route, Failure> {
    let is_write = match statement.command {
        Command::Query(QueryKind::Insert | QueryKind::Update | QueryKind::Delete | QueryKind::Merge) => true,
        // Of a query what its WITH writes, or which rows it locks.
        Command::Query(QueryKind::Select) => statement.effect != Effect::Read,
        _ => false,
    };
    let refusal = match refusal {
        Failure::Error(error) if is_write && !session.staging.is_under_way && may_do_in_stages(&statement.command, error.code) => {
            error
        }
        other => return Err(other),
    };
    let alone = statement.alone(inputs.text());
    let stages = stages(alone, &session.context)?;
    let may_be_nothing = stages.unsplit.is_some() && refusal.code == SqlState::NO_SHARD_FOR_KEY;
    let kind = if may_be_nothing || !stages.is_empty() {
        WritingKind::Staged(Arc::new(Staging { stages, refusal }))
    } else if let (Command::Query(QueryKind::Update), Some(moving)) = (&statement.command, moving(alone, &session.context)?) {
        WritingKind::Moved(Arc::new(moving))
    } else {
        return Err(refusal.into());
    };
    Ok(Route::Write(Arc::new(Writing { reach: None, kind })))
}

/// An UPDATE of the shard key, where one shard owns all and partitions are being moved: a row that leaves them, or comes into them,
/// is copied as it is written, which an UPDATE does only in part. `None`: it is none, or has to stay one; the shard then refuses
/// what could not be copied.
pub(in crate::session) fn route_key_update(
    session: &Session,
    statement: &Analysis,
    parts: &[Part],
    inputs: &Inputs<'_>,
) -> Result<Option<Route>, Failure> {
    if session.staging.is_under_way || !matches!(statement.command, Command::Query(QueryKind::Update)) {
        return Ok(None);
    }
    let map = session.gateway.map.load();
    let is_moved = |group: &GroupId| map.group(*group).is_some_and(|group| group.has_residues);
    // What is assigned to the key.
    if !parts.iter().any(|part| matches!(part, Part::Sharded { group, stores: true, .. } if is_moved(group))) {
        return Ok(None);
    }
    let moving = moving(statement.alone(inputs.text()), &session.context)?;
    let kind = moving.map(|moving| WritingKind::Moved(Arc::new(moving)));
    Ok(kind.map(|kind| Route::Write(Arc::new(Writing { reach: None, kind }))))
}

/// Runs a statement of the simple protocol. Ends the transaction that it begins.
pub(in crate::session) async fn write_staged_text(
    session: &mut Session,
    staging: &Staging,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    let alone = statement.alone(text);
    let rows = described_rows(session, statement, text).await?;
    let begins_here = !session.transaction.is_open();
    let mut begun_early = false;
    if begins_here && staging.stages.needs_transaction {
        session.begin_one_statement();
        begun_early = true;
    }
    let run =
        Box::pin(run_staged(session, staging, alone, &Asked::Text { rows: rows.as_ref() }, begins_here && !begun_early)).await;
    let run = match run {
        Err(Failure::Shard(frame)) => Err(scatter::told_of_the_text(session, frame, statement, text).await),
        run => run,
    };
    let tag = session.end_one_statement(begins_here, run).await?;
    originate::command_complete(&mut session.client.output, &tag);
    Ok(())
}

/// Execute of a portal; the transaction is open. Returns the tag.
pub(in crate::session) async fn write_staged_bound(
    session: &mut Session,
    staging: &Staging,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<String, Failure> {
    let description = session.describe(statement).await?;
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement staged"))?;
    let asked = Asked::Bound { bind, description: &description };
    let mut bound = Staging { stages: staging.stages.clone(), refusal: staging.refusal.clone() };
    let queries: Vec<&str> = staging.stages.stages().map(|stage| stage.query.as_str()).collect();
    let queries = with_values_of(session, &asked, &queries).await?;
    bound.stages.stages_mut().zip(queries).for_each(|(stage, query)| stage.query = query);
    let alone = analysis.alone(statement.text());
    match Box::pin(run_staged(session, &bound, alone, &asked, false)).await {
        Err(Failure::Shard(frame)) => Err(scatter::told_of_the_text(session, frame, analysis, statement.text()).await),
        run => run,
    }
}

/// Queries with the values that Bind has given, as constants.
pub(in crate::session) async fn with_values_of(
    session: &mut Session,
    asked: &Asked<'_>,
    queries: &[&str],
) -> Result<Vec<String>, Failure> {
    let Asked::Bound { bind, description } = asked else { return Ok(queries.iter().copied().map(str::to_owned).collect()) };
    let texts = session.with_values(queries, bind, &description.parameter_types).await?;
    texts.ok_or_else(|| {
        PgError::unsupported(
            "a parameter of this type is not supported in this write across shards",
            "A part of the statement is run by itself, with the parameter's value as a constant.",
            "Pass the value as text.",
        )
        .into()
    })
}

/// The row description of a statement of the simple protocol, by the home shard.
pub(in crate::session) async fn described_rows(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
) -> Result<Option<Bytes>, Failure> {
    let prepared = session.prepare(statement.alone(text).as_bytes(), Box::default()).await?;
    match session.describe(&prepared).await {
        Ok(description) => Ok(description.rows.clone()),
        Err(Failure::Shard(frame)) => Err(scatter::told_of_the_text(session, frame, statement, text).await),
        Err(failure) => Err(failure),
    }
}

/// `begins`: a transaction for the write, once its queries are answered.
async fn run_staged(
    session: &mut Session,
    staging: &Staging,
    alone: &str,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    permitted::check_not_read_only(session, alone)?;
    exact::check_text_is_exact(session)?;
    session.staging.is_under_way = true;
    session.staging.planned_by = None;
    let run = Box::pin(run_stages(session, staging, alone, asked, begins)).await;
    session.staging.is_under_way = false;
    run
}

pub(in crate::session) async fn run_stages(
    session: &mut Session,
    staging: &Staging,
    alone: &str,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    let began_at = Moment::now();
    let clock = clock_of(session, &staging.stages).await?;
    let (with, mut kept_with) = Box::pin(staged_with::answer_with(session, &staging.stages, alone, clock.as_ref())).await?;
    if staging.stages.is_query {
        let mut splices = kept_with;
        answer_sub_selects(session, staging, &with, clock.as_ref(), &mut splices).await?;
        let answered = Box::pin(staged_with::answer_rest(session, &spliced(alone, &splices), asked)).await;
        return refused_if_about_the_text(answered, &staging.refusal);
    }
    if let Some(source) = &staging.stages.unsplit {
        let answer = answer_stage(session, source, &with, &staging.stages, clock.as_ref()).await?;
        return Box::pin(merging::merge_without_shard(session, (staging, source), &answer, alone, asked, begins)).await;
    }
    if let Some(merging) = &staging.stages.merging {
        let answer = answer_stage(session, &merging.source, &with, &staging.stages, clock.as_ref()).await?;
        let actions = Box::pin(merging::answer_actions(session, staging, &with, clock.as_ref())).await?;
        return Box::pin(merging::write_merging(session, (staging, merging, kept_with, actions), alone, &answer, asked, begins))
            .await;
    }
    let mut splices = match staging.stages.dropped {
        Some((start, end)) => vec![Splice { start, end, text: String::new() }],
        None => kept_with.clone(),
    };
    if let Some(defaults) = staging.stages.defaults.as_ref().filter(|defaults| !defaults.row_ends.is_empty()) {
        let values = default_values(session, defaults, defaults.row_ends.len(), clock.as_ref()).await?;
        put_defaults(defaults, &values.constants(&session.context.catalog)?, &mut splices);
    }
    for stage in &staging.stages.queries {
        let answered = Box::pin(batches::answer_source(session, stage, &with, &staging.stages, clock.as_ref())).await;
        match unless_left_out(&staging.stages, stage, answered) {
            Ok(Answered::Many(rows)) => {
                let (stages, refusal) = (&staging.stages, &staging.refusal);
                let batches = Batches { stage, stages, clock: clock.as_ref(), alone, others: &splices, refusal, began_at };
                return Box::pin(batches::write_batches(session, *rows, &batches, asked, begins)).await;
            }
            Ok(Answered::Whole(answer)) => match stage.constant(&answer, &session.context.catalog)? {
                Some(text) => splices.push(Splice { start: stage.start, end: stage.end, text }),
                None => {
                    permitted::check_privileges(session, alone, asked).await?;
                    put_description(session, asked.rows())?;
                    return Ok("INSERT 0 0".to_owned());
                }
            },
            // It names the outer statement's rows: it stays where it is, with what it may name of WITH.
            Err(Failure::Shard(frame)) if is_about_names(&frame) => {
                if !clock_literals(&stage.query, &session.context).is_ok_and(|literals| literals.is_empty()) {
                    return Err(staging.refusal.clone().into());
                }
                if let Some((start, end)) = staging.stages.dropped
                    && is_under_with(&with, &stage.query)
                {
                    splices.retain(|splice| (splice.start, splice.end) != (start, end));
                    splices.append(&mut kept_with);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    let is_insert = staging.stages.queries.iter().any(|stage| stage.kind == StageKind::Source);
    if is_insert {
        splices = with_names(&staging.stages, splices);
    }
    let mut text = spliced(alone, &splices);
    let mut found = Box::pin(find_write(session, &text, asked)).await;
    if matches!(&found, Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED)
        && !staging.stages.tables.is_empty()
        && !Box::pin(tells_tables_apart(session, &staging.stages, &with, clock.as_ref())).await?
    {
        for stage in &staging.stages.tables {
            let answer = answer_stage(session, stage, &with, &staging.stages, clock.as_ref()).await?;
            if let Some(text) = stage.constant(&answer, &session.context.catalog)? {
                splices.push(Splice { start: stage.start, end: stage.end, text });
            }
        }
        text = spliced(alone, &splices);
        found = Box::pin(find_write(session, &text, asked)).await;
    }
    let found = match found {
        Ok(found) => found,
        Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED && !is_insert => {
            tracing::debug!(%error, "refused after its sub-selects");
            return Box::pin(write_row_by_row(session, staging, &text, asked, begins)).await;
        }
        // Of an INSERT what is in the way of the rows is told, rather than of the query that they came from.
        Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED => {
            return Box::pin(staged_with::insert_apart(session, &text, error, asked, begins)).await;
        }
        Err(failure) => return Err(failure),
    };
    if begins {
        session.begin_one_statement();
    }
    if found.writing.shards().len() > 1 {
        session.check_commit_support(found.writing.shards()).await?;
    }
    let written = write_text_of(session, &found.writing, &found.text, asked).await;
    refused_if_about_the_text(written, &staging.refusal)
}

/// A write that cannot be planned with what was answered as constants. UPDATE and DELETE: its rows are moved, or found first and
/// written by their primary key. INSERT ... VALUES: what it returns is computed apart. Returns the tag.
async fn write_row_by_row(
    session: &mut Session,
    staging: &Staging,
    text: &str,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    if let Some(tag) = moved::move_staged(session, text, asked, begins).await? {
        return Ok(tag);
    }
    let Some(chosen) = chosen(text, &session.context)? else {
        return Box::pin(staged_with::insert_apart(session, text, staging.refusal.clone(), asked, begins)).await;
    };
    if begins {
        session.begin_one_statement();
    }
    match Box::pin(writes::chosen::write_chosen(session, &chosen, text, asked)).await {
        Err(Failure::Error(error)) if error.code == SqlState::FEATURE_NOT_SUPPORTED => {
            tracing::debug!(%error, "refused after its rows were chosen");
            Err(staging.refusal.clone().into())
        }
        written => refused_if_about_the_text(written, &staging.refusal),
    }
}

/// Constants for the sub-selects that stand by themselves; the others stay.
pub(in crate::session) async fn answer_sub_selects(
    session: &mut Session,
    staging: &Staging,
    with: &[(String, String)],
    clock: Option<&Clock>,
    splices: &mut Vec<Splice>,
) -> Result<(), Failure> {
    for stage in &staging.stages.queries {
        let answered = answer_stage(session, stage, with, &staging.stages, clock).await;
        match unless_left_out(&staging.stages, stage, answered) {
            Ok(answer) => {
                let text = stage.constant(&answer, &session.context.catalog)?;
                splices.extend(text.map(|text| Splice { start: stage.start, end: stage.end, text }));
            }
            // It names the rows around it.
            Err(Failure::Shard(frame)) if is_about_names(&frame) => {
                if !clock_literals(&stage.query, &session.context).is_ok_and(|literals| literals.is_empty()) {
                    return Err(staging.refusal.clone().into());
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// One instant for what the proxy puts into the statement, and for its queries where several of all these read the clock.
async fn clock_of(session: &mut Session, stages: &Stages) -> Result<Option<Clock>, Failure> {
    let is_put = |stage: &&Stage| stage.kind == StageKind::Value;
    let (values, queries): (Vec<&Stage>, Vec<&Stage>) = stages.stages().partition(is_put);
    let count = |stages: &[&Stage]| stages.iter().filter(|stage| clock::is_movable(&stage.query, Some(&session.context))).count();
    let put = count(&values) + usize::from(stages.defaults.as_ref().is_some_and(|it| clock::is_movable(&it.query(1), None)));
    let all = put + count(&queries);
    if put == 0 && all < 2 {
        return Ok(None);
    }
    let home = session.home()?.id;
    Ok(Some(Clock { instant: session.instant(&[home]).await?, is_for_queries: all > 1 }))
}

/// A query's rows, with what an INSERT leaves to defaults.
pub(in crate::session) async fn answer_stage(
    session: &mut Session,
    stage: &Stage,
    with: &[(String, String)],
    stages: &Stages,
    clock: Option<&Clock>,
) -> Result<Answer, Failure> {
    let query = query_of(session, stage, with, clock)?;
    if matches!(stage.kind, StageKind::Cte | StageKind::From { .. }) && tells_apart(session, stages, &query).await? {
        return Err(equals_told_apart().into());
    }
    let mut answer = answer_query(session, &query, &stage.kind).await?;
    if stage.kind == StageKind::Source {
        add_defaults(session, &mut answer, stages, clock).await?;
    }
    Ok(answer)
}

/// Conditions of the statement may tell apart what is equal, and the query shows one of several equal values: PostgreSQL
/// evaluates such conditions in the query.
async fn tells_apart(session: &mut Session, stages: &Stages, query: &str) -> Result<bool, Failure> {
    if !stages.tells_equals_apart {
        return Ok(false);
    }
    let prepared = checked_query(session, query).await?;
    Ok(prepared.analysis().is_some_and(|analysis| analysis.shows_one_of_equals))
}

/// The same of any table beside the target: none of them is answered then, and the rows are found by the whole statement.
async fn tells_tables_apart(
    session: &mut Session,
    stages: &Stages,
    with: &[(String, String)],
    clock: Option<&Clock>,
) -> Result<bool, Failure> {
    for stage in &stages.tables {
        let query = query_of(session, stage, with, clock)?;
        if tells_apart(session, stages, &query).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is run.
pub(in crate::session) fn query_of(
    session: &Session,
    stage: &Stage,
    with: &[(String, String)],
    clock: Option<&Clock>,
) -> Result<String, PgError> {
    let clock = clock.filter(|clock| clock.is_for_queries || stage.kind == StageKind::Value);
    under_with(with, &with_clock(&stage.query, Some(&session.context), clock))
}

/// What an INSERT leaves to defaults, after the values of its rows.
pub(in crate::session) async fn add_defaults(
    session: &mut Session,
    rows: &mut Answer,
    stages: &Stages,
    clock: Option<&Clock>,
) -> Result<(), Failure> {
    if let (Some(defaults), false) = (&stages.defaults, rows.rows.is_empty()) {
        rows.extend(&default_values(session, defaults, rows.rows.len(), clock).await?);
    }
    Ok(())
}

pub(in crate::session) async fn default_values(
    session: &mut Session,
    defaults: &Defaults,
    row_count: usize,
    clock: Option<&Clock>,
) -> Result<Answer, Failure> {
    answer_query(session, &with_clock(&defaults.query(row_count), None, clock), &StageKind::Source).await
}

/// Where the write goes now that its queries are constants. Its rows get their numbers first.
pub(in crate::session) async fn find_write(session: &mut Session, text: &str, asked: &Asked<'_>) -> Result<Found, Failure> {
    let read = schema::read_anew(session, text).await?;
    let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("a staged write is empty"))?;
    if numbers::draws(session, statement)
        && let Some(numbered) = Box::pin(numbers::draw(session, text)).await?
    {
        let text = numbered.text();
        let read = schema::read_anew(session, &text).await?;
        let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("a numbered write is empty"))?;
        return find_write_of(session, statement, text, &read.literals, asked).await;
    }
    find_write_of(session, statement, text.to_owned(), &read.literals, asked).await
}

async fn find_write_of(
    session: &mut Session,
    statement: &Analysis,
    text: String,
    literals: &Literals,
    asked: &Asked<'_>,
) -> Result<Found, Failure> {
    let inputs = match asked {
        Asked::Text { .. } | Asked::Own => Inputs::literals(&text, literals),
        Asked::Bound { bind, description } => Inputs::bound(&text, literals, bind, &description.parameter_types),
    };
    let route = session.route(statement, &inputs).await?;
    numbers::note_numbers_of(session, statement.numbers, &route);
    match route {
        Route::Shard(reach) => {
            let timed = Box::pin(session.made_text_with_time(&reach, statement, &text)).await?;
            let writing = Arc::new(Writing { reach: Some(reach), kind: WritingKind::Parts });
            Ok(Found { writing, text: timed.unwrap_or(text) })
        }
        Route::Write(writing) => Ok(Found { writing, text }),
        Route::Scatter(_) | Route::Gather(_) => Err(PgError::internal("a write is routed as a read").into()),
    }
}

pub(in crate::session) async fn write_text_of(
    session: &mut Session,
    writing: &Writing,
    text: &str,
    asked: &Asked<'_>,
) -> Result<String, Failure> {
    let texts = match &writing.kind {
        WritingKind::Rows(shard_of_row) => texts_of_rows(text, writing.shards().len(), shard_of_row).await?,
        WritingKind::Parts | WritingKind::Copies | WritingKind::LockedCopies(_) | WritingKind::Locks => {
            vec![text.to_owned(); writing.shards().len()]
        }
        WritingKind::Streamed { .. } | WritingKind::Staged(_) | WritingKind::Moved(_) => {
            return Err(PgError::internal("a staged write in stages").into());
        }
    };
    let is_kept = matches!(writing.kind, WritingKind::Rows(_));
    match asked {
        Asked::Text { rows } => {
            put_description(session, *rows)?;
            let shown = if is_kept { Shown::KeptRows } else { Shown::Rows };
            write::write_on(session, writing, &Request::Queries(&texts), shown).await
        }
        Asked::Own => {
            let shown = if is_kept { Shown::DescribedKeptRows } else { Shown::DescribedRows };
            write::write_on(session, writing, &Request::Queries(&texts), shown).await
        }
        Asked::Bound { bind, description } => {
            let shown = if is_kept { Shown::KeptRows } else { Shown::Rows };
            write::write_on(session, writing, &Request::Rows { texts: &texts, bind, description }, shown).await
        }
    }
}

pub(in crate::session) fn put_description(session: &mut Session, rows: Option<&Bytes>) -> Result<(), PgError> {
    if let Some(rows) = rows {
        let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
        originate::row_description(&mut session.client.output, &columns);
    }
    Ok(())
}

/// The columns of a query that is not run.
pub(in crate::session) async fn described_only(session: &mut Session, query: &str) -> Result<Answer, Failure> {
    let description = session.describe_aside(query.as_bytes()).await?;
    let columns = description.rows.map_or(Ok(Vec::new()), |rows| answer_columns(&rows))?;
    Ok(Answer { columns, rows: Vec::new() })
}

/// The rows of one query.
pub(in crate::session) async fn answer_query(session: &mut Session, query: &str, kind: &StageKind) -> Result<Answer, Failure> {
    let prepared = checked_query(session, query).await?;
    let kept = session.divert();
    let run = run_query(session, &prepared).await;
    let mut answer = session.diverted(kept, run)?;
    exact::check_types_are_exact(session, &answer.columns)?;
    if *kind != StageKind::Source {
        add_collations(session, query, &mut answer).await?;
    }
    Ok(answer)
}

/// The same of rows that may be more than memory holds.
pub(in crate::session) async fn answer_rows(session: &mut Session, query: &str) -> Result<StoredRows, Failure> {
    let prepared = checked_query(session, query).await?;
    let kept = session.divert_many()?;
    let run = run_query(session, &prepared).await;
    let rows = session.diverted_many(kept, run)?;
    exact::check_types_are_exact(session, &rows.columns)?;
    Ok(rows)
}

/// Whether it stands by itself is said by the home shard, before it runs anywhere.
async fn checked_query(session: &mut Session, query: &str) -> Result<Arc<Statement>, Failure> {
    let prepared = session.prepare(query.as_bytes(), Box::default()).await?;
    let analysis = prepared.analysis().filter(|analysis| matches!(analysis.command, Command::Query(QueryKind::Select)));
    analysis.filter(|analysis| analysis.effect != Effect::Write).ok_or_else(not_answered)?;
    describe_alone(session, &prepared).await?;
    Ok(prepared)
}

async fn describe_alone(session: &mut Session, prepared: &Arc<Statement>) -> Result<(), Failure> {
    // In a transaction a mistake would end it on the home shard.
    if session.transaction.is_open() {
        let text = Bytes::clone(&prepared.key.text);
        return session.describe_aside(&text).await.map(drop);
    }
    session.describe(prepared).await.map(drop)
}

async fn run_query(session: &mut Session, prepared: &Arc<Statement>) -> Result<(), Failure> {
    let analysis = prepared.analysis().ok_or_else(not_answered)?;
    let inputs = Inputs::literals(prepared.text(), &prepared.literals);
    let route = session.route(analysis, &inputs).await?;
    match session.counted(Ok(route))? {
        Route::Shard(reach) => session.run_on_shard(&reach, analysis, prepared.text()).await,
        route => Box::pin(scatter::run_by_route(session, route, analysis, prepared.text(), &inputs)).await,
    }
}

/// Text compares and sorts by the collation of the column that it comes from. Where all collations are the database's there is
/// nothing to know.
pub(in crate::session) async fn add_collations(session: &mut Session, query: &str, answer: &mut Answer) -> Result<(), Failure> {
    let relations = &session.context.catalog.relations;
    let is_other =
        |collation: &str| !collation.ends_with("\"default\"") && !collation.ends_with(".default") && collation != "default";
    let has_others =
        relations.values().any(|relation| relation.columns.iter().any(|column| column.collation.as_deref().is_some_and(is_other)));
    let places: Vec<usize> =
        answer.columns.iter().enumerate().filter(|(_, column)| TEXTS.contains(&column.type_oid)).map(|(place, _)| place).collect();
    // Those of temporary tables are not known.
    if !(has_others || session.temporary_tables.are_there()) || places.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = (0..answer.columns.len()).map(|place| format!("c{place}")).collect();
    let asked: Vec<String> = places.iter().map(|place| format!("pg_catalog.pg_collation_for(s.c{place})")).collect();
    let query = query.trim_end().trim_end_matches(';');
    let sql = format!("SELECT {} FROM (VALUES (1)) v LEFT JOIN ({query}\n) s ({}) ON false", asked.join(", "), names.join(", "));
    let mut aside = session.open_aside().await?;
    let covered = cover(sql, &session.context, session.gateway.map.load().snapshot())?;
    let found = session.connection_of(&mut aside)?.simple(&ShardText::covered(&covered)).await;
    session.close_aside(aside).await?;
    let rows = found.map_err(|error| {
        tracing::debug!(%error, "collations of a sub-select not found");
        PgError::unsupported(
            "a sub-select of text is not supported here across shards",
            "By which collation its text is compared could not be found out.",
            "Write its rows as constants.",
        )
    })?;
    let row = rows.into_iter().next().unwrap_or_default();
    for (place, collation) in places.into_iter().zip(row) {
        let collation = collation.map(|name| String::from_utf8_lossy(&name).into_owned());
        if let Some(column) = answer.columns.get_mut(place) {
            column.collation = collation.filter(|name| is_other(name));
        }
    }
    Ok(())
}

/// What its queries give may be supported, or may be no rows.
fn may_do_in_stages(command: &Command, code: SqlState) -> bool {
    let stores_what_they_give = matches!(command, Command::Query(QueryKind::Insert | QueryKind::Merge));
    code == SqlState::FEATURE_NOT_SUPPORTED || (stores_what_they_give && code == SqlState::NO_SHARD_FOR_KEY)
}

/// By the body of a RowDescription.
pub(in crate::session) fn answer_columns(body: &[u8]) -> Result<Vec<AnswerColumn>, PgError> {
    let column = |column: wire::FieldDescription| AnswerColumn {
        name: String::from_utf8_lossy(&column.name).into_owned(),
        type_oid: column.type_oid,
        collation: None,
    };
    let columns = wire::row_description(body).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    Ok(columns.into_iter().map(column).collect())
}

/// The columns in the list, their values in each row of VALUES.
pub(in crate::session) fn put_defaults(defaults: &Defaults, values: &[Vec<String>], splices: &mut Vec<Splice>) {
    splices.push(defaults.names_put());
    for (end, values) in defaults.row_ends.iter().zip(values.iter().cycle()) {
        splices.push(Splice { start: *end, end: *end, text: format!(", {}", values.join(", ")) });
    }
}

/// The same for the rows of a query, which have their values.
pub(in crate::session) fn with_names(stages: &Stages, mut splices: Vec<Splice>) -> Vec<Splice> {
    // Before what stands at the same place.
    splices.splice(0..0, stages.defaults.as_ref().map(Defaults::names_put));
    splices
}

/// `context`: of a text of the client's.
fn with_clock(query: &str, context: Option<&Context>, clock: Option<&Clock>) -> String {
    clock.and_then(|clock| clock.instant.fixed(query, context)).unwrap_or_else(|| query.to_owned())
}

pub(in crate::session) fn is_about_names(frame: &[u8]) -> bool {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    // Undefined column, undefined table: what PostgreSQL says of a column of the outer statement.
    wire::error_fields(body).is_ok_and(|fields| matches!(fields.sqlstate(), Some(b"42703" | b"42P01")))
}

/// The client's own text is right: what a shard finds wrong is what was made of it.
pub(in crate::session) fn refused_if_about_the_text<T>(answered: Result<T, Failure>, refusal: &PgError) -> Result<T, Failure> {
    match answered {
        Err(Failure::Shard(frame)) if is_about_the_text(&frame) => Err(refusal.clone().into()),
        answered => answered,
    }
}

/// A mistake in the statement itself, of whatever kind but rights.
fn is_about_the_text(frame: &[u8]) -> bool {
    sqlstate(frame).is_some_and(|sqlstate| sqlstate.0.starts_with(b"42") && sqlstate != SqlState::INSUFFICIENT_PRIVILEGE)
}

/// Of an ErrorResponse.
pub(in crate::session) fn sqlstate(frame: &[u8]) -> Option<SqlState> {
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    wire::error_fields(body).ok()?.sqlstate()?.try_into().ok().map(SqlState)
}

/// The values of a DataRow.
pub(in crate::session) fn row_of(body: &[u8]) -> Result<Vec<Option<String>>, PgError> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| PgError::internal("a row that is not UTF-8"));
    let broken = |error: wire::DecodeError| PgError::internal(format!("a diverted answer: {error}"));
    wire::data_row_columns(body).map(|column| column.map_err(broken)?.map(text).transpose()).collect()
}

fn equals_told_apart() -> PgError {
    PgError::unsupported(
        "this condition on equal values is not supported in a write over several shards",
        "A query of the statement shows one of several values that are equal and do not look alike, as 1.0 and 1.00 do, and a condition outside of it may tell them apart.",
        "Put the condition into the query that groups, or compare by =.",
    )
}

fn not_answered() -> PgError {
    PgError::unsupported(
        "a sub-select that writes is not supported across shards",
        "It is run by itself, before the statement that it is part of.",
        "Run the parts of the statement one after the other.",
    )
}

const TEXTS: [u32; 4] = [oid::NAME, oid::TEXT, oid::VARCHAR, oid::BPCHAR];
