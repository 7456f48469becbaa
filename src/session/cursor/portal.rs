//! Portals of the extended protocol over several shards: Execute with a row limit, and what is left of the rows afterwards.
//!
//! Without a limit, and alone in its cycle, a portal needs nothing kept: the shards' answers stream through. With one it becomes
//! a cursor of the portal's name. In a transaction block a named portal becomes one at Bind: what it shows is what was there
//! then, whatever the transaction writes before its Execute.

use std::sync::Arc;

use bytes::Bytes;

use super::super::{Failure, Session};
use super::command::{BINARY, TEXT};
use super::merged::NotMerged;
use super::{Cursor, Source};
use super::{gathered, kept, merged};
use crate::backend::Connection;
use crate::error::PgError;
use crate::execute::gather::{Fetch, Opening};
use crate::plan::Gathering;
use crate::routing::Inputs;
use crate::session::cursor;
use crate::session::protocol::portals::cannot_be_run;
use crate::session::protocol::statement::{Portal, Statement};
use crate::session::reads::{gather, scatter};
use crate::shardmap::ShardId;
use crate::sql::analysis::Merge;
use crate::wire::{self, originate, shard_tag};

/// A portal over several shards has been bound.
pub(in crate::session) async fn portal_bound(session: &mut Session, name: &Bytes) -> Result<(), Failure> {
    let is_block = session.transaction.is_open() && !session.batch.is_implicit;
    // Rows are locked when it is executed.
    let has_locks = matches!(session.portals.get(name), Some(Portal::Scatter { statement, .. }) if statement.has_locks());
    if name.is_empty() || !is_block || has_locks || has_bad_count(session, name).await? {
        return Ok(());
    }
    let is_gathered = matches!(session.portals.get(name), Some(Portal::Gather { .. }));
    match Box::pin(open_portal(session, name)).await {
        // Execute comes to it again.
        Err(Failure::Shard(error)) if is_gathered && gathered::is_late(session, &error) => Ok(()),
        opened => opened,
    }
}

/// A negative LIMIT or OFFSET is an error of Execute.
async fn has_bad_count(session: &mut Session, name: &Bytes) -> Result<bool, Failure> {
    let Some(Portal::Scatter { statement, bind, .. }) = session.portals.get(name) else { return Ok(false) };
    let (statement, bind) = (Arc::clone(statement), bind.clone());
    let Some(Ok(merge)) = statement.analysis().map(|analysis| analysis.merge.as_ref()) else { return Ok(false) };
    let types = &session.describe(&statement).await?.parameter_types;
    Ok(scatter::spec(session, merge, &Inputs::bound(statement.text(), &statement.literals, &wire::bind(&bind)?, types)).is_err())
}

/// The unnamed portal of a shard is also that of the proxy's own statements and of those on several shards: `number` says whether
/// it is still the client's.
pub(in crate::session) async fn forward_to_portal(
    session: &mut Session,
    shard: ShardId,
    name: &[u8],
    number: u32,
    write: impl FnOnce(&mut Connection),
) -> Result<(), Failure> {
    let mut is_there = true;
    let write_to_portal = |connection: &mut Connection| {
        is_there = !name.is_empty() || connection.unnamed_portal() == number;
        if is_there {
            write(connection);
        }
    };
    session.forward(shard, write_to_portal).await?;
    if is_there { Ok(()) } else { Err(displaced().into()) }
}

/// Execute of a portal over several shards.
pub(in crate::session) async fn execute_several(session: &mut Session, name: &[u8], row_limit: i32) -> Result<(), Failure> {
    let name = Bytes::copy_from_slice(name);
    match session.portals.get(&name) {
        Some(Portal::Finished { .. }) => {
            originate::command_complete(&mut session.client.output, "SELECT 0");
            return Ok(());
        }
        Some(
            Portal::Scatter { .. }
            | Portal::Gather { .. }
            | Portal::Shard { .. }
            | Portal::Own { .. }
            | Portal::Write { .. }
            | Portal::Spent { .. },
        )
        | None => {}
    }
    if !session.open_cursors.contains(&name) {
        if row_limit <= 0 {
            let run = Box::pin(execute_whole(session, &name)).await;
            if run.is_err() {
                session.spend(&name, &run);
            }
            return run;
        }
        if !session.transaction.is_open() {
            session.begin_for_pipeline();
        }
        let opened = match locks_a_few(session, &name) {
            true => Box::pin(kept::open_locked(session, &name)).await,
            false => Box::pin(open_portal(session, &name)).await,
        };
        if opened.is_err() {
            session.spend(&name, &opened);
        }
        opened?;
    }
    execute_opened(session, &name, row_limit).await
}

/// Row locks with LIMIT.
fn locks_a_few(session: &Session, name: &Bytes) -> bool {
    let Some(Portal::Scatter { statement, .. }) = session.portals.get(name) else { return false };
    let has_limit = |merge: &Merge| merge.locking.is_some() && merge.limit.is_some();
    statement.analysis().and_then(|analysis| analysis.merge.as_ref().ok()).is_some_and(|merge| has_limit(merge))
}

/// Execute of a portal that is a cursor already.
pub(in crate::session) async fn execute_opened(session: &mut Session, name: &Bytes, row_limit: i32) -> Result<(), Failure> {
    let Some(mut cursor) = session.open_cursors.by_name.remove(name) else {
        return Err(PgError::internal("a portal that was not opened").into());
    };
    let run = run_portal(session, name, &mut cursor, row_limit).await;
    if run.is_err() && matches!(cursor.source, Source::Merged(_) | Source::Late(_)) {
        cursor.source = Source::Failed;
    }
    session.open_cursors.by_name.insert(name.clone(), cursor);
    run
}

