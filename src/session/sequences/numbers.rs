//! Numbers of cluster-wide sequences for the session's statements: drawn before a statement is routed, and put into its text.
//!
//! ```text
//!   text ─ sql::drawing ─► places ─ execute::numbers ─► numbers ─► the text with them ─► read, routed and run like any other
//! ```
//! In the extended protocol they are more parameters, so that a prepared statement stays one text. `currval` and `lastval` are
//! what this session was given here; where a shard has numbered rows by itself that is not known, and is refused rather than told
//! wrong. Sequences of the home shard keep their values on its connection: what another client has drawn there is never shown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::sequence_rights::Right;
use super::{altered, sequence_rights};
use crate::backend::StatementId;
use crate::catalog::SequenceName;
use crate::error::{PgError, SqlState};
use crate::execute::numbers::Restart;
use crate::session::commands::permitted;
use crate::session::ddl::redefined;
use crate::session::protocol::statement::Statement;
use crate::session::route::{Route, aside, is_read_here};
use crate::session::writes::staged::Asked;
use crate::session::writes::write::WritingKind;
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::oid::{INT2, INT4};
use crate::shardmap::TableKind;
use crate::sql::analysis::{Analysis, Numbers, SessionCall};
use crate::sql::parse::lexer;
use crate::sql::rewrite::drawing::{self, Drawing, Number};
use crate::wire::{self, shard_tag};

/// What the session has drawn.
#[derive(Default)]
pub(in crate::session) struct DrawnNumbers {
    current: HashMap<SequenceName, Current>,
    last: Last,
    /// How often numbers were drawn from the home shard's sequences.
    drawn_at_home: u64,
    /// Statements with their places for numbers, by the client's own.
    prepared: HashMap<StatementId, Prepared>,
    /// While a changed text runs: where its errors are in the client's.
    moved: Option<Numbered>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Number(i64),
    /// A shard has drawn since.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Number(SequenceName, i64),
    /// From a sequence of the home shard, whose connection knows.
    AtHome,
    Unknown,
}

#[derive(Clone)]
struct Prepared {
    statement: Arc<Statement>,
    drawing: Arc<Drawing>,
}

/// A text and its numbers.
#[derive(Clone, Debug)]
pub(in crate::session) struct Numbered {
    own: String,
    drawing: Drawing,
    written: Vec<String>,
}

impl Numbered {
    /// With the numbers in it.
    pub fn text(&self) -> String {
        self.drawing.text(&self.own, |ordinal| self.written(ordinal))
    }

    fn written(&self, ordinal: usize) -> String {
        self.written.get(ordinal).cloned().unwrap_or_default()
    }
}

impl DrawnNumbers {
    /// DISCARD SEQUENCES.
    pub fn discard(&mut self) {
        self.current.clear();
        self.last = Last::Nothing;
        // The connection that it has drawn on still knows its number.
        self.drawn_at_home += 1;
    }

    /// Shards have numbered rows by this sequence.
    pub fn by_shards(&mut self, sequence: &SequenceName) {
        self.last = Last::Unknown;
        self.current.insert(sequence.clone(), Current::Unknown);
    }

    fn note(&mut self, sequence: &SequenceName, number: i64) {
        self.last = Last::Number(sequence.clone(), number);
        self.current.insert(sequence.clone(), Current::Number(number));
    }

    fn current(&self, sequence: &SequenceName) -> Result<i64, PgError> {
        match self.current.get(sequence) {
            Some(Current::Number(number)) => Ok(*number),
            Some(Current::Unknown) => Err(not_seen("currval()")),
            None => Err(PgError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.1),
            )),
        }
    }
}

/// Before a statement runs along this route. One that is staged is told of when its rows are known.
pub(in crate::session) fn note_numbers_of(session: &mut Session, numbers: Numbers, route: &Route) {
    if !matches!(route, Route::Write(writing) if matches!(writing.kind, WritingKind::Staged(_))) {
        note_numbers(session, numbers);
    }
}

