//! Behaviour, as a user sees it, against real PostgreSQL servers.
//!
//! One binary, since linking is most of a test build. Each test starts the servers it needs from a cached template (see
//! `support`) and ends them; nothing is shared between tests, so they may run in any order and all at once.

mod containers;
mod declare;
mod demo;
mod drivers;
mod guarded_map;
mod hostile_session;
mod hostile_startup;
mod limits;
mod login;
mod login_to_shard;
mod login_unlisted;
mod metrics;
mod mixed_versions;
mod moves;
mod online_moves;
mod parity;
mod rebalance;
mod refusals;
mod relations;
mod residues;
mod servers;
mod sessions;
mod setup_script;
mod shard_changes;
mod shard_key_conversion;
mod shard_key_hash;
mod shard_urls;
mod shardmap;
mod signals;
mod support;
mod transactions;
