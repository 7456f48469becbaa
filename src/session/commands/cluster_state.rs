//! Statements about sessions, locks, prepared statements and sizes: the cluster's answers are written into the text, and sessions that
//! are to end or to be cancelled are.
//!
//! ```text
//!   text ─ sql::utility::cluster_state ─► places ─ sessions here, questions to shards ─► the text with the answers ─► run like any other
//!                                           └─ pg_terminate_backend: which sessions? ─► rights ─► ended
//! ```
//! `SET shardgate.shard` shows one shard's own processes: the text runs there as it is. Sessions of another proxy are not known here:
//! a notice says so where sessions are listed, and ending or cancelling one is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::clients::{Backend, ClientRow};
use super::relations::in_ascii;
use super::{command, question};
use crate::backend::Own;
use crate::catalog::{quoted_literal, quoted_name};
use crate::config::{BackendUser, ShardUrl};
use crate::error::{PgError, SqlState};
use crate::session::protocol::statement::Statement;
use crate::session::sequences::numbers::{with_more_parameters, with_position};
use crate::session::sequences::{numbers, sequence_calls};
use crate::session::writes::staged::sqlstate;
use crate::session::{Failure, Session, shutting_down};
use crate::shard_key::Oid;
use crate::shard_key::oid::TEXT;
use crate::shardmap::{Shard, TableKind};
use crate::sql::analysis::{Analysis, Command, Effect, Numbers, Scope, SessionCall};
use crate::sql::rewrite::staging::with_parameters;
use crate::sql::utility::cluster_state::{Answers, Asked, Places, Rewritten};
use crate::wire;

/// A call of `pg_terminate_backend` or `pg_cancel_backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signal {
    process: i32,
    is_end: bool,
    /// How long the session's end is waited for; 0: not at all.
    patience_ms: i64,
}

/// Does the statement ask for what the cluster says?
#[inline]
pub(in crate::session) fn asks_cluster(session: &Session, statement: &Analysis) -> bool {
    statement.session_calls.contains(&SessionCall::ClusterState) && !numbers::is_hinted(session, statement)
}

/// A text with the cluster's answers in it. `None`: it runs as it is.
pub(in crate::session) fn with_cluster_state<'a>(
    session: &'a mut Session,
    text: &'a str,
) -> BoxFuture<'a, Result<Option<Rewritten>, Failure>> {
    with_cluster_state_as(session, text, None)
}

/// `parameters_before`: the answers are parameters, after so many of the client's.
pub(in crate::session) fn with_cluster_state_as<'a>(
    session: &'a mut Session,
    text: &'a str,
    parameters_before: Option<usize>,
) -> BoxFuture<'a, Result<Option<Rewritten>, Failure>> {
    Box::pin(find_cluster_state(session, text, parameters_before))
}

async fn find_cluster_state(
    session: &mut Session,
    text: &str,
    parameters_before: Option<usize>,
) -> Result<Option<Rewritten>, Failure> {
    let Some(places) = Places::of(text, &session.context)? else { return Ok(None) };
    if places.is_plan() {
        // Nothing of what others do has to be in a plan, and nothing is asked for it.
        let answers = Answers { own_process: session.login.cancel_key.0, ..Answers::default() };
        return Ok(Some(places.rewritten_with(text, &answers, parameters_before)));
    }
    let mut answers = Box::pin(answers_of_cluster(session, &places)).await?;
    if let Some(collecting) = places.collecting(text, &answers) {
        let signals = Box::pin(signals_of(session, &places, text, &collecting, &answers)).await?;
        answers.signalled = Box::pin(send_signals(session, &signals)).await?;
    }
    Ok(Some(places.rewritten_with(text, &answers, parameters_before)))
}

/// What a statement signals. Whatever PostgreSQL has to say against it comes first.
async fn signals_of(
    session: &mut Session,
    places: &Places,
    text: &str,
    collecting: &Rewritten,
    answers: &Answers,
) -> Result<BTreeSet<Signal>, Failure> {
    check_is_of_catalogue(session, &collecting.text).await?;
    let prepared = session.prepare(text.as_bytes(), Box::default()).await?;
    session.describe(&prepared).await?;
    if places.loses_list() {
        let whole = places.rewritten(text, answers);
        let home = session.home()?;
        let tried = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(&whole.text))).await;
        tried.map_err(|failure| in_own_text(failure, &whole, text))?;
    }
    let signals = Box::pin(signals(session, &collecting.text, &places.signals())).await;
    signals.map_err(|failure| in_own_text(failure, collecting, text))
}

