//! Cursors and portals over several shards: what is kept of them between two requests of the client.
//!
//! A cursor over one shard lives on that shard, and nothing is known of it here. One over several is one of these:
//!
//! ```text
//!   merged     a portal on each shard, in the session's transaction; rows come in pieces and are merged here   (`merged`)
//!   gathered   a cursor of a scratch session over gathered rows, which does everything by itself              (`gathered`)
//!   kept       the rows of a write or of row locks: a portal only                                             (`kept`)
//! ```
//!
//! Where one over one shard is, is told by `whereabouts`.
//!
//! DECLARE, FETCH, MOVE and CLOSE are SQL's way to them, Bind and Execute with a row limit the protocol's. Both have one name
//! space, as in PostgreSQL. They end with the transaction, or with the savepoint that they were made after, unless they are
//! declared WITH HOLD (`held`). Going backwards in a merged one is refused; a cursor that was declared SCROLL is gathered.

pub(super) mod command;
mod gathered;
pub(super) mod held;
pub(super) mod kept;
pub(super) mod merged;
pub(super) mod portal;
mod settled;
pub(super) mod whereabouts;

use std::collections::HashMap;

use bytes::Bytes;

use super::{Session, SessionEnd};
use crate::error::{PgError, SqlState};
use crate::sql::analysis::{Command, Scroll};
use gathered::GatheredCursor;
pub(super) use held::{HELD_CURSOR, Life, OnShard};
use kept::KeptRows;
pub(super) use merged::Heard;
use merged::MergedCursor;
pub(super) use whereabouts::is_fetch;

/// The open cursors of one session.
#[derive(Default)]
pub(super) struct Cursors {
    by_name: HashMap<Bytes, Cursor>,
    /// How many have been made: their portals on the shards are numbered.
    made: u64,
}

struct Cursor {
    source: Source,
    life: Life,
    /// How many savepoints there were when it was made.
    savepoints: usize,
    scroll: Scroll,
    /// DECLARE … BINARY: FETCH of the simple protocol gets binary values.
    is_binary: bool,
    /// Body of the RowDescription, all formats text.
    rows: Bytes,
}

enum Source {
    Merged(Box<MergedCursor>),
    Gathered(Box<GatheredCursor>),
    Kept(Box<KeptRows>),
    /// What was evaluated to gather its rows has failed, as FETCH does in PostgreSQL: the error.
    Late(Bytes),
    /// A FETCH has failed, and with it what it had read.
    Failed,
}

/// Is it about a cursor?
pub(super) fn concerns(command: &Command) -> bool {
    matches!(command, Command::DeclareCursor { .. } | Command::Fetch { .. } | Command::CloseCursor(_))
}

impl Cursors {
    /// For names on the shards that no other of this session has.
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn contains(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// Body of the RowDescription of what FETCH returns.
    pub fn rows(&self, name: &[u8]) -> Option<Bytes> {
        self.by_name.get(name).map(|cursor| cursor.rows.clone())
    }
}

/// For one more cursor over several shards.
fn check_cursor_count(session: &Session) -> Result<(), PgError> {
    let limit = session.gateway.config.cross_shard.cursors_max as usize;
    if session.open_cursors.by_name.len() < limit {
        return Ok(());
    }
    let message = format!("more than {limit} cursors over several shards in one session");
    Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
        .with_detail("The limit is cross_shard.cursors_max.")
        .with_hint("Close cursors that are no longer used, or raise the limit."))
}

fn check_cursor_is_new(session: &Session, name: &[u8]) -> Result<(), PgError> {
    match session.open_cursors.contains(name) || whereabouts::is_cursor_elsewhere(session, name, None) {
        true => Err(already_exists(&String::from_utf8_lossy(name))),
        false => Ok(()),
    }
}

fn keep_cursor(session: &mut Session, name: Bytes, mut cursor: Cursor) {
    // Rows that are here are as old as the portal that has given them.
    let of_portal = session.portals.savepoints(&name).filter(|_| matches!(cursor.source, Source::Kept(_)));
    cursor.savepoints = of_portal.unwrap_or(session.transaction.savepoints.len());
    session.open_cursors.by_name.insert(name, cursor);
}

/// Its portals are closed, its scratch session goes back. Nothing is waited for on the shards. The client's portal of that name
/// goes with it: executed again it would run anew, and write twice.
pub(super) async fn close_cursor(session: &mut Session, name: &[u8]) -> Result<(), SessionEnd> {
    if session.open_cursors.contains(name) {
        session.portals.remove(name);
    }
    match session.open_cursors.by_name.remove(name).map(|cursor| cursor.source) {
        Some(Source::Merged(cursor)) => merged::close_merged(session, &cursor),
        Some(Source::Gathered(cursor)) => Box::pin(gathered::end_gathered(session, *cursor)).await,
        Some(Source::Kept(_) | Source::Late(_) | Source::Failed) | None => {}
    }
    Ok(())
}

/// Bind of a portal of this name: the unnamed one is replaced, any other must not exist.
pub(super) async fn replace_portal(session: &mut Session, name: &[u8]) -> Result<(), super::Failure> {
    match name.is_empty() {
        true => Ok(close_cursor(session, name).await?),
        false if session.open_cursors.contains(name) => Err(already_exists(&String::from_utf8_lossy(name)).into()),
        false => Ok(()),
    }
}

/// With the transaction, whose end has closed the portals on the shards. Those that are held stay.
pub(super) async fn forget_cursors(session: &mut Session) {
    forget_those(session, |cursor| cursor.life != Life::Held).await;
}

/// DISCARD ALL.
pub(super) async fn forget_all_cursors(session: &mut Session) {
    session.cursors.clear();
    forget_those(session, |_| true).await;
}

/// The savepoint of this index is released, and those after it: what was made in it is now the outer one's.
pub(super) fn keep_portals_of(session: &mut Session, savepoint: usize) {
    let of_shards = session.cursors.values_mut().map(|cursor| &mut cursor.savepoints);
    let of_several = session.open_cursors.by_name.values_mut().map(|cursor| &mut cursor.savepoints);
    of_shards.chain(of_several).for_each(|savepoints| *savepoints = savepoint.min(*savepoints));
    session.portals.release(savepoint);
}

/// ROLLBACK TO the savepoint of this index: the shards have closed the portals that were made after it.
pub(super) async fn forget_portals_after(session: &mut Session, savepoint: usize) {
    session.portals.forget_after(savepoint);
    session.cursors.retain(|_, cursor| cursor.life == Life::Held || cursor.savepoints <= savepoint);
    forget_those(session, |cursor| cursor.savepoints > savepoint).await;
}

async fn forget_those(session: &mut Session, is_gone: impl Fn(&Cursor) -> bool) {
    let gone = session.open_cursors.by_name.extract_if(|_, cursor| is_gone(cursor));
    let gone: Vec<(Bytes, Cursor)> = gone.collect();
    for (name, cursor) in gone {
        session.portals.remove(&name);
        if let Source::Gathered(cursor) = cursor.source {
            Box::pin(gathered::end_gathered(session, *cursor)).await;
        }
    }
}

pub(super) fn already_exists(name: &str) -> PgError {
    PgError::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists"))
}
