//! Statements that PostgreSQL computes over gathered rows: connections, limits, and what their errors mean to the client.
//!
//! The scratch session has a connection of its own, never the transaction's: a connection that has touched a temporary table
//! cannot prepare a commit. So have the shards' fragments, but where the transaction has written, or has a snapshot: only its own
//! connection sees that. The rows of the client's temporary tables come from the session's connection that has them. Connections go
//! back to their pools when their part is over; on an error those that are in the middle of something are cancelled, and closed
//! unless they are the session's own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::scatter::{is_data_error, of_moving_rows, with_shard_named};
use super::staying;
use crate::backend::{CANCEL_TIMEOUT, Checkout, Pooled, STATEMENT_TIMEOUT};
use crate::error::{PgError, SqlState};
use crate::execute::gather::{
    self, Final, Fragments, GatherError, Loaded, Opening, Part, RIGHTS_OFFSET, Script, Sent, Side, Stage,
};
use crate::plan::{self, Gathering};
use crate::routing::{Parameter, Reach};
use crate::session::commands::temporary;
use crate::session::protocol::parameter;
use crate::session::protocol::statement::Statement;
use crate::session::transaction::participant::Participant;
use crate::session::writes::exact;
use crate::session::{Failure, Session, SessionEnd, lost};
use crate::shard_key::Format;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Splice};
use crate::sql::gather::{KnownKeys, Recipe, Source, recipe};
use crate::sql::residues::cover;
use crate::sql::rewrite::clock;
use crate::sql::rewrite::staging::Answer;
use crate::wire::{self, FieldDescription};

/// The client's statement as it is to be answered.
#[derive(Clone, Copy)]
struct Asked<'a> {
    gathering: &'a Gathering,
    /// The statement alone.
    text: &'a str,
    /// Characters of the client's text before it.
    lead: usize,
    bind: &'a wire::Bind<'a>,
    /// The simple protocol.
    describes: bool,
    then: Then<'a>,
}

/// What becomes of the rows when they are loaded.
#[derive(Clone, Copy)]
enum Then<'a> {
    /// The statement runs, and its rows go to the client.
    Answer,
    /// The scratch session keeps them for a cursor or portal.
    Keep(Opening<'a>),
    /// EXPLAIN ANALYZE, by these words before the statement. What it answers is told as this column.
    Explain(&'a str, &'a FieldDescription),
}

/// What became of a gathering.
struct Gathered {
    /// The scratch session, where it is kept.
    kept: Option<Pooled>,
    fragments: Vec<FragmentRun>,
}

/// What one shard has sent for one input.
#[derive(Clone, Debug)]
pub(in crate::session) struct FragmentRun {
    pub shard: String,
    pub sql: String,
    pub sent: Sent,
}

/// The connections of one gathering.
struct Hands {
    scratch: Pooled,
    script: Script,
    /// What the parts run.
    outside: Fragments,
    /// With the names of their shards.
    parts: Vec<(String, Pooled)>,
    own: Vec<Own>,
}

/// A shard whose rows come from the session's own connection, since its transaction has written there or its temporary tables are
/// there.
struct Own {
    shard: ShardId,
    name: String,
    fragments: Fragments,
}

/// A statement of the simple protocol.
pub(in crate::session) async fn gather_text(
    session: &mut Session,
    gathering: &Gathering,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    let alone = statement.alone(text);
    let lead = text.get(..statement.start).map_or(0, |before| before.chars().count());
    let prepared = session.prepare(alone.as_bytes(), Box::default()).await?;
    // An empty portal, an empty statement name, no parameters, results in text.
    let bind = wire::bind(BIND).map_err(|error| PgError::internal(error.to_string()))?;
    let asked = Asked { gathering, text: alone, lead, bind: &bind, describes: true, then: Then::Answer };
    Box::pin(gather(session, &prepared, asked)).await.map(drop)
}