/// An error's message with its place in the client's text, while one with the cluster's answers runs.
pub(in crate::session) fn without_answers(session: &Session, frame: Bytes) -> Bytes {
    let Some(answered) = &session.running.answered else { return frame };
    let (made, own) = &**answered;
    with_position(frame, |position| made.original_position(own, position))
}

/// What EXPLAIN shows for `sql`, a statement of `made`: the client's own text of it, where the cluster's answers were put into that.
pub(in crate::session) fn explained_as_written(session: &Session, explained: &Analysis, sql: &str, made: &str) -> String {
    let own = session.running.answered.as_deref().and_then(|(rewritten, own)| {
        let is_whole = rewritten.text == made && made.get(explained.start..explained.end) == Some(sql);
        // What is changed is in the statement that is explained.
        let end = own.len().checked_sub(made.len().checked_sub(explained.end)?)?;
        own.get(explained.start..end).filter(|_| is_whole)
    });
    own.unwrap_or(sql).to_owned()
}

/// A Bind of a statement that asks for what the cluster says.
pub(in crate::session) async fn bind_about_cluster(
    session: &mut Session,
    statement: Arc<Statement>,
    body: &[u8],
) -> Result<(), Failure> {
    let (statement, body) = match Box::pin(bind_with_cluster_state(session, &statement, body)).await? {
        Some(changed) => changed,
        None => (statement, Bytes::copy_from_slice(body)),
    };
    bind_as_it_is(session, statement, &body).await
}

/// A Bind of a statement about which nothing is left to be answered: it may still draw numbers.
pub(in crate::session) async fn bind_as_it_is(
    session: &mut Session,
    statement: Arc<Statement>,
    body: &[u8],
) -> Result<(), Failure> {
    if statement.analysis().is_some_and(Analysis::asks_sequences_by_parameters) {
        return Box::pin(sequence_calls::bind_sequence_call(session, statement, body)).await;
    }
    if statement.analysis().is_some_and(|analysis| analysis.numbers != Numbers::None) {
        return Box::pin(session.bind_numbered(statement, body)).await;
    }
    let bind = wire::bind(body)?;
    session.bind_statement(statement, &bind, body).await
}

/// The statement to run, and its Bind.
async fn bind_with_cluster_state(
    session: &mut Session,
    statement: &Arc<Statement>,
    body: &[u8],
) -> Result<Option<(Arc<Statement>, Bytes)>, Failure> {
    let bind = wire::bind(body)?;
    let Some(analysis) = statement.analysis() else { return Ok(None) };
    command::check_not_failed(session, &analysis.command)?;
    if Session::check_parameter_count(statement, &bind).is_err() {
        return Ok(None);
    }
    // What PostgreSQL has to say against the statement is about the client's own text.
    session.answer_parse().await?;
    let types = match analysis.command {
        Command::Query(_) => session.describe(statement).await?.parameter_types.clone().into(),
        _ => statement.key.types.clone(),
    };
    let is_signal = Places::of(statement.text(), &session.context)?.is_some_and(|places| !places.signals().is_empty());
    if !is_signal || bind.parameter_count == 0 {
        return match analysis.command {
            Command::Query(_) => bound_with_answers(session, statement.text(), &types, &bind).await,
            _ => {
                let Some(made) = with_cluster_state(session, statement.text()).await? else { return Ok(None) };
                let changed = session.prepare(made.text.as_bytes(), types).await?;
                Ok(Some((changed, Bytes::copy_from_slice(body))))
            }
        };
    }
    let values: Vec<_> = bind.parameters().collect();
    let constant = |number: u16| {
        let index = usize::from(number).checked_sub(1)?;
        let (format, value) = values.get(index)?;
        crate::session::protocol::parameter::as_constant(*types.get(index)?, *format, *value, &session.context.catalog)
    };
    let text = with_parameters(statement.text(), &constant).ok_or_else(not_as_parameter)?;
    let mut without = BytesMut::new();
    for name in [bind.portal, bind.statement] {
        without.put_slice(name);
        without.put_u8(0);
    }
    without.put_slice(&super::prepare::after_names(&[], bind.result_formats));
    let bind = wire::bind(&without)?;
    bound_with_answers(session, &text, &[], &bind).await
}

