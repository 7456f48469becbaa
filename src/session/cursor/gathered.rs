//! Cursors over gathered rows: the scratch session keeps them, and is asked what the client asks.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use super::super::{Failure, Session, lost};
use super::held;
use super::{Cursor, Life, Source};
use crate::backend::{CANCEL_TIMEOUT, Pooled, Settings};
use crate::error::PgError;
use crate::execute::gather::{self, Fetch, GatherError, Opening};
use crate::plan::Gathering;
use crate::session::protocol::statement::Statement;
use crate::session::reads;
use crate::session::reads::gather::{moved, release};
use crate::session::reads::scatter::is_data_error;
use crate::sql::analysis::Scroll;
use crate::wire::{self, FieldDescription};

pub(super) struct GatheredCursor {
    /// In its transaction, with the cursor open.
    pub(super) scratch: Pooled,
    /// The client's, as the scratch session has them.
    pub(super) settings: Arc<Settings>,
    columns: Vec<FieldDescription>,
}

/// Gathers, and opens the cursor over the rows. For a DECLARE the scroll option is in `opening`.
pub(super) async fn open_gathered(
    session: &mut Session,
    statement: &Arc<Statement>,
    gathering: &Gathering,
    bind: &wire::Bind<'_>,
    opening: Opening<'_>,
) -> Result<Cursor, Failure> {
    let description = session.describe(statement).await?;
    let rows = description.rows.clone().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let columns = wire::row_description(&rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    let settings = session.settings_now();
    let scratch = reads::gather::gather_for_cursor(session, statement, gathering, bind, opening).await?;
    let source = Source::Gathered(Box::new(GatheredCursor { scratch, settings, columns }));
    Ok(Cursor { source, life: Life::Transaction, savepoints: 0, scroll: Scroll::Unsaid, is_binary: false, rows })
}

/// An error of a row, which PostgreSQL would come to later. Nothing of the transaction has failed by it.
pub(super) fn is_late(session: &Session, error: &[u8]) -> bool {
    let participants = session.transaction.participants();
    is_data_error(error) && participants.iter().all(|participant| participant.connection.status != b'E')
}

/// A cursor whose first FETCH gets the error.
pub(super) async fn late_cursor(session: &mut Session, statement: &Arc<Statement>, error: Bytes) -> Result<Cursor, Failure> {
    let rows = session.describe(statement).await?.rows.clone();
    let rows = rows.ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let source = Source::Late(error);
    Ok(Cursor { source, life: Life::Transaction, savepoints: 0, scroll: Scroll::Unsaid, is_binary: false, rows })
}

/// The scratch session's answer goes to the client.
pub(super) async fn fetch_gathered(session: &mut Session, cursor: &mut GatheredCursor, fetch: Fetch<'_>) -> Result<(), Failure> {
    Box::pin(held::give_settings(session, cursor)).await?;
    session.cancel.started(&cursor.scratch);
    let name = cursor.scratch.pool().address.name.clone();
    let fetched = gather::fetch(&mut cursor.scratch, fetch, &cursor.columns, &mut session.client).await;
    session.cancel.ended(&cursor.scratch);
    fetched.map_err(|error| match error {
        GatherError::Shard { frame, .. } => Failure::Shard(moved(&frame, |_| 0)),
        GatherError::Lost { error, .. } => lost(&name, &error).into(),
        GatherError::Gone(end) => end.into(),
        GatherError::TooLarge | GatherError::Differs | GatherError::Unsupported(_) => {
            PgError::internal("a cursor ended as something else").into()
        }
    })
}

/// The scratch transaction is rolled back and its connection goes to the pool, or is closed when it does not answer, or has
/// been kept for a cursor that was held.
pub(super) async fn end_gathered(session: &mut Session, cursor: GatheredCursor) {
    let mut scratch = cursor.scratch;
    if scratch.status == b'I' {
        return release(&session.cancel, scratch);
    }
    let is_idle = !scratch.owes() && scratch.input.is_empty() && scratch.output.is_empty() && matches!(scratch.status, b'T' | b'E');
    if !is_idle {
        scratch.stop().await;
    } else if let Ok(Err(error)) = timeout(CANCEL_TIMEOUT, gather::roll_back(&mut scratch)).await {
        tracing::debug!(%error, "scratch session not rolled back");
    }
    release(&session.cancel, scratch);
}
