//! The operator's verbs: what `shard-rebalance` does.
//!
//! Reads the map database and the shards directly, never through a proxy, so that it works while none runs. Each verb first
//! gathers plain data, then prints it: as a table with units for people, or as JSON for machines. What changes something is in
//! [`moves`].

pub mod apply;
mod cluster;
mod connection;
mod counts;
pub mod doctor;
mod error;
mod estimates;
pub mod history;
pub mod in_sql;
mod layout;
pub mod move_verbs;
pub mod moves;
pub mod partition_verbs;
pub mod plan;
pub mod plan_verbs;
mod progress;
mod render;
mod sizes;
pub mod status;
pub mod units;
pub mod verify_verb;
mod watch;

pub use error::RebalanceError;
pub use status::{Status, StatusOptions};
pub use watch::{WatchOptions, watch};