/// A text with the answers as parameters after the client's own: so there is one text to prepare, and they stand in none.
async fn bound_with_answers(
    session: &mut Session,
    text: &str,
    types: &[Oid],
    bind: &wire::Bind<'_>,
) -> Result<Option<(Arc<Statement>, Bytes)>, Failure> {
    let made = with_cluster_state_as(session, text, Some(bind.parameter_count)).await?;
    let Some(made) = made else { return Ok(None) };
    let types = types.iter().copied().chain(made.values.iter().map(|_| TEXT)).collect();
    let changed = session.prepare(made.text.as_bytes(), types).await?;
    Ok(Some((changed, with_more_parameters(bind, &made.values)?)))
}

async fn answers_of_cluster(session: &mut Session, places: &Places) -> Result<Answers, Failure> {
    let mut answers = Answers { own_process: session.login.cancel_key.0, ..Answers::default() };
    if [Asked::Activity, Asked::Locks, Asked::Prepared].into_iter().any(|asked| places.asks(asked)) {
        let home = session.home()?;
        let question = Own::Catalog.text("SELECT pg_catalog.current_database()");
        let rows = Box::pin(question::ask_question(session, &home, &question)).await?;
        answers.home_database = rows.first().and_then(|row| text_of(row, 0)).unwrap_or_default();
    }
    if places.asks(Asked::Activity) {
        let sessions = Box::pin(activity(session)).await?;
        answers.activity = in_json(session, &Value::Array(sessions));
        if may_have_other_proxies(session).await {
            let notice = PgError::warning(SqlState::WARNING, "pg_stat_activity has the sessions of this proxy only")
                .with_hint("SELECT * FROM shardgate.proxies lists the others; ask each of them for its sessions.");
            wire::originate::error(&mut session.client.output, &notice);
        }
    }
    if places.asks(Asked::Snapshot) {
        answers.snapshot = Box::pin(session.export_snapshot()).await?;
    }
    if places.asks(Asked::Prepared) {
        answers.prepared = in_json(session, &Value::Array(prepared_statements(session)));
    }
    if places.asks(Asked::Locks) {
        let locks = locks_of_cluster(session).await?;
        answers.locks = in_json(session, &Value::Array(locks));
    }
    if places.asks(Asked::Blocking) {
        answers.blocking = blocking(session).await?.to_string();
    }
    let sizes = places.sizes();
    let tables = if sizes.is_empty() { Vec::new() } else { sized_tables(session, places.sized_relations()).await? };
    for (function, has_forks) in sizes {
        answers.sizes.insert(function, sizes_elsewhere(session, &tables, function, has_forks).await?.to_string());
    }
    if places.asks(Asked::DatabaseSize) {
        answers.database = database_elsewhere(session).await?;
    }
    Ok(answers)
}

/// As a literal of every encoding; characters that the database cannot have stand as question marks.
fn in_json(session: &Session, value: &Value) -> String {
    let is_unicode =
        session.reported.iter().any(|(name, value)| name.eq_ignore_ascii_case("server_encoding") && &**value == "UTF8");
    let json = value.to_string();
    if is_unicode { in_ascii(&json) } else { json.chars().map(|each| if each.is_ascii() { each } else { '?' }).collect() }
}

/// The sessions, with what this one may see of them: by the rights that its role has now on the home shard.
async fn activity(session: &mut Session) -> Result<Vec<Value>, Failure> {
    let sessions = session.gateway.clients.all();
    let undecided: BTreeSet<&str> =
        sessions.iter().filter(|(_, row)| decides_rights(session, row).is_none()).map(|(_, row)| row.user.as_str()).collect();
    let mut visible = HashSet::new();
    if !undecided.is_empty() {
        let home = session.home()?;
        let rows = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(&visible_of(&undecided)))).await?;
        visible.extend(rows.iter().filter_map(|row| text_of(row, 0)));
    }
    Ok(session.gateway.clients.activity(|row| decides_rights(session, row).unwrap_or_else(|| visible.contains(&row.user))))
}

