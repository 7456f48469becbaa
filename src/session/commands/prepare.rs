//! PREPARE, EXECUTE and DEALLOCATE in SQL: one namespace with the statements of the extended protocol, as in PostgreSQL.
//!
//! The session keeps the text and the types. PREPARE is tried on the home shard, which says what is wrong with it and which types
//! its parameters have. EXECUTE is routed by its arguments as by bound parameters; on one shard it runs as EXECUTE of the name
//! that the text has there, with the client's own arguments, so PostgreSQL evaluates, converts and refuses them. Over several shards
//! it is a portal with its arguments as parameters.
//!
//! A statement is prepared on a connection when it is first executed there, under a name of the proxy's.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::{cluster_state, command, map_database, question, relations};
use crate::backend::{Own, Reply, ShardText, StatementName, is_user_type};
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::error::{PgError, SqlState};
use crate::routing::{Inputs, Parameter, Reach};
use crate::session::ddl::schema;
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::describe::{Description, is_away};
use crate::session::protocol::statement::{Made, Statement};
use crate::session::reads::gather::bind_body;
use crate::session::reads::{gather, scatter};
use crate::session::route::Route;
use crate::session::sequences::{numbers, sequence_calls};
use crate::session::writes::write;
use crate::session::writes::write::{Writing, WritingKind};
use crate::session::{Failure, Session};
use crate::shard_key::oid::TEXT;
use crate::shard_key::{Format, Oid};
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Effect, KeyValue, Part, Scope};
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::residues::cover;
use crate::sql::rewrite::blanks::{behind_blanks, in_its_place};
use crate::sql::rewrite::staging::with_parameters;
use crate::telemetry::RouteKind;
use crate::wire::{self, FRAME_HEADER_BYTES, FrameHeader, originate, shard_tag};

/// EXECUTE, taken apart.
struct Execution<'a> {
    /// The whole text, in which the statement's offsets are.
    text: &'a str,
    statement: &'a Analysis,
    /// Where the arguments begin, with their parenthesis.
    after_name: usize,
    prepared: &'a Arc<Statement>,
    /// In the extended protocol: the Bind of the EXECUTE, which decides the formats of results.
    bind: Option<&'a wire::Bind<'a>>,
}

/// PREPARE name (types) AS …
pub(in crate::session) async fn prepare_by_name(session: &mut Session, statement: &Analysis, text: &str) -> Result<(), Failure> {
    let Command::Prepare { name, start, end } = &statement.command else {
        return Err(PgError::internal("not a PREPARE").into());
    };
    if name.starts_with(RESERVED_PREFIX) {
        return Err(reserved_name(name).into());
    }
    let prepared_text = text.get(*start..*end).unwrap_or_default();
    let types = match is_of_map(session, prepared_text).await? {
        true => try_prepare_in_map(session, statement, text, name).await?,
        false => try_prepare(session, statement, text, name).await?,
    };
    session.check_name_is_free(name.as_bytes(), prepared_text.len())?;
    let prepared = session.prepare(prepared_text.as_bytes(), types).await?;
    let prepared = Arc::into_inner(prepared).ok_or_else(|| PgError::internal("a new statement is in use"))?;
    // As in PostgreSQL: the whole of what the client has sent.
    let prepared = Arc::new(Statement { made: Made::now(Some(text)), ..prepared });
    if let Some(analysis) = prepared.analysis()
        && super::command::is_own(&analysis.command)
    {
        return Err(not_by_name().into());
    }
    // What it gives now it has to give at every EXECUTE.
    session.describe(&prepared).await?;
    session.statements.insert(Bytes::copy_from_slice(name.as_bytes()), prepared);
    originate::command_complete(&mut session.client.output, "PREPARE");
    Ok(())
}

/// Does the statement run in the database of the shard map?
async fn is_of_map(session: &mut Session, text: &str) -> Result<bool, Failure> {
    let prepared = session.prepare(text.as_bytes(), Box::default()).await?;
    let scope = prepared.analysis().map(|analysis| &analysis.scope);
    Ok(matches!(scope, Some(Scope::Map | Scope::Proxy(_))))
}

