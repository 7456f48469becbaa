//! A local cluster of real PostgreSQL servers.
//!
//! [`servers`] starts and ends PostgreSQL servers; it serves the demo and the integration tests alike.

pub mod servers;
