//! Queries over several shards: merged, or computed by PostgreSQL over gathered rows; row locks over several shards.

pub(super) mod ask;
pub(super) mod gather;
pub(super) mod last_step;
pub(super) mod lock_rows;
pub(super) mod overflow;
pub(super) mod ranking;
pub(super) mod reference_keys;
pub(super) mod scatter;
pub(super) mod staying;
