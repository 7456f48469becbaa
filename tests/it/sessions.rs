//! What a client's session is through the proxy, on real servers: whose answers it gets, what follows it from connection to
//! connection, what its transactions do, and what becomes of all that when something goes away.
//!
//! Cases of one file share a cluster and a proxy, since starting them costs more than most cases.

mod answers;
mod copies;
mod cursors;
mod explain;
mod gathered;
mod limits;
mod locks;
mod merges;
mod outage;
mod parity;
mod pinned;
mod prepared;
mod schema;
mod snapshots;
mod stage;

pub use stage::Stage;
