//! A question of the proxy's own to one shard, beside the client's statements or in their transaction.

use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{ConnectionError, ShardText};
use crate::session::reads::gather::release;
use crate::session::{Failure, Session};
use crate::shardmap::Shard;

/// In the transaction when it is on the shard already, or the session has something of its own there; else beside it.
pub(in crate::session) async fn ask_question(
    session: &mut Session,
    shard: &Arc<Shard>,
    text: &ShardText<'_>,
) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
    session.keep_pipeline_on(shard.id);
    let is_ours = session
        .transaction
        .participants()
        .iter()
        .any(|participant| participant.shard == shard.id && (participant.has_begun || participant.pinned_by.is_some()));
    if !is_ours {
        let mut connection = session.checkout(shard, &session.settings_now()).await?;
        session.cancel.started(&connection);
        let answered = connection.simple(text).await;
        connection.is_pinned |= was_interrupted(&answered);
        release(&session.cancel, connection);
        return answered.map_err(|error| crate::session::settings::setting::refused(&shard.name, error));
    }
    let index = session.join(shard.id).await?;
    session.drain_with_flush(index).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    session.cancel.started(&participant.connection);
    let answered = participant.connection.simple(text).await;
    if was_interrupted(&answered) {
        // Not to be undone when the client closes a cursor, or unlocks what it has locked.
        participant.pin_for_good();
    }
    match answered {
        Ok(rows) => Ok(rows),
        Err(ConnectionError::Refused { body, .. }) => Err(Failure::Shard(crate::session::protocol::describe::error_frame(&body))),
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

/// Cut short: what the first of its statements has done may be there.
fn was_interrupted(answered: &Result<Vec<Vec<Option<Bytes>>>, ConnectionError>) -> bool {
    match answered {
        Err(ConnectionError::Refused { sqlstate, .. }) => {
            ["25", "40", "53", "57", "58", "XX"].iter().any(|class| sqlstate.starts_with(class))
        }
        Ok(_) | Err(_) => false,
    }
}
