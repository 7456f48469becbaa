//! EXPLAIN: where a statement goes and why, then each shard's own plan.
//!
//! `EXPLAIN (SHARDS)` is the head alone and runs nothing. Plain EXPLAIN sends the same EXPLAIN to every shard that would run the
//! statement, collects what they say, and answers once: the head, then the plans, or one document that holds both. Nothing goes
//! to the client before all have answered, so an error stands alone as PostgreSQL's would. What the statement is refused for is
//! the head's to tell, except with ANALYZE, which would have run it.

mod document;
mod head;

use std::sync::Arc;

use bytes::{Buf, Bytes};

use self::document::ShardPlan;
use self::head::Head;
use super::command::{drop_row_description, is_own, text_field};
use super::prepare::not_in_the_text;
use super::{cluster_state, command, prepare};
use crate::backend::{Frame, ShardText, StatementName};
use crate::error::{PgError, SqlState};
use crate::execute::gather::Sent;
use crate::routing::{Inputs, Reach};
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::describe::{frame, prepare_on};
use crate::session::protocol::statement::Statement;
use crate::session::reads::gather::FragmentRun;
use crate::session::reads::scatter::{failure_of_covered, fragment_text, with_shard_named};
use crate::session::reads::{gather, reference_keys, staying};
use crate::session::route::Route;
use crate::session::writes::write::WritingKind;
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::oid;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Effect, ExplainFormat, Part, Scope};
use crate::sql::gather::Source;
use crate::sql::rewrite::blanks::in_its_place;
use crate::sql::utility::shardgate_call::declaration_among;
use crate::wire::{self, FRAME_HEADER_BYTES, FieldDescription, originate, shard_tag};

/// A statement's EXPLAIN, taken apart.
struct Explained<'a> {
    statement: &'a Analysis,
    inner: &'a Analysis,
    text: &'a str,
    is_analyze: bool,
    /// In the extended protocol: the types of the parameters, and their values as the rest of a Bind.
    values: Option<(&'a [u32], &'a [u8])>,
}

/// Which shards have a plan, and what each is sent.
struct Asked {
    reach: Reach,
    sql: String,
    /// It is not the client's: with the time of the transaction in it.
    is_timed: bool,
}

/// How the shards are asked.
enum Ask<'a> {
    /// The simple protocol.
    Query,
    /// The extended one: the statement as it was prepared, the portal's name, which shards name in errors, and the parameters.
    Bound { prepared: &'a Arc<Statement>, portal: &'a [u8], after_names: &'a [u8] },
}

