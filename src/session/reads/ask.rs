//! Asks several shards for their parts of one answer, all before the first is waited for, and merges what they say.
//!
//! ```text
//!   join, and read what was owed ─► put the request into every output ─► send all ─► merge ─► answered
//!                                                                                     └─► a last step | not mergeable | error
//! ```
//! Whoever asks says how ([`Request`]); what comes of it does not hang on that.

use super::ranking;
use crate::backend::{Connection, ShardText, StatementName};
use crate::error::{PgError, capitalised};
use crate::execute::{AskedBy, RowSink, ScatterEnd, ScatterError, Spec, scatter};
use crate::routing::Reach;
use crate::session::protocol::describe::prepare_on;
use crate::session::protocol::statement::Statement;
use crate::session::protocol::told::{changed, changed_meanwhile};
use crate::session::reads::scatter::{
    Scattered, failure_of_covered, inexact, is_data_error, may_be_of_excluded, of_moving_rows, with_shard_named,
};
use crate::session::{Failure, Session};
use crate::shardmap::ShardId;
use crate::sql::residues::Covered;
use crate::wire::{self, originate};

/// How the shards are asked.
pub(in crate::session) enum Request<'a> {
    /// By a Query: PostgreSQL forgets a cancel request that comes between Parse and Execute, and nothing else would repeat it.
    Text(&'a Covered),
    /// By a text without parameters; `after_names`: the rest of its Bind.
    Unnamed { text: &'a Covered, after_names: &'a [u8] },
    /// By a statement that each shard prepares, with the client's parameters.
    Bound { fragment: &'a Statement, bind: &'a wire::Bind<'a>, after_names: &'a [u8] },
}

impl Request<'_> {
    /// What the connections keep.
    fn prepared(&self) -> Option<&Statement> {
        match self {
            Request::Bound { fragment, .. } => Some(fragment),
            Request::Text(_) | Request::Unnamed { .. } => None,
        }
    }

    /// By what the shards compute.
    fn covering(&self) -> Option<&Covered> {
        match self {
            Request::Text(text) | Request::Unnamed { text, .. } => Some(text),
            Request::Bound { fragment, .. } => fragment.covered.as_ref(),
        }
    }

    /// What proves their snapshots.
    fn asked_by(&self) -> AskedBy {
        match self {
            Request::Text(_) => AskedBy::Other,
            Request::Unnamed { .. } | Request::Bound { .. } => AskedBy::SelectWithFlush,
        }
    }

    fn put(&self, connection: &mut Connection, reach: &Reach, prepared_max: usize) -> Result<(), PgError> {
        if let Some(fragment) = self.prepared() {
            prepare_on(connection, fragment, false, prepared_max);
            // The merge reads the answers by itself, up to ReadyForQuery.
            connection.pending.clear();
        }
        match self {
            Request::Text(text) => {
                connection.unnamed = None;
                connection.output.query(&ShardText::covered(text));
                return Ok(());
            }
            Request::Unnamed { text, after_names } => {
                connection.unnamed = None;
                let text = ShardText::covered(text);
                connection.output.parse(StatementName::Unnamed, &text, &[]);
                connection.output.bind(b"", StatementName::Unnamed, &text, after_names);
            }
            Request::Bound { fragment, bind, after_names } => {
                let there = connection.oids.parameters_there(&fragment.key.types, bind, after_names);
                let after_names = there.as_deref().unwrap_or(after_names);
                connection.output.bind(b"", StatementName::Registered(fragment.id), &fragment.text_for(reach)?, after_names);
            }
        }
        connection.output.describe_portal(b"");
        // BindComplete, which proves the snapshot, comes now, however long the first row takes.
        connection.output.flush();
        connection.output.execute(b"", 0);
        connection.output.sync();
        Ok(())
    }
}

/// What the shards answer, merged as `spec` says. Not cancel safe: what the shards were asked they do.
pub(in crate::session) async fn ask_several(
    session: &mut Session,
    reach: &Reach,
    request: &Request<'_>,
    spec: &Spec,
) -> Result<Scattered, Failure> {
    // Whatever may fail comes before the first shard is asked: one that was asked must be read to its end.
    for shard in reach.shards() {
        join_clean(session, *shard).await?;
    }
    let prepared_max = session.gateway.prepared_max();
    for participant in session.transaction.on_all(reach.shards()) {
        request.put(&mut participant.connection, reach, prepared_max)?;
    }
    let scattered = scatter_on(session, reach.shards(), spec, request).await;
    if let (Err(_), Some(fragment)) = (&scattered, request.prepared()) {
        for participant in session.transaction.on_all(reach.shards()) {
            participant.connection.prepared.doubt(fragment.id);
        }
    }
    scattered
}

