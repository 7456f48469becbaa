//! What becomes of a session in which the proxy's own code panics.
//!
//! Nothing that the panic has interrupted is looked at again. Its connections to shards are cancelled and closed, which undoes what
//! they were doing; none goes back to a pool. The client gets `XX000`, the operator a line in the log with the statement's shape
//! and a count in the metrics. Other sessions do not notice.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;

use super::statement::Statement;
use crate::error::{PgError, SqlState};
use crate::session::{Session, SessionEnd};
use crate::sql::parse::lexer;
use crate::wire::{self, FRAME_HEADER_BYTES, client_tag};

/// The statement that a session runs.
#[derive(Default)]
pub(in crate::session) enum RunningStatement {
    /// None has been taken from the client's input.
    #[default]
    Nothing,
    /// The body of a Query.
    Query(Bytes),
    Prepared(Arc<Statement>),
}

impl Session {
    /// Serves the client to its end. A panic is an end, too.
    pub(in crate::session) async fn until_the_end_or_a_panic(&mut self) -> SessionEnd {
        match AssertUnwindSafe(self.until_the_end()).catch_unwind().await {
            Ok(end) => end,
            Err(panic) => self.panicked(panic).await,
        }
    }

    /// For the log and for other sessions.
    pub(super) fn run_prepared(&mut self, statement: &Arc<Statement>) {
        self.running.statement = RunningStatement::Prepared(Arc::clone(statement));
        self.shown.row.show_prepared(&statement.key);
    }

    async fn panicked(&mut self, panic: Box<dyn Any + Send>) -> SessionEnd {
        // Dropping what it carries may panic in turn.
        std::mem::forget(panic);
        self.gateway.counters.session_panic();
        let shape = self.running_text().map(|text| format!("{:032x}", lexer::scan(text).hash));
        tracing::error!(shape = shape.as_deref().unwrap_or("unknown"), "a session panicked");
        let is_unknown = self.may_have_been_applied();
        // While the session still holds its connections, so that no other session's statement is hit.
        Box::pin(self.cancel.cancel()).await;
        SessionEnd::Fatal(failed(is_unknown))
    }

    /// The text of the statement that is being run or looked at.
    fn running_text(&self) -> Option<&str> {
        match &self.running.statement {
            RunningStatement::Query(body) => text_of(body),
            RunningStatement::Prepared(statement) => Some(statement.text()),
            RunningStatement::Nothing => {
                let header = wire::FrameHeader::peek(&self.client.input, usize::MAX / 2).ok()??;
                let body = self.client.input.get(FRAME_HEADER_BYTES..header.total)?;
                match header.tag {
                    client_tag::QUERY => text_of(body),
                    client_tag::BIND => Some(self.statements.get(wire::bind(body).ok()?.statement)?.text()),
                    _ => None,
                }
            }
        }
    }
}

fn text_of(query: &[u8]) -> Option<&str> {
    std::str::from_utf8(wire::query(query).ok()?).ok()
}

fn failed(is_unknown: bool) -> PgError {
    let error = PgError::fatal(SqlState::INTERNAL_ERROR, "the session has failed by an error in the proxy");
    let error = match is_unknown {
        true => error.with_detail("It is not known whether the last statement was applied."),
        false => error.with_detail("Nothing of the statement or the transaction that was under way is applied."),
    };
    error.with_hint("The proxy's log has the place of the error. Please report it.")
}