/// EXPLAIN in any form. `bound`: in the extended protocol, the prepared statement and its values.
pub(in crate::session) async fn explain(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
    bound: Option<(&Arc<Statement>, &wire::Bind<'_>)>,
) -> Result<(), Failure> {
    let Command::Explain { shards, analyze, format, inner } = &statement.command else {
        return Err(PgError::internal("not an EXPLAIN").into());
    };
    session.transaction.pinned_map.note_planned(false);
    if let Command::Execute { .. } = &inner.command {
        return Box::pin(explain_execution(session, statement, inner, text, bound.is_some())).await;
    }
    let types = match bound {
        Some((prepared, _)) if statement.parameter_count > 0 => described_types(session, prepared).await?,
        Some(_) | None => Vec::new(),
    };
    let after_names = bound.map(|(_, bind)| bind.with_result_formats(&[]));
    let values = after_names.as_deref().map(|after_names| (&types[..], after_names));
    let explained = Explained { statement, inner, text, is_analyze: *analyze && !*shards, values };
    let read = session.read(text).await?;
    let inputs = match bound {
        Some((_, bind)) => Inputs::bound(text, &read.literals, bind, &types),
        None => Inputs::literals(text, &read.literals),
    };
    let why = inner.why.iter().map(|fact| fact.sentence(text, &read.literals)).collect();
    let (head, asked, analyzed) = explain_head(session, &explained, why, &inputs, *format).await?;
    let plans = match (asked, bound) {
        _ if *shards => Vec::new(),
        _ if !analyzed.is_empty() => analyzed,
        (None, bound) => {
            if bound.is_none() {
                // What PostgreSQL has to say against the statement comes first.
                check_explained(session, &explained).await?;
            }
            Vec::new()
        }
        (Some(asked), None) => plans(session, &explained, &asked, Ask::Query).await?,
        (Some(asked), Some((prepared, bind))) => {
            let is_one = asked.reach.single().is_some();
            if explained.is_analyze && (!is_one || session.reads_other_clock(inner, asked.reach.single())?) {
                session.check_parameters(bind, &types)?;
            }
            let after_names = after_names.as_deref().unwrap_or_default();
            plans(session, &explained, &asked, Ask::Bound { prepared, portal: bind.portal, after_names }).await?
        }
    };
    if bound.is_none() {
        originate::row_description(&mut session.client.output, &[plan_field(*format)]);
    }
    for row in document::rows(*format, &head, &plans) {
        originate::data_row(&mut session.client.output, &[Some(row)]);
    }
    originate::command_complete(&mut session.client.output, "EXPLAIN");
    Ok(())
}

/// Of a prepared statement: what it runs with these arguments. `is_bound`: the client has got the description.
async fn explain_execution(
    session: &mut Session,
    statement: &Analysis,
    execution: &Analysis,
    text: &str,
    is_bound: bool,
) -> Result<(), Failure> {
    if let Scope::Refused(refusal) = &execution.scope {
        return Err(refusal.clone().into());
    }
    let prepared = prepare::text_of_execution(session, execution, text).await?;
    let explain = text.get(statement.start..execution.start).unwrap_or_default();
    let text = format!("{explain}{prepared}");
    let read = session.read(&text).await?;
    let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("an empty statement is explained"))?;
    let before = session.client.output.len();
    Box::pin(self::explain(session, statement, &text, None)).await.map_err(not_in_the_text)?;
    if is_bound {
        drop_row_description(&mut session.client.output, before);
    }
    Ok(())
}

/// As the home shard infers them; what it cannot describe has parameters of text.
async fn described_types(session: &mut Session, prepared: &Arc<Statement>) -> Result<Vec<u32>, Failure> {
    match command::describe_own(session, prepared) {
        Some(description) => Ok(description.parameter_types),
        None => Ok(session.describe(prepared).await?.parameter_types.clone()),
    }
}

async fn check_explained(session: &mut Session, explained: &Explained<'_>) -> Result<(), Failure> {
    let Explained { statement, text, .. } = explained;
    if !describes_at_home(statement) || statement.parameter_count > 0 {
        return Ok(());
    }
    let alone = text.get(statement.start..statement.end).unwrap_or(text);
    let prepared = session.prepare(alone.as_bytes(), Box::default()).await?;
    session.describe(&prepared).await.map(|_| ())
}

