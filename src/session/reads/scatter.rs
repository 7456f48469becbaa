//! Statements that do not run on one shard: several shards, their answers merged.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::ask::Request;
use super::last_step::Asked;
use super::{ask, last_step, lock_rows, reference_keys};
use crate::backend::Own;
use crate::error::{PgError, SqlState, capitalised};
use crate::execute::{Printing, RowSink, Rows, Spec};
use crate::plan::{self, Gathering};
use crate::routing::{Inputs, Reach};
use crate::session::commands::question;
use crate::session::protocol::client::Client;
use crate::session::protocol::statement::Statement;
use crate::session::reads;
use crate::session::route::Route;
use crate::session::writes::staged::sqlstate;
use crate::session::writes::write;
use crate::session::{Failure, Session, SessionEnd};
use crate::sql::analysis::{Analysis, Combine, Count, Merge};
use crate::sql::gather;
use crate::sql::residues::{Covered, cover};
use crate::sql::rewrite::blanks::in_its_place;
use crate::sql::rewrite::clock;

use crate::wire::{self, FieldDescription, originate};

/// What came of a statement on several shards.
pub(in crate::session) enum Scattered {
    Answered,
    /// Groups are whole, and PostgreSQL makes the answer of them by this query.
    LastStep(String),
    /// Nothing was sent to the client: the answers cannot be merged exactly after all.
    NotMerged(PgError),
}

impl RowSink for Client {
    type Gone = SessionEnd;

    fn buffer(&mut self) -> &mut BytesMut {
        match &mut self.copy_rows {
            Some(copy) => &mut copy.frames,
            None => &mut self.output,
        }
    }

    fn note_proven(&mut self) {
        self.map_until_proven = None;
    }

    async fn send(&mut self) -> Result<(), SessionEnd> {
        if let Some(copy) = &mut self.copy_rows {
            copy.turn(&mut self.output);
        }
        self.flush().await
    }
}

/// Who asks for an answer over several shards.
#[derive(Clone, Copy)]
pub(in crate::session) enum Asker<'a> {
    /// A Query, of a statement that nobody has described.
    Query { statement: &'a Analysis, text: &'a str },
    /// A portal, a cursor or an EXECUTE. `describes`: in the simple protocol, which wants to know the columns.
    Bound { statement: &'a Arc<Statement>, bind: &'a wire::Bind<'a>, describes: bool },
}

/// What each shard is to run.
enum Fragment {
    Text(String),
    Prepared(Arc<Statement>),
}

impl Fragment {
    fn text(&self) -> &str {
        match self {
            Fragment::Text(text) => text,
            Fragment::Prepared(statement) => statement.text(),
        }
    }
}

impl<'a> Asker<'a> {
    fn statement(&self) -> Result<&'a Analysis, PgError> {
        match self {
            Asker::Query { statement, .. } => Ok(statement),
            Asker::Bound { statement, .. } => {
                statement.analysis().ok_or_else(|| PgError::internal("an empty statement on several shards"))
            }
        }
    }

    fn text(&self) -> &'a str {
        match self {
            Asker::Query { text, .. } => text,
            Asker::Bound { statement, .. } => statement.text(),
        }
    }

    fn describes(&self) -> bool {
        matches!(self, Asker::Query { .. } | Asker::Bound { describes: true, .. })
    }

    /// Values in place of `$n`; there are none in a Query.
    fn has_parameters(&self) -> bool {
        matches!(self, Asker::Bound { bind, .. } if bind.parameter_count > 0)
    }

    /// Of a Bind, what comes after its names; all but what `merge` hides goes to the client.
    fn after_names(&self, merge: &Merge) -> Vec<u8> {
        match self {
            Asker::Query { .. } => originate::BIND_NOTHING.to_vec(),
            Asker::Bound { bind, .. } if has_last_step(merge) => bind.with_result_formats(&[]),
            Asker::Bound { bind, .. } => with_hidden_formats(bind, merge.hidden_columns),
        }
    }
}

