//! Schema changes on every shard, and the schema as this proxy knows it.

pub(super) mod abandoned;
pub(super) mod calls;
pub(super) mod drift;
pub(super) mod every_shard;
pub(super) mod held;
mod keys_left;
pub(super) mod outside;
pub(super) mod own_catalog;
pub(super) mod patient;
pub(super) mod redefined;
pub(super) mod renamed;
pub(super) mod schema;