async fn try_prepare_in_map(session: &mut Session, statement: &Analysis, text: &str, name: &str) -> Result<Box<[u32]>, Failure> {
    map_database::check_text_for_map(session, text)?;
    let map = Arc::clone(&session.gateway.map_database);
    let rows = question::ask_question(session, &map, &Own::Plan.text(&text_of_trial(statement, text, name))).await?;
    parameter_types_of(&rows)
}

/// Prepares the statement, reads the parameters' types and forgets it again.
fn text_of_trial(statement: &Analysis, text: &str, name: &str) -> String {
    let alone = text.get(statement.start..statement.end).unwrap_or(text);
    let mut sql = in_its_place(text, statement.start, alone);
    sql.push_str(
        "\n;SELECT pg_catalog.array_to_string(parameter_types::pg_catalog.oid[], ' ') \
             FROM pg_catalog.pg_prepared_statements WHERE name = ",
    );
    sql.push_str(&quoted_literal(name));
    sql.push_str(&format!(";DEALLOCATE {}", quoted_identifier(name)));
    sql
}

async fn try_prepare(session: &mut Session, statement: &Analysis, text: &str, name: &str) -> Result<Box<[u32]>, Failure> {
    let sql = text_of_trial(statement, text, name);
    let home = session.home()?;
    let is_there = session.transaction.index_of(home.id).is_some();
    if let Some(reason) = session.maintenance_of(&home).filter(|_| !is_there) {
        match Box::pin(try_prepare_beside(session, home.id, &sql, reason)).await {
            Err(Failure::Error(error)) if is_away(&error) => {}
            tried => return tried,
        }
    }
    let rows = match question::ask_question(session, &home, &Own::Plan.text(&sql)).await {
        Err(Failure::Error(error)) if is_away(&error) && !is_there => {
            return try_prepare_beside(session, home.id, &sql, error).await;
        }
        answered => answered?,
    };
    parameter_types_of(&rows)
}