/// A statement of the simple protocol, where it was routed to.
pub(in crate::session) async fn run_by_route(
    session: &mut Session,
    route: Route,
    statement: &Analysis,
    text: &str,
    inputs: &Inputs<'_>,
) -> Result<(), Failure> {
    match route {
        Route::Shard(reach) => session.run_on_shard(&reach, statement, text).await,
        Route::Scatter(reach) if locks_rows(statement) => Box::pin(lock_text(session, &reach, statement, text)).await,
        // A Query has no parameters: PostgreSQL refuses it, at home as well as anywhere.
        Route::Scatter(_) if statement.parameter_count > 0 => {
            let home = session.home()?;
            let alone = in_its_place(text, statement.start, statement.alone(text));
            Box::pin(question::ask_question(session, &home, &Own::Plan.text(&alone))).await?;
            Err(PgError::internal("a Query with parameters was answered").into())
        }
        Route::Scatter(reach) => Box::pin(scatter(session, Asker::Query { statement, text }, inputs, &reach)).await,
        Route::Write(writing) => Box::pin(write::write_text(session, &writing, statement, text)).await,
        Route::Gather(gathering) => gather_for(session, Asker::Query { statement, text }, &gathering).await,
    }
}

/// Execute of a portal over several shards, or what asks like one.
pub(in crate::session) async fn scatter_bound(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
    reach: &Reach,
    describes: bool,
) -> Result<(), Failure> {
    let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement scattered"))?;
    if locks_rows(analysis) {
        return match describes {
            true => Box::pin(lock_rows::lock_rows_alone(session, statement, bind, reach)).await,
            false => Box::pin(lock_rows::lock_rows_bound(session, statement, bind, reach)).await,
        };
    }
    let description = session.describe(statement).await?;
    session.check_parameters(bind, &description.parameter_types)?;
    let inputs = Inputs::bound(statement.text(), &statement.literals, bind, &description.parameter_types);
    Box::pin(scatter(session, Asker::Bound { statement, bind, describes }, &inputs, reach)).await
}

/// Asks the shards, and merges what they answer. Where that cannot be merged after all, PostgreSQL computes over gathered rows.
async fn scatter(session: &mut Session, asker: Asker<'_>, inputs: &Inputs<'_>, reach: &Reach) -> Result<(), Failure> {
    let statement = asker.statement()?;
    let scattered = match scattered(session, asker, inputs, reach).await {
        Err(Failure::Shard(frame)) if matches!(asker, Asker::Query { .. }) => {
            return Err(told_of_the_text(session, frame, statement, asker.text()).await);
        }
        scattered => scattered?,
    };
    match scattered {
        Scattered::Answered => Ok(()),
        Scattered::LastStep(_) => Err(PgError::internal("a last step after the last step").into()),
        Scattered::NotMerged(reason) => {
            let gathering = instead(session, reach.clone(), statement, asker.text(), reason)?;
            gather_for(session, asker, &gathering).await
        }
    }
}

async fn scattered(session: &mut Session, asker: Asker<'_>, inputs: &Inputs<'_>, reach: &Reach) -> Result<Scattered, Failure> {
    let merge = asker.statement()?.merge.clone()?;
    let mut spec = Spec { describes: asker.describes(), ..spec(session, &merge, inputs)? };
    if let Asker::Bound { statement, describes, .. } = asker {
        let description = session.describe(statement).await?;
        spec.told = Some(description.columns());
        if describes {
            spec.described = description.fields()?.map(Arc::from);
        }
    }
    let fragment = match fragment(session, asker, &merge, reach).await {
        Ok(fragment) => fragment,
        Err(Failure::Error(refusal)) => return Ok(Scattered::NotMerged(refusal)),
        Err(failure) => return Err(failure),
    };
    let keyed = match asker.has_parameters() {
        true => None,
        false => Box::pin(reference_keys::with_reference_keys(session, fragment.text(), &merge, reach)).await?,
    };
    let is_keyed = keyed.is_some();
    let fragment = keyed.map_or(fragment, Fragment::Text);
    let after_names = asker.after_names(&merge);
    let scattered = match (&fragment, asker) {
        (Fragment::Prepared(fragment), Asker::Bound { bind, .. }) => {
            ask::ask_several(session, reach, &Request::Bound { fragment, bind, after_names: &after_names }, &spec).await
        }
        (fragment, _) => {
            let covered = cover(fragment.text().to_owned(), &session.context, reach.map())?;
            let request = match asker {
                Asker::Query { statement, text } => {
                    spec.described = Box::pin(columns_of_views(session, &covered, statement.alone(text))).await?.map(Arc::from);
                    Request::Text(&covered)
                }
                Asker::Bound { .. } => Request::Unnamed { text: &covered, after_names: &after_names },
            };
            ask::ask_several(session, reach, &request, &spec).await
        }
    };
    if is_keyed {
        reference_keys::end_snapshots(session, reach.shards()).await;
    }
    match scattered? {
        Scattered::LastStep(text) => last_step_for(session, asker, &text, reach).await,
        scattered => Ok(scattered),
    }
}

