//! Turns bound keys into shards.
//!
//! [`bind`] puts an execution's parameters and literals into what the analysis says of the key (pure); [`resolve`] finds the
//! shards. It is the only place that waits for the shard map: for lookup keys that are not cached, and while a partition is
//! held at the cut-over of a move. [`SingleKey`] is the short way for the commonest statements: one key of one column, no
//! wait, no allocation. Nothing here picks a default: what is not proven is every shard of the group, and a key without a
//! shard is an error.

mod bind;
mod boxes;
mod inputs;
mod resolve;
mod shard_set;
mod single_key;
mod source;
#[cfg(test)]
mod testing;

pub use bind::{BoundCondition, KEYS_MAX, KeyRange, bind};
pub use inputs::{Inputs, Parameter};
pub use resolve::{Resolution, Target, resolve};
pub use shard_set::{ShardSet, Touched};
pub use single_key::{Place, SingleKey};
pub use source::{MapSource, SourceError};