/// The head, and what the shards are asked for, nothing where nothing would run; or the plan of what has been run.
async fn explain_head(
    session: &mut Session,
    explained: &Explained<'_>,
    mut why: Vec<String>,
    inputs: &Inputs<'_>,
    format: ExplainFormat,
) -> Result<(Head, Option<Asked>, Vec<ShardPlan>), Failure> {
    let Explained { statement, inner, text, is_analyze, values } = *explained;
    if why.is_empty() {
        why.push(untold(&inner.scope));
    }
    let declares = matches!(&inner.scope, Scope::Proxy(rows) if declaration_among(rows).is_some());
    if declares || is_own(&inner.command) && !is_temporary(inner) {
        check_own(inner, is_analyze)?;
        let head = match &inner.scope {
            Scope::Refused(refusal) => refused(refusal.clone()),
            // A materialised view.
            Scope::Placed { .. } => Head { shards: vec![session.home()?.name.clone()], ..Head::new("single shard", why) },
            _ => Head::new("local", why),
        };
        return Ok((head, None, Vec::new()));
    }
    if is_temporary(inner) && is_analyze {
        return Err(creates_a_table().into());
    }
    let alone = text.get(inner.start..inner.end).unwrap_or(text);
    let explain = text.get(statement.start..inner.start).unwrap_or_default();
    let (head, merge, reach) = match session.route(inner, inputs).await {
        Ok(Route::Shard(reach)) => {
            let route = if reach.single() == Some(MAP_DATABASE) { "local" } else { "single shard" };
            (Head::new(route, why), None, Some(reach))
        }
        Ok(Route::Scatter(_)) if is_analyze && inner.effect == Effect::ReadLocking => return Err(locks_not_analyzed().into()),
        Ok(Route::Scatter(reach)) => {
            let merge = inner.merge.clone()?;
            why.extend(reference_keys::told_of_reference_keys(session, &fragment_text(inner, &merge, text), &merge));
            (
                Head { merge: Some(crate::sql::utility::explain::merge(&merge)), ..Head::new("scatter", why) },
                Some(merge),
                Some(reach),
            )
        }
        Ok(Route::Write(_)) if is_analyze => return Err(write_not_analyzed().into()),
        Ok(Route::Write(writing)) if writing.shards().is_empty() => {
            // Where it writes is not known before its queries are answered.
            let merge = Some(match &writing.kind {
                WritingKind::Moved(_) => "rows are deleted where they are and inserted where their new keys belong".to_owned(),
                _ => "the queries in it are answered first, and their rows are written as constants".to_owned(),
            });
            return Ok((Head { merge, ..Head::new("split write", why) }, None, Vec::new()));
        }
        Ok(Route::Write(writing)) => (Head::new("split write", why), None, writing.reach.clone()),
        Ok(Route::Gather(gathering)) if is_analyze => {
            let field = plan_field(format);
            let (fragments, answer) =
                gather::gather_explained(session, &gathering, (inner, text), (explain, &field), values).await?;
            let shards: Vec<String> = gathering.reach.shards().iter().map(|shard| shard_name(session, *shard)).collect();
            let actual = |run: FragmentRun| {
                let Sent { rows, bytes, elapsed } = run.sent;
                let time = elapsed.as_secs_f64() * 1000.0;
                (run.shard, format!("{} (actual rows={rows} bytes={bytes} time={time:.3} ms)", one_line(&run.sql)))
            };
            let on = fragments.into_iter().map(actual).collect();
            let home = session.home()?.name.clone();
            let rows = answer.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
            let merge = Some(format!("PostgreSQL on {home}"));
            let head = Head { shards, on, merge, ..Head::new("gather", why) };
            return Ok((head, None, vec![ShardPlan { shard: home, rows }]));
        }
        // Where it would run is not there before its rows are: no plan of it can be shown.
        Ok(Route::Gather(gathering)) => {
            let shards: Vec<String> = gathering.reach.shards().iter().map(|shard| shard_name(session, *shard)).collect();
            let home = session.home()?.name.clone();
            let staying = Box::pin(staying::staying(session, &gathering, alone, &|_, _| None)).await?;
            let recipe = staying.as_ref().unwrap_or(&gathering.recipe);
            let inputs = &recipe.inputs;
            let own = inputs.iter().filter(|input| input.source != Source::Shards).map(|input| (home.clone(), input.shown()));
            let shipped = |shard: &String| {
                let shipped = inputs.iter().filter(|input| input.source == Source::Shards);
                shipped.map(|input| (shard.clone(), input.shown())).collect::<Vec<_>>()
            };
            let on = own.chain(shards.iter().flat_map(shipped)).collect();
            let merge = Some(format!("PostgreSQL on {home}: {}", one_line(&recipe.text)));
            return Ok((Head { shards, on, merge, ..Head::new("gather", why) }, None, Vec::new()));
        }
        Err(Failure::Error(refusal)) if !is_analyze && is_refusal(&refusal) => {
            return Ok((refused(refusal), None, Vec::new()));
        }
        Err(failure) => return Err(failure),
    };
    let sql = merge.map_or_else(|| alone.to_owned(), |merge| fragment_text(inner, &merge, text));
    let reach = reach.ok_or_else(|| PgError::internal("a route without shards"))?;
    let timed = if is_analyze { session.made_text_with_time(&reach, inner, &sql).await? } else { None };
    let is_timed = timed.is_some();
    let sql = timed.unwrap_or(sql);
    let names: Vec<String> = reach.shards().iter().map(|shard| shard_name(session, *shard)).collect();
    let shown = cluster_state::explained_as_written(session, inner, &sql, text);
    let on = names.iter().map(|name| (name.clone(), shown.trim().to_owned())).collect();
    let asked = Asked { reach, sql: format!("{explain}{sql}"), is_timed };
    Ok((Head { shards: names, on, ..head }, Some(asked), Vec::new()))
}