/// Before a statement runs whose numbers are drawn elsewhere than here.
fn note_numbers(session: &mut Session, numbers: Numbers) {
    match numbers {
        Numbers::None | Numbers::Drawn => {}
        Numbers::AtHome => {
            session.drawn.last = Last::AtHome;
            session.drawn.drawn_at_home += 1;
        }
        Numbers::Unseen => {
            session.drawn.last = Last::Unknown;
            session.drawn.current.values_mut().for_each(|current| *current = Current::Unknown);
        }
    }
}

/// Does the proxy draw the statement's numbers? Not where it goes to one shard unchanged, by a hint.
pub(in crate::session) fn draws(session: &Session, statement: &Analysis) -> bool {
    // COPY draws while its rows come.
    statement.numbers == Numbers::Drawn && statement.copy_in.is_none() && !is_hinted(session, statement)
}

/// It goes to one shard unchanged.
pub(in crate::session) fn is_hinted(session: &Session, statement: &Analysis) -> bool {
    statement.shard_hint.is_some() || session.effective("shardgate.shard").is_some_and(|shard| !shard.is_empty())
}

/// A text of the simple protocol with its numbers; `None`: it runs as it is.
pub(in crate::session) async fn draw_into(session: &mut Session, alone: &str) -> Result<Option<String>, Failure> {
    session.drawn.moved = draw(session, alone).await?;
    Ok(session.drawn.moved.as_ref().map(Numbered::text))
}

/// The numbers of a text; `None`: it runs as it is.
pub(in crate::session) async fn draw(session: &mut Session, alone: &str) -> Result<Option<Numbered>, Failure> {
    let drawing = drawing(session, alone).await?;
    Box::pin(may_draw(session, &drawing, alone, &Asked::Text { rows: None })).await?;
    let Some(numbers) = Box::pin(numbers_of(session, &drawing, alone)).await? else { return Ok(None) };
    let written = numbers.iter().map(ToString::to_string).collect();
    Ok(Some(Numbered { own: alone.to_owned(), drawing, written }))
}

async fn drawing(session: &Session, text: &str) -> Result<Drawing, PgError> {
    if is_read_here(text) {
        return drawing::drawing(text, &session.context);
    }
    let (text, context) = (text.to_owned(), Arc::clone(&session.context));
    aside(move || drawing::drawing(&text, &context)).await?
}

/// The changed text has been run.
pub(in crate::session) fn forget_moved(session: &mut Session) {
    session.drawn.moved = None;
}

/// An error's message with its place in the client's own text.
pub(in crate::session) fn with_own_position(session: &Session, frame: Bytes) -> Bytes {
    let Some(moved) = &session.drawn.moved else { return frame };
    with_position(frame, |position| moved.drawing.original_position(&moved.own, |ordinal| moved.written(ordinal), position))
}

/// In a transaction that has restarted the sequence its numbers begin anew; in one that has altered it they are its own.
async fn draw_numbers(session: &mut Session, sequence: &SequenceName, count: usize) -> Result<Vec<i64>, PgError> {
    if session.transaction.has_dropped(sequence) {
        return Err(super::altered::drawn_after_drop(&sequence.1));
    }
    if let Some(alteration) = session.transaction.alteration_of(sequence) {
        return alteration.draw(count);
    }
    altered::reopen_if_closed(session, sequence).await?;
    let restart = session.transaction.restart_of(sequence);
    let mut drawn: Vec<i64> =
        restart.map(|restart| std::iter::from_fn(|| restart.take()).take(count).collect()).unwrap_or_default();
    if drawn.len() < count {
        // It waits while somebody alters the sequence.
        let more = tokio::select! {
            biased;
            more = session.gateway.numbers.draw(sequence, count - drawn.len()) => more?,
            () = session.cancel.cancelled() => {
                return Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
            }
        };
        drawn.extend(more);
    }
    Ok(drawn)
}