/// While the home shard is away, where all types are PostgreSQL's own: those of users have other numbers elsewhere.
async fn try_prepare_beside(session: &mut Session, home: ShardId, sql: &str, reason: PgError) -> Result<Box<[u32]>, Failure> {
    for shard in session.shards_beside(home) {
        match question::ask_question(session, &shard, &Own::Plan.text(sql)).await {
            Ok(rows) => {
                let types = parameter_types_of(&rows)?;
                return if types.iter().any(|oid| is_user_type(*oid)) { Err(reason.into()) } else { Ok(types) };
            }
            Err(Failure::Error(error)) if is_away(&error) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(reason.into())
}

/// EXECUTE name (arguments).
pub(in crate::session) async fn execute_by_name(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
    bind: Option<&wire::Bind<'_>>,
) -> Result<(), Failure> {
    let Command::Execute { name, after_name, arguments, is_repeatable } = &statement.command else {
        return Err(PgError::internal("not an EXECUTE").into());
    };
    if !session.statements.contains_key(name.as_bytes()) {
        session.check_not_prepared_by_function()?;
    }
    let prepared = session.current_statement(name.as_bytes()).await?;
    let analysis = prepared.analysis().filter(|analysis| !super::command::is_own(&analysis.command)).ok_or_else(not_by_name)?;
    let types = session.describe(&prepared).await?.parameter_types.clone();
    check_count(types.len(), arguments.len(), name)?;
    let mut values = argument_values(session, text, arguments, &types).await?;
    let execution = Execution { text, statement, after_name: *after_name, prepared: &prepared, bind };
    let may_decide = matches!(&analysis.scope, Scope::Placed { parts, .. } if parts.iter().any(|part| *part != Part::Home));
    if may_decide && *is_repeatable && values.iter().any(|value| matches!(value, Value::Unknown)) {
        values = evaluated(session, &execution, &types).await?;
    }
    let parameters: Vec<Parameter<'_>> = values.iter().map(Value::as_parameter).collect();
    let inputs = Inputs::listed(prepared.text(), &prepared.literals, &parameters);
    let body = bind_body(&parameters, bind.map_or(&[], |bind| bind.result_formats));
    let bound = wire::bind(&body).map_err(|error| PgError::internal(error.to_string()))?;
    let hinted = statement.shard_hint.as_ref().map(|hint| Analysis { shard_hint: Some(hint.clone()), ..analysis.clone() });
    let analysis = hinted.as_ref().unwrap_or(analysis);
    if let Some((text, answers)) = Box::pin(changed_execution(session, analysis, &execution, &types)).await? {
        return run_with_constants(session, &text, &answers, bind).await;
    }
    relations::allow_declaration(session, &analysis.scope, b"")?;
    match session.route(analysis, &inputs).await {
        Ok(Route::Shard(reach)) => execute_on_shard(session, &reach, analysis, &execution).await,
        Ok(Route::Scatter(reach)) if values.iter().all(|value| !matches!(value, Value::Unknown)) => {
            session.count_statement(RouteKind::Scatter, None);
            match Box::pin(scatter::scatter_bound(session, &prepared, &bound, &reach, bind.is_none())).await {
                // An argument that is none of its type: what PostgreSQL says of it, with its place.
                Err(failure @ Failure::Shard(_)) => Err(evaluated(session, &execution, &types).await.err().unwrap_or(failure)),
                answered => answered,
            }
        }
        Ok(Route::Scatter(_)) => Err(unknown_argument().into()),
        Ok(Route::Write(_)) => {
            let text = with_constants(session, &execution, &types).await?;
            run_with_constants(session, &text, &[], bind).await
        }
        Ok(Route::Gather(gathering)) if values.iter().all(|value| !matches!(value, Value::Unknown)) => {
            session.count_statement(RouteKind::Gather, None);
            // What PostgreSQL has to say against the arguments, with their places in this text.
            evaluated(session, &execution, &types).await?;
            gather::gather_bound(session, &prepared, &bound, &gathering, bind.is_none()).await
        }
        Ok(Route::Gather(_)) => Err(unknown_argument().into()),
        Err(failure) => {
            session.count_refusal(&failure);
            Err(failure)
        }
    }
}

/// The text to run in place of the prepared one: with the cluster's answers and with the numbers that are drawn for it. `None`: it
/// has neither. In the extended protocol, with the values of its parameters: no text is prepared for one execution's answers.
async fn changed_execution(
    session: &mut Session,
    analysis: &Analysis,
    execution: &Execution<'_>,
    types: &[Oid],
) -> Result<Option<(String, Vec<String>)>, Failure> {
    let (asks_cluster, is_named_late) = (cluster_state::asks_cluster(session, analysis), analysis.asks_sequences_by_parameters());
    if !asks_cluster && !is_named_late && !numbers::draws(session, analysis) {
        return Ok(None);
    }
    let mut text = with_constants(session, execution, types).await?;
    let mut answers = Vec::new();
    let parameters_before = execution.bind.map(|_| 0);
    if asks_cluster && let Some(made) = cluster_state::with_cluster_state_as(session, &text, parameters_before).await? {
        (text, answers) = (made.text, made.values);
    }
    let read = schema::read_anew(session, &text).await?;
    let draws = read.analyzed.statements.first().is_some_and(|changed| numbers::draws(session, changed));
    if is_named_late && let Some(numbered) = Box::pin(sequence_calls::draw_if_of_cluster(session, &text)).await? {
        return Ok(Some((numbered, answers)));
    }
    if draws && let Some(numbered) = Box::pin(numbers::draw(session, &text)).await? {
        text = numbered.text();
    }
    Ok((asks_cluster || numbers::draws(session, analysis)).then_some((text, answers)))
}

/// What an EXECUTE runs, with its arguments in it.
pub(in crate::session) async fn text_of_execution(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
) -> Result<String, Failure> {
    let Command::Execute { name, after_name, arguments, .. } = &statement.command else {
        return Err(PgError::internal("not an EXECUTE").into());
    };
    let prepared = session.current_statement(name.as_bytes()).await?;
    if prepared.analysis().is_none_or(|analysis| super::command::is_own(&analysis.command)) {
        return Err(not_by_name().into());
    }
    let types = session.describe(&prepared).await?.parameter_types.clone();
    check_count(types.len(), arguments.len(), name)?;
    let execution = Execution { text, statement, after_name: *after_name, prepared: &prepared, bind: None };
    with_constants(session, &execution, &types).await
}

/// The prepared text with its arguments in it, as PostgreSQL evaluates them.
async fn with_constants(session: &mut Session, execution: &Execution<'_>, types: &[Oid]) -> Result<String, Failure> {
    let values = evaluated(session, execution, types).await?;
    let constant = |number: u16| {
        let value = values.get(usize::from(number).checked_sub(1)?)?.as_parameter();
        crate::session::protocol::parameter::as_constant(value.oid, value.format, value.value, &session.context.catalog)
    };
    Ok(with_parameters(execution.prepared.text(), &constant).ok_or_else(not_written)?)
}

/// Runs such a text, whose values or numbers the proxy has put into it. `answers`: its parameters, in the extended protocol.
async fn run_with_constants(
    session: &mut Session,
    text: &str,
    answers: &[String],
    bind: Option<&wire::Bind<'_>>,
) -> Result<(), Failure> {
    let run = match bind {
        None => Box::pin(run_constants(session, text)).await,
        Some(bind) => Box::pin(run_constants_bound(session, text, answers, bind)).await,
    };
    run.map_err(not_in_the_text)
}

async fn run_constants(session: &mut Session, text: &str) -> Result<(), Failure> {
    let read = schema::read_anew(session, text).await?;
    let statement = read.analyzed.statements.first().ok_or_else(|| PgError::internal("an empty statement is executed"))?;
    let inputs = Inputs::literals(text, &read.literals);
    let route = session.route(statement, &inputs).await;
    let route = session.counted(route).inspect_err(|failure| session.count_refusal(failure))?;
    numbers::note_numbers_of(session, statement.numbers, &route);
    Box::pin(scatter::run_by_route(session, route, statement, text, &inputs)).await
}

/// In the extended protocol it is part of the pipeline, and its rows have the formats that the client has asked for.
async fn run_constants_bound(session: &mut Session, text: &str, answers: &[String], bind: &wire::Bind<'_>) -> Result<(), Failure> {
    let statement = session.prepare(text.as_bytes(), answers.iter().map(|_| TEXT).collect()).await?;
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("an empty statement is executed"))?;
    let route = session.route(analysis, &Inputs::literals(text, &statement.literals)).await;
    let route = session.counted(route).inspect_err(|failure| session.count_refusal(failure))?;
    numbers::note_numbers_of(session, analysis.numbers, &route);
    let writing = match route {
        Route::Write(writing) => writing,
        Route::Shard(reach) => Arc::new(Writing { reach: Some(reach), kind: WritingKind::Parts }),
        Route::Scatter(_) | Route::Gather(_) => return Err(not_written().into()),
    };
    let names = [0, 0];
    let values = answers.iter().map(|answer| Value::Known { oid: TEXT, bytes: answer.clone().into_bytes() });
    let body = [&names[..], &after_names(&values.collect::<Vec<_>>(), bind.result_formats)].concat();
    Box::pin(write::write_bound(session, &statement, &Bytes::from(body), &writing)).await
}

/// The arguments as values of the parameters' types, where that is certain.
async fn argument_values(
    session: &Session,
    text: &str,
    arguments: &[Option<KeyValue>],
    types: &[Oid],
) -> Result<Vec<Value>, Failure> {
    let read = session.read(text).await?;
    let inputs = Inputs::literals(text, &read.literals);
    let value = |(argument, oid): (&Option<KeyValue>, &Oid)| match argument.as_ref().map(|value| inputs.assigned(value, *oid)) {
        Some(Some(Some(bytes))) => Value::Known { oid: *oid, bytes },
        Some(Some(None)) => Value::Null { oid: *oid },
        Some(None) | None => Value::Unknown,
    };
    Ok(arguments.iter().zip(types).map(value).collect())
}

/// The arguments as the home shard evaluates them. The shard that runs the statement evaluates them again, to the same
/// values: they read neither tables nor clocks.
async fn evaluated(session: &mut Session, execution: &Execution<'_>, types: &[Oid]) -> Result<Vec<Value>, Failure> {
    let outputs: Vec<String> = (1..=types.len()).map(|number| format!("${number}::pg_catalog.text")).collect();
    let probe = session.made_of(execution.prepared, Bytes::from(format!("SELECT {}", outputs.join(", "))), types.into());
    let (sql, shift) = execution.sql(&probe);
    let covered = cover(sql, &session.context, session.gateway.map.load().snapshot())?;
    let home = session.home()?;
    let mut connection = session.checkout(&home, &session.settings_now()).await?;
    let prepared_max = session.gateway.prepared_max();
    let described = crate::session::protocol::describe::describe_on(&mut connection, &probe, prepared_max).await;
    let rows = match described {
        Ok(_) => connection
            .simple(&ShardText::covered(&covered))
            .await
            .map_err(|error| crate::session::settings::setting::refused(&home.name, error)),
        Err(failure) => Err(failure),
    };
    connection.release();
    let rows = rows.map_err(|failure| with_position_shifted(failure, shift))?;
    let row = rows.into_iter().next().ok_or_else(|| PgError::internal("arguments without values"))?;
    let value = |(value, oid): (Option<Bytes>, &Oid)| match value {
        Some(bytes) => Value::Known { oid: *oid, bytes: bytes.to_vec() },
        None => Value::Null { oid: *oid },
    };
    Ok(row.into_iter().zip(types).map(value).collect())
}

async fn execute_on_shard(
    session: &mut Session,
    reach: &Reach,
    analysis: &Analysis,
    execution: &Execution<'_>,
) -> Result<(), Failure> {
    let shard = reach.single().ok_or_else(|| PgError::internal("several shards as one"))?;
    let Execution { prepared, bind, .. } = execution;
    let Command::Execute { name, arguments, .. } = &execution.statement.command else {
        return Err(PgError::internal("not an EXECUTE").into());
    };
    let timed = Box::pin(session.statement_with_time(reach, prepared, arguments.len())).await?;
    let (prepared, time) = timed.as_ref().map_or((*prepared, None), |(prepared, time)| (prepared, Some(time)));
    if shard == MAP_DATABASE {
        map_database::check_text_for_map(session, execution.text)?;
        check_constants(execution.statement)?;
    }
    let index = session.join(shard).await?;
    numbers::check_sequence_value(session, index, analysis)?;
    session.pin_if_needed(index, analysis);
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        participant.needs_sync = true;
    }
    session.prepare_as_told(index, prepared, false).await?;
    let participant = session.transaction.at(index)?;
    participant.has_written |= analysis.effect == Effect::Write;
    let connection = &mut *participant.connection;
    let (sql, shift) = execution.sql(prepared);
    let sql = time.map_or_else(|| sql.clone(), |time| with_argument(&sql, time));
    let text = ShardText::of(reach, sql.as_bytes(), &session.context)?;
    connection.unnamed = None;
    match bind {
        None => {
            connection.output.query(&text);
            connection.expect(Reply::Query, true);
        }
        Some(bind) => {
            connection.output.parse(StatementName::Unnamed, &text, &[]);
            connection.expect(Reply::ParseUnnamed, false);
            connection.output.bind(bind.portal, StatementName::Unnamed, &text, bind.after_names);
            connection.expect(Reply::Bind, false);
            connection.output.execute(bind.portal, 0);
            connection.expect(Reply::Execute, true);
            connection.output.close_portal(bind.portal);
            connection.expect(Reply::Close, false);
            connection.output.flush();
        }
    }
    let (before, flushes) = (session.client.output.len(), session.client.flushes);
    let drained = session.drain(index).await;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        participant.needs_sync &= bind.is_some() || drained.is_err();
        // An error of the prepared text has that text's own positions.
        let shift = if participant.connection.prepared.has(prepared.id) { shift } else { 0 };
        if drained.is_err() && session.client.flushes == flushes {
            let name_there = prepared.id.with_name(|name| format!("\"{}\"", String::from_utf8_lossy(name)));
            put_error_in_text(&mut session.client.output, before, shift, Some((&name_there, &format!("\"{name}\""))));
        }
    }
    drained
}