/// EXPLAIN ANALYZE: what each shard has sent, and what PostgreSQL says of the rest. `explain`: what stands before the
/// statement. `values`: types and values of parameters.
pub(in crate::session) async fn gather_explained(
    session: &mut Session,
    gathering: &Gathering,
    (statement, text): (&Analysis, &str),
    (explain, field): (&str, &FieldDescription),
    values: Option<(&[u32], &[u8])>,
) -> Result<(Vec<FragmentRun>, Answer), Failure> {
    let alone = statement.alone(text);
    let lead = text.get(..statement.start).map_or(0, |before| before.chars().count());
    let (types, after_names) = values.unwrap_or((&[], &BIND[NAMES_BYTES..]));
    let prepared = session.prepare(alone.as_bytes(), types.into()).await?;
    let body = [&BIND[..NAMES_BYTES], after_names].concat();
    let bind = wire::bind(&body).map_err(|error| PgError::internal(error.to_string()))?;
    let asked = Asked { gathering, text: alone, lead, bind: &bind, describes: true, then: Then::Explain(explain, field) };
    let kept = session.divert();
    let (run, fragments) = match gather_all(session, &prepared, asked).await {
        Ok(gathered) => (Ok(()), gathered.fragments),
        Err(failure) => (Err(failure), Vec::new()),
    };
    Ok((fragments, session.diverted(kept, run)?))
}

/// Brings the rows together for a cursor: the scratch session, in its transaction, with the cursor open.
pub(in crate::session) async fn gather_for_cursor(
    session: &mut Session,
    statement: &Arc<Statement>,
    gathering: &Gathering,
    bind: &wire::Bind<'_>,
    opening: Opening<'_>,
) -> Result<Pooled, Failure> {
    let kept = gather_prepared(session, statement, gathering, bind, false, Then::Keep(opening)).await?;
    kept.ok_or_else(|| PgError::internal("the scratch session was not kept").into())
}

fn gathering(session: &Session, statement: &Analysis, text: &str, reach: Reach) -> Result<Gathering, PgError> {
    let recipe = |home| recipe(statement.alone(text), &session.context, session.temporary_tables.shapes(), home);
    plan::gather(reach, &session.transaction_scope(), recipe)
}

/// Execute of a portal, or what asks like one. `describes`: in the simple protocol.
pub(in crate::session) async fn gather_bound(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    gathering: &Gathering,
    describes: bool,
) -> Result<(), Failure> {
    gather_prepared(session, statement, gathering, bind, describes, Then::Answer).await.map(drop)
}

async fn gather_prepared(
    session: &mut Session,
    statement: &Arc<Statement>,
    gathering: &Gathering,
    bind: &wire::Bind<'_>,
    describes: bool,
    then: Then<'_>,
) -> Result<Option<Pooled>, Failure> {
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement gathered"))?;
    // What the transaction has done since Bind counts too.
    let is_open = session.transaction_scope().is_open;
    if is_open {
        temporary::learn_temporary_tables(session, analysis).await?;
    }
    let renewed = is_open.then(|| self::gathering(session, analysis, statement.text(), gathering.reach.clone())).transpose()?;
    let gathering = renewed.as_ref().unwrap_or(gathering);
    let text = analysis.alone(statement.text());
    let lead = statement.text().get(..analysis.start).map_or(0, |before| before.chars().count());
    Box::pin(gather(session, statement, Asked { gathering, text, lead, bind, describes, then })).await
}

/// The scratch session, where it is kept.
async fn gather(session: &mut Session, statement: &Arc<Statement>, asked: Asked<'_>) -> Result<Option<Pooled>, Failure> {
    Box::pin(gather_all(session, statement, asked)).await.map(|gathered| gathered.kept)
}

