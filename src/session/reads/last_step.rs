//! The last step of a statement over several shards whose groups are whole: PostgreSQL computes the answer from them.

use super::scatter::{Scattered, without_position};
use crate::error::PgError;
use crate::execute::{LastStep, LastStepEnd, LastStepError, last_step};
use crate::session::{Failure, Session, lost};
use crate::shardmap::{MapSnapshot, ShardId};
use crate::sql::residues::cover;
use crate::wire;

/// How the client asked for the statement.
pub(in crate::session) struct Asked<'a> {
    pub description: &'a crate::session::protocol::describe::Description,
    pub after_names: &'a [u8],
    pub map: &'a MapSnapshot,
    /// The simple protocol.
    pub describes: bool,
}

/// On a shard that had its part in the groups.
pub(in crate::session) async fn run_last_step(
    session: &mut Session,
    shard: ShardId,
    text: &str,
    asked: Asked<'_>,
) -> Result<Scattered, Failure> {
    let rows = asked.description.rows.as_deref().ok_or_else(|| PgError::internal("a SELECT without columns"))?;
    let columns = wire::row_description(rows).map_err(|error| PgError::internal(format!("row description: {error}")))?;
    let text = session.with_instant(text.to_owned(), &[shard]).await?;
    let text = cover(text, &session.context, asked.map)?;
    let step = LastStep {
        text: &text,
        types: &asked.description.parameter_types,
        after_names: asked.after_names,
        columns: &columns,
        describes: asked.describes,
    };
    let index = session.transaction.index_of(shard);
    let Some((index, participant)) = index.and_then(|index| Some((index, session.transaction.participants_mut().get_mut(index)?)))
    else {
        return Err(lost("a shard", &crate::backend::ConnectionError::Closed).into());
    };
    match last_step(&mut participant.connection, &step, &mut session.client).await {
        Ok(LastStepEnd::Answered) => Ok(Scattered::Answered),
        Ok(LastStepEnd::Differs) => Ok(Scattered::NotMerged(PgError::unsupported(
            "this expression over aggregates is not supported across shards",
            "Over the groups of all shards its columns would be of other types.",
            "Cast the expression to the type that it has, or restrict the statement to one shard key.",
        ))),
        Ok(LastStepEnd::Refused(frame)) => {
            Err(Failure::Shard(without_position(frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default())))
        }
        Err(LastStepError::Lost(error)) => Err(session.participant_lost(index, &error)),
        Err(LastStepError::Gone(end)) => Err(end.into()),
    }
}