/// What Describe says of a statement that the proxy runs; `None`: the home shard is to be asked.
pub(in crate::session) async fn describe_by_itself(
    session: &mut Session,
    statement: &Statement,
) -> Result<Option<Description>, Failure> {
    Ok(describe_execution(session, statement).await?.or_else(|| command::describe_own(session, statement)))
}

/// What Describe says of an EXECUTE: the columns of the prepared statement. Of one that does not exist PostgreSQL says
/// nothing yet. `None`: not an EXECUTE.
async fn describe_execution(session: &mut Session, statement: &Statement) -> Result<Option<Description>, Failure> {
    let Some(Command::Execute { name, .. }) = statement.analysis().map(|analysis| &analysis.command) else { return Ok(None) };
    if !session.statements.contains_key(name.as_bytes()) {
        return Ok(Some(Description::default()));
    }
    let prepared = session.current_statement(name.as_bytes()).await?;
    let rows = session.describe(&prepared).await?.rows.clone();
    Ok(Some(Description::new(Vec::new(), rows)))
}

/// The rest of a Bind with these values, in text.
pub(super) fn after_names(values: &[Value], result_formats: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u16(0);
    out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
    for value in values {
        match value {
            Value::Known { bytes, .. } => {
                out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
                out.put_slice(bytes);
            }
            Value::Null { .. } | Value::Unknown => out.put_i32(-1),
        }
    }
    out.put_u16(u16::try_from(result_formats.len() / 2).unwrap_or(u16::MAX));
    out.put_slice(result_formats);
    out.to_vec()
}