async fn gather_all(session: &mut Session, statement: &Arc<Statement>, asked: Asked<'_>) -> Result<Gathered, Failure> {
    let description = match session.describe(statement).await {
        Ok(description) => description,
        Err(Failure::Shard(frame)) => return Err(Failure::Shard(moved(&frame, |position| position + asked.lead))),
        Err(failure) => return Err(failure),
    };
    let rows = description.rows.as_deref().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    let columns = match asked.then {
        Then::Explain(_, field) => vec![field.clone()],
        Then::Answer | Then::Keep(_) => columns,
    };
    let types = &description.parameter_types;
    let catalog = Arc::clone(&session.context.catalog);
    let value = |number: u16, wanted: Option<u32>| {
        let index = usize::from(number).checked_sub(1)?;
        let (format, value) = asked.bind.parameter(index)?;
        let own = *types.get(index)?;
        match wanted {
            None => parameter::as_sql(own, format, value),
            Some(wanted) => parameter::as_constant(own, format, value, &catalog).filter(|_| own == wanted),
        }
    };
    let bound = |recipe: &Recipe| {
        let inputs = recipe.inputs.iter().map(|input| input.bound(&value)).collect::<Option<_>>()?;
        Some(Gathering { recipe: Recipe { inputs, ..recipe.clone() }, reach: asked.gathering.reach.clone() })
    };
    let recipe = &asked.gathering.recipe;
    if matches!(asked.then, Then::Answer | Then::Explain(..))
        && let Some(recipe) = Box::pin(staying::staying(session, asked.gathering, asked.text, &value)).await?
    {
        let gathering = Gathering { recipe, reach: asked.gathering.reach.clone() };
        match Box::pin(gather_as(session, &description.parameter_types, &columns, Asked { gathering: &gathering, ..asked })).await {
            Err(Failed { is_of_load: true, .. }) => {
                tracing::debug!("no input stays on its shards");
                session.staging.not_staying.note(asked.text);
            }
            run => return run.map_err(|failed| failed.failure),
        }
    }
    if recipe.plain.is_some()
        && computes_in_transport(session)
        && let Some(gathering) = bound(recipe)
    {
        match Box::pin(gather_as(session, &description.parameter_types, &columns, Asked { gathering: &gathering, ..asked })).await {
            Err(Failed { is_of_load: true, .. }) => tracing::debug!("sub-selects not computed on the shards"),
            run => return run.map_err(|failed| failed.failure),
        }
    }
    let plain = recipe.plain.as_deref().unwrap_or(recipe);
    let gathering = bound(plain).ok_or_else(|| PgError::internal("a table's rows with parameters"))?;
    let run = Box::pin(gather_as(session, &description.parameter_types, &columns, Asked { gathering: &gathering, ..asked })).await;
    run.map_err(|failed| failed.failure)
}

/// Values are computed under the settings of transport as they are under the client's own.
pub(in crate::session) fn computes_in_transport(session: &Session) -> bool {
    let is = |name: &str, wanted: &[&str]| {
        session.effective(name).is_none_or(|value| wanted.iter().any(|wanted| value.eq_ignore_ascii_case(wanted)))
    };
    let is_iso = session.effective("datestyle").is_none_or(|value| value.to_ascii_lowercase().starts_with("iso"));
    is_iso
        && is("extra_float_digits", &["1", "2", "3"])
        && is("bytea_output", &["hex"])
        && is("xmloption", &["content"])
        && exact::check_text_is_exact(session).is_ok()
}

