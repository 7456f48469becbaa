//! DECLARE, FETCH, MOVE and CLOSE of cursors over several shards, in either protocol.
//!
//! What is not about such a cursor is left alone: it goes to the shard where its cursor is, or would be.

use std::sync::Arc;

use bytes::Bytes;

use super::super::route::Route;
use super::super::{Failure, Session};
use super::held::not_held;
use super::merged::{MergedCursor, NotMerged};
use super::{Cursor, Life, Source, already_exists};
use super::{gathered, held, merged, whereabouts};
use crate::error::{PgError, SqlState};
use crate::execute::gather::{Fetch, Opening};
use crate::plan::Gathering;
use crate::routing::{Inputs, Reach};
use crate::session::commands::command;
use crate::session::commands::inner_query::Bound;
use crate::session::cursor;
use crate::session::protocol::describe::put_with_formats;
use crate::session::protocol::portals::cannot_be_run;
use crate::session::protocol::statement::Statement;
use crate::session::reads::scatter;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Motion, Scroll};
use crate::sql::rewrite::blanks::in_its_place;
use crate::wire::{self, originate};

/// What DECLARE says.
struct Declared<'a> {
    name: &'a str,
    is_hold: bool,
    is_binary: bool,
    scroll: Scroll,
    /// The text up to the query.
    before: &'a str,
}

/// Where its rows come from.
enum Target {
    /// One shard, which has the cursor itself. `None`: which refuses it.
    Shard(Option<ShardId>),
    Scatter(Reach),
    Gather(Arc<Gathering>),
}

/// Runs the statement when it is about a cursor over several shards. False: it is not.
pub(in crate::session) async fn cursor_command(
    session: &mut Session,
    statement: &Analysis,
    text: &str,
    bound: Bound<'_>,
) -> Result<bool, Failure> {
    match &statement.command {
        Command::DeclareCursor { name, is_hold, is_binary, scroll, start } => {
            let before = text.get(statement.start..*start).unwrap_or_default();
            let declared = Declared { name, is_hold: *is_hold, is_binary: *is_binary, scroll: *scroll, before };
            Box::pin(declare_cursor(session, &declared, statement, text, bound)).await
        }
        Command::Fetch { name, motion, is_move } => {
            let name = Bytes::copy_from_slice(name.as_bytes());
            let Some(cursor) = session.open_cursors.by_name.remove(&name) else { return Ok(false) };
            Box::pin(fetch_cursor(session, name, cursor, (*motion, *is_move), statement.alone(text), bound)).await?;
            Ok(true)
        }
        Command::CloseCursor(Some(name)) => {
            if !is_here(session, name) {
                return Ok(false);
            }
            cursor::close_cursor(session, name.as_bytes()).await?;
            session.portals.remove(name.as_bytes());
            originate::command_complete(&mut session.client.output, "CLOSE CURSOR");
            Ok(true)
        }
        Command::CloseCursor(None) if has_cursors_elsewhere(session) => close_all_cursors(session).await.map(|()| true),
        _ => Ok(false),
    }
}

