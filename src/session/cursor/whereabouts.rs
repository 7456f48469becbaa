//! On which shard a cursor of one shard is, and what it gives.
//!
//! What DECLARE and Bind have made is on record. Functions open cursors too, wherever they run and under names of their own choice:
//! for a name that is not on record the shards of the transaction are asked. Where several have it, each its own, nobody knows
//! which one is meant.

use std::sync::Arc;

use super::super::gateway::MAP_DATABASE;
use super::super::{Failure, Participant, Session};
use crate::catalog::quoted_literal;
use crate::error::PgError;
use crate::session::protocol::describe::{Description, describe_unnamed_on};
use crate::session::protocol::statement::{Portal, Statement};
use crate::shardmap::ShardId;
use crate::sql::analysis::Command;

/// FETCH, MOVE.
pub(in crate::session) fn is_fetch(statement: &Statement) -> bool {
    statement.analysis().is_some_and(|analysis| matches!(analysis.command, Command::Fetch { .. }))
}

/// FETCH, MOVE and CLOSE go where the cursor is. `None`: where there is none.
pub(in crate::session) async fn cursor_shard(session: &mut Session, command: &Command) -> Result<Option<ShardId>, Failure> {
    match command {
        Command::Fetch { name, .. } | Command::CloseCursor(Some(name)) => shard_of_cursor(session, name).await,
        Command::CloseCursor(None) => Ok(shards_with_cursors(session).next()),
        _ => Ok(None),
    }
}

async fn shard_of_cursor(session: &mut Session, name: &str) -> Result<Option<ShardId>, Failure> {
    if let Some(cursor) = session.cursors.get(name) {
        return Ok(Some(cursor.shard));
    }
    if let Some(shard) = session.portals.get(name.as_bytes()).and_then(Portal::shard) {
        return Ok(Some(shard));
    }
    let shards: Vec<ShardId> = session
        .transaction
        .participants()
        .iter()
        .filter(|participant| may_have_cursors(session, participant))
        .map(|it| it.shard)
        .collect();
    if shards.len() < 2 {
        return Ok(shards.first().copied());
    }
    let question = format!("SELECT true FROM pg_catalog.pg_cursors WHERE name = {}", quoted_literal(name));
    let mut found = None;
    for shard in shards {
        let Some(index) = session.transaction.index_of(shard) else { continue };
        let is_there = session.ask_participant_one(index, &question).await?.is_some();
        if is_there && found.replace(shard).is_some() {
            return Err(on_several_shards(name).into());
        }
    }
    Ok(found)
}

/// A function may have opened some there.
fn may_have_cursors(session: &Session, participant: &Participant) -> bool {
    session.transaction.is_open() && participant.has_begun && !participant.is_spare && participant.shard != MAP_DATABASE
}

/// Whose cursors CLOSE ALL closes.
pub(super) fn shards_with_cursors(session: &Session) -> impl Iterator<Item = ShardId> {
    let has_declared = |shard: ShardId| session.cursors.values().any(|cursor| cursor.shard == shard);
    let has_some = move |it: &&Participant| may_have_cursors(session, it) || has_declared(it.shard);
    session.transaction.participants().iter().filter(has_some).map(|participant| participant.shard)
}

/// The name is taken by a cursor or portal, and not on this shard, which would say so itself; `None`: on any.
pub(in crate::session) fn is_cursor_elsewhere(session: &Session, name: &[u8], shard: Option<ShardId>) -> bool {
    let is_elsewhere = |known: Option<ShardId>| shard.is_none() || known != shard;
    let cursor = std::str::from_utf8(name).ok().and_then(|name| session.cursors.get(name));
    session.portals.get(name).is_some_and(|portal| is_elsewhere(portal.shard()))
        || cursor.is_some_and(|cursor| is_elsewhere(Some(cursor.shard)))
}

/// At Parse of a FETCH its columns are those that its cursor has then. That of a cursor which DECLARE has made on one shard
/// can wait: it is there until it is asked.
pub(in crate::session) async fn describe_if_fetch(session: &mut Session, statement: &Arc<Statement>) -> Result<(), Failure> {
    match statement.analysis().map(|analysis| &analysis.command) {
        Some(Command::Fetch { name, .. }) if !session.cursors.contains_key(name) => session.describe(statement).await.map(drop),
        Some(_) | None => Ok(()),
    }
}

/// What the cursor gives now. Another session's cursor of this name, or a later one, has nothing to do with it: this is kept
/// with the statement alone. By a statement without a name, since one that is prepared before its cursor is replaced, and
/// described afterwards, makes a server of PostgreSQL 15 fail.
pub(in crate::session) async fn describe_fetch(session: &mut Session, statement: &Statement) -> Result<Description, Failure> {
    let Some(Command::Fetch { name, is_move: false, .. }) = statement.analysis().map(|analysis| &analysis.command) else {
        return Ok(Description::default());
    };
    if let Some(rows) = session.open_cursors.rows(name.as_bytes()) {
        return Ok(Description::new(Vec::new(), Some(rows)));
    }
    let shard = shard_of_cursor(session, name).await?;
    let Some(shard) = shard.filter(|shard| session.transaction.index_of(*shard).is_some()) else {
        return Ok(Description::default());
    };
    session.keep_pipeline();
    let index = session.join(shard).await?;
    session.drain_with_flush(index).await?;
    let participant = session.transaction.at(index)?;
    participant.needs_sync = false;
    session.cancel.started(&participant.connection);
    let described = describe_unnamed_on(&mut participant.connection, &statement.key.text);
    match described.await {
        Ok(described) => described.map_err(Failure::Shard),
        Err(error) => Err(session.participant_lost(index, &error)),
    }
}

fn on_several_shards(name: &str) -> PgError {
    PgError::unsupported(
        format!("cursor \"{name}\" is open on several shards"),
        "Functions have opened cursors of this name on them, and each shard has its own.",
        "Give the cursors names of their own.",
    )
}