/// Runs one recipe. `types`: of the parameters; `columns`: of the answer.
async fn gather_as(
    session: &mut Session,
    types: &[u32],
    columns: &[FieldDescription],
    asked: Asked<'_>,
) -> Result<Gathered, Failed> {
    let home = session.home().map_err(Failure::from)?.id;
    let mut gathering = asked.gathering.clone();
    let mut instant = None;
    if session.transaction.is_open() && gathering.recipe.has_clock {
        // A transaction of its own has a time of its own.
        instant = Some(session.instant(gathering.reach.shards()).await?);
        let replaced = clock::replaced(&gathering.recipe.text, Some(&session.context)).map_err(Failure::from)?;
        gathering.recipe.set_text(replaced, asked.text.len());
    }
    let asked = Asked { gathering: &gathering, ..asked };
    let recipe = &gathering.recipe;
    let final_text = match asked.then {
        Then::Explain(explain, _) => format!("{explain}{}", recipe.text),
        Then::Answer | Then::Keep(_) => recipe.text.clone(),
    };
    let context = Arc::clone(&session.context);
    let final_text = cover(final_text, &context, gathering.reach.map()).map_err(Failure::from)?;
    let mut statement = Final {
        client_text: asked.text,
        map: gathering.reach.map(),
        context: &context,
        text: &final_text,
        types,
        after_names: asked.bind.after_names,
        result_formats: asked.bind.result_formats,
        columns,
        describes: asked.describes,
        is_renamed: recipe.is_renamed,
        is_permitted: false,
    };
    let has_begun = session.transaction.participants().iter().any(|participant| participant.shard == home && participant.has_begun);
    if has_begun || recipe.reads(Source::Temporary) {
        check_rights_in_transaction(session, home, &statement, &asked).await?;
        statement.is_permitted = true;
    }
    let mut hands = take_connections(session, &gathering).await?;
    if let Some(instant) = &instant {
        hands.script.finish.insert_str(0, &format!("{};", instant.sql(true)));
    }
    let names: Vec<String> =
        hands.parts.iter().map(|(name, _)| name).chain(hands.own.iter().map(|own| &own.name)).cloned().collect();
    // Those of the transaction may be asked at once, without keys.
    let outside = hands.parts.iter().map(|_| true);
    let waits: Vec<bool> = outside.chain(hands.own.iter().map(|own| own.fragments.is_begun_only)).collect();
    let mut loaded = None;
    let run = Box::pin(run_gathering(session, &mut hands, recipe, &statement, asked.then, &mut loaded)).await;
    let failed = run.map_err(|error| {
        let is_of_load = loaded.is_none() && is_of_the_recipe(&error);
        Failed { failure: gather_failure(session, error, &hands, &asked), is_of_load }
    });
    let failed = match failed.err() {
        Some(failed) => Some(stop_own(session, &hands).await.err().map_or(failed, Failed::from)),
        None => None,
    };
    let home = hands.scratch.pool().address.name.clone();
    let Loaded { fragments, keys, .. } = loaded.unwrap_or_default();
    let fragments = fragments.iter().filter_map(|((input, side), sent)| {
        let input = recipe.inputs.get(*input)?;
        let (shard, has_keys) = match side {
            Side::Scratch => (home.clone(), true),
            Side::Part(index) => (names.get(*index)?.clone(), waits.get(*index) == Some(&true)),
        };
        let sql = if has_keys { input.shown_as(&keys) } else { input.shown_as(&KnownKeys::new()) };
        Some(FragmentRun { shard, sql, sent: *sent })
    });
    let fragments = fragments.collect();
    if let (None, Then::Keep(_)) = (&failed, asked.then) {
        session.cancel.ended(&hands.scratch);
        return Ok(Gathered { kept: Some(hands.scratch), fragments });
    }
    Box::pin(give_back(session, hands, failed.is_none())).await;
    failed.map_or(Ok(Gathered { kept: None, fragments }), Err)
}

/// On the session's own connection to the home shard, whose transaction may hold locks that others would wait for, or which alone
/// has the temporary tables.
async fn check_rights_in_transaction(
    session: &mut Session,
    home: ShardId,
    statement: &Final<'_>,
    asked: &Asked<'_>,
) -> Result<(), Failure> {
    let index = session.join(home).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    match gather::check_rights::<Ended>(&mut participant.connection, statement).await {
        Ok(()) => Ok(()),
        Err(GatherError::Shard { side, stage, frame }) => Err(refused(side, stage, &frame, "", asked)),
        Err(GatherError::Lost { error, .. }) => Err(session.participant_lost(index, &error)),
        Err(GatherError::TooLarge | GatherError::Differs | GatherError::Unsupported(_) | GatherError::Gone(_)) => {
            Err(PgError::internal("the check of rights ended as something else").into())
        }
    }
}

