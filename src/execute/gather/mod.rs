//! Runs a statement on PostgreSQL over rows that were gathered from the shards.
//!
//! ```text
//!   shards (own transactions, or one REPEATABLE READ READ ONLY each)      scratch (home shard, REPEATABLE READ)
//!   ───────────────────────────────────────────────────────────────      ─────────────────────────────────────
//!   BEGIN, SET LOCAL …, COPY (SELECT …) TO STDOUT, …, ROLLBACK   ║        BEGIN, EXPLAIN of the client's text: its rights
//!                                                                ║        CREATE TEMPORARY TABLE …, Parse, Describe
//!                                                                ║        INSERT … SELECT: the home shard's own rows
//!                      rows, undecoded  ════════════════════════►╝        COPY … FROM STDIN, table by table
//!                                                                         the statement ──► rows to the client
//!                                                                         ROLLBACK
//! ```
//!
//! Tables are loaded in rounds: what a later round asks the shards for is restricted by keys of what earlier ones have loaded, in the
//! same snapshots. [`load`] fills the tables, [`answer`] runs the statement; for a cursor, [`open`] and [`fetch`] do, and the transaction stays open. Every shard's snapshot is taken before the first row is read. Rows
//! go through as they come, from all shards at once; when the scratch session does not keep up, the shards are not read. What is
//! transported is text under settings that lose nothing; the statement itself runs under the client's own.
//!
//! Nothing here takes or gives back connections, and nothing is committed: the scratch transaction is rolled back at the end,
//! or its connection is to be dropped.

mod answer;
mod cursor;
mod load;
mod script;

use bytes::Bytes;
use thiserror::Error;

use crate::backend::{Connection, ConnectionError};
use crate::error::PgError;
use crate::wire::shard_tag;

pub use answer::{Final, RIGHTS_OFFSET, answer, check_rights, roll_back};
pub use cursor::{Fetch, Opening, fetch, open};
pub use load::{Loaded, Part, Sent, load, read_to_end};
pub use script::{Fragments, Script};

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Scratch,
    /// Index of the part.
    Part(usize),
}

/// What was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Whether the client may read what it names: PostgreSQL's own word on the client's own text.
    Rights,
    /// Making the temporary tables.
    Tables,
    /// The statement's analysis over them.
    Analysis,
    /// Copying rows.
    Load,
    /// The statement itself.
    Answer,
}

#[derive(Debug, Error)]
pub enum GatherError<G> {
    /// An ErrorResponse, the whole frame.
    #[error("a shard refused")]
    Shard { side: Side, stage: Stage, frame: Bytes },
    #[error("a shard was lost")]
    Lost { side: Side, error: ConnectionError },
    #[error("more rows than the limit allows")]
    TooLarge,
    /// Over the temporary tables the statement's columns are others than the home shard described.
    #[error("the columns differ")]
    Differs,
    /// A text cannot be covered.
    #[error("not supported")]
    Unsupported(PgError),
    #[error("the client has gone")]
    Gone(G),
}

/// In a transaction, with nothing owed: it can be rolled back.
pub fn is_between_statements(connection: &Connection) -> bool {
    !connection.owes() && connection.input.is_empty() && connection.output.is_empty() && connection.status == b'E'
}

/// The status that every connection notes at the end of an answer.
fn note(connection: &mut Connection, tag: u8, body: &[u8]) {
    if tag == shard_tag::READY {
        connection.note_ready(body.first().copied().unwrap_or(b'E'));
    }
}

/// The frame that this body came in.
fn error_frame(body: &[u8]) -> Bytes {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
    [&[shard_tag::ERROR][..], &length, body].concat().into()
}