/// At Bind: will [`cursor_command`] run it?
pub(in crate::session) async fn is_cursor_here(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<bool, Failure> {
    let Some(analysis) = statement.analysis() else { return Ok(false) };
    match &analysis.command {
        Command::Fetch { name, .. } => Ok(session.open_cursors.contains(name.as_bytes())),
        Command::CloseCursor(Some(name)) => Ok(is_here(session, name)),
        Command::CloseCursor(None) => Ok(has_cursors_elsewhere(session)),
        Command::DeclareCursor { name, start, .. } => {
            if session.open_cursors.contains(name.as_bytes()) {
                return Ok(true);
            }
            let query = alone_in_its_place(session, *start, analysis, statement.text(), Some((statement, bind))).await?;
            Ok(match cursor_target(session, &query, Some(bind)).await {
                Ok(Target::Shard(shard)) => is_declared_elsewhere(session, name, shard),
                Ok(Target::Scatter(_) | Target::Gather(_)) | Err(_) => true,
            })
        }
        _ => Ok(false),
    }
}

/// On the shard where it would be declared, PostgreSQL says whether the name is taken.
fn is_declared_elsewhere(session: &Session, name: &str, shard: Option<ShardId>) -> bool {
    shard.is_some() && whereabouts::is_cursor_elsewhere(session, name.as_bytes(), shard)
}

async fn declare_cursor(
    session: &mut Session,
    declared: &Declared<'_>,
    statement: &Analysis,
    text: &str,
    bound: Bound<'_>,
) -> Result<bool, Failure> {
    let start = statement.start + declared.before.len();
    let query = alone_in_its_place(session, start, statement, text, bound).await?;
    let mut is_taken = session.open_cursors.contains(declared.name.as_bytes());
    let target = match cursor_target(session, &query, bound.map(|(_, bind)| bind)).await {
        Ok(Target::Shard(shard)) if !is_taken && !is_declared_elsewhere(session, declared.name, shard) => return Ok(false),
        Ok(target) => {
            is_taken |= matches!(target, Target::Shard(_));
            target
        }
        Err(failure) => {
            // What PostgreSQL has to say against the query comes first.
            if matches!(&failure, Failure::Error(error) if error.code == SqlState::FEATURE_NOT_SUPPORTED) {
                check_declared(session, &query, statement, text, bound).await?;
            }
            return Err(failure);
        }
    };
    check_declared(session, &query, statement, text, bound).await?;
    if !declared.is_hold && !session.transaction.is_open() {
        let message = "DECLARE CURSOR can only be used in transaction blocks";
        return Err(PgError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message).into());
    }
    if !declared.is_hold {
        session.check_no_pipeline("DECLARE CURSOR")?;
    }
    if is_taken {
        return Err(already_exists(declared.name).into());
    }
    cursor::check_cursor_is_new(session, declared.name.as_bytes())?;
    cursor::check_cursor_count(session)?;
    let no_values = wire::bind(NO_VALUES).map_err(|error| PgError::internal(error.to_string()))?;
    let bind = bound.map_or(&no_values, |(_, bind)| bind);
    let (reach, reason) = match target {
        Target::Shard(_) => return Err(PgError::internal("a cursor of one shard").into()),
        Target::Gather(gathering) => return declare_gathered(session, declared, &query, &gathering, bind).await.map(|()| true),
        Target::Scatter(reach) if declared.is_hold => (reach, not_held()),
        Target::Scatter(reach) if declared.scroll == Scroll::Yes => (reach, backwards()),
        Target::Scatter(reach) => match Box::pin(merged::open_merged(session, &query, bind, &reach)).await {
            Ok(cursor) => {
                let cursor = Cursor { scroll: declared.scroll, is_binary: declared.is_binary, ..cursor };
                cursor::keep_cursor(session, Bytes::copy_from_slice(declared.name.as_bytes()), cursor);
                originate::command_complete(&mut session.client.output, "DECLARE CURSOR");
                return Ok(true);
            }
            Err(NotMerged::Inexact(reason)) => (reach, reason),
            Err(NotMerged::Failed(failure)) => return Err(failure),
        },
    };
    let analysis = query.analysis().ok_or_else(|| PgError::internal("a cursor over nothing"))?;
    let gathering = scatter::instead(session, reach, analysis, query.text(), reason)?;
    declare_gathered(session, declared, &query, &gathering, bind).await.map(|()| true)
}

/// What PostgreSQL has to say against it.
async fn check_declared(
    session: &mut Session,
    query: &Arc<Statement>,
    statement: &Analysis,
    text: &str,
    bound: Bound<'_>,
) -> Result<(), Failure> {
    if query.has_locks() {
        // HOLD and SCROLL do not go with them.
        let whole = alone_in_its_place(session, statement.start, statement, text, bound).await?;
        session.describe(&whole).await?;
    }
    session.describe(query).await.map(drop)
}

