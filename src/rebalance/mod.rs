//! The operator's verbs: what `shard-rebalance` does.
//!
//! Reads the map database and the shards directly, never through a proxy, so that it works while none runs. Each verb first
//! gathers plain data, then prints it: as a table with units for people, or as JSON for machines. The verbs so far only read:
//! they change neither the map nor a shard.

mod cluster;
mod connection;
mod counts;
mod error;
pub mod history;
mod layout;
mod render;
mod sizes;
pub mod status;
pub mod units;
mod watch;

pub use error::RebalanceError;
pub use status::{Status, StatusOptions};
pub use watch::{WatchOptions, watch};
