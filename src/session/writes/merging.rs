//! MERGE into a sharded table whose source was answered first: each shard gets the rows whose keys are its own.
//!
//! That each shard may merge its part is proven with a stand-in for the source, of rows that are sharded like the target by the
//! columns that the rows are split by: what makes a MERGE of such a source wrong over several shards makes this one wrong.
//! A row without a key matches nothing; one shard has it, so that it fails, or is left out, once. So it is with a row whose key has no
//! shard, which may do nothing at all: that shard merges it before all others, and says how many rows it has changed. Where ON names
//! the key without the source, all rows are such ones.

use super::staged::{Asked, Clock, Staging, put_defaults};
use super::write::{Request, Shown, Writing, WritingKind};
use super::{staged, write};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Reach};
use crate::session::commands::permitted;
use crate::session::ddl::schema;
use crate::session::route::Route;
use crate::session::sequences::numbers;
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Part, Scope, Splice};
use crate::sql::parse::lexer::Literal;
use crate::sql::rewrite::staging::{Answer, Merging, Stage, is_under_with, spliced};

/// The places of the source's rows.
#[derive(Default)]
struct SplitSource {
    of_shards: Vec<(ShardId, Vec<usize>)>,
    /// Their keys have no shard, of which this says one.
    unmapped: Option<(PgError, Vec<usize>)>,
}

impl SplitSource {
    fn put(&mut self, shard: ShardId, place: usize) {
        match self.of_shards.iter_mut().find(|(known, _)| *known == shard) {
            Some((_, places)) => places.push(place),
            None => self.of_shards.push((shard, vec![place])),
        }
    }

    fn put_unmapped(&mut self, refusal: PgError, place: usize) {
        self.unmapped.get_or_insert_with(|| (refusal, Vec::new())).1.push(place);
    }
}

/// What its condition and actions evaluate once, as constants. A sub-select that names the rows stays where it is.
pub(in crate::session) async fn answer_actions(
    session: &mut Session,
    staging: &Staging,
    with: &[(String, String)],
    clock: Option<&Clock>,
) -> Result<Vec<Splice>, Failure> {
    let mut splices = Vec::new();
    if let Some(defaults) = &staging.stages.defaults {
        let values = staged::default_values(session, defaults, 1, clock).await?;
        put_defaults(defaults, &values.constants(&session.context.catalog)?, &mut splices);
    }
    staged::answer_sub_selects(session, staging, with, clock, &mut splices).await?;
    Ok(splices)
}

/// `answer`: the source's rows. `with`: the queries of WITH as constants; `actions`: what [`answer_actions`] has found.
/// Returns the tag.
pub(in crate::session) async fn write_merging(
    session: &mut Session,
    (staging, merging, with, actions): (&Staging, &Merging, Vec<Splice>, Vec<Splice>),
    alone: &str,
    answer: &Answer,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    let source = &merging.source;
    let dropped: Vec<Splice> =
        staging.stages.dropped.iter().map(|(start, end)| Splice { start: *start, end: *end, text: String::new() }).collect();
    let around = |with: &[Splice], text: String| {
        spliced(alone, &[with, &actions, &[Splice { start: source.start, end: source.end, text }]].concat())
    };
    let names: Vec<(String, String)> = staging.stages.ctes.iter().map(|cte| (cte.name.clone(), String::new())).collect();
    // A sub-select that is not the source would find a table of that name.
    let is_named = is_under_with(&names, &around(&dropped, String::new()));
    let with = if is_named { with } else { dropped };
    let with_source = |text: String| around(&with, text);
    prove_merging(session, staging, &with_source(merging.stand_in(answer, &session.context.catalog)?), asked).await?;
    let SplitSource { of_shards, unmapped } = split_source(session, merging, answer).await?;
    let first = match of_shards.first() {
        Some((first, _)) => *first,
        None => session.home()?.id,
    };
    let catalog = &session.context.catalog;
    let text_of = |places: &[usize]| {
        let rows = places.iter().filter_map(|place| answer.rows.get(*place).cloned()).collect();
        let part = Answer { columns: answer.columns.clone(), rows };
        Ok::<_, PgError>(with_source(merging.constant(&part, catalog)?))
    };
    let unmapped = unmapped.map(|(refusal, places)| Ok::<_, PgError>((refusal, text_of(&places)?))).transpose()?;
    let texts = of_shards.iter().map(|(_, places)| text_of(places)).collect::<Result<Vec<_>, _>>()?;
    let shards: Vec<ShardId> = of_shards.into_iter().map(|(shard, _)| shard).collect();
    if shards.is_empty() && unmapped.is_none() {
        permitted::check_privileges(session, alone, asked).await?;
        return Ok(NOTHING_MERGED.to_owned());
    }
    if begins {
        session.begin_one_statement();
    }
    if shards.len() > 1 {
        session.check_commit_support(&shards).await?;
    }
    if let Some((refusal, text)) = unmapped {
        merge_nothing(session, first, text, refusal, asked).await?;
    }
    match shards.is_empty() {
        true => Ok(NOTHING_MERGED.to_owned()),
        false => merge_on(session, shards, &texts, asked).await,
    }
}

