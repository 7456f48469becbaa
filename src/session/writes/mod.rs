//! Writes on several shards: parts, copies, rows that move, and writes whose queries are answered first.

pub(super) mod batches;
pub(super) mod chosen;
pub(super) mod exact;
pub(super) mod left_out;
pub(super) mod merging;
pub(super) mod moved;
pub(super) mod staged;
pub(super) mod staged_with;
pub(super) mod unsettled;
pub(super) mod write;
