//! Runs a statement on several shards at once and makes one answer of theirs; commits what was written on several.
//!
//! [`scatter`] sends nothing by itself: the session has put the fragment into each connection's output. It reads the answers,
//! merges them as the plan says and hands rows on in bounded pieces. Memory is a read buffer for each shard: a shard whose rows
//! are not needed yet is not read, which stops it by back-pressure.
//!
//! Only orders that the proxy knows exactly are merged (`sort_key`); everything else has been refused before.
//!
//! [`commit`] ends a transaction that has written on several shards, [`recovery`] finishes what such commits have left.

pub mod commit;
mod numeric;
pub mod recovery;
mod scatter;
mod sort_key;

pub use scatter::{RowSink, ScatterEnd, ScatterError, Spec, scatter};
