//! What tests start: PostgreSQL servers, and the proxy in front of them.
//!
//! ```text
//! let cluster = Cluster::start(3).await;          // one server with the databases map, shard0, shard1, shard2
//! let cluster = Cluster::separate_servers(3);     // four servers, when one of them shall be killed
//! let proxy = Proxy::start(&cluster, ProxyOptions::default());
//! let client = proxy.connect().await;
//! ```
//! Everything ends when its value is dropped, also when the test panics or its process is killed.

mod cable;
mod certificates;
mod cluster;
mod doorman;
mod frozen;
mod machines;
mod proxy;
mod psql;
mod standby;
pub mod tpch;
mod versions;
mod volume;
mod wire_client;

pub use cable::{Cable, Lie};
pub use certificates::{Certificates, KeyFiles};
pub use cluster::{Cluster, Text, connect, server_directory};
pub use doorman::Doorman;
pub use frozen::Frozen;
pub use machines::{Machine, on_machines};
pub use proxy::{Proxy, ProxyOptions, ProxyUser};
pub use psql::{client_program, psql_output, psql_rows};
pub use standby::{Backup, Standby};
pub use versions::{OtherVersion, postgres_18, system_major};
pub use volume::volume;
pub use wire_client::{Message, WireClient, cancel};
