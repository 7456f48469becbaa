//! A local cluster of real PostgreSQL servers, with the book catalogue, for a first look.
//!
//! `shardgate demo` starts a map server and one server a shard, the proxy in front of them, and makes the catalogue through
//! the proxy. Everything lies in one directory; a second start finds it and goes on from there, also when the first one was
//! cut short. Nothing here is used by the proxy itself; [`servers`] is used by the integration tests too.

mod catalogue;
mod directory;
mod error;
mod local_cluster;
mod run;
pub mod servers;

pub use catalogue::{CatalogueError, CatalogueSize, ShardAddress, load};
pub use error::DemoError;
pub use run::{DemoOptions, leave_session, run, start_detached, stop};