/// The scratch session, a connection to each shard whose rows are read outside of the transaction, and the shards where it
/// has written.
async fn take_connections(session: &mut Session, gathering: &Gathering) -> Result<Hands, Failure> {
    let home = session.home()?;
    let settings = session.settings_now();
    let has_snapshots = session.transaction.is_open() && session.has_snapshot();
    let own = session.transaction.participants().iter().filter(|participant| participant.is_own());
    let own: Vec<ShardId> = match has_snapshots {
        true => gathering
            .reach
            .shards()
            .iter()
            .copied()
            .chain((!gathering.reach.shards().contains(&home.id)).then_some(home.id))
            .collect(),
        false => own.map(|participant| participant.shard).collect(),
    };
    let (has_home_tables, has_temporary) = (gathering.recipe.reads(Source::Home), gathering.recipe.reads(Source::Temporary));
    let is_own = |id: &ShardId| own.contains(id) && (gathering.reach.shards().contains(id) || (*id == home.id && has_home_tables));
    let is_temporary_only = has_temporary && !is_own(&home.id);
    let lock_timeout_ms = session.transaction.is_open().then_some(LOCK_TIMEOUT_MS);
    let reads_home = gathering.reach.shards().contains(&home.id) && !own.contains(&home.id);
    let scratch = session.checkout(&home, &settings).await?;
    let mut hands = Hands {
        scratch,
        script: Script::new(&gathering.recipe, reads_home, lock_timeout_ms),
        outside: Fragments::outside(&gathering.recipe, lock_timeout_ms),
        parts: Vec::new(),
        own: Vec::new(),
    };
    for id in gathering.reach.shards().iter().filter(|id| **id != home.id && !own.contains(id)) {
        let shard = session.gateway.shard(*id)?;
        // The scratch session is held meanwhile.
        let connection = session.checkout_as(Checkout::LateJoiner, &shard, &settings).await?;
        hands.parts.push((shard.name.clone(), connection));
    }
    for id in own.iter().filter(|id| is_own(id)).chain(is_temporary_only.then_some(&home.id)) {
        let index = session.join(*id).await?;
        session.sync(index).await?;
        let name = session.gateway.shard(*id)?.name.clone();
        let has_begun = session.transaction.participants().get(index).is_some_and(|participant| participant.has_begun);
        let fragments = match has_begun {
            true => {
                let has_shards = is_own(id) && gathering.reach.shards().contains(id);
                Fragments::own(&gathering.recipe, has_shards, *id == home.id, has_snapshots)
            }
            false => Fragments::temporary(&gathering.recipe),
        };
        hands.own.push(Own { shard: *id, name, fragments });
    }
    let own =
        session.transaction.participants().iter().filter(|participant| hands.own.iter().any(|own| own.shard == participant.shard));
    let own = own.map(|participant| &participant.connection);
    let outside = std::iter::once(&hands.scratch).chain(hands.parts.iter().map(|(_, connection)| connection));
    for connection in outside.chain(own) {
        session.cancel.started(connection);
    }
    Ok(hands)
}

/// Loads and answers, before the client's deadline, as long as it is there.
async fn run_gathering(
    session: &mut Session,
    hands: &mut Hands,
    recipe: &Recipe,
    statement: &Final<'_>,
    then: Then<'_>,
    rows: &mut Option<Loaded>,
) -> Result<(), GatherError<Ended>> {
    let deadline = session.effective(STATEMENT_TIMEOUT).and_then(duration).map(|limit| Instant::now() + limit);
    let bytes_max = session.gateway.config.cross_shard.gather_bytes_max;
    let Hands { scratch, script, outside, parts, own } = hands;
    let mut senders: Vec<Part<'_>> = parts.iter_mut().map(|(_, connection)| Part::new(&mut *connection, outside)).collect();
    // In the order of `own`, by which errors are named.
    let mut participants: Vec<&mut Participant> = session.transaction.participants_mut().iter_mut().collect();
    for own in own.iter() {
        let place = participants.iter().position(|participant| participant.shard == own.shard);
        let participant = place.map(|place| participants.swap_remove(place));
        senders.extend(participant.map(|participant| Part::new(&mut participant.connection, &own.fragments)));
    }
    // A cancel request may find every backend between two statements, where it does nothing.
    let target = Arc::clone(&session.cancel);
    let mut cancelled = pin!(target.cancelled());
    let loading = gather::load(scratch, &mut senders, script, statement, bytes_max);
    let loaded = before(deadline, cancelled.as_mut(), Box::pin(loading)).await?;
    tracing::debug!(bytes = loaded.bytes, inputs = recipe.inputs.len(), "rows gathered");
    // What is left reads what has been gathered.
    session.transaction.pinned_map.note_rows();
    *rows = Some(loaded);
    for (_, connection) in parts.drain(..) {
        release(&session.cancel, connection);
    }
    let finish = script.finish.as_str();
    match then {
        Then::Answer | Then::Explain(..) => {
            let answering = gather::answer(scratch, finish, statement, &mut session.client);
            before(deadline, cancelled, async { answering.await.map_err(in_session) }).await
        }
        Then::Keep(opening) => before(deadline, cancelled, gather::open(scratch, finish, statement, opening)).await,
    }
}

