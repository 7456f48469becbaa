//! Runs a statement on several shards at once and makes one answer of theirs; commits what was written on several.
//!
//! [`scatter`] sends nothing by itself: the session has put the fragment into each connection's output. It reads the answers,
//! merges them as the plan says and hands rows on in bounded pieces. Memory is a read buffer for each shard: a shard whose rows
//! are not needed yet is not read, which stops it by back-pressure. An error ends the statement on all shards, also while others are
//! silent (`watch`).
//!
//! [`Pieces`] does the same for a cursor, whose rows are asked for piece by piece.
//!
//! [`gather`] lets PostgreSQL compute over rows that are brought together first.
//!
//! Only orders that the proxy knows exactly are merged (`sort_key`), or that PostgreSQL has told (`ranks`), and only what is exact is combined (`aggregate`): groups are
//! kept until the last shard has ended, within a bound in bytes. Everything else has been refused before.
//!
//! [`copy_in`] tells apart the rows of a COPY FROM STDIN, so that each goes to its shard.
//!
//! [`commit`] ends a transaction that has written on several shards, [`recovery`] finishes what such commits have left.
//! [`barrier`] keeps such commits away for the moment in which snapshots are taken on all shards.
//! [`deadlock`] breaks rings of transactions that no shard sees by itself. [`numbers`] gives cluster-wide numbers to sessions and shards.

mod aggregate;
pub mod barrier;
pub mod commit;
pub mod copy_in;
mod copy_out;
pub mod deadlock;
pub mod gather;
mod last_step;
pub mod numbers;
mod numeric;
mod pieces;
mod proof;
mod ranks;
pub mod recovery;
mod scatter;
mod sort_key;
mod watch;

pub use aggregate::CombineError;
pub use copy_out::{CopyModel, CopyRows};
pub use last_step::{LastStep, LastStepEnd, LastStepError, last_step};
pub use pieces::{Need, Next, Pieces, without_last_columns};
pub use proof::AskedBy;
pub use ranks::{Unranked, ranks};
pub use scatter::{RowSink, Rows, STOP_AFTER, ScatterEnd, ScatterError, Spec, scatter};
pub use sort_key::Printing;
pub use watch::{FAILURE_PATIENCE, first_failure};