impl Execution<'_> {
    /// The EXECUTE under the statement's name on connections, with as many blanks before it as keep the arguments at the place
    /// that they have in the client's text; and how many characters they stand too far to the right all the same.
    fn sql(&self, prepared: &Statement) -> (String, usize) {
        let start = prepared.id.with_name(|name| format!("EXECUTE {}", String::from_utf8_lossy(name)));
        let place = self.text.get(..self.after_name).unwrap_or_default().chars().count();
        let arguments = self.text.get(self.after_name..self.statement.end).unwrap_or_default();
        let blanks = place.saturating_sub(start.len());
        (behind_blanks(blanks, &format!("{start}{arguments}")), start.len().saturating_sub(place))
    }
}

/// As `try_prepare` asks for them.
fn parameter_types_of(rows: &[Vec<Option<Bytes>>]) -> Result<Box<[u32]>, Failure> {
    let types = rows.last().and_then(|row| row.first()).and_then(Option::as_ref);
    let types = types.map(|types| String::from_utf8_lossy(types).into_owned()).unwrap_or_default();
    types
        .split_whitespace()
        .map(|oid| oid.parse::<u32>())
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Error(PgError::internal(format!("parameter types from shard: {error}"))))
}

/// An EXECUTE with one more argument, a time.
fn with_argument(sql: &str, time: &str) -> String {
    let last = lexer::tokens(sql).filter(|token| token.kind != TokenKind::Comment).last();
    let has_arguments = |end: usize| sql.get(..end).is_some_and(|sql| sql.ends_with(')'));
    match last.map(|token| token.end) {
        Some(end) if has_arguments(end) => format!("{}, '{time}')", sql.get(..end - 1).unwrap_or_default()),
        Some(end) => format!("{} ('{time}')", sql.get(..end).unwrap_or_default()),
        None => sql.to_owned(),
    }
}