async fn last_step_for(session: &mut Session, asker: Asker<'_>, text: &str, reach: &Reach) -> Result<Scattered, Failure> {
    let shard = reach.shards().first().copied().ok_or_else(|| PgError::internal("no shard"))?;
    let (description, after_names) = match asker {
        Asker::Query { statement, text } => {
            let prepared = session.prepare(statement.alone(text).as_bytes(), Box::default()).await?;
            (session.describe(&prepared).await?, originate::BIND_NOTHING)
        }
        Asker::Bound { statement, bind, .. } => (session.describe(statement).await?, bind.after_names),
    };
    let asked = Asked { description: &description, after_names, map: reach.map(), describes: asker.describes() };
    last_step::run_last_step(session, shard, text, asked).await
}

async fn gather_for(session: &mut Session, asker: Asker<'_>, gathering: &Gathering) -> Result<(), Failure> {
    match asker {
        Asker::Query { statement, text } => reads::gather::gather_text(session, gathering, statement, text).await,
        Asker::Bound { statement, bind, describes } => {
            reads::gather::gather_bound(session, statement, bind, gathering, describes).await
        }
    }
}

/// The columns by the client's own text, where the text that runs names covering views. `None`: it names none.
pub(in crate::session) async fn columns_of_views(
    session: &mut Session,
    covered: &Covered,
    alone: &str,
) -> Result<Option<Vec<FieldDescription>>, Failure> {
    if !covered.names_views() {
        return Ok(None);
    }
    let prepared = session.prepare(alone.as_bytes(), Box::default()).await?;
    let description = session.describe(&prepared).await?;
    Ok(description.fields()?)
}

async fn lock_text(session: &mut Session, reach: &Reach, statement: &Analysis, text: &str) -> Result<(), Failure> {
    let prepared = session.prepare(statement.alone(text).as_bytes(), Box::default()).await?;
    // An empty portal, an empty statement name, no parameters, results in text.
    let bind = wire::bind(b"\0\0\0\0\0\0\0\0").map_err(|error| PgError::internal(error.to_string()))?;
    match Box::pin(lock_rows::lock_rows_alone(session, &prepared, &bind, reach)).await {
        Err(Failure::Shard(frame)) => Err(told_of_the_text(session, frame, statement, text).await),
        locked => locked,
    }
}

/// The next rung of the ladder, for answers that turned out not to be mergeable; otherwise the reason.
pub(in crate::session) fn instead(
    session: &Session,
    reach: Reach,
    statement: &Analysis,
    text: &str,
    reason: PgError,
) -> Result<Gathering, Failure> {
    let recipe = |home| gather::recipe(statement.alone(text), &session.context, session.temporary_tables.shapes(), home);
    plan::gather(reach, &session.transaction_scope(), recipe).map_err(|_| reason.into())
}

/// An error that a shard has found in what was made of the client's text: in PostgreSQL's words for the text itself.
pub(in crate::session) async fn told_of_the_text(session: &mut Session, frame: Bytes, statement: &Analysis, text: &str) -> Failure {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return Failure::Shard(frame) };
    if fields.get(b'P').is_none() {
        return Failure::Shard(frame);
    }
    let alone = in_its_place(text, statement.start, statement.alone(text));
    match session.describe_apart(alone.as_bytes()).await {
        Err(Failure::Shard(said)) if sqlstate(&said) != Some(SqlState::LOCK_NOT_AVAILABLE) => Failure::Shard(said),
        // It is right in itself: the place is in a text that the client has not written.
        Ok(_) | Err(_) => Failure::Shard(without_position(body)),
    }
}