async fn declare_gathered(
    session: &mut Session,
    declared: &Declared<'_>,
    query: &Arc<Statement>,
    gathering: &Gathering,
    bind: &wire::Bind<'_>,
) -> Result<(), Failure> {
    let body = [b"\0\0".as_slice(), bind.after_names].concat();
    let bind = wire::bind(&body).map_err(|error| PgError::internal(error.to_string()))?;
    let mut cursor = match gathered::open_gathered(session, query, gathering, &bind, Opening::Declare(declared.before)).await {
        Err(Failure::Shard(error)) if !declared.is_hold && gathered::is_late(session, &error) => {
            gathered::late_cursor(session, query, error).await?
        }
        opened => opened?,
    };
    let is_one_statement = !session.transaction.is_open() && !session.batch.is_open;
    if let (Source::Gathered(gathered), true) = (&mut cursor.source, declared.is_hold && is_one_statement) {
        held::hold(session, gathered).await?;
    }
    let life = match (declared.is_hold, is_one_statement) {
        (false, _) => Life::Transaction,
        (true, false) => Life::AtCommit,
        (true, true) => Life::Held,
    };
    let cursor = Cursor { life, scroll: declared.scroll, is_binary: declared.is_binary, ..cursor };
    cursor::keep_cursor(session, Bytes::copy_from_slice(declared.name.as_bytes()), cursor);
    originate::command_complete(&mut session.client.output, "DECLARE CURSOR");
    Ok(())
}

/// The query of a DECLARE, or the whole, as a statement of its own, at the same place of its text.
async fn alone_in_its_place(
    session: &mut Session,
    start: usize,
    statement: &Analysis,
    text: &str,
    bound: Bound<'_>,
) -> Result<Arc<Statement>, Failure> {
    let query = in_its_place(text, start, text.get(start..statement.end).unwrap_or_default());
    let types = bound.map(|(statement, _)| statement.key.types.clone()).unwrap_or_default();
    session.prepare(query.as_bytes(), types).await
}

async fn cursor_target(session: &mut Session, query: &Arc<Statement>, bind: Option<&wire::Bind<'_>>) -> Result<Target, Failure> {
    let analysis = query.analysis().ok_or_else(|| PgError::internal("a cursor over nothing"))?;
    let route = match bind {
        Some(bind) => {
            let types = session.describe(query).await?.parameter_types.clone();
            session.route(analysis, &Inputs::bound(query.text(), &query.literals, bind, &types)).await?
        }
        None => session.route(analysis, &Inputs::literals(query.text(), &query.literals)).await?,
    };
    Ok(match route {
        // What is not a query is refused there in PostgreSQL's words.
        Route::Write(_) => Target::Shard(None),
        Route::Shard(reach) => Target::Shard(reach.single()),
        Route::Scatter(reach) => Target::Scatter(reach),
        Route::Gather(gathering) => Target::Gather(gathering),
    })
}

/// A cursor over several shards, or a portal of the proxy's own.
fn is_here(session: &Session, name: &str) -> bool {
    let is_own = session.portals.get(name.as_bytes()).is_some_and(|portal| portal.shard().is_none());
    session.open_cursors.contains(name.as_bytes()) || is_own
}

/// Not only on one shard.
fn has_cursors_elsewhere(session: &Session) -> bool {
    !session.open_cursors.is_empty() || whereabouts::shards_with_cursors(session).nth(1).is_some()
}

async fn close_all_cursors(session: &mut Session) -> Result<(), Failure> {
    let names: Vec<Bytes> = session.open_cursors.by_name.keys().cloned().collect();
    for name in &names {
        cursor::close_cursor(session, name).await?;
    }
    let shards: Vec<ShardId> = whereabouts::shards_with_cursors(session).collect();
    session.cursors.clear();
    session.portals.keep_unnamed();
    for shard in shards {
        if let Some(index) = session.transaction.index_of(shard) {
            command::finish_on(session, index, "CLOSE ALL").await?;
        }
    }
    originate::command_complete(&mut session.client.output, "CLOSE CURSOR ALL");
    Ok(())
}