/// An argument, as a value of its parameter's type.
pub(super) enum Value {
    Null {
        oid: Oid,
    },
    Known {
        oid: Oid,
        bytes: Vec<u8>,
    },
    /// PostgreSQL evaluates it; the proxy does not know it.
    Unknown,
}

impl Value {
    fn as_parameter(&self) -> Parameter<'_> {
        match self {
            Value::Null { oid } => Parameter { oid: *oid, format: Format::Text, value: None },
            Value::Known { oid, bytes } => Parameter { oid: *oid, format: Format::Text, value: Some(bytes) },
            // Without a type a value says nothing.
            Value::Unknown => Parameter { oid: 0, format: Format::Text, value: Some(b"") },
        }
    }
}

fn with_position_shifted(failure: Failure, shift: usize) -> Failure {
    match failure {
        Failure::Shard(frame) => {
            let mut frame = BytesMut::from(&frame[..]);
            put_error_in_text(&mut frame, 0, shift, None);
            Failure::Shard(frame.freeze())
        }
        other => other,
    }
}

/// Moves the position of the error in the output back to where it is in the client's text. `renamed`: the statement's name on the
/// connection, and the client's.
fn put_error_in_text(output: &mut BytesMut, from: usize, shift: usize, renamed: Option<(&str, &str)>) {
    let Some(added) = output.get(from..).map(BytesMut::from) else { return };
    let mut rest = added.as_ref();
    let mut out = BytesMut::with_capacity(rest.len());
    while let Some(header) = FrameHeader::peek(rest, usize::MAX - 8).ok().flatten() {
        let Some((whole, after)) = rest.split_at_checked(header.total) else { break };
        let fields = wire::error_fields(whole.get(FRAME_HEADER_BYTES..).unwrap_or_default()).ok();
        match fields.filter(|_| header.tag == shard_tag::ERROR) {
            Some(fields) => {
                let renamed = renamed.filter(|_| fields.sqlstate() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME.0[..]));
                let mut body = Vec::with_capacity(whole.len());
                for (code, value) in fields.iter() {
                    let position = std::str::from_utf8(value).ok().and_then(|value| value.parse::<usize>().ok());
                    body.push(code);
                    match (position.filter(|_| code == b'P'), renamed.filter(|_| code == b'M')) {
                        (Some(position), _) => body.extend_from_slice(position.saturating_sub(shift).to_string().as_bytes()),
                        (None, Some((there, name))) => {
                            body.extend_from_slice(String::from_utf8_lossy(value).replace(there, name).as_bytes());
                        }
                        (None, None) => body.extend_from_slice(value),
                    }
                    body.push(0);
                }
                body.push(0);
                out.extend_from_slice(&crate::session::protocol::describe::error_frame(&body));
            }
            None => out.extend_from_slice(whole),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    output.truncate(from);
    output.unsplit(out);
}

fn check_count(expected: usize, given: usize, name: &str) -> Result<(), PgError> {
    if expected == given {
        return Ok(());
    }
    let message = format!("wrong number of parameters for prepared statement \"{name}\"");
    Err(PgError::new(SqlState::SYNTAX_ERROR, message).with_detail(format!("Expected {expected} parameters but got {given}.")))
}

/// An error in a text that the client has not written.
pub(in crate::session) fn not_in_the_text(failure: Failure) -> Failure {
    match failure {
        Failure::Shard(frame) => {
            let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
            Failure::Shard(crate::session::reads::scatter::without_position(body))
        }
        failure => failure,
    }
}

fn not_by_name() -> PgError {
    PgError::unsupported(
        "this statement cannot be prepared by PREPARE",
        "The proxy answers it by itself, and PREPARE and EXECUTE are run by a shard.",
        "Run the statement itself, or prepare it by the driver.",
    )
}

fn not_written() -> PgError {
    PgError::unsupported(
        "EXECUTE of this statement is not supported over several shards",
        "Its arguments are put into its text, and one of them cannot be written as a constant.",
        "Send the statement itself, or prepare it with the driver.",
    )
}

/// In the map database nothing is computed that is not looked through.
fn check_constants(execution: &Analysis) -> Result<(), PgError> {
    match &execution.command {
        Command::Execute { arguments, .. } if arguments.iter().all(Option::is_some) => Ok(()),
        _ => Err(PgError::unsupported(
            "this argument of EXECUTE is not supported beside relations of the schema shardgate",
            "It would be computed in the database of the shard map.",
            "Give it as a constant.",
        )),
    }
}

fn unknown_argument() -> PgError {
    PgError::unsupported(
        "this argument of EXECUTE is not supported across shards",
        "Each shard would evaluate it, and their values may differ.",
        "Give constants, or restrict the statement to one shard key.",
    )
}

fn reserved_name(name: &str) -> PgError {
    PgError::unsupported(
        format!("prepared statement name \"{name}\" is reserved"),
        format!("On connections to shards, names that begin with {RESERVED_PREFIX} are the proxy's."),
        "Give the statement another name.",
    )
}

/// How the proxy names statements on connections.
const RESERVED_PREFIX: &str = "sg_";
