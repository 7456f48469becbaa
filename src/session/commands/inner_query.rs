//! Statements around a query: DECLARE and what is said to its cursor, COPY of a query or table to the client.
//!
//! Where the query runs on one shard, so does the statement, unchanged, and nothing here has to do with it. Where its rows are
//! on several, the query runs as it would by itself, and what the statement makes of the rows is made here.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::error::{PgError, SqlState};
use crate::session::copy::copy_out;
use crate::session::cursor::command;
use crate::session::protocol::statement::Statement;
use crate::session::{Failure, Session};
use crate::sql::analysis::{Analysis, Command, CopyDirection};
use crate::wire;

/// A statement of the extended protocol with its values; `None`: the simple protocol.
pub(in crate::session) type Bound<'a> = Option<(&'a Arc<Statement>, &'a wire::Bind<'a>)>;

/// Is it one of these?
pub(in crate::session) fn has_inner_query(command: &Command) -> bool {
    crate::session::cursor::concerns(command) || matches!(command, Command::Copy(CopyDirection::ToStdout))
}

/// Runs the statement if the rows of its query are on several shards. False: it belongs to one.
///
/// The type of what it waits for is left out of those around it, which nest too deeply for the compiler.
pub(in crate::session) fn run_inner_query<'a>(
    session: &'a mut Session,
    statement: &'a Analysis,
    text: &'a str,
    bound: Bound<'a>,
) -> BoxFuture<'a, Result<bool, Failure>> {
    Box::pin(async move {
        match &statement.command {
            Command::Copy(CopyDirection::ToStdout) => copy_out::copy_out(session, statement, text, bound.is_some()).await,
            _ => command::cursor_command(session, statement, text, bound).await,
        }
    })
}

/// At Bind: is it one that [`run_inner_query`] will run?
pub(in crate::session) async fn runs_inner_query(
    session: &mut Session,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<bool, Failure> {
    match statement.analysis().map(|analysis| (analysis, &analysis.command)) {
        Some((analysis, Command::Copy(CopyDirection::ToStdout))) => {
            copy_out::copies_several(session, analysis, statement.text()).await
        }
        Some(_) => command::is_cursor_here(session, statement, bind).await,
        None => Ok(false),
    }
}

/// Execute of such a statement.
pub(in crate::session) async fn execute_inner_query(
    session: &mut Session,
    analysis: &Analysis,
    statement: &Arc<Statement>,
    bind: &wire::Bind<'_>,
) -> Result<(), Failure> {
    if run_inner_query(session, analysis, statement.text(), Some((statement, bind))).await? {
        return Ok(());
    }
    // Closed since Bind.
    let name = match &analysis.command {
        Command::Fetch { name, .. } | Command::CloseCursor(Some(name)) => name.as_str(),
        _ => {
            let message = "the rows of this statement have moved to one shard";
            return Err(PgError::new(SqlState::SERIALIZATION_FAILURE, message).with_hint("Retry it.").into());
        }
    };
    Err(PgError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist")).into())
}