async fn fetch_cursor(
    session: &mut Session,
    name: Bytes,
    mut cursor: Cursor,
    (motion, is_move): (Motion, bool),
    text: &str,
    bound: Bound<'_>,
) -> Result<(), Failure> {
    let fetched = match &mut cursor.source {
        Source::Gathered(gathered) => {
            let fetch = match bound {
                Some((_, bind)) => Fetch::Bound { text, after_names: bind.after_names },
                None => Fetch::Query(text),
            };
            gathered::fetch_gathered(session, gathered, fetch).await
        }
        Source::Merged(merged) => {
            match merged
                .check_rows_are_of_now(session.settings_now(), &session.context.catalog)
                .and_then(|()| steps(merged, motion, cursor.scroll))
            {
                Ok(steps) => {
                    let formats = match bound {
                        Some((_, bind)) => bind.result_formats,
                        None if cursor.is_binary => BINARY,
                        None => TEXT,
                    };
                    if let (None, false) = (bound, is_move) {
                        put_with_formats(&mut session.client.output, &cursor.rows, formats)?;
                    }
                    walk(session, (merged, cursor.savepoints), steps, formats, is_move).await
                }
                Err(refusal) if refusal.code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => Err(refusal.into()),
                Err(refusal) => {
                    // Nothing was read: the cursor is as it was.
                    session.open_cursors.by_name.insert(name, cursor);
                    return Err(refusal.into());
                }
            }
        }
        Source::Late(error) => Err(Failure::Shard(error.clone())),
        // FETCH of a portal by its name.
        Source::Kept(_) | Source::Failed => Err(cannot_be_run(&name).into()),
    };
    // One that is held fails, or not, where it is.
    if fetched.is_err() && cursor.life != Life::Held {
        let failed = std::mem::replace(&mut cursor.source, Source::Failed);
        if let Source::Gathered(gathered) = failed {
            Box::pin(gathered::end_gathered(session, *gathered)).await;
        }
    }
    session.open_cursors.by_name.insert(name, cursor);
    fetched
}

/// `savepoints`: how many there were when the cursor was made.
async fn walk(
    session: &mut Session,
    (cursor, savepoints): (&mut MergedCursor, usize),
    steps: Steps,
    formats: &[u8],
    is_move: bool,
) -> Result<(), Failure> {
    if steps.skipped > 0 {
        // Rows that are passed come in the format of those that are shown.
        cursor.set_formats(formats)?;
        merged::fetch_merged(session, (cursor, savepoints), Some(steps.skipped), None).await?;
    }
    let shown = match steps.shown {
        Some(0) => 0,
        shown => merged::fetch_merged(session, (cursor, savepoints), shown, (!is_move).then_some(formats)).await?,
    };
    originate::command_complete(&mut session.client.output, &format!("{} {shown}", if is_move { "MOVE" } else { "FETCH" }));
    Ok(())
}

/// A walk forward: rows to pass by, then rows to show, or all.
struct Steps {
    skipped: u64,
    shown: Option<u64>,
}

/// Only forward. An error where PostgreSQL would have one, or where it might not.
fn steps(cursor: &MergedCursor, motion: Motion, scroll: Scroll) -> Result<Steps, PgError> {
    let forward = |skipped: u64, shown| Ok(Steps { skipped, shown });
    let is_on_row = cursor.position > 0 && !cursor.is_at_end;
    match motion {
        Motion::Forward(0) | Motion::Relative(0) if !is_on_row => forward(0, Some(0)),
        Motion::Forward(count) if count > 0 => forward(0, Some(count.unsigned_abs())),
        Motion::ForwardAll => forward(0, None),
        Motion::Relative(count) if count > 0 => forward(count.unsigned_abs() - 1, Some(1)),
        Motion::Absolute(count) if count > 0 && count.unsigned_abs() > cursor.position && !cursor.is_at_end => {
            forward(count.unsigned_abs() - cursor.position - 1, Some(1))
        }
        Motion::Absolute(0) if cursor.position == 0 && !cursor.is_at_end => forward(0, Some(0)),
        Motion::Forward(_) | Motion::BackwardAll | Motion::Relative(_) | Motion::Absolute(_) => Err(match scroll {
            Scroll::No => PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
                .with_hint("Declare it with SCROLL option to enable backward scan."),
            Scroll::Unsaid | Scroll::Yes => backwards(),
        }),
    }
}

fn backwards() -> PgError {
    PgError::unsupported(
        "going backwards in this cursor over several shards is not supported",
        "Its rows come from the shards in one direction.",
        "Declare it with SCROLL, so that its rows are brought together first.",
    )
}

/// A Bind of nothing to nothing, results in text.
const NO_VALUES: &[u8] = b"\0\0\0\0\0\0\0\0";
pub(super) const TEXT: &[u8] = &[];
pub(super) const BINARY: &[u8] = &[0, 1];