/// After a failure: the transaction's own connections are told to stop, and what they still say is thrown away.
async fn stop_own(session: &mut Session, hands: &Hands) -> Result<(), Failure> {
    for own in &hands.own {
        let Some(index) = session.transaction.index_of(own.shard) else { continue };
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        if participant.connection.pending.is_empty() {
            continue;
        }
        participant.connection.stop().await;
        if let Err(error) = gather::read_to_end(&mut participant.connection).await {
            return Err(session.participant_lost(index, &error));
        }
    }
    Ok(())
}

fn gather_failure(session: &Session, error: GatherError<Ended>, hands: &Hands, asked: &Asked<'_>) -> Failure {
    let name = |side: Side| match side {
        Side::Scratch => hands.scratch.pool().address.name.clone(),
        Side::Part(index) => {
            let mut names = hands.parts.iter().map(|(name, _)| name).chain(hands.own.iter().map(|own| &own.name));
            names.nth(index).cloned().unwrap_or_default()
        }
    };
    match error {
        GatherError::Shard { side, stage, frame } => refused(side, stage, &frame, &name(side), asked),
        GatherError::Lost { side, error } => lost(&name(side), &error).into(),
        GatherError::TooLarge => {
            let limit = session.gateway.config.cross_shard.gather_bytes_max;
            let message = format!("statement needs more than {limit} bytes of rows of several shards");
            PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_detail("The limit is cross_shard.gather_bytes_max.")
                .with_hint("Restrict the tables by conditions, or raise the limit.")
                .into()
        }
        GatherError::Differs => PgError::unsupported(
            "this statement is not supported over the rows of several shards",
            "Over gathered rows its columns would be of other types or names.",
            "Name columns instead of whole rows, or cast them.",
        )
        .into(),
        GatherError::Unsupported(refusal) => refusal.into(),
        GatherError::Gone(Ended::Session(end)) => end.into(),
        GatherError::Gone(Ended::Cancelled) => {
            PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into()
        }
        GatherError::Gone(Ended::Deadline) => {
            PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout").into()
        }
    }
}

/// Connections that are in the middle of something are told to stop, and closed.
async fn give_back(session: &mut Session, mut hands: Hands, is_done: bool) {
    // Before any of them is somebody else's: a cancel request that comes now is for none of them.
    session.cancel.finished();
    if !is_done && gather::is_between_statements(&hands.scratch) {
        // An error here closes the connection, which ends the transaction too.
        if let Ok(Err(error)) = timeout(CANCEL_TIMEOUT, gather::roll_back(&mut hands.scratch)).await {
            tracing::debug!(%error, "scratch session not rolled back");
        }
    }
    for mut connection in std::iter::once(hands.scratch).chain(hands.parts.into_iter().map(|(_, connection)| connection)) {
        if !connection.is_clean() {
            connection.stop().await;
        }
        release(&session.cancel, connection);
    }
}

/// A Bind of nothing to nothing, but for its values.
pub(in crate::session) fn bind_body(values: &[Parameter<'_>], result_formats: &[u8]) -> Vec<u8> {
    let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let mut body = vec![0, 0];
    body.extend(count(values.len()));
    for value in values {
        body.extend(match value.format {
            Format::Text => [0, 0],
            Format::Binary => [0, 1],
        });
    }
    body.extend(count(values.len()));
    for value in values {
        match value.value {
            Some(bytes) => {
                body.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
                body.extend(bytes);
            }
            None => body.extend((-1_i32).to_be_bytes()),
        }
    }
    body.extend(count(result_formats.len() / 2));
    body.extend(result_formats);
    body
}

/// Why a recipe has not run.
struct Failed {
    failure: Failure,
    /// Another recipe may: nothing has been sent to the client.
    is_of_load: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, is_of_load: false }
    }
}