/// What each of the shards runs. That of a prepared statement is the same each time unless it reads the clock, and then kept with it.
async fn fragment(session: &mut Session, asker: Asker<'_>, merge: &Merge, reach: &Reach) -> Result<Fragment, Failure> {
    let text = |analysis| fragment_text(analysis, merge, asker.text());
    let statement = match asker {
        Asker::Query { statement, .. } => {
            return Ok(Fragment::Text(session.with_instant(text(statement), reach.shards()).await?));
        }
        Asker::Bound { statement, .. } => statement,
    };
    let is_the_same = |known: &&Arc<Statement>| {
        session.means_the_same(known) && known.covered.as_ref().is_some_and(|covered| covered.is_for(reach.map()))
    };
    if let Some(known) = statement.fragment.load().as_ref().filter(is_the_same) {
        return Ok(Fragment::Prepared(Arc::clone(known)));
    }
    let text = text(asker.statement()?);
    let reads_clock = clock::mentions_clock(&text);
    let text = session.with_instant(text, reach.shards()).await?;
    let types = &session.describe(statement).await?.parameter_types;
    let fragment = Arc::new(session.fragment_of_text(statement, text, types, reach)?);
    if !reads_clock {
        statement.fragment.store(Some(Arc::clone(&fragment)));
    }
    Ok(Fragment::Prepared(fragment))
}

pub(in crate::session) fn spec(session: &Session, merge: &Arc<Merge>, inputs: &Inputs<'_>) -> Result<Spec, PgError> {
    let bytes_max = session.gateway.config.cross_shard.merge_bytes_max;
    // From 1 on, which is the default, every float is printed so that it can be told from any other.
    let shows_all = |digits: &str| digits.trim().parse::<i32>().is_ok_and(|digits| digits >= 1);
    let cuts_floats = session.effective("extra_float_digits").is_some_and(|digits| !shows_all(digits));
    let combine_bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let printing = Printing {
        cuts_floats,
        escapes_bytes: session.effective("bytea_output").is_some_and(|form| form != "hex"),
        recodes_text: !session.reads_utf8(),
    };
    Ok(Spec { combine_bytes_max, printing, ..asked_rows(merge, inputs)? })
}

fn locks_rows(statement: &Analysis) -> bool {
    statement.merge.as_ref().is_ok_and(|merge| merge.locking.is_some())
}

/// What each shard runs: the statement alone, with its pieces replaced.
pub(in crate::session) fn fragment_text(statement: &Analysis, merge: &Merge, text: &str) -> String {
    match &merge.fragment {
        Some(fragment) => fragment.of(text, statement.start..statement.end),
        None => text.get(statement.start..statement.end).unwrap_or(text).to_owned(),
    }
}

fn asked_rows(merge: &Arc<Merge>, inputs: &Inputs<'_>) -> Result<Spec, PgError> {
    let value = |count: &Option<Count>, code: &[u8; 5], name: &str| match count {
        None => Ok(Rows::Unsaid),
        Some(Count::Column(column)) => Ok(Rows::Column(*column)),
        Some(count) => {
            let negative = |_| PgError::new(SqlState(*code), format!("{name} must not be negative"));
            inputs.count(count)?.map_or(Ok(Rows::Unsaid), |count| u64::try_from(count).map(Rows::Known).map_err(negative))
        }
    };
    // In this order PostgreSQL looks at them.
    let offset = value(&merge.offset, b"2201X", "OFFSET")?;
    Ok(Spec {
        merge: Arc::clone(merge),
        limit: value(&merge.limit, b"2201W", "LIMIT")?,
        offset,
        combine_bytes_max: 0,
        hidden_columns: merge.hidden_columns,
        describes: false,
        told: None,
        described: None,
        printing: Printing::default(),
    })
}

/// What the shards answer is for the last step to read.
pub(in crate::session) fn has_last_step(merge: &Merge) -> bool {
    matches!(&merge.combine, Some(Combine::Groups(groups)) if groups.last_step.is_some())
}