/// Each text on its shard. Returns the tag.
async fn merge_on(session: &mut Session, shards: Vec<ShardId>, texts: &[String], asked: &Asked<'_>) -> Result<String, Failure> {
    let reach = Reach::several(shards, session.gateway.map.load().snapshot());
    let writing = Writing { reach, kind: WritingKind::Parts };
    let request = match asked {
        Asked::Text { .. } | Asked::Own => Request::Queries(texts),
        Asked::Bound { bind, description } => Request::Rows { texts, bind, description },
    };
    write::write_on(session, &writing, &request, Shown::Nothing).await
}

/// Rows that match nothing, as their keys have no shard: right if nothing is done with them. Otherwise what the shard has done is
/// undone with the statement.
async fn merge_nothing(
    session: &mut Session,
    shard: ShardId,
    text: String,
    refusal: PgError,
    asked: &Asked<'_>,
) -> Result<(), Failure> {
    match merge_on(session, vec![shard], &[text], asked).await?.as_str() {
        NOTHING_MERGED => Ok(()),
        _ => Err(refusal.into()),
    }
}

/// The key that all rows would be merged into has no shard: right if there are none, or nothing is done with them.
pub(in crate::session) async fn merge_without_shard(
    session: &mut Session,
    (staging, source): (&Staging, &Stage),
    answer: &Answer,
    alone: &str,
    asked: &Asked<'_>,
    begins: bool,
) -> Result<String, Failure> {
    if answer.rows.is_empty() {
        permitted::check_privileges(session, alone, asked).await?;
        return Ok(NOTHING_MERGED.to_owned());
    }
    let refusal = || staging.refusal().clone();
    let text = source.constant(answer, &session.context.catalog)?.ok_or_else(refusal)?;
    let text = spliced(alone, &[Splice { start: source.start, end: source.end, text }]);
    let shard = Box::pin(shard_of_matched(session, &text, asked)).await?.ok_or_else(refusal)?;
    if begins {
        session.begin_one_statement();
    }
    merge_nothing(session, shard, text, refusal(), asked).await?;
    Ok(NOTHING_MERGED.to_owned())
}