/// Whether all of a session is shown to this one, and it may be ended. `None`: the roles on the home shard say so.
fn decides_rights(session: &Session, row: &ClientRow) -> Option<bool> {
    let is_own = row.user == session.login.identity.user;
    match session.gateway.config.auth.backend_user {
        BackendUser::Shard => Some(is_own || session.login.identity.is_admin),
        BackendUser::Client if session.login.identity.is_admin => Some(true),
        BackendUser::Client => None,
    }
}

/// Also where the map database cannot be asked.
async fn may_have_other_proxies(session: &Session) -> bool {
    let own = session.gateway.map.lease().proxy_id();
    !matches!(session.gateway.map.store().has_other_proxy(own).await, Ok(false))
}

/// The session's own, under the client's names.
fn prepared_statements(session: &Session) -> Vec<Value> {
    let mut statements: Vec<_> = session.statements.iter().filter(|(name, _)| !name.is_empty()).collect();
    statements.sort_by_key(|(name, _)| *name);
    let row = |(name, statement): (&[u8], &Arc<Statement>)| {
        let described = statement.told.get().or_else(|| statement.description.get());
        let types = described.map_or(&*statement.key.types, |described| &described.parameter_types);
        let results = described.and_then(|described| described.rows.as_deref()).and_then(|rows| wire::row_description(rows).ok());
        let oids = |oids: &mut dyn Iterator<Item = u32>| oids.map(|oid| oid.to_string()).collect::<Vec<String>>();
        json!({
            "name": String::from_utf8_lossy(name),
            "statement": statement.made.sql.as_deref().unwrap_or_else(|| statement.text()),
            "prepare_time": crate::shard_key::timestamp_text(statement.made.at),
            "parameter_types": oids(&mut types.iter().copied()),
            "result_types": results.map(|columns| oids(&mut columns.iter().map(|column| column.type_oid))),
            "from_sql": statement.made.sql.is_some(),
        })
    };
    statements.into_iter().map(row).collect()
}

// ---- locks ----

/// Processes of the shards that work for a session, or that it holds.
fn sessions_by_backend(session: &Session) -> HashMap<Backend, i32> {
    let mut sessions: HashMap<Backend, i32> = HashMap::new();
    for (process, row) in session.gateway.clients.all() {
        sessions.extend(row.held_backends().into_iter().map(|backend| (backend, process)));
    }
    sessions.extend(session.gateway.cancels.backends());
    let own = session.transaction.participants().iter().filter_map(|participant| participant.connection.cancel_handle.as_ref());
    sessions.extend(own.map(|handle| (Backend::of(handle), session.login.cancel_key.0)));
    sessions
}

async fn locks_of_cluster(session: &mut Session) -> Result<Vec<Value>, Failure> {
    let mut locks = Vec::new();
    for shard in session.online_shards() {
        let rows = Box::pin(question::ask_question(session, &shard, &Own::Catalog.text(LOCKS))).await?;
        let sessions = sessions_by_backend(session);
        for row in rows {
            let Some(Value::Object(mut lock)) = json_of(&row, 0) else { continue };
            let process = lock.get("pid").and_then(Value::as_i64).and_then(|process| i32::try_from(process).ok());
            let session = process.and_then(|process| session_of(&sessions, &shard, process));
            let is = |what: &str| lock.get(what).and_then(Value::as_bool).unwrap_or_default();
            // Of another database, or of the question itself.
            if session.is_none() && (!is("is_own") || is("is_asker")) {
                continue;
            }
            lock.insert("pid".to_owned(), json!(session));
            locks.push(Value::Object(lock));
        }
    }
    Ok(locks)
}

async fn blocking(session: &mut Session) -> Result<Value, Failure> {
    let mut blocking: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
    for shard in session.online_shards() {
        let rows = Box::pin(question::ask_question(session, &shard, &Own::Catalog.text(BLOCKING))).await?;
        let sessions = sessions_by_backend(session);
        let session = |process: i32| session_of(&sessions, &shard, process);
        for row in rows {
            let Some(waiter) = text_of(&row, 0).and_then(|process| session(process.parse().ok()?)) else { continue };
            let others = text_of(&row, 1).unwrap_or_default();
            let others = others.split(',').filter_map(|process| process.parse::<i32>().ok());
            // 0 stands for a prepared transaction, and here also for what is no session of this proxy.
            blocking.entry(waiter).or_default().extend(others.map(|process| session(process).unwrap_or(0)));
        }
    }
    let text = |others: &BTreeSet<i32>| others.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let members = blocking.iter().map(|(waiter, others)| (waiter.to_string(), json!(format!("{{{}}}", text(others)))));
    Ok(Value::Object(members.collect::<Map<String, Value>>()))
}