/// A shard has refused something that the client has not written, or not for these rows.
fn is_of_the_recipe<G>(error: &GatherError<G>) -> bool {
    match error {
        GatherError::Shard { stage: Stage::Tables | Stage::Analysis | Stage::Load, frame, .. } => {
            let fields = wire::error_fields(frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default());
            fields.is_ok_and(|fields| fields.sqlstate() != Some(&SqlState::QUERY_CANCELED.0[..]) && !fields.is_fatal())
        }
        GatherError::Differs | GatherError::TooLarge | GatherError::Unsupported(_) => true,
        GatherError::Shard { stage: Stage::Rights | Stage::Answer, .. } | GatherError::Lost { .. } | GatherError::Gone(_) => false,
    }
}

/// What ends a gathering from outside.
enum Ended {
    Session(SessionEnd),
    /// `statement_timeout`.
    Deadline,
    Cancelled,
}

fn in_session(error: GatherError<SessionEnd>) -> GatherError<Ended> {
    match error {
        GatherError::Gone(end) => GatherError::Gone(Ended::Session(end)),
        GatherError::Shard { side, stage, frame } => GatherError::Shard { side, stage, frame },
        GatherError::Lost { side, error } => GatherError::Lost { side, error },
        GatherError::TooLarge => GatherError::TooLarge,
        GatherError::Differs => GatherError::Differs,
        GatherError::Unsupported(refusal) => GatherError::Unsupported(refusal),
    }
}

/// The work, unless the deadline or a cancel request comes first.
async fn before<T>(
    deadline: Option<Instant>,
    cancelled: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, GatherError<Ended>>>,
) -> Result<T, GatherError<Ended>> {
    let timed_out = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = cancelled => Err(GatherError::Gone(Ended::Cancelled)),
        () = timed_out => Err(GatherError::Gone(Ended::Deadline)),
    }
}

pub(in crate::session) fn release(cancel: &crate::session::cancel::CancelTarget, mut connection: Pooled) {
    cancel.ended(&connection);
    connection.is_cancel_pending |= cancel.was_sent_to(&connection);
    connection.release();
}

/// What a shard's error means to the client, who knows nothing of temporary tables.
fn refused(side: Side, stage: Stage, frame: &Bytes, shard: &str, asked: &Asked<'_>) -> Failure {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let (sqlstate, message) = match wire::error_fields(body) {
        Ok(fields) => (fields.sqlstate().unwrap_or_default().to_vec(), fields.message()),
        Err(_) => (Vec::new(), String::new()),
    };
    let is_cancelled = sqlstate == SqlState::QUERY_CANCELED.0;
    let is_denied = sqlstate == SqlState::INSUFFICIENT_PRIVILEGE.0;
    match (side, stage) {
        _ if is_cancelled => Failure::Shard(frame.clone()),
        (_, Stage::Load) if asked.gathering.reach.map().has_residues() && is_data_error(frame) => of_moving_rows(frame).into(),
        (_, Stage::Rights) => Failure::Shard(moved(frame, |position| (position + asked.lead).saturating_sub(RIGHTS_OFFSET))),
        (_, Stage::Tables) if is_denied => PgError::unsupported(
            "this statement needs temporary tables, which this user may not create",
            format!("It needs rows of several shards, which are brought together on the home shard. The shard said: {message}."),
            "Grant the privilege TEMPORARY on the home shard's database.",
        )
        .into(),
        (_, Stage::Load) if is_denied => PgError::unsupported(
            "rows of several shards cannot be brought together with this user's rights",
            format!("Shard \"{shard}\" said: {message}."),
            "Grant SELECT on the tables that the statement reads, on those below its views too.",
        )
        .into(),
        (Side::Scratch, Stage::Analysis) => PgError::unsupported(
            "this statement is not supported over the rows of several shards",
            format!("Over temporary tables that hold the rows, PostgreSQL says: {}.", without_names(&message)),
            "Restrict the statement to one shard key, or write it without whole rows.",
        )
        .into(),
        (Side::Part(_), _) => Failure::Shard(with_shard_named(frame, shard)),
        // Of the plan, not of the client's text.
        (Side::Scratch, Stage::Answer) if matches!(asked.then, Then::Explain(..)) => Failure::Shard(moved(frame, |_| 0)),
        (Side::Scratch, Stage::Answer) => Failure::Shard(moved(frame, |position| asked.lead + original_position(position, asked))),
        (Side::Scratch, Stage::Tables | Stage::Load) => Failure::Shard(moved(frame, |_| 0)),
    }
}