/// Its answer streams through, and nothing is left.
async fn execute_whole(session: &mut Session, name: &Bytes) -> Result<(), Failure> {
    let (statement, bind) = match session.portals.get(name) {
        Some(Portal::Scatter { statement, bind, reach }) => {
            let (statement, bind, reach) = (Arc::clone(statement), bind.clone(), reach.clone());
            let values = wire::bind(&bind)?;
            Box::pin(scatter::scatter_bound(session, &statement, &values, &reach, false)).await?;
            (statement, bind)
        }
        Some(Portal::Gather { statement, bind, gathering }) => {
            let (statement, bind, gathering) = (Arc::clone(statement), bind.clone(), Arc::clone(gathering));
            let values = wire::bind(&bind)?;
            Box::pin(gather::gather_bound(session, &statement, &values, &gathering, false)).await?;
            (statement, bind)
        }
        Some(Portal::Shard { .. } | Portal::Own { .. } | Portal::Write { .. } | Portal::Finished { .. } | Portal::Spent { .. })
        | None => {
            return Err(PgError::internal("not a portal over several shards").into());
        }
    };
    if let Some(portal) = session.portals.get_mut(name) {
        *portal = Portal::Finished { statement, bind };
    }
    Ok(())
}

async fn run_portal(session: &mut Session, name: &Bytes, cursor: &mut Cursor, row_limit: i32) -> Result<(), Failure> {
    match &mut cursor.source {
        Source::Gathered(gathered) => {
            let fetch = Fetch::Execute { portal: scratch_name(name), row_limit };
            gathered::fetch_gathered(session, gathered, fetch).await
        }
        Source::Merged(merged) => {
            let bind = match session.portals.get(name) {
                Some(Portal::Scatter { bind, .. } | Portal::Gather { bind, .. }) => Some(bind.clone()),
                // DECLARE has made it.
                None => None,
                Some(
                    Portal::Shard { .. }
                    | Portal::Own { .. }
                    | Portal::Write { .. }
                    | Portal::Finished { .. }
                    | Portal::Spent { .. },
                ) => return Err(PgError::internal("a cursor without its portal").into()),
            };
            let formats = match &bind {
                Some(bind) => wire::bind(bind)?.result_formats,
                None if cursor.is_binary => BINARY,
                None => TEXT,
            };
            let wanted = u64::try_from(row_limit).ok().filter(|limit| *limit > 0);
            let given = merged::fetch_merged(session, (merged, cursor.savepoints), wanted, Some(formats)).await?;
            if wanted == Some(given) {
                originate::bare(&mut session.client.output, shard_tag::PORTAL_SUSPENDED);
            } else {
                originate::command_complete(&mut session.client.output, &format!("SELECT {given}"));
            }
            Ok(())
        }
        Source::Kept(kept) => {
            kept::give_kept(session, kept, u64::try_from(row_limit).ok().filter(|limit| *limit > 0));
            Ok(())
        }
        Source::Late(error) => Err(Failure::Shard(error.clone())),
        Source::Failed => Err(cannot_be_run(name).into()),
    }
}

async fn open_portal(session: &mut Session, name: &Bytes) -> Result<(), Failure> {
    cursor::check_cursor_count(session)?;
    let cursor = match session.portals.get(name) {
        Some(Portal::Scatter { statement, bind, reach }) => {
            let (statement, bind, reach) = (Arc::clone(statement), bind.clone(), reach.clone());
            let values = wire::bind(&bind)?;
            match Box::pin(merged::open_merged(session, &statement, &values, &reach)).await {
                Ok(cursor) => cursor,
                Err(NotMerged::Inexact(reason)) => {
                    let analysis = statement.analysis().ok_or_else(|| PgError::internal("a portal over nothing"))?;
                    let gathering = scatter::instead(session, reach, analysis, statement.text(), reason)?;
                    open_gathered_portal(session, name, &statement, &bind, &gathering).await?
                }
                Err(NotMerged::Failed(failure)) => return Err(failure),
            }
        }
        Some(Portal::Gather { statement, bind, gathering }) => {
            let (statement, bind, gathering) = (Arc::clone(statement), bind.clone(), Arc::clone(gathering));
            open_gathered_portal(session, name, &statement, &bind, &gathering).await?
        }
        Some(Portal::Shard { .. } | Portal::Own { .. } | Portal::Write { .. } | Portal::Finished { .. } | Portal::Spent { .. })
        | None => {
            return Err(PgError::internal("not a portal over several shards").into());
        }
    };
    cursor::keep_cursor(session, name.clone(), cursor);
    Ok(())
}

async fn open_gathered_portal(
    session: &mut Session,
    name: &Bytes,
    statement: &Arc<Statement>,
    bind: &Bytes,
    gathering: &Gathering,
) -> Result<Cursor, Failure> {
    let bind = wire::bind(bind)?;
    gathered::open_gathered(session, statement, gathering, &bind, Opening::Portal(scratch_name(name))).await
}

fn displaced() -> PgError {
    PgError::unsupported(
        "the unnamed portal cannot be used any more",
        "Another statement ran on its shard since it was bound, and that shard has one unnamed portal for both.",
        "Give the portal a name, or execute it before other portals.",
    )
}

/// The unnamed portal would end with any statement of the scratch session.
fn scratch_name(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"shardgate_portal" } else { name }
}