/// The rest of a Bind whose result formats are given one by one: text for the columns that were added.
pub(in crate::session) fn with_hidden_formats(bind: &wire::Bind<'_>, hidden: usize) -> Vec<u8> {
    let given = bind.result_formats.len() / 2;
    if hidden == 0 || given <= 1 {
        return bind.after_names.to_vec();
    }
    bind.with_result_formats(&[bind.result_formats, &vec![0; 2 * hidden]].concat())
}

/// SQLSTATE class 22.
pub(in crate::session) fn is_data_error(frame: &[u8]) -> bool {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    wire::error_fields(body).is_ok_and(|fields| fields.sqlstate().is_some_and(|sqlstate| sqlstate.starts_with(b"22")))
}

/// An error that a shard has found, perhaps in a row that is excluded: PostgreSQL evaluates the cheaper condition first.
pub(in crate::session) fn of_moving_rows(frame: &[u8]) -> PgError {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let message = wire::error_fields(body).map(|fields| fields.message().to_owned()).unwrap_or_default();
    PgError::new(SqlState::SERIALIZATION_FAILURE, "could not evaluate the statement while rows of its tables are being moved")
        .with_detail(format!("A shard says: {message}. It may be of a row that belongs to another shard."))
        .with_hint("Repeat the transaction.")
}

/// With a position it is of the text, and not of a row.
pub(in crate::session) fn may_be_of_excluded(frame: &[u8], covering: Option<&Covered>) -> bool {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let is_of_row = || wire::error_fields(body).is_ok_and(|fields| fields.get(b'P').is_none());
    covering.is_some_and(Covered::may_evaluate_excluded) && is_data_error(frame) && is_of_row()
}

/// What a shard has against a text, in positions of the text that was covered.
pub(in crate::session) fn failure_of_covered(frame: Bytes, covering: Option<&Covered>) -> Failure {
    match covering.filter(|covered| covered.is_altered()) {
        Some(_) if may_be_of_excluded(&frame, covering) => of_moving_rows(&frame).into(),
        Some(covered) => Failure::Shard(with_position(frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default(), |position| {
            covered.position_before(position)
        })),
        None => Failure::Shard(frame),
    }
}

pub(in crate::session) fn without_position(body: &[u8]) -> Bytes {
    with_position(body, |_| 0)
}

/// The error with its position changed; 0 leaves it out.
fn with_position(body: &[u8], place: impl Fn(usize) -> usize) -> Bytes {
    let Ok(fields) = wire::error_fields(body) else { return crate::session::protocol::describe::error_frame(body) };
    let mut kept = Vec::with_capacity(body.len());
    for (code, value) in fields.iter() {
        let position = std::str::from_utf8(value).ok().filter(|_| code == b'P').and_then(|text| text.parse().ok()).map(&place);
        if position == Some(0) {
            continue;
        }
        kept.push(code);
        match position {
            Some(position) => kept.extend_from_slice(position.to_string().as_bytes()),
            None => kept.extend_from_slice(value),
        }
        kept.push(0);
    }
    kept.push(0);
    crate::session::protocol::describe::error_frame(&kept)
}

/// The shard's own error, with the shard named in its context.
pub(in crate::session) fn with_shard_named(frame: &[u8], shard: &str) -> Bytes {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return Bytes::copy_from_slice(frame) };
    let mut named = Vec::with_capacity(body.len() + shard.len() + 16);
    let mut context = fields.get(b'W').map(|context| [context, b"\n"].concat()).unwrap_or_default();
    context.extend_from_slice(format!("shard \"{shard}\"").as_bytes());
    for (code, value) in fields.iter().filter(|(code, _)| *code != b'W').chain([(b'W', context.as_slice())]) {
        named.push(code);
        named.extend_from_slice(value);
        named.push(0);
    }
    named.push(0);
    crate::session::protocol::describe::error_frame(&named)
}

pub(in crate::session) fn inexact(reason: &str) -> PgError {
    PgError::unsupported(
        "rows of several shards cannot be combined exactly",
        format!("{}.", capitalised(reason)),
        "Add a condition on the shard key, or group and select by the whole shard key.",
    )
}
