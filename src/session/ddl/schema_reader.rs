//! The connection over which this proxy reads the home shard's schema, and what the last reading has left.
//!
//! ```text
//! none ─► open: the shard is checked, everything is read ─► kept: what has changed is read ─► closed: none
//! ```
//! The connection is the proof that the server is the one that was read before: only then are changes enough. It is closed when a
//! reading fails or is given up, when it does not answer at once, when the shard has another address, and after [`KEPT_FOR`], so
//! that a server that was replaced behind its address is not read for ever; everything is read again then.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, timeout};

use crate::backend::catalog_reader::{self, Known, WhenHeld};
use crate::backend::identity;
use crate::catalog::Catalog;
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::net::connect_options;
use crate::shardmap::Shard;

#[derive(Default)]
pub struct SchemaReader {
    kept: Option<Kept>,
    pub(super) known: Known,
}

struct Kept {
    url: String,
    opened: Instant,
    connection: PgConnection,
}

/// A whole reading once in this time costs little.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// The connection answers at once, or it is another one's turn.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

impl SchemaReader {
    /// Without definitions that others hold. Cancel safe: the connection is closed then.
    pub(super) async fn read(&mut self, shard: &Shard) -> Result<Catalog, PgError> {
        let is_usable = |kept: &Kept| kept.url == shard.url && kept.opened.elapsed() < KEPT_FOR;
        let mut kept = self.kept.take().filter(is_usable);
        if let Some(last) = &mut kept
            && !matches!(timeout(ANSWERS_WITHIN, last.connection.ping()).await, Ok(Ok(())))
        {
            kept = None;
        }
        let mut kept = match kept {
            Some(kept) => kept,
            None => {
                self.known.forget_connection();
                let connection = Box::pin(open(shard)).await?;
                Kept { url: shard.url.clone(), opened: Instant::now(), connection }
            }
        };
        let read = catalog_reader::read_changes(&mut kept.connection, &mut self.known, WhenHeld::LeaveOut).await;
        let catalog = read.map_err(|error| failed(shard, &error))?;
        self.kept = Some(kept);
        Ok(catalog)
    }
}

/// Reads everything, by a connection of its own. Without definitions that others hold.
pub(in crate::session) async fn read(shard: &Shard, known: &mut Known) -> Result<Catalog, PgError> {
    let mut connection = Box::pin(open(shard)).await?;
    let catalog = catalog_reader::read(&mut connection, known, WhenHeld::LeaveOut).await.map_err(|error| failed(shard, &error))?;
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "connection for the schema not closed in order");
    }
    Ok(catalog)
}

/// To the shard, and to no other database.
async fn open(shard: &Shard) -> Result<PgConnection, PgError> {
    let options = ShardUrl::parse(&shard.url)
        .and_then(|url| connect_options(&url, "shardgate"))
        .map_err(|error| unreadable(shard).with_detail(format!("Its URL cannot be used: {error}.")))?;
    let mut connection = Box::pin(PgConnection::connect_with(&options)).await.map_err(|error| failed(shard, &error))?;
    if let Some(expected) = &shard.identity {
        let shown = identity::check(&mut connection, expected).await.map_err(|error| failed(shard, &error))?;
        shown.map_err(|misdirected| misdirected.into_error(&shard.name))?;
    }
    Ok(connection)
}

fn failed(shard: &Shard, error: &dyn std::error::Error) -> PgError {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    unreadable(shard).with_detail(format!("{error}{source}"))
}

pub(super) fn unreadable(shard: &Shard) -> PgError {
    let kind = if shard.is_home { "the home shard" } else { "shard" };
    PgError::new(SqlState::CANNOT_CONNECT_NOW, format!("the schema of {kind} \"{}\" cannot be read", shard.name))
}
