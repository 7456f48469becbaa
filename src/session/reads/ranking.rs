//! Rows of several shards whose text PostgreSQL puts in order: one of the shards is asked how the values sort.

use super::scatter::{Scattered, inexact, without_position};
use crate::backend::{ColumnsDigest, ConnectionError};
use crate::error::PgError;
use crate::execute::{CombineError, Next, Pieces, RowSink, Spec, Unranked, ranks};
use crate::session::protocol::told::changed;
use crate::session::{Failure, Session, lost};
use crate::shardmap::ShardId;
use crate::wire::{self, originate};

/// Answers with rows that are all here. `shard`: one of those that they came from.
pub(in crate::session) async fn put_ranked(
    session: &mut Session,
    mut pieces: Pieces,
    spec: &Spec,
    shard: ShardId,
) -> Result<Scattered, Failure> {
    let mut rows = 0_u64;
    let mut is_described = false;
    loop {
        let next = match pieces.next(u64::MAX) {
            Ok(next) => next,
            Err(error) if !is_described => return not_merged(error),
            Err(error) => return Err(error.told().into()),
        };
        if matches!(next, Next::Row(_) | Next::End) && !is_described {
            describe_ranked(session, &pieces, spec)?;
            is_described = true;
        }
        match next {
            Next::Unranked(columns) => {
                if let Err(error) = rank(session, &mut pieces, &columns, shard).await? {
                    return not_merged(error);
                }
            }
            Next::LastStep(text) => return Ok(Scattered::LastStep(text)),
            Next::Needs(_) => return Err(PgError::internal("rows that have all come are wanted").into()),
            Next::Row(row) => {
                rows += 1;
                session.client.buffer().extend_from_slice(&row);
                if session.client.buffer().len() >= BUFFER_BYTES {
                    session.client.send().await?;
                }
            }
            Next::End => {
                originate::command_complete(session.client.buffer(), &format!("SELECT {rows}"));
                return Ok(Scattered::Answered);
            }
        }
    }
}

fn describe_ranked(session: &mut Session, pieces: &Pieces, spec: &Spec) -> Result<(), Failure> {
    let columns = pieces.visible_columns();
    if spec.told.is_some_and(|told| told != ColumnsDigest::of_columns(columns)) {
        return Err(changed().into());
    }
    if spec.describes {
        originate::row_description(session.client.buffer(), spec.described(columns));
    }
    Ok(())
}

/// On a connection on which nothing is under way. The inner error: rows of several shards do not go together.
pub(in crate::session) async fn rank(
    session: &mut Session,
    pieces: &mut Pieces,
    columns: &[Unranked],
    shard: ShardId,
) -> Result<Result<(), CombineError>, Failure> {
    let index = session.transaction.index_of(shard);
    let Some((index, participant)) = index.and_then(|index| Some((index, session.transaction.participants_mut().get_mut(index)?)))
    else {
        return Err(lost("a shard", &ConnectionError::Closed).into());
    };
    match ranks(&mut participant.connection, columns).await {
        Ok(Ok(ranks)) => Ok(pieces.rank(ranks)),
        Ok(Err(frame)) => Err(Failure::Shard(without_position(frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default()))),
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

fn not_merged(error: CombineError) -> Result<Scattered, Failure> {
    match error {
        CombineError::Inexact(reason) => Ok(Scattered::NotMerged(inexact(&reason))),
        CombineError::Error(error) => Err(error.into()),
    }
}

/// Rows are handed on in pieces of this size.
const BUFFER_BYTES: usize = 32 * 1024;