// ---- sizes ----

/// The sharded tables whose sizes are asked for: all of them where the relations are not known by name.
async fn sized_tables(session: &mut Session, relations: Option<Vec<String>>) -> Result<Vec<String>, Failure> {
    let map = session.gateway.map.snapshot();
    let sharded = map.tables.iter().filter(|(_, table)| matches!(table.kind, TableKind::Sharded { .. }));
    let mut tables: Vec<(String, String)> = sharded.map(|((schema, name), _)| (schema.clone(), name.clone())).collect();
    if let Some(relations) = relations
        && !tables.is_empty()
    {
        let home = session.home()?;
        let rows = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(&tables_of(&relations)))).await?;
        let named: HashSet<_> = rows.iter().filter_map(|row| Some((text_of(row, 0)?, text_of(row, 1)?))).collect();
        tables.retain(|table| named.contains(table));
    }
    Ok(tables.iter().map(|(schema, name)| quoted_name(schema, name)).collect())
}

/// What the other shards have of each of these tables and its indexes, by the home shard's oids.
async fn sizes_elsewhere(
    session: &mut Session,
    tables: &[String],
    function: &'static str,
    has_forks: bool,
) -> Result<Value, Failure> {
    let home = session.home()?;
    let others: Vec<Arc<Shard>> = session.online_shards().into_iter().filter(|shard| shard.id != home.id).collect();
    if tables.is_empty() || others.is_empty() {
        return Ok(json!({}));
    }
    let question = format!("{LIMIT_LOCKS};{};{UNLIMIT_LOCKS}", sizes_of(tables, function, has_forks));
    let mut bytes: BTreeMap<(String, String), i64> = BTreeMap::new();
    for shard in others {
        let rows = Box::pin(question::ask_question(session, &shard, &Own::Catalog.text(&question))).await;
        // Those before and behind it have one column.
        for row in rows.map_err(|failure| locked(failure, &shard.name))?.into_iter().filter(|row| row.len() > 1) {
            let (Some(name), Some(fork), Some(size)) = (text_of(&row, 0), text_of(&row, 1), text_of(&row, 2)) else { continue };
            *bytes.entry((name, fork)).or_default() += size.parse::<i64>().unwrap_or_default();
        }
    }
    let names: BTreeSet<&str> = bytes.keys().map(|(name, _)| name.as_str()).collect();
    let names: Vec<String> = names.into_iter().map(quoted_literal).collect();
    let question = format!(
        "SELECT n, pg_catalog.to_regclass(n)::pg_catalog.oid FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) n",
        names.join(", ")
    );
    let rows = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(&question))).await?;
    let oids: HashMap<String, String> = rows.iter().filter_map(|row| Some((text_of(row, 0)?, text_of(row, 1)?))).collect();
    let member = |((name, fork), size): ((String, String), i64)| {
        let oid = oids.get(&name)?;
        let key = if function == "pg_relation_size" { format!("{oid}/{fork}") } else { oid.clone() };
        Some((key, json!(size)))
    };
    Ok(Value::Object(bytes.into_iter().filter_map(member).collect::<Map<String, Value>>()))
}

/// What the database is called on the home shard, and how much of it the others have.
async fn database_elsewhere(session: &mut Session) -> Result<(Vec<String>, i64), Failure> {
    let home = session.home()?;
    let (mut names, mut bytes) = (Vec::new(), 0_i64);
    for shard in session.online_shards() {
        let rows = Box::pin(question::ask_question(session, &shard, &Own::Catalog.text(DATABASE))).await?;
        let Some(row) = rows.first() else { continue };
        if shard.id == home.id {
            names.extend([text_of(row, 0), text_of(row, 1)].into_iter().flatten());
        } else {
            bytes += text_of(row, 2).and_then(|size| size.parse::<i64>().ok()).unwrap_or_default();
        }
    }
    Ok((names, bytes))
}

// ---- signals ----