fn shard_name(session: &Session, id: ShardId) -> String {
    session.gateway.shard(id).map_or_else(|_| id.0.to_string(), |shard| shard.name.clone())
}

/// Each shard's answer, in the order of the shards.
async fn plans(session: &mut Session, explained: &Explained<'_>, asked: &Asked, ask: Ask<'_>) -> Result<Vec<ShardPlan>, Failure> {
    let is_one_of_several = asked.reach.shards().len() > 1;
    let fragment = match &ask {
        Ask::Query => None,
        Ask::Bound { prepared, .. } if is_one_of_several || asked.is_timed => Some(fragment_of(session, prepared, asked).await?),
        Ask::Bound { prepared, .. } => Some(Arc::clone(prepared)),
    };
    // Error positions are those of the client's text.
    let padded = in_its_place(explained.text, explained.statement.start, &asked.sql);
    let context = Arc::clone(&session.context);
    let text = ShardText::of(&asked.reach, padded.as_bytes(), &context)?;
    // Whatever may fail comes before the first shard is asked: one that was asked must be read to its end.
    for shard in asked.reach.shards() {
        let index = session.join(*shard).await?;
        match ask {
            Ask::Query => session.sync(index).await?,
            Ask::Bound { .. } => session.drain_with_flush(index).await?,
        }
        match explained.is_analyze {
            true => session.pin_if_needed(index, explained.statement),
            // To plan it PostgreSQL calls what is said to be immutable.
            false => session.pin_for_effects(index),
        }
    }
    for shard in asked.reach.shards() {
        match (&fragment, &ask) {
            (Some(fragment), Ask::Bound { portal, after_names, .. }) => {
                ask_bound(session, explained, *shard, (fragment, &asked.reach), (portal, after_names)).await?
            }
            _ => ask_by_query(session, explained, *shard, &text).await,
        }
    }
    let mut plans = Vec::with_capacity(asked.reach.shards().len());
    let mut first_failure = None;
    let mut bytes_left = PLAN_BYTES_MAX;
    for shard in asked.reach.shards() {
        match collect_plan(session, *shard, fragment.as_deref(), &mut bytes_left).await {
            Ok(rows) => plans.push(ShardPlan { shard: shard_name(session, *shard), rows }),
            Err(Failure::End(end)) => return Err(end.into()),
            Err(Failure::Shard(frame)) if is_one_of_several => {
                let frame = with_shard_named(&frame, &shard_name(session, *shard));
                let covering = match &fragment {
                    Some(fragment) => fragment.covered.as_ref(),
                    None => text.covering(),
                };
                first_failure.get_or_insert(failure_of_covered(frame, covering));
            }
            Err(failure) => {
                first_failure.get_or_insert(failure);
            }
        }
    }
    first_failure.map_or(Ok(plans), Err)
}

/// As a Query: the answer ends with ReadyForQuery.
async fn ask_by_query(session: &mut Session, explained: &Explained<'_>, shard: ShardId, text: &ShardText<'_>) {
    let Explained { statement, is_analyze, .. } = *explained;
    let Some(participant) = session.transaction.on_mut(shard) else { return };
    participant.has_written |= is_analyze && statement.effect == Effect::Write;
    let connection = &mut *participant.connection;
    connection.unnamed = None;
    connection.output.query(text);
    start_asked(session, shard).await;
}

/// Within the client's pipeline, whose Sync is still to come: the answer ends with the portal's.
async fn ask_bound(
    session: &mut Session,
    explained: &Explained<'_>,
    shard: ShardId,
    (fragment, reach): (&Arc<Statement>, &Reach),
    (portal, after_names): (&[u8], &[u8]),
) -> Result<(), Failure> {
    let Explained { statement, is_analyze, .. } = *explained;
    let prepared_max = session.gateway.prepared_max();
    let Some(participant) = session.transaction.on_mut(shard) else { return Ok(()) };
    participant.has_written |= is_analyze && statement.effect == Effect::Write;
    participant.needs_sync = true;
    let connection = &mut *participant.connection;
    prepare_on(connection, fragment, false, prepared_max);
    let text = fragment.text_for(reach)?;
    connection.output.bind(portal, StatementName::Registered(fragment.id), &text, after_names);
    connection.output.execute(portal, 0);
    connection.output.close_portal(portal);
    connection.output.flush();
    start_asked(session, shard).await;
    Ok(())
}