/// The next number of a sequence.
pub(in crate::session) async fn draw_number(session: &mut Session, sequence: &SequenceName) -> Result<i64, PgError> {
    let number = draw_numbers(session, sequence, 1).await?.into_iter().next();
    let number = number.ok_or_else(|| PgError::internal("a number is missing"))?;
    session.drawn.note(sequence, number);
    Ok(number)
}

/// A Bind of a statement whose numbers are drawn: the statement with more parameters, and the Bind with their values.
pub(in crate::session) async fn draw_for_bind(
    session: &mut Session,
    statement: &Arc<Statement>,
    body: &[u8],
) -> Result<Option<(Arc<Statement>, Bytes)>, Failure> {
    let bind = wire::bind(body).map_err(SessionEnd::from)?;
    let prepared = match session.drawn.prepared.get(&statement.id) {
        Some(known) if known.statement.context_id == session.context.id => known.clone(),
        Some(_) | None => prepare_drawing(session, statement, bind.parameter_count).await?,
    };
    let description = session.describe(statement).await?;
    let asked = Asked::Bound { bind: &bind, description: &description };
    Box::pin(may_draw(session, &prepared.drawing, statement.text(), &asked)).await?;
    let Some(numbers) = Box::pin(numbers_of(session, &prepared.drawing, statement.text())).await? else { return Ok(None) };
    check_range(session, &prepared.statement, bind.parameter_count, &numbers).await?;
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Ok(Some((prepared.statement, with_more_parameters(&bind, &texts)?)))
}