/// A shard joins, and what had to come before the statement has been answered.
pub(in crate::session) async fn join_clean(session: &mut Session, shard: ShardId) -> Result<usize, Failure> {
    let index = session.join(shard).await?;
    session.sync(index).await?;
    Ok(index)
}

/// Sends what is in the outputs, merges what comes.
async fn scatter_on(session: &mut Session, shards: &[ShardId], spec: &Spec, request: &Request<'_>) -> Result<Scattered, Failure> {
    let covering = request.covering();
    session.transaction.participants_mut().sort_by_key(|participant| participant.shard);
    session.client.map_until_proven = session.transaction.pinned_map.lend_until_proven();
    let mut connections = Vec::with_capacity(shards.len());
    let mut asked = Vec::with_capacity(shards.len());
    for participant in session.transaction.on_all(shards) {
        asked.push(participant.shard);
        session.cancel.started(&participant.connection);
        connections.push(&mut *participant.connection);
    }
    // All shards get their part before any answer is read.
    for connection in &mut connections {
        connection.send().await;
    }
    let merged = scatter(connections, request.asked_by(), spec, &mut session.client).await;
    session.transaction.pinned_map.give_back(session.client.map_until_proven.take());
    match merged {
        Ok(ScatterEnd::LastStep(text)) => Ok(Scattered::LastStep(text)),
        Ok(ScatterEnd::Unranked(pieces)) => {
            let shard = asked.first().copied().ok_or_else(|| PgError::internal("no shard"))?;
            Box::pin(ranking::put_ranked(session, *pieces, spec, shard)).await
        }
        Ok(ScatterEnd::Answered(rows)) => {
            originate::command_complete(session.client.buffer(), &format!("SELECT {rows}"));
            Ok(Scattered::Answered)
        }
        Err(ScatterError::Shard { frame, is_answered, .. }) if may_be_of_excluded(&frame, covering) => {
            let error = of_moving_rows(&frame);
            // Rows that are gathered are owned: over these the error is the client's own, or there is none.
            if is_answered || session.transaction.is_open() { Err(error.into()) } else { Ok(Scattered::NotMerged(error)) }
        }
        Err(ScatterError::Shard { frame, is_answered: false, .. }) if spec.evaluates_more() && is_data_error(&frame) => {
            data_error_of_more(session, &frame, spec)
        }
        Err(ScatterError::Shard { index, frame, .. }) => {
            let participant =
                session.transaction.participants().iter().find(|participant| asked.get(index) == Some(&participant.shard));
            let name = participant.map(|participant| participant.connection.pool().address.name.as_str());
            Err(failure_of_covered(with_shard_named(&frame, name.unwrap_or_default()), covering))
        }
        Err(ScatterError::Lost { index, error }) => {
            match session.transaction.participants().iter().position(|participant| asked.get(index) == Some(&participant.shard)) {
                Some(index) => Err(session.participant_lost(index, &error)),
                None => Err(PgError::internal("shard is gone").into()),
            }
        }
        Err(ScatterError::Order(reason)) => Err(PgError::unsupported(
            "rows of several shards cannot be put in order",
            format!("{}.", capitalised(&reason)),
            "Add a condition on the shard key, or order by a column of a simple type.",
        )
        .into()),
        Err(ScatterError::Inexact(reason)) => Ok(Scattered::NotMerged(inexact(&reason))),
        Err(ScatterError::Changed) => Err(spec.told.map_or_else(changed_meanwhile, |_| changed()).into()),
        Err(ScatterError::Error(error)) => Err(error.into()),
        Err(ScatterError::Gone(end)) => Err(end.into()),
    }
}

/// Shards that give up to LIMIT rows each, or groups that HAVING may leave out, compute more than the answer has: an error may
/// be of what is not in it.
fn data_error_of_more(session: &Session, frame: &[u8], spec: &Spec) -> Result<Scattered, Failure> {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let message = wire::error_fields(body).map(|fields| fields.message()).unwrap_or_default();
    let hint = "Leave out the rows that cannot be computed by a condition in WHERE.";
    let refusal = match spec.leaves_out_groups() {
        true => PgError::unsupported(
            "a group cannot be computed before HAVING has seen it",
            format!("Each shard computes all groups, of which HAVING may leave some out, and for one of them says: {message}."),
            hint,
        ),
        false => PgError::unsupported(
            "a row beyond LIMIT cannot be computed",
            format!("Each shard computes as many rows as LIMIT and OFFSET may need, and for one of them says: {message}."),
            hint,
        ),
    };
    // In a transaction the error has ended it on that shard.
    if session.transaction.is_open() { Err(refusal.into()) } else { Ok(Scattered::NotMerged(refusal)) }
}