async fn check_is_of_catalogue(session: &mut Session, collecting: &str) -> Result<(), Failure> {
    let read = session.read(collecting).await?;
    let is_of_catalogue =
        |statement: &Analysis| statement.effect == Effect::Read && matches!(statement.scope, Scope::Tableless | Scope::System);
    if !matches!(read.analyzed.statements.as_slice(), [statement] if is_of_catalogue(statement)) {
        return Err(not_of_catalogue().into());
    }
    Ok(())
}

/// Which sessions a statement means, by its other form.
async fn signals(session: &mut Session, collecting: &str, kinds: &[Asked]) -> Result<BTreeSet<Signal>, Failure> {
    let home = session.home()?;
    let rows = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(collecting))).await?;
    let mut signals = BTreeSet::new();
    for row in rows {
        let first = row.len().saturating_sub(2 * kinds.len());
        for (index, kind) in kinds.iter().enumerate() {
            let at = first + 2 * index;
            // With NULL for one of them PostgreSQL does not call the function.
            let (Some(process), Some(patience)) = (text_of(&row, at), text_of(&row, at + 1)) else { continue };
            let process = process.parse().map_err(|_| PgError::internal("unexpected process id"))?;
            let patience_ms = patience.parse().map_err(|_| PgError::internal("unexpected timeout"))?;
            signals.insert(Signal { process, is_end: *kind == Asked::Terminate, patience_ms });
        }
    }
    Ok(signals)
}

/// Gives the process ids of those that were there. Rights to all of them come first.
async fn send_signals(session: &mut Session, signals: &BTreeSet<Signal>) -> Result<Vec<i32>, Failure> {
    let mut found = Vec::new();
    for signal in signals {
        if signal.patience_ms < 0 {
            let message = "\"timeout\" must not be negative";
            return Err(PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).into());
        }
        match session.gateway.clients.find(signal.process) {
            Some(row) => {
                check_signal(session, signal, &row).await?;
                found.push(*signal);
            }
            None if may_have_other_proxies(session).await => return Err(not_of_this_proxy(signal.process).into()),
            None => session.warn(SqlState::WARNING, &format!("PID {} is not a PostgreSQL backend process", signal.process)),
        }
    }
    let own = session.login.cancel_key.0;
    let mut signalled = Vec::new();
    for signal in found.iter().filter(|signal| signal.process != own) {
        let is_sent = match signal.is_end {
            true => {
                let patience = Duration::from_millis(signal.patience_ms.unsigned_abs());
                tokio::select! {
                    biased;
                    ended = session.gateway.cancels.end_session(signal.process, patience) => ended,
                    () = session.cancel.cancelled() => return Err(canceled().into()),
                }
            }
            false => {
                session.gateway.cancels.cancel_session(signal.process).await;
                Some(())
            }
        };
        match is_sent {
            Some(()) => signalled.push(signal.process),
            None => session.warn(
                SqlState::WARNING,
                &format!("backend with PID {} did not terminate within {} milliseconds", signal.process, signal.patience_ms),
            ),
        }
    }
    match found.iter().find(|signal| signal.process == own) {
        Some(signal) if signal.is_end || found.iter().any(|other| other.process == own && other.is_end) => {
            Err(Failure::End(shutting_down()))
        }
        Some(_) => Err(canceled().into()),
        None => Ok(signalled),
    }
}

/// As `pg_signal_backend` of PostgreSQL looks at it.
async fn check_signal(session: &mut Session, signal: &Signal, row: &ClientRow) -> Result<(), Failure> {
    let is_by_superuser = match decides_rights(session, row) {
        Some(true) => return Ok(()),
        Some(false) => false,
        None => {
            let home = session.home()?;
            let question = rights_over(&row.user);
            let rows = Box::pin(question::ask_question(session, &home, &Own::Catalog.text(&question))).await?;
            match rows.first().map(|row| (text_of(row, 0), text_of(row, 1))) {
                Some((Some(superuser), _)) if superuser == "t" => true,
                Some((_, Some(may))) if may == "t" => return Ok(()),
                // The home shard does not know the role: nobody else's session.
                _ if row.user == session.login.identity.user && rows.is_empty() => return Ok(()),
                _ => false,
            }
        }
    };
    Err(not_permitted(signal.is_end, is_by_superuser).into())
}

