//! Bytes that a session may not keep in memory: they wait on the home shard, in a temporary table, in numbered pieces that nobody
//! there looks into, and come back one by one.
//!
//! A piece is a statement of its own, whose end is waited for: what makes the bytes is held back while the home shard takes them.
//! The connection is not the transaction's: one that has touched a temporary table cannot prepare a commit.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::gather::release;
use crate::backend::{Checkout, Connection, ConnectionError, CustomNames, Own, Pool, Pooled, Settings};
use crate::catalog::hex;
use crate::error::{PgError, SqlState};
use crate::session::cancel::CancelTarget;
use crate::session::protocol::describe::error_frame;
use crate::session::{Failure, Session, lost};

/// The pieces of one query.
pub(in crate::session) struct Overflow {
    place: Place,
    /// With the table; `None`: there is no piece, or none can be had any more.
    connection: Option<Pooled>,
    pieces: u64,
    bytes: u64,
    bytes_max: u64,
    /// Why a piece was not taken.
    failure: Option<Failure>,
    /// It has had a connection.
    counted: Option<Arc<()>>,
}

/// Those of a session that have a connection, which is held while it waits for others.
#[derive(Default)]
pub(in crate::session) struct OpenOverflows(Arc<()>);

impl OpenOverflows {
    pub fn are_there(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// What it takes to get a connection, which mostly is not needed.
struct Place {
    pool: Arc<Pool>,
    runtime: usize,
    settings: Arc<Settings>,
    names: CustomNames,
    cancel: Arc<CancelTarget>,
    open: Weak<()>,
}

pub(in crate::session) fn overflow(session: &mut Session) -> Result<Overflow, Failure> {
    let home = session.home()?;
    let place = Place {
        pool: session.pool(&home)?,
        runtime: session.login.runtime,
        settings: session.settings_now(),
        names: session.custom_names.clone(),
        cancel: Arc::clone(&session.cancel),
        open: Arc::downgrade(&session.staging.open_overflows.0),
    };
    let bytes_max = session.gateway.config.cross_shard.gather_bytes_max;
    Ok(Overflow { place, connection: None, pieces: 0, bytes: 0, bytes_max, failure: None, counted: None })
}

impl Overflow {
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// The next piece. Whether it was taken is told by [`Overflow::check`]. Cancel safe: one that was not waited for is a failure.
    pub async fn put(&mut self, piece: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(PgError::internal("rows were not put aside").into());
        self.failure = self.try_put(piece).await.err();
    }

    async fn try_put(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(self.too_large().into());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.counted = self.place.open.upgrade();
                self.place.open().await?
            }
        };
        let insert = format!("INSERT INTO {TABLE} VALUES ({}, pg_catalog.decode('{}', 'hex'))", self.pieces, hex(piece));
        run(&mut connection, &insert).await?;
        self.connection = Some(connection);
        self.pieces += 1;
        Ok(())
    }

    /// All pieces are there.
    pub fn check(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A piece, by its number from 0; `None` after the last one.
    pub async fn piece(&mut self, number: u64) -> Result<Option<Vec<u8>>, Failure> {
        if number >= self.pieces {
            return Ok(None);
        }
        let mut connection = self.connection.take().ok_or_else(|| PgError::internal("rows that were put aside are gone"))?;
        let select = format!("SELECT pg_catalog.encode(piece, 'hex') FROM {TABLE} WHERE number OPERATOR(pg_catalog.=) {number}");
        let rows = run(&mut connection, &select).await?;
        self.connection = Some(connection);
        let piece = rows.first().and_then(|row| row.first()?.as_deref()).and_then(unhex);
        piece.map(Some).ok_or_else(|| PgError::internal("rows that were put aside are not as they were").into())
    }

    /// Gives the connection back. Dropped instead, it closes it.
    pub async fn end(mut self) -> Result<(), Failure> {
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        run(&mut connection, "ROLLBACK").await?;
        release(&self.place.cancel, connection);
        Ok(())
    }

    fn too_large(&self) -> PgError {
        PgError::new(
            SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            format!("a sub-select has more than {} bytes of rows beyond those that are kept in memory", self.bytes_max),
        )
        .with_detail("They wait in a temporary table on the home shard. The limit is cross_shard.gather_bytes_max.")
        .with_hint("Write fewer rows at a time, or raise the limit.")
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            self.place.cancel.ended(connection);
        }
    }
}

impl Place {
    /// A connection in a transaction of its own, with the table.
    async fn open(&self) -> Result<Pooled, Failure> {
        let fits = |connection: &Connection| connection.knows_only(&self.names);
        // The query holds others.
        let mut connection = tokio::select! {
            biased;
            found = self.pool.checkout(Checkout::LateJoiner, self.runtime, fits) => found.map_err(PgError::from)?,
            () = self.cancel.cancelled() => {
                return Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into());
            }
        };
        self.cancel.started(&connection);
        let name = self.pool.address.name.clone();
        connection.apply_settings(&self.settings, &self.names).await.map_err(|error| refused(&name, error))?;
        run(&mut connection, BEGIN).await?;
        Ok(connection)
    }
}

async fn run(connection: &mut Pooled, sql: &str) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
    let ran = connection.simple(&Own::OwnTables.text(sql)).await;
    ran.map_err(|error| refused(&connection.pool().address.name, error))
}

fn refused(shard: &str, error: ConnectionError) -> Failure {
    match error {
        ConnectionError::Refused { sqlstate, message, .. } if sqlstate.as_bytes() == SqlState::INSUFFICIENT_PRIVILEGE.0 => {
            PgError::unsupported(
                "so many rows for several shards need temporary tables, which this user may not create",
                format!("Rows beyond cross_shard.merge_bytes_max wait on the home shard. The shard said: {message}."),
                "Grant the privilege TEMPORARY on the home shard's database, or write fewer rows at a time.",
            )
            .into()
        }
        ConnectionError::Refused { body, .. } => Failure::Shard(error_frame(&body)),
        error => lost(shard, &error).into(),
    }
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Bytes of a piece.
pub(in crate::session) const PIECE_BYTES: usize = 256 * 1024;
const TABLE: &str = "pg_temp.shardgate_overflow";
/// It waits for the client's own statements, however long these take.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\
    SET LOCAL idle_in_transaction_session_timeout = 0;\
    CREATE TEMPORARY TABLE shardgate_overflow (number pg_catalog.int8 PRIMARY KEY, piece pg_catalog.bytea NOT NULL) ON COMMIT DROP;\
    ALTER TABLE pg_temp.shardgate_overflow ALTER COLUMN piece SET STORAGE EXTERNAL";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_after_their_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(hex(&bytes).as_bytes()).as_deref(), Some(bytes.as_slice()));
        assert_eq!(unhex(b"0"), None);
        assert_eq!(unhex(b"0g"), None);
    }
}