/// Names of temporary tables are ours.
fn without_names(message: &str) -> String {
    message.replace("shardgate_input_", "rows ").replace("pg_temp.", "")
}

/// A position in the spliced text, in the client's; 0 for what the client has not written. Both count characters from 1.
fn original_position(position: usize, asked: &Asked<'_>) -> usize {
    let spliced = &asked.gathering.recipe.text;
    let Some((offset, _)) = spliced.char_indices().nth(position.saturating_sub(1)) else { return 0 };
    match original_offset(offset, &asked.gathering.recipe.splices) {
        Some(offset) => asked.text.get(..offset).map_or(0, |before| before.chars().count() + 1),
        None => 0,
    }
}

/// A byte offset in the spliced text, in the original; `None` inside of what was put in.
fn original_offset(offset: usize, splices: &[Splice]) -> Option<usize> {
    let (mut original, mut spliced) = (0, 0);
    for splice in splices {
        let kept = splice.start - original;
        if offset < spliced + kept {
            break;
        }
        spliced += kept + splice.text.len();
        original = splice.end;
        if offset < spliced {
            return None;
        }
    }
    Some(original + (offset - spliced))
}

/// The error with its position changed; 0 leaves it out. Without its context, which is about our own statements.
pub(in crate::session) fn moved(frame: &Bytes, place: impl Fn(usize) -> usize) -> Bytes {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return frame.clone() };
    let mut out = Vec::with_capacity(body.len());
    // Schema, table, column, constraint and type, when they are those of a temporary table.
    let is_ours = fields.get(b's').is_some_and(|schema| schema.starts_with(b"pg_temp"));
    for (code, value) in fields.iter().filter(|(code, _)| !is_ours || !b"stcdn".contains(code)) {
        let is_position = code == b'P';
        let position = std::str::from_utf8(value).ok().filter(|_| is_position).and_then(|text| text.parse().ok()).map(&place);
        if position == Some(0) {
            continue;
        }
        out.push(code);
        match position {
            Some(position) => out.extend_from_slice(position.to_string().as_bytes()),
            None => out.extend_from_slice(without_names(&String::from_utf8_lossy(value)).as_bytes()),
        }
        out.push(0);
    }
    out.push(0);
    crate::session::protocol::describe::error_frame(&out)
}

/// A time as `SHOW` prints it: `0`, `1500ms`, `30s`, `2min`, `1h`, `1d`. `None`: no limit.
pub(in crate::session) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let milliseconds = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.saturating_mul(milliseconds)))
}

/// A Bind of nothing to nothing, results in text.
const BIND: &[u8] = b"\0\0\0\0\0\0\0\0";
/// Of it, the two names.
const NAMES_BYTES: usize = 2;
/// In a transaction block, other connections may wait for a lock of its own, which never ends.
const LOCK_TIMEOUT_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_show_prints_it() {
        assert_eq!(duration("0"), None);
        assert_eq!(duration("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(duration("soon"), None);
    }

    #[test]
    fn offsets_after_a_splice_are_moved_back_and_those_inside_are_none() {
        let splices = [Splice { start: 5, end: 8, text: "0123456789".to_owned() }];
        assert_eq!(original_offset(4, &splices), Some(4));
        assert_eq!(original_offset(5, &splices), None);
        assert_eq!(original_offset(14, &splices), None);
        assert_eq!(original_offset(15, &splices), Some(8));
        assert_eq!(original_offset(20, &splices), Some(13));
    }
}