impl Backend {
    pub fn of(handle: &crate::backend::CancelHandle) -> Self {
        let host = handle.endpoint.host();
        Self { host: host.name.clone(), port: host.port, process: handle.key.process_id }
    }
}

/// A failure with its place in the client's text.
fn in_own_text(failure: Failure, made: &Rewritten, own: &str) -> Failure {
    match failure {
        Failure::Shard(frame) => Failure::Shard(with_position(frame, |position| made.original_position(own, position))),
        other => other,
    }
}

/// For which session a process of the shard works, on whichever of its hosts.
fn session_of(sessions: &HashMap<Backend, i32>, shard: &Shard, process: i32) -> Option<i32> {
    let hosts = ShardUrl::parse(&shard.url).ok()?.hosts;
    hosts.into_iter().find_map(|host| sessions.get(&Backend { host: host.name, port: host.port, process }).copied())
}

fn text_of(row: &[Option<Bytes>], index: usize) -> Option<String> {
    row.get(index)?.as_ref().map(|value| String::from_utf8_lossy(value).into_owned())
}

fn json_of(row: &[Option<Bytes>], index: usize) -> Option<Value> {
    serde_json::from_slice(row.get(index)?.as_ref()?).ok()
}

/// Those of the users whose sessions this role may see whole.
fn visible_of(users: &BTreeSet<&str>) -> String {
    let users: Vec<String> = users.iter().map(|user| quoted_literal(user)).collect();
    format!(
        "SELECT u FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) u \
         LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) u \
         WHERE pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') OR coalesce(pg_catalog.pg_has_role(r.oid, 'USAGE'), false)",
        users.join(", ")
    )
}

/// The tables that these relations are, or are partitions or indexes of: schema and name.
fn tables_of(relations: &[String]) -> String {
    let names: Vec<String> = relations.iter().map(|name| quoted_literal(name)).collect();
    format!(
        "SELECT s.nspname, c.relname FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) n \
         CROSS JOIN LATERAL (SELECT pg_catalog.to_regclass(n)::pg_catalog.oid AS oid) r \
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid OPERATOR(pg_catalog.=) r.oid \
         CROSS JOIN LATERAL (SELECT coalesce(i.indrelid, r.oid) AS oid) t \
         CROSS JOIN LATERAL (SELECT coalesce(pg_catalog.pg_partition_root(t.oid)::pg_catalog.oid, t.oid) AS oid \
         UNION SELECT t.oid) root \
         JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) root.oid \
         JOIN pg_catalog.pg_namespace s ON s.oid OPERATOR(pg_catalog.=) c.relnamespace",
        names.join(", ")
    )
}

/// Of these tables, their partitions and indexes: the name, the fork and the bytes.
fn sizes_of(tables: &[String], function: &str, has_forks: bool) -> String {
    let names: Vec<String> = tables.iter().map(|name| quoted_literal(name)).collect();
    let (size, forks) = match function {
        "pg_relation_size" if has_forks => {
            ("pg_catalog.pg_relation_size(r.oid, f.fork)".to_owned(), "('main'), ('fsm'), ('vm'), ('init')")
        }
        _ => (format!("pg_catalog.{function}(r.oid)"), "('main')"),
    };
    format!(
        "WITH t AS (SELECT DISTINCT coalesce(p.relid::pg_catalog.oid, r.oid) AS oid \
         FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) n \
         CROSS JOIN LATERAL (SELECT pg_catalog.to_regclass(n)::pg_catalog.oid AS oid) r \
         LEFT JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) p ON true WHERE r.oid IS NOT NULL), \
         r AS (SELECT oid FROM t UNION SELECT i.indexrelid FROM pg_catalog.pg_index i JOIN t ON t.oid = i.indrelid) \
         SELECT pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(c.relname), f.fork, {size} \
         FROM r JOIN pg_catalog.pg_class c USING (oid) JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace \
         CROSS JOIN (VALUES {forks}) AS f (fork) WHERE {size} > 0",
        names.join(", ")
    )
}

/// Whether the session's role is kept from this one because that is a superuser's, and whether it may signal its sessions. No operator
/// of the client's own schemas has a say.
fn rights_over(user: &str) -> String {
    format!(
        "SELECT r.rolsuper AND NOT o.rolsuper, \
         pg_catalog.pg_has_role(r.oid, 'USAGE') OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') \
         FROM pg_catalog.pg_roles r, pg_catalog.pg_roles o \
         WHERE r.rolname OPERATOR(pg_catalog.=) {} AND o.rolname OPERATOR(pg_catalog.=) CURRENT_USER",
        quoted_literal(user)
    )
}

