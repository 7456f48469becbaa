//! The driver's term at both shards, taken before anything else: what an earlier driver has under way there ends, or comes too late.
//!
//! The map gives the terms, each higher than the one before. One that has failed over to a server which had not heard of the last terms gives lower
//! ones than the shards know: then it is told, and the next term is higher than theirs. A driver that was overtaken is told so by the same call,
//! since the map knows whose the last term is.

use super::moving::Moving;
use super::objects;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::shardmap::{MoveId, Store, Term};

/// Where a shard knows of moves.
pub(super) async fn take(moving: &mut Moving) -> Result<(), Stop> {
    let (target, source) = tokio::try_join!(take_if_known(&mut moving.target), take_if_known(&mut moving.source))?;
    match target.max(source) {
        Some(known) => confirm(moving, known).await,
        None => Ok(()),
    }
}

/// The same before the first act, when nothing need be there yet.
pub(super) async fn begin(moving: &mut Moving) -> Result<(), Stop> {
    let (target, source) = tokio::try_join!(take_first(&mut moving.target), take_first(&mut moving.source))?;
    confirm(moving, target.max(source)).await
}

/// `known`: by a shard that was told the driver's.
pub(super) async fn require_newest(store: &Store, (id, term): (MoveId, Term), known: Term) -> Result<(), Stop> {
    if known <= term {
        return Ok(());
    }
    store.raise_term(id, term, known).await?;
    tracing::warn!(move_id = id.0, "the map database had forgotten the last driver of a move");
    Err(Stop::Overtaken)
}

async fn confirm(moving: &Moving, known: Term) -> Result<(), Stop> {
    require_newest(&moving.store, (moving.the_move.id, moving.term), known).await?;
    moving.confirm_term().await
}

async fn take_if_known(site: &mut Site) -> Result<Option<Term>, SiteError> {
    match site.value::<bool>("SELECT pg_catalog.to_regclass('shardgate.term') IS NOT NULL").await? {
        true => site.take_term().await.map(Some),
        false => Ok(None),
    }
}

async fn take_first(site: &mut Site) -> Result<Term, SiteError> {
    site.send(objects::SHARED).await?;
    site.take_term().await
}
