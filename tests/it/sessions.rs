//! What a client's session is through the proxy, on real servers: whose answers it gets, what follows it from connection to
//! connection, what its transactions do, and what becomes of all that when something goes away.
//!
//! Cases of one file share a cluster and a proxy, since starting them costs more than most cases.

mod abandoned;
mod adopted;
mod altered;
mod answers;
mod bodies;
mod broken;
mod cluster_state;
mod copies;
mod cursors;
mod cut_off;
mod databases;
mod ddl;
mod ddl_limits;
mod ddl_races;
mod declared_bodies;
mod defaults;
mod departures;
mod explain;
mod farewells;
mod foreign_types;
mod gathered;
mod gathered_keys;
mod growth;
mod held;
mod inserters;
mod liars;
mod limits;
mod linguistic;
mod listening;
mod locks;
mod long_texts;
mod many_literals;
mod many_rows;
mod memory;
mod merges;
mod mixed;
mod neighbours;
mod numbered;
mod numbers;
mod outage;
mod own_definitions;
mod parity;
mod pinned;
mod pipelines;
mod prepared;
mod redefined;
mod reference_keys;
mod renamed;
mod schema;
mod scripts;
mod sealed;
mod sealed_matrix;
mod shard_defaults;
mod snapshots;
mod stage;
mod staged;
mod staying;
mod temporary;
mod temporary_names;
mod tenants;
mod user_schemas;
mod ways_in;

pub use stage::{Stage, succeed};