/// What was asked leaves.
async fn start_asked(session: &mut Session, shard: ShardId) {
    let Some(participant) = session.transaction.on_mut(shard) else { return };
    let connection = &mut *participant.connection;
    // The answers are read here, not by the relay.
    connection.pending.clear();
    session.cancel.started(connection);
    connection.send().await;
}

/// The text that each of several shards explains, as a statement of the client's types.
async fn fragment_of(session: &mut Session, prepared: &Arc<Statement>, asked: &Asked) -> Result<Arc<Statement>, Failure> {
    let types = described_types(session, prepared).await?;
    Ok(Arc::new(session.fragment_of_text(prepared, asked.sql.clone(), &types, &asked.reach)?))
}

/// Reads one shard's answer to its end. Notices go to the client as they come.
async fn collect_plan(
    session: &mut Session,
    shard: ShardId,
    fragment: Option<&Statement>,
    bytes_left: &mut usize,
) -> Result<Vec<String>, Failure> {
    let Some(index) = session.transaction.index_of(shard) else {
        return Err(PgError::internal("participant is gone").into());
    };
    let mut rows = Vec::new();
    let mut refusal = None;
    let (mut is_too_large, mut is_complete) = (false, false);
    loop {
        let (tag, body) = next_of(session, index).await?;
        match tag {
            shard_tag::DATA_ROW => match bytes_left.checked_sub(body.len()) {
                Some(left) => {
                    *bytes_left = left;
                    let column = wire::data_row_columns(&body).next().and_then(Result::ok).flatten().unwrap_or_default();
                    rows.push(String::from_utf8_lossy(column).into_owned());
                }
                None => is_too_large = true,
            },
            shard_tag::NOTICE => session.client.output.extend_from_slice(&frame(tag, &body)),
            shard_tag::PARAMETER_STATUS => take_parameter(session, &body)?,
            shard_tag::ERROR => {
                let fields = wire::error_fields(&body).map_err(SessionEnd::from)?;
                if fields.is_fatal() {
                    let error = PgError::new(SqlState::CONNECTION_FAILURE, "the shard ended the connection");
                    return Err(session.remove_lost(index, error.with_detail(format!("It said: {}.", fields.message())), true));
                }
                refusal = Some(frame(tag, &body));
            }
            shard_tag::COMMAND_COMPLETE => is_complete = true,
            shard_tag::READY => {
                if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
                    participant.connection.note_ready(body.first().copied().unwrap_or(b'E'));
                }
            }
            _ => {}
        }
        let is_last = match fragment {
            None => tag == shard_tag::READY,
            // After an error the shard skips until Sync.
            Some(_) => tag == shard_tag::ERROR || (is_complete && tag == shard_tag::CLOSE_COMPLETE),
        };
        if is_last {
            break;
        }
    }
    if let (Some(fragment), Some(_), Some(participant)) =
        (fragment, &refusal, session.transaction.participants_mut().get_mut(index))
    {
        participant.connection.prepared.doubt(fragment.id);
    }
    match refusal {
        Some(frame) => Err(Failure::Shard(frame)),
        None if is_too_large => Err(plans_too_large().into()),
        None => Ok(rows),
    }
}