/// A number that its column cannot hold is told in the words of its cast, and not in those of a parameter.
async fn check_range(session: &mut Session, statement: &Arc<Statement>, before: usize, numbers: &[i64]) -> Result<(), Failure> {
    if numbers.iter().all(|number| i32::try_from(*number).is_ok()) {
        return Ok(());
    }
    let description = Box::pin(session.describe(statement)).await?;
    for (number, type_oid) in numbers.iter().zip(description.parameter_types.iter().skip(before)) {
        let kind = match *type_oid {
            INT2 if i16::try_from(*number).is_err() => "smallint",
            INT4 if i32::try_from(*number).is_err() => "integer",
            _ => continue,
        };
        return Err(PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range")).into());
    }
    Ok(())
}

async fn prepare_drawing(session: &mut Session, statement: &Arc<Statement>, parameter_count: usize) -> Result<Prepared, Failure> {
    let drawing = Arc::new(drawing(session, statement.text()).await?);
    let count = parameter_count + drawing.numbers().count();
    if count > usize::from(u16::MAX) {
        return Err(PgError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many rows with numbers to be drawn in one statement")
            .with_detail("Each number that the proxy draws takes a parameter.")
            .with_hint("Insert fewer rows in one statement.")
            .into());
    }
    let text = drawing.text(statement.text(), |ordinal| format!("${}", parameter_count + ordinal + 1));
    let read = session.read(&text).await?;
    let mut types = statement.key.types.to_vec();
    if !types.is_empty() {
        types.resize(parameter_count, 0);
    }
    let key = session.statement_text(Bytes::from(text), types.into());
    let changed =
        Arc::new(Statement::new(session.gateway.registry.id(&key), key, read.analyzed, session.context.id, read.literals));
    let prepared = Prepared { statement: changed, drawing };
    if session.drawn.prepared.len() >= PREPARED_MAX {
        session.drawn.prepared.clear();
    }
    session.drawn.prepared.insert(statement.id, prepared.clone());
    Ok(prepared)
}

/// PostgreSQL looks at the rights to the statement's tables first.
async fn may_draw(session: &mut Session, drawing: &Drawing, text: &str, asked: &Asked<'_>) -> Result<(), Failure> {
    let may = match sequence_rights::check_rights_of(session, drawing).await {
        Ok(()) if permitted::is_read_only(session) && drawing.numbers().any(|number| matches!(number, Number::Next(_))) => {
            let message = "cannot execute nextval() in a read-only transaction";
            Err(PgError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into())
        }
        may => may,
    };
    if may.is_err() {
        permitted::check_not_read_only(session, text)?;
        permitted::check_privileges(session, text, asked).await?;
    }
    may
}

/// The numbers in their order. `None`: the statement runs as it is: `lastval` of the home shard's connection, or no number
/// can be drawn now and the shards have some of their own.
async fn numbers_of(session: &mut Session, drawing: &Drawing, text: &str) -> Result<Option<Vec<i64>>, Failure> {
    let mut wanted: Vec<(&SequenceName, usize)> = Vec::new();
    // What is set on the way is drawn from then, one after the other.
    let set: HashSet<&SequenceName> = drawing
        .numbers()
        .filter_map(|number| match number {
            Number::Set { sequence, .. } => Some(sequence),
            Number::Next(_) | Number::Identity(_) | Number::Current(_) | Number::Last | Number::Unique => None,
        })
        .collect();
    let is_set = |sequence: &SequenceName| set.contains(sequence);
    for number in drawing.numbers() {
        match number {
            Number::Next(sequence) | Number::Identity(sequence) if is_set(sequence) => {}
            Number::Next(sequence) | Number::Identity(sequence) => match wanted.iter_mut().find(|(known, _)| *known == sequence) {
                Some((_, count)) => *count += 1,
                None => wanted.push((sequence, 1)),
            },
            Number::Last if session.drawn.last == Last::AtHome => return Ok(None),
            Number::Current(_) | Number::Last | Number::Unique | Number::Set { .. } => {}
        }
    }
    let mut drawn = Vec::with_capacity(wanted.len());
    for (sequence, count) in wanted {
        match draw_numbers(session, sequence, count).await {
            Ok(numbers) => drawn.push((sequence, numbers.into_iter())),
            Err(error) if error.code == SqlState::CANNOT_CONNECT_NOW && !shards_can_number(session, drawing, text) => {
                return Err(PgError { code: SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, ..error }.into());
            }
            Err(error) if error.code == SqlState::CANNOT_CONNECT_NOW && session.transaction.restarts.is_empty() => {
                tracing::debug!(%error, "numbers are left to the shard");
                note_numbers(session, Numbers::Unseen);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut numbers = Vec::new();
    for number in drawing.numbers() {
        numbers.push(match number {
            Number::Next(sequence) | Number::Identity(sequence) if is_set(sequence) => draw_number(session, sequence).await?,
            Number::Next(sequence) | Number::Identity(sequence) => {
                let next = drawn.iter_mut().find(|(known, _)| *known == sequence).and_then(|(_, numbers)| numbers.next());
                let next = next.ok_or_else(|| PgError::internal("a number is missing"))?;
                session.drawn.note(sequence, next);
                next
            }
            Number::Current(sequence) => session.drawn.current(sequence)?,
            Number::Last => {
                let (sequence, number) = last_number(session)?;
                sequence_rights::check_right(session, &sequence, Right::Look).await?;
                number
            }
            Number::Unique => next_unique_id(session).await?,
            Number::Set { sequence, number, is_called } => {
                check_not_restarted(session, sequence)?;
                Box::pin(set_number(session, sequence, *number, *is_called)).await?;
                *number
            }
        });
    }
    Ok(Some(numbers))
}

/// What a shard holds are numbers for the defaults of its rows: none of `nextval`, nor of a key, by which the shard is found.
fn shards_can_number(session: &Session, drawing: &Drawing, text: &str) -> bool {
    let calls_nextval = lexer::tokens(text).any(|token| {
        let word = text.get(token.start..token.end).unwrap_or_default();
        word.trim_matches('"').eq_ignore_ascii_case("nextval")
    });
    let is_of_key = |sequence: &SequenceName| {
        session.context.map.tables.values().any(|table| {
            let relation = session.context.catalog.resolve(Some(&table.schema), &table.name, &[]);
            let draws = |column: &str| relation.and_then(|of| of.column(column)?.cluster_sequence()).as_ref() == Some(sequence);
            matches!(&table.kind, TableKind::Sharded { key, .. } if key.iter().any(|key| draws(&key.column)))
        })
    };
    let mut drawn = drawing.numbers().filter_map(|number| match number {
        Number::Next(sequence) | Number::Identity(sequence) => Some(sequence),
        Number::Set { .. } | Number::Current(_) | Number::Last | Number::Unique => None,
    });
    !calls_nextval && !drawn.any(is_of_key)
}

/// Waits for the map no longer than the client does.
pub(in crate::session) async fn next_unique_id(session: &Session) -> Result<i64, Failure> {
    let patience = redefined::patience(session);
    tokio::select! {
        biased;
        id = session.gateway.control.unique_id() => Ok(id?),
        failure = patience.ends(&session.cancel) => Err(failure.into()),
    }
}

pub(in crate::session) fn check_not_restarted(session: &mut Session, sequence: &SequenceName) -> Result<(), PgError> {
    let set = |_: &mut Restart| Err(super::restarts::not_after_restart("setval()", &sequence.1));
    session.transaction.restart_of(sequence).map_or(Ok(()), set)
}

/// For everybody, at once; in a transaction that has altered the sequence, with that.
pub(in crate::session) async fn set_number(
    session: &mut Session,
    sequence: &SequenceName,
    number: i64,
    is_called: bool,
) -> Result<(), Failure> {
    sequence_rights::check_right(session, sequence, Right::Set).await?;
    if permitted::is_read_only(session) {
        let message = "cannot execute setval() in a read-only transaction";
        return Err(PgError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
    }
    if let Some(alteration) = session.transaction.alteration_of(sequence) {
        alteration.set(number, is_called)?;
    } else {
        altered::reopen_if_closed(session, sequence).await?;
        Box::pin(session.gateway.numbers.set(&session.login.identity.user, sequence, number, is_called)).await?;
    }
    if is_called {
        session.drawn.current.insert(sequence.clone(), Current::Number(number));
        // lastval() is currval() of the sequence that was drawn from last.
        if let Last::Number(last, known) = &mut session.drawn.last
            && last == sequence
        {
            *known = number;
        }
    }
    Ok(())
}

fn last_number(session: &Session) -> Result<(SequenceName, i64), PgError> {
    match &session.drawn.last {
        Last::Number(sequence, number) => Ok((sequence.clone(), *number)),
        Last::Nothing => {
            Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session"))
        }
        Last::Unknown => Err(not_seen("lastval()")),
        Last::AtHome => Err(PgError::internal("the home shard's connection knows lastval")),
    }
}

/// A statement runs on a shard as it is: what it draws is drawn there.
#[inline]
pub(in crate::session) fn note_drawn_there(session: &mut Session, index: usize, statement: &Analysis) {
    match statement.numbers {
        Numbers::None => {}
        Numbers::Drawn | Numbers::Unseen if statement.session_calls.contains(&SessionCall::SequenceValue) => {}
        Numbers::Drawn | Numbers::Unseen => note_numbers(session, Numbers::Unseen),
        Numbers::AtHome => {
            note_numbers(session, Numbers::AtHome);
            if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
                participant.connection.drawn_by = Some((session.login.cancel_key.0, session.drawn.drawn_at_home));
            }
        }
    }
}

/// `currval` and `lastval` of the home shard's sequences: only on a connection on which this session was the last to draw.
pub(in crate::session) fn check_sequence_value(session: &mut Session, index: usize, statement: &Analysis) -> Result<(), PgError> {
    let Some(participant) = session.transaction.participants().get(index) else { return Ok(()) };
    let own = (session.login.cancel_key.0, session.drawn.drawn_at_home);
    let is_own = session.drawn.drawn_at_home > 0 && participant.connection.drawn_by == Some(own);
    let draws = statement.numbers == Numbers::AtHome;
    if draws || is_own || !statement.session_calls.contains(&SessionCall::SequenceValue) {
        return Ok(());
    }
    Err(PgError::unsupported(
        "currval() and lastval() are not supported here",
        "The session's number was drawn on another connection, or was not drawn yet.",
        "Use RETURNING, or ask in the transaction that draws the number, or set pool.mode = \"session\".",
    ))
}

/// An error or a notice with another position, if it has one.
pub(in crate::session) fn with_position(frame: Bytes, place: impl Fn(usize) -> usize) -> Bytes {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return frame };
    let position = fields.get(b'P').and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| text.parse::<usize>().ok());
    let Some(position) = position else { return frame };
    let own = place(position);
    let mut changed = BytesMut::with_capacity(body.len());
    for field in body.split(|byte| *byte == 0).filter(|field| !field.is_empty()) {
        match field.first() {
            Some(b'P') => {
                changed.put_u8(b'P');
                changed.put_slice(own.to_string().as_bytes());
            }
            _ => changed.put_slice(field),
        }
        changed.put_u8(0);
    }
    changed.put_u8(0);
    crate::session::protocol::describe::frame(frame.first().copied().unwrap_or(shard_tag::ERROR), &changed)
}

fn not_seen(function: &str) -> PgError {
    PgError::unsupported(
        format!("{function} is not known"),
        "A shard has numbered rows by itself since, in a statement of this session.",
        "Use RETURNING.",
    )
}

/// The body of a Bind with these values after the client's own, as text.
pub(in crate::session) fn with_more_parameters(bind: &wire::Bind<'_>, values: &[String]) -> Result<Bytes, PgError> {
    let count = bind.parameter_count + values.len();
    let too_many = || PgError::internal("too many parameters");
    let mut body = BytesMut::new();
    for name in [bind.portal, bind.statement] {
        body.put_slice(name);
        body.put_u8(0);
    }
    let formats: Vec<bool> = bind.parameters().map(|(format, _)| format == crate::shard_key::Format::Binary).collect();
    body.put_u16(u16::try_from(count).map_err(|_| too_many())?);
    formats.iter().for_each(|is_binary| body.put_u16(u16::from(*is_binary)));
    values.iter().for_each(|_| body.put_u16(0));
    body.put_u16(u16::try_from(count).map_err(|_| too_many())?);
    for (_, value) in bind.parameters() {
        match value {
            None => body.put_i32(-1),
            Some(value) => put_value(&mut body, value)?,
        }
    }
    for value in values {
        put_value(&mut body, value.as_bytes())?;
    }
    body.put_u16(u16::try_from(bind.result_formats.len() / 2).map_err(|_| too_many())?);
    body.put_slice(bind.result_formats);
    Ok(body.freeze())
}

fn put_value(body: &mut BytesMut, value: &[u8]) -> Result<(), PgError> {
    body.put_i32(i32::try_from(value.len()).map_err(|_| PgError::internal("a parameter is too long"))?);
    body.put_slice(value);
    Ok(())
}

/// Statements whose places for numbers are kept.
const PREPARED_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_parameters_come_after_the_clients_own() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x0242\xff\xff\xff\xff\0\x01\0\x01";
        let more = with_more_parameters(&wire::bind(body).unwrap(), &["17".into(), "-5".into()]).unwrap();
        let bind = wire::bind(&more).unwrap();
        assert_eq!((bind.portal, bind.statement, bind.parameter_count), (&b"p"[..], &b"s"[..], 4));
        let values: Vec<_> = bind.parameters().map(|(format, value)| (format == crate::shard_key::Format::Binary, value)).collect();
        let expected: Vec<(bool, Option<&[u8]>)> =
            vec![(true, Some(b"42")), (true, None), (false, Some(b"17")), (false, Some(b"-5"))];
        assert_eq!(values, expected);
        assert_eq!(bind.result_formats, [0, 1]);
    }
}