/// The shard that has all rows of the target that ON may match, if one has them.
async fn shard_of_matched(session: &mut Session, text: &str, asked: &Asked<'_>) -> Result<Option<ShardId>, Failure> {
    let read = schema::read_anew(session, text).await?;
    let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("a staged MERGE is empty"))?;
    let mut matched = statement.clone();
    let Scope::Placed { parts, .. } = &mut matched.scope else { return Ok(None) };
    parts.retain(|part| !matches!(part, Part::Sharded { stores: true, .. }));
    match session.route(&matched, &inputs_of(text, &read.literals, asked)).await {
        Ok(route) => Ok(route.shard()),
        Err(Failure::Error(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn prove_merging(session: &mut Session, staging: &Staging, text: &str, asked: &Asked<'_>) -> Result<(), Failure> {
    let read = schema::read_anew(session, text).await?;
    let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("a staged MERGE is empty"))?;
    match session.route(statement, &inputs_of(text, &read.literals, asked)).await? {
        route @ Route::Write(_) if !numbers::draws(session, statement) => {
            numbers::note_numbers_of(session, statement.numbers, &route);
            Ok(())
        }
        // Where one shard has all of the target's keys nothing is proven of several.
        Route::Write(_) | Route::Shard(_) | Route::Scatter(_) | Route::Gather(_) => Err(staging.refusal().clone().into()),
    }
}

/// The rows, by the shards that merge them.
async fn split_source(session: &mut Session, merging: &Merging, answer: &Answer) -> Result<SplitSource, Failure> {
    let (rows, texts) = merging.routed(answer, &session.context.catalog)?;
    let mut split = SplitSource::default();
    let mut waiting = rows.iter();
    for text in &texts {
        let read = schema::read_anew(session, text).await?;
        let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("rows without a statement"))?;
        let shards = shards_of_rows(session, statement, &Inputs::literals(text, &read.literals)).await?;
        for (shard, place) in shards.into_iter().zip(waiting.by_ref()) {
            match shard {
                Ok(shard) => split.put(shard, *place),
                Err(refusal) => split.put_unmapped(refusal, *place),
            }
        }
    }
    let without_key = (0..answer.rows.len()).filter(|place| rows.binary_search(place).is_err()).collect::<Vec<_>>();
    if !without_key.is_empty() {
        match split.of_shards.first_mut() {
            Some((_, places)) => places.extend(without_key),
            None => split.of_shards.push((session.home()?.id, without_key)),
        }
    }
    Ok(split)
}

/// For each row its shard, or what is said of a key that has none. All are looked up together unless there is such a key.
async fn shards_of_rows(
    session: &mut Session,
    statement: &Analysis,
    inputs: &Inputs<'_>,
) -> Result<Vec<Result<ShardId, PgError>>, Failure> {
    match session.route_rows(statement, inputs).await {
        Ok(route) => {
            let (shards, places) = rows_of(&route).ok_or_else(|| PgError::internal("rows are not routed as rows"))?;
            let shard = |place: &usize| shards.get(*place).copied().map(Ok);
            let shards = places.iter().map(shard).collect::<Option<_>>();
            Ok(shards.ok_or_else(|| PgError::internal("a row without a shard"))?)
        }
        Err(Failure::Error(error)) if error.code == SqlState::NO_SHARD_FOR_KEY => {
            let rows = statement.split_rows.as_deref().unwrap_or_default();
            if rows.len() < 2 {
                return Ok(vec![Err(error)]);
            }
            let mut shards = Vec::with_capacity(rows.len());
            for row in rows {
                let alone = Analysis { split_rows: Some([row.clone()].into()), ..statement.clone() };
                shards.extend(Box::pin(shards_of_rows(session, &alone, inputs)).await?);
            }
            Ok(shards)
        }
        Err(failure) => Err(failure),
    }
}

fn inputs_of<'a>(text: &'a str, literals: &'a [Literal], asked: &Asked<'a>) -> Inputs<'a> {
    match asked {
        Asked::Text { .. } | Asked::Own => Inputs::literals(text, literals),
        Asked::Bound { bind, description } => Inputs::bound(text, literals, bind, &description.parameter_types),
    }
}

/// The shards of rows, and for each row the place of its own.
fn rows_of(route: &Route) -> Option<(&[ShardId], &[usize])> {
    let Route::Write(writing) = route else { return None };
    match &writing.kind {
        WritingKind::Rows(shard_of_row) => Some((writing.shards(), shard_of_row)),
        _ => None,
    }
}

const NOTHING_MERGED: &str = "MERGE 0";