fn take_parameter(session: &mut Session, body: &[u8]) -> Result<(), Failure> {
    let (name, value) = wire::parameter_status(body).map_err(SessionEnd::from)?;
    let (name, value) = (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
    session.report_parameter(&name, &value);
    Ok(())
}

/// The next whole message of a participant. A client that has gone ends the session.
async fn next_of(session: &mut Session, index: usize) -> Result<(u8, Bytes), Failure> {
    loop {
        let participant = session.transaction.at(index)?;
        match participant.connection.peek() {
            Ok(Some(Frame { header, is_complete: true })) => {
                let mut frame = participant.connection.input.split_to(header.total).freeze();
                frame.advance(FRAME_HEADER_BYTES);
                return Ok((header.tag, frame));
            }
            Ok(_) => {}
            Err(error) => return Err(session.participant_lost(index, &error)),
        }
        if let Err(error) = participant.connection.fill().await {
            return Err(session.participant_lost(index, &error));
        }
    }
}

/// Does the home shard describe this EXPLAIN? What is the proxy's own it does not know.
pub(in crate::session) fn describes_at_home(explain: &Analysis) -> bool {
    let Command::Explain { shards, inner, .. } = &explain.command else { return false };
    let is_local = is_own(&inner.command) && !is_temporary(inner);
    let is_elsewhere = matches!(inner.scope, Scope::Map | Scope::Proxy(_));
    !is_local && (!*shards || (explain.parameter_count > 0 && !is_elsewhere))
}

/// The only column of a plan.
pub(in crate::session) fn plan_field(format: ExplainFormat) -> FieldDescription {
    let field = text_field("QUERY PLAN");
    match format {
        ExplainFormat::Text | ExplainFormat::Yaml => field,
        ExplainFormat::Json => FieldDescription { type_oid: oid::JSON, ..field },
        ExplainFormat::Xml => FieldDescription { type_oid: oid::XML, ..field },
    }
}

/// Creates a temporary table, which runs on the home shard.
fn is_temporary(inner: &Analysis) -> bool {
    matches!((&inner.command, &inner.scope), (Command::Ddl { .. }, Scope::Placed { .. }))
}

fn refused(refusal: PgError) -> Head {
    let why = std::iter::once(refusal.message).chain(refusal.detail).collect();
    Head { hint: refusal.hint, ..Head::new("refused", why) }
}

/// Where nothing was told of the tables: there is none that is sharded, or the statement was not read.
fn untold(scope: &Scope) -> String {
    match scope {
        Scope::Placed { parts, pushdown } if parts.iter().any(|part| matches!(part, Part::Sharded { .. })) => {
            let reason = pushdown.as_ref().err().and_then(|refusal| refusal.detail.clone());
            reason.unwrap_or_else(|| "The statement may touch rows of sharded tables.".to_owned())
        }
        _ => "The statement names no sharded table.".to_owned(),
    }
}

/// What the proxy answers by itself has no plan; with ANALYZE it would have to be run.
fn check_own(inner: &Analysis, is_analyze: bool) -> Result<(), PgError> {
    match &inner.command {
        Command::Ddl { gives_rows: true, .. } => Err(PgError::unsupported(
            "EXPLAIN of a call that changes the schema is not supported",
            "Every shard runs the call.",
            "Run it without EXPLAIN.",
        )),
        Command::Ddl { .. } => Err(creates_a_table()),
        _ if is_analyze => Err(PgError::unsupported(
            "EXPLAIN ANALYZE of this statement is not supported",
            "The proxy answers it by itself, and no shard plans it.",
            "Run the statement without EXPLAIN.",
        )),
        _ => Ok(()),
    }
}

fn creates_a_table() -> PgError {
    PgError::unsupported(
        "EXPLAIN of a statement that creates a table from a query is not supported",
        "The table is made on every shard, or belongs to the session.",
        "Explain the query itself.",
    )
}

/// The statement cannot be run, and why is worth telling; other errors are the EXPLAIN's own.
fn is_refusal(error: &PgError) -> bool {
    matches!(
        error.code,
        SqlState::FEATURE_NOT_SUPPORTED
            | SqlState::NO_SHARD_FOR_KEY
            | SqlState::NO_SUCH_SHARD
            | SqlState::CONFIGURATION_LIMIT_EXCEEDED
    )
}

fn plans_too_large() -> PgError {
    PgError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("the plans are larger than {} MiB", PLAN_BYTES_MAX >> 20))
        .with_hint("Explain the statement on one shard: SET shardgate.shard sends statements there unchanged.")
}

/// All plans of one statement together.
const PLAN_BYTES_MAX: usize = 32 << 20;

/// An answer of EXPLAIN has one line for each row.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn locks_not_analyzed() -> PgError {
    PgError::unsupported(
        "EXPLAIN ANALYZE of row locks over several shards is not supported",
        "Each shard would lock rows that the statement itself would not.",
        "Use EXPLAIN without ANALYZE, or restrict the statement to one shard key.",
    )
}

fn write_not_analyzed() -> PgError {
    PgError::unsupported(
        "EXPLAIN ANALYZE of a write on several shards is not supported",
        "It would run the statement on each shard for itself.",
        "Use EXPLAIN without ANALYZE, or restrict the statement to one shard key.",
    )
}