fn canceled() -> PgError {
    PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

/// A size that a shard could not read in time.
fn locked(failure: Failure, shard: &str) -> Failure {
    match failure {
        Failure::Shard(frame) if sqlstate(&frame) == Some(SqlState::LOCK_NOT_AVAILABLE) => {
            PgError::new(SqlState::LOCK_NOT_AVAILABLE, "the size of a table cannot be read while the table is locked")
                .with_detail(format!("A statement holds an ACCESS EXCLUSIVE lock on a sharded table on shard \"{shard}\"."))
                .with_hint("Retry it, or name the one table as a constant: then no other table is read.")
                .into()
        }
        other => other,
    }
}

fn not_permitted(is_end: bool, is_of_superuser: bool) -> PgError {
    let (message, of_superuser, of_others) = match is_end {
        true => (
            "permission denied to terminate process",
            "Only roles with the SUPERUSER attribute may terminate processes of roles with the SUPERUSER attribute.",
            "Only roles with privileges of the role whose process is being terminated or with privileges of the \"pg_signal_backend\" role may terminate this process.",
        ),
        false => (
            "permission denied to cancel query",
            "Only roles with the SUPERUSER attribute may cancel queries of roles with the SUPERUSER attribute.",
            "Only roles with privileges of the role whose query is being canceled or with privileges of the \"pg_signal_backend\" role may cancel this query.",
        ),
    };
    PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).with_detail(if is_of_superuser { of_superuser } else { of_others })
}

fn not_of_this_proxy(process: i32) -> PgError {
    PgError::unsupported(
        format!("process {process} is not a session of this proxy"),
        "A proxy can cancel and end its own sessions only, and there are others.",
        "Connect to the proxy that the client uses; SELECT * FROM shardgate.proxies lists them.",
    )
}

fn not_of_catalogue() -> PgError {
    PgError::unsupported(
        "pg_terminate_backend() and pg_cancel_backend() are not supported beside tables of users",
        "The proxy has to know all sessions that are meant before the statement gives its answer.",
        "Select the process ids from pg_stat_activity first, and give them as constants.",
    )
}

fn not_as_parameter() -> PgError {
    PgError::unsupported(
        "a parameter of this type is not supported beside pg_terminate_backend() and pg_cancel_backend()",
        "The proxy has to know all sessions that are meant before the statement gives its answer.",
        "Send the parameter as text.",
    )
}

/// Of this database and its processes, as other shards may be databases of the same server; with what the numbers of a database and a
/// relation mean, which differ from shard to shard.
const LOCKS: &str = "SELECT pg_catalog.to_jsonb(l) || pg_catalog.jsonb_build_object('is_own', coalesce(l.database = d.oid, false), \
     'is_asker', l.pid IS NOT DISTINCT FROM pg_catalog.pg_backend_pid(), \
     'relation_name', pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)) \
     FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database() \
     LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation AND l.database = d.oid \
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
     WHERE l.database = d.oid OR coalesce(l.database, 0) = 0 AND a.datid = d.oid";

/// For the statement behind it: no more than two seconds, and less where the session says so. A transaction keeps its own limit.
const LIMIT_LOCKS: &str = "SELECT pg_catalog.set_config('shardgate.lock_timeout', setting, true) \
     FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'lock_timeout';\
     SELECT pg_catalog.set_config('lock_timeout', CASE WHEN setting OPERATOR(pg_catalog.=) '0' THEN '2000' \
     ELSE least(setting::pg_catalog.int4, 2000)::pg_catalog.text END, true) \
     FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'lock_timeout'";

const UNLIMIT_LOCKS: &str =
    "SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('shardgate.lock_timeout'), true)";

const BLOCKING: &str = "SELECT l.pid, pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(l.pid), ',') \
     FROM (SELECT DISTINCT pid FROM pg_catalog.pg_locks WHERE NOT granted) l";

const DATABASE: &str = "SELECT d.datname, d.oid, pg_catalog.pg_database_size(d.oid) \
     FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";
